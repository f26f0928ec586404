/* unanswered.c - renewals and hand-overs that are not sent, not answered, or answered late: what the client reports, and
 * what a real server has, by the table of docs/guarantees.md.  Answers that are errors, and other requests, are in answers.c.
 */
#include "../support/support.h"

#include <string.h>

enum { SILENCE_MS = 100000, SOON_MS = 6000, LONG_MS = 20000, ATTEMPTS = 500 };

struct world {
    struct server server;
    struct proxy *proxy;
    char renew[41], transfer[41], release[41]; /* scripts */
};

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    world.proxy = proxy_start(world.server.socket);
    server_script(&world.server, "mutex_renew", world.renew);
    server_script(&world.server, "fenced_transfer", world.transfer);
    server_script(&world.server, "mutex_release", world.release);
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

/* A client through the proxy.  No answer is missed only because the machine stands still. */
static snib_client *open_through(struct world *world, int64_t lease_ms, int64_t patience_ms)
{
    snib_client *client;
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    if (lease_ms > 0)
        options.lease_ms = lease_ms;
    options.reply_timeout_ms = options.try_timeout_ms = SILENCE_MS;
    if (patience_ms > 0)
        options.patience_ms = patience_ms;
    EXPECT(snib_client_open(proxy_url(world->proxy), &options, &client, err), SNIB_OK);
    return client;
}

/* How often a script has passed since the proxy forgot. */
static int sent(struct world *world, const char *sha1)
{
    int n = 0;
    for (size_t i = 0; i < proxy_record_count(world->proxy); i++)
        n += record_is(proxy_record(world->proxy, i), sha1);
    return n;
}

static bool is_free(struct world *world, const char *name)
{
    return server_integer(&world->server, "EXISTS %s", name) == 0;
}

static void cut_off(struct world *world, snib_client *client)
{
    proxy_refuse(world->proxy, true);
    /* What is written before the client has seen the end of the connection may have been read. */
    AWAIT(snib_client_ping(client, 1, NULL) == SNIB_ECONNECT, LONG_MS);
}

/* ---- Renewals ---------------------------------------------------------------------------------- */

/* The deadline is no later than this, however long the thread stands still here; and, below, no earlier. */
static int64_t ends_by(snib_hold *hold)
{
    int64_t left = snib_hold_remaining_ms(hold);
    return left + 1 + now_ms() + 1;
}

static int64_t ends_from(snib_hold *hold)
{
    int64_t now = now_ms();
    return now + snib_hold_remaining_ms(hold);
}

/* Not before there is a connection: the deadline stays. */
static void renewal_never_sent(void **state)
{
    struct world *world = *state;
    snib_client *client = open_through(world, LONG_MS, 0);
    snib_lock *lock = must_lock(client, "m");
    snib_hold *hold = must_acquire(lock, 0);
    cut_off(world, client);
    uint64_t before = must_stats(client).renewals;
    int64_t latest = ends_by(hold);
    AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_AT_RISK, LONG_MS);
    assert_true(ends_from(hold) <= latest);
    assert_int_equal(must_stats(client).renewals, before);
    proxy_refuse(world->proxy, false);
    must_be_valid(hold, LONG_MS);
    AWAIT(must_stats(client).renewals > before, LONG_MS);
    must_release(hold);
    snib_lock_free(lock);
    snib_client_free(client);
}

/* The server has renewed, and the client has not heard of it: its deadline stays, and it asks again. */
static void renewal_never_answered(void **state)
{
    struct world *world = *state;
    snib_client *client = open_through(world, LONG_MS, 0);
    snib_lock *lock = must_lock(client, "m");
    snib_hold *hold = must_acquire(lock, 0);
    EXPECT(snib_client_ping(client, -1, err),
           SNIB_OK); /* with the connection for messages, all is said */
    proxy_stall(world->proxy, TO_CLIENT, true);
    proxy_forget(world->proxy);
    uint64_t before = must_stats(client).renewals;
    int64_t latest = ends_by(hold);
    AWAIT(sent(world, world->renew) == 1, LONG_MS);
    assert_true(ends_from(hold) <= latest);
    assert_int_equal(must_stats(client).renewals, before);
    proxy_refuse(world->proxy, true);
    proxy_stall(world->proxy, TO_CLIENT, false);
    proxy_refuse(world->proxy, false);
    AWAIT(sent(world, world->renew) >= 2, LONG_MS);
    must_be_valid(hold, LONG_MS);
    AWAIT(must_stats(client).renewals > before, LONG_MS);
    must_release(hold);
    snib_lock_free(lock);
    snib_client_free(client);
}

/* A hold whose renewal has been sent, and is not answered.  Where the machine stands still for as long as the lease, the
 * hold is lost before: then there is nothing to answer late, and the next hold is tried. */
static snib_hold *with_renewal_under_way(struct world *world, snib_lock *lock)
{
    for (int i = 0; i < 20; i++) {
        snib_hold *hold = must_acquire(lock, 0);
        proxy_stall(world->proxy, TO_CLIENT, true);
        proxy_forget(world->proxy);
        AWAIT(sent(world, world->renew) > 0 || snib_hold_state(hold, NULL) == SNIB_HOLD_LOST,
              LONG_MS);
        if (sent(world, world->renew) > 0)
            return hold;
        proxy_stall(world->proxy, TO_CLIENT, false);
        snib_hold_free(hold);
        AWAIT(is_free(world, "m"), SOON_MS);
    }
    fail_msg("no renewal is sent while there is a lease");
    return NULL;
}

/* The server has renewed, and says so when the hold is lost: that extends nothing, and the key does not stay. */
static void renewal_answered_late(void **state)
{
    struct world *world = *state;
    snib_client *client = open_through(world, SOON_MS, 0);
    snib_lock *lock = must_lock(client, "m");
    snib_hold *hold = with_renewal_under_way(world, lock);
    AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_LOST, LONG_MS);
    proxy_stall(world->proxy, TO_CLIENT, false);
    EXPECT(snib_client_ping(client, -1, err), SNIB_OK);
    assert_int_equal(snib_hold_state(hold, NULL), SNIB_HOLD_LOST);
    assert_int_equal(snib_hold_remaining_ms(hold), 0);
    EXPECT(snib_hold_release(hold, err), SNIB_LOST);
    AWAIT(is_free(world, "m"), SOON_MS);
    snib_hold_free(hold);
    snib_lock_free(lock);
    snib_client_free(client);
}

/* ---- Hand-overs ---------------------------------------------------------------------------------- */

enum { RELEASED = 1, ACQUIRED };

/* A hold that is released while another operation of the client waits for the lock. */
struct pass {
    struct world *world;
    snib_client *client;
    snib_queue *queue;
    snib_lock *lock;
    snib_hold *hold;
    snib_op *acquire, *release;
    snib_event acquired, released;
    int ends;
};

static void pass_new(struct pass *pass, struct world *world, int32_t kind, int64_t patience_ms)
{
    *pass = (struct pass){.world = world, .client = open_through(world, 0, patience_ms)};
    pass->queue = must_queue(pass->client);
    pass->lock = must_lock_kind(pass->client, kind, "x");
}

static void pass_free(struct pass *pass)
{
    snib_queue_free(pass->queue);
    snib_lock_free(pass->lock);
    snib_client_free(pass->client);
}

/* The waiter sends nothing: its client knows that it has the lock itself. */
static void pass_wait(struct pass *pass)
{
    proxy_forget(pass->world->proxy);
    pass->ends = 0;
    pass->hold = must_acquire(pass->lock, 0);
    EXPECT(snib_lock_acquire_submit(pass->lock, 0, -1, pass->queue, ACQUIRED, &pass->acquire, err),
           SNIB_OK);
}

static void pass_release(struct pass *pass)
{
    EXPECT(snib_hold_release_submit(pass->hold, pass->queue, RELEASED, &pass->release, err),
           SNIB_OK);
    snib_hold_free(pass->hold);
}

static void pass_hear(struct pass *pass, int ends)
{
    while (pass->ends < ends) {
        snib_event event = must_event(pass->queue, LONG_MS);
        *(event.token == RELEASED ? &pass->released : &pass->acquired) = event;
        pass->ends++;
    }
}

/* Release it while the server stands still, until the hand-over has passed.  On a slow machine so much time may have passed
 * since the hold was acquired that it is released for all: then again. */
static void pass_unanswered(struct pass *pass, const char *hand_over)
{
    struct world *world = pass->world;
    for (int i = 0; i < ATTEMPTS; i++) {
        pass_wait(pass);
        server_pause(&world->server);
        pass_release(pass);
        AWAIT(sent(world, hand_over) + sent(world, world->release) > 0, LONG_MS);
        if (sent(world, hand_over) > 0)
            return;
        server_continue(&world->server);
        pass_hear(pass, 2);
        must_release(pass->acquired.hold);
    }
    fail_msg("never handed over");
}

/* The connection ends; the server goes on, and reads what it was sent.  Further connections are good. */
static void pass_lose_answer(struct pass *pass)
{
    proxy_refuse(pass->world->proxy, true);
    server_continue(&pass->world->server);
    proxy_refuse(pass->world->proxy, false);
}

static void expect_good(struct pass *pass, snib_hold *hold)
{
    assert_non_null(hold);
    assert_false(is_free(pass->world, "x"));
    must_be_valid(hold, LONG_MS);
    must_release(hold);
    AWAIT(is_free(pass->world, "x"), LONG_MS);
}

/* By command, as with tokens: it is sent again with the same numbers. */
static void hand_over_never_answered(void **state)
{
    struct pass pass;
    pass_new(&pass, *state, SNIB_FENCED, SILENCE_MS);
    pass_unanswered(&pass, pass.world->transfer);
    pass_lose_answer(&pass);
    pass_hear(&pass, 2);
    assert_int_equal(pass.released.code, SNIB_OK);
    assert_int_equal(pass.acquired.code, SNIB_OK);
    assert_true(sent(pass.world, pass.world->transfer) >= 2);
    assert_int_equal(snib_hold_token(pass.acquired.hold),
                     server_integer(&pass.world->server, "INCRBY redisson_lock_token:{x} 0"));
    expect_good(&pass, pass.acquired.hold);
    pass_free(&pass);
}

/* A waiter that has left is no holder: what it was granted is released. */
static void hand_over_answered_late(void **state)
{
    struct pass pass;
    pass_new(&pass, *state, SNIB_FENCED, SILENCE_MS);
    pass_unanswered(&pass, pass.world->transfer);
    EXPECT(snib_op_cancel(pass.acquire), SNIB_OK);
    pass_hear(&pass, 1);
    assert_int_equal(pass.acquired.code, SNIB_CANCELLED);
    server_continue(&pass.world->server);
    pass_hear(&pass, 2);
    assert_int_equal(pass.released.code, SNIB_OK);
    AWAIT(is_free(pass.world, "x"), LONG_MS);
    pass_free(&pass);
}

/* Without a connection nothing is handed over: the release is sent when there is one. */
static void hand_over_never_sent(void **state)
{
    struct pass pass;
    pass_new(&pass, *state, SNIB_FENCED, 1000);
    pass_wait(&pass);
    cut_off(pass.world, pass.client);
    pass_release(&pass);
    pass_hear(&pass, 2);
    assert_int_equal(pass.released.code, SNIB_ECONNECT);
    /* Unreachable, if a try of its own was on its way. */
    assert_true(pass.acquired.code == SNIB_ECONNECT || pass.acquired.code == SNIB_EUNREACHABLE);
    assert_false(is_free(pass.world, "x"));
    proxy_refuse(pass.world->proxy, false);
    AWAIT(is_free(pass.world, "x"), LONG_MS);
    pass_free(&pass);
}

/* Without a command: the waiter has the lock, and whether the server had it until then is asked again. */
static void question_never_answered(void **state)
{
    struct pass pass;
    pass_new(&pass, *state, SNIB_MUTEX, SILENCE_MS);
    pass_unanswered(&pass, pass.world->renew);
    pass_hear(&pass, 1);
    assert_int_equal(pass.acquired.code, SNIB_OK); /* without the answer */
    pass_lose_answer(&pass);
    pass_hear(&pass, 2);
    assert_int_equal(pass.released.code, SNIB_OK);
    assert_true(sent(pass.world, pass.world->renew) >= 2);
    expect_good(&pass, pass.acquired.hold);
    pass_free(&pass);
}

/* The answer that the release no longer waits for is an answer for the waiter. */
static void question_answered_late(void **state)
{
    struct pass pass;
    pass_new(&pass, *state, SNIB_MUTEX, SILENCE_MS);
    pass_unanswered(&pass, pass.world->renew);
    pass_hear(&pass, 1);
    assert_int_equal(pass.acquired.code, SNIB_OK);
    EXPECT(snib_op_cancel(pass.release), SNIB_OK);
    pass_hear(&pass, 2);
    assert_int_equal(pass.released.code, SNIB_CANCELLED);
    server_continue(&pass.world->server);
    expect_good(&pass, pass.acquired.hold);
    pass_free(&pass);
}

#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(renewal_never_sent),       WORLD_TEST(renewal_never_answered),
        WORLD_TEST(renewal_answered_late),    WORLD_TEST(hand_over_never_sent),
        WORLD_TEST(hand_over_never_answered), WORLD_TEST(hand_over_answered_late),
        WORLD_TEST(question_never_answered),  WORLD_TEST(question_answered_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
