/* value.c - times and numbers: the values of options, and the clock. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#define FAR 10000000000 /* above every range, in every unit */

/* A decimal number, to be multiplied once its unit is known. */
struct decimal {
    int64_t whole, part, scale;
};

static const char *read_decimal(const char *text, struct decimal *out)
{
    *out = (struct decimal){.scale = 1};
    for (; isdigit((unsigned char)*text); text++)
        out->whole = out->whole < FAR ? out->whole * 10 + (*text - '0') : FAR;
    if (text[0] != '.' || !isdigit((unsigned char)text[1]))
        return text;
    for (text++; isdigit((unsigned char)*text); text++)
        if (out->scale < FAR) {
            out->part = out->part * 10 + (*text - '0');
            out->scale *= 10;
        }
    return text;
}

static int64_t decimal_ms(const struct decimal *number, int64_t unit_ms)
{
    return number->whole * unit_ms + (number->part * unit_ms + number->scale / 2) / number->scale;
}

int64_t cli_read_ms(const char *text)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
    const size_t n = sizeof units / sizeof units[0];
    struct decimal number;
    int64_t sum_ms = 0;
    size_t next = 0; /* the largest unit that may still come */
    for (const char *at = text; next == 0 || *at;) {
        if (!isdigit((unsigned char)*at))
            return -1;
        at = read_decimal(at, &number);
        if (*at == '\0' && next == 0) /* no unit */
            return decimal_ms(&number, 1000);
        size_t len = strspn(at, "dhms");
        while (next < n &&
               (strlen(units[next].name) != len || strncmp(units[next].name, at, len) != 0))
            next++;
        if (next == n)
            return -1;
        sum_ms += decimal_ms(&number, units[next++].ms);
        at += len;
    }
    return sum_ms;
}

int64_t cli_read_number(const char *text, int64_t min, int64_t max)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return -1;
    errno = 0;
    intmax_t number = strtoimax(text, &end, 10);
    return errno == 0 && *end == '\0' && number >= min && number <= max ? number : -1;
}

int64_t cli_read_thousandths(const char *text)
{
    struct decimal number;
    const char *end = read_decimal(text, &number);
    bool is_number = isdigit((unsigned char)*text) && *end == '\0';
    return is_number ? decimal_ms(&number, 1000) : -1;
}

int64_t cli_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}
