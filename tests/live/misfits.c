/* misfits.c - servers of a different type than the URL says: each has its own error, which names
 * the address and says which URL to use. */
#define _GNU_SOURCE
#include "../support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void refused(const char *url, int32_t code, const char *const *words)
{
    snib_client_options options;
    snib_client *client = NULL;
    snib_error error = {0};
    snib_hold *hold = NULL;
    snib_client_options_init(&options, sizeof options);
    options.patience_ms = 500;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    snib_lock *lock = must_lock(client, "x");
    int got;
    for (int64_t end = now_ms() + patient_ms(5000);;) { /* reaching the server may take longer */
        got = snib_lock_acquire(lock, 0, -1, &hold, &error);
        if (got != SNIB_ECONNECT || now_ms() > end)
            break;
    }
    print_message("          %s: %s\n", url, error.text);
    assert_int_equal(got, code);
    for (; *words; words++)
        assert_non_null(strstr(error.text, *words));
    snib_lock_free(lock);
    snib_client_free(client);
}

#define REFUSED(url, code, ...) refused(url, code, (const char *[]){__VA_ARGS__, NULL})

static void node_of_a_cluster(void **state)
{
    (void)state;
    struct server node;
    char port[8], bus[8], where[32], url[64], advice[64];
    snprintf(port, sizeof port, "%d", free_port());
    snprintf(bus, sizeof bus, "%d", free_port());
    server_start(&node, "--cluster-enabled", "yes", "--port", port, "--cluster-port", bus, NULL);
    server_do(&node, "CLUSTER ADDSLOTSRANGE 0 16383");
    snprintf(where, sizeof where, "127.0.0.1:%s", port);
    snprintf(advice, sizeof advice, "use redis+cluster://%s", where);
    snprintf(url, sizeof url, "redis://%s", where);
    REFUSED(url, SNIB_ETOPOLOGY, where, "is a cluster node", advice);
    REFUSED(node.url, SNIB_ETOPOLOGY, node.socket, "is a cluster node",
            "redis+cluster://host:port");
    snprintf(url, sizeof url, "redis://%s/3", where);
    REFUSED(url, SNIB_ETOPOLOGY, where, "is a cluster node", advice);
    snprintf(url, sizeof url, "redis+sentinel://%s/main", where);
    REFUSED(url, SNIB_ETOPOLOGY, where, "is not a sentinel for \"main\"");
    snprintf(url, sizeof url, "redis+cluster://%s", where);
    snib_client *client = must_open(url);
    must_release(must_acquire(must_lock(client, "x"), 5000));
    snib_client_free(client);
    assert_true(server_is_empty(&node));
    server_stop(&node);
}

static void single_server(void **state)
{
    (void)state;
    struct server server;
    char port[8], where[32], url[64], advice[64], replica[96];
    snprintf(port, sizeof port, "%d", free_port());
    server_start(&server, "--port", port, NULL);
    snprintf(where, sizeof where, "127.0.0.1:%s", port);
    snprintf(advice, sizeof advice, "use redis://%s", where);
    snprintf(url, sizeof url, "redis+cluster://%s", where);
    REFUSED(url, SNIB_ETOPOLOGY, where, "is not a cluster node", advice);
    snprintf(url, sizeof url, "redis+sentinel://%s/main", where);
    REFUSED(url, SNIB_ETOPOLOGY, where, "is not a sentinel for \"main\"", "redis://");
    server_do(&server, "REPLICAOF 127.0.0.1 1");
    snprintf(url, sizeof url, "redis://%s", where);
    snprintf(replica, sizeof replica, "%s is a read-only replica; connect to its master", where);
    REFUSED(url, SNIB_EREADONLY, replica);
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(node_of_a_cluster),
        cmocka_unit_test(single_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
