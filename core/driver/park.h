/* park.h - one thread sleeps on a word, another wakes it; and the clock of all deadlines. */
#ifndef SNIB__PARK_H
#define SNIB__PARK_H

#include "net/time.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* snib__now - nanoseconds on a clock that counts suspended time (CLOCK_BOOTTIME). */
snib__time snib__now(void);

enum snib__park { SNIB__PARKED_NO = 0, SNIB__PARKED_TIMEOUT = 1, SNIB__PARKED_SIGNAL = 2 };

/* snib__park - sleep while *word is `expected`, at most until `until` (SNIB__NEVER: no limit).  It
 * may return SNIB__PARKED_NO spuriously, and does so once a second: check and park again. */
int snib__park(_Atomic uint32_t *word, uint32_t expected, snib__time until);

/* snib__unpark - wake one thread (or all) that sleeps on the word.  The word may have been freed
 * already: only its address is used. */
void snib__unpark(_Atomic uint32_t *word);
void snib__unpark_all(_Atomic uint32_t *word);

#endif
