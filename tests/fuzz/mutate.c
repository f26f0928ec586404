/* mutate.c - libFuzzer's mutator for programs of steps: half of its changes are of whole steps.
 *
 * Linked into the targets whose input is a program; `FUZZ_HEAD` bytes before the first step choose the
 * world.
 */
#include "fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

static uint32_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(state >> 4) * below >> 28);
}

static size_t insert(uint8_t *data, size_t size, size_t max_size, size_t at, size_t n)
{
    if (size + n > max_size)
        return size;
    memmove(data + at + n, data + at, size - at);
    return size + n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    state = seed * 2654435761u + 1;
    size_t steps = size > FUZZ_HEAD ? (size - FUZZ_HEAD) / STEP : 0;
    uint32_t how = draw(12);
    if (steps == 0 || how >= 6)
        return LLVMFuzzerMutate(data, size, max_size);
    size_t at = FUZZ_HEAD + STEP * draw((uint32_t)steps);
    size_t from = FUZZ_HEAD + STEP * draw((uint32_t)steps);
    size_t n = STEP * (1 + draw(4));
    uint8_t copy[4 * STEP];
    n = from + n <= size ? n : STEP;
    memcpy(copy, data + from, n);
    switch (how) {
    case 0: /* a new step */
        size = insert(data, size, max_size, at, STEP);
        for (size_t i = 0; i < STEP; i++)
            data[at + i] = (uint8_t)draw(i ? 16 : 256);
        return size;
    case 1: /* some steps again */
    case 2:
        n = size + n <= max_size ? n : 0;
        size = insert(data, size, max_size, at, n);
        memcpy(data + at, copy, n);
        return size;
    case 3: /* some steps less */
        memmove(data + from, data + from + n, size - from - n);
        return size - n;
    case 4: /* another operand */
        data[at + 1 + draw(STEP - 1)] = (uint8_t)draw(256);
        return size;
    default: /* another step with these operands */
        data[at] = (uint8_t)draw(256);
        return size;
    }
}
