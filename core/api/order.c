/* order.c - see order.h.
 *
 * A new edge closes a circle if its end leads back to its beginning: a search in breadth, so that the
 * shortest circle is told.  A lock can be reached in two ways, by reading and by writing, which lead on to
 * different edges, so each is looked at once. */
#include "api/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORDER_BUCKETS 1024

struct order_edge {
    struct order_edge *next; /* of those that begin at the same lock */
    struct order_lock *from, *to;
    bool held_reads, taken_reads;
    char held_place[SNIB__SITE_CAP], taken_place[SNIB__SITE_CAP];
};

/* A lock as a search came to it: by writing or by reading. */
struct order_way {
    uint32_t search; /* the last one that did */
    const struct order_edge *by;
    const struct order_way
        *before;            /* the one that `by` begins at; NULL: the search began with it */
    struct order_way *next; /* in the search's queue */
};

struct order_lock {
    struct order_lock *next; /* in its bucket */
    uint64_t id;
    struct order_edge *edges;
    struct order_way ways[2];
    char shown[SNIB__ORDER_NAME_CAP];
};

static struct order_lock *order_locks[ORDER_BUCKETS];
static uint32_t order_edges, order_searches;

static struct order_lock *order_find(const struct snib__order_name *name)
{
    struct order_lock *lock = order_locks[name->id % ORDER_BUCKETS];
    while (lock && lock->id != name->id)
        lock = lock->next;
    return lock;
}

static struct order_lock *order_lock(const struct snib__order_name *name)
{
    struct order_lock **bucket = &order_locks[name->id % ORDER_BUCKETS];
    struct order_lock *lock = order_find(name);
    if (lock || !(lock = calloc(1, sizeof *lock)))
        return lock;
    lock->id = name->id;
    memcpy(lock->shown, name->shown, sizeof lock->shown);
    lock->next = *bucket;
    return *bucket = lock;
}

static bool order_known(const struct snib__order_name *held, const struct snib__order_name *taken)
{
    const struct order_lock *from = order_find(held);
    const struct order_edge *edge = from ? from->edges : NULL;
    while (edge && (edge->to->id != taken->id || edge->held_reads != held->reads ||
                    edge->taken_reads != taken->reads))
        edge = edge->next;
    return edge != NULL;
}

/* ---- circles ---- */

struct order_search {
    struct order_way *head, *tail; /* to go on from */
};

static void order_meet(struct order_search *s, const struct order_edge *by,
                       const struct order_way *before)
{
    struct order_way *way = &by->to->ways[by->taken_reads];
    if (way->search == order_searches)
        return;
    *way = (struct order_way){order_searches, by, before, NULL};
    if (s->head)
        s->tail->next = way;
    else
        s->head = way;
    s->tail = way;
}

/* Whether who takes it this way may have to wait for one who holds it that way. */
static bool order_waits(const struct order_edge *takes, const struct order_edge *holds)
{
    return !(takes->taken_reads && holds->held_reads);
}

/* How the end of the edge leads to its beginning; NULL: it does not. */
static const struct order_way *order_search(const struct order_edge *edge)
{
    struct order_search s = {NULL, NULL};
    order_searches++;
    order_meet(&s, edge, NULL);
    for (; s.head; s.head = s.head->next) {
        const struct order_lock *lock = s.head->by->to;
        if (lock == edge->from && order_waits(s.head->by, edge))
            return s.head;
        for (const struct order_edge *on = lock->edges; on; on = on->next)
            if (order_waits(s.head->by, on))
                order_meet(&s, on, s.head);
    }
    return NULL;
}

static uint32_t order_tell(const struct order_way *last, struct snib__order_step *steps)
{
    uint32_t n = 0, i;
    for (const struct order_way *way = last; way; way = way->before)
        n++;
    i = n;
    for (const struct order_way *way = last; way; way = way->before)
        if (--i < SNIB__ORDER_STEPS)
            steps[i] = (struct snib__order_step){way->by->from->shown, way->by->held_place,
                                                 way->by->to->shown, way->by->taken_place};
    return n;
}

/* ---- edges ---- */

static enum snib__order order_full(void)
{
    bool told = order_edges > SNIB__ORDER_MAX;
    order_edges = SNIB__ORDER_MAX + 1;
    return told ? SNIB__ORDER_FINE : SNIB__ORDER_FULL;
}

enum snib__order snib__order_note(const struct snib__order_name *held, const char *held_place,
                                  const struct snib__order_name *taken, const char *taken_place,
                                  struct snib__order_step steps[SNIB__ORDER_STEPS], uint32_t *out_n)
{
    if (order_known(held, taken))
        return SNIB__ORDER_FINE;
    if (order_edges >= SNIB__ORDER_MAX)
        return order_full();
    struct order_lock *from = order_lock(held), *to = order_lock(taken);
    struct order_edge *edge = from && to ? calloc(1, sizeof *edge) : NULL;
    if (!edge)
        return SNIB__ORDER_FINE;
    edge->next = from->edges;
    edge->from = from;
    edge->to = to;
    edge->held_reads = held->reads;
    edge->taken_reads = taken->reads;
    snprintf(edge->held_place, sizeof edge->held_place, "%s", held_place);
    snprintf(edge->taken_place, sizeof edge->taken_place, "%s", taken_place);
    from->edges = edge;
    order_edges++;
    const struct order_way *last = order_search(edge);
    if (!last)
        return SNIB__ORDER_FINE;
    *out_n = order_tell(last, steps);
    return SNIB__ORDER_CIRCLE;
}
