/* fed.h - an engine that a test feeds by hand: replies, cuts and time come only from the test. */
#ifndef SNIB_UNIT_FED_H
#define SNIB_UNIT_FED_H

#include "unit.h"

#include "engine/ask.h"
#include "engine/internal.h"
#include "net/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND (1000 * SNIB__MS)
#define START (100 * SECOND)
#define CONN_ID (-4) /* conn.c's kinds of its own requests */
#define CONN_INFO (-5)
#define CONN_LOAD (-6)

static snib__time now;                /* virtual */
static const char *server_id = "abc"; /* of the present server: three letters */
static const char *server_says = "";  /* ... further lines of its INFO */

static inline struct snib__engine *begin(void)
{
    struct snib__config config = {.uuid = "00000000-0000-8000-8000-000000000001",
                                  .seed = 1,
                                  .first_number = 1,
                                  .lease = 30 * SECOND,
                                  .reply_timeout = 3 * SECOND,
                                  .patience = 5 * SECOND,
                                  .try_timeout = SECOND,
                                  .recheck = 3 * SECOND,
                                  .handover_max = 16,
                                  .ops_max = 10000};
    struct snib__engine *engine = snib__engine_new(&config);
    assert_non_null(engine);
    now = START;
    return engine;
}

static inline struct snib__conn *conn_of(struct snib__engine *engine)
{
    return &engine->home->links[SNIB__COMMAND].conn;
}

/* ---- What is sent ------------------------------------------------------------------------------- */

#define WORDS 5 /* of a command, that are kept */

/* One command, taken from the front of a link's output: its first words.  False: there is none. */
static inline bool next_command(struct snib__buf *out, char words[WORDS][96])
{
    char *at = out->data + out->head, *end = out->data + out->len;
    if (at == end)
        return false;
    assert_int_equal(*at, '*');
    long n = strtol(at + 1, &at, 10);
    at += 2;
    memset(words, 0, WORDS * sizeof words[0]);
    for (long i = 0; i < n; i++) {
        long length = strtol(at + 1, &at, 10);
        at += 2;
        if (i < WORDS)
            snprintf(words[i], sizeof words[i], "%.*s", (int)length, at);
        at += length + 2;
    }
    snib__buf_consume(out, (size_t)(at - out->data - (long)out->head));
    return true;
}

/* ---- The other side of the command link ---------------------------------------------------------- */

/* Answer the oldest request; the connection's own ones as a server does. */
/* What the client knows of its way to the servers, which asks none; see SNIB_SERVER_WAY. */
static inline void way_is(struct snib__engine *engine, const char *lines)
{
    int32_t code;
    char told[256] = "";
    struct snib__op *op = snib__engine_server(engine, SNIB_SERVER_WAY, 65536, now, &code);
    assert_true(op->done && op->code == SNIB_OK);
    const snib_texts *texts = op->asked->texts;
    for (const char *at = texts->text; at < texts->text + texts->used; at += strlen(at) + 1)
        sprintf(told + strlen(told), "%.60s ", at);
    assert_string_equal(told, lines);
    assert_ptr_equal(snib__engine_take_done(engine), op);
    snib__op_free(engine, op);
}

static inline void answer(struct snib__engine *engine, const char *reply)
{
    struct snib__conn *conn = conn_of(engine);
    assert_true(conn->ring_count > 0);
    const struct snib__request *request = &conn->ring[conn->ring_head];
    char sha1[64], info[128];
    snprintf(info, sizeof info, "$%zu\r\nrun_id:%s\r\n%s\r\n", 12 + strlen(server_says), server_id,
             server_says);
    snprintf(sha1, sizeof sha1, "$40\r\n%s\r\n",
             request->kind == CONN_LOAD ? snib__script_texts[request->script].sha1 : "");
    const char *text = request->kind == CONN_LOAD   ? sha1
                       : request->kind == CONN_ID   ? ":17\r\n"
                       : request->kind == CONN_INFO ? info
                       : request->kind < 0          ? "+OK\r\n"
                                                    : reply;
    snib__engine_input(engine, snib__engine_link(engine, SNIB__COMMAND), text, strlen(text), now);
}

static inline uint32_t ready(struct snib__engine *engine)
{
    return conn_of(engine)->state == SNIB__CONN_READY;
}

/* Answer the connection's own requests, up to the first one of the engine. */
static inline void answer_own(struct snib__engine *engine)
{
    struct snib__conn *conn = conn_of(engine);
    while (conn->ring_count > 0 && conn->ring[conn->ring_head].kind < 0)
        answer(engine, "");
}

static inline void connect_link(struct snib__engine *engine)
{
    assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                     SNIB__WISH_CONNECT);
    snib__engine_link_up(engine, snib__engine_link(engine, SNIB__COMMAND), now);
    answer_own(engine);
    assert_true(ready(engine));
    engine->home->clock.refused = true; /* only clock.c wants the time */
}

/* Advance until the command link is to be connected. */
static inline void await_connect(struct snib__engine *engine)
{
    for (int step = 0; !engine->home->links[SNIB__COMMAND].connect; step++) {
        assert_true(step < 1000);
        snib__time next = snib__engine_deadline(engine);
        now = next > now ? next : now + SNIB__MS; /* the other link's wish may be pending */
        snib__engine_tick(engine, now);
    }
}

static inline void cut_link(struct snib__engine *engine)
{
    snib__engine_link_down(engine, snib__engine_link(engine, SNIB__COMMAND), SNIB_EUNREACHABLE, 0,
                           now);
}

/* The number of the engine's requests in flight. */
static inline uint32_t on_the_way(struct snib__engine *engine)
{
    const struct snib__conn *conn = conn_of(engine);
    uint32_t n = 0;
    for (uint32_t i = 0; i < conn->ring_count; i++)
        n += conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)].kind > 0;
    return n;
}

/* The script of the oldest request of the engine. */
static inline int oldest_script(struct snib__engine *engine)
{
    answer_own(engine);
    assert_true(on_the_way(engine) > 0);
    return conn_of(engine)->ring[conn_of(engine)->ring_head].script;
}

/* ---- The other side of the pub/sub link ------------------------------------------------------------ */

static inline void say_on_pubsub(struct snib__engine *engine, const char *text)
{
    snib__engine_input(engine, snib__engine_link(engine, SNIB__PUBSUB), text, strlen(text), now);
}

static inline void connect_pubsub(struct snib__engine *engine)
{
    assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__PUBSUB)),
                     SNIB__WISH_CONNECT);
    snib__engine_link_up(engine, snib__engine_link(engine, SNIB__PUBSUB), now);
    say_on_pubsub(engine, "+OK\r\n+PONG\r\n");
    assert_int_equal(engine->home->links[SNIB__PUBSUB].conn.state, SNIB__CONN_READY);
}

/* A message on a gate's channel; text NULL: the subscription is confirmed. */
static inline void say_on_channel(struct snib__engine *engine, const struct snib__gate *gate,
                                  const char *text)
{
    char channel[SNIB__CHANNEL_MAX], said[SNIB__CHANNEL_MAX + 256];
    size_t n = gate->kind->channel(channel, engine, gate, 0);
    int used = snprintf(said, sizeof said, "*3\r\n$%d\r\n%s\r\n$%zu\r\n%.*s\r\n", text ? 7 : 9,
                        text ? "message" : "subscribe", n, (int)n, channel);
    if (text)
        snprintf(said + used, sizeof said - (size_t)used, "$%zu\r\n%s\r\n", strlen(text), text);
    else
        snprintf(said + used, sizeof said - (size_t)used, ":1\r\n");
    say_on_pubsub(engine, said);
}

/* ---- This side ------------------------------------------------------------------------------------ */

static inline struct snib__gate *gate(struct snib__engine *engine, int32_t kind, const char *name)
{
    struct snib__gate *gate = snib__gate_get(engine, kind, name, strlen(name));
    assert_non_null(gate);
    return gate;
}

static inline struct snib__op *acquire(struct snib__engine *engine, struct snib__gate *gate,
                                       uint64_t owner)
{
    int32_t code;
    struct snib__acquire how = {.owner = owner, .wait = SNIB__NEVER};
    struct snib__op *op = snib__engine_acquire(engine, gate, &how, now, &code);
    assert_non_null(op);
    assert_int_equal(code, SNIB_OK);
    return op;
}

static inline struct snib__hold *acquired(struct snib__engine *engine, struct snib__op *op)
{
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_int_equal(op->code, SNIB_OK);
    struct snib__hold *hold = op->hold;
    snib__op_free(engine, op);
    return hold;
}

/* The hold of a mutex, or of another lock with the same replies to a grant. */
static inline struct snib__hold *granted(struct snib__engine *engine, struct snib__gate *gate,
                                         const struct snib__acquire *how)
{
    int32_t code;
    struct snib__op *op = snib__engine_acquire(engine, gate, how, now, &code);
    if (!ready(engine))
        connect_link(engine);
    answer_own(engine);
    answer(engine, gate->kind->kind == SNIB_FENCED ? "*1\r\n$1\r\n7\r\n" : "$-1\r\n");
    return acquired(engine, op);
}

#endif
