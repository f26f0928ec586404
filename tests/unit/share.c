/* share.c - how many attempts a lock with many holders costs, and which requests may not run side
 * by side. */
#include "fed.h"

enum { WAITERS = 400, BURST_MAX = 64 };

static void answer_all(struct snib__engine *engine, const char *reply)
{
    for (uint32_t n = on_the_way(engine); n > 0; n--)
        answer(engine, reply);
}

/* The first operation of a gate, which waits, and listens. */
static struct snib__op *waits(struct snib__engine *engine, struct snib__gate *gate,
                              uint32_t permits)
{
    const struct snib__acquire how = {.wait = SNIB__NEVER, .permits = permits};
    int32_t code;
    struct snib__op *op = snib__engine_acquire(engine, gate, &how, now, &code);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":20000\r\n");
    connect_pubsub(engine);
    say_on_channel(engine, gate, NULL);
    answer(engine, ":20000\r\n");
    assert_int_equal(on_the_way(engine), 0);
    return op;
}

static void try_once(struct snib__engine *engine, struct snib__gate *gate, uint32_t permits)
{
    const struct snib__acquire how = {.wait = 0, .permits = permits};
    int32_t code;
    assert_non_null(snib__engine_acquire(engine, gate, &how, now, &code));
}

/* A thousand waiters for one permit cost one attempt each time; while they succeed each wake-up
 * sends more. */
static void attempts(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *semaphore = gate(engine, SNIB_SEMAPHORE, "s");
    struct snib__op *ops[WAITERS];
    for (int i = 0; i < WAITERS; i++) {
        ops[i] = acquire(engine, semaphore, 0);
        if (i == 0) {
            connect_link(engine);
            answer_own(engine);
            answer(engine, ":-1\r\n");
            connect_pubsub(engine);
            say_on_channel(engine, semaphore, NULL);
            assert_int_equal(on_the_way(engine), 1); /* a release may have been missed */
            answer(engine, ":-1\r\n");
        }
        assert_int_equal(on_the_way(engine), 0);
    }
    for (int round = 0; round < 2; round++) {
        uint32_t most = 0, n;
        say_on_channel(engine, semaphore, "1");
        assert_int_equal(on_the_way(engine), 1);
        for (int answers = 0; answers < 150; answers++) {
            answer(engine, "$-1\r\n");
            n = on_the_way(engine);
            most = n > most ? n : most;
        }
        assert_int_equal(most, BURST_MAX);
        answer_all(engine, ":-1\r\n");
        if (on_the_way(engine)) /* a message may have come meanwhile */
            answer_all(engine, ":-1\r\n");
        assert_int_equal(on_the_way(engine), 0);
        say_on_channel(engine, semaphore, "1");
        assert_int_equal(on_the_way(engine), 1);
        answer(engine, ":-1\r\n");
    }
    assert_true(ops[2 * 150 - 1]->done && !ops[2 * 150]->done); /* first come, first served */
    snib__engine_free(engine);
}

/* A release may have gone unheard by a waiter that tried while it was not subscribed, although it was so before. */
static void subscribed_anew(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *semaphore = gate(engine, SNIB_SEMAPHORE, "s");
    struct snib__link *pubsub = snib__engine_link(engine, SNIB__PUBSUB);
    acquire(engine, semaphore, 0);
    connect_link(engine);
    answer(engine, ":-1\r\n");
    for (int i = 0; i < 2; i++) {
        connect_pubsub(engine);
        while (on_the_way(engine) == 0 && i > 0) {
            now += 100 * SNIB__MS;
            snib__engine_tick(engine, now);
        }
        say_on_channel(engine, semaphore, NULL);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 1);
        answer(engine, ":-1\r\n");
        assert_int_equal(on_the_way(engine), (uint32_t)i); /* the first attempt was subscribed */
        snib__engine_link_down(engine, pubsub, SNIB_EUNREACHABLE, 0, now);
        for (int step = 0; !pubsub->connect && step < 100; step++) {
            now += 10 * SNIB__MS;
            snib__engine_tick(engine, now);
        }
    }
    snib__engine_free(engine);
}

/* Of attempts that left together the last reply decides how long the others sleep: until the first
 * lease ends. */
static void refused_together(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *permits = gate(engine, SNIB_PERMITS, "p");
    for (int i = 0; i < 4; i++) {
        acquire(engine, permits, 0);
        if (i > 0)
            continue;
        connect_link(engine);
        answer_own(engine);
        answer(engine, ":20000\r\n");
        connect_pubsub(engine);
        say_on_channel(engine, permits, NULL);
        answer(engine, ":20000\r\n");
    }
    say_on_channel(engine, permits, "1");
    answer(engine, "$-1\r\n");
    assert_int_equal(on_the_way(engine), 2);
    answer(engine, ":10\r\n");
    assert_int_equal(permits->waitq->timer_at, 0); /* none sleeps while an attempt is in flight */
    answer(engine, ":10\r\n");
    assert_true(snib__engine_deadline(engine) == now + 12 * SNIB__MS);
    snib__engine_free(engine);
}

/* The reads within a write hold have numbers of their own.  So a release that is left on a broken connection, or that comes
 * late, is no release of the next read, which need not wait for it. */
static void reads_within_a_write(void **state)
{
    (void)state;
    const struct snib__acquire how = {.owner = 7, .wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__gate *read = gate(engine, SNIB_READ, "rw");
    struct snib__hold *writer = granted(engine, gate(engine, SNIB_WRITE, "rw"), &how);
    struct snib__hold *reader = granted(engine, read, &how);
    uint64_t number = reader->number;
    int32_t code;
    assert_int_not_equal(number, writer->number);
    assert_int_equal(reader->writer, writer->number);
    struct snib__op *op = snib__engine_release(engine, reader, now, &code);
    conn_of(engine)->run_id[0] = 0; /* its server did not identify itself: it cannot be killed */
    cut_link(engine);
    await_connect(engine);
    connect_link(engine);
    struct snib__op *next = acquire(engine, read, 7);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_RELEASE);
    answer(engine, ":0\r\n");
    assert_int_equal(op->code, SNIB_OK);
    while (oldest_script(engine) != SNIB__SCRIPT_READ_ACQUIRE)
        answer(engine, "*0\r\n"); /* renewals */
    answer(engine, "$-1\r\n");
    assert_int_equal(next->code, SNIB_OK);
    assert_int_not_equal(next->hold->number, number);
    assert_int_not_equal(next->hold->number, writer->number);
    snib__engine_free(engine);
}

/* What has been abandoned stays until its lease ends, and later reads of its owner are released. */
static void abandoned_within_a_write(void **state)
{
    (void)state;
    const struct snib__acquire how = {.owner = 7, .wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__gate *read = gate(engine, SNIB_READ, "rw");
    granted(engine, gate(engine, SNIB_WRITE, "rw"), &how);
    struct snib__hold *reader = granted(engine, read, &how);
    uint64_t number = reader->number;
    reader->users = 0;
    snib__hold_abandon(engine, reader, now);
    reader = granted(engine, read, &how);
    assert_int_not_equal(reader->number, number);
    int32_t code;
    struct snib__op *op = snib__engine_release(engine, reader, now, &code);
    answer_own(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_RELEASE);
    answer(engine, ":1\r\n");
    assert_int_equal(op->code, SNIB_OK);
    snib__engine_free(engine);
}

/* Two reads of the owner begin together: both have the lock. */
static void two_reads_within_a_write(void **state)
{
    (void)state;
    const struct snib__acquire how = {.owner = 7, .wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__gate *read = gate(engine, SNIB_READ, "rw");
    granted(engine, gate(engine, SNIB_WRITE, "rw"), &how);
    struct snib__op *one = acquire(engine, read, 7), *other = acquire(engine, read, 7);
    for (int i = 0; i < 4 && !(one->done && other->done); i++) {
        answer_own(engine);
        int script = oldest_script(engine);
        answer(engine, script == SNIB__SCRIPT_READ_ACQUIRE ? "$-1\r\n" : ":1\r\n");
    }
    assert_int_equal(one->code, SNIB_OK);
    assert_int_equal(other->code, SNIB_OK);
    snib__engine_free(engine);
}

/* A writer's read is granted at once, whatever reads of other owners wait for the end of the write hold. */
static void writers_read_goes_first(void **state)
{
    (void)state;
    const struct snib__acquire how = {.owner = 7, .wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__gate *read = gate(engine, SNIB_READ, "rw");
    struct snib__hold *writer = granted(engine, gate(engine, SNIB_WRITE, "rw"), &how);
    struct snib__op *others[2] = {acquire(engine, read, 8), NULL};
    answer_own(engine);
    answer(engine, ":5000\r\n");
    others[1] = acquire(engine, read, 9);
    assert_int_equal(on_the_way(engine), 0);
    struct snib__op *op = acquire(engine, read, 7);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "$-1\r\n");
    assert_int_equal(acquired(engine, op)->writer, writer->number);
    answer(engine, ":5000\r\n"); /* as many of the others try as have been granted */
    assert_false(others[0]->done || others[1]->done);
    snib__engine_free(engine);
}

/* One owner waits for both sides, and has one of them now: a read joins the write hold, and a write ends as a new one would.
 * They would wait for each other.  queued: behind another owner's operation, else with an attempt in flight. */
static void both_sides(int32_t first, int32_t second, bool queued)
{
    struct snib__engine *engine = begin();
    const int script = first == SNIB_READ ? SNIB__SCRIPT_READ_ACQUIRE : SNIB__SCRIPT_WRITE_ACQUIRE;
    if (queued) {
        acquire(engine, gate(engine, second, "rw"), 8);
        connect_link(engine);
        answer_own(engine);
        answer(engine, ":5000\r\n");
    }
    struct snib__op *waits = queued ? acquire(engine, gate(engine, second, "rw"), 7) : NULL;
    struct snib__op *op = acquire(engine, gate(engine, first, "rw"), 7);
    struct snib__op *other = queued ? waits : acquire(engine, gate(engine, second, "rw"), 7);
    if (!queued) {
        acquire(engine, gate(engine, second, "rw"), 9); /* a read's attempt is in flight, too */
        connect_link(engine);
    }
    for (int n = queued ? 1 : second == SNIB_READ ? 3 : 2; n > 0; n--)
        answer(engine, oldest_script(engine) == script ? "$-1\r\n" : ":5000\r\n");
    struct snib__hold *hold = acquired(engine, op);
    if (first == SNIB_WRITE) {
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_ACQUIRE);
        answer(engine, "$-1\r\n");
        assert_int_equal(acquired(engine, other)->writer, hold->number);
    } else {
        assert_ptr_equal(snib__engine_take_done(engine), other);
        assert_int_equal(other->code, SNIB_EUPGRADE);
    }
    snib__engine_free(engine);
}

static void waits_for_both_sides(void **state)
{
    (void)state;
    for (int queued = 0; queued < 2; queued++) {
        both_sides(SNIB_READ, SNIB_WRITE, queued);
        both_sides(SNIB_WRITE, SNIB_READ, queued);
    }
}

/* A write hold goes on to an owner's waiter and is refused; meanwhile that owner has got the read side, because the server had
 * lost the write hold: the waiter would wait for its own read. */
static void read_comes_before_a_transfer_that_failed(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *write = gate(engine, SNIB_WRITE, "rw");
    struct snib__op *op = acquire(engine, write, 8);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, op);
    struct snib__op *waits = acquire(engine, write, 7);
    struct snib__op *read = acquire(engine, gate(engine, SNIB_READ, "rw"), 7);
    int32_t code;
    snib__engine_release(engine, hold, now, &code);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    acquired(engine, read);
    answer_own(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_WRITE_TRANSFER);
    answer(engine, "-OOM no memory\r\n");
    assert_true(waits->done);
    assert_int_equal(waits->code, SNIB_EUPGRADE);
    snib__engine_free(engine);
}

/* A message that came while an attempt was in flight is news for that operation's next attempt,
 * whatever else is sent and refused meanwhile: the other one may want more permits than there
 * are. */
static void news_beside_who_wants_more(void **state)
{
    (void)state;
    const struct snib__acquire one = {.wait = SNIB__NEVER, .permits = 1};
    const struct snib__acquire many = {.wait = 0, .permits = 5};
    struct snib__engine *engine = begin();
    struct snib__gate *permits = gate(engine, SNIB_PERMITS, "p");
    int32_t code;
    struct snib__op *waiter = snib__engine_acquire(engine, permits, &one, now, &code);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":20000\r\n");
    connect_pubsub(engine);
    say_on_channel(engine, permits, NULL);
    assert_int_equal(on_the_way(engine), 1);
    say_on_channel(engine, permits, "1");
    struct snib__op *greedy = snib__engine_acquire(engine, permits, &many, now, &code);
    assert_int_equal(on_the_way(engine), 2);
    answer(engine, ":20000\r\n"); /* answered before the release */
    answer(engine, ":20000\r\n");
    assert_int_equal(greedy->code, SNIB_BUSY);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "$-1\r\n");
    assert_int_equal(waiter->code, SNIB_OK);
    assert_true(waiter->done);
    snib__engine_free(engine);
}

/* The subscription is confirmed while single tries for more permits are in flight.  The first of them was sent before it, and
 * says, for the one that waits, too, that a release may have gone unheard; the last, which was sent after it, does not. */
static void confirmed_beside_who_wants_more(void **state)
{
    (void)state;
    const struct snib__acquire one = {.wait = SNIB__NEVER, .permits = 1};
    const struct snib__acquire many = {.wait = 0, .permits = 5};
    struct snib__engine *engine = begin();
    struct snib__gate *permits = gate(engine, SNIB_PERMITS, "p");
    int32_t code;
    struct snib__op *waiter = snib__engine_acquire(engine, permits, &one, now, &code);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":20000\r\n"); /* a permit is put back after this */
    connect_pubsub(engine);
    snib__engine_acquire(engine, permits, &many, now, &code);
    say_on_channel(engine, permits, NULL);
    snib__engine_acquire(engine, permits, &many, now, &code);
    assert_int_equal(on_the_way(engine), 3); /* the waiter has not waited for them */
    answer(engine, ":20000\r\n");
    answer(engine, "$-1\r\n");
    assert_int_equal(waiter->code, SNIB_OK);
    assert_true(waiter->done);
    answer(engine, ":20000\r\n");
    assert_int_equal(on_the_way(engine), 0);
    snib__engine_free(engine);
}

/* The same for a reader's attempt beside that of another. */
static void news_beside_another_reader(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *read = gate(engine, SNIB_READ, "rw");
    struct snib__op *op = waits(engine, read, 1);
    say_on_channel(engine, read, "0");
    assert_int_equal(on_the_way(engine), 1);
    say_on_channel(engine, read, "0");
    acquire(engine, read, 0);
    assert_int_equal(on_the_way(engine), 2); /* readers take nothing from each other */
    answer(engine, ":20000\r\n");
    answer(engine, ":20000\r\n");
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "$-1\r\n");
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

/* Single tries that follow each other without end, for more permits than are free: a message is passed on to the one that
 * waits for less, whatever is in flight. */
static void message_beside_single_tries(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *permits = gate(engine, SNIB_PERMITS, "p");
    struct snib__op *waiter = waits(engine, permits, 1);
    try_once(engine, permits, 5);
    try_once(engine, permits, 5);
    for (int i = 0; i < 4; i++) {
        try_once(engine, permits, 5); /* in place of the one that ends */
        answer(engine, ":20000\r\n");
        assert_int_equal(on_the_way(engine), 2);
    }
    say_on_channel(engine, permits, "1");
    assert_int_equal(on_the_way(engine), 3);
    answer(engine, ":20000\r\n");
    answer(engine, ":20000\r\n");
    answer(engine, "$-1\r\n");
    assert_true(waiter->done && waiter->code == SNIB_OK);
    snib__engine_free(engine);
}

/* ... and without a message the waiter asks again as often as without them: they do not put it off, in flight or refused. */
static void recheck_beside_single_tries(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *permits = gate(engine, SNIB_PERMITS, "p");
    struct snib__op *waiter = waits(engine, permits, 1);
    uint32_t asked = 0;
    for (int i = 0; i < 8 && asked == 0; i++) {
        try_once(engine, permits, 5);
        now += SECOND / 2;
        snib__engine_tick(engine, now);
        answer(engine, ":20000\r\n");
        asked = on_the_way(engine);
    }
    assert_int_equal(asked, 1);
    answer(engine, "$-1\r\n");
    assert_true(waiter->done && waiter->code == SNIB_OK);
    snib__engine_free(engine);
}

/* First come, first served: beside an attempt for many permits none for fewer is sent, of an operation that begins then
 * or of the next in the queue.  It would be granted where the other is refused. */
static void fewer_behind_more(int32_t kind)
{
    struct snib__engine *engine = begin();
    struct snib__gate *permits = gate(engine, kind, "p");
    struct snib__op *first = waits(engine, permits, 3);
    say_on_channel(engine, permits, "1");
    assert_int_equal(on_the_way(engine), 1);
    struct snib__op *second = acquire(engine, permits, 0);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, ":-1\r\n");
    assert_int_equal(on_the_way(engine), 0);
    const struct snib__acquire two = {.wait = SNIB__NEVER, .permits = 2};
    int32_t code;
    struct snib__op *third = snib__engine_acquire(engine, permits, &two, now, &code);
    struct snib__op *fourth = acquire(engine, permits, 0), *fifth = acquire(engine, permits, 0);
    say_on_channel(engine, permits, "5");
    answer(engine, "$-1\r\n");
    assert_true(first->done && first->code == SNIB_OK);
    assert_int_equal(on_the_way(engine), 2); /* one, and two behind it */
    answer(engine, "$-1\r\n");
    assert_true(second->done && second->code == SNIB_OK);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "$-1\r\n");
    assert_true(third->done && third->code == SNIB_OK);
    assert_int_equal(on_the_way(engine), 2);
    answer_all(engine, "$-1\r\n");
    assert_true(fourth->done && fifth->done);
    snib__engine_free(engine);
}

static void first_come_first_served(void **state)
{
    (void)state;
    fewer_behind_more(SNIB_PERMITS);
    fewer_behind_more(SNIB_SEMAPHORE);
}

/* The messages of an own release, read together with the next one of Redisson, which is only the second half of a pair
 * of ours: that one is news. */
static void own_messages_and_another(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin();
    struct snib__gate *write = gate(engine, SNIB_WRITE, "rw");
    struct snib__op *op = acquire(engine, write, 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":20000\r\n");
    connect_pubsub(engine);
    say_on_channel(engine, write, NULL);
    answer(engine, "$-1\r\n");
    assert_int_equal(op->code, SNIB_OK);
    snib__engine_release(engine, op->hold, now, &code);
    answer_own(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_WRITE_RELEASE);
    answer(engine, ":2\r\n");
    acquire(engine, write, 0);
    answer_own(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_WRITE_ACQUIRE);
    answer(engine, ":20000\r\n"); /* Redisson has it meanwhile, and gives it back */
    say_on_channel(engine, write, "1");
    say_on_channel(engine, write, "0");
    assert_int_equal(on_the_way(engine), 0);
    say_on_channel(engine, write, "0");
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, ":20000\r\n");
    /* A pair of another client's, however, asks once. */
    now += SNIB__MS;
    say_on_channel(engine, write, "1");
    answer(engine, ":20000\r\n");
    say_on_channel(engine, write, "0");
    assert_int_equal(on_the_way(engine), 0);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attempts),
        cmocka_unit_test(subscribed_anew),
        cmocka_unit_test(refused_together),
        cmocka_unit_test(reads_within_a_write),
        cmocka_unit_test(abandoned_within_a_write),
        cmocka_unit_test(two_reads_within_a_write),
        cmocka_unit_test(writers_read_goes_first),
        cmocka_unit_test(waits_for_both_sides),
        cmocka_unit_test(read_comes_before_a_transfer_that_failed),
        cmocka_unit_test(news_beside_who_wants_more),
        cmocka_unit_test(confirmed_beside_who_wants_more),
        cmocka_unit_test(news_beside_another_reader),
        cmocka_unit_test(message_beside_single_tries),
        cmocka_unit_test(recheck_beside_single_tries),
        cmocka_unit_test(first_come_first_served),
        cmocka_unit_test(own_messages_and_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
