/* renewal.pml - a hold is valid only while the server keeps the lock for it, however late answers come.
 *
 * Models        core/engine/watchdog.c, core/engine/hold.c, core/lua/mutex_*.lua: renewal after a third of the lease,
 *               the deadline V counted from before the send, "lost is final", a grant that comes too late.
 * World         one server, NC clients with one lock.  A request waits on its way, is executed, and its answer waits
 *               on its way back, for any time.  A cut ends the connection: what was not executed may be lost, or may
 *               still run later (one such request a client at a time); answers are lost; the requests are repeated.
 *               The engine may notice a deadline late, or never.  Once the server may forget the lock.
 * Bounds        LEASE ticks, TRIES acquisitions a client; whose clock ERRS, whose connection BREAKS.  Time has no
 *               bound: only differences are stored.
 * Assumptions   A1: within a lease a client's clock loses at most one tick, which is what MARGIN is for.  (A clock
 *               that is fast only ends its own holds early.)  A3, except where `forgot` says otherwise.
 * Properties    assert: a valid hold is the server's owner, so two are never valid together; no hold is valid
 *               again after its V or its loss.
 * Mutants       MUTANT_FROM_REPLY    the lease counts from the reply
 *               MUTANT_NO_MARGIN     the deadline has no margin for the clock's rate
 *               MUTANT_TIMER_ONLY    validity is what the engine has noticed, not what the clock says
 *               MUTANT_REVIVES       an answer after the deadline extends the hold
 *               MUTANT_RELEASE_ANY   the release deletes the lock, whoever owns it
 *
 * run: -DSAFETY
 */
#define CHANCE 2
#include "trace.inc"
#define NC 2
#ifdef REPLAY
#define LEASE 3
#define TRIES 100
#define ERRS(c) true
#define BREAKS(c) true
#elif defined(FULL)
#define LEASE 3
#define TRIES 1
#define ERRS(c) true
#define BREAKS(c) true
#else
#define LEASE 3
#define TRIES 1
#define ERRS(c) (c == 1)   /* whose clock loses ticks */
#define BREAKS(c) (c == 0) /* whose connection ends */
#endif
#ifdef MUTANT_NO_MARGIN
#define MARGIN 0
#else
#define MARGIN 1
#endif
#define PERIOD (LEASE / 3)
#define SAFE (LEASE - MARGIN)

mtype = { NONE, NEW, TRYING, HELD, LOST, RELEASING, ACQUIRE, RELEASE, RENEW, SENT, YES, NO };

byte owner, left; /* the server's: the number that holds the lock, 0: none; ticks until its lease ends */
bool forgot;      /* the server has lost the lock: A3 does not hold */
mtype phase[NC] = NEW;
byte number[NC], tries[NC];
byte safe[NC]; /* ticks until V by the client's clock; 0: it has passed */
/* Two requests may be on their way, in this order: a renewal, and an acquire or a release. */
mtype renew[NC] = NONE;
byte renew_age[NC]; /* ticks since it was sent */
mtype ask[NC] = NONE, asked[NC] = NONE;
byte ask_age[NC];
bool anew[NC];        /* reconnected: renew at once */
mtype stale[NC] = NONE; /* left on the lost connection */
byte stale_number[NC];
byte steady[NC]; /* ticks since the clock last lost one, at most LEASE */
bool over[NC];   /* its V has passed, or it is lost */
bool known[NC];  /* lost because the server said so */
bool yes;

#ifdef MUTANT_TIMER_ONLY
#define VALID(c) (phase[c] == HELD)
#else
#define VALID(c) (phase[c] == HELD && safe[c] > 0)
#endif
#ifdef MUTANT_FROM_REPLY
#define FROM(age) SAFE
#else
#define FROM(age) (age < SAFE -> SAFE - age : 0)
#endif

#ifdef REPLAY
#define SHOW() \
    printf("@ is %d %d  %d %d %d  %d %d %d\n", owner, left, \
           VALID(0), (renew[0] != NONE), (ask[0] != NONE), VALID(1), (renew[1] != NONE), (ask[1] != NONE));
#else
#define SHOW()
#endif

inline look() {
    SHOW()
    assert(forgot || !VALID(0) || owner == number[0]);
    assert(forgot || !VALID(1) || owner == number[1]);
    assert(forgot || !VALID(0) || !VALID(1));
    assert(!VALID(0) || !over[0]);
    assert(!VALID(1) || !over[1])
}

inline execute(kind, n) {
    if
    :: kind == ACQUIRE && (owner == 0 || owner == n) -> owner = n; left = LEASE; yes = true
    :: kind == RENEW && owner == n -> left = LEASE; yes = true
#ifdef MUTANT_RELEASE_ANY
    :: kind == RELEASE && owner != 0 -> owner = 0; left = 0; yes = true
#else
    :: kind == RELEASE && owner == n -> owner = 0; left = 0; yes = true
#endif
    :: else -> yes = false
    fi
}

proctype Server(byte c) {
    do
    :: atomic { renew[c] == SENT ->
        execute(RENEW, number[c]);
        SAY("@ execute %d %e %d\n", c, RENEW, yes)
        renew[c] = (yes -> YES : NO); yes = false; look() }
    :: atomic { asked[c] == SENT && renew[c] != SENT ->
        execute(ask[c], number[c]);
        SAY("@ execute %d %e %d\n", c, ask[c], yes)
        asked[c] = (yes -> YES : NO); yes = false; look() }
    :: atomic { stale[c] != NONE ->
        execute(stale[c], stale_number[c]);
        SAY("@ former %d %e %d\n", c, stale[c], yes)
        stale[c] = NONE; stale_number[c] = 0; yes = false; look() }
    :: atomic { SELDOM && c == 0 && owner != 0 && !forgot ->
        SPENT SAY("@ forget\n")
        forgot = true; owner = 0; left = 0; look() }
    od
} /* unreached: it never ends */

inline advance(c) {
    if
    :: true ->
        SAY("@ clock %d\n", c)
        safe[c] = (safe[c] > 0 -> safe[c] - 1 : 0);
        over[c] = over[c] || (phase[c] == HELD && safe[c] == 0);
        renew_age[c] = (renew[c] != NONE && renew_age[c] < LEASE -> renew_age[c] + 1 : renew_age[c]);
        ask_age[c] = (ask[c] != NONE && ask_age[c] < LEASE -> ask_age[c] + 1 : ask_age[c]);
        steady[c] = (ERRS(c) && steady[c] < LEASE -> steady[c] + 1 : steady[c])
    :: ERRS(c) && steady[c] == LEASE -> steady[c] = 0 /* this clock loses the tick */
    fi
}

active proctype Clock() {
    do
    :: atomic { SELDOM ->
        SPENT SAY("@ server\n")
        left = (left > 0 -> left - 1 : 0);
        owner = (left == 0 -> 0 : owner);
        advance(0);
        advance(1);
        look() }
    od
} /* unreached: it never ends */

inline send(c, kind) { ask[c] = kind; asked[c] = SENT; ask_age[c] = 0 }
inline done(c) { ask[c] = NONE; asked[c] = NONE; ask_age[c] = 0 }
inline lose(c, by_answer) { phase[c] = LOST; known[c] = by_answer; over[c] = true; safe[c] = 0; anew[c] = false }

/* A cut: the first k requests that were not executed are left on the lost connection; here at most one. */
inline keep(c, kind) {
    if
    :: stale[c] == NONE -> SAY("@ left %d\n", c) stale[c] = kind; stale_number[c] = number[c]
    :: true
    fi
}

proctype Client(byte c) {
    do
    :: atomic { phase[c] == NEW && tries[c] < TRIES ->
        SAY("@ acquire %d %d\n", c, c * TRIES + tries[c] + 1)
        tries[c]++; number[c] = c * TRIES + tries[c]; over[c] = false; known[c] = false;
        phase[c] = TRYING; send(c, ACQUIRE); look() }
    :: atomic { ask[c] == ACQUIRE && (asked[c] == YES || asked[c] == NO) ->
        SAY("@ read %d\n", c)
        if
        :: asked[c] == NO -> phase[c] = NEW; done(c)
        :: asked[c] == YES && FROM(ask_age[c]) > 0 -> phase[c] = HELD; safe[c] = FROM(ask_age[c]); done(c)
#ifndef MUTANT_FROM_REPLY
        :: asked[c] == YES && FROM(ask_age[c]) == 0 -> phase[c] = RELEASING; send(c, RELEASE)
#endif
        fi;
        look() }
    :: atomic { renew[c] == YES || renew[c] == NO ->
        SAY("@ read %d\n", c)
        if
#ifdef MUTANT_REVIVES
        :: phase[c] == HELD && renew[c] == YES && FROM(renew_age[c]) > safe[c] -> safe[c] = FROM(renew_age[c])
#else
        :: phase[c] == HELD && safe[c] == 0 -> lose(c, false)
        :: phase[c] == HELD && safe[c] > 0 && renew[c] == NO -> lose(c, true)
        :: phase[c] == HELD && safe[c] > 0 && renew[c] == YES && FROM(renew_age[c]) > safe[c] ->
            safe[c] = FROM(renew_age[c])
#endif
        :: else
        fi;
        renew[c] = NONE; renew_age[c] = 0; look() }
    :: atomic { ask[c] == RELEASE && (asked[c] == YES || asked[c] == NO) && renew[c] == NONE ->
        SAY("@ read %d\n", c)
        phase[c] = NEW; done(c); look() }
    :: atomic { phase[c] == HELD && safe[c] == 0 ->
        SAY("@ tick %d\n", c)
        lose(c, false); look() }
    :: atomic { phase[c] == HELD && safe[c] > 0 && renew[c] == NONE && (anew[c] || safe[c] <= SAFE - PERIOD) ->
        SAY("@ tick %d\n", c)
        renew[c] = SENT; renew_age[c] = 0; anew[c] = false; look() }
    :: atomic { phase[c] == HELD && safe[c] > 0 ->
        SAY("@ release %d\n", c)
        phase[c] = RELEASING; safe[c] = 0; anew[c] = false; send(c, RELEASE); look() }
    :: atomic { phase[c] == LOST && ask[c] == NONE -> /* its user is done with it */
        SAY("@ release %d\n", c)
        if
        :: known[c] -> phase[c] = NEW
        :: else -> phase[c] = RELEASING; send(c, RELEASE)
        fi;
        look() }
    :: atomic { SELDOM && BREAKS(c) && (ask[c] != NONE || renew[c] != NONE) ->
        if
        :: renew[c] == SENT -> keep(c, RENEW)
        :: renew[c] != SENT && asked[c] == SENT -> keep(c, ask[c])
        :: else
        fi;
        renew[c] = NONE; renew_age[c] = 0; anew[c] = (phase[c] == HELD);
        SPENT SAY("@ cut %d\n", c)
        if
        :: ask[c] != NONE -> send(c, ask[c])
        :: else
        fi;
        look() }
    od
} /* unreached: it never ends */

init { atomic { run Server(0); run Server(1); run Client(0); run Client(1) } }
