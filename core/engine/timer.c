/* timer.c - a binary heap of deadlines that arrive in no order: waits, fixed leases, re-checks.
 *
 * Each subject stores its place, so that it can be moved or taken out; place 0 means "not in here".
 * Renewals are not in here: with one lease length they are a sorted list (watchdog.c).
 *
 * Room is reserved with each subject's memory, so setting a timer cannot fail: nothing that has
 * begun, above all the retry of a release, is left unfinished for lack of memory.
 */
#include "engine/internal.h"

#include <stdlib.h>

#define TIMER_WHAT ((uintptr_t) _Alignof(uint32_t) - 1)

enum snib__timer_what snib__timer_what(struct snib__timer timer)
{
    return (enum snib__timer_what)(timer.where & TIMER_WHAT);
}

uint32_t *snib__timer_at(struct snib__timer timer)
{
    return (uint32_t *)(timer.where & ~TIMER_WHAT);
}

void *snib__timer_subject(struct snib__timer timer)
{
    static const size_t offsets[] = {
        [SNIB__TIMER_OP] = offsetof(struct snib__op, timer_at),
        [SNIB__TIMER_HOLD] = offsetof(struct snib__hold, timer_at),
        [SNIB__TIMER_WAITQ] = offsetof(struct snib__waitq, timer_at),
    };
    return (char *)snib__timer_at(timer) - offsets[snib__timer_what(timer)];
}

static void timer_place(struct snib__engine *e, uint32_t i, struct snib__timer timer)
{
    e->heap[i] = timer;
    *snib__timer_at(timer) = i;
}

static void timer_settle(struct snib__engine *e, uint32_t i, struct snib__timer timer)
{
    while (i > 1 && e->heap[i / 2].when > timer.when) {
        timer_place(e, i, e->heap[i / 2]);
        i /= 2;
    }
    for (;;) {
        uint32_t child = 2 * i;
        if (child > e->heap_n)
            break;
        if (child < e->heap_n && e->heap[child + 1].when < e->heap[child].when)
            child++;
        if (e->heap[child].when >= timer.when)
            break;
        timer_place(e, i, e->heap[child]);
        i = child;
    }
    timer_place(e, i, timer);
}

int snib__timer_reserve(struct snib__engine *e, uint32_t n)
{
    uint32_t cap = e->heap_cap ? e->heap_cap : SNIB__ROOM(64);
    while (cap <= e->heap_owed + n) /* the first place is not used */
        cap *= 2;
    if (cap > e->heap_cap) {
        struct snib__timer *heap = realloc(e->heap, cap * sizeof *heap);
        if (!heap)
            return -1;
        e->memory += (cap - e->heap_cap) * sizeof *heap;
        e->heap = heap;
        e->heap_cap = cap;
    }
    e->heap_owed += n;
    return 0;
}

void snib__timer_set(struct snib__engine *e, enum snib__timer_what what, uint32_t *at,
                     snib__time when)
{
    struct snib__timer timer = {.when = when, .where = (uintptr_t)at | what};
    if (*at == 0)
        *at = ++e->heap_n;
    timer_settle(e, *at, timer);
}

void snib__timer_cancel(struct snib__engine *e, uint32_t *at)
{
    uint32_t i = *at;
    if (i == 0)
        return;
    *at = 0;
    struct snib__timer last = e->heap[e->heap_n--];
    if (i <= e->heap_n)
        timer_settle(e, i, last);
}
