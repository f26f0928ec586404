/* kin.c - see kin.h. */
#include "kin.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIN_AGAIN_NS 20000000       /* between two rounds of SIGKILL, at first */
#define KIN_AGAIN_MOST_NS 500000000 /* after many rounds: each reads all of /proc */

struct process {
    pid_t pid;
    pid_t parent;
    pid_t group;
    unsigned long long start; /* with the pid, an identity */
    bool is_dead;             /* a zombie, and no thread of it is left */
    bool is_kin;
};

static bool read_process(pid_t pid, struct process *out)
{
    char path[32];
    char text[1024];
    char state;
    int parent, group, threads;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    char *rest = strrchr(text, ')'); /* a program's name may contain anything */
    *out = (struct process){.pid = pid};
    if (!rest || sscanf(rest + 1,
                        " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d "
                        "%*d %llu",
                        &state, &parent, &group, &threads, &out->start) != 5)
        return false;
    out->parent = parent;
    out->group = group;
    /* Or only its first thread has ended. */
    out->is_dead = (state == 'Z' || state == 'X') && threads < 2;
    return true;
}

/* The children from before kin_adopt(), which are excluded: a shell that became this process by
 * exec may have left it some. */
static struct process *kin_older;
static size_t kin_older_n;

static int compare(const void *a, const void *b)
{
    pid_t x = ((const struct process *)a)->pid;
    pid_t y = ((const struct process *)b)->pid;
    return (x > y) - (x < y);
}

/* Whether /proc has the numbers of this process's namespace, and not of one around it. */
static bool is_own_proc(void)
{
    char self[16] = "";
    return readlink("/proc/self", self, sizeof self - 1) > 0 && atoi(self) == getpid();
}

/* All processes, sorted by pid, to be freed.  NULL: /proc cannot be read. */
static struct process *read_all(size_t *out_n)
{
    struct process *all = NULL;
    size_t cap = 0;
    size_t n = 0;
    DIR *folder = is_own_proc() ? opendir("/proc") : NULL;
    if (!folder)
        return NULL;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (n == cap) {
            cap = cap ? 2 * cap : 256;
            struct process *more = realloc(all, cap * sizeof *all);
            if (!more)
                break; /* some are better than none; the next round finds more */
            all = more;
        }
        if (isdigit((unsigned char)entry->d_name[0]) &&
            read_process((pid_t)atoi(entry->d_name), &all[n]))
            n++;
    }
    closedir(folder);
    qsort(all, n, sizeof *all, compare);
    *out_n = n;
    return all;
}

/* Descriptors for the time when this process has no others left: for /proc and a file in it, or a process and that. */
static int spare[2] = {-1, -1};

static void free_spare(void)
{
    for (size_t i = 0; i < sizeof spare / sizeof spare[0]; i++)
        if (spare[i] >= 0)
            close(spare[i]);
}

static void take_spare(void)
{
    for (size_t i = 0; i < sizeof spare / sizeof spare[0]; i++)
        spare[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void kin_adopt(void)
{
    siginfo_t info;
    free_spare();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    free(kin_older);
    kin_older = NULL;
    kin_older_n = 0;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) /* there are some */
        kin_older = read_all(&kin_older_n);
    take_spare();
}

/* Whether it was a child of this process before kin_adopt(). */
static bool is_older(const struct process *process)
{
    const struct process *seen =
        kin_older ? bsearch(process, kin_older, kin_older_n, sizeof *seen, compare) : NULL;
    return seen && seen->start == process->start;
}

/* Mark the processes whose chain of parents leads to this one. */
static void mark_kin(struct process *all, size_t n)
{
    bool found = true;
    while (found) { /* once for each generation */
        found = false;
        for (size_t i = 0; i < n; i++) {
            struct process key = {.pid = all[i].parent};
            const struct process *parent = bsearch(&key, all, n, sizeof *all, compare);
            if (all[i].is_kin || is_older(&all[i]) ||
                (key.pid != getpid() && !(parent && parent->is_kin)))
                continue;
            all[i].is_kin = found = true;
        }
    }
}

/* Signal a process if it is still the one that was seen.  Returns 0 or errno. */
static int signal_process(const struct process *process, int sig)
{
    struct process now;
    int fd = (int)syscall(SYS_pidfd_open, process->pid, 0U);
    if (fd < 0 && errno == ESRCH)
        return ESRCH;
    bool is_same = read_process(process->pid, &now) && now.start == process->start;
    int error = is_same ? 0 : ESRCH;
    if (is_same && fd >= 0)
        error = syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0U) == 0 ? 0 : errno;
    else if (is_same)
        error = kill(process->pid, sig) == 0 ? 0 : errno;
    if (fd >= 0)
        close(fd);
    return error;
}

static int signal_kin(int sig, pid_t *out_deaf)
{
    size_t n;
    int living = 0;
    struct process *all = read_all(&n);
    if (!all)
        return -1;
    mark_kin(all, n);
    for (size_t i = 0; i < n; i++) {
        if (!all[i].is_kin || all[i].is_dead)
            continue;
        living++;
        if (signal_process(&all[i], sig) == EPERM && out_deaf)
            *out_deaf = all[i].pid;
    }
    free(all);
    return living;
}

int kin_signal(int sig, pid_t *out_deaf)
{
    if (out_deaf)
        *out_deaf = 0;
    free_spare();
    int living = signal_kin(sig, out_deaf);
    take_spare();
    return living;
}

static int count_others(pid_t group)
{
    size_t n;
    int others = 0;
    struct process *all = read_all(&n);
    if (!all)
        return -1;
    mark_kin(all, n);
    for (size_t i = 0; i < n; i++)
        others +=
            all[i].group == group && !all[i].is_kin && !all[i].is_dead && all[i].pid != getpid();
    free(all);
    return others;
}

/* How many living processes that are neither descendants nor this one are in the group; -1: /proc cannot be read. */
static int others_in(pid_t group)
{
    free_spare();
    int others = count_others(group);
    take_spare();
    return others;
}

bool kin_is_others(pid_t group)
{
    return others_in(group) > 0;
}

bool kin_is_alone(void)
{
    pid_t own = getpgrp(); /* 0: it is of another process namespace, of which little is seen here */
    return own > 0 && others_in(own) == 0;
}

static bool looks_orphaned(pid_t own, pid_t session)
{
    size_t n;
    bool is_orphaned = true;
    struct process *all = read_all(&n);
    if (!all)
        return false;
    for (size_t i = 0; i < n; i++) {
        struct process parent = {.pid = all[i].parent};
        if (all[i].group != own || all[i].is_dead || parent.pid == 0)
            continue; /* 0: it is outside this namespace, and so outside the session */
        /* /proc may hide another user's process, but these two calls do not. */
        bool is_member = getpgid(parent.pid) == own;
        if (is_member ? !bsearch(&parent, all, n, sizeof parent, compare)
                      : getsid(parent.pid) == session)
            is_orphaned = false;
    }
    free(all);
    return is_orphaned;
}

bool kin_is_orphaned(void)
{
    pid_t own = getpgrp(); /* 0: it is of another process namespace, as above */
    pid_t session = getsid(0);
    if (own <= 0 || session <= 0)
        return false;
    free_spare();
    bool is_orphaned = looks_orphaned(own, session);
    take_spare();
    return is_orphaned;
}

void kin_end(void)
{
    struct timespec nap = {.tv_nsec = KIN_AGAIN_NS};
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (kin_signal(SIGKILL, NULL) <= 0)
            return;
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < KIN_AGAIN_MOST_NS)
            nap.tv_nsec += KIN_AGAIN_NS;
    }
}
