/* model_check.c - the model server answers as a real one does.
 *
 * Random commands, from a seed, go to the model and to a real server on a private unix socket, over
 * several connections each; every reply and every pushed message must be equal.  The commands are
 * those that the library sends and those that a test may use to interfere, with right and wrong
 * arguments and types, every script of the library, and small scripts for each rule of reply
 * conversion; meanwhile the server is now and then out of memory, a replica, unable to save, or
 * closed to channels.
 *
 *     model_check [--calls N] [--seed S]
 *
 * Without --seed it is made of SNIB_SIM_DRAW, which may be any word, such as a commit, so that each sees other calls; without
 * that it is 1.  Of SNIB_SIM_SEEDS, each 10,000 add the calls of one more seed.
 *
 * The server is $SNIB_TEST_SERVER, else redis-server.  The model claims to be a 7.0; against
 * another version only the first word of an error text counts.
 *
 * The model's clock is the real one, read before each call.  Leases are very short or long, and no
 * call is made while a key is about to expire, so that only running TTLs may differ, by the time
 * between the two clock readings.
 *
 * Finally, bugs are planted in the model; each must be found, or the check proves nothing.  Their calls are the same every
 * time, so that it is no chance whether they are.
 */
#include "model_commands.h"
#include "model_server.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ULL
/* Scripts copy the rest of a lease from key to key, and each copy adds a lag. */
#define LAG_COPIES 4
#define LAG_MAX (15 * MS) /* a slower call may have seen another set of keys */

enum plant { PLANT_NONE, PLANT_CLOCK, PLANT_OOM, PLANT_RELEASE, PLANT_MESSAGE, PLANT_COUNT };

static struct {
    char dir[64], socket[80];
    pid_t pid;
    redisContext *admin;
    bool is_7_0;
    bool saves_fail;
} server;

static struct {
    model *m;
    redisContext *real[LINKS];
    long long real_id[LINKS];
    uint64_t model_id[LINKS];
    redisReader *reader[LINKS];
    unsigned faults;
    uint64_t lag; /* the longest call since the keys were flushed */
    enum plant plant;
    unsigned long calls, replies, errors, pushes, skipped, scripts, toggles;
} world;

static struct {
    unsigned long calls, replies, errors, pushes, skipped, scripts, toggles;
} totals; /* of all sets of calls */

/* ---- Helpers ------------------------------------------------------------------------------------ */

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void nap(uint64_t ns)
{
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)},
        NULL);
}

static void die(const char *what)
{
    fprintf(stderr, "model_check: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* ---- The real server ---------------------------------------------------------------------------- */

static void admin(const char *command)
{
    redisReply *reply = redisCommand(server.admin, command);
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        die(reply == NULL ? server.admin->errstr : reply->str);
    }
    freeReplyObject(reply);
}

static bool info_says(const char *text)
{
    redisReply *reply = redisCommand(server.admin, "INFO");
    if (reply == NULL) {
        die(server.admin->errstr);
    }
    bool found = strstr(reply->str, text) != NULL;
    freeReplyObject(reply);
    return found;
}

static void stop_server(void)
{
    if (server.pid > 0) {
        kill(server.pid, SIGKILL);
        waitpid(server.pid, NULL, 0);
        char path[128];
        snprintf(path, sizeof path, "%s/dump", server.dir);
        rmdir(path);
        unlink(server.socket);
        rmdir(server.dir);
        server.pid = 0;
    }
}

static void start_server(void)
{
    const char *binary = getenv("SNIB_TEST_SERVER");
    pid_t parent = getpid();
    if (binary == NULL || *binary == '\0') {
        binary = "redis-server";
    }
    snprintf(server.dir, sizeof server.dir, "/tmp/snib-model-XXXXXX");
    if (mkdtemp(server.dir) == NULL) {
        die("mkdtemp");
    }
    snprintf(server.socket, sizeof server.socket, "%s/s", server.dir);
    server.pid = fork();
    if (server.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            execlp(binary, binary, "--port", "0", "--unixsocket", server.socket, "--save", "",
                   "--dir", server.dir, "--dbfilename", "dump", "--loglevel", "warning",
                   "--logfile", "/dev/null", (char *)NULL);
        }
        _exit(127);
    }
    atexit(stop_server);
    for (;;) {
        server.admin = redisConnectUnix(server.socket);
        if (server.admin != NULL && server.admin->err == 0) {
            break;
        }
        redisFree(server.admin);
        if (waitpid(server.pid, NULL, WNOHANG) != 0) {
            die(binary);
        }
        nap(MS);
    }
    server.is_7_0 = info_says("redis_version:7.0.") && !info_says("valkey");
}

/* A snapshot cannot replace a directory; from then on it fails whenever saving is on. */
static void make_saves_fail(void)
{
    char path[128];
    if (server.saves_fail) {
        return;
    }
    snprintf(path, sizeof path, "%s/dump", server.dir);
    if (mkdir(path, 0700) != 0) {
        die(path);
    }
    admin("BGSAVE");
    while (!info_says("rdb_last_bgsave_status:err")) {
        nap(MS);
    }
    server.saves_fail = true;
}

static void set_faults(unsigned faults)
{
    unsigned changed = faults ^ world.faults;
    if (changed & MODEL_OOM) {
        admin(faults & MODEL_OOM ? "CONFIG SET maxmemory 1" : "CONFIG SET maxmemory 0");
    }
    if (changed & MODEL_READONLY) {
        admin(faults & MODEL_READONLY ? "REPLICAOF 127.0.0.1 1" : "REPLICAOF NO ONE");
    }
    if (changed & MODEL_NO_CHANNELS) {
        admin(faults & MODEL_NO_CHANNELS ? "ACL SETUSER default resetchannels"
                                         : "ACL SETUSER default allchannels");
    }
    if (changed & MODEL_MISCONF && faults & MODEL_MISCONF) {
        make_saves_fail();
        redisReply *reply = redisCommand(server.admin, "CONFIG SET save %s", "3600 100000000");
        freeReplyObject(reply);
    } else if (changed & MODEL_MISCONF) {
        redisReply *reply = redisCommand(server.admin, "CONFIG SET save %s", "");
        freeReplyObject(reply);
    }
    /* No lease is set while writes are refused.  Let all of them become shorter than when they were set, on both servers: one
     * that is as long as a renewal's needs no write, so that only one server would refuse it. */
    if (changed & faults & (MODEL_MISCONF | MODEL_READONLY)) {
        nap(world.lag + 2 * MS);
    }
    world.faults = faults;
    model_set_faults(world.m, world.plant == PLANT_OOM       ? faults & ~(unsigned)MODEL_OOM
                              : world.plant == PLANT_MESSAGE ? faults | MODEL_MUTE
                                                             : faults);
    world.toggles++;
}

/* ---- Links -------------------------------------------------------------------------------------- */

static void open_link(int i)
{
    struct timeval limit = {.tv_sec = 10};
    world.real[i] = redisConnectUnix(server.socket);
    if (world.real[i] == NULL || world.real[i]->err != 0) {
        die("connect");
    }
    redisSetTimeout(world.real[i], limit);
    redisReply *reply = redisCommand(world.real[i], "CLIENT ID");
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER) {
        die("CLIENT ID");
    }
    world.real_id[i] = reply->integer;
    freeReplyObject(reply);
    world.model_id[i] = model_connect(world.m);
    world.reader[i] = redisReaderCreate();
}

static void close_link(int i)
{
    redisFree(world.real[i]);
    redisReaderFree(world.reader[i]);
    model_close(world.m, world.model_id[i]);
}

static void open_world(uint64_t seed, enum plant plant)
{
    memset(&world, 0, sizeof world);
    commands_begin(seed);
    world.plant = plant;
    world.m = model_new();
    admin("FLUSHALL");
    admin("SCRIPT FLUSH");
    set_faults(0);
    for (int i = 0; i < LINKS; i++) {
        open_link(i);
    }
}

static void close_world(void)
{
    set_faults(0);
    for (int i = 0; i < LINKS; i++) {
        close_link(i);
    }
    model_free(world.m);
}

/* ---- Comparing ---------------------------------------------------------------------------------- */

static void print_reply(FILE *out, const redisReply *reply)
{
    if (reply == NULL) {
        fprintf(out, "(nothing)");
    } else if (reply->type == REDIS_REPLY_INTEGER) {
        fprintf(out, ":%lld", reply->integer);
    } else if (reply->type == REDIS_REPLY_NIL) {
        fprintf(out, "(nil)");
    } else if (reply->type == REDIS_REPLY_ARRAY) {
        fprintf(out, "[");
        for (size_t i = 0; i < reply->elements; i++) {
            fprintf(out, i == 0 ? "" : ", ");
            print_reply(out, reply->element[i]);
        }
        fprintf(out, "]");
    } else {
        fprintf(out, "%s%s", reply->type == REDIS_REPLY_ERROR ? "-" : "", reply->str);
    }
}

static int by_text(const void *a, const void *b)
{
    const redisReply *x = *(redisReply *const *)a, *y = *(redisReply *const *)b;
    return strcmp(x->str == NULL ? "" : x->str, y->str == NULL ? "" : y->str);
}

static void sort_texts(redisReply *reply)
{
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        sort_texts(reply->element[i]);
    }
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 1) {
        qsort(reply->element, reply->elements, sizeof *reply->element, by_text);
    }
}

static bool same_text(const redisReply *a, const redisReply *b, const struct command *c)
{
    if (a->type == REDIS_REPLY_ERROR && !server.is_7_0) {
        size_t n = strcspn(a->str, " ");
        return strncmp(a->str, b->str, n) == 0;
    }
    if (c->timed && a->type == REDIS_REPLY_STRING && strcmp(c->word[0], "time") == 0) {
        return true; /* the clock itself; its effect on leases is compared elsewhere */
    }
    return a->len == b->len && memcmp(a->str, b->str, (size_t)a->len) == 0;
}

static bool same_integer(long long a, long long b, const struct command *c)
{
    long long slack = (long long)(world.lag / MS) + 2;
    return a == b || (c->timed && a > 10 && b > 10 && llabs(a - b) <= slack);
}

static bool same_reply(const redisReply *a, const redisReply *b, const struct command *c)
{
    if (a->type != b->type) {
        return false;
    }
    if (c->loose || a->type == REDIS_REPLY_NIL) {
        return a->type != REDIS_REPLY_ARRAY || a->elements == b->elements;
    }
    if (a->type == REDIS_REPLY_INTEGER) {
        return same_integer(a->integer, b->integer, c);
    }
    if (a->type != REDIS_REPLY_ARRAY) {
        return same_text(a, b, c);
    }
    if (a->elements != b->elements) {
        return false;
    }
    for (size_t i = 0; i < a->elements; i++) {
        if (!same_reply(a->element[i], b->element[i], c)) {
            return false;
        }
    }
    return true;
}

static bool differ(const struct command *c, int link, const redisReply *real,
                   const redisReply *modelled)
{
    if (world.plant == PLANT_NONE) {
        fprintf(stderr, "model_check: call %lu on link %d, faults %u:", world.calls, link,
                world.faults);
        for (size_t i = 0; i < c->n; i++) {
            fprintf(stderr, " '%s'", c->word[i]);
        }
        fprintf(stderr, "\n  server: ");
        print_reply(stderr, real);
        fprintf(stderr, "\n  model:  ");
        print_reply(stderr, modelled);
        fprintf(stderr, "\n");
    }
    return false;
}

/* For every reply that the model has for a link the real server must have one too, in this
 * order. */
static bool compare_link(const struct command *c, int asked, int link)
{
    const char *bytes = NULL;
    size_t n = model_output(world.m, world.model_id[link], &bytes);
    void *modelled = NULL, *real = NULL;
    bool same = true;
    redisReaderFeed(world.reader[link], bytes, n);
    while (same && redisReaderGetReply(world.reader[link], &modelled) == REDIS_OK &&
           modelled != NULL) {
        if (redisGetReply(world.real[link], &real) != REDIS_OK) {
            real = NULL;
        }
        if (real != NULL && c->unordered) {
            sort_texts(real);
            sort_texts(modelled);
        }
        same = (real != NULL && same_reply(real, modelled, c)) || differ(c, link, real, modelled);
        world.replies++;
        world.errors += ((redisReply *)modelled)->type == REDIS_REPLY_ERROR;
        world.pushes += link != asked;
        freeReplyObject(modelled);
        freeReplyObject(real);
    }
    if (same && !model_is_open(world.m, world.model_id[link])) {
        real = NULL;
        if (redisGetReply(world.real[link], &real) == REDIS_OK) {
            same = differ(c, link, real, NULL); /* the real connection stays open */
            freeReplyObject(real);
        }
        close_link(link);
        open_link(link);
    }
    return same;
}

/* ---- Calling ------------------------------------------------------------------------------------ */

/* No key may be about to expire, or just have: wait until it has on both servers.  Returns the time when that was so.
 * The model's time stands still meanwhile, or it would hide a key that the real server may still have. */
static uint64_t settle(void)
{
    for (;;) {
        model_key key;
        uint64_t now = clock_ns(), slack = LAG_COPIES * world.lag + 2 * MS, until = now;
        for (size_t i = 0; model_key_at(world.m, i, &key); i++) {
            if (key.expires_ns < now + LAG_MAX + slack && key.expires_ns + slack > until) {
                until = key.expires_ns + slack;
            }
        }
        if (until == now) {
            model_time(world.m, now);
            return now;
        }
        nap(until - now);
    }
}

/* The call took so long that a key may have expired before it reached one server and not the other:
 * replies, and their receivers, may differ.  Both start over. */
static void skip_call(void)
{
    world.skipped++;
    set_faults(0); /* a replica, or a server that cannot save, would refuse to be emptied */
    admin("FLUSHALL");
    model_flush_keys(world.m);
    for (int i = 0; i < LINKS; i++) {
        close_link(i);
        open_link(i);
    }
    world.lag = 0;
}

static void send_to_model(const struct command *c, int link)
{
    char *bytes;
    size_t lengths[WORDS_MAX];
    const char *words[WORDS_MAX];
    char number[24];
    for (size_t i = 0; i < c->n; i++) {
        words[i] = c->word[i];
        lengths[i] = strlen(words[i]);
    }
    if (c->kills >= 0) {
        lengths[c->n - 1] = (size_t)snprintf(
            number, sizeof number, "%llu",
            (unsigned long long)model_client_id(world.m, world.model_id[c->kills]));
        words[c->n - 1] = number;
    }
    if (world.plant == PLANT_RELEASE && c->n > 1 &&
        strstr(c->word[1], "'publish', ARGV[2]") != NULL) {
        words[1] = "return redis.call('del', KEYS[1])";
        lengths[1] = strlen(words[1]);
    }
    int n = (int)redisFormatCommandArgv(&bytes, (int)c->n, words, lengths);
    model_input(world.m, world.model_id[link], bytes, (size_t)n);
    redisFreeCommand(bytes);
}

/* One call on one link of both servers; false if they differ. */
static bool make_call(const struct command *c, int link)
{
    size_t lengths[WORDS_MAX];
    for (size_t i = 0; i < c->n; i++) {
        lengths[i] = strlen(c->word[i]);
    }
    uint64_t settled = settle();
    world.calls++;
    uint64_t before = clock_ns();
    model_time(world.m, before + (world.plant == PLANT_CLOCK ? 3600000 * MS * world.calls : 0));
    send_to_model(c, link);
    redisAppendCommandArgv(world.real[link], (int)c->n, (const char **)(uintptr_t)c->word, lengths);
    int written = 0;
    while (!written && redisBufferWrite(world.real[link], &written) == REDIS_OK) {
    }
    redisReply *first = NULL;
    /* The reply is fetched before the clock is read again, and pushed back for the comparison. */
    if (redisBufferRead(world.real[link]) != REDIS_OK &&
        model_is_open(world.m, world.model_id[link])) {
        return differ(c, link, first, NULL);
    }
    uint64_t after = clock_ns();
    if (after - settled > LAG_MAX) {
        skip_call();
        return true;
    }
    world.lag = after - before > world.lag ? after - before : world.lag;
    for (int i = 0; i < LINKS; i++) {
        if (!compare_link(c, link, (link + i) % LINKS)) {
            return false;
        }
    }
    if (model_key_count(world.m) == 0) {
        world.lag = 0;
    }
    return true;
}

/* ---- Running ---------------------------------------------------------------------------------------- */

/* Whether the call's reply would be one that a real server may word or order freely. */
static bool is_unfair(const struct command *c, int link)
{
    bool subscribes = strcmp(c->word[0], "subscribe") == 0;
    bool is_newer = c->n > 1 && strcmp(c->word[1], "setinfo") == 0 && !server.is_7_0;
    return is_newer || (subscribes && link != LINKS - 1) ||
           (world.faults & MODEL_READONLY && c->loose);
}

static void toggle_fault(void)
{
    static const unsigned faults[] = {MODEL_OOM, MODEL_READONLY, MODEL_MISCONF, MODEL_NO_CHANNELS};
    unsigned fault = faults[commands_draw(sizeof faults / sizeof *faults)];
    if (world.faults != 0) {
        set_faults(0);
    } else if (commands_draw(8) == 0) {
        admin("SCRIPT FLUSH");
        model_flush_scripts(world.m);
    } else if (fault != MODEL_NO_CHANNELS || model_channel_count(world.m) == 0) {
        set_faults(fault); /* a server that denies channels drops their subscribers */
    }
}

/* Returns whether so many calls got equal replies; calls spoilt by a busy machine are repeated. */
static bool run(unsigned long calls, uint64_t seed, enum plant plant)
{
    static struct command c;
    open_world(seed, plant);
    bool same = true;
    while (same && world.calls < calls + world.skipped && world.skipped < 10 * calls) {
        if (commands_draw(200) == 0) {
            toggle_fault();
        }
        int link = (int)commands_draw(LINKS);
        command_make(&c, world.real_id);
        world.scripts += c.is_script;
        same = is_unfair(&c, link) || make_call(&c, link);
    }
    unsigned long skipped = world.skipped;
    close_world();
    if (same && skipped >= 10 * calls) {
        fprintf(stderr, "model_check: %lu calls were too slow to be compared\n", skipped);
        same = false;
    }
    return same;
}

static uint64_t drawn_seed(void)
{
    const char *word = getenv("SNIB_SIM_DRAW");
    uint64_t hash = 0xcbf29ce484222325ULL;
    if (word == NULL || *word == '\0') {
        return 1;
    }
    for (; *word != '\0'; word++) {
        hash = (hash ^ (unsigned char)*word) * 0x100000001b3ULL;
    }
    return hash >> 32; /* short enough to be typed */
}

/* How many sets of calls. */
static uint64_t drawn_sets(void)
{
    const char *count = getenv("SNIB_SIM_SEEDS");
    return 1 + (count == NULL ? 0 : strtoull(count, NULL, 10) / 10000);
}

static bool run_sets(unsigned long calls, uint64_t seed, uint64_t sets)
{
    for (uint64_t i = 0; i < sets; i++) {
        if (!run(calls, seed + i, PLANT_NONE)) {
            fprintf(stderr, "model_check: replay with --seed %llu\n",
                    (unsigned long long)(seed + i));
            return false;
        }
        totals.calls += calls;
        totals.replies += world.replies;
        totals.errors += world.errors;
        totals.pushes += world.pushes;
        totals.scripts += world.scripts;
        totals.toggles += world.toggles;
        totals.skipped += world.skipped;
    }
    return true;
}

/* How many planted bugs the machine is too busy to judge; -1: one was missed. */
static int run_plants(void)
{
    int unjudged = 0;
    for (enum plant plant = PLANT_NONE + 1; plant < PLANT_COUNT; plant++) {
        bool missed =
            run(50000, 1, plant);       /* found after some 1,500, if chance is not against it */
        bool busy = world.skipped > 10; /* it started over so often that few subscriptions lasted */
        unjudged += missed && busy;
        if (missed && !busy) {
            fprintf(stderr, "model_check: planted mistake %d was not found\n", (int)plant);
            return -1;
        }
    }
    return unjudged;
}

int main(int argc, char **argv)
{
    unsigned long calls = 30000;
    uint64_t seed = drawn_seed(), sets = drawn_sets();
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--calls") == 0) {
            calls = strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[i + 1], NULL, 10);
            sets = 1;
        } else {
            fprintf(stderr, "usage: model_check [--calls N] [--seed S]\n");
            return 2;
        }
    }
    if (!commands_cover_scripts()) {
        return 1;
    }
    signal(SIGPIPE, SIG_IGN); /* a dying server is a result, too */
    start_server();
    int unjudged = run_sets(calls, seed, sets) ? run_plants() : -1;
    if (unjudged < 0) {
        return 1;
    }
    printf(
        "model_check: %lu calls (%lu of scripts) from seed %llu on, %lu replies equal (%lu errors, "
        "%lu messages), %lu changes of the server's state, %lu calls too slow to compare; %d "
        "planted mistakes found, %d not judged because the machine is too busy\n",
        totals.calls, totals.scripts, (unsigned long long)seed, totals.replies, totals.errors,
        totals.pushes, totals.toggles, totals.skipped, PLANT_COUNT - 1 - unjudged, unjudged);
    return 0;
}
