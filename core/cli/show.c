/* show.c - snib info, list and release: one question each, answered in text or JSON. */
#include "cli.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Print an object as one line and free it. */
static void print_json(cJSON *object)
{
    char *line = cJSON_PrintUnformatted(object);
    if (!line)
        abort();
    puts(line);
    cJSON_free(line);
    cJSON_Delete(object);
}

static void add_number_or_null(cJSON *object, const char *name, int64_t value)
{
    if (value < 0)
        cJSON_AddNullToObject(object, name);
    else
        cJSON_AddNumberToObject(object, name, (double)value);
}

/* ---- info ------------------------------------------------------------------------------------ */

static void print_info(const struct cli *cli, const snib_lock_info_data *info)
{
    char *owner = cli_printable(info->owner);
    if (cli->is_json) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "name", cli->name);
        cJSON_AddBoolToObject(object, "held", info->held);
        cJSON_AddStringToObject(object, "owner", owner);
        add_number_or_null(object, "remaining_ms", info->remaining_ms);
        cJSON_AddNumberToObject(object, "count", (double)info->count);
        add_number_or_null(object, "waiting", info->waiting);
        print_json(object);
        free(owner);
        return;
    }
    if (info->held) {
        printf("%s: held by %s, count %" PRId64 ", ", cli->name, owner, info->count);
        if (info->remaining_ms < 0)
            printf("no lease");
        else
            printf("lease ends in %" PRId64 ".%03" PRId64 " s", info->remaining_ms / 1000,
                   info->remaining_ms % 1000);
    } else {
        printf("%s: free", cli->name);
    }
    free(owner);
    if (info->waiting < 0)
        printf(", waiting processes unknown\n");
    else
        printf(", %" PRId64 " waiting process%s\n", info->waiting, info->waiting == 1 ? "" : "es");
}

int cli_info(const struct cli *cli)
{
    snib_client *client;
    snib_lock *lock;
    snib_lock_info_data info = {.size = sizeof info};
    snib_error err;
    int code = cli_open(cli, &client, &lock);
    if (code != 0)
        return code;
    if (snib_lock_info(lock, &info, &err) == SNIB_OK)
        print_info(cli, &info);
    else
        code = cli_fail(cli, &err);
    snib_lock_free(lock);
    snib_client_free(client);
    return code;
}

/* ---- list ------------------------------------------------------------------------------------ */

struct names {
    char **items;
    size_t used;
    size_t cap;
};

static void names_add(struct names *names, const char *name)
{
    if (names->used == names->cap) {
        names->cap = names->cap ? 2 * names->cap : 64;
        names->items = realloc(names->items, names->cap * sizeof *names->items);
        if (!names->items)
            abort();
    }
    names->items[names->used++] = cli_printable(name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Print in order, each name once; a scan may give one twice. */
static void print_names(const struct cli *cli, struct names *names)
{
    cJSON *array = cli->is_json ? cJSON_CreateArray() : NULL;
    if (names->used > 0)
        qsort(names->items, names->used, sizeof *names->items, compare_names);
    for (size_t i = 0; i < names->used; i++) {
        if (i > 0 && strcmp(names->items[i - 1], names->items[i]) == 0)
            continue;
        if (array)
            cJSON_AddItemToArray(array, cJSON_CreateString(names->items[i]));
        else
            puts(names->items[i]);
    }
    if (array)
        print_json(array);
}

int cli_list(const struct cli *cli)
{
    static char buffer[1 << 16];
    snib_client *client;
    snib_error err;
    struct names names = {0};
    const char *pattern = cli->name ? cli->name : "";
    uint64_t cursor = 0;
    int code = cli_open(cli, &client, NULL);
    if (code != 0)
        return code;
    do {
        size_t used = 0;
        uint32_t count = 0;
        if (snib_client_list(client, pattern, strlen(pattern), &cursor, buffer, sizeof buffer,
                             &used, &count, &err) != SNIB_OK) {
            code = cli_fail(cli, &err);
            break;
        }
        for (const char *at = buffer; at < buffer + used; at += strlen(at) + 1)
            names_add(&names, at);
    } while (cursor != 0);
    if (code == 0)
        print_names(cli, &names);
    for (size_t i = 0; i < names.used; i++)
        free(names.items[i]);
    free(names.items);
    snib_client_free(client);
    return code;
}

/* ---- release --------------------------------------------------------------------------------- */

int cli_release(const struct cli *cli)
{
    snib_client *client;
    snib_lock *lock;
    snib_error err;
    int code = cli_open(cli, &client, &lock);
    if (code != 0)
        return code;
    int result = snib_lock_force_release(lock, &err);
    if (result != SNIB_OK && result != SNIB_NOT_HELD) {
        code = cli_fail(cli, &err);
    } else {
        code = result == SNIB_OK ? 0 : EXIT_NOTHING;
        if (cli->is_json) {
            cJSON *object = cJSON_CreateObject();
            cJSON_AddStringToObject(object, "name", cli->name);
            cJSON_AddBoolToObject(object, "released", result == SNIB_OK);
            print_json(object);
        } else {
            printf("%s: %s\n", cli->name, result == SNIB_OK ? "released" : "nothing was held");
        }
    }
    snib_lock_free(lock);
    snib_client_free(client);
    return code;
}
