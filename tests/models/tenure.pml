/* tenure.pml - hand-over without a command: what a release may say whose number another hold has now.
 *
 * Models        core/engine/tenure.c, release.c (answers, repetitions, refusals), send.c (order, and what waits for a
 *               connection), core/lua/mutex_renew.lua, mutex_release.lua.
 * World         one server, one client with HOLDS callers of one lock.  A number is granted, goes from one hold to the next,
 *               and is released by the last.  Each release before that asks about the number.  At any time the connection
 *               may end, with requests and answers on it; the server may refuse to answer a question; and an operator may
 *               delete the key.
 * Bounds        LEASE ticks, HOLDS callers.  A number goes on only if no tick has passed, as a chain of hand-overs ends
 *               before that.  Nothing is renewed: a renewal changes nothing here but the time.  A number that was ended
 *               never comes back, so a request on a former connection does no harm, and there are none.
 * Assumptions   A1 (equal rates here, see renewal.pml).  What becomes of those who wait when the number is lost is
 *               cleanup.pml's and wakeup.pml's: here they have left before.
 * Properties    assert: a valid hold is the server's owner, unless the key was deleted.  "Released" is true: the number was
 *               there when its hold ended; with a repeated question it is only as true as a repeated release is.  "Lost"
 *               is true: the number was deleted, or its lease may have ended.  Who asks and finds nothing leaves no hold
 *               in the belief that it has the number.  Every release is answered, and nothing is left at the server.
 * Mutants       MUTANT_BEHIND         a question is sent behind the release of its number
 *               MUTANT_COUNTS_BEFORE  the answer to a question counts for releases that came after it was sent
 *               MUTANT_GONE_IS_LOSS   "it is gone" is a loss, although the question was repeated behind the release
 *               MUTANT_GONE_IS_FREE   "it is gone" after a repetition is no loss, although a hold has the number
 *               MUTANT_HEIR_STAYS     the hold that has the number is not told
 *               MUTANT_AGAIN_IS_NEW   a question that was refused counts as never sent
 *               MUTANT_FORGETS        those that share a question are not answered
 *
 * In a walk the server refuses nothing.
 *
 * run: -DSAFETY
 * unseen: MUTANT_AGAIN_IS_NEW
 */
#define CHANCE 2
#include "trace.inc"
#define LEASE 2
#ifdef FULL
#define HOLDS 5
#else
#define HOLDS 4
#endif
#define NOBODY HOLDS
#define ON_ITS_WAY 4

mtype = { NONE, WAITS, HELD, ASKS, ENDS, QUESTION, RELEASE, YES, NO, REFUSED, FREED, DELETED, EXPIRED, OK, LOST };

bool there, up = true, result, again;
bool found_none;                            /* the answer that was read just now */
byte left, safe;                            /* ticks until the lease ends; until the deadline of all that had the number */
mtype ended = NONE;                         /* how the number has left the server */
mtype phase[HOLDS] = NONE;
bool late[HOLDS];                           /* the number was gone when the hold ended */
byte holder = NOBODY, waiter = NOBODY;
byte behind, asking, mask, at;              /* sets of holds: a bit for each; questions without an answer */
mtype kind, said;
chan line = [ON_ITS_WAY] of { mtype, byte, bool };        /* to be executed, in order: what, for whom, a repetition */
chan back = [ON_ITS_WAY] of { mtype, byte, bool, mtype }; /* to be read */
chan refused = [ON_ITS_WAY] of { byte };                  /* questions to be asked again */
chan kept = [ON_ITS_WAY] of { mtype, byte };

#define IN(set, i) ((set >> i) & 1)
#define VALID (holder != NOBODY && safe > 0)
#define QUIET (holder == NOBODY && waiter == NOBODY && len(line) + len(back) + len(refused) == 0)

#ifdef REPLAY
#define SHOW() printf("@ is %d %d %d %d %d\n", there, left, (VALID -> holder : -1), up, len(line) + len(back));
#else
#define SHOW()
#endif

inline look() {
    SHOW()
    assert(!VALID || there || ended == DELETED);
    assert(!found_none || !VALID);
    mask = 0; at = 0; kind = NONE; said = NONE; result = false; again = false; found_none = false
}

inline gone(how) { ended = (there -> how : ended); there = false; left = 0 }

inline ask() {
    if
    :: behind != 0 -> line!QUESTION,behind,false; asking++; behind = 0
    :: else
    fi
}

active proctype Server() {
    do
    :: atomic { up && len(line) > 0 && len(back) < ON_ITS_WAY ->
        line?kind,mask,again;
        said = (there -> YES : NO);
        if
        :: kind == RELEASE -> gone(FREED)
        :: kind == QUESTION
#ifndef REPLAY
        :: kind == QUESTION -> said = REFUSED
#endif
        fi;
        SAY("@ execute %e %d\n", kind, said == YES)
        back!kind,mask,again,said; look() }
    :: atomic { SELDOM && there -> SPENT SAY("@ delete\n") gone(DELETED); look() }
    :: atomic { SELDOM && (waiter == NOBODY || safe != 1) -> SPENT SAY("@ tick\n")
        safe = (safe > 0 -> safe - 1 : 0);
        left = (left > 0 -> left - 1 : 0);
        if
        :: left == 0 -> gone(EXPIRED)
        :: else
        fi;
        look() }
    od
} /* unreached: it never ends */

/* The callers of a set of holds are told. */
inline tell(code) {
    at = 0;
    do
    :: at < HOLDS && IN(mask, at) ->
        SAY("@ told %d %e\n", at, code)
        assert(code == LOST || !late[at] || again);
        assert(code == OK || ended == DELETED || ended == EXPIRED || (again && safe == 0));
        phase[at] = NONE; late[at] = false; at++
#ifdef MUTANT_FORGETS
        break
#endif
    :: at < HOLDS && !IN(mask, at) -> at++
    :: at == HOLDS -> break
    od
}

inline answered() {
    back?kind,mask,again,said;
    SAY("@ read\n")
    result = (said == YES);
    if
    :: said == REFUSED -> refused!mask
    :: said != REFUSED && kind == RELEASE ->
        result = result || (again && safe > 0);
        if
        :: result -> tell(OK)
        :: else -> tell(LOST)
        fi
    :: said != REFUSED && kind == QUESTION ->
        asking--;
#ifdef MUTANT_GONE_IS_FREE
        result = result || (again && safe > 0);
#else
#ifndef MUTANT_GONE_IS_LOSS
        result = result || (again && !VALID && safe > 0);
#endif
#endif
#ifdef MUTANT_COUNTS_BEFORE
        mask = mask | behind; behind = 0;
#endif
        if
        :: result -> tell(OK)
        :: else ->
            tell(LOST);
#ifndef MUTANT_HEIR_STAYS
            if
            :: holder != NOBODY -> SAY("@ lost %d\n", holder) phase[holder] = NONE; holder = NOBODY
            :: else
            fi
#endif
        fi;
        found_none = (said == NO);
        if
        :: asking == 0 -> ask()
        :: else
        fi
    fi
}

/* All that is on its way is sent again, in the same order, once there is a connection. */
inline cut() {
    up = false;
    do
    :: len(back) > 0 -> back?kind,mask,again,said; kept!kind,mask
    :: len(back) == 0 && len(line) > 0 -> line?kind,mask,again; kept!kind,mask
    :: len(back) == 0 && len(line) == 0 -> break
    od;
    do
    :: len(kept) > 0 -> kept?kind,mask; line!kind,mask,true
    :: len(kept) == 0 -> break
    od
}

/* A hold ends: its number goes on, or it is the last. */
inline ends(what) { phase[holder] = what; late[holder] = !there }

active proctype Client() {
    do
    :: atomic { QUIET && up ->
        assert(!there && behind == 0 && asking == 0);
        do
        :: at < HOLDS -> assert(phase[at] == NONE); at++
        :: at == HOLDS -> break
        od;
        there = true; left = LEASE; safe = LEASE; ended = NONE; holder = 0; phase[0] = HELD;
        SAY("@ acquire 0\n")
        look() }
    :: atomic { VALID && waiter == NOBODY && len(line) + len(back) < ON_ITS_WAY ->
        do
        :: at < HOLDS && phase[at] != NONE -> at++
        :: else -> break
        od;
        if
        :: at < HOLDS -> SAY("@ wait %d\n", at) waiter = at; phase[at] = WAITS
        :: else
        fi;
        look() }
    :: atomic { waiter != NOBODY -> SAY("@ leave %d\n", waiter) phase[waiter] = NONE; waiter = NOBODY; look() }
    :: atomic { VALID && up && safe == LEASE && waiter != NOBODY && len(line) + len(back) < ON_ITS_WAY - 2 ->
        SAY("@ pass %d %d\n", holder, waiter)
        ends(ASKS);
        behind = behind | (1 << holder);
        holder = waiter; phase[holder] = HELD; waiter = NOBODY;
        if
        :: asking == 0 -> ask()
        :: else
        fi;
        look() }
    :: atomic { VALID && waiter == NOBODY && len(line) + len(back) < ON_ITS_WAY - 1 ->
        SAY("@ release %d\n", holder)
        ends(ENDS);
#ifndef MUTANT_BEHIND
        ask();
#endif
        line!RELEASE,(1 << holder),false;
        holder = NOBODY; look() }
    :: atomic { holder != NOBODY && safe == 0 && up && len(line) + len(back) < ON_ITS_WAY - 1 ->
        SAY("@ over %d\n", holder) /* lost, and what the server may have of it is released */
        phase[holder] = NONE;
        ask();
        line!RELEASE,0,false;
        holder = NOBODY; look() }
    :: atomic { up && len(back) > 0 && (waiter == NOBODY || back?[RELEASE,_,_,_] || back?[_,_,_,YES] || back?[_,_,_,REFUSED]) ->
        answered(); look() }
    :: atomic { len(refused) > 0 && len(line) + len(back) < ON_ITS_WAY ->
        refused?mask;
#ifdef MUTANT_AGAIN_IS_NEW
        line!QUESTION,mask,false;
#else
        line!QUESTION,mask,true;
#endif
        look() }
    :: atomic { SELDOM && up -> SPENT SAY("@ cut\n") cut(); look() }
    :: atomic { !up -> SAY("@ open\n") up = true; look() }
    od
} /* unreached: it never ends */
