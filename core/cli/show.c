/* show.c - snib info, list and release: one query each, with output as text or JSON. */
#include "cli.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- info ------------------------------------------------------------------------------------ */

static bool is_held(const struct description *description)
{
    const char *at = NULL;
    struct row row;
    while (cli_next_row(description, &at, &row))
        if (strcmp(row.word, "waiter") != 0)
            return true;
    return false;
}

/* The name that was given; it may have characters that turn what follows. */
static void print_given(const struct cli *cli)
{
    char *printable = cli_printable(cli->name);
    printf("%s: ", printable);
    free(printable);
}

/* What info shows. */
struct shown {
    snib_client *client;
    struct description description;
    struct identities identities;
};

/* The process behind a row's owner; NULL: not known. */
static const struct identity *behind(struct shown *shown, const struct row *row)
{
    return strcmp(row->word, "permit") == 0
               ? NULL
               : cli_identify(shown->client, &shown->identities, row->owner);
}

/* The rows of this word, as an array. */
static void add_rows(cJSON *object, const char *name, struct shown *shown, const char *word)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    const char *at = NULL;
    struct row row;
    while (cli_next_row(&shown->description, &at, &row)) {
        if (strcmp(row.word, word) != 0)
            continue;
        const struct identity *identity = behind(shown, &row);
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, strcmp(word, "permit") == 0 ? "id" : "owner", row.owner);
        cli_add_number_or_null(item, "remaining_ms", row.left_ms);
        bool is_holder = strcmp(word, "holder") == 0 || strcmp(word, "reader") == 0;
        if (is_holder)
            cli_add_number(item, "count", row.count);
        if (identity)
            cli_add_identity(item, "identity", identity);
        if (is_holder)
            cli_add_held(item, identity, row.owner);
        cJSON_AddItemToArray(array, item);
    }
}

static void print_info_json(const struct cli *cli, struct shown *shown)
{
    const struct description *description = &shown->description;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", cli->name);
    cJSON_AddStringToObject(object, "kind", description->kind);
    cJSON_AddBoolToObject(object, "held", is_held(description));
    add_rows(object, "holders", shown, "holder");
    add_rows(object, "readers", shown, "reader");
    add_rows(object, "permits", shown, "permit");
    add_rows(object, "waiters", shown, "waiter");
    cli_add_number(object, "token", description->token);
    cli_add_number(object, "available", description->available);
    cli_add_number(object, "total", description->total);
    cli_add_number(object, "count", description->count);
    cli_add_number_or_null(object, "waiting", description->waiting);
    cli_add_number(object, "more", description->more);
    cli_print_json(object);
}

/* What others may have written. */
static void print_part(const char *text)
{
    char *printable = cli_printable(text);
    fputs(printable, stdout);
    free(printable);
}

static void print_rest(const char *text)
{
    print_part(text);
    puts("");
}

static void print_row(const struct row *row, const struct identity *identity)
{
    bool is_waiter = strcmp(row->word, "waiter") == 0;
    char since[CLI_TIME_MAX];
    cli_write_time(cli_held_since(identity, row->owner), since);
    printf("  %s ", row->word);
    print_part(row->owner);
    if (row->count != 1)
        printf(", count %" PRId64, row->count);
    if (!is_waiter && since[0])
        printf(", held since %s", since);
    if (row->left_ms < 0)
        puts(is_waiter ? ", place without expiry" : ", no lease");
    else
        printf(", %s ends in %" PRId64 ".%03" PRId64 " s\n", is_waiter ? "place" : "lease",
               row->left_ms / 1000, row->left_ms % 1000);
    char process[CLI_IDENTITY_MAX];
    if (!identity)
        return;
    cli_write_identity(identity, process, sizeof process);
    printf("    ");
    print_rest(process);
    cli_write_taken(identity, row->owner, process);
    if (is_waiter || !process[0])
        return;
    printf("    ");
    print_rest(process);
}

/* The name and its numbers on one line, then a line for each holder and each queued waiter, and one for its process. */
static void print_info(const struct cli *cli, struct shown *shown)
{
    const struct description *description = &shown->description;
    const char *at = NULL;
    struct row row;
    print_given(cli);
    print_part(description->kind);
    if (description->available != CLI_UNTOLD)
        printf(", %" PRId64, description->available);
    if (description->available != CLI_UNTOLD && description->total != CLI_UNTOLD)
        printf(" of %" PRId64, description->total);
    if (description->available != CLI_UNTOLD)
        printf(" free");
    if (description->count != CLI_UNTOLD)
        printf(", %" PRId64, description->count);
    if (description->token != CLI_UNTOLD)
        printf(", last token %" PRId64, description->token);
    if (description->waiting == CLI_UNTOLD || description->waiting < 0)
        puts(", waiting processes unknown");
    else
        printf(", %" PRId64 " waiting process%s\n", description->waiting,
               description->waiting == 1 ? "" : "es");
    while (cli_next_row(description, &at, &row))
        print_row(&row, behind(shown, &row));
    if (description->more != CLI_UNTOLD)
        printf("  and %" PRId64 " more\n", description->more);
}

int cli_info(const struct cli *cli)
{
    static struct shown shown;
    snib_error err;
    int code = cli_open(cli, &shown.client);
    if (code != 0)
        return code;
    if (cli_describe(shown.client, cli->name, &shown.description, &err) != SNIB_OK)
        code = cli_fail(cli, &err);
    else if (cli->is_json)
        print_info_json(cli, &shown);
    else
        print_info(cli, &shown);
    cli_close(cli, shown.client);
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
    names->items[names->used] = strdup(name);
    if (!names->items[names->used++])
        abort();
}

static void names_free(struct names *names)
{
    for (size_t i = 0; i < names->used; i++)
        free(names->items[i]);
    free(names->items);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Find all names, in order; a scan may give one twice. */
static int find_names(const struct cli *cli, snib_client *client, struct names *names)
{
    static char buffer[1 << 16];
    const char *pattern = cli->name ? cli->name : "";
    uint64_t cursor = 0;
    snib_error err;
    do {
        size_t used = 0;
        uint32_t count = 0;
        if (snib_client_list(client, pattern, strlen(pattern), &cursor, buffer, sizeof buffer,
                             &used, &count, &err) != SNIB_OK)
            return cli_fail(cli, &err);
        for (const char *at = buffer; at < buffer + used; at += strlen(at) + 1)
            names_add(names, at);
    } while (cursor != 0);
    if (names->used > 0)
        qsort(names->items, names->used, sizeof *names->items, compare_names);
    return 0;
}

static void print_name(const char *name, const char *kind, cJSON *array)
{
    if (array) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", name);
        cJSON_AddStringToObject(item, "kind", kind);
        cJSON_AddItemToArray(array, item);
    } else {
        printf("%-8s ", kind);
        print_rest(name);
    }
}

/* Print each name once with its kind.  Keys of other programs may not be valid lock names. */
static int print_names(const struct cli *cli, snib_client *client, const struct names *names,
                       cJSON *array)
{
    static struct description description;
    snib_error err;
    for (size_t i = 0; i < names->used; i++) {
        if (i > 0 && strcmp(names->items[i - 1], names->items[i]) == 0)
            continue;
        int result = cli_describe(client, names->items[i], &description, &err);
        if (result != SNIB_OK && result != SNIB_ENAME)
            return cli_fail(cli, &err);
        const char *kind = cli_listed_kind(names->items[i], result, &description);
        if (kind)
            print_name(names->items[i], kind, array);
    }
    return 0;
}

int cli_list(const struct cli *cli)
{
    snib_client *client;
    struct names names = {0};
    int code = cli_open(cli, &client);
    if (code != 0)
        return code;
    cJSON *array = cli->is_json ? cJSON_CreateArray() : NULL;
    code = find_names(cli, client, &names);
    if (code == 0)
        code = print_names(cli, client, &names, array);
    if (array && code == 0)
        cli_print_json(array);
    else
        cJSON_Delete(array);
    names_free(&names);
    cli_close(cli, client);
    return code;
}

/* ---- release --------------------------------------------------------------------------------- */

/* Whether it is certainly an owner of a lock, "<uuid>:<number>", with a UUID of version 8.  Strings of other programs
 * look different. */
static bool is_owner(const char *text)
{
    static const char form[] = "xxxxxxxx-xxxx-8xxx-xxxx-xxxxxxxxxxxx:";
    size_t i = 0;
    for (; form[i]; i++)
        if (form[i] == 'x' ? !strchr("0123456789abcdef", text[i]) || !text[i] : text[i] != form[i])
            return false;
    return text[i] != '\0' && strspn(text + i, "0123456789") == strlen(text + i);
}

/* The kind to release, from what is there.  0 after reporting why there is none. */
static int32_t find_kind(const struct cli *cli, const struct description *description)
{
    static const struct {
        const char *name;
        int32_t kind;
    } kinds[] = {{"fair", SNIB_FAIR},
                 {"read", SNIB_READ},
                 {"write", SNIB_WRITE},
                 {"plain", SNIB_PLAIN},
                 {"permits", SNIB_PERMITS}};
    const char *at = NULL;
    struct row row;
    if (strcmp(description->kind, "counter") == 0) {
        cli_usage(cli,
                  "this number may be anything; add --semaphore, --permits or --latch if it "
                  "is one",
                  NULL);
        return 0;
    }
    if (strcmp(description->kind, "plain") == 0 &&
        !(cli_next_row(description, &at, &row) && is_owner(row.owner))) {
        cli_usage(cli, "this string may be anything; add --plain if it is a lock", NULL);
        return 0;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, description->kind) == 0)
            return kinds[i].kind;
    return SNIB_MUTEX;
}

static void print_released(const struct cli *cli, bool is_released)
{
    if (cli->is_json) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "name", cli->name);
        cJSON_AddBoolToObject(object, "released", is_released);
        cli_print_json(object);
    } else {
        print_given(cli);
        puts(is_released ? "released" : "nothing was held");
    }
}

/* Force the release of a lock of this kind.  Returns the exit code. */
static int release(const struct cli *cli, snib_client *client, int32_t kind)
{
    snib_lock *lock;
    snib_error err;
    int code = cli_open_lock(cli, client, kind, cli->name, &lock);
    if (code != 0)
        return code;
    int result = snib_lock_force_release(lock, &err);
    snib_lock_free(lock);
    if (result != SNIB_OK && result != SNIB_NOT_HELD)
        return cli_fail(cli, &err);
    print_released(cli, result == SNIB_OK);
    return result == SNIB_OK ? 0 : EXIT_NOTHING;
}

int cli_release(const struct cli *cli)
{
    static struct description description;
    snib_client *client;
    snib_error err;
    int32_t kind = cli->kind;
    int code = cli_open(cli, &client);
    if (code != 0)
        return code;
    if (!kind && cli_describe(client, cli->name, &description, &err) != SNIB_OK) {
        code = cli_fail(cli, &err);
    } else {
        kind = kind ? kind : find_kind(cli, &description);
        code = kind ? release(cli, client, kind) : EXIT_USAGE;
    }
    cli_close(cli, client);
    return code;
}
