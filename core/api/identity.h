/* identity.h - what this client tells others about its process. */
#ifndef SNIB__IDENTITY_H
#define SNIB__IDENTITY_H

#include "snib.h"

/* snib__identity_text - the lines "host", "pid", "program", "label" and "since", with what is known of this
 * process now; to be freed.  label: NULL: none.  NULL: out of memory. */
char *snib__identity_text(const char *label);

/* snib__label_check - SNIB_OK, or SNIB_EOPTION for a label that others could not be shown. */
int snib__label_check(const char *label, snib_error *err);

#endif
