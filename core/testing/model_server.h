/* model_server.h - a Redis server as a plain data structure.
 *
 * Bytes go in, bytes come out, and the caller owns the clock: no thread, socket, file or time call.
 * It runs the project's real Lua scripts in a real Lua 5.1 and answers as a redis-server 7.0 does,
 * error texts included; model_check.c holds it to that, reply by reply.  Of newer servers it has the
 * commands that the core uses where they exist.
 *
 * Not thread-safe: one model belongs to one caller.  Running out of memory aborts.
 */
#ifndef SNIB_TESTING_MODEL_SERVER_H
#define SNIB_TESTING_MODEL_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct model model;

enum model_fault {
    MODEL_OOM = 1,            /* over maxmemory with noeviction */
    MODEL_READONLY = 2,       /* a replica */
    MODEL_LOADING = 4,        /* still loading its data */
    MODEL_MISCONF = 8,        /* the last snapshot failed: writes are refused */
    MODEL_NO_CHANNELS = 16,   /* the user may not touch any channel */
    MODEL_MUTE = 32,          /* messages count their receivers but do not arrive */
    MODEL_BUSY = 64,          /* a script has been running for too long: nothing else is executed */
    MODEL_NOREPLICAS = 128,   /* too few replicas: writes are refused */
    MODEL_MASTERDOWN = 256,   /* a replica without its master that may not serve its data */
    MODEL_PASSWORD = 512,     /* the password has changed */
    MODEL_ERROR_AFTER = 1024, /* now and then the reply to a script is replaced by an error */
    MODEL_NO_PUBLISH = 2048,  /* the user may not run this command, alone or in a script */
    MODEL_NO_SUBSCRIBE = 4096,
    MODEL_NO_INFO = 8192,
    MODEL_NO_CLIENT = 16384,
    MODEL_NO_EVALSHA = 32768
};

enum model_version { MODEL_REDIS_7_0, MODEL_REDIS_8_4 /* DELEX */, MODEL_VALKEY_9_0 /* DELIFEQ */ };

model *model_new(void); /* a Redis 7.0 */
void model_free(model *m);
void model_set_version(model *m, enum model_version version);
/* model_set_run - the number of the process, which its run_id shows: of the first 0, and each restart adds 1. */
void model_set_run(model *m, uint64_t run);

/* model_time - set the server's wall clock, in nanoseconds since the epoch. */
void model_time(model *m, uint64_t now_ns);

/* model_connect - accept a connection.  Returns its number, which is never reused; the CLIENT ID
 * starts over after a restart. */
uint64_t model_connect(model *m);

/* model_input - the server reads these bytes and executes every complete request.  Input to a closed
 * connection is dropped. */
void model_input(model *m, uint64_t connection, const char *bytes, size_t n);

/* model_output - what the server has written since the last call; the bytes live until the next call
 * into the model. */
size_t model_output(model *m, uint64_t connection, const char **bytes);

/* model_is_open - false once the server has closed the connection (CLIENT KILL, QUIT, a protocol error,
 * a restart).  Output written before a QUIT can still be fetched. */
bool model_is_open(const model *m, uint64_t connection);

/* model_close - the client's end is gone. */
void model_close(model *m, uint64_t connection);

/* ---- Faults ------------------------------------------------------------------------------------- */

void model_set_faults(model *m, unsigned faults); /* a set of enum model_fault */
unsigned model_struck(model *m); /* those that have had an effect since the last call */
void model_restart(model *m);    /* connections, keys and scripts are gone, as after kill -9 */
void model_restart_with_data(model *m); /* the keys are kept, as by an append-only file */
void model_log_out(model *m, uint64_t connection); /* it must log in again */
void model_flush_keys(model *m);
void model_flush_scripts(model *m);
bool model_delete(model *m, int db, const char *name, size_t n); /* an eviction: silent */
void model_put_string(model *m, int db, const char *name, size_t n,
                      const char *value);                    /* a foreign SET */
void model_require_password(model *m, const char *password); /* must outlive the model */

/* ---- Inspection: the truth, for oracles --------------------------------------------------------- */

enum model_type { MODEL_STRING = 1, MODEL_HASH = 2, MODEL_LIST = 3, MODEL_ZSET = 4 };

typedef struct model_text {
    const char *p;
    size_t n;
} model_text;

typedef struct model_key {
    model_text name;
    int db;
    int type;
    size_t fields;       /* strings: 1; lists: the length; sorted sets: members */
    uint64_t expires_ns; /* the first instant at which the key is gone; UINT64_MAX: it has no TTL */
} model_key;

size_t model_key_count(model *m); /* live keys of all databases */
bool model_key_at(model *m, size_t index, model_key *out);
bool model_key_find(model *m, int db, const char *name, size_t n, model_key *out);
bool model_field_at(model *m, int db, const char *name, size_t n, size_t index,
                    model_text *out_field, model_text *out_value);
size_t model_channel_count(const model *m); /* distinct channels with a subscriber */
/* Any of them; its bytes live until the next call into the model. */
model_text model_channel(const model *m);
size_t model_subscribers(const model *m, const char *channel, size_t n);
uint64_t model_requests(const model *m); /* top-level requests executed so far */
uint64_t model_client_id(const model *m, uint64_t connection); /* what CLIENT ID answers */

/* model_watch - have the watcher see every request right after its execution.  It may only
 * inspect. */
typedef void model_watcher(void *context, uint64_t connection, const model_text *argv, size_t argc);
void model_watch(model *m, model_watcher *watcher, void *context);

/* model_refused - whether the request that the watcher sees was answered with an error. */
bool model_refused(const model *m);

/* ---- A server among others ---------------------------------------------------------------------- */

/* Decisions of the world around the server.  Any of them may be NULL. */
struct model_deployment {
    void *context;
    /* A request, before the server handles it: the bytes of the reply, or NULL: the server executes
     * it. */
    const char *(*answer)(void *context, uint64_t connection, const model_text *argv, size_t argc,
                          size_t *out_n);
    /* A key, or a shard channel, that a running script is about to touch: NULL, or the error. */
    const char *(*touch)(void *context, const model_text *name, bool channel);
    /* A message was published here, and other servers may have to get it. */
    void (*published)(void *context, model_text channel, model_text text, bool sharded);
};

typedef struct model_data model_data; /* the keys of a server at a moment */

void model_deploy(model *m, const struct model_deployment *deployment);
uint64_t model_writes(const model *m); /* requests so far that may have changed a key */
model_data *model_save(const model *m);
void model_load(model *m, const model_data *data); /* replaces all its keys */
void model_data_free(model_data *data);
bool model_migrate(model *from, model *to, int db, const char *name,
                   size_t n); /* one key; false: it does not exist, or exists at the target */
void model_hang_up(model *m); /* CLIENT KILL TYPE normal and pubsub */
/* Deliver a message that was published elsewhere to the subscribers here. */
void model_say(model *m, model_text channel, model_text text, bool sharded);
/* End the subscriptions to shard channels for which the function returns true, and tell the
 * subscribers. */
void model_end_shards(model *m, bool (*ends)(void *context, model_text channel), void *context);
/* The next key whose name the function accepts; false: there is none. */
bool model_key_of(model *m, bool (*wants)(void *context, model_text name), void *context,
                  model_key *out);

/* ---- Checks ------------------------------------------------------------------------------------- */

/* model_digest - a hash over keys, TTLs, subscriptions and counters, for determinism checks. */
uint64_t model_digest(model *m);

/* model_sha1 - the SHA-1 of n bytes as 40 hex digits and a NUL. */
void model_sha1(const char *bytes, size_t n, char out[41]);

#endif
