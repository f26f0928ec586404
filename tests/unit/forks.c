/* forks.c - what a fork waits for, and which descriptors its child has. */
#include "unit.h"

#include "api/objects.h"
#include "api/uses.h"
#include "driver/forks.h"
#include "driver/sys.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* Run it in a child; whether it returned true. */
static bool in_child(bool (*run)(void *), void *argument)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(30);
        syscall(SYS_exit_group,
                run(argument) ? 0 : 1); /* a sanitizer would miss the parent's threads */
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

/* ---- Descriptors -------------------------------------------------------------------------------- */

enum { KINDS = 4 };

static void open_all(int fds[KINDS])
{
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/tmp"};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    socklen_t n = sizeof at;
    fds[0] = snib__sys_bell();
    fds[1] = snib__sys_set();
    fds[2] = snib__sys_alarm();
    assert_int_equal(bind(listener, (struct sockaddr *)&any, sizeof any.sun_family),
                     0); /* a name of the system's choice */
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    assert_int_equal(snib__sys_connect((struct sockaddr *)&at, n, &fds[3]), 0);
    close(listener);
}

static bool none_is_open(void *fds)
{
    for (int i = 0; i < KINDS; i++)
        if (is_open(((int *)fds)[i]))
            return false;
    return true;
}

static bool all_are_open(void *fds)
{
    for (int i = 0; i < KINDS; i++)
        if (!is_open(((int *)fds)[i]))
            return false;
    return true;
}

/* Also where the program has thousands of its own, so that the numbers are large. */
static void child_has_none(void **state)
{
    static const int numbers[] = {0, 1000, 1024, 3000, 3072, 7168};
    struct rlimit limit = {0};
    (void)state;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (size_t i = 0; i < COUNT(numbers) && (rlim_t)numbers[i] + 20 < limit.rlim_max; i++) {
        int fds[KINDS], *fill = calloc((size_t)numbers[i] + 1, sizeof *fill), n = 0;
        while (n < numbers[i] && (fill[n] = dup(0)) < numbers[i])
            n++;
        open_all(fds);
        assert_true(fds[0] >= numbers[i]);
        assert_true(in_child(none_is_open, fds));
        assert_true(all_are_open(fds));
        for (int k = 0; k < KINDS; k++)
            snib__sys_close(fds[k]);
        for (int k = 0; k <= n; k++)
            if (fill[k] > 0)
                close(fill[k]);
        free(fill);
    }
}

/* A number that is the program's again. */
static void child_keeps_the_programs(void **state)
{
    int fds[KINDS], own[KINDS];
    (void)state;
    open_all(fds);
    for (int i = 0; i < KINDS; i++)
        snib__sys_close(fds[i]);
    for (int i = 0; i < KINDS; i++)
        own[i] = dup(0);
    assert_int_equal(own[1], fds[0]); /* the first is the listener's */
    assert_true(in_child(all_are_open, own));
    for (int i = 0; i < KINDS; i++)
        close(own[i]);
}

static bool lists_anew(void *inherited)
{
    int fds[KINDS];
    (void)inherited;
    open_all(fds);
    bool good = in_child(none_is_open, fds) && all_are_open(fds);
    for (int i = 0; i < KINDS; i++)
        snib__sys_close(fds[i]);
    return good;
}

static void child_of_a_child(void **state)
{
    int fds[KINDS];
    (void)state;
    open_all(fds);
    assert_true(in_child(lists_anew, fds));
    for (int i = 0; i < KINDS; i++)
        snib__sys_close(fds[i]);
}

/* ---- Calls -------------------------------------------------------------------------------------- */

int __real_snib__park(_Atomic uint32_t *word, uint32_t expected, snib__time until);
int __wrap_snib__park(_Atomic uint32_t *word, uint32_t expected, snib__time until);

static _Atomic int parks;
static _Thread_local int own_parks;

int __wrap_snib__park(_Atomic uint32_t *word, uint32_t expected, snib__time until)
{
    parks++;
    own_parks++;
    return __real_snib__park(word, expected, until);
}

struct call {
    bool lookup;
    int64_t lasts_ms; /* -1: until `ends` */
    snib__time since;
    _Atomic bool inside, left, ends;
};

static void rest(void)
{
    usleep(1000);
}

static void *call_run(void *argument)
{
    struct call *call = argument;
    snib__forks_enter();
    snib__forks_enter();
    snib__forks_leave();
    if (call->lookup)
        snib__forks_lookup(true);
    call->inside = true;
    if (call->lasts_ms >= 0)
        usleep((useconds_t)call->lasts_ms * 1000);
    while (call->lasts_ms < 0 && !call->ends)
        rest();
    call->left = true;
    if (call->lookup)
        snib__forks_lookup(false);
    snib__forks_leave();
    return NULL;
}

static pthread_t call_begin(struct call *call)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, call_run, call), 0);
    while (!call->inside)
        rest();
    return thread;
}

static bool call_has_left(void *call)
{
    return ((struct call *)call)->left;
}

/* No child finds a call half done, unless it lasts for longer than a fork waits.  On a busy machine it may: then again. */
static void waited_for(void **state)
{
    (void)state;
    for (int lookup = 0; lookup < 2; lookup++) {
        const snib__time waits = (lookup ? 100 : 2000) * SNIB__MS;
        bool left = false;
        for (int i = 0; i < 50 && !left; i++) {
            struct call call = {.lookup = lookup, .lasts_ms = 30, .since = snib__now()};
            pthread_t thread = call_begin(&call);
            left = in_child(call_has_left, &call);
            assert_true(left || snib__now() - call.since >= waits);
            pthread_join(thread, NULL);
        }
        assert_true(left);
    }
}

/* A fork that has nothing to wait for, after a call. */
static bool can_call(void *argument)
{
    struct call call = {.lookup = true};
    (void)argument;
    call_run(&call);
    int before = parks;
    snib__forks_prepare();
    snib__forks_parent();
    return parks == before;
}

/* A fork does not wait for ever, and the child can do without those that it has cut. */
static void not_for_ever(void **state)
{
    (void)state;
    for (int lookup = 0; lookup < 2; lookup++) {
        struct call call = {.lookup = lookup, .lasts_ms = -1};
        pthread_t thread = call_begin(&call);
        for (int i = 0; i < 2; i++)
            assert_true(in_child(can_call, NULL));
        assert_false(call.left);
        call.ends = true;
        pthread_join(thread, NULL);
        assert_true(can_call(NULL));
    }
}

enum { PATIENT = 20 };

/* Calls that begin one after another, until so many have waited for a fork that does not end. */
static void *calls_again(void *argument)
{
    struct call *again = argument;
    for (int waited = 0; !again->ends && waited < PATIENT;) {
        int before = own_parks;
        snib__forks_enter();
        snib__forks_leave();
        waited += own_parks != before;
        again->inside = true;
        rest();
    }
    again->left = true;
    return NULL;
}

/* ... nor until no other call goes on meanwhile. */
static void beside_others(void **state)
{
    struct call call = {.lasts_ms = -1}, again = {0};
    pthread_t calls = call_begin(&call), others;
    (void)state;
    assert_int_equal(pthread_create(&others, NULL, calls_again, &again), 0);
    while (!again.inside)
        rest();
    assert_true(in_child(can_call, NULL));
    assert_false(again.left);
    assert_false(call.left);
    again.ends = call.ends = true;
    pthread_join(others, NULL);
    pthread_join(calls, NULL);
}

int __real_dl_iterate_phdr(int (*tell)(struct dl_phdr_info *, size_t, void *), void *data);
int __wrap_dl_iterate_phdr(int (*tell)(struct dl_phdr_info *, size_t, void *), void *data);

void __real_snib__forks_enter(void);
void __real_snib__forks_leave(void);
void __wrap_snib__forks_enter(void);
void __wrap_snib__forks_leave(void);

static _Thread_local int depth; /* of calls that a fork waits for */
static int listed, cut;         /* questions to the loader; those that a fork would cut in two */

void __wrap_snib__forks_enter(void)
{
    __real_snib__forks_enter();
    depth++;
}

void __wrap_snib__forks_leave(void)
{
    depth--;
    __real_snib__forks_leave();
}

int __wrap_dl_iterate_phdr(int (*tell)(struct dl_phdr_info *, size_t, void *), void *data)
{
    listed++;
    cut += depth == 0;
    return __real_dl_iterate_phdr(tell, data);
}

void __real_snib__sys_begin(void);
void __wrap_snib__sys_begin(void);

static _Atomic bool begins, forked;

/* All handlers of forks are registered, and the library has not begun yet. */
void __wrap_snib__sys_begin(void)
{
    __real_snib__sys_begin();
    begins = true;
    while (!forked)
        rest();
}

static void *begin_run(void *unused)
{
    snib__api_init();
    return unused;
}

static bool nothing(void *unused)
{
    return !unused;
}

static bool forks_again(void *unused)
{
    forked = true;
    snib__api_init();
    return in_child(nothing, unused);
}

#ifdef __SANITIZE_THREAD__
static const bool has_own_once = true; /* which waits for ever in such a child */
#else
static const bool has_own_once = false;
#endif

/* What pthread_atfork() calls; the nth registration finds no memory. */
static int register_fails, registered;

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *module);
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *module)
{
    static int (*real)(void (*)(void), void (*)(void), void (*)(void), void *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "__register_atfork");
    return ++registered == register_fails ? ENOMEM : real(prepare, parent, child, module);
}

static bool none_opens(void *url)
{
    snib_client *client = NULL;
    forked = true; /* beginning does not wait for it */
    return snib_client_open(url, NULL, &client, NULL) == SNIB_ENOMEM && !client &&
           registered >= register_fails;
}

static bool one_opens(void *url)
{
    snib_client *client = NULL;
    forked = true;
    return snib_client_open(url, NULL, &client, NULL) == SNIB_OK;
}

/* If forks would not be noticed, there is no client: a child of it would use its parent's connections. */
static void when_forks_cannot_be_noticed(void **state)
{
    (void)state;
    enum { HANDLERS = 3 };
    for (register_fails = 1; register_fails <= HANDLERS; register_fails++)
        assert_true(in_child(none_opens, "redis://localhost"));
    assert_true(in_child(one_opens, "redis://localhost"));
    register_fails = 0;
}

/* A fork beside the library's first call: the child begins anew, and can fork, too. */
static void while_it_begins(void **state)
{
    pthread_t thread;
    (void)state;
    if (has_own_once) {
        forked = true;
        snib__api_init(); /* which the other tests need */
        print_message("          skipped: sanitizers have their own pthread_once()\n");
        skip();
    }
    assert_int_equal(pthread_create(&thread, NULL, begin_run, NULL), 0);
    while (!begins)
        rest();
    assert_true(in_child(forks_again, NULL));
    forked = true;
    pthread_join(thread, NULL);
    assert_true(listed > 0); /* the loader's lock does not survive a fork either */
    assert_int_equal(cut, 0);
}

/* A lookup that lasts does not shorten the wait for another call. */
static void beside_a_lookup(void **state)
{
    struct call lookup = {.lookup = true, .lasts_ms = -1}, call = {.lasts_ms = 300};
    (void)state;
    pthread_t looks = call_begin(&lookup), calls = call_begin(&call);
    assert_true(in_child(call_has_left, &call));
    assert_false(lookup.left);
    lookup.ends = true;
    pthread_join(looks, NULL);
    pthread_join(calls, NULL);
}

/* The thread that forks does not wait for itself, neither here nor in its child. */
static void inside_itself(void **state)
{
    (void)state;
    snib__forks_enter();
    snib__forks_lookup(true);
    assert_true(in_child(can_call, NULL));
    assert_true(can_call(NULL));
    snib__forks_lookup(false);
    snib__forks_leave();
    assert_true(can_call(NULL));
}

/* A call waits for a fork, but not for one that does not go on. */
static void calls_wait(void **state)
{
    pthread_t thread;
    (void)state;
    for (int stopped = 0; stopped < 2; stopped++) {
        struct call call = {0};
        int before = parks;
        snib__forks_prepare();
        assert_int_equal(pthread_create(&thread, NULL, call_run, &call), 0);
        while (parks == before)
            rest();
        if (!stopped)
            snib__forks_parent();
        pthread_join(thread, NULL);
        if (stopped)
            snib__forks_parent();
    }
    assert_true(can_call(NULL));
}

/* ---- Handlers that take their time -------------------------------------------------------------- */

enum { SLOW_CALLS = 3, SLOW_MS = 30000 };

static struct {
    snib_client *client;
    _Atomic bool wanted, begun;
    _Atomic int returned, good;
    int returned_meanwhile;
} slow;

/* Registered before Snib's, so it is the last before the fork. */
static void slow_handler(void)
{
    if (!slow.wanted)
        return;
    slow.begun = true;
    for (int ms = 0; ms < SLOW_MS && slow.returned < SLOW_CALLS; ms++)
        rest();
    slow.returned_meanwhile = slow.returned;
}

static bool slow_submit(void)
{
    snib_op *op = NULL;
    bool good = snib_client_ping_submit(slow.client, 0, NULL, 0, &op, NULL) == SNIB_OK;
    snib_op_free(op);
    return good;
}

static bool slow_stats(void)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    return snib_client_stats(slow.client, &stats, NULL) == SNIB_OK;
}

static bool slow_debug(void)
{
    bool locked = snib__uses_lock();
    if (locked)
        snib__uses_unlock();
    return locked;
}

static bool (*const slow_calls[SLOW_CALLS])(void) = {slow_submit, slow_stats, slow_debug};

static void *slow_run(void *number)
{
    while (!slow.begun)
        rest();
    slow.good += slow_calls[(uintptr_t)number]();
    slow.returned++;
    return NULL;
}

/* A fork takes as long as the program's handlers of it.  Other threads use their clients meanwhile. */
static void while_handlers_last(void **state)
{
    pthread_t threads[SLOW_CALLS];
    (void)state;
    forked = true; /* beginning does not wait for it */
    assert_int_equal(snib_client_open("unix:///nowhere", NULL, &slow.client, NULL), SNIB_OK);
    assert_true(slow_submit()); /* the client has its thread */
    for (uintptr_t i = 0; i < SLOW_CALLS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, slow_run, (void *)i), 0);
    slow.wanted = true;
    assert_true(in_child(nothing, NULL));
    slow.wanted = false;
    for (int i = 0; i < SLOW_CALLS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(slow.returned_meanwhile, SLOW_CALLS);
    assert_int_equal(slow.good, SLOW_CALLS);
    snib_client_free(slow.client);
}

int main(void)
{
    assert_int_equal(pthread_atfork(slow_handler, NULL, NULL), 0);
    registered = 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(when_forks_cannot_be_noticed),
        cmocka_unit_test(while_it_begins),
        cmocka_unit_test(while_handlers_last),
        cmocka_unit_test(child_has_none),
        cmocka_unit_test(child_keeps_the_programs),
        cmocka_unit_test(child_of_a_child),
        cmocka_unit_test(waited_for),
        cmocka_unit_test(not_for_ever),
        cmocka_unit_test(beside_others),
        cmocka_unit_test(beside_a_lookup),
        cmocka_unit_test(inside_itself),
        cmocka_unit_test(calls_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
