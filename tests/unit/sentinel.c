/* sentinel.c - who is believed to be the master, and when: sentinels and servers that say what the test wants. */
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
    const char *mode;   /* by INFO; NULL: INFO is not allowed */
    const char *locked; /* an error that answers everything */
    /* servers */
    bool replica;
    bool server;  /* although its name is a sentinel's */
    bool refuses; /* answers READONLY, whatever INFO says */
    bool has;     /* what it is asked about is there */
    /* sentinels */
    const char *master; /* NULL: knows no such service */
    int epoch;
    const char *others;             /* hosts, a letter and a digit each */
    bool no_subscribing, no_luxury; /* no channel at all; +switch-master alone */
    /* what was seen */
    int connects, asked, subscribed, renewals, releases;
    bool promotions; /* +promoted-slave is listened to */
    uint64_t bytes;
};

static struct peer peers[64];
static int peers_n;

static struct peer *peer(const char *host)
{
    for (int i = 0; i < peers_n; i++)
        if (strcmp(peers[i].host, host) == 0)
            return &peers[i];
    assert_true(peers_n < 64);
    struct peer *one = &peers[peers_n++];
    *one = (struct peer){.mode = host[0] == 's' ? "sentinel" : "standalone", .has = true};
    snprintf(one->host, sizeof one->host, "%s", host);
    if (host[0] == 's') {
        one->master = "m1";
        one->epoch = 1;
        one->others = "";
    }
    return one;
}

static struct peer *peer_of(const struct snib__link *link)
{
    return link->node->addressed ? peer(link->node->address.host) : peer("m0");
}

/* One command, taken from the front of a link's output: up to 4 words of it. */
static bool next_command(struct snib__buf *out, char words[4][64])
{
    char *at = out->data + out->head, *end = out->data + out->len;
    if (at == end)
        return false;
    assert_int_equal(*at, '*');
    long n = strtol(at + 1, &at, 10);
    at += 2;
    memset(words, 0, 4 * sizeof words[0]);
    for (long i = 0; i < n; i++) {
        long length = strtol(at + 1, &at, 10);
        at += 2;
        if (i < 4)
            snprintf(words[i], sizeof words[i], "%.*s", (int)length, at);
        at += length + 2;
    }
    snib__buf_consume(out, (size_t)(at - out->data - (long)out->head));
    return true;
}

static const char *bulk(char *out, const char *text)
{
    sprintf(out, "$%d\r\n%.100s\r\n", (int)strlen(text), text);
    return out;
}

static void sentinel_says(struct peer *one, const char *what, const char *service, char *out)
{
    bool known = one->master && strcmp(service, "main") == 0;
    one->asked++;
    if (strcmp(what, "GET-MASTER-ADDR-BY-NAME") == 0) {
        if (known)
            sprintf(out, "*2\r\n$2\r\n%s\r\n$4\r\n6379\r\n", one->master);
        else
            sprintf(out, "*-1\r\n");
    } else if (!known) {
        sprintf(out, "-ERR No such master with that name\r\n");
    } else if (strcmp(what, "MASTER") == 0) {
        char number[16], epoch[32];
        sprintf(number, "%d", one->epoch);
        sprintf(out,
                "*6\r\n$4\r\nname\r\n$4\r\nmain\r\n$5\r\nflags\r\n$6\r\nmaster\r\n"
                "$12\r\nconfig-epoch\r\n%s",
                bulk(epoch, number));
    } else {
        out += sprintf(out, "*%d\r\n", (int)strlen(one->others) / 2);
        for (const char *other = one->others; *other; other += 2)
            out += sprintf(out,
                           "*6\r\n$4\r\nname\r\n$1\r\nx\r\n$2\r\nip\r\n$2\r\n%.2s\r\n$4\r\nport\r\n"
                           "$5\r\n26379\r\n",
                           other);
    }
}

static void script_says(struct peer *one, const char *sha1, char *out)
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

static void peer_says(struct peer *one, const struct snib__link *link, char words[4][64], char *out)
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
        sprintf(text, "redis_mode:%s\r\nrun_id:%s\r\n", one->mode, one->host);
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

/* Do what one link wishes, and answer what it has sent.  True: something happened. */
static bool serve(struct snib__engine *engine, struct snib__link *link)
{
    char words[4][64], reply[4096];
    int wish = snib__engine_take_wish(engine, link);
    struct peer *one = peer_of(link);
    if (wish == SNIB__WISH_CONNECT) {
        one->connects++;
        if (one->state == DOWN)
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, ECONNREFUSED, now);
        else
            snib__engine_link_up(engine, link, now);
    }
    if (link->conn.state == SNIB__CONN_DOWN || one->state != UP)
        return wish != SNIB__WISH_NOTHING;
    size_t size = snib__buf_size(&link->conn.out);
    if (!next_command(&link->conn.out, words))
        return wish != SNIB__WISH_NOTHING;
    one->bytes += size - snib__buf_size(&link->conn.out);
    peer_says(one, link, words, reply);
    snib__engine_input(engine, link, reply, strlen(reply), now);
    return true;
}

static void settle(struct snib__engine *engine)
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

static void pass(struct snib__engine *engine, snib__time time)
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

/* How long until something is so; fails when it does not become so in time. */
#define PASS_UNTIL(engine, condition, limit)                                                       \
    do {                                                                                           \
        for (snib__time end = now + (limit); !(condition);) {                                      \
            if (now >= end)                                                                        \
                fail_msg("not within %d ms: %s", (int)((limit) / SNIB__MS), #condition);           \
            pass(engine, SNIB__MS);                                                                \
        }                                                                                          \
    } while (0)

/* The server goes, with all its connections. */
static void crash(struct snib__engine *engine, const char *host)
{
    peer(host)->state = DOWN;
    for (struct snib__link *link = engine->links; link; link = link->next)
        if (peer_of(link) == peer(host) &&
            (link->conn.state != SNIB__CONN_DOWN || link->connecting))
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, 0, now);
}

static struct snib__address seeds[3];

static struct snib__engine *world(int sentinels)
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

static bool at(const struct snib__engine *engine, const char *host)
{
    return engine->home->addressed && strcmp(engine->home->address.host, host) == 0 &&
           snib__node_ready(engine->home);
}

static struct snib__hold *held(struct snib__engine *engine, const char *name, snib__time lease)
{
    int32_t code;
    struct snib__acquire how = {.wait = SNIB__NEVER, .lease = lease};
    struct snib__op *op =
        snib__engine_acquire(engine, gate(engine, SNIB_MUTEX, name), &how, now, &code);
    PASS_UNTIL(engine, op->done, 5 * SECOND);
    return acquired(engine, op);
}

static void released(struct snib__engine *engine, struct snib__hold *hold, int32_t want)
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

static struct snib__link *ear_at(const struct snib__engine *engine, const char *host)
{
    for (struct snib__link *link = engine->links; link; link = link->next)
        if (link->node->kind == SNIB__A_SENTINEL && peer_of(link) == peer(host) &&
            link->kind == SNIB__PUBSUB && link->conn.state == SNIB__CONN_READY)
            return link;
    return NULL;
}

static void say_on(struct snib__engine *engine, const char *host, const char *channel,
                   const char *text)
{
    char message[400], one[128], other[128];
    struct snib__link *link = ear_at(engine, host);
    if (!link)
        fail_msg("%s is not listened to", host);
    sprintf(message, "*3\r\n$7\r\nmessage\r\n%s%s", bulk(one, channel), bulk(other, text));
    snib__engine_input(engine, link, message, strlen(message), now);
}

static void say_switch(struct snib__engine *engine, const char *host, const char *text)
{
    say_on(engine, host, "+switch-master", text);
}

/* How many are listened to. */
static int ears(const struct snib__engine *engine)
{
    int n = 0;
    for (int i = 0; i < peers_n; i++)
        n += peers[i].host[0] == 's' && ear_at(engine, peers[i].host) != NULL;
    return n;
}

static void tell_all(int sentinels, const char *master, int epoch)
{
    for (int i = 0; i < sentinels; i++) {
        char host[3] = {'s', (char)('0' + i), 0};
        peer(host)->master = master;
        peer(host)->epoch = epoch;
    }
}

static void ends_with(struct snib__engine *engine, int32_t code, snib__time limit,
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

/* ---- Finding the master ---------------------------------------------------------------------------- */

static void each_sentinel_is_asked_once_and_then_in_turn(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    pass(engine, 60 * SECOND);
    assert_int_equal(peer("s0")->connects + peer("s1")->connects + peer("s2")->connects, 0);
    struct snib__hold *hold = held(engine, "m", 0);
    assert_true(at(engine, "m1"));
    assert_true(now < START + 60 * SECOND + 20 * SNIB__MS);
    pass(engine, 100 * SNIB__MS);
    for (int i = 0; i < 3; i++)
        assert_int_equal(peers[i].asked, 3); /* the master, where it is, the other sentinels */
    pass(engine, 30 * SECOND);
    int asked = (peer("s0")->asked + peer("s1")->asked + peer("s2")->asked - 9) / 2;
    assert_in_range(asked, 25, 31);
    for (int i = 0; i < 3; i++)
        assert_in_range((peers[i].asked - 3) / 2, 8, 11);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

static void idle_client_is_silent(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    released(engine, held(engine, "m", 0), SNIB_OK);
    pass(engine, 40 * SECOND);
    uint64_t bytes = 0;
    for (int i = 0; i < peers_n; i++)
        bytes += peers[i].bytes;
    pass(engine, 3600 * SECOND);
    for (int i = 0; i < peers_n; i++)
        bytes -= peers[i].bytes;
    assert_int_equal(bytes, 0);
    /* it begins to listen and to ask again with the next operation */
    tell_all(3, "m2", 2);
    struct snib__hold *hold = held(engine, "m", 0);
    PASS_UNTIL(engine, at(engine, "m2"), 20 * SNIB__MS);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* Whoever is dead or dumb: the next one is asked. */
static void dead_and_dumb_sentinels_are_passed_over(void **state)
{
    (void)state;
    for (int good = 0; good < 3; good++)
        for (int how = 0; how < 4; how++) {
            struct snib__engine *engine = world(3);
            for (int i = 0; i < 3; i++) {
                if (i == good)
                    continue;
                peers[i].state = how == 0 ? DOWN : how == 1 ? SILENT : UP;
                if (how == 2)
                    peers[i].master = NULL;
                if (how == 3)
                    peers[i].locked = "-NOAUTH Authentication required.\r\n";
            }
            struct snib__hold *hold = held(engine, "m", 0);
            assert_true(now < START + (how == 1 ? 520 : 50) * SNIB__MS);
            pass(engine, 60 * SECOND);
            for (int i = 0; i < 3; i++)
                assert_true(i == good || peers[i].connects < 60);
            released(engine, hold, SNIB_OK);
            snib__engine_free(engine);
        }
}

static void no_sentinel_answers(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    for (int i = 0; i < 3; i++)
        peers[i].state = DOWN;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    PASS_UNTIL(engine, op->done, 6 * SECOND);
    assert_in_range(now - START, 4900 * SNIB__MS, 5100 * SNIB__MS);
    assert_int_equal(op->code, SNIB_ECONNECT);
    assert_int_equal(op->os_error, ECONNREFUSED);
    assert_true(op->where && strncmp(op->where, "sentinel s", 10) == 0);
    int connects = 0;
    for (int i = 0; i < 3; i++)
        connects += peers[i].connects;
    assert_in_range(connects, 9, 60);
    snib__op_free(engine, snib__engine_take_done(engine));
    /* one comes back: the next operation finds the master */
    peer("s1")->state = UP;
    released(engine, held(engine, "m", 0), SNIB_OK);
    snib__engine_free(engine);
}

static void what_will_not_change_is_told_at_once(void **state)
{
    (void)state;
    static const char noauth[] = "-NOAUTH Authentication required.\r\n";
    struct snib__engine *engine = world(3);
    tell_all(3, NULL, 0);
    ends_with(engine, SNIB_ETOPOLOGY, 20 * SNIB__MS, "no sentinel knows a service \"main\"", NULL);
    ends_with(engine, SNIB_ETOPOLOGY, 300 * SNIB__MS, "no sentinel knows a service \"main\"", NULL);
    tell_all(3, "m1", 1);
    released(engine, held(engine, "m", 0), SNIB_OK);
    snib__engine_free(engine);

    engine = world(2); /* one is dead, the other does not know it */
    peer("s0")->state = DOWN;
    peer("s1")->master = NULL;
    ends_with(engine, SNIB_ETOPOLOGY, 20 * SNIB__MS, "1 of 2 answered", NULL);
    snib__engine_free(engine);

    engine = world(1);
    peer("s0")->locked = noauth;
    ends_with(engine, SNIB_EAUTH, 20 * SNIB__MS, "NOAUTH", "sentinel s0:26379");
    snib__engine_free(engine);

    for (int hidden = 0; hidden < 2; hidden++) { /* a server in the sentinel's place */
        engine = world(1);
        peer("s0")->server = true;
        peer("s0")->mode = hidden ? NULL : "standalone";
        ends_with(engine, SNIB_ETOPOLOGY, 20 * SNIB__MS, "s0:26379 is no sentinel of \"main\"",
                  "sentinel s0:26379");
        snib__engine_free(engine);
    }
}

/* The address of a sentinel, or of a cluster's node, by a URL that names one server. */
static void server_that_is_something_else(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    peers_n = 0;
    peer("m0")->mode = "sentinel";
    engine->config.login.database = 3; /* SELECT is refused, and says less */
    ends_with(engine, SNIB_ETOPOLOGY, 20 * SNIB__MS, "is a sentinel: take redis+sentinel://", NULL);
    snib__engine_free(engine);
}

/* ---- Following it ---------------------------------------------------------------------------------- */

/* The master dies: the hold is at risk, and valid again once the next one has confirmed it. */
static void failover_is_followed(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++)
        for (int fixed = 0; fixed < 2; fixed++) {
            struct snib__engine *engine = world(3);
            struct snib__hold *hold = held(engine, "m", fixed ? 20 * SECOND : 0);
            peer("m2")->has = kept;
            pass(engine, 3 * SECOND);
            crash(engine, "m1");
            pass(engine, 2 * SECOND);
            assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_AT_RISK);
            tell_all(3, "m2", 2);
            PASS_UNTIL(engine, at(engine, "m2"), 300 * SNIB__MS);
            pass(engine, 20 * SNIB__MS);
            assert_int_equal(peer("m2")->renewals, 1);
            if (kept) {
                assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
                released(engine, hold, SNIB_OK);
            } else {
                assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_LOST);
                assert_int_equal(snib__hold_reason(hold, now), SNIB_REASON_FAILOVER);
                assert_int_equal(engine->stats.lost_failover, 1);
                released(engine, hold, SNIB_LOST);
            }
            snib__engine_free(engine);
        }
}

/* Once the new master has confirmed a hold, what takes it away is no failover. */
static void confirmed_hold_is_lost_for_another_reason(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    crash(engine, "m1");
    tell_all(3, "m2", 2);
    PASS_UNTIL(engine, peer("m2")->renewals == 1, SECOND);
    peer("m2")->has = false;
    pass(engine, 12 * SECOND);
    assert_int_equal(snib__hold_reason(hold, now), SNIB_REASON_DELETED);
    released(engine, hold, SNIB_LOST);
    /* and a release that finds nothing at the new master says so */
    peer("m2")->has = true;
    hold = held(engine, "m", 0);
    peer("m3")->has = false;
    peer("m3")->state = SILENT;
    crash(engine, "m2");
    tell_all(3, "m3", 3);
    pass(engine, SECOND);
    int32_t code;
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    peer("m3")->state = UP;
    PASS_UNTIL(engine, op->done, 5 * SECOND);
    assert_int_equal(op->code, SNIB_LOST);
    assert_int_equal(op->reason, SNIB_REASON_FAILOVER);
    snib__engine_free(engine);
}

/* A release that was begun before anybody knew of the failover, too. */
static void release_that_waits_for_a_master(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    crash(engine, "m1");
    pass(engine, 100 * SNIB__MS);
    struct snib__op *op = snib__engine_release(engine, hold, now, &code);
    pass(engine, 100 * SNIB__MS);
    assert_false(op->done);
    peer("m2")->has = false;
    tell_all(3, "m2", 2);
    PASS_UNTIL(engine, op->done, 2 * SECOND);
    assert_int_equal(op->code, SNIB_LOST);
    assert_int_equal(op->reason, SNIB_REASON_FAILOVER);
    snib__engine_free(engine);
}

/* A sentinel that fails is shunned, the longer the more often; one answer, and all is forgotten. */
static void sentinel_that_comes_back(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    crash(engine, "s0");
    pass(engine, 100 * SECOND);
    int asked = peer("s0")->asked;
    peer("s0")->state = UP;
    PASS_UNTIL(engine, peer("s0")->asked > asked, 35 * SECOND);
    int connects = peer("s0")->connects;
    crash(engine, "s0");
    PASS_UNTIL(engine, peer("s0")->connects > connects, 8 * SECOND);
    asked = peer("s0")->asked;
    peer("s0")->state = UP;
    PASS_UNTIL(engine, peer("s0")->asked > asked, 8 * SECOND);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* What was given back just before is given back at the next master, too, which may not have heard of it; what was
 * given back long ago is not, and nothing is twice. */
static void what_was_given_back_is_given_back_again(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    released(engine, held(engine, "long ago", 0), SNIB_OK);
    pass(engine, 11 * SECOND);
    for (int i = 0; i < 5; i++) {
        char name[8];
        sprintf(name, "n%d", i);
        released(engine, held(engine, name, 0), SNIB_OK);
    }
    assert_int_equal(peer("m1")->releases, 6);
    peer("m2")->has = false; /* what it is asked to give back */
    tell_all(3, "m2", 2);
    crash(engine, "m1");
    PASS_UNTIL(engine, at(engine, "m2"), 2 * SECOND);
    pass(engine, SECOND);
    assert_int_equal(peer("m2")->releases, 5);
    crash(engine, "m2");
    tell_all(3, "m3", 3);
    PASS_UNTIL(engine, peer("m2")->releases == 5, SECOND);
    struct snib__hold *other = held(engine, "k", 0);
    assert_true(at(engine, "m3"));
    pass(engine, SECOND);
    assert_int_equal(peer("m3")->releases, 0);
    released(engine, other, SNIB_OK);
    snib__hold_drop(engine, hold, now);
    snib__engine_free(engine);
}

/* A master that answers is left for a higher epoch, and for nothing else that a poll finds. */
static void master_that_answers_is_left_for_a_higher_epoch(void **state)
{
    (void)state;
    for (int epoch = 4; epoch <= 6; epoch++) {
        struct snib__engine *engine = world(3);
        tell_all(3, "m1", 5);
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, 2 * SECOND);
        peer("s1")->master = "m2"; /* one of them */
        peer("s1")->epoch = epoch;
        pass(engine, 10 * SECOND);
        assert_true(at(engine, epoch > 5 ? "m2" : "m1"));
        assert_int_equal(peer("m2")->connects > 0, epoch > 5);
        released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* While it does not answer, too, what is below the epoch that was seen is not believed. */
static void stale_sentinels_are_not_believed(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    tell_all(3, "m2", 5);
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, SECOND);
    peer("s0")->master = "m1"; /* it was away, and begins with what it knew */
    peer("s0")->epoch = 4;
    crash(engine, "m2");
    pass(engine, 5 * SECOND);
    assert_int_equal(peer("m1")->connects, 0);
    assert_string_equal(engine->home->address.host, "m2");
    /* An answer of the same epoch is believed while it is down: the master may have two names. */
    peer("s1")->master = "m3";
    PASS_UNTIL(engine, at(engine, "m3"), 2 * SECOND);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* Sentinels that were set up anew count their epochs from 0: if most of them agree they are believed. */
static void epochs_may_begin_anew(void **state)
{
    (void)state;
    for (int anew = 1; anew <= 4; anew++) {
        int all = anew < 4 ? 3 : 2; /* of two one is not more than half */
        struct snib__engine *engine = world(all);
        tell_all(all, "m1", 9);
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, SECOND);
        for (int i = 0; i < all; i++)
            peers[i].state = DOWN;
        for (int i = 0; i < all; i++)
            crash(engine, peers[i].host);
        for (int i = 0; i < (all == 2 ? 1 : anew); i++) {
            peers[i].state = UP;
            peers[i].master = "m2";
            peers[i].epoch = 0;
        }
        pass(engine, 5 * SECOND);
        assert_true(at(engine, "m1")); /* it answers */
        crash(engine, "m1");
        pass(engine, 5 * SECOND);
        assert_int_equal(at(engine, "m2"), anew == 2 || anew == 3);
        snib__hold_drop(engine, hold, now);
        snib__engine_free(engine);
    }
}

/* ---- +switch-master -------------------------------------------------------------------------------- */

/* A sentinel that lets nobody subscribe is told of once, and the others are listened to. */
static void refused_subscription_is_told(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    snib__engine_log_level(engine, SNIB_LOG_WARNING);
    peer("s1")->no_subscribing = true;
    peer("s2")->no_luxury = true;
    struct snib__hold *hold = held(engine, "m", 0);
    const char *text;
    int32_t level;
    int told = 0, others = 0;
    pass(engine, 5 * SECOND);
    while ((text = snib__engine_take_log(engine, &level))) {
        bool refused = strstr(text, "refused the subscription") != NULL;
        told += refused && level == SNIB_LOG_WARNING && strstr(text, "s1");
        others += refused && !strstr(text, "s1");
    }
    assert_int_equal(told, 1);
    assert_int_equal(others, 0);
    assert_int_equal(peer("s0")->subscribed, 1);
    assert_int_equal(peer("s2")->subscribed, 1);
    snib__hold_drop(engine, hold, now);
    snib__engine_free(engine);
}

static void switch_is_heard(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) { /* whoever says it */
        struct snib__engine *engine = world(3);
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, 100 * SNIB__MS);
        assert_int_equal(ears(engine), 3);
        const char *ear = peers[i].host;
        assert_int_equal(peer(ear)->subscribed, 1);
        /* of another service, or of one whose name begins alike: nothing is asked */
        pass(engine, 10 * SNIB__MS);
        int asked = peer(ear)->asked;
        say_switch(engine, ear, "other m1 6379 m2 6379");
        say_switch(engine, ear, "main2 m1 6379 m2 6379");
        say_switch(engine, ear, "main");
        say_on(engine, ear, "+promoted-slave", "slave main 10.0.0.2 6379 @ other m1 6379");
        say_on(engine, ear, "+promoted-slave", "main main 10.0.0.2 6379 @ main");
        say_on(engine, ear, "+promoted-slave", "main m1 6379 m2 6379");
        settle(engine);
        assert_int_equal(peer(ear)->asked, asked);
        /* the message alone is not believed */
        say_switch(engine, ear, "main m1 6379 m2 6379");
        settle(engine);
        assert_int_equal(peer(ear)->asked, asked + 2);
        assert_true(at(engine, "m1"));
        /* confirmed it is, also with the same epoch: the address of the master has changed */
        peer(ear)->master = "m2";
        say_switch(engine, ear, "main m1 6379 m2 6379");
        PASS_UNTIL(engine, at(engine, "m2"), 2 * SNIB__MS);
        tell_all(3, "m3", 2);
        say_switch(engine, ear, "main m2 6379 m3 6379");
        PASS_UNTIL(engine, at(engine, "m3"), 2 * SNIB__MS);
        released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* The one that leads the failover tells the new address as soon as it has promoted it; the others follow later. */
static void promotion_is_heard(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 100 * SNIB__MS);
    peer("s1")->master = "m2";
    peer("s1")->epoch = 2;
    assert_true(peer("s1")->promotions);
    say_on(engine, "s1", "+promoted-slave", "slave m2:6379 m2 6379 @ main m1 6379");
    PASS_UNTIL(engine, at(engine, "m2"), 2 * SNIB__MS);
    pass(engine, 5 * SECOND); /* of the others, who tell of the old epoch, nobody is believed */
    assert_true(at(engine, "m2"));
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* Those that have gone are tried again, with pauses that grow; who is back is listened to soon. */
static void sentinels_are_listened_to_again(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 100 * SNIB__MS);
    for (int i = 0; i < 3; i++) {
        crash(engine, peers[i].host);
        pass(engine, SECOND);
        assert_int_equal(ears(engine), 2 - i);
    }
    pass(engine, 5 * SECOND);
    int connects = 0;
    for (int i = 0; i < 3; i++)
        connects += peers[i].connects;
    assert_true(connects < 80);
    peer("s1")->state = UP;
    PASS_UNTIL(engine, ear_at(engine, "s1") != NULL, 17 * SECOND);
    assert_int_equal(ears(engine), 1);
    assert_true(at(engine, "m1")); /* all the time */
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* Of many sentinels five are listened to, and another one instead of one that goes. */
static void not_more_than_five_are_listened_to(void **state)
{
    (void)state;
    struct snib__engine *engine = world(1);
    peer("s0")->others = "s1s2s3s4s5s6s7";
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, 5 * SECOND);
    assert_int_equal(ears(engine), 5);
    static const char *const first[] = {"s0", "s1", "s2"};
    for (int i = 0; i < 3; i++) {
        crash(engine, first[i]);
        PASS_UNTIL(engine, ears(engine) == 5, SECOND);
    }
    crash(engine, "s3");
    pass(engine, 2 * SECOND);
    assert_int_equal(ears(engine), 4);
    released(engine, hold, SNIB_OK);
    pass(engine, 5 * SECOND); /* an idle client keeps them, and is silent */
    assert_int_equal(ears(engine), 4);
    snib__engine_free(engine);
}

/* The right to subscribe is missing at some, then at all: the others, then polls alone. */
static void refused_subscription(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    for (int i = 0; i < 2; i++)
        peers[i].no_subscribing = true;
    struct snib__hold *hold = held(engine, "m", 0);
    PASS_UNTIL(engine, peer("s2")->subscribed == 1, SECOND);
    assert_int_equal(engine->stats.polling, 0);
    peer("s2")->no_subscribing = true;
    crash(engine, "s2");
    peer("s2")->state = UP;
    pass(engine, 10 * SECOND);
    tell_all(3, "m2", 2);
    PASS_UNTIL(engine, at(engine, "m2"), 1200 * SNIB__MS);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* ---- What else happens to a master ----------------------------------------------------------------- */

static void demoted_master_has_them_asked_at_once(void **state)
{
    (void)state;
    for (int hidden = 0; hidden < 2; hidden++) {
        struct snib__engine *engine = world(3);
        struct snib__hold *hold = held(engine, "m", 0);
        pass(engine, 1500 * SNIB__MS);
        tell_all(3, "m2", 2);
        peer("m1")->refuses = true;
        peer("m1")->replica = true;
        peer("m1")->mode = hidden ? NULL : "standalone";
        struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "n"), 0);
        PASS_UNTIL(engine, op->done, 100 * SNIB__MS);
        assert_int_equal(op->code, SNIB_OK);
        assert_true(at(engine, "m2"));
        assert_ptr_equal(snib__engine_take_done(engine), op);
        released(engine, op->hold, SNIB_OK);
        snib__op_free(engine, op);
        released(engine, hold, SNIB_OK);
        snib__engine_free(engine);
    }
}

/* What the sentinels tell is not yet a master: it is tried, and they are asked, until it is. */
static void promoted_server_proves_itself(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    peer("m2")->replica = true;
    crash(engine, "m1");
    tell_all(3, "m2", 2);
    pass(engine, 3 * SECOND);
    assert_int_equal(peer("m2")->renewals, 0);
    assert_in_range(peer("m2")->connects, 2, 40);
    peer("m2")->replica = false;
    PASS_UNTIL(engine, peer("m2")->renewals == 1, 2500 * SNIB__MS);
    assert_int_equal(snib__hold_state(engine, hold, now), SNIB_HOLD_VALID);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

/* A request that was on its way when the master died goes to the next one. */
static void requests_go_to_the_next_master(void **state)
{
    (void)state;
    struct snib__engine *engine = world(3);
    struct snib__hold *hold = held(engine, "m", 0);
    peer("m1")->state = SILENT;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "n"), 0);
    pass(engine, SNIB__MS);
    assert_int_equal(on_the_way(engine), 1);
    tell_all(3, "m2", 2);
    PASS_UNTIL(engine, op->done, 1200 * SNIB__MS);
    assert_int_equal(op->code, SNIB_OK);
    assert_true(at(engine, "m2"));
    snib__hold_drop(engine, hold, now);
    snib__engine_free(engine);
}

/* ---- Sentinels that the others tell of ------------------------------------------------------------- */

static void others_are_learnt(void **state)
{
    (void)state;
    struct snib__engine *engine = world(1);
    for (int i = 3; i < 6; i++)
        peer((char[3]){'s', (char)('0' + i), 0});
    peer("s0")->others = "s3s4s5s0";
    peer("s3")->others = "s4s5";
    struct snib__hold *hold = held(engine, "m", 0);
    pass(engine, SECOND);
    for (int i = 3; i < 6; i++)
        assert_true(peer((char[3]){'s', (char)('0' + i), 0})->asked >= 3);
    crash(engine, "s0");
    crash(engine, "m1");
    for (int i = 3; i < 6; i++) {
        peer((char[3]){'s', (char)('0' + i), 0})->master = "m2";
        peer((char[3]){'s', (char)('0' + i), 0})->epoch = 2;
    }
    PASS_UNTIL(engine, at(engine, "m2"), SECOND);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);

    engine = world(1); /* but not without end */
    peer("s0")->others = "sasbscsdsesfsgshsisjskslsmsnsospsqsrssstsusvswsxsysz";
    hold = held(engine, "m", 0);
    pass(engine, 20 * SECOND);
    int nodes = 0;
    for (const struct snib__node *node = engine->nodes; node; node = node->next)
        nodes += node->kind == SNIB__A_SENTINEL;
    assert_int_equal(nodes, 16);
    released(engine, hold, SNIB_OK);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sentinel_is_asked_once_and_then_in_turn),
        cmocka_unit_test(idle_client_is_silent),
        cmocka_unit_test(dead_and_dumb_sentinels_are_passed_over),
        cmocka_unit_test(no_sentinel_answers),
        cmocka_unit_test(what_will_not_change_is_told_at_once),
        cmocka_unit_test(server_that_is_something_else),
        cmocka_unit_test(failover_is_followed),
        cmocka_unit_test(confirmed_hold_is_lost_for_another_reason),
        cmocka_unit_test(release_that_waits_for_a_master),
        cmocka_unit_test(sentinel_that_comes_back),
        cmocka_unit_test(what_was_given_back_is_given_back_again),
        cmocka_unit_test(master_that_answers_is_left_for_a_higher_epoch),
        cmocka_unit_test(stale_sentinels_are_not_believed),
        cmocka_unit_test(epochs_may_begin_anew),
        cmocka_unit_test(refused_subscription_is_told),
        cmocka_unit_test(switch_is_heard),
        cmocka_unit_test(promotion_is_heard),
        cmocka_unit_test(sentinels_are_listened_to_again),
        cmocka_unit_test(not_more_than_five_are_listened_to),
        cmocka_unit_test(refused_subscription),
        cmocka_unit_test(demoted_master_has_them_asked_at_once),
        cmocka_unit_test(promoted_server_proves_itself),
        cmocka_unit_test(requests_go_to_the_next_master),
        cmocka_unit_test(others_are_learnt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
