/* scripts.c - any reply to a script: it means what the script's head comment says, or nothing.
 *
 * Each step begins an operation of one kind of lock, and the input chooses the reply to its script; all
 * other requests have a good server.  hiredis' own tree of the reply decides here, a second time, whether it
 * grants, releases or tells something:
 *
 *     an acquire ends with a hold exactly if a reply granted one, with the token of that reply
 *     a release that has one reply ends as that says
 *     a renewed hold is lost exactly if the reply names it, and for that reason
 *     what info, force and count tell is what the reply says, and other replies are an error
 *
 * Besides, the checks of party.h after every call.
 */
#include "calls.h"
#include "replies.h"

#include "engine/ask.h"

#include <hiredis/hiredis.h>

#define GATES 12
#define REPLY_MAX 8192

static const struct call_lock gates[GATES] = {
    {SNIB_MUTEX, "m", 1},  {SNIB_FAIR, "f", 1},      {SNIB_READ, "rw", 2},
    {SNIB_WRITE, "ww", 2}, {SNIB_FENCED, "t", 1},    {SNIB_SPIN, "s", 1},
    {SNIB_PLAIN, "p", 1},  {SNIB_SEMAPHORE, "c", 1}, {SNIB_PERMITS, "e", 1},
    {SNIB_LATCH, "l", 1},  {SNIB_MUTEX, "{m}2", 4},  {SNIB__MULTI, "mm\0ft\0wrw", 10}};

static struct party party;
static struct input in;
static struct snib__config config;

/* The step that is under way. */
static struct {
    const struct snib__op *op;        /* NULL: none, or it has ended */
    const struct snib__hold *renewed; /* NULL: none */
    redisReply *reply;                /* the input's, once it is sent */
    unsigned sent;                    /* replies to its request, good ones included */
    unsigned grants;                  /* replies that may grant something */
} step_on;

/* ---- What a reply means ------------------------------------------------------------------------------ */

static bool is_array(const redisReply *reply, size_t n)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == n;
}

static bool is_integer(const redisReply *reply, int64_t number)
{
    return reply->type == REDIS_REPLY_INTEGER && reply->integer == number;
}

static int64_t number_in(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        return reply->integer;
    bool text = reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS;
    return text ? strtoll(reply->str, NULL, 10) : 0;
}

static bool has_tokens(int32_t kind)
{
    return kind == SNIB_FENCED || kind == SNIB_WRITE;
}

static bool grants(int32_t kind, const redisReply *reply)
{
    if (kind == SNIB_FAIR)
        return reply->type == REDIS_REPLY_STRING;
    return reply->type == REDIS_REPLY_NIL ||
           (has_tokens(kind) && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0);
}

static int64_t token_of(int32_t kind, const redisReply *reply)
{
    if (kind == SNIB_FAIR)
        return number_in(reply);
    return reply->type == REDIS_REPLY_ARRAY ? number_in(reply->element[0]) : 0;
}

/* What a program releases was granted, and is more than a place in a queue. */
static bool releases(int32_t kind, const redisReply *reply)
{
    const redisReply *said = kind == SNIB_FAIR && is_array(reply, 5) ? reply->element[0] : reply;
    if (kind == SNIB_FAIR || kind == SNIB__MULTI)
        return (kind != SNIB_FAIR || said != reply) &&
               (is_integer(said, 1) || is_integer(said, -1));
    return reply->type == REDIS_REPLY_INTEGER && (reply->integer > 0 || reply->integer == -1);
}

/* Whether the reply to a request may give a hold to this client. */
static bool may_grant(int kind_of_request, int32_t kind, const redisReply *reply)
{
    if (kind_of_request == SNIB__REQ_ACQUIRE)
        return grants(kind, reply);
    if (kind_of_request == SNIB__REQ_TRANSFER)
        return is_integer(reply, 1) || reply->type == REDIS_REPLY_ARRAY;
    return kind_of_request == SNIB__REQ_RELEASE && kind == SNIB_FAIR && is_array(reply, 5);
}

/* Whether a script of this kind may answer that; any other reply ends the link, and answers nothing. */
static bool fits(uint8_t forms, const redisReply *reply)
{
    static const uint8_t lists[] = {0, SNIB__LIST_1, SNIB__LIST_2, SNIB__LIST_3, 0, SNIB__LIST_5};
    bool scalars = reply->type == REDIS_REPLY_ARRAY && reply->elements < sizeof lists;
    for (size_t i = 0; scalars && i < reply->elements; i++)
        scalars = reply->element[i]->type != REDIS_REPLY_ARRAY || reply->element[i]->elements == 0;
    uint8_t form = reply->type == REDIS_REPLY_NIL       ? SNIB__NIL
                   : reply->type == REDIS_REPLY_INTEGER ? SNIB__NUMBER
                   : reply->type == REDIS_REPLY_STRING  ? SNIB__TEXT
                   : scalars                            ? lists[reply->elements]
                                                        : 0;
    return reply->type == REDIS_REPLY_ERROR || (forms & form) != 0;
}

/* ---- What an operation tells of it ------------------------------------------------------------------- */

static void check_acquired(const struct snib__op *op, const redisReply *reply)
{
    int32_t kind = snib__gate_kind(op->gate);
    if (op->code == SNIB_OK)
        MUST(step_on.grants > 0);
    if (!reply || !fits(snib__kind_of(kind)->acquires, reply))
        return;
    if (grants(kind, reply)) {
        MUST(op->code == SNIB_OK);
        if (kind == SNIB_FENCED || kind == SNIB_FAIR)
            MUST(snib__hold_fencing(op->hold) == token_of(kind, reply));
    } else if (kind == SNIB_PERMITS && is_integer(reply, -3)) {
        MUST(op->code == SNIB_EPERMITS);
    } else if (reply->type != REDIS_REPLY_ERROR) {
        MUST(op->code == SNIB_BUSY || op->code == SNIB_CANCELLED);
    }
}

static void check_released(const struct snib__op *op, const redisReply *reply)
{
    if (!fits(snib__kind_of(snib__gate_kind(op->gate))->releases, reply))
        return;
    if (reply->type == REDIS_REPLY_ERROR)
        MUST(op->code < 0 || op->code == SNIB_LOST);
    else
        MUST(op->code == (releases(snib__gate_kind(op->gate), reply) ? SNIB_OK : SNIB_LOST));
}

static void check_info(const struct snib__op *op, const redisReply *reply)
{
    bool good = is_array(reply, 5);
    for (size_t i = 0; good && i < 4; i++)
        good = reply->element[i]->type == (i == 1 ? REDIS_REPLY_STRING : REDIS_REPLY_INTEGER);
    MUST(op->code == (good ? SNIB_OK : SNIB_EPROTOCOL));
    if (!good)
        return;
    int64_t left = reply->element[0]->integer, waiting = reply->element[3]->integer;
    MUST(op->answer->held == (left != -2));
    MUST(op->answer->remaining_ms == (left != -2 ? left : 0));
    MUST(op->answer->count == reply->element[2]->integer);
    MUST(op->answer->waiting == waiting || (waiting > 0 && op->answer->waiting == waiting - 1));
    MUST(op->answer->fencing == number_in(reply->element[4]));
}

/* Of an array only the texts are told, without the first `from`. */
static void check_texts(const struct snib__op *op, const redisReply *reply, size_t from)
{
    uint32_t texts = 0;
    bool nested = false;
    MUST(reply->type == REDIS_REPLY_ARRAY);
    for (size_t i = from; i < reply->elements; i++) {
        texts += reply->element[i]->type == REDIS_REPLY_STRING;
        nested |= reply->element[i]->type == REDIS_REPLY_ARRAY;
    }
    MUST(op->asked->texts && (nested || op->asked->texts->count == texts));
}

static void check_asked(const struct snib__op *op, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        MUST(op->code < 0);
    } else if (op->kind == SNIB__OP_INFO) {
        check_info(op, reply);
    } else if (op->kind == SNIB__OP_FORCE) {
        MUST(op->code == (is_integer(reply, 1) ? SNIB_OK : SNIB_NOT_HELD));
    } else if (op->kind == SNIB__OP_COUNT) {
        MUST(op->code == SNIB_OK && op->answer->count == number_in(reply));
    } else if (op->kind == SNIB__OP_EXTEND) {
        bool empty = is_array(reply, 0), lost = op->code == SNIB_LOST || op->code == SNIB_NOT_HELD;
        MUST(lost || (empty ? op->code == SNIB_OK : op->code < 0)); /* another form ends the link */
    } else if (op->code == SNIB_OK) {
        check_texts(op, reply, op->kind == SNIB__OP_LIST);
    } else {
        MUST(op->code == SNIB_EPROTOCOL || op->code == SNIB_ELIMIT);
    }
}

static void ended(struct party *p, const struct snib__op *op)
{
    (void)p;
    bool mine = op == step_on.op, once = mine && step_on.reply && step_on.sent == 1;
    if (op->kind == SNIB__OP_ACQUIRE)
        check_acquired(op, once ? step_on.reply : NULL);
    else if (once && op->kind == SNIB__OP_RELEASE)
        check_released(op, step_on.reply);
    else if (once)
        check_asked(op, step_on.reply);
    if (mine)
        step_on.op = NULL;
}

/* ---- The server -------------------------------------------------------------------------------------- */

static redisReply *tree_of(const char *bytes, size_t n)
{
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    redisReaderFeed(reader, bytes, n);
    MUST(redisReaderGetReply(reader, &reply) == REDIS_OK && reply); /* whole, and well-formed */
    redisReaderFree(reader);
    return reply;
}

/* Whether this request is what the step is about. */
static bool is_the_step(const struct snib__request *request)
{
    const struct snib__hold *hold = request->subject;
    const struct snib__batch *batch = request->subject;
    switch (request->kind) {
    case SNIB__REQ_ACQUIRE:
    case SNIB__REQ_RELEASE:
        return step_on.op && hold->op == step_on.op;
    case SNIB__REQ_ASK:
        return step_on.op && request->subject == step_on.op;
    case SNIB__REQ_RENEW:
        return step_on.renewed && batch->n == 1 && batch->of[0].hold == step_on.renewed;
    default:
        return false;
    }
}

/* The reply to a script: the input's to the first of the step, and then good ones. */
static size_t reply_to_script(struct pipe *pipe, const struct command *command,
                              const struct snib__request *request, char *out)
{
    char owner[64];
    bool mine = is_the_step(request), chosen = mine && !step_on.reply;
    snprintf(owner, sizeof owner, "%s:1", config.uuid);
    size_t n = chosen ? reply_any(&in, owner, out, REPLY_MAX)
                      : party_reply(&party, pipe, command, "standalone", out, REPLY_MAX);
    redisReply *tree = tree_of(out, n);
    const struct snib__gate *gate = request->gate;
    step_on.sent += mine;
    if (gate)
        step_on.grants += may_grant(request->kind, gate->kind->kind, tree);
    if (chosen)
        step_on.reply = tree;
    else
        freeReplyObject(tree);
    return n;
}

static bool serve_pipe(struct pipe *pipe)
{
    char out[REPLY_MAX];
    struct command command;
    party_up(&party, pipe);
    if (!party_command(&party, pipe, &command))
        return false;
    /* All earlier ones are answered. */
    const struct snib__conn *conn = &pipe->link->conn;
    const struct snib__request *request = &conn->ring[conn->ring_head];
    bool script = conn->ring_count > 0 && request->kind > 0 &&
                  (word_is(command.word[0], "EVALSHA") || word_is(command.word[0], "EVAL"));
    size_t n = script ? reply_to_script(pipe, &command, request, out)
                      : party_reply(&party, pipe, &command, "standalone", out, sizeof out);
    party_took(&party, pipe, &command);
    party_send(pipe, out, n);
    party_deliver(&party, pipe, PARTY_PENDING);
    return true;
}

static void serve(void)
{
    bool more = true;
    for (unsigned rounds = 0; more; rounds++) {
        MUST(rounds < 2000);
        more = false;
        party_wishes(&party);
        for (unsigned i = 0; i < PARTY_PIPES && party.pipes[i].link; i++)
            more |= serve_pipe(&party.pipes[i]);
    }
}

/* ---- The program ------------------------------------------------------------------------------------- */

static struct snib__op *newest(void)
{
    struct snib__op *found = NULL;
    for (unsigned i = 0; i < PARTY_OPS; i++)
        if (party.ops[i] && (!found || party.ops[i]->serial > found->serial))
            found = party.ops[i];
    return found;
}

static void acquire(struct snib__gate *gate, const uint8_t step[STEP])
{
    int32_t kind = snib__gate_kind(gate);
    bool unowned = kind == SNIB_SEMAPHORE || kind == SNIB_LATCH;
    struct snib__acquire how = {
        .wait = step[2] & 1 ? SNIB__NEVER : 0,
        .lease = !unowned && step[2] & 2 ? 5 * SECOND : 0,
        .max_hold = !unowned && step[2] & 4 ? 9 * SECOND : 0,
        .permits = 1u + step[3] % 3,
        .options = (kind == SNIB_FAIR || kind == SNIB_WRITE) && step[2] & 8 ? SNIB_LOCK_FENCED : 0};
    party_acquire(&party, gate, &how);
}

static void release(const struct snib__gate *gate)
{
    for (unsigned i = 0; i < PARTY_HOLDS; i++)
        if (party.holds[i].hold && party.holds[i].hold->gate == gate) {
            party_release(&party, i);
            return;
        }
}

/* What became of a hold whose renewal had one reply. */
static void check_renewed(const struct snib__hold *hold, const redisReply *reply, bool lost,
                          snib__time before)
{
    bool named = fits(SNIB__LIST_2, reply) && reply->type == REDIS_REPLY_ARRAY &&
                 is_integer(reply->element[0], 1);
    if (named) {
        MUST(lost);
        if (reply->element[1]->type == REDIS_REPLY_INTEGER)
            MUST(snib__hold_reason(hold, party.now) ==
                 (reply->element[1]->integer ? SNIB_REASON_TAKEN : SNIB_REASON_DELETED));
    } else if (is_array(reply, 0)) {
        MUST(!lost && hold->deadline == snib__lease_end(party.now, config.lease));
    } else if (reply->type != REDIS_REPLY_ARRAY) {
        MUST(!lost && hold->deadline == before);
    }
}

/* The only hold of the lock is due for renewal. */
static void renew(const struct snib__gate *gate)
{
    struct party_hold *held = NULL;
    for (unsigned i = 0; i < PARTY_HOLDS; i++)
        if (party.holds[i].hold && party.holds[i].hold->gate == gate && !party.holds[i].lost)
            held = &party.holds[i];
    if (!held || held->hold->lease_ms || snib__gate_next(gate, held->hold))
        return;
    const struct snib__hold *hold = held->hold;
    snib__time before = hold->deadline;
    step_on.renewed = hold;
    party_pass(&party, config.lease / 2);
    party_tick(&party);
    serve();
    if (step_on.reply && step_on.sent == 1 && party.now < before &&
        snib__hold_reason(hold, party.now) != SNIB_REASON_MAX_HOLD)
        check_renewed(hold, step_on.reply, held->lost, before);
}

static void ask(struct snib__gate *gate, const uint8_t step[STEP])
{
    static const uint8_t questions[] = {0, 1, 3, 4, 6};
    party_ask(&party, questions[step[2] % 5], gate, number_any(step[3]));
}

static void begin_step(const uint8_t step[STEP])
{
    struct snib__gate *gate = party.gates[step[1] % GATES];
    switch (step[0] % 8) {
    case 0:
    case 1:
    case 2:
        acquire(gate, step);
        break;
    case 3:
    case 4:
        release(gate);
        break;
    case 5:
        ask(gate, step);
        break;
    case 6:
        renew(gate);
        return;
    default:
        party_pass(&party, calls_span(step[2]));
        party_tick(&party);
        return;
    }
    step_on.op = newest();
}

/* Whatever waits goes on with good replies, twice, and then it has waited enough. */
static void end_step(void)
{
    serve();
    for (int i = 0; i < 2 && step_on.op; i++) {
        if (party_next(&party) == SNIB__NEVER)
            break;
        party_pass(&party, party_next(&party) - party.now);
        party_tick(&party);
        serve();
    }
    if (step_on.reply)
        freeReplyObject(step_on.reply);
    step_on.reply = NULL;
    step_on.op = NULL;
    step_on.renewed = NULL;
    for (unsigned i = 0; i < PARTY_OPS; i++)
        party_cancel(&party, i);
    serve();
    step_on.grants = step_on.sent = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t head[STEP], step[STEP];
    in = (struct input){data, size};
    if (!take_step(&in, head))
        return 0;
    memset(&step_on, 0, sizeof step_on);
    config = party_config();
    config.seed = head[0] + 1u;
    config.handover_max = 0;
    party_begin(&party, &config);
    party.ended = ended;
    calls_gates(&party, gates, GATES);
    while (take_step(&in, step)) {
        begin_step(step);
        end_step();
    }
    party_end(&party);
    return 0;
}
