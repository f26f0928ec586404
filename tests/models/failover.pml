/* failover.pml - a replica that lags is promoted: holds are at risk until the new master has confirmed them, and what
 * enough replicas had is not lost.
 *
 * Models        core/engine/node.c (snib__node_readdress, node_failed_over, snib__node_link_ready), watchdog.c
 *               (snib__watchdog_reconnected, snib__watchdog_answer), durable.c (WAIT before a grant counts), given.c
 *               (releases are repeated), hold.c, release.c, core/lua/mutex_*.lua, fenced_acquire.lua (the token).
 * World         a master and its replica, which at any time copies what the master has then, or does not.  Once the
 *               replica is promoted; the old master dies, or serves those who do not know until it is demoted.  Clients
 *               learn of the switch at any later time; connections end at any time, and answers are lost with them.
 *               Holds are renewed, or have a fixed lease; grants count at once, or (durable) once the replica has them.
 * Abstracted    a request is executed when it is sent: what it did before it was sent again is what an executed request
 *               without an answer did, and cleanup.pml has the rest.  One request of a client is on its way at a time.
 * Bounds        LEASE ticks, LAST(c) acquisitions of a client, CUTS lost connections beside those of the failover,
 *               ROUGH clients.
 * Assumptions   A1 (equal rates); the servers' clocks agree; the promoted replica is one of those that were counted,
 *               and the old master still counts it (so it refuses later grants); the memory is kept otherwise.
 * Properties    assert: before the failover one valid hold.  After it two are valid together only while one of them is
 *               not known to the new master, and a client that knows of the switch shows such a hold as at risk.
 *               Connected to the new master it has asked about it.  Only a hold that the new master has never
 *               confirmed is found to be gone there, with the reason "failover".  What a client released does not
 *               stay held there while the client is connected, unless a renewal before it had no answer: then
 *               it may, for one lease.  Two holds are never both confirmed, unless a fixed lease was asked for twice
 *               and only the first time is known there.
 *               durable: the promoted replica has every hold whose first lease has not ended, no two holds are valid
 *               together in theirs, and the tokens of holds rise.
 * Mutants       MUTANT_ASKED_ONCE     a hold with a fixed lease is asked about on the first connection only, and the
 *                                     question may be lost with it
 *               MUTANT_TRUSTS         after the switch holds are what they were
 *               MUTANT_HALF_MOVED     an answer of the old master counts as the new one's
 *               MUTANT_ANY_REASON     the hold is found to be gone like any other
 *               MUTANT_NO_REPEAT      releases are not repeated at the new master
 *               MUTANT_NO_WAIT        durable: a grant counts before the replica has it
 *               MUTANT_STANDS         durable: a grant stands although the replica does not get it
 *
 * unseen: MUTANT_NO_WAIT
 * unseen: MUTANT_STANDS
 * walks: 120 of 1000
 *
 * run: -DSAFETY
 */
#define CHANCE 1
#include "trace.inc"
#define NC 2
#ifdef REPLAY
#define LEASE 2
#define LAST(c) 30
#define ROUGH(c) true
#define TRIES 30
#define CUTS 50
#elif defined(FULL)
#define LEASE 2
#define LAST(c) 1
#define ROUGH(c) true
#else
#define LEASE 2
#define LAST(c) 1
#define ROUGH(c) (c == 0) /* who learns late, waits for its answers, and loses a connection */
#endif
#ifndef REPLAY
#define TRIES 2
#define CUTS 1
#endif
#define NEW 1

mtype = { NONE, IDLE, TRYING, HELD, RELEASING, ACQUIRE, RENEW, ASK, RELEASE, YES, NO, FAILOVER, DELETED };

/* The servers: 0, the old master, and 1, the replica. */
byte owner[2], left[2], token[2];
bool promoted, serves = true;            /* serves: the old master */
bool fixed, durable;                     /* what kind of holds this is about */
/* The clients. */
mtype phase[NC] = IDLE;
byte number[NC], tries[NC], cuts[NC];
bool resent[NC];                         /* the release may have been executed already */
bool twice[NC];                          /* the acquisition may have been executed twice */
bool lapsed[NC];                         /* held, and V is so long past that the lease has ended */
bool longer[NC];                         /* a renewal without an answer: the lease may end after V */
bool up[NC] = true, knows[NC];           /* knows of the switch, so its connection is to the new master */
bit at[NC];                              /* where the connection is, or was */
mtype request[NC] = NONE, answer[NC] = NONE, later[NC] = NONE; /* later: when there is a connection */
bool copied[NC];                         /* the replica has got what the request did */
byte age[NC], safe[NC], first[NC];       /* ticks since the request was sent, until V, until the first lease ends */
bool inherited[NC], confirmed[NC];       /* as the client has noted; as it is: the new master has said that it has it */
bool anew[NC];                           /* the node's mark: its holds are to be asked about when it is ready */
byte mine[NC], given[NC], given_for[NC]; /* the token; the last release, and until when it is worth a repetition */
byte top;                                /* the highest token of a hold so far */
bool yes;
mtype why;

#define VALID(c) (phase[c] == HELD && safe[c] > 0)
#define FROM(age) (age < LEASE -> LEASE - age : 0)
#define THERE(c) (up[c] && at[c] == NEW)
#define SERVED(c) (up[c] && (at[c] == NEW || serves))

#ifdef REPLAY
#define SHOW() \
    printf("@ is %d %d %d %d  %d %d %d %d %d  %d %d %d %d %d\n", owner[0], left[0], owner[NEW], left[NEW], \
           VALID(0), up[0], (request[0] != NONE), (VALID(0) && inherited[0]), (VALID(0) -> mine[0] : 0), \
           VALID(1), up[1], (request[1] != NONE), (VALID(1) && inherited[1]), (VALID(1) -> mine[1] : 0));
#else
#define SHOW()
#endif

inline look_at(c) {
    assert(!knows[c] || !VALID(c) || confirmed[c] || inherited[c]);
    assert(!THERE(c) || !VALID(c) || confirmed[c] || request[c] != NONE);
    assert(!THERE(c) || phase[c] != IDLE || request[c] != NONE || longer[c] ||
           owner[NEW] == 0 || owner[NEW] != number[c])
}

inline look() {
    SHOW()
    look_at(0);
    look_at(1);
    assert(!VALID(0) || !VALID(1) || promoted);
    assert(!VALID(0) || !VALID(1) || !confirmed[0] || !confirmed[1] || (fixed && (twice[0] || twice[1])));
    assert(!durable || !VALID(0) || !VALID(1) || first[0] == 0 || first[1] == 0)
}

inline execute(s, kind, n) {
    if
    :: kind == ACQUIRE && (owner[s] == 0 || owner[s] == n) ->
        token[s] = (owner[s] == n -> token[s] : token[s] + 1);
        owner[s] = n; left[s] = LEASE; yes = true
    :: kind == RENEW && owner[s] == n -> left[s] = LEASE; yes = true
    :: kind == ASK && owner[s] == n -> yes = true
    :: kind == RELEASE && owner[s] == n -> owner[s] = 0; left[s] = 0; yes = true
    :: else -> yes = false
    fi
}

/* The old master executes nothing once it is dead or demoted: the client finds its connection ended. */
inline send(c, kind) {
    if
    :: SERVED(c) ->
        request[c] = kind; age[c] = 0; copied[c] = false;
        execute(at[c], kind, number[c]);
        answer[c] = (yes -> YES : NO); yes = false
    :: else -> later[c] = (kind == RENEW || kind == ASK -> NONE : kind)
    fi
}

inline copy(c) { copied[c] = copied[c] || (at[c] == 0 && request[c] != NONE) }

inline check_promoted(c) {
    assert(!durable || !VALID(c) || first[c] == 0 || owner[NEW] == number[c])
}

inline pass(c) {
    lapsed[c] = (phase[c] == HELD && safe[c] == 0);
    safe[c] = (safe[c] > 0 -> safe[c] - 1 : 0);
    first[c] = (first[c] > 0 -> first[c] - 1 : 0);
    age[c] = (request[c] != NONE && age[c] < LEASE -> age[c] + 1 : age[c]);
    given_for[c] = (given_for[c] > 0 -> given_for[c] - 1 : 0);
    given[c] = (given_for[c] > 0 -> given[c] : 0)
}

inline lapse(s) {
    left[s] = (left[s] > 0 -> left[s] - 1 : 0);
    owner[s] = (left[s] == 0 -> 0 : owner[s])
}

active proctype Clock() {
    do
    :: atomic { SELDOM && (ROUGH(1) || request[1] == NONE) ->
        SPENT SAY("@ tick\n")
        lapse(0); lapse(NEW); pass(0); pass(1); look() }
    od
} /* unreached: it never ends */

inline done(c) { request[c] = NONE; answer[c] = NONE; age[c] = 0; copied[c] = false }
inline end_hold(c) {
    phase[c] = IDLE; safe[c] = 0; first[c] = 0; mine[c] = 0;
    inherited[c] = false; confirmed[c] = false; resent[c] = false; twice[c] = false
}
inline release(c) { phase[c] = RELEASING; send(c, RELEASE) }

#ifdef MUTANT_NO_WAIT
#define DECIDED(c) true
#else
#define DECIDED(c) (!durable || at[c] == NEW || copied[c] || promoted)
#endif
#ifdef MUTANT_STANDS
#define REFUSED(c) false
#else
#define REFUSED(c) (durable && at[c] == 0 && !copied[c] && promoted)
#endif

/* The answer to an acquire; of a durable one also that of the WAIT behind it. */
inline acquired(c) {
    if
    :: answer[c] == NO -> done(c); end_hold(c)
    :: answer[c] == YES && (REFUSED(c) || FROM(age[c]) == 0) -> /* given back */
        safe[c] = FROM(age[c]); done(c); release(c)
    :: answer[c] == YES && !REFUSED(c) && FROM(age[c]) > 0 ->
        phase[c] = HELD; safe[c] = FROM(age[c]); first[c] = safe[c]; confirmed[c] = (at[c] == NEW);
        mine[c] = token[at[c]];
        assert(!durable || mine[c] > top);
        assert(promoted || mine[c] > top);
        top = (mine[c] > top -> mine[c] : top);
        done(c)
    fi
}

inline lost(c) { /* known to be gone, so nothing is released */
#ifdef MUTANT_ANY_REASON
    why = DELETED;
#else
    why = (inherited[c] -> FAILOVER : DELETED);
#endif
    SAY("@ lost %d %e\n", c, why)
    assert(why == FAILOVER && !confirmed[c]);
    why = 0;
    end_hold(c)
}

inline renewed(c) {
    if
    :: answer[c] == NO -> done(c); lost(c)
    :: answer[c] == YES ->
        longer[c] = false; inherited[c] = false;
        confirmed[c] = (at[c] == NEW);
        safe[c] = (request[c] == RENEW && FROM(age[c]) > safe[c] -> FROM(age[c]) : safe[c]);
        done(c)
    fi
}

/* The connection is gone: what changes ownership is repeated, what asks is not. */
inline unanswered(c) {
    up[c] = false;
    resent[c] = resent[c] || request[c] == RELEASE;
    twice[c] = twice[c] || request[c] == ACQUIRE;
    longer[c] = longer[c] || request[c] == RENEW;
    later[c] = (request[c] == ACQUIRE || request[c] == RELEASE -> request[c] : later[c]);
    done(c)
}

inline ready(c) {
    up[c] = true; at[c] = knows[c];
    if
    :: later[c] != NONE -> send(c, later[c]); later[c] = NONE
    :: later[c] == NONE && phase[c] == HELD && !fixed && safe[c] > 0 -> send(c, RENEW)
    :: later[c] == NONE && phase[c] == HELD && !fixed && safe[c] == 0 /* it is over */
#ifdef MUTANT_ASKED_ONCE
    :: later[c] == NONE && phase[c] == HELD && fixed && anew[c] -> send(c, ASK)
    :: later[c] == NONE && phase[c] == HELD && fixed && !anew[c]
#else
    :: later[c] == NONE && phase[c] == HELD && fixed && inherited[c] -> send(c, ASK)
    :: later[c] == NONE && phase[c] == HELD && fixed && !inherited[c]
#endif
    :: later[c] == NONE && phase[c] != HELD
    fi;
#ifndef MUTANT_NO_REPEAT
    if
    :: knows[c] && given[c] != 0 -> execute(NEW, RELEASE, given[c]); yes = false; given[c] = 0; given_for[c] = 0
    :: else
    fi;
#endif
    SAY("@ open %d %d %d\n", c, at[c], (request[c] != NONE))
    anew[c] = false
}

inline learn(c) {
    SAY("@ learn %d\n", c)
    knows[c] = true;
#ifndef MUTANT_TRUSTS
    inherited[c] = (phase[c] == HELD); anew[c] = true;
#endif
#ifdef MUTANT_HALF_MOVED
    up[c] = false
#else
    unanswered(c)
#endif
}

active proctype Servers() {
    do
    :: atomic { SELDOM && !promoted -> /* the replica catches up */
        SPENT SAY("@ copy\n")
        owner[NEW] = owner[0]; left[NEW] = left[0]; token[NEW] = token[0];
        copy(0); copy(1) }
    :: atomic { SELDOM && !promoted ->
        SPENT promoted = true;
        if
        :: SAY("@ demote\n") serves = false; owner[0] = 0; left[0] = 0
        :: true
        fi;
        check_promoted(0); check_promoted(1);
        if
        :: !ROUGH(1) -> learn(1)
        :: ROUGH(1)
        fi;
        look() }
    :: atomic { SELDOM && promoted && serves ->
        SPENT SAY("@ demote\n")
        serves = false; owner[0] = 0; left[0] = 0 } /* demoted */
    od
} /* unreached: it never ends */

proctype Client(byte c) {
    do
    :: atomic { phase[c] == IDLE && tries[c] < LAST(c) && SERVED(c) && request[c] == NONE ->
        tries[c]++; number[c] = c * TRIES + tries[c]; longer[c] = false;
        SAY("@ acquire %d %d\n", c, number[c])
        phase[c] = TRYING; send(c, ACQUIRE); look() }
    :: atomic { request[c] == ACQUIRE && DECIDED(c) ->
        SAY("@ read %d\n", c)
        acquired(c); look() }
    :: atomic { request[c] == RELEASE ->
        SAY("@ read %d\n", c)
        if
        :: (answer[c] == YES || resent[c]) && at[c] == 0 && safe[c] > 0 -> given[c] = number[c]; given_for[c] = safe[c]
        :: else
        fi;
        done(c); end_hold(c); look() }
    :: atomic { (request[c] == RENEW || request[c] == ASK) && safe[c] > 0 ->
        SAY("@ read %d\n", c)
        renewed(c); look() }
    :: atomic { phase[c] == HELD && safe[c] == 0 -> /* lost by the clock; its user lets it go */
        SAY("@ release %d\n", c)
        longer[c] = longer[c] || request[c] == RENEW;
        done(c);
        if
        :: !up[c] && lapsed[c] -> end_hold(c)
        :: up[c] || !lapsed[c] -> release(c)
        fi;
        lapsed[c] = false; look() }
    :: atomic { VALID(c) && !fixed && safe[c] < LEASE && SERVED(c) && request[c] == NONE ->
        SAY("@ renew %d\n", c)
        send(c, RENEW); look() }
    :: atomic { SELDOM && VALID(c) && request[c] == NONE ->
        SPENT SAY("@ release %d\n", c)
        release(c); look() }
    :: atomic { SELDOM && promoted && !knows[c] ->
        SPENT learn(c); look() }
    :: atomic { up[c] && !SERVED(c) ->
        SAY("@ cut %d\n", c)
        unanswered(c); look() }
    :: atomic { (SELDOM || request[c] == ASK) && ROUGH(c) && SERVED(c) && cuts[c] < CUTS ->
        SPENT SAY("@ cut %d\n", c)
        cuts[c]++; unanswered(c); look() }
    :: atomic { !up[c] && (knows[c] || serves) -> ready(c); look() }
    od
} /* unreached: it never ends */

init {
    atomic {
        if
        :: fixed = true
        :: true
        fi;
        SAY("@ fixed %d\n", fixed)
        if
#ifndef REPLAY
        :: durable = true
#endif
        :: true
        fi;
        run Client(0);
        run Client(1)
    }
}
