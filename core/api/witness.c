/* witness.c - further queues that are told of a loss.
 *
 * A hold reports its loss to one queue, that of its first acquire.  An owner that re-enters through
 * another queue, such as another thread's or loop's, is told there, too.  That queue is recorded
 * here when the re-entry succeeds, in a list of the client that is nearly always empty, so that the
 * loss itself needs no memory.
 */
#include "api/objects.h"

#include "api/say.h"
#include "driver/sys.h"

#include <stdlib.h>
#include <string.h>

struct snib__witness {
    struct snib__witness *next;
    struct snib__hold *hold;
    struct snib__queue *queue;
    uint64_t token;
    bool due; /* the hold was lost, which the queue has not reported yet */
};

/* The link that points to the next witness of a hold or of a queue; NULL: there is none. */
static struct snib__witness **witness_find(struct snib__witness **at, const struct snib__hold *hold,
                                           const struct snib__queue *queue)
{
    while (*at && (*at)->hold != hold && (*at)->queue != queue)
        at = &(*at)->next;
    return *at ? at : NULL;
}

static void witness_end(struct snib__witness **at)
{
    struct snib__witness *witness = *at;
    *at = witness->next;
    witness->queue->witnessed -= witness->due;
    free(witness);
}

static void witness_due(struct snib__witness *witness)
{
    if (witness->due)
        return;
    witness->due = true;
    if (witness->queue->witnessed++ == 0)
        snib__sys_ring(witness->queue->bell->fd);
}

int snib__witness_add(struct snib__client *client, struct snib__hold *hold,
                      struct snib__queue *queue, uint64_t token)
{
    if (!queue || hold->sink == queue)
        return 0;
    if (!hold->sink && (hold->phase == SNIB__HELD || hold->phase == SNIB__LOST)) {
        hold->sink = queue; /* its first */
        hold->token = token;
        hold->tell = 1;
        if (hold->phase == SNIB__LOST)
            snib__queue_push_lost(queue, hold, NULL);
        return 0;
    }
    for (struct snib__witness *known = client->witnesses; known; known = known->next)
        if (known->hold == hold && known->queue == queue)
            return 0;
    struct snib__witness *witness = malloc(sizeof *witness);
    if (!witness)
        return -1;
    *witness = (struct snib__witness){client->witnesses, hold, queue, token, false};
    client->witnesses = witness;
    if (hold->phase == SNIB__LOST)
        witness_due(witness);
    return 0;
}

void snib__witness_lost(struct snib__client *client, const struct snib__hold *hold)
{
    for (struct snib__witness *witness = client->witnesses; witness; witness = witness->next)
        if (witness->hold == hold)
            witness_due(witness);
}

struct snib__hold *snib__witness_take(struct snib__queue *queue, uint64_t *out_token)
{
    struct snib__witness **at = &queue->client->witnesses;
    while ((at = witness_find(at, NULL, queue)) && !(*at)->due)
        at = &(*at)->next;
    if (!at)
        return NULL;
    struct snib__hold *hold = (*at)->hold;
    *out_token = (*at)->token;
    witness_end(at);
    return hold;
}

void snib__witness_forget_hold(struct snib__client *client, const struct snib__hold *hold)
{
    for (struct snib__witness **at = &client->witnesses; (at = witness_find(at, hold, NULL));)
        witness_end(at);
}

void snib__witness_forget_queue(struct snib__client *client, const struct snib__queue *queue)
{
    for (struct snib__witness **at = &client->witnesses; (at = witness_find(at, NULL, queue));)
        witness_end(at);
    /* Where it was a hold's first queue, a witness takes its place. */
    for (struct snib__witness **at = &client->witnesses, *witness; (witness = *at);) {
        struct snib__hold *hold = witness->hold;
        if (hold->sink || hold->phase != SNIB__HELD) {
            at = &witness->next;
            continue;
        }
        snib__witness_add(client, hold, witness->queue, witness->token);
        witness_end(at);
    }
}
