/* thread.c - the background thread of a client: connects, watches the pub/sub link and the timers, reads
 * the command link while asynchronous work is in flight and no caller reads.  It runs no code of the
 * user and takes no lock but the client's mutex, so leases are renewed whatever the program does. */
#include "driver/driver.h"

#include <errno.h>
#include <sys/prctl.h>

#define THREAD_STACK (256 * 1024)
#define THREAD_READ_BYTES 32768
/* A nominee that has not come by then is passed over.  Nobody is harmed if it was only slow. */
#define THREAD_TRANSIT (100 * SNIB__MS)

int snib__driver_start(struct snib__driver *d)
{
    if (d->thread_started)
        return 0;
    d->sleep_until = 0;
    int error = snib__sys_thread(snib__thread_main, d, THREAD_STACK, &d->thread);
    d->thread_started = error == 0;
    return error;
}

void snib__driver_stop(struct snib__driver *d)
{
    snib__sys_lock(&d->mutex);
    bool started = d->thread_started;
    d->stop = true;
    snib__sys_unlock(&d->mutex);
    if (started) {
        snib__sys_ring(d->wake_fd);
        snib__sys_join(d->thread);
    }
    snib__sys_lock(&d->mutex);
    d->thread_started = false;
    for (int link = 0; link < 2; link++)
        snib__driver_drop_sock(d, link);
    snib__sys_unlock(&d->mutex);
}

static void thread_wishes(struct snib__driver *d, int link)
{
    for (int wish; (wish = snib__engine_take_wish(d->engine, link)) != SNIB__WISH_NOTHING;) {
        snib__driver_drop_sock(d, link);
        if (wish == SNIB__WISH_CLOSE)
            continue;
        int32_t code = 0;
        int os_error = 0;
        d->socks[link] = snib__sock_new(&d->way, snib__now(), &code, &os_error);
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
    int32_t code;
    int os_error;
    if (!sock || sock->open)
        return;
    int step = snib__sock_step(sock, now, &code, &os_error);
    if (step > 0)
        snib__engine_link_up(d->engine, link, now);
    else if (step < 0)
        snib__driver_link_down(d, link, code, os_error);
}

/* The pub/sub link has one writer, this thread, and little to write. */
static void thread_send_pubsub(struct snib__driver *d)
{
    struct snib__sock *sock = d->socks[SNIB__PUBSUB];
    struct snib__buf *out = snib__engine_output(d->engine, SNIB__PUBSUB);
    if (!sock || !sock->open || snib__buf_size(out) == 0)
        return;
    ssize_t n = snib__sys_send(sock->fd, out->data + out->head, snib__buf_size(out));
    if (n > 0)
        snib__buf_consume(out, (size_t)n);
}

/* Take the reader's role if it is free and wanted; give it to the callers when only they have answers
 * to come, and to another when the nominee does not come.  True if this thread is to read. */
static bool thread_reads(struct snib__driver *d, struct snib__wakes *wakes)
{
    uint32_t in_flight = snib__engine_in_flight(d->engine, SNIB__COMMAND), callers = 0;
    struct snib__sock *sock = snib__driver_command(d);
    if (!sock)
        return false;
    if (sock->reader == SNIB__READER_THREAD) {
        for (struct snib__waiter *waiter = d->waiters; waiter; waiter = waiter->next)
            callers += snib__op_in_flight(waiter->op);
        if (in_flight <= callers)
            snib__driver_pass_role(d, wakes);
    } else if (sock->reader == SNIB__READER_TRANSIT &&
               snib__now() >= sock->nominated_at + THREAD_TRANSIT) {
        snib__driver_pass_role(d, wakes);
    }
    if (sock->reader == SNIB__READER_NOBODY && in_flight > 0)
        sock->reader = SNIB__READER_THREAD;
    return sock->reader == SNIB__READER_THREAD;
}

/* What one sleep watches, and what came of it: the bell, the alarm, then the links' descriptors. */
struct thread_watch {
    struct pollfd polls[2 + 2 * SNIB__SOCK_TRIES];
    uint32_t n;
    struct snib__sock *socks[2];
    struct pollfd *ready[2]; /* of a link that is connected and watched */
    bool open[2];            /* connected before the sleep */
    ssize_t got[2];
    int errors[2];
};

static snib__time thread_earlier(snib__time a, snib__time b)
{
    return a < b ? a : b;
}

/* Choose what to watch; returns until when at most. */
static snib__time thread_watch(struct snib__driver *d, struct thread_watch *watch, bool reads)
{
    snib__time until = snib__engine_deadline(d->engine), at;
    watch->polls[0] = (struct pollfd){.fd = d->wake_fd, .events = POLLIN};
    watch->polls[1] = (struct pollfd){.fd = d->alarm_fd, .events = POLLIN};
    watch->n = 2;
    for (int link = 0; link < 2; link++) {
        struct snib__sock *sock = watch->socks[link] = d->socks[link];
        watch->open[link] = sock && sock->open;
        watch->ready[link] = NULL;
        if (!sock)
            continue;
        sock->users++;
        if (!sock->open) {
            watch->n += snib__sock_polls(sock, watch->polls + watch->n, &at);
            until = thread_earlier(until, at);
        } else if (link == SNIB__PUBSUB || reads) {
            bool unsent = link == SNIB__PUBSUB
                              ? snib__buf_size(snib__engine_output(d->engine, link)) > 0
                              : !sock->writing && snib__buf_size(&sock->sending) > 0;
            watch->ready[link] = &watch->polls[watch->n++];
            *watch->ready[link] =
                (struct pollfd){.fd = sock->fd, .events = unsent ? POLLIN | POLLOUT : POLLIN};
            d->watches_room = d->watches_room || (unsent && link == SNIB__COMMAND);
        }
    }
    return until;
}

/* Have the alarm wake the next sleep in time; returns how long that may last beside.  An alarm that is too
 * early does no harm, so it is set seldom.  It counts from now by a clock that a suspend does not stop; what
 * may pass between the two calls, and whatever a clock or a wake-up may miss, the nap makes up for. */
static snib__time thread_set_alarm(struct snib__driver *d, snib__time *until)
{
    snib__time now = snib__now();
    if (*until != SNIB__NEVER || d->waiters || d->hold_watchers)
        *until = thread_earlier(*until, now + d->nap);
    if (*until <= now)
        return 0;
    if (*until < d->alarm_at) {
        d->alarm_at = *until;
        snib__sys_alarm_set(d->alarm_fd, *until - now);
    }
    return SNIB__NEVER;
}

/* Outside the mutex, so that callers go on submitting: sleep, then receive. */
static void thread_sleep(struct thread_watch *watch, snib__time left, char *bytes)
{
    if (snib__sys_poll(watch->polls, watch->n, left) <= 0)
        for (uint32_t i = 0; i < watch->n; i++)
            watch->polls[i].revents = 0;
    for (int i = 0; i < 2; i++)
        if (watch->polls[i].revents)
            snib__sys_hush(watch->polls[i].fd);
    for (int link = 0; link < 2; link++)
        if (watch->ready[link] && (watch->ready[link]->revents & ~POLLOUT)) {
            watch->got[link] = snib__sys_recv(
                watch->socks[link]->fd, bytes + link * THREAD_READ_BYTES, THREAD_READ_BYTES, false);
            watch->errors[link] = errno;
        }
}

/* Hand on what the sleep brought. */
static void thread_feed(struct snib__driver *d, struct thread_watch *watch, const char *bytes)
{
    if (watch->polls[1].revents)
        d->alarm_at = SNIB__NEVER;
    for (int link = 0; link < 2; link++) {
        struct snib__sock *sock = watch->socks[link];
        if (!sock)
            continue;
        if (watch->ready[link] && (watch->ready[link]->revents & ~POLLOUT)) {
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
    snib__time left = thread_set_alarm(d, &until);
    d->sleep_until = until;
    d->wake_raised = wakes.thread = false; /* that is us */
    snib__sys_unlock(&d->mutex);
    snib__driver_ring(&wakes);
    snib__driver_do_wakes(d, &wakes);
    thread_sleep(&watch, left, bytes);
    snib__sys_lock(&d->mutex);
    d->sleep_until = 0;
    d->wake_raised = d->watches_room = false;
    thread_feed(d, &watch, bytes);
}

void *snib__thread_main(void *argument)
{
    struct snib__driver *d = argument;
    char bytes[2 * THREAD_READ_BYTES];
    prctl(PR_SET_NAME, "snib");
    snib__sys_lock(&d->mutex);
    while (!d->stop)
        thread_pass(d, bytes);
    struct snib__sock *sock = snib__driver_command(d);
    if (sock && sock->reader == SNIB__READER_THREAD)
        sock->reader = SNIB__READER_NOBODY;
    snib__sys_unlock(&d->mutex);
    return NULL;
}
