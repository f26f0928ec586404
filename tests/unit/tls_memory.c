/* tls_memory.c - OpenSSL is refused memory while a connection is made: the caller is told, and nothing is left. */
#include "unit.h"

#include "driver/tls.h"
#include "snib.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static _Thread_local long blocks, countdown; /* of OpenSSL; to the allocation that is refused */
static _Thread_local bool all;               /* ... and all that follow */

static bool refuses(void)
{
    if (countdown == 0 || --countdown > 0)
        return false;
    countdown = all;
    errno = ENOMEM;
    return true;
}

static void *allocate(size_t n, const char *file, int line)
{
    (void)file, (void)line;
    void *block = refuses() ? NULL : malloc(n);
    blocks += block != NULL;
    return block;
}

static void *extend(void *old, size_t n, const char *file, int line)
{
    (void)file, (void)line;
    void *block = refuses() ? NULL : realloc(old, n);
    blocks += block && !old;
    return block;
}

static void release(void *block, const char *file, int line)
{
    (void)file, (void)line;
    blocks -= block != NULL;
    free(block);
}

/* The library could not begin for want of memory: it can when there is some. */
static void begins_again(void **state)
{
    (void)state;
    int n = 0;
    assert_int_equal(OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL), 1);
    BIO_get_new_index(); /* these two keep their own refusals */
    for (bool works = false; !works;) {
        countdown = ++n;
        works = snib__tls_available();
        countdown = 0;
        assert_in_range(n, 1, 20);
    }
    assert_true(n > 1);
}

/* Refuse each allocation of a connection in turn; returns how many there are. */
static int refuse_each(const struct snib__tls_files *files, const char *host, bool exact)
{
    for (int n = 1;; n++) {
        struct snib__tls_failure failure = {0};
        long before = blocks;
        countdown = n;
        struct snib__tls *tls = snib__tls_new(files, host, &failure);
        bool refused = countdown == 0;
        countdown = 0;
        if (!tls) {
            assert_true(refused);
            assert_int_equal(failure.outcome, SNIB__TLS_NO_MEMORY);
            assert_int_equal(failure.code, SNIB_ETLS);
            assert_int_equal(failure.os_error, ENOMEM);
        }
        snib__tls_free(tls);
        ERR_clear_error();
        if (exact && blocks != before)
            fail_msg("%ld blocks are left after refusal %d", blocks - before, n);
        if (!refused)
            return n - 1;
    }
}

static void nothing_is_left(void **state)
{
    (void)state;
    static const char *const hosts[] = {"localhost", "127.0.0.1", "::1", "localhost."};
    const struct snib__tls_config config = {.insecure = true};
    struct snib__tls_files *files = snib__tls_files_new(&config);
    assert_non_null(files);
    struct pollfd bell = {.fd = snib__tls_files_bell(files), .events = POLLIN};
    assert_int_equal(poll(&bell, 1, 20000), 1);
    assert_true(snib__tls_files_done(files)); /* also says so to this thread */
    refuse_each(files, hosts[0], false);      /* OpenSSL keeps something for each thread */
    for (size_t i = 0; i < COUNT(hosts); i++)
        assert_true(refuse_each(files, hosts[i], true) > 2); /* the SSL and the BIO are two */
    snib__tls_files_free(files);
}

/* ---- Handshakes --------------------------------------------------------------------------------- */

static char folder[] = "/tmp/snib-tls-XXXXXX", ca[64], cert[64], key[64];
static SSL_CTX *server;

static int make_server(void **state)
{
    char command[256];
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(folder))
        return -1;
    snprintf(command, sizeof command, "'%s' '%s'", SNIB_CERTS, folder);
    snprintf(ca, sizeof ca, "%s/ca.crt", folder);
    snprintf(cert, sizeof cert, "%s/server.crt", folder);
    snprintf(key, sizeof key, "%s/server.key", folder);
    server = system(command) == 0 ? SSL_CTX_new(TLS_server_method()) : NULL;
    return server && SSL_CTX_use_certificate_chain_file(server, cert) == 1 &&
                   SSL_CTX_use_PrivateKey_file(server, key, SSL_FILETYPE_PEM) == 1
               ? 0
               : -1;
}

static int free_server(void **state)
{
    char command[64];
    (void)state;
    SSL_CTX_free(server);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static void *serve(void *fd)
{
    SSL *ssl = SSL_new(server);
    char byte;
    SSL_set_fd(ssl, *(int *)fd);
    SSL_accept(ssl);
    while (read(*(int *)fd, &byte, 1) > 0)
        ;
    SSL_free(ssl);
    close(*(int *)fd);
    return NULL;
}

/* Shake hands; returns whether memory was refused. */
static bool shake(const struct snib__tls_files *files, long n, struct snib__tls_failure *failure)
{
    int fds[2], step;
    pthread_t peer;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(pthread_create(&peer, NULL, serve, &fds[1]), 0);
    struct snib__tls *tls = snib__tls_new(files, "localhost", failure);
    assert_non_null(tls);
    countdown = n;
    while ((step = snib__tls_handshake(tls, fds[0])) == 0) {
        struct pollfd ready = {.fd = fds[0], .events = snib__tls_events(tls)};
        poll(&ready, 1, 1000);
    }
    bool refused = countdown <= 1;
    countdown = 0;
    *failure = step < 0 ? *snib__tls_why(tls) : (struct snib__tls_failure){0};
    shutdown(fds[0], SHUT_RDWR);
    pthread_join(peer, NULL);
    snib__tls_free(tls);
    close(fds[0]);
    return refused;
}

/* Memory is short from some moment of a handshake on: nothing that OpenSSL makes of that is final, but for a few things. */
static void nothing_is_final(void **state)
{
    (void)state;
    const struct snib__tls_config config = {.ca = ca};
    struct snib__tls_files *files = snib__tls_files_new(&config);
    assert_non_null(files);
    struct pollfd bell = {.fd = snib__tls_files_bell(files), .events = POLLIN};
    assert_int_equal(poll(&bell, 1, 20000), 1);
    assert_true(snib__tls_files_done(files));
    struct snib__tls_failure failure;
    int failed = 0, final = 0;
    all = true;
    for (long n = 1; shake(files, n, &failure); n += 1 + n / 50) {
        assert_true(failure.outcome);
        failed++;
        if (failure.os_error == 0 && ++final * 50 > failed)
            fail_msg("%d of %d: %s", final, failed, failure.text);
    }
    all = false;
    assert_int_equal(failure.outcome, SNIB__TLS_FINE);
    assert_true(failed > 50);
    snib__tls_files_free(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_again), cmocka_unit_test(nothing_is_left),
        cmocka_unit_test_setup_teardown(nothing_is_final, make_server, free_server)};
    if (!CRYPTO_set_mem_functions(allocate, extend, release))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
