/* sentinels.c - a master, its replicas and three sentinels that know each other from the start. */
#include "deployment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUORUM = 2, FAILOVER_MS = 3000 };

/* ---- Making ---------------------------------------------------------------------------------------- */

/* Configure all nodes at once: discovery takes rounds of 2 and 10 s. */
static void sentinel_config(const struct deployment *deployment, const struct node *node,
                            int servers)
{
    const struct deployment_options *options = &deployment->options;
    node_config(node, "sentinel myid %s", node->id);
    node_config(node, "sentinel monitor " SERVICE " 127.0.0.1 %d %d", deployment->nodes[0].port,
                QUORUM);
    node_config(node, "sentinel down-after-milliseconds " SERVICE " %d",
                options->down_ms ? options->down_ms : 1000);
    node_config(node, "sentinel failover-timeout " SERVICE " %d", FAILOVER_MS);
    node_config(node, "sentinel parallel-syncs " SERVICE " %d", servers);
    if (options->password)
        node_config(node, "sentinel auth-pass " SERVICE " %s", options->password);
    if (options->sentinel_password)
        node_config(node, "requirepass %s\nsentinel sentinel-pass %s", options->sentinel_password,
                    options->sentinel_password);
    for (int i = 1; i < servers; i++)
        node_config(node, "sentinel known-replica " SERVICE " 127.0.0.1 %d",
                    deployment->nodes[i].port);
    for (int i = servers; i < deployment->count; i++)
        if (&deployment->nodes[i] != node)
            node_config(node, "sentinel known-sentinel " SERVICE " 127.0.0.1 %d %s",
                        deployment->nodes[i].port, deployment->nodes[i].id);
}

static int replicas_online(struct node *master)
{
    int count = 0;
    redisReply *reply = node_command(master, "INFO replication");
    for (const char *at = reply->str; (at = strstr(at, "state=online")); at++)
        count++;
    freeReplyObject(reply);
    return count;
}

void sentinels_start(struct deployment *deployment, const struct deployment_options *options)
{
    deployment_init(deployment, options);
    int replicas = deployment->options.replicas ? deployment->options.replicas : 2;
    int servers = 1 + (replicas > 0 ? replicas : 0);
    for (int i = 0; i < servers; i++) {
        const struct node *node = deployment_node(deployment, "server", false);
        if (i > 0)
            node_config(node, "replicaof 127.0.0.1 %d", deployment->nodes[0].port);
    }
    deployment_launch(deployment, 0);
    AWAIT(replicas_online(&deployment->nodes[0]) == servers - 1, DEPLOYED_MS);
    for (int i = 0; i < SENTINELS; i++) {
        struct node *node = deployment_node(deployment, "guard", true);
        snprintf(node->id, sizeof node->id, "%08x%08x%08x%08x%08x", (unsigned)node->port, 1u, 2u,
                 3u, (unsigned)i);
    }
    for (int i = servers; i < deployment->count; i++)
        sentinel_config(deployment, &deployment->nodes[i], servers);
    deployment_launch(deployment, servers);
    deployment_url(deployment, "+sentinel", servers, deployment->count, "/" SERVICE);
    sentinels_await_settled(deployment);
}

/* ---- Roles ----------------------------------------------------------------------------------------- */

struct node *sentinel_announces(struct deployment *deployment, struct node *sentinel)
{
    redisReply *reply = node_command(sentinel, "SENTINEL GET-MASTER-ADDR-BY-NAME " SERVICE);
    assert_int_equal(reply->elements, 2);
    int port = atoi(reply->element[1]->str);
    freeReplyObject(reply);
    for (int i = 0; i < deployment->count; i++)
        if (deployment->nodes[i].port == port)
            return &deployment->nodes[i];
    fail_msg("a sentinel reports port %d, which is not one of the deployment's", port);
    return NULL;
}

struct node *sentinels_agreed(struct deployment *deployment)
{
    struct node *master = NULL;
    for (int i = 0; i < deployment->count; i++) {
        struct node *node = &deployment->nodes[i];
        if (!node->sentinel || !node_runs(node))
            continue;
        struct node *told = sentinel_announces(deployment, node);
        if (master && told != master)
            return NULL;
        master = told;
    }
    return master && node_is_master(master) ? master : NULL;
}

struct node *sentinels_master(struct deployment *deployment)
{
    struct node *master = NULL;
    AWAIT((master = sentinels_agreed(deployment)), DEPLOYED_MS);
    return master;
}

struct node *sentinels_replica(struct deployment *deployment, int nth)
{
    const struct node *master = sentinels_master(deployment);
    for (int i = 0; i < deployment->count; i++) {
        struct node *node = &deployment->nodes[i];
        if (!node->sentinel && node != master && nth-- == 0)
            return node;
    }
    fail_msg("there are not so many replicas");
    return NULL;
}

struct node *sentinels_sentinel(struct deployment *deployment, int nth)
{
    assert_true(nth < SENTINELS);
    return &deployment->nodes[deployment->count - SENTINELS + nth];
}

/* ---- Waiting ----------------------------------------------------------------------------------------- */

/* After a stall of the machine a sentinel takes no part in a failover for a while. */
static bool sentinel_in_tilt(struct node *sentinel)
{
    redisReply *reply = node_command(sentinel, "INFO sentinel");
    bool tilted = !strstr(reply->str, "sentinel_tilt:0");
    freeReplyObject(reply);
    return tilted;
}

/* The value of a field in a flat list of names and values. */
static const char *field(const redisReply *list, const char *name)
{
    for (size_t i = 0; i + 1 < list->elements; i += 2)
        if (strcmp(list->element[i]->str, name) == 0)
            return list->element[i + 1]->str;
    return "";
}

static bool sentinel_knows(struct node *sentinel, int replicas)
{
    redisReply *master = node_command(sentinel, "SENTINEL MASTER " SERVICE);
    redisReply *list = node_command(sentinel, "SENTINEL REPLICAS " SERVICE);
    bool knows = strcmp(field(master, "flags"), "master") == 0 &&
                 atoi(field(master, "num-slaves")) == replicas &&
                 atoi(field(master, "num-other-sentinels")) == SENTINELS - 1;
    for (size_t i = 0; i < list->elements; i++)
        knows = knows && strcmp(field(list->element[i], "flags"), "slave") == 0;
    freeReplyObject(master);
    freeReplyObject(list);
    return knows;
}

bool sentinels_settled(struct deployment *deployment)
{
    int replicas = deployment->count - SENTINELS - 1;
    for (int i = 0; i < deployment->count; i++)
        if (!node_runs(&deployment->nodes[i]))
            return false;
    struct node *master = sentinels_agreed(deployment);
    if (!master || replicas_online(master) != replicas)
        return false;
    for (int i = 0; i < SENTINELS; i++) {
        struct node *sentinel = sentinels_sentinel(deployment, i);
        if (sentinel_in_tilt(sentinel) || !sentinel_knows(sentinel, replicas))
            return false;
    }
    return true;
}

void sentinels_await_settled(struct deployment *deployment)
{
    AWAIT(sentinels_settled(deployment), DEPLOYED_MS);
}

struct node *sentinels_await_failover(struct deployment *deployment, const struct node *old)
{
    struct node *master = NULL;
    AWAIT((master = sentinels_agreed(deployment)) && master != old, DEPLOYED_MS);
    return master;
}

/* The sentinels refuse while the set is not ready for a failover. */
static bool failover_begun(struct deployment *deployment)
{
    for (int i = 0; i < SENTINELS; i++) {
        struct node *node = sentinels_sentinel(deployment, i);
        redisReply *reply = node_runs(node) ? node_try(node, "SENTINEL FAILOVER " SERVICE) : NULL;
        bool begun = reply && reply->type == REDIS_REPLY_STATUS;
        if (reply)
            freeReplyObject(reply);
        if (begun)
            return true;
    }
    return false;
}

struct node *sentinels_failover(struct deployment *deployment)
{
    const struct node *old = sentinels_master(deployment);
    struct node *master = NULL;
    int64_t again_ms = 0;
    /* Sentinels give up after the failover timeout, for instance if one of them takes the promoted
     * replica for a returning master. */
    for (int64_t end = now_ms() + patient_ms(2LL * DEPLOYED_MS); !master || master == old;) {
        if (now_ms() > end)
            fail_msg("the sentinels do not make another master");
        if (now_ms() > again_ms && failover_begun(deployment))
            again_ms = now_ms() + 2LL * FAILOVER_MS;
        nap_us(1000);
        master = sentinels_agreed(deployment);
    }
    return master;
}
