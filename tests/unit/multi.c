/* multi.c - a waiting lock of several names: which member it waits for, and how long. */
#include "fed.h"

/* A mutex and a spin lock. */
static const char members[] = "mone\0stwo";

static void blocked_by(struct snib__engine *engine, int member)
{
    char reply[64];
    sprintf(reply, "*2\r\n:%d\r\n:86400000\r\n", member); /* held for a day */
    answer_own(engine);
    answer(engine, reply);
}

/* The holder of a spin lock sends no message: the lock is checked 10 to 20 times a second.  For the
 * other member, its channel is subscribed to. */
static void waits_for_one_of_them(void **state)
{
    (void)state;
    static const char mutex[] = "redisson_lock__channel:{one}";
    struct snib__engine *engine = begin();
    struct snib__gate *multi = snib__gate_get(engine, SNIB__MULTI, members, sizeof members);
    struct snib__op *op = acquire(engine, multi, 0);
    connect_link(engine);
    blocked_by(engine, 0);
    connect_pubsub(engine);
    const struct snib__buf *said = &engine->home->links[SNIB__PUBSUB].conn.out;
    assert_non_null(memmem(said->data + said->head, snib__buf_size(said), mutex, sizeof mutex - 1));
    char text[128];
    snprintf(text, sizeof text, "*3\r\n$9\r\nsubscribe\r\n$%zu\r\n%s\r\n:1\r\n", sizeof mutex - 1,
             mutex);
    say_on_pubsub(engine, text);
    assert_int_equal(on_the_way(engine), 1); /* a release may have been missed */
    blocked_by(engine, 0);
    assert_true(multi->waitq->timer_at && op->stage == SNIB__STAGE_QUEUED);
    assert_true(engine->heap[multi->waitq->timer_at].when > now + 2 * SECOND);
    snprintf(text, sizeof text, "*3\r\n$7\r\nmessage\r\n$%zu\r\n%s\r\n$1\r\n0\r\n",
             sizeof mutex - 1, mutex);
    say_on_pubsub(engine, text);
    for (int looks = 0; looks < 20; looks++) {
        assert_int_equal(on_the_way(engine), 1);
        blocked_by(engine, 1);
        const snib__time before = now;
        while (on_the_way(engine) == 0) {
            assert_true(multi->waitq->timer_at);
            now = engine->heap[multi->waitq->timer_at].when;
            snib__engine_tick(engine, now);
        }
        assert_in_range(now - before, 50 * SNIB__MS, 100 * SNIB__MS);
    }
    answer(engine, "$-1\r\n");
    assert_true(op->done && op->code == SNIB_OK);
    snib__engine_free(engine);
}

static bool was_said(struct snib__engine *engine, const char *text)
{
    const struct snib__buf *out = &conn_of(engine)->out;
    return memmem(out->data + out->head, snib__buf_size(out), text, strlen(text)) != NULL;
}

/* Two of them in one renewal: each with its own members' kinds. */
static void renewed_with_another(void **state)
{
    (void)state;
    static const char writers[] = "mthree\0wfour";
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    granted(engine, snib__gate_get(engine, SNIB__MULTI, members, sizeof members), &how);
    granted(engine, snib__gate_get(engine, SNIB__MULTI, writers, sizeof writers), &how);
    snib__buf_consume(&conn_of(engine)->out, snib__buf_size(&conn_of(engine)->out));
    now += 10 * SECOND;
    snib__engine_tick(engine, now);
    answer_own(engine);
    assert_int_equal(oldest_script(engine), SNIB__SCRIPT_MULTI_RENEW);
    assert_int_equal(on_the_way(engine), 1);
    assert_true(was_said(engine, "\r\n$2\r\nms\r\n"));
    assert_true(was_said(engine, "\r\n$2\r\nmw\r\n"));
    snib__engine_free(engine);
}

/* A release that the server has refused may have released some of the members, and one whose reply is in doubt all of them:
 * its caller has been told, and that a repetition finds less is no loss. */
static void refused_release_is_no_loss(void **state)
{
    (void)state;
    static const struct {
        int32_t kind;
        const char *name;
        size_t len;
        const char *refusal, *then;
    } cases[] = {
        {SNIB__MULTI, members, sizeof members, "-NOPERM no permission\r\n", ":2\r\n"},
        {SNIB__MULTI, members, sizeof members, "-ERR something odd\r\n", ":0\r\n"},
        {SNIB_MUTEX, "m", 1, "-ERR something odd\r\n", ":0\r\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct snib__acquire how = {.wait = SNIB__NEVER};
        struct snib__engine *engine = begin();
        struct snib__gate *gate =
            snib__gate_get(engine, cases[i].kind, cases[i].name, cases[i].len);
        struct snib__hold *hold = granted(engine, gate, &how);
        int32_t code, level;
        struct snib__op *op = snib__engine_release(engine, hold, now, &code);
        answer_own(engine);
        answer(engine, cases[i].refusal);
        assert_true(op->done && op->code < 0);
        now += SECOND;
        snib__engine_tick(engine, now);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 1);
        answer(engine, cases[i].then);
        assert_true(snib__engine_quiet(engine));
        for (const char *text; (text = snib__engine_take_log(engine, &level));)
            assert_null(strstr(text, "lost"));
        assert_int_equal(engine->stats.lost_deleted, 0);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_for_one_of_them),
        cmocka_unit_test(renewed_with_another),
        cmocka_unit_test(refused_release_is_no_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
