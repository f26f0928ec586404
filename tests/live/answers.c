/* answers.c - what the client reports, and what the server has, when a reply is not the server's
 * own: an error replaces it, after the command was executed or without executing it.  The same
 * cases on real servers as in tests/unit/doubt.c, whose table is in docs/guarantees.md.
 */
#include "../support/support.h"

#include <stdlib.h>
#include <string.h>

enum { PERMITS = 3, MORE = 5 };

struct world {
    struct server server;
    struct proxy *proxy;
    snib_client *client; /* through the proxy */
    snib_client *other;  /* directly */
};

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    world.proxy = proxy_start(world.server.socket);
    proxy_read_along(world.proxy, true);
    world.client = must_open(proxy_url(world.proxy));
    world.other = must_open(world.server.url);
    *state = &world;
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    snib_client_free(world->client);
    snib_client_free(world->other);
    proxy_stop(world->proxy);
    server_stop(&world->server);
    return 0;
}

/* What happens to a request. */
enum fate { DONE, NOT_DONE, REFUSED, BUSY_THEN, LOGGED_OUT_THEN, FATES };
static const struct {
    const char *error;
    bool executed;
    int32_t code; /* what the caller is told */
} fates[FATES] = {
    [DONE] = {"UNAVAILABLE upstream failure", true, SNIB_ESERVER},
    [NOT_DONE] = {"UNAVAILABLE upstream failure", false, SNIB_ESERVER},
    [REFUSED] = {"OOM command not allowed when used memory > 'maxmemory'.", false, SNIB_EOOM},
    [BUSY_THEN] = {"BUSY Redis is busy running a script.", false, SNIB_OK},
    [LOGGED_OUT_THEN] = {"NOAUTH Authentication required.", false, SNIB_OK},
};

static void spoil(struct world *world, const char *script, int fate)
{
    char sha1[41];
    server_script(&world->server, script, sha1);
    proxy_spoil(world->proxy, sha1, 1, fates[fate].executed, fates[fate].error);
}

/* The reply was replaced, exactly once. */
static void expect_spoilt(struct world *world)
{
    static int before;
    assert_int_equal(proxy_spoilt(world->proxy), ++before);
}

static bool is_free(struct world *world, const char *name)
{
    return server_integer(&world->server, "EXISTS %s", name) == 0;
}

static long long number(struct world *world, const char *name)
{
    redisReply *reply = server_command(&world->server, "GET %s", name);
    long long value = reply->str ? strtoll(reply->str, NULL, 10) : -1;
    freeReplyObject(reply);
    return value;
}

/* Any request that the client still has to send comes before this ping, so the number is final. */
static void expect_number(struct world *world, const char *name, long long want)
{
    EXPECT(snib_client_ping(world->client, -1, err), SNIB_OK);
    assert_int_equal(number(world, name), want);
}

static snib_lock *semaphore(struct world *world, const char *name)
{
    snib_lock *lock = must_lock_kind(world->client, SNIB_SEMAPHORE, name);
    server_do(&world->server, "SET %s %d", name, PERMITS);
    return lock;
}

static void mutex_acquire(struct world *world, int fate)
{
    snib_hold *hold = NULL;
    snib_lock *lock = must_lock(world->client, "m");
    spoil(world, "mutex_acquire", fate);
    EXPECT(snib_lock_acquire(lock, 0, 0, &hold, err), fates[fate].code);
    expect_spoilt(world);
    if (fates[fate].code == SNIB_OK) {
        assert_false(is_free(world, "m"));
        must_release(hold);
    }
    AWAIT(is_free(world, "m"), 5000); /* in doubt it is undone */
    snib_lock_free(lock);
}

static void mutex_release(struct world *world, int fate)
{
    snib_lock *lock = must_lock(world->client, "m");
    snib_hold *hold = must_acquire(lock, 0);
    spoil(world, "mutex_release", fate);
    EXPECT(snib_hold_release(hold, err), fates[fate].code);
    expect_spoilt(world);
    AWAIT(is_free(world, "m"), 5000); /* a release that was not executed is retried */
    snib_hold_free(hold);
    snib_lock_free(lock);
}

static void mutex_info(struct world *world, int fate)
{
    snib_lock *lock = must_lock(world->client, "m");
    snib_hold *hold = must_acquire(lock, 0);
    snib_lock_info_data info = {.size = sizeof info};
    spoil(world, "mutex_info", fate);
    EXPECT(snib_lock_info(lock, &info, err), fates[fate].code);
    expect_spoilt(world);
    assert_int_equal(info.held, fates[fate].code == SNIB_OK);
    assert_false(is_free(world, "m"));
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    snib_lock_free(lock);
}

static void mutex_force(struct world *world, int fate)
{
    bool done = fate == DONE || fates[fate].code == SNIB_OK;
    snib_lock *lock = must_lock(world->client, "m"), *theirs = must_lock(world->other, "m");
    snib_hold *hold = must_acquire(theirs, 0);
    spoil(world, "mutex_force", fate);
    EXPECT(snib_lock_force_release(lock, err), fates[fate].code);
    expect_spoilt(world);
    EXPECT(snib_client_ping(world->client, -1, err), SNIB_OK);
    assert_int_equal(is_free(world, "m"), done);
    EXPECT(snib_hold_release(hold, err), done ? SNIB_LOST : SNIB_OK);
    snib_hold_free(hold);
    snib_lock_free(lock);
    snib_lock_free(theirs);
}

static void semaphore_acquire(struct world *world, int fate)
{
    bool done = fate == DONE || fates[fate].code == SNIB_OK;
    snib_hold *hold = NULL;
    snib_lock *lock = semaphore(world, "s");
    spoil(world, "semaphore_acquire", fate);
    EXPECT(snib_lock_acquire(lock, 0, 0, &hold, err), fates[fate].code);
    expect_spoilt(world);
    expect_number(world, "s", PERMITS - done);
    if (hold) {
        must_release(hold);
        expect_number(world, "s", PERMITS);
    }
    snib_lock_free(lock);
}

static void semaphore_release(struct world *world, int fate)
{
    snib_lock *lock = semaphore(world, "s");
    snib_hold *hold = must_acquire(lock, 0);
    spoil(world, "semaphore_release", fate);
    EXPECT(snib_hold_release(hold, err), fates[fate].code);
    expect_spoilt(world);
    if (fate == REFUSED)
        AWAIT(number(world, "s") == PERMITS, 5000); /* it is retried */
    expect_number(world, "s", fate == NOT_DONE ? PERMITS - 1 : PERMITS);
    snib_hold_free(hold);
    expect_number(world, "s", fate == NOT_DONE ? PERMITS - 1 : PERMITS);
    snib_lock_free(lock);
}

static void semaphore_count(struct world *world, int fate)
{
    bool done = fate == DONE || fates[fate].code == SNIB_OK;
    snib_lock *lock = semaphore(world, "s");
    spoil(world, "semaphore_count", fate);
    EXPECT(snib_semaphore_count(lock, SNIB_COUNT_ADD, MORE, NULL, err), fates[fate].code);
    expect_spoilt(world);
    expect_number(world, "s", PERMITS + done * MORE);
    snib_lock_free(lock);
}

static void semaphore_info(struct world *world, int fate)
{
    snib_lock *lock = semaphore(world, "s");
    snib_lock_info_data info = {.size = sizeof info};
    spoil(world, "semaphore_info", fate);
    EXPECT(snib_lock_info(lock, &info, err), fates[fate].code);
    expect_spoilt(world);
    assert_int_equal(info.count, fates[fate].code == SNIB_OK ? PERMITS : 0);
    expect_number(world, "s", PERMITS);
    snib_lock_free(lock);
}

static void semaphore_force(struct world *world, int fate)
{
    bool done = fate == DONE || fates[fate].code == SNIB_OK;
    snib_lock *lock = semaphore(world, "s");
    spoil(world, "semaphore_force", fate);
    EXPECT(snib_lock_force_release(lock, err), fates[fate].code);
    expect_spoilt(world);
    EXPECT(snib_client_ping(world->client, -1, err), SNIB_OK);
    assert_int_equal(is_free(world, "s"), done);
    snib_lock_free(lock);
}

static void all_cells(void **state)
{
    static void (*const requests[])(struct world *, int) = {
        mutex_acquire,     mutex_release,   mutex_info,     mutex_force,    semaphore_acquire,
        semaphore_release, semaphore_count, semaphore_info, semaphore_force};
    struct world *world = *state;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        for (int fate = 0; fate < FATES; fate++)
            requests[i](world, fate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_cells, world_new, world_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
