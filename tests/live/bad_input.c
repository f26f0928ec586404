/* bad_input.c - every invalid argument gets its own error, and nothing is sent or changed. */
#include "../support/support.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct server server;
static snib_client *client;

static int start(void **state)
{
    (void)state;
    server_start(&server, NULL);
    client = must_open(server.url);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    snib_client_free(client);
    server_stop(&server);
    return 0;
}

/* A refusal has the code and an error text of one line. */
static void refused(int got, int want, const snib_error *error, const char *what)
{
    if (got != want)
        fail_msg("%s: %s instead of %s (%s)", what, snib_code_name(got), snib_code_name(want),
                 error->text);
    assert_int_equal(error->code, want);
    if (want == SNIB_EINVAL && strcmp(error->text, snib_code_text(want)) == 0)
        fail_msg("%s: it does not say which argument", what);
    if (strlen(error->text) < 10)
        fail_msg("%s: no sentence: \"%s\"", what, error->text);
    for (const char *p = error->text; *p; p++)
        assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
}

static void names(void **state)
{
    (void)state;
    char limit[514];
    memset(limit, 'n', sizeof limit);
    static const char *const bad[] = {
        "",
        "\xff",
        "a\xc3",
        "\xc0\xaf",
        "\xed\xa0\x80",
        "\xf4\x90\x80\x80",
        "line\nfeed",
        "\x7f",
        "\xc2\x85",
        "\x1b[31m",
        "{",
        "}",
        "{}",
        "{}x",
        "a{b",
        "a}b",
        "a}b{c}d",
        "x{}y{z}",
        "tab\there",
    };
    snib_error error;
    snib_lock *lock = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(snib_lock_new(client, SNIB_MUTEX, bad[i], strlen(bad[i]), NULL, &lock, &error),
                SNIB_ENAME, &error, bad[i]);
    refused(snib_lock_new(client, SNIB_MUTEX, limit, 513, NULL, &lock, &error), SNIB_ENAME, &error,
            "513 bytes");
    refused(snib_lock_new(client, SNIB_MUTEX, "a\0b", 3, NULL, &lock, &error), SNIB_ENAME, &error,
            "NUL inside");
    refused(snib_lock_new(client, SNIB_MUTEX, NULL, 3, NULL, &lock, &error), SNIB_EINVAL, &error,
            "NULL");
    assert_null(lock);
    limit[512] = '\0';
    const char *const good[] = {
        "a", limit, "{tenant}orders", "x{u}y{z}", "\xe2\x82\xac \xf0\x9f\x94\x92", "a{b}c}"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        lock = must_lock(client, good[i]);
        must_release(must_acquire(lock, 0));
        snib_lock_free(lock);
    }
}

static void lock_options(void **state)
{
    (void)state;
    static const struct {
        int64_t lease_ms, max_hold_ms;
        int want;
    } bad[] = {
        {-1, 0, SNIB_ELEASE},       {1, 0, SNIB_ELEASE},          {99, 0, SNIB_ELEASE},
        {86400001, 0, SNIB_ELEASE}, {INT64_MAX, 0, SNIB_ELEASE},  {INT64_MIN, 0, SNIB_ELEASE},
        {0, -2, SNIB_EOPTION},      {0, INT64_MIN, SNIB_EOPTION},
    };
    snib_error error;
    snib_lock *lock = NULL;
    snib_lock_options options;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snib_lock_options_init(&options, sizeof options);
        options.lease_ms = bad[i].lease_ms;
        options.max_hold_ms = bad[i].max_hold_ms;
        refused(snib_lock_new(client, SNIB_MUTEX, "x", 1, &options, &lock, &error), bad[i].want,
                &error, "lease");
    }
    snib_lock_options_init(&options, sizeof options);
    options.flags = 1;
    refused(snib_lock_new(client, SNIB_MUTEX, "x", 1, &options, &lock, &error), SNIB_EOPTION,
            &error, "flags");
    static const uint32_t sizes[] = {0, 3, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snib_lock_options_init(&options, sizeof options);
        options.size = sizes[i];
        refused(snib_lock_new(client, SNIB_MUTEX, "x", 1, &options, &lock, &error), SNIB_EOPTION,
                &error, "size");
    }
    static const int32_t kinds[] = {0, -1, 11, 12, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        refused(snib_lock_new(client, kinds[i], "x", 1, NULL, &lock, &error), SNIB_ENOTSUP, &error,
                "kind");
    assert_null(lock);
}

static void client_options(void **state)
{
    (void)state;
    snib_client_options options;
    snib_error error;
    snib_client *other = NULL;
    static const size_t times[] = {
        offsetof(snib_client_options, lease_ms),
        offsetof(snib_client_options, connect_timeout_ms),
        offsetof(snib_client_options, reply_timeout_ms),
        offsetof(snib_client_options, patience_ms),
        offsetof(snib_client_options, recheck_ms),
        offsetof(snib_client_options, max_hold_ms),
    };
    static const int64_t values[] = {-2, INT64_MIN, INT64_MAX};
    for (size_t t = 0; t < sizeof times / sizeof *times; t++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            snib_client_options_init(&options, sizeof options);
            memcpy((char *)&options + times[t], &values[v], sizeof values[v]);
            refused(snib_client_open(server.url, &options, &other, &error),
                    t == 0 ? SNIB_ELEASE : SNIB_EOPTION, &error, "time");
        }
    static const int32_t counts[] = {-2, INT32_MIN};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        snib_client_options_init(&options, sizeof options);
        options.handover_max = counts[i];
        refused(snib_client_open(server.url, &options, &other, &error), SNIB_EOPTION, &error,
                "handover_max");
        snib_client_options_init(&options, sizeof options);
        options.waiters_max = counts[i];
        refused(snib_client_open(server.url, &options, &other, &error), SNIB_EOPTION, &error,
                "waiters_max");
    }
    snib_client_options_init(&options, sizeof options);
    options.flags = 4;
    refused(snib_client_open(server.url, &options, &other, &error), SNIB_EOPTION, &error, "flags");
    snib_client_options_init(&options, sizeof options);
    options.ask_credentials = 2;
    refused(snib_client_open(server.url, &options, &other, &error), SNIB_EOPTION, &error,
            "ask_credentials");
    options.ask_credentials = 1;
    options.password = "canary";
    refused(snib_client_open(server.url, &options, &other, &error), SNIB_EOPTION, &error,
            "both credentials and a password are given");
    snib_client_options_init(&options, sizeof options);
    options.lanes = 5;
    refused(snib_client_open(server.url, &options, &other, &error), SNIB_EOPTION, &error, "lanes");
    snib_client_options_init(&options, sizeof options);
    options.size = 5;
    refused(snib_client_open(server.url, &options, &other, &error), SNIB_EOPTION, &error, "size");
    snib_client_options_init(&options, sizeof options);
    options.password = "cut in half";
    options.size = offsetof(snib_client_options, password) + 4;
    refused(snib_client_open(server.url, &options, &other, &error), SNIB_EOPTION, &error, "size");
    assert_null(other);
}

static void urls(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        int want;
    } bad[] = {
        {"", SNIB_EURL},
        {"127.0.0.1:6379", SNIB_EURL},
        {"http://127.0.0.1", SNIB_EURL},
        {"redis://", SNIB_EURL},
        {"redis://host:0", SNIB_EURL},
        {"redis://host:65536", SNIB_EURL},
        {"redis://host:6379/minus", SNIB_EURL},
        {"redis://host:6379/-1", SNIB_EURL},
        {"redis://host:6379/99999999999", SNIB_EURL},
        {"redis://host with blank", SNIB_EURL},
        {"redis://[::1", SNIB_EURL},
        {"redis://user:%zz@host", SNIB_EURL},
        {"redis://host/1?db=1", SNIB_EURL},
        {"redis://host?db", SNIB_EURL},
        {"redis://host?colour=blue", SNIB_EOPTION},
        {"redis://host?patience=soon", SNIB_EOPTION},
        {"redis://host?lease=1ms", SNIB_ELEASE},
        {"redis://host?tls_ca=/ca", SNIB_EOPTION},
        {"redis://host1,host2", SNIB_EURL},
        {"redis+sentinel://host1,host2", SNIB_EURL},
        {"redis+cluster://host1,host2/1", SNIB_EURL},
        {"unix://", SNIB_EURL},
        {"unix://relative", SNIB_EURL},
        {"unix:///path?timeout=1", SNIB_EOPTION},
    };
    snib_error error;
    snib_client *other = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(snib_client_open(bad[i].url, NULL, &other, &error), bad[i].want, &error,
                bad[i].url);
    assert_null(other);
}

/* The options that result from the options, the URL and the defaults. */
static void options_in_force(void **state)
{
    (void)state;
    snib_client_options options;
    snib_error error;
    snib_client *other = NULL;
    char url[300];
    snprintf(url, sizeof url, "%s?lease=5s&recheck=100ms&handover_max=none", server.url);
    snib_client_options_init(&options, sizeof options);
    options.recheck_ms = 200;
    options.password = NULL;
    assert_int_equal(snib_client_open(url, &options, &other, &error), SNIB_OK);
    assert_int_equal(snib_client_get_options(other, &options, &error), SNIB_OK);
    assert_int_equal(options.size, sizeof options);
    assert_int_equal(options.lease_ms, 5000);
    assert_int_equal(options.recheck_ms, 200);
    assert_int_equal(options.patience_ms, 5000);
    assert_int_equal(options.handover_max, -1);
    snib_client_options_init(&options, offsetof(snib_client_options, connect_timeout_ms));
    options.connect_timeout_ms = 77; /* a program built against an older header lacks this field */
    assert_int_equal(snib_client_get_options(other, &options, &error), SNIB_OK);
    assert_int_equal(options.lease_ms, 5000);
    assert_int_equal(options.connect_timeout_ms, 77);
    options.size = 7;
    refused(snib_client_get_options(other, &options, &error), SNIB_EINVAL, &error, "size");
    refused(snib_client_get_options(other, NULL, &error), SNIB_EINVAL, &error, "NULL");
    snib_client_free(other);
    options.size = sizeof options;
    refused(snib_client_get_options(other, &options, &error), SNIB_EHANDLE, &error, "freed");
}

/* Without a URL the environment's is used, and its password. */
static void no_url(void **state)
{
    (void)state;
    snib_error error;
    snib_client *other = NULL;
    setenv("SNIB_URL", "redis://host:0", 1);
    refused(snib_client_open(NULL, NULL, &other, &error), SNIB_EURL, &error, "SNIB_URL");
    assert_memory_equal(error.text, "SNIB_URL: the ", 14); /* the program has no URL to look at */
    assert_int_equal(snib_client_open(NULL, NULL, &other, NULL), SNIB_EURL);
    refused(snib_client_open("redis://host:0", NULL, &other, &error), SNIB_EURL, &error, "URL");
    assert_null(strstr(error.text, "SNIB_URL"));
    setenv("SNIB_URL", server.url, 1);
    assert_int_equal(snib_client_open(NULL, NULL, &other, &error), SNIB_OK);
    assert_int_equal(snib_client_ping(other, -1, &error), SNIB_OK);
    snib_client_free(other);
    setenv("SNIB_PASSWORD", "canary", 1);
    assert_int_equal(snib_client_open(NULL, NULL, &other, &error), SNIB_OK);
    refused(snib_client_ping(other, -1, &error), SNIB_EAUTH, &error, "SNIB_PASSWORD");
    assert_null(strstr(error.text, "canary"));
    snib_client_free(other);
    assert_int_equal(snib_client_open(server.url, NULL, &other, &error), SNIB_OK);
    assert_int_equal(snib_client_ping(other, -1, &error),
                     SNIB_OK); /* SNIB_PASSWORD belongs to SNIB_URL */
    snib_client_free(other);
    unsetenv("SNIB_PASSWORD");
    setenv("SNIB_URL", "", 1); /* as if it were unset */
    assert_int_equal(snib_client_open(NULL, NULL, &other, &error), SNIB_OK);
    snib_client_free(other);
    unsetenv("SNIB_URL");
}

static void waits_and_outputs(void **state)
{
    (void)state;
    snib_error error;
    snib_hold *hold = NULL;
    snib_op *op = NULL;
    snib_lock *lock = must_lock(client, "x");
    snib_queue *queue = must_queue(client);
    static const int64_t waits[] = {-2, INT64_MIN, 86400001, INT64_MAX};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        refused(snib_lock_acquire(lock, 0, waits[i], &hold, &error), SNIB_EINVAL, &error,
                "acquire");
        refused(snib_lock_acquire_submit(lock, 0, waits[i], queue, 1, &op, &error), SNIB_EINVAL,
                &error, "submit");
        refused(snib_lock_acquire_begin(lock, 0, waits[i], 50, queue, 1, &hold, &op, &error),
                SNIB_EINVAL, &error, "begin");
    }
    refused(snib_lock_acquire(lock, 0, 0, NULL, &error), SNIB_EINVAL, &error, "no output");
    refused(snib_lock_acquire_submit(lock, 0, 0, NULL, 0, NULL, &error), SNIB_EINVAL, &error,
            "nobody to tell");
    refused(snib_lock_new(client, SNIB_MUTEX, "x", 1, NULL, NULL, &error), SNIB_EINVAL, &error,
            "no output");
    refused(snib_client_open(server.url, NULL, NULL, &error), SNIB_EINVAL, &error, "no output");
    char small[100];
    uint64_t cursor = 0;
    size_t used;
    uint32_t count;
    refused(snib_client_list(client, "", 0, &cursor, small, sizeof small, &used, &count, &error),
            SNIB_EINVAL, &error, "small buffer");
    snib_client_stats_data stats = {.size = 1};
    refused(snib_client_stats(client, &stats, &error), SNIB_EINVAL, &error, "size");
    snib_lock_info_data info = {.size = 1};
    refused(snib_lock_info(lock, &info, &error), SNIB_EINVAL, &error, "size");
    refused(snib_client_log(client, queue, 9, &error), SNIB_EINVAL, &error, "level");
    assert_null(hold);
    assert_null(op);
    expect_free(&server, "x");
    snib_queue_free(queue);
    snib_lock_free(lock);
}

static void null_handles(void **state)
{
    (void)state;
    struct handles none = {.client = NULL};
    const char *wrong = calls_answer(&none, ALL_CALLS, SNIB_EHANDLE);
    if (wrong)
        fail_msg("not SNIB_EHANDLE: %s", wrong);
    handles_free(&none);
}

/* One valid handle of each kind, from a client of its own. */
static struct handles make_handles(void)
{
    struct handles h = {.client = must_open(server.url)};
    handles_locks(&h, "handles");
    h.hold = must_acquire(h.lock, 0);
    h.queue = must_queue(h.client);
    EXPECT(snib_lock_acquire_submit(h.lock, 0, -1, NULL, 0, &h.op, err), SNIB_OK);
    return h;
}

static void freed_handles(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) { /* slots are reused; old handles stay invalid */
        struct handles h = make_handles();
        handles_free(&h);
        const char *wrong = calls_answer(&h, ALL_CALLS, SNIB_EHANDLE);
        if (wrong)
            fail_msg("not SNIB_EHANDLE: %s", wrong);
        handles_free(&h); /* twice */
        AWAIT(server_integer(&server, "EXISTS handles") == 0, 1000);
    }
}

/* Every handle where another kind is expected, and addresses that never were handles. */
static void foreign_handles(void **state)
{
    (void)state;
    struct handles h = make_handles();
    int on_the_stack = 0;
    void *const all[] = {h.client, h.lock,        h.hold,    h.op,
                         h.queue,  &on_the_stack, (void *)1, (void *)-1L};
    for (size_t shift = 1; shift < 8; shift++) {
        void *no_lock = all[(1 + shift) % 8];
        struct handles wrong = {all[shift % 8],
                                no_lock,
                                all[(2 + shift) % 8],
                                all[(3 + shift) % 8],
                                all[(4 + shift) % 8],
                                no_lock,
                                no_lock,
                                no_lock};
        const char *call = calls_answer(&wrong, ALL_CALLS, SNIB_EHANDLE);
        if (call)
            fail_msg("shift %d, not SNIB_EHANDLE: %s", (int)shift, call);
        handles_free(&wrong);
    }
    AWAIT(snib_hold_state(h.hold, NULL) == SNIB_HOLD_VALID, 1000);
    handles_free(&h);
    AWAIT(server_integer(&server, "EXISTS handles") == 0, 1000);
}

/* The client is freed first: its other handles report that, and may be freed in any order. */
static void orphaned_handles(void **state)
{
    (void)state;
    struct handles h = make_handles();
    snib_client_free(h.client);
    const char *wrong = calls_answer(&h, CLIENT_CALLS, SNIB_EHANDLE);
    if (!wrong)
        wrong = calls_answer(&h, LOCK_CALLS, SNIB_ECLOSED);
    if (wrong)
        fail_msg("after the client's end: %s", wrong);
    int32_t reason = SNIB_REASON_NONE;
    assert_int_equal(snib_hold_state(h.hold, &reason), SNIB_HOLD_LOST);
    assert_int_equal(reason, SNIB_REASON_CLOSED);
    handles_free(&h);
    AWAIT(server_integer(&server, "EXISTS handles") == 0, 1000);
}

static void *consume(void *queue)
{
    snib_event event = {.size = sizeof event};
    assert_int_equal(snib_queue_wait(queue, &event, 1, -1, NULL), 0); /* ended by the wake */
    return NULL;
}

static void second_consumer(void **state)
{
    (void)state;
    snib_queue *queue = must_queue(client);
    snib_event event = {.size = sizeof event};
    snib_error error;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, consume, queue), 0);
    AWAIT(snib_queue_drain(queue, &event, 1, &error) == SNIB_EINUSE, 1000);
    refused(snib_queue_drain(queue, &event, 1, &error), SNIB_EINUSE, &error, "drain");
    refused(snib_queue_wait(queue, &event, 1, 0, &error), SNIB_EINUSE, &error, "wait");
    EXPECT(snib_queue_wake(queue), SNIB_OK);
    pthread_join(thread, NULL);
    assert_int_equal(snib_queue_drain(queue, &event, 1, &error), 0);
    snib_op *op = NULL;
    EXPECT(snib_lock_acquire_submit(must_lock(client, "x"), 0, 0, queue, 1, &op, err), SNIB_OK);
    refused(snib_op_wait(op, 0, &event, &error), SNIB_EINVAL, &error, "it has a queue");
    must_release(must_event(queue, 1000).hold);
    snib_queue_free(queue);
}

/* None of the above has left a trace. */
static void nothing_changed(void **state)
{
    (void)state;
    assert_true(server_is_empty(&server));
    AWAIT(server_channels(&server) == 0, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(lock_options),
        cmocka_unit_test(client_options),
        cmocka_unit_test(urls),
        cmocka_unit_test(options_in_force),
        cmocka_unit_test(no_url),
        cmocka_unit_test(waits_and_outputs),
        cmocka_unit_test(null_handles),
        cmocka_unit_test(freed_handles),
        cmocka_unit_test(foreign_handles),
        cmocka_unit_test(orphaned_handles),
        cmocka_unit_test(second_consumer),
        cmocka_unit_test(nothing_changed),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
