/* odd_sentinels.c - replies and messages of sentinels in forms that no sentinel uses: nothing in them is believed. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_epoch_in_it),         cmocka_unit_test(no_address_in_it),
        cmocka_unit_test(an_error_instead_of_it), cmocka_unit_test(no_other_sentinel_in_it),
        cmocka_unit_test(no_news_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
