/* wakeup.pml - try, subscribe, try again, sleep: no release goes unheard while its waiter relies on the message.
 *
 * Models        core/engine/sole.c (sole_try, snib__sole_refused), waitq.c (messages, hints, the count of a gate's own
 *               messages), chan.c (off, asked, on, leaving, off), release.c (counting), core/lua/mutex_*.lua.
 * World         one server, NC clients that take and release one lock, again and again, over two connections each
 *               with no order between them: one for commands, one for messages, in order within itself.  The
 *               connection for messages may be cut, which loses what is on it, and comes back.  An idle subscription
 *               is left some time after its last waiter.
 * Bounds        CUTS ends of a connection for messages, of ROUGH clients; QUEUE messages on one connection.
 *               Acquisitions go on for ever.
 * Assumptions   no lease ends (what ends without a message is met by the timers), no hand-over inside a process, and
 *               nobody gives way (turn.c): each of these adds attempts and removes none.
 * Properties    assert: a waiter that sleeps has a message, an answer or a confirmation on its way, or the lock is
 *               held.
 *               ltl wakes: as long as connections are cut only now and then, every waiter asks again, without a timer.
 * Mutants       MUTANT_NO_SECOND_TRY  the confirmation of a subscription makes no attempt
 *               MUTANT_ASLEEP_FIRST   an attempt counts as sent while subscribed when its answer comes so
 *               MUTANT_NO_HINT        a message that arrives during an attempt is dropped
 *               MUTANT_OWN_STAYS      own messages that a cut has lost are still expected
 *               MUTANT_LEFT           a channel that is wanted while it is being left is not subscribed again
 *               MUTANT_DEAF           a new connection does not subscribe again
 *
 * walks: 40 of 6000
 *
 * run: -DSAFETY
 * run: -a -f -N wakes
 */
#define CHANCE 2
#include "trace.inc"
#define NC 2
#define QUEUE 4
#ifdef REPLAY
#define CUTS 200
#else
#define CUTS 1
#endif
#if defined(FULL) || defined(REPLAY)
#define ROUGH(c) true
#define UNUSED(c) !waits[c]
#else
#define ROUGH(c) (c == 0)
#define UNUSED(c) (!waits[c] && phase[c] != TRYING)
#endif

mtype = { NONE, IDLE, TRYING, HELD, RELEASING, ASLEEP, OFF, WISHED, ON, LEAVING, ACQUIRE, RELEASE, GRANTED, REFUSED,
          RELEASED, MESSAGE, SUBSCRIBED, UNSUBSCRIBED };

byte owner;
bool subscribed[NC];                              /* at the server */
mtype phase[NC] = IDLE, line[NC] = NONE, back[NC] = NONE;
byte receivers[NC];                               /* of a release's message, in its answer */
mtype chan_state[NC] = OFF, said[NC] = NONE;      /* said: a request on the connection for messages */
chan ear[NC] = [QUEUE] of { mtype };
bool awake[NC], hint[NC], counted[NC];
bool waits[NC];                                   /* refused, and not granted since */
byte own[NC];                                     /* messages of its own releases still to come */
byte cuts;
bool cut[NC];                                     /* the connection for messages is down */

/* What will make a sleeping waiter try, without a timer. */
#define COMES(c) (cut[c] || said[c] != NONE || nempty(ear[c]) || chan_state[c] == WISHED || chan_state[c] == LEAVING)

#ifdef REPLAY
#define SHOW() \
    printf("@ is %d  %e %e %d %d %d  %e %e %d %d %d\n", owner, \
           phase[0], chan_state[0], own[0], len(ear[0]), cut[0], phase[1], chan_state[1], own[1], len(ear[1]), cut[1]);
#else
#define SHOW()
#endif

inline look() {
    SHOW()
    assert(phase[0] != ASLEEP || owner != 0 || COMES(0));
    assert(phase[1] != ASLEEP || owner != 0 || COMES(1))
}

inline publish(by) {
    receivers[by] = 0;
    if
    :: subscribed[0] -> ear[0]!MESSAGE; receivers[by]++
    :: !subscribed[0]
    fi;
    if
    :: subscribed[1] -> ear[1]!MESSAGE; receivers[by]++
    :: !subscribed[1]
    fi
}

proctype Server(byte c) {
    do
    :: atomic { line[c] == ACQUIRE ->
        SAY("@ execute %d %e %d\n", c, line[c], (owner == 0 || owner == c + 1))
        back[c] = (owner == 0 || owner == c + 1 -> GRANTED : REFUSED);
        owner = (owner == 0 -> c + 1 : owner);
        line[c] = NONE; look() }
    :: atomic { line[c] == RELEASE && (!subscribed[0] || nfull(ear[0])) && (!subscribed[1] || nfull(ear[1])) ->
        SAY("@ execute %d %e 1\n", c, line[c])
        back[c] = RELEASED; owner = 0; publish(c);
        line[c] = NONE; look() }
    :: atomic { said[c] != NONE && nfull(ear[c]) ->
        SAY("@ subscribe %d\n", c)
        subscribed[c] = (said[c] == SUBSCRIBED);
        ear[c]!said[c];
        said[c] = NONE; look() }
    od
} /* unreached: it never ends */

inline try(c) {
    phase[c] = TRYING; line[c] = ACQUIRE; hint[c] = false; awake[c] = (chan_state[c] == ON)
}

inline subscribe(c) {
    if
    :: chan_state[c] == OFF && !cut[c] && said[c] == NONE -> chan_state[c] = WISHED; said[c] = SUBSCRIBED
    :: else
    fi
}

inline sleep(c) {
    phase[c] = ASLEEP;
    if
    :: hint[c] -> try(c)
    :: else -> subscribe(c)
    fi
}

inline refused(c) {
    waits[c] = true;
#ifdef MUTANT_ASLEEP_FIRST
    awake[c] = (chan_state[c] == ON);
#endif
    if
    :: !awake[c] && chan_state[c] == ON -> try(c) /* subscribed since: a release may have gone unheard */
    :: awake[c] || chan_state[c] != ON -> sleep(c)
    fi
}

inline heard(c) {
    if
    :: own[c] > 0 -> own[c]-- /* the release's own reply has already said so */
    :: own[c] == 0 && phase[c] == ASLEEP -> try(c)
#ifdef MUTANT_NO_HINT
    :: own[c] == 0 && phase[c] == TRYING
#else
    :: own[c] == 0 && phase[c] == TRYING -> hint[c] = waits[c] || chan_state[c] == ON
#endif
    :: own[c] == 0 && phase[c] != ASLEEP && phase[c] != TRYING
    fi
}

proctype Client(byte c) {
    mtype what;
    do
    :: atomic { phase[c] == IDLE ->
        SAY("@ acquire %d\n", c)
        try(c); look() }
    :: atomic { phase[c] == ASLEEP && chan_state[c] == WISHED -> /* a timer, and no confirmation yet */
        SAY("@ timer %d\n", c)
        try(c); look() }
    :: atomic { back[c] == GRANTED ->
        SAY("@ read %d\n", c)
        back[c] = NONE; phase[c] = HELD; waits[c] = false; look() }
    :: atomic { back[c] == REFUSED ->
        SAY("@ read %d\n", c)
        back[c] = NONE; refused(c); look() }
    :: atomic { phase[c] == HELD && line[c] == NONE ->
        SAY("@ release %d\n", c)
        phase[c] = RELEASING; counted[c] = (chan_state[c] == ON);
        own[c] = own[c] + counted[c]; line[c] = RELEASE; look() }
    :: atomic { back[c] == RELEASED ->
        SAY("@ read %d\n", c)
        if
        :: receivers[c] == 0 && counted[c] && own[c] > 0 -> own[c]--
        :: else
        fi;
        back[c] = NONE; receivers[c] = 0; counted[c] = false; phase[c] = IDLE; look() }
    :: atomic { nempty(ear[c]) && !cut[c] ->
        SAY("@ hear %d\n", c)
        ear[c]?what;
        if
        :: what == MESSAGE -> heard(c)
        :: what == SUBSCRIBED && chan_state[c] == WISHED ->
            chan_state[c] = ON;
#ifndef MUTANT_NO_SECOND_TRY
            if
            :: phase[c] == ASLEEP -> try(c)
            :: else
            fi
#endif
        :: what == UNSUBSCRIBED && chan_state[c] == LEAVING ->
            chan_state[c] = OFF;
#ifndef MUTANT_LEFT
            if
            :: phase[c] == ASLEEP -> subscribe(c)
            :: else
            fi
#endif
        fi;
        what = 0; look() }
    :: atomic { SELDOM && chan_state[c] == ON && UNUSED(c) && said[c] == NONE && !cut[c] -> /* unused for a while */
        SPENT SAY("@ leave %d\n", c)
        chan_state[c] = LEAVING; said[c] = UNSUBSCRIBED; own[c] = 0; hint[c] = false; look() }
    :: atomic { SELDOM && ROUGH(c) && chan_state[c] != OFF && !cut[c] && cuts < CUTS ->
        SPENT SAY("@ cut %d\n", c)
        cuts++; cut[c] = true; chan_state[c] = OFF; awake[c] = false; said[c] = NONE; subscribed[c] = false; hint[c] = false;
#ifndef MUTANT_OWN_STAYS
        own[c] = 0;
#endif
        do
        :: nempty(ear[c]) -> ear[c]?_
        :: empty(ear[c]) -> break
        od;
        look() }
    :: atomic { cut[c] ->
        SAY("@ open %d\n", c)
        cut[c] = false;
#ifndef MUTANT_DEAF
        if
        :: phase[c] == ASLEEP -> subscribe(c)
        :: else
        fi;
#endif
        look() }
    od
} /* unreached: it never ends */

init { atomic { run Server(0); run Server(1); run Client(0); run Client(1) } }

ltl wakes { [] ((phase[0] == ASLEEP && owner == 0) -> <> (phase[0] == TRYING)) }
