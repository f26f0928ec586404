/* lane.c - further command links of a node, for threads that call at once.
 *
 * A thread that waits for an answer reads it itself.  Two that share a connection wake each other for it, and are
 * slower than on connections of their own; so a node has up to four command links, which are called lanes.  The
 * first is the node: while it is down the node is, renewals and all that nobody waits for go by it.  The others
 * come when threads have met on the first often enough, and go when nobody has wanted them for long.
 *
 *     a thread's request   ->  a lane on which nothing is under way, while few requests are; else the first:
 *                              many go together, in few system calls
 *     the next of a gate   ->  the lane on which an earlier one has no answer yet, for lanes have no order
 *                              among each other
 *
 * What a lost lane leaves unanswered is sent again by the first, behind a CLIENT KILL of the lost connection: what
 * the server has not read of that must not run later.  A lane is of use only to the very process that the first
 * talks to, so where a server does not say which one it is there are none.
 *
 * One more is that of durable.c, which shares the rules about loss and process, and nothing else.
 */
#include "engine/internal.h"

#include <string.h>

#define LANE_IDLE (30000 * SNIB__MS)  /* nobody wants it any more */
#define LANE_FEW 8                    /* requests under way, up to which threads do not share */
#define LANE_MEETINGS 64              /* so many within ... */
#define LANE_WINDOW (100 * SNIB__MS)  /* ... are worth another lane */
#define LANE_FOLLOW (1000 * SNIB__MS) /* the first stays so long where it is */

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

/* Have one more, if one may be had now. */
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

/* Threads have met: often enough for another lane? */
static void lane_met(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    if (now - node->met_since > LANE_WINDOW) {
        node->met_since = now;
        node->met = 0;
    }
    if (++node->met % LANE_MEETINGS == 0)
        lane_open(e, node, now);
}

/* A thread waits for what is to be sent: does another one, too, on every lane? */
static struct snib__link *lane_idle(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__link *idle = NULL;
    uint32_t lanes = lane_count(e, node), under_way = 0, called = 0;
    uint32_t last = e->config.scatter ? (uint32_t)snib__engine_random(e, lanes) : lanes - 1;
    for (uint32_t n = lanes; n-- > 0;) {
        struct snib__link *link = snib__node_lane(node, (n + last + 1) % lanes);
        under_way += link->conn.ring_count;
        called += link->called;
        if (lane_ready(link) && link->conn.ring_count == 0)
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

/* ---- what is under way ---- */

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

/* The request is not on its way any more; its gate may go with it. */
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

/* ---- coming and going ---- */

/* End the connections of lost lanes at the server, by the first and before anything that follows on it.  Another
 * process has numbers of its own, and nothing of theirs.  0, or -1 when out of memory. */
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
        !snib__node_ready(node)) { /* it is not known which one the first will find */
        snib__link_close(e, link, SNIB_OK, now);
        return;
    }
    if (other) {
        node->alone = true; /* the address leads to several servers; until the first is made anew */
        snib__engine_log(e, SNIB_LOG_INFO,
                         "another connection to %s came to another server: there will be one only",
                         snib__node_where(e, node));
        snib__link_close(e, link, SNIB_OK, now);
        /* What counts is decided on that one, so the first follows; but not to and fro between several servers. */
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

/* The first is ready: lanes to another process than it has found are of no use. */
void snib__lane_first_ready(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    node->alone = false;
    for (uint32_t i = 1; i <= SNIB__LANES_MAX; i++) {
        struct snib__link *link = snib__node_lane(node, i);
        if (lane_ready(link) && strcmp(link->conn.run_id, node->run_id) != 0)
            snib__link_close(e, link, SNIB_OK, now);
    }
}

/* Its own connection is not what the node is: others go on. */
void snib__lane_down(struct snib__engine *e, struct snib__link *link, int32_t code, int os_error,
                     snib__time now)
{
    struct snib__node *node = link->node;
    struct snib__request request;
    link->wanted = false;
    if (code != SNIB_OK)
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
