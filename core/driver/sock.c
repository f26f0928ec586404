#include "driver/sock.h"

#include "driver/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define SOCK_STAGGER (250 * SNIB__MS) /* RFC 8305, section 5 */
#define SOCK_FRESH (10000 * SNIB__MS)

/* ---- names ---- */

/* A lookup of a host name on its own thread, because it can take many seconds and the driver must
 * never block.  Shared by that thread, the way and the sockets; the last one frees it.  While a
 * lookup hangs, no other is started: further sockets wait for the same one.  If it ends between two
 * attempts, the next attempt takes its result; otherwise a slow resolver would never be of use. */
struct snib__resolve {
    _Atomic int refs;
    _Atomic int done;
    int bell; /* rings when done */
    bool used;
    int result, short_of; /* short_of: errno, if the system was short of something */
    snib__time ended_at;
    struct addrinfo *addresses;
    char port[8];
    char host[];
};

static void sock_resolve_put(struct snib__resolve *resolve)
{
    if (!resolve || atomic_fetch_sub(&resolve->refs, 1) != 1)
        return;
    if (resolve->addresses)
        snib__sys_resolve_free(resolve->addresses);
    if (resolve->bell >= 0)
        snib__sys_close(resolve->bell);
    free(resolve);
}

static void *sock_resolve_main(void *argument)
{
    struct snib__resolve *resolve = argument;
    errno = 0;
    resolve->result = snib__sys_resolve(resolve->host, resolve->port, false, &resolve->addresses);
    resolve->short_of = snib__sys_short(errno) ? errno : 0;
    resolve->ended_at = snib__now();
    atomic_store(&resolve->done, 1);
    snib__sys_ring(resolve->bell);
    sock_resolve_put(resolve);
    return NULL;
}

static struct snib__resolve *sock_resolve_new(const struct snib__address *address)
{
    struct snib__resolve *resolve = calloc(1, sizeof *resolve + strlen(address->host) + 1);
    if (!resolve)
        return NULL;
    atomic_store(&resolve->refs, 1);
    resolve->bell = -1;
    strcpy(resolve->host, address->host); /* sized above */
    snprintf(resolve->port, sizeof resolve->port, "%d", address->port);
    return resolve;
}

static int sock_resolve_start(struct snib__resolve *resolve)
{
    resolve->bell = snib__sys_bell();
    if (resolve->bell < 0)
        return errno;
    atomic_fetch_add(&resolve->refs, 1);
    int error = snib__sys_thread(sock_resolve_main, resolve, 0, NULL);
    if (error)
        atomic_fetch_sub(&resolve->refs, 1);
    return error;
}

static bool sock_to_come(const struct snib__resolve *resolve, snib__time now)
{
    return !atomic_load(&resolve->done) || (!resolve->used && now < resolve->ended_at + SOCK_FRESH);
}

void snib__way_free(struct snib__way *way)
{
    if (way) {
        sock_resolve_put(way->resolving);
        snib__tls_files_drop(way->reading);
    }
    free(way);
}

/* ---- connecting ---- */

static bool sock_is_last(const struct snib__way *way, const struct addrinfo *at)
{
    return at->ai_addrlen == way->last_n && memcmp(at->ai_addr, &way->last, way->last_n) == 0;
}

/* The one of the resolver's addresses that comes behind another. */
static const struct addrinfo *sock_behind(const struct snib__sock *sock, const struct addrinfo *at)
{
    return at->ai_next ? at->ai_next : sock->resolve->addresses;
}

/* Where to begin: with the address that worked, or behind the one that did not. */
static const struct addrinfo *sock_first(const struct snib__sock *sock)
{
    const struct addrinfo *at = sock->resolve->addresses;
    while (at && !sock_is_last(sock->way, at))
        at = at->ai_next;
    if (!at)
        return sock->resolve->addresses;
    return sock->way->worked ? at : sock_behind(sock, at);
}

static bool sock_has(const struct snib__sock *sock, const struct addrinfo *at)
{
    for (uint32_t i = 0; i < sock->addresses_n; i++)
        if (sock->addresses[i] == at)
            return true;
    return false;
}

/* The next of the resolver's addresses to try; NULL: all are taken. */
static const struct addrinfo *sock_choose(const struct snib__sock *sock)
{
    const struct addrinfo *first = sock_first(sock), *at = first, *chosen = NULL;
    const struct addrinfo *last = sock->addresses_n ? sock->addresses[sock->addresses_n - 1] : NULL;
    if (!last)
        return first;
    do {
        if (sock_has(sock, at))
            continue;
        if (at->ai_family != last->ai_family)
            return at;
        chosen = chosen ? chosen : at;
    } while ((at = sock_behind(sock, at)) != first);
    return chosen;
}

static void sock_order(struct snib__sock *sock, snib__time now)
{
    const struct addrinfo *at;
    while (sock->addresses_n < SNIB__SOCK_ADDRESSES && (at = sock_choose(sock)))
        sock->addresses[sock->addresses_n++] = at;
    sock->until = now + sock->way->timeout;
    sock->begin_next = now;
}

/* Connected.  From here on, only a recv() that is to wait blocks, and only for a nap. */
static int sock_opened(struct snib__sock *sock, int fd)
{
    sock->fd = fd;
    snib__sys_may_block(fd);
    sock->secure = !sock->way->address.tls;
    sock->open = sock->secure && !sock->login;
    return 1;
}

static void sock_end_try(struct snib__sock *sock, uint32_t i)
{
    snib__sys_close(sock->tries[i].fd);
    sock->tries_n--;
    for (; i < sock->tries_n; i++)
        sock->tries[i] = sock->tries[i + 1];
}

/* Remember where it has connected, and whether that was of any use. */
static void sock_remember(const struct snib__sock *sock, bool worked)
{
    struct snib__way *way = sock->way;
    const struct addrinfo *at = sock->at;
    if (!at || at->ai_addrlen > sizeof way->last)
        return;
    memcpy(&way->last, at->ai_addr, at->ai_addrlen);
    way->last_n = at->ai_addrlen;
    way->worked = worked;
}

/* The first address to connect wins.  Returns 1. */
static int sock_won(struct snib__sock *sock, uint32_t i)
{
    int fd = sock->tries[i].fd;
    sock->at = sock->tries[i].at;
    sock->tries[i] = sock->tries[--sock->tries_n];
    while (sock->tries_n > 0)
        sock_end_try(sock, 0);
    return sock_opened(sock, fd);
}

/* Start with the next address.  If too many attempts are in progress, the oldest one ends. */
static int sock_begin(struct snib__sock *sock, snib__time now)
{
    const struct addrinfo *at = sock->addresses[sock->begun++];
    snib__time share = sock->way->timeout / sock->addresses_n;
    int fd = -1;
    if (sock->tries_n == SNIB__SOCK_TRIES) {
        sock->last_error = ETIMEDOUT;
        sock_end_try(sock, 0);
    }
    sock->begin_next = now + (share < SOCK_STAGGER ? share : SOCK_STAGGER);
    int error = snib__sys_connect(at->ai_addr, at->ai_addrlen, &fd);
    if (error && error != EINPROGRESS) {
        sock->last_error = error;
        return 0;
    }
    sock->tries[sock->tries_n].fd = fd;
    sock->tries[sock->tries_n++].at = at;
    return error == 0 ? sock_won(sock, sock->tries_n - 1) : 0;
}

static int sock_connect_step(struct snib__sock *sock, snib__time now)
{
    for (uint32_t i = 0; i < sock->tries_n;) {
        int error = snib__sys_connected(sock->tries[i].fd);
        if (error == 0)
            return sock_won(sock, i);
        if (error == EINPROGRESS) {
            i++;
            continue;
        }
        sock->last_error = error;
        sock_end_try(sock, i);
    }
    while (sock->begun < sock->addresses_n && (sock->tries_n == 0 || now >= sock->begin_next))
        if (sock_begin(sock, now))
            return 1;
    return sock->tries_n > 0 ? 0 : -1;
}

/* Connected: TLS begins when its files have been read. */
static int sock_secure_step(struct snib__sock *sock)
{
    if (!sock->tls) {
        if (!snib__tls_files_done(sock->files))
            return 0;
        sock->tls = snib__tls_new(sock->files, sock->way->address.host, &sock->failure);
        if (!sock->tls)
            return -1;
        sock->failure.outcome = SNIB__TLS_FINE;
    }
    int step = snib__tls_handshake(sock->tls, sock->fd);
    sock->secure = step > 0;
    return step;
}

static int sock_no_login(struct snib__sock *sock, const char *why, int os_error)
{
    sock->failure = (struct snib__tls_failure){
        .outcome = SNIB__TLS_NO_LOGIN, .code = SNIB_ECREDENTIALS, .os_error = os_error};
    snprintf(sock->failure.text, sizeof sock->failure.text, "%s", why);
    return -1;
}

/* Ready to log in, once the credentials are known. */
static int sock_login_step(struct snib__sock *sock)
{
    const char *username, *password, *why;
    int os_error;
    if (sock->login && !snib__login_done(sock->login))
        return 0;
    if (sock->login && !snib__login_result(sock->login, &username, &password, &why, &os_error))
        return sock_no_login(sock, why, os_error);
    sock->open = true;
    return 1;
}

/* Whether the name service says that the name has no address; else it has failed itself. */
static bool sock_is_unknown(int result)
{
#ifdef EAI_NODATA
    if (result == EAI_NODATA)
        return true;
#endif
#ifdef EAI_ADDRFAMILY
    if (result == EAI_ADDRFAMILY)
        return true;
#endif
    return result == EAI_NONAME;
}

int snib__sock_step(struct snib__sock *sock, snib__time now, int32_t *out_code, int *out_errno)
{
    int step = 0;
    *out_code = SNIB_EUNREACHABLE;
    if (sock->resolve && sock->addresses_n == 0 && atomic_load(&sock->resolve->done)) {
        sock->resolve->used = true;
        if (sock->resolve->result != 0) {
            *out_errno = sock->resolve->short_of;
            *out_code = *out_errno ? SNIB_EUNREACHABLE : SNIB_ERESOLVE;
            if (!*out_errno && !sock_is_unknown(sock->resolve->result))
                *out_errno = EAGAIN;
            return -1;
        }
        sock_order(sock, now);
    }
    if (sock->addresses_n > 0 && sock->fd < 0)
        step = sock_connect_step(sock, now);
    if (sock->fd >= 0 && !sock->secure)
        step = sock_secure_step(sock);
    if (step >= 0 && sock->secure && !sock->open)
        step = sock_login_step(sock);
    *out_errno = sock->last_error;
    if (step != 0 || now < sock->until)
        return step;
    if (sock->secure)
        sock_no_login(sock, "the request for credentials had no answer in time", ETIMEDOUT);
    else if (sock->resolve && sock->addresses_n == 0)
        *out_code = SNIB_ERESOLVE;
    else if (sock->tls)
        snib__tls_too_late(sock->tls, &sock->failure);
    else if (sock->fd >= 0)
        snib__tls_fail(&sock->failure, SNIB__TLS_SILENT,
                       "the certificates took too long to read from their files");
    *out_errno = ETIMEDOUT;
    return -1;
}

uint32_t snib__sock_polls(const struct snib__sock *sock, struct pollfd polls[SNIB__SOCK_TRIES],
                          snib__time *out_until)
{
    *out_until = sock->until;
    if (sock->secure) {
        polls[0] = (struct pollfd){.fd = snib__login_bell(sock->login), .events = POLLIN};
        return 1;
    }
    if (sock->addresses_n == 0) {
        polls[0] = (struct pollfd){.fd = sock->resolve->bell, .events = POLLIN};
        return 1;
    }
    if (sock->fd >= 0) {
        polls[0] = (struct pollfd){.fd = sock->fd, .events = POLLIN};
        if (sock->tls)
            polls[0].events = snib__tls_events(sock->tls);
        else
            polls[0].fd = snib__tls_files_bell(sock->files);
        return 1;
    }
    if (sock->begun < sock->addresses_n && sock->begin_next < sock->until)
        *out_until = sock->begin_next;
    for (uint32_t i = 0; i < sock->tries_n; i++)
        polls[i] = (struct pollfd){.fd = sock->tries[i].fd, .events = POLLOUT};
    return sock->tries_n;
}

/* ---- open ---- */

ssize_t snib__sock_recv(struct snib__sock *sock, char *bytes, size_t cap, bool wait)
{
    return sock->tls ? snib__tls_recv(sock->tls, sock->fd, bytes, cap, wait)
                     : snib__sys_recv(sock->fd, bytes, cap, wait);
}

ssize_t snib__sock_send(struct snib__sock *sock, const char *bytes, size_t n)
{
    return sock->tls ? snib__tls_send(sock->tls, sock->fd, bytes, n)
                     : snib__sys_send(sock->fd, bytes, n);
}

bool snib__sock_pending(const struct snib__sock *sock)
{
    return sock->tls && snib__tls_pending(sock->tls);
}

bool snib__sock_unsent(const struct snib__sock *sock)
{
    return snib__buf_size(&sock->sending) > 0 || (sock->tls && snib__tls_unsent(sock->tls));
}

const struct snib__tls_failure *snib__sock_why(const struct snib__sock *sock)
{
    if (sock->failure.outcome)
        return &sock->failure;
    return sock->tls ? snib__tls_why(sock->tls) : NULL;
}

/* ---- birth and end ---- */

static int sock_unix(struct snib__sock *sock, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = -1;
    socklen_t n = sizeof address;
    /* A memory server is the process's own, which may be the child of the one that opened the client. */
    if (path[0] == '@')
        n = snib__memory_address(&address, path + 1);
    else
        snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int error = snib__sys_connect((struct sockaddr *)&address, n, &fd);
    if (error == EINPROGRESS) { /* never expected of a unix socket */
        snib__sys_close(fd);
        return error;
    }
    if (!error)
        sock_opened(sock, fd);
    return error;
}

/* An address is used as it is; a name is looked up, unless a lookup is pending or has a fresh
 * result. */
static int sock_tcp(struct snib__sock *sock, snib__time now, int32_t *out_code)
{
    struct snib__way *way = sock->way;
    struct snib__resolve *resolve = way->resolving;
    if (resolve && sock_to_come(resolve, now)) {
        atomic_fetch_add(&resolve->refs, 1);
        sock->resolve = resolve;
        return 0;
    }
    sock_resolve_put(resolve);
    way->resolving = NULL;
    resolve = sock->resolve = sock_resolve_new(&way->address);
    if (!resolve) {
        *out_code = SNIB_ENOMEM;
        return ENOMEM;
    }
    if (snib__sys_resolve(resolve->host, resolve->port, true, &resolve->addresses) != 0) {
        int error = sock_resolve_start(resolve);
        if (error)
            return error;
        atomic_fetch_add(&resolve->refs, 1);
        way->resolving = resolve;
        return 0;
    }
    sock_order(sock, now);
    return sock_connect_step(sock, now) < 0 ? sock->last_error : 0;
}

/* The files are read for each connection, but by one thread at a time: a disk may hang.  What takes longer than an
 * attempt is for the next ones, too; otherwise a slow disk would never be of use. */
static int sock_files(struct snib__sock *sock)
{
    struct snib__way *way = sock->way;
    sock->files = snib__tls_files_join(way->reading);
    if (sock->files)
        return 0;
    snib__tls_files_drop(way->reading);
    way->reading = NULL;
    sock->files = snib__tls_files_new(way->tls);
    if (!sock->files)
        return errno;
    way->reading = snib__tls_files_keep(sock->files);
    return 0;
}

static void sock_free(struct snib__sock *sock)
{
    if (sock->fd >= 0)
        snib__sys_close(sock->fd);
    while (sock->tries_n > 0)
        sock_end_try(sock, 0);
    sock_resolve_put(sock->resolve);
    if (sock->login)
        snib__login_drop(sock->logins, &sock->login);
    snib__tls_files_free(sock->files);
    snib__tls_free(sock->tls);
    snib__buf_free(&sock->sending);
    free(sock);
}

struct snib__sock *snib__sock_new(struct snib__way *way, snib__time now, int32_t *out_code,
                                  int *out_errno)
{
    struct snib__sock *sock = calloc(1, sizeof *sock);
    *out_code = SNIB_ENOMEM;
    *out_errno = ENOMEM;
    if (!sock)
        return NULL;
    sock->fd = -1;
    sock->way = way;
    sock->logins = way->logins;
    sock->until = now + way->timeout;
    *out_code = SNIB_EUNREACHABLE;
    const char *path = way->address.path;
    *out_errno = way->logins && !(sock->login = snib__login_ask(way->logins)) ? errno : 0;
    if (*out_errno == 0 && way->address.tls)
        *out_errno = sock_files(sock);
    if (*out_errno == 0)
        *out_errno = path[0] ? sock_unix(sock, path) : sock_tcp(sock, now, out_code);
    if (*out_errno == 0)
        return sock;
    sock_free(sock);
    return NULL;
}

void snib__sock_works(struct snib__sock *sock)
{
    sock->works = true;
    sock_remember(sock, true);
}

void snib__sock_drop(struct snib__sock *sock)
{
    sock->dead = true;
    if (!sock->works)
        sock_remember(sock, false);
    if (sock->tls && sock->open)
        snib__tls_goodbye(sock->tls, sock->fd);
    if (sock->fd >= 0)
        snib__sys_shutdown(sock->fd);
    if (sock->users == 0)
        sock_free(sock);
}

void snib__sock_unuse(struct snib__sock *sock)
{
    if (--sock->users == 0 && sock->dead)
        sock_free(sock);
}
