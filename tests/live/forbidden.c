/* Commands that a user may not run: locks work without them, by what else there is. */
#define _GNU_SOURCE
#include "../support/support.h"

#include <stdio.h>

static const struct {
    const char *rule;
    bool polls;   /* waiters cannot subscribe */
    bool untimed; /* no kind whose scripts ask for the time */
} forbidden[] = {
    {"-wait", false, false},
    {"-info", false, false},
    {"-config", false, false},
    {"-role", false, false},
    {"-time", false, true},
    {"-subscribe", true, false},
    {"-client", false, false},
    {"-client|id", false, false},
    {"-client|kill", false, false},
    {"-script", false, false},
    {"-script|load", false, false},
    {"-eval", false, false},
    {"-publish", false, false},
    {"-ping -select -hello", false, false},
    {"-info -client -script -subscribe -publish -role -config -wait", true, false},
};

#define LEASE_MS                                                                                   \
    300 /* where the processor is late the hold is lost: it is tried again with a longer one */

static snib_client *open_without(struct server *server, const char *rule, int64_t lease_ms)
{
    char command[256];
    snib_client_options options;
    snib_client *client = NULL;
    snprintf(command, sizeof command, "ACL SETUSER locker reset on >secret ~* &* +@all %s", rule);
    server_do(server, command);
    snib_client_options_init(&options, sizeof options);
    options.username = "locker";
    options.password = "secret";
    options.lease_ms = lease_ms;
    options.recheck_ms = 1000;
    EXPECT(snib_client_open(server->url, &options, &client, err), SNIB_OK);
    return client;
}

static int world_new(void **state)
{
    static struct server server;
    server_start(&server, NULL);
    *state = &server;
    return 0;
}

static int world_free(void **state)
{
    server_stop(*state);
    return 0;
}

/* Whether it was held until now. */
static bool give_back(snib_hold *hold)
{
    snib_error error;
    int code = snib_hold_release(hold, &error);
    if (code != SNIB_OK && code != SNIB_LOST)
        fail_msg("%s", error.text);
    snib_hold_free(hold);
    return code == SNIB_OK;
}

/* One holds it for two renewals, while the other waits.  False: the lease was too short for this machine. */
static bool use_kind(snib_client *one, snib_client *other, int32_t kind)
{
    snib_lock *mine = NULL, *theirs = NULL;
    EXPECT(snib_lock_new(one, kind, "x", 1, NULL, &mine, err), SNIB_OK);
    EXPECT(snib_lock_new(other, kind, "x", 1, NULL, &theirs, err), SNIB_OK);
    snib_hold *hold = must_acquire(mine, 0);
    snib_op *op = NULL;
    snib_event event;
    EXPECT(snib_lock_acquire_submit(theirs, 0, -1, NULL, 0, &op, err), SNIB_OK);
    if (kind != SNIB_READ) {
        uint64_t renewals = must_stats(one).renewals;
        AWAIT(must_stats(one).renewals >= renewals + 2 || snib_hold_check(hold, NULL) == SNIB_LOST,
              10000);
        int code = snib_op_wait(op, 0, &event, NULL);
        if (snib_hold_check(hold, NULL) == SNIB_OK && code != SNIB_AGAIN)
            fail_msg("two have it");
    }
    bool kept = give_back(hold);
    EXPECT(snib_op_wait(op, patient_ms(10000), &event, err), SNIB_OK);
    EXPECT(event.code, SNIB_OK);
    kept = give_back(event.hold) && kept;
    snib_lock_free(mine);
    snib_lock_free(theirs);
    return kept;
}

static bool works_without(struct server *server, size_t i, int64_t lease_ms)
{
    static const int32_t kinds[] = {SNIB_MUTEX, SNIB_FENCED, SNIB_READ, SNIB_WRITE,
                                    SNIB_PLAIN, SNIB_SPIN,   SNIB_FAIR};
    bool kept = true;
    server_do(server, "SCRIPT FLUSH");
    snib_client *one = open_without(server, forbidden[i].rule, lease_ms);
    snib_client *other = open_without(server, forbidden[i].rule, lease_ms);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && kept; k++)
        if (kinds[k] != SNIB_FAIR || !forbidden[i].untimed)
            kept = use_kind(one, other, kinds[k]);
    uint64_t polling = must_stats(one).polling + must_stats(other).polling;
    if (kept && (polling > 0) != forbidden[i].polls)
        fail_msg("%s: %d refused subscriptions", forbidden[i].rule, (int)polling);
    snib_client_free(one);
    snib_client_free(other);
    server_do(server, "DEL redisson_lock_token:{x}");
    AWAIT(server_is_empty(server), 10000);
    return kept;
}

static void locks_work_without(void **state)
{
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        int64_t lease_ms = LEASE_MS;
        while (!works_without(*state, i, lease_ms)) {
            lease_ms *= 2;
            assert_true(lease_ms < 64 * LEASE_MS);
        }
    }
}

/* Where scripts cannot be loaded they are sent whole, once: the server knows them by their hash then. */
static void scripts_are_sent_whole_once(void **state)
{
    struct server *server = *state;
    server_do(server, "SCRIPT FLUSH");
    snib_client *client = open_without(server, "-script", 10 * LEASE_MS);
    snib_lock *lock = must_lock(client, "x");
    long long whole = server_calls(server, "eval"), hashed = server_calls(server, "evalsha");
    for (int i = 0; i < 20; i++)
        must_release(must_acquire(lock, 0));
    assert_int_equal(server_calls(server, "eval") - whole, 2);
    assert_int_equal(server_calls(server, "evalsha") - hashed, 40);
    server_do(server, "SCRIPT FLUSH"); /* also in the middle of a hold */
    snib_hold *hold = must_acquire(lock, 0);
    server_do(server, "SCRIPT FLUSH");
    uint64_t renewals = must_stats(client).renewals;
    AWAIT(must_stats(client).renewals >= renewals + 2, 10000);
    must_release(hold);
    snib_client_free(client);
    client = open_without(server, "-script -eval", LEASE_MS);
    server_do(server, "SCRIPT FLUSH");
    snib_hold *none = NULL;
    EXPECT(snib_lock_acquire(must_lock(client, "x"), 0, 0, &none, err), SNIB_EPERM);
    snib_client_free(client);
    assert_true(server_is_empty(server));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(locks_work_without, world_new, world_free),
        cmocka_unit_test_setup_teardown(scripts_are_sent_whole_once, world_new, world_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
