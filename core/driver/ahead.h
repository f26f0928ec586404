/* ahead.h - how far tests have moved the clock of this process's clients forward. */
#ifndef SNIB__AHEAD_H
#define SNIB__AHEAD_H

#include "net/time.h"

#include <stdatomic.h>

/* Added to every reading of the clock; it only grows.  A relative sleep that began before it grew ends
 * as if it had not: whoever moves the clock wakes the threads. */
extern _Atomic snib__time snib__ahead;

#endif
