#include "net/buf.h"

#include <stdlib.h>
#include <string.h>

/* Like realloc(), but overwrites the old memory. */
static char *buf_move(struct snib__buf *buf, size_t cap)
{
    char *data = malloc(cap);
    if (!data)
        return NULL;
    if (buf->data) {
        memcpy(data, buf->data, buf->len);
        explicit_bzero(buf->data, buf->cap);
        free(buf->data);
    }
    return data;
}

/* There is no room to spare behind the bytes: move them to the front, or get more memory. */
char *snib__buf_grow(struct snib__buf *buf, size_t n)
{
    if (buf->data && buf->cap - buf->len >= n) /* no bytes need a place, too */
        return buf->data + buf->len;
    if (buf->head > 0) {
        size_t end = buf->len;
        memmove(buf->data, buf->data + buf->head, buf->len - buf->head);
        buf->len -= buf->head;
        buf->head = 0;
        if (buf->secret && end > buf->len)
            explicit_bzero(buf->data + buf->len, end - buf->len);
        if (buf->cap - buf->len >= n)
            return buf->data + buf->len;
    }
    size_t cap = buf->cap ? buf->cap : SNIB__ROOM(1024);
    while (cap - buf->len < n) {
        if (cap > SIZE_MAX / 2)
            return NULL;
        cap *= 2;
    }
    char *data = buf->secret ? buf_move(buf, cap) : realloc(buf->data, cap);
    if (!data)
        return NULL;
    buf->data = data;
    buf->cap = cap;
    return data + buf->len;
}

int snib__buf_append(struct snib__buf *buf, const void *data, size_t n)
{
    char *place = snib__buf_reserve(buf, n);
    if (!place)
        return -1;
    if (n > 0)
        memcpy(place, data, n);
    buf->len += n;
    return 0;
}

void snib__buf_consume(struct snib__buf *buf, size_t n)
{
    if (buf->secret && n > 0)
        explicit_bzero(buf->data + buf->head, n);
    buf->head += n;
    if (buf->head == buf->len)
        snib__buf_drop(buf);
}

void snib__buf_drop(struct snib__buf *buf)
{
    if (buf->secret && buf->len > 0)
        explicit_bzero(buf->data, buf->len);
    buf->head = buf->len = 0;
    buf->secret = false;
}

void snib__buf_free(struct snib__buf *buf)
{
    if (buf->secret && buf->cap > 0)
        explicit_bzero(buf->data, buf->cap);
    free(buf->data);
    *buf = (struct snib__buf){0};
}
