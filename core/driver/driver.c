/* driver.c - callers: entering the engine, taking the reader's role, sending, waking. */
#include "driver/driver.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define DRIVER_DEFER_ABOVE 12
#define DRIVER_COLLECT_MAX 16
#define DRIVER_READ_BYTES 16384

int snib__driver_init(struct snib__driver *d)
{
    d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->wake_fd < 0)
        return errno;
    d->sleep_until = SNIB__NEVER;
    return pthread_mutex_init(&d->mutex, NULL);
}

void snib__driver_destroy(struct snib__driver *d)
{
    pthread_mutex_destroy(&d->mutex);
    snib__buf_free(&d->sending);
    close(d->wake_fd);
}

/* ---- waking ---- */

void snib__wake_word(struct snib__driver *d, struct snib__wakes *wakes, _Atomic uint32_t *word)
{
    d->wakes++;
    if (wakes->n < SNIB__WAKES_MAX)
        wakes->words[wakes->n++] = word;
    else
        snib__unpark(word); /* more than fit in one batch: pay for it under the mutex */
}

void snib__wake_fd(struct snib__driver *d, struct snib__wakes *wakes, int fd)
{
    d->wakes++;
    for (uint32_t i = 0; i < wakes->fds_n; i++)
        if (wakes->fds[i] == fd)
            return;
    if (wakes->fds_n < sizeof wakes->fds / sizeof wakes->fds[0]) {
        wakes->fds[wakes->fds_n++] = fd;
    } else {
        uint64_t one = 1;
        ssize_t n = write(fd, &one, sizeof one);
        (void)n;
    }
}

static void driver_wake(struct snib__driver *d, struct snib__wakes *wakes)
{
    if (!d->wake_raised && d->thread_started) {
        d->wake_raised = true;
        wakes->thread = true;
    }
}

/* Outside the mutex: system calls. */
void snib__driver_do_wakes(struct snib__driver *d, const struct snib__wakes *wakes)
{
    uint64_t one = 1;
    ssize_t n = 0;
    for (uint32_t i = 0; i < wakes->n; i++)
        snib__unpark(wakes->words[i]);
    for (uint32_t i = 0; i < wakes->fds_n; i++)
        n = write(wakes->fds[i], &one, sizeof one);
    if (wakes->thread)
        n = write(d->wake_fd, &one, sizeof one);
    if (wakes->hold_watchers)
        snib__unpark_all(&d->hold_word);
    if (wakes->carriers)
        d->steps(wakes->carriers);
    (void)n; /* an eventfd at its limit is readable all the same */
}

/* ---- what has ended ---- */

void snib__driver_settle(struct snib__driver *d, struct snib__wakes *wakes)
{
    struct snib__op *op;
    struct snib__hold *hold;
    const char *text;
    int32_t level;
    while ((op = snib__engine_take_done(d->engine))) {
        if (op->awaited) {
            /* After this exchange the waiter may free the operation. */
            if (atomic_exchange(&op->word, SNIB__WORD_DONE) == SNIB__WORD_ASLEEP)
                snib__wake_word(d, wakes, &op->word);
        } else {
            d->done(d, op, wakes);
        }
    }
    while ((hold = snib__engine_take_lost(d->engine)))
        d->lost(d, hold, wakes);
    for (struct snib__outer *outer; (outer = snib__engine_take_outer(d->engine));)
        d->outer(d, outer);
    if (!wakes->carriers) {
        wakes->carriers = d->carriers;
        d->carriers = NULL;
    }
    while ((text = snib__engine_take_log(d->engine, &level)))
        d->log(d, level, text, wakes);
    if (d->hold_watchers > 0 && d->moves_told != snib__engine_moves(d->engine)) {
        d->moves_told = snib__engine_moves(d->engine);
        atomic_fetch_add(&d->hold_word, 1);
        wakes->hold_watchers = true;
    }
}

/* The thread is wanted when nobody reads what is to come, or a deadline comes before it would wake. */
static void driver_need_thread(struct snib__driver *d, struct snib__wakes *wakes)
{
    bool unread =
        d->reader == SNIB__READER_NOBODY && snib__engine_in_flight(d->engine, SNIB__COMMAND) > 0;
    bool pushed = snib__buf_size(snib__engine_output(d->engine, SNIB__PUBSUB)) > 0;
    if (unread || pushed || snib__engine_deadline(d->engine) < d->sleep_until)
        driver_wake(d, wakes);
}

void snib__driver_enter(struct snib__driver *d)
{
    pthread_mutex_lock(&d->mutex);
}

void snib__driver_leave(struct snib__driver *d)
{
    struct snib__wakes wakes;
    snib__wakes_begin(&wakes);
    snib__driver_settle(d, &wakes);
    snib__driver_flush(d, false);
    driver_need_thread(d, &wakes);
    pthread_mutex_unlock(&d->mutex);
    snib__driver_do_wakes(d, &wakes);
}

void snib__driver_leave_collecting(struct snib__driver *d)
{
    struct snib__wakes wakes;
    snib__wakes_begin(&wakes);
    snib__driver_settle(d, &wakes);
    pthread_mutex_unlock(&d->mutex);
    snib__driver_do_wakes(d, &wakes);
}

/* ---- sending ---- */

/* Send what the engine has for the command link.  `reading`: the caller is the reader, who always writes.
 * Gives up the mutex during the system call; one writer at a time, who looks again after each write. */
void snib__driver_flush(struct snib__driver *d, bool reading)
{
    while (!d->writing) {
        struct snib__sock *sock = d->socks[SNIB__COMMAND];
        struct snib__buf *out = snib__engine_output(d->engine, SNIB__COMMAND);
        if (!sock || !sock->open || (snib__buf_size(&d->sending) == 0 && snib__buf_size(out) == 0))
            return;
        if (snib__buf_size(&d->sending) == 0) {
            uint64_t collected = snib__engine_appended(d->engine) - d->commands_taken;
            uint64_t in_flight = snib__engine_in_flight(d->engine, SNIB__COMMAND);
            /* A caller that reads writes before it sleeps.  The thread need not: what it serves is
             * asynchronous, and the callers go on collecting meanwhile. */
            bool defer =
                reading ? d->reader == SNIB__READER_THREAD : d->reader != SNIB__READER_NOBODY;
            if (defer && in_flight >= collected + DRIVER_DEFER_ABOVE &&
                collected < DRIVER_COLLECT_MAX)
                return;
            struct snib__buf empty = d->sending;
            d->sending = *out;
            *out = empty;
            d->commands_taken += collected;
        } else if (!reading) {
            return; /* the socket was full: the reader polls for room */
        }
        d->writing = true;
        sock->users++;
        pthread_mutex_unlock(&d->mutex);
        ssize_t n = send(sock->fd, d->sending.data + d->sending.head, snib__buf_size(&d->sending),
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        pthread_mutex_lock(&d->mutex);
        d->writing = false;
        d->writes++;
        bool current = sock == d->socks[SNIB__COMMAND];
        snib__sock_unuse(sock);
        if (!current)
            d->sending.head = d->sending.len =
                0; /* the link has gone meanwhile, and these bytes with it */
        else if (n > 0)
            snib__buf_consume(&d->sending, (size_t)n);
        if (n < 0 || snib__buf_size(&d->sending) > 0)
            return; /* full, or broken: reading will tell */
    }
}

/* ---- receiving ---- */

void snib__driver_drop_sock(struct snib__driver *d, int link)
{
    if (d->socks[link])
        snib__sock_drop(d->socks[link]);
    d->socks[link] = NULL;
    if (link == SNIB__COMMAND && !d->writing) /* else the writer sees it */
        d->sending.head = d->sending.len = 0;
}

void snib__driver_link_down(struct snib__driver *d, int link, int32_t code, int os_error)
{
    snib__driver_drop_sock(d, link);
    snib__engine_link_down(d->engine, link, code, os_error, snib__now());
}

/* Feed what recv() gave, or note that the link is gone.  Inside. */
void snib__driver_receive(struct snib__driver *d, int link, struct snib__sock *sock,
                          const char *bytes, ssize_t n, int error)
{
    if (sock != d->socks[link])
        return;
    if (n > 0)
        snib__engine_input(d->engine, link, bytes, (size_t)n, snib__now());
    else if (n == 0 || (error != EAGAIN && error != EINTR))
        snib__driver_link_down(d, link, SNIB_EUNREACHABLE, n < 0 ? error : 0);
}

/* ---- the reader's role ---- */

/* The reader leaves: the oldest other caller with an answer to come, or the thread, or nobody. */
void snib__driver_pass_role(struct snib__driver *d, struct snib__wakes *wakes)
{
    d->reader = SNIB__READER_NOBODY;
    d->nominee = NULL;
    if (snib__engine_in_flight(d->engine, SNIB__COMMAND) == 0)
        return;
    for (struct snib__waiter *waiter = d->waiters; waiter; waiter = waiter->next) {
        if (!snib__op_in_flight(waiter->op))
            continue;
        uint32_t was = SNIB__WORD_PENDING;
        if (!atomic_compare_exchange_strong(&waiter->op->word, &was, SNIB__WORD_LEAD)) {
            if (was != SNIB__WORD_ASLEEP)
                continue;
            atomic_store(&waiter->op->word, SNIB__WORD_LEAD);
            snib__wake_word(d, wakes, &waiter->op->word);
        }
        d->reader = SNIB__READER_TRANSIT;
        d->nominee = waiter->op;
        return;
    }
    driver_wake(d, wakes);
}

/* Block for bytes, for at most a nap.  A plain recv() with the socket's own timeout saves the poll()
 * before each, 4 % of a round trip; only who must return sooner, or has bytes left to send, polls.
 * Returns as recv() does, with errno in *out_error: EAGAIN after the nap. */
static ssize_t driver_wait_bytes(int fd, bool unsent, snib__time until, char *bytes, size_t cap,
                                 int *out_error)
{
    snib__time left = SNIB__NEVER;
    if (until != SNIB__NEVER) {
        snib__time now = snib__now();
        left = until > now ? until - now : 0;
    }
    if (unsent || left < SNIB__SOCK_NAP_MS * SNIB__MS) {
        snib__time ms = left < SNIB__SOCK_NAP_MS * SNIB__MS ? (left + SNIB__MS - 1) / SNIB__MS
                                                            : SNIB__SOCK_NAP_MS;
        struct pollfd ready = {.fd = fd, .events = unsent ? POLLIN | POLLOUT : POLLIN};
        if (poll(&ready, 1, (int)ms) < 0) {
            *out_error = errno;
            return -1;
        }
    }
    bool again = unsent || left < SNIB__SOCK_NAP_MS * SNIB__MS;
    ssize_t n = recv(fd, bytes, cap, again ? MSG_DONTWAIT : 0);
    *out_error = errno;
    return n;
}

/* Read until the own answer is there.  Inside; false: `until` has passed or a signal handler ran. */
static bool driver_lead(struct snib__driver *d, struct snib__op *op, snib__time until,
                        bool interruptible)
{
    char bytes[DRIVER_READ_BYTES];
    bool again = true;
    d->reader = SNIB__READER_CALLER;
    d->nominee = NULL;
    snib__driver_flush(d, true);
    while (again) {
        struct snib__wakes wakes;
        snib__wakes_begin(&wakes);
        struct snib__sock *sock = d->socks[SNIB__COMMAND];
        if (!sock || !snib__op_in_flight(op) || atomic_load(&op->word) == SNIB__WORD_DONE)
            break;
        bool unsent = snib__buf_size(&d->sending) > 0 && !d->writing;
        int error;
        sock->users++;
        pthread_mutex_unlock(&d->mutex);
        ssize_t n = driver_wait_bytes(sock->fd, unsent, until, bytes, sizeof bytes, &error);
        pthread_mutex_lock(&d->mutex);
        d->reads += n > 0;
        snib__driver_receive(d, SNIB__COMMAND, sock, bytes, n, error);
        snib__sock_unuse(sock);
        if (n < 0 && error == EINTR && interruptible)
            again = false;
        if (n < 0 && until != SNIB__NEVER && snib__now() >= until)
            again = false;
        snib__driver_settle(d, &wakes);
        snib__driver_flush(d, true); /* before anybody is woken */
        driver_need_thread(d, &wakes);
        if (snib__wakes_any(&wakes)) {
            bool mine =
                atomic_load(&op->word) == SNIB__WORD_DONE || !snib__op_in_flight(op) || !again;
            if (mine) /* one exit for the mutex: the successor is woken with the others */
                snib__driver_pass_role(d, &wakes);
            pthread_mutex_unlock(&d->mutex);
            snib__driver_do_wakes(d, &wakes);
            pthread_mutex_lock(&d->mutex);
            if (mine)
                return again;
        }
    }
    struct snib__wakes wakes;
    snib__wakes_begin(&wakes);
    snib__driver_pass_role(d, &wakes);
    if (snib__wakes_any(&wakes)) {
        pthread_mutex_unlock(&d->mutex);
        snib__driver_do_wakes(d, &wakes);
        pthread_mutex_lock(&d->mutex);
    }
    return again;
}

static void driver_list(struct snib__driver *d, struct snib__waiter *waiter)
{
    waiter->next = NULL;
    waiter->prev = d->waiters_tail;
    if (d->waiters_tail)
        d->waiters_tail->next = waiter;
    else
        d->waiters = waiter;
    d->waiters_tail = waiter;
}

static void driver_unlist(struct snib__driver *d, struct snib__waiter *waiter)
{
    if (waiter->prev)
        waiter->prev->next = waiter->next;
    else
        d->waiters = waiter->next;
    if (waiter->next)
        waiter->next->prev = waiter->prev;
    else
        d->waiters_tail = waiter->prev;
}

/* Sleep until the operation is done or this thread is to read.  Inside; leaves and enters.
 * Returns enum snib__park. */
static int driver_sleep(struct snib__driver *d, struct snib__op *op, snib__time until)
{
    struct snib__waiter waiter = {.op = op};
    struct snib__wakes wakes;
    int how = SNIB__PARKED_NO;
    snib__wakes_begin(&wakes);
    driver_list(d, &waiter);
    snib__driver_settle(d, &wakes);
    snib__driver_flush(d, false);
    driver_need_thread(d, &wakes);
    pthread_mutex_unlock(&d->mutex);
    snib__driver_do_wakes(d, &wakes);
    uint32_t was = SNIB__WORD_PENDING;
    if (atomic_compare_exchange_strong(&op->word, &was, SNIB__WORD_ASLEEP))
        while (how == SNIB__PARKED_NO && atomic_load(&op->word) == SNIB__WORD_ASLEEP)
            how = snib__park(&op->word, SNIB__WORD_ASLEEP, until);
    pthread_mutex_lock(&d->mutex);
    driver_unlist(d, &waiter);
    was = SNIB__WORD_ASLEEP;
    atomic_compare_exchange_strong(&op->word, &was, SNIB__WORD_PENDING);
    was = SNIB__WORD_LEAD;
    atomic_compare_exchange_strong(&op->word, &was, SNIB__WORD_PENDING);
    return how;
}

bool snib__driver_run(struct snib__driver *d, struct snib__op *op, snib__time until,
                      bool interruptible, bool until_waiting)
{
    struct snib__wakes wakes;
    snib__wakes_begin(&wakes);
    snib__driver_settle(d, &wakes);
    if (snib__wakes_any(&wakes)) {
        pthread_mutex_unlock(&d->mutex);
        snib__driver_do_wakes(d, &wakes);
        pthread_mutex_lock(&d->mutex);
    }
    for (;;) {
        bool on = true;
        bool nominated = d->reader == SNIB__READER_TRANSIT && d->nominee == op;
        if (atomic_load(&op->word) != SNIB__WORD_DONE && snib__op_in_flight(op) &&
            d->socks[SNIB__COMMAND] && d->socks[SNIB__COMMAND]->open &&
            (nominated || d->reader == SNIB__READER_NOBODY)) {
            on = driver_lead(d, op, until, interruptible);
        } else if (nominated) { /* not ours to do any more */
            snib__wakes_begin(&wakes);
            snib__driver_pass_role(d, &wakes);
            pthread_mutex_unlock(&d->mutex);
            snib__driver_do_wakes(d, &wakes);
            pthread_mutex_lock(&d->mutex);
        }
        if (atomic_load(&op->word) == SNIB__WORD_DONE)
            return true;
        if (!on || (until != SNIB__NEVER && snib__now() >= until) ||
            (until_waiting && !snib__op_in_flight(op)))
            return false;
        if (snib__op_in_flight(op) && d->socks[SNIB__COMMAND] && d->socks[SNIB__COMMAND]->open &&
            (d->reader == SNIB__READER_NOBODY ||
             (d->reader == SNIB__READER_TRANSIT && d->nominee == op)))
            continue;
        int how = driver_sleep(d, op, until);
        if (how == SNIB__PARKED_SIGNAL && interruptible &&
            atomic_load(&op->word) != SNIB__WORD_DONE &&
            !(d->reader == SNIB__READER_TRANSIT && d->nominee == op))
            return false;
    }
}
