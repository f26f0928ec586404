/* Commands that a user may not run: locks work without them, by other means. */
#define _GNU_SOURCE
#include "../support/support.h"

#include <stdio.h>
#include <string.h>

enum { LEASE_MS = 10000 };

/* What the log says, to each client: once, or for POLLS once for each refused subscription. */
enum { POLLS = 1, UNTIMED = 2, ENDLESS = 4, WHOLE = 8, UNHEARD = 16, TEXTS = 5 };
static const char *const texts[TEXTS] = {
    "refused a subscription: waiters poll instead",
    "does not answer TIME",
    "cannot be killed",
    "the server refused SCRIPT LOAD: a script that it does not know is sent whole",
    "the server refused to publish that a lock was released",
};

static const struct {
    const char *rule;
    int told;
} forbidden[] = {
    {"-wait", 0},
    {"-info", ENDLESS},
    {"-config", 0},
    {"-role", 0},
    {"-time", UNTIMED},
    {"-subscribe", POLLS},
    {"-client", ENDLESS},
    {"-client|id", ENDLESS},
    {"-client|kill", 0}, /* it is needed after a break: tests/unit/links.c */
    {"-script", WHOLE},
    {"-script|load", WHOLE},
    {"-eval", 0},
    {"-publish", UNHEARD},
    {"resetchannels &redisson_lock__channel:none*", POLLS | UNHEARD},
    {"-ping -select -hello", 0},
    {"-info -client -script -subscribe -publish -role -config -wait",
     POLLS | ENDLESS | WHOLE | UNHEARD},
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

static const int32_t kinds[] = {SNIB_MUTEX, SNIB_FENCED, SNIB_READ, SNIB_WRITE,
                                SNIB_PLAIN, SNIB_SPIN,   SNIB_FAIR};
enum { KINDS = sizeof kinds / sizeof *kinds };

static snib_queue *log_of(snib_client *client)
{
    snib_queue *log = must_queue(client);
    EXPECT(snib_client_log(client, log, SNIB_LOG_INFO, err), SNIB_OK);
    return log;
}

/* Count the log's records by text; there are no others but those about connections and slow machines. */
static void count_told(snib_queue *log, const char *rule, int counts[TEXTS])
{
    snib_event event;
    while (snib_queue_drain(log, &event, 1, NULL) == 1) {
        int i = 0;
        while (i < TEXTS && !strstr(event.text, texts[i]))
            i++;
        if (i < TEXTS)
            counts[i]++;
        else if (strncmp(event.text, "connected to ", 13) != 0 &&
                 !strstr(event.text, "this process gets too little CPU time"))
            fail_msg("%s: the log says: %s", rule, event.text);
    }
}

/* A separate server per rule, because a script that one client has loaded need not be loaded by
 * another. */
struct trial {
    struct server server;
    const char *rule;
    int told;
    int n; /* number of kinds */
    snib_client *one, *other;
    snib_queue *logs[2];
    snib_lock *held[KINDS], *awaited[KINDS];
    snib_hold *holds[KINDS];
    snib_op *ops[KINDS];
    uint64_t renewals;
};

/* One client has a lock of each kind, and the other waits for it, or has it too where both are
 * readers. */
static void trial_begin(struct trial *t, const char *rule, int told)
{
    t->rule = rule;
    t->told = told;
    t->n = told & UNTIMED ? KINDS - 1 : KINDS; /* a fair lock's scripts use TIME */
    server_start(&t->server, NULL);
    t->one = open_without(&t->server, rule);
    t->other = open_without(&t->server, rule);
    t->logs[0] = log_of(t->one);
    t->logs[1] = log_of(t->other);
    for (int k = 0; k < t->n; k++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", k);
        t->held[k] = must_lock_kind(t->one, kinds[k], name);
        t->awaited[k] = must_lock_kind(t->other, kinds[k], name);
        t->holds[k] = must_acquire(t->held[k], 10000);
        EXPECT(snib_lock_acquire_submit(t->awaited[k], 0, -1, NULL, 0, &t->ops[k], err), SNIB_OK);
    }
    t->renewals = must_stats(t->one).renewals;
}

/* The hold is renewed twice, and then the other client gets the lock. */
static void trial_go_on(struct trial *t)
{
    snib_event event;
    AWAIT(must_stats(t->one).renewals >= t->renewals + 2 * (uint64_t)t->n, 20000);
    for (int k = 0; k < t->n; k++) {
        EXPECT(snib_hold_check(t->holds[k], err), SNIB_OK);
        if (kinds[k] != SNIB_READ)
            EXPECT(snib_op_wait(t->ops[k], 0, &event, err), SNIB_AGAIN);
    }
    for (int k = 0; k < t->n; k++)
        must_release(t->holds[k]);
    for (int k = 0; k < t->n; k++) {
        EXPECT(snib_op_wait(t->ops[k], patient_ms(10000), &event, err), SNIB_OK);
        EXPECT(event.code, SNIB_OK);
        must_release(event.hold);
        snib_lock_free(t->held[k]);
        snib_lock_free(t->awaited[k]);
    }
}

static void trial_end(struct trial *t)
{
    uint64_t polling = must_stats(t->one).polling + must_stats(t->other).polling;
    if ((polling > 0) != (t->told & POLLS))
        fail_msg("%s: %d refused subscriptions", t->rule, (int)polling);
    int refused = 0;
    for (int i = 0; i < 2; i++) {
        int counts[TEXTS] = {0};
        count_told(t->logs[i], t->rule, counts);
        refused += counts[0];
        for (int j = 1; j < TEXTS; j++)
            if (counts[j] != (t->told >> j & 1))
                fail_msg("%s: the log says %d times: %s", t->rule, counts[j], texts[j]);
    }
    if (refused != (int)polling)
        fail_msg("%s: the log says %d times: %s", t->rule, refused, texts[0]);
    snib_client_free(t->one);
    snib_client_free(t->other);
    server_do(&t->server, "DEL redisson_lock_token:{x1}");
    AWAIT(server_is_empty(&t->server), 10000);
    server_stop(&t->server);
}

static void locks_work_without(void **state)
{
    (void)state;
    enum { RULES = sizeof forbidden / sizeof *forbidden };
    static struct trial trials[RULES];
    for (size_t i = 0; i < RULES; i++)
        trial_begin(&trials[i], forbidden[i].rule, forbidden[i].told);
    for (size_t i = 0; i < RULES; i++)
        trial_go_on(&trials[i]);
    for (size_t i = 0; i < RULES; i++)
        trial_end(&trials[i]);
}

/* Scripts that cannot be loaded are sent in full, once: the server knows them by their hash
 * then. */
static void scripts_are_sent_whole_once(void **state)
{
    struct server *server = *state;
    snib_client *client = open_without(server, "-script");
    snib_lock *lock = must_lock(client, "x");
    long long whole = server_calls(server, "eval"), hashed = server_calls(server, "evalsha");
    for (int i = 0; i < 20; i++)
        must_release(must_acquire(lock, 10000));
    assert_int_equal(server_calls(server, "eval") - whole, 2);
    assert_int_equal(server_calls(server, "evalsha") - hashed, 40);
    server_do(server, "SCRIPT FLUSH"); /* also while it is held */
    snib_hold *hold = must_acquire(lock, 10000);
    server_do(server, "SCRIPT FLUSH");
    uint64_t renewals = must_stats(client).renewals;
    AWAIT(must_stats(client).renewals >= renewals + 2, 20000);
    must_release(hold);
    snib_client_free(client);
    client = open_without(server, "-script -eval");
    server_do(server, "SCRIPT FLUSH");
    snib_hold *none = NULL;
    EXPECT(snib_lock_acquire(must_lock(client, "x"), 0, 0, &none, err), SNIB_EPERM);
    snib_client_free(client);
    assert_true(server_is_empty(server));
}

static bool is_told_unheard(snib_queue *log, int counts[TEXTS])
{
    count_told(log, "-publish", counts);
    return counts[4] > 0;
}

/* Each release says so by its own reply; the client logs the first.  A fair lock has a message only for a waiter. */
static void each_unpublished_release_is_told(void **state)
{
    static const int32_t lone[] = {SNIB_MUTEX, SNIB_FENCED,  SNIB_READ,     SNIB_WRITE,
                                   SNIB_PLAIN, SNIB_PERMITS, SNIB_SEMAPHORE};
    enum { LONE = sizeof lone / sizeof *lone, MUTEXES = LONE, MIXED, ALL };
    struct server *server = *state;
    for (int i = 0; i < ALL; i++) {
        snib_client *client = open_without(server, "-publish");
        snib_queue *log = log_of(client);
        snib_lock *members[] = {must_lock(client, "a"),
                                must_lock_kind(client, i == MIXED ? SNIB_WRITE : SNIB_MUTEX, "b")};
        snib_lock *lock = NULL;
        if (i >= LONE)
            EXPECT(snib_multi_new(members, 2, NULL, &lock, err), SNIB_OK);
        else
            lock = must_lock_kind(client, lone[i], "x");
        bool counts_permits = i < LONE && (lone[i] == SNIB_PERMITS || lone[i] == SNIB_SEMAPHORE);
        server_do(server, counts_permits ? "SET x 1" : "DEL x");
        for (int j = 0; j < 3; j++)
            must_release(must_acquire(lock, 0));
        int counts[TEXTS] = {0};
        AWAIT(is_told_unheard(log, counts), 10000);
        snib_client_free(client);
        count_told(log, "-publish", counts);
        if (counts[4] != 1)
            fail_msg("lock %d: the log says %d times: %s", i, counts[4], texts[4]);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(locks_work_without),
        cmocka_unit_test_setup_teardown(scripts_are_sent_whole_once, world_new, world_free),
        cmocka_unit_test_setup_teardown(each_unpublished_release_is_told, world_new, world_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
