/* text.c - see text.h. */
#include "net/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

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

size_t snib__text_clean(char *text, size_t n, bool is_cut)
{
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t len = snib__utf8_next(text + i, n - i, &c);
        size_t step = len > 0 ? len : 1;
        if (len == 0 && is_cut && n - i < 4) {
            n = i;
            break;
        }
        if (len == 0 || snib__is_control(c))
            memset(text + i, '?', step);
        i += step;
    }
    text[n] = 0;
    return n;
}

static bool text_goes_on(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

void snib__text_shorten(char *out, size_t cap, const char *text, size_t n)
{
    static const char dots[] = " ... ";
    assert(cap >= 16);
    if (n < cap) {
        memcpy(out, text, n);
        out[n] = 0;
        return;
    }
    size_t kept = cap - sizeof dots, head = kept - kept / 2, tail = n - kept / 2;
    while (head > 0 && text_goes_on(text[head]))
        head--;
    while (tail < n && text_goes_on(text[tail]))
        tail++;
    memcpy(out, text, head);
    memcpy(out + head, dots, sizeof dots - 1);
    memcpy(out + head + sizeof dots - 1, text + tail, n - tail);
    out[head + sizeof dots - 1 + n - tail] = 0;
}

void snib__text_say(char *out, size_t cap, const char *format, va_list arguments)
{
    char whole[2048];
    va_list again;
    va_copy(again, arguments);
    int n = vsnprintf(out, cap, format, arguments);
    if (n >= (int)cap) {
        vsnprintf(whole, sizeof whole, format, again);
        snib__text_shorten(out, cap, whole, strlen(whole));
    }
    va_end(again);
}

void snib__text_show(char *out, size_t cap, const char *bytes, size_t n)
{
    size_t kept = n < cap ? n : cap - 1;
    memcpy(out, bytes, kept);
    snib__text_clean(out, kept, kept < n);
}
