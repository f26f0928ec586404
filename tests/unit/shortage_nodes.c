/* shortage_nodes.c - no memory while a cluster does not serve a name, or moves it: each allocation in turn is refused.
 *
 * The operation is told, or has the lock; and the client can lock the name afterwards.
 */
#include "nodes.h"

#include "ledger/ledger.h"

static void refused_once(const char *says, const char *then, uint32_t n)
{
    struct snib__engine *engine = begin_cluster("a:0-16383");
    held(engine, "{m}other");
    peers[0].says = says;
    peers[0].times = 2;
    peers[1].says = then;
    peers[1].times = then ? 1 : 0;
    struct snib__op *op = acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    ledger_refuse(n);
    pass(engine, now + 2 * SECOND);
    ledger_refuse(0);
    pass(engine, now + 10 * SECOND);
    assert_true(op->done);
    if (op->code == SNIB_OK) {
        int32_t code;
        struct snib__hold *hold = acquired(engine, op);
        assert_int_equal(hold->phase, SNIB__HELD);
        op = snib__engine_release(engine, hold, now, &code);
        pass(engine, now + SECOND);
        assert_true(op->done && op->code == SNIB_OK);
    } else {
        /* a reply for which there is no memory counts as one that cannot be read */
        if (op->code != SNIB_ENOMEM && op->code != SNIB_ESERVER && op->code != SNIB_EPROTOCOL)
            fail_msg("%s after %s at %u", snib_code_name(op->code), says, n);
        assert_ptr_equal(snib__engine_take_done(engine), op);
        snib__op_free(engine, op);
    }
    while (snib__engine_take_done(engine))
        ;
    assert_int_equal(held(engine, "m")->phase, SNIB__HELD);
    snib__engine_free(engine);
}

static void each_allocation(void **state)
{
    (void)state;
    char moved_to[64], asked_of[64];
    moved(moved_to, "m", 'b');
    sprintf(asked_of, "ASK%s", moved_to + 5);
    for (uint32_t n = 1; n <= 8; n++) {
        refused_once("TRYAGAIN Multiple keys request during rehashing of slot", NULL, n);
        refused_once("CLUSTERDOWN The cluster is down", NULL, n);
        refused_once(moved_to, NULL, n);
        refused_once(asked_of, NULL, n);
        refused_once(moved_to, "TRYAGAIN Multiple keys request during rehashing of slot", n);
    }
}

/* A hold with a lease of its own, which no renewal asks about, moves: its new server confirms it all the same. */
static void moved_lease_is_confirmed(void **state)
{
    (void)state;
    const struct snib__acquire how = {.wait = SNIB__NEVER, .lease = 60 * SECOND};
    for (uint32_t n = 1; n <= 8; n++) {
        int32_t code;
        const struct snib__hold *holds[3];
        struct snib__engine *engine = begin_cluster("a:0-8191 b:8192-16383");
        held(engine, "bar");
        for (int i = 0; i < 3; i++) {
            static const char *const names[] = {"foo", "{foo}1", "{foo}2"};
            struct snib__gate *lock = gate(engine, SNIB_MUTEX, names[i]);
            struct snib__op *op = snib__engine_acquire(engine, lock, &how, now, &code);
            serve(engine);
            holds[i] = acquired(engine, op);
        }
        common_epoch++;
        map_of(common, "a:0-16383");
        ledger_refuse(n);
        while (served_by(engine, "foo") == 'b')
            pass(engine, now + 10 * SNIB__MS);
        ledger_refuse(0);
        pass(engine, now + SECOND);
        for (int i = 0; i < 3; i++)
            assert_int_equal(snib__hold_state(engine, holds[i], now), SNIB_HOLD_VALID);
        snib__engine_free(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation),
                                       cmocka_unit_test(moved_lease_is_confirmed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
