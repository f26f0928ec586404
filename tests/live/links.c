/* links.c - when a link to a server is closed, and how that affects others. */
#define _GNU_SOURCE
#include "../support/support.h"

#include <signal.h>
#include <string.h>

enum { LEASE_MS = 3000, STRANGERS = 16 };

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

static long long connection_number(redisContext *connection)
{
    redisReply *reply = redisCommand(connection, "CLIENT ID");
    long long number = reply ? reply->integer : -1;
    freeReplyObject(reply);
    return number;
}

/* A client whose connection broke with a request unread kills that connection; on a restarted
 * server the number belongs to a different client. */
static void strangers_are_spared(void **state)
{
    struct server *server = *state;
    struct proxy *proxy = proxy_start(server->socket);
    snib_client *client = must_open_lease(proxy_url(proxy), LEASE_MS);
    EXPECT(snib_client_ping(client, -1, err), SNIB_OK);

    snib_op *op = NULL;
    server_pause(server);
    EXPECT(snib_lock_acquire_submit(must_lock(client, "x"), 0, -1, NULL, 0, &op, err), SNIB_OK);
    AWAIT(must_stats(client).commands >= 2, 5000); /* the ping, and the acquire */
    proxy_refuse(proxy, true);
    server_restart(server);
    redisContext *strangers[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        strangers[i] = redisConnectUnix(server->socket);
        assert_false(strangers[i]->err);
    }
    assert_true(connection_number(strangers[STRANGERS - 1]) >= 5);
    proxy_refuse(proxy, false);
    snib_event event;
    EXPECT(snib_op_wait(op, patient_ms(10000), &event, err), SNIB_OK);
    assert_int_equal(event.code, SNIB_OK);
    for (int i = 0; i < STRANGERS; i++) {
        redisReply *reply = redisCommand(strangers[i], "PING");
        if (!reply)
            fail_msg("the connection of stranger %d was ended", i);
        freeReplyObject(reply);
        redisFree(strangers[i]);
    }
    must_release(event.hold);
    snib_client_free(client);
    proxy_stop(proxy);
}

/* A server that was demoted to replica is left: it answers no query about locks, its replies end no
 * hold, and once it is a master again all continues. */
static void leave_replica(struct server *server)
{
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = 20000;
    options.try_timeout_ms = options.patience_ms = 1500;
    snib_client *client = NULL, *other = must_open(server->url);
    EXPECT(snib_client_open(server->url, &options, &client, err), SNIB_OK);
    snib_hold *hold = must_acquire(must_lock(client, "mine"), 0);
    snib_hold *theirs = must_acquire(must_lock(other, "theirs"), 0), *none = NULL;
    server_do(server, "REPLICAOF 127.0.0.1 1");
    EXPECT(snib_lock_acquire(must_lock(client, "free"), 0, 0, &none, err), SNIB_EREADONLY);
    EXPECT(snib_lock_acquire(must_lock(client, "theirs"), 0, 0, &none, err), SNIB_EREADONLY);
    EXPECT(snib_client_ping(client, -1, err), SNIB_EREADONLY);
    assert_int_equal(snib_hold_state(hold, NULL), SNIB_HOLD_AT_RISK);
    server_do(server, "REPLICAOF NO ONE");
    AWAIT(snib_client_ping(client, -1, NULL) == SNIB_OK, 10000);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    must_release(theirs);
    assert_true(server_is_empty(server));
    snib_client_free(client);
    snib_client_free(other);
}

static void replica_is_left(void **state)
{
    leave_replica(*state);
}

/* The same if it does not even say what it has (MASTERDOWN instead of READONLY). */
static void stale_replica_is_left(void **state)
{
    server_do(*state, "CONFIG SET replica-serve-stale-data no");
    leave_replica(*state);
}

/* Messages stop, without an end of the connection: the link is found silent, although the waiter
 * would ask by itself only in an hour. */
static void silent_subscription_is_replaced(void **state)
{
    struct server *server = *state;
    struct proxy *proxy = proxy_start(server->socket);
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.recheck_ms = 60000;
    options.reply_timeout_ms = 500;
    options.lease_ms = 60000;
    snib_client *client = NULL, *other = must_open_lease(server->url, 60000);
    EXPECT(snib_client_open(proxy_url(proxy), &options, &client, err), SNIB_OK);
    for (int early = 0; early < 2; early++) { /* silent before the confirmation, or after it */
        snib_hold *theirs = must_acquire(must_lock(other, "x"), 0);
        snib_op *op = NULL;
        snib_event event;
        uint64_t connects = must_stats(client).connects; /* before it can be found silent */
        proxy_stall_messages(proxy, early);
        EXPECT(snib_lock_acquire_submit(must_lock(client, "x"), 0, -1, NULL, 0, &op, err), SNIB_OK);
        AWAIT(server_channels(server) == 1, 10000);
        if (!early) {
            AWAIT(must_stats(client).waiting == 1, 10000);
            connects = must_stats(client).connects;
            proxy_stall_messages(proxy, true);
        }
        must_release(theirs); /* its message is lost */
        /* A confirmation in flight before the silence makes the client ask, and it may find the
         * lock free. */
        bool asked = false;
        AWAIT((asked = snib_op_wait(op, 0, &event, NULL) == SNIB_OK) ||
                  must_stats(client).connects > connects,
              10000);
        assert_false(asked && early && must_stats(client).connects == connects);
        proxy_stall_messages(proxy, false);
        if (!asked)
            EXPECT(snib_op_wait(op, patient_ms(10000), &event, err), SNIB_OK);
        assert_int_equal(event.code, SNIB_OK);
        must_release(event.hold);
        AWAIT(server_channels(server) == 0, 10000);
    }
    snib_client_free(client);
    snib_client_free(other);
    proxy_stop(proxy);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(strangers_are_spared),
        TEST(replica_is_left),
        TEST(stale_replica_is_left),
        TEST(silent_subscription_is_replaced),
    };
    signal(SIGPIPE, SIG_IGN); /* writing to another client's closed connection must be reported */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
