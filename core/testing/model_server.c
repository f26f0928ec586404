/* model_server.c - the model server's connections and their RESP2 requests, its faults, and what is seen from outside. */
#include "model_internal.h"

#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 1024 /* the longest command of the core, with 1000 permits, has 1007 */

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

void model_set_version(model *m, enum model_version version)
{
    m->version = version;
}

void model_set_run(model *m, uint64_t run)
{
    m->run = run;
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
void model__shut(connection *c)
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
            model__shut(c);
            return;
        }
        if (argc > 0) {
            model__execute(m, c, argv, argc);
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
        model__shut(m->connections[i]);
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
