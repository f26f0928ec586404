/* world.c - coroutines, the clock, mutexes, futexes, bells and alarms. */
#include "world_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <ucontext.h>

#include "../../core/testing/model_server.h"
#include "../sim/pairs.h"
#include "../sim/seed.h"

#define LONGEST (1800 * 1000 * SNIB__MS)
#define STACK (192 * 1024)
#define LOCKS 32
#define BUSY_CALLS 30000 /* of one thread in a second: a step takes 5 us on average */

struct task {
    struct task *next;
    ucontext_t context;
    char *stack;
    char name[24];
    void *(*run)(void *);
    void *argument;
    bool program, joinable, ended;
    bool (*ready)(void *on); /* its condition; NULL: it may run */
    void *on;
    snib__time until, frozen_until;
    int mutexes;
    struct snib__steps steps;
    snib__time second;
    uint32_t calls; /* in this second */
};

struct world world;
static struct task *tasks, *current;
static snib__time next_freeze;
static ucontext_t home;

/* ---- Chance ---------------------------------------------------------------------------------- */

static uint64_t random_next(void)
{
    return seed_next(&world.random);
}

uint64_t world_draw(uint64_t below)
{
    return below ? random_next() % below : 0;
}

bool world_chance(unsigned one_in)
{
    return world_draw(one_in) == 0;
}

bool world_has(enum world_fault fault, unsigned one_in)
{
    if (!(world.faults & fault) || !world_chance(one_in))
        return false;
    world_happens(fault);
    return true;
}

void world_happens(enum world_fault fault)
{
    int number = 0;
    while (fault >> number != 1)
        number++;
    pairs_happens(number, world.now);
}

/* Replaces the system's random bytes. */
static void fill(unsigned char *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)random_next();
}

ssize_t getrandom(void *out, size_t n, unsigned flags)
{
    (void)flags;
    fill(out, n);
    return (ssize_t)n;
}

void world_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%.6f s, %s: ", (double)world.now / 1e9, current ? current->name : "the world");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    int shown = 0;
    for (struct task *task = tasks; task; task = task->next)
        if (!task->ended && shown++ < 12)
            fprintf(stderr, "    %s %s%s\n", task->name, task->ready ? "sleeps" : "runs",
                    task->frozen_until > world.now ? ", frozen" : "");
    fprintf(stderr, "replay: sim_driver %s %llu\n", world.story, (unsigned long long)world.number);
    abort();
}

/* ---- Coroutines ------------------------------------------------------------------------------ */

static void task_main(void)
{
    current->run(current->argument);
    if (current->mutexes)
        world_fail("ended with a mutex");
    current->ended = true;
    swapcontext(&current->context, &home);
}

static struct task *task_new(const char *name, void *(*run)(void *), void *argument, bool program)
{
    struct task *task = calloc(1, sizeof *task), **last = &tasks;
    task->stack = malloc(STACK);
    snprintf(task->name, sizeof task->name, "%s", name);
    task->run = run;
    task->argument = argument;
    task->program = program;
    getcontext(&task->context);
    task->context.uc_stack.ss_sp = task->stack;
    task->context.uc_stack.ss_size = STACK;
    task->context.uc_link = NULL;
    makecontext(&task->context, task_main, 0);
    while (*last)
        last = &(*last)->next;
    return *last = task;
}

static void away(void)
{
    struct task *self = current;
    swapcontext(&self->context, &home);
    current = self;
}

/* Wait for a condition; false: the time limit came first. */
bool world_wait(bool (*ready)(void *on), void *on, snib__time until)
{
    current->ready = ready;
    current->on = on;
    current->until = until;
    away();
    current->ready = NULL;
    return ready(on);
}

/* Between any two calls of the seam time passes and other threads may run; a thread of the program
 * may even be stopped for long. */
void world_step(void)
{
    world.calls++;
    if (!current)
        return;
    world.now += 1000 + world_draw(8000);
    if (world.now / 1000000000u != current->second) {
        current->second = world.now / 1000000000u;
        current->calls = 0;
    }
    if (++current->calls > BUSY_CALLS)
        world_fail("a busy loop");
    if (current->program && current->mutexes == 0 && world.now >= next_freeze &&
        world_has(WORLD_FREEZE, 40)) {
        current->frozen_until = world.now + world_draw(8000 * SNIB__MS);
        next_freeze = world.now + world_draw(8000 * SNIB__MS);
    }
    if (current->frozen_until > world.now || world_chance(2))
        away();
}

void world_before_ring(void)
{
    if (current && current->program && current->mutexes == 0 && world.freeze_next_ring) {
        current->frozen_until = world.now + world.freeze_next_ring;
        world.freeze_next_ring = 0;
    }
}

void world_freeze(const char *name, snib__time span)
{
    for (struct task *task = tasks; task; task = task->next)
        if (strcmp(task->name, name) == 0)
            task->frozen_until = world.now + span;
}

static bool task_can_run(const struct task *task)
{
    if (task->ended || task->frozen_until > world.now)
        return false;
    return !task->ready || task->until <= world.now || task->ready(task->on);
}

static snib__time task_next(const struct task *task)
{
    if (task->ended)
        return SNIB__NEVER;
    if (task->frozen_until > world.now)
        return task->frozen_until;
    return task->ready ? task->until : SNIB__NEVER;
}

static void advance(void)
{
    snib__time next = world_next_event();
    bool frozen = false;
    for (struct task *task = tasks; task; task = task->next) {
        next = task_next(task) < next ? task_next(task) : next;
        frozen = frozen || (!task->ended && task->frozen_until > world.now);
    }
    if (world.check && !frozen)
        world.check(true);
    if (next == SNIB__NEVER)
        world_fail("all threads sleep for ever");
    if (next > LONGEST)
        world_fail("it does not end");
    world.now = next > world.now ? next : world.now;
}

static bool program_runs(void)
{
    for (struct task *task = tasks; task; task = task->next)
        if (task->program && !task->ended)
            return true;
    return false;
}

static bool anybody_runs(void)
{
    for (struct task *task = tasks; task; task = task->next)
        if (!task->ended)
            return true;
    return false;
}

static void run_one(void)
{
    uint32_t n = 0;
    struct task *chosen = NULL;
    world_deliver();
    for (struct task *task = tasks; task; task = task->next)
        if (task_can_run(task) && world_draw(++n) == 0)
            chosen = task;
    if (!chosen) {
        advance();
        return;
    }
    current = chosen;
    swapcontext(&home, &chosen->context);
    world.digest =
        (world.digest ^ (uint64_t)(unsigned char)chosen->name[0] ^ world.now) * 0x100000001b3u;
    current = NULL;
    if (world.check)
        world.check(false);
}

void world_run(void)
{
    while (program_runs())
        run_one();
    world.faults &= ~(unsigned)WORLD_FREEZE;
    while (anybody_runs()) /* lookups whose clients have given up */
        run_one();
}

struct program {
    void (*run)(void *);
    void *argument;
};

static void *program_main(void *argument)
{
    struct program program = *(struct program *)argument;
    free(argument);
    program.run(program.argument);
    return NULL;
}

void world_thread(const char *name, void (*run)(void *), void *argument)
{
    struct program *program = malloc(sizeof *program);
    *program = (struct program){run, argument};
    task_new(name, program_main, program, true);
}

static bool never(void *on)
{
    (void)on;
    return false;
}

void world_sleep(snib__time span)
{
    world_wait(never, NULL, world.now + span);
}

void world_stay(bool (*ready)(void *), void *on)
{
    world_wait(ready, on, SNIB__NEVER);
}

void world_suspend(snib__time span)
{
    world.suspended += span;
    world_step();
}

/* ---- The seam: threads, mutexes, futexes, time ------------------------------------------------- */

static bool has_ended(void *on)
{
    return ((struct task *)on)->ended;
}

void snib__sys_begin(void)
{
}

void snib__sys_stay(void)
{
}

void snib__sys_print(int fd, const char *line, size_t n)
{
    (void)fd, (void)line, (void)n;
}

int snib__sys_thread(void *(*run)(void *), void *argument, size_t stack, pthread_t *out_thread)
{
    (void)stack;
    struct task *task = task_new(out_thread ? "snib" : "lookup", run, argument, false);
    task->joinable = out_thread != NULL;
    if (out_thread)
        *out_thread = (pthread_t)(uintptr_t)task;
    world_step();
    return 0;
}

void snib__sys_join(pthread_t thread)
{
    world_step();
    ((struct task *)(uintptr_t)thread)->joinable = false;
    if (current)
        world_wait(has_ended, (void *)(uintptr_t)thread, SNIB__NEVER);
}

struct snib__steps *snib__sys_steps(void)
{
    if (!current)
        world_fail("a step of no thread");
    return &current->steps;
}

static struct lock {
    pthread_mutex_t *mutex;
    struct task *owner;
} locks[LOCKS];

static bool is_free(void *on)
{
    return !((struct lock *)on)->owner;
}

static struct lock *lock_of(pthread_mutex_t *mutex)
{
    for (int i = 0; i < LOCKS; i++)
        if (locks[i].mutex == mutex || !locks[i].mutex) {
            locks[i].mutex = mutex;
            return &locks[i];
        }
    world_fail("too many mutexes");
}

void snib__sys_lock(pthread_mutex_t *mutex)
{
    struct lock *lock = lock_of(mutex);
    world_step();
    if (!current)
        return;
    if (lock->owner == current)
        world_fail("locks a mutex that it has");
    world_wait(is_free, lock, SNIB__NEVER);
    lock->owner = current;
    current->mutexes++;
}

void snib__sys_unlock(pthread_mutex_t *mutex)
{
    struct lock *lock = lock_of(mutex);
    if (!current)
        return;
    if (lock->owner != current)
        world_fail("unlocks a mutex that it has not");
    lock->owner = NULL;
    current->mutexes--;
    world_step();
}

/* The others guard a few steps each, in which no other thread runs here: only that each was locked
 * can be checked (ld --wrap, see CMakeLists.txt). */
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (pthread_mutex_trylock(mutex) == 0)
        world_fail("unlocks a mutex that nobody has locked");
    return __real_pthread_mutex_unlock(mutex);
}

bool world_may_be_interrupted(void)
{
    return current && current->program && world_has(WORLD_SIGNALS, 12);
}

snib__time snib__now(void)
{
    return world.now + world.suspended;
}

struct parked {
    struct parked *next;
    _Atomic uint32_t *word;
    bool woken;
};
static struct parked *parked;

static bool is_woken(void *on)
{
    return ((struct parked *)on)->woken;
}

/* Without the periodic wake-ups of the real one: a missed wake-up is missed for ever. */
int snib__park(_Atomic uint32_t *word, uint32_t expected, snib__time until)
{
    struct parked self = {.next = parked, .word = word}, **at = &parked;
    world_step();
    if (atomic_load(word) != expected)
        return SNIB__PARKED_NO;
    if (world_may_be_interrupted())
        return SNIB__PARKED_SIGNAL;
    snib__time now = snib__now();
    self.next = parked;
    parked = &self;
    bool woken = world_wait(is_woken, &self,
                            until == SNIB__NEVER ? until
                            : until > now        ? world.now + (until - now)
                                                 : world.now);
    while (*at != &self)
        at = &(*at)->next;
    *at = self.next;
    return woken ? SNIB__PARKED_NO : SNIB__PARKED_TIMEOUT;
}

static void unpark(_Atomic uint32_t *word, bool all)
{
    world_step();
    for (struct parked *one = parked; one; one = one->next)
        if (one->word == word && !one->woken) {
            one->woken = true;
            if (!all)
                return;
        }
}

void snib__unpark(_Atomic uint32_t *word)
{
    unpark(word, false);
}

void snib__unpark_all(_Atomic uint32_t *word)
{
    unpark(word, true);
}

/* ---- Start and end ----------------------------------------------------------------------------- */

void world_begin(const char *story, uint64_t number, unsigned faults)
{
    world = (struct world){.random = seed_state(number),
                           .story = story,
                           .number = number,
                           .faults = faults,
                           .now = 1000 * SNIB__MS,
                           .addresses = 1,
                           .digest = 0xcbf29ce484222325u};
    next_freeze = 0;
    pairs_begin(1000 * SNIB__MS);
    memset(locks, 0, sizeof locks);
    world.server = model_new();
    world_net_begin();
}

void world_end(void)
{
    current = NULL;
    if (world_descriptors() != 0)
        world_fail("%d descriptors are left open", world_descriptors());
    while (tasks) {
        struct task *task = tasks;
        tasks = task->next;
        if (task->joinable)
            world_fail("a thread of the driver is never joined");
        free(task->stack);
        free(task);
    }
    world_net_end();
    model_free(world.server);
}
