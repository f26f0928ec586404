/* raw.c - the baseline: the library's own two scripts through a blocking hiredis connection.
 *
 * The straightforward code: the scripts are loaded once and called by their SHA-1, each call is
 * formatted by hiredis, each reply is checked.  A baseline that skips work would not be one. */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_MS "30000"

static char *raw_text(const struct bench *bench, const char *name, size_t *length)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.lua", bench->scripts, name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        bench_die("cannot read %s", path);
    char *text = bench_alloc(1, 16384);
    *length = fread(text, 1, 16384, file);
    fclose(file);
    return text;
}

static void raw_load(const struct bench *bench, redisContext *redis, const char *name,
                     char sha1[41])
{
    size_t length;
    char *text = raw_text(bench, name, &length);
    redisReply *reply = redisCommand(redis, "SCRIPT LOAD %b", text, length);
    if (reply == NULL || reply->type != REDIS_REPLY_STRING)
        bench_die("cannot load %s", name);
    snprintf(sha1, 41, "%s", reply->str);
    freeReplyObject(reply);
    free(text);
}

struct bench_raw bench_raw_open(const struct bench *bench)
{
    int port;
    if (sscanf(bench->url, "redis://127.0.0.1:%d", &port) != 1)
        bench_die("not a server for hiredis: %s", bench->url);
    struct bench_raw raw = {.redis = redisConnect("127.0.0.1", port)};
    if (raw.redis == NULL || raw.redis->err != 0)
        bench_die("cannot connect to %s", bench->url);
    raw_load(bench, raw.redis, "mutex_acquire", raw.acquire);
    raw_load(bench, raw.redis, "mutex_release", raw.release);
    return raw;
}

struct bench_raw_lock bench_raw_name(const char *prefix, int index)
{
    struct bench_raw_lock lock = {.number = 0};
    snprintf(lock.key, sizeof lock.key, "%s:%d", prefix, index);
    snprintf(lock.channel, sizeof lock.channel, "redisson_lock__channel:{%s}", lock.key);
    return lock;
}

static void raw_owner(struct bench_raw_lock *lock)
{
    snprintf(lock->owner, sizeof lock->owner, "5b3c1f9e-8a52-8d11-9c39-6f0d2a4be7c1:%" PRIu64,
             ++lock->number);
}

void bench_raw_append_acquire(const struct bench_raw *raw, struct bench_raw_lock *lock)
{
    raw_owner(lock);
    const char *argv[] = {"EVALSHA", raw->acquire, "1", lock->key, lock->owner, LEASE_MS};
    redisAppendCommandArgv(raw->redis, sizeof argv / sizeof *argv, argv, NULL);
}

void bench_raw_append_release(const struct bench_raw *raw, const struct bench_raw_lock *lock)
{
    const char *argv[] = {"EVALSHA", raw->release, "1", lock->key, lock->owner, lock->channel};
    redisAppendCommandArgv(raw->redis, sizeof argv / sizeof *argv, argv, NULL);
}

static redisReply *raw_reply(const struct bench_raw *raw)
{
    void *reply;
    if (redisGetReply(raw->redis, &reply) != REDIS_OK)
        bench_die("connection: %s", raw->redis->errstr);
    return reply;
}

void bench_raw_expect_acquired(const struct bench_raw *raw)
{
    redisReply *reply = raw_reply(raw);
    if (reply->type != REDIS_REPLY_NIL)
        bench_die("not acquired: %s", reply->str ? reply->str : "held");
    freeReplyObject(reply);
}

void bench_raw_expect_released(const struct bench_raw *raw)
{
    redisReply *reply = raw_reply(raw);
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 1)
        bench_die("not released: %s", reply->str ? reply->str : "not held");
    freeReplyObject(reply);
}

void bench_raw_acquire(const struct bench_raw *raw, struct bench_raw_lock *lock)
{
    bench_raw_append_acquire(raw, lock);
    bench_raw_expect_acquired(raw);
}

void bench_raw_release(const struct bench_raw *raw, const struct bench_raw_lock *lock)
{
    bench_raw_append_release(raw, lock);
    bench_raw_expect_released(raw);
}
