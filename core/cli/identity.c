/* identity.c - the processes behind owners, each client asked about once. */
#include "cli.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The value of "word value" in these texts; NULL: there is none. */
static const char *value_of(const char *texts, size_t used, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = texts; at < texts + used; at += strlen(at) + 1)
        if (strncmp(at, word, n) == 0 && at[n] == ' ')
            return at + n + 1;
    return NULL;
}

static void copy_value(char *out, size_t cap, const char *value)
{
    cli_copy(out, cap, value ? value : "");
}

#define TIME_MAX 253402300799 /* the end of the year 9999 */

/* A number up to this, or 0: anybody may have written the text. */
static int64_t number_of(const char *value, int64_t max)
{
    int64_t number = value ? cli_read_number(value, 0, max) : 0;
    return number > 0 ? number : 0;
}

/* The lines "held <number> <seconds>". */
static void read_holds(const char *texts, size_t used, struct identity *out)
{
    out->holds_n = 0;
    memset(out->holds, 0, sizeof out->holds);
    for (const char *at = texts; at < texts + used; at += strlen(at) + 1) {
        char *end;
        if (strncmp(at, "held ", 5) != 0 || out->holds_n == CLI_HOLDS_MAX)
            continue;
        uint64_t number = strtoull(at + 5, &end, 10);
        int64_t since = *end == ' ' ? number_of(end + 1, TIME_MAX) : 0;
        if (number == 0 || since == 0)
            continue;
        out->holds[out->holds_n].number = number;
        out->holds[out->holds_n++].since = since;
    }
}

/* The lines "at <number> <place>" and "by <number> <who>" of these holds. */
static void read_takers(const char *texts, size_t used, struct identity *out)
{
    for (const char *at = texts; at < texts + used; at += strlen(at) + 1) {
        char *end;
        bool is_place = strncmp(at, "at ", 3) == 0;
        if (!is_place && strncmp(at, "by ", 3) != 0)
            continue;
        uint64_t number = strtoull(at + 3, &end, 10);
        struct held *held = out->holds, *last = held + out->holds_n;
        while (held < last && held->number != number)
            held++;
        if (held == last || *end != ' ')
            continue;
        copy_value(is_place ? held->at : held->by, is_place ? sizeof held->at : sizeof held->by,
                   end + 1);
    }
}

void cli_read_identity(const char *texts, size_t used, struct identity *out)
{
    copy_value(out->host, sizeof out->host, value_of(texts, used, "host"));
    copy_value(out->program, sizeof out->program, value_of(texts, used, "program"));
    copy_value(out->label, sizeof out->label, value_of(texts, used, "label"));
    out->pid = number_of(value_of(texts, used, "pid"), INT64_MAX);
    out->since = number_of(value_of(texts, used, "since"), TIME_MAX);
    out->losses = number_of(value_of(texts, used, "losses"), INT64_MAX);
    read_holds(texts, used, out);
    read_takers(texts, used, out);
    out->is_known =
        out->host[0] || out->program[0] || out->label[0] || out->pid || out->since || out->losses;
}

/* Ask about one more client; what cannot be asked is not known, and is not asked again. */
static void ask(snib_client *client, struct identities *identities, struct identity *out)
{
    static char texts[1 << 16];
    size_t used = 0;
    uint32_t count = 0;
    if (!identities->is_refused &&
        snib_client_identity(client, out->client, strlen(out->client), texts, sizeof texts, &used,
                             &count, NULL) != SNIB_OK)
        identities->is_refused = true;
    cli_read_identity(texts, used, out);
}

const struct identity *cli_identify(snib_client *client, struct identities *identities,
                                    const char *owner)
{
    size_t n = strcspn(owner, ":");
    if (n >= sizeof identities->items[0].client)
        return NULL;
    for (size_t i = 0; i < identities->n; i++)
        if (strncmp(identities->items[i].client, owner, n) == 0 && !identities->items[i].client[n])
            return identities->items[i].is_known ? &identities->items[i] : NULL;
    if (identities->n == CLI_IDENTITIES_MAX)
        return NULL;
    struct identity *one = &identities->items[identities->n++];
    *one = (struct identity){.is_known = false};
    memcpy(one->client, owner, n);
    ask(client, identities, one);
    return one->is_known ? one : NULL;
}

static const struct held *held_of(const struct identity *identity, const char *owner)
{
    const char *colon = owner ? strchr(owner, ':') : NULL;
    uint64_t number = colon ? strtoull(colon + 1, NULL, 10) : 0;
    for (size_t i = 0; identity && number && i < identity->holds_n; i++)
        if (identity->holds[i].number == number)
            return &identity->holds[i];
    return NULL;
}

int64_t cli_held_since(const struct identity *identity, const char *owner)
{
    const struct held *held = held_of(identity, owner);
    return held ? held->since : 0;
}

void cli_write_taken(const struct identity *identity, const char *owner, char *out)
{
    const struct held *held = held_of(identity, owner);
    out[0] = '\0';
    if (held && (held->at[0] || held->by[0]))
        snprintf(out, CLI_TAKEN_MAX, "acquired%s%s%s%s", held->at[0] ? " at " : "", held->at,
                 held->by[0] ? " by " : "", held->by);
}

void cli_add_held(cJSON *item, const struct identity *identity, const char *owner)
{
    const struct held *held = held_of(identity, owner);
    if (!held)
        return;
    cli_add_number(item, "held_since", held->since);
    if (held->at[0])
        cJSON_AddStringToObject(item, "held_at", held->at);
    if (held->by[0])
        cJSON_AddStringToObject(item, "held_by", held->by);
}

void cli_write_time(int64_t seconds, char *out)
{
    struct tm parts;
    time_t time = (time_t)seconds;
    out[0] = '\0';
    if (seconds && gmtime_r(&time, &parts))
        strftime(out, CLI_TIME_MAX, "%Y-%m-%d %H:%M:%S UTC", &parts);
}

/* Append "word value" to a list. */
static void add(char *out, size_t cap, const char *word, const char *value)
{
    size_t n = strlen(out);
    if (value[0])
        snprintf(out + n, cap - n, "%s%s %s", n > 0 ? ", " : "", word, value);
}

void cli_write_identity(const struct identity *identity, char *out, size_t cap)
{
    char pid[24] = "", losses[24] = "", since[CLI_TIME_MAX];
    if (identity->pid)
        snprintf(pid, sizeof pid, "%" PRId64, identity->pid);
    if (identity->losses)
        snprintf(losses, sizeof losses, "%" PRId64, identity->losses);
    cli_write_time(identity->since, since);
    out[0] = '\0';
    add(out, cap, "host", identity->host);
    add(out, cap, "pid", pid);
    add(out, cap, "program", identity->program);
    add(out, cap, "label", identity->label);
    add(out, cap, "up since", since);
    add(out, cap, "losses", losses);
}

void cli_add_identity(cJSON *item, const char *name, const struct identity *identity)
{
    char number[24];
    cJSON *object = cJSON_AddObjectToObject(item, name);
    if (identity->host[0])
        cJSON_AddStringToObject(object, "host", identity->host);
    snprintf(number, sizeof number, "%" PRId64, identity->pid);
    if (identity->pid)
        cJSON_AddRawToObject(object, "pid", number);
    if (identity->program[0])
        cJSON_AddStringToObject(object, "program", identity->program);
    if (identity->label[0])
        cJSON_AddStringToObject(object, "label", identity->label);
    snprintf(number, sizeof number, "%" PRId64, identity->since);
    if (identity->since)
        cJSON_AddRawToObject(object, "since", number);
    snprintf(number, sizeof number, "%" PRId64, identity->losses);
    if (identity->losses)
        cJSON_AddRawToObject(object, "losses", number);
}
