/* sim_memory.h - included before every engine source in the simulator: memory comes from the
 * simulated world, which may have none, and lists begin small, so that they grow often. */
#ifndef SNIB_TESTS_SIM_MEMORY_H
#define SNIB_TESTS_SIM_MEMORY_H

#include <stdlib.h>
#include <string.h>

void *sim_malloc(size_t n);
void *sim_calloc(size_t count, size_t size);
void *sim_realloc(void *old, size_t n);
void sim_free(void *object);

static inline char *sim_strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = sim_malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

#undef strdup
#define strdup sim_strdup
#define malloc sim_malloc
#define calloc sim_calloc
#define realloc sim_realloc
#define free sim_free

#define SNIB__ROOM(n) 2

#endif
