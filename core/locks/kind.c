#include "locks/kind.h"

#include <string.h>

const struct snib__lock_kind *snib__kind_of(int32_t kind)
{
    static const struct snib__lock_kind *const kinds[] = {&snib__mutex};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i]->kind == kind)
            return kinds[i];
    return NULL;
}

size_t snib__name_derive(char *out, const char *prefix, const char *name, size_t name_len)
{
    bool tagged = memchr(name, '{', name_len) != NULL;
    size_t n = strlen(prefix);
    memcpy(out, prefix, n);
    out[n++] = ':';
    if (!tagged)
        out[n++] = '{';
    memcpy(out + n, name, name_len);
    n += name_len;
    if (!tagged)
        out[n++] = '}';
    return n;
}
