/* pause.c - requests that no node can serve now and none has carried out: resent after a pause.
 *
 * The reason is that a slot is migrating (TRYAGAIN), that the cluster has lost a master
 * (CLUSTERDOWN), or that nodes redirect a request in a circle.  The pauses of a request grow to a
 * sixth of a second and have jitter, and where a node has thousands of them to more, so that a cluster that
 * comes up is not kept busy by those that wait for it; but a renewal is repeated several times before its lease ends.  An operation is as patient with this as with a server that
 * cannot be reached; a release continues until its lease has certainly ended, a renewal as long as
 * there are holds in it.
 */
#include "engine/internal.h"

#include <stdlib.h>

#define PAUSE_MIN (5 * SNIB__MS)
#define PAUSE_DOUBLINGS 5
#define PAUSE_EACH                                                                                 \
    (SNIB__MS / 4) /* for each that is paused: some thousands are resent in a second */

#define PAUSE_SHARE 4 /* a renewal's pause is at most this part of what is left of its lease */

/* The node of the name that the request is for. */
static struct snib__node *pause_node(const struct snib__request *request)
{
    if (request->kind == SNIB__REQ_RENEW)
        return ((struct snib__batch *)request->subject)->node;
    if (request->kind == SNIB__REQ_ASK)
        return snib__op_node(request->subject);
    return ((struct snib__hold *)request->subject)->gate->node;
}

/* The longest pause of a renewal: the cursor of its list has passed its holds, so nothing else renews them in time. */
static snib__time pause_most(const struct snib__request *request, snib__time now)
{
    const struct snib__batch *batch = request->subject;
    snib__time first = SNIB__NEVER;
    for (uint32_t i = 0; request->kind == SNIB__REQ_RENEW && i < batch->n; i++) {
        const struct snib__hold *hold = batch->of[i].hold;
        if (hold->number == batch->of[i].number && hold->deadline < first)
            first = hold->deadline;
    }
    if (first == SNIB__NEVER)
        return first;
    snib__time share = first > now ? (first - now) / PAUSE_SHARE : 0;
    return share > PAUSE_MIN ? share : PAUSE_MIN;
}

static snib__time pause_length(struct snib__engine *e, const struct snib__request *request,
                               const struct snib__node *node, snib__time now)
{
    snib__time most =
        PAUSE_MIN << (request->pauses < PAUSE_DOUBLINGS ? request->pauses : PAUSE_DOUBLINGS);
    if (most < node->paused_n * PAUSE_EACH)
        most = node->paused_n * PAUSE_EACH;
    snib__time share = pause_most(request, now);
    most = most < share ? most : share;
    return most / 2 + snib__engine_random(e, most / 2);
}

/* What a server said of a request that it does not serve, and since when that counts. */
struct refusal {
    const char *text;
    uint32_t n;
    snib__time since;
};

/* The operation's patience with servers that do not serve the name starts or, with NULL, ends here, and with it what they
 * said. */
static void pause_mark(struct snib__engine *e, struct snib__op *op, const struct refusal *refusal)
{
    if (!op || !refusal == !op->refused_since)
        return;
    op->refused_since = refusal ? refusal->since : 0;
    snib__op_quote(e, op, refusal ? refusal->text : "", refusal ? refusal->n : 0);
    snib__op_arm(e, op);
}

/* Operations that wait for the gate's request without one of their own: in the queue, for a hold that is passed on to
 * them, or for the answer to a question that they share, see tenure.c.  Each is told why, because the operation whose
 * request it was may be over. */
static void pause_mark_all(struct snib__engine *e, struct snib__waitq *waitq,
                           const struct refusal *refusal)
{
    waitq->refused = refusal != NULL;
    for (struct snib__op *op = waitq->head; op; op = op->next)
        pause_mark(e, op, refusal);
    if (waitq->incoming)
        pause_mark(e, waitq->incoming->op, refusal);
    for (struct snib__hold *hold = waitq->behind; hold; hold = hold->next)
        pause_mark(e, hold->op, refusal);
    for (struct snib__hold *first = waitq->asked; first; first = first->prev)
        for (struct snib__hold *hold = first; hold; hold = hold->next)
            pause_mark(e, hold->op, refusal);
}

/* The gate that the request keeps from going on, or NULL. */
static struct snib__gate *pause_gate(const struct snib__request *request)
{
    bool held = request->kind == SNIB__REQ_ACQUIRE || request->kind == SNIB__REQ_RELEASE ||
                request->kind == SNIB__REQ_TRANSFER;
    return held && request->subject ? ((struct snib__hold *)request->subject)->gate : NULL;
}

/* A server has handled the request, so the operations that wait for it no longer count refusals. */
void snib__pause_served(struct snib__engine *e, const struct snib__request *request)
{
    struct snib__gate *gate = pause_gate(request);
    pause_mark(e, request->subject ? snib__request_op(request) : NULL, NULL);
    if (gate && gate->waitq && gate->waitq->refused)
        pause_mark_all(e, gate->waitq, NULL);
}

/* The patience of the request's operation starts here, and that of those that wait for it. */
static void pause_note(struct snib__engine *e, const struct snib__request *request,
                       const char *text, uint32_t n, snib__time now)
{
    struct snib__op *op = snib__request_op(request);
    struct snib__gate *gate = pause_gate(request);
    struct refusal refusal = {.text = text, .n = n, .since = now - 1};
    if (gate && gate->waitq) /* a moment earlier, so that none of them is sent in the end */
        pause_mark_all(e, gate->waitq, &refusal);
    if (!op)
        return;
    op->link = NULL;
    refusal.since = now;
    pause_mark(e, op, &refusal);
}

/* ---- the heap ---- */

/* Find the place of one, from a free place on. */
static void pause_settle(struct snib__engine *e, uint32_t i, const struct snib__paused *one)
{
    struct snib__paused *heap = e->paused;
    while (i > 0 && heap[(i - 1) / 2].until > one->until) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    for (uint32_t child; (child = 2 * i + 1) < e->paused_n; i = child) {
        child += child + 1 < e->paused_n && heap[child + 1].until < heap[child].until;
        if (heap[child].until >= one->until)
            break;
        heap[i] = heap[child];
    }
    heap[i] = *one;
}

static void pause_remove(struct snib__engine *e, uint32_t i)
{
    e->paused[i].node->paused_n--;
    struct snib__paused last = e->paused[--e->paused_n];
    if (i < e->paused_n)
        pause_settle(e, i, &last);
}

/* ---- */

int snib__pause(struct snib__engine *e, const struct snib__request *request, const char *text,
                uint32_t n, snib__time now)
{
    if (e->paused_n == e->paused_cap) {
        uint32_t cap = e->paused_cap ? e->paused_cap * 2 : 16;
        struct snib__paused *paused = realloc(e->paused, cap * sizeof *paused);
        if (!paused)
            return -1;
        e->paused = paused;
        e->paused_cap = cap;
    }
    struct snib__paused paused = {.request = *request, .node = pause_node(request)};
    paused.node->paused_n++;
    paused.until = now + pause_length(e, request, paused.node, now);
    paused.request.redirects = 0;
    paused.request.asking = false;
    if (paused.request.pauses < UINT8_MAX)
        paused.request.pauses++;
    pause_settle(e, e->paused_n++, &paused);
    pause_note(e, request, text, n, now);
    return 0;
}

bool snib__pause_has(const struct snib__engine *e, const void *subject)
{
    for (uint32_t i = 0; i < e->paused_n; i++)
        if (e->paused[i].request.subject == subject)
            return true;
    return false;
}

bool snib__pause_drop(struct snib__engine *e, const void *subject)
{
    for (uint32_t i = 0; i < e->paused_n; i++)
        if (e->paused[i].request.subject == subject) {
            pause_remove(e, i);
            return true;
        }
    return false;
}

static void pause_over(struct snib__engine *e, struct snib__request *request, snib__time now)
{
    struct snib__hold *hold = request->subject;
    if (request->kind == SNIB__REQ_RENEW)
        snib__watchdog_again(e, request, false, now);
    else if (request->kind == SNIB__REQ_ACQUIRE && !hold->op)
        snib__gate_unanswered(e, request, now); /* an earlier try may have worked */
    else if (request->kind == SNIB__REQ_RELEASE && !hold->op && snib__release_lapsed(e, hold, now))
        snib__gate_retry_release(e, hold, now); /* which ends it */
    else if (request->kind == SNIB__REQ_TRANSFER && !hold->op && !hold->gate->waitq->incoming->op &&
             snib__release_lapsed(e, hold, now))
        snib__sole_answer_transfer(e, hold, request->sent_at, NULL, 0, SNIB_ESERVER, "", now);
    else
        snib__node_again(e, request, now);
}

/* What is paused again meanwhile is due later. */
void snib__pause_tick(struct snib__engine *e, snib__time now)
{
    while (e->paused_n > 0 && e->paused[0].until <= now) {
        struct snib__request request = e->paused[0].request;
        pause_remove(e, 0);
        pause_over(e, &request, now);
    }
}

snib__time snib__pause_deadline(const struct snib__engine *e)
{
    return e->paused_n > 0 ? e->paused[0].until : SNIB__NEVER;
}
