/* wakes.c - the cost of waking a thread on this machine, on which the other figures depend.
 *
 * Two threads wake each other in turn, by a futex, a loopback TCP connection and an eventfd; first
 * each has its own core, then both share one.  A figure is half of the round trip, in microseconds;
 * null: there is only one core. */
#include "bench.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum way { FUTEX, SOCKET, EVENTFD, WAYS };
enum { GO_ON = 1, THE_END = 2 };

static const char *const way_names[] = {"futex", "socket", "eventfd"};

/* One direction. */
struct lane {
    int in, out;           /* descriptors; for an eventfd the same one */
    _Atomic uint32_t word; /* FUTEX: sent and not received yet */
};

struct wakes {
    enum way way;
    struct lane there, back;
    int cores[2];
    double seconds, took;
    uint64_t turns;
};

static void wakes_say(struct wakes *w, struct lane *lane, uint64_t what)
{
    if (w->way != FUTEX) {
        if (write(lane->out, &what, sizeof what) != sizeof what)
            bench_die("cannot write");
        return;
    }
    atomic_store(&lane->word, (uint32_t)what);
    syscall(SYS_futex, &lane->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static uint64_t wakes_hear(struct wakes *w, struct lane *lane)
{
    uint64_t what;
    if (w->way != FUTEX) {
        if (read(lane->in, &what, sizeof what) != sizeof what)
            bench_die("cannot read");
        return what;
    }
    while ((what = atomic_exchange(&lane->word, 0)) == 0)
        syscall(SYS_futex, &lane->word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return what;
}

static void wakes_pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
        bench_die("cannot stay on core %d", core);
}

static void *wakes_answer(void *argument)
{
    struct wakes *w = argument;
    wakes_pin(w->cores[1]);
    for (uint64_t what = GO_ON; what != THE_END;) {
        what = wakes_hear(w, &w->there);
        wakes_say(w, &w->back, what);
    }
    return NULL;
}

static void *wakes_ask(void *argument)
{
    struct wakes *w = argument;
    wakes_pin(w->cores[0]);
    double began = bench_now();
    for (uint64_t what = GO_ON; what != THE_END; w->turns++) {
        what = bench_now() - began < w->seconds ? GO_ON : THE_END;
        wakes_say(w, &w->there, what);
        wakes_hear(w, &w->back);
    }
    w->took = bench_now() - began;
    return NULL;
}

/* Both ends of a connection, as between a client and a server on this machine. */
static void wakes_connect(int fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0 ||
        connect(fds[0], (struct sockaddr *)&address, size) != 0 ||
        (fds[1] = accept(listener, NULL, NULL)) < 0)
        bench_die("no connection");
    for (int i = 0; i < 2; i++)
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
}

static double wakes_measure(enum way way, const int cores[2], double seconds, uint64_t *turns)
{
    struct wakes w = {.way = way, .cores = {cores[0], cores[1]}, .seconds = seconds};
    int fds[2] = {-1, -1};
    pthread_t threads[2];
    if (way == EVENTFD) {
        fds[0] = eventfd(0, 0);
        fds[1] = eventfd(0, 0);
        w.there.in = w.there.out = fds[0];
        w.back.in = w.back.out = fds[1];
    } else if (way == SOCKET) {
        wakes_connect(fds);
        w.there.out = w.back.in = fds[0];
        w.back.out = w.there.in = fds[1];
    }
    if (pthread_create(&threads[0], NULL, wakes_answer, &w) != 0 ||
        pthread_create(&threads[1], NULL, wakes_ask, &w) != 0)
        bench_die("no thread");
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; way != FUTEX && i < 2; i++)
        close(fds[i]);
    *turns += w.turns;
    return w.took / (double)w.turns / 2 * 1e6;
}

void bench_wakes(const struct bench *bench, int argc, char **argv)
{
    (void)bench, (void)argc, (void)argv;
    int first = -1, last = -1;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        bench_die("cannot tell the cores");
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &set)) {
            first = first < 0 ? core : first;
            last = core;
        }
    }
    double seconds;
    while (bench_next(&seconds)) {
        uint64_t turns = 0;
        double began = bench_now();
        putchar('{');
        for (int way = 0; way < WAYS; way++) {
            int same[] = {first, first}, two[] = {first, last};
            printf("\"%s_one\": %.2f, ", way_names[way],
                   wakes_measure(way, same, seconds / 2 / WAYS, &turns));
            if (first == last)
                printf("\"%s_across\": null, ", way_names[way]);
            else
                printf("\"%s_across\": %.2f, ", way_names[way],
                       wakes_measure(way, two, seconds / 2 / WAYS, &turns));
        }
        printf("\"done\": %" PRIu64 ", \"seconds\": %.6f}\n", turns, bench_now() - began);
    }
}
