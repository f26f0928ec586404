/* server.c - a memory server: one thread that serves a model on an abstract unix socket.
 *
 * The model is told the time before it reads anything, and all that it does is done inside the mutex.
 * Connections end by shutdown(); only the thread closes their descriptors, so that none is reused
 * while it polls. */
#include "server.h"

#include "driver/memory.h"
#include "driver/process.h"
#include "net/memory.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SERVER_READ_BYTES 16384
#define SERVER_ADVANCE_MAX 31536000000
#define SERVER_POLLS 2
#define SERVER_REST_MS 10
#define SERVER_BINDS 10000 /* for ten seconds */

pthread_mutex_t snib__server_mutex = PTHREAD_MUTEX_INITIALIZER; /* held over a fork */
static bool server_fork_known; /* a fork has met the handlers: they are registered */
static snib_memory *server_first;
static uint64_t server_ahead_ns, server_numbers;
static unsigned server_standing; /* for so many steps of the clock */

/* Until the next advance no server answers: a reply between the step of the clients' clock and that of the servers'
 * would say that the one or the other was set. */
static void server_stand(void)
{
    pthread_mutex_lock(&snib__server_mutex);
    server_standing++;
    pthread_mutex_unlock(&snib__server_mutex);
}

/* In the packages for Python and Go the core is in a library or package of its own, and the package
 * moves the clients' clock.  In C it is in the program, or in libsnib. */
#ifdef SNIB_TESTING_APART
SNIB_API void snib_memory_stand(void);

void snib_memory_stand(void)
{
    server_stand();
}

static int server_advance_clients(int64_t ms, snib_error *err)
{
    (void)ms, (void)err;
    return SNIB_OK;
}
#else
int snib_advance_clock(int64_t ms, snib_error *err) __attribute__((weak));

static int server_advance_clients(int64_t ms, snib_error *err)
{
    server_stand();
    if (!snib_advance_clock)
        return snib__server_fail(err, SNIB_ENOTSUP, "the program is not linked with libsnib");
    return snib_advance_clock(ms, err);
}
#endif

int snib__server_fail(snib_error *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    va_list arguments;
    *err = (snib_error){.code = code, .os_error = code == SNIB_ESYSTEM ? errno : 0};
    va_start(arguments, format);
    vsnprintf(err->text, sizeof err->text, format, arguments);
    va_end(arguments);
    return code;
}

void snib__server_ring(snib_memory *server)
{
    uint64_t one = 1;
    ssize_t written = write(server->bell, &one, sizeof one);
    (void)written; /* at its limit it is readable all the same */
}

static uint64_t server_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Inside.  Real time, which goes on by the clock of the clients: nobody sets that. */
static uint64_t server_now_ns(void)
{
    static uint64_t booted_ns;
    uint64_t up_ns = server_clock_ns(CLOCK_BOOTTIME);
    if (booted_ns == 0)
        booted_ns = server_clock_ns(CLOCK_REALTIME) - up_ns;
    return booted_ns + up_ns + server_ahead_ns;
}

bool snib__server_is_ours(const snib_memory *server)
{
    return server->process == snib__process();
}

/* What has ended since the last request is gone. */
void snib__server_enter(snib_memory *server)
{
    pthread_mutex_lock(&snib__server_mutex);
    model_time(server->model, server_now_ns());
}

/* ---- connections ------------------------------------------------------------------------------- */

/* What it has sent and nobody has read is never read. */
void snib__server_cut(struct server_connection *c)
{
    c->cut = true;
    shutdown(c->fd, SHUT_RDWR);
}

void snib__server_cut_all(snib_memory *server)
{
    for (size_t i = 0; i < server->count; i++)
        snib__server_cut(&server->connections[i]);
}

static void server_drop(snib_memory *server, size_t i)
{
    struct server_connection *gone = &server->connections[i];
    model_close(server->model, gone->id);
    close(gone->fd);
    model__drop(&gone->unsent);
    memmove(gone, gone + 1, (--server->count - i) * sizeof *gone);
}

/* Abstract sockets have no permissions: only the same user is let in. */
static bool server_is_welcome(int fd)
{
    struct ucred peer;
    socklen_t n = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.uid == geteuid();
}

static void server_accept(snib_memory *server)
{
    int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        server->rests = errno != EAGAIN;
        return;
    }
    if (server->count == SERVER_CONNECTIONS || !server_is_welcome(fd)) {
        close(fd);
        return;
    }
    server->connections[server->count++] =
        (struct server_connection){.fd = fd, .id = model_connect(server->model)};
}

/* Send what the model has to say; false: the connection has ended. */
static bool server_answer(snib_memory *server, struct server_connection *c)
{
    const char *bytes;
    size_t n = model_output(server->model, c->id, &bytes);
    if (c->cut)
        return false;
    if (n > 0)
        model__append(&c->unsent, bytes, n);
    while (c->unsent.n > 0) {
        ssize_t sent = send(c->fd, c->unsent.p, c->unsent.n, MSG_NOSIGNAL);
        if (sent <= 0)
            return sent < 0 && errno == EAGAIN;
        model__consume(&c->unsent, (size_t)sent);
    }
    return model_is_open(server->model, c->id);
}

/* Whether the connection goes on. */
static bool server_read(snib_memory *server, struct server_connection *c)
{
    char bytes[SERVER_READ_BYTES];
    if (c->cut)
        return false;
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    model_time(server->model, server_now_ns());
    model_input(server->model, c->id, bytes, (size_t)n);
    return true;
}

/* A request of one connection may have messages for others, or end them. */
static void server_answer_all(snib_memory *server)
{
    for (size_t i = server->count; i > 0; i--)
        if (!server_answer(server, &server->connections[i - 1]))
            server_drop(server, i - 1);
}

static void server_watch(void *context, uint64_t id, const model_text *argv, size_t argc)
{
    snib_memory *server = context;
    (void)argc;
    bool script = argv[0].n > 3 && strncasecmp(argv[0].p, "eval", 4) == 0;
    if (server->lose > 0 && script && !model_refused(server->model)) {
        server->lose--;
        for (size_t i = 0; i < server->count; i++)
            server->connections[i].cut |= server->connections[i].id == id;
    }
}

/* ---- the thread ------------------------------------------------------------------------------- */

static nfds_t server_polls(const snib_memory *server, struct pollfd *polls)
{
    bool open = !server->stalled && server_standing == 0;
    polls[0] = (struct pollfd){.fd = server->bell, .events = POLLIN};
    polls[1] =
        (struct pollfd){.fd = open && !server->rests ? server->listener : -1, .events = POLLIN};
    for (size_t i = 0; i < server->count; i++) {
        const struct server_connection *c = &server->connections[i];
        short events = c->unsent.n > 0 ? POLLIN | POLLOUT : POLLIN;
        polls[SERVER_POLLS + i] = (struct pollfd){.fd = open ? c->fd : -1, .events = events};
    }
    return SERVER_POLLS + server->count;
}

/* Inside: what poll() found.  From the last to the first, as those that end leave the list. */
static void server_serve(snib_memory *server, const struct pollfd *polls, size_t polled)
{
    uint64_t rung;
    if (polls[0].revents) {
        ssize_t n = read(server->bell, &rung, sizeof rung);
        (void)n;
    }
    if (server->stalled || server_standing > 0)
        return;
    for (size_t i = polled; i > 0; i--) {
        if (!polls[SERVER_POLLS + i - 1].revents)
            continue;
        if (!server_read(server, &server->connections[i - 1]))
            server_drop(server, i - 1);
    }
    server_answer_all(server);
    if (polls[1].revents && server->listener >= 0)
        server_accept(server);
}

static void *server_main(void *argument)
{
    snib_memory *server = argument;
    struct pollfd polls[SERVER_POLLS + SERVER_CONNECTIONS];
    prctl(PR_SET_NAME, "snib-memory");
    pthread_mutex_lock(&snib__server_mutex);
    while (!server->stop) {
        nfds_t n = server_polls(server, polls);
        pthread_mutex_unlock(&snib__server_mutex);
        int ready = poll(polls, n, server->rests ? SERVER_REST_MS : -1);
        pthread_mutex_lock(&snib__server_mutex);
        server->rests = false;
        if (ready > 0)
            server_serve(server, polls, n - SERVER_POLLS);
    }
    /* First, or a client that comes back at once would be let in by a server that is leaving. */
    if (server->listener >= 0)
        close(server->listener);
    server->listener = -1;
    while (server->count > 0)
        server_drop(server, server->count - 1);
    pthread_mutex_unlock(&snib__server_mutex);
    return NULL;
}

/* ---- start and stop --------------------------------------------------------------------------- */

/* Nobody else uses the address, but poll() in the thread, or a child that has not reached its exec yet, may still have the
 * socket that was closed. */
static int server_bind(int fd, const snib_memory *server)
{
    struct sockaddr_un to;
    socklen_t n = snib__memory_address(&to, server->name);
    int error = EADDRINUSE;
    for (int tries = 0; error == EADDRINUSE && tries < SERVER_BINDS; tries++) {
        if (tries > 0)
            usleep(1000);
        error = bind(fd, (struct sockaddr *)&to, n) == 0 ? 0 : errno;
    }
    return error;
}

int snib__server_listen(snib_memory *server)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = fd < 0 ? errno : server_bind(fd, server);
    if (error == 0 && listen(fd, SOMAXCONN) == 0) { /* a stalled one takes none off */
        server->listener = fd;
        return 0;
    }
    error = error ? error : errno;
    if (fd >= 0)
        close(fd);
    return error;
}

static void server_fork_prepare(void)
{
    pthread_mutex_lock(&snib__server_mutex);
    server_fork_known = true;
}

static void server_fork_parent(void)
{
    pthread_mutex_unlock(&snib__server_mutex);
}

/* Copies of the descriptors would keep the parent's addresses and connections alive. */
static void server_fork_child(void)
{
    for (snib_memory *server = server_first; server; server = server->next) {
        if (server->listener >= 0)
            close(server->listener);
        for (size_t i = 0; i < server->count; i++)
            close(server->connections[i].fd);
        close(server->bell);
    }
    server_first = NULL;
    server_standing = 0;
    pthread_mutex_unlock(&snib__server_mutex);
}

/* Begun anew in the child of a fork beside it. */
static void server_once(void)
{
    if (!server_fork_known)
        pthread_atfork(server_fork_prepare, server_fork_parent, server_fork_child);
}

static void server_free(snib_memory *server)
{
    if (server->listener >= 0)
        close(server->listener);
    if (server->bell >= 0)
        close(server->bell);
    if (server->snapshot)
        model_data_free(server->snapshot);
    model_free(server->model);
    free(server);
}

/* All signals are for the program's own threads. */
static int server_run(snib_memory *server)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&server->thread, NULL, server_main, server);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

/* Inside. */
static int server_begin(snib_memory *server, snib_error *err)
{
    for (const snib_memory *other = server_first; other; other = other->next)
        if (strcmp(other->name, server->name) == 0)
            return snib__server_fail(err, SNIB_EINVAL,
                                     "this process has a memory server \"%s\" already; stop it "
                                     "first, or use another name",
                                     server->name);
    server->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = server->bell < 0 ? errno : snib__server_listen(server);
    if (error == 0)
        error = server_run(server);
    if (error) {
        errno = error;
        return snib__server_fail(err, SNIB_ESYSTEM, "the memory server \"%s\" cannot start (%s)",
                                 server->name, strerror(error));
    }
    server->next = server_first;
    server_first = server;
    return SNIB_OK;
}

static int server_start(const char *name, snib_memory **out_server, snib_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static uint64_t starts;
    if (!out_server)
        return snib__server_fail(err, SNIB_EINVAL, "out_server is NULL");
    if (name && !snib__memory_is_name(name, strlen(name)))
        return snib__server_fail(err, SNIB_EINVAL,
                                 "a memory server's name has 1 to 64 letters, digits, - and _");
    pthread_once(&once, server_once);
    pthread_mutex_lock(&snib__server_mutex);
    snib_memory *server = model__grow(NULL, sizeof *server);
    *server =
        (snib_memory){.listener = -1, .bell = -1, .process = snib__process(), .model = model_new()};
    if (name)
        snprintf(server->name, sizeof server->name, "%s", name);
    else
        snprintf(server->name, sizeof server->name, "unnamed-%llu",
                 (unsigned long long)++server_numbers);
    snprintf(server->url, sizeof server->url, "memory://%s", server->name);
    model_set_run(server->model, ++starts << 32); /* one that is started again is another process */
    model_time(server->model, server_now_ns());
    model_watch(server->model, server_watch, server);
    int code = server_begin(server, err);
    if (code == SNIB_OK)
        *out_server = server;
    else
        server_free(server);
    pthread_mutex_unlock(&snib__server_mutex);
    return code;
}

/* A thread that is cancelled inside would leave with the mutex, or before the server's thread has ended. */
int snib_memory_start(const char *name, snib_memory **out_server, snib_error *err)
{
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    int code = server_start(name, out_server, err);
    pthread_setcancelstate(old, NULL);
    return code;
}

static void server_stop(snib_memory *server)
{
    pthread_mutex_lock(&snib__server_mutex);
    server->stop = true;
    snib__server_ring(server);
    pthread_mutex_unlock(&snib__server_mutex);
    pthread_join(server->thread, NULL);
    pthread_mutex_lock(&snib__server_mutex);
    snib_memory **at = &server_first;
    while (*at != server)
        at = &(*at)->next;
    *at = server->next;
    server_free(server);
    pthread_mutex_unlock(&snib__server_mutex);
}

void snib_memory_stop(snib_memory *server)
{
    int old;
    if (!server || !snib__server_is_ours(server)) /* the child of a fork has closed its copies */
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    server_stop(server);
    pthread_setcancelstate(old, NULL);
}

const char *snib_memory_url(const snib_memory *server)
{
    return server ? server->url : NULL;
}

/* The clients first: one that is ahead of its server gives a lock up too early, never too late. */
static int server_advance(int64_t ms, snib_error *err)
{
    int code = server_advance_clients(ms, err);
    pthread_mutex_lock(&snib__server_mutex);
    server_ahead_ns += code == SNIB_OK ? (uint64_t)ms * 1000000u : 0;
    server_standing -= server_standing > 0;
    for (snib_memory *server = server_first; server; server = server->next) {
        model_time(server->model, server_now_ns());
        snib__server_ring(server);
    }
    pthread_mutex_unlock(&snib__server_mutex);
    return code;
}

int snib_memory_advance(int64_t ms, snib_error *err)
{
    int old;
    if (ms < 0 || ms > SERVER_ADVANCE_MAX)
        return snib__server_fail(err, SNIB_EINVAL, "the clock can be moved by 0 to %lld ms",
                                 (long long)SERVER_ADVANCE_MAX);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    int code = server_advance(ms, err);
    pthread_setcancelstate(old, NULL);
    return code;
}
