/* sentinel.c - what sentinels say about the master and each other, in any order, right or wrong.
 *
 * Three sentinels and four servers, of which one is the master; each request is answered by that truth, or as the
 * input makes it up.  Besides the checks of party.h after every call:
 *
 *     the master's address is one that a sentinel has named, and of a form that a name can have
 *     each sentinel is known once, and they cannot name others without end
 *     when all agree at last, under a higher epoch, the client finds the master, and its locks can be acquired and
 *     given back there, whatever was said before
 */
#include "calls.h"
#include "replies.h"

#include "engine/route.h"

#include <ctype.h>
#include <errno.h>
#include <hiredis/hiredis.h>

#define GATES 8
#define SENTINELS 3
#define SERVERS 4
#define NAMED 128
#define REPLY_MAX 16384
#define SERVICE "main"
#define KNOWN_MAX 16 /* sentinels, if the URL names no more */

static const struct call_lock gates[GATES] = {{SNIB_MUTEX, "m", 1},   {SNIB_MUTEX, "n", 1},
                                              {SNIB_FAIR, "f", 1},    {SNIB_READ, "rw", 2},
                                              {SNIB_WRITE, "rw", 2},  {SNIB_SEMAPHORE, "c", 1},
                                              {SNIB_PERMITS, "e", 1}, {SNIB__MULTI, "mm\0ft", 5}};

static struct party party;
static struct input in;
static struct snib__address seeds[SENTINELS];

/* What is true. */
static struct {
    unsigned master;
    uint64_t epoch;
    bool down[SENTINELS + SERVERS];
} truth;

/* What was said. */
static struct {
    struct snib__address named[NAMED]; /* as masters, the last ones */
    uint32_t named_n;
    uint64_t epoch; /* the highest */
} said;

/* ---- What is said ---------------------------------------------------------------------------------------- */

static void note_address(const redisReply *reply)
{
    struct snib__address address;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return;
    if (snib__address_host(&address, reply->element[0]->str, reply->element[0]->len,
                           strtol(reply->element[1]->str, NULL, 10), false))
        said.named[said.named_n++ % NAMED] = address;
}

static void note_epoch(const redisReply *reply)
{
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i++) {
        const redisReply *name = reply->element[i], *value = reply->element[i + 1];
        if (name->type != REDIS_REPLY_STRING || value->type != REDIS_REPLY_STRING ||
            strcmp(name->str, "config-epoch") != 0)
            continue;
        uint64_t epoch = strtoull(value->str, NULL, 10);
        said.epoch = epoch > said.epoch ? epoch : said.epoch;
    }
}

static void note(const struct command *command, const char *bytes, size_t n)
{
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    redisReaderFeed(reader, bytes, n);
    MUST(redisReaderGetReply(reader, &reply) == REDIS_OK && reply);
    if (word_is(command->word[0], "SENTINEL") && word_is(command->word[1], "MASTER"))
        note_epoch(reply);
    else if (word_is(command->word[0], "SENTINEL"))
        note_address(reply);
    freeReplyObject(reply);
    redisReaderFree(reader);
}

/* ---- The truth ------------------------------------------------------------------------------------------- */

static bool is_sentinel(const struct pipe *pipe)
{
    return pipe->link->node->kind == SNIB__A_SENTINEL;
}

/* The number of whoever listens there; SENTINELS + SERVERS: nobody. */
static unsigned at_address(const struct pipe *pipe)
{
    const struct snib__address *address = snib__link_address(pipe->link);
    const char *host = address ? address->host : "";
    unsigned n = SENTINELS + SERVERS;
    if (host[0] == 's' && host[1] >= '0' && host[1] < '0' + SENTINELS && !host[2])
        n = (unsigned)(host[1] - '0');
    else if (tolower((unsigned char)host[0]) >= 'a' &&
             tolower((unsigned char)host[0]) < 'a' + SERVERS && !host[1])
        n = SENTINELS + (unsigned)tolower((unsigned char)host[0]) - 'a';
    return n < SENTINELS + SERVERS && address->port == (n < SENTINELS ? 26379 : 6379)
               ? n
               : SENTINELS + SERVERS;
}

static size_t bulk(char *out, size_t cap, const char *text)
{
    return (size_t)snprintf(out, cap, "$%zu\r\n%s\r\n", strlen(text), text);
}

static size_t say_address(const char *host, const char *port, char *out, size_t cap)
{
    size_t used = (size_t)snprintf(out, cap, "*2\r\n");
    used += bulk(out + used, cap - used, host);
    return used + bulk(out + used, cap - used, port);
}

static size_t say_epoch(uint64_t epoch, char *out, size_t cap)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)epoch);
    size_t used = (size_t)snprintf(out, cap, "*4\r\n$4\r\nname\r\n$4\r\nmain\r\n");
    used += bulk(out + used, cap - used, "config-epoch");
    return used + bulk(out + used, cap - used, text);
}

static size_t say_other(const char *host, const char *port, char *out, size_t cap)
{
    size_t used = (size_t)snprintf(out, cap, "*6\r\n$4\r\nname\r\n$1\r\nx\r\n$2\r\nip\r\n");
    used += bulk(out + used, cap - used, host);
    used += bulk(out + used, cap - used, "port");
    return used + bulk(out + used, cap - used, port);
}

static size_t sentinel_says(const struct command *command, char *out, size_t cap)
{
    char host[] = {(char)('a' + truth.master), 0};
    if (word_is(command->word[1], "MASTER"))
        return say_epoch(truth.epoch, out, cap);
    if (!word_is(command->word[1], "SENTINELS"))
        return say_address(host, "6379", out, cap);
    size_t used = (size_t)snprintf(out, cap, "*%d\r\n", SENTINELS);
    for (int i = 0; i < SENTINELS; i++) {
        char name[] = {'s', (char)('0' + i), 0};
        used += say_other(name, "26379", out + used, cap - used);
    }
    return used;
}

static size_t reply_well(struct pipe *pipe, const struct command *command, char *out, size_t cap)
{
    bool master = at_address(pipe) == SENTINELS + truth.master;
    if (word_is(command->word[0], "SENTINEL"))
        return sentinel_says(command, out, cap);
    if (word_is(command->word[0], "INFO") && word_is(command->word[1], "replication") && !master &&
        !is_sentinel(pipe))
        return bulk(out, cap, "role:slave\r\n");
    if (word_is(command->word[0], "EVALSHA") && !master)
        return (size_t)snprintf(out, cap,
                                "-READONLY You can't write against a read only replica.\r\n");
    return party_reply(&party, pipe, command, is_sentinel(pipe) ? "sentinel" : "standalone", out,
                       cap);
}

/* ---- Lies ------------------------------------------------------------------------------------------------ */

static const char *any_host(void)
{
    static const char *const hosts[] = {"a", "b", "c", "d",  "A",  "s0", "s1",  "s2",
                                        "",  "x", "y", "::", "[a", "?",  "a\n", "127.0.0.1"};
    static char other[260];
    unsigned which = take(&in);
    if (which < 128)
        return hosts[which % 16];
    if (which < 240) {
        snprintf(other, sizeof other, "t%u", which);
        return other;
    }
    memset(other, 'x', sizeof other - 1);
    other[which < 248 ? 253 : 254] = 0;
    return other;
}

static const char *any_port(void)
{
    static char port[24];
    unsigned which = take(&in);
    if (which < 160)
        return which & 1 ? "26379" : "6379";
    snprintf(port, sizeof port, "%lld", (long long)number_any(which));
    return port;
}

static size_t lie_others(char *out, size_t cap)
{
    unsigned n = take(&in) % 24;
    size_t used = (size_t)snprintf(out, cap, "*%u\r\n", n);
    for (unsigned i = 0; i < n; i++) {
        unsigned form = take(&in);
        const char *host = any_host();
        if (form < 224)
            used += say_other(host, any_port(), out + used, cap - used);
        else if (form < 232)
            used += (size_t)snprintf(out + used, cap - used,
                                     "*3\r\n$2\r\nip\r\n$1\r\na\r\n$4\r\nport\r\n");
        else if (form < 240)
            used += (size_t)snprintf(out + used, cap - used, "*2\r\n:1\r\n:2\r\n");
        else
            used += (size_t)snprintf(out + used, cap - used,
                                     form & 1 ? "*0\r\n" : "*1\r\n*1\r\n$2\r\nip\r\n");
    }
    return used;
}

/* In the form that belongs to the request. */
static size_t lie(const struct command *command, char *out, size_t cap)
{
    unsigned how = take(&in);
    if (how >= 224)
        return how & 1 ? reply_error(how, out, cap) : (size_t)snprintf(out, cap, "*-1\r\n");
    if (!word_is(command->word[0], "SENTINEL"))
        return reply_any(&in, NULL, out, cap);
    if (word_is(command->word[1], "MASTER"))
        return say_epoch(how & 1 ? (uint64_t)number_any(take(&in)) : take(&in), out, cap);
    if (word_is(command->word[1], "SENTINELS"))
        return lie_others(out, cap);
    const char *host = any_host();
    return say_address(host, any_port(), out, cap);
}

/* ---- The network ----------------------------------------------------------------------------------------- */

static void connect_pipe(struct party *p, struct pipe *pipe)
{
    if (pipe->state != PIPE_CONNECTING)
        return;
    unsigned n = at_address(pipe);
    if (n == SENTINELS + SERVERS || truth.down[n])
        party_down(p, pipe, SNIB_EUNREACHABLE, ECONNREFUSED);
    else
        party_up(p, pipe);
}

enum how { WELL, ANY, LIE };

static bool reply(struct party *p, struct pipe *pipe, enum how how)
{
    char out[REPLY_MAX];
    struct command command;
    if (!party_command(p, pipe, &command))
        return false;
    size_t n = how == ANY   ? reply_any(&in, NULL, out, sizeof out)
               : how == LIE ? lie(&command, out, sizeof out)
                            : reply_well(pipe, &command, out, sizeof out);
    MUST(n < sizeof out);
    note(&command, out, n);
    party_took(p, pipe, &command);
    party_send(pipe, out, n);
    return true;
}

static bool serve(struct party *p, struct pipe *pipe)
{
    bool more = pipe->state == PIPE_CONNECTING;
    connect_pipe(p, pipe);
    more |= reply(p, pipe, WELL);
    return more | (party_deliver(p, pipe, PARTY_PENDING) > 0);
}

/* A sentinel publishes something. */
static void publish(struct pipe *pipe, const uint8_t step[STEP])
{
    static const char *const channels[] = {"+switch-master", "+promoted-slave", "", "x"};
    static const char *const texts[] = {"main a 6379 b 6379",
                                        "slave b:6379 b 6379 @ main a 6379",
                                        "mainx a 6379 b 6379",
                                        "slave b:6379 b 6379 @ mai",
                                        "main",
                                        " @ ",
                                        "slave @ main ",
                                        ""};
    char out[512];
    size_t used = (size_t)snprintf(out, sizeof out, "*3\r\n$7\r\nmessage\r\n");
    used += bulk(out + used, sizeof out - used, channels[step[2] % 4]);
    used += bulk(out + used, sizeof out - used, texts[step[3] / 2 % 8]);
    if (is_sentinel(pipe) && snib__link_kind(pipe->link) == SNIB__PUBSUB)
        party_send(pipe, out, used);
}

/* ---- Checks ---------------------------------------------------------------------------------------------- */

static bool was_named(const struct snib__address *address)
{
    for (uint32_t i = 0; i < NAMED && i < said.named_n; i++)
        if (snib__address_equal(&said.named[i], address))
            return true;
    return said.named_n > NAMED; /* perhaps by one that is forgotten here */
}

static void check_known(void)
{
    const struct snib__engine *e = party.e;
    unsigned known = 0;
    for (const struct snib__node *node = e->nodes; node; node = node->next) {
        if (node->kind != SNIB__A_SENTINEL)
            continue;
        known++;
        MUST(node->address.port >= 1 && node->address.port <= 65535);
        for (const char *at = node->address.host; *at; at++)
            MUST(isalnum((unsigned char)*at) || strchr("-._:", *at));
        for (const struct snib__node *other = node->next; other; other = other->next)
            MUST(other->kind != SNIB__A_SENTINEL ||
                 !snib__address_equal(&node->address, &other->address));
    }
    MUST(known >= SENTINELS && known <= KNOWN_MAX);
    MUST(!e->home->addressed || was_named(&e->home->address));
}

/* All agree from now on. */
static void end_calmly(void)
{
    struct snib__acquire how = {.wait = SNIB__NEVER, .permits = 1};
    memset(truth.down, 0, sizeof truth.down);
    bool heard = said.epoch < UINT64_MAX; /* else nobody can have the last word */
    truth.epoch = heard ? said.epoch + 1 : said.epoch;
    calls_leave_all(&party);
    calls_run(&party, serve, 100 * SECOND, 10000);
    for (unsigned i = 0; i < GATES; i++)
        party_acquire(&party, party.gates[i], &how);
    calls_run(&party, serve, 60 * SECOND, 10000);
    for (unsigned i = 0; i < PARTY_OPS && heard; i++)
        MUST(!party.ops[i]); /* each has its lock */
    if (heard && !party.e->closed)
        MUST(tolower((unsigned char)party.e->home->address.host[0]) == 'a' + (int)truth.master);
    calls_leave_all(&party);
    calls_run(&party, serve, 200 * SECOND, 10000);
    calls_check_rest(&party);
}

/* ---- The program ----------------------------------------------------------------------------------------- */

static void at_pipe(struct party *p, struct pipe *pipe, const uint8_t step[STEP])
{
    switch (pipe ? step[0] % 32 : 32) {
    case 16:
        connect_pipe(p, pipe);
        return;
    case 17:
        party_down(p, pipe, step[2] & 1 ? SNIB_EUNREACHABLE : SNIB_ERESOLVE, step[3]);
        return;
    case 18:
        reply(p, pipe, WELL);
        break;
    case 19:
        reply(p, pipe, ANY);
        break;
    case 20:
    case 21:
    case 22:
        reply(p, pipe, LIE);
        break;
    case 23:
    case 24:
        publish(pipe, step);
        break;
    case 25:
        party_deliver(p, pipe, step[2]);
        return;
    default:
        return;
    }
    if (step[3] & 1)
        party_deliver(p, pipe, PARTY_PENDING);
}

static void step_on(struct party *p, const uint8_t step[STEP])
{
    if (step[0] % 32 < CALLS) {
        calls_step(p, GATES, step);
        return;
    }
    switch (step[0] % 32) {
    case 10:
        party_pass(p, calls_span(step[1]));
        return;
    case 11:
        party_pass(p, party_next(p) - p->now < 100000 * SECOND ? party_next(p) - p->now : 0);
        party_tick(p);
        return;
    case 12:
        calls_settle(p, serve);
        return;
    case 13:
        calls_run(p, serve, calls_span(step[1]), step[2]);
        return;
    case 14:
        party_tick(p);
        return;
    case 26:
        truth.master = step[1] % SERVERS;
        truth.epoch += step[2] & 1;
        return;
    case 27:
        truth.down[step[1] % (SENTINELS + SERVERS)] = step[2] & 1;
        return;
    default:
        at_pipe(p, party_pipe(p, step[1]), step);
    }
}

static struct snib__config config_of(const uint8_t head[STEP])
{
    struct snib__config config = party_config();
    for (int i = 0; i < SENTINELS; i++) {
        char host[] = {'s', (char)('0' + i), 0};
        snib__address_host(&seeds[i], host, 2, 26379, false);
    }
    config.topology = SNIB__SENTINEL;
    config.seeds = seeds;
    config.seeds_n = SENTINELS;
    config.service = SERVICE;
    config.where = "\"main\" by sentinels";
    config.seed = head[2] + 1u;
    config.lanes = head[1] & 4 ? 3 : 0;
    config.handover_max = head[1] & 16 ? 0 : 16;
    config.tenure = !(head[1] & 64);
    return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t head[STEP], step[STEP];
    in = (struct input){data, size};
    if (!take_step(&in, head))
        return 0;
    memset(&truth, 0, sizeof truth);
    memset(&said, 0, sizeof said);
    truth.epoch = head[3] % 8;
    struct snib__config config = config_of(head);
    party_begin(&party, &config);
    calls_gates(&party, gates, GATES);
    while (take_step(&in, step)) {
        step_on(&party, step);
        check_known();
    }
    if (head[0] & 1)
        end_calmly();
    party_end(&party);
    return 0;
}
