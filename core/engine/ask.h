/* ask.h - what a LIST operation carries. */
#ifndef SNIB__ASK_H
#define SNIB__ASK_H

#include <stddef.h>
#include <stdint.h>

struct snib__asked {
    uint64_t cursor; /* in: where to go on; out: where to go on next, 0 at the end */
    char *buffer;    /* the caller's */
    size_t cap, used;
    uint32_t count;
    size_t pattern_len;
    char pattern[];
};

#endif
