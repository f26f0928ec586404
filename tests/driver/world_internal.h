/* world_internal.h - shared by world.c and world_net.c. */
#ifndef SNIB_TESTS_WORLD_INTERNAL_H
#define SNIB_TESTS_WORLD_INTERNAL_H

#include "world.h"

bool world_has(enum world_fault fault, unsigned one_in);
void world_happens(enum world_fault fault); /* it has had an effect */
bool world_may_be_interrupted(void);
bool world_wait(bool (*ready)(void *on), void *on, snib__time until);
void world_step(void);
void world_before_ring(void);

void world_net_begin(void);
void world_net_end(void);
void world_deliver(void);          /* what has arrived by now */
snib__time world_next_event(void); /* when the next arrives, or an alarm rings */

#endif
