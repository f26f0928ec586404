#include "net/resp.h"

#include "snib.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#define RESP_SIMPLE_DIGITS 9

/* hiredis 1.x counts array elements in size_t and has two more types; only RESP2 is requested. */
#if HIREDIS_MAJOR >= 1
typedef size_t resp_count;
#else
typedef int resp_count;
#endif

struct snib__resp {
    redisReader *reader;
    size_t unanswered; /* bytes fed since the last complete reply */
    bool excess;       /* the peer has exceeded a limit */
    bool quick;        /* `simple` is the next reply: it never was in the reader */
    struct snib__value simple;
    uint32_t n;
    uint32_t cap;
    struct snib__value *values;
    struct snib__buf text;
};

/* Objects are built in this struct, so hiredis gets a non-NULL marker instead of a pointer. */
static char resp_built;

static struct snib__value *resp_push(const redisReadTask *task, int32_t type)
{
    struct snib__resp *resp = task->privdata;
    if (resp->n == resp->cap) {
        uint32_t cap = resp->cap ? resp->cap * 2 : SNIB__ROOM(16);
        resp->excess = cap > SNIB__RESP_VALUES_MAX;
        if (resp->excess)
            return NULL;
        struct snib__value *values = realloc(resp->values, cap * sizeof *values);
        if (!values)
            return NULL;
        resp->values = values;
        resp->cap = cap;
    }
    struct snib__value *value = &resp->values[resp->n++];
    *value = (struct snib__value){.type = type};
    return value;
}

static void *resp_string(const redisReadTask *task, char *bytes, size_t n)
{
    struct snib__resp *resp = task->privdata;
    struct snib__value *value =
        resp_push(task, task->type == REDIS_REPLY_ERROR    ? SNIB__RESP_ERROR
                        : task->type == REDIS_REPLY_STATUS ? SNIB__RESP_STATUS
                                                           : SNIB__RESP_STRING);
    resp->excess |= n > SNIB__RESP_BYTES_MAX;
    if (!value || resp->excess)
        return NULL;
    value->count = (uint32_t)n;
    value->integer = (int64_t)resp->text.len;
    if (snib__buf_append(&resp->text, bytes, n) < 0 || snib__buf_append(&resp->text, "", 1) < 0)
        return NULL;
    return &resp_built;
}

static void *resp_array(const redisReadTask *task, resp_count count)
{
    struct snib__resp *resp = task->privdata;
    struct snib__value *value = resp_push(task, SNIB__RESP_ARRAY);
    resp->excess |= (int64_t)count < 0 || (int64_t)count > SNIB__RESP_VALUES_MAX;
    if (!value || resp->excess)
        return NULL;
    value->count = (uint32_t)count;
    return &resp_built;
}

static void *resp_integer(const redisReadTask *task, long long number)
{
    struct snib__value *value = resp_push(task, SNIB__RESP_INTEGER);
    if (!value)
        return NULL;
    value->integer = number;
    return &resp_built;
}

static void *resp_nil(const redisReadTask *task)
{
    return resp_push(task, SNIB__RESP_NIL) ? &resp_built : NULL;
}

static void resp_free_object(void *object)
{
    (void)object;
}

#if HIREDIS_MAJOR >= 1
static void *resp_double(const redisReadTask *task, double number, char *bytes, size_t n)
{
    (void)number;
    return resp_string(task, bytes, n);
}

static void *resp_bool(const redisReadTask *task, int number)
{
    return resp_integer(task, number);
}
#endif

static redisReplyObjectFunctions resp_functions = {
    .createString = resp_string,
    .createArray = resp_array,
    .createInteger = resp_integer,
#if HIREDIS_MAJOR >= 1
    .createDouble = resp_double,
    .createBool = resp_bool,
#endif
    .createNil = resp_nil,
    .freeObject = resp_free_object,
};

struct snib__resp *snib__resp_new(void)
{
    struct snib__resp *resp = calloc(1, sizeof *resp);
    if (!resp)
        return NULL;
    resp->reader = redisReaderCreateWithFunctions(&resp_functions);
    if (!resp->reader) {
        free(resp);
        return NULL;
    }
    resp->reader->privdata = resp;
    resp->reader->maxbuf = 0; /* keep the buffer when idle, for reuse */
    return resp;
}

void snib__resp_free(struct snib__resp *resp)
{
    if (!resp)
        return;
    redisReaderFree(resp->reader);
    free(resp->values);
    snib__buf_free(&resp->text);
    free(resp);
}

/* Most replies are nil or a small number, and come alone: the bytes are exactly that reply.  Only the one spelling of a
 * number that hiredis takes, too, and nothing that is near a limit. */
static bool resp_simple(const char *bytes, size_t n, struct snib__value *out)
{
    int64_t number = 0;
    if (n == 5 && memcmp(bytes, "$-1\r\n", 5) == 0) {
        *out = (struct snib__value){.type = SNIB__RESP_NIL};
        return true;
    }
    if (n < 4 || n > 3 + RESP_SIMPLE_DIGITS || bytes[0] != ':' || bytes[n - 2] != '\r' ||
        bytes[n - 1] != '\n' || (bytes[1] == '0' && n > 4))
        return false;
    for (size_t i = 1; i < n - 2; i++) {
        if (bytes[i] < '0' || bytes[i] > '9')
            return false;
        number = 10 * number + (bytes[i] - '0');
    }
    *out = (struct snib__value){.type = SNIB__RESP_INTEGER, .integer = number};
    return true;
}

/* Whether the reader has no byte of an unfinished or unread reply; it has memory for a value once it had a reply. */
static bool resp_idle(const struct snib__resp *resp)
{
    const redisReader *reader = resp->reader;
    return reader->ridx == -1 && reader->pos == reader->len && !reader->err && !resp->quick &&
           resp->cap > 0;
}

int snib__resp_feed(struct snib__resp *resp, const char *bytes, size_t n)
{
    if (resp_idle(resp) && resp_simple(bytes, n, &resp->simple)) {
        resp->quick = true;
        return 0;
    }
    resp->unanswered += n;
    return redisReaderFeed(resp->reader, bytes, n) == REDIS_OK ? 0 : -1;
}

const struct snib__value *snib__resp_next(struct snib__resp *resp, uint32_t *out_n, int *out_broken)
{
    void *object = NULL;
    *out_broken = 0;
    if (resp->quick) {
        resp->quick = false;
        resp->values[0] = resp->simple;
        *out_n = resp->n = 1;
        return resp->values;
    }
    /* A new reply starts only after the last one was complete; hiredis
     * continues where it stopped. */
    if (resp->reader->ridx == -1) {
        if (resp->reader->pos == resp->reader->len && !resp->reader->err)
            return NULL; /* nothing is left of what was fed */
        resp->n = 0;
        resp->text.head = resp->text.len = 0;
    }
    if (redisReaderGetReply(resp->reader, &object) != REDIS_OK ||
        (!object && resp->unanswered > 2 * SNIB__RESP_BYTES_MAX)) {
        *out_broken = 1;
        return NULL;
    }
    if (!object)
        return NULL;
    resp->unanswered = 0;
    *out_n = resp->n;
    return resp->values;
}

void snib__resp_spoil(struct snib__resp *resp)
{
    resp->quick = false;
    resp->reader->err = REDIS_ERR_OOM;
}

bool snib__resp_spoilt(const struct snib__resp *resp)
{
    return resp->reader->err != 0;
}

/* hiredis takes an object that was not made, for whatever reason, for a lack of memory. */
int32_t snib__resp_failure(const struct snib__resp *resp)
{
    return resp->reader->err == REDIS_ERR_OOM && !resp->excess ? SNIB_ENOMEM : SNIB_EPROTOCOL;
}

const char *snib__resp_text(const struct snib__resp *resp, const struct snib__value *value)
{
    return resp->text.data + value->integer;
}

size_t snib__decimal(char *out, int64_t number)
{
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    size_t n = 1;
    if (number < 0)
        *out++ = '-';
    for (uint64_t above = rest; above >= 10; above /= 10)
        n++;
    for (size_t at = n; at-- > 0; rest /= 10)
        out[at] = (char)('0' + rest % 10);
    return n + (number < 0);
}

/* "<mark><number>\r\n" */
static size_t resp_header(char *out, char mark, uint64_t number)
{
    size_t n = 1;
    out[0] = mark;
    if (number < 10)
        out[n++] = (char)('0' + number);
    else
        n += snib__decimal(out + 1, (int64_t)number);
    out[n++] = '\r';
    out[n++] = '\n';
    return n;
}

int snib__resp_begin(struct snib__buf *out, uint32_t argc)
{
    char *place = snib__buf_reserve(out, 24);
    if (!place)
        return -1;
    out->len += resp_header(place, '*', argc);
    return 0;
}

int snib__resp_arg(struct snib__buf *out, const char *bytes, size_t n)
{
    char *place = snib__buf_reserve(out, n + 26);
    if (!place)
        return -1;
    size_t at = resp_header(place, '$', n);
    if (n > 0) /* bytes may be NULL */
        memcpy(place + at, bytes, n);
    at += n;
    place[at++] = '\r';
    place[at++] = '\n';
    out->len += at;
    return 0;
}

char *snib__resp_place(struct snib__buf *out, size_t cap)
{
    char *place = snib__buf_reserve(out, 5 + cap + 2);
    return place ? place + 5 : NULL;
}

void snib__resp_placed(struct snib__buf *out, size_t n)
{
    char *place = out->data + out->len;
    memcpy(place, "$00\r\n", 5);
    place[1] = (char)('0' + n / 10);
    place[2] = (char)('0' + n % 10);
    memcpy(place + 5 + n, "\r\n", 2);
    out->len += 5 + n + 2;
}

int snib__resp_arg_int(struct snib__buf *out, int64_t number)
{
    char digits[20];
    return snib__resp_arg(out, digits, snib__decimal(digits, number));
}
