/* engine_check.h - what an engine's own structures must be like whenever nobody is inside. */
#ifndef SNIB_TESTS_ENGINE_CHECK_H
#define SNIB_TESTS_ENGINE_CHECK_H

#include "engine/internal.h"

/* What is wrong, in a static buffer; NULL: nothing. */
const char *engine_flaw(const struct snib__engine *e);
/* What is left although nobody wants anything any more, or holds a lock's handle; NULL: nothing.
 * Releases that were remembered are forgotten. */
const char *engine_remains(struct snib__engine *e);
/* Whether what a client says about itself is this host, then perhaps how many holds it has lost, and since when it
 * has its oldest ones. */
bool engine_says(const snib_texts *texts, const char *host);

#endif
