/* load.c - loads the scripts into the servers that serve locks, for users who may only run them.
 *
 * One script in each step, then those of the next server, as a list goes on.  The cursor counts the
 * scripts in their order: those for classic channels, and in a cluster those for the other ways of
 * publishing, too, because its clients may be told to use any of them.
 */
#include "engine/ask.h"
#include "engine/internal.h"
#include "net/script.h"

#include <stdio.h>
#include <string.h>

#define LOAD_ALWAYS "board" /* with the option debug, of whatever kind the locks are */

static int load_publish(uint64_t at)
{
    return (int)(at / SNIB__SCRIPT_COUNT);
}

static const struct snib__script_text *load_text(uint64_t at)
{
    return snib__script_of((int)(at % SNIB__SCRIPT_COUNT), load_publish(at));
}

/* Whether the script's name is one of these words, or begins with one and _. */
static bool load_is_of(const char *words, const char *name)
{
    for (const char *at = words; *at; at += *at == ' ') {
        size_t n = strcspn(at, " ");
        if (strncmp(at, name, n) == 0 && (name[n] == '_' || name[n] == 0))
            return true;
        at += n;
    }
    return false;
}

static bool load_is_wanted(int32_t kind, uint64_t at)
{
    const struct snib__script_text *text = load_text(at);
    /* Most scripts publish nothing: one variant for all. */
    if (load_publish(at) != SNIB__CLASSIC &&
        text == snib__script_of((int)(at % SNIB__SCRIPT_COUNT), SNIB__CLASSIC))
        return false;
    return kind == 0 || load_is_of(LOAD_ALWAYS, text->name) ||
           load_is_of(snib__kind_of(kind)->scripts, text->name);
}

/* The first script from this one on; 0: there are no more, or it is the first of all. */
static uint64_t load_from(const struct snib__engine *e, int32_t kind, uint64_t at)
{
    uint64_t end = SNIB__SCRIPT_COUNT * (e->slots ? (uint64_t)SNIB__BOTH + 1 : 1);
    while (at < end && !load_is_wanted(kind, at))
        at++;
    return at < end ? at : 0;
}

static uint64_t load_place(const struct snib__engine *e, const struct snib__asked *asked)
{
    uint64_t at = e->slots ? snib__cluster_cursor_in(asked->cursor) : asked->cursor;
    at = load_from(e, asked->what, at);
    return at ? at : load_from(e, asked->what, 0);
}

struct snib__op *snib__engine_load(struct snib__engine *e, int32_t kind, uint64_t cursor,
                                   size_t cap, snib__time now, int32_t *out_code)
{
    struct snib__op *op = snib__ask_carry(e, SNIB__OP_LOAD, NULL, NULL, 0, now, out_code);
    if (!op || op->done)
        return op;
    op->asked->what = kind;
    op->asked->cursor = cursor;
    op->asked->cap = cap;
    return snib__ask_start(e, op, now);
}

int snib__load_encode(const struct snib__engine *e, struct snib__buf *out,
                      const struct snib__asked *asked)
{
    const struct snib__script_text *text = load_text(load_place(e, asked));
    int bad = snib__resp_begin(out, 3);
    bad |= snib__resp_arg(out, "SCRIPT", 6);
    bad |= snib__resp_arg(out, "LOAD", 4);
    bad |= snib__resp_arg(out, text->text, text->length);
    return bad < 0 ? -1 : SNIB__NO_SCRIPT;
}

int32_t snib__load_answer(const struct snib__engine *e, struct snib__op *op,
                          const struct snib__value *reply, const struct snib__resp *resp)
{
    static const char *const ways[] = {"classic", "sharded", "both"};
    struct snib__asked *asked = op->asked;
    uint64_t at = load_place(e, asked);
    const struct snib__script_text *text = load_text(at);
    char lines[512];
    if (reply->type != SNIB__RESP_STRING || reply->count != strlen(text->sha1) ||
        memcmp(snib__resp_text(resp, reply), text->sha1, reply->count) != 0)
        return SNIB_EPROTOCOL;
    asked->cursor = load_from(e, asked->what, at + 1);
    if (e->slots)
        asked->cursor = snib__cluster_cursor_out(e, op->node, asked->cursor);
    int n = snprintf(lines, sizeof lines, "%s\n%s\n%s\n%s", snib__node_where(e, op->node),
                     text->name, ways[load_publish(at)], text->sha1);
    int32_t code = snib__ask_lines(asked, lines, (size_t)n);
    if (code == SNIB_OK)
        asked->texts->cursor = asked->cursor;
    return code;
}
