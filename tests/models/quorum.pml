/* quorum.pml - a lock on a majority of independent nodes, some of which lose their memory.
 *
 * Models        core/locks/group.c (votes, the undoing of a minority, the deadline of a majority, refilling votes),
 *               core/api/group.c (what is sent for it, and when), core/engine/hold.c, gate.c and release.c for each
 *               member, core/lua/quorum_acquire.lua (the epoch, which says since when a node remembers, and the
 *               quarantine).
 * World         NODES nodes, two clients.  A node may restart without its data at any time.  Answers take any time,
 *               in a walk (REPLAY) also requests.  A client may stand still for any time.
 * Abstracted    but for walks a vote that is given back is gone from its node at once, and a restart does not end
 *               connections.  A client begins a round when nothing of the last one is on its way.
 * Bounds        leases of LEASE ticks, TRIES(c) rounds of a client, RESTARTS restarts in total, ROUGH clients,
 *               KEEPS clients.  Time has no bound: only differences are stored.
 *               In a walk (REPLAY) a missing vote is asked for when the core does it: as soon as the client hears
 *               anything, and again at any time; what is asked for when the lock is released is given up only when
 *               the release is confirmed, and counts for it if it comes before; and a node's restart ends its
 *               connections, with what was not answered.
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
 * walks: 20 of 20000
 *
 * run: -DSAFETY
 */
#define CHANCE 2
#include "trace.inc"
#define NODES 3
#define LEASE 2
#ifdef REPLAY
#define LATE /* requests take time, too */
#define TRIES(c) 250
#define RESTARTS 250
#define ROUGH(c) true
#define KEEPS(c) true
#else
#define RESTARTS 1
#define KEEPS(c) (c == 0) /* who renews and refills its votes */
#define TRIES(c) (c == 1 -> 2 : 1)
#ifdef FULL
#define ROUGH(c) true
#else
#define ROUGH(c) (c == 0) /* whose answers take time */
#endif
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

mtype = { IDLE, COLLECTING, HELD, NONE, ASKED, RENEWED, SENT, DONE, YES, NO };

/* The nodes. */
byte owner[NODES], left[NODES];      /* clients from 1 */
byte quarantine[NODES];              /* ticks until it votes */
bool epoch[NODES] = true;            /* it knows since when it remembers */
byte restarts;
/* The clients, and their members: one for each node. */
mtype phase[NC] = IDLE;
byte tries[NC];
mtype request[VOTES] = NONE, answer[VOTES] = NONE;
mtype dropped[VOTES] = NONE;         /* the release of a vote, behind a renewal; its answer changes nothing */
byte age[VOTES];                     /* ticks since the request was sent */
bool has[VOTES];                     /* a vote, whose time may be over */
byte safe[VOTES];                    /* ticks until the vote's V */
bool yes, over;                      /* over: the client's hold was, when it heard of something */
#ifdef REPLAY
bool waits[VOTES];                   /* asked again and again until it has the vote */
bool rest[VOTES];                    /* what is released was lost before, so the next attempt is sent behind it */
bool twice[VOTES];                   /* two releases are on their way: of this vote, and of an attempt after it */
bool dead[VOTES];                    /* the connection, but for the answers that have come already */
bool giving[NC];                     /* a release that a majority has not confirmed: what is asked for is not given up */
byte given[NC];                      /* ... of so many votes it is confirmed */
bool counts[VOTES];                  /* the vote's release is part of it */
bool found[VOTES], again[VOTES];     /* the node had the vote; the release was sent again */
byte until[VOTES];                   /* ticks until the V of the vote that is released */
bool calm;                           /* a tick since the last restart */
#define BUSY(c) (phase[c] != IDLE || giving[c])
#define CALM(is) calm = is
#define MAY_RESTART calm
#else
#define BUSY(c) (phase[c] != IDLE)
#define CALM(is) skip
#define MAY_RESTART true
#endif

#define VOTE(c, k) (has[AT(c, k)] && safe[AT(c, k)] > 0)
#define COUNT(c) (VOTE(c, 0) + VOTE(c, 1) + VOTE(c, 2))
#define ALL(c) (has[AT(c, 0)] + has[AT(c, 1)] + has[AT(c, 2)]) /* the client may not have seen that one is over */
#define HOPED(c) (ALL(c) + (request[AT(c, 0)] == ASKED) + (request[AT(c, 1)] == ASKED) + (request[AT(c, 2)] == ASKED))
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

#define SILENT(c, k) (request[AT(c, k)] == NONE && dropped[AT(c, k)] == NONE)
#define QUIET(c) (SILENT(c, 0) && SILENT(c, 1) && SILENT(c, 2))

#ifdef REPLAY
#define RELEASES(c, k) (dropped[AT(c, k)] == NONE -> 0 : 1 + twice[AT(c, k)])
#define OF(c, k) request[AT(c, k)], RELEASES(c, k), VOTE(c, k)
#define SHOW() \
    printf("@ is %d %d %d %d %d %d  %e %d %e %d %d %e %d %d %e %d %d  %e %d %e %d %d %e %d %d %e %d %d\n", \
           owner[0], left[0], owner[1], left[1], owner[2], left[2], \
           phase[0], VALID(0), OF(0, 0), OF(0, 1), OF(0, 2), phase[1], VALID(1), OF(1, 0), OF(1, 1), OF(1, 2));
#else
#define SHOW()
#endif

inline look() {
    SHOW()
    assert(!VALID(0) || !VALID(1));
    assert(phase[0] != IDLE || !QUIET(0) || (owner[0] != 1 && owner[1] != 1 && owner[2] != 1));
    assert(phase[1] != IDLE || !QUIET(1) || (owner[0] != 2 && owner[1] != 2 && owner[2] != 2))
}

/* ---- nodes ---- */

#ifdef REPLAY
#define FOUND(c, k) found[AT(c, k)] = true
#else
#define FOUND(c, k) skip
#endif

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
    :: owner[k] == c + 1 -> owner[k] = 0; left[k] = 0; FOUND(c, k)
    :: else
    fi
}

inline serve(k, c) {
    if
    :: request[AT(c, k)] == ASKED -> vote(k, c)
    :: request[AT(c, k)] == RENEWED -> renew(k, c)
    fi;
    SAY("@ serve %d %d %e %d\n", c, k, request[AT(c, k)], yes)
    answer[AT(c, k)] = (yes -> YES : NO);
    yes = false
}

inline send(c, k, kind) {
    request[AT(c, k)] = kind; answer[AT(c, k)] = NONE; age[AT(c, k)] = 0;
#ifndef LATE
    serve(k, c)
#endif
}

inline give_back(c, k) {
#ifdef LATE
    dropped[AT(c, k)] = SENT
#else
    drop(k, c)
#endif
}

#ifdef REPLAY
#define LIVE(c, k) !dead[AT(c, k)]
#define MARK(c, k, is) rest[AT(c, k)] = is
#define MARK_TWICE(c, k, is) twice[AT(c, k)] = is
#define DROPPED DONE
#else
#define DROPPED NONE /* nothing waits for the answer */
#define LIVE(c, k) true
#define MARK_TWICE(c, k, is) skip
#define MARK(c, k, is) skip
#endif
#define NEXT(c, k) (request[AT(c, k)] == ASKED && dropped[AT(c, k)] != NONE) /* an attempt behind a release */
#define WORK(c, k) (request[AT(c, k)] != NONE && answer[AT(c, k)] == NONE)
#define SERVES(c, k) (LIVE(c, k) && WORK(c, k) && !(NEXT(c, k) && dropped[AT(c, k)] == SENT))
#define DROPS(c, k) (LIVE(c, k) && dropped[AT(c, k)] == SENT && (NEXT(c, k) || !WORK(c, k)))

inline done(c, k) { request[AT(c, k)] = NONE; answer[AT(c, k)] = NONE; age[AT(c, k)] = 0 }

/* On a new connection: what changes ownership is sent again, but a vote that nobody waits for is given back; a renewal is
 * not. */
inline reconnect(c, k) {
#ifdef REPLAY
    again[AT(c, k)] = again[AT(c, k)] || dropped[AT(c, k)] == SENT;
#endif
    if
    :: request[AT(c, k)] == ASKED && answer[AT(c, k)] == NONE && BUSY(c) -> age[AT(c, k)] = 0
    :: request[AT(c, k)] == ASKED && answer[AT(c, k)] == NONE && !BUSY(c) ->
        done(c, k); MARK_TWICE(c, k, dropped[AT(c, k)] != NONE); give_back(c, k)
    :: request[AT(c, k)] == RENEWED && answer[AT(c, k)] == NONE -> done(c, k)
#ifdef REPLAY
    :: waits[AT(c, k)] && SILENT(c, k) -> send(c, k, ASKED)
#endif
    :: else
    fi
}

inline cut(c, k) {
#ifdef REPLAY
    if
    :: answer[AT(c, k)] != NONE || dropped[AT(c, k)] == DONE -> dead[AT(c, k)] = true
    :: else -> reconnect(c, k)
    fi
#elif defined(LATE)
    reconnect(c, k)
#else
    skip
#endif
}

proctype Node(byte k) {
    do
#ifdef LATE
    :: atomic { SERVES(0, k) -> serve(k, 0); look() }
    :: atomic { SERVES(1, k) -> serve(k, 1); look() }
    :: atomic { DROPS(0, k) ->
        SAY("@ drop 0 %d %d\n", k, RELEASES(0, k))
        drop(k, 0); dropped[AT(0, k)] = DROPPED; look() }
    :: atomic { DROPS(1, k) ->
        SAY("@ drop 1 %d %d\n", k, RELEASES(1, k))
        drop(k, 1); dropped[AT(1, k)] = DROPPED; look() }
#endif
    :: atomic { SELDOM && MAY_RESTART && restarts < RESTARTS ->
        SPENT SAY("@ restart %d\n", k)
        CALM(false); restarts++; owner[k] = 0; left[k] = 0; quarantine[k] = 0; epoch[k] = false;
        cut(0, k); cut(1, k); look() }
    od
} /* unreached: it never ends */

inline pass(k) {
    left[k] = (left[k] > 0 -> left[k] - 1 : 0);
    owner[k] = (left[k] == 0 -> 0 : owner[k]);
    quarantine[k] = (quarantine[k] > 0 -> quarantine[k] - 1 : 0);
    safe[k] = (safe[k] > 0 -> safe[k] - 1 : 0);
    safe[NODES + k] = (safe[NODES + k] > 0 -> safe[NODES + k] - 1 : 0);
#ifdef REPLAY
    until[k] = (until[k] > 0 -> until[k] - 1 : 0);
    until[NODES + k] = (until[NODES + k] > 0 -> until[NODES + k] - 1 : 0);
#endif
    age[k] = (request[k] != NONE && age[k] < LEASE -> age[k] + 1 : age[k]);
    age[NODES + k] = (request[NODES + k] != NONE && age[NODES + k] < LEASE -> age[NODES + k] + 1 : age[NODES + k])
}

active proctype Clock() {
    do
    :: atomic { SELDOM && (ROUGH(1) || (answer[3] == NONE && answer[4] == NONE && answer[5] == NONE)) ->
        SPENT SAY("@ tick\n")
        CALM(true); pass(0); pass(1); pass(2); look() }
    od
} /* unreached: it never ends */

/* ---- clients ---- */

inline let_go(c, k) {
#ifdef REPLAY
    waits[AT(c, k)] = false;
#endif
    safe[AT(c, k)] = 0;
    if
#ifdef MUTANT_KEEPS
    :: has[AT(c, k)] -> has[AT(c, k)] = false
#else
    :: has[AT(c, k)] -> has[AT(c, k)] = false; give_back(c, k)
#endif
    :: else /* one that was asked for, when its answer has come */
    fi
}

inline give_up(c) { /* a round without success, a release, or a loss */
    phase[c] = IDLE;
    let_go(c, 0);
    let_go(c, 1);
    let_go(c, 2)
}

#ifdef REPLAY
/* Its release counts. */
inline give(c, k, ticks) {
    counts[AT(c, k)] = true; until[AT(c, k)] = ticks; found[AT(c, k)] = false; again[AT(c, k)] = false;
    give_back(c, k)
}

/* A vote that is released; one that comes is given, too. */
inline give_or_wait(c, k) {
    if
    :: VOTE(c, k) -> give(c, k, safe[AT(c, k)]); has[AT(c, k)] = false; safe[AT(c, k)] = 0
    :: has[AT(c, k)] && !VOTE(c, k) -> let_go(c, k)
    :: else
    fi
}

/* Confirmed by a majority, or by all that could. */
inline judge(c) {
    if
    :: giving[c] && (given[c] >= NEED || !(counts[AT(c, 0)] || counts[AT(c, 1)] || counts[AT(c, 2)])) ->
        giving[c] = false; waits[AT(c, 0)] = false; waits[AT(c, 1)] = false; waits[AT(c, 2)] = false
    :: else
    fi
}

inline release(c) {
    phase[c] = IDLE; giving[c] = true; given[c] = 0;
    give_or_wait(c, 0);
    give_or_wait(c, 1);
    give_or_wait(c, 2)
}
#else
#define release(c) give_up(c)
#endif

inline refill(c, k) {
#ifdef REPLAY
    if
    :: !has[AT(c, k)] && request[AT(c, k)] != ASKED && !waits[AT(c, k)] ->
        waits[AT(c, k)] = true;
        if
        :: dropped[AT(c, k)] == NONE || rest[AT(c, k)] -> send(c, k, ASKED)
        :: else /* when the answer to the release has come */
        fi
    :: else
    fi
#else
    skip
#endif
}

/* The client has heard of one of its votes; over: then it sees, too, that its majority's time is over. */
inline heard(c) {
    if
    :: phase[c] == COLLECTING && ALL(c) >= NEED && COUNT(c) >= NEED -> phase[c] = HELD
    :: phase[c] == COLLECTING && ALL(c) >= NEED && COUNT(c) < NEED -> give_up(c)
    :: phase[c] == COLLECTING && ALL(c) < NEED && HOPED(c) < NEED -> give_up(c)
    :: phase[c] == HELD && ALL(c) < NEED -> give_up(c)
    :: else
    fi;
    if
    :: phase[c] == HELD ->
        refill(c, 0); refill(c, 1); refill(c, 2);
        if
        :: over || !VALID(c) -> give_up(c) /* lost is final */
        :: else
        fi
    :: else
    fi;
    over = false
}

inline lose(c, k) { has[AT(c, k)] = false; safe[AT(c, k)] = 0 }

/* An answer about one vote. */
inline answered(c, k) {
    over = (phase[c] == HELD && !VALID(c));
    if
    :: request[AT(c, k)] == ASKED && answer[AT(c, k)] == NO
    :: request[AT(c, k)] == ASKED && answer[AT(c, k)] == YES ->
#ifdef REPLAY
        waits[AT(c, k)] = false;
#endif
        if
#ifdef REPLAY
        :: giving[c] && AFTER(age[AT(c, k)]) > 0 -> give(c, k, AFTER(age[AT(c, k)])); MARK(c, k, false)
#endif
        :: !BUSY(c) || AFTER(age[AT(c, k)]) == 0 -> give_back(c, k); MARK(c, k, false)
        :: else -> has[AT(c, k)] = true; safe[AT(c, k)] = AFTER(age[AT(c, k)])
        fi
    :: request[AT(c, k)] == RENEWED && has[AT(c, k)] ->
        if
        :: safe[AT(c, k)] == 0 -> /* lost is final, also for one vote */
            lose(c, k); give_back(c, k); MARK(c, k, true)
        :: safe[AT(c, k)] > 0 && answer[AT(c, k)] == YES -> safe[AT(c, k)] = AFTER(age[AT(c, k)])
        :: safe[AT(c, k)] > 0 && answer[AT(c, k)] == NO -> lose(c, k) /* it is gone */
        fi
    :: request[AT(c, k)] == RENEWED && !has[AT(c, k)] /* given back meanwhile */
    fi;
    done(c, k);
    heard(c)
}

inline read(c, k) {
    SAY("@ read %d %d\n", c, k)
    answered(c, k);
#ifdef REPLAY
    if
    :: dead[AT(c, k)] && dropped[AT(c, k)] != DONE -> dead[AT(c, k)] = false; reconnect(c, k)
    :: else
    fi;
#endif
    look()
}

#ifdef REPLAY
/* The answer to a release.  An attempt may have waited for it. */
inline gone(c, k) {
    SAY("@ gone %d %d %d\n", c, k, RELEASES(c, k))
    dropped[AT(c, k)] = NONE; MARK_TWICE(c, k, false);
    if
    :: counts[AT(c, k)] ->
        counts[AT(c, k)] = false;
        given[c] = given[c] + (found[AT(c, k)] || (again[AT(c, k)] && until[AT(c, k)] > 0));
        judge(c)
    :: else
    fi;
    if
    :: waits[AT(c, k)] && request[AT(c, k)] == NONE -> send(c, k, ASKED)
    :: else
    fi;
    if
    :: dead[AT(c, k)] && answer[AT(c, k)] == NONE -> dead[AT(c, k)] = false; reconnect(c, k)
    :: else
    fi;
    look()
}
#endif

inline notice(c, k) { /* the time of one vote is over */
    SAY("@ notice %d %d\n", c, k)
    over = (phase[c] == HELD && !VALID(c));
    lose(c, k); give_back(c, k); MARK(c, k, true); heard(c); look()
}

inline ask_to_renew(c, k) {
    SAY("@ renew %d %d\n", c, k)
    send(c, k, RENEWED); look()
}

#define ANSWERED(c, k) (answer[AT(c, k)] != NONE && !NEXT(c, k))
#define GONE(c, k) (dropped[AT(c, k)] == DONE && (NEXT(c, k) || request[AT(c, k)] == NONE))
#ifdef REPLAY
#define MAY_SEE(c, k) (request[AT(c, k)] == NONE) /* otherwise with the answer to its renewal */
#else
#define MAY_SEE(c, k) true
#endif
#define UNSEEN(c, k) (phase[c] != IDLE && has[AT(c, k)] && safe[AT(c, k)] == 0 && MAY_SEE(c, k))
#define RENEWS(c, k) \
    (KEEPS(c) && phase[c] == HELD && VOTE(c, k) && safe[AT(c, k)] < LEASE && request[AT(c, k)] == NONE)
#ifdef REPLAY
#define REFILLS(c, k) (waits[AT(c, k)] && SILENT(c, k))
#else
#define REFILLS(c, k) (KEEPS(c) && VALID(c) && k == 2 && !has[AT(c, k)] && SILENT(c, k)) /* one stands for all */
#endif

proctype Client(byte c) {
    bool patient; /* it goes on after a round that has failed */
    do
    :: atomic { phase[c] == IDLE && tries[c] < TRIES(c) && QUIET(c) ->
#ifdef REPLAY
        if
        :: patient = true
        :: patient = false
        fi;
#endif
        SAY("@ ask %d %d\n", c, patient)
        tries[c]++; phase[c] = COLLECTING;
        send(c, 0, ASKED); send(c, 1, ASKED); send(c, 2, ASKED); look() }
    :: atomic { ANSWERED(c, 0) -> read(c, 0) }
    :: atomic { ANSWERED(c, 1) -> read(c, 1) }
    :: atomic { ANSWERED(c, 2) -> read(c, 2) }
#ifdef REPLAY
    :: atomic { GONE(c, 0) -> gone(c, 0) }
    :: atomic { GONE(c, 1) -> gone(c, 1) }
    :: atomic { GONE(c, 2) -> gone(c, 2) }
#endif
    :: atomic { UNSEEN(c, 0) -> notice(c, 0) }
    :: atomic { UNSEEN(c, 1) -> notice(c, 1) }
    :: atomic { UNSEEN(c, 2) -> notice(c, 2) }
    :: atomic { SELDOM && phase[c] == COLLECTING ->
        SPENT SAY("@ cancel %d\n", c)
        give_up(c); look() }
    :: atomic { SELDOM && VALID(c) ->
        SPENT SAY("@ release %d\n", c)
        release(c); look() }
    :: atomic { phase[c] == HELD && !VALID(c) ->
        SAY("@ lost %d\n", c)
        give_up(c); look() }
    :: atomic { RENEWS(c, 0) -> ask_to_renew(c, 0) }
    :: atomic { RENEWS(c, 1) -> ask_to_renew(c, 1) }
    :: atomic { RENEWS(c, 2) -> ask_to_renew(c, 2) }
#ifdef REPLAY
    :: atomic { REFILLS(c, 0) ->
        SAY("@ again %d 0\n", c)
        send(c, 0, ASKED); look() }
    :: atomic { REFILLS(c, 1) ->
        SAY("@ again %d 1\n", c)
        send(c, 1, ASKED); look() }
#endif
    :: atomic { REFILLS(c, 2) ->
        SAY("@ again %d 2\n", c)
        send(c, 2, ASKED); look() }
    od
} /* unreached: it never ends */

init { atomic { run Node(0); run Node(1); run Node(2); run Client(0); run Client(1) } }
