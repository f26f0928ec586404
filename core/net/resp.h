/* resp.h - the Redis protocol: replies through hiredis' reader, commands into a buffer.
 *
 * Only resp.c and its test include a hiredis header.  A reply is a flat run of values in pre-order:
 * an array's value gives the number of its children, which follow it.  Snib sets its own limits on
 * size, number and depth; a peer that exceeds them is not believed (SNIB_EPROTOCOL).
 */
#ifndef SNIB__RESP_H
#define SNIB__RESP_H

#include "net/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum snib__resp_type {
    SNIB__RESP_NIL,
    SNIB__RESP_INTEGER,
    SNIB__RESP_STRING,
    SNIB__RESP_STATUS,
    SNIB__RESP_ERROR,
    SNIB__RESP_ARRAY
};

/* The largest legitimate reply is a cluster's map with as many ranges as slots. */
#define SNIB__RESP_VALUES_MAX (512 * 1024)     /* values in one reply */
#define SNIB__RESP_BYTES_MAX (4 * 1024 * 1024) /* bytes in one reply */

struct snib__value {
    int32_t type;    /* enum snib__resp_type */
    uint32_t count;  /* children of an array, bytes of a string */
    int64_t integer; /* INTEGER: the number; strings: an offset, see snib__resp_text() */
};

struct snib__resp;

struct snib__resp *snib__resp_new(void);
void snib__resp_free(struct snib__resp *resp);

/* snib__resp_feed - hand over received bytes.  0, or -1: bad protocol, over
 * a limit, or out of memory. */
int snib__resp_feed(struct snib__resp *resp, const char *bytes, size_t n);

/* snib__resp_next - the next complete reply, valid until the next call.
 * Returns its values (*out_n of them), or NULL: not complete yet, or (*out_broken = 1) unusable. */
const struct snib__value *snib__resp_next(struct snib__resp *resp, uint32_t *out_n,
                                          int *out_broken);

/* snib__resp_spoil - it takes no more bytes, as if one of these two had failed with SNIB_ENOMEM. */
void snib__resp_spoil(struct snib__resp *resp);
bool snib__resp_spoilt(const struct snib__resp *resp);

/* snib__resp_failure - after a failure of one of these two: SNIB_ENOMEM, or SNIB_EPROTOCOL. */
int32_t snib__resp_failure(const struct snib__resp *resp);

/* snib__resp_text - the bytes of a STRING, STATUS or ERROR, with a NUL added. */
const char *snib__resp_text(const struct snib__resp *resp, const struct snib__value *value);

/* Commands.  Begin with the number of arguments, then append each; -1 when out of
 * memory.  Tests compare the bytes with those of redisFormatCommandArgv(), which
 * allocates and costs 50 times as much. */
int snib__resp_begin(struct snib__buf *out, uint32_t argc);
int snib__resp_arg(struct snib__buf *out, const char *bytes, size_t n);
int snib__resp_arg_int(struct snib__buf *out, int64_t number);

/* An argument of 10 to 99 bytes that is written where it belongs: where, with room for cap bytes, or
 * NULL; then how many there are. */
char *snib__resp_place(struct snib__buf *out, size_t cap);
void snib__resp_placed(struct snib__buf *out, size_t n);

/* snib__decimal - write number without a terminator, at most 20 bytes; returns the count. */
size_t snib__decimal(char *out, int64_t number);

#endif
