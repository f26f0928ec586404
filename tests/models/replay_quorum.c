/* replay_quorum.c - see quorum.pml.
 *
 * Each of the model's clients is four real ones, as a program has them: one for each node, and one that has the lock of
 * all of them (its home, which in a program is one of the three).  Between them is core/api/group.c, with
 * core/locks/group.c.  It is stepped as by the driver: when what it hears of has left the client that it comes from.
 * All clients have one clock, which moves a little with each step of the model's clients, because the core spaces what
 * it repeats.
 */
#include "replay.h"

#include "api/group.h"
#include "locks/group.h"
#include "locks/kind.h"

#include <stdlib.h>
#include <string.h>

#define NODES 3
#define HOURS (3600 * SECOND) /* the lease: many times what the steps between two ticks take */
#define SERVER_TICK (HOURS / 2 + SNIB__MS)
#define CLIENT_TICK ((HOURS - HOURS / 100 - SNIB__MARGIN) / 2)
#define MOMENT (250 * SNIB__MS) /* what the core does "again" is due after it */

static struct snib__client api[ENGINES]; /* around the clients */
static struct snib__lock locks[CLIENTS];

static struct client *home_at(int index)
{
    return &clients[CLIENTS * NODES + index];
}

static struct client *member_at(int client, int node)
{
    return &clients[client * NODES + node];
}

/* A client that waits gives up a round when the model says so. */
snib__time __wrap_snib__group_patience(const struct snib__group *group, snib__time elapsed);
snib__time __wrap_snib__group_patience(const struct snib__group *group, snib__time elapsed)
{
    (void)group, (void)elapsed;
    return 1000000 * HOURS;
}

/* ---- The driver ------------------------------------------------------------------------------------- */

int __wrap_snib__driver_start(struct snib__driver *driver);
int __wrap_snib__driver_start(struct snib__driver *driver)
{
    (void)driver;
    return 0;
}

/* What an engine has to say goes to the carrier of its lock; true: something did. */
static bool deliver(struct client *c)
{
    struct snib__driver *driver = &api[c - clients].driver;
    struct snib__op *op = snib__engine_take_done(c->engine);
    struct snib__hold *lost = snib__engine_take_lost(c->engine);
    struct snib__outer *outer = snib__engine_take_outer(c->engine);
    if (op && op->member) {
        snib__carrier_done(driver, op);
    } else if (op) {
        if (op != c->op)
            differ("another operation has ended");
        if (op->kind == SNIB__OP_ACQUIRE && op->code == SNIB_OK)
            c->hold = op->hold;
        c->code = op->code;
        c->op = NULL;
        snib__op_free(c->engine, op);
    }
    if (lost)
        snib__carrier_lost(driver, lost);
    if (outer)
        snib__carrier_news(driver, outer);
    return op || lost || outer;
}

static void leave_member(struct client *c)
{
    struct snib__driver *driver = &api[c - clients].driver;
    if (deliver(c)) {
        flush(c);
        return;
    }
    void *carriers = driver->carriers;
    driver->carriers = NULL;
    if (carriers)
        snib__carrier_steps(carriers);
}

/* ---- The world -------------------------------------------------------------------------------------- */

static void pass(snib__time span)
{
    snib__time now = 0;
    for (int i = 0; i < ENGINES; i++)
        now = clients[i].now > now ? clients[i].now : now;
    for (int i = 0; i < ENGINES; i++)
        clients[i].now = now + span;
}

static void new_lock(int index)
{
    struct snib__client *home = &api[home_at(index) - clients];
    struct snib__parts *parts = calloc(1, sizeof *parts + NODES * sizeof parts->part[0]);
    if (!parts)
        abort();
    atomic_store(&parts->refs, 1);
    parts->majority = true;
    parts->vote_ms = (uint32_t)(HOURS / SNIB__MS);
    parts->n = NODES;
    for (int k = 0; k < NODES; k++) {
        struct client *member = member_at(index, k);
        parts->part[k] = (struct snib__part){&api[member - clients], member->gate};
    }
    locks[index] = (struct snib__lock){
        .client = home, .parts = parts, .gate = home_at(index)->gate, .kind = SNIB__OUTER};
}

/* Until it has been asked for a vote a node does not know since when it remembers. */
static void ask_each_node(void)
{
    for (int k = 0; k < NODES; k++) {
        start(member_at(0, k),
              (struct snib__acquire){.wait = 0, .vote_ms = (uint32_t)(HOURS / SNIB__MS)});
        settle(member_at(0, k));
        if (member_at(0, k)->op)
            differ("a node does not refuse its first vote");
        server_tick(HOURS + SNIB__MS);
    }
    server_tick(HOURS + SNIB__MS);
}

static void begin(void)
{
    world_begin(SNIB_MUTEX, 0);
    for (int i = CLIENTS; i < ENGINES; i++)
        world_add(i, i < CLIENTS * NODES ? SNIB_MUTEX : SNIB__OUTER, i % NODES);
    for (int i = 0; i < ENGINES; i++) {
        struct client *c = &clients[i];
        c->engine->config.lease = HOURS;
        c->engine->config.recheck = MOMENT / 2;
        api[i] = (struct snib__client){.driver = {.engine = c->engine}};
        if (i < CLIENTS * NODES && c->at != i % NODES) {
            link_cut(c, SNIB__COMMAND, false);
            c->at = i % NODES;
            link_open(c, SNIB__COMMAND);
        }
    }
    ask_each_node();
    leave = leave_member;
    for (int i = 0; i < CLIENTS; i++)
        new_lock(i);
    pass(MOMENT);
}

/* ---- Steps ------------------------------------------------------------------------------------------ */

static struct client *member(void)
{
    int c = arg(0), k = arg(1);
    if (c < 0 || c >= CLIENTS || k < 0 || k >= NODES)
        broken("there is no such member");
    return member_at(c, k);
}

/* The client has heard of something: its home looks at the deadlines, and at the clock, before they are compared.  (The
 * home's timer would do both a little later.) */
static void look_at_home(int index)
{
    struct client *home = home_at(index);
    if (!home->hold)
        return;
    if (home->hold->phase == SNIB__HELD) {
        snib__outer_tell(home->engine, home->hold);
        flush(home);
        tick(home);
    }
    if (home->hold && home->hold->phase == SNIB__LOST)
        drop(home);
}

/* After a round that has failed a patient client begins the next one by itself, after a pause. */
static void step_ask(void)
{
    struct client *home = home_at(arg(0));
    struct snib__acquire how = {.wait = arg(1) ? SNIB__NEVER : 0, .permits = 1};
    int32_t code;
    pass(MOMENT);
    if (home->op) {
        tick(home);
        return;
    }
    home->op = snib__carrier_acquire(&locks[arg(0)], &how, home->now, &code);
    if (!home->op)
        differ("the acquire was not started: %s", snib_code_name(code));
    flush(home);
}

static void step_cancel(void)
{
    pass(MOMENT);
    cancel(home_at(arg(0)));
}

static void step_release(void)
{
    pass(MOMENT);
    release(home_at(arg(0)));
}

static void step_lost(void)
{
    pass(MOMENT);
    look_at_home(arg(0));
}

/* The node executes the next request of a client. */
static void run(int script)
{
    if (execute(member(), SNIB__COMMAND) != script)
        differ("the client has sent something else");
}

static void step_serve(void)
{
    run(strcmp(word(2), "ASKED") == 0 ? SNIB__SCRIPT_QUORUM_ACQUIRE : SNIB__SCRIPT_MUTEX_RENEW);
    same(arg(0), "the node says yes", arg(3), said_yes());
}

static void step_drop(void)
{
    for (int n = arg(2); n > 0; n--)
        run(SNIB__SCRIPT_MUTEX_RELEASE);
}

static void reconnect(struct client *c)
{
    link_cut(c, SNIB__COMMAND, false);
    pass(0);
    link_open(c, SNIB__COMMAND);
}

/* The last answers of a node that has been restarted had come before: only now the client finds that the connection has
 * ended. */
static void read_answer(bool counts)
{
    struct client *c = member();
    struct wire *wire = &c->wires[SNIB__COMMAND];
    pass(MOMENT);
    read_reply(c, SNIB__COMMAND);
    if (counts)
        look_at_home(arg(0));
    if (wire->pieces == 0 && !model_is_open(servers[c->at], wire->connection))
        reconnect(c);
}

static void step_read(void)
{
    read_answer(true);
}

static void step_gone(void)
{
    for (int n = arg(2); n > 0; n--)
        read_answer(false);
}

static void step_restart(void)
{
    model_restart(servers[arg(0)]);
    for (int i = 0; i < CLIENTS; i++)
        if (member_at(i, arg(0))->wires[SNIB__COMMAND].pieces == 0)
            reconnect(member_at(i, arg(0)));
}

/* Whatever is due, which is what the model says. */
static void step_due(void)
{
    pass(MOMENT);
    tick(member());
}

static void step_notice(void)
{
    step_due();
    look_at_home(arg(0));
}

static void step_tick(void)
{
    server_tick(SERVER_TICK);
    pass(CLIENT_TICK);
}

/* ---- What can be observed --------------------------------------------------------------------------- */

/* The client that has the vote of a node, from 1; 0: nobody. */
static int voted_for(int node)
{
    for (int i = 0; i < CLIENTS * NODES; i++) {
        model_text field, value;
        if (model_field_at(servers[node], 0, "m", 1, 0, &field, &value) &&
            memcmp(clients[i].engine->config.uuid, field.p, 36) == 0)
            return i / NODES + 1;
    }
    return 0;
}

static void same_node(int node, int owner, int left)
{
    model_key key;
    int vote = voted_for(node);
    if (vote != owner)
        differ("node %d: in the model its vote is %d's, in the core %d's", node, owner, vote);
    if (owner && model_key_find(servers[node], 0, "m", 1, &key))
        same(-1, "ticks until the vote's lease ends", left, ticks_left(&key, SERVER_TICK));
}

static void same_member(int index, int node, const char *request, int dropped, int vote)
{
    struct client *c = member_at(index, node);
    const struct snib__hold *hold = c->gate->active;
    same(index, "an attempt is on its way", strcmp(request, "ASKED") == 0,
         on_its_way(c, SNIB__REQ_ACQUIRE));
    same(index, "a renewal is on its way", strcmp(request, "RENEWED") == 0,
         on_its_way(c, SNIB__REQ_RENEW));
    same(index, "a release is on its way", dropped, on_its_way(c, SNIB__REQ_RELEASE));
    same(index, "it has the vote", vote, hold && snib__hold_left(hold, c->now) > 0);
}

static void step_is(void)
{
    for (int k = 0; k < NODES; k++)
        same_node(k, arg(2 * k), arg(2 * k + 1));
    for (int i = 0; i < CLIENTS; i++) {
        int at = 2 * NODES + i * (2 + 3 * NODES);
        const struct client *home = home_at(i);
        bool held = home->hold && home->hold->phase == SNIB__HELD;
        same(i, "held, as far as it has seen", strcmp(word(at), "HELD") == 0, held);
        if (strcmp(word(at), "COLLECTING") == 0 && !home->op)
            differ("client %d collects no votes any more: %s", i, snib_code_name(home->code));
        same(i, "valid", arg(at + 1), is_valid(home));
        for (int k = 0; k < NODES; k++)
            same_member(i, k, word(at + 2 + 3 * k), arg(at + 3 + 3 * k), arg(at + 4 + 3 * k));
    }
}

static const struct step steps[] = {
    {"ask", step_ask},   {"cancel", step_cancel}, {"release", step_release},
    {"lost", step_lost}, {"serve", step_serve},   {"drop", step_drop},
    {"read", step_read}, {"gone", step_gone},     {"notice", step_notice},
    {"renew", step_due}, {"again", step_due},     {"restart", step_restart},
    {"tick", step_tick}, {"is", step_is},         {NULL, NULL}};

const struct replay replay_quorum = {"quorum", begin, steps};
