/* Addresses: which texts are addresses, which addresses name the same server, and how they are
 * formatted. */
#include "unit.h"

#include "net/address.h"

#include <string.h>

static struct snib__address host(const char *name, long port)
{
    struct snib__address address;
    assert_true(snib__address_host(&address, name, strlen(name), port, false));
    return address;
}

static void what_is_one(void **state)
{
    (void)state;
    static const char *const bad[] = {"",      ".h",   " ",   "a b",      "a/b", "a@b",
                                      "[::1]", "a%41", "a,b", "\xc3\xa4", "a{",  "a`b"};
    char longest[255];
    struct snib__address address, untouched;
    memset(&untouched, 7, sizeof untouched);
    address = untouched;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(snib__address_host(&address, bad[i], strlen(bad[i]), 1, false));
    assert_false(snib__address_host(&address, "h", 1, 0, false));
    assert_false(snib__address_host(&address, "h", 1, 65536, false));
    assert_false(snib__address_host(&address, "h\0", 2, 1, false));
    memset(longest, 'x', sizeof longest);
    assert_false(snib__address_host(&address, longest, 254, 1, false));
    assert_false(snib__address_path(&address, "/", 1));
    assert_false(snib__address_path(&address, "s", 1));
    assert_false(snib__address_path(&address, "ab", 2));
    assert_false(snib__address_path(&address, "/a\0b", 4));
    longest[0] = '/';
    assert_false(snib__address_path(&address, longest, 108));
    assert_memory_equal(&address, &untouched, sizeof address);
    assert_true(snib__address_path(&address, longest, 107));
    assert_true(snib__address_host(&address, "abc", 2, 65535, true));
    assert_string_equal(address.host, "ab");
    assert_string_equal(address.path, "");
    assert_int_equal(address.port, 65535);
    assert_true(address.tls);
}

static void which_are_the_same(void **state)
{
    (void)state;
    struct snib__address a = host("a", 1), upper = host("A", 1), other = host("a", 2),
                         longer = host("ab", 1), path, secure = a;
    assert_true(snib__address_path(&path, "/a", 2));
    secure.tls = true;
    assert_true(snib__address_equal(&a, &a));
    assert_true(snib__address_equal(&a, &upper));
    assert_true(snib__address_equal(&a, &secure)); /* one server, with or without TLS */
    assert_true(snib__address_order(&a, &other) < 0);
    assert_true(snib__address_order(&other, &a) > 0);
    assert_true(snib__address_order(&a, &longer) < 0);
    assert_true(snib__address_order(&longer, &other) > 0);
    assert_false(snib__address_equal(&a, &path));
    assert_true(snib__address_equal(&path, &path));
}

static void how_they_read(void **state)
{
    (void)state;
    char text[SNIB__ADDRESS_TEXT], name[254];
    struct snib__address address = host("Redis.example", 6379);
    assert_string_equal(snib__address_text(&address, text), "Redis.example:6379");
    address = host("fe80::1", 26379);
    assert_string_equal(snib__address_text(&address, text), "[fe80::1]:26379");
    assert_true(snib__address_path(&address, "/run/\xff", 6));
    assert_string_equal(snib__address_text(&address, text), "/run/?");
    memset(name, 'n', 253);
    name[253] = '\0';
    address = host(name, 65535);
    snib__address_text(&address, text);
    assert_int_equal(strlen(text), 90 + strlen("...:65535"));
    assert_string_equal(text + 90, "...:65535");
    memset(name, '/', 107);
    assert_true(snib__address_path(&address, name, 107));
    assert_int_equal(strlen(snib__address_text(&address, text)), 107);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_one),
        cmocka_unit_test(which_are_the_same),
        cmocka_unit_test(how_they_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
