/* cleanup.pml - lost replies: what the caller is told is true, and what was given up is taken back.
 *
 * Models        core/engine/release.c (snib__gate_unanswered, answer_release), gate.c (cancel, late grants), doubt.c,
 *               send.c (what waits for a connection), core/net/conn.c (CLIENT KILL of the former connection in the
 *               handshake), core/lua/mutex_acquire.lua, mutex_release.lua.
 * World         one server, NC clients with one lock; an attempt may be cancelled at any time.  A connection may end
 *               at any time; the request on it is lost, or stays readable for the server, or its answer is lost.
 *               The server may execute it long after the client has reconnected, unless it could be killed;
 *               whether the user may use CLIENT KILL is open.
 * Bounds        LEASE ticks, LAST(c) attempts a client, ROUGH clients.  Time has no bound: only
 *               differences are stored.  One request of a client is on its way at a time, because its gate sends the
 *               next one after the answer.
 * Assumptions   A1 (equal rates here, see renewal.pml), A3.
 * Properties    assert: a valid hold is the server's owner.  "Busy", "released", "lost" and the end of a clean-up mean
 *               that the server has nothing of the number now or later (where connections can be killed; elsewhere
 *               it may have it for one lease).  "Released" is said only if this client's release did it, and
 *               "lost" never after the first try of a release that did it in time.
 * Mutants       MUTANT_ONE_NUMBER     all attempts of a client use one owner number
 *               MUTANT_NEW_NUMBER     a request is repeated with a new number
 *               MUTANT_NO_KILL        the former connection is not killed where it could be
 *               MUTANT_KILL_LATER     ... but killed behind the repeated request
 *               MUTANT_FORGETS        an attempt cancelled in flight is forgotten
 *               MUTANT_OVERTAKES      its clean-up travels on another connection
 *               MUTANT_GONE_IS_YES    "it is gone" always counts as released
 *               MUTANT_GONE_IS_NO     "it is gone" never counts as released
 *
 * run: -DSAFETY
 */
#define CHANCE 1
#include "trace.inc"
#define NC 2
#ifdef REPLAY
#define LEASE 2
#define TRIES 100
#define LAST(c) TRIES
#define ROUGH(c) true
#elif defined(FULL)
#define LEASE 2
#define TRIES 2
#define LAST(c) (c == 0 -> TRIES : 1)
#define ROUGH(c) true
#else
#define LEASE 2
#define TRIES 2
#define LAST(c) (c == 0 -> TRIES : 1)
#define ROUGH(c) (c == 0) /* whose attempts are cancelled, and whose connection ends */
#endif
#define NUMBERS (NC * TRIES + 1)

mtype = { NONE, IDLE, TRYING, HELD, RELEASING, ACQUIRE, RELEASE, YES, NO };

byte owner, left;
bool kills; /* the server lets its clients kill connections */
mtype phase[NC] = IDLE;
byte number[NC], tries[NC];
bool op[NC];                                           /* a caller waits for the result */
bool up[NC] = true, resent[NC];
byte sent[NC], safe[NC];                               /* ticks since the request was sent; ticks until V */
bool lapsed[NC];                                       /* held, and V is so long past that the lease has ended */
mtype todo[NC] = NONE;                                 /* to be sent when there is a connection */
mtype line[NC] = NONE, back[NC] = NONE;                /* a request to be executed, an answer to be read */
mtype former[NC] = NONE;                               /* left on the former connection */
byte former_number[NC];
mtype side[NC] = NONE;                                 /* a mutant's clean-up on a second connection */
bool gone[NUMBERS], freed[NUMBERS];                    /* ended, as the client believes; deleted by a release */
bool yes;

#define VALID(c) (phase[c] == HELD && safe[c] > 0)
#define AFTER(age) (age < LEASE -> LEASE - age : 0)

#ifdef REPLAY
#define BUSY(c) (line[c] != NONE || back[c] != NONE)
#define SHOW() \
    printf("@ is %d %d  %d %d %d %d %d  %d %d %d %d %d\n", owner, left, \
           VALID(0), up[0], op[0], BUSY(0), (former[0] != NONE), \
           VALID(1), up[1], op[1], BUSY(1), (former[1] != NONE));
#else
#define SHOW()
#endif

inline look() {
    SHOW()
    assert(!VALID(0) || owner == number[0]);
    assert(!VALID(1) || owner == number[1]);
    assert(!kills || owner == 0 || !gone[owner])
}

inline execute(kind, n) {
    if
    :: kind == ACQUIRE && (owner == 0 || owner == n) -> owner = n; left = LEASE; yes = true
    :: kind == RELEASE && owner == n -> owner = 0; left = 0; freed[n] = true; yes = true
    :: else -> yes = false
    fi
}

proctype Server(byte c) {
    do
    :: atomic { line[c] != NONE ->
        execute(line[c], number[c]);
        SAY("@ execute %d %e %d\n", c, line[c], yes)
        back[c] = (yes -> YES : NO); line[c] = NONE; yes = false; look() }
    :: atomic { former[c] != NONE ->
        execute(former[c], former_number[c]);
        SAY("@ former %d %e %d\n", c, former[c], yes)
        former[c] = NONE; former_number[c] = 0; yes = false; look() }
#ifdef MUTANT_OVERTAKES
    :: atomic { side[c] != NONE ->
        execute(RELEASE, number[c]);
        side[c] = NONE; yes = false;
        gone[number[c]] = true; phase[c] = IDLE; line[c] = NONE; back[c] = NONE; look() }
#endif
    od
} /* unreached: it never ends */

inline advance(c) {
    lapsed[c] = (phase[c] == HELD && safe[c] == 0);
    safe[c] = (safe[c] > 0 -> safe[c] - 1 : 0);
    sent[c] = (sent[c] < LEASE && (line[c] != NONE || back[c] != NONE) -> sent[c] + 1 : sent[c])
}

active proctype Clock() {
    do
    :: atomic { SELDOM ->
        SPENT SAY("@ tick\n")
        left = (left > 0 -> left - 1 : 0);
        owner = (left == 0 -> 0 : owner);
        advance(0);
        advance(1);
        look() }
    od
} /* unreached: it never ends */

inline send(c, kind) {
    if
    :: up[c] -> line[c] = kind; sent[c] = 0
    :: else -> todo[c] = kind
    fi
}

inline release(c) { phase[c] = RELEASING; resent[c] = false; send(c, RELEASE) }

inline forget(c) { phase[c] = IDLE; sent[c] = 0; gone[number[c]] = true; op[c] = false; resent[c] = false; safe[c] = 0 }

inline answered_acquire(c) {
    SAY("@ read %d\n", c)
    if
    :: back[c] == NO ->
        SAY("@ result %d %d BUSY\n", c, op[c])
        back[c] = NONE; forget(c) /* busy, or nothing to take back */
    :: back[c] == YES && op[c] && AFTER(sent[c]) > 0 ->
        SAY("@ result %d 1 OK\n", c)
        back[c] = NONE; phase[c] = HELD; safe[c] = AFTER(sent[c]); op[c] = false; resent[c] = false
    :: back[c] == YES && (!op[c] || AFTER(sent[c]) == 0) ->
        SAY("@ result %d %d LATE\n", c, op[c])
        back[c] = NONE; safe[c] = AFTER(sent[c]); op[c] = false; release(c)
    fi
}

inline answered_release(c) {
#ifdef MUTANT_GONE_IS_YES
    yes = true;
#else
#ifdef MUTANT_GONE_IS_NO
    yes = (back[c] == YES);
#else
    yes = (back[c] == YES || (resent[c] && safe[c] > 0));
#endif
#endif
    SAY("@ read %d\n", c)
    SAY("@ result %d %d %e\n", c, op[c], (yes -> YES : NO))
    assert(!op[c] || !yes || freed[number[c]]);
    assert(!op[c] || yes || !freed[number[c]] || safe[c] == 0);
    yes = false; back[c] = NONE; forget(c)
}

/* The request on its way, or its answer, is lost with the connection. */
inline orphan(c) {
    if
    :: line[c] != NONE && former[c] == NONE ->
        SAY("@ left %d\n", c)
        former[c] = line[c]; former_number[c] = number[c]
    :: true
    fi;
    up[c] = false;
    if
    :: line[c] == NONE && back[c] == NONE
    :: else ->
        resent[c] = true;
#ifdef MUTANT_NEW_NUMBER
        if
        :: phase[c] == TRYING && tries[c] < LAST(c) ->
            gone[number[c]] = true; tries[c]++; number[c] = c * TRIES + tries[c]
        :: else
        fi;
#endif
        if
        :: phase[c] == TRYING && op[c] -> todo[c] = ACQUIRE
        :: phase[c] == TRYING && !op[c] -> phase[c] = RELEASING; safe[c] = AFTER(sent[c]); todo[c] = RELEASE
        :: phase[c] == RELEASING -> todo[c] = RELEASE
        fi
    fi;
    SPENT SAY("@ cut %d\n", c)
    line[c] = NONE; back[c] = NONE; sent[c] = 0
}

inline kill(c) { former[c] = NONE; former_number[c] = 0 }

inline reconnect(c) {
    up[c] = true;
#ifndef MUTANT_NO_KILL
#ifndef MUTANT_KILL_LATER
    if
    :: kills -> kill(c)
    :: else
    fi;
#endif
#endif
    if
    :: todo[c] == ACQUIRE && !op[c] -> phase[c] = RELEASING; todo[c] = RELEASE /* its caller has left */
    :: else
    fi;
    SAY("@ open %d\n", c)
    line[c] = todo[c]; todo[c] = NONE
}

proctype Client(byte c) {
    do
    :: atomic { phase[c] == IDLE && tries[c] < LAST(c) && side[c] == NONE ->
        tries[c]++;
#ifdef MUTANT_ONE_NUMBER
        number[c] = c * TRIES + 1; gone[number[c]] = false; freed[number[c]] = false;
#else
        number[c] = c * TRIES + tries[c];
#endif
        SAY("@ acquire %d %d\n", c, number[c])
        op[c] = true; phase[c] = TRYING; send(c, ACQUIRE); look() }
    :: atomic { SELDOM && ROUGH(c) && phase[c] == TRYING && op[c] ->
        SPENT SAY("@ cancel %d\n", c)
        op[c] = false;
        if
        :: todo[c] == ACQUIRE && !resent[c] -> todo[c] = NONE; forget(c) /* it was never sent */
#ifdef MUTANT_FORGETS
        :: else -> line[c] = NONE; back[c] = NONE; todo[c] = NONE; forget(c);
            former[c] = ACQUIRE; former_number[c] = number[c]
#else
#ifdef MUTANT_OVERTAKES
        :: else -> side[c] = RELEASE;
            if
            :: line[c] == ACQUIRE -> former[c] = ACQUIRE; former_number[c] = number[c]; line[c] = NONE
            :: else
            fi
#else
        :: else /* the answer will tell */
#endif
#endif
        fi;
        look() }
    :: atomic { phase[c] == TRYING && back[c] != NONE && side[c] == NONE ->
        answered_acquire(c); look() }
    :: atomic { phase[c] == RELEASING && back[c] != NONE ->
        answered_release(c); look() }
    :: atomic { phase[c] == HELD && safe[c] > 0 ->
        SAY("@ release %d\n", c)
        op[c] = true; release(c); look() }
    :: atomic { phase[c] == HELD && safe[c] == 0 -> /* lost; its user is done with it */
        SAY("@ release %d\n", c)
        if
        :: !up[c] && lapsed[c] -> forget(c)
        :: up[c] || !lapsed[c] -> release(c)
        fi;
        lapsed[c] = false; look() }
    :: atomic { SELDOM && ROUGH(c) && up[c] && side[c] == NONE -> orphan(c); look() }
    :: atomic { !up[c] ->
        reconnect(c); look() }
#ifdef MUTANT_KILL_LATER
    :: atomic { kills && up[c] && former[c] != NONE && line[c] == NONE -> kill(c) }
#endif
    od
} /* unreached: it never ends */

init {
    atomic {
        if
        :: kills = true
        :: true
        fi;
        SAY("@ kills %d\n", kills)
        run Server(0); run Server(1); run Client(0); run Client(1)
    }
}
