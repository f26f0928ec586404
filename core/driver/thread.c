/* thread.c - the background thread of a client: connects, watches the pub/sub link and the timers, reads
 * the command link while asynchronous work is in flight and no caller reads.  It runs no code of the
 * user and takes no lock but the client's mutex, so leases are renewed whatever the program does. */
#include "driver/driver.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREAD_STACK (256 * 1024)
#define THREAD_READ_BYTES 32768

int snib__driver_start(struct snib__driver *d)
{
    pthread_attr_t attr;
    sigset_t all, old;
    if (d->thread_started)
        return 0;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, THREAD_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the program's threads */
    d->sleep_until = 0;
    int error = pthread_create(&d->thread, &attr, snib__thread_main, d);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    d->thread_started = error == 0;
    return error;
}

void snib__driver_stop(struct snib__driver *d)
{
    pthread_mutex_lock(&d->mutex);
    bool started = d->thread_started;
    uint64_t one = 1;
    d->stop = true;
    pthread_mutex_unlock(&d->mutex);
    if (started) {
        ssize_t n = write(d->wake_fd, &one, sizeof one);
        (void)n;
        pthread_join(d->thread, NULL);
    }
    pthread_mutex_lock(&d->mutex);
    d->thread_started = false;
    for (int link = 0; link < 2; link++)
        snib__driver_drop_sock(d, link);
    pthread_mutex_unlock(&d->mutex);
}

static void thread_wishes(struct snib__driver *d, int link)
{
    for (int wish; (wish = snib__engine_take_wish(d->engine, link)) != SNIB__WISH_NOTHING;) {
        snib__driver_drop_sock(d, link);
        if (wish == SNIB__WISH_CLOSE)
            continue;
        int32_t code = 0;
        int os_error = 0;
        d->socks[link] = snib__sock_new(&d->url, &code, &os_error);
        d->connect_by[link] = snib__now() + d->connect_timeout;
        if (!d->socks[link])
            snib__driver_link_down(d, link, code, os_error);
        else if (d->socks[link]->open)
            snib__engine_link_up(d->engine, link, snib__now());
    }
}

/* A socket that is being connected: has it got anywhere? */
static void thread_connecting(struct snib__driver *d, int link, snib__time now)
{
    struct snib__sock *sock = d->socks[link];
    int32_t code = SNIB_EUNREACHABLE;
    int os_error = 0;
    if (!sock || sock->open)
        return;
    int step = snib__sock_step(sock, &code, &os_error);
    if (step > 0)
        snib__engine_link_up(d->engine, link, now);
    else if (step < 0)
        snib__driver_link_down(d, link, code, os_error);
    else if (now >= d->connect_by[link])
        snib__driver_link_down(d, link, SNIB_EUNREACHABLE, ETIMEDOUT);
}

/* The pub/sub link has one writer, this thread, and little to write. */
static void thread_send_pubsub(struct snib__driver *d)
{
    struct snib__sock *sock = d->socks[SNIB__PUBSUB];
    struct snib__buf *out = snib__engine_output(d->engine, SNIB__PUBSUB);
    if (!sock || !sock->open || snib__buf_size(out) == 0)
        return;
    ssize_t n =
        send(sock->fd, out->data + out->head, snib__buf_size(out), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
        snib__buf_consume(out, (size_t)n);
}

/* Take the reader's role if it is free and wanted; give it to the callers when only they have answers
 * to come.  True if this thread is to read. */
static bool thread_reads(struct snib__driver *d, struct snib__wakes *wakes)
{
    uint32_t in_flight = snib__engine_in_flight(d->engine, SNIB__COMMAND), callers = 0;
    struct snib__sock *sock = d->socks[SNIB__COMMAND];
    if (d->reader == SNIB__READER_THREAD) {
        for (struct snib__waiter *waiter = d->waiters; waiter; waiter = waiter->next)
            callers += snib__op_in_flight(waiter->op);
        if (in_flight == 0)
            d->reader = SNIB__READER_NOBODY;
        else if (in_flight <= callers)
            snib__driver_pass_role(d, wakes);
    }
    if (d->reader == SNIB__READER_NOBODY && in_flight > 0 && sock && sock->open)
        d->reader = SNIB__READER_THREAD;
    return d->reader == SNIB__READER_THREAD && sock && sock->open;
}

/* What one sleep watches, and what came of it. */
struct thread_watch {
    struct pollfd polls[3]; /* the wake descriptor, then the links */
    struct snib__sock *socks[2];
    bool open[2]; /* connected before the sleep */
    ssize_t got[2];
    int errors[2];
};

/* Choose what to watch; returns until when at most. */
static snib__time thread_watch(struct snib__driver *d, struct thread_watch *watch, bool reads)
{
    snib__time until = snib__engine_deadline(d->engine);
    watch->polls[0] = (struct pollfd){.fd = d->wake_fd, .events = POLLIN};
    for (int link = 0; link < 2; link++) {
        struct snib__sock *sock = watch->socks[link] = d->socks[link];
        struct pollfd *ready = &watch->polls[1 + link];
        *ready = (struct pollfd){.fd = -1};
        watch->open[link] = sock && sock->open;
        if (!sock)
            continue;
        sock->users++;
        if (!sock->open) {
            ready->fd = snib__sock_fd(sock, &ready->events);
            until = d->connect_by[link] < until ? d->connect_by[link] : until;
        } else if (link == SNIB__PUBSUB || reads) {
            bool unsent = link == SNIB__PUBSUB
                              ? snib__buf_size(snib__engine_output(d->engine, link)) > 0
                              : snib__buf_size(&d->sending) > 0;
            *ready = (struct pollfd){.fd = sock->fd, .events = unsent ? POLLIN | POLLOUT : POLLIN};
        }
    }
    return until;
}

/* Outside the mutex, so that callers go on submitting: sleep, then receive. */
static void thread_sleep(struct thread_watch *watch, snib__time until, char *bytes)
{
    struct timespec ts, *timeout = NULL;
    if (until != SNIB__NEVER) {
        snib__time now = snib__now();
        snib__time left = until > now ? until - now : 0;
        ts = (struct timespec){.tv_sec = (time_t)(left / 1000000000u),
                               .tv_nsec = (long)(left % 1000000000u)};
        timeout = &ts;
    }
    if (ppoll(watch->polls, 3, timeout, NULL) <= 0)
        for (int i = 0; i < 3; i++)
            watch->polls[i].revents = 0;
    if (watch->polls[0].revents) {
        uint64_t count;
        ssize_t n = read(watch->polls[0].fd, &count, sizeof count);
        (void)n;
    }
    for (int link = 0; link < 2; link++)
        if (watch->open[link] && (watch->polls[1 + link].revents & ~POLLOUT)) {
            watch->got[link] = recv(watch->socks[link]->fd, bytes + link * THREAD_READ_BYTES,
                                    THREAD_READ_BYTES, MSG_DONTWAIT);
            watch->errors[link] = errno;
        }
}

/* Hand on what the sleep brought. */
static void thread_feed(struct snib__driver *d, struct thread_watch *watch, const char *bytes)
{
    for (int link = 0; link < 2; link++) {
        struct snib__sock *sock = watch->socks[link];
        if (!sock)
            continue;
        if (watch->open[link] && (watch->polls[1 + link].revents & ~POLLOUT)) {
            d->reads += link == SNIB__COMMAND;
            snib__driver_receive(d, link, sock, bytes + link * THREAD_READ_BYTES, watch->got[link],
                                 watch->errors[link]);
        } else if (!watch->open[link] && sock == d->socks[link]) {
            thread_connecting(d, link, snib__now());
        }
        snib__sock_unuse(sock);
    }
}

/* One pass: what is due, what is wished, what is to be sent; then sleep; then what has come. */
static void thread_pass(struct snib__driver *d, char *bytes)
{
    struct snib__wakes wakes;
    struct thread_watch watch;
    snib__wakes_begin(&wakes);
    snib__engine_tick(d->engine, snib__now());
    for (int link = 0; link < 2; link++)
        thread_wishes(d, link);
    snib__driver_settle(d, &wakes);
    thread_send_pubsub(d);
    snib__driver_flush(d, thread_reads(d, &wakes));
    snib__time until = thread_watch(d, &watch, thread_reads(d, &wakes));
    d->sleep_until = until;
    pthread_mutex_unlock(&d->mutex);
    wakes.thread = false; /* that is us */
    snib__driver_do_wakes(d, &wakes);
    thread_sleep(&watch, until, bytes);
    pthread_mutex_lock(&d->mutex);
    d->sleep_until = 0;
    d->wake_raised = false;
    thread_feed(d, &watch, bytes);
}

void *snib__thread_main(void *argument)
{
    struct snib__driver *d = argument;
    char bytes[2 * THREAD_READ_BYTES];
    prctl(PR_SET_NAME, "snib");
    pthread_mutex_lock(&d->mutex);
    while (!d->stop)
        thread_pass(d, bytes);
    if (d->reader == SNIB__READER_THREAD)
        d->reader = SNIB__READER_NOBODY;
    pthread_mutex_unlock(&d->mutex);
    return NULL;
}
