/* hold.c - how long a hold is safe, which state it reports, and how it ends. */
#include "fed.h"

#include "engine/route.h"

static const struct snib__acquire renewed = {.wait = SNIB__NEVER};

/* ---- The deadline ---------------------------------------------------------------------------------- */

/* The lease counts from before the request was sent, less 1 % for unequal clock rates, less 5
 * ms. */
static void safe_until(void **state)
{
    (void)state;
    static const snib__time leases[] = {100, 1000, 12345, 30000, 86400000};
    for (size_t i = 0; i < COUNT(leases); i++) {
        struct snib__engine *engine = begin();
        struct snib__acquire how = {.wait = SNIB__NEVER, .lease = leases[i] * SNIB__MS};
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &how);
        assert_true(hold->deadline == START + leases[i] * SNIB__MS * 99 / 100 - 5 * SNIB__MS);
        assert_true(snib__hold_left(hold, now) == hold->deadline - now);
        snib__engine_free(engine);
    }
}

/* At risk: a renewal is overdue, or the server is unreachable; valid again after a reply. */
static void at_risk(void **state)
{
    (void)state;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 20 * SECOND};
    struct snib__engine *engine = begin();
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "renewed"), &renewed);
    struct snib__hold *other = granted(engine, gate(engine, SNIB_MUTEX, "fixed"), &fixed);
    now += 10 * SECOND;
    snib__engine_tick(engine, now); /* sent */
    now = hold->deadline - 15 * SECOND;
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    now++;
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    assert_int_equal(snib__hold_state(engine, other, now), SNIB_HOLD_VALID); /* nothing is due */
    answer_own(engine);
    answer(engine, "*0\r\n");
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    cut_link(engine);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    assert_int_equal(snib__hold_state(engine, other, now), SNIB_HOLD_AT_RISK);
    now = other->deadline;
    assert_int_equal(snib__hold_state(engine, other, now), SNIB_HOLD_LOST);
    snib__engine_free(engine);
}

/* A server that was restarted may have forgotten the holds, until it has confirmed them; the same one, that was away, has not. */
static void at_risk_after_a_restart(void **state)
{
    (void)state;
    for (int restarted = 0; restarted < 2; restarted++) {
        struct snib__engine *engine = begin();
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &renewed);
        now += SECOND;
        cut_link(engine);
        server_id = restarted ? "xyz" : "abc";
        await_connect(engine);
        connect_link(engine);
        assert_int_equal(snib__hold_state(engine, hold, now),
                         restarted ? SNIB_HOLD_AT_RISK : SNIB_HOLD_VALID);
        snib__engine_tick(engine, now);
        answer_own(engine);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RENEW);
        answer(engine, "*0\r\n");
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
        server_id = "abc";
        snib__engine_free(engine);
    }
}

/* Its carrier gives a renewed member a lease of its own before the restarted server has confirmed it: no renewal will ask any
 * more. */
static void fixed_after_a_restart(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &renewed);
    cut_link(engine);
    server_id = "xyz";
    await_connect(engine);
    connect_link(engine);
    snib__hold_extended(engine, hold, 5 * SECOND, now, now);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    snib__engine_tick(engine, now);
    answer_own(engine);
    assert_int_equal(on_the_way(engine), 1);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RENEW);
    answer(engine, "*0\r\n");
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    server_id = "abc";
    snib__engine_free(engine);
}

/* Permits of a semaphore have no lease that could make their release needless. */
static void permits_for_ever(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_SEMAPHORE, "s"), &renewed);
    assert_true(hold->deadline == SNIB__NEVER);
    assert_false(snib__release_lapsed(engine, hold, now + 100 * 86400 * SECOND));
    snib__engine_free(engine);
}

/* A hold that is handed over within the process has the limit of its new owner. */
static void max_hold_after_a_hand_over(void **state)
{
    (void)state;
    const struct snib__acquire limited = {.wait = SNIB__NEVER, .max_hold = 15 * SECOND};
    struct snib__engine *engine = begin();
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__hold *first = granted(engine, mutex, &renewed);
    int32_t code;
    struct snib__op *op = snib__engine_acquire(engine, mutex, &limited, now, &code);
    snib__engine_release(engine, first, now, &code);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
    answer(engine, ":1\r\n");
    while (!op->done)
        answer(engine, ":1\r\n");
    assert_int_equal(op->code, SNIB_OK);
    struct snib__hold *hold = op->hold;
    now += 15 * SECOND - 1;
    assert_int_not_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
    now++;
    snib__engine_tick(engine, now);
    assert_int_equal(hold->phase, SNIB__LOST);
    assert_int_equal(hold->reason, SNIB_REASON_MAX_HOLD);
    snib__engine_free(engine);
}

/* A grant whose lease may have ended by the time it is read is given back. */
static void late_grant(void **state)
{
    (void)state;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = SECOND};
    const snib__time safe = SECOND * 99 / 100 - 5 * SNIB__MS;
    for (int late = 0; late < 2; late++) {
        struct snib__engine *engine = begin();
        int32_t code;
        granted(engine, gate(engine, SNIB_MUTEX, "other"), &renewed); /* connects the link */
        struct snib__op *op =
            snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "m"), &fixed, now, &code);
        now += late ? safe : safe - 1;
        answer_own(engine);
        answer(engine, "$-1\r\n");
        assert_true(op->done);
        assert_int_equal(op->code, late ? SNIB_EUNREACHABLE : SNIB_OK);
        assert_int_equal(on_the_way(engine), late);
        if (late)
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
        snib__engine_free(engine);
    }
}

/* How late it was granted is unknown: the server may have it for a lease from the answer on, and for so long its refused
 * release is repeated. */
static void late_grant_is_given_back(void **state)
{
    (void)state;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 2 * SECOND};
    struct snib__engine *engine = begin();
    int32_t code;
    granted(engine, gate(engine, SNIB_MUTEX, "other"), &renewed); /* connects the link */
    snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "m"), &fixed, now, &code);
    answer_own(engine);
    now += 5 * SECOND / 2;
    answer(engine, "$-1\r\n");
    for (int tries = 0; tries < 4; tries++) {
        answer_own(engine);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
        answer(engine, "-ERR not now\r\n");
        assert_int_equal(on_the_way(engine), 0);
        now += SECOND / 2;
        snib__engine_tick(engine, now);
    }
    snib__engine_free(engine);
}

/* A try without an answer, and then one that was refused: the first may have been carried out by a server from before. */
static void unreached_after_a_stray(void **state)
{
    (void)state;
    for (int stray = 0; stray < 2; stray++) {
        struct snib__engine *engine = begin();
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        connect_link(engine);
        answer_own(engine);
        if (stray) {
            cut_link(engine);
            await_connect(engine);
            connect_link(engine);
            answer_own(engine);
        }
        answer(engine, ":100000\r\n");
        cut_link(engine);
        for (int step = 0; step < 100 && !op->done; step++) {
            now += SECOND / 10;
            snib__engine_tick(engine, now);
        }
        assert_true(op->done);
        assert_int_equal(op->code, stray ? SNIB_EUNREACHABLE : SNIB_ECONNECT);
        snib__engine_free(engine);
    }
}

/* A second acquire by an owner whose first one is still in flight is granted with it. */
static void owner_that_waits_for_itself(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *op = acquire(engine, mutex, 7), *stranger = acquire(engine, mutex, 8),
                    *other = acquire(engine, mutex, 7);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    assert_true(op->done && other->done && !stranger->done);
    assert_int_equal(other->code, SNIB_OK);
    assert_ptr_equal(op->hold, other->hold);
    assert_int_equal(op->hold->count, 2);
    assert_int_equal(on_the_way(engine), 0);
    snib__engine_free(engine);
}

/* One of two users drops the hold, and it is over before the other releases it: the first may still be at work, so the server
 * keeps the lock until the lease ends. */
static void over_and_abandoned_by_one(void **state)
{
    (void)state;
    const struct snib__acquire brief = {.owner = 7, .wait = SNIB__NEVER, .max_hold = SECOND};
    int32_t code;
    struct snib__engine *engine = begin();
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__hold *hold = granted(engine, mutex, &brief);
    snib__engine_acquire(engine, mutex, &brief, now, &code);
    assert_int_equal(hold->users, 2);
    hold->users--;
    snib__hold_abandon(engine, hold, now);
    now += SECOND;
    snib__engine_tick(engine, now);
    assert_int_equal(hold->phase, SNIB__LOST);
    assert_null(snib__engine_release(engine, hold, now, &code));
    assert_int_equal(code, SNIB_LOST);
    answer_own(engine);
    assert_int_equal(on_the_way(engine), 0);
    snib__engine_free(engine);
}

/* A read under its owner's write hold goes ahead of one whose own write hold has ended: that one waits for the end of the
 * present one, and so for the end of this read. */
static void under_the_present_write(uint64_t number)
{
    int32_t code;
    struct snib__engine *engine = begin();
    engine->next_number = 100;
    struct snib__gate *read = gate(engine, SNIB_READ, "m"), *write = gate(engine, SNIB_WRITE, "m");
    struct snib__op *former = acquire(engine, write, 8);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, former);
    struct snib__op *stale = acquire(engine, read, 8), *present = acquire(engine, read, 7);
    answer_own(engine);
    answer(engine, ":1000\r\n"); /* another process has taken it, by force */
    snib__engine_release(engine, hold, now, &code);
    struct snib__op *writer = acquire(engine, write, 7);
    writer->hold->number = number; /* it has waited for longer or for less long */
    for (int i = 0; i < 8 && !writer->done; i++) {
        answer_own(engine);
        int script = oldest_script(engine);
        answer(engine, script == SNIB__SCRIPT_READ_ACQUIRE    ? ":1000\r\n"
                       : script == SNIB__SCRIPT_WRITE_RELEASE ? ":0\r\n"
                                                              : "$-1\r\n");
    }
    assert_int_equal(writer->code, SNIB_OK);
    const struct snib__conn *conn = conn_of(engine);
    for (int i = 0; i < 4 && !present->done; i++) {
        answer_own(engine);
        bool its = conn->ring[conn->ring_head].subject == present->hold;
        answer(engine, its ? "$-1\r\n" : ":1000\r\n");
    }
    assert_true(present->done && !stale->done);
    snib__engine_free(engine);
}

static void read_under_the_present_write(void **state)
{
    (void)state;
    under_the_present_write(50);
    under_the_present_write(150);
}

/* ---- The release ----------------------------------------------------------------------------------- */

/* The reply to a release is lost, and the retry finds nothing: the first one did it if the lease
 * cannot have ended; otherwise another owner may have had the lock, and the outcome is unknown. */
static void repeated_release(void **state)
{
    (void)state;
    for (int ended = 0; ended < 2; ended++) {
        struct snib__engine *engine = begin();
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &renewed);
        int32_t code;
        struct snib__op *op = snib__engine_release(engine, hold, now, &code);
        assert_int_equal(on_the_way(engine), 1);
        cut_link(engine);
        await_connect(engine);
        connect_link(engine);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
        now = ended ? hold->deadline : hold->deadline - 1;
        answer(engine, ":0\r\n");
        assert_true(op->done);
        assert_int_equal(op->code, ended ? SNIB_LOST : SNIB_OK);
        snib__engine_free(engine);
    }
}

/* A hand-over whose answer is lost, to a waiter whose lease is over when it is repeated: neither has the lock any more. */
static void repeated_hand_over(void **state)
{
    (void)state;
    const struct snib__acquire brief = {.wait = SNIB__NEVER, .lease = SECOND / 10};
    for (int ended = 0; ended < 2; ended++) {
        struct snib__engine *engine = begin();
        struct snib__gate *one = gate(engine, SNIB_MUTEX, "m");
        struct snib__hold *hold = granted(engine, one, &renewed);
        int32_t code;
        struct snib__op *next = snib__engine_acquire(engine, one, &brief, now, &code);
        struct snib__op *op = snib__engine_release(engine, hold, now, &code);
        answer_own(engine);
        while (oldest_script(engine) == SNIB__SCRIPT_MUTEX_ACQUIRE)
            answer(engine, ":29000\r\n");
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
        cut_link(engine);
        await_connect(engine);
        connect_link(engine);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
        now = ended ? hold->deadline : hold->deadline - 1;
        answer(engine, ":0\r\n");
        assert_true(op->done);
        assert_int_equal(op->code, ended ? SNIB_LOST : SNIB_OK);
        assert_false(next->done);
        snib__engine_free(engine);
    }
}

/* The log's line of a loss shows the name, and of a long one whole characters. */
static void logged_name(void **state)
{
    (void)state;
    static const char *const beginnings[] = {"", "n"};
    for (size_t length = 98; length <= 120; length++)
        for (size_t k = 0; k < COUNT(beginnings); k++) {
            char name[160] = "", want[260];
            const char *text, *last = NULL;
            int32_t level = 0;
            strcpy(name, beginnings[k]);
            while (strlen(name) + 2 <= length)
                strcat(name, "\xc3\xa9");
            struct snib__engine *engine = begin();
            snib__engine_log_level(engine, SNIB_LOG_INFO);
            struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, name), &renewed);
            now = hold->deadline;
            assert_true(snib__hold_over(engine, hold, now));
            while ((text = snib__engine_take_log(engine, &level)))
                last = text;
            bool whole = strlen(name) <= 100;
            int shown = whole ? (int)strlen(name) : 100 - (int)strlen(beginnings[k]);
            snprintf(want, sizeof want, "lock \"%.*s%s\" was lost: unreachable", shown, name,
                     whole ? "" : "...");
            assert_string_equal(last, want);
            assert_int_equal(level, SNIB_LOG_WARNING);
            snib__engine_free(engine);
        }
}

/* A quorum lock goes on without one of its members: the log has no warning that the lock was lost. */
static void logged_member(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    snib__engine_log_level(engine, SNIB_LOG_INFO);
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "vault"), &renewed);
    const char *text, *last = NULL;
    int32_t level = 0;
    hold->member = true;
    now = hold->deadline;
    assert_true(snib__hold_over(engine, hold, now));
    while ((text = snib__engine_take_log(engine, &level)))
        last = text;
    assert_string_equal(last, "lock \"vault\" was lost as a member: unreachable");
    assert_int_equal(level, SNIB_LOG_INFO);
    snib__engine_free(engine);
}

/* Nor has it if that is found out when the whole has ended and lets go of its members, and if that is dropped, its own
 * warning is the only one. */
static void logged_member_that_is_let_go(void **state)
{
    (void)state;
    for (int abandoned = 0; abandoned < 2; abandoned++) {
        struct snib__engine *engine = begin();
        snib__engine_log_level(engine, SNIB_LOG_INFO);
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "vault"), &renewed);
        const char *text, *last = NULL;
        int32_t level = 0;
        hold->member = true;
        if (abandoned)
            snib__hold_abandon(engine, hold, now);
        snib__hold_drop(engine, hold, now);
        if (!abandoned)
            snib__hold_found_lost(engine, hold, now);
        while ((text = snib__engine_take_log(engine, &level)))
            last = text;
        assert_non_null(last);
        assert_string_equal(last, abandoned
                                      ? "lock \"vault\" was dropped as a member without a release: "
                                        "it is free when its lease ends"
                                      : "lock \"vault\" was lost as a member: deleted");
        assert_int_equal(level, SNIB_LOG_INFO);
        snib__engine_free(engine);
    }
}

/* The giver's lock is gone, or was only released: it is told, and the waiter tries for itself. */
static void hand_over_without_a_lock(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        int32_t code;
    } cases[] = {{":1\r\n", SNIB_OK}, {":2\r\n", SNIB_OK}, {":0\r\n", SNIB_LOST}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        int32_t code;
        const struct snib__acquire how = {.wait = SNIB__NEVER};
        struct snib__engine *engine = begin();
        struct snib__gate *one = gate(engine, SNIB_MUTEX, "m");
        struct snib__hold *hold = granted(engine, one, &how);
        struct snib__op *op = acquire(engine, one, 0);
        struct snib__op *release = snib__engine_release(engine, hold, now, &code);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
        answer(engine, cases[i].reply);
        assert_true(release->done);
        assert_int_equal(release->code, cases[i].code);
        assert_int_equal(op->done, i == 0);
        if (!op->done) {
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_ACQUIRE);
            answer(engine, "$-1\r\n");
        }
        assert_true(op->done && op->code == SNIB_OK);
        snib__engine_free(engine);
    }
}

/* ---- Renewals ------------------------------------------------------------------------------------------------ */

/* A write hold whose time is over ends at the server, too, although its owner's read keeps the key that both are in: other
 * readers would wait for as long as that reads.  A later release finds that done. */
static void write_ends_under_a_read(void **state)
{
    (void)state;
    static const struct snib__acquire reads = {.owner = 7, .wait = SNIB__NEVER},
                                      writes[] = {
                                          {.owner = 7, .wait = SNIB__NEVER, .lease = 5 * SECOND},
                                          {.owner = 7,
                                           .wait = SNIB__NEVER,
                                           .max_hold = 5 * SECOND}};
    for (int i = 0; i < 4; i++) {
        struct snib__engine *engine = begin();
        int32_t code;
        struct snib__hold *write = granted(engine, gate(engine, SNIB_WRITE, "rw"), &writes[i / 2]);
        struct snib__hold *read =
            i % 2 ? granted(engine, gate(engine, SNIB_READ, "rw"), &reads) : NULL;
        now += 5 * SECOND;
        snib__engine_tick(engine, now);
        assert_int_equal(snib__hold_state(engine, write, now), SNIB_HOLD_LOST);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), read != NULL);
        if (read) {
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_WRITE_RELEASE);
            answer(engine, ":1\r\n");
            assert_int_equal(snib__hold_state(engine, read, now), SNIB_HOLD_VALID);
        }
        assert_null(snib__engine_release(engine, write, now, &code));
        assert_int_equal(code, SNIB_LOST);
        assert_int_equal(on_the_way(engine), read == NULL);
        snib__engine_free(engine);
    }
}

/* One that is dropped is left to its lease, which is that of the read, too: the log does not promise more. */
static void dropped_write_lasts_as_its_read(void **state)
{
    (void)state;
    static const struct snib__acquire owned = {.owner = 7, .wait = SNIB__NEVER};
    for (int reads = 0; reads < 2; reads++) {
        struct snib__engine *engine = begin();
        struct snib__hold *write = granted(engine, gate(engine, SNIB_WRITE, "rw"), &owned);
        const char *text, *last = "";
        int32_t level = 0;
        snib__engine_log_level(engine, SNIB_LOG_WARNING);
        if (reads)
            granted(engine, gate(engine, SNIB_READ, "rw"), &owned);
        snib__hold_abandon(engine, write, now);
        snib__hold_drop(engine, write, now);
        while ((text = snib__engine_take_log(engine, &level)))
            last = text;
        assert_string_equal(last, reads ? "lock \"rw\" was dropped without a release: it is free "
                                          "when its lease and its owner's read have ended"
                                        : "lock \"rw\" was dropped without a release: it is free "
                                          "when its lease ends");
        snib__engine_free(engine);
    }
}

/* A read of another owner waits for the end of the write hold, and keeps nothing alive. */
static void write_ends_before_a_read(void **state)
{
    (void)state;
    const struct snib__acquire writes = {.owner = 7, .wait = SNIB__NEVER, .lease = 5 * SECOND};
    struct snib__engine *engine = begin();
    struct snib__hold *write = granted(engine, gate(engine, SNIB_WRITE, "rw"), &writes);
    const struct snib__op *waits = acquire(engine, gate(engine, SNIB_READ, "rw"), 8);
    for (int seconds = 0; seconds < 5; seconds++) {
        for (answer_own(engine); on_the_way(engine) > 0; answer_own(engine))
            answer(engine, ":5000\r\n");
        now += SECOND;
        snib__engine_tick(engine, now);
    }
    assert_false(waits->done);
    assert_int_equal(snib__hold_state(engine, write, now), SNIB_HOLD_LOST);
    assert_true(ready(engine));
    const struct snib__conn *conn = conn_of(engine);
    for (uint32_t i = 0; i < conn->ring_count; i++)
        assert_int_not_equal(conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)].kind,
                             SNIB__REQ_RELEASE);
    snib__engine_free(engine);
}

/* Of several permits one may be gone, released by its id: the others are given back when the program is done with them.
 * Of a single one nothing is left. */
static void one_of_several_permits_is_gone(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 2; n++) {
        const struct snib__acquire how = {.wait = SNIB__NEVER, .permits = n};
        struct snib__engine *engine = begin();
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_PERMITS, "p"), &how);
        now += 10 * SECOND;
        snib__engine_tick(engine, now);
        while (oldest_script(engine) != SNIB__SCRIPT_PERMITS_RENEW)
            answer(engine, "+OK\r\n");
        answer(engine, "*2\r\n:1\r\n:1\r\n");
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 0);
        snib__hold_drop(engine, hold, now);
        assert_int_equal(on_the_way(engine), n > 1);
        if (n > 1)
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_PERMITS_RELEASE);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_over_without_a_lock),
        cmocka_unit_test(safe_until),
        cmocka_unit_test(at_risk),
        cmocka_unit_test(at_risk_after_a_restart),
        cmocka_unit_test(fixed_after_a_restart),
        cmocka_unit_test(permits_for_ever),
        cmocka_unit_test(max_hold_after_a_hand_over),
        cmocka_unit_test(late_grant),
        cmocka_unit_test(late_grant_is_given_back),
        cmocka_unit_test(unreached_after_a_stray),
        cmocka_unit_test(owner_that_waits_for_itself),
        cmocka_unit_test(read_under_the_present_write),
        cmocka_unit_test(repeated_release),
        cmocka_unit_test(repeated_hand_over),
        cmocka_unit_test(logged_name),
        cmocka_unit_test(logged_member),
        cmocka_unit_test(logged_member_that_is_let_go),
        cmocka_unit_test(write_ends_under_a_read),
        cmocka_unit_test(over_and_abandoned_by_one),
        cmocka_unit_test(dropped_write_lasts_as_its_read),
        cmocka_unit_test(write_ends_before_a_read),
        cmocka_unit_test(one_of_several_permits_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
