/* Commands that a user may not run: locks work without them, by what else there is. */
#define _GNU_SOURCE
#include "../support/support.h"

#include <stdio.h>
#include <string.h>

enum { LEASE_MS = 3000 };

#define POLLS "the server refused a subscription: waiters poll instead"
#define UNTIMED "the server does not answer TIME"

static const struct {
    const char *rule;
    const char *told; /* what the log says beside the connections; NULL: nothing */
} forbidden[] = {
    {"-wait", NULL},
    {"-info", NULL},
    {"-config", NULL},
    {"-role", NULL},
    {"-time", UNTIMED},
    {"-subscribe", POLLS},
    {"-client", NULL},
    {"-client|id", NULL},
    {"-client|kill", NULL},
    {"-script", NULL},
    {"-script|load", NULL},
    {"-eval", NULL},
    {"-publish", NULL},
    {"-ping -select -hello", NULL},
    {"-info -client -script -subscribe -publish -role -config -wait", POLLS},
};

static snib_client *open_without(struct server *server, const char *rule)
{
    char command[256];
    snib_client_options options;
    snib_client *client = NULL;
    snprintf(command, sizeof command, "ACL SETUSER locker reset on >secret ~* &* +@all %s", rule);
    server_do(server, command);
    snib_client_options_init(&options, sizeof options);
    options.username = "locker";
    options.password = "secret";
    options.lease_ms = LEASE_MS;
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

static const int32_t kinds[] = {SNIB_MUTEX, SNIB_FENCED, SNIB_READ, SNIB_WRITE,
                                SNIB_PLAIN, SNIB_SPIN,   SNIB_FAIR};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* One has a lock of each kind, which is renewed twice, and then the other has it, who waited meanwhile. */
static void use_kinds(snib_client *one, snib_client *other, int n)
{
    snib_lock *mine[KINDS], *theirs[KINDS];
    snib_hold *holds[KINDS];
    snib_op *ops[KINDS];
    snib_event event;
    for (int k = 0; k < n; k++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", k);
        mine[k] = must_lock_kind(one, kinds[k], name);
        theirs[k] = must_lock_kind(other, kinds[k], name);
        holds[k] = must_acquire(mine[k], 0);
        EXPECT(snib_lock_acquire_submit(theirs[k], 0, -1, NULL, 0, &ops[k], err), SNIB_OK);
    }
    uint64_t renewals = must_stats(one).renewals;
    AWAIT(must_stats(one).renewals >= renewals + 2 * (uint64_t)n, 10000);
    for (int k = 0; k < n; k++) {
        EXPECT(snib_hold_check(holds[k], err), SNIB_OK);
        if (kinds[k] != SNIB_READ)
            EXPECT(snib_op_wait(ops[k], 0, &event, err), SNIB_AGAIN);
    }
    for (int k = 0; k < n; k++) {
        must_release(holds[k]);
        EXPECT(snib_op_wait(ops[k], patient_ms(10000), &event, err), SNIB_OK);
        EXPECT(event.code, SNIB_OK);
        must_release(event.hold);
        snib_lock_free(mine[k]);
        snib_lock_free(theirs[k]);
    }
}

static snib_queue *log_of(snib_client *client)
{
    snib_queue *log = must_queue(client);
    EXPECT(snib_client_log(client, log, SNIB_LOG_INFO, err), SNIB_OK);
    return log;
}

/* How many records say what is told; there is no other but of connections. */
static int count_told(snib_queue *log, const char *rule, const char *told)
{
    snib_event event;
    int count = 0;
    while (snib_queue_drain(log, &event, 1, NULL) == 1) {
        if (told && strstr(event.text, told))
            count++;
        else if (strncmp(event.text, "connected to ", 13) != 0)
            fail_msg("%s: the log says: %s", rule, event.text);
    }
    return count;
}

static void locks_work_without(void **state)
{
    struct server *server = *state;
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        const char *rule = forbidden[i].rule, *told = forbidden[i].told;
        bool polls = told && strcmp(told, POLLS) == 0, untimed = told && !polls;
        server_do(server, "SCRIPT FLUSH");
        snib_client *one = open_without(server, rule), *other = open_without(server, rule);
        snib_queue *logs[] = {log_of(one), log_of(other)};
        use_kinds(one, other,
                  untimed ? KINDS - 1 : KINDS); /* a fair lock's scripts ask for the time */
        uint64_t polling = must_stats(one).polling + must_stats(other).polling;
        if ((polling > 0) != polls)
            fail_msg("%s: %d refused subscriptions", rule, (int)polling);
        int seen = count_told(logs[0], rule, told) + count_told(logs[1], rule, told);
        if (seen != (polls ? (int)polling : untimed ? 2 : 0))
            fail_msg("%s: the log says %d times: %s", rule, seen, told);
        snib_client_free(one);
        snib_client_free(other);
        server_do(server, "DEL redisson_lock_token:{x1}");
        AWAIT(server_is_empty(server), 10000);
    }
}

/* Where scripts cannot be loaded they are sent whole, once: the server knows them by their hash then. */
static void scripts_are_sent_whole_once(void **state)
{
    struct server *server = *state;
    server_do(server, "SCRIPT FLUSH");
    snib_client *client = open_without(server, "-script");
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
    client = open_without(server, "-script -eval");
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
