/* lane.c - further command links of a node, for threads that call at the same time.
 *
 * A thread that waits for a reply reads it itself.  Two threads on one connection wake each other
 * for every reply, and are slower than on connections of their own; so a node has up to four
 * command links, called lanes.  The first lane stands for the node: the node is down while it is
 * down, and it carries renewals and all requests that no thread waits for.  The others are opened
 * when threads have met on the first often enough, and closed when they have been idle for long.
 *
 *     a thread's request   ->  a lane with nothing in flight, while few requests are in flight;
 *                              otherwise the first: many requests travel in few system calls
 *     the next of a gate   ->  the lane on which an earlier one has no reply yet, for there is
 *                              no order between lanes
 *
 * Requests that a lost lane leaves unanswered are repeated on the first, behind a CLIENT KILL of
 * the lost connection: what the server has not yet read from that must not run later.  A lane is
 * useful only if it reaches the very process that the first talks to, so there are none where a
 * server does not identify itself.
 *
 * One more command link belongs to durable.c; it shares the rules about loss and process, and
 * nothing else.
 */
#include "engine/internal.h"

#include <string.h>

#define LANE_IDLE (30000 * SNIB__MS)  /* unused for this long: close it */
#define LANE_FEW 8                    /* below this many requests in flight threads do not share */
#define LANE_MEETINGS 64              /* this many meetings within ... */
#define LANE_WINDOW (100 * SNIB__MS)  /* ... are worth another lane */
#define LANE_FOLLOW (1000 * SNIB__MS) /* the first lane stays at least this long on a server */

struct snib__link *snib__node_lane(struct snib__node *node, uint32_t i)
{
    return i == 0 ? &node->links[SNIB__COMMAND] : &node->lanes[i - 1];
}

bool snib__lane_is(const struct snib__link *link)
{
    return link->kind == SNIB__COMMAND && link != &link->node->links[SNIB__COMMAND];
}

static bool lane_ready(const struct snib__link *link)
{
    return link->conn.state == SNIB__CONN_READY;
}

static uint32_t lane_count(const struct snib__engine *e, const struct snib__node *node)
{
    bool many = node->kind == SNIB__SERVER && node->run_id[0] && !node->alone;
    return many && e->config.lanes > 1 ? (uint32_t)e->config.lanes : 1;
}

snib__time snib__lane_oldest(const struct snib__node *node)
{
    snib__time oldest = SNIB__NEVER;
    for (uint32_t i = 0; i < SNIB__LANES_MAX - 1; i++)
        if (snib__conn_oldest(&node->lanes[i].conn) < oldest)
            oldest = snib__conn_oldest(&node->lanes[i].conn);
    return oldest;
}

snib__time snib__node_oldest(const struct snib__node *node)
{
    snib__time first = snib__conn_oldest(&node->links[SNIB__COMMAND].conn);
    snib__time further = snib__lane_oldest(node);
    return first < further ? first : further;
}

bool snib__lane_rest(const struct snib__node *node)
{
    for (uint32_t i = 0; i < SNIB__LANES_MAX; i++)
        if (!snib__link_rests(&node->lanes[i]))
            return false;
    return true;
}

/* ---- choosing ---- */

/* Open one more lane if allowed now. */
static void lane_open(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    for (uint32_t i = 1; i < lane_count(e, node); i++) {
        struct snib__link *link = snib__node_lane(node, i);
        if (link->conn.state != SNIB__CONN_DOWN || link->connecting || link->connect ||
            link->conn.kill_id || link->next_try > now)
            continue;
        if (!link->node && snib__link_init(e, link, node, SNIB__COMMAND) < 0)
            return;
        snib__link_want(e, link, now);
        return;
    }
}

/* Threads have met on a lane: count it, and open another lane when that is frequent. */
static void lane_met(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    if (now - node->met_since > LANE_WINDOW) {
        node->met_since = now;
        node->met = 0;
    }
    if (++node->met % LANE_MEETINGS == 0)
        lane_open(e, node, now);
}

/* The lane for a request that a thread waits for; NULL if a thread waits on every
 * lane, or requests are many. */
static struct snib__link *lane_idle(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__link *idle = NULL;
    uint32_t lanes = lane_count(e, node), under_way = 0, called = 0;
    uint32_t first = e->config.scatter ? (uint32_t)snib__engine_random(e, lanes) + 1 : 0;
    for (uint32_t i = first; i < first + lanes; i++) {
        struct snib__link *link = snib__node_lane(node, i < lanes ? i : i - lanes);
        if (!link->node && first == 0)
            break; /* it was never opened, nor were those after it */
        if (!link->node)
            continue;
        under_way += link->conn.ring_count;
        called += link->called;
        if (!idle && lane_ready(link) && link->conn.ring_count == 0)
            idle = link;
    }
    if (under_way >= LANE_FEW)
        return NULL;
    if (e->config.scatter)
        lane_open(e, node, now);
    else if (!idle && called > 0 && lanes > 1)
        lane_met(e, node, now);
    return idle;
}

struct snib__link *snib__lane_for(struct snib__engine *e, struct snib__node *node,
                                  const struct snib__gate *gate, snib__time now)
{
    struct snib__link *lane = NULL;
    if (gate && gate->unanswered > 0 && !snib__durable_is(gate->lane))
        lane = gate->lane->node == node && lane_ready(gate->lane) ? gate->lane : NULL;
    else if (gate && e->calling)
        lane = lane_idle(e, node, now);
    return lane ? lane : &node->links[SNIB__COMMAND];
}

/* ---- requests in flight ---- */

void snib__lane_sent(struct snib__link *link, const struct snib__request *request, snib__time now)
{
    struct snib__gate *gate = request->gate;
    link->used_at = now;
    link->called += request->called;
    if (!gate)
        return;
    gate->lane = link;
    gate->unanswered++;
    snib__gate_ref(gate);
}

/* The request is no longer in flight; this may free its gate. */
void snib__lane_answered(struct snib__engine *e, struct snib__link *link,
                         struct snib__request *request)
{
    struct snib__gate *gate = request->gate;
    if (!gate)
        return;
    link->called -= request->called;
    gate->unanswered--;
    request->gate = NULL;
    snib__gate_put(e, gate);
}

/* ---- opening and closing ---- */

/* End the connections of lost lanes at the server, on the first lane and before anything else on
 * it.  A new server process has never seen these connections.  0, or -1 when out of memory. */
int snib__lane_kill(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__link *first = &node->links[SNIB__COMMAND];
    for (uint32_t i = 0; i < SNIB__LANES_MAX; i++) {
        struct snib__conn *lost = &node->lanes[i].conn;
        struct snib__request kill = {.kind = SNIB__REQ_KILL,
                                     .script = -1,
                                     .subject = &node->lanes[i],
                                     .number = (uint64_t)lost->kill_id};
        if (lost->left)
            snib__node_unended(e, node, true);
        lost->left = false;
        if (lost->kill_id == 0)
            continue;
        if (strcmp(lost->kill_run, first->conn.run_id) != 0)
            lost->kill_id = 0;
        else if (snib__link_write(e, first, &kill, now) < 0)
            return -1;
    }
    return 0;
}

void snib__lane_ready(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    struct snib__node *node = link->node;
    const struct snib__conn *first = &node->links[SNIB__COMMAND].conn;
    bool other = strcmp(link->conn.run_id, node->run_id) != 0;
    if (other && snib__durable_is(link) &&
        !snib__node_ready(node)) { /* the server that the first will reach is unknown */
        snib__link_close(e, link, SNIB_OK, now);
        return;
    }
    if (other) {
        /* the address leads to several servers; until the first lane reconnects */
        node->alone = true;
        snib__engine_log(
            e, SNIB_LOG_INFO,
            "a further connection to %s reached another server: using only one connection",
            snib__node_where(e, node));
        snib__link_close(e, link, SNIB_OK, now);
        /* Durability is decided on that server, so the first lane follows; but not back and
         * forth between several servers. */
        if (snib__durable_is(link) && now > node->ready_since + LANE_FOLLOW)
            snib__link_close(e, &node->links[SNIB__COMMAND], SNIB_EUNREACHABLE, now);
        return;
    }
    link->conn.publish = first->publish;
    link->conn.delifeq = link->conn.delifeq && first->delifeq;
    link->conn.delex = link->conn.delex && first->delex;
    link->used_at = now;
    if (snib__durable_is(link))
        snib__durable_ready(e, link, now);
}

/* The first lane is ready: lanes to another process than its own are useless.  So are those from before its process was
 * demoted and promoted again: what is still answered there may be what it did before, and has forgotten. */
void snib__lane_first_ready(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    node->alone = false;
    for (uint32_t i = 1; i <= SNIB__LANES_MAX; i++) {
        struct snib__link *link = snib__node_lane(node, i);
        bool other = lane_ready(link) && strcmp(link->conn.run_id, node->run_id) != 0;
        bool before = lane_ready(link) && link->conn.history && node->history &&
                      link->conn.history != node->history;
        if (other || before)
            snib__link_close(e, link, SNIB_OK, now);
    }
}

/* A lost lane does not take the node down: the others go on. */
void snib__lane_down(struct snib__engine *e, struct snib__link *link, int32_t code, int os_error,
                     snib__time now)
{
    struct snib__node *node = link->node;
    struct snib__request request;
    link->wanted = false;
    if (code != SNIB_OK && !node->leaving)
        snib__engine_log(e, SNIB_LOG_INFO, "lost one of the connections to %s",
                         snib__node_where(e, node));
    if (snib__node_ready(node) && snib__lane_kill(e, node, now) < 0)
        snib__link_close(e, &node->links[SNIB__COMMAND], SNIB_ENOMEM, now);
    while (snib__conn_orphan(&link->conn, &request)) {
        snib__lane_answered(e, link, &request);
        snib__node_orphan(e, &request, code, os_error, now);
    }
    if (snib__durable_is(link))
        snib__durable_down(e, link, code, os_error, now);
}

void snib__lane_close_all(struct snib__engine *e, struct snib__node *node, int32_t code,
                          snib__time now)
{
    for (uint32_t i = 1; i <= SNIB__LANES_MAX; i++) {
        struct snib__link *link = snib__node_lane(node, i);
        if (link->conn.state != SNIB__CONN_DOWN || link->connecting)
            snib__link_close(e, link, code, now);
        link->connect = false;
    }
}

/* ---- time ---- */

static snib__time lane_idle_at(const struct snib__link *link)
{
    bool idle = snib__lane_is(link) && lane_ready(link) && link->conn.ring_count == 0;
    return idle ? link->used_at + LANE_IDLE : SNIB__NEVER;
}

void snib__lane_tick(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    if (lane_idle_at(link) <= now)
        snib__link_close(e, link, SNIB_OK, now);
}

snib__time snib__lane_deadline(const struct snib__link *link)
{
    return lane_idle_at(link);
}
