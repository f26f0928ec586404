/* rest.c - a queue in which nobody waits any more ends, and with it the subscription: others would count this client as
 * one that waits, and give way to it. */
#include "fed.h"

static struct snib__engine *engine;
static struct snib__gate *mutex;
static struct snib__hold *first;

/* Answer the oldest request; the connection's own ones before it, too. */
static void reply(const char *text)
{
    now += SNIB__MS;
    answer_own(engine);
    answer(engine, text);
}

static void expect_end(struct snib__op *op, int32_t code)
{
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_int_equal(op->code, code);
    snib__op_free(engine, op);
}

static struct snib__op *give_back(struct snib__hold *hold)
{
    int32_t code;
    return snib__engine_release(engine, hold, now, &code);
}

/* The client has waited for the mutex, so it is subscribed, and has it now. */
static int start(void **state)
{
    (void)state;
    engine = begin();
    mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *op = acquire(engine, mutex, 0);
    connect_link(engine);
    reply(":5000\r\n");
    connect_pubsub(engine);
    say_on_channel(engine, mutex, NULL);
    reply("$-1\r\n");
    first = acquired(engine, op);
    assert_true(snib__chan_on(mutex->waitq));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    snib__engine_free(engine);
    return 0;
}

/* A second later nothing of the queue is left. */
static void expect_rest(const struct snib__gate *gate)
{
    now += SECOND;
    snib__engine_tick(engine, now);
    assert_null(gate->waitq);
}

static struct snib__op *try_once(struct snib__gate *gate)
{
    int32_t code;
    const struct snib__acquire once = {.wait = 0};
    return snib__engine_acquire(engine, gate, &once, now, &code);
}

static void after_a_turn(void **state)
{
    (void)state;
    struct snib__op *op = give_back(first);
    reply(":1\r\n");
    expect_end(op, SNIB_OK);
    expect_rest(mutex);
}

/* It queues behind another thread, and ends when that has the lock. */
static void single_try(void **state)
{
    (void)state;
    now += SNIB__MS; /* nothing that was known before counts */
    struct snib__op *release = give_back(first), *op = acquire(engine, mutex, 0);
    reply(":1\r\n");
    expect_end(release, SNIB_OK);
    struct snib__op *once = try_once(mutex);
    reply("$-1\r\n");
    acquired(engine, op);
    expect_end(once, SNIB_BUSY);
    expect_rest(mutex);
}

/* The release of a hold that was lost ends while another hold has the lock. */
static void lost_hold(void **state)
{
    (void)state;
    const struct snib__acquire any = {.wait = SNIB__NEVER};
    snib__hold_lose(engine, first, SNIB_REASON_EXPIRED, now);
    granted(engine, mutex, &any);
    snib__hold_drop(engine, first, now);
    assert_int_equal(on_the_way(engine), 1);
    reply(":0\r\n");
    expect_rest(mutex);
}

/* Two kinds of one name have one channel: the one got its lock before the other subscribed. */
static void channel_of_another(void **state)
{
    (void)state;
    struct snib__gate *n = gate(engine, SNIB_MUTEX, "n"), *same = gate(engine, SNIB_FENCED, "n");
    struct snib__op *op = acquire(engine, n, 0), *other;
    reply(":5000\r\n");
    n->waitq->chan->state = SNIB__CHAN_OFF; /* as if its subscription could not be sent */
    now += 6 * SECOND;
    snib__engine_tick(engine, now);
    reply("$-1\r\n");
    acquired(engine, op);
    other = acquire(engine, same, 0);
    reply(":5000\r\n");
    say_on_channel(engine, n, NULL);
    assert_true(snib__chan_on(n->waitq));
    expect_rest(n);
    assert_int_equal(other->done, 0);
}

/* A queue may end while an attempt that was sent when it was subscribed is on its way.  Another lock of the name keeps the
 * channel, but a release goes unheard by this one: it asks again. */
static void release_after_the_end(void **state)
{
    (void)state;
    struct snib__gate *fenced = gate(engine, SNIB_FENCED, "m");
    struct snib__op *op = give_back(first);
    reply(":1\r\n");
    expect_end(op, SNIB_OK);
    now += 100 * SNIB__MS;
    op = acquire(engine, fenced, 0); /* which ends later */
    reply(":20000\r\n");
    reply(":20000\r\n");
    snib__engine_cancel(engine, op, now);
    expect_end(op, SNIB_CANCELLED);
    now += 200 * SNIB__MS;
    op = acquire(engine, mutex, 0);
    now += 150 * SNIB__MS;
    snib__engine_tick(engine, now);
    assert_null(mutex->waitq);
    assert_true(snib__chan_on(fenced->waitq));
    say_on_channel(engine, fenced, "0");
    reply(":20000\r\n");
    reply("$-1\r\n");
    acquired(engine, op);
}

/* A waiter of a fair lock ends because its server refuses the login, and its place is given back when it is there again. */
static void fair_waiter(void **state)
{
    (void)state;
    struct snib__gate *fair = gate(engine, SNIB_FAIR, "f");
    struct snib__op *op = acquire(engine, fair, 0);
    struct snib__link *link = snib__engine_link(engine, SNIB__COMMAND);
    reply("*3\r\n:5000\r\n:0\r\n:1000\r\n");
    say_on_channel(engine, fair, NULL);
    assert_int_equal(on_the_way(engine), 1); /* it asks again */
    cut_link(engine);
    await_connect(engine);
    assert_int_equal(snib__engine_take_wish(engine, link), SNIB__WISH_CONNECT);
    snib__engine_link_down(engine, link, SNIB_EAUTH, 0, now);
    expect_end(op, SNIB_EUNREACHABLE);
    op = acquire(engine, fair, 0);
    await_connect(engine);
    assert_int_equal(snib__engine_take_wish(engine, link), SNIB__WISH_CONNECT);
    snib__engine_link_down(engine, link, SNIB_EAUTH, 0, now);
    expect_end(op, SNIB_EAUTH);
    await_connect(engine);
    connect_link(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_FAIR_RELEASE);
    reply("*0\r\n");
    expect_rest(fair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(after_a_turn, start, stop),
        cmocka_unit_test_setup_teardown(single_try, start, stop),
        cmocka_unit_test_setup_teardown(lost_hold, start, stop),
        cmocka_unit_test_setup_teardown(channel_of_another, start, stop),
        cmocka_unit_test_setup_teardown(release_after_the_end, start, stop),
        cmocka_unit_test_setup_teardown(fair_waiter, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
