/* tls.c - locks over TLS: refusals have their own errors and come in time; certificates and authorities that are replaced on
 * disk are used from the next connection on; and many threads, long replies, and few system calls, as without TLS. */
#include "tls.h"

#include <pthread.h>
#include <stdlib.h>

static void certificates(void **state)
{
    (void)state;
    static const struct {
        const char *presents, *options, *says;
    } tries[] = {
        {"expired", "tls_ca=%s/ca.crt", "has expired"},
        {"self", "tls_ca=%s/ca.crt", "is self-signed"},
        {"stranger", "tls_ca=%s/ca.crt", "not signed by the given CA"},
        {"other", "tls_ca=%s/ca.crt", "not for localhost"},
        {"server", "tls_ca=%s/strange.crt", "not signed by the given CA"},
        {"server", "", "not signed by the system's CAs"},
        {"server", "tls_ca=%s/ca.crt&tls_server_name=b.test", "not for b.test"},
        {"server", "tls_ca=%s/none", "none\" cannot be read: No such file"},
        {"server", "tls_ca=%s/ca.key", "contains no certificate"},
        {"server", "tls_ca=%s/ca.crt&tls_cert=%s/client.crt&tls_key=%s/server.key",
         "does not match"},
    };
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        present(tries[i].presents);
        refused(url_with(tries[i].options), SNIB_ETLS, tries[i].says);
    }
    present("server");
}

static void client_certificates(void **state)
{
    (void)state;
    server_do(&server, "CONFIG SET tls-auth-clients yes");
    refused(url_with("tls_ca=%s/ca.crt"), SNIB_ETLS, "requires a client certificate");
    refused(url_with("tls_ca=%s/ca.crt&tls_cert=%s/stranger.crt&tls_key=%s/stranger.key"),
            SNIB_ETLS, "refuses the client certificate");
    refused(url_with("tls_ca=%s/ca.crt&tls_cert=%s/client.crt&tls_key=%s/client.enc&"
                     "tls_key_password=tweety"),
            SNIB_ETLS, "does not open");
    static const char *const good[] = {
        "tls_ca=%s/ca.crt&tls_cert=%s/client.crt&tls_key=%s/client.key",
        "tls_ca=%s/ca.crt&tls_cert=%s/client.crt&tls_key=%s/client.enc&tls_key_password=canary"};
    for (int i = 0; i < 2; i++) {
        snib_client *client = open_with(url_with(good[i]), LONG_MS);
        must_release(must_acquire(must_lock(client, "x"), 0));
        snib_client_free(client);
    }
    server_do(&server, "CONFIG SET tls-auth-clients no");
}

static void accepted(void **state)
{
    (void)state;
    static const struct {
        const char *presents, *options;
    } tries[] = {{"server", "tls_ca=%s/cas"},
                 {"other", "tls_ca=%s/ca.crt&tls_server_name=elsewhere.test"},
                 {"self", "tls_ca=%s/self.crt"},
                 {"expired", "tls_insecure=yes"}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        present(tries[i].presents);
        snib_client *client = open_with(url_with(tries[i].options), LONG_MS);
        must_release(must_acquire(must_lock(client, "x"), 0));
        snib_client_free(client);
    }
    present("server");
}

/* Insecure connections are logged once, however many there are. */
static void insecure_is_told(void **state)
{
    (void)state;
    snib_client *client = open_with(url_with("tls_insecure=yes"), LONG_MS);
    snib_queue *queue = must_queue(client);
    EXPECT(snib_client_log(client, queue, SNIB_LOG_WARNING, err), SNIB_OK);
    for (int i = 0; i < 3; i++) {
        must_release(must_acquire(must_lock(client, "x"), LONG_MS));
        server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    }
    int told = 0;
    snib_event event = {.size = sizeof event};
    while (snib_queue_drain(queue, &event, 1, NULL) == 1)
        told += event.kind == SNIB_EVENT_LOG && strstr(event.text, "tls_insecure") != NULL;
    assert_int_equal(told, 1);
    snib_queue_free(queue);
    snib_client_free(client);
}

/* The authority's file is replaced while a lock is held: the next connection uses the new one, and
 * while that does not match, the hold lives on with its connection. */
static void renewed_on_disk(void **state)
{
    (void)state;
    char command[512];
    const char *c = server_certs();
    snprintf(command, sizeof command, "cp %s/strange.crt %s/trusted.crt", c, c);
    assert_int_equal(system(command), 0);
    refused(url_with("tls_ca=%s/trusted.crt"), SNIB_ETLS, "not signed by");
    snib_client *client = open_with(url_with("tls_ca=%s/trusted.crt"), LONG_MS);
    snib_lock *lock = must_lock(client, "x");
    snib_hold *hold = NULL;
    EXPECT(snib_lock_acquire(lock, 0, 0, &hold, err), SNIB_ETLS);
    snprintf(command, sizeof command, "cp %s/ca.crt %s/trusted.crt", c, c);
    assert_int_equal(system(command), 0);
    hold = must_acquire(lock, LONG_MS);
    present("again"); /* another key of the same name and CA: trusted */
    server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    must_release(must_acquire(must_lock(client, "y"), LONG_MS));
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    present("server");
    snib_client_free(client);
}

/* A file takes the place of another in one step, as whoever renews certificates has to. */
static void replace(const char *from, const char *to)
{
    char command[512];
    const char *c = server_certs();
    snprintf(command, sizeof command, "cp %s/%s %s/%s.new && mv %s/%s.new %s/%s", c, from, c, to, c,
             to, c, to);
    assert_int_equal(system(command), 0);
}

/* The client's own certificate and key are read at each connect, too. */
static void own_renewed_on_disk(void **state)
{
    (void)state;
    server_do(&server, "CONFIG SET tls-auth-clients yes");
    replace("client.crt", "mine.crt");
    replace("client.key", "mine.key");
    struct haste patient = {.lease_ms = 60000};
    const char *url = url_with("tls_ca=%s/ca.crt&tls_cert=%s/mine.crt&tls_key=%s/mine.key");
    snib_client *client = open_hasty(url, LONG_MS, patient);
    snib_hold *hold = must_acquire(must_lock(client, "x"), LONG_MS), *none;
    replace("stranger.crt", "mine.crt");
    replace("stranger.key", "mine.key");
    server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    AWAIT(snib_hold_state(hold, NULL) != SNIB_HOLD_VALID, LONG_MS);
    EXPECT(snib_lock_acquire(must_lock(client, "y"), 0, -1, &none, err), SNIB_ETLS);
    replace("again.crt", "mine.crt"); /* another key, of the CA that the server trusts */
    replace("again.key", "mine.key");
    AWAIT(snib_client_ping(client, -1, NULL) == SNIB_OK, LONG_MS);
    must_release(must_acquire(must_lock(client, "y"), LONG_MS));
    must_be_valid(hold, LONG_MS);
    must_release(hold);
    snib_client_free(client);
    server_do(&server, "CONFIG SET tls-auth-clients no");
}

/* Another server is in the place of the one that was trusted: nothing is sent to it, what needs a server is told why, and the
 * hold lives on until its deadline, and beyond if the right one is back by then. */
static void certificate_that_turns_bad(void **state)
{
    (void)state;
    struct haste patient = {.lease_ms = 60000};
    snib_client *client = open_hasty(url_with("tls_ca=%s/ca.crt"), LONG_MS, patient);
    snib_hold *hold = must_acquire(must_lock(client, "x"), 0), *none;
    snib_error error = {0};
    present("stranger");
    server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_AT_RISK, LONG_MS);
    assert_int_equal(snib_lock_acquire(must_lock(client, "y"), 0, -1, &none, &error), SNIB_ETLS);
    assert_non_null(strstr(error.text, "not signed by the given CA"));
    assert_int_equal(server_integer(&server, "EXISTS y"), 0);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    present("server");
    AWAIT(snib_hold_state(hold, NULL) == SNIB_HOLD_VALID, LONG_MS);
    must_release(must_acquire(must_lock(client, "y"), LONG_MS));
    must_release(hold);
    snib_client_free(client);
}

/* ---- Load ------------------------------------------------------------------------------------ */

static struct {
    snib_client *client;
    _Atomic int errors, done;
} crowd;

static void *crowd_main(void *argument)
{
    char name[32];
    int number = *(int *)argument;
    for (int i = 0; i < count_of(2000, 200); i++) {
        snib_hold *hold = NULL;
        snprintf(name, sizeof name, "%d", i % 4 ? number : 1000);
        snib_lock *lock = must_lock(crowd.client, name);
        if (snib_lock_acquire(lock, (uint64_t)number + 1, LONG_MS, &hold, NULL) != SNIB_OK ||
            snib_hold_release(hold, NULL) != SNIB_OK)
            crowd.errors++;
        snib_hold_free(hold);
        snib_lock_free(lock);
        crowd.done++;
    }
    return NULL;
}

/* Many threads on one connection, which is closed under them now and then. */
static void many_threads(void **state)
{
    enum { THREADS = 16 };
    (void)state;
    pthread_t threads[THREADS];
    int numbers[THREADS];
    crowd.client = open_with(server.url, LONG_MS);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_main, &numbers[i]), 0);
    }
    for (int i = 1; i <= 3; i++) {
        AWAIT(crowd.done >= i * THREADS * count_of(2000, 200) / 4, 60000);
        server_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(crowd.errors <= 3 * THREADS); /* releases whose replies were cut off */
    AWAIT(server_is_empty(&server), LONG_MS);
    snib_client_free(crowd.client);
}

/* Replies of many records, and thousands of requests in one send. */
static void long_answers(void **state)
{
    (void)state;
    enum { LOCKS = 3000 };
    static char names[1 << 20];
    char name[256];
    snib_client *client = must_open(server.url);
    snib_queue *queue = must_queue(client);
    snib_hold **holds = calloc(LOCKS, sizeof(snib_hold *));
    for (int i = 0; i < LOCKS; i++) {
        snprintf(name, sizeof name, "%0200d", i);
        snib_lock *lock = must_lock(client, name);
        EXPECT(snib_lock_acquire_submit(lock, 0, 0, queue, (uint64_t)i, NULL, err), SNIB_OK);
        snib_lock_free(lock);
    }
    for (int i = 0; i < LOCKS; i++) {
        snib_event event = must_event(queue, LONG_MS);
        assert_int_equal(event.code, SNIB_OK);
        holds[event.token] = event.hold;
    }
    uint64_t cursor = 0;
    uint32_t count, all = 0;
    do {
        size_t used;
        EXPECT(snib_client_list(client, "*", 1, &cursor, names, sizeof names, &used, &count, err),
               SNIB_OK);
        all += count;
    } while (cursor != 0);
    assert_true(all >= LOCKS);
    for (int i = 0; i < LOCKS; i++)
        EXPECT(snib_hold_release_submit(holds[i], queue, 0, NULL, err), SNIB_OK);
    for (int i = 0; i < LOCKS; i++)
        assert_int_equal(must_event(queue, LONG_MS).code, SNIB_OK);
    for (int i = 0; i < LOCKS; i++)
        snib_hold_free(holds[i]);
    free(holds);
    assert_true(server_is_empty(&server));
    snib_queue_free(queue);
    snib_client_free(client);
}

/* One round trip is one system call to send and one to receive, as without TLS. */
static void few_calls(void **state)
{
    (void)state;
    enum { TIMES = 200 };
    snib_client *client = must_open(server.url);
    snib_lock *lock = must_lock(client, "x");
    must_release(must_acquire(lock, 0));
    snib_client_stats_data before = must_stats(client);
    for (int i = 0; i < TIMES; i++)
        must_release(must_acquire(lock, 0));
    snib_client_stats_data after = must_stats(client);
    assert_in_range(after.writes - before.writes, 2 * TIMES, 2 * TIMES + 20);
    assert_in_range(after.reads - before.reads, 2 * TIMES, 2 * TIMES + 20);
    snib_lock_free(lock);
    snib_client_free(client);
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(certificates),
        TEST(client_certificates),
        TEST(accepted),
        TEST(insecure_is_told),
        TEST(renewed_on_disk),
        TEST(own_renewed_on_disk),
        TEST(certificate_that_turns_bad),
        TEST(many_threads),
        TEST(long_answers),
        TEST(few_calls),
    };
    setenv("SNIB_TEST_TLS", "1", 1);
    return cmocka_run_group_tests(tests, world_new, world_free);
}
