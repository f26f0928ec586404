/* words.c - see words.h. */
#include "net/words.h"

#include "net/text.h"

#include <stdbool.h>
#include <string.h>

#define WORDS_SECRET_LONG 6 /* too long to be part of a word by chance */
#define WORDS_READ 1024     /* of what the server said */

/* The length of the text before the first of these. */
static size_t words_before(const char *text, size_t n)
{
    static const char *const ends[] = {", with args beginning with", " script: "};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const char *at = memmem(text, n, ends[i], strlen(ends[i]));
        if (at)
            n = (size_t)(at - text);
    }
    return n;
}

static bool words_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* How many bytes at `at` are the secret, or its beginning cut off by the end; 0: none.  A secret
 * that could be part of an ordinary word must stand alone. */
static size_t words_secret(const char *text, size_t at, size_t n, const char *secret)
{
    size_t len = secret ? strlen(secret) : 0, left = n - at;
    size_t same = left < len ? left : len;
    if (same == 0 || (same < len && same < 3) || memcmp(text + at, secret, same) != 0)
        return 0;
    bool alone = (at == 0 || !words_letter(text[at - 1])) &&
                 (same == left || !words_letter(text[at + same]));
    return alone || same >= WORDS_SECRET_LONG ? same : 0;
}

void snib__words(char *out, size_t cap, const char *text, size_t n, const char *secret)
{
    char whole[WORDS_READ];
    size_t used = 0;
    n = words_before(text, n);
    for (size_t i = 0; i < n && used + 4 < sizeof whole;) {
        size_t hidden = words_secret(text, i, n, secret);
        if (hidden) {
            memcpy(whole + used, "***", 3);
            used += 3;
            i += hidden;
        } else {
            whole[used++] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
            i++;
        }
    }
    while (used > 0 && (whole[used - 1] == ' ' || whole[used - 1] == '.'))
        used--;
    snib__text_shorten(out, cap, whole, used);
}
