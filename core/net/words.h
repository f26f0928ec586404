/* words.h - a server's error message, made fit to be shown to people. */
#ifndef SNIB__WORDS_H
#define SNIB__WORDS_H

#include <stddef.h>

#define SNIB__WORDS_MAX 320 /* with the NUL */

/* snib__words - copy n bytes of a server's error into out, with a NUL.
 *
 * It omits repeated arguments (which may be a login's), the position in a script, and the secret
 * wherever it occurs, even if its end is cut off (a short one only where it stands alone).  Bytes
 * that are not printable ASCII become question marks.  What is too long loses its middle, because a
 * server says last what to do.
 *
 * secret  the password; NULL: none. */
void snib__words(char *out, size_t cap, const char *text, size_t n, const char *secret);

#endif
