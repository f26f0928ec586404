/* cluster.c - a cluster of masters and replicas, built by its own commands; slot migration. */
#include "deployment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOBODY = 255 };

/* ---- Views --------------------------------------------------------------------------------------- */

/* The cluster as one node sees it. */
struct view {
    uint8_t map[SLOTS];    /* the master that serves the slot, or NOBODY */
    uint8_t of[NODES_MAX]; /* each node's master, or NOBODY */
    int count;             /* nodes known */
    bool well;             /* no node is failing or new, all links are up */
};

static int by_id(const struct deployment *deployment, const char *id)
{
    for (int i = 0; i < deployment->count; i++)
        if (!deployment->nodes[i].gone && strcmp(deployment->nodes[i].id, id) == 0)
            return i;
    return NOBODY;
}

static void view_line(const struct deployment *deployment, char *line, struct view *view)
{
    char *rest, *words[8];
    for (int i = 0; i < 8; i++) {
        words[i] = strtok_r(i ? NULL : line, " ", &rest);
        if (!words[i]) {
            view->well = false;
            return;
        }
    }
    int node = by_id(deployment, words[0]);
    const char *flags = words[2];
    view->count++;
    if (node == NOBODY || strstr(flags, "fail") || strstr(flags, "handshake") ||
        strstr(flags, "noaddr") || strcmp(words[7], "connected") != 0)
        view->well = false;
    if (node == NOBODY)
        return;
    view->of[node] = (uint8_t)by_id(deployment, words[3]);
    for (char *word; (word = strtok_r(NULL, " ", &rest));) {
        int low, high, n = sscanf(word, "%d-%d", &low, &high);
        for (int slot = low; n >= 1 && slot <= (n == 2 ? high : low); slot++)
            view->map[slot] = (uint8_t)node;
    }
}

static void view_get(struct deployment *deployment, struct node *node, struct view *view)
{
    memset(view, NOBODY, sizeof *view);
    view->count = 0;
    view->well = true;
    redisReply *reply = node_command(node, "CLUSTER NODES");
    for (char *rest, *line = strtok_r(reply->str, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest))
        view_line(deployment, line, view);
    freeReplyObject(reply);
}

/* Masters learn of changes first. */
static struct node *any_master(struct deployment *deployment)
{
    for (int i = 0; i < deployment->count; i++)
        if (node_is_master(&deployment->nodes[i]))
            return &deployment->nodes[i];
    fail_msg("no master of the cluster runs");
    return NULL;
}

/* ---- Making -------------------------------------------------------------------------------------- */

static struct node *cluster_node(struct deployment *deployment)
{
    struct node *node = deployment_node(deployment, "node", false);
    int timeout_ms = deployment->options.node_timeout_ms;
    node_config(node, "cluster-enabled yes\ncluster-config-file nodes.conf");
    node_config(node, "cluster-node-timeout %d", timeout_ms ? timeout_ms : 1000);
    /* A replica may fail over however long it was disconnected, and never migrates to another
     * master. */
    node_config(node, "cluster-replica-validity-factor 0\ncluster-migration-barrier 100");
    if (deployment->options.tls)
        node_config(node, "tls-cluster yes");
    return node;
}

static void learn_id(struct node *node)
{
    redisReply *reply = node_command(node, "CLUSTER MYID");
    snprintf(node->id, sizeof node->id, "%s", reply->str);
    freeReplyObject(reply);
}

static bool replicates(struct node *node, const struct node *master)
{
    redisReply *reply = node_try(node, "CLUSTER REPLICATE %s", master->id);
    bool done = reply && reply->type == REDIS_REPLY_STATUS; /* refused until it knows that master */
    if (reply)
        freeReplyObject(reply);
    return done;
}

static void meet(struct deployment *deployment, int from)
{
    /* Every node meets every other: gossip would do the same, some rounds later. */
    for (int i = from; i < deployment->count; i++)
        for (int j = 0; j < i; j++)
            if (node_runs(&deployment->nodes[j]))
                node_do(&deployment->nodes[i], "CLUSTER MEET 127.0.0.1 %d",
                        deployment->nodes[j].port);
}

static bool all_have_met(struct deployment *deployment)
{
    struct view view;
    int count = 0;
    for (int i = 0; i < deployment->count; i++)
        count += !deployment->nodes[i].gone;
    for (int i = 0; i < deployment->count; i++) {
        if (!node_runs(&deployment->nodes[i]))
            continue;
        view_get(deployment, &deployment->nodes[i], &view);
        if (view.count != count || !view.well)
            return false;
    }
    return true;
}

/* The last nodes join.  One that is not answered within the node timeout is forgotten, so they meet again. */
static void join(struct deployment *deployment, int from)
{
    int64_t end = now_ms() + patient_ms(DEPLOYED_MS), again_ms = 0;
    while (again_ms == 0 || !all_have_met(deployment)) {
        if (now_ms() > end)
            fail_msg("the nodes of the cluster have not met");
        if (now_ms() > again_ms) {
            meet(deployment, from);
            again_ms = now_ms() + 5000;
        }
        nap_us(10000);
    }
}

void cluster_start(struct deployment *deployment, const struct deployment_options *options)
{
    deployment_init(deployment, options);
    int masters = deployment->options.masters ? deployment->options.masters : 3;
    int replicas = deployment->options.replicas ? deployment->options.replicas : 1;
    int count = masters * (1 + (replicas > 0 ? replicas : 0));
    for (int i = 0; i < count; i++)
        cluster_node(deployment);
    deployment_launch(deployment, 0);
    for (int i = 0; i < count; i++) {
        struct node *node = &deployment->nodes[i];
        learn_id(node);
        node_do(node, "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
        if (i < masters)
            node_do(node, "CLUSTER ADDSLOTSRANGE %d %d", SLOTS * i / masters,
                    SLOTS * (i + 1) / masters - 1);
    }
    join(deployment, 1);
    for (int i = masters; i < count; i++)
        AWAIT(replicates(&deployment->nodes[i], &deployment->nodes[i % masters]), DEPLOYED_MS);
    deployment_url(deployment, "+cluster", 0, count, "/");
    cluster_await_settled(deployment);
}

/* ---- Roles ----------------------------------------------------------------------------------------- */

int slot_of(const char *key)
{
    size_t n = strlen(key);
    const char *start = strchr(key, '{'), *end = start ? strchr(start, '}') : NULL;
    if (end && end > start + 1) {
        key = start + 1;
        n = (size_t)(end - key);
    }
    unsigned crc = 0; /* CRC16, XMODEM */
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)(uint8_t)key[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1) & 0xffff;
    }
    return (int)(crc % SLOTS);
}

struct node *cluster_owner(struct deployment *deployment, int slot)
{
    struct view view;
    view_get(deployment, any_master(deployment), &view);
    return view.map[slot] == NOBODY ? NULL : &deployment->nodes[view.map[slot]];
}

struct node *cluster_owner_of(struct deployment *deployment, const char *key)
{
    return cluster_owner(deployment, slot_of(key));
}

struct node *cluster_replica_of(struct deployment *deployment, const struct node *master)
{
    struct view view;
    view_get(deployment, any_master(deployment), &view);
    for (int i = 0; i < deployment->count; i++)
        if (view.of[i] == master - deployment->nodes)
            return &deployment->nodes[i];
    fail_msg("%s has no replica", master->name);
    return NULL;
}

void cluster_key_at(struct deployment *deployment, const struct node *node, const char *prefix,
                    int nth, char out[64])
{
    struct view view;
    view_get(deployment, any_master(deployment), &view);
    for (int i = 0; i < 100 * SLOTS; i++) {
        snprintf(out, 64, "%s%d", prefix, i);
        if (view.map[slot_of(out)] == node - deployment->nodes && nth-- == 0)
            return;
    }
    fail_msg("%s serves nothing", node->name);
}

/* ---- Waiting ----------------------------------------------------------------------------------------- */

static bool state_ok(struct node *node)
{
    redisReply *reply = node_command(node, "CLUSTER INFO");
    bool ok =
        strstr(reply->str, "cluster_state:ok") && strstr(reply->str, "cluster_slots_ok:16384");
    freeReplyObject(reply);
    return ok;
}

bool cluster_agreed(struct deployment *deployment)
{
    struct view first, other;
    view_get(deployment, any_master(deployment), &first);
    for (int i = 0; i < deployment->count; i++) {
        struct node *node = &deployment->nodes[i];
        if (!node_runs(node))
            continue;
        if (!state_ok(node))
            return false;
        view_get(deployment, node, &other);
        if (memcmp(first.map, other.map, sizeof first.map) != 0)
            return false;
    }
    return true;
}

static bool follows(struct node *node)
{
    redisReply *reply = node_command(node, "ROLE");
    bool well = strcmp(reply->element[0]->str, "slave") != 0 ||
                strcmp(reply->element[3]->str, "connected") == 0;
    freeReplyObject(reply);
    return well;
}

bool cluster_settled(struct deployment *deployment)
{
    struct view first, view;
    int count = 0;
    for (int i = 0; i < deployment->count; i++)
        count += !deployment->nodes[i].gone;
    view_get(deployment, any_master(deployment), &first);
    for (int i = 0; i < deployment->count; i++) {
        struct node *node = &deployment->nodes[i];
        if (node->gone)
            continue;
        if (!node_runs(node))
            return false;
        view_get(deployment, node, &view);
        if (view.count != count || !view.well || !follows(node) ||
            memcmp(first.of, view.of, sizeof view.of) != 0)
            return false;
    }
    return cluster_agreed(deployment);
}

void cluster_await_agreed(struct deployment *deployment)
{
    AWAIT(cluster_agreed(deployment), DEPLOYED_MS);
}

void cluster_await_settled(struct deployment *deployment)
{
    AWAIT(cluster_settled(deployment), DEPLOYED_MS);
}

struct node *cluster_await_failover(struct deployment *deployment, int slot, const struct node *old)
{
    struct node *owner = NULL;
    /* For a moment nobody may serve the slot: what a replica sent before it was promoted can arrive
     * by its other connection after the news that it was. */
    AWAIT((owner = cluster_owner(deployment, slot)) && owner != old && cluster_agreed(deployment),
          DEPLOYED_MS);
    return owner;
}

/* ---- Changes ------------------------------------------------------------------------------------------- */

static bool promoted(struct node *replica, const char *how)
{
    if (node_is_master(replica))
        return true;
    redisReply *reply = *how ? node_try(replica, "CLUSTER FAILOVER %s", how)
                             : node_try(replica, "CLUSTER FAILOVER");
    if (reply)
        freeReplyObject(reply);
    nap_us(50000);
    return false;
}

void cluster_failover(struct node *replica, const char *how)
{
    AWAIT(promoted(replica, how), DEPLOYED_MS);
}

/* Valkey waits until the node's replicas know of the change, and answers NOREPLICAS while they are
 * still connecting. */
static bool slot_set(struct node *node, int slot, const char *state, const struct node *peer)
{
    redisReply *reply = node_try(node, "CLUSTER SETSLOT %d %s %s", slot, state, peer->id);
    bool set = reply && reply->type == REDIS_REPLY_STATUS;
    if (!set && (!reply || strncmp(reply->str, "NOREPLICAS", 10) != 0))
        fail_msg("%s: CLUSTER SETSLOT: %s", node->name, reply ? reply->str : "no answer");
    freeReplyObject(reply);
    return set;
}

struct move cluster_move_begin(struct deployment *deployment, int slot, struct node *to)
{
    struct move move = {deployment, slot, cluster_owner(deployment, slot), to};
    assert_true(move.from && move.from != to);
    AWAIT(slot_set(to, slot, "IMPORTING", move.from), DEPLOYED_MS);
    AWAIT(slot_set(move.from, slot, "MIGRATING", to), DEPLOYED_MS);
    return move;
}

/* A cluster whose nodes were kept from running for a while is down for a moment. */
static bool moved_one(const struct move *move, const char *key, size_t n)
{
    const char *password = move->from->password;
    redisReply *reply =
        *password ? node_try(move->from, "MIGRATE 127.0.0.1 %d %s 0 30000 AUTH %s KEYS %b",
                             move->to->port, "", password, key, n)
                  : node_try(move->from, "MIGRATE 127.0.0.1 %d %b 0 30000", move->to->port, key, n);
    bool moved = reply && reply->type == REDIS_REPLY_STATUS;
    if (!moved && (!reply || !strstr(reply->str, "CLUSTERDOWN")))
        fail_msg("%s: MIGRATE: %s", move->from->name, reply ? reply->str : "no answer");
    freeReplyObject(reply);
    return moved;
}

static void move_one(const struct move *move, const char *key, size_t n)
{
    AWAIT(moved_one(move, key, n), DEPLOYED_MS);
}

void cluster_move_key(const struct move *move, const char *key)
{
    move_one(move, key, strlen(key));
}

int cluster_move_keys(const struct move *move)
{
    for (int moved = 0;;) {
        redisReply *keys = node_command(move->from, "CLUSTER GETKEYSINSLOT %d 1000", move->slot);
        size_t n = keys->elements;
        for (size_t i = 0; i < n; i++)
            move_one(move, keys->element[i]->str, keys->element[i]->len);
        freeReplyObject(keys);
        if (n == 0)
            return moved;
        moved += (int)n;
    }
}

/* Some refusals are fine: from a node that has become a replica meanwhile, as a master does that
 * has lost its last slot, or that has no replicas connected at the moment.  Both learn of the move
 * from the target. */
static void tell_owner(const struct move *move, struct node *node)
{
    redisReply *reply = node_try(node, "CLUSTER SETSLOT %d NODE %s", move->slot, move->to->id);
    if (reply && reply->type == REDIS_REPLY_ERROR && !strstr(reply->str, "only with masters") &&
        strncmp(reply->str, "NOREPLICAS", 10) != 0)
        fail_msg("%s: CLUSTER SETSLOT: %s", node->name, reply->str);
    if (reply)
        freeReplyObject(reply);
}

/* Tell the target and the source first, then the other masters, which would learn of it by
 * gossip. */
void cluster_move_finish(const struct move *move)
{
    struct deployment *deployment = move->deployment;
    AWAIT(slot_set(move->to, move->slot, "NODE", move->to), DEPLOYED_MS);
    tell_owner(move, move->from);
    for (int i = 0; i < deployment->count; i++) {
        struct node *node = &deployment->nodes[i];
        if (node != move->to && node != move->from && node_is_master(node))
            tell_owner(move, node);
    }
}

void cluster_move_give_up(const struct move *move)
{
    node_do(move->to, "CLUSTER SETSLOT %d STABLE", move->slot);
    node_do(move->from, "CLUSTER SETSLOT %d STABLE", move->slot);
}

void cluster_move(struct deployment *deployment, int slot, struct node *to)
{
    struct move move = cluster_move_begin(deployment, slot, to);
    cluster_move_keys(&move);
    cluster_move_finish(&move);
}

bool cluster_moves_slots_itself(struct deployment *deployment)
{
    redisReply *reply = node_try(any_master(deployment), "CLUSTER GETSLOTMIGRATIONS");
    bool knows = reply && reply->type == REDIS_REPLY_ARRAY;
    freeReplyObject(reply);
    return knows;
}

/* Refused while the slot's last migration is not over. */
static bool handed_on(struct node *from, int slot, const struct node *to)
{
    redisReply *reply =
        node_try(from, "CLUSTER MIGRATESLOTS SLOTSRANGE %d %d NODE %s", slot, slot, to->id);
    bool begun = reply && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    return begun;
}

void cluster_hand_on(struct deployment *deployment, int slot, struct node *to)
{
    struct node *from = cluster_owner(deployment, slot);
    assert_true(from && from != to);
    AWAIT(handed_on(from, slot, to), DEPLOYED_MS);
    AWAIT(cluster_owner(deployment, slot) == to, DEPLOYED_MS);
}

struct node *cluster_add(struct deployment *deployment, struct node *master)
{
    struct node *node = cluster_node(deployment);
    node_start(deployment, node);
    learn_id(node);
    join(deployment, deployment->count - 1);
    if (master)
        AWAIT(replicates(node, master), DEPLOYED_MS);
    cluster_await_settled(deployment);
    return node;
}

void cluster_empty(struct deployment *deployment, struct node *node)
{
    struct view view;
    struct node *others[NODES_MAX];
    int count = 0;
    view_get(deployment, node, &view);
    for (int i = 0; i < deployment->count; i++)
        if (&deployment->nodes[i] != node && node_is_master(&deployment->nodes[i]))
            others[count++] = &deployment->nodes[i];
    assert_true(count > 0);
    for (int slot = 0; slot < SLOTS; slot++)
        if (view.map[slot] == node - deployment->nodes)
            cluster_move(deployment, slot, others[slot % count]);
}

void cluster_remove(struct deployment *deployment, struct node *node)
{
    node_kill(node);
    node->gone = true;
    for (int i = 0; i < deployment->count; i++)
        if (node_runs(&deployment->nodes[i])) {
            redisReply *reply = node_try(&deployment->nodes[i], "CLUSTER FORGET %s", node->id);
            if (reply)
                freeReplyObject(reply);
        }
    cluster_await_settled(deployment);
}
