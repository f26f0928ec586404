/* rw.pml - readers and a writer, each with a lease of its own, and the downgrade of a writer to a reader.
 *
 * Models        core/lua/read_acquire.lua, read_release.lua, read_renew.lua, write_acquire.lua, write_release.lua,
 *               write_renew.lua (their keys: the lock with `mode`, a field for every hold, and a TTL; for every reader
 *               a key with its lease), core/engine/gate.c (an owner that writes may read).
 * World         one server, NC owners, each with a read and a write hold.  Leases differ: owner 0 has a short one.
 *               Owners stop in any state for any time, and so lose their holds without a release.
 *               A script and its answer are one step: renewal.pml and cleanup.pml are about what comes between.
 * Bounds        leases of SHORT and LONG ticks.  Acquisitions and time have no bound: only differences are stored.
 * Assumptions   A1 (equal rates), A3.
 * Properties    assert: no valid writer beside another owner's valid reader or writer; the server has the field of
 *               every valid hold; the mode is write exactly while somebody's write field is there; the lock has a
 *               TTL, and none that outlives the longest lease: what the dead leave is gone by then.
 * Mutants       MUTANT_SHORTENS      a reader's lease replaces the lock's TTL, also a longer one
 *               MUTANT_PAST_READERS  a writer does not look at the readers' own leases
 *               MUTANT_ANY_READER    a reader joins another owner's write hold
 *               MUTANT_DELETES       the release of a write hold deletes the lock under its owner's read hold
 *               MUTANT_LAST_READER   the release of the last reader deletes the lock under its owner's write hold
 *               MUTANT_MODE_STAYS    after the downgrade the mode is still write
 *
 * run: -DSAFETY
 */
#define CHANCE 2
#include "trace.inc"
#ifdef FULL
#define NC 3
#define SHORT 2
#define LONG 3
#else
#define NC 2
#define SHORT 1
#define LONG 2
#endif

mtype = { FREE, READ, WRITE };

/* The server's keys.  mode FREE: the lock does not exist. */
mtype mode = FREE;
byte ttl;
bool reads[NC], writes[NC]; /* fields of the lock */
byte lease[NC];             /* ticks that the reader's own key has left; 0: gone */
/* The owners'. */
bool reader[NC], writer[NC];
byte read_safe[NC], write_safe[NC];

#define SPAN(c) (c == 0 -> SHORT : LONG)
#define READS(c) (reader[c] && read_safe[c] > 0)
#define WRITES(c) (writer[c] && write_safe[c] > 0)
#define OTHERS(c) (READS(c) || WRITES(c))
#if NC == 3
#define READERS (reads[0] + reads[1] + reads[2])
#define LIVE_READERS ((reads[0] && lease[0] > 0) || (reads[1] && lease[1] > 0) || (reads[2] && lease[2] > 0))
#define WRITERS (writes[0] + writes[1] + writes[2])
#else
#define READERS (reads[0] + reads[1])
#define LIVE_READERS ((reads[0] && lease[0] > 0) || (reads[1] && lease[1] > 0))
#define WRITERS (writes[0] + writes[1])
#endif

#ifdef REPLAY
#define SHOW() \
    printf("@ is %e %d  %d %d %d %d %d  %d %d %d %d %d\n", mode, ttl, \
           reads[0], writes[0], lease[0], READS(0), WRITES(0), reads[1], writes[1], lease[1], READS(1), WRITES(1));
/* The core takes a new number for each acquisition, the model has one for an owner. */
#define CLEAN(c) (reads[c] == reader[c] && writes[c] == writer[c])
#define DIES false
#else
#define SHOW()
#define CLEAN(c) true
#define DIES true
#endif

inline look_at(c) {
    assert(!READS(c) || (mode != FREE && reads[c] && lease[c] > 0));
    assert(!WRITES(c) || (mode != FREE && writes[c]));
    assert(ttl <= LONG && lease[c] <= SPAN(c))
}

inline look() {
    SHOW()
    assert((mode == FREE) == (ttl == 0));
    assert((mode == WRITE) == (WRITERS > 0));
    look_at(0);
    look_at(1);
    assert(!WRITES(0) || !OTHERS(1));
    assert(!WRITES(1) || !OTHERS(0));
#if NC == 3
    look_at(2);
    assert(!WRITES(2) || !(OTHERS(0) || OTHERS(1)));
    assert(!OTHERS(2) || !(WRITES(0) || WRITES(1)))
#endif
}

inline wipe() {
    mode = FREE; ttl = 0;
    reads[0] = false; writes[0] = false;
    reads[1] = false; writes[1] = false;
#if NC == 3
    reads[2] = false; writes[2] = false
#endif
}

inline longest() {
    ttl = (reads[0] -> lease[0] : 0);
    ttl = (reads[1] && lease[1] > ttl -> lease[1] : ttl);
#if NC == 3
    ttl = (reads[2] && lease[2] > ttl -> lease[2] : ttl)
#endif
}

inline extend(c) {
#ifdef MUTANT_SHORTENS
    ttl = SPAN(c)
#else
    ttl = (ttl < SPAN(c) -> SPAN(c) : ttl)
#endif
}

/* Readers join readers, and an owner its own write hold. */
#ifdef MUTANT_ANY_READER
#define MAY_READ(c) true
#else
#define MAY_READ(c) (mode == FREE || reads[c] || mode == READ || writes[c])
#endif

inline read_acquire(c) {
    if
    :: MAY_READ(c) ->
        mode = (mode == FREE -> READ : mode);
        reads[c] = true; lease[c] = SPAN(c);
        extend(c);
        reader[c] = true; read_safe[c] = SPAN(c)
    :: else
    fi
}

inline rest() {
    longest(); /* of those that are left; they may all have ended */
    if
    :: ttl == 0 -> wipe()
    :: else
    fi
}

inline read_release(c) {
    lease[c] = 0;
    if
    :: !reads[c]
    :: reads[c] ->
        reads[c] = false;
        if
#ifdef MUTANT_LAST_READER
        :: READERS == 0 -> wipe()
#else
        :: READERS == 0 && WRITERS == 0 -> wipe()
        :: READERS == 0 && WRITERS > 0
#endif
        :: READERS > 0 && mode == READ -> rest()
        :: READERS > 0 && mode == WRITE /* unreached: nobody reads beside a writer but its owner */
        fi
    fi
}

inline read_renew(c) {
    if
    :: mode != FREE && reads[c] -> extend(c); lease[c] = SPAN(c); read_safe[c] = SPAN(c)
    :: else -> reader[c] = false; read_safe[c] = 0
    fi
}

inline write_acquire(c) {
    if
#ifdef MUTANT_PAST_READERS
    :: mode == READ && !writes[c] ->
        wipe();
#else
    :: mode == READ && !LIVE_READERS -> /* what is left are the fields of the dead */
        wipe();
#endif
        mode = WRITE; writes[c] = true; ttl = SPAN(c); writer[c] = true; write_safe[c] = SPAN(c)
    :: mode == FREE || (mode == WRITE && writes[c]) ->
        mode = WRITE; writes[c] = true;
        ttl = (ttl < SPAN(c) -> SPAN(c) : ttl);
        writer[c] = true; write_safe[c] = SPAN(c)
    :: else
    fi
}

inline write_release(c) {
    if
    :: writes[c] ->
        writes[c] = false;
#ifdef MUTANT_DELETES
        wipe()
#else
        if
        :: READERS == 0 -> wipe()
#ifdef MUTANT_MODE_STAYS
        :: else
#else
        :: else -> mode = READ
#endif
        fi
#endif
    :: else
    fi
}

inline write_renew(c) {
    if
    :: mode != FREE && writes[c] -> ttl = (ttl < SPAN(c) -> SPAN(c) : ttl); write_safe[c] = SPAN(c)
    :: else -> writer[c] = false; write_safe[c] = 0
    fi
}

inline pass(c) {
    lease[c] = (lease[c] > 0 -> lease[c] - 1 : 0);
    read_safe[c] = (read_safe[c] > 0 -> read_safe[c] - 1 : 0);
    write_safe[c] = (write_safe[c] > 0 -> write_safe[c] - 1 : 0);
    /* What the clock has ended is lost, and stays so. */
    reader[c] = reader[c] && read_safe[c] > 0;
    writer[c] = writer[c] && write_safe[c] > 0
}

active proctype Clock() {
    do
    :: atomic { SELDOM ->
        SPENT SAY("@ tick\n")
        pass(0);
        pass(1);
#if NC == 3
        pass(2);
#endif
        ttl = (ttl > 0 -> ttl - 1 : 0);
        if
        :: ttl == 0 -> wipe()
        :: else
        fi;
        look() }
    od
} /* unreached: it never ends */

proctype Owner(byte c) {
    do
    :: atomic { !reader[c] && CLEAN(c) ->
        read_acquire(c);
        SAY("@ take %d READ %d\n", c, reader[c])
        look() }
    :: atomic { !writer[c] && !reader[c] && CLEAN(c) -> /* an upgrade is refused by the engine, not sent */
        write_acquire(c);
        SAY("@ take %d WRITE %d\n", c, writer[c])
        look() }
    :: atomic { reader[c] ->
        SAY("@ renew %d READ\n", c)
        read_renew(c); look() }
    :: atomic { writer[c] ->
        SAY("@ renew %d WRITE\n", c)
        write_renew(c); look() }
    :: atomic { reader[c] ->
        SAY("@ release %d READ\n", c)
        reader[c] = false; read_safe[c] = 0; read_release(c); look() }
    :: atomic { writer[c] ->
        SAY("@ release %d WRITE\n", c)
        writer[c] = false; write_safe[c] = 0; write_release(c); look() }
    :: atomic { reads[c] && !reader[c] -> /* the release of a lost hold */
        SAY("@ rest %d READ\n", c)
        read_release(c); look() }
    :: atomic { writes[c] && !writer[c] ->
        SAY("@ rest %d WRITE\n", c)
        write_release(c); look() }
    :: atomic { DIES -> break } /* it dies */
    od
}

init {
    atomic {
        run Owner(0);
        run Owner(1);
#if NC == 3
        run Owner(2);
#endif
    }
}
