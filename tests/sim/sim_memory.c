/* sim_memory.c - the memory of the engines: it may run short for a while, and all of it must be
 * freed. */
#include "sim.h"

#include <stdlib.h>

void *sim_malloc(size_t n);
void *sim_calloc(size_t count, size_t size);
void *sim_realloc(void *old, size_t n);
void sim_free(void *object);

static unsigned odds; /* while memory is short, one request in so many is refused */

void memory_strike(void)
{
    sim.memory_short_until = fault_for_a_while();
    odds = 1U << sim_draw(6);
}

bool memory_is_short(void)
{
    return sim.now < sim.memory_short_until;
}

static bool refuses(void)
{
    if (sim.memory_spared || !memory_is_short() || !sim_chance(odds)) {
        return false;
    }
    fault_happens(FAULT_MEMORY);
    fault_until(sim.now + SIM_RETRY); /* a release that could not be sent is retried */
    sim_trace("no memory");
    return true;
}

void *sim_malloc(size_t n)
{
    void *object = refuses() ? NULL : malloc(n);
    sim.objects += object != NULL;
    return object;
}

void *sim_calloc(size_t count, size_t size)
{
    void *object = refuses() ? NULL : calloc(count, size);
    sim.objects += object != NULL;
    return object;
}

void *sim_realloc(void *old, size_t n)
{
    void *object = refuses() ? NULL : realloc(old, n);
    sim.objects += old == NULL && object != NULL;
    return object;
}

void sim_free(void *object)
{
    sim.objects -= object != NULL;
    free(object);
}
