/* tls_memory.c - OpenSSL is refused memory while a connection is made: the caller is told, and nothing is left. */
#include "unit.h"

#include "driver/tls.h"
#include "snib.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdlib.h>

static _Thread_local long blocks, countdown; /* of OpenSSL; to the allocation that is refused */

static bool refuses(void)
{
    return countdown > 0 && --countdown == 0;
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
            assert_int_equal(failure.code, SNIB_ENOMEM);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(begins_again),
                                       cmocka_unit_test(nothing_is_left)};
    if (!CRYPTO_set_mem_functions(allocate, extend, release))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
