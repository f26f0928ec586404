/* name.c - see name.h. */
#include "api/name.h"

#include "net/error.h"
#include "net/text.h"

#include <string.h>

/* The fault in the braces, or NULL.  The server hashes the text between the first opening brace and
 * the first closing one after it. */
static const char *name_brace_fault(const char *name, size_t n)
{
    const char *open = memchr(name, '{', n);
    const char *close = memchr(name, '}', n);
    if (!open && !close)
        return NULL;
    if (!open || (close && close < open))
        return "a closing brace comes before any opening one";
    if (!close)
        return "an opening brace is not closed";
    return close == open + 1 ? "the hash tag between its braces is empty" : NULL;
}

int snib__name_check(const char *name, size_t n, snib_error *err)
{
    char quoted[96];
    if (!name || n == 0)
        return snib__fail(err, SNIB_ENAME, 0, "the lock name is empty");
    if (n > SNIB__NAME_BYTES_MAX)
        return snib__fail(err, SNIB_ENAME, 0, "the lock name has %zu bytes; the limit is %d", n,
                          SNIB__NAME_BYTES_MAX);
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t len = snib__utf8_next(name + i, n - i, &c);
        if (len == 0)
            return snib__fail(err, SNIB_ENAME, 0, "the lock name %s is not UTF-8 at byte %zu",
                              snib__quote(quoted, sizeof quoted, name, n), i);
        if (snib__is_control(c))
            return snib__fail(err, SNIB_ENAME, 0,
                              "the lock name %s has a control character at byte %zu",
                              snib__quote(quoted, sizeof quoted, name, n), i);
        i += len;
    }
    const char *fault = name_brace_fault(name, n);
    if (fault)
        return snib__fail(err, SNIB_ENAME, 0, "in the lock name %s %s",
                          snib__quote(quoted, sizeof quoted, name, n), fault);
    return SNIB_OK;
}
