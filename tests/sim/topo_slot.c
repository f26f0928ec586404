/* topo_slot.c - slots: what a cluster's node answers to a request for a name, and slots that are
 * moved, key by key, from one node to another while clients continue. */
#include "topo_cluster.h"

#include "snib.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SAID_MAX 16384
#define ASKING_MAX 64

static char said[SAID_MAX];
static size_t said_n;
static struct {
    uint64_t all[ASKING_MAX];
    int n;
} asking[TOPO_SERVERS]; /* connections whose next command may be served while importing */
static bool asks;       /* the running command's connection is one of them */

/* ---- Hashing ------------------------------------------------------------------------------------ */

static uint16_t crc16(const char *p, size_t n)
{
    uint16_t crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (uint16_t)((uint8_t)p[i] << 8);
        for (int bit = 0; bit < 8; bit++) {
            crc = (uint16_t)(crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0));
        }
    }
    return crc;
}

void slot_begin(void)
{
    memset(asking, 0, sizeof asking);
}

int slot_of(model_text name)
{
    const char *open = memchr(name.p, '{', name.n);
    const char *shut =
        open == NULL ? NULL : memchr(open + 1, '}', name.n - (size_t)(open + 1 - name.p));
    if (shut != NULL && shut > open + 1) {
        return crc16(open + 1, (size_t)(shut - open - 1)) % CLUSTER_SLOTS;
    }
    return crc16(name.p, name.n) % CLUSTER_SLOTS;
}

/* The index of a slot among those that are tracked; -1: it is not. */
static int find(int number)
{
    for (int i = 0; i < cluster.slot_count; i++) {
        if (cluster.slots[i].number == number) {
            return i;
        }
    }
    return -1;
}

static int shard_of(const struct view *view, int number)
{
    int at = find(number);
    return at < 0 ? number * cluster.base / CLUSTER_SLOTS : view->slots[at].shard;
}

/* ---- Replies ------------------------------------------------------------------------------------ */

static void add(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(said + said_n, sizeof said - said_n, format, arguments);
    va_end(arguments);
    said_n += (size_t)n;
    if (said_n >= sizeof said) {
        topo_fail("an answer is too long");
    }
}

static void add_node(int at)
{
    const struct snib__address *address = &topo.servers[at].address;
    add("*4\r\n$%zu\r\n%s\r\n:%d\r\n$40\r\n%040d\r\n*0\r\n", strlen(address->host), address->host,
        address->port, at + 1);
}

/* A replica that does not have its master's data yet is left out. */
static bool is_shown(int at, int shard, int master)
{
    const struct topo_server *server = &topo.servers[at];
    return at != master && server->shard == shard && server->synced && !server->dead;
}

static void add_range(const struct view *view, int from, int to)
{
    int shard = shard_of(view, from), master = view->shards[shard].master, n = 1;
    for (int i = 0; i < topo.data_count; i++) {
        n += is_shown(i, shard, master);
    }
    add("*%d\r\n:%d\r\n:%d\r\n", n + 2, from, to);
    add_node(master);
    for (int i = 0; i < topo.data_count; i++) {
        if (is_shown(i, shard, master)) {
            add_node(i);
        }
    }
}

/* The first slot after this one that may be another shard's: where a shard begins, or at a tracked
 * slot, or behind it. */
static int next_border(int after)
{
    int shard = after * cluster.base / CLUSTER_SLOTS + 1;
    int next = (shard * CLUSTER_SLOTS + cluster.base - 1) / cluster.base;
    for (int i = 0; i < cluster.slot_count; i++) {
        int number = cluster.slots[i].number, at = number > after ? number : number + 1;
        next = at > after && at < next ? at : next;
    }
    return next < CLUSTER_SLOTS ? next : CLUSTER_SLOTS;
}

/* Where the range of slots of one shard ends that begins here. */
static int end_of_range(const struct view *view, int from)
{
    int end = next_border(from);
    while (end < CLUSTER_SLOTS && shard_of(view, end) == shard_of(view, from)) {
        end = next_border(end);
    }
    return end;
}

static void say_slots(const struct view *view)
{
    int ranges = 0;
    for (int i = 0; i < CLUSTER_SLOTS; i = end_of_range(view, i)) {
        ranges++;
    }
    add("*%d\r\n", ranges);
    for (int i = 0, end; i < CLUSTER_SLOTS; i = end) {
        end = end_of_range(view, i);
        add_range(view, i, end - 1);
    }
}

static void say_info(const struct view *view)
{
    char text[256];
    int n = snprintf(
        text, sizeof text,
        "cluster_state:%s\r\ncluster_slots_assigned:16384\r\ncluster_known_nodes:%d\r\n"
        "cluster_size:%d\r\ncluster_current_epoch:%llu\r\n",
        view->down ? "fail" : "ok", topo.data_count, cluster.base, (unsigned long long)view->epoch);
    add("$%d\r\n%s\r\n", n, text);
}

static bool is(model_text text, const char *word)
{
    return text.n == strlen(word) && strncasecmp(text.p, word, text.n) == 0;
}

/* ---- Serving or redirecting --------------------------------------------------------------------- */

static void moved(const struct view *view, int number, const char *word, int node)
{
    (void)view;
    const struct snib__address *address = &topo.servers[node].address;
    add("-%s %d %s:%d\r\n", word, number, address->host, address->port);
}

static int count_here(int self, const model_text *keys, size_t n)
{
    model_key key;
    int here = 0;
    for (size_t i = 0; i < n; i++) {
        here += model_key_find(topo.servers[self].model, 0, keys[i].p, keys[i].n, &key);
    }
    return here;
}

/* What a node answers instead of executing a command with these keys; empty: it executes it. */
static void judge(int self, const model_text *keys, size_t n)
{
    const struct view *view = &cluster.views[self];
    int number = slot_of(keys[0]), at = find(number);
    for (size_t i = 1; i < n; i++) {
        if (slot_of(keys[i]) != number) {
            add("-CROSSSLOT Keys in request don't hash to the same slot\r\n");
            return;
        }
    }
    int shard = shard_of(view, number), owner = view->shards[shard].master;
    int here = count_here(self, keys, n);
    if (view->down) {
        add("-CLUSTERDOWN The cluster is down\r\n");
    } else if (owner != self && at >= 0 && view->slots[at].importing >= 0 && asks) {
        if (n > 1 && here < (int)n) {
            add("-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
        }
    } else if (owner != self) {
        moved(view, number, "MOVED", owner);
    } else if (at >= 0 && view->slots[at].migrating >= 0 && here < (int)n) {
        if (here == 0) {
            moved(view, number, "ASK", view->slots[at].migrating);
        } else {
            add("-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
        }
    }
}

/* Shard channels: a replica of the slot serves them, too, and no key has to exist. */
static void judge_channels(int self, const model_text *channels, size_t n)
{
    const struct view *view = &cluster.views[self];
    int number = slot_of(channels[0]), at = find(number);
    for (size_t i = 1; i < n; i++) {
        if (slot_of(channels[i]) != number) {
            add("-CROSSSLOT Keys in request don't hash to the same slot\r\n");
            return;
        }
    }
    int shard = shard_of(view, number);
    bool imports = at >= 0 && view->slots[at].importing >= 0 && asks;
    if (shard != topo.servers[self].shard && !imports) {
        moved(view, number, "MOVED", view->shards[shard].master);
    }
}

static void judge_script(int self, const model_text *argv, size_t argc)
{
    size_t keys = 0;
    for (size_t i = 0; i < argv[2].n && argv[2].p[i] >= '0' && argv[2].p[i] <= '9'; i++) {
        keys = 10 * keys + (size_t)(argv[2].p[i] - '0');
    }
    if (keys > 0 && keys + 3 <= argc) {
        judge(self, argv + 3, keys);
    }
}

static bool take_asking(int self, uint64_t connection)
{
    for (int i = 0; i < asking[self].n; i++) {
        if (asking[self].all[i] == connection) {
            asking[self].all[i] = asking[self].all[--asking[self].n];
            return true;
        }
    }
    return false;
}

static void say_cluster(int self, const model_text *argv)
{
    if (is(argv[1], "slots")) {
        say_slots(&cluster.views[self]);
    } else if (is(argv[1], "info")) {
        say_info(&cluster.views[self]);
    } else if (is(argv[1], "myid")) {
        add("$40\r\n%040d\r\n", self + 1);
    } else {
        add("-ERR unknown subcommand '%.*s'. Try CLUSTER HELP.\r\n", (int)argv[1].n, argv[1].p);
    }
}

const char *cluster_answer(int self, uint64_t connection, const model_text *argv, size_t argc,
                           size_t *out_n)
{
    said_n = 0;
    asks = take_asking(self, connection);
    if (is(argv[0], "asking")) {
        asking[self].all[asking[self].n++ % ASKING_MAX] = connection;
        asking[self].n = asking[self].n < ASKING_MAX ? asking[self].n : ASKING_MAX - 1;
        add("+OK\r\n");
    } else if (is(argv[0], "cluster") && argc > 1) {
        say_cluster(self, argv);
    } else if (is(argv[0], "select") && argc > 1 && !is(argv[1], "0")) {
        add("-ERR SELECT is not allowed in cluster mode\r\n");
    } else if ((is(argv[0], "eval") || is(argv[0], "evalsha")) && argc > 2) {
        judge_script(self, argv, argc);
    } else if ((is(argv[0], "ssubscribe") || is(argv[0], "spublish")) && argc > 1) {
        judge_channels(self, argv + 1, is(argv[0], "spublish") ? 1 : argc - 1);
    }
    *out_n = said_n;
    return said_n > 0 ? said : NULL;
}

/* In the middle of a script: an undeclared key of a slot that is being moved and that is not
 * here. */
const char *cluster_touch(int self, const model_text *name, bool channel)
{
    static const char error[] = "ERR Script attempted to access a non local key in a cluster node";
    const struct view *view = &cluster.views[self];
    int number = slot_of(*name), at = find(number);
    int shard = shard_of(view, number);
    bool mine = view->shards[shard].master == self ||
                (shard == topo.servers[self].shard && topo.servers[self].master >= 0);
    if (at >= 0 && view->slots[at].importing >= 0 && asks) {
        return NULL;
    }
    if (!mine) {
        return error;
    }
    bool leaves = at >= 0 && view->slots[at].migrating >= 0;
    return leaves && !channel && count_here(self, name, 1) == 0 ? error : NULL;
}

/* ---- Subscriptions to shard channels ------------------------------------------------------------ */

static bool of_slot(void *context, model_text channel)
{
    return slot_of(channel) == *(const int *)context;
}

static bool of_any(void *context, model_text channel)
{
    (void)context, (void)channel;
    return true;
}

void slot_left(int self, int slot)
{
    model_end_shards(topo.servers[self].model, of_slot, &cluster.slots[slot].number);
    net_collect(self);
}

void shard_left(int self)
{
    model_end_shards(topo.servers[self].model, of_any, NULL);
}

/* ---- Moves -------------------------------------------------------------------------------------- */

enum { MOVE_BEGIN = CLUSTER_EVENTS, MOVE_KEY, MOVE_END, MOVE_TOLD };

static int source_of(const struct slot *slot)
{
    return topo.shards[slot->shard].authority;
}

static int target_of(const struct slot *slot)
{
    return topo.shards[slot->to].authority;
}

/* Some moves stay half done for a while; the target of some of these dies, for longer than many are patient. */
static snib__time move_pause(const struct slot *slot)
{
    bool half = topo_has(TOPO_HALF_SLOT) && topo_chance(3);
    if (half) {
        fault_happens(TOPO_HALF_SLOT);
    }
    if (half && topo_has(TOPO_KILL) && !topo.calm && topo_chance(3)) {
        fault_happens(TOPO_KILL);
        server_kill(target_of(slot), true); /* it returns when all faults end */
    }
    return half ? topo_draw(4 * topo.lease) : topo_draw(20 * SNIB__MS);
}

static void on_the_way(int slot, int source, int target)
{
    for (int i = 0; i < topo.data_count; i++) {
        cluster.views[i].slots[slot].migrating = i == source ? target : -1;
        cluster.views[i].slots[slot].importing = i == target ? source : -1;
    }
}

/* The keys that have gone stay where they are, a counter of tokens included, and the source knows
 * nothing of them (docs/guarantees.md, a slot that moves).  Other slots lose nothing. */
static void give_up(int at)
{
    struct slot *slot = &cluster.slots[at];
    topo_trace("the move of slot %d is given up", slot->number);
    on_the_way(at, -1, -1);
    truth_slot_broken(at);
    slot->to = -1;
    slot->turn = ++cluster.turns;
}

/* A failover has made another of a shard's nodes the master: it knows nothing of slot moves. */
void move_aborted(int shard)
{
    for (int i = 0; i < cluster.slot_count; i++) {
        struct slot *slot = &cluster.slots[i];
        if (slot->to < 0 || (slot->shard != shard && slot->to != shard)) {
            continue;
        }
        give_up(i);
        topo_later(topo.now + topo_between(50 * SNIB__MS, 500 * SNIB__MS), MOVE_BEGIN, i,
                   slot->shard == shard ? -1 : shard, slot->turn);
    }
}

static bool wants(void *context, model_text name)
{
    return slot_of(name) == *(const int *)context;
}

/* A node refuses to import a slot that it takes for its own, because it has not heard yet that it has lost it. */
static bool is_told(int at, int to)
{
    return cluster.views[topo.shards[to].authority].slots[at].shard != to;
}

static void begin_move(const struct topo_event *event)
{
    struct slot *slot = &cluster.slots[event->a];
    int to = event->b >= 0 ? event->b : (int)topo_draw((uint64_t)topo.shard_count);
    if (slot->to >= 0 || to == slot->shard || slot->turn != event->c || !is_told(event->a, to) ||
        !server_reaches(source_of(slot), topo.shards[to].authority)) {
        return;
    }
    slot->to = to;
    slot->turn = ++cluster.turns;
    topo_trace("slot %d goes from server %d to %d", slot->number, source_of(slot), target_of(slot));
    on_the_way(event->a, source_of(slot), target_of(slot));
    permits_meet_copies(event->a, target_of(slot));
    topo_later(topo.now + move_pause(slot), MOVE_KEY, event->a, 0, slot->turn);
}

/* Move the next key; a copy left by an earlier attempt is replaced.  Those who move slots lose patience with a target
 * that does not come back. */
static void move_key(const struct topo_event *event)
{
    struct slot *slot = &cluster.slots[event->a];
    model_key key;
    if (slot->to < 0 || slot->turn != event->c) {
        return;
    }
    int source = source_of(slot), target = target_of(slot);
    if (!server_reaches(source, target)) {
        if (topo_has(TOPO_HALF_SLOT) && topo_chance(10)) {
            give_up(event->a);
        }
        topo_later(topo.now + 50 * SNIB__MS, MOVE_KEY, event->a, 0, event->c);
        return;
    }
    if (topo_has(TOPO_HALF_SLOT) && topo_chance(12)) {
        give_up(event->a);
        return;
    }
    if (!model_key_of(topo.servers[source].model, wants, &slot->number, &key)) {
        topo_later(topo.now + topo_draw(2 * SNIB__MS), MOVE_END, event->a, 0, event->c);
        return;
    }
    topo_trace("%.*s goes", (int)key.name.n, key.name.p);
    model_delete(topo.servers[target].model, 0, key.name.p, key.name.n);
    model_migrate(topo.servers[source].model, topo.servers[target].model, 0, key.name.p,
                  key.name.n);
    server_executed(source);
    server_executed(target);
    topo_later(topo.now + move_pause(slot), MOVE_KEY, event->a, 0, event->c);
}

/* The target takes the slot; then the source is told. */
static void end_move(const struct topo_event *event)
{
    struct slot *slot = &cluster.slots[event->a];
    model_key key;
    if (slot->to < 0 || slot->turn != event->c) {
        return;
    }
    if (model_key_of(topo.servers[source_of(slot)].model, wants, &slot->number, &key) ||
        !server_reaches(source_of(slot), target_of(slot))) {
        topo_later(topo.now + topo_draw(20 * SNIB__MS), MOVE_KEY, event->a, 0, event->c);
        return;
    }
    int target = target_of(slot), source = source_of(slot);
    struct view *view = &cluster.views[target];
    view->slots[event->a] = (struct view_slot){
        .shard = slot->to, .epoch = ++cluster.last_epoch, .migrating = -1, .importing = -1};
    view->epoch = cluster.last_epoch;
    slot->shard = slot->to;
    slot->to = -1;
    slot->turn = ++cluster.turns;
    for (int i = 0; i < topo.name_count; i++) {
        if (topo.names[i].slot == event->a) {
            topo.names[i].shard = slot->shard;
            topo.names[i].came_at = topo.now;
        }
    }
    topo_trace("slot %d is server %d's", slot->number, target);
    topo_later(topo.now + topo_draw(5 * SNIB__MS), MOVE_TOLD, source, target, 0);
    cluster_spread(target);
}

void move_event(const struct topo_event *event)
{
    switch (event->kind) {
    case MOVE_BEGIN:
        begin_move(event);
        break;
    case MOVE_KEY:
        move_key(event);
        break;
    case MOVE_END:
        end_move(event);
        break;
    default:
        cluster_spread(event->b);
    }
}

void cluster_disturb(int fault)
{
    int at = (int)topo_draw((uint64_t)cluster.slot_count);
    int to = fault == TOPO_GROW ? cluster.base : -1;
    if (fault == TOPO_GROW && cluster.slots[at].shard == cluster.base) {
        to = (int)topo_draw((uint64_t)cluster.base);
    }
    topo_later(topo.now, MOVE_BEGIN, at, to, cluster.slots[at].turn);
}

void cluster_move(const struct topo_name *name)
{
    topo_later(topo.now, MOVE_BEGIN, name->slot, -1, cluster.slots[name->slot].turn);
}

/* Complete half-finished moves. */
void cluster_settle(void)
{
    for (int i = 0; i < cluster.slot_count; i++) {
        if (cluster.slots[i].to >= 0) {
            topo_later(topo.now, MOVE_KEY, i, 0, cluster.slots[i].turn);
        }
    }
}

/* A second server that may have keys of a name: the target of its slot's move; NULL: none. */
model *cluster_also(const struct topo_name *name)
{
    const struct slot *slot = &cluster.slots[name->slot];
    return topo.topology != SNIB__CLUSTER || slot->to < 0 ? NULL
                                                          : topo.servers[target_of(slot)].model;
}

bool cluster_goes_to(const struct topo_name *name, int shard)
{
    return topo.topology == SNIB__CLUSTER && cluster.slots[name->slot].to == shard;
}

/* Whether a node would serve a free name.  One that has handed over its slot sends clients to the target, also as long as
 * it does not know that the move has ended. */
bool cluster_serves(int at, const struct topo_name *name)
{
    const struct view *view = &cluster.views[at];
    const struct view_slot *slot = &view->slots[name->slot];
    return view->shards[slot->shard].master == at && slot->migrating < 0 && !view->down;
}
