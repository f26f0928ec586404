/* replay_fair.c - see fair.pml.
 *
 * One tick for all clocks: 1.1 s.  In that time every sleep of a waiter, which is at most a second, ends; in three of it
 * a first lease of 3 s does, and a waiter that is silent for so long is dead, as that is longer than 2.5 s and two ticks
 * are not; the lease ends in four.  An engine is told that time has passed only where the model has a beat, so holds
 * are neither confirmed nor renewed, and a subscription that is not used lingers until the model leaves it.
 *
 * Reading an answer takes a moment of that time, which shows from when on V is counted.
 *
 * A process that is dead does nothing any more; what it has sent may still be executed.  One that is deaf keeps its
 * connection for messages, and the server its subscription, but nothing more arrives on it.
 *
 * Messages to a waiter that has got the lock by asking are stale: they still come, and must be ignored.
 */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES 3
#define TICK (1100 * SNIB__MS)
#define MOMENT (60 * SNIB__MS) /* more than the margin of a lease */
#define FIRST_LEASE (3 * SECOND)
#define LONG_LEASE (4 * SECOND)
#define DEAD 3 /* ticks, as in the model */
#define LONGER_THAN_ANY_LINGER SECOND
#define FIELDS 8 /* that the model shows of a process */

struct process {
    snib__time tick; /* when the present one began */
    snib__time sent; /* its last request */
    bool dead, deaf;
    int kept;       /* of a deaf one: pieces that came before */
    int stale;      /* messages on their way that the model has forgotten */
    char owner[64]; /* its last one */
};

static struct process processes[PROCESSES];

static void new_process(int index)
{
    struct client *c = &clients[index];
    client_again(index, SNIB_FAIR);
    c->engine->config.lease = LONG_LEASE;
    link_open(c, SNIB__PUBSUB);
    processes[index] = (struct process){.tick = c->now};
}

static void begin(void)
{
    world_begin(SNIB_FAIR, 0);
    for (int i = 0; i < PROCESSES; i++)
        new_process(i);
}

static struct process *process_at(int index)
{
    client_at(index);
    return &processes[arg(index)];
}

static struct wire *news(struct client *c)
{
    return &c->wires[SNIB__PUBSUB];
}

static void read_news(struct client *c)
{
    while (news(c)->pieces > 0)
        read_reply(c, SNIB__PUBSUB);
}

/* ---- Steps ------------------------------------------------------------------------------------------ */

static void step_acquire(void)
{
    struct client *c = client_at(0);
    start(c, (struct snib__acquire){.wait = SNIB__NEVER});
    if (!c->op || !c->op->hold)
        differ("nothing was sent");
    char *owner = process_at(0)->owner;
    owner[snib__hold_owner(c->engine, c->op->hold, owner)] = 0;
}

static void step_execute(void)
{
    server_tick(SNIB__MS); /* or it would not be told whether it asks after it was skipped */
    int script = execute(client_at(0), SNIB__COMMAND);
    if (script != SNIB__SCRIPT_FAIR_ACQUIRE)
        differ("the model asks for the lock, the core has sent script %d", script);
    same(arg(0), "it is granted", arg(1), said_yes());
}

static void step_read(void)
{
    struct client *c = client_at(0);
    if (c->now < process_at(0)->tick + MOMENT)
        c->now = process_at(0)->tick + MOMENT;
    read_reply(c, SNIB__COMMAND);
}

/* Behind those that the model has forgotten. */
static void step_hear(void)
{
    struct process *p = process_at(0);
    struct client *c = client_at(0);
    for (; p->stale > 0; p->stale--)
        read_reply(c, SNIB__PUBSUB);
    read_reply(c, SNIB__PUBSUB);
    p->kept = news(c)->pieces;
}

/* The engine's own timer. */
static void step_beat(void)
{
    struct client *c = client_at(0);
    tick(c);
    if (on_its_way(c, SNIB__REQ_ACQUIRE) == 0)
        differ("client %d does not ask", arg(0));
}

static void step_subscribe(void)
{
    struct client *c = client_at(0);
    execute(c, SNIB__PUBSUB);
    read_news(c);
}

static void step_leave(void)
{
    struct client *c = client_at(0);
    snib__waitq_tick(c->engine, c->now + LONGER_THAN_ANY_LINGER);
    flush(c);
    while (news(c)->sent.n > 0)
        execute(c, SNIB__PUBSUB);
    read_news(c);
    process_at(0)->stale = 0;
}

static void step_deaf(void)
{
    struct process *p = process_at(0);
    p->deaf = true;
    p->kept = news(client_at(0))->pieces;
}

static void step_cut(void)
{
    struct process *p = process_at(0);
    link_cut(client_at(0), SNIB__PUBSUB, false);
    link_open(client_at(0), SNIB__PUBSUB);
    p->deaf = false;
    p->stale = 0;
}

static void step_release(void)
{
    struct client *c = client_at(0);
    release(c);
    settle(c);
    int32_t wanted = arg(1) ? SNIB_OK : SNIB_LOST;
    if (c->op || c->hold || c->code != wanted)
        differ("the release ended with %s", snib_code_name(c->code));
}

static void step_give_up(void)
{
    struct client *c = client_at(0);
    bool asks = on_its_way(c, SNIB__REQ_ACQUIRE) > 0;
    cancel(c);
    if (c->code != SNIB_CANCELLED)
        differ("the acquire ended with %s", snib_code_name(c->code));
    if (!asks)
        settle(c); /* its place is given back */
}

/* The answer to the request of who gave up: the grant or the place is given back. */
static void step_back(void)
{
    struct client *c = client_at(0);
    read_reply(c, SNIB__COMMAND);
    settle(c);
}

static void step_die(void)
{
    process_at(0)->dead = true;
}

static void step_gone(void)
{
    struct wire *wire = news(client_at(0));
    model_close(server, wire->connection);
    wire->connection = 0;
}

static void step_another(void)
{
    new_process(arg(0));
}

/* A grant and what happens after it was deleted do not share a millisecond, or their order would not be told. */
static void step_delete(void)
{
    model_delete(server, 0, "m", 1);
    server_tick(SNIB__MS);
}

/* A waiter that is alive sleeps now, and only until its next beat. */
static void look_at_sleep(int client)
{
    const struct client *c = &clients[client];
    if (processes[client].dead || !c->op || c->op->stage != SNIB__STAGE_QUEUED)
        return;
    const struct snib__waitq *waitq = c->gate->waitq;
    if (waitq->timer_at == 0)
        differ("client %d would sleep for ever", client);
    if (c->engine->heap[waitq->timer_at].when <= c->now)
        differ("client %d would have asked by now", client);
}

static void step_tick(void)
{
    for (int i = 0; i < PROCESSES; i++)
        look_at_sleep(i);
    server_tick(TICK);
    for (int i = 0; i < PROCESSES; i++)
        clients[i].now = processes[i].tick += TICK;
}

/* ---- What can be observed --------------------------------------------------------------------------- */

static const char *state_word(const struct client *c)
{
    if (c->hold)
        return "HELD";
    if (!c->op)
        return on_its_way(c, 0) > 0 ? "LEAVING" : "OUT";
    return c->op->stage == SNIB__STAGE_QUEUED ? "PLACED" : "ASKING";
}

static const char *sub_word(const struct client *c)
{
    static const char *const words[] = {"OFF", "WISHED", "ON", "LEAVING", "REFUSED"};
    const struct snib__waitq *waitq = c->gate->waitq;
    return waitq && waitq->chan ? words[waitq->chan->state] : "OFF";
}

static void same_word(int client, const char *what, const char *wanted, const char *core)
{
    if (strcmp(wanted, core) != 0)
        differ("client %d, %s: the model says %s, the core %s", client, what, wanted, core);
}

static bool is_owner(model_text text, int client)
{
    const char *owner = processes[client].owner;
    return text.n == strlen(owner) && memcmp(text.p, owner, text.n) == 0;
}

/* For how many ticks the server has not been asked by the client. */
static int silence(int client)
{
    static const char beats[] = "snib_lock_beats:{m}";
    char asked[32]; /* at which ms */
    model_text field, value;
    for (size_t i = 0; model_field_at(server, 0, beats, sizeof beats - 1, i, &field, &value); i++)
        if (field.n == 36 && memcmp(field.p, clients[client].engine->config.uuid, 36) == 0) {
            snprintf(asked, sizeof asked, "%.*s", (int)value.n, value.p);
            uint64_t ticks = (server_ms() - strtoull(asked, NULL, 10)) / (TICK / SNIB__MS);
            return ticks < DEAD ? (int)ticks : DEAD;
        }
    return DEAD;
}

/* The model's line is: owner, lease, the queue, and then the fields of each process. */
static int waiter(int index)
{
    return arg(2 + index) - 1; /* -1: there are no more */
}

static int waiters(void)
{
    int n = 0;
    while (n < PROCESSES && waiter(n) >= 0)
        n++;
    return n;
}

static int field_of(int client, int field)
{
    return 2 + PROCESSES + FIELDS * client + field;
}

static int silence_in_model(int client)
{
    return arg(field_of(client, FIELDS - 1));
}

/* The keys of a queue in which nobody has asked for long expire; the next to ask would drop them all. */
static bool is_abandoned(void)
{
    for (int i = 0; i < waiters(); i++)
        if (silence_in_model(waiter(i)) < DEAD)
            return false;
    return true;
}

static void same_queue(void)
{
    static const char queue[] = "redisson_lock_queue:{m}", places[] = "redisson_lock_timeout:{m}";
    model_key key;
    model_text field, value;
    size_t queued = model_key_find(server, 0, queue, sizeof queue - 1, &key) ? key.fields : 0;
    size_t placed = model_key_find(server, 0, places, sizeof places - 1, &key) ? key.fields : 0;
    if (queued == 0 && placed == 0 && is_abandoned())
        return;
    same(-1, "waiters in the queue", waiters(), (int64_t)queued);
    same(-1, "places", waiters(), (int64_t)placed);
    for (int i = 0; i < waiters(); i++) {
        int client = waiter(i);
        if (!model_field_at(server, 0, queue, sizeof queue - 1, (size_t)i, &field, &value) ||
            !is_owner(value, client))
            differ("place %d is not client %d's, but %.*s's", i, client, (int)value.n, value.p);
        same(client, "ticks since it asked", silence_in_model(client), silence(client));
    }
}

static bool is_counted(int client)
{
    char channel[128];
    const struct client *c = &clients[client];
    size_t n = c->gate->kind->channel(channel, c->engine, c->gate, 0);
    return model_subscribers(server, channel, n) > 0;
}

/* Nothing arrives where nobody listens. */
static void lose_news(int client)
{
    struct process *p = &processes[client];
    struct wire *wire = news(&clients[client]);
    int kept = p->dead ? 0 : p->deaf ? p->kept : wire->pieces;
    if (wire->pieces <= kept)
        return;
    wire->pieces = kept;
    wire->back.n = kept > 0 ? wire->ends[kept - 1] : 0;
}

/* A hold is not believed for longer than its lease, counted from before the request. */
static void look_at_end(int client)
{
    const struct client *c = &clients[client];
    const struct snib__conn *conn = &snib__engine_link(c->engine, SNIB__COMMAND)->conn;
    if (on_its_way(c, SNIB__REQ_ACQUIRE) > 0)
        processes[client].sent = conn->ring[conn->ring_head].sent_at;
    snib__time lease = c->hold && (c->hold->flags & SNIB__FIRST) ? FIRST_LEASE : LONG_LEASE;
    if (is_valid(c) && snib__hold_end(c->hold) > processes[client].sent + lease)
        differ("client %d may believe in its hold for longer than its lease", client);
}

static void same_process(int client)
{
    struct client *c = &clients[client];
    struct process *p = &processes[client];
    int at = field_of(client, 0);
    lose_news(client);
    same(client, "it is dead", arg(at), p->dead);
    same(client, "the server counts it", arg(at + 4), is_counted(client));
    if (p->dead)
        return;
    snib__time left = c->hold ? snib__hold_left(c->hold, c->now) : 0;
    same_word(client, "state", word(at + 1), state_word(c));
    same(client, "ticks until V", arg(at + 2), (int64_t)((left + TICK - 1) / TICK));
    same_word(client, "subscription", word(at + 3), sub_word(c));
    if (!c->op)
        p->stale = news(c)->pieces;
    same(client, "messages on their way", arg(at + 5), news(c)->pieces - p->stale);
    same(client, "a request on its way", arg(at + 6), on_its_way(c, 0));
    look_at_end(client);
}

static void same_lock(int owner, int left)
{
    model_key key;
    model_text field, value;
    bool there = model_key_find(server, 0, "m", 1, &key);
    same(-1, "somebody holds the lock", owner > 0, there);
    if (!there)
        return;
    if (!model_field_at(server, 0, "m", 1, 0, &field, &value) || key.fields != 1 ||
        !is_owner(field, owner - 1))
        differ("the lock is not client %d's, but %.*s's", owner - 1, (int)field.n, field.p);
    same(-1, "ticks until the lease ends", left, ticks_left(&key, TICK));
}

static void step_is(void)
{
    same_lock(arg(0), arg(1));
    same_queue();
    for (int i = 0; i < PROCESSES; i++)
        same_process(i);
}

static const struct step steps[] = {{"acquire", step_acquire},
                                    {"execute", step_execute},
                                    {"read", step_read},
                                    {"hear", step_hear},
                                    {"beat", step_beat},
                                    {"subscribe", step_subscribe},
                                    {"leave", step_leave},
                                    {"deaf", step_deaf},
                                    {"cut", step_cut},
                                    {"release", step_release},
                                    {"give_up", step_give_up},
                                    {"back", step_back},
                                    {"die", step_die},
                                    {"gone", step_gone},
                                    {"another", step_another},
                                    {"delete", step_delete},
                                    {"tick", step_tick},
                                    {"is", step_is},
                                    {NULL, NULL}};

const struct replay replay_fair = {"fair", begin, steps};
