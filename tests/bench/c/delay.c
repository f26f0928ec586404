/* delay.c - links with a delay: forwards loopback ports to others and delays what passes.
 *
 *     snib_delay MICROSECONDS PORT...
 *
 * Prints its listening ports, in the same order, and ends with its input.  Each direction of each
 * connection is a queue of the bytes read and when they are due: a delay line, so bandwidth is not
 * limited and order is kept.  One thread; kernel timers are exact to some ten microseconds. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK 16384
#define EVENTS 64

struct chunk {
    struct chunk *next;
    int64_t due_ns;
    size_t length, sent;
    char bytes[];
};

/* One end of a link; what is read from it goes to its peer's line. */
struct end {
    int fd; /* -1: closed */
    int target;
    bool listens;
    struct end *peer, *next;
    struct chunk *first, **last; /* to be written to fd */
};

static int64_t delay_ns;
static struct end *ends;
static int poller;

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static struct end *end_new(int fd, bool listens)
{
    struct end *end = calloc(1, sizeof *end);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = end};
    int on = 1;
    if (end == NULL || fcntl(fd, F_SETFL, O_NONBLOCK) != 0 ||
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0)
        die("socket");
    if (!listens)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *end = (struct end){.fd = fd, .listens = listens, .next = ends, .last = &end->first};
    return ends = end;
}

/* Both ends are closed at once: neither side sends after a close here.  The memory is kept;
 * connections are few. */
static void link_close(struct end *end)
{
    struct end *both[] = {end, end->peer};
    for (int i = 0; i < 2; i++) {
        if (both[i]->fd >= 0)
            close(both[i]->fd);
        both[i]->fd = -1;
    }
}

static void listen_for(int target)
{
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        die("listen");
    end_new(fd, true)->target = target;
    printf("%d\n", ntohs(address.sin_port));
}

static void accept_one(const struct end *listener)
{
    struct sockaddr_in address = loopback(listener->target);
    int near = accept(listener->fd, NULL, NULL), far = socket(AF_INET, SOCK_STREAM, 0);
    if (near < 0 || far < 0)
        die("accept");
    if (connect(far, (struct sockaddr *)&address, sizeof address) != 0) {
        close(near);
        close(far);
        return;
    }
    struct end *a = end_new(near, false), *b = end_new(far, false);
    a->peer = b;
    b->peer = a;
}

static void read_some(struct end *end)
{
    struct chunk *chunk = malloc(sizeof *chunk + CHUNK);
    ssize_t n = chunk == NULL ? -1 : read(end->fd, chunk->bytes, CHUNK);
    if (n <= 0) {
        free(chunk);
        if (n == 0 || errno != EAGAIN)
            link_close(end);
        return;
    }
    chunk->next = NULL;
    chunk->due_ns = now_ns() + delay_ns;
    chunk->length = (size_t)n;
    chunk->sent = 0;
    *end->peer->last = chunk;
    end->peer->last = &chunk->next;
}

/* Writes what is due; returns the time of the next due chunk, or INT64_MAX.  A full socket is soon
 * retried. */
static int64_t write_due(struct end *end, int64_t now)
{
    while (end->first != NULL && end->fd >= 0) {
        struct chunk *chunk = end->first;
        if (chunk->due_ns > now)
            return chunk->due_ns;
        ssize_t n =
            send(end->fd, chunk->bytes + chunk->sent, chunk->length - chunk->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return now + delay_ns;
        if (n < 0)
            link_close(end);
        else if ((chunk->sent += (size_t)n) == chunk->length) {
            end->first = chunk->next;
            if (end->first == NULL)
                end->last = &end->first;
            free(chunk);
        }
    }
    return INT64_MAX;
}

static int64_t write_all(void)
{
    int64_t next = INT64_MAX, now = now_ns();
    for (struct end *end = ends; end != NULL; end = end->next) {
        int64_t due = write_due(end, now);
        next = due < next ? due : next;
    }
    return next;
}

static void wait_until(int64_t due)
{
    struct epoll_event events[EVENTS];
    struct pollfd both[] = {{.fd = poller, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    int64_t rest = due - now_ns();
    if (rest < 0)
        rest = 0;
    struct timespec timeout = {rest / 1000000000, rest % 1000000000};
    if (ppoll(both, 2, due == INT64_MAX ? NULL : &timeout, NULL) < 0 && errno != EINTR)
        die("ppoll");
    if (both[1].revents != 0)
        exit(0);
    int n = epoll_wait(poller, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct end *end = events[i].data.ptr;
        if (end->listens)
            accept_one(end);
        else if (end->fd >= 0)
            read_some(end);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3 || (delay_ns = atoll(argv[1]) * 1000) <= 0) {
        fputs("usage: snib_delay MICROSECONDS PORT...\n", stderr);
        return 2;
    }
    poller = epoll_create1(0);
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (int i = 2; i < argc; i++)
        listen_for(atoi(argv[i]));
    fflush(stdout);
    for (;;)
        wait_until(write_all());
}
