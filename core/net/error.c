/* error.c - see error.h. */
#include "net/error.h"

#include "net/text.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

int snib__fail(snib_error *err, int32_t code, int os_error, const char *fmt, ...)
{
    if (!err)
        return code;
    va_list args;
    va_start(args, fmt);
    snib__text_say(err->text, sizeof err->text, fmt ? fmt : snib_code_text(code), args);
    va_end(args);
    snib__text_clean(err->text, strlen(err->text), false);
    err->code = code;
    err->os_error = os_error;
    err->reason = SNIB_REASON_NONE;
    err->server = 0;
    return code;
}

int snib__fail_null(snib_error *err, const char *argument)
{
    return snib__fail(err, SNIB_EINVAL, 0, "%s must not be NULL", argument);
}

int snib__fail_wait(snib_error *err, const char *argument)
{
    return snib__fail(err, SNIB_EINVAL, 0,
                      "%s is out of range; use -1 for no limit, or 0 to 86400000 ms", argument);
}

int snib__fail_size(snib_error *err)
{
    return snib__fail(
        err, SNIB_EINVAL, 0,
        "out is NULL, or has no size that this library knows; assign sizeof *out, as the header "
        "of the same version says it, to out->size before the call");
}

int snib__fail_queue(snib_error *err)
{
    return snib__fail(err, SNIB_EINVAL, 0, "the queue belongs to another client");
}

int snib__fail_silent(snib_error *err)
{
    return snib__fail(
        err, SNIB_EINVAL, 0,
        "neither a queue nor out_op was given, so the result would be lost; pass one");
}

int snib__fail_system(snib_error *err, const char *doing, int os_error)
{
    return snib__fail(err, SNIB_ESYSTEM, os_error,
                      "cannot %s: %s; check the limits of this process and of the system", doing,
                      strerror(os_error));
}

const char *snib__quote(char *out, size_t cap, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    assert(cap >= 16);
    size_t used = 0;
    size_t i = 0;
    out[used++] = '"';
    while (i < n) {
        uint32_t c = 0;
        size_t len = snib__utf8_next(s + i, n - i, &c);
        int escape = len == 0 || snib__is_control(c);
        size_t step = len > 0 ? len : 1;
        size_t need = escape ? 4 * step : c == '"' || c == '\\' ? 2 : step;
        if (used + need + sizeof "\"..." > cap)
            break;
        for (size_t k = 0; k < step; k++) {
            unsigned char byte = (unsigned char)s[i + k];
            if (escape) {
                out[used++] = '\\';
                out[used++] = 'x';
                out[used++] = hex[byte >> 4];
                out[used++] = hex[byte & 15];
            } else {
                if (byte == '"' || byte == '\\')
                    out[used++] = '\\';
                out[used++] = (char)byte;
            }
        }
        i += step;
    }
    memcpy(out + used, i < n ? "\"..." : "\"", i < n ? 5 : 2);
    return out;
}
