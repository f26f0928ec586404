/* memory.h - the names of memory servers; shared with the test kit, which is linked apart. */
#ifndef SNIB__MEMORY_H
#define SNIB__MEMORY_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
