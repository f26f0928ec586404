/* time.h - the clock's type.  The driver reads the clock; all that is sans-I/O is told the time. */
#ifndef SNIB__TIME_H
#define SNIB__TIME_H

#include <stdint.h>

typedef uint64_t snib__time; /* nanoseconds of a clock that counts suspended time */
#define SNIB__NEVER UINT64_MAX
#define SNIB__MS 1000000ull

static inline snib__time snib__earlier(snib__time a, snib__time b)
{
    return a < b ? a : b;
}

#endif
