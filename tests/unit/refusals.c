/* refusals.c - the system refuses memory, a descriptor or a thread at each place of each call that wants one.
 *
 * The call says so, changes nothing that it was given, keeps nothing, and works the next time.
 */
#include "descriptors.h"

#include "api/handle.h"
#include "snib.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ---- A system that refuses -------------------------------------------------------------------- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *old, size_t n);
void __libc_free(void *old);

static _Thread_local long countdown; /* to the one that is refused, of this thread's; 0: none is */
static size_t too_large;             /* malloc() refuses so much; 0: nothing is too much */
static int refused;                  /* the code that this must give */
static atomic_long blocks;

static bool refuses(int code)
{
    if (countdown == 0 || --countdown > 0)
        return false;
    refused = code;
    errno = ENOMEM;
    return true;
}

#pragma GCC visibility push(default) /* the libraries are to have them, too */

void *malloc(size_t n)
{
    if (too_large && n >= too_large) {
        refused = SNIB_ENOMEM;
        return NULL;
    }
    void *made = refuses(SNIB_ENOMEM) ? NULL : __libc_malloc(n);
    blocks += made != NULL;
    return made;
}

void *calloc(size_t count, size_t n)
{
    void *made = refuses(SNIB_ENOMEM) ? NULL : __libc_calloc(count, n);
    blocks += made != NULL;
    return made;
}

void *realloc(void *old, size_t n)
{
    void *made = refuses(SNIB_ENOMEM) ? NULL : __libc_realloc(old, n);
    blocks += made && !old;
    return made;
}

void free(void *old)
{
    blocks -= old != NULL;
    __libc_free(old);
}

/* The system's own function; dlsym()'s result cannot be cast to one. */
static void find(void *out, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    assert_non_null(found);
    memcpy(out, &found, sizeof found);
}

int eventfd(unsigned n, int flags)
{
    int (*own)(unsigned, int);
    find(&own, "eventfd");
    return refuses(SNIB_ESYSTEM) ? errno = EMFILE, -1 : own(n, flags);
}

int timerfd_create(clockid_t clock, int flags)
{
    int (*own)(clockid_t, int);
    find(&own, "timerfd_create");
    return refuses(SNIB_ESYSTEM) ? errno = EMFILE, -1 : own(clock, flags);
}

ssize_t getrandom(void *to, size_t n, unsigned flags)
{
    ssize_t (*own)(void *, size_t, unsigned);
    find(&own, "getrandom");
    return refuses(SNIB_ESYSTEM) ? errno = ENOSYS, -1 : own(to, n, flags);
}

int pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *argument)
{
    int (*own)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    find(&own, "pthread_create");
    return refuses(SNIB_ESYSTEM) ? EAGAIN : own(out, attributes, run, argument);
}

#pragma GCC visibility pop

/* ---- What the calls are given ------------------------------------------------------------------- */

enum { CLIENTS = 3, KINDS = SNIB_LATCH, MANY = 300 };
#define NOTHING ((void *)&w) /* what an argument for a result has before the call */

static struct world {
    snib_client *clients[CLIENTS];
    snib_queue *queue;
    snib_lock *locks[KINDS + 1]; /* by kind, of the first client */
    snib_lock *mutexes[CLIENTS]; /* of one name, on a server each */
    void *made;
    snib_error error;
} w;

static snib_client *open_client(int i)
{
    char url[40];
    snib_client *client;
    snprintf(url, sizeof url, "unix:///nowhere%d", i);
    assert_int_equal(snib_client_open(url, NULL, &client, NULL), SNIB_OK);
    return client;
}

static snib_lock *lock_of(snib_client *client, int32_t kind)
{
    snib_lock *lock;
    assert_int_equal(snib_lock_new(client, kind, "m", 1, NULL, &lock, NULL), SNIB_OK);
    return lock;
}

static void begin(void)
{
    memset(&w, 0, sizeof w);
    for (int i = 0; i < CLIENTS; i++) {
        w.clients[i] = open_client(i);
        w.mutexes[i] = lock_of(w.clients[i], SNIB_MUTEX);
    }
    assert_int_equal(snib_queue_new(w.clients[0], &w.queue, NULL), SNIB_OK);
    for (int32_t kind = SNIB_MUTEX; kind <= KINDS; kind++)
        w.locks[kind] = lock_of(w.clients[0], kind);
    w.made = NOTHING;
}

static void end(void)
{
    for (int32_t kind = SNIB_MUTEX; kind <= KINDS; kind++)
        snib_lock_free(w.locks[kind]);
    snib_queue_free(w.queue);
    for (int i = 0; i < CLIENTS; i++) {
        snib_lock_free(w.mutexes[i]);
        snib_client_free(w.clients[i]);
    }
}

/* ---- The calls ---------------------------------------------------------------------------------- */

static const char *url; /* of a client that is to be opened */

static int open_one(void)
{
    return snib_client_open(url, NULL, (snib_client **)&w.made, &w.error);
}

static int open_with_options(void)
{
    snib_client_options o;
    snib_client_options_init(&o, sizeof o);
    o.username = "user";
    o.password = "password";
    return snib_client_open(url, &o, (snib_client **)&w.made, &w.error);
}

static int new_queue(void)
{
    return snib_queue_new(w.clients[0], (snib_queue **)&w.made, &w.error);
}

static int32_t kind;

static int new_lock(void)
{
    return snib_lock_new(w.clients[1], kind, "another", 7, NULL, (snib_lock **)&w.made, &w.error);
}

static int new_multi(void)
{
    snib_lock *members[] = {w.locks[SNIB_MUTEX], w.locks[SNIB_READ]};
    return snib_multi_new(members, 1, NULL, (snib_lock **)&w.made, &w.error);
}

static int new_group(void)
{
    snib_lock *members[] = {w.locks[SNIB_FAIR], w.mutexes[1], w.mutexes[2]};
    return snib_multi_new(members, 3, NULL, (snib_lock **)&w.made, &w.error);
}

static int new_quorum(void)
{
    return snib_quorum_new(w.mutexes, CLIENTS, NULL, (snib_lock **)&w.made, &w.error);
}

static int log_to_queue(void)
{
    return snib_client_log(w.clients[0], w.queue, SNIB_LOG_INFO, &w.error);
}

static int acquire(void)
{
    return snib_lock_acquire_submit(w.locks[kind], 0, -1, w.queue, 7, (snib_op **)&w.made,
                                    &w.error);
}

static int acquire_some(void)
{
    return kind == SNIB_PERMITS ? snib_permits_acquire_submit(w.locks[kind], 2, -1, w.queue, 7,
                                                              (snib_op **)&w.made, &w.error)
                                : snib_semaphore_acquire_submit(w.locks[kind], 2, -1, w.queue, 7,
                                                                (snib_op **)&w.made, &w.error);
}

static int acquire_without_queue(void)
{
    return snib_lock_acquire_submit(w.locks[SNIB_MUTEX], 0, -1, NULL, 7, (snib_op **)&w.made,
                                    &w.error);
}

static int ask(void)
{
    return snib_lock_info_submit(w.locks[kind], w.queue, 7, (snib_op **)&w.made, &w.error);
}

static int force(void)
{
    return snib_lock_force_release_submit(w.locks[SNIB_FAIR], w.queue, 7, (snib_op **)&w.made,
                                          &w.error);
}

static int count(void)
{
    return snib_latch_count_submit(w.locks[SNIB_LATCH], SNIB_COUNT_GET, 0, w.queue, 7,
                                   (snib_op **)&w.made, &w.error);
}

static int ping(void)
{
    return snib_client_ping_submit(w.clients[0], -1, w.queue, 7, (snib_op **)&w.made, &w.error);
}

static int list(void)
{
    return snib_client_list_submit(w.clients[0], "*", 1, 0, w.queue, 7, (snib_op **)&w.made,
                                   &w.error);
}

static int describe(void)
{
    return snib_client_describe_submit(w.clients[0], "name", 4, w.queue, 7, (snib_op **)&w.made,
                                       &w.error);
}

static int identity(void)
{
    return snib_client_identity_submit(w.clients[0], "owner", 5, w.queue, 7, (snib_op **)&w.made,
                                       &w.error);
}

/* ---- Each is refused each ------------------------------------------------------------------------- */

static void free_made(char what)
{
    if (what == 'c')
        snib_client_free(w.made);
    else if (what == 'q')
        snib_queue_free(w.made);
    else if (what == 'l')
        snib_lock_free(w.made);
    else if (what == 'o')
        snib_op_free(w.made);
}

/* No memory for something of the system's is the system's refusal, too. */
static bool says_so(int code)
{
    return w.error.code == code && w.error.text[0] != 0 &&
           (code == refused || (code == SNIB_ESYSTEM && w.error.os_error == ENOMEM));
}

/* One call, refused its n-th wish: false if it has none so late. */
static bool refuse(const char *name, int (*call)(void), char makes, long n)
{
    snib_event event = {.size = sizeof event};
    begin();
    refused = 0;
    countdown = n;
    int code = call();
    countdown = 0;
    if (refused == 0) {
        if (code != SNIB_OK)
            fail_msg("%s: %s", name, w.error.text);
    } else if (code == SNIB_OK && makes == 'o') { /* its end says so */
        assert_ptr_not_equal(w.made, NOTHING);
        if (call != acquire_without_queue && snib_queue_drain(w.queue, &event, 1, NULL) == 1) {
            assert_int_equal(event.code, refused);
            assert_int_equal(event.token, 7);
            assert_null(event.hold);
        }
    } else if (!says_so(code)) {
        fail_msg("%s, wish %ld: %s instead of %s: %s", name, n, snib_code_name(code),
                 snib_code_name(refused), w.error.text);
    }
    if (code != SNIB_OK)
        assert_ptr_equal(w.made, makes ? NOTHING : w.made);
    else
        free_made(makes);
    w.made = NOTHING;
    bool more = refused != 0;
    if (more) { /* the next time there is what it wants */
        code = call();
        if (code != SNIB_OK)
            fail_msg("%s after wish %ld: %s", name, n, w.error.text);
        free_made(makes);
    }
    end();
    return more;
}

static int refuse_each(const char *name, int (*call)(void), char makes)
{
    for (int warm = 0; warm < 3; warm++)
        assert_false(refuse(name, call, makes, MANY));
    long before = blocks, n = 1;
    int open_before = descriptors();
    while (refuse(name, call, makes, n)) {
        if (blocks != before)
            fail_msg("%s, wish %ld: %ld blocks are kept", name, n, blocks - before);
        if (descriptors() != open_before)
            fail_msg("%s, wish %ld: descriptors are kept", name, n);
        n++;
    }
    return (int)n - 1;
}

#define REFUSE(call, makes) refuse_each(#call, call, makes)

static void clients(void **state)
{
    (void)state;
    static const char *const urls[] = {"unix:///nowhere",
                                       "redis+cluster://u:p@a.test,b.test,c.test",
                                       "redis+sentinel://a.test,b.test/main?lease=10s",
                                       "redis://u@a.test/3?password_file=/nowhere"};
    for (size_t i = 0; i < COUNT(urls); i++) {
        url = urls[i];
        assert_true(REFUSE(open_one, 'c') >= 5);
    }
    url = "redis://another:password@a.test"; /* the program's go before them */
    assert_true(REFUSE(open_with_options, 'c') >= 7);
}

static void queues_and_locks(void **state)
{
    (void)state;
    assert_true(REFUSE(new_queue, 'q') >= 3);
    for (kind = SNIB_MUTEX; kind <= KINDS; kind++)
        assert_true(REFUSE(new_lock, 'l') >= 2);
    assert_true(REFUSE(new_multi, 'l') >= 3);
    assert_true(REFUSE(new_group, 'l') >= 4);
    assert_true(REFUSE(new_quorum, 'l') >= 4);
    assert_true(REFUSE(log_to_queue, 0) >= 1);
}

static void operations(void **state)
{
    (void)state;
    for (kind = SNIB_MUTEX; kind < SNIB_LATCH; kind++) {
        REFUSE(kind == SNIB_PERMITS || kind == SNIB_SEMAPHORE ? acquire_some : acquire, 'o');
        REFUSE(ask, 'o');
    }
    REFUSE(acquire_without_queue, 'o');
    REFUSE(force, 'o');
    REFUSE(count, 'o');
    REFUSE(ping, 'o');
    REFUSE(list, 'o');
    REFUSE(describe, 'o');
    REFUSE(identity, 'o');
}

/* The table of handles is full and cannot grow, which each call finds at its very end. */
static void handles(void **state)
{
    (void)state;
    static int (*const calls[])(void) = {open_one,  new_queue,  new_lock, new_multi,
                                         new_group, new_quorum, acquire,  ping};
    kind = SNIB_MUTEX;
    url = "unix:///nowhere";
    begin();
    for (int i = 0; i < MANY; i++) /* the next part of the table is larger than anything else */
        for (int k = 0; k < 20; k++)
            assert_non_null(snib__handle_new(SNIB__OP, &w));
    too_large = 65536;
    while (snib__handle_new(SNIB__OP, &w))
        ;
    for (size_t i = 0; i < COUNT(calls); i++) {
        /* The engine and the driver keep something for later, as does a thread of the client that is
         * at work meanwhile; but not each time. */
        for (int turn = 0, clean = 0; clean < 2; turn++) {
            long before = blocks;
            int open_before = descriptors();
            assert_true(turn < 30);
            refused = 0;
            int code = calls[i]();
            assert_int_equal(refused, SNIB_ENOMEM);
            assert_int_equal(code, SNIB_ENOMEM);
            assert_true(says_so(code));
            assert_ptr_equal(w.made, NOTHING);
            for (int naps = 0; naps < 200 && blocks > before; naps++)
                usleep(1000);
            clean = blocks <= before && descriptors() <= open_before ? clean + 1 : 0;
        }
    }
    too_large = 0;
    assert_int_equal(new_queue(), SNIB_OK);
    snib_queue_free(w.made);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients),
        cmocka_unit_test(queues_and_locks),
        cmocka_unit_test(operations),
        cmocka_unit_test(handles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
