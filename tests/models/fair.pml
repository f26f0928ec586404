/* fair.pml - the fair lock's queue: in order, past the dead, and nobody is stuck.
 *
 * Models        core/lua/_fair.lua (purge, grant, leave), fair_acquire.lua, fair_release.lua, core/engine/place.c:
 *               places, the beat that keeps them, the grant by a release with its short first lease, its message,
 *               which may overtake the answer to a request or be lost with the subscription.
 * World         one server, NC processes with one waiter each.  A process may die in any state; the server may notice
 *               that late, or never, and then still counts it among those who hear.  A subscription may be lost once
 *               and comes back.  Requests are answered within a beat; messages may take any time.
 * Bounds        WANTS acquisitions a process, DEATHS and DEAFS; leases of LEASE and FIRST beats.  Time has no bound:
 *               only differences are stored.
 * Assumptions   a process that lives asks in time (as a stopped process is a dead one that comes back, that is not
 *               part of this model); A1 and A3.
 * Properties    assert: one valid hold; who is granted the lock has nobody ahead who lives and hears; a live waiter
 *               is never dropped from the queue.
 *               ltl served: whoever has a place holds the lock in the end, or dies.
 * Mutants       MUTANT_HASTY         a waiter counts as dead after one beat of silence
 *               MUTANT_NO_BEAT       waiters sleep until a message comes
 *               MUTANT_BLIND_GRANT   a grant is made whether anybody hears of it, for a whole long lease
 *               MUTANT_BARGES        a free lock is taken by whoever asks
 *               MUTANT_STAYS         a waiter that gets the lock by asking stays in the queue
 *
 * run: -DSAFETY
 * run: -a -f -N served
 */
#ifdef FULL
#define NC 3
#define WANTS 1
#define DEATHS 2
#define DEAFS 1
#define FIRST 2
#define LEASE 3
#else
#define NC 2
#define WANTS 2
#define DEATHS 1
#define DEAFS 1
#define FIRST 2
#define LEASE 2
#endif
#define NEVER 255
#ifdef MUTANT_HASTY
#define DEAD 1
#else
#define DEAD 3 /* beats of silence */
#endif

mtype = { NONE, OUT, ASKING, PLACED, HELD, RELEASING, SENT, QUEUED, GRANTED, FRESH, OLD };

chan queue = [NC] of { byte }; /* the server's: processes, from 1 */
byte owner, left;
byte silent[NC];          /* beats since the process last asked, at most DEAD */
bool ears[NC];            /* the server counts it among those who hear */
mtype state[NC] = OUT;
bool dead[NC], deaf[NC];  /* deaf: its subscription is lost, and it does not know yet */
byte wants[NC];
mtype request[NC] = NONE; /* SENT; then the answer */
mtype message[NC] = NONE; /* a grant on its way; OLD: the server has seen the process wait since */
byte known[NC];           /* beats since it was last known not to hold the lock, at most LEASE */
byte safe[NC];            /* beats until V */
bool beaten[NC];          /* asked in this beat */
byte deaths, deafs, head, winner, i, n;

#define VALID(c) (state[c] == HELD && safe[c] > 0 && !dead[c])
#define LIVES(c) (!dead[c] && ears[c])
#define FREE (owner == 0)

inline look() {
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
        :: silent[head - 1] >= DEAD -> assert(dead[head - 1]); queue?_; head = 0
        :: silent[head - 1] < DEAD
        fi
    :: head != 0 || empty(queue) -> break
    od
}

/* The lock is free: it goes to the first waiter that hears of it.  Each is looked at once: they rotate. */
inline grant() {
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
        :: winner == 0 && ears[i - 1] -> winner = i
        :: winner != 0 || !ears[i - 1] -> assert(winner != 0 || !LIVES(i - 1)); queue!i
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
        message[winner - 1] = (ears[winner - 1] && !deaf[winner - 1] -> FRESH : NONE)
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
        assert(winner == 0 || !LIVES(i - 1))
    :: else -> break
    od;
    winner = 0; i = 0
}

inline ask(c) {
    silent[c] = 0;
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
            :: else -> queue!c + 1
            fi;
            message[c] = (message[c] == FRESH -> OLD : message[c]);
            request[c] = QUEUED;
            if
            :: FREE -> grant();
                if
                :: owner == c + 1 -> left = LEASE; request[c] = GRANTED; message[c] = NONE
                :: else
                fi
            :: else
            fi
        fi
    fi;
    head = 0; i = 0
}

active proctype Server() {
    byte c;
    do
    :: atomic { request[0] == SENT -> c = 0; ask(c); look() }
    :: atomic { request[1] == SENT -> c = 1; ask(c); look() }
#if NC == 3
    :: atomic { request[2] == SENT -> c = 2; ask(c); c = 0; look() }
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

inline send(c) { request[c] = SENT; known[c] = 0; beaten[c] = true }

inline take(c, beats) { state[c] = HELD; safe[c] = beats; message[c] = NONE }

proctype Process(byte c) {
    do
    :: atomic { dead[c] && ears[c] -> ears[c] = false } /* the server notices, if it does */
    :: atomic { !dead[c] && deaths < DEATHS && state[c] != OUT ->
        deaths++; dead[c] = true; message[c] = NONE;
        request[c] = (request[c] == SENT -> SENT : NONE); look() }
    :: atomic { !dead[c] && state[c] == OUT && wants[c] < WANTS ->
        wants[c]++; ears[c] = true; state[c] = ASKING; send(c); look() }
    :: atomic { dead[c] && request[c] != NONE && request[c] != SENT -> request[c] = NONE }
    :: atomic { !dead[c] && request[c] == GRANTED -> /* V counts from before the request: within this beat */
        request[c] = NONE; take(c, LEASE - known[c]); look() }
    :: atomic { !dead[c] && request[c] == QUEUED ->
        request[c] = NONE; state[c] = PLACED; look() }
    :: atomic { !dead[c] && state[c] == PLACED && request[c] == NONE && message[c] != NONE ->
        if
        :: message[c] == FRESH && known[c] < FIRST -> take(c, FIRST - known[c])
        :: message[c] == OLD || known[c] >= FIRST -> message[c] = NONE; send(c)
        fi;
        look() }
#ifndef MUTANT_NO_BEAT
    :: atomic { !dead[c] && state[c] == PLACED && request[c] == NONE && !beaten[c] -> send(c); look() }
#endif
    :: atomic { !dead[c] && !deaf[c] && ears[c] && deafs < DEAFS -> deafs++; deaf[c] = true }
    :: atomic { deaf[c] -> /* subscribed again: a grant may have gone unheard, so it asks */
        deaf[c] = false;
        if
        :: !dead[c] && state[c] == PLACED && request[c] == NONE -> send(c)
        :: else
        fi }
    :: atomic { !dead[c] && state[c] == HELD -> /* it releases in time or too late, and goes */
        if
        :: owner == c + 1 -> owner = 0; left = 0; purge(); head = 0; grant()
        :: else -> skip
        fi;
        state[c] = OUT; safe[c] = 0; ears[c] = false; message[c] = NONE; look() }
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

ltl served { [] ((state[0] == PLACED) -> <> (state[0] == HELD || dead[0]))
          && [] ((state[1] == PLACED) -> <> (state[1] == HELD || dead[1])) }
