/* names.c - lock names of any bytes, in every kind: keys are those that Redisson computes, all in one slot of a
 * cluster, and a refused name changes nothing.
 *
 * What is right is computed here a second time, from the rules alone.
 */
#include "party.h"

#include "api/name.h"
#include "snib.h"

#define KINDS 10

/* ---- The rules, again ------------------------------------------------------------------------------ */

/* Valid UTF-8 without C0, DEL and C1, by RFC 3629's table of well-formed sequences. */
static bool is_plain_text(const uint8_t *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint8_t c = s[i];
        size_t more = c < 0x80                 ? 0
                      : c >= 0xc2 && c <= 0xdf ? 1
                      : (c & 0xf0) == 0xe0     ? 2
                      : c >= 0xf0 && c <= 0xf4 ? 3
                                               : SIZE_MAX;
        uint8_t low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
        uint8_t high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        if (more > n - i - 1 || c < 0x20 || c == 0x7f)
            return false;
        if (c == 0xc2)
            low = 0xa0;
        for (size_t j = 1; j <= more; j++, low = 0x80, high = 0xbf)
            if (s[i + j] < low || s[i + j] > high)
                return false;
        i += 1 + more;
    }
    return true;
}

/* What the server hashes: the text between the first { and the next }, if there is any. */
static struct word hashed(struct word key)
{
    const char *open = memchr(key.p, '{', key.n);
    const char *close = open ? memchr(open, '}', (size_t)(key.p + key.n - open)) : NULL;
    return close && close > open + 1 ? (struct word){open + 1, (size_t)(close - open - 1)} : key;
}

static bool same(struct word one, struct word other)
{
    return one.n == other.n && memcmp(one.p, other.p, one.n) == 0;
}

/* Redisson's derived name: the prefix, and the name in braces unless it has some. */
static size_t derived(char *out, const char *prefix, struct word name, const char *suffix)
{
    bool tagged = memchr(name.p, '{', name.n) != NULL;
    return (size_t)sprintf(out, "%s%s%.*s%s%s", prefix, tagged ? "" : "{", (int)name.n, name.p,
                           tagged ? "" : "}", suffix);
}

static bool is_usable(struct word name)
{
    char other[1200];
    if (name.n < 1 || name.n > 512 || !is_plain_text((const uint8_t *)name.p, name.n))
        return false;
    size_t n = derived(other, "p:", name, "");
    const char *open = memchr(name.p, '{', name.n), *close = memchr(name.p, '}', name.n);
    /* One tag, shared with what is derived from it, or none. */
    if (!open && !close)
        return true;
    return open && close && open < close && hashed(name).n < name.n &&
           same(hashed(name), hashed((struct word){other, n}));
}

static bool is_known_key(struct word key, struct word name, const struct party *p)
{
    static const char *const prefixes[] = {
        "redisson_lock_queue:", "redisson_lock_timeout:", "redisson_lock_token:",
        "snib_lock_beats:", "snib_writer_waits:"};
    char text[1400], suffix[128];
    if (same(key, name))
        return true;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (same(key, (struct word){text, derived(text, prefixes[i], name, "")}))
            return true;
    if (same(key, (struct word){text, derived(text, "", name, ":timeout")}))
        return true;
    snprintf(suffix, sizeof suffix, ":%s:1:rwlock_timeout:1", p->e->config.uuid);
    return same(key, (struct word){text, derived(text, "", name, suffix)});
}

/* ---- What is sent ----------------------------------------------------------------------------------- */

/* Every key of a command, from its bytes. */
static void check_keys(const struct party *p, const struct command *command, const char *bytes,
                       struct word name, int32_t kind)
{
    const char *at = bytes, *end = bytes + command->bytes;
    unsigned keys = 0;
    for (unsigned i = 0; at < end; i++) {
        if (i == 0) { /* *argc */
            at = memchr(at, '\n', (size_t)(end - at));
            at++;
        }
        size_t n = strtoul(at + 1, NULL, 10);
        at = memchr(at, '\n', (size_t)(end - at));
        struct word word = {at + 1, n};
        at += 1 + n + 2;
        if (i == 2)
            keys = (unsigned)strtoul(word.p, NULL, 10);
        if (i < 3 || i >= 3 + keys)
            continue;
        MUST(keys > 0 && word.n > 0);
        if (kind == SNIB_LATCH) /* its channel has braces in any case */
            continue;
        MUST(same(hashed(word), hashed(name)));
        MUST(is_known_key(word, name, p));
    }
}

static void serve(struct party *p, struct word name, int32_t kind)
{
    char out[4096];
    struct command command;
    bool more = true;
    for (int rounds = 0; more; rounds++) {
        MUST(rounds < 1000);
        more = false;
        party_tick(p);
        for (unsigned i = 0; i < PARTY_PIPES && p->pipes[i].link; i++) {
            struct pipe *pipe = &p->pipes[i];
            party_up(p, pipe);
            while (party_command(p, pipe, &command)) {
                const struct snib__buf *sent = snib__link_output(pipe->link);
                if (word_is(command.word[0], "EVALSHA"))
                    check_keys(p, &command, sent->data + sent->head, name, kind);
                size_t n = party_reply(p, pipe, &command, "standalone", out, sizeof out);
                party_took(p, pipe, &command);
                party_send(pipe, out, n);
                party_deliver(p, pipe, PARTY_PENDING);
                more = true;
            }
        }
    }
}

/* An acquire, a question and a release of a lock of that name. */
static void check_wire(struct word name, int32_t kind)
{
    static struct party p;
    struct snib__config config = party_config();
    struct snib__acquire how = {.wait = SNIB__NEVER, .permits = 1};
    party_begin(&p, &config);
    struct snib__gate *gate = party_gate(&p, 0, kind, name.p, name.n);
    if (gate->kind->channel) {
        char channel[SNIB__CHANNEL_MAX];
        MUST(gate->kind->channel(channel, p.e, gate, 0) < sizeof channel);
    }
    party_acquire(&p, gate, &how);
    serve(&p, name, kind);
    party_ask(&p, 0, gate, 0);
    party_ask(&p, 4, gate, 0);
    party_ask(&p, 6, gate, 0);
    serve(&p, name, kind);
    party_release(&p, 0);
    party_ask(&p, 1, gate, 0);
    serve(&p, name, kind);
    for (unsigned i = 0; i < PARTY_OPS; i++)
        MUST(!p.ops[i]); /* all of them had an answer */
    party_end(&p);
}

/* ---- The API ------------------------------------------------------------------------------------- */

static snib_client *client;

static uint64_t memory(void)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    MUST(snib_client_stats(client, &stats, NULL) == SNIB_OK);
    return stats.memory;
}

static void check_api(const char *bytes, size_t n, int32_t kind, bool usable)
{
    snib_lock *const untouched = (snib_lock *)&client;
    snib_lock *lock = untouched;
    snib_error err = {0};
    if (!client)
        MUST(snib_client_open("redis://127.0.0.1:1", NULL, &client, NULL) == SNIB_OK);
    uint64_t before = memory();
    int code = snib_lock_new(client, kind, bytes, n, NULL, &lock, &err);
    MUST((code == SNIB_OK) == usable);
    if (code == SNIB_OK) {
        snib_lock_free(lock);
        return;
    }
    MUST(code == SNIB_ENAME && err.code == code && lock == untouched && memory() == before);
    MUST(memchr(err.text, 0, sizeof err.text));
    for (const char *at = err.text; *at; at++)
        MUST((unsigned char)*at >= 0x20 && *at != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    int32_t kind = 1 + take(&in) % KINDS;
    char *bytes = malloc(in.left ? in.left : 1); /* of its own size */
    MUST(bytes);
    memcpy(bytes, in.at, in.left);
    struct word name = {bytes, in.left};
    bool usable = is_usable(name);
    MUST((snib__name_check(name.p, name.n, NULL) == SNIB_OK) == usable);
    check_api(bytes, name.n, kind, usable);
    if (usable)
        check_wire(name, kind);
    free(bytes);
    return 0;
}
