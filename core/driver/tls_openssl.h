/* tls_openssl.h - the few functions of OpenSSL 3 that tls.c calls, as a table.
 *
 * With SNIB_OPENSSL_LINKED the linker fills the table, and the library's headers are used; without
 * it, dlopen() of libssl.so.3 does at the first TLS connection, so that building needs neither
 * headers nor library.  The prototypes are written down once, here, and the linked build checks
 * them.
 *
 * No OpenSSL code runs before the first call of snib__openssl().
 */
#ifndef SNIB__TLS_OPENSSL_H
#define SNIB__TLS_OPENSSL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef SNIB_OPENSSL_LINKED
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#else
typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_method_st SSL_METHOD;
typedef struct bio_st BIO;
typedef struct evp_pkey_st EVP_PKEY;
typedef struct bio_method_st BIO_METHOD;
typedef struct x509_store_ctx_st X509_STORE_CTX;
typedef struct x509_store_st X509_STORE;
typedef struct X509_VERIFY_PARAM_st X509_VERIFY_PARAM;
typedef struct ossl_init_settings_st OPENSSL_INIT_SETTINGS;
typedef int (*SSL_verify_cb)(int ok, X509_STORE_CTX *store);
typedef int pem_password_cb(char *out, int cap, int writing, void *user);
#endif

/* Constants of OpenSSL's stable ABI, under other names because the headers define them as
 * macros. */
enum {
    SNIB__SSL_NO_LOAD_CONFIG = 0x80,
    SNIB__SSL_NO_ATEXIT = 0x00080000,
    SNIB__SSL_BIO_SOURCE_SINK = 0x0400,
    SNIB__SSL_BIO_READ = 1,
    SNIB__SSL_BIO_WRITE = 2,
    SNIB__SSL_BIO_RETRY = 8,
    SNIB__SSL_BIO_CTRL_EOF = 2,
    SNIB__SSL_BIO_CTRL_FLUSH = 11,
    SNIB__SSL_SET_MODE = 33,
    SNIB__SSL_SET_CACHE = 44,
    SNIB__SSL_SET_SNI = 55,
    SNIB__SSL_SET_MIN_VERSION = 123,
    SNIB__SSL_MODE_MOVING = 2,
    SNIB__SSL_TLS_1_2 = 0x0303,
    SNIB__SSL_CLEANSE = 1 << 1, /* no buffer of the library keeps what was read */
    SNIB__SSL_NO_COMPRESSION = 1 << 17,
    SNIB__SSL_NO_RENEGOTIATION = 1 << 30,
    SNIB__SSL_VERIFY_PEER = 1,
    SNIB__SSL_NO_PARTIAL_WILDCARDS = 4,
    SNIB__SSL_WANT_READ = 2,
    SNIB__SSL_ZERO_RETURN = 6
};

/* X(result, name, arguments) */
#define SNIB__OPENSSL_CRYPTO(X)                                                                    \
    X(int, OPENSSL_init_crypto, (uint64_t options, const OPENSSL_INIT_SETTINGS *settings))         \
    X(int, OPENSSL_atexit, (void (*handler)(void)))                                                \
    X(void, OPENSSL_thread_stop, (void))                                                           \
    X(BIO_METHOD *, BIO_meth_new, (int type, const char *name))                                    \
    X(int, BIO_meth_set_read, (BIO_METHOD * method, int (*read)(BIO *, char *, int)))              \
    X(int, BIO_meth_set_write, (BIO_METHOD * method, int (*write)(BIO *, const char *, int)))      \
    X(int, BIO_meth_set_ctrl, (BIO_METHOD * method, long (*ctrl)(BIO *, int, long, void *)))       \
    X(int, BIO_get_new_index, (void))                                                              \
    X(BIO *, BIO_new, (const BIO_METHOD *method))                                                  \
    X(BIO *, BIO_new_fp, (FILE * file, int close))                                                 \
    X(int, BIO_free, (BIO * bio))                                                                  \
    X(EVP_PKEY *, PEM_read_bio_PrivateKey,                                                         \
      (BIO * bio, EVP_PKEY * *out, pem_password_cb * callback, void *user))                        \
    X(void, EVP_PKEY_free, (EVP_PKEY * key))                                                       \
    X(void, BIO_set_data, (BIO * bio, void *data))                                                 \
    X(void *, BIO_get_data, (BIO * bio))                                                           \
    X(void, BIO_set_init, (BIO * bio, int init))                                                   \
    X(void, BIO_set_flags, (BIO * bio, int flags))                                                 \
    X(void, BIO_clear_flags, (BIO * bio, int flags))                                               \
    X(void, ERR_clear_error, (void))                                                               \
    X(unsigned long, ERR_get_error, (void))                                                        \
    X(unsigned long, ERR_peek_error, (void))                                                       \
    X(unsigned long, ERR_peek_last_error, (void))                                                  \
    X(const char *, ERR_reason_error_string, (unsigned long error))                                \
    X(const char *, X509_verify_cert_error_string, (long error))                                   \
    X(int, X509_VERIFY_PARAM_set1_ip_asc, (X509_VERIFY_PARAM * param, const char *address))        \
    X(int, X509_STORE_up_ref, (X509_STORE * store))                                                \
    X(void, X509_STORE_free, (X509_STORE * store))                                                 \
    X(const char *, X509_get_default_cert_dir, (void))                                             \
    X(const char *, X509_get_default_cert_file, (void))

#define SNIB__OPENSSL_SSL(X)                                                                       \
    X(const SSL_METHOD *, TLS_client_method, (void))                                               \
    X(SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *method))                                          \
    X(void, SSL_CTX_free, (SSL_CTX * context))                                                     \
    X(long, SSL_CTX_ctrl, (SSL_CTX * context, int command, long n, void *data))                    \
    X(uint64_t, SSL_CTX_set_options, (SSL_CTX * context, uint64_t options))                        \
    X(void, SSL_CTX_set_verify, (SSL_CTX * context, int mode, SSL_verify_cb callback))             \
    X(X509_STORE *, SSL_CTX_get_cert_store, (const SSL_CTX *context))                              \
    X(void, SSL_CTX_set1_cert_store, (SSL_CTX * context, X509_STORE * store))                      \
    X(int, SSL_CTX_load_verify_file, (SSL_CTX * context, const char *file))                        \
    X(int, SSL_CTX_use_certificate_chain_file, (SSL_CTX * context, const char *file))              \
    X(int, SSL_CTX_use_PrivateKey, (SSL_CTX * context, EVP_PKEY * key))                            \
    X(int, SSL_CTX_check_private_key, (const SSL_CTX *context))                                    \
    X(SSL *, SSL_new, (SSL_CTX * context))                                                         \
    X(void, SSL_free, (SSL * ssl))                                                                 \
    X(long, SSL_ctrl, (SSL * ssl, int command, long n, void *data))                                \
    X(void, SSL_set_bio, (SSL * ssl, BIO * read, BIO * write))                                     \
    X(void, SSL_set_connect_state, (SSL * ssl))                                                    \
    X(int, SSL_set1_host, (SSL * ssl, const char *name))                                           \
    X(void, SSL_set_hostflags, (SSL * ssl, unsigned int flags))                                    \
    X(X509_VERIFY_PARAM *, SSL_get0_param, (SSL * ssl))                                            \
    X(int, SSL_do_handshake, (SSL * ssl))                                                          \
    X(int, SSL_read, (SSL * ssl, void *out, int cap))                                              \
    X(int, SSL_write, (SSL * ssl, const void *bytes, int n))                                       \
    X(int, SSL_pending, (const SSL *ssl))                                                          \
    X(int, SSL_get_error, (const SSL *ssl, int result))                                            \
    X(long, SSL_get_verify_result, (const SSL *ssl))                                               \
    X(int, SSL_shutdown, (SSL * ssl))

struct snib__openssl {
#define X(result, name, arguments) result(*name) arguments;
    SNIB__OPENSSL_CRYPTO(X)
    SNIB__OPENSSL_SSL(X)
#undef X
    BIO_METHOD *bio; /* of tls.c, made once */
    bool own;        /* no other code in the process uses this copy of the library */
};

/* snib__openssl - the table, with the library initialised; NULL: there is no OpenSSL 3, or it could
 * not begin, which the next call tries again.  Any thread; the first call may take some milliseconds. */
const struct snib__openssl *snib__openssl(void);
/* In the child of a fork, which has not awaited a slow first call. */
void snib__openssl_forked(void);

/* tls.c's side of the BIO. */
int snib__tls_bio_read(BIO *bio, char *out, int cap);
int snib__tls_bio_write(BIO *bio, const char *bytes, int n);
long snib__tls_bio_ctrl(BIO *bio, int command, long n, void *data);

#endif
