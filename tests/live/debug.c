/* debug.c - the option debug: each mistake that it knows, made by a program and reported with file and line; and
 * programs without mistakes, of which nothing is reported. */
#define _GNU_SOURCE /* gettid, pthread_setname_np */
#define SNIB_DEBUG_PLACES
#include "../support/support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHORT_MS = 100, PROMPT_MS = 20000, LONG_MS = 120000, RECORD_CAP = 248 };

static struct server server;
static int line_of[16]; /* of the places that a test expects, by its own numbers */

/* The line is that of the call, where the macros of the header take it from. */
#define AT(number) (line_of[number] = __LINE__)

static int start(void **state)
{
    (void)state;
    server_start(&server, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

struct world {
    snib_client *client;
    snib_queue *log;
};

static struct world world_open(int64_t debug_hold_ms)
{
    struct world world = {NULL, NULL};
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.debug = 1;
    options.debug_hold_ms = debug_hold_ms;
    options.try_timeout_ms = patient_ms(1000); /* a wait of 0 fails only if it is busy */
    EXPECT(snib_client_open(server.url, &options, &world.client, err), SNIB_OK);
    world.log = must_queue(world.client);
    EXPECT(snib_client_log(world.client, world.log, SNIB_LOG_WARNING, err), SNIB_OK);
    return world;
}

static void world_free(struct world *world)
{
    snib_queue_free(world->log);
    snib_client_free(world->client);
}

/* Not that a renewal is late, which is said on a machine that stalls. */
static bool is_expected(const snib_event *event)
{
    return event->kind == SNIB_EVENT_LOG && !strstr(event->text, " ms late");
}

/* Who acquires, when nobody says so: this thread. */
static const char *me(void)
{
    static char text[48];
    snprintf(text, sizeof text, "thread live_debug (%d)", (int)gettid());
    return text;
}

/* The next warning that the program is to blame for. */
static const char *warning(struct world *world)
{
    static snib_event event;
    do
        event = must_event(world->log, PROMPT_MS);
    while (!is_expected(&event));
    assert_int_equal(event.reason, SNIB_LOG_WARNING);
    return event.text;
}

static void expect_warning(struct world *world, const char *want)
{
    const char *text = warning(world);
    if (strcmp(text, want) != 0)
        fail_msg("want %s\nhave %s", want, text);
}

static void expect_none(struct world *world)
{
    snib_event event;
    while (snib_queue_drain(world->log, &event, 1, NULL) != 0)
        if (is_expected(&event))
            fail_msg("%s", event.text);
}

/* Take one, and another under it; release both. */
static void nest(snib_lock *outer, int outer_number, snib_lock *inner, int inner_number)
{
    snib_hold *one, *two;
    EXPECT((AT(outer_number), snib_lock_acquire(outer, 0, PROMPT_MS, &one, err)), SNIB_OK);
    EXPECT((AT(inner_number), snib_lock_acquire(inner, 0, PROMPT_MS, &two, err)), SNIB_OK);
    must_release(two);
    must_release(one);
}

/* ---- Mistakes -------------------------------------------------------------------------------------- */

static void pay(snib_lock *from, snib_lock *to)
{
    nest(from, 0, to, 1);
}

/* Nobody has to wait for it to be found. */
static void other_order(void **state)
{
    (void)state;
    char want[RECORD_CAP];
    struct world world = world_open(0);
    snib_lock *a = must_lock(world.client, "a"), *b = must_lock(world.client, "b");
    pay(a, b);
    expect_none(&world);
    snib_hold *one, *two;
    EXPECT((AT(2), snib_lock_acquire(b, 0, PROMPT_MS, &one, err)), SNIB_OK);
    EXPECT((AT(3), snib_lock_acquire(a, 0, PROMPT_MS, &two, err)), SNIB_OK);
    snprintf(
        want, sizeof want,
        "debug: lock order: \"b\" (debug.c:%d) then \"a\" (debug.c:%d), but \"a\" (debug.c:%d) "
        "then \"b\" (debug.c:%d): this can deadlock; take them in one order",
        line_of[2], line_of[3], line_of[0], line_of[1]);
    expect_warning(&world, want);
    must_release(two);
    must_release(one);
    nest(b, 2, a, 3); /* it is told once */
    expect_none(&world);
    snib_lock_free(a);
    snib_lock_free(b);
    world_free(&world);
}

/* Three locks, of two clients: no two of them are ever taken in both orders. */
static void circle_of_three(void **state)
{
    (void)state;
    struct world world = world_open(0), other = world_open(0);
    snib_lock *x = must_lock(world.client, "x"), *y = must_lock(other.client, "y"),
              *z = must_lock(world.client, "z"), *x_again = must_lock(other.client, "x");
    nest(x, 0, y, 1);
    nest(y, 2, z, 3);
    expect_none(&world);
    expect_none(&other);
    nest(z, 4, x_again, 5);
    const char *text = warning(&other);
    assert_non_null(strstr(text, "lock order: \"z\" (debug.c:"));
    assert_non_null(strstr(text, "then \"x\" (debug.c:"));
    assert_non_null(strstr(text, "\"y\" (debug.c:"));
    expect_none(&world);
    snib_lock_free(x);
    snib_lock_free(y);
    snib_lock_free(z);
    snib_lock_free(x_again);
    world_free(&world);
    world_free(&other);
}

/* A multi lock keeps the members that it has while it waits for the next, unless one command takes both: a caller that
 * takes them singly may wait for it as it waits for that. */
static void members_of_several_parts(void **state)
{
    (void)state;
    char want[RECORD_CAP];
    struct world world = world_open(0);
    snib_lock *a = must_lock(world.client, "p1"), *d = must_lock(world.client, "p4"), *all;
    snib_lock *b = must_lock_kind(world.client, SNIB_READ, "p2"),
              *c = must_lock_kind(world.client, SNIB_FAIR, "p3");
    snib_hold *hold;
    EXPECT(snib_multi_new((snib_lock *[]){a, b, c, d}, 4, NULL, &all, err), SNIB_OK);
    EXPECT(snib_lock_acquire(all, 0, 0, &hold, err), SNIB_OK); /* an attempt */
    must_release(hold);
    nest(c, 0, a, 1);
    expect_none(&world);
    EXPECT((AT(2), snib_lock_acquire(all, 0, PROMPT_MS, &hold, err)), SNIB_OK);
    snprintf(
        want, sizeof want,
        "debug: lock order: \"p1\" (debug.c:%d) then \"p3\" (debug.c:%d), but \"p3\" (debug.c:%d) "
        "then \"p1\" (debug.c:%d): this can deadlock; take them in one order",
        line_of[2], line_of[2], line_of[0], line_of[1]);
    expect_warning(&world, want);
    must_release(hold);
    nest(b, 0, a, 1); /* one command takes both of them, or none */
    expect_none(&world);
    nest(d, 0, a, 1);
    const char *text = warning(&world);
    assert_non_null(strstr(text, "lock order: \"p4\" (debug.c:"));
    assert_non_null(strstr(text, "then \"p4\" (debug.c:"));
    snib_lock_free(a);
    snib_lock_free(b);
    snib_lock_free(c);
    snib_lock_free(d);
    snib_lock_free(all);
    world_free(&world);
}

/* A reader waits behind a preferred writer, and that waits for other readers. */
static void preferred_writers(void **state)
{
    (void)state;
    struct world world = world_open(0);
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.flags = SNIB_LOCK_PREFER_WRITER;
    snib_lock *a = must_lock_kind(world.client, SNIB_READ, "v1"),
              *b = must_lock_kind(world.client, SNIB_READ, "v2"), *writes[2];
    nest(a, 0, b, 1);
    EXPECT(snib_lock_new(world.client, SNIB_WRITE, "v1", 2, &options, &writes[0], err), SNIB_OK);
    nest(a, 0, b, 1);
    nest(b, 2, a, 3);
    expect_none(&world); /* v2 can be read at any time */
    EXPECT(snib_lock_new(world.client, SNIB_WRITE, "v2", 2, &options, &writes[1], err), SNIB_OK);
    nest(b, 2, a, 3);
    const char *text = warning(&world);
    assert_non_null(strstr(text, "lock order: \"v2\" (debug.c:"));
    assert_non_null(strstr(text, "but \"v1\" (debug.c:"));
    snib_lock_free(a);
    snib_lock_free(b);
    snib_lock_free(writes[0]);
    snib_lock_free(writes[1]);
    world_free(&world);
}

/* What one record has no room for comes in one for each pair. */
static void long_circle(void **state)
{
    (void)state;
    enum { N = 5 };
    struct world world = world_open(0);
    snib_lock *locks[N];
    char name[64], want[40];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "a rather long name of a lock: %d", i);
        locks[i] = must_lock(world.client, name);
    }
    for (int i = 0; i < N; i++)
        nest(locks[i], 0, locks[(i + 1) % N], 1);
    for (int i = 1; i <= N; i++) {
        snprintf(want, sizeof want, "debug: lock order, %d of %d: ", i, N);
        const char *text = warning(&world);
        assert_int_equal(strncmp(text, want, strlen(want)), 0);
        assert_non_null(strstr(text, "take the locks in one order"));
    }
    for (int i = 0; i < N; i++)
        snib_lock_free(locks[i]);
    world_free(&world);
}

static void itself(void **state)
{
    (void)state;
    char want[RECORD_CAP];
    struct world world = world_open(0);
    snib_lock *lock = must_lock(world.client, "self");
    snib_hold *hold;
    snib_op *op;
    EXPECT((AT(0), snib_lock_acquire(lock, 0, PROMPT_MS, &hold, err)), SNIB_OK);
    EXPECT((AT(1), snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &op, err)), SNIB_OK);
    snprintf(
        want, sizeof want,
        "debug: mutex \"self\" is awaited at debug.c:%d by the caller (%s) that has held it since "
        "debug.c:%d: it waits for itself; release it first, or use a re-entrant lock",
        line_of[1], me(), line_of[0]);
    expect_warning(&world, want);
    snib_op_free(op);
    must_release(hold);
    snib_lock_free(lock);
    world_free(&world);
}

/* Its hold has been lost: now another has the lock.  A caller that does wait for itself, begun later, is told. */
static void lost_before(void **state)
{
    (void)state;
    struct world world = world_open(0);
    snib_client *other = must_open(server.url);
    snib_lock *lock = must_lock_lease(world.client, "gone", SHORT_MS, 0);
    snib_lock *theirs = must_lock(other, "gone"), *self = must_lock(world.client, "self");
    snib_hold *lost, *hold;
    snib_op *again, *op;
    EXPECT((AT(0), snib_lock_acquire(lock, 0, PROMPT_MS, &lost, err)), SNIB_OK);
    EXPECT(snib_hold_wait(lost, patient_ms(PROMPT_MS), NULL, err), SNIB_LOST);
    assert_non_null(strstr(warning(&world), "was lost: expired"));
    snib_hold *held = must_acquire(theirs, PROMPT_MS);
    EXPECT((AT(1), snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &again, err)), SNIB_OK);
    EXPECT((AT(2), snib_lock_acquire(self, 0, PROMPT_MS, &hold, err)), SNIB_OK);
    EXPECT((AT(3), snib_lock_acquire_submit(self, 0, -1, NULL, 0, &op, err)), SNIB_OK);
    assert_non_null(strstr(warning(&world), "mutex \"self\" is awaited at"));
    assert_int_equal(must_stats(world.client).debug_warnings, 1);
    snib_op_free(again);
    snib_op_free(op);
    must_release(held);
    must_release(hold);
    snib_hold_free(lost);
    snib_lock_free(lock);
    snib_lock_free(theirs);
    snib_lock_free(self);
    world_free(&world);
    snib_client_free(other);
}

static void too_long(void **state)
{
    (void)state;
    char want[RECORD_CAP];
    struct world world = world_open(SHORT_MS);
    snib_lock *lock = must_lock(world.client, "long");
    snib_hold *hold;
    EXPECT((AT(0), snib_lock_acquire(lock, 0, PROMPT_MS, &hold, err)), SNIB_OK);
    snprintf(want, sizeof want,
             "debug: mutex \"long\", acquired at debug.c:%d by %s, is still held after ",
             line_of[0], me());
    const char *text = warning(&world);
    assert_int_equal(strncmp(text, want, strlen(want)), 0);
    assert_non_null(strstr(text, " s, longer than debug_hold: release it sooner"));
    must_release(hold);
    snib_lock_free(lock);
    world_free(&world);
}

static void held_at_the_close(void **state)
{
    (void)state;
    char want[RECORD_CAP];
    struct world world = world_open(0);
    snib_lock *lock = must_lock(world.client, "left");
    snib_hold *hold, *dropped;
    EXPECT((AT(0), snib_lock_acquire(lock, 0, PROMPT_MS, &hold, err)), SNIB_OK);
    snprintf(
        want, sizeof want,
        "debug: mutex \"left\", acquired at debug.c:%d by %s, is still held when its client is "
        "closed: release it first",
        line_of[0], me());
    snib_lock *other = must_lock(world.client, "dropped");
    EXPECT(snib_lock_acquire(other, 0, PROMPT_MS, &dropped, err), SNIB_OK);
    snib_hold_abandon(dropped);
    const char *text = warning(&world);
    assert_non_null(strstr(text, "\"dropped\" was acquired at debug.c:"));
    assert_non_null(strstr(text, me()));
    assert_non_null(strstr(warning(&world), "dropped without a release"));
    EXPECT(snib_client_close(world.client, -1, err), SNIB_OK);
    expect_warning(&world, want);
    snib_hold_free(hold);
    snib_lock_free(lock);
    snib_lock_free(other);
    world_free(&world);
}

/* What is lost is not held, even if only the clock shows it and the client has not looked at it since. */
static void lost_at_the_close(void **state)
{
    (void)state;
    snib_event event;
    struct world world = world_open(0);
    snib_lock *lock = must_lock(world.client, "over"), *other = must_lock(world.client, "gone");
    snib_hold *hold, *dropped;
    EXPECT(snib_lock_acquire(lock, 0, PROMPT_MS, &hold, err), SNIB_OK);
    EXPECT(snib_lock_acquire(other, 0, PROMPT_MS, &dropped, err), SNIB_OK);
    EXPECT(snib_advance_clock(LONG_MS, err), SNIB_OK);
    snib_hold_abandon(dropped);
    EXPECT(snib_client_close(world.client, -1, err), SNIB_OK);
    while (snib_queue_drain(world.log, &event, 1, NULL) > 0)
        if (strncmp(event.text, "debug: ", strlen("debug: ")) == 0)
            fail_msg("%s", event.text);
    snib_hold_free(hold);
    snib_lock_free(lock);
    snib_lock_free(other);
    world_free(&world);
}

/* The program whose output `never_freed` reads. */
static int leaky(const char *url)
{
    snib_client_options options;
    snib_client *client;
    snib_lock *lock;
    snib_hold *hold;
    snib_client_options_init(&options, sizeof options);
    options.debug = 1;
    if (snib_client_open(url, &options, &client, NULL) ||
        snib_lock_new(client, SNIB_MUTEX, "leaked", 6, NULL, &lock, NULL) ||
        snib_lock_acquire(lock, 0, -1, &hold, NULL))
        return 1;
    return 0;
}

static void never_freed(void **state)
{
    (void)state;
    char text[4096];
    size_t n = 0;
    ssize_t more;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        execl("/proc/self/exe", "live_debug", "leaky", server.url, (char *)NULL);
        _exit(2);
    }
    close(ends[1]);
    while ((more = read(ends[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)more;
    text[n] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0)
        fail_msg("%d: %s", status, text);
    assert_non_null(strstr(text, "snib: debug: mutex \"leaked\", acquired at debug.c:"));
    assert_non_null(strstr(text, ", is still held when its client is closed"));
    assert_non_null(strstr(text, "snib: debug: mutex \"leaked\", made at debug.c:"));
    assert_non_null(strstr(text, "snib: debug: a client, made at debug.c:"));
}

/* ---- Who -------------------------------------------------------------------------------------------- */

/* Where the 16 oldest holds are from, and whose they are, is told to whoever asks who holds them: the calling thread
 * unless the program says it, cleaned; in a group, of its members. */
static bool tells(snib_client *client, const char *owner, const char *place, const char *who)
{
    static char buffer[65536];
    char at[256], by[256];
    size_t used = 0;
    uint32_t count = 0;
    bool has[2] = {false, false};
    EXPECT(snib_client_identity(client, owner, strlen(owner), buffer, sizeof buffer, &used, &count,
                                err),
           SNIB_OK);
    snprintf(at, sizeof at, "at %s %s", strchr(owner, ':') + 1, place);
    snprintf(by, sizeof by, "by %s %s", strchr(owner, ':') + 1, who);
    for (const char *line = buffer; line < buffer + used; line += strlen(line) + 1) {
        has[0] |= strcmp(line, at) == 0;
        has[1] |= strcmp(line, by) == 0;
    }
    return has[0] && (has[1] || !who[0]);
}

static const char *owner_of(snib_hold *hold)
{
    static char owner[128];
    EXPECT(snib_hold_owner(hold, owner, err), SNIB_OK);
    return owner;
}

struct named {
    snib_lock *lock;
    snib_hold *hold;
    char who[48];
};

static void *acquire_named(void *argument)
{
    struct named *named = argument;
    assert_int_equal(pthread_setname_np(pthread_self(), "work\ner"), 0);
    snprintf(named->who, sizeof named->who, "thread work?er (%d)", (int)gettid());
    EXPECT((AT(0), snib_lock_acquire(named->lock, 0, PROMPT_MS, &named->hold, err)), SNIB_OK);
    return NULL;
}

static void who_holds_it(void **state)
{
    (void)state;
    enum { LEASE_MS = 6000 };
    char place[64];
    snib_client_options options;
    snib_client *client;
    snib_client_options_init(&options, sizeof options);
    options.debug = 1;
    options.debug_hold_ms = -1;
    options.lease_ms = LEASE_MS;
    EXPECT(snib_client_open(server.url, &options, &client, err), SNIB_OK);
    struct named named = {.lock = must_lock(client, "w1")};
    snib_lock *task = must_lock(client, "w2"), *nobody = must_lock(client, "w3");
    snib_lock *part = must_lock(client, "w4"), *queued = must_lock_kind(client, SNIB_FAIR, "w5"),
              *all;
    snib_hold *holds[3];
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, acquire_named, &named), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    snib_debug_here(
        "/src/tasks.c:7 in run()\ntask 12\n\x1b[2J and a name that has no end, to be cut", 3);
    EXPECT((snib_lock_acquire)(task, 0, PROMPT_MS, &holds[0], err), SNIB_OK);
    snib_debug_here("tasks.c:8\n", 4);
    EXPECT((snib_lock_acquire)(nobody, 0, PROMPT_MS, &holds[1], err), SNIB_OK);
    snprintf(place, sizeof place, "debug.c:%d", line_of[0]);
    AWAIT(tells(client, owner_of(named.hold), place, named.who), PROMPT_MS);
    AWAIT(tells(client, owner_of(holds[0]), "tasks.c:7 in run()",
                "task 12??[2J and a name that has no end, to be "),
          PROMPT_MS);
    AWAIT(tells(client, owner_of(holds[1]), "tasks.c:8", ""), PROMPT_MS);
    EXPECT(snib_multi_new((snib_lock *[]){part, queued}, 2, NULL, &all, err), SNIB_OK);
    EXPECT((AT(1), snib_lock_acquire(all, 0, PROMPT_MS, &holds[2], err)), SNIB_OK);
    snib_lock_info_data info = {.size = sizeof info};
    EXPECT(snib_lock_info(queued, &info, err), SNIB_OK);
    snprintf(place, sizeof place, "debug.c:%d", line_of[1]);
    AWAIT(tells(client, info.owner, place, me()), PROMPT_MS);
    must_release(named.hold);
    for (int i = 0; i < 3; i++)
        must_release(holds[i]);
    snib_lock_free(all);
    snib_lock_free(part);
    snib_lock_free(queued);
    snib_lock_free(named.lock);
    snib_lock_free(task);
    snib_lock_free(nobody);
    snib_client_free(client);
}

/* Whether the places of any holds are told. */
static bool tells_place(snib_client *client, const char *owner, const char *place)
{
    static char buffer[65536];
    size_t used = 0;
    uint32_t count = 0;
    bool found = false;
    EXPECT(snib_client_identity(client, owner, strlen(owner), buffer, sizeof buffer, &used, &count,
                                err),
           SNIB_OK);
    for (const char *line = buffer; line < buffer + used; line += strlen(line) + 1)
        found |= strstr(line, place) != NULL;
    return found;
}

/* What is said of a call counts for that one, whatever comes of it, and not for the next one of the thread. */
static void place_is_of_one_call(void **state)
{
    (void)state;
    snib_client_options options;
    snib_client *client, *without = must_open(server.url);
    snib_client_options_init(&options, sizeof options);
    options.debug = 1;
    EXPECT((snib_client_open)(server.url, &options, &client, err), SNIB_OK);
    snib_lock *lock = must_lock(client, "p1"), *other = must_lock(client, "p2"), *none = NULL;
    snib_lock *plain = must_lock(without, "p3");
    snib_hold *hold, *second;
    for (int way = 0; way < 3; way++) {
        snib_debug_here("first.c:1", 0);
        if (way == 0)
            EXPECT((snib_lock_acquire)(lock, 0, -7, &hold, err), SNIB_EINVAL);
        else if (way == 1)
            EXPECT((snib_lock_new)(client, 99, "x", 1, NULL, &none, err), SNIB_ENOTSUP);
        else
            EXPECT((snib_lock_acquire)(plain, 0, PROMPT_MS, &second, err), SNIB_OK);
        if (way == 2)
            must_release(second);
        EXPECT((snib_lock_acquire)(lock, 0, PROMPT_MS, &hold, err), SNIB_OK);
        snib_debug_here("second.c:2", 0);
        EXPECT((snib_lock_acquire)(other, 0, PROMPT_MS, &second, err), SNIB_OK);
        AWAIT(tells_place(client, owner_of(second), "second.c:2"), PROMPT_MS);
        assert_false(tells_place(client, owner_of(hold), "first.c:1"));
        must_release(second);
        must_release(hold);
    }
    snib_lock_free(lock);
    snib_lock_free(other);
    snib_lock_free(plain);
    snib_client_free(client);
    snib_client_free(without);
}

/* ---- No mistakes ----------------------------------------------------------------------------------- */

/* One order, whatever comes between; attempts without a wait are in none. */
static void one_order(void **state)
{
    (void)state;
    struct world world = world_open(0);
    snib_lock *a = must_lock(world.client, "c1"), *b = must_lock(world.client, "c2");
    snib_hold *one, *two, *three;
    for (int i = 0; i < 3; i++)
        nest(a, 0, b, 1);
    EXPECT(snib_lock_acquire(b, 0, PROMPT_MS, &one, err), SNIB_OK);
    EXPECT(snib_lock_acquire(a, 0, 0, &two, err), SNIB_OK); /* an attempt */
    must_release(two);
    must_release(one);
    EXPECT(snib_lock_acquire(a, 7, PROMPT_MS, &one, err), SNIB_OK);
    EXPECT(snib_lock_acquire(b, 7, PROMPT_MS, &two, err), SNIB_OK);
    EXPECT(snib_lock_acquire(a, 7, PROMPT_MS, &three, err), SNIB_OK); /* a re-entry */
    must_release(three);
    must_release(two);
    must_release(one);
    expect_none(&world);
    EXPECT(snib_client_close(world.client, -1, err), SNIB_OK);
    expect_none(&world);
    snib_lock_free(a);
    snib_lock_free(b);
    world_free(&world);
}

/* Members that are taken together are in no order among themselves; readers do not wait for readers. */
static void together(void **state)
{
    (void)state;
    struct world world = world_open(0);
    snib_lock *a = must_lock(world.client, "m1"), *b = must_lock(world.client, "m2"), *both,
              *turned;
    snib_lock *r = must_lock_kind(world.client, SNIB_READ, "r1"),
              *s = must_lock_kind(world.client, SNIB_READ, "r2");
    EXPECT(snib_multi_new((snib_lock *[]){a, b}, 2, NULL, &both, err), SNIB_OK);
    EXPECT(snib_multi_new((snib_lock *[]){b, a}, 2, NULL, &turned, err), SNIB_OK);
    nest(both, 0, r, 1);
    nest(turned, 0, r, 1);
    nest(r, 0, s, 1);
    nest(s, 0, r, 1);
    expect_none(&world);
    nest(r, 0, a, 1); /* but a reader may wait for one who holds both */
    expect_none(&world);
    nest(s, 0, a, 1);
    snib_lock *w = must_lock_kind(world.client, SNIB_WRITE, "r1");
    nest(w, 0, a, 1);
    assert_non_null(strstr(warning(&world), "lock order: \"r1\""));
    snib_lock_free(a);
    snib_lock_free(b);
    snib_lock_free(both);
    snib_lock_free(turned);
    snib_lock_free(r);
    snib_lock_free(s);
    snib_lock_free(w);
    world_free(&world);
}

struct handed {
    snib_lock *second;
    snib_hold *hold;
};

static void *finish(void *argument)
{
    struct handed *handed = argument;
    snib_hold *hold;
    must_release(handed->hold);
    EXPECT(snib_lock_acquire(handed->second, 0, PROMPT_MS, &hold, err), SNIB_OK);
    must_release(hold);
    return NULL;
}

/* A hold that one thread gives another; permits that several threads give each other. */
static void handed_over(void **state)
{
    (void)state;
    struct world world = world_open(0);
    struct handed handed = {must_lock(world.client, "h2"), NULL};
    snib_lock *first = must_lock(world.client, "h1");
    snib_lock *permits = must_lock_kind(world.client, SNIB_SEMAPHORE, "h3");
    int64_t value;
    pthread_t thread;
    EXPECT(snib_semaphore_count(permits, SNIB_COUNT_INIT, 2, &value, err), SNIB_OK);
    for (int i = 0; i < 2; i++) {
        snib_hold *one, *two;
        EXPECT(snib_lock_acquire(first, 0, PROMPT_MS, &handed.hold, err), SNIB_OK);
        assert_int_equal(pthread_create(&thread, NULL, finish, &handed), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        EXPECT(snib_semaphore_acquire(permits, 1, PROMPT_MS, &one, err), SNIB_OK);
        EXPECT(snib_semaphore_acquire(permits, 1, PROMPT_MS, &two, err), SNIB_OK);
        nest(first, 0, handed.second, 1);
        must_release(one);
        EXPECT(snib_lock_acquire(handed.second, 0, PROMPT_MS, &handed.hold, err), SNIB_OK);
        EXPECT(snib_semaphore_acquire(permits, 1, PROMPT_MS, &one, err), SNIB_OK);
        must_release(handed.hold);
        must_release(one);
        must_release(two);
    }
    expect_none(&world);
    snib_lock_free(first);
    snib_lock_free(handed.second);
    snib_lock_free(permits);
    world_free(&world);
}

/* A client without the option says nothing, and is in no order. */
static void off(void **state)
{
    (void)state;
    snib_client *client = must_open(server.url);
    snib_queue *log = must_queue(client);
    snib_event event;
    EXPECT(snib_client_log(client, log, SNIB_LOG_WARNING, err), SNIB_OK);
    snib_lock *a = must_lock(client, "o1"), *b = must_lock(client, "o2");
    nest(a, 0, b, 1);
    nest(b, 0, a, 1);
    assert_int_equal(snib_queue_drain(log, &event, 1, NULL), 0);
    snib_lock_free(a);
    snib_lock_free(b);
    snib_queue_free(log);
    snib_client_free(client);
}

/* More pairs than are kept: told once; what is known goes on being checked. */
static void many(void **state)
{
    (void)state;
    enum { MANY = 4096 };
    struct world world = world_open(-1); /* `first` is held for as long as it takes */
    snib_lock *first = must_lock(world.client, "first");
    snib_hold *hold, *inner;
    EXPECT(snib_lock_acquire(first, 0, PROMPT_MS, &hold, err), SNIB_OK);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        snib_lock *lock = must_lock(world.client, name);
        EXPECT(snib_lock_acquire(lock, 0, PROMPT_MS, &inner, err), SNIB_OK);
        must_release(inner);
        snib_lock_free(lock);
    }
    assert_non_null(strstr(warning(&world), "the order of locks is known for 4096 pairs"));
    must_release(hold);
    expect_none(&world);
    snib_lock_free(first);
    world_free(&world);
}

/* More mistakes than are remembered: told once, and the others are no longer told.  So this is the last test. */
static void too_many(void **state)
{
    (void)state;
    enum { MANY = 4097 };
    static snib_hold *holds[MANY];
    struct world world = world_open(SHORT_MS);
    snib_event event;
    bool told = false;
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        snib_lock *lock = must_lock(world.client, name);
        EXPECT(snib_lock_acquire(lock, 0, 0, &holds[i], err), SNIB_OK); /* in no order */
        snib_lock_free(lock);
    }
    while (!told) {
        event = must_event(world.log, PROMPT_MS);
        told = strstr(event.text, "mistakes have been reported, which is the limit") != NULL;
    }
    expect_none(&world);
    for (int i = 0; i < MANY; i++)
        snib_hold_free(holds[i]);
    world_free(&world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_order),
        cmocka_unit_test(circle_of_three),
        cmocka_unit_test(members_of_several_parts),
        cmocka_unit_test(preferred_writers),
        cmocka_unit_test(long_circle),
        cmocka_unit_test(itself),
        cmocka_unit_test(lost_before),
        cmocka_unit_test(too_long),
        cmocka_unit_test(held_at_the_close),
        cmocka_unit_test(lost_at_the_close),
        cmocka_unit_test(never_freed),
        cmocka_unit_test(who_holds_it),
        cmocka_unit_test(place_is_of_one_call),
        cmocka_unit_test(one_order),
        cmocka_unit_test(together),
        cmocka_unit_test(handed_over),
        cmocka_unit_test(off),
        cmocka_unit_test(many),
        cmocka_unit_test(too_many),
    };
    if (argc == 3 && strcmp(argv[1], "leaky") == 0)
        return leaky(argv[2]);
    return cmocka_run_group_tests(tests, start, stop);
}
