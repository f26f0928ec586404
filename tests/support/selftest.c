/* selftest.c - proxy and server behave as the other tests assume. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct world {
    struct server server;
    struct proxy *proxy;
};

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    world.proxy = proxy_start(world.server.socket);
    *state = &world;
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    proxy_stop(world->proxy);
    server_stop(&world->server);
    return 0;
}

static redisContext *join(struct world *world)
{
    redisContext *context =
        redisConnect("127.0.0.1", atoi(strrchr(proxy_url(world->proxy), ':') + 1));
    assert_true(context && !context->err);
    return context;
}

/* A command whose reply, or whose request, is cut: what the client sees, and whether the server
 * acted. */
static void cut(struct world *world, enum direction direction, int bytes, enum cut_mode mode,
                bool acts)
{
    redisContext *context = join(world);
    freeReplyObject(redisCommand(context, "PING"));
    server_do(&world->server, "DEL n");
    int before = proxy_cuts(world->proxy);
    proxy_cut(world->proxy, direction, bytes, mode);
    redisReply *reply = redisCommand(context, "INCR n");
    assert_null(reply);
    if (mode == CUT_RST)
        assert_true(context->err == REDIS_ERR_IO && errno == ECONNRESET);
    else
        assert_int_equal(context->err, REDIS_ERR_EOF);
    assert_int_equal(proxy_cuts(world->proxy), before + 1);
    redisFree(context);
    if (acts)
        AWAIT(server_integer(&world->server, "EXISTS n") == 1, 1000);
    assert_int_equal(server_integer(&world->server, "EXISTS n"), acts);
}

static void cuts(void **state)
{
    enum { REQUEST = sizeof "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n" - 1 };
    for (enum cut_mode mode = CUT_FIN; mode <= CUT_RST; mode++) {
        cut(*state, TO_SERVER, 0, mode, false);
        cut(*state, TO_SERVER, REQUEST - 1, mode, false);
        cut(*state, TO_SERVER, REQUEST, mode, true);
        cut(*state, TO_CLIENT, 0, mode, true);
        cut(*state, TO_CLIENT, 3, mode, true);
    }
}

static void held_back_request(void **state)
{
    struct world *world = *state;
    redisContext *context = join(world);
    freeReplyObject(redisCommand(context, "PING"));
    proxy_hold_back(world->proxy);
    assert_null(redisCommand(context, "SET late 1"));
    redisFree(context);
    assert_int_equal(server_integer(&world->server, "EXISTS late"), 0);
    proxy_let_go(world->proxy);
    AWAIT(server_integer(&world->server, "EXISTS late") == 1, 1000);
}

static void delays_and_stalls(void **state)
{
    struct world *world = *state;
    redisContext *context = join(world);
    proxy_delay(world->proxy, TO_SERVER, 20);
    proxy_delay(world->proxy, TO_CLIENT, 30);
    int64_t start = now_ms();
    freeReplyObject(redisCommand(context, "PING"));
    assert_true(now_ms() - start >= 49);
    proxy_delay(world->proxy, TO_SERVER, 0);
    proxy_delay(world->proxy, TO_CLIENT, 0);
    proxy_stall(world->proxy, TO_CLIENT, true);
    redisSetTimeout(context, (struct timeval){0, 50000});
    assert_null(redisCommand(context, "SET stalled 1"));
    assert_int_equal(server_integer(&world->server, "EXISTS stalled"), 1);
    proxy_stall(world->proxy, TO_CLIENT, false);
    redisFree(context);
}

static void slices(void **state)
{
    struct world *world = *state;
    redisContext *context = join(world);
    proxy_slice(world->proxy, 2, 5000);
    int64_t start = now_ms();
    redisReply *reply = redisCommand(context, "ECHO %s", "0123456789"); /* 30 bytes, and 17 */
    assert_string_equal(reply->str, "0123456789");
    freeReplyObject(reply);
    assert_true(now_ms() - start >= 5 * (14 + 8) - 1);
    proxy_slice(world->proxy, 0, 0);
    redisFree(context);
}

static void messages_dropped(void **state)
{
    struct world *world = *state;
    proxy_drop_messages(world->proxy, true);
    redisContext *context = join(world);
    redisReply *reply = redisCommand(context, "SUBSCRIBE news");
    assert_int_equal(reply->element[2]->integer, 1);
    freeReplyObject(reply);
    assert_int_equal(server_integer(&world->server, "PUBLISH news 1"), 1);
    reply = redisCommand(context, "PING");
    assert_string_equal(reply->element[0]->str, "pong"); /* and not "message" */
    freeReplyObject(reply);
    redisFree(context);
    proxy_drop_messages(world->proxy, false);
}

static void messages_late(void **state)
{
    struct world *world = *state;
    redisContext *context = join(world), *other = join(world);
    redisReply *reply = redisCommand(context, "SUBSCRIBE news");
    freeReplyObject(reply);
    proxy_stall_messages(world->proxy, true);
    assert_int_equal(server_integer(&world->server, "PUBLISH news 1"), 1);
    freeReplyObject(redisCommand(other, "PING")); /* commands go on */
    redisSetTimeout(context, (struct timeval){0, 20000});
    assert_int_equal(redisGetReply(context, (void **)&reply), REDIS_ERR);
    redisFree(context);
    context = join(world);
    freeReplyObject(redisCommand(other, "SET x y"));
    proxy_stall_messages(world->proxy, false);
    freeReplyObject(redisCommand(context, "SUBSCRIBE news"));
    assert_true(server_integer(&world->server, "PUBLISH news 2") >= 1);
    assert_int_equal(redisGetReply(context, (void **)&reply), REDIS_OK);
    assert_string_equal(reply->element[2]->str, "2");
    freeReplyObject(reply);
    redisFree(context);
    redisFree(other);
}

static void records(void **state)
{
    struct world *world = *state;
    proxy_forget(world->proxy);
    redisContext *context = join(world);
    freeReplyObject(redisCommand(context, "SET a b"));
    assert_int_equal(proxy_record_count(world->proxy), 1);
    assert_int_equal(proxy_record(world->proxy, 0)->argc, 3);
    assert_true(record_names(proxy_record(world->proxy, 0), "b"));
    proxy_refuse(world->proxy, true);
    assert_null(redisCommand(context, "PING"));
    proxy_refuse(world->proxy, false);
    redisFree(context);
}

/* server_script() hashes the scripts as the library sends them, shared text included. */
static void scripts(void **state)
{
    static const struct {
        int32_t kind;
        const char *acquire, *release;
    } kinds[] = {{SNIB_MUTEX, "mutex_acquire", "mutex_release"},
                 {SNIB_FAIR, "fair_acquire", "fair_release"}};
    struct world *world = *state;
    for (size_t k = 0; k < 2; k++) {
        snib_client *client = must_open(proxy_url(world->proxy));
        snib_lock *lock = must_lock_kind(client, kinds[k].kind, "script");
        char acquire[41], release[41];
        server_script(&world->server, kinds[k].acquire, acquire);
        server_script(&world->server, kinds[k].release, release);
        must_release(must_acquire(lock, 0));
        size_t n = proxy_record_count(world->proxy), found = 0;
        for (size_t i = 0; i < n; i++) {
            found += record_is(proxy_record(world->proxy, i), acquire);
            found += record_is(proxy_record(world->proxy, i), release);
        }
        assert_int_equal(found, 2);
        snib_lock_free(lock);
        snib_client_free(client);
        proxy_forget(world->proxy);
    }
}

static void keys(void **state)
{
    struct world *world = *state;
    server_do(&world->server, "FLUSHALL");
    char *none = server_keys(&world->server);
    server_do(&world->server, "MSET b 1 a 1 c 1");
    char *some = server_keys(&world->server);
    assert_string_equal(none, "");
    assert_string_equal(some, "a\nb\nc\n");
    free(none);
    free(some);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts),
        cmocka_unit_test(held_back_request),
        cmocka_unit_test(delays_and_stalls),
        cmocka_unit_test(slices),
        cmocka_unit_test(messages_dropped),
        cmocka_unit_test(messages_late),
        cmocka_unit_test(records),
        cmocka_unit_test(scripts),
        cmocka_unit_test(keys),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
