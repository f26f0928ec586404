/* seed.h - the random numbers of a world, from its seed: splitmix64.
 *
 * Each number adds the same step to the state.  A state that counts seeds in such steps would put all seeds on one sequence,
 * one number apart, and neighbours would be almost the same world; so the seed goes once through the mixer first, which
 * puts each somewhere else on the circle of all states.
 */
#ifndef SNIB_TESTS_SEED_H
#define SNIB_TESTS_SEED_H

#include <stdint.h>

#define SEED_STEP 0x9e3779b97f4a7c15ULL

static inline uint64_t seed_mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* The state with which a world begins. */
static inline uint64_t seed_state(uint64_t seed)
{
    return seed_mixed(seed * SEED_STEP);
}

static inline uint64_t seed_next(uint64_t *state)
{
    return seed_mixed(*state += SEED_STEP);
}

#endif
