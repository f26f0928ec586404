/* votes.c - the votes of a quorum's servers: which count, from when on, and for how long. */
#include "../support/support.h"

#include <stdio.h>
#include <string.h>

enum { SERVERS = 3, PROMPT_MS = 10000, VOTELESS_MS = 1600 };

/* Five nodes, each behind a proxy, as databases of the available servers. */
enum { NODES = 5, STALL_MS = 300 };

struct node {
    struct proxy *proxy;
    snib_client *client;
    snib_lock *lock;
};

static void node_open(struct node *node, const struct server *server, int database)
{
    char url[80];
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.reply_timeout_ms = options.patience_ms = 60000; /* no timeout decides anything */
    node->proxy = proxy_start(server->socket);
    snprintf(url, sizeof url, "%s/%d", proxy_url(node->proxy), database);
    EXPECT(snib_client_open(url, &options, &node->client, err), SNIB_OK);
    node->lock = must_lock(node->client, "nodes");
}

static bool node_was_asked(struct node *node)
{
    for (size_t i = 0; i < proxy_record_count(node->proxy); i++)
        if (record_names(proxy_record(node->proxy, i), "nodes"))
            return true;
    return false;
}

/* All nodes are asked at once, a majority of replies suffices, the time taken is subtracted from
 * the lease, and later grants are given back. */
static void slow_nodes(void **state)
{
    struct server *servers = *state;
    struct node nodes[NODES];
    snib_lock *locks[NODES], *group = NULL;
    for (int i = 0; i < SERVERS; i++)
        server_do(&servers[i], "FLUSHALL");
    for (int i = 0; i < NODES; i++) {
        node_open(&nodes[i], &servers[i % SERVERS], i / SERVERS);
        locks[i] = nodes[i].lock;
    }
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.flags = SNIB_LOCK_NO_QUARANTINE;
    EXPECT(snib_quorum_new(locks, NODES, &options, &group, err), SNIB_OK);
    must_release(must_acquire(group, 0)); /* all are connected */
    /* A client whose acquire or release is still unanswered would not ask again: a ping's reply
     * comes after theirs. */
    for (int i = 0; i < NODES; i++)
        EXPECT(snib_client_ping(nodes[i].client, -1, err), SNIB_OK);
    for (int i = 0; i < SERVERS; i++)
        AWAIT(server_is_empty(&servers[i]), PROMPT_MS);
    for (int i = 0; i < NODES; i++)
        EXPECT(snib_client_ping(nodes[i].client, -1, err), SNIB_OK);

    snib_queue *queue = must_queue(nodes[0].client);
    for (int i = 0; i < NODES; i++) {
        proxy_forget(nodes[i].proxy);
        proxy_stall(nodes[i].proxy, TO_CLIENT, true);
    }
    EXPECT(snib_lock_acquire_submit(group, 0, -1, queue, 1, NULL, err), SNIB_OK);
    for (int i = 0; i < NODES; i++)
        AWAIT(node_was_asked(&nodes[i]), PROMPT_MS);
    nap_us(STALL_MS * 1000);
    for (int i = 0; i < NODES / 2 + 1; i++)
        proxy_stall(nodes[i].proxy, TO_CLIENT, false);
    snib_event event = must_event(queue, PROMPT_MS);
    assert_int_equal(event.code, SNIB_OK);
    assert_true(event.remaining_ms <= 30000 - 300 - STALL_MS); /* less the drift, too */
    must_release(event.hold);
    for (int i = NODES / 2 + 1; i < NODES; i++)
        proxy_stall(nodes[i].proxy, TO_CLIENT, false);
    for (int i = 0; i < SERVERS; i++)
        AWAIT(server_is_empty(&servers[i]), PROMPT_MS);
    snib_lock_free(group);
    for (int i = 0; i < NODES; i++) {
        snib_lock_free(nodes[i].lock);
        snib_client_free(nodes[i].client);
        proxy_stop(nodes[i].proxy);
    }
}

/* An owner holds a majority and cannot be notified.  One of its servers loses its memory: that one
 * does not vote until the leases it may have forgotten have ended, or there would be two
 * holders. */
static void quarantine(void **state)
{
    struct server *servers = *state;
    snib_client *clients[SERVERS];
    snib_lock *locks[SERVERS], *group = NULL;
    for (int i = 0; i < SERVERS; i++) {
        clients[i] = must_open_lease(servers[i].url, VOTELESS_MS);
        locks[i] = must_lock(clients[i], "quarantine");
    }
    EXPECT(snib_quorum_new(locks, SERVERS, NULL, &group, err), SNIB_OK);
    must_release(
        must_acquire(group, patient_ms(4 * VOTELESS_MS))); /* each has been seen for a lease */
    for (int i = 0; i < 2; i++) {
        AWAIT(server_integer(&servers[i], "EXISTS quarantine") == 0, PROMPT_MS);
        server_do(&servers[i], "HSET quarantine 0-0-0-0-0:1 1");
        server_do(&servers[i], "PEXPIRE quarantine 60000");
    }
    snib_hold *hold = NULL;
    EXPECT(snib_lock_acquire(group, 0, 0, &hold, err), SNIB_BUSY);
    int64_t restarted = now_ms();
    server_restart(&servers[1]);
    while (!hold && now_ms() - restarted < VOTELESS_MS / 2) {
        int code = snib_lock_acquire(group, 0, 0, &hold, NULL);
        assert_true(code == SNIB_BUSY || code == SNIB_OK); /* that is judged below */
        nap_us(2000);
    }
    if (!hold)
        hold = must_acquire(group, patient_ms(4 * VOTELESS_MS));
    assert_true(now_ms() - restarted >= VOTELESS_MS);
    /* So no hold may last longer than that without a renewal. */
    snib_error error;
    assert_int_equal(snib_hold_extend(hold, VOTELESS_MS + 1, &error), SNIB_ELEASE);
    assert_non_null(strstr(error.text, "without quarantine"));
    int code = snib_hold_extend(hold, VOTELESS_MS, NULL);
    assert_true(code == SNIB_OK || code == SNIB_LOST); /* the machine has stalled */
    code = snib_hold_extend(hold, 0, NULL);
    assert_true(code == SNIB_OK || code == SNIB_LOST);
    snib_hold_free(hold);
    for (int i = 0; i < SERVERS; i++) {
        snib_lock_free(locks[i]);
        snib_client_free(clients[i]);
    }
    snib_lock_free(group);
}

/* It has had its memory for as long as there are servers. */
static void server_may_vote(struct server *server)
{
    char epoch[64];
    redisReply *reply = server_command(server, "INFO server");
    const char *run = strstr(reply->str, "run_id:");
    assert_non_null(run);
    snprintf(epoch, sizeof epoch, "%.40s 1", run + strlen("run_id:"));
    server_do(server, "SET snib_quorum_epoch %s", epoch);
    freeReplyObject(reply);
}

/* A lock of the same name on one of the servers, held by the same client: its end is not handed over to the vote that
 * waits behind it, because only the server knows whether it may vote. */
static void handed_no_vote(void **state)
{
    struct server *servers = *state;
    snib_client *clients[SERVERS];
    snib_lock *locks[SERVERS], *group = NULL;
    for (int i = 0; i < SERVERS; i++) {
        clients[i] = must_open(servers[i].url);
        locks[i] = must_lock(clients[i], "handed");
    }
    EXPECT(snib_quorum_new(locks, SERVERS, NULL, &group, err), SNIB_OK);
    server_may_vote(&servers[0]);
    server_may_vote(&servers[1]);
    server_do(&servers[2], "DEL snib_quorum_epoch");
    snib_hold *single = must_acquire(locks[2], PROMPT_MS);
    snib_hold *hold = must_acquire(group, PROMPT_MS); /* of the other two */
    AWAIT(must_stats(clients[2]).waiting == 1, PROMPT_MS);
    must_release(single);
    assert_int_equal(server_integer(&servers[2], "EXISTS handed"), 0);
    /* It was asked, and does not vote for thirty seconds. */
    AWAIT(server_integer(&servers[2], "EXISTS snib_quorum_epoch") == 1, PROMPT_MS);
    assert_int_equal(server_integer(&servers[2], "EXISTS handed"), 0);
    must_release(hold);
    snib_lock_free(group);
    for (int i = 0; i < SERVERS; i++) {
        snib_lock_free(locks[i]);
        snib_client_free(clients[i]);
    }
}

/* Votes requested later last longer: a fixed lease ends with the earliest of the deciding votes. */
static void fixed_lease_does_not_grow(void **state)
{
    enum { FIXED_MS = 20000, STEP_MS = 1000 };
    struct server *servers = *state;
    snib_client *clients[SERVERS];
    snib_lock *locks[SERVERS], *group = NULL;
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = FIXED_MS;
    options.flags = SNIB_LOCK_NO_QUARANTINE;
    for (int i = 0; i < SERVERS; i++) {
        clients[i] = must_open(servers[i].url);
        locks[i] = must_lock(clients[i], "grows");
    }
    EXPECT(snib_quorum_new(locks, SERVERS, &options, &group, err), SNIB_OK);
    snib_queue *queue = must_queue(clients[0]);
    server_pause(&servers[1]);
    server_pause(&servers[2]);
    EXPECT(snib_lock_acquire_submit(group, 0, 60000, queue, 0, NULL, err), SNIB_OK);
    AWAIT(server_integer(&servers[0], "EXISTS grows") == 1, PROMPT_MS); /* the first vote */
    nap_us(STEP_MS * 1000);
    server_continue(&servers[1]);
    snib_event event = must_event(queue, PROMPT_MS);
    assert_int_equal(event.code, SNIB_OK);
    int64_t safe_until = snib_hold_remaining_ms(event.hold);
    assert_in_range(safe_until, 1, FIXED_MS - FIXED_MS / 100 - STEP_MS);
    safe_until += now_ms(); /* read afterwards, so not too low */
    nap_us(STEP_MS * 1000);
    server_continue(&servers[2]);
    AWAIT(must_stats(clients[2]).held == 1, PROMPT_MS);
    for (int64_t end = now_ms() + STEP_MS; now_ms() < end; nap_us(1000)) {
        int64_t now = now_ms(); /* read first, so not later than in the next call */
        assert_true(now + snib_hold_remaining_ms(event.hold) <= safe_until + 1);
    }
    must_release(event.hold);
    snib_queue_free(queue);
    snib_lock_free(group);
    for (int i = 0; i < SERVERS; i++) {
        snib_lock_free(locks[i]);
        snib_client_free(clients[i]);
    }
}

/* On a busy machine a wait may be over before the client has heard of the servers' ends, and then says less. */
static bool down_is_told(snib_lock *group)
{
    static const char told[] =
        "quorum lock \"down\": too many servers failed, such as: no connection to ";
    snib_hold *hold;
    snib_error error = {0};
    int code = snib_lock_acquire(group, 0, 100, &hold, &error);
    if (code != SNIB_EUNREACHABLE)
        fail_msg("%d: %s", code, error.text);
    return strncmp(error.text, told, sizeof told - 1) == 0;
}

/* A wait that is over before any patience is: why most servers have not answered is said all the same. */
static void servers_that_are_down(void **state)
{
    struct server *servers = *state;
    snib_client *clients[SERVERS];
    snib_lock *locks[SERVERS], *group = NULL;
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.patience_ms = 60000;
    for (int i = 0; i < SERVERS; i++) {
        EXPECT(snib_client_open(servers[i].url, &options, &clients[i], err), SNIB_OK);
        locks[i] = must_lock(clients[i], "down");
    }
    EXPECT(snib_quorum_new(locks, SERVERS, NULL, &group, err), SNIB_OK);
    server_down(&servers[1]);
    server_down(&servers[2]);
    AWAIT(down_is_told(group), 20000);
    server_restart(&servers[1]);
    server_restart(&servers[2]);
    snib_lock_free(group);
    for (int i = 0; i < SERVERS; i++) {
        snib_lock_free(locks[i]);
        snib_client_free(clients[i]);
    }
}

static int start(void **state)
{
    static struct server servers[SERVERS];
    for (int i = 0; i < SERVERS; i++)
        server_start(&servers[i], NULL);
    *state = servers;
    return 0;
}

static int stop(void **state)
{
    struct server *servers = *state;
    for (int i = 0; i < SERVERS; i++)
        server_stop(&servers[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_nodes),
        cmocka_unit_test(quarantine),
        cmocka_unit_test(handed_no_vote),
        cmocka_unit_test(fixed_lease_does_not_grow),
        cmocka_unit_test(servers_that_are_down),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
