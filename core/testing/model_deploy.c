/* model_deploy.c - a model server among others: decisions of its surroundings, the data set as a
 * whole, and subscriptions to shard channels.
 *
 * The model knows no slots, replicas or sentinels.  The owner of several models answers in their
 * place whatever depends on the others, and carries data and messages between them.
 */
#include "model_internal.h"

#include <stdlib.h>
#include <string.h>

struct model_data {
    key *keys;
    size_t n;
};

void model_deploy(model *m, const struct model_deployment *deployment)
{
    m->deployment = *deployment;
}

uint64_t model_writes(const model *m)
{
    return m->writes;
}

/* ---- Decisions of the surroundings -------------------------------------------------------------- */

bool model__answered_else(call *c)
{
    const struct model_deployment *d = &c->m->deployment;
    size_t n = 0;
    if (d->answer == NULL || !c->from->authenticated) {
        return false;
    }
    const char *bytes = d->answer(d->context, c->from->id, c->argv, c->argc, &n);
    if (bytes != NULL) {
        model__append(c->reply, bytes, n);
    }
    return bytes != NULL;
}

static void run_spublish(call *c);

/* How many of a command's words are keys, or shard channels, from the first argument on. */
static size_t key_words(const command *cmd, size_t argc)
{
    return argc < 2 || cmd->flags & COMMAND_KEYLESS ? 0 : cmd->flags & COMMAND_KEYS ? argc - 1 : 1;
}

const char *model__not_here(model *m, const command *cmd, const model_text *argv, size_t argc)
{
    const struct model_deployment *d = &m->deployment;
    const char *error = NULL;
    if (d->touch == NULL) {
        return NULL;
    }
    size_t n = key_words(cmd, argc);
    for (size_t i = 1; i <= n && error == NULL; i++) {
        error = d->touch(d->context, &argv[i], cmd->run == run_spublish);
    }
    return error;
}

void model__published(model *m, model_text channel, model_text text, bool sharded)
{
    if (m->deployment.published != NULL) {
        m->deployment.published(m->deployment.context, channel, text, sharded);
    }
}

/* ---- Data --------------------------------------------------------------------------------------- */

static void copy_key(key *to, const key *from)
{
    *to = *from;
    to->name = (buffer){0};
    model__set(&to->name, from->name.p, from->name.n);
    to->items = model__grow(NULL, (from->count + 1) * sizeof *to->items);
    to->cap = from->count + 1;
    for (size_t i = 0; i < from->count; i++) {
        to->items[i] = (item){.score = from->items[i].score};
        model__set(&to->items[i].field, from->items[i].field.p, from->items[i].field.n);
        model__set(&to->items[i].value, from->items[i].value.p, from->items[i].value.n);
    }
}

static void drop_key(key *k)
{
    for (size_t i = 0; i < k->count; i++) {
        model__drop(&k->items[i].field);
        model__drop(&k->items[i].value);
    }
    free(k->items);
    model__drop(&k->name);
}

static key *new_key(model *m)
{
    if (m->key_count == m->key_cap) {
        m->key_cap = m->key_cap * 2 + 8;
        m->keys = model__grow(m->keys, m->key_cap * sizeof *m->keys);
    }
    return &m->keys[m->key_count++];
}

model_data *model_save(const model *m)
{
    model_data *data = model__grow(NULL, sizeof *data);
    data->n = m->key_count;
    data->keys = model__grow(NULL, (m->key_count + 1) * sizeof *data->keys);
    for (size_t i = 0; i < data->n; i++) {
        copy_key(&data->keys[i], &m->keys[i]);
    }
    return data;
}

void model_load(model *m, const model_data *data)
{
    model_flush_keys(m);
    for (size_t i = 0; i < data->n; i++) {
        copy_key(new_key(m), &data->keys[i]);
    }
}

void model_data_free(model_data *data)
{
    for (size_t i = 0; i < data->n; i++) {
        drop_key(&data->keys[i]);
    }
    free(data->keys);
    free(data);
}

bool model_migrate(model *from, model *to, int db, const char *name, size_t n)
{
    key *k = model__find(from, db, (model_text){name, n});
    if (k == NULL || model__find(to, db, (model_text){name, n}) != NULL) {
        return false;
    }
    copy_key(new_key(to), k);
    model__remove(from, k);
    from->writes++;
    to->writes++;
    return true;
}

bool model_key_of(model *m, bool (*wants)(void *context, model_text name), void *context,
                  model_key *out)
{
    for (size_t i = 0; model_key_at(m, i, out); i++) {
        if (wants(context, out->name)) {
            return true;
        }
    }
    return false;
}

/* ---- Connections and channels ------------------------------------------------------------------- */

void model__drop_shards(connection *c)
{
    while (c->shard_count > 0) {
        model__drop(&c->shards[--c->shard_count]);
    }
}

void model_hang_up(model *m)
{
    for (size_t i = 0; i < m->connection_count; i++) {
        connection *c = m->connections[i];
        c->open = false;
        c->in.n = 0;
        while (c->channel_count > 0) {
            model__drop(&c->channels[--c->channel_count]);
        }
        model__drop_shards(c);
    }
}

static buffer *find_in(buffer *channels, size_t n, model_text name)
{
    for (size_t i = 0; i < n; i++) {
        if (model__equal(&channels[i], name)) {
            return &channels[i];
        }
    }
    return NULL;
}

static void tell(model *m, connection *to, const char *kind, model_text channel)
{
    call said = {.m = m, .from = to, .reply = &to->out};
    model__array(&said, 3);
    model__bulk(&said, kind, strlen(kind));
    model__bulk(&said, channel.p, channel.n);
    model__integer(&said, (long long)to->shard_count);
}

static long long say(model *m, model_text channel, model_text text, bool sharded)
{
    long long receivers = 0;
    for (size_t i = 0; i < m->connection_count; i++) {
        connection *to = m->connections[i];
        if (find_in(sharded ? to->shards : to->channels,
                    sharded ? to->shard_count : to->channel_count, channel) == NULL) {
            continue;
        }
        call message = {.m = m, .from = to, .reply = &to->out};
        receivers++;
        model__array(&message, 3);
        model__bulk(&message, sharded ? "smessage" : "message", sharded ? 8 : 7);
        model__bulk(&message, channel.p, channel.n);
        model__bulk(&message, text.p, text.n);
    }
    return receivers;
}

void model_say(model *m, model_text channel, model_text text, bool sharded)
{
    say(m, channel, text, sharded);
}

static void drop_shard(model *m, connection *c, buffer *channel)
{
    buffer gone = *channel;
    *channel = c->shards[--c->shard_count];
    tell(m, c, "sunsubscribe", (model_text){gone.p, gone.n});
    model__drop(&gone);
}

void model_end_shards(model *m, bool (*ends)(void *context, model_text channel), void *context)
{
    for (size_t i = 0; i < m->connection_count; i++) {
        connection *c = m->connections[i];
        for (size_t j = c->shard_count; j > 0; j--) {
            if (ends(context, (model_text){c->shards[j - 1].p, c->shards[j - 1].n})) {
                drop_shard(m, c, &c->shards[j - 1]);
            }
        }
    }
}

static void run_ssubscribe(call *c)
{
    connection *from = c->from;
    for (size_t i = 1; i < c->argc; i++) {
        if (find_in(from->shards, from->shard_count, c->argv[i]) == NULL) {
            from->shards =
                model__grow(from->shards, (from->shard_count + 1) * sizeof *from->shards);
            buffer *added = &from->shards[from->shard_count++];
            *added = (buffer){0};
            model__set(added, c->argv[i].p, c->argv[i].n);
        }
        tell(c->m, from, "ssubscribe", c->argv[i]);
    }
}

static void run_sunsubscribe(call *c)
{
    while (c->argc == 1 && c->from->shard_count > 0) {
        drop_shard(c->m, c->from, &c->from->shards[0]);
    }
    for (size_t i = 1; i < c->argc; i++) {
        buffer *channel = find_in(c->from->shards, c->from->shard_count, c->argv[i]);
        if (channel != NULL) {
            drop_shard(c->m, c->from, channel);
        } else {
            tell(c->m, c->from, "sunsubscribe", c->argv[i]);
        }
    }
}

static void run_spublish(call *c)
{
    model__published(c->m, c->argv[1], c->argv[2], true);
    model__integer(c, say(c->m, c->argv[1], c->argv[2], true));
}

static void run_pubsub_shardnumsub(call *c)
{
    model__array(c, 2 * (c->argc - 2));
    for (size_t i = 2; i < c->argc; i++) {
        long long listeners = 0;
        for (size_t j = 0; j < c->m->connection_count; j++) {
            connection *to = c->m->connections[j];
            listeners += find_in(to->shards, to->shard_count, c->argv[i]) != NULL;
        }
        model__bulk(c, c->argv[i].p, c->argv[i].n);
        model__integer(c, listeners);
    }
}

const command model__deploy_commands[] = {
    {"pubsub|shardnumsub", run_pubsub_shardnumsub, -2, COMMAND_LOADING | COMMAND_KEYLESS},
    {"spublish", run_spublish, 3, COMMAND_LOADING},
    {"ssubscribe", run_ssubscribe, -2, COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_SUBSCRIBED},
    {"sunsubscribe", run_sunsubscribe, -1, COMMAND_NOSCRIPT | COMMAND_LOADING | COMMAND_SUBSCRIBED},
    {NULL, NULL, 0, 0},
};
