/* kind.c - the table of kinds, and code shared by their encoders and decoders. */
#include "locks/kind.h"

#include "engine/internal.h"
#include "net/script.h"

#include <stdlib.h>
#include <string.h>

const struct snib__lock_kind snib__outer = {
    .kind = SNIB__OUTER, .discipline = SNIB__SHARED, .traits = SNIB__POLLS};

const struct snib__lock_kind *snib__kind_of(int32_t kind)
{
    static const struct snib__lock_kind *const kinds[] = {
        &snib__mutex, &snib__fair,      &snib__read,    &snib__write, &snib__fenced, &snib__spin,
        &snib__plain, &snib__semaphore, &snib__permits, &snib__latch, &snib__multi,  &snib__outer};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i]->kind == kind)
            return kinds[i];
    return NULL;
}

/* ---- names ---- */

static size_t kind_braced(char *out, const char *name, size_t name_len)
{
    bool tagged = memchr(name, '{', name_len) != NULL;
    size_t n = 0;
    if (!tagged)
        out[n++] = '{';
    memcpy(out + n, name, name_len);
    n += name_len;
    if (!tagged)
        out[n++] = '}';
    return n;
}

size_t snib__name_prefix(char *out, const char *prefix, const char *name, size_t name_len)
{
    size_t n = strlen(prefix);
    memcpy(out, prefix, n);
    out[n++] = ':';
    return n + kind_braced(out + n, name, name_len);
}

size_t snib__name_suffix(char *out, const char *name, size_t name_len, const char *suffix,
                         size_t suffix_len)
{
    size_t n = kind_braced(out, name, name_len);
    out[n++] = ':';
    memcpy(out + n, suffix, suffix_len);
    return n + suffix_len;
}

/* ---- arguments ---- */

int snib__arg_name(struct snib__buf *out, const struct snib__gate *gate)
{
    return snib__resp_arg(out, gate->name, gate->name_len);
}

int snib__arg_prefixed(struct snib__buf *out, const char *prefix, const struct snib__gate *gate)
{
    char name[SNIB__CHANNEL_MAX];
    return snib__resp_arg(out, name, snib__name_prefix(name, prefix, gate->name, gate->name_len));
}

int snib__arg_suffixed(struct snib__buf *out, const struct snib__gate *gate, const char *suffix,
                       size_t suffix_len)
{
    char name[SNIB__CHANNEL_MAX];
    return snib__resp_arg(out, name,
                          snib__name_suffix(name, gate->name, gate->name_len, suffix, suffix_len));
}

int snib__arg_owner(struct snib__buf *out, const struct snib__engine *engine,
                    const struct snib__hold *hold)
{
    char *owner = snib__resp_place(out, 64);
    if (!owner)
        return -1;
    snib__resp_placed(out, snib__hold_owner(engine, hold, owner));
    return 0;
}

int snib__arg_lease(struct snib__buf *out, const struct snib__engine *engine,
                    const struct snib__hold *hold)
{
    return snib__resp_arg_int(out, (int64_t)(snib__hold_lease(engine, hold) / SNIB__MS));
}

static int kind_arg_word(struct snib__buf *out, const struct snib__gate *gate, const char *word)
{
    char text[SNIB__CHANNEL_MAX];
    size_t n = strlen(word);
    if (word[0] == ':')
        return snib__arg_suffixed(out, gate, word + 1, n - 1);
    if (word[n - 1] != '{')
        return snib__arg_prefixed(out, word, gate);
    memcpy(text, word, n);
    memcpy(text + n, gate->name, gate->name_len);
    n += gate->name_len;
    text[n++] = '}';
    return snib__resp_arg(out, text, n);
}

int snib__name_script_encode(struct snib__buf *out, const struct snib__gate *gate,
                             const struct snib__name_script *call)
{
    bool twice = call->tag_adds_key && memchr(gate->name, '{', gate->name_len);
    uint32_t words = 0;
    while (words < 5 && call->words[words])
        words++;
    if (snib__script_begin(out, call->script, call->keys + twice, 1 + words + twice) < 0 ||
        snib__arg_name(out, gate) < 0 ||
        (twice && kind_arg_word(out, gate, call->words[words - 1]) < 0))
        return -1;
    for (uint32_t i = 0; i < words; i++)
        if (kind_arg_word(out, gate, call->words[i]) < 0)
            return -1;
    return call->script;
}

int snib__args_renew(struct snib__buf *out, int script, const struct snib__engine *engine,
                     struct snib__hold *const *holds, uint32_t n, int64_t lease_ms)
{
    if (snib__script_begin(out, script, n, 2 * n + 1) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (snib__arg_name(out, holds[i]->gate) < 0)
            return -1;
    if (snib__resp_arg_int(out, lease_ms) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (snib__arg_owner(out, engine, holds[i]) < 0)
            return -1;
    return script;
}

/* ---- verdicts ---- */

bool snib__reply_fits(uint8_t forms, const struct snib__value *reply, uint32_t n)
{
    static const uint8_t lists[] = {0, SNIB__LIST_1, SNIB__LIST_2, SNIB__LIST_3, 0, SNIB__LIST_5};
    if (reply->type <= SNIB__RESP_STRING)
        return (forms & 1u << reply->type) != 0;
    return reply->type == SNIB__RESP_ARRAY && n <= sizeof lists && reply->count == n - 1 &&
           (forms & lists[n - 1]) != 0;
}

bool snib__reply_fits_renewal(uint32_t holds, const struct snib__value *reply, uint32_t n)
{
    bool fits = reply->type == SNIB__RESP_ARRAY && reply->count == n - 1 && n % 2 == 1;
    int64_t last = 0;
    for (uint32_t i = 1; fits && i < n; i += 2) {
        fits = reply[i].type == SNIB__RESP_INTEGER && reply[i + 1].type == SNIB__RESP_INTEGER &&
               reply[i].integer > last && reply[i].integer <= (int64_t)holds;
        last = reply[i].integer;
    }
    return fits;
}

int64_t snib__reply_number(const struct snib__engine *engine, const struct snib__value *value)
{
    if (value->type == SNIB__RESP_INTEGER)
        return value->integer;
    if (value->type == SNIB__RESP_STRING || value->type == SNIB__RESP_STATUS)
        return strtoll(snib__resp_text(snib__engine_resp(engine), value), NULL, 10);
    return 0;
}

void snib__verdict_left(const struct snib__engine *engine, const struct snib__hold *hold,
                        const struct snib__value *reply, uint32_t n, struct snib__verdict *verdict)
{
    (void)engine, (void)hold, (void)n;
    verdict->yes = reply->type == SNIB__RESP_NIL;
    verdict->left_ms = reply->type == SNIB__RESP_INTEGER ? reply->integer : -1;
}

void snib__verdict_receivers(const struct snib__engine *engine, const struct snib__hold *hold,
                             const struct snib__value *reply, uint32_t n,
                             struct snib__verdict *verdict)
{
    (void)engine, (void)hold, (void)n;
    bool counts = reply->type == SNIB__RESP_INTEGER;
    verdict->unheard = counts && reply->integer == -1;
    verdict->partly = counts && reply->integer == -2;
    verdict->yes = verdict->unheard || (counts && reply->integer > 0);
    verdict->receivers = counts && reply->integer > 0 ? reply->integer - 1 : 0;
}

void snib__verdict_transfer(const struct snib__engine *engine, const struct snib__value *reply,
                            uint32_t n, struct snib__verdict *verdict)
{
    (void)engine, (void)n;
    verdict->yes = reply->type == SNIB__RESP_INTEGER && reply->integer > 0;
    verdict->handed = reply->type == SNIB__RESP_INTEGER && reply->integer == 1;
}
