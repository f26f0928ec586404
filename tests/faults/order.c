/* order.c - a renewal is never sent, and never takes effect, after the release was sent.
 *
 * A recording proxy sees the bytes.  Leases are short and links slow, so that renewals are always
 * due or in flight when a lock is released.
 */
#include "../support/support.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct world {
    struct server server;
    struct proxy *proxy;
    char release[41], transfer[41], renew[41], acquire[41];
};

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    world.proxy = proxy_start(world.server.socket);
    server_script(&world.server, "mutex_acquire", world.acquire);
    server_script(&world.server, "mutex_release", world.release);
    server_script(&world.server, "mutex_transfer", world.transfer);
    server_script(&world.server, "mutex_renew", world.renew);
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

/* Both scripts have the owner that gives the lock back as their first argument. */
static bool ends_hold(struct world *world, const struct record *record, const char *owner)
{
    return (record_is(record, world->release) || record_is(record, world->transfer)) &&
           strcmp(record->argv[4], owner) == 0;
}

/* No renewal names the owner after its release.  Returns how many renewals named it before. */
static int renewals_before_release(struct world *world, const char *owner, bool must_be_released)
{
    int renewals = 0;
    bool released = false;
    for (size_t i = 0; i < proxy_record_count(world->proxy); i++) {
        const struct record *record = proxy_record(world->proxy, i);
        if (!record_names(record, owner))
            continue;
        if (ends_hold(world, record, owner))
            released = true;
        if (record_is(record, world->renew)) {
            if (released)
                fail_msg("owner %s: renewed after its release", owner);
            renewals++;
        }
    }
    assert_true(released || !must_be_released);
    return renewals;
}

struct chaser {
    struct world *world;
    snib_client *client;
    int id, pairs;
    char (*owners)[128];
    bool *released; /* as reported by the client */
};

/* If the machine stalls, a grant may come after so short a lease, and so may each reply of a
 * connection that is being made. */
static snib_hold *acquire_in_time(snib_lock *lock)
{
    snib_hold *hold = NULL;
    snib_error error;
    int code = SNIB_EUNREACHABLE;
    while (code == SNIB_EUNREACHABLE || code == SNIB_ECONNECT)
        code = snib_lock_acquire(lock, 0, -1, &hold, &error);
    expect_code_at(code, SNIB_OK, &error, __FILE__, __LINE__);
    return hold;
}

/* Whether it is known to be released.  If the machine stalls, the client's patience may end before the reply comes; it
 * then goes on releasing. */
static bool release_in_time(snib_hold *hold)
{
    snib_error error;
    int code = snib_hold_release(hold, &error);
    if (code != SNIB_LOST && code != SNIB_EUNREACHABLE && code != SNIB_ECONNECT)
        expect_code_at(code, SNIB_OK, &error, __FILE__, __LINE__);
    return code == SNIB_OK;
}

static void *chaser_run(void *argument)
{
    struct chaser *chaser = argument;
    char name[32];
    snprintf(name, sizeof name, "order:%d", chaser->id);
    snib_lock *lock = must_lock(chaser->client, name);
    unsigned seed = (unsigned)chaser->id;
    for (int i = 0; i < chaser->pairs; i++) {
        snib_hold *hold = acquire_in_time(lock);
        EXPECT(snib_hold_owner(hold, chaser->owners[i], err), SNIB_OK);
        nap_us(rand_r(&seed) % 90000); /* renewals are due after 33 ms, again after 66 ms */
        chaser->released[i] = release_in_time(hold);
        snib_hold_free(hold);
    }
    snib_lock_free(lock);
    return NULL;
}

/* Many holds of one client, leases of 100 ms, released before, with and after a renewal.
 * Afterwards every lock is free at once: a renewal that took effect late would show as a key. */
static void chase(struct world *world, int64_t delay_ms, int pairs)
{
    enum { CHASERS = 16 };
    static char owners[CHASERS][200][128];
    static bool released[CHASERS][200];
    struct chaser chasers[CHASERS];
    pthread_t threads[CHASERS];
    proxy_forget(world->proxy);
    proxy_delay(world->proxy, TO_SERVER, delay_ms);
    proxy_delay(world->proxy, TO_CLIENT, delay_ms);
    snib_client *client = must_open_lease(proxy_url(world->proxy), 100);
    for (int i = 0; i < CHASERS; i++) {
        chasers[i] = (struct chaser){world, client, i, pairs, owners[i], released[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, chaser_run, &chasers[i]), 0);
    }
    for (int i = 0; i < CHASERS; i++)
        pthread_join(threads[i], NULL);
    EXPECT(snib_client_close(client, patient_ms(3000), err), SNIB_OK);
    assert_true(server_is_empty(&world->server));
    int renewals = 0;
    for (int i = 0; i < CHASERS; i++)
        for (int p = 0; p < pairs; p++)
            renewals += renewals_before_release(world, owners[i][p], released[i][p]);
    print_message("          %d holds, %d renewals of them\n", CHASERS * pairs, renewals);
    assert_true(renewals > pairs); /* the chase did happen */
    snib_client_free(client);
}

static void on_a_fast_link(void **state)
{
    chase(*state, 0, count_of(200, 40));
}

static void on_a_slow_link(void **state)
{
    chase(*state, 7, count_of(200, 40));
}

/* The connection ends while renewal and release are in flight, and both would be repeated. */
static void over_a_reconnect(void **state)
{
    struct world *world = *state;
    proxy_delay(world->proxy, TO_SERVER, 0);
    proxy_delay(world->proxy, TO_CLIENT, 2);
    const int runs = count_of(500, 150), cuts = proxy_cuts(world->proxy);
    int renewals = 0;
    for (int run = 0; run < runs; run++) {
        proxy_forget(world->proxy);
        snib_client *client = must_open_lease(proxy_url(world->proxy), 150);
        AWAIT(snib_client_ping(client, -1, NULL) == SNIB_OK, 3000);
        snib_hold *hold = acquire_in_time(must_lock(client, "reconnect"));
        char owner[128];
        EXPECT(snib_hold_owner(hold, owner, err), SNIB_OK);
        nap_us(48000 + random() % 5000);
        proxy_cut(world->proxy, TO_CLIENT, random() % 12, run % 2 ? CUT_FIN : CUT_RST);
        bool released = release_in_time(hold);
        proxy_cut(world->proxy, TO_CLIENT, INT64_MAX, CUT_FIN); /* if both replies came first */
        EXPECT(snib_client_close(client, patient_ms(3000), err), SNIB_OK);
        expect_free(&world->server, "reconnect");
        renewals += renewals_before_release(world, owner, released);
        snib_client_free(client);
    }
    proxy_delay(world->proxy, TO_CLIENT, 0);
    const int met = proxy_cuts(world->proxy) - cuts;
    print_message("          %d holds, %d renewals of them, %d cuts\n", runs, renewals, met);
    assert_true(met > runs / 10); /* each third at least is before the reply's end */
    if (renewals == 0)
        skip_because("no renewal was on its way when a connection ended");
}

/* A fixed lease is never renewed. */
static void fixed_lease_is_not_renewed(void **state)
{
    struct world *world = *state;
    proxy_forget(world->proxy);
    snib_client *client = must_open_lease(proxy_url(world->proxy), 100);
    snib_hold *hold = acquire_in_time(must_lock_lease(client, "fixed", 400, 0));
    char owner[128];
    EXPECT(snib_hold_owner(hold, owner, err), SNIB_OK);
    EXPECT(snib_hold_wait(hold, patient_ms(2000), NULL, err), SNIB_LOST);
    assert_int_equal(renewals_before_release(world, owner, false), 0);
    snib_hold_free(hold);
    snib_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_a_fast_link),
        cmocka_unit_test(on_a_slow_link),
        cmocka_unit_test(over_a_reconnect),
        cmocka_unit_test(fixed_lease_is_not_renewed),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
