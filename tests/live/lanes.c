/* lanes.c - several connections for commands: how many there are, and what the loss of one does. */
#include "../support/support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, LEASE_MS = 20000 };

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

static snib_client *open_lanes(const char *url, int32_t lanes)
{
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.lanes = lanes;
    options.lease_ms = LEASE_MS;
    options.reply_timeout_ms = 500;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

struct crew {
    snib_client *client;
    _Atomic bool stop;
    _Atomic long pairs[THREADS];
    pthread_t threads[THREADS];
    struct member {
        struct crew *crew;
        int index;
    } members[THREADS];
};

static void *crew_main(void *argument)
{
    struct member *me = argument;
    char name[32];
    snprintf(name, sizeof name, "crew:%d", me->index);
    snib_lock *lock = must_lock(me->crew->client, name);
    while (!me->crew->stop) {
        must_release(must_acquire(lock, -1));
        me->crew->pairs[me->index]++;
    }
    return NULL;
}

static void crew_start(struct crew *crew, snib_client *client, int threads)
{
    crew->client = client;
    crew->stop = false;
    for (int i = 0; i < threads; i++) {
        crew->members[i] = (struct member){crew, i};
        assert_int_equal(pthread_create(&crew->threads[i], NULL, crew_main, &crew->members[i]), 0);
    }
}

static void crew_stop(struct crew *crew, int threads)
{
    crew->stop = true;
    for (int i = 0; i < threads; i++)
        pthread_join(crew->threads[i], NULL);
}

/* Every thread has taken the lock at least `more` times since. */
static bool crew_went_on(struct crew *crew, const long *since, long more)
{
    for (int i = 0; i < THREADS; i++)
        if (crew->pairs[i] < since[i] + more)
            return false;
    return true;
}

static void crew_note(struct crew *crew, long *out)
{
    for (int i = 0; i < THREADS; i++)
        out[i] = crew->pairs[i];
}

/* The ids of the connections that send scripts, as known to the server. */
static int connections(struct server *server, long long *ids, int room)
{
    redisReply *reply = server_command(server, "CLIENT LIST TYPE normal");
    int n = 0;
    for (char *line = strtok(reply->str, "\n"); line; line = strtok(NULL, "\n")) {
        bool ours = strstr(line, "cmd=evalsha") || strstr(line, "cmd=info") ||
                    strstr(line, "cmd=script|load") || strstr(line, "cmd=ping");
        if (ours && n < room)
            ids[n++] = strtoll(strstr(line, "id=") + 3, NULL, 10);
    }
    freeReplyObject(reply);
    return n;
}

static int all_connections(struct server *server)
{
    redisReply *reply = server_command(server, "CLIENT LIST");
    int n = 0;
    for (const char *at = reply->str; (at = strchr(at, '\n')); at++)
        n++;
    freeReplyObject(reply);
    return n;
}

/* Counts unanswered ones, too. */
static long long connections_so_far(struct server *server)
{
    static const char word[] = "total_connections_received:";
    redisReply *reply = server_command(server, "INFO stats");
    const char *at = strstr(reply->str, word);
    assert_non_null(at);
    long long n = strtoll(at + sizeof word - 1, NULL, 10);
    freeReplyObject(reply);
    return n;
}

static void one_thread_has_one_connection(void **state)
{
    struct server *server = *state;
    snib_client *client = open_lanes(server->url, 4);
    snib_lock *lock = must_lock(client, "one");
    long long ids[16];
    for (int i = 0; i < 2000; i++)
        must_release(must_acquire(lock, 0));
    assert_int_equal(connections(server, ids, 16), 1);
    assert_int_equal(must_stats(client).connects, 1);
    snib_client_free(client);
}

static void threads_have_as_many_as_allowed(void **state)
{
    struct server *server = *state;
    static struct crew crew;
    for (int32_t lanes = 1; lanes <= 4; lanes++) {
        snib_client *client = open_lanes(server->url, lanes);
        long long ids[16];
        crew_start(&crew, client, THREADS);
        AWAIT(connections(server, ids, 16) == lanes, 20000);
        for (int i = 0; i < 20; i++, nap_us(10000))
            assert_true(connections(server, ids, 16) <= lanes);
        AWAIT(connections(server, ids, 16) == lanes, 20000);
        crew_stop(&crew, THREADS);
        snib_client_free(client);
    }
}

/* The server closes one connection after another, under load: all threads continue, and no hold is
 * lost. */
static void loss_of_one_disturbs_nobody(void **state)
{
    struct server *server = *state;
    static struct crew crew;
    snib_client *client = open_lanes(server->url, 4);
    snib_hold *kept = must_acquire(must_lock(client, "kept"), 0);
    long long ids[16];
    long since[THREADS];
    crew_start(&crew, client, THREADS);
    AWAIT(connections(server, ids, 16) == 4, 20000);
    for (int round = 0; round < 12; round++) {
        AWAIT(connections(server, ids, 16) == 4, 20000);
        server_do(server, "CLIENT KILL ID %lld", ids[round % 4]);
        crew_note(&crew, since);
        AWAIT(crew_went_on(&crew, since, 20), 20000);
        EXPECT(snib_hold_check(kept, err), SNIB_OK);
    }
    crew_stop(&crew, THREADS);
    assert_int_equal(must_stats(client).lost_deleted, 0);
    must_release(kept);
    AWAIT(server_is_empty(server), 5000); /* no request of a lost connection was executed late */
    snib_client_free(client);
}

/* All connections are cut while requests are in flight and unread, again and again. */
static void cuts_leave_nothing(void **state)
{
    struct server *server = *state;
    static struct crew crew;
    struct proxy *proxy = proxy_start(server->socket);
    snib_client *client = open_lanes(proxy_url(proxy), 4);
    long since[THREADS];
    crew_start(&crew, client, THREADS);
    for (int round = 0; round < 10; round++) {
        crew_note(&crew, since);
        AWAIT(crew_went_on(&crew, since, 20), 20000);
        int cuts = proxy_cuts(proxy);
        proxy_cut(proxy, round % 2 ? TO_SERVER : TO_CLIENT, 1000 + 377 * round,
                  round % 3 ? CUT_RST : CUT_FIN);
        AWAIT(proxy_cuts(proxy) > cuts, 20000);
    }
    crew_note(&crew, since);
    AWAIT(crew_went_on(&crew, since, 20), 20000);
    crew_stop(&crew, THREADS);
    AWAIT(server_is_empty(server), 5000);
    snib_client_free(client);
    proxy_stop(proxy);
}

/* A connection ends at the client with a request that the server has not read and would read later:
 * the connection is killed at the server, too, before the request is repeated on another. */
static void late_request_is_not_done(void **state)
{
    struct server *server = *state;
    static struct crew crew;
    struct proxy *proxy = proxy_start(server->socket);
    snib_client *client = open_lanes(proxy_url(proxy), 4);
    long since[THREADS];
    crew_start(&crew, client, THREADS);
    for (int round = 0; round < 10; round++) {
        crew_note(&crew, since);
        AWAIT(crew_went_on(&crew, since, 20), 20000);
        int cuts = proxy_cuts(proxy);
        proxy_hold_back(proxy);
        AWAIT(proxy_cuts(proxy) > cuts, 20000);
        crew_note(&crew, since);
        AWAIT(crew_went_on(&crew, since, 20), 20000);
        proxy_let_go(proxy);
    }
    crew_stop(&crew, THREADS);
    snib_client_free(client);
    AWAIT(all_connections(server) == 1, 20000); /* this one: the others' bytes have all been read */
    assert_true(server_is_empty(server));
    proxy_stop(proxy);
}

/* All connections fall silent without an end: they are closed, and requests in flight are sent
 * again. */
static void stall_is_left(void **state)
{
    struct server *server = *state;
    static struct crew crew;
    struct proxy *proxy = proxy_start(server->socket);
    snib_client *client = open_lanes(proxy_url(proxy), 4);
    snib_hold *kept = must_acquire(must_lock(client, "kept"), 0);
    long since[THREADS];
    crew_start(&crew, client, THREADS);
    crew_note(&crew, since);
    AWAIT(crew_went_on(&crew, since, 100), 20000);
    uint64_t connects = must_stats(client).connects;
    long long before = connections_so_far(server);
    proxy_stall(proxy, TO_CLIENT, true);
    AWAIT(connections_so_far(server) > before, 20000);
    proxy_stall(proxy, TO_CLIENT, false);
    crew_note(&crew, since);
    AWAIT(crew_went_on(&crew, since, 20), 20000);
    assert_true(must_stats(client).connects > connects);
    EXPECT(snib_hold_check(kept, err), SNIB_OK);
    crew_stop(&crew, THREADS);
    must_release(kept);
    AWAIT(server_is_empty(server), 5000);
    snib_client_free(client);
    proxy_stop(proxy);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_thread_has_one_connection), TEST(threads_have_as_many_as_allowed),
        TEST(loss_of_one_disturbs_nobody),   TEST(cuts_leave_nothing),
        TEST(late_request_is_not_done),      TEST(stall_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
