/* replay_wakeup.c - see wakeup.pml.
 *
 * No lease ends, so the server's clock stands still, and leases are a day long.  A client's clock moves only to let a
 * timer of its engine fire: the sleep before an attempt, and the time after which an unused subscription is left.
 */
#include "replay.h"

#include <string.h>

#define DAY (24 * 3600 * SECOND)

static const char *chan_word(const struct client *c)
{
    static const char *const words[] = {"OFF", "WISHED", "ON", "LEAVING", "REFUSED"};
    for (uint32_t i = 0; i < c->engine->chans_cap; i++)
        if (c->engine->chans[i])
            return words[c->engine->chans[i]->state];
    return "OFF";
}

static const char *phase_word(const struct client *c)
{
    if (!c->op)
        return c->hold ? "HELD" : "IDLE";
    if (c->op->kind == SNIB__OP_RELEASE)
        return "RELEASING";
    return on_its_way(c, SNIB__REQ_ACQUIRE) > 0 ? "TRYING" : "ASLEEP";
}

static void begin(void)
{
    world_begin(SNIB_MUTEX, 0);
    for (int i = 0; i < CLIENTS; i++)
        link_open(&clients[i], SNIB__PUBSUB);
}

static void step_acquire(void)
{
    start(client_at(0), (struct snib__acquire){.wait = SNIB__NEVER, .lease = DAY});
}

static void step_execute(void)
{
    int script = execute(client_at(0), SNIB__COMMAND);
    same_request(word(1), script);
    same(arg(0), "the answer", arg(2), said_yes());
}

static void step_subscribe(void)
{
    execute(client_at(0), SNIB__PUBSUB);
}

static void step_read(void)
{
    read_reply(client_at(0), SNIB__COMMAND);
}

static void step_hear(void)
{
    read_reply(client_at(0), SNIB__PUBSUB);
}

static void step_release(void)
{
    release(client_at(0));
}

/* Let time pass until a timer has changed what the client does. */
static void fire(struct client *c)
{
    const char *phase = phase_word(c), *chan = chan_word(c);
    snib__time until = c->now + 5 * SECOND; /* longer than any sleep */
    while (phase == phase_word(c) && chan == chan_word(c)) {
        if (c->now > until)
            differ("no timer makes the client do anything");
        c->now += 50 * SNIB__MS;
        tick(c);
    }
}

static void step_timer(void)
{
    fire(client_at(0));
}

static void step_cut(void)
{
    link_cut(client_at(0), SNIB__PUBSUB, false);
}

static void step_open(void)
{
    link_open(client_at(0), SNIB__PUBSUB);
}

static void same_word(int client, const char *what, const char *wanted, const char *core)
{
    if (strcmp(wanted, core) != 0)
        differ("client %d, %s: the model says %s, the core %s", client, what, wanted, core);
}

static void step_is(void)
{
    for (int i = 0; i < CLIENTS; i++) {
        const struct client *c = &clients[i];
        const struct snib__waitq *waitq = c->gate->waitq;
        same_word(i, "phase", word(1 + 5 * i), phase_word(c));
        same_word(i, "channel", word(2 + 5 * i), chan_word(c));
        same(i, "own messages", arg(3 + 5 * i), waitq ? waitq->own_messages : 0);
        same(i, "messages on their way", arg(4 + 5 * i), c->wires[SNIB__PUBSUB].pieces);
        same(i, "connection is cut", arg(5 + 5 * i), !snib__node_listens(c->gate->node));
    }
    same(-1, "the lock's owner", arg(0) - 1, whose());
}

static const struct step steps[] = {
    {"acquire", step_acquire}, {"execute", step_execute}, {"subscribe", step_subscribe},
    {"read", step_read},       {"hear", step_hear},       {"release", step_release},
    {"timer", step_timer},     {"leave", step_timer},     {"cut", step_cut},
    {"open", step_open},       {"is", step_is},           {NULL, NULL}};

const struct replay replay_wakeup = {"wakeup", begin, steps};
