/* signals.c - see signals.h. */
#include "signals.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

bool signals_is_first(void)
{
    return getpid() == 1;
}

static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

void signals_on_end(void (*on_end)(int sig))
{
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (signal(ends[i], on_end) == SIG_IGN)
            signal(ends[i], SIG_IGN);
}

void signals_admit(bool admits)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        sigaddset(&set, ends[i]);
    sigprocmask(admits ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL);
}

static void reap(pid_t spared)
{
    siginfo_t info = {0};
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0 &&
           info.si_pid != spared) {
        waitpid(info.si_pid, NULL, 0);
        info.si_pid = 0;
    }
}

int signals_open(const int *numbers, size_t n, sigset_t *old_mask)
{
    sigset_t mask;
    sigset_t blocked;
    sigemptyset(&mask);
    for (size_t i = 0; i < n; i++) {
        struct sigaction old;
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(&mask, numbers[i]);
    }
    signal(SIGCHLD, SIG_DFL);
    if (signals_is_first())
        sigaddset(&mask, SIGCHLD);
    blocked = mask;
    sigaddset(&blocked, SIGTTOU); /* or tcsetpgrp() would stop snib */
    if (sigprocmask(SIG_BLOCK, &blocked, old_mask) != 0)
        return -1;
    if (signals_is_first())
        reap(0); /* children of a shell that became snib, which may have ended before */
    return signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

int signals_next(int fd, pid_t spared)
{
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGCHLD)
            return (int)info.ssi_signo;
        reap(spared);
    }
    return 0;
}

/* Send a signal that has its default effect on this process. */
static void raise_unblocked(pid_t to, int sig)
{
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, sig);
    sigprocmask(SIG_UNBLOCK, &set, &old);
    kill(to, sig);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

bool signals_stop(pid_t to, int sig)
{
    sigset_t pending;
    if (signals_is_first())
        return false;
    raise_unblocked(to, sig); /* which removes a SIGCONT from before */
    sigpending(&pending);
    return sigismember(&pending, SIGCONT) == 1;
}

void signals_die(pid_t to, int sig)
{
    prctl(PR_SET_DUMPABLE, 0); /* a password may be in its memory */
    if (signals_is_first())
        return;
    if (signal(sig, SIG_DFL) == SIG_IGN)
        signal(sig, SIG_IGN);
    raise_unblocked(to, sig);
}

void signals_die_of_key(int sig)
{
    int terminal = sig == SIGINT || sig == SIGQUIT ? open("/dev/tty", O_RDONLY | O_CLOEXEC) : -1;
    if (terminal < 0)
        return;
    bool is_foreground = tcgetpgrp(terminal) == getpgrp();
    close(terminal);
    if (is_foreground)
        signals_die(getpid(), sig);
}
