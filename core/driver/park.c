#include "driver/park.h"

#include "driver/ahead.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

snib__time snib__now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (snib__time)ts.tv_sec * 1000000000u + (snib__time)ts.tv_nsec +
           atomic_load_explicit(&snib__ahead, memory_order_relaxed);
}

/* The kernel's sleep clock stops during a suspend, and a wake-up is late if its sender is held up,
 * so no thread sleeps longer than this without checking. */
#define PARK_NAP (999 * SNIB__MS)

int snib__park(_Atomic uint32_t *word, uint32_t expected, snib__time until)
{
    snib__time now = until == SNIB__NEVER ? 0 : snib__now();
    snib__time left = until > now ? until - now : 0;
    bool nap = left > PARK_NAP;
    struct timespec ts = {.tv_nsec = (long)(nap ? PARK_NAP : left)};
    if (syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &ts, NULL, 0) == 0 ||
        errno == EAGAIN)
        return SNIB__PARKED_NO;
    if (errno == EINTR)
        return SNIB__PARKED_SIGNAL;
    return nap ? SNIB__PARKED_NO : SNIB__PARKED_TIMEOUT;
}

void snib__unpark(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void snib__unpark_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
