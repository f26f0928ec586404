#include "driver/lead.h"

#include <errno.h>

#define LEAD_STALL (20 * SNIB__MS)
#define LEAD_READ_BYTES 16384
#define LEAD_LINKS 16

void snib__lead_offer(struct snib__driver *d, struct snib__leader *leader)
{
    if (!d->leader && leader->waits)
        d->leader = leader;
}

void snib__lead_leave(struct snib__driver *d, const struct snib__leader *leader)
{
    if (d->leader != leader)
        return;
    for (struct snib__link *link = snib__engine_links(d->engine); link;
         link = snib__link_next(link)) {
        struct snib__sock *sock = snib__driver_command(link);
        if (sock && snib__lead_yields(sock))
            snib__lead_end(sock);
    }
    d->leader = NULL;
}

bool snib__lead_begin(struct snib__driver *d, struct snib__sock *sock)
{
    if (!d->leader || sock->ended || snib__sock_unsent(sock) || snib__driver_alone(d) ||
        snib__sys_set_add(d->leader->set, sock->fd) != 0)
        return false;
    sock->reader = SNIB__READER_QUEUE;
    sock->set = d->leader->set;
    sock->unread_since = 0;
    return true;
}

void snib__lead_take(struct snib__driver *d)
{
    if (!d->leader)
        return;
    for (struct snib__link *link = snib__engine_links(d->engine); link;
         link = snib__link_next(link)) {
        struct snib__sock *sock = snib__driver_command(link);
        if (sock && sock->reader == SNIB__READER_NOBODY && snib__link_in_flight(link) > 0)
            snib__lead_begin(d, sock);
    }
}

bool snib__lead_yields(const struct snib__sock *sock)
{
    return sock->reader == SNIB__READER_QUEUE && !sock->receiving;
}

void snib__lead_end(struct snib__sock *sock)
{
    if (sock->reader != SNIB__READER_QUEUE)
        return;
    snib__sys_set_remove(sock->set, sock->fd);
    sock->reader = SNIB__READER_NOBODY;
}

/* ---- the consumer ---- */

/* Until nothing is left: a loop may be told only of what comes after that. */
static void lead_receive(struct snib__driver *d, const struct snib__leader *leader,
                         struct snib__link *link, struct snib__sock *sock)
{
    char bytes[LEAD_READ_BYTES];
    bool more = true;
    sock->users++;
    sock->receiving = true;
    while (more) {
        snib__sys_unlock(&d->mutex);
        ssize_t n = snib__sock_recv(sock, bytes, sizeof bytes, false);
        int error = errno;
        snib__sys_lock(&d->mutex);
        d->reads += n > 0;
        snib__driver_receive(d, link, sock, bytes, n, error);
        more = n == sizeof bytes || (n > 0 && sock->tls) || (n < 0 && error == EINTR);
        more = more && sock == snib__link_transport(link);
    }
    sock->receiving = false;
    sock->unread_since = 0;
    if (d->leader != leader)
        snib__lead_end(sock); /* it has stopped leading meanwhile */
    snib__driver_unuse(d, sock);
}

/* From this link on, at most LEAD_LINKS that the consumer reads and that have something to read;
 * *at: where to continue. */
static uint32_t lead_ready(const struct snib__leader *leader, struct snib__link **at,
                           struct snib__link *links[LEAD_LINKS])
{
    struct pollfd polls[LEAD_LINKS];
    uint32_t n = 0, ready = 0;
    for (; *at && n < LEAD_LINKS; *at = snib__link_next(*at)) {
        struct snib__sock *sock = snib__driver_command(*at);
        if (!sock || sock->set != leader->set || !snib__lead_yields(sock))
            continue;
        sock->unread_since = 0;
        polls[n] = (struct pollfd){.fd = sock->fd, .events = POLLIN};
        links[n++] = *at;
    }
    /* For one, recv() itself tells. */
    if (n < 2 || snib__sys_poll(polls, n, 0) < 0)
        return n;
    for (uint32_t i = 0; i < n; i++)
        if (polls[i].revents || snib__sock_pending(snib__link_transport(links[i])))
            links[ready++] = links[i];
    return ready;
}

void snib__lead_read(struct snib__driver *d, const struct snib__leader *leader)
{
    struct snib__link *links[LEAD_LINKS], *at = snib__engine_links(d->engine);
    while (at) {
        uint32_t n = lead_ready(leader, &at, links);
        for (uint32_t i = 0; i < n; i++) {
            struct snib__sock *sock = snib__driver_command(links[i]);
            if (sock && snib__lead_yields(sock))
                lead_receive(d, leader, links[i], sock);
        }
    }
}

/* ---- the thread ---- */

bool snib__lead_stalls(const struct snib__sock *sock, snib__time now)
{
    return snib__lead_yields(sock) && sock->unread_since && now >= sock->unread_since + LEAD_STALL;
}

snib__time snib__lead_look(struct snib__driver *d, struct snib__link *link, snib__time now)
{
    struct snib__sock *sock = snib__driver_command(link);
    if (!sock || !snib__lead_yields(sock) || snib__link_in_flight(link) == 0)
        return SNIB__NEVER;
    d->looks = true;
    if (!sock->unread_since)
        sock->unread_since = now;
    return sock->unread_since + LEAD_STALL;
}
