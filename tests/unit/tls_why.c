/* tls_why.c - each reason for which OpenSSL gives up, and each alert of the peer, has its outcome and its sentence. */
#include "unit.h"

#include "driver/tls.h"
#include "driver/tls_openssl.h"
#include "snib.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <errno.h>
#include <string.h>

static SSL_CTX *factory;
static SSL *ssl;

static int open_ssl(void **state)
{
    (void)state;
    factory = SSL_CTX_new(TLS_client_method());
    ssl = factory ? SSL_new(factory) : NULL;
    return ssl && snib__openssl() ? 0 : -1;
}

static int close_ssl(void **state)
{
    (void)state;
    SSL_free(ssl);
    SSL_CTX_free(factory);
    return 0;
}

static struct snib__tls_failure explained(const struct snib__tls_context *context)
{
    struct snib__tls_failure failure;
    memset(&failure, 7, sizeof failure);
    errno = 0;
    snib__tls_explain(&failure, ssl, "the-host", context);
    ERR_clear_error();
    SSL_set_verify_result(ssl, X509_V_OK);
    return failure;
}

/* With an error of the TLS library. */
static struct snib__tls_failure after(int library, int reason,
                                      const struct snib__tls_context *context)
{
    ERR_raise(ERR_LIB_SYS, ENOENT); /* an older one does not count */
    ERR_raise(library, reason);
    return explained(context);
}

static void expect(const struct snib__tls_failure *failure, int outcome, int os_error,
                   const char *words)
{
    assert_int_equal(failure->outcome, outcome);
    assert_int_equal(failure->code, SNIB_ETLS);
    assert_int_equal(failure->os_error, os_error);
    if (!strstr(failure->text, "the-host") || !strstr(failure->text, words))
        fail_msg("\"%s\" without \"%s\"", failure->text, words);
}

static const struct snib__tls_context plain, with_cert = {.has_cert = true}, own = {.own_ca = true},
                                             insecure = {.insecure = true};

/* What may pass by itself has an os_error; all else is final. */
static void reasons(void **state)
{
    (void)state;
    static const struct {
        int reason, outcome, os_error;
        const char *words;
    } cases[] = {
        {SSL_R_UNEXPECTED_EOF_WHILE_READING, SNIB__TLS_CUT, ECONNRESET, "without ending TLS"},
        {SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, SNIB__TLS_BROKEN, EPROTO, "damaged"},
        {SSL_R_NO_PROTOCOLS_AVAILABLE, SNIB__TLS_VERSION, 0, "TLS 1.2"},
        {SSL_R_UNSUPPORTED_PROTOCOL, SNIB__TLS_VERSION, 0, "TLS 1.2"},
        {SSL_R_WRONG_SSL_VERSION, SNIB__TLS_VERSION, 0, "TLS 1.2"},
        {SSL_R_VERSION_TOO_LOW, SNIB__TLS_VERSION, 0, "TLS 1.2"},
        {SSL_R_WRONG_VERSION_NUMBER, SNIB__TLS_NO_TLS, 0, "does not speak TLS"},
        {SSL_R_PACKET_LENGTH_TOO_LONG, SNIB__TLS_NO_TLS, 0, "does not speak TLS"},
        {SSL_R_UNEXPECTED_MESSAGE, SNIB__TLS_NO_TLS, 0, "does not speak TLS"},
        {SSL_R_UNKNOWN_PROTOCOL, SNIB__TLS_NO_TLS, 0, "does not speak TLS"},
        {SSL_R_BAD_RECORD_TYPE, SNIB__TLS_NO_TLS, 0, "does not speak TLS"},
        {SSL_R_NO_SHARED_CIPHER, SNIB__TLS_REFUSED, 0, "no shared cipher"},
        {999, SNIB__TLS_REFUSED, 0, "failed"},  /* just below the alerts */
        {1256, SNIB__TLS_REFUSED, 0, "failed"}, /* just above them */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct snib__tls_failure failure = after(ERR_LIB_SSL, cases[i].reason, &plain);
        expect(&failure, cases[i].outcome, cases[i].os_error, cases[i].words);
    }
}

/* The same numbers mean something else in other libraries, and to the system. */
static void of_other_libraries(void **state)
{
    (void)state;
    static const int libraries[] = {ERR_LIB_X509, ERR_LIB_EVP, ERR_LIB_SYS};
    static const int reasons[] = {SSL_R_WRONG_VERSION_NUMBER, 1042};
    for (size_t i = 0; i < COUNT(libraries); i++)
        for (size_t j = 0; j < COUNT(reasons); j++) {
            struct snib__tls_failure failure = after(libraries[i], reasons[j], &plain);
            expect(&failure, SNIB__TLS_REFUSED, 0, "failed");
        }
    struct snib__tls_failure failure = explained(&plain); /* no error at all */
    expect(&failure, SNIB__TLS_REFUSED, 0, "no reason given");
}

static void alerts(void **state)
{
    (void)state;
    static const struct {
        int alert, without, with; /* a client certificate */
    } cases[] = {
        {70, SNIB__TLS_VERSION, SNIB__TLS_VERSION},
        {20, SNIB__TLS_BROKEN, SNIB__TLS_BROKEN},
        {80, SNIB__TLS_BROKEN, SNIB__TLS_BROKEN},
        {90, SNIB__TLS_BROKEN, SNIB__TLS_BROKEN},
        {40, SNIB__TLS_CERT_WANTED, SNIB__TLS_REFUSED},
        {41, SNIB__TLS_CERT_WANTED, SNIB__TLS_CERT_REFUSED},
        {42, SNIB__TLS_CERT_WANTED, SNIB__TLS_CERT_REFUSED},
        {43, SNIB__TLS_CERT_WANTED, SNIB__TLS_CERT_REFUSED},
        {44, SNIB__TLS_CERT_WANTED, SNIB__TLS_CERT_REFUSED},
        {45, SNIB__TLS_CERT_WANTED, SNIB__TLS_CERT_REFUSED},
        {46, SNIB__TLS_CERT_WANTED, SNIB__TLS_CERT_REFUSED},
        {48, SNIB__TLS_CERT_WANTED, SNIB__TLS_CERT_REFUSED},
        {49, SNIB__TLS_CERT_WANTED, SNIB__TLS_CERT_REFUSED},
        {116, SNIB__TLS_CERT_WANTED, SNIB__TLS_CERT_REFUSED},
        {0, SNIB__TLS_REFUSED, SNIB__TLS_REFUSED},
        {47, SNIB__TLS_REFUSED, SNIB__TLS_REFUSED},
        {112, SNIB__TLS_REFUSED, SNIB__TLS_REFUSED},
        {255, SNIB__TLS_REFUSED, SNIB__TLS_REFUSED},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int cert = 0; cert < 2; cert++) {
            int outcome = cert ? cases[i].with : cases[i].without;
            struct snib__tls_failure failure =
                after(ERR_LIB_SSL, 1000 + cases[i].alert, cert ? &with_cert : &plain);
            expect(&failure, outcome, outcome == SNIB__TLS_BROKEN ? EPROTO : 0, "");
        }
}

/* A refused certificate is the reason, whatever else is reported; unless none is verified. */
static void certificates(void **state)
{
    (void)state;
    static const struct {
        long verdict;
        int outcome;
        const char *words;
    } cases[] = {
        {X509_V_ERR_CERT_HAS_EXPIRED, SNIB__TLS_EXPIRED, "renew it"},
        {X509_V_ERR_CERT_NOT_YET_VALID, SNIB__TLS_EARLY, "clocks"},
        {X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, SNIB__TLS_SELF_SIGNED, "self-signed"},
        {X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, SNIB__TLS_UNKNOWN_CA, "the system's CAs"},
        {X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, SNIB__TLS_UNKNOWN_CA, "the system's CAs"},
        {X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, SNIB__TLS_UNKNOWN_CA, "the system's CAs"},
        {X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, SNIB__TLS_UNKNOWN_CA, "the system's CAs"},
        {X509_V_ERR_CERT_UNTRUSTED, SNIB__TLS_UNKNOWN_CA, "the system's CAs"},
        {X509_V_ERR_HOSTNAME_MISMATCH, SNIB__TLS_WRONG_HOST, "tls_server_name"},
        {X509_V_ERR_IP_ADDRESS_MISMATCH, SNIB__TLS_WRONG_HOST, "tls_server_name"},
        {X509_V_ERR_CERT_REVOKED, SNIB__TLS_BAD_CERTIFICATE, "revoked"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        SSL_set_verify_result(ssl, cases[i].verdict);
        struct snib__tls_failure failure =
            after(ERR_LIB_SSL, SSL_R_CERTIFICATE_VERIFY_FAILED, &plain);
        expect(&failure, cases[i].outcome, 0, cases[i].words);
        SSL_set_verify_result(ssl, cases[i].verdict);
        failure = after(ERR_LIB_SSL, SSL_R_WRONG_VERSION_NUMBER, &insecure);
        expect(&failure, SNIB__TLS_NO_TLS, 0, "");
    }
    SSL_set_verify_result(ssl, X509_V_ERR_CERT_UNTRUSTED);
    struct snib__tls_failure failure = explained(&own);
    expect(&failure, SNIB__TLS_UNKNOWN_CA, 0, "the given CA");
}

/* The code and the os_error follow from the outcome. */
static void codes(void **state)
{
    (void)state;
    static const struct {
        int outcome, code, os_error;
    } cases[] = {
        {SNIB__TLS_FINE, SNIB_OK, 0},
        {SNIB__TLS_NO_LIBRARY, SNIB_ENOTSUP, 0},
        {SNIB__TLS_NO_MEMORY, SNIB_ETLS, ENOMEM},
        {SNIB__TLS_SILENT, SNIB_ETLS, ETIMEDOUT},
        {SNIB__TLS_KEY, SNIB_ETLS, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct snib__tls_failure failure;
        assert_false(snib__tls_fail(&failure, cases[i].outcome, "%s\x1b", "words"));
        assert_int_equal(failure.outcome, cases[i].outcome);
        assert_int_equal(failure.code, cases[i].code);
        assert_int_equal(failure.os_error, cases[i].os_error);
        assert_null(strchr(failure.text, '\x1b'));
    }
}

static void unable(void **state)
{
    struct snib__tls_failure failure;
    (void)state;
    ERR_raise(ERR_LIB_SSL, SSL_R_LIBRARY_HAS_NO_CIPHERS);
    errno = 0;
    snib__tls_unable(&failure);
    assert_int_equal(failure.code, SNIB_ETLS);
    assert_int_equal(failure.os_error, 0);
    assert_non_null(strstr(failure.text, "library has no ciphers"));
    ERR_raise(ERR_LIB_SSL, SSL_R_LIBRARY_HAS_NO_CIPHERS);
    errno = ENOMEM;
    snib__tls_unable(&failure);
    assert_int_equal(failure.os_error, ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasons), cmocka_unit_test(of_other_libraries),
        cmocka_unit_test(alerts),  cmocka_unit_test(certificates),
        cmocka_unit_test(codes),   cmocka_unit_test(unable),
    };
    return cmocka_run_group_tests(tests, open_ssl, close_ssl);
}
