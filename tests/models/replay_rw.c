/* replay_rw.c - see rw.pml.
 *
 * A script and its answer are one step, in the model and here.  A tick of the server is the short lease; a tick of a
 * client is its time from a request to the deadline, divided by the ticks of its lease.
 */
#include "replay.h"

#include <stdio.h>
#include <string.h>

#define SHORT (10 * SECOND) /* a tick: owner 0 has leases of one, owner 1 of two */
#define SERVER_TICK (SHORT + SNIB__MS)
#define SPAN(i) ((snib__time)(i) + 1)
#define SPAN_NS(i) (SPAN(i) * SHORT)
#define OWNER 1

enum side { READ, WRITE };

struct held {
    struct snib__gate *gate;
    struct snib__hold *hold; /* until it is released or dropped, also if it is lost */
};

static struct held held[CLIENTS][2];

static void begin(void)
{
    world_begin(SNIB_READ, 0);
    for (int i = 0; i < CLIENTS; i++) {
        struct snib__engine *engine = clients[i].engine;
        engine->config.lease = SPAN_NS(i);
        held[i][READ].gate = clients[i].gate;
        held[i][WRITE].gate = snib__gate_get(engine, SNIB_WRITE, "m", 1);
    }
}

static struct held *held_at(int index)
{
    client_at(index);
    return &held[arg(index)][strcmp(word(index + 1), "WRITE") == 0 ? WRITE : READ];
}

static bool is_safe(int client, enum side side)
{
    const struct snib__hold *hold = held[client][side].hold;
    return hold && snib__hold_left(hold, clients[client].now) > 0;
}

static void drop_held(struct client *c, struct held *h)
{
    struct snib__hold *hold = h->hold;
    h->hold = NULL;
    if (hold)
        snib__hold_drop(c->engine, hold, c->now);
    flush(c);
    settle(c);
}

static void step_take(void)
{
    struct client *c = client_at(0);
    struct held *h = held_at(0);
    struct snib__acquire how = {.owner = OWNER, .wait = 0};
    drop_held(c, h); /* a lost one, of which the server has nothing any more */
    int32_t code =
        ask(c, snib__engine_acquire(c->engine, h->gate, &how, c->now, &c->code), &h->hold);
    if (code != (arg(2) ? SNIB_OK : SNIB_BUSY))
        differ("the acquire ended with %s", snib_code_name(code));
}

static void step_renew(void)
{
    struct client *c = client_at(0);
    int64_t lease_ms = (int64_t)(SPAN_NS(arg(0)) / SNIB__MS);
    if (!held_at(0)->hold)
        differ("there is no hold");
    snib__watchdog_single(c->engine, held_at(0)->hold, lease_ms, c->now);
    flush(c);
    settle(c);
}

static void step_release(void)
{
    struct client *c = client_at(0);
    struct held *h = held_at(0);
    if (!h->hold)
        differ("there is no hold");
    int32_t code = ask(c, snib__engine_release(c->engine, h->hold, c->now, &c->code), NULL);
    if (code != SNIB_OK)
        differ("the release ended with %s", snib_code_name(code));
    drop_held(c, h);
}

static void step_rest(void)
{
    drop_held(client_at(0), held_at(0));
}

static void step_tick(void)
{
    server_tick(SERVER_TICK);
    for (int i = 0; i < CLIENTS; i++)
        clients[i].now += (SPAN_NS(i) - SPAN_NS(i) / 100 - SNIB__MARGIN) / SPAN(i);
}

/* Whether the text begins with the client's id, and ends so. */
static bool is_of(int client, model_text text, const char *end)
{
    size_t n = strlen(end);
    return text.n > 36 + n && memcmp(text.p, clients[client].engine->config.uuid, 36) == 0 &&
           memcmp(text.p + text.n - n, end, n) == 0;
}

/* Fields of the lock: those of a client, and the mode. */
static void look_at_fields(const char **mode, int reads[CLIENTS], int writes[CLIENTS])
{
    model_text field, value;
    for (size_t i = 0; model_field_at(server, 0, "m", 1, i, &field, &value); i++) {
        if (field.n == 4 && memcmp(field.p, "mode", 4) == 0)
            *mode = value.p[0] == 'w' ? "WRITE" : "READ";
        for (int c = 0; c < CLIENTS; c++) {
            bool writing = is_of(c, field, ":write");
            writes[c] += writing;
            reads[c] += !writing && is_of(c, field, "");
        }
    }
}

/* Ticks that the client's own key has left. */
static int own_lease(int client)
{
    model_key key;
    for (size_t i = 0; model_key_at(server, i, &key); i++) {
        model_text rest = {key.name.p + 4, key.name.n - 4}; /* behind "{m}:" */
        if (key.name.n > 4 && is_of(client, rest, ":rwlock_timeout:1"))
            return ticks_left(&key, SERVER_TICK);
    }
    return 0;
}

static void step_is(void)
{
    const char *mode = "FREE";
    int reads[CLIENTS] = {0}, writes[CLIENTS] = {0};
    model_key key;
    look_at_fields(&mode, reads, writes);
    if (strcmp(mode, word(0)) != 0)
        differ("the model's mode is %s, the server's %s", word(0), mode);
    same(-1, "ticks left", arg(1),
         model_key_find(server, 0, "m", 1, &key) ? ticks_left(&key, SERVER_TICK) : 0);
    for (int i = 0; i < CLIENTS; i++) {
        same(i, "fields as a reader", arg(2 + 5 * i), reads[i]);
        same(i, "fields as a writer", arg(3 + 5 * i), writes[i]);
        same(i, "ticks of its own key", arg(4 + 5 * i), own_lease(i));
        same(i, "it reads", arg(5 + 5 * i), is_safe(i, READ));
        same(i, "it writes", arg(6 + 5 * i), is_safe(i, WRITE));
    }
}

static const struct step steps[] = {
    {"take", step_take}, {"renew", step_renew}, {"release", step_release},
    {"rest", step_rest}, {"tick", step_tick},   {"is", step_is},
    {NULL, NULL}};

const struct replay replay_rw = {"rw", begin, steps};
