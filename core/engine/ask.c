/* ask.c - queries that change no hold of this client: info, force release, ping, list, counts. */
#include "engine/ask.h"
#include "engine/internal.h"
#include "net/script.h"
#include "net/text.h"

#include <stdlib.h>
#include <string.h>

#define ASK_LIST_KEYS 256 /* the most keys examined in one step of a list */
#define ASK_LIST_BYTES                                                                             \
    640 /* buffer bytes per key: the longest name, and a step may find a few more */

struct snib__op *snib__ask_start(struct snib__engine *e, struct snib__op *op, snib__time now)
{
    op->stage = SNIB__STAGE_ASKING;
    if (!op->gate)
        op->node = snib__route_asks(e, op);
    snib__op_arm(e, op);
    if (snib__node_send(e, SNIB__REQ_ASK, op, 0, now) < 0)
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
    return snib__ask_start(e, op, now);
}

struct snib__op *snib__engine_force(struct snib__engine *e, struct snib__gate *gate, snib__time now,
                                    int32_t *out_code)
{
    struct snib__op *op = snib__op_new(e, SNIB__OP_FORCE, gate, now, out_code);
    return op ? snib__ask_start(e, op, now) : NULL;
}

struct snib__op *snib__engine_ping(struct snib__engine *e, snib__time wait, snib__time now,
                                   int32_t *out_code)
{
    struct snib__op *op = snib__op_new(e, SNIB__OP_PING, NULL, now, out_code);
    if (!op)
        return NULL;
    op->once = wait == 0;
    if (wait != SNIB__NEVER)
        op->deadline = now + (op->once ? e->config.try_timeout : wait);
    return snib__ask_start(e, op, now);
}

struct snib__op *snib__ask_carry(struct snib__engine *e, int kind, struct snib__gate *gate,
                                 const char *text, size_t n, snib__time now, int32_t *out_code)
{
    struct snib__op *op = snib__op_new(e, kind, gate, now, out_code);
    if (!op)
        return NULL;
    op->asked = calloc(1, sizeof *op->asked + n);
    if (!op->asked) {
        snib__op_done(e, op, SNIB_ENOMEM);
        return op;
    }
    op->asked->text_len = n;
    if (n)
        memcpy(op->asked->text, text, n);
    return op;
}

struct snib__op *snib__engine_list(struct snib__engine *e, uint64_t cursor, const char *pattern,
                                   size_t n, size_t cap, snib__time now, int32_t *out_code)
{
    struct snib__op *op =
        snib__ask_carry(e, SNIB__OP_LIST, NULL, n ? pattern : "*", n ? n : 1, now, out_code);
    if (!op || op->done)
        return op;
    op->asked->cursor = cursor;
    op->asked->cap = cap;
    return snib__ask_start(e, op, now);
}

struct snib__op *snib__engine_describe(struct snib__engine *e, const char *name, size_t n,
                                       size_t cap, snib__time now, int32_t *out_code)
{
    struct snib__op *op = snib__ask_carry(e, SNIB__OP_DESCRIBE, NULL, name, n, now, out_code);
    if (!op || op->done)
        return op;
    op->asked->cap = cap;
    return snib__ask_start(e, op, now);
}

struct snib__op *snib__engine_server(struct snib__engine *e, int32_t what, size_t cap,
                                     snib__time now, int32_t *out_code)
{
    struct snib__op *op = snib__ask_carry(e, SNIB__OP_SERVER, NULL, NULL, 0, now, out_code);
    if (!op || op->done)
        return op;
    op->asked->what = what;
    op->asked->cap = cap;
    if (what != SNIB_SERVER_WAY)
        return snib__ask_start(e, op, now);
    char lines[1024];
    snib__op_done(e, op,
                  snib__ask_lines(op->asked, lines, snib__route_tell(e, lines, sizeof lines)));
    return op;
}

struct snib__op *snib__engine_count(struct snib__engine *e, struct snib__gate *gate, int32_t what,
                                    int64_t n, snib__time now, int32_t *out_code)
{
    struct snib__op *op = snib__ask_carry(e, SNIB__OP_COUNT, gate, NULL, 0, now, out_code);
    if (!op || op->done)
        return op;
    op->asked->what = what;
    op->asked->n = n;
    op->answer = calloc(1, sizeof *op->answer);
    if (!op->answer) {
        snib__op_done(e, op, SNIB_ENOMEM);
        return op;
    }
    return snib__ask_start(e, op, now);
}

bool snib__ask_once(const struct snib__op *op)
{
    if (op->kind == SNIB__OP_COUNT)
        return op->asked->what != SNIB_COUNT_GET && op->asked->what != SNIB_COUNT_TOTAL;
    return op->kind == SNIB__OP_FORCE; /* a second one could hit another holder */
}

static int ask_describe(struct snib__buf *out, const struct snib__asked *asked)
{
    static const char *const keys[] = {"redisson_lock_queue", "redisson_lock_timeout",
                                       "redisson_lock_token"};
    static const char *const channels[] = {"redisson_lock__channel", "redisson_rwlock",
                                           "redisson_sc", "snib_plain_channel"};
    char name[SNIB__CHANNEL_MAX];
    const char *text = asked->text;
    size_t n = asked->text_len;
    if (snib__script_begin(out, SNIB__SCRIPT_DESCRIBE, 5, 10) < 0 ||
        snib__resp_arg(out, text, n) < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (snib__resp_arg(out, name, snib__name_prefix(name, keys[i], text, n)) < 0)
            return -1;
    if (snib__resp_arg(out, name, snib__name_suffix(name, text, n, "timeout", 7)) < 0)
        return -1;
    for (int i = 0; i < 4; i++)
        if (snib__resp_arg(out, name, snib__name_prefix(name, channels[i], text, n)) < 0)
            return -1;
    /* A latch's channel has braces whatever the name. */
    static const char latch[] = "redisson_countdownlatch__channel__{";
    memcpy(name, latch, sizeof latch - 1);
    memcpy(name + sizeof latch - 1, text, n);
    name[sizeof latch - 1 + n] = '}';
    return snib__resp_arg(out, name, sizeof latch + n) < 0 ? -1 : SNIB__SCRIPT_DESCRIBE;
}

static int ask_list(const struct snib__engine *e, struct snib__buf *out,
                    const struct snib__asked *asked)
{
    uint64_t cursor = e->slots ? snib__cluster_cursor_in(asked->cursor) : asked->cursor;
    size_t keys = asked->cap / ASK_LIST_BYTES;
    if (snib__script_begin(out, SNIB__SCRIPT_LIST, 0, 3) < 0 ||
        snib__resp_arg_int(out, (int64_t)cursor) < 0 ||
        snib__resp_arg(out, asked->text, asked->text_len) < 0 ||
        snib__resp_arg_int(out, keys < ASK_LIST_KEYS ? (int64_t)keys : ASK_LIST_KEYS) < 0)
        return -1;
    return SNIB__SCRIPT_LIST;
}

static int ask_server(struct snib__buf *out, int32_t what)
{
    static const char *const commands[][3] = {
        [SNIB_SERVER_INFO] = {"INFO"},
        [SNIB_SERVER_TIME] = {"TIME"},
        [SNIB_SERVER_USER] = {"ACL", "WHOAMI"},
        [SNIB_SERVER_MIN_REPLICAS] = {"CONFIG", "GET", "min-replicas-to-write"},
        [SNIB_SERVER_FSYNC] = {"CONFIG", "GET", "appendfsync"},
        [SNIB_SERVER_IDLE_TIMEOUT] = {"CONFIG", "GET", "timeout"},
        [SNIB_SERVER_CLUSTER] = {"CLUSTER", "INFO"},
        [SNIB_SERVER_CONNECTION] = {"CLIENT", "ID"},
        [SNIB_SERVER_ROLE] = {"ROLE"},
        [SNIB_SERVER_WAIT] = {"WAIT", "0", "1"},
        [SNIB_SERVER_LOAD] = {"SCRIPT", "LOAD", "return 1"},
    };
    uint32_t n = 0;
    while (n < 3 && commands[what][n])
        n++;
    int bad = snib__resp_begin(out, n);
    for (uint32_t i = 0; i < n && bad >= 0; i++)
        bad = snib__resp_arg(out, commands[what][i], strlen(commands[what][i]));
    return bad < 0 ? -1 : SNIB__NO_SCRIPT;
}

/* Returns the script's index, SNIB__NO_SCRIPT for a plain command, or -1 when out of memory. */
int snib__ask_encode(struct snib__engine *e, struct snib__buf *out, struct snib__op *op)
{
    if (op->kind == SNIB__OP_INFO)
        return snib__name_script_encode(out, op->gate, &op->gate->kind->info);
    if (op->kind == SNIB__OP_FORCE)
        return snib__name_script_encode(out, op->gate, &op->gate->kind->force);
    if (op->kind == SNIB__OP_EXTEND)
        return snib__extend_encode(e, out, op);
    if (op->kind == SNIB__OP_COUNT)
        return op->gate->kind->count(out, op->gate, op->asked->what, op->asked->n);
    if (op->kind == SNIB__OP_DESCRIBE)
        return ask_describe(out, op->asked);
    if (op->kind == SNIB__OP_SERVER)
        return ask_server(out, op->asked->what);
    if (op->kind == SNIB__OP_IDENTITY)
        return snib__identity_ask(out, op->asked);
    if (op->kind == SNIB__OP_LOAD)
        return snib__load_encode(e, out, op->asked);
    if (op->kind == SNIB__OP_PING)
        return snib__resp_begin(out, 1) < 0 || snib__resp_arg(out, "PING", 4) < 0 ? -1
                                                                                  : SNIB__NO_SCRIPT;
    return ask_list(e, out, op->asked);
}

/* Whether this client is among the holders of a shared lock. */
static bool ask_shares(const struct snib__gate *gate)
{
    const struct snib__hold *hold = snib__gate_sole(gate) ? NULL : gate->peers;
    while (hold && hold->phase != SNIB__HELD)
        hold = hold->peer_next;
    return hold != NULL;
}

/* An operation of this client waits for the lock; its attempt may be in flight. */
static bool ask_waits(const struct snib__gate *gate)
{
    for (const struct snib__hold *hold = snib__gate_first(gate); hold;
         hold = snib__gate_next(gate, hold))
        if (hold->phase == SNIB__TRYING && hold->op && hold->op->waited)
            return true;
    return snib__chan_wanted(gate->waitq->chan);
}

static int32_t ask_info(struct snib__engine *e, struct snib__op *op,
                        const struct snib__value *reply, uint32_t n, const struct snib__resp *resp)
{
    if (n != 6 || reply[1].type != SNIB__RESP_INTEGER || reply[2].type != SNIB__RESP_STRING ||
        reply[3].type != SNIB__RESP_INTEGER || reply[4].type != SNIB__RESP_INTEGER)
        return SNIB_EPROTOCOL;
    snib_event *answer = op->answer;
    const char *owner = snib__resp_text(resp, &reply[2]);
    size_t length = reply[2].count;
    answer->held = reply[1].integer != -2;
    answer->remaining_ms = answer->held ? reply[1].integer : 0;
    answer->count = reply[3].integer;
    answer->waiting = reply[4].integer;
    answer->fencing = snib__reply_number(e, &reply[5]);
    /* This client's own subscription does not count as a waiter while no operation of it waits. */
    if (answer->waiting > 0 && op->gate->kind->discipline != SNIB__QUEUED &&
        snib__chan_on(op->gate->waitq) && !ask_waits(op->gate))
        answer->waiting--;
    snib__text_show(answer->text, sizeof answer->text, owner, length);
    answer->mine =
        (length > 36 && memcmp(owner, e->config.uuid, 36) == 0) ||
        (answer->held && op->gate->kind->discipline == SNIB__SHARED && ask_shares(op->gate));
    return SNIB_OK;
}

/* The strings of a reply from index `from` on, as clean texts. */
static int32_t ask_texts(struct snib__asked *asked, const struct snib__value *reply, uint32_t from,
                         uint32_t n, const struct snib__resp *resp)
{
    size_t bytes = 0;
    for (uint32_t i = from; i < n; i++)
        if (reply[i].type == SNIB__RESP_STRING)
            bytes += reply[i].count + 1;
    if (bytes > asked->cap)
        return SNIB_ELIMIT;
    snib_texts *texts = malloc(sizeof *texts + bytes);
    if (!texts)
        return SNIB_ENOMEM;
    char *at = (char *)(texts + 1);
    *texts = (snib_texts){.cursor = asked->cursor, .text = at};
    for (uint32_t i = from; i < n; i++) {
        if (reply[i].type != SNIB__RESP_STRING)
            continue;
        memcpy(at, snib__resp_text(resp, &reply[i]), reply[i].count);
        at += snib__text_clean(at, reply[i].count, false) + 1;
        texts->count++;
    }
    texts->used = (uint64_t)(at - texts->text);
    asked->texts = texts;
    return SNIB_OK;
}

int32_t snib__ask_lines(struct snib__asked *asked, const char *text, size_t n)
{
    if (n + 1 > asked->cap)
        return SNIB_ELIMIT;
    snib_texts *texts = malloc(sizeof *texts + n + 1);
    if (!texts)
        return SNIB_ENOMEM;
    char *at = (char *)(texts + 1);
    *texts = (snib_texts){.text = at};
    for (size_t from = 0, length; from < n; from += length + 1) {
        const char *end = memchr(text + from, '\n', n - from);
        length = end ? (size_t)(end - text) - from : n - from;
        size_t shown = length > 0 && text[from + length - 1] == '\r' ? length - 1 : length;
        if (shown == 0 || text[from] == '#')
            continue;
        memcpy(at, text + from, shown);
        at += snib__text_clean(at, shown, false) + 1;
        texts->count++;
    }
    texts->used = (uint64_t)(at - texts->text);
    asked->texts = texts;
    return SNIB_OK;
}

static int32_t ask_told(struct snib__asked *asked, const struct snib__value *reply, uint32_t n,
                        const struct snib__resp *resp)
{
    if (reply->type == SNIB__RESP_ARRAY)
        return ask_texts(asked, reply, 1, n, resp);
    if (reply->type == SNIB__RESP_INTEGER) {
        char digits[20];
        return snib__ask_lines(asked, digits, snib__decimal(digits, reply->integer));
    }
    if (reply->type != SNIB__RESP_STRING)
        return SNIB_EPROTOCOL;
    return snib__ask_lines(asked, snib__resp_text(resp, reply), reply->count);
}

void snib__asked_free(struct snib__asked *asked)
{
    if (asked)
        free(asked->texts);
    free(asked);
}

void snib__ask_answer(struct snib__engine *e, struct snib__op *op, const struct snib__value *reply,
                      uint32_t n, const struct snib__resp *resp)
{
    int32_t code = SNIB_OK;
    bool array = reply->type == SNIB__RESP_ARRAY;
    if (op->kind == SNIB__OP_INFO) {
        code = ask_info(e, op, reply, n, resp);
    } else if (op->kind == SNIB__OP_LIST) {
        code = SNIB_EPROTOCOL;
        if (array && n >= 2 && reply[1].type == SNIB__RESP_STRING) {
            op->asked->cursor = strtoull(snib__resp_text(resp, &reply[1]), NULL, 10);
            if (e->slots)
                op->asked->cursor = snib__cluster_cursor_out(e, op->node, op->asked->cursor);
            code = ask_texts(op->asked, reply, 2, n, resp);
        }
    } else if (op->kind == SNIB__OP_DESCRIBE) {
        code = array ? ask_texts(op->asked, reply, 1, n, resp) : SNIB_EPROTOCOL;
    } else if (op->kind == SNIB__OP_SERVER || op->kind == SNIB__OP_IDENTITY) {
        code = ask_told(op->asked, reply, n, resp);
    } else if (op->kind == SNIB__OP_LOAD) {
        code = snib__load_answer(e, op, reply, resp);
    } else if (op->kind == SNIB__OP_COUNT) {
        op->answer->count = snib__reply_number(e, reply);
    } else if (op->kind == SNIB__OP_FORCE) {
        code = reply->type == SNIB__RESP_INTEGER && reply->integer == 1 ? SNIB_OK : SNIB_NOT_HELD;
    }
    snib__op_done(e, op, code);
}
