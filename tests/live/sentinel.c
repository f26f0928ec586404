/* sentinel.c - a master, its replicas and three sentinels: how the master is found, and how a
 * failover affects locks. */
#include "../support/deployment.h"

#include <stdio.h>
#include <string.h>

/* How soon after the sentinels agree a client with holds or waiters has reached the new master and
 * asked. */
enum { FOLLOWED_MS = 1500, FIXED_LEASE_MS = 600000 };

/* Delays of a failover on a busy machine are not the client's fault: leases and patience outlast
 * them. */
enum { LEASE_MS = 120000, PATIENCE_MS = 90000 };

static struct deployment world;

static int world_start(void **state)
{
    (void)state;
    sentinels_start(&world, NULL);
    return 0;
}

static int world_end(void **state)
{
    (void)state;
    deployment_end(&world);
    return 0;
}

static snib_client *must_follow(const char *url)
{
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS;
    options.patience_ms = PATIENCE_MS;
    options.try_timeout_ms = patient_ms(1000);
    snib_client *client = NULL;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

static void run_all_again(void)
{
    for (int i = 0; i < world.count; i++) {
        struct node *node = &world.nodes[i];
        if (node->stopped)
            node_continue(node);
        else if (!node_runs(node))
            node_start(&world, node);
    }
    sentinels_await_settled(&world);
}

/* Each test begins with a settled deployment, whatever the one before did. */
static int settle(void **state)
{
    (void)state;
    run_all_again();
    return 0;
}

/* All writes have reached both replicas. */
static void await_replicas(struct deployment *deployment)
{
    struct node *master = sentinels_master(deployment);
    node_do(master, "SET marker 1");
    AWAIT(node_integer(master, "WAIT 2 100") == 2, DEPLOYED_MS);
}

/* ---- Ways of losing a master ------------------------------------------------------------------------ */

enum way { KILL, STOP, MANUAL };
static const char *const ways[] = {"kill", "stop", "manual"};
#define EACH_WAY(way)                                                                              \
    size_t way = 0;                                                                                \
    way < sizeof ways / sizeof *ways;                                                              \
    way++

static struct node *fail_over(size_t way)
{
    struct node *old = sentinels_master(&world);
    if (way == MANUAL) {
        struct node *next = sentinels_failover(&world);
        AWAIT(!node_is_master(old),
              DEPLOYED_MS); /* until then a release there is lost with the master */
        return next;
    }
    if (way == KILL)
        node_kill(old);
    else
        node_stop(old);
    return sentinels_await_failover(&world, old);
}

/* ---- Locks of all kinds that have holds ------------------------------------------------------------- */

static const struct {
    int32_t kind, rival; /* the waiter's kind */
    int64_t lease_ms;
} rows[] = {
    {SNIB_MUTEX, SNIB_MUTEX, 0}, {SNIB_MUTEX, SNIB_MUTEX, FIXED_LEASE_MS},
    {SNIB_FAIR, SNIB_FAIR, 0},   {SNIB_READ, SNIB_WRITE, 0},
    {SNIB_WRITE, SNIB_READ, 0},  {SNIB_FENCED, SNIB_FENCED, 0},
    {SNIB_PLAIN, SNIB_PLAIN, 0}, {SNIB_SPIN, SNIB_SPIN, 0},
};
enum { ROWS = sizeof rows / sizeof *rows };

struct set {
    snib_client *ours, *theirs;
    snib_queue *queue, *their_queue;
    snib_lock *locks[ROWS], *rivals[ROWS];
    snib_hold *holds[ROWS];
};

static void set_open(struct set *set, bool waiters)
{
    *set = (struct set){.ours = must_follow(world.url), .theirs = must_follow(world.url)};
    set->their_queue = must_queue(set->theirs);
    for (int i = 0; i < ROWS; i++) {
        char name[16];
        snprintf(name, sizeof name, "row:%d", i);
        snib_lock_options options;
        snib_lock_options_init(&options, sizeof options);
        options.lease_ms = rows[i].lease_ms;
        set->locks[i] = must_lock_with(set->ours, rows[i].kind, name, &options);
        set->rivals[i] = must_lock_kind(set->theirs, rows[i].rival, name);
        set->holds[i] = must_acquire(set->locks[i], 5000);
        if (waiters)
            EXPECT(snib_lock_acquire_submit(set->rivals[i], 0, -1, set->their_queue, (uint64_t)i,
                                            NULL, err),
                   SNIB_OK);
    }
}

static void set_close(struct set *set)
{
    for (int i = 0; i < ROWS; i++) {
        snib_lock_free(set->locks[i]);
        snib_lock_free(set->rivals[i]);
    }
    snib_queue_free(set->their_queue);
    snib_client_free(set->ours);
    snib_client_free(set->theirs);
}

static long long channels(struct node *node)
{
    redisReply *reply = node_command(node, "PUBSUB CHANNELS *row*");
    long long n = (long long)reply->elements;
    freeReplyObject(reply);
    return n;
}

/* All of the waiters' state is at the server: subscriptions, except for spin locks, and places in
 * the queue. */
static void set_await_waiters(struct set *set)
{
    struct node *master = sentinels_master(&world);
    AWAIT(must_stats(set->theirs).waiting == ROWS, 5000);
    AWAIT(channels(master) == ROWS - 1, 5000);
    AWAIT(node_integer(master, "LLEN redisson_lock_queue:{row:2}") == 1, 5000);
}

/* Release all holds, and expect each waiter to get its lock. */
static void set_pass_on(struct set *set)
{
    for (int i = 0; i < ROWS; i++)
        must_release(set->holds[i]);
    for (int i = 0; i < ROWS; i++) {
        snib_event event = must_event(set->their_queue, 5000);
        if (event.code != SNIB_OK)
            fail_msg("row %d: %s", (int)event.token, event.text);
        must_release(event.hold);
    }
}

/* ---- Finding the master ----------------------------------------------------------------------------- */

static void master_is_found_and_followed(void **state)
{
    (void)state;
    for (EACH_WAY(way)) {
        snib_client *client = must_follow(world.url);
        EXPECT(snib_client_ping(client, -1, err), SNIB_OK);
        snib_lock *lock = must_lock(client, "m");
        must_release(must_acquire(lock, -1));
        fail_over(way);
        must_release(must_acquire(lock, 2000));
        must_release(must_acquire(lock, 0));
        snib_lock_free(lock);
        snib_client_free(client);
        run_all_again();
    }
}

/* ---- Holds and waiters over a failover -------------------------------------------------------------- */

/* The replicas have everything: no hold is lost, and each waiter is served at the new master. */
static void holds_and_waiters_survive(void **state)
{
    (void)state;
    for (EACH_WAY(way)) {
        struct set set;
        set_open(&set, true);
        set_await_waiters(&set);
        await_replicas(&world);
        fail_over(way);
        for (int i = 0; i < ROWS; i++)
            must_be_valid(set.holds[i], FOLLOWED_MS);
        set_pass_on(&set);
        snib_client_stats_data stats = must_stats(set.ours);
        assert_int_equal(stats.lost_failover + stats.lost_deleted + stats.lost_unreachable, 0);
        set_close(&set);
        run_all_again();
    }
}

/* The promoted server has never had the locks: every hold is lost and reported, and waiters get the
 * locks. */
static void holds_that_vanished_are_lost(void **state)
{
    (void)state;
    uint64_t judged = 0;
    for (EACH_WAY(way)) {
        struct set set;
        set_open(&set, true);
        set_await_waiters(&set);
        await_replicas(&world);
        for (int nth = 0; nth < 2; nth++) {
            struct node *replica = sentinels_replica(&world, nth);
            node_do(replica, "CONFIG SET replica-read-only no");
            for (int i = 0; i < ROWS; i++)
                node_do(replica, "DEL row:%d", i);
            node_do(replica, "CONFIG SET replica-read-only yes"); /* or it grants locks, too */
        }
        fail_over(way);
        uint64_t lost = 0;
        int64_t end = now_ms() + patient_ms(FOLLOWED_MS);
        for (int i = 0; i < ROWS; i++) {
            int32_t reason;
            while (snib_hold_state(set.holds[i], &reason) != SNIB_HOLD_LOST && now_ms() < end)
                nap_us(1000);
            if (snib_hold_state(set.holds[i], &reason) != SNIB_HOLD_LOST) {
                must_release(set.holds[i]); /* a slow replica had done another full sync */
                continue;
            }
            lost++;
            if (reason != SNIB_REASON_FAILOVER)
                fail_msg("row %d is lost: %s", i, snib_reason_text(reason));
            snib_error error = {0};
            assert_int_equal(snib_hold_release(set.holds[i], &error), SNIB_LOST);
            assert_non_null(strstr(error.text, "was lost (failover)"));
            snib_hold_free(set.holds[i]);
        }
        judged += lost;
        assert_int_equal(must_stats(set.ours).lost_failover, lost);
        for (int i = 0; i < ROWS; i++) {
            snib_event event = must_event(set.their_queue, 5000);
            if (event.code != SNIB_OK)
                fail_msg("row %d: %s", (int)event.token, event.text);
            int32_t reason = SNIB_REASON_NONE;
            if (way == MANUAL && snib_hold_state(event.hold, &reason) == SNIB_HOLD_LOST &&
                reason == SNIB_REASON_FAILOVER &&
                must_stats(set.theirs).reconnects > 1) /* slow sentinels made two masters in turn */
                snib_hold_free(event.hold);
            else
                must_release(event.hold);
        }
        set_close(&set);
        run_all_again();
    }
    if (judged == 0)
        skip_because("each replica had done another full sync");
}

/* Multi locks, and quorum locks whose members have separate deployments. */
static void locks_of_locks_survive(void **state)
{
    (void)state;
    struct server others[2];
    snib_lock *members[3], *votes[3], *multi, *quorum;
    snib_client *clients[3] = {must_follow(world.url)};
    for (int i = 0; i < 2; i++) {
        server_start(&others[i], NULL);
        clients[1 + i] = must_open(others[i].url);
    }
    for (int i = 0; i < 3; i++) {
        members[i] = must_lock(clients[0], (const char *[]){"a", "b", "c"}[i]);
        votes[i] = must_lock(clients[i], "vote");
    }
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.flags = SNIB_LOCK_NO_QUARANTINE;
    EXPECT(snib_multi_new(members, 3, NULL, &multi, err), SNIB_OK);
    EXPECT(snib_quorum_new(votes, 3, &options, &quorum, err), SNIB_OK);
    snib_hold *all = must_acquire(multi, -1), *most = must_acquire(quorum, 2000);
    await_replicas(&world);
    fail_over(0);
    must_be_valid(all, FOLLOWED_MS);
    must_be_valid(most, FOLLOWED_MS);
    must_release(all);
    must_release(most);
    must_release(must_acquire(multi, 2000));
    must_release(must_acquire(quorum, 5000));
    snib_lock_free(multi);
    snib_lock_free(quorum);
    for (int i = 0; i < 3; i++) {
        snib_lock_free(members[i]);
        snib_lock_free(votes[i]);
        snib_client_free(clients[i]);
    }
    for (int i = 0; i < 2; i++)
        server_stop(&others[i]);
    run_all_again();
}

/* ---- Sentinels that die ------------------------------------------------------------------------------ */

/* Locks work for as long as the master does; a new client finds it by the last sentinel, or reports
 * which ones were asked. */
static void sentinels_die_and_return(void **state)
{
    (void)state;
    snib_client *client = must_follow(world.url);
    snib_lock *lock = must_lock(client, "m");
    snib_hold *hold = must_acquire(lock, -1);
    for (int nth = 0; nth < 2; nth++)
        node_kill(sentinels_sentinel(&world, nth));
    snib_client *newcomer = must_follow(world.url);
    EXPECT(snib_client_ping(newcomer, -1, err), SNIB_OK);
    node_kill(sentinels_sentinel(&world, 2));
    must_release(hold);
    hold = must_acquire(lock, 0);
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.patience_ms = 500;
    snib_client *late;
    snib_error error = {0};
    EXPECT(snib_client_open(world.url, &options, &late, err), SNIB_OK);
    assert_int_equal(snib_client_ping(late, -1, &error), SNIB_ECONNECT);
    assert_non_null(strstr(error.text, "no connection to sentinel 127.0.0.1:"));
    assert_non_null(strstr(error.text, " or 2 others (Connection refused); nothing was applied"));
    run_all_again();
    AWAIT(snib_client_ping(late, -1, NULL) == SNIB_OK, 10000);
    await_replicas(&world);
    fail_over(0); /* by sentinels that the client had lost and has found again */
    must_be_valid(hold, FOLLOWED_MS);
    must_release(hold);
    snib_lock_free(lock);
    snib_client_free(client);
    snib_client_free(newcomer);
    snib_client_free(late);
    run_all_again();
}

/* ---- Bad input --------------------------------------------------------------------------------------- */

static void refused_at_once(const char *url, int32_t code, const char *const *words)
{
    snib_client *client;
    snib_error error = {0};
    EXPECT(snib_client_open(url, NULL, &client, err), SNIB_OK);
    int64_t at = now_ms();
    int got = snib_client_ping(client, -1, &error);
    if (got != code)
        fail_msg("%s: %s (%s)", url, snib_code_name(got), error.text);
    assert_true(now_ms() - at < patient_ms(1000)); /* the patience is 5 s */
    for (; *words; words++)
        if (!strstr(error.text, *words))
            fail_msg("\"%s\" is not in \"%s\"", *words, error.text);
    snib_client_free(client);
}

#define WORDS(...)                                                                                 \
    (const char *[])                                                                               \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void urls_that_do_not_fit(void **state)
{
    (void)state;
    char url[512], where[64];
    const struct node *sentinel = sentinels_sentinel(&world, 0), *server = &world.nodes[0];
    snprintf(url, sizeof url, "%.*snobody", (int)(strlen(world.url) - strlen(SERVICE)), world.url);
    refused_at_once(url, SNIB_ETOPOLOGY,
                    WORDS("no sentinel knows the service \"nobody\"", "3 of 3 answered", "URL"));
    snprintf(where, sizeof where, "127.0.0.1:%d", sentinel->port);
    snprintf(url, sizeof url, "redis://%s", where);
    refused_at_once(url, SNIB_ETOPOLOGY, WORDS(where, "is a sentinel", "use redis+sentinel://"));
    snprintf(url, sizeof url, "redis://%s/3", where);
    refused_at_once(url, SNIB_ETOPOLOGY, WORDS(where, "is a sentinel", "use redis+sentinel://"));
    snprintf(where, sizeof where, "127.0.0.1:%d", server->port);
    snprintf(url, sizeof url, "redis+sentinel://%s/" SERVICE, where);
    refused_at_once(url, SNIB_ETOPOLOGY,
                    WORDS(where, "not a sentinel for \"" SERVICE "\"", "redis://"));
    snprintf(url, sizeof url, "%s?sentinel_password=unasked", world.url);
    refused_at_once(url, SNIB_EAUTH, WORDS("sentinel 127.0.0.1:", "without any password"));
}

/* Passwords of servers and of sentinels are separate. */
static void passwords(void **state)
{
    (void)state;
    struct deployment_options options = {.password = "one", .sentinel_password = "two"};
    static struct deployment locked;
    char url[512];
    sentinels_start(&locked, &options);
    refused_at_once(locked.url, SNIB_EAUTH, WORDS("(sentinel 127.0.0.1:", "NOAUTH"));
    snprintf(url, sizeof url, "%s?sentinel_password=wrong", locked.url);
    refused_at_once(url, SNIB_EAUTH, WORDS("(sentinel 127.0.0.1:", "WRONGPASS"));
    snprintf(url, sizeof url, "redis+sentinel://:wrong@%s?sentinel_password=two",
             strchr(locked.url, '@') + 1);
    char where[64];
    snprintf(where, sizeof where, "(127.0.0.1:%d)", sentinels_master(&locked)->port);
    refused_at_once(url, SNIB_EAUTH, WORDS(where, "WRONGPASS"));
    /* The rights that docs/operations.md names; the log has nothing but the wrong passwords above, and CLIENT. */
    for (int nth = 0; nth < SENTINELS; nth++)
        node_do(sentinels_sentinel(&locked, nth),
                "ACL SETUSER watcher on >three -@all resetchannels &+switch-master "
                "&+promoted-slave +ping +info +subscribe +sentinel|master "
                "+sentinel|get-master-addr-by-name +sentinel|sentinels");
    snprintf(url, sizeof url, "%s?sentinel_username=watcher&sentinel_password=three", locked.url);
    snib_client *client = must_follow(url);
    snib_lock *lock = must_lock(client, "m");
    snib_hold *hold = must_acquire(lock, -1);
    await_replicas(&locked);
    sentinels_failover(&locked);
    must_be_valid(hold, FOLLOWED_MS);
    must_release(hold);
    for (int nth = 0; nth < SENTINELS; nth++) {
        redisReply *refusals = node_command(sentinels_sentinel(&locked, nth), "ACL LOG");
        for (size_t i = 0; i < refusals->elements; i++) {
            redisReply **words = refusals->element[i]->element;
            if (strcmp(words[3]->str, "auth") != 0 && strncmp(words[7]->str, "client|", 7) != 0)
                fail_msg("refused: %s", words[7]->str);
        }
        freeReplyObject(refusals);
    }
    snib_lock_free(lock);
    snib_client_free(client);
    deployment_end(&locked);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(master_is_found_and_followed, settle),
        cmocka_unit_test_setup(holds_and_waiters_survive, settle),
        cmocka_unit_test_setup(holds_that_vanished_are_lost, settle),
        cmocka_unit_test_setup(locks_of_locks_survive, settle),
        cmocka_unit_test_setup(sentinels_die_and_return, settle),
        cmocka_unit_test_setup(urls_that_do_not_fit, settle),
        cmocka_unit_test_setup(passwords, settle),
    };
    return cmocka_run_group_tests(tests, world_start, world_end);
}
