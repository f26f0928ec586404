#include "driver/tls.h"

#include "driver/forks.h"
#include "driver/tls_openssl.h"
#include "net/buf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TLS_LOCK_LIMIT (50 * SNIB__MS)
#define TLS_HOST_MAX 256
#define TLS_SEND_MAX ((size_t)1 << 20) /* of one send: encrypted bytes are a second copy */
/* What a peer may send before its handshake is done; chains of certificates have some KB. */
#define TLS_HANDSHAKE_KB 256
#define TLS_RECEIVES 4                      /* in one step of the handshake */
#define TLS_ANSWERS_MAX ((size_t)64 * 1024) /* that the peer asks for and does not receive */

enum tls_word { TLS_FREE, TLS_TAKEN, TLS_WANTED };

/* Only the reader appends to `in`, and OpenSSL takes from it only in the reader's calls.  Only the
 * sender, the thread that set `sending`, uses `wire`. */
struct snib__tls {
    _Atomic uint32_t word; /* the lock, for `out` and all that OpenSSL touches */
    _Atomic bool pending, unsent;
    SSL *ssl;
    struct snib__buf in;   /* received, not yet decrypted */
    struct snib__buf out;  /* encrypted, not yet taken by a sender */
    struct snib__buf wire; /* being sent */
    _Atomic bool sending;
    bool reading, established;
    size_t heard; /* bytes received */
    size_t
        answers;  /* bytes in `out` because the peer asked for them: new keys, refused handshakes */
    bool eof;     /* the socket has ended */
    bool closed;  /* the peer sent close_notify */
    bool starved; /* there was no memory for what OpenSSL wrote in its last call */
    struct snib__tls_context about; /* for failure messages; without the files */
    struct snib__tls_failure failure;
    char host[TLS_HOST_MAX]; /* to be verified */
};

/* ---- The lock ---- */

static bool tls_lock(struct snib__tls *tls)
{
    uint32_t was = TLS_FREE;
    if (atomic_compare_exchange_strong(&tls->word, &was, TLS_TAKEN))
        return true;
    snib__time until = snib__now() + TLS_LOCK_LIMIT;
    while (atomic_exchange(&tls->word, TLS_WANTED) != TLS_FREE)
        if (snib__park(&tls->word, TLS_WANTED, until) == SNIB__PARKED_TIMEOUT)
            return atomic_exchange(&tls->word, TLS_WANTED) == TLS_FREE;
    return true;
}

static void tls_unlock(struct snib__tls *tls)
{
    if (atomic_exchange(&tls->word, TLS_FREE) == TLS_WANTED)
        snib__unpark(&tls->word);
}

/* OpenSSL gets random numbers by system calls that would be cancellation points, and has locks that a fork must find
 * free. */
static int tls_begin(void)
{
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    snib__forks_enter();
    if (snib__openssl()->ERR_peek_error()) /* cheaper than clearing an empty error queue */
        snib__openssl()->ERR_clear_error();
    errno = 0;
    return old;
}

static void tls_end(int old)
{
    snib__forks_leave();
    pthread_setcancelstate(old, NULL);
}

/* ---- Memory instead of a socket ---- */

int snib__tls_bio_read(BIO *bio, char *out, int cap)
{
    const struct snib__openssl *o = snib__openssl();
    struct snib__tls *tls = o->BIO_get_data(bio);
    size_t n = tls->reading ? snib__buf_size(&tls->in) : 0;
    o->BIO_clear_flags(bio, SNIB__SSL_BIO_READ | SNIB__SSL_BIO_WRITE | SNIB__SSL_BIO_RETRY);
    if (n == 0) {
        if (tls->eof)
            return 0;
        o->BIO_set_flags(bio, SNIB__SSL_BIO_READ | SNIB__SSL_BIO_RETRY);
        return -1;
    }
    n = n < (size_t)cap ? n : (size_t)cap;
    memcpy(out, tls->in.data + tls->in.head, n);
    snib__buf_consume(&tls->in, n);
    return (int)n;
}

int snib__tls_bio_write(BIO *bio, const char *bytes, int n)
{
    const struct snib__openssl *o = snib__openssl();
    struct snib__tls *tls = o->BIO_get_data(bio);
    o->BIO_clear_flags(bio, SNIB__SSL_BIO_READ | SNIB__SSL_BIO_WRITE | SNIB__SSL_BIO_RETRY);
    if (snib__buf_append(&tls->out, bytes, (size_t)n) == 0)
        return n;
    tls->starved = true;
    return -1;
}

long snib__tls_bio_ctrl(BIO *bio, int command, long n, void *data)
{
    struct snib__tls *tls = snib__openssl()->BIO_get_data(bio);
    (void)n;
    (void)data;
    if (command == SNIB__SSL_BIO_CTRL_EOF)
        return tls->eof && snib__buf_size(&tls->in) == 0;
    return command == SNIB__SSL_BIO_CTRL_FLUSH;
}

/* ---- Birth and end ---- */

/* What to verify: a name, which is also sent as SNI, or an address, which SNI cannot carry. */
static bool tls_expect(const struct snib__openssl *o, struct snib__tls *tls)
{
    unsigned char address[sizeof(struct in6_addr)];
    size_t n = strlen(tls->host);
    if (n > 1 && tls->host[n - 1] == '.') /* certificates have no dot there */
        tls->host[n - 1] = 0;
    if (inet_pton(AF_INET, tls->host, address) == 1 || inet_pton(AF_INET6, tls->host, address) == 1)
        return o->X509_VERIFY_PARAM_set1_ip_asc(o->SSL_get0_param(tls->ssl), tls->host) == 1;
    o->SSL_set_hostflags(tls->ssl, SNIB__SSL_NO_PARTIAL_WILDCARDS);
    return o->SSL_set1_host(tls->ssl, tls->host) == 1 &&
           o->SSL_ctrl(tls->ssl, SNIB__SSL_SET_SNI, 0, tls->host) == 1;
}

struct snib__tls *snib__tls_new(const struct snib__tls_files *files, const char *host,
                                struct snib__tls_failure *out)
{
    const struct snib__tls_context *context = snib__tls_files_context(files, out);
    if (!context)
        return NULL;
    const struct snib__openssl *o = snib__openssl();
    const char *name = context->server_name ? context->server_name : host;
    struct snib__tls *tls = calloc(1, sizeof *tls);
    snib__tls_fail(out, SNIB__TLS_NO_MEMORY, "out of memory");
    if (!tls)
        return NULL;
    if (strlen(name) >= sizeof tls->host) {
        snib__tls_fail(out, SNIB__TLS_WRONG_HOST, "the server name has more than 255 bytes");
        free(tls);
        return NULL;
    }
    strcpy(tls->host, name); /* fits */
    snib__tls_use();
    tls->about = (struct snib__tls_context){
        .insecure = context->insecure, .has_cert = context->has_cert, .own_ca = context->own_ca};
    int old = tls_begin();
    tls->ssl = o->SSL_new(context->ssl);
    BIO *bio = tls->ssl ? o->BIO_new(o->bio) : NULL;
    bool good = bio && tls_expect(o, tls);
    if (bio) {
        o->BIO_set_data(bio, tls);
        o->BIO_set_init(bio, 1);
        o->SSL_set_bio(tls->ssl, bio, bio); /* which owns it from here on */
        o->SSL_set_connect_state(tls->ssl);
    }
    tls_end(old);
    if (good)
        return tls;
    snib__tls_free(tls);
    return NULL;
}

void snib__tls_free(struct snib__tls *tls)
{
    if (!tls)
        return;
    if (tls->ssl) {
        int old = tls_begin();
        snib__openssl()->SSL_free(tls->ssl); /* and its BIO */
        tls_end(old);
    }
    snib__tls_unuse();
    snib__buf_free(&tls->in);
    snib__buf_free(&tls->out);
    snib__buf_free(&tls->wire);
    free(tls);
}

/* ---- Encrypted bytes out ---- */

/* Send the encrypted bytes, unless another thread is sending, which will send these, too.  Under
 * the lock, which is released during the system call; false if it could not be taken again. */
static bool tls_flush(struct snib__tls *tls, int fd)
{
    bool full = false;
    while (!full && !atomic_load(&tls->sending)) {
        if (snib__buf_size(&tls->wire) == 0) {
            struct snib__buf empty = tls->wire;
            if (snib__buf_size(&tls->out) == 0)
                break;
            tls->wire = tls->out;
            tls->out = empty;
        }
        atomic_store(&tls->sending, true);
        tls_unlock(tls);
        ssize_t n = snib__sys_send(fd, tls->wire.data + tls->wire.head, snib__buf_size(&tls->wire));
        if (n > 0)
            snib__buf_consume(&tls->wire, (size_t)n);
        full = snib__buf_size(&tls->wire) > 0;
        bool locked = tls_lock(tls);
        if (!locked)
            atomic_store(&tls->unsent, true);
        atomic_store(&tls->sending, false);
        if (!locked)
            return false;
    }
    if (!atomic_load(&tls->sending))
        atomic_store(&tls->unsent, snib__buf_size(&tls->wire) > 0 || snib__buf_size(&tls->out) > 0);
    return true;
}

ssize_t snib__tls_send(struct snib__tls *tls, int fd, const char *bytes, size_t n)
{
    const struct snib__openssl *o = snib__openssl();
    ssize_t sent = -1;
    int error = EAGAIN;
    if (!tls_lock(tls)) {
        errno = EAGAIN;
        return -1;
    }
    bool locked = !atomic_load(&tls->unsent) || tls_flush(tls, fd);
    if (locked && (!atomic_load(&tls->unsent) || atomic_load(&tls->sending))) {
        n = n < TLS_SEND_MAX ? n : TLS_SEND_MAX;
        sent = (ssize_t)n;
        int old = tls_begin();
        tls->starved = false;
        if (n > 0 && o->SSL_write(tls->ssl, bytes, (int)n) <= 0) {
            sent = -1;
            error = tls->starved ? ENOMEM : EPROTO;
        }
        tls_end(old);
        locked = tls_flush(tls, fd);
    }
    if (locked)
        tls_unlock(tls);
    errno = error;
    return sent;
}

/* ---- Encrypted bytes in ---- */

/* Record why a call failed, unless it only waits for more bytes.  Under the lock. */
static void tls_judge(struct snib__tls *tls, int result)
{
    const struct snib__openssl *o = snib__openssl();
    int error = o->SSL_get_error(tls->ssl, result);
    if (error == SNIB__SSL_WANT_READ)
        return;
    if (error == SNIB__SSL_ZERO_RETURN)
        tls->closed = true;
    else if (tls->starved)
        snib__tls_fail(&tls->failure, SNIB__TLS_NO_MEMORY, "out of memory");
    else if (tls->eof && o->ERR_peek_error() == 0)
        snib__tls_fail(&tls->failure, SNIB__TLS_CUT, "%s ended the connection without ending TLS",
                       tls->host);
    else
        snib__tls_explain(&tls->failure, tls->ssl, tls->host, &tls->about);
}

/* Whether there may be more to read without the socket. */
static bool tls_more(const struct snib__tls *tls)
{
    return tls->eof || tls->closed || tls->failure.outcome || snib__buf_size(&tls->in) > 0 ||
           snib__openssl()->SSL_pending(tls->ssl) > 0;
}

/* Decrypt what has been received.  Under the lock. */
static size_t tls_decrypt(struct snib__tls *tls, char *bytes, size_t cap)
{
    const struct snib__openssl *o = snib__openssl();
    size_t used = 0, unsent = snib__buf_size(&tls->out);
    if (unsent == 0)
        tls->answers = 0;
    else if (tls->answers > TLS_ANSWERS_MAX)
        snib__tls_fail(&tls->failure, SNIB__TLS_BROKEN,
                       "%s keeps asking for answers of TLS and does not receive them", tls->host);
    tls->reading = true;
    while (used < cap && tls_more(tls) && !tls->closed && !tls->failure.outcome) {
        size_t room = cap - used < INT_MAX ? cap - used : INT_MAX;
        tls->starved = false;
        int n = o->SSL_read(tls->ssl, bytes + used, (int)room);
        if (n > 0)
            used += (size_t)n;
        else
            tls_judge(tls, n);
        if (n <= 0 && snib__buf_size(&tls->in) == 0 && !tls->eof)
            break;
    }
    tls->reading = false;
    tls->answers += snib__buf_size(&tls->out) - unsent;
    atomic_store(&tls->pending, tls_more(tls));
    return used;
}

/* Receive into `in`; 1, or 0 with errno. */
static bool tls_receive(struct snib__tls *tls, int fd, char *bytes, size_t cap, bool wait)
{
    ssize_t n = snib__sys_recv(fd, bytes, cap, wait);
    if (n > 0 && snib__buf_append(&tls->in, bytes, (size_t)n) < 0) {
        errno = ENOMEM;
        return false;
    }
    if (n == 0)
        tls->eof = true;
    if (n > 0)
        tls->heard += (size_t)n;
    return n >= 0;
}

ssize_t snib__tls_recv(struct snib__tls *tls, int fd, char *bytes, size_t cap, bool wait)
{
    if (!atomic_load(&tls->pending) && !tls_receive(tls, fd, bytes, cap, wait))
        return -1;
    if (!tls_lock(tls)) {
        atomic_store(&tls->pending, true); /* `in` keeps it for the next call */
        errno = EAGAIN;
        return -1;
    }
    int old = tls_begin();
    size_t used = tls_decrypt(tls, bytes, cap);
    tls_end(old);
    if (snib__buf_size(&tls->out) == 0 || tls_flush(tls, fd))
        tls_unlock(tls);
    if (used > 0)
        return (ssize_t)used;
    if (tls->closed)
        return 0;
    errno = !tls->failure.outcome                         ? EAGAIN
            : tls->failure.outcome == SNIB__TLS_CUT       ? ECONNRESET
            : tls->failure.outcome == SNIB__TLS_NO_MEMORY ? ENOMEM
                                                          : EPROTO;
    return -1;
}

/* ---- The handshake: on one thread, while no other thread knows the connection ---- */

/* With what has been received: 1 done, 0 it needs more, -1 failed. */
static int tls_shake(struct snib__tls *tls, int fd)
{
    while (!tls_lock(tls))
        ;
    int old = tls_begin();
    tls->reading = true;
    tls->starved = false;
    int done = snib__openssl()->SSL_do_handshake(tls->ssl);
    if (done != 1)
        tls_judge(tls, done);
    tls->reading = false;
    tls->established = done == 1;
    atomic_store(&tls->pending, tls->established && tls_more(tls));
    tls_end(old);
    if (tls_flush(tls, fd))
        tls_unlock(tls);
    if (tls->closed)
        snib__tls_fail(&tls->failure, SNIB__TLS_CUT, "%s ended TLS during the handshake",
                       tls->host);
    return done == 1 ? 1 : tls->failure.outcome ? -1 : 0;
}

/* The caller has the client's mutex, and OpenSSL skips some records without end, from a peer that needs no key for
 * them: so there is a limit to what is received, in one step and altogether. */
int snib__tls_handshake(struct snib__tls *tls, int fd)
{
    char bytes[4096];
    int step = tls_shake(tls, fd);
    for (int i = 0; step == 0 && i < TLS_RECEIVES; i++) {
        if (tls_receive(tls, fd, bytes, sizeof bytes, false)) {
            step = tls_shake(tls, fd);
            continue;
        }
        if (errno == EAGAIN || errno == EINTR)
            break;
        if (errno == ENOMEM)
            snib__tls_fail(&tls->failure, SNIB__TLS_NO_MEMORY, "out of memory");
        else
            snib__tls_fail(&tls->failure, SNIB__TLS_CUT,
                           "%s ended the connection during the TLS handshake", tls->host);
        return -1;
    }
    if (step != 0 || tls->heard <= (size_t)TLS_HANDSHAKE_KB * 1024)
        return step;
    snib__tls_fail(&tls->failure, SNIB__TLS_BROKEN,
                   "%s has sent more than %d KB, and the TLS handshake is still not done",
                   tls->host, TLS_HANDSHAKE_KB);
    return -1;
}

void snib__tls_too_late(const struct snib__tls *tls, struct snib__tls_failure *out)
{
    snib__tls_fail(out, SNIB__TLS_SILENT,
                   tls->heard ? "%s took too long over the TLS handshake"
                              : "%s does not answer in TLS; is this its TLS port?",
                   tls->host);
}

short snib__tls_events(const struct snib__tls *tls)
{
    return atomic_load(&tls->unsent) ? POLLIN | POLLOUT : POLLIN;
}

bool snib__tls_pending(const struct snib__tls *tls)
{
    return atomic_load(&tls->pending);
}

bool snib__tls_unsent(const struct snib__tls *tls)
{
    return atomic_load(&tls->unsent);
}

const struct snib__tls_failure *snib__tls_why(const struct snib__tls *tls)
{
    return tls->failure.outcome ? &tls->failure : NULL;
}

void snib__tls_goodbye(struct snib__tls *tls, int fd)
{
    uint32_t was = TLS_FREE;
    if (!atomic_compare_exchange_strong(&tls->word, &was, TLS_TAKEN))
        return;
    if (tls->established && !tls->failure.outcome && !atomic_load(&tls->sending) &&
        !atomic_load(&tls->unsent)) {
        int old = tls_begin();
        snib__openssl()->SSL_shutdown(tls->ssl);
        tls_end(old);
        if (!tls_flush(tls, fd))
            return;
    }
    tls_unlock(tls);
}
