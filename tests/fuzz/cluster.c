/* cluster.c - maps, redirections and nodes of a cluster, in any order, right or wrong.
 *
 * Up to eight nodes share the slots as the input wants; each request is answered by that truth, or with a map,
 * a redirection or an error that the input makes up.  Besides the checks of party.h after every call:
 *
 *     the map is whole: each slot has one known member, whose number of slots is right, and a lock
 *     belongs to the node of its slot
 *     addresses are such that a name can be, and each is known once
 *     nodes that redirect to each other are not asked without end while the truth does not change
 *     when the nodes agree at last, each lock comes to the node that the map names, and can be acquired
 *     and given back there, whatever they have said before
 */
#include "calls.h"
#include "replies.h"

#include "engine/cluster.h"

#include <ctype.h>
#include <errno.h>

#define GATES 12
#define NODES 8
#define RANGES 4
#define REPLY_MAX 16384
#define MULTI "m{bar}1\0f{bar}2"

static const struct call_lock gates[GATES] = {
    {SNIB_MUTEX, "m", 1},       {SNIB_MUTEX, "{bar}1", 6}, {SNIB_MUTEX, "{bar}2", 6},
    {SNIB_MUTEX, "{foo}1", 6},  {SNIB_FAIR, "{bar}f", 6},  {SNIB_READ, "{foo}rw", 7},
    {SNIB_WRITE, "{foo}rw", 7}, {SNIB_FENCED, "t", 1},     {SNIB_SEMAPHORE, "{bar}c", 6},
    {SNIB_PERMITS, "e", 1},     {SNIB_LATCH, "l", 1},      {SNIB__MULTI, MULTI, sizeof MULTI - 1}};

static struct party party;
static struct input in;
static struct snib__address seeds[2];

/* What is true of the cluster. */
static struct {
    unsigned owner[RANGES]; /* of a quarter of the slots, a node's number */
    uint64_t epoch;
    bool down[NODES];
} truth;

/* ---- The truth ----------------------------------------------------------------------------------------- */

static unsigned owner_of(uint16_t slot)
{
    return truth.owner[slot / (SNIB__SLOTS / RANGES)];
}

/* A node's number; NODES: it is none of them. */
static unsigned node_at(const struct pipe *pipe)
{
    const struct snib__address *address = snib__link_address(pipe->link);
    if (!address || address->host[1] || address->port != 6379)
        return NODES;
    unsigned number = (unsigned)tolower((unsigned char)address->host[0]) - 'a';
    return number < NODES ? number : NODES;
}

static size_t true_map(char *out, size_t cap)
{
    size_t used = (size_t)snprintf(out, cap, "*%d\r\n", RANGES);
    for (unsigned i = 0; i < RANGES; i++)
        used +=
            (size_t)snprintf(out + used, cap - used,
                             "*3\r\n:%d\r\n:%d\r\n*4\r\n$1\r\n%c\r\n:6379\r\n$2\r\nid\r\n*0\r\n",
                             (int)i * (SNIB__SLOTS / RANGES),
                             (int)(i + 1) * (SNIB__SLOTS / RANGES) - 1, 'a' + (int)truth.owner[i]);
    return used;
}

/* The slot of a script's first key; false: it has none. */
static bool slot_of(const struct command *command, uint16_t *out)
{
    bool script = word_is(command->word[0], "EVALSHA") || word_is(command->word[0], "EVAL");
    if (!script || command->argc < 4 || word_is(command->word[2], "0"))
        return false;
    *out = snib__slot(command->word[3].p, command->word[3].n);
    return true;
}

static size_t reply_well(struct pipe *pipe, const struct command *command, char *out, size_t cap)
{
    char text[64];
    uint16_t slot;
    if (word_is(command->word[0], "CLUSTER") && word_is(command->word[1], "SLOTS"))
        return true_map(out, cap);
    if (word_is(command->word[0], "CLUSTER")) {
        int n = snprintf(text, sizeof text, "cluster_current_epoch:%llu\r\n",
                         (unsigned long long)truth.epoch);
        return (size_t)snprintf(out, cap, "$%d\r\n%s\r\n", n, text);
    }
    if (slot_of(command, &slot) && owner_of(slot) != node_at(pipe))
        return (size_t)snprintf(out, cap, "-MOVED %u %c:6379\r\n", slot, 'a' + (int)owner_of(slot));
    return party_reply(&party, pipe, command, "cluster", out, cap);
}

/* ---- Lies ---------------------------------------------------------------------------------------------- */

static const char *any_host(void)
{
    static const char *const hosts[] = {"a", "b", "c", "d", "e", "f", "g",   "h",
                                        "A", "",  "?", "x", "[", " ", "::1", "127.0.0.1"};
    static char long_one[300];
    unsigned which = take(&in);
    if (which < 248)
        return hosts[which % 16];
    memset(long_one, 'x', sizeof long_one - 1);
    long_one[which == 248 ? 299 : which == 249 ? 253 : which == 250 ? 254 : which - 240] = 0;
    return long_one;
}

static int64_t any_port(void)
{
    unsigned which = take(&in);
    return which < 200 ? 6379 : number_any(which);
}

static int64_t any_slot(void)
{
    unsigned which = take(&in);
    return which < 128 ? (int64_t)which * 128 + (which & 1) * 127 : number_any(which);
}

/* [endpoint, port, id, facts]; one in some is not quite that. */
static size_t lie_node(char *out, size_t cap)
{
    const char *host = any_host();
    size_t n = strlen(host);
    unsigned form = take(&in);
    int64_t port = any_port();
    switch (form % 16) {
    case 0:
        return (size_t)snprintf(out, cap, "*4\r\n$-1\r\n:%lld\r\n$2\r\nid\r\n*0\r\n",
                                (long long)port);
    case 1:
        return (size_t)snprintf(out, cap,
                                "*4\r\n$1\r\n?\r\n:%lld\r\n$2\r\nid\r\n*4\r\n$1\r\nx\r\n$1\r\ny\r\n"
                                "$2\r\nip\r\n$%zu\r\n%s\r\n",
                                (long long)port, n, host);
    case 2:
        return (size_t)snprintf(out, cap,
                                "*4\r\n$1\r\n?\r\n:%lld\r\n$2\r\nid\r\n*%d\r\n$2\r\nip\r\n%s",
                                (long long)port, form & 16 ? 1 : 2, form & 16 ? "" : "*0\r\n");
    case 3:
        return (size_t)snprintf(out, cap, "*2\r\n$%zu\r\n%s\r\n:%lld\r\n", n, host,
                                (long long)port);
    case 4:
        return (size_t)snprintf(out, cap, "*1\r\n$%zu\r\n%s\r\n", n, host);
    case 5:
        return (size_t)snprintf(out, cap, form & 16 ? ":7\r\n" : "*0\r\n");
    case 6:
        return (size_t)snprintf(out, cap, "*2\r\n$%zu\r\n%s\r\n$4\r\n6379\r\n", n, host);
    default:
        return (size_t)snprintf(out, cap, "*3\r\n$%zu\r\n%s\r\n:%lld\r\n$2\r\nid\r\n", n, host,
                                (long long)port);
    }
}

static size_t lie_map(char *out, size_t cap)
{
    unsigned ranges = take(&in) % 8;
    size_t used = (size_t)snprintf(out, cap, "*%u\r\n", ranges);
    for (unsigned i = 0; i < ranges; i++) {
        unsigned nodes = take(&in) % 5;
        int64_t from = any_slot(), to = any_slot();
        used += (size_t)snprintf(out + used, cap - used, "*%u\r\n:%lld\r\n:%lld\r\n", 2 + nodes,
                                 (long long)from, (long long)to);
        for (unsigned j = 0; j < nodes; j++)
            used += lie_node(out + used, cap - used);
    }
    return used;
}

static size_t lie_redirect(const struct command *command, char *out, size_t cap)
{
    static const char *const words[] = {"MOVED", "ASK", "MOVED", "ASK"};
    uint16_t slot = 0;
    unsigned how = take(&in);
    bool named = slot_of(command, &slot) && how < 192;
    int64_t number = named ? slot : any_slot();
    const char *host = any_host();
    return (size_t)snprintf(out, cap, "-%s %lld %s:%lld\r\n", words[how % 4], (long long)number,
                            host, (long long)any_port());
}

static size_t lie_refuse(char *out, size_t cap)
{
    static const char *const texts[] = {
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
        "-CLUSTERDOWN The cluster is down\r\n",
        "-MIGRATING\r\n",
        "-ERR Script attempted to access a non local key in a cluster node\r\n",
        "-ERR This instance has cluster support disabled\r\n",
        "-NOSCRIPT No matching script. Please use EVAL.\r\n",
        "-READONLY You can't write against a read only replica.\r\n"};
    unsigned which = take(&in);
    if (which >= 128)
        return reply_error(which, out, cap);
    return (size_t)snprintf(out, cap, "%s", texts[which % 7]);
}

/* ---- The network --------------------------------------------------------------------------------------- */

static void connect_pipe(struct party *p, struct pipe *pipe)
{
    if (pipe->state != PIPE_CONNECTING)
        return;
    if (node_at(pipe) == NODES || truth.down[node_at(pipe)])
        party_down(p, pipe, SNIB_EUNREACHABLE, ECONNREFUSED);
    else
        party_up(p, pipe);
}

enum how { WELL, ANY, MAP, REDIRECT, REFUSE };

static bool reply(struct party *p, struct pipe *pipe, enum how how)
{
    char out[REPLY_MAX];
    struct command command;
    if (!party_command(p, pipe, &command))
        return false;
    size_t n = how == ANY        ? reply_any(&in, NULL, out, sizeof out)
               : how == MAP      ? lie_map(out, sizeof out)
               : how == REDIRECT ? lie_redirect(&command, out, sizeof out)
               : how == REFUSE   ? lie_refuse(out, sizeof out)
                                 : reply_well(pipe, &command, out, sizeof out);
    MUST(n < sizeof out);
    party_took(p, pipe, &command);
    party_send(pipe, out, n);
    return true;
}

static bool serve(struct party *p, struct pipe *pipe)
{
    bool more = pipe->state == PIPE_CONNECTING;
    connect_pipe(p, pipe);
    more |= reply(p, pipe, WELL);
    return more | (party_deliver(p, pipe, PARTY_PENDING) > 0);
}

/* ---- Checks -------------------------------------------------------------------------------------------- */

static void check_members(const struct snib__cluster *c)
{
    for (uint32_t i = 1; i < c->n; i++) {
        const struct snib__address *address = &c->member[i].node->address;
        MUST(c->member[i].node->addressed && address->host[0]);
        MUST(address->port >= 1 && address->port <= 65535);
        for (const char *at = address->host; *at; at++)
            MUST(isalnum((unsigned char)*at) || strchr("-._:", *at));
        for (uint32_t j = 1; j < i; j++)
            MUST(!snib__address_equal(address, &c->member[j].node->address));
    }
}

/* Whoever owns them, counted anew when the owners have changed. */
static void check_slots(const struct snib__cluster *c)
{
    static uint32_t slots[SNIB__MEMBERS_MAX];
    static uint16_t owner[SNIB__SLOTS];
    if (slots[0] == 0 || memcmp(owner, c->owner, sizeof owner) != 0) {
        memcpy(owner, c->owner, sizeof owner);
        memset(slots, 0, sizeof slots);
        for (uint32_t slot = 0; slot < SNIB__SLOTS; slot++) {
            MUST(owner[slot] < c->n);
            slots[owner[slot]]++;
        }
    }
    for (uint32_t i = 0; i < c->n; i++)
        MUST(c->member[i].slots == slots[i]);
}

static void check_map(void)
{
    const struct snib__cluster *c = party.e->map;
    MUST(c->n >= 1 && c->n <= SNIB__MEMBERS_MAX && c->spares_n <= SNIB__SPARES_MAX);
    check_slots(c);
    check_members(c);
    for (unsigned i = 0; i < GATES; i++) {
        const struct snib__gate *gate = party.gates[i];
        size_t n = gate->kind->kind == SNIB__MULTI ? strlen(gate->name + 1) : gate->name_len;
        const char *name = gate->kind->kind == SNIB__MULTI ? gate->name + 1 : gate->name;
        MUST(gate->slot == snib__slot(name, n));
        MUST(gate->node == c->member[c->owner[gate->slot]].node);
    }
}

/* All nodes agree from now on. */
static void end_calmly(void)
{
    struct snib__acquire how = {.wait = SNIB__NEVER, .permits = 1};
    memset(truth.down, 0, sizeof truth.down);
    truth.epoch++;
    calls_leave_all(&party);
    calls_run(&party, serve, 100 * SECOND, 10000);
    for (unsigned i = 0; i < GATES; i++)
        party_acquire(&party, party.gates[i], &how);
    calls_run(&party, serve, 60 * SECOND, 10000);
    check_map();
    for (unsigned i = 0; i < PARTY_OPS; i++)
        MUST(!party.ops[i]); /* each has its lock */
    for (unsigned i = 0; i < GATES && !party.e->closed; i++) {
        const struct snib__node *node = party.gates[i]->node;
        MUST(node->addressed);
        MUST(tolower((unsigned char)node->address.host[0]) ==
             'a' + (int)owner_of(party.gates[i]->slot));
    }
    calls_leave_all(&party);
    calls_run(&party, serve, 100 * SECOND, 10000);
    calls_check_rest(&party);
}

/* ---- The program --------------------------------------------------------------------------------------- */

static void at_pipe(struct party *p, struct pipe *pipe, const uint8_t step[STEP])
{
    size_t n;
    const char *bytes;
    switch (pipe ? step[0] % 32 : 32) {
    case 16:
        connect_pipe(p, pipe);
        return;
    case 17:
        party_down(p, pipe, step[2] & 1 ? SNIB_EUNREACHABLE : SNIB_ERESOLVE, step[3]);
        return;
    case 18:
        reply(p, pipe, WELL);
        break;
    case 19:
        reply(p, pipe, ANY);
        break;
    case 20:
    case 21:
        reply(p, pipe, REDIRECT);
        break;
    case 22:
    case 23:
        reply(p, pipe, MAP);
        break;
    case 24:
        reply(p, pipe, REFUSE);
        break;
    case 25:
        bytes = take_data(&in, step[2] % 16, &n);
        party_send(pipe, bytes, n);
        break;
    default:
        return;
    }
    if (step[3] & 1)
        party_deliver(p, pipe, PARTY_PENDING);
}

static void step_on(struct party *p, const uint8_t step[STEP])
{
    if (step[0] % 32 < CALLS) {
        calls_step(p, GATES, step);
        return;
    }
    switch (step[0] % 32) {
    case 10:
        party_pass(p, calls_span(step[1]));
        return;
    case 11:
        party_pass(p, party_next(p) - p->now < 100000 * SECOND ? party_next(p) - p->now : 0);
        party_tick(p);
        return;
    case 12:
        calls_settle(p, serve);
        return;
    case 13:
        calls_run(p, serve, calls_span(step[1]), step[2]);
        return;
    case 14:
        party_tick(p);
        return;
    case 15:
        if (party_pipe(p, step[1]))
            party_deliver(p, party_pipe(p, step[1]), step[2]);
        return;
    case 26:
        truth.owner[step[1] % RANGES] = step[2] % NODES;
        truth.epoch += step[3] & 1;
        return;
    case 27:
        truth.down[step[1] % NODES] = step[2] & 1;
        return;
    case 28:
        truth.epoch = (uint64_t)number_any(step[1]);
        return;
    default:
        at_pipe(p, party_pipe(p, step[1]), step);
    }
}

static struct snib__config config_of(const uint8_t head[STEP])
{
    static const int32_t publish[] = {SNIB_PUBLISH_AUTO, SNIB_PUBLISH_CLASSIC, SNIB_PUBLISH_SHARDED,
                                      SNIB_PUBLISH_BOTH};
    struct snib__config config = party_config();
    snib__address_host(&seeds[0], "a", 1, 6379, false);
    snib__address_host(&seeds[1], "b", 1, 6379, false);
    config.topology = SNIB__CLUSTER;
    config.seeds = seeds;
    config.seeds_n = 2;
    config.publish = publish[head[1] % 4];
    config.seed = head[2] + 1u;
    config.lanes = head[1] & 4 ? 3 : 0;
    config.scatter = head[1] & 8;
    config.handover_max = head[1] & 16 ? 0 : 16;
    config.tenure = !(head[1] & 64);
    config.identity = head[1] & 32 ? "host h\npid 1\n" : NULL;
    return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t head[STEP], step[STEP];
    in = (struct input){data, size};
    if (!take_step(&in, head))
        return 0;
    memset(&truth, 0, sizeof truth);
    truth.epoch = 5;
    for (unsigned i = 0; i < RANGES; i++)
        truth.owner[i] = (head[3] >> 2 * i & 3) % NODES;
    struct snib__config config = config_of(head);
    party_begin(&party, &config);
    calls_gates(&party, gates, GATES);
    while (take_step(&in, step)) {
        step_on(&party, step);
        check_map();
    }
    if (head[0] & 1)
        end_calmly();
    party_end(&party);
    return 0;
}
