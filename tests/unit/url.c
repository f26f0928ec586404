/* URLs: each part in each form, everything else refused, and no secret in any message. */
#include "unit.h"

#include "api/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct good {
    const char *url;
    struct snib__url want;
};

static void assert_same_text(const char *a, const char *b)
{
    if (a && b)
        assert_string_equal(a, b);
    else
        assert_ptr_equal(a, b);
}

static void good_urls(void **state)
{
    (void)state;
    static const struct good good[] = {
        {"redis://h", {0, "h", 6379, NULL, NULL, NULL, 0}},
        {"REDIS://h/", {0, "h", 6379, NULL, NULL, NULL, 0}},
        {"redis://127.0.0.1:1/2147483647", {0, "127.0.0.1", 1, NULL, NULL, NULL, 2147483647}},
        {"redis://a-b_c.example:65535/007", {0, "a-b_c.example", 65535, NULL, NULL, NULL, 7}},
        {"redis://[::1]", {0, "::1", 6379, NULL, NULL, NULL, 0}},
        {"redis://u:p@[fe80::1]:7/3", {0, "fe80::1", 7, NULL, "u", "p", 3}},
        {"redis://:secret@h", {0, "h", 6379, NULL, NULL, "secret", 0}},
        {"redis://user@h", {0, "h", 6379, NULL, "user", NULL, 0}},
        {"redis://user:@h", {0, "h", 6379, NULL, "user", "", 0}},
        {"redis://u%40x:p%3a%2F%25:q@h", {0, "h", 6379, NULL, "u@x", "p:/%:q", 0}},
        {"unix:///run/redis.sock", {1, NULL, 0, "/run/redis.sock", NULL, NULL, 0}},
        {"unix:///a%20b@c?db=4", {1, NULL, 0, "/a b@c", NULL, NULL, 4}},
        {"unix://u:p@/s", {1, NULL, 0, "/s", "u", "p", 0}},
    };
    for (size_t i = 0; i < COUNT(good); i++) {
        struct snib__url got;
        snib_error err;
        if (snib__url_parse(good[i].url, &got, &err) != SNIB_OK)
            fail_msg("%s: %s", good[i].url, err.text);
        assert_int_equal(got.is_unix, good[i].want.is_unix);
        assert_int_equal(got.port, good[i].want.port);
        assert_int_equal(got.database, good[i].want.database);
        assert_same_text(got.host, good[i].want.host);
        assert_same_text(got.path, good[i].want.path);
        assert_same_text(got.username, good[i].want.username);
        assert_same_text(got.password, good[i].want.password);
        snib__url_free(&got);
        assert_null(got.host);
        assert_null(got.password);
    }
}

/* Every URL here carries the canary where a password could be. */
static void bad_urls(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "canary",
        "redis:canary",
        "redis:/canary",
        "canary://h",
        "http://canary@h",
        "redis://",
        "redis:///0",
        "redis://:canary@",
        "redis://@h",
        "redis://:@h",
        "redis://u:canary@h:0",
        "redis://u:canary@h:65536",
        "redis://u:canary@h:",
        "redis://u:canary@h:+1",
        "redis://u:canary@h:1x",
        "redis://u:canary@h:00000006379",
        "redis://u:canary@h/x",
        "redis://u:canary@h/-1",
        "redis://u:canary@h/2147483648",
        "redis://u:canary@h/1/",
        "redis://u:canary@h//1",
        "redis://u:canary@h?db=1",
        "redis://u:canary@h/1?x=y",
        "redis://u:canary@h#f",
        "redis://u:canary@h h",
        "redis://u:canary@h\n",
        "redis://u:canary@\x7f",
        "redis://u:canary%@h",
        "redis://u:canary%4@h",
        "redis://u:canary%zz@h",
        "redis://u:canary%00@h",
        "redis://u:canary%0a@h",
        "redis://u:canary@x@h",
        "redis://u:ca/nary@h",
        "redis://u:canary@[::1",
        "redis://u:canary@[]",
        "redis://u:canary@[h]",
        "redis://u:canary@[::1]x",
        "redis://u:canary@[::1]6379",
        "redis://u:canary@::1",
        "redis://u:canary@h%41",
        "redis://u:canary@h$",
        "unix://",
        "unix://canary",
        "unix:///",
        "unix://u:canary@",
        "unix://host/canary",
        "unix:///s?",
        "unix:///s?db=",
        "unix:///s?db=-1",
        "unix:///s?db=1&db=2",
        "unix:///s?x=1",
        "unix:///s?db=2147483648",
        "unix:///s%00canary",
        "unix:///s%",
        "unix://u:canary@/s#1",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct snib__url got;
        snib_error err = {0};
        if (snib__url_parse(bad[i], &got, &err) != SNIB_EURL)
            fail_msg("accepted %s", bad[i]);
        assert_int_equal(err.code, SNIB_EURL);
        assert_true(strlen(err.text) > 10);
        assert_null(strstr(err.text, "canary"));
        assert_memory_equal(&got, &(struct snib__url){0}, sizeof got);
    }
    struct snib__url got;
    assert_int_equal(snib__url_parse(NULL, &got, NULL), SNIB_EURL);
}

static void schemes_of_other_builds(void **state)
{
    (void)state;
    static const char *const later[] = {"rediss://u:canary@h", "REDIS+sentinel://u:canary@h/x",
                                        "redis+cluster://u:canary@h"};
    for (size_t i = 0; i < COUNT(later); i++) {
        struct snib__url got;
        snib_error err = {0};
        assert_int_equal(snib__url_parse(later[i], &got, &err), SNIB_ENOTSUP);
        assert_null(strstr(err.text, "canary"));
    }
}

static void limits(void **state)
{
    (void)state;
    char url[400] = "unix:///";
    struct snib__url got;
    memset(url + 8, 'x', 106);
    assert_int_equal(snib__url_parse(url, &got, NULL), SNIB_OK); /* 107 bytes and the NUL */
    snib__url_free(&got);
    url[8 + 106] = 'x';
    assert_int_equal(snib__url_parse(url, &got, NULL), SNIB_EURL);
    memcpy(url, "redis://", 8);
    memset(url + 8, 'x', 253);
    url[8 + 253] = '\0';
    assert_int_equal(snib__url_parse(url, &got, NULL), SNIB_OK);
    snib__url_free(&got);
    memcpy(url + 8 + 253, "x", 2);
    assert_int_equal(snib__url_parse(url, &got, NULL), SNIB_EURL);
}

/* Anything out of the grammar's letters parses or fails, and never leaves something behind; the
 * sanitizers judge. */
static void random_urls(void **state)
{
    (void)state;
    static const char letters[] = "ah1/:@%[]?=#.-2\x80";
    srandom(1);
    int accepted = 0;
    for (int round = 0; round < 200000; round++) {
        char url[40];
        int used = snprintf(url, sizeof url, "%s", round % 2 ? "redis://" : "unix://");
        for (int n = (int)(random() % 20); n > 0; n--)
            url[used++] = letters[(size_t)random() % (sizeof letters - 1)];
        url[used] = '\0';
        struct snib__url got;
        if (snib__url_parse(url, &got, NULL) == SNIB_OK) {
            assert_true(got.is_unix ? got.path && !got.host : got.host && !got.path);
            accepted++;
            snib__url_free(&got);
        }
    }
    assert_true(accepted > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_urls),
        cmocka_unit_test(bad_urls),
        cmocka_unit_test(schemes_of_other_builds),
        cmocka_unit_test(limits),
        cmocka_unit_test(random_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
