/* replay_hold.c - see hold.pml.
 *
 * The model's two threads are coroutines here.  They call the real functions of snib.h on handles, and stop wherever
 * the model has another step begin: before a call enters the client's mutex, before it puts a reference back or takes
 * the handle, before a slot is recycled, and while it waits for the server.  (The linker puts the functions below in
 * the place of those of core/api and core/driver.)
 */
#include "replay.h"

#include "api/objects.h"

#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define THREADS 2
#define STACK (256 * 1024)
#define OWNER 7
#define NOTHING_EXPECTED (-1000)

enum call { CHECK, RELEASE, FREE, ABANDON };

struct thread {
    ucontext_t context;
    char *stack;
    bool runs;
    enum call call;
    snib_hold *handle, *old; /* old: it has been freed */
    snib_hold *argument;
    int32_t code, expected;
};

static struct thread threads[THREADS];
static ucontext_t outside;
static struct thread *running; /* NULL: the replay itself */
static struct snib__client client;
static int handles; /* that have not been recycled */

static struct client *world(void)
{
    return &clients[0];
}

/* ---- Where a thread stops --------------------------------------------------------------------------- */

static void stop(void)
{
    if (running)
        swapcontext(&running->context, &outside);
}

snib__time __wrap_snib__now(void);
snib__time __wrap_snib__now(void)
{
    return world()->now;
}

void __wrap_snib__driver_enter(struct snib__driver *driver);
void __wrap_snib__driver_enter(struct snib__driver *driver)
{
    (void)driver;
    stop();
}

void __wrap_snib__driver_leave(struct snib__driver *driver);
void __wrap_snib__driver_leave(struct snib__driver *driver)
{
    flush(client_of(driver->engine));
}

void __wrap_snib__driver_leave_collecting(struct snib__driver *driver);
void __wrap_snib__driver_leave_collecting(struct snib__driver *driver)
{
    flush(client_of(driver->engine));
}

bool __wrap_snib__driver_run(struct snib__driver *driver, struct snib__op *op, snib__time until,
                             bool interruptible, bool until_waiting);
bool __wrap_snib__driver_run(struct snib__driver *driver, struct snib__op *op, snib__time until,
                             bool interruptible, bool until_waiting)
{
    (void)driver, (void)until, (void)interruptible, (void)until_waiting;
    flush(world());
    stop();
    if (!op->done)
        differ("the operation has not ended");
    return true;
}

void __real_snib__handle_put(const void *handle);
void __wrap_snib__handle_put(const void *handle);
void __wrap_snib__handle_put(const void *handle)
{
    stop();
    __real_snib__handle_put(handle);
}

void *__real_snib__handle_take(int kind, const void *handle);
void *__wrap_snib__handle_take(int kind, const void *handle);
void *__wrap_snib__handle_take(int kind, const void *handle)
{
    stop();
    return __real_snib__handle_take(kind, handle);
}

/* The last thing that the destructor of a hold does. */
void __wrap_snib__client_unref(struct snib__client *of);
void __wrap_snib__client_unref(struct snib__client *of)
{
    (void)of;
    handles--;
    stop();
}

/* ---- Threads ---------------------------------------------------------------------------------------- */

static void run(void)
{
    for (;;) {
        struct thread *t = running;
        if (t->call == CHECK)
            t->code = snib_hold_check(t->argument, NULL);
        else if (t->call == RELEASE)
            t->code = snib_hold_release(t->argument, NULL);
        else if (t->call == FREE)
            snib_hold_free(t->argument);
        else
            snib_hold_abandon(t->argument);
        t->runs = false;
        stop();
    }
}

static struct thread *thread_at(int index)
{
    int n = arg(index);
    if (n < 0 || n >= THREADS)
        broken("there is no thread %d", n);
    return &threads[n];
}

/* Up to the next place where it stops. */
static void go(struct thread *t)
{
    if (!t->runs)
        differ("the thread's call has already returned");
    running = t;
    swapcontext(&outside, &t->context);
    running = NULL;
    if (!t->runs && t->expected != NOTHING_EXPECTED && t->code != t->expected)
        differ("the call should return %s, not %s", snib_code_name(t->expected),
               snib_code_name(t->code));
}

/* The first step of a call. */
static void begin_call(struct thread *t, enum call call, snib_hold *argument)
{
    if (t->runs)
        differ("the thread's last call has not returned");
    t->call = call;
    t->argument = argument;
    t->expected = NOTHING_EXPECTED;
    t->runs = true;
    go(t);
}

static void begin(void)
{
    world_begin(SNIB_MUTEX, 0);
    struct client *c = world();
    client = (struct snib__client){.driver = {.engine = c->engine}};
    c->engine->config.home = c->gate->home = &client;
    snib__handle_free_fn(SNIB__HOLD, snib__hold_destroy);
    for (int i = 0; i < THREADS; i++) {
        struct thread *t = &threads[i];
        t->stack = malloc(STACK);
        if (!t->stack || getcontext(&t->context) < 0)
            abort();
        t->context.uc_stack.ss_sp = t->stack;
        t->context.uc_stack.ss_size = STACK;
        makecontext(&t->context, run, 0);
    }
}

/* ---- Steps ------------------------------------------------------------------------------------------ */

static struct snib__hold *current(void)
{
    struct snib__hold *hold = world()->gate->active;
    return hold && hold->acquired_at ? hold
                                     : NULL; /* otherwise it is only what is left of a loss */
}

/* An acquire by the common owner, and its result. */
static snib_hold *acquire(int32_t wanted)
{
    snib_event event;
    int32_t code;
    struct snib__acquire how = {.owner = OWNER, .wait = 0};
    struct snib__op *op =
        snib__engine_acquire(world()->engine, world()->gate, &how, world()->now, &code);
    if (!op)
        differ("the acquire was not started: %s", snib_code_name(code));
    op->awaited = true;
    flush(world());
    settle(world());
    if (!op->done || op->code != wanted)
        differ("the acquire: the model says %s, the core %s", snib_code_name(wanted),
               snib_code_name(op->done ? op->code : SNIB_AGAIN));
    if (op->hold && !op->hold->handle)
        handles++;
    if (op->hold)
        op->hold->tell = 1;
    snib__op_finish(&client, op, &event);
    return event.hold;
}

static void step_acquire(void)
{
    settle(world());
    thread_at(0)->handle = acquire(SNIB_OK);
}

static void step_enter(void)
{
    const struct snib__hold *hold = current();
    if (!hold)
        differ("there is nothing to be entered again");
    thread_at(0)->handle = acquire(SNIB_OK);
    if (current() != hold)
        differ("it is another hold");
}

/* The model is busy also when it has no room for another hold, and while what is left of a loss is being released: the
 * core would send its attempt behind that release. */
static void step_busy(void)
{
    const struct snib__hold *active = world()->gate->active;
    if (on_its_way(world(), SNIB__REQ_RELEASE) > 0)
        return;
    if (arg(1) || (active && snib__hold_left(active, world()->now) > 0))
        acquire(SNIB_BUSY);
    else
        tick(world());
}

static void step_check(void)
{
    begin_call(thread_at(0), CHECK, thread_at(0)->handle);
}

/* The model has no step for the inside of this one. */
static void step_again(void)
{
    struct thread *t = thread_at(0);
    begin_call(t, CHECK, t->old);
    if (t->runs)
        go(t);
}

static void step_found(void)
{
    same(arg(0), "the freed handle still has its hold", arg(1), thread_at(0)->runs);
}

static void step_release(void)
{
    begin_call(thread_at(0), RELEASE, thread_at(0)->handle);
}

static void step_free(void)
{
    struct thread *t = thread_at(0);
    t->old = t->handle;
    t->handle = NULL;
    begin_call(t, arg(1) ? ABANDON : FREE, t->old);
}

static void step_go(void)
{
    go(thread_at(0));
}

/* What the thread's call will return. */
static void step_expect(void)
{
    const char *what = word(1);
    bool held = strcmp(what, "HELD") == 0 || strcmp(what, "OK") == 0, lost = !strcmp(what, "LOST");
    bool open = strcmp(what, "NONE") == 0;
    thread_at(0)->expected = open   ? NOTHING_EXPECTED
                             : held ? SNIB_OK
                             : lost ? SNIB_LOST
                                    : SNIB_NOT_HELD;
}

/* A renewal is on its way when the deadline passes; its answer will come too late. */
static void step_late(void)
{
    struct snib__hold *hold = current();
    if (!hold)
        differ("there is no hold");
    if (hold->phase == SNIB__HELD)
        snib__watchdog_single(world()->engine, hold, LEASE / SNIB__MS, world()->now);
    if (hold->deadline > world()->now)
        world()->now = hold->deadline;
    flush(world());
}

static void step_notice(void)
{
    tick(world());
}

static void step_renewed(void)
{
    settle(world());
}

static void step_gone(void)
{
    if (!current())
        differ("there is no hold");
    snib__watchdog_single(world()->engine, current(), LEASE / SNIB__MS, world()->now);
    flush(world());
    settle(world());
}

static void step_report(void)
{
    if (!snib__engine_take_lost(world()->engine))
        differ("there is no loss to be reported");
}

static void step_delete(void)
{
    model_flush_keys(server);
}

static void step_is(void)
{
    const struct snib__hold *hold = current();
    bool held = hold && hold->phase == SNIB__HELD;
    const char *phase = !hold ? "NONE" : held ? "HELD" : "RELEASING";
    model_key key;
    same(0, "the server has the lock", arg(0), model_key_at(server, 0, &key));
    /* Of what is left of a loss; the release is on its way also when somebody has deleted the lock. */
    bool rest = !hold && arg(0) && on_its_way(world(), SNIB__REQ_RELEASE) > 0;
    same(0, "it is being released in the background", arg(1), rest);
    if (strcmp(phase, word(2)) != 0)
        differ("the model's hold is %s, the core's %s", word(2), phase);
    same(0, "users", arg(3), hold ? hold->users : 0);
    same(0, "entries", arg(4), hold ? hold->count : 0);
}

static void step_end(void)
{
    settle(world());
    same(0, "holds", 0, (int64_t)world()->engine->stats.held);
    same(0, "handles", 0, handles);
}

static const struct step steps[] = {
    {"acquire", step_acquire}, {"enter", step_enter},  {"busy", step_busy},
    {"check", step_check},     {"again", step_again},  {"found", step_found},
    {"release", step_release}, {"free", step_free},    {"go", step_go},
    {"expect", step_expect},   {"late", step_late},    {"notice", step_notice},
    {"renewed", step_renewed}, {"gone", step_gone},    {"report", step_report},
    {"answer", step_renewed},  {"rest", step_renewed}, {"delete", step_delete},
    {"end", step_end},         {"is", step_is},        {NULL, NULL}};

const struct replay replay_hold = {"hold", begin, steps};
