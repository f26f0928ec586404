/* tls.h - for the programs of locks over TLS: a server, the certificate that it presents, clients of it, and what they are
 * refused. */
#ifndef SNIB_TEST_TLS_H
#define SNIB_TEST_TLS_H
#include "../support/support.h"

#include <stdio.h>
#include <string.h>

enum { LONG_MS = 20000 };

static struct server server;

static inline int world_new(void **state)
{
    (void)state;
    server_start(&server, NULL);
    return 0;
}

static inline int world_free(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

/* The server presents another certificate from the next connection on. */
static inline void present(const char *name)
{
    server_do(&server, "CONFIG SET tls-cert-file %s/%s.crt tls-key-file %s/%s.key", server_certs(),
              name, server_certs(), name);
}

static inline int fresh(void **state)
{
    (void)state;
    server_do(&server, "CONFIG SET tls-auth-clients no"); /* whatever an earlier test left */
    present("server");
    server_do(&server, "FLUSHALL");
    return 0;
}

/* "rediss://localhost:PORT" and options, where %s is the folder of the certificates. */
static inline const char *url_at(int port, const char *options)
{
    static char url[512];
    const char *c = server_certs();
    int n = snprintf(url, sizeof url, "rediss://localhost:%d%s", port, options[0] ? "?" : "");
    snprintf(url + n, sizeof url - (size_t)n, options, c, c, c);
    return url;
}

static inline const char *url_with(const char *options)
{
    return url_at(server.tls_port, options);
}

/* Where a silent peer is to cost little time; 0: the defaults. */
struct haste {
    int64_t lease_ms, connect_ms;
};

static inline snib_client *open_hasty(const char *url, int64_t patience_ms, struct haste haste)
{
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = haste.lease_ms;
    options.patience_ms = patience_ms;
    options.try_timeout_ms = patient_ms(1000); /* a wait of 0 fails only if it is busy */
    options.connect_timeout_ms = haste.connect_ms;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

static inline snib_client *open_with(const char *url, int64_t patience_ms)
{
    return open_hasty(url, patience_ms, (struct haste){0});
}

/* Refused at once, however patient the client is, for each waiter. */
static inline void refused(const char *url, int32_t code, const char *says)
{
    snib_error error = {0};
    snib_hold *hold = NULL;
    snib_client *client = open_with(url, 600000);
    snib_lock *lock = must_lock(client, "x");
    snib_queue *queue = must_queue(client);
    int64_t start = now_ms();
    EXPECT(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
    assert_int_equal(snib_lock_acquire(lock, 0, -1, &hold, &error), code);
    print_message("          %s\n", error.text);
    assert_non_null(strstr(error.text, says));
    assert_non_null(strstr(error.text, "mutex \"x\": "));
    assert_int_equal(must_event(queue, LONG_MS).code, code);
    assert_true(now_ms() - start < 60000);
    assert_false(snib_code_is(code, SNIB_IS_RETRYABLE));
    snib_queue_free(queue);
    snib_lock_free(lock);
    snib_client_free(client);
    assert_true(server_is_empty(&server)); /* it never got that far */
}

#endif
