/* sentinels.c - the sentinels that are known, and what most of them say.
 *
 * The URL names some; each that is asked names the others.  One process may have two addresses, and
 * a sentinel that was started anew elsewhere leaves one behind, so addresses are not votes.
 */
#include "engine/sentinel.h"

#include <string.h>

#define SENTINELS_LEARNT 16 /* with this many known, no more are learnt */

struct snib__sentinel *snib__sentinel_of(const struct snib__engine *e,
                                         const struct snib__node *node)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    for (uint32_t i = 0; i < map->n; i++)
        if (map->all[i].node == node)
            return &map->all[i];
    return NULL;
}

static struct snib__sentinel *sentinel_at(const struct snib__engine *e,
                                          const struct snib__address *address)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    for (uint32_t i = 0; i < map->n; i++)
        if (snib__address_equal(&map->all[i].node->address, address))
            return &map->all[i];
    return NULL;
}

bool snib__sentinel_add(struct snib__engine *e, const struct snib__address *address, bool named)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    if (sentinel_at(e, address) || map->n == SNIB__SENTINELS_MAX)
        return true;
    struct snib__node *node = snib__node_new(e, SNIB__A_SENTINEL, address);
    if (node)
        map->all[map->n++] =
            (struct snib__sentinel){.node = node, .named = named, .stranger = !named};
    return node != NULL;
}

/* It has failed again and again. */
static bool sentinel_is_missing(const struct snib__sentinel *one)
{
    return one->shun == SNIB__SENTINEL_SHUN;
}

/* Sentinels that are started anew elsewhere have other addresses, and those of before would soon be all that there is room
 * for.  The URL's are kept. */
void snib__sentinel_learn(struct snib__engine *e, const struct snib__address *address)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    if (map->n < SENTINELS_LEARNT) {
        snib__sentinel_add(e, address, false);
        return;
    }
    for (uint32_t i = 0; i < map->n && !sentinel_at(e, address); i++) {
        struct snib__sentinel *one = &map->all[i];
        struct snib__node *node = one->node;
        if (one->named || one->asked || !sentinel_is_missing(one) || node == e->home->blamed ||
            !snib__link_rests(&node->links[SNIB__COMMAND]) ||
            !snib__link_rests(&node->links[SNIB__PUBSUB]))
            continue;
        snib__node_rename(e, node, address);
        *one = (struct snib__sentinel){.node = node, .stranger = true, .identity = node->identity};
    }
}

bool snib__sentinel_vouches(const struct snib__engine *e, const struct snib__sentinel *stranger,
                            const struct snib__address *address)
{
    const struct snib__sentinel *other = sentinel_at(e, address);
    return other && other != stranger && !other->outvoted && (other->named || !other->stranger);
}

/* ---- more than half of them ---- */

/* How many processes these are, a bit for each sentinel; one may have two addresses. */
static uint32_t sentinels_processes(const struct snib__sentinels *map, uint32_t which)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < map->n; i++) {
        const char *run = map->all[i].node->run_id;
        bool again = false;
        for (uint32_t j = 0; j < i && run[0]; j++)
            again |= which >> j & 1 && strcmp(map->all[j].node->run_id, run) == 0;
        n += which >> i & 1 && !again;
    }
    return n;
}

/* More than half of all: of as many as they know themselves, or as the URL names, or as are there; addresses that have led
 * nowhere for long do not count.  Where they do not say how many they know, or which processes they are, it takes more than
 * half of all addresses. */
static bool sentinels_are_most(const struct snib__engine *e, uint32_t which)
{
    const struct snib__sentinels *map = snib__sentinels_of(e);
    uint32_t named = 0, there = 0, addresses = 0, most = e->config.seeds_n;
    for (uint32_t i = 0; i < map->n; i++) {
        const struct snib__sentinel *one = &map->all[i];
        bool says = one->voters > 0 && one->node->run_id[0];
        addresses += which >> i & 1;
        there |= sentinel_is_missing(one) ? 0 : 1u << i;
        if (!(which >> i & 1) || !says)
            continue;
        named |= 1u << i;
        most = one->voters > most ? one->voters : most;
    }
    there = sentinels_processes(map, there);
    most = there > most ? there : most;
    return 2 * sentinels_processes(map, named) > most || 2 * addresses > map->n;
}

/* Those that answer like this one. */
static uint32_t sentinels_alike(const struct snib__sentinels *map, const struct snib__sentinel *one)
{
    uint32_t which = 0;
    for (uint32_t i = 0; i < map->n; i++) {
        const struct snib__sentinel *other = &map->all[i];
        if (other->outcome == SNIB__OUTCOME_STALE && other->epoch == one->epoch &&
            snib__address_equal(&other->address, &one->address))
            which |= 1u << i;
    }
    return which;
}

const struct snib__sentinel *snib__sentinels_of_most(const struct snib__engine *e)
{
    const struct snib__sentinels *map = snib__sentinels_of(e);
    for (uint32_t i = 0; i < map->n; i++) {
        const struct snib__sentinel *one = &map->all[i];
        if (one->outcome != SNIB__OUTCOME_STALE || (one->epoch >= map->epoch && !one->stranger))
            continue;
        if (sentinels_are_most(e, sentinels_alike(map, one)))
            return one;
    }
    return NULL;
}
