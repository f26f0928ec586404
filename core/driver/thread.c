/* thread.c - the background thread of a client: connects, watches the pub/sub links and the timers,
 * reads a command link while asynchronous work is in flight and no caller reads.  It runs no user
 * code, and never waits longer than half a second for a thread that does: leases are renewed whatever the program
 * does, unless it stops a thread inside the mutex of this client, or of one that is in a group with it.  The hold of a
 * group, whose members are renewed, counts as long as somebody steps it: see api/group.c. */
#include "driver/ahead.h"
#include "driver/lead.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>

#define THREAD_STACK (256 * 1024)
#define THREAD_READ_BYTES 32768
#define THREAD_BUFFERS 2
#define THREAD_LINKS 5 /* that need no allocation: those of one server */
#define THREAD_POLLS 3
#define THREAD_RELOGIN_MAX (30000 * SNIB__MS) /* between two attempts */

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
        snib__sys_ring(d->wake->fd);
        snib__sys_join(d->thread);
    }
    snib__tls_trust_forget(d->tls.trust);
    snib__sys_lock(&d->mutex);
    struct snib__bell *wake = d->wake; /* rung only while the thread is thought to run */
    int alarm = d->alarm_fd;
    d->thread_started = false;
    d->wake = NULL;
    d->alarm_fd = -1;
    for (struct snib__link *link = snib__engine_links(d->engine); link;
         link = snib__link_next(link))
        snib__driver_drop_sock(link);
    snib__sys_unlock(&d->mutex);
    if (wake) { /* else it was stopped before */
        snib__bell_put(wake);
        snib__sys_close(alarm);
    }
}

/* The way to the link's server, replaced if the node has a new address.  NULL: out of memory. */
static struct snib__way *thread_way(struct snib__driver *d, struct snib__link *link)
{
    void **at = snib__link_way(link);
    struct snib__way *way = *at;
    if (way && !snib__address_equal(&way->address, snib__link_address(link))) {
        for (struct snib__link *other = snib__engine_links(d->engine); other;
             other = snib__link_next(other))
            if (snib__link_way(other) == at)
                snib__driver_drop_sock(other); /* a connecting socket uses the way */
        snib__way_free(way);
        way = NULL;
    }
    if (!way && (way = calloc(1, sizeof *way))) {
        way->address = *snib__link_address(link);
        way->timeout = d->connect_timeout;
        way->tls = &d->tls;
        way->logins = snib__link_asks(d->engine, link) ? &d->logins : NULL;
    }
    *at = way;
    return way;
}

void snib__driver_free_ways(struct snib__driver *d)
{
    for (struct snib__link *link = snib__engine_links(d->engine); link;
         link = snib__link_next(link)) {
        snib__way_free(*snib__link_way(link));
        *snib__link_way(link) = NULL; /* of the node's other link, too */
    }
}

static void thread_wishes(struct snib__driver *d, struct snib__link *link)
{
    for (int wish; (wish = snib__engine_take_wish(d->engine, link)) != SNIB__WISH_NOTHING;) {
        struct snib__sock *old = snib__driver_command(link);
        if (old)
            snib__driver_left(d, old);
        snib__driver_drop_sock(link);
        if (wish == SNIB__WISH_CLOSE)
            continue;
        int32_t code = SNIB_ENOMEM;
        int os_error = 0;
        struct snib__way *way = thread_way(d, link);
        struct snib__sock *sock = way ? snib__sock_new(way, snib__now(), &code, &os_error) : NULL;
        snib__link_set_transport(link, sock);
        if (!sock) {
            snib__driver_link_down(d, link, code, os_error);
            continue;
        }
        if (sock->open)
            snib__driver_link_up(d, link, sock);
    }
}

/* Advance a socket that is connecting. */
static void thread_connecting(struct snib__driver *d, struct snib__link *link, snib__time now)
{
    struct snib__sock *sock = snib__link_transport(link);
    int32_t code;
    int os_error;
    if (!sock || sock->open)
        return;
    int step = snib__sock_step(sock, now, &code, &os_error);
    if (step > 0)
        snib__driver_link_up(d, link, sock);
    else if (step < 0)
        snib__driver_link_down(d, link, code, os_error);
}

/* Links without callers have one writer, this thread, and little to write. */
static void thread_send(struct snib__link *link)
{
    struct snib__sock *sock = snib__link_transport(link);
    struct snib__buf *out = snib__link_output(link);
    if (snib__link_kind(link) == SNIB__COMMAND || !sock || !sock->open ||
        (snib__buf_size(out) == 0 && !snib__sock_unsent(sock)))
        return;
    ssize_t n = snib__sock_send(sock, out->data + out->head, snib__buf_size(out));
    if (n > 0)
        snib__buf_consume(out, (size_t)n);
}

/* Whether only callers have replies pending. */
static bool thread_only_callers(const struct snib__driver *d, const struct snib__link *link)
{
    uint32_t callers = 0;
    for (const struct snib__waiter *waiter = d->waiters; waiter; waiter = waiter->next)
        callers += snib__op_in_flight(waiter->op) && snib__op_link(waiter->op) == link;
    return snib__link_in_flight(link) <= callers;
}

/* Take the reader role if it is free and needed; pass it to the callers if only they have pending
 * replies.  If a nominee does not take it, it is the next caller's, but this thread's if others have
 * replies pending, too: the callers may all be stopped.  True if this thread reads. */
static bool thread_reads(struct snib__driver *d, struct snib__link *link, struct snib__wakes *wakes)
{
    uint32_t in_flight = snib__link_in_flight(link);
    struct snib__sock *sock = snib__driver_command(link);
    if (!sock)
        return snib__link_kind(link) != SNIB__COMMAND;
    if (snib__lead_stalls(sock, snib__now()))
        snib__lead_leave(d, d->leader);
    else if (snib__lead_yields(sock) && snib__sock_unsent(sock))
        snib__lead_end(sock); /* the thread waits until it takes more */
    if (sock->reader == SNIB__READER_THREAD && !sock->ended) {
        if (!snib__driver_alone(d) && thread_only_callers(d, link))
            snib__driver_pass_role(d, link, wakes);
        else if (d->leader && !snib__sock_unsent(sock))
            sock->reader = SNIB__READER_NOBODY; /* for the consumer, below */
    } else if (sock->reader == SNIB__READER_TRANSIT &&
               snib__now() >= sock->nominated_at + SNIB__TRANSIT) {
        sock->reader = SNIB__READER_NOBODY;
        sock->nominee = NULL;
        if (thread_only_callers(d, link))
            snib__driver_pass_role(d, link, wakes);
    }
    if (sock->reader == SNIB__READER_NOBODY && (in_flight > 0 || sock->ended) &&
        !snib__lead_begin(d, sock))
        sock->reader = SNIB__READER_THREAD;
    return sock->reader == SNIB__READER_THREAD;
}

/* One link during a sleep. */
struct thread_entry {
    struct snib__link *link;
    struct snib__sock *sock;
    uint32_t poll; /* index of its descriptor, if it is connected and watched; 0: it is not */
    bool open;     /* connected before the sleep */
    bool idle;     /* a command link without a reader: watched only for its end */
    bool ready;    /* recv() was called after the sleep */
    ssize_t got;   /* its result */
    int error;
};

/* What one sleep watches, and its results: the bell, the alarm, the bell of a request for
 * credentials if there is one, then the links' descriptors. */
struct thread_watch {
    struct pollfd *polls; /* room for THREAD_POLLS, and for SNIB__SOCK_TRIES of each link */
    struct thread_entry *entries;
    uint32_t polls_n, n, cap;
    char *bytes; /* THREAD_BUFFERS of THREAD_READ_BYTES */
};

/* ---- credentials that expire ---- */

static snib__time thread_renewals_due(const struct snib__driver *d)
{
    return d->logins.renewing || d->logins.renew_at == 0 ? SNIB__NEVER : d->logins.renew_at;
}

/* Retry after a pause; the remaining fifth of the lifetime has room for several attempts. */
static void thread_renewals_again(struct snib__driver *d, snib__time now)
{
    snib__time pause = (snib__time)d->logins.valid_ms * SNIB__MS / 20;
    if (pause > THREAD_RELOGIN_MAX)
        pause = THREAD_RELOGIN_MAX;
    d->logins.renew_at = now + (pause > 50 * SNIB__MS ? pause : 50 * SNIB__MS);
}

static void thread_renewed(struct snib__driver *d, snib__time now)
{
    const char *username, *password, *why;
    int os_error;
    struct snib__question *question = d->logins.renewing;
    if (snib__login_result(question, &username, &password, &why, &os_error)) {
        if (snib__engine_relogin(d->engine, username, password, now) > 0)
            snib__login_used(&d->logins, question);
    } else {
        snib__engine_no_relogin(d->engine, why);
        thread_renewals_again(d, now);
    }
    snib__login_drop(&d->logins, &d->logins.renewing);
}

static void thread_renewals(struct snib__driver *d, snib__time now)
{
    if (snib__engine_take_refusal(d->engine))
        thread_renewals_again(d, now);
    if (thread_renewals_due(d) <= now) {
        d->logins.renewing = snib__login_ask(&d->logins);
        d->logins.renew_at = 0; /* a connection that begins meanwhile has a time of its own */
        if (!d->logins.renewing)
            thread_renewals_again(d, now); /* out of memory or threads */
    }
    if (d->logins.renewing && snib__login_done(d->logins.renewing))
        thread_renewed(d, now);
}

/* Make room for all links.  When out of memory, the first ones are watched, and the others served
 * at each nap. */
static void thread_grow(struct thread_watch *watch, uint32_t links)
{
    if (links <= watch->cap)
        return;
    struct pollfd *polls = malloc((THREAD_POLLS + links * SNIB__SOCK_TRIES) * sizeof *polls);
    struct thread_entry *entries = malloc(links * sizeof *entries);
    if (!polls || !entries) {
        free(polls);
        free(entries);
        return;
    }
    if (watch->cap > THREAD_LINKS) { /* else they are on the stack */
        free(watch->polls);
        free(watch->entries);
    }
    watch->polls = polls;
    watch->entries = entries;
    watch->cap = links;
}

static void thread_watch_link(struct snib__driver *d, struct thread_watch *watch,
                              struct snib__link *link, snib__time *until, struct snib__wakes *wakes)
{
    struct snib__sock *sock = snib__link_transport(link);
    bool reads = thread_reads(d, link, wakes);
    snib__time at;
    *until = snib__earlier(*until, snib__lead_look(d, link, snib__now()));
    if (snib__driver_command(link) && d->waiters &&
        (sock->reader == SNIB__READER_CALLER || sock->reader == SNIB__READER_TRANSIT))
        *until = snib__earlier(*until, snib__now() + SNIB__TRANSIT);
    if (!sock || watch->n == watch->cap)
        return;
    struct thread_entry *entry = &watch->entries[watch->n++];
    *entry = (struct thread_entry){.link = link, .sock = sock, .open = sock->open};
    sock->users++;
    if (!sock->open) {
        watch->polls_n += snib__sock_polls(sock, watch->polls + watch->polls_n, &at);
        *until = snib__earlier(*until, at);
    } else if (reads) {
        bool command = snib__link_kind(link) == SNIB__COMMAND;
        bool unsent = !sock->writing && snib__sock_unsent(sock);
        if (!command && snib__buf_size(snib__link_output(link)) > 0)
            unsent = true;
        if (snib__sock_pending(sock))
            *until = 0;
        entry->poll = watch->polls_n++;
        watch->polls[entry->poll] =
            (struct pollfd){.fd = sock->fd, .events = unsent ? POLLIN | POLLOUT : POLLIN};
        sock->watched = unsent && command;
    } else if (sock->reader == SNIB__READER_NOBODY && !sock->ended) {
        entry->idle = true;
        entry->poll = watch->polls_n++;
        watch->polls[entry->poll] = (struct pollfd){.fd = sock->fd, .events = POLLRDHUP};
    }
}

/* Choose what to watch; returns the latest end of the sleep. */
static snib__time thread_watch(struct snib__driver *d, struct thread_watch *watch,
                               struct snib__wakes *wakes)
{
    snib__time until = snib__engine_deadline(d->engine);
    uint32_t links = 0;
    for (struct snib__link *link = snib__engine_links(d->engine); link;
         link = snib__link_next(link))
        links++;
    thread_grow(watch, links);
    watch->polls[0] = (struct pollfd){.fd = d->wake->fd, .events = POLLIN};
    watch->polls[1] = (struct pollfd){.fd = d->alarm_fd, .events = POLLIN};
    watch->polls_n = 2;
    if (d->logins.renewing)
        watch->polls[watch->polls_n++] =
            (struct pollfd){.fd = snib__login_bell(d->logins.renewing), .events = POLLIN};
    watch->n = 0;
    d->looks = false;
    until = snib__earlier(until, thread_renewals_due(d));
    for (struct snib__link *link = snib__engine_links(d->engine); link;
         link = snib__link_next(link))
        thread_watch_link(d, watch, link, &until, wakes);
    return until;
}

/* Set the alarm to end the next sleep in time; returns the limit for poll() itself.  An alarm that
 * is too early does no harm, so it is set seldom.  It counts from now, on a clock that a suspend
 * does not stop; the nap makes up for time that passes between the two calls, and for anything that
 * a clock or a wake-up misses. */
static snib__time thread_set_alarm(struct snib__driver *d, snib__time *until)
{
    snib__time now = snib__now(), ahead = atomic_load(&snib__ahead);
    if (d->ahead != ahead) { /* the alarm was set on a clock that has moved since */
        d->ahead = ahead;
        d->alarm_at = SNIB__NEVER;
    }
    if (*until != SNIB__NEVER || d->waiters || d->hold_watchers)
        *until = snib__earlier(*until, now + d->nap);
    if (d->look)
        *until = snib__earlier(*until, now + d->look_every);
    if (*until <= now)
        return 0;
    if (*until < d->alarm_at) {
        d->alarm_at = *until;
        snib__sys_alarm_set(d->alarm_fd, *until - now);
    }
    return SNIB__NEVER;
}

/* While it is awake, it may have sent for all links of this pass, and does not know how long it may sleep: so the alarm
 * is set then, too.  One that has rung already begins a pass which is still to come. */
void snib__thread_passes_in(struct snib__driver *d, snib__time span)
{
    snib__time then = snib__now() + span;
    if (!d->thread_started || (d->sleep_until > 0 && d->sleep_until <= then))
        return;
    if (d->sleep_until > 0)
        d->sleep_until = then;
    if (then >= d->alarm_at)
        return;
    d->alarm_at = then;
    snib__sys_alarm_set(d->alarm_fd, span);
}

/* Outside the mutex, so that callers can keep submitting. */
static void thread_sleep(struct thread_watch *watch, snib__time left)
{
    if (snib__driver_poll(watch->polls, watch->polls_n, left) <= 0)
        for (uint32_t i = 0; i < watch->polls_n; i++)
            watch->polls[i].revents = 0;
    for (int i = 0; i < 2; i++)
        if (watch->polls[i].revents)
            snib__sys_hush(watch->polls[i].fd);
}

static bool thread_has_bytes(const struct thread_watch *watch, const struct thread_entry *entry)
{
    return entry->poll && !entry->idle &&
           ((watch->polls[entry->poll].revents & ~POLLOUT) || snib__sock_pending(entry->sock));
}

/* Receive for the next links, outside the mutex, as many as there are buffers for; returns where to
 * continue. */
static uint32_t thread_receive(struct thread_watch *watch, uint32_t from)
{
    int buffers = 0;
    for (; from < watch->n && buffers < THREAD_BUFFERS; from++) {
        struct thread_entry *entry = &watch->entries[from];
        entry->ready = thread_has_bytes(watch, entry);
        if (!entry->ready)
            continue;
        entry->got = snib__sock_recv(entry->sock, watch->bytes + buffers++ * THREAD_READ_BYTES,
                                     THREAD_READ_BYTES, false);
        entry->error = errno;
    }
    return from;
}

/* Pass on what was received on these links.  Inside. */
static void thread_feed(struct snib__driver *d, struct thread_watch *watch, uint32_t from,
                        uint32_t to)
{
    int buffers = 0;
    for (; from < to; from++) {
        struct thread_entry *entry = &watch->entries[from];
        if (entry->idle && watch->polls[entry->poll].revents)
            entry->sock->ended = true; /* the present reader, or this thread, will read it */
        if (entry->ready) {
            d->reads += snib__link_kind(entry->link) == SNIB__COMMAND;
            snib__driver_receive(d, entry->link, entry->sock,
                                 watch->bytes + buffers++ * THREAD_READ_BYTES, entry->got,
                                 entry->error);
        } else if (!entry->open && entry->sock == snib__link_transport(entry->link)) {
            thread_connecting(d, entry->link, snib__now());
        }
        entry->sock->watched = false;
        snib__sock_unuse(entry->sock);
    }
}

/* One pass: timers, the engine's wishes, sending; then sleep; then what has arrived. */
static void thread_pass(struct snib__driver *d, struct thread_watch *watch)
{
    struct snib__wakes wakes;
    snib__wakes_begin(&wakes);
    snib__engine_tick(d->engine, snib__now());
    thread_renewals(d, snib__now());
    if (d->look)
        d->look(d);
    for (struct snib__link *link = snib__engine_links(d->engine); link;
         link = snib__link_next(link))
        thread_wishes(d, link);
    snib__driver_settle(d, &wakes);
    for (struct snib__link *link = snib__engine_links(d->engine); link;
         link = snib__link_next(link)) {
        thread_send(link);
        snib__driver_flush_link(d, link,
                                thread_reads(d, link, &wakes) ? snib__link_transport(link) : NULL);
    }
    snib__time until = thread_watch(d, watch, &wakes);
    snib__time left = thread_set_alarm(d, &until);
    d->sleep_until = until;
    d->wake_raised = false;
    snib__wake_not(&wakes); /* this thread is awake */
    snib__sys_unlock(&d->mutex);
    snib__driver_ring(&wakes);
    snib__driver_do_wakes(d, &wakes);
    thread_sleep(watch, left);
    uint32_t from = 0, to = thread_receive(watch, 0);
    snib__sys_lock(&d->mutex);
    d->sleep_until = 0;
    d->wake_raised = false;
    if (watch->polls[1].revents)
        d->alarm_at = SNIB__NEVER;
    thread_feed(d, watch, from, to);
    while (to < watch->n) { /* more than there were buffers for */
        from = to;
        snib__sys_unlock(&d->mutex);
        to = thread_receive(watch, from);
        snib__sys_lock(&d->mutex);
        thread_feed(d, watch, from, to);
    }
}

void *snib__thread_main(void *argument)
{
    struct snib__driver *d = argument;
    char bytes[THREAD_BUFFERS * THREAD_READ_BYTES];
    struct pollfd polls[THREAD_POLLS + THREAD_LINKS * SNIB__SOCK_TRIES];
    struct thread_entry entries[THREAD_LINKS];
    struct thread_watch watch = {
        .polls = polls, .entries = entries, .cap = THREAD_LINKS, .bytes = bytes};
    prctl(PR_SET_NAME, "snib");
    snib__sys_lock(&d->mutex);
    while (!d->stop)
        thread_pass(d, &watch);
    for (struct snib__link *link = snib__engine_links(d->engine); link;
         link = snib__link_next(link)) {
        struct snib__sock *sock = snib__driver_command(link);
        if (sock && sock->reader == SNIB__READER_THREAD)
            sock->reader = SNIB__READER_NOBODY;
    }
    snib__sys_unlock(&d->mutex);
    if (watch.cap > THREAD_LINKS) {
        free(watch.polls);
        free(watch.entries);
    }
    if (d->tls.trust)
        snib__tls_thread_ends();
    return NULL;
}
