/* replay_renewal.c - see renewal.pml.
 *
 * A tick of the server is a third of the lease.  A tick of a client is half of the time from a request to the deadline,
 * because the model's lease is three ticks and one of them the margin; both are longer than the period of renewal.
 * The user may not kill connections: what was left on one is executed later.
 */
#include "replay.h"

#define SERVER_TICK (LEASE / 3 + SNIB__MS) /* a key lives to the end of its last millisecond */
#define CLIENT_TICK ((LEASE - LEASE / 100 - SNIB__MARGIN) / 2)

static bool left;

static void begin(void)
{
    left = false;
    world_begin(SNIB_MUTEX, MODEL_NO_CLIENT);
}

static void step_acquire(void)
{
    struct client *c = client_at(0);
    start(c, (struct snib__acquire){.wait = 0});
    note_owner(c, arg(1));
}

static void step_execute(void)
{
    struct client *c = client_at(0);
    int script = execute(c, SNIB__COMMAND);
    same_request(word(1), script);
    same(arg(0), "the answer", arg(2), said_yes());
}

static void step_former(void)
{
    struct client *c = client_at(0);
    int script = execute_former(c);
    same_request(word(1), script);
    same(arg(0), "the answer", arg(2), said_yes());
}

static void step_read(void)
{
    read_reply(client_at(0), SNIB__COMMAND);
}

static void step_release(void)
{
    release(client_at(0));
}

static void step_tick(void)
{
    tick(client_at(0));
}

static void step_left(void)
{
    left = true;
}

static void step_cut(void)
{
    link_cut(client_at(0), SNIB__COMMAND, left);
    link_open(client_at(0), SNIB__COMMAND);
    left = false;
}

static void step_server(void)
{
    server_tick(SERVER_TICK);
}

static void step_clock(void)
{
    client_at(0)->now += CLIENT_TICK;
}

static void step_forget(void)
{
    model_flush_keys(server);
}

static void step_is(void)
{
    same_at_server(owner_of(arg(0)), arg(1), SERVER_TICK);
    for (int i = 0; i < CLIENTS; i++) {
        const struct client *c = &clients[i];
        int renewals = on_its_way(c, SNIB__REQ_RENEW);
        same(i, "valid", arg(2 + 3 * i), is_valid(c));
        same(i, "renewals on their way", arg(3 + 3 * i), renewals);
        same(i, "other requests", arg(4 + 3 * i), on_its_way(c, 0) - renewals);
    }
}

static const struct step steps[] = {{"acquire", step_acquire},
                                    {"execute", step_execute},
                                    {"former", step_former},
                                    {"read", step_read},
                                    {"release", step_release},
                                    {"tick", step_tick},
                                    {"left", step_left},
                                    {"cut", step_cut},
                                    {"server", step_server},
                                    {"clock", step_clock},
                                    {"forget", step_forget},
                                    {"is", step_is},
                                    {NULL, NULL}};

const struct replay replay_renewal = {"renewal", begin, steps};
