/* loop_epoll.c - a lock in a loop of your own, by epoll.
 *
 *     cc loop_epoll.c $(pkg-config --cflags --libs snib)
 */
#include "loop_work.h"

#include <stdint.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void watch(int set, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

int main(void)
{
    struct itimerspec every = {{0, TICK_MS * 1000000}, {0, TICK_MS * 1000000}};
    int set = epoll_create1(EPOLL_CLOEXEC);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    int fd = work_begin();
    timerfd_settime(timer, 0, &every, NULL);
    watch(set, timer);
    watch(set, fd);
    for (bool more = true; more;) {
        struct epoll_event ready;
        uint64_t times;
        if (epoll_wait(set, &ready, 1, -1) != 1)
            continue; /* a signal */
        if (ready.data.fd == fd)
            more = work_drain();
        else if (read(timer, &times, sizeof times) > 0)
            work_tick();
    }
    epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
    work_end();
    close(timer);
    close(set);
    return 0;
}
