/* tls.h - TLS as a filter over a socket: one end is the core's, the other OpenSSL's server, correct or
 * faulty, on a thread.  The certificates are made by tests/support/certs.sh in a folder of the
 * program's own. */
#ifndef SNIB_UNIT_TLS_H
#define SNIB_UNIT_TLS_H
#include "driver/tls.h"

#include "net/buf.h"
#include "snib.h"
#include "unit.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char folder[] = "/tmp/snib-tls-XXXXXX";

/* The path of a file in that folder; of each thread eight results are valid at once. */
static char *at(const char *name)
{
    static _Thread_local char paths[8][128];
    static _Thread_local int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- The peer -------------------------------------------------------------------------------- */

enum manner {
    PROPER,     /* echoes until it gets close_notify, then sends one */
    MUTE,       /* accepts, and never sends anything */
    PLAIN,      /* answers like a server without TLS */
    LEAVES,     /* closes the connection during the handshake */
    CUTS,       /* closes it in the middle of a record */
    NO_GOODBYE, /* closes it between records */
    DAMAGES,    /* changes a byte of a record */
    UPDATES,    /* echoes in pieces, and updates keys all the time */
    ENDLESS,    /* requests a handshake again and again instead of beginning one */
    DEAF        /* requests new keys again and again, and reads nothing */
};

struct peer {
    enum manner manner;
    const char *certificate; /* name of its files; NULL: server */
    int version;             /* at most; 0: any */
    bool old;                /* only versions before 1.2 */
    bool wants_certificate;
    int fd;
    sem_t ready; /* it has read its files: later there may be no descriptors left for them */
    pthread_t thread;
};

static inline SSL_CTX *peer_context(const struct peer *peer)
{
    char name[64];
    const char *certificate = peer->certificate ? peer->certificate : "server";
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    assert_non_null(context);
    snprintf(name, sizeof name, "%s.crt", certificate);
    assert_int_equal(SSL_CTX_use_certificate_chain_file(context, at(name)), 1);
    snprintf(name, sizeof name, "%s.key", certificate);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(context, at(name), SSL_FILETYPE_PEM), 1);
    if (peer->version)
        SSL_CTX_set_max_proto_version(context, peer->version);
    if (peer->old) {
        SSL_CTX_set_security_level(context, 0);
        SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
        SSL_CTX_set_max_proto_version(context, TLS1_1_VERSION);
    }
    if (peer->wants_certificate) {
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        SSL_CTX_load_verify_file(context, at("ca.crt"));
    }
    return context;
}

static inline void peer_echo(struct peer *peer, SSL *ssl)
{
    static const size_t sizes[] = {1, 16384, 5, 700};
    char bytes[65536];
    int n;
    unsigned turn = 0;
    while ((n = SSL_read(ssl, bytes, sizeof bytes)) > 0) {
        if (peer->manner == UPDATES)
            SSL_key_update(ssl, turn % 2 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
        for (int done = 0; done < n;) {
            size_t part = peer->manner == PROPER ? (size_t)n : sizes[turn++ % COUNT(sizes)];
            part = part < (size_t)(n - done) ? part : (size_t)(n - done);
            if (SSL_write(ssl, bytes + done, (int)part) <= 0)
                return;
            done += (int)part;
        }
    }
    SSL_shutdown(ssl);
}

/* A record that says "hello", through memory, to be damaged or cut. */
static inline void peer_spoil(struct peer *peer, SSL *ssl)
{
    char record[256];
    BIO *memory = BIO_new(BIO_s_mem()), *socket = SSL_get_wbio(ssl);
    BIO_up_ref(socket);
    SSL_set0_wbio(ssl, memory);
    SSL_write(ssl, "hello", 5);
    int n = BIO_read(memory, record, sizeof record);
    assert_in_range(n, 10, sizeof record);
    if (peer->manner == CUTS)
        n -= 7;
    else
        record[n - 3] ^= 1;
    assert_int_equal(write(peer->fd, record, (size_t)n), n);
    if (peer->manner == CUTS)
        shutdown(peer->fd, SHUT_WR);
    BIO_free(socket);
}

/* Until the core has had enough; at most this much, because a core that has not would never end. */
static inline void peer_floods(const struct peer *peer)
{
    enum { RECORDS = 4096, TIMES = 400 };
    static char records[RECORDS][9];
    char hello[512];
    assert_true(read(peer->fd, hello, sizeof hello) > 0);
    for (int i = 0; i < RECORDS; i++)
        memcpy(records[i], "\x16\x03\x03\0\4\0\0\0\0", 9); /* HelloRequest, which has no content */
    for (int i = 0; i < TIMES; i++)
        if (write(peer->fd, records, sizeof records) < 0)
            return;
}

static inline void peer_is_deaf(SSL *ssl)
{
    for (int i = 0; i < 100000; i++)
        if (SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) != 1 || SSL_do_handshake(ssl) != 1)
            return;
}

static inline void peer_serve(struct peer *peer)
{
    SSL_CTX *context = peer_context(peer);
    SSL *ssl = SSL_new(context);
    char byte;
    sem_post(&peer->ready);
    SSL_set_fd(ssl, peer->fd);
    if (SSL_accept(ssl) == 1) {
        if (peer->manner == CUTS || peer->manner == DAMAGES)
            peer_spoil(peer, ssl);
        else if (peer->manner == DEAF)
            peer_is_deaf(ssl);
        else if (peer->manner != NO_GOODBYE)
            peer_echo(peer, ssl);
        if (peer->manner == NO_GOODBYE)
            shutdown(peer->fd, SHUT_WR);
    }
    while (read(peer->fd, &byte, 1) > 0) /* a reset would discard what was sent */
        ;
    SSL_free(ssl);
    SSL_CTX_free(context);
}

static inline bool peer_has_files(const struct peer *peer)
{
    return peer->manner != PLAIN && peer->manner != LEAVES && peer->manner != MUTE &&
           peer->manner != ENDLESS;
}

static inline void *peer_main(void *argument)
{
    struct peer *peer = argument;
    char bytes[512];
    ssize_t n;
    if (!peer_has_files(peer))
        sem_post(&peer->ready);
    if (peer->manner == PLAIN) {
        n = read(peer->fd, bytes, sizeof bytes);
        n = write(peer->fd, "-ERR unknown command\r\n", 22);
    } else if (peer->manner == LEAVES) {
        n = read(peer->fd, bytes, sizeof bytes);
        n = write(peer->fd, "\x16\x03\x03", 3);
    } else if (peer->manner == MUTE) {
        while ((n = read(peer->fd, bytes, sizeof bytes)) > 0)
            ;
    } else if (peer->manner == ENDLESS) {
        peer_floods(peer);
    } else {
        peer_serve(peer);
    }
    close(peer->fd);
    return NULL;
}

/* ---- The core's end -------------------------------------------------------------------------- */

struct end {
    struct peer peer;
    int fd;
    struct snib__tls_files *files;
    struct snib__tls *tls;
    struct snib__tls_failure failure;
    int steps;    /* of the handshake */
    bool no_file; /* meanwhile there is no descriptor for one */
};

/* Wait for the files by their bell, as the driver does. */
static inline struct snib__tls_files *read_files(const struct snib__tls_config *config)
{
    struct snib__tls_files *files = snib__tls_files_new(config);
    assert_non_null(files);
    struct pollfd bell = {.fd = snib__tls_files_bell(files), .events = POLLIN};
    assert_int_equal(poll(&bell, 1, 20000), 1);
    assert_true(snib__tls_files_done(files));
    return files;
}

/* From now on there is no descriptor for a file; returns the limit that was. */
static inline struct rlimit take_descriptors(void)
{
    struct rlimit limit, none;
    int free_one = dup(0);
    close(free_one);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = (rlim_t)free_one, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    return limit;
}

static inline int shake(struct end *end)
{
    if (!end->no_file)
        return snib__tls_handshake(end->tls, end->fd);
    struct rlimit limit = take_descriptors();
    int step = snib__tls_handshake(end->tls, end->fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return step;
}

/* Connect and shake hands; returns the outcome. */
static inline int meet(struct end *end, const struct snib__tls_config *config, const char *host)
{
    int fds[2], step;
    int64_t until = now_ms() + (end->peer.manner == MUTE ? 100 : 20000);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    end->fd = fds[0];
    end->peer.fd = fds[1];
    assert_int_equal(sem_init(&end->peer.ready, 0, 0), 0);
    assert_int_equal(pthread_create(&end->peer.thread, NULL, peer_main, &end->peer), 0);
    while (sem_wait(&end->peer.ready) < 0)
        ;
    end->files = read_files(config);
    end->tls = snib__tls_new(end->files, host, &end->failure);
    if (!end->tls)
        return end->failure.outcome;
    while ((step = shake(end)) == 0 && now_ms() < until) {
        struct pollfd ready = {.fd = end->fd, .events = snib__tls_events(end->tls)};
        poll(&ready, 1, 50);
        end->steps++;
    }
    if (step == 0)
        return -1; /* it waits for ever */
    assert_int_equal(step < 0, snib__tls_why(end->tls) != NULL);
    if (step < 0)
        end->failure = *snib__tls_why(end->tls);
    return end->failure.outcome = step < 0 ? end->failure.outcome : SNIB__TLS_FINE;
}

static inline void part(struct end *end)
{
    if (end->tls)
        snib__tls_goodbye(end->tls, end->fd);
    shutdown(end->fd, SHUT_RDWR);
    pthread_join(end->peer.thread, NULL);
    snib__tls_free(end->tls);
    snib__tls_files_free(end->files);
    close(end->fd);
}

static inline ssize_t receive(struct end *end, char *bytes, size_t cap)
{
    for (int64_t until = now_ms() + 120000; now_ms() < until;) {
        struct pollfd ready = {.fd = end->fd, .events = snib__tls_events(end->tls)};
        ssize_t n = snib__tls_recv(end->tls, end->fd, bytes, cap, false);
        if (n >= 0 || errno != EAGAIN)
            return n;
        if (!snib__tls_pending(end->tls))
            poll(&ready, 1, 50);
        if (ready.revents & POLLOUT)
            snib__tls_send(end->tls, end->fd, NULL, 0);
    }
    fail_msg("nothing came");
    return -1;
}

/* There and back, complete and in order. */
static inline void exchange(struct end *end, size_t total, size_t piece)
{
    char *sent = malloc(total), *got = malloc(total + 1);
    size_t out = 0, in = 0;
    for (size_t i = 0; i < total; i++)
        sent[i] = (char)(i * 7 + i / 251);
    while (in < total) {
        while (out < total && out - in < 200000) {
            size_t n = piece < total - out ? piece : total - out;
            ssize_t taken = snib__tls_send(end->tls, end->fd, sent + out, n);
            if (taken < 0)
                break;
            out += (size_t)taken;
        }
        ssize_t n = receive(end, got + in, total - in < 1000 ? total - in : 1000);
        assert_true(n > 0);
        in += (size_t)n;
    }
    assert_memory_equal(sent, got, total);
    free(sent);
    free(got);
}

/* ---- World ----------------------------------------------------------------------------------- */

static inline int world_new(void **state)
{
    char command[512];
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(folder))
        return -1;
    snprintf(command, sizeof command,
             "'%s' '%s' && cd '%s' && cat client.crt client.key >both.pem && : >empty && "
             "mkfifo pipe && cp ca.crt secret.crt && chmod 0 secret.crt",
             SNIB_CERTS, folder, folder);
    return system(command);
}

static inline int world_free(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#endif
