/* lost.c - a hold that is lost stays lost, whatever is said of it later, and is told once. */
#include "fed.h"

#include "engine/route.h"

static const struct snib__acquire renewed = {.wait = SNIB__NEVER};

/* A renewed mutex, granted now, whose renewal is in flight; no tick comes before its deadline has
 * passed. */
static struct snib__hold *renewing(struct snib__engine *engine, const struct snib__acquire *how)
{
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), how);
    hold->tell = 1;
    now += 10 * SECOND;
    snib__engine_tick(engine, now);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RENEW);
    return hold;
}

static void expect_lost(struct snib__engine *engine, struct snib__hold *hold, int reason)
{
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
    assert_int_equal(snib__hold_reason(hold, now), reason);
    assert_int_equal(snib__hold_left(hold, now), 0);
}

/* It is lost by the clock; then the reply comes before any tick. */
static void answered_too_late(const struct snib__acquire *how, const char *reply, int reason,
                              snib__time over)
{
    struct snib__engine *engine = begin();
    struct snib__hold *hold = renewing(engine, how);
    int32_t code;
    now = over - 1;
    assert_int_not_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
    now = over;
    expect_lost(engine, hold, reason);
    answer(engine, reply);
    expect_lost(engine, hold, reason);
    snib__engine_tick(engine, now);
    expect_lost(engine, hold, reason);
    assert_ptr_equal(snib__engine_take_lost(engine), hold);
    assert_null(snib__engine_take_lost(engine)); /* reported once */
    assert_null(snib__engine_release(engine, hold, now, &code));
    assert_int_equal(code, SNIB_LOST);
    snib__engine_free(engine);
}

static void late_renewals(void **state)
{
    (void)state;
    const struct snib__acquire limited = {.wait = SNIB__NEVER, .max_hold = 20 * SECOND};
    const snib__time over = START + 30 * SECOND - 300 * SNIB__MS - SNIB__MARGIN;
    answered_too_late(&renewed, "*0\r\n", SNIB_REASON_UNREACHABLE, over);
    answered_too_late(&renewed, "*2\r\n:1\r\n:1\r\n", SNIB_REASON_UNREACHABLE, over);
    answered_too_late(&renewed, "-ERR no\r\n", SNIB_REASON_UNREACHABLE, over);
    answered_too_late(&limited, "*0\r\n", SNIB_REASON_MAX_HOLD, START + 20 * SECOND);
    answered_too_late(&limited, "*2\r\n:1\r\n:0\r\n", SNIB_REASON_MAX_HOLD, START + 20 * SECOND);
}

/* A change to a fixed lease, and the renewal before it, are confirmed too late. */
static void late_confirmation(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__hold *hold = renewing(engine, &renewed);
    snib__hold_fix(engine, hold, 60 * SECOND, now);
    now = hold->deadline;
    answer(engine, "*0\r\n");
    answer(engine, "*0\r\n");
    expect_lost(engine, hold, SNIB_REASON_EXPIRED);
    snib__engine_free(engine);

    engine = begin();
    hold = renewing(engine, &renewed);
    now = hold->deadline;
    snib__hold_fix(engine, hold, 60 * SECOND, now);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    answer(engine, "*0\r\n");
    assert_int_equal(on_the_way(engine), 0);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__engine_free(engine);
}

/* The lease becomes a fixed one while a renewal is in flight: the reply to that says nothing about
 * the new lease. */
static void older_answer(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__hold *hold = renewing(engine, &renewed);
    const snib__time sent = now;
    snib__hold_fix(engine, hold, 60 * SECOND, now);
    now += SECOND;
    answer(engine, "*0\r\n");
    assert_true(hold->deadline <= sent + 30 * SECOND);
    answer(engine, "*0\r\n");
    assert_true(hold->deadline == sent + 60 * SECOND * 99 / 100 - SNIB__MARGIN);
    snib__engine_free(engine);
}

/* Its owner re-enters before the end was noticed: it waits for a new hold. */
static void late_reentry(void **state)
{
    (void)state;
    const struct snib__acquire owned = {.owner = 7, .wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_READ, "r"), &owned);
    now = hold->deadline;
    assert_false(acquire(engine, hold->gate, 7)->done);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__engine_free(engine);

    engine = begin();
    hold = renewing(engine, &owned);
    now = hold->deadline;
    struct snib__op *again = acquire(engine, hold->gate, 7);
    assert_false(again->done);
    assert_ptr_not_equal(again->hold, hold);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    assert_ptr_equal(snib__engine_take_lost(engine), hold);
    answer(engine, "*0\r\n");
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_ACQUIRE);
    snib__engine_free(engine);
}

/* A hold that is carried outside: its carrier's reports come too late. */
static void late_carrier(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__outer outer = {0};
    struct snib__acquire how = {.wait = SNIB__NEVER, .outer = &outer};
    int32_t code;
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB__OUTER, "?m"), &how, now, &code);
    assert_true(snib__outer_granted(engine, &outer, now + SECOND, now));
    struct snib__hold *hold = acquired(engine, op);
    snib__outer_timed(engine, &outer, now + 2 * SECOND, now + SECOND - 1);
    now += 2 * SECOND;
    snib__outer_timed(engine, &outer, now + SECOND, now);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__outer_lost(engine, &outer, SNIB_REASON_TAKEN, now);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__engine_tick(engine, now);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__engine_free(engine);
}

/* A lock of several servers turns out less safe than reported: its loss is reported by the new
 * time. */
static void sooner_than_was_said(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__outer outer = {0};
    struct snib__acquire how = {.wait = SNIB__NEVER, .outer = &outer};
    int32_t code;
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB__OUTER, "?m"), &how, now, &code);
    assert_true(snib__outer_granted(engine, &outer, now + 30 * SECOND, now));
    struct snib__hold *hold = acquired(engine, op);
    hold->tell = 1;
    snib__outer_timed(engine, &outer, now + 2 * SECOND, now);
    assert_true(hold->timer_at && engine->heap[hold->timer_at].when <= now + 2 * SECOND);
    now += 2 * SECOND;
    snib__engine_tick(engine, now);
    assert_ptr_equal(snib__engine_take_lost(engine), hold);
    snib__engine_free(engine);
}

/* The release of a lock of several clients finds a member gone, long after this client's server failed over. */
static void outer_is_not_inherited(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__outer outer = {0};
    struct snib__acquire how = {.wait = SNIB__NEVER, .outer = &outer};
    struct snib__address first = {.host = "first", .port = 1}, next = {.host = "next", .port = 1};
    snib__node_readdress(engine, engine->home, &first, now);
    int32_t code;
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB__OUTER, "?m"), &how, now, &code);
    assert_true(snib__outer_granted(engine, &outer, now + 30 * SECOND, now));
    struct snib__hold *hold = acquired(engine, op);
    snib__node_readdress(engine, engine->home, &next, now);
    assert_non_null(snib__engine_release(engine, hold, now, &code));
    snib__outer_ended(engine, &outer, SNIB_LOST, now);
    assert_int_equal(hold->reason, SNIB_REASON_DELETED);
    snib__engine_free(engine);
}

/* A hold that is freed before its loss was reported is not reported. */
static void freed_before_it_was_told(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = SECOND};
    struct snib__hold *holds[3];
    for (int i = 0; i < 3; i++) {
        holds[i] =
            granted(engine, gate(engine, SNIB_MUTEX, (const char *[]){"a", "b", "c"}[i]), &fixed);
        holds[i]->tell = 1;
    }
    now += SECOND;
    snib__engine_tick(engine, now);
    snib__hold_drop(engine, holds[1], now);
    answer_own(engine);
    while (on_the_way(engine))
        answer(engine, ":0\r\n");
    granted(engine, gate(engine, SNIB_MUTEX, "d"), &fixed); /* perhaps at the same address */
    assert_ptr_equal(snib__engine_take_lost(engine), holds[0]);
    assert_ptr_equal(snib__engine_take_lost(engine), holds[2]);
    assert_null(snib__engine_take_lost(engine));
    snib__engine_free(engine);
}

/* A close after the end reports what ended the hold. */
static void closed_after_the_end(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__hold *hold = renewing(engine, &renewed);
    now = hold->deadline;
    snib__engine_close(engine, now);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__engine_free(engine);
}

/* The loss is reported once, although the server then reports nothing to give back. */
static void closed_after_the_end_is_told_once(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = SECOND};
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &fixed);
    now = hold->deadline;
    snib__engine_close(engine, now);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    answer(engine, ":0\r\n");
    assert_true(snib__engine_quiet(engine));
    assert_int_equal(engine->stats.lost_expired, 1);
    snib__engine_free(engine);
}

/* A release at close is retried for as long as the server may have the hold: by that hold's lease,
 * not the client's, by a slow clock, and a renewed hold for as long as a renewal without an answer keeps it. */
static void closed_and_refused(void **state)
{
    (void)state;
    static const snib__time leases[] = {0, 6 * SECOND, 600 * SECOND};
    for (size_t k = 0; k < COUNT(leases); k++) {
        const struct snib__acquire how = {.wait = SNIB__NEVER, .lease = leases[k]};
        const snib__time slow = (leases[k] ? leases[k] : 30 * SECOND) / 40;
        const snib__time renewal = leases[k] ? 0 : 30 * SECOND;
        struct snib__engine *engine = begin();
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &how);
        const snib__time end = hold->deadline;
        snib__time last = now;
        snib__engine_close(engine, now);
        while (!snib__engine_quiet(engine)) {
            if (on_the_way(engine)) {
                assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
                answer(engine, "-MISCONF disk is full\r\n");
                last = now;
            }
            now = snib__engine_deadline(engine);
            snib__engine_tick(engine, now);
        }
        assert_in_range(last, end + renewal + slow - SECOND, end + renewal + slow + SECOND);
        snib__hold_drop(engine, hold, now);
        assert_true(snib__engine_quiet(engine));
        snib__engine_free(engine);
    }
}

/* The server refuses a release; returns until when it is asked again and again. */
static snib__time asked_until(struct snib__engine *engine, struct snib__hold *hold)
{
    int32_t code;
    snib__time last = now;
    assert_non_null(snib__engine_release(engine, hold, now, &code));
    while (hold->phase == SNIB__RELEASING) {
        if (on_the_way(engine)) {
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
            answer(engine, "-MISCONF disk is full\r\n");
            last = now;
        }
        now = snib__engine_deadline(engine);
        snib__engine_tick(engine, now);
    }
    return last;
}

/* The server may have carried out a renewal although it says otherwise: then it keeps the lock for a lease after that,
 * so a release that it refuses is asked for until then, and not only until the hold's own deadline.  The same of the
 * change to a fixed lease, shorter or longer. */
static void refused_after_a_renewal(void **state)
{
    (void)state;
    static const snib__time fixed[] = {0, 2 * SECOND, 60 * SECOND};
    for (size_t k = 0; k < COUNT(fixed); k++) {
        struct snib__engine *engine = begin();
        struct snib__hold *hold = renewing(engine, &renewed);
        const snib__time kept = now + (fixed[k] > 30 * SECOND ? fixed[k] : 30 * SECOND);
        if (fixed[k])
            snib__hold_fix(engine, hold, fixed[k], now);
        while (on_the_way(engine))
            answer(engine, "-ERR upstream failure\r\n");
        assert_true(asked_until(engine, hold) > kept);
        snib__engine_free(engine);
    }
}

/* A process that is stopped until a lease has ended sends no renewal, and it shows all the same why the lock was lost. */
static void stopped_for_a_lease(void **state)
{
    (void)state;
    const char *text;
    int32_t level;
    bool told = false;
    struct snib__engine *engine = begin();
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    granted(engine, gate(engine, SNIB_SEMAPHORE, "connects"), &renewed);
    now += SNIB__MS;
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &renewed);
    granted(engine, gate(engine, SNIB_MUTEX, "n"), &renewed);
    snib_client_stats_data stats = {.size = sizeof stats};
    now += 40 * 86400 * SECOND + 10 * SECOND;
    snib__engine_tick(engine, now);
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    snib__engine_stats(engine, &stats);
    assert_int_equal(stats.renewals, 0);
    assert_int_equal(stats.watchdog_late_us, 3456000000000);
    while ((text = snib__engine_take_log(engine, &level))) {
        assert_false(told && strstr(text, " ms late")); /* once */
        told = told || strstr(text, "a renewal is 3456000000 ms late");
    }
    assert_true(told);
    snib__engine_free(engine);
}

/* Two operations of one owner wait for a lock on several servers: when one of them has it, the other has it, too, and its
 * carrier lets go of what it has.  It would wait for itself. */
static void carried_twice_for_one_owner(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *several = gate(engine, SNIB__OUTER, "?m");
    struct snib__outer outers[3] = {0};
    struct snib__op *ops[3];
    int32_t code;
    for (int i = 0; i < 3; i++) { /* the last one is another owner's */
        struct snib__acquire how = {
            .owner = i < 2 ? 7 : 8, .wait = SNIB__NEVER, .outer = &outers[i]};
        ops[i] = snib__engine_acquire(engine, several, &how, now, &code);
    }
    while (snib__engine_take_outer(engine))
        continue;
    assert_true(snib__outer_granted(engine, &outers[1], now + SECOND, now));
    struct snib__hold *hold = acquired(engine, ops[1]);
    assert_ptr_equal(acquired(engine, ops[0]), hold);
    assert_int_equal(hold->count, 2);
    assert_int_equal(hold->users, 2);
    assert_ptr_equal(snib__engine_take_outer(engine), &outers[0]);
    assert_false(snib__outer_wanted(&outers[0]));
    snib__outer_ended(engine, &outers[0], SNIB_CANCELLED, now);
    assert_true(snib__outer_wanted(&outers[2]) && !ops[2]->done);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    snib__engine_free(engine);
}

/* A lock on several servers that its release finds lost counts like any other loss, and is logged. */
static void carried_and_found_lost(void **state)
{
    (void)state;
    const char *text;
    int32_t level, code;
    bool told = false;
    struct snib__engine *engine = begin();
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    struct snib__outer outer = {0};
    struct snib__acquire how = {.owner = 7, .wait = SNIB__NEVER, .outer = &outer};
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB__OUTER, "?m"), &how, now, &code);
    assert_true(snib__outer_granted(engine, &outer, now + SECOND, now));
    struct snib__hold *hold = acquired(engine, op);
    op = snib__engine_release(engine, hold, now, &code);
    snib__outer_ended(engine, &outer, SNIB_LOST, now);
    assert_true(op->done && op->code == SNIB_LOST && op->reason == SNIB_REASON_DELETED);
    assert_int_equal(engine->stats.lost_deleted, 1);
    while ((text = snib__engine_take_log(engine, &level)))
        told = told || strstr(text, "lost");
    assert_true(told);
    snib__engine_free(engine);
}

/* How many records have these words; all are taken. */
static int said(struct snib__engine *engine, const char *words, int *also, const char *others)
{
    const char *text;
    int32_t level;
    int n = 0;
    while ((text = snib__engine_take_log(engine, &level))) {
        n += strstr(text, words) != NULL;
        *also += strstr(text, others) != NULL;
    }
    return n;
}

/* A renewal that the server refuses is repeated until the lease has ended.  It is not late, and the log has the server's
 * words once. */
static void refused_renewals_are_told(void **state)
{
    (void)state;
    int late = 0, told = 0;
    struct snib__engine *engine = begin();
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    granted(engine, gate(engine, SNIB_SEMAPHORE, "connects"), &renewed);
    now += SNIB__MS;
    struct snib__hold *hold = renewing(engine, &renewed);
    while (hold->phase == SNIB__HELD) {
        while (on_the_way(engine))
            answer(engine, "-MISCONF disk is full\r\n");
        now = snib__engine_deadline(engine);
        snib__engine_tick(engine, now);
        told += said(engine, "refuses to renew locks: MISCONF disk is full", &late, " ms late");
    }
    expect_lost(engine, hold, SNIB_REASON_UNREACHABLE);
    assert_int_equal(told, 1);
    assert_int_equal(late, 0);
    assert_true(engine->stats.watchdog_late_us < 1000);
    snib__engine_free(engine);
}

/* Answer everything else until a renewal is the oldest request on the way. */
static void await_renewal(struct snib__engine *engine)
{
    while (on_the_way(engine) == 0 || oldest_script(engine) != SNIB__SCRIPT_MUTEX_RENEW) {
        if (on_the_way(engine) > 0) {
            answer(engine, "+OK\r\n");
        } else {
            now = snib__engine_deadline(engine);
            snib__engine_tick(engine, now);
        }
    }
}

/* Another reason is told too, and so is the same one of another server. */
static void every_refusal_is_told(void **state)
{
    (void)state;
    const struct snib__address next = {.host = "next", .port = 1};
    int at_next = 0;
    struct snib__engine *engine = begin();
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    granted(engine, gate(engine, SNIB_SEMAPHORE, "connects"), &renewed);
    now += SNIB__MS;
    renewing(engine, &renewed);
    answer(engine, "-MISCONF disk is full\r\n");
    assert_int_equal(said(engine, "refuses to renew locks: MISCONF", &at_next, "next"), 1);
    for (int i = 0; i < 2; i++) {
        await_renewal(engine);
        answer(engine, "-NOREPLICAS Not enough good replicas to write.\r\n");
        assert_int_equal(said(engine, "refuses to renew locks: NOREPLICAS", &at_next, "next"), !i);
    }
    assert_int_equal(at_next, 0);
    cut_link(engine);
    snib__node_readdress(engine, engine->home, &next, now);
    await_connect(engine);
    connect_link(engine);
    await_renewal(engine);
    answer(engine, "-NOREPLICAS Not enough good replicas to write.\r\n");
    assert_int_equal(said(engine, "refuses to renew locks: NOREPLICAS", &at_next, "next:1"), 1);
    assert_int_equal(at_next, 1);
    snib__engine_free(engine);
}

/* A process stands still with many holds: that all their batches are late does not push a loss out of the log. */
static void many_are_late(void **state)
{
    (void)state;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 10 * SECOND};
    int lost = 0;
    struct snib__engine *engine = begin();
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    granted(engine, gate(engine, SNIB_SEMAPHORE, "connects"), &renewed);
    now += SNIB__MS;
    granted(engine, gate(engine, SNIB_MUTEX, "fixed"), &fixed);
    for (int i = 0; i < 20 * SNIB__BATCH_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        granted(engine, gate(engine, SNIB_MUTEX, name), &renewed);
    }
    said(engine, "", &lost, "lost");
    now += 16 * SECOND;
    snib__engine_tick(engine, now);
    assert_int_equal(said(engine, " ms late", &lost, "\"fixed\" was lost"), 1);
    assert_int_equal(lost, 1);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_renewals_are_told),
        cmocka_unit_test(every_refusal_is_told),
        cmocka_unit_test(many_are_late),
        cmocka_unit_test(late_renewals),
        cmocka_unit_test(late_confirmation),
        cmocka_unit_test(older_answer),
        cmocka_unit_test(late_reentry),
        cmocka_unit_test(late_carrier),
        cmocka_unit_test(carried_twice_for_one_owner),
        cmocka_unit_test(carried_and_found_lost),
        cmocka_unit_test(sooner_than_was_said),
        cmocka_unit_test(outer_is_not_inherited),
        cmocka_unit_test(freed_before_it_was_told),
        cmocka_unit_test(closed_after_the_end),
        cmocka_unit_test(closed_after_the_end_is_told_once),
        cmocka_unit_test(closed_and_refused),
        cmocka_unit_test(refused_after_a_renewal),
        cmocka_unit_test(stopped_for_a_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
