/* conn.h - one connection to a server: handshake, requests in flight, replies in order.  No I/O.
 *
 *     DOWN --begin--> HANDSHAKE --last reply--> READY
 *       ^------------- reset <------------------'
 *
 * Every command appended to `out` has one entry in the ring of requests.  Replies are matched in
 * order and never by guess: a reply that does not fit ends the connection.  The handshake takes one
 * round trip: AUTH, SELECT, PING, CLIENT ID and INFO leave together.  After a connection that left
 * unanswered requests it takes two, because the CLIENT KILL for that connection may only go to the
 * same process.  A script is loaded just before its first use.
 */
#ifndef SNIB__CONN_H
#define SNIB__CONN_H

#include "net/buf.h"
#include "net/resp.h"
#include "net/time.h"
#include "net/words.h"

#include <stdbool.h>
#include <stdint.h>

/* The role that a server reports. */
enum snib__mode { SNIB__MODE_UNKNOWN, SNIB__MODE_SINGLE, SNIB__MODE_CLUSTER, SNIB__MODE_SENTINEL };

enum snib__conn_state { SNIB__CONN_DOWN, SNIB__CONN_HANDSHAKE, SNIB__CONN_READY };

/* What the first reply of two said. */
enum snib__half { SNIB__HALF_NONE, SNIB__HALF_FOUND, SNIB__HALF_MISSED };

struct snib__request {
    int16_t kind;      /* the engine's; negative kinds are the handshake's own */
    int16_t script;    /* index of the script, or -1 */
    uint8_t tries;     /* times sent because its present server had forgotten the script */
    uint8_t redirects; /* times a server has redirected it since its last pause */
    uint8_t pauses;    /* times it was paused because no node could serve it */
    bool asking;       /* ASKING goes before it, to a server that is importing the slot */
    bool called;       /* a thread waits for it and reads the reply itself */
    uint8_t half;      /* enum snib__half: NONE if no reply has come yet */
    void *subject;
    void *gate;      /* the gate that it belongs to, a reference; NULL: none, or not sent */
    uint64_t number; /* tells whether the subject is still the same */
    snib__time sent_at;
};

struct snib__login {
    const char *username; /* NULL: none */
    const char *password; /* NULL: no AUTH */
    int database;
    bool any_role; /* a replica will do, because it only redirects */
    /* the strings are valid during the call only; the password is copied, and
     * wiped when no longer needed */
    bool passing;
};

/* The state of a renewed login. */
enum snib__relogin {
    SNIB__RELOGIN_NONE,
    SNIB__RELOGIN_ASKED,
    SNIB__RELOGIN_TAKEN,
    SNIB__RELOGIN_REFUSED
};

struct snib__conn {
    bool pubsub;
    int state; /* enum snib__conn_state */
    struct snib__resp *resp;
    struct snib__buf out;
    struct snib__request *ring;
    uint32_t ring_head, ring_count, ring_cap;
    uint64_t appended;       /* commands so far, the handshake's included */
    uint32_t handshake_left; /* replies still missing for READY */
    int64_t server_id;       /* CLIENT ID of this connection; 0: unknown */
    int64_t kill_id;         /* an earlier connection whose unread requests must not run any more */
    char kill_run[48];   /* ... at this process; connection ids of other processes are unrelated */
    char run_id[48];     /* of the server process; "" unknown */
    uint64_t history;    /* of the data: from the replication id; 0: unknown */
    bool killing;        /* CLIENT KILL has been sent in this handshake */
    bool left;           /* requests were left on a connection that cannot be ended */
    bool replica;        /* it says that it is a replica: its other statements are ignored, */
    bool any_role;       /* ... unless redirects are wanted */
    bool evicts;         /* the server may evict keys that have a TTL */
    uint8_t loaded[16];  /* bits: scripts loaded on this connection */
    uint8_t spelled[16]; /* bits: scripts to be sent in full the next time */
    bool no_load;        /* SCRIPT LOAD is refused */
    uint8_t mode;        /* enum snib__mode */
    int32_t replicas;    /* in step; -1: it does not say */
    bool cluster;        /* it is a node of a cluster */
    bool shards;         /* it has sharded channels (7.0 or later) */
    uint8_t publish;     /* enum snib__publish: the script variant */
    bool delifeq, delex; /* Valkey's DELIFEQ, Redis's DELEX are available */
    int32_t failure;     /* why the handshake failed: a code; 0: it did not */
    char words[SNIB__WORDS_MAX]; /* ... and the server's own words; "": none */
    const char *password; /* the login's password, to be masked in them; NULL: none, or wiped */
    char *secret;         /* the same, if the connection owns it */
    uint8_t relogin;      /* enum snib__relogin */
    /* snib__conn_mask(): state within the input */
    bool in_line, in_error;
    size_t masked; /* bytes of the password at the end of the last input */
};

int snib__conn_init(struct snib__conn *conn, bool pubsub); /* 0 or -1 */
void snib__conn_free(struct snib__conn *conn);

/* snib__conn_begin - the transport is connected: write the handshake.  0 or -1 (out of memory). */
int snib__conn_begin(struct snib__conn *conn, const struct snib__login *login, snib__time now);

/* snib__conn_relogin - log in again on a READY connection without subscriptions; conn->relogin has
 * the result.  0 or -1 (out of memory; nothing is sent). */
int snib__conn_relogin(struct snib__conn *conn, const struct snib__login *login, snib__time now);

/* snib__conn_mask - during a login, overwrite the password in error replies, which may repeat an
 * unknown command.  Call before snib__resp_feed(), so that no reader's memory ever contains it. */
void snib__conn_mask(struct snib__conn *conn, char *bytes, size_t n);

/* snib__conn_reset - the transport has ended.  The ring keeps the unanswered requests;
 * snib__conn_orphan() returns them, oldest first, until it returns false. */
void snib__conn_reset(struct snib__conn *conn);
bool snib__conn_orphan(struct snib__conn *conn, struct snib__request *out);

/* snib__conn_expect - note that the command just appended to `out` expects a reply.  0 or -1. */
int snib__conn_expect(struct snib__conn *conn, const struct snib__request *request);

/* snib__conn_next - the next reply for the engine, with its request (a READY pub/sub connection has
 * none: request->kind is 0).  Replies of the handshake are handled inside.  Returns 1 with a reply,
 * 0 when there are no more, -1 when the connection must be closed (failure says why). */
int snib__conn_next(struct snib__conn *conn, struct snib__request *request,
                    const struct snib__value **reply, uint32_t *reply_n);

/* snib__conn_oldest - when the oldest unanswered request was sent; SNIB__NEVER if there is none. */
snib__time snib__conn_oldest(const struct snib__conn *conn);

/* snib__conn_load - append a SCRIPT LOAD: before a script's first use on a connection, and when
 * the server has forgotten it. */
bool snib__conn_loaded(const struct snib__conn *conn, int script);
int snib__conn_load(struct snib__conn *conn, int script, snib__time now);

/* snib__conn_unknown - the server does not know the script: append its load or, if loading is
 * refused, mark it to be sent in full the next time.  0 or -1. */
int snib__conn_unknown(struct snib__conn *conn, int script, snib__time now);

/* snib__conn_spells - whether to send the script in full, this time only. */
bool snib__conn_spells(struct snib__conn *conn, int script);

/* snib__conn_asking - append ASKING, which applies to the next command only.  0 or -1. */
int snib__conn_asking(struct snib__conn *conn, snib__time now);

/* snib__conn_replicas - how many replicas are in step according to an INFO
 * text; -1: it does not say. */
int32_t snib__conn_replicas(const char *info);

/* snib__conn_classify - the code for an error reply, from its text as
 * written by servers from 6.0 on. */
int32_t snib__conn_classify(const char *text, uint32_t n);

/* snib__conn_is_stranger - whether an error reply says that the connection is not logged in. */
bool snib__conn_is_stranger(const char *text);

/* snib__conn_is_half - whether an error reply says that a script, which was run, may not run one of its commands: it may
 * have done what comes before that. */
bool snib__conn_is_half(const char *text);

#endif
