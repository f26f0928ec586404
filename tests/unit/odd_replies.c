/* odd_replies.c - replies in forms that no script and no command has: the caller is told, waiters are not disturbed. */
#include "fed.h"

#include "net/script.h"

#include "engine/ask.h"
#include "ledger/ledger.h"
#include "net/script.h"

static struct snib__engine *ready_engine(void)
{
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    granted(engine, gate(engine, SNIB_MUTEX, "other"), &how);
    return engine;
}

static void ends(struct snib__engine *engine, struct snib__op *op, int32_t code)
{
    assert_true(op->done);
    assert_int_equal(op->code, code);
    assert_ptr_equal(snib__engine_take_done(engine), op);
    snib__op_free(engine, op);
}

static void about_a_lock(void **state)
{
    (void)state;
    static const char *const replies[] = {
        ":1\r\n",
        "*0\r\n",
        "*4\r\n:-2\r\n$0\r\n\r\n:0\r\n:0\r\n",
        "*6\r\n:-2\r\n$0\r\n\r\n:0\r\n:0\r\n$0\r\n\r\n:0\r\n",
        "*5\r\n$2\r\n-2\r\n$0\r\n\r\n:0\r\n:0\r\n$0\r\n\r\n",
        "*5\r\n:-2\r\n:0\r\n:0\r\n:0\r\n$0\r\n\r\n",
        "*5\r\n:-2\r\n$0\r\n\r\n$1\r\n0\r\n:0\r\n$0\r\n\r\n",
        "*5\r\n:-2\r\n$0\r\n\r\n:0\r\n$1\r\n0\r\n$0\r\n\r\n",
    };
    int32_t code;
    struct snib__engine *engine = ready_engine();
    struct snib__gate *one = gate(engine, SNIB_MUTEX, "m");
    for (size_t i = 0; i < COUNT(replies); i++) {
        struct snib__op *op = snib__engine_info(engine, one, now, &code);
        answer_own(engine);
        answer(engine, replies[i]);
        ends(engine, op, SNIB_EPROTOCOL);
    }
    struct snib__op *op = snib__engine_info(engine, one, now, &code);
    answer(engine, "*5\r\n:900\r\n$1\r\nx\r\n:1\r\n:2\r\n$1\r\n7\r\n");
    assert_int_equal(op->answer->remaining_ms, 900);
    assert_int_equal(op->answer->waiting, 2);
    assert_int_equal(op->answer->fencing, 7);
    ends(engine, op, SNIB_OK);
    snib__engine_free(engine);
}

/* Replies are out of step with requests: the link ends, and what was on the way there is asked again. */
static void expect_another_link(struct snib__engine *engine)
{
    assert_int_not_equal(conn_of(engine)->kill_id, 0); /* it may be carried out later */
    assert_int_equal(snib__engine_take_wish(engine, snib__engine_link(engine, SNIB__COMMAND)),
                     SNIB__WISH_CLOSE);
    await_connect(engine);
    connect_link(engine);
}

/* A script's reply of another form grants nothing. */
static void of_a_script(void **state)
{
    (void)state;
    static const char *const replies[] = {"+OK\r\n", "*0\r\n"};
    for (int32_t kind = SNIB_MUTEX; kind <= SNIB__MULTI; kind++)
        for (size_t i = 0; i < COUNT(replies); i++) {
            struct snib__engine *engine = ready_engine();
            static const char list[] = "mone\0stwo";
            struct snib__gate *one = kind == SNIB__MULTI
                                         ? snib__gate_get(engine, kind, list, sizeof list)
                                         : gate(engine, kind, "m");
            const struct snib__acquire how = {.permits = 1};
            int32_t code;
            struct snib__op *op = snib__engine_acquire(engine, one, &how, now, &code);
            answer_own(engine);
            answer(engine, replies[i]);
            if (op->done && op->code == SNIB_OK)
                fail_msg("kind %d is granted by %s", kind, replies[i]);
            const struct snib__hold *hold = snib__gate_first(one);
            assert_true(!hold || hold->phase != SNIB__HELD);
            expect_another_link(engine);
            snib__engine_free(engine);
        }
}

/* One reply that nobody has asked for, and from there on each request has the reply of the one before it.  Only the first of
 * them is noticed, by its form: what comes behind it counts for nothing. */
static void out_of_step(void **state)
{
    (void)state;
    struct snib__engine *engine = ready_engine();
    struct snib__op *one = acquire(engine, gate(engine, SNIB_MUTEX, "one"), 0);
    struct snib__op *two = acquire(engine, gate(engine, SNIB_MUTEX, "two"), 0);
    answer_own(engine);
    const char both[] = "+OK\r\n$-1\r\n:5000\r\n"; /* the second is held by another client */
    snib__engine_input(engine, snib__engine_link(engine, SNIB__COMMAND), both, sizeof both - 1,
                       now);
    assert_false(one->done || two->done);
    expect_another_link(engine);
    answer(engine, ":5000\r\n");
    assert_false(two->done);
    answer(engine, "$-1\r\n");
    acquired(engine, one);
    snib__engine_free(engine);
}

/* The same of a release, a hand-over, a renewal and an extension. */
static void of_another_script(void **state)
{
    (void)state;
    enum { RELEASE, TRANSFER, RENEWAL, EXTENSION };
    static const struct {
        int request;
        const char *reply;
    } cases[] = {{RELEASE, "$-1\r\n"},
                 {RELEASE, "+OK\r\n"},
                 {RELEASE, "*0\r\n"},
                 {TRANSFER, "$-1\r\n"},
                 {TRANSFER, "*0\r\n"},
                 {RENEWAL, "$-1\r\n"},
                 {RENEWAL, ":1\r\n"},
                 {RENEWAL, "*1\r\n:1\r\n"},
                 {RENEWAL, "*6\r\n:1\r\n:0\r\n:2\r\n:0\r\n:3\r\n:0\r\n"},
                 {RENEWAL, "*2\r\n:0\r\n:900\r\n"}, /* a refusal by multi_acquire */
                 {RENEWAL, "*2\r\n:3\r\n:0\r\n"},   /* there are two */
                 {RENEWAL, "*4\r\n:2\r\n:0\r\n:1\r\n:0\r\n"},
                 {RENEWAL, "*2\r\n:1\r\n+OK\r\n"},
                 {EXTENSION, "*2\r\n:0\r\n:900\r\n"},
                 {EXTENSION, "$-1\r\n"},
                 {EXTENSION, "*1\r\n:1\r\n"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct snib__engine *engine = ready_engine();
        struct snib__gate *one = gate(engine, SNIB_MUTEX, "m");
        struct snib__hold *hold =
            granted(engine, one, &(struct snib__acquire){.wait = SNIB__NEVER});
        const snib__time deadline = hold->deadline;
        int32_t code;
        struct snib__op *op = NULL, *next = NULL;
        if (cases[i].request == TRANSFER)
            next = acquire(engine, one, 0);
        if (cases[i].request <= TRANSFER)
            op = snib__engine_release(engine, hold, now, &code);
        else if (cases[i].request == EXTENSION)
            op = snib__engine_extend(engine, hold, 60 * SECOND, now, &code);
        else
            now += 10 * SECOND + SNIB__MS;
        snib__engine_tick(engine, now);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 1);
        answer(engine, cases[i].reply);
        assert_false((op && op->done) || (next && next->done));
        assert_true(hold->deadline == deadline || !op);
        expect_another_link(engine);
        snib__engine_free(engine);
    }
}

/* A peer that always answers like this: the operation ends, and so does what is repeated without one. */
static void again_and_again(void **state)
{
    (void)state;
    for (int releases = 0; releases < 2; releases++) {
        struct snib__engine *engine = ready_engine();
        struct snib__gate *one = gate(engine, SNIB_MUTEX, "m");
        const struct snib__acquire how = {.wait = SNIB__NEVER};
        int32_t code;
        struct snib__op *op =
            releases ? snib__engine_release(engine, granted(engine, one, &how), now, &code)
                     : snib__engine_acquire(engine, one, &how, now, &code);
        for (int tries = 1; tries <= 3; tries++) {
            answer_own(engine);
            assert_false(op->done);
            answer(engine, "+OK\r\n");
            assert_int_equal(op->done, tries == 3);
            expect_another_link(engine);
        }
        assert_int_equal(op->code, SNIB_EPROTOCOL);
        for (int tries = 1; tries <= 3; tries++) {
            answer_own(engine);
            assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MUTEX_RELEASE);
            answer(engine, "+OK\r\n");
            expect_another_link(engine);
        }
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 0);
        assert_null(snib__gate_first(one));
        snib__engine_free(engine);
    }
}

/* The same of a hand-over, by command or under the number that the server knows: those that wait behind it end, too. */
static void hand_overs_again_and_again(void **state)
{
    (void)state;
    for (int tenure = 0; tenure < 2; tenure++) {
        struct snib__engine *engine = ready_engine();
        engine->config.tenure = tenure;
        struct snib__gate *one = gate(engine, SNIB_MUTEX, "m");
        const struct snib__acquire how = {.wait = SNIB__NEVER};
        int32_t code;
        struct snib__hold *hold = granted(engine, one, &how);
        struct snib__op *next[3], *back[4] = {NULL};
        for (size_t i = 0; i < COUNT(next); i++)
            next[i] = acquire(engine, one, 0);
        back[0] = snib__engine_release(engine, hold, now, &code);
        for (size_t i = 0; i < COUNT(next) && next[i]->done; i++) /* under the same number */
            back[1 + i] = snib__engine_release(engine, next[i]->hold, now, &code);
        for (int tries = 0; tries < 200; tries++) {
            answer_own(engine);
            if (on_the_way(engine) == 0)
                break;
            answer(engine, "+OK\r\n");
            expect_another_link(engine);
        }
        for (size_t i = 0; i < COUNT(back); i++)
            assert_true(!back[i] || back[i]->done);
        for (size_t i = 0; i < COUNT(next); i++)
            assert_true(next[i]->done);
        assert_int_equal(on_the_way(engine), 0);
        snib__engine_free(engine);
    }
}

/* Lines of any length and end; no more of them than the caller wants. */
static void about_a_server(void **state)
{
    (void)state;
    static const struct {
        const char *reply, *shown; /* each line with a | behind it */
        size_t cap;
        int32_t code;
        uint32_t refuse;
    } cases[] = {
        {"$22\r\n# Server\r\na:1\r\n\r\nb:2\r\n\r\n", "a:1|b:2|", 100, SNIB_OK, 0},
        {"$9\r\na:1\n\n\nb:2\r\n", "a:1|b:2|", 100, SNIB_OK, 0},
        {"$5\r\n\r\na:1\r\n", "a:1|", 100, SNIB_OK, 0},
        {"$1\r\n\r\r\n", "", 100, SNIB_OK, 0},
        {"$0\r\n\r\n", "", 100, SNIB_OK, 0},
        {":42\r\n", "42|", 100, SNIB_OK, 0},
        {"*3\r\n$1\r\na\r\n:5\r\n$1\r\nb\r\n", "a|b|", 100, SNIB_OK, 0},
        {"$5\r\na:123\r\n", "a:123|", 6, SNIB_OK, 0},
        {"$5\r\na:123\r\n", "", 5, SNIB_ELIMIT, 0},
        {"*2\r\n$1\r\na\r\n$1\r\nb\r\n", "a|b|", 4, SNIB_OK, 0},
        {"*2\r\n$1\r\na\r\n$1\r\nb\r\n", "", 3, SNIB_ELIMIT, 0},
        {"$5\r\na:123\r\n", "", 100, SNIB_ENOMEM, 1},
        {"*2\r\n$1\r\na\r\n$1\r\nb\r\n", "", 100, SNIB_ENOMEM, 1},
        {"$-1\r\n", "", 100, SNIB_EPROTOCOL, 0},
        {"+OK\r\n", "", 100, SNIB_EPROTOCOL, 0},
    };
    struct snib__engine *engine = ready_engine();
    way_is(engine, "deployment:single tls:no verified:no server:the server ");
    for (size_t i = 0; i < COUNT(cases); i++) {
        int32_t code;
        char shown[64] = "";
        struct snib__op *op =
            snib__engine_server(engine, SNIB_SERVER_INFO, cases[i].cap, now, &code);
        answer_own(engine);
        ledger_refuse(cases[i].refuse);
        answer(engine, cases[i].reply);
        ledger_refuse(0);
        const snib_texts *texts = op->asked->texts;
        const char *at = texts ? texts->text : NULL;
        for (uint64_t n = texts ? texts->count : 0; n > 0; n--, at += strlen(at) + 1)
            sprintf(shown + strlen(shown), "%s|", at);
        assert_string_equal(shown, cases[i].shown);
        ends(engine, op, cases[i].code);
    }
    snib__engine_free(engine);
}

/* The hash of a script that was loaded; any other is a broken reply, and the next try begins where this one did. */
static void about_loading(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        size_t cap;
        int32_t code;
        uint32_t refuse;
    } cases[] = {
        {"$40\r\n0123456789012345678901234567890123456789\r\n", 200, SNIB_EPROTOCOL, 0},
        {"$3\r\nabc\r\n", 200, SNIB_EPROTOCOL, 0},
        {"$-1\r\n", 200, SNIB_EPROTOCOL, 0},
        {":1\r\n", 200, SNIB_EPROTOCOL, 0},
        {"-NOPERM no\r\n", 200, SNIB_EPERM, 0},
        {NULL, 10, SNIB_ELIMIT, 0},
        {NULL, 200, SNIB_ENOMEM, 1},
        {NULL, 200, SNIB_OK, 0},
    };
    const struct snib__script_text *first = snib__script_of(SNIB__SCRIPT_BOARD, SNIB__CLASSIC);
    struct snib__engine *engine = ready_engine();
    for (size_t i = 0; i < COUNT(cases); i++) {
        int32_t code;
        char right[64];
        snprintf(right, sizeof right, "$40\r\n%s\r\n", first->sha1);
        struct snib__op *op = snib__engine_load(engine, SNIB_LATCH, 0, cases[i].cap, now, &code);
        answer_own(engine);
        ledger_refuse(cases[i].refuse);
        answer(engine, cases[i].reply ? cases[i].reply : right);
        ledger_refuse(0);
        const snib_texts *texts = op->asked->texts;
        assert_int_equal(texts != NULL, cases[i].code == SNIB_OK);
        assert_true(!texts || (texts->count == 4 && texts->cursor == SNIB__SCRIPT_LATCH_ACQUIRE));
        ends(engine, op, cases[i].code);
    }
    snib__engine_free(engine);
}

/* Each cursor leads to the next script of the kind, the last to the end, and one that is none to the first. */
static void loading_goes_on(void **state)
{
    (void)state;
    static const struct {
        int32_t kind;
        uint64_t from, next;
    } cases[] = {
        {SNIB_LATCH, 0, SNIB__SCRIPT_LATCH_ACQUIRE},
        {SNIB_LATCH, SNIB__SCRIPT_LATCH_ACQUIRE, SNIB__SCRIPT_LATCH_COUNT},
        {SNIB_LATCH, SNIB__SCRIPT_LATCH_INFO, 0},
        {SNIB_LATCH, 1, SNIB__SCRIPT_LATCH_COUNT},
        {SNIB_LATCH, SNIB__SCRIPT_COUNT, SNIB__SCRIPT_LATCH_ACQUIRE},
        {SNIB_LATCH, UINT64_MAX, SNIB__SCRIPT_LATCH_ACQUIRE},
        {SNIB_FAIR, SNIB__SCRIPT_FAIR_RENEW, SNIB__SCRIPT_MUTEX_RENEW},
        {0, SNIB__SCRIPT_COUNT - 2, SNIB__SCRIPT_COUNT - 1},
        {0, SNIB__SCRIPT_COUNT - 1, 0},
    };
    struct snib__engine *engine = ready_engine();
    for (size_t i = 0; i < COUNT(cases); i++) {
        int32_t code;
        char reply[64];
        int script = cases[i].from >= SNIB__SCRIPT_COUNT ? SNIB__SCRIPT_BOARD
                     : cases[i].from == 1                ? SNIB__SCRIPT_LATCH_ACQUIRE
                                                         : (int)cases[i].from;
        snprintf(reply, sizeof reply, "$40\r\n%s\r\n",
                 snib__script_of(script, SNIB__CLASSIC)->sha1);
        struct snib__op *op =
            snib__engine_load(engine, cases[i].kind, cases[i].from, 65536, now, &code);
        answer_own(engine);
        answer(engine, reply);
        assert_non_null(op->asked->texts);
        assert_int_equal(op->asked->texts->cursor, cases[i].next);
        ends(engine, op, SNIB_OK);
    }
    snib__engine_free(engine);
}

static void about_the_time(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        bool refused;
    } cases[] = {
        {"*2\r\n$10\r\n1700000000\r\n$1\r\n5\r\n", false},
        {"*2\r\n$10\r\n1700000000\r\n$6\r\n999999\r\n", false},
        {":1700000000\r\n", true},
        {"*1\r\n$10\r\n1700000000\r\n", true},
        {"*2\r\n:1700000000\r\n$1\r\n5\r\n", true},
        {"*2\r\n$10\r\n1700000000\r\n:5\r\n", true},
        {"*2\r\n$10\r\n1700000000\r\n$7\r\n1000000\r\n", true},
        {"*2\r\n$1\r\n0\r\n$1\r\n5\r\n", true},
        {"*2\r\n$20\r\n18446744073709551615\r\n$1\r\n5\r\n", true},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct snib__engine *engine = ready_engine();
        struct snib__node *node = engine->home;
        node->clock.refused = false;
        node->clock.next = 0;
        while (on_the_way(engine) == 0) {
            now = snib__engine_deadline(engine);
            snib__engine_tick(engine, now);
        }
        const struct snib__conn *conn = conn_of(engine);
        assert_int_equal(conn->ring[conn->ring_head].kind, SNIB__REQ_TIME);
        answer(engine, cases[i].reply);
        assert_int_equal(node->clock.refused, cases[i].refused);
        snib__engine_free(engine);
    }
}

/* Not a message, not a confirmation: the waiter sleeps on.  A message of the right form wakes it. */
static void on_a_channel(void **state)
{
    (void)state;
#define CHANNEL "$26\r\nredisson_lock__channel:{m}\r\n"
    static const char *const said[] = {
        "*2\r\n$7\r\nmessage\r\n" CHANNEL,
        "*4\r\n$7\r\nmessage\r\n" CHANNEL "$1\r\n0\r\n$1\r\n0\r\n",
        "*3\r\n$7\r\nmessage\r\n:26\r\n$1\r\n0\r\n",
        "*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$1\r\n0\r\n",
        "*3\r\n$8\r\nsmessagf\r\n" CHANNEL "$1\r\n0\r\n",
    };
    for (size_t i = 0; i <= COUNT(said); i++) {
        struct snib__engine *engine = ready_engine();
        struct snib__gate *one = gate(engine, SNIB_MUTEX, "m");
        acquire(engine, one, 0);
        answer_own(engine);
        answer(engine, ":20000\r\n");
        connect_pubsub(engine);
        say_on_channel(engine, one, NULL);
        answer_own(engine);
        answer(engine, ":20000\r\n");
        assert_int_equal(on_the_way(engine), 0);
        say_on_pubsub(engine,
                      i < COUNT(said) ? said[i] : "*3\r\n$7\r\nmessage\r\n" CHANNEL "$1\r\n0\r\n");
        assert_int_equal(on_the_way(engine), i == COUNT(said));
        if (i < COUNT(said)) {
            say_on_channel(engine, one, "0");
            assert_int_equal(on_the_way(engine), 1);
        }
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(about_a_lock),    cmocka_unit_test(of_a_script),
        cmocka_unit_test(out_of_step),     cmocka_unit_test(of_another_script),
        cmocka_unit_test(again_and_again), cmocka_unit_test(hand_overs_again_and_again),
        cmocka_unit_test(about_a_server),  cmocka_unit_test(about_loading),
        cmocka_unit_test(loading_goes_on), cmocka_unit_test(about_the_time),
        cmocka_unit_test(on_a_channel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
