/* replies.c - see replies.h. */
#include "replies.h"

#include <inttypes.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const int64_t numbers[] = {0,
                                  1,
                                  -1,
                                  2,
                                  -2,
                                  3,
                                  5,
                                  7,
                                  16,
                                  100,
                                  999,
                                  1000,
                                  6379,
                                  8191,
                                  8192,
                                  16383,
                                  16384,
                                  29999,
                                  30000,
                                  65535,
                                  65536,
                                  86400000,
                                  86400001,
                                  2147483647,
                                  2147483648,
                                  -100,
                                  -86400000,
                                  4294967295,
                                  4294967296,
                                  INT64_MAX,
                                  INT64_MIN,
                                  INT64_MAX / 1000000,
                                  INT64_MAX / 1000000 + 1,
                                  INT64_MIN / 1000000 - 1,
                                  1700000000000};

static const char *const errors[] = {
    "-ERR no\r\n",
    "-NOSCRIPT No matching script. Please use EVAL.\r\n",
    "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "-READONLY You can't write against a read only replica.\r\n",
    "-LOADING Redis is loading the dataset in memory\r\n",
    "-BUSY Redis is busy running a script.\r\n",
    "-MISCONF Redis is configured to save RDB snapshots\r\n",
    "-NOPERM this user has no permissions\r\n",
    "-NOAUTH Authentication required.\r\n",
    "-NOREPLICAS Not enough good replicas to write.\r\n",
    "-MASTERDOWN Link with MASTER is down\r\n",
    "-ERR max number of clients reached\r\n",
    "-ERR unknown command 'X'\r\n",
    "-ERR DB index is out of range\r\n",
    "-WRONGPASS invalid username-password pair\r\n",
    "-MOVED 866 b:6379\r\n",
    "-MOVED 866 :6379\r\n",
    "-MOVED 866 ?:6379\r\n",
    "-MOVED 16384 a:1\r\n",
    "-MOVED 866\r\n",
    "-MOVED \r\n",
    "-ASK 866 b:6379\r\n",
    "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    "-CLUSTERDOWN The cluster is down\r\n",
    "-CROSSSLOT Keys in request don't hash to the same slot\r\n",
    "-ERR Error running script (call to f_1): @user_script:1: -OOM no\r\n",
    "-ERR Script attempted to access a non local key in a cluster node\r\n",
    "-ERR This instance has cluster support disabled\r\n",
    "-\r\n",
};

static const char *const texts[] = {"",
                                    "0",
                                    "1",
                                    "-1",
                                    "OK",
                                    "7",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "-9223372036854775809",
                                    "1e30",
                                    " 5",
                                    "message",
                                    "subscribe",
                                    "unsubscribe",
                                    "ssubscribe",
                                    "smessage",
                                    "sunsubscribe",
                                    "pong",
                                    "a",
                                    "b",
                                    "?",
                                    "127.0.0.1",
                                    "::1",
                                    "\xff\xfe",
                                    "a\nb",
                                    "1:30000:1",
                                    "2:30000:1000",
                                    "1:9223372036854775807:9223372036854775807",
                                    "00000000-0000-8000-8000-000000000001:1",
                                    "00000000-0000-8000-8000-000000000001",
                                    "run_id:abc\r\nredis_version:7.0.0\r\n",
                                    "role:slave\r\n"};

static const char *const whole[] = {"$-1\r\n",
                                    ":0\r\n",
                                    ":1\r\n",
                                    ":2\r\n",
                                    ":-1\r\n",
                                    ":1000\r\n",
                                    "*0\r\n",
                                    "*-1\r\n",
                                    "+OK\r\n",
                                    "*2\r\n:1\r\n:0\r\n",
                                    "*2\r\n:1\r\n:1\r\n",
                                    "*1\r\n:1\r\n",
                                    "*3\r\n:1\r\n:0\r\n:2\r\n",
                                    "*4\r\n:1\r\n:0\r\n:1\r\n:0\r\n",
                                    "*2\r\n:101\r\n:0\r\n",
                                    "*2\r\n:0\r\n:0\r\n",
                                    "*2\r\n:-1\r\n:0\r\n",
                                    "$1\r\n7\r\n",
                                    "$1\r\n0\r\n",
                                    "*2\r\n:0\r\n:1000\r\n",
                                    "*2\r\n:99\r\n:1000\r\n",
                                    "*3\r\n:1000\r\n:1\r\n:1000\r\n",
                                    "*3\r\n:1000\r\n:0\r\n:9223372036854775807\r\n",
                                    "*5\r\n:1\r\n:2\r\n:3000\r\n$1\r\n1\r\n:1000\r\n",
                                    "*5\r\n:1000\r\n$1\r\nx\r\n:1\r\n:0\r\n$1\r\n7\r\n",
                                    "*5\r\n:-2\r\n$0\r\n\r\n:0\r\n:-1\r\n$0\r\n\r\n",
                                    "*2\r\n$7\r\n1000000\r\n$1\r\n0\r\n"};

int64_t number_any(unsigned which)
{
    return numbers[which % COUNT(numbers)];
}

static size_t put(const char *text, char *out, size_t cap)
{
    size_t n = strlen(text);
    n = n < cap ? n : cap;
    memcpy(out, text, n);
    return n;
}

size_t reply_error(unsigned which, char *out, size_t cap)
{
    return put(errors[which % COUNT(errors)], out, cap);
}

static size_t put_bulk(const char *bytes, size_t n, char *out, size_t cap)
{
    size_t used = (size_t)snprintf(out, cap, "$%zu\r\n", n);
    if (used + n + 2 > cap)
        return 0;
    memcpy(out + used, bytes, n);
    memcpy(out + used + n, "\r\n", 2);
    return used + n + 2;
}

static size_t put_value(struct input *in, const char *text, char *out, size_t cap, int depth);

static size_t put_array(struct input *in, const char *text, char *out, size_t cap, int depth)
{
    unsigned n = take(in) % 10;
    size_t used = (size_t)snprintf(out, cap, "*%u\r\n", n);
    for (unsigned i = 0; i < n; i++)
        used += put_value(in, text, out + used, cap - used, depth + 1);
    return used;
}

static size_t put_value(struct input *in, const char *text, char *out, size_t cap, int depth)
{
    char line[64];
    size_t n;
    unsigned what = take(in);
    if (cap < 512)
        what = 0;
    switch (what % 9) {
    case 0:
        return put("$-1\r\n", out, cap);
    case 1:
        snprintf(line, sizeof line, ":%" PRId64 "\r\n", number_any(take(in)));
        return put(line, out, cap);
    case 2: {
        const char *chosen = texts[take(in) % COUNT(texts)];
        return put_bulk(chosen, strlen(chosen), out, cap);
    }
    case 3: {
        const char *bytes = take_bytes(in, take(in) % 64, &n);
        return put_bulk(bytes, n, out, cap);
    }
    case 4:
        return put(take(in) % 2 ? "+OK\r\n" : "+QUEUED\r\n", out, cap);
    case 5:
        return reply_error(take(in), out, cap);
    case 6:
        snprintf(line, sizeof line, ":%d\r\n", (int)take(in));
        return put(line, out, cap);
    case 7:
        return text ? put_bulk(text, strlen(text), out, cap) : put(":1\r\n", out, cap);
    default:
        return depth < 6 ? put_array(in, text, out, cap, depth) : put("*0\r\n", out, cap);
    }
}

size_t reply_any(struct input *in, const char *text, char *out, size_t cap)
{
    unsigned what = take(in);
    if (what < 96)
        return put(whole[what % COUNT(whole)], out, cap);
    if (what < 160)
        return reply_error(what, out, cap);
    return put_value(in, text, out, cap, 0);
}
