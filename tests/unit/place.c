/* place.c - how a waiter in a fair queue treats grants that come as messages. */
#include "fed.h"

#include <stdlib.h>

static struct snib__engine *engine;
static struct snib__gate *fair;
static struct snib__op *op;

/* A waiter with a place, seen by the server at its 1,000th ms, and subscribed; foreign: behind a
 * client of Redisson. */
static void placed(bool foreign)
{
    const char *reply =
        foreign ? "*3\r\n:20000\r\n:1\r\n:1000\r\n" : "*3\r\n:20000\r\n:0\r\n:1000\r\n";
    engine = begin();
    fair = gate(engine, SNIB_FAIR, "f");
    op = acquire(engine, fair, 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, reply);
    connect_pubsub(engine);
    say_on_channel(engine, fair, NULL);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_FAIR_ACQUIRE);
    answer(engine, reply);
    assert_int_equal(on_the_way(engine), 0);
    assert_int_equal(op->hold->phase, SNIB__PLACED);
}

/* A release has granted the lock with a first lease of 4 s, at that ms of the server's clock. */
static void promise_for(int first_ms, int server_ms)
{
    char text[80];
    snprintf(text, sizeof text, "%llu:0:%d:%d", (unsigned long long)op->hold->number, first_ms,
             server_ms);
    say_on_channel(engine, fair, text);
}

static void promise(int server_ms)
{
    promise_for(4000, server_ms);
}

/* Advance until the waiter asks again. */
static void await_beat(void)
{
    while (on_the_way(engine) == 0) {
        now = snib__engine_deadline(engine);
        snib__engine_tick(engine, now);
    }
    assert_int_equal(op->hold->phase, SNIB__TRYING);
}

static void granted_by_message(void **state)
{
    (void)state;
    placed(false);
    const snib__time asked = now;
    now += SECOND / 2;
    promise(1400);
    assert_true(op->done && op->code == SNIB_OK);
    assert_true(op->hold->deadline <= asked + 4 * SECOND); /* it cannot have begun earlier */
    snib__engine_free(engine);
}

/* Whoever may publish on the channel could promise more than any granter does: it is not believed for long. */
static void no_long_promise(void **state)
{
    (void)state;
    placed(false);
    const snib__time asked = now;
    now += SECOND / 2;
    promise_for(30000, 1400);
    assert_true(op->done && op->code == SNIB_OK);
    assert_true(op->hold->deadline <= asked + 4 * SECOND);
    snib__engine_free(engine);
}

/* A grant that comes while a request is in flight counts if the server handled the request before
 * it made the grant. */
static void granted_meanwhile(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        placed(false);
        await_beat();
        promise(2500);
        assert_false(op->done);
        answer(engine, late ? "*3\r\n:4000\r\n:0\r\n:2600\r\n" : "*3\r\n:4000\r\n:0\r\n:2400\r\n");
        assert_int_equal(op->done, !late);
        snib__engine_free(engine);
    }
}

/* The first lease cannot have begun before the server last saw the waiter: that was when it asked,
 * not when the reply came. */
static void safe_since_asking(void **state)
{
    (void)state;
    for (int meanwhile = 0; meanwhile < 2; meanwhile++) {
        placed(false);
        await_beat();
        const snib__time asked = now;
        now += SECOND / 2;
        if (meanwhile)
            promise(2500);
        now += SECOND / 2;
        answer(engine, "*3\r\n:4000\r\n:0\r\n:2400\r\n");
        if (!meanwhile)
            promise(2500);
        assert_true(op->done && op->code == SNIB_OK);
        assert_true(op->hold->deadline <= asked + 4 * SECOND);
        assert_true(op->hold->deadline > asked + 3 * SECOND);
        snib__engine_free(engine);
    }
}

/* A release by this client grants the lock to another waiter of it: the lease began after the
 * release was sent, however old the place. */
static void granted_by_reply(void **state)
{
    (void)state;
    char reply[100];
    int32_t code;
    placed(false);
    struct snib__op *other = acquire(engine, fair, 0);
    answer(engine, "*3\r\n:20000\r\n:0\r\n:1000\r\n");
    await_beat();
    answer(engine, "$1\r\n0\r\n");
    struct snib__hold *hold = acquired(engine, op);
    now += 8 * SECOND;
    const snib__time sent = now;
    snib__engine_release(engine, hold, now, &code);
    now += SNIB__MS;
    snprintf(reply, sizeof reply, "*5\r\n:1\r\n:%llu\r\n:4000\r\n$1\r\n0\r\n:10000\r\n",
             (unsigned long long)other->hold->number);
    while (oldest_script(engine) != SNIB__SCRIPT_FAIR_RELEASE)
        answer(engine, "*0\r\n");
    answer(engine, reply);
    assert_true(other->done && other->code == SNIB_OK);
    assert_true(other->hold->deadline <= sent + 4 * SECOND);
    assert_true(other->hold->deadline > sent + 3 * SECOND);
    snib__engine_free(engine);
}

/* A grant that was announced before a request is sent again, on the next connection, does not answer it: the server may be
 * another, or its clock may have been set back. */
static void promise_of_another_connection(void **state)
{
    (void)state;
    for (int meanwhile = 0; meanwhile < 2; meanwhile++) {
        placed(false);
        await_beat();
        if (!meanwhile)
            promise(2500);
        cut_link(engine);
        if (meanwhile)
            promise(2500);
        await_connect(engine);
        connect_link(engine);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_FAIR_ACQUIRE);
        answer(engine, "*3\r\n:4000\r\n:0\r\n:2400\r\n");
        assert_false(op->done);
        snib__engine_free(engine);
    }
}

/* A grant made before the server last saw the waiter is an old one: the server is asked. */
static void old_grant(void **state)
{
    (void)state;
    placed(false);
    promise(900);
    assert_false(op->done);
    assert_int_equal(on_the_way(engine), 1);
    snib__engine_free(engine);
}

/* Little is left of the first lease: it is confirmed before the hold is handed out. */
static void late_grant(void **state)
{
    (void)state;
    placed(false);
    now += 2500 * SNIB__MS;
    promise(1100);
    assert_false(op->done);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "$1\r\n0\r\n");
    assert_true(op->done && op->code == SNIB_OK);
    assert_true(op->hold->deadline > now + 20 * SECOND);
    snib__engine_free(engine);
}

/* How often the waiter's own channel was mentioned with this verb on the pub/sub link, since it was
 * connected. */
static int said(const char *verb)
{
    const struct snib__buf *out = &engine->home->links[SNIB__PUBSUB].conn.out;
    char text[4096], channel[64];
    int times = 0;
    assert_true(snib__buf_size(out) < sizeof text);
    memcpy(text, out->data + out->head, snib__buf_size(out));
    text[snib__buf_size(out)] = 0;
    snprintf(channel, sizeof channel, "%s:%llu\r\n", engine->config.uuid,
             (unsigned long long)op->hold->number);
    for (const char *at = text; (at = strstr(at, channel)); at++) {
        const char *command = at;
        while (*command != '*')
            command--;
        times += strncmp(strchr(command, '$') + 4, verb, strlen(verb)) == 0 ||
                 strncmp(strchr(command, '$') + 5, verb, strlen(verb)) == 0;
    }
    return times;
}

/* Behind a client of Redisson the waiter subscribes to its own channel: again on a new link, and no
 * longer once it has the lock. */
static void listens_to_redisson(void **state)
{
    (void)state;
    placed(true);
    assert_int_equal(said("SUBSCRIBE"), 1);
    snib__engine_link_down(engine, snib__engine_link(engine, SNIB__PUBSUB), SNIB_EUNREACHABLE, 0,
                           now);
    for (int step = 0; !engine->home->links[SNIB__PUBSUB].connect; step++) {
        assert_true(step < 1000);
        now = snib__engine_deadline(engine);
        snib__engine_tick(engine, now);
        while (on_the_way(engine))
            answer(engine, "*3\r\n:20000\r\n:1\r\n:3000\r\n");
    }
    connect_pubsub(engine);
    assert_int_equal(said("SUBSCRIBE"), 1);
    say_on_channel(engine, fair, NULL);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_FAIR_ACQUIRE);
    answer(engine, "$1\r\n0\r\n");
    assert_true(op->done);
    assert_int_equal(said("UNSUBSCRIBE"), 1);
    snib__engine_free(engine);
}

/* A request that was sent before the present subscription may have missed a grant: it is repeated
 * when its refusal comes, also if there was another subscription when it was sent. */
static void subscribed_again_meanwhile(void **state)
{
    (void)state;
    placed(false);
    await_beat();
    snib__engine_link_down(engine, snib__engine_link(engine, SNIB__PUBSUB), SNIB_EUNREACHABLE, 0,
                           now);
    while (!engine->home->links[SNIB__PUBSUB].connect) {
        now = snib__engine_deadline(engine);
        snib__engine_tick(engine, now);
    }
    connect_pubsub(engine);
    say_on_channel(engine, fair, NULL);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "*3\r\n:4000\r\n:0\r\n:2400\r\n");
    assert_int_equal(on_the_way(engine), 1);
    snib__engine_free(engine);
}

/* The last argument of the last request. */
static uint64_t last_argument(void)
{
    const struct snib__buf *out = &conn_of(engine)->out;
    const char *at = out->data + out->len - 2;
    while (at[-1] != '\n')
        at--;
    return strtoull(at, NULL, 10);
}

/* The first waiter states its number when it asks again, and no other does: this client's places
 * with lower numbers have no waiters. */
static void first_waiter_says_so(void **state)
{
    (void)state;
    placed(false);
    assert_int_equal(last_argument(), op->hold->number);
    struct snib__op *other = acquire(engine, fair, 0);
    assert_int_equal(last_argument(), 0);
    answer(engine, "*3\r\n:20000\r\n:0\r\n:1000\r\n");
    await_beat();
    assert_int_equal(last_argument(), op->hold->number);
    snib__place_own_channel(engine, fair, other->hold->number, "message", now);
    assert_int_equal(on_the_way(engine), 2);
    assert_int_equal(last_argument(), 0);
    answer(engine, "$1\r\n0\r\n");
    answer(engine, "*3\r\n:20000\r\n:0\r\n:2000\r\n");
    assert_true(op->done);
    snib__place_own_channel(engine, fair, other->hold->number, "message", now);
    assert_int_equal(last_argument(), other->hold->number);
    snib__engine_free(engine);
}

/* A waiter that leaves gives its place back, once. */
static void leaving(void **state)
{
    (void)state;
    placed(false);
    snib__engine_cancel(engine, op, now);
    assert_int_equal(on_the_way(engine), 1);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_FAIR_RELEASE);
    answer(engine, "*5\r\n:1\r\n:0\r\n:0\r\n:0\r\n:1200\r\n");
    assert_int_equal(on_the_way(engine), 0);
    snib__engine_free(engine);
}

/* A hold that was ended by force may have a place again, from an earlier request for it. */
static void place_is_no_hold(void **state)
{
    (void)state;
    for (int has = 0; has <= 2; has++) {
        char reply[80];
        int32_t code;
        placed(false);
        promise(1400);
        struct snib__hold *hold = acquired(engine, op);
        while (on_the_way(engine) > 0)
            answer(engine, "*0\r\n");
        struct snib__op *release = snib__engine_release(engine, hold, now, &code);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_FAIR_RELEASE);
        snprintf(reply, sizeof reply, "*5\r\n:%d\r\n:0\r\n:0\r\n:0\r\n:1500\r\n", has);
        answer(engine, reply);
        assert_true(release->done);
        assert_int_equal(release->code, has == 1 ? SNIB_OK : SNIB_LOST);
        snib__engine_free(engine);
    }
}

/* A place may be granted the lock at any time: that its connection is down when patience ends does not say that nothing
 * was applied.  Without a place it does. */
static void out_of_reach(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        if (asked) {
            placed(false);
            cut_link(engine);
        } else {
            engine = begin();
            fair = gate(engine, SNIB_FAIR, "f");
            op = acquire(engine, fair, 0);
        }
        while (!op->done) {
            now += SECOND;
            snib__engine_link_down(engine, snib__engine_link(engine, SNIB__COMMAND),
                                   SNIB_EUNREACHABLE, 0, now);
            snib__engine_tick(engine, now);
        }
        assert_int_equal(op->code, asked ? SNIB_EUNREACHABLE : SNIB_ECONNECT);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(granted_by_message),
        cmocka_unit_test(no_long_promise),
        cmocka_unit_test(granted_meanwhile),
        cmocka_unit_test(safe_since_asking),
        cmocka_unit_test(granted_by_reply),
        cmocka_unit_test(promise_of_another_connection),
        cmocka_unit_test(old_grant),
        cmocka_unit_test(late_grant),
        cmocka_unit_test(listens_to_redisson),
        cmocka_unit_test(subscribed_again_meanwhile),
        cmocka_unit_test(leaving),
        cmocka_unit_test(place_is_no_hold),
        cmocka_unit_test(first_waiter_says_so),
        cmocka_unit_test(out_of_reach),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
