/* clock.c - the server's clock is set while locks are held: that is logged and counted, and holds
 * are at risk until they are renewed.  The server's replies to TIME are changed in transit; its
 * leases are not.
 */
#include "../support/support.h"

#include <string.h>

enum { LEASE_MS = 6000, LONG_MS = 600000, HOUR_S = 3600, SOON_MS = 20000 };

struct world {
    struct server server;
    struct proxy *proxy;
};

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    world.proxy = proxy_start(world.server.socket);
    proxy_set_clock(world.proxy, 0);
    *state = &world;
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    proxy_stop(world->proxy);
    server_stop(&world->server);
    return 0;
}

static int times_asked(struct proxy *proxy)
{
    int asked = 0;
    for (size_t i = 0, n = proxy_record_count(proxy); i < n; i++)
        asked += strcmp(proxy_record(proxy, i)->argv[0], "TIME") == 0;
    return asked;
}

/* A client sends TIME only when it has the last reply, or has waited a third of a lease for it. */
static void let_it_learn(struct proxy *proxy)
{
    int before = times_asked(proxy);
    AWAIT(times_asked(proxy) >= before + 2, SOON_MS);
}

static void expect_record(snib_queue *queue, int32_t level, const char *part)
{
    snib_event event;
    do
        event = must_event(queue, SOON_MS);
    while (event.kind != SNIB_EVENT_LOG || !strstr(event.text, part));
    assert_int_equal(event.reason, level);
}

static void expect_doubt(snib_client *client, snib_queue *queue, struct proxy *proxy,
                         struct server *server, int64_t ahead_s, uint64_t moves,
                         const char *sentence)
{
    snib_hold *renewed = must_acquire(must_lock(client, "renewed"), 0);
    snib_hold *fixed = must_acquire(must_lock_lease(client, "fixed", LONG_MS, 0), 0);
    let_it_learn(proxy);
    assert_int_equal(must_stats(client).clock_moves, moves - 1);
    AWAIT(snib_hold_state(fixed, NULL) == SNIB_HOLD_VALID, SOON_MS);
    server_do(server, "PEXPIRE fixed %d", LONG_MS / 2); /* as if the step had shortened it */
    proxy_set_clock(proxy, ahead_s);
    AWAIT(must_stats(client).clock_moves == moves, SOON_MS);
    expect_record(queue, SNIB_LOG_WARNING, sentence);
    AWAIT(snib_hold_state(renewed, NULL) == SNIB_HOLD_VALID, SOON_MS);
    AWAIT(snib_hold_state(fixed, NULL) == SNIB_HOLD_VALID,
          SOON_MS); /* given again what is left of it */
    let_it_learn(proxy);
    assert_int_equal(must_stats(client).clock_moves, moves); /* counted once */
    long long there_ms = server_integer(server, "PTTL fixed");
    assert_true(there_ms > LONG_MS / 2 && snib_hold_remaining_ms(fixed) <= there_ms);
    must_release(renewed);
    must_release(fixed);
}

static void set_forward_and_back(void **state)
{
    struct world *world = *state;
    snib_client *client = must_open_lease(proxy_url(world->proxy), LEASE_MS);
    snib_queue *queue = must_queue(client);
    EXPECT(snib_client_log(client, queue, SNIB_LOG_WARNING, err), SNIB_OK);
    expect_doubt(client, queue, world->proxy, &world->server, HOUR_S, 1, "has moved by at least +");
    expect_doubt(client, queue, world->proxy, &world->server, 0, 2, "has moved by at least -");
    snib_queue_free(queue);
    snib_client_free(client);
}

/* A client without the right to TIME logs that, and its locks still work. */
static void time_is_refused(void **state)
{
    struct world *world = *state;
    server_do(&world->server, "ACL SETUSER timeless on >none ~* &* +@all -time");
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS;
    options.username = "timeless";
    options.password = "none";
    snib_client *client = NULL;
    EXPECT(snib_client_open(proxy_url(world->proxy), &options, &client, err), SNIB_OK);
    snib_queue *queue = must_queue(client);
    EXPECT(snib_client_log(client, queue, SNIB_LOG_INFO, err), SNIB_OK);
    snib_hold *hold = must_acquire(must_lock(client, "renewed"), 0);
    expect_record(queue, SNIB_LOG_INFO, "does not answer TIME");
    uint64_t before = must_stats(client).renewals;
    AWAIT(must_stats(client).renewals >= before + 2, SOON_MS);
    assert_int_equal(times_asked(world->proxy), 1);
    AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_VALID, SOON_MS);
    must_release(hold);
    snib_queue_free(queue);
    snib_client_free(client);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(set_forward_and_back),
        TEST(time_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
