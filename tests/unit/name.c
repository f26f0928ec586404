/* Lock names: valid ones, invalid ones, and each limit from both sides. */
#include "unit.h"

#include "api/name.h"

#include <string.h>

static int check(const char *name, snib_error *err)
{
    return snib__name_check(name, strlen(name), err);
}

static void good_names(void **state)
{
    (void)state;
    static const char *const good[] = {
        "a",
        "orders",
        "orders:42",
        "with blank",
        "{tenant}orders",
        "x{tag}",
        "x{tag}y{z}",
        "a{b}c}d",
        "{a{b}",
        "\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\x92",
        "\"quoted\\",
        "%s%n",
        "*",
    };
    for (size_t i = 0; i < COUNT(good); i++)
        assert_int_equal(check(good[i], NULL), SNIB_OK);
    char longest[513];
    memset(longest, 'x', sizeof longest);
    assert_int_equal(snib__name_check(longest, 512, NULL), SNIB_OK);
    assert_int_equal(snib__name_check(longest, 513, NULL), SNIB_ENAME);
}

static void bad_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *says;
    } bad[] = {
        {"", "empty"},
        {"a\nb", "control character at byte 1"},
        {"a\x1f", "control character"},
        {"\x7f", "control character at byte 0"},
        {"a\xc2\x85", "control character at byte 1"},
        {"\xff", "not UTF-8 at byte 0"},
        {"ab\xc0\xaf", "not UTF-8 at byte 2"},
        {"\xed\xa0\x80", "not UTF-8"},
        {"\xe2\x82", "not UTF-8"},
        {"a{b", "not closed"},
        {"{a", "not closed"},
        {"a{}b", "empty"},
        {"{}x", "empty"},
        {"{}{a}", "empty"},
        {"a}b", "closing brace"},
        {"}{", "closing brace"},
        {"a}b{c}d", "closing brace"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        snib_error err = {0};
        assert_int_equal(check(bad[i].name, &err), SNIB_ENAME);
        assert_int_equal(err.code, SNIB_ENAME);
        if (!strstr(err.text, bad[i].says))
            fail_msg("\"%s\" lacks \"%s\"", err.text, bad[i].says);
    }
    assert_int_equal(snib__name_check("a\0b", 3, NULL), SNIB_ENAME);
    assert_int_equal(snib__name_check(NULL, 3, NULL), SNIB_ENAME);
    assert_int_equal(snib__name_check("abc", 0, NULL), SNIB_ENAME);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_names),
        cmocka_unit_test(bad_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
