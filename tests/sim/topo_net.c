/* topo_net.c - connections between processes and servers, and machines that lose contact.
 *
 * Between two machines without contact nothing arrives until it is restored, unless one side has
 * given up meanwhile.  A connection lives on at the server when the client's end is gone.
 */
#include "topo.h"

#include "snib.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_LIMIT (1000 * SNIB__MS) /* the driver's */

/* ---- Machines ----------------------------------------------------------------------------------- */

int net_host(const struct topo_process *process)
{
    return TOPO_SERVERS + (int)process->id;
}

bool net_apart(int host, int other)
{
    return topo.apart[host][other] > topo.now;
}

void net_part(int host, int other, snib__time until)
{
    if (topo.apart[host][other] < until) {
        topo.apart[host][other] = topo.apart[other][host] = until;
    }
}

void net_heal(void)
{
    memset(topo.apart, 0, sizeof topo.apart);
    for (struct topo_pipe *pipe = topo.pipes; pipe < topo.pipes_end; pipe++) {
        pipe->cut_next = 0;
    }
}

snib__time net_delay(void)
{
    if (topo_has(TOPO_DELAY) && topo_chance(topo.focus == TOPO_FORMER ? 16 : 30)) {
        fault_happens(TOPO_DELAY);
        return topo_draw(topo.lease / (topo.focus == TOPO_FORMER ? 5 : 2));
    }
    return topo_between(topo.delay / 10, topo.delay);
}

/* ---- Flows -------------------------------------------------------------------------------------- */

static void push(struct topo_flow *flow, const char *bytes, size_t n, bool end)
{
    struct topo_chunk *chunk = malloc(sizeof *chunk + n);
    if (chunk == NULL) {
        abort();
    }
    *chunk = (struct topo_chunk){.at = topo.now + net_delay(), .n = n, .end = end};
    if (n > 0) {
        memcpy(chunk->bytes, bytes, n);
    }
    chunk->at = chunk->at < flow->last_at ? flow->last_at : chunk->at;
    flow->last_at = chunk->at;
    if (flow->tail != NULL) {
        flow->tail->next = chunk;
    } else {
        flow->head = chunk;
    }
    flow->tail = chunk;
}

static void push_end(struct topo_flow *flow)
{
    if (!flow->ended) {
        push(flow, NULL, 0, true);
        flow->ended = true;
    }
}

static struct topo_chunk *pop(struct topo_flow *flow)
{
    struct topo_chunk *chunk = flow->head;
    flow->head = chunk->next;
    if (flow->head == NULL) {
        flow->tail = NULL;
    }
    return chunk;
}

static void drain(struct topo_flow *flow)
{
    while (flow->head != NULL) {
        free(pop(flow));
    }
}

/* ---- Pipes -------------------------------------------------------------------------------------- */

static void forget_wait(struct topo_pipe *pipe)
{
    free(pipe->wait.held);
    memset(&pipe->wait, 0, sizeof pipe->wait);
}

static void settle(struct topo_pipe *pipe)
{
    if (pipe->client == NULL && pipe->number == 0) {
        drain(&pipe->to_server);
        drain(&pipe->to_client);
        forget_wait(pipe);
        *pipe = (struct topo_pipe){0};
    }
}

static void end_server(struct topo_pipe *pipe)
{
    model_close(topo.servers[pipe->server].model, pipe->number);
    pipe->number = 0;
    forget_wait(pipe);
    drain(&pipe->to_server);
    pipe->to_server.ended = true;
    push_end(&pipe->to_client);
    settle(pipe);
}

static void send_on(struct topo_pipe *pipe, int direction, const char *bytes, size_t n)
{
    struct topo_flow *flow = direction == 1 ? &pipe->to_server : &pipe->to_client;
    bool cuts = pipe->cut_next == direction && pipe->cut_after == 0;
    pipe->cut_after -= pipe->cut_next == direction && pipe->cut_after > 0;
    size_t kept = cuts ? topo_draw(n + 1) : n;
    if (kept > 0 && !flow->ended) {
        push(flow, bytes, kept, false);
    }
    if (cuts) {
        fault_happens(TOPO_CUT);
        pipe->cut_next = 0;
        push_end(&pipe->to_server);
        push_end(&pipe->to_client);
    }
}

/* The server that has the address at this moment; -1: none. */
static int resolve(const struct snib__address *address)
{
    if (address == NULL || snib__address_equal(address, &topo.address)) {
        return topo.at_address;
    }
    for (int i = 0; i < topo.server_count; i++) {
        if (snib__address_equal(address, &topo.servers[i].address)) {
            return i;
        }
    }
    return -1;
}

void net_connect(struct topo_end *end)
{
    end->connecting = true;
    end->server = resolve(snib__link_address(end->link));
    check_connects(end->process);
    end->connected_at = topo.now + net_delay();
    /* A stopped server has a kernel that accepts; one without contact does not even refuse. */
    if (end->server >= 0 && net_apart(net_host(end->process), end->server)) {
        end->connected_at = topo.now + CONNECT_LIMIT;
    }
}

static struct topo_pipe *make_pipe(struct topo_end *end)
{
    struct topo_pipe *pipe = topo.pipes;
    while (pipe < topo.pipes + TOPO_PIPES && pipe->used) {
        pipe++;
    }
    if (pipe == topo.pipes + TOPO_PIPES) {
        topo_fail("there are too many connections");
    }
    topo.pipes_end = pipe < topo.pipes_end ? topo.pipes_end : pipe + 1;
    *pipe = (struct topo_pipe){.used = true,
                               .client = end,
                               .process = end->process->id,
                               .server = end->server,
                               .made_at = topo.now};
    pipe->number = model_connect(topo.servers[end->server].model);
    end->pipe = pipe;
    /* What is asked first on a connection, of a server that may be new, is lost more often. */
    if (topo_has(TOPO_CUT) && topo.next_fault != SNIB__NEVER &&
        topo_chance(topo.focus == TOPO_FIXED ? 2 : 4)) {
        pipe->cut_next = 1 + (int)topo_draw(2);
        pipe->cut_after = (unsigned)topo_draw(6);
    }
    return pipe;
}

static void finish_connect(struct topo_end *end)
{
    struct topo_process *process = end->process;
    bool apart = end->server >= 0 && net_apart(net_host(process), end->server);
    end->connecting = false;
    if (end->server < 0 || apart || topo.servers[end->server].dead) {
        topo_trace("%u cannot connect to server %d", process->id, end->server);
        snib__engine_link_down(process->engine, end->link, SNIB_EUNREACHABLE,
                               apart ? ETIMEDOUT : ECONNREFUSED, topo.now);
    } else {
        make_pipe(end);
        topo_trace("%u is connected to server %d%s", process->id, end->server,
                   snib__link_kind(end->link) == SNIB__PUBSUB ? ", to listen" : "");
        snib__engine_link_up(process->engine, end->link, topo.now);
    }
    process_pump(process);
}

void net_close(struct topo_end *end)
{
    struct topo_pipe *pipe = end->pipe;
    end->connecting = false;
    end->pipe = NULL;
    if (pipe == NULL) {
        return;
    }
    pipe->client = NULL;
    drain(&pipe->to_client);
    pipe->to_client.ended = true;
    push_end(&pipe->to_server);
    settle(pipe);
}

void net_send(struct topo_end *end, const char *bytes, size_t n)
{
    if (end->pipe != NULL) {
        send_on(end->pipe, 1, bytes, n);
    }
}

/* Half of those who listen to a server hear what it says from now on only then, or after. */
void net_late(int server, snib__time until)
{
    for (struct topo_pipe *pipe = topo.pipes; pipe < topo.pipes_end; pipe++) {
        if (pipe->used && pipe->server == server && pipe->client != NULL &&
            snib__link_kind(pipe->client->link) == SNIB__PUBSUB && topo_chance(2)) {
            pipe->to_client.last_at = latest(pipe->to_client.last_at, until);
        }
    }
}

void net_server_died(int server)
{
    for (struct topo_pipe *pipe = topo.pipes; pipe < topo.pipes_end; pipe++) {
        if (pipe->used && pipe->server == server && pipe->number != 0) {
            end_server(pipe);
        }
    }
}

struct topo_pipe *net_pick(void)
{
    struct topo_pipe *pipe = &topo.pipes[topo_draw(TOPO_PIPES)];
    for (int i = 0; i < TOPO_PIPES; i++, pipe++) {
        pipe = pipe == topo.pipes + TOPO_PIPES ? topo.pipes : pipe;
        if (pipe->used && pipe->client != NULL && pipe->number != 0) {
            return pipe;
        }
    }
    return NULL;
}

/* ---- Events ------------------------------------------------------------------------------------- */

/* ---- WAIT --------------------------------------------------------------------------------------- */

void net_wait(int server, uint64_t connection, uint64_t need, snib__time limit)
{
    for (struct topo_pipe *pipe = topo.pipes; pipe < topo.pipes_end; pipe++) {
        if (pipe->used && pipe->server == server && pipe->number == connection) {
            pipe->wait.until = topo.now + limit;
            pipe->wait.need = need;
            pipe->wait.writes = model_writes(topo.servers[server].model);
            topo_totals.waits++;
        }
    }
}

static void write_out(struct topo_pipe *pipe, const char *bytes, size_t n)
{
    const char *at = NULL;
    if (pipe->wait.until != 0 && pipe->wait.held == NULL && n > 0) {
        at = memmem(bytes, n, NET_WAITS, sizeof NET_WAITS - 1);
    }
    size_t before = at != NULL ? (size_t)(at - bytes) : n;
    if (pipe->wait.held == NULL && pipe->client != NULL && before > 0) {
        send_on(pipe, 2, bytes, before);
    }
    if (at == NULL && pipe->wait.held == NULL) {
        return;
    }
    const char *rest = at != NULL ? at + sizeof NET_WAITS - 1 : bytes;
    size_t more = at != NULL ? n - before - (sizeof NET_WAITS - 1) : n;
    pipe->wait.held = realloc(pipe->wait.held, pipe->wait.held_n + more + 1);
    if (pipe->wait.held == NULL) {
        abort();
    }
    if (more > 0)
        memcpy(pipe->wait.held + pipe->wait.held_n, rest, more);
    pipe->wait.held_n += more;
}

/* The reply to WAIT, and what is behind it. */
static void answer_wait(struct topo_pipe *pipe, const char *text)
{
    char *held = pipe->wait.held;
    size_t n = pipe->wait.held_n;
    memset(&pipe->wait, 0, sizeof pipe->wait);
    if (pipe->client != NULL) {
        send_on(pipe, 2, text, strlen(text));
    }
    if (pipe->client != NULL && n > 0) {
        send_on(pipe, 2, held, n);
    }
    free(held);
}

static void end_wait(struct topo_pipe *pipe)
{
    int acked = server_acked(pipe->server, pipe->wait.writes);
    char text[32];
    bool few = (uint64_t)acked < pipe->wait.need;
    if (pipe->wait.held == NULL || (few && topo.now < pipe->wait.until)) {
        return;
    }
    topo_totals.too_few += few;
    if (few && pipe->client != NULL) {
        pipe->client->process->few_at = topo.now;
    }
    snprintf(text, sizeof text, ":%d\r\n", acked);
    answer_wait(pipe, text);
}

/* A master becomes a replica: nobody goes on waiting there for replicas of its own. */
void net_unblock(int server)
{
    for (struct topo_pipe *pipe = topo.pipes; pipe < topo.pipes_end; pipe++) {
        if (pipe->used && pipe->number != 0 && pipe->server == server && pipe->wait.held != NULL) {
            answer_wait(pipe, "-UNBLOCKED force unblock from blocking operation, instance state "
                              "changed (master -> replica?)\r\n");
            topo_totals.unblocked++;
        }
    }
}

void net_waited(int server)
{
    for (struct topo_pipe *pipe = topo.pipes; pipe < topo.pipes_end; pipe++) {
        if (pipe->used && pipe->number != 0 && pipe->server == server) {
            end_wait(pipe);
        }
    }
}

static snib__time wait_due(const struct topo_pipe *pipe)
{
    const struct topo_server *server = &topo.servers[pipe->server];
    if (pipe->wait.held == NULL || pipe->number == 0) {
        return SNIB__NEVER;
    }
    return pipe->wait.until > server->stopped_until ? pipe->wait.until : server->stopped_until;
}

/* Move what a server has written into its pipes. */
void net_collect(int server)
{
    model *m = topo.servers[server].model;
    for (struct topo_pipe *pipe = topo.pipes; pipe < topo.pipes_end; pipe++) {
        const char *bytes;
        if (!pipe->used || pipe->number == 0 || pipe->server != server) {
            continue;
        }
        size_t n = model_output(m, pipe->number, &bytes);
        write_out(pipe, bytes, n);
        if (!model_is_open(m, pipe->number)) {
            end_server(pipe);
        }
    }
}

static void arrive_at_server(struct topo_pipe *pipe)
{
    struct topo_chunk *chunk = pop(&pipe->to_server);
    int server = pipe->server;
    if (chunk->end) {
        end_server(pipe);
    } else {
        model_input(topo.servers[server].model, pipe->number, chunk->bytes, chunk->n);
        snib__time at = fault_late(pipe, chunk->bytes, chunk->n);
        server_executed(server);
        fault_again(pipe, chunk->bytes, chunk->n);
        pipe->to_client.last_at = latest(pipe->to_client.last_at, at);
        net_collect(server);
        net_waited(server);
    }
    free(chunk);
}

static void arrive_at_client(struct topo_pipe *pipe)
{
    struct topo_end *end = pipe->client;
    struct topo_process *process = end->process;
    struct topo_chunk *chunk = pop(&pipe->to_client);
    if (chunk->end) {
        end->pipe = NULL;
        pipe->client = NULL;
        push_end(&pipe->to_server);
        settle(pipe);
        snib__engine_link_down(process->engine, end->link, SNIB_EUNREACHABLE, ECONNRESET, topo.now);
    } else {
        if (snib__link_kind(end->link) == SNIB__COMMAND && !topo.servers[pipe->server].sentinel) {
            process->heard_at = topo.now;
        }
        snib__engine_input(process->engine, end->link, chunk->bytes, chunk->n, topo.now);
    }
    process_pump(process);
    free(chunk);
}

static snib__time due(const struct topo_pipe *pipe, const struct topo_flow *flow,
                      snib__time frozen_until)
{
    if (flow->head == NULL) {
        return SNIB__NEVER;
    }
    snib__time apart = topo.apart[TOPO_SERVERS + (int)pipe->process][pipe->server];
    return latest(latest(flow->head->at, frozen_until), apart);
}

static snib__time server_due(const struct topo_pipe *pipe)
{
    const struct topo_server *server = &topo.servers[pipe->server];
    return !pipe->used || pipe->number == 0 || server->dead
               ? SNIB__NEVER
               : due(pipe, &pipe->to_server, server->stopped_until);
}

static snib__time client_due(const struct topo_pipe *pipe)
{
    return !pipe->used || pipe->client == NULL
               ? SNIB__NEVER
               : due(pipe, &pipe->to_client, pipe->client->process->frozen_until);
}

static snib__time connect_due(const struct topo_end *end)
{
    return end->connecting ? latest(end->connected_at, end->process->frozen_until) : SNIB__NEVER;
}

snib__time net_next(void)
{
    snib__time next = SNIB__NEVER;
    for (const struct topo_pipe *pipe = topo.pipes; pipe < topo.pipes_end; pipe++) {
        if (pipe->used) {
            snib__time server = server_due(pipe), client = client_due(pipe);
            next = server < next ? server : next;
            next = client < next ? client : next;
            next = wait_due(pipe) < next ? wait_due(pipe) : next;
        }
    }
    for (int i = 0; i < topo.slot_count; i++) {
        for (int j = 0; j < topo.slots[i]->end_count; j++) {
            snib__time at = connect_due(&topo.slots[i]->ends[j]);
            next = at < next ? at : next;
        }
    }
    return next;
}

bool net_run(void)
{
    for (struct topo_pipe *pipe = topo.pipes; pipe < topo.pipes_end; pipe++) {
        if (pipe->used && wait_due(pipe) <= topo.now) {
            pipe->wait.until = topo.now;
            end_wait(pipe);
            return true;
        }
        if (pipe->used && server_due(pipe) <= topo.now) {
            arrive_at_server(pipe);
            return true;
        }
        if (pipe->used && client_due(pipe) <= topo.now) {
            arrive_at_client(pipe);
            return true;
        }
    }
    for (int i = 0; i < topo.slot_count; i++) {
        for (int j = 0; j < topo.slots[i]->end_count; j++) {
            if (connect_due(&topo.slots[i]->ends[j]) <= topo.now) {
                finish_connect(&topo.slots[i]->ends[j]);
                return true;
            }
        }
    }
    return false;
}

void net_free(void)
{
    for (struct topo_pipe *pipe = topo.pipes; pipe < topo.pipes_end; pipe++) {
        drain(&pipe->to_server);
        drain(&pipe->to_client);
    }
}
