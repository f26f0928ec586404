/* replay_failover.c - see failover.pml; of its holds those that do not wait for replicas.
 *
 * The lock is a fenced one.  The replica is the second server: it gets what the first one has when the model says so.
 * That a client learns of the switch is the call with which sentinel.c and cluster.c tell the engine.  As in the model,
 * what reaches a living server is executed at once, and only the answer waits.
 */
#include "replay.h"

#include <string.h>

#define SHORT (6 * SECOND) /* shorter than given.c remembers a release */
#define SERVER_TICK (SHORT / 2 + SNIB__MS)
#define CLIENT_TICK ((SHORT - SHORT / 100 - SNIB__MARGIN) / 2)

static bool fixed, serves; /* serves: the old master */

static void begin(void)
{
    fixed = false;
    serves = true;
    world_begin(SNIB_FENCED, 0);
    for (int i = 0; i < CLIENTS; i++) {
        struct snib__engine *engine = clients[i].engine;
        engine->config.lease = SHORT;
        engine->config.topology =
            SNIB__SENTINEL; /* releases are repeated only where failovers happen */
        move(&clients[i], 0);
    }
}

static void step_fixed(void)
{
    fixed = arg(0);
}

static bool is_served(const struct client *c)
{
    return snib__node_ready(c->gate->node) && (c->at == 1 || serves);
}

static void serve(struct client *c)
{
    while (c->wires[SNIB__COMMAND].sent.n > 0 && is_served(c))
        execute(c, SNIB__COMMAND);
}

static void step_acquire(void)
{
    struct client *c = client_at(0);
    start(c, (struct snib__acquire){.wait = 0, .lease = fixed ? SHORT : 0});
    note_owner(c, arg(1));
    serve(c);
}

static void read_all(struct client *c)
{
    for (int n = c->wires[SNIB__COMMAND].pieces; n > 0; n--)
        read_reply(c, SNIB__COMMAND);
    serve(c);
}

static void step_read(void)
{
    read_all(client_at(0));
}

static void step_lost(void)
{
    struct client *c = client_at(0);
    int reason = strcmp(word(1), "FAILOVER") == 0 ? SNIB_REASON_FAILOVER : SNIB_REASON_DELETED;
    if (!c->hold || c->hold->phase != SNIB__LOST)
        differ("the hold is not lost");
    same(arg(0), "the reason", reason, snib__hold_reason(c->hold, c->now));
    drop(c);
}

static void step_release(void)
{
    release(client_at(0));
    serve(client_at(0));
}

static void step_renew(void)
{
    tick(client_at(0));
    serve(client_at(0));
}

static void step_cut(void)
{
    link_cut(client_at(0), SNIB__COMMAND, false);
}

static void step_learn(void)
{
    move(client_at(0), 1);
}

static void step_open(void)
{
    struct client *c = client_at(0);
    same(arg(0), "the server", arg(1), c->at);
    link_open(c, SNIB__COMMAND);
    if (!fixed)
        tick(c);
    serve(c);
    if (!arg(2)) /* a repeated release at most, which the model sends and forgets */
        read_all(c);
}

static void step_tick(void)
{
    server_tick(SERVER_TICK);
    for (int i = 0; i < CLIENTS; i++)
        clients[i].now += CLIENT_TICK;
}

static void step_copy(void)
{
    model_data *data = model_save(servers[0]);
    model_load(servers[1], data);
    model_data_free(data);
}

static void step_demote(void)
{
    serves = false;
    model_flush_keys(servers[0]);
}

static void step_is(void)
{
    for (int i = 0; i < 2; i++)
        same_at(servers[i], owner_of(arg(2 * i)), arg(1 + 2 * i), SERVER_TICK);
    for (int i = 0; i < CLIENTS; i++) {
        const struct client *c = &clients[i];
        bool valid = is_valid(c);
        bool inherited = valid && (c->hold->flags & SNIB__INHERITED);
        same(i, "valid", arg(4 + 5 * i), valid);
        same(i, "connected", arg(5 + 5 * i), snib__node_ready(c->gate->node));
        if (arg(5 + 5 * i) && is_served(c)) /* otherwise it waits, in the model for a connection */
            same(i, "a request is on its way", arg(6 + 5 * i), on_its_way(c, 0) > 0);
        same(i, "inherited", arg(7 + 5 * i), inherited);
        same(i, "token", arg(8 + 5 * i), valid ? snib__hold_fencing(c->hold) : 0);
        if (inherited && snib__hold_state(c->engine, c->hold, c->now) != SNIB_HOLD_AT_RISK)
            differ("client %d: an inherited hold is not at risk", i);
    }
}

static const struct step steps[] = {{"fixed", step_fixed},     {"acquire", step_acquire},
                                    {"read", step_read},       {"lost", step_lost},
                                    {"release", step_release}, {"renew", step_renew},
                                    {"cut", step_cut},         {"learn", step_learn},
                                    {"open", step_open},       {"tick", step_tick},
                                    {"copy", step_copy},       {"demote", step_demote},
                                    {"is", step_is},           {NULL, NULL}};

const struct replay replay_failover = {"failover", begin, steps};
