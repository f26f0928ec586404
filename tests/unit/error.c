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

/* A sentence says last what was applied or what to do.  A cut in the middle of a character drops the character, wherever
 * the cut is. */
static void shortens_in_the_middle(void **state)
{
    (void)state;
    static const char begin[] = "what happened", end[] = "; what to do";
    for (int lead = 0; lead < 4; lead++) {
        snib_error err;
        char text[900] = "xxxx";
        for (size_t i = (size_t)lead; i + 5 < sizeof text; i += 4)
            memcpy(text + i, "\xf0\x9f\x94\x92", 5);
        snib__fail(&err, SNIB_ESERVER, 0, "%s%s%s", begin, text, end);
        size_t n = strlen(err.text);
        assert_true(n > sizeof err.text - 9 && n < sizeof err.text);
        assert_memory_equal(err.text, begin, sizeof begin - 1);
        assert_string_equal(err.text + n - (sizeof end - 1), end);
        assert_non_null(strstr(err.text, " ... "));
        assert_printable(err.text);
        assert_null(strchr(err.text, '?'));
    }
}

/* Each length around the limit. */
static void keeps_what_fits(void **state)
{
    (void)state;
    char text[64], out[33];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i % 26);
    for (size_t n = 0; n < sizeof text; n++) {
        out[32] = 0x5a;
        snib__text_shorten(out, 32, text, n);
        assert_int_equal(out[32], 0x5a);
        assert_int_equal(strlen(out), n < 32 ? n : 31);
        assert_memory_equal(out, text, n < 32 ? n : 13);
        if (n >= 32)
            assert_memory_equal(out + 18, text + n - 13, 13);
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
        cmocka_unit_test(shortens_in_the_middle),
        cmocka_unit_test(keeps_what_fits),
        cmocka_unit_test(quotes),
        cmocka_unit_test(quotes_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
