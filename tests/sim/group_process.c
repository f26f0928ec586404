/* group_process.c - processes with a client for every node, and the driver's functions as
 * core/api/group.c calls them: leaving a client delivers completions and sends, and carriers are
 * stepped soon after, as by another thread.  Between two steps of a carrier the rest of the world
 * may proceed. */
#include "group_sim.h"

#include "engine/internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"lock:a", "lock:b"};

/* ---- The driver --------------------------------------------------------------------------------- */

snib__time snib__now(void)
{
    return world.now;
}

struct snib__steps *snib__sys_steps(void)
{
    static struct snib__steps steps; /* there is one thread */
    return &steps;
}

void snib__client_ref(struct snib__client *client)
{
    atomic_fetch_add(&client->refs, 1);
}

void snib__client_unref(struct snib__client *client)
{
    if (atomic_fetch_sub(&client->refs, 1) == 1) {
        world_fail("a client was released once too often");
    }
}

bool snib__client_forked(const struct snib__client *client)
{
    (void)client;
    return false;
}

int snib__driver_start(struct snib__driver *driver)
{
    (void)driver;
    return 0;
}

/* A thread that steps a carrier may be interrupted before and after each client, briefly or for long. */
static void preempt(void)
{
    if (!world.stepping || world.nested || !world_has(WORLD_PREEMPT) || world.calm ||
        !world_chance(8)) {
        return;
    }
    fault_happens(WORLD_PREEMPT);
    world.nested = true;
    world_run_until(world.now + world_draw(world_chance(20) ? 2 * world.lease : 8 * world.delay));
    world.nested = false;
}

void snib__driver_enter(struct snib__driver *driver)
{
    preempt();
    peer_enter((struct world_peer *)
                   driver); /* the client is the peer's first member, the driver the client's */
}

void snib__driver_leave(struct snib__driver *driver)
{
    peer_leave((struct world_peer *)driver);
    preempt();
}

void peer_enter(struct world_peer *peer)
{
    if (peer->inside) {
        world_fail("%u enters the client of node %d twice", peer->process->id, peer->node);
    }
    peer->inside = true;
    peer->is_known = false;
    peer->unchecked = true;
}

static bool send_all(struct world_peer *peer)
{
    struct snib__engine *engine = peer->client.driver.engine;
    bool more = false;
    for (int link = 0; link < 2; link++) {
        int wish = snib__engine_take_wish(engine, snib__engine_link(engine, link));
        struct snib__buf *out = snib__link_output(snib__engine_link(engine, link));
        size_t n = snib__buf_size(out);
        if (wish == SNIB__WISH_CLOSE) {
            net_close(peer, link);
        } else if (wish == SNIB__WISH_CONNECT) {
            net_connect(peer, link);
        }
        if (n > 0) {
            net_send(peer, link, out->data + out->head, n);
            snib__buf_consume(out, n);
        }
        more |= n > 0 || wish != SNIB__WISH_NOTHING;
    }
    return more;
}

static bool settle(struct world_peer *peer)
{
    struct snib__driver *driver = &peer->client.driver;
    struct snib__op *op = snib__engine_take_done(driver->engine);
    struct snib__hold *lost = snib__engine_take_lost(driver->engine);
    struct snib__outer *outer = snib__engine_take_outer(driver->engine);
    int32_t level;
    if (op != NULL) {
        lives_done(&peer->lives, op);
    }
    if (op != NULL && op->member != 0) {
        snib__carrier_done(driver, op);
    } else if (op != NULL) {
        task_done(peer->process, op);
    }
    if (lost != NULL && lost->tell == SNIB__TELL_CARRIER) {
        snib__carrier_lost(driver, lost);
    } else if (lost != NULL) {
        task_lost(peer->process, lost);
    }
    if (outer != NULL) {
        snib__carrier_news(driver, outer);
    }
    return op != NULL || lost != NULL || outer != NULL ||
           snib__engine_take_log(driver->engine, &level) != NULL;
}

void peer_leave(struct world_peer *peer)
{
    struct world_process *process = peer->process;
    lives_look(&peer->lives, peer->client.driver.engine);
    while (settle(peer) || send_all(peer)) {
        lives_look(&peer->lives, peer->client.driver.engine);
    }
    peer->settle_at = SNIB__NEVER;
    peer->inside = false;
    if (peer->client.driver.carriers == NULL) {
        return;
    }
    if (process->list_count == WORLD_LISTS) {
        world_fail("%u has too many carriers to step", process->id);
    }
    process->lists[process->list_count++] = peer->client.driver.carriers;
    peer->client.driver.carriers = NULL;
    if (process->list_count == 1) {
        process->step_at = world.now + (world_chance(2) ? 0 : world_draw(WORLD_STEP));
    }
}

/* Leave without delivering, as the driver's thread does when more has come than it can take at
 * once. */
void peer_leave_early(struct world_peer *peer)
{
    lives_look(&peer->lives, peer->client.driver.engine);
    peer->inside = false;
    peer->settle_at = world.now + world_draw(2 * WORLD_STEP);
}

static void step_carriers(struct world_process *process)
{
    snib__time due = process->step_at;
    world.stepping = true;
    while (process->list_count > 0) {
        void *list = process->lists[0];
        process->list_count--;
        memmove(process->lists, process->lists + 1,
                (size_t)process->list_count * sizeof process->lists[0]);
        snib__carrier_steps(list);
        if (world.now > due + WORLD_STEP) {
            process->late_at = world.now;
        }
    }
    world.stepping = false;
    process->step_at = SNIB__NEVER;
}

/* ---- Birth -------------------------------------------------------------------------------------- */

static void new_peer(struct world_process *process, int node)
{
    struct world_peer *peer = &process->peers[node];
    peer->process = process;
    peer->node = node;
    peer->settle_at = SNIB__NEVER;
    atomic_store(&peer->client.refs, 1);
    struct snib__config config = {.login = {.password = world.password},
                                  .seed = world_draw(UINT64_MAX),
                                  .first_number = 1,
                                  .lease = world.lease,
                                  .reply_timeout = world.reply_timeout,
                                  .patience = world.patience,
                                  .try_timeout = world.patience / 3,
                                  .recheck = world.recheck,
                                  .handover_max = 16,
                                  .tenure = true,
                                  .ops_max = 1000,
                                  .home = &peer->client};
    snprintf(config.uuid, sizeof config.uuid, "%08x-%04x-8000-8000-%012llx", process->id,
             (unsigned)(node & 0xff), (unsigned long long)(world.seed & 0xffffffffffff));
    memcpy(peer->client.uuid, config.uuid, sizeof config.uuid);
    peer->client.lease_ms = (int64_t)(world.lease / SNIB__MS);
    peer->client.options.try_timeout_ms = (int64_t)(world.patience / 3 / SNIB__MS);
    peer->client.driver.engine = snib__engine_new(&config);
    char all[64];
    size_t n = 0;
    for (int i = 0; i < WORLD_NAMES; i++) {
        int kind = i == 0 ? SNIB_MUTEX : world.second_kind;
        peer->gates[i] =
            snib__gate_get(peer->client.driver.engine, kind, names[i], strlen(names[i]));
        char letter = kind == SNIB_MUTEX    ? 'm'
                      : kind == SNIB_SPIN   ? 's'
                      : kind == SNIB_FENCED ? 'f'
                      : kind == SNIB_READ   ? 'r'
                                            : 'w';
        n += (size_t)snprintf(all + n, sizeof all - n, "%c%s", letter, names[i]) + 1;
    }
    peer->gates[WORLD_NAMES] = snib__gate_get(peer->client.driver.engine, SNIB__MULTI, all, n);
}

static void new_lock(struct world_process *process, int index)
{
    const struct world_lock *is = &world.locks[index];
    struct snib__lock *lock = &process->locks[index];
    struct snib__parts *parts = calloc(1, sizeof *parts + is->n * sizeof parts->part[0]);
    if (parts == NULL) {
        abort();
    }
    atomic_store(&parts->refs, 1);
    parts->majority = world.majority;
    parts->vote_ms = world.quarantine ? (uint32_t)(world.lease / SNIB__MS) : 0;
    parts->n = is->n;
    for (uint32_t i = 0; i < is->n; i++) {
        struct world_peer *peer = &process->peers[is->part[i].node];
        unsigned set = is->part[i].names;
        parts->part[i].client = &peer->client;
        parts->part[i].gate = peer->gates[set == 1 ? 0 : set == 2 ? 1 : WORLD_NAMES];
        snib__gate_ref(parts->part[i].gate);
        snib__client_ref(&peer->client);
    }
    struct world_peer *home = &process->peers[is->part[world_draw(is->n)].node];
    char text[16];
    size_t n = (size_t)snprintf(text, sizeof text, "mgroup %d", index) + 1;
    *lock = (struct snib__lock){.client = &home->client,
                                .parts = parts,
                                .kind = SNIB__OUTER,
                                .lease_ms = (int64_t)(is->lease / SNIB__MS)};
    lock->gate = snib__gate_get(home->client.driver.engine, SNIB__OUTER, text, n);
}

struct world_process *process_new(int slot)
{
    struct world_process *process = calloc(1, sizeof *process);
    if (process == NULL) {
        abort();
    }
    process->id = world.process_count;
    process->ends_at = process->step_at = SNIB__NEVER;
    world.processes[world.process_count++] = process;
    world.slots[slot] = process;
    for (int i = 0; i < world.node_count; i++) {
        new_peer(process, i);
    }
    for (int i = 0; i < world.lock_count; i++) {
        new_lock(process, i);
    }
    for (int i = 0; i < WORLD_TASKS; i++) {
        process->tasks[i].wake =
            i < world.task_count ? world.now + world_draw(world.think) : SNIB__NEVER;
    }
    world_trace("%u begins", process->id);
    return process;
}

/* ---- Ends --------------------------------------------------------------------------------------- */

void process_close_peer(struct world_peer *peer)
{
    if (peer->client.stopped) {
        return;
    }
    world_trace("%u closes the client of node %d", peer->process->id, peer->node);
    peer_enter(peer);
    snib__engine_close(peer->client.driver.engine, world.now);
    peer->client.stopped = true;
    peer_leave(peer);
}

static void close_peers(struct world_process *process)
{
    int first = (int)world_draw((uint64_t)world.node_count);
    for (int i = 0; i < world.node_count; i++) {
        process_close_peer(&process->peers[(first + i) % world.node_count]);
    }
    task_leave_all(process);
}

/* An orderly end that gives everything back. */
void process_close(struct world_process *process)
{
    if (process->closing) {
        return;
    }
    process->closing = true;
    process->ends_at = world.now + world_draw(2 * world.lease);
    close_peers(process);
}

/* Dies abruptly, as by kill -9.  What remains of it runs on without effect, until its memory can be
 * freed. */
void process_kill(struct world_process *process)
{
    world_trace("%u is dead", process->id);
    process->dead = process->closing = true;
    process->ends_at = SNIB__NEVER;
    process->frozen_until = 0;
    for (int i = 0; i < world.node_count; i++) {
        net_close(&process->peers[i], SNIB__COMMAND);
        net_close(&process->peers[i], SNIB__PUBSUB);
    }
    close_peers(process);
}

void process_free(struct world_process *process)
{
    for (int i = 0; i < world.lock_count; i++) {
        struct snib__lock *lock = &process->locks[i];
        snib__gate_put(lock->client->driver.engine, lock->gate);
        snib__parts_unref(lock->parts);
    }
    for (int i = 0; i < world.node_count; i++) {
        struct world_peer *peer = &process->peers[i];
        for (int j = 0; j <= WORLD_NAMES; j++) {
            snib__gate_put(peer->client.driver.engine, peer->gates[j]);
        }
        if (atomic_load(&peer->client.refs) != 1) {
            world_fail("a client of %u is still referenced", process->id);
        }
        lives_free(&peer->lives);
        snib__engine_free(peer->client.driver.engine);
    }
    free(process);
}

bool process_is_idle(const struct world_process *process)
{
    for (int i = 0; i < WORLD_TASKS; i++) {
        if (process->tasks[i].doing != WORLD_RESTS) {
            return false;
        }
    }
    return true;
}

/* ---- Time --------------------------------------------------------------------------------------- */

/* An engine's deadline, looked at once for as long as nobody comes inside. */
static snib__time deadline_of(struct world_peer *peer)
{
    if (!peer->is_known) {
        peer->deadline = snib__engine_deadline(peer->client.driver.engine);
        peer->is_known = !peer->inside;
    }
    assert(peer->deadline == snib__engine_deadline(peer->client.driver.engine));
    return peer->deadline;
}

snib__time process_next(struct world_process *process)
{
    snib__time next = world.stepping ? SNIB__NEVER : process->step_at;
    for (int i = 0; i < world.node_count; i++) {
        struct world_peer *peer = &process->peers[i];
        snib__time at = deadline_of(peer);
        next = at < next ? at : next;
        next = peer->settle_at < next ? peer->settle_at : next;
    }
    for (int i = 0; i < WORLD_TASKS; i++) {
        next = process->tasks[i].wake < next ? process->tasks[i].wake : next;
    }
    next = process->ends_at < next ? process->ends_at : next;
    return next > process->frozen_until ? next : process->frozen_until;
}

static void tick(struct world_peer *peer)
{
    struct world_process *process = peer->process;
    process->ticks = process->last_tick == world.now ? process->ticks + 1 : 1;
    process->last_tick = world.now;
    if (process->ticks > 1000) {
        world_fail("%u: the deadline of the client of node %d does not move", process->id,
                   peer->node);
    }
    peer_enter(peer);
    snib__engine_tick(peer->client.driver.engine, world.now);
    peer_leave(peer);
}

static void end(struct world_process *process)
{
    process->ends_at = SNIB__NEVER;
    if (world.winding_down || world.process_count == WORLD_PROCESSES) {
        return;
    }
    int slot = 0;
    while (world.slots[slot] != process) {
        slot++;
    }
    process_kill(process);
    process_new(slot);
}

void process_run(struct world_process *process)
{
    if (process->ends_at <= world.now) {
        end(process);
        return;
    }
    for (int i = 0; i < world.node_count; i++) {
        struct world_peer *peer = &process->peers[i];
        if (peer->settle_at <= world.now) {
            peer_enter(peer);
            peer_leave(peer);
            return;
        }
        if (deadline_of(peer) <= world.now) {
            tick(peer);
            return;
        }
    }
    if (!world.stepping && process->step_at <= world.now) {
        step_carriers(process);
        return;
    }
    for (int i = 0; i < WORLD_TASKS; i++) {
        if (process->tasks[i].wake <= world.now) {
            task_move(process, &process->tasks[i]);
            return;
        }
    }
}
