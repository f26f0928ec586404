/* proxy.c - a TCP front end to a server's unix socket that delays, stalls, drops, cuts and records.
 *
 * One thread moves all bytes.  A link is one connection of a client together with the connection to
 * the server that the proxy opened for it.  Bytes read from one side become chunks with a due time
 * and are written to the other side in order.  Every stream is also fed to a RESP reader: requests
 * become records, replies are searched for wake-up messages.  All state is guarded by `mu`.
 */
#define _GNU_SOURCE
#include "support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LINKS_MAX = 256 };

struct chunk {
    struct chunk *next;
    int64_t due_ns;
    size_t n, sent;
    char bytes[];
};

struct link {
    int id;
    int fd[2];    /* [TO_SERVER] is the server's side, [TO_CLIENT] the client's; -1: closed */
    bool eof[2];  /* nothing more will come for this direction */
    bool shut[2]; /* and that has been passed on */
    bool doomed;  /* ends once its chunks are written */
    enum cut_mode doom;
    bool held_back; /* the client's side is gone, the server's side waits for proxy_let_go() */
    bool subscriber, filter;
    bool whole;               /* passes on whole commands and replies only */
    bool stuck[2];            /* see proxy_stall_link() */
    uint64_t asked, answered; /* commands and replies so far */
    uint64_t spoils;          /* the command whose answer is to be replaced; 0: none */
    bool executed;            /* ... and whether the server gets it */
    struct chunk *first[2], **last[2];
    int64_t due_ns[2]; /* of the last chunk */
    redisReader *reader[2];
};

struct proxy {
    pthread_mutex_t mu;
    pthread_t thread;
    int listener, wake;
    bool stop, refuse, drop_messages, stall_messages;
    enum bar bar;
    bool tells_time;
    long long ahead_s;
    char socket[108], url[64];
    struct link *links[LINKS_MAX];
    int link_count, link_last_id;
    int64_t delay_ms[2];
    size_t slice; /* 0: as the bytes come */
    int64_t slice_us;
    bool stalled[2];
    bool cut_armed, hold_armed;
    enum direction cut_direction;
    enum cut_mode cut_mode;
    int64_t cut_left;
    int cuts;
    bool read_along;
    int spoil_in, spoilt; /* 0: not armed */
    bool spoil_executed;
    char spoil_word[64], spoil_error[128];
    struct record **records;
    size_t record_count, record_cap;
};

/* ---- Records --------------------------------------------------------------------------------- */

static void proxy_keep(struct proxy *proxy, struct link *link, const redisReply *request)
{
    if (request->type != REDIS_REPLY_ARRAY || request->elements == 0)
        return;
    struct record *record = calloc(1, sizeof *record);
    record->at_ns = now_ns();
    record->link = link->id;
    record->argc = (int)request->elements;
    record->argv = calloc(request->elements, sizeof *record->argv);
    for (size_t i = 0; i < request->elements; i++)
        record->argv[i] = strdup(request->element[i]->str ? request->element[i]->str : "");
    if (strcasecmp(record->argv[0], "SUBSCRIBE") == 0)
        link->subscriber = true;
    if (proxy->record_count == proxy->record_cap) {
        proxy->record_cap = proxy->record_cap ? proxy->record_cap * 2 : 1024;
        proxy->records = realloc(proxy->records, proxy->record_cap * sizeof *proxy->records);
    }
    proxy->records[proxy->record_count++] = record;
}

void proxy_forget(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mu);
    for (size_t i = 0; i < proxy->record_count; i++) {
        for (int a = 0; a < proxy->records[i]->argc; a++)
            free(proxy->records[i]->argv[a]);
        free(proxy->records[i]->argv);
        free(proxy->records[i]);
    }
    proxy->record_count = 0;
    pthread_mutex_unlock(&proxy->mu);
}

size_t proxy_record_count(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mu);
    size_t count = proxy->record_count;
    pthread_mutex_unlock(&proxy->mu);
    return count;
}

const struct record *proxy_record(struct proxy *proxy, size_t index)
{
    pthread_mutex_lock(&proxy->mu);
    const struct record *record = proxy->records[index];
    pthread_mutex_unlock(&proxy->mu);
    return record;
}

bool record_is(const struct record *record, const char *sha1)
{
    return record->argc > 1 && strcasecmp(record->argv[0], "EVALSHA") == 0 &&
           strcmp(record->argv[1], sha1) == 0;
}

bool record_names(const struct record *record, const char *argument)
{
    for (int i = 1; i < record->argc; i++)
        if (strcmp(record->argv[i], argument) == 0)
            return true;
    return false;
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static void link_append_chunk(struct link *link, enum direction to, const char *bytes, size_t n,
                              int64_t due_ns)
{
    struct chunk *chunk = malloc(sizeof *chunk + n);
    *chunk = (struct chunk){.due_ns = due_ns, .n = n};
    memcpy(chunk->bytes, bytes, n);
    *link->last[to] = chunk;
    link->last[to] = &chunk->next;
    link->due_ns[to] = due_ns;
}

static void link_append(struct proxy *proxy, struct link *link, enum direction to,
                        const char *bytes, size_t n)
{
    for (size_t at = 0, part; at < n; at += part) {
        int64_t due_ns = now_ns() + proxy->delay_ms[to] * 1000000,
                after_ns = link->due_ns[to] + proxy->slice_us * 1000;
        part = proxy->slice > 0 && proxy->slice < n - at ? proxy->slice : n - at;
        link_append_chunk(link, to, bytes + at, part, after_ns > due_ns ? after_ns : due_ns);
    }
}

static void link_encode(struct proxy *proxy, struct link *link, enum direction to,
                        const redisReply *reply)
{
    static const char marks[] = {
        [REDIS_REPLY_STRING] = '$', [REDIS_REPLY_ARRAY] = '*',  [REDIS_REPLY_INTEGER] = ':',
        [REDIS_REPLY_NIL] = '$',    [REDIS_REPLY_STATUS] = '+', [REDIS_REPLY_ERROR] = '-'};
    char head[64];
    long long number = reply->type == REDIS_REPLY_STRING  ? (long long)reply->len
                       : reply->type == REDIS_REPLY_ARRAY ? (long long)reply->elements
                       : reply->type == REDIS_REPLY_NIL   ? -1
                                                          : reply->integer;
    bool is_line = reply->type == REDIS_REPLY_STATUS || reply->type == REDIS_REPLY_ERROR;
    int n = is_line ? snprintf(head, sizeof head, "%c", marks[reply->type])
                    : snprintf(head, sizeof head, "%c%lld\r\n", marks[reply->type], number);
    link_append(proxy, link, to, head, (size_t)n);
    if (reply->type == REDIS_REPLY_STRING || is_line) {
        link_append(proxy, link, to, reply->str, (size_t)reply->len);
        link_append(proxy, link, to, "\r\n", 2);
    }
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
        link_encode(proxy, link, to, reply->element[i]);
}

/* ---- Replaced replies ------------------------------------------------------------------------ */

static bool request_is(const redisReply *request, const char *word)
{
    for (size_t i = 0; i < request->elements && i < 2; i++)
        if (strcasecmp(request->element[i]->str, word) == 0)
            return true;
    return false;
}

static void link_say_error(struct proxy *proxy, struct link *link)
{
    link_append(proxy, link, TO_CLIENT, "-", 1);
    link_append(proxy, link, TO_CLIENT, proxy->spoil_error, strlen(proxy->spoil_error));
    link_append(proxy, link, TO_CLIENT, "\r\n", 2);
    link->spoils = 0;
    proxy->spoilt++;
}

/* Put the error for a command that the server never gets in its place among the other replies. */
static void link_answer_unasked(struct proxy *proxy, struct link *link)
{
    if (link->spoils == link->answered + 1 && !link->executed) {
        link->answered++;
        link_say_error(proxy, link);
    }
}

static void link_ask(struct proxy *proxy, struct link *link, const redisReply *request)
{
    link->asked++;
    if (proxy->spoil_in > 0 && request_is(request, proxy->spoil_word) && --proxy->spoil_in == 0) {
        link->spoils = link->asked;
        link->executed = proxy->spoil_executed;
    }
    if (link->spoils != link->asked || link->executed)
        link_encode(proxy, link, TO_SERVER, request);
    link_answer_unasked(proxy, link);
}

static void link_answer(struct proxy *proxy, struct link *link, const redisReply *reply)
{
    if (++link->answered == link->spoils)
        link_say_error(proxy, link);
    else
        link_encode(proxy, link, TO_CLIENT, reply);
    link_answer_unasked(proxy, link);
}

static bool reply_is_message(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
           reply->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(reply->element[0]->str, "message") == 0;
}

/* Shift a reply to TIME, seconds and microseconds, to a clock that may be ahead. */
static redisReply *set_clock(const struct proxy *proxy, redisReply *reply)
{
    bool tells_time = proxy->tells_time && reply->type == REDIS_REPLY_ARRAY &&
                      reply->elements == 2 && reply->element[0]->type == REDIS_REPLY_STRING &&
                      reply->element[0]->len == 10 &&
                      strspn(reply->element[0]->str, "0123456789") == 10;
    if (tells_time) {
        char *seconds = reply->element[0]->str;
        snprintf(seconds, 11, "%010lld", strtoll(seconds, NULL, 10) + proxy->ahead_s);
    }
    return reply;
}

/* Feed the stream's reader; with `filter`, pass on the parsed replies: without messages, or with a
 * shifted time. */
static void link_parse(struct proxy *proxy, struct link *link, enum direction to, const char *bytes,
                       size_t n)
{
    void *parsed;
    redisReaderFeed(link->reader[to], bytes, n);
    while (redisReaderGetReply(link->reader[to], &parsed) == REDIS_OK && parsed) {
        if (to == TO_SERVER)
            proxy_keep(proxy, link, parsed);
        if (link->whole && to == TO_SERVER)
            link_ask(proxy, link, parsed);
        else if (link->whole)
            link_answer(proxy, link, parsed);
        else if (to == TO_CLIENT && link->filter &&
                 !(proxy->drop_messages && reply_is_message(parsed)))
            link_encode(proxy, link, TO_CLIENT, set_clock(proxy, parsed));
        freeReplyObject(parsed);
    }
}

static void link_close(struct link *link, enum direction side)
{
    if (link->fd[side] >= 0)
        close(link->fd[side]);
    link->fd[side] = -1;
}

static void link_reset(struct link *link)
{
    struct linger now = {1, 0};
    setsockopt(link->fd[TO_CLIENT], SOL_SOCKET, SO_LINGER, &now, sizeof now);
    link_close(link, TO_CLIENT);
}

static void link_doom(struct proxy *proxy, struct link *link)
{
    link->doomed = true;
    link->doom = proxy->cut_mode;
    proxy->cut_armed = false;
    proxy->cuts++;
}

/* Inspect bytes that came for one direction, and queue what may pass. */
static void link_take(struct proxy *proxy, struct link *link, enum direction to, const char *bytes,
                      size_t n)
{
    if (link->doomed || link->held_back)
        return;
    bool ends = proxy->cut_armed && proxy->cut_direction == to && !link->subscriber;
    if (ends && (int64_t)n >= proxy->cut_left)
        n = (size_t)proxy->cut_left;
    else if (ends)
        proxy->cut_left -= (int64_t)n, ends = false;
    link_parse(proxy, link, to, bytes, n);
    if (link->subscriber && proxy->bar != BAR_NONE) {
        link->doomed = proxy->bar == BAR_CLOSED;
        link->doom = CUT_RST;
        return;
    }
    if (!link->whole && (to == TO_SERVER || !link->filter))
        link_append(proxy, link, to, bytes, n);
    if (ends)
        link_doom(proxy, link);
    if (proxy->hold_armed && to == TO_SERVER && !link->subscriber) {
        proxy->hold_armed = false;
        proxy->cuts++;
        link->held_back = true;
        link_reset(link);
    }
}

static void link_read(struct proxy *proxy, struct link *link, enum direction from)
{
    char buffer[16384];
    enum direction to = from == TO_CLIENT ? TO_SERVER : TO_CLIENT;
    ssize_t n = recv(link->fd[from], buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0)
        link_take(proxy, link, to, buffer, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        link->eof[to] = true;
}

/* Write what is due.  Returns the time of the next chunk, INT64_MAX if there is none to wait for.
 */
static int64_t link_write(struct proxy *proxy, struct link *link, enum direction to)
{
    bool late = to == TO_CLIENT && link->subscriber && proxy->stall_messages;
    while (link->first[to] && !proxy->stalled[to] && !link->stuck[to] && !late &&
           !link->held_back) {
        struct chunk *chunk = link->first[to];
        if (chunk->due_ns > now_ns())
            return chunk->due_ns;
        ssize_t n = send(link->fd[to], chunk->bytes + chunk->sent, chunk->n - chunk->sent,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return now_ns() + 1000000;
        chunk->sent += n < 0 ? chunk->n - chunk->sent : (size_t)n;
        if (chunk->sent < chunk->n)
            continue;
        link->first[to] = chunk->next;
        if (!link->first[to])
            link->last[to] = &link->first[to];
        free(chunk);
    }
    return INT64_MAX;
}

/* Pass on ends of streams.  Returns false when the link is over. */
static bool link_settle(struct link *link)
{
    if (link->held_back)
        return true;
    bool out = !link->first[TO_SERVER] && !link->first[TO_CLIENT];
    if (link->doomed && out) {
        if (link->doom == CUT_RST) {
            link_reset(link);
            return false;
        }
        link_close(link, TO_SERVER); /* and await the client's EOF: close() would reset */
        link->eof[TO_CLIENT] = true;
    }
    for (enum direction to = TO_SERVER; to <= TO_CLIENT; to++) {
        if (!link->eof[to] || link->first[to] || link->shut[to])
            continue;
        link->shut[to] = true;
        if (link->fd[to] >= 0)
            shutdown(link->fd[to], SHUT_WR);
    }
    return !(link->eof[TO_SERVER] && out);
}

static void link_free(struct link *link)
{
    for (enum direction side = TO_SERVER; side <= TO_CLIENT; side++) {
        link_close(link, side);
        redisReaderFree(link->reader[side]);
        for (struct chunk *chunk = link->first[side], *next; chunk; chunk = next) {
            next = chunk->next;
            free(chunk);
        }
    }
    free(link);
}

static void proxy_accept(struct proxy *proxy)
{
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0)
        return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, proxy->socket, sizeof address.sun_path);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (proxy->refuse || proxy->link_count == LINKS_MAX ||
        connect(server, (struct sockaddr *)&address, sizeof address) != 0) {
        close(client);
        close(server);
        return;
    }
    int yes = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct link *link = calloc(1, sizeof *link);
    link->id = ++proxy->link_last_id;
    link->fd[TO_SERVER] = server;
    link->fd[TO_CLIENT] = client;
    link->filter = proxy->drop_messages || proxy->tells_time;
    link->whole = proxy->read_along;
    for (enum direction to = TO_SERVER; to <= TO_CLIENT; to++) {
        link->last[to] = &link->first[to];
        link->reader[to] = redisReaderCreate();
    }
    proxy->links[proxy->link_count++] = link;
}

/* ---- The loop -------------------------------------------------------------------------------- */

static int proxy_wait(struct proxy *proxy, struct pollfd *fds, int64_t next_ns)
{
    fds[0] = (struct pollfd){.fd = proxy->wake, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
    int n = 2;
    for (int i = 0; i < proxy->link_count; i++)
        for (enum direction side = TO_SERVER; side <= TO_CLIENT; side++, n++) {
            struct link *link = proxy->links[i];
            bool reads =
                link->fd[side] >= 0 && !link->eof[side == TO_SERVER ? TO_CLIENT : TO_SERVER];
            fds[n] = (struct pollfd){.fd = reads ? link->fd[side] : -1, .events = POLLIN};
        }
    int64_t left = next_ns == INT64_MAX ? -1 : (next_ns - now_ns()) / 1000000 + 1;
    pthread_mutex_unlock(&proxy->mu);
    poll(fds, (nfds_t)n, (int)(next_ns == INT64_MAX ? -1 : left < 0 ? 0 : left));
    pthread_mutex_lock(&proxy->mu);
    return n;
}

static void *proxy_run(void *argument)
{
    struct proxy *proxy = argument;
    struct pollfd fds[2 + 2 * LINKS_MAX];
    int64_t next_ns = INT64_MAX;
    pthread_mutex_lock(&proxy->mu);
    while (!proxy->stop) {
        int polled = (proxy_wait(proxy, fds, next_ns) - 2) / 2;
        uint64_t ignored;
        if (fds[0].revents && read(proxy->wake, &ignored, sizeof ignored) < 0)
            continue;
        next_ns = INT64_MAX;
        int kept = 0;
        for (int i = 0; i < proxy->link_count; i++) {
            struct link *link = proxy->links[i];
            for (enum direction side = TO_SERVER; i < polled && side <= TO_CLIENT; side++)
                if (fds[2 + 2 * i + (int)side].revents && link->fd[side] >= 0)
                    link_read(proxy, link, side);
            for (enum direction to = TO_SERVER; to <= TO_CLIENT; to++) {
                int64_t due = link_write(proxy, link, to);
                next_ns = due < next_ns ? due : next_ns;
            }
            if (proxy->refuse)
                link_reset(link);
            if (!proxy->refuse && link_settle(link))
                proxy->links[kept++] = link;
            else
                link_free(link);
        }
        proxy->link_count = kept;
        if (fds[1].revents)
            proxy_accept(proxy);
    }
    pthread_mutex_unlock(&proxy->mu);
    return NULL;
}

static void proxy_poke(struct proxy *proxy)
{
    pthread_mutex_unlock(&proxy->mu);
    if (eventfd_write(proxy->wake, 1) != 0)
        fail_msg("eventfd: %s", strerror(errno));
}

/* ---- Control --------------------------------------------------------------------------------- */

struct proxy *proxy_start(const char *server_socket)
{
    struct proxy *proxy = calloc(1, sizeof *proxy);
    pthread_mutex_init(&proxy->mu, NULL);
    snprintf(proxy->socket, sizeof proxy->socket, "%s", server_socket);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(proxy->listener, (struct sockaddr *)&address, n) != 0 ||
        listen(proxy->listener, 128) != 0 ||
        getsockname(proxy->listener, (struct sockaddr *)&address, &n) != 0)
        fail_msg("proxy: %s", strerror(errno));
    snprintf(proxy->url, sizeof proxy->url, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    proxy->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(pthread_create(&proxy->thread, NULL, proxy_run, proxy), 0);
    return proxy;
}

void proxy_stop(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->stop = true;
    proxy_poke(proxy);
    pthread_join(proxy->thread, NULL);
    for (int i = 0; i < proxy->link_count; i++)
        link_free(proxy->links[i]);
    proxy_forget(proxy);
    free(proxy->records);
    close(proxy->listener);
    close(proxy->wake);
    free(proxy);
}

const char *proxy_url(const struct proxy *proxy)
{
    return proxy->url;
}

void proxy_delay(struct proxy *proxy, enum direction direction, int64_t ms)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->delay_ms[direction] = ms;
    proxy_poke(proxy);
}

void proxy_slice(struct proxy *proxy, size_t bytes, int64_t gap_us)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->slice = bytes;
    proxy->slice_us = gap_us;
    proxy_poke(proxy);
}

/* Whether all that was sent in this direction has arrived: over the loopback interface, too, that takes a thread of the
 * kernel, which may have to wait for a processor. */
static bool proxy_has_arrived(struct proxy *proxy, enum direction direction)
{
    int left = 0, sum = 0;
    pthread_mutex_lock(&proxy->mu);
    for (int i = 0; i < proxy->link_count; i++)
        if (ioctl(proxy->links[i]->fd[direction], SIOCOUTQ, &left) == 0)
            sum += left;
    pthread_mutex_unlock(&proxy->mu);
    return sum == 0;
}

void proxy_stall(struct proxy *proxy, enum direction direction, bool on)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->stalled[direction] = on;
    proxy_poke(proxy);
    int64_t end = now_ms() + 1000; /* a client that reads nothing may have a full socket */
    while (on && direction == TO_CLIENT && !proxy_has_arrived(proxy, direction) && now_ms() < end)
        nap_us(100);
}

void proxy_stall_link(struct proxy *proxy, int id, bool to_server, bool to_client)
{
    pthread_mutex_lock(&proxy->mu);
    for (int i = 0; i < proxy->link_count; i++)
        if (proxy->links[i]->id == id) {
            proxy->links[i]->stuck[TO_SERVER] = to_server;
            proxy->links[i]->stuck[TO_CLIENT] = to_client;
        }
    proxy_poke(proxy);
}

void proxy_set_clock(struct proxy *proxy, int64_t ahead_s)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->tells_time = true;
    proxy->ahead_s = ahead_s;
    pthread_mutex_unlock(&proxy->mu);
}

void proxy_drop_messages(struct proxy *proxy, bool on)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->drop_messages = on;
    proxy_poke(proxy);
}

void proxy_stall_messages(struct proxy *proxy, bool on)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->stall_messages = on;
    proxy_poke(proxy);
}

void proxy_bar_messages(struct proxy *proxy, enum bar bar)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->bar = bar;
    proxy_poke(proxy);
}

void proxy_refuse(struct proxy *proxy, bool on)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->refuse = on;
    proxy_poke(proxy);
    for (int left = on; left > 0; nap_us(100)) {
        pthread_mutex_lock(&proxy->mu);
        left = proxy->link_count;
        pthread_mutex_unlock(&proxy->mu);
    }
}

void proxy_cut(struct proxy *proxy, enum direction direction, int64_t bytes, enum cut_mode mode)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->cut_armed = true;
    proxy->cut_direction = direction;
    proxy->cut_left = bytes;
    proxy->cut_mode = mode;
    proxy_poke(proxy);
}

void proxy_hold_back(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->hold_armed = true;
    proxy_poke(proxy);
}

void proxy_let_go(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mu);
    for (int i = 0; i < proxy->link_count; i++)
        if (proxy->links[i]->held_back) {
            proxy->links[i]->held_back = false;
            proxy->links[i]->eof[TO_SERVER] = true;
        }
    proxy_poke(proxy);
}

void proxy_read_along(struct proxy *proxy, bool on)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->read_along = on;
    proxy_poke(proxy);
}

void proxy_spoil(struct proxy *proxy, const char *word, int nth, bool executed, const char *error)
{
    pthread_mutex_lock(&proxy->mu);
    proxy->spoil_in = nth;
    proxy->spoil_executed = executed;
    snprintf(proxy->spoil_word, sizeof proxy->spoil_word, "%s", word);
    snprintf(proxy->spoil_error, sizeof proxy->spoil_error, "%s", error);
    proxy_poke(proxy);
}

int proxy_spoilt(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mu);
    int spoilt = proxy->spoilt;
    pthread_mutex_unlock(&proxy->mu);
    return spoilt;
}

int proxy_cuts(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mu);
    int cuts = proxy->cuts;
    pthread_mutex_unlock(&proxy->mu);
    return cuts;
}
