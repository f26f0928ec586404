/* advance.c - moves the clock of all clients of this process, for tests. */
#include "api/objects.h"
#include "driver/ahead.h"
#include "net/error.h"

#define ADVANCE_MS_MAX 31536000000

int snib_advance_clock(int64_t ms, snib_error *err)
{
    if (ms < 0 || ms > ADVANCE_MS_MAX)
        return snib__fail(err, SNIB_EINVAL, 0, "the clock can be moved by 0 to %lld ms",
                          (long long)ADVANCE_MS_MAX);
    atomic_fetch_add(&snib__ahead, (snib__time)ms * SNIB__MS);
    snib__exit_wake();
    return SNIB_OK;
}
