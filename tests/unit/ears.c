/* ears.c - listening to sentinels, and discovering further ones. */
#include "sentinels.h"

/* ---- +switch-master -------------------------------------------------------------------------------- */

/* A sentinel that refuses subscriptions is reported once, and the others are listened to. */
static void refused_subscription_is_told(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    peer("s1")->no_subscribing = true;
    peer("s2")->no_luxury = true;
    struct snib__hold *hold = held(engine, "m", 0);
    const char *text;
    int32_t level;
    int told = 0, others = 0;
    pass(engine, 5 * SECOND);
    while ((text = snib__engine_take_log(engine, &level))) {
        bool refused = strstr(text, "refused the subscription") != NULL;
        told += refused && level == SNIB_LOG_WARNING && strstr(text, "s1");
        others += refused && !strstr(text, "s1");
    }
    assert_int_equal(told, 1);
    assert_int_equal(others, 0);
    assert_int_equal(peer("s0")->subscribed, 1);
    assert_int_equal(peer("s2")->subscribed, 1);
    snib__hold_drop(engine, hold, now);
    snib__engine_free(engine);
}

static void switch_is_heard(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) { /* from any of them */
        struct snib__engine *engine = world(3);
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, 100 * SNIB__MS);
        assert_int_equal(ears(engine), 3);
        const char *ear = peers[i].host;
        assert_int_equal(peer(ear)->subscribed, 1);
        /* for another service, or one with a common prefix: nothing is requested */
        pass(engine, 10 * SNIB__MS);
        int asked = peer(ear)->asked;
        say_switch(engine, ear, "other m1 6379 m2 6379");
        say_switch(engine, ear, "main2 m1 6379 m2 6379");
        say_switch(engine, ear, "main");
        say_on(engine, ear, "+promoted-slave", "slave main 10.0.0.2 6379 @ other m1 6379");
        say_on(engine, ear, "+promoted-slave", "main main 10.0.0.2 6379 @ main");
        say_on(engine, ear, "+promoted-slave", "main m1 6379 m2 6379");
        settle(engine);
        assert_int_equal(peer(ear)->asked, asked);
        /* the message alone is not believed */
        say_switch(engine, ear, "main m1 6379 m2 6379");
        settle(engine);
        assert_int_equal(peer(ear)->asked, asked + 2);
        assert_true(at(engine, "m1"));
        /* once confirmed it is, even with the same epoch: the master's address has changed */
        peer(ear)->master = "m2";
        say_switch(engine, ear, "main m1 6379 m2 6379");
        PASS_UNTIL(engine, at(engine, "m2"), 2 * SNIB__MS);
        tell_all(3, "m3", 2);
        say_switch(engine, ear, "main m2 6379 m3 6379");
        PASS_UNTIL(engine, at(engine, "m3"), 2 * SNIB__MS);
        released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* The leader of the failover reports the new address as soon as it has promoted the server; the
 * others follow later. */
static void promotion_is_heard(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 100 * SNIB__MS);
    peer("s1")->master = "m2";
    peer("s1")->epoch = 2;
    assert_true(peer("s1")->promotions);
    say_on(engine, "s1", "+promoted-slave", "slave m2:6379 m2 6379 @ main m1 6379");
    PASS_UNTIL(engine, at(engine, "m2"), 2 * SNIB__MS);
    pass(engine, 5 * SECOND); /* the others, which report the old epoch, are not believed */
    assert_true(at(engine, "m2"));
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* Lost sentinels are retried with growing pauses; one that returns is soon listened to. */
static void sentinels_are_listened_to_again(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 100 * SNIB__MS);
    for (int i = 0; i < 3; i++) {
        crash(engine, peers[i].host);
        pass(engine, SECOND);
        assert_int_equal(ears(engine), 2 - i);
    }
    pass(engine, 5 * SECOND);
    int connects = 0;
    for (int i = 0; i < 3; i++)
        connects += peers[i].connects;
    assert_true(connects < 80);
    peer("s1")->state = UP;
    PASS_UNTIL(engine, ear_at(engine, "s1") != NULL, 17 * SECOND);
    assert_int_equal(ears(engine), 1);
    assert_true(at(engine, "m1")); /* all the time */
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* Of many sentinels five are listened to, and another one replaces one that is lost. */
static void not_more_than_five_are_listened_to(void **state)
{
    (void)state;
    struct snib__engine *engine = world(1);
    peer("s0")->others = "s1s2s3s4s5s6s7";
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 5 * SECOND);
    assert_int_equal(ears(engine), 5);
    static const char *const first[] = {"s0", "s1", "s2"};
    for (int i = 0; i < 3; i++) {
        crash(engine, first[i]);
        PASS_UNTIL(engine, ears(engine) == 5, SECOND);
    }
    crash(engine, "s3");
    pass(engine, 2 * SECOND);
    assert_int_equal(ears(engine), 4);
    released(engine, hold, SNIB_OK);
    pass(engine, 5 * SECOND); /* an idle client keeps them, and sends nothing */
    assert_int_equal(ears(engine), 4);
    snib__engine_free(engine);
}

/* Sentinels that refuse subscriptions are not among the five, however many there are. */
static void deaf_sentinels_leave_room(void **state)
{
    (void)state;
    struct snib__engine *engine = world(1);
    peer("s0")->others = "s1s2s3s4s5s6s7";
    for (int i = 0; i < 6; i++)
        peer((char[3]){'s', (char)('0' + i), 0})->no_subscribing = true;
    struct snib__hold *hold = held(engine, "m", 0);
    PASS_UNTIL(engine, peer("s6")->subscribed == 1 && peer("s7")->subscribed == 1, 5 * SECOND);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* Some sentinels refuse subscriptions, then all do: the others are used, then polling alone. */
static void refused_subscription(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    for (int i = 0; i < 2; i++)
        peers[i].no_subscribing = true;
    struct snib__hold *hold = held(engine, "m", 0);
    PASS_UNTIL(engine, peer("s2")->subscribed == 1, SECOND);
    assert_int_equal(engine->stats.polling, 0);
    peer("s2")->no_subscribing = true;
    crash(engine, "s2");
    peer("s2")->state = UP;
    pass(engine, 10 * SECOND);
    tell_all(3, "m2", 2);
    PASS_UNTIL(engine, at(engine, "m2"), 1200 * SNIB__MS);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* Sentinels that end each connection when they have answered, of one kind or of both, are asked and subscribed to with
 * pauses; the master is known all the same, and a failover is found. */
static void sentinels_that_hang_up(void **state)
{
    (void)state;
    for (int kinds = 1; kinds < 4; kinds++) {
        struct snib__engine *engine = world(3);
        for (int i = 0; i < 3; i++)
            peers[i].ends = kinds;
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, 10 * SECOND);
        for (int i = 0; i < 3; i++)
            assert_in_range(peers[i].connects, 5, 40);
        tell_all(3, "m2", 2);
        PASS_UNTIL(engine, at(engine, "m2"), 1500 * SNIB__MS);
        released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* ---- Sentinels that others report ------------------------------------------------------------------ */

static void others_are_learnt(void **state)
{
    (void)state;
    struct snib__engine *engine = world(1);
    for (int i = 3; i < 6; i++)
        peer((char[3]){'s', (char)('0' + i), 0});
    peer("s0")->others = "s3s4s5s0";
    peer("s3")->others = "s4s5";
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, SECOND);
    for (int i = 3; i < 6; i++)
        assert_true(peer((char[3]){'s', (char)('0' + i), 0})->asked >= 3);
    crash(engine, "s0");
    crash(engine, "m1");
    for (int i = 3; i < 6; i++) {
        peer((char[3]){'s', (char)('0' + i), 0})->master = "m2";
        peer((char[3]){'s', (char)('0' + i), 0})->epoch = 2;
    }
    PASS_UNTIL(engine, at(engine, "m2"), SECOND);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);

    engine = world(1); /* but not without limit */
    peer("s0")->others = "sasbscsdsesfsgshsisjskslsmsnsospsqsrssstsusvswsxsysz";
    hold = held(engine, "m", 0);
    pass(engine, 20 * SECOND);
    int nodes = 0;
    for (const struct snib__node *node = engine->nodes; node; node = node->next)
        nodes += node->kind == SNIB__A_SENTINEL;
    assert_int_equal(nodes, 16);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* Where each start gives a sentinel another address, the list of those learnt is full some day: the new ones are learnt in
 * the place of those that have long been gone. */
static void sentinels_that_move_are_learnt(void **state)
{
    (void)state;
    static const char *const generations[] = {"sasbscsdsesfsg", "shsisjskslsmsn", "sosps1s2s3s4s5"};
    struct snib__engine *engine = world(1);
    struct snib__hold *hold = held(engine, "m", 0);
    for (size_t i = 0; i < COUNT(generations); i++) {
        for (int j = 0; i > 0 && generations[i - 1][j]; j += 2)
            crash(engine, (char[3]){'s', generations[i - 1][j + 1], 0});
        crash(engine, "s0"); /* it is asked for the others on each connection */
        pass(engine, 120 * SECOND);
        peer("s0")->state = UP;
        peer("s0")->others = generations[i];
        pass(engine, 120 * SECOND);
        for (int j = 0; generations[i][j]; j += 2)
            assert_true(peer((char[3]){'s', generations[i][j + 1], 0})->asked > 0);
    }
    assert_int_equal(ears(engine), 5);
    crash(engine, "s0");
    crash(engine, "m1");
    for (int j = 1; j < 6; j++) {
        peer((char[3]){'s', (char)('0' + j), 0})->master = "m2";
        peer((char[3]){'s', (char)('0' + j), 0})->epoch = 2;
    }
    PASS_UNTIL(engine, at(engine, "m2"), 5 * SECOND);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* A reply that a sentinel owed before it announced the switch may still name the old master: it is
 * asked once more.  Also where it does not tell its epoch, the announcement is about what it is asked then. */
static void question_that_was_under_way_is_asked_again(void **state)
{
    (void)state;
    for (int epochs = 0; epochs < 2; epochs++) {
        struct snib__engine *engine = world(1);
        peer("s0")->odd = epochs ? NULL : "MASTER";
        peer("s0")->odd_says = "-NOPERM no permissions\r\n";
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, 100 * SNIB__MS);
        struct snib__link *link = NULL;
        for (struct snib__link *one = engine->links; one; one = one->next)
            if (peer_of(one) == peer("s0") && one->kind == SNIB__COMMAND)
                link = one;
        assert_non_null(link);
        peer("s0")->state = SILENT;
        PASS_UNTIL(engine, link->conn.ring_count == 2, 1200 * SNIB__MS);
        say_switch(engine, "s0", "main m1 6379 m2 6379");
        peer("s0")->state = UP;
        assert_true(serve(engine, link) && serve(engine, link));
        assert_string_equal(engine->home->address.host, "m1");
        tell_all(1, "m2", 2);
        PASS_UNTIL(engine, at(engine, "m2"), 2 * SNIB__MS);
        released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* On each new connection a sentinel is asked for the others. */
static void others_are_asked_for_on_each_connection(void **state)
{
    (void)state;
    struct snib__engine *engine = world(1);
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 2 * SECOND);
    crash(engine, "s0");
    peer("s0")->others = "s7";
    peer("s0")->state = UP;
    pass(engine, 5 * SECOND);
    assert_true(peer("s7")->asked > 0);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_subscription_is_told),
        cmocka_unit_test(switch_is_heard),
        cmocka_unit_test(promotion_is_heard),
        cmocka_unit_test(sentinels_are_listened_to_again),
        cmocka_unit_test(not_more_than_five_are_listened_to),
        cmocka_unit_test(deaf_sentinels_leave_room),
        cmocka_unit_test(refused_subscription),
        cmocka_unit_test(sentinels_that_hang_up),
        cmocka_unit_test(others_are_learnt),
        cmocka_unit_test(sentinels_that_move_are_learnt),
        cmocka_unit_test(question_that_was_under_way_is_asked_again),
        cmocka_unit_test(others_are_asked_for_on_each_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
