/* turn.c - giving way: waiters of other clients have their turns, too.
 *
 * A client that has just released a lock could have it back before any other client has even heard
 * of the release.  So it lets the strangers go first: the other clients that listen, as counted by
 * the release's reply.  It does not try until it has heard as many of their releases.  Clients that
 * all do so take turns in a ring, each with one chain of hand-overs, and no two of them ask for the
 * same release.  A client that tries at every message, as Redisson does, has its place in the ring
 * while all others give way.
 *
 * A stranger may be dead or slow, or may listen without waiting, so a chance ends after a while.
 * The more turns are still owed, the longer the chance, so that clients whose turn is near come
 * first.  Strangers that let a chance pass count as absent until a longer one is offered, so much
 * later that little time is lost.  While no other client listens, nothing is owed and all this
 * costs nothing.
 *
 * Messages do not tell whose they are.  A stranger's that comes after this client's next release is
 * taken for its own, and its own for that of a stranger's next turn.  That can happen if a chance ends
 * just after the stranger's release: then this client asks for one release too early, which the server
 * decides.  To pass over messages in doubt would be worse: a turn that was taken would stay owed, and
 * each such mistake costs a whole chance.
 */
#include "engine/internal.h"

#define TURN_PATIENCE (1 * SNIB__MS)   /* how long a stranger may take until that is measured */
#define TURN_LEAST (3 * SNIB__MS / 10) /* ... at least */
#define TURN_MOST (20 * SNIB__MS)      /* ... at most */
#define TURN_RANKS 4                   /* turns owed lengthen a chance up to this many */
#define TURN_ABSENT 4  /* an unused chance is not repeated for this many times its length, */
#define TURN_MISSES 3  /* ... doubled at most this often */
#define TURN_TRUSTED 4 /* after this many used chances in a row one miss is ignored */

/* The next stranger's chance starts now. */
static void turn_offer(struct snib__waitq *waitq, snib__time now)
{
    uint32_t ranks = waitq->owed < TURN_RANKS ? waitq->owed : TURN_RANKS;
    waitq->offered_at = now;
    waitq->offered_until = now + waitq->patience + ranks * TURN_LEAST;
}

/* Other clients that listen are presumed to wait. */
bool snib__turn_contested(const struct snib__waitq *waitq)
{
    return waitq->strangers > waitq->absent;
}

/* A release begins: from here on messages may overtake its reply. */
void snib__turn_releasing(struct snib__waitq *waitq)
{
    waitq->owed = 0;
    waitq->early = 0;
}

/* A release message went to this many subscribers besides this client. */
void snib__turn_released(struct snib__engine *e, struct snib__gate *gate, int64_t strangers,
                         snib__time now)
{
    /* Redisson listens only while it waits: a client that has just had a turn
     * may be about to ask again. */
    if (gate->waitq && gate->waitq->came && strangers <= 0)
        strangers = 1;
    if (!gate->waitq && strangers <= 0)
        return;
    struct snib__waitq *waitq = snib__waitq_get(e, gate);
    if (!waitq)
        return;
    waitq->strangers = strangers <= 0           ? 0
                       : strangers < UINT16_MAX ? (uint32_t)strangers
                                                : UINT16_MAX;
    if (waitq->patience == 0)
        waitq->patience = TURN_PATIENCE;
    if (now >= waitq->absent_until)
        waitq->absent = 0;
    uint32_t gone = waitq->absent + waitq->early;
    waitq->owed = waitq->strangers > gone ? waitq->strangers - gone : 0;
    waitq->came = false;
    waitq->waited_out = false;
    turn_offer(waitq, now);
}

/* A stranger took this long to come: three times that is enough patience. */
static void turn_came(struct snib__waitq *waitq, snib__time took)
{
    if (3 * took < waitq->patience)
        waitq->patience -= (waitq->patience - 3 * took) / 8;
    if (waitq->patience < TURN_LEAST)
        waitq->patience = TURN_LEAST;
}

/* A turn was taken although none was owed: one stranger that counted as absent is not. */
static void turn_unexpected(struct snib__waitq *waitq)
{
    if (waitq->owed == 0 && waitq->absent > 0 && --waitq->absent == 0)
        waitq->misses = 0;
}

/* A stranger has released the lock. */
void snib__turn_heard(struct snib__waitq *waitq, snib__time now)
{
    const struct snib__hold *active = snib__gate_active(waitq->gate);
    /* no other gate of this client has the channel */
    waitq->came |= !waitq->chan_prev && !waitq->chan_next;
    if (waitq->owed == 0) {
        waitq->early += active && active->phase == SNIB__RELEASING;
        turn_unexpected(waitq);
        return;
    }
    turn_came(waitq, now - waitq->offered_at);
    waitq->owed--;
    if (waitq->owed == 0 && waitq->absent == 0) { /* all of them have come */
        if (waitq->uses < TURN_TRUSTED)
            waitq->uses++;
        else
            waitq->misses = 0;
    }
    turn_offer(waitq, now);
}

/* Whether the first waiter must give way: not if its time ends before,
 * nor if it has only one try. */
bool snib__turn_is_theirs(const struct snib__waitq *waitq, const struct snib__op *op,
                          snib__time now)
{
    return waitq->owed > 0 && now < waitq->offered_until && op->deadline > waitq->offered_until &&
           !op->once;
}

/* Sleep while it is a stranger's turn. */
void snib__turn_give_way(struct snib__engine *e, struct snib__waitq *waitq, snib__time now)
{
    if (waitq->chan)
        snib__chan_subscribe(e, waitq->chan, now);
    waitq->waited_out = true;
    snib__timer_set(e, SNIB__TIMER_WAITQ, &waitq->timer_at, waitq->offered_until);
}

/* An attempt was refused: a stranger has taken the turn. */
void snib__turn_refused(struct snib__waitq *waitq)
{
    turn_unexpected(waitq);
    waitq->waited_out = false;
}

/* An attempt has worked.  After a full chance this means that the strangers
 * still owed a turn did not come. */
void snib__turn_granted(struct snib__waitq *waitq, snib__time now)
{
    if (waitq->waited_out && waitq->owed > 0 && now >= waitq->offered_until) {
        if (waitq->uses < TURN_TRUSTED) {
            snib__time chance = waitq->offered_until - waitq->offered_at;
            waitq->absent += waitq->owed;
            waitq->absent_until = now + (TURN_ABSENT * chance << waitq->misses);
            if (waitq->misses < TURN_MISSES)
                waitq->misses++;
        }
        waitq->uses = 0;
        waitq->patience = waitq->patience < TURN_MOST / 2 ? 2 * waitq->patience : TURN_MOST;
    }
    waitq->owed = 0;
    waitq->waited_out = false;
}
