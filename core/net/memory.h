/* memory.h - where the memory servers of a process listen; shared with the test kit, which is linked apart. */
#ifndef SNIB__MEMORY_H
#define SNIB__MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SNIB__MEMORY_NAME_MAX 64

static inline bool snib__memory_is_name(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char lower = (char)(name[i] | 0x20);
        if (!(lower >= 'a' && lower <= 'z') && !(name[i] >= '0' && name[i] <= '9') &&
            name[i] != '-' && name[i] != '_')
            return false;
    }
    return n > 0 && n <= SNIB__MEMORY_NAME_MAX;
}

/* snib__memory_address - the abstract unix socket of the memory server `name` of this process; returns the length.  A
 * process has its id in a namespace: containers that share a network may have processes of the same id. */
static inline socklen_t snib__memory_address(struct sockaddr_un *out, const char *name)
{
    struct stat ids;
    unsigned space = stat("/proc/self/ns/pid", &ids) == 0 ? (unsigned)ids.st_ino : 0;
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "snib-memory/%u/%d/%.64s", space,
                     (int)getpid(), name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

#endif
