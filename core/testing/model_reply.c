/* model_reply.c - the model server's buffers, RESP2 replies and SHA-1. */
#include "model_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *model__grow(void *p, size_t n)
{
    void *grown = realloc(p, n);
    if (grown == NULL) {
        abort();
    }
    return grown;
}

void model__append(buffer *b, const void *p, size_t n)
{
    if (n == 0) {
        return;
    }
    if (b->n + n > b->cap) {
        b->cap = 2 * (b->n + n);
        b->p = model__grow(b->p, b->cap);
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void model__consume(buffer *b, size_t n)
{
    b->n -= n;
    if (b->n > 0) {
        memmove(b->p, b->p + n, b->n);
    }
}

void model__set(buffer *b, const void *p, size_t n)
{
    b->n = 0;
    model__append(b, p, n);
}

void model__drop(buffer *b)
{
    free(b->p);
    *b = (buffer){0};
}

bool model__equal(const buffer *b, model_text text)
{
    return b->n == text.n && (text.n == 0 || memcmp(b->p, text.p, text.n) == 0);
}

static void append_text(call *c, const char *text)
{
    model__append(c->reply, text, strlen(text));
}

/* A status or an error is one line, whatever its text contains. */
static void append_line(call *c, char kind, const char *text)
{
    model__append(c->reply, &kind, 1);
    for (; *text != '\0'; text++) {
        model__append(c->reply, *text == '\r' || *text == '\n' ? " " : text, 1);
    }
    append_text(c, "\r\n");
}

void model__status(call *c, const char *text)
{
    append_line(c, '+', text);
}

void model__error(call *c, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    append_line(c, '-', text);
}

/* The value's digits before `end`: where they begin. */
static char *digits_before(char *end, long long value)
{
    unsigned long long rest = value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
    do {
        *--end = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) {
        *--end = '-';
    }
    return end;
}

/* "<kind><number>\r\n" */
static void append_number(call *c, char kind, long long value)
{
    char text[32], *at = text + sizeof text;
    *--at = '\n';
    *--at = '\r';
    at = digits_before(at, value);
    *--at = kind;
    model__append(c->reply, at, (size_t)(text + sizeof text - at));
}

void model__integer(call *c, long long value)
{
    append_number(c, ':', value);
}

void model__bulk(call *c, const char *p, size_t n)
{
    append_number(c, '$', (long long)n);
    model__append(c->reply, p, n);
    append_text(c, "\r\n");
}

void model__null(call *c)
{
    append_text(c, "$-1\r\n");
}

void model__null_array(call *c)
{
    append_text(c, "*-1\r\n");
}

void model__array(call *c, size_t n)
{
    append_number(c, '*', (long long)n);
}

/* The same as printf's %.17g, which is slow. */
size_t model__number_text(double value, char out[40])
{
    bool whole = value > -1e15 && value < 1e15 && value == (double)(long long)value;
    if (!whole) {
        return (size_t)snprintf(out, 40, "%.17g", value);
    }
    char text[40];
    const char *at = digits_before(text + sizeof text, (long long)value);
    size_t n = (size_t)(text + sizeof text - at);
    memcpy(out, at, n);
    out[n] = '\0';
    return n;
}

/* As strict as the server: no sign but '-', no leading zero, no space, nothing out of range. */
bool model__parse_integer(model_text text, long long *out)
{
    size_t i = text.n > 0 && text.p[0] == '-' ? 1 : 0;
    bool negative = i == 1;
    unsigned long long value = 0;
    unsigned long long limit = (1ULL << 63) - (negative ? 0 : 1);
    if (i == text.n || text.n > 20 || (text.p[i] == '0' && text.n > 1)) {
        return false;
    }
    for (; i < text.n; i++) {
        unsigned digit = (unsigned)(text.p[i] - '0');
        if (digit > 9 || value > (limit - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *out = negative ? (long long)(0 - value) : (long long)value;
    return true;
}

/* ---- SHA-1 -------------------------------------------------------------------------------------- */

static uint32_t rotate(uint32_t x, int bits)
{
    return x << bits | x >> (32 - bits);
}

static void sha1_block(uint32_t h[5], const unsigned char *block)
{
    uint32_t w[80];
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 80; i++) {
        w[i] = i < 16 ? (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                            (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3]
                      : rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
        uint32_t f = i < 20   ? (b & c) | (~b & d)
                     : i < 40 ? b ^ c ^ d
                     : i < 60 ? (b & c) | (b & d) | (c & d)
                              : b ^ c ^ d;
        uint32_t k = i < 20 ? 0x5a827999 : i < 40 ? 0x6ed9eba1 : i < 60 ? 0x8f1bbcdc : 0xca62c1d6;
        uint32_t next = rotate(a, 5) + f + e + k + w[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

void model_sha1(const char *bytes, size_t n, char out[41])
{
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    unsigned char tail[128] = {0};
    size_t whole = n / 64 * 64;
    size_t rest = n - whole;
    size_t tail_n = rest < 56 ? 64 : 128;
    for (size_t at = 0; at < whole; at += 64) {
        sha1_block(h, (const unsigned char *)bytes + at);
    }
    memcpy(tail, bytes + whole, rest);
    tail[rest] = 0x80;
    for (int i = 0; i < 8; i++) {
        tail[tail_n - 1 - (size_t)i] = (unsigned char)((uint64_t)n * 8 >> (8 * i));
    }
    for (size_t at = 0; at < tail_n; at += 64) {
        sha1_block(h, tail + at);
    }
    for (int i = 0; i < 5; i++) {
        snprintf(out + 8 * i, 9, "%08x", (unsigned)h[i]);
    }
}
