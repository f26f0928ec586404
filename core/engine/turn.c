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
static void turn_offer(struct snib__wait *wait, snib__time now)
{
    uint32_t ranks = wait->owed < TURN_RANKS ? wait->owed : TURN_RANKS;
    wait->offered_at = now;
    wait->offered_until = now + wait->patience + ranks * TURN_LEAST;
}

/* Other clients that listen are presumed to wait. */
bool snib__turn_contested(const struct snib__wait *wait)
{
    return wait->strangers > wait->absent;
}

/* A release begins: from here on messages may overtake its reply. */
void snib__turn_releasing(struct snib__wait *wait)
{
    wait->owed = 0;
    wait->early = 0;
}

/* A release message went to this many subscribers besides this client. */
void snib__turn_released(struct snib__engine *e, struct snib__gate *gate, int64_t strangers,
                         snib__time now)
{
    /* Redisson listens only while it waits: a client that has just had a turn
     * may be about to ask again. */
    if (gate->wait && gate->wait->came && strangers <= 0)
        strangers = 1;
    if (!gate->wait && strangers <= 0)
        return;
    struct snib__wait *wait = snib__wait_get(e, gate);
    if (!wait)
        return;
    wait->strangers = strangers <= 0           ? 0
                      : strangers < UINT16_MAX ? (uint32_t)strangers
                                               : UINT16_MAX;
    if (wait->patience == 0)
        wait->patience = TURN_PATIENCE;
    if (now >= wait->absent_until)
        wait->absent = 0;
    uint32_t gone = wait->absent + wait->early;
    wait->owed = wait->strangers > gone ? wait->strangers - gone : 0;
    wait->came = false;
    wait->waited_out = false;
    turn_offer(wait, now);
}

/* A stranger took this long to come: three times that is enough patience. */
static void turn_came(struct snib__wait *wait, snib__time took)
{
    if (3 * took < wait->patience)
        wait->patience -= (wait->patience - 3 * took) / 8;
    if (wait->patience < TURN_LEAST)
        wait->patience = TURN_LEAST;
}

/* A turn was taken although none was owed: one stranger that counted as absent is not. */
static void turn_unexpected(struct snib__wait *wait)
{
    if (wait->owed == 0 && wait->absent > 0 && --wait->absent == 0)
        wait->misses = 0;
}

/* A stranger has released the lock. */
void snib__turn_heard(struct snib__wait *wait, snib__time now)
{
    const struct snib__hold *active = snib__gate_active(wait->gate);
    /* no other gate of this client has the channel */
    wait->came |= !wait->chan_prev && !wait->chan_next;
    if (wait->owed == 0) {
        wait->early += active && active->phase == SNIB__RELEASING;
        turn_unexpected(wait);
        return;
    }
    turn_came(wait, now - wait->offered_at);
    wait->owed--;
    if (wait->owed == 0 && wait->absent == 0) { /* all of them have come */
        if (wait->uses < TURN_TRUSTED)
            wait->uses++;
        else
            wait->misses = 0;
    }
    turn_offer(wait, now);
}

/* Whether the first waiter must give way: not if its time ends before,
 * nor if it has only one try. */
bool snib__turn_is_theirs(const struct snib__wait *wait, const struct snib__op *op, snib__time now)
{
    return wait->owed > 0 && now < wait->offered_until && op->deadline > wait->offered_until &&
           !op->once;
}

/* Sleep while it is a stranger's turn. */
void snib__turn_give_way(struct snib__engine *e, struct snib__wait *wait, snib__time now)
{
    if (wait->chan)
        snib__chan_subscribe(e, wait->chan, now);
    wait->waited_out = true;
    snib__timer_set(e, SNIB__TIMER_WAIT, &wait->timer_at, wait->offered_until);
}

/* An attempt was refused: a stranger has taken the turn. */
void snib__turn_refused(struct snib__wait *wait)
{
    turn_unexpected(wait);
    wait->waited_out = false;
}

/* An attempt has worked.  After a full chance this means that the strangers
 * still owed a turn did not come. */
void snib__turn_granted(struct snib__wait *wait, snib__time now)
{
    if (wait->waited_out && wait->owed > 0 && now >= wait->offered_until) {
        if (wait->uses < TURN_TRUSTED) {
            snib__time chance = wait->offered_until - wait->offered_at;
            wait->absent += wait->owed;
            wait->absent_until = now + (TURN_ABSENT * chance << wait->misses);
            if (wait->misses < TURN_MISSES)
                wait->misses++;
        }
        wait->uses = 0;
        wait->patience = wait->patience < TURN_MOST / 2 ? 2 * wait->patience : TURN_MOST;
    }
    wait->owed = 0;
    wait->waited_out = false;
}
