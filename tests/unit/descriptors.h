/* descriptors.h - how many descriptors this process has. */
#ifndef SNIB_UNIT_DESCRIPTORS_H
#define SNIB_UNIT_DESCRIPTORS_H

#include "unit.h"

#include <dirent.h>

static inline int descriptors(void)
{
    int n = 0;
    DIR *all = opendir("/proc/self/fd");
    assert_non_null(all);
    while (readdir(all))
        n++;
    closedir(all);
    return n;
}

#endif
