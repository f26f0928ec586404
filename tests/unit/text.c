/* The decoder against the definition: every scalar value's encoding decodes to it, and every
 * sequence of up to three bytes that encodes no scalar value is refused. */
#include "unit.h"

#include "net/text.h"

#include <string.h>

static size_t encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf0U << (4 - n)) | c);
    return n;
}

static void every_scalar_value(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        char text[4];
        uint32_t got = ~c;
        size_t n = encode(c, text);
        size_t want = c >= 0xd800 && c <= 0xdfff ? 0 : n;
        assert_int_equal(snib__utf8_next(text, n, &got), want);
        if (want) {
            assert_int_equal(got, c);
            assert_int_equal(snib__utf8_next(text, n - 1, &got), 0); /* cut short */
        }
    }
}

/* A decoded sequence must encode to the same bytes again, so overlong forms cannot pass. */
static void every_three_bytes(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 1U << 24; bits++) {
        char text[3] = {(char)(bits >> 16), (char)(bits >> 8), (char)bits};
        char again[4];
        uint32_t c = 0;
        size_t n = snib__utf8_next(text, sizeof text, &c);
        if (n > 0 && (encode(c, again) != n || memcmp(text, again, n) != 0))
            fail_msg("%06x decoded to %x", bits, c);
    }
}

static void bad_sequences(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xf8\x88\x80\x80\x80",
        "\xfe",
        "\xff",
        "\xc3"
        "a",
        "\xe2\x82"
        "a",
        "\xf0\x9f\x98"
        "a",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        uint32_t c = 7;
        assert_int_equal(snib__utf8_next(bad[i], strlen(bad[i]), &c), 0);
        assert_int_equal(c, 7);
    }
    uint32_t c = 7;
    assert_int_equal(snib__utf8_next("", 0, &c), 0);
}

static void controls(void **state)
{
    (void)state;
    static const uint32_t yes[] = {0, '\n', 0x1f, 0x7f, 0x80, 0x85, 0x9f};
    static const uint32_t no[] = {' ', '~', 0xa0, 0x2028, 0x10ffff};
    for (size_t i = 0; i < COUNT(yes); i++)
        assert_true(snib__is_control(yes[i]));
    for (size_t i = 0; i < COUNT(no); i++)
        assert_false(snib__is_control(no[i]));
}

static bool is_clean(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t len = snib__utf8_next(text + i, n - i, &c);
        if (len == 0 || snib__is_control(c))
            return false;
        i += len;
    }
    return true;
}

static void cleaned(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"", ""},
        {"plain text", "plain text"},
        {"\xff\xfe\xfd:1", "???:1"},
        {"a\nb\x7f\xc2\x85z", "a?b???z"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"\xed\xa0\x80", "???"},
        {"cut \xe2\x82", "cut ??"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[32];
        strcpy(text, cases[i].from);
        assert_int_equal(snib__text_clean(text, strlen(text), false), strlen(cases[i].to));
        assert_string_equal(text, cases[i].to);
    }
    char shown[6];
    snib__text_show(shown, sizeof shown, "abc\xe2\x82\xac",
                    6); /* the last character does not fit */
    assert_string_equal(shown, "abc");
    snib__text_show(shown, sizeof shown, "a\0b", 3);
    assert_string_equal(shown, "a?b");
}

/* Any bytes: clean, not longer, and clean text is unchanged. */
static void any_bytes(void **state)
{
    (void)state;
    uint64_t random = 88172645463325252;
    for (int round = 0; round < 200000; round++) {
        char bytes[25], again[25];
        size_t n = random % sizeof bytes;
        for (size_t i = 0; i < n; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            /* mostly bytes that begin or continue a sequence */
            bytes[i] = (char)(random & 3 ? 0x80 | (random >> 8 & 0x7f) : random >> 8);
        }
        random ^= random << 7;
        random ^= random >> 9;
        if (n == sizeof bytes)
            n--;
        size_t len = snib__text_clean(bytes, n, round & 1);
        assert_true(len <= n && bytes[len] == 0 && strlen(bytes) == len);
        assert_true(is_clean(bytes, len));
        memcpy(again, bytes, sizeof again);
        assert_int_equal(snib__text_clean(again, len, false), len);
        assert_memory_equal(again, bytes, len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cleaned),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(every_scalar_value),
        cmocka_unit_test(every_three_bytes),
        cmocka_unit_test(bad_sequences),
        cmocka_unit_test(controls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
