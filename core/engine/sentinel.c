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
 * An address outlives the sentinel behind it, and may belong to another deployment by now, whose service has the same
 * name.  So one that others have named, or another process than before, is a stranger until it names as the master the
 * server that the client is at, or among the other sentinels one that is known.  If nobody else is left, those of the
 * URL count again.
 *
 * While anything is held, awaited or being released, one sentinel is asked per second, in turn, and
 * some are listened to.  An idle client is silent.
 */
#include "engine/sentinel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SENTINELS_VOTERS 1000           /* no service has more */
#define SENTINEL_LATE (250 * SNIB__MS)  /* without an answer by then the next one is asked, too */
#define SENTINEL_HURRY (250 * SNIB__MS) /* between queries while the master does not reply */
#define SENTINEL_EAGER (50 * SNIB__MS)  /* a new operation shortens a pause to this */
/* A master that has been down for so long is left if most say so.  Sooner they may not have heard of a failover. */
#define SENTINEL_LAG (10000 * SNIB__MS)

enum { ASK_MASTER = 1, ASK_ADDRESS, ASK_OTHERS };

static int sentinels_begin(struct snib__engine *e)
{
    struct snib__sentinels *map = e->map = calloc(1, sizeof *map);
    if (!map)
        return -1;
    e->memory += sizeof *map;
    e->home = snib__node_new(e, SNIB__SERVER, NULL);
    bool there = e->home && e->config.seeds_n > 0;
    for (uint32_t i = 0; i < e->config.seeds_n && there; i++)
        there = snib__sentinel_add(e, &e->config.seeds[i], true);
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
static void sentinel_question(struct snib__engine *e, struct snib__sentinel *one, snib__time now)
{
    one->has_epoch = false;
    one->voters = 0;
    bool first = one->stranger; /* its others tell whether the rest counts */
    bool sent = (!first || snib__node_ask(e, one->node, ASK_OTHERS, now) == 0) &&
                snib__node_ask(e, one->node, ASK_MASTER, now) == 0 &&
                snib__node_ask(e, one->node, ASK_ADDRESS, now) == 0;
    one->questions += sent;
    if (sent && (first || !one->others)) {
        one->others = first || snib__node_ask(e, one->node, ASK_OTHERS, now) == 0;
        one->others_at = now;
    }
    if (!sent)
        snib__link_close(e, &one->node->links[SNIB__COMMAND], SNIB_ENOMEM, now);
}

static void sentinel_ask(struct snib__engine *e, struct snib__sentinel *one, snib__time now)
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
    struct snib__sentinels *map = snib__sentinels_of(e);
    bool poll = snib__node_ready(e->home);
    map->late = SNIB__NEVER;
    while (map->left > 0) {
        map->left--;
        map->turn = (map->turn + 1) % map->n;
        struct snib__sentinel *one = &map->all[map->turn];
        if (one->asked || (poll && now < one->shun_until))
            continue;
        map->late = now + SENTINEL_LATE;
        sentinel_ask(e, one, now);
        return;
    }
}

static void sentinels_end_round(struct snib__engine *e, snib__time pause, snib__time now)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    map->round = false;
    map->left = 0;
    map->late = SNIB__NEVER;
    map->next = now + pause;
}

static void sentinels_begin_round(struct snib__engine *e, snib__time now)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    map->round = true;
    map->left = map->n;
    sentinels_go_on(e, now);
    for (uint32_t i = 0; i < map->n; i++)
        if (map->all[i].asked)
            return;
    sentinels_end_round(e, SNIB__SENTINEL_POLL, now); /* all have just failed */
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
    struct snib__sentinels *map = snib__sentinels_of(e);
    struct snib__sentinel *refused = NULL, *silent = NULL;
    char words[SNIB__WORDS_MAX];
    uint32_t unknown = 0, refusals = 0, silences = 0;
    for (uint32_t i = 0; i < map->n; i++) {
        struct snib__sentinel *one = &map->all[i];
        unknown += one->outcome == SNIB__OUTCOME_UNKNOWN;
        refusals += one->outcome == SNIB__OUTCOME_REFUSED;
        silences += one->outcome == SNIB__OUTCOME_NONE;
        if (one->outcome == SNIB__OUTCOME_REFUSED)
            refused = one;
        else if (one->outcome == SNIB__OUTCOME_NONE)
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

static void sentinel_follow(struct snib__engine *e, const struct snib__sentinel *one,
                            snib__time now);

/* They are followed, but those that count from 0 not while the master replies: then it is told once. */
static bool sentinels_begun_anew(struct snib__engine *e, snib__time now)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    const struct snib__sentinel *one = snib__sentinels_of_most(e);
    char where[SNIB__ADDRESS_TEXT];
    if (one && (!snib__node_ready(e->home) || one->epoch > map->epoch)) {
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

/* The master that some have named has long been down, and most name another one: those belong to another deployment, or lag
 * behind for ever. */
static bool sentinels_outvote(struct snib__engine *e, snib__time now)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    if (snib__node_ready(e->home) || !map->failed || now < map->moved_at + SENTINEL_LAG)
        return false;
    const struct snib__sentinel *one = snib__sentinels_of_most(e);
    for (uint32_t i = 0; i < map->n && one; i++)
        if (map->all[i].outcome == SNIB__OUTCOME_GOOD)
            map->all[i].stranger = map->all[i].outvoted = true;
    if (one)
        sentinel_follow(e, one, now);
    return one != NULL;
}

/* Nobody who counts knows the service any more, and the master is down: all were replaced at once, as far as anyone can tell. */
static bool sentinels_are_all_strangers(struct snib__engine *e)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    bool any = false;
    for (uint32_t i = 0; i < map->n; i++)
        if (!map->all[i].stranger && (map->all[i].outcome == SNIB__OUTCOME_GOOD ||
                                      map->all[i].outcome == SNIB__OUTCOME_STALE))
            return false;
    for (uint32_t i = 0; i < map->n && !snib__node_ready(e->home); i++) {
        struct snib__sentinel *one = &map->all[i];
        if (!one->named || !one->stranger || one->outcome != SNIB__OUTCOME_STALE)
            continue;
        one->stranger = one->others = false;
        any = true;
    }
    return any;
}

/* The service was removed, or renamed: the master serves on, but nobody will say where the next one is.  That is told once. */
static void sentinels_unaware(struct snib__engine *e)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    uint32_t unknown = 0, known = 0;
    for (uint32_t i = 0; i < map->n; i++) {
        uint8_t outcome = map->all[i].outcome;
        unknown += outcome == SNIB__OUTCOME_UNKNOWN;
        known += outcome == SNIB__OUTCOME_GOOD || outcome == SNIB__OUTCOME_STALE;
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
    struct snib__sentinels *map = snib__sentinels_of(e);
    if (!map->round)
        return;
    sentinels_go_on(e, now);
    for (uint32_t i = 0; i < map->n; i++)
        if (map->all[i].asked)
            return;
    if (sentinels_begun_anew(e, now))
        return;
    if (sentinels_are_all_strangers(e)) {
        sentinels_end_round(e, 0, now);
        return;
    }
    map->pause = snib__sentinel_longer(map->pause, SNIB__SENTINEL_PAUSE, SNIB__SENTINEL_REST);
    sentinels_end_round(e, map->pause / 2 + snib__engine_random(e, map->pause / 2), now);
    if (e->home->addressed)
        sentinels_unaware(e);
    else
        sentinels_explain(e, now);
}

static void sentinel_failed(struct snib__engine *e, struct snib__sentinel *one, int outcome,
                            int32_t code, snib__time now)
{
    one->asked = false;
    one->outcome = (uint8_t)outcome;
    one->code = code;
    one->shun = snib__sentinel_longer(one->shun, SNIB__SENTINEL_POLL, SNIB__SENTINEL_SHUN);
    one->shun_until = now + one->shun;
    sentinels_unhelped(e, now);
}

/* ---- what they report ---- */

/* It has not been asked since it was last connected to.  One that ends each connection when it has answered is asked in its
 * turn like the others. */
static bool sentinel_is_unheard(const struct snib__sentinel *one, snib__time now)
{
    bool lately = one->others_at && now < one->others_at + SNIB__SENTINEL_POLL;
    return !one->others && !one->asked && !lately && now >= one->shun_until;
}

/* The master is where this sentinel says. */
static void sentinel_follow(struct snib__engine *e, const struct snib__sentinel *one,
                            snib__time now)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
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
        map->moved_at = now;
        if (home->addressed) {
            map->swing = snib__sentinel_longer(map->swing, SENTINEL_HURRY, SNIB__SENTINEL_REST);
        }
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
                        : snib__node_ready(home) ? SNIB__SENTINEL_POLL
                                                 : SENTINEL_HURRY,
                        now);
}

static bool sentinel_believed(const struct snib__engine *e, const struct snib__sentinel *one)
{
    const struct snib__node *home = e->home;
    if (one->stranger || one->epoch < snib__sentinels_of(e)->epoch)
        return false;
    return !home->addressed || snib__address_equal(&one->address, &home->address) ||
           one->epoch > snib__sentinels_of(e)->epoch || one->switched ||
           snib__sentinels_of(e)->failed;
}

/* Its answer may show that it belongs to the same deployment: it is believed then, and those that it names are learnt. */
static void sentinel_may_be_known(struct snib__engine *e, struct snib__sentinel *one,
                                  snib__time now)
{
    const struct snib__node *home = e->home;
    bool alone = snib__sentinels_of(e)->n == 1 || !home->addressed;
    if (!one->stranger || (!alone && !snib__address_equal(&one->address, &home->address)))
        return;
    one->stranger = one->outvoted = false;
    one->others = snib__node_ask(e, one->node, ASK_OTHERS, now) == 0;
}

/* Both queries have been answered. */
static void sentinel_answered(struct snib__engine *e, struct snib__sentinel *one, snib__time now)
{
    if (!one->has_epoch) /* it may not have the permission */
        one->epoch = snib__sentinels_of(e)->epoch;
    sentinel_may_be_known(e, one, now);
    bool believed = sentinel_believed(e, one);
    one->asked = one->switched = false;
    one->shun = one->shun_until = 0;
    one->outcome = believed ? SNIB__OUTCOME_GOOD : SNIB__OUTCOME_STALE;
    if (believed)
        sentinel_follow(e, one, now);
    else if (!sentinels_outvote(e, now))
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
static void sentinel_told_master(struct snib__engine *e, struct snib__sentinel *one,
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

/* SENTINEL SENTINELS: for each other sentinel a list of names and values.  They show whether a stranger is none; those that
 * anyone else names are learnt. */
static void sentinel_read_others(struct snib__engine *e, struct snib__sentinel *one,
                                 const struct snib__value *reply, uint32_t n)
{
    const bool learns = !one->stranger;
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
        if (!host || !port || !sentinel_read_address(e, host, port, &address))
            continue;
        if (learns)
            snib__sentinel_learn(e, &address);
        else if (snib__sentinel_vouches(e, one, &address))
            one->stranger = one->outvoted = false;
    }
}

static void sentinel_told_others(struct snib__engine *e, struct snib__sentinel *one,
                                 const struct snib__value *reply, uint32_t n)
{
    if (one->stranger)
        sentinel_read_others(e, one, reply, n);
    if (!one->stranger)
        sentinel_read_others(e, one, reply, n);
}

/* It is where no client can follow. */
static void sentinel_misled(struct snib__engine *e, struct snib__sentinel *one,
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
    sentinel_failed(e, one, SNIB__OUTCOME_NONE, SNIB_ETOPOLOGY, now);
}

static void sentinel_told_address(struct snib__engine *e, struct snib__sentinel *one,
                                  const struct snib__value *reply, uint32_t n, snib__time now)
{
    if (reply->type == SNIB__RESP_NIL)
        sentinel_failed(e, one, SNIB__OUTCOME_UNKNOWN, 0, now);
    else if (n == 3 && sentinel_read_address(e, &reply[1], &reply[2], &one->address))
        sentinel_answered(e, one, now);
    else
        sentinel_misled(e, one, n == 3 ? &reply[1] : NULL, now);
}

static void sentinel_answer(struct snib__engine *e, struct snib__node *node, uint64_t what,
                            const struct snib__value *reply, uint32_t n, int32_t error,
                            snib__time now)
{
    struct snib__sentinel *one = snib__sentinel_of(e, node);
    if (what == ASK_ADDRESS && --one->questions > 0)
        return; /* it was asked again since */
    if (what == ASK_MASTER && !error) {
        sentinel_told_master(e, one, reply, n);
    } else if (what == ASK_OTHERS && !error) {
        sentinel_told_others(e, one, reply, n);
    } else if (what == ASK_ADDRESS && error) {
        /* INFO, which would have shown it, may be forbidden */
        bool stranger = error == SNIB_ENOTSUP;
        if (stranger)
            snib__route_misfit_words(e, &node->links[SNIB__COMMAND], node->words);
        else
            snib__words(node->words, sizeof node->words, snib__resp_text(e->resp, reply),
                        reply->count, e->config.sentinel_login.password);
        node->failure = stranger ? SNIB_ETOPOLOGY : error;
        sentinel_failed(e, one,
                        snib__node_hopeless(node->failure, 0, false) ? SNIB__OUTCOME_REFUSED
                                                                     : SNIB__OUTCOME_NONE,
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

/* ---- events ---- */

static void sentinel_wanted(struct snib__engine *e, struct snib__node *node, snib__time now)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    snib__time soon = now + (map->pause ? SENTINEL_EAGER : 0);
    if (node == e->home && map->next > soon)
        map->next = soon;
}

static void sentinel_ready(struct snib__engine *e, struct snib__link *link, snib__time now)
{
    struct snib__sentinel *one = snib__sentinel_of(e, link->node);
    if (!one && link->kind == SNIB__COMMAND) {
        snib__sentinels_of(e)->failed = false;
        snib__sentinels_of(e)->swing = 0;
    }
    if (one && link->kind == SNIB__COMMAND && one->identity != one->node->identity) {
        one->identity = one->node->identity;
        one->stranger = true;
    }
    if (one && link->kind == SNIB__PUBSUB)
        snib__ear_ready(one);
    if (one && link->kind == SNIB__COMMAND && one->asked)
        sentinel_question(e, one, now);
}

static void sentinel_heard(struct snib__engine *e, struct snib__link *link,
                           const struct snib__value *reply, uint32_t n, snib__time now)
{
    struct snib__sentinel *one = snib__sentinel_of(e, link->node);
    if (!snib__ear_heard(e, one, reply, n, now))
        return;
    one->switched = true;
    if (one->asked && snib__node_ready(one->node))
        sentinel_question(e, one, now); /* an earlier query may still get the old answer */
    sentinel_ask(e, one, now);
}

static void sentinel_down(struct snib__engine *e, struct snib__link *link, int32_t code,
                          snib__time now)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    struct snib__sentinel *one = snib__sentinel_of(e, link->node);
    if (!one) { /* the master */
        map->failed |= link->kind == SNIB__COMMAND;
        /* but sentinels that contradict each other are not followed to and fro without a pause */
        snib__time again = map->moved_at + map->swing;
        snib__time soon = map->swing > 0 && again > now ? again : now;
        if (link->kind == SNIB__COMMAND && map->next > soon + SENTINEL_EAGER)
            map->next = soon;
    } else if (link->kind == SNIB__PUBSUB) {
        snib__ear_down(one, now);
    } else {
        one->others = false;
        one->questions = 0;
        bool hopeless = snib__node_hopeless(code, link->node->os_error, false);
        if (one->asked)
            sentinel_failed(e, one, hopeless ? SNIB__OUTCOME_REFUSED : SNIB__OUTCOME_NONE, code,
                            now);
    }
}

static void sentinel_tick(struct snib__engine *e, snib__time now)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    if (!snib__engine_busy(e))
        return;
    if (map->round && now >= map->late)
        sentinels_go_on(e, now);
    if (!map->round && now >= map->next)
        sentinels_begin_round(e, now);
    snib__ears_tick(e, now);
}

static snib__time sentinel_deadline(const struct snib__engine *e)
{
    const struct snib__sentinels *map = snib__sentinels_of(e);
    if (!snib__engine_busy(e))
        return SNIB__NEVER;
    snib__time next = map->round ? map->late : map->next;
    snib__time listen = snib__ears_deadline(e);
    return listen < next ? listen : next;
}

static int sentinel_tell(const struct snib__engine *e, char *out, size_t cap)
{
    const struct snib__sentinels *map = snib__sentinels_of(e);
    uint32_t answered = 0;
    for (uint32_t i = 0; i < map->n; i++)
        answered += map->all[i].outcome == SNIB__OUTCOME_GOOD;
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
