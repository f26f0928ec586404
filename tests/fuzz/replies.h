/* replies.h - replies of a server that may be wrong in every way, made from the input. */
#ifndef SNIB_TESTS_FUZZ_REPLIES_H
#define SNIB_TESTS_FUZZ_REPLIES_H

#include "fuzz.h"

/* One well-formed reply, or one out of a list; returns its length, at most cap.  text: for places where a
 * text of the target's own makes sense; NULL: none. */
size_t reply_any(struct input *in, const char *text, char *out, size_t cap);

/* An error reply from a list. */
size_t reply_error(unsigned which, char *out, size_t cap);

/* A number from a list of those at which something changes. */
int64_t number_any(unsigned which);

#endif
