/* model_commands.c - random commands for model_check.c: those that the library sends and those that
 * a test may use to interfere, with right and wrong arguments and types; every script of the
 * library; and small scripts for each rule of reply conversion. */
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

/* One letter stands for a random word: k a key, w the key of changing types, q a list's key, z a
 * sorted set's, e one of instants, s a counter's, o an owner, t a reader's lease, a that reader, m
 * a member, f a score, r a bound of scores, j a small index, u a small number, l g h leases, v a
 * value, b notes, c a channel, i an integer, d a database, * a link to kill.  Marks before a command:
 * ! add or omit no arguments, ~ ignore the order and ? the values of the reply. */
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
                                           "persist k",
                                           "hset k7 o v",
                                           "del k7",
                                           "zcard k7",
                                           "unlink k",
                                           "unlink k k",
                                           "exists k k k",
                                           "get s",
                                           "getrange s j j",
                                           "getrange w j j",
                                           "getrange w 0 63",
                                           "set s i",
                                           "set s i px l",
                                           "set s i ex l",
                                           "set k v get",
                                           "set s v keepttl",
                                           "set s v nx get",
                                           "set s v keepttl px l",
                                           "set s v ex l px l",
                                           "set s v nx keepttl",
                                           "incr s",
                                           "incr s",
                                           "incr k",
                                           "decr s",
                                           "incrby s i",
                                           "incrby k i",
                                           "decrby s i",
                                           "decrby s i",
                                           "hmget k o o",
                                           "hmget k o",
                                           "hvals k",
                                           "hsetnx k o v",
                                           "setnx w v",
                                           "setnx k v",
                                           "hscan k 0",
                                           "hscan k 0 count 500",
                                           "hscan k o",
                                           "?hrandfield k",
                                           "?hrandfield k j",
                                           "?hrandfield k j withvalues",
                                           "?hrandfield k j nonsense",
                                           "?hrandfield k i",
                                           "rpush q m",
                                           "rpush q m m",
                                           "rpush k v",
                                           "lpush q m m",
                                           "lpop q",
                                           "lpop q j",
                                           "lpop q i",
                                           "rpop q",
                                           "rpop q j",
                                           "lindex q j",
                                           "lindex q i",
                                           "lrange q 0 -1",
                                           "lrange q j j",
                                           "lrange q j i",
                                           "lrem q j m",
                                           "lrem q j m",
                                           "lrem q i m",
                                           "llen q",
                                           "lpos q m",
                                           "lpos q m",
                                           "zadd z f m",
                                           "zadd z f m f m",
                                           "zadd z nx f m",
                                           "zadd z xx f m f m",
                                           "zadd z gt f m",
                                           "zadd z lt ch f m",
                                           "zadd z ch f m f m",
                                           "zadd z incr f m",
                                           "zadd z nx gt f m",
                                           "zadd z nx xx f m",
                                           "zadd z gt lt f m",
                                           "zadd z xx incr f m",
                                           "zadd z f m f",
                                           "zadd z incr f m f m",
                                           "zadd z xx",
                                           "zadd k f m",
                                           "zscore z m",
                                           "zscore z m",
                                           "zrem z m",
                                           "zrem z m m",
                                           "zcard z",
                                           "zrank z m",
                                           "zrange z j j",
                                           "zrange z 0 -1 withscores",
                                           "zrange z j i",
                                           "zrange z 0 0",
                                           "zincrby z f m",
                                           "zincrby z f m",
                                           "zcount z r r",
                                           "zremrangebyscore z r r",
                                           "zremrangebyrank z j j",
                                           "zremrangebyrank z i j",
                                           "zrangebyscore z r r",
                                           "zrangebyscore z r r withscores",
                                           "zrangebyscore z r r limit j j",
                                           "zrangebyscore z r r withscores limit j j",
                                           "zrangebyscore z r r limit j",
                                           "zrangebyscore z r r limit i 1",
                                           "time",
                                           "~scan 0 count 1000",
                                           "~scan 0 match k* count 1000",
                                           "~scan 0 match *[^12] type hash count 1000",
                                           "~scan 0 type zset count 1000",
                                           "scan x",
                                           "scan 0 count 0",
                                           "scan 0 nonsense 1",
                                           "~keys k*",
                                           "~keys [^k]*",
                                           "~keys *[0-3]",
                                           "~keys ?[9-0]",
                                           "~keys *\\0",
                                           "~keys [\\k][\\]0-2",
                                           "~keys [k-k",
                                           "~keys *[",
                                           "~keys k\\",
                                           "~keys k[^1]*",
                                           "!?dbsize",
                                           "publish c v",
                                           "publish c v",
                                           "pubsub numsub c c",
                                           "!~pubsub channels",
                                           "!~pubsub channels *[^1]",
                                           "!~pubsub channels c",
                                           "!pubsub channels c c",
                                           "!ping",
                                           "!ping v",
                                           "select d",
                                           "!client setinfo lib-name snib",
                                           "!client kill id *",
                                           "!client kill id 0",
                                           "!client kill id 99999999",
                                           "!client kill type pubsub id *",
                                           "!client kill type nonsense",
                                           "!client kill type master skipme no",
                                           "!client kill type normal skipme maybe",
                                           "!client kill skipme yes id *",
                                           "!client kill type pubsub skipme yes id 99999999",
                                           "client kill nonsense",
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
    {"board", "board", "60 40 b"},
    {"board", "w", "60 0 b"}, /* texts of others, and no times to compare */
    {"list", "", "0 p n"},
    {"describe", "k k5 k4 k6 k7", "c c"},
    {"describe", "s q z s e", "c"},
    {"fair_acquire", "k0 Q Z B s", "o g 1 0 c 0 0"},
    {"fair_acquire", "k0 Q Z B s", "o l 1 1 c 1 2"},
    {"fair_acquire", "k0 Q Z B s", "o g 0 0 c 0 1"},
    {"fair_force", "k0 Q Z B s", "c"},
    {"fair_info", "k0 Q s", "c"},
    {"fair_release", "k0 Q Z B s", "o c"},
    {"fair_renew", "k0 Q Z", "l o"},
    {"fair_renew", "k0 Q Z k Q Z", "0 o o"},
    {"fenced_acquire", "k s", "o l"},
    {"fenced_acquire", "k s", "o g"},
    {"fenced_transfer", "k s", "o o l c"},
    {"fenced_transfer", "k s", "o o g c"},
    {"latch_acquire", "s", ""},
    {"latch_count", "s", "1 0 c"},
    {"latch_count", "s", "2 u c"},
    {"latch_count", "s", "8 0 c"},
    {"latch_force", "s", "c"},
    {"latch_info", "s", "c"},
    {"multi_acquire", "k k k k1 s k1", "o g mf"},
    {"multi_acquire", "k0 t mark k1 k1 k1", "a g rs"},
    {"multi_acquire", "k0 k0 k0 k2 k2 k2", "o l wm"},
    {"multi_release", "k k k1 k1", "o mf c c"},
    {"multi_release", "k0 t k1 k1", "a rs c c"},
    {"multi_release", "k0 k0 k2 k2", "o wm c c"},
    {"mutexes_acquire", "k k1", "o l"},
    {"mutexes_acquire", "k0 k1 k2", "o g"},
    {"mutexes_release", "k k1", "o c c"},
    {"mutexes_release", "k0 k1 k2", "o c c c"},
    {"multi_renew", "k k k1 k1 k0 t", "g o mf a r"},
    {"multi_renew", "k0 k0 k2 k2", "l o wm"},
    {"multi_renew", "k0 k0 k2 k2 k k", "0 o wm o m"},
    {"mutex_acquire", "k", "o l"},
    {"mutex_acquire", "k", "o g"},
    {"mutex_force", "k", "c"},
    {"mutex_info", "k s", "c"},
    {"mutex_release", "k", "o c"},
    {"mutex_renew", "k", "l o"},
    {"mutex_renew", "k k k", "g o o o"},
    {"mutex_renew", "k k", "0 o o"},
    {"mutex_transfer", "k", "o o l"},
    {"mutex_transfer", "k", "o o g"},
    {"permits_acquire", "s e", "h c m"},
    {"permits_acquire", "s e", "h c m m"},
    {"permits_count", "s e", "1 0 c"},
    {"permits_count", "s e", "2 u c"},
    {"permits_count", "s e", "3 j c"},
    {"permits_count", "s e", "4 u c"},
    {"permits_count", "s e", "5 0 c"},
    {"permits_force", "s e", ""},
    {"permits_info", "s e", "c"},
    {"permits_release", "s e", "c m"},
    {"permits_release", "s e", "c m m"},
    {"permits_renew", "e", "h 1 m"},
    {"permits_renew", "e e", "h 2 m m 1 m"},
    {"permits_renew", "e k", "0 1 m 1 m"},
    {"plain_acquire", "k", "o l"},
    {"plain_acquire", "k", "o g"},
    {"plain_force", "k", "c"},
    {"plain_info", "k", "c"},
    {"plain_release", "k", "o c"},
    {"plain_renew", "k", "l o"},
    {"plain_renew", "k k", "0 o o"},
    {"plain_transfer", "k", "o o g"},
    {"quorum_acquire", "k s", "o g run1 0"},
    {"quorum_acquire", "k epoch", "o g run1 86400000"},
    {"read_acquire", "k0 t mark", "a l"},
    {"read_acquire", "k0 t mark", "a g"},
    {"read_acquire", "k0 t mark", "a l a"},
    {"read_force", "k0", "c"},
    {"read_info", "k0", "c"},
    {"read_release", "k0 t", "a c"},
    {"read_renew", "k0 t", "l a"},
    {"read_renew", "k0 t", "0 a"},
    {"semaphore_acquire", "s", "u"},
    {"semaphore_count", "s", "1 0 c"},
    {"semaphore_count", "s", "2 u c"},
    {"semaphore_count", "s", "3 j c"},
    {"semaphore_count", "s", "6 u c"},
    {"semaphore_count", "s", "7 0 c"},
    {"semaphore_force", "s", ""},
    {"semaphore_info", "s", "c"},
    {"semaphore_release", "s", "u c"},
    {"spin_force", "k", ""},
    {"spin_release", "k", "o"},
    {"write_acquire", "k0 mark", "o l 0"},
    {"write_acquire", "k0 mark", "o g 5000"},
    {"write_acquire", "k0 mark s", "o g 0"},
    {"write_force", "k0", "c"},
    {"write_info", "k0 s", "c"},
    {"write_release", "k0", "o c"},
    {"write_renew", "k0", "l o"},
    {"write_renew", "k0 k0", "0 o o"},
    {"write_transfer", "k0", "o o l c"},
    {"write_transfer", "k0 s", "o o g c"},
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
    "return redis.call('zadd', 'k4', 1.5, 'm1')",
    "return {redis.call('zscore', 'k4', 'm1'), type(redis.call('zscore', 'k4', 'none'))}",
    "return redis.call('lpop', 'k5', 2)",
    "return type(redis.call('lpop', 'none', 2))",
    "return redis.call('hmget', KEYS[1], ARGV[1], 'none')",
    "return redis.call('set', 'k6', 1700000000123 + 0.5)",
    "return redis.call('incrby', 'k6', 1.5)",
    "return tonumber(redis.call('get', 'k6') or 0)",
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
    "local names = {} for i = 1, 1000 do names[i] = 'none' .. i end "
    "return redis.call('del', unpack(names))",
    "local cursor, met, names = '0', {}, {} repeat local step = redis.call('scan', cursor, "
    "'count', 1) "
    "for _, name in ipairs(step[2]) do met[name] = 1 end cursor = step[1] until cursor == '0' "
    "for name in pairs(met) do names[#names + 1] = name end table.sort(names) return names",
    "return {redis.call('time')[1] ~= nil, redis.call('exists', KEYS[1])}",
};

static const char *random_word(char letter, char room[WORD_BYTES])
{
    static char reader[WORD_BYTES];
    static const char *const leases[] = {
        "10000", "30000", "86400000", "1", "2", "3", "0", "-5", "abc", "1e3", "9223372036854775807",
        "",      "010",   "3600000"};
    static const char *const integers[] = {"1", "-1", "0", "9223372036854775807", "x", "1.5", "-7"};
    static const char *const notes[] = {"", "a x\n", "a y\nb x\n", "no note\n\nc z",
                                        "a a longer note\n"};
    static const char *const values[] = {"1", "0", "some text", "", "with\r\nlines", "-12"};
    static const char *const scores[] = {"1",   "2",   "-3",   "1.5",  "1700000000000",
                                         "0.1", "0",   "-inf", "inf",  "+10",
                                         "x",   "nan", "",     "1e400"};
    static const char *const bounds[] = {"-inf",          "+inf", "(1",   "1", "2", "(1.5",
                                         "1700000000000", "0",    "(inf", "x", "(", ""};
    switch (letter) {
    case 'k':
        snprintf(room, WORD_BYTES, "k%d", (int)commands_draw(commands_draw(8) == 0 ? 7 : 4));
        return room;
    case 'w':
        return "k3";
    case 'z':
    case 'q':
    case 's': /* now and then a key of another type */
        snprintf(room, WORD_BYTES, "k%d",
                 commands_draw(12) == 0 ? (int)commands_draw(7)
                 : letter == 'z'        ? 4
                 : letter == 'q'        ? 5
                                        : 6);
        return room;
    case 'm':
        snprintf(room, WORD_BYTES, "m%d", (int)commands_draw(5));
        return room;
    case 'f':
        return scores[commands_draw(sizeof scores / sizeof *scores)];
    case 'r':
        return bounds[commands_draw(sizeof bounds / sizeof *bounds)];
    case 'j':
        snprintf(room, WORD_BYTES, "%d", (int)commands_draw(7) - 3);
        return room;
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
    case 't': /* where a reader's lease is; `a` is the reader */
        snprintf(reader, sizeof reader, "0a1b2c3d-4e5f-8a7b-8c9d-0e1f2a3b4c5d:%d",
                 (int)commands_draw(3));
        snprintf(room, WORD_BYTES, "{k0}:%.40s:rwlock_timeout:1", reader);
        return room;
    case 'a':
        return reader;
    case 'e': /* a sorted set of instants, which no command may read */
        return "k7";
    case 'h':
        return "86400000";
    case 'u':
        snprintf(room, WORD_BYTES, "%d", 1 + (int)commands_draw(3));
        return room;
    case 'l': /* a very short one costs a wait */
        return commands_draw(12) == 0 ? leases[commands_draw(sizeof leases / sizeof *leases)]
                                      : leases[commands_draw(3)];
    case 'g':
        return leases[commands_draw(3)];
    case 'i':
        return integers[commands_draw(sizeof integers / sizeof *integers)];
    case 'v':
        return values[commands_draw(sizeof values / sizeof *values)];
    case 'b':
        return notes[commands_draw(sizeof notes / sizeof *notes)];
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
        } else if (n == 1 && strchr("kwqzesomfrjtacdlghuivpnb", *text) != NULL && !is_first) {
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
        key_count += at == keys || at[-1] == ' ';
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
        c->loose =
            strcmp(script_shapes[shape].name, "describe") == 0 || /* their texts contain times */
            strcmp(script_shapes[shape].name, "board") == 0;
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
