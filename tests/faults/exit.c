/* exit.c - a C program that exits gives back its holds: of every kind, from any thread, in bounded
 * time, and none of its parent's. */
#define _GNU_SOURCE
#include "../support/support.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void snib__forks_enter(void);

enum { NO_SPACE = 77, LEASE_MS = 60000, CHILD_S = 120, HANG_S = 30, QUICK_MS = 15000, MANY = 25 };

#define CHILD(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(2, "child, line %d: %s\n", __LINE__, #condition);                              \
            _exit(99);                                                                             \
        }                                                                                          \
    } while (0)

static snib_client *child_client(const struct server *server)
{
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS;
    alarm(CHILD_S); /* a hang ends as SIGALRM */
    CHILD(snib_client_open(server->url, &options, &client, NULL) == SNIB_OK);
    return client;
}

static snib_lock *child_lock(snib_client *client, int32_t kind, const char *name)
{
    snib_lock *lock = NULL;
    CHILD(snib_lock_new(client, kind, name, strlen(name), NULL, &lock, NULL) == SNIB_OK);
    return lock;
}

static snib_hold *child_hold(snib_lock *lock)
{
    snib_hold *hold = NULL;
    CHILD(snib_lock_acquire(lock, 0, QUICK_MS, &hold, NULL) == SNIB_OK);
    return hold;
}

static void expect_status(pid_t pid, int want)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != want)
        fail_msg("child ended with status 0x%x", (unsigned)status);
}

static bool is_held(struct server *server, const char *name)
{
    return server_integer(server, "EXISTS %s", name) == 1;
}

static void *exit_run(void *code)
{
    exit(*(int *)code);
}

static void *wait_run(void *lock)
{
    snib_hold *hold;
    (void)snib_lock_acquire(lock, 0, -1, &hold, NULL); /* until the process exits */
    return NULL;
}

static snib_hold *late;

static void release_late(void)
{
    CHILD(snib_hold_release(late, NULL) == SNIB_OK);
}

/* Of each kind, and a lock of locks of two clients; from the main thread and from another; with a
 * waiter. */
static void every_kind(void **state)
{
    static const int32_t kinds[] = {SNIB_MUTEX,  SNIB_FAIR, SNIB_READ, SNIB_WRITE,
                                    SNIB_FENCED, SNIB_SPIN, SNIB_PLAIN};
    struct server *server = *state;
    for (int run = 0; run < 4; run++) {
        pid_t pid = fork();
        if (pid == 0) {
            snib_client *client = child_client(server), *second = child_client(server);
            char name[] = "kind:0";
            for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++, name[5]++)
                child_hold(child_lock(client, kinds[i], name));
            snib_lock *members[] = {child_lock(client, SNIB_MUTEX, "one"),
                                    child_lock(second, SNIB_MUTEX, "two")};
            snib_lock *both = NULL;
            CHILD(snib_multi_new(members, 2, NULL, &both, NULL) == SNIB_OK);
            child_hold(both);
            static int code = 7;
            pthread_t thread;
            if (run & 1)
                CHILD(pthread_create(&thread, NULL, wait_run,
                                     child_lock(second, SNIB_MUTEX, "kind:0")) == 0);
            if (run & 2) {
                CHILD(pthread_create(&thread, NULL, exit_run, &code) == 0);
                pthread_join(thread, NULL);
            }
            exit(code);
        }
        expect_status(pid, 7 << 8);
        AWAIT(server_channels(server) == 0, QUICK_MS);
        for (char name[] = "kind:0"; name[5] < '7'; name[5]++)
            assert_false(is_held(server, name));
        assert_false(is_held(server, "one"));
        assert_false(is_held(server, "two"));
        server_do(server, "FLUSHALL");
    }
}

/* After some clients were freed, those opened before and after them are still closed. */
static void some_were_freed(void **state)
{
    enum { CLIENTS = 5 };
    struct server *server = *state;
    for (unsigned freed = 0; freed < 1u << CLIENTS; freed += 3) {
        pid_t pid = fork();
        if (pid == 0) {
            snib_client *clients[CLIENTS];
            snib_lock *locks[CLIENTS];
            snib_hold *holds[CLIENTS];
            for (int i = 0; i < CLIENTS; i++) {
                char name[] = "freed:0";
                name[6] += (char)i;
                clients[i] = child_client(server);
                locks[i] = child_lock(clients[i], SNIB_MUTEX, name);
                holds[i] = child_hold(locks[i]);
            }
            for (int i = 0; i < CLIENTS; i++)
                if (freed >> i & 1) { /* with everything that refers to it */
                    CHILD(snib_hold_release(holds[i], NULL) == SNIB_OK);
                    snib_hold_free(holds[i]);
                    snib_lock_free(locks[i]);
                    snib_client_free(clients[i]);
                }
            exit(0);
        }
        expect_status(pid, 0);
        for (char name[] = "freed:0"; name[6] < '0' + CLIENTS; name[6]++)
            assert_false(is_held(server, name));
    }
}

/* The program's own exit handlers come first. */
static void after_handlers(void **state)
{
    struct server *server = *state;
    pid_t pid = fork();
    if (pid == 0) {
        late = child_hold(child_lock(child_client(server), SNIB_MUTEX, "late"));
        CHILD(atexit(release_late) == 0);
        exit(0);
    }
    expect_status(pid, 0);
    assert_false(is_held(server, "late"));
}

static void switched_off(void **state)
{
    struct server *server = *state;
    EXPECT(snib_set_exit_timeout(-1, err), SNIB_EINVAL);
    EXPECT(snib_set_exit_timeout(60001, err), SNIB_EINVAL);
    pid_t pid = fork();
    if (pid == 0) {
        child_hold(child_lock(child_client(server), SNIB_MUTEX, "off"));
        CHILD(snib_set_exit_timeout(0, NULL) == SNIB_OK);
        exit(0);
    }
    expect_status(pid, 0);
    assert_true(is_held(server, "off"));
    server_do(server, "FLUSHALL");
}

/* A silent server delays the exit for no longer than the limit. */
static void no_answer(void **state)
{
    struct server *server = *state;
    int ready[2], go[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < MANY; i++) {
            char name[] = "mute:a";
            name[5] += (char)i;
            child_hold(child_lock(child_client(server), SNIB_MUTEX, name));
        }
        CHILD(write(ready[1], &byte, 1) == 1);
        CHILD(read(go[0], &byte, 1) == 1);
        exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    server_pause(server);
    int64_t start = now_ms();
    assert_int_equal(write(go[1], &byte, 1), 1);
    expect_status(pid, 0);
    assert_in_range(now_ms() - start, 0, QUICK_MS); /* neither the lease, nor a patience for each */
    server_continue(server);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(go[i]);
    }
    server_do(server, "FLUSHALL");
}

/* Mistakes that are found when the process exits, so many. */
static void child_debugs(const struct server *server, const char *name, int mistakes)
{
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.debug = 1;
    alarm(HANG_S);
    CHILD(snib_client_open(server->url, &options, &client, NULL) == SNIB_OK);
    for (int i = 0; i < mistakes; i++) {
        char numbered[64];
        snprintf(numbered, sizeof numbered, "%s:%d", name, i);
        child_hold(child_lock(client, SNIB_MUTEX, i ? numbered : name));
    }
}

/* Where standard error leads: what is written to ends[1] can be read from ends[0]. */
enum output { PIPE, SOCKET, TERMINAL, REGULAR, OUTPUTS };

static void output_open(enum output output, int ends[2])
{
    char path[] = "/tmp/snib-test-XXXXXX";
    if (output == PIPE) {
        assert_int_equal(pipe(ends), 0);
    } else if (output == SOCKET) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    } else if (output == TERMINAL) {
        ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
        if (ends[0] < 0 || grantpt(ends[0]) != 0 || unlockpt(ends[0]) != 0)
            skip_because("no terminals");
        ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
        assert_true(ends[1] >= 0);
    } else {
        ends[1] = mkstemp(path);
        ends[0] = open(path, O_RDONLY);
        assert_true(ends[0] >= 0 && ends[1] >= 0 && unlink(path) == 0);
    }
}

/* Write until there is no room. */
static void output_fill(int fd)
{
    char page[4096] = "";
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    for (size_t n = sizeof page; n > 0; n /= 2)
        while (write(fd, page, n) > 0)
            ;
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
}

static pid_t exits_with(struct server *server, const char *name, int mistakes, int error)
{
    pid_t pid = fork();
    if (pid == 0) {
        child_debugs(server, name, mistakes);
        CHILD(dup2(error, STDERR_FILENO) >= 0);
        exit(0);
    }
    return pid;
}

/* Nor does standard error delay or end it if nobody reads there, or ever will: what the option debug finds is left out. */
static void unread_standard_error(void **state)
{
    struct server *server = *state;
    for (int output = PIPE; output <= SOCKET; output++)
        for (int gone = 0; gone < 2; gone++) {
            int ends[2];
            output_open((enum output)output, ends);
            if (gone)
                close(ends[0]);
            else
                output_fill(ends[1]);
            expect_status(exits_with(server, "unread", 1, ends[1]), 0);
            assert_false(is_held(server, "unread"));
            if (!gone)
                close(ends[0]);
            close(ends[1]);
        }
}

/* The same for a pipe that is another user's, and cannot be opened once more: a line is written if somebody reads. */
static void another_users_pipe(void **state)
{
    struct server *server = *state;
    for (int gone = 0; gone < 2; gone++) {
        char line[64];
        int ends[2];
        assert_true(pipe(ends) == 0 && fchmod(ends[1], 0) == 0);
        if (gone)
            close(ends[0]);
        pid_t pid = fork();
        if (pid == 0) {
            child_debugs(server, "unread", 1);
            CHILD(dup2(ends[1], STDERR_FILENO) >= 0);
            CHILD(geteuid() != 0 || setresuid(65534, 65534, 65534) == 0);
            exit(0);
        }
        close(ends[1]);
        expect_status(pid, 0);
        assert_false(is_held(server, "unread"));
        if (!gone) {
            assert_true(read(ends[0], line, sizeof line) > 0);
            close(ends[0]);
        }
    }
}

static bool has_room(int fd)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    return poll(&room, 1, 10) == 1;
}

/* A terminal has room for less than what is to be written, and its reader, a program that is stopped, makes none. */
static void unread_terminal(void **state)
{
    enum { LINES = 8, ROOM = 256 }; /* it gets room in such steps */
    struct server *server = *state;
    int ends[2];
    char bytes[ROOM];
    memset(bytes, '.', sizeof bytes);
    output_open(TERMINAL, ends);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    for (int full = 0; full < 20;) { /* meanwhile the kernel hands on what has been written */
        full = write(ends[1], bytes, sizeof bytes) > 0 ? 0 : full + 1;
        nap_us(full ? 1000 : 0);
    }
    assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0);
    while (!has_room(ends[1]))
        assert_true(read(ends[0], bytes, sizeof bytes) > 0);
    expect_status(exits_with(server, "unread", LINES, ends[1]), 0);
    assert_true(server_is_empty(server));
    close(ends[0]);
    close(ends[1]);
}

static void expect_text(int from, const char *text)
{
    char all[4096] = "";
    for (size_t n = 0; n < sizeof all - 1 && !strstr(all, text);) {
        ssize_t got = read(from, all + n, sizeof all - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    assert_non_null(strstr(all, text));
}

/* Otherwise it is said there. */
static void told_at_exit(void **state)
{
    struct server *server = *state;
    for (int output = 0; output < OUTPUTS; output++) {
        int ends[2];
        output_open((enum output)output, ends);
        expect_status(exits_with(server, "told", 1, ends[1]), 0);
        if (output != TERMINAL) /* what is in it would be lost */
            close(ends[1]);
        expect_text(ends[0], "snib: debug: mutex \"told\", acquired at ");
        if (output == TERMINAL)
            close(ends[1]);
        close(ends[0]);
    }
}

/* The descriptor may be any: a program that has closed standard error reads a pipe there. */
static void told_to_nobody(void **state)
{
    struct server *server = *state;
    int ends[2];
    char byte;
    output_open(PIPE, ends);
    expect_status(exits_with(server, "told", 1, ends[0]), 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

static void *close_run(void *client)
{
    CHILD(snib_client_close(client, QUICK_MS, NULL) == SNIB_OK);
    return NULL;
}

/* A process that ends with its last thread has closed its clients before: theirs are threads, too. */
static void with_the_last_thread(void **state)
{
    struct server *server = *state;
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        snib_client *client = child_client(server);
        child_hold(child_lock(client, SNIB_MUTEX, "last"));
        alarm(HANG_S);
        CHILD(pthread_create(&thread, NULL, close_run, client) == 0);
        pthread_exit(NULL);
    }
    expect_status(pid, 0);
    assert_false(is_held(server, "last"));
}

/* A forked child that exits gives back its own holds and none of the parent's. */
static void not_the_parents(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open_lease(server->url, LEASE_MS);
    snib_hold *hold = must_acquire(must_lock(client, "parents"), 0);
    for (int run = 0; run < 3; run++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(CHILD_S);
            if (run >= 1)
                child_hold(child_lock(client, SNIB_MUTEX, "childs"));
            if (run == 2)
                (void)snib_hold_release(hold, NULL); /* SNIB_EFORKED */
            exit(0);
        }
        expect_status(pid, 0);
        assert_false(is_held(server, "childs"));
        assert_true(is_held(server, "parents"));
    }
    must_release(hold);
    snib_client_free(client);
}

/* Nor does a child that was made without the handlers of fork(), to which all still looks like its own. */
static void not_without_handlers(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open_lease(server->url, LEASE_MS);
    snib_hold *hold = must_acquire(must_lock(client, "parents"), 0);
    pid_t pid = _Fork();
    if (pid == 0) {
        alarm(HANG_S);
        exit(0);
    }
    expect_status(pid, 0);
    assert_true(is_held(server, "parents"));
    EXPECT(snib_hold_extend(hold, LEASE_MS, err), SNIB_OK);
    must_release(hold);
    snib_client_free(client);
}

/* The first process of a namespace gets no signal without a handler. */
static void hangs(int signal)
{
    (void)signal;
    _exit(98);
}

static int exit_as_first(void *unused)
{
    (void)unused;
    CHILD(getpid() == 1);
    alarm(HANG_S);
    exit(0);
}

/* The first process of a container holds a lock, and makes a child that is the first of its own: as a sandbox does. */
static void first_process(const struct server *server)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    int status;
    CHILD(getpid() == 1);
    snib_hold *hold = child_hold(child_lock(child_client(server), SNIB_MUTEX, "parents"));
    pid_t pid = clone(exit_as_first, stack + sizeof stack, CLONE_NEWPID | SIGCHLD, NULL);
    if (pid < 0)
        _exit(NO_SPACE);
    CHILD(waitpid(pid, &status, 0) == pid && status == 0);
    CHILD(snib_hold_extend(hold, LEASE_MS, NULL) == SNIB_OK);
    exit(0);
}

/* In a namespace of its own such a child has the number 1, which may be its parent's, too. */
static void not_with_the_same_number(void **state)
{
    struct server *server = *state;
    pid_t pid = fork();
    if (pid == 0) {
        int status;
        CHILD(signal(SIGALRM, hangs) != SIG_ERR);
        if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
            _exit(NO_SPACE);
        if ((pid = fork()) == 0)
            first_process(server);
        CHILD(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        _exit(WEXITSTATUS(status));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_SPACE)
        skip_because("no namespace for process ids");
    assert_int_equal(status, 0);
    assert_false(is_held(server, "parents"));
}

static sem_t forking;

static void forking_begins(void)
{
    sem_post(&forking);
}

static void exit_by_signal(int signal)
{
    exit(signal == SIGUSR1 ? 0 : 99);
}

static void *fork_run(void *unused)
{
    (void)fork();
    return unused;
}

/* A signal's handler calls exit() while its thread waits in fork() for others: the process ends, and leases do. */
static void from_within_a_fork(void **state)
{
    struct server *server = *state;
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        snib_client *client = child_client(server);
        child_hold(child_lock(client, SNIB_MUTEX, "left"));
        alarm(HANG_S);
        CHILD(sem_init(&forking, 0, 0) == 0 && signal(SIGUSR1, exit_by_signal) != SIG_ERR);
        CHILD(pthread_atfork(forking_begins, NULL, NULL) == 0); /* before Snib's handler */
        snib__forks_enter(); /* a call that must not be cut in two */
        CHILD(pthread_create(&thread, NULL, fork_run, NULL) == 0);
        CHILD(sem_wait(&forking) == 0);
        nap_us(100000); /* then it waits */
        CHILD(pthread_kill(thread, SIGUSR1) == 0);
        for (;;)
            pause();
    }
    expect_status(pid, 0);
    server_do(server, "FLUSHALL");
}

static int start(void **state)
{
    static struct server server;
    server_start(&server, NULL);
    *state = &server;
    return 0;
}

static int stop(void **state)
{
    server_stop(*state);
    return 0;
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0); /* or a child's exit() would print the parent's lines again */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind),
        cmocka_unit_test(some_were_freed),
        cmocka_unit_test(after_handlers),
        cmocka_unit_test(switched_off),
        cmocka_unit_test(no_answer),
        cmocka_unit_test(with_the_last_thread),
        cmocka_unit_test(unread_standard_error),
        cmocka_unit_test(another_users_pipe),
        cmocka_unit_test(unread_terminal),
        cmocka_unit_test(told_at_exit),
        cmocka_unit_test(told_to_nobody),
        cmocka_unit_test(not_the_parents),
        cmocka_unit_test(not_without_handlers),
        cmocka_unit_test(not_with_the_same_number),
        cmocka_unit_test(from_within_a_fork),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
