/* reply.c - the reply decoder: the same bytes in one piece and in any pieces are the same replies.
 *
 * They are also what hiredis' own tree of replies says, and broken where that is broken, unless a limit of
 * ours is exceeded.  Memory stays in proportion to the bytes, and a connection that is in doubt is closed.
 * With a login, no error shows the password.
 */
#include "fuzz.h"

#include "net/conn.h"
#include "net/resp.h"
#include "snib.h"

#include <hiredis/hiredis.h>
#include <sanitizer/allocator_interface.h>

#define PASSWORD "Canary-7-Canary"
#define ALL_SPLITS 48 /* bytes of an input that is split everywhere */

/* ---- A run of replies as one number ---------------------------------------------------------------- */

struct digest {
    uint64_t hash;
    uint32_t replies;
    bool broken;
};

static void mix(struct digest *d, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d->hash = (d->hash ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
}

static void mix_number(struct digest *d, int64_t number)
{
    mix(d, &number, sizeof number);
}

static void mix_value(struct digest *d, int32_t type, uint32_t count, int64_t integer,
                      const char *text)
{
    mix_number(d, type);
    mix_number(d, count);
    if (type == SNIB__RESP_INTEGER)
        mix_number(d, integer);
    else if (text)
        mix(d, text, count);
}

static bool has_text(int32_t type)
{
    return type == SNIB__RESP_STRING || type == SNIB__RESP_STATUS || type == SNIB__RESP_ERROR;
}

static void drain(struct snib__resp *resp, struct digest *d)
{
    const struct snib__value *reply;
    uint32_t n;
    int broken = 0;
    while (!d->broken && (reply = snib__resp_next(resp, &n, &broken))) {
        uint64_t children = 1;
        for (uint32_t i = 0; i < n; i++) {
            bool text = has_text(reply[i].type);
            children += reply[i].type == SNIB__RESP_ARRAY ? reply[i].count : 0;
            MUST(!text || snib__resp_text(resp, &reply[i])[reply[i].count] == 0);
            mix_value(d, reply[i].type, reply[i].count, reply[i].integer,
                      text ? snib__resp_text(resp, &reply[i]) : NULL);
        }
        MUST(children == n); /* a whole tree, in order */
        d->replies++;
    }
    d->broken = d->broken || broken;
}

/* A copy of exactly these bytes, so that reading too far is noticed. */
static void feed(struct snib__resp *resp, struct digest *d, const uint8_t *data, size_t n)
{
    if (d->broken || n == 0)
        return;
    char *copy = malloc(n);
    MUST(copy);
    memcpy(copy, data, n);
    d->broken = snib__resp_feed(resp, copy, n) < 0;
    free(copy);
    drain(resp, d);
}

/* In pieces of `piece` bytes, the first of `first`. */
static struct digest digest_of(const uint8_t *data, size_t size, size_t first, size_t piece)
{
    struct digest d = {.hash = 14695981039346656037u};
    struct snib__resp *resp = snib__resp_new();
    size_t before = __sanitizer_get_current_allocated_bytes();
    MUST(resp);
    for (size_t at = 0, n = first; at < size; at += n, n = piece) {
        n = n < size - at ? n : size - at;
        feed(resp, &d, data + at, n);
    }
    MUST(__sanitizer_get_current_allocated_bytes() < before + 65536 + 64 * size);
    snib__resp_free(resp);
    return d;
}

/* A line at a time: so nil and numbers come alone. */
static struct digest digest_of_lines(const uint8_t *data, size_t size)
{
    struct digest d = {.hash = 14695981039346656037u};
    struct snib__resp *resp = snib__resp_new();
    MUST(resp);
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t n = end ? (size_t)(end - data) + 1 - at : size - at;
        feed(resp, &d, data + at, n);
        at += n;
    }
    snib__resp_free(resp);
    return d;
}

static void must_equal(struct digest one, struct digest other)
{
    MUST(one.replies == other.replies);
    MUST(one.broken == other.broken);
    MUST(one.hash == other.hash);
}

/* ---- Against hiredis ------------------------------------------------------------------------------- */

static void mix_tree(struct digest *d, const redisReply *reply)
{
    static const int32_t types[] = {
        [REDIS_REPLY_STRING] = SNIB__RESP_STRING,   [REDIS_REPLY_ARRAY] = SNIB__RESP_ARRAY,
        [REDIS_REPLY_INTEGER] = SNIB__RESP_INTEGER, [REDIS_REPLY_NIL] = SNIB__RESP_NIL,
        [REDIS_REPLY_STATUS] = SNIB__RESP_STATUS,   [REDIS_REPLY_ERROR] = SNIB__RESP_ERROR};
    int32_t type = types[reply->type];
    uint32_t count = type == SNIB__RESP_ARRAY ? (uint32_t)reply->elements
                     : has_text(type)         ? (uint32_t)reply->len
                                              : 0;
    mix_value(d, type, count, reply->integer, has_text(type) ? reply->str : NULL);
    for (size_t i = 0; type == SNIB__RESP_ARRAY && i < reply->elements; i++)
        mix_tree(d, reply->element[i]);
}

static struct digest hiredis_says(const uint8_t *data, size_t size)
{
    struct digest d = {.hash = 14695981039346656037u};
    redisReader *reader = redisReaderCreate();
    void *reply;
    redisReaderFeed(reader, (const char *)data, size);
    while (!(d.broken = redisReaderGetReply(reader, &reply) != REDIS_OK) && reply) {
        mix_tree(&d, reply);
        freeReplyObject(reply);
        d.replies++;
    }
    redisReaderFree(reader);
    return d;
}

/* Then one of our limits may be exceeded, and of what we refuse hiredis accepts some. */
static bool has_large_number(const uint8_t *data, size_t size)
{
    unsigned digits = 0;
    for (size_t i = 0; i < size && digits < 6; i++)
        digits = data[i] >= '0' && data[i] <= '9' ? digits + 1 : 0;
    return digits == 6;
}

/* ---- A connection ---------------------------------------------------------------------------------- */

/* While the login lasts, nothing may be left of a password in an error. */
static void check_masked(const uint8_t *sent, const char *seen, size_t n)
{
    const size_t len = strlen(PASSWORD);
    bool error = false;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || sent[i - 1] == '\n')
            error = sent[i] == '-';
        if (!error || i + len > n || memcmp(sent + i, PASSWORD, len) != 0)
            continue;
        for (size_t j = 0; j < len; j++)
            MUST(seen[i + j] == '*');
    }
}

static void check_conn(const uint8_t *data, size_t size, size_t piece, bool pubsub, bool login)
{
    struct snib__conn conn;
    struct snib__login how = {.password = login ? PASSWORD : NULL, .database = 3};
    struct snib__request request;
    const struct snib__value *reply;
    uint32_t n;
    int more = 0;
    char *seen = malloc(size + 1);
    size_t seen_n = 0;
    MUST(seen && snib__conn_init(&conn, pubsub) == 0);
    MUST(snib__conn_begin(&conn, &how, 1) == 0);
    for (size_t at = 0; at < size && more >= 0; at += piece) {
        size_t part = piece < size - at ? piece : size - at;
        bool logs_in = conn.state == SNIB__CONN_HANDSHAKE;
        memcpy(seen + at, data + at, part);
        snib__conn_mask(&conn, seen + at, part);
        seen_n = logs_in ? at + part : seen_n;
        if (snib__resp_feed(conn.resp, seen + at, part) < 0)
            break;
        while ((more = snib__conn_next(&conn, &request, &reply, &n)) > 0)
            MUST(pubsub && conn.state == SNIB__CONN_READY); /* nothing else was asked */
        MUST(more == 0 || conn.failure < 0);
        MUST(!login || !strstr(conn.words, PASSWORD));
    }
    if (login)
        check_masked(data, seen, seen_n);
    MUST(memchr(conn.run_id, 0, sizeof conn.run_id) && memchr(conn.words, 0, sizeof conn.words));
    snib__conn_reset(&conn);
    MUST(conn.state == SNIB__CONN_DOWN && snib__buf_size(&conn.out) == 0);
    while (snib__conn_orphan(&conn, &request))
        MUST(false); /* all requests were its own */
    snib__conn_free(&conn);
    free(seen);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    uint8_t how = data[0], piece = data[1];
    data += 2;
    size -= 2;
    struct digest whole = digest_of(data, size, size, 1);
    must_equal(whole, digest_of(data, size, 1, 1));
    must_equal(whole, digest_of_lines(data, size));
    must_equal(whole, digest_of(data, size, 1u + piece, 1u + piece));
    if (size <= ALL_SPLITS)
        for (size_t at = 1; at < size; at++)
            must_equal(whole, digest_of(data, size, at, size));
    if (!whole.broken || !has_large_number(data, size))
        must_equal(whole, hiredis_says(data, size));
    check_conn(data, size, 1u + piece, how & 1, how & 2);
    return 0;
}
