/* cuts.c - lost replies, connections that end at every byte, requests that arrive late.
 *
 * Whatever happens to the connection during acquire or release, the result is true, the count at
 * the server never exceeds 1, the key is gone after the release, and no client has to wait for a
 * lease to end.
 */
#include "../support/support.h"

#include <string.h>

enum { LEASE_MS = 20000, PROMPT_MS = 10000 }; /* prompt: far below a lease */

struct world {
    struct server server;
    struct proxy *proxy;
    snib_client *client, *direct; /* through the proxy; straight to the server */
    snib_lock *lock, *rival;
};

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    world.proxy = proxy_start(world.server.socket);
    world.client = must_open_lease(proxy_url(world.proxy), LEASE_MS);
    world.direct = must_open(world.server.url);
    world.lock = must_lock(world.client, "cut");
    world.rival = must_lock(world.direct, "cut");
    must_release(must_acquire(world.lock, 0)); /* connects, and loads the scripts */
    must_release(must_acquire(world.rival, 0));
    *state = &world;
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    snib_client_free(world->client);
    snib_client_free(world->direct);
    proxy_stop(world->proxy);
    server_stop(&world->server);
    return 0;
}

/* One acquire and release with a fault in between; all guarantees are checked around it. */
static void pair(struct world *world)
{
    int64_t start = now_ms();
    snib_hold *hold = must_acquire(world->lock, PROMPT_MS);
    char owner[128];
    EXPECT(snib_hold_owner(hold, owner, err), SNIB_OK);
    expect_held_by(&world->server, "cut", owner);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    EXPECT(snib_hold_release(hold, err), SNIB_OK);
    expect_free(&world->server, "cut");
    EXPECT(snib_hold_check(hold, err), SNIB_NOT_HELD);
    EXPECT(snib_hold_release(hold, err), SNIB_NOT_HELD);
    snib_hold_free(hold);
    must_release(must_acquire(world->rival, 0));
    assert_true(now_ms() - start < PROMPT_MS);
}

/* Cut after 0, 1, 2 ... bytes until the pair no longer reaches the cut: every byte was covered. */
static void cut_everywhere(struct world *world, enum direction direction, enum cut_mode mode,
                           int least)
{
    int cut = 0;
    for (;; cut++) {
        int before = proxy_cuts(world->proxy);
        proxy_cut(world->proxy, direction, cut, mode);
        pair(world);
        if (proxy_cuts(world->proxy) == before)
            break;
        pair(world); /* the next connection works */
    }
    print_message("          %d cuts\n", cut);
    assert_true(cut >= least);
    proxy_cut(world->proxy, direction, INT64_MAX, mode);
}

enum { REQUEST_BYTES_LEAST = 200, REPLY_BYTES_LEAST = 8 }; /* of one acquire and one release */

static void request_cut_by_fin(void **state)
{
    cut_everywhere(*state, TO_SERVER, CUT_FIN, REQUEST_BYTES_LEAST);
}

static void request_cut_by_rst(void **state)
{
    cut_everywhere(*state, TO_SERVER, CUT_RST, REQUEST_BYTES_LEAST);
}

static void reply_cut_by_fin(void **state)
{
    cut_everywhere(*state, TO_CLIENT, CUT_FIN, REPLY_BYTES_LEAST);
}

static void reply_cut_by_rst(void **state)
{
    cut_everywhere(*state, TO_CLIENT, CUT_RST, REPLY_BYTES_LEAST);
}

/* The server has executed the request and its reply is lost, many times in a row. */
static void reply_to_acquire_lost(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < count_of(1000, 200); i++) {
        int before = proxy_cuts(world->proxy);
        proxy_cut(world->proxy, TO_CLIENT, 0, i % 2 ? CUT_FIN : CUT_RST);
        pair(world);
        assert_int_equal(proxy_cuts(world->proxy), before + 1);
    }
}

static void reply_to_release_lost(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < count_of(1000, 200); i++) {
        snib_hold *hold = must_acquire(world->lock, PROMPT_MS);
        int before = proxy_cuts(world->proxy);
        proxy_cut(world->proxy, TO_CLIENT, 0, i % 2 ? CUT_FIN : CUT_RST);
        EXPECT(snib_hold_release(hold, err), SNIB_OK); /* held until the first try released it */
        assert_int_equal(proxy_cuts(world->proxy), before + 1);
        expect_free(&world->server, "cut");
        snib_hold_free(hold);
    }
}

/* Between a release whose reply is lost and its retry another client takes the lock: the release
 * succeeded, and the retry must not take the lock from its new holder. */
static void release_repeated_over_a_rival(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < count_of(200, 40); i++) {
        snib_hold *hold = must_acquire(world->lock, PROMPT_MS);
        int before = proxy_cuts(world->proxy);
        proxy_cut(world->proxy, TO_CLIENT, 0, CUT_RST);
        snib_op *op = NULL;
        EXPECT(snib_hold_release_submit(hold, NULL, 0, &op, err), SNIB_OK);
        AWAIT(proxy_cuts(world->proxy) == before + 1, PROMPT_MS);
        snib_hold *theirs = must_acquire(world->rival, PROMPT_MS);
        assert_int_equal(must_end(op, PROMPT_MS).code, SNIB_OK);
        char owner[128];
        EXPECT(snib_hold_owner(theirs, owner, err), SNIB_OK);
        expect_held_by(&world->server, "cut", owner);
        must_release(theirs);
        snib_hold_free(hold);
    }
}

/* A request is in flight when the connection breaks, and reaches the server only after the client
 * has retried on another connection.  A late acquire must leave nothing behind. */
static void late_request(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < count_of(500, 100); i++) {
        int before = proxy_cuts(world->proxy);
        proxy_hold_back(world->proxy);
        snib_hold *hold = must_acquire(world->lock, PROMPT_MS);
        assert_int_equal(proxy_cuts(world->proxy), before + 1);
        if (i % 2)
            proxy_let_go(world->proxy); /* while it is held: idempotent */
        EXPECT(snib_hold_release(hold, err), SNIB_OK);
        proxy_let_go(world->proxy); /* after the release: must have no effect */
        snib_hold_free(hold);
        must_release(must_acquire(world->rival, PROMPT_MS));
        expect_free(&world->server, "cut");
    }
}

/* The connection stays up without replies, for acquire and release in turn: it is given up after
 * the reply timeout, and the request is repeated on another one once the server can be heard
 * again. */
static void silent_connection(void **state)
{
    struct world *world = *state;
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.reply_timeout_ms = 100;
    options.patience_ms =
        patient_ms(PROMPT_MS); /* a busy machine does not answer so soon each time */
    snib_client *client = NULL;
    EXPECT(snib_client_open(proxy_url(world->proxy), &options, &client, err), SNIB_OK);
    snib_lock *lock = must_lock(client, "cut");
    must_release(must_acquire(lock, 0));
    for (int i = 0; i < count_of(50, 10); i++) {
        snib_op *op = NULL;
        snib_event event = {.size = sizeof event};
        proxy_stall(world->proxy, i % 2 ? TO_SERVER : TO_CLIENT, true);
        EXPECT(snib_lock_acquire_submit(lock, 0, patient_ms(PROMPT_MS), NULL, 0, &op, err),
               SNIB_OK);
        EXPECT(snib_op_wait(op, 150, &event, err), SNIB_AGAIN);
        proxy_stall(world->proxy, i % 2 ? TO_SERVER : TO_CLIENT, false);
        event = must_end(op, PROMPT_MS);
        assert_int_equal(event.code, SNIB_OK);
        snib_hold *hold = event.hold;
        proxy_stall(world->proxy, i % 2 ? TO_SERVER : TO_CLIENT, true);
        EXPECT(snib_hold_release_submit(hold, NULL, 0, &op, err), SNIB_OK);
        EXPECT(snib_op_wait(op, 150, &event, err), SNIB_AGAIN);
        proxy_stall(world->proxy, i % 2 ? TO_SERVER : TO_CLIENT, false);
        event = must_end(op, PROMPT_MS);
        assert_int_equal(event.code, SNIB_OK);
        snib_hold_free(hold);
        expect_free(&world->server, "cut");
    }
    assert_true(must_stats(client).reconnects > 0);
    snib_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reply_to_acquire_lost, world_new, world_free),
        cmocka_unit_test_setup_teardown(reply_to_release_lost, world_new, world_free),
        cmocka_unit_test_setup_teardown(release_repeated_over_a_rival, world_new, world_free),
        cmocka_unit_test_setup_teardown(request_cut_by_fin, world_new, world_free),
        cmocka_unit_test_setup_teardown(request_cut_by_rst, world_new, world_free),
        cmocka_unit_test_setup_teardown(reply_cut_by_fin, world_new, world_free),
        cmocka_unit_test_setup_teardown(reply_cut_by_rst, world_new, world_free),
        cmocka_unit_test_setup_teardown(late_request, world_new, world_free),
        cmocka_unit_test_setup_teardown(silent_connection, world_new, world_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
