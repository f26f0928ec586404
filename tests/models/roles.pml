/* roles.pml - the driver's roles: every call returns, and a socket has one reader and one writer.
 *
 * Models        core/driver/driver.c (snib__driver_run, driver_lead, driver_sleep, snib__driver_pass_role,
 *               snib__driver_flush_link, driver_take_output, driver_need_thread, driver_wake), thread.c (thread_reads,
 *               thread_watch_link, thread_pass, thread_feed), park.c.
 * World         one command link; NC threads with one call each, one of which may give up, or be ended by a timer, and
 *               leave its request in flight; the background thread; a server that answers in any order.  The socket
 *               may be full, and it may end: then the background thread makes the next one.
 * Abstracted    bytes are whole requests; a reader takes all answers that are there.  The write rule is wider than the
 *               real one: whatever may be collected is, or is not, once one request is on its way (really: eight).
 *               Any thread that waits may be nominated, and a nominee may be passed over at any time (really: the
 *               oldest, and after 100 ms).  A thread with wakes to deliver, or without, lets others have the mutex.  No
 *               other links, no consumer of a queue that reads (core/driver/lead.c), and no caller that does not
 *               come back from a dead socket (snib__driver_alone).
 * Bounds        NC callers, CUTS ends of the socket, FULLS times that it is full; not all of this in one run.
 *               In a walk (REPLAY) callers make one call after another, and all this happens.  But a thread that has
 *               the mutex is not interrupted, answers come in order, the oldest waiter is nominated, nothing is
 *               collected, and the socket does not end between a recv() and what is done with its result.
 * Assumptions   no thread is stopped for ever.  So no nap is needed, and none is made, with one exception: a caller
 *               that reads while another thread finds the socket full waits for room only after its nap of 50 ms.  A
 *               socket is full only while requests in it have no answer.
 * Properties    no invalid end state: every call returns, so no wake-up is lost, no collected request is stranded, and
 *               no role stays with a thread that does not use it.  assert: one reader and one writer of a socket at a
 *               time; no thread leaves as the nominee.
 * Mutants       MUTANT_NO_PASS        a reader leaves without a successor
 *               MUTANT_ALWAYS_DEFERS  requests are collected also while nothing is on its way
 *               MUTANT_PARKS_BLIND    a thread goes to sleep without a look at its word
 *               MUTANT_TWO_WRITERS    a thread writes while another one does
 *               MUTANT_TWO_READERS    the thread reads whenever replies are pending
 *               MUTANT_KEEPS_ROLE     a nominee that needs no reply any more does not pass the role on
 *               MUTANT_OLD_ROLES      the roles stay as they are when the socket is replaced
 *               MUTANT_STILL_RAISED   a bell that has rung counts as rung for ever
 *               MUTANT_NO_ROOM        the thread, which reads, is not woken to wait for room
 *
 * walks: 20 of 40000
 *
 * run: -DSAFETY
 */
#define CHANCE 12
#include "trace.inc"
#ifdef FULL
#define NC 3
#else
#define NC 2
#endif
#ifdef REPLAY
#define CUTS 255
#define FULLS 255
#define COUNTED(n) skip
#else
#define CUTS 1
#define FULLS 1
#define COUNTED(n) n++
#endif
#define T (NC + 1) /* the thread, as the holder of the mutex; callers are 1 to NC */
#define NONE 0

mtype = { UNSAID, LATER, OUT, TAKEN, SENT, ANSWERED, READ, DONE, PENDING, ASLEEP, LEAD,
          FREE, CALLER, BACKGROUND, TRANSIT };

byte mutex;
/* Guarded by it. */
mtype request[NC] = UNSAID; /* LATER: when there is a connection; READ: by its reader, outside */
mtype reader = FREE;
byte nominee;               /* from 1 */
bit sock;                   /* the present one */
bool up = true, seen;       /* seen: the thread has seen its end */
bool listed[NC], left[NC];  /* a waiter; nobody waits for the answer any more */
bool writing, watched, raised;
bool awake = true, endless; /* the thread, and its sleep */
bool soon;                  /* the sleep ends in time to see whether a nominee comes */
/* Words of the callers, and what the system keeps. */
mtype word[NC] = PENDING;
bool parked[NC], bell, ended;
byte cuts, fulls, readers[2], writers[2];
bool gives, limit, fills, ends; /* what may happen */
bool late, due;                 /* the thread has slept until caller 1's time was over, or until it may connect */
#ifdef REPLAY
bool inside[NC];                /* in a call, of which each makes one after the other */
bool second[NC];                /* its request is behind the other's */
byte oldest;                    /* of the waiters */
bool slow;                      /* the thread finds that a nominee has had its time */
byte between;                   /* threads that have a result of recv() and not the mutex */
bool wanted;                    /* the next connection; and the thread knew, when it woke up, that it is */
bool was_down;
#endif

#if NC == 3
#define ANY(stage) (request[0] == stage || request[1] == stage || request[2] == stage)
#define EACH(step) step(0); step(1); step(2)
#define COUNT(what) (what(0) + what(1) + what(2))
#else
#define ANY(stage) (request[0] == stage || request[1] == stage)
#define EACH(step) step(0); step(1)
#define COUNT(what) (what(0) + what(1))
#endif
#define ON_ITS_WAY (ANY(TAKEN) || ANY(SENT) || ANY(ANSWERED) || ANY(READ))
#define IN_FLIGHT(c) (request[c] != UNSAID && request[c] != LATER && request[c] != DONE)
#define AWAITED(c) (listed[c] && IN_FLIGHT(c) && !left[c])
#define UNSENT ANY(TAKEN)
#define CAN_LEAD(c) (AWAITED(c) && (word[c] == PENDING || word[c] == ASLEEP))
#define NOMINATED(c) (up && reader == TRANSIT && nominee == c + 1)
#define MAY_LEAD(c) (word[c] != DONE && IN_FLIGHT(c) && up && (reader == FREE || NOMINATED(c)))

/* In a walk nothing else happens while a thread has the mutex. */
#ifdef REPLAY
#define OUTSIDE (mutex == NONE)
#define RELOCKS (wakes != 0 || ring)
#define CHECK(what) skip
#define WANTED wanted
#define KNEW was_down
#define OLDEST(c) (oldest == c || !CAN_LEAD(1 - c))
#define IN_TURN(c) (!second[c] || request[1 - c] != SENT)
#define SHOW() \
    printf("@ is %d %e %d %d %d %d %d %d %d %d %d %d %d %d  %d %e %d  %d %e %d\n", up, reader, nominee, writing, watched, \
           seen, raised, bell, awake, endless, COUNT(OUT_OF), COUNT(TAKEN_OF), COUNT(IN_FLIGHT), COUNT(LATER_OF), \
           inside[0], word[0], parked[0], inside[1], word[1], parked[1]);
#else
#define OUTSIDE true
#define RELOCKS true
#define CHECK(what) assert(what)
#define WANTED true
#define KNEW true
#define OLDEST(c) true
#define IN_TURN(c) true
#define SHOW()
#endif
#define OUT_OF(c) (request[c] == OUT)
#define TAKEN_OF(c) (request[c] == TAKEN)
#define LATER_OF(c) (request[c] == LATER)

inline lock(me) { mutex == NONE -> SHOW() SAY("@ go %d\n", me) mutex = me }
inline unlock() { mutex = NONE }

/* ---- inside ---- */

inline wake_thread() {
    if
    :: raised
    :: !raised && endless -> raised = true; bell = true /* its sleep has no end: rung inside */
    :: !raised && !endless -> raised = true; ring = true
    fi
}

#ifdef MUTANT_NO_ROOM
#define FULL_AND_ALONE false
#else
#define FULL_AND_ALONE (reader == BACKGROUND && !watched && !writing && UNSENT)
#endif

inline need_thread() {
    if
    :: !up && !awake && WANTED && !due -> wake_thread()
    :: up && ((reader == FREE && COUNT(IN_FLIGHT) > 0) || FULL_AND_ALONE) -> wake_thread()
    :: else
    fi
}

inline nominate(c) {
    if
    :: word[c] == ASLEEP -> wakes = wakes | (1 << c)
    :: else
    fi;
    word[c] = LEAD; reader = TRANSIT; nominee = c + 1;
    if
    :: !awake && !soon -> wake_thread() /* to see whether it comes */
    :: else
    fi
}

/* A nominee has had its time: the next caller, unless others have requests in flight, too. */
inline pass_over() {
    if
    :: COUNT(IN_FLIGHT) <= COUNT(AWAITED) -> pass_role()
    :: else -> reader = FREE; nominee = NONE
    fi
}

inline pass_role() {
#ifdef MUTANT_NO_PASS
    skip
#else
    reader = FREE; nominee = NONE;
    if
    :: CAN_LEAD(0) && OLDEST(0) -> nominate(0)
    :: CAN_LEAD(1) && OLDEST(1) -> nominate(1)
#if NC == 3
    :: CAN_LEAD(2) -> nominate(2)
#endif
    :: COUNT(CAN_LEAD) == 0 && COUNT(IN_FLIGHT) > 0 -> wake_thread()
    :: COUNT(IN_FLIGHT) == 0
    fi
#endif
}

/* What is sent again on the next connection; in a walk the requests are questions, of which one is forgotten that nobody
 * waits for. */
#ifdef REPLAY
#define AGAIN(c) (left[c] -> DONE : LATER)
#else
#define AGAIN(c) LATER
#endif

inline orphan(c) { request[c] = (IN_FLIGHT(c) -> AGAIN(c) : request[c]) }

inline link_down() {
    up = false; seen = false;
    EACH(orphan);
#ifdef REPLAY
    wanted = request[0] == LATER || request[1] == LATER;
#endif
#ifndef MUTANT_OLD_ROLES
    reader = FREE; nominee = NONE; writing = false; watched = false
#endif
}

inline settle(c) {
    if
    :: request[c] == READ && left[c] -> request[c] = DONE
    :: request[c] == READ && !left[c] ->
        request[c] = DONE;
        wakes = wakes | (word[c] == ASLEEP -> 1 << c : 0);
        word[c] = DONE
    :: else
    fi
}

/* What recv() on the socket `at` has brought. */
inline feed() {
    if
    :: at == sock && up && ended -> link_down()
    :: at == sock && up && !ended -> EACH(settle)
    :: else /* of a socket that has been replaced */
    fi
}

/* ---- outside ---- */

inline unpark(c) { parked[c] = parked[c] && !((wakes >> c) & 1) }
inline do_wakes(me) {
    atomic { OUTSIDE ->
        SHOW() SAY("@ wakes %d\n", me)
        EACH(unpark); wakes = 0; bell = bell || ring; ring = false }
}

inline take(c) { request[c] = (request[c] == OUT -> TAKEN : request[c]) }
inline sent(c) { request[c] = (request[c] == TAKEN -> SENT : request[c]) }
inline received(c) { request[c] = (request[c] == ANSWERED -> READ : request[c]) }

#ifdef MUTANT_ALWAYS_DEFERS
#define MAY_COLLECT true
#elif defined(REPLAY)
#define MAY_COLLECT false
#else
#define MAY_COLLECT ON_ITS_WAY
#endif
#ifdef MUTANT_TWO_WRITERS
#define MAY_WRITE up
#else
#define MAY_WRITE (up && !writing)
#endif

/* Entered and left inside.  mine: this thread reads the socket. */
inline flush(me, mine) {
    do
    :: atomic { !MAY_WRITE || (UNSENT && !mine) || (!UNSENT && !ANY(OUT)) -> break }
    :: atomic { MAY_WRITE && !UNSENT && ANY(OUT) && MAY_COLLECT &&
                (mine -> reader == BACKGROUND : reader != FREE) -> break }
    :: atomic { MAY_WRITE && ((UNSENT && mine) || (!UNSENT && ANY(OUT))) ->
        if
        :: !UNSENT -> EACH(take)
        :: else
        fi;
        writing = true; out = sock; writers[out]++;
        CHECK(writers[out] == 1);
        unlock() };
        atomic { OUTSIDE -> /* send() */
            SHOW()
            if
            :: out != sock || !up || ended -> stuck = true
            :: out == sock && up && !ended -> EACH(sent)
            :: SELDOM && out == sock && up && !ended && fills && fulls < FULLS && (ANY(SENT) || ANY(ANSWERED)) ->
                SPENT COUNTED(fulls); stuck = true
            fi;
            SAY("@ send %d %d\n", me, !stuck)
            writers[out]-- };
        atomic { lock(me);
            writing = (out == sock && up -> false : writing); out = 0;
            if
            :: stuck -> stuck = false; break
            :: !stuck
            fi }
    od
}

/* driver_undisturbed(): nobody else waits for replies, or for a wake-up. */
#define UNDISTURBED (COUNT(IN_FLIGHT) == 0 && wakes == 0 && !ring)
#define AWAITS(c) (word[c] != DONE && IN_FLIGHT(c) && up && at == sock && !quits)

inline relocked(me) {
    if
    :: mutex != me -> do_wakes(me); atomic { lock(me) }
    :: mutex == me
    fi
}

#ifdef REPLAY
#define BETWEEN(n) between = between + n;
#define OPEN at == sock && up && !ended
#define NOTHING OPEN && !ANY(ANSWERED)
#define LIST(c) oldest = (listed[1 - c] -> 1 - c : c); listed[c] = true;
#ifdef MUTANT_PARKS_BLIND
#define BLIND word[c] = ASLEEP;
#else
#define BLIND
#endif
#else
#define BETWEEN(n)
#define OPEN true
#define NOTHING true
#define LIST(c) listed[c] = true;
#endif

proctype Caller(byte c) {
    byte wakes;
    bit at, out; /* sockets: that it reads, that it writes */
    bool ring, stuck, room, quits;
#ifdef REPLAY
    bool sleeps;
call:
    atomic { (request[c] == UNSAID || request[c] == DONE) && OUTSIDE ->
        SHOW() SAY("@ go %d\n", c + 1)
        mutex = c + 1;
        word[c] = PENDING; left[c] = false; inside[c] = true; late = late && c != 1;
        second[c] = IN_FLIGHT(1 - c) || request[1 - c] == LATER; second[1 - c] = second[1 - c] && !second[c];
        request[c] = (up -> OUT : LATER); wanted = wanted || !up };
#else
    atomic { lock(c + 1); request[c] = (up -> OUT : LATER) };
#endif
    do
    :: true ->
        if
        :: atomic { MAY_LEAD(c) -> reader = CALLER; nominee = NONE; at = sock };
            flush(c + 1, true);
            do
            :: atomic { AWAITS(c) ->
                room = UNSENT && !writing; readers[at]++;
                CHECK(readers[at] == 1);
                unlock() };
                if /* recv() */
                :: atomic { OUTSIDE && (at != sock || !up || ended) -> SHOW() SAY("@ recv %d END\n", c + 1) BETWEEN(1) }
                :: atomic { OUTSIDE && at == sock && up && !ended && ANY(ANSWERED) ->
                    SHOW() SAY("@ recv %d DATA\n", c + 1) BETWEEN(1)
                    EACH(received) }
                :: atomic { OUTSIDE && room && NOTHING -> SHOW() SAY("@ recv %d ROOM\n", c + 1) BETWEEN(1) }
                :: atomic { OUTSIDE && UNSENT && !writing && NOTHING -> /* the nap: another thread found the socket full */
                    SHOW() SAY("@ recv %d NAP\n", c + 1) BETWEEN(1) }
                :: atomic { SELDOM && OUTSIDE && gives && c == 0 && OPEN ->
                    SHOW() SAY("@ recv %d SIGNAL\n", c + 1) SPENT BETWEEN(1)
                    quits = true }
                fi;
                atomic { readers[at]--; lock(c + 1); BETWEEN(-1) room = false; feed() };
                if
                :: atomic { !AWAITS(c) && UNDISTURBED -> break } /* leaving, or sleeping, does the rest */
                :: AWAITS(c) || !UNDISTURBED
                fi;
                flush(c + 1, (at == sock));
                atomic { need_thread();
                    if
                    :: AWAITS(c) && RELOCKS -> unlock()
                    :: AWAITS(c) && !RELOCKS
                    :: !AWAITS(c) -> break /* the successor is woken with the others */
                    fi };
                relocked(c + 1)
            :: atomic { !AWAITS(c) -> break }
            od;
            atomic {
                if
                :: at == sock && up -> pass_role()
                :: else
                fi;
                at = 0;
                if
                :: RELOCKS -> unlock()
                :: !RELOCKS
                fi };
            relocked(c + 1)
        :: atomic { !MAY_LEAD(c) && NOMINATED(c) ->
#ifndef MUTANT_KEEPS_ROLE
            pass_role();
#endif
            if
            :: RELOCKS -> unlock()
            :: !RELOCKS
            fi };
            relocked(c + 1)
        :: else
        fi;
        if
        :: word[c] == DONE || quits -> break
        :: word[c] != DONE && !quits && MAY_LEAD(c)
        :: word[c] != DONE && !quits && !MAY_LEAD(c) ->
            LIST(c)
            flush(c + 1, false);
            atomic { need_thread(); unlock() };
#ifdef REPLAY
            atomic { OUTSIDE -> /* both in one step */
                SHOW() SAY("@ wakes %d\n", c + 1)
                EACH(unpark); wakes = 0; bell = bell || ring; ring = false;
                sleeps = word[c] == PENDING;
                word[c] = (sleeps -> ASLEEP : word[c]) };
            do
            :: !sleeps -> break
            :: sleeps ->
                atomic { OUTSIDE ->
                    SHOW() SAY("@ park %d\n", c + 1)
                    BLIND
                    parked[c] = word[c] == ASLEEP; sleeps = parked[c] };
                if
                :: !sleeps
                :: atomic { sleeps && !parked[c] && OUTSIDE -> /* the wake-up may have been for its last call */
                    SHOW() SAY("@ woken %d 0\n", c + 1)
                    sleeps = word[c] == ASLEEP }
                :: atomic { SELDOM && OUTSIDE && gives && c == 0 && parked[c] ->
                    SHOW() SAY("@ woken %d 1\n", c + 1) SPENT
                    parked[c] = false; sleeps = false; quits = true }
                fi
            od;
#else
            do_wakes(c + 1);
#ifdef MUTANT_PARKS_BLIND
            atomic { word[c] = ASLEEP; parked[c] = true };
#else
            atomic {
                if
                :: word[c] == PENDING -> word[c] = ASLEEP
                :: else
                fi };
            atomic {
                if
                :: word[c] == ASLEEP -> parked[c] = true
                :: else
                fi };
#endif
            if
            :: atomic { !parked[c] }
            :: atomic { gives && c == 0 && parked[c] -> parked[c] = false; quits = true }
            fi;
#endif
            atomic { lock(c + 1);
                listed[c] = false;
                word[c] = (word[c] == ASLEEP || word[c] == LEAD -> PENDING : word[c]);
                if
                :: quits && word[c] != DONE && !NOMINATED(c) -> break
                :: else -> quits = false /* it goes on */
                fi };
        fi
    od;
    /* Inside.  It leaves: what it gave up stays in flight. */
    atomic {
        left[c] = true; quits = false;
#ifdef REPLAY
        request[c] = (request[c] == LATER -> DONE : request[c]); inside[c] = false;
#endif
        CHECK(nominee != c + 1) };
    flush(c + 1, false);
    atomic { need_thread(); unlock() };
    do_wakes(c + 1);
#ifdef REPLAY
    goto call
#endif
}

#ifdef REPLAY
#define NOT_SLOW slow = false;
#define EXPIRES(c) (IN_FLIGHT(c) || request[c] == LATER)
#else
#define NOT_SLOW
#define EXPIRES(c) IN_FLIGHT(c)
#endif

/* Whether it reads: it takes the role, or passes it to the callers, or on to another one. */
inline thread_reads() {
    if
    :: up && reader == BACKGROUND && !seen && COUNT(IN_FLIGHT) <= COUNT(AWAITED) -> pass_role()
#ifdef REPLAY
    :: up && reader == TRANSIT && slow -> pass_over()
    :: up && reader == TRANSIT && !slow
#else
    :: up && reader == TRANSIT -> pass_over()
    :: up && reader == TRANSIT
#endif
    :: else
    fi;
    NOT_SLOW
    if
#ifdef MUTANT_TWO_READERS
    :: up && COUNT(IN_FLIGHT) > 0 -> reader = BACKGROUND
#else
    :: up && reader == FREE && (COUNT(IN_FLIGHT) > 0 || seen) -> reader = BACKGROUND
#endif
    :: else
    fi
}

/* A timer: the caller's time is over, and its request stays in flight. */
inline expire(c) {
    if
    :: EXPIRES(c) && word[c] != DONE ->
        wakes = wakes | (word[c] == ASLEEP -> 1 << c : 0);
        word[c] = DONE; left[c] = true;
        request[c] = (request[c] == LATER -> DONE : request[c])
    :: else
    fi
}

inline now_sent(c) { request[c] = (request[c] == LATER -> OUT : request[c]) }

active proctype Thread() {
    byte wakes;
    bit at, out;
    bool ring, stuck, room, reads, idle, polled;
    do
    :: atomic { lock(T); BETWEEN(-polled)
        polled = false; awake = true; watched = false; due = false;
        endless = false; /* while it is awake */
#ifdef REPLAY
        was_down = !up;
#endif
#ifndef MUTANT_STILL_RAISED
        raised = false;
#endif
        if
        :: reads -> readers[at]--; feed()
        :: idle && at == sock && up && ended -> seen = true
        :: else
        fi;
        reads = false; idle = false;
        if
#ifdef REPLAY
        :: limit && late -> expire(1)
#else
        :: limit && late -> limit = false; expire(1)
#endif
        :: else
        fi;
        late = false;
        if
        :: !up && WANTED && KNEW -> sock = 1 - sock; up = true; ended = false; seen = false; EACH(now_sent)
        :: else
        fi;
        thread_reads() };
        flush(T, (reader == BACKGROUND));
        atomic { thread_reads();
            at = sock;
            reads = up && reader == BACKGROUND; room = reads && UNSENT && !writing; watched = room;
            idle = up && reader == FREE && !seen;
            due = !up && WANTED; /* it has ended since: the engine's deadline says when to connect */
            if
            :: reads -> readers[at]++; CHECK(readers[at] == 1)
            :: else
            fi;
            endless = !due && !listed[0] && !listed[1] && !listed[NC - 1]; awake = false;
            soon = up && (reader == CALLER || reader == TRANSIT) && (listed[0] || listed[1] || listed[NC - 1]);
#ifndef MUTANT_STILL_RAISED
            raised = false;
#endif
            ring = false;
            unlock() };
        do_wakes(T);
#ifdef REPLAY
end:    atomic { OUTSIDE &&
            (bell || (reads && (at != sock || !up || ended || ANY(ANSWERED))) || (idle && (at != sock || !up || ended)) ||
             room || due || (SELDOM && IN_FLIGHT(1) && word[1] != DONE)) ->
            SHOW()
            if
            :: SELDOM && IN_FLIGHT(1) && word[1] != DONE -> late = true; SPENT
            :: else
            fi;
            if
            :: slow = true
            :: slow = false
            fi;
            SAY("@ poll %d %d\n", late, slow)
            bell = false; polled = true; BETWEEN(1)
#else
end:    if /* poll() */
        :: atomic { bell -> bell = false }
        :: atomic { reads && (at != sock || !up || ended) }
        :: atomic { reads && at == sock && up && !ended && ANY(ANSWERED) }
        :: atomic { idle && (at != sock || ended) }
        :: atomic { room }
        :: atomic { due }
        :: atomic { limit && IN_FLIGHT(1) && word[1] != DONE -> late = true }
        fi;
        atomic {
#endif
            if
            :: reads && at == sock && up && !ended -> EACH(received)
            :: else
            fi;
            room = false }
    od
} /* unreached: it never ends */

#ifdef REPLAY
#define ALONE (between == 0) /* or what recv() has brought would be old */
#else
#define ALONE true
#endif

active proctype Server() {
end:
    do
    :: atomic { OUTSIDE && request[0] == SENT && IN_TURN(0) && up && !ended ->
        SHOW() SAY("@ answer\n")
        request[0] = ANSWERED }
    :: atomic { OUTSIDE && request[1] == SENT && IN_TURN(1) && up && !ended ->
        SHOW() SAY("@ answer\n")
        request[1] = ANSWERED }
#if NC == 3
    :: atomic { request[2] == SENT && up && !ended -> request[2] = ANSWERED }
#endif
    :: atomic { SELDOM && OUTSIDE && ALONE && up && !ended && cuts < CUTS && ends ->
        SHOW() SAY("@ cut\n") SPENT
        COUNTED(cuts); ended = true }
    od
} /* unreached: it never ends */

init {
    atomic {
        if
#ifdef REPLAY
        :: ends = true; gives = true; fills = true; limit = true
#else
        :: ends = true
        :: gives = true; fills = true
        :: limit = true
#endif
#ifdef FULL
        :: ends = true; gives = true; fills = true
        :: ends = true; limit = true; fills = true
#endif
        fi;
        run Caller(0);
        run Caller(1);
#if NC == 3
        run Caller(2);
#endif
    }
}
