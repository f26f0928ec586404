/* queue.c - what a queue reports, in which order, and when its descriptor is readable. */
#include "unit.h"

#include "api/objects.h"
#include "driver/sys.h"
#include "engine/internal.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MANY = 20 };

static snib_client *client_handle;
static snib_queue *queue_handle;
static struct snib__queue *queue;
static struct snib__hold losses[MANY];

/* A client that never connects, and its queue with a log. */
static int start(void **state)
{
    (void)state;
    snib_error error;
    int32_t code;
    if (snib_client_open("unix:///nowhere", NULL, &client_handle, &error) != SNIB_OK ||
        snib_queue_new(client_handle, &queue_handle, &error) != SNIB_OK ||
        snib_client_log(client_handle, queue_handle, SNIB_LOG_INFO, &error) != SNIB_OK)
        return -1;
    queue = snib__queue_enter(queue_handle, &error, &code);
    if (!queue)
        return -1;
    snib__handle_put(queue_handle);
    struct snib__gate *gate = snib__gate_get(queue->client->driver.engine, SNIB_MUTEX, "m", 1);
    for (int i = 0; i < MANY; i++)
        losses[i] =
            (struct snib__hold){.gate = gate, .token = (uint64_t)i, .reason = SNIB_REASON_EXPIRED};
    return 0;
}

static int stop(void **state)
{
    (void)state;
    while (queue->lost)
        snib__queue_drop_lost(queue, queue->lost);
    snib__gate_put(queue->client->driver.engine, losses[0].gate);
    snib_queue_free(queue_handle);
    snib_client_free(client_handle);
    return 0;
}

static void push_lost(int i)
{
    struct snib__wakes wakes;
    snib__wakes_begin(&wakes);
    snib__queue_push_lost(queue, &losses[i], &wakes);
    snib__driver_ring(&wakes);
}

static void push_record(int i)
{
    char text[32];
    struct snib__wakes wakes;
    snib__wakes_begin(&wakes);
    snprintf(text, sizeof text, "record %d", i);
    snib__queue_push_log(queue, SNIB_LOG_INFO, text, &wakes);
    snib__driver_ring(&wakes);
}

static snib_event next(void)
{
    snib_event event = {.size = sizeof event};
    assert_int_equal(snib_queue_drain(queue_handle, &event, 1, NULL), 1);
    return event;
}

static void expect_lost(int i)
{
    snib_event event = next();
    assert_int_equal(event.size, sizeof event);
    assert_int_equal(event.kind, SNIB_EVENT_LOST);
    assert_int_equal(event.code, SNIB_LOST);
    assert_int_equal(event.reason, SNIB_REASON_EXPIRED);
    assert_int_equal(event.token, i);
    assert_string_equal(event.text, "mutex \"m\" was lost (expired): stop working under it");
}

static void expect_nothing(void)
{
    snib_event event = {.size = sizeof event};
    assert_int_equal(snib_queue_drain(queue_handle, &event, 1, NULL), 0);
}

static bool readable(void)
{
    struct pollfd ready = {.fd = snib_queue_fd(queue_handle, NULL), .events = POLLIN};
    return poll(&ready, 1, 0) == 1;
}

/* In the order in which they occurred, whatever is removed from their list meanwhile. */
static void losses_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        push_lost(i);
        expect_lost(i);
        expect_nothing();
    }
    for (int dropped = 0; dropped < 4; dropped++) { /* the holds are freed before the report */
        for (int i = 0; i < 4; i++)
            push_lost(i);
        snib__queue_drop_lost(queue, &losses[dropped]);
        push_lost(4);
        for (int i = 0; i < 5; i++)
            if (i != dropped)
                expect_lost(i);
        expect_nothing();
    }
    push_lost(0);
    snib__queue_drop_lost(queue, &losses[0]);
    push_lost(1);
    expect_lost(1);
    expect_nothing();
}

/* Records that are not fetched make room for later ones; the number dropped is reported once. */
static void dropped_records(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SNIB__LOG_MAX + 10; i++)
            push_record(i);
        for (int i = 0; i < SNIB__LOG_MAX; i++) {
            char text[32];
            snprintf(text, sizeof text, "record %d", i + 10);
            snib_event event = next();
            assert_int_equal(event.kind, SNIB_EVENT_LOG);
            assert_int_equal(event.reason, SNIB_LOG_INFO);
            assert_string_equal(event.text, text);
            assert_int_equal(event.count, i == 0 ? 10 : 0);
        }
        expect_nothing();
    }
}

/* The descriptor is readable as long as there is an event. */
static void descriptor(void **state)
{
    (void)state;
    assert_false(readable());
    for (int round = 0; round < 3; round++) {
        push_lost(0);
        push_record(0);
        push_lost(1);
        for (int i = 0; i < 3; i++) {
            assert_true(readable());
            next();
        }
        assert_false(readable());
        expect_nothing();
    }
}

/* More queues than one list of wake-ups has room for: each is rung, and once. */
static void many_bells(void **state)
{
    (void)state;
    struct snib__bell *bells[MANY];
    struct snib__wakes wakes;
    snib__wakes_begin(&wakes);
    for (int i = 0; i < MANY; i++)
        assert_non_null(bells[i] = snib__bell_new());
    for (int i = 0; i < 2 * MANY; i++)
        snib__wake_bell(&queue->client->driver, &wakes, bells[i % MANY]);
    snib__driver_ring(&wakes);
    for (int i = 0; i < MANY; i++) {
        struct pollfd ready = {.fd = bells[i]->fd, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, 0), 1);
        assert_int_equal(atomic_load(&bells[i]->refs), 1);
        snib__bell_put(bells[i]);
    }
}

/* A freed queue gets no more records. */
static void freed_with_the_log(void **state)
{
    (void)state;
    snib_queue *other;
    snib_error error;
    assert_int_equal(snib_queue_new(client_handle, &other, &error), SNIB_OK);
    assert_int_equal(snib_client_log(client_handle, other, SNIB_LOG_INFO, &error), SNIB_OK);
    assert_ptr_not_equal(queue->client->log_queue, queue);
    snib_queue_free(other);
    assert_null(queue->client->log_queue);
}

static void *consume(void *arg)
{
    int *code = arg;
    snib_event event = {.size = sizeof event};
    *code = snib_queue_wait(queue_handle, &event, 1, -1, NULL);
    return NULL;
}

/* A consumer that sleeps is not left behind with the queue. */
static void freed_under_a_consumer(void **state)
{
    (void)state;
    pthread_t thread;
    int code = -1;
    snib_queue *before = queue_handle;
    struct snib__queue *first = queue;
    assert_int_equal(snib_queue_new(client_handle, &queue_handle, NULL), SNIB_OK);
    int32_t unused;
    queue = snib__queue_enter(queue_handle, NULL, &unused);
    assert_non_null(queue);
    assert_int_equal(pthread_create(&thread, NULL, consume, &code), 0);
    while (!queue->busy)
        sched_yield();
    snib_queue_free(queue_handle);
    struct timespec late;
    clock_gettime(CLOCK_REALTIME, &late);
    late.tv_sec += 60;
    assert_int_equal(pthread_timedjoin_np(thread, NULL, &late), 0);
    assert_int_equal(code, 0);
    snib__handle_put(queue_handle);
    queue_handle = before;
    queue = first;
}

/* A loss that no thread has told yet, because the one that found it receives more first, is told to nobody when the
 * queue is freed meanwhile. */
static void freed_before_a_loss_is_told(void **state)
{
    (void)state;
    struct snib__driver *driver = &queue->client->driver;
    struct snib__engine *engine = driver->engine;
    snib_queue *other;
    int32_t code;
    assert_int_equal(snib_queue_new(client_handle, &other, NULL), SNIB_OK);
    snib__sys_lock(&driver->mutex);
    struct snib__hold *hold = snib__hold_new(engine, losses[0].gate);
    hold->gate->active = hold;
    hold->lease_ms = 60000;
    hold->flags |= SNIB__HANDED;
    hold->sink = snib__queue_enter(other, NULL, &code);
    hold->tell = 1;
    snib__hold_granted(engine, hold, snib__now(), snib__now());
    snib__hold_lose(engine, hold, SNIB_REASON_DELETED, snib__now());
    snib__sys_unlock(&driver->mutex);
    snib__handle_put(other);
    snib_queue_free(other);
    assert_int_equal(hold->tell, 0);
    snib__driver_enter(driver);
    snib__hold_drop(engine, hold, snib__now());
    snib__driver_leave(driver);
}

struct op_waiter {
    snib_op *op;
    snib_event event;
    int code;
};

static void *wait_for_op(void *argument)
{
    struct op_waiter *waiter = argument;
    waiter->code = snib_op_wait(waiter->op, -1, &waiter->event, NULL);
    return NULL;
}

/* An operation that is freed while a thread waits for it is cancelled all the same, and that thread gets the result. */
static void freed_while_awaited(void **state)
{
    (void)state;
    struct op_waiter waiter = {.event = {.size = sizeof waiter.event}};
    struct snib__driver *driver = &queue->client->driver;
    snib_lock *lock;
    pthread_t thread;
    assert_int_equal(snib_lock_new(client_handle, SNIB_MUTEX, "n", 1, NULL, &lock, NULL), SNIB_OK);
    assert_int_equal(snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &waiter.op, NULL), SNIB_OK);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_op, &waiter), 0);
    for (bool waits = false; !waits; sched_yield()) {
        snib__driver_enter(driver);
        waits = driver->waiters != NULL;
        snib__driver_leave(driver);
    }
    snib_op_free(waiter.op);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waiter.code, SNIB_OK);
    assert_int_equal(waiter.event.code, SNIB_CANCELLED);
    assert_int_equal(snib_op_cancel(waiter.op), SNIB_EHANDLE);
    snib_lock_free(lock);
}

/* However much room the caller has: at most as many at a time as the queue can keep to be freed. */
static void large_drain(void **state)
{
    (void)state;
    enum { OPS = 300, ROOM = 400 };
    static snib_op *ops[OPS];
    static snib_event events[ROOM];
    snib_lock *lock;
    assert_int_equal(snib_client_log(client_handle, queue_handle, SNIB_LOG_NONE, NULL), SNIB_OK);
    assert_int_equal(snib_lock_new(client_handle, SNIB_MUTEX, "n", 1, NULL, &lock, NULL), SNIB_OK);
    for (int i = 0; i < OPS; i++)
        assert_int_equal(
            snib_lock_acquire_submit(lock, 0, -1, queue_handle, (uint64_t)i, &ops[i], NULL),
            SNIB_OK);
    for (int i = 0; i < OPS; i++)
        assert_int_equal(snib_op_cancel(ops[i]), SNIB_OK);
    for (int n = 0, got; n < OPS; n += got) {
        for (int i = 0; i < ROOM; i++)
            events[i].size = sizeof events[i];
        got = snib_queue_drain(queue_handle, events, ROOM, NULL);
        assert_in_range(got, 1, 64);
        for (int i = 0; i < got; i++) {
            assert_int_equal(events[i].token, n + i);
            assert_int_equal(events[i].code, SNIB_CANCELLED);
            assert_int_equal(snib_op_cancel(ops[n + i]), SNIB_EHANDLE);
        }
    }
    snib_lock_free(lock);
}

/* Whatever happens in the client until it is answered. */
static void question_is_told_once(void **state)
{
    (void)state;
    snib_client_options o;
    snib_client *asking;
    snib_queue *asked;
    snib_event event = {.size = sizeof event};
    int32_t code;
    snib_client_options_init(&o, sizeof o);
    o.ask_credentials = 1;
    assert_int_equal(snib_client_open("unix:///nowhere", &o, &asking, NULL), SNIB_OK);
    assert_int_equal(snib_queue_new(asking, &asked, NULL), SNIB_OK);
    assert_int_equal(snib_client_credentials(asking, asked, NULL), SNIB_OK);
    struct snib__driver *driver = &snib__client_enter(asking, NULL, &code)->driver;
    snib__driver_enter(driver);
    struct snib__question *question = snib__login_ask(&driver->logins);
    snib__driver_leave(driver);
    assert_int_equal(snib_queue_drain(asked, &event, 1, NULL), 1);
    assert_int_equal(event.kind, SNIB_EVENT_CREDENTIALS);
    assert_int_equal(event.token, 1);
    snib__driver_enter(driver);
    snib__driver_leave(driver);
    assert_int_equal(snib_queue_drain(asked, &event, 1, NULL), 0);
    snib__driver_enter(driver);
    snib__login_drop(&driver->logins, &question);
    snib__driver_leave(driver);
    snib__handle_put(asking);
    snib_queue_free(asked);
    snib_client_free(asking);
}

/* A queue is freed that was to be asked for credentials: the question then has no answer, and its
 * waiter must not wait longer. */
static void freed_with_the_question(void **state)
{
    (void)state;
    snib_client_options o;
    snib_client *asking;
    snib_queue *asked;
    int32_t code;
    snib_client_options_init(&o, sizeof o);
    o.ask_credentials = 1;
    assert_int_equal(snib_client_open("unix:///nowhere", &o, &asking, NULL), SNIB_OK);
    assert_int_equal(snib_queue_new(asking, &asked, NULL), SNIB_OK);
    assert_int_equal(snib_client_credentials(asking, asked, NULL), SNIB_OK);
    struct snib__client *client = snib__client_enter(asking, NULL, &code);
    struct snib__logins *logins = &client->driver.logins;
    snib__driver_enter(&client->driver);
    struct snib__question *question = snib__login_ask(logins);
    snib__driver_leave(&client->driver);
    assert_false(snib__login_done(question));
    snib_queue_free(asked);
    assert_true(snib__login_done(question));
    const char *username, *password, *why;
    int os_error;
    assert_false(snib__login_result(question, &username, &password, &why, &os_error));
    assert_string_equal(why, "there are no credentials");
    snib__driver_enter(&client->driver);
    snib__login_drop(logins, &question);
    snib__driver_leave(&client->driver);
    snib__handle_put(asking);
    snib_client_free(asking);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(losses_in_order, start, stop),
        cmocka_unit_test_setup_teardown(dropped_records, start, stop),
        cmocka_unit_test_setup_teardown(descriptor, start, stop),
        cmocka_unit_test_setup_teardown(many_bells, start, stop),
        cmocka_unit_test_setup_teardown(freed_with_the_log, start, stop),
        cmocka_unit_test_setup_teardown(freed_under_a_consumer, start, stop),
        cmocka_unit_test_setup_teardown(freed_before_a_loss_is_told, start, stop),
        cmocka_unit_test_setup_teardown(freed_while_awaited, start, stop),
        cmocka_unit_test_setup_teardown(large_drain, start, stop),
        cmocka_unit_test(question_is_told_once),
        cmocka_unit_test(freed_with_the_question),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
