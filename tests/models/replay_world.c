/* replay_world.c - engines and a server, between which nothing moves by itself.
 *
 * What an engine sends lies on its wire until the trace says that the server executes it; the reply lies there until the
 * trace says that the client reads it.  Every client and the server have clocks of their own, which only the trace
 * moves: a tick of a model is whatever makes the model's lease and the core's deadline end at the same tick.
 */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPOCH_NS 1700000000000000000ULL
#define LONG (1000000 * SECOND) /* what a trace does not end, a timer must not end either */
#define NAME "m"

struct client clients[ENGINES];
model *servers[SERVERS];
void (*leave)(struct client *c);
uint64_t server_now;
bool real_links;
static char owners[NUMBERS][64]; /* on the wire, by the model's number */
static char reply[256];          /* to the request that was executed last */
static int executed;
static unsigned processes; /* so far: each has an id of its own */

/* A connection ends when the trace says so, not because a reply is overdue.  (The linker puts this in the place of
 * link.c's.) */
void __real_snib__link_tick(struct snib__engine *engine, snib__time now);
void __wrap_snib__link_tick(struct snib__engine *engine, snib__time now);
void __wrap_snib__link_tick(struct snib__engine *engine, snib__time now)
{
    if (real_links)
        __real_snib__link_tick(engine, now);
}

/* No model knows about giving way, which only delays attempts: nobody is owed a turn. */
void __wrap_snib__turn_released(struct snib__engine *e, struct snib__gate *gate, int64_t strangers,
                                snib__time now);
void __wrap_snib__turn_released(struct snib__engine *e, struct snib__gate *gate, int64_t strangers,
                                snib__time now)
{
    (void)e, (void)gate, (void)strangers, (void)now;
}

/* ---- Bytes ------------------------------------------------------------------------------------------ */

static void add(struct bytes *to, const char *p, size_t n)
{
    if (to->n + n > to->cap) {
        to->cap = 2 * (to->n + n);
        to->p = realloc(to->p, to->cap);
    }
    if (!to->p)
        abort();
    memcpy(to->p + to->n, p, n);
    to->n += n;
}

static void take(struct bytes *from, size_t n)
{
    memmove(from->p, from->p + n, from->n - n);
    from->n -= n;
}

/* The size of the first value in RESP 2. */
static size_t value_size(const char *p, size_t n)
{
    const char *end = n ? memchr(p, '\n', n) : NULL;
    if (!end)
        broken("half a value");
    size_t size = (size_t)(end - p) + 1;
    long count = strtol(p + 1, NULL, 10);
    if (*p == '$' && count >= 0)
        size += (size_t)count + 2;
    for (long i = 0; *p == '*' && i < count; i++)
        size += value_size(p + size, n - size);
    return size;
}

/* Element `index` of the first value, an array of strings. */
static void element(const char *p, int index, char *out, size_t cap)
{
    const char *at = strchr(p, '\n') + 1;
    for (int i = 0; i < index; i++)
        at += value_size(at, SIZE_MAX / 4);
    long n = strtol(at + 1, NULL, 10);
    snprintf(out, cap, "%.*s", (int)n, strchr(at, '\n') + 1);
}

/* ---- Connections ------------------------------------------------------------------------------------ */

static struct snib__link *link_of(const struct client *c, int link)
{
    return snib__engine_link(c->engine, link);
}

/* What the engine wants to send goes onto its wire. */
void flush(struct client *c)
{
    for (int link = 0; link < 2; link++) {
        struct snib__buf *out = snib__link_output(link_of(c, link));
        if (c->wires[link].connection && snib__buf_size(out) > 0) {
            add(&c->wires[link].sent, out->data + out->head, snib__buf_size(out));
            snib__buf_consume(out, snib__buf_size(out));
        }
    }
    (leave ? leave : collect)(c);
}

/* What the server has said goes onto the wire, as one piece for a reply, or one for each message. */
static void fetch(struct client *c, int link)
{
    struct wire *wire = &c->wires[link];
    const char *p;
    size_t n = wire->connection ? model_output(servers[c->at], wire->connection, &p) : 0;
    for (size_t at = 0, size; at < n; at += size) {
        size = link == SNIB__PUBSUB ? value_size(p + at, n - at) : n;
        if (wire->pieces == 64)
            broken("too much lies on a wire");
        add(&wire->back, p + at, size);
        wire->ends[wire->pieces++] = wire->back.n;
    }
}

static void fetch_messages(void)
{
    for (int i = 0; i < ENGINES; i++)
        if (clients[i].engine && link_of(&clients[i], SNIB__PUBSUB)->conn.state == SNIB__CONN_READY)
            fetch(&clients[i], SNIB__PUBSUB);
}

void read_reply(struct client *c, int link)
{
    struct wire *wire = &c->wires[link];
    if (wire->pieces == 0)
        differ("nothing has come for the client");
    size_t n = wire->ends[0];
    snib__engine_input(c->engine, link_of(c, link), wire->back.p, n, c->now);
    take(&wire->back, n);
    wire->pieces--;
    for (int i = 0; i < wire->pieces; i++)
        wire->ends[i] = wire->ends[i + 1] - n;
    flush(c);
}

/* Whether the trace says when this command is executed; the others go along with the next one. */
static bool is_counted(const char *verb)
{
    return strcmp(verb, "EVALSHA") == 0 || strstr(verb, "SUBSCRIBE") != NULL;
}

static int script_of(const char *sha1)
{
    for (int i = 0; i < SNIB__SCRIPT_COUNT; i++)
        if (strcmp(snib__script_texts[i].sha1, sha1) == 0)
            return i;
    return -1;
}

/* The server reads up to the next counted command.  Returns its script, -1: it is none, -2: there is no such command. */
static int serve(model *by, uint64_t connection, struct bytes *sent)
{
    char verb[16], sha1[48];
    while (sent->n > 0) {
        size_t n = value_size(sent->p, sent->n);
        element(sent->p, 0, verb, sizeof verb);
        element(sent->p, 1, sha1, sizeof sha1);
        model_input(by, connection, sent->p, n);
        take(sent, n);
        if (is_counted(verb))
            return script_of(sha1);
    }
    return -2;
}

/* The last value of what was said. */
static void note_reply(const char *p, size_t n)
{
    size_t size;
    while (n > 0 && (size = value_size(p, n)) < n) {
        p += size;
        n -= size;
    }
    snprintf(reply, sizeof reply, "%.*s", (int)n, p);
}

int execute(struct client *c, int link)
{
    struct wire *wire = &c->wires[link];
    executed = serve(servers[c->at], wire->connection, &wire->sent);
    if (executed == -2)
        differ("the client has sent nothing that the server could execute");
    size_t before = wire->back.n;
    if (link == SNIB__COMMAND) {
        fetch(c, link);
        note_reply(wire->back.p + before, wire->back.n - before);
    }
    fetch_messages();
    return executed;
}

/* Killed by the server, it is not there any more. */
bool is_left(const struct client *c)
{
    return c->former.connection && model_is_open(server, c->former.connection);
}

int execute_former(struct client *c)
{
    const char *p;
    if (!is_left(c))
        differ("nothing was left on a former connection");
    executed = serve(server, c->former.connection, &c->former.sent);
    size_t n = model_output(server, c->former.connection, &p);
    note_reply(p, n);
    model_close(server, c->former.connection);
    c->former.connection = 0;
    fetch_messages();
    return executed;
}

/* Of a renewal: that all are still held. */
bool said_yes(void)
{
    if (reply[0] == '-')
        differ("the server has refused: %s", reply);
    bool acquire = executed == SNIB__SCRIPT_MUTEX_ACQUIRE || executed == SNIB__SCRIPT_FAIR_ACQUIRE;
    acquire = acquire || executed == SNIB__SCRIPT_QUORUM_ACQUIRE;
    return acquire                                ? reply[0] == '$'
           : executed == SNIB__SCRIPT_MUTEX_RENEW ? strncmp(reply, "*0", 2) == 0
                                                  : strncmp(reply, ":0\r", 3) != 0;
}

/* What was executed is what the model calls ACQUIRE, RELEASE or RENEW. */
void same_request(const char *kind, int script)
{
    static const struct {
        const char *kind;
        int script;
    } known[] = {{"ACQUIRE", SNIB__SCRIPT_MUTEX_ACQUIRE},
                 {"RELEASE", SNIB__SCRIPT_MUTEX_RELEASE},
                 {"RENEW", SNIB__SCRIPT_MUTEX_RENEW}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].kind, kind) == 0 && known[i].script == script)
            return;
    differ("the model has sent %s, the core script %d", kind, script);
}

/* Connect, with the whole handshake; requests that waited for it lie on the wire then. */
void link_open(struct client *c, int link)
{
    struct wire *wire = &c->wires[link];
    struct snib__link *of = link_of(c, link);
    of->next_try = of->backoff = 0;
    snib__link_want(c->engine, of, c->now);
    if (snib__engine_take_wish(c->engine, of) == SNIB__WISH_CLOSE)
        snib__engine_take_wish(c->engine, of);
    wire->connection = model_connect(servers[c->at]);
    snib__engine_link_up(c->engine, of, c->now);
    flush(c);
    for (int turn = 0; of->conn.state != SNIB__CONN_READY; turn++) {
        if (turn == 5)
            broken("the handshake does not end");
        model_input(servers[c->at], wire->connection, wire->sent.p, wire->sent.n);
        wire->sent.n = 0;
        fetch(c, link);
        while (wire->pieces > 0)
            read_reply(c, link);
    }
    c->engine->home->clock.refused = true; /* only clock.c wants the time */
    flush(c);
}

/* The commands up to the next counted one lie on the former connection; what is behind is lost. */
static void leave_first(struct client *c, struct wire *wire)
{
    char verb[16] = "";
    size_t n = 0;
    while (n < wire->sent.n && !is_counted(verb)) {
        element(wire->sent.p + n, 0, verb, sizeof verb);
        n += value_size(wire->sent.p + n, wire->sent.n - n);
    }
    if (!is_counted(verb))
        differ("nothing is left that the server could still read");
    c->former.connection = wire->connection;
    c->former.sent.n = 0;
    add(&c->former.sent, wire->sent.p, n);
}

void link_cut(struct client *c, int link, bool left)
{
    struct wire *wire = &c->wires[link];
    if (left)
        leave_first(c, wire);
    else
        model_close(servers[c->at], wire->connection);
    wire->connection = 0;
    wire->sent.n = wire->back.n = 0;
    wire->pieces = 0;
    c->now++; /* "before" and "after" must not be the same instant */
    snib__engine_link_down(c->engine, link_of(c, link), SNIB_EUNREACHABLE, 0, c->now);
    flush(c);
}

/* Tell the engine that another server has taken over, or, the first time, which one there is. */
void move(struct client *c, int to)
{
    struct wire *wire = &c->wires[SNIB__COMMAND];
    struct snib__address address;
    if (!snib__address_host(&address, to == 0 ? "a" : "b", 1, 6379, false))
        abort();
    if (wire->connection)
        model_close(servers[c->at], wire->connection);
    bool was_open = wire->connection != 0;
    wire->connection = 0;
    wire->sent.n = wire->back.n = 0;
    wire->pieces = 0;
    c->now++; /* "before" and "after" must not be the same instant */
    snib__node_readdress(c->engine, c->gate->node, &address, c->now);
    flush(c);
    c->at = to;
    if (was_open && to == 0)
        link_open(c, SNIB__COMMAND);
}

/* ---- Clients ---------------------------------------------------------------------------------------- */

void world_add(int index, int kind, int at)
{
    struct client *c = &clients[index];
    struct snib__config config = {.seed = (uint64_t)index + 1,
                                  .first_number = 1,
                                  .lease = LEASE,
                                  .reply_timeout = LONG,
                                  .patience = LONG,
                                  .try_timeout = LONG,
                                  .recheck = 3 * SECOND,
                                  .handover_max = 16,
                                  .ops_max = 100};
    snprintf(config.uuid, sizeof config.uuid, "%08x-0000-8000-8000-%012x", (unsigned)index + 1,
             ++processes);
    *c = (struct client){.engine = snib__engine_new(&config), .at = at, .now = 3600 * SECOND};
    if (!c->engine)
        abort();
    c->gate = snib__gate_get(c->engine, kind, NAME, strlen(NAME));
    link_open(c, SNIB__COMMAND);
}

struct client *client_of(const struct snib__engine *engine)
{
    for (int i = 0; i < ENGINES; i++)
        if (clients[i].engine == engine)
            return &clients[i];
    broken("the engine is nobody's");
}

static void end_client(struct client *c)
{
    snib__engine_free(c->engine);
    free(c->former.sent.p);
    for (int link = 0; link < 2; link++) {
        free(c->wires[link].sent.p);
        free(c->wires[link].back.p);
    }
    *c = (struct client){0};
}

void client_again(int index, int kind)
{
    struct client *c = &clients[index];
    for (int link = 0; link < 2; link++)
        if (c->wires[link].connection)
            model_close(servers[c->at], c->wires[link].connection);
    int at = c->at;
    end_client(c);
    world_add(index, kind, at);
}

void world_end(void)
{
    for (int i = 0; i < ENGINES; i++)
        end_client(&clients[i]);
    for (int i = 0; i < SERVERS; i++) {
        if (servers[i])
            model_free(servers[i]);
        servers[i] = NULL;
    }
}

void world_begin(int kind, unsigned faults)
{
    world_end();
    for (int i = 0; i < SERVERS; i++) {
        servers[i] = model_new();
        model_set_faults(servers[i], faults);
    }
    model_restart(servers[1]); /* it is another process */
    server_tick(0);
    for (int i = 0; i < CLIENTS; i++)
        world_add(i, kind, 0);
}

struct client *client_at(int index)
{
    int n = arg(index);
    if (n < 0 || n >= CLIENTS_MAX || !clients[n].engine)
        broken("there is no client %d", n);
    return &clients[n];
}

/* The owner of the acquire that has just been sent has this number in the model, and no other. */
void note_owner(struct client *c, int number)
{
    char *known = owners[number & (NUMBERS - 1)], owner[64];
    if (!c->op || !c->op->hold)
        differ("nothing was sent");
    owner[snib__hold_owner(c->engine, c->op->hold, owner)] = 0;
    if (known[0] && strcmp(known, owner) != 0)
        differ("the core has sent another number than for the model's %d before", number);
    strcpy(known, owner);
}

const char *owner_of(int number)
{
    return number == 0 ? NULL : owners[number & (NUMBERS - 1)];
}

void collect(struct client *c)
{
    struct snib__op *op;
    while ((op = snib__engine_take_done(c->engine)) != NULL) {
        if (op->awaited)
            continue; /* somebody waits for it, and frees it */
        if (op == c->op) {
            c->code = op->code;
            c->op = NULL;
        }
        if (op->kind == SNIB__OP_ACQUIRE && op->code == SNIB_OK) {
            if (c->hold)
                differ("a second hold was granted");
            c->hold = op->hold;
        }
        bool released = op->kind == SNIB__OP_RELEASE;
        snib__op_free(c->engine, op);
        if (released && c->hold)
            drop(c);
    }
}

void start(struct client *c, struct snib__acquire how)
{
    int32_t code;
    if (c->op)
        differ("an operation is still running");
    c->op = snib__engine_acquire(c->engine, c->gate, &how, c->now, &code);
    if (!c->op)
        differ("the acquire was not started: %s", snib_code_name(code));
    flush(c);
}

void cancel(struct client *c)
{
    if (!c->op || !snib__engine_cancel(c->engine, c->op, c->now))
        differ("there is nothing to be cancelled");
    flush(c);
}

void release(struct client *c)
{
    if (!c->hold)
        differ("there is no hold to be released");
    c->op = snib__engine_release(c->engine, c->hold, c->now, &c->code);
    flush(c);
    if (!c->op && c->hold)
        drop(c);
}

void drop(struct client *c)
{
    if (!c->hold)
        differ("there is no hold to be dropped");
    struct snib__hold *hold = c->hold;
    c->hold = NULL;
    snib__hold_drop(c->engine, hold, c->now);
    flush(c);
}

bool is_valid(const struct client *c)
{
    int state = c->hold ? snib__hold_state(c->engine, c->hold, c->now) : SNIB_HOLD_RELEASED;
    return state == SNIB_HOLD_VALID || state == SNIB_HOLD_AT_RISK;
}

void tick(struct client *c)
{
    snib__engine_tick(c->engine, c->now);
    flush(c);
}

/* The server executes what lies on the wire, and the client reads the answers. */
void settle(struct client *c)
{
    struct wire *wire = &c->wires[SNIB__COMMAND];
    while (wire->sent.n > 0 || wire->pieces > 0) {
        if (wire->sent.n > 0)
            execute(c, SNIB__COMMAND);
        while (wire->pieces > 0)
            read_reply(c, SNIB__COMMAND);
    }
}

/* An operation, with its answer; NULL: c->code has it already.  A granted hold is in *out. */
int32_t ask(struct client *c, struct snib__op *op, struct snib__hold **out)
{
    if (!op)
        return c->code;
    op->awaited = true;
    flush(c);
    settle(c);
    if (!op->done)
        differ("the operation has not ended");
    int32_t code = op->code;
    if (out)
        *out = op->hold;
    snib__op_free(c->engine, op);
    return code;
}

/* Requests of a kind for which the client has read no reply; with 0, of any kind. */
int on_its_way(const struct client *c, int request_kind)
{
    const struct snib__conn *conn = &link_of(c, SNIB__COMMAND)->conn;
    int n = 0;
    for (uint32_t i = 0; i < conn->ring_count; i++) {
        int kind = conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)].kind;
        n += request_kind == 0 ? kind > 0 : kind == request_kind;
    }
    return n;
}

/* ---- The server ------------------------------------------------------------------------------------- */

void server_tick(snib__time span)
{
    server_now += span;
    for (int i = 0; i < SERVERS; i++)
        model_time(servers[i], EPOCH_NS + server_now);
}

uint64_t server_ms(void)
{
    return (EPOCH_NS + server_now) / SNIB__MS;
}

int ticks_left(const model_key *key, snib__time span)
{
    return (int)((key->expires_ns - EPOCH_NS - server_now + span - 1) / span);
}

/* The client that holds the lock at the server; -1: nobody. */
int whose(void)
{
    model_text field, value;
    if (!model_field_at(server, 0, NAME, strlen(NAME), 0, &field, &value))
        return -1;
    for (int i = 0; i < ENGINES; i++)
        if (clients[i].engine && memcmp(clients[i].engine->config.uuid, field.p, 36) == 0)
            return i;
    broken("the owner is no client");
}

void same_at_server(const char *owner, int left, snib__time span)
{
    same_at(server, owner, left, span);
}

void same_at(model *which, const char *owner, int left, snib__time span)
{
    model_key key;
    model_text field, value;
    bool there = model_key_find(which, 0, NAME, strlen(NAME), &key);
    if (!there && owner)
        differ("in the model the lock is held by %s, at the server it is free", owner);
    if (!there)
        return;
    if (!model_field_at(which, 0, NAME, strlen(NAME), 0, &field, &value) || key.fields != 1)
        broken("the key is no lock");
    if (!owner)
        differ("in the model the lock is free, at the server it is held by %.*s", (int)field.n,
               field.p);
    if (strlen(owner) != field.n || memcmp(owner, field.p, field.n) != 0)
        differ("in the model the lock is held by %s, at the server by %.*s", owner, (int)field.n,
               field.p);
    same(-1, "ticks until the lease ends", left, ticks_left(&key, span));
}
