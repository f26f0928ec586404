/* nodes.h - a cluster for an engine in virtual time: nodes that answer as the test wants. */
#ifndef SNIB_UNIT_NODES_H
#define SNIB_UNIT_NODES_H

#include "fed.h"

#include "engine/ask.h"
#include "engine/cluster.h"

#include <ctype.h>
#include <stdlib.h>

/* One node; its host is its name, or begins with it: "a", "b", ... at port 6379. */
struct peer {
    char map[600]; /* its reply to CLUSTER SLOTS; "": the common one */
    int epoch;     /* 0: the common one; negative: none yet, as of a node that was reset */
    int run;       /* counts its restarts, after which it is another server */
    bool down;
    bool single; /* not a node of a cluster */
    bool cut;    /* it says that the cluster is down, but not to scripts */
    bool alone;  /* it has no replica */
    bool hangs;  /* connecting to it hangs */
    bool silent; /* it holds all replies back */
    bool mute;   /* it holds back those on its pub/sub link */
    const char
        *says; /* to scripts, instead of a grant: an error, or a reply without its last line end */
    int times; /* uses of `says` left; -1: always */
    const char *then;                               /* its reply to all later scripts */
    int scripts, asked, connects, asking;           /* what it has seen */
    bool asking_on;                                 /* ASKING came just before */
    int renewals, renewed_keys, releases, lease_ms; /* of the last renewal */
    int read_releases;
    const char *channel;  /* a channel that another node serves; "": all; */
    const char *refusal;  /* and its reply to that */
    int listened;         /* subscriptions requested */
    int probed;           /* queries for its epoch */
    int identities;       /* times that a client said who it is */
    int kills;            /* connections that were to be ended */
    const char *own;      /* one of the client's own commands ... */
    const char *own_says; /* ... is answered with this error */
    char last[600];       /* the last script with all its arguments, as sent */
};

static struct peer peers[8];
static char common[600];
static int common_epoch;

static inline struct peer *peer_of(const struct snib__link *link)
{
    const struct snib__address *address = snib__link_address(link);
    assert_non_null(address);
    assert_true(address->host[0] >= 'a' && address->host[0] <= 'h');
    return &peers[address->host[0] - 'a'];
}

/* A script's name by its hash. */
static inline const char *script_name(const char *sha1)
{
    for (int i = 0; i < SNIB__SCRIPT_COUNT * 3; i++)
        if (strcmp(sha1, snib__script_of(i / 3, i % 3)->sha1) == 0)
            return snib__script_texts[i / 3].name;
    fail_msg("no script has the hash %s", sha1);
    return "";
}

/* What every script says, each in its own form: granted, released, renewed. */
static inline const char *script_agrees(const char *name)
{
    return strstr(name, "_renew")              ? "*0"
           : strcmp(name, "fair_acquire") == 0 ? "$1\r\n0"
           : strcmp(name, "fair_release") == 0 ? "*5\r\n:1\r\n:0\r\n:3000\r\n$1\r\n0\r\n:1"
           : strstr(name, "_release") || strstr(name, "_transfer") ? ":1"
                                                                   : "$-1";
}

/* Whether a script can say that: its replies have a form of their own.  An error can come from any. */
static inline bool script_can_say(const char *name, const char *says)
{
    bool nil = strncmp(says, "$-1", 3) == 0, list = says[0] == '*';
    if (!strchr(":$*", says[0]))
        return true;
    if (strstr(name, "_renew"))
        return list && (says[1] - '0') % 2 == 0;
    if (strcmp(name, "fair_release") == 0)
        return list && says[1] == '5';
    if (strcmp(name, "fair_acquire") == 0)
        return list ? says[1] == '3' : says[0] == '$' && !nil;
    if (strcmp(name, "board") == 0)
        return says[0] == '$';
    if (strstr(name, "_release") || strstr(name, "_transfer"))
        return says[0] == ':';
    return says[0] == ':' || nil || (list && strncmp(name, "mutex", 5) != 0);
}

static inline void script_says(struct peer *one, char words[WORDS][96], char *out)
{
    const char *name = script_name(words[1]), *says = NULL;
    bool renewal = strcmp(name, "mutex_renew") == 0;
    one->scripts++;
    one->releases += strcmp(name, "mutex_release") == 0;
    one->read_releases += strcmp(name, "read_release") == 0;
    one->renewals += renewal;
    one->renewed_keys += renewal ? atoi(words[2]) : 0;
    one->lease_ms = renewal && atoi(words[2]) == 1 ? atoi(words[4]) : one->lease_ms;
    one->asking += one->asking_on;
    if (one->says && one->times != 0) {
        one->times -= one->times > 0;
        says = one->says;
    } else {
        says = one->then;
    }
    if (!says || !script_can_say(name, says))
        says = script_agrees(name);
    sprintf(out, strchr(":$*", says[0]) ? "%s\r\n" : "-%s\r\n", says);
}

/* A subscription to a channel: one of the node's own, or another's. */
static inline void channel_says(struct peer *one, char words[WORDS][96], char *out)
{
    char verb[16];
    for (size_t i = 0; i <= strlen(words[0]); i++)
        verb[i] = (char)tolower(words[0][i]);
    one->listened++;
    if (one->channel && (!one->channel[0] || strcmp(one->channel, words[1]) == 0) &&
        !strstr(verb, "unsub"))
        sprintf(out, "-%s\r\n", one->refusal);
    else
        sprintf(out, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n:1\r\n", strlen(verb), verb,
                strlen(words[1]), words[1]);
}

static inline void peer_says(struct peer *one, char words[WORDS][96], char *out)
{
    char text[700];
    bool asking = one->asking_on;
    one->identities += strcmp(words[0], "SET") == 0;
    one->kills += strcmp(words[0], "CLIENT") == 0 && strcmp(words[1], "KILL") == 0;
    if (one->own && strcmp(words[0], one->own) == 0) {
        one->asked++;
        sprintf(out, "-%s\r\n", one->own_says);
    } else if (strcmp(words[0], "CLUSTER") == 0 && strcmp(words[1], "INFO") == 0) {
        one->probed++;
        sprintf(text, "cluster_state:%s\r\ncluster_current_epoch:%d\r\n", one->cut ? "fail" : "ok",
                one->epoch < 0 ? 0
                : one->epoch   ? one->epoch
                               : common_epoch);
        sprintf(out, "$%d\r\n%s\r\n", (int)strlen(text), text);
    } else if (strcmp(words[0], "CLUSTER") == 0) {
        one->asked++;
        strcpy(out, one->map[0] ? one->map : common);
    } else if (strcmp(words[0], "EVALSHA") == 0) {
        script_says(one, words, out);
    } else if (strstr(words[0], "SUBSCRIBE")) {
        channel_says(one, words, out);
    } else if (strcmp(words[0], "SCRIPT") == 0) {
        out[0] = 0; /* by the caller, which knows the text's hash */
    } else if (strcmp(words[0], "CLIENT") == 0 && strcmp(words[1], "ID") == 0) {
        sprintf(out, ":7\r\n");
    } else if (strcmp(words[0], "WAIT") == 0) {
        sprintf(out, ":%d\r\n", !one->alone);
    } else if (strcmp(words[0], "INFO") == 0) {
        sprintf(text, "run_id:%c%d\r\nredis_mode:%s\r\nconnected_slaves:%d\r\n",
                'a' + (int)(one - peers), one->run, one->single ? "standalone" : "cluster",
                !one->alone);
        sprintf(out, "$%d\r\n%s\r\n", (int)strlen(text), text);
    } else {
        sprintf(out, "+OK\r\n");
    }
    one->asking_on = strcmp(words[0], "ASKING") == 0 || (asking && !*out);
}

/* The hash of the script that is loaded, which the connection compares. */
static inline void loaded(struct snib__link *link, char *out)
{
    const struct snib__conn *conn = &link->conn;
    assert_int_equal(conn->ring[conn->ring_head].kind, CONN_LOAD);
    sprintf(out, "$40\r\n%s\r\n",
            snib__script_of(conn->ring[conn->ring_head].script, conn->publish)->sha1);
}

/* The next command unchanged, before it is taken; a script is kept. */
static inline void note_script(struct peer *one, const struct snib__buf *out)
{
    size_t n = snib__buf_size(out);
    const char *text = out->data + out->head;
    const char *next = n > 1 ? memmem(text + 1, n - 1, "\r\n*", 3) : NULL;
    n = next ? (size_t)(next + 2 - text) : n;
    if (n == 0 || !memmem(text, n, "EVALSHA", 7))
        return;
    assert_true(n < sizeof one->last);
    memset(one->last, 0, sizeof one->last);
    memcpy(one->last, text, n);
}

static inline bool serve_link(struct snib__engine *engine, struct snib__link *link)
{
    char words[WORDS][96], out[800];
    int wish = snib__engine_take_wish(engine, link);
    if (wish == SNIB__WISH_CONNECT) {
        struct peer *one = peer_of(link);
        one->connects++;
        if (one->hangs)
            return true;
        if (one->down)
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, 111, now);
        else
            snib__engine_link_up(engine, link, now);
        return true;
    }
    if (wish != SNIB__WISH_NOTHING || !link->node->addressed || peer_of(link)->down ||
        peer_of(link)->silent || (peer_of(link)->mute && link == &link->node->links[SNIB__PUBSUB]))
        return wish != SNIB__WISH_NOTHING;
    note_script(peer_of(link), snib__link_output(link));
    if (!next_command(snib__link_output(link), words))
        return false;
    peer_says(peer_of(link), words, out);
    if (!out[0])
        loaded(link, out);
    snib__engine_input(engine, link, out, strlen(out), now);
    return true;
}

/* Answer every request, at once. */
static inline void serve(struct snib__engine *engine)
{
    bool more = true;
    for (int i = 0; more; i++) {
        assert_true(i < 10000);
        more = false;
        for (struct snib__link *link = snib__engine_links(engine); link;
             link = snib__link_next(link))
            more = serve_link(engine, link) || more;
    }
}

static inline void pass(struct snib__engine *engine, snib__time until)
{
    serve(engine);
    while (now < until) {
        snib__time next = snib__engine_deadline(engine);
        now = next <= now ? now + SNIB__MS : next < until ? next : until;
        snib__engine_tick(engine, now);
        serve(engine);
    }
}

/* "a:0-8191 b:8192-16383" in the form of CLUSTER SLOTS. */
static inline void map_of(char out[600], const char *text)
{
    char host;
    int from, to, n = 0, used;
    char *at = out + sprintf(out, "*0\r\n");
    for (const char *word = text; sscanf(word, " %c:%d-%d%n", &host, &from, &to, &used) == 3;
         word += used, n++)
        at += sprintf(at, "*3\r\n:%d\r\n:%d\r\n*4\r\n$1\r\n%c\r\n:6379\r\n$2\r\nid\r\n*0\r\n", from,
                      to, host);
    out[1] = (char)('0' + n);
}

static struct snib__address seeds[2];

static inline struct snib__engine *begin_cluster(const char *map)
{
    memset(peers, 0, sizeof peers);
    map_of(common, map);
    common_epoch = 5;
    assert_true(snib__address_host(&seeds[0], "a", 1, 6379, false));
    assert_true(snib__address_host(&seeds[1], "b", 1, 6379, false));
    struct snib__config config = {.topology = SNIB__CLUSTER,
                                  .seeds = seeds,
                                  .seeds_n = 2,
                                  .publish = SNIB_PUBLISH_CLASSIC,
                                  .uuid = "00000000-0000-8000-8000-000000000001",
                                  .seed = 1,
                                  .first_number = 1,
                                  .lease = 30 * SECOND,
                                  .reply_timeout = 3 * SECOND,
                                  .patience = 5 * SECOND,
                                  .try_timeout = SECOND,
                                  .recheck = 3 * SECOND,
                                  .handover_max = 16,
                                  .ops_max = 10000};
    struct snib__engine *engine = snib__engine_new(&config);
    assert_non_null(engine);
    now = START;
    return engine;
}

/* The node goes down, with all its connections. */
static inline void crash(struct snib__engine *engine, char host)
{
    peers[host - 'a'].down = true;
    for (struct snib__link *link = snib__engine_links(engine); link; link = snib__link_next(link))
        if (link->node->addressed && link->node->address.host[0] == host &&
            (link->conn.state != SNIB__CONN_DOWN || link->connecting))
            snib__engine_link_down(engine, link, SNIB_EUNREACHABLE, 104, now);
}

static inline struct snib__hold *held(struct snib__engine *engine, const char *name)
{
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
    pass(engine, now + SECOND);
    return acquired(engine, op);
}

static inline char served_by(struct snib__engine *engine, const char *name)
{
    const struct snib__node *node = engine->route->serves(engine, name, strlen(name));
    return node->addressed ? node->address.host[0] : '-';
}

/* The node has just said that the cluster is down: another node's map may take its slots, although it answers. */
static inline void said_down(struct snib__engine *engine, char host)
{
    struct snib__cluster *c = engine->map;
    for (uint32_t i = 1; i < c->n; i++)
        if (c->member[i].node->address.host[0] == host)
            c->member[i].downs_at = now;
}

static inline void moved(char out[64], const char *name, char host)
{
    sprintf(out, "MOVED %d %c:6379", snib__slot(name, strlen(name)), host);
}

#endif
