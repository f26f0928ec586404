/* plan_show.c - snib plan's answer as text, and as JSON. */
#include "plan.h"

#include <cjson/cJSON.h>
#include <stdio.h>

#define WATCHES_MOST 11
#define WATCH_MAX 80

/* "345", "34.5 k": at most four digits. */
static const char *short_of(double value, const char *unit)
{
    static char texts[4][32];
    static int at;
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    char *text = texts[at = (at + 1) % 4];
    int prefix = 0;
    for (; value >= 9999.5 && prefix < 5; prefix++)
        value /= 1000;
    bool has_tenths = value < 99.95 && (prefix || value != (double)(int)value);
    snprintf(text, sizeof texts[0], "%.*f%s%s%s", has_tenths, value, *unit || prefix ? " " : "",
             prefixes[prefix], unit);
    return text;
}

/* How many rechecks there may be: attempts for which no message was the reason.  Who waits longer than the pause between
 * two attempts makes them in any case, so only under short holds they tell of messages that are missing.  Waiters of a
 * spin lock and of a quorum hear no messages, and those of a quorum count no rechecks; a fair lock's confirm their places.
 * Without such an answer a text is empty. */
static void find_rechecks(const struct answer *a, char waiting[WATCH_MAX], char woken[WATCH_MAX])
{
    const struct plan *plan = &a->plan;
    waiting[0] = woken[0] = '\0';
    if (plan->kind == SPIN || plan->kind == QUORUM)
        return;
    if (plan->waiters > 0)
        snprintf(waiting, WATCH_MAX,
                 "snib_rechecks_total: up to %s a second for --waiters are normal",
                 short_of(plan->waiters / a->pause, ""));
    if (plan->contended > 0 && plan->kind != FAIR)
        snprintf(woken, WATCH_MAX, "%s: below snib_messages_total if holds last less than %s s",
                 plan->waiters > 0 ? "the other rechecks" : "snib_rechecks_total",
                 short_of(a->pause, ""));
    else if (plan->contended > 0 && plan->waiters == 0)
        snprintf(woken, WATCH_MAX, "snib_rechecks_total: one a second for each wait is normal");
}

/* What to watch while this load runs.  Returns how many texts there are. */
static int find_watches(const struct answer *a, const char *out[WATCHES_MOST])
{
    static char waiting[WATCH_MAX], woken[WATCH_MAX];
    const struct plan *plan = &a->plan;
    /* The others do not subscribe. */
    bool is_seen = plan->waiters > 0 && plan->kind != SPIN && plan->kind != QUORUM;
    bool holds = plan->locks > 0;
    find_rechecks(a, waiting, woken);
    const struct {
        bool matters;
        const char *text;
    } all[WATCHES_MOST] = {
        {true, "that --server-speed is right: compare what the server uses of its core"},
        {holds, "snib_watchdog_late_seconds: above a sixth of the lease a client lacks CPU"},
        {holds, "snib_renewal_failures_total, snib_reconnects_total: they should not rise"},
        {holds, "snib stats: snib_server_holders is about --locks"},
        {is_seen, "snib stats: snib_server_waiting_processes is about --waiters"},
        {waiting[0], waiting},
        {woken[0], woken},
        {a->server.connections > 9000, "maxclients of the server: 10000 unless you set it"},
        {plan->replicas > 0, "the replicas' lag: a failover forgets what has not arrived"},
        {plan->shards > 1, "that the shards have equal shares: a hash tag is in one slot"},
        {plan->quorum > 1, "that each of the servers keeps up: the lock waits for most of them"},
    };
    int n = 0;
    for (int i = 0; i < WATCHES_MOST; i++)
        if (all[i].matters)
            out[n++] = all[i].text;
    return n;
}

static const char *plural(double n)
{
    return n == 1 ? "" : "s";
}

static void put(const char *what, const char *value, const char *more)
{
    printf("  %-26s %10s%s%s\n", what, value, *more ? "  " : "", more);
}

void plan_print_text(const struct answer *a)
{
    const struct plan *plan = &a->plan;
    const char *watches[WATCHES_MOST];
    char more[64];
    printf("at %s, per second\n", a->given * a->each > 1 ? "each server" : "the server");
    put("commands", short_of(a->flow.commands, ""), "");
    put("  to acquire and release", short_of(a->server.pairs.commands, ""), "");
    snprintf(more, sizeof more, "for %s hold%s", short_of(a->server.renewed, ""),
             plural(a->server.renewed));
    put("  to renew", short_of(a->server.renewals.commands, ""), a->server.renewed > 0 ? more : "");
    put("  to wait", short_of(a->server.waits.commands, ""), "");
    put("  clock and identity", short_of(a->server.clients.commands, ""), "");
    put("received", short_of(a->flow.received, "B"), "without the headers of TCP and IP");
    put("sent", short_of(a->flow.sent, "B"), "");
    if (plan->replicas > 0)
        put("sent to each replica", short_of(a->flow.stream, "B"), "");
    snprintf(more, sizeof more, "%.1f %%", a->core * 100);
    put("of one core", more, a->core > 1 ? "more than there is" : "");
    printf("memory\n");
    double locks = plan->locks / plan->shards, connections = a->server.connections;
    snprintf(more, sizeof more, "%s lock%s, %s connection%s", short_of(locks, ""), plural(locks),
             short_of(connections, ""), plural(connections));
    put(a->given * a->each > 1 ? "each server" : "the server", short_of(a->server.memory, "B"),
        more);
    put("each client", short_of(a->memory, "B"), "");
    printf("servers\n");
    snprintf(more, sizeof more, "at most %.0f %% of a core each", CORE_MOST * 100);
    if (a->parts == 0)
        put("needed", "too many", "no cluster is large enough");
    else
        put("needed", short_of(a->parts * a->each, ""), more);
    if (a->core > CORE_MOST && a->parts > 0)
        puts(plan->quorum > 1 ? "  divide the names among several quorums"
                              : "  divide the names: --shards");
    printf("to watch\n");
    for (int i = 0, n = find_watches(a, watches); i < n; i++)
        printf("  %s\n", watches[i]);
}

/* To thousandths; the numbers are positive. */
static void add_value(cJSON *object, const char *name, double value)
{
    cJSON_AddNumberToObject(object, name, (double)(int64_t)(value * 1000 + 0.5) / 1000);
}

void plan_print_json(const struct answer *a)
{
    const char *watches[WATCHES_MOST];
    int n = find_watches(a, watches);
    cJSON *object = cJSON_CreateObject(), *server = cJSON_AddObjectToObject(object, "server");
    const struct {
        const char *name;
        double value;
    } values[] = {{"commands", a->flow.commands},
                  {"pair_commands", a->server.pairs.commands},
                  {"renewal_commands", a->server.renewals.commands},
                  {"wait_commands", a->server.waits.commands},
                  {"client_commands", a->server.clients.commands},
                  {"renewals", a->server.renewed},
                  {"received", a->flow.received},
                  {"sent", a->flow.sent},
                  {"sent_to_replica", a->flow.stream},
                  {"cores", a->core},
                  {"connections", a->server.connections},
                  {"memory", a->server.memory}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        add_value(server, values[i].name, values[i].value);
    add_value(cJSON_AddObjectToObject(object, "client"), "memory", a->memory);
    cli_add_number(object, "servers", a->given * a->each);
    cli_add_number_or_null(object, "servers_needed", a->parts ? a->parts * a->each : -1);
    cJSON_AddItemToObject(object, "watch", cJSON_CreateStringArray(watches, n));
    cli_print_json(object);
}
