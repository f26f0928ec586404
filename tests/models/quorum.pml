/* quorum.pml - a lock on a majority of independent nodes, some of which lose their memory.
 *
 * Models        core/locks/group.c (votes, the undoing of a minority, the deadline of a majority, refilling votes),
 *               core/lua/quorum_acquire.lua (the epoch, which says since when a node remembers, and the quarantine),
 *               core/engine/hold.c for each member.
 * World         NODES nodes, two clients.  A node may restart without its data at any time.  Answers take any time,
 *               with FULL also requests.  A client may stand still for any time.
 * Bounds        leases of LEASE ticks, TRIES(c) rounds of a client, RESTARTS restarts in total, ROUGH clients.
 *               Time has no bound: only differences are stored.
 * Assumptions   A1 (equal rates; see renewal.pml).  No client's lease is longer than the quarantine.
 * Properties    assert: two holds are never valid together; of a round that has ended, and whose answers have come,
 *               no node keeps a vote.
 * Mutants       MUTANT_NO_QUARANTINE  a node votes at once after a restart without its data
 *               MUTANT_SHORT          the quarantine is shorter than a lease
 *               MUTANT_HALF           half of the nodes are enough
 *               MUTANT_FROM_REPLY     the deadline counts from the answers
 *               MUTANT_LAST_VOTE      the deadline is that of the longest vote, not of a majority
 *               MUTANT_KEEPS          the votes of a round that failed are left where they are
 *
 * run: -DSAFETY
 */
#define NODES 3
#ifdef FULL
#define LEASE 2
#define TRIES(c) (c == 1 -> 2 : 1)
#define RESTARTS 1
#define ROUGH(c) true
#else
#define LEASE 2
#define TRIES(c) (c == 1 -> 2 : 1)
#define RESTARTS 1
#define ROUGH(c) (c == 0) /* whose answers take time, and who renews and refills its votes */
#endif
#ifdef MUTANT_HALF
#define NEED (NODES / 2)
#else
#define NEED (NODES / 2 + 1)
#endif
#ifdef MUTANT_SHORT
#define QUARANTINE (LEASE - 1)
#else
#define QUARANTINE LEASE
#endif
#define NC 2
#define AT(c, k) (c * NODES + k)
#define VOTES 6 /* NC * NODES */

mtype = { IDLE, COLLECTING, HELD, NONE, ASKED, RENEWED, DROPPED, YES, NO };

/* The nodes. */
byte owner[NODES], left[NODES];      /* clients from 1 */
byte quarantine[NODES];              /* ticks until it votes */
bool epoch[NODES] = true;            /* it knows since when it remembers */
byte restarts;
/* The clients, and their members: one for each node. */
mtype phase[NC] = IDLE;
byte tries[NC];
mtype request[VOTES] = NONE, answer[VOTES] = NONE;
byte age[VOTES];                     /* ticks since the request was sent */
byte safe[VOTES];                    /* ticks until the vote's V; 0: no vote */
bool yes;

#define VOTE(c, k) (safe[AT(c, k)] > 0)
#define COUNT(c) (VOTE(c, 0) + VOTE(c, 1) + VOTE(c, 2))
#ifdef MUTANT_LAST_VOTE
#define VALID(c) (phase[c] == HELD && COUNT(c) > 0)
#else
#define VALID(c) (phase[c] == HELD && COUNT(c) >= NEED)
#endif
#ifdef MUTANT_FROM_REPLY
#define AFTER(age) LEASE
#else
#define AFTER(age) (age < LEASE -> LEASE - age : 0)
#endif

#define QUIET(c) (phase[c] == IDLE && UNASKED(c))
#define UNASKED(c) (request[AT(c, 0)] == NONE && request[AT(c, 1)] == NONE && request[AT(c, 2)] == NONE)

inline look() {
    assert(!VALID(0) || !VALID(1));
    assert(!QUIET(0) || (owner[0] != 1 && owner[1] != 1 && owner[2] != 1));
    assert(!QUIET(1) || (owner[0] != 2 && owner[1] != 2 && owner[2] != 2))
}

inline vote(k, c) {
    if
    :: !epoch[k] -> epoch[k] = true; quarantine[k] = QUARANTINE
    :: else
    fi;
#ifdef MUTANT_NO_QUARANTINE
    quarantine[k] = 0;
#endif
    if
    :: quarantine[k] == 0 && (owner[k] == 0 || owner[k] == c + 1) -> owner[k] = c + 1; left[k] = LEASE; yes = true
    :: else -> yes = false
    fi
}

inline renew(k, c) {
    if
    :: owner[k] == c + 1 -> left[k] = LEASE; yes = true
    :: else -> yes = false
    fi
}

inline drop(k, c) {
    if
    :: owner[k] == c + 1 -> owner[k] = 0; left[k] = 0
    :: else
    fi;
    yes = false
}

inline serve(k, c) {
    if
    :: request[AT(c, k)] == ASKED -> vote(k, c)
    :: request[AT(c, k)] == RENEWED -> renew(k, c)
    :: request[AT(c, k)] == DROPPED -> drop(k, c)
    fi;
    answer[AT(c, k)] = (yes -> YES : NO);
    yes = false
}

inline send(c, k, kind) {
    request[AT(c, k)] = kind; answer[AT(c, k)] = NONE; age[AT(c, k)] = 0;
#ifndef FULL
    serve(k, c);
    if
    :: kind == DROPPED -> request[AT(c, k)] = NONE; answer[AT(c, k)] = NONE /* no answer changes anything */
    :: else
    fi
#endif
}

proctype Node(byte k) {
    do
#ifdef FULL
    :: atomic { request[AT(0, k)] != NONE && answer[AT(0, k)] == NONE -> serve(k, 0); look() }
    :: atomic { request[AT(1, k)] != NONE && answer[AT(1, k)] == NONE -> serve(k, 1); look() }
#endif
    :: atomic { restarts < RESTARTS ->
        restarts++; owner[k] = 0; left[k] = 0; quarantine[k] = 0; epoch[k] = false; look() }
    od
} /* unreached: it never ends */

inline pass(k) {
    left[k] = (left[k] > 0 -> left[k] - 1 : 0);
    owner[k] = (left[k] == 0 -> 0 : owner[k]);
    quarantine[k] = (quarantine[k] > 0 -> quarantine[k] - 1 : 0);
    safe[k] = (safe[k] > 0 -> safe[k] - 1 : 0);
    safe[NODES + k] = (safe[NODES + k] > 0 -> safe[NODES + k] - 1 : 0);
    age[k] = (request[k] != NONE && request[k] != DROPPED && age[k] < LEASE -> age[k] + 1 : age[k]);
    age[NODES + k] = (request[NODES + k] != NONE && request[NODES + k] != DROPPED && age[NODES + k] < LEASE
        -> age[NODES + k] + 1 : age[NODES + k])
}

active proctype Clock() {
    do
    :: atomic { ROUGH(1) || (answer[3] == NONE && answer[4] == NONE && answer[5] == NONE) ->
        pass(0); pass(1); pass(2); look() }
    od
} /* unreached: it never ends */

/* An answer about one vote.  After a loss or the end of a round what comes is dropped again. */
inline answered(c, k) {
    if
    :: request[AT(c, k)] == DROPPED || answer[AT(c, k)] == NO ->
        safe[AT(c, k)] = 0; request[AT(c, k)] = NONE
    :: request[AT(c, k)] == ASKED && answer[AT(c, k)] == YES ->
        request[AT(c, k)] = NONE;
        if
        :: phase[c] != IDLE -> safe[AT(c, k)] = AFTER(age[AT(c, k)])
        :: else -> send(c, k, DROPPED)
        fi
    :: request[AT(c, k)] == RENEWED && answer[AT(c, k)] == YES ->
        request[AT(c, k)] = NONE;
        if
        :: phase[c] != IDLE && VOTE(c, k) -> safe[AT(c, k)] = AFTER(age[AT(c, k)])
        :: phase[c] != IDLE && !VOTE(c, k) /* lost is final, also for one vote */
        :: phase[c] == IDLE -> send(c, k, DROPPED)
        fi
    fi;
    if
    :: request[AT(c, k)] == NONE -> answer[AT(c, k)] = NONE; age[AT(c, k)] = 0
    :: else /* dropped */
    fi;
    if
    :: phase[c] == COLLECTING && COUNT(c) >= NEED -> phase[c] = HELD
    :: else
    fi
}

inline let_go(c, k) {
    safe[AT(c, k)] = 0;
    if
#ifdef MUTANT_KEEPS
    :: request[AT(c, k)] == NONE
#else
    :: request[AT(c, k)] == NONE -> send(c, k, DROPPED)
#endif
    :: else /* when its answer has come */
    fi
}

inline give_up(c) { /* a round without success, a release, or a loss: on all nodes, asked or not */
    phase[c] = IDLE;
    let_go(c, 0);
    let_go(c, 1);
    let_go(c, 2)
}

proctype Client(byte c) {
    do
    :: atomic { phase[c] == IDLE && tries[c] < TRIES(c) &&
                request[AT(c, 0)] == NONE && request[AT(c, 1)] == NONE && request[AT(c, 2)] == NONE ->
        tries[c]++; phase[c] = COLLECTING;
        send(c, 0, ASKED); send(c, 1, ASKED); send(c, 2, ASKED); look() }
    :: atomic { answer[AT(c, 0)] != NONE -> answered(c, 0); look() }
    :: atomic { answer[AT(c, 1)] != NONE -> answered(c, 1); look() }
    :: atomic { answer[AT(c, 2)] != NONE -> answered(c, 2); look() }
    :: atomic { phase[c] == COLLECTING -> give_up(c); look() }
    :: atomic { phase[c] == HELD -> give_up(c); look() }
    :: atomic { ROUGH(c) && phase[c] == HELD && VOTE(c, 0) && safe[AT(c, 0)] < LEASE && request[AT(c, 0)] == NONE ->
        send(c, 0, RENEWED) }
    :: atomic { ROUGH(c) && phase[c] == HELD && VOTE(c, 1) && safe[AT(c, 1)] < LEASE && request[AT(c, 1)] == NONE ->
        send(c, 1, RENEWED) }
    :: atomic { ROUGH(c) && phase[c] == HELD && VOTE(c, 2) && safe[AT(c, 2)] < LEASE && request[AT(c, 2)] == NONE ->
        send(c, 2, RENEWED) }
    :: atomic { ROUGH(c) && VALID(c) && !VOTE(c, 2) && request[AT(c, 2)] == NONE -> /* refilled; one stands for all */
        send(c, 2, ASKED) }
    od
} /* unreached: it never ends */

init { atomic { run Node(0); run Node(1); run Node(2); run Client(0); run Client(1) } }
