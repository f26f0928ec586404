/* signals.c - see signals.h. */
#include "signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

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
    blocked = mask;
    sigaddset(&blocked, SIGTTOU); /* or tcsetpgrp() would stop snib */
    if (sigprocmask(SIG_BLOCK, &blocked, old_mask) != 0)
        return -1;
    return signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

int signals_next(int fd)
{
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}
