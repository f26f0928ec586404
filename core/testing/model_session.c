/* model_session.c - what a client does for its connection: logging in, the database, ping, subscriptions; and what it asks
 * about the server. */
#include "model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

struct kill {
    long long id; /* 0: any */
    int type;     /* -1: any; 0: normal; 1: with subscriptions; 2: one that no client here has */
    bool also_itself; /* SKIPME no */
};

/* The filter word and its value; false: an error was sent. */
static bool kill_filter(call *c, size_t i, struct kill *out)
{
    static const char *const types[] = {"normal", "pubsub", "master", "replica", "slave"};
    model_text word = c->argv[i], value = i + 1 < c->argc ? c->argv[i + 1] : (model_text){"", 0};
    bool is_type = model__text_is(word, "type");
    if (i + 1 < c->argc && model__text_is(word, "id")) {
        if (model__parse_integer(value, &out->id) && out->id > 0) {
            return true;
        }
        model__error(c, "ERR client-id should be greater than 0");
        return false;
    }
    for (int type = 0; is_type && type < (int)(sizeof types / sizeof *types); type++) {
        if (model__text_is(value, types[type])) {
            out->type = type < 2 ? type : 2;
            return true;
        }
    }
    if (is_type && i + 1 < c->argc) {
        model__error(c, "ERR Unknown client type '%.*s'", (int)value.n, value.p);
        return false;
    }
    out->also_itself = model__text_is(value, "no");
    if (model__text_is(word, "skipme") && (out->also_itself || model__text_is(value, "yes"))) {
        return true;
    }
    model__error(c, "ERR syntax error");
    return false;
}

static void run_client_kill(call *c)
{
    struct kill which = {.type = -1};
    long long killed = 0;
    for (size_t i = 2; c->argc > 3 && i < c->argc; i += 2) {
        if (!kill_filter(c, i, &which)) {
            return;
        }
    }
    if (c->argc == 3) { /* by its address, and none has one here */
        model__error(c, "ERR No such client");
        return;
    }
    for (size_t i = 0; i < c->m->connection_count; i++) {
        connection *other = c->m->connections[i];
        int type = other->channel_count + other->shard_count > 0;
        if (!other->open || (which.id > 0 && other->client_id != (uint64_t)which.id) ||
            (which.type >= 0 && which.type != type) || (other == c->from && !which.also_itself)) {
            continue;
        }
        killed++;
        if (other == c->from) {
            other->closing = true;
        } else {
            model__shut(other);
            other->out.n = 0;
        }
    }
    model__integer(c, killed);
}

static void run_client_id(call *c)
{
    model__integer(c, (long long)c->from->client_id);
}

void model__ping(call *c)
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
    static const char *const versions[] = {[MODEL_REDIS_7_0] = "redis_version:7.0.15\r\n",
                                           [MODEL_REDIS_8_4] = "redis_version:8.4.0\r\n",
                                           [MODEL_VALKEY_9_0] =
                                               "redis_version:7.2.4\r\nvalkey_version:9.0.0\r\n"};
    char text[256];
    int n = snprintf(text, sizeof text,
                     "# Server\r\n%srun_id:%040llx\r\n# Persistence\r\nloading:%d\r\n"
                     "# Replication\r\nrole:%s\r\nconnected_slaves:0\r\n",
                     versions[c->m->version], (unsigned long long)c->m->run,
                     model__strikes(c->m, MODEL_LOADING),
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

void model__subscribe(call *c)
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

static const model_text any_channel = {"*", 1};

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

static size_t each_channel(const model *m, model_text pattern, call *c)
{
    size_t count = 0;
    for (size_t i = 0; i < m->connection_count; i++) {
        for (size_t j = 0; j < m->connections[i]->channel_count; j++) {
            const buffer *channel = &m->connections[i]->channels[j];
            if (model__glob_matches(pattern, channel) &&
                is_first(m, i, (model_text){channel->p, channel->n})) {
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
    return each_channel(m, any_channel, NULL);
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
    model_text pattern = c->argc > 2 ? c->argv[2] : any_channel;
    if (c->argc > 3) {
        model__error(
            c, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try PUBSUB HELP.",
            (int)c->argv[1].n, c->argv[1].p);
        return;
    }
    model__array(c, each_channel(c->m, pattern, NULL));
    each_channel(c->m, pattern, c);
}

static void run_pubsub_numsub(call *c)
{
    model__array(c, 2 * (c->argc - 2));
    for (size_t i = 2; i < c->argc; i++) {
        model__bulk(c, c->argv[i].p, c->argv[i].n);
        model__integer(c, (long long)model_subscribers(c->m, c->argv[i].p, c->argv[i].n));
    }
}

/* ---- By name ------------------------------------------------------------------------------------ */

const command model__session_commands[] = {
    {"auth", run_auth, -2, COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_NOAUTH},
    {"client|id", run_client_id, 2, COMMAND_NOSCRIPT | COMMAND_LOADING},
    {"client|kill", run_client_kill, -3, COMMAND_NOSCRIPT | COMMAND_LOADING},
    {"info", run_info, -1, COMMAND_LOADING | COMMAND_KEYLESS},
    {"ping", model__ping, -1, COMMAND_SUBSCRIBED | COMMAND_KEYLESS},
    {"publish", model__publish, 3, COMMAND_LOADING | COMMAND_KEYLESS},
    {"pubsub|channels", run_pubsub_channels, -2, COMMAND_LOADING | COMMAND_KEYLESS},
    {"pubsub|numsub", run_pubsub_numsub, -2, COMMAND_LOADING | COMMAND_KEYLESS},
    {"quit", run_quit, -1,
     COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_SUBSCRIBED | COMMAND_NOAUTH},
    {"role", run_role, 1, COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_KEYLESS},
    {"select", run_select, 2, COMMAND_LOADING | COMMAND_KEYLESS},
    {"subscribe", model__subscribe, -2, COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_SUBSCRIBED},
    {"unsubscribe", run_unsubscribe, -1, COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_SUBSCRIBED},
    {NULL, NULL, 0, 0},
};
