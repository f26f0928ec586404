/* model_values.c - the model server's strings and hashes. */
#include "model_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Strings ------------------------------------------------------------------------------------ */

/* The reply of GET; false if it is an error. */
static bool get(call *c)
{
    key *k;
    if (!model__typed_key(c, MODEL_STRING, &k)) {
        return false;
    }
    if (k == NULL) {
        model__null(c);
    } else {
        model__bulk(c, k->items[0].value.p, k->items[0].value.n);
    }
    return true;
}

static void run_get(call *c)
{
    get(c);
}

/* The key of argument 1 goes if it is a string of these bytes. */
static void delete_equal(call *c, model_text value)
{
    key *k;
    if (!model__typed_key(c, MODEL_STRING, &k)) {
        return;
    }
    bool equal = k != NULL && model__equal(&k->items[0].value, value);
    if (equal) {
        model__remove(c->m, k);
    }
    model__integer(c, equal);
}

static void run_delifeq(call *c)
{
    delete_equal(c, c->argv[2]);
}

/* Of its conditions only this one. */
static void run_delex(call *c)
{
    if (c->argc != 4 || !model__text_is(c->argv[2], "ifeq")) {
        model__error(c, "ERR syntax error");
        return;
    }
    delete_equal(c, c->argv[3]);
}

enum set_flag { SET_NX = 1, SET_XX = 2, SET_GET = 4, SET_KEEPTTL = 8, SET_EX = 16, SET_PX = 32 };

/* The options of SET; *out_at is the argument with the TTL, if there is one. */
static bool set_options(call *c, unsigned *out_flags, size_t *out_at)
{
    static const struct {
        const char *word;
        unsigned flag, excludes;
        bool valued;
    } options[] = {
        {"nx", SET_NX, SET_XX, false},
        {"xx", SET_XX, SET_NX, false},
        {"get", SET_GET, 0, false},
        {"keepttl", SET_KEEPTTL, SET_EX | SET_PX, false},
        {"ex", SET_EX, SET_KEEPTTL | SET_PX, true},
        {"px", SET_PX, SET_KEEPTTL | SET_EX, true},
    };
    const size_t count = sizeof options / sizeof *options;
    *out_flags = 0;
    for (size_t i = 3; i < c->argc; i++) {
        size_t j = 0;
        while (j < count && !model__text_is(c->argv[i], options[j].word)) {
            j++;
        }
        if (j == count || (*out_flags & options[j].excludes) != 0 ||
            (options[j].valued && i + 1 == c->argc)) {
            model__error(c, "ERR syntax error");
            return false;
        }
        *out_flags |= options[j].flag;
        if (options[j].valued) {
            *out_at = ++i;
        }
    }
    return true;
}

/* The instant at which a SET's TTL ends, -1: never. */
static bool set_expiry(call *c, unsigned flags, size_t at, int64_t *out)
{
    long long n;
    long long unit = flags & SET_EX ? 1000 : 1;
    *out = -1;
    if (!(flags & (SET_EX | SET_PX))) {
        return true;
    }
    if (!model__integer_argument(c, at, &n)) {
        return false;
    }
    if (n <= 0 || n > LLONG_MAX / unit || n * unit > LLONG_MAX - model__now_ms(c->m)) {
        model__error(c, "ERR invalid expire time in 'set' command");
        return false;
    }
    *out = model__now_ms(c->m) + n * unit;
    return true;
}

static void run_set(call *c)
{
    unsigned flags;
    size_t at = 0;
    int64_t expire_ms;
    if (!set_options(c, &flags, &at) || !set_expiry(c, flags, at, &expire_ms) ||
        (flags & SET_GET && !get(c))) {
        return;
    }
    key *k = model__find(c->m, c->from->db, c->argv[1]);
    if ((flags & SET_NX && k != NULL) || (flags & SET_XX && k == NULL)) {
        if (!(flags & SET_GET)) {
            model__null(c);
        }
        return;
    }
    if (k != NULL) {
        expire_ms = flags & SET_KEEPTTL ? k->expire_ms : expire_ms;
        model__remove(c->m, k);
    }
    k = model__create(c, c->argv[1], MODEL_STRING);
    model__set(&model__add_item(k)->value, c->argv[2].p, c->argv[2].n);
    k->expire_ms = expire_ms;
    if (!(flags & SET_GET)) {
        model__status(c, "OK");
    }
}

/* GETRANGE key start end: negative indices count from the end; one before the text means its
 * start. */
static void run_getrange(call *c)
{
    key *k;
    long long from, to;
    if (!model__integer_argument(c, 2, &from) || !model__integer_argument(c, 3, &to) ||
        !model__typed_key(c, MODEL_STRING, &k)) {
        return;
    }
    long long n = k == NULL ? 0 : (long long)k->items[0].value.n;
    bool reversed = from < 0 && to < 0 && from > to;
    from = from < 0 && from + n < 0 ? 0 : from < 0 ? from + n : from;
    to = to < 0 && to + n < 0 ? 0 : to < 0 ? to + n : to >= n ? n - 1 : to;
    if (n == 0 || reversed || from > to) {
        model__bulk(c, "", 0);
    } else {
        model__bulk(c, k->items[0].value.p + from, (size_t)(to - from + 1));
    }
}

static void run_setnx(call *c)
{
    key *k = model__find(c->m, c->from->db, c->argv[1]);
    if (k == NULL) {
        model__set(&model__add_item(model__create(c, c->argv[1], MODEL_STRING))->value,
                   c->argv[2].p, c->argv[2].n);
    }
    model__integer(c, k == NULL);
}

static void add_to_string(call *c, long long by)
{
    key *k;
    long long value = 0;
    if (!model__typed_key(c, MODEL_STRING, &k)) {
        return;
    }
    if (k != NULL &&
        !model__parse_integer((model_text){k->items[0].value.p, k->items[0].value.n}, &value)) {
        model__error(c, "ERR value is not an integer or out of range");
        return;
    }
    if (__builtin_add_overflow(value, by, &value)) {
        model__error(c, "ERR increment or decrement would overflow");
        return;
    }
    if (k == NULL) {
        k = model__create(c, c->argv[1], MODEL_STRING);
        model__add_item(k);
    }
    char text[24];
    model__set(&k->items[0].value, text, (size_t)snprintf(text, sizeof text, "%lld", value));
    model__integer(c, value);
}

static void run_incr(call *c)
{
    add_to_string(c, 1);
}

static void run_decr(call *c)
{
    add_to_string(c, -1);
}

static void run_incrby(call *c)
{
    long long by;
    if (model__integer_argument(c, 2, &by)) {
        add_to_string(c, by);
    }
}

static void run_decrby(call *c)
{
    long long by;
    if (!model__integer_argument(c, 2, &by)) {
        return;
    }
    if (by == LLONG_MIN) {
        model__error(c, "ERR decrement would overflow");
        return;
    }
    add_to_string(c, -by);
}

/* ---- Hashes ------------------------------------------------------------------------------------- */

static void run_hset(call *c)
{
    key *k;
    long long added = 0;
    if (c->argc % 2 == 1) {
        model__error(c, "ERR wrong number of arguments for 'hset' command");
        return;
    }
    if (!model__typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    if (k == NULL) {
        k = model__create(c, c->argv[1], MODEL_HASH);
    }
    for (size_t i = 2; i < c->argc; i += 2) {
        item *at = model__find_field(k, c->argv[i]);
        if (at == NULL) {
            at = model__add_item(k);
            model__set(&at->field, c->argv[i].p, c->argv[i].n);
            added++;
        }
        model__set(&at->value, c->argv[i + 1].p, c->argv[i + 1].n);
    }
    model__integer(c, added);
}

static void run_hsetnx(call *c)
{
    key *k;
    if (!model__typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    bool is_new = model__find_field(k, c->argv[2]) == NULL;
    if (is_new) {
        item *at = model__add_item(k == NULL ? model__create(c, c->argv[1], MODEL_HASH) : k);
        model__set(&at->field, c->argv[2].p, c->argv[2].n);
        model__set(&at->value, c->argv[3].p, c->argv[3].n);
    }
    model__integer(c, is_new);
}

static void run_hget(call *c)
{
    key *k;
    if (!model__typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    item *at = model__find_field(k, c->argv[2]);
    if (at == NULL) {
        model__null(c);
        return;
    }
    model__bulk(c, at->value.p, at->value.n);
}

static void run_hexists(call *c)
{
    key *k;
    if (model__typed_key(c, MODEL_HASH, &k)) {
        model__integer(c, model__find_field(k, c->argv[2]) != NULL);
    }
}

static void run_hlen(call *c)
{
    key *k;
    if (model__typed_key(c, MODEL_HASH, &k)) {
        model__integer(c, k == NULL ? 0 : (long long)k->count);
    }
}

static void run_hdel(call *c)
{
    key *k;
    long long deleted = 0;
    if (!model__typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    for (size_t i = 2; i < c->argc && k != NULL; i++) {
        item *at = model__find_field(k, c->argv[i]);
        if (at != NULL) {
            bool was_last = k->count == 1;
            model__remove_item(c->m, k, at);
            k = was_last ? NULL : k;
            deleted++;
        }
    }
    model__integer(c, deleted);
}

static void append_hash(call *c, bool fields, bool values)
{
    key *k;
    if (!model__typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    size_t count = k == NULL ? 0 : k->count;
    model__array(c, count * ((size_t)fields + (size_t)values));
    for (size_t i = 0; i < count; i++) {
        if (fields) {
            model__bulk(c, k->items[i].field.p, k->items[i].field.n);
        }
        if (values) {
            model__bulk(c, k->items[i].value.p, k->items[i].value.n);
        }
    }
}

static void run_hgetall(call *c)
{
    append_hash(c, true, true);
}

static void run_hkeys(call *c)
{
    append_hash(c, true, false);
}

static void run_hvals(call *c)
{
    append_hash(c, false, true);
}

static void run_hmget(call *c)
{
    key *k;
    if (!model__typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    model__array(c, c->argc - 2);
    for (size_t i = 2; i < c->argc; i++) {
        item *at = model__find_field(k, c->argv[i]);
        if (at == NULL) {
            model__null(c);
        } else {
            model__bulk(c, at->value.p, at->value.n);
        }
    }
}

/* HRANDFIELD key [count [WITHVALUES]]: a positive count gives distinct fields, a negative one
 * any. */
static void run_hrandfield(call *c)
{
    key *k;
    long long count = 1;
    if (c->argc > 2 && !model__integer_argument(c, 2, &count)) {
        return;
    }
    bool values = c->argc == 4 && model__text_is(c->argv[3], "withvalues");
    if (c->argc > 3 && !values) {
        model__error(c, "ERR syntax error");
        return;
    }
    if (!model__typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    if (c->argc == 2 && k == NULL) {
        model__null(c);
        return;
    }
    size_t left = k == NULL ? 0 : k->count;
    size_t wanted = (size_t)(count < 0 ? -count : count);
    if (k == NULL || (count >= 0 && wanted > left)) {
        wanted = left;
    }
    if (c->argc > 2) {
        model__array(c, wanted * (values ? 2 : 1));
    }
    /* Take each field with the probability that leaves the right number of them. */
    for (size_t i = 0; wanted > 0; i = (i + 1) % k->count) {
        bool take =
            count < 0 ? model__random(c->m, k->count) == 0 : model__random(c->m, left--) < wanted;
        if (take) {
            wanted--;
            model__bulk(c, k->items[i].field.p, k->items[i].field.n);
            if (values) {
                model__bulk(c, k->items[i].value.p, k->items[i].value.n);
            }
        }
    }
}

/* HSCAN key cursor [COUNT n]: a small hash is returned in one step. */
static void run_hscan(call *c)
{
    key *k;
    long long number;
    if (!model__parse_integer(c->argv[2], &number) || number < 0) {
        model__error(c, "ERR invalid cursor");
        return;
    }
    if (!model__typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    bool counted = c->argc == 5 && model__text_is(c->argv[3], "count");
    if (k != NULL && c->argc > 3 && !counted) {
        model__error(c, "ERR syntax error");
        return;
    }
    model__array(c, 2);
    model__bulk(c, "0", 1);
    append_hash(c, true, true);
}

static void run_hincrby(call *c)
{
    key *k;
    long long by, value = 0;
    if (!model__integer_argument(c, 3, &by) || !model__typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    item *at = model__find_field(k, c->argv[2]);
    if (at != NULL && !model__parse_integer((model_text){at->value.p, at->value.n}, &value)) {
        model__error(c, "ERR hash value is not an integer");
        return;
    }
    if (__builtin_add_overflow(value, by, &value)) {
        model__error(c, "ERR increment or decrement would overflow");
        return;
    }
    if (k == NULL) {
        k = model__create(c, c->argv[1], MODEL_HASH);
    }
    if (at == NULL) {
        at = model__add_item(k);
        model__set(&at->field, c->argv[2].p, c->argv[2].n);
    }
    char text[24];
    model__set(&at->value, text, (size_t)snprintf(text, sizeof text, "%lld", value));
    model__integer(c, value);
}

const command model__value_commands[] = {
    {"decr", run_decr, 2, COMMAND_WRITE | COMMAND_GROWS},
    {"decrby", run_decrby, 3, COMMAND_WRITE | COMMAND_GROWS},
    {"delex", run_delex, -2, COMMAND_WRITE | COMMAND_REDIS_8_4},
    {"delifeq", run_delifeq, 3, COMMAND_WRITE | COMMAND_VALKEY_9_0},
    {"get", run_get, 2, 0},
    {"getrange", run_getrange, 4, 0},
    {"hdel", run_hdel, -3, COMMAND_WRITE},
    {"hexists", run_hexists, 3, 0},
    {"hget", run_hget, 3, 0},
    {"hgetall", run_hgetall, 2, 0},
    {"hincrby", run_hincrby, 4, COMMAND_WRITE | COMMAND_GROWS},
    {"hkeys", run_hkeys, 2, 0},
    {"hlen", run_hlen, 2, 0},
    {"hmget", run_hmget, -3, 0},
    {"hrandfield", run_hrandfield, -2, 0},
    {"hscan", run_hscan, -3, 0},
    {"hset", run_hset, -4, COMMAND_WRITE | COMMAND_GROWS},
    {"hsetnx", run_hsetnx, 4, COMMAND_WRITE | COMMAND_GROWS},
    {"hvals", run_hvals, 2, 0},
    {"incr", run_incr, 2, COMMAND_WRITE | COMMAND_GROWS},
    {"incrby", run_incrby, 3, COMMAND_WRITE | COMMAND_GROWS},
    {"set", run_set, -3, COMMAND_WRITE | COMMAND_GROWS},
    {"setnx", run_setnx, 3, COMMAND_WRITE | COMMAND_GROWS},
    {NULL, NULL, 0, 0},
};
