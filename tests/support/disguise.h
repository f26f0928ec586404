/* disguise.h - a secret that a test knows in disguise only, so that every copy of it in memory is somebody else's.
 *
 * What needs the secret itself, such as the server's administrator, is a child process of its own. */
#ifndef SNIB_TESTS_DISGUISE_H
#define SNIB_TESTS_DISGUISE_H

#include "support.h"

enum { DISGUISE_MAX = 64, DISGUISE_LEAST = 12 };

struct disguised {
    unsigned char bytes[DISGUISE_MAX];
    size_t n;
};

/* n random letters, which nobody has ever seen. */
void disguise_make(struct disguised *out, size_t n);
/* What is known to this process already, such as a child that only has to pass it on in disguise. */
void disguise_hide(struct disguised *out, const void *bytes, size_t n);
/* The same without its disguise, and a NUL. Overwrite it after use. */
void disguise_reveal(const struct disguised *what, char *out);
/* As text for an environment variable, and back. */
void disguise_write(const struct disguised *what, char out[2 * DISGUISE_MAX + 1]);
void disguise_read(struct disguised *out, const char *text);

/* How often the secret, or at least its first DISGUISE_LEAST bytes, is in the memory that this process may write.
 * Says where. */
size_t disguise_search(const struct disguised *what);
/* The same in a file, such as a core file. */
size_t disguise_search_file(const struct disguised *what, const char *path);

#endif
