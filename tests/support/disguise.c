#define _GNU_SOURCE
#include "disguise.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MASK = 0x55, WINDOW = 1 << 20, OVERLAP = 64 };

static unsigned char *window; /* mapped, and left out of the search */

void disguise_make(struct disguised *out, size_t n)
{
    FILE *random = fopen("/dev/urandom", "r");
    assert_non_null(random);
    assert_true(n <= DISGUISE_MAX);
    setvbuf(random, NULL, _IONBF, 0);
    for (out->n = 0; out->n < n; out->n++)
        out->bytes[out->n] = (unsigned char)(('a' + fgetc(random) % 26) ^ MASK);
    fclose(random);
}

void disguise_hide(struct disguised *out, const void *bytes, size_t n)
{
    assert_true(n <= DISGUISE_MAX);
    for (out->n = 0; out->n < n; out->n++)
        out->bytes[out->n] = ((const unsigned char *)bytes)[out->n] ^ MASK;
}

void disguise_reveal(const struct disguised *what, char *out)
{
    for (size_t i = 0; i < what->n; i++)
        out[i] = (char)(what->bytes[i] ^ MASK);
    out[what->n] = 0;
}

void disguise_write(const struct disguised *what, char out[2 * DISGUISE_MAX + 1])
{
    out[0] = 0;
    for (size_t i = 0; i < what->n; i++)
        sprintf(out + 2 * i, "%02x", what->bytes[i]);
}

void disguise_read(struct disguised *out, const char *text)
{
    unsigned byte;
    for (out->n = 0; out->n < DISGUISE_MAX && sscanf(text, "%2x", &byte) == 1; text += 2)
        out->bytes[out->n++] = (unsigned char)byte;
}

static size_t search_window(const struct disguised *what, size_t n, unsigned long at)
{
    size_t hits = 0;
    unsigned char first = what->bytes[0] ^ MASK;
    for (unsigned char *p = window, *end = window + n;
         p < end && (p = memchr(p, first, (size_t)(end - p))); p++) {
        size_t same = 0;
        while (same < what->n && p + same < end && (p[same] ^ MASK) == what->bytes[same])
            same++;
        if (same < DISGUISE_LEAST)
            continue;
        print_message("          %zu bytes of it at %lx\n", same, at + (unsigned long)(p - window));
        hits++;
    }
    return hits;
}

static void window_begin(void)
{
    if (!window)
        window = mmap(NULL, WINDOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

size_t disguise_search(const struct disguised *what)
{
    char line[512];
    size_t hits = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    int memory = open("/proc/self/mem", O_RDONLY);
    assert_non_null(maps);
    assert_true(memory >= 0);
    window_begin();
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || rights[1] != 'w')
            continue;
        unsigned long skip = (unsigned long)window;
        for (unsigned long at = from; at < to; at += WINDOW - OVERLAP) {
            ssize_t n = to - at < WINDOW ? (ssize_t)(to - at) : WINDOW;
            if (at < skip + WINDOW && at + (unsigned long)n > skip)
                n = at < skip ? (ssize_t)(skip - at) : 0;
            n = n > 0 ? pread(memory, window, (size_t)n, (off_t)at) : 0;
            if (n > 0)
                hits += search_window(what, (size_t)n, at);
        }
    }
    memset(window, 0, WINDOW);
    close(memory);
    fclose(maps);
    return hits;
}

size_t disguise_search_file(const struct disguised *what, const char *path)
{
    size_t hits = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    window_begin();
    ssize_t n = WINDOW;
    for (off_t at = 0; n == WINDOW; at += WINDOW - OVERLAP) {
        n = pread(fd, window, WINDOW, at);
        if (n > 0)
            hits += search_window(what, (size_t)n, (unsigned long)at);
    }
    memset(window, 0, WINDOW);
    close(fd);
    return hits;
}
