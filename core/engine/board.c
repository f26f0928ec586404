/* board.c - a board on which the clients of a database leave notes for each other.
 *
 *     snib_client:{orders}   lines: when the note ends, by the server's clock; its word; its text
 *
 * The caller asks for each exchange: notes to leave, or none, and the whole board comes back.  What the notes say is the
 * caller's, and so is what to think of a board, which anybody may have written.  One string is enough for that, which
 * ends with its last note, and it needs no rights but those for identities; its name has one slot, so that in a cluster
 * all meet at one node.
 *
 * As with identities, nothing depends on it, nothing waits for it, nothing is repeated, and a server that refuses it is
 * asked again a minute later. */
#include "engine/internal.h"
#include "engine/route.h"
#include "net/script.h"

#include <stdlib.h>
#include <string.h>

#define BOARD_KEY "snib_client:{orders}"
#define BOARD_AGAIN (60000 * SNIB__MS) /* after a refusal */

static struct snib__node *board_node(struct snib__engine *e)
{
    return e->route->serves(e, BOARD_KEY, strlen(BOARD_KEY));
}

bool snib__engine_board_ready(struct snib__engine *e, snib__time now)
{
    if (e->closed || now < e->board.next)
        return false;
    struct snib__node *node = board_node(e);
    if (snib__node_ready(node))
        return true;
    if (e->slots && node->addressed)
        snib__node_want(e, node, now);
    return false;
}

void snib__engine_board(struct snib__engine *e, const char *notes, size_t n, snib__time now)
{
    char *copy = malloc(n + 1); /* the request may be encoded once more, with the script */
    if (!copy)
        return;
    memcpy(copy, notes, n);
    free(e->board.notes);
    e->board.notes = copy;
    e->board.notes_n = n;
    snib__node_send(e, SNIB__REQ_BOARD, board_node(e), 0, now);
}

int snib__board_encode(const struct snib__engine *e, struct snib__buf *out)
{
    int bad = snib__script_begin(out, SNIB__SCRIPT_BOARD, 1, 4);
    bad |= snib__resp_arg(out, BOARD_KEY, strlen(BOARD_KEY));
    bad |= snib__resp_arg_int(out, SNIB__BOARD_LEASE);
    bad |= snib__resp_arg_int(out, SNIB__BOARD_BYTES);
    bad |= snib__resp_arg(out, e->board.notes, e->board.notes_n);
    return bad < 0 ? -1 : SNIB__SCRIPT_BOARD;
}

/* For the caller to read; of two that were not read, the later. */
static void board_keep(struct snib__engine *e, const char *text, size_t n)
{
    char *copy = malloc(n + 1);
    if (!copy)
        return;
    memcpy(copy, text, n);
    free(e->board.seen);
    e->board.seen = copy;
    e->board.seen_n = n;
}

void snib__board_answer(struct snib__engine *e, struct snib__node *node,
                        const struct snib__value *reply, int32_t error, const char *text,
                        snib__time now)
{
    if (e->slots && error && snib__route_moved(text)) { /* the next one goes there */
        snib__route_wanted(e, node, now);
        return;
    }
    if (!error && reply->type == SNIB__RESP_STRING && reply->count <= SNIB__BOARD_SEEN) {
        board_keep(e, snib__resp_text(e->resp, reply), reply->count);
        return;
    }
    error = error ? error : SNIB_EPROTOCOL;
    e->board.next = now + BOARD_AGAIN;
    if (!e->board.told)
        snib__engine_log(
            e, SNIB_LOG_INFO,
            "the server does not accept the orders of locks: they are compared within this "
            "process only (%s)%s",
            snib_code_text(error),
            error == SNIB_EPERM ? "; allow this user ~snib_client:* +evalsha +set +getrange +time"
                                : "");
    e->board.told = true;
}

char *snib__engine_board_read(struct snib__engine *e, size_t *out_n)
{
    char *seen = e->board.seen;
    *out_n = e->board.seen_n;
    e->board.seen = NULL;
    return seen;
}

void snib__board_end(struct snib__engine *e)
{
    free(e->board.notes);
    free(e->board.seen);
}
