/* model_memory.c - memory for an interpreter that makes and drops small things all the time. */
#include "model_internal.h"

#include <stdlib.h>
#include <string.h>

#define SMALL 512 /* bytes; what is larger comes from malloc */
#define GRAIN 16
#define SLAB 65536

static struct {
    void *dropped[SMALL / GRAIN + 1]; /* by size in grains; the first word is the next one */
    char *slab, *slab_end;            /* not handed out yet */
} memory;

static void *take_small(size_t grains)
{
    void *taken = memory.dropped[grains];
    if (taken != NULL) {
        memcpy(&memory.dropped[grains], taken, sizeof(void *));
        __builtin_prefetch(memory.dropped[grains]); /* the next to be taken */
        return taken;
    }
    if ((size_t)(memory.slab_end - memory.slab) < grains * GRAIN) {
        memory.slab = model__grow(NULL, SLAB);
        memory.slab_end = memory.slab + SLAB;
    }
    taken = memory.slab;
    memory.slab += grains * GRAIN;
    return taken;
}

void *model__lua_memory(void *unused, void *p, size_t n, size_t wanted)
{
    size_t had = (n + GRAIN - 1) / GRAIN, grains = (wanted + GRAIN - 1) / GRAIN;
    (void)unused;
    if (n > SMALL && wanted > SMALL) {
        return model__grow(p, wanted);
    }
    if (p != NULL && had == grains) {
        return p;
    }
    void *taken = wanted == 0      ? NULL
                  : wanted > SMALL ? model__grow(NULL, wanted)
                                   : take_small(grains);
    if (p != NULL && taken != NULL) {
        memcpy(taken, p, n < wanted ? n : wanted);
    }
    if (p != NULL && n > SMALL) {
        free(p);
    } else if (p != NULL) {
        memcpy(p, &memory.dropped[had], sizeof(void *));
        memory.dropped[had] = p;
    }
    return taken;
}
