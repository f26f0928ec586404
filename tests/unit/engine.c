/* engine.c - the engine fed by hand: cases that the simulated worlds reach seldom or never. */
#include "fed.h"

#include "engine/ask.h"

/* A server that accepts clients and closes every connection at its first request: patience ends,
 * and the attempts until then are few. */
static void useless_connections(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    int connections = 0;
    while (!op->done) {
        assert_true(connections++ < 200);
        connect_link(engine);
        assert_int_equal(on_the_way(engine), 1);
        now += SNIB__MS;
        cut_link(engine);
        if (!op->done)
            await_connect(engine);
    }
    assert_int_equal(op->code, SNIB_EUNREACHABLE);
    assert_true(now >= START + 5 * SECOND && now < START + 6 * SECOND);
    snib__engine_free(engine);
}

/* A reply resets the patience: the next fault has all of it again. */
static void useful_connections(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    for (int fault = 0; fault < 20; fault++) {
        connect_link(engine);
        answer(engine, ":30000\r\n");
        now += SECOND;
        cut_link(engine);
        await_connect(engine);
    }
    assert_false(op->done);
    snib__engine_free(engine);
}

/* Any of a thousand operations that wait for a connection may leave; the others are sent, in
 * order. */
static void leaving_before_the_connection(void **state)
{
    (void)state;
    enum { N = 1000 };
    static struct snib__op *ops[N];
    static bool left[N];
    struct snib__engine *engine = begin();
    char name[16];
    uint32_t n = 0, stay = 0;
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "m%d", i);
        ops[i] = acquire(engine, gate(engine, SNIB_MUTEX, name), 0);
    }
    for (int i = 0; i < N; i++) { /* from the front, the back, and anywhere */
        int who = i < 200 ? i : i < 400 ? N - 1 - (i - 200) : (int)snib__engine_random(engine, N);
        left[who] = true;
        snib__engine_cancel(engine, ops[who], now);
        for (int more = 0; i == 600 && more < 2000; more++) { /* enough to have the gaps closed */
            int32_t code;
            struct snib__op *one = snib__engine_ping(engine, SNIB__NEVER, now, &code);
            struct snib__op *two = snib__engine_ping(engine, SNIB__NEVER, now, &code);
            snib__engine_ping(engine, SNIB__NEVER, now, &code);
            snib__engine_cancel(engine, one, now);
            snib__engine_cancel(engine, two, now);
        }
    }
    connect_link(engine);
    const struct snib__conn *conn = conn_of(engine);
    for (uint32_t i = 0; i < conn->ring_count; i++) {
        const struct snib__request *sent =
            &conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)];
        if (sent->kind != SNIB__REQ_ACQUIRE)
            continue;
        while (left[n])
            n++;
        assert_ptr_equal(((struct snib__hold *)sent->subject)->op, ops[n++]);
        stay++;
    }
    while (n < N && left[n])
        n++;
    assert_int_equal(n, N);
    assert_true(stay > 100);
    assert_int_equal(on_the_way(engine), stay + 2000);
    snib__engine_free(engine);
}

/* Requests that wait for a connection come and leave in all orders: those that have left are not
 * sent. */
static void leaving_in_any_order(void **state)
{
    (void)state;
    enum { MOST = 24, ROUNDS = 300 };
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct snib__engine *engine = begin();
        struct snib__op *ops[MOST * 4];
        int32_t code;
        uint32_t n = 0;
        engine->random = round * 0x9e3779b97f4a7c15u + 1;
        for (int step = 0; step < MOST * 4; step++) {
            if (n == 0 || (n < MOST && snib__engine_random(engine, 2))) {
                ops[n++] = snib__engine_ping(engine, SNIB__NEVER, now, &code);
                continue;
            }
            uint32_t who = round % 2 ? 0 : (uint32_t)snib__engine_random(engine, n);
            snib__engine_cancel(engine, ops[who], now);
            assert_ptr_equal(snib__engine_take_done(engine), ops[who]);
            snib__op_free(engine, ops[who]);
            for (n--; who < n; who++)
                ops[who] = ops[who + 1];
        }
        if (n > 0) {
            connect_link(engine);
            assert_int_equal(on_the_way(engine), n);
        }
        for (uint32_t i = 0; i < n; i++) {
            answer(engine, "+PONG\r\n");
            assert_ptr_equal(snib__engine_take_done(engine), ops[i]);
        }
        snib__engine_free(engine);
    }
}

/* A close waits for requests in flight, whatever the kind: one may be a grant, which must be given
 * back. */
static void close_waits_for_attempts(void **state)
{
    (void)state;
    static const int32_t kinds[] = {SNIB_MUTEX, SNIB_PERMITS, SNIB_READ, SNIB_FAIR};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct snib__engine *engine = begin();
        struct snib__op *op = acquire(engine, gate(engine, kinds[i], "m"), 0);
        connect_link(engine);
        answer_own(engine);
        assert_true(snib__engine_deadline(engine) > now);
        snib__engine_close(engine, now);
        assert_true(op->done && op->code == SNIB_ECLOSED);
        assert_false(snib__engine_quiet(engine));
        answer(engine, kinds[i] == SNIB_FAIR ? "$1\r\n0\r\n" : "$-1\r\n");
        assert_false(snib__engine_quiet(engine));
        answer_own(engine);
        answer(engine,
               kinds[i] == SNIB_FAIR ? "*5\r\n:1\r\n:0\r\n:0\r\n:0\r\n:1200\r\n" : ":1\r\n");
        assert_true(snib__engine_quiet(engine));
        snib__engine_free(engine);
    }
}

/* The first connection may take long, however short the leases are: nothing is held yet. */
static void first_answer_may_be_slow(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    engine->config.lease = SECOND;
    acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    assert_true(snib__node_reply_timeout(engine, engine->home) == 3 * SECOND);
    assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                     SNIB__WISH_CONNECT);
    snib__engine_link_up(engine, snib__engine_link(engine, SNIB__COMMAND), now);
    now += 3 * SECOND - 1;
    snib__engine_tick(engine, now);
    answer_own(engine);
    assert_true(ready(engine));
    assert_true(snib__node_reply_timeout(engine, engine->home) == SECOND / 5);
    snib__engine_free(engine);
}

/* Records that are not fetched make room for newer ones, and are counted. */
static void log_keeps_the_newest(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    char text[32];
    int32_t level;
    snib__engine_log_level(engine, SNIB_LOG_INFO);
    for (int i = 0; i < SNIB__RECORDS_MAX + 5; i++)
        snib__engine_log(engine, SNIB_LOG_INFO, "record %d", i);
    for (int i = 5; i < SNIB__RECORDS_MAX + 5; i++) {
        snprintf(text, sizeof text, "record %d", i);
        assert_string_equal(snib__engine_take_log(engine, &level), text);
    }
    assert_null(snib__engine_take_log(engine, &level));
    assert_int_equal(snib__engine_log_dropped(engine), 5);
    assert_int_equal(snib__engine_log_dropped(engine), 0);
    snib__engine_free(engine);
}

/* A chain of hand-overs that ended in a loss is over: the next one starts over. */
static void chain_ends_with_a_loss(void **state)
{
    (void)state;
    int32_t code;
    const struct snib__acquire limited = {.wait = SNIB__NEVER, .max_hold = 15 * SECOND};
    struct snib__engine *engine = begin();
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__hold *hold = granted(engine, mutex, &limited);
    for (int round = 0; round < 3; round++) {
        struct snib__op *next = snib__engine_acquire(engine, mutex, &limited, now, &code);
        snib__engine_release(engine, hold, now, &code);
        while (oldest_script(engine) == SNIB__SCRIPT_MUTEX_RENEW)
            answer(engine, "*0\r\n");
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
        answer(engine, ":1\r\n");
        assert_true(next->done && next->code == SNIB_OK);
        now += 15 * SECOND;
        snib__engine_tick(engine, now);
        assert_int_equal(next->hold->phase, SNIB__LOST);
        while (snib__engine_take_done(engine))
            ;
        answer_own(engine);
        while (on_the_way(engine))
            answer(engine, "*0\r\n");
        hold = granted(engine, mutex, &limited);
    }
    snib__engine_free(engine);
}

/* A chain of hand-overs that ended without a release is over, too, although its waiters' subscription
 * is still there: the next holder may hand the lock over. */
static void chain_ends_with_its_hold(void **state)
{
    (void)state;
    int32_t code;
    struct snib__engine *engine = begin();
    engine->config.handover_max = 1;
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *op = acquire(engine, mutex, 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":30000\r\n");
    connect_pubsub(engine);
    say_on_channel(engine, mutex, NULL);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, op);
    for (int round = 0; round < 2; round++) {
        op = acquire(engine, mutex, 0);
        snib__engine_release(engine, hold, now, &code);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
        answer(engine, ":1\r\n");
        assert_true(op->done && op->code == SNIB_OK);
        snib__hold_fix(engine, op->hold, 60 * SECOND, now);
        while (snib__engine_take_done(engine))
            ;
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RENEW);
        answer(engine, "*2\r\n:1\r\n:0\r\n");
        assert_int_equal(op->hold->phase, SNIB__LOST);
        assert_int_equal(on_the_way(engine), 0);
        hold = granted(engine, mutex, &(struct snib__acquire){.wait = SNIB__NEVER});
    }
    snib__engine_free(engine);
}

/* A hand-over whose reply was lost, and whose retry is refused, may have worked: when the next
 * owner leaves, its number is released at the server. */
static void doubtful_hand_over(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *first = acquire(engine, mutex, 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, first);
    struct snib__op *next = acquire(engine, mutex, 0);
    uint64_t number = next->hold->number;
    int32_t code;
    struct snib__op *release = snib__engine_release(engine, hold, now, &code);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
    cut_link(engine); /* after the server has executed it */
    await_connect(engine);
    connect_link(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
    answer(engine, "-MISCONF disk is full\r\n");
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    assert_true(snib__engine_cancel(engine, next, now));
    answer(engine, ":0\r\n");
    assert_true(release->done);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
    const struct snib__conn *conn = conn_of(engine);
    assert_int_equal(conn->ring[conn->ring_head].number, number);
    answer(engine, ":1\r\n");
    assert_true(snib__engine_quiet(engine));
    snib__engine_free(engine);
}

/* A hand-over whose reply was lost is repeated at a server that knows nothing of the giver: another one may have carried it out,
 * and come back with its data.  So the next owner tries with another number, and the first is released wherever it turns up. */
static void hand_over_at_another_server(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *first = acquire(engine, mutex, 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, first);
    struct snib__op *next = acquire(engine, mutex, 0);
    uint64_t number = next->hold->number;
    int32_t code;
    struct snib__op *release = snib__engine_release(engine, hold, now, &code);
    cut_link(engine); /* after the server has executed it */
    await_connect(engine);
    connect_link(engine);
    answer_own(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
    answer(engine, ":0\r\n");
    assert_true(release->done && release->code == SNIB_OK);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_ACQUIRE);
    const struct snib__conn *conn = conn_of(engine);
    assert_int_not_equal(conn->ring[conn->ring_head].number, number);
    const struct snib__hold *own = next->hold;
    assert_int_not_equal(own->number, number);
    answer(engine, "$-1\r\n");
    assert_true(next->done && next->code == SNIB_OK);
    snib__engine_free(engine);
}

/* A proxy reports an error after the server has handed the lock over: the giver has released it,
 * and the next owner, which asks again, finds that it holds the lock; or no operation wants the
 * lock any more, and it is given back. */
static void hand_over_with_an_error_after_it(void **state)
{
    (void)state;
    for (int wanted = 0; wanted < 2; wanted++) {
        struct snib__engine *engine = begin();
        struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
        struct snib__op *first = acquire(engine, mutex, 0);
        connect_link(engine);
        answer(engine, "$-1\r\n");
        struct snib__hold *hold = acquired(engine, first);
        struct snib__op *next = acquire(engine, mutex, 0);
        uint64_t number = next->hold->number;
        int32_t code;
        struct snib__op *release = snib__engine_release(engine, hold, now, &code);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_TRANSFER);
        answer(engine, "-UNAVAILABLE upstream request timeout\r\n");
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
        if (!wanted)
            assert_true(snib__engine_cancel(engine, next, now));
        answer(engine, ":0\r\n"); /* the next owner has it */
        assert_true(release->done);
        assert_int_equal(release->code, SNIB_OK);
        const struct snib__conn *conn = conn_of(engine);
        assert_int_equal(conn->ring[conn->ring_head].number, number);
        assert_int_equal(oldest_script(engine),
                         wanted ? SNIB__SCRIPT_MUTEX_ACQUIRE : SNIB__SCRIPT_MUTEX_RELEASE);
        answer(engine, wanted ? "$-1\r\n" : ":1\r\n");
        assert_int_equal(next->code, wanted ? SNIB_OK : SNIB_CANCELLED);
        assert_true(next->done);
        snib__engine_free(engine);
    }
}

/* Giving back a lost read within a write hold does not remove the owner's next one, neither at once nor by a later retry:
 * each has a number of its own. */
static void reads_of_a_writer(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *reads = gate(engine, SNIB_READ, "rw");
    struct snib__acquire brief = {.owner = 7, .wait = SNIB__NEVER, .max_hold = SECOND};
    struct snib__hold *read[2];
    int32_t code;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_WRITE, "rw"), 7);
    connect_link(engine);
    answer(engine, "$-1\r\n");
    acquired(engine, op);
    for (int i = 0; i < 2; i++) { /* the second is granted before the first, lost, is released */
        op = snib__engine_acquire(engine, reads, &brief, now, &code);
        assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_ACQUIRE);
        answer(engine, "$-1\r\n");
        read[i] = acquired(engine, op);
        now += i == 0 ? SECOND : 0;
        snib__engine_tick(engine, now);
    }
    assert_int_equal(read[0]->phase, SNIB__LOST);
    assert_int_not_equal(read[0]->number, read[1]->number);
    assert_null(snib__engine_release(engine, read[0], now, &code));
    assert_int_equal(code, SNIB_LOST);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_RELEASE);
    answer(engine, ":1\r\n");
    assert_int_equal(read[1]->phase, SNIB__HELD);
    now += SECOND;
    snib__engine_tick(engine, now);
    assert_null(snib__engine_release(engine, read[1], now, &code)); /* lost, with no successor */
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_RELEASE);
    op = snib__engine_acquire(engine, reads, &brief, now, &code);
    assert_int_equal(on_the_way(engine), 2);
    answer(engine, ":1\r\n");
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_READ_ACQUIRE);
    snib__engine_free(engine);
}

/* A hold gets a longer, fixed lease while a renewal is in flight: only the reply for that lease
 * counts. */
static void fixed_during_a_renewal(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, op);
    now += 10 * SECOND;
    snib__engine_tick(engine, now);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RENEW);
    snib__hold_fix(engine, hold, 60 * SECOND, now);
    assert_int_equal(on_the_way(engine), 2);
    answer(engine, "*0\r\n");
    assert_true(hold->deadline < now + 30 * SECOND);
    answer(engine, "*0\r\n");
    assert_true(hold->deadline > now + 50 * SECOND);
    snib__engine_free(engine);
}

/* An owner cannot hold a lock more often than the counter allows. */
static void too_many_times(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__op *op = acquire(engine, mutex, 7);
    connect_link(engine);
    answer(engine, "$-1\r\n");
    struct snib__hold *hold = acquired(engine, op);
    hold->count = UINT32_MAX - 1;
    acquired(engine, acquire(engine, mutex, 7));
    assert_int_equal(hold->count, UINT32_MAX);
    op = acquire(engine, mutex, 7);
    assert_true(op->done);
    assert_int_equal(op->code, SNIB_ELIMIT);
    assert_int_equal(hold->count, UINT32_MAX);
    assert_int_equal(hold->phase, SNIB__HELD);
    snib__engine_free(engine);
}

/* Two operations of one owner wait: when one of them has the lock, the other has it, too, and gives back what it has at the
 * server.  It would wait for itself. */
static void owner_that_waits_twice(void **state)
{
    (void)state;
    static const char queued[] = "*3\r\n:20000\r\n:0\r\n:1000\r\n";
    static const struct {
        int32_t kind;
        const char *refused, *granted;
        int release; /* of the second one's; -1: none */
    } locks[] = {{SNIB_FAIR, queued, "$1\r\n0\r\n", SNIB__SCRIPT_FAIR_RELEASE},
                 {SNIB_READ, ":5000\r\n", "$-1\r\n", -1}};
    for (size_t i = 0; i < 2 * sizeof locks / sizeof *locks; i++) {
        const bool in_flight = i % 2;
        struct snib__engine *engine = begin();
        struct snib__gate *lock = gate(engine, locks[i / 2].kind, "l");
        struct snib__op *first = acquire(engine, lock, 7);
        struct snib__op *next = acquire(engine, lock, 7);
        connect_link(engine);
        const bool waits = locks[i / 2].kind == SNIB_FAIR || !in_flight;
        for (int k = 0; waits && k < 2; k++) {
            answer_own(engine);
            answer(engine, locks[i / 2].refused);
        }
        if (waits) {
            connect_pubsub(engine);
            say_on_channel(engine, lock, NULL);
        }
        answer_own(engine);
        if (locks[i / 2].kind == SNIB_FAIR && !in_flight) {
            answer(engine, locks[i / 2].refused); /* both have a place */
            answer(engine, locks[i / 2].refused);
            now += 2 * SECOND;
            snib__engine_tick(engine, now); /* and one of them asks for both */
        }
        answer_own(engine);
        answer(engine, locks[i / 2].granted);
        if (!next->done) {
            answer_own(engine);
            answer(engine, locks[i / 2].refused);
        }
        struct snib__hold *hold = acquired(engine, first);
        assert_ptr_equal(acquired(engine, next), hold);
        assert_int_equal(hold->users, 2);
        if (locks[i / 2].release >= 0)
            assert_int_equal(oldest_script(engine), locks[i / 2].release);
        else
            assert_int_equal(on_the_way(engine), 0);
        snib__engine_free(engine);
    }
}

/* A preferred writer asks again before its mark ends, however seldom others do. */
static void mark_is_renewed(void **state)
{
    (void)state;
    for (int preferred = 0; preferred < 2; preferred++) {
        struct snib__engine *engine = begin();
        int32_t code;
        const struct snib__acquire how = {.wait = SNIB__NEVER,
                                          .options = preferred ? SNIB_LOCK_PREFER_WRITER : 0};
        engine->config.recheck = 60 * SECOND;
        snib__engine_acquire(engine, gate(engine, SNIB_WRITE, "w"), &how, now, &code);
        connect_link(engine);
        answer_own(engine);
        answer(engine, ":3600000\r\n");
        connect_pubsub(engine);
        say_on_channel(engine, gate(engine, SNIB_WRITE, "w"), NULL);
        answer_own(engine);
        answer(engine, ":3600000\r\n");
        now += 4500 * SNIB__MS;
        snib__engine_tick(engine, now);
        assert_int_equal(on_the_way(engine), preferred);
        snib__engine_free(engine);
    }
}

/* For how many ms the oldest request, of a writer, would keep new readers out: its last argument. */
static long marks_ms(struct snib__engine *engine)
{
    struct snib__buf *out = snib__link_output(&engine->home->links[SNIB__COMMAND]);
    size_t n = snib__buf_size(out);
    const char *at = out->data + out->head, *word = memrchr(at, '\n', n - 2);
    assert_int_equal(on_the_way(engine), 1);
    assert_non_null(word);
    long ms = strtol(word + 1, NULL, 10);
    snib__buf_consume(out, n);
    return ms;
}

static bool marks_readers_out(struct snib__engine *engine)
{
    long ms = marks_ms(engine);
    assert_true(ms == 0 || ms == 5000);
    return ms > 0;
}

/* A preferred writer that waits behind one that is not does not wait for that one to ask: new readers are kept out at once,
 * by the attempt of the first. */
static void mark_of_one_behind(void **state)
{
    (void)state;
    for (int in_flight = 0; in_flight < 2; in_flight++) {
        struct snib__engine *engine = begin();
        int32_t code;
        struct snib__acquire how = {.wait = SNIB__NEVER};
        struct snib__gate *write = gate(engine, SNIB_WRITE, "w");
        engine->config.recheck = 60 * SECOND;
        snib__engine_acquire(engine, write, &how, now, &code);
        connect_link(engine);
        answer_own(engine);
        answer(engine, ":3600000\r\n");
        connect_pubsub(engine);
        say_on_channel(engine, write, NULL);
        answer_own(engine);
        assert_false(marks_readers_out(engine));
        if (!in_flight)
            answer(engine, ":3600000\r\n");
        how.options = SNIB_LOCK_PREFER_WRITER;
        snib__engine_acquire(engine, write, &how, now, &code);
        if (in_flight)
            answer(engine, ":3600000\r\n");
        assert_true(marks_readers_out(engine));
        answer(engine, ":3600000\r\n");
        snib__engine_acquire(engine, write, &how, now, &code);
        assert_int_equal(on_the_way(engine), 0); /* they are kept out already */
        now += 4500 * SNIB__MS;
        snib__engine_tick(engine, now);
        assert_true(marks_readers_out(engine));
        snib__engine_free(engine);
    }
}

/* New readers wait while a preferred writer waits: not behind a single try, and no longer than it waits, unless another
 * one waits for longer. */
static void mark_ends_with_the_wait(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    int32_t code;
    struct snib__acquire how = {.wait = 0, .options = SNIB_LOCK_PREFER_WRITER};
    struct snib__gate *write = gate(engine, SNIB_WRITE, "w");
    engine->config.recheck = 60 * SECOND;
    struct snib__op *op = snib__engine_acquire(engine, write, &how, now, &code);
    connect_link(engine);
    answer_own(engine);
    assert_false(marks_readers_out(engine));
    answer(engine, ":3600000\r\n");
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_int_equal(op->code, SNIB_BUSY);
    snib__op_free(engine, op);

    how.wait = SECOND;
    struct snib__op *brief = snib__engine_acquire(engine, write, &how, now, &code);
    assert_int_equal(marks_ms(engine), 1000);
    now += 400 * SNIB__MS;
    answer(engine, ":3600000\r\n");
    connect_pubsub(engine);
    say_on_channel(engine, write, NULL);
    answer_own(engine);
    assert_int_equal(marks_ms(engine), 600);
    answer(engine, ":3600000\r\n");
    how.wait = SECOND / 2;
    op = snib__engine_acquire(engine, write, &how, now, &code);
    assert_int_equal(on_the_way(engine), 0); /* it waits for less */
    how.wait = 650 * SNIB__MS;
    struct snib__op *similar = snib__engine_acquire(engine, write, &how, now, &code);
    assert_int_equal(on_the_way(engine), 0);
    how.wait = SECOND;
    struct snib__op *later = snib__engine_acquire(engine, write, &how, now, &code);
    assert_int_equal(marks_ms(engine), 1000);
    answer(engine, ":3600000\r\n");
    now += 700 * SNIB__MS;
    snib__engine_tick(engine, now);
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_ptr_equal(snib__engine_take_done(engine), brief);
    assert_ptr_equal(snib__engine_take_done(engine), similar);
    snib__op_free(engine, op);
    snib__op_free(engine, brief);
    snib__op_free(engine, similar);
    assert_int_equal(on_the_way(engine), 0);
    how.wait = SNIB__NEVER;
    snib__engine_acquire(engine, write, &how, now, &code);
    assert_true(marks_readers_out(engine));
    assert_false(later->done);
    snib__engine_free(engine);
}

/* The same of an attempt that had to wait for a connection, or is sent once more. */
static void mark_counts_from_the_sending(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    int32_t code;
    const struct snib__acquire how = {.wait = 4 * SECOND, .options = SNIB_LOCK_PREFER_WRITER};
    const snib__time end = now + 4 * SECOND;
    snib__engine_acquire(engine, gate(engine, SNIB_WRITE, "w"), &how, now, &code);
    now += 1200 * SNIB__MS;
    connect_link(engine);
    answer_own(engine);
    assert_int_equal(marks_ms(engine), 2800);
    cut_link(engine);
    now += 700 * SNIB__MS;
    await_connect(engine);
    connect_link(engine);
    answer_own(engine);
    assert_int_equal(marks_ms(engine), (end - now + SNIB__MS - 1) / SNIB__MS);
    snib__engine_free(engine);
}

/* Waiters may fill the limit, but they wait for a release: that is never refused, and neither is an extension. */
static void limit_is_full(void **state)
{
    (void)state;
    int32_t code;
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    engine->config.ops_max = 2;
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    struct snib__hold *hold = granted(engine, mutex, &how);
    struct snib__op *next = acquire(engine, mutex, 0);
    acquire(engine, mutex, 0);
    assert_null(snib__engine_acquire(engine, mutex, &how, now, &code));
    assert_int_equal(code, SNIB_ELIMIT);
    struct snib__op *op = snib__engine_extend(engine, hold, 60 * SECOND, now, &code);
    assert_non_null(op);
    answer_own(engine);
    answer(engine, "*0\r\n");
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_int_equal(op->code, SNIB_OK);
    snib__op_free(engine, op);
    op = snib__engine_release(engine, hold, now, &code);
    assert_non_null(op);
    answer_own(engine);
    answer(engine, ":1\r\n"); /* passed on */
    assert_ptr_equal(snib__engine_take_done(engine), op);
    assert_int_equal(op->code, SNIB_OK);
    snib__op_free(engine, op);
    acquired(engine, next);
    snib__engine_free(engine);
}

/* A holder with an endless lease is checked at the usual times. */
static void endless_lease(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *mutex = gate(engine, SNIB_MUTEX, "m");
    acquire(engine, mutex, 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":18446744073710\r\n"); /* in nanoseconds slightly more than 2^64 */
    assert_int_not_equal(mutex->waitq->timer_at, 0);
    assert_true(engine->heap[mutex->waitq->timer_at].when > now + SECOND);
    snib__engine_free(engine);
}

/* The first waiter leaves while another operation's attempt, for more, is in flight: that says nothing about the next waiter,
 * which wants less and has not asked. */
static void next_waiter_wants_less(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *permits = gate(engine, SNIB_PERMITS, "p");
    struct snib__acquire three = {.wait = SNIB__NEVER, .permits = 3};
    struct snib__acquire one = {.wait = SNIB__NEVER, .permits = 1};
    struct snib__acquire four_at_once = {.permits = 4};
    int32_t code;
    struct snib__op *first = snib__engine_acquire(engine, permits, &three, now, &code);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":60000\r\n");
    struct snib__op *second = snib__engine_acquire(engine, permits, &one, now, &code);
    assert_int_equal(on_the_way(engine), 0);
    struct snib__op *other = snib__engine_acquire(engine, permits, &four_at_once, now, &code);
    assert_int_equal(on_the_way(engine), 1);
    snib__engine_cancel(engine, first, now);
    assert_int_equal(on_the_way(engine), 2);
    answer(engine, ":60000\r\n");
    assert_true(other->done);
    assert_int_equal(other->code, SNIB_BUSY);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "$-1\r\n");
    assert_true(second->done);
    assert_int_equal(second->code, SNIB_OK);
    snib__engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(useless_connections),
        cmocka_unit_test(useful_connections),
        cmocka_unit_test(leaving_before_the_connection),
        cmocka_unit_test(leaving_in_any_order),
        cmocka_unit_test(close_waits_for_attempts),
        cmocka_unit_test(first_answer_may_be_slow),
        cmocka_unit_test(log_keeps_the_newest),
        cmocka_unit_test(chain_ends_with_a_loss),
        cmocka_unit_test(chain_ends_with_its_hold),
        cmocka_unit_test(doubtful_hand_over),
        cmocka_unit_test(hand_over_at_another_server),
        cmocka_unit_test(hand_over_with_an_error_after_it),
        cmocka_unit_test(reads_of_a_writer),
        cmocka_unit_test(fixed_during_a_renewal),
        cmocka_unit_test(too_many_times),
        cmocka_unit_test(limit_is_full),
        cmocka_unit_test(owner_that_waits_twice),
        cmocka_unit_test(mark_is_renewed),
        cmocka_unit_test(mark_of_one_behind),
        cmocka_unit_test(mark_ends_with_the_wait),
        cmocka_unit_test(mark_counts_from_the_sending),
        cmocka_unit_test(endless_lease),
        cmocka_unit_test(next_waiter_wants_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
