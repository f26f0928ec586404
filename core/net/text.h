/* text.h - bytes that become text: data from other programs is only data until cleaned here.
 *
 * All text that leaves the core (an owner, a listed name, a description, an error, a log record) is
 * UTF-8 without control characters. */
#ifndef SNIB__TEXT_H
#define SNIB__TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* snib__utf8_next - decode the character at s, of which n bytes are readable.
 *
 * Returns its length, 1 to 4, with *out_char; 0 for anything that is not UTF-8: overlong forms,
 * surrogates, values above U+10FFFF, stray or missing continuation bytes. */
size_t snib__utf8_next(const char *s, size_t n, uint32_t *out_char);

/* snib__is_control - C0, DEL and C1. */
int snib__is_control(uint32_t c);

/* snib__text_clean - make n bytes fit to be shown, in place; a NUL must have room at text[n].
 *
 * Each byte of a control character, and each that is not part of UTF-8, becomes a question mark.
 *
 * is_cut   the bytes were longer: a character cut off at the end is dropped.
 * Returns  the length, at most n. */
size_t snib__text_clean(char *text, size_t n, bool is_cut);

/* snib__text_show - a clean copy of what fits into cap bytes, with a NUL. */
void snib__text_show(char *out, size_t cap, const char *bytes, size_t n);

#endif
