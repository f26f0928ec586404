/* tls.h - TLS over a connected socket, as a filter: a client's files, a handshake, and send() and
 * recv() of plain bytes.  OpenSSL sees only memory; the socket is non-blocking, or waits in recv()
 * as in sys.h.
 *
 * Each connection has a lock around OpenSSL, because one thread may read while another writes.  No
 * system call is made with the lock held, except to wait for it, and no thread waits for it for
 * long: if a thread is stopped while it has the lock, the connection falls silent, and the engine's
 * timeouts end it like any other.
 *
 * Decrypted bytes not yet fetched are "pending": the socket does not show them, so check before
 * poll().  Encrypted bytes that did not fit into the socket are "unsent": they leave with the next
 * send, even of 0 bytes.
 */
#ifndef SNIB__TLS_H
#define SNIB__TLS_H

#include "driver/sys.h"
#include "net/words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL: not given. */
struct snib__tls_config {
    char *ca;           /* file or folder of trusted CAs; NULL: the system's store */
    char *cert_file;    /* the client's certificate, with its chain */
    char *key_file;     /* its key; NULL: it is in cert_file */
    char *key_password; /* of the key file */
    char *server_name;  /* to be verified and asked for instead of the host */
    bool insecure;      /* verify nothing: an attacker on the network can read and change all */
    struct snib__tls_trust *trust; /* cache of the CAs; NULL: they are read each time */
};

/* ---- Trusted CAs, read once: the 150 certificates of a system's store take long to read ---- */

struct snib__tls_trust *snib__tls_trust_new(void);        /* NULL: out of memory */
void snib__tls_trust_free(struct snib__tls_trust *trust); /* with its last user; NULL is fine */
/* Forget what was read, before OpenSSL is torn down. */
void snib__tls_trust_forget(struct snib__tls_trust *trust);

int snib__tls_config_copy(const struct snib__tls_config *from,
                          struct snib__tls_config *to);      /* 0, or ENOMEM with *to empty */
void snib__tls_config_free(struct snib__tls_config *config); /* the password is wiped */

enum snib__tls_outcome {
    SNIB__TLS_FINE,
    /* on this side */
    SNIB__TLS_NO_LIBRARY,
    SNIB__TLS_NO_MEMORY,
    SNIB__TLS_CA,       /* the CA file or folder cannot be used */
    SNIB__TLS_CERT,     /* the client's certificate file cannot be used */
    SNIB__TLS_KEY,      /* the key file cannot be used */
    SNIB__TLS_PASSWORD, /* the key file's password is missing or wrong */
    SNIB__TLS_MISMATCH, /* key and certificate do not match */
    SNIB__TLS_NO_LOGIN, /* sock.c's: unrelated to TLS, but reported in the same way */
    /* the server's certificate */
    SNIB__TLS_EXPIRED,
    SNIB__TLS_EARLY,
    SNIB__TLS_SELF_SIGNED,
    SNIB__TLS_UNKNOWN_CA,
    SNIB__TLS_WRONG_HOST,
    SNIB__TLS_BAD_CERTIFICATE,
    /* the peer */
    SNIB__TLS_VERSION,      /* offers only TLS before 1.2 */
    SNIB__TLS_NO_TLS,       /* not a TLS server */
    SNIB__TLS_CERT_WANTED,  /* requires a client certificate */
    SNIB__TLS_CERT_REFUSED, /* refuses the client certificate */
    SNIB__TLS_REFUSED,      /* something else, final */
    /* transient */
    SNIB__TLS_SILENT, /* no reply in time */
    SNIB__TLS_CUT,    /* closed without a close_notify */
    SNIB__TLS_BROKEN /* a damaged record, an internal error of the peer, no end of messages, or a shortage here */
};

struct snib__tls_failure {
    int outcome;                /* enum snib__tls_outcome */
    int32_t code;               /* the result code */
    int os_error;               /* errno if a retry may succeed; 0: final */
    char text[SNIB__WORDS_MAX]; /* one sentence: what happened, to which file or host, what to do */
};

/* ---- Files, read on a separate thread because that can take long ---- */

struct snib__tls_files;

/* Start reading them; NULL with errno.  The config is copied. */
struct snib__tls_files *snib__tls_files_new(const struct snib__tls_config *config);
void snib__tls_files_free(struct snib__tls_files *files); /* NULL is fine */
/* While they are being read, a further connection may wait for the same files, as if it had started the reading: a
 * reference for it, or NULL: they have been read, or files is NULL.  To be able to join, keep a reference. */
struct snib__tls_files *snib__tls_files_join(struct snib__tls_files *files);
struct snib__tls_files *snib__tls_files_keep(struct snib__tls_files *files);
void snib__tls_files_drop(struct snib__tls_files *files);      /* that reference; NULL is fine */
int snib__tls_files_bell(const struct snib__tls_files *files); /* readable when they are read */
bool snib__tls_files_done(const struct snib__tls_files *files);

/* Count what OpenSSL must outlive: a connection, or a thread that reads files, which nothing joins. */
void snib__tls_use(void);
void snib__tls_unuse(void);
/* Wait until there are none: when OpenSSL is torn down, no thread may use it. */
void snib__tls_await(snib__time until);
/* Give back what OpenSSL keeps for this thread: here, and not at its very end, a fork waits for that. */
void snib__tls_thread_ends(void);
void snib__tls_forked(void); /* in the child of a fork, which has none */

/* ---- A connection ---- */

struct snib__tls;

/* A connection to a host or address, with files that have been read.  NULL with *out. */
struct snib__tls *snib__tls_new(const struct snib__tls_files *files, const char *host,
                                struct snib__tls_failure *out);
void snib__tls_free(struct snib__tls *tls);

/* snib__tls_handshake - continue it: 1 done, 0 waiting for the socket, -1 failed, see
 * snib__tls_why().  However much the peer sends, one call takes only some KB. */
int snib__tls_handshake(struct snib__tls *tls, int fd);
short snib__tls_events(const struct snib__tls *tls); /* what it waits for, as in poll() */

/* As snib__sys_recv() and snib__sys_send().  0 is the peer's close_notify; an end without one is
 * ECONNRESET, any other failure EPROTO; snib__tls_why() then has the reason.  A send takes
 * nothing, or all, or of more than a megabyte the first one. */
ssize_t snib__tls_recv(struct snib__tls *tls, int fd, char *bytes, size_t cap, bool wait);
ssize_t snib__tls_send(struct snib__tls *tls, int fd, const char *bytes, size_t n);
bool snib__tls_pending(const struct snib__tls *tls);
bool snib__tls_unsent(const struct snib__tls *tls);

/* Why it failed; NULL if it did not.  For the thread that reads. */
const struct snib__tls_failure *snib__tls_why(const struct snib__tls *tls);

void snib__tls_goodbye(struct snib__tls *tls, int fd); /* if it can be sent immediately */

/* The handshake has timed out: write the failure. */
void snib__tls_too_late(const struct snib__tls *tls, struct snib__tls_failure *out);

/* Set the function to call when OpenSSL is about to be torn down while in use, at process exit. */
void snib__tls_at_end(void (*ends)(void));

bool snib__tls_available(void); /* whether there is an OpenSSL; looks for it */

/* ---- internal to the TLS files ---- */

struct ssl_ctx_st;
struct ssl_st;

struct snib__tls_context {
    struct ssl_ctx_st *ssl;
    char *server_name;
    bool insecure, has_cert, own_ca;
};

/* Give a context the CAs that the config trusts: from the cache, if the files have not changed
 * since. */
bool snib__tls_trust_load(const struct snib__tls_config *config, struct ssl_ctx_st *context,
                          struct snib__tls_failure *failure);
struct snib__tls_trust *snib__tls_trust_ref(struct snib__tls_trust *trust);

bool snib__tls_context_load(const struct snib__tls_config *config, struct snib__tls_context *out,
                            struct snib__tls_failure *failure);
void snib__tls_context_free(struct snib__tls_context *context);
const struct snib__tls_context *snib__tls_files_context(const struct snib__tls_files *files,
                                                        struct snib__tls_failure *out);

/* A file cannot be read, which is final unless the system is short of something; returns false. */
bool snib__tls_unread(struct snib__tls_failure *out, int outcome, const char *what,
                      const char *path, int error);
/* Write an outcome, its code and its sentence; returns false. */
bool snib__tls_fail(struct snib__tls_failure *out, int outcome, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* OpenSSL has not begun, which began with errno 0: for want of memory, or as it is configured.  Returns false. */
bool snib__tls_unable(struct snib__tls_failure *out);
/* Explain this thread's OpenSSL errors for a connection, and take them off its queue. */
void snib__tls_explain(struct snib__tls_failure *out, const struct ssl_st *ssl, const char *host,
                       const struct snib__tls_context *context);

#endif
