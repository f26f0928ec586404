/* lives.h - the lives of an engine's objects: which state follows which, from one moment at which
 * nobody is inside the engine to the next.
 *
 * Objects are holds, operations, links and subscriptions.  It only looks on: no world depends on it.
 */
#ifndef SNIB_TESTS_LIVES_H
#define SNIB_TESTS_LIVES_H

#include "engine/internal.h"

struct lives; /* of one engine's objects */

void lives_watch(void); /* without it nothing is looked at, which is cheap */
/* Nobody is inside the engine.  *at is NULL at first. */
void lives_look(struct lives **at, const struct snib__engine *e);
void lives_done(struct lives **at, const struct snib__op *op); /* taken by take_done() */
void lives_free(struct lives **at);                            /* before its engine */
void lives_print(void); /* a line for each transition that was seen */

#endif
