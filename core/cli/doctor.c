/* doctor.c - snib doctor: how the server is set up, what that means for locks, and what to
 * change. */
#include "cli.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DOCTOR_TEXTS (1 << 17)
#define DOCTOR_HEAR_MS 15000
#define DOCTOR_WAIT_MS 200 /* of each kind's waiter, to subscribe or be refused */

enum verdict { FINE, NOTE, WARNING, BROKEN };

static const char *const verdicts[] = {"ok", "note", "warning", "error"};

struct doctor {
    const struct cli *cli;
    snib_client *client;
    snib_client *other; /* holds what the first one waits for */
    cJSON *findings;    /* with --json */
    enum verdict worst;
    char *info; /* the server's INFO: texts with a NUL each */
    size_t info_used;
    char *way; /* SNIB_SERVER_WAY's */
    size_t way_used;
    /* The first kind that works, subscribes and announces releases; NULL: none does. */
    const struct trial *announced;
    char polling[128]; /* the kinds whose subscriptions are refused */
};

/* ---- reporting ------------------------------------------------------------------------------- */

/* advice: what to do, or what it means; "": none */
static void found(struct doctor *doctor, enum verdict verdict, const char *what, const char *value,
                  const char *advice)
{
    if (verdict > doctor->worst)
        doctor->worst = verdict;
    if (doctor->findings) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "what", what);
        cJSON_AddStringToObject(item, "verdict", verdicts[verdict]);
        cJSON_AddStringToObject(item, "value", value);
        cJSON_AddStringToObject(item, "advice", advice);
        cJSON_AddItemToArray(doctor->findings, item);
        return;
    }
    char *printable = cli_printable(value); /* others may have written it */
    printf("%-8s %-14s %s\n", verdicts[verdict], what, printable);
    free(printable);
    if (advice[0])
        printf("%-8s %-14s   %s\n", "", "", advice);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* The texts of a reply, to be freed; NULL with *err. */
static char *ask(struct doctor *doctor, int32_t what, size_t *out_used, snib_error *err)
{
    char *texts = calloc(1, DOCTOR_TEXTS + 1); /* a reply may have no text, or one */
    uint32_t count;
    if (!texts)
        abort();
    if (snib_client_server(doctor->client, what, texts, DOCTOR_TEXTS, out_used, &count, err) ==
        SNIB_OK)
        return texts;
    free(texts);
    return NULL;
}

/* The value of "name:value" among texts; "" if there is none. */
static const char *value_in(const char *texts, size_t used, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = texts; at && at < texts + used; at += strlen(at) + 1)
        if (strncmp(at, name, n) == 0 && at[n] == ':')
            return at + n + 1;
    return "";
}

/* Of INFO. */
static const char *info(const struct doctor *doctor, const char *name)
{
    return value_in(doctor->info, doctor->info_used, name);
}

/* Of what the client knows of its way to the server. */
static const char *way(const struct doctor *doctor, const char *name)
{
    return value_in(doctor->way, doctor->way_used, name);
}

/* Write the value of a setting to out; false: it is not available, and look_at_commands() says why. */
static bool setting(struct doctor *doctor, int32_t what, char *out, size_t cap)
{
    snib_error err;
    size_t used = 0;
    char *texts = ask(doctor, what, &used, &err);
    size_t name = texts ? strlen(texts) + 1 : 0;
    bool told = texts && name < used;
    snprintf(out, cap, "%s", told ? texts + name : "unknown");
    free(texts);
    return told;
}

/* ---- the way to it --------------------------------------------------------------------------- */

static void look_at_tls(struct doctor *doctor)
{
    bool is_on = strcmp(way(doctor, "tls"), "yes") == 0;
    bool is_verified = strcmp(way(doctor, "verified"), "yes") == 0;
    bool is_socket = way(doctor, "server")[0] == '/';
    if (is_on)
        found(doctor, is_verified ? FINE : WARNING, "TLS",
              is_verified ? "on, the server's certificate is verified"
                          : "on, but certificates are not verified",
              is_verified ? ""
                          : "anyone between here and the server can read and change all traffic: "
                            "give the CA as tls_ca instead of tls_insecure");
    else if (is_socket)
        found(doctor, FINE, "TLS", "off, on a unix socket", "");
    else
        found(doctor, NOTE, "TLS", "off",
              "passwords can be read on the way, and locks forged: use rediss:// unless the "
              "network is trusted");
}

static void look_at_sentinels(struct doctor *doctor)
{
    char text[640];
    int known = atoi(way(doctor, "sentinels"));
    snprintf(text, sizeof text, "service %.200s, master %.300s, %d sentinel%s known",
             way(doctor, "service"), way(doctor, "server"), known, known == 1 ? "" : "s");
    found(doctor, known < 3 ? NOTE : FINE, "topology", text,
          known < 3 ? "when one sentinel fails, no majority may be left for a failover: run three, "
                      "on different machines"
                    : "");
}

static void look_at_cluster(struct doctor *doctor)
{
    char text[sizeof((snib_error *)0)->text + 32];
    snib_error err;
    size_t used;
    char *texts = ask(doctor, SNIB_SERVER_CLUSTER, &used, &err);
    if (!texts) {
        snprintf(text, sizeof text, "cluster, unknown: %s", err.text);
        found(doctor, NOTE, "topology", text,
              "allow this user +cluster|info, to see masters and slots here");
        return;
    }
    int masters = atoi(value_in(texts, used, "cluster_size"));
    int served = atoi(value_in(texts, used, "cluster_slots_ok"));
    snprintf(text, sizeof text, "cluster of %d master%s, %s%d of 16384 slots served", masters,
             masters == 1 ? "" : "s", served == 16384 ? "all " : "", served);
    found(doctor,
          served != 16384 ? WARNING
          : masters < 3   ? NOTE
                          : FINE,
          "topology", text,
          served != 16384 ? "locks in the other slots fail: see CLUSTER SLOTS and CLUSTER NODES"
          : masters < 3   ? "replicas take over only if most of at least three masters agree"
                          : "");
    free(texts);
}

static void look_at_single(struct doctor *doctor)
{
    char text[400];
    int replicas = atoi(info(doctor, "connected_slaves"));
    snprintf(text, sizeof text, "one server, %.300s", way(doctor, "server"));
    found(doctor, replicas ? NOTE : FINE, "topology", text,
          replicas
              ? "a failover is not announced to this client: name the sentinels if there are any "
                "(redis+sentinel://), or an address that follows the master"
              : "");
}

static void look_at_topology(struct doctor *doctor)
{
    const char *deployment = way(doctor, "deployment");
    if (strcmp(deployment, "sentinel") == 0)
        look_at_sentinels(doctor);
    else if (strcmp(deployment, "cluster") == 0)
        look_at_cluster(doctor);
    else
        look_at_single(doctor);
}

/* ---- the server ------------------------------------------------------------------------------ */

/* Whether the server is a Redis, or what passes for one, of an earlier major version. */
static bool is_before(const struct doctor *doctor, int version)
{
    const char *redis = info(doctor, "redis_version");
    return *redis && !*info(doctor, "valkey_version") && atoi(redis) < version;
}

static void look_at_server(struct doctor *doctor)
{
    const char *valkey = info(doctor, "valkey_version");
    const char *version = *valkey ? valkey : info(doctor, "redis_version");
    const char *mode = info(doctor, "redis_mode");
    char text[256];
    if (!*mode)
        mode = info(doctor, "server_mode");
    snprintf(text, sizeof text, "%s %s, %s", *valkey ? "Valkey" : "Redis", *version ? version : "?",
             *mode ? mode : "?");
    bool old = is_before(doctor, 6);
    found(doctor, old ? BROKEN : FINE, "server", text,
          old ? "Redis 6.0 or newer, or Valkey, is needed" : "");
}

/* Redis applies the setting to scripts, which take all locks, since version 7.0. */
static void look_at_min_replicas(struct doctor *doctor)
{
    char least[64];
    bool told = setting(doctor, SNIB_SERVER_MIN_REPLICAS, least, sizeof least);
    bool none = told && strcmp(least, "0") == 0, exempt = is_before(doctor, 7);
    found(doctor,
          none || exempt ? WARNING
          : told         ? FINE
                         : NOTE,
          "min-replicas", least,
          exempt ? "before Redis 7.0 scripts, and so locks, are exempt from it, and an isolated "
                   "master keeps granting them: update the server, or use durability=1"
          : none ? "an isolated master keeps granting locks: set min-replicas-to-write 1 and "
                   "min-replicas-max-lag 2"
                 : "");
}

static void look_at_role(struct doctor *doctor)
{
    const char *role = info(doctor, "role"), *replicas = info(doctor, "connected_slaves");
    char text[128];
    snprintf(text, sizeof text, "%s, %s replica%s", *role ? role : "unknown",
             *replicas ? replicas : "?", strcmp(replicas, "1") == 0 ? "" : "s");
    if (strcmp(role, "slave") == 0)
        found(doctor, BROKEN, "role", text, "locks live on the master: give its address");
    else
        found(doctor, *role ? FINE : NOTE, "role", text,
              *role ? "" : "allow this user +info: a replica is recognised only by its refusals");
    if (atoi(replicas) > 0)
        look_at_min_replicas(doctor);
}

static void look_at_memory(struct doctor *doctor)
{
    const char *policy = info(doctor, "maxmemory_policy"), *limit = info(doctor, "maxmemory");
    bool evicts = *policy && strcmp(policy, "noeviction") != 0;
    bool limited = *limit && strcmp(limit, "0") != 0;
    char text[128];
    snprintf(text, sizeof text, "maxmemory %s, policy %s", *limit ? limit : "unknown",
             *policy ? policy : "unknown");
    found(doctor,
          evicts && limited    ? WARNING
          : evicts || !*policy ? NOTE
                               : FINE,
          "memory", text,
          evicts     ? "an evicted key is a lost lock: set maxmemory-policy noeviction"
          : !*policy ? "INFO does not say it: see to it that the server evicts nothing"
                     : "");
}

static void look_at_persistence(struct doctor *doctor)
{
    char fsync[64], text[128];
    const char *enabled = info(doctor, "aof_enabled");
    bool aof = strcmp(enabled, "1") == 0;
    bool failed = strcmp(info(doctor, "rdb_last_bgsave_status"), "err") == 0 ||
                  strcmp(info(doctor, "aof_last_write_status"), "err") == 0;
    bool told = false, always = false, never = false;
    if (aof) {
        told = setting(doctor, SNIB_SERVER_FSYNC, fsync, sizeof fsync);
        always = told && strcmp(fsync, "always") == 0;
        never = told && strcmp(fsync, "no") == 0;
        snprintf(text, sizeof text, "append-only file, appendfsync %s", fsync);
    } else {
        snprintf(text, sizeof text, "%s", *enabled ? "no append-only file" : "unknown");
    }
    if (failed)
        found(doctor, WARNING, "persistence", "the last write to disk failed",
              "the server may refuse writes at any time (MISCONF): check its log");
    found(doctor, always ? FINE : NOTE, "persistence", text,
          always  ? ""
          : never ? "a crash of the machine forgets the locks of the last half minute"
          : told  ? "a crash forgets the locks of the last second"
          : aof   ? "unless that is always, a crash forgets the last locks"
          : !*enabled
              ? "INFO does not say whether there is an append-only file: without one, a restart "
                "forgets locks"
              : "a restart brings back the locks of the last snapshot, or none; holders learn of "
                "it when they are connected again");
}

static void look_at_clock(struct doctor *doctor)
{
    struct timespec before, after;
    snib_error err;
    size_t used;
    char text[128];
    clock_gettime(CLOCK_REALTIME, &before);
    char *texts = ask(doctor, SNIB_SERVER_TIME, &used, &err);
    clock_gettime(CLOCK_REALTIME, &after);
    if (!texts) {
        found(doctor, WARNING, "clock", err.text,
              "fair, permits and quorum locks need TIME, and a step of the server's clock goes "
              "unnoticed without it: allow this user +time");
        return;
    }
    double server = strtod(texts, NULL) + strtod(texts + strlen(texts) + 1, NULL) / 1e6;
    double here = ((double)before.tv_sec + (double)before.tv_nsec / 1e9 + (double)after.tv_sec +
                   (double)after.tv_nsec / 1e9) /
                  2;
    double apart = server - here;
    bool far = apart > 5 || apart < -5;
    snprintf(text, sizeof text, "%.3f s %s this machine's", apart < 0 ? -apart : apart,
             apart < 0 ? "behind" : "ahead of");
    found(doctor, far ? NOTE : FINE, "clock", text,
          far ? "no lock depends on it, but one of the clocks will be set: slew it, never step it"
              : "");
    free(texts);
}

static void look_at_login(struct doctor *doctor)
{
    char text[128];
    snib_error err;
    size_t used;
    char *user = ask(doctor, SNIB_SERVER_USER, &used, &err);
    snprintf(text, sizeof text, "%.100s", user ? user : "unknown");
    bool all = user && strcmp(user, "default") == 0;
    found(doctor, all ? NOTE : FINE, "user", text,
          all ? "give each application its own user: see snib acl" : "");
    free(user);
    if (setting(doctor, SNIB_SERVER_IDLE_TIMEOUT, text, sizeof text) && strcmp(text, "0") != 0)
        found(doctor, NOTE, "idle timeout", text,
              "idle connections are closed after this many seconds and reopened: 0 is better");
}

/* ---- rights ---------------------------------------------------------------------------------- */

static const struct trial {
    const char *kind_name;
    int32_t kind;
    bool is_announced; /* one holder at a time, whose release is announced */
} trials[] = {
    {"mutex", SNIB_MUTEX, true},
    {"fenced", SNIB_FENCED, true},
    {"fair", SNIB_FAIR, true},
    {"read", SNIB_READ, false},
    {"write", SNIB_WRITE, true},
    {"spin", SNIB_SPIN, false},
    {"plain", SNIB_PLAIN, true},
    {"permits", SNIB_PERMITS, false},
    {"semaphore", SNIB_SEMAPHORE, false},
    {"latch", SNIB_LATCH, false},
};

/* Set and open a latch, which has no holder. */
static int try_latch(snib_lock *lock, snib_error *err)
{
    int64_t left;
    int code = snib_latch_count(lock, SNIB_COUNT_INIT, 1, &left, err);
    return code != SNIB_OK ? code : snib_latch_count(lock, SNIB_COUNT_DOWN, 0, &left, err);
}

/* Take the lock with one client, wait for it briefly with another, and release it; SNIB_OK or the error's code.  Busy is
 * not an error: another doctor may be running.  Nor is it one that this has forced a release meanwhile. */
static int try_lock(snib_lock *lock, snib_lock *waiter, int32_t kind, snib_error *err)
{
    snib_hold *hold = NULL, *other = NULL;
    int64_t left;
    int code = SNIB_OK;
    bool is_forced = kind == SNIB_PERMITS || kind == SNIB_SEMAPHORE; /* to leave no count behind */
    if (kind == SNIB_LATCH)
        return try_latch(lock, err);
    if (kind == SNIB_SEMAPHORE) /* it has no lease, so a doctor that was ended has left it taken */
        snib_lock_force_release(lock, err);
    if (kind == SNIB_PERMITS)
        code = snib_permits_count(lock, SNIB_COUNT_INIT, 1, &left, err);
    else if (kind == SNIB_SEMAPHORE)
        code = snib_semaphore_count(lock, SNIB_COUNT_INIT, 1, &left, err);
    if (code == SNIB_OK)
        code = snib_lock_acquire(lock, 0, 0, &hold, err);
    if (code == SNIB_OK)
        code = snib_lock_acquire(waiter, 0, DOCTOR_WAIT_MS, &other, err);
    if (hold && (code == SNIB_OK || code == SNIB_TIMEDOUT))
        code = snib_hold_release(hold, err);
    snib_hold_free(hold);
    snib_hold_free(other);
    if (code == SNIB_OK && is_forced)
        code = snib_lock_force_release(lock, err);
    if (is_forced && (code == SNIB_LOST || code == SNIB_NOT_HELD))
        code = SNIB_OK;
    return code == SNIB_BUSY ? SNIB_OK : code;
}

/* The name of a lock that is tried; one that is too long for a name stays so. */
static void write_name(const struct doctor *doctor, const char *what, char *out, size_t cap)
{
    snprintf(out, cap, "%ssnib-doctor-%s", doctor->cli->name ? doctor->cli->name : "", what);
}

static uint64_t counted(const struct doctor *doctor, size_t field)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    uint64_t value = 0;
    if (snib_client_stats(doctor->client, &stats, NULL) == SNIB_OK)
        memcpy(&value, (const char *)&stats + field, sizeof value);
    return value;
}

static void note_polling(struct doctor *doctor, const struct trial *trial)
{
    size_t n = strlen(doctor->polling);
    snprintf(doctor->polling + n, sizeof doctor->polling - n, "%s%s", n > 0 ? ", " : "",
             trial->kind_name);
}

static void look_at_kind(struct doctor *doctor, const struct trial *trial)
{
    char name[600];
    snib_lock *lock = NULL, *waiter = NULL;
    snib_lock_options options;
    snib_error err;
    write_name(doctor, trial->kind_name, name, sizeof name);
    snib_lock_options_init(&options, sizeof options);
    if (trial->kind != SNIB_SEMAPHORE && trial->kind != SNIB_LATCH)
        options.lease_ms = 10000;
    size_t n = strlen(name);
    uint64_t before = counted(doctor, offsetof(snib_client_stats_data, polling));
    int code = snib_lock_new(doctor->other, trial->kind, name, n, &options, &lock, &err);
    if (code == SNIB_OK)
        code = snib_lock_new(doctor->client, trial->kind, name, n, &options, &waiter, &err);
    if (code == SNIB_OK)
        code = try_lock(lock, waiter, trial->kind, &err);
    snib_lock_free(lock);
    snib_lock_free(waiter);
    found(doctor, code == SNIB_OK ? FINE : BROKEN, trial->kind_name,
          code == SNIB_OK ? "works" : err.text,
          code != SNIB_EPERM ? ""
          : doctor->cli->name
              ? "snib acl prints the rules that this kind needs"
              : "snib acl prints the rules that this kind needs; a user who may use "
                "only some names needs snib doctor PREFIX");
    if (counted(doctor, offsetof(snib_client_stats_data, polling)) > before)
        note_polling(doctor, trial);
    else if (code == SNIB_OK && trial->is_announced && !doctor->announced)
        doctor->announced = trial;
}

/* Whether a waiting client gets a message when another client releases the lock.  A message of some
 * other publisher on the channel at the same time proves as much. */
static bool hears(struct doctor *doctor)
{
    char name[600];
    snib_lock *lock = NULL, *waiter = NULL;
    snib_hold *hold = NULL, *next = NULL;
    snib_op *op = NULL;
    snib_event event = {.size = sizeof event};
    snib_error err;
    uint64_t before = counted(doctor, offsetof(snib_client_stats_data, messages));
    int32_t kind = doctor->announced->kind;
    write_name(doctor, doctor->announced->kind_name, name, sizeof name);
    size_t n = strlen(name);
    bool told = true; /* unless the trial shows otherwise */
    if (snib_lock_new(doctor->other, kind, name, n, NULL, &lock, &err) == SNIB_OK &&
        snib_lock_new(doctor->client, kind, name, n, NULL, &waiter, &err) == SNIB_OK &&
        snib_lock_acquire(lock, 0, 0, &hold, &err) == SNIB_OK &&
        snib_lock_acquire_submit(waiter, 0, -1, NULL, 0, &op, &err) == SNIB_OK) {
        snib_op_wait(op, DOCTOR_WAIT_MS, &event, &err); /* it subscribes */
        snib_hold_release(hold, &err);
        if (snib_op_wait(op, DOCTOR_HEAR_MS, &event, &err) == SNIB_OK && event.code == SNIB_OK) {
            next = event.hold;
            told = counted(doctor, offsetof(snib_client_stats_data, messages)) > before;
        } else {
            snib_op_free(op);
        }
    }
    if (next)
        snib_hold_release(next, &err);
    snib_hold_free(next);
    snib_hold_free(hold);
    snib_lock_free(waiter);
    snib_lock_free(lock);
    return told;
}

/* Take a lock that waits for a replica, and release it; SNIB_OK with the number of replicas that
 * had it, or the error's code. */
static int try_replica(snib_client *client, const char *name, int64_t *out_had, snib_error *err)
{
    snib_lock *lock = NULL;
    snib_hold *hold = NULL;
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = 10000;
    int code = snib_lock_new(client, SNIB_MUTEX, name, strlen(name), &options, &lock, err);
    if (code == SNIB_OK)
        code = snib_lock_acquire(lock, 0, 0, &hold, err);
    if (code == SNIB_OK) {
        *out_had = snib_hold_replicas(hold);
        snib_hold_release(hold, NULL);
    }
    snib_hold_free(hold);
    snib_lock_free(lock);
    return code;
}

/* What the option durability would do here. */
static void look_at_replicas(struct doctor *doctor)
{
    char name[600], text[640];
    snib_client *client = NULL;
    snib_error err;
    const char *connected = info(doctor, "connected_slaves");
    if (atoi(connected) == 0)
        return;
    write_name(doctor, "replicas", name, sizeof name);
    int64_t had = 0;
    int code = cli_open_durable(doctor->cli, &client, &err);
    if (code == SNIB_OK)
        code = try_replica(client, name, &had, &err);
    snib_client_free(client);
    if (code == SNIB_BUSY) /* another doctor is running */
        return;
    if (had > 0)
        snprintf(text, sizeof text, "%" PRId64 " of %.20s connected replicas had a grant at once",
                 had, connected);
    else
        snprintf(text, sizeof text, "%.500s",
                 code == SNIB_OK ? "no replica had a grant in time" : err.text);
    found(doctor, had > 0 ? FINE : NOTE, "durability", text,
          had > 0 ? ""
                  : "the option durability has no effect or fails: allow this user +wait, and "
                    "check the replicas");
}

/* The trials' waiters have subscribed, or were refused and polled. */
static void look_at_messages(struct doctor *doctor)
{
    char text[160];
    snprintf(text, sizeof text, "SUBSCRIBE is refused for %s", doctor->polling);
    if (doctor->polling[0])
        found(doctor, WARNING, "messages", text,
              "these waiters ask ten times a second instead: allow +subscribe and the channels, "
              "see snib acl");
    else if (doctor->announced)
        found(doctor, FINE, "messages", "work", "");
    else
        found(doctor, NOTE, "messages", "unknown: no lock that could show it works", "");
    if (doctor->announced && !hears(doctor))
        found(doctor, WARNING, "publish", "releases are not announced: PUBLISH is refused",
              "waiters notice only after 3 seconds: allow +publish and the channels, see snib acl");
}

/* Commands that Snib does without if they are refused. */
static void look_at_commands(struct doctor *doctor)
{
    static const struct {
        int32_t what;
        const char *name, *advice;
    } commands[] = {
        {SNIB_SERVER_CONNECTION, "CLIENT ID",
         "an old connection cannot be killed after a break, so requests left unread on it may "
         "still be carried out, until a lease ends: allow +client|id and +client|kill"},
        {SNIB_SERVER_LOAD, "SCRIPT LOAD",
         "scripts are sent whole, by EVAL, where the server does not know them: allow "
         "+script|load, or let another user run snib scripts"},
        {SNIB_SERVER_MIN_REPLICAS, "CONFIG", "only snib doctor reads settings: no lock needs it"},
        {SNIB_SERVER_ROLE, "ROLE", "the role is taken from INFO: no lock needs it"},
        {SNIB_SERVER_WAIT, "WAIT", "the option durability has no effect: allow +wait"},
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        snib_error err;
        size_t used;
        char *texts = ask(doctor, commands[i].what, &used, &err);
        if (!texts)
            found(doctor, NOTE, commands[i].name,
                  err.code == SNIB_EPERM     ? "this user may not run it"
                  : err.code == SNIB_ENOTSUP ? "the server does not know it"
                                             : err.text,
                  commands[i].advice);
        free(texts);
    }
}

/* Whether this user may see which processes are behind owners, its own for example. */
static void look_at_identities(struct doctor *doctor)
{
    static char texts[1 << 16];
    char id[37];
    size_t used;
    uint32_t count;
    snib_error err;
    if (snib_client_id(doctor->client, id, &err) == SNIB_OK &&
        snib_client_identity(doctor->client, id, strlen(id), texts, sizeof texts, &used, &count,
                             &err) != SNIB_OK)
        found(
            doctor, NOTE, "identities", err.text,
            "snib info cannot say which process holds a lock: allow ~snib_client:* +getrange +set "
            "+del, see snib acl");
}

/* Whether this user may search for names; one step shows it. */
static void look_at_names(struct doctor *doctor)
{
    static char texts[1 << 16];
    uint64_t cursor = 0;
    size_t used;
    uint32_t count;
    snib_error err;
    if (snib_client_list(doctor->client, "snib-doctor-", strlen("snib-doctor-"), &cursor, texts,
                         sizeof texts, &used, &count, &err) != SNIB_OK)
        found(doctor, NOTE, "names", err.text,
              "snib list, top and stats do not work: allow +scan, see snib acl");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void look_at_all(struct doctor *doctor)
{
    snib_error err;
    doctor->way = ask(doctor, SNIB_SERVER_WAY, &doctor->way_used, &err);
    doctor->info = ask(doctor, SNIB_SERVER_INFO, &doctor->info_used, &err);
    look_at_tls(doctor);
    look_at_topology(doctor);
    if (!doctor->info) {
        found(doctor, WARNING, "info", err.text,
              "allow this user +info: without it eviction, restarts and replicas go unnoticed");
    } else {
        look_at_server(doctor);
        look_at_role(doctor);
        look_at_memory(doctor);
        look_at_persistence(doctor);
    }
    look_at_clock(doctor);
    look_at_login(doctor);
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++)
        look_at_kind(doctor, &trials[i]);
    look_at_messages(doctor);
    look_at_commands(doctor);
    look_at_replicas(doctor);
    look_at_identities(doctor);
    look_at_names(doctor);
}

static int finish_doctor(struct doctor *doctor)
{
    if (doctor->findings) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "worst", verdicts[doctor->worst]);
        cJSON_AddItemToObject(object, "findings", doctor->findings);
        cli_print_json(object);
    }
    free(doctor->info);
    free(doctor->way);
    return doctor->worst >= WARNING ? EXIT_FINDINGS : 0;
}

/* Said once, not for each kind; 0, or the exit code. */
static int check_prefix(const struct doctor *doctor)
{
    char name[600];
    snib_lock *lock;
    snib_error err;
    write_name(doctor, "semaphore", name, sizeof name); /* the longest */
    if (snib_lock_new(doctor->client, SNIB_SEMAPHORE, name, strlen(name), NULL, &lock, &err) !=
        SNIB_OK)
        return cli_fail(doctor->cli, &err);
    snib_lock_free(lock);
    return 0;
}

int cli_doctor(const struct cli *cli)
{
    struct doctor doctor = {.cli = cli};
    snib_error err;
    int code = cli_open(cli, &doctor.client);
    if (code == 0)
        code = cli_open_quietly(cli, &doctor.other);
    if (code != 0)
        return code;
    code = check_prefix(&doctor);
    if (code == 0 && snib_client_ping(doctor.client, -1, &err) != SNIB_OK) {
        code = cli_fail(cli, &err);
    } else if (code == 0) {
        doctor.findings = cli->is_json ? cJSON_CreateArray() : NULL;
        look_at_all(&doctor);
        code = finish_doctor(&doctor);
    }
    snib_client_free(doctor.other);
    cli_close(cli, doctor.client);
    return code;
}
