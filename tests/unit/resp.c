/* resp.c - commands are byte for byte what hiredis would write; replies survive any split; limits
 * hold. */
#include "unit.h"

#include "net/conn.h"
#include "net/resp.h"
#include "net/script.h"
#include "snib.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void commands_match_hiredis(void **state)
{
    (void)state;
    const char *argv[] = {"EVALSHA", NULL, "2", "", "a\0b", "key with spaces\r\n"};
    argv[1] = snib__script_texts[SNIB__SCRIPT_MUTEX_ACQUIRE].sha1;
    const size_t lens[] = {7, 40, 1, 0, 3, 17};
    char *expected;
    int n = (int)redisFormatCommandArgv(&expected, 6, argv, lens); /* wider in newer versions */
    struct snib__buf out = {0};
    assert_int_equal(snib__script_begin(&out, SNIB__SCRIPT_MUTEX_ACQUIRE, 2, 3), 0);
    for (int i = 3; i < 6; i++)
        assert_int_equal(snib__resp_arg(&out, argv[i], lens[i]), 0);
    assert_int_equal(snib__buf_size(&out), n);
    assert_memory_equal(out.data + out.head, expected, (size_t)n);
    redisFreeCommand(expected);
    snib__buf_free(&out);
}

static void one_key_matches_hiredis(void **state)
{
    (void)state;
    const char *argv[] = {"EVALSHA", snib__script_texts[SNIB__SCRIPT_MUTEX_RELEASE].sha1, "1", "k"};
    char *expected;
    int n = (int)redisFormatCommandArgv(&expected, 4, argv, NULL);
    struct snib__buf out = {0};
    assert_int_equal(snib__script_begin(&out, SNIB__SCRIPT_MUTEX_RELEASE, 1, 1), 0);
    assert_int_equal(snib__resp_arg(&out, "k", 1), 0);
    assert_int_equal(snib__buf_size(&out), n);
    assert_memory_equal(out.data + out.head, expected, (size_t)n);
    redisFreeCommand(expected);
    snib__buf_free(&out);
}

static void numbers_are_decimal(void **state)
{
    (void)state;
    static const int64_t numbers[] = {0, 7, -1, 10, 30000, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        char ours[24], theirs[24];
        size_t n = snib__decimal(ours, numbers[i]);
        assert_int_equal(snprintf(theirs, sizeof theirs, "%lld", (long long)numbers[i]), n);
        assert_memory_equal(ours, theirs, n);
    }
}

static const char stream[] =
    ":42\r\n$-1\r\n+OK\r\n-ERR "
    "no\r\n$3\r\na\0b\r\n*3\r\n:1\r\n*2\r\n$1\r\nx\r\n:-9\r\n$0\r\n\r\n*0\r\n";

static void check_stream(struct snib__resp *resp, size_t cut)
{
    static const int32_t types[] = {SNIB__RESP_INTEGER, SNIB__RESP_NIL,    SNIB__RESP_STATUS,
                                    SNIB__RESP_ERROR,   SNIB__RESP_STRING, SNIB__RESP_ARRAY,
                                    SNIB__RESP_ARRAY};
    const struct snib__value *reply;
    uint32_t n, seen = 0;
    int broken;
    size_t at = 0;
    while (at < sizeof stream - 1) {
        size_t step = at == 0 ? cut : 1;
        assert_int_equal(snib__resp_feed(resp, stream + at, step), 0);
        at += step;
        while ((reply = snib__resp_next(resp, &n, &broken))) {
            assert_int_equal(reply[0].type, types[seen]);
            if (seen == 0)
                assert_int_equal(reply[0].integer, 42);
            if (seen == 4)
                assert_memory_equal(snib__resp_text(resp, reply), "a\0b", 4);
            if (seen == 5) {
                assert_int_equal(n, 6);
                assert_int_equal(reply[2].count, 2);
                assert_string_equal(snib__resp_text(resp, &reply[3]), "x");
                assert_int_equal(reply[4].integer, -9);
            }
            seen++;
        }
        assert_false(broken);
    }
    assert_int_equal(seen, COUNT(types));
}

static void replies_survive_every_split(void **state)
{
    (void)state;
    for (size_t cut = 1; cut < sizeof stream; cut++) {
        struct snib__resp *resp = snib__resp_new();
        check_stream(resp, cut);
        check_stream(resp, 1); /* a second time on the same reader */
        snib__resp_free(resp);
    }
}

struct said {
    struct snib__value value;
    uint32_t n;
    bool failed;
};

/* What a reader that has had a reply says of these bytes, in pieces of `step`. */
static struct said said_of(const char *bytes, size_t step)
{
    struct snib__resp *resp = snib__resp_new();
    struct said said = {{0}, 0, false};
    const struct snib__value *reply;
    int broken = 0;
    assert_int_equal(snib__resp_feed(resp, "+OK\r\n", 5), 0);
    assert_non_null(snib__resp_next(resp, &said.n, &broken));
    said.n = 0;
    for (size_t at = 0, size = strlen(bytes); at < size; at += step) {
        said.failed |= snib__resp_feed(resp, bytes + at, step < size - at ? step : size - at) < 0;
        while (!said.failed && (reply = snib__resp_next(resp, &said.n, &broken)))
            said.value = *reply;
        said.failed |= broken != 0;
    }
    snib__resp_free(resp);
    return said;
}

/* Nil and small numbers have a way of their own when they come alone: it is as strict. */
static void lone_replies_are_as_in_pieces(void **state)
{
    (void)state;
    static const char *const lone[] = {"$-1\r\n",
                                       "$-2\r\n",
                                       "$-1\n\r",
                                       "$-10\r\n",
                                       ":0\r\n",
                                       ":7\r\n",
                                       ":-7\r\n",
                                       ":01\r\n",
                                       ":00\r\n",
                                       ":+1\r\n",
                                       ": 1\r\n",
                                       ":1a\r\n",
                                       ":a\r\n",
                                       ":\r\n",
                                       ":1\n",
                                       ":1\r\r",
                                       ":12",
                                       ":1:2\r\n",
                                       "+1\r\n",
                                       "$1\r\n",
                                       ":999999999\r\n",
                                       ":9999999999\r\n",
                                       ":9223372036854775807\r\n",
                                       ":99999999999999999999\r\n"};
    for (size_t i = 0; i < COUNT(lone); i++) {
        struct said whole = said_of(lone[i], 64), pieces = said_of(lone[i], 1);
        assert_int_equal(whole.failed, pieces.failed);
        assert_int_equal(whole.n, pieces.n);
        assert_int_equal(whole.value.type, pieces.value.type);
        assert_int_equal(whole.value.integer, pieces.value.integer);
    }
}

/* What has arrived behind a lone reply, before that was read, comes after it. */
static void lone_replies_keep_their_place(void **state)
{
    (void)state;
    struct snib__resp *resp = snib__resp_new();
    static const char *const fed[] = {"+OK\r\n", ":1\r\n", ":2\r\n", ":3\r\n:4", "\r\n", ":5\r\n"};
    static const size_t read[] = {1, 0, 0, 0, 1, 4}; /* then so many replies are read */
    const struct snib__value *reply;
    uint32_t n;
    int broken;
    int64_t number = 0;
    for (size_t i = 0; i < COUNT(fed); i++) {
        assert_int_equal(snib__resp_feed(resp, fed[i], strlen(fed[i])), 0);
        for (size_t j = 0; j < read[i]; j++, number++) {
            assert_non_null(reply = snib__resp_next(resp, &n, &broken));
            assert_int_equal(n, 1);
            assert_int_equal(reply->type, i ? SNIB__RESP_INTEGER : SNIB__RESP_STATUS);
            assert_int_equal(i ? reply->integer : 0, number);
        }
    }
    assert_null(snib__resp_next(resp, &n, &broken));
    assert_false(broken);
    assert_int_equal(snib__resp_feed(resp, ":6\r\n", 4), 0);
    snib__resp_spoil(resp); /* it was of a connection that has ended */
    assert_null(snib__resp_next(resp, &n, &broken));
    assert_true(broken);
    snib__resp_free(resp);
}

static void assert_broken(const char *bytes, size_t n)
{
    struct snib__resp *resp = snib__resp_new();
    uint32_t values;
    int broken = snib__resp_feed(resp, bytes, n) < 0;
    if (!broken)
        snib__resp_next(resp, &values, &broken);
    assert_true(broken);
    snib__resp_free(resp);
}

static void broken_streams_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "HTTP/1.1 400 Bad Request\r\n", "*9999999\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_broken(bad[i], strlen(bad[i]));
    /* a reply that never ends is refused, not buffered */
    size_t n = 3 * SNIB__RESP_BYTES_MAX;
    char *endless = malloc(n);
    memset(endless, 'x', n);
    memcpy(endless, "$99999999\r\n", 11);
    assert_broken(endless, n);
    free(endless);
}

static void errors_are_classified(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t code;
    } cases[] = {
        {"NOSCRIPT No matching script. Please use EVAL.", SNIB_AGAIN},
        {"WRONGTYPE Operation against a key holding the wrong kind of value", SNIB_EWRONGTYPE},
        {"OOM command not allowed when used memory > 'maxmemory'.", SNIB_EOOM},
        {"ERR Error running script (call to f_1): @user_script:4: @user_script: 4: -OOM command "
         "not allowed",
         SNIB_EOOM},
        {"READONLY You can't write against a read only replica.", SNIB_EREADONLY},
        {"LOADING Redis is loading the dataset in memory", SNIB_ELOADING},
        {"BUSY Valkey is busy running a script. You can only call FUNCTION KILL.", SNIB_ELOADING},
        {"MISCONF Redis is configured to save RDB snapshots", SNIB_EMISCONF},
        {"NOREPLICAS Not enough good replicas to write.", SNIB_EMISCONF},
        {"NOPERM this user has no permissions to run the 'evalsha' command", SNIB_EPERM},
        {"NOPERM User LOADING_DOCK has no permissions to run the 'client|id' command", SNIB_EPERM},
        {"NOPERM User READONLY has no permissions to run the 'time' command", SNIB_EPERM},
        {"ERR unknown command 'DELEX', with args beginning with: 'LOADING' 'IFEQ' ", SNIB_ENOTSUP},
        {"ERR The user executing the script can't run this command or subcommand", SNIB_EPERM},
        {"NOAUTH Authentication required.", SNIB_EAUTH},
        {"WRONGPASS invalid username-password pair or user is disabled.", SNIB_EAUTH},
        {"ERR max number of clients reached", SNIB_EUNREACHABLE},
        {"ERR DB index is out of range", SNIB_EDATABASE},
        {"ERR the number of permits would leave the range of 32 bits", SNIB_EPERMITS},
        {"ERR Key should be of string type if conditions are specified", SNIB_EWRONGTYPE},
        {"ERR something new", SNIB_ESERVER},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(snib__conn_classify(cases[i].text, (uint32_t)strlen(cases[i].text)),
                         cases[i].code);
}

/* The limit applies to one reply, however many came before it. */
static void limit_is_of_one_reply(void **state)
{
    (void)state;
    enum { REPLY = 60000 };
    static char text[REPLY + 20];
    struct snib__resp *resp = snib__resp_new();
    size_t head = (size_t)sprintf(text, "$%d\r\n", REPLY), all = head + REPLY + 2;
    memset(text + head, 'x', REPLY);
    memcpy(text + head + REPLY, "\r\n", 2);
    for (size_t fed = 0; fed < 3 * SNIB__RESP_BYTES_MAX; fed += all) {
        uint32_t n;
        int broken;
        assert_int_equal(snib__resp_feed(resp, text, all - 1), 0);
        assert_null(snib__resp_next(resp, &n, &broken));
        assert_false(broken); /* the limit is looked at while a reply is unfinished */
        assert_int_equal(snib__resp_feed(resp, text + all - 1, 1), 0);
        assert_non_null(snib__resp_next(resp, &n, &broken));
        assert_null(snib__resp_next(resp, &n, &broken));
        assert_false(broken);
    }
    snib__resp_free(resp);
}

/* Many small values, in arrays that are small enough each. */
static void limit_is_of_all_values(void **state)
{
    (void)state;
    static const char *const values[] = {":1\r\n", "$-1\r\n", "+\r\n", "*0\r\n"};
    enum { HALF = SNIB__RESP_VALUES_MAX / 2 };
    char *text = malloc(64 + 2 * HALF * 5);
    for (size_t i = 0; i < COUNT(values); i++)
        for (int over = 0; over < 2; over++) {
            struct snib__resp *resp = snib__resp_new();
            size_t size = strlen(values[i]), at = 4;
            uint32_t n;
            int broken;
            memcpy(text, "*2\r\n", 4);
            for (int half = 0; half < 2; half++) {
                int count = HALF - 2 + over;
                at += (size_t)sprintf(text + at, "*%d\r\n", count);
                for (int j = 0; j < count; j++, at += size)
                    memcpy(text + at, values[i], size);
            }
            assert_int_equal(snib__resp_feed(resp, text, at), 0);
            const struct snib__value *reply = snib__resp_next(resp, &n, &broken);
            assert_int_equal(broken, over);
            assert_int_equal(reply == NULL, over);
            if (!over)
                assert_int_equal(n, SNIB__RESP_VALUES_MAX - 1);
            snib__resp_free(resp);
        }
    free(text);
}

static void limit_is_of_one_text(void **state)
{
    (void)state;
    enum { ROOM = SNIB__RESP_BYTES_MAX + 32 };
    char *text = malloc(ROOM);
    for (int over = 0; over < 2; over++) {
        struct snib__resp *resp = snib__resp_new();
        uint32_t n;
        int broken, bytes = SNIB__RESP_BYTES_MAX + over;
        size_t at = (size_t)sprintf(text, "$%d\r\n", bytes);
        memset(text + at, 'x', (size_t)bytes);
        memcpy(text + at + bytes, "\r\n", 2);
        assert_int_equal(snib__resp_feed(resp, text, at + (size_t)bytes + 2), 0);
        assert_int_equal(snib__resp_next(resp, &n, &broken) == NULL, over);
        assert_int_equal(broken, over);
        snib__resp_free(resp);
    }
    free(text);
}

/* The first text of a connection may be empty. */
static void empty_text_comes_first(void **state)
{
    (void)state;
    static const char *const streams[] = {"$0\r\n\r\n", "+\r\n", "-\r\n", "*1\r\n$0\r\n\r\n"};
    for (size_t i = 0; i < COUNT(streams); i++) {
        struct snib__resp *resp = snib__resp_new();
        uint32_t n;
        int broken;
        assert_int_equal(snib__resp_feed(resp, streams[i], strlen(streams[i])), 0);
        const struct snib__value *reply = snib__resp_next(resp, &n, &broken);
        assert_false(broken);
        assert_non_null(reply);
        assert_int_equal(reply[n - 1].count, 0);
        assert_string_equal(snib__resp_text(resp, &reply[n - 1]), "");
        snib__resp_free(resp);
    }
}

/* Also if no bytes are there that it could refuse. */
static void spoilt_is_unusable(void **state)
{
    (void)state;
    uint32_t n;
    int broken;
    struct snib__resp *resp = snib__resp_new();
    assert_null(snib__resp_next(resp, &n, &broken));
    assert_int_equal(broken, 0);
    snib__resp_spoil(resp);
    assert_null(snib__resp_next(resp, &n, &broken));
    assert_int_equal(broken, 1);
    assert_int_equal(snib__resp_failure(resp), SNIB_ENOMEM);
    snib__resp_free(resp);
    /* nor does a whole reply that comes later change that */
    resp = snib__resp_new();
    assert_int_equal(snib__resp_feed(resp, "+OK\r\n", 5), 0);
    assert_non_null(snib__resp_next(resp, &n, &broken));
    snib__resp_spoil(resp);
    broken = snib__resp_feed(resp, ":1\r\n", 4) < 0;
    assert_true(broken || (!snib__resp_next(resp, &n, &broken) && broken));
    snib__resp_free(resp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_match_hiredis),
        cmocka_unit_test(one_key_matches_hiredis),
        cmocka_unit_test(numbers_are_decimal),
        cmocka_unit_test(replies_survive_every_split),
        cmocka_unit_test(lone_replies_are_as_in_pieces),
        cmocka_unit_test(lone_replies_keep_their_place),
        cmocka_unit_test(broken_streams_are_refused),
        cmocka_unit_test(errors_are_classified),
        cmocka_unit_test(limit_is_of_one_reply),
        cmocka_unit_test(empty_text_comes_first),
        cmocka_unit_test(limit_is_of_all_values),
        cmocka_unit_test(limit_is_of_one_text),
        cmocka_unit_test(spoilt_is_unusable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
