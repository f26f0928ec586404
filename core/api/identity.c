/* identity.c - see identity.h. */
#include "api/identity.h"

#include "driver/park.h"
#include "engine/engine.h"
#include "net/error.h"
#include "net/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define IDENTITY_LABEL_MAX 128
#define IDENTITY_WORD_MAX 65 /* of a host or program, with the NUL */

/* "name value\n", unless the value is empty.  No newline of it begins another line. */
static void identity_line(char *text, size_t cap, const char *name, const char *value)
{
    size_t n = strlen(text);
    if (value && value[0])
        snprintf(text + n, cap - n, "%s %s\n", name, value);
}

static void identity_word(char *text, size_t cap, const char *name, const char *bytes)
{
    char word[IDENTITY_WORD_MAX];
    snib__text_show(word, sizeof word, bytes, strlen(bytes));
    identity_line(text, cap, name, word);
}

char *snib__identity_text(const char *label, int64_t since)
{
    const size_t cap = SNIB__IDENTITY_MAX + 1;
    _Static_assert(3 * IDENTITY_WORD_MAX + IDENTITY_LABEL_MAX + 128 <= SNIB__IDENTITY_MAX,
                   "the lines fit");
    char host[256] = "", number[24];
    char *text = calloc(1, cap);
    if (!text)
        return NULL;
    if (gethostname(host, sizeof host - 1) == 0)
        identity_word(text, cap, "host", host);
    snprintf(number, sizeof number, "%lld", (long long)getpid());
    identity_line(text, cap, "pid", number);
    identity_word(text, cap, "program", program_invocation_short_name);
    identity_line(text, cap, "label", label);
    snprintf(number, sizeof number, "%lld", (long long)since);
    identity_line(text, cap, "since", number);
    return text;
}

int64_t snib__wall_offset(void)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec - (int64_t)snib__now();
}

int snib__label_check(const char *label, bool option, snib_error *err)
{
    const char *what = option ? "option label" : "label";
    int32_t code = option ? SNIB_EOPTION : SNIB_EINVAL;
    size_t n = label ? strlen(label) : 0, step;
    uint32_t c;
    if (n > IDENTITY_LABEL_MAX)
        return snib__fail(err, code, 0, "the %s has %zu bytes; the limit is %d", what, n,
                          IDENTITY_LABEL_MAX);
    for (size_t i = 0; i < n; i += step)
        if ((step = snib__utf8_next(label + i, n - i, &c)) == 0 || snib__is_control(c))
            return snib__fail(err, code, 0, "the %s must be UTF-8 without control characters",
                              what);
    return SNIB_OK;
}
