/* words.c - the server's messages: safe to display, and without secrets. */
#include "unit.h"

#include "net/words.h"

#include <string.h>

static void expect(const char *text, const char *secret, const char *want)
{
    char out[SNIB__WORDS_MAX];
    snib__words(out, sizeof out, text, strlen(text), secret);
    assert_string_equal(out, want);
}

static void shown(void **state)
{
    (void)state;
    expect("NOPERM this user has no permissions", NULL, "NOPERM this user has no permissions");
    expect("ERR a\r\nb\x1b[31m\xff", NULL, "ERR a??b?[31m?");
    expect("WRONGTYPE Operation against a key script: 0123, on @user_script:7.", NULL,
           "WRONGTYPE Operation against a key");
    expect("", NULL, "");
    expect("a\x7f z~", NULL, "a? z~");
    expect("three dots. . .", NULL, "three dots");
}

static void secrets(void **state)
{
    (void)state;
    expect("ERR unknown command 'AUTH', with args beginning with: 'app' 'hunter2' ", "hunter2",
           "ERR unknown command 'AUTH'");
    expect("ERR hunter2 and hunter2", "hunter2", "ERR *** and ***");
    expect("ERR what is hunt", "hunter2", "ERR what is ***"); /* truncated by the server */
    expect("ERR hunters", "hunter2", "ERR hunters");
    expect("ERR x", "", "ERR x");
    expect("NOPERM no permissions p 'p'", "p", "NOPERM no permissions *** '***'");
    /* a short one counts only where it stands alone, a long one anywhere */
    expect("ap pa zp pz Ap pZ 0p p9", "p", "ap pa zp pz Ap pZ 0p p9");
    expect("p _p_ {p} [p] :p: /p/ @p`", "p", "*** _***_ {***} [***] :***: /***/ @***`");
    expect("xhunter2x", "hunter2", "x***x");
    expect("xhuntx", "hunt", "xhuntx");
    expect("hu", "hunter2", "hu"); /* too little of it to know */
}

static void long_ones(void **state)
{
    (void)state;
    char text[600], out[SNIB__WORDS_MAX];
    memset(text, 'x', sizeof text);
    snib__words(out, sizeof out, text, sizeof text, "y");
    assert_true(strlen(out) > SNIB__WORDS_MAX - 8 && strlen(out) < SNIB__WORDS_MAX);
    static const char misconf[] = "MISCONF Redis is configured to save RDB snapshots, but it's "
                                  "currently unable to persist to disk. Commands that may "
                                  "modify the data set are disabled, because this instance is "
                                  "configured to report errors during writes if RDB "
                                  "snapshotting fails (stop-writes-on-bgsave-error option). Please "
                                  "check the Redis logs for details about the RDB error.";
    snib__words(out, sizeof out, misconf, sizeof misconf - 1, "y");
    assert_memory_equal(out, misconf, 100);
    assert_non_null(strstr(out, " ... "));
    assert_non_null(strstr(out, ". Please check the Redis logs for details about the RDB error"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shown),
        cmocka_unit_test(secrets),
        cmocka_unit_test(long_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
