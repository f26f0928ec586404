/* sentinel.c - which server is believed to be the master, and when. */
#include "sentinels.h"

/* ---- Finding the master ---------------------------------------------------------------------------- */

static void each_sentinel_is_asked_once_and_then_in_turn(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    pass(engine, 60 * SECOND);
    assert_int_equal(peer("s0")->connects + peer("s1")->connects + peer("s2")->connects, 0);
    struct snib__hold *hold = held(engine, "m", 0);
    assert_true(at(engine, "m1"));
    assert_true(now < START + 60 * SECOND + 20 * SNIB__MS);
    pass(engine, 100 * SNIB__MS);
    for (int i = 0; i < 3; i++)
        assert_int_equal(peers[i].asked, 3); /* the master, its address, the other sentinels */
    pass(engine, 30 * SECOND);
    int asked = (peer("s0")->asked + peer("s1")->asked + peer("s2")->asked - 9) / 2;
    assert_in_range(asked, 25, 31);
    for (int i = 0; i < 3; i++)
        assert_in_range((peers[i].asked - 3) / 2, 8, 11);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* The sentinel that is down is known, too. */
static void way_to_the_master(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    peer("s1")->state = DOWN;
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 5 * SECOND);
    way_is(engine, "deployment:sentinel tls:no verified:no server:m1:6379 service:main sentinels:3 "
                   "answered:2 ");
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

static void idle_client_is_silent(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    released(engine, held(engine, "m", 0), SNIB_OK);
    pass(engine, 40 * SECOND);
    uint64_t bytes = 0;
    for (int i = 0; i < peers_n; i++)
        bytes += peers[i].bytes;
    pass(engine, 3600 * SECOND);
    for (int i = 0; i < peers_n; i++)
        bytes -= peers[i].bytes;
    assert_int_equal(bytes, 0);
    /* it begins to listen and to ask again with the next operation */
    tell_all(3, "m2", 2);
    struct snib__hold *hold = held(engine, "m", 0);
    PASS_UNTIL(engine, at(engine, "m2"), 20 * SNIB__MS);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* The URL names it twice. */
static void sentinel_named_twice_is_one(void **state)
{
    (void)state;
    struct snib__engine *three = world(3);
    struct snib__config config = three->config;
    snib__engine_free(three);
    seeds[2] = seeds[0];
    struct snib__engine *engine = snib__engine_new(&config);
    assert_non_null(engine);
    held(engine, "m", 0);
    pass(engine, 100 * SNIB__MS);
    assert_int_equal(peer("s0")->asked, 3);
    assert_int_equal(peer("s1")->asked, 3);
    assert_int_equal(peer("s2")->connects, 0);
    snib__engine_free(engine);
}

/* Sentinels that are down or silent are skipped. */
static void dead_and_dumb_sentinels_are_passed_over(void **state)
{
    (void)state;
    for (int good = 0; good < 3; good++)
        for (int how = 0; how < 4; how++) {
            struct snib__engine *engine = world(3);
            for (int i = 0; i < 3; i++) {
                if (i == good)
                    continue;
                peers[i].state = how == 0 ? DOWN : how == 1 ? SILENT : UP;
                if (how == 2)
                    peers[i].master = NULL;
                if (how == 3)
                    peers[i].locked = "-NOAUTH Authentication required.\r\n";
            }
            struct snib__hold *hold = held(engine, "m", 0);
            assert_true(now < START + (how == 1 ? 520 : 50) * SNIB__MS);
            pass(engine, 60 * SECOND);
            for (int i = 0; i < 3; i++)
                assert_true(i == good || peers[i].connects < 60);
            released(engine, hold, SNIB_OK);
            snib__engine_free(engine);
        }
}

static void no_sentinel_answers(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    for (int i = 0; i < 3; i++)
        peers[i].state = DOWN;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    PASS_UNTIL(engine, op->done, 6 * SECOND);
    assert_in_range(now - START, 4900 * SNIB__MS, 5100 * SNIB__MS);
    assert_int_equal(op->code, SNIB_ECONNECT);
    assert_int_equal(op->os_error, ECONNREFUSED);
    assert_true(op->where && strncmp(op->where, "sentinel s", 10) == 0);
    assert_non_null(strstr(op->where, " or 2 others"));
    int connects = 0;
    for (int i = 0; i < 3; i++)
        connects += peers[i].connects;
    assert_in_range(connects, 9, 60);
    snib__op_free(engine, snib__engine_take_done(engine));
    /* one comes back: the next operation finds the master */
    peer("s1")->state = UP;
    released(engine, held(engine, "m", 0), SNIB_OK);
    snib__engine_free(engine);
}

/* Unsuccessful rounds are followed by growing pauses, which a new operation cuts short. */
static void new_operation_shortens_the_pause(void **state)
{
    (void)state;
    struct snib__engine *engine = world(1);
    peer("s0")->state = DOWN;
    for (int i = 0; i < 8; i++) {
        acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        pass(engine, 4 * SECOND);
        const int connects = peer("s0")->connects;
        acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        PASS_UNTIL(engine, peer("s0")->connects > connects, 150 * SNIB__MS);
    }
    snib__engine_free(engine);
}

static void what_will_not_change_is_told_at_once(void **state)
{
    (void)state;
    static const char noauth[] = "-NOAUTH Authentication required.\r\n";
    struct snib__engine *engine = world(3);
    tell_all(3, NULL, 0);
    ends_with(engine, SNIB_ETOPOLOGY, 20 * SNIB__MS, "no sentinel knows the service \"main\"",
              NULL);
    ends_with(engine, SNIB_ETOPOLOGY, 300 * SNIB__MS, "no sentinel knows the service \"main\"",
              NULL);
    tell_all(3, "m1", 1);
    released(engine, held(engine, "m", 0), SNIB_OK);
    snib__engine_free(engine);

    engine = world(2); /* one is down, the other does not know the service */
    peer("s0")->state = DOWN;
    peer("s1")->master = NULL;
    ends_with(engine, SNIB_ETOPOLOGY, 20 * SNIB__MS, "1 of 2 answered", NULL);
    snib__engine_free(engine);

    engine = world(1);
    peer("s0")->locked = noauth;
    ends_with(engine, SNIB_EAUTH, 20 * SNIB__MS, "NOAUTH", "sentinel s0:26379");
    snib__engine_free(engine);

    engine = world(3); /* one is down, the others refuse the password */
    peer("s0")->state = DOWN;
    peer("s1")->locked = peer("s2")->locked = noauth;
    ends_with(engine, SNIB_EAUTH, 300 * SNIB__MS, "NOAUTH", NULL);
    snib__engine_free(engine);

    for (int hidden = 0; hidden < 2; hidden++) { /* a server in the sentinel's place */
        engine = world(1);
        peer("s0")->server = true;
        peer("s0")->mode = hidden ? NULL : "standalone";
        ends_with(engine, SNIB_ETOPOLOGY, 20 * SNIB__MS, "s0:26379 is not a sentinel for \"main\"",
                  "sentinel s0:26379");
        snib__engine_free(engine);
    }
}

/* One of three that has just been set up, or refuses the password, does not speak for those that are down: they are waited
 * for, and if they do not come, its words are told. */
static void few_do_not_speak_for_all(void **state)
{
    (void)state;
    static const char noauth[] = "-NOAUTH Authentication required.\r\n";
    for (int way = 0; way < 4; way++) { /* unknown or refused; others come back or not */
        int32_t code;
        struct snib__engine *engine = world(3);
        const struct snib__acquire how = {.wait = 20 * SECOND};
        tell_all(3, "m1", 1);
        peer("s0")->state = peer("s1")->state = DOWN;
        peer("s2")->master = way % 2 ? peer("s2")->master : NULL;
        peer("s2")->locked = way % 2 ? noauth : NULL;
        struct snib__op *op =
            snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "m"), &how, now, &code);
        pass(engine, SECOND);
        assert_false(op->done);
        peer("s0")->state = way < 2 ? UP : DOWN;
        PASS_UNTIL(engine, op->done, 30 * SECOND);
        assert_int_equal(op->code, way < 2 ? SNIB_OK : way % 2 ? SNIB_EAUTH : SNIB_ETOPOLOGY);
        snib__engine_free(engine);
    }
}

/* The address of a sentinel, or of a cluster's node, in a URL for a single server. */
static void server_that_is_something_else(void **state)
{
    (void)state;
    for (int tls = 0; tls < 2;
         tls++) { /* with TLS the advice has it, too: whoever follows it sends a password */
        struct snib__address seed = {.host = "m0", .port = 6379, .tls = tls};
        struct snib__engine *engine = begin();
        engine->config.seeds = &seed;
        engine->config.seeds_n = 1;
        engine->home->address = seed;
        engine->home->addressed = true;
        peers_n = 0;
        peer("m0")->mode = "sentinel";
        engine->config.login.database = 3; /* SELECT is refused, and says less */
        ends_with(engine, SNIB_ETOPOLOGY, 20 * SNIB__MS,
                  tls ? "use rediss+sentinel://" : "is a sentinel: use redis+sentinel://", NULL);
        peer("m0")->state = DOWN; /* its earlier role is not reported once it is silent */
        ends_with(engine, SNIB_ECONNECT, 6 * SECOND, NULL, NULL);
        snib__engine_free(engine);
    }
}

/* ---- Following it ---------------------------------------------------------------------------------- */

/* The master dies: the hold is at risk, and valid again once the next master has confirmed it. */
static void failover_is_followed(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++)
        for (int fixed = 0; fixed < 2; fixed++) {
            struct snib__engine *engine = world(3);
            struct snib__hold *hold = held(engine, "m", fixed ? 20 * SECOND : 0);
            peer("m2")->has = kept;
            pass(engine, 3 * SECOND);
            crash(engine, "m1");
            pass(engine, 2 * SECOND);
            assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
            tell_all(3, "m2", 2);
            PASS_UNTIL(engine, at(engine, "m2"), 300 * SNIB__MS);
            pass(engine, 20 * SNIB__MS);
            assert_int_equal(peer("m2")->renewals, 1);
            if (kept) {
                assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
                released(engine, hold, SNIB_OK);
            } else {
                assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
                assert_int_equal(snib__hold_reason(hold, now), SNIB_REASON_FAILOVER);
                assert_int_equal(engine->stats.lost_failover, 1);
                released(engine, hold, SNIB_LOST);
            }
            snib__engine_free(engine);
        }
}

/* Once the new master has confirmed a hold, a later loss is not due to the failover. */
static void confirmed_hold_is_lost_for_another_reason(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    crash(engine, "m1");
    tell_all(3, "m2", 2);
    PASS_UNTIL(engine, peer("m2")->renewals == 1, SECOND);
    peer("m2")->has = false;
    pass(engine, 12 * SECOND);
    assert_int_equal(snib__hold_reason(hold, now), SNIB_REASON_DELETED);
    released(engine, hold, SNIB_LOST);
    /* and a release that finds nothing at the new master says so */
    peer("m2")->has = true;
    hold = held(engine, "m", 0);
    peer("m3")->has = false;
    peer("m3")->state = SILENT;
    crash(engine, "m2");
    tell_all(3, "m3", 3);
    pass(engine, SECOND);
    int32_t code;
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    peer("m3")->state = UP;
    PASS_UNTIL(engine, op->done, 5 * SECOND);
    assert_int_equal(op->code, SNIB_LOST);
    assert_int_equal(op->reason, SNIB_REASON_FAILOVER);
    snib__engine_free(engine);
}

/* The same for a release that began before the failover was known. */
static void release_that_waits_for_a_master(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    crash(engine, "m1");
    pass(engine, 100 * SNIB__MS);
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    pass(engine, 100 * SNIB__MS);
    assert_false(op->done);
    peer("m2")->has = false;
    tell_all(3, "m2", 2);
    PASS_UNTIL(engine, op->done, 2 * SECOND);
    assert_int_equal(op->code, SNIB_LOST);
    assert_int_equal(op->reason, SNIB_REASON_FAILOVER);
    snib__engine_free(engine);
}

/* A sentinel that fails is avoided for longer each time; one reply resets that. */
static void sentinel_that_comes_back(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    crash(engine, "s0");
    pass(engine, 100 * SECOND);
    int asked = peer("s0")->asked;
    peer("s0")->state = UP;
    PASS_UNTIL(engine, peer("s0")->asked > asked, 35 * SECOND);
    crash(engine, "s0");
    pass(engine, 5 * SECOND); /* its turn came, without success */
    asked = peer("s0")->asked;
    peer("s0")->state = UP;
    PASS_UNTIL(engine, peer("s0")->asked > asked, 8 * SECOND);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* How long the old master was tried does not count against the new one, which may be slightly
 * late. */
static void new_master_is_tried_afresh(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    held(engine, "m", 0);
    crash(engine, "m1");
    pass(engine, 15 * SECOND);
    tell_all(3, "m2", 2);
    peer("m2")->state = DOWN;
    PASS_UNTIL(engine, peer("m2")->connects == 1, 5 * SECOND);
    peer("m2")->state = UP;
    PASS_UNTIL(engine, at(engine, "m2"), 100 * SNIB__MS);
    snib__engine_free(engine);
}

/* One reply resets all: also of a sentinel that was avoided, and asked only because the master was
 * gone. */
static void shunned_sentinel_helps(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    held(engine, "m", 0);
    crash(engine, "s0");
    pass(engine, 100 * SECOND);
    const int connects = peer("s0")->connects;
    PASS_UNTIL(engine, peer("s0")->connects > connects, 35 * SECOND); /* unsuccessful, for long */
    peer("s0")->state = UP;
    tell_all(3, "m2", 2);
    crash(engine, "s1");
    crash(engine, "s2");
    crash(engine, "m1");
    PASS_UNTIL(engine, at(engine, "m2"), 5 * SECOND);
    const int asked = peer("s0")->asked;
    PASS_UNTIL(engine, peer("s0")->asked > asked + 4, 5 * SECOND);
    snib__engine_free(engine);
}

/* The sentinels know the master now, but it does not answer: that is reported, and not their
 * earlier answer. */
static void old_reason_is_not_told(void **state)
{
    (void)state;
    int32_t code;
    const struct snib__acquire how = {.wait = SECOND};
    struct snib__engine *engine = world(3);
    tell_all(3, NULL, 0);
    ends_with(engine, SNIB_ETOPOLOGY, 20 * SNIB__MS, "no sentinel knows the service \"main\"",
              NULL);
    peer("m1")->state = SILENT;
    tell_all(3, "m1", 1);
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, "m"), &how, now, &code);
    PASS_UNTIL(engine, op->done, 2 * SECOND);
    assert_int_equal(op->code, SNIB_ECONNECT);
    assert_true(!op->words || !op->words[0]);
    snib__engine_free(engine);
}

/* A recent release is repeated at the next master, which may not have heard of it; an old one is
 * not, and none is repeated twice. */
static void what_was_given_back_is_given_back_again(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    released(engine, held(engine, "long ago", 0), SNIB_OK);
    pass(engine, 70 * SECOND); /* its lease has ended, and one that another renewal had begun */
    for (int i = 0; i < 5; i++) {
        char name[8];
        sprintf(name, "n%d", i);
        released(engine, held(engine, name, 0), SNIB_OK);
    }
    assert_int_equal(peer("m1")->releases, 6);
    peer("m2")->has = false; /* the holds to be released */
    tell_all(3, "m2", 2);
    crash(engine, "m1");
    PASS_UNTIL(engine, at(engine, "m2"), 2 * SECOND);
    pass(engine, SECOND);
    assert_int_equal(peer("m2")->releases, 5);
    crash(engine, "m2");
    tell_all(3, "m3", 3);
    PASS_UNTIL(engine, peer("m2")->releases == 5, SECOND);
    struct snib__hold *other = held(engine, "k", 0);
    assert_true(at(engine, "m3"));
    pass(engine, SECOND);
    assert_int_equal(peer("m3")->releases, 5); /* it may know less than m2 */
    released(engine, other, SNIB_OK);
    snib__hold_drop(engine, hold, now);
    snib__engine_free(engine);
}

/* A hold that was lost in a failover may be back after the next one, with the data of the first master. */
static void what_was_lost_is_given_back_to_the_next_master(void **state)
{
    (void)state;
    enum { DROPPED, RELEASED, AT_THE_THIRD, BEFORE_IT_IS_KNOWN };
    for (int by = DROPPED; by <= BEFORE_IT_IS_KNOWN; by++) {
        struct snib__engine *engine = world(3);
        struct snib__hold *hold = held(engine, "m", 0);
        peer("m2")->has = false;
        tell_all(3, "m2", 2);
        crash(engine, "m1");
        if (by != BEFORE_IT_IS_KNOWN) {
            PASS_UNTIL(engine, at(engine, "m2"), 2 * SECOND);
            pass(engine, SECOND);
            assert_int_equal(hold->reason, SNIB_REASON_FAILOVER);
            assert_int_equal(peer("m2")->releases, 0);
        }
        if (by == DROPPED)
            snib__hold_drop(engine, hold, now);
        else if (by != AT_THE_THIRD)
            released(engine, hold, SNIB_LOST);
        struct snib__hold *other = held(engine, "k", 0); /* for a connection */
        crash(engine, "m2");
        tell_all(3, "m3", 3);
        PASS_UNTIL(engine, at(engine, "m3"), 2 * SECOND);
        pass(engine, SECOND);
        if (by == AT_THE_THIRD) {
            assert_int_equal(peer("m3")->releases, 0);
            released(engine, hold, SNIB_LOST);
            pass(engine, SECOND);
        }
        assert_int_equal(peer("m3")->releases, 1);
        snib__hold_drop(engine, other, now);
        snib__engine_free(engine);
    }
}

/* A master that answers is left for a higher epoch, and for nothing else that a poll finds. */
static void master_that_answers_is_left_for_a_higher_epoch(void **state)
{
    (void)state;
    for (int epoch = 4; epoch <= 6; epoch++) {
        struct snib__engine *engine = world(3);
        tell_all(3, "m1", 5);
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, 2 * SECOND);
        peer("s1")->master = "m2"; /* one of them */
        peer("s1")->epoch = epoch;
        pass(engine, 10 * SECOND);
        assert_true(at(engine, epoch > 5 ? "m2" : "m1"));
        assert_int_equal(peer("m2")->connects > 0, epoch > 5);
        released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* While it does not answer, reports below the highest epoch seen are not believed, either. */
static void stale_sentinels_are_not_believed(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    tell_all(3, "m2", 5);
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, SECOND);
    peer("s0")->master = "m1"; /* it was away, and starts with its old state */
    peer("s0")->epoch = 4;
    crash(engine, "m2");
    pass(engine, 5 * SECOND);
    assert_int_equal(peer("m1")->connects, 0);
    assert_string_equal(engine->home->address.host, "m2");
    /* A report of the same epoch is believed while it is down: the master may have two names. */
    peer("s1")->master = "m3";
    PASS_UNTIL(engine, at(engine, "m3"), 2 * SECOND);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* Of sentinels with the same epoch one or two name a server that does not answer, and one the master, which is so distant
 * that a connection takes longer than the time between two questions.  Each gets the time that it needs, also when those
 * that are left agree. */
static void distant_master_is_reached(void **state)
{
    (void)state;
    for (int variant = 0; variant < 5; variant++) {
        struct snib__engine *engine = world(variant < 2 ? 2 : 3);
        engine->config.patience = 60 * SECOND;
        struct peer *knows = &peers[variant < 2 ? variant : variant - 2];
        knows->master = "m2";
        peer("m1")->state = SILENT;
        peer("m2")->far = 900 * SNIB__MS;
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
        PASS_UNTIL(engine, peer("m2")->connects, 15 * SECOND);
        crash(engine, knows->host);
        PASS_UNTIL(engine, op->done, 2 * SECOND);
        assert_true(at(engine, "m2"));
        pass(engine, 20 * SECOND);
        assert_int_equal(peer("m2")->connects, 1);
        released(engine, acquired(engine, op), SNIB_OK);
        snib__engine_free(engine);
    }
}

/* Sentinels that contradict each other at the same epoch, while nothing listens at either address: no storm. */
static void masters_that_are_named_in_turn(void **state)
{
    (void)state;
    for (int sentinels = 2; sentinels <= 3; sentinels++) {
        struct snib__engine *engine = world(sentinels);
        engine->config.patience = 60 * SECOND;
        tell_all(sentinels, "m1", 1);
        struct snib__hold *hold = held(engine, "m", 0);
        peer("s1")->master = "m2";
        peer("m2")->state = DOWN;
        crash(engine, "m1");
        const int connects = peer("m1")->connects + peer("m2")->connects;
        pass(engine, 10 * SECOND);
        assert_in_range(peer("m1")->connects + peer("m2")->connects - connects, 10, 300);
        peer("m1")->state = UP;
        PASS_UNTIL(engine, at(engine, "m1"), 5 * SECOND);
        released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* The connections to a master that is left for the next one are not lost: only a failure of that is told. */
static void master_that_is_left_has_not_failed(void **state)
{
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        struct snib__engine *engine = world(3);
        engine->config.patience = 60 * SECOND;
        snib__engine_log_level(engine, SNIB_LOG_INFO);
        struct snib__hold *hold = held(engine, "m", 0);
        int32_t level;
        while (snib__engine_take_log(engine, &level))
            continue;
        peer("m2")->state = silent ? SILENT : UP;
        tell_all(3, "m2", 2);
        pass(engine, 20 * SECOND);
        assert_int_equal(at(engine, "m2"), !silent);
        int failed = 0;
        for (const char *text; (text = snib__engine_take_log(engine, &level));)
            failed += strstr(text, "no connection to") || strstr(text, "lost one of");
        assert_int_equal(failed, silent);
        if (!silent)
            released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* A sentinel whose answer comes when the server of another one is tried for the second time is believed. */
static void second_try_is_not_waited_for(void **state)
{
    (void)state;
    struct snib__engine *engine = world(2);
    engine->config.patience = 60 * SECOND;
    peer("m1")->state = SILENT;
    peer("s1")->state = SILENT;
    peer("s1")->master = "m2";
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    PASS_UNTIL(engine, peer("m1")->connects == 2, 5 * SECOND);
    peer("s1")->state = UP;
    PASS_UNTIL(engine, op->done, 1500 * SNIB__MS);
    assert_true(at(engine, "m2"));
    released(engine, acquired(engine, op), SNIB_OK);
    snib__engine_free(engine);
}

/* Sentinels that were set up afresh count their epochs from 0: if most of them agree they are
 * believed. */
static void epochs_may_begin_anew(void **state)
{
    (void)state;
    for (int anew = 1; anew <= 4; anew++) {
        int all = anew < 4 ? 3 : 2; /* of two, one is not a majority */
        struct snib__engine *engine = world(all);
        tell_all(all, "m1", 9);
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, SECOND);
        for (int i = 0; i < all; i++)
            peers[i].state = DOWN;
        for (int i = 0; i < all; i++)
            crash(engine, peers[i].host);
        for (int i = 0; i < (all == 2 ? 1 : anew); i++) {
            peers[i].state = UP;
            peers[i].master = "m2";
            peers[i].epoch = 0;
        }
        pass(engine, 5 * SECOND);
        assert_true(at(engine, "m1")); /* it answers */
        crash(engine, "m1");
        pass(engine, 5 * SECOND);
        assert_int_equal(at(engine, "m2"), anew == 2 || anew == 3);
        snib__hold_drop(engine, hold, now);
        snib__engine_free(engine);
    }
}

/* The sentinels s0 to s2 have been set up afresh, and each is listed under an address that cannot be reached, too, as behind
 * NAT.  known: how many others they say that they know; stale: how many of them have begun anew; one: they are one process. */
static const char *unnamed; /* one that may not show its INFO */
static bool begins_anew(int known, int stale, bool one)
{
    struct snib__engine *engine = world(3);
    if (unnamed)
        peer(unnamed)->mode = NULL;
    tell_all(3, "m1", 9);
    for (int i = 0; i < 3; i++) {
        peers[i].others = "sasbsc";
        peers[i].known = known;
        peers[i].process = one ? "s0" : NULL;
    }
    for (int i = 0; i < 3; i++)
        peer((char[3]){'s', (char)('a' + i), 0})->state = DOWN;
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, SECOND);
    for (int i = 0; i < 3; i++)
        crash(engine, peers[i].host);
    tell_all(3, "m2", 0);
    for (int i = 0; i < stale; i++)
        peers[i].state = UP;
    crash(engine, "m1");
    pass(engine, 60 * SECOND);
    bool begun = at(engine, "m2");
    snib__hold_drop(engine, hold, now);
    snib__engine_free(engine);
    return begun;
}

static void addresses_that_lead_nowhere_have_no_vote(void **state)
{
    (void)state;
    assert_true(begins_anew(2, 3, false));
    assert_true(begins_anew(2, 2, false));
    assert_false(begins_anew(2, 1, false));
    assert_false(begins_anew(4, 2, false)); /* of five */
    assert_false(begins_anew(0, 3, false)); /* nobody knows of how many */
    assert_false(begins_anew(2, 3, true));  /* one that has three names */
    assert_false(begins_anew(1, 1, false)); /* of the URL's */
    unnamed = "s1";
    assert_true(begins_anew(2, 3, false)); /* the others are enough */
    assert_false(begins_anew(2, 2, false));
    unnamed = NULL;
}

/* As long as the master replies it is not left for sentinels that were set up anew.  New clients go where those say, so that is
 * told, once. */
static void sentinels_that_began_anew_are_told_of(void **state)
{
    (void)state;
    static const struct {
        int stale;
        const char *master;
        bool told;
    } cases[] = {{3, "m2", true}, {2, "m2", false}, {3, "m1", false}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct snib__engine *engine = world(3);
        snib__engine_log_level(engine, SNIB_LOG_WARNING);
        tell_all(3, "m1", 9);
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, 5 * SECOND);
        tell_all(cases[i].stale, cases[i].master, 0);
        pass(engine, 60 * SECOND);
        assert_true(at(engine, "m1"));
        int told = 0;
        int32_t level;
        for (const char *text; (text = snib__engine_take_log(engine, &level)); told++)
            if (level != SNIB_LOG_WARNING || !strstr(text, "m2:6379 as the master of \"main\"") ||
                !strstr(text, "stays at m1:6379"))
                fail_msg("%s", text);
        assert_int_equal(told, cases[i].told);
        released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* The service has been removed from all sentinels, or from some, or they are down. */
static void service_that_is_gone_is_told_of(void **state)
{
    (void)state;
    for (int gone = 1; gone <= 3; gone++) {
        struct snib__engine *engine = world(3);
        snib__engine_log_level(engine, SNIB_LOG_WARNING);
        struct snib__hold *hold = held(engine, "m", 0);
        int told = 0;
        int32_t level;
        for (int again = 0; again < 2; again++) {
            pass(engine, 5 * SECOND);
            tell_all(gone, NULL, 0);
            pass(engine, 60 * SECOND);
            assert_true(at(engine, "m1"));
            tell_all(3, "m1", 1);
            pass(engine, 60 * SECOND);
        }
        for (const char *text; (text = snib__engine_take_log(engine, &level)); told++)
            if (level != SNIB_LOG_WARNING ||
                !strstr(text, "no sentinel knows the service \"main\" any more (3 of 3 answered)"))
                fail_msg("%s", text);
        assert_int_equal(told, gone == 3 ? 2 : 0);
        released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* ---- Other changes of a master --------------------------------------------------------------------- */

static void demoted_master_has_them_asked_at_once(void **state)
{
    (void)state;
    for (int hidden = 0; hidden < 2; hidden++) {
        struct snib__engine *engine = world(3);
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, 1500 * SNIB__MS);
        tell_all(3, "m2", 2);
        peer("m1")->refuses = true;
        peer("m1")->replica = true;
        peer("m1")->mode = hidden ? NULL : "standalone";
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "n"), 0);
        PASS_UNTIL(engine, op->done, 100 * SNIB__MS);
        assert_int_equal(op->code, SNIB_OK);
        assert_true(at(engine, "m2"));
        assert_ptr_equal(snib__engine_take_done(engine), op);
        released(engine, op->hold, SNIB_OK);
        snib__op_free(engine, op);
        released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* The server that sentinels report may not be a master yet: it is tried, and they are asked, until
 * it is. */
static void promoted_server_proves_itself(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    peer("m2")->replica = true;
    crash(engine, "m1");
    tell_all(3, "m2", 2);
    pass(engine, 3 * SECOND);
    assert_int_equal(peer("m2")->renewals, 0);
    assert_in_range(peer("m2")->connects, 2, 40);
    peer("m2")->replica = false;
    PASS_UNTIL(engine, peer("m2")->renewals == 1, 2500 * SNIB__MS);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* A request in flight when the master died goes to the next one. */
static void requests_go_to_the_next_master(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    peer("m1")->state = SILENT;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "n"), 0);
    pass(engine, SNIB__MS);
    assert_int_equal(on_the_way(engine), 1);
    tell_all(3, "m2", 2);
    PASS_UNTIL(engine, op->done, 1200 * SNIB__MS);
    assert_int_equal(op->code, SNIB_OK);
    assert_true(at(engine, "m2"));
    snib__hold_drop(engine, hold, now);
    snib__engine_free(engine);
}

/* On a new connection: a former master may have another role by now. */
static void role_is_looked_at_on_each_connection(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, SECOND);
    peer("m1")->replica = true;
    const int connects = peer("m1")->connects;
    snib__engine_link_down(engine, &engine->home->links[SNIB__COMMAND], SNIB_EUNREACHABLE, 0, now);
    pass(engine, 2 * SECOND);
    assert_true(peer("m1")->connects > connects);
    assert_int_equal(peer("m1")->renewals, 0);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
    tell_all(3, "m2", 2);
    PASS_UNTIL(engine, snib__hold_state(engine, hold, now) == SNIB_HOLD_VALID, SECOND);
    assert_true(at(engine, "m2"));
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* However long no sentinel helped: after one has, the pauses start with the shortest. */
static void pauses_begin_anew(void **state)
{
    (void)state;
    struct snib__engine *engine = world(1);
    engine->config.patience = 60 * SECOND;
    peer("s0")->state = DOWN;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    pass(engine, 20 * SECOND);
    peer("s0")->state = UP;
    PASS_UNTIL(engine, op->done, 3 * SECOND);
    struct snib__hold *hold = acquired(engine, op);
    crash(engine, "s0");
    crash(engine, "m1");
    peer("m1")->state = SILENT; /* so that only the pause decides when */
    pass(engine, 150 * SNIB__MS);
    peer("s0")->state = UP;
    tell_all(1, "m2", 2);
    PASS_UNTIL(engine, at(engine, "m2"), 400 * SNIB__MS);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* The same with servers that do not report their run id. */
static void given_back_again_to_an_unnamed_server(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    peer("m1")->mode = peer("m2")->mode = NULL;
    struct snib__hold *hold = held(engine, "m", 0);
    released(engine, held(engine, "n", 0), SNIB_OK);
    crash(engine, "m1");
    tell_all(3, "m2", 2);
    PASS_UNTIL(engine, at(engine, "m2"), 2 * SECOND);
    pass(engine, SECOND);
    assert_int_equal(peer("m2")->releases, 1);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sentinel_is_asked_once_and_then_in_turn),
        cmocka_unit_test(way_to_the_master),
        cmocka_unit_test(idle_client_is_silent),
        cmocka_unit_test(sentinel_named_twice_is_one),
        cmocka_unit_test(dead_and_dumb_sentinels_are_passed_over),
        cmocka_unit_test(no_sentinel_answers),
        cmocka_unit_test(new_operation_shortens_the_pause),
        cmocka_unit_test(what_will_not_change_is_told_at_once),
        cmocka_unit_test(few_do_not_speak_for_all),
        cmocka_unit_test(server_that_is_something_else),
        cmocka_unit_test(failover_is_followed),
        cmocka_unit_test(confirmed_hold_is_lost_for_another_reason),
        cmocka_unit_test(release_that_waits_for_a_master),
        cmocka_unit_test(sentinel_that_comes_back),
        cmocka_unit_test(new_master_is_tried_afresh),
        cmocka_unit_test(shunned_sentinel_helps),
        cmocka_unit_test(old_reason_is_not_told),
        cmocka_unit_test(what_was_given_back_is_given_back_again),
        cmocka_unit_test(what_was_lost_is_given_back_to_the_next_master),
        cmocka_unit_test(master_that_answers_is_left_for_a_higher_epoch),
        cmocka_unit_test(stale_sentinels_are_not_believed),
        cmocka_unit_test(distant_master_is_reached),
        cmocka_unit_test(masters_that_are_named_in_turn),
        cmocka_unit_test(master_that_is_left_has_not_failed),
        cmocka_unit_test(second_try_is_not_waited_for),
        cmocka_unit_test(epochs_may_begin_anew),
        cmocka_unit_test(addresses_that_lead_nowhere_have_no_vote),
        cmocka_unit_test(sentinels_that_began_anew_are_told_of),
        cmocka_unit_test(service_that_is_gone_is_told_of),
        cmocka_unit_test(demoted_master_has_them_asked_at_once),
        cmocka_unit_test(promoted_server_proves_itself),
        cmocka_unit_test(requests_go_to_the_next_master),
        cmocka_unit_test(role_is_looked_at_on_each_connection),
        cmocka_unit_test(pauses_begin_anew),
        cmocka_unit_test(given_back_again_to_an_unnamed_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
