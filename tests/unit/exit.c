/* exit.c - the list of the clients that give everything back at process exit. */
#include "unit.h"

#include "api/objects.h"

enum { CLIENTS = 3 };

static const int orders[][CLIENTS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                      {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/* Listed clients are linked in both directions, in the order in which they were opened. */
static void expect_listed(struct snib__client *const *clients)
{
    const struct snib__client *newer = NULL;
    for (int i = CLIENTS; i-- > 0;) {
        if (!clients[i])
            continue;
        assert_ptr_equal(clients[i]->exit_prev, newer);
        if (newer)
            assert_ptr_equal(newer->exit_next, clients[i]);
        newer = clients[i];
    }
    assert_true(!newer || !newer->exit_next);
}

static void leaving_in_any_order(void **state)
{
    (void)state;
    for (size_t order = 0; order < COUNT(orders); order++) {
        snib_client *handles[CLIENTS];
        struct snib__client *clients[CLIENTS];
        int32_t code;
        for (int i = 0; i < CLIENTS; i++) {
            assert_int_equal(snib_client_open("unix:///nowhere", NULL, &handles[i], NULL), SNIB_OK);
            clients[i] = snib__client_enter(handles[i], NULL, &code);
            assert_non_null(clients[i]);
            snib__handle_put(handles[i]);
        }
        expect_listed(clients);
        for (int i = 0; i < CLIENTS; i++) {
            snib_client_free(handles[orders[order][i]]);
            clients[orders[order][i]] = NULL;
            expect_listed(clients);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(leaving_in_any_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
