/* raw.c - the baseline: the library's own two scripts through a blocking hiredis connection.
 *
 * The straightforward code: the scripts are loaded once and called by their SHA-1, each call is
 * formatted by hiredis, each reply is checked.  A baseline that skips work would not be one.
 * Over TLS, which not every hiredis can, OpenSSL reads and writes its socket. */
#include "bench.h"

#include <inttypes.h>
#include <openssl/ssl.h>
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

static void raw_send(const struct bench_raw *raw, char *command, int length)
{
    if (length < 0)
        bench_die("a command cannot be formatted");
    if (raw->tls == NULL)
        redisAppendFormattedCommand(raw->redis, command, (size_t)length);
    else if (SSL_write(raw->tls, command, length) != length)
        bench_die("cannot write by TLS");
    redisFreeCommand(command);
}

static redisReply *raw_reply(const struct bench_raw *raw)
{
    void *reply = NULL;
    char bytes[16384];
    int n, status = REDIS_OK;
    if (raw->tls == NULL)
        status = redisGetReply(raw->redis, &reply);
    while (status == REDIS_OK && reply == NULL) {
        status = redisReaderGetReply(raw->redis->reader, &reply);
        if (status != REDIS_OK || reply != NULL)
            break;
        if ((n = SSL_read(raw->tls, bytes, sizeof bytes)) <= 0)
            bench_die("cannot read by TLS");
        status = redisReaderFeed(raw->redis->reader, bytes, (size_t)n);
    }
    if (status != REDIS_OK)
        bench_die("connection: %s", raw->redis->errstr);
    return reply;
}

static void raw_load(const struct bench *bench, const struct bench_raw *raw, const char *name,
                     char sha1[41])
{
    size_t length;
    char *command, *text = raw_text(bench, name, &length);
    int n = redisFormatCommand(&command, "SCRIPT LOAD %b", text, length);
    raw_send(raw, command, n);
    redisReply *reply = raw_reply(raw);
    if (reply->type != REDIS_REPLY_STRING)
        bench_die("cannot load %s", name);
    snprintf(sha1, 41, "%s", reply->str);
    freeReplyObject(reply);
    free(text);
}

static SSL *raw_secure(int socket, const char *authority)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL || SSL_CTX_load_verify_locations(context, authority, NULL) != 1)
        bench_die("cannot read %s", authority);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL *tls = SSL_new(context);
    SSL_CTX_free(context);
    if (tls == NULL || SSL_set_fd(tls, socket) != 1 || SSL_connect(tls) != 1)
        bench_die("no TLS to the server of %s", authority);
    return tls;
}

struct bench_raw bench_raw_open(const struct bench *bench)
{
    int port;
    char authority[1024] = "";
    if (sscanf(bench->url, "rediss://127.0.0.1:%d?tls_ca=%1023s", &port, authority) != 2 &&
        sscanf(bench->url, "redis://127.0.0.1:%d", &port) != 1)
        bench_die("not a server for hiredis: %s", bench->url);
    struct bench_raw raw = {.redis = redisConnect("127.0.0.1", port)};
    if (raw.redis == NULL || raw.redis->err != 0)
        bench_die("cannot connect to %s", bench->url);
    if (*authority)
        raw.tls = raw_secure(raw.redis->fd, authority);
    raw_load(bench, &raw, "mutex_acquire", raw.acquire);
    raw_load(bench, &raw, "mutex_release", raw.release);
    return raw;
}

void bench_raw_close(struct bench_raw *raw)
{
    SSL_free(raw->tls);
    redisFree(raw->redis);
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

static void raw_call(const struct bench_raw *raw, int argc, const char **argv)
{
    char *command;
    int n = redisFormatCommandArgv(&command, argc, argv, NULL);
    raw_send(raw, command, n);
}

void bench_raw_append_acquire(const struct bench_raw *raw, struct bench_raw_lock *lock)
{
    raw_owner(lock);
    const char *argv[] = {"EVALSHA", raw->acquire, "1", lock->key, lock->owner, LEASE_MS};
    raw_call(raw, sizeof argv / sizeof *argv, argv);
}

void bench_raw_append_release(const struct bench_raw *raw, const struct bench_raw_lock *lock)
{
    const char *argv[] = {"EVALSHA", raw->release, "1", lock->key, lock->owner, lock->channel};
    raw_call(raw, sizeof argv / sizeof *argv, argv);
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
