/* sim_memory.h - comes before every source of the engine in the simulator: its memory is asked of the simulated
 * world, which may have none, and its lists begin small, so that it asks often. */
#ifndef SNIB_TESTS_SIM_MEMORY_H
#define SNIB_TESTS_SIM_MEMORY_H

#include <stdlib.h>

void *sim_malloc(size_t n);
void *sim_calloc(size_t count, size_t size);
void *sim_realloc(void *old, size_t n);
void sim_free(void *object);

#define malloc sim_malloc
#define calloc sim_calloc
#define realloc sim_realloc
#define free sim_free

#define SNIB__ROOM(n) 2

#endif
