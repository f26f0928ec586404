/* pairs.h - which faults have met in a simulator's worlds: two that took effect in one world, within
 * a window of its virtual time.  Faults are small numbers; what they mean is the simulator's.
 *
 * A focused world is about one pair: both faults are switched on, whatever else its seed draws.  All
 * pairs take turns, in order of the seeds.
 */
#ifndef SNIB_TESTS_PAIRS_H
#define SNIB_TESTS_PAIRS_H

#include "net/time.h"

#define PAIRS_FAULTS 64 /* at most */

void pairs_watch(void);                        /* without it nothing is recorded, which is cheap */
void pairs_begin(snib__time window);           /* a world begins */
void pairs_happens(int fault, snib__time now); /* it takes effect */
void pairs_lasts(int fault);                   /* for the whole world */
void pairs_end(void);                          /* the world counts */
void pairs_print(const char *const *names, int faults);               /* one line for each pair */
void pairs_choose(uint64_t seed, int faults, int *out_a, int *out_b); /* of a focused world */

#endif
