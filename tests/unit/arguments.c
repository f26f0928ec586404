/* arguments.c - every call with an argument that cannot be: which code, which words, and nothing is changed. */
#include "unit.h"

#include "snib.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct world {
    snib_client *client, *freed_client, *closed;
    snib_queue *queue, *freed_queue, *theirs;
    snib_lock *mutex, *permits, *semaphore, *latch, *multi, *freed_lock, *of_closed, *mutexes[3];
    snib_client *clients[3];
    snib_error error;
} w;

static snib_client *open_client(const char *url)
{
    snib_client *client;
    assert_int_equal(snib_client_open(url, NULL, &client, NULL), SNIB_OK);
    return client;
}

static snib_lock *lock_of(snib_client *client, int32_t kind)
{
    snib_lock *lock;
    assert_int_equal(snib_lock_new(client, kind, "m", 1, NULL, &lock, NULL), SNIB_OK);
    return lock;
}

static int begin(void **state)
{
    (void)state;
    w.client = open_client("unix:///nowhere");
    w.closed = open_client("unix:///nowhere");
    w.freed_client = open_client("unix:///nowhere");
    assert_int_equal(snib_queue_new(w.client, &w.queue, NULL), SNIB_OK);
    assert_int_equal(snib_queue_new(w.client, &w.freed_queue, NULL), SNIB_OK);
    assert_int_equal(snib_queue_new(w.closed, &w.theirs, NULL), SNIB_OK);
    w.mutex = lock_of(w.client, SNIB_MUTEX);
    w.permits = lock_of(w.client, SNIB_PERMITS);
    w.semaphore = lock_of(w.client, SNIB_SEMAPHORE);
    w.latch = lock_of(w.client, SNIB_LATCH);
    w.freed_lock = lock_of(w.client, SNIB_MUTEX);
    w.of_closed = lock_of(w.closed, SNIB_MUTEX);
    assert_int_equal(snib_multi_new(&w.mutex, 1, NULL, &w.multi, NULL), SNIB_OK);
    for (int i = 0; i < 3; i++) {
        char url[40];
        snprintf(url, sizeof url, "unix:///nowhere%d", i);
        w.clients[i] = open_client(url);
        w.mutexes[i] = lock_of(w.clients[i], SNIB_MUTEX);
    }
    snib_client_free(w.freed_client);
    snib_queue_free(w.freed_queue);
    snib_lock_free(w.freed_lock);
    assert_int_equal(snib_client_close(w.closed, 0, NULL), SNIB_OK);
    return 0;
}

static int end(void **state)
{
    (void)state;
    snib_lock *locks[] = {w.mutex, w.permits, w.semaphore, w.latch, w.multi, w.of_closed};
    for (size_t i = 0; i < COUNT(locks); i++)
        snib_lock_free(locks[i]);
    for (int i = 0; i < 3; i++) {
        snib_lock_free(w.mutexes[i]);
        snib_client_free(w.clients[i]);
    }
    snib_queue_free(w.queue);
    snib_queue_free(w.theirs);
    snib_client_free(w.client);
    snib_client_free(w.closed);
    return 0;
}

/* What an argument for a result has, which a refused call leaves alone. */
static union {
    void *pointer;
    size_t size;
    uint32_t count;
    int64_t number;
} out;
static void *const untouched = &w;

static void refused(const char *call, int got, int want, const char *words)
{
    if (got != want || w.error.code != want || !strstr(w.error.text, words))
        fail_msg("%s: %s instead of %s: %s", call, snib_code_name(got), snib_code_name(want),
                 w.error.text);
    assert_int_equal(w.error.reason, 0);
    assert_int_equal(w.error.os_error, 0);
    if (out.pointer != untouched)
        fail_msg("%s: its result is changed", call);
    memset(&w.error, 'x', sizeof w.error - 1);
    w.error.text[sizeof w.error.text - 1] = 0;
}

#define REFUSED(want, words, call) (out.pointer = untouched, refused(#call, call, want, words))
#define ERR (&w.error)
#define OUT ((void *)&out)

/* ---- NULL where something must be ---------------------------------------------------------------- */

static void nothing_to_write_to(void **state)
{
    (void)state;
    char buffer[8];
    uint64_t cursor = 0;
    REFUSED(SNIB_EINVAL, "out_client", snib_client_open("unix:///x", NULL, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out_queue", snib_queue_new(w.client, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out_lock", snib_lock_new(w.client, 1, "m", 1, NULL, NULL, ERR));
    REFUSED(SNIB_EINVAL, "name", snib_lock_new(w.client, 1, NULL, 1, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "out_lock", snib_multi_new(&w.mutex, 1, NULL, NULL, ERR));
    REFUSED(SNIB_EINVAL, "locks", snib_multi_new(NULL, 1, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "out_lock", snib_quorum_new(w.mutexes, 3, NULL, NULL, ERR));
    REFUSED(SNIB_EINVAL, "locks", snib_quorum_new(NULL, 3, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "out must", snib_client_id(w.client, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out is NULL", snib_client_get_options(w.client, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out is NULL", snib_client_stats(w.client, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out is NULL", snib_lock_info(w.mutex, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out must", snib_hold_owner(NULL, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out_event", snib_op_wait(NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "cursor",
            snib_client_list(w.client, "", 0, NULL, buffer, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "buffer",
            snib_client_list(w.client, "", 0, &cursor, NULL, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "out_used",
            snib_client_list(w.client, "", 0, &cursor, buffer, 65536, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "out_count",
            snib_client_describe(w.client, "m", 1, buffer, 65536, OUT, NULL, ERR));
    REFUSED(SNIB_EINVAL, "pattern",
            snib_client_list(w.client, NULL, 1, &cursor, buffer, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "pattern",
            snib_client_list_submit(w.client, NULL, 1, 0, w.queue, 0, OUT, ERR));
    REFUSED(SNIB_EINVAL, "name",
            snib_client_describe(w.client, NULL, 1, buffer, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "owner",
            snib_client_identity(w.client, NULL, 1, buffer, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "owner",
            snib_client_identity_submit(w.client, NULL, 1, w.queue, 0, OUT, ERR));
    REFUSED(SNIB_EINVAL, "name",
            snib_client_describe_submit(w.client, NULL, 1, w.queue, 0, OUT, ERR));
    REFUSED(SNIB_EINVAL, "out_used",
            snib_client_identity(w.client, "o", 1, buffer, 65536, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "buffer",
            snib_client_server(w.client, SNIB_SERVER_INFO, NULL, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "cursor",
            snib_client_load(w.client, 0, NULL, buffer, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "buffer",
            snib_client_load(w.client, 0, &cursor, NULL, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "room", snib_queue_drain(w.queue, NULL, 1, ERR));
    REFUSED(SNIB_EINVAL, "room", snib_queue_drain(w.queue, OUT, 0, ERR));
    REFUSED(SNIB_EINVAL, "room", snib_queue_wait(w.queue, NULL, 1, 0, ERR));
    REFUSED(SNIB_EINVAL, "room", snib_queue_wait(w.queue, OUT, 0, 0, ERR));
    assert_int_equal(cursor, 0);
}

/* The ways to acquire that give a hold, or an operation, have to have somewhere to put it. */
static void nowhere_for_a_result(void **state)
{
    (void)state;
    snib_queue *q = w.queue;
    REFUSED(SNIB_EINVAL, "out_hold", snib_lock_acquire(w.mutex, 0, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out_hold", snib_permits_acquire(w.permits, 1, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out_hold", snib_semaphore_acquire(w.semaphore, 1, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out_hold",
            snib_lock_acquire_begin(w.mutex, 0, 0, 0, q, 0, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "out_hold",
            snib_permits_acquire_begin(w.permits, 1, 0, 0, q, 0, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "out_hold",
            snib_semaphore_acquire_begin(w.semaphore, 1, 0, 0, q, 0, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "out_op", snib_lock_acquire_begin(w.mutex, 0, 0, 0, q, 0, OUT, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out_op",
            snib_permits_acquire_begin(w.permits, 1, 0, 0, q, 0, OUT, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out_op",
            snib_semaphore_acquire_begin(w.semaphore, 1, 0, 0, q, 0, OUT, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out_op", snib_latch_wait_begin(w.latch, 0, 0, q, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out_op", snib_hold_release_begin(NULL, 0, q, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "out_op", snib_hold_extend_begin(NULL, 0, 0, q, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost", snib_hold_extend_submit(NULL, 0, NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost", snib_lock_acquire_submit(w.mutex, 0, 0, NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost", snib_permits_acquire_submit(w.permits, 1, 0, NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost",
            snib_semaphore_acquire_submit(w.semaphore, 1, 0, NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost", snib_latch_wait_submit(w.latch, 0, NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost", snib_lock_info_submit(w.mutex, NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost", snib_lock_force_release_submit(w.mutex, NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost",
            snib_latch_count_submit(w.latch, SNIB_COUNT_GET, 0, NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost", snib_client_ping_submit(w.client, 0, NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost", snib_client_list_submit(w.client, "", 0, 0, NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost", snib_client_describe_submit(w.client, "m", 1, NULL, 0, NULL, ERR));
    REFUSED(SNIB_EINVAL, "lost", snib_client_identity_submit(w.client, "o", 1, NULL, 0, NULL, ERR));
}

/* ---- Numbers out of range -------------------------------------------------------------------------- */

static void times(void **state)
{
    (void)state;
    static const int64_t bad[] = {-2, INT64_MIN, 86400001, INT64_MAX};
    snib_queue *q = w.queue;
    for (size_t i = 0; i < COUNT(bad); i++) {
        int64_t t = bad[i];
        REFUSED(SNIB_EINVAL, "wait_ms", snib_lock_acquire(w.mutex, 0, t, OUT, ERR));
        REFUSED(SNIB_EINVAL, "wait_ms", snib_lock_acquire_submit(w.mutex, 0, t, q, 0, OUT, ERR));
        REFUSED(SNIB_EINVAL, "wait_ms", snib_latch_wait(w.latch, t, ERR));
        REFUSED(SNIB_EINVAL, "wait_ms", snib_client_ping(w.client, t, ERR));
        REFUSED(SNIB_EINVAL, "wait_ms", snib_client_ping_submit(w.client, t, q, 0, OUT, ERR));
        REFUSED(SNIB_EINVAL, "slice_ms",
                snib_lock_acquire_begin(w.mutex, 0, 0, t, q, 0, OUT, OUT, ERR));
        REFUSED(SNIB_EINVAL, "slice_ms", snib_latch_wait_begin(w.latch, 0, t, q, 0, OUT, ERR));
        REFUSED(SNIB_EINVAL, "slice_ms", snib_hold_release_begin(NULL, t, q, 0, OUT, ERR));
        REFUSED(SNIB_EINVAL, "slice_ms", snib_hold_extend_begin(NULL, 0, t, q, 0, OUT, ERR));
        REFUSED(SNIB_ELEASE, "24 hours", snib_hold_extend(NULL, t, ERR));
        REFUSED(SNIB_ELEASE, "24 hours", snib_hold_extend_begin(NULL, t, 0, q, 0, OUT, ERR));
        REFUSED(SNIB_ELEASE, "24 hours", snib_hold_extend_submit(NULL, t, q, 0, OUT, ERR));
        REFUSED(SNIB_EINVAL, "timeout_ms", snib_hold_wait(NULL, t, OUT, ERR));
        REFUSED(SNIB_EINVAL, "timeout_ms", snib_op_wait(NULL, t, OUT, ERR));
        REFUSED(SNIB_EINVAL, "timeout_ms", snib_queue_wait(w.queue, OUT, 1, t, ERR));
        REFUSED(SNIB_EINVAL, "timeout_ms", snib_client_close(w.client, t, ERR));
    }
    REFUSED(SNIB_EINVAL, "31536000000 ms", snib_advance_clock(-1, ERR));
    REFUSED(SNIB_EINVAL, "31536000000 ms", snib_advance_clock(31536000001, ERR));
    assert_int_equal(snib_advance_clock(0, NULL), SNIB_OK);
    REFUSED(SNIB_EINVAL, "60000 ms", snib_set_exit_timeout(-1, ERR));
    REFUSED(SNIB_EINVAL, "60000 ms", snib_set_exit_timeout(60001, ERR));
    assert_int_equal(snib_set_exit_timeout(60000, NULL), SNIB_OK);
    assert_int_equal(snib_set_exit_timeout(0, NULL), SNIB_OK);
}

static void permits(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0, 1001, UINT32_MAX};
    for (size_t i = 0; i < COUNT(bad); i++) {
        REFUSED(SNIB_EPERMITS, "1 to 1000",
                snib_permits_acquire_submit(w.permits, bad[i], 0, w.queue, 0, OUT, ERR));
        REFUSED(SNIB_EPERMITS, "1 to 1000",
                snib_semaphore_acquire_submit(w.semaphore, bad[i], 0, w.queue, 0, OUT, ERR));
    }
}

static int count_of(int32_t kind, int32_t what, int64_t n)
{
    return kind == SNIB_PERMITS ? snib_permits_count(w.permits, what, n, OUT, ERR)
           : kind == SNIB_LATCH ? snib_latch_count(w.latch, what, n, OUT, ERR)
                                : snib_semaphore_count(w.semaphore, what, n, OUT, ERR);
}

static int count_submit(int32_t kind, int32_t what, int64_t n)
{
    snib_queue *q = w.queue;
    return kind == SNIB_PERMITS ? snib_permits_count_submit(w.permits, what, n, q, 0, OUT, ERR)
           : kind == SNIB_LATCH ? snib_latch_count_submit(w.latch, what, n, q, 0, OUT, ERR)
                                : snib_semaphore_count_submit(w.semaphore, what, n, q, 0, OUT, ERR);
}

/* By what is to be done: the least and most numbers of each kind that knows it. */
static void counts(void **state)
{
    (void)state;
    enum { P, S, L, KINDS };
    static const int32_t kinds[KINDS] = {SNIB_PERMITS, SNIB_SEMAPHORE, SNIB_LATCH};
    static const struct {
        int32_t what;
        bool knows[KINDS];
        int64_t least[KINDS], most;
    } of[] = {
        {SNIB_COUNT_GET, {1, 1, 1}, {0}, 0},
        {SNIB_COUNT_INIT, {1, 1, 1}, {0, 0, 1}, INT32_MAX},
        {SNIB_COUNT_ADD, {1, 1, 0}, {-(int64_t)INT32_MAX, -(int64_t)INT32_MAX, 0}, INT32_MAX},
        {SNIB_COUNT_SET, {1, 0, 0}, {0}, INT32_MAX},
        {SNIB_COUNT_TOTAL, {1, 0, 0}, {0}, 0},
        {SNIB_COUNT_RELEASE, {0, 1, 0}, {0, 1, 0}, INT32_MAX},
        {SNIB_COUNT_DRAIN, {0, 1, 0}, {0}, 0},
        {SNIB_COUNT_DOWN, {0, 0, 1}, {0}, 0},
    };
    for (size_t i = 0; i < COUNT(of); i++)
        for (int k = 0; k < KINDS; k++) {
            int32_t kind = kinds[k], what = of[i].what;
            if (!of[i].knows[k]) {
                REFUSED(SNIB_ENOTSUP, "", count_of(kind, what, 1));
                continue;
            }
            REFUSED(SNIB_EPERMITS, "range", count_of(kind, what, of[i].least[k] - 1));
            REFUSED(SNIB_EPERMITS, "range", count_of(kind, what, of[i].most + 1));
            REFUSED(SNIB_EPERMITS, "range", count_submit(kind, what, of[i].most + 1));
            out.pointer = NULL;
            assert_int_equal(count_submit(kind, what, of[i].most), SNIB_OK);
            snib_op_free(out.pointer);
            assert_int_equal(count_submit(kind, what, of[i].least[k]), SNIB_OK);
            snib_op_free(out.pointer);
        }
    REFUSED(SNIB_EPERMITS, "range", count_of(SNIB_PERMITS, SNIB_COUNT_ADD, 0));
    REFUSED(SNIB_EINVAL, "no such operation", count_of(SNIB_PERMITS, 0, 0));
    REFUSED(SNIB_EINVAL, "no such operation", count_of(SNIB_PERMITS, 99, 0));
}

static void texts(void **state)
{
    (void)state;
    char buffer[8], pattern[1025];
    uint64_t cursor = 9;
    memset(pattern, 'a', sizeof pattern);
    REFUSED(SNIB_EINVAL, "65535 bytes; it must have 65536",
            snib_client_list(w.client, "", 0, &cursor, buffer, 65535, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "65535 bytes",
            snib_client_describe(w.client, "m", 1, buffer, 65535, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "65535 bytes",
            snib_client_identity(w.client, "o", 1, buffer, 65535, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "65535 bytes",
            snib_client_server(w.client, SNIB_SERVER_INFO, buffer, 65535, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "1025 bytes; the limit is 1024",
            snib_client_list_submit(w.client, pattern, 1025, 0, w.queue, 0, OUT, ERR));
    assert_int_equal(snib_client_list_submit(w.client, pattern, 1024, 0, w.queue, 0, OUT, ERR),
                     SNIB_OK);
    snib_op_free(out.pointer);
    REFUSED(SNIB_ENAME, "", snib_client_describe_submit(w.client, "\n", 1, w.queue, 0, OUT, ERR));
    REFUSED(SNIB_ENAME, "", snib_client_describe_submit(w.client, NULL, 0, w.queue, 0, OUT, ERR));
    REFUSED(SNIB_EINVAL, "no such server query",
            snib_client_server(w.client, SNIB_SERVER_INFO - 1, buffer, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "no such server query",
            snib_client_server(w.client, SNIB_SERVER_WAY + 1, buffer, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "no such kind",
            snib_client_load(w.client, -1, &cursor, buffer, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "no such kind",
            snib_client_load(w.client, SNIB_LATCH + 1, &cursor, buffer, 65536, OUT, OUT, ERR));
    REFUSED(SNIB_EINVAL, "65535 bytes",
            snib_client_load(w.client, 0, &cursor, buffer, 65535, OUT, OUT, ERR));
    assert_int_equal(cursor, 9);
}

static void more_operations_than_allowed(void **state)
{
    (void)state;
    snib_queue *queue;
    snib_op *op;
    snib_client *client = open_client("unix:///nowhere?waiters_max=1");
    assert_int_equal(snib_queue_new(client, &queue, NULL), SNIB_OK);
    snib_lock *lock = lock_of(client, SNIB_MUTEX);
    assert_int_equal(snib_client_ping_submit(client, -1, queue, 0, &op, NULL), SNIB_OK);
    REFUSED(SNIB_ELIMIT, "mutex \"m\": the client has as many",
            snib_lock_acquire(lock, 0, 0, OUT, ERR));
    REFUSED(SNIB_ELIMIT, "waiters_max", snib_client_ping(client, 0, ERR));
    snib_queue_free(queue);
    snib_lock_free(lock);
    snib_client_free(client);
}

static void log_levels(void **state)
{
    (void)state;
    REFUSED(SNIB_EINVAL, "level", snib_client_log(w.client, w.queue, SNIB_LOG_NONE - 1, ERR));
    REFUSED(SNIB_EINVAL, "level", snib_client_log(w.client, w.queue, SNIB_LOG_INFO + 1, ERR));
    assert_int_equal(snib_client_log(w.client, w.queue, SNIB_LOG_INFO, ERR), SNIB_OK);
    assert_int_equal(snib_client_log(w.client, w.queue, SNIB_LOG_NONE, ERR), SNIB_OK);
}

/* ---- Structs of other builds -------------------------------------------------------------------------- */

/* A struct that is longer than this build knows must be zero there; one that is shorter lacks the rest. */
static void sizes(void **state)
{
    (void)state;
    static union {
        snib_client_options client;
        snib_lock_options lock;
        char bytes[4200];
    } o;
    static const uint32_t bad[] = {0, 7, 4097};
    for (size_t i = 0; i < COUNT(bad); i++) {
        memset(&o, 0, sizeof o);
        o.client.size = bad[i];
        REFUSED(SNIB_EOPTION, "client_options_init",
                snib_client_open("unix:///x", &o.client, OUT, ERR));
        REFUSED(SNIB_EOPTION, "lock_options_init",
                snib_lock_new(w.client, 1, "m", 1, &o.lock, OUT, ERR));
    }
    for (size_t i = 0; i < 2; i++) {
        memset(&o, 0, sizeof o);
        o.client.size = i ? 4096 : 8;
        assert_int_equal(snib_client_open("unix:///x", &o.client, OUT, ERR), SNIB_OK);
        snib_client_free(out.pointer);
        assert_int_equal(snib_lock_new(w.client, 1, "m", 1, &o.lock, OUT, ERR), SNIB_OK);
        snib_lock_free(out.pointer);
    }
    o.bytes[4095] = 1;
    REFUSED(SNIB_EOPTION, "size", snib_client_open("unix:///x", &o.client, OUT, ERR));
    REFUSED(SNIB_EOPTION, "", snib_lock_new(w.client, 1, "m", 1, &o.lock, OUT, ERR));
    o.bytes[4095] = 0;
    o.bytes[sizeof o.client] = 1;
    REFUSED(SNIB_EOPTION, "size", snib_client_open("unix:///x", &o.client, OUT, ERR));
    o.bytes[sizeof o.client] = 0;
    o.bytes[sizeof o.lock] = 1;
    REFUSED(SNIB_EOPTION, "", snib_lock_new(w.client, 1, "m", 1, &o.lock, OUT, ERR));
    /* What lies behind a short one is not read. */
    memset(&o, 0xff, sizeof o);
    o.client.size = 8;
    o.client.flags = 0;
    assert_int_equal(snib_client_open("unix:///x", &o.client, OUT, ERR), SNIB_OK);
    snib_client_free(out.pointer);
    assert_int_equal(snib_lock_new(w.client, 1, "m", 1, &o.lock, OUT, ERR), SNIB_OK);
    snib_lock_free(out.pointer);
}

/* Whoever knows less of a struct gets less of it. */
static void short_results(void **state)
{
    (void)state;
    static union {
        snib_client_options options;
        snib_client_stats_data stats;
        unsigned char bytes[4096];
    } o;
    for (int which = 0; which < 2; which++) {
        uint32_t most = which ? sizeof o.stats : sizeof o.options;
        for (uint32_t size = 0; size <= most + 1; size = size < 9 ? size + 1 : size + 8) {
            memset(&o, 0xee, sizeof o);
            memcpy(&o, &size, sizeof size);
            int code = which ? snib_client_stats(w.client, &o.stats, ERR)
                             : snib_client_get_options(w.client, &o.options, ERR);
            assert_int_equal(code, size < 8 || size > most ? SNIB_EINVAL : SNIB_OK);
            assert_int_equal(o.options.size, size);
            for (size_t i = code ? sizeof size : size; i < sizeof o; i++)
                assert_int_equal(o.bytes[i], 0xee);
        }
        memset(&o, 0xee, sizeof o);
        o.options.size = most;
        assert_int_equal(which ? snib_client_stats(w.client, &o.stats, ERR)
                               : snib_client_get_options(w.client, &o.options, ERR),
                         SNIB_OK);
    }
    assert_true(o.stats.memory > 0 && o.stats.memory < 100000000);
    memset(&o, 0xee, sizeof o);
    snib_client_options_init(&o.options, 7);
    snib_lock_options_init((void *)&o, 7);
    snib_client_options_init(NULL, 100);
    snib_lock_options_init(NULL, 100);
    assert_int_equal(o.bytes[0], 0xee);
    snib_client_options_init(&o.options, 8);
    assert_int_equal(o.options.size, 8);
    assert_int_equal(o.options.flags, 0);
    assert_int_equal(o.bytes[8], 0xee);
    memset(&o, 0xee, sizeof o);
    snib_lock_options_init((void *)&o, 8);
    assert_int_equal(o.options.size, 8);
    assert_int_equal(o.options.flags, 0);
    assert_int_equal(o.bytes[8], 0xee);
}

/* ---- Handles that are gone, or of something else --------------------------------------------------------- */

static void of_client(snib_client *client, int want)
{
    char buffer[8], id[37];
    uint64_t cursor = 0;
    snib_client_stats_data stats = {.size = sizeof stats};
    snib_client_options options = {.size = sizeof options};
    REFUSED(want, "", snib_client_ping(client, 0, ERR));
    REFUSED(want, "", snib_client_ping_submit(client, 0, NULL, 0, OUT, ERR));
    REFUSED(want, "", snib_client_list(client, "", 0, &cursor, buffer, 65536, OUT, OUT, ERR));
    REFUSED(want, "", snib_client_list_submit(client, "", 0, 0, NULL, 0, OUT, ERR));
    REFUSED(want, "", snib_client_describe(client, "m", 1, buffer, 65536, OUT, OUT, ERR));
    REFUSED(want, "", snib_client_describe_submit(client, "m", 1, NULL, 0, OUT, ERR));
    REFUSED(want, "", snib_client_identity(client, "o", 1, buffer, 65536, OUT, OUT, ERR));
    REFUSED(want, "", snib_client_identity_submit(client, "o", 1, NULL, 0, OUT, ERR));
    REFUSED(want, "", snib_client_server(client, SNIB_SERVER_INFO, buffer, 65536, OUT, OUT, ERR));
    REFUSED(want, "", snib_client_load(client, 0, &cursor, buffer, 65536, OUT, OUT, ERR));
    REFUSED(want, "", snib_lock_new(client, SNIB_MUTEX, "m", 1, NULL, OUT, ERR));
    if (want == SNIB_ECLOSED)
        return;
    REFUSED(want, "", snib_queue_new(client, OUT, ERR));
    REFUSED(want, "", snib_client_close(client, 0, ERR));
    REFUSED(want, "", snib_client_id(client, id, ERR));
    REFUSED(want, "", snib_client_stats(client, &stats, ERR));
    REFUSED(want, "", snib_client_get_options(client, &options, ERR));
    REFUSED(want, "", snib_client_log(client, NULL, SNIB_LOG_NONE, ERR));
    REFUSED(want, "", snib_client_credentials(client, w.queue, ERR));
    REFUSED(want, "", snib_client_login(client, 1, NULL, ERR));
    snib_client_free(client);
}

static void of_lock(snib_lock *lock, int want)
{
    snib_lock_info_data info = {.size = sizeof info};
    snib_lock *two[] = {w.permits, lock}, *three[] = {w.mutexes[0], w.mutexes[1], lock};
    REFUSED(want, "", snib_lock_acquire(lock, 0, 0, OUT, ERR));
    REFUSED(want, "", snib_lock_acquire_begin(lock, 0, 0, 0, NULL, 0, OUT, OUT, ERR));
    REFUSED(want, "", snib_lock_acquire_submit(lock, 0, 0, NULL, 0, OUT, ERR));
    REFUSED(want, "", snib_lock_info(lock, &info, ERR));
    REFUSED(want, "", snib_lock_info_submit(lock, NULL, 0, OUT, ERR));
    REFUSED(want, "", snib_lock_force_release(lock, ERR));
    REFUSED(want, "", snib_lock_force_release_submit(lock, NULL, 0, OUT, ERR));
    REFUSED(want, "", snib_multi_new(two, 2, NULL, OUT, ERR));
    REFUSED(want, "", snib_quorum_new(three, 3, NULL, OUT, ERR));
    if (want == SNIB_EHANDLE)
        snib_lock_free(lock);
}

static void of_queue(snib_queue *queue)
{
    const int want = SNIB_EHANDLE;
    snib_queue *q = queue;
    REFUSED(want, "", snib_queue_fd(queue, ERR));
    REFUSED(want, "", snib_queue_drain(queue, OUT, 1, ERR));
    REFUSED(want, "", snib_queue_wait(queue, OUT, 1, 0, ERR));
    assert_int_equal(snib_queue_wake(queue), want);
    assert_int_equal(snib_queue_cork(queue), want);
    assert_int_equal(snib_queue_uncork(queue), want);
    snib_queue_free(queue);
    if (!queue)
        return;
    REFUSED(want, "", snib_lock_acquire_submit(w.mutex, 0, 0, q, 0, OUT, ERR));
    REFUSED(want, "", snib_lock_acquire_begin(w.mutex, 0, 0, 0, q, 0, OUT, OUT, ERR));
    REFUSED(want, "", snib_lock_info_submit(w.mutex, q, 0, OUT, ERR));
    REFUSED(want, "", snib_client_ping_submit(w.client, 0, q, 0, OUT, ERR));
    REFUSED(want, "", snib_client_list_submit(w.client, "", 0, 0, q, 0, OUT, ERR));
    REFUSED(want, "", snib_client_log(w.client, q, SNIB_LOG_INFO, ERR));
    REFUSED(want, "", snib_client_credentials(w.client, q, ERR));
    REFUSED(want, "", snib_hold_release_submit(NULL, q, 0, OUT, ERR));
    REFUSED(want, "", snib_hold_extend_submit(NULL, 0, q, 0, OUT, ERR));
}

static void of_hold(snib_hold *hold)
{
    const int want = SNIB_EHANDLE;
    char owner[128];
    REFUSED(want, "", snib_hold_check(hold, ERR));
    REFUSED(want, "", snib_hold_owner(hold, owner, ERR));
    REFUSED(want, "", snib_hold_wait(hold, 0, OUT, ERR));
    REFUSED(want, "", snib_hold_release(hold, ERR));
    REFUSED(want, "", snib_hold_release_submit(hold, w.queue, 0, OUT, ERR));
    REFUSED(want, "", snib_hold_release_begin(hold, 0, w.queue, 0, OUT, ERR));
    REFUSED(want, "", snib_hold_extend(hold, 1000, ERR));
    REFUSED(want, "", snib_hold_extend_submit(hold, 1000, w.queue, 0, OUT, ERR));
    REFUSED(want, "", snib_hold_extend_begin(hold, 1000, 0, w.queue, 0, OUT, ERR));
    assert_int_equal(snib_hold_state(hold, NULL), want);
    assert_int_equal(snib_hold_remaining_ms(hold), want);
    assert_int_equal(snib_hold_token(hold), want);
    assert_int_equal(snib_hold_replicas(hold), want);
    snib_hold_free(hold);
    snib_hold_abandon(hold);
}

static void of_op(snib_op *op)
{
    REFUSED(SNIB_EHANDLE, "", snib_op_wait(op, 0, OUT, ERR));
    assert_int_equal(snib_op_cancel(op), SNIB_EHANDLE);
    snib_op_free(op);
}

static void handles(void **state)
{
    (void)state;
    void *const mine = w.mutex, *const others = w.queue;
    of_client(NULL, SNIB_EHANDLE);
    of_client(w.freed_client, SNIB_EHANDLE);
    of_client(mine, SNIB_EHANDLE);
    of_client(w.closed, SNIB_ECLOSED);
    of_lock(NULL, SNIB_EHANDLE);
    of_lock(w.freed_lock, SNIB_EHANDLE);
    of_lock(others, SNIB_EHANDLE);
    of_lock(w.of_closed, SNIB_ECLOSED);
    of_queue(NULL);
    of_queue(w.freed_queue);
    of_queue(mine);
    of_hold(NULL);
    of_hold(mine);
    of_op(NULL);
    of_op(others);
}

static const char *flag_name(uint32_t flag)
{
    static const char *const names[] = {"flag FENCED", "flag PREFER_WRITER", "flag NO_QUARANTINE"};
    return flag <= SNIB_LOCK_NO_QUARANTINE ? names[flag >> 1] : "flag of an unknown number";
}

/* What one kind of lock can do and another cannot. */
static void kinds(void **state)
{
    (void)state;
    snib_queue *q = w.queue;
    snib_lock_info_data info = {.size = sizeof info};
    REFUSED(SNIB_ENOTSUP, "", snib_lock_acquire(w.latch, 0, 0, OUT, ERR));
    REFUSED(SNIB_ENOTSUP, "", snib_permits_acquire(w.mutex, 1, 0, OUT, ERR));
    REFUSED(SNIB_ENOTSUP, "", snib_semaphore_acquire(w.permits, 1, 0, OUT, ERR));
    REFUSED(SNIB_ENOTSUP, "", snib_latch_wait(w.mutex, 0, ERR));
    REFUSED(SNIB_ENOTSUP, "", snib_latch_wait_submit(w.permits, 0, q, 0, OUT, ERR));
    REFUSED(SNIB_ENOTSUP, "", snib_permits_count(w.semaphore, SNIB_COUNT_GET, 0, OUT, ERR));
    REFUSED(SNIB_ENOTSUP, "", snib_lock_info(w.multi, &info, ERR));
    REFUSED(SNIB_ENOTSUP, "", snib_lock_force_release(w.multi, ERR));
    for (int32_t kind = SNIB_MUTEX; kind <= SNIB_LATCH; kind++) {
        snib_lock_options o;
        bool unleased = kind == SNIB_SEMAPHORE || kind == SNIB_LATCH;
        for (uint32_t flag = 1; flag; flag <<= 1) {
            bool knows = (flag == SNIB_LOCK_FENCED && (kind == SNIB_WRITE || kind == SNIB_FAIR)) ||
                         (flag == SNIB_LOCK_PREFER_WRITER && kind == SNIB_WRITE);
            snib_lock_options_init(&o, sizeof o);
            o.flags = flag;
            out.pointer = untouched;
            if (!knows) {
                REFUSED(SNIB_EOPTION, flag_name(flag),
                        snib_lock_new(w.client, kind, "n", 1, &o, OUT, ERR));
                continue;
            }
            assert_int_equal(snib_lock_new(w.client, kind, "n", 1, &o, OUT, ERR), SNIB_OK);
            snib_lock_free(out.pointer);
        }
        for (int which = 0; which < 2; which++) {
            snib_lock_options_init(&o, sizeof o);
            *(which ? &o.lease_ms : &o.max_hold_ms) = 86400000;
            if (unleased) {
                REFUSED(SNIB_EOPTION, "lease", snib_lock_new(w.client, kind, "n", 1, &o, OUT, ERR));
                continue;
            }
            assert_int_equal(snib_lock_new(w.client, kind, "n", 1, &o, OUT, ERR), SNIB_OK);
            snib_lock_free(out.pointer);
            ++*(which ? &o.lease_ms : &o.max_hold_ms);
            REFUSED(which ? SNIB_ELEASE : SNIB_EOPTION, which ? "lease" : "max_hold",
                    snib_lock_new(w.client, kind, "n", 1, &o, OUT, ERR));
        }
    }
}

/* Locks of locks. */
static void members(void **state)
{
    (void)state;
    snib_lock *many[129], *twice[] = {w.mutex, w.permits, w.mutex};
    snib_lock *mixed[] = {w.mutexes[0], w.mutexes[1], w.permits};
    snib_lock_options o;
    for (size_t i = 0; i < COUNT(many); i++)
        many[i] = w.mutex;
    REFUSED(SNIB_EINVAL, "takes 1 to", snib_multi_new(many, 0, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "takes 1 to", snib_multi_new(many, 129, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "3 to 15", snib_quorum_new(w.mutexes, 2, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "3 to 15", snib_quorum_new(many, 16, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "\"m\" is given twice", snib_multi_new(twice, 3, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "the same server", snib_quorum_new(many, 3, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "must be mutexes", snib_quorum_new(mixed, 3, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "cannot be a member", snib_multi_new(&w.semaphore, 1, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "cannot be a member", snib_multi_new(&w.latch, 1, NULL, OUT, ERR));
    REFUSED(SNIB_EINVAL, "cannot be a member", snib_multi_new(&w.multi, 1, NULL, OUT, ERR));
    for (uint32_t flag = 1; flag; flag <<= 1) {
        snib_lock_options_init(&o, sizeof o);
        o.flags = flag;
        REFUSED(SNIB_EOPTION, flag_name(flag), snib_multi_new(&w.mutex, 1, &o, OUT, ERR));
        if (flag != SNIB_LOCK_NO_QUARANTINE)
            REFUSED(SNIB_EOPTION, flag_name(flag), snib_quorum_new(w.mutexes, 3, &o, OUT, ERR));
    }
}

/* Another client's queue. */
static void queues(void **state)
{
    (void)state;
    REFUSED(SNIB_EINVAL, "mutex \"m\": the queue belongs to another client",
            snib_lock_acquire_submit(w.mutex, 0, 0, w.theirs, 0, OUT, ERR));
    REFUSED(SNIB_EINVAL, "mutex \"m\": the queue belongs to another client",
            snib_lock_info_submit(w.mutex, w.theirs, 0, OUT, ERR));
    REFUSED(SNIB_EINVAL, "another client",
            snib_client_ping_submit(w.client, 0, w.theirs, 0, OUT, ERR));
    REFUSED(SNIB_EINVAL, "another client",
            snib_client_list_submit(w.client, "", 0, 0, w.theirs, 0, OUT, ERR));
    REFUSED(SNIB_EINVAL, "another client", snib_client_log(w.client, w.theirs, SNIB_LOG_INFO, ERR));
    REFUSED(SNIB_EINVAL, "another client", snib_client_credentials(w.client, w.theirs, ERR));
    snib_lock *of_two, *members[2] = {w.mutexes[1], w.mutexes[0]};
    snib_queue *queue;
    assert_int_equal(snib_multi_new(members, 2, NULL, &of_two, NULL), SNIB_OK);
    assert_int_equal(snib_queue_new(w.clients[0], &queue, NULL), SNIB_OK);
    REFUSED(SNIB_EINVAL,
            "\"m\" and others: the queue belongs to another client than the first member",
            snib_lock_acquire_submit(of_two, 0, 0, queue, 0, OUT, ERR));
    snib_queue_free(queue);
    snib_lock_free(of_two);
    REFUSED(SNIB_EINVAL, "queue must", snib_client_credentials(w.client, NULL, ERR));
    REFUSED(SNIB_EINVAL, "ask_credentials", snib_client_credentials(w.client, w.queue, ERR));
    REFUSED(SNIB_EINVAL, "ask_credentials", snib_client_login(w.client, 1, NULL, ERR));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_write_to),
        cmocka_unit_test(nowhere_for_a_result),
        cmocka_unit_test(times),
        cmocka_unit_test(permits),
        cmocka_unit_test(counts),
        cmocka_unit_test(texts),
        cmocka_unit_test(more_operations_than_allowed),
        cmocka_unit_test(log_levels),
        cmocka_unit_test(sizes),
        cmocka_unit_test(short_results),
        cmocka_unit_test(handles),
        cmocka_unit_test(kinds),
        cmocka_unit_test(members),
        cmocka_unit_test(queues),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
