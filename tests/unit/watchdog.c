/* watchdog.c - renewal of many holds. */
#include "fed.h"

enum { HOLDS = 250, IDS_MAX = 400 };

static const struct snib__batch *batch_of(struct snib__engine *engine, uint32_t i)
{
    const struct snib__conn *conn = conn_of(engine);
    const struct snib__request *request = &conn->ring[(conn->ring_head + i) & (conn->ring_cap - 1)];
    return request->kind == SNIB__REQ_RENEW ? request->subject : NULL;
}

/* Let time pass to the engine's next deadline, and answer all renewals a moment later. */
static void go_on(struct snib__engine *engine)
{
    snib__time next = snib__engine_deadline(engine);
    now = next > now ? next : now;
    snib__engine_tick(engine, now);
    now += SNIB__MS;
    while (conn_of(engine)->ring_count > 0)
        answer(engine, "*0\r\n");
}

/* More than one batch is due at a time, for several leases: no hold is forgotten. */
static void many_holds(void **state)
{
    (void)state;
    static struct snib__hold *holds[HOLDS];
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    char name[16];
    for (int i = 0; i < HOLDS; i++) {
        snprintf(name, sizeof name, "m%d", i);
        holds[i] = granted(engine, gate(engine, SNIB_MUTEX, name), &how);
    }
    while (now < START + 300 * SECOND) {
        go_on(engine);
        for (int i = 0; i < HOLDS; i++) {
            assert_int_equal(holds[i]->phase, SNIB__HELD);
            /* On time: after a third of the lease, or a twelfth of that before. */
            assert_true(holds[i]->deadline > now + 19 * SECOND);
        }
    }
    snib_client_stats_data stats = {.size = sizeof stats};
    snib__engine_stats(engine, &stats);
    assert_in_range(stats.renewals, HOLDS * 29, HOLDS * 34); /* ten leases */
    assert_in_range(stats.renewal_commands, 29 * 3, 34 * 4);
    snib__engine_free(engine);
}

/* A batch keeps the server busy in proportion to its ids, not its holds. */
static void many_permits(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    struct snib__gate *permits = gate(engine, SNIB_PERMITS, "p");
    for (int i = 0; i < HOLDS; i++) {
        struct snib__acquire how = {.wait = SNIB__NEVER,
                                    .permits = i % 20 == 0   ? 1000
                                               : i % 20 == 7 ? 150
                                                             : 1};
        granted(engine, permits, &how);
    }
    now += 10 * SECOND;
    snib__engine_tick(engine, now);
    uint32_t renewed = 0;
    for (uint32_t i = 0; i < conn_of(engine)->ring_count; i++) {
        const struct snib__batch *batch = batch_of(engine, i);
        uint32_t ids = 0;
        for (uint32_t j = 0; batch && j < batch->n; j++)
            ids += batch->of[j].hold->permits;
        assert_true(!batch || ids <= IDS_MAX || batch->n == 1);
        renewed += batch ? batch->n : 0;
    }
    assert_int_equal(renewed, HOLDS);
    snib__engine_free(engine);
}

/* A right that is missing for one lock is refused for the whole batch: then each hold is renewed
 * alone, after a pause, and the others are not affected. */
static void missing_right(void **state)
{
    (void)state;
    enum { FEW = 3 };
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    struct snib__engine *engine = begin();
    struct snib__hold *holds[FEW];
    for (int i = 0; i < FEW; i++)
        holds[i] =
            granted(engine, gate(engine, SNIB_MUTEX, (const char *[]){"a", "b", "c"}[i]), &how);
    snib__time first = holds[0]->deadline;
    now += 10 * SECOND;
    snib__engine_tick(engine, now);
    answer_own(engine);
    assert_int_equal(on_the_way(engine), 1);
    answer(engine, "-NOPERM No permissions to access a key\r\n");
    snib__time refused = now;
    snib__engine_tick(engine, now);
    assert_int_equal(on_the_way(engine), 0);
    for (int step = 0; on_the_way(engine) == 0; step++) {
        assert_true(step < 100); /* else they are not renewed again */
        now = snib__engine_deadline(engine);
        snib__engine_tick(engine, now);
    }
    assert_true(now >= refused + SECOND && now < refused + 3 * SECOND);
    assert_int_equal(on_the_way(engine), FEW);
    for (int i = 0; i < FEW; i++) {
        assert_int_equal(batch_of(engine, 0)->n, 1);
        bool may = batch_of(engine, 0)->of[0].hold != holds[1];
        answer(engine, may ? "*0\r\n" : "-NOPERM No permissions to access a key\r\n");
    }
    assert_true(holds[0]->deadline > first && holds[2]->deadline > first);
    assert_true(holds[1]->deadline == first);
    snib__engine_free(engine);
}

/* After a reconnect all are renewed at once, in one batch, even if a refusal has just asked for
 * patience. */
static void reconnected(void **state)
{
    (void)state;
    const struct snib__acquire how = {.wait = SNIB__NEVER};
    for (int refused = 0; refused < 2; refused++) {
        struct snib__engine *engine = begin();
        for (int i = 0; i < 3; i++)
            granted(engine, gate(engine, SNIB_MUTEX, (const char *[]){"a", "b", "c"}[i]), &how);
        now += refused ? 10 * SECOND : 5 * SECOND;
        snib__engine_tick(engine, now);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), refused);
        if (refused)
            answer(engine, "-ERR not now\r\n");
        cut_link(engine);
        await_connect(engine);
        connect_link(engine);
        snib__engine_tick(engine, now);
        answer_own(engine);
        assert_int_equal(on_the_way(engine), 1);
        assert_int_equal(batch_of(engine, 0)->n, 3);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_holds),
        cmocka_unit_test(many_permits),
        cmocka_unit_test(missing_right),
        cmocka_unit_test(reconnected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
