/* words.h - what a server says in an error, made fit to be shown to people. */
#ifndef SNIB__WORDS_H
#define SNIB__WORDS_H

#include <stddef.h>

#define SNIB__WORDS_MAX 192 /* with the NUL */

/* snib__words - copy n bytes of a server's error into out, ended by a NUL.
 *
 * Left out are arguments that it repeats (they may be a login's), the place in a script, and secret wherever
 * it occurs, also when its end was cut off (a short one: where it stands alone).  Bytes that are not printable ASCII become question marks.
 *
 * secret  the password; NULL: none. */
void snib__words(char *out, size_t cap, const char *text, size_t n, const char *secret);

#endif
