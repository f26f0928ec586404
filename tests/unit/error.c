/* Messages: any input gives one printable line of UTF-8. */
#include "unit.h"

#include "net/error.h"
#include "net/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void assert_printable(const char *text)
{
    for (size_t i = 0, n = strlen(text); i < n;) {
        uint32_t c;
        size_t len = snib__utf8_next(text + i, n - i, &c);
        assert_true(len > 0 && !snib__is_control(c));
        i += len;
    }
}

static void fills_the_error(void **state)
{
    (void)state;
    snib_error err;
    memset(&err, 0x5a, sizeof err);
    int code = snib__fail(&err, SNIB_ESYSTEM, EMFILE, "no %s for %d", "socket", 7);
    assert_int_equal(code, SNIB_ESYSTEM);
    assert_int_equal(err.code, SNIB_ESYSTEM);
    assert_int_equal(err.os_error, EMFILE);
    assert_string_equal(err.text, "no socket for 7");
}

static void takes_the_table_text(void **state)
{
    (void)state;
    snib_error err;
    assert_int_equal(snib__fail(&err, SNIB_BUSY, 0, NULL), SNIB_BUSY);
    assert_string_equal(err.text, snib_code_text(SNIB_BUSY));
    assert_int_equal(snib__fail(NULL, SNIB_BUSY, 0, NULL), SNIB_BUSY);
    assert_int_equal(snib__fail(NULL, SNIB_BUSY, 0, "%d", 1), SNIB_BUSY);
}

static void cleans_what_is_not_printable(void **state)
{
    (void)state;
    snib_error err;
    snib__fail(&err, SNIB_ESERVER, 0, "%s",
               "a\r\nb\x7f"
               "c\xc2\x85"
               "d\xff"
               "e\xe2\x82\xac");
    assert_string_equal(err.text, "a??b?c??d?e\xe2\x82\xac");
    snib__fail(&err, SNIB_ESERVER, 0, "%s", "ends badly \xe2\x82");
    assert_string_equal(err.text, "ends badly ??");
}

/* A cut in the middle of a character drops the character, wherever the cut is. */
static void cuts_at_a_character(void **state)
{
    (void)state;
    for (int lead = 0; lead < 4; lead++) {
        snib_error err;
        char text[400] = "xxxx";
        for (size_t i = (size_t)lead; i + 5 < sizeof text; i += 4)
            memcpy(text + i, "\xf0\x9f\x94\x92", 5);
        snib__fail(&err, SNIB_ESERVER, 0, "%s", text);
        size_t n = strlen(err.text);
        assert_true(n > sizeof err.text - 5 && n < sizeof err.text);
        assert_memory_equal(err.text, text, n);
        assert_printable(err.text);
    }
}

static const char *quote(const char *s, size_t n)
{
    static char out[64];
    return snib__quote(out, sizeof out, s, n);
}

static void quotes(void **state)
{
    (void)state;
    assert_string_equal(quote("orders", 6), "\"orders\"");
    assert_string_equal(quote("", 0), "\"\"");
    assert_string_equal(quote("a\"b\\c", 5), "\"a\\\"b\\\\c\"");
    assert_string_equal(quote("a\nb\0c\x7f", 6), "\"a\\x0ab\\x00c\\x7f\"");
    assert_string_equal(quote("\xc3\xa4\xc2\x9b\xff", 5), "\"\xc3\xa4\\xc2\\x9b\\xff\"");
}

/* Random bytes into every size of buffer: printable, terminated, within the buffer. */
static void quotes_anything(void **state)
{
    (void)state;
    srandom(1);
    for (int round = 0; round < 20000; round++) {
        size_t cap = 16 + (size_t)random() % 64;
        size_t n = (size_t)random() % 80;
        char in[80];
        char out[81];
        for (size_t i = 0; i < n; i++)
            in[i] = (char)random();
        out[cap] = 0x5a;
        assert_ptr_equal(snib__quote(out, cap, in, n), out);
        assert_int_equal(out[cap], 0x5a);
        size_t len = strnlen(out, cap);
        assert_true(len < cap);
        assert_printable(out);
        assert_true(out[len - 1] == '"' || strcmp(out + len - 4, "\"...") == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_the_error),
        cmocka_unit_test(takes_the_table_text),
        cmocka_unit_test(cleans_what_is_not_printable),
        cmocka_unit_test(cuts_at_a_character),
        cmocka_unit_test(quotes),
        cmocka_unit_test(quotes_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
