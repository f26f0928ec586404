/* error.h - how the core fills a caller's snib_error. */
#ifndef SNIB__ERROR_H
#define SNIB__ERROR_H

#include "snib.h"

/* snib__fail - write code, os_error and a sentence to *err and return code.
 *
 * err   NULL is fine.
 * fmt   NULL takes the code's text from codes.def.  Whatever is formatted, err->text is valid UTF-8
 *       without control characters; names and other foreign bytes go through snib__quote()
 *       first. */
int snib__fail(snib_error *err, int32_t code, int os_error, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for the SNIB_EINVAL cases that many functions share; argument is its name in snib.h. */
int snib__fail_null(snib_error *err, const char *argument);
int snib__fail_wait(snib_error *err, const char *argument);
int snib__fail_size(snib_error *err);   /* of a structure to be filled */
int snib__fail_queue(snib_error *err);  /* another client's */
int snib__fail_silent(snib_error *err); /* neither a queue nor out_op */

/* SNIB_ESYSTEM: the system refused what the client needs; doing completes "cannot ...". */
int snib__fail_system(snib_error *err, const char *doing, int os_error);

/* snib__quote - write s as a quoted printable string, such as "orders\x0a", and return out.
 *
 * Quotes, backslashes, control characters and bytes that are not UTF-8 are escaped.  Output that
 * does not fit is cut at a character boundary and marked by three dots after the closing quote; cap
 * must be at least 16. */
const char *snib__quote(char *out, size_t cap, const char *s, size_t n);

#endif
