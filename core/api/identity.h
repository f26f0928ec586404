/* identity.h - what this client tells others about its process. */
#ifndef SNIB__IDENTITY_H
#define SNIB__IDENTITY_H

#include "snib.h"

#include <stdbool.h>

/* snib__identity_text - the lines "host", "pid", "program", "label" and "since", with what is known of this
 * process now; to be freed.  label: NULL: none; since: seconds since 1970.  NULL: out of memory. */
char *snib__identity_text(const char *label, int64_t since);

/* snib__wall_offset - the wall clock's time, in ns since 1970, minus snib__now(). */
int64_t snib__wall_offset(void);

/* snib__label_check - SNIB_OK, or for a label that others could not be shown SNIB_EOPTION if it is the option's, else
 * SNIB_EINVAL. */
int snib__label_check(const char *label, bool option, snib_error *err);

#endif
