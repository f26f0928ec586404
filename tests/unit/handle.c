/* The handle table alone, under threads, and over forks. */
#include "unit.h"

#include "api/handle.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct object {
    int value;
    _Atomic int destroyed;
};

static void destroy(void *object)
{
    atomic_fetch_add(&((struct object *)object)->destroyed, 1);
}

static int setup(void **state)
{
    (void)state;
    for (int kind = SNIB__CLIENT; kind <= SNIB__QUEUE; kind++)
        snib__handle_free_fn(kind, destroy);
    return 0;
}

static void end(int kind, void *handle)
{
    assert_non_null(snib__handle_take(kind, handle));
    snib__handle_put(handle);
}

static void life_of_a_handle(void **state)
{
    (void)state;
    struct object object = {7, 0};
    void *handle = snib__handle_new(SNIB__HOLD, &object);
    assert_non_null(handle);
    assert_int_equal((uintptr_t)handle >> 60, SNIB__HOLD);
    assert_ptr_equal(snib__handle_get(SNIB__HOLD, handle), &object);
    assert_ptr_equal(snib__handle_take(SNIB__HOLD, handle), &object);
    assert_null(snib__handle_take(SNIB__HOLD, handle)); /* one winner */
    assert_null(snib__handle_get(SNIB__HOLD, handle));
    snib__handle_put(handle);
    assert_int_equal(object.destroyed, 0); /* the reference from get is still held */
    snib__handle_put(handle);
    assert_int_equal(object.destroyed, 1);
    assert_null(snib__handle_get(SNIB__HOLD, handle));
}

/* The slot is reused, the handle is not. */
static void stale_handles(void **state)
{
    (void)state;
    struct object object = {0};
    void *first = snib__handle_new(SNIB__OP, &object);
    end(SNIB__OP, first);
    void *second = snib__handle_new(SNIB__OP, &object);
    assert_int_equal((uintptr_t)first >> 32, (uintptr_t)second >> 32);
    assert_ptr_not_equal(first, second);
    assert_null(snib__handle_get(SNIB__OP, first));
    assert_null(snib__handle_take(SNIB__OP, first));
    assert_ptr_equal(snib__handle_get(SNIB__OP, second), &object);
    snib__handle_put(second);
    end(SNIB__OP, second);
}

static void foreign_handles(void **state)
{
    (void)state;
    struct object object = {0};
    void *handle = snib__handle_new(SNIB__LOCK, &object);
    for (int kind = 0; kind < 16; kind++) {
        if (kind != SNIB__LOCK) {
            assert_null(snib__handle_get(kind, handle));
            assert_null(snib__handle_take(kind, handle));
            /* damaged so that it looks like one of that kind */
            void *forged = (void *)(((uintptr_t)handle & UINTPTR_MAX >> 4) | (uintptr_t)kind << 60);
            assert_null(snib__handle_get(kind, forged));
            assert_null(snib__handle_take(kind, forged));
        }
        assert_null(snib__handle_get(kind, NULL));
        assert_null(snib__handle_get(kind, &object));
        assert_null(snib__handle_get(kind, (void *)UINTPTR_MAX));
        assert_null(snib__handle_get(kind, (void *)((uintptr_t)kind << 60 | 0x0fffffff00000001)));
        assert_null(snib__handle_get(kind, (void *)((uintptr_t)kind << 60))); /* generation 0 */
    }
    srandom(1);
    for (int i = 0; i < 100000; i++) {
        uintptr_t bits = (uintptr_t)random() << 40 ^ (uintptr_t)random() << 20;
        bits ^= (uintptr_t)random();
        if (bits != (uintptr_t)handle)
            assert_null(snib__handle_get((int)(bits >> 60), (void *)bits));
    }
    end(SNIB__LOCK, handle);
}

static void many_handles(void **state)
{
    (void)state;
    enum { N = 20000 };
    static void *handles[N];
    static struct object objects[N];
    for (int i = 0; i < N; i++) {
        objects[i].value = i;
        assert_non_null(handles[i] = snib__handle_new(SNIB__HOLD, &objects[i]));
    }
    for (int i = 0; i < N; i++) {
        assert_ptr_equal(snib__handle_get(SNIB__HOLD, handles[i]), &objects[i]);
        snib__handle_put(handles[i]);
    }
    for (int i = 0; i < N; i++) {
        end(SNIB__HOLD, handles[i]);
        assert_int_equal(objects[i].destroyed, 1);
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

enum { SHARED = 64, THREADS = 4, ROUNDS = 100000 };
static _Atomic(void *) shared[SHARED];
static _Atomic long made, ended, destroyed;

static void count_and_free(void *object)
{
    ((struct object *)object)->value = -1; /* a reader with a reference would see it: a race */
    atomic_fetch_add(&destroyed, 1);
    free(object);
}

/* Create, read and end handles that the other threads create, read and end, too. */
static void *juggle(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        _Atomic(void *) *place = &shared[(unsigned)rand_r(&seed) % SHARED];
        void *handle = atomic_load(place);
        struct object *object = snib__handle_get(SNIB__OP, handle);
        if (object) {
            if (object->value != 42)
                abort();
            snib__handle_put(handle);
        }
        if (rand_r(&seed) % 4 != 0)
            continue;
        if (snib__handle_take(SNIB__OP, handle)) {
            atomic_fetch_add(&ended, 1);
            snib__handle_put(handle);
        }
        object = malloc(sizeof *object);
        if (!object)
            abort();
        object->value = 42;
        handle = snib__handle_new(SNIB__OP, object);
        if (!handle)
            abort();
        atomic_fetch_add(&made, 1);
        handle = atomic_exchange(place, handle);
        if (snib__handle_take(SNIB__OP, handle)) {
            atomic_fetch_add(&ended, 1);
            snib__handle_put(handle);
        }
    }
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    snib__handle_free_fn(SNIB__OP, count_and_free);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, juggle, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < SHARED; i++) {
        if (snib__handle_take(SNIB__OP, shared[i])) {
            ended++;
            snib__handle_put(shared[i]);
        }
    }
    assert_true(made > ROUNDS / 10);
    assert_int_equal(made, ended); /* exactly one take wins per handle */
    assert_int_equal(made, destroyed);
    snib__handle_free_fn(SNIB__OP, destroy);
}

/* ---- Fork ------------------------------------------------------------------------------------ */

static _Atomic int stop;

static void *churn(void *argument)
{
    struct object *object = argument;
    while (!atomic_load(&stop)) {
        void *handle = snib__handle_new(SNIB__QUEUE, object);
        if (snib__handle_take(SNIB__QUEUE, handle))
            snib__handle_put(handle);
    }
    return NULL;
}

/* Fork while another thread keeps the table's mutex busy: in the child the table must be usable and
 * the generation increased. */
static void fork_keeps_the_table_usable(void **state)
{
    (void)state;
    static struct object object;
    pthread_t thread;
    uint32_t before = atomic_load(&snib__fork_generation);
    assert_int_equal(snib__fork_init(), 0);
    assert_int_equal(pthread_create(&thread, NULL, churn, &object), 0);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(20);
            void *handle = snib__handle_new(SNIB__CLIENT, &object);
            int good = atomic_load(&snib__fork_generation) == before + 1 && handle &&
                       snib__handle_take(SNIB__CLIENT, handle);
            _exit(good ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&snib__fork_generation), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(life_of_a_handle), cmocka_unit_test(stale_handles),
        cmocka_unit_test(foreign_handles),  cmocka_unit_test(many_handles),
        cmocka_unit_test(threads),          cmocka_unit_test(fork_keeps_the_table_usable),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
