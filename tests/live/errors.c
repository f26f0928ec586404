/* errors.c - what an error text contains: the lock and its kind, the server and its message, the
 * reason of a loss; and what a client reports if the server is down.
 */
#define _GNU_SOURCE
#include "../support/support.h"

#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 2000, TRY_MS = 300, LEASE_MS = 1500 };

static snib_client *open_trying(const char *url, int64_t patience_ms, int64_t try_ms)
{
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.patience_ms = patience_ms;
    options.try_timeout_ms = try_ms;
    options.lease_ms = LEASE_MS;
    snib_client *client = NULL;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

/* A wait of 0 fails only if the lock is busy. */
static snib_client *open_with(const char *url, int64_t patience_ms)
{
    return open_trying(url, patience_ms, patient_ms(1000));
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

static void says(int code, int want, const snib_error *error, const char *text)
{
    if (code != want || error->code != want || !strstr(error->text, text))
        fail_msg("%s \"%s\" instead of %s \"%s\"", snib_code_name(code), error->text,
                 snib_code_name(want), text);
}

/* ---- The lock ---------------------------------------------------------------------------------- */

static void lock_is_named(void **state)
{
    static const char *const kinds[] = {
        [SNIB_MUTEX] = "mutex",      [SNIB_FAIR] = "fair lock",      [SNIB_READ] = "read lock",
        [SNIB_WRITE] = "write lock", [SNIB_FENCED] = "fenced lock",  [SNIB_SPIN] = "spin lock",
        [SNIB_PLAIN] = "plain lock", [SNIB_SEMAPHORE] = "semaphore", [SNIB_PERMITS] = "permits",
        [SNIB_LATCH] = "latch",
    };
    struct server *server = *state;
    snib_client *client = open_with(server->url, PATIENCE_MS);
    for (int32_t kind = SNIB_MUTEX; kind <= SNIB_LATCH; kind++) {
        snib_error error = {0};
        snib_hold *hold = NULL;
        char want[64];
        server_do(server, "DEL %s", "a \"b");
        server_do(server, "LPUSH %s 1", "a \"b"); /* not a lock of any kind */
        snib_lock *lock = must_lock_kind(client, kind, "a \"b");
        int code = kind == SNIB_LATCH ? snib_latch_wait(lock, 0, &error)
                                      : snib_lock_acquire(lock, 0, 0, &hold, &error);
        snprintf(want, sizeof want, "%s \"a \\\"b\": ", kinds[kind]);
        says(code, SNIB_EWRONGTYPE, &error, want);
        says(code, SNIB_EWRONGTYPE, &error, "WRONGTYPE");
        assert_non_null(strstr(error.text, server->socket));
        snib_lock_free(lock);
    }
    snib_client_free(client);
}

static void outcomes_name_it(void **state)
{
    struct server *server = *state;
    snib_client *client = open_with(server->url, PATIENCE_MS),
                *other = open_with(server->url, PATIENCE_MS);
    snib_hold *theirs = must_acquire(must_lock(other, "orders"), 0), *hold = NULL;
    snib_lock *lock = must_lock(client, "orders");
    snib_error error = {0};
    says(snib_lock_acquire(lock, 0, 0, &hold, &error), SNIB_BUSY, &error,
         "mutex \"orders\": another owner");
    says(snib_lock_acquire(lock, 0, 30, &hold, &error), SNIB_TIMEDOUT, &error,
         "mutex \"orders\": the wait ended");
    snib_queue *queue = must_queue(client);
    EXPECT(snib_lock_acquire_submit(lock, 0, 30, queue, 1, NULL, err), SNIB_OK);
    assert_non_null(strstr(must_event(queue, 5000).text, "mutex \"orders\": the wait ended"));
    must_release(theirs);
    hold = must_acquire(lock, 0);
    EXPECT(snib_hold_release(hold, err), SNIB_OK);
    says(snib_hold_release(hold, &error), SNIB_NOT_HELD, &error,
         "mutex \"orders\": it is not held");
    says(snib_hold_check(hold, &error), SNIB_NOT_HELD, &error, "mutex \"orders\": it is not held");
    snib_hold_free(hold);
    char name[513];
    memset(name, 'n', sizeof name);
    name[512] = 0;
    hold = must_acquire(must_lock(other, name), 0);
    says(snib_lock_acquire(must_lock(client, name), 0, 0, NULL, &error), SNIB_EINVAL, &error, "");
    snib_hold *none = NULL;
    says(snib_lock_acquire(must_lock(client, name), 0, 0, &none, &error), SNIB_BUSY, &error,
         "nnn\"...: another owner holds the lock");
    must_release(hold);
    snib_lock *latch = must_lock_kind(client, SNIB_LATCH, "start");
    EXPECT(snib_latch_count(latch, SNIB_COUNT_INIT, 2, NULL, err), SNIB_OK);
    says(snib_latch_wait(latch, 0, &error), SNIB_BUSY, &error,
         "latch \"start\": its count is not 0");
    says(snib_latch_wait(latch, 30, &error), SNIB_TIMEDOUT, &error,
         "latch \"start\": the wait ended before its count was 0");
    snib_lock *permits = must_lock_kind(client, SNIB_PERMITS, "slots");
    says(snib_permits_acquire(permits, 1, 0, &none, &error), SNIB_BUSY, &error,
         "permits \"slots\": too few permits are free");
    says(snib_permits_acquire(permits, 1, 30, &none, &error), SNIB_TIMEDOUT, &error,
         "permits \"slots\": the wait ended before enough permits were free");
    snib_lock *semaphore = must_lock_kind(client, SNIB_SEMAPHORE, "licences");
    says(snib_semaphore_acquire(semaphore, 1, 0, &none, &error), SNIB_BUSY, &error,
         "semaphore \"licences\": too few permits are free");
    snib_queue_free(queue);
    snib_client_free(client);
    snib_client_free(other);
}

static void loss_has_its_reason(void **state)
{
    struct server *server = *state;
    snib_client *client = open_with(server->url, PATIENCE_MS);
    snib_queue *queue = must_queue(client);
    snib_hold *hold = NULL;
    snib_error error = {0};
    snib_event event;
    uint64_t reconnects;
    do { /* a release that is sent again, on a slow machine, may have worked the first time */
        snib_hold_free(hold);
        hold = must_acquire(must_lock(client, "a"), 0);
        reconnects = must_stats(client).reconnects;
        server_do(server, "DEL a");
        EXPECT(snib_hold_release_submit(hold, queue, 7, NULL, err), SNIB_OK);
        event = must_event(queue, 5000); /* due to the reply to the release */
    } while (event.code == SNIB_OK && must_stats(client).reconnects > reconnects);
    assert_int_equal(event.code, SNIB_LOST);
    assert_int_equal(event.reason, SNIB_REASON_DELETED);
    assert_string_equal(event.text, "mutex \"a\" was lost (deleted): stop working under it");
    snib_hold_free(hold);
    hold = must_acquire(must_lock_lease(client, "b", 100, 0), 0);
    EXPECT(snib_hold_wait(hold, 5000, NULL, err), SNIB_LOST);
    says(snib_hold_check(hold, &error), SNIB_LOST, &error, "mutex \"b\" was lost (expired)");
    assert_int_equal(error.reason, SNIB_REASON_EXPIRED);
    says(snib_hold_release(hold, &error), SNIB_LOST, &error, "mutex \"b\" was lost (expired)");
    assert_int_equal(error.reason, SNIB_REASON_EXPIRED);
    says(snib_hold_check(NULL, &error), SNIB_EHANDLE, &error, "");
    assert_int_equal(error.reason, SNIB_REASON_NONE);
    snib_hold_free(hold);
    snib_queue_free(queue);
    snib_client_free(client);
}

static void rights_are_told(void **state)
{
    struct server *server = *state;
    server_do(server, "ACL SETUSER app on >p ~ok* &* +@all");
    char url[256];
    snprintf(url, sizeof url, "unix://app:p@%s", server->socket);
    snib_client *client = open_with(url, PATIENCE_MS);
    snib_error error = {0};
    snib_hold *hold = NULL;
    says(snib_lock_acquire(must_lock(client, "secret"), 0, 0, &hold, &error), SNIB_EPERM, &error,
         "the server said: NOPERM");
    assert_non_null(strstr(error.text, "mutex \"secret\""));
    snib_client_free(client);
    snprintf(url, sizeof url, "unix://app:wrong@%s", server->socket);
    client = open_with(url, PATIENCE_MS);
    says(snib_client_ping(client, -1, &error), SNIB_EAUTH, &error, "the server said: WRONGPASS");
    says(snib_lock_acquire(must_lock(client, "x"), 0, -1, &hold, &error), SNIB_EAUTH, &error,
         "mutex \"x\": ");
    snib_client_free(client);
}

/* ---- The server -------------------------------------------------------------------------------- */

/* Every wait reports that there is no connection, and the address; nothing was applied. */
static void nobody_listens(void **state)
{
    (void)state;
    snib_client *client = open_with("redis://127.0.0.1:1", 500);
    snib_lock *lock = must_lock(client, "x");
    snib_hold *hold = NULL;
    for (int64_t wait = -1; wait <= 200; wait += 1 + (wait >= 0) * 199) {
        snib_error error = {0};
        int code = snib_lock_acquire(lock, 0, wait, &hold, &error);
        says(code, SNIB_ECONNECT, &error,
             "mutex \"x\": no connection to 127.0.0.1:1 (Connection refused)");
        assert_false(snib_code_is(code, SNIB_IS_MAYBE_APPLIED));
        assert_null(strstr(error.text, "may have been"));
        says(snib_client_ping(client, wait, &error), SNIB_ECONNECT, &error,
             "no connection to 127.0.0.1:1");
    }
    snib_client_free(client);
}

/* A service that starts before its server: the first connection has the same patience as any
 * other. */
static void started_before_its_server(void **state)
{
    struct server *server = *state;
    server_down(server);
    snib_client *client = open_with(server->url, 60000);
    snib_event event;
    snib_op *op = NULL;
    EXPECT(snib_lock_acquire_submit(must_lock(client, "x"), 0, -1, NULL, 0, &op, err), SNIB_OK);
    EXPECT(snib_op_wait(op, 500, &event, err), SNIB_AGAIN);
    server_restart(server);
    EXPECT(snib_op_wait(op, 30000, &event, err), SNIB_OK);
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    snib_client_free(client);
}

/* The server hangs.  A single try ends after its own patience, long before the reply timeout or the
 * client's patience; no error claims that the lock is held. */
static void server_hangs(void **state)
{
    struct server *server = *state;
    snib_client *client = NULL; /* the reply timeout is 3 s */
    EXPECT(snib_client_open(server->url, NULL, &client, err), SNIB_OK);
    snib_error error = {0};
    snib_hold *hold = NULL;
    EXPECT(snib_client_ping(client, -1, err), SNIB_OK);
    server_pause(server);
    int64_t start = now_ms();
    says(snib_lock_acquire(must_lock(client, "x"), 0, 0, &hold, &error), SNIB_EUNREACHABLE, &error,
         "mutex \"x\": no answer in time from ");
    assert_true(now_ms() - start >= 900);
    assert_true(now_ms() - start < patient_ms(2900));
    says(snib_lock_acquire(must_lock(client, "y"), 0, 1000, &hold, &error), SNIB_EUNREACHABLE,
         &error, "may have been applied");
    assert_true(snib_client_ping(client, 0, &error) < 0);
    server_continue(server);
    AWAIT(snib_client_ping(client, -1, NULL) == SNIB_OK, 10000);
    AWAIT(server_is_empty(server), 10000); /* later grants were given back */
    snib_client_free(client);
}

/* A release that could not be sent has not been applied; one that was sent may have been. */
static void release_of_a_dead_server(void **state)
{
    struct server *server = *state;
    snib_client *client = open_with(server->url, PATIENCE_MS);
    snib_hold *hold = must_acquire(must_lock_lease(client, "x", 60000, 0), 0);
    server_down(server);
    snib_error error = {0};
    assert_true(snib_client_ping(client, -1, NULL) < 0); /* the loss of the server is noticed */
    assert_int_equal(snib_hold_state(hold, NULL), SNIB_HOLD_AT_RISK);
    says(snib_hold_release(hold, &error), SNIB_ECONNECT, &error, "mutex \"x\": no connection to ");
    snib_hold_free(hold);
    server_restart(server);
    snib_client_free(client);
}

/* The server answers, but has not confirmed that the lock is free: the error names no holder. */
static void release_is_not_confirmed(void **state)
{
    struct server *server = *state;
    char url[160];
    server_do(server, "ACL SETUSER app on nopass ~* &* +@all");
    snprintf(url, sizeof url, "unix://app:none@%s", server->socket);
    snib_client *client = open_trying(url, PATIENCE_MS, TRY_MS);
    snib_lock *lock = must_lock_lease(client, "x", 60000, 0);
    snib_error error = {0};
    snib_hold *hold = must_acquire(lock, 0), *none = NULL;
    server_do(server, "ACL SETUSER app -evalsha -eval");
    says(snib_hold_release(hold, &error), SNIB_EPERM, &error, "the server said: NOPERM");
    snib_hold_free(hold);
    for (int64_t wait = 0; wait <= 2 * TRY_MS; wait += 2 * TRY_MS) {
        int code;
        int64_t end = now_ms() + patient_ms(5000);
        do /* on a slow machine the connection may be made anew */
            code = snib_lock_acquire(lock, 0, wait, &none, &error);
        while (code == SNIB_ECONNECT && now_ms() < end);
        says(code, SNIB_EUNREACHABLE, &error, "mutex \"x\": ");
        assert_non_null(strstr(error.text, server->socket));
        assert_non_null(
            strstr(error.text, " has not confirmed this client's earlier release of it"));
    }
    server_do(server, "ACL SETUSER app +@all");
    must_release(must_acquire(lock, 30000)); /* it was retried */
    snib_client_free(client);
}

/* This program has no test kit, nor has a build without Lua: to the library that is a server that nobody started. */
static void no_test_kit(void **state)
{
    snib_error error = {0};
    snib_hold *none = NULL;
    (void)state;
    snib_client *client = open_with("memory://kit", PATIENCE_MS);
    says(snib_client_ping(client, -1, &error), SNIB_ECONNECT, &error,
         "no connection to memory://kit (no memory server of this name accepts connections in this "
         "process; start one with snib.testing, snibtest or snib_memory_start()); nothing was "
         "applied");
    says(snib_lock_acquire(must_lock(client, "x"), 0, 0, &none, &error), SNIB_ECONNECT, &error,
         "mutex \"x\": no connection to memory://kit (no memory server of this name");
    snib_client_free(client);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lock_is_named),   TEST(outcomes_name_it),         TEST(loss_has_its_reason),
        TEST(rights_are_told), TEST(nobody_listens),           TEST(started_before_its_server),
        TEST(server_hangs),    TEST(release_of_a_dead_server), TEST(release_is_not_confirmed),
        TEST(no_test_kit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
