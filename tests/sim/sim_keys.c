/* sim_keys.c - the names of a world and the keys that belong to them; and an operator, who may
 * change numbers and restores those that got lost. */
#include "sim.h"

#include "snib.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Names -------------------------------------------------------------------------------------- */

static void wrap(char *out, size_t cap, const char *prefix, const struct sim_name *name)
{
    snprintf(out, cap, "%s:%s", prefix, name->tag);
}

void keys_plan(struct sim_name *name)
{
    bool tagged = strchr(name->text, '{') != NULL;
    snprintf(name->tag, sizeof name->tag, tagged ? "%s" : "{%s}", name->text);
    wrap(name->queue, sizeof name->queue, "redisson_lock_queue", name);
    wrap(name->places, sizeof name->places, "redisson_lock_timeout", name);
    wrap(name->beats, sizeof name->beats, "snib_lock_beats", name);
    wrap(name->token, sizeof name->token, "redisson_lock_token", name);
    wrap(name->mark, sizeof name->mark, "snib_writer_waits", name);
    snprintf(name->taken, sizeof name->taken, "%s:timeout", name->tag);
    if (name->family == FAMILY_LATCH) {
        snprintf(name->channel, sizeof name->channel, "redisson_countdownlatch__channel__{%s}",
                 name->text);
    } else {
        wrap(name->channel, sizeof name->channel, "redisson_sc", name);
    }
    for (int i = 0; i < SIM_PERMITS; i++) {
        name->open_since[i] = sim.now;
    }
}

/* ---- Keys --------------------------------------------------------------------------------------- */

static bool is_key(const model_key *key, const char *text)
{
    return key->name.n == strlen(text) && memcmp(key->name.p, text, key->name.n) == 0;
}

/* Whether the key may exist, and the longest TTL that it may have; SNIB__NEVER: it may have
 * none. */
static bool is_known(const struct sim_name *name, const model_key *key, snib__time *out_life)
{
    bool counts = name->family >= FAMILY_SEMAPHORE;
    *out_life = counts ? SNIB__NEVER : sim_longest();
    if (name->family == FAMILY_FAIR && sim_longest() < SIM_FIRST) {
        *out_life = SIM_FIRST;
    }
    if (is_key(key, name->text)) {
        *out_life =
            name->family == FAMILY_PLAIN || key->type == MODEL_STRING ? SNIB__NEVER : *out_life;
        return true;
    }
    if (is_key(key, name->token) || is_key(key, name->taken)) {
        *out_life = SNIB__NEVER;
        return is_key(key, name->token) ? name->tokens || name->family == FAMILY_FENCED
                                        : name->family == FAMILY_PERMITS;
    }
    if (is_key(key, name->queue) || is_key(key, name->places)) {
        *out_life = SNIB__NEVER;
        return name->family == FAMILY_FAIR;
    }
    if (is_key(key, name->beats)) {
        *out_life = 10000 * SNIB__MS;
        return name->family == FAMILY_FAIR;
    }
    if (is_key(key, name->mark)) {
        *out_life = SIM_MARK;
        return name->family == FAMILY_RW;
    }
    size_t n = strlen(name->tag);
    return name->family == FAMILY_RW && key->name.n > n && memcmp(key->name.p, name->tag, n) == 0;
}

/* What a client says about itself. */
static bool is_identity(const model_key *key, snib__time *out_life)
{
    static const char prefix[] = "snib_client:{";
    *out_life = sim_longest() > SIM_IDENTITY ? sim_longest() : SIM_IDENTITY;
    return sim.known && key->type == MODEL_STRING && key->name.n == sizeof prefix + 36 &&
           memcmp(key->name.p, prefix, sizeof prefix - 1) == 0;
}

void keys_check(void)
{
    model_key key;
    size_t count = model_key_count(sim.model);
    for (size_t i = 0; i < count && model_key_at(sim.model, i, &key); i++) {
        bool known = false;
        snib__time life = 0;
        for (int j = 0; j < sim.name_count && !known; j++) {
            known = is_known(&sim.names[j], &key, &life);
        }
        known = known || is_identity(&key, &life);
        if (!known || key.db != sim.database) {
            sim_fail("a key belongs to no lock, or is in another database: %.*s", (int)key.name.n,
                     key.name.p);
        }
        if (life != SNIB__NEVER &&
            (key.expires_ns == UINT64_MAX || key.expires_ns > sim_server_ns(sim.now) +
                                                                  (uint64_t)clock_lag() + life +
                                                                  2 * SNIB__MS)) {
            sim_fail("%.*s has no TTL, or a longer one than a lease", (int)key.name.n, key.name.p);
        }
    }
}

/* ---- An operator -------------------------------------------------------------------------------- */

static void say(const char *words[], size_t n)
{
    char bytes[512];
    size_t at = (size_t)snprintf(bytes, sizeof bytes, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        at += (size_t)snprintf(bytes + at, sizeof bytes - at, "$%zu\r\n%s\r\n", strlen(words[i]),
                               words[i]);
    }
    model_input(sim.model, sim.operator_link, bytes, at);
}

/* A command of words without spaces, sent with the right to change numbers. */
void operator_says(const char *format, ...)
{
    char text[256];
    const char *words[8];
    size_t n = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (sim.operator_link == 0 || !model_is_open(sim.model, sim.operator_link)) {
        char database[16];
        snprintf(database, sizeof database, "%d", sim.database);
        sim.operator_link = model_connect(sim.model);
        say((const char *[]){"auth", sim.password == NULL ? "" : sim.password}, 2);
        say((const char *[]){"select", database}, 2);
    }
    for (char *word = strtok(text, "\t"); word != NULL && n < 8; word = strtok(NULL, "\t")) {
        words[n++] = word;
    }
    sim.peer_cause = CAUSE_COUNT;
    say(words, n);
    sim.peer_cause = CAUSE_NONE;
}

/* Put back permits that are gone after a crash, a lost reply or a lost key. */
void operator_tends(void)
{
    for (int i = 0; i < sim.name_count; i++) {
        struct sim_name *name = &sim.names[i];
        int64_t has_now = name->total;
        if (name->family == FAMILY_SEMAPHORE) {
            has_now = truth_number_or_none(name) + truth_outstanding(i);
        } else if (name->family != FAMILY_PERMITS) {
            continue;
        }
        if (has_now >= SIM_PERMITS) {
            name->topped_at = sim.now;
        } else if (sim.now > name->topped_at + 200 * SNIB__MS) {
            sim_trace("%s: %lld of %d are there", name->text, (long long)has_now, SIM_PERMITS);
            operator_says("incrby\t%s\t%lld", name->text, (long long)(SIM_PERMITS - has_now));
            operator_says("publish\t%s\t%lld", name->channel, (long long)(SIM_PERMITS - has_now));
            name->topped_at = sim.now;
            net_collect();
        }
    }
}

void operator_opens_latches(void)
{
    for (int i = 0; i < sim.name_count; i++) {
        if (sim.names[i].family == FAMILY_LATCH && truth_number(&sim.names[i]) > 0) {
            operator_says("del\t%s", sim.names[i].text);
            operator_says("publish\t%s\t0", sim.names[i].channel);
            net_collect();
        }
    }
}
