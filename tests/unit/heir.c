/* heir.c - what stands for inherited clients and locks: made at the first use, once, and equal in all but identity.
 *
 * A fork is what handle.c counts; to count one without a child is a fork for all that was made before.
 */
#include "left.h"

#include "api/group.h"
#include "driver/forks.h"
#include "engine/internal.h"
#include "locks/group.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEMBERS = 3 };

static struct world {
    snib_client *clients[MEMBERS], *closed;
    snib_lock *mutex, *write, *members[MEMBERS], *multi, *group, *quorum, *doomed, *lame;
    snib_queue *queue;
} w;

/* What is inherited is never freed: it is kept in sight of those who look for leaks. */
static void keep(int kind, void *handle)
{
    static void *kept[250];
    static size_t n;
    void *object = snib__handle_get(kind, handle);
    assert_true(object && n < COUNT(kept));
    kept[n++] = object;
    snib__handle_put(handle);
}

static void count_fork(void)
{
    void *const locks[] = {w.mutex, w.write, w.multi, w.group, w.quorum, w.doomed, w.lame};
    for (size_t i = 0; i < COUNT(locks); i++)
        keep(SNIB__LOCK, locks[i]);
    for (int i = 0; i < MEMBERS; i++) {
        keep(SNIB__CLIENT, w.clients[i]);
        keep(SNIB__LOCK, w.members[i]);
    }
    keep(SNIB__CLIENT, w.closed);
    keep(SNIB__QUEUE, w.queue);
    atomic_fetch_add(&snib__fork_generation, 1);
    snib__forks_child();
}

static snib_client *open_client(const char *url)
{
    snib_client_options o;
    snib_client *client;
    snib_client_options_init(&o, sizeof o);
    o.lease_ms = 7000;
    o.max_hold_ms = 60000;
    o.waiters_max = 77;
    assert_int_equal(snib_client_open(url, &o, &client, NULL), SNIB_OK);
    return client;
}

static snib_lock *new_lock(snib_client *client, int32_t kind, const char *name, uint32_t flags)
{
    snib_lock_options o;
    snib_lock *lock;
    snib_lock_options_init(&o, sizeof o);
    o.flags = flags;
    o.lease_ms = kind == SNIB_WRITE ? 4000 : 0;
    o.max_hold_ms = kind == SNIB_WRITE ? 9000 : 0;
    assert_int_equal(snib_lock_new(client, kind, name, strlen(name), &o, &lock, NULL), SNIB_OK);
    return lock;
}

static int begin(void **state)
{
    (void)state;
    char url[60];
    for (int i = 0; i < MEMBERS; i++) {
        snprintf(url, sizeof url, "redis://user:word@%c.test:700%d/%d", 'c' - i, i, i);
        w.clients[i] = open_client(url);
        w.members[i] = new_lock(w.clients[i], SNIB_MUTEX, "vote", 0);
    }
    w.closed = open_client("redis://d.test");
    w.mutex = new_lock(w.clients[0], SNIB_MUTEX, "mutex", 0);
    w.write = new_lock(w.clients[0], SNIB_WRITE, "write", SNIB_LOCK_FENCED);
    snib_lock *last = new_lock(w.closed, SNIB_MUTEX, "vote", 0);
    snib_lock *all[] = {w.members[0], last, w.members[1]}, *two[] = {w.mutex, w.write};
    assert_int_equal(snib_multi_new(two, 2, NULL, &w.multi, NULL), SNIB_OK);
    assert_int_equal(snib_multi_new(w.members, MEMBERS, NULL, &w.group, NULL), SNIB_OK);
    assert_int_equal(snib_quorum_new(w.members, MEMBERS, NULL, &w.quorum, NULL), SNIB_OK);
    assert_int_equal(snib_multi_new(all, 3, NULL, &w.doomed, NULL), SNIB_OK);
    assert_int_equal(snib_quorum_new(all, 3, NULL, &w.lame, NULL), SNIB_OK);
    assert_int_equal(snib_queue_new(w.clients[0], &w.queue, NULL), SNIB_OK);
    assert_int_equal(snib_client_close(w.closed, 0, NULL), SNIB_OK);
    snib_lock_free(last);
    return 0;
}

/* All handles; the memory of what was inherited stays. */
static int end(void **state)
{
    (void)state;
    snib_lock *locks[] = {w.mutex, w.write, w.multi, w.group, w.quorum, w.doomed, w.lame};
    for (size_t i = 0; i < COUNT(locks); i++)
        snib_lock_free(locks[i]);
    for (int i = 0; i < MEMBERS; i++) {
        snib_lock_free(w.members[i]);
        snib_client_free(w.clients[i]);
    }
    snib_client_free(w.closed);
    snib_queue_free(w.queue);
    return 0;
}

static struct snib__client *client_of(snib_client *handle)
{
    int32_t code = SNIB_OK;
    snib_error error = {0};
    struct snib__client *client = snib__client_enter(handle, &error, &code);
    if (!client)
        fail_msg("%s", error.text);
    snib__handle_put(handle);
    return client;
}

static struct snib__lock *lock_of(snib_lock *handle)
{
    int32_t code = SNIB_OK;
    snib_error error = {0};
    struct snib__lock *lock = snib__lock_enter(handle, &error, &code);
    if (!lock)
        fail_msg("%s", error.text);
    snib__handle_put(handle);
    return lock;
}

static void expect_same_client(const struct snib__client *heir, const struct snib__client *from)
{
    snib_client_options options = from->options;
    assert_ptr_not_equal(heir, from);
    assert_false(snib__client_forked(heir));
    assert_true(snib__client_forked(from));
    assert_memory_equal(&heir->options, &options, sizeof options);
    assert_int_equal(heir->url.addresses_n, from->url.addresses_n);
    assert_true(snib__address_equal(heir->url.addresses, from->url.addresses));
    assert_int_equal(heir->url.database, from->url.database);
    assert_string_equal(heir->url.username, from->url.username);
    assert_string_equal(heir->url.password, from->url.password);
    assert_string_equal(heir->where, from->where);
    assert_int_equal(heir->lease_ms, 7000);
    assert_int_equal(heir->max_hold_ms, 60000);
    assert_int_equal(heir->patience, from->patience);
    assert_string_not_equal(heir->uuid, from->uuid);
}

static void expect_same_lock(const struct snib__lock *heir, const struct snib__lock *from)
{
    size_t n, m;
    const char *name = snib__gate_name(heir->gate, &n), *old = snib__gate_name(from->gate, &m);
    assert_ptr_not_equal(heir, from);
    assert_ptr_equal(heir->client, atomic_load(&from->client->heir));
    assert_int_equal(heir->kind, from->kind);
    assert_int_equal(heir->flags, from->flags);
    assert_int_equal(heir->lease_ms, from->lease_ms);
    assert_int_equal(heir->max_hold_ms, from->max_hold_ms);
    assert_int_equal(n, m);
    assert_memory_equal(name, old, n);
    assert_int_equal(snib__gate_kind(heir->gate), snib__gate_kind(from->gate));
    assert_ptr_not_equal(heir->gate, from->gate);
    assert_ptr_equal(heir->gate->home, heir->client);
    assert_true(!heir->parts == !from->parts);
    if (!from->parts)
        return;
    assert_ptr_not_equal(heir->parts, from->parts);
    assert_int_equal(heir->parts->majority, from->parts->majority);
    assert_int_equal(heir->parts->vote_ms, from->parts->vote_ms);
    assert_int_equal(heir->parts->n, from->parts->n);
    assert_int_equal(atomic_load(&heir->parts->refs), 1);
    for (uint32_t i = 0; i < heir->parts->n; i++) {
        const struct snib__part *one = &heir->parts->part[i], *other = &from->parts->part[i];
        assert_ptr_equal(one->client, atomic_load(&other->client->heir));
        assert_ptr_equal(one->gate->home, one->client);
        assert_int_equal(snib__gate_kind(one->gate), snib__gate_kind(other->gate));
        name = snib__gate_name(one->gate, &n), old = snib__gate_name(other->gate, &m);
        assert_int_equal(n, m);
        assert_memory_equal(name, old, n);
    }
}

/* In a child, and in a child of that one. */
static void heirs(void **state)
{
    begin(state);
    snib_lock *const handles[] = {w.mutex, w.write, w.multi, w.group, w.quorum};
    for (int generation = 0; generation < 2; generation++) {
        const struct snib__client *from[MEMBERS];
        const struct snib__lock *locks[COUNT(handles)];
        for (int i = 0; i < MEMBERS; i++)
            from[i] = client_of(w.clients[i]);
        for (size_t i = 0; i < COUNT(handles); i++)
            locks[i] = lock_of(handles[i]);
        count_fork();
        for (size_t i = 0; i < COUNT(handles); i++) {
            const struct snib__lock *heir = lock_of(handles[i]);
            expect_same_lock(heir, locks[i]);
            assert_ptr_equal(lock_of(handles[i]), heir);
        }
        for (int i = 0; i < MEMBERS; i++) {
            const struct snib__client *heir = client_of(w.clients[i]);
            expect_same_client(heir, from[i]);
            assert_ptr_equal(client_of(w.clients[i]), heir);
        }
        /* Its own, as one, and those of its locks: three alone, and a part of two groups. */
        assert_int_equal(atomic_load(&client_of(w.clients[1])->refs), 3);
    }
    end(state);
}

static bool short_of_memory; /* for new locks */

struct snib__gate *__real_snib__gate_get(struct snib__engine *engine, int32_t kind,
                                         const char *name, size_t n);
struct snib__gate *__wrap_snib__gate_get(struct snib__engine *engine, int32_t kind,
                                         const char *name, size_t n);
struct snib__gate *__wrap_snib__gate_get(struct snib__engine *engine, int32_t kind,
                                         const char *name, size_t n)
{
    return short_of_memory ? NULL : __real_snib__gate_get(engine, kind, name, n);
}

/* A shortage of memory at the first use is not taken for a closed client, and the next use is well. */
static void heirs_in_a_shortage(void **state)
{
    begin(state);
    snib_lock *const handles[] = {w.mutex, w.multi, w.group, w.quorum};
    count_fork();
    for (size_t i = 0; i < COUNT(handles); i++) {
        snib_error error = {0};
        int32_t code = SNIB_OK;
        short_of_memory = true;
        assert_null(snib__lock_enter(handles[i], &error, &code));
        short_of_memory = false;
        assert_int_equal(code, SNIB_ENOMEM);
        assert_int_equal(error.code, SNIB_ENOMEM);
        lock_of(handles[i]);
    }
    end(state);
}

/* A quorum has one although the client of a minority was closed, which it does without. */
static void of_a_minority(void **state)
{
    begin(state);
    count_fork();
    const struct snib__parts *parts = lock_of(w.lame)->parts;
    uint32_t closed = 0;
    assert_true(parts->majority);
    assert_int_equal(parts->n, MEMBERS);
    for (uint32_t i = 0; i < parts->n; i++) {
        assert_false(snib__client_forked(parts->part[i].client));
        assert_ptr_equal(parts->part[i].gate->home, parts->part[i].client);
        closed += parts->part[i].client->stopped;
    }
    assert_int_equal(closed, 1);
    end(state);
}

/* Queues have no heirs, nor have what was closed, nor what needs a part of that. */
static void without_heirs(void **state)
{
    snib_error error = {0};
    snib_event event = {.size = sizeof event};
    snib_hold *hold = NULL;
    begin(state);
    count_fork();
    assert_int_equal(snib_queue_drain(w.queue, &event, 1, &error), SNIB_EFORKED);
    assert_int_equal(error.code, SNIB_EFORKED);
    assert_int_equal(snib_queue_wake(w.queue), SNIB_EFORKED);
    assert_int_equal(snib_client_ping(w.closed, 0, &error), SNIB_ECLOSED);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(snib_lock_acquire(w.doomed, 0, 0, &hold, &error), SNIB_ECLOSED);
        assert_non_null(strstr(error.text, "a member's client is closed"));
    }
    /* Nothing of the attempts is kept: the handle, and the locks that were never used. */
    assert_int_equal(atomic_load(&client_of(w.clients[1])->refs), 1);
    end(state);
}

/* A client that is freed before its first use there is closed, also if a thread of the parent was inside.  The numbers of
 * its descriptors are those of other files by then. */
static void freed_unused(void **state)
{
    for (int inside = 0; inside < 2; inside++) {
        snib_error error = {0};
        snib_hold *hold = NULL;
        int others[12];
        begin(state);
        if (inside)
            assert_non_null(snib__handle_get(SNIB__CLIENT, w.clients[0]));
        count_fork();
        for (size_t i = 0; i < COUNT(others); i++)
            assert_true((others[i] = dup(0)) >= 0);
        snib_client_free(w.clients[0]);
        int code = snib_lock_acquire(w.mutex, 0, 0, &hold, &error);
        for (size_t i = 0; i < COUNT(others); i++)
            assert_int_equal(close(others[i]), 0);
        assert_int_equal(code, SNIB_ECLOSED);
        assert_int_equal(error.code, SNIB_ECLOSED);
        assert_int_equal(snib_lock_acquire(w.group, 0, 0, &hold, &error), SNIB_ECLOSED);
        assert_int_equal(snib_client_ping(w.clients[0], 0, &error), SNIB_EHANDLE);
        end(state);
    }
}

/* The C library's random() has a lock that does not survive a fork, and a sequence that the program may want again. */
static void random_of_the_program(void **state)
{
    (void)state;
    long next[2];
    for (int opens = 0; opens < 2; opens++) {
        srandom(7);
        if (opens)
            snib_client_free(open_client("redis://a.test"));
        next[opens] = random();
    }
    assert_int_equal(next[1], next[0]);
}

/* A client that is freed after its use there is closed for locks that were not used, too: they still lead to its heir. */
static void freed_used(void **state)
{
    snib_error error = {0};
    snib_hold *hold = NULL;
    mallopt(M_PERTURB, 165); /* freed memory says nothing */
    for (int generations = 1; generations < 3; generations++) {
        begin(state);
        for (int i = 0; i < generations; i++) {
            count_fork();
            client_of(w.clients[0]);
        }
        lock_of(w.mutex);
        snib_client_free(w.clients[0]);
        snib_lock_free(w.mutex);
        snib_lock *const unused[] = {w.write, w.group};
        for (size_t i = 0; i < COUNT(unused); i++)
            assert_int_equal(snib_lock_acquire(unused[i], 0, 0, &hold, &error), SNIB_ECLOSED);
        end(state);
    }
    mallopt(M_PERTURB, 0);
}

/* Whatever was made goes with the last handle, and the parent's descriptors with the fork. */
static void nothing_is_left(void **state)
{
    for (int used = 0; used < 4; used++) {
        int before = descriptors();
        begin(state);
        int inherited = clients_alive;
        count_fork();
        if (used > 0)
            lock_of(w.quorum);
        if (used > 1) {
            lock_of(w.mutex);
            inherited = clients_alive;
            count_fork();
            lock_of(w.group);
        }
        if (used > 2)
            snib_client_free(w.clients[0]);
        end(state);
        assert_int_equal(descriptors(), before);
        assert_int_equal(clients_alive, inherited); /* their heirs have ended */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heirs),
        cmocka_unit_test(heirs_in_a_shortage),
        cmocka_unit_test(of_a_minority),
        cmocka_unit_test(without_heirs),
        cmocka_unit_test(freed_unused),
        cmocka_unit_test(freed_used),
        cmocka_unit_test(random_of_the_program),
        cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
