/* wander.c - engines that are told anything, in any order: whatever servers say, whenever memory is
 * refused, connections break and callers change their minds, the engine's lists stay sound, it
 * leaves no memory, and after its close it comes to rest.
 *
 * What it did must be the same each time: ledger/ledger.c adds it up.  A simulator's servers tell
 * the truth; these say what fits the request's form at best.
 */
#include "nodes.h"

#include "ledger/ledger.h"
#include "net/slot.h"

#define CONN_KILL (-8) /* as in conn.c */

enum { OPS = 40, HOLDS = 24, STEPS = 250 };

static uint64_t random_state;
static struct snib__engine *engine;
static struct snib__op *ops[OPS];
static uint32_t ops_n;
static bool peace; /* nothing breaks or is refused any more */
static struct {
    struct snib__hold *hold;
    uint32_t users, leaving; /* of the users: whose release is on its way */
} holds[HOLDS];

static uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 20) % below);
}

static const char *one_of(const char *const *texts, uint32_t n)
{
    return texts[draw(n)];
}
#define ONE_OF(...)                                                                                \
    one_of((const char *const[]){__VA_ARGS__}, COUNT(((const char *[]){__VA_ARGS__})))

/* ---- The servers ---------------------------------------------------------------------------------- */

static const char *refusal(void)
{
    return ONE_OF("-MISCONF disk is full", "-LOADING wait", "-NOPERM no", "-WRONGTYPE no",
                  "-OOM no memory", "-READONLY replica", "-BUSY script", "-NOSCRIPT none",
                  "-NOAUTH log in", "-NOREPLICAS few", "-CLUSTERDOWN no", "-TRYAGAIN keys",
                  "-MOVED 12 b:6379", "-ASK 12 c:6379", "-MOVED 12 :7000", "-ERR anything",
                  "-UNKILLABLE x", "-EXECABORT x", "-MASTERDOWN x");
}

static const char *any_reply(const struct snib__request *request)
{
    switch (request->kind) {
    case SNIB__REQ_ACQUIRE:
        return ONE_OF("$-1", "$-1", "$1\r\n0", "$1\r\n0", "*3\r\n:20000\r\n:0\r\n:1000", ":30000",
                      ":10", ":-1", ":-3", "$2\r\n17", "*3\r\n:40\r\n:1\r\n:1000", "+OK", "*0",
                      "*2\r\n:900\r\n:1", "*2\r\n:1\r\n:30000", "*1\r\n$2\r\n17");
    case SNIB__REQ_RELEASE:
        return ONE_OF(":1", ":2", ":3", ":0", "$-1", "*5\r\n:1\r\n:0\r\n:0\r\n:0\r\n:1200",
                      "*5\r\n:1\r\n:3\r\n:4000\r\n$1\r\n0\r\n:10000", "*2\r\n:1\r\n:1", "*0");
    case SNIB__REQ_TRANSFER:
        return ONE_OF(":1", ":1", ":0", ":2", "*1\r\n$1\r\n7", "$1\r\n9", "$-1", "*0");
    case SNIB__REQ_RENEW:
        return ONE_OF("*0", "*0", "*1\r\n:1", "*2\r\n:1\r\n:0", "*3\r\n:1\r\n:-2\r\n:1", ":1");
    case SNIB__REQ_TIME:
        return ONE_OF("*2\r\n$3\r\n100\r\n$6\r\n500000", "*2\r\n$4\r\n9100\r\n$1\r\n1", "*0");
    case SNIB__REQ_WAIT:
        return ONE_OF(":0", ":1", ":2", ":1", "-UNBLOCKED x", "*0");
    case SNIB__REQ_COUNT:
        return ONE_OF("$19\r\nconnected_slaves:1\r", "$19\r\nconnected_slaves:0\r", "$1\r\nx",
                      ":1");
    case SNIB__REQ_ROUTE:
        return peace ? common : ONE_OF("*0", "*-1", ":1", common, common, common);
    default:
        return ONE_OF("+PONG", ":1", ":0", ":5", "$5\r\na\r\n#b", "*1\r\n$1\r\n0",
                      "*3\r\n$1\r\n5\r\n$1\r\na\r\n$1\r\nb", "*2\r\n:1\r\n$3\r\na\tb",
                      "*6\r\n:1\r\n:500\r\n$3\r\nabc\r\n:1\r\n:2\r\n$1\r\n0",
                      "*6\r\n:1\r\n:-2\r\n$0\r\n\r\n:0\r\n:1\r\n$-1");
    }
}

/* Whether a script could say that. */
static bool fits(const struct snib__request *request, const char *text)
{
    static const uint8_t lists[] = {0, SNIB__LIST_1, SNIB__LIST_2, SNIB__LIST_3, 0, SNIB__LIST_5};
    uint8_t form = strcmp(text, "$-1") == 0                            ? SNIB__NIL
                   : text[0] == ':'                                    ? SNIB__NUMBER
                   : text[0] == '$'                                    ? SNIB__TEXT
                   : text[0] == '*' && text[1] >= '0' && text[1] < '6' ? lists[text[1] - '0']
                                                                       : 0;
    const struct snib__hold *hold = request->subject;
    const struct snib__lock_kind *kind =
        hold && request->kind <= SNIB__REQ_TRANSFER ? hold->gate->kind : NULL;
    bool renews = request->kind == SNIB__REQ_RENEW ||
                  (request->kind == SNIB__REQ_RELEASE && kind && hold->passed);
    if (renews)
        return strcmp(text, "*0") == 0 || strncmp(text, "*2", 2) == 0;
    return !kind || form & (request->kind == SNIB__REQ_ACQUIRE   ? kind->acquires
                            : request->kind == SNIB__REQ_RELEASE ? kind->releases
                                                                 : kind->transfers);
}

static const char *script_reply(const struct snib__request *request)
{
    if (!peace && draw(12) == 0)
        return refusal();
    const char *text = any_reply(request);
    for (bool odd = !peace && draw(20) == 0; !odd && !fits(request, text);)
        text = any_reply(request);
    return text;
}

/* Bytes from a link's server.  Sometimes more comes with them that nobody has asked for, and a read may end anywhere. */
static void feed(struct snib__link *link, const char *text, size_t n)
{
    char bytes[SNIB__CHANNEL_MAX + 1400];
    memcpy(bytes, text, n);
    for (uint32_t more = peace || draw(40) ? 0 : 1 + draw(3); more > 0; more--)
        n += (size_t)snprintf(
            bytes + n, sizeof bytes - n, "%s\r\n",
            ONE_OF("+PONG", "+OK", ":7", "$-1", "*-1", "*0", "+redis_mode:sentinel",
                   "$21\r\nredis_mode:sentinel\r\n", "$19\r\nredis_mode:cluster\r",
                   "$12\r\nrole:slave\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1",
                   "*3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0", "-NOAUTH log in",
                   "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n1", "*2\r\n$4\r\npong\r\n$0\r\n"));
    size_t cut = peace || draw(20) ? n : draw((uint32_t)n + 1);
    snib__engine_input(engine, link, bytes, cut, now);
    if (cut < n && link->conn.state != SNIB__CONN_DOWN)
        snib__engine_input(engine, link, bytes + cut, n - cut, now);
}

/* Answer the oldest request of a link. */
static void reply_on(struct snib__link *link)
{
    const struct snib__conn *conn = &link->conn;
    const struct snib__request *request = &conn->ring[conn->ring_head];
    char text[800];
    bool odd = !peace && draw(60) == 0;
    uint32_t any = draw(3),
             other = draw(40) / 39; /* one at a time: compilers order calls differently */
    if (request->kind == CONN_LOAD && !odd)
        snprintf(text, sizeof text, "$40\r\n%s\r\n", snib__script_texts[request->script].sha1);
    else if (request->kind == CONN_ID && !odd)
        snprintf(text, sizeof text, ":%u\r\n", 7 + any);
    else if (request->kind == CONN_INFO && !odd)
        snprintf(text, sizeof text, "$%d\r\nrun_id:%c\r\nconnected_slaves:%u\r\n%s\r\n",
                 engine->slots ? 48 : 30, 'a' + other, any,
                 engine->slots ? "redis_mode:cluster" : "");
    else if (request->kind < 0)
        snprintf(text, sizeof text, "%s\r\n",
                 odd                          ? refusal()
                 : request->kind == CONN_KILL ? ":1"
                                              : "+OK");
    else
        snprintf(text, sizeof text, "%s\r\n", script_reply(request));
    size_t n = strlen(text);
    if (n > 2 && strcmp(text + n - 4, "\r\n\r\n") == 0 && request->kind == SNIB__REQ_ROUTE)
        n -= 2; /* the map ends its own lines */
    feed(link, text, n);
}

/* Answer on a link with subscriptions: confirm them, or anything. */
static void say_anything(struct snib__link *link)
{
    char words[WORDS][96], text[SNIB__CHANNEL_MAX + 300], channel[SNIB__CHANNEL_MAX + 24];
    if (link->conn.state == SNIB__CONN_HANDSHAKE) {
        say_on_pubsub(engine, "");
        const char *hello =
            peace || draw(12) ? "+OK\r\n+PONG\r\n" : "+OK\r\n+redis_mode:sentinel\r\n";
        feed(link, hello, strlen(hello));
        return;
    }
    bool asked = peace || draw(3);
    if (asked && next_command(snib__link_output(link), words)) {
        for (char *at = words[0]; *at; at++)
            *at = (char)tolower(*at);
        if (!peace && draw(15) == 0 && strncmp(words[0], "uns", 3) && strncmp(words[0], "suns", 4))
            snprintf(text, sizeof text, "%s\r\n", refusal());
        else if (words[1][0])
            snprintf(text, sizeof text, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n:1\r\n",
                     strlen(words[0]), words[0], strlen(words[1]), words[1]);
        else
            snprintf(text, sizeof text, "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
        feed(link, text, strlen(text));
        return;
    }
    if (peace)
        return;
    snprintf(channel, sizeof channel, "nothing:12");
    for (uint32_t i = 0; i < engine->chans_cap; i++)
        for (const struct snib__chan *chan = engine->chans[i]; chan; chan = chan->next)
            if (draw(2))
                snprintf(channel, sizeof channel, "%.*s%s", (int)chan->len, chan->text,
                         draw(4) ? "" : ONE_OF(":1", ":2", ":3", ":", "7"));
    const char *said = ONE_OF("0", "1", "1", "unlock", "5", "2:0:4000:1500", "3:0:4000:2500", "",
                              "1:0:100:1", "x:y");
    const char *word = ONE_OF("message", "message", "message", "smessage", "pmessage");
    snprintf(text, sizeof text, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(word),
             word, strlen(channel), channel, strlen(said), said);
    feed(link, text, strlen(text));
}

static void serve_any(struct snib__link *link)
{
    switch (snib__engine_take_wish(engine, link)) {
    case SNIB__WISH_CONNECT:
        if (!peace && draw(4) == 0)
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, 0, now);
        else
            snib__engine_link_up(engine, link, now);
        return;
    case SNIB__WISH_CLOSE: /* that is all: the engine has given it up */
        return;
    default:
        break;
    }
    if (link->conn.state == SNIB__CONN_DOWN)
        return;
    if (!peace && draw(40) == 0)
        snib__engine_link_down(engine, link, draw(2) ? SNIB_EUNREACHABLE : SNIB_ETLS, 0, now);
    else if (link->kind == SNIB__PUBSUB)
        say_anything(link);
    else if (link->conn.ring_count > 0)
        reply_on(link);
}

/* ---- The callers ---------------------------------------------------------------------------------- */

static void leave(uint32_t i)
{
    holds[i].hold->users--;
    if (--holds[i].users > 0)
        return;
    struct snib__hold *hold = holds[i].hold;
    holds[i].hold = NULL;
    if (draw(5) == 0)
        snib__hold_abandon(engine, hold, now);
    snib__hold_drop(engine, hold, now);
}

static void take_hold(struct snib__hold *hold)
{
    uint32_t i = 0;
    while (i < HOLDS && holds[i].hold != hold)
        i++;
    for (uint32_t at = 0; i == HOLDS && at < HOLDS; at++)
        i = holds[at].hold ? i : at;
    assert_true(i < HOLDS);
    holds[i].hold = hold;
    holds[i].users++;
    hold->tell = draw(2) & 1u;
}

static void take_results(void)
{
    for (struct snib__op *op; (op = snib__engine_take_done(engine));) {
        uint32_t i = 0;
        while (i < ops_n && ops[i] != op)
            i++;
        assert_true(i < ops_n);
        ops[i] = ops[--ops_n];
        if (op->kind == SNIB__OP_ACQUIRE && op->code == SNIB_OK && op->hold)
            take_hold(op->hold);
        if (op->kind == SNIB__OP_RELEASE && op->token) {
            holds[op->token - 1].leaving--;
            leave((uint32_t)op->token - 1);
        }
        snib_event event = {.size = sizeof event};
        snib__op_event(op, &event);
        snib__op_free(engine, op);
    }
    while (snib__engine_take_lost(engine))
        ;
}

static struct snib__op *ask_something(struct snib__gate *at, int32_t *code)
{
    uint32_t what = draw(11), room = draw(300), n = draw(3);
    switch (draw(7)) {
    case 0:
        return snib__engine_info(engine, at, now, code);
    case 1:
        return snib__engine_force(engine, at, now, code);
    case 2:
        return snib__engine_ping(engine, n ? SECOND : 0, now, code);
    case 3:
        return snib__engine_list(engine, what % 3, "m*", n, 30 + 10 * room, now, code);
    case 4:
        return snib__engine_describe(engine, "m1", 2, 2 + room, now, code);
    case 5:
        return snib__engine_server(engine, (int32_t)what, 2 + room, now, code);
    default:
        return snib__engine_nothing(engine, now, code);
    }
}

static void start_something(void)
{
    static const int32_t kinds[] = {SNIB_MUTEX, SNIB_MUTEX,   SNIB_FAIR,     SNIB_READ,
                                    SNIB_WRITE, SNIB_FENCED,  SNIB_SPIN,     SNIB_PLAIN,
                                    SNIB_LATCH, SNIB_PERMITS, SNIB_SEMAPHORE};
    char name[3] = {'m', (char)('0' + draw(3)), 0};
    int32_t code = 0;
    struct snib__gate *at = snib__gate_get(engine, kinds[draw(COUNT(kinds))], name, 2);
    struct snib__op *op = NULL;
    if (!at)
        return;
    if (draw(5)) {
        struct snib__acquire how = {.owner = draw(3)};
        how.wait = draw(3) ? SNIB__NEVER : draw(3) * SECOND;
        how.lease = draw(3) ? 0 : 5 * SECOND;
        how.max_hold = draw(4) ? 0 : 8 * SECOND;
        how.permits = draw(3);
        snib__engine_call(engine, draw(2));
        op = snib__engine_acquire(engine, at, &how, now, &code);
        snib__engine_call(engine, false);
    } else {
        op = ask_something(at, &code);
    }
    if (op)
        ops[ops_n++] = op;
    else
        assert_true(code < 0);
    snib__gate_put(engine, at);
}

static void give_back(void)
{
    uint32_t i = draw(HOLDS);
    int32_t code;
    if (!holds[i].hold || holds[i].leaving == holds[i].users || ops_n == OPS)
        return;
    if (draw(6) == 0 && holds[i].hold->gate->kind->renew) /* members of a multi lock: no counters */
        snib__hold_fix(engine, holds[i].hold, 5 * SECOND, now);
    if (draw(6) == 0) {
        leave(i);
        return;
    }
    struct snib__op *op = snib__engine_release(engine, holds[i].hold, now, &code);
    if (op) {
        op->token = i + 1;
        holds[i].leaving++;
        ops[ops_n++] = op;
    } else {
        leave(i);
    }
}

static void step(void)
{
    uint32_t links = 0;
    struct snib__link *link = snib__engine_links(engine);
    ledger_refuse(draw(30) == 0 ? 1 + draw(4) : 0);
    switch (draw(10)) {
    case 0:
    case 1:
        if (ops_n < OPS / 2)
            start_something();
        break;
    case 2:
        give_back();
        break;
    case 3:
        if (ops_n > 0 && draw(3) == 0)
            snib__engine_cancel(engine, ops[draw(ops_n)], now);
        break;
    case 4: {
        snib__time next = snib__engine_deadline(engine);
        snib__time most = now + (draw(4) ? 200 * SNIB__MS : 3 * SECOND);
        now = next > now && next < most ? next : draw(4) ? now + SNIB__MS : most;
        snib__engine_tick(engine, now);
        break;
    }
    default:
        for (struct snib__link *each = link; each; each = snib__link_next(each))
            links++;
        for (links = links ? draw(links) : 0; links > 0; links--)
            link = snib__link_next(link);
        if (link)
            serve_any(link);
    }
    ledger_refuse(0);
    take_results();
}

/* Everybody leaves, and the servers answer for long enough. */
static void come_to_rest(void)
{
    for (uint32_t i = 0; i < HOLDS; i++)
        while (holds[i].hold && holds[i].users > holds[i].leaving && draw(2))
            leave(i);
    peace = true;
    snib__engine_close(engine, now);
    take_results();
    for (int i = 0; i < 1000; i++) {
        for (int replies = 0; replies < 8; replies++) /* faster than time passes */
            for (struct snib__link *link = snib__engine_links(engine); link;
                 link = snib__link_next(link))
                serve_any(link);
        snib__time next = snib__engine_deadline(engine);
        now = next > now && next < now + SECOND ? next : now + 20 * SNIB__MS;
        snib__engine_tick(engine, now);
        take_results();
        for (uint32_t h = 0; h < HOLDS && ops_n == 0; h++)
            while (holds[h].hold)
                leave(h);
        if (i > 200 && ops_n == 0 && snib__engine_quiet(engine) && engine->live_n == 0 &&
            (engine->gates_n == 0 || engine->given) && engine->chans_n == 0)
            break;
    }
    assert_int_equal(ops_n, 0);
    assert_true(snib__engine_quiet(engine));
    assert_true(engine->gates_n == 0 || engine->given); /* given.c remembers some */
    assert_int_equal(engine->chans_n, 0);
    assert_int_equal(engine->stats.held, 0);
}

static void wander(int topology, uint64_t seed)
{
    peace = false;
    random_state = (seed + 1) * 0x9e3779b97f4a7c15u;
    engine = topology == SNIB__CLUSTER ? begin_cluster("a:0-8191 b:8192-16383") : begin();
    engine->random = seed + 1;
    engine->config.lanes = draw(2) ? 4 : 0;
    engine->config.scatter = draw(4) == 0;
    engine->config.durability = (int32_t)draw(3) / 2;
    engine->config.durability_policy = draw(2) ? SNIB_DURABILITY_REFUSE : SNIB_DURABILITY_REPORT;
    engine->config.durability_timeout = SECOND;
    engine->config.handover_max = engine->config.durability ? 0 : (int32_t)draw(3) * 8;
    for (int i = 0; i < STEPS; i++)
        step();
    come_to_rest();
    snib__engine_free(engine);
}

static void wander_all(int topology)
{
    for (uint64_t seed = 0; seed < 150; seed++) {
        if (getenv("SNIB_WANDER") && strtoull(getenv("SNIB_WANDER"), NULL, 10) != seed)
            continue;
        memset(holds, 0, sizeof holds);
        ops_n = 0;
        wander(topology, seed);
    }
}

static void one_server(void **state)
{
    (void)state;
    wander_all(SNIB__SINGLE);
}

static void cluster(void **state)
{
    (void)state;
    wander_all(SNIB__CLUSTER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_server),
        cmocka_unit_test(cluster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
