/* order.c - see order.h.
 *
 * A new edge closes a circle if its end leads back to its beginning: a search in breadth, so that the
 * shortest circle is told.  A lock can be reached in two ways, by reading and by writing, which lead on to
 * different edges, so each is looked at once.  So is each with and without an edge of this process on the way,
 * because circles of other processes alone are for those to report. */
#include "api/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORDER_BUCKETS 1024

struct order_edge {
    struct order_edge *next; /* of those that begin at the same lock */
    struct order_lock *from, *to;
    bool held_reads, taken_reads;
    bool foreign;     /* no caller of this process has done it */
    bool heard;       /* ... since snib__order_listen() */
    snib__time until; /* others know it until then; 0: they do not */
    char held_place[SNIB__SITE_CAP], taken_place[SNIB__SITE_CAP];
    char process[SNIB__PROCESS_CAP]; /* of a foreign one */
};

/* A lock as a search came to it. */
struct order_way {
    uint32_t search; /* the last one that did */
    const struct order_edge *by;
    const struct order_way
        *before;            /* the one that `by` begins at; NULL: the search began with it */
    struct order_way *next; /* in the search's queue */
    bool own;               /* there is an edge of this process on the way here */
};

struct order_lock {
    struct order_lock *next; /* in its bucket */
    uint64_t server, name;
    uint32_t uses; /* edges that begin or end here */
    struct order_edge *edges;
    struct order_way ways[2][2]; /* by reading; with an edge of this process */
    char shown[SNIB__ORDER_NAME_CAP];
};

static struct order_lock *order_locks[ORDER_BUCKETS];
static uint32_t order_edges, order_foreign, order_searches;

static struct order_lock **order_at(uint64_t server, uint64_t name)
{
    struct order_lock **at = &order_locks[(server ^ name) % ORDER_BUCKETS];
    while (*at && ((*at)->server != server || (*at)->name != name))
        at = &(*at)->next;
    return at;
}

static struct order_lock *order_lock(const struct snib__order_name *name)
{
    struct order_lock **at = order_at(name->server, name->name), *lock = *at;
    if (!lock && (lock = calloc(1, sizeof *lock))) {
        lock->server = name->server;
        lock->name = name->name;
        memcpy(lock->shown, name->shown, sizeof lock->shown);
        *at = lock;
    }
    if (lock)
        lock->uses++;
    return lock;
}

static void order_unuse(struct order_lock *lock)
{
    if (!lock || --lock->uses > 0)
        return;
    *order_at(lock->server, lock->name) = lock->next;
    free(lock);
}

static struct order_edge *order_find(const struct snib__order_pair *pair)
{
    const struct snib__order_name *held = pair->held, *taken = pair->taken;
    const struct order_lock *from = *order_at(held->server, held->name);
    struct order_edge *edge = from ? from->edges : NULL;
    while (edge && (edge->to->name != taken->name || edge->to->server != taken->server ||
                    edge->held_reads != held->reads || edge->taken_reads != taken->reads))
        edge = edge->next;
    return edge;
}

/* ---- circles ---- */

struct order_search {
    struct order_way *head, *tail; /* to go on from */
};

static void order_meet(struct order_search *s, const struct order_edge *by,
                       const struct order_way *before, bool own)
{
    struct order_way *way = &by->to->ways[by->taken_reads][own];
    if (way->search == order_searches)
        return;
    *way = (struct order_way){order_searches, by, before, NULL, own};
    if (s->head)
        s->tail->next = way;
    else
        s->head = way;
    s->tail = way;
}

/* Whether taking it this way may have to wait for one that holds it that way. */
static bool order_waits(const struct order_edge *takes, const struct order_edge *holds)
{
    return !(takes->taken_reads && holds->held_reads);
}

/* How the end of the edge leads to its beginning; NULL: it does not.
 *
 * own     whether the edge counts as one of this process
 * wanted  whether the circle must have one, or must have none */
static const struct order_way *order_search(const struct order_edge *edge, bool own, bool wanted)
{
    struct order_search s = {NULL, NULL};
    order_searches++;
    order_meet(&s, edge, NULL, own);
    for (; s.head; s.head = s.head->next) {
        const struct order_lock *lock = s.head->by->to;
        if (lock == edge->from && s.head->own == wanted && order_waits(s.head->by, edge))
            return s.head;
        for (const struct order_edge *on = lock->edges; on; on = on->next)
            if (order_waits(s.head->by, on))
                order_meet(&s, on, s.head, s.head->own || !on->foreign);
    }
    return NULL;
}

static uint64_t order_mix(uint64_t hash, uint64_t more)
{
    hash = (hash ^ more) * 0x9e3779b97f4a7c15U;
    return hash ^ hash >> 29;
}

static uint64_t order_id(const struct order_edge *edge)
{
    uint64_t from = order_mix(order_mix(1, edge->from->server), edge->from->name);
    uint64_t to = order_mix(order_mix(from, edge->to->server), edge->to->name);
    return order_mix(to, edge->held_reads * 2U + edge->taken_reads);
}

/* The circle that a way back ends; false: there is none. */
static bool order_circle(const struct order_way *last, struct snib__order_circle *out)
{
    *out = (struct snib__order_circle){.n = 0};
    for (const struct order_way *way = last; way; way = way->before)
        out->n++;
    uint32_t i = out->n;
    for (const struct order_way *way = last; way; way = way->before) {
        const struct order_edge *edge = way->by;
        out->id += order_id(edge); /* wherever it begins */
        out->foreign |= edge->foreign;
        if (--i < SNIB__ORDER_STEPS)
            out->steps[i] =
                (struct snib__order_step){edge->from->shown, edge->held_place, edge->to->shown,
                                          edge->taken_place, edge->foreign ? edge->process : NULL};
    }
    return out->n > 0;
}

/* ---- edges ---- */

static void order_places(struct order_edge *edge, const struct snib__order_pair *pair)
{
    snprintf(edge->held_place, sizeof edge->held_place, "%s", pair->held_place);
    snprintf(edge->taken_place, sizeof edge->taken_place, "%s", pair->taken_place);
    snprintf(edge->process, sizeof edge->process, "%s", pair->process ? pair->process : "");
    edge->foreign = pair->process != NULL;
}

static void order_free(struct order_edge *edge)
{
    order_unuse(edge->from);
    order_unuse(edge->to);
    free(edge);
}

static struct order_edge *order_new(const struct snib__order_pair *pair)
{
    struct order_edge *edge = calloc(1, sizeof *edge);
    if (!edge)
        return NULL;
    edge->from = order_lock(pair->held);
    edge->to = order_lock(pair->taken);
    if (!edge->from || !edge->to) {
        order_free(edge);
        return NULL;
    }
    edge->held_reads = pair->held->reads;
    edge->taken_reads = pair->taken->reads;
    order_places(edge, pair);
    edge->next = edge->from->edges;
    edge->from->edges = edge;
    return edge;
}

static enum snib__order order_full(void)
{
    bool told = order_edges > SNIB__ORDER_MAX;
    order_edges = SNIB__ORDER_MAX + 1;
    return told ? SNIB__ORDER_FINE : SNIB__ORDER_FULL;
}

enum snib__order snib__order_note(const struct snib__order_pair *pair,
                                  struct snib__order_circle *out)
{
    struct order_edge *edge = order_find(pair);
    bool heard = edge != NULL;
    if (edge && !edge->foreign)
        return SNIB__ORDER_FINE;
    if (order_edges >= SNIB__ORDER_MAX)
        return order_full();
    if (!heard && !(edge = order_new(pair)))
        return SNIB__ORDER_FINE;
    order_edges++;
    if (!heard)
        return order_circle(order_search(edge, true, true), out) ? SNIB__ORDER_CIRCLE
                                                                 : SNIB__ORDER_NEW;
    /* Of the circles that it closes, those with another edge of this process have been told. */
    order_places(edge, pair);
    order_foreign--;
    return order_circle(order_search(edge, false, false), out) ? SNIB__ORDER_CIRCLE
                                                               : SNIB__ORDER_NEW;
}

void snib__order_lose(void)
{
    memset(order_locks, 0, sizeof order_locks);
    order_edges = order_foreign = 0;
}

/* ---- other processes ---- */

static bool order_is_at(const struct order_edge *edge, uint64_t server)
{
    return edge->from->server == server && edge->to->server == server;
}

void snib__order_listen(uint64_t server)
{
    for (uint32_t i = 0; i < ORDER_BUCKETS; i++)
        for (struct order_lock *lock = order_locks[i]; lock; lock = lock->next)
            for (struct order_edge *edge = lock->edges; edge; edge = edge->next)
                edge->heard = edge->heard && !order_is_at(edge, server);
}

bool snib__order_hear(const struct snib__order_pair *pair, snib__time until,
                      struct snib__order_circle *out)
{
    struct order_edge *edge = order_find(pair);
    bool known = edge != NULL;
    if (!known && (order_foreign >= SNIB__ORDER_MAX || !(edge = order_new(pair))))
        return false;
    edge->heard = true;
    edge->until = until;
    if (known && edge->foreign)
        order_places(edge, pair); /* another process may have told of it meanwhile */
    order_foreign += !known;
    return !known && order_circle(order_search(edge, false, true), out);
}

static void order_forget(struct order_lock *lock, uint64_t server)
{
    for (struct order_edge **at = &lock->edges, *edge; (edge = *at);) {
        bool gone = !edge->heard && order_is_at(edge, server);
        if (gone && !edge->foreign)
            edge->until = 0;
        if (!gone || !edge->foreign) {
            at = &edge->next;
            continue;
        }
        *at = edge->next;
        order_foreign--;
        order_free(edge);
    }
}

void snib__order_heard(uint64_t server)
{
    for (uint32_t i = 0; i < ORDER_BUCKETS; i++)
        for (struct order_lock *lock = order_locks[i], *next; lock; lock = next) {
            lock->uses++; /* it stays while its edges go, which may take the next one along */
            order_forget(lock, server);
            next = lock->next;
            order_unuse(lock);
        }
}

void snib__order_tell(uint64_t server, snib__time until,
                      bool (*tell)(void *context, const struct snib__order_pair *pair),
                      void *context)
{
    for (uint32_t i = 0; i < ORDER_BUCKETS; i++)
        for (const struct order_lock *lock = order_locks[i]; lock; lock = lock->next)
            for (const struct order_edge *edge = lock->edges; edge; edge = edge->next) {
                if (edge->foreign || edge->until >= until || !order_is_at(edge, server))
                    continue;
                struct snib__order_name held = {lock->server, lock->name, edge->held_reads, ""};
                struct snib__order_name taken = {edge->to->server, edge->to->name,
                                                 edge->taken_reads, ""};
                memcpy(held.shown, lock->shown, sizeof held.shown);
                memcpy(taken.shown, edge->to->shown, sizeof taken.shown);
                struct snib__order_pair pair = {&held, &taken, edge->held_place, edge->taken_place,
                                                NULL};
                if (!tell(context, &pair))
                    return;
            }
}
