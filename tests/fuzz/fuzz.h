/* fuzz.h - what all fuzz targets share: the input as a stream, and a broken invariant as a crash.
 *
 * A program of a target consists of steps of four bytes, what to do and three operands; a step may be
 * followed by whole groups of four bytes of data.  So an insertion or deletion of four bytes leaves the
 * other steps as they are, which is what the mutator in mutate.c does.
 */
#ifndef SNIB_TESTS_FUZZ_H
#define SNIB_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fuzz_broken(#condition, __FILE__, __LINE__);                                           \
    } while (0)

static inline _Noreturn void fuzz_broken(const char *what, const char *file, int line)
{
    fprintf(stderr, "fuzz: broken: %s (%s:%d)\n", what, file, line);
    abort();
}

struct input {
    const uint8_t *at;
    size_t left;
};

/* The next byte; 0 after the end. */
static inline uint8_t take(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

/* The next n bytes, or as many as there are. */
static inline const char *take_bytes(struct input *in, size_t n, size_t *out_n)
{
    const uint8_t *at = in->at;
    n = n < in->left ? n : in->left;
    in->at += n;
    in->left -= n;
    *out_n = n;
    return (const char *)at;
}

#define STEP 4

/* The next step; false: the program is over. */
static inline bool take_step(struct input *in, uint8_t out[STEP])
{
    if (in->left < STEP)
        return false;
    memcpy(out, in->at, STEP);
    in->at += STEP;
    in->left -= STEP;
    return true;
}

/* The data of a step: `groups` times four bytes. */
static inline const char *take_data(struct input *in, unsigned groups, size_t *out_n)
{
    return take_bytes(in, (size_t)groups * STEP, out_n);
}

#endif
