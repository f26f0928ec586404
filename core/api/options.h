/* options.h - a client's options (options.def), from a URL's query and snib_client_options. */
#ifndef SNIB__OPTIONS_H
#define SNIB__OPTIONS_H

#include "api/url.h"

/* snib__option_take - one option of a URL's query.
 *
 * A duration is a decimal number followed by ms, s, m or h, or plain seconds.
 *
 * name     letters and underscores only: an unknown name is shown.
 * Returns  SNIB_OK, with the value in *given or *url; SNIB_EOPTION, SNIB_ELEASE or SNIB_ENOMEM.  No
 *          message shows a value. */
int snib__option_take(const char *name, const char *value, snib_client_options *given,
                      struct snib__url *url, snib_error *err);

/* snib__options_settle - merge the program's options in *o, those of the query, and the defaults.
 *
 * The program's options override the query's.  Texts move into *url; in *o they are NULL
 * afterwards, and every number is the one in effect.
 *
 * Returns  SNIB_OK, SNIB_EOPTION, SNIB_ELEASE, SNIB_ENOTSUP or SNIB_ENOMEM. */
int snib__options_settle(snib_client_options *o, const snib_client_options *query,
                         struct snib__url *url, snib_error *err);

#endif
