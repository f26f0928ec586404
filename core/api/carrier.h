/* carrier.h - an acquisition of a group lock, shared by group.c and carrier.c only. */
#ifndef SNIB__CARRIER_H
#define SNIB__CARRIER_H

#include "api/group.h"

#include "locks/group.h"

#include <pthread.h>

struct snib__carrier_member {
    struct snib__op *op;        /* acquiring or releasing */
    struct snib__op *extending; /* giving it another lease */
    struct snib__hold *hold;    /* the carrier's */
    snib__time leased_at;       /* when that was asked for */
    snib__time lease;           /* that `op` asks for; 0: renewed */
    bool outdated;   /* what `extending` tells is for an earlier extension of the whole */
    int32_t failure; /* the error of its last operation; 0: none */
    int32_t os_error;
    int32_t server; /* where the server's own words begin in `why`; 0: there are none */
    char *why;      /* a sentence about it; NULL: none, or out of memory */
};

struct snib__carrier {
    struct snib__outer outer; /* first: the home engine refers to the carrier by it */
    struct snib__parts *parts;
    struct snib__client *home;
    snib__time wait_until;
    snib__time tried_until; /* until then even a short wait hopes for answers */
    snib__time asked_at;    /* start of the round; guarded by the home client */
    bool once;
    bool tried; /* some member was asked, as tried_until the stepping thread's */
    bool silent,
        inquired; /* a majority's time is over without an answer; its members were asked why */
    _Atomic uint32_t refs; /* home's, each member's operation and hold, the list's */
    pthread_mutex_t mutex;
    /* below: guarded by the mutex */
    struct snib__carrier *next; /* in a list of carriers to be stepped */
    uint32_t debts;             /* references that the next step drops, outside all clients */
    bool listed, stepping, again;
    bool finished;          /* the carrier no longer has the home's hold */
    bool let_go;            /* the attempt has failed, and has no members any more */
    bool told;              /* of all: a member was not free */
    bool abandoned;         /* the members' holds are left to expire */
    uint8_t replicas : 7;   /* durability: so many had each member's grant */
    snib__time lease;       /* 0: renewed */
    uint64_t extension;     /* the home's number of the one that is carried out; 0: none */
    snib__time wanted;      /* its lease; otherwise that of the whole */
    snib__time pause_until; /* PAUSING; 0: not yet set */
    snib__time give_up_at;  /* a contested round; 0: not yet set */
    snib__time refill_at;   /* HELD: when to ask for missing votes; 0: immediately */
    snib__time ends;        /* HELD: when a fixed lease ends */
    struct snib__group group;
    struct snib__carrier_member members[];
};

/* Another reference. */
void snib__carrier_ref(struct snib__carrier *c);
/* Drop n references.  Outside all clients: the last one ends the carrier, and its references to clients. */
void snib__carrier_unref(struct snib__carrier *c, uint32_t n);
/* With the mutex: an operation of the member has ended with this code, and nothing more to tell. */
void snib__carrier_fail(struct snib__carrier *c, uint32_t i, int32_t code);
/* With the mutex: a member's release has ended with this code; if it was lost, that is why the whole was, should too few
 * others be released. */
void snib__carrier_lost_at_release(struct snib__carrier *c, int32_t code, int32_t reason);
/* Of all, once a member was asked: when the caller's limit ends all hope; SNIB__NEVER: there is none. */
snib__time snib__carrier_latest(const struct snib__carrier *c);
/* ... and the code for a member of which nothing is known then: that of another that was not free, or an error. */
int32_t snib__carrier_late_code(const struct snib__carrier *c);
/* Carry out one wish of the group; false: there is none.  Outside: enters the member's client. */
bool snib__carrier_wish(struct snib__carrier *c);

#endif
