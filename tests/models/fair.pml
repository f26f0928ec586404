/* fair.pml - the fair lock's queue: in order, past the dead, and nobody is stuck.
 *
 * Models        core/lua/_fair.lua (purge, grant, leave), fair_acquire.lua, fair_release.lua, core/engine/place.c:
 *               places, the beat that keeps them, the grant by a release with its short first lease, its message,
 *               which may overtake the answer to a request or be lost with the subscription; the grant without a message
 *               to a waiter that was skipped and has asked since; the way back of who gives up; of chan.c and waitq.c when
 *               a waiter subscribes, asks again, and leaves what it does not need any more.
 * World         one server, NC processes with one waiter each.  Troubles: a process may die in any state; the server may
 *               notice that late, or never, and then still counts it among those who hear.  A subscription may be lost,
 *               and what was on its way with it; later the process notices, and subscribes again.  A waiter may give up.
 *               A grant may be deleted while its waiter asks.  Requests are answered within a beat; messages and
 *               subscriptions may take any time.
 * Bounds        WANTS acquisitions a process, TROUBLES; leases of LEASE and FIRST beats.  Time has no bound: only
 *               differences are stored.
 * Assumptions   a process that lives asks in time (as a stopped process is a dead one that comes back, that is not
 *               part of this model); A1 and, but for such grants, A3.
 * Properties    assert: one valid hold; who is granted the lock has nobody ahead who lives and hears; a live waiter
 *               is never dropped from the queue.
 *               ltl served: whoever waits holds the lock in the end, or gives up, or dies.
 * Mutants       MUTANT_HASTY         a waiter counts as dead after one beat of silence
 *               MUTANT_NO_BEAT       waiters sleep until a message comes
 *               MUTANT_BLIND_GRANT   a grant is made whether anybody hears of it, for a whole long lease
 *               MUTANT_BARGES        a free lock is taken by whoever asks
 *               MUTANT_STAYS         a waiter that gets the lock by asking stays in the queue
 *               MUTANT_KEEPS_PLACE   who gives up stays in the queue
 *               MUTANT_OLD_NEWS      a grant is believed, although the server has seen its process wait since
 *
 * walks: 40 of 15000
 *
 * run: -DSAFETY
 * run: -a -f -N served
 */
#define CHANCE 3
#include "trace.inc"
#if defined(REPLAY) /* the core's: a beat is at most a second, a first lease three, and silence is death after 2.5 s */
#define NC 3
#define WANTS 250
#define TROUBLES 250
#define FIRST 3
#define LEASE 4
#elif defined(FULL)
#define NC 3
#define WANTS 1
#define TROUBLES 2
#define FIRST 2
#define LEASE 3
#else
#define NC 2
#define WANTS 2
#define TROUBLES 2
#define FIRST 2
#define LEASE 2
#endif
#define NEVER 255
#ifdef MUTANT_HASTY
#define DEAD 1
#else
#define DEAD 3 /* beats of silence */
#endif

mtype = { NONE, OUT, ASKING, PLACED, HELD, LEAVING, SENT, QUEUED, GRANTED, FRESH, OLD, OFF, WISHED, ON,
          SKIPPED, ASKED };

chan queue = [NC] of { byte }; /* the server's: processes, from 1 */
byte owner, left;
byte silent[NC];          /* beats since the process last asked, at most DEAD */
/* PLACED: it has been refused, though its first request may have been for no place.  LEAVING: it has given up while a
 * request is on its way. */
mtype state[NC] = OUT;
mtype passed[NC] = NONE;    /* SKIPPED, because it cannot be told of a grant; ASKED: it has asked since */
bool dead[NC], deaf[NC];  /* deaf: its subscription is lost, and it does not know yet */
mtype sub[NC] = OFF;      /* the subscription: WISHED until the server has it; ON: the server counts it */
byte wants[NC];
mtype request[NC] = NONE; /* SENT; then the answer */
bool awake[NC];           /* the request was sent while subscribed */
bool tries[NC];           /* it is for no place: the process could not hear of a grant */
bool fresh[NC];           /* a grant on its way; at most one, because who is granted the lock leaves the queue */
byte olds[NC];            /* before it on its way: the server has seen the process wait since they were sent */
mtype stash[NC] = NONE;   /* a grant that was heard of before the answer was read: FRESH or OLD */
byte known[NC];           /* beats since it was last known not to hold the lock, at most LEASE */
byte safe[NC];            /* beats until V */
bool beaten[NC];          /* asked in this beat */
byte troubles, head, winner, i, n;

#define VALID(c) (state[c] == HELD && safe[c] > 0 && !dead[c])
#define HEARS(c) (sub[c] == ON)
#define LIVES(c) (!dead[c] && HEARS(c))
#define FREE (owner == 0)

#ifdef REPLAY
byte order[NC]; /* of the queue */
#define SHOWN(c) \
    dead[c], state[c], (VALID(c) -> safe[c] : 0), sub[c], HEARS(c), olds[c] + fresh[c], request[c] != NONE, \
    (queue??[eval(c + 1)] -> silent[c] : 0)
inline tell() {
    n = 0;
    do
    :: n < len(queue) -> queue?i; queue!i; order[n] = i; n++
    :: n >= len(queue) && n < NC -> order[n] = 0; n++
    :: n == NC -> break
    od;
    i = 0;
    printf("@ is %d %d %d %d %d  %d %e %d %e %d %d %d %d  %d %e %d %e %d %d %d %d  %d %e %d %e %d %d %d %d\n", \
           owner, left, order[0], order[1], order[2], SHOWN(0), SHOWN(1), SHOWN(2))
}
#define SHOW() tell();
#define MUST(what) skip /* a walk goes on until its steps can be compared */
#else
#define SHOW()
#define MUST(what) assert(what)
#endif

inline look() {
    SHOW()
    assert(!VALID(0) || owner == 1);
    assert(!VALID(1) || owner == 2);
#if NC == 3
    assert(!VALID(2) || owner == 3);
#endif
}

/* Drop the dead at the head; `head` is the first live one, or 0. */
inline purge() {
    head = 0;
    do
    :: head == 0 && nempty(queue) ->
        queue?<head>;
        if
        :: silent[head - 1] >= DEAD -> MUST(dead[head - 1]); queue?_; head = 0
        :: silent[head - 1] < DEAD
        fi
    :: head != 0 || empty(queue) -> break
    od
}

/* With an empty queue it is forgotten who was skipped. */
inline forget() {
    if
    :: empty(queue) ->
        passed[0] = NONE;
#if NC == 3
        passed[2] = NONE;
#endif
        passed[1] = NONE
    :: nempty(queue)
    fi
}

/* Whether a waiter that cannot be told of a grant will ask soon: it has, since it was skipped. */
#define ASKS(c) (passed[c] == ASKED && silent[c] < 2)

/* The lock is free: it goes to the first waiter that hears of it, or will ask soon.  Each is looked at once: they rotate. */
inline grant() {
    forget();
    winner = 0;
    n = len(queue);
    do
    :: n > 0 ->
        n--;
        queue?i;
        if
#ifdef MUTANT_BLIND_GRANT
        :: winner == 0 -> winner = i
        :: winner != 0 -> queue!i
#else
        :: winner == 0 && (HEARS(i - 1) || ASKS(i - 1)) -> winner = i
        :: winner == 0 && !HEARS(i - 1) && !ASKS(i - 1) ->
            passed[i - 1] = (passed[i - 1] == NONE && silent[i - 1] < DEAD -> SKIPPED : passed[i - 1]);
            MUST(!LIVES(i - 1)); queue!i
        :: winner != 0 -> queue!i
#endif
        fi
    :: else -> break
    od;
    if
    :: winner != 0 ->
        owner = winner;
#ifdef MUTANT_BLIND_GRANT
        left = NEVER;
#else
        left = FIRST;
#endif
        fresh[winner - 1] = (LIVES(winner - 1) && !deaf[winner - 1] && state[winner - 1] != LEAVING)
    :: else
    fi;
    winner = 0; i = 0
}

/* Nobody who lives and hears is ahead of the process that gets the lock by asking. */
inline ahead() {
    n = len(queue);
    winner = 1;
    do
    :: n > 0 ->
        n--;
        queue?i;
        queue!i;
        winner = (i == c + 1 -> 0 : winner);
        MUST(winner == 0 || !LIVES(i - 1))
    :: else -> break
    od;
    winner = 0; i = 0
}

inline ask(c) {
    silent[c] = 0;
    passed[c] = (passed[c] == SKIPPED && owner != c + 1 && !tries[c] -> ASKED : passed[c]);
    if
    :: owner == c + 1 -> left = LEASE; request[c] = GRANTED
    :: owner != c + 1 ->
        purge();
        if
#ifdef MUTANT_BARGES
        :: FREE ->
#else
        :: FREE && (head == 0 || head == c + 1) ->
#endif
            ahead();
            forget();
            owner = c + 1; left = LEASE; request[c] = GRANTED;
#ifndef MUTANT_STAYS
            if
            :: queue??[eval(c + 1)] -> queue??eval(c + 1)
            :: else
            fi
#endif
#ifdef MUTANT_BARGES
        :: !FREE ->
#else
        :: !FREE || !(head == 0 || head == c + 1) ->
#endif
            if
            :: queue??[eval(c + 1)]
            :: !queue??[eval(c + 1)] && tries[c]
            :: !queue??[eval(c + 1)] && !tries[c] -> queue!c + 1
            fi;
            olds[c] = olds[c] + fresh[c]; fresh[c] = false;
            stash[c] = (stash[c] == FRESH -> OLD : stash[c]);
            request[c] = QUEUED;
            if
            :: FREE -> grant();
                if
                :: owner == c + 1 -> left = LEASE; request[c] = GRANTED
                :: else
                fi
            :: else
            fi
        fi
    fi;
    head = 0; i = 0; tries[c] = false
}

inline serve(c) {
    ask(c);
    SAY("@ execute %d %d\n", c, request[c] == GRANTED)
    look()
}

active proctype Server() {
    byte c;
    do
    :: atomic { request[0] == SENT -> c = 0; serve(c) }
    :: atomic { request[1] == SENT -> c = 1; serve(c) }
#if NC == 3
    :: atomic { request[2] == SENT -> c = 2; serve(c); c = 0 }
#endif
    od
} /* unreached: it never ends */

inline silence(c) {
    silent[c] = (silent[c] < DEAD -> silent[c] + 1 : DEAD);
    known[c] = (known[c] < LEASE -> known[c] + 1 : LEASE);
    safe[c] = (safe[c] > 0 -> safe[c] - 1 : 0);
    beaten[c] = false
}

/* The next beat comes when all that live have asked, and all requests are answered. */
#ifdef MUTANT_NO_BEAT
#define IN_TIME(c) (dead[c] || request[c] == NONE)
#else
#define IN_TIME(c) (dead[c] || (request[c] == NONE && (state[c] != PLACED || beaten[c])))
#endif

active proctype Clock() {
    do
    :: atomic { IN_TIME(0) && IN_TIME(1) && IN_TIME(NC - 1) ->
        SAY("@ tick\n")
        left = (left > 0 && left != NEVER -> left - 1 : left);
        owner = (left == 0 -> 0 : owner);
        silence(0);
        silence(1);
#if NC == 3
        silence(2);
#endif
        look() }
    od
} /* unreached: it never ends */

inline send(c) {
    request[c] = SENT; known[c] = 0; beaten[c] = true; stash[c] = NONE;
    awake[c] = (sub[c] == ON);
    tries[c] = (state[c] == ASKING && sub[c] != ON)
}

inline take(c, beats) {
    state[c] = HELD; safe[c] = beats; awake[c] = false; olds[c] = 0; fresh[c] = false; stash[c] = NONE
}

/* A release has granted the lock since the process was last known to wait.  If much of that lease is over, it asks. */
inline promised(c) {
    if
    :: 2 * known[c] <= FIRST -> take(c, FIRST - known[c])
    :: 2 * known[c] > FIRST -> send(c) /* unreached: it asks in each beat */
    fi
}

#ifdef MUTANT_OLD_NEWS
#define NEWS(what) (what != NONE)
#else
#define NEWS(what) (what == FRESH)
#endif

/* There is no order between messages and answers: a grant that comes before an answer is kept until then. */
inline hear(c, what) {
    what = (olds[c] > 0 -> OLD : FRESH);
    if
    :: olds[c] > 0 -> olds[c]--
    :: olds[c] == 0 -> fresh[c] = false
    fi;
    if
    :: request[c] != NONE -> stash[c] = what
    :: request[c] == NONE && NEWS(what) -> promised(c)
    :: request[c] == NONE && !NEWS(what) -> send(c)
    fi;
    what = 0
}

inline refused(c) {
    state[c] = PLACED;
    if
    :: NEWS(stash[c]) -> stash[c] = NONE; promised(c)
    :: !NEWS(stash[c]) && !awake[c] && sub[c] == ON -> send(c) /* a grant may have gone unheard */
    :: !NEWS(stash[c]) && (awake[c] || sub[c] != ON) ->
        stash[c] = NONE;
        sub[c] = (sub[c] == OFF -> WISHED : sub[c])
    fi
}

/* A hold is released, in time or too late, or the place of who gave up, or what was granted to it. */
inline give_back(c) {
    if
    :: owner == c + 1 -> owner = 0; left = 0
#ifndef MUTANT_KEEPS_PLACE
    :: owner != c + 1 && queue??[eval(c + 1)] -> queue??eval(c + 1)
    :: owner != c + 1 && !queue??[eval(c + 1)]
#else
    :: owner != c + 1
#endif
    fi;
    if
    :: FREE -> purge(); head = 0; grant()
    :: else
    fi;
    state[c] = OUT; safe[c] = 0; awake[c] = false
}

proctype Process(byte c) {
    mtype what;
    do
    :: atomic { dead[c] && sub[c] == ON -> /* the server notices, if it does */
        SAY("@ gone %d\n", c)
        sub[c] = OFF; look() }
    :: atomic { SELDOM && !dead[c] && troubles < TROUBLES && state[c] != OUT ->
        SPENT SAY("@ die %d\n", c)
        troubles++; dead[c] = true; deaf[c] = false; olds[c] = 0; fresh[c] = false; stash[c] = NONE;
        sub[c] = (sub[c] == ON -> ON : OFF);
        request[c] = (request[c] == SENT -> SENT : NONE); look() }
    :: atomic { dead[c] && request[c] != NONE && request[c] != SENT -> request[c] = NONE }
#ifdef REPLAY
    :: atomic { dead[c] && sub[c] == OFF && request[c] == NONE && owner != c + 1 && !queue??[eval(c + 1)] ->
        SAY("@ another %d\n", c) /* process in its place, of which the server has nothing yet */
        dead[c] = false; state[c] = OUT; safe[c] = 0; look() }
#endif
    :: atomic { !dead[c] && state[c] == OUT && wants[c] < WANTS ->
        SAY("@ acquire %d\n", c)
        wants[c]++; state[c] = ASKING; passed[c] = NONE; send(c); look() }
    :: atomic { !dead[c] && state[c] != LEAVING && request[c] == GRANTED -> /* V counts from before the request: within this beat */
        SAY("@ read %d\n", c)
        request[c] = NONE; take(c, LEASE - known[c]); look() }
    :: atomic { !dead[c] && state[c] != LEAVING && request[c] == QUEUED ->
        SAY("@ read %d\n", c)
        request[c] = NONE; refused(c); look() }
    :: atomic { !dead[c] && (olds[c] > 0 || fresh[c]) ->
        SAY("@ hear %d\n", c)
        hear(c, what); look() }
#ifndef MUTANT_NO_BEAT
    :: atomic { !dead[c] && state[c] == PLACED && request[c] == NONE && !beaten[c] ->
        SAY("@ beat %d\n", c)
        send(c); look() }
#endif
    :: atomic { !dead[c] && sub[c] == WISHED -> /* subscribed: a grant may have gone unheard, so it asks */
        SAY("@ subscribe %d\n", c)
        sub[c] = ON;
        if
        :: state[c] == PLACED && request[c] == NONE -> send(c)
        :: else
        fi;
        look() }
    :: atomic { SELDOM && !dead[c] && !deaf[c] && sub[c] == ON && troubles < TROUBLES ->
        SPENT SAY("@ deaf %d\n", c)
        troubles++; deaf[c] = true; look() }
    :: atomic { deaf[c] -> /* it notices, and what was on its way is lost */
        SAY("@ cut %d\n", c)
        deaf[c] = false; olds[c] = 0; fresh[c] = false; awake[c] = false;
        sub[c] = (state[c] == PLACED -> WISHED : OFF); look() }
    :: atomic { SELDOM && !dead[c] && !deaf[c] && (state[c] == OUT || state[c] == HELD) && sub[c] != OFF ->
        SPENT SAY("@ leave %d\n", c) /* unused for a while */
        sub[c] = OFF; look() }
    :: atomic { owner == c + 1 && request[c] == SENT && troubles < TROUBLES ->
        SAY("@ delete\n")
        troubles++; owner = 0; left = 0; look() }
    :: atomic { !dead[c] && state[c] == HELD ->
        SAY("@ release %d %d\n", c, safe[c] > 0)
        give_back(c); look() }
    :: atomic { SELDOM && !dead[c] && (state[c] == ASKING || state[c] == PLACED) && troubles < TROUBLES ->
        SPENT SAY("@ give_up %d\n", c)
        troubles++; olds[c] = 0; fresh[c] = false; stash[c] = NONE;
        if
        :: request[c] == NONE -> give_back(c)
        :: request[c] != NONE -> state[c] = LEAVING
        fi;
        look() }
    :: atomic { !dead[c] && state[c] == LEAVING && (request[c] == GRANTED || request[c] == QUEUED) ->
        SAY("@ back %d\n", c)
        request[c] = NONE; give_back(c); look() }
    od
} /* unreached: it never ends */

init {
    atomic {
        run Process(0);
        run Process(1);
#if NC == 3
        run Process(2);
#endif
    }
}

ltl served { [] ((state[0] == PLACED) -> <> (state[0] == HELD || state[0] == LEAVING || state[0] == OUT || dead[0]))
          && [] ((state[1] == PLACED) -> <> (state[1] == HELD || state[1] == LEAVING || state[1] == OUT || dead[1])) }
