/* strangers.c - other programs' data under a lock's name, or beside it, harms neither a query nor
 * the locks of the program that sends it.
 */
#define _GNU_SOURCE
#include "../support/support.h"

#include <stdlib.h>
#include <string.h>

enum { LEASE_MS = 1500, BUFFER = 65536 };

static const char OWNER[] = "00000000-0000-4000-8000-000000000001";
static char buffer[BUFFER];
static size_t used;
static uint32_t count;

static int world_new(void **state)
{
    static struct server server;
    server_start(&server, NULL);
    *state = &server;
    return 0;
}

static int test_done(void **state)
{
    server_do(*state, "FLUSHALL");
    return 0;
}

static int world_free(void **state)
{
    server_stop(*state);
    return 0;
}

/* How many names a full scan finds. */
static int list_all(snib_client *client)
{
    uint64_t cursor = 0;
    int names = 0;
    do {
        EXPECT(snib_client_list(client, "", 0, &cursor, buffer, sizeof buffer, &used, &count, err),
               SNIB_OK);
        names += (int)count;
    } while (cursor != 0);
    return names;
}

/* Names of every allowed length are found with the smallest buffer; longer ones are not lock
 * names. */
static void long_names(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open(server->url);
    snib_hold *hold = must_acquire(must_lock(client, "held"), 0);
    char name[600];
    memset(name, 'n', sizeof name);
    for (int i = 0; i < 1000; i++) {
        name[snprintf(name, sizeof name, "%04d", i)] = 'n';
        server_do(server, "HSET %b %s:1 1", name, (size_t)512, OWNER);
    }
    server_do(server, "HSET %b %s:1 1", name, (size_t)513, OWNER);
    server_do(server, "EVAL redis.call('hset',string.rep('x',700000),ARGV[1],1) 0 %s:1", OWNER);
    int names = list_all(client);
    assert_in_range(names, 1001, 1100); /* a scan may return one twice */
    assert_int_equal(must_stats(client).connects, 1);
    must_release(hold);
    snib_client_free(client);
}

/* Of an owner of any length the beginning is shown, and the connection survives. */
static void long_owners(void **state)
{
    static const struct {
        int32_t kind;
        const char *fields;
    } makers[] = {
        {SNIB_MUTEX, "owner,1"},
        {SNIB_FAIR, "owner,1"},
        {SNIB_READ, "'mode','read',owner,1"},
        {SNIB_WRITE, "'mode','write',owner..':write',1"},
    };
    struct server *server = *state;
    snib_client *client = must_open(server->url);
    snib_hold *hold = must_acquire(must_lock(client, "held"), 0);
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        char script[200];
        snprintf(script, sizeof script,
                 "local owner=KEYS[2]..string.rep('9',400000) redis.call('hset',KEYS[1],%s)",
                 makers[i].fields);
        server_do(server, "EVAL %s 2 x %s:", script, OWNER);
        snib_lock_info_data info = {.size = sizeof info};
        EXPECT(snib_lock_info(must_lock_kind(client, makers[i].kind, "x"), &info, err), SNIB_OK);
        assert_true(info.held);
        assert_memory_equal(info.owner, OWNER, 36);
        assert_int_equal(strlen(info.owner), 127);
        EXPECT(snib_client_describe(client, "x", 1, buffer, sizeof buffer, &used, &count, err),
               SNIB_OK);
        server_do(server, "DEL x");
    }
    assert_int_equal(must_stats(client).connects, 1);
    must_release(hold);
    snib_client_free(client);
}

/* The text after a word in a description; NULL if it is not there. */
static const char *told(const char *word)
{
    for (const char *at = buffer; at < buffer + used; at += strlen(at) + 1)
        if (strncmp(at, word, strlen(word)) == 0 && at[strlen(word)] == ' ')
            return at + strlen(word) + 1;
    return NULL;
}

/* A description fits into the smallest buffer, and omitted parts are counted. */
static void long_descriptions(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open(server->url);
    server_do(server, "EVAL %s 1 x %s:",
              "for i=1,700 do redis.call('hset',KEYS[1],ARGV[1]..string.rep('9',60)..i,"
              "string.rep('9',80)) end",
              OWNER);
    EXPECT(snib_client_describe(client, "x", 1, buffer, sizeof buffer, &used, &count, err),
           SNIB_OK);
    assert_string_equal(told("kind"), "mutex");
    int shown = 0;
    for (const char *at = buffer; at < buffer + used; at += strlen(at) + 1)
        shown += strncmp(at, "holder ", 7) == 0;
    assert_in_range(shown, 200, 500);
    assert_non_null(told("more"));
    assert_int_equal(shown + atoi(told("more")), 700);
    server_do(server, "DEL x");
    snib_client_free(client);
}

/* Other data under a name, and beside it, is described as such. */
static void other_data(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open(server->url);
    server_do(server, "EVAL %s 1 x", "for i=1,100000 do redis.call('hset',KEYS[1],i,1) end");
    server_do(server, "CONFIG RESETSTAT");
    EXPECT(snib_client_describe(client, "x", 1, buffer, sizeof buffer, &used, &count, err),
           SNIB_OK);
    assert_string_equal(told("kind"), "other");
    assert_null(told("more"));
    assert_true(server_calls(server, "hscan") <= 20);
    server_do(server, "DEL x");
    server_do(server, "HSET x mode %s %s:1 1", "a mode", OWNER);
    EXPECT(snib_client_describe(client, "x", 1, buffer, sizeof buffer, &used, &count, err),
           SNIB_OK);
    assert_string_equal(told("kind"), "other");
    server_do(server, "DEL x");
    server_do(server, "RPUSH redisson_lock_queue:{x} %s:1", OWNER);
    server_do(server, "SET redisson_lock_timeout:{x} text");
    EXPECT(snib_client_describe(client, "x", 1, buffer, sizeof buffer, &used, &count, err),
           SNIB_OK);
    assert_string_equal(told("kind"), "fair");
    snib_client_free(client);
}

/* All holds have been renewed at least twice. */
static bool renewed(snib_client *client, uint64_t since, int holds)
{
    return must_stats(client).renewals >= since + 2 * (uint64_t)holds;
}

/* Fair holds are renewed by one command; foreign data in place of one's queue ends no other
 * hold. */
static void queue_of_another_type(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open_lease(server->url, LEASE_MS);
    snib_hold *one = must_acquire(must_lock_kind(client, SNIB_FAIR, "one"), 0);
    snib_hold *two = must_acquire(must_lock_kind(client, SNIB_FAIR, "two"), 0);
    server_do(server, "SET redisson_lock_queue:{one} text");
    AWAIT(renewed(client, 0, 2), 20000);
    EXPECT(snib_hold_check(one, err), SNIB_OK);
    EXPECT(snib_hold_check(two, err), SNIB_OK);
    server_do(server, "DEL redisson_lock_queue:{one}");
    server_do(server, "RPUSH redisson_lock_queue:{one} %s:1", OWNER);
    server_do(server, "SET redisson_lock_timeout:{one} text");
    uint64_t before = must_stats(client).renewals;
    AWAIT(renewed(client, before, 2), 20000);
    EXPECT(snib_hold_check(one, err), SNIB_OK);
    EXPECT(snib_hold_check(two, err), SNIB_OK);
    server_do(server, "DEL redisson_lock_timeout:{one} redisson_lock_queue:{one}");
    must_release(one);
    must_release(two);
    snib_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(long_names, test_done),
        cmocka_unit_test_teardown(long_owners, test_done),
        cmocka_unit_test_teardown(long_descriptions, test_done),
        cmocka_unit_test_teardown(other_data, test_done),
        cmocka_unit_test_teardown(queue_of_another_type, test_done),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
