/* shift.c - a library that shifts the wall clock of the server that it is loaded into (LD_PRELOAD), and no other clock.
 *
 * $SNIB_TEST_SHIFT names a file with a number of milliseconds, 8 bytes; it may change at any time.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t shift_ns(void)
{
    static volatile const int64_t *shift_ms;
    const char *path = getenv("SNIB_TEST_SHIFT");
    if (!shift_ms && path) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        void *shared = mmap(NULL, sizeof *shift_ms, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (shared != MAP_FAILED)
            shift_ms = shared;
    }
    return shift_ms ? *shift_ms * 1000000 : 0;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    long result = syscall(SYS_clock_gettime, clock, out);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + shift_ns();
        *out = (struct timespec){ns / 1000000000, ns % 1000000000};
    }
    return (int)result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
