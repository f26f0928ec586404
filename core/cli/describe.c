/* describe.c - parses what snib_client_describe() returns into numbers and rows. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* The text after the one at `at`, or the first if at is NULL; NULL at the end. */
static const char *next_text(const struct description *description, const char *at)
{
    at = at ? at + strlen(at) + 1 : description->text;
    return at < description->text + description->used ? at : NULL;
}

/* What follows "word " in text, or NULL. */
static const char *after(const char *text, const char *word)
{
    size_t n = strlen(word);
    return strncmp(text, word, n) == 0 && text[n] == ' ' ? text + n + 1 : NULL;
}

static void take_number(const char *text, struct description *out)
{
    const struct {
        const char *word;
        int64_t *number;
    } numbers[] = {
        {"token", &out->token}, {"available", &out->available}, {"total", &out->total},
        {"count", &out->count}, {"waiting", &out->waiting},     {"more", &out->more},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const char *rest = after(text, numbers[i].word);
        if (rest)
            *numbers[i].number = strtoll(rest, NULL, 10);
    }
}

/* Read the kind and the numbers. */
static void read_texts(struct description *out)
{
    out->kind = "free";
    out->token = out->available = out->total = out->count = out->waiting = out->more = CLI_UNTOLD;
    for (const char *at = NULL; (at = next_text(out, at));) {
        const char *kind = after(at, "kind");
        if (kind)
            out->kind = kind;
        take_number(at, out);
    }
}

int cli_describe(snib_client *client, const char *name, struct description *out, snib_error *err)
{
    uint32_t count = 0;
    int result = snib_client_describe(client, name, strlen(name), out->text, sizeof out->text,
                                      &out->used, &count, err);
    if (result == SNIB_OK)
        read_texts(out);
    return result;
}

void cli_read_description(const snib_texts *texts, struct description *out)
{
    out->used = texts->used < sizeof out->text ? texts->used : 0;
    memcpy(out->text, texts->text, out->used);
    read_texts(out);
}

const char *cli_listed_kind(const char *name, int result, const struct description *description)
{
    /* A name that is not plain text has question marks by now, and cannot be queried. */
    if (result == SNIB_ENAME)
        return "other";
    if (strcmp(description->kind, "free") != 0)
        return description->kind;
    return strchr(name, '?') ? "other" : NULL;
}

/* Remove the last word and return it as a number. */
static int64_t cut_number(char *text)
{
    char *blank = strrchr(text, ' ');
    if (!blank)
        return 0;
    *blank = '\0';
    return strtoll(blank + 1, NULL, 10);
}

bool cli_next_row(const struct description *description, const char **at, struct row *out)
{
    static const char *const words[] = {"holder", "reader", "permit", "waiter"};
    while ((*at = next_text(description, *at))) {
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            const char *rest = after(*at, words[i]);
            if (!rest || strlen(rest) >= sizeof out->owner)
                continue;
            strcpy(out->word, words[i]);
            strcpy(out->owner, rest);
            out->count = i < 2 ? cut_number(out->owner) : 1;
            out->left_ms = cut_number(out->owner);
            return true;
        }
    }
    return false;
}
