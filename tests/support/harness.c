/* harness.c - time, counts and short forms of snib.h for tests. */
#include "support.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t now_ms(void)
{
    return now_ns() / 1000000;
}

void nap_us(int64_t us)
{
    struct timespec rest = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
        ;
}

int64_t patient_ms(int64_t limit_ms)
{
    int64_t more_ms = 9 * limit_ms;
    return limit_ms + (more_ms < 14000 ? more_ms : 14000);
}

/* SNIB_TEST_ONLY=name: run only that test of the program. */
__attribute__((constructor)) static void run_only(void)
{
    const char *name = getenv("SNIB_TEST_ONLY");
    if (name && *name)
        cmocka_set_test_filter(name);
}

int count_of(int all, int by_default)
{
    const char *value = getenv("SNIB_TEST_ALL");
    return value && *value && *value != '0' ? all : by_default;
}

void expect_code_at(int got, int want, const snib_error *err, const char *file, int line)
{
    if (got == want)
        return;
    print_error("%s, expected %s: \"%s\"\n", snib_code_name(got), snib_code_name(want), err->text);
    _fail(file, line);
}

snib_client *must_open_recheck(const char *url, int64_t lease_ms, int64_t recheck_ms)
{
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    options.recheck_ms = recheck_ms;
    options.try_timeout_ms = patient_ms(1000); /* a wait of 0 fails only if it is busy */
    snib_client *client = NULL;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

snib_client *must_open_lease(const char *url, int64_t lease_ms)
{
    return must_open_recheck(url, lease_ms, 0);
}

snib_client *must_open(const char *url)
{
    return must_open_lease(url, 0);
}

snib_lock *must_lock_lease(snib_client *client, const char *name, int64_t lease_ms,
                           int64_t max_hold_ms)
{
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    options.max_hold_ms = max_hold_ms;
    return must_lock_with(client, SNIB_MUTEX, name, &options);
}

snib_lock *must_lock_with(snib_client *client, int32_t kind, const char *name,
                          const snib_lock_options *options)
{
    snib_lock *lock = NULL;
    EXPECT(snib_lock_new(client, kind, name, strlen(name), options, &lock, err), SNIB_OK);
    return lock;
}

snib_lock *must_lock_kind(snib_client *client, int32_t kind, const char *name)
{
    return must_lock_with(client, kind, name, NULL);
}

snib_lock *must_lock(snib_client *client, const char *name)
{
    return must_lock_kind(client, SNIB_MUTEX, name);
}

/* The shortest patience of a single try that a test sets, less what a clock may be ahead. */
enum { PATIENCE_MS = 450 };

snib_hold *must_acquire_as(snib_lock *lock, uint64_t owner, int64_t wait_ms)
{
    snib_hold *hold = NULL;
    snib_error error = {0};
    int64_t wait = wait_ms > 0 ? patient_ms(wait_ms) : wait_ms, end = now_ms() + patient_ms(5000);
    int code;
    int64_t asked;
    do /* the patience of one try may be too short for a slow machine, if it was made use of */
        asked = now_ms(), code = snib_lock_acquire(lock, owner, wait, &hold, &error);
    while (wait_ms == 0 && (code == SNIB_EUNREACHABLE || code == SNIB_ECONNECT) &&
           now_ms() - asked >= PATIENCE_MS && now_ms() < end);
    expect_code_at(code, SNIB_OK, &error, __FILE__, __LINE__);
    return hold;
}

snib_hold *must_acquire(snib_lock *lock, int64_t wait_ms)
{
    return must_acquire_as(lock, 0, wait_ms);
}

int64_t must_count(int32_t kind, snib_lock *lock, int32_t what, int64_t n)
{
    int64_t value = -1;
    EXPECT(kind == SNIB_LATCH       ? snib_latch_count(lock, what, n, &value, err)
           : kind == SNIB_SEMAPHORE ? snib_semaphore_count(lock, what, n, &value, err)
                                    : snib_permits_count(lock, what, n, &value, err),
           SNIB_OK);
    return value;
}

void must_be_valid(snib_hold *hold, int64_t limit_ms)
{
    int32_t reason = SNIB_REASON_NONE;
    int state;
    int64_t end = now_ms() + patient_ms(limit_ms);
    while ((state = snib_hold_state(hold, &reason)) != SNIB_HOLD_VALID) {
        if (state != SNIB_HOLD_AT_RISK)
            fail_msg("a hold that must be valid is over: %s", snib_reason_text(reason));
        if (now_ms() > end)
            fail_msg("a hold is still at risk after %d ms", (int)limit_ms);
        nap_us(500);
    }
}

void must_release(snib_hold *hold)
{
    EXPECT(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
}

snib_client_stats_data must_stats(snib_client *client)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    EXPECT(snib_client_stats(client, &stats, err), SNIB_OK);
    return stats;
}

snib_queue *must_queue(snib_client *client)
{
    snib_queue *queue = NULL;
    EXPECT(snib_queue_new(client, &queue, err), SNIB_OK);
    return queue;
}

void (*before_silence)(void);

/* Alternate between the two ways of waiting.  An event found only after the limit has passed woke
 * no waiter. */
snib_event must_event(snib_queue *queue, int64_t limit_ms)
{
    static _Atomic unsigned turns;
    bool by_descriptor = turns++ % 2 == 0;
    snib_event event = {.size = sizeof event};
    snib_error error = {.code = 0};
    int64_t end = now_ms() + patient_ms(limit_ms);
    int got;
    do {
        int64_t left = end - now_ms();
        left = left > 0 ? left : 0;
        if (by_descriptor) {
            struct pollfd fd = {.fd = snib_queue_fd(queue, &error), .events = POLLIN};
            (void)poll(&fd, 1, (int)left);
        }
        got = snib_queue_wait(queue, &event, 1, by_descriptor ? 0 : left, &error);
    } while (got == 0 && now_ms() < end);
    if (got != 1 && before_silence)
        before_silence();
    if (got != 1)
        fail_msg("no event within %d ms: %d \"%s\"", (int)limit_ms, got, error.text);
    if (now_ms() >= end)
        fail_msg("an event was there and woke no thread within %d ms", (int)limit_ms);
    return event;
}

snib_event must_end(snib_op *op, int64_t limit_ms)
{
    snib_event event = {.size = sizeof event};
    EXPECT(snib_op_wait(op, patient_ms(limit_ms), &event, err), SNIB_OK);
    return event;
}

void must_have_its_turn(snib_client *const clients[3], const char *name)
{
    enum { PATIENCE = 20, LIMIT_MS = 30000, LAST = 2 };
    snib_lock *locks[3];
    snib_queue *queues[3];
    snib_event event = {.size = sizeof event};
    for (int i = 0; i < 3; i++) {
        locks[i] = must_lock_kind(clients[i], SNIB_FAIR, name);
        queues[i] = must_queue(clients[i]);
    }
    snib_hold *hold = must_acquire(locks[0], LIMIT_MS);
    EXPECT(snib_lock_acquire_submit(locks[LAST], 0, -1, queues[LAST], LAST, NULL, err), SNIB_OK);
    AWAIT(must_stats(clients[LAST]).rechecks > 0, LIMIT_MS);
    for (uint64_t next = 1; event.token != LAST; next = 1 - next) {
        if (must_stats(clients[LAST]).rechecks > PATIENCE)
            fail_msg("a waiter has asked %d times, and is still passed over", PATIENCE);
        EXPECT(snib_lock_acquire_submit(locks[next], 0, -1, queues[next], next, NULL, err),
               SNIB_OK);
        nap_us(20000); /* it subscribes */
        must_release(hold);
        AWAIT(snib_queue_drain(queues[next], &event, 1, NULL) == 1 ||
                  snib_queue_drain(queues[LAST], &event, 1, NULL) == 1,
              LIMIT_MS);
        assert_int_equal(event.code, SNIB_OK);
        hold = event.hold;
    }
    must_release(hold);
}

void expect_held_by(struct server *server, const char *name, const char *owner)
{
    redisReply *reply = server_command(server, "HGETALL %s", name);
    assert_int_equal(reply->elements, 2);
    assert_string_equal(reply->element[0]->str, owner);
    assert_string_equal(reply->element[1]->str, "1");
    freeReplyObject(reply);
    assert_true(server_integer(server, "PTTL %s", name) > 0);
}

void expect_free(struct server *server, const char *name)
{
    assert_int_equal(server_integer(server, "EXISTS %s", name), 0);
}
