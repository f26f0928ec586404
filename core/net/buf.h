/* buf.h - a growable run of bytes: appended at the end, consumed from the front. */
#ifndef SNIB__BUF_H
#define SNIB__BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snib__buf {
    char *data;
    size_t head; /* first byte not yet consumed */
    size_t len;  /* end of the bytes */
    size_t cap;
    /* it has contained a password: consumed bytes are overwritten until it is empty */
    bool secret;
};

/* Initial capacity of a list.  Two in the simulator, so that memory is
 * requested, and refused, often. */
#ifndef SNIB__ROOM
#define SNIB__ROOM(n) (n)
#endif

char *snib__buf_grow(struct snib__buf *buf, size_t n);

/* snib__buf_reserve - make room for n more bytes: where to write them,
 * or NULL when out of memory. */
static inline char *snib__buf_reserve(struct snib__buf *buf, size_t n)
{
    return buf->cap - buf->len > n ? buf->data + buf->len : snib__buf_grow(buf, n);
}

/* snib__buf_append - 0, or -1 when out of memory (then nothing was appended). */
int snib__buf_append(struct snib__buf *buf, const void *data, size_t n);

/* snib__buf_consume - drop n bytes from the front. */
void snib__buf_consume(struct snib__buf *buf, size_t n);

/* snib__buf_drop - drop all bytes and keep the memory. */
void snib__buf_drop(struct snib__buf *buf);

void snib__buf_free(struct snib__buf *buf);

static inline size_t snib__buf_size(const struct snib__buf *buf)
{
    return buf->len - buf->head;
}

#endif
