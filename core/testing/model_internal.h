/* model_internal.h - what the model server's files share.  See model_server.h. */
#ifndef SNIB_TESTING_MODEL_INTERNAL_H
#define SNIB_TESTING_MODEL_INTERNAL_H

#include "model_server.h"

typedef struct buffer {
    char *p;
    size_t n, cap;
} buffer;

/* One element of a value: a string has one, a list has many without a field, in a sorted
 * set the field is the member. */
typedef struct item {
    buffer field, value;
    double score; /* of a sorted set's member */
} item;

typedef struct key {
    buffer name;
    int db;
    int type;
    int64_t expire_ms; /* wall clock; the key is gone once the clock is past it; -1: never */
    item *items;       /* in insertion order, as small hashes are listed by a real server; in a
                          sorted set, in its order */
    size_t count, cap;
} key;

typedef struct connection {
    uint64_t id;        /* the caller's */
    uint64_t client_id; /* the protocol's */
    bool open;
    bool closing; /* closes once its reply is written */
    bool authenticated;
    int db;
    buffer in, out, sent;
    buffer *channels, *shards; /* classic and sharded subscriptions */
    size_t channel_count, shard_count;
} connection;

struct model {
    uint64_t now_ns;
    enum model_version version;
    unsigned faults, struck;
    const char *password;
    key *keys;
    size_t key_count, key_cap;
    size_t found; /* the key that was found last */
    connection **connections;
    size_t connection_count;
    connection **by_id; /* NULL: closed */
    size_t by_id_cap;
    uint64_t last_id, last_client_id;
    uint64_t requests;
    model_watcher *watcher;
    void *watcher_context;
    bool refused; /* the request that the watcher sees */
    uint64_t run;
    uint64_t random; /* for HRANDFIELD */
    bool *scripts;   /* by number: whether the server has it */
    size_t script_cap;
    struct call *script; /* the running EVAL, or NULL */
    buffer script_reply; /* of the command that the script calls */
    bool script_wrote;   /* after its first write a script is not refused for lack of memory */
    bool script_oom;
    struct model_deployment deployment;
    uint64_t writes; /* requests that may have changed a key */
};

/* A request being executed: arguments, its connection, where the reply goes. */
typedef struct call {
    model *m;
    connection *from;
    const model_text *argv;
    size_t argc;
    buffer *reply;
} call;

enum command_flag {
    COMMAND_WRITE = 1,
    COMMAND_GROWS = 2, /* refused when out of memory */
    COMMAND_NOSCRIPT = 4,
    COMMAND_LOADING = 8,     /* answered while loading */
    COMMAND_SUBSCRIBED = 16, /* allowed on a connection that has subscriptions */
    COMMAND_NOAUTH = 32,     /* allowed before AUTH */
    COMMAND_KEYLESS = 64,    /* no argument is a key; else the first one is */
    COMMAND_KEYS = 128,      /* all arguments are keys */
    COMMAND_REDIS_8_4 = 256, /* only this version has it */
    COMMAND_VALKEY_9_0 = 512
};

typedef struct command {
    const char *name; /* lower case; "client|id" for a subcommand */
    void (*run)(call *c);
    int arity; /* as in COMMAND INFO: negative is a minimum; the name counts */
    unsigned flags;
} command;

/* model_server.c */
void model__shut(connection *c);

/* model_dispatch.c */
void model__execute(model *m, connection *from, const model_text *argv, size_t argc);
/* NULL: this server has no such command. */
const command *model__command(const model *m, const model_text *argv, size_t argc);
bool model__arity_fits(const command *cmd, size_t argc);
bool model__is_forbidden(model *m, const command *cmd); /* by the user's rights */
bool model__strikes(model *m, unsigned faults); /* one of these is on, and has an effect now */
bool model__text_is(model_text text, const char *word); /* case-insensitive */

/* model_session.c */
extern const command model__session_commands[];
void model__ping(call *c);
void model__subscribe(call *c);
void model__publish(call *c);

/* model_deploy.c */
extern const command model__deploy_commands[];
bool model__answered_else(call *c);
const char *model__not_here(model *m, const command *cmd, const model_text *argv, size_t argc);
void model__published(model *m, model_text channel, model_text text, bool sharded);
void model__drop_shards(connection *c);

/* model_reply.c */
void model__append(buffer *b, const void *p, size_t n);
void model__consume(buffer *b, size_t n);
void model__set(buffer *b, const void *p, size_t n);
void model__drop(buffer *b);
void *model__grow(void *p, size_t n);
bool model__equal(const buffer *b, model_text text);
void model__status(call *c, const char *text);
void model__error(call *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void model__integer(call *c, long long value);
void model__bulk(call *c, const char *p, size_t n);
void model__null(call *c);
void model__null_array(call *c);
void model__array(call *c, size_t n);
size_t model__number_text(double value, char out[40]);
bool model__parse_integer(model_text text, long long *out);

/* model_keys.c */
extern const command model__key_commands[];
extern const command model__value_commands[];        /* model_values.c */
extern const command model__list_commands[];         /* model_lists.c */
key *model__find(model *m, int db, model_text name); /* NULL if absent or expired */
void model__remove(model *m, key *k);
int64_t model__now_ms(const model *m);
key *model__create(call *c, model_text name, int type);
item *model__add_item(key *k); /* at the end */
void model__remove_item(model *m, key *k, item *at);
item *model__find_field(key *k, model_text field); /* NULL if it, or the key, is absent */
/* The key of argument 1 if it has this type; *out is NULL if it is absent.  False: an error was
 * sent. */
bool model__typed_key(call *c, int type, key **out);
bool model__glob_matches(model_text pattern, const buffer *name);
bool model__integer_argument(call *c, size_t i, long long *out);
uint64_t model__random(model *m, uint64_t below);

/* model_memory.c */
void *model__lua_memory(void *unused, void *p, size_t n, size_t wanted);

/* model_lua.c */
extern const command model__script_commands[];
void model__lua_open(model *m);
void model__lua_close(model *m);
void model__lua_forget(model *m);
void model__evalsha(call *c);

#define MODEL_WRONGTYPE "WRONGTYPE Operation against a key holding the wrong kind of value"
#define MODEL_OOM_TEXT "OOM command not allowed when used memory > 'maxmemory'."
#define MODEL_NOREPLICAS_TEXT "NOREPLICAS Not enough good replicas to write."
#define MODEL_READONLY_TEXT "READONLY You can't write against a read only replica."
#define MODEL_MISCONF_TEXT                                                                         \
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to "  \
    "disk. "                                                                                       \
    "Commands that may modify the data set are disabled, because this instance is configured to "  \
    "report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). " \
    "Please check the Redis logs for details about the RDB error."

#endif
