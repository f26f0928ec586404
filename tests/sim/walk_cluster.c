/* walk_cluster.c - a cluster whose nodes need not agree: maps of any kind, redirects to any node, and refusals.
 *
 * Once it is calm, one node serves all slots, and every node says so, but answers what it is asked. */
#include "net/slot.h"
#include "walk.h"

#include <stdio.h>
#include <string.h>

enum { NODES = 3, PORT = 7001, SLOTS = 16384, INFO = 1 }; /* as in cluster.c */

void cluster_plan(struct snib__config *config)
{
    static struct snib__address seed;
    snib__address_host(&seed, "n1", 2, PORT, false);
    config->topology = SNIB__CLUSTER;
    config->seeds = &seed;
    config->seeds_n = 1;
    config->publish = SNIB_PUBLISH_AUTO + (int32_t)walk_draw(4);
    walk.cluster = true;
}

static unsigned some_node(void)
{
    return walk.calm ? 1 : 1 + (unsigned)walk_draw(NODES);
}

/* The reply to a question of the route's, without its last line end. */
void cluster_answer(uint64_t what, char *out)
{
    char text[100];
    if (what == INFO) {
        int n = snprintf(text, sizeof text, "cluster_state:ok\r\ncluster_current_epoch:%u\r\n",
                         walk.calm ? 1000 : 1 + (unsigned)walk_draw(20));
        snprintf(out, WALK_TEXT, "$%d\r\n%s", n, text);
        return;
    }
    unsigned ranges = walk.calm ? 1 : (unsigned)walk_draw(4); /* none: it knows no cluster yet */
    int n = snprintf(out, WALK_TEXT, "*%u\r\n", ranges);
    for (unsigned i = 0; i < ranges; i++) {
        n += snprintf(out + n, WALK_TEXT - (size_t)n,
                      "*3\r\n:%u\r\n:%u\r\n*2\r\n$2\r\nn%u\r\n:%d\r\n", i * SLOTS / ranges,
                      (i + 1) * SLOTS / ranges - 1, some_node(), PORT);
    }
    out[n - 2] = '\0';
}

static const char *refusal(unsigned slot)
{
    static char text[64];
    if (!walk.cluster || walk.calm || !walk_chance(walk.strays)) {
        return NULL;
    }
    if (walk_chance(2)) {
        walk_happens(WALK_NOWHERE);
        return walk_one("-CLUSTERDOWN The cluster is down", "-TRYAGAIN Multiple keys request",
                        "-ERR Script attempted to access a non local key in a cluster node");
    }
    walk_happens(WALK_REDIRECT);
    snprintf(text, sizeof text, "-%s %u n%u:%d", walk_one("MOVED", "ASK"), slot, some_node(), PORT);
    return text;
}

/* An error that sends the request elsewhere, or that says that no node serves it now; NULL: neither. */
const char *cluster_refusal(const struct snib__request *request)
{
    const struct snib__gate *gate = request->gate;
    bool own = request->kind < 0 || snib__request_own(request);
    return own ? NULL : refusal(gate ? gate->slot : (unsigned)walk_draw(SLOTS));
}

/* The same for a subscription to a sharded channel. */
const char *cluster_misplaced(const char *channel)
{
    return refusal(snib__slot(channel, strlen(channel)));
}
