/* replay_tenure.c - see tenure.pml.
 *
 * One engine, with a hold or an operation for each of the model's callers.  The ticks are those of replay_cleanup.c.
 */
#include "replay.h"

#include <string.h>

#define HOLDS 4
#define SERVER_TICK (LEASE / 2 + SNIB__MS) /* a key lives to the end of its last millisecond */
#define CLIENT_TICK ((LEASE - LEASE / 100 - SNIB__MARGIN) / 2)

static struct caller {
    struct snib__op *op; /* its acquire or its release */
    struct snib__hold *hold;
    int32_t code; /* of a release that has ended, until the trace says so; SNIB_AGAIN: none */
} callers[HOLDS];
static char owner[64]; /* the number, on the wire */

static struct client *the_client(void)
{
    return &clients[0];
}

static struct caller *caller_at(int index)
{
    int n = arg(index);
    if (n < 0 || n >= HOLDS)
        broken("there is no caller %d", n);
    return &callers[n];
}

/* The caller whose operation has ended gets its hold, or gives it back. */
static void hear(struct client *c)
{
    struct snib__op *op;
    while ((op = snib__engine_take_done(c->engine)) != NULL) {
        struct caller *caller = callers;
        while (caller < callers + HOLDS && caller->op != op)
            caller++;
        if (caller == callers + HOLDS)
            broken("an operation of nobody has ended");
        bool acquired = op->kind == SNIB__OP_ACQUIRE, ok = op->code == SNIB_OK;
        if (acquired && ok)
            caller->hold = op->hold;
        else if (!acquired)
            caller->code = op->code;
        caller->op = NULL;
        snib__op_free(c->engine, op);
        if (!acquired) {
            snib__hold_drop(c->engine, caller->hold, c->now);
            caller->hold = NULL;
        }
    }
}

static void begin(void)
{
    memset(callers, 0, sizeof callers);
    for (int i = 0; i < HOLDS; i++)
        callers[i].code = SNIB_AGAIN;
    leave = hear;
    world_begin(SNIB_MUTEX, 0);
    the_client()->engine->config.tenure = true;
}

static void want(struct caller *caller)
{
    struct client *c = the_client();
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    int32_t code;
    caller->op = snib__engine_acquire(c->engine, c->gate, &how, c->now, &code);
    if (!caller->op)
        differ("the acquire was not started: %s", snib_code_name(code));
    flush(c);
}

static void step_acquire(void)
{
    struct caller *caller = caller_at(0);
    want(caller);
    settle(the_client());
    if (!caller->hold)
        differ("the lock is free and was not granted");
    caller->hold->tell = 1;
    owner[snib__hold_owner(the_client()->engine, caller->hold, owner)] = 0;
}

static void step_wait(void)
{
    want(caller_at(0));
    if (!caller_at(0)->op)
        differ("the caller does not wait");
}

static void step_leave(void)
{
    struct client *c = the_client();
    if (!caller_at(0)->op || !snib__engine_cancel(c->engine, caller_at(0)->op, c->now))
        differ("nobody waits there");
    flush(c);
}

static void give_back(struct caller *caller, int32_t wanted)
{
    struct client *c = the_client();
    int32_t code = SNIB_OK;
    if (!caller->hold)
        differ("there is no hold to be released");
    caller->op = snib__engine_release(c->engine, caller->hold, c->now, &code);
    if (!caller->op != (wanted != SNIB_OK) || (!caller->op && code != wanted))
        differ("the release begins with %s", snib_code_name(code));
    flush(c);
}

static void step_pass(void)
{
    struct caller *from = caller_at(0), *to = caller_at(1);
    give_back(from, SNIB_OK);
    if (!to->hold || !from->op)
        differ("the lock did not go on");
    to->hold->tell = 1;
}

static void step_release(void)
{
    give_back(caller_at(0), SNIB_OK);
}

/* Its time is over. */
static void step_over(void)
{
    struct client *c = the_client();
    struct caller *caller = caller_at(0);
    give_back(caller, SNIB_LOST);
    if (snib__engine_take_lost(c->engine) != caller->hold)
        differ("the loss is not told");
    snib__hold_drop(c->engine, caller->hold, c->now);
    caller->hold = NULL;
    flush(c);
}

static void step_execute(void)
{
    int script = execute(the_client(), SNIB__COMMAND);
    same_request(strcmp(word(0), "QUESTION") == 0 ? "RENEW" : word(0), script);
    same(0, "the answer", arg(1), said_yes());
}

static void step_read(void)
{
    read_reply(the_client(), SNIB__COMMAND);
}

static void step_told(void)
{
    struct caller *caller = caller_at(0);
    int32_t wanted = strcmp(word(1), "OK") == 0 ? SNIB_OK : SNIB_LOST;
    if (caller->code != wanted)
        differ("caller %d is told %s", arg(0), snib_code_name(caller->code));
    caller->code = SNIB_AGAIN;
}

static void step_lost(void)
{
    struct client *c = the_client();
    struct caller *caller = caller_at(0);
    if (!caller->hold || snib__engine_take_lost(c->engine) != caller->hold)
        differ("caller %d is not told of the loss", arg(0));
    snib__hold_drop(c->engine, caller->hold, c->now);
    caller->hold = NULL;
    flush(c);
}

static void step_cut(void)
{
    link_cut(the_client(), SNIB__COMMAND, false);
}

static void step_open(void)
{
    link_open(the_client(), SNIB__COMMAND);
}

static void step_tick(void)
{
    server_tick(SERVER_TICK);
    the_client()->now += CLIENT_TICK;
}

static void step_delete(void)
{
    model_delete(server, 0, "m", 1);
}

static void step_is(void)
{
    struct client *c = the_client();
    int holder = -1;
    same_at_server(arg(0) ? owner : NULL, arg(1), SERVER_TICK);
    for (int i = 0; i < HOLDS; i++) {
        const struct caller *caller = &callers[i];
        int state = caller->hold && !caller->op ? snib__hold_state(c->engine, caller->hold, c->now)
                                                : SNIB_HOLD_RELEASED;
        if (state == SNIB_HOLD_VALID || state == SNIB_HOLD_AT_RISK)
            holder = i;
        if (caller->code != SNIB_AGAIN)
            differ("caller %d was told %s", i, snib_code_name(caller->code));
    }
    same(0, "whose hold is valid", arg(2), holder);
    same(0, "connected", arg(3), snib__node_ready(c->gate->node));
    if (arg(3))
        same(0, "requests on their way", arg(4), on_its_way(c, 0));
}

static const struct step steps[] = {{"acquire", step_acquire}, {"wait", step_wait},
                                    {"leave", step_leave},     {"pass", step_pass},
                                    {"release", step_release}, {"over", step_over},
                                    {"execute", step_execute}, {"read", step_read},
                                    {"told", step_told},       {"lost", step_lost},
                                    {"cut", step_cut},         {"open", step_open},
                                    {"tick", step_tick},       {"delete", step_delete},
                                    {"is", step_is},           {NULL, NULL}};

const struct replay replay_tenure = {"tenure", begin, steps};
