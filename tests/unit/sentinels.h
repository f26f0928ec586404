/* sentinels.h - sentinels and servers for an engine in virtual time, which answer as the test
 * wants. */
#ifndef SNIB_UNIT_SENTINELS_H
#define SNIB_UNIT_SENTINELS_H

#include "fed.h"

#include <errno.h>
#include <stdlib.h>

/* ---- Peers ---------------------------------------------------------------------------------------- */

enum state {
    UP,
    DOWN,   /* refuses connections */
    SILENT, /* accepts, and answers nothing */
};

struct peer {
    char host[8];
    enum state state;
    snib__time far, near_at; /* connecting to it takes so long; the last attempt succeeds then */
    const char *mode;        /* in INFO; NULL: INFO is not allowed */
    const char *locked;      /* an error that answers everything */
    /* servers */
    bool replica;
    bool server;  /* although its name is a sentinel's */
    bool refuses; /* answers READONLY, whatever INFO says */
    bool has;     /* it has every hold that it is asked for */
    /* sentinels */
    const char *master; /* NULL: the service is unknown */
    int epoch;
    const char *others;             /* hosts, a letter and a digit each */
    int known;                      /* how many others it says that it knows; 0: it does not say */
    const char *process;            /* what it says of its process; NULL: its host */
    const char *odd, *odd_says;     /* a word of SENTINEL, and the whole reply to it; NULL */
    bool no_subscribing, no_luxury; /* no channel at all; only +switch-master */
    int ends; /* it ends each connection of this kind after its answer: 1, of commands; 2, of messages */
    /* what it has seen */
    int connects, asked, subscribed, renewals, releases;
    bool promotions; /* +promoted-slave is subscribed to */
    uint64_t bytes;
};

static struct peer peers[64];
static int peers_n;

static inline struct peer *peer(const char *host)
{
    for (int i = 0; i < peers_n; i++)
        if (strcmp(peers[i].host, host) == 0)
            return &peers[i];
    assert_true(peers_n < 64);
    struct peer *one = &peers[peers_n++];
    *one = (struct peer){.mode = host[0] == 's' ? "sentinel" : "standalone", .has = true};
    snprintf(one->host, sizeof one->host, "%.7s", host);
    if (host[0] == 's') {
        one->master = "m1";
        one->epoch = 1;
        one->others = "";
    }
    return one;
}

static inline struct peer *peer_of(const struct snib__link *link)
{
    return link->node->addressed ? peer(link->node->address.host) : peer("m0");
}

static inline const char *bulk(char *out, const char *text)
{
    sprintf(out, "$%d\r\n%.100s\r\n", (int)strlen(text), text);
    return out;
}

static inline void sentinel_says(struct peer *one, const char *what, const char *service, char *out)
{
    bool known = one->master && strcmp(service, "main") == 0;
    one->asked++;
    if (one->odd && strcmp(what, one->odd) == 0) {
        strcpy(out, one->odd_says);
    } else if (strcmp(what, "GET-MASTER-ADDR-BY-NAME") == 0) {
        if (known)
            sprintf(out, "*2\r\n$2\r\n%s\r\n$4\r\n6379\r\n", one->master);
        else
            sprintf(out, "*-1\r\n");
    } else if (!known) {
        sprintf(out, "-ERR No such master with that name\r\n");
    } else if (strcmp(what, "MASTER") == 0) {
        char number[16], epoch[32];
        sprintf(number, "%d", one->epoch);
        out += sprintf(out,
                       "*%d\r\n$4\r\nname\r\n$4\r\nmain\r\n$5\r\nflags\r\n$6\r\nmaster\r\n"
                       "$12\r\nconfig-epoch\r\n%s",
                       one->known ? 8 : 6, bulk(epoch, number));
        sprintf(number, "%d", one->known);
        if (one->known)
            sprintf(out, "$19\r\nnum-other-sentinels\r\n%s", bulk(epoch, number));
    } else {
        out += sprintf(out, "*%d\r\n", (int)strlen(one->others) / 2);
        for (const char *other = one->others; *other; other += 2)
            out += sprintf(out,
                           "*6\r\n$4\r\nname\r\n$1\r\nx\r\n$2\r\nip\r\n$2\r\n%.2s\r\n$4\r\nport\r\n"
                           "$5\r\n26379\r\n",
                           other);
    }
}

static inline void script_says(struct peer *one, const char *sha1, char *out)
{
    bool renewal = strcmp(sha1, snib__script_texts[SNIB__SCRIPT_MUTEX_RENEW].sha1) == 0;
    bool release = strcmp(sha1, snib__script_texts[SNIB__SCRIPT_MUTEX_RELEASE].sha1) == 0;
    one->renewals += renewal;
    one->releases += release;
    if (one->refuses)
        sprintf(out, "-READONLY You can't write against a read only replica.\r\n");
    else if (renewal)
        sprintf(out, one->has ? "*0\r\n" : "*2\r\n:1\r\n:0\r\n");
    else if (release)
        sprintf(out, one->has ? ":1\r\n" : ":0\r\n");
    else
        sprintf(out, "$-1\r\n");
}

static inline void peer_says(struct peer *one, const struct snib__link *link, char words[WORDS][96],
                             char *out)
{
    char text[128];
    bool sentinel = one->mode && strcmp(one->mode, "sentinel") == 0;
    if (one->locked) {
        sprintf(out, "%s", one->locked);
    } else if (strcmp(words[0], "PING") == 0) {
        sprintf(out, "+PONG\r\n");
    } else if (strcmp(words[0], "INFO") == 0 && !one->mode) {
        sprintf(out, "-NOPERM no info\r\n");
    } else if (strcmp(words[1], "server") == 0) {
        sprintf(text, "redis_mode:%s\r\nrun_id:%s\r\n", one->mode,
                one->process ? one->process : one->host);
        bulk(out, text);
    } else if (strcmp(words[1], "replication") == 0) {
        bulk(out, sentinel ? "" : one->replica ? "role:slave\r\n" : "role:master\r\n");
    } else if (strcmp(words[0], "INFO") == 0) {
        bulk(out, "");
    } else if (strcmp(words[0], "SENTINEL") == 0 && one->host[0] == 's' && !one->server) {
        sentinel_says(one, words[1], words[2], out);
    } else if (strcmp(words[0], "SUBSCRIBE") == 0) {
        bool luxury = strcmp(words[1], "+switch-master") != 0;
        bool refused = one->no_subscribing || (one->no_luxury && luxury);
        one->subscribed += !refused && !luxury;
        one->promotions |= !refused && luxury;
        if (refused)
            sprintf(out, "-NOPERM no\r\n");
        else
            sprintf(out, "*3\r\n$9\r\nsubscribe\r\n%s:1\r\n", bulk(text, words[1]));
    } else if (strcmp(words[0], "SCRIPT") == 0) {
        bulk(out, snib__script_texts[link->conn.ring[link->conn.ring_head].script].sha1);
    } else if (strcmp(words[0], "EVALSHA") == 0) {
        script_says(one, words[1], out);
    } else if (strcmp(words[1], "ID") == 0) {
        sprintf(out, ":17\r\n");
    } else {
        sprintf(out, "-ERR unknown command '%s'\r\n", words[0]);
    }
}

/* ---- Time and the wire ---------------------------------------------------------------------------- */

/* Carry out one link's wish, and answer what it has sent.  True: something happened. */
static inline bool serve(struct snib__engine *engine, struct snib__link *link)
{
    char words[WORDS][96], reply[4096];
    int wish = snib__engine_take_wish(engine, link);
    struct peer *one = peer_of(link);
    if (wish == SNIB__WISH_CONNECT) {
        one->connects++;
        if (one->state == DOWN)
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, ECONNREFUSED, now);
        else if (one->far)
            one->near_at = now + one->far;
        else
            snib__engine_link_up(engine, link, now);
    }
    if (link->connecting && one->far && now >= one->near_at)
        snib__engine_link_up(engine, link, now);
    if (link->conn.state == SNIB__CONN_DOWN || one->state != UP)
        return wish != SNIB__WISH_NOTHING;
    size_t size = snib__buf_size(&link->conn.out);
    if (!next_command(&link->conn.out, words))
        return wish != SNIB__WISH_NOTHING;
    one->bytes += size - snib__buf_size(&link->conn.out);
    peer_says(one, link, words, reply);
    snib__engine_input(engine, link, reply, strlen(reply), now);
    const char *last = link->kind == SNIB__PUBSUB ? "+promoted-slave" : "SENTINELS";
    if (one->ends & 1 << link->kind && strcmp(words[1], last) == 0)
        snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, 0, now);
    return true;
}

static inline void settle(struct snib__engine *engine)
{
    bool again = true;
    for (int steps = 0; again; steps++) {
        assert_true(steps < 10000);
        again = false;
        for (struct snib__link *link = engine->links; link; link = link->next)
            again |= serve(engine, link);
        if (snib__engine_deadline(engine) <= now && !again) {
            snib__engine_tick(engine, now);
            again = snib__engine_deadline(engine) <= now;
        }
    }
}

static inline void pass(struct snib__engine *engine, snib__time time)
{
    snib__time until = now + time;
    settle(engine);
    while (now < until) {
        snib__time next = snib__engine_deadline(engine);
        now = next <= now ? now + SNIB__MS / 10 : next < until ? next : until;
        snib__engine_tick(engine, now);
        settle(engine);
    }
}

/* How long until the condition holds; fails if it does not within the limit. */
#define PASS_UNTIL(engine, condition, limit)                                                       \
    do {                                                                                           \
        for (snib__time end = now + (limit); !(condition);) {                                      \
            if (now >= end)                                                                        \
                fail_msg("not within %d ms: %s", (int)((limit) / SNIB__MS), #condition);           \
            pass(engine, SNIB__MS);                                                                \
        }                                                                                          \
    } while (0)

/* The server goes down, with all its connections. */
static inline void crash(struct snib__engine *engine, const char *host)
{
    peer(host)->state = DOWN;
    for (struct snib__link *link = engine->links; link; link = link->next)
        if (peer_of(link) == peer(host) &&
            (link->conn.state != SNIB__CONN_DOWN || link->connecting))
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, 0, now);
}

static struct snib__address seeds[3];

static inline struct snib__engine *world(int sentinels)
{
    struct snib__config config = {.uuid = "00000000-0000-8000-8000-000000000001",
                                  .topology = SNIB__SENTINEL,
                                  .seeds = seeds,
                                  .seeds_n = (uint32_t)sentinels,
                                  .service = "main",
                                  .where = "\"main\" by the sentinels s0 and more",
                                  .seed = 1,
                                  .first_number = 1,
                                  .lease = 30 * SECOND,
                                  .reply_timeout = 3 * SECOND,
                                  .patience = 5 * SECOND,
                                  .try_timeout = SECOND,
                                  .recheck = 3 * SECOND,
                                  .handover_max = 16,
                                  .ops_max = 10000};
    peers_n = 0;
    for (int i = 0; i < sentinels; i++) {
        char host[3] = {'s', (char)('0' + i), 0};
        snib__address_host(&seeds[i], host, 2, 26379, false);
        peer(host);
    }
    struct snib__engine *engine = snib__engine_new(&config);
    assert_non_null(engine);
    now = START;
    return engine;
}

static inline bool at(const struct snib__engine *engine, const char *host)
{
    return engine->home->addressed && strcmp(engine->home->address.host, host) == 0 &&
           snib__node_ready(engine->home);
}

static inline struct snib__hold *held(struct snib__engine *engine, const char *name,
                                      snib__time lease)
{
    int32_t code;
    struct snib__acquire how = {.wait = SNIB__NEVER, .lease = lease};
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, name), &how, now, &code);
    PASS_UNTIL(engine, op->done, 5 * SECOND);
    return acquired(engine, op);
}

static inline void released(struct snib__engine *engine, struct snib__hold *hold, int32_t want)
{
    int32_t code;
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    if (op) {
        PASS_UNTIL(engine, op->done, 5 * SECOND);
        code = op->code;
        while (snib__engine_take_done(engine))
            ;
        snib__op_free(engine, op);
    }
    assert_int_equal(code, want);
    snib__hold_drop(engine, hold, now);
}

static inline struct snib__link *ear_at(const struct snib__engine *engine, const char *host)
{
    for (struct snib__link *link = engine->links; link; link = link->next)
        if (link->node->kind == SNIB__A_SENTINEL && peer_of(link) == peer(host) &&
            link->kind == SNIB__PUBSUB && link->conn.state == SNIB__CONN_READY)
            return link;
    return NULL;
}

static inline void say_on(struct snib__engine *engine, const char *host, const char *channel,
                          const char *text)
{
    char message[400], one[128], other[128];
    struct snib__link *link = ear_at(engine, host);
    if (!link)
        fail_msg("%s is not listened to", host);
    sprintf(message, "*3\r\n$7\r\nmessage\r\n%s%s", bulk(one, channel), bulk(other, text));
    snib__engine_input(engine, link, message, strlen(message), now);
}

static inline void say_switch(struct snib__engine *engine, const char *host, const char *text)
{
    say_on(engine, host, "+switch-master", text);
}

/* How many sentinels are listened to. */
static inline int ears(const struct snib__engine *engine)
{
    int n = 0;
    for (int i = 0; i < peers_n; i++)
        n += peers[i].host[0] == 's' && ear_at(engine, peers[i].host) != NULL;
    return n;
}

static inline void tell_all(int sentinels, const char *master, int epoch)
{
    for (int i = 0; i < sentinels; i++) {
        char host[3] = {'s', (char)('0' + i), 0};
        peer(host)->master = master;
        peer(host)->epoch = epoch;
    }
}

static inline void ends_with(struct snib__engine *engine, int32_t code, snib__time limit,
                             const char *words, const char *where)
{
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    PASS_UNTIL(engine, op->done, limit);
    if (op->code != code)
        fail_msg("%s instead of %s", snib_code_name(op->code), snib_code_name(code));
    if (words && (!op->words || !strstr(op->words, words)))
        fail_msg("\"%s\" is not in \"%s\"", words, op->words ? op->words : "");
    if (where && (!op->where || strcmp(op->where, where) != 0))
        fail_msg("at %s, not at %s", op->where ? op->where : "none", where);
    while (snib__engine_take_done(engine))
        ;
    snib__op_free(engine, op);
}

#endif
