/* text.h - bytes that become text: data from other programs is only data until cleaned here.
 *
 * All text that leaves the core (an owner, a listed name, a description, an error, a log record) is
 * UTF-8 without control characters. */
#ifndef SNIB__TEXT_H
#define SNIB__TEXT_H

#include <stdarg.h>
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

/* snib__text_shorten - copy n bytes of UTF-8 into out, with a NUL.
 *
 * What does not fit into cap bytes loses its middle, in whose place are three dots: a sentence says last what was
 * applied or what to do.  cap must be at least 16; out and text must not overlap. */
void snib__text_shorten(char *out, size_t cap, const char *text, size_t n);

/* snib__text_say - the same of a text that is formatted.  Of more than 2,000 bytes the end is lost. */
void snib__text_say(char *out, size_t cap, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* snib__text_show - a clean copy of what fits into cap bytes, with a NUL. */
void snib__text_show(char *out, size_t cap, const char *bytes, size_t n);

#endif
