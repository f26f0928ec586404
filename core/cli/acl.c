/* acl.c - snib acl: the least privileges that a server user needs for locks with a prefix, as ACL
 * SETUSER rules.
 *
 * The rules follow from the scripts (core/lua) and from the layout; a test runs every kind under
 * its rules, and compares the commands with those of the scripts. */
#include "cli.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one kind needs.  In keys and channels, @ stands for the prefix in braces and without, # for the bare
 * prefix. */
static const struct needs {
    int32_t kind; /* enum snib_kind; 0: snib_client_describe() and snib_client_list() */
    const char *keys, *channels, *commands;
} needs[] = {
    {SNIB_MUTEX, "# snib_quorum_epoch", "redisson_lock__channel:@",
     "exists get set del hset hget hdel hexists hgetall hkeys hlen incr pexpire pttl"},
    {SNIB_SPIN, "#", "", "exists del hset hdel hexists hgetall hkeys pexpire pttl"},
    {SNIB_FENCED, "# redisson_lock_token:@", "redisson_lock__channel:@",
     "exists get del incr hset hdel hexists hgetall hkeys pexpire persist pttl"},
    {SNIB_FAIR,
     "# redisson_lock_queue:@ redisson_lock_timeout:@ redisson_lock_token:@ snib_lock_beats:@",
     "redisson_lock__channel:@",
     "exists get del incr setnx hset hget hdel hexists hgetall hkeys pexpire pttl persist rpush "
     "lpop "
     "lrem lrange lindex llen zadd zrem zscore zcard zrange zincrby"},
    {SNIB_READ, "# @ snib_writer_waits:@ redisson_lock_token:@", "redisson_rwlock:@",
     "exists get set del hset hget hdel hexists hgetall hkeys hlen hrandfield pexpire pttl"},
    {SNIB_WRITE, "# @ snib_writer_waits:@ redisson_lock_token:@", "redisson_rwlock:@",
     "exists get set del incr hset hget hdel hexists hgetall hkeys hlen hrandfield pexpire persist "
     "pttl"},
    {SNIB_PLAIN, "#", "snib_plain_channel:@", "exists get set del hdel pexpire pttl"},
    {SNIB_PERMITS, "# @", "redisson_sc:@",
     "exists get del incrby decrby pexpire pttl persist zadd zrem zscore zcard zcount zrange "
     "zrangebyscore"},
    {SNIB_SEMAPHORE, "#", "redisson_sc:@", "get del incrby decrby hdel"},
    {SNIB_LATCH, "# redisson_countdownlatch__channel__{@",
     "redisson_countdownlatch__channel__{# redisson_countdownlatch__channel__{@",
     "get set del decr hdel"},
    {0,
     "# @ redisson_lock_queue:@ redisson_lock_timeout:@ redisson_lock_token:@ "
     "redisson_countdownlatch__channel__{@",
     "",
     "exists get getrange type scan hget hkeys hlen hexists hscan llen lrange pttl zcard zcount "
     "zrange zscore"},
};

struct rules {
    const struct cli *cli;
    char *lines[256]; /* each once */
    size_t n;
};

static void add_rule(struct rules *rules, char sign, const char *text)
{
    size_t n = strlen(text) + 2;
    char *line = malloc(n);
    if (!line || rules->n == sizeof rules->lines / sizeof rules->lines[0])
        abort();
    snprintf(line, n, "%c%s", sign, text);
    for (size_t i = 0; i < rules->n; i++)
        if (strcmp(rules->lines[i], line) == 0) {
            free(line);
            return;
        }
    rules->lines[rules->n++] = line;
}

/* The prefix as a pattern for the server, with wildcard characters escaped. */
static void pattern_of(const char *prefix, char *out)
{
    for (; *prefix; prefix++) {
        if (strchr("*?[]\\", *prefix))
            *out++ = '\\';
        *out++ = *prefix;
    }
    *out = 0;
}

/* Keys or channels, one word each.  A name with a hash tag gets no other braces, and its tag may be behind the prefix, so
 * both forms are needed unless the prefix has a brace. */
static void add_patterns(struct rules *rules, char sign, const char *words, const char *prefix)
{
    char pattern[2048], word[128], line[4096];
    bool is_tagged = strchr(prefix, '{') != NULL;
    int taken;
    pattern_of(prefix, pattern);
    for (const char *at = words; sscanf(at, " %127s%n", word, &taken) == 1; at += taken) {
        size_t n = strlen(word);
        char place = word[n - 1];
        if (place == '@' || place == '#')
            word[n - 1] = 0;
        for (int braces = place == '@' && !is_tagged; braces >= 0; braces--) {
            snprintf(line, sizeof line, "%s%s%s%s", word, braces ? "{" : "",
                     place == '@' || place == '#' ? pattern : "",
                     place == '@' || place == '#' ? "*" : "");
            add_rule(rules, sign, line);
        }
    }
}

static void add_commands(struct rules *rules, const char *words)
{
    char word[64];
    int taken;
    for (const char *at = words; sscanf(at, " %63s%n", word, &taken) == 1; at += taken)
        add_rule(rules, '+', word);
}

/* Remove what Redis 6.0 refuses as unknown: channels, and a command that scripts do without. */
static void remove_newer(struct rules *rules)
{
    size_t kept = 0;
    for (size_t i = 0; i < rules->n; i++) {
        char *line = rules->lines[i];
        bool is_newer = line[0] == '&' || strcmp(line, "resetchannels") == 0 ||
                        strcmp(line, "+hrandfield") == 0;
        if (is_newer)
            free(line);
        else
            rules->lines[kept++] = line;
    }
    rules->n = kept;
}

/* Add commands that only newer servers know, and older ones refuse as unknown: by the server's
 * INFO. */
static int add_what_server_knows(struct rules *rules)
{
    static char texts[1 << 17];
    snib_client *client;
    snib_error err;
    size_t used = 0;
    uint32_t count;
    int valkey = 0, redis = 0, minor = 0;
    bool cluster = false;
    int code = cli_open(rules->cli, &client);
    if (code != 0)
        return code;
    if (snib_client_server(client, SNIB_SERVER_INFO, texts, sizeof texts, &used, &count, &err) !=
        SNIB_OK) {
        code = cli_fail(rules->cli, &err);
        cli_close(rules->cli, client);
        return code;
    }
    for (const char *at = texts; at < texts + used; at += strlen(at) + 1) {
        if (sscanf(at, "valkey_version:%d.%d", &valkey, &minor) == 0)
            sscanf(at, "redis_version:%d.%d", &redis, &minor);
        cluster = cluster || strcmp(at, "redis_mode:cluster") == 0 ||
                  strcmp(at, "server_mode:cluster") == 0;
    }
    cli_close(rules->cli, client);
    if (!valkey && redis > 0 && redis * 100 + minor < 602)
        remove_newer(rules);
    if (valkey || redis * 100 + minor >= 702)
        add_rule(rules, '+', "client|setinfo");
    if (valkey >= 9)
        add_rule(rules, '+', "delifeq");
    else if (!valkey && redis * 100 + minor >= 804)
        add_rule(rules, '+', "delex");
    if (cluster)
        add_commands(rules, "cluster|slots cluster|info asking");
    if (cluster && (valkey || redis >= 7))
        add_commands(rules, "ssubscribe sunsubscribe spublish");
    return 0;
}

static void print_rules(const struct rules *rules)
{
    cJSON *array = rules->cli->is_json ? cJSON_CreateArray() : NULL;
    for (size_t i = 0; i < rules->n; i++) {
        if (array)
            cJSON_AddItemToArray(array, cJSON_CreateString(rules->lines[i]));
        else
            puts(rules->lines[i]);
    }
    if (array)
        cli_print_json(array);
}

static void add_all(struct rules *rules)
{
    const struct cli *cli = rules->cli;
    const char *const resets[] = {"@all", "resetkeys", "resetchannels"};
    add_rule(rules, '-', resets[0]);
    for (int i = 1; i < 3; i++)
        if ((rules->lines[rules->n] = strdup(resets[i])) != NULL)
            rules->n++;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        if (!cli->kind || cli->kind == needs[i].kind)
            add_patterns(rules, '~', needs[i].keys, cli->name);
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        if (!cli->kind || cli->kind == needs[i].kind)
            add_patterns(rules, '&', needs[i].channels, cli->name);
    add_rule(rules, '~', "snib_client:*"); /* who the clients are, and what they tell each other */
    add_commands(rules, "set del getrange evalsha script|load ping select info time client|id "
                        "client|kill subscribe "
                        "unsubscribe publish pubsub|numsub wait");
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        if (!cli->kind || cli->kind == needs[i].kind)
            add_commands(rules, needs[i].commands);
}

int cli_acl(const struct cli *cli)
{
    struct rules rules = {.cli = cli};
    if (strlen(cli->name) > 500)
        return cli_usage(cli, "the prefix is longer than any name", NULL);
    char *printable = cli_printable(cli->name);
    bool is_plain = strcmp(printable, cli->name) == 0 && !strchr(cli->name, ' ');
    free(printable);
    if (!is_plain)
        return cli_usage(cli,
                         "a rule cannot have spaces or unprintable characters, so this cannot be a "
                         "prefix: ",
                         cli->name);
    add_all(&rules);
    int code = cli->has_url ? add_what_server_knows(&rules) : 0;
    if (code == 0)
        print_rules(&rules);
    for (size_t i = 0; i < rules.n; i++)
        free(rules.lines[i]);
    return code;
}
