/* sick.c - a server that is paused, busy, full, or cannot save, or that ends connections, while locks are held, waited
 * for and asked for.
 *
 * Whatever the sickness, nobody has a second hold; a hold that cannot be renewed is lost by its deadline and stays lost;
 * and once the server is well again, all that was given up is gone and waiters get their locks.
 */
#include "../support/support.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEASE_MS = 1500, LONG_MS = 60000, SICK_MS = 5000, SOON_MS = 10000 };
enum { TRY_MS = 500, PATIENCE_MS = 600000 }; /* a try ends before the sickness, a wait does not */

struct world {
    struct server server;
    redisContext *other; /* another program's connection */
    snib_client *client, *rival;
};

static snib_client *open_patient(struct world *world, int64_t lease_ms)
{
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    options.recheck_ms = options.try_timeout_ms = TRY_MS;
    options.patience_ms = PATIENCE_MS;
    snib_client *client = NULL;
    EXPECT(snib_client_open(world->server.url, &options, &client, err), SNIB_OK);
    must_release(must_acquire(must_lock(client, "first"), SOON_MS));
    return client;
}

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, "--enable-debug-command", "yes", NULL);
    world.other = redisConnectUnix(world.server.socket);
    world.client = open_patient(&world, LEASE_MS);
    world.rival = open_patient(&world, LONG_MS);
    *state = &world;
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    snib_client_free(world->client);
    snib_client_free(world->rival);
    redisFree(world->other);
    server_stop(&world->server);
    return 0;
}

/* Send another program's command, whose reply is not awaited. */
static void other_sends(struct world *world, const char *format, ...)
{
    int done = 0;
    va_list list;
    va_start(list, format);
    assert_int_equal(redisvAppendCommand(world->other, format, list), REDIS_OK);
    va_end(list);
    while (!done)
        assert_int_equal(redisBufferWrite(world->other, &done), REDIS_OK);
}

static void other_is_done(struct world *world)
{
    void *reply = NULL;
    assert_int_equal(redisGetReply(world->other, &reply), REDIS_OK);
    freeReplyObject(reply);
}

static void expect_one_owner(struct world *world, snib_hold *hold)
{
    char owner[128];
    EXPECT(snib_hold_owner(hold, owner, err), SNIB_OK);
    expect_held_by(&world->server, "held", owner);
}

/* One hold, one waiter, and one try during the sickness. */
static void endure(struct world *world, void (*fall_ill)(struct world *),
                   void (*recover)(struct world *))
{
    snib_lock *tried = must_lock_lease(world->client, "tried", LONG_MS, -1);
    snib_hold *hold = must_acquire(must_lock(world->client, "held"), 0), *none = NULL;
    snib_op *op = NULL;
    EXPECT(snib_lock_acquire_submit(must_lock(world->rival, "held"), 0, -1, NULL, 0, &op, err),
           SNIB_OK);
    AWAIT(must_stats(world->rival).waiting == 1, SOON_MS);

    int64_t since_ms = now_ms();
    fall_ill(world);
    int code = snib_lock_acquire(tried, 0, 0, &none, NULL);
    if (code == SNIB_OK && now_ms() - since_ms >= SICK_MS)
        must_release(none); /* the machine stood still for as long */
    else if (code >= 0 || !snib_code_is(code, SNIB_IS_RETRYABLE))
        fail_msg("a try at a sick server gave %s", snib_code_name(code));
    int32_t reason;
    EXPECT(snib_hold_wait(hold, patient_ms(LEASE_MS), &reason, err), SNIB_LOST);
    assert_int_equal(reason, SNIB_REASON_UNREACHABLE);
    assert_int_equal(snib_hold_remaining_ms(hold), 0);

    recover(world);
    snib_event event = must_end(op, SOON_MS);
    assert_int_equal(event.code, SNIB_OK);
    expect_one_owner(world, event.hold);
    AWAIT(server_integer(&world->server, "EXISTS tried") == 0,
          SOON_MS); /* long before its lease ends */
    EXPECT(snib_hold_check(hold, err), SNIB_LOST);
    EXPECT(snib_hold_release(hold, err), SNIB_LOST);
    expect_one_owner(world, event.hold);
    must_release(event.hold);
    snib_hold_free(hold);
    snib_lock_free(tried);
    must_release(must_acquire(must_lock(world->client, "held"), SOON_MS));
    expect_free(&world->server, "held");
}

/* ---- Pauses -------------------------------------------------------------------------------------- */

/* A pause of all commands cannot be ended: the server answers nobody. */
static void pause_all(struct world *world)
{
    server_do(&world->server, "CLIENT PAUSE %d ALL", SICK_MS);
}

static void pause_writes(struct world *world)
{
    server_do(&world->server, "CLIENT PAUSE %d WRITE", SICK_MS);
}

static void await_the_end(struct world *world)
{
    server_do(&world->server, "SET after pause");
    server_do(&world->server, "DEL after");
}

static void clients_paused(void **state)
{
    endure(*state, pause_all, await_the_end);
}

static void writes_paused(void **state)
{
    endure(*state, pause_writes, await_the_end);
}

static void sleep_on(struct world *world)
{
    other_sends(world, "DEBUG SLEEP %d", SICK_MS / 1000);
}

static void slow_command(void **state)
{
    struct world *world = *state;
    endure(world, sleep_on, other_is_done);
}

/* ---- Endless scripts ------------------------------------------------------------------------------ */

/* Whether it answers BUSY, and to its administrator too. */
static bool is_busy(struct world *world)
{
    redisReply *reply = redisCommand(world->server.admin, "PING");
    bool busy = reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "BUSY", 4) == 0;
    freeReplyObject(reply);
    return busy;
}

static void run_for_ever(struct world *world, const char *script)
{
    server_do(&world->server, "CONFIG SET lua-time-limit 10");
    other_sends(world, "EVAL %s 0", script);
    AWAIT(is_busy(world), SOON_MS);
}

static void run_without_writes(struct world *world)
{
    run_for_ever(world, "while true do end");
}

static void run_with_a_write(struct world *world)
{
    run_for_ever(world, "redis.call('set', 'x', 1) while true do end");
}

static void end_script(struct world *world)
{
    assert_true(is_busy(world)); /* no client has ended it */
    server_do(&world->server, "SCRIPT KILL");
    other_is_done(world);
}

static void end_server(struct world *world)
{
    assert_true(is_busy(world));
    server_restart(&world->server);
}

static void endless_script(void **state)
{
    endure(*state, run_without_writes, end_script);
}

static void endless_script_that_writes(void **state)
{
    endure(*state, run_with_a_write, end_server);
}

/* ---- A server that is full, or cannot save --------------------------------------------------------- */

/* Only locks have a time to live here, so the server evicts them first. */
static void evicted(void **state)
{
    struct world *world = *state;
    snib_client *client = must_open_lease(world->server.url, 4 * LEASE_MS);
    snib_hold *hold = must_acquire(must_lock(client, "held"), 0);
    server_do(&world->server, "CONFIG SET maxmemory-policy volatile-ttl");
    server_do(&world->server, "CONFIG SET maxmemory 16mb");
    for (int i = 0; server_integer(&world->server, "EXISTS held") == 1; i++) {
        assert_true(i < 64);
        redisReply *reply = redisCommand(world->server.admin, "SETRANGE fill:%d 999999 x", i);
        freeReplyObject(reply); /* at last an error: nothing is left to be evicted */
    }
    server_do(&world->server, "CONFIG SET maxmemory 0");
    int32_t reason;
    EXPECT(snib_hold_wait(hold, patient_ms(4 * LEASE_MS), &reason, err), SNIB_LOST);
    assert_int_equal(reason, SNIB_REASON_DELETED);
    expect_free(&world->server, "held");
    EXPECT(snib_hold_release(hold, err), SNIB_LOST);
    snib_hold_free(hold);
    snib_client_free(client);
}

static void forbid_saving(struct world *world)
{
    char path[128];
    snprintf(path, sizeof path, "%s/dump.rdb", world->server.dir);
    mkdir(path, 0700);
    server_do(&world->server, "CONFIG SET save %s", "3600 1000000");
    server_do(&world->server, "BGSAVE");
    bool failed = false;
    for (int64_t end = now_ms() + patient_ms(SOON_MS); !failed && now_ms() < end; nap_us(1000)) {
        redisReply *reply = server_command(&world->server, "INFO persistence");
        failed = strstr(reply->str, "rdb_last_bgsave_status:err");
        freeReplyObject(reply);
    }
    assert_true(failed);
    rmdir(path);
}

static void cannot_save_while_held(void **state)
{
    struct world *world = *state;
    snib_hold *hold = must_acquire(must_lock(world->client, "held"), 0),
              *given = must_acquire(must_lock_lease(world->client, "given", 2 * LONG_MS, -1), 0);
    forbid_saving(world);
    EXPECT(snib_hold_release(given, err), SNIB_EMISCONF);
    int32_t reason;
    EXPECT(snib_hold_wait(hold, patient_ms(LEASE_MS), &reason, err), SNIB_LOST);
    assert_int_equal(reason, SNIB_REASON_UNREACHABLE);
    server_do(&world->server, "CONFIG SET save %s", "");
    uint64_t renewals = must_stats(world->client).renewals;
    AWAIT(server_is_empty(&world->server),
          SOON_MS); /* long before the lease of what was given back ends */
    must_release(must_acquire(must_lock(world->rival, "held"), 0));
    must_release(must_acquire(must_lock(world->rival, "given"), 0));
    assert_int_equal(must_stats(world->client).renewals, renewals);
    EXPECT(snib_hold_release(hold, err), SNIB_LOST);
    snib_hold_free(hold);
    snib_hold_free(given);
}

/* ---- Connections that the server ends -------------------------------------------------------------- */

static void idle_connections_are_ended(void **state)
{
    struct world *world = *state;
    server_do(&world->server, "CONFIG SET timeout 1");
    snib_client *client = must_open_lease(world->server.url, LONG_MS);
    snib_hold *hold = must_acquire(must_lock(client, "held"), 0);
    AWAIT(must_stats(client).reconnects >= 3, SOON_MS);
    redisReply *reply = NULL; /* the test's own connections have been ended, too */
    for (int i = 0; !reply && i < 100; i++) {
        redisReconnect(world->server.admin);
        reply = redisCommand(world->server.admin, "CONFIG SET timeout 0");
    }
    freeReplyObject(reply);
    must_be_valid(hold, SOON_MS);
    expect_one_owner(world, hold);
    must_release(hold);
    expect_free(&world->server, "held");
    snib_client_free(client);
}

/* The password, the database and the subscriptions belong to the connection.  In database 0 another client has a lock of
 * the same name. */
static void ended_in_another_database(void **state)
{
    struct world *world = *state;
    char url[200];
    server_do(&world->server, "ACL SETUSER app on >right +@all ~* &*");
    snprintf(url, sizeof url, "unix://app:right@%s?db=9", world->server.socket);
    snib_client *client = must_open_lease(url, LONG_MS),
                *other = must_open_recheck(url, LONG_MS, LONG_MS);
    snib_hold *trap = must_acquire(must_lock(world->rival, "held"), 0),
              *hold = must_acquire(must_lock(client, "held"), 0);
    snib_op *op = NULL;
    EXPECT(snib_lock_acquire_submit(must_lock(other, "held"), 0, -1, NULL, 0, &op, err), SNIB_OK);
    AWAIT(must_stats(other).waiting == 1, SOON_MS);
    for (int i = 0; i < 10; i++) {
        uint64_t before = must_stats(client).reconnects;
        server_do(&world->server, "CLIENT KILL TYPE pubsub");
        server_do(&world->server, "CLIENT KILL USER app");
        AWAIT(must_stats(client).reconnects > before, SOON_MS);
        must_be_valid(hold, SOON_MS);
        expect_one_owner(world, trap);
    }
    AWAIT(server_channels(&world->server) >= 1, SOON_MS);
    must_release(hold);
    snib_event event = must_end(op, SOON_MS); /* by the message: it asks again in a minute only */
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    must_release(trap);
    assert_true(server_is_empty(&world->server));
    snib_client_free(client);
    snib_client_free(other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* see idle_connections_are_ended */
    const struct CMUnitTest tests[] = {
        TEST(clients_paused),
        TEST(writes_paused),
        TEST(slow_command),
        TEST(endless_script),
        TEST(endless_script_that_writes),
        TEST(evicted),
        TEST(cannot_save_while_held),
        TEST(idle_connections_are_ended),
        TEST(ended_in_another_database),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
