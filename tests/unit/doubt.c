/* doubt.c - every kind of request, and every fate of its reply: what the caller is told, and
 * whether anything is sent again.  The table of core/engine/doubt.c and docs/guarantees.md, but for its last three rows:
 * what a node of a cluster refuses is in redirects.c, and what ends the connection in links.c.
 */
#include "fed.h"

enum fate { NOT_SENT, CUT, CERTAIN, DOUBTFUL, LATE, FATES };
enum what {
    ACQUIRE,
    TAKE,
    RELEASE,
    PUT,
    EXTEND,
    PASS,
    HAND,
    WAIT,
    ASK,
    DESCRIBE,
    LIST,
    CHANGE,
    FORCE,
    PING,
    WHATS
};

static const char *const whats[] = {"acquire",
                                    "acquire of a semaphore",
                                    "release",
                                    "release to a semaphore",
                                    "extension of a lease",
                                    "release of what a waiter has by now",
                                    "hand-over by command",
                                    "latch wait",
                                    "question",
                                    "description",
                                    "list",
                                    "change of a number",
                                    "force release",
                                    "ping"};
static const char *const fates[] = {"not sent", "no answer", "certain error", "doubtful error",
                                    "late answer"};

/* What the caller is told, and how many requests follow. */
struct cell {
    int32_t code;
    int then; /* 1: it is retried, or undone */
};

#define WAITS INT32_MIN /* it is told nothing yet */

static const struct cell table[WHATS][FATES] = {
    /*            not sent         no reply                certain error   doubtful error   late reply */
    [ACQUIRE] = {{SNIB_ECONNECT, 0},
                 {SNIB_EUNREACHABLE, 1},
                 {SNIB_EOOM, 0},
                 {SNIB_ESERVER, 1},
                 {SNIB_CANCELLED, 1}},
    [TAKE] = {{SNIB_ECONNECT, 0},
              {SNIB_EUNREACHABLE, 0},
              {SNIB_EOOM, 0},
              {SNIB_ESERVER, 0},
              {SNIB_CANCELLED, 1}},
    [RELEASE] = {{SNIB_ECONNECT, 1},
                 {SNIB_EUNREACHABLE, 1},
                 {SNIB_EOOM, 1},
                 {SNIB_ESERVER, 1},
                 {SNIB_CANCELLED, 0}},
    [PUT] = {{SNIB_ECONNECT, 1},
             {SNIB_EUNREACHABLE, 0},
             {SNIB_EOOM, 1},
             {SNIB_ESERVER, 0},
             {SNIB_CANCELLED, 0}},
    [EXTEND] = {{SNIB_ECONNECT, 0},
                {SNIB_EUNREACHABLE, 0},
                {SNIB_EOOM, 0},
                {SNIB_ESERVER, 0},
                {SNIB_CANCELLED, 0}},
    [PASS] = {{SNIB_ECONNECT, 1},
              {SNIB_EUNREACHABLE, 1},
              {SNIB_EOOM, 1},
              {SNIB_ESERVER, 1},
              {SNIB_CANCELLED, 0}},
    [HAND] =
        {{SNIB_ECONNECT, 1}, {SNIB_EUNREACHABLE, 1}, {WAITS, 1}, {WAITS, 1}, {SNIB_CANCELLED, 0}},
    [WAIT] = {{SNIB_ECONNECT, 0},
              {SNIB_EUNREACHABLE, 0},
              {SNIB_EOOM, 0},
              {SNIB_ESERVER, 0},
              {SNIB_CANCELLED, 0}},
    [ASK] = {{SNIB_ECONNECT, 0},
             {SNIB_ECONNECT, 0},
             {SNIB_EOOM, 0},
             {SNIB_ESERVER, 0},
             {SNIB_CANCELLED, 0}},
    [DESCRIBE] = {{SNIB_ECONNECT, 0},
                  {SNIB_ECONNECT, 0},
                  {SNIB_EOOM, 0},
                  {SNIB_ESERVER, 0},
                  {SNIB_CANCELLED, 0}},
    [LIST] = {{SNIB_ECONNECT, 0},
              {SNIB_ECONNECT, 0},
              {SNIB_EOOM, 0},
              {SNIB_ESERVER, 0},
              {SNIB_CANCELLED, 0}},
    [CHANGE] = {{SNIB_ECONNECT, 0},
                {SNIB_EUNREACHABLE, 0},
                {SNIB_EOOM, 0},
                {SNIB_ESERVER, 0},
                {SNIB_CANCELLED, 0}},
    [FORCE] = {{SNIB_ECONNECT, 0},
               {SNIB_EUNREACHABLE, 0},
               {SNIB_EOOM, 0},
               {SNIB_ESERVER, 0},
               {SNIB_CANCELLED, 0}},
    [PING] = {{SNIB_ECONNECT, 0},
              {SNIB_ECONNECT, 0},
              {SNIB_EOOM, 0},
              {SNIB_ESERVER, 0},
              {SNIB_CANCELLED, 0}},
};

static struct snib__op *start(struct snib__engine *engine, int what, struct snib__hold *hold)
{
    static const int32_t kinds[WHATS] = {
        [ACQUIRE] = SNIB_MUTEX, [TAKE] = SNIB_SEMAPHORE,   [WAIT] = SNIB_LATCH,
        [ASK] = SNIB_MUTEX,     [CHANGE] = SNIB_SEMAPHORE, [FORCE] = SNIB_MUTEX};
    int32_t code;
    struct snib__gate *of = kinds[what] ? gate(engine, kinds[what], "x") : NULL;
    struct snib__op *op;
    if (what == ACQUIRE || what == TAKE || what == WAIT)
        op = acquire(engine, of, 0);
    else if (what == RELEASE || what == PUT || what == PASS || what == HAND)
        op = snib__engine_release(engine, hold, now, &code);
    else if (what == EXTEND)
        op = snib__engine_extend(engine, hold, 300 * SECOND, now, &code);
    else if (what == ASK)
        op = snib__engine_info(engine, of, now, &code);
    else if (what == DESCRIBE)
        op = snib__engine_describe(engine, "x", 1, 1000, now, &code);
    else if (what == LIST)
        op = snib__engine_list(engine, 0, "*", 1, 1000, now, &code);
    else if (what == CHANGE)
        op = snib__engine_count(engine, of, SNIB_COUNT_ADD, 5, now, &code);
    else if (what == FORCE)
        op = snib__engine_force(engine, of, now, &code);
    else
        op = snib__engine_ping(engine, SNIB__NEVER, now, &code);
    assert_non_null(op);
    return op;
}

/* No connection can be made until the operation has given up. */
static void never_connected(struct snib__engine *engine, const struct snib__op *op)
{
    while (!op->done) {
        await_connect(engine);
        if (op->done)
            break;
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                         SNIB__WISH_CONNECT);
        cut_link(engine);
        now += 100 * SNIB__MS;
        snib__engine_tick(engine, now);
    }
}

/* How many requests are in flight once there is a connection again. */
static int sent_again(struct snib__engine *engine)
{
    for (int step = 0; step < 40; step++) { /* a refused release is retried after a pause */
        if (engine->home->links[SNIB__COMMAND].connect) {
            connect_link(engine);
        }
        answer_own(engine);
        if (on_the_way(engine))
            break;
        now += 50 * SNIB__MS;
        snib__engine_tick(engine, now);
    }
    return (int)on_the_way(engine);
}

/* What the request is about: a hold, and one that waits for it. */
struct subject {
    struct snib__hold *hold;
    struct snib__op *waiter; /* NULL: nothing waits */
    snib__time deadline;
};

/* An earlier request has succeeded, so the connection is known to work. */
static struct subject prepare(struct snib__engine *engine, int what)
{
    const struct snib__acquire how = {.wait = SNIB__NEVER,
                                      .lease = what == EXTEND ? 60 * SECOND : 0};
    static const bool keeps[WHATS] = {
        [RELEASE] = true, [PUT] = true, [EXTEND] = true, [PASS] = true, [HAND] = true};
    struct snib__gate *of = gate(engine, what == PUT ? SNIB_SEMAPHORE : SNIB_MUTEX, "x");
    struct subject about = {.hold = granted(engine, of, &how)};
    about.deadline = about.hold->deadline;
    engine->config.tenure = what == PASS;
    if (what == PASS || what == HAND)
        about.waiter = acquire(engine, of, 0);
    if (!keeps[what]) {
        struct snib__op *back = start(engine, RELEASE, about.hold);
        answer_own(engine);
        answer(engine, ":1\r\n");
        assert_ptr_equal(snib__engine_take_done(engine), back);
        snib__hold_drop(engine, about.hold, now);
        snib__op_free(engine, back);
    }
    return about;
}

/* Of two that were released one after another, the question about the first is on its way: the second one's waits for that
 * answer. */
static void keep_question_back(struct snib__engine *engine, struct subject *about)
{
    struct snib__op *next = about->waiter;
    about->waiter = acquire(engine, about->hold->gate, 0);
    start(engine, RELEASE, about->hold);
    about->hold = acquired(engine, next);
}

/* The good answer comes when the caller has given up. */
static void answer_late(struct snib__engine *engine, struct snib__op *op, int what)
{
    static const char *const good[WHATS] = {
        [RELEASE] = ":1\r\n",  [PUT] = ":1\r\n",  [EXTEND] = "*0\r\n",
        [PASS] = "*0\r\n",     [HAND] = ":1\r\n", [ASK] = "*0\r\n",
        [DESCRIBE] = "*0\r\n", [LIST] = "*0\r\n", [PING] = "+PONG\r\n"};
    answer_own(engine);
    assert_true(snib__engine_cancel(engine, op, now));
    answer(engine, good[what] ? good[what] : "$-1\r\n");
}

/* What the request was about, when its fate is known. */
static void expect_subject(struct snib__engine *engine, const struct subject *about, int what,
                           int fate)
{
    struct snib__hold *hold = about->hold;
    if (what == EXTEND) {
        assert_int_equal(hold->phase, SNIB__HELD);
        assert_int_equal(hold->deadline, about->deadline);
    } else if (what == PASS) {
        assert_true(about->waiter->done && about->waiter->code == SNIB_OK);
        assert_int_equal(about->waiter->hold->deadline, about->deadline);
        assert_int_equal(about->waiter->hold->phase, SNIB__HELD);
    } else if (what == HAND) {
        const bool goes_on = fate == CERTAIN || fate == DOUBTFUL;
        assert_int_equal(about->waiter->done, !goes_on);
        assert_int_equal(about->waiter->code,
                         fate == LATE || goes_on ? SNIB_OK : SNIB_EUNREACHABLE);
        if (goes_on)
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    }
    if (fate == LATE && (what == RELEASE || what == PUT || what == PASS || what == HAND))
        assert_int_equal(engine->stats.releases, 1);
}

static void cell(int what, int fate)
{
    struct snib__engine *engine = begin();
    struct subject about = prepare(engine, what);
    const bool kept_back = fate == NOT_SENT && what == PASS;
    if (kept_back)
        keep_question_back(engine, &about);
    else if (fate == NOT_SENT)
        cut_link(engine);
    struct snib__op *op = start(engine, what, about.hold);
    if (fate == CUT || fate == NOT_SENT) {
        if (fate == CUT || kept_back) {
            answer_own(engine);
            assert_int_equal(on_the_way(engine), 1);
            cut_link(engine);
        }
        never_connected(engine, op);
    } else if (fate == LATE) {
        answer_late(engine, op, what);
    } else {
        answer_own(engine);
        answer(engine, fate == CERTAIN
                           ? "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
                           : "-ERR upstream failure\r\n");
    }
    const struct cell *want = &table[what][fate];
    int32_t code = op->done ? op->code : WAITS;
    expect_subject(engine, &about, what, fate);
    int again = sent_again(engine);
    if (code != want->code || again != want->then)
        fail_msg("%s, %s: %s and %d sent again, instead of %s and %d", whats[what], fates[fate],
                 snib_code_name(code), again, snib_code_name(want->code), want->then);
    /* A request that was certainly refused is never reported as possibly applied, and any other
     * always is. */
    if (fate == NOT_SENT || fate == CERTAIN)
        assert_false(snib_code_is(code, SNIB_IS_MAYBE_APPLIED));
    if (code != WAITS && (fate == DOUBTFUL || (fate == CUT && want->code != SNIB_ECONNECT)))
        assert_true(snib_code_is(code, SNIB_IS_MAYBE_APPLIED));
    for (struct snib__op *ended; (ended = snib__engine_take_done(engine));)
        snib__op_free(engine, ended);
    snib__engine_free(engine);
}

static void all_cells(void **state)
{
    (void)state;
    for (int what = 0; what < WHATS; what++)
        for (int fate = 0; fate < FATES; fate++)
            cell(what, fate);
}

/* The user may not run one of a script's commands, and the script has done what comes before that: an attempt is undone,
 * and a release that finds nothing the next time has not met a loss.  A command that may not be run at all did nothing. */
static void refused_within_a_script(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        bool half;
    } refusals[] = {
        {"-NOPERM User a has no permissions to run the 'evalsha' command\r\n", false},
        {"-NOPERM No permissions to access a key\r\n", false},
        {"-ERR The user executing the script can't run this command or subcommand script: 1\r\n",
         true},
        {"-ERR Error running script (call to f_1): @user_script:1: The user executing the script "
         "can't access at least one of the keys\r\n",
         true},
        {"-ERR ACL failure in script: User a has no permissions to run the 'hset' command\r\n",
         true},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        for (int what = ACQUIRE; what <= RELEASE; what++) {
            struct snib__engine *engine = begin();
            struct subject about = prepare(engine, what);
            struct snib__op *op = start(engine, what, about.hold);
            answer_own(engine);
            answer(engine, refusals[i].says);
            assert_int_equal(op->code, SNIB_EPERM);
            assert_int_equal(sent_again(engine),
                             what == RELEASE || (what == ACQUIRE && refusals[i].half));
            if (what == RELEASE) {
                answer(engine, ":0\r\n");
                assert_int_equal(engine->stats.lost_deleted, !refusals[i].half);
            } else if (
                what ==
                ACQUIRE) { /* nor may the user undo it: the next one does not wait for that */
                if (refusals[i].half)
                    answer(engine, refusals[i].says);
                assert_int_equal(on_the_way(engine), 0);
                op = start(engine, what, NULL);
                answer_own(engine);
                assert_int_equal(on_the_way(engine), 1);
                answer(engine, refusals[i].says);
                assert_int_equal(op->code, SNIB_EPERM);
            }
            snib__engine_free(engine);
        }
}

/* The connection ends with the request on its way, and another one is made at once: it is sent again, with its number, or
 * never again. */
static void cut_and_connected_again(void **state)
{
    (void)state;
    static const bool once[WHATS] = {[TAKE] = true, [PUT] = true, [CHANGE] = true, [FORCE] = true};
    for (int what = 0; what < WHATS; what++) {
        struct snib__engine *engine = begin();
        const struct subject about = prepare(engine, what);
        struct snib__op *op = start(engine, what, about.hold);
        const int script = oldest_script(engine);
        const uint64_t number = conn_of(engine)->ring[conn_of(engine)->ring_head].number;
        cut_link(engine);
        assert_int_equal(op->done, once[what]);
        if (once[what])
            assert_int_equal(op->code, SNIB_EUNREACHABLE);
        if (sent_again(engine) != !once[what])
            fail_msg("%s: %u are sent again", whats[what], on_the_way(engine));
        if (!once[what]) {
            assert_int_equal(oldest_script(engine), script);
            assert_int_equal(conn_of(engine)->ring[conn_of(engine)->ring_head].number, number);
        }
        snib__engine_free(engine);
    }
}

/* A renewal is not an operation: without a good reply it is retried until the deadline. */
static void renewals(void **state)
{
    (void)state;
    static const char *const answers[] = {NULL, "-OOM no\r\n", "-ERR upstream failure\r\n",
                                          "+what\r\n"};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct snib__engine *engine = begin();
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "x"), 0);
        connect_link(engine);
        answer_own(engine);
        answer(engine, "$-1\r\n");
        struct snib__hold *hold = acquired(engine, op);
        snib__time deadline = hold->deadline;
        now += 10 * SECOND + SNIB__MS;
        snib__engine_tick(engine, now);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 1);
        if (answers[i])
            answer(engine, answers[i]);
        else
            cut_link(engine);
        if (answers[i] && answers[i][0] == '+') /* replies are out of step */
            assert_int_equal(
                snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                SNIB__WISH_CLOSE);
        assert_int_equal(hold->deadline, deadline); /* in doubt it counts as not renewed */
        assert_int_equal(hold->phase, SNIB__HELD);
        assert_int_equal(sent_again(engine), 1);
        answer(engine, "*0\r\n");
        assert_true(hold->deadline > deadline);
        snib__engine_free(engine);
    }
}

/* It cannot be sent when it is due, and is sent as soon as there is a connection. */
static void renewal_that_is_not_sent(void **state)
{
    (void)state;
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "x"), &how);
    const snib__time deadline = hold->deadline;
    cut_link(engine);
    now += 10 * SECOND + SNIB__MS;
    snib__engine_tick(engine, now);
    assert_int_equal(hold->deadline, deadline);
    assert_int_equal(hold->phase, SNIB__HELD);
    assert_int_equal(sent_again(engine), 1);
    answer(engine, "*0\r\n");
    assert_true(hold->deadline > deadline);
    snib__engine_free(engine);
}

/* The server has renewed it in time, but says so when the hold is over, be it a moment before or after the clock has told:
 * it stays lost. */
static void renewal_that_is_late(void **state)
{
    (void)state;
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    for (int late = 0; late < 3; late++) {
        struct snib__engine *engine = begin();
        engine->config.reply_timeout = 60 * SECOND;
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "x"), &how);
        const snib__time deadline = hold->deadline;
        now += 10 * SECOND + SNIB__MS;
        snib__engine_tick(engine, now);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RENEW);
        now = deadline - (late == 0 ? 1 : 0);
        if (late == 2)
            snib__engine_tick(engine, now);
        if (on_the_way(engine) > 0)
            answer(engine, "*0\r\n");
        assert_int_equal(hold->deadline > deadline, late == 0);
        assert_int_equal(snib__hold_state(engine, hold, now) == SNIB_HOLD_LOST, late > 0);
        snib__engine_free(engine);
    }
}

/* DELEX and its PUBLISH: the first reply decides, and the loss of the second changes nothing. */
static void lost_second_of_a_pair(void **state)
{
    (void)state;
    for (int found = 0; found < 2; found++) {
        struct snib__engine *engine = begin();
        struct snib__op *op = acquire(engine, gate(engine, SNIB_PLAIN, "x"), 0);
        connect_link(engine);
        answer_own(engine);
        answer(engine, "$-1\r\n");
        struct snib__hold *hold = acquired(engine, op);
        conn_of(engine)->delex = true;
        op = start(engine, RELEASE, hold);
        assert_int_equal(oldest_script(engine), SNIB__TWO_COMMANDS);
        answer(engine, found ? ":1\r\n" : ":0\r\n");
        assert_false(op->done);
        cut_link(engine);
        assert_true(op->done);
        assert_int_equal(op->code, found ? SNIB_OK : SNIB_LOST);
        assert_int_equal(sent_again(engine), 0);
        snib__engine_free(engine);
    }
}

/* A release whose first try may have been carried out, and of which the second finds a part: the first would have taken
 * that, too, so the hold was lost. */
static void part_is_found(void **state)
{
    (void)state;
    static const struct {
        int32_t kind;
        const char *name, *grant, *part, *none;
    } locks[] = {
        {SNIB__MULTI, "ma\0mb", "$-1\r\n", ":2\r\n", ":0\r\n"},
        {SNIB__MULTI, "ma\0mb", "$-1\r\n", ":-2\r\n", ":0\r\n"},
        {SNIB_PERMITS, "permit", "$-1\r\n", ":-2\r\n", ":0\r\n"},
        {SNIB_FAIR, "fairly", "$1\r\n0\r\n", "*5\r\n:2\r\n:0\r\n:0\r\n$1\r\n0\r\n:1000\r\n",
         "*5\r\n:0\r\n:0\r\n:0\r\n$1\r\n0\r\n:1000\r\n"},
    };
    for (size_t i = 0; i < 2 * COUNT(locks); i++) {
        struct snib__engine *engine = begin();
        const bool part = i % 2;
        struct snib__gate *gate = snib__gate_get(engine, locks[i / 2].kind, locks[i / 2].name, 6);
        struct snib__op *op = acquire(engine, gate, 0);
        connect_link(engine);
        answer_own(engine);
        answer(engine, locks[i / 2].grant);
        op = start(engine, RELEASE, acquired(engine, op));
        cut_link(engine);
        assert_int_equal(sent_again(engine), 1);
        answer(engine, part ? locks[i / 2].part : locks[i / 2].none);
        assert_true(op->done);
        assert_int_equal(op->code, part ? SNIB_LOST : SNIB_OK);
        assert_int_equal(engine->stats.lost_deleted, part);
        snib__engine_free(engine);
    }
}

/* ---- Links and servers --------------------------------------------------------------------------- */

/* A restarted server is asked for the holds that are not renewed.  A fixed lease gets what is left of it, a first one
 * the lease that confirms it. */
static void restart_asks_for_fixed_leases(void **state)
{
    (void)state;
    for (int run = 0; run < 3; run++) {
        const bool restarted = run > 0, first = run > 1;
        struct snib__engine *engine = begin();
        int32_t code;
        struct snib__acquire how = {.wait = SNIB__NEVER, .lease = 60 * SECOND};
        struct snib__op *op =
            snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "x"), &how, now, &code);
        connect_link(engine);
        answer_own(engine);
        answer(engine, "$-1\r\n");
        struct snib__hold *hold = acquired(engine, op);
        hold->flags |= first ? SNIB__FIRST : 0;
        if (restarted)
            strcpy(engine->home->run_id, "another");
        cut_link(engine);
        assert_int_equal(sent_again(engine), restarted);
        if (restarted) {
            const struct snib__conn *conn = conn_of(engine);
            const struct snib__batch *batch = conn->ring[conn->ring_head].subject;
            assert_int_equal(batch->asks, !first);
            assert_in_range(batch->lease_ms, first ? 60000 : 55000, first ? 60000 : 60000);
            answer(engine, "*2\r\n:1\r\n:0\r\n");
            assert_int_equal(hold->reason, SNIB_REASON_DELETED);
        }
        snib__engine_free(engine);
    }
}

/* The answer to a question from before its first fixed lease ends no doubt about that: a promoted server's clock may be ahead. */
static void question_confirms_no_first_lease(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin();
    struct snib__acquire how = {.wait = SNIB__NEVER, .lease = 60 * SECOND};
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "x"), &how, now, &code);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, op);
    strcpy(engine->home->run_id, "another");
    cut_link(engine);
    assert_true(sent_again(engine));
    snib__hold_fix(engine, hold, 20 * SECOND, now);
    answer(engine, "*0\r\n");
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    answer(engine, "*0\r\n");
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    assert_false(hold->flags & SNIB__FIRST);
    snib__engine_free(engine);
}

/* A restarted server may have older data, and so may the one behind the same address: what was released is
 * released again, even if the first answer was that nothing was held. */
static void restart_repeats_releases(void **state)
{
    (void)state;
    for (int run = 0; run < 4; run++) {
        const bool restarted = run > 1, held = run % 2;
        struct snib__engine *engine = begin();
        const struct snib__acquire how = {.wait = SNIB__NEVER};
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "x"), &how);
        struct snib__op *op = start(engine, RELEASE, hold);
        answer_own(engine);
        answer(engine, held ? ":1\r\n" : ":0\r\n");
        assert_int_equal(op->code, held ? SNIB_OK : SNIB_LOST);
        if (restarted)
            strcpy(engine->home->run_id, "another");
        cut_link(engine);
        start(engine, PING, NULL); /* an idle client does not connect */
        assert_int_equal(sent_again(engine), 1 + restarted);
        snib__engine_free(engine);
    }
}

/* An attempt had no answer, and the next server refused it: the first one may have granted it, and may be back with its
 * data.  So its number is released at the third, and the waiter tries with another one. */
static void refused_attempt_is_released(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "x"), 0);
    connect_link(engine);
    const uint64_t number = op->hold->number;
    strcpy(engine->home->run_id, "another");
    cut_link(engine);
    assert_int_equal(sent_again(engine), 1);
    assert_int_equal(op->hold->number, number);
    answer(engine, ":60000\r\n");
    assert_false(op->done);
    assert_int_not_equal(op->hold->number, number);
    assert_int_equal(on_the_way(engine), 0);
    strcpy(engine->home->run_id, "a third one");
    cut_link(engine);
    sent_again(engine);
    const struct snib__conn *conn = conn_of(engine);
    int releases = 0;
    for (uint32_t i = 0; i < conn->ring_count; i++) {
        const struct snib__request *sent =
            &conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)];
        releases += sent->kind == SNIB__REQ_RELEASE && sent->number == number;
        assert_false(sent->kind == SNIB__REQ_ACQUIRE && sent->number == number);
    }
    assert_int_equal(releases, 1);
    snib__engine_free(engine);
}

/* The same process was demoted and promoted again, and has the data of the master between: what it granted
 * before may be gone.  The replication id tells. */
static void other_data_asks_for_fixed_leases(void **state)
{
    (void)state;
    static const char *const says[] = {
        "", "master_replid:8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb\r\n",
        "master_replid:8371b4fb1155b71f4a04d3e1bc3e18c4a990aeec\r\n"};
    for (size_t before = 0; before < COUNT(says); before++)
        for (size_t after = 0; after < COUNT(says); after++) {
            const bool asked = before && after && before != after;
            const struct snib__acquire how = {.wait = SNIB__NEVER, .lease = 60 * SECOND};
            struct snib__engine *engine = begin();
            server_says = says[before];
            struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "x"), &how);
            server_says = says[after];
            cut_link(engine);
            assert_int_equal(sent_again(engine), asked);
            assert_int_equal(snib__hold_state(engine, hold, now),
                             asked ? SNIB_HOLD_AT_RISK : SNIB_HOLD_VALID);
            if (asked) {
                answer(engine, "*2\r\n:1\r\n:0\r\n");
                assert_int_equal(hold->reason, SNIB_REASON_FAILOVER);
            }
            server_says = "";
            snib__engine_free(engine);
        }
}

/* That question is repeated until it is answered, and meanwhile nobody is told that the hold is safe:
 * its reply may be lost with the connection, and the server may refuse it for a while. */
static void question_is_repeated(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        struct snib__engine *engine = begin();
        const struct snib__acquire how = {.wait = SNIB__NEVER, .lease = 60 * SECOND};
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "x"), &how);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
        strcpy(engine->home->run_id, "another");
        cut_link(engine);
        assert_int_equal(sent_again(engine), 1);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
        cut_link(engine);
        assert_int_equal(sent_again(engine), 1); /* the server is the same as before */
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
        answer(engine, "-ERR not now\r\n");
        assert_int_equal(on_the_way(engine), 0);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
        now = snib__engine_deadline(engine);
        snib__engine_tick(engine, now);
        assert_int_equal(on_the_way(engine), 1);
        answer(engine, kept ? "*0\r\n" : "*2\r\n:1\r\n:0\r\n");
        assert_int_equal(hold->reason, kept ? SNIB_REASON_NONE : SNIB_REASON_DELETED);
        assert_int_equal(snib__hold_state(engine, hold, now),
                         kept ? SNIB_HOLD_VALID : SNIB_HOLD_LOST);
        cut_link(engine);
        assert_int_equal(sent_again(engine), 0);
        snib__engine_free(engine);
    }
}

/* Three attempts at a renewal fit into what is left of a short lease, whatever the reply
 * timeout. */
static void reply_timeout_knows_the_lease(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    engine->config.lease = SECOND;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "x"), 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    acquired(engine, op);
    int32_t code;
    snib__engine_ping(engine, SNIB__NEVER, now, &code);
    snib__time sent = now;
    while (ready(engine)) {
        assert_true(now <= sent + 201 * SNIB__MS);
        now += SNIB__MS;
        snib__engine_tick(engine, now);
    }
    assert_true(now >= sent + 200 * SNIB__MS);
    snib__engine_free(engine);
}

static void histogram_has_an_end(void **state)
{
    (void)state;
    uint64_t buckets[SNIB_HISTOGRAM_BUCKETS + 32] = {0};
    for (int bit = 0; bit < 54; bit++)
        snib__histogram_add(buckets, (1ull << bit) * 1000);
    for (int i = 0; i < SNIB_HISTOGRAM_BUCKETS + 32; i++)
        assert_int_equal(buckets[i], i < SNIB_HISTOGRAM_BUCKETS - 1    ? 1
                                     : i == SNIB_HISTOGRAM_BUCKETS - 1 ? 54 - i
                                                                       : 0);
}

/* A query of a counter is repeated on the next connection, a change is not. */
static void counter_is_looked_at_again(void **state)
{
    (void)state;
    static const int32_t looks[] = {SNIB_COUNT_GET, SNIB_COUNT_TOTAL, SNIB_COUNT_ADD};
    for (size_t i = 0; i < COUNT(looks); i++) {
        int32_t code;
        struct snib__engine *engine = begin();
        struct snib__op *op =
            snib__engine_count(engine, gate(engine, SNIB_PERMITS, "p"), looks[i], 1, now, &code);
        connect_link(engine);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 1);
        cut_link(engine);
        bool again = looks[i] != SNIB_COUNT_ADD;
        assert_int_equal(op->done, !again);
        if (again) {
            await_connect(engine);
            connect_link(engine);
            answer_own(engine);
            assert_int_equal(on_the_way(engine), 1);
            answer(engine, ":3\r\n");
            assert_true(op->done);
        }
        assert_int_equal(op->code, again ? SNIB_OK : SNIB_EUNREACHABLE);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cells),
        cmocka_unit_test(refused_within_a_script),
        cmocka_unit_test(counter_is_looked_at_again),
        cmocka_unit_test(cut_and_connected_again),
        cmocka_unit_test(renewals),
        cmocka_unit_test(renewal_that_is_not_sent),
        cmocka_unit_test(renewal_that_is_late),
        cmocka_unit_test(lost_second_of_a_pair),
        cmocka_unit_test(part_is_found),
        cmocka_unit_test(restart_asks_for_fixed_leases),
        cmocka_unit_test(question_confirms_no_first_lease),
        cmocka_unit_test(restart_repeats_releases),
        cmocka_unit_test(refused_attempt_is_released),
        cmocka_unit_test(other_data_asks_for_fixed_leases),
        cmocka_unit_test(question_is_repeated),
        cmocka_unit_test(reply_timeout_knows_the_lease),
        cmocka_unit_test(histogram_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
