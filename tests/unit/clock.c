/* clock.c - what is concluded from the server's time. */
#include "fed.h"

#include <stdlib.h>

#define SERVER 1700000000000000000ull

static snib__time ms(int64_t n)
{
    return START + (snib__time)(n * (int64_t)SNIB__MS);
}

/* One reply, given halfway between sending and receiving. */
static int64_t sample(struct snib__clock *clock, int64_t sent_ms, int64_t took_ms, int64_t error_ms)
{
    snib__time sent = ms(sent_ms), received = ms(sent_ms + took_ms);
    uint64_t server_ns = SERVER + (sent + received) / 2 + (uint64_t)(error_ms * (int64_t)SNIB__MS);
    return snib__clock_sample(clock, server_ns, sent, received) / (int64_t)SNIB__MS;
}

static void rates(void **state)
{
    (void)state;
    for (int ppm = -20000; ppm <= 20000; ppm += 1000) {
        struct snib__clock clock = {0};
        bool moved = false;
        for (int64_t at = 0; at < 100000; at += 10000)
            moved |= sample(&clock, at, 1, at * ppm / 1000000) != 0;
        if (abs(ppm) <= 10000)
            assert_false(moved);
        if (abs(ppm) >= 11000)
            assert_true(moved);
    }
}

static void steps(void **state)
{
    (void)state;
    struct snib__clock clock = {0};
    assert_int_equal(sample(&clock, 0, 2, 0), 0);
    assert_int_equal(sample(&clock, 10000, 2, 100), 0); /* explained by clock rates */
    assert_int_equal(sample(&clock, 20000, 2, 40100), 40000 - 2);
    assert_int_equal(sample(&clock, 30000, 2, 40100), 0); /* reported once */
    assert_int_equal(sample(&clock, 40000, 2, -3600000), -3640100 + 2);
    assert_int_equal(sample(&clock, 50000, 2, -3600000), 0);
}

/* An uncertainty due to a slow reply is not held against the clock, and does not hide a step from
 * the next reply. */
static void slow_answers(void **state)
{
    (void)state;
    struct snib__clock clock = {0};
    sample(&clock, 0, 1, 0);
    assert_int_equal(sample(&clock, 10000, 2000, 900), 0);
    assert_int_equal(sample(&clock, 20000, 1, 400), 400 - 1);
}

/* Of a distant server no reply may be as quick as the quickest, for hours: what that said does not become so old that the
 * rates of the clocks could explain a step of seconds. */
static void distant_server(void **state)
{
    (void)state;
    for (int way = -1; way <= 1; way += 2) {
        struct snib__clock clock = {0};
        int64_t at = 0;
        assert_int_equal(sample(&clock, at, 6, 0), 0);
        for (int i = 0; i < 3600; i++) {
            at += 10000;
            assert_int_equal(sample(&clock, at, 8 + i * 7 % 60, i * way), 0);
        }
        assert_in_range(way * sample(&clock, at + 10000, 20, way * 4600), 800, 1000);
    }
}

/* ---- The engine ------------------------------------------------------------------------------------ */

static uint64_t server_error_ns;
static uint32_t questions; /* renewals that give holds what is left of a fixed lease, ... */
static int64_t left_ms;    /* ... and how much the last one gave */

static void answer_time(struct snib__engine *engine)
{
    char text[80], seconds[24], micros[24];
    uint64_t server_us = (SERVER + now + server_error_ns) / 1000;
    snprintf(seconds, sizeof seconds, "%llu", (unsigned long long)(server_us / 1000000));
    snprintf(micros, sizeof micros, "%llu", (unsigned long long)(server_us % 1000000));
    snprintf(text, sizeof text, "*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(seconds), seconds,
             strlen(micros), micros);
    answer(engine, text);
}

/* Go to the next deadline and answer the requests; returns whether a hold was renewed. */
static bool go_on(struct snib__engine *engine)
{
    bool renewed = false;
    snib__time next = snib__engine_deadline(engine);
    now = next > now ? next : now;
    snib__engine_tick(engine, now);
    now += SNIB__MS;
    for (uint32_t n = conn_of(engine)->ring_count; n > 0; n--) {
        const struct snib__request *request = &conn_of(engine)->ring[conn_of(engine)->ring_head];
        const struct snib__batch *batch =
            request->kind == SNIB__REQ_RENEW ? request->subject : NULL;
        renewed |= batch != NULL;
        questions += batch && batch->asks;
        left_ms = batch && batch->asks ? batch->lease_ms : left_ms;
        if (request->kind == SNIB__REQ_TIME)
            answer_time(engine);
        else
            answer(engine, "*0\r\n");
    }
    return renewed;
}

static snib_client_stats_data stats_of(const struct snib__engine *engine)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    snib__engine_stats(engine, &stats);
    return stats;
}

/* News that the clock was set overtakes, on another lane, the reply to a request for a fixed lease: the lease may have
 * begun before.  So the hold is at risk until it has been given again what is left of it. */
static void set_while_asked(void **state)
{
    (void)state;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 80000 * SNIB__MS};
    struct snib__engine *engine = begin();
    int32_t code;
    for (int before = 0; before < 2; before++) {
        struct snib__op *op = snib__engine_acquire(
            engine, gate(engine, SNIB_MUTEX, before ? "before" : "after"), &fixed, now, &code);
        if (!before) {
            connect_link(engine);
            answer_own(engine);
        }
        engine->home->clock.refused = true; /* what TIME says comes from the next line */
        engine->home->moved_at = before ? now + 1 : 0;
        now += SNIB__MS;
        answer(engine, "$-1\r\n");
        struct snib__hold *hold = acquired(engine, op);
        assert_int_equal(snib__hold_state(engine, hold, now),
                         before ? SNIB_HOLD_AT_RISK : SNIB_HOLD_VALID);
        snib__engine_tick(engine, now);
        assert_int_equal(on_the_way(engine), before);
        if (before) {
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RENEW);
            answer(engine, "*0\r\n");
        }
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    }
    snib__engine_free(engine);
}

/* The server's clock is set: that is logged and counted, and holds are at risk until they are
 * renewed. */
static void set_while_held(void **state)
{
    (void)state;
    const struct snib__acquire renewed = {.wait = SNIB__NEVER};
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 80000 * SNIB__MS};
    struct snib__engine *engine = begin();
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &renewed);
    struct snib__hold *other = granted(engine, gate(engine, SNIB_MUTEX, "f"), &fixed);
    int32_t level;
    engine->home->clock.refused = false;
    server_error_ns = 0;
    questions = 0;
    while (now < START + 40 * SECOND)
        go_on(engine);
    assert_int_equal(stats_of(engine).clock_moves, 0);
    assert_int_equal(questions, 0);
    const snib__time deadline = other->deadline;
    server_error_ns = 5 * SECOND;
    while (!engine->home->moved_at) {
        assert_true(now < START + 60 * SECOND);
        go_on(engine);
    }
    assert_int_equal(stats_of(engine).clock_moves, 1);
    const char *text = snib__engine_take_log(engine, &level);
    assert_non_null(text);
    assert_int_equal(level, SNIB_LOG_WARNING);
    assert_non_null(strstr(text, "has moved by at least +49"));
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    assert_int_equal(snib__hold_state(engine, other, now), SNIB_HOLD_AT_RISK);
    snib__time detected = now;
    while (snib__hold_state(engine, hold, now) != SNIB_HOLD_VALID)
        go_on(engine);
    assert_true(now < detected + SECOND); /* at once, not after a third of the lease */
    assert_int_equal(snib__hold_state(engine, other, now), SNIB_HOLD_VALID);
    assert_int_equal(questions, 1);
    assert_true(other->deadline == deadline); /* it is not renewed, but ends no earlier there */
    assert_in_range((uint64_t)left_ms * SNIB__MS, deadline - detected + 1,
                    deadline - detected + SECOND);
    while (now < START + 78 * SECOND)
        go_on(engine);
    assert_int_equal(stats_of(engine).clock_moves, 1);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    snib__engine_free(engine);
}

/* The next server's clock may differ: that is no step. */
static void another_server(void **state)
{
    (void)state;
    const struct snib__acquire renewed = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    granted(engine, gate(engine, SNIB_MUTEX, "m"), &renewed);
    engine->home->clock.refused = false;
    server_error_ns = 0;
    while (!engine->home->clock.known)
        go_on(engine);
    cut_link(engine);
    server_error_ns = 3600 * SECOND;
    server_id = "xyz";
    await_connect(engine);
    connect_link(engine);
    server_id = "abc";
    engine->home->clock.refused = false;
    while (now < START + 60 * SECOND)
        go_on(engine);
    assert_true(engine->home->clock.known);
    assert_int_equal(stats_of(engine).clock_moves, 0);
    snib__engine_free(engine);
}

/* The server stood still, so that the connection was given up, and its clock was set when it went on: what was known of
 * the clock of the same process still counts. */
static void set_while_cut_off(void **state)
{
    (void)state;
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 80000 * SNIB__MS};
    struct snib__engine *engine = begin();
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "f"), &fixed);
    engine->home->clock.refused = false;
    server_error_ns = 0;
    while (!engine->home->clock.known)
        go_on(engine);
    cut_link(engine);
    server_error_ns = 20 * SECOND;
    await_connect(engine);
    connect_link(engine);
    engine->home->clock.refused = false;
    while (!engine->home->moved_at) {
        assert_true(now < START + 60 * SECOND);
        go_on(engine);
    }
    assert_int_equal(stats_of(engine).clock_moves, 1);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RENEW);
    answer(engine, "*0\r\n");
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    snib__engine_free(engine);
}

/* A server, or a proxy before it, that refuses TIME is not asked again; none is asked while nothing
 * is held. */
static void not_told(void **state)
{
    (void)state;
    const struct snib__acquire renewed = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    int32_t code, level;
    snib__engine_log_level(engine, SNIB_LOG_INFO);
    granted(engine, gate(engine, SNIB_MUTEX, "m"), &renewed);
    while (snib__engine_take_log(engine, &level))
        ;
    engine->home->clock.refused = false;
    assert_true(snib__clock_deadline(engine) < now + 11 * SECOND);
    now = snib__clock_deadline(engine);
    snib__clock_tick(engine, now);
    assert_int_equal(on_the_way(engine), 1);
    answer_own(engine);
    answer(engine, "-ERR unknown command 'TIME'\r\n");
    assert_true(snib__clock_deadline(engine) == SNIB__NEVER);
    const char *text = snib__engine_take_log(engine, &level);
    assert_non_null(text);
    assert_int_equal(level, SNIB_LOG_INFO);
    assert_non_null(strstr(text, "+time"));
    snib__engine_free(engine);

    engine = begin();
    struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "m"), &renewed);
    engine->home->clock.refused = false;
    snib__engine_release(engine, hold, now, &code);
    answer_own(engine);
    answer(engine, ":1\r\n");
    assert_true(snib__clock_deadline(engine) == SNIB__NEVER);
    snib__engine_free(engine);
}

/* A reply that is not a time says nothing about the clock: it is not compared with the last one,
 * and TIME is not repeated. */
static void no_times(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "*2\r\n$11\r\n17000000000\r\n$1\r\n0\r\n",
        "*2\r\n$20\r\n99999999999999999999\r\n$1\r\n0\r\n",
        "*2\r\n$10\r\n1700000000\r\n$7\r\n1000000\r\n",
        "*2\r\n$1\r\n0\r\n$1\r\n0\r\n",
        "*2\r\n:1700000000\r\n:0\r\n",
        "*1\r\n$10\r\n1700000000\r\n",
        "$10\r\n1700000000\r\n",
        "+OK\r\n",
        "$-1\r\n",
    };
    const struct snib__acquire fixed = {.wait = SNIB__NEVER, .lease = 80000 * SNIB__MS};
    for (size_t i = 0; i < COUNT(answers); i++) {
        struct snib__engine *engine = begin();
        struct snib__hold *hold = granted(engine, gate(engine, SNIB_MUTEX, "f"), &fixed);
        engine->home->clock.refused = false;
        server_error_ns = 0;
        while (!engine->home->clock.known)
            go_on(engine);
        now = snib__clock_deadline(engine);
        snib__clock_tick(engine, now);
        answer(engine, answers[i]);
        assert_true(engine->home->clock.refused);
        assert_int_equal(stats_of(engine).clock_moves, 0);
        assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates),           cmocka_unit_test(steps),
        cmocka_unit_test(slow_answers),    cmocka_unit_test(distant_server),
        cmocka_unit_test(set_while_asked), cmocka_unit_test(set_while_held),
        cmocka_unit_test(another_server),  cmocka_unit_test(set_while_cut_off),
        cmocka_unit_test(not_told),        cmocka_unit_test(no_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
