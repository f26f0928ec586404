/* model_keys.c - the model server's keys and the commands on them.
 *
 * Keys lie in one array: a simulated world has a handful.  An expired key is absent to every
 * look-up and is removed by the first that meets it.
 */
#include "model_internal.h"

#include <inttypes.h>
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
        /* The one found last is often wanted again. */
        size_t at = i == 0 && m->found < m->key_count ? m->found : i == m->found ? 0 : i;
        key *k = &m->keys[at];
        if (k->db == db && model__equal(&k->name, name)) {
            m->found = at;
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

key *model__create(call *c, model_text name, int type)
{
    return create_in(c->m, c->from->db, name, type);
}

item *model__add_item(key *k)
{
    if (k->count == k->cap) {
        k->cap = k->cap * 2 + 1;
        k->items = model__grow(k->items, k->cap * sizeof *k->items);
    }
    k->items[k->count] = (item){0};
    return &k->items[k->count++];
}

/* The key goes with its last item. */
void model__remove_item(model *m, key *k, item *at)
{
    model__drop(&at->field);
    model__drop(&at->value);
    k->count--;
    memmove(at, at + 1, (size_t)(k->items + k->count - at) * sizeof *at);
    if (k->count == 0) {
        model__remove(m, k);
    }
}

item *model__find_field(key *k, model_text field)
{
    for (size_t i = 0; k != NULL && i < k->count; i++) {
        if (model__equal(&k->items[i].field, field)) {
            return &k->items[i];
        }
    }
    return NULL;
}

bool model__typed_key(call *c, int type, key **out)
{
    *out = model__find(c->m, c->from->db, c->argv[1]);
    if (*out != NULL && (*out)->type != type) {
        model__error(c, MODEL_WRONGTYPE);
        return false;
    }
    return true;
}

bool model__integer_argument(call *c, size_t i, long long *out)
{
    if (!model__parse_integer(c->argv[i], out)) {
        model__error(c, "ERR value is not an integer or out of range");
        return false;
    }
    return true;
}

uint64_t model__random(model *m, uint64_t below)
{
    m->random = m->random * 6364136223846793005U + 1442695040888963407U;
    return (m->random >> 33) % below;
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
    static const char *const names[] = {"none", "string", "hash", "list", "zset"};
    return names[type];
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
    if (!model__integer_argument(c, 2, &ms)) {
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

static void run_persist(call *c)
{
    key *k = model__find(c->m, c->from->db, c->argv[1]);
    bool had_one = k != NULL && k->expire_ms != -1;
    if (had_one) {
        k->expire_ms = -1;
    }
    model__integer(c, had_one);
}

/* Whether a byte is in the set that begins after a '['; *at becomes its ']', or the last byte if it has none. */
static bool set_has(const char **at, const char *end, unsigned char byte)
{
    const char *p = *at;
    bool inverted = p < end && *p == '^', found = false;
    for (p += inverted; p < end && *p != ']'; p++) {
        unsigned char from = (unsigned char)*p, to = from;
        if (*p == '\\' && p + 1 < end) {
            from = to = (unsigned char)*++p;
        } else if (end - p >= 3 && p[1] == '-') {
            to = (unsigned char)p[2];
            p += 2;
        }
        found |= from <= to ? byte >= from && byte <= to : byte >= to && byte <= from;
    }
    *at = p < end ? p : end - 1;
    return found != inverted;
}

/* A server's patterns are of bytes, whatever the locale, which fnmatch() would heed. */
static bool glob(const char *p, const char *p_end, const char *s, const char *s_end)
{
    for (; p < p_end && s < s_end; p++, s++) {
        if (*p == '*') {
            while (p < p_end && *p == '*') {
                p++;
            }
            while (p < p_end && s < s_end && !glob(p, p_end, s, s_end)) {
                s++;
            }
            return p == p_end || s < s_end;
        }
        const char *set = p + 1;
        if (*p == '[') {
            if (!set_has(&set, p_end, (unsigned char)*s)) {
                return false;
            }
            p = set;
        } else if (*p != '?') {
            p += *p == '\\' && p + 1 < p_end;
            if (*p != *s) {
                return false;
            }
        }
    }
    while (s == s_end && p < p_end && *p == '*') {
        p++;
    }
    return p == p_end && s == s_end;
}

bool model__glob_matches(model_text pattern, const buffer *name)
{
    const char *bytes = name->n == 0 ? "" : name->p;
    return glob(pattern.p, pattern.p + pattern.n, bytes, bytes + name->n);
}

struct place {
    uint64_t at; /* not 0 */
    const key *k;
};

/* A name has its place for ever, as in a real server: so a SCAN meets a key that a script makes anew under way. */
static uint64_t place_of(const buffer *name)
{
    uint64_t hash = 14695981039346656037U;
    for (size_t i = 0; i < name->n; i++) {
        hash = (hash ^ (unsigned char)name->p[i]) * 1099511628211U;
    }
    return hash / 4 + 1;
}

static int by_place(const void *a, const void *b)
{
    uint64_t one = ((const struct place *)a)->at, other = ((const struct place *)b)->at;
    return one < other ? -1 : one > other;
}

/* This database's keys from a place on, in order; to be freed. */
static struct place *places_from(call *c, uint64_t from, size_t *out_n)
{
    size_t n = model_key_count(c->m);
    struct place *places = model__grow(NULL, (n + 1) * sizeof *places);
    *out_n = 0;
    for (size_t i = 0; i < n; i++) {
        const key *k = &c->m->keys[i];
        struct place place = {place_of(&k->name), k};
        if (k->db == c->from->db && place.at >= from) {
            places[(*out_n)++] = place;
        }
    }
    qsort(places, *out_n, sizeof *places, by_place);
    return places;
}

/* Of `most` keys from a place on: appends those that match, and have the type if one is given, to `names`.  Returns the next
 * place, 0 at the end. */
static uint64_t find_names(call *c, uint64_t from, long long most, model_text pattern,
                           model_text type, buffer *names, size_t *out_found)
{
    size_t n, i = 0;
    struct place *places = places_from(c, from, &n);
    buffer *reply = c->reply;
    c->reply = names;
    *out_found = 0;
    for (; i < n && ((long long)i < most || places[i].at == places[i - 1].at); i++) {
        const key *k = places[i].k;
        if (model__glob_matches(pattern, &k->name) &&
            (type.p == NULL || model__text_is(type, type_name(k->type)))) {
            model__bulk(c, k->name.p, k->name.n);
            ++*out_found;
        }
    }
    uint64_t next = i < n ? places[i].at : 0;
    free(places);
    c->reply = reply;
    return next;
}

static void reply_names(call *c, buffer *names, size_t found)
{
    model__array(c, found);
    model__append(c->reply, names->p, names->n);
    model__drop(names);
}

/* The cursor is the next place. */
static void run_scan(call *c)
{
    model_text pattern = {"*", 1}, type = {NULL, 0};
    long long cursor, number = 10;
    if (!model__parse_integer(c->argv[1], &cursor) || cursor < 0) {
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
            if (!model__integer_argument(c, i + 1, &number)) {
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
    char next[24];
    size_t found;
    uint64_t from = find_names(c, (uint64_t)cursor, number, pattern, type, &names, &found);
    model__array(c, 2);
    model__bulk(c, next, (size_t)snprintf(next, sizeof next, "%" PRIu64, from));
    reply_names(c, &names, found);
}

static void run_keys(call *c)
{
    buffer names = {0};
    size_t found;
    find_names(c, 0, LLONG_MAX, c->argv[1], (model_text){NULL, 0}, &names, &found);
    reply_names(c, &names, found);
}

/* A real server also counts keys that have expired and that it has not met since, so model_check.c cannot compare it. */
static void run_dbsize(call *c)
{
    long long count = 0;
    for (size_t i = model_key_count(c->m); i-- > 0;) {
        count += c->m->keys[i].db == c->from->db;
    }
    model__integer(c, count);
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

const command model__key_commands[] = {
    {"dbsize", run_dbsize, 1, COMMAND_KEYLESS},
    {"del", run_del, -2, COMMAND_WRITE | COMMAND_KEYS},
    {"exists", run_exists, -2, COMMAND_KEYS},
    {"flushall", run_flushall, -1, COMMAND_WRITE},
    {"keys", run_keys, 2, COMMAND_KEYLESS},
    {"persist", run_persist, 2, COMMAND_WRITE},
    {"pexpire", run_pexpire, -3, COMMAND_WRITE},
    {"pttl", run_pttl, 2, 0},
    {"scan", run_scan, -2, COMMAND_KEYLESS},
    {"time", run_time, 1, COMMAND_LOADING | COMMAND_KEYLESS},
    {"type", run_type, 2, 0},
    {"unlink", run_del, -2, COMMAND_WRITE},
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
    model__set(&model__add_item(k)->value, value, strlen(value));
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
