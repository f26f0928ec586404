/* memory.h - where the memory servers of a process listen; shared with the test kit, which is linked apart. */
#ifndef SNIB__MEMORY_H
#define SNIB__MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define SNIB__MEMORY_NAME_MAX 64
#define SNIB__MEMORY_PATH 100

/* snib__memory_path - the abstract unix socket of the memory server `name` of process `pid`.  The path
 * begins with an @ here and with a NUL byte in the system call.  False: a bad name. */
static inline bool snib__memory_path(char out[SNIB__MEMORY_PATH], int pid, const char *name,
                                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char lower = (char)(name[i] | 0x20);
        if (!(lower >= 'a' && lower <= 'z') && !(name[i] >= '0' && name[i] <= '9') &&
            name[i] != '-' && name[i] != '_')
            return false;
    }
    if (n == 0 || n > SNIB__MEMORY_NAME_MAX)
        return false;
    snprintf(out, SNIB__MEMORY_PATH, "@snib-memory/%d/%.*s", pid, (int)n, name);
    return true;
}

#endif
