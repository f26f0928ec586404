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

void cli_read_identity(const char *texts, size_t used, struct identity *out)
{
    copy_value(out->host, sizeof out->host, value_of(texts, used, "host"));
    copy_value(out->program, sizeof out->program, value_of(texts, used, "program"));
    copy_value(out->label, sizeof out->label, value_of(texts, used, "label"));
    out->pid = number_of(value_of(texts, used, "pid"), INT64_MAX);
    out->since = number_of(value_of(texts, used, "since"), TIME_MAX);
    out->is_known = out->host[0] || out->program[0] || out->label[0] || out->pid || out->since;
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

/* Append "word value" to a list. */
static void add(char *out, size_t cap, const char *word, const char *value)
{
    size_t n = strlen(out);
    if (value[0])
        snprintf(out + n, cap - n, "%s%s %s", n > 0 ? ", " : "", word, value);
}

void cli_write_identity(const struct identity *identity, char *out, size_t cap)
{
    char pid[24] = "", since[64] = "";
    struct tm parts;
    time_t seconds = (time_t)identity->since;
    if (identity->pid)
        snprintf(pid, sizeof pid, "%" PRId64, identity->pid);
    if (identity->since && gmtime_r(&seconds, &parts))
        strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", &parts);
    out[0] = '\0';
    add(out, cap, "host", identity->host);
    add(out, cap, "pid", pid);
    add(out, cap, "program", identity->program);
    add(out, cap, "label", identity->label);
    add(out, cap, "since", since);
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
}
