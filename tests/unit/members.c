/* members.c - of which parts a lock of locks consists, and in which order: the same in every
 * process. */
#include "unit.h"

#include "api/group.h"
#include "engine/internal.h"
#include "net/slot.h"

#include <stdio.h>
#include <string.h>

enum { CLIENTS = 5, MEMBERS = 24, SHUFFLES = 200 };

/* By server and database; in a cluster the order of its nodes does not matter. */
static const char *const urls[2][CLIENTS] = {
    {"redis://a.test", "redis://a.test/2", "unix:///b.sock", "redis+cluster://c.test,h.test,i.test",
     "redis+sentinel://f.test,g.test/main"},
    {"redis://a.test", "redis://a.test/2", "unix:///b.sock", "redis+cluster://i.test,c.test,h.test",
     "redis+sentinel://g.test,f.test/main"},
};
enum { CLUSTERED = 3 };

/* No two of one server have the same name. */
static const struct {
    int client;
    int32_t kind;
    const char *name;
} of[MEMBERS] = {
    {0, SNIB_MUTEX, "a"},
    {0, SNIB_FENCED, "aa"},
    {0, SNIB_FAIR, "b"},
    {0, SNIB_READ, "c"},
    {0, SNIB_WRITE, "ba"},
    {1, SNIB_SPIN, "a"},
    {1, SNIB_PLAIN, "aa"},
    {1, SNIB_PERMITS, "ab"},
    {2, SNIB_MUTEX, "a"},
    {2, SNIB_MUTEX, "z"},
    {CLUSTERED, SNIB_MUTEX, "{x}1"},
    {CLUSTERED, SNIB_MUTEX, "{x}2"},
    {CLUSTERED, SNIB_FENCED, "x"},
    {CLUSTERED, SNIB_MUTEX, "{y}1"},
    {CLUSTERED, SNIB_FAIR, "{y}2"},
    {CLUSTERED, SNIB_WRITE, "{y}3"},
    {CLUSTERED, SNIB_MUTEX, "foo"},
    {CLUSTERED, SNIB_MUTEX, "a"},
    {CLUSTERED, SNIB_MUTEX, "b"},
    {CLUSTERED, SNIB_MUTEX, "c"},
    {CLUSTERED, SNIB_MUTEX, "d"},
    {CLUSTERED, SNIB_MUTEX, "123456789"},
    {4, SNIB_MUTEX, "a"},
    {4, SNIB_SPIN, "b"},
};

struct process {
    snib_client *clients[CLIENTS];
    struct snib__client *of[CLIENTS];
    snib_lock *locks[MEMBERS];
};

static struct process processes[2];

static void *must_get(int kind, void *handle)
{
    void *object = snib__handle_get(kind, handle);
    assert_non_null(object);
    snib__handle_put(handle);
    return object;
}

static snib_client *open_lease(const char *url, int64_t lease_ms)
{
    snib_client_options options;
    snib_client *client;
    snib_error error = {0};
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    if (snib_client_open(url, &options, &client, &error) != SNIB_OK)
        fail_msg("%s: %s", url, error.text);
    return client;
}

static snib_lock *new_lock(snib_client *client, int32_t kind, const char *name)
{
    snib_lock *lock;
    snib_error error = {0};
    if (snib_lock_new(client, kind, name, strlen(name), NULL, &lock, &error) != SNIB_OK)
        fail_msg("%s: %s", name, error.text);
    return lock;
}

static int start(void **state)
{
    (void)state;
    for (int p = 0; p < 2; p++) {
        struct process *process = &processes[p];
        for (int i = 0; i < CLIENTS; i++) {
            process->clients[i] = open_lease(urls[p][i], 0);
            process->of[i] = must_get(SNIB__CLIENT, process->clients[i]);
        }
        for (int i = 0; i < MEMBERS; i++)
            process->locks[i] = new_lock(process->clients[of[i].client], of[i].kind, of[i].name);
    }
    return 0;
}

static uint32_t references(void)
{
    uint32_t n = 0;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < CLIENTS; i++)
            n += atomic_load(&processes[p].of[i]->refs);
    return n;
}

static int gates(void)
{
    int n = 0;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < CLIENTS; i++) {
            const struct snib__engine *engine = processes[p].of[i]->driver.engine;
            for (uint32_t k = 0; k < engine->gates_cap; k++)
                n += engine->gates[k] != NULL;
        }
    return n;
}

/* ---- Parts of a lock ---------------------------------------------------------------------------- */

/* A member as the lock has it: which one, and in which part. */
struct found {
    int index;
    uint32_t part;
};

static bool is_scripted(int32_t kind)
{
    return kind != SNIB_FAIR && kind != SNIB_PLAIN && kind != SNIB_PERMITS;
}

static int index_of(const struct process *process, const struct snib__client *client, int32_t kind,
                    const char *name, size_t n)
{
    for (int i = 0; i < MEMBERS; i++)
        if (process->of[of[i].client] == client && of[i].kind == kind && strlen(of[i].name) == n &&
            memcmp(of[i].name, name, n) == 0)
            return i;
    fail_msg("the lock has an unexpected member %.*s of kind %d", (int)n, name, (int)kind);
    return -1;
}

static int32_t kind_of(char letter)
{
    static const char letters[] = "msfrw";
    static const int32_t kinds[] = {SNIB_MUTEX, SNIB_SPIN, SNIB_FENCED, SNIB_READ, SNIB_WRITE};
    const char *at = strchr(letters, letter);
    assert_true(letter && at);
    return kinds[at - letters];
}

/* All members in the lock's order. */
static uint32_t members_of(const struct process *process, const struct snib__parts *parts,
                           struct found *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < parts->n; i++) {
        const struct snib__gate *gate = parts->part[i].gate;
        const struct snib__client *client = parts->part[i].client;
        assert_ptr_equal(gate->home, client);
        if (gate->kind->kind != SNIB__MULTI)
            out[n++] = (struct found){
                index_of(process, client, gate->kind->kind, gate->name, gate->name_len), i};
        for (const char *at = gate->name;
             gate->kind->kind == SNIB__MULTI && at < gate->name + gate->name_len;
             at += strlen(at) + 1) {
            assert_in_range(n, 0, MEMBERS - 1);
            out[n++] =
                (struct found){index_of(process, client, kind_of(*at), at + 1, strlen(at + 1)), i};
        }
    }
    return n;
}

static uint16_t slot_of(int member)
{
    const char *name = of[member].name;
    return of[member].client == CLUSTERED ? snib__slot(name, strlen(name)) : 0;
}

/* On one server by slot, then by name; a part belongs to one client, slot and script, and is as
 * large as possible. */
static void check_order(const struct found *found, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        int one = found[i - 1].index, next = found[i].index;
        bool together = of[one].client == of[next].client && slot_of(one) == slot_of(next) &&
                        is_scripted(of[one].kind) && is_scripted(of[next].kind);
        assert_int_equal(found[i].part, found[i - 1].part + !together);
        if (of[one].client != of[next].client)
            continue;
        if (slot_of(one) > slot_of(next) ||
            (slot_of(one) == slot_of(next) && strcmp(of[one].name, of[next].name) >= 0))
            fail_msg("%s (slot %d) comes before %s (slot %d)", of[one].name, slot_of(one),
                     of[next].name, slot_of(next));
    }
}

static uint32_t draw(uint32_t below)
{
    static uint64_t drawn = 1;
    drawn = drawn * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)((drawn >> 33) % below);
}

/* The same locks, named in any order, are taken in the same order, or two groups could wait in a
 * circle. */
static void one_order_everywhere(void **state)
{
    (void)state;
    struct found first[MEMBERS], found[MEMBERS];
    int order[MEMBERS];
    const uint32_t before = references();
    for (int i = 0; i < MEMBERS; i++)
        order[i] = i;
    for (int turn = 0; turn < SHUFFLES; turn++) {
        struct process *process = &processes[turn % 2];
        snib_lock *given[MEMBERS], *multi;
        snib_error error;
        for (uint32_t i = MEMBERS - 1; i > 0; i--) {
            uint32_t other = draw(i + 1);
            int moved = order[i];
            order[i] = order[other];
            order[other] = moved;
        }
        for (int i = 0; i < MEMBERS; i++)
            given[i] = process->locks[order[i]];
        assert_int_equal(snib_multi_new(given, MEMBERS, NULL, &multi, &error), SNIB_OK);
        const struct snib__lock *lock = must_get(SNIB__LOCK, multi);
        assert_int_equal(lock->kind, SNIB__OUTER);
        assert_false(lock->parts->majority);
        assert_ptr_equal(lock->client, process->of[of[order[0]].client]); /* the first one given */
        assert_int_equal(members_of(process, lock->parts, found), MEMBERS);
        check_order(found, MEMBERS);
        assert_int_equal(references(), before + lock->parts->n + 1);
        if (turn == 0)
            memcpy(first, found, sizeof first);
        assert_memory_equal(first, found, sizeof first);
        snib_lock_free(multi);
        assert_int_equal(references(), before);
    }
}

/* What one script of one client can take is one gate; the order given does not change it. */
static void one_script_is_no_group(void **state)
{
    (void)state;
    static const struct {
        int from, n; /* of the members above */
    } cases[] = {{0, 2}, {3, 2}, {8, 2}, {10, 3}, {22, 2}, {13, 1}};
    for (size_t k = 0; k < COUNT(cases); k++) {
        snib_lock *given[MEMBERS], *locks[2];
        const struct snib__gate *gates[2];
        snib_error error;
        for (int turn = 0; turn < 2; turn++) {
            for (int i = 0; i < cases[k].n; i++)
                given[turn ? cases[k].n - 1 - i : i] = processes[0].locks[cases[k].from + i];
            assert_int_equal(
                snib_multi_new(given, (uint32_t)cases[k].n, NULL, &locks[turn], &error), SNIB_OK);
            const struct snib__lock *lock = must_get(SNIB__LOCK, locks[turn]);
            assert_null(lock->parts);
            gates[turn] = lock->gate;
            assert_int_equal(lock->gate->kind->kind, SNIB__MULTI);
        }
        assert_ptr_equal(gates[0], gates[1]);
        for (int turn = 0; turn < 2; turn++)
            snib_lock_free(locks[turn]);
    }
}

/* ---- Quorums -------------------------------------------------------------------------------------- */

/* A vote is remembered for as long as its longest hold may last. */
static void votes_are_remembered(void **state)
{
    (void)state;
    enum { NODES = 3, FIXED_MS = 12000 };
    static const int64_t leases_ms[NODES] = {3000, 20000, 5000};
    snib_client *clients[NODES];
    snib_lock *given[NODES], *quorum;
    snib_error error;
    char url[32];
    for (int i = 0; i < NODES; i++) {
        snprintf(url, sizeof url, "unix:///%c.sock", 'x' + i);
        clients[i] = open_lease(url, leases_ms[i]);
        given[NODES - 1 - i] = new_lock(clients[i], SNIB_MUTEX, "vote");
    }
    for (int way = 0; way < 4; way++) {
        snib_lock_options options;
        snib_lock_options_init(&options, sizeof options);
        options.flags = way & 1 ? SNIB_LOCK_NO_QUARANTINE : 0;
        options.lease_ms = way & 2 ? FIXED_MS : 0;
        assert_int_equal(snib_quorum_new(given, NODES, &options, &quorum, &error), SNIB_OK);
        const struct snib__lock *lock = must_get(SNIB__LOCK, quorum);
        assert_true(lock->parts->majority);
        assert_int_equal(lock->parts->n, NODES);
        assert_int_equal(lock->parts->vote_ms, way & 1 ? 0 : way & 2 ? FIXED_MS : 20000);
        snib_lock_free(quorum);
    }
    for (int i = 0; i < NODES; i++) {
        snib_lock_free(given[i]);
        snib_client_free(clients[i]);
    }
}

/* A server has one vote, whatever its names, and all votes are about one name. */
static void refused_quorums(void **state)
{
    (void)state;
    static const struct {
        const char *third, *name;
        int32_t code;
    } cases[] = {
        {"redis+cluster://z.test", "vote", SNIB_ENOTSUP},
        {"redis://x.test/3", "vote", SNIB_EINVAL},
        {"redis://z.test", "votes", SNIB_EINVAL},
        {"redis://z.test", "vot", SNIB_EINVAL},
        {"redis+sentinel://w.test,s.test/main", "vote", SNIB_EINVAL},
        {"redis+sentinel://w.test,s.test/other", "vote", SNIB_OK},
        {"redis://s.test", "vote", SNIB_OK},
        {"redis://x.test:6380", "vote", SNIB_OK},
    };
    snib_client *one = open_lease("redis://x.test", 0);
    snib_client *two = open_lease("redis+sentinel://s.test,t.test/main", 0);
    snib_lock *first = new_lock(one, SNIB_MUTEX, "vote"),
              *second = new_lock(two, SNIB_MUTEX, "vote");
    for (size_t k = 0; k < COUNT(cases); k++) {
        snib_client *three = open_lease(cases[k].third, 0);
        const struct snib__client *client = must_get(SNIB__CLIENT, three);
        snib_lock *given[3] = {first, second, new_lock(three, SNIB_MUTEX, cases[k].name)},
                  *quorum = NULL;
        snib_error error = {0};
        int code = snib_quorum_new(given, 3, NULL, &quorum, &error);
        if (code != cases[k].code)
            fail_msg("%s, %s: %s: %s", cases[k].third, cases[k].name, snib_code_name(code),
                     error.text);
        assert_int_equal(quorum != NULL, code == SNIB_OK);
        snib_lock_free(quorum);
        assert_int_equal(atomic_load(&client->refs), 2);
        snib_lock_free(given[2]);
        snib_client_free(three);
    }
    snib_lock_free(first);
    snib_lock_free(second);
    snib_client_free(one);
    snib_client_free(two);
}

/* ---- The end --------------------------------------------------------------------------------------- */

static void nothing_is_left(void **state)
{
    (void)state;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < MEMBERS; i++)
            snib_lock_free(processes[p].locks[i]);
    assert_int_equal(references(), 2 * CLIENTS);
    assert_int_equal(gates(), 0);
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < CLIENTS; i++)
            snib_client_free(processes[p].clients[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_order_everywhere), cmocka_unit_test(one_script_is_no_group),
        cmocka_unit_test(votes_are_remembered), cmocka_unit_test(refused_quorums),
        cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
