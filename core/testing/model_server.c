/* model_server.c - the model server's connections: RESP2 requests, dispatch, pub/sub, connection commands. */
#include "model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ARGUMENTS_MAX 1024

/* ---- Life --------------------------------------------------------------------------------------- */

model *model_new(void)
{
    model *m = model__grow(NULL, sizeof *m);
    *m = (model){0};
    model__lua_open(m);
    return m;
}

static void free_connection(connection *c)
{
    for (size_t i = 0; i < c->channel_count; i++) {
        model__drop(&c->channels[i]);
    }
    free(c->channels);
    model__drop_shards(c);
    free(c->shards);
    model__drop(&c->in);
    model__drop(&c->out);
    model__drop(&c->sent);
    free(c);
}

void model_free(model *m)
{
    if (m == NULL) {
        return;
    }
    model_flush_keys(m);
    free(m->keys);
    for (size_t i = 0; i < m->connection_count; i++) {
        free_connection(m->connections[i]);
    }
    free(m->connections);
    free(m->by_id);
    model__lua_close(m);
    free(m);
}

void model_time(model *m, uint64_t now_ns)
{
    m->now_ns = now_ns;
}

static connection *find_connection(const model *m, uint64_t id)
{
    return id <= m->last_id && id < m->by_id_cap ? m->by_id[id] : NULL;
}

uint64_t model_connect(model *m)
{
    size_t size = (m->connection_count + 1) * sizeof(connection *);
    connection *c = model__grow(NULL, sizeof *c);
    *c = (connection){.id = ++m->last_id,
                      .client_id = ++m->last_client_id,
                      .open = true,
                      .authenticated = m->password == NULL && !(m->faults & MODEL_PASSWORD)};
    m->connections = model__grow(m->connections, size);
    m->connections[m->connection_count++] = c;
    if (c->id >= m->by_id_cap) {
        size_t cap = 2 * c->id + 16;
        m->by_id = model__grow(m->by_id, cap * sizeof(connection *));
        memset(m->by_id + m->by_id_cap, 0, (cap - m->by_id_cap) * sizeof(connection *));
        m->by_id_cap = cap;
    }
    m->by_id[c->id] = c;
    return c->id;
}

static void drop_subscriptions(connection *c)
{
    while (c->channel_count > 0) {
        model__drop(&c->channels[--c->channel_count]);
    }
    model__drop_shards(c);
}

/* The server's end goes: input that it has not read is never executed, output that it has not sent
 * is lost. */
static void shut(connection *c)
{
    c->open = false;
    c->in.n = 0;
    drop_subscriptions(c);
}

void model_close(model *m, uint64_t id)
{
    for (size_t i = 0; i < m->connection_count; i++) {
        if (m->connections[i]->id == id) {
            free_connection(m->connections[i]);
            m->by_id[id] = NULL;
            m->connections[i] = m->connections[--m->connection_count];
            return;
        }
    }
}

bool model_is_open(const model *m, uint64_t id)
{
    const connection *c = find_connection(m, id);
    return c != NULL && c->open;
}

size_t model_output(model *m, uint64_t id, const char **bytes)
{
    connection *c = find_connection(m, id);
    if (c == NULL) {
        return 0;
    }
    buffer sent = c->sent;
    c->sent = c->out;
    c->out = sent;
    c->out.n = 0;
    *bytes = c->sent.p;
    return c->sent.n;
}

bool model__text_is(model_text text, const char *word)
{
    return text.n == strlen(word) && strncasecmp(text.p, word, text.n) == 0;
}

/* ---- Connection commands ------------------------------------------------------------------------ */

static void run_quit(call *c)
{
    model__status(c, "OK");
    c->from->closing = true;
}

static void run_auth(call *c)
{
    model_text user = c->argc == 3 ? c->argv[1] : (model_text){"default", 7};
    model_text password = c->argv[c->argc - 1];
    if (c->argc > 3) {
        model__error(c, "ERR syntax error");
    } else if (c->argc == 2 && c->m->password == NULL) {
        model__error(c,
                     "ERR AUTH <password> called without any password configured for the default "
                     "user. Are you sure your configuration is correct?");
    } else if (model__strikes(c->m, MODEL_PASSWORD) || user.n != 7 ||
               memcmp(user.p, "default", 7) != 0 ||
               (c->m->password != NULL && (password.n != strlen(c->m->password) ||
                                           memcmp(password.p, c->m->password, password.n) != 0))) {
        model__error(c, "WRONGPASS invalid username-password pair or user is disabled.");
    } else {
        c->from->authenticated = true;
        model__status(c, "OK");
    }
}

static void run_client_kill(call *c)
{
    long long id;
    if (c->argc != 4 || !model__text_is(c->argv[2], "id")) {
        model__error(c, "ERR syntax error");
        return;
    }
    if (!model__parse_integer(c->argv[3], &id) || id < 1) {
        model__error(c, "ERR client-id should be greater than 0");
        return;
    }
    connection *victim = NULL;
    for (size_t i = 0; i < c->m->connection_count; i++) {
        connection *other = c->m->connections[i];
        victim = other->open && other->client_id == (uint64_t)id ? other : victim;
    }
    bool found = victim != NULL;
    if (found && victim == c->from) {
        victim->closing = true;
    } else if (found) {
        shut(victim);
        victim->out.n = 0;
    }
    model__integer(c, found);
}

static void run_client_id(call *c)
{
    model__integer(c, (long long)c->from->client_id);
}

static void run_ping(call *c)
{
    model_text text = c->argc > 1 ? c->argv[1] : (model_text){"", 0};
    if (c->argc > 2) {
        model__error(c, "ERR wrong number of arguments for 'ping' command");
    } else if (c->from->channel_count + c->from->shard_count > 0) {
        model__array(c, 2);
        model__bulk(c, "pong", 4);
        model__bulk(c, text.p, text.n);
    } else if (c->argc > 1) {
        model__bulk(c, text.p, text.n);
    } else {
        model__status(c, "PONG");
    }
}

static void run_select(call *c)
{
    long long db;
    if (!model__parse_integer(c->argv[1], &db)) {
        model__error(c, "ERR value is not an integer or out of range");
    } else if (db < 0 || db > 15) {
        model__error(c, "ERR DB index is out of range");
    } else {
        c->from->db = (int)db;
        model__status(c, "OK");
    }
}

static void run_role(call *c)
{
    if (model__strikes(c->m, MODEL_READONLY | MODEL_MASTERDOWN)) {
        model__array(c, 5);
        model__bulk(c, "slave", 5);
        model__bulk(c, "127.0.0.1", 9);
        model__integer(c, 1);
        model__bulk(c, "connect", 7);
        model__integer(c, -1);
        return;
    }
    model__array(c, 3);
    model__bulk(c, "master", 6);
    model__integer(c, 0);
    model__array(c, 0);
}

static void run_info(call *c)
{
    char text[256];
    int n = snprintf(
        text, sizeof text,
        "# Server\r\nredis_version:7.0.15\r\nrun_id:%040llx\r\n# Persistence\r\nloading:%d\r\n"
        "# Replication\r\nrole:%s\r\n",
        (unsigned long long)c->m->run, model__strikes(c->m, MODEL_LOADING),
        model__strikes(c->m, MODEL_READONLY | MODEL_MASTERDOWN) ? "slave" : "master");
    model__bulk(c, text, (size_t)n);
}

/* ---- Pub/sub ------------------------------------------------------------------------------------ */

static buffer *find_channel(const connection *c, model_text name)
{
    for (size_t i = 0; i < c->channel_count; i++) {
        if (model__equal(&c->channels[i], name)) {
            return &c->channels[i];
        }
    }
    return NULL;
}

static void confirm(call *c, const char *kind, model_text channel)
{
    model__array(c, 3);
    model__bulk(c, kind, strlen(kind));
    if (channel.p == NULL) {
        model__null(c);
    } else {
        model__bulk(c, channel.p, channel.n);
    }
    model__integer(c, (long long)c->from->channel_count);
}

static void run_subscribe(call *c)
{
    connection *from = c->from;
    for (size_t i = 1; i < c->argc; i++) {
        if (find_channel(from, c->argv[i]) == NULL) {
            from->channels =
                model__grow(from->channels, (from->channel_count + 1) * sizeof *from->channels);
            buffer *added = &from->channels[from->channel_count++];
            *added = (buffer){0};
            model__set(added, c->argv[i].p, c->argv[i].n);
        }
        confirm(c, "subscribe", c->argv[i]);
    }
}

static void unsubscribe_one(call *c, model_text name)
{
    buffer *channel = find_channel(c->from, name);
    if (channel != NULL) {
        buffer gone = *channel;
        *channel = c->from->channels[--c->from->channel_count];
        confirm(c, "unsubscribe", name); /* the name may be in the buffer that is freed */
        model__drop(&gone);
        return;
    }
    confirm(c, "unsubscribe", name);
}

static void run_unsubscribe(call *c)
{
    if (c->argc == 1 && c->from->channel_count == 0) {
        confirm(c, "unsubscribe", (model_text){NULL, 0});
    }
    while (c->argc == 1 && c->from->channel_count > 0) {
        unsubscribe_one(c, (model_text){c->from->channels[0].p, c->from->channels[0].n});
    }
    for (size_t i = 1; i < c->argc; i++) {
        unsubscribe_one(c, c->argv[i]);
    }
}

void model__publish(call *c)
{
    long long receivers = 0;
    model__published(c->m, c->argv[1], c->argv[2], false);
    for (size_t i = 0; i < c->m->connection_count; i++) {
        connection *to = c->m->connections[i];
        if (find_channel(to, c->argv[1]) == NULL) {
            continue;
        }
        receivers++;
        if (!model__strikes(c->m, MODEL_MUTE)) {
            call message = {.m = c->m, .from = to, .reply = &to->out};
            model__array(&message, 3);
            model__bulk(&message, "message", 7);
            model__bulk(&message, c->argv[1].p, c->argv[1].n);
            model__bulk(&message, c->argv[2].p, c->argv[2].n);
        }
    }
    model__integer(c, receivers);
}

size_t model_subscribers(const model *m, const char *channel, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < m->connection_count; i++) {
        count += find_channel(m->connections[i], (model_text){channel, n}) != NULL;
    }
    return count;
}

/* Of a channel's subscribers only the first is counted. */
static bool is_first(const model *m, size_t at, model_text name)
{
    for (size_t i = 0; i < at; i++) {
        if (find_channel(m->connections[i], name) != NULL) {
            return false;
        }
    }
    return true;
}

static size_t each_channel(const model *m, call *c)
{
    size_t count = 0;
    for (size_t i = 0; i < m->connection_count; i++) {
        for (size_t j = 0; j < m->connections[i]->channel_count; j++) {
            const buffer *channel = &m->connections[i]->channels[j];
            if (is_first(m, i, (model_text){channel->p, channel->n})) {
                count++;
                if (c != NULL) {
                    model__bulk(c, channel->p, channel->n);
                }
            }
        }
    }
    return count;
}

size_t model_channel_count(const model *m)
{
    return each_channel(m, NULL);
}

model_text model_channel(const model *m)
{
    for (size_t i = 0; i < m->connection_count; i++) {
        if (m->connections[i]->channel_count > 0) {
            const buffer *channel = &m->connections[i]->channels[0];
            return (model_text){channel->p, channel->n};
        }
    }
    return (model_text){"", 0};
}

static void run_pubsub_channels(call *c)
{
    model__array(c, model_channel_count(c->m));
    each_channel(c->m, c);
}

static void run_pubsub_numsub(call *c)
{
    model__array(c, 2 * (c->argc - 2));
    for (size_t i = 2; i < c->argc; i++) {
        model__bulk(c, c->argv[i].p, c->argv[i].n);
        model__integer(c, (long long)model_subscribers(c->m, c->argv[i].p, c->argv[i].n));
    }
}

/* ---- Dispatch --------------------------------------------------------------------------------------- */

static const command server_commands[] = {
    {"auth", run_auth, -2, COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_NOAUTH},
    {"client|id", run_client_id, 2, COMMAND_NOSCRIPT | COMMAND_LOADING},
    {"client|kill", run_client_kill, -3, COMMAND_NOSCRIPT | COMMAND_LOADING},
    {"eval", model__eval, -3, COMMAND_NOSCRIPT},
    {"evalsha", model__evalsha, -3, COMMAND_NOSCRIPT},
    {"info", run_info, -1, COMMAND_LOADING | COMMAND_KEYLESS},
    {"ping", run_ping, -1, COMMAND_SUBSCRIBED | COMMAND_KEYLESS},
    {"publish", model__publish, 3, COMMAND_LOADING | COMMAND_KEYLESS},
    {"pubsub|channels", run_pubsub_channels, 2, COMMAND_LOADING | COMMAND_KEYLESS},
    {"pubsub|numsub", run_pubsub_numsub, -2, COMMAND_LOADING | COMMAND_KEYLESS},
    {"quit", run_quit, -1,
     COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_SUBSCRIBED | COMMAND_NOAUTH},
    {"role", run_role, 1, COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_KEYLESS},
    {"script|exists", model__script_exists, -3, COMMAND_NOSCRIPT},
    {"script|flush", model__script_flush, 2, COMMAND_NOSCRIPT},
    {"script|load", model__script_load, 3, COMMAND_NOSCRIPT},
    {"select", run_select, 2, COMMAND_LOADING | COMMAND_KEYLESS},
    {"subscribe", run_subscribe, -2, COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_SUBSCRIBED},
    {"unsubscribe", run_unsubscribe, -1, COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_SUBSCRIBED},
    {NULL, NULL, 0, 0},
};

/* A command's name in two: "client|id" is a word and the one after it. */
struct words {
    const command *cmd;
    const char *more; /* NULL: there is none */
};

#define LETTERS 26
#define WORD_MAX 20 /* no command's first word is as long */
#define ALIKE 8     /* fewer commands begin with the same letter and are as long */

/* All commands by their first letter and the length of the first word. */
static struct words index_of[LETTERS][WORD_MAX][ALIKE];

static void index_commands(void)
{
    const command *tables[] = {model__value_commands, model__key_commands, model__list_commands,
                               model__deploy_commands, server_commands};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        for (const command *cmd = tables[i]; cmd->name != NULL; cmd++) {
            const char *bar = strchr(cmd->name, '|');
            size_t length = strcspn(cmd->name, "|"), n = 0;
            struct words *at = length < WORD_MAX ? index_of[cmd->name[0] - 'a'][length] : NULL;
            while (at != NULL && at[n].cmd != NULL) {
                n++;
            }
            if (at == NULL || n + 1 >= ALIKE) { /* the last one ends the list */
                abort();
            }
            at[n] = (struct words){cmd, bar == NULL ? NULL : bar + 1};
        }
    }
}

/* Whether n bytes are this word of lower-case letters, in either case. */
static bool same_letters(const char *text, const char *word, size_t n)
{
    size_t i = 0;
    while (i < n && (text[i] | 32) == word[i]) {
        i++;
    }
    return i == n;
}

const command *model__command(const model_text *argv, size_t argc)
{
    static bool indexed;
    if (!indexed) {
        index_commands();
        indexed = true;
    }
    size_t n = argv[0].n;
    unsigned letter = n == 0 || n >= WORD_MAX ? LETTERS : (unsigned)((argv[0].p[0] | 32) - 'a');
    if (letter >= LETTERS) {
        return NULL;
    }
    for (const struct words *at = index_of[letter][n]; at->cmd != NULL; at++) {
        if (same_letters(argv[0].p, at->cmd->name, n) &&
            (at->more == NULL || (argc > 1 && model__text_is(argv[1], at->more)))) {
            return at->cmd;
        }
    }
    return NULL;
}

bool model__arity_fits(const command *cmd, size_t argc)
{
    return cmd->arity >= 0 ? argc == (size_t)cmd->arity : argc >= (size_t)-cmd->arity;
}

static void unknown_command(call *c)
{
    static const char *const containers[][2] = {
        {"client", "CLIENT"}, {"pubsub", "PUBSUB"}, {"script", "SCRIPT"}};
    char arguments[256] = "";
    size_t n = 0;
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++) {
        if (!model__text_is(c->argv[0], containers[i][0])) {
            continue;
        }
        if (c->argc == 1) {
            model__error(c, "ERR wrong number of arguments for '%s' command", containers[i][0]);
        } else {
            model__error(c, "ERR unknown subcommand '%.*s'. Try %s HELP.", (int)c->argv[1].n,
                         c->argv[1].p, containers[i][1]);
        }
        return;
    }
    for (size_t i = 1; i < c->argc && n < 128; i++) {
        size_t shown = c->argv[i].n < 128 - n ? c->argv[i].n : 128 - n;
        n += (size_t)snprintf(arguments + n, sizeof arguments - n, "'%.*s' ", (int)shown,
                              c->argv[i].p);
    }
    model__error(c, "ERR unknown command '%.*s', with args beginning with: %s",
                 (int)(c->argv[0].n < 128 ? c->argv[0].n : 128), c->argv[0].p, arguments);
}

bool model__strikes(model *m, unsigned faults)
{
    m->struck |= m->faults & faults;
    return (m->faults & faults) != 0;
}

bool model__is_forbidden(model *m, const command *cmd)
{
    static const struct {
        unsigned fault;
        const char *names;
    } rights[] = {{MODEL_NO_PUBLISH, "publish"},
                  {MODEL_NO_SUBSCRIBE, "subscribe"},
                  {MODEL_NO_INFO, "info"},
                  {MODEL_NO_CLIENT, "client|"},
                  {MODEL_NO_EVALSHA, "evalsha"}};
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        if (strncmp(cmd->name, rights[i].names, strlen(rights[i].names)) == 0 &&
            model__strikes(m, rights[i].fault)) {
            return true;
        }
    }
    return false;
}

/* Refusals in the order in which the server checks for them. */
static bool refused(call *c, const command *cmd)
{
    model *m = c->m;
    if (!c->from->authenticated && !(cmd->flags & COMMAND_NOAUTH)) {
        model__strikes(m, MODEL_PASSWORD);
        model__error(c, "NOAUTH Authentication required.");
    } else if (model__is_forbidden(m, cmd)) {
        model__error(c, "NOPERM this user has no permissions to run the '%s' command", cmd->name);
    } else if ((cmd->run == run_subscribe || cmd->run == model__publish) &&
               model__strikes(m, MODEL_NO_CHANNELS)) {
        model__error(c, "NOPERM this user has no permissions to access one of the channels used as "
                        "arguments");
    } else if (cmd->flags & COMMAND_GROWS && model__strikes(m, MODEL_OOM)) {
        model__error(c, MODEL_OOM_TEXT);
    } else if ((cmd->flags & COMMAND_WRITE || cmd->run == run_ping) &&
               model__strikes(m, MODEL_MISCONF)) {
        model__error(c, MODEL_MISCONF_TEXT);
    } else if (cmd->flags & COMMAND_WRITE && model__strikes(m, MODEL_NOREPLICAS)) {
        model__error(c, MODEL_NOREPLICAS_TEXT);
    } else if (cmd->flags & COMMAND_WRITE && model__strikes(m, MODEL_READONLY)) {
        model__error(c, MODEL_READONLY_TEXT);
    } else if (c->from->channel_count + c->from->shard_count > 0 &&
               !(cmd->flags & COMMAND_SUBSCRIBED)) {
        model__error(
            c,
            "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / "
            "RESET are allowed in this context",
            cmd->name);
    } else if (!(cmd->flags & COMMAND_LOADING) && model__strikes(m, MODEL_MASTERDOWN)) {
        model__error(c,
                     "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to "
                     "'no'.");
    } else if (!(cmd->flags & COMMAND_LOADING) && model__strikes(m, MODEL_LOADING)) {
        model__error(c, "LOADING Redis is loading the dataset in memory");
    } else if (!(cmd->flags & COMMAND_NOAUTH) && model__strikes(m, MODEL_BUSY)) {
        model__error(c, "BUSY Redis is busy running a script. You can only call SCRIPT KILL or "
                        "SHUTDOWN NOSAVE.");
    } else {
        return false;
    }
    return true;
}

/* A proxy in front of the server reports an error of its own although the server has executed the
 * command. */
static void spoil_answer(call *c, const command *cmd, size_t answered)
{
    static const char *const texts[] = {"ERR upstream failure", "UNAVAILABLE no backend",
                                        "ERR internal error, request aborted"};
    if (c->m->faults & MODEL_ERROR_AFTER && cmd->run == model__evalsha &&
        model__random(c->m, 2) == 0 && model__strikes(c->m, MODEL_ERROR_AFTER)) {
        c->from->out.n = answered;
        model__error(c, "%s", texts[model__random(c->m, 3)]);
    }
}

static void execute(model *m, connection *from, const model_text *argv, size_t argc)
{
    call c = {m, from, argv, argc, &from->out};
    const command *cmd = model__command(argv, argc);
    size_t before = from->out.n;
    m->requests++;
    if (model__answered_else(&c)) {
        ;
    } else if (cmd == NULL) {
        unknown_command(&c);
    } else if (!model__arity_fits(cmd, argc)) {
        model__error(&c, "ERR wrong number of arguments for '%s' command", cmd->name);
    } else if (!refused(&c, cmd)) {
        size_t answered = from->out.n;
        m->writes += (cmd->flags & COMMAND_WRITE) != 0;
        cmd->run(&c);
        spoil_answer(&c, cmd, answered);
    }
    m->refused = from->out.n > before && from->out.p[before] == '-';
    if (m->watcher != NULL) {
        m->watcher(m->watcher_context, from->id, argv, argc);
    }
    if (from->closing) {
        shut(from);
    }
}

/* ---- Requests ----------------------------------------------------------------------------------- */

enum parsed { PARSED_REQUEST, PARSED_PARTLY, PARSED_WRONG };

/* A line "<kind><integer>\r\n" at *at. */
static enum parsed parse_head(const buffer *in, size_t *at, char kind, long long *out)
{
    const char *start = in->p + *at;
    if (in->n - *at > 4 && *start == kind && start[1] >= '1' && start[1] <= '9') {
        bool two = start[2] >= '0' && start[2] <= '9'; /* almost no number has more digits */
        if (start[2 + two] == '\r') {
            *out = two ? 10 * (start[1] - '0') + start[2] - '0' : start[1] - '0';
            *at += 4 + (size_t)two;
            return PARSED_REQUEST;
        }
    }
    const char *end = memchr(start, '\r', in->n - *at);
    if (*at < in->n && *start != kind) {
        return PARSED_WRONG;
    }
    if (end == NULL || end + 1 == in->p + in->n) {
        return PARSED_PARTLY;
    }
    if (!model__parse_integer((model_text){start + 1, (size_t)(end - start - 1)}, out) ||
        *out < 0) {
        return PARSED_WRONG;
    }
    *at = (size_t)(end + 2 - in->p);
    return PARSED_REQUEST;
}

static enum parsed parse_request(const buffer *in, model_text *argv, size_t *argc, size_t *used)
{
    size_t at = 0;
    long long count, length;
    enum parsed result = parse_head(in, &at, '*', &count);
    if (result == PARSED_REQUEST && count > ARGUMENTS_MAX) {
        return PARSED_WRONG;
    }
    for (long long i = 0; result == PARSED_REQUEST && i < count; i++) {
        result = parse_head(in, &at, '$', &length);
        if (result == PARSED_REQUEST) {
            if ((size_t)length + 2 > in->n - at) {
                return PARSED_PARTLY;
            }
            argv[i] = (model_text){in->p + at, (size_t)length};
            at += (size_t)length + 2;
        }
    }
    *argc = (size_t)count;
    *used = at;
    return result;
}

void model_input(model *m, uint64_t id, const char *bytes, size_t n)
{
    model_text argv[ARGUMENTS_MAX];
    size_t argc, used;
    connection *c = find_connection(m, id);
    if (c == NULL || !c->open) {
        return;
    }
    model__append(&c->in, bytes, n);
    while (c->open && c->in.n > 0) {
        enum parsed result = parse_request(&c->in, argv, &argc, &used);
        if (result == PARSED_PARTLY) {
            return;
        }
        if (result == PARSED_WRONG) {
            call refusal = {.m = m, .from = c, .reply = &c->out};
            model__error(&refusal, "ERR Protocol error");
            shut(c);
            return;
        }
        if (argc > 0) {
            execute(m, c, argv, argc);
        }
        if (c->open) {
            model__consume(&c->in, used);
        }
    }
}

/* ---- Faults and inspection ---------------------------------------------------------------------- */

void model_set_faults(model *m, unsigned faults)
{
    m->faults = faults;
}

unsigned model_struck(model *m)
{
    unsigned struck = m->struck;
    m->struck = 0;
    return struck;
}

void model_log_out(model *m, uint64_t id)
{
    find_connection(m, id)->authenticated = false;
}

void model_restart(model *m)
{
    model_flush_keys(m);
    model_restart_with_data(m);
}

void model_restart_with_data(model *m)
{
    for (size_t i = 0; i < m->connection_count; i++) {
        shut(m->connections[i]);
        m->connections[i]->out.n = 0;
    }
    model_flush_scripts(m);
    m->last_client_id = 0;
    m->run++;
}

void model_flush_scripts(model *m)
{
    model__lua_forget(m);
}

void model_require_password(model *m, const char *password)
{
    m->password = password;
}

uint64_t model_requests(const model *m)
{
    return m->requests;
}

uint64_t model_client_id(const model *m, uint64_t id)
{
    const connection *c = find_connection(m, id);
    return c == NULL ? 0 : c->client_id;
}

bool model_refused(const model *m)
{
    return m->refused;
}

void model_watch(model *m, model_watcher *watcher, void *context)
{
    m->watcher = watcher;
    m->watcher_context = context;
}

static uint64_t mix(uint64_t hash, const void *p, size_t n)
{
    const unsigned char *bytes = p;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ bytes[i]) * 1099511628211U;
    }
    return hash;
}

uint64_t model_digest(model *m)
{
    uint64_t hash = 14695981039346656037U;
    uint64_t counts[] = {model_key_count(m), m->requests, m->last_id, model_channel_count(m)};
    hash = mix(hash, counts, sizeof counts);
    for (size_t i = 0; i < m->key_count; i++) {
        const key *k = &m->keys[i];
        hash = mix(hash, k->name.p, k->name.n);
        hash = mix(hash, &k->expire_ms, sizeof k->expire_ms);
        for (size_t j = 0; j < k->count; j++) {
            hash = mix(hash, k->items[j].field.p, k->items[j].field.n);
            hash = mix(hash, k->items[j].value.p, k->items[j].value.n);
        }
    }
    return hash;
}
