/* seed_check.c - the worlds of different seeds have nothing in common: of the first numbers that each of some neighbouring
 * seeds draws, no two are equal, at whatever place.  If the seeds were places on one sequence, draw 2 of one would be draw 1
 * of the next. */
#include "seed.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEEDS = 1000, DRAWS = 64 };

static int compare(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

int main(void)
{
    static uint64_t drawn[SEEDS * DRAWS];
    size_t n = 0, shared = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint64_t state = seed_state(seed);
        for (int i = 0; i < DRAWS; i++) {
            drawn[n++] = seed_next(&state);
        }
    }
    qsort(drawn, n, sizeof *drawn, compare);
    for (size_t i = 1; i < n; i++) {
        shared += drawn[i] == drawn[i - 1];
    }
    if (shared > 0) {
        fprintf(stderr, "sim_seed_check: %zu of the first %d draws of %d seeds are another's\n",
                shared, DRAWS, SEEDS);
        return 1;
    }
    printf("sim_seed_check: the first %d draws of %d seeds are all different\n", DRAWS, SEEDS);
    return 0;
}
