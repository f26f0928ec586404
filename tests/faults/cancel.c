/* cancel.c - an acquire is cancelled at every moment of its life.
 *
 * Cancel is atomic with completion: it wins, and the operation ends as cancelled without the lock,
 * or it loses, and the result is available.  Either way nothing of the operation stays at the
 * server.
 */
#include "../support/support.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 16 };

struct tally {
    int cancelled, granted, busy;
};

/* The one event of an operation.  A grant is released. */
static void settle(const snib_event *event, bool cancel_won, struct tally *tally)
{
    assert_int_equal(event->kind, SNIB_EVENT_DONE);
    if (cancel_won) {
        assert_int_equal(event->code, SNIB_CANCELLED);
        assert_null(event->hold);
        tally->cancelled++;
    } else if (event->code == SNIB_OK) {
        must_release(event->hold);
        tally->granted++;
    } else {
        assert_int_equal(event->code, SNIB_TIMEDOUT);
        tally->busy++;
    }
}

/* Let time pass, or less if the operation's event comes out of the queue first.  Not a sleep, which would last too
 * long; but on one processor others must run meanwhile.  The loop goes on draining, because its client leaves the
 * replies to it for a while.  Returns whether the event came. */
static bool spin_us(int64_t us, snib_queue *queue, snib_event *event)
{
    *event = (snib_event){.size = sizeof *event};
    for (int64_t end_ns = now_ns() + us * 1000; now_ns() < end_ns; sched_yield()) {
        int n = queue ? snib_queue_drain(queue, event, 1, NULL) : 0;
        assert_true(n >= 0);
        if (n > 0)
            return true;
    }
    return false;
}

/* Cancel after that time, and take the event from the queue, if there is one.  Returns whether the cancel won. */
static bool cancel_after(snib_op *op, int64_t us, snib_queue *queue, uint64_t token,
                         struct tally *tally)
{
    snib_event event;
    bool ended = spin_us(us, queue, &event);
    int code = snib_op_cancel(op);
    assert_true(code == SNIB_EHANDLE || (code == SNIB_OK && !ended));
    if (!queue)
        EXPECT(snib_op_wait(op, patient_ms(3000), &event, err), SNIB_OK);
    else if (!ended)
        event = must_event(queue, 3000);
    if (queue)
        assert_int_equal(event.token, token);
    settle(&event, code == SNIB_OK, tally);
    return code == SNIB_OK;
}

/* Cancel before, while and after the request is in flight.  Returns whether the cancel won. */
static bool cancel_one(snib_lock *lock, snib_queue *queue, int64_t after_us, struct tally *tally)
{
    static uint64_t token;
    snib_op *op = NULL;
    EXPECT(snib_lock_acquire_submit(lock, 0, after_us % 3 ? -1 : 5, queue, ++token, &op, err),
           SNIB_OK);
    return cancel_after(op, after_us, queue, token, tally);
}

static void nothing_is_left(struct server *server)
{
    AWAIT(server_is_empty(server) && server_channels(server) == 0, 1000);
}

/* The span of the moments in which an operation may be cancelled is a staircase to the one where half of them are, for
 * a machine of any speed. */
static int64_t next_span(int64_t span_us, bool cancelled)
{
    const int64_t step_us = span_us / 64 + 1;
    return cancelled ? span_us + step_us : span_us > step_us ? span_us - step_us : 1;
}

static void at_every_moment(struct server *server, int64_t span_us, int runs, bool contended)
{
    snib_client *client = must_open(server->url), *other = must_open(server->url);
    snib_queue *queue = must_queue(client);
    snib_lock *locks[NAMES], *rivals[NAMES];
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        snprintf(name, sizeof name, "cancel:%d", i);
        locks[i] = must_lock(client, name);
        rivals[i] = must_lock(other, name);
    }
    struct tally tally = {0, 0, 0};
    for (int run = 0; run < runs; run++) {
        int i = run % NAMES;
        snib_hold *rival = contended ? must_acquire(rivals[i], 1000) : NULL;
        bool cancelled = cancel_one(locks[i], run % 2 ? queue : NULL, random() % span_us, &tally);
        if (rival)
            must_release(rival);
        else
            span_us = next_span(span_us, cancelled);
    }
    nothing_is_left(server);
    print_message("          %d cancelled, %d granted, %d timed out\n", tally.cancelled,
                  tally.granted, tally.busy);
    assert_true(tally.cancelled > runs / 100); /* the race did happen, with both outcomes */
    assert_true(contended || tally.granted > runs / 100);
    snib_client_stats_data stats = must_stats(client);
    assert_int_equal(stats.held, 0);
    assert_int_equal(stats.waiting, 0);
    snib_client_free(client);
    snib_client_free(other);
}

static void free_lock(void **state)
{
    at_every_moment(*state, 200, count_of(10000, 5000), false);
}

static void held_lock(void **state)
{
    at_every_moment(*state, 600, count_of(10000, 5000), true);
}

/* The waiter is cancelled while the lock becomes free: hand-over and cancel race. */
static void while_the_lock_comes_free(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open(server->url), *other = must_open(server->url);
    snib_lock *lock = must_lock(client, "free"), *rival = must_lock(other, "free");
    snib_queue *queue = must_queue(client);
    struct tally tally = {0, 0, 0};
    int64_t span_us = 400;
    for (int run = 0; run < count_of(10000, 2000); run++) {
        snib_hold *hold = must_acquire(run % 2 ? lock : rival, 1000);
        snib_op *op = NULL;
        EXPECT(snib_lock_acquire_submit(lock, 0, -1, queue, 1, &op, err), SNIB_OK);
        EXPECT(snib_hold_release_submit(hold, NULL, 0, NULL, err), SNIB_OK);
        bool cancelled = cancel_after(op, random() % span_us, queue, 1, &tally);
        span_us = next_span(span_us, cancelled);
        snib_hold_free(hold);
    }
    print_message("          %d cancelled, %d granted\n", tally.cancelled, tally.granted);
    assert_true(tally.cancelled > 0 && tally.granted > 0);
    nothing_is_left(server);
    snib_client_free(client);
    snib_client_free(other);
}

/* Queue and client are freed under running operations: each still ends, and gives back its
 * grant. */
static void by_queue_free_and_close(void **state)
{
    struct server *server = *state;
    for (int run = 0; run < count_of(500, 100); run++) {
        snib_client *client = must_open(server->url);
        snib_queue *queue = must_queue(client);
        for (int i = 0; i < NAMES; i++) {
            char name[32];
            snprintf(name, sizeof name, "end:%d", i / 2);
            EXPECT(snib_lock_acquire_submit(must_lock(client, name), 0, -1, queue, 0, NULL, err),
                   SNIB_OK);
        }
        nap_us(random() % 2000);
        if (run % 2)
            snib_queue_free(queue);
        EXPECT(snib_client_close(client, patient_ms(1000), err), SNIB_OK);
        snib_client_free(client);
    }
    nothing_is_left(server);
}

static int start(void **state)
{
    static struct server server;
    server_start(&server, NULL);
    *state = &server;
    return 0;
}

static int stop(void **state)
{
    server_stop(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_lock),
        cmocka_unit_test(held_lock),
        cmocka_unit_test(while_the_lock_comes_free),
        cmocka_unit_test(by_queue_free_and_close),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
