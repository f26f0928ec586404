/* replace.h - write a file so that nobody reads half of it. */
#ifndef SNIB__CLI_REPLACE_H
#define SNIB__CLI_REPLACE_H

#include <stdbool.h>
#include <stddef.h>

/* replace_is_possible - whether there is a plain file of this name, or nothing: a device or a link would be lost. */
bool replace_is_possible(const char *path);

/* replace_file - make this the content of the file, by a new one in the same folder that takes its name.  Returns 0, or
 * -1 with errno, and the file is as it was. */
int replace_file(const char *path, const char *text, size_t n);

#endif
