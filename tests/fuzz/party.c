/* party.c - see party.h. */
#include "party.h"

#include "../sim/engine_check.h"
#include "engine/ask.h"
#include "net/text.h"

#include <ctype.h>

/* ---- What must always be true ------------------------------------------------------------------- */

static snib__time later(snib__time a, snib__time b)
{
    return a > b ? a : b;
}

static void note_gate(struct party *p, const struct snib__gate *gate)
{
    struct party_bound *bound = &p->bounds[p->bounds_n++];
    *bound = (struct party_bound){.gate = gate};
    for (const struct snib__hold *hold = snib__gate_first(gate); hold;
         hold = snib__gate_next(gate, hold)) {
        if (hold->phase == SNIB__PLACED && hold->op) /* a message may grant it */
            bound->placed = later(bound->placed, hold->op->fair.seen_at);
        else if (hold->phase == SNIB__HELD)
            bound->held = later(bound->held, hold->deadline);
    }
}

static void enter(struct party *p)
{
    p->newest = 0;
    for (const struct snib__link *link = p->e->links; link; link = link->next)
        for (uint32_t i = 0; i < link->conn.ring_count; i++) {
            const struct snib__request *request =
                &link->conn.ring[(link->conn.ring_head + i) & (link->conn.ring_cap - 1)];
            p->newest = later(p->newest, request->sent_at);
        }
    p->bounds_n = 0;
    for (uint32_t i = 0; i < p->e->gates_cap; i++)
        for (const struct snib__gate *gate = p->e->gates[i]; gate; gate = gate->next)
            if (p->bounds_n < sizeof p->bounds / sizeof p->bounds[0])
                note_gate(p, gate);
}

/* The lease begins at the server when it executes a request, so not before that was sent; what was sent
 * during the call has no answer yet. */
static void check_deadlines(const struct party *p, const struct snib__gate *gate)
{
    static const struct party_bound none;
    const struct party_bound *bound = &none;
    for (uint32_t i = 0; i < p->bounds_n; i++)
        bound = p->bounds[i].gate == gate ? &p->bounds[i] : bound;
    snib__time sent = later(p->newest, bound->placed);
    for (const struct snib__hold *hold = snib__gate_first(gate); hold;
         hold = snib__gate_next(gate, hold)) {
        if (hold->phase != SNIB__HELD || hold->deadline == SNIB__NEVER)
            continue;
        snib__time most = snib__lease_end(sent, snib__hold_lease(p->e, hold));
        MUST(hold->deadline <= most || hold->deadline <= bound->held);
    }
}

static void check_text(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0, step; i < n; i += step) {
        uint32_t c;
        step = snib__utf8_next(text + i, n - i, &c);
        MUST(step > 0 && !snib__is_control(c));
    }
}

static void check_texts(const snib_texts *texts, size_t cap)
{
    const char *at = texts->text;
    MUST(texts->used <= cap);
    for (uint32_t i = 0; i < texts->count; i++, at += strlen(at) + 1) {
        MUST(at < texts->text + texts->used);
        check_text(at);
    }
}

/* What an operation tells the program. */
static void check_result(const struct snib__op *op)
{
    snib_event event;
    MUST(op->done);
    MUST(strcmp(snib_code_name(op->code), "SNIB_?") != 0);
    MUST(op->code != SNIB_AGAIN);
    memset(&event, 0, sizeof event);
    snib__op_event(op, &event);
    check_text(event.text);
    if (op->words)
        check_text(op->words);
    if (op->asked && op->asked->texts)
        check_texts(op->asked->texts, op->asked->cap);
}

static struct party_hold *find_hold(struct party *p, const struct snib__hold *hold)
{
    for (unsigned i = 0; i < PARTY_HOLDS; i++)
        if (p->holds[i].hold == hold)
            return &p->holds[i];
    return NULL;
}

static void check_hold(const struct party *p, struct party_hold *held)
{
    int state = snib__hold_state(p->e, held->hold, p->now);
    MUST(state >= SNIB_HOLD_VALID && state <= SNIB_HOLD_RELEASED);
    if (state == SNIB_HOLD_VALID || state == SNIB_HOLD_AT_RISK) {
        MUST(!held->lost);
        MUST(p->now < snib__hold_end(held->hold));
    }
    held->lost = held->lost || state == SNIB_HOLD_LOST;
}

void party_look(struct party *p)
{
    for (unsigned i = 0; i < PARTY_HOLDS; i++)
        if (p->holds[i].hold)
            check_hold(p, &p->holds[i]);
}

/* One user less; the last gives the hold back to the engine. */
static void leave_hold(struct party *p, struct party_hold *held)
{
    struct snib__hold *hold = held->hold;
    if (--held->users > 0)
        return;
    *held = (struct party_hold){0};
    snib__hold_drop(p->e, hold, p->now);
}

static void take_hold(struct party *p, struct snib__hold *hold)
{
    struct party_hold *held = find_hold(p, hold);
    MUST(hold->phase == SNIB__HELD || hold->phase == SNIB__LOST);
    if (!held) {
        held = find_hold(p, NULL);
        MUST(held);
        *held = (struct party_hold){.hold = hold};
        hold->tell = 1;
    }
    held->users++;
}

static void finish(struct party *p, struct snib__op *op)
{
    unsigned i = 0;
    while (i < PARTY_OPS && p->ops[i] != op)
        i++;
    MUST(i < PARTY_OPS); /* it ends once */
    p->ops[i] = NULL;
    check_result(op);
    if (p->ended)
        p->ended(p, op);
    if (op->kind == SNIB__OP_ACQUIRE && op->code == SNIB_OK) {
        if (snib__gate_kind(op->gate) != SNIB_LATCH)
            take_hold(p, op->hold);
    } else if (op->kind == SNIB__OP_RELEASE) {
        leave_hold(p, find_hold(p, p->released[i]));
    }
    p->released[i] = NULL;
    snib__op_free(p->e, op);
}

static void leave(struct party *p)
{
    int32_t level;
    const char *record, *flaw;
    bool more = true;
    while (more) {
        struct snib__hold *lost = snib__engine_take_lost(p->e);
        struct snib__op *op = snib__engine_take_done(p->e);
        MUST(!lost || find_hold(p, lost));
        if (op)
            finish(p, op);
        more = lost || op;
    }
    while ((record = snib__engine_take_log(p->e, &level)))
        check_text(record);
    flaw = engine_flaw(p->e);
    if (flaw)
        fuzz_broken(flaw, __FILE__, __LINE__);
    for (uint32_t i = 0; i < p->e->gates_cap; i++)
        for (const struct snib__gate *gate = p->e->gates[i]; gate; gate = gate->next)
            check_deadlines(p, gate);
    party_look(p);
}

/* ---- Beginning and end -------------------------------------------------------------------------- */

struct snib__config party_config(void)
{
    return (struct snib__config){.uuid = "00000000-0000-8000-8000-000000000001",
                                 .seed = 1,
                                 .first_number = 1,
                                 .lease = 30 * SECOND,
                                 .reply_timeout = 3 * SECOND,
                                 .patience = 5 * SECOND,
                                 .try_timeout = SECOND,
                                 .recheck = 3 * SECOND,
                                 .handover_max = 16,
                                 .ops_max = 1000};
}

void party_begin(struct party *p, const struct snib__config *config)
{
    memset(p, 0, sizeof *p);
    p->now = START;
    p->e = snib__engine_new(config);
    MUST(p->e);
    snib__engine_log_level(p->e, SNIB_LOG_INFO);
}

struct snib__gate *party_gate(struct party *p, unsigned at, int32_t kind, const char *name,
                              size_t n)
{
    MUST(at < PARTY_GATES && !p->gates[at]);
    p->gates[at] = snib__gate_get(p->e, kind, name, n);
    MUST(p->gates[at]);
    return p->gates[at];
}

void party_close(struct party *p)
{
    enter(p);
    snib__engine_close(p->e, p->now);
    leave(p);
    for (unsigned i = 0; i < PARTY_OPS; i++)
        MUST(!p->ops[i] || p->ops[i]->kind == SNIB__OP_RELEASE);
}

void party_end(struct party *p)
{
    party_close(p);
    party_drop_all(p);
    enter(p);
    snib__engine_stop(p->e, p->now);
    leave(p);
    for (unsigned i = 0; i < PARTY_GATES; i++)
        if (p->gates[i])
            snib__gate_put(p->e, p->gates[i]);
    snib__engine_free(p->e);
    for (unsigned i = 0; i < PARTY_PIPES; i++)
        snib__buf_free(&p->pipes[i].pending);
}

/* ---- The program -------------------------------------------------------------------------------- */

/* A free place for an operation, if there is room for the hold that it may bring. */
static struct snib__op **room(struct party *p)
{
    unsigned holds = 0, ops = 0;
    struct snib__op **free_one = NULL;
    for (unsigned i = 0; i < PARTY_HOLDS; i++)
        holds += p->holds[i].hold != NULL;
    for (unsigned i = 0; i < PARTY_OPS; i++) {
        ops += p->ops[i] != NULL;
        free_one = p->ops[i] ? free_one : &p->ops[i];
    }
    return holds + ops < PARTY_HOLDS ? free_one : NULL;
}

static void begun(struct snib__op **place, struct snib__op *op, int32_t code)
{
    MUST(op || code < 0);
    *place = op;
}

void party_acquire(struct party *p, struct snib__gate *gate, const struct snib__acquire *how)
{
    int32_t code = SNIB_OK;
    struct snib__op **place = room(p);
    if (!place || !gate)
        return;
    enter(p);
    begun(place, snib__engine_acquire(p->e, gate, how, p->now, &code), code);
    leave(p);
}

static struct party_hold *chosen(struct party *p, unsigned which)
{
    for (unsigned i = 0; i < PARTY_HOLDS; i++)
        if (p->holds[(which + i) % PARTY_HOLDS].hold)
            return &p->holds[(which + i) % PARTY_HOLDS];
    return NULL;
}

static bool is_releasing(const struct party *p, const struct snib__hold *hold)
{
    for (unsigned i = 0; i < PARTY_OPS; i++)
        if (p->released[i] == hold)
            return true;
    return false;
}

/* Another lease for a hold, or NULL: there is none that could have it. */
static struct snib__op *extend(struct party *p, int64_t n, int32_t *code)
{
    struct party_hold *held = chosen(p, (unsigned)(n & 0xff));
    if (!held || is_releasing(p, held->hold))
        return NULL;
    bool lost = held->lost;
    struct snib__op *op = snib__engine_extend(
        p->e, held->hold, (snib__time)(n / 256 % 3 * 1000) * SNIB__MS, p->now, code);
    MUST(!lost || !op);
    MUST(op || *code == SNIB_LOST || *code == SNIB_ENOTSUP || *code == SNIB_ENOMEM ||
         *code == SNIB_ELIMIT || *code == SNIB_ECLOSED || *code == SNIB_NOT_HELD);
    return op;
}

#define ASK_CAP 65536

static struct snib__op *ask(struct party *p, unsigned what, struct snib__gate *gate, int64_t n,
                            int32_t *code)
{
    size_t length;
    const char *name = snib__gate_name(gate, &length);
    bool counts = snib__kind_of(snib__gate_kind(gate))->count != NULL;
    struct snib__op *op;
    switch (what % 7) {
    case 0:
        return snib__engine_info(p->e, gate, p->now, code);
    case 1:
        return snib__engine_force(p->e, gate, p->now, code);
    case 2:
        return snib__engine_ping(p->e, n < 0 ? SNIB__NEVER : (snib__time)n * SNIB__MS, p->now,
                                 code);
    case 3:
        return snib__engine_list(p->e, (uint64_t)n, name, length, ASK_CAP, p->now, code);
    case 4:
        if (n % 4 == 1)
            return snib__engine_identity(p->e, p->e->config.uuid, 36, ASK_CAP, p->now, code);
        return snib__engine_describe(p->e, name, length, ASK_CAP, p->now, code);
    case 5:
        return snib__engine_server(p->e, 1 + (int32_t)((uint64_t)n % 11), ASK_CAP, p->now, code);
    default:
        if (counts)
            return snib__engine_count(p->e, gate, 1 + (int32_t)((uint64_t)n % 8), n / 8 + 1, p->now,
                                      code);
        op = extend(p, n < 0 ? 0 : n, code);
        return op ? op : snib__engine_info(p->e, gate, p->now, code);
    }
}

void party_ask(struct party *p, unsigned what, struct snib__gate *gate, int64_t n)
{
    int32_t code = SNIB_OK;
    struct snib__op **place = room(p);
    if (!place || !gate || snib__kind_of(snib__gate_kind(gate))->info.keys == 0)
        return;
    enter(p);
    begun(place, ask(p, what, gate, n, &code), code);
    leave(p);
}

void party_cancel(struct party *p, unsigned which)
{
    struct snib__op *op = p->ops[which % PARTY_OPS];
    if (!op)
        return;
    enter(p);
    MUST(snib__engine_cancel(p->e, op, p->now)); /* all that are done have been taken */
    MUST(op->done && op->code == SNIB_CANCELLED);
    leave(p);
}

void party_release(struct party *p, unsigned which)
{
    int32_t code = SNIB_OK;
    struct party_hold *held = chosen(p, which);
    struct snib__op **place = room(p);
    if (!held || !place || is_releasing(p, held->hold))
        return;
    enter(p);
    bool lost = held->lost;
    *place = snib__engine_release(p->e, held->hold, p->now, &code);
    MUST(!lost || (!*place && code == SNIB_LOST));
    if (*place)
        p->released[place - p->ops] = held->hold;
    else
        leave_hold(p, held);
    leave(p);
}

void party_drop(struct party *p, unsigned which)
{
    struct party_hold *held = chosen(p, which);
    if (!held || is_releasing(p, held->hold))
        return;
    enter(p);
    leave_hold(p, held);
    leave(p);
}

void party_drop_all(struct party *p)
{
    enter(p);
    for (unsigned i = 0; i < PARTY_HOLDS; i++) {
        struct party_hold *held = &p->holds[i];
        uint32_t kept = held->hold && is_releasing(p, held->hold); /* until that release ends */
        while (held->hold && held->users > kept)
            leave_hold(p, held);
    }
    leave(p);
}

void party_abandon(struct party *p, unsigned which)
{
    struct party_hold *held = chosen(p, which);
    if (!held || is_releasing(p, held->hold))
        return;
    enter(p);
    held->hold->users -= held->hold->users > 0;
    snib__hold_abandon(p->e, held->hold, p->now);
    leave_hold(p, held);
    leave(p);
}

/* ---- Time --------------------------------------------------------------------------------------- */

void party_pass(struct party *p, snib__time span)
{
    p->now += span;
}

snib__time party_next(struct party *p)
{
    snib__time next = snib__engine_deadline(p->e);
    return next > p->now ? next : p->now;
}

void party_tick(struct party *p)
{
    party_wishes(p);
    p->ticks = p->ticked_at == p->now ? p->ticks + 1 : 0;
    p->ticked_at = p->now;
    enter(p);
    snib__engine_tick(p->e, p->now);
    leave(p);
    party_wishes(p);
    /* It must not want to be called without end while nothing happens. */
    MUST(p->ticks < 1000 || snib__engine_deadline(p->e) > p->now);
}

/* ---- The network -------------------------------------------------------------------------------- */

static struct pipe *pipe_of(struct party *p, struct snib__link *link)
{
    struct pipe *pipe = snib__link_transport(link);
    for (unsigned i = 0; !pipe && i < PARTY_PIPES; i++)
        if (!p->pipes[i].link) {
            pipe = &p->pipes[i];
            pipe->link = link;
            snib__link_set_transport(link, pipe);
        }
    return pipe;
}

static void pipe_close(struct party *p, struct pipe *pipe)
{
    if (pipe->state == PIPE_UP && p->hung_up)
        p->hung_up(pipe);
    pipe->state = PIPE_DOWN;
    pipe->server = 0;
    snib__buf_drop(&pipe->pending);
}

void party_wishes(struct party *p)
{
    for (struct snib__link *link = snib__engine_links(p->e), *next; link; link = next) {
        next = snib__link_next(link);
        int wish;
        for (int i = 0; (wish = snib__engine_take_wish(p->e, link)) != SNIB__WISH_NOTHING; i++) {
            MUST(i < 100);
            struct pipe *pipe = pipe_of(p, link);
            if (wish == SNIB__WISH_CLOSE) {
                if (pipe)
                    pipe_close(p, pipe);
                continue;
            }
            MUST(!pipe || pipe->state == PIPE_DOWN);
            if (pipe) {
                pipe->state = PIPE_CONNECTING;
                continue;
            }
            enter(p);
            snib__engine_link_down(p->e, link, SNIB_EUNREACHABLE, 0, p->now);
            leave(p);
        }
    }
}

struct pipe *party_pipe(struct party *p, unsigned which)
{
    unsigned n = 0;
    while (n < PARTY_PIPES && p->pipes[n].link)
        n++;
    return n ? &p->pipes[which % n] : NULL;
}

void party_up(struct party *p, struct pipe *pipe)
{
    if (pipe->state != PIPE_CONNECTING)
        return;
    pipe->state = PIPE_UP;
    enter(p);
    snib__engine_link_up(p->e, pipe->link, p->now);
    leave(p);
    party_wishes(p);
}

void party_down(struct party *p, struct pipe *pipe, int32_t code, int os_error)
{
    if (pipe->state == PIPE_DOWN)
        return;
    pipe_close(p, pipe);
    enter(p);
    snib__engine_link_down(p->e, pipe->link, code, os_error, p->now);
    leave(p);
    party_wishes(p);
}

void party_send(struct pipe *pipe, const char *bytes, size_t n)
{
    if (n > 0 && pipe->state == PIPE_UP && snib__buf_size(&pipe->pending) + n <= PARTY_PENDING)
        MUST(snib__buf_append(&pipe->pending, bytes, n) == 0);
}

size_t party_deliver(struct party *p, struct pipe *pipe, size_t n)
{
    size_t size = snib__buf_size(&pipe->pending);
    n = n < size ? n : size;
    if (n == 0 || pipe->state != PIPE_UP)
        return 0;
    char *bytes = malloc(n); /* of its own, so that every byte too far is noticed */
    MUST(bytes);
    memcpy(bytes, pipe->pending.data + pipe->pending.head, n);
    snib__buf_consume(&pipe->pending, n);
    enter(p);
    snib__engine_input(p->e, pipe->link, bytes, n, p->now);
    leave(p);
    free(bytes);
    /* Doubt ends the connection. */
    MUST(!pipe->link->close || pipe->link->conn.state == SNIB__CONN_DOWN);
    party_wishes(p);
    return n;
}

/* ---- Requests and replies ----------------------------------------------------------------------- */

bool word_is(struct word word, const char *text)
{
    return word.n == strlen(text) && memcmp(word.p, text, word.n) == 0;
}

/* What a mark and a number say. */
static const char *parse_number(const char *at, const char *end, char mark, size_t *out)
{
    MUST(at < end && *at == mark);
    size_t n = 0;
    for (at++; at < end && isdigit((unsigned char)*at); at++)
        n = n * 10 + (size_t)(*at - '0');
    MUST(end - at >= 2 && at[0] == '\r' && at[1] == '\n');
    *out = n;
    return at + 2;
}

bool party_command(struct party *p, struct pipe *pipe, struct command *out)
{
    (void)p;
    const struct snib__buf *bytes = snib__link_output(pipe->link);
    if (pipe->state != PIPE_UP || snib__buf_size(bytes) == 0)
        return false;
    const char *at = bytes->data + bytes->head, *end = bytes->data + bytes->len;
    size_t argc, n;
    memset(out, 0, sizeof *out);
    at = parse_number(at, end, '*', &argc);
    MUST(argc > 0);
    for (size_t i = 0; i < argc; i++) {
        at = parse_number(at, end, '$', &n);
        MUST((size_t)(end - at) >= n + 2 && at[n] == '\r' && at[n + 1] == '\n');
        if (i < COMMAND_WORDS)
            out->word[i] = (struct word){at, n};
        at += n + 2;
    }
    out->argc = (unsigned)argc;
    out->bytes = (size_t)(at - bytes->data) - bytes->head;
    return true;
}

void party_took(struct party *p, struct pipe *pipe, const struct command *command)
{
    p->commands++;
    snib__buf_consume(snib__link_output(pipe->link), command->bytes);
}

static int script_by_text(struct word text, int *out_publish)
{
    for (int publish = 0; publish < 3; publish++)
        for (int i = 0; i < SNIB__SCRIPT_COUNT; i++) {
            const struct snib__script_text *script = snib__script_of(i, publish);
            if (script->length == text.n && memcmp(script->text, text.p, text.n) == 0) {
                *out_publish = publish;
                return i;
            }
        }
    return -1;
}

static const char *script_name(struct word sha1)
{
    for (int publish = 0; publish < 3; publish++)
        for (int i = 0; i < SNIB__SCRIPT_COUNT; i++)
            if (word_is(sha1, snib__script_of(i, publish)->sha1))
                return snib__script_texts[i].name;
    return "";
}

static size_t reply_bulk(char *out, size_t cap, const char *text)
{
    return (size_t)snprintf(out, cap, "$%zu\r\n%s\r\n", strlen(text), text);
}

static size_t reply_text(char *out, size_t cap, const char *text)
{
    return (size_t)snprintf(out, cap, "%s", text);
}

/* What a script says when all is well. */
static size_t reply_script(const char *name, char *out, size_t cap)
{
    if (strstr(name, "info"))
        return reply_text(out, cap, "*5\r\n:1000\r\n$1\r\nx\r\n:1\r\n:0\r\n$1\r\n7\r\n");
    if (strstr(name, "renew"))
        return reply_text(out, cap, "*0\r\n");
    if (strcmp(name, "fair_release") == 0)
        return reply_text(out, cap, "*5\r\n:1\r\n:0\r\n:0\r\n:0\r\n:1000\r\n");
    if (strcmp(name, "fair_acquire") == 0)
        return reply_text(out, cap, "$1\r\n7\r\n");
    if (strcmp(name, "fenced_acquire") == 0)
        return reply_text(out, cap, "*1\r\n$1\r\n7\r\n");
    if (strcmp(name, "list") == 0)
        return reply_text(out, cap, "*2\r\n$1\r\n0\r\n$1\r\nx\r\n");
    if (strcmp(name, "describe") == 0)
        return reply_text(out, cap, "*2\r\n$4\r\nkind\r\n$5\r\nmutex\r\n");
    if (strstr(name, "acquire"))
        return reply_text(out, cap, "$-1\r\n");
    return reply_text(out, cap, ":1\r\n");
}

static size_t reply_subscription(const struct command *command, char *out, size_t cap)
{
    char verb[24] = "";
    size_t used = 0;
    for (size_t i = 0; i < command->word[0].n && i < sizeof verb - 1; i++)
        verb[i] = (char)tolower((unsigned char)command->word[0].p[i]);
    for (unsigned i = 1; i < command->argc && i < COMMAND_WORDS && used < cap; i++)
        used += (size_t)snprintf(out + used, cap - used,
                                 "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%.*s\r\n:1\r\n", strlen(verb), verb,
                                 command->word[i].n, (int)command->word[i].n, command->word[i].p);
    return used;
}

static size_t reply_info(const struct pipe *pipe, const struct command *command, const char *mode,
                         char *out, size_t cap)
{
    char text[256];
    bool replication = command->argc > 1 && word_is(command->word[1], "replication");
    const struct snib__address *address = pipe ? snib__link_address(pipe->link) : NULL;
    snprintf(text, sizeof text,
             replication ? "role:master\r\nconnected_slaves:1\r\n"
                         : "redis_version:7.0.15\r\nredis_mode:%s\r\nrun_id:%.20s%d\r\n"
                           "maxmemory_policy:noeviction\r\n",
             mode, address ? address->host : "abc", address ? address->port : 0);
    return reply_bulk(out, cap, text);
}

size_t party_reply(const struct party *p, const struct pipe *pipe, const struct command *command,
                   const char *mode, char *out, size_t cap)
{
    const struct word *word = command->word;
    int publish = 0, script;
    size_t n;
    (void)p;
    if (word_is(word[0], "INFO"))
        n = reply_info(pipe, command, mode, out, cap);
    else if (word_is(word[0], "SCRIPT") && (script = script_by_text(word[2], &publish)) >= 0)
        n = reply_bulk(out, cap, snib__script_of(script, publish)->sha1);
    else if (word_is(word[0], "EVALSHA"))
        n = reply_script(script_name(word[1]), out, cap);
    else if (word_is(word[0], "EVAL") && (script = script_by_text(word[1], &publish)) >= 0)
        n = reply_script(snib__script_texts[script].name, out, cap);
    else if (word[0].n > 8 && strncmp(word[0].p + word[0].n - 9, "SUBSCRIBE", 9) == 0)
        n = reply_subscription(command, out, cap);
    else if (word_is(word[0], "CLIENT") && word_is(word[1], "ID"))
        n = reply_text(out, cap, ":17\r\n");
    else if (word_is(word[0], "TIME"))
        n = (size_t)snprintf(out, cap, "*2\r\n$7\r\n1000000\r\n$1\r\n0\r\n");
    else if (word_is(word[0], "WAIT") || word_is(word[0], "CLIENT"))
        n = reply_text(out, cap, ":1\r\n");
    else if (word_is(word[0], "PING") && pipe && snib__link_kind(pipe->link) == SNIB__PUBSUB &&
             pipe->link->conn.state == SNIB__CONN_READY)
        n = reply_text(out, cap, "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    else
        n = reply_text(out, cap, word_is(word[0], "PING") ? "+PONG\r\n" : "+OK\r\n");
    return n < cap ? n : cap - 1;
}
