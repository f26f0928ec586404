#include "net/buf.h"

#include <stdlib.h>
#include <string.h>

char *snib__buf_reserve(struct snib__buf *buf, size_t n)
{
    if (buf->cap - buf->len >= n)
        return buf->data + buf->len;
    if (buf->head > 0) {
        memmove(buf->data, buf->data + buf->head, buf->len - buf->head);
        buf->len -= buf->head;
        buf->head = 0;
        if (buf->cap - buf->len >= n)
            return buf->data + buf->len;
    }
    size_t cap = buf->cap ? buf->cap : SNIB__ROOM(1024);
    while (cap - buf->len < n) {
        if (cap > SIZE_MAX / 2)
            return NULL;
        cap *= 2;
    }
    char *data = realloc(buf->data, cap);
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
    buf->head += n;
    if (buf->head == buf->len)
        buf->head = buf->len = 0;
}

void snib__buf_free(struct snib__buf *buf)
{
    free(buf->data);
    *buf = (struct snib__buf){0};
}
