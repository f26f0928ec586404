/* plan.c - snib plan: what a load costs its servers and its clients, from a table of measured costs.
 *
 * It asks no server.  The commands follow from the protocol: docs/capacity.md has them as formulas, and
 * tests/cli/test_plan.py compares them with what a server counts.
 */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARDS_MOST 1000   /* of a cluster, as its documentation says */
#define SLOTS 16384.0      /* of a cluster */
#define BATCH_MOST 100.0   /* holds in one renewal */
#define WINDOW_MOST 1000.0 /* holds that are renewed together in a cluster */
#define RECHECK_S 2.625    /* the mean time between a waiter's attempts: 3 s less up to a quarter */
#define BEAT_S 0.875 /* ... between those of a fair lock's waiters: 1 s less up to a quarter */
#define POLL_S 0.128 /* ... of a spin lock's */
#define ROUND_S 0.1  /* ... of a quorum's: pauses of up to 0.2 s */
/* Holds are renewed together with those that are due up to a twelfth of the period later. */
#define GROUPS_MOST 12.0
/* A connection that has been silent for so long while somebody waits is pinged. */
#define SILENCE_S 3.0

/* ---- The table ------------------------------------------------------------------------------- */

enum what {
    ACQUIRE,
    REFUSED,
    RELEASE,
    RENEW,      /* one hold */
    RENEW_MORE, /* ... each more in the same script */
    SUBSCRIBE,
    UNSUBSCRIBE,
    MESSAGE, /* to one of those that listen */
    TIME,
    IDENTITY,
    PING,
    COUNT,     /* the replicas */
    WAIT,      /* for a replica */
    REPLICATE, /* a command that changes something, to one replica */
    WHAT_N
};
enum size { LOCK, HOLD, CLIENT, CONNECTION, WAITER, SUBSCRIPTION, SIZE_N };

static const struct cost {
    double us, received, sent, stream;
} costs[WHOSE_N][WHAT_N] = {
#define COST(whose, what, ...) [whose][what] = {__VA_ARGS__},
#define SIZE(whose, what, bytes)
#include "costs.def"
#undef COST
#undef SIZE
};

static const double sizes[WHOSE_N][SIZE_N] = {
#define COST(whose, what, ...)
#define SIZE(whose, what, bytes) [whose][what] = (bytes),
#include "costs.def"
#undef COST
#undef SIZE
};

/* ---- The load -------------------------------------------------------------------------------- */

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* n of these a second; part: of another command. */
static void add(struct flow *flow, const struct plan *plan, enum whose whose, enum what what,
                double n)
{
    const struct cost *cost = &costs[whose][what];
    bool is_part = what == MESSAGE || what == RENEW_MORE;
    double copies = cost->stream > 0 && !is_part ? plan->replicas : 0;
    flow->commands += is_part ? 0 : n;
    flow->us += n * (cost->us + copies * costs[ANY][REPLICATE].us);
    flow->received += n * cost->received;
    flow->sent += n * cost->sent;
    flow->stream += plan->replicas > 0 ? n * cost->stream : 0;
}

static struct flow sum(const struct server *server)
{
    const struct flow *all[] = {&server->pairs, &server->waits, &server->renewals,
                                &server->clients};
    struct flow flow = {0};
    for (int i = 0; i < 4; i++) {
        flow.commands += all[i]->commands;
        flow.us += all[i]->us;
        flow.received += all[i]->received;
        flow.sent += all[i]->sent;
        flow.stream += all[i]->stream;
    }
    return flow;
}

/* How many of so many slots n names are in. */
static double distinct(double slots, double n)
{
    double none = 1;
    for (double i = 1; i <= n; i++)
        none *= 1 - 1 / slots;
    return least(n, slots * (1 - none));
}

/* How many scripts renew a client's holds at one server, each once. */
static double batches(double holds, double shards)
{
    double window = most(1, least(WINDOW_MOST, holds / GROUPS_MOST));
    if (shards > 1)
        return least(holds, holds / window * distinct(SLOTS / shards, window));
    if (holds >= 2 * BATCH_MOST)
        return holds / BATCH_MOST;
    return holds * GROUPS_MOST / (holds + GROUPS_MOST); /* they were taken at any times */
}

/* Waiters of these hear no messages. */
static bool is_polled(const struct plan *plan)
{
    return plan->kind == SPIN || plan->kind == QUORUM;
}

/* The mean time between a waiter's attempts, in seconds. */
static double pause_of(const struct plan *plan)
{
    return plan->kind == SPIN     ? POLL_S
           : plan->kind == QUORUM ? ROUND_S
           : plan->kind == FAIR   ? BEAT_S
                                  : least(RECHECK_S, plan->lease_s * 5 / 6);
}

/* Waiters ask again now and then; others begin to wait and are woken. */
static void add_waits(struct flow *flow, const struct plan *plan, double shards)
{
    double waiters = plan->waiters / shards, waits = plan->rate * plan->contended / shards;
    double listeners = plan->locks > 0 ? most(1, plan->waiters / plan->locks) : 1;
    add(flow, plan, plan->kind, REFUSED,
        waiters / pause_of(plan) + waits * (is_polled(plan) ? 1 : 2));
    if (is_polled(plan))
        return;
    add(flow, plan, ANY, SUBSCRIBE, waits);
    add(flow, plan, ANY, UNSUBSCRIBE, waits);
    add(flow, plan, ANY, MESSAGE, waits * listeners);
    add(flow, plan, ANY, PING, least(plan->clients, waiters) / least(SILENCE_S, plan->lease_s / 5));
}

/* One of so many servers among which the names are divided. */
static struct server server_of(const struct plan *plan, double shards)
{
    struct server server = {0};
    double period = plan->lease_s / 3, rate = plan->rate / shards, locks = plan->locks / shards;
    double holders = least(plan->clients, plan->locks);
    bool waits = (plan->waiters > 0 || plan->rate * plan->contended > 0) && !is_polled(plan);
    add(&server.pairs, plan, plan->kind, ACQUIRE, rate);
    add(&server.pairs, plan, plan->kind, RELEASE, rate);
    if (plan->is_durable) {
        add(&server.pairs, plan, ANY, WAIT, rate);
        add(&server.pairs, plan, ANY, COUNT, least(rate, plan->clients));
    }
    add_waits(&server.waits, plan, shards);
    if (holders > 0) {
        double scripts = holders * batches(locks / holders, shards) / period;
        server.renewed = locks / period;
        add(&server.renewals, plan, plan->kind, RENEW, scripts);
        add(&server.renewals, plan, plan->kind, RENEW_MORE, server.renewed - scripts);
    }
    add(&server.clients, plan, ANY, TIME,
        least(plan->clients, most(holders, rate * period)) / most(1, period));
    add(&server.clients, plan, ANY, IDENTITY, holders / shards / most(1, period));
    server.connections = plan->clients * (1 + waits + plan->is_durable);
    server.memory = locks * sizes[plan->kind][LOCK] + server.connections * sizes[ANY][CONNECTION] +
                    (waits ? plan->waiters / shards * sizes[ANY][SUBSCRIPTION] : 0);
    return server;
}

static double core_of(const struct plan *plan, double shards)
{
    struct server server = server_of(plan, shards);
    return sum(&server).us / 1e6 / plan->speed;
}

/* Into how many parts the names have to be divided; 0: no number suffices.  A cluster stays one: its renewals cost more
 * than those of a single server. */
static int parts_needed(const struct plan *plan)
{
    for (int n = plan->shards > 1 ? 2 : 1; n <= SHARDS_MOST; n++)
        if (core_of(plan, n) <= CORE_MOST)
            return n;
    return 0;
}

static double client_memory(const struct plan *plan)
{
    double nodes = plan->quorum > 1 ? plan->quorum : plan->shards;
    double locks = plan->locks / plan->clients, waiters = plan->waiters / plan->clients;
    double hold = sizes[plan->kind][HOLD];
    if (plan->quorum > 1) /* it was measured with three servers */
        hold += (plan->quorum - 3) * sizes[MUTEX][HOLD];
    return nodes * sizes[ANY][CLIENT] + locks * hold + waiters * sizes[ANY][WAITER];
}

/* ---- What is asked --------------------------------------------------------------------------- */

static const struct number {
    const char *name;
    int64_t min, max; /* thousandths */
    const char *range;
} numbers[PLAN_N] = {
    [PLAN_LOCKS] = {"locks", 0, 1000000000000, "a number from 0 to 1000000000"},
    [PLAN_CLIENTS] = {"clients", 1000, 1000000000, "a number from 1 to 1000000"},
    [PLAN_RATE] = {"rate", 0, 100000000000, "0, or a number a second from 0.001 to 100000000"},
    [PLAN_CONTENDED] = {"contended", 0, 100000, "0, or a percentage from 0.001 to 100"},
    [PLAN_WAITERS] = {"waiters", 0, 1000000000000, "a number from 0 to 1000000000"},
    [PLAN_SHARDS] = {"shards", 1000, SHARDS_MOST * 1000, "a number from 1 to 1000"},
    [PLAN_REPLICAS] = {"replicas", 1000, 100000, "a number from 1 to 100"},
    [PLAN_QUORUM] = {"quorum", 3000, 15000, "a number from 3 to 15"},
    [PLAN_SERVER_SPEED] = {"server-speed", 10, 100000, "a number from 0.01 to 100, such as 0.5"},
};

static bool is_decimal(int which)
{
    return which == PLAN_RATE || which == PLAN_CONTENDED || which == PLAN_SERVER_SPEED;
}

/* Whether these digits are more than nothing, which rounding may have made of them. */
static bool is_something(const char *digits)
{
    return strpbrk(digits, "123456789") != NULL;
}

int plan_take(int which, const char *value, struct cli *cli)
{
    const struct number *number = &numbers[which];
    char text[128];
    int64_t n = cli_read_thousandths(value);
    bool is_kept =
        is_decimal(which) ? n > 0 || !is_something(value) : !is_something(strchrnul(value, '.'));
    if (n >= number->min && n <= number->max && is_kept) {
        cli->plan[which] = n;
        return 0;
    }
    snprintf(text, sizeof text, "--%s needs %s, not ", number->name, number->range);
    return cli_usage(cli, text, value);
}

static enum whose kind_of(const struct cli *cli)
{
    static const struct {
        int32_t kind;
        enum whose whose;
    } kinds[] = {{SNIB_FENCED, FENCED}, {SNIB_FAIR, FAIR},       {SNIB_READ, READ},
                 {SNIB_WRITE, WRITE},   {SNIB_PERMITS, PERMITS}, {SNIB_SPIN, SPIN},
                 {SNIB_PLAIN, PLAIN}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].kind == cli->kind)
            return kinds[i].whose;
    return cli->plan[PLAN_QUORUM] ? QUORUM : MUTEX;
}

/* What contradicts itself; NULL: nothing. */
static const char *contradiction(const struct cli *cli, const struct plan *plan)
{
    if (plan->locks == 0 && plan->rate == 0)
        return "there is nothing to plan: give --locks, --rate or both";
    if (plan->quorum > 1 && (plan->shards > 1 || plan->replicas > 0))
        return "the servers of a quorum have no shards and replicas: do not add --shards or "
               "--replicas";
    if (plan->quorum > 1 && cli->kind)
        return "a quorum is of mutexes, so do not add a kind or --fenced";
    if (cli->flags & SNIB_LOCK_FENCED)
        return "plan knows --fenced for a mutex only";
    if (plan->is_durable && plan->replicas == 0)
        return "--durable waits for replicas: give --replicas";
    if (plan->contended > 0 && (plan->rate == 0 || plan->clients < 2))
        return "--contended is the share of --rate that waits for another client: give --rate and "
               "--clients 2 or more";
    if (plan->waiters > plan->locks * (plan->clients - 1))
        return "each client waits at most once for each lock that another one holds: give fewer "
               "--waiters, "
               "or more --locks or --clients";
    return NULL;
}

static double given(const struct cli *cli, int which, double otherwise)
{
    return cli->plan[which] ? (double)cli->plan[which] / 1000 : otherwise;
}

/* ---- The command ----------------------------------------------------------------------------- */

int cli_plan(const struct cli *cli)
{
    struct answer a = {.plan = {.kind = kind_of(cli),
                                .locks = given(cli, PLAN_LOCKS, 0),
                                .clients = given(cli, PLAN_CLIENTS, 1),
                                .rate = given(cli, PLAN_RATE, 0),
                                .contended = given(cli, PLAN_CONTENDED, 0) / 100,
                                .waiters = given(cli, PLAN_WAITERS, 0),
                                .lease_s = cli->lease_ms ? (double)cli->lease_ms / 1000 : 30,
                                .replicas = given(cli, PLAN_REPLICAS, 0),
                                .speed = given(cli, PLAN_SERVER_SPEED, 1),
                                .shards = given(cli, PLAN_SHARDS, 1),
                                .quorum = given(cli, PLAN_QUORUM, 1),
                                .is_durable = cli->is_durable}};
    const char *wrong = contradiction(cli, &a.plan);
    if (wrong)
        return cli_usage(cli, wrong, NULL);
    a.server = server_of(&a.plan, a.plan.shards);
    a.flow = sum(&a.server);
    a.core = core_of(&a.plan, a.plan.shards);
    a.memory = client_memory(&a.plan);
    a.pause = pause_of(&a.plan);
    a.parts = parts_needed(&a.plan);
    a.given = (int)a.plan.shards;
    a.each = (int)a.plan.quorum;
    if (cli->is_json)
        plan_print_json(&a);
    else
        plan_print_text(&a);
    return a.core > CORE_MOST ? EXIT_TOO_FEW : 0;
}
