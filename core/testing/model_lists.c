/* model_lists.c - the model server's lists and sorted sets.
 *
 * A sorted set's items are kept in its order; an item's field is the member, its value the score as
 * text.
 */
#include "model_internal.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Redis' ranges: negative indices count from the end.  False: the range is empty. */
static bool clip(long long *from, long long *to, size_t count)
{
    long long n = (long long)count;
    *from = *from < 0 ? *from + n : *from;
    *to = *to < 0 ? *to + n : *to;
    *from = *from < 0 ? 0 : *from;
    *to = *to >= n ? n - 1 : *to;
    return *from <= *to;
}

/* ---- Lists -------------------------------------------------------------------------------------- */

static void push(call *c, bool front)
{
    key *k;
    if (!model__typed_key(c, MODEL_LIST, &k)) {
        return;
    }
    if (k == NULL) {
        k = model__create(c, c->argv[1], MODEL_LIST);
    }
    for (size_t i = 2; i < c->argc; i++) {
        item *at = model__add_item(k);
        if (front) {
            memmove(k->items + 1, k->items, (k->count - 1) * sizeof *at);
            at = k->items;
            *at = (item){0};
        }
        model__set(&at->value, c->argv[i].p, c->argv[i].n);
    }
    model__integer(c, (long long)k->count);
}

static void run_rpush(call *c)
{
    push(c, false);
}

static void run_lpush(call *c)
{
    push(c, true);
}

static void pop(call *c, bool front)
{
    key *k;
    long long count = 1;
    bool counted = c->argc == 3;
    if (c->argc > 3) {
        model__error(c, "ERR wrong number of arguments for '%s' command", front ? "lpop" : "rpop");
        return;
    }
    if (counted && (!model__parse_integer(c->argv[2], &count) || count < 0)) {
        model__error(c, "ERR value is out of range, must be positive");
        return;
    }
    if (!model__typed_key(c, MODEL_LIST, &k)) {
        return;
    }
    if (k == NULL) {
        counted ? model__null_array(c) : model__null(c);
        return;
    }
    if (counted) {
        count = count > (long long)k->count ? (long long)k->count : count;
        model__array(c, (size_t)count);
    }
    for (; count > 0; count--) {
        item *at = front ? k->items : &k->items[k->count - 1];
        model__bulk(c, at->value.p, at->value.n);
        model__remove_item(c->m, k, at);
    }
}

static void run_lpop(call *c)
{
    pop(c, true);
}

static void run_rpop(call *c)
{
    pop(c, false);
}

static void run_llen(call *c)
{
    key *k;
    if (model__typed_key(c, MODEL_LIST, &k)) {
        model__integer(c, k == NULL ? 0 : (long long)k->count);
    }
}

static void run_lindex(call *c)
{
    key *k;
    long long index;
    if (!model__typed_key(c, MODEL_LIST, &k)) {
        return;
    }
    if (k == NULL) {
        model__null(c);
        return;
    }
    if (!model__integer_argument(c, 2, &index)) {
        return;
    }
    index = index < 0 ? index + (long long)k->count : index;
    if (index < 0 || index >= (long long)k->count) {
        model__null(c);
    } else {
        model__bulk(c, k->items[index].value.p, k->items[index].value.n);
    }
}

static void run_lrange(call *c)
{
    key *k;
    long long from, to;
    if (!model__integer_argument(c, 2, &from) || !model__integer_argument(c, 3, &to) ||
        !model__typed_key(c, MODEL_LIST, &k)) {
        return;
    }
    if (k == NULL || !clip(&from, &to, k->count)) {
        model__array(c, 0);
        return;
    }
    model__array(c, (size_t)(to - from + 1));
    for (; from <= to; from++) {
        model__bulk(c, k->items[from].value.p, k->items[from].value.n);
    }
}

static void run_lrem(call *c)
{
    key *k;
    long long count, removed = 0;
    if (!model__integer_argument(c, 2, &count) || !model__typed_key(c, MODEL_LIST, &k)) {
        return;
    }
    long long most = count == 0 ? LLONG_MAX : llabs(count);
    size_t left = k == NULL ? 0 : k->count; /* items still to be checked */
    size_t at = count < 0 ? left : 0;
    for (; left > 0 && removed < most; left--) {
        at -= count < 0;
        if (model__equal(&k->items[at].value, c->argv[3])) {
            model__remove_item(c->m, k, &k->items[at]);
            removed++;
        } else {
            at += count >= 0;
        }
    }
    model__integer(c, removed);
}

/* LPOS key element: its options are not supported here. */
static void run_lpos(call *c)
{
    key *k;
    if (c->argc > 3) {
        model__error(c, "ERR syntax error");
        return;
    }
    if (!model__typed_key(c, MODEL_LIST, &k)) {
        return;
    }
    for (size_t i = 0; k != NULL && i < k->count; i++) {
        if (model__equal(&k->items[i].value, c->argv[2])) {
            model__integer(c, (long long)i);
            return;
        }
    }
    model__null(c);
}

/* ---- Sorted sets -------------------------------------------------------------------------------- */

static bool parse_score(model_text text, double *out)
{
    char room[128], *end;
    if (text.n == 0 || text.n >= sizeof room || strchr(" \t\n\v\f\r", text.p[0]) != NULL) {
        return false;
    }
    memcpy(room, text.p, text.n);
    room[text.n] = '\0';
    errno = 0;
    *out = strtod(room, &end);
    return end == room + text.n && !isnan(*out) && errno != ERANGE;
}

static size_t score_text(double score, char out[40])
{
    return isinf(score) ? (size_t)snprintf(out, 40, score > 0 ? "inf" : "-inf")
                        : model__number_text(score, out);
}

static void score_reply(call *c, double score)
{
    char text[40];
    model__bulk(c, text, score_text(score, text));
}

static bool comes_before(const item *a, const item *b)
{
    size_t n = a->field.n < b->field.n ? a->field.n : b->field.n;
    int order = n ? memcmp(a->field.p, b->field.p, n) : 0; /* an empty one may have no bytes */
    return a->score != b->score ? a->score < b->score
                                : order < 0 || (order == 0 && a->field.n < b->field.n);
}

/* Set a member's score and move it to its place. */
static void put_score(key *k, item *at, double score)
{
    char text[40];
    at->score = score;
    model__set(&at->value, text, score_text(score, text));
    item moved = *at;
    for (; at > k->items && comes_before(&moved, at - 1); at--) {
        *at = at[-1];
    }
    for (; at + 1 < k->items + k->count && comes_before(at + 1, &moved); at++) {
        *at = at[1];
    }
    *at = moved;
}

static item *add_member(key *k, model_text member)
{
    item *at = model__add_item(k);
    model__set(&at->field, member.p, member.n);
    return at;
}

enum zadd_flag { ZADD_NX = 1, ZADD_XX = 2, ZADD_GT = 4, ZADD_LT = 8, ZADD_CH = 16, ZADD_INCR = 32 };

/* The options of ZADD; returns the argument after them, 0 after an error. */
static size_t zadd_options(call *c, unsigned *out_flags)
{
    static const char *const words[] = {"nx", "xx", "gt", "lt", "ch", "incr"};
    size_t i = 2, known = 0;
    *out_flags = 0;
    for (; i < c->argc && known < 6; i += known < 6) {
        known = 0;
        while (known < 6 && !model__text_is(c->argv[i], words[known])) {
            known++;
        }
        *out_flags |= known < 6 ? 1U << known : 0;
    }
    unsigned flags = *out_flags;
    if ((c->argc - i) % 2 != 0 || c->argc == i) {
        model__error(c, "ERR syntax error");
    } else if (flags & ZADD_NX && flags & ZADD_XX) {
        model__error(c, "ERR XX and NX options at the same time are not compatible");
    } else if ((flags & ZADD_GT && flags & (ZADD_LT | ZADD_NX)) ||
               (flags & ZADD_LT && flags & ZADD_NX)) {
        model__error(c, "ERR GT, LT, and/or NX options at the same time are not compatible");
    } else if (flags & ZADD_INCR && c->argc - i > 2) {
        model__error(c, "ERR INCR option supports a single increment-element pair");
    } else {
        return i;
    }
    return 0;
}

static void zadd(call *c, unsigned flags, size_t first)
{
    key *k;
    long long added = 0, changed = 0;
    double score = 0;
    bool processed = false;
    for (size_t i = first; i < c->argc; i += 2) {
        if (!parse_score(c->argv[i], &score)) {
            model__error(c, "ERR value is not a valid float");
            return;
        }
    }
    if (!model__typed_key(c, MODEL_ZSET, &k)) {
        return;
    }
    for (size_t i = first; i < c->argc; i += 2) {
        parse_score(c->argv[i], &score);
        item *at = model__find_field(k, c->argv[i + 1]);
        if (at == NULL ? flags & ZADD_XX : flags & ZADD_NX) {
            continue;
        }
        if (at != NULL) {
            score += flags & ZADD_INCR ? at->score : 0;
            if (isnan(score)) {
                model__error(c, "ERR resulting score is not a number (NaN)");
                return;
            }
            if ((flags & ZADD_GT && score <= at->score) ||
                (flags & ZADD_LT && score >= at->score)) {
                continue;
            }
            changed += score != at->score;
        } else {
            k = k == NULL ? model__create(c, c->argv[1], MODEL_ZSET) : k;
            at = add_member(k, c->argv[i + 1]);
            added++;
        }
        put_score(k, at, score);
        processed = true;
    }
    if (!(flags & ZADD_INCR)) {
        model__integer(c, flags & ZADD_CH ? added + changed : added);
    } else if (processed) {
        score_reply(c, score);
    } else {
        model__null(c);
    }
}

static void run_zadd(call *c)
{
    unsigned flags;
    size_t first = zadd_options(c, &flags);
    if (first != 0) {
        zadd(c, flags, first);
    }
}

static void run_zincrby(call *c)
{
    zadd(c, ZADD_INCR, 2);
}

static void run_zscore(call *c)
{
    key *k;
    if (!model__typed_key(c, MODEL_ZSET, &k)) {
        return;
    }
    item *at = model__find_field(k, c->argv[2]);
    if (at == NULL) {
        model__null(c);
    } else {
        score_reply(c, at->score);
    }
}

static void run_zrem(call *c)
{
    key *k;
    long long removed = 0;
    if (!model__typed_key(c, MODEL_ZSET, &k)) {
        return;
    }
    for (size_t i = 2; i < c->argc && k != NULL; i++) {
        item *at = model__find_field(k, c->argv[i]);
        if (at != NULL) {
            bool was_last = k->count == 1;
            model__remove_item(c->m, k, at);
            k = was_last ? NULL : k;
            removed++;
        }
    }
    model__integer(c, removed);
}

static void run_zcard(call *c)
{
    key *k;
    if (model__typed_key(c, MODEL_ZSET, &k)) {
        model__integer(c, k == NULL ? 0 : (long long)k->count);
    }
}

static void run_zrank(call *c)
{
    key *k;
    if (!model__typed_key(c, MODEL_ZSET, &k)) {
        return;
    }
    item *at = model__find_field(k, c->argv[2]);
    if (at == NULL) {
        model__null(c);
    } else {
        model__integer(c, at - k->items);
    }
}

/* The items [from, from + n) with or without their scores. */
static void reply_members(call *c, const key *k, size_t from, size_t n, bool scores)
{
    model__array(c, n * (scores ? 2 : 1));
    for (size_t i = from; i < from + n; i++) {
        model__bulk(c, k->items[i].field.p, k->items[i].field.n);
        if (scores) {
            score_reply(c, k->items[i].score);
        }
    }
}

/* ZRANGE key start stop [WITHSCORES]: its other options are not supported here. */
static void run_zrange(call *c)
{
    key *k;
    long long from, to;
    bool scores = c->argc == 5 && model__text_is(c->argv[4], "withscores");
    if (c->argc > 4 && !scores) {
        model__error(c, "ERR syntax error");
        return;
    }
    if (!model__integer_argument(c, 2, &from) || !model__integer_argument(c, 3, &to) ||
        !model__typed_key(c, MODEL_ZSET, &k)) {
        return;
    }
    if (k == NULL || !clip(&from, &to, k->count)) {
        model__array(c, 0);
        return;
    }
    reply_members(c, k, (size_t)from, (size_t)(to - from + 1), scores);
}

static void run_zremrangebyrank(call *c)
{
    key *k;
    long long from, to;
    if (!model__integer_argument(c, 2, &from) || !model__integer_argument(c, 3, &to) ||
        !model__typed_key(c, MODEL_ZSET, &k)) {
        return;
    }
    long long n = k != NULL && clip(&from, &to, k->count) ? to - from + 1 : 0;
    for (long long i = 0; i < n; i++) {
        model__remove_item(c->m, k, &k->items[from]);
    }
    model__integer(c, n);
}

/* ---- Sorted sets by score ----------------------------------------------------------------------- */

struct bounds {
    double least, most;
    bool above, below; /* the bound itself is excluded */
};

static bool bound(model_text text, double *out, bool *out_open)
{
    *out = 0; /* an empty text counts as 0 */
    *out_open = text.n > 0 && text.p[0] == '(';
    text = (model_text){text.p + *out_open, text.n - *out_open};
    return text.n == 0 || parse_score(text, out);
}

static bool bounds_arguments(call *c, struct bounds *out)
{
    if (!bound(c->argv[2], &out->least, &out->above) ||
        !bound(c->argv[3], &out->most, &out->below)) {
        model__error(c, "ERR min or max is not a float");
        return false;
    }
    return true;
}

/* The items within the bounds are neighbours: their number and the first. */
static size_t within(const key *k, const struct bounds *b, size_t *out_first)
{
    size_t n = 0;
    *out_first = 0;
    for (size_t i = 0; k != NULL && i < k->count; i++) {
        double score = k->items[i].score;
        bool is_in = (b->above ? score > b->least : score >= b->least) &&
                     (b->below ? score < b->most : score <= b->most);
        *out_first = is_in && n == 0 ? i : *out_first;
        n += is_in;
    }
    return n;
}

static void run_zcount(call *c)
{
    key *k;
    struct bounds b;
    size_t first;
    if (bounds_arguments(c, &b) && model__typed_key(c, MODEL_ZSET, &k)) {
        model__integer(c, (long long)within(k, &b, &first));
    }
}

static void run_zremrangebyscore(call *c)
{
    key *k;
    struct bounds b;
    size_t first;
    if (!bounds_arguments(c, &b) || !model__typed_key(c, MODEL_ZSET, &k)) {
        return;
    }
    size_t n = within(k, &b, &first);
    for (size_t i = 0; i < n; i++) {
        model__remove_item(c->m, k, &k->items[first]);
    }
    model__integer(c, (long long)n);
}

static void run_zrangebyscore(call *c)
{
    key *k;
    struct bounds b;
    bool scores = false;
    size_t limit = 0, first;
    long long skip = 0, most = -1;
    for (size_t i = 4; i < c->argc; i++) {
        if (model__text_is(c->argv[i], "withscores")) {
            scores = true;
        } else if (model__text_is(c->argv[i], "limit") && i + 2 < c->argc) {
            limit = i + 1;
            if (!model__integer_argument(c, limit, &skip) ||
                !model__integer_argument(c, limit + 1, &most)) {
                return;
            }
            i += 2;
        } else {
            model__error(c, "ERR syntax error");
            return;
        }
    }
    if (!bounds_arguments(c, &b) || !model__typed_key(c, MODEL_ZSET, &k)) {
        return;
    }
    size_t n = within(k, &b, &first);
    if (skip < 0 || skip >= (long long)n) {
        model__array(c, 0);
        return;
    }
    n -= (size_t)skip;
    n = most >= 0 && most < (long long)n ? (size_t)most : n;
    reply_members(c, k, first + (size_t)skip, n, scores);
}

const command model__list_commands[] = {
    {"lindex", run_lindex, 3, 0},
    {"llen", run_llen, 2, 0},
    {"lpop", run_lpop, -2, COMMAND_WRITE},
    {"lpos", run_lpos, -3, 0},
    {"lpush", run_lpush, -3, COMMAND_WRITE | COMMAND_GROWS},
    {"lrange", run_lrange, 4, 0},
    {"lrem", run_lrem, 4, COMMAND_WRITE},
    {"rpop", run_rpop, -2, COMMAND_WRITE},
    {"rpush", run_rpush, -3, COMMAND_WRITE | COMMAND_GROWS},
    {"zadd", run_zadd, -4, COMMAND_WRITE | COMMAND_GROWS},
    {"zcard", run_zcard, 2, 0},
    {"zcount", run_zcount, 4, 0},
    {"zincrby", run_zincrby, 4, COMMAND_WRITE | COMMAND_GROWS},
    {"zrange", run_zrange, -4, 0},
    {"zrangebyscore", run_zrangebyscore, -4, 0},
    {"zrank", run_zrank, 3, 0},
    {"zrem", run_zrem, -3, COMMAND_WRITE},
    {"zremrangebyrank", run_zremrangebyrank, 4, COMMAND_WRITE},
    {"zremrangebyscore", run_zremrangebyscore, 4, COMMAND_WRITE},
    {"zscore", run_zscore, 3, 0},
    {NULL, NULL, 0, 0},
};
