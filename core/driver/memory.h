/* memory.h - where memory servers listen; shared with the test kit, which is linked apart. */
#ifndef SNIB__DRIVER_MEMORY_H
#define SNIB__DRIVER_MEMORY_H

#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

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
