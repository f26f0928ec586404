/* driver.c - callers: entering the engine, taking the reader role, sending, waking. */
#include "driver/lead.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Requests are collected while the client waits for this many replies, on all links together, and
 * for at least LINK_BUSY of them on the link in question. */
#define DRIVER_DEFER_ABOVE 8
#define DRIVER_LINK_BUSY 2
#define DRIVER_COLLECT_MAX 16
#define DRIVER_READ_BYTES 16384
#define DRIVER_CORKED_MAX                                                                          \
    (20 * SNIB__MS) /* for which the requests of a corked queue may wait for its consumer */
#define DRIVER_BLIND (10 * SNIB__MS) /* between two looks at what cannot be polled */
/* A caller that sleeps in recv() comes back from a dead socket at once; later than this it must have
 * been stopped. */
#define DRIVER_PROMPT (50 * SNIB__MS)

int snib__driver_init(struct snib__driver *d)
{
    d->sleep_until = d->alarm_at = SNIB__NEVER;
    d->wake = snib__bell_new();
    if (!d->wake)
        return errno;
    d->alarm_fd = snib__sys_alarm();
    int error = d->alarm_fd < 0 ? errno : pthread_mutex_init(&d->mutex, NULL);
    if (error) {
        if (d->alarm_fd >= 0)
            snib__sys_close(d->alarm_fd);
        snib__bell_put(d->wake);
    }
    return error;
}

void snib__driver_destroy(struct snib__driver *d)
{
    pthread_mutex_destroy(&d->mutex);
}

/* ---- waking ---- */

struct snib__bell *snib__bell_new(void)
{
    struct snib__bell *bell = malloc(sizeof *bell);
    if (!bell) {
        errno = ENOMEM;
        return NULL;
    }
    atomic_init(&bell->refs, 1);
    bell->fd = snib__sys_bell();
    if (bell->fd >= 0)
        return bell;
    free(bell);
    return NULL;
}

void snib__bell_put(struct snib__bell *bell)
{
    if (atomic_fetch_sub(&bell->refs, 1) != 1)
        return;
    snib__sys_close(bell->fd);
    free(bell);
}

void snib__wake_word(struct snib__driver *d, struct snib__wakes *wakes, _Atomic uint32_t *word)
{
    d->wakes++;
    if (wakes->n < SNIB__WAKES_MAX)
        wakes->words[wakes->n++] = word;
    else
        snib__unpark(word); /* more than fit in one batch: pay for it under the mutex */
}

void snib__wake_bell(struct snib__driver *d, struct snib__wakes *wakes, struct snib__bell *bell)
{
    d->wakes++;
    for (uint32_t i = 0; i < wakes->bells_n; i++)
        if (wakes->bells[i] == bell)
            return;
    if (wakes->bells_n == SNIB__BELLS_MAX) {
        snib__sys_ring(bell->fd);
        return;
    }
    atomic_fetch_add(&bell->refs, 1);
    wakes->bells[wakes->bells_n++] = bell;
}

void snib__wake_not(struct snib__wakes *wakes)
{
    if (wakes->thread)
        snib__bell_put(wakes->thread);
    wakes->thread = NULL;
}

/* If its sleep has no end, the background thread depends on this wake-up, so it is delivered here,
 * before anything can happen to the caller's thread.  Otherwise a nap makes up for a lost one. */
static void driver_wake(struct snib__driver *d, struct snib__wakes *wakes)
{
    if (d->wake_raised || !d->thread_started)
        return;
    d->wake_raised = true;
    if (d->sleep_until == SNIB__NEVER)
        snib__sys_ring(d->wake->fd);
    else if (!wakes->thread) {
        atomic_fetch_add(&d->wake->refs, 1);
        wakes->thread = d->wake;
    }
}

void snib__driver_rouse(struct snib__driver *d)
{
    snib__sys_lock(&d->mutex);
    if (d->thread_started)
        snib__sys_ring(d->wake->fd);
    snib__sys_unlock(&d->mutex);
}

/* Ring the queues' bells.  The background thread does it outside the mutex.  Callers do it inside:
 * outside, a signal handler could keep them from it, and no consumer of a queue naps. */
void snib__driver_ring(struct snib__wakes *wakes)
{
    for (uint32_t i = 0; i < wakes->bells_n; i++) {
        snib__sys_ring(wakes->bells[i]->fd);
        snib__bell_put(wakes->bells[i]);
    }
    wakes->bells_n = 0;
}

/* Outside the mutex: system calls. */
void snib__driver_do_wakes(struct snib__driver *d, struct snib__wakes *wakes)
{
    for (uint32_t i = 0; i < wakes->n; i++)
        snib__unpark(wakes->words[i]);
    if (wakes->thread) {
        snib__sys_ring(wakes->thread->fd);
        snib__wake_not(wakes);
    }
    if (wakes->hold_watchers)
        snib__unpark_all(&d->hold_word);
    if (wakes->carriers)
        d->steps(wakes->carriers);
}

/* Release the mutex and wake the threads that were listed. */
static void driver_unlock(struct snib__driver *d, struct snib__wakes *wakes)
{
    bool any = snib__wakes_any(wakes);
    if (any)
        snib__driver_ring(wakes);
    snib__sys_unlock(&d->mutex);
    if (any)
        snib__driver_do_wakes(d, wakes);
}

static void driver_relock(struct snib__driver *d, struct snib__wakes *wakes)
{
    if (!snib__wakes_any(wakes))
        return;
    driver_unlock(d, wakes);
    snib__sys_lock(&d->mutex);
}

/* ---- results ---- */

void snib__driver_settle(struct snib__driver *d, struct snib__wakes *wakes)
{
    struct snib__op *op;
    struct snib__hold *hold;
    const char *text;
    int32_t level;
    if (!snib__engine_news(d->engine) && !d->carriers && !d->logins.untold && d->hold_watchers == 0)
        return;
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
    if (d->logins.untold)
        d->ask(d, wakes);
    while ((text = snib__engine_take_log(d->engine, &level)))
        d->log(d, level, text, wakes);
    if (d->hold_watchers > 0 && d->moves_told != snib__engine_moves(d->engine)) {
        d->moves_told = snib__engine_moves(d->engine);
        atomic_fetch_add(&d->hold_word, 1);
        wakes->hold_watchers = true;
    }
}

struct snib__sock *snib__driver_command(const struct snib__link *link)
{
    struct snib__sock *sock = snib__link_transport(link);
    return sock && sock->open && snib__link_kind(link) == SNIB__COMMAND ? sock : NULL;
}

/* Whether a link needs the thread.  A command link: replies are pending and there is no reader, or
 * the thread reads and has not seen that the socket is full, or a consumer reads, and the socket is
 * full, or the thread does not look after it; or there is something to send, and only the thread
 * does.  Another link: there is something to send. */
static bool driver_link_idles(struct snib__link *link, bool looks, bool alone)
{
    const struct snib__sock *sock = snib__driver_command(link);
    if (snib__link_kind(link) != SNIB__COMMAND)
        return snib__buf_size(snib__link_output(link)) > 0;
    if (!sock)
        return false;
    if (alone && !sock->writing && snib__buf_size(snib__link_output(link)) > 0)
        return true;
    if (sock->reader == SNIB__READER_NOBODY)
        return snib__link_in_flight(link) > 0;
    bool full = !sock->writing && snib__sock_unsent(sock);
    if (sock->reader == SNIB__READER_QUEUE)
        return snib__lead_yields(sock) && (full || (!looks && snib__link_in_flight(link) > 0));
    return sock->reader == SNIB__READER_THREAD && !sock->watched && full;
}

/* Wake the thread for a link, or for a deadline before the end of its sleep. */
static void driver_need_thread(struct snib__driver *d, struct snib__wakes *wakes)
{
    bool needed = snib__engine_deadline(d->engine) < d->sleep_until;
    bool alone = snib__driver_alone(d);
    for (struct snib__link *link = snib__engine_links(d->engine); link && !needed;
         link = snib__link_next(link))
        needed = driver_link_idles(link, d->looks, alone);
    if (needed)
        driver_wake(d, wakes);
}

void snib__driver_enter(struct snib__driver *d)
{
    snib__sys_lock(&d->mutex);
}

void snib__driver_leave(struct snib__driver *d)
{
    struct snib__wakes wakes;
    snib__wakes_begin(&wakes);
    snib__driver_settle(d, &wakes);
    snib__driver_flush(d, NULL);
    snib__lead_take(d);
    driver_need_thread(d, &wakes);
    driver_unlock(d, &wakes);
}

void snib__driver_leave_collecting(struct snib__driver *d)
{
    struct snib__wakes wakes;
    snib__wakes_begin(&wakes);
    snib__driver_settle(d, &wakes);
    driver_unlock(d, &wakes);
}

void snib__driver_leave_corked(struct snib__driver *d)
{
    snib__thread_passes_in(d, DRIVER_CORKED_MAX);
    snib__driver_leave_collecting(d);
}

void snib__driver_deliver(struct snib__driver *d)
{
    struct snib__wakes wakes;
    snib__wakes_begin(&wakes);
    snib__driver_settle(d, &wakes);
    snib__driver_flush(d, NULL);
    driver_relock(d, &wakes);
}

/* ---- sending ---- */

static uint64_t driver_collected(const struct snib__link *link, const struct snib__sock *sock)
{
    return snib__link_appended(link) - sock->taken;
}

/* Whether a link's output may wait for more.  It must not wait for a reply that nobody expects: so
 * the link itself has some on their way, and its reader sends the rest when they come.  After stop
 * nobody does: the releases of a client that is closed without time for their replies leave now. */
static bool driver_may_collect(const struct snib__driver *d, const struct snib__link *link,
                               const struct snib__sock *sock)
{
    uint64_t collected = driver_collected(link, sock);
    uint64_t sent = snib__link_in_flight(link);
    if (d->stop)
        return false;
    if (collected >= DRIVER_COLLECT_MAX || sent < collected + DRIVER_LINK_BUSY)
        return false;
    sent = 0;
    for (const struct snib__link *at = snib__engine_links(d->engine); at;
         at = snib__link_next(at)) {
        const struct snib__sock *other = snib__driver_command(at);
        if (other && snib__link_in_flight(at) > driver_collected(at, other))
            sent += snib__link_in_flight(at) - driver_collected(at, other);
    }
    return sent >= DRIVER_DEFER_ABOVE;
}

/* Take the engine's output for a command link, unless it may wait.  `reading`: the calling thread
 * is the reader.  A caller that reads always writes before it sleeps.  The background thread need
 * not: it serves asynchronous work, and callers keep collecting meanwhile. */
static bool driver_take_output(const struct snib__driver *d, struct snib__link *link,
                               struct snib__sock *sock, bool reading)
{
    struct snib__buf *out = snib__link_output(link);
    if (snib__buf_size(out) == 0)
        return false;
    bool defer =
        reading ? sock->reader == SNIB__READER_THREAD : sock->reader != SNIB__READER_NOBODY;
    if (defer && driver_may_collect(d, link, sock))
        return false;
    struct snib__buf empty = sock->sending;
    sock->sending = *out;
    *out = empty;
    sock->taken += driver_collected(link, sock);
    return true;
}

/* Send one link's output.  Releases the mutex during the system call; there is one writer at a
 * time, which checks again after each write. */
void snib__driver_flush_link(struct snib__driver *d, struct snib__link *link,
                             const struct snib__sock *reading)
{
    struct snib__sock *sock;
    while ((sock = snib__driver_command(link)) && !sock->writing) {
        if (snib__sock_unsent(sock)) {
            if (sock != reading)
                return; /* the socket was full: the reader polls for room */
        } else if (!driver_take_output(d, link, sock, sock == reading)) {
            return;
        }
        const struct snib__buf *bytes = &sock->sending;
        sock->writing = true;
        sock->users++;
        snib__sys_unlock(&d->mutex);
        ssize_t n = snib__sock_send(sock, bytes->data + bytes->head, snib__buf_size(bytes));
        snib__sys_lock(&d->mutex);
        sock->writing = false;
        d->writes++;
        if (n > 0)
            snib__buf_consume(&sock->sending, (size_t)n);
        bool more = n >= 0 && !snib__sock_unsent(sock);
        snib__driver_unuse(d, sock);
        if (!more)
            return; /* full, or broken: the reader will see */
    }
}

void snib__driver_flush(struct snib__driver *d, const struct snib__sock *reading)
{
    const bool alone = snib__driver_alone(d);
    for (struct snib__link *link = snib__engine_links(d->engine); link;
         link = snib__link_next(link)) {
        bool reads = reading && snib__link_transport(link) == reading;
        bool may_write = !alone || d->stop; /* then the thread writes no more */
        if (reads || (may_write && snib__buf_size(snib__link_output(link)) > 0))
            snib__driver_flush_link(d, link, reading);
    }
}

/* ---- callers that do not come back ---- */

bool snib__driver_alone(const struct snib__driver *d)
{
    return d->alone_until && snib__now() < d->alone_until;
}

void snib__driver_left(struct snib__driver *d, struct snib__sock *sock)
{
    if (sock->users == 0 || sock->left_at)
        return;
    sock->left_at = snib__now();
    if (d->astray++ == 0)
        d->alone_before = d->alone_until;
    d->alone_until = sock->left_at + d->lease;
}

/* If all are back at once, the server was silent and its readers were well: what was before applies
 * again. */
void snib__driver_unuse(struct snib__driver *d, struct snib__sock *sock)
{
    if (sock->left_at && sock->users == 1) {
        if (snib__now() > sock->left_at + DRIVER_PROMPT)
            d->alone_before = d->alone_until;
        if (--d->astray == 0)
            d->alone_until = d->alone_before;
    }
    snib__sock_unuse(sock);
}

/* ---- receiving ---- */

void snib__driver_drop_sock(struct snib__link *link)
{
    struct snib__sock *sock = snib__link_transport(link);
    if (sock)
        snib__lead_end(sock);
    snib__link_set_transport(link, NULL);
    if (sock)
        snib__sock_drop(sock);
}

void snib__driver_link_up(struct snib__driver *d, struct snib__link *link, struct snib__sock *sock)
{
    const char *username, *password, *why;
    int os_error;
    if (!sock->login) {
        snib__engine_link_up(d->engine, link, snib__now());
        return;
    }
    snib__login_result(sock->login, &username, &password, &why, &os_error);
    snib__login_used(&d->logins, sock->login);
    snib__engine_link_up_as(d->engine, link, username, password, snib__now());
    snib__login_drop(&d->logins, &sock->login);
}

void snib__driver_link_down(struct snib__driver *d, struct snib__link *link, int32_t code,
                            int os_error)
{
    const struct snib__sock *sock = snib__link_transport(link);
    const struct snib__tls_failure *why = sock ? snib__sock_why(sock) : NULL;
    if (why) {
        code = why->code;
        os_error = why->os_error;
        snib__link_explain(link, why->text);
    }
    snib__driver_drop_sock(link);
    snib__engine_link_down(d->engine, link, code, os_error, snib__now());
}

static void driver_input(struct snib__driver *d, struct snib__link *link, struct snib__sock *sock,
                         char *bytes, size_t n)
{
    snib__link_mask(link, bytes, n);
    snib__engine_input(d->engine, link, bytes, n, snib__now());
    if (!sock->works && snib__link_proven(link))
        snib__sock_works(sock);
}

/* Feed the result of recv() to the engine: bytes, or the end of the link.  Inside. */
void snib__driver_receive(struct snib__driver *d, struct snib__link *link, struct snib__sock *sock,
                          char *bytes, ssize_t n, int error)
{
    if (sock != snib__link_transport(link))
        return;
    if (n > 0)
        driver_input(d, link, sock, bytes, (size_t)n);
    else if (n == 0 || (error != EAGAIN && error != EINTR))
        snib__driver_link_down(d, link, SNIB_EUNREACHABLE, n < 0 ? error : ECONNRESET);
}

/* ---- the reader role ---- */

/* Pass the reader role on: to the oldest other caller with a pending reply, the thread, or none. */
void snib__driver_pass_role(struct snib__driver *d, struct snib__link *link,
                            struct snib__wakes *wakes)
{
    struct snib__sock *sock = snib__driver_command(link);
    if (!sock)
        return;
    sock->reader = SNIB__READER_NOBODY;
    sock->nominee = NULL;
    if (snib__link_in_flight(link) == 0)
        return;
    for (struct snib__waiter *waiter = snib__driver_alone(d) ? NULL : d->waiters; waiter;
         waiter = waiter->next) {
        if (!snib__op_in_flight(waiter->op) || snib__op_link(waiter->op) != link)
            continue;
        uint32_t was = SNIB__WORD_PENDING;
        if (!atomic_compare_exchange_strong(&waiter->op->word, &was, SNIB__WORD_LEAD)) {
            if (was != SNIB__WORD_ASLEEP)
                continue;
            atomic_store(&waiter->op->word, SNIB__WORD_LEAD);
            snib__wake_word(d, wakes, &waiter->op->word);
        }
        sock->reader = SNIB__READER_TRANSIT;
        sock->nominee = waiter->op;
        sock->nominated_at = snib__now();
        if (d->sleep_until > sock->nominated_at + SNIB__TRANSIT)
            driver_wake(d, wakes); /* to see whether it comes */
        return;
    }
    if (!snib__lead_begin(d, sock) || !d->looks) /* the thread, or the consumer under its eyes */
        driver_wake(d, wakes);
}

static bool driver_nominated(const struct snib__op *op)
{
    const struct snib__sock *sock = snib__driver_command(snib__op_link(op));
    return sock && sock->reader == SNIB__READER_TRANSIT && sock->nominee == op;
}

/* Whether this caller should read: its reply is pending, there is no other reader, and callers may. */
static bool driver_may_lead(const struct snib__driver *d, const struct snib__op *op)
{
    if (atomic_load(&op->word) == SNIB__WORD_DONE || !snib__op_in_flight(op))
        return false;
    const struct snib__sock *sock = snib__driver_command(snib__op_link(op));
    return sock && !snib__driver_alone(d) &&
           (sock->reader == SNIB__READER_NOBODY || snib__lead_yields(sock) || driver_nominated(op));
}

int snib__driver_poll(struct pollfd *polls, uint32_t n, snib__time left)
{
    int ready = snib__sys_poll(polls, n, left);
    if (ready >= 0 || errno == EINTR)
        return ready;
    snib__sys_poll(NULL, 0, left < DRIVER_BLIND ? left : DRIVER_BLIND);
    for (uint32_t i = 0; i < n; i++)
        polls[i].revents = polls[i].events & (POLLIN | POLLOUT);
    return (int)n;
}

/* Block for bytes, for at most a nap.  A plain recv() with the socket's own timeout saves a poll()
 * before it, 4 % of a round trip; a thread polls only if it must return sooner or has bytes left to
 * send.  Returns as recv() does, with errno in *out_error: EAGAIN after the nap. */
static ssize_t driver_wait_bytes(struct snib__sock *sock, bool unsent, snib__time until,
                                 char *bytes, size_t cap, int *out_error)
{
    snib__time nap = SNIB__SOCK_NAP_MS * SNIB__MS, left = nap;
    if (until != SNIB__NEVER) {
        snib__time now = snib__now();
        snib__time rest = until > now ? until - now : 0;
        left = rest < nap ? rest : nap;
    }
    bool polls = (unsent || left < nap) && !snib__sock_pending(sock);
    if (polls) {
        struct pollfd ready = {.fd = sock->fd, .events = unsent ? POLLIN | POLLOUT : POLLIN};
        if (snib__driver_poll(&ready, 1, left) < 0) {
            *out_error = errno;
            return -1;
        }
    }
    ssize_t n = snib__sock_recv(sock, bytes, cap, !polls);
    *out_error = errno;
    return n;
}

/* Whether the operation's reply is pending on this link and this socket. */
static bool driver_awaits(const struct snib__op *op, const struct snib__link *link,
                          const struct snib__sock *sock)
{
    return atomic_load(&op->word) != SNIB__WORD_DONE && sock == snib__link_transport(link) &&
           snib__op_in_flight(op) && snib__op_link(op) == link;
}

/* Whether nobody else waits for replies on the link that is being read, or for a wake-up. */
static bool driver_undisturbed(const struct snib__link *link, const struct snib__wakes *wakes)
{
    return snib__link_in_flight(link) == 0 && !snib__wakes_any(wakes);
}

/* Read until the operation's reply has arrived.  Leaving sends what that has caused.  Inside; false: `until` has passed or a signal
 * handler ran.  The role may end meanwhile, with its socket. */
static bool driver_lead(struct snib__driver *d, struct snib__op *op, snib__time until,
                        bool interruptible)
{
    char bytes[DRIVER_READ_BYTES];
    bool again = true;
    struct snib__wakes wakes;
    struct snib__link *link = snib__op_link(op);
    struct snib__sock *sock = snib__driver_command(link);
    snib__lead_end(sock);
    sock->reader = SNIB__READER_CALLER;
    sock->nominee = NULL;
    sock->users++;
    snib__wakes_begin(&wakes);
    snib__driver_flush(d, sock);
    while (again && driver_awaits(op, link, sock)) {
        bool unsent = snib__sock_unsent(sock) && !sock->writing;
        int error;
        snib__sys_unlock(&d->mutex);
        ssize_t n = driver_wait_bytes(sock, unsent, until, bytes, sizeof bytes, &error);
        snib__sys_lock(&d->mutex);
        d->reads += n > 0;
        snib__driver_receive(d, link, sock, bytes, n, error);
        if (n < 0 && error == EINTR && interruptible)
            again = false;
        if (n < 0 && until != SNIB__NEVER && snib__now() >= until)
            again = false;
        snib__driver_settle(d, &wakes);
        bool last = !driver_awaits(op, link, sock) || !again;
        if (last && driver_undisturbed(link, &wakes))
            break;                   /* leaving does the rest */
        snib__driver_flush(d, sock); /* before any thread is woken */
        driver_need_thread(d, &wakes);
        if (last)
            break; /* release the mutex once: the successor is woken with the others */
        driver_relock(d, &wakes);
        snib__wakes_begin(&wakes);
    }
    if (sock == snib__link_transport(link))
        snib__driver_pass_role(d, link, &wakes);
    snib__driver_unuse(d, sock);
    driver_relock(d, &wakes);
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

/* Sleep until the operation is done or this thread should read.  Inside; leaves and enters.
 * Returns enum snib__park.  What a waiting operation waits for may be among the replies that are left
 * to a consumer, and this thread may be the one that drains that queue: so the consumer leads no more. */
static int driver_sleep(struct snib__driver *d, struct snib__op *op, snib__time until)
{
    struct snib__waiter waiter = {.op = op};
    struct snib__wakes wakes;
    int how = SNIB__PARKED_NO;
    snib__wakes_begin(&wakes);
    driver_list(d, &waiter);
    if (!snib__op_in_flight(op) && d->leader)
        snib__lead_leave(d, d->leader);
    snib__driver_settle(d, &wakes);
    snib__driver_flush(d, NULL);
    driver_need_thread(d, &wakes);
    driver_unlock(d, &wakes);
    uint32_t was = SNIB__WORD_PENDING;
    if (atomic_compare_exchange_strong(&op->word, &was, SNIB__WORD_ASLEEP))
        while (how == SNIB__PARKED_NO && atomic_load(&op->word) == SNIB__WORD_ASLEEP)
            how = snib__park(&op->word, SNIB__WORD_ASLEEP, until);
    snib__sys_lock(&d->mutex);
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
    driver_relock(d, &wakes);
    for (;;) {
        bool on = true;
        if (driver_may_lead(d, op)) {
            on = driver_lead(d, op, until, interruptible);
        } else if (driver_nominated(op)) { /* it has no reply to read: pass the role on */
            snib__wakes_begin(&wakes);
            snib__driver_pass_role(d, snib__op_link(op), &wakes);
            driver_relock(d, &wakes);
        }
        if (atomic_load(&op->word) == SNIB__WORD_DONE)
            return true;
        if (!on || (until != SNIB__NEVER && snib__now() >= until) ||
            (until_waiting && !snib__op_in_flight(op)))
            return false;
        if (driver_may_lead(d, op))
            continue;
        int how = driver_sleep(d, op, until);
        if (how == SNIB__PARKED_SIGNAL && interruptible &&
            atomic_load(&op->word) != SNIB__WORD_DONE && !driver_nominated(op))
            return false;
    }
}
