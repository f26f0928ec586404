/* replay_cleanup.c - see cleanup.pml.
 *
 * A tick of the server is half of the lease, and a tick of a client half of the time from a request to the deadline:
 * the model's lease is two ticks.  Nothing is renewed, because no engine is told that time has passed.
 */
#include "replay.h"

#include <string.h>

#define SERVER_TICK (LEASE / 2 + SNIB__MS) /* a key lives to the end of its last millisecond */
#define CLIENT_TICK ((LEASE - LEASE / 100 - SNIB__MARGIN) / 2)

static bool left;

static void begin(void)
{
    left = false;
    world_begin(SNIB_MUTEX, MODEL_NO_CLIENT);
}

/* Before any client does anything. */
static void step_kills(void)
{
    world_begin(SNIB_MUTEX, arg(0) ? 0 : MODEL_NO_CLIENT);
}

static void step_acquire(void)
{
    struct client *c = client_at(0);
    start(c, (struct snib__acquire){.wait = 0});
    note_owner(c, arg(1));
}

static void step_cancel(void)
{
    struct client *c = client_at(0);
    cancel(c);
    if (c->code != SNIB_CANCELLED)
        differ("the attempt ended with %s", snib_code_name(c->code));
}

static void step_execute(void)
{
    int script = execute(client_at(0), SNIB__COMMAND);
    same_request(word(1), script);
    same(arg(0), "the answer", arg(2), said_yes());
}

static void step_former(void)
{
    int script = execute_former(client_at(0));
    same_request(word(1), script);
    same(arg(0), "the answer", arg(2), said_yes());
}

static void step_read(void)
{
    struct client *c = client_at(0);
    c->code = SNIB_AGAIN;
    read_reply(c, SNIB__COMMAND);
}

/* What the caller is told, if there still is one. */
static void step_result(void)
{
    static const struct {
        const char *word;
        int32_t code;
    } results[] = {{"OK", SNIB_OK},
                   {"BUSY", SNIB_BUSY},
                   {"LATE", SNIB_EUNREACHABLE},
                   {"YES", SNIB_OK},
                   {"NO", SNIB_LOST}};
    int32_t wanted = SNIB_AGAIN;
    for (size_t i = 0; arg(1) && i < sizeof results / sizeof *results; i++)
        if (strcmp(results[i].word, word(2)) == 0)
            wanted = results[i].code;
    if (client_at(0)->code != wanted)
        differ("the core says %s", snib_code_name(client_at(0)->code));
}

static void step_release(void)
{
    release(client_at(0));
}

static void step_left(void)
{
    left = true;
}

static void step_cut(void)
{
    link_cut(client_at(0), SNIB__COMMAND, left);
    left = false;
}

static void step_open(void)
{
    link_open(client_at(0), SNIB__COMMAND);
}

static void step_tick(void)
{
    server_tick(SERVER_TICK);
    for (int i = 0; i < CLIENTS; i++)
        clients[i].now += CLIENT_TICK;
}

static void step_is(void)
{
    same_at_server(owner_of(arg(0)), arg(1), SERVER_TICK);
    for (int i = 0; i < CLIENTS; i++) {
        const struct client *c = &clients[i];
        same(i, "valid", arg(2 + 5 * i), is_valid(c));
        same(i, "connected", arg(3 + 5 * i), snib__node_ready(c->gate->node));
        same(i, "a caller waits", arg(4 + 5 * i), c->op != NULL);
        same(i, "requests on their way", arg(5 + 5 * i), on_its_way(c, 0));
        same(i, "left on a former connection", arg(6 + 5 * i), is_left(c));
    }
}

static const struct step steps[] = {{"kills", step_kills},   {"acquire", step_acquire},
                                    {"cancel", step_cancel}, {"execute", step_execute},
                                    {"former", step_former}, {"read", step_read},
                                    {"result", step_result}, {"release", step_release},
                                    {"left", step_left},     {"cut", step_cut},
                                    {"open", step_open},     {"tick", step_tick},
                                    {"is", step_is},         {NULL, NULL}};

const struct replay replay_cleanup = {"cleanup", begin, steps};
