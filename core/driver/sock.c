#include "driver/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A name being resolved on a thread of its own, because getaddrinfo() can take many seconds and the
 * driver must never block.  Shared by that thread and the socket; the last one frees it. */
struct snib__resolve {
    _Atomic int refs;
    _Atomic int done;
    int fd; /* readable when done */
    int result;
    struct addrinfo *addresses;
    char port[8];
    char host[];
};

static void sock_resolve_put(struct snib__resolve *resolve)
{
    if (atomic_fetch_sub(&resolve->refs, 1) != 1)
        return;
    if (resolve->addresses)
        freeaddrinfo(resolve->addresses);
    if (resolve->fd >= 0)
        close(resolve->fd);
    free(resolve);
}

static int sock_lookup(struct snib__resolve *resolve, int flags)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    return getaddrinfo(resolve->host, resolve->port, &hints, &resolve->addresses);
}

static void *sock_resolve_main(void *argument)
{
    struct snib__resolve *resolve = argument;
    uint64_t one = 1;
    resolve->result = sock_lookup(resolve, AI_ADDRCONFIG);
    atomic_store(&resolve->done, 1);
    ssize_t n = write(resolve->fd, &one, sizeof one);
    (void)n; /* the counter of a fresh eventfd cannot overflow */
    sock_resolve_put(resolve);
    return NULL;
}

static int sock_resolve_start(struct snib__resolve *resolve)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, old;
    resolve->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (resolve->fd < 0)
        return errno;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    atomic_fetch_add(&resolve->refs, 1);
    int error = pthread_create(&thread, &attr, sock_resolve_main, resolve);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (error)
        atomic_fetch_sub(&resolve->refs, 1);
    return error;
}

/* Connected.  From here on only a reader that wants to sleep blocks, and not for long. */
static void sock_opened(struct snib__sock *sock)
{
    struct timeval nap = {.tv_usec = SNIB__SOCK_NAP_MS * 1000};
    setsockopt(sock->fd, SOL_SOCKET, SO_RCVTIMEO, &nap, sizeof nap);
    fcntl(sock->fd, F_SETFL, fcntl(sock->fd, F_GETFL) & ~O_NONBLOCK);
    sock->open = true;
}

static void sock_tune(int fd)
{
    int one = 1, idle = 15, interval = 5, count = 3;
    /* A pub/sub connection whose peer vanished is found by keep-alive; command links by their replies. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

/* Begin with the current address, or the next that can be begun with.  1 open, 0 under way, -1 none left. */
static int sock_attempt(struct snib__sock *sock)
{
    for (struct addrinfo *at = sock->address_now; at; at = at->ai_next) {
        sock->address_now = at->ai_next;
        sock->fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (sock->fd < 0) {
            sock->last_error = errno;
            continue;
        }
        sock_tune(sock->fd);
        if (connect(sock->fd, at->ai_addr, at->ai_addrlen) == 0) {
            sock_opened(sock);
            return 1;
        }
        if (errno == EINPROGRESS)
            return 0;
        sock->last_error = errno;
        close(sock->fd);
        sock->fd = -1;
    }
    return -1;
}

static int sock_unix(struct snib__sock *sock, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    sock->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock->fd < 0)
        return errno;
    if (connect(sock->fd, (struct sockaddr *)&address, sizeof address) < 0)
        return errno;
    sock_opened(sock);
    return 0;
}

static int sock_tcp(struct snib__sock *sock, const struct snib__url *url, int32_t *out_code)
{
    struct snib__resolve *resolve = calloc(1, sizeof *resolve + strlen(url->host) + 1);
    if (!resolve) {
        *out_code = SNIB_ENOMEM;
        return ENOMEM;
    }
    atomic_store(&resolve->refs, 1);
    resolve->fd = -1;
    strcpy(resolve->host, url->host); /* sized above */
    snprintf(resolve->port, sizeof resolve->port, "%d", url->port);
    sock->resolve = resolve;
    if (sock_lookup(resolve, AI_NUMERICHOST) != 0)
        return sock_resolve_start(resolve);
    sock->address_now = resolve->addresses;
    return sock_attempt(sock) < 0 ? sock->last_error : 0;
}

static void sock_free(struct snib__sock *sock)
{
    if (sock->fd >= 0)
        close(sock->fd);
    if (sock->resolve)
        sock_resolve_put(sock->resolve);
    free(sock);
}

struct snib__sock *snib__sock_new(const struct snib__url *url, int32_t *out_code, int *out_errno)
{
    struct snib__sock *sock = calloc(1, sizeof *sock);
    *out_code = SNIB_ENOMEM;
    if (!sock)
        return NULL;
    sock->fd = -1;
    *out_code = SNIB_EUNREACHABLE;
    *out_errno = url->is_unix ? sock_unix(sock, url->path) : sock_tcp(sock, url, out_code);
    if (*out_errno == 0)
        return sock;
    sock_free(sock);
    return NULL;
}

int snib__sock_fd(const struct snib__sock *sock, short *out_events)
{
    *out_events = sock->fd >= 0 ? POLLOUT : POLLIN;
    return sock->fd >= 0 ? sock->fd : sock->resolve->fd;
}

int snib__sock_step(struct snib__sock *sock, int32_t *out_code, int *out_errno)
{
    *out_code = SNIB_EUNREACHABLE;
    *out_errno = 0;
    if (sock->fd < 0) {
        if (!atomic_load(&sock->resolve->done))
            return 0;
        if (sock->resolve->result != 0) {
            *out_code = SNIB_ERESOLVE;
            return -1;
        }
        sock->address_now = sock->resolve->addresses;
    } else {
        int error = 0;
        socklen_t n = sizeof error;
        struct pollfd ready = {.fd = sock->fd, .events = POLLOUT};
        if (poll(&ready, 1, 0) == 0)
            return 0;
        getsockopt(sock->fd, SOL_SOCKET, SO_ERROR, &error, &n);
        if (error == 0) {
            sock_opened(sock);
            return 1;
        }
        sock->last_error = error;
        close(sock->fd);
        sock->fd = -1;
    }
    int result = sock_attempt(sock);
    *out_errno = sock->last_error;
    return result;
}

void snib__sock_drop(struct snib__sock *sock)
{
    sock->dead = true;
    if (sock->fd >= 0)
        shutdown(sock->fd, SHUT_RDWR);
    if (sock->users == 0)
        sock_free(sock);
}

void snib__sock_unuse(struct snib__sock *sock)
{
    if (--sock->users == 0 && sock->dead)
        sock_free(sock);
}
