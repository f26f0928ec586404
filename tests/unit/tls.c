/* TLS as a filter over a socket: one end is the core's, the other OpenSSL's server, correct or
 * faulty, on a thread.  The certificates are made by tests/support/certs.sh in a folder of this
 * program's own. */
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

static int64_t now_ms(void)
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

static SSL_CTX *peer_context(const struct peer *peer)
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

static void peer_echo(struct peer *peer, SSL *ssl)
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
static void peer_spoil(struct peer *peer, SSL *ssl)
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
static void peer_floods(const struct peer *peer)
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

static void peer_is_deaf(SSL *ssl)
{
    for (int i = 0; i < 100000; i++)
        if (SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) != 1 || SSL_do_handshake(ssl) != 1)
            return;
}

static void peer_serve(struct peer *peer)
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

static bool peer_has_files(const struct peer *peer)
{
    return peer->manner != PLAIN && peer->manner != LEAVES && peer->manner != MUTE &&
           peer->manner != ENDLESS;
}

static void *peer_main(void *argument)
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

static _Thread_local bool no_room;

/* The linker gives the core this one. */
int __real_snib__buf_append(struct snib__buf *buf, const void *data, size_t n);
int __wrap_snib__buf_append(struct snib__buf *buf, const void *data, size_t n);

int __wrap_snib__buf_append(struct snib__buf *buf, const void *data, size_t n)
{
    return no_room ? -1 : __real_snib__buf_append(buf, data, n);
}

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
static struct snib__tls_files *read_files(const struct snib__tls_config *config)
{
    struct snib__tls_files *files = snib__tls_files_new(config);
    assert_non_null(files);
    struct pollfd bell = {.fd = snib__tls_files_bell(files), .events = POLLIN};
    assert_int_equal(poll(&bell, 1, 20000), 1);
    assert_true(snib__tls_files_done(files));
    return files;
}

/* From now on there is no descriptor for a file; returns the limit that was. */
static struct rlimit take_descriptors(void)
{
    struct rlimit limit, none;
    int free_one = dup(0);
    close(free_one);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = (rlim_t)free_one, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    return limit;
}

static int shake(struct end *end)
{
    if (!end->no_file)
        return snib__tls_handshake(end->tls, end->fd);
    struct rlimit limit = take_descriptors();
    int step = snib__tls_handshake(end->tls, end->fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return step;
}

/* Connect and shake hands; returns the outcome. */
static int meet(struct end *end, const struct snib__tls_config *config, const char *host)
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

static void part(struct end *end)
{
    if (end->tls)
        snib__tls_goodbye(end->tls, end->fd);
    shutdown(end->fd, SHUT_RDWR);
    pthread_join(end->peer.thread, NULL);
    snib__tls_free(end->tls);
    snib__tls_files_free(end->files);
    close(end->fd);
}

static ssize_t receive(struct end *end, char *bytes, size_t cap)
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
static void exchange(struct end *end, size_t total, size_t piece)
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

/* ---- Tests ----------------------------------------------------------------------------------- */

static void proper(void **state)
{
    (void)state;
    static const char *const hosts[] = {"localhost", "LOCALHOST.", "127.0.0.1", "::1",
                                        "a.wild.test"};
    for (size_t i = 0; i < COUNT(hosts); i++)
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            struct end end = {.peer.version = version};
            struct snib__tls_config config = {.ca = at("ca.crt")};
            assert_int_equal(meet(&end, &config, hosts[i]), SNIB__TLS_FINE);
            exchange(&end, 10, 10);
            exchange(&end, 300000, 50000);
            part(&end);
        }
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *certificate, *ca, *host, *server_name;
        bool old;
        enum manner manner;
        int outcome;
        const char *says;
    } tries[] = {
        {"expired", "ca.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_EXPIRED, "expired"},
        {"self", "ca.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_SELF_SIGNED, "self-signed"},
        {"stranger", "ca.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_UNKNOWN_CA, "given CA"},
        {"server", "strange.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_UNKNOWN_CA, "given CA"},
        {"server", NULL, "localhost", NULL, 0, PROPER, SNIB__TLS_UNKNOWN_CA, "system's CAs"},
        {"other", "ca.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_WRONG_HOST,
         "not for localhost"},
        {"server", "ca.crt", "localhost", "b.test", 0, PROPER, SNIB__TLS_WRONG_HOST, "for b.test"},
        {"server", "ca.crt", "127.0.0.2", NULL, 0, PROPER, SNIB__TLS_WRONG_HOST, "for 127.0.0.2"},
        {"server", "ca.crt", "::2", NULL, 0, PROPER, SNIB__TLS_WRONG_HOST, "not for ::2"},
        {"server", "ca.crt", "a.b.wild.test", NULL, 0, PROPER, SNIB__TLS_WRONG_HOST, "not for"},
        {"server", "ca.crt", "localhost", NULL, 1, PROPER, SNIB__TLS_VERSION, "1.2"},
        {"server", "ca.crt", "localhost", NULL, 0, PLAIN, SNIB__TLS_NO_TLS, "does not speak TLS"},
        {"server", "ca.crt", "localhost", NULL, 0, LEAVES, SNIB__TLS_CUT, "ended"},
        {"other", "ca.crt", "localhost", "elsewhere.test", 0, PROPER, SNIB__TLS_FINE, ""},
        {"self", "self.crt", "localhost", NULL, 0, PROPER, SNIB__TLS_FINE, ""},
    };
    for (size_t i = 0; i < COUNT(tries); i++) {
        struct end end = {.peer = {.certificate = tries[i].certificate,
                                   .old = tries[i].old,
                                   .manner = tries[i].manner}};
        struct snib__tls_config config = {.ca = tries[i].ca ? at(tries[i].ca) : NULL,
                                          .server_name = (char *)tries[i].server_name};
        assert_int_equal(meet(&end, &config, tries[i].host), tries[i].outcome);
        if (tries[i].outcome) {
            print_message("          %s\n", end.failure.text);
            assert_non_null(strstr(end.failure.text, tries[i].says));
            assert_int_equal(end.failure.code, SNIB_ETLS);
            assert_int_equal(end.failure.os_error,
                             tries[i].outcome == SNIB__TLS_CUT ? ECONNRESET : 0);
        }
        part(&end);
    }
}

/* Nothing is verified; the rest is unchanged. */
static void insecure(void **state)
{
    (void)state;
    static const char *const certificates[] = {"expired", "self", "stranger", "other"};
    struct snib__tls_config config = {.insecure = true};
    for (size_t i = 0; i < COUNT(certificates); i++) {
        struct end end = {.peer.certificate = certificates[i]};
        assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
        exchange(&end, 1000, 1000);
        part(&end);
    }
    struct end old = {.peer.old = true};
    assert_int_equal(meet(&old, &config, "localhost"), SNIB__TLS_VERSION);
    part(&old);
}

static void a_mute_peer(void **state)
{
    (void)state;
    struct end end = {.peer.manner = MUTE};
    struct snib__tls_config config = {.ca = at("ca.crt")};
    assert_int_equal(meet(&end, &config, "localhost"), -1);
    snib__tls_too_late(end.tls, &end.failure);
    assert_int_equal(end.failure.outcome, SNIB__TLS_SILENT);
    assert_int_equal(end.failure.os_error, ETIMEDOUT);
    part(&end);
}

/* Its records need no key, and OpenSSL takes any number.  Each step takes a few, so that its caller can look at the
 * time, and the handshake is given up in the end. */
static void an_endless_handshake(void **state)
{
    (void)state;
    struct end end = {.peer.manner = ENDLESS};
    struct snib__tls_config config = {.ca = at("ca.crt")};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_BROKEN);
    print_message("          %s, after %d steps\n", end.failure.text, end.steps);
    assert_non_null(strstr(end.failure.text, "localhost has sent more than 256 KB"));
    assert_int_equal(end.failure.code, SNIB_ETLS);
    assert_int_equal(end.failure.os_error, EPROTO);
    assert_true(end.steps >= 10);
    part(&end);
}

/* What it asks for and does not read is not kept without end. */
static void a_deaf_peer(void **state)
{
    (void)state;
    char bytes[100];
    struct end end = {.peer.manner = DEAF};
    struct snib__tls_config config = {.ca = at("ca.crt")};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    assert_int_equal(receive(&end, bytes, sizeof bytes), -1);
    assert_int_equal(errno, EPROTO);
    print_message("          %s\n", snib__tls_why(end.tls)->text);
    assert_non_null(strstr(snib__tls_why(end.tls)->text, "keeps asking"));
    assert_int_equal(snib__tls_why(end.tls)->outcome, SNIB__TLS_BROKEN);
    part(&end);
}

/* TLS 1.3 reports it after the handshake, 1.2 during it. */
static void client_certificates(void **state)
{
    (void)state;
    static const struct {
        const char *cert, *key, *password;
        int outcome;
    } tries[] = {{NULL, NULL, NULL, SNIB__TLS_CERT_WANTED},
                 {"stranger.crt", "stranger.key", NULL, SNIB__TLS_CERT_REFUSED},
                 {"client.crt", "client.key", NULL, SNIB__TLS_FINE},
                 {"both.pem", NULL, NULL, SNIB__TLS_FINE},
                 {"client.crt", "client.enc", "canary", SNIB__TLS_FINE}};
    for (size_t i = 0; i < COUNT(tries); i++)
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            char bytes[16];
            struct end end = {.peer = {.version = version, .wants_certificate = true}};
            struct snib__tls_config config = {.ca = at("ca.crt"),
                                              .cert_file = tries[i].cert ? at(tries[i].cert) : NULL,
                                              .key_file = tries[i].key ? at(tries[i].key) : NULL,
                                              .key_password = (char *)tries[i].password};
            int outcome = meet(&end, &config, "localhost");
            if (outcome == SNIB__TLS_FINE && tries[i].outcome != SNIB__TLS_FINE) {
                assert_int_equal(version, TLS1_3_VERSION);
                assert_int_equal(receive(&end, bytes, sizeof bytes), -1);
                assert_non_null(snib__tls_why(end.tls));
                end.failure = *snib__tls_why(end.tls);
                outcome = end.failure.outcome;
            }
            if (outcome)
                print_message("          %s\n", end.failure.text);
            assert_int_equal(outcome, tries[i].outcome);
            if (outcome == SNIB__TLS_FINE)
                exchange(&end, 100, 100);
            part(&end);
        }
}

/* Between the core and OpenSSL: whether a program that is started meanwhile would have the open key. */
static _Atomic int keys_read, keys_kept;

EVP_PKEY *PEM_read_bio_PrivateKey(BIO *bio, EVP_PKEY **out, pem_password_cb *callback, void *user)
{
    static EVP_PKEY *(*real)(BIO *, EVP_PKEY **, pem_password_cb *, void *);
    FILE *file = NULL;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "PEM_read_bio_PrivateKey");
    keys_read++;
    keys_kept += BIO_get_fp(bio, &file) != 1 || !(fcntl(fileno(file), F_GETFD) & FD_CLOEXEC);
    return real(bio, out, callback, user);
}

static void key_is_for_this_program(void **state)
{
    (void)state;
    struct snib__tls_config config = {
        .cert_file = at("client.crt"), .key_file = at("client.key"), .insecure = true};
    snib__tls_files_free(read_files(&config));
    assert_true(keys_read > 0);
    assert_int_equal(keys_kept, 0);
}

static void files(void **state)
{
    enum { NOBODY = 65534 };
    (void)state;
    static const struct {
        const char *ca, *cert, *key, *password;
        int outcome;
        const char *says;
    } tries[] = {
        {"none.crt", NULL, NULL, NULL, SNIB__TLS_CA, "No such file"},
        {"secret.crt", NULL, NULL, NULL, SNIB__TLS_CA, "Permission denied"},
        {"pipe", NULL, NULL, NULL, SNIB__TLS_CA, "not a regular file"},
        {"server.key", NULL, NULL, NULL, SNIB__TLS_CA, "contains no certificate"},
        {"empty", NULL, NULL, NULL, SNIB__TLS_CA, "contains no certificate"},
        {"ca.crt", "none", "client.key", NULL, SNIB__TLS_CERT, "No such file"},
        {"ca.crt", "client.key", "client.key", NULL, SNIB__TLS_CERT, "no certificate in PEM"},
        {"ca.crt", NULL, "client.key", NULL, SNIB__TLS_CERT, "give both"},
        {"ca.crt", "client.crt", "none", NULL, SNIB__TLS_KEY, "No such file"},
        {"ca.crt", "client.crt", "ca.crt", NULL, SNIB__TLS_KEY, "no private key"},
        {"ca.crt", "client.crt", NULL, NULL, SNIB__TLS_KEY, "no private key"},
        {"ca.crt", "client.crt", "server.key", NULL, SNIB__TLS_MISMATCH, "does not match"},
        {"ca.crt", "client.crt", "client.enc", NULL, SNIB__TLS_PASSWORD, "give its password"},
        {"ca.crt", "client.crt", "client.enc", "tweety", SNIB__TLS_PASSWORD, "does not open"},
        {"cas", "client.crt", "client.enc", "canary", SNIB__TLS_FINE, ""},
    };
    for (size_t i = 0; i < COUNT(tries); i++) {
        struct snib__tls_failure failure = {0};
        struct snib__tls_config config = {.ca = at(tries[i].ca),
                                          .cert_file = tries[i].cert ? at(tries[i].cert) : NULL,
                                          .key_file = tries[i].key ? at(tries[i].key) : NULL,
                                          .key_password = (char *)tries[i].password};
        bool lowered =
            strstr(tries[i].says, "Permission") && geteuid() == 0; /* root may read everything */
        if (lowered)
            assert_int_equal(seteuid(NOBODY), 0);
        struct snib__tls_files *read = read_files(&config);
        struct snib__tls *tls = snib__tls_new(read, "localhost", &failure);
        if (lowered)
            assert_int_equal(seteuid(0), 0);
        assert_int_equal(tls ? SNIB__TLS_FINE : failure.outcome, tries[i].outcome);
        if (!tls) {
            print_message("          %s\n", failure.text);
            assert_non_null(strstr(failure.text, tries[i].says));
            assert_null(strstr(failure.text, "tweety"));
            assert_int_equal(failure.code, SNIB_ETLS);
        }
        snib__tls_free(tls);
        snib__tls_files_free(read);
    }
}

/* The CA's folder, and OpenSSL's environment variables. */
static void stores(void **state)
{
    (void)state;
    struct snib__tls_config config = {.ca = at("cas")}, system = {0};
    struct end end = {0};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    part(&end);
    static const char *const names[] = {"SSL_CERT_FILE", "SSL_CERT_DIR"};
    for (int i = 0; i < 2; i++) {
        struct end other = {0};
        setenv(names[i], at(i ? "cas" : "ca.crt"), 1);
        assert_int_equal(meet(&other, &system, "localhost"), SNIB__TLS_FINE);
        unsetenv(names[i]);
        part(&other);
    }
}

static const void *store_of(const struct snib__tls_config *config)
{
    struct snib__tls_context context;
    struct snib__tls_failure failure;
    assert_true(snib__tls_context_load(config, &context, &failure));
    const void *store = SSL_CTX_get_cert_store(context.ssl);
    snib__tls_context_free(&context);
    return store;
}

static void copy_file(const char *from, const char *to)
{
    char command[1024], path[200];
    snprintf(path, sizeof path, "%s", at(to));
    snprintf(command, sizeof command, "cp '%s' '%s.new' && mv '%s.new' '%s'", at(from), path, path,
             path);
    assert_int_equal(system(command), 0);
}

/* The trusted certificates are read once for all connections, until their files change. */
static void trust_is_read_once(void **state)
{
    (void)state;
    struct snib__tls_trust *trust = snib__tls_trust_new();
    struct snib__tls_config config = {.trust = trust}, copy;
    copy_file("ca.crt", "kept.crt");
    config.ca = strdup(at("kept.crt"));
    const void *store = store_of(&config);
    assert_int_equal(snib__tls_config_copy(&config, &copy), 0);
    assert_ptr_equal(store_of(&copy), store); /* from another thread, for another connection */
    snib__tls_config_free(&copy);
    struct end end = {0}, other = {0}, again = {0};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    part(&end);
    copy_file("strange.crt", "kept.crt");
    assert_int_equal(meet(&other, &config, "localhost"), SNIB__TLS_UNKNOWN_CA);
    part(&other);
    copy_file("ca.crt", "kept.crt");
    assert_int_equal(meet(&again, &config, "localhost"), SNIB__TLS_FINE);
    part(&again);
    unlink(config.ca); /* a file that is gone is not trusted any more */
    struct snib__tls_context context;
    struct snib__tls_failure failure;
    assert_false(snib__tls_context_load(&config, &context, &failure));
    free(config.ca);
    config.ca = NULL;
    store = store_of(&config);
    assert_ptr_equal(store_of(&config), store);
    setenv("SSL_CERT_FILE", at("ca.crt"), 1);
    assert_ptr_not_equal(store_of(&config), store);
    unsetenv("SSL_CERT_FILE");
    snib__tls_trust_forget(trust);
    store_of(&config);
    snib__tls_trust_free(trust);
}

/* Read them in a process that has no descriptor left. */
static bool read_short(const struct snib__tls_config *config, struct snib__tls_failure *failure)
{
    struct snib__tls_context context;
    struct rlimit limit = take_descriptors();
    bool read = snib__tls_context_load(config, &context, failure);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (read)
        snib__tls_context_free(&context);
    return read;
}

/* That is no fault of the files: the next attempt may succeed, and does. */
static void short_of_descriptors(void **state)
{
    (void)state;
    struct snib__tls_trust *trust = snib__tls_trust_new();
    struct snib__tls_config configs[] = {{.ca = at("ca.crt")},
                                         {.ca = at("cas")},
                                         {.cert_file = at("client.crt"), .insecure = true},
                                         {.trust = trust}};
    setenv("SSL_CERT_FILE", at("ca.crt"), 1);
    setenv("SSL_CERT_DIR", at("none"), 1);
    configs[2].key_file = at("client.key");
    for (size_t i = 0; i < COUNT(configs); i++) {
        struct snib__tls_failure failure = {0};
        struct end end = {0};
        assert_false(read_short(&configs[i], &failure));
        print_message("          %s\n", failure.text);
        assert_int_equal(failure.code, SNIB_ETLS);
        assert_int_equal(failure.os_error, EMFILE);
        assert_non_null(strstr(failure.text, "Too many open files"));
        assert_int_equal(meet(&end, &configs[i], "localhost"), SNIB__TLS_FINE);
        part(&end);
    }
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
    snib__tls_trust_free(trust);
}

/* Nor is a file opened in the middle of a handshake, with the client's mutex held: OpenSSL would look into a folder of CAs
 * then, be it the given one or the system's. */
static void no_file_in_a_handshake(void **state)
{
    (void)state;
    struct snib__tls_config configs[] = {{.ca = at("cas")}, {.ca = NULL}};
    setenv("SSL_CERT_FILE", at("none"), 1);
    setenv("SSL_CERT_DIR", at("cas"), 1);
    for (size_t i = 0; i < COUNT(configs); i++)
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            struct end end = {.peer.version = version, .no_file = true};
            assert_int_equal(meet(&end, &configs[i], "localhost"), SNIB__TLS_FINE);
            part(&end);
        }
    struct end strange = {.peer.certificate = "stranger", .no_file = true};
    assert_int_equal(meet(&strange, &configs[1], "localhost"), SNIB__TLS_UNKNOWN_CA);
    part(&strange);
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
}

static void in_folder(const char *command)
{
    char line[512];
    snprintf(line, sizeof line, "cd '%s' && %s", folder, command);
    assert_int_equal(system(line), 0);
}

static void folder_is_refused(const struct snib__tls_config *config, const char *says)
{
    struct snib__tls_context context;
    struct snib__tls_failure failure;
    assert_false(snib__tls_context_load(config, &context, &failure));
    print_message("          %s\n", failure.text);
    assert_int_equal(failure.code, SNIB_ETLS);
    assert_non_null(strstr(failure.text, says));
}

/* A folder is read once, too, until one of its entries changes; of the system there may be several. */
static void folders_are_read_once(void **state)
{
    (void)state;
    static const char none[] =
        "contains no certificate under the hash of its name; run \"openssl rehash\"";
    struct snib__tls_trust *trust = snib__tls_trust_new();
    struct snib__tls_config config = {.ca = at("some"), .trust = trust}, system = {.trust = trust};
    struct end end = {0}, other = {0}, list = {0};
    char folders[300];
    in_folder("mkdir some && cp ca.crt some/ca.pem && touch some/12345678.0 && ln -s nothing "
              "some/12345678.1");
    folder_is_refused(&config, none);
    in_folder(
        "cp ca.crt linked.crt && for ca in cas/*; do ln -s ../linked.crt some/${ca##*/}; done");
    const void *store = store_of(&config);
    assert_ptr_equal(store_of(&config), store);
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    part(&end);
    copy_file("strange.crt", "linked.crt"); /* as a link, whose folder does not change */
    assert_int_equal(meet(&other, &config, "localhost"), SNIB__TLS_UNKNOWN_CA);
    part(&other);
    in_folder("rm some/????????.0");
    folder_is_refused(&config, none);
    snprintf(folders, sizeof folders, "%s:%s", at("none"), at("cas"));
    setenv("SSL_CERT_FILE", at("none"), 1);
    setenv("SSL_CERT_DIR", folders, 1);
    assert_int_equal(meet(&list, &system, "localhost"), SNIB__TLS_FINE);
    part(&list);
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
    in_folder("rm -r some");
    snib__tls_trust_free(trust);
}

/* What that saves, in CPU time. */
static void cost_of_the_systems_store(void **state)
{
    (void)state;
    struct snib__tls_config read = {0}, kept = {.trust = snib__tls_trust_new()};
    clock_t start = clock();
    for (int i = 0; i < 10; i++)
        store_of(&read);
    clock_t middle = clock();
    for (int i = 0; i < 10; i++)
        store_of(&kept);
    clock_t end = clock();
    print_message("          %.2f ms each time it is read, %.2f ms with one reading of 10\n",
                  (double)(middle - start) / CLOCKS_PER_SEC * 100,
                  (double)(end - middle) / CLOCKS_PER_SEC * 100);
    snib__tls_trust_free(kept.trust);
}

static void ends(void **state)
{
    (void)state;
    static const struct {
        enum manner manner;
        int error, outcome;
    } tries[] = {{CUTS, ECONNRESET, SNIB__TLS_CUT},
                 {NO_GOODBYE, ECONNRESET, SNIB__TLS_CUT},
                 {DAMAGES, EPROTO, SNIB__TLS_BROKEN}};
    for (size_t i = 0; i < COUNT(tries); i++)
        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
            char bytes[100];
            struct end end = {.peer = {.manner = tries[i].manner, .version = version}};
            struct snib__tls_config config = {.ca = at("ca.crt")};
            assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
            for (int again = 0; again < 2; again++) { /* the state persists */
                assert_int_equal(receive(&end, bytes, sizeof bytes), -1);
                assert_int_equal(errno, tries[i].error);
            }
            print_message("          %s\n", snib__tls_why(end.tls)->text);
            assert_int_equal(snib__tls_why(end.tls)->outcome, tries[i].outcome);
            assert_int_equal(snib__tls_why(end.tls)->os_error, tries[i].error);
            part(&end);
        }
    /* A close_notify is an end of file. */
    char bytes[100];
    struct end end = {0};
    struct snib__tls_config config = {.ca = at("ca.crt")};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    snib__tls_goodbye(end.tls, end.fd);
    assert_int_equal(receive(&end, bytes, sizeof bytes), 0);
    assert_null(snib__tls_why(end.tls));
    part(&end);
}

/* A lack of memory that has passed is not the reason of what fails later. */
static void a_shortage_passes(void **state)
{
    (void)state;
    static const char said[] = "0123456789";
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        char bytes[100];
        struct end end = {.peer.version = version};
        struct snib__tls_config config = {.ca = at("ca.crt")};
        assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
        no_room = true;
        assert_int_equal(snib__tls_send(end.tls, end.fd, said, 10), -1);
        no_room = false;
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(snib__tls_send(end.tls, end.fd, said, 10), 10);
        assert_int_equal(receive(&end, bytes, sizeof bytes), 10);
        assert_memory_equal(bytes, said, 10);
        shutdown(end.peer.fd, SHUT_WR);
        assert_int_equal(receive(&end, bytes, sizeof bytes), -1);
        assert_int_equal(snib__tls_why(end.tls)->outcome, SNIB__TLS_CUT);
        part(&end);
    }
}

static void key_updates(void **state)
{
    (void)state;
    struct end end = {.peer.manner = UPDATES};
    struct snib__tls_config config = {.ca = at("ca.crt")};
    assert_int_equal(meet(&end, &config, "localhost"), SNIB__TLS_FINE);
    for (int i = 0; i < 200; i++)
        exchange(&end, (size_t)i * 37 + 1, 1000);
    part(&end);
}

/* One thread writes while another reads, and the socket takes little at a time. */
static struct end both;
static char stream[3000000];

static void *writer(void *argument)
{
    size_t done = 0;
    (void)argument;
    while (done < sizeof stream) {
        size_t n = done % 7 ? 40000 : 100;
        n = n < sizeof stream - done ? n : sizeof stream - done;
        ssize_t taken = snib__tls_send(both.tls, both.fd, stream + done, n);
        done += taken > 0 ? (size_t)taken : 0;
        if (taken < 0)
            sched_yield();
    }
    return NULL;
}

static void both_ways(void **state)
{
    (void)state;
    static char got[sizeof stream];
    int little = 4096;
    pthread_t thread;
    struct snib__tls_config config = {.ca = at("ca.crt")};
    both = (struct end){.peer.manner = UPDATES};
    for (size_t i = 0; i < sizeof stream; i++)
        stream[i] = (char)(i ^ i / 253);
    assert_int_equal(meet(&both, &config, "localhost"), SNIB__TLS_FINE);
    setsockopt(both.fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    assert_int_equal(pthread_create(&thread, NULL, writer, NULL), 0);
    for (size_t in = 0; in < sizeof stream;) {
        ssize_t n = receive(&both, got + in, sizeof stream - in < 9000 ? sizeof stream - in : 9000);
        assert_true(n > 0);
        in += (size_t)n;
    }
    pthread_join(thread, NULL);
    assert_memory_equal(got, stream, sizeof stream);
    part(&both);
}

/* ---- World ----------------------------------------------------------------------------------- */

static int world_new(void **state)
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

static int world_free(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files),
        cmocka_unit_test(key_is_for_this_program),
        cmocka_unit_test(proper),
        cmocka_unit_test(refusals),
        cmocka_unit_test(insecure),
        cmocka_unit_test(a_mute_peer),
        cmocka_unit_test(an_endless_handshake),
        cmocka_unit_test(a_deaf_peer),
        cmocka_unit_test(client_certificates),
        cmocka_unit_test(stores),
        cmocka_unit_test(trust_is_read_once),
        cmocka_unit_test(short_of_descriptors),
        cmocka_unit_test(no_file_in_a_handshake),
        cmocka_unit_test(folders_are_read_once),
        cmocka_unit_test(cost_of_the_systems_store),
        cmocka_unit_test(ends),
        cmocka_unit_test(a_shortage_passes),
        cmocka_unit_test(key_updates),
        cmocka_unit_test(both_ways),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
