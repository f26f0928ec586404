/* single.c - the route of a deployment that is one server. */
#include "engine/route.h"

static int single_begin(struct snib__engine *e)
{
    e->home = snib__node_new(e, SNIB__SERVER, e->config.seeds_n ? &e->config.seeds[0] : NULL);
    return e->home ? 0 : -1;
}

static struct snib__node *single_serves(struct snib__engine *e, const char *name, size_t n)
{
    (void)name, (void)n;
    return e->home;
}

const struct snib__route snib__single = {.begin = single_begin, .serves = single_serves};
