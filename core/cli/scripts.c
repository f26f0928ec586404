/* scripts.c - snib scripts: load the scripts into the servers, for users who may run them but not load them. */
#include "cli.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int32_t kind;
} kinds[] = {
    {"mutex", SNIB_MUTEX}, {"fair", SNIB_FAIR},   {"fenced", SNIB_FENCED},
    {"read", SNIB_READ},   {"write", SNIB_WRITE}, {"permits", SNIB_PERMITS},
    {"spin", SNIB_SPIN},   {"plain", SNIB_PLAIN}, {"semaphore", SNIB_SEMAPHORE},
    {"latch", SNIB_LATCH},
};

#define KINDS_N (sizeof kinds / sizeof kinds[0])

/* What was loaded: an array of servers, each with its address and an array of scripts. */
struct scripts {
    const struct cli *cli;
    cJSON *servers;
};

int scripts_take_kind(const char *value, struct cli *cli)
{
    char text[160] = "--kind needs ";
    for (size_t i = 0; i < KINDS_N; i++) {
        if (strcmp(kinds[i].name, value) == 0) {
            cli->kinds |= UINT32_C(1) << kinds[i].kind;
            return 0;
        }
        strcat(text, kinds[i].name);
        strcat(text, i + 2 < KINDS_N ? ", " : i + 2 == KINDS_N ? " or " : ", not ");
    }
    return cli_usage(cli, text, value);
}

/* ---- what was loaded ------------------------------------------------------------------------- */

static const char *text_of(const cJSON *item, const char *field)
{
    return cJSON_GetObjectItemCaseSensitive(item, field)->valuestring;
}

/* The scripts of the server at this address. */
static cJSON *scripts_at(const struct scripts *s, const char *address)
{
    cJSON *server, *scripts;
    for (int i = 0; i < cJSON_GetArraySize(s->servers); i++) {
        server = cJSON_GetArrayItem(s->servers, i);
        if (strcmp(text_of(server, "server"), address) == 0)
            return cJSON_GetObjectItemCaseSensitive(server, "scripts");
    }
    server = cJSON_CreateObject();
    scripts = cJSON_CreateArray();
    cJSON_AddStringToObject(server, "server", address);
    cJSON_AddItemToObject(server, "scripts", scripts);
    cJSON_AddItemToArray(s->servers, server);
    return scripts;
}

/* Note a script, from what snib_client_load() gives; once, though several kinds need it. */
static void note(const struct scripts *s, const char *address)
{
    const char *name = address + strlen(address) + 1;
    const char *publish = name + strlen(name) + 1;
    const char *hash = publish + strlen(publish) + 1;
    cJSON *scripts = scripts_at(s, address), *script;
    for (int i = 0; i < cJSON_GetArraySize(scripts); i++)
        if (strcmp(text_of(cJSON_GetArrayItem(scripts, i), "hash"), hash) == 0)
            return;
    script = cJSON_CreateObject();
    cJSON_AddStringToObject(script, "name", name);
    cJSON_AddStringToObject(script, "publish", publish);
    cJSON_AddStringToObject(script, "hash", hash);
    cJSON_AddItemToArray(scripts, script);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* The scripts of one kind; 0: all. */
static int load_kind(const struct scripts *s, snib_client *client, int32_t kind)
{
    static char texts[1 << 16];
    uint64_t cursor = 0;
    uint32_t count;
    size_t used;
    snib_error err;
    do {
        if (snib_client_load(client, kind, &cursor, texts, sizeof texts, &used, &count, &err) !=
            SNIB_OK)
            return cli_fail(s->cli, &err);
        note(s, texts);
    } while (cursor != 0);
    return 0;
}

/* The scripts that were asked for, into the servers of a client. */
static int load(const struct scripts *s, snib_client *client)
{
    if (s->cli->kinds == 0)
        return load_kind(s, client, 0);
    int code = 0;
    for (size_t i = 0; i < KINDS_N && code == 0; i++)
        if (s->cli->kinds >> kinds[i].kind & 1)
            code = load_kind(s, client, kinds[i].kind);
    return code;
}

/* A failover while they were loaded leaves a server with a part of them. */
static int check_same(const struct scripts *s, int first)
{
    const cJSON *servers = s->servers;
    const cJSON *one = cJSON_GetArrayItem(servers, first);
    int n = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(one, "scripts"));
    for (int i = first + 1; i < cJSON_GetArraySize(servers); i++) {
        const cJSON *other = cJSON_GetArrayItem(servers, i);
        if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(other, "scripts")) == n)
            continue;
        snib_error err = {.code = SNIB_ETOPOLOGY};
        snprintf(err.text, sizeof err.text,
                 "another server took over while the scripts were loaded, %.60s or %.60s: run "
                 "this again",
                 text_of(one, "server"), text_of(other, "server"));
        return cli_fail(s->cli, &err);
    }
    return 0;
}

static int load_at(const struct scripts *s, const char *url)
{
    struct cli cli = *s->cli;
    snib_client *client;
    int first = cJSON_GetArraySize(s->servers);
    cli.url = url;
    int code = cli_open(&cli, &client);
    if (code != 0)
        return code;
    code = load(s, client);
    cli_close(&cli, client);
    return code == 0 ? check_same(s, first) : code;
}

/* ---- the command ----------------------------------------------------------------------------- */

static void print_text(const struct scripts *s)
{
    for (int i = 0; i < cJSON_GetArraySize(s->servers); i++) {
        const cJSON *server = cJSON_GetArrayItem(s->servers, i);
        const cJSON *scripts = cJSON_GetObjectItemCaseSensitive(server, "scripts");
        printf("%s: %d scripts, for", text_of(server, "server"), cJSON_GetArraySize(scripts));
        const char *before = " ";
        for (size_t k = 0; k < KINDS_N; k++) {
            if (!(s->cli->kinds >> kinds[k].kind & 1))
                continue;
            printf("%s%s", before, kinds[k].name);
            before = ", ";
        }
        puts(s->cli->kinds == 0 ? " all kinds" : "");
    }
}

int cli_scripts(const struct cli *cli)
{
    const struct scripts scripts = {.cli = cli, .servers = cJSON_CreateArray()};
    int code = cli->urls_n ? 0 : load_at(&scripts, cli->url);
    for (int i = 0; i < cli->urls_n && code == 0; i++)
        code = load_at(&scripts, cli->urls[i]);
    if (code == 0 && cli->is_json) {
        cli_print_json(scripts.servers);
        return 0;
    }
    if (code == 0)
        print_text(&scripts);
    cJSON_Delete(scripts.servers);
    return code;
}
