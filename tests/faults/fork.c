/* fork.c - a process forks, or exits, in every state of its clients.
 *
 * The parent keeps its locks.  The child can neither renew nor release them: every call on a hold,
 * an operation or a queue returns SNIB_EFORKED at once.  The inherited clients and locks continue
 * with a new identity and new connections; freeing them is safe, used or not.
 */
#define _GNU_SOURCE
#include "forks.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEASE_MS = 3000 };

/* What a child inherits; handles that do not exist in this state are NULL. */
struct inherited {
    struct server *server;
    struct handles h;
    bool held;    /* the lock "fork" */
    bool closing; /* the client may or may not be closed */
};

/* Every call on the parent's handles says so. */
static void child_calls(const struct handles *h)
{
    unsigned kinds =
        (h->hold ? HOLD_CALLS : 0u) | (h->op ? OP_CALLS : 0u) | (h->queue ? QUEUE_CALLS : 0u);
    const char *wrong = calls_answer(h, kinds, SNIB_EFORKED);
    if (wrong) {
        dprintf(2, "child: not SNIB_EFORKED: %s\n", wrong);
        _exit(1);
    }
}

/* The inherited client and locks work, under another identity. */
static void child_heirs(const struct inherited *in, const char *parent_id, bool held)
{
    char id[37], again[37];
    snib_lock *mine = NULL, *both = NULL;
    snib_hold *hold = NULL;
    snib_queue *queue = NULL;
    snib_client_stats_data stats = {.size = sizeof stats};
    char name[32];
    snprintf(name, sizeof name, "heir:%d", getpid());
    CHILD(snib_client_id(in->h.client, id, NULL) == SNIB_OK && strcmp(id, parent_id) != 0);
    CHILD(snib_client_id(in->h.client, again, NULL) == SNIB_OK && strcmp(id, again) == 0);
    CHILD(snib_lock_new(in->h.client, SNIB_MUTEX, name, strlen(name), NULL, &mine, NULL) ==
          SNIB_OK);
    CHILD(snib_lock_acquire(mine, 0, QUICK_MS, &hold, NULL) == SNIB_OK);
    CHILD(snib_hold_check(hold, NULL) == SNIB_OK);
    CHILD(snib_hold_release(hold, NULL) == SNIB_OK);
    snib_hold_free(hold);
    if (held) {
        CHILD(snib_lock_acquire(in->h.lock, 0, 0, &hold, NULL) == SNIB_BUSY);
        CHILD(snib_lock_acquire(in->h.lock, 5, 0, &hold, NULL) == SNIB_BUSY);
    }
    CHILD(snib_multi_new(&mine, 1, NULL, &both, NULL) == SNIB_OK);
    CHILD(snib_lock_acquire(both, 0, QUICK_MS, &hold, NULL) == SNIB_OK);
    CHILD(snib_queue_new(in->h.client, &queue, NULL) == SNIB_OK);
    CHILD(snib_hold_release(hold, NULL) == SNIB_OK);
    CHILD(snib_client_stats(in->h.client, &stats, NULL) == SNIB_OK);
    CHILD(stats.connects == 1 || stats.reconnects > 0); /* only its own */
}

/* A new client in the child finds the parent's lock held, and works. */
static void child_own_client(const struct inherited *in, bool held)
{
    snib_client *client = NULL;
    snib_lock *mine = NULL, *theirs = NULL;
    snib_hold *hold = NULL;
    char name[32];
    snprintf(name, sizeof name, "child:%d", getpid());
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.try_timeout_ms = patient_ms(1000); /* a wait of 0 fails only if it is busy */
    CHILD(snib_client_open(in->server->url, &options, &client, NULL) == SNIB_OK);
    CHILD(snib_lock_new(client, SNIB_MUTEX, name, strlen(name), NULL, &mine, NULL) == SNIB_OK);
    CHILD(snib_lock_new(client, SNIB_MUTEX, "fork", 4, NULL, &theirs, NULL) == SNIB_OK);
    CHILD(snib_lock_acquire(mine, 0, QUICK_MS, &hold, NULL) == SNIB_OK);
    CHILD(snib_hold_release(hold, NULL) == SNIB_OK);
    if (held)
        CHILD(snib_lock_acquire(theirs, 0, 0, &hold, NULL) == SNIB_BUSY);
    CHILD(snib_client_close(client, -1, NULL) == SNIB_OK);
    snib_client_free(client);
}

static void fork_once(const struct inherited *in, int run)
{
    char id[37];
    EXPECT(snib_client_id(in->h.client, id, err), SNIB_OK);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(CHILD_S); /* a hang ends as SIGALRM */
        child_calls(&in->h);
        if (run % 2 == 0 && !in->closing)
            child_heirs(in, id, in->held);
        int64_t start = now_ms();
        handles_free(&in->h);
        CHILD(now_ms() - start < QUICK_MS);
        if (run % 4 == 0)
            child_own_client(in, in->held);
        run % 8 == 0 ? exit(0) : _exit(0); /* with and without the exit handlers */
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0)
        fail_msg("child ended with status 0x%x", (unsigned)status);
}

static struct inherited inherit(struct server *server)
{
    struct inherited in = {.server = server, .h.client = must_open_lease(server->url, LEASE_MS)};
    handles_locks(&in.h, "fork");
    return in;
}

static void idle(void **state)
{
    for (int run = 0; run < count_of(200, 60); run++) {
        struct inherited in = inherit(*state);
        if (run % 2) /* before and after the first operation started the thread */
            EXPECT(snib_client_ping(in.h.client, -1, err), SNIB_OK);
        in.h.queue = must_queue(in.h.client);
        fork_once(&in, run);
        must_release(must_acquire(in.h.lock, 0));
        snib_client_free(in.h.client);
    }
}

static void turns(snib_lock *lock, int64_t *count, int n)
{
    for (int i = 0; i < n; i++) {
        snib_hold *hold = NULL;
        CHILD(snib_lock_acquire(lock, 0, -1, &hold, NULL) == SNIB_OK);
        int64_t seen = *(volatile int64_t *)count;
        nap_us(50);
        *(volatile int64_t *)count = seen + 1;
        CHILD(snib_hold_release(hold, NULL) == SNIB_OK);
        snib_hold_free(hold);
    }
}

/* A worker takes turns on the inherited lock, and so does a process that it forks meanwhile. */
static _Noreturn void work(snib_lock *lock, int64_t *count)
{
    int status = 0;
    alarm(CHILD_S);
    turns(lock, count, 10);
    pid_t pid = fork();
    alarm(CHILD_S);
    turns(lock, count, 10);
    if (pid > 0)
        CHILD(waitpid(pid, &status, 0) == pid && status == 0);
    _exit(0);
}

/* Servers that fork their workers after creating the client and the locks: turns exclude each
 * other, and none is lost; locks of each kind, of a client that was used before and of one that was
 * not. */
static void prefork(void **state)
{
    enum { WORKERS = 4, KINDS = 6 };
    struct server *server = *state, other;
    server_start(&other, NULL);
    for (int run = 0; run < 2 * KINDS; run++) {
        snib_client *client = must_open(server->url), *second = must_open(other.url);
        snib_lock *members[] = {must_lock(client, "work"), must_lock(second, "work")};
        snib_lock *lock = members[0];
        static const int32_t kinds[] = {SNIB_FAIR, SNIB_WRITE, SNIB_FENCED, SNIB_PLAIN};
        if (run / 2 < 4)
            lock = must_lock_kind(client, kinds[run / 2], "work");
        else if (run / 2 == 4)
            EXPECT(snib_multi_new(members, 2, NULL, &lock, err), SNIB_OK);
        if (run % 2)
            must_release(must_acquire(lock, 0));
        int64_t *count =
            mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t pids[WORKERS];
        for (int i = 0; i < WORKERS; i++)
            if ((pids[i] = fork()) == 0)
                work(lock, count);
        for (int i = 0, status; i < WORKERS; i++) {
            assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
            assert_int_equal(status, 0);
        }
        assert_int_equal(*count, WORKERS * (10 + 2 * 10));
        must_release(must_acquire(lock, 0));
        munmap(count, sizeof *count);
        snib_client_free(client);
        snib_client_free(second);
    }
    server_stop(&other);
}

/* The child has no descriptor of the parent's clients from the beginning, and closes its own. */
static void descriptors_closed(void **state)
{
    for (int run = 0; run < 3; run++) {
        int before = descriptors_inherited(), status;
        struct inherited in = inherit(*state);
        in.h.queue = must_queue(in.h.client);
        must_release(must_acquire(in.h.lock, 0));
        pid_t pid = fork();
        if (pid == 0) {
            snib_hold *hold;
            alarm(CHILD_S);
            CHILD(descriptors() == before);
            if (run >= 1)
                CHILD(snib_lock_acquire(in.h.lock, 0, QUICK_MS, &hold, NULL) == SNIB_OK &&
                      snib_hold_release(hold, NULL) == SNIB_OK);
            if (run == 2)
                CHILD(snib_client_close(in.h.client, -1, NULL) == SNIB_OK);
            handles_free(&in.h);
            if (run >= 1)
                snib_hold_free(hold);
            CHILD(descriptors() == before);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        must_release(must_acquire(in.h.lock, 0));
        handles_free(&in.h);
    }
}

/* Files of a daemon: it closes all that it has inherited, so they have the same numbers. */
struct own {
    int fd[24];
    ino_t file[24];
};

static void child_opens_own(struct own *own)
{
    struct stat info;
    CHILD(close_range(3, ~0U, 0) == 0);
    for (int i = 0; i < 24; i++) {
        CHILD((own->fd[i] = memfd_create("own", MFD_CLOEXEC)) >= 0);
        CHILD(fstat(own->fd[i], &info) == 0);
        own->file[i] = info.st_ino;
    }
}

/* They are open, and empty. */
static void child_has_own(const struct own *own)
{
    struct stat info;
    for (int i = 0; i < 24; i++)
        CHILD(fstat(own->fd[i], &info) == 0 && info.st_ino == own->file[i] && info.st_size == 0);
}

/* The child closes no descriptor by the number that it had in the parent. */
static void own_files(void **state)
{
    for (int run = 0; run < 4; run++) {
        int status;
        struct inherited in = inherit(*state);
        in.h.queue = must_queue(in.h.client);
        must_release(must_acquire(in.h.lock, 0));
        pid_t pid = fork();
        if (pid == 0) {
            static struct own own;
            snib_hold *hold = NULL;
            alarm(CHILD_S);
            run == 3 ? (void)close_range(3, ~0U, 0) : child_opens_own(&own);
            if (run >= 1)
                CHILD(snib_lock_acquire(in.h.lock, 0, QUICK_MS, &hold, NULL) == SNIB_OK);
            if (run < 3)
                child_has_own(&own);
            snib_queue_free(in.h.queue);
            in.h.queue = NULL;
            if (run == 2)
                CHILD(snib_client_close(in.h.client, -1, NULL) == SNIB_OK);
            else if (run >= 1)
                CHILD(snib_hold_release(hold, NULL) == SNIB_OK);
            handles_free(&in.h);
            if (run < 3)
                child_has_own(&own);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        handles_free(&in.h);
        expect_free(*state, "fork");
    }
}

static void *ping_run(void *client)
{
    (void)snib_client_ping(client, -1, NULL);
    return NULL;
}

static void *drain_run(void *queue)
{
    snib_event event = {.size = sizeof event};
    (void)snib_queue_wait(queue, &event, 1, -1, NULL);
    return NULL;
}

/* What other threads of the parent use during the fork can be freed in the child all the same. */
static void freed_in_use(void **state)
{
    int before = descriptors_inherited(), status;
    struct inherited in = inherit(*state);
    pthread_t threads[2];
    in.h.queue = must_queue(in.h.client);
    must_release(must_acquire(in.h.lock, 0));
    server_pause(in.server);
    uint64_t sent = must_stats(in.h.client).writes;
    assert_int_equal(pthread_create(&threads[0], NULL, ping_run, in.h.client), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, drain_run, in.h.queue), 0);
    AWAIT(must_stats(in.h.client).writes > sent, 1000);
    AWAIT(snib_queue_drain(in.h.queue, &(snib_event){.size = sizeof(snib_event)}, 1, NULL) ==
              SNIB_EINUSE,
          1000);
    pid_t pid = fork();
    if (pid == 0) {
        snib_hold *hold;
        alarm(CHILD_S);
        snib_queue_free(in.h.queue);
        snib_client_free(in.h.client);
        CHILD(descriptors() == before);
        CHILD(snib_queue_wake(in.h.queue) == SNIB_EHANDLE);
        CHILD(snib_client_ping(in.h.client, 0, NULL) == SNIB_EHANDLE);
        CHILD(snib_lock_acquire(in.h.lock, 0, 0, &hold, NULL) == SNIB_ECLOSED);
        CHILD(descriptors() == before);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    server_continue(in.server);
    EXPECT(snib_queue_wake(in.h.queue), SNIB_OK);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    must_release(must_acquire(in.h.lock, 0));
    handles_free(&in.h);
}

/* Locks with options, each of which shows in use. */
static void child_options(snib_lock *fixed, snib_lock *limited, snib_lock *fenced, snib_lock *votes)
{
    snib_hold *hold = NULL;
    snib_error error;
    int32_t reason = SNIB_REASON_NONE;
    CHILD(snib_lock_acquire(fixed, 0, QUICK_MS, &hold, NULL) == SNIB_OK);
    CHILD(snib_hold_remaining_ms(hold) > 60000);
    snib_hold_free(hold);
    CHILD(snib_lock_acquire(fenced, 0, QUICK_MS, &hold, NULL) == SNIB_OK);
    CHILD(snib_hold_token(hold) == 1);
    snib_hold_free(hold);
    CHILD(snib_lock_acquire(limited, 0, QUICK_MS, &hold, NULL) == SNIB_OK);
    CHILD(snib_hold_wait(hold, QUICK_MS, &reason, NULL) == SNIB_LOST);
    CHILD(reason == SNIB_REASON_MAX_HOLD);
    snib_hold_free(hold);
    CHILD(snib_lock_acquire(votes, 0, 0, &hold, &error) == SNIB_BUSY); /* its nodes are too young */
}

/* A lock keeps in the child the options that it was made with. */
static void options_inherited(void **state)
{
    enum { NODES = 3 };
    struct inherited in = inherit(*state);
    struct server nodes[NODES];
    snib_client *clients[NODES];
    snib_lock *members[NODES], *votes = NULL;
    snib_lock_options options;
    snib_lock *fixed = must_lock_lease(in.h.client, "fixed", 80000, 0);
    snib_lock *limited = must_lock_lease(in.h.client, "limited", 0, 200);
    snib_lock_options_init(&options, sizeof options);
    options.flags = SNIB_LOCK_FENCED;
    snib_lock *fenced = must_lock_with(in.h.client, SNIB_FAIR, "fenced", &options);
    for (int i = 0; i < NODES; i++) {
        server_start(&nodes[i], NULL);
        clients[i] = must_open_lease(nodes[i].url, 60000);
        members[i] = must_lock(clients[i], "votes");
    }
    EXPECT(snib_quorum_new(members, NODES, NULL, &votes, err), SNIB_OK);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(CHILD_S);
        child_options(fixed, limited, fenced, votes);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (int i = 0; i < NODES; i++) {
        snib_client_free(clients[i]);
        server_stop(&nodes[i]);
    }
    snib_client_free(in.h.client);
    server_do(in.server, "FLUSHALL");
}

/* What was closed stays closed; what a child frees without using it still belongs to the parent. */
static void closed_before(void **state)
{
    struct inherited in = inherit(*state);
    snib_client *closed = must_open(in.server->url);
    snib_lock *lock = must_lock(closed, "closed");
    EXPECT(snib_client_close(closed, -1, err), SNIB_OK);
    pid_t pid = fork();
    if (pid == 0) {
        snib_hold *hold;
        alarm(CHILD_S);
        CHILD(snib_lock_acquire(lock, 0, -1, &hold, NULL) == SNIB_ECLOSED);
        CHILD(snib_client_ping(closed, -1, NULL) == SNIB_ECLOSED);
        CHILD(snib_client_close(closed, -1, NULL) == SNIB_OK);
        snib_lock_free(lock);
        snib_client_free(closed);
        CHILD(snib_client_close(in.h.client, -1, NULL) == SNIB_OK);
        CHILD(snib_client_ping(in.h.client, -1, NULL) == SNIB_ECLOSED);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    must_release(must_acquire(in.h.lock, 0));
    snib_client_free(closed);
    snib_client_free(in.h.client);
}

/* Handlers of fork() that were registered before Snib's: they run before the child's copies know that they are copies,
 * and while Snib keeps the list of clients locked over the fork. */
static struct {
    const struct inherited *in; /* NULL: no test of them is under way */
    pid_t parent;
    bool wrong;
} early;

static void use_early(void)
{
    snib_client *other = NULL;
    if (!early.in)
        return;
    early.wrong |= snib_hold_check(early.in->h.hold, NULL) != SNIB_EFORKED ||
                   snib_client_ping(early.in->h.client, 0, NULL) != SNIB_EFORKED ||
                   snib_client_open(early.in->server->url, NULL, &other, NULL) != SNIB_EFORKED;
    if (getpid() == early.parent)
        return;
    snib_hold_free(early.in->h.hold);
    snib_client_free(early.in->h.client);
}

static void early_handlers(void **state)
{
    struct inherited in = inherit(*state);
    in.h.hold = must_acquire(in.h.lock, 0);
    in.held = true;
    early.in = &in;
    early.parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        alarm(CHILD_S);
        CHILD(!early.wrong);
        CHILD(snib_hold_check(in.h.hold, NULL) == SNIB_EFORKED);
        CHILD(snib_client_ping(in.h.client, -1, NULL) == SNIB_OK);
        snib_client_free(in.h.client);
        _exit(0);
    }
    early.in = NULL;
    assert_true(pid > 0);
    assert_false(early.wrong);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    EXPECT(snib_hold_check(in.h.hold, err), SNIB_OK);
    must_release(in.h.hold);
    snib_client_free(in.h.client);
}

static void holding(void **state)
{
    struct inherited in = inherit(*state);
    in.h.queue = must_queue(in.h.client);
    in.h.hold = must_acquire(in.h.lock, 0);
    in.held = true;
    char owner[128];
    EXPECT(snib_hold_owner(in.h.hold, owner, err), SNIB_OK);
    int64_t start = now_ms();
    for (int run = 0; run < count_of(200, 60) || now_ms() - start < 2 * LEASE_MS; run++) {
        fork_once(&in, run);
        assert_int_not_equal(snib_hold_state(in.h.hold, NULL), SNIB_HOLD_LOST);
        expect_held_by(in.server, "fork", owner);
    }
    must_release(in.h.hold);
    expect_free(in.server, "fork");
    snib_client_free(in.h.client);
}

/* A hold of each kind, including a multi lock, and a waiter in a fair queue. */
static void holding_all_kinds(void **state)
{
    enum { KINDS = 11 };
    struct inherited in = inherit(*state);
    snib_client *rival = must_open(in.server->url);
    snib_lock *locks[KINDS];
    snib_hold *holds[KINDS];
    snib_lock *fair = must_lock_kind(rival, SNIB_FAIR, "queue");
    snib_hold *theirs = must_acquire(fair, 0);
    for (int i = 0; i < KINDS - 1; i++) {
        static const int32_t kinds[] = {SNIB_MUTEX, SNIB_FAIR,  SNIB_READ,      SNIB_WRITE,
                                        SNIB_SPIN,  SNIB_PLAIN, SNIB_SEMAPHORE, SNIB_PERMITS,
                                        SNIB_MUTEX, SNIB_FENCED};
        char name[16];
        snprintf(name, sizeof name, "kind:%d", i);
        locks[i] = must_lock_kind(in.h.client, kinds[i], name);
        if (kinds[i] == SNIB_SEMAPHORE || kinds[i] == SNIB_PERMITS)
            must_count(kinds[i], locks[i], SNIB_COUNT_INIT, 1);
    }
    EXPECT(snib_multi_new(&locks[KINDS - 3], 2, NULL, &locks[KINDS - 1], err), SNIB_OK);
    for (int i = 0; i < KINDS; i++)
        holds[i] = i < KINDS - 3 || i == KINDS - 1 ? must_acquire(locks[i], 0) : NULL;
    in.h.queue = must_queue(in.h.client);
    EXPECT(snib_lock_acquire_submit(must_lock_kind(in.h.client, SNIB_FAIR, "queue"), 0, -1,
                                    in.h.queue, 7, &in.h.op, err),
           SNIB_OK);
    AWAIT(server_integer(in.server, "LLEN redisson_lock_queue:{queue}") == 1, 1000);
    int64_t start = now_ms();
    for (int run = 0; run < count_of(200, 40) || now_ms() - start < 2 * LEASE_MS; run++) {
        in.h.hold = holds[run % KINDS];
        fork_once(&in, run);
        for (int i = 0; i < KINDS; i++) {
            int32_t reason = SNIB_REASON_NONE;
            if (holds[i] && snib_hold_state(holds[i], &reason) == SNIB_HOLD_LOST)
                fail_msg("run %d: hold %d was lost (%s)", run, i, snib_reason_text(reason));
        }
        assert_int_equal(server_integer(in.server, "LLEN redisson_lock_queue:{queue}"), 1);
    }
    must_release(theirs);
    snib_event event = must_event(in.h.queue, 1000);
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    for (int i = 0; i < KINDS; i++)
        if (holds[i])
            must_release(holds[i]);
    snib_client_free(in.h.client);
    snib_client_free(rival);
    server_do(in.server, "FLUSHALL");
}

/* An operation of this process waits for another client's lock while the process forks. */
static void waiting(void **state)
{
    struct inherited in = inherit(*state);
    snib_client *rival = must_open_lease(in.server->url, LEASE_MS);
    snib_hold *theirs = must_acquire(must_lock(rival, "fork"), 0);
    in.h.queue = must_queue(in.h.client);
    EXPECT(snib_lock_acquire_submit(in.h.lock, 0, -1, in.h.queue, 7, &in.h.op, err), SNIB_OK);
    AWAIT(server_channels(in.server) == 1, 1000);
    for (int run = 0; run < count_of(200, 60); run++)
        fork_once(&in, run);
    must_release(theirs);
    snib_event event = must_event(in.h.queue, 1000);
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    snib_client_free(in.h.client);
    snib_client_free(rival);
}

struct traffic {
    snib_lock *lock;
    atomic_bool stop;
    atomic_int pairs;
};

static void *traffic_run(void *argument)
{
    struct traffic *traffic = argument;
    while (!traffic->stop) {
        must_release(must_acquire(traffic->lock, -1));
        traffic->pairs++;
    }
    return NULL;
}

/* Other threads are inside acquire and release during the fork. */
static void acquiring(void **state)
{
    struct inherited in = inherit(*state);
    struct traffic traffic[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        traffic[i] = (struct traffic){.lock = must_lock(in.h.client, i ? "traffic" : "other")};
        assert_int_equal(pthread_create(&threads[i], NULL, traffic_run, &traffic[i]), 0);
    }
    for (int run = 0; run < count_of(200, 60); run++) {
        int before = traffic[0].pairs;
        fork_once(&in, run);
        AWAIT(traffic[0].pairs > before, 2000);
    }
    for (int i = 0; i < 3; i++) {
        traffic[i].stop = true;
        pthread_join(threads[i], NULL);
    }
    snib_client_free(in.h.client);
    assert_true(server_is_empty(in.server));
}

static void *close_run(void *argument)
{
    struct inherited *in = argument;
    nap_us(random() % 300);
    EXPECT(snib_client_close(in->h.client, QUICK_MS, err), SNIB_OK);
    return NULL;
}

static void closing(void **state)
{
    for (int run = 0; run < count_of(200, 60); run++) {
        struct inherited in = inherit(*state);
        snib_hold *hold = must_acquire(in.h.lock, 0);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, close_run, &in), 0);
        nap_us(random() % 300);
        in.closing = true;
        fork_once(&in, run);
        pthread_join(thread, NULL);
        expect_free(in.server, "fork");
        snib_hold_free(hold);
        snib_client_free(in.h.client);
    }
}

/* ---- Exit ------------------------------------------------------------------------------------ */

static void *wait_run(void *lock)
{
    snib_hold *hold;
    (void)snib_lock_acquire(lock, 0, -1, &hold, NULL); /* until the process exits */
    return NULL;
}

/* The states in which a process calls exit(): holding renewed and fixed locks, waiting, losing. */
static void leave(struct server *server, int run)
{
    alarm(CHILD_S);
    snib_client *client = NULL;
    snib_lock *held = NULL, *contended = NULL;
    snib_lock_options options;
    snib_hold *hold = NULL;
    pthread_t thread;
    CHILD(snib_client_open(server->url, NULL, &client, NULL) == SNIB_OK);
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = 100;
    char name[32];
    snprintf(name, sizeof name, "leave:%d", getpid());
    CHILD(snib_lock_new(client, SNIB_MUTEX, name, strlen(name), &options, &held, NULL) == SNIB_OK);
    CHILD(snib_lock_new(client, SNIB_MUTEX, "fork", 4, NULL, &contended, NULL) == SNIB_OK);
    for (int tries = 0; snib_lock_acquire(held, 0, 0, &hold, NULL) != SNIB_OK; tries++)
        CHILD(tries < 100); /* on a busy machine the reply may come after so short a lease */
    if (run % 3 >= 1)
        CHILD(pthread_create(&thread, NULL, wait_run, contended) == 0);
    if (run % 3 == 2)
        nap_us(85000 + random() % 10000 + run * 37 % 10000); /* about when the hold is lost */
    else
        nap_us(random() % 3000);
    if (run % 2)
        snib_client_free(client);
    exit(0);
}

static void exit_in_every_state(void **state)
{
    struct server *server = *state;
    snib_client *client = must_open(server->url);
    snib_hold *hold = must_acquire(must_lock(client, "fork"), 0);
    for (int run = 0; run < count_of(300, 90); run++) {
        pid_t pid = fork();
        if (pid == 0)
            leave(server, run);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (status != 0)
            fail_msg("process ended with status 0x%x in state %d", (unsigned)status, run % 3);
    }
    must_release(hold);
    AWAIT(server_is_empty(server) && server_channels(server) == 0, 10000);
    snib_client_free(client);
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
    assert_int_equal(pthread_atfork(use_early, use_early, use_early), 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle),
        cmocka_unit_test(prefork),
        cmocka_unit_test(closed_before),
        cmocka_unit_test(early_handlers),
        cmocka_unit_test(descriptors_closed),
        cmocka_unit_test(own_files),
        cmocka_unit_test(freed_in_use),
        cmocka_unit_test(options_inherited),
        cmocka_unit_test(holding),
        cmocka_unit_test(holding_all_kinds),
        cmocka_unit_test(waiting),
        cmocka_unit_test(acquiring),
        cmocka_unit_test(closing),
        cmocka_unit_test(exit_in_every_state),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
