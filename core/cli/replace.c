/* replace.c - see replace.h. */
#include "replace.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool replace_is_possible(const char *path)
{
    struct stat found;
    size_t n = strlen(path);
    if (n == 0 || path[n - 1] == '/')
        return false;
    return lstat(path, &found) == 0 ? S_ISREG(found.st_mode) : true;
}

/* Write all of it, with the rights of an ordinary new file.  Returns 0 or errno. */
static int fill(int fd, const char *text, size_t n)
{
    mode_t mask = umask(0);
    umask(mask);
    if (fchmod(fd, 0666 & ~mask) != 0)
        return errno;
    while (n > 0) {
        ssize_t written = write(fd, text, n);
        if (written < 0 && errno != EINTR)
            return errno;
        text += written > 0 ? written : 0;
        n -= written > 0 ? (size_t)written : 0;
    }
    return 0;
}

int replace_file(const char *path, const char *text, size_t n)
{
    const char *base = strrchr(path, '/');
    int folder_n = base ? (int)(base + 1 - path) : 0;
    char *name; /* hidden, and without the suffix by which readers find files */
    if (asprintf(&name, "%.*s.snib-XXXXXX", folder_n, path) < 0)
        return -1;
    /* Beyond a limit of the size of files a write fails; to end there would leave the new file. */
    signal(SIGXFSZ, SIG_IGN);
    int fd = mkostemp(name, 0);
    int error = fd < 0 ? errno : fill(fd, text, n);
    if (fd >= 0 && close(fd) != 0 && !error)
        error = errno;
    if (!error && rename(name, path) != 0)
        error = errno;
    if (error && fd >= 0)
        unlink(name);
    free(name);
    errno = error;
    return error ? -1 : 0;
}
