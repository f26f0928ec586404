/* settling.c - waits behind an earlier use of the lock by the same client: what is reported while
 * the outcome of that use is unknown, and how grants without an owner are counted.
 */
#include "fed.h"

#define REFUSED "-MISCONF disk is full\r\n"

static const struct snib__acquire renewed = {.wait = SNIB__NEVER};
static const struct snib__acquire one_try = {.wait = 0};
static const struct snib__acquire two_seconds = {.wait = 2 * SECOND};

static struct snib__op *begin_release(struct snib__engine *engine, struct snib__hold *hold)
{
    int32_t code;
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    assert_non_null(op);
    return op;
}

static struct snib__op *start(struct snib__engine *engine, struct snib__gate *of,
                              const struct snib__acquire *how)
{
    int32_t code;
    struct snib__op *op = snib__engine_acquire(engine, of, how, now, &code);
    assert_non_null(op);
    return op;
}

/* Advance until the operation is done; all requests meanwhile get the same reply. */
static void await_done(struct snib__engine *engine, const struct snib__op *op, const char *reply)
{
    while (!op->done) {
        answer_own(engine);
        if (on_the_way(engine) > 0) {
            answer(engine, reply);
            continue;
        }
        now = snib__engine_deadline(engine);
        assert_true(now < START + 60 * SECOND);
        snib__engine_tick(engine, now);
    }
}

static void expect_unconfirmed(const struct snib__op *op, snib__time ended)
{
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_EUNREACHABLE);
    assert_true(op->unconfirmed);
    assert_true(now == ended);
}

/* The server refuses the release, again and again: what it keeps has no owner any more. */
static void release_is_refused(void **state)
{
    (void)state;
    static const struct snib__acquire *const hows[] = {&one_try, &two_seconds};
    for (size_t i = 0; i < COUNT(hows); i++) {
        struct snib__engine *engine = begin();
        struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
        struct snib__op *given = begin_release(engine, granted(engine, of, &renewed));
        answer_own(engine);
        answer(engine, REFUSED);
        assert_int_equal(given->code, SNIB_EMISCONF);
        now += 100 * SNIB__MS;
        const snib__time from = now;
        struct snib__op *op = start(engine, of, hows[i]);
        assert_false(op->done);
        await_done(engine, op, REFUSED);
        expect_unconfirmed(op, from + (i == 0 ? SECOND : 2 * SECOND));
        /* Once it is confirmed, the lock is free. */
        while (!on_the_way(engine)) {
            now = snib__engine_deadline(engine);
            snib__engine_tick(engine, now);
        }
        answer(engine, ":1\r\n");
        for (struct snib__op *ended; (ended = snib__engine_take_done(engine));)
            snib__op_free(engine, ended);
        assert_non_null(granted(engine, of, &one_try));
        snib__engine_free(engine);
    }
}

enum { RELEASED, LEFT, LEFT_IN_DOUBT };

/* The connection ends under a release, or under an attempt that was cancelled before or after that;
 * another connection comes before the wait is over: the server is not silent, but has not
 * replied. */
static void cut_meanwhile(int what)
{
    struct snib__engine *engine = begin();
    struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *first = NULL;
    granted(engine, gate(engine, SNIB_MUTEX, "other"), &renewed); /* connects the link */
    if (what == RELEASED)
        begin_release(engine, granted(engine, of, &renewed));
    else
        first = acquire(engine, of, 0);
    answer_own(engine);
    if (what == LEFT_IN_DOUBT)
        cut_link(engine);
    if (first)
        snib__engine_cancel(engine, first, now);
    struct snib__op *op = start(engine, of, &one_try), *leaves = acquire(engine, of, 0);
    assert_false(op->done);
    if (what != LEFT_IN_DOUBT)
        cut_link(engine);
    await_connect(engine);
    now = START + 900 * SNIB__MS;
    snib__engine_cancel(engine, leaves, now); /* which confirms nothing */
    connect_link(engine);
    assert_true(on_the_way(engine) > 0);
    now = START + SECOND;
    assert_false(snib__node_silent(engine, engine->home, now));
    snib__engine_tick(engine, now);
    expect_unconfirmed(op, START + SECOND);
    snib__engine_free(engine);
}

static void connection_is_another(void **state)
{
    (void)state;
    for (int what = RELEASED; what <= LEFT_IN_DOUBT; what++)
        cut_meanwhile(what);
}

/* An attempt lost its connection and has no reply on the next one when the wait ends: the lock's
 * state is unknown, to the attempt's own operation and to one that waits behind it. */
static void attempt_is_unanswered(int32_t kind, bool behind)
{
    const struct snib__acquire one_second = {.wait = SECOND, .permits = 1};
    struct snib__engine *engine = begin();
    struct snib__gate *of = gate(engine, kind, "m");
    granted(engine, gate(engine, SNIB_MUTEX, "other"), &renewed); /* connects the link */
    struct snib__op *first = start(engine, of, behind ? &renewed : &one_second), *op = first;
    if (behind)
        op = start(engine, of, &one_second);
    answer_own(engine);
    cut_link(engine);
    await_connect(engine);
    now = START + 700 * SNIB__MS;
    connect_link(engine);
    assert_true(on_the_way(engine) > 0);
    now = START + SECOND;
    assert_false(snib__node_silent(engine, engine->home, now));
    snib__engine_tick(engine, now);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_EUNREACHABLE);
    assert_false(op->unconfirmed);
    assert_int_equal(first->done, !behind);
    snib__engine_free(engine);
}

static void attempts_are_unanswered(void **state)
{
    (void)state;
    static const int32_t kinds[] = {SNIB_MUTEX, SNIB_FENCED, SNIB_READ,   SNIB_WRITE,
                                    SNIB_SPIN,  SNIB_FAIR,   SNIB_PERMITS};
    for (size_t i = 0; i < COUNT(kinds); i++)
        attempt_is_unanswered(kinds[i], false);
    attempt_is_unanswered(SNIB_MUTEX, true);
    attempt_is_unanswered(SNIB_WRITE, true);
}

/* A lock that this process holds is busy, and a wait that ends within a round trip of a release has
 * timed out. */
static void what_is_known_is_said(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
    struct snib__hold *hold = granted(engine, of, &renewed);
    struct snib__op *op = start(engine, of, &one_try);
    assert_int_equal(op->code, SNIB_BUSY);

    struct snib__op *waits = acquire(engine, of, 0);
    begin_release(engine, hold);
    op = start(engine, of, &one_try); /* behind the hand-over */
    assert_false(op->done);
    answer_own(engine);
    answer(engine, ":1\r\n");
    assert_true(waits->done && waits->code == SNIB_OK);
    await_done(engine, op, "$-1\r\n");
    assert_int_equal(op->code, SNIB_BUSY);
    assert_false(op->unconfirmed);

    const struct snib__acquire brief = {.wait = 10 * SNIB__MS};
    now += 20 * SECOND;
    engine->config.handover_max = 0;
    op = start(engine, of, &brief);
    now += 9 * SNIB__MS;
    begin_release(engine, waits->hold);
    now += SNIB__MS;
    snib__engine_tick(engine, now);
    assert_int_equal(op->code, SNIB_TIMEDOUT);
    assert_false(op->unconfirmed);
    snib__engine_free(engine);
}

/* The same after an attempt whose outcome is unknown, behind which others have waited for long. */
static void attempt_ends_in_doubt(void **state)
{
    (void)state;
    static const struct snib__acquire brief = {.wait = 10 * SNIB__MS};
    struct snib__engine *engine = begin();
    struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *first = acquire(engine, of, 0);
    connect_link(engine);
    answer_own(engine);
    acquire(engine, of, 0);
    now += 20 * SECOND;
    struct snib__op *op = start(engine, of, &brief);
    answer(engine, "-ERR who knows\r\n");
    assert_int_equal(first->code, SNIB_ESERVER);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    now += 10 * SNIB__MS;
    snib__engine_tick(engine, now);
    assert_int_equal(op->code, SNIB_TIMEDOUT);
    assert_false(op->unconfirmed);
    snib__engine_free(engine);
}

/* The same after an attempt that its caller has just left, behind which another has waited for long:
 * that one knows from an earlier reply that the lock was held. */
static void attempt_is_left(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *first = acquire(engine, of, 0);
    connect_link(engine);
    struct snib__op *op = start(engine, of, &two_seconds);
    answer_own(engine);
    answer(engine, ":86400000\r\n");
    now += 2 * SECOND - 10 * SNIB__MS;
    snib__wait_recheck_all(engine, engine->home, now);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_ACQUIRE);
    assert_int_equal(first->stage, SNIB__STAGE_TRYING);
    snib__engine_cancel(engine, first, now);
    now += 10 * SNIB__MS;
    snib__engine_tick(engine, now);
    assert_int_equal(op->code, SNIB_TIMEDOUT);
    assert_false(op->unconfirmed);
    snib__engine_free(engine);
}

/* ---- Grants without an owner --------------------------------------------------------------------- */

static void expect_nothing_counted(struct snib__engine *engine, uint64_t acquisitions)
{
    int32_t level;
    const snib_client_stats_data *stats = &engine->stats;
    assert_int_equal(stats->acquisitions, acquisitions);
    assert_int_equal(stats->held, acquisitions);
    assert_int_equal(stats->releases, 0);
    assert_int_equal(
        stats->lost_expired + stats->lost_unreachable + stats->lost_deleted + stats->lost_taken, 0);
    for (const char *text; (text = snib__engine_take_log(engine, &level));)
        assert_null(strstr(text, "lost"));
}

/* The lease may have ended when the grant is read, or its caller has left: it is given back, is not
 * counted as an acquisition, and if the server no longer has it that is not a loss. */
static void grant_is_nobodys(void **state)
{
    (void)state;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = SECOND};
    for (int i = 0; i < 4; i++) {
        bool late = i & 1, there = i & 2;
        struct snib__engine *engine = begin();
        snib__engine_log_level(engine, SNIB_LOG_INFO);
        struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
        granted(engine, gate(engine, SNIB_MUTEX, "other"), &renewed);
        struct snib__op *op = start(engine, of, &fixed);
        if (late)
            now += SECOND;
        else
            snib__engine_cancel(engine, op, now);
        answer_own(engine);
        answer(engine, "$-1\r\n");
        assert_int_equal(op->code, late ? SNIB_EUNREACHABLE : SNIB_CANCELLED);
        expect_nothing_counted(engine, 1);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
        now += SECOND;
        answer(engine, there ? ":1\r\n" : ":0\r\n");
        expect_nothing_counted(engine, 1);
        assert_null(of->active);
        assert_int_equal(engine->releasing, 0);
        snib__engine_free(engine);
    }
}

/* The next waiter of this process gets it without a release. */
static void grant_is_the_next_ones(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *first = acquire(engine, of, 0), *second = acquire(engine, of, 0);
    connect_link(engine);
    answer_own(engine);
    snib__engine_cancel(engine, first, now);
    answer(engine, "$-1\r\n");
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
    answer(engine, ":1\r\n");
    assert_true(second->done && second->code == SNIB_OK);
    expect_nothing_counted(engine, 1);
    snib__engine_free(engine);
}

/* ---- What is counted once ------------------------------------------------------------------------ */

/* A lock of several servers waits for its members; that is one waiting call. */
static void a_call_waits_once(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__outer outer = {0};
    const struct snib__acquire how = {.wait = SNIB__NEVER, .outer = &outer};
    start(engine, gate(engine, SNIB__OUTER, "?m"), &how);
    granted(engine, gate(engine, SNIB_MUTEX, "m"), &renewed);
    struct snib__op *member = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    member->within = true;
    assert_true(member->waited);
    snib_client_stats_data stats = {.size = sizeof stats};
    snib__engine_stats(engine, &stats);
    assert_int_equal(stats.waiting, 1);
    snib__engine_free(engine);
}

/* A waiter still counts as waiting while it retries, even if its reply comes after that to a
 * query. */
static void an_attempt_waits(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin();
    struct snib__gate *of = gate(engine, SNIB_MUTEX, "m");
    acquire(engine, of, 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":20000\r\n");
    connect_pubsub(engine);
    struct snib__op *asked = snib__engine_info(engine, of, now, &code);
    assert_non_null(asked);
    say_on_channel(engine, of, NULL);
    assert_int_equal(on_the_way(engine), 2); /* a release may have been missed */
    answer_own(engine);
    answer(engine, "*5\r\n:20000\r\n$3\r\nx:1\r\n:1\r\n:1\r\n$-1\r\n");
    assert_true(asked->done);
    assert_int_equal(asked->answer->waiting, 1);
    while (snib__engine_take_done(engine) == asked)
        snib__op_free(engine, asked);
    snib__engine_free(engine);
}

/* A foreign release that is taken for the message of one's own is heard after all, once that turns out to have had
 * none: the attempt that was on its way meanwhile may have been refused just before. */
static void mistaken_message_is_heard(void **state)
{
    (void)state;
    const struct snib__acquire limited = {.wait = SNIB__NEVER, .max_hold = SECOND};
    for (int foreign = 0; foreign < 2; foreign++) {
        int32_t code;
        struct snib__engine *engine = begin();
        struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
        struct snib__op *op = snib__engine_acquire(engine, mutex, &limited, now, &code);
        connect_link(engine);
        answer(engine, ":20000\r\n");
        connect_pubsub(engine);
        say_on_channel(engine, mutex, NULL);
        answer(engine, "$-1\r\n");
        struct snib__hold *hold = acquired(engine, op);
        now += SECOND;
        snib__engine_tick(engine, now);
        assert_int_equal(hold->phase, SNIB__LOST);
        snib__hold_drop(engine, hold, now);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
        acquire(engine, mutex, 0);
        assert_int_equal(on_the_way(engine), 2);
        if (foreign)
            say_on_channel(engine, mutex, "0");
        answer(engine, ":0\r\n"); /* it was not held any more */
        answer(engine, ":20000\r\n");
        assert_int_equal(on_the_way(engine), foreign);
        snib__engine_free(engine);
    }
}

/* An acquisition without an answer may have been carried out as late as the connection was there, which the next one
 * ends: its lease is one from then.  So long its release is tried, if the server refuses that. */
static void late_lease_is_given_back(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    connect_link(engine);
    answer_own(engine);
    assert_int_equal(on_the_way(engine), 1);
    assert_true(snib__engine_cancel(engine, op, now));
    cut_link(engine);
    now += 5 * engine->config.lease;
    await_connect(engine);
    connect_link(engine);
    const snib__time ended = now + engine->config.lease;
    snib__time tried = now;
    while (snib__engine_busy(engine) && tried < ended) {
        assert_int_equal(on_the_way(engine), 1);
        answer_own(engine);
        tried = now;
        answer(engine, REFUSED);
        while (snib__engine_busy(engine) && on_the_way(engine) == 0) {
            now = snib__engine_deadline(engine);
            snib__engine_tick(engine, now);
        }
    }
    assert_true(tried >= ended);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(release_is_refused),        cmocka_unit_test(connection_is_another),
        cmocka_unit_test(attempts_are_unanswered),   cmocka_unit_test(what_is_known_is_said),
        cmocka_unit_test(attempt_ends_in_doubt),     cmocka_unit_test(attempt_is_left),
        cmocka_unit_test(grant_is_nobodys),          cmocka_unit_test(grant_is_the_next_ones),
        cmocka_unit_test(a_call_waits_once),         cmocka_unit_test(an_attempt_waits),
        cmocka_unit_test(mistaken_message_is_heard), cmocka_unit_test(late_lease_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
