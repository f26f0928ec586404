/* topo_server.c - servers: which follows which, data in flight between them, death and return, and
 * what they report of themselves.
 *
 * Replication is asynchronous: after every command that wrote, a copy of the data set leaves for
 * each replica and arrives later.  A replica that is promoted before has lost what was in flight.
 */
#include "topo.h"

#include "snib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAID_MAX 4096

static char said[SAID_MAX]; /* the reply being built */

/* ---- Replicas ---------------------------------------------------------------------------------- */

static bool listens_to(const struct topo_server *server, int from)
{
    return !server->dead && server->master == from && server->synced;
}

bool server_listens(int at, int to)
{
    return listens_to(&topo.servers[at], to);
}

int server_acked(int at, uint64_t writes)
{
    int n = 0;
    for (int i = 0; i < topo.data_count; i++) {
        n += listens_to(&topo.servers[i], at) && topo.servers[i].applied >= writes;
    }
    return n;
}

/* ---- Replies ------------------------------------------------------------------------------------ */

static const char *bulk(const char *text, size_t *out_n)
{
    char copy[SAID_MAX - 32];
    snprintf(copy, sizeof copy, "%s", text);
    *out_n = (size_t)snprintf(said, sizeof said, "$%zu\r\n%s\r\n", strlen(copy), copy);
    return said;
}

static const char *link_state(const struct topo_server *server)
{
    return server->synced ? "connected" : "sync";
}

static const char *say_role(const struct topo_server *server, size_t *out_n)
{
    if (server->master >= 0) {
        const struct snib__address *of = &topo.servers[server->master].address;
        *out_n = (size_t)snprintf(said, sizeof said,
                                  "*5\r\n$5\r\nslave\r\n$%zu\r\n%s\r\n:%d\r\n$%zu\r\n%s\r\n:%d\r\n",
                                  strlen(of->host), of->host, of->port, strlen(link_state(server)),
                                  link_state(server), server->synced ? 100 : -1);
        return said;
    }
    *out_n = (size_t)snprintf(said, sizeof said, "*3\r\n$6\r\nmaster\r\n:100\r\n*0\r\n");
    return said;
}

static const char *say_info(const struct topo_server *server, size_t *out_n)
{
    char text[1024];
    int index = (int)(server - topo.servers);
    bool replica = server->master >= 0;
    static const char *const modes[] = {"standalone", "standalone", "cluster"};
    int n =
        snprintf(text, sizeof text,
                 "# Server\r\nredis_version:7.0.15\r\nredis_mode:%s\r\nrun_id:%032x%08llx\r\n"
                 "# Memory\r\nmaxmemory_policy:noeviction\r\n"
                 "# Persistence\r\nloading:%d\r\n# Replication\r\nrole:%s\r\n"
                 "master_replid:%040llx\r\nmaster_replid2:%040llx\r\nmaster_repl_offset:100\r\n",
                 modes[topo.topology], index + 1, (unsigned long long)server->run,
                 server->loading_until > topo.now, replica ? "slave" : "master",
                 (unsigned long long)server->replication, (unsigned long long)server->former);
    int in_step = server_acked(index, 0);
    n += snprintf(text + n, sizeof text - (size_t)n, "connected_slaves:%d\r\n", in_step);
    for (int i = 0; i < in_step; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "slave%d:ip=10.0.0.1,port=1,state=online,offset=100,lag=0\r\n", i);
    }
    if (replica) {
        const struct snib__address *of = &topo.servers[server->master].address;
        snprintf(text + n, sizeof text - (size_t)n,
                 "master_host:%s\r\nmaster_port:%d\r\nmaster_link_status:%s\r\n", of->host,
                 of->port, server->synced ? "up" : "down");
    }
    return bulk(text, out_n);
}

static bool is(model_text text, const char *word)
{
    return text.n == strlen(word) && strncasecmp(text.p, word, text.n) == 0;
}

static const char *answer(void *context, uint64_t connection, const model_text *argv, size_t argc,
                          size_t *out_n)
{
    const struct topo_server *server = context;
    if (server->sentinel) {
        return sentinel_answer((int)(server - topo.servers), argv, argc, out_n);
    }
    if (is(argv[0], "wait") && argc == 3 && server->master >= 0) {
        static const char refusal[] = "-ERR WAIT cannot be used with replica instances.\r\n";
        *out_n = sizeof refusal - 1;
        return refusal;
    }
    if (is(argv[0], "wait") && argc == 3) {
        net_wait((int)(server - topo.servers), connection, strtoull(argv[1].p, NULL, 10),
                 strtoull(argv[2].p, NULL, 10) * SNIB__MS);
        *out_n = sizeof NET_WAITS - 1;
        return NET_WAITS;
    }
    if (is(argv[0], "role") && argc == 1) {
        return say_role(server, out_n);
    }
    if (is(argv[0], "info")) {
        return say_info(server, out_n);
    }
    if (topo.topology == SNIB__CLUSTER) {
        return cluster_answer((int)(server - topo.servers), connection, argv, argc, out_n);
    }
    return NULL;
}

static const char *touch(void *context, const model_text *name, bool channel)
{
    const struct topo_server *server = context;
    return topo.topology == SNIB__CLUSTER
               ? cluster_touch((int)(server - topo.servers), name, channel)
               : NULL;
}

/* ---- Parcels ------------------------------------------------------------------------------------ */

static void push(int to, struct topo_parcel *parcel)
{
    struct topo_server *server = &topo.servers[to];
    parcel->at = topo.now + net_delay() + topo_draw(server->lag + 1);
    if (server->tail != NULL) {
        parcel->at = parcel->at < server->tail->at ? server->tail->at : parcel->at;
        server->tail->next = parcel;
    } else {
        server->head = parcel;
    }
    server->tail = parcel;
}

static struct topo_parcel *new_parcel(int from, size_t n)
{
    struct topo_parcel *parcel = calloc(1, sizeof *parcel + n);
    if (parcel == NULL) {
        abort();
    }
    parcel->from = from;
    return parcel;
}

static void drop(struct topo_server *server)
{
    while (server->head != NULL) {
        struct topo_parcel *parcel = server->head;
        server->head = parcel->next;
        if (parcel->data != NULL) {
            model_data_free(parcel->data);
        }
        free(parcel);
    }
    server->tail = NULL;
}

static void published(void *context, model_text channel, model_text text, bool sharded)
{
    int from = (int)((struct topo_server *)context - topo.servers);
    for (int i = 0; i < topo.data_count; i++) {
        bool by_bus = topo.topology == SNIB__CLUSTER && !sharded;
        if (i == from || !(by_bus || listens_to(&topo.servers[i], from))) {
            continue;
        }
        struct topo_parcel *parcel = new_parcel(from, channel.n + text.n);
        parcel->sharded = sharded;
        parcel->channel_n = channel.n;
        parcel->text_n = text.n;
        memcpy(parcel->words, channel.p, channel.n);
        memcpy(parcel->words + channel.n, text.p, text.n);
        push(i, parcel);
    }
}

void server_ship(int at)
{
    struct topo_server *server = &topo.servers[at];
    for (int i = 0; i < topo.data_count; i++) {
        if (listens_to(&topo.servers[i], at)) {
            struct topo_parcel *parcel = new_parcel(at, 0);
            parcel->data = model_save(server->model);
            parcel->writes = server->shipped;
            push(i, parcel);
        }
    }
}

void server_executed(int at)
{
    struct topo_server *server = &topo.servers[at];
    if (model_writes(server->model) != server->shipped) {
        server->shipped = model_writes(server->model);
        server_ship(at);
    }
}

static snib__time parcel_due(const struct topo_server *server)
{
    const struct topo_parcel *parcel = server->head;
    if (parcel == NULL || server->dead) {
        return SNIB__NEVER;
    }
    snib__time apart = topo.apart[server - topo.servers][parcel->from];
    snib__time at = parcel->at > apart ? parcel->at : apart;
    return at > server->stopped_until ? at : server->stopped_until;
}

snib__time server_next(void)
{
    snib__time next = SNIB__NEVER;
    for (int i = 0; i < topo.data_count; i++) {
        snib__time at = parcel_due(&topo.servers[i]);
        next = at < next ? at : next;
    }
    return next;
}

bool server_run(void)
{
    for (int i = 0; i < topo.data_count; i++) {
        struct topo_server *server = &topo.servers[i];
        struct topo_parcel *parcel = server->head;
        if (parcel_due(server) > topo.now) {
            continue;
        }
        server->head = parcel->next;
        server->tail = server->head == NULL ? NULL : server->tail;
        if (parcel->data != NULL) {
            model_load(server->model, parcel->data);
            model_data_free(parcel->data);
            server->applied = parcel->writes;
            net_waited(parcel->from);
        } else {
            model_say(server->model, (model_text){parcel->words, parcel->channel_n},
                      (model_text){parcel->words + parcel->channel_n, parcel->text_n},
                      parcel->sharded);
            net_collect(i);
        }
        free(parcel);
        return true;
    }
    return false;
}

/* ---- Roles -------------------------------------------------------------------------------------- */

void server_set_faults(int at)
{
    struct topo_server *server = &topo.servers[at];
    unsigned faults = server->loading_until > topo.now ? MODEL_LOADING : 0;
    if (server->master >= 0) {
        faults |= MODEL_READONLY;
        faults |= !topo.stale_reads && !server->synced ? MODEL_MASTERDOWN : 0;
    }
    model_set_faults(server->model, faults);
}

bool server_runs(int at)
{
    return !topo.servers[at].dead && topo.servers[at].stopped_until <= topo.now;
}

bool server_reaches(int at, int other)
{
    return server_runs(at) && server_runs(other) && !net_apart(at, other);
}

void net_leave(int server)
{
    model_hang_up(topo.servers[server].model);
    net_collect(server);
}

void server_follow(int at, int master, bool hang_up)
{
    struct topo_server *server = &topo.servers[at];
    topo_trace("server %d follows %d", at, master);
    if (server->master < 0) {
        net_unblock(at);
    }
    drop(server);
    server->master = master;
    server->synced = false;
    server->term++;
    server->lag = topo.focus == TOPO_FORMER ? 0 : server->lag;
    server_set_faults(at);
    if (hang_up) {
        net_leave(at);
    }
    snib__time whole = topo.focus == TOPO_FORMER && topo_chance(2) ? topo.delay : 200 * SNIB__MS;
    topo_later(topo.now + topo_between(topo.delay, whole), TOPO_SYNCED, at, master, server->term);
}

static void finish_sync(const struct topo_event *event)
{
    struct topo_server *server = &topo.servers[event->a];
    if (server->term != event->c || server->synced) {
        return;
    }
    if (!server_reaches(event->a, event->b) || topo.servers[event->b].loading_until > topo.now) {
        topo_later(topo.now + 50 * SNIB__MS, TOPO_SYNCED, event->a, event->b, event->c);
        return;
    }
    model_data *data = model_save(topo.servers[event->b].model);
    drop(server);
    model_load(server->model, data);
    model_data_free(data);
    server->synced = true;
    server->synced_at = topo.now;
    server->applied = model_writes(topo.servers[event->b].model);
    server->replication = topo.servers[event->b].replication;
    server_set_faults(event->a);
    topo_trace("server %d has the data of %d", event->a, event->b);
}

/* The replica with the most of its master's data, or nearly: which that is cannot be known for
 * sure.  -1: none. */
int server_best_replica(int shard, int except)
{
    int best = -1;
    for (int i = 0; i < topo.data_count; i++) {
        const struct topo_server *server = &topo.servers[i];
        bool fit = server->shard == shard && i != except && server->master >= 0 && server_runs(i) &&
                   server->loading_until <= topo.now;
        if (fit && (best < 0 || (server->synced && !topo.servers[best].synced) ||
                    (server->synced == topo.servers[best].synced && topo_chance(2)))) {
            best = i;
        }
    }
    return best;
}

void server_promote(int at)
{
    struct topo_server *server = &topo.servers[at];
    struct topo_shard *shard = &topo.shards[server->shard];
    topo_trace("server %d is the master of shard %d, after %d", at, server->shard,
               shard->authority);
    topo_totals.promotions++;
    bool whole = server->synced;
    drop(server);
    server->master = -1;
    server->synced = false;
    server->term++;
    server->former = server->replication;
    server->replication = topo_draw(UINT64_MAX);
    server_set_faults(at);
    server->promoted_at = topo.now;
    shard->authority = at;
    shard->terms++;
    if (whole) {
        check_durable(at);
    }
    truth_broken(server->shard, "a failover");
}

/* ---- Life --------------------------------------------------------------------------------------- */

int server_new(bool sentinel, int shard)
{
    int at = topo.server_count++;
    struct topo_server *server = &topo.servers[at];
    char host[32];
    *server = (struct topo_server){.model = model_new(),
                                   .sentinel = sentinel,
                                   .shard = shard,
                                   .master = -1,
                                   .run = 1,
                                   .replication = topo_draw(UINT64_MAX)};
    topo.data_count += !sentinel;
    int n = snprintf(host, sizeof host, "10.0.%d.%d", sentinel, at + 1);
    snib__address_host(&server->address, host, (size_t)n, sentinel ? 26379 : 6379, false);
    model_deploy(server->model,
                 &(struct model_deployment){
                     .context = server, .answer = answer, .touch = touch, .published = published});
    model_time(server->model, TOPO_EPOCH + topo.now);
    return at;
}

void server_free_all(void)
{
    for (int i = 0; i < topo.server_count; i++) {
        drop(&topo.servers[i]);
        model_free(topo.servers[i].model);
    }
}

void server_time(void)
{
    for (int i = 0; i < topo.server_count; i++) {
        model_time(topo.servers[i].model, TOPO_EPOCH + topo.now);
    }
}

void server_kill(int at, bool keeps)
{
    struct topo_server *server = &topo.servers[at];
    topo_trace("server %d dies", at);
    server->dead = true;
    server->keeps = keeps;
    server->stopped_until = 0;
    server->term++;
    net_server_died(at);
}

/* It returns in its old role: a master that was replaced does not know that yet. */
void server_return(int at)
{
    struct topo_server *server = &topo.servers[at];
    if (!server->dead) {
        return;
    }
    topo_trace("server %d returns %s", at, server->keeps ? "with its data" : "empty");
    if (server->keeps) {
        model_restart_with_data(server->model);
    } else {
        model_restart(server->model);
    }
    server->dead = false;
    server->run++;
    server->replication = topo_draw(UINT64_MAX);
    server->former = 0;
    if (server->keeps && topo_chance(2)) {
        server->loading_until = topo.now + topo_draw(200 * SNIB__MS);
        topo_later(server->loading_until, TOPO_LOADED, at, 0, 0);
    }
    drop(server);
    if (server->sentinel) {
        return;
    }
    if (topo.topology == SNIB__CLUSTER) {
        cluster_returned(at);
    }
    if (server->master >= 0) {
        server_follow(at, server->master, false);
    }
    for (int i = 0; i < topo.data_count; i++) { /* another history: full resynchronization */
        if (topo.servers[i].master == at && !topo.servers[i].dead) {
            server_follow(i, at, false);
        }
    }
    server_set_faults(at);
    if (!server->keeps && topo.shards[server->shard].authority == at) {
        truth_broken(server->shard, "a restart without data");
    }
}

/* A server is told which master to follow, as soon as it can be reached. */
static void be_told(const struct topo_event *event)
{
    const struct topo_server *server = &topo.servers[event->a];
    const struct topo_shard *shard = &topo.shards[server->shard];
    if (shard->terms != event->c || shard->authority == event->a || server->master == event->b) {
        return;
    }
    if (server_reaches(event->a, event->b)) {
        server_follow(event->a, event->b, true);
    } else {
        topo_later(topo.now + topo_between(100 * SNIB__MS, 1500 * SNIB__MS), TOPO_FOLLOW, event->a,
                   event->b, event->c);
    }
}

void server_event(const struct topo_event *event)
{
    switch (event->kind) {
    case TOPO_FOLLOW:
        be_told(event);
        break;
    case TOPO_SYNCED:
        finish_sync(event);
        break;
    case TOPO_RETURN:
        server_return(event->a);
        break;
    case TOPO_LOADED:
        server_set_faults(event->a);
        break;
    default:
        if (topo.topology == SNIB__SENTINEL) {
            sentinel_event(event);
        } else if (topo.topology == SNIB__CLUSTER) {
            cluster_event(event);
        } else {
            single_event(event);
        }
    }
}
