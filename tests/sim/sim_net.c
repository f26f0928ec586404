/* sim_net.c - the simulated network: ordered bytes that may be late, sliced, cut or stuck.
 *
 * A pipe has two flows.  The client's end may go while bytes are still in flight: they arrive, and
 * the server acts on them, after the client has begun something else.  That is the reason for this
 * file.
 */
#include "sim.h"

#include "snib.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_KILL                                                                                    \
    (MODEL_NO_CLIENT | MODEL_NO_INFO) /* without these rights no client kills another connection */

/* ---- Flows -------------------------------------------------------------------------------------- */

static snib__time delay(snib__time usual)
{
    if (sim_has(FAULT_DELAY) && sim_chance(20)) {
        snib__time long_delay = sim_draw(sim.lease);
        fault_happens(FAULT_DELAY);
        fault_until(sim.now + long_delay);
        return long_delay;
    }
    return sim_between(usual / 10, usual);
}

static void push(struct sim_flow *flow, const char *bytes, size_t n, bool end)
{
    struct sim_chunk *chunk = malloc(sizeof *chunk + n);
    if (chunk == NULL) {
        abort();
    }
    *chunk = (struct sim_chunk){.at = sim.now + delay(flow->delay), .n = n, .end = end};
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

static void push_end(struct sim_flow *flow)
{
    if (!flow->ended) {
        push(flow, NULL, 0, true);
        flow->ended = true;
    }
}

static void push_bytes(struct sim_flow *flow, const char *bytes, size_t n)
{
    bool slices = sim_has(FAULT_SLICE) && sim_chance(4);
    if (slices) {
        fault_happens(FAULT_SLICE);
    }
    while (n > 0 && !flow->ended) {
        size_t most = sim_chance(8) ? 3 : n;
        size_t part = slices ? 1 + sim_draw(most < n ? most : n) : n;
        push(flow, bytes, part, false);
        bytes += part;
        n -= part;
    }
}

static struct sim_chunk *pop(struct sim_flow *flow)
{
    struct sim_chunk *chunk = flow->head;
    flow->head = chunk->next;
    if (flow->head == NULL) {
        flow->tail = NULL;
    }
    return chunk;
}

static void drain(struct sim_flow *flow)
{
    while (flow->head != NULL) {
        free(pop(flow));
    }
}

static snib__time due(const struct sim_flow *flow, snib__time blocked_until)
{
    if (flow->head == NULL) {
        return SNIB__NEVER;
    }
    snib__time at = flow->head->at > flow->frozen_until ? flow->head->at : flow->frozen_until;
    return at > blocked_until ? at : blocked_until;
}

/* ---- Pipes -------------------------------------------------------------------------------------- */

static void drop(struct sim_pipe *pipe)
{
    drain(&pipe->to_server);
    drain(&pipe->to_client);
    *pipe = (struct sim_pipe){0};
}

static void settle(struct sim_pipe *pipe)
{
    if (pipe->client == NULL && pipe->server == 0) {
        drop(pipe);
    }
}

/* The connection ends at both sides, each of which learns of it in its own time; bytes in flight
 * may still arrive. */
static void cut(struct sim_pipe *pipe)
{
    fault_happens(FAULT_CUT);
    fault_until(sim.now);
    push_end(&pipe->to_server);
    push_end(&pipe->to_client);
    if (sim_has(FAULT_LATE) && sim_chance(2)) {
        fault_happens(FAULT_LATE);
        pipe->to_server.frozen_until = sim.now + sim_draw(2 * sim.lease);
    }
    pipe->cut_next = 0;
}

static void send_on(struct sim_pipe *pipe, int direction, const char *bytes, size_t n)
{
    struct sim_flow *flow = direction == 1 ? &pipe->to_server : &pipe->to_client;
    if (pipe->cut_next == direction && n > 0) {
        push_bytes(flow, bytes, sim_draw(n + 1));
        cut(pipe);
    } else {
        push_bytes(flow, bytes, n);
    }
}

void net_connect(struct sim_process *process, int link)
{
    struct sim_endpoint *end = &process->links[link];
    end->connecting = true;
    end->connected_at = sim.now + delay(sim.delay);
}

static void finish_connect(struct sim_process *process, int link)
{
    struct sim_endpoint *end = &process->links[link];
    struct sim_pipe *pipe = sim.pipes;
    end->connecting = false;
    while (pipe < sim.pipes + SIM_PIPES && pipe->used) {
        pipe++;
    }
    bool refused = sim.now < sim.refuse_until;
    if (refused) {
        pairs_happens(sim.refuse_kind, sim.now);
    }
    if (refused || pipe == sim.pipes + SIM_PIPES) {
        snib__engine_link_down(process->engine, process_link(process, link), SNIB_EUNREACHABLE,
                               ECONNREFUSED, sim_clock(process));
        return;
    }
    sim.pipes_end = pipe < sim.pipes_end ? sim.pipes_end : pipe + 1;
    *pipe = (struct sim_pipe){.used = true, .client = process, .link = link};
    pipe->spared = (sim.server_faults & NO_KILL) != 0;
    pipe->server = model_connect(sim.model);
    pipe->to_server.delay = pipe->to_client.delay =
        link == SNIB__PUBSUB ? sim.pubsub_delay : sim.delay;
    end->pipe = pipe;
    process->connects++;
    sim_trace("%u/%d connected", process->id, link);
    snib__engine_link_up(process->engine, process_link(process, link), sim_clock(process));
}

void net_close(struct sim_process *process, int link)
{
    struct sim_endpoint *end = &process->links[link];
    struct sim_pipe *pipe = end->pipe;
    end->connecting = false;
    end->pipe = NULL;
    if (pipe == NULL) {
        return;
    }
    sim_trace("%u/%d closed by the client", process->id, link);
    process->left_at = pipe->logged_out ? sim.now : process->left_at;
    pipe->client = NULL;
    pipe->spared |= (sim.server_faults & NO_KILL) != 0;
    drain(&pipe->to_client);
    pipe->to_client.ended = true;
    if (sim.calm) {
        pipe->to_server.frozen_until = 0;
    }
    push_end(&pipe->to_server);
    settle(pipe);
}

void net_send(struct sim_process *process, int link, const char *bytes, size_t n)
{
    struct sim_pipe *pipe = process->links[link].pipe;
    if (pipe != NULL) {
        totals.lanes += link > SNIB__PUBSUB;
        pipe->greeting += pipe->heard ? 0 : n;
        send_on(pipe, 1, bytes, n);
    }
}

void net_server_died(void)
{
    for (struct sim_pipe *pipe = sim.pipes; pipe < sim.pipes_end; pipe++) {
        if (pipe->used && pipe->server != 0) {
            model_close(sim.model, pipe->server);
            pipe->server = 0;
            drain(&pipe->to_server);
            pipe->to_server.ended = true;
            push_end(&pipe->to_client);
            settle(pipe);
        }
    }
}

void net_spare(void)
{
    for (struct sim_pipe *pipe = sim.pipes; pipe < sim.pipes_end; pipe++) {
        pipe->spared |= pipe->used && pipe->client == NULL;
    }
}

bool net_is_stray(uint64_t server)
{
    for (const struct sim_pipe *pipe = sim.pipes; pipe < sim.pipes_end; pipe++) {
        if (pipe->used && pipe->server == server) {
            return pipe->spared && pipe->client == NULL;
        }
    }
    return false;
}

void net_log_out(void)
{
    for (struct sim_pipe *pipe = sim.pipes; pipe < sim.pipes_end; pipe++) {
        if (pipe->used && pipe->server != 0) {
            model_log_out(sim.model, pipe->server);
            pipe->logged_out = true;
        }
    }
}

/* Everything that is stuck moves on. */
void net_heal(void)
{
    for (struct sim_pipe *pipe = sim.pipes; pipe < sim.pipes_end; pipe++) {
        pipe->to_server.frozen_until = 0;
        pipe->to_client.frozen_until = 0;
        pipe->cut_next = 0;
    }
}

struct sim_pipe *net_pick(void)
{
    struct sim_pipe *pipe = &sim.pipes[sim_draw(SIM_PIPES)];
    for (int i = 0; i < SIM_PIPES; i++, pipe++) {
        pipe = pipe == sim.pipes + SIM_PIPES ? sim.pipes : pipe;
        if (pipe->used && pipe->client != NULL && pipe->server != 0) {
            return pipe;
        }
    }
    return NULL;
}

/* ---- Events ------------------------------------------------------------------------------------- */

struct sim_process *net_client(uint64_t connection)
{
    for (struct sim_pipe *pipe = sim.pipes; pipe < sim.pipes_end; pipe++) {
        if (pipe->used && pipe->server == connection && pipe->link != SNIB__PUBSUB) {
            return pipe->client;
        }
    }
    return NULL;
}

void net_collect(void)
{
    for (struct sim_pipe *pipe = sim.pipes; pipe < sim.pipes_end; pipe++) {
        const char *bytes;
        if (!pipe->used || pipe->server == 0) {
            continue;
        }
        size_t n = model_output(sim.model, pipe->server, &bytes);
        if (pipe->client != NULL) {
            send_on(pipe, 2, bytes, n);
        }
        if (!model_is_open(sim.model, pipe->server)) {
            model_close(sim.model, pipe->server);
            pipe->server = 0;
            drain(&pipe->to_server);
            pipe->to_server.ended = true;
            push_end(&pipe->to_client);
            settle(pipe);
        }
    }
}

static void arrive_at_server(struct sim_pipe *pipe)
{
    struct sim_chunk *chunk = pop(&pipe->to_server);
    if (chunk->end) {
        model_close(sim.model, pipe->server);
        pipe->server = 0;
        push_end(&pipe->to_client);
        settle(pipe);
    } else {
        pipe->spared |= pipe->greeting > 0 && (sim.server_faults & NO_KILL) != 0;
        pipe->greeting -= chunk->n < pipe->greeting ? chunk->n : pipe->greeting;
        model_input(sim.model, pipe->server, chunk->bytes, chunk->n);
        net_collect();
    }
    free(chunk);
}

static void arrive_at_client(struct sim_pipe *pipe)
{
    struct sim_process *process = pipe->client;
    struct sim_chunk *chunk = pop(&pipe->to_client);
    int link = pipe->link;
    if (chunk->end) {
        totals.lanes_lost += link > SNIB__PUBSUB;
        sim_trace("%u/%d lost by the client", process->id, link);
        process->links[link].pipe = NULL;
        pipe->client = NULL;
        pipe->spared |= (sim.server_faults & NO_KILL) != 0;
        push_end(&pipe->to_server);
        settle(pipe);
        snib__engine_link_down(process->engine, process_link(process, link), SNIB_EUNREACHABLE,
                               ECONNRESET, sim_clock(process));
    } else {
        pipe->heard = true;
        check_input(process, process_link(process, link), chunk->bytes, chunk->n);
    }
    free(chunk);
    process_go_on(process);
}

static snib__time server_due(const struct sim_pipe *pipe)
{
    return pipe->used && pipe->server != 0 ? due(&pipe->to_server, sim.server_paused_until)
                                           : SNIB__NEVER;
}

static snib__time client_due(const struct sim_pipe *pipe)
{
    if (!pipe->used || pipe->client == NULL) {
        return SNIB__NEVER;
    }
    snib__time at = due(&pipe->to_client, pipe->client->frozen_until);
    /* Finish first what the process had begun when it was stopped. */
    return pipe->client->unpumped && at < SNIB__NEVER && at <= pipe->client->frozen_until
               ? pipe->client->frozen_until + 1
               : at;
}

static snib__time connect_due(const struct sim_process *process, int link)
{
    const struct sim_endpoint *end = &process->links[link];
    if (process->engine == NULL || !end->connecting) {
        return SNIB__NEVER;
    }
    snib__time from = process->frozen_until + process->unpumped;
    return end->connected_at > from ? end->connected_at : from;
}

snib__time net_next(void)
{
    snib__time next = SNIB__NEVER;
    for (const struct sim_pipe *pipe = sim.pipes; pipe < sim.pipes_end; pipe++) {
        if (pipe->to_server.head != NULL || pipe->to_client.head != NULL) {
            snib__time at = server_due(pipe);
            next = at < next ? at : next;
            at = client_due(pipe);
            next = at < next ? at : next;
        }
    }
    for (int i = 0; i < sim.slot_count; i++) {
        for (int link = 0; link < SIM_LINKS; link++) {
            if (sim.slots[i]->links[link].connecting) {
                snib__time at = connect_due(sim.slots[i], link);
                next = at < next ? at : next;
            }
        }
    }
    return next;
}

bool net_run(void)
{
    for (struct sim_pipe *pipe = sim.pipes; pipe < sim.pipes_end; pipe++) {
        if (server_due(pipe) <= sim.now) {
            arrive_at_server(pipe);
            return true;
        }
        if (client_due(pipe) <= sim.now) {
            arrive_at_client(pipe);
            return true;
        }
    }
    for (int i = 0; i < sim.slot_count; i++) {
        struct sim_process *process = sim.slots[i];
        for (int link = 0; link < SIM_LINKS; link++) {
            if (process->links[link].connecting && connect_due(process, link) <= sim.now) {
                finish_connect(process, link);
                process_go_on(process);
                return true;
            }
        }
    }
    return false;
}

void net_free(void)
{
    for (struct sim_pipe *pipe = sim.pipes; pipe < sim.pipes_end; pipe++) {
        drop(pipe);
    }
}
