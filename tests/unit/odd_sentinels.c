/* odd_sentinels.c - replies and messages of sentinels in forms that no sentinel uses, and sentinels of another deployment:
 * nothing in them is believed. */
#include "sentinels.h"

/* Two sentinels, of which the first answers one question oddly. */
static struct snib__engine *odd_world(const char *question, const char *reply)
{
    struct snib__engine *engine = world(2);
    peer("s0")->odd = question;
    peer("s0")->odd_says = reply;
    return engine;
}

static void end(struct snib__engine *engine, struct snib__hold *hold)
{
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* Without an epoch a sentinel does not take the client away from a master that another one has named. */
static void no_epoch_in_it(void **state)
{
    (void)state;
    static const char *const replies[] = {
        ":9\r\n",
        "+OK\r\n",
        "$-1\r\n",
        "*0\r\n",
        "*1\r\n$12\r\nconfig-epoch\r\n",
        "*2\r\n:9\r\n$1\r\n9\r\n",
        "*2\r\n$12\r\nconfig-epoch\r\n:9\r\n",
        "*4\r\n$4\r\nname\r\n:1\r\n$12\r\nconfig-epoch\r\n$1\r\n9\r\n",
        "*4\r\n:1\r\n$4\r\nmain\r\n$12\r\nconfig-epoch\r\n$1\r\n9\r\n",
        "*3\r\n$4\r\nname\r\n$4\r\nmain\r\n$12\r\nconfig-epoch\r\n",
        "*2\r\n$12\r\nconfig-epoch\r\n$2\r\n-1\r\n",
        "*2\r\n$12\r\nconfig-epoch\r\n$20\r\n99999999999999999999\r\n",
        "*2\r\n$12\r\nconfig-epoch\r\n$2\r\n 9\r\n",
        "*2\r\n$12\r\nconfig-epoch\r\n$0\r\n\r\n",
    };
    for (size_t i = 0; i < COUNT(replies); i++) {
        struct snib__engine *engine = odd_world("MASTER", replies[i]);
        peer("s1")->master = "m2";
        peer("s1")->epoch = 5;
        struct snib__hold *hold = held(engine, "m", 0);
        PASS_UNTIL(engine, at(engine, "m2"), 10 * SECOND);
        int asked = peer("s0")->asked;
        pass(engine, 30 * SECOND);
        assert_true(peer("s0")->asked > asked);
        assert_true(at(engine, "m2"));
        end(engine, hold);
    }
    /* the same reply in the right form is believed */
    struct snib__engine *engine = odd_world("MASTER", "*2\r\n$12\r\nconfig-epoch\r\n$1\r\n9\r\n");
    peer("s1")->master = "m2";
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 30 * SECOND);
    assert_true(at(engine, "m1"));
    end(engine, hold);
}

static void no_address_in_it(void **state)
{
    (void)state;
    static const char *const replies[] = {
        ":1\r\n",
        "+OK\r\n",
        "*0\r\n",
        "*1\r\n$2\r\nm9\r\n",
        "*2\r\n:9\r\n$4\r\n6379\r\n",
        "*2\r\n$2\r\nm9\r\n:6379\r\n",
        "*2\r\n$2\r\nm9\r\n$1\r\n0\r\n",
        "*2\r\n$0\r\n\r\n$4\r\n6379\r\n",
        "*3\r\n$2\r\nm9\r\n$4\r\n6379\r\n:1\r\n",
    };
    for (size_t i = 0; i < COUNT(replies); i++) {
        struct snib__engine *engine = odd_world("GET-MASTER-ADDR-BY-NAME", replies[i]);
        struct snib__hold *hold = held(engine, "m", 0);
        assert_true(at(engine, "m1"));
        pass(engine, 30 * SECOND);
        assert_true(at(engine, "m1"));
        assert_int_equal(peer("m9")->connects, 0);
        end(engine, hold);
        /* the only sentinel: the caller is told */
        engine = world(1);
        peer("s0")->odd = "GET-MASTER-ADDR-BY-NAME";
        peer("s0")->odd_says = replies[i];
        ends_with(engine, SNIB_ETOPOLOGY, 10 * SECOND,
                  "s0:26379 names a master at an address that cannot be used", NULL);
        snib__engine_free(engine);
    }
}

/* An error that a sentinel may not say again, as one of a proxy before it, is waited out; and no request was sent. */
static void an_error_instead_of_it(void **state)
{
    (void)state;
    struct snib__engine *engine = world(1);
    peer("s0")->odd = "GET-MASTER-ADDR-BY-NAME";
    peer("s0")->odd_says = "-ERR upstream failure\r\n";
    ends_with(engine, SNIB_ECONNECT, 10 * SECOND, "ERR upstream failure", "sentinel s0:26379");
    snib__engine_free(engine);
    engine = world(1);
    peer("s0")->odd = "GET-MASTER-ADDR-BY-NAME";
    peer("s0")->odd_says = "-ERR upstream failure\r\n";
    int32_t code;
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "m"),
                             &(struct snib__acquire){.wait = 10 * SECOND}, now, &code);
    pass(engine, SECOND);
    assert_false(op->done);
    peer("s0")->odd = NULL;
    pass(engine, 3 * SECOND);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_OK);
    snib__engine_free(engine);
}

static void no_other_sentinel_in_it(void **state)
{
    (void)state;
    static const char *const replies[] = {
        ":1\r\n",
        "$-1\r\n",
        "*1\r\n:5\r\n",
        "*1\r\n*0\r\n",
        "*1\r\n*1\r\n$2\r\nip\r\n",
        "*1\r\n*2\r\n:1\r\n$2\r\ns9\r\n",
        "*1\r\n*2\r\n$2\r\nip\r\n$2\r\ns9\r\n",
        "*1\r\n*2\r\n$4\r\nport\r\n$5\r\n26379\r\n",
        "*1\r\n*3\r\n$2\r\nip\r\n$2\r\ns9\r\n$4\r\nport\r\n",
        "*1\r\n*4\r\n$2\r\nip\r\n:9\r\n$4\r\nport\r\n$5\r\n26379\r\n",
        "*1\r\n*4\r\n$2\r\nip\r\n$2\r\ns9\r\n$4\r\nport\r\n:26379\r\n",
        "*1\r\n*4\r\n$2\r\nip\r\n$2\r\ns9\r\n$4\r\nport\r\n$1\r\nx\r\n",
        "*2\r\n$1\r\nx\r\n*4\r\n$2\r\nip\r\n$2\r\ns9\r\n$4\r\nport\r\n$5\r\n26379\r\n",
    };
    for (size_t i = 0; i < COUNT(replies); i++) {
        struct snib__engine *engine = odd_world("SENTINELS", replies[i]);
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, 60 * SECOND);
        assert_true(at(engine, "m1"));
        assert_int_equal(peer("s9")->connects, 0);
        end(engine, hold);
    }
    struct snib__engine *engine =
        odd_world("SENTINELS", "*1\r\n*4\r\n$2\r\nip\r\n$2\r\ns9\r\n$4\r\nport\r\n$5\r\n26379\r\n");
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 60 * SECOND);
    assert_true(peer("s9")->connects > 0);
    end(engine, hold);
}

/* Only a message about the client's own service makes it ask. */
static void no_news_in_it(void **state)
{
    (void)state;
    static const char *const messages[] = {
        "*1\r\n$7\r\nmessage\r\n",
        "*2\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n",
        "*3\r\n:7\r\n$14\r\n+switch-master\r\n$24\r\nmain m1 6379 m2 6379 xyz\r\n",
        "*3\r\n$7\r\nmessage\r\n:7\r\n$24\r\nmain m1 6379 m2 6379 xyz\r\n",
        "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n:7\r\n",
        "*3\r\n$7\r\nmassage\r\n$14\r\n+switch-master\r\n$24\r\nmain m1 6379 m2 6379 xyz\r\n",
        "*4\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$24\r\nmain m1 6379 m2 6379 xyz\r\n:1\r\n",
    };
    for (size_t i = 0; i < COUNT(messages); i++) {
        struct snib__engine *engine = world(1);
        struct snib__hold *hold = held(engine, "m", 0);
        PASS_UNTIL(engine, ear_at(engine, "s0"), 10 * SECOND);
        pass(engine, 2 * SECOND);
        int asked = peer("s0")->asked;
        snib__engine_input(engine, ear_at(engine, "s0"), messages[i], strlen(messages[i]), now);
        settle(engine);
        assert_int_equal(peer("s0")->asked, asked);
        PASS_UNTIL(engine, ear_at(engine, "s0"), 10 * SECOND);
        asked = peer("s0")->asked;
        say_switch(engine, "s0", "main m1 6379 m2 6379");
        settle(engine);
        assert_true(peer("s0")->asked > asked);
        end(engine, hold);
    }
}

/* ---- Another deployment --------------------------------------------------------------------------- */

/* s0 to s2 are in the URL, and name s9. */
static struct snib__engine *world_with_another(void)
{
    struct snib__engine *engine = world(3);
    tell_all(3, "m1", 3);
    for (int i = 0; i < 3; i++) {
        peers[i].others = "s9";
        peers[i].known = 3;
    }
    peer("s9")->epoch = 3;
    peer("s9")->known = 3;
    peer("s9")->others = "s0s1s2";
    return engine;
}

/* The address of s9 is that of another deployment's sentinel now, whose service has the same name. */
static void address_is_given_away(void)
{
    *peer("s9") = (struct peer){.host = "s9",
                                .mode = "sentinel",
                                .master = "m7",
                                .epoch = 50,
                                .known = 1,
                                .others = "s8",
                                .process = "zz"};
    peer("s8")->master = "m7";
    peer("s8")->epoch = 50;
    peer("s8")->others = "s9";
    peer("m7")->has = false;
}

/* Whether the client has met it before, whatever its master says, and also when its announcements are heard. */
static void sentinel_of_another_deployment(void **state)
{
    (void)state;
    for (int met = 0; met < 2; met++)
        for (int locked = 0; locked < 2; locked++) {
            struct snib__engine *engine = world_with_another();
            if (!met)
                peer("s9")->state = DOWN;
            struct snib__hold *hold = held(engine, "m", 0);
            pass(engine, 10 * SECOND);
            crash(engine, "s9");
            pass(engine, 200 * SECOND);
            address_is_given_away();
            peer("m7")->locked = locked ? "-NOAUTH Authentication required.\r\n" : NULL;
            pass(engine, 60 * SECOND);
            assert_true(peer("s9")->asked > 0);
            if (ear_at(engine, "s9"))
                say_switch(engine, "s9", "main m1 6379 m7 6379");
            pass(engine, 60 * SECOND);
            /* nor while the master is away */
            crash(engine, "m1");
            pass(engine, 5 * SECOND);
            peer("m1")->state = UP;
            PASS_UNTIL(engine, at(engine, "m1"), 5 * SECOND);
            assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
            assert_int_equal(peer("m7")->connects, 0);
            assert_int_equal(peer("s8")->connects, 0);
            /* the others are believed as before */
            tell_all(3, "m2", 4);
            PASS_UNTIL(engine, at(engine, "m2"), 5 * SECOND);
            end(engine, hold);
        }
}

/* One of the URL's, which was believed because the others were away: they outvote it when they are back, if the master that it
 * names is of no use; and it is not believed again. */
static void most_outvote_one(void **state)
{
    (void)state;
    for (int lags = 0; lags < 2; lags++) {
        struct snib__engine *engine = world(3);
        engine->config.patience = 60 * SECOND;
        tell_all(3, "m1", 3);
        peer("s0")->state = peer("s1")->state = DOWN;
        peer("s2")->master = "m7";
        peer("s2")->epoch = 50;
        peer("m7")->state = DOWN;
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        pass(engine, 3 * SECOND);
        assert_true(peer("m7")->connects > 0);
        peer("s0")->state = peer("s1")->state = UP;
        if (lags) { /* it was right, and they have not heard of the failover yet */
            pass(engine, 3 * SECOND);
            assert_int_equal(peer("m1")->connects, 0);
            tell_all(3, "m7", 50);
            peer("m7")->state = UP;
        }
        PASS_UNTIL(engine, op->done, 20 * SECOND);
        struct snib__hold *hold = acquired(engine, op);
        pass(engine, 60 * SECOND);
        assert_true(at(engine, lags ? "m7" : "m1"));
        end(engine, hold);
    }
}

/* ---- Strangers that are none ---------------------------------------------------------------------- */

/* All were started anew while the master was replaced: they name each other. */
static void sentinels_that_were_restarted(void **state)
{
    (void)state;
    struct snib__engine *engine = world_with_another();
    for (int i = 0; i < 3; i++)
        peers[i].others = i == 0 ? "s1s2s9" : i == 1 ? "s0s2s9" : "s0s1s9";
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 10 * SECOND);
    static const char *const processes[] = {"p0", "p1", "p2"};
    for (int i = 0; i < 3; i++) {
        crash(engine, peers[i].host);
        peers[i].process = processes[i];
        peers[i].state = UP;
    }
    crash(engine, "s9");
    crash(engine, "m1");
    tell_all(3, "m2", 4);
    PASS_UNTIL(engine, at(engine, "m2"), 5 * SECOND);
    end(engine, hold);
}

/* One that knows nobody counts once it names the master that is known. */
static void stranger_that_names_the_master(void **state)
{
    (void)state;
    struct snib__engine *engine = world(2);
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 10 * SECOND);
    crash(engine, "s1");
    pass(engine, 10 * SECOND);
    crash(engine, "s0");
    peer("s0")->process = "p0";
    peer("s0")->state = UP;
    pass(engine, 10 * SECOND);
    tell_all(1, "m2", 2);
    PASS_UNTIL(engine, at(engine, "m2"), 5 * SECOND);
    end(engine, hold);
}

/* The URL has one name for all, and each start gives them other addresses: all are replaced, and the master with them.  With
 * epochs from the beginning on they have to be most of as many as they say. */
static void all_are_replaced_at_once(void **state)
{
    (void)state;
    for (int epoch = 0; epoch <= 4; epoch += 2) {
        struct snib__engine *engine = world(1);
        peer("s0")->others = "s1s2";
        peer("s1")->others = "s2";
        peer("s2")->others = "s1";
        for (int i = 0; i < 3; i++) {
            peer((char[3]){'s', (char)('0' + i), 0})->epoch = 3;
            peer((char[3]){'s', (char)('0' + i), 0})->known = 2;
        }
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, 10 * SECOND);
        for (int i = 0; i < 3; i++)
            crash(engine, (char[3]){'s', (char)('0' + i), 0});
        crash(engine, "m1");
        pass(engine, 10 * SECOND);
        static const char *const names[] = {"s0", "sa", "sb"}, *const others[] = {"sasb", "sbsc",
                                                                                  "sasc"};
        for (int i = 0; i < 3; i++) {
            struct peer *one = peer(names[i]);
            one->state = UP;
            one->process = others[i];
            one->others = others[i];
            one->master = "m2";
            one->epoch = epoch;
            one->known = 2;
        }
        PASS_UNTIL(engine, at(engine, "m2"), 30 * SECOND);
        end(engine, hold);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_epoch_in_it),
        cmocka_unit_test(no_address_in_it),
        cmocka_unit_test(an_error_instead_of_it),
        cmocka_unit_test(no_other_sentinel_in_it),
        cmocka_unit_test(no_news_in_it),
        cmocka_unit_test(sentinel_of_another_deployment),
        cmocka_unit_test(most_outvote_one),
        cmocka_unit_test(sentinels_that_were_restarted),
        cmocka_unit_test(stranger_that_names_the_master),
        cmocka_unit_test(all_are_replaced_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
