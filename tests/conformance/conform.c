/* conform.c - the C interpreter of conformance programs; README.md has the language.
 *
 *   conform PROGRAM SOCKET...
 *
 * A SOCKET memory://NAME is a memory server that it starts itself.
 */
#include <snib.h>

#include "conform.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORDS_MAX = 24, THINGS_MAX = 64, LIMIT_MS = 30000, DEBUG_HOLD_MS = 50 };

/* What a program has named.  A lock that could not be made keeps its error for its first use. */
struct thing {
    char name[32];
    snib_client *client;
    snib_lock *lock;
    int32_t kind;
    snib_hold *hold;
    snib_op *op;
    int code;
    snib_error error;
};

static struct thing things[THINGS_MAX];
static const char *server_socket;
static redisContext *server, *servers[SERVERS_MAX];
static char **server_sockets;
static int server_count, server_index;
static char *words[WORDS_MAX];
static int word_count;

void die(const char *what, const char *detail)
{
    fprintf(stderr, "conform: %s: %s\n", what, detail ? detail : "");
    exit(2);
}

static struct thing *thing(const char *name)
{
    if (!name)
        die("a name is missing in", words[0]);
    for (size_t i = 0; i < THINGS_MAX; i++) {
        if (things[i].name[0] == '\0')
            snprintf(things[i].name, sizeof things[i].name, "%s", name);
        if (strcmp(things[i].name, name) == 0)
            return &things[i];
    }
    die("too many names", name);
    return NULL;
}

static const char *option(const char *key)
{
    size_t n = strlen(key);
    for (int i = 1; i < word_count; i++)
        if (strncmp(words[i], key, n) == 0 && words[i][n] == '=')
            return words[i] + n + 1;
    return NULL;
}

static int64_t number(const char *key, int64_t otherwise)
{
    const char *value = option(key);
    return value ? strtoll(value, NULL, 10) : otherwise;
}

static void nap(void)
{
    nanosleep(&(struct timespec){0, 2000000}, NULL);
}

/* ---- Results --------------------------------------------------------------------------------- */

static void print_result(int code, const char *text)
{
    switch (code) {
    case SNIB_OK:
        puts("ok");
        break;
    case SNIB_BUSY:
        puts("busy");
        break;
    case SNIB_TIMEDOUT:
        puts("timedout");
        break;
    case SNIB_CANCELLED:
        puts("cancelled");
        break;
    case SNIB_NOT_HELD:
        puts("not_held");
        break;
    case SNIB_LOST:
        printf("lost: %s\n", text);
        break;
    default:
        printf("error %s: %s\n", snib_code_name(code), text);
    }
}

static void print_reply(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        printf("%lld", reply->integer);
    else if (reply->type == REDIS_REPLY_NIL)
        printf("nil");
    else if (reply->type != REDIS_REPLY_ARRAY)
        printf("%s%s", reply->type == REDIS_REPLY_ERROR ? "error " : "", reply->str);
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        printf("%s", i ? " " : "");
        print_reply(reply->element[i]);
    }
}

static redisReply *raw(int first)
{
    redisReply *reply =
        redisCommandArgv(server, word_count - first, (const char **)words + first, NULL);
    if (!reply)
        die("server", server->errstr);
    return reply;
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void run_client(void)
{
    struct thing *it = thing(words[1]);
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = number("lease", 0);
    options.patience_ms = options.try_timeout_ms = number("patience", LIMIT_MS);
    options.recheck_ms = number("recheck", 0);
    options.label = option("label");
    options.identity = number("identity", 0) ? 1 : -1; /* its key would be one more in DBSIZE */
    options.debug = 1; /* it changes no result; the other languages run without it */
    options.debug_hold_ms = number("debug_hold", DEBUG_HOLD_MS);
    char url[512];
    const char *user = option("user"), *db = option("db");
    bool memory = strncmp(server_socket, MEMORY, strlen(MEMORY)) == 0;
    snprintf(url, sizeof url, "%s%s%s%s%s%s", memory ? MEMORY : "unix://", user ? user : "",
             user ? "@" : "", server_socket + (memory ? strlen(MEMORY) : 0), db ? "?db=" : "",
             db ? db : "");
    snib_error error = {0};
    int code = snib_client_open(option("url") ? option("url") : url, &options, &it->client, &error);
    if (code == SNIB_OK)
        code = snib_client_ping(it->client, -1, &error);
    print_result(code, error.text);
}

static void run_close(void)
{
    snib_error error = {0};
    int code = snib_client_close(thing(words[1])->client, LIMIT_MS, &error);
    print_result(code, error.text);
}

static void run_server(void)
{
    int index = atoi(words[1]) - 1;
    if (index < 0 || index >= server_count)
        die("no such server", words[1]);
    server_index = index;
    server_socket = server_sockets[index];
    server = servers[index];
    puts("ok");
}

static void run_shutdown(void)
{
    if (memory_is(server_index)) {
        memory_stop(server_index);
        puts("ok");
        return;
    }
    freeReplyObject(redisCommand(server, "SHUTDOWN NOSAVE")); /* it answers by its end */
    puts(server->err ? "ok" : "stuck");
}

/* ---- Locks ----------------------------------------------------------------------------------- */

static snib_lock_options lock_options(void)
{
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = number("lease", 0);
    options.max_hold_ms = number("max_hold", 0);
    if (number("fenced", 0))
        options.flags |= SNIB_LOCK_FENCED;
    if (number("prefer_writer", 0))
        options.flags |= SNIB_LOCK_PREFER_WRITER;
    if (!number("quarantine", 1))
        options.flags |= SNIB_LOCK_NO_QUARANTINE;
    return options;
}

static int32_t lock_kind(void)
{
    static const char *const kinds[] = {"mutex", "fair",  "read",      "write",   "fenced",
                                        "spin",  "plain", "semaphore", "permits", "latch"};
    const char *kind = option("kind");
    for (int32_t i = 0; kind && i < (int32_t)(sizeof kinds / sizeof *kinds); i++)
        if (strcmp(kind, kinds[i]) == 0)
            return SNIB_MUTEX + i;
    if (kind)
        die("no such kind", kind);
    return SNIB_MUTEX;
}

static void run_lock(void)
{
    struct thing *it = thing(words[1]);
    snib_lock_options options = lock_options();
    snib_lock_free(it->lock);
    it->lock = NULL;
    it->kind = lock_kind();
    it->code = snib_lock_new(thing(words[2])->client, it->kind, words[3], strlen(words[3]),
                             &options, &it->lock, &it->error);
    putchar('\n');
}

typedef int combine(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                    snib_lock **out_lock, snib_error *err);

static void combine_locks(combine *combined)
{
    struct thing *it = thing(words[1]);
    snib_lock *members[WORDS_MAX];
    uint32_t n = 0;
    snib_lock_options options = lock_options();
    snib_lock_free(it->lock);
    it->lock = NULL;
    it->kind = SNIB_MUTEX;
    it->code = SNIB_OK;
    for (int i = 2; i < word_count && it->code == SNIB_OK; i++)
        if (!strchr(words[i], '=')) {
            struct thing *member = thing(words[i]);
            members[n++] = member->lock;
            it->code = member->code;
            it->error = member->error;
        }
    if (it->code == SNIB_OK)
        it->code = combined(members, n, &options, &it->lock, &it->error);
    putchar('\n');
}

static void run_multi(void)
{
    combine_locks(snib_multi_new);
}

static void run_quorum(void)
{
    combine_locks(snib_quorum_new);
}

static void run_acquire(void)
{
    struct thing *it = thing(words[1]), *lock = thing(words[2]);
    uint32_t n = (uint32_t)number("n", 1);
    int64_t wait = number("wait", -1);
    it->error = lock->error;
    it->code = lock->code;
    if (it->code == SNIB_OK && lock->kind == SNIB_SEMAPHORE)
        it->code = snib_semaphore_acquire(lock->lock, n, wait, &it->hold, &it->error);
    else if (it->code == SNIB_OK && lock->kind == SNIB_PERMITS)
        it->code = snib_permits_acquire(lock->lock, n, wait, &it->hold, &it->error);
    else if (it->code == SNIB_OK)
        it->code = snib_lock_acquire(lock->lock, (uint64_t)number("owner", 0), wait, &it->hold,
                                     &it->error);
    print_result(it->code, it->error.text);
}

static void run_submit(void)
{
    struct thing *it = thing(words[1]), *lock = thing(words[2]);
    uint32_t n = (uint32_t)number("n", 1);
    int64_t wait = number("wait", -1);
    int code;
    if (lock->kind == SNIB_LATCH)
        code = snib_latch_wait_submit(lock->lock, wait, NULL, 0, &it->op, &it->error);
    else if (lock->kind == SNIB_SEMAPHORE)
        code = snib_semaphore_acquire_submit(lock->lock, n, wait, NULL, 0, &it->op, &it->error);
    else if (lock->kind == SNIB_PERMITS)
        code = snib_permits_acquire_submit(lock->lock, n, wait, NULL, 0, &it->op, &it->error);
    else
        code = snib_lock_acquire_submit(lock->lock, 0, wait, NULL, 0, &it->op, &it->error);
    if (code != SNIB_OK)
        die("submit", it->error.text);
    puts("started");
}

/* The reader that the writer becomes: first take the one, then give back the other. */
static void run_downgrade(void)
{
    struct thing *it = thing(words[1]), *lock = thing(words[3]);
    int code =
        snib_lock_acquire(lock->lock, (uint64_t)number("owner", 0), 0, &it->hold, &it->error);
    if (code == SNIB_OK)
        code = snib_hold_release(thing(words[2])->hold, &it->error);
    print_result(code, it->error.text);
}

static void run_wait(void)
{
    struct thing *it = thing(words[1]);
    snib_error error = it->error;
    int code =
        it->code == SNIB_OK ? snib_latch_wait(it->lock, number("wait", -1), &error) : it->code;
    print_result(code, error.text);
}

static int32_t count_what(void)
{
    static const char *const whats[] = {"get",   "init",    "add",   "set",
                                        "total", "release", "drain", "down"};
    for (int32_t i = 0; i < (int32_t)(sizeof whats / sizeof *whats); i++)
        if (strcmp(words[2], whats[i]) == 0)
            return SNIB_COUNT_GET + i;
    die("no such thing to count", words[2]);
    return 0;
}

static void run_count(void)
{
    struct thing *it = thing(words[1]);
    int64_t n = word_count > 3 ? strtoll(words[3], NULL, 10) : 0, value = 0;
    snib_error error = it->error;
    int32_t what = count_what();
    int code = it->code;
    if (code == SNIB_OK && it->kind == SNIB_SEMAPHORE)
        code = snib_semaphore_count(it->lock, what, n, &value, &error);
    else if (code == SNIB_OK && it->kind == SNIB_PERMITS)
        code = snib_permits_count(it->lock, what, n, &value, &error);
    else if (code == SNIB_OK)
        code = snib_latch_count(it->lock, what, n, &value, &error);
    if (code == SNIB_OK)
        printf("%lld\n", (long long)value);
    else
        print_result(code, error.text);
}

static void run_await(void)
{
    struct thing *it = thing(words[1]);
    snib_event event = {.size = sizeof event};
    if (snib_op_wait(it->op, LIMIT_MS, &event, &it->error) != SNIB_OK) {
        puts("stuck");
        return;
    }
    it->hold = event.hold;
    print_result(event.code, event.text);
}

static void run_cancel(void)
{
    snib_op_cancel(thing(words[1])->op); /* SNIB_EHANDLE: it has just ended, which await shows */
    run_await();
}

static void run_waiting(void)
{
    struct thing *it = thing(words[1]);
    uint64_t want = strtoull(words[2], NULL, 10);
    snib_client_stats_data stats = {.size = sizeof stats};
    for (int i = 0; i < LIMIT_MS / 2; i++, nap()) {
        if (snib_client_stats(it->client, &stats, NULL) == SNIB_OK && stats.waiting == want) {
            puts("ok");
            return;
        }
    }
    puts("stuck");
}

/* A request on a link whose end has not been noticed yet may have been applied; one without a link was not. */
static void run_gone(void)
{
    struct thing *it = thing(words[1]);
    int code = SNIB_OK;
    for (int i = 0; i < LIMIT_MS / 2 && code != SNIB_ECONNECT; i++, nap())
        code = snib_client_ping(it->client, -1, NULL);
    puts(code == SNIB_ECONNECT ? "ok" : "stuck");
}

static void run_warnings(void)
{
    struct thing *it = thing(words[1]);
    uint64_t want = strtoull(words[2], NULL, 10);
    snib_client_stats_data stats = {.size = sizeof stats};
    for (int i = 0; i < LIMIT_MS / 2; i++, nap()) {
        if (snib_client_stats(it->client, &stats, NULL) == SNIB_OK && stats.debug_warnings >= want)
            break;
    }
    printf("%llu\n", (unsigned long long)stats.debug_warnings);
}

static void run_losses(void)
{
    snib_client_stats_data s = {.size = sizeof s};
    snib_error error = {0};
    int code = snib_client_stats(thing(words[1])->client, &s, &error);
    if (code != SNIB_OK)
        print_result(code, error.text);
    else
        printf("%llu\n", (unsigned long long)(s.lost_expired + s.lost_taken + s.lost_deleted +
                                              s.lost_unreachable + s.lost_max_hold + s.lost_closed +
                                              s.lost_failover));
}

static void run_label(void)
{
    snib_error error = {0};
    const char *label = word_count > 2 ? words[2] : NULL;
    int code = snib_client_set_label(thing(words[1])->client, label, &error);
    print_result(code, error.text);
}

/* ---- Holds and questions --------------------------------------------------------------------- */

static void run_release(void)
{
    snib_error error = {0};
    int code = snib_hold_release(thing(words[1])->hold, &error);
    print_result(code, error.text);
}

static void run_check(void)
{
    snib_error error = {0};
    int code = snib_hold_check(thing(words[1])->hold, &error);
    print_result(code, error.text);
}

static void run_extend(void)
{
    snib_error error = {0};
    int code = snib_hold_extend(thing(words[1])->hold, atoll(words[2]), &error);
    print_result(code, error.text);
}

static void run_remaining(void)
{
    puts(snib_hold_remaining_ms(thing(words[1])->hold) > 0 ? "some" : "none");
}

static void run_token(void)
{
    printf("%lld\n", (long long)snib_hold_token(thing(words[1])->hold));
}

static void run_lost(void)
{
    if (snib_hold_wait(thing(words[1])->hold, LIMIT_MS, NULL, NULL) == SNIB_LOST)
        run_check();
    else
        puts("stuck");
}

static void run_info(void)
{
    struct thing *it = thing(words[1]);
    snib_lock_info_data info = {.size = sizeof info};
    snib_error error = it->error;
    int code = it->code == SNIB_OK ? snib_lock_info(it->lock, &info, &error) : it->code;
    if (code != SNIB_OK)
        print_result(code, error.text);
    else if (!info.held)
        puts("free");
    else
        printf("held mine=%d count=%lld waiting=%lld leased=%d token=%lld\n", info.mine,
               (long long)info.count, (long long)info.waiting, info.remaining_ms > 0,
               (long long)info.token);
}

/* The value of "word value" among n texts; NULL: there is none. */
static const char *value_of(const char *text, uint32_t n, const char *word)
{
    size_t len = strlen(word);
    for (; n > 0; n--, text += strlen(text) + 1)
        if (strncmp(text, word, len) == 0 && text[len] == ' ')
            return text + len + 1;
    return NULL;
}

/* The same for a number above 0, else NULL. */
static const char *number_of(const char *text, uint32_t n, const char *word)
{
    const char *value = value_of(text, n, word);
    return value && *value && strspn(value, "0123456789") == strlen(value) && atoll(value) > 0
               ? value
               : NULL;
}

/* Since when this owner has its hold. */
/* "held <number>", the beginning of a line about the owner's hold. */
static const char *about(const char *what, const char *owner)
{
    static char word[64];
    const char *colon = strchr(owner, ':');
    snprintf(word, sizeof word, "%s %.20s", what, colon ? colon + 1 : "-");
    return word;
}

static const char *now_or(const char *seconds)
{
    return llabs(atoll(seconds) - (long long)time(NULL)) < 3600 ? "now" : seconds;
}

/* Values of this process are not told: they differ from run to run.  False: there are none. */
static bool print_identity(const char *text, uint32_t n, const char *owner)
{
    char own[256] = "";
    const char *host = value_of(text, n, "host"), *pid = number_of(text, n, "pid"),
               *program = value_of(text, n, "program"), *since = number_of(text, n, "since"),
               *label = value_of(text, n, "label");
    const char *held = number_of(text, n, about("held", owner)),
               *losses = number_of(text, n, "losses");
    bool ours = pid && atoll(pid) == (long long)getpid();
    gethostname(own, sizeof own - 1);
    if (host)
        printf(" host=%s", strcmp(host, own) == 0 ? "ours" : host);
    if (pid)
        printf(" pid=%s", ours ? "ours" : pid);
    if (program)
        printf(" program=%s", ours ? "ours" : program);
    if (since)
        printf(" since=%s", now_or(since));
    if (held && option("held"))
        printf(" held=%s", now_or(held));
    if (option("taken")) {
        const char *at = value_of(text, n, about("at", owner));
        const char *by = value_of(text, n, about("by", owner));
        if (at)
            printf(" at=%s", at);
        if (by)
            printf(" by=%s", by);
    }
    if (losses)
        printf(" losses=%s", losses);
    if (label)
        printf(" label=%s", label);
    return host || pid || program || since || held || losses || label;
}

static void run_who(void)
{
    static char buffer[65536];
    struct thing *it = thing(words[2]);
    snib_lock_info_data info = {.size = sizeof info};
    snib_error error = {0};
    size_t used = 0;
    uint32_t count = 0;
    int code = snib_lock_info(it->lock, &info, &error);
    if (code != SNIB_OK) {
        print_result(code, error.text);
        return;
    }
    snib_client_identity(thing(words[1])->client, info.owner, strlen(info.owner), buffer,
                         sizeof buffer, &used, &count, NULL);
    printf(info.held ? "held" : "free");
    bool known = print_identity(buffer, count, info.owner);
    puts(info.held && !known ? " by unknown" : "");
}

static void run_force(void)
{
    struct thing *it = thing(words[1]);
    snib_error error = it->error;
    int code = it->code == SNIB_OK ? snib_lock_force_release(it->lock, &error) : it->code;
    print_result(code, error.text);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void run_list(void)
{
    static char buffer[65536], *names[256];
    struct thing *it = thing(words[1]);
    size_t count = 0, used;
    uint64_t cursor = 0;
    uint32_t found;
    do {
        snib_error error = {0};
        int code = snib_client_list(it->client, words[2], strlen(words[2]), &cursor, buffer,
                                    sizeof buffer, &used, &found, &error);
        if (code != SNIB_OK) {
            print_result(code, error.text);
            return;
        }
        for (char *name = buffer; found > 0; found--, name += strlen(name) + 1)
            names[count++] = strdup(name);
    } while (cursor);
    qsort(names, count, sizeof *names, by_text);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            printf("%s%s", i ? " " : "", names[i]);
    while (count > 0)
        free(names[--count]);
    putchar('\n');
}

/* One text of a description, without what differs from run to run, and without zeros: not every
 * language can tell those from nothing. */
static void print_described(const char *text, const char *client_id)
{
    char word[16], owner[128];
    long long left, count;
    int n = sscanf(text, "%15s %127s %lld %lld", word, owner, &left, &count);
    if (n < 3) {
        if (strcmp(owner, "0") != 0)
            printf(", %s", text);
        return;
    }
    bool mine = strncmp(owner, client_id, 36) == 0;
    printf(", %s", word);
    if (strcmp(word, "permit") != 0)
        printf(" %s", mine ? "mine" : "foreign");
    printf(" %s", left > 0 ? "leased" : "unleased");
    if (n == 4)
        printf(" %lld", count);
}

static void run_describe(void)
{
    static char buffer[65536];
    static const char *const order[] = {"holder", "reader",    "permit", "waiter", "token",
                                        "total",  "available", "count",  "waiting"};
    struct thing *it = thing(words[1]);
    size_t used;
    uint32_t count;
    char id[37] = "";
    snib_error error = {0};
    snib_client_id(it->client, id, NULL);
    int code = snib_client_describe(it->client, words[2], strlen(words[2]), buffer, sizeof buffer,
                                    &used, &count, &error);
    if (code != SNIB_OK) {
        print_result(code, error.text);
        return;
    }
    printf("%s", buffer + strlen("kind "));
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        for (const char *text = buffer; text < buffer + used; text += strlen(text) + 1)
            if (strncmp(text, order[i], strlen(order[i])) == 0 && text[strlen(order[i])] == ' ')
                print_described(text, id);
    putchar('\n');
}

/* ---- The server ------------------------------------------------------------------------------ */

static void run_raw(void)
{
    redisReply *reply = raw(1);
    print_reply(reply);
    putchar('\n');
    freeReplyObject(reply);
}

static void run_until(void)
{
    for (int i = 0; i < LIMIT_MS / 2; i++, nap()) {
        char text[64];
        redisReply *reply = raw(2);
        if (reply->type == REDIS_REPLY_INTEGER)
            snprintf(text, sizeof text, "%lld", reply->integer);
        else
            snprintf(text, sizeof text, "%s", reply->type == REDIS_REPLY_NIL ? "nil" : reply->str);
        freeReplyObject(reply);
        if (strcmp(text, words[1]) == 0) {
            puts(text);
            return;
        }
    }
    puts("stuck");
}

static void must_do(const char *command, const char *argument)
{
    redisReply *reply = redisCommand(server, command, argument);
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        die(command, reply ? reply->str : server->errstr);
    freeReplyObject(reply);
}

static void run_kill(void)
{
    must_do("CLIENT KILL TYPE %s SKIPME yes", words[1]);
    puts("ok");
}

static void run_sick(void)
{
    bool on = strcmp(words[2], "on") == 0;
    if (memory_is(server_index))
        memory_fault(server_index, words[1], words[2]);
    else if (strcmp(words[1], "oom") == 0)
        must_do("CONFIG SET maxmemory %s", on ? "1" : "0");
    else if (strcmp(words[1], "noreplicas") == 0)
        must_do("CONFIG SET min-replicas-to-write %s", on ? "1" : "0");
    else if (strcmp(words[1], "readonly") == 0)
        must_do(on ? "REPLICAOF 127.0.0.1 %s" : "REPLICAOF NO %s", on ? "1" : "ONE");
    else
        die("no such state", words[1]);
    puts("ok");
}

static const struct {
    const char *name;
    int words_min;
    void (*run)(void);
} operations[] = {
    {"client", 2, run_client},       {"close", 2, run_close},
    {"server", 2, run_server},       {"shutdown", 1, run_shutdown},
    {"lock", 4, run_lock},           {"multi", 2, run_multi},
    {"quorum", 2, run_quorum},       {"acquire", 3, run_acquire},
    {"submit", 3, run_submit},       {"await", 2, run_await},
    {"cancel", 2, run_cancel},       {"waiting", 3, run_waiting},
    {"downgrade", 4, run_downgrade}, {"wait", 2, run_wait},
    {"count", 3, run_count},         {"who", 3, run_who},
    {"losses", 2, run_losses},       {"release", 2, run_release},
    {"check", 2, run_check},         {"extend", 3, run_extend},
    {"remaining", 2, run_remaining}, {"token", 2, run_token},
    {"lost", 2, run_lost},           {"info", 2, run_info},
    {"force", 2, run_force},         {"list", 3, run_list},
    {"describe", 3, run_describe},   {"raw", 2, run_raw},
    {"until", 3, run_until},         {"kill", 2, run_kill},
    {"gone", 2, run_gone},           {"sick", 3, run_sick},
    {"label", 2, run_label},         {"warnings", 3, run_warnings},
};

/* ---- The program ----------------------------------------------------------------------------- */

static void decode(char *word)
{
    char *out = word;
    for (; *word; word++)
        if (*word == '%' && word[1] && word[2]) {
            char hex[3] = {word[1], word[2], '\0'};
            *out++ = (char)strtoul(hex, NULL, 16);
            word += 2;
        } else {
            *out++ = *word;
        }
    *out = '\0';
}

static void run_line(char *line)
{
    line[strcspn(line, "#\n")] = '\0';
    char shown[2048];
    snprintf(shown, sizeof shown, "%s", line);
    word_count = 0;
    for (char *rest = line, *word; word_count < WORDS_MAX && (word = strtok_r(rest, " ", &rest));) {
        decode(word);
        words[word_count++] = word;
    }
    if (word_count == 0)
        return;
    for (size_t n = strlen(shown); n > 0 && shown[n - 1] == ' ';)
        shown[--n] = '\0';
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (strcmp(operations[i].name, words[0]) == 0 && word_count >= operations[i].words_min) {
            void (*run)(void) = operations[i].run;
            bool names = run == run_lock || run == run_multi || run == run_quorum;
            printf("%s%s", shown, names ? "" : " -> ");
            run();
            return;
        }
    die("no such operation", shown);
}

int main(int argc, char **argv)
{
    FILE *program = argc >= 3 && argc <= 2 + SERVERS_MAX ? fopen(argv[1], "r") : NULL;
    if (!program)
        die("usage", "conform PROGRAM SOCKET...");
    server_sockets = argv + 2;
    server_count = argc - 2;
    for (int i = 0; i < server_count; i++) {
        bool memory = strncmp(server_sockets[i], MEMORY, strlen(MEMORY)) == 0;
        servers[i] =
            memory ? connect_memory(server_sockets[i], i) : redisConnectUnix(server_sockets[i]);
        if (!servers[i] || servers[i]->err)
            die("server", servers[i] ? servers[i]->errstr : NULL);
    }
    server_socket = server_sockets[0];
    server = servers[0];
    setvbuf(stdout, NULL, _IOLBF, 0); /* somebody may be giving it line by line */
    char line[2048];
    while (fgets(line, sizeof line, program))
        run_line(line);
    for (size_t i = 0; i < THINGS_MAX; i++) {
        snib_hold_free(things[i].hold);
        snib_lock_free(things[i].lock);
        snib_client_free(things[i].client);
    }
    return 0;
}
