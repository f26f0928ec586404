/* lanes.c - several connections for commands: how many there are, and what the loss of one does. */
#include "../support/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, LEASE_MS = 20000, RESTED_US = 10000 };

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

static snib_client *open_lanes_for(const char *url, int32_t lanes, int64_t reply_timeout_ms)
{
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.lanes = lanes;
    options.lease_ms = LEASE_MS;
    options.reply_timeout_ms = reply_timeout_ms;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

static snib_client *open_lanes(const char *url, int32_t lanes)
{
    return open_lanes_for(url, lanes, 500);
}

struct crew {
    snib_client *client;
    _Atomic bool stop;
    _Atomic unsigned rest_us; /* after each pair; long where full speed would only cost */
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
        nap_us(me->crew->rest_us);
    }
    return NULL;
}

static void crew_start(struct crew *crew, snib_client *client, int threads)
{
    crew->client = client;
    crew->stop = false;
    crew->rest_us = 0;
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

/* Wait until the busy threads of a client have made so many connections.  A server that is quick
 * for its clients may answer each request before the next is made, and then one connection does: so
 * once a second it stands still for a moment. */
static void expect_connections(struct server *server, int32_t lanes, long long *ids)
{
    int64_t start_ms = now_ms(), still_ms = start_ms;
    while (connections(server, ids, 16) < lanes) {
        if (now_ms() > start_ms + patient_ms(20000))
            fail_msg("not %d connections", (int)lanes);
        if (now_ms() > still_ms + 1000) {
            server_pause(server);
            nap_us(20000);
            server_continue(server);
            still_ms = now_ms();
        }
        nap_us(1000);
    }
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
    snib_client *client = open_lanes_for(server->url, 4, LEASE_MS); /* it is never made anew */
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
        expect_connections(server, lanes, ids);
        for (int i = 0; i < 20; i++, nap_us(10000))
            assert_true(connections(server, ids, 16) <= lanes);
        expect_connections(server, lanes, ids);
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
    for (int round = 0; round < 12; round++) {
        expect_connections(server, 4, ids);
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
        crew.rest_us = 0;
        crew_note(&crew, since);
        AWAIT(crew_went_on(&crew, since, 20), 20000);
        int cuts = proxy_cuts(proxy);
        proxy_hold_back(proxy);
        crew.rest_us = RESTED_US;
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
    crew.rest_us = RESTED_US;
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

/* ---- One lane of several -------------------------------------------------------------------------------- */

enum { RIVALS = 8, NAMES = 4, KEPT = 20, WAIT_MS = 3000, ROUNDS = 2, BUSY_US = 500 };

struct rivals {
    snib_client *client;
    _Atomic bool stop;
    _Atomic unsigned rest_us;  /* after each pair; long while only a renewal is awaited */
    _Atomic int inside[NAMES]; /* how many believe that they hold the name */
    _Atomic int doubled;
    _Atomic int64_t late_ms; /* of the latest call, after its limit */
    _Atomic long pairs[RIVALS];
    pthread_t threads[RIVALS];
    struct rival {
        struct rivals *all;
        int index;
    } one[RIVALS];
};

/* Two threads want each name. */
static void *rival_main(void *argument)
{
    struct rival *me = argument;
    struct rivals *all = me->all;
    const int name_index = me->index % NAMES;
    char name[32];
    snprintf(name, sizeof name, "rivals:%d", name_index);
    snib_lock *lock = must_lock(all->client, name);
    while (!all->stop) {
        snib_hold *hold = NULL;
        snib_error error = {0};
        const int64_t limit = now_ms() + WAIT_MS;
        int code = snib_lock_acquire(lock, 0, WAIT_MS, &hold, &error);
        if (now_ms() - limit > all->late_ms)
            all->late_ms = now_ms() - limit;
        all->doubled += code != SNIB_OK && code != SNIB_TIMEDOUT;
        if (code != SNIB_OK)
            continue;
        all->doubled += atomic_fetch_add(&all->inside[name_index], 1) != 0;
        nap_us(300); /* another one would be seen */
        atomic_fetch_sub(&all->inside[name_index], 1);
        must_release(hold);
        all->pairs[me->index]++;
        nap_us(all->rest_us);
    }
    snib_lock_free(lock);
    return NULL;
}

static int rivals_ahead(struct rivals *all, const long *since, long more)
{
    int ahead = 0;
    for (int i = 0; i < RIVALS; i++)
        ahead += all->pairs[i] >= since[i] + more;
    return ahead;
}

/* The proxy's number of the first lane, which carries the renewals, or of another one that carries scripts; 0: not
 * known yet. */
static int lane_number(struct proxy *proxy, const char *renew, bool first)
{
    int renewing = 0, other = 0;
    for (size_t n = proxy_record_count(proxy), i = 0; i < n; i++) {
        const struct record *record = proxy_record(proxy, i);
        if (record_is(record, renew))
            renewing = record->link;
    }
    for (size_t n = proxy_record_count(proxy), i = 0; i < n; i++) {
        const struct record *record = proxy_record(proxy, i);
        if (strcmp(record->argv[0], "EVALSHA") == 0 && record->link != renewing)
            other = record->link;
    }
    return first || !renewing ? renewing : other;
}

/* One lane is as dead as can be, and the others are not: threads without a request on it go on, the others are served by
 * another lane, holds are renewed, and no name has two holders. */
static void stalled_lane_is_left(struct server *server, bool first, bool to_server, bool to_client)
{
    static struct rivals all;
    snib_client_options options;
    snib_hold *kept[KEPT];
    long since[RIVALS];
    char renew[41];
    struct proxy *proxy = proxy_start(server->socket);
    server_script(server, "mutex_renew", renew);
    memset(&all, 0, sizeof all);
    long long expired = server_expired(server);
    all.rest_us = BUSY_US;
    snib_client_options_init(&options, sizeof options);
    options.lanes = 4;
    options.lease_ms = 9000;
    options.reply_timeout_ms = 700;
    EXPECT(snib_client_open(proxy_url(proxy), &options, &all.client, err), SNIB_OK);
    for (int i = 0; i < KEPT; i++) {
        char name[32];
        snprintf(name, sizeof name, "kept:%d", i);
        kept[i] = must_acquire(must_lock(all.client, name), 0);
    }
    for (int i = 0; i < RIVALS; i++) {
        all.one[i] = (struct rival){&all, i};
        assert_int_equal(pthread_create(&all.threads[i], NULL, rival_main, &all.one[i]), 0);
    }
    long long ids[16];
    for (int round = 0; round < ROUNDS; round++) {
        all.rest_us = 0;
        expect_connections(server, 2, ids);
        all.rest_us = BUSY_US;
        for (int i = 0; i < RIVALS; i++)
            since[i] = all.pairs[i];
        proxy_forget(proxy);
        uint64_t renewals = must_stats(all.client).renewals;
        all.rest_us = RESTED_US;
        AWAIT(must_stats(all.client).renewals > renewals, 20000);
        all.rest_us = BUSY_US;
        AWAIT(rivals_ahead(&all, since, 20) == RIVALS, 20000);
        int lane = 0;
        AWAIT((lane = lane_number(proxy, renew, first)) != 0, 20000);
        for (int i = 0; i < RIVALS; i++)
            since[i] = all.pairs[i];
        renewals = must_stats(all.client).renewals;
        proxy_stall_link(proxy, lane, to_server, to_client);
        AWAIT(rivals_ahead(&all, since, 5) >= RIVALS / 2, 20000);
        AWAIT(rivals_ahead(&all, since, 20) == RIVALS, 20000);
        all.rest_us = RESTED_US;
        AWAIT(must_stats(all.client).renewals >= renewals + KEPT, 20000);
        all.rest_us = BUSY_US;
        proxy_stall_link(proxy, lane, false, false); /* what it still has comes late */
        for (int i = 0; i < KEPT; i++)
            EXPECT(snib_hold_check(kept[i], err), SNIB_OK);
    }
    all.stop = true;
    for (int i = 0; i < RIVALS; i++)
        pthread_join(all.threads[i], NULL);
    assert_int_equal(all.doubled, 0);
    assert_true(all.late_ms < patient_ms(5000));
    for (int i = 0; i < KEPT; i++)
        must_release(kept[i]);
    AWAIT(server_is_empty(server), 5000);
    assert_int_equal(server_expired(server), expired); /* what was left behind was released */
    assert_int_equal(must_stats(all.client).lost_deleted, 0);
    snib_client_free(all.client);
    proxy_stop(proxy);
}

static void one_lane_stalls(void **state)
{
    stalled_lane_is_left(*state, false, true, true);
}

static void answers_of_one_lane_stall(void **state)
{
    stalled_lane_is_left(*state, false, false, true);
}

static void first_lane_stalls(void **state)
{
    stalled_lane_is_left(*state, true, true, true);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_thread_has_one_connection),
        TEST(threads_have_as_many_as_allowed),
        TEST(loss_of_one_disturbs_nobody),
        TEST(cuts_leave_nothing),
        TEST(late_request_is_not_done),
        TEST(stall_is_left),
        TEST(one_lane_stalls),
        TEST(answers_of_one_lane_stall),
        TEST(first_lane_stalls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
