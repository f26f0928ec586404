/* ask.c - questions that change no hold of ours: info, force release, ping, list. */
#include "engine/ask.h"
#include "engine/internal.h"
#include "net/script.h"

#include <stdlib.h>
#include <string.h>

#define ASK_LIST_KEYS 256 /* keys looked at in one step of a list */

static struct snib__op *ask_start(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    op->place = SNIB__PLACE_ASK;
    if (snib__op_arm(e, op) < 0 || snib__node_send(e, SNIB__REQ_ASK, op, 0, now) < 0)
        snib__op_done(e, op, SNIB_ENOMEM);
    return op;
}

struct snib__op *snib__engine_info(struct snib__engine *e, struct snib__gate *gate, snib__time now,
                                   int32_t *out_code)
{
    struct snib__op *op = snib__op_new(e, SNIB__OP_INFO, gate, now, out_code);
    if (!op)
        return NULL;
    op->answer = calloc(1, sizeof *op->answer);
    if (!op->answer) {
        snib__op_done(e, op, SNIB_ENOMEM);
        return op;
    }
    return ask_start(e, op, now);
}

struct snib__op *snib__engine_force(struct snib__engine *e, struct snib__gate *gate, snib__time now,
                                    int32_t *out_code)
{
    struct snib__op *op = snib__op_new(e, SNIB__OP_FORCE, gate, now, out_code);
    return op ? ask_start(e, op, now) : NULL;
}

struct snib__op *snib__engine_ping(struct snib__engine *e, snib__time wait, snib__time now,
                                   int32_t *out_code)
{
    struct snib__op *op = snib__op_new(e, SNIB__OP_PING, NULL, now, out_code);
    if (!op)
        return NULL;
    op->deadline = wait == SNIB__NEVER ? SNIB__NEVER : now + wait;
    return ask_start(e, op, now);
}

struct snib__op *snib__engine_list(struct snib__engine *e, uint64_t cursor, const char *pattern,
                                   size_t n, char *buffer, size_t cap, snib__time now,
                                   int32_t *out_code)
{
    struct snib__op *op = snib__op_new(e, SNIB__OP_LIST, NULL, now, out_code);
    if (!op)
        return NULL;
    op->asked = malloc(sizeof *op->asked + n + 1);
    if (!op->asked) {
        snib__op_done(e, op, SNIB_ENOMEM);
        return op;
    }
    *op->asked = (struct snib__asked){
        .cursor = cursor, .buffer = buffer, .cap = cap, .pattern_len = n ? n : 1};
    memcpy(op->asked->pattern, n ? pattern : "*", n ? n : 1);
    return ask_start(e, op, now);
}

/* Returns the script's index, -2 for a plain command, -1 when out of memory. */
int snib__ask_encode(struct snib__engine *e, struct snib__buf *out, struct snib__op *op)
{
    (void)e;
    if (op->kind == SNIB__OP_INFO)
        return op->gate->kind->info(out, op->gate);
    if (op->kind == SNIB__OP_FORCE)
        return op->gate->kind->force(out, op->gate);
    if (op->kind == SNIB__OP_PING)
        return snib__resp_begin(out, 1) < 0 || snib__resp_arg(out, "PING", 4) < 0 ? -1 : -2;
    if (snib__script_begin(out, SNIB__SCRIPT_LIST, 0, 3) < 0 ||
        snib__resp_arg_int(out, (int64_t)op->asked->cursor) < 0 ||
        snib__resp_arg(out, op->asked->pattern, op->asked->pattern_len) < 0 ||
        snib__resp_arg_int(out, ASK_LIST_KEYS) < 0)
        return -1;
    return SNIB__SCRIPT_LIST;
}

static int32_t ask_info(struct snib__engine *e, struct snib__op *op,
                        const struct snib__value *reply, uint32_t n, const struct snib__resp *resp)
{
    if (n != 5 || reply[1].type != SNIB__RESP_INTEGER || reply[2].type != SNIB__RESP_STRING ||
        reply[3].type != SNIB__RESP_INTEGER || reply[4].type != SNIB__RESP_INTEGER)
        return SNIB_EPROTOCOL;
    snib_event *answer = op->answer;
    const char *owner = snib__resp_text(resp, &reply[2]);
    size_t length =
        reply[2].count < sizeof answer->text - 1 ? reply[2].count : sizeof answer->text - 1;
    answer->held = reply[1].integer != -2;
    answer->remaining_ms = answer->held ? reply[1].integer : 0;
    answer->count = reply[3].integer;
    answer->waiting = reply[4].integer;
    /* Our own subscription does not wait while nobody of us does. */
    if (answer->waiting > 0 && op->gate->wait && op->gate->wait->channel == SNIB__CHAN_ON &&
        !op->gate->wait->head)
        answer->waiting--;
    memcpy(answer->text, owner, length);
    answer->text[length] = 0;
    answer->mine = length > 36 && memcmp(owner, e->config.uuid, 36) == 0;
    return SNIB_OK;
}

static int32_t ask_list(struct snib__op *op, const struct snib__value *reply, uint32_t n,
                        const struct snib__resp *resp)
{
    struct snib__asked *asked = op->asked;
    if (n < 2 || reply[1].type != SNIB__RESP_STRING)
        return SNIB_EPROTOCOL;
    asked->cursor = strtoull(snib__resp_text(resp, &reply[1]), NULL, 10);
    for (uint32_t i = 2; i < n; i++) {
        const char *name = snib__resp_text(resp, &reply[i]);
        if (reply[i].type != SNIB__RESP_STRING || memchr(name, 0, reply[i].count))
            continue;
        if (asked->used + reply[i].count + 1 > asked->cap)
            return SNIB_ELIMIT;
        memcpy(asked->buffer + asked->used, name, reply[i].count + 1);
        asked->used += reply[i].count + 1;
        asked->count++;
    }
    return SNIB_OK;
}

void snib__ask_answer(struct snib__engine *e, struct snib__op *op, const struct snib__value *reply,
                      uint32_t n, const struct snib__resp *resp)
{
    int32_t code = SNIB_OK;
    if (op->kind == SNIB__OP_INFO)
        code = ask_info(e, op, reply, n, resp);
    else if (op->kind == SNIB__OP_LIST)
        code = ask_list(op, reply, n, resp);
    else if (op->kind == SNIB__OP_FORCE)
        code = reply->type == SNIB__RESP_INTEGER && reply->integer == 1 ? SNIB_OK : SNIB_NOT_HELD;
    snib__op_done(e, op, code);
}
