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

enum { KEPT = 300, CHURNED = 700, CHURNERS = 2 };

static struct object one; /* behind all handles of these tests */
static _Atomic int stop;

/* More than a chunk of handles come and go. */
static void *churn(void *unused)
{
    static _Thread_local void *handles[CHURNED];
    for (int i = 0; !stop || handles[i % CHURNED]; i++) {
        void **at = &handles[i % CHURNED];
        if (*at && snib__handle_take(SNIB__QUEUE, *at))
            snib__handle_put(*at);
        *at = stop ? NULL : snib__handle_new(SNIB__QUEUE, &one);
    }
    return unused;
}

static bool take(int kind, void *handle)
{
    bool taken = snib__handle_take(kind, handle) == &one;
    if (taken)
        snib__handle_put(handle);
    return taken;
}

/* Whether new handles have slots of their own, more of them than the parent had. */
static bool table_works(void *const *kept)
{
    static void *handles[4 * CHURNERS * CHURNED];
    bool good = true;
    for (size_t i = 0; i < COUNT(handles); i++)
        good = good && (handles[i] = snib__handle_new(SNIB__CLIENT, &one));
    for (size_t i = 0; good && i < COUNT(handles); i++)
        good = take(SNIB__CLIENT, handles[i]);
    for (int i = 0; good && i < KEPT; i++)
        good = take(SNIB__LOCK, kept[i]);
    return good;
}

static void keep(void **kept)
{
    for (int i = 0; i < KEPT; i++)
        assert_non_null(kept[i] = snib__handle_new(SNIB__LOCK, &one));
}

static void fork_table(void *const *kept)
{
    int status;
    uint32_t before = atomic_load(&snib__fork_generation);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(30);
        _exit(atomic_load(&snib__fork_generation) == before + 1 && table_works(kept) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Fork while other threads change the table: in the child it must be usable, and the generation increased. */
static void fork_keeps_the_table_usable(void **state)
{
    (void)state;
    void *kept[KEPT];
    pthread_t thread[CHURNERS];
    uint32_t before = atomic_load(&snib__fork_generation);
    assert_int_equal(snib__fork_init(), 0);
    keep(kept);
    for (int i = 0; i < CHURNERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, churn, NULL), 0);
    for (int i = 0; i < 200; i++)
        fork_table(kept);
    stop = 1;
    for (int i = 0; i < CHURNERS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(atomic_load(&snib__fork_generation), before);
    for (int i = 0; i < KEPT; i++)
        end(SNIB__LOCK, kept[i]);
}

/* 1: the thread that grows the table is to stop; 2: it has stopped there; 3: it may go on. */
static _Atomic int growth;
static _Thread_local bool grows;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

void *__wrap_malloc(size_t n)
{
    if (grows && growth == 1) {
        growth = 2;
        while (growth != 3)
            usleep(1000);
    }
    return __real_malloc(n);
}

/* New handles until the table has grown. */
static void *grow(void *unused)
{
    static void *handles[1 << 20];
    size_t n = 0;
    grows = true;
    while (growth == 1 && n < COUNT(handles) && (handles[n] = snib__handle_new(SNIB__QUEUE, &one)))
        n++;
    while (n > 0)
        take(SNIB__QUEUE, handles[--n]);
    return unused;
}

/* A thread stays in the middle of a change: the child of a fork has neither that thread nor its mutex. */
static void fork_beside_a_thread_that_grows_it(void **state)
{
    (void)state;
    void *kept[KEPT];
    pthread_t thread;
    assert_int_equal(snib__fork_init(), 0);
    keep(kept);
    growth = 1;
    alarm(120); /* a fork that waits for it */
    assert_int_equal(pthread_create(&thread, NULL, grow, NULL), 0);
    while (growth != 2)
        usleep(1000);
    fork_table(kept);
    alarm(0);
    growth = 3;
    pthread_join(thread, NULL);
    for (int i = 0; i < KEPT; i++)
        end(SNIB__LOCK, kept[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(life_of_a_handle),
        cmocka_unit_test(stale_handles),
        cmocka_unit_test(foreign_handles),
        cmocka_unit_test(many_handles),
        cmocka_unit_test(threads),
        cmocka_unit_test(fork_keeps_the_table_usable),
        cmocka_unit_test(fork_beside_a_thread_that_grows_it),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
