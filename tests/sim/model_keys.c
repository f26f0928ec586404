/* model_keys.c - the model server's keys and the commands on them.
 *
 * Keys lie in one array: a simulated world has a handful.  An expired key is absent to every look-up
 * and is thrown out by the first that meets it.
 */
#include "model_internal.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t model__now_ms(const model *m)
{
    return (int64_t)(m->now_ns / 1000000);
}

void model__remove(model *m, key *k)
{
    for (size_t i = 0; i < k->count; i++) {
        model__drop(&k->items[i].field);
        model__drop(&k->items[i].value);
    }
    free(k->items);
    model__drop(&k->name);
    m->key_count--;
    memmove(k, k + 1, (size_t)(m->keys + m->key_count - k) * sizeof *k);
}

key *model__find(model *m, int db, model_text name)
{
    for (size_t i = 0; i < m->key_count; i++) {
        key *k = &m->keys[i];
        if (k->db == db && model__equal(&k->name, name)) {
            if (k->expire_ms >= 0 && model__now_ms(m) > k->expire_ms) {
                model__remove(m, k);
                return NULL;
            }
            return k;
        }
    }
    return NULL;
}

static key *create_in(model *m, int db, model_text name, int type)
{
    if (m->key_count == m->key_cap) {
        m->key_cap = m->key_cap * 2 + 8;
        m->keys = model__grow(m->keys, m->key_cap * sizeof *m->keys);
    }
    key *k = &m->keys[m->key_count++];
    *k = (key){.db = db, .type = type, .expire_ms = -1};
    model__set(&k->name, name.p, name.n);
    return k;
}

static key *create(call *c, model_text name, int type)
{
    return create_in(c->m, c->from->db, name, type);
}

static item *add_item(key *k)
{
    if (k->count == k->cap) {
        k->cap = k->cap * 2 + 1;
        k->items = model__grow(k->items, k->cap * sizeof *k->items);
    }
    k->items[k->count] = (item){0};
    return &k->items[k->count++];
}

static item *find_field(key *k, model_text field)
{
    for (size_t i = 0; k != NULL && i < k->count; i++) {
        if (model__equal(&k->items[i].field, field)) {
            return &k->items[i];
        }
    }
    return NULL;
}

/* The key of argument 1 if it has this type; *out is NULL if it is absent.  False: the error is out. */
static bool typed_key(call *c, int type, key **out)
{
    *out = model__find(c->m, c->from->db, c->argv[1]);
    if (*out != NULL && (*out)->type != type) {
        model__error(c, MODEL_WRONGTYPE);
        return false;
    }
    return true;
}

static bool integer_argument(call *c, size_t i, long long *out)
{
    if (!model__parse_integer(c->argv[i], out)) {
        model__error(c, "ERR value is not an integer or out of range");
        return false;
    }
    return true;
}

/* ---- Any type ----------------------------------------------------------------------------------- */

static void run_del(call *c)
{
    long long deleted = 0;
    for (size_t i = 1; i < c->argc; i++) {
        key *k = model__find(c->m, c->from->db, c->argv[i]);
        if (k != NULL) {
            model__remove(c->m, k);
            deleted++;
        }
    }
    model__integer(c, deleted);
}

static void run_exists(call *c)
{
    long long found = 0;
    for (size_t i = 1; i < c->argc; i++) {
        found += model__find(c->m, c->from->db, c->argv[i]) != NULL;
    }
    model__integer(c, found);
}

static const char *type_name(int type)
{
    return type == MODEL_STRING ? "string" : type == MODEL_HASH ? "hash" : "list";
}

static void run_type(call *c)
{
    key *k = model__find(c->m, c->from->db, c->argv[1]);
    model__status(c, k == NULL ? "none" : type_name(k->type));
}

static void run_pttl(call *c)
{
    key *k = model__find(c->m, c->from->db, c->argv[1]);
    model__integer(c, k == NULL            ? -2
                      : k->expire_ms == -1 ? -1
                                           : k->expire_ms - model__now_ms(c->m));
}

static void run_pexpire(call *c)
{
    long long ms;
    if (c->argc > 3) {
        model__error(c, "ERR Unsupported option %.*s", (int)c->argv[3].n, c->argv[3].p);
        return;
    }
    if (!integer_argument(c, 2, &ms)) {
        return;
    }
    int64_t now = model__now_ms(c->m);
    if (ms > LLONG_MAX - now) {
        model__error(c, "ERR invalid expire time in 'pexpire' command");
        return;
    }
    key *k = model__find(c->m, c->from->db, c->argv[1]);
    if (k != NULL && ms <= 0) {
        model__remove(c->m, k);
    } else if (k != NULL) {
        k->expire_ms = now + ms;
    }
    model__integer(c, k != NULL);
}

static bool glob_matches(model_text pattern, const buffer *name)
{
    char glob[512], text[1024];
    snprintf(glob, sizeof glob, "%.*s", (int)pattern.n, pattern.p);
    snprintf(text, sizeof text, "%.*s", (int)name->n, name->p);
    return fnmatch(glob, text, 0) == 0;
}

/* Everything comes in one step: a full iteration is all that SCAN promises. */
static void run_scan(call *c)
{
    model_text pattern = {"*", 1}, type = {NULL, 0};
    long long number;
    if (!model__parse_integer(c->argv[1], &number) || number < 0) {
        model__error(c, "ERR invalid cursor");
        return;
    }
    for (size_t i = 2; i < c->argc; i += 2) {
        bool count = model__text_is(c->argv[i], "count");
        if (i + 1 == c->argc ||
            !(count || model__text_is(c->argv[i], "match") || model__text_is(c->argv[i], "type"))) {
            model__error(c, "ERR syntax error");
            return;
        }
        if (count) {
            if (!integer_argument(c, i + 1, &number)) {
                return;
            }
            if (number < 1) {
                model__error(c, "ERR syntax error");
                return;
            }
        } else if (model__text_is(c->argv[i], "match")) {
            pattern = c->argv[i + 1];
        } else {
            type = c->argv[i + 1];
        }
    }
    buffer names = {0};
    buffer *reply = c->reply;
    size_t found = 0;
    c->reply = &names;
    for (size_t i = c->m->key_count; i-- > 0;) {
        buffer *name = &c->m->keys[i].name;
        key *k = model__find(c->m, c->m->keys[i].db, (model_text){name->p, name->n});
        if (k != NULL && k->db == c->from->db && glob_matches(pattern, &k->name) &&
            (type.p == NULL || model__text_is(type, type_name(k->type)))) {
            model__bulk(c, k->name.p, k->name.n);
            found++;
        }
    }
    c->reply = reply;
    model__array(c, 2);
    model__bulk(c, "0", 1);
    model__array(c, found);
    model__append(reply, names.p, names.n);
    model__drop(&names);
}

static void run_time(call *c)
{
    char seconds[24], microseconds[24];
    int n =
        snprintf(seconds, sizeof seconds, "%llu", (unsigned long long)(c->m->now_ns / 1000000000));
    int u = snprintf(microseconds, sizeof microseconds, "%llu",
                     (unsigned long long)(c->m->now_ns / 1000 % 1000000));
    model__array(c, 2);
    model__bulk(c, seconds, (size_t)n);
    model__bulk(c, microseconds, (size_t)u);
}

static void run_flushall(call *c)
{
    model_flush_keys(c->m);
    model__status(c, "OK");
}

/* ---- Strings and lists -------------------------------------------------------------------------- */

static void run_get(call *c)
{
    key *k;
    if (!typed_key(c, MODEL_STRING, &k)) {
        return;
    }
    if (k == NULL) {
        model__null(c);
        return;
    }
    model__bulk(c, k->items[0].value.p, k->items[0].value.n);
}

static void run_set(call *c)
{
    bool only_new = false, only_old = false;
    size_t px = 0; /* the argument with the TTL; 0: none */
    long long ms = -1;
    for (size_t i = 3; i < c->argc; i++) {
        if (model__text_is(c->argv[i], "nx") && !only_old) {
            only_new = true;
        } else if (model__text_is(c->argv[i], "xx") && !only_new) {
            only_old = true;
        } else if (model__text_is(c->argv[i], "px") && px == 0 && i + 1 < c->argc) {
            px = ++i;
        } else {
            model__error(c, "ERR syntax error");
            return;
        }
    }
    if (px != 0 && !integer_argument(c, px, &ms)) {
        return;
    }
    if (px != 0 && (ms <= 0 || ms > LLONG_MAX - model__now_ms(c->m))) {
        model__error(c, "ERR invalid expire time in 'set' command");
        return;
    }
    key *k = model__find(c->m, c->from->db, c->argv[1]);
    if ((only_new && k != NULL) || (only_old && k == NULL)) {
        model__null(c);
        return;
    }
    if (k != NULL) {
        model__remove(c->m, k);
    }
    k = create(c, c->argv[1], MODEL_STRING);
    model__set(&add_item(k)->value, c->argv[2].p, c->argv[2].n);
    k->expire_ms = ms == -1 ? -1 : model__now_ms(c->m) + ms;
    model__status(c, "OK");
}

static void run_rpush(call *c)
{
    key *k;
    if (!typed_key(c, MODEL_LIST, &k)) {
        return;
    }
    if (k == NULL) {
        k = create(c, c->argv[1], MODEL_LIST);
    }
    for (size_t i = 2; i < c->argc; i++) {
        model__set(&add_item(k)->value, c->argv[i].p, c->argv[i].n);
    }
    model__integer(c, (long long)k->count);
}

static void run_llen(call *c)
{
    key *k;
    if (typed_key(c, MODEL_LIST, &k)) {
        model__integer(c, k == NULL ? 0 : (long long)k->count);
    }
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
    if (!typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    if (k == NULL) {
        k = create(c, c->argv[1], MODEL_HASH);
    }
    for (size_t i = 2; i < c->argc; i += 2) {
        item *at = find_field(k, c->argv[i]);
        if (at == NULL) {
            at = add_item(k);
            model__set(&at->field, c->argv[i].p, c->argv[i].n);
            added++;
        }
        model__set(&at->value, c->argv[i + 1].p, c->argv[i + 1].n);
    }
    model__integer(c, added);
}

static void run_hget(call *c)
{
    key *k;
    if (!typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    item *at = find_field(k, c->argv[2]);
    if (at == NULL) {
        model__null(c);
        return;
    }
    model__bulk(c, at->value.p, at->value.n);
}

static void run_hexists(call *c)
{
    key *k;
    if (typed_key(c, MODEL_HASH, &k)) {
        model__integer(c, find_field(k, c->argv[2]) != NULL);
    }
}

static void run_hlen(call *c)
{
    key *k;
    if (typed_key(c, MODEL_HASH, &k)) {
        model__integer(c, k == NULL ? 0 : (long long)k->count);
    }
}

static void run_hdel(call *c)
{
    key *k;
    long long deleted = 0;
    if (!typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    for (size_t i = 2; i < c->argc && k != NULL; i++) {
        item *at = find_field(k, c->argv[i]);
        if (at != NULL) {
            model__drop(&at->field);
            model__drop(&at->value);
            k->count--;
            memmove(at, at + 1, (size_t)(k->items + k->count - at) * sizeof *at);
            deleted++;
        }
        if (k->count == 0) {
            model__remove(c->m, k);
            k = NULL;
        }
    }
    model__integer(c, deleted);
}

static void append_hash(call *c, bool fields, bool values)
{
    key *k;
    if (!typed_key(c, MODEL_HASH, &k)) {
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

static void run_hincrby(call *c)
{
    key *k;
    long long by, value = 0;
    if (!integer_argument(c, 3, &by) || !typed_key(c, MODEL_HASH, &k)) {
        return;
    }
    item *at = find_field(k, c->argv[2]);
    if (at != NULL && !model__parse_integer((model_text){at->value.p, at->value.n}, &value)) {
        model__error(c, "ERR hash value is not an integer");
        return;
    }
    if (__builtin_add_overflow(value, by, &value)) {
        model__error(c, "ERR increment or decrement would overflow");
        return;
    }
    if (k == NULL) {
        k = create(c, c->argv[1], MODEL_HASH);
    }
    if (at == NULL) {
        at = add_item(k);
        model__set(&at->field, c->argv[2].p, c->argv[2].n);
    }
    char text[24];
    model__set(&at->value, text, (size_t)snprintf(text, sizeof text, "%lld", value));
    model__integer(c, value);
}

const command model__key_commands[] = {
    {"del", run_del, -2, COMMAND_WRITE},
    {"exists", run_exists, -2, 0},
    {"flushall", run_flushall, -1, COMMAND_WRITE},
    {"get", run_get, 2, 0},
    {"hdel", run_hdel, -3, COMMAND_WRITE},
    {"hexists", run_hexists, 3, 0},
    {"hget", run_hget, 3, 0},
    {"hgetall", run_hgetall, 2, 0},
    {"hincrby", run_hincrby, 4, COMMAND_WRITE | COMMAND_GROWS},
    {"hkeys", run_hkeys, 2, 0},
    {"hlen", run_hlen, 2, 0},
    {"hset", run_hset, -4, COMMAND_WRITE | COMMAND_GROWS},
    {"llen", run_llen, 2, 0},
    {"pexpire", run_pexpire, -3, COMMAND_WRITE},
    {"pttl", run_pttl, 2, 0},
    {"rpush", run_rpush, -3, COMMAND_WRITE | COMMAND_GROWS},
    {"scan", run_scan, -2, 0},
    {"set", run_set, -3, COMMAND_WRITE | COMMAND_GROWS},
    {"time", run_time, 1, COMMAND_LOADING},
    {"type", run_type, 2, 0},
    {NULL, NULL, 0, 0},
};

/* ---- Inspection --------------------------------------------------------------------------------- */

void model_flush_keys(model *m)
{
    while (m->key_count > 0) {
        model__remove(m, &m->keys[m->key_count - 1]);
    }
}

bool model_delete(model *m, int db, const char *name, size_t n)
{
    key *k = model__find(m, db, (model_text){name, n});
    if (k != NULL) {
        model__remove(m, k);
    }
    return k != NULL;
}

void model_put_string(model *m, int db, const char *name, size_t n, const char *value)
{
    model_delete(m, db, name, n);
    key *k = create_in(m, db, (model_text){name, n}, MODEL_STRING);
    model__set(&add_item(k)->value, value, strlen(value));
}

static void describe(const key *k, model_key *out)
{
    *out = (model_key){.name = {k->name.p, k->name.n},
                       .db = k->db,
                       .type = k->type,
                       .fields = k->count,
                       .expires_ns =
                           k->expire_ms < 0 ? UINT64_MAX : ((uint64_t)k->expire_ms + 1) * 1000000};
}

size_t model_key_count(model *m)
{
    for (size_t i = m->key_count; i-- > 0;) {
        if (m->keys[i].expire_ms >= 0 && model__now_ms(m) > m->keys[i].expire_ms) {
            model__remove(m, &m->keys[i]);
        }
    }
    return m->key_count;
}

bool model_key_at(model *m, size_t index, model_key *out)
{
    if (index >= model_key_count(m)) {
        return false;
    }
    describe(&m->keys[index], out);
    return true;
}

bool model_key_find(model *m, int db, const char *name, size_t n, model_key *out)
{
    key *k = model__find(m, db, (model_text){name, n});
    if (k != NULL) {
        describe(k, out);
    }
    return k != NULL;
}

bool model_field_at(model *m, int db, const char *name, size_t n, size_t index,
                    model_text *out_field, model_text *out_value)
{
    key *k = model__find(m, db, (model_text){name, n});
    if (k == NULL || index >= k->count) {
        return false;
    }
    *out_field = (model_text){k->items[index].field.p, k->items[index].field.n};
    *out_value = (model_text){k->items[index].value.p, k->items[index].value.n};
    return true;
}
