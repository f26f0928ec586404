/* family_bad_input.c - invalid arguments of counters, latches, options of all kinds and locks of
 * locks get their own errors, and nothing is sent or changed.
 */
#include "../support/support.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct server server;
static snib_client *client, *other;
static snib_lock *permits, *semaphore, *latch, *mutex;
static snib_queue *queue, *foreign_queue;

static int start(void **state)
{
    (void)state;
    server_start(&server, NULL);
    client = must_open(server.url);
    other = must_open(server.url);
    permits = must_lock_kind(client, SNIB_PERMITS, "permits");
    semaphore = must_lock_kind(client, SNIB_SEMAPHORE, "semaphore");
    latch = must_lock_kind(client, SNIB_LATCH, "latch");
    mutex = must_lock(client, "mutex");
    queue = must_queue(client);
    foreign_queue = must_queue(other);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    snib_client_free(client);
    snib_client_free(other);
    server_stop(&server);
    return 0;
}

/* A refusal has the code and an error text of one line. */
static void refused_at(int got, int want, const snib_error *error, const char *call, int line)
{
    if (got != want || error->code != want || strlen(error->text) < 10 ||
        strpbrk(error->text, "\r\n") ||
        (want == SNIB_EINVAL &&
         strcmp(error->text, snib_code_text(want)) == 0)) /* which argument? */
        fail_msg("line %d, %s: %s instead of %s (%s)", line, call, snib_code_name(got),
                 snib_code_name(want), error->text);
}

#define REFUSED(call, want)                                                                        \
    do {                                                                                           \
        snib_error error = {0}, *err = &error;                                                     \
        refused_at((call), (want), &error, #call, __LINE__);                                       \
    } while (0)

/* ---- Permits and semaphores ------------------------------------------------------------------ */

static void numbers_of_permits(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0, 1001, INT32_MAX, UINT32_MAX};
    snib_hold *hold = NULL;
    snib_op *op = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t n = bad[i];
        REFUSED(snib_permits_acquire(permits, n, 0, &hold, err), SNIB_EPERMITS);
        REFUSED(snib_permits_acquire_begin(permits, n, 0, 50, NULL, 0, &hold, &op, err),
                SNIB_EPERMITS);
        REFUSED(snib_permits_acquire_submit(permits, n, 0, queue, 0, &op, err), SNIB_EPERMITS);
        REFUSED(snib_semaphore_acquire(semaphore, n, 0, &hold, err), SNIB_EPERMITS);
        REFUSED(snib_semaphore_acquire_begin(semaphore, n, 0, 50, NULL, 0, &hold, &op, err),
                SNIB_EPERMITS);
        REFUSED(snib_semaphore_acquire_submit(semaphore, n, 0, queue, 0, &op, err), SNIB_EPERMITS);
    }
    assert_null(hold);
    assert_null(op);
}

static void waits_and_outputs(void **state)
{
    (void)state;
    static const int64_t bad[] = {-2, INT64_MIN, 86400001, INT64_MAX};
    snib_hold *hold = NULL;
    snib_op *op = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        REFUSED(snib_permits_acquire(permits, 1, bad[i], &hold, err), SNIB_EINVAL);
        REFUSED(snib_semaphore_acquire_submit(semaphore, 1, bad[i], queue, 0, &op, err),
                SNIB_EINVAL);
        REFUSED(snib_latch_wait(latch, bad[i], err), SNIB_EINVAL);
        REFUSED(snib_latch_wait_begin(latch, bad[i], 50, NULL, 0, &op, err), SNIB_EINVAL);
        REFUSED(snib_latch_wait_begin(latch, 0, bad[i], NULL, 0, &op, err), SNIB_EINVAL);
        REFUSED(snib_latch_wait_submit(latch, bad[i], queue, 0, &op, err), SNIB_EINVAL);
    }
    REFUSED(snib_permits_acquire(permits, 1, 0, NULL, err), SNIB_EINVAL);
    REFUSED(snib_semaphore_acquire(semaphore, 1, 0, NULL, err), SNIB_EINVAL);
    REFUSED(snib_permits_acquire_begin(permits, 1, 0, 50, NULL, 0, NULL, &op, err), SNIB_EINVAL);
    REFUSED(snib_permits_acquire_begin(permits, 1, 0, 50, NULL, 0, &hold, NULL, err), SNIB_EINVAL);
    REFUSED(snib_semaphore_acquire_begin(semaphore, 1, 0, 50, NULL, 0, NULL, &op, err),
            SNIB_EINVAL);
    REFUSED(snib_latch_wait_begin(latch, 0, 50, NULL, 0, NULL, err), SNIB_EINVAL);
    /* without a queue or an operation */
    REFUSED(snib_permits_acquire_submit(permits, 1, 0, NULL, 0, NULL, err), SNIB_EINVAL);
    REFUSED(snib_semaphore_acquire_submit(semaphore, 1, 0, NULL, 0, NULL, err), SNIB_EINVAL);
    REFUSED(snib_latch_wait_submit(latch, 0, NULL, 0, NULL, err), SNIB_EINVAL);
    REFUSED(snib_permits_count_submit(permits, SNIB_COUNT_GET, 0, NULL, 0, NULL, err), SNIB_EINVAL);
    REFUSED(snib_semaphore_count_submit(semaphore, SNIB_COUNT_INIT, 1, NULL, 0, NULL, err),
            SNIB_EINVAL);
    REFUSED(snib_latch_count_submit(latch, SNIB_COUNT_INIT, 1, NULL, 0, NULL, err), SNIB_EINVAL);
    assert_null(hold);
    assert_null(op);
}

static void queues_of_others(void **state)
{
    (void)state;
    snib_op *op = NULL;
    snib_hold *hold = NULL;
    snib_queue *freed = must_queue(client);
    snib_queue_free(freed);
    const struct {
        snib_queue *queue;
        int want;
    } bad[] = {{foreign_queue, SNIB_EINVAL}, {freed, SNIB_EHANDLE}, {(void *)mutex, SNIB_EHANDLE}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snib_queue *q = bad[i].queue;
        int want = bad[i].want;
        REFUSED(snib_permits_acquire_submit(permits, 1, 0, q, 0, &op, err), want);
        REFUSED(snib_permits_acquire_begin(permits, 1, 0, 50, q, 0, &hold, &op, err), want);
        REFUSED(snib_semaphore_acquire_submit(semaphore, 1, 0, q, 0, &op, err), want);
        REFUSED(snib_latch_wait_submit(latch, 0, q, 0, &op, err), want);
        REFUSED(snib_permits_count_submit(permits, SNIB_COUNT_SET, 1, q, 0, &op, err), want);
        REFUSED(snib_semaphore_count_submit(semaphore, SNIB_COUNT_ADD, 1, q, 0, &op, err), want);
        REFUSED(snib_latch_count_submit(latch, SNIB_COUNT_INIT, 1, q, 0, &op, err), want);
    }
    assert_null(op);
    assert_null(hold);
}

/* A lock of one kind where another is expected. */
static void kinds_of_others(void **state)
{
    (void)state;
    snib_hold *hold = NULL;
    snib_op *op = NULL;
    REFUSED(snib_lock_acquire(latch, 0, 0, &hold, err), SNIB_ENOTSUP);
    REFUSED(snib_lock_acquire_begin(latch, 0, 0, 50, NULL, 0, &hold, &op, err), SNIB_ENOTSUP);
    REFUSED(snib_lock_acquire_submit(latch, 0, 0, queue, 0, &op, err), SNIB_ENOTSUP);
    for (int kind = SNIB_MUTEX; kind <= SNIB_LATCH; kind++) {
        snib_lock *lock = must_lock_kind(client, kind, "x");
        if (kind != SNIB_PERMITS) {
            REFUSED(snib_permits_acquire(lock, 1, 0, &hold, err), SNIB_ENOTSUP);
            REFUSED(snib_permits_acquire_submit(lock, 1, 0, queue, 0, &op, err), SNIB_ENOTSUP);
            REFUSED(snib_permits_count(lock, SNIB_COUNT_GET, 0, NULL, err), SNIB_ENOTSUP);
            REFUSED(snib_permits_count_submit(lock, SNIB_COUNT_SET, 1, queue, 0, &op, err),
                    SNIB_ENOTSUP);
        }
        if (kind != SNIB_SEMAPHORE) {
            REFUSED(snib_semaphore_acquire(lock, 1, 0, &hold, err), SNIB_ENOTSUP);
            REFUSED(snib_semaphore_acquire_begin(lock, 1, 0, 50, NULL, 0, &hold, &op, err),
                    SNIB_ENOTSUP);
            REFUSED(snib_semaphore_count(lock, SNIB_COUNT_INIT, 1, NULL, err), SNIB_ENOTSUP);
        }
        if (kind != SNIB_LATCH) {
            REFUSED(snib_latch_wait(lock, 0, err), SNIB_ENOTSUP);
            REFUSED(snib_latch_wait_submit(lock, 0, queue, 0, &op, err), SNIB_ENOTSUP);
            REFUSED(snib_latch_count(lock, SNIB_COUNT_DOWN, 0, NULL, err), SNIB_ENOTSUP);
        }
        snib_lock_free(lock);
    }
    assert_null(hold);
    assert_null(op);
}

/* Which operations each counter has, and with which numbers. */
static void counts(void **state)
{
    (void)state;
    enum { P = 1, S = 2, L = 4 };
    static const struct {
        int32_t what;
        int of; /* other operations are not supported */
        int64_t bad[4];
    } asked[] = {
        {SNIB_COUNT_GET, P | S | L, {1, -1, INT64_MAX, INT64_MIN}},
        {SNIB_COUNT_INIT, P | S | L, {-1, INT32_MAX + 1ll, INT64_MAX, INT64_MIN}},
        {SNIB_COUNT_ADD, P | S, {0, INT32_MAX + 1ll, INT32_MIN, INT64_MIN}},
        {SNIB_COUNT_SET, P, {-1, INT32_MAX + 1ll, INT64_MAX, INT64_MIN}},
        {SNIB_COUNT_TOTAL, P, {1, -1, INT64_MAX, INT64_MIN}},
        {SNIB_COUNT_RELEASE, S, {0, -1, INT32_MAX + 1ll, INT64_MIN}},
        {SNIB_COUNT_DRAIN, S, {1, -1, INT64_MAX, INT64_MIN}},
        {SNIB_COUNT_DOWN, L, {1, -1, INT64_MAX, INT64_MIN}},
    };
    static const int32_t unknown[] = {0, 9, -1, INT32_MAX, INT32_MIN};
    int64_t value = 4711;
    snib_op *op = NULL;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        for (size_t b = 0; b < 4; b++) {
            int32_t what = asked[i].what;
            int64_t n = asked[i].bad[b];
            int p = asked[i].of & P ? SNIB_EPERMITS : SNIB_ENOTSUP;
            int s = asked[i].of & S ? SNIB_EPERMITS : SNIB_ENOTSUP;
            int l = asked[i].of & L ? SNIB_EPERMITS : SNIB_ENOTSUP;
            REFUSED(snib_permits_count(permits, what, n, &value, err), p);
            REFUSED(snib_permits_count_submit(permits, what, n, queue, 0, &op, err), p);
            REFUSED(snib_semaphore_count(semaphore, what, n, &value, err), s);
            REFUSED(snib_semaphore_count_submit(semaphore, what, n, queue, 0, &op, err), s);
            REFUSED(snib_latch_count(latch, what, n, &value, err), l);
            REFUSED(snib_latch_count_submit(latch, what, n, queue, 0, &op, err), l);
        }
    REFUSED(snib_latch_count(latch, SNIB_COUNT_INIT, 0, &value, err), SNIB_EPERMITS);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        REFUSED(snib_permits_count(permits, unknown[i], 0, &value, err), SNIB_EINVAL);
        REFUSED(snib_semaphore_count(semaphore, unknown[i], 0, &value, err), SNIB_EINVAL);
        REFUSED(snib_latch_count(latch, unknown[i], 1, &value, err), SNIB_EINVAL);
    }
    assert_int_equal(value, 4711); /* outputs are written on success only */
    assert_null(op);
    assert_true(server_is_empty(&server));
}

/* A number that Java could not hold is refused by the server, and the old one stays. */
static void numbers_that_overflow(void **state)
{
    (void)state;
    int64_t value = 4711;
    EXPECT(snib_semaphore_count(semaphore, SNIB_COUNT_INIT, INT32_MAX, NULL, err), SNIB_OK);
    EXPECT(snib_permits_count(permits, SNIB_COUNT_INIT, INT32_MAX, NULL, err), SNIB_OK);
    REFUSED(snib_semaphore_count(semaphore, SNIB_COUNT_ADD, 1, &value, err), SNIB_EPERMITS);
    REFUSED(snib_semaphore_count(semaphore, SNIB_COUNT_RELEASE, INT32_MAX, &value, err),
            SNIB_EPERMITS);
    REFUSED(snib_permits_count(permits, SNIB_COUNT_ADD, 1, &value, err), SNIB_EPERMITS);
    assert_int_equal(value, 4711);
    assert_int_equal(must_count(SNIB_SEMAPHORE, semaphore, SNIB_COUNT_GET, 0), INT32_MAX);
    assert_int_equal(must_count(SNIB_PERMITS, permits, SNIB_COUNT_GET, 0), INT32_MAX);
    EXPECT(snib_lock_force_release(semaphore, err), SNIB_OK);
    EXPECT(snib_lock_force_release(permits, err), SNIB_OK);
}

static void more_permits_than_there_are(void **state)
{
    (void)state;
    snib_hold *hold = NULL, *second = NULL;
    EXPECT(snib_permits_acquire(permits, 2, 0, &hold, err), SNIB_BUSY); /* no number has been set */
    must_count(SNIB_PERMITS, permits, SNIB_COUNT_INIT, 3);
    REFUSED(snib_permits_acquire(permits, 4, -1, &hold, err), SNIB_EPERMITS);
    EXPECT(snib_permits_acquire(permits, 2, 0, &hold, err), SNIB_OK);
    REFUSED(snib_permits_acquire(permits, 4, -1, &second, err), SNIB_EPERMITS);
    EXPECT(snib_permits_acquire(permits, 2, 20, &second, err), SNIB_TIMEDOUT);
    assert_null(second);
    EXPECT(snib_hold_release(hold, err), SNIB_OK);
    EXPECT(snib_hold_release(hold, err), SNIB_NOT_HELD);
    EXPECT(snib_hold_release_submit(hold, queue, 0, NULL, err), SNIB_NOT_HELD);
    assert_int_equal(must_count(SNIB_PERMITS, permits, SNIB_COUNT_GET, 0), 3);
    snib_hold_free(hold);
    EXPECT(snib_hold_release(hold, err), SNIB_EHANDLE);
    EXPECT(snib_lock_force_release(permits, err), SNIB_OK);

    must_count(SNIB_SEMAPHORE, semaphore, SNIB_COUNT_INIT, 1);
    hold = must_acquire(semaphore, 0);
    EXPECT(snib_hold_release(hold, err), SNIB_OK);
    EXPECT(snib_hold_release(hold, err), SNIB_NOT_HELD); /* else there would be one too many */
    snib_hold_free(hold);
    assert_int_equal(must_count(SNIB_SEMAPHORE, semaphore, SNIB_COUNT_GET, 0), 1);
    EXPECT(snib_lock_force_release(semaphore, err), SNIB_OK);
}

/* ---- Options, names, buffers ----------------------------------------------------------------- */

static int new_with(int32_t kind, uint32_t flags, int64_t lease_ms, int64_t max_hold_ms,
                    snib_error *err)
{
    snib_lock_options options;
    snib_lock *lock = NULL;
    snib_lock_options_init(&options, sizeof options);
    options.flags = flags;
    options.lease_ms = lease_ms;
    options.max_hold_ms = max_hold_ms;
    int code = snib_lock_new(client, kind, "x", 1, &options, &lock, err);
    assert_true((code == SNIB_OK) == (lock != NULL));
    snib_lock_free(lock);
    return code;
}

static void options_of_kinds(void **state)
{
    (void)state;
    for (int32_t kind = SNIB_MUTEX; kind <= SNIB_LATCH; kind++) {
        uint32_t known = kind == SNIB_WRITE  ? SNIB_LOCK_FENCED | SNIB_LOCK_PREFER_WRITER
                         : kind == SNIB_FAIR ? SNIB_LOCK_FENCED
                                             : 0;
        bool unleased = kind == SNIB_SEMAPHORE || kind == SNIB_LATCH;
        for (int bit = 0; bit < 32; bit++) {
            uint32_t flag = 1u << bit;
            if (known & flag)
                EXPECT(new_with(kind, flag, 0, 0, err), SNIB_OK);
            else
                REFUSED(new_with(kind, flag | known, 0, 0, err), SNIB_EOPTION);
        }
        if (unleased) {
            REFUSED(new_with(kind, 0, 1000, 0, err), SNIB_EOPTION);
            REFUSED(new_with(kind, 0, 0, 1000, err), SNIB_EOPTION);
        } else {
            REFUSED(new_with(kind, 0, 99, 0, err), SNIB_ELEASE);
            EXPECT(new_with(kind, known, 100, 1000, err), SNIB_OK);
        }
        EXPECT(new_with(kind, 0, 0, -1, err), SNIB_OK);
        REFUSED(new_with(kind, 0, 0, -2, err), SNIB_EOPTION);
    }
}

static void describing(void **state)
{
    (void)state;
    static char buffer[65536];
    size_t used = 4711;
    uint32_t count = 4711;
    static const char *const bad[] = {"", "\xff", "a{b", "line\nfeed"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSED(snib_client_describe(client, bad[i], strlen(bad[i]), buffer, sizeof buffer, &used,
                                     &count, err),
                SNIB_ENAME);
    REFUSED(snib_client_describe(client, NULL, 1, buffer, sizeof buffer, &used, &count, err),
            SNIB_EINVAL);
    REFUSED(snib_client_describe(client, "x", 1, NULL, sizeof buffer, &used, &count, err),
            SNIB_EINVAL);
    REFUSED(snib_client_describe(client, "x", 1, buffer, 65535, &used, &count, err), SNIB_EINVAL);
    REFUSED(snib_client_describe(client, "x", 1, buffer, sizeof buffer, NULL, &count, err),
            SNIB_EINVAL);
    REFUSED(snib_client_describe(client, "x", 1, buffer, sizeof buffer, &used, NULL, err),
            SNIB_EINVAL);
    assert_int_equal(used + count, 2 * 4711);
}

/* ---- Locks of locks -------------------------------------------------------------------------- */

static void expect_no_multi(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                            int want, int line)
{
    snib_error error = {0};
    snib_lock *group = NULL;
    refused_at(snib_multi_new(locks, n, options, &group, &error), want, &error, "multi", line);
    assert_null(group);
}

static void expect_no_quorum(snib_lock *const *locks, uint32_t n, const snib_lock_options *options,
                             int want, int line)
{
    snib_error error = {0};
    snib_lock *group = NULL;
    refused_at(snib_quorum_new(locks, n, options, &group, &error), want, &error, "quorum", line);
    assert_null(group);
}

#define NO_MULTI(locks, n, options, want) expect_no_multi(locks, n, options, want, __LINE__)
#define NO_QUORUM(locks, n, options, want) expect_no_quorum(locks, n, options, want, __LINE__)

static void members_of_multi(void **state)
{
    (void)state;
    snib_lock *many[101], *multi = NULL, *freed = must_lock(client, "freed");
    snib_client *closed = must_open(server.url);
    snib_lock *of_closed = must_lock(closed, "closed");
    EXPECT(snib_client_close(closed, 0, err), SNIB_OK);
    snib_lock_free(freed);
    for (int i = 0; i < 101; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        many[i] = must_lock(client, name);
    }
    NO_MULTI(many, 0, NULL, SNIB_EINVAL);
    NO_MULTI(many, 101, NULL, SNIB_EINVAL);
    NO_MULTI(many, UINT32_MAX, NULL, SNIB_EINVAL);
    NO_MULTI(NULL, 1, NULL, SNIB_EINVAL);
    REFUSED(snib_multi_new(many, 1, NULL, NULL, err), SNIB_EINVAL);
    EXPECT(snib_multi_new(many, 100, NULL, &multi, err), SNIB_OK);
    snib_lock *same_name = must_lock_kind(client, SNIB_FENCED, "m0");
    snib_lock *elsewhere = must_lock(other, "m0");
    const struct {
        snib_lock *second;
        int want;
    } bad[] = {
        {NULL, SNIB_EHANDLE},      {freed, SNIB_EHANDLE},  {(void *)queue, SNIB_EHANDLE},
        {of_closed, SNIB_ECLOSED}, {latch, SNIB_EINVAL},   {semaphore, SNIB_EINVAL},
        {multi, SNIB_EINVAL},      {many[0], SNIB_EINVAL}, {same_name, SNIB_EINVAL},
        {elsewhere, SNIB_EINVAL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snib_lock *const locks[] = {many[0], bad[i].second, many[1]};
        NO_MULTI(locks, 3, NULL, bad[i].want);
    }
    snib_lock_options options;
    for (int bit = 0; bit < 32; bit++) {
        snib_lock_options_init(&options, sizeof options);
        options.flags = 1u << bit;
        NO_MULTI(many, 2, &options, SNIB_EOPTION);
    }
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = 99;
    NO_MULTI(many, 2, &options, SNIB_ELEASE);
    snib_lock_info_data info = {.size = sizeof info};
    REFUSED(snib_lock_info(multi, &info, err), SNIB_ENOTSUP);
    REFUSED(snib_lock_force_release(multi, err), SNIB_ENOTSUP);
    REFUSED(snib_latch_wait(multi, 0, err), SNIB_ENOTSUP);
    REFUSED(snib_permits_count(multi, SNIB_COUNT_GET, 0, NULL, err), SNIB_ENOTSUP);
    snib_client_free(closed);
    snib_lock_free(of_closed);
    snib_lock_free(multi);
    snib_lock_free(same_name);
    snib_lock_free(elsewhere);
    for (int i = 0; i < 101; i++)
        snib_lock_free(many[i]);
}

/* Nothing is sent here, so the servers need not exist. */
static void members_of_quorum(void **state)
{
    (void)state;
    snib_client *clients[16];
    snib_lock *locks[16], *quorum = NULL;
    for (int i = 0; i < 16; i++) {
        char url[64];
        snprintf(url, sizeof url, "redis://127.0.0.1:%d", i + 1);
        clients[i] = must_open(url);
        locks[i] = must_lock(clients[i], "q");
    }
    NO_QUORUM(locks, 0, NULL, SNIB_EINVAL);
    NO_QUORUM(locks, 2, NULL, SNIB_EINVAL);
    NO_QUORUM(locks, 16, NULL, SNIB_EINVAL);
    NO_QUORUM(NULL, 3, NULL, SNIB_EINVAL);
    EXPECT(snib_quorum_new(locks, 15, NULL, &quorum, err), SNIB_OK);
    snib_client *twin = must_open("redis://127.0.0.1:1");
    snib_lock *bad[] = {
        must_lock(clients[2], "other"),
        must_lock_kind(clients[2], SNIB_FAIR, "q"),
        must_lock_kind(clients[2], SNIB_FENCED, "q"),
        must_lock_kind(clients[2], SNIB_PERMITS, "q"),
        must_lock(clients[1], "q"), /* one client twice */
        must_lock(twin, "q"),       /* one server twice */
        quorum,
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snib_lock *const members[] = {locks[0], locks[1], bad[i]};
        NO_QUORUM(members, 3, NULL, SNIB_EINVAL);
    }
    snib_lock *const nested[] = {locks[0], quorum};
    NO_MULTI(nested, 2, NULL, SNIB_EINVAL);
    snib_lock_options options;
    for (int bit = 0; bit < 32; bit++) {
        snib_lock_options_init(&options, sizeof options);
        options.flags = 1u << bit;
        if (options.flags != SNIB_LOCK_NO_QUARANTINE)
            NO_QUORUM(locks, 3, &options, SNIB_EOPTION);
    }
    snib_lock_info_data info = {.size = sizeof info};
    REFUSED(snib_lock_info(quorum, &info, err), SNIB_ENOTSUP);
    REFUSED(snib_lock_force_release(quorum, err), SNIB_ENOTSUP);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        snib_lock_free(bad[i]);
    for (int i = 0; i < 16; i++)
        snib_client_free(clients[i]);
    snib_client_free(twin);
}

/* ---- Clusters -------------------------------------------------------------------------------- */

static bool cluster_is_up(struct server *node)
{
    redisReply *reply = server_command(node, "CLUSTER INFO");
    bool up = strstr(reply->str, "cluster_state:ok") != NULL;
    freeReplyObject(reply);
    return up;
}

/* Redisson's latches cannot have a hash tag in a cluster, so neither can Snib's. */
static void latch_with_a_tag(void **state)
{
    (void)state;
    struct server node;
    char port[8], bus[8], url[64];
    snprintf(port, sizeof port, "%d", free_port());
    snprintf(bus, sizeof bus, "%d", free_port());
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%s", port);
    server_start(&node, "--cluster-enabled", "yes", "--port", port, "--cluster-port", bus, NULL);
    server_do(&node, "CLUSTER ADDSLOTSRANGE 0 16383");
    AWAIT(cluster_is_up(&node), 5000);
    snib_client *here = must_open(url);
    snib_lock *tagged = NULL, *plain = must_lock_kind(here, SNIB_LATCH, "latch");
    REFUSED(snib_lock_new(here, SNIB_LATCH, "{tenant}latch", 13, NULL, &tagged, err), SNIB_ENAME);
    assert_int_equal(must_count(SNIB_LATCH, plain, SNIB_COUNT_INIT, 1), 1);
    EXPECT(snib_latch_wait(plain, 0, err), SNIB_BUSY);
    assert_int_equal(must_count(SNIB_LATCH, plain, SNIB_COUNT_DOWN, 0), 0);
    EXPECT(snib_latch_wait(plain, 0, err), SNIB_OK);
    snib_lock_free(plain);
    snib_client_free(here);
    assert_true(server_is_empty(&node));
    server_stop(&node);
}

/* None of the above has left a trace. */
static void nothing_changed(void **state)
{
    (void)state;
    assert_true(server_is_empty(&server));
    AWAIT(server_channels(&server) == 0, 1000);
    snib_event event;
    assert_int_equal(snib_queue_drain(queue, &event, 1, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_permits),
        cmocka_unit_test(waits_and_outputs),
        cmocka_unit_test(queues_of_others),
        cmocka_unit_test(kinds_of_others),
        cmocka_unit_test(counts),
        cmocka_unit_test(numbers_that_overflow),
        cmocka_unit_test(more_permits_than_there_are),
        cmocka_unit_test(options_of_kinds),
        cmocka_unit_test(describing),
        cmocka_unit_test(members_of_multi),
        cmocka_unit_test(members_of_quorum),
        cmocka_unit_test(latch_with_a_tag),
        cmocka_unit_test(nothing_changed),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
