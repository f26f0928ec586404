/* sentinel.c - the route of a deployment with one master at a time, as reported by sentinels.
 *
 *     home has no address --first answer--> at the master
 *         --a higher epoch, or down and another address reported--> at the next
 *
 * The sentinels are asked in turn, one at a time.  If one is late, the next is asked in parallel;
 * if its answer is useless, the next is asked at once.  A round without a useful answer is followed
 * by a pause.  No answer is a proof: the server proves by its role that it is the master.
 *
 * Each failover has a configuration epoch higher than all before it.  A sentinel that was cut off
 * reports an older one until it catches up, so an epoch lower than one already seen is not
 * believed; and a master that replies is left only for a higher epoch, or when a sentinel has just
 * announced the switch, and so is one that has been tried for the first time and has not failed yet.
 * Otherwise two sentinels that disagree would take the client from each address before a distant
 * server there could reply.
 *
 * While anything is held, awaited or being released, one sentinel is asked per second, in turn.  Up
 * to five are subscribed to, because the sentinel that led a failover announces it a second or two
 * before the others, and any of them may be the one.  An idle client is silent.
 */
#include "engine/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SENTINELS_MAX 32                /* the URL names no more; a bit each in a set of them */
#define SENTINELS_LEARNT 16             /* with this many known, no more are learnt */
#define SENTINELS_VOTERS 1000           /* no service has more */
#define SENTINEL_LATE (250 * SNIB__MS)  /* without an answer by then the next one is asked, too */
#define SENTINEL_POLL (1000 * SNIB__MS) /* between queries while the master replies, */
#define SENTINEL_HURRY (250 * SNIB__MS) /* ... and while it does not */
#define SENTINEL_EAGER (50 * SNIB__MS)  /* a new operation shortens a pause to this */
#define SENTINEL_PAUSE (100 * SNIB__MS) /* after a useless round: doubled each time, */
#define SENTINEL_REST (2000 * SNIB__MS) /* ... up to this */
#define SENTINEL_EARS 5                 /* how many are subscribed to */
#define SENTINEL_SHUN                                                                              \
    (30000 * SNIB__MS) /* polls ask a failed sentinel again after a pause of at most this */

enum { ASK_MASTER = 1, ASK_ADDRESS, ASK_OTHERS };

/* The result of the last query. */
enum sentinel_outcome {
    OUTCOME_NONE,  /* never asked, or no answer */
    OUTCOME_GOOD,  /* believed */
    OUTCOME_STALE, /* not believed */
    OUTCOME_UNKNOWN,
    OUTCOME_REFUSED /* refused in a way that a retry would meet again */
};

struct sentinel {
    struct snib__node *node;
    bool named;           /* in the URL */
    bool asked;           /* and it has not answered yet */
    bool others;          /* asked for the other sentinels on this connection */
    snib__time others_at; /* ... or on an earlier one: when it was last */
    bool switched;        /* it has announced a switch: its next answer is about that */
    bool deaf;            /* it refuses the subscription */
    uint8_t outcome;
    bool has_epoch;
    uint32_t voters; /* the sentinels that it knows, itself included; 0: it does not say */
    uint64_t epoch;  /* of its answer */
    struct snib__address address;
    snib__time shun, shun_until; /* skipped by polls until then, after a failure */
    bool heard;                  /* subscribed to, or about to be */
    bool confirmed;              /* a subscription is confirmed on this connection, ... */
    snib__time confirmed_at;     /* ... since then */
    snib__time listen, listen_pause;
    int32_t code;       /* REFUSED */
    uint32_t questions; /* under way; only the answer to the last counts */
};

struct sentinels {
    struct sentinel all[SENTINELS_MAX];
    uint32_t n;
    uint32_t turn;     /* the last one asked */
    uint32_t left;     /* how many the round has still to ask */
    bool round;        /* a round is running */
    bool failed;       /* home is down, and was tried at this address */
    bool told;         /* that sentinels were set up anew, which name another master, */
    bool told_unaware; /* ... or that none knows the service any more */
    uint64_t epoch;    /* the highest that was believed */
    snib__time late;   /* when the next one is asked in parallel */
    snib__time next;   /* when the next round begins */
    snib__time pause;  /* after the last useless round */
};

static struct sentinels *sentinels_of(const struct snib__engine *e)
{
    return e->map;
}

static struct sentinel *sentinel_of(const struct snib__engine *e, const struct snib__node *node)
{
    struct sentinels *map = sentinels_of(e);
    for (uint32_t i = 0; i < map->n; i++)
        if (map->all[i].node == node)
            return &map->all[i];
    return NULL;
}

static struct sentinel *sentinel_at(const struct snib__engine *e,
                                    const struct snib__address *address)
{
    struct sentinels *map = sentinels_of(e);
    for (uint32_t i = 0; i < map->n; i++)
        if (snib__address_equal(&map->all[i].node->address, address))
            return &map->all[i];
    return NULL;
}

static bool sentinel_add(struct snib__engine *e, const struct snib__address *address, bool named)
{
    struct sentinels *map = sentinels_of(e);
    if (sentinel_at(e, address) || map->n == SENTINELS_MAX)
        return true;
    struct snib__node *node = snib__node_new(e, SNIB__A_SENTINEL, address);
    if (node)
        map->all[map->n++] = (struct sentinel){.node = node, .named = named};
    return node != NULL;
}

/* It has failed again and again. */
static bool sentinel_is_missing(const struct sentinel *one)
{
    return one->shun == SENTINEL_SHUN;
}

/* Sentinels that are started anew elsewhere have other addresses, and those of before would soon be all that there is room
 * for.  The URL's are kept. */
static void sentinel_learn(struct snib__engine *e, const struct snib__address *address)
{
    struct sentinels *map = sentinels_of(e);
    if (map->n < SENTINELS_LEARNT) {
        sentinel_add(e, address, false);
        return;
    }
    for (uint32_t i = 0; i < map->n && !sentinel_at(e, address); i++) {
        struct sentinel *one = &map->all[i];
        struct snib__node *node = one->node;
        if (one->named || one->asked || !sentinel_is_missing(one) || node == e->home->blamed ||
            !snib__link_rests(&node->links[SNIB__COMMAND]) ||
            !snib__link_rests(&node->links[SNIB__PUBSUB]))
            continue;
        snib__node_rename(e, node, address);
        *one = (struct sentinel){.node = node};
    }
}

static int sentinels_begin(struct snib__engine *e)
{
    struct sentinels *map = e->map = calloc(1, sizeof *map);
    if (!map)
        return -1;
    e->memory += sizeof *map;
    e->home = snib__node_new(e, SNIB__SERVER, NULL);
    bool there = e->home && e->config.seeds_n > 0;
    for (uint32_t i = 0; i < e->config.seeds_n && there; i++)
        there = sentinel_add(e, &e->config.seeds[i], true);
    if (!there)
        return -1;
    /* clients should not all start with the same one */
    map->turn = (uint32_t)snib__engine_random(e, map->n);
    return 0;
}

static void sentinels_end(struct snib__engine *e)
{
    free(e->map);
}

static struct snib__node *sentinel_serves(struct snib__engine *e, const char *name, size_t n)
{
    (void)name, (void)n;
    return e->home;
}

/* ---- asking ---- */

/* Send the queries.  The epoch and the address belong together, so they leave together. */
static void sentinel_question(struct snib__engine *e, struct sentinel *one, snib__time now)
{
    one->has_epoch = false;
    one->voters = 0;
    bool sent = snib__node_ask(e, one->node, ASK_MASTER, now) == 0 &&
                snib__node_ask(e, one->node, ASK_ADDRESS, now) == 0;
    one->questions += sent;
    if (sent && !one->others) {
        one->others = snib__node_ask(e, one->node, ASK_OTHERS, now) == 0;
        one->others_at = now;
    }
    if (!sent)
        snib__link_close(e, &one->node->links[SNIB__COMMAND], SNIB_ENOMEM, now);
}

static void sentinel_ask(struct snib__engine *e, struct sentinel *one, snib__time now)
{
    if (one->asked)
        return;
    one->asked = true;
    if (snib__node_ready(one->node))
        sentinel_question(e, one, now);
    else
        snib__link_want(e, &one->node->links[SNIB__COMMAND], now);
}

/* Ask the next one of the round.  A poll skips those that have just failed. */
static void sentinels_go_on(struct snib__engine *e, snib__time now)
{
    struct sentinels *map = sentinels_of(e);
    bool poll = snib__node_ready(e->home);
    map->late = SNIB__NEVER;
    while (map->left > 0) {
        map->left--;
        map->turn = (map->turn + 1) % map->n;
        struct sentinel *one = &map->all[map->turn];
        if (one->asked || (poll && now < one->shun_until))
            continue;
        map->late = now + SENTINEL_LATE;
        sentinel_ask(e, one, now);
        return;
    }
}

static void sentinels_end_round(struct snib__engine *e, snib__time pause, snib__time now)
{
    struct sentinels *map = sentinels_of(e);
    map->round = false;
    map->left = 0;
    map->late = SNIB__NEVER;
    map->next = now + pause;
}

static void sentinels_begin_round(struct snib__engine *e, snib__time now)
{
    struct sentinels *map = sentinels_of(e);
    map->round = true;
    map->left = map->n;
    sentinels_go_on(e, now);
    for (uint32_t i = 0; i < map->n; i++)
        if (map->all[i].asked)
            return;
    sentinels_end_round(e, SENTINEL_POLL, now); /* all have just failed */
}

/* ---- the result of a round ---- */

/* Give home the failure of the sentinels.  Operations waiting for it end now
 * if a retry would not help. */
static void sentinels_blame(struct snib__engine *e, const struct snib__node *node, int32_t code,
                            const char *words, bool now_or_never, snib__time now)
{
    struct snib__node *home = e->home;
    home->blamed = node;
    home->others = 0;
    home->failed = true;
    home->failure = code;
    home->os_error = node && code == node->failure ? node->os_error : 0;
    snprintf(home->words, sizeof home->words, "%s", words);
    if (now_or_never)
        snib__node_fail_ops(e, home, now);
}

/* A round was useless and home was never found: say why, and end what waits if it is hopeless by the word of half of them. */
static void sentinels_explain(struct snib__engine *e, snib__time now)
{
    struct sentinels *map = sentinels_of(e);
    struct sentinel *refused = NULL, *silent = NULL;
    char words[SNIB__WORDS_MAX];
    uint32_t unknown = 0, refusals = 0, silences = 0;
    for (uint32_t i = 0; i < map->n; i++) {
        struct sentinel *one = &map->all[i];
        unknown += one->outcome == OUTCOME_UNKNOWN;
        refusals += one->outcome == OUTCOME_REFUSED;
        silences += one->outcome == OUTCOME_NONE;
        if (one->outcome == OUTCOME_REFUSED)
            refused = one;
        else if (one->outcome == OUTCOME_NONE)
            silent = one;
    }
    bool many = 2 * (unknown + refusals) >= map->n; /* fewer do not speak for those that are away */
    if (unknown) {
        snprintf(
            words, sizeof words,
            "no sentinel knows the service \"%.100s\" (%u of %u answered): check the URL's path",
            e->config.service, unknown, map->n);
        sentinels_blame(e, NULL, SNIB_ETOPOLOGY, words, many, now);
    } else if (refused) {
        sentinels_blame(e, refused->node, refused->code, refused->node->words, many, now);
    } else if (silent) {
        sentinels_blame(e, silent->node, silent->node->failure, silent->node->words, false, now);
        e->home->others = (uint8_t)(silences - 1);
    }
}

static void sentinel_follow(struct snib__engine *e, const struct sentinel *one, snib__time now);

/* How many processes these are, a bit for each sentinel; one may have two addresses. */
static uint32_t sentinels_processes(const struct sentinels *map, uint32_t which)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < map->n; i++) {
        const char *run = map->all[i].node->run_id;
        bool again = false;
        for (uint32_t j = 0; j < i && run[0]; j++)
            again |= which >> j & 1 && strcmp(map->all[j].node->run_id, run) == 0;
        n += which >> i & 1 && !again;
    }
    return n;
}

/* More than half of all: of as many as they know themselves, or as the URL names, or as are there; addresses that have led
 * nowhere for long do not count.  Where they do not say how many they know, or which processes they are, it takes more than
 * half of all addresses. */
static bool sentinels_are_most(const struct snib__engine *e, uint32_t which)
{
    const struct sentinels *map = sentinels_of(e);
    uint32_t named = 0, there = 0, addresses = 0, most = e->config.seeds_n;
    for (uint32_t i = 0; i < map->n; i++) {
        const struct sentinel *one = &map->all[i];
        bool says = one->voters > 0 && one->node->run_id[0];
        addresses += which >> i & 1;
        there |= sentinel_is_missing(one) ? 0 : 1u << i;
        if (!(which >> i & 1) || !says)
            continue;
        named |= 1u << i;
        most = one->voters > most ? one->voters : most;
    }
    there = sentinels_processes(map, there);
    most = there > most ? there : most;
    return 2 * sentinels_processes(map, named) > most || 2 * addresses > map->n;
}

/* Those that answer like this one. */
static uint32_t sentinels_alike(const struct sentinels *map, const struct sentinel *one)
{
    uint32_t which = 0;
    for (uint32_t i = 0; i < map->n; i++) {
        const struct sentinel *other = &map->all[i];
        if (other->outcome == OUTCOME_STALE && other->epoch == one->epoch &&
            snib__address_equal(&other->address, &one->address))
            which |= 1u << i;
    }
    return which;
}

/* One of more than half of them that agree on an epoch lower than one already seen: they were set up from scratch and count
 * from 0 again.  NULL: there is none. */
static const struct sentinel *sentinels_of_most(const struct snib__engine *e)
{
    const struct sentinels *map = sentinels_of(e);
    for (uint32_t i = 0; i < map->n; i++) {
        const struct sentinel *one = &map->all[i];
        if (one->outcome != OUTCOME_STALE || one->epoch >= map->epoch)
            continue;
        if (sentinels_are_most(e, sentinels_alike(map, one)))
            return one;
    }
    return NULL;
}

/* They are followed, but not while the master replies: then it is told once. */
static bool sentinels_begun_anew(struct snib__engine *e, snib__time now)
{
    struct sentinels *map = sentinels_of(e);
    const struct sentinel *one = sentinels_of_most(e);
    char where[SNIB__ADDRESS_TEXT];
    if (one && !snib__node_ready(e->home)) {
        sentinel_follow(e, one, now);
        return true;
    }
    if (one && !map->told && !snib__address_equal(&one->address, &e->home->address))
        snib__engine_log(e, SNIB_LOG_WARNING,
                         "most sentinels were set up anew and have %s as the master of \"%.60s\": "
                         "new clients go there, this one stays at %s while that is a master",
                         snib__address_text(&one->address, where), e->config.service,
                         snib__node_where(e, e->home));
    map->told = one != NULL;
    return false;
}

/* The service was removed, or renamed: the master serves on, but nobody will say where the next one is.  That is told once. */
static void sentinels_unaware(struct snib__engine *e)
{
    struct sentinels *map = sentinels_of(e);
    uint32_t unknown = 0, known = 0;
    for (uint32_t i = 0; i < map->n; i++) {
        uint8_t outcome = map->all[i].outcome;
        unknown += outcome == OUTCOME_UNKNOWN;
        known += outcome == OUTCOME_GOOD || outcome == OUTCOME_STALE;
    }
    bool unaware = unknown > 0 && known == 0;
    if (unaware && !map->told_unaware)
        snib__engine_log(e, SNIB_LOG_WARNING,
                         "no sentinel knows the service \"%.60s\" any more (%u of %u answered): "
                         "the next master would not be found",
                         e->config.service, unknown, map->n);
    map->told_unaware = unaware;
}

/* One was useless: continue with the next, or end the round. */
static void sentinels_unhelped(struct snib__engine *e, snib__time now)
{
    struct sentinels *map = sentinels_of(e);
    if (!map->round)
        return;
    sentinels_go_on(e, now);
    for (uint32_t i = 0; i < map->n; i++)
        if (map->all[i].asked)
            return;
    if (sentinels_begun_anew(e, now))
        return;
    map->pause = map->pause == 0                  ? SENTINEL_PAUSE
                 : map->pause * 2 > SENTINEL_REST ? SENTINEL_REST
                                                  : map->pause * 2;
    sentinels_end_round(e, map->pause / 2 + snib__engine_random(e, map->pause / 2), now);
    if (e->home->addressed)
        sentinels_unaware(e);
    else
        sentinels_explain(e, now);
}

static void sentinel_failed(struct snib__engine *e, struct sentinel *one, int outcome, int32_t code,
                            snib__time now)
{
    one->asked = false;
    one->outcome = (uint8_t)outcome;
    one->code = code;
    one->shun = one->shun == 0                  ? SENTINEL_POLL
                : one->shun * 2 > SENTINEL_SHUN ? SENTINEL_SHUN
                                                : one->shun * 2;
    one->shun_until = now + one->shun;
    sentinels_unhelped(e, now);
}

/* ---- what they report ---- */

/* It has not been asked since it was last connected to.  One that ends each connection when it has answered is asked in its
 * turn like the others. */
static bool sentinel_is_unheard(const struct sentinel *one, snib__time now)
{
    bool lately = one->others_at && now < one->others_at + SENTINEL_POLL;
    return !one->others && !one->asked && !lately && now >= one->shun_until;
}

/* The master is where this sentinel says. */
static void sentinel_follow(struct snib__engine *e, const struct sentinel *one, snib__time now)
{
    struct sentinels *map = sentinels_of(e);
    struct snib__node *home = e->home;
    bool moved = !home->addressed || !snib__address_equal(&one->address, &home->address);
    map->epoch = one->epoch;
    map->pause = 0;
    map->told_unaware = false;
    if (moved) {
        char where[SNIB__ADDRESS_TEXT];
        snib__engine_log(e, home->addressed ? SNIB_LOG_WARNING : SNIB_LOG_INFO,
                         "%s says that the master of \"%.60s\" is %s", one->node->where,
                         e->config.service, snib__address_text(&one->address, where));
        home->blamed = NULL;
        home->others = 0;
        home->words[0] = 0;
        home->failure = SNIB_EUNREACHABLE;
        snib__node_readdress(e, home, &one->address, now);
        map->failed = false;
    }
    bool unheard = false; /* ask each of these once, soon: one of them may know better */
    for (uint32_t i = 0; i < map->n; i++)
        unheard |= sentinel_is_unheard(&map->all[i], now);
    sentinels_end_round(e,
                        unheard                  ? 0
                        : snib__node_ready(home) ? SENTINEL_POLL
                                                 : SENTINEL_HURRY,
                        now);
}

static bool sentinel_believed(const struct snib__engine *e, const struct sentinel *one)
{
    const struct snib__node *home = e->home;
    if (one->epoch < sentinels_of(e)->epoch)
        return false;
    return !home->addressed || snib__address_equal(&one->address, &home->address) ||
           one->epoch > sentinels_of(e)->epoch || one->switched || sentinels_of(e)->failed;
}

/* Both queries have been answered. */
static void sentinel_answered(struct snib__engine *e, struct sentinel *one, snib__time now)
{
    if (!one->has_epoch) /* it may not have the permission */
        one->epoch = sentinels_of(e)->epoch;
    bool believed = sentinel_believed(e, one);
    one->asked = one->switched = false;
    one->shun = one->shun_until = 0;
    one->outcome = believed ? OUTCOME_GOOD : OUTCOME_STALE;
    if (believed)
        sentinel_follow(e, one, now);
    else
        sentinels_unhelped(e, now);
}

/* False: no sentinel counts so far, or it is no number. */
static bool sentinel_read_number(const char *text, uint64_t *out)
{
    if (*text < '0' || *text > '9')
        return false;
    *out = strtoull(text, NULL, 10);
    return *out < UINT64_MAX;
}

/* SENTINEL MASTER: names and values, all strings. */
static void sentinel_told_master(struct snib__engine *e, struct sentinel *one,
                                 const struct snib__value *reply, uint32_t n)
{
    for (uint32_t i = 1; i + 1 < n && reply->type == SNIB__RESP_ARRAY; i += 2) {
        if (reply[i].type != SNIB__RESP_STRING || reply[i + 1].type != SNIB__RESP_STRING)
            return;
        const char *field = snib__resp_text(e->resp, &reply[i]);
        uint64_t number;
        if (!sentinel_read_number(snib__resp_text(e->resp, &reply[i + 1]), &number))
            continue;
        if (strcmp(field, "config-epoch") == 0) {
            one->epoch = number;
            one->has_epoch = true;
        } else if (strcmp(field, "num-other-sentinels") == 0) {
            one->voters = number < SENTINELS_VOTERS ? (uint32_t)number + 1 : SENTINELS_VOTERS;
        }
    }
}

static bool sentinel_read_address(const struct snib__engine *e, const struct snib__value *host,
                                  const struct snib__value *port, struct snib__address *out)
{
    return host->type == SNIB__RESP_STRING && port->type == SNIB__RESP_STRING &&
           snib__address_host(out, snib__resp_text(e->resp, host), host->count,
                              strtol(snib__resp_text(e->resp, port), NULL, 10),
                              e->config.seeds[0].tls);
}

/* SENTINEL SENTINELS: for each other sentinel a list of names and values. */
static void sentinel_told_others(struct snib__engine *e, const struct snib__value *reply,
                                 uint32_t n)
{
    for (uint32_t at = 1; at < n && reply->type == SNIB__RESP_ARRAY; at += 1 + reply[at].count) {
        const struct snib__value *host = NULL, *port = NULL;
        struct snib__address address;
        if (reply[at].type != SNIB__RESP_ARRAY || at + reply[at].count >= n)
            return;
        for (uint32_t i = at + 1; i + 1 <= at + reply[at].count; i += 2) {
            if (reply[i].type != SNIB__RESP_STRING)
                return;
            const char *field = snib__resp_text(e->resp, &reply[i]);
            host = strcmp(field, "ip") == 0 ? &reply[i + 1] : host;
            port = strcmp(field, "port") == 0 ? &reply[i + 1] : port;
        }
        if (host && port && sentinel_read_address(e, host, port, &address))
            sentinel_learn(e, &address);
    }
}

/* It is where no client can follow. */
static void sentinel_misled(struct snib__engine *e, struct sentinel *one,
                            const struct snib__value *host, snib__time now)
{
    char text[80] = "";
    struct snib__node *node = one->node;
    if (host && host->type == SNIB__RESP_STRING)
        snib__words(text, sizeof text, snib__resp_text(e->resp, host), host->count, NULL);
    node->failure = SNIB_ETOPOLOGY;
    snprintf(node->words, sizeof node->words,
             "%s names a master at an address that cannot be used%s%s", snib__node_where(e, node),
             text[0] ? ": " : "", text);
    sentinel_failed(e, one, OUTCOME_NONE, SNIB_ETOPOLOGY, now);
}

static void sentinel_told_address(struct snib__engine *e, struct sentinel *one,
                                  const struct snib__value *reply, uint32_t n, snib__time now)
{
    if (reply->type == SNIB__RESP_NIL)
        sentinel_failed(e, one, OUTCOME_UNKNOWN, 0, now);
    else if (n == 3 && sentinel_read_address(e, &reply[1], &reply[2], &one->address))
        sentinel_answered(e, one, now);
    else
        sentinel_misled(e, one, n == 3 ? &reply[1] : NULL, now);
}

static void sentinel_answer(struct snib__engine *e, struct snib__node *node, uint64_t what,
                            const struct snib__value *reply, uint32_t n, int32_t error,
                            snib__time now)
{
    struct sentinel *one = sentinel_of(e, node);
    if (what == ASK_ADDRESS && --one->questions > 0)
        return; /* it was asked again since */
    if (what == ASK_MASTER && !error) {
        sentinel_told_master(e, one, reply, n);
    } else if (what == ASK_OTHERS && !error) {
        sentinel_told_others(e, reply, n);
    } else if (what == ASK_ADDRESS && error) {
        /* INFO, which would have shown it, may be forbidden */
        bool stranger = error == SNIB_ENOTSUP;
        if (stranger)
            snib__route_misfit_words(e, &node->links[SNIB__COMMAND], node->words);
        else
            snib__words(node->words, sizeof node->words, snib__resp_text(e->resp, reply),
                        reply->count, e->config.sentinel_login.password);
        node->failure = stranger ? SNIB_ETOPOLOGY : error;
        sentinel_failed(
            e, one, snib__node_hopeless(node->failure, 0, false) ? OUTCOME_REFUSED : OUTCOME_NONE,
            node->failure, now);
    } else if (what == ASK_ADDRESS) {
        sentinel_told_address(e, one, reply, n, now);
    }
}

static int sentinel_encode(struct snib__engine *e, struct snib__buf *out, struct snib__node *node,
                           uint64_t what)
{
    static const char *const words[] = {[ASK_MASTER] = "MASTER",
                                        [ASK_ADDRESS] = "GET-MASTER-ADDR-BY-NAME",
                                        [ASK_OTHERS] = "SENTINELS"};
    (void)node;
    if (snib__resp_begin(out, 3) < 0 || snib__resp_arg(out, "SENTINEL", 8) < 0 ||
        snib__resp_arg(out, words[what], strlen(words[what])) < 0 ||
        snib__resp_arg(out, e->config.service, strlen(e->config.service)) < 0)
        return -1;
    return SNIB__NO_SCRIPT;
}

/* ---- subscriptions ---- */

/* The leader of a failover publishes the second when it has promoted a replica, and the first when
 * the other replicas follow it: a second or more during which the old master continues.  The other
 * sentinels publish the first only. */
static const char *const sentinel_news[] = {"+switch-master", "+promoted-slave"};

static struct snib__link *sentinel_ear(const struct sentinel *one)
{
    return &one->node->links[SNIB__PUBSUB];
}

/* When the next sentinel should be subscribed to, and which; SNIB__NEVER:
 * enough are, or none is left. */
static snib__time sentinels_listen_at(struct sentinels *map, struct sentinel **out)
{
    snib__time first = SNIB__NEVER;
    uint32_t ears = 0;
    for (uint32_t i = 0; i < map->n; i++) {
        struct sentinel *one = &map->all[i];
        snib__time at = one->listen > one->shun_until ? one->listen : one->shun_until;
        ears += one->heard;
        if (one->heard || one->deaf || at >= first)
            continue;
        first = at;
        *out = one;
    }
    return ears < SENTINEL_EARS ? first : SNIB__NEVER;
}

static void sentinels_listen(struct snib__engine *e, snib__time now)
{
    struct sentinels *map = sentinels_of(e);
    struct sentinel *next = NULL;
    while (sentinels_listen_at(map, &next) <= now) {
        next->heard = true;
        if (sentinel_ear(next)->conn.state != SNIB__CONN_READY)
            snib__link_want(e, sentinel_ear(next), now);
    }
    /* an idle client has not checked whether they are still up */
    for (uint32_t i = 0; i < map->n; i++)
        if (map->all[i].heard && sentinel_ear(&map->all[i])->conn.state == SNIB__CONN_READY)
            sentinel_ear(&map->all[i])->wanted = true;
}

static void sentinel_deafened(struct sentinel *one, snib__time now)
{
    if (one->confirmed && now >= one->confirmed_at + SENTINEL_POLL)
        one->listen_pause = 0;
    one->heard = false;
    one->confirmed = false;
    one->listen = now + one->listen_pause;
    one->listen_pause = one->listen_pause == 0                  ? SENTINEL_PAUSE
                        : one->listen_pause * 2 > SENTINEL_REST ? SENTINEL_REST
                                                                : one->listen_pause * 2;
}

/* "service old-host old-port new-host new-port", or "slave name host port @ service ...":
 * only the service is believed. */
static bool sentinel_about_ours(const struct snib__engine *e, const char *channel, const char *text)
{
    size_t n = strlen(e->config.service);
    if (strcmp(channel, "+promoted-slave") == 0) {
        text = strstr(text, " @ ");
        text = text ? text + 3 : "";
    }
    return strncmp(text, e->config.service, n) == 0 && text[n] == ' ';
}

/* The second subscription is optional: a user may lack the permission for it. */
static void sentinel_refused(struct snib__engine *e, struct sentinel *one)
{
    if (one->confirmed || one->deaf)
        return;
    one->deaf = true;
    one->heard = false;
    snib__engine_log(e, SNIB_LOG_WARNING,
                     "%s refused the subscription to +switch-master: allow this user +subscribe",
                     one->node->where);
}

static void sentinel_heard(struct snib__engine *e, struct snib__link *link,
                           const struct snib__value *reply, uint32_t n, snib__time now)
{
    struct sentinel *one = sentinel_of(e, link->node);
    if (reply->type == SNIB__RESP_ERROR) {
        sentinel_refused(e, one);
        return;
    }
    if (n != 4 || reply[1].type != SNIB__RESP_STRING || reply[2].type != SNIB__RESP_STRING)
        return;
    const char *what = snib__resp_text(link->conn.resp, &reply[1]);
    if (!one->confirmed && strcmp(what, "subscribe") == 0) {
        one->confirmed = true;
        one->confirmed_at = now;
    }
    if (strcmp(what, "message") == 0 && reply[3].type == SNIB__RESP_STRING &&
        sentinel_about_ours(e, snib__resp_text(link->conn.resp, &reply[2]),
                            snib__resp_text(link->conn.resp, &reply[3]))) {
        one->switched = true;
        if (one->asked && snib__node_ready(one->node))
            sentinel_question(e, one, now); /* an earlier query may still get the old answer */
        sentinel_ask(e, one, now);
    }
}

/* ---- events ---- */

static void sentinel_wanted(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct sentinels *map = sentinels_of(e);
    snib__time soon = now + (map->pause ? SENTINEL_EAGER : 0);
    if (node == e->home && map->next > soon)
        map->next = soon;
}

static void sentinel_ready(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    struct sentinel *one = sentinel_of(e, link->node);
    if (!one && link->kind == SNIB__COMMAND)
        sentinels_of(e)->failed = false;
    for (int i = 0; one && link->kind == SNIB__PUBSUB && i < 2; i++)
        snib__chan_say(link->node, "SUBSCRIBE", sentinel_news[i], strlen(sentinel_news[i]));
    if (one && link->kind == SNIB__COMMAND && one->asked)
        sentinel_question(e, one, now);
}

static void sentinel_down(struct snib__engine *e, struct snib__link *link, int32_t code,
                          snib__time now)
{
    struct sentinels *map = sentinels_of(e);
    struct sentinel *one = sentinel_of(e, link->node);
    if (!one) { /* the master */
        map->failed |= link->kind == SNIB__COMMAND;
        if (link->kind == SNIB__COMMAND && map->next > now + SENTINEL_EAGER)
            map->next = now;
    } else if (link->kind == SNIB__PUBSUB) {
        sentinel_deafened(one, now);
    } else {
        one->others = false;
        one->questions = 0;
        bool hopeless = snib__node_hopeless(code, link->node->os_error, false);
        if (one->asked)
            sentinel_failed(e, one, hopeless ? OUTCOME_REFUSED : OUTCOME_NONE, code, now);
    }
}

static void sentinel_tick(struct snib__engine *e, snib__time now)
{
    struct sentinels *map = sentinels_of(e);
    if (!snib__engine_busy(e))
        return;
    if (map->round && now >= map->late)
        sentinels_go_on(e, now);
    if (!map->round && now >= map->next)
        sentinels_begin_round(e, now);
    sentinels_listen(e, now);
}

static snib__time sentinel_deadline(const struct snib__engine *e)
{
    struct sentinels *map = sentinels_of(e);
    struct sentinel *another = NULL;
    if (!snib__engine_busy(e))
        return SNIB__NEVER;
    for (uint32_t i = 0; i < map->n; i++)
        if (map->all[i].heard && !sentinel_ear(&map->all[i])->wanted &&
            sentinel_ear(&map->all[i])->conn.state == SNIB__CONN_READY)
            return 0;
    snib__time next = map->round ? map->late : map->next;
    snib__time listen = sentinels_listen_at(map, &another);
    return listen < next ? listen : next;
}

static int sentinel_tell(const struct snib__engine *e, char *out, size_t cap)
{
    const struct sentinels *map = sentinels_of(e);
    uint32_t answered = 0;
    for (uint32_t i = 0; i < map->n; i++)
        answered += map->all[i].outcome == OUTCOME_GOOD;
    return snprintf(out, cap, "service:%.200s\nsentinels:%u\nanswered:%u\n", e->config.service,
                    map->n, answered);
}

const struct snib__route snib__sentinel = {
    .begin = sentinels_begin,
    .end = sentinels_end,
    .serves = sentinel_serves,
    .wanted = sentinel_wanted,
    .ready = sentinel_ready,
    .down = sentinel_down,
    .encode = sentinel_encode,
    .answer = sentinel_answer,
    .heard = sentinel_heard,
    .tell = sentinel_tell,
    .tick = sentinel_tick,
    .deadline = sentinel_deadline,
};
