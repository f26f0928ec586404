/* utf8.c - see utf8.h. */
#include "api/utf8.h"

size_t snib__utf8_next(const char *s, size_t n, uint32_t *out_char)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)s;
    if (n == 0)
        return 0;
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (len == 0 || len > n || p[0] >= 0xf8)
        return 0;
    uint32_t c = len == 1 ? p[0] : p[0] & (0x7fU >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3fU);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    *out_char = c;
    return len;
}

int snib__is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}
