/* forks.h - what the tests of forks share. */
#ifndef SNIB_TEST_FORKS_H
#define SNIB_TEST_FORKS_H
#include "../support/support.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_S = 120, QUICK_MS = 10000 };

/* The child has no test framework to return to: print the failure and exit. */
#define CHILD(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(2, "child, line %d: %s\n", __LINE__, #condition);                              \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static int descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* How many a child has that is forked now. */
static int descriptors_inherited(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(descriptors());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#endif
