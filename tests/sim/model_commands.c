/* model_commands.c - what model_check.c asks: the commands that the library sends and those that a test may
 * use to disturb it, with right and wrong arguments and types; every script of the library; and small
 * scripts for each rule of reply conversion. */
#include "model_commands.h"

#include "model_server.h"
#include "snib_scripts.h"

#include <stdio.h>
#include <string.h>

static uint64_t random_state;

void commands_begin(uint64_t seed)
{
    random_state = seed * 0x9e3779b97f4a7c15ULL + 1;
}

uint64_t commands_draw(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 0x2545f4914f6cdd1dULL % below;
}

/* One letter stands for a random word: k key, w the key that gets types of its own, o owner, l lease,
 * v value, c channel, i integer, d database, * a link to kill.  Marks before a command: ! no arguments
 * are added or left out, ~ the order and ? the values of the reply are of no interest. */
static const char *const raw_commands[] = {"pttl k",
                                           "pttl k",
                                           "hset k o v",
                                           "hset k o v o v",
                                           "hset k o",
                                           "set w v",
                                           "set w v px l",
                                           "set k v nx px l",
                                           "set w v xx",
                                           "set k v nx xx",
                                           "set k v px",
                                           "get k",
                                           "del k",
                                           "del k k",
                                           "exists k k",
                                           "type k",
                                           "pexpire k l",
                                           "pexpire k l",
                                           "hget k o",
                                           "hdel k o",
                                           "hdel k o o",
                                           "hexists k o",
                                           "hgetall k",
                                           "hkeys k",
                                           "hlen k",
                                           "hincrby k o i",
                                           "rpush w v v",
                                           "llen k",
                                           "time",
                                           "~scan 0 count 1000",
                                           "~scan 0 match k* count 1000",
                                           "~scan 0 match *[^12] type hash count 1000",
                                           "scan x",
                                           "scan 0 count 0",
                                           "scan 0 nonsense 1",
                                           "publish c v",
                                           "publish c v",
                                           "pubsub numsub c c",
                                           "!~pubsub channels",
                                           "!ping",
                                           "!ping v",
                                           "select d",
                                           "!client setinfo lib-name snib",
                                           "!client kill id *",
                                           "!client kill id 0",
                                           "!client kill id 99999999",
                                           "!subscribe c c",
                                           "!subscribe c",
                                           "!unsubscribe c",
                                           "auth v",
                                           "auth default v",
                                           "auth nobody v",
                                           "!script exists v",
                                           "!script nonsense",
                                           "!flushall",
                                           "!quit",
                                           "nonsense v v",
                                           "evalsha v 0",
                                           "evalsha v x",
                                           "eval v x",
                                           "eval v 2 k",
                                           "eval v -1 k",
                                           "!?role",
                                           "!?info server",
                                           "!eval return_1 0"};

static const struct {
    const char *name, *keys, *arguments;
} script_shapes[] = {
    {"list", "", "0 p n"},
    {"mutex_acquire", "k", "o l"},
    {"mutex_acquire", "k", "o g"},
    {"mutex_force", "k", "c"},
    {"mutex_info", "k", "c"},
    {"mutex_release", "k", "o c"},
    {"mutex_renew", "k", "l o"},
    {"mutex_renew", "k k k", "g o o o"},
    {"mutex_renew", "k k", "0 o o"},
    {"mutex_transfer", "k", "o o l"},
    {"mutex_transfer", "k", "o o g"},
};

static const char *const probes[] = {
    "return {1, 2.7, -2.7, 'x', nil, 3}",
    "return {ok = 'fine'}",
    "return {err = 'CODE text'}",
    "return {err = 'plain'}",
    "return {{1, {2}}, {}, true, false, {ok = 'in'}, {err = 'CODE in'}}",
    "return true",
    "return false",
    "return nil",
    "return",
    "return 'text'",
    "return 3.99",
    "return -3.99",
    "return #ARGV .. '/' .. #KEYS",
    "return redis.call('get', KEYS[1])",
    "return redis.pcall('get', KEYS[1])",
    "return redis.pcall('get', KEYS[1]) == false",
    "return type(redis.call('type', KEYS[1]))",
    "return redis.call('type', KEYS[1]).ok",
    "return redis.call('set', 'k3', 1.5)",
    "return redis.call('set', 'k3', 12345678901234567)",
    "return redis.call('hgetall', KEYS[1])",
    "local r = redis.pcall('hget', KEYS[1], 'f')\nif type(r) == 'table' then return r.err "
    "end\nreturn r",
    "\nredis.call('set', 'k3', 'v')\nreturn redis.call('hget', 'k3', 'f')",
    "redis.call('del', 'k3') return redis.call('rpush', 'k3', 'v')",
    "return redis.error_reply('text')",
    "return redis.error_reply('CODE text')",
    "return redis.error_reply('-CODE text')",
    "return redis.status_reply('text')",
    "return redis.status_reply()",
    "return redis.call('nonsense')",
    "return redis.pcall('nonsense')",
    "return redis.call('get')",
    "return redis.call('subscribe', 'c')",
    "return redis.call()",
    "return redis.call({})",
    "return redis.call('publish', 'c0', 'from a script')",
    "return redis.pcall('publish', 'c0', 'from a script')",
    "return nonsense",
    "nonsense = 1",
    "error('thrown')",
    "\n\nerror({err = 'CODE thrown'})",
    "local function f() return redis.call('hget') end return f()",
    "return nil .. 'x'",
    "this is no lua",
    "return redis.call('pttl', KEYS[1])",
    "return {redis.call('time')[1] ~= nil, redis.call('exists', KEYS[1])}",
};

static const char *random_word(char letter, char room[WORD_BYTES])
{
    static const char *const leases[] = {
        "10000", "30000", "86400000", "1", "2", "3", "0", "-5", "abc", "1e3", "9223372036854775807",
        "",      "010",   "3600000"};
    static const char *const integers[] = {"1", "-1", "0", "9223372036854775807", "x", "1.5", "-7"};
    static const char *const values[] = {"1", "0", "some text", "", "with\r\nlines", "-12"};
    switch (letter) {
    case 'k':
        snprintf(room, WORD_BYTES, "k%d", (int)commands_draw(4));
        return room;
    case 'w':
        return "k3";
    case 'o':
        snprintf(room, WORD_BYTES,
                 commands_draw(8) == 0 ? "f%d" : "0a1b2c3d-4e5f-8a7b-8c9d-0e1f2a3b4c5d:%d",
                 (int)commands_draw(3));
        return room;
    case 'c':
        snprintf(room, WORD_BYTES, "c%d", (int)commands_draw(3));
        return room;
    case 'd':
        snprintf(room, WORD_BYTES, "%s",
                 commands_draw(4) != 0   ? "0"
                 : commands_draw(2) != 0 ? "3"
                                         : "16");
        return room;
    case 'l': /* very short ones cost a wait each */
        return commands_draw(12) == 0 ? leases[commands_draw(sizeof leases / sizeof *leases)]
                                      : leases[commands_draw(3)];
    case 'g':
        return leases[commands_draw(3)];
    case 'i':
        return integers[commands_draw(sizeof integers / sizeof *integers)];
    case 'v':
        return values[commands_draw(sizeof values / sizeof *values)];
    case 'p':
        return commands_draw(2) != 0 ? "*" : "k[0-1]";
    default:
        return "1000";
    }
}

/* Append the words of a text, letters replaced. */
static void add_words(struct command *c, const char *text, const long long link_ids[LINKS])
{
    while (*text != '\0') {
        size_t n = strcspn(text, " ");
        char *room = c->room[c->n];
        bool is_first = c->n == 0;
        if (n == 1 && *text == '*') {
            c->kills = (int)commands_draw(LINKS);
            snprintf(room, WORD_BYTES, "%lld", link_ids[c->kills]);
            c->word[c->n] = room;
        } else if (n == 1 && strchr("kwocdlgivpn", *text) != NULL && !is_first) {
            c->word[c->n] = random_word(*text, room);
        } else {
            snprintf(room, WORD_BYTES, "%.*s", (int)n, text);
            c->word[c->n] = room;
        }
        c->n++;
        text += n + (text[n] == ' ');
    }
}

static void make_raw(struct command *c, const long long link_ids[LINKS])
{
    const char *text = raw_commands[commands_draw(sizeof raw_commands / sizeof *raw_commands)];
    bool fixed = *text == '!';
    text += fixed;
    c->unordered = *text == '~';
    c->loose = *text == '?';
    text += c->unordered || c->loose;
    add_words(c, text, link_ids);
    c->timed = strcmp(c->word[0], "pttl") == 0 || strcmp(c->word[0], "time") == 0;
    if (!fixed && commands_draw(40) == 0) {
        if (commands_draw(2) == 0 && c->n > 1) {
            c->n--;
        } else {
            c->word[c->n++] = "x";
        }
    }
}

static void add_script(struct command *c, const char *text, const char sha1[41], const char *keys,
                       const char *arguments)
{
    size_t key_count = 0;
    for (const char *at = keys; *at != '\0'; at++) {
        key_count += *at != ' ';
    }
    bool by_hash = commands_draw(4) != 0;
    add_words(c, by_hash ? "evalsha" : "eval", NULL);
    c->word[c->n++] = by_hash ? sha1 : text;
    c->word[c->n] = c->room[c->n];
    snprintf(c->room[c->n++], WORD_BYTES, "%zu", key_count);
    add_words(c, keys, NULL);
    add_words(c, arguments, NULL);
    c->timed = true;
    c->is_script = true;
}

void command_make(struct command *c, const long long link_ids[LINKS])
{
    static char sha1[41];
    uint64_t kind = commands_draw(10);
    c->n = 0;
    c->kills = -1;
    c->timed = c->unordered = c->loose = c->is_script = false;
    if (kind < 4) {
        make_raw(c, link_ids);
    } else if (kind < 9) {
        size_t shape = commands_draw(sizeof script_shapes / sizeof *script_shapes);
        int i = 0;
        while (strcmp(snib__script_texts[i].name, script_shapes[shape].name) != 0) {
            i++;
        }
        add_script(c, snib__script_texts[i].text, snib__script_texts[i].sha1,
                   script_shapes[shape].keys, script_shapes[shape].arguments);
        c->unordered = strcmp(script_shapes[shape].name, "list") == 0;
    } else {
        const char *text = probes[commands_draw(sizeof probes / sizeof *probes)];
        model_sha1(text, strlen(text), sha1);
        add_script(c, text, sha1, "k", "o");
    }
}

bool commands_cover_scripts(void)
{
    for (int i = 0; i < SNIB__SCRIPT_COUNT; i++) {
        bool found = false;
        for (size_t j = 0; j < sizeof script_shapes / sizeof *script_shapes; j++) {
            found |= strcmp(snib__script_texts[i].name, script_shapes[j].name) == 0;
        }
        if (!found) {
            fprintf(stderr, "model_check: no call of %s.lua is made here\n",
                    snib__script_texts[i].name);
            return false;
        }
    }
    return true;
}
