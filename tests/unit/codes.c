/* Every code of the public enum has one row in codes.def, a good sentence and sane flags. */
#include "unit.h"

#include "snib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int32_t code;
    const char *name;
} rows[] = {
#define X(name, value, flags, text) {value, "SNIB_" #name},
#include "net/codes.def"
#undef X
};

/* Goal: the enum in snib.h and codes.def list the same names and values.  Method: read the header's
 * text, because a name that is missing from the table cannot be found through the table. */
static void header_and_table_agree(void **state)
{
    (void)state;
    FILE *file = fopen(SNIB_HEADER, "r");
    assert_non_null(file);
    char line[256];
    size_t found = 0;
    int is_inside = 0;
    while (fgets(line, sizeof line, file)) {
        char name[64];
        int value;
        if (strncmp(line, "enum snib_code {", 16) == 0)
            is_inside = 1;
        else if (line[0] == '}')
            is_inside = 0;
        if (!is_inside || sscanf(line, " %63[A-Z_0-9] = %d", name, &value) != 2)
            continue;
        assert_true(found < COUNT(rows));
        assert_string_equal(rows[found].name, name);
        assert_int_equal(rows[found].code, value);
        found++;
    }
    fclose(file);
    assert_int_equal(found, COUNT(rows));
}

static void names_and_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *text = snib_code_text(rows[i].code);
        assert_string_equal(snib_code_name(rows[i].code), rows[i].name);
        assert_true(strlen(text) >= 4 && strlen(text) < sizeof((snib_error *)0)->text);
        assert_null(strchr(text, '\n'));
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(text, snib_code_text(rows[k].code));
    }
    assert_string_equal(snib_code_name(12345), "SNIB_?");
    assert_string_equal(snib_code_text(12345), "unknown code");
}

static void flags(void **state)
{
    (void)state;
    assert_int_equal(snib_code_is(SNIB_BUSY, SNIB_IS_RETRYABLE), 1);
    assert_int_equal(snib_code_is(SNIB_EUNREACHABLE, SNIB_IS_RETRYABLE), 1);
    assert_int_equal(snib_code_is(SNIB_EUNREACHABLE, SNIB_IS_MAYBE_APPLIED), 1);
    assert_int_equal(snib_code_is(SNIB_EUNREACHABLE, SNIB_IS_USAGE), 0);
    assert_int_equal(snib_code_is(SNIB_OK, SNIB_IS_RETRYABLE), 0);
    assert_int_equal(snib_code_is(SNIB_EINVAL, 0), 0);
    assert_int_equal(snib_code_is(12345, SNIB_IS_USAGE), 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        int32_t code = rows[i].code;
        if (snib_code_is(code, SNIB_IS_USAGE)) /* nothing was sent, and a retry would not help */
            assert_false(snib_code_is(code, SNIB_IS_RETRYABLE | SNIB_IS_MAYBE_APPLIED));
        if (code <= SNIB_EINVAL && code > SNIB_ENOMEM)
            assert_true(snib_code_is(code, SNIB_IS_USAGE));
    }
}

static void reasons(void **state)
{
    (void)state;
    assert_string_equal(snib_reason_text(SNIB_REASON_NONE), "none");
    assert_string_equal(snib_reason_text(SNIB_REASON_MAX_HOLD), "max hold");
    assert_string_equal(snib_reason_text(SNIB_REASON_FAILOVER + 1), "unknown");
    for (int32_t a = SNIB_REASON_NONE; a <= SNIB_REASON_FAILOVER; a++)
        for (int32_t b = SNIB_REASON_NONE; b < a; b++)
            assert_string_not_equal(snib_reason_text(a), snib_reason_text(b));
}

static void versions(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", SNIB_VERSION_MAJOR, SNIB_VERSION_MINOR,
             SNIB_VERSION_PATCH);
    assert_string_equal(snib_version_string(), text);
    assert_string_equal(snib_version_string(), SNIB_VERSION_STRING);
    assert_int_equal(snib_version_number(),
                     SNIB_VERSION_MAJOR * 1000000 + SNIB_VERSION_MINOR * 1000 + SNIB_VERSION_PATCH);
    assert_int_equal(strlen(snib_build_id()), 16);
    assert_int_equal(strspn(snib_build_id(), "0123456789abcdef"), 16);
    assert_true(snib_features() & SNIB_FEATURE_UNIX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_and_table_agree),
        cmocka_unit_test(names_and_texts),
        cmocka_unit_test(flags),
        cmocka_unit_test(reasons),
        cmocka_unit_test(versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
