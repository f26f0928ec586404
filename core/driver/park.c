#include "driver/park.h"

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
    return (snib__time)ts.tv_sec * 1000000000u + (snib__time)ts.tv_nsec;
}

int snib__park(_Atomic uint32_t *word, uint32_t expected, snib__time until)
{
    struct timespec ts, *timeout = NULL;
    if (until != SNIB__NEVER) {
        snib__time now = snib__now();
        snib__time left = until > now ? until - now : 0;
        ts = (struct timespec){.tv_sec = (time_t)(left / 1000000000u),
                               .tv_nsec = (long)(left % 1000000000u)};
        timeout = &ts;
    }
    if (syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout, NULL, 0) == 0 ||
        errno == EAGAIN)
        return SNIB__PARKED_NO;
    return errno == EINTR ? SNIB__PARKED_SIGNAL : SNIB__PARKED_TIMEOUT;
}

void snib__unpark(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void snib__unpark_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
