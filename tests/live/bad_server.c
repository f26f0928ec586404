/* bad_server.c - every way in which a server can refuse: its own code, an error text, nothing left
 * behind.
 */
#define _GNU_SOURCE
#include "../support/support.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATIENCE_MS = 2000 };

static snib_client *open_with(const char *url, const char *username, const char *password)
{
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.patience_ms = PATIENCE_MS;
    options.lease_ms = 4500;
    options.try_timeout_ms = patient_ms(PATIENCE_MS);
    options.recheck_ms = 100;
    options.username = username;
    options.password = password;
    snib_client *client = NULL;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

/* An acquire fails with the code, within about the client's patience, with an error text. */
static void acquire_refused(snib_client *client, const char *name, int want, char out_text[244])
{
    snib_error error = {0};
    snib_hold *hold = NULL;
    int64_t start = now_ms();
    int got = snib_lock_acquire(must_lock(client, name), 0, -1, &hold, &error);
    if (got != want)
        fail_msg("%s instead of %s (%s)", snib_code_name(got), snib_code_name(want), error.text);
    assert_null(hold);
    assert_int_equal(error.code, want);
    assert_true(strlen(error.text) > 10 && !strpbrk(error.text, "\r\n"));
    assert_true(now_ms() - start < patient_ms(PATIENCE_MS));
    print_message("          %s: %s\n", snib_code_name(got), error.text);
    if (out_text)
        memcpy(out_text, error.text, sizeof error.text);
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

/* ---- Data that is not a lock ----------------------------------------------------------------- */

static void other_types(void **state)
{
    struct server *server = *state;
    const char *const makers[] = {"SET K v", "RPUSH K v", "SADD K v", "ZADD K 1 v"};
    snib_client *client = open_with(server->url, NULL, NULL);
    snib_lock *lock = must_lock(client, "K");
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        server_do(server, makers[i]);
        snib_lock_info_data info = {.size = sizeof info};
        acquire_refused(client, "K", SNIB_EWRONGTYPE, NULL);
        EXPECT(snib_lock_info(lock, &info, err), SNIB_EWRONGTYPE);
        EXPECT(snib_lock_force_release(lock, err), SNIB_EWRONGTYPE);
        assert_int_equal(server_integer(server, "EXISTS K"), 1);
        assert_int_equal(server_integer(server, "PTTL K"), -1);
        server_do(server, "DEL K");
    }
    server_do(server, "HSET K field value"); /* a hash, but not a lock */
    EXPECT(snib_lock_force_release(lock, err), SNIB_EWRONGTYPE);
    assert_int_equal(server_integer(server, "HLEN K"), 1);
    snib_client_free(client);
}

/* ---- Peers other than Redis ------------------------------------------------------------------ */

struct peer {
    int listener;
    const char *answer; /* NULL: no reply */
    char url[64];
    pthread_t thread;
};

static void *peer_run(void *argument)
{
    struct peer *peer = argument;
    int fds[64], count = 0;
    char buffer[4096];
    for (int fd; count < 64 && (fd = accept(peer->listener, NULL, NULL)) >= 0; count++) {
        fds[count] = fd;
        if (peer->answer && recv(fd, buffer, sizeof buffer, 0) > 0)
            (void)!send(fd, peer->answer, strlen(peer->answer), MSG_NOSIGNAL);
    }
    while (count > 0)
        close(fds[--count]);
    return NULL;
}

static void peer_start(struct peer *peer, const char *answer)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    peer->answer = answer;
    peer->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(peer->listener, (struct sockaddr *)&address, n), 0);
    assert_int_equal(listen(peer->listener, 16), 0);
    getsockname(peer->listener, (struct sockaddr *)&address, &n);
    snprintf(peer->url, sizeof peer->url, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&peer->thread, NULL, peer_run, peer), 0);
}

static void peer_stop(struct peer *peer)
{
    shutdown(peer->listener, SHUT_RDWR);
    pthread_join(peer->thread, NULL);
    close(peer->listener);
}

static void no_redis(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", /* a web server */
        "SSH-2.0-OpenSSH_9.2\r\n",
        "*100000000\r\n",
        "$-5\r\n",
        "\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct peer peer;
        peer_start(&peer, answers[i]);
        snib_client *client = open_with(peer.url, NULL, NULL);
        acquire_refused(client, "x", SNIB_EPROTOCOL, NULL);
        snib_client_free(client);
        peer_stop(&peer);
    }
}

static void nobody_answers(void **state)
{
    (void)state;
    struct peer peer;
    peer_start(&peer, NULL);
    snib_client *client = open_with(peer.url, NULL, NULL);
    acquire_refused(client, "x", SNIB_ECONNECT,
                    NULL); /* the handshake gets no reply: nothing was sent */
    EXPECT(snib_client_ping(client, 50, err), SNIB_ECONNECT);
    snib_client_free(client);
    peer_stop(&peer);
    client = open_with(peer.url, NULL, NULL); /* and now nothing listens there */
    acquire_refused(client, "x", SNIB_ECONNECT, NULL);
    snib_client_free(client);
    client = open_with("unix:///nonexistent/socket", NULL, NULL);
    acquire_refused(client, "x", SNIB_ECONNECT, NULL);
    snib_client_free(client);
    client = open_with("redis://no-such-host.invalid", NULL, NULL);
    acquire_refused(client, "x", SNIB_ERESOLVE, NULL);
    snib_client_free(client);
}

static void no_such_database(void **state)
{
    struct server *server = *state;
    char url[200];
    snprintf(url, sizeof url, "%s?db=99", server->url);
    snib_client *client = open_with(url, NULL, NULL);
    acquire_refused(client, "x", SNIB_EDATABASE, NULL);
    snib_client_free(client);
    snprintf(url, sizeof url, "%s?db=9", server->url);
    client = open_with(url, NULL, NULL);
    snib_hold *hold = must_acquire(must_lock(client, "x"), 0);
    expect_free(server, "x"); /* it is in database 9 */
    assert_false(server_is_empty(server));
    must_release(hold);
    snib_client_free(client);
}

/* ---- Rights ---------------------------------------------------------------------------------- */

static const char *const canary = "canary-5f1d-secret";

static void wrong_password(void **state)
{
    struct server *server = *state;
    server_do(server, "ACL SETUSER app on >right +@all ~* &*");
    server_do(server, "CONFIG SET requirepass right");
    char url[256], text[244];
    snprintf(url, sizeof url, "unix://app:%s@%s", canary, server->socket);
    snib_client *clients[] = {
        open_with(server->url, NULL, NULL), /* none where one is required */
        open_with(server->url, NULL, canary),   open_with(server->url, "app", canary),
        open_with(server->url, canary, canary), open_with(url, NULL, NULL),
    };
    for (size_t i = 0; i < sizeof clients / sizeof *clients; i++) {
        snib_queue *log = must_queue(clients[i]);
        EXPECT(snib_client_log(clients[i], log, SNIB_LOG_INFO, err), SNIB_OK);
        acquire_refused(clients[i], "x", SNIB_EAUTH, text);
        assert_null(strstr(text, canary));
        snib_event events[16];
        for (int n; (n = snib_queue_drain(log, events, 16, NULL)) > 0;)
            while (n-- > 0)
                assert_null(strstr(events[n].text, canary));
        snib_client_free(clients[i]);
    }
    snib_client *client = open_with(server->url, "app", "right");
    must_release(must_acquire(must_lock(client, "x"), 0));
    snib_client_free(client);
}

static const char *const rights =
    "on >p ~lock:* &redisson_lock__channel:* +ping +evalsha +script|load +hexists +hset "
    "+hdel +hget +hgetall +hkeys +hlen +del +exists +pexpire +pttl +publish +subscribe "
    "+unsubscribe +pubsub +client +select +hello +auth +type +scan +role +info +time";

static snib_client *open_as(struct server *server, const char *user, const char *change)
{
    char command[1024];
    snprintf(command, sizeof command, "ACL SETUSER %s reset %s %s", user, rights, change);
    server_do(server, command);
    return open_with(server->url, user, "p");
}

static void missing_rights(void **state)
{
    struct server *server = *state;
    static const struct {
        const char *user, *change, *name;
    } refused[] = {
        {"no_evalsha", "-evalsha -eval", "lock:x"},
        {"no_pexpire", "-pexpire", "lock:x"},
        {"no_hset", "-hset", "lock:x"},
        {"no_key", "", "other:x"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snib_client *client = open_as(server, refused[i].user, refused[i].change);
        acquire_refused(client, refused[i].name, SNIB_EPERM, NULL);
        assert_true(server_is_empty(server)); /* no lock without a TTL, nor any other key */
        snib_client_free(client);
    }
}

/* The full set of rights suffices, and those that only serve waking may be missing. */
static void sufficient_rights(void **state)
{
    struct server *server = *state;
    static const struct {
        const char *user, *change;
        bool polls;
    } users[] = {{"all", "", false},
                 {"no_publish", "-publish", false},
                 {"no_subscribe", "-subscribe", true},
                 {"no_channel", "resetchannels", true}};
    for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
        snib_client *client = open_as(server, users[i].user, users[i].change);
        snib_client *other = open_with(server->url, NULL, NULL);
        snib_lock *lock = must_lock(client, "lock:x");
        must_release(must_acquire(lock, 0));
        expect_free(server, "lock:x");
        snib_hold *theirs = must_acquire(must_lock(other, "lock:x"), 0);
        snib_op *op = NULL;
        EXPECT(snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &op, err), SNIB_OK);
        AWAIT(must_stats(client).waiting == 1, 3000);
        AWAIT(users[i].polls ? must_stats(client).polling > 0 : server_channels(server) == 1, 3000);
        must_release(theirs);
        snib_event event = must_end(op, 3000);
        assert_int_equal(event.code, SNIB_OK);
        must_release(event.hold);
        assert_int_equal(must_stats(client).polling > 0, users[i].polls);
        snib_client_free(client);
        snib_client_free(other);
    }
    assert_true(server_is_empty(server));
}

/* ---- Failing servers ------------------------------------------------------------------------- */

static void loading(void **state)
{
    struct server *server = *state;
    server_do(server, "EVAL %s 0", "for i = 1, 10000 do redis.call('set', 'k' .. i, i) end");
    server_do(server, "SAVE");
    server->arguments[0] = "--key-load-delay";
    server->arguments[1] = "300";
    server->arguments[2] = "--loading-process-events-interval-bytes";
    server->arguments[3] = "1024";
    server_restart(server);
    snib_client *client = open_with(server->url, NULL, NULL);
    acquire_refused(client, "x", SNIB_ELOADING, NULL);
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.patience_ms = 300000; /* each delay is at least 300 us, on a busy machine much longer */
    snib_client *patient = NULL;
    EXPECT(snib_client_open(server->url, &options, &patient, err), SNIB_OK);
    must_release(must_acquire(must_lock(patient, "x"), -1));
    snib_client_free(client);
    snib_client_free(patient);
    memset(server->arguments, 0, sizeof server->arguments);
}

static void out_of_memory(void **state)
{
    struct server *server = *state;
    snib_client *client = open_with(server->url, NULL, NULL);
    snib_hold *held = must_acquire(must_lock(client, "before"), 0);
    server_do(server, "CONFIG SET maxmemory 1");
    acquire_refused(client, "x", SNIB_EOOM, NULL);
    expect_free(server, "x");
    uint64_t renewals = must_stats(client).renewals;
    AWAIT(must_stats(client).renewals >= renewals + 4, 20000); /* for longer than a lease */
    EXPECT(snib_hold_check(held, err), SNIB_OK);
    must_release(held); /* and release works */
    assert_true(server_is_empty(server));
    server_do(server, "CONFIG SET maxmemory 0");
    must_release(must_acquire(must_lock(client, "x"), 0));
    snib_client_free(client);
}

static void read_only_replica(void **state)
{
    struct server *server = *state;
    snib_client *client = open_with(server->url, NULL, NULL);
    must_release(must_acquire(must_lock(client, "x"), 0));
    server_do(server, "REPLICAOF 127.0.0.1 1");
    acquire_refused(client, "x", SNIB_EREADONLY, NULL);
    server_do(server, "REPLICAOF NO ONE");
    must_release(must_acquire(must_lock(client, "x"), 0));
    snib_client_free(client);
}

static bool saving_failed(struct server *server)
{
    redisReply *reply = server_command(server, "INFO persistence");
    bool failed = strstr(reply->str, "rdb_last_bgsave_status:err");
    freeReplyObject(reply);
    return failed;
}

static void cannot_save(void **state)
{
    struct server *server = *state;
    snib_client *client = open_with(server->url, NULL, NULL);
    must_release(must_acquire(must_lock(client, "x"), 0));
    char path[128];
    snprintf(path, sizeof path, "%s/dump.rdb", server->dir);
    mkdir(path, 0700);
    server_do(server, "CONFIG SET save %s", "3600 1000000");
    server_do(server, "BGSAVE");
    AWAIT(saving_failed(server), 5000);
    acquire_refused(client, "x", SNIB_EMISCONF, NULL);
    server_do(server, "CONFIG SET save %s", "");
    must_release(must_acquire(must_lock(client, "x"), 0));
    rmdir(path);
    snib_client_free(client);
}

static void too_few_replicas(void **state)
{
    struct server *server = *state;
    snib_client *client = open_with(server->url, NULL, NULL);
    server_do(server, "CONFIG SET min-replicas-to-write 1");
    acquire_refused(client, "x", SNIB_EMISCONF, NULL);
    server_do(server, "CONFIG SET min-replicas-to-write 0");
    must_release(must_acquire(must_lock(client, "x"), 0));
    snib_client_free(client);
}

static void too_many_clients(void **state)
{
    struct server *server = *state;
    server_do(server, "CONFIG SET maxclients 1"); /* the test's own connection counts */
    snib_client *client = open_with(server->url, NULL, NULL);
    snib_error error;
    snib_hold *hold = NULL;
    int code = snib_lock_acquire(must_lock(client, "x"), 0, -1, &hold, &error);
    print_message("          %s: %s\n", snib_code_name(code), error.text);
    assert_true(code < 0 && snib_code_is(code, SNIB_IS_RETRYABLE));
    server_do(server, "CONFIG SET maxclients 100");
    must_release(must_acquire(must_lock(client, "x"), 0));
    snib_client_free(client);
}

/* The server forgets the scripts at any moment: callers do not notice. */
static void scripts_flushed(void **state)
{
    struct server *server = *state;
    snib_client *client = open_with(server->url, NULL, NULL);
    snib_lock *lock = must_lock(client, "x");
    snib_lock_info_data info = {.size = sizeof info};
    for (int i = 0; i < 20; i++) {
        server_do(server, "SCRIPT FLUSH");
        snib_hold *hold = must_acquire(lock, 0);
        server_do(server, "SCRIPT FLUSH");
        EXPECT(snib_lock_info(lock, &info, err), SNIB_OK);
        assert_true(info.held && info.mine);
        server_do(server, "SCRIPT FLUSH");
        must_release(hold);
    }
    snib_hold *hold = must_acquire(lock, 0);
    uint64_t renewals = must_stats(client).renewals;
    while (must_stats(client).renewals < renewals + 4) { /* renewals meet flushed scripts, too */
        server_do(server, "SCRIPT FLUSH");
        assert_int_not_equal(snib_hold_state(hold, NULL), SNIB_HOLD_LOST);
        nap_us(150000);
    }
    server_do(server, "SCRIPT FLUSH");
    EXPECT(snib_lock_force_release(lock, err), SNIB_OK);
    EXPECT(snib_hold_wait(hold, patient_ms(1000), NULL, err), SNIB_LOST);
    snib_hold_free(hold);
    snib_client_free(client);
}

struct releaser {
    snib_hold *hold;
    int result;
};

static void *release_in_thread(void *argument)
{
    struct releaser *releaser = argument;
    releaser->result = snib_hold_release(releaser->hold, NULL);
    return NULL;
}

/* A client is closed while the server does not answer: no waiter for a release hangs. */
static void closed_while_releasing(void **state)
{
    struct server *server = *state;
    pthread_t thread;
    snib_client *client = must_open(server->url); /* its patience exceeds this test's duration */
    struct releaser releaser = {.hold = must_acquire(must_lock(client, "a"), 0)};
    snib_queue *queue = must_queue(client);
    snib_hold *other = must_acquire(must_lock(client, "b"), 0);
    server_pause(server);
    EXPECT(snib_hold_release_submit(other, queue, 5, NULL, err), SNIB_OK);
    assert_int_equal(pthread_create(&thread, NULL, release_in_thread, &releaser), 0);
    AWAIT(snib_hold_state(releaser.hold, NULL) == SNIB_HOLD_RELEASED, 5000);
    EXPECT(snib_client_close(client, 50, err), SNIB_TIMEDOUT);
    pthread_join(thread, NULL);
    assert_int_equal(releaser.result, SNIB_EUNREACHABLE);
    snib_event event = must_event(queue, 5000);
    assert_int_equal(event.kind, SNIB_EVENT_DONE);
    assert_int_equal(event.token, 5);
    assert_int_equal(event.code, SNIB_EUNREACHABLE);
    server_continue(server);
    snib_hold_free(releaser.hold);
    snib_hold_free(other);
    snib_queue_free(queue);
    snib_client_free(client);
}

/* A client is closed without time for replies while many requests have none: the releases follow these at once, and are
 * not collected for a reader that will not come back. */
static void closed_behind_requests(void **state)
{
    struct server *server = *state;
    char name[16];
    snib_client *client = must_open(server->url), *other = must_open(server->url);
    snib_hold *hold = must_acquire(must_lock(client, "a"), 0);
    snib_queue *queue = must_queue(client);
    server_pause(server);
    for (int i = 0; i < 15; i++) {
        snprintf(name, sizeof name, "b%d", i);
        EXPECT(snib_lock_acquire_submit(must_lock(client, name), 0, -1, queue, 1, NULL, err),
               SNIB_OK);
    }
    EXPECT(snib_client_close(client, 0, err), SNIB_TIMEDOUT);
    server_continue(server);
    snib_hold_free(must_acquire(must_lock(other, "a"), 10000)); /* a third of its lease */
    snib_hold_free(hold);
    snib_queue_free(queue);
    snib_client_free(client);
    snib_client_free(other);
}

/* The right to one lock is revoked: it is lost, and those renewed with it are not. */
static void right_taken_away(void **state)
{
    struct server *server = *state;
    server_do(server, "ACL SETUSER limited on >right +@all ~* &*");
    snib_client *client = open_with(server->url, "limited", "right");
    snib_hold *bad = must_acquire(must_lock(client, "bad"), 0), *good[3];
    const char *const names[] = {"good 1", "good 2", "good 3"};
    for (int i = 0; i < 3; i++)
        good[i] = must_acquire(must_lock(client, names[i]), 0);
    server_do(server, "ACL SETUSER limited resetkeys ~good*");
    int32_t reason;
    EXPECT(snib_hold_wait(bad, 20000, &reason, err), SNIB_LOST);
    assert_int_equal(reason, SNIB_REASON_UNREACHABLE);
    uint64_t before = must_stats(client).renewals;
    AWAIT(must_stats(client).renewals > before + 9, 20000);
    for (int i = 0; i < 3; i++) {
        EXPECT(snib_hold_check(good[i], err), SNIB_OK);
        must_release(good[i]);
    }
    snib_hold_free(bad);
    snib_client_free(client);
}

/* The server is killed and restarts empty while operations wait: they continue by themselves. */
static void restarted_under_waiters(void **state)
{
    struct server *server = *state;
    snib_client *client = open_with(server->url, NULL, NULL),
                *other = open_with(server->url, NULL, NULL);
    snib_hold *theirs = must_acquire(must_lock(other, "x"), 0);
    snib_op *op = NULL;
    EXPECT(snib_lock_acquire_submit(must_lock(client, "x"), 0, -1, NULL, 0, &op, err), SNIB_OK);
    AWAIT(server_channels(server) == 1, 1000);
    server_restart(server);
    snib_event event = must_end(op, 3000);
    assert_int_equal(event.code, SNIB_OK); /* the server has forgotten the other's lock */
    EXPECT(snib_hold_wait(theirs, patient_ms(2000), NULL, err), SNIB_LOST);
    snib_hold_free(theirs);
    must_release(event.hold);
    snib_client_free(client);
    snib_client_free(other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(other_types),
        TEST(no_redis),
        TEST(nobody_answers),
        TEST(no_such_database),
        TEST(wrong_password),
        TEST(missing_rights),
        TEST(sufficient_rights),
        TEST(loading),
        TEST(out_of_memory),
        TEST(read_only_replica),
        TEST(cannot_save),
        TEST(too_few_replicas),
        TEST(too_many_clients),
        TEST(scripts_flushed),
        TEST(restarted_under_waiters),
        TEST(right_taken_away),
        TEST(closed_while_releasing),
        TEST(closed_behind_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
