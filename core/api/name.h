/* name.h - which lock names can be used. */
#ifndef SNIB__NAME_H
#define SNIB__NAME_H

#include "snib.h"

#define SNIB__NAME_BYTES_MAX 512

/* snib__name_check - SNIB_OK, or SNIB_ENAME with a sentence that says what is wrong.
 *
 * A name is 1 to 512 bytes of UTF-8 without control characters.  Braces: none, or one hash tag that
 * the key and the names derived from it share.  Derived names are built as "prefix:{name}" from a
 * name without braces and "prefix:name" from one with braces, so a name such as a{b, {}x or a}b
 * would spread over several slots of a cluster. */
int snib__name_check(const char *name, size_t n, snib_error *err);

#endif
