/* codes.c - names, texts and flags of the result codes, and the build's version and features.
 *
 * Pure functions over constant tables; callable from any thread.
 */
#include "snib.h"

#ifndef SNIB_BUILD_ID
#define SNIB_BUILD_ID "unknown"
#endif

struct codes_row {
    int32_t code;
    int32_t flags;
    const char *name;
    const char *text;
};

/* The table names its flags without their prefix; only this array sees the short names. */
enum {
    RETRYABLE = SNIB_IS_RETRYABLE,
    MAYBE_APPLIED = SNIB_IS_MAYBE_APPLIED,
    USAGE = SNIB_IS_USAGE
};

static const struct codes_row codes_table[] = {
#define X(name, value, flags, text) {SNIB_##name, flags, "SNIB_" #name, text},
#include "net/codes.def"
#undef X
};

/* The values in the table are those of the public enum. */
#define X(name, value, flags, text) _Static_assert(SNIB_##name == (value), #name);
#include "net/codes.def"
#undef X

static const struct codes_row *codes_find(int32_t code)
{
    for (size_t i = 0; i < sizeof codes_table / sizeof codes_table[0]; i++)
        if (codes_table[i].code == code)
            return &codes_table[i];
    return NULL;
}

const char *snib_code_name(int32_t code)
{
    const struct codes_row *row = codes_find(code);
    return row ? row->name : "SNIB_?";
}

const char *snib_code_text(int32_t code)
{
    const struct codes_row *row = codes_find(code);
    return row ? row->text : "unknown code";
}

int snib_code_is(int32_t code, int32_t flag)
{
    const struct codes_row *row = codes_find(code);
    return row && (row->flags & flag) != 0;
}

const char *snib_reason_text(int32_t reason)
{
    switch (reason) {
    case SNIB_REASON_NONE:
        return "none";
    case SNIB_REASON_EXPIRED:
        return "expired";
    case SNIB_REASON_TAKEN:
        return "taken";
    case SNIB_REASON_DELETED:
        return "deleted";
    case SNIB_REASON_UNREACHABLE:
        return "unreachable";
    case SNIB_REASON_MAX_HOLD:
        return "max hold";
    case SNIB_REASON_CLOSED:
        return "closed";
    case SNIB_REASON_FAILOVER:
        return "failover";
    default:
        return "unknown";
    }
}

int32_t snib_version_number(void)
{
    return SNIB_VERSION_NUMBER;
}

const char *snib_version_string(void)
{
    return SNIB_VERSION_STRING;
}

const char *snib_build_id(void)
{
    return SNIB_BUILD_ID;
}

uint32_t snib_features(void)
{
    return SNIB_FEATURE_UNIX | SNIB_FEATURE_TLS;
}
