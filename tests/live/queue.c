/* queue.c - operations without a blocked thread: each successful submit gives exactly one event. */
#include "../support/support.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

struct world {
    struct server server;
    snib_client *client, *other;
    snib_queue *queue;
    snib_lock *lock, *rival;
};

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    world.client = must_open(world.server.url);
    world.other = must_open(world.server.url);
    world.queue = must_queue(world.client);
    world.lock = must_lock(world.client, "queue");
    world.rival = must_lock(world.other, "queue");
    *state = &world;
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    snib_client_free(world->client);
    snib_client_free(world->other);
    server_stop(&world->server);
    return 0;
}

/* The one event of a token, and none after it. */
static snib_event expect_done(struct world *world, uint64_t token, int code)
{
    snib_event event = must_event(world->queue, 3000), more;
    assert_int_equal(event.kind, SNIB_EVENT_DONE);
    assert_int_equal(event.token, token);
    if (event.code != code)
        fail_msg("%s instead of %s: %s", snib_code_name(event.code), snib_code_name(code),
                 event.text);
    assert_int_equal(snib_queue_drain(world->queue, &more, 1, NULL), 0);
    return event;
}

static void submit(struct world *world, uint64_t owner, int64_t wait_ms, uint64_t token)
{
    EXPECT(snib_lock_acquire_submit(world->lock, owner, wait_ms, world->queue, token, NULL, err),
           SNIB_OK);
}

static void release_submit(struct world *world, snib_hold *hold, uint64_t token)
{
    EXPECT(snib_hold_release_submit(hold, world->queue, token, NULL, err), SNIB_OK);
}

static void one_event_each(void **state)
{
    struct world *world = *state;
    submit(world, 0, -1, 1);
    snib_hold *hold = expect_done(world, 1, SNIB_OK).hold;
    submit(world, 0, 0, 2);
    expect_done(world, 2, SNIB_BUSY);
    submit(world, 0, 30, 3);
    expect_done(world, 3, SNIB_TIMEDOUT);
    EXPECT(snib_lock_info_submit(world->lock, world->queue, 4, NULL, err), SNIB_OK);
    snib_event info = expect_done(world, 4, SNIB_OK);
    assert_true(info.held && info.mine && info.count == 1 && info.remaining_ms > 0);
    EXPECT(snib_client_ping_submit(world->client, -1, world->queue, 5, NULL, err), SNIB_OK);
    expect_done(world, 5, SNIB_OK);
    release_submit(world, hold, 6);
    expect_done(world, 6, SNIB_OK);
    EXPECT(snib_hold_release_submit(hold, world->queue, 7, NULL, err), SNIB_NOT_HELD);
    EXPECT(snib_lock_force_release_submit(world->lock, world->queue, 8, NULL, err), SNIB_OK);
    expect_done(world, 8, SNIB_NOT_HELD);
    snib_hold_free(hold);
}

/* Queries about names: the texts come with the event, and unfetched ones are freed with it. */
static void texts(void **state)
{
    struct world *world = *state;
    server_do(&world->server, "HSET %b 0123abcd-0-0-0-0:1 1", "na\xff\nme", (size_t)6);
    submit(world, 0, -1, 1);
    snib_hold *hold = expect_done(world, 1, SNIB_OK).hold;
    uint64_t cursor = 0, found = 0;
    do {
        EXPECT(snib_client_list_submit(world->client, NULL, 0, cursor, world->queue, 2, NULL, err),
               SNIB_OK);
        snib_texts *names = expect_done(world, 2, SNIB_OK).texts;
        const char *name = names->text;
        for (uint32_t i = 0; i < names->count; i++, name += strlen(name) + 1)
            found |= strcmp(name, "queue") == 0 ? 1 : strcmp(name, "na??me") == 0 ? 2 : 4;
        assert_int_equal(name - names->text, names->used);
        cursor = names->cursor;
        snib_texts_free(names);
    } while (cursor != 0);
    assert_int_equal(found, 3);
    EXPECT(snib_client_describe_submit(world->client, "queue", 5, world->queue, 3, NULL, err),
           SNIB_OK);
    snib_texts *lines = expect_done(world, 3, SNIB_OK).texts;
    assert_string_equal(lines->text, "kind mutex");
    assert_true(lines->count >= 3 && lines->cursor == 0);
    snib_texts_free(lines);
    snib_op *op = NULL;
    EXPECT(snib_client_describe_submit(world->client, "queue", 5, NULL, 0, &op, err), SNIB_OK);
    lines = must_end(op, 3000).texts;
    assert_string_equal(lines->text, "kind mutex");
    snib_texts_free(lines);
    EXPECT(snib_client_describe_submit(world->client, "queue", 5, NULL, 0, &op, err), SNIB_OK);
    snib_op_free(op);
    EXPECT(snib_client_describe_submit(world->client, "queue", 5, NULL, 0, NULL, err), SNIB_EINVAL);
    EXPECT(snib_client_describe_submit(world->other, "queue", 5, world->queue, 0, NULL, err),
           SNIB_EINVAL);
    EXPECT(snib_client_list_submit(world->client, NULL, 1, 0, world->queue, 0, NULL, err),
           SNIB_EINVAL);
    EXPECT(snib_client_describe_submit(world->client, "", 0, world->queue, 0, NULL, err),
           SNIB_ENAME);
    for (int i = 0; i < 50; i++)
        EXPECT(snib_client_describe_submit(world->client, "queue", 5, world->queue, 9, NULL, err),
               SNIB_OK);
    struct pollfd ready = {.fd = snib_queue_fd(world->queue, NULL), .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 3000), 1);
    snib_queue_free(world->queue); /* some have completed, some are in flight */
    must_release(hold);
    snib_hold_free(hold);
}

/* Re-entry and its releases complete at once, with an event like all others. */
static void reentry(void **state)
{
    struct world *world = *state;
    submit(world, 9, -1, 1);
    snib_hold *hold = expect_done(world, 1, SNIB_OK).hold;
    submit(world, 9, -1, 2);
    assert_ptr_equal(expect_done(world, 2, SNIB_OK).hold, hold);
    release_submit(world, hold, 3);
    expect_done(world, 3, SNIB_OK);
    assert_int_equal(server_integer(&world->server, "EXISTS queue"), 1);
    snib_op *op = NULL;
    snib_event event = {.size = sizeof event};
    EXPECT(snib_lock_acquire(world->lock, 9, 0, &hold, err), SNIB_OK);
    EXPECT(snib_hold_release_submit(hold, NULL, 0, &op, err), SNIB_OK);
    event = must_end(op, 1000);
    assert_int_equal(event.code, SNIB_OK);
    release_submit(world, hold, 4);
    expect_done(world, 4, SNIB_OK);
    expect_free(&world->server, "queue");
    for (int i = 0; i < 3; i++) /* one free per success */
        snib_hold_free(hold);
    assert_int_equal(snib_hold_state(hold, NULL), SNIB_EHANDLE);
}

static bool readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

/* The descriptor is readable while there are events, however they are drained. */
static void descriptor(void **state)
{
    struct world *world = *state;
    int fd = snib_queue_fd(world->queue, NULL);
    snib_event events[8];
    snib_hold *hold = must_acquire(world->rival, 0);
    assert_false(readable(fd));
    for (uint64_t token = 1; token <= 5; token++)
        submit(world, 0, 20, token);
    AWAIT(must_stats(world->client).timeouts == 5, 2000);
    for (int left = 5; left > 0; left--) {
        AWAIT(readable(fd), 2000); /* it is rung once the client's mutex is released */
        assert_int_equal(snib_queue_drain(world->queue, events, 1, NULL), 1);
        assert_int_equal(events[0].token, 6 - left); /* oldest first */
    }
    snib_queue_drain(world->queue, events, 8, NULL);
    assert_false(readable(fd));
    must_release(hold);
}

struct share {
    snib_queue *queue;
    atomic_int *left;
    int times[300]; /* that the event with this token came */
};

static void *drain_share(void *argument)
{
    struct share *share = argument;
    snib_event events[4];
    while (*share->left > 0) {
        int n = snib_queue_drain(share->queue, events, 4, NULL);
        if (n < 0)
            fail_msg("a drain gave %s", snib_code_name(n));
        for (int i = 0; i < n; i++)
            share->times[events[i].token]++;
        *share->left -= n;
    }
    return NULL;
}

/* Threads that drain at the same time get each event once, and no error. */
static void several_drain(void **state)
{
    struct world *world = *state;
    enum { EVENTS = 300, THREADS = 3 };
    static struct share shares[THREADS];
    atomic_int left = EVENTS;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        shares[i] = (struct share){.queue = world->queue, .left = &left};
        assert_int_equal(pthread_create(&threads[i], NULL, drain_share, &shares[i]), 0);
    }
    for (uint64_t token = 0; token < EVENTS; token++)
        EXPECT(snib_client_ping_submit(world->client, -1, world->queue, token, NULL, err), SNIB_OK);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int token = 0; token < EVENTS; token++)
        assert_int_equal(shares[0].times[token] + shares[1].times[token] + shares[2].times[token],
                         1);
}

/* Grants that were not fetched are given back when the queue is freed. */
static void freed_with_grants(void **state)
{
    struct world *world = *state;
    submit(world, 0, -1, 1);
    submit(world, 0, -1, 2);
    AWAIT(must_stats(world->client).held == 1, 3000); /* though the consumer does not come */
    snib_queue_free(world->queue);
    must_release(must_acquire(world->rival, 3000));
    AWAIT(server_integer(&world->server, "EXISTS queue") == 0, 1000);
    assert_int_equal(must_stats(world->client).waiting, 0);
}

/* begin() completes at once where possible, and returns instead of blocking for long. */
static void begin(void **state)
{
    struct world *world = *state;
    snib_hold *hold = NULL, *second = NULL;
    snib_op *op = NULL;
    snib_event event = {.size = sizeof event};
    EXPECT(snib_lock_acquire_begin(world->lock, 0, -1, 20000, world->queue, 1, &hold, &op, err),
           SNIB_OK);
    int64_t start = now_ms();
    EXPECT(snib_lock_acquire_begin(world->lock, 0, -1, 60000, world->queue, 2, &second, &op, err),
           SNIB_AGAIN); /* with a queue: as soon as it has to wait */
    assert_true(now_ms() - start < 20000);
    EXPECT(snib_hold_release_begin(hold, 20000, NULL, 0, &op, err), SNIB_OK);
    snib_hold_free(hold);
    hold = expect_done(world, 2, SNIB_OK).hold;
    start = now_ms();
    EXPECT(snib_lock_acquire_begin(world->lock, 0, -1, 50, NULL, 0, &second, &op, err), SNIB_AGAIN);
    assert_true(now_ms() - start >= 49);
    EXPECT(snib_op_wait(op, 20, &event, err), SNIB_AGAIN);
    must_release(hold);
    event = must_end(op, 1000);
    must_release(event.hold);
    EXPECT(snib_op_wait(op, 0, &event, err), SNIB_EHANDLE);
}

static void expect_again(int code, const snib_error *error)
{
    assert_int_equal(code, SNIB_AGAIN);
    assert_int_equal(error->code, SNIB_AGAIN);
    assert_string_equal(error->text, snib_code_text(SNIB_AGAIN));
}

/* Whoever prints what a call that did not succeed has said prints no memory that nobody has written to. */
static void not_finished_is_said(void **state)
{
    struct world *world = *state;
    snib_hold *second = NULL;
    snib_op *op = NULL;
    snib_event event;
    snib_hold *hold = must_acquire(world->lock, 1000);
    snib_error begun, waited, extended;
    memset(&begun, 'x', sizeof begun);
    waited = extended = begun;
    expect_again(snib_lock_acquire_begin(world->lock, 0, -1, 1, NULL, 0, &second, &op, &begun),
                 &begun);
    expect_again(snib_op_wait(op, 1, &event, &waited), &waited);
    snib_op_free(op);
    server_pause(&world->server);
    expect_again(snib_hold_extend_begin(hold, 0, 1, NULL, 0, &op, &extended), &extended);
    server_continue(&world->server);
    assert_int_equal(must_end(op, 20000).code, SNIB_OK);
    must_release(hold);
}

/* An idle client with a waiter and a thread in snib_hold_wait() uses no CPU time. */
static void *watch(void *hold)
{
    (void)snib_hold_wait(hold, -1, NULL, NULL);
    return NULL;
}

static void waiting_is_idle(void **state)
{
    struct world *world = *state;
    snib_hold *hold = must_acquire(world->lock, 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, watch, hold), 0);
    submit(world, 0, -1, 1);
    nap_us(100000);
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nap_us(500000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t us = (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
    if (us > 20000)
        fail_msg("%d us of processor time in half a second of waiting", (int)us);
    must_release(hold);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    must_release(expect_done(world, 1, SNIB_OK).hold);
}

/* A hold that its owner was granted twice lasts until both have freed it, even if one result has
 * not been fetched when the other is given up. */
static void same_hold_unfetched(void **state)
{
    struct world *world = *state;
    submit(world, 7, 1000, 1);
    AWAIT(must_stats(world->client).held == 1, 3000);
    snib_hold *again = must_acquire_as(world->lock, 7, 0);
    must_release(again);
    EXPECT(snib_client_ping(world->client, -1, err), SNIB_OK);
    snib_hold *hold = expect_done(world, 1, SNIB_OK).hold;
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    assert_int_equal(server_integer(&world->server, "EXISTS queue"), 1);
    must_release(hold);
    assert_int_equal(server_integer(&world->server, "EXISTS queue"), 0);
    EXPECT(snib_hold_check(hold, err), SNIB_EHANDLE);
}

/* Dropping the result of a re-entry leaves the first hold as it was. */
static void same_hold_forgotten(void **state)
{
    struct world *world = *state;
    snib_hold *hold = must_acquire_as(world->lock, 7, 1000);
    snib_op *op = NULL;
    EXPECT(snib_lock_acquire_submit(world->lock, 7, 0, NULL, 0, &op, err), SNIB_OK);
    snib_op_free(op);
    EXPECT(snib_client_ping(world->client, -1, err), SNIB_OK);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    assert_int_equal(server_integer(&world->server, "EXISTS queue"), 1);
    must_release(hold);
    assert_int_equal(server_integer(&world->server, "EXISTS queue"), 0);
}

/* The free of a handle counts for those that had it: freed twice, it takes nothing from the grant that
 * waits in the queue, which comes with a handle of its own. */
static void same_hold_freed_twice(void **state)
{
    struct world *world = *state;
    snib_hold *first = must_acquire_as(world->lock, 7, 1000);
    submit(world, 7, 1000, 1);
    snib_hold_free(first);
    snib_hold_free(first);
    EXPECT(snib_hold_check(first, err), SNIB_EHANDLE);
    EXPECT(snib_client_ping(world->client, -1, err), SNIB_OK);
    assert_int_equal(server_integer(&world->server, "EXISTS queue"), 1);
    snib_hold *hold = expect_done(world, 1, SNIB_OK).hold;
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    snib_hold_free(hold);
    AWAIT(server_integer(&world->server, "EXISTS queue") == 0, 5000);
}

/* A grant that nobody will take keeps nothing held after the others have freed the hold. */
static void same_hold_never_fetched(void **state)
{
    struct world *world = *state;
    snib_queue *queue = NULL;
    EXPECT(snib_queue_new(world->client, &queue, err), SNIB_OK);
    snib_hold *first = must_acquire_as(world->lock, 7, 1000);
    EXPECT(snib_lock_acquire_submit(world->lock, 7, 0, queue, 1, NULL, err), SNIB_OK);
    snib_hold_free(first);
    EXPECT(snib_client_ping(world->client, -1, err), SNIB_OK);
    assert_int_equal(server_integer(&world->server, "EXISTS queue"), 1);
    snib_queue_free(queue);
    AWAIT(server_integer(&world->server, "EXISTS queue") == 0, 5000);
    assert_int_equal(must_stats(world->client).held, 0);
}

static void *acquire_and_free(void *argument)
{
    struct world *world = argument;
    for (int i = 0; i < 2000; i++) {
        snib_hold *hold = must_acquire_as(world->lock, 7, -1);
        EXPECT(snib_hold_check(hold, err), SNIB_OK);
        snib_hold_free(hold);
    }
    return NULL;
}

/* Threads of one owner that only free: none gets a hold that another's free ends. */
static void same_owner_frees(void **state)
{
    struct world *world = *state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, acquire_and_free, world), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    AWAIT(server_integer(&world->server, "EXISTS queue") == 0, 5000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_event_each),
        TEST(texts),
        TEST(reentry),
        TEST(descriptor),
        TEST(several_drain),
        TEST(freed_with_grants),
        TEST(begin),
        TEST(not_finished_is_said),
        TEST(waiting_is_idle),
        TEST(same_hold_unfetched),
        TEST(same_hold_forgotten),
        TEST(same_hold_freed_twice),
        TEST(same_hold_never_fetched),
        TEST(same_owner_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
