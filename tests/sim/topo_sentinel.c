/* topo_sentinel.c - sentinels: each has its own view of the master, and hears of the others' views
 * late.
 *
 * A master that does not answer for a while is down for a sentinel; when enough of them agree, one
 * that reaches most of them promotes a replica, and the configuration's epoch rises.  It announces
 * that at once, the others once they have heard.  The old master and the other replicas are told to
 * follow when they are found.
 */
#include "topo.h"

#include "snib.h"

#include <stdio.h>
#include <string.h>

#define TICK (100 * SNIB__MS)
#define SERVICE "orders-db"
#define CHANNEL "+switch-master"
#define PROMOTED "+promoted-slave"

enum { TOPO_TICK = TOPO_ROUTE_OWN, TOPO_ELECTED, TOPO_SWITCHED };

static struct watcher {
    int master;
    uint64_t epoch;
    snib__time down_since; /* 0: it is up */
} watchers[TOPO_SERVERS];

static snib__time down_after; /* silence after which a master is down */
static snib__time next_try;   /* no failover begins before this */
static uint64_t last_epoch;
static char said[4096];

/* ---- Replies and messages ----------------------------------------------------------------------- */

static size_t add_bulk(size_t at, const char *text)
{
    return at + (size_t)snprintf(said + at, sizeof said - at, "$%zu\r\n%s\r\n", strlen(text), text);
}

static size_t add_fields(size_t at, const char *const fields[], size_t n)
{
    at += (size_t)snprintf(said + at, sizeof said - at, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        at = add_bulk(at, fields[i]);
    }
    return at;
}

static size_t say_master(const struct watcher *watcher)
{
    const struct snib__address *address = &topo.servers[watcher->master].address;
    char port[8], epoch[24], others[12];
    snprintf(port, sizeof port, "%d", address->port);
    snprintf(others, sizeof others, "%d", topo.server_count - topo.data_count - 1);
    snprintf(epoch, sizeof epoch, "%llu", (unsigned long long)watcher->epoch);
    const char *fields[] = {
        "name",   SERVICE,        "ip",  address->host,         "port", port, "runid", "", "flags",
        "master", "config-epoch", epoch, "num-other-sentinels", others};
    return add_fields(0, fields, sizeof fields / sizeof *fields);
}

static size_t say_address(const struct watcher *watcher)
{
    const struct snib__address *address = &topo.servers[watcher->master].address;
    char port[8];
    snprintf(port, sizeof port, "%d", address->port);
    const char *fields[] = {address->host, port};
    return add_fields(0, fields, 2);
}

static size_t say_others(int self)
{
    int others = topo.server_count - topo.data_count - 1;
    size_t at = (size_t)snprintf(said, sizeof said, "*%d\r\n", others);
    for (int i = topo.data_count; i < topo.server_count; i++) {
        const struct snib__address *address = &topo.servers[i].address;
        char port[8];
        snprintf(port, sizeof port, "%d", address->port);
        const char *fields[] = {"name", address->host, "ip",    address->host,
                                "port", port,          "flags", "sentinel"};
        at = i == self ? at : add_fields(at, fields, sizeof fields / sizeof *fields);
    }
    return at;
}

static bool is(model_text text, const char *word)
{
    return text.n == strlen(word) && strncasecmp(text.p, word, text.n) == 0;
}

static size_t say_sentinel(int self, const model_text *argv, size_t argc)
{
    bool known = argc == 3 && is(argv[2], SERVICE);
    if (argc == 3 && is(argv[1], "get-master-addr-by-name")) {
        return known ? say_address(&watchers[self])
                     : (size_t)snprintf(said, sizeof said, "*-1\r\n");
    }
    if (known && is(argv[1], "master")) {
        return say_master(&watchers[self]);
    }
    if (known && is(argv[1], "sentinels")) {
        return say_others(self);
    }
    return (size_t)snprintf(said, sizeof said, "-ERR No such master with that name\r\n");
}

static size_t say_info(int self)
{
    char text[256];
    snprintf(text, sizeof text,
             "# Server\r\nredis_version:7.0.15\r\nredis_mode:sentinel\r\nrun_id:%032x%08llx\r\n",
             self + 1, (unsigned long long)topo.servers[self].run);
    return add_bulk(0, text);
}

const char *sentinel_answer(int self, const model_text *argv, size_t argc, size_t *out_n)
{
    static const char *const own[] = {"ping", "subscribe", "unsubscribe", "auth", "client"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (is(argv[0], own[i])) {
            return NULL; /* as in every server */
        }
    }
    if (is(argv[0], "sentinel")) {
        *out_n = say_sentinel(self, argv, argc);
    } else if (is(argv[0], "info")) {
        *out_n = say_info(self);
    } else if (is(argv[0], "role")) {
        *out_n = (size_t)snprintf(said, sizeof said, "*2\r\n$8\r\nsentinel\r\n*1\r\n$%zu\r\n%s\r\n",
                                  strlen(SERVICE), SERVICE);
    } else {
        *out_n = (size_t)snprintf(said, sizeof said,
                                  "-ERR unknown command '%.*s', with args beginning with: \r\n",
                                  (int)(argv[0].n < 64 ? argv[0].n : 64), argv[0].p);
    }
    return said;
}

/* ---- Views -------------------------------------------------------------------------------------- */

static bool is_watcher(int at)
{
    return at >= topo.data_count && at < topo.server_count;
}

static void say(int self, const char *channel, const char *text)
{
    model_say(topo.servers[self].model, (model_text){channel, strlen(channel)},
              (model_text){text, strlen(text)}, false);
    net_collect(self);
}

static void say_switch(int self, int before)
{
    const struct snib__address *old = &topo.servers[before].address;
    const struct snib__address *address = &topo.servers[watchers[self].master].address;
    char text[200];
    snprintf(text, sizeof text, SERVICE " %s %d %s %d", old->host, old->port, address->host,
             address->port);
    say(self, CHANNEL, text);
}

static void say_promoted(int self, int before)
{
    const struct snib__address *old = &topo.servers[before].address;
    const struct snib__address *address = &topo.servers[watchers[self].master].address;
    char text[200];
    snprintf(text, sizeof text, "slave %s:%d %s %d @ " SERVICE " %s %d", address->host,
             address->port, address->host, address->port, old->host, old->port);
    say(self, PROMOTED, text);
}

/* The leader believes in the new master once it has promoted it, and announces the switch when the
 * others follow that server. */
static void believe(int self, int master, uint64_t epoch, bool leads)
{
    struct watcher *watcher = &watchers[self];
    int before = watcher->master;
    *watcher = (struct watcher){.master = master, .epoch = epoch};
    topo_trace("sentinel %d believes in server %d, epoch %llu", self, master,
               (unsigned long long)epoch);
    if (leads) {
        say_promoted(self, before);
        topo_later(topo.now + topo_between(10 * SNIB__MS, 1500 * SNIB__MS), TOPO_SWITCHED, self,
                   before, epoch);
    } else if (before != master) {
        say_switch(self, before);
    }
}

/* News from another sentinel arrives, sooner or later. */
static void hear(int self)
{
    for (int i = topo.data_count; i < topo.server_count; i++) {
        if (i != self && watchers[i].epoch > watchers[self].epoch && server_reaches(self, i) &&
            topo_chance(6)) {
            believe(self, watchers[i].master, watchers[i].epoch, false);
            return;
        }
    }
}

static void look(int self)
{
    struct watcher *watcher = &watchers[self];
    const struct topo_server *master = &topo.servers[watcher->master];
    bool well = server_reaches(self, watcher->master) && master->master < 0;
    watcher->down_since = well ? 0 : watcher->down_since == 0 ? topo.now : watcher->down_since;
}

static bool finds_down(int self)
{
    return watchers[self].down_since != 0 && topo.now >= watchers[self].down_since + down_after;
}

/* Whether the sentinel finds the master down, enough others agree, and enough vote. */
static bool may_lead(int self)
{
    int agree = 1, vote = 1, all = topo.server_count - topo.data_count;
    if (!server_runs(self) || !finds_down(self)) {
        return false;
    }
    for (int i = topo.data_count; i < topo.server_count; i++) {
        if (i != self && server_reaches(self, i) && watchers[i].epoch <= watchers[self].epoch) {
            vote++;
            agree += finds_down(i);
        }
    }
    return agree >= all / 2 + 1 && vote >= all / 2 + 1;
}

static void elect(int leader, int replica)
{
    next_try = topo.now + topo_between(2000 * SNIB__MS, 4000 * SNIB__MS);
    if (replica < 0) {
        return;
    }
    topo_trace("sentinel %d leads a failover to server %d", leader, replica);
    topo_later(topo.now + topo_between(10 * SNIB__MS, 500 * SNIB__MS), TOPO_ELECTED, leader,
               replica, topo.shards[0].terms);
}

static void tick(void)
{
    for (int i = topo.data_count; i < topo.server_count; i++) {
        if (server_runs(i)) {
            look(i);
            hear(i);
        }
    }
    for (int i = topo.data_count; i < topo.server_count && topo.now >= next_try; i++) {
        if (may_lead(i)) {
            elect(i, server_best_replica(0, watchers[i].master));
        }
    }
    topo_later(topo.now + TICK, TOPO_TICK, 0, 0, 0);
}

static void elected(const struct topo_event *event)
{
    if (!server_reaches(event->a, event->b) || topo.shards[0].terms != event->c ||
        topo.servers[event->b].master < 0) {
        return;
    }
    server_promote(event->b);
    believe(event->a, event->b, ++last_epoch, true);
    for (int i = 0; i < topo.data_count; i++) {
        if (i != event->b) {
            topo_later(topo.now + topo_between(SNIB__MS, 500 * SNIB__MS), TOPO_FOLLOW, i, event->b,
                       topo.shards[0].terms);
        }
    }
}

/* ---- Interface to the world --------------------------------------------------------------------- */

void sentinel_plan(void)
{
    int replicas = (int)topo_between(1, 2);
    memset(watchers, 0, sizeof watchers);
    topo.shard_count = 1;
    down_after = topo_between(200 * SNIB__MS, 1500 * SNIB__MS);
    next_try = 0;
    last_epoch = topo_draw(3);
    for (int i = 0; i <= replicas; i++) {
        server_new(false, 0);
    }
    for (int i = 1; i <= replicas; i++) {
        server_follow(i, 0, false);
    }
    for (int i = 0; i < 3; i++) {
        int at = server_new(true, 0);
        watchers[at] = (struct watcher){.master = 0, .epoch = last_epoch};
        if (i == 0 || topo_chance(2)) { /* the others are discovered */
            topo.seeds[topo.seed_count++] = topo.servers[at].address;
        }
    }
    topo_later(topo.now + TICK, TOPO_TICK, 0, 0, 0);
}

void sentinel_event(const struct topo_event *event)
{
    if (event->kind == TOPO_TICK) {
        tick();
    } else if (event->kind == TOPO_ELECTED) {
        elected(event);
    } else if (event->kind == TOPO_SWITCHED) {
        if (watchers[event->a].epoch == event->c && server_runs(event->a)) {
            say_switch(event->a, event->b);
        }
    } else if (event->kind == TOPO_PROMOTE) { /* by request */
        int leader = topo.data_count + (int)topo_draw(3);
        if (server_runs(leader)) {
            elect(leader, server_best_replica(0, watchers[leader].master));
        }
    }
}

/* A sentinel is killed, stops, or loses contact with the others. */
void sentinel_disturb(void)
{
    int at = topo.data_count + (int)topo_draw(3);
    struct topo_server *server = &topo.servers[at];
    uint64_t kind = topo_draw(3);
    if (!is_watcher(at) || server->dead) {
        return;
    }
    if (kind == 0) {
        server_kill(at, true); /* its configuration is a file */
        topo_later(topo.now + topo_draw(4 * topo.lease), TOPO_RETURN, at, 0, 0);
    } else if (kind == 1) {
        server->stopped_until = topo.now + topo_draw(3 * topo.lease);
    } else {
        snib__time until = topo.now + topo_draw(4 * topo.lease);
        for (int i = 0; i < topo.server_count; i++) {
            if (i != at) {
                net_part(at, i, until);
            }
        }
    }
}
