/* buf.c - a buffer of bytes to send: room is made without losing bytes, and no secret stays behind. */
#include "unit.h"

#include "net/buf.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static struct snib__buf made(const char *text, bool secret)
{
    struct snib__buf buf = {0};
    assert_non_null(snib__buf_reserve(&buf, 1000));
    buf.secret = secret;
    assert_int_equal(snib__buf_append(&buf, text, strlen(text)), 0);
    return buf;
}

static void holds(const struct snib__buf *buf, const char *text)
{
    assert_int_equal(snib__buf_size(buf), strlen(text));
    assert_memory_equal(buf->data + buf->head, text, strlen(text));
}

/* The whole of its memory, beside what it holds. */
static void has_no_trace(const struct snib__buf *buf, const char *word)
{
    size_t n = strlen(word);
    assert_null(memmem(buf->data, buf->head, word, n));
    assert_null(memmem(buf->data + buf->len, buf->cap - buf->len, word, n));
}

/* What has been taken from the front is room, too: the memory stays where it is, and as large. */
static void room_in_front(void **state)
{
    (void)state;
    for (int secret = 0; secret < 2; secret++) {
        struct snib__buf buf = made("AUTH password and more", secret);
        memset(buf.data + buf.len, 0, buf.cap - buf.len);
        snib__buf_consume(&buf, 14);
        holds(&buf, "and more");
        const char *data = buf.data;
        size_t cap = buf.cap;
        assert_non_null(snib__buf_reserve(&buf, cap - 10));
        assert_ptr_equal(buf.data, data);
        assert_int_equal(buf.cap, cap);
        assert_int_equal(buf.head, 0);
        holds(&buf, "and more");
        if (secret)
            has_no_trace(&buf, "and more");
        assert_non_null(snib__buf_reserve(&buf, 2 * cap)); /* more than there is */
        assert_true(buf.cap > 2 * cap);
        holds(&buf, "and more");
        snib__buf_free(&buf);
    }
}

/* Room that the front does not suffice for. */
static void room_elsewhere(void **state)
{
    (void)state;
    for (int secret = 0; secret < 2; secret++) {
        struct snib__buf buf = made("0123456789", secret);
        snib__buf_consume(&buf, 3);
        size_t cap = buf.cap;
        assert_non_null(snib__buf_reserve(&buf, cap));
        assert_int_equal(buf.cap, 2 * cap);
        holds(&buf, "3456789");
        assert_int_equal(buf.secret, secret);
        snib__buf_free(&buf);
    }
}

static void what_was_secret_is_wiped(void **state)
{
    (void)state;
    struct snib__buf buf = made("password", true);
    snib__buf_consume(&buf, 0);
    holds(&buf, "password");
    snib__buf_consume(&buf, 4);
    assert_memory_equal(buf.data, "\0\0\0\0word", 8);
    snib__buf_consume(&buf, 4);
    assert_memory_equal(buf.data, "\0\0\0\0\0\0\0\0", 8);
    assert_false(buf.secret); /* nothing of it is left */
    assert_int_equal(snib__buf_append(&buf, "PING", 4), 0);
    snib__buf_drop(&buf);
    assert_memory_equal(buf.data, "PING", 4);
    buf.secret = true;
    snib__buf_drop(&buf); /* empty */
    assert_false(buf.secret);
    snib__buf_free(&buf);
    buf.secret = true;
    snib__buf_drop(&buf); /* without memory */
    snib__buf_free(&buf);
    assert_null(buf.data);
}

static void more_than_there_can_be(void **state)
{
    (void)state;
    struct snib__buf buf = made("text", false);
    assert_null(snib__buf_reserve(&buf, SIZE_MAX / 2 + 1000));
    assert_int_equal(snib__buf_append(&buf, "x", SIZE_MAX / 2 + 1000), -1);
    holds(&buf, "text");
    snib__buf_free(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_in_front),
        cmocka_unit_test(room_elsewhere),
        cmocka_unit_test(what_was_secret_is_wiped),
        cmocka_unit_test(more_than_there_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
