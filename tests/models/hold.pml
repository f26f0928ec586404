/* hold.pml - the life of a hold: lost is final, a handle finds its own hold or nothing, and everything is freed once.
 *
 * Models        core/engine/hold.c (granted, over, lose, settle, abandon, drop), release.c (snib__engine_release,
 *               snib__gate_release_lost, the answer), gate.c (re-entry), core/api/handle.c (get, put, take, recycle),
 *               core/api/held.c (held_give_back, snib__hold_destroy), run.c (the handle is made at the first grant,
 *               and when its last user has gone nobody is told of a loss).
 * World         one lock and one explicit owner, whose calls come from two threads: acquire (again), check, release,
 *               free, abandon, and a check with a handle that the thread has given back.  A deadline passes at any time
 *               and is noticed at any later time; somebody may delete the lock; answers take any time.
 * Abstracted    what happens inside the client's mutex is one step, and so is each atomic access to a slot.  A grant
 *               is one step, and only if the server's lock is free.  Slots and holds are reused at once.
 * Bounds        GETS(u) acquisitions of thread u, one release for each; CHECKS; two holds and two slots at a time.
 * Assumptions   A1: the server forgets a lock by its lease only after the hold's deadline.
 * Properties    assert: a thread that has not freed its handle finds its hold; a handle never finds another hold, nor
 *               one that has been recycled; a hold that was seen or reported as lost is never valid or released
 *               again; "released" is said once for a hold, and only if the server had it; a loss is reported once.
 *               In the end all holds and slots are free, and the server keeps a lock only for an abandoned hold.
 * Mutants       MUTANT_REVIVES          a renewal's answer after the deadline extends the hold
 *               MUTANT_TIMER_ONLY       a release looks at what was noticed, not at the clock
 *               MUTANT_SAME_GENERATION  a slot is reused with the same generation
 *               MUTANT_LAST_ENTERS      a hold may be entered again while its last user frees it
 *               MUTANT_FREE_ENDS        each free ends the handle, not only the last one
 *               MUTANT_NO_REFERENCE     a call does not hold a reference to what it uses
 *               MUTANT_SETTLES_EARLY    a hold is recycled while its loss is still to be reported
 *               MUTANT_LOST_STAYS       nothing is released of a hold that the clock has ended
 *
 * unseen: MUTANT_SETTLES_EARLY
 * walks: 40 of 6000
 *
 * run: -DSAFETY
 */
#define CHANCE 4
#include "trace.inc"
#ifdef REPLAY
#define GETS(u) 12
#define CHECKS(u) true
#elif defined(FULL)
#define GETS(u) (u == 0 -> 2 : 1)
#define CHECKS(u) true
#else
#define GETS(u) 1
#define CHECKS(u) (u == 1) /* the thread that checks; the other one also uses a handle that it has freed */
#endif
#define HOLDS 2
#define SLOTS 2
#define NOTHING 255
#ifdef REPLAY
#define NUMBERS 26
#else
#define NUMBERS 6
#endif

mtype = { NONE, HELD, RELEASING, LOST, GONE, OK, WAITS };

byte owner;                                                      /* of the server's lock: a number; 0: it is free */
bool rest[NUMBERS];                                              /* is being released in the background */
byte last;                                                       /* the last number given out */
/* Holds; `used` is false while one is on the free list. */
bool used[HOLDS], handed[HOLDS], tells[HOLDS], untold[HOLDS], abandoned[HOLDS], enters[HOLDS], late[HOLDS], known[HOLDS];
mtype phase[HOLDS] = NONE, op[HOLDS] = NONE;                     /* op: WAITS, then the release's result */
byte number[HOLDS], users[HOLDS], count[HOLDS], handle[HOLDS];   /* handle: 0 is none */
byte current = NOTHING;                                           /* the gate's hold */
/* Slots: the words of handle.c. */
byte generation[SLOTS] = 1, references[SLOTS], object[SLOTS];
bool ended[SLOTS] = true;
/* What is known outside, by number. */
bool seen_lost[NUMBERS], released[NUMBERS], left_there[NUMBERS], told[NUMBERS];
byte threads = 2;

#define HANDLE(s) (generation[s] * SLOTS + s)
#define SLOT(h) (h % SLOTS)
#define LIVE(h) (generation[SLOT(h)] == h / SLOTS && !ended[SLOT(h)])

#ifdef REPLAY
#define SHOW() \
    printf("@ is %d %d %e %d %d\n", (owner != 0), rest[owner], (current == NOTHING -> NONE : phase[current]), \
           (current == NOTHING -> 0 : users[current]), (current == NOTHING -> 0 : count[current]));
#else
#define SHOW()
#endif

/* ---- engine ---- */

#ifdef MUTANT_SETTLES_EARLY
#define MAY_SETTLE(o) (!handed[o] && phase[o] != RELEASING && phase[o] != HELD && op[o] == NONE) || phase[o] == LOST
#else
#define MAY_SETTLE(o) (!handed[o] && !untold[o] && phase[o] != RELEASING && phase[o] != HELD && op[o] == NONE)
#endif

inline settle(o) {
    if
    :: MAY_SETTLE(o) ->
        used[o] = false; phase[o] = NONE; number[o] = 0; abandoned[o] = false; late[o] = false; known[o] = false;
        enters[o] = false; tells[o] = false; count[o] = 0; users[o] = 0
    :: else
    fi
}

inline lose(o) {
    phase[o] = LOST; current = NOTHING; untold[o] = handed[o] && tells[o];
    settle(o)
}

inline over(o) {
    if
    :: phase[o] == HELD && late[o] -> lose(o)
    :: else
    fi
}

inline release_lost(o) {
#ifndef MUTANT_LOST_STAYS
    if
    :: !known[o] && count[o] > 0 -> rest[number[o]] = true
    :: else
    fi;
#endif
    count[o] = 0
}

inline leave(o) {
    phase[o] = GONE; current = NOTHING; left_there[number[o]] = true;
    settle(o)
}

inline drop(o) {
    assert(used[o] && handed[o]);
    handed[o] = false; untold[o] = false; handle[o] = 0;
    if
    :: phase[o] == HELD && abandoned[o] -> leave(o)
    :: phase[o] == HELD && !abandoned[o] -> phase[o] = RELEASING
    :: phase[o] == LOST && !abandoned[o] -> release_lost(o); settle(o)
    :: phase[o] == LOST && abandoned[o] -> left_there[number[o]] = true; settle(o)
    :: phase[o] == GONE -> settle(o)
    :: phase[o] == RELEASING
    fi
}

active proctype Engine() {
    byte o;
end:
    do
    :: atomic { SELDOM && current != NOTHING && !late[current] -> /* its deadline passes */
        SHOW() SAY("@ late\n") SPENT
        late[current] = true }
    :: atomic { current != NOTHING && late[current] && phase[current] == HELD ->
        SHOW() SAY("@ notice\n")
        o = current; lose(o); o = 0 }
    :: atomic { current != NOTHING && late[current] && phase[current] == HELD -> /* a renewal's answer */
        SHOW() SAY("@ renewed\n")
#ifdef MUTANT_REVIVES
        late[current] = false
#else
        o = current; over(o); o = 0
#endif
        }
    :: atomic { current != NOTHING && phase[current] == HELD && owner != number[current] && !late[current] ->
        /* the server says that it is gone */
        SHOW() SAY("@ gone\n")
        o = current; known[o] = true; lose(o); o = 0 }
    :: atomic { untold[0] || untold[1] -> /* the driver reports it */
        SHOW() SAY("@ report\n")
        o = (untold[0] -> 0 : 1);
        untold[o] = false;
        assert(used[o] && !told[number[o]]);
        told[number[o]] = true; seen_lost[number[o]] = true;
        settle(o); o = 0 }
    :: atomic { current != NOTHING && phase[current] == RELEASING -> /* the server's answer to a release */
        SHOW() SAY("@ answer\n")
        o = current; current = NOTHING; phase[o] = GONE;
        if
        :: owner == number[o] ->
            owner = 0;
            assert(op[o] == NONE || (!seen_lost[number[o]] && !released[number[o]]));
            released[number[o]] = true;
            op[o] = (op[o] == WAITS -> OK : NONE)
        :: else -> op[o] = (op[o] == WAITS -> LOST : NONE)
        fi;
        settle(o); o = 0 }
    :: atomic { owner != 0 && rest[owner] ->
        SHOW() SAY("@ rest\n")
        owner = 0 }
    :: atomic { owner != 0 && (current == NOTHING || number[current] != owner || late[current]) && left_there[owner] ->
        SHOW() SAY("@ delete\n")
        owner = 0 } /* the lease of what was left ends */
    :: atomic { SELDOM && current != NOTHING && owner == number[current] -> /* deleted; or its lease ends */
        SHOW() SAY("@ delete\n") SPENT
        owner = 0 }
    od
} /* unreached: it never ends */

/* ---- handles ---- */

inline find(h, o) {
    if
    :: LIVE(h) ->
        o = object[SLOT(h)];
#ifndef MUTANT_NO_REFERENCE
        references[SLOT(h)]++
#endif
    :: else -> o = NOTHING
    fi
}

inline put(h, o) {
    atomic {
        SHOW() SAY("@ go %d\n", u)
#ifdef MUTANT_NO_REFERENCE
        references[SLOT(h)] = (ended[SLOT(h)] -> 0 : references[SLOT(h)]);
#else
        references[SLOT(h)]--;
#endif
        if
        :: ended[SLOT(h)] && references[SLOT(h)] == 0 -> frees = true
        :: else
        fi };
    if
    :: frees ->
        atomic {
            SHOW() SAY("@ go %d\n", u)
            drop(o) };
        atomic { frees = false;
            SHOW() SAY("@ go %d\n", u)
#ifdef MUTANT_SAME_GENERATION
            object[SLOT(h)] = NOTHING
#else
            object[SLOT(h)] = NOTHING; generation[SLOT(h)]++
#endif
            }
    :: else
    fi
}

/* ---- threads ---- */

#define FREE_HOLD (!used[0] || !used[1])
#define FREE_SLOT(s) (ended[s] && references[s] == 0 && object[s] == NOTHING)

inline make(o) {
    last++; owner = last;
    used[o] = true; handed[o] = true; enters[o] = true; tells[o] = true; phase[o] = HELD;
    number[o] = last; users[o] = 1; count[o] = 1; current = o;
    s = (FREE_SLOT(0) -> 0 : 1);
    object[s] = o; references[s] = 1; ended[s] = false;
    handle[o] = HANDLE(s);
    h = handle[o]; mine = last
}

proctype Thread(byte u) {
    byte h, mine, old, old_number, o = NOTHING, s, got;
    bool frees, is_last, gave, abandons;
    do
    :: atomic { h == 0 && got < GETS(u) ->
        SHOW()
        if
        :: current != NOTHING -> o = current; over(o); o = NOTHING
        :: else
        fi;
        if
        :: current != NOTHING && phase[current] == HELD && enters[current] -> /* entered again */
            SAY("@ enter %d\n", u)
            users[current]++; count[current]++; h = handle[current]; mine = number[current]; got++; gave = false
        :: current == NOTHING && owner == 0 && FREE_HOLD && (FREE_SLOT(0) || FREE_SLOT(1)) ->
            got++; gave = false;
            SAY("@ acquire %d\n", u)
            if
            :: !used[0] -> make(0)
            :: used[0] -> make(1)
            fi
        :: else ->
            SAY("@ busy %d %d\n", u, (owner != 0))
            got++ /* busy */
        fi;
        s = 0 }
    :: atomic { h != 0 && CHECKS(u) -> /* check */
        SHOW() SAY("@ check %d\n", u)
        find(h, o);
        assert(o != NOTHING && used[o] && number[o] == mine) };
        atomic {
        SHOW() SAY("@ go %d\n", u)
        SAY("@ expect %d %e\n", u, (phase[o] == HELD && late[o] -> LOST : phase[o]))
        assert(used[o] && number[o] == mine);
        if
        :: phase[o] == LOST || (phase[o] == HELD && late[o]) -> seen_lost[mine] = true
        :: phase[o] == HELD && !late[o] -> assert(!seen_lost[mine])
        :: else
        fi };
        put(h, o);
        o = NOTHING
    :: atomic { old != 0 -> /* with a handle that it has freed: the other thread may still have it */
        SHOW() SAY("@ again %d\n", u)
        find(old, o);
        SAY("@ found %d %d\n", u, (o != NOTHING))
        assert(o == NOTHING || (used[o] && number[o] == old_number)) };
        if
        :: o != NOTHING -> put(old, o)
        :: else
        fi;
        atomic { o = NOTHING; old = 0; old_number = 0 }
    :: atomic { h != 0 && !gave -> /* release */
        SHOW() SAY("@ release %d\n", u)
        gave = true;
        find(h, o);
        assert(o != NOTHING && used[o] && number[o] == mine) };
        atomic {
        SHOW() SAY("@ go %d\n", u)
#ifndef MUTANT_TIMER_ONLY
        over(o);
#endif
        SAY("@ expect %d %e\n", u, (phase[o] == HELD && count[o] > 1 -> OK : (phase[o] == HELD -> NONE : phase[o])))
        if
        :: phase[o] == LOST && !abandoned[o] -> seen_lost[mine] = true; release_lost(o)
        :: phase[o] == LOST && abandoned[o] -> seen_lost[mine] = true
        :: phase[o] == HELD && count[o] > 1 -> count[o]--
        :: phase[o] == HELD && count[o] <= 1 -> phase[o] = RELEASING; op[o] = WAITS; is_last = true
        :: else /* not held */
        fi };
        if
        :: is_last -> atomic { op[o] == OK || op[o] == LOST ->
            SHOW() SAY("@ go %d\n", u)
            SAY("@ expect %d %e\n", u, op[o])
            seen_lost[mine] = seen_lost[mine] || op[o] == LOST;
            op[o] = NONE; is_last = false; settle(o) }
        :: !is_last
        fi;
        put(h, o);
        o = NOTHING
    :: atomic { h != 0 -> /* free, or abandon */
        if
        :: abandons = false
        :: abandons = true
        fi;
        SHOW() SAY("@ free %d %d\n", u, abandons)
        find(h, o);
        assert(o != NOTHING && used[o] && number[o] == mine) };
        atomic {
        SHOW() SAY("@ go %d\n", u)
#ifdef MUTANT_FREE_ENDS
        is_last = true;
#else
        is_last = users[o] <= 1;
#endif
        users[o] = (users[o] > 0 -> users[o] - 1 : 0);
        if
        :: !abandons
        :: abandons ->
            over(o);
            abandoned[o] = abandoned[o] || phase[o] == HELD || phase[o] == LOST;
            if
            :: phase[o] == HELD && users[o] == 0 -> leave(o)
            :: else
            fi
        fi;
        abandons = false;
        tells[o] = tells[o] && !is_last; /* nobody is left to be told of a loss */
#ifndef MUTANT_LAST_ENTERS
        enters[o] = enters[o] && !is_last
#endif
        };
        put(h, o);
        if
        :: is_last ->
            atomic {
                SHOW() SAY("@ go %d\n", u)
                if
                :: LIVE(h) -> ended[SLOT(h)] = true; o = object[SLOT(h)]
                :: else -> is_last = false /* unreached: only one of them is the last user */
                fi };
            if
            :: is_last -> put(h, o)
            :: else
            fi
        :: else
        fi;
        atomic {
            old = (u == 0 -> h : 0); old_number = (u == 0 -> mine : 0);
            h = 0; mine = 0; o = NOTHING; is_last = false }
    :: atomic { h == 0 && got == GETS(u) && old == 0 -> threads--; break }
    od
}

init {
    atomic {
        object[0] = NOTHING;
        object[1] = NOTHING;
        run Thread(0);
        run Thread(1)
    }
    atomic { threads == 0 && timeout ->
        SHOW() SAY("@ end %d\n", (owner != 0))
        assert(!used[0] && !used[1] && ended[0] && ended[1] && references[0] == 0 && references[1] == 0);
        assert(owner == 0 || left_there[owner]) }
}
