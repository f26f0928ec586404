/* golden.c - what the scripts leave at the server, replayed step by step without the library.
 *
 * The traces are Redisson's plain lock as seen on the wire, with the library's own choices: the
 * count stays 1, a repeated request changes nothing, and there is no unlock latch.
 */
#include "../support/support.h"

#include <string.h>

static const char *const owner_a = "aaaaaaaa-0000-8000-8000-000000000001:1";
static const char *const owner_b = "bbbbbbbb-0000-8000-8000-000000000002:7";
static const char *const channel = "redisson_lock__channel:{K}";
enum { TTL_SLACK_MS = 1000 };

struct world {
    struct server server;
    redisContext *subscriber;
    char acquire[41], release[41], transfer[41], renew[41], info[41], force[41];
};

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    server_script(&world.server, "mutex_acquire", world.acquire);
    server_script(&world.server, "mutex_release", world.release);
    server_script(&world.server, "mutex_transfer", world.transfer);
    server_script(&world.server, "mutex_renew", world.renew);
    server_script(&world.server, "mutex_info", world.info);
    server_script(&world.server, "mutex_force", world.force);
    world.subscriber = redisConnectUnix(world.server.socket);
    freeReplyObject(redisCommand(world.subscriber, "SUBSCRIBE %s", channel));
    *state = &world;
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    redisFree(world->subscriber);
    server_stop(&world->server);
    return 0;
}

/* The hash at K is exactly {owner: 1} with about this TTL. */
static void expect_lock(struct world *world, const char *owner, long long ttl_ms)
{
    expect_held_by(&world->server, "K", owner);
    long long left = server_integer(&world->server, "PTTL K");
    assert_in_range(left, ttl_ms - TTL_SLACK_MS, ttl_ms);
    assert_int_equal(server_integer(&world->server, "DBSIZE"), 1); /* no auxiliary key */
}

/* Expect `count` messages "0" and no others.  A marker message ends the check. */
static void expect_messages(struct world *world, int count)
{
    server_do(&world->server, "PUBLISH %s marker", channel);
    for (int i = 0; i <= count; i++) {
        redisReply *reply;
        assert_int_equal(redisGetReply(world->subscriber, (void **)&reply), REDIS_OK);
        assert_string_equal(reply->element[1]->str, channel);
        assert_string_equal(reply->element[2]->str, i < count ? "0" : "marker");
        freeReplyObject(reply);
    }
}

static void expect_nil(struct world *world, const char *sha1, const char *owner, const char *lease)
{
    redisReply *reply = server_command(&world->server, "EVALSHA %s 1 K %s %s", sha1, owner, lease);
    assert_int_equal(reply->type, REDIS_REPLY_NIL);
    freeReplyObject(reply);
}

static long long release(struct world *world, const char *owner)
{
    return server_integer(&world->server, "EVALSHA %s 1 K %s %s", world->release, owner, channel);
}

static void acquire_and_release(void **state)
{
    struct world *world = *state;
    expect_nil(world, world->acquire, owner_a, "5000");
    expect_lock(world, owner_a, 5000);
    expect_nil(world, world->acquire, owner_a,
               "10000"); /* a repetition sets the lease, not the count */
    expect_lock(world, owner_a, 10000);
    expect_nil(world, world->acquire, owner_a, "2000"); /* but never a shorter one */
    expect_lock(world, owner_a, 10000);
    long long left =
        server_integer(&world->server, "EVALSHA %s 1 K %s 30000", world->acquire, owner_b);
    assert_in_range(left, 10000 - TTL_SLACK_MS, 10000);
    expect_lock(world, owner_a, 10000);
    assert_int_equal(release(world, owner_b), 0);
    expect_lock(world, owner_a, 10000);
    expect_messages(world, 0);
    assert_int_equal(release(world, owner_a), 2); /* one receiver */
    assert_true(server_is_empty(&world->server));
    expect_messages(world, 1);
    assert_int_equal(release(world, owner_a), 0); /* again: no release, no message */
    expect_messages(world, 0);
}

static void transfer(void **state)
{
    struct world *world = *state;
    expect_nil(world, world->acquire, owner_a, "5000");
    for (int i = 0; i < 2; i++) /* the second is a repetition */
        assert_int_equal(server_integer(&world->server, "EVALSHA %s 1 K %s %s 30000",
                                        world->transfer, owner_a, owner_b),
                         1);
    expect_lock(world, owner_b, 30000);
    expect_messages(world, 0);
    assert_int_equal(release(world, owner_b), 2);
    expect_messages(world, 1);
    assert_int_equal(server_integer(&world->server, "EVALSHA %s 1 K %s %s 30000", world->transfer,
                                    owner_a, owner_b),
                     0);
    assert_true(server_is_empty(&world->server));
}

/* As owner A over K1 (A's), K2 (B's), K3 (absent), K4 (a string): only K1's lease changes. */
static void renew(void **state)
{
    struct world *world = *state;
    server_do(&world->server, "EVALSHA %s 1 {r}1 %s 5000", world->acquire, owner_a);
    server_do(&world->server, "EVALSHA %s 1 {r}2 %s 5000", world->acquire, owner_b);
    server_do(&world->server, "SET {r}4 data");
    redisReply *reply =
        server_command(&world->server, "EVALSHA %s 4 {r}1 {r}2 {r}3 {r}4 30000 %s %s %s %s",
                       world->renew, owner_a, owner_a, owner_a, owner_a);
    static const int lost[] = {2, 1, 3, 0, 4, 1}; /* index, then 1: another owner's or 0: gone */
    assert_int_equal(reply->elements, 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(reply->element[i]->integer, lost[i]);
    freeReplyObject(reply);
    assert_in_range(server_integer(&world->server, "PTTL {r}1"), 30000 - TTL_SLACK_MS, 30000);
    assert_in_range(server_integer(&world->server, "PTTL {r}2"), 1, 5000);
    assert_int_equal(server_integer(&world->server, "EXISTS {r}3"), 0);
    assert_int_equal(server_integer(&world->server, "PTTL {r}4"), -1);
    reply = server_command(&world->server, "EVALSHA %s 1 {r}2 0 %s", world->renew,
                           owner_b); /* check only */
    assert_int_equal(reply->elements, 0);
    freeReplyObject(reply);
    assert_in_range(server_integer(&world->server, "PTTL {r}2"), 1, 5000);
}

static void info(void **state)
{
    struct world *world = *state;
    redisReply *reply = server_command(&world->server, "EVALSHA %s 1 K %s", world->info, channel);
    assert_int_equal(reply->element[0]->integer, -2);
    assert_string_equal(reply->element[1]->str, "");
    assert_int_equal(reply->element[2]->integer, 0);
    assert_int_equal(reply->element[3]->integer, 1); /* this test's subscriber */
    freeReplyObject(reply);
    expect_nil(world, world->acquire, owner_a, "30000");
    reply = server_command(&world->server, "EVALSHA %s 1 K %s", world->info, channel);
    assert_in_range(reply->element[0]->integer, 30000 - TTL_SLACK_MS, 30000);
    assert_string_equal(reply->element[1]->str, owner_a);
    assert_int_equal(reply->element[2]->integer, 1);
    freeReplyObject(reply);
}

static long long force(struct world *world)
{
    return server_integer(&world->server, "EVALSHA %s 1 K %s", world->force, channel);
}

static void force_release(void **state)
{
    struct world *world = *state;
    assert_int_equal(force(world), 0);
    expect_messages(world, 0);
    expect_nil(world, world->acquire, owner_b, "30000");
    assert_int_equal(force(world), 1);
    assert_true(server_is_empty(&world->server));
    expect_messages(world, 1);
}

/* Other data under the name survives every script. */
static void other_data(void **state)
{
    struct world *world = *state;
    const char *const makers[] = {"SET K v", "RPUSH K v", "SADD K v", "ZADD K 1 v",
                                  "HSET K field v"};
    const char *const calls[] = {"1 K a:1 30000", "1 K a:1 channel", "1 K channel"};
    const char *const scripts[] = {world->acquire, world->release, world->force};
    for (size_t m = 0; m < sizeof makers / sizeof *makers; m++) {
        server_do(&world->server, makers[m]);
        redisReply *before = server_command(&world->server, "DUMP K");
        for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
            char command[128];
            snprintf(command, sizeof command, "EVALSHA %s %s", scripts[c], calls[c]);
            redisReply *reply = redisCommand(world->server.admin, command);
            bool refused = reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "WRONGTYPE");
            bool held =
                m == 4 && reply->type == REDIS_REPLY_INTEGER; /* a hash: like another's lock */
            if (!refused && !held)
                fail_msg("%s after %s: %s", command, makers[m],
                         reply->str ? reply->str : "no error");
            freeReplyObject(reply);
        }
        redisReply *after = server_command(&world->server, "DUMP K");
        assert_int_equal(before->len, after->len);
        assert_memory_equal(before->str, after->str, (size_t)before->len);
        assert_int_equal(server_integer(&world->server, "PTTL K"), -1);
        freeReplyObject(before);
        freeReplyObject(after);
        server_do(&world->server, "DEL K");
    }
    expect_messages(world, 0);
}

/* If the server refuses the lease no lock is left behind, least of all one without a TTL. */
static void refused_lease(void **state)
{
    struct world *world = *state;
    const char *const leases[] = {"abc", "1e3", "9223372036854775807", "1.5"};
    for (size_t i = 0; i < sizeof leases / sizeof *leases; i++) {
        redisReply *reply = redisCommand(world->server.admin, "EVALSHA %s 1 K %s %s",
                                         world->acquire, owner_a, leases[i]);
        assert_int_equal(reply->type, REDIS_REPLY_ERROR);
        freeReplyObject(reply);
        assert_true(server_is_empty(&world->server));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(acquire_and_release), TEST(transfer),   TEST(renew),         TEST(info),
        TEST(force_release),       TEST(other_data), TEST(refused_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
