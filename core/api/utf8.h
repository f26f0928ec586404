/* utf8.h - one strict UTF-8 step, shared by name checks and messages. */
#ifndef SNIB__UTF8_H
#define SNIB__UTF8_H

#include <stddef.h>
#include <stdint.h>

/* snib__utf8_next - decode the character at s, of which n bytes are readable.
 *
 * Returns its length, 1 to 4, with *out_char; 0 for anything that is not UTF-8: overlong forms,
 * surrogates, values above U+10FFFF, lone or missing continuation bytes. */
size_t snib__utf8_next(const char *s, size_t n, uint32_t *out_char);

/* snib__is_control - C0, DEL and C1. */
int snib__is_control(uint32_t c);

#endif
