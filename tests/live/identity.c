/* identity.c - who holds it: what clients say about their processes, what others are told of that, and that no lock
 * depends on it.
 *
 * Leases are short where a test waits for renewals, and holds may then be lost on a slow machine: a client that
 * acquires again says again who it is. */
#include "../support/deployment.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LEASE_MS = 1500, LONG_MS = 18000, NEVER_MS = 86400000, PROMPT_MS = 20000 };

static struct server server;

static int start(void **state)
{
    (void)state;
    server_start(&server, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

static snib_client *open_as(const char *url, const char *user, const char *label, int identity,
                            int64_t lease_ms)
{
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    options.username = user;
    options.password = user ? "secret" : NULL;
    options.label = label;
    options.identity = identity;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

/* The key of a client. */
static const char *key_of(snib_client *client)
{
    static char key[64];
    char id[37];
    EXPECT(snib_client_id(client, id, err), SNIB_OK);
    snprintf(key, sizeof key, "snib_client:{%s}", id);
    return key;
}

static bool exists(const char *key)
{
    return server_integer(&server, "EXISTS %s", key) == 1;
}

/* What a client is told about another, its lines joined by newlines. */
static const char *told(snib_client *client, const char *owner)
{
    static char buffer[65536];
    size_t used = 0;
    uint32_t count = 0;
    EXPECT(snib_client_identity(client, owner, strlen(owner), buffer, sizeof buffer, &used, &count,
                                err),
           SNIB_OK);
    for (size_t i = 0; i + 1 < used; i++)
        if (buffer[i] == 0)
            buffer[i] = '\n';
    buffer[used] = 0;
    return buffer;
}

static const char *told_about(snib_client *client, snib_client *other)
{
    char id[37];
    EXPECT(snib_client_id(other, id, err), SNIB_OK);
    return told(client, id);
}

/* The same without a thread that waits: the event has the texts. */
static uint32_t told_by_event(snib_client *client, const char *owner)
{
    snib_queue *queue = must_queue(client);
    EXPECT(snib_client_identity_submit(client, owner, strlen(owner), queue, 3, NULL, err), SNIB_OK);
    snib_event event = must_event(queue, PROMPT_MS);
    assert_int_equal(event.kind, SNIB_EVENT_DONE);
    assert_int_equal(event.code, SNIB_OK);
    assert_int_equal(event.token, 3);
    uint32_t count = event.texts->count;
    snib_texts_free(event.texts);
    snib_queue_free(queue);
    return count;
}

/* Acquires again what a slow machine has lost. */
static void keep(snib_lock *lock, snib_hold **hold)
{
    if (snib_hold_check(*hold, NULL) == SNIB_OK)
        return;
    snib_hold_free(*hold);
    *hold = must_acquire(lock, PROMPT_MS);
}

#define AWAIT_HELD(lock, hold, condition) AWAIT((keep(lock, hold), (condition)), PROMPT_MS)

/* Since when this owner has its hold, in a client's lines; 0: they do not say. */
static long long held_since(const char *lines, const char *owner)
{
    char want[64];
    snprintf(want, sizeof want, "\nheld %s ", strchr(owner, ':') + 1);
    const char *at = strstr(lines, want);
    return at ? atoll(at + strlen(want)) : 0;
}

/* ---- What is shown --------------------------------------------------------------------------------- */

static void shown(void **state)
{
    (void)state;
    char host[256] = "", want[512];
    time_t before = time(NULL);
    snib_client *ours = open_as(server.url, NULL, "nightly run", 0, LEASE_MS),
                *theirs = must_open(server.url);
    snib_lock *lock = must_lock(ours, "shown"), *same = must_lock(theirs, "shown");
    snib_hold *hold = must_acquire(lock, 0);
    AWAIT_HELD(lock, &hold, exists(key_of(ours)));
    snib_lock_info_data info = {.size = sizeof info};
    EXPECT(snib_lock_info(same, &info, err), SNIB_OK);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    snprintf(want, sizeof want,
             "host %.64s\npid %d\nprogram live_identity\nlabel nightly run\nsince ", host,
             (int)getpid());
    const char *text = told(theirs, info.owner);
    assert_int_equal(strncmp(text, want, strlen(want)), 0);
    assert_in_range(atoll(text + strlen(want)), before, time(NULL));
    assert_in_range(held_since(text, info.owner), before, time(NULL));
    assert_int_equal(told_by_event(theirs, info.owner), 6);
    assert_int_equal(told_by_event(theirs, "redis-py's"), 0);
    assert_in_range(server_integer(&server, "PTTL %s", key_of(ours)), 1, 3000);
    server_do(&server, "DEL %s", key_of(ours)); /* it comes back */
    AWAIT_HELD(lock, &hold, exists(key_of(ours)));
    snib_hold_free(hold);
    snib_lock_free(lock);
    snib_lock_free(same);
    const char *key = key_of(ours);
    snib_client_free(ours);
    AWAIT(!exists(key), 1000);
    snib_client_free(theirs);
}

static bool says(snib_client *client, snib_client *other, const char *line)
{
    return strstr(told_about(client, other), line) != NULL;
}

/* A label may change while something is held, and is seen at once; nothing else changes.  A bad one changes nothing. */
static void relabelled(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "a\nb", "\xff",
        "0123456789012345678901234567890123456789012345678901234567890123"
        "01234567890123456789012345678901234567890123456789012345678901234"};
    snib_client *ours = open_as(server.url, NULL, "first", 0, LONG_MS),
                *silent = open_as(server.url, NULL, "x", -1, LONG_MS),
                *theirs = must_open(server.url);
    EXPECT(snib_client_set_label(ours, "before anyone could ask", err), SNIB_OK);
    snib_lock *lock = must_lock(ours, "relabelled");
    snib_hold *hold = must_acquire(lock, 0);
    AWAIT(says(theirs, ours, "label before anyone could ask\n"), LONG_MS);
    const char *since = strstr(told_about(theirs, ours), "since ");
    long long opened = atoll(since + strlen("since "));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snib_error error;
        assert_int_equal(snib_client_set_label(ours, bad[i], &error), SNIB_EINVAL);
        assert_memory_equal(error.text, "the label ", strlen("the label "));
    }
    EXPECT(snib_client_set_label(silent, "y", err), SNIB_ENOTSUP);
    assert_true(says(theirs, ours, "label before anyone could ask\n"));
    bool at_once = false;
    /* before the next renewal, unless the machine stands still */
    for (int i = 0; i < 5 && !at_once; i++) {
        char label[32], line[48];
        uint64_t before = must_stats(ours).renewal_commands;
        snprintf(label, sizeof label, "order %d", 17 + i);
        snprintf(line, sizeof line, "label %s\n", label);
        EXPECT(snib_client_set_label(ours, label, err), SNIB_OK);
        AWAIT(says(theirs, ours, line), LONG_MS);
        at_once = must_stats(ours).renewal_commands == before;
    }
    assert_true(at_once);
    assert_int_equal(atoll(strstr(told_about(theirs, ours), "since ") + strlen("since ")), opened);
    EXPECT(snib_client_set_label(ours, NULL, err), SNIB_OK);
    AWAIT(!says(theirs, ours, "label "), PROMPT_MS);
    AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_VALID, PROMPT_MS);
    snib_hold_free(hold);
    snib_lock_free(lock);
    EXPECT(snib_client_close(ours, -1, err), SNIB_OK);
    EXPECT(snib_client_set_label(ours, "late", err), SNIB_ECLOSED);
    snib_client_free(ours);
    snib_client_free(silent);
    snib_client_free(theirs);
}

/* A client that is closed takes back what would stay much longer. */
static void closed(void **state)
{
    (void)state;
    snib_client *client = open_as(server.url, NULL, NULL, 0, LONG_MS);
    snib_lock *lock = must_lock(client, "closed");
    snib_hold *hold = must_acquire(lock, 0);
    AWAIT(exists(key_of(client)), LONG_MS);
    EXPECT(snib_client_close(client, -1, err), SNIB_OK);
    AWAIT(!exists(key_of(client)), 1000);
    snib_hold_free(hold);
    snib_lock_free(lock);
    snib_client_free(client);
}

/* Nothing is sent for what is held briefly, or by a client that does not want it. */
static void not_shown(void **state)
{
    (void)state;
    long long sets = server_calls(&server, "set");
    snib_client *quick = open_as(server.url, NULL, NULL, 0, NEVER_MS),
                *silent = open_as(server.url, NULL, "x", -1, LEASE_MS);
    snib_lock *lock = must_lock(quick, "quick"), *kept = must_lock(silent, "silent");
    snib_hold *hold = must_acquire(kept, 0);
    uint64_t before = must_stats(silent).renewals;
    for (int i = 0; i < 200; i++)
        must_release(must_acquire(lock, 0));
    AWAIT_HELD(kept, &hold, must_stats(silent).renewals > before + 3);
    assert_int_equal(server_calls(&server, "set"), sets);
    assert_string_equal(told_about(quick, silent), "");
    snib_hold_free(hold);
    snib_lock_free(kept);
    snib_lock_free(lock);
    snib_client_free(silent);
    snib_client_free(quick);
}

/* ---- What cannot be ----------------------------------------------------------------------------------- */

/* Whether the client has kept its connection. */
static bool refused_once(void)
{
    snib_event event;
    char buffer[65536];
    size_t used;
    uint32_t count, told_n = 0;
    server_do(&server, "ACL SETUSER locker reset on >secret ~lock* &* +@all");
    snib_client *client = open_as(server.url, "locker", NULL, 0, LEASE_MS);
    snib_queue *log = must_queue(client);
    EXPECT(snib_client_log(client, log, SNIB_LOG_INFO, err), SNIB_OK);
    snib_lock *lock = must_lock(client, "lock");
    snib_hold *hold = must_acquire(lock, 0);
    uint64_t before = must_stats(client).renewals;
    AWAIT_HELD(lock, &hold, must_stats(client).renewals > before + 5);
    while (snib_queue_drain(log, &event, 1, NULL) == 1)
        told_n += strstr(event.text, "allow this user ~snib_client:* +set +del") != NULL;
    assert_int_equal(told_n, 1);
    assert_false(exists(key_of(client)));
    EXPECT(snib_client_identity(client, key_of(client) + strlen("snib_client:{"), 36, buffer,
                                sizeof buffer, &used, &count, err),
           SNIB_EPERM);
    bool kept = must_stats(client).reconnects == 0;
    snib_hold_free(hold);
    snib_lock_free(lock);
    snib_queue_free(log);
    snib_client_free(client);
    server_do(&server, "ACL DELUSER locker");
    return kept;
}

/* A user who may not touch the key has locks as before, on the same connection, and is told once what to allow.  On a
 * slow machine a connection may have ended for want of an answer. */
static void refused(void **state)
{
    (void)state;
    bool kept = false;
    for (int i = 0; i < 5 && !kept; i++)
        kept = refused_once();
    assert_true(kept);
}

/* Whatever lies under the name of a key, what a caller gets is clean and little. */
static void anything(void **state)
{
    (void)state;
    static const char owner[] = "11111111-2222-8333-8444-abcdefabcdef:1";
    static const char odd[] = "host \x1b[2Jx\n\npid no\nlabel \xff\n";
    static const char key[] = "snib_client:{11111111-2222-8333-8444-abcdefabcdef}";
    snib_client *client = must_open(server.url);
    snib_error error;
    char buffer[65536];
    size_t used;
    uint32_t count;
    server_do(&server, "SET %s %b", key, odd, sizeof odd - 1);
    assert_string_equal(told(client, owner), "host ?[2Jx\npid no\nlabel ?");
    server_do(&server, "SETRANGE %s 50000000 x", key);
    assert_in_range(strlen(told(client, owner)), 20, 2048);
    server_do(&server, "DEL %s", key);
    server_do(&server, "RPUSH %s x", key);
    assert_int_equal(snib_client_identity(client, owner, strlen(owner), buffer, sizeof buffer,
                                          &used, &count, &error),
                     SNIB_EWRONGTYPE);
    server_do(&server, "DEL %s", key);
    snib_client_free(client);
}

/* ---- Forks ---------------------------------------------------------------------------------------------- */

/* Hold a lock with an inherited client until the parent ends this. */
static void be_child(snib_client *client, int pipe)
{
    char id[37];
    snib_lock *lock = NULL;
    snib_hold *hold = NULL;
    alarm(120);
    if (snib_client_id(client, id, NULL) != SNIB_OK || write(pipe, id, sizeof id) != sizeof id ||
        snib_lock_new(client, SNIB_MUTEX, "child", 5, NULL, &lock, NULL) != SNIB_OK)
        _exit(1);
    for (;;) {
        if (!hold || snib_hold_check(hold, NULL) != SNIB_OK)
            snib_lock_acquire(lock, 0, -1, &hold, NULL);
        nap_us(10000);
    }
}

/* The child of a fork is another client, with a pid of its own. */
static void forked(void **state)
{
#if defined(__SANITIZE_THREAD__)
    skip_because("sanitizers allow no fork beside threads");
#endif
    (void)state;
    int ends[2], status;
    char id[37], line[32];
    snib_client *client = open_as(server.url, NULL, "both", 0, LEASE_MS);
    snib_lock *lock = must_lock(client, "parent");
    snib_hold *hold = must_acquire(lock, 0);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0)
        be_child(client, ends[1]);
    assert_true(pid > 0 && read(ends[0], id, sizeof id) == sizeof id);
    assert_null(strstr(key_of(client), id));
    AWAIT_HELD(lock, &hold, told(client, id)[0] != 0);
    snprintf(line, sizeof line, "\npid %d\n", (int)pid);
    assert_non_null(strstr(told(client, id), line));
    assert_non_null(strstr(told(client, id), "\nlabel both\n"));
    AWAIT_HELD(lock, &hold, told_about(client, client)[0] != 0);
    snprintf(line, sizeof line, "\npid %d\n", (int)getpid());
    assert_non_null(strstr(told_about(client, client), line));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    close(ends[0]);
    close(ends[1]);
    snib_hold_free(hold);
    snib_lock_free(lock);
    snib_client_free(client);
}

/* ---- A cluster -------------------------------------------------------------------------------------------- */

/* The key has a slot of its own, whose node its client must find, and others too. */
static void in_a_cluster(void **state)
{
    (void)state;
    static struct deployment cluster;
    enum { CLIENTS = 5 };
    snib_client *clients[CLIENTS], *other;
    snib_lock *locks[CLIENTS];
    snib_hold *holds[CLIENTS];
    cluster_start(&cluster, NULL);
    cluster_await_settled(&cluster);
    other = must_open(cluster.url);
    for (int i = 0; i < CLIENTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        clients[i] = open_as(cluster.url, NULL, name, 0, 3 * LEASE_MS);
        locks[i] = must_lock(clients[i], name);
        holds[i] = must_acquire(locks[i], PROMPT_MS);
    }
    for (int i = 0; i < CLIENTS; i++) {
        char line[24];
        snprintf(line, sizeof line, "\nlabel m%d\n", i);
        AWAIT_HELD(locks[i], &holds[i], strstr(told_about(other, clients[i]), line));
    }
    for (int i = 0; i < CLIENTS; i++) {
        snib_hold_free(holds[i]);
        snib_lock_free(locks[i]);
        EXPECT(snib_client_close(clients[i], -1, err), SNIB_OK);
        AWAIT(told_about(other, clients[i])[0] == 0, PROMPT_MS);
        snib_client_free(clients[i]);
    }
    snib_client_free(other);
    deployment_end(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shown),     cmocka_unit_test(relabelled),   cmocka_unit_test(closed),
        cmocka_unit_test(not_shown), cmocka_unit_test(refused),      cmocka_unit_test(anything),
        cmocka_unit_test(forked),    cmocka_unit_test(in_a_cluster),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
