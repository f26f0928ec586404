/* references.c - a refused call keeps no reference to its arguments: all that is freed then is
 * gone. */
#include "left.h"

#include "snib.h"

#include <string.h>

/* Queues have descriptors, which are closed with the last reference. */
static int things(void)
{
    return clients_alive + descriptors();
}

/* Two clients that never connect: calls go to one, with the other's queue. */
static struct world {
    snib_client *client, *other;
    snib_queue *theirs;
    snib_lock *mutex, *permits, *semaphore, *latch;
    snib_op *op;
    snib_hold *hold;
} w;

static snib_lock *lock_of(int32_t kind)
{
    snib_lock *lock = NULL;
    assert_int_equal(snib_lock_new(w.client, kind, "m", 1, NULL, &lock, NULL), SNIB_OK);
    return lock;
}

static void begin(void)
{
    snib_client_options o;
    memset(&w, 0, sizeof w);
    snib_client_options_init(&o, sizeof o);
    o.ask_credentials = 1;
    assert_int_equal(snib_client_open("unix:///nowhere", &o, &w.client, NULL), SNIB_OK);
    assert_int_equal(snib_client_open("unix:///nowhere", NULL, &w.other, NULL), SNIB_OK);
    assert_int_equal(snib_queue_new(w.other, &w.theirs, NULL), SNIB_OK);
    w.mutex = lock_of(SNIB_MUTEX);
    w.permits = lock_of(SNIB_PERMITS);
    w.semaphore = lock_of(SNIB_SEMAPHORE);
    w.latch = lock_of(SNIB_LATCH);
}

static void end(void)
{
    snib_lock_free(w.mutex);
    snib_lock_free(w.permits);
    snib_lock_free(w.semaphore);
    snib_lock_free(w.latch);
    snib_queue_free(w.theirs);
    snib_client_free(w.client);
    snib_client_free(w.other);
}

/* ---- Each call that takes a queue ----------------------------------------------------------------- */

static int credentials(void)
{
    return snib_client_credentials(w.client, w.theirs, NULL);
}

static int record(void)
{
    return snib_client_log(w.client, w.theirs, SNIB_LOG_INFO, NULL);
}

static int ping(void)
{
    return snib_client_ping_submit(w.client, -1, w.theirs, 0, &w.op, NULL);
}

static int list(void)
{
    return snib_client_list_submit(w.client, "*", 1, 0, w.theirs, 0, &w.op, NULL);
}

static int describe(void)
{
    return snib_client_describe_submit(w.client, "m", 1, w.theirs, 0, &w.op, NULL);
}

static int identity(void)
{
    return snib_client_identity_submit(w.client, "o", 1, w.theirs, 0, &w.op, NULL);
}

static int acquire(void)
{
    return snib_lock_acquire_submit(w.mutex, 0, -1, w.theirs, 0, &w.op, NULL);
}

static int acquire_begin(void)
{
    return snib_lock_acquire_begin(w.mutex, 0, -1, 0, w.theirs, 0, &w.hold, &w.op, NULL);
}

static int permits(void)
{
    return snib_permits_acquire_submit(w.permits, 1, -1, w.theirs, 0, &w.op, NULL);
}

static int semaphore(void)
{
    return snib_semaphore_acquire_submit(w.semaphore, 1, -1, w.theirs, 0, &w.op, NULL);
}

static int latch(void)
{
    return snib_latch_wait_submit(w.latch, -1, w.theirs, 0, &w.op, NULL);
}

static int info(void)
{
    return snib_lock_info_submit(w.mutex, w.theirs, 0, &w.op, NULL);
}

static int force(void)
{
    return snib_lock_force_release_submit(w.mutex, w.theirs, 0, &w.op, NULL);
}

static int count(void)
{
    return snib_permits_count_submit(w.permits, SNIB_COUNT_GET, 0, w.theirs, 0, &w.op, NULL);
}

static const struct call {
    const char *name;
    int (*make)(void);
} calls[] = {
    {"credentials", credentials},
    {"log", record},
    {"ping", ping},
    {"list", list},
    {"describe", describe},
    {"identity", identity},
    {"acquire", acquire},
    {"acquire_begin", acquire_begin},
    {"permits", permits},
    {"semaphore", semaphore},
    {"latch", latch},
    {"info", info},
    {"force", force},
    {"count", count},
};

static void expect_gone(const struct call *call, int before)
{
    int left = things() - before;
    if (left)
        fail_msg("%s keeps %d clients or descriptors", call->name, left);
}

static void queue_of_another(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(calls); i++) {
        int before = things();
        begin();
        if (calls[i].make() != SNIB_EINVAL)
            fail_msg("%s takes another client's queue", calls[i].name);
        assert_true(!w.op && !w.hold);
        end();
        expect_gone(&calls[i], before);
    }
}

static void queue_that_was_freed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(calls); i++) {
        int before = things();
        begin();
        snib_queue_free(w.theirs);
        if (calls[i].make() != SNIB_EHANDLE)
            fail_msg("%s takes a queue that is freed", calls[i].name);
        end();
        expect_gone(&calls[i], before);
    }
}

static void subject_that_was_freed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(calls); i++) {
        int before = things();
        begin();
        snib_lock_free(w.mutex);
        snib_lock_free(w.permits);
        snib_lock_free(w.semaphore);
        snib_lock_free(w.latch);
        snib_client_free(w.client);
        if (calls[i].make() != SNIB_EHANDLE)
            fail_msg("%s goes on without its subject", calls[i].name);
        end();
        expect_gone(&calls[i], before);
    }
}

/* Locks, and locks of locks, that were refused. */
static void locks_that_are_none(void **state)
{
    (void)state;
    static const struct call naming = {"naming a lock", NULL}, joining = {"joining locks", NULL};
    int before = things();
    begin();
    snib_lock *lock = NULL;
    assert_int_equal(snib_lock_new(w.client, 77, "m", 1, NULL, &lock, NULL), SNIB_ENOTSUP);
    assert_int_equal(snib_lock_new(w.client, SNIB_MUTEX, "", 0, NULL, &lock, NULL), SNIB_ENAME);
    assert_int_equal(snib_lock_new(w.client, SNIB_MUTEX, "m", 1, NULL, NULL, NULL), SNIB_EINVAL);
    end();
    expect_gone(&naming, before);
    begin();
    snib_lock *members[3] = {w.mutex, w.latch, w.mutex};
    assert_int_equal(snib_multi_new(members, 2, NULL, &lock, NULL), SNIB_EINVAL);
    assert_int_equal(snib_multi_new(members + 2, 1, NULL, NULL, NULL), SNIB_EINVAL);
    assert_int_equal(snib_quorum_new(members, 3, NULL, &lock, NULL), SNIB_EINVAL);
    members[1] = w.mutex; /* listed twice */
    assert_int_equal(snib_multi_new(members, 2, NULL, &lock, NULL), SNIB_EINVAL);
    snib_lock_free(w.latch); /* the last of them is invalid */
    members[1] = w.permits;
    members[2] = w.latch;
    assert_int_equal(snib_multi_new(members, 3, NULL, &lock, NULL), SNIB_EHANDLE);
    assert_null(lock);
    end();
    expect_gone(&joining, before);
}

/* Of a closed client no descriptor is left, although locks keep it in memory; whether its thread ever ran or not. */
static void clients_that_are_closed(void **state)
{
    (void)state;
    int before = descriptors();
    begin();
    assert_int_equal(snib_client_ping_submit(w.other, -1, w.theirs, 0, &w.op, NULL), SNIB_OK);
    snib_queue_free(w.theirs);
    assert_int_equal(snib_client_close(w.client, 0, NULL), SNIB_OK);
    assert_int_equal(snib_client_close(w.other, 0, NULL), SNIB_OK);
    assert_int_equal(descriptors(), before);
    assert_int_equal(clients_alive, 2);
    assert_int_equal(snib_client_close(w.other, 0, NULL), SNIB_OK);
    assert_int_equal(snib_client_ping(w.other, 0, NULL), SNIB_ECLOSED);
    assert_int_equal(snib_lock_acquire(w.mutex, 0, 0, &w.hold, NULL), SNIB_ECLOSED);
    end();
    assert_int_equal(clients_alive, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_of_another),        cmocka_unit_test(queue_that_was_freed),
        cmocka_unit_test(subject_that_was_freed),  cmocka_unit_test(locks_that_are_none),
        cmocka_unit_test(clients_that_are_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
