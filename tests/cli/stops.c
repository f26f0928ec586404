/* stops.c - preloaded into the snib command: a signal at the n-th system call of one of its processes.
 *
 *     SNIB_STOP=ROLE:N:SIGNAL:FILE   ROLE 0 snib, 1 the guardian, 2 the child that becomes COMMAND, 10 snib when it
 *                                    reads the clock, and once more the next time; FILE is created when it happens
 *     SNIB_EXEC_WAITS=FILE           exec blocks until FILE exists, as on a hanging mount
 *
 * Only the calls of a process's first thread count, so that N means the same step in each run. */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOPS_CLOCK 10 /* is added to the role */

static int stops_role, stops_calls, stops_clocks;

static void stops_step_of(int stepping, int *calls)
{
    static bool is_inside;
    int role, n, sig;
    char file[256];
    const char *what = getenv("SNIB_STOP");
    if (is_inside || syscall(SYS_gettid) != getpid())
        return;
    ++*calls;
    if (!what || sscanf(what, "%d:%d:%d:%255s", &role, &n, &sig, file) != 4 || role != stepping ||
        (n != *calls && (role < STOPS_CLOCK || n != *calls - 1)))
        return;
    is_inside = true;
    syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT, 0600));
    syscall(SYS_kill, getpid(), sig);
    is_inside = false;
}

static void stops_step(void)
{
    stops_step_of(stops_role, &stops_calls);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRAP(result, name, parameters, arguments)                                                  \
    result name parameters                                                                         \
    {                                                                                              \
        stops_step();                                                                              \
        return REAL(name) arguments;                                                               \
    }

WRAP(int, setpgid, (pid_t pid, pid_t group), (pid, group))
WRAP(int, socketpair, (int d, int t, int p, int fds[2]), (d, t, p, fds))
WRAP(int, pipe2, (int fds[2], int flags), (fds, flags))
WRAP(int, sigprocmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old))
WRAP(int, signalfd, (int fd, const sigset_t *mask, int flags), (fd, mask, flags))
WRAP(int, timerfd_create, (int clock, int flags), (clock, flags))
WRAP(int, timerfd_settime,
     (int fd, int flags, const struct itimerspec *new, struct itimerspec *old),
     (fd, flags, new, old))
WRAP(int, poll, (struct pollfd * polls, nfds_t n, int ms), (polls, n, ms))
WRAP(ssize_t, send, (int fd, const void *data, size_t n, int flags), (fd, data, n, flags))
WRAP(ssize_t, recv, (int fd, void *data, size_t n, int flags), (fd, data, n, flags))
WRAP(ssize_t, read, (int fd, void *data, size_t n), (fd, data, n))
WRAP(ssize_t, write, (int fd, const void *data, size_t n), (fd, data, n))
WRAP(int, waitid, (idtype_t what, id_t id, siginfo_t *info, int how), (what, id, info, how))
WRAP(pid_t, waitpid, (pid_t pid, int *status, int how), (pid, status, how))
WRAP(int, kill, (pid_t pid, int sig), (pid, sig))
WRAP(int, close, (int fd), (fd))
WRAP(pid_t, getppid, (void), ())
WRAP(int, setenv, (const char *name, const char *value, int replace), (name, value, replace))

int clock_gettime(clockid_t clock, struct timespec *out)
{
    stops_step_of(STOPS_CLOCK + stops_role, &stops_clocks);
    return REAL(clock_gettime)(clock, out);
}

pid_t fork(void)
{
    stops_step();
    pid_t pid = REAL(fork)();
    if (pid == 0) {
        stops_role++;
        stops_calls = 0;
    }
    stops_step();
    return pid;
}

int execvp(const char *file, char *const arguments[])
{
    const char *waits = getenv("SNIB_EXEC_WAITS");
    struct timespec nap = {.tv_nsec = 2000000};
    stops_step();
    while (waits && access(waits, F_OK) != 0)
        nanosleep(&nap, NULL);
    unsetenv("LD_PRELOAD");
    return REAL(execvp)(file, arguments);
}
