/* listening.c - the pub/sub link: what is owed on it, when it is asked, and when it is made anew. */
#include "listening.h"
#include "fed.h"

static const char subscribed[] =
    "*3\r\n$9\r\nsubscribe\r\n$26\r\nredisson_lock__channel:{m}\r\n:1\r\n";

/* A subscribed waiter asks on its own only in case a message was lost: every 3 s, or up to a
 * quarter earlier. */
static void listener_asks_seldom(void **state)
{
    (void)state;
    struct snib__engine *engine = with_waiter();
    say_on_pubsub(engine, subscribed);
    answer(engine, ":86400000\r\n"); /* asked once more after subscribing */
    int asked = 0;
    for (const snib__time until = now + 60 * SECOND; now < until;) {
        pass(engine, now + 10 * SNIB__MS);
        answer_own(engine);
        for (; on_the_way(engine); asked++)
            answer(engine, ":86400000\r\n");
        if (engine->home->links[SNIB__PUBSUB].owed)
            say_on_pubsub(engine, "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    }
    assert_in_range(asked, 19, 28);
    snib__engine_free(engine);
}

static void subscription_is_owed_an_answer(void **state)
{
    (void)state;
    struct snib__engine *engine = with_waiter();
    pass_waiting(engine, now + 3 * SECOND - 50 * SNIB__MS);
    assert_int_equal(engine->home->links[SNIB__PUBSUB].conn.state, SNIB__CONN_READY);
    pass_waiting(engine, now + 100 * SNIB__MS);
    assert_int_equal(engine->home->links[SNIB__PUBSUB].conn.state, SNIB__CONN_DOWN);
    assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__PUBSUB)),
                     SNIB__WISH_CLOSE);
    snib__engine_free(engine);
}

/* A confirmed subscription falls silent: it is pinged, and without a reply the link is closed; else
 * it stays. */
static void idle_subscription_is_pinged(void **state)
{
    (void)state;
    static const char *const pongs[] = {"*2\r\n$4\r\npong\r\n$0\r\n\r\n",
                                        "-NOPERM no ping for you\r\n", NULL};
    for (size_t i = 0; i < sizeof pongs / sizeof *pongs; i++) {
        struct snib__engine *engine = with_waiter();
        const struct snib__link *link = &engine->home->links[SNIB__PUBSUB];
        say_on_pubsub(engine, subscribed);
        assert_int_equal(link->owed, 0);
        pass_waiting(engine, now + 3 * SECOND + 50 * SNIB__MS);
        assert_int_equal(link->owed, 1);
        if (pongs[i])
            say_on_pubsub(engine, pongs[i]);
        pass_waiting(engine, now + 3 * SECOND - 100 * SNIB__MS);
        assert_int_equal(link->conn.state, SNIB__CONN_READY);
        pass_waiting(engine, now + 150 * SNIB__MS);
        assert_int_equal(link->conn.state, pongs[i] ? SNIB__CONN_READY : SNIB__CONN_DOWN);
        assert_int_equal(engine->stats.polling,
                         0); /* a refused ping is not a refused subscription */
        snib__engine_free(engine);
    }
}

/* A refusal belongs to the oldest request: a ping, not a subscription requested after it; then to
 * that. */
static void refused_ping_and_subscription(void **state)
{
    (void)state;
    struct snib__engine *engine = with_waiter();
    const struct snib__link *link = &engine->home->links[SNIB__PUBSUB];
    say_on_pubsub(engine, subscribed);
    pass_waiting(engine, now + 3 * SECOND + 50 * SNIB__MS);
    assert_int_equal(link->owed, 1);
    acquire(engine, gate(engine, SNIB_MUTEX, "n"), 0);
    answer_own(engine);
    answer(engine, ":86400000\r\n");
    assert_int_equal(link->owed, 2);
    say_on_pubsub(engine, "-NOPERM no ping for you\r\n");
    assert_int_equal(engine->stats.polling, 0);
    say_on_pubsub(engine, "-NOPERM no channel for you\r\n");
    assert_int_equal(engine->stats.polling, 1);
    snib__engine_free(engine);
}

/* A server that does not know the link any more, or answers nothing for now, has denied no
 * right. */
static void disowned_subscription_is_renewed(void **state)
{
    (void)state;
    for (size_t i = 2; i < sizeof disowned / sizeof *disowned; i++) {
        struct snib__engine *engine = with_waiter();
        say_on_pubsub(engine, disowned[i]);
        assert_int_equal(engine->stats.polling, 0);
        assert_int_equal(engine->home->links[SNIB__PUBSUB].conn.state, SNIB__CONN_DOWN);
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__PUBSUB)),
                         SNIB__WISH_CLOSE);
        pass_waiting(engine, now + SECOND);
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__PUBSUB)),
                         SNIB__WISH_CONNECT);
        snib__engine_free(engine);
    }
}

/* A reply that answers nothing would be counted as the one to a subscription, or to its end. */
static void stray_reply_ends_the_link(void **state)
{
    (void)state;
    static const char *const stray[] = {"+OK\r\n", ":1\r\n", "$2\r\nOK\r\n"};
    for (size_t i = 0; i < sizeof stray / sizeof *stray; i++) {
        struct snib__engine *engine = with_waiter();
        say_on_pubsub(engine, subscribed);
        answer(engine, ":86400000\r\n"); /* asked once more after subscribing */
        pass_waiting(engine, now + 10 * SNIB__MS);
        assert_int_equal(engine->home->links[SNIB__PUBSUB].conn.state, SNIB__CONN_READY);
        say_on_pubsub(engine, stray[i]);
        pass_waiting(engine, now + 10 * SNIB__MS);
        assert_int_equal(engine->home->links[SNIB__PUBSUB].conn.state, SNIB__CONN_DOWN);
        assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__PUBSUB)),
                         SNIB__WISH_CLOSE);
        snib__engine_free(engine);
    }
}

/* Two locks share one channel: when it is subscribed, both may have missed a release. */
static void confirmation_wakes_each_lock(void **state)
{
    (void)state;
    static const int32_t kinds[] = {SNIB_MUTEX, SNIB_FENCED};
    struct snib__engine *engine = begin();
    for (int i = 0; i < 2; i++) {
        acquire(engine, gate(engine, kinds[i], "m"), 0);
        if (i == 0)
            connect_link(engine);
        answer_own(engine);
        answer(engine, ":86400000\r\n");
    }
    connect_pubsub(engine);
    assert_int_equal(on_the_way(engine), 0);
    say_on_pubsub(engine, subscribed);
    answer_own(engine);
    assert_int_equal(on_the_way(engine), 2);
    snib__engine_free(engine);
}

/* Without waiters nothing is sent, however long that lasts. */
static void forgotten_link_is_left_alone(void **state)
{
    (void)state;
    struct snib__engine *engine = with_waiter();
    const struct snib__link *link = &engine->home->links[SNIB__PUBSUB];
    say_on_pubsub(engine, subscribed);
    snib__engine_cancel(engine, snib__engine_live(engine), now);
    pass_waiting(engine, now + SECOND);
    say_on_pubsub(engine,
                  "*3\r\n$11\r\nunsubscribe\r\n$26\r\nredisson_lock__channel:{m}\r\n:0\r\n");
    size_t size = snib__buf_size(&link->conn.out);
    pass_waiting(engine, now + 60 * SECOND);
    assert_int_equal(snib__buf_size(&link->conn.out), size);
    assert_int_equal(link->conn.state, SNIB__CONN_READY);
    snib__engine_free(engine);
}

/* Many names in turn on a link that does not answer: the number of subscription requests is
 * bounded. */
static void subscriptions_are_bounded(void **state)
{
    (void)state;
    struct snib__engine *engine = with_waiter();
    const struct snib__link *link = &engine->home->links[SNIB__PUBSUB];
    for (int i = 0; i < 20000; i++) {
        char name[32];
        snprintf(name, sizeof name, "name %d", i);
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
        answer_own(engine);
        answer(engine, ":86400000\r\n");
        snib__engine_cancel(engine, op, now);
    }
    assert_true(link->owed <= 16384);
    uint64_t memory = engine->memory;
    pass_waiting(engine, now + 3 * SECOND + 100 * SNIB__MS); /* the useless link is closed */
    assert_true(link->conn.state != SNIB__CONN_READY);
    assert_true(engine->chans_n <= 1 && engine->memory < memory);
    snib__engine_free(engine);
}

/* The command link has reached another server: subscriptions may have stayed at the old one, which
 * sends nothing. */
static void pubsub_follows_to_another_server(void **state)
{
    /* Replaced: the same process was another one's replica meanwhile. */
    enum { SAME, OTHER, REPLACED, CASES };
    (void)state;
    for (int what = SAME; what < CASES; what++) {
        server_says = "master_replid:1a";
        struct snib__engine *engine = with_waiter();
        say_on_channel(engine, gate(engine, SNIB_MUTEX, "m"), NULL);
        struct snib__link *ear = &engine->home->links[SNIB__PUBSUB];
        assert_true(ear->wanted);
        assert_int_equal(ear->conn.state, SNIB__CONN_READY);
        cut_link(engine);
        server_id = what == OTHER ? "xyz" : "abc";
        server_says = what == REPLACED ? "master_replid:2b" : "master_replid:1a";
        await_connect(engine);
        connect_link(engine);
        server_id = "abc";
        server_says = "";
        assert_int_equal(ear->conn.state, what == SAME ? SNIB__CONN_READY : SNIB__CONN_DOWN);
        assert_int_equal(snib__engine_take_wish(engine, ear),
                         what == SAME ? SNIB__WISH_NOTHING : SNIB__WISH_CLOSE);
        answer_own(engine);
        answer(engine, ":86400000\r\n"); /* the waiter has asked again, and sleeps */
        assert_true(ear->wanted);
        snib__engine_free(engine);
    }
}

/* A server is back after a while: as soon as its command link is, the waiters listen again, whether the pub/sub link could
 * not be made meanwhile, or was, and is closed because it may be connected to the old server. */
static void pubsub_is_back_with_the_server(void **state)
{
    (void)state;
    for (int made = 0; made < 2; made++) {
        struct snib__engine *engine = with_waiter();
        struct snib__link *ear = &engine->home->links[SNIB__PUBSUB];
        cut_link(engine);
        snib__engine_link_down(engine, ear, SNIB_EUNREACHABLE, 111, now);
        for (int tries = 0; tries < 8;) { /* less than the patience of the waiter */
            pass(engine, now + 10 * SNIB__MS);
            assert_true(ear->wanted);
            if (snib__engine_take_wish(engine, ear) == SNIB__WISH_CONNECT) {
                snib__engine_link_down(engine, ear, SNIB_EUNREACHABLE, 111, now);
                tries++;
            }
        }
        while (made && !ear->connect)
            pass(engine, now + 10 * SNIB__MS);
        if (made)
            connect_pubsub(engine);
        server_id = made ? "xyz" : "abc";
        await_connect(engine);
        connect_link(engine);
        server_id = "abc";
        assert_int_equal(ear->conn.state, SNIB__CONN_DOWN);
        assert_int_equal(snib__engine_take_wish(engine, ear),
                         made ? SNIB__WISH_CLOSE : SNIB__WISH_NOTHING);
        const snib__time since = now;
        while (snib__engine_take_wish(engine, ear) != SNIB__WISH_CONNECT)
            pass_waiting(engine, now + SNIB__MS);
        assert_true(now <= since + 2 * SNIB__MS);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listener_asks_seldom),
        cmocka_unit_test(subscription_is_owed_an_answer),
        cmocka_unit_test(idle_subscription_is_pinged),
        cmocka_unit_test(refused_ping_and_subscription),
        cmocka_unit_test(disowned_subscription_is_renewed),
        cmocka_unit_test(stray_reply_ends_the_link),
        cmocka_unit_test(confirmation_wakes_each_lock),
        cmocka_unit_test(forgotten_link_is_left_alone),
        cmocka_unit_test(subscriptions_are_bounded),
        cmocka_unit_test(pubsub_follows_to_another_server),
        cmocka_unit_test(pubsub_is_back_with_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
