/* world_net.c - descriptors, sockets and the network between them and the model of a server. */
#include "world_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../core/testing/model_server.h"

#define FDS 512
#define FIRST_FD 1000 /* distinct from the real kernel's descriptors */
#define EPOCH 1700000000000000000u
#define SMALL_ROOM 150

struct chunk {
    struct chunk *next;
    snib__time at;
    bool end;
    size_t n;
    char bytes[];
};

struct flow {
    struct chunk *head, **tail;
    snib__time last;
};

struct link { /* lives until both ends have gone and nothing is in flight */
    struct link *next;
    uint64_t server; /* the model's connection; 0: none yet, or none any more */
    snib__time connect_at;
    int error; /* of connect() */
    bool mute; /* WORLD_MUTE: there is no server at the other end */
    bool open, shut, ended, closed;
    struct flow to_server, to_client;
    char *received;
    size_t received_n;
    size_t room;
    int readers, writers;
    int node; /* the N of nodeN.test; 0: another name */
};

enum kind { FREE, BELL, ALARM, SOCKET, SET };

struct descriptor {
    enum kind kind;
    bool rung;
    snib__time rings_at; /* by the clock that counts suspends */
    struct link *link;
    int sleepers;
    int set; /* it is a member of this one; 0: of none */
};

static struct descriptor descriptors[FDS];
static struct link *links;

static int fd_new(enum kind kind)
{
    for (int i = 0; i < FDS; i++)
        if (descriptors[i].kind ==
            FREE) { /* the lowest, as in the kernel: old numbers return soon */
            descriptors[i] = (struct descriptor){.kind = kind, .rings_at = SNIB__NEVER};
            return FIRST_FD + i;
        }
    world_fail("no descriptor left");
}

static struct descriptor *fd_get(int fd, enum kind kind)
{
    if (fd < FIRST_FD || fd >= FIRST_FD + FDS)
        world_fail("descriptor %d", fd);
    struct descriptor *d = &descriptors[fd - FIRST_FD];
    if (d->kind == FREE)
        world_fail("descriptor %d is used after its close", fd);
    if (kind != FREE && d->kind != kind)
        world_fail("descriptor %d is now something else", fd);
    return d;
}

int world_descriptors(void)
{
    int n = 0;
    for (int i = 0; i < FDS; i++)
        n += descriptors[i].kind != FREE;
    return n;
}

/* ---- Flows ------------------------------------------------------------------------------------- */

static void push(struct flow *flow, const char *bytes, size_t n, bool end)
{
    struct chunk *chunk = malloc(sizeof *chunk + n);
    snib__time most = world.faults & WORLD_SLOW ? 30 * SNIB__MS : SNIB__MS / 2;
    if (world.faults & WORLD_SLOW)
        world_happens(WORLD_SLOW);
    *chunk = (struct chunk){.at = world.now + 20000 + world_draw(most), .n = n, .end = end};
    if (n)
        memcpy(chunk->bytes, bytes, n);
    chunk->at = chunk->at < flow->last ? flow->last : chunk->at;
    flow->last = chunk->at;
    if (!flow->head)
        flow->tail = &flow->head;
    *flow->tail = chunk;
    flow->tail = &chunk->next;
}

static struct chunk *pop(struct flow *flow)
{
    struct chunk *chunk = flow->head;
    if (chunk && chunk->at <= world.now) {
        flow->head = chunk->next;
        return chunk;
    }
    return NULL;
}

static void push_pieces(struct flow *flow, const char *bytes, size_t n)
{
    while (n > 0) {
        size_t part = world_has(WORLD_SPLIT, 2) ? 1 + world_draw(n < 40 ? n : 40) : n;
        push(flow, bytes, part, false);
        bytes += part;
        n -= part;
    }
}

static void fetch_answers(void)
{
    for (struct link *link = links; link; link = link->next) {
        const char *bytes;
        if (!link->server)
            continue;
        size_t n = model_output(world.server, link->server, &bytes);
        push_pieces(&link->to_client, bytes, n);
        if (!model_is_open(world.server, link->server)) {
            model_close(world.server, link->server);
            link->server = 0;
            push(&link->to_client, NULL, 0, true);
        }
    }
}

static void arrive_at_server(struct link *link, struct chunk *chunk)
{
    link->room += chunk->n;
    if (!link->server)
        return;
    if (chunk->end) {
        model_close(world.server, link->server);
        link->server = 0;
    } else {
        model_input(world.server, link->server, chunk->bytes, chunk->n);
    }
}

static void arrive_at_client(struct link *link, struct chunk *chunk)
{
    link->ended = link->ended || chunk->end;
    link->received = realloc(link->received, link->received_n + chunk->n + 1);
    memcpy(link->received + link->received_n, chunk->bytes, chunk->n);
    link->received_n += chunk->n;
}

static void cut(struct link *link)
{
    push(&link->to_server, NULL, 0, true);
    push(&link->to_client, NULL, 0, true);
}

void world_cut(void)
{
    for (struct link *link = links; link; link = link->next)
        if (link->open)
            cut(link);
}

static bool is_held_back(const struct link *link)
{
    return (world.held_back >> link->node & 1) != 0;
}

void world_deliver(void)
{
    model_time(world.server, EPOCH + world.now + world.suspended);
    for (struct link *link = links; link; link = link->next) {
        for (struct chunk *chunk; !world.silent && (chunk = pop(&link->to_server));) {
            arrive_at_server(link, chunk);
            free(chunk);
            if (link->open && world_has(WORLD_CUT, 60))
                cut(link);
        }
        for (struct chunk *chunk; !is_held_back(link) && (chunk = pop(&link->to_client));) {
            arrive_at_client(link, chunk);
            free(chunk);
        }
    }
    fetch_answers();
}

static snib__time later(snib__time at, snib__time next)
{
    return at < next ? at : next;
}

snib__time world_next_event(void)
{
    snib__time next = SNIB__NEVER, boot = snib__now();
    for (struct link *link = links; link; link = link->next) {
        if (link->to_server.head && !world.silent)
            next = later(link->to_server.head->at, next);
        if (link->to_client.head && !is_held_back(link))
            next = later(link->to_client.head->at, next);
        if (!link->open && !link->closed && link->connect_at > world.now)
            next = later(link->connect_at, next);
    }
    for (int i = 0; i < FDS; i++)
        if (descriptors[i].kind == ALARM && descriptors[i].rings_at > boot &&
            descriptors[i].rings_at != SNIB__NEVER)
            next = later(world.now + (descriptors[i].rings_at - boot), next);
    return next;
}

/* ---- Sets ------------------------------------------------------------------------------------------ */

int snib__sys_set(void)
{
    world_step();
    return fd_new(SET);
}

int snib__sys_set_add(int set, int fd)
{
    world_step();
    fd_get(set, SET);
    struct descriptor *member = fd_get(fd, FREE);
    if (member->set)
        world_fail("descriptor %d is in a set already", fd);
    member->set = set;
    return 0;
}

void snib__sys_set_remove(int set, int fd)
{
    world_step();
    fd_get(set, SET);
    struct descriptor *member = fd_get(fd, FREE);
    if (member->set != set)
        world_fail("descriptor %d is not in set %d", fd, set);
    member->set = 0;
}

/* ---- Bells and alarms ---------------------------------------------------------------------------- */

int snib__sys_bell(void)
{
    world_step();
    return fd_new(BELL);
}

void snib__sys_ring(int bell)
{
    world_before_ring();
    world_step();
    fd_get(bell, BELL)->rung = true;
}

static bool is_rung(const struct descriptor *d)
{
    return d->rung || d->rings_at <= snib__now();
}

void snib__sys_hush(int fd)
{
    world_step();
    struct descriptor *d = fd_get(fd, FREE);
    d->rung = false;
    if (d->rings_at <= snib__now())
        d->rings_at = SNIB__NEVER;
}

int snib__sys_alarm(void)
{
    world_step();
    return fd_new(ALARM);
}

void snib__sys_alarm_set(int alarm, snib__time in)
{
    world_step();
    fd_get(alarm, ALARM)->rings_at = in == SNIB__NEVER ? in : snib__now() + in;
}

/* ---- Waiting ------------------------------------------------------------------------------------- */

static bool is_connected(const struct link *link)
{
    return link->connect_at <= world.now;
}

static short ready_events(const struct descriptor *d);

static short ready_members(const struct descriptor *set)
{
    short events = 0;
    int number = FIRST_FD + (int)(set - descriptors);
    for (int i = 0; i < FDS; i++)
        if (descriptors[i].kind != FREE && descriptors[i].set == number)
            events |= (short)(ready_events(&descriptors[i]) & (POLLIN | POLLRDHUP | POLLHUP));
    return events ? POLLIN : 0;
}

static short ready_events(const struct descriptor *d)
{
    if (d->kind == SET)
        return ready_members(d);
    const struct link *link = d->link;
    if (d->kind == BELL || d->kind == ALARM)
        return is_rung(d) ? POLLIN : 0;
    if (link->shut)
        return POLLIN | POLLOUT | POLLHUP;
    if (!link->open)
        return is_connected(link) ? POLLOUT : 0;
    return (short)((link->received_n > 0 || link->ended ? POLLIN : 0) |
                   (link->ended ? POLLRDHUP : 0) | (link->room > 0 ? POLLOUT : 0));
}

struct polled {
    struct pollfd *polls;
    uint32_t n;
};

static bool any_ready(void *on)
{
    struct polled *polled = on;
    bool any = false;
    for (uint32_t i = 0; i < polled->n; i++) {
        struct pollfd *one = &polled->polls[i];
        one->revents = (short)(ready_events(fd_get(one->fd, FREE)) & (one->events | POLLHUP));
        any = any || one->revents;
    }
    return any;
}

static void sleep_on(struct polled *polled, int by)
{
    for (uint32_t i = 0; i < polled->n; i++)
        fd_get(polled->polls[i].fd, FREE)->sleepers += by;
}

int snib__sys_poll(struct pollfd *polls, uint32_t n, snib__time left)
{
    struct polled polled = {polls, n};
    int ready = 0;
    world_step();
    if (world_may_be_interrupted()) {
        errno = EINTR;
        return -1;
    }
    sleep_on(&polled, 1);
    world_wait(any_ready, &polled, left == SNIB__NEVER ? left : world.now + left);
    sleep_on(&polled, -1);
    for (uint32_t i = 0; i < n; i++)
        ready += polls[i].revents != 0;
    return ready;
}

bool world_readable(int fd, snib__time span)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    struct polled polled = {&one, 1};
    return world_wait(any_ready, &polled, world.now + span);
}

/* ---- Sockets ------------------------------------------------------------------------------------- */

static ssize_t failed(int error)
{
    errno = error;
    return -1;
}

ssize_t snib__sys_recv(int fd, char *bytes, size_t cap, bool wait)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    struct polled polled = {&one, 1};
    world_step();
    struct descriptor *d = fd_get(fd, SOCKET);
    struct link *link = d->link;
    if (!link->open)
        world_fail("reads a socket that is not connected");
    if (link->readers++)
        world_fail("two readers of one socket");
    if (wait) {
        sleep_on(&polled, 1);
        world_wait(any_ready, &polled, world.now + SNIB__SOCK_NAP_MS * SNIB__MS);
        sleep_on(&polled, -1);
    }
    link->readers--;
    if (world_may_be_interrupted())
        return failed(EINTR);
    if (link->shut || (link->received_n == 0 && link->ended))
        return 0;
    if (link->received_n == 0)
        return failed(EAGAIN);
    size_t n = link->received_n < cap ? link->received_n : cap;
    if (world_has(WORLD_SPLIT, 3))
        n = 1 + world_draw(n);
    memcpy(bytes, link->received, n);
    link->received_n -= n;
    memmove(link->received, link->received + n, link->received_n);
    /* From here on only this thread has the bytes, even if it is stopped. */
    world_step();
    return (ssize_t)n;
}

ssize_t snib__sys_send(int fd, const char *bytes, size_t n)
{
    struct link *link = fd_get(fd, SOCKET)->link;
    if (!link->open)
        world_fail("writes a socket that is not connected");
    if (link->writers++)
        world_fail("two writers of one socket");
    world_step();
    link->writers--;
    if (link->shut || link->ended)
        return failed(EPIPE);
    if (world_has(WORLD_SIGNALS, 20))
        return failed(EINTR);
    if (link->room == 0) {
        if (world.faults & WORLD_FULL)
            world_happens(WORLD_FULL);
        return failed(EAGAIN);
    }
    n = n < link->room ? n : link->room;
    if (world_has(WORLD_SPLIT, 4))
        n = 1 + world_draw(n);
    push(&link->to_server, bytes, n, false);
    link->room -= n;
    world_step();
    return (ssize_t)n;
}

int snib__sys_connect(const struct sockaddr *address, socklen_t n, int *out_fd)
{
    (void)n;
    struct link *link = calloc(1, sizeof *link);
    enum world_peer peer = WORLD_ANSWERS;
    world_step();
    world.connects++;
    if (address->sa_family == AF_INET) {
        uint32_t host = ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr);
        peer = world.peers[host & 7];
        link->node = (int)(host >> 8 & 31);
    }
    link->next = links;
    links = link;
    link->connect_at = peer == WORLD_SWALLOWS ? SNIB__NEVER : world.now + world_draw(SNIB__MS);
    link->error = peer == WORLD_REFUSES ? ECONNREFUSED : 0;
    link->mute = peer == WORLD_MUTE;
    link->room = world.faults & WORLD_FULL ? SMALL_ROOM : 65536;
    *out_fd = fd_new(SOCKET);
    fd_get(*out_fd, SOCKET)->link = link;
    return EINPROGRESS;
}

int snib__sys_connected(int fd)
{
    world_step();
    struct link *link = fd_get(fd, SOCKET)->link;
    if (!is_connected(link))
        return EINPROGRESS;
    return link->error;
}

void snib__sys_may_block(int fd)
{
    struct link *link = fd_get(fd, SOCKET)->link;
    link->open = true;
    if (!link->mute)
        link->server = model_connect(world.server);
}

void snib__sys_shutdown(int fd)
{
    world_step();
    struct link *link = fd_get(fd, SOCKET)->link;
    link->shut = true;
    push(&link->to_server, NULL, 0, true);
}

void snib__sys_close(int fd)
{
    world_step();
    struct descriptor *d = fd_get(fd, FREE);
    if (d->sleepers)
        world_fail("closes a descriptor that a thread sleeps on");
    if (d->set)
        world_fail("closes a descriptor that is in a set");
    for (int i = 0; d->kind == SET && i < FDS; i++)
        if (descriptors[i].set == fd)
            descriptors[i].set = 0;
    if (d->kind == SOCKET) {
        d->link->closed = true;
        if (!d->link->shut)
            push(&d->link->to_server, NULL, 0, true);
    }
    d->kind = FREE;
}

/* ---- Names --------------------------------------------------------------------------------------- */

struct answer { /* what getaddrinfo() would allocate */
    struct addrinfo info[8];
    struct sockaddr_in addresses[8];
};

static bool lookup_ends(void *on)
{
    (void)on;
    return world.lookup_takes != SNIB__NEVER;
}

int snib__sys_resolve(const char *host, const char *port, bool numeric, struct addrinfo **out)
{
    if (numeric)
        return EAI_NONAME;
    (void)port;
    unsigned node = 0;
    sscanf(host, "node%u.", &node);
    snprintf(world.host, sizeof world.host, "%s", host);
    world.lookups++;
    world.lookups_running++;
    world_step();
    world_wait(lookup_ends, NULL, SNIB__NEVER);
    world_sleep(world.lookup_takes);
    world.lookups_running--;
    if (world.addresses == 0)
        return EAI_NONAME;
    struct answer *answer = calloc(1, sizeof *answer);
    for (int i = 0; i < world.addresses; i++) {
        answer->addresses[i] =
            (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(0x0a000001u + (node << 8) + (uint32_t)i)};
        answer->info[i] = (struct addrinfo){.ai_family = i < world.sixes ? AF_INET6 : AF_INET,
                                            .ai_socktype = SOCK_STREAM,
                                            .ai_addr = (struct sockaddr *)&answer->addresses[i],
                                            .ai_addrlen = sizeof answer->addresses[i],
                                            .ai_next = NULL};
        if (i > 0)
            answer->info[i - 1].ai_next = &answer->info[i];
    }
    *out = answer->info;
    return 0;
}

void snib__sys_resolve_free(struct addrinfo *addresses)
{
    free(addresses); /* all of them are one allocation */
}

/* ---- Start and end ------------------------------------------------------------------------------- */

void world_net_begin(void)
{
    memset(descriptors, 0, sizeof descriptors);
}

static void flow_free(struct flow *flow)
{
    while (flow->head) {
        struct chunk *chunk = flow->head;
        flow->head = chunk->next;
        free(chunk);
    }
}

void world_net_end(void)
{
    while (links) {
        struct link *link = links;
        links = link->next;
        flow_free(&link->to_server);
        flow_free(&link->to_client);
        free(link->received);
        free(link);
    }
}
