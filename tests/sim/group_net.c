/* group_net.c - the network between processes and nodes: ordered bytes that may be late, cut or
 * stuck.
 *
 * A pipe has two flows.  The client's end may go while bytes are still in flight: they arrive, and
 * the node acts on them, after the client has begun something else.
 */
#include "group_sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Flows -------------------------------------------------------------------------------------- */

static snib__time delay(void)
{
    if (world_has(WORLD_DELAY) && world_chance(20)) {
        fault_happens(WORLD_DELAY);
        return world_draw(world.lease);
    }
    return world_between(world.delay / 10, world.delay);
}

static void push(struct world_flow *flow, const char *bytes, size_t n, bool end)
{
    struct world_chunk *chunk = malloc(sizeof *chunk + n);
    if (chunk == NULL) {
        abort();
    }
    *chunk = (struct world_chunk){.at = world.now + delay(), .n = n, .end = end};
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

static void push_end(struct world_flow *flow)
{
    if (!flow->ended) {
        push(flow, NULL, 0, true);
        flow->ended = true;
    }
}

static struct world_chunk *pop(struct world_flow *flow)
{
    struct world_chunk *chunk = flow->head;
    flow->head = chunk->next;
    if (flow->head == NULL) {
        flow->tail = NULL;
    }
    return chunk;
}

static void drain(struct world_flow *flow)
{
    while (flow->head != NULL) {
        free(pop(flow));
    }
}

static snib__time due(const struct world_flow *flow, snib__time blocked_until)
{
    if (flow->head == NULL) {
        return SNIB__NEVER;
    }
    snib__time at = flow->head->at > flow->frozen_until ? flow->head->at : flow->frozen_until;
    return at > blocked_until ? at : blocked_until;
}

/* ---- Pipes -------------------------------------------------------------------------------------- */

static void settle(struct world_pipe *pipe)
{
    if (pipe->client == NULL && pipe->server == 0) {
        drain(&pipe->to_server);
        drain(&pipe->to_client);
        *pipe = (struct world_pipe){0};
    }
}

static void end_server(struct world_pipe *pipe)
{
    model_close(world.nodes[pipe->node].model, pipe->server);
    pipe->server = 0;
    drain(&pipe->to_server);
    pipe->to_server.ended = true;
    push_end(&pipe->to_client);
    settle(pipe);
}

/* The connection ends at both sides, each of which learns of it in its own time; bytes in flight
 * may still arrive. */
static void cut(struct world_pipe *pipe)
{
    fault_happens(WORLD_CUT);
    push_end(&pipe->to_server);
    push_end(&pipe->to_client);
    if (world_has(WORLD_LATE) && world_chance(2)) {
        fault_happens(WORLD_LATE);
        pipe->to_server.frozen_until = world.now + world_draw(2 * world.lease);
    }
    if (pipe->client != NULL) {
        fault_until(&pipe->client->troubled_until, pipe->to_server.frozen_until > world.now
                                                       ? pipe->to_server.frozen_until
                                                       : world.now);
    }
    pipe->cut_next = 0;
}

static void send_on(struct world_pipe *pipe, int direction, const char *bytes, size_t n)
{
    struct world_flow *flow = direction == 1 ? &pipe->to_server : &pipe->to_client;
    bool cuts = pipe->cut_next == direction;
    size_t kept = cuts ? world_draw(n + 1) : n;
    if (kept > 0 && !flow->ended) {
        push(flow, bytes, kept, false);
    }
    if (cuts) {
        cut(pipe);
    }
}

void net_connect(struct world_peer *peer, int link)
{
    struct world_endpoint *end = &peer->links[link];
    end->connecting = true;
    end->connected_at = world.now + delay();
}

static void finish_connect(struct world_peer *peer, int link)
{
    struct world_endpoint *end = &peer->links[link];
    const struct world_node *node = &world.nodes[peer->node];
    struct world_pipe *pipe = world.pipes;
    end->connecting = false;
    while (pipe < world.pipes + WORLD_PIPES && pipe->used) {
        pipe++;
    }
    peer_enter(peer);
    bool refused = world.now < node->refuse_until;
    if (refused && !node->dead) {
        pairs_happens(node->refuse_kind, world.now);
    }
    if (node->dead || refused || pipe == world.pipes + WORLD_PIPES) {
        snib__engine_link_down(peer->client.driver.engine,
                               snib__engine_link(peer->client.driver.engine, link),
                               SNIB_EUNREACHABLE, ECONNREFUSED, world.now);
    } else {
        world.pipes_end = pipe < world.pipes_end ? world.pipes_end : pipe + 1;
        *pipe = (struct world_pipe){.used = true, .client = peer, .link = link, .node = peer->node};
        pipe->server = model_connect(node->model);
        end->pipe = pipe;
        snib__engine_link_up(peer->client.driver.engine,
                             snib__engine_link(peer->client.driver.engine, link), world.now);
    }
    peer_leave(peer);
}

void net_close(struct world_peer *peer, int link)
{
    struct world_endpoint *end = &peer->links[link];
    struct world_pipe *pipe = end->pipe;
    end->connecting = false;
    end->pipe = NULL;
    if (pipe == NULL) {
        return;
    }
    pipe->client = NULL;
    drain(&pipe->to_client);
    pipe->to_client.ended = true;
    if (world.calm) {
        pipe->to_server.frozen_until = 0;
    }
    push_end(&pipe->to_server);
    settle(pipe);
}

void net_send(struct world_peer *peer, int link, const char *bytes, size_t n)
{
    struct world_pipe *pipe = peer->links[link].pipe;
    if (pipe != NULL) {
        send_on(pipe, 1, bytes, n);
    }
}

void net_node_died(int node)
{
    for (struct world_pipe *pipe = world.pipes; pipe < world.pipes_end; pipe++) {
        if (pipe->used && pipe->node == node && pipe->server != 0) {
            end_server(pipe);
        }
    }
}

/* Everything that is stuck moves on. */
void net_heal(void)
{
    for (struct world_pipe *pipe = world.pipes; pipe < world.pipes_end; pipe++) {
        pipe->to_server.frozen_until = pipe->to_client.frozen_until = 0;
        pipe->cut_next = 0;
    }
}

struct world_pipe *net_pick(void)
{
    struct world_pipe *pipe = &world.pipes[world_draw(WORLD_PIPES)];
    for (int i = 0; i < WORLD_PIPES; i++, pipe++) {
        pipe = pipe == world.pipes + WORLD_PIPES ? world.pipes : pipe;
        if (pipe->used && pipe->client != NULL && pipe->server != 0) {
            return pipe;
        }
    }
    return NULL;
}

/* ---- Events ------------------------------------------------------------------------------------- */

/* Move what a node has written into its pipes. */
static void collect(int node)
{
    for (struct world_pipe *pipe = world.pipes; pipe < world.pipes_end; pipe++) {
        const char *bytes;
        if (!pipe->used || pipe->server == 0 || pipe->node != node) {
            continue;
        }
        size_t n = model_output(world.nodes[node].model, pipe->server, &bytes);
        if (pipe->client != NULL && n > 0) {
            send_on(pipe, 2, bytes, n);
        }
        if (!model_is_open(world.nodes[node].model, pipe->server)) {
            end_server(pipe);
        }
    }
}

static void arrive_at_server(struct world_pipe *pipe)
{
    struct world_chunk *chunk = pop(&pipe->to_server);
    int node = pipe->node;
    if (chunk->end) {
        end_server(pipe);
    } else {
        model_input(world.nodes[node].model, pipe->server, chunk->bytes, chunk->n);
        collect(node);
    }
    free(chunk);
}

static void arrive_at_client(struct world_pipe *pipe)
{
    struct world_peer *peer = pipe->client;
    struct world_chunk *chunk = pop(&pipe->to_client);
    int link = pipe->link;
    peer_enter(peer);
    if (chunk->end) {
        peer->links[link].pipe = NULL;
        pipe->client = NULL;
        push_end(&pipe->to_server);
        settle(pipe);
        snib__engine_link_down(peer->client.driver.engine,
                               snib__engine_link(peer->client.driver.engine, link),
                               SNIB_EUNREACHABLE, ECONNRESET, world.now);
    } else {
        snib__engine_input(peer->client.driver.engine,
                           snib__engine_link(peer->client.driver.engine, link), chunk->bytes,
                           chunk->n, world.now);
    }
    if (world_has(WORLD_PREEMPT) && !world.calm && world_chance(3)) {
        peer_leave_early(peer);
    } else {
        peer_leave(peer);
    }
    free(chunk);
}

static snib__time server_due(const struct world_pipe *pipe)
{
    if (!pipe->used || pipe->server == 0 || world.nodes[pipe->node].dead) {
        return SNIB__NEVER;
    }
    return due(&pipe->to_server, world.nodes[pipe->node].paused_until);
}

static snib__time client_due(const struct world_pipe *pipe)
{
    return pipe->used && pipe->client != NULL
               ? due(&pipe->to_client, pipe->client->process->frozen_until)
               : SNIB__NEVER;
}

static snib__time connect_due(const struct world_peer *peer, int link)
{
    const struct world_endpoint *end = &peer->links[link];
    snib__time frozen_until = peer->process->frozen_until;
    if (!end->connecting || peer->process->dead) {
        return SNIB__NEVER;
    }
    return end->connected_at > frozen_until ? end->connected_at : frozen_until;
}

snib__time net_next(void)
{
    snib__time next = SNIB__NEVER;
    for (const struct world_pipe *pipe = world.pipes; pipe < world.pipes_end; pipe++) {
        if (!pipe->used) {
            continue;
        }
        snib__time at = server_due(pipe);
        next = at < next ? at : next;
        at = client_due(pipe);
        next = at < next ? at : next;
    }
    for (int i = 0; i < world.slot_count; i++) {
        for (int j = 0; j < 2 * world.node_count; j++) {
            snib__time at = connect_due(&world.slots[i]->peers[j / 2], j % 2);
            next = at < next ? at : next;
        }
    }
    return next;
}

bool net_run(void)
{
    for (struct world_pipe *pipe = world.pipes; pipe < world.pipes_end; pipe++) {
        if (server_due(pipe) <= world.now) {
            arrive_at_server(pipe);
            return true;
        }
        if (client_due(pipe) <= world.now) {
            arrive_at_client(pipe);
            return true;
        }
    }
    for (int i = 0; i < world.slot_count; i++) {
        for (int j = 0; j < 2 * world.node_count; j++) {
            struct world_peer *peer = &world.slots[i]->peers[j / 2];
            if (connect_due(peer, j % 2) <= world.now) {
                finish_connect(peer, j % 2);
                return true;
            }
        }
    }
    return false;
}

void net_free(void)
{
    for (struct world_pipe *pipe = world.pipes; pipe < world.pipes_end; pipe++) {
        drain(&pipe->to_server);
        drain(&pipe->to_client);
    }
}
