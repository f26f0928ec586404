/* stories.c - short worlds with a plot: what the guarantees say of crowds, long waits and dead processes.
 *
 *     sim_stories [NAME]
 *
 * Many engines and one model server, a network without delay, virtual time.  Every story says what must
 * come out, and when.
 */
#include "engine/engine.h"
#include "locks/kind.h"
#include "model_server.h"
#include "snib.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACTORS 128
#define WAITERS 512
#define SECOND (1000 * SNIB__MS)
#define START (3600 * SECOND)
#define EPOCH_NS 1700000000000000000ULL
#define LEASE (30 * SECOND)

struct actor {                   /* a process */
    struct snib__engine *engine; /* NULL: killed */
    uint64_t links[2];           /* the model's; 0: not connected */
    bool stopped;                /* as by SIGSTOP */
    bool deaf;                   /* its link for messages is stuck */
};

struct waiter { /* an acquisition, from its start to its end */
    struct actor *actor;
    struct snib__op *op;
    struct snib__hold *hold;
    int32_t code; /* SNIB_AGAIN: it runs */
    snib__time ended;
    uint64_t order; /* of its grant */
};

static model *server;
static snib__time now;
static struct actor actors[ACTORS];
static struct waiter waiters[WAITERS];
static int actor_count, waiter_count;
static uint64_t grants;
static const char *story;

static _Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "sim_stories: %s, at %.3f s: ", story, (double)(now - START) / 1e9);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    exit(1);
}

#define expect(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail(__VA_ARGS__);                                                                     \
    } while (0)

/* ---- The world ---------------------------------------------------------------------------------- */

static void begin_world(void)
{
    server = model_new();
    now = START;
    model_time(server, EPOCH_NS + now);
    actor_count = waiter_count = 0;
    grants = 0;
}

static struct actor *new_actor(void)
{
    static uint64_t seed;
    struct actor *actor = &actors[actor_count++];
    struct snib__config config = {.seed = ++seed,
                                  .first_number = 100 * (uint64_t)actor_count,
                                  .lease = LEASE,
                                  .reply_timeout = 3 * SECOND,
                                  .patience = 5 * SECOND,
                                  .try_timeout = SECOND,
                                  .recheck = 3 * SECOND,
                                  .handover_max = 16,
                                  .ops_max = 10000};
    snprintf(config.uuid, sizeof config.uuid, "%08x-0000-8000-8000-000000000000",
             (unsigned)actor_count);
    *actor = (struct actor){.engine = snib__engine_new(&config)};
    return actor;
}

static bool lives(const struct actor *actor)
{
    return actor->engine != NULL && !actor->stopped;
}

static void cut(struct actor *actor, int link)
{
    model_close(server, actor->links[link]);
    actor->links[link] = 0;
}

/* As by kill -9. */
static void kill_actor(struct actor *actor)
{
    cut(actor, 0);
    cut(actor, 1);
    snib__engine_free(actor->engine);
    actor->engine = NULL;
}

static void end_world(void)
{
    for (int i = 0; i < actor_count; i++) {
        if (actors[i].engine != NULL) {
            kill_actor(&actors[i]);
        }
    }
    model_free(server);
}

static void finish(struct actor *actor, struct snib__op *op)
{
    struct waiter *waiter = &waiters[op->token];
    if (op->kind == SNIB__OP_ACQUIRE && waiter->op == op) {
        waiter->code = op->code;
        waiter->hold = op->code == SNIB_OK ? op->hold : NULL;
        waiter->ended = now;
        waiter->order = ++grants;
        waiter->op = NULL;
    }
    snib__op_free(actor->engine, op);
}

/* Carry bytes and wishes of one process; false: there was nothing to do. */
static bool pump(struct actor *actor)
{
    bool busy = false;
    for (int link = 0; link < (actor->deaf ? 1 : 2); link++) {
        int wish = snib__engine_take_wish(actor->engine, snib__engine_link(actor->engine, link));
        if (wish == SNIB__WISH_CLOSE) {
            cut(actor, link);
        } else if (wish == SNIB__WISH_CONNECT) {
            actor->links[link] = model_connect(server);
            snib__engine_link_up(actor->engine, snib__engine_link(actor->engine, link), now);
        }
        struct snib__buf *out = snib__link_output(snib__engine_link(actor->engine, link));
        size_t n = snib__buf_size(out);
        if (n > 0 && actor->links[link] != 0) {
            model_input(server, actor->links[link], out->data + out->head, n);
            snib__buf_consume(out, n);
        }
        const char *bytes;
        size_t got = actor->links[link] == 0 ? 0 : model_output(server, actor->links[link], &bytes);
        if (got > 0) {
            snib__engine_input(actor->engine, snib__engine_link(actor->engine, link), bytes, got,
                               now);
        }
        busy |= wish != SNIB__WISH_NOTHING || n > 0 || got > 0;
    }
    struct snib__op *op;
    while ((op = snib__engine_take_done(actor->engine)) != NULL) {
        finish(actor, op);
        busy = true;
    }
    return busy;
}

static void settle(void)
{
    bool busy = true;
    for (int rounds = 0; busy; rounds++) {
        expect(rounds < 10000, "messages without end");
        busy = false;
        for (int i = 0; i < actor_count; i++) {
            busy |= lives(&actors[i]) && pump(&actors[i]);
        }
    }
}

static void run_until(snib__time until)
{
    settle();
    for (;;) {
        snib__time next = until;
        for (int i = 0; i < actor_count; i++) {
            snib__time at = lives(&actors[i]) ? snib__engine_deadline(actors[i].engine) : until;
            next = at < next ? at : next;
        }
        now = next > now ? next : now;
        model_time(server, EPOCH_NS + now);
        for (int i = 0; i < actor_count; i++) {
            if (lives(&actors[i])) {
                snib__engine_tick(actors[i].engine, now);
            }
        }
        settle();
        if (now >= until) {
            return;
        }
    }
}

static void run_for(snib__time duration)
{
    run_until(now + duration);
}

/* ---- What actors do ----------------------------------------------------------------------------- */

static struct waiter *acquire(struct actor *actor, int kind, const char *name, size_t n,
                              struct snib__acquire how)
{
    int32_t code;
    struct waiter *waiter = &waiters[waiter_count];
    struct snib__gate *gate = snib__gate_get(actor->engine, kind, name, n);
    *waiter = (struct waiter){.actor = actor, .code = SNIB_AGAIN};
    waiter->op = snib__engine_acquire(actor->engine, gate, &how, now, &code);
    expect(waiter->op != NULL, "acquire was not started: %s", snib_code_name(code));
    waiter->op->token = (uint64_t)waiter_count++;
    settle();
    return waiter;
}

static struct waiter *wait_for(struct actor *actor, int kind, const char *name)
{
    return acquire(actor, kind, name, strlen(name), (struct snib__acquire){.wait = SNIB__NEVER});
}

static void release(struct waiter *waiter)
{
    int32_t code;
    struct snib__op *op = snib__engine_release(waiter->actor->engine, waiter->hold, now, &code);
    expect(op != NULL, "release was not started: %s", snib_code_name(code));
    op->token = (uint64_t)(waiter - waiters);
    settle();
    snib__hold_drop(waiter->actor->engine, waiter->hold, now);
    waiter->hold = NULL;
    settle();
}

static void cancel(struct waiter *waiter)
{
    expect(snib__engine_cancel(waiter->actor->engine, waiter->op, now), "cancel came too late");
    settle();
}

/* What a stopped process has sent for its locks is executed, but its connection ends before any answer. */
static void lose_answers(struct actor *actor)
{
    struct snib__buf *out = snib__link_output(snib__engine_link(actor->engine, SNIB__COMMAND));
    model_input(server, actor->links[SNIB__COMMAND], out->data + out->head, snib__buf_size(out));
    snib__buf_consume(out, snib__buf_size(out));
    cut(actor, SNIB__COMMAND);
    snib__engine_link_down(actor->engine, snib__engine_link(actor->engine, SNIB__COMMAND),
                           SNIB_EUNREACHABLE, 0, now);
}

/* A stopped process reads its messages, and no more. */
static void hear(struct actor *actor)
{
    const char *bytes;
    size_t n = model_output(server, actor->links[SNIB__PUBSUB], &bytes);
    expect(n > 0, "there is no message");
    snib__engine_input(actor->engine, snib__engine_link(actor->engine, SNIB__PUBSUB), bytes, n,
                       now);
}

static bool there_is(const char *name)
{
    model_key key;
    return model_key_find(server, 0, name, strlen(name), &key);
}

static void expect_nothing_left(void)
{
    model_key key;
    if (model_key_at(server, 0, &key)) {
        fail("%.*s was left behind", (int)key.name.n, key.name.p);
    }
}

/* ---- Stories ------------------------------------------------------------------------------------ */

static void killed_waiters(void)
{
    for (int processes = 1; processes <= 100; processes += 99) {
        begin_world();
        struct waiter *holder = wait_for(new_actor(), SNIB_FAIR, "orders");
        for (int i = 0; i < 100; i++) {
            if (i < processes) {
                new_actor();
            }
            struct waiter *dead = wait_for(&actors[1 + i % processes], SNIB_FAIR, "orders");
            expect(dead->code == SNIB_AGAIN, "there was no queue");
        }
        struct waiter *live = wait_for(new_actor(), SNIB_FAIR, "orders");
        run_for(2 * SECOND);
        for (int i = 0; i < processes; i++) {
            kill_actor(&actors[1 + i]);
        }
        snib__time released = now;
        release(holder);
        run_for(10 * SECOND);
        expect(live->code == SNIB_OK, "behind 100 dead waiters the next one never came in");
        expect(live->ended <= released + 3 * SECOND, "the next one came in after %.3f s",
               (double)(live->ended - released) / 1e9);
        release(live);
        run_for(10 * SECOND);
        expect_nothing_left();
        end_world();
    }
}

static void long_wait(void)
{
    begin_world();
    struct waiter *holder = wait_for(new_actor(), SNIB_FAIR, "orders");
    int first = waiter_count;
    for (int i = 0; i < 5; i++) {
        new_actor();
    }
    for (int i = 0; i < 20; i++) {
        wait_for(&actors[1 + i * 3 % 5], SNIB_FAIR, "orders");
        run_for(SECOND / 10);
    }
    run_for(1200 * SECOND);
    release(holder);
    for (int i = 0; i < 20; i++) {
        run_for(SECOND);
        expect(waiters[first + i].code == SNIB_OK, "waiter %d of 20 is not the next", i + 1);
        release(&waiters[first + i]);
    }
    run_for(10 * SECOND);
    expect_nothing_left();
    end_world();
}

/* Whoever leaves, and however, leaves nothing. */
static void leavers(void)
{
    begin_world();
    uint64_t random = 1;
    struct waiter *holder = wait_for(new_actor(), SNIB_FAIR, "orders");
    int first = waiter_count;
    for (int i = 0; i < 10; i++) {
        new_actor();
    }
    for (int i = 0; i < 60; i++) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        struct snib__acquire how = {.wait = random >> 62 == 0 ? (random >> 40) % 5000 * SNIB__MS + 1
                                                              : SNIB__NEVER};
        acquire(&actors[1 + i % 10], SNIB_FAIR, "orders", 6, how);
        run_for(SECOND / 20);
    }
    for (int i = 0; i < 60; i += 3) {
        if (waiters[first + i].code == SNIB_AGAIN) {
            cancel(&waiters[first + i]);
        }
    }
    expect(there_is("redisson_lock_queue:{orders}"), "nobody waits");
    release(holder);
    run_for(SECOND);
    for (int i = 0; i < 10; i++) {
        kill_actor(&actors[1 + i]);
    }
    run_for(LEASE + 20 * SECOND);
    expect_nothing_left();
    end_world();
}

/* A grant that is heard of when another has the lock is none. */
static void late_grant(void)
{
    begin_world();
    struct actor *sleeper = new_actor(), *other = new_actor();
    struct waiter *holder = wait_for(new_actor(), SNIB_FAIR, "orders");
    struct waiter *asleep = wait_for(sleeper, SNIB_FAIR, "orders");
    struct waiter *next = wait_for(other, SNIB_FAIR, "orders");
    run_for(SECOND);
    sleeper->stopped = true;
    release(holder);
    run_for(5 * SECOND);
    expect(next->code == SNIB_OK, "the lock stays with who does not answer");
    sleeper->stopped = false;
    sleeper->deaf = true;
    run_for(SECOND / 10);
    sleeper->deaf = false;
    run_for(SECOND / 10);
    expect(asleep->code == SNIB_AGAIN, "two hold the lock");
    release(next);
    run_for(SECOND);
    expect(asleep->code == SNIB_OK, "who slept is not the next");
    release(asleep);
    end_world();
}

/* A writer that reads as well keeps the others' writers out when it steps down, and lets readers in. */
static void downgrade(void)
{
    begin_world();
    struct actor *a = new_actor(), *b = new_actor();
    struct snib__acquire own = {.wait = SNIB__NEVER, .owner = 7};
    struct waiter *writes = acquire(a, SNIB_WRITE, "orders", 6, own);
    struct waiter *reads = acquire(a, SNIB_READ, "orders", 6, own);
    expect(reads->code == SNIB_OK, "a writer may not read");
    struct waiter *reader = wait_for(b, SNIB_READ, "orders");
    struct waiter *writer = wait_for(b, SNIB_WRITE, "orders");
    run_for(SECOND);
    expect(reader->code == SNIB_AGAIN, "a reader came in beside the writer");
    release(writes);
    expect(reader->code == SNIB_OK, "the reader was not told");
    run_for(40 * SECOND);
    expect(writer->code == SNIB_AGAIN, "a writer came in beside readers");
    release(reader);
    release(reads);
    run_for(SECOND);
    expect(writer->code == SNIB_OK, "the writer was not told");
    release(writer);
    run_for(5 * SECOND);
    expect_nothing_left();
    end_world();
}

/* A message of our own that was lost is not expected for ever: the next one is another's. */
static void lost_message(void)
{
    begin_world();
    struct actor *a = new_actor(), *b = new_actor();
    struct waiter *first = wait_for(b, SNIB_MUTEX, "orders");
    struct waiter *ours = wait_for(a, SNIB_MUTEX, "orders");
    release(first);
    expect(ours->code == SNIB_OK, "the waiter was not told");
    model_set_faults(server, MODEL_MUTE);
    release(ours);
    model_set_faults(server, 0);
    struct waiter *theirs = wait_for(b, SNIB_MUTEX, "orders");
    run_for(SECOND / 10); /* it has given way to the one who listens */
    expect(theirs->code == SNIB_OK, "who listens but does not wait keeps others waiting");
    struct waiter *waits = wait_for(a, SNIB_MUTEX, "orders");
    run_for(4 * SECOND);
    release(theirs);
    expect(waits->code == SNIB_OK, "a message of another was taken for our own");
    release(waits);
    end_world();
}

static void allow_channels(void *context, uint64_t connection, const model_text *argv, size_t argc)
{
    (void)context, (void)connection, (void)argc;
    if (argv[0].n == 9 && memcmp(argv[0].p, "SUBSCRIBE", 9) == 0) {
        model_set_faults(server, 0);
    }
}

/* A refusal does not say which subscription it is about: the one that was not refused is not forgotten. */
static void one_refusal(void)
{
    begin_world();
    struct actor *a = new_actor(), *b = new_actor();
    struct waiter *held[] = {wait_for(b, SNIB_MUTEX, "orders"), wait_for(b, SNIB_MUTEX, "stock")};
    a->deaf = true;
    struct waiter *waits[] = {wait_for(a, SNIB_MUTEX, "orders"), wait_for(a, SNIB_MUTEX, "stock")};
    model_set_faults(server, MODEL_NO_CHANNELS);
    model_watch(server, allow_channels, NULL);
    a->deaf = false;
    run_for(SECOND / 10);
    expect(model_channel_count(server) == 1, "not one of two subscriptions was refused");
    for (int i = 0; i < 2; i++) {
        release(held[i]);
        run_for(SECOND);
        expect(waits[i]->code == SNIB_OK, "a waiter was not told");
        release(waits[i]);
    }
    run_for(2 * SECOND);
    expect(model_channel_count(server) == 0, "a subscription was left behind");
    end_world();
}

static void dead_reader(void)
{
    begin_world();
    struct actor *reader = new_actor(), *writer = new_actor(), *other = new_actor();
    wait_for(reader, SNIB_READ, "orders");
    struct waiter *second = wait_for(other, SNIB_READ, "orders");
    struct waiter *waiting = wait_for(writer, SNIB_WRITE, "orders");
    run_for(5 * SECOND);
    kill_actor(reader);
    snib__time killed = now;
    run_for(SECOND);
    release(second);
    run_for(60 * SECOND);
    expect(waiting->code == SNIB_OK, "the writer never came in");
    expect(waiting->ended <= killed + LEASE + 3 * SECOND, "the writer came in after %.3f s",
           (double)(waiting->ended - killed) / 1e9);
    expect(waiting->ended >= killed + LEASE - 10 * SECOND - SNIB__MS, "the writer was too early");
    end_world();
}

/* Readers come without end; the writer that is preferred comes in all the same. */
static void preferred_writer(void)
{
    begin_world();
    struct actor *readers[] = {new_actor(), new_actor()}, *writer = new_actor();
    struct waiter *reads = wait_for(readers[0], SNIB_READ, "orders"), *writes = NULL;
    snib__time asked = 0;
    for (int i = 0; i < 40 && (writes == NULL || writes->code == SNIB_AGAIN); i++) {
        struct waiter *next = wait_for(readers[(i + 1) % 2], SNIB_READ, "orders");
        run_for(SECOND / 10);
        if (i == 3) {
            struct snib__acquire how = {.wait = SNIB__NEVER, .options = SNIB_LOCK_PREFER_WRITER};
            writes = acquire(writer, SNIB_WRITE, "orders", 6, how);
            asked = now;
        }
        if (reads->hold != NULL) {
            release(reads);
        }
        reads = next;
        run_for(SECOND / 10);
    }
    expect(writes->code == SNIB_OK, "the writer never came in");
    expect(writes->ended < asked + SECOND, "the writer came in after %.3f s",
           (double)(writes->ended - asked) / 1e9);
    end_world();
}

static void opposite_orders(void)
{
    static const char forth[] = "morders\0mstock", back[] = "mstock\0morders";
    begin_world();
    struct actor *a = new_actor(), *b = new_actor(), *c = new_actor();
    struct snib__acquire forever = {.wait = SNIB__NEVER}, once = {0};
    for (int i = 0; i < 20; i++) {
        struct waiter *x = acquire(a, SNIB__MULTI, forth, sizeof forth, forever);
        struct waiter *y = acquire(b, SNIB__MULTI, back, sizeof back, forever);
        for (int done = 0; done < 2; done++) {
            run_for(4 * SECOND);
            struct waiter *held = x->hold != NULL ? x : y;
            expect((x->hold != NULL) != (y->hold != NULL), "not one of two has both");
            release(held);
        }
    }
    struct waiter *stock = wait_for(c, SNIB_MUTEX, "stock");
    struct waiter *none = acquire(a, SNIB__MULTI, forth, sizeof forth, once);
    expect(none->code == SNIB_BUSY && !there_is("orders"), "one of two was kept");
    struct waiter *both = acquire(b, SNIB__MULTI, back, sizeof back, forever);
    run_for(SECOND);
    expect(!there_is("orders"), "one of two was kept by a waiter");
    release(stock);
    run_for(SECOND);
    expect(both->code == SNIB_OK && there_is("orders") && there_is("stock"),
           "two free locks are not taken");
    release(both);
    expect_nothing_left();
    end_world();
}

/* Permits of a dead process come back when their lease is over, once. */
static void dead_permits(void)
{
    begin_world();
    struct actor *dead = new_actor(), *live = new_actor();
    struct snib__gate *gate = snib__gate_get(live->engine, SNIB_PERMITS, "orders", 6);
    int32_t code;
    struct snib__op *op = snib__engine_count(live->engine, gate, SNIB_COUNT_INIT, 3, now, &code);
    op->token = WAITERS - 1;
    settle();
    struct snib__acquire two = {.wait = SNIB__NEVER, .permits = 2};
    acquire(dead, SNIB_PERMITS, "orders", 6, two);
    struct waiter *waiting = acquire(live, SNIB_PERMITS, "orders", 6, two);
    run_for(SECOND);
    kill_actor(dead);
    snib__time killed = now;
    run_for(60 * SECOND);
    expect(waiting->code == SNIB_OK, "the permits never came back");
    expect(waiting->ended <= killed + LEASE + 3 * SECOND, "they came back after %.3f s",
           (double)(waiting->ended - killed) / 1e9);
    release(waiting);
    model_text field, value;
    model_field_at(server, 0, "orders", 6, 0, &field, &value);
    expect(value.n == 1 && value.p[0] == '3', "of three permits there are %.*s", (int)value.n,
           value.p);
    end_world();
}

/* A hand-over that may have worked is taken back, although who was to have the lock has left meanwhile. */
static void doubtful_hand_over(void)
{
    begin_world();
    struct actor *a = new_actor(), *b = new_actor();
    struct waiter *holder = wait_for(a, SNIB_MUTEX, "orders");
    struct waiter *next = wait_for(a, SNIB_MUTEX, "orders");
    a->stopped = true;
    release(holder);
    lose_answers(a);
    model_set_faults(server, MODEL_MISCONF);
    a->stopped = false;
    cancel(next);
    run_for(SECOND);
    model_set_faults(server, 0);
    run_for(2 * SECOND);
    struct waiter *other = wait_for(b, SNIB_MUTEX, "orders");
    run_for(SECOND);
    expect(other->code == SNIB_OK, "the lock stays with a waiter that has left");
    end_world();
}

/* The answer to a try that was cancelled is news for those who want less. */
static void cancelled_wish(void)
{
    begin_world();
    struct actor *a = new_actor(), *b = new_actor();
    struct snib__gate *gate = snib__gate_get(b->engine, SNIB_PERMITS, "orders", 6);
    struct snib__acquire one = {.wait = SNIB__NEVER, .permits = 1};
    struct snib__acquire all = {.wait = SNIB__NEVER, .permits = 3};
    struct waiter *held[3];
    int32_t code;
    struct snib__op *op = snib__engine_count(b->engine, gate, SNIB_COUNT_INIT, 3, now, &code);
    op->token = WAITERS - 1;
    settle();
    for (int i = 0; i < 3; i++) {
        held[i] = acquire(b, SNIB_PERMITS, "orders", 6, one);
    }
    struct waiter *much = acquire(a, SNIB_PERMITS, "orders", 6, all);
    struct waiter *little = acquire(a, SNIB_PERMITS, "orders", 6, one);
    run_for(SECOND / 2);
    a->stopped = true;
    release(held[0]);
    hear(a);
    a->stopped = false;
    cancel(much);
    expect(little->code == SNIB_OK, "who wants little waits for who wanted much and has left");
    end_world();
}

/* Fair and fenced: whoever was granted the lock without a token asks for one. */
static void lost_counter(void)
{
    for (int apart = 0; apart < 2; apart++) {
        begin_world();
        struct actor *a = new_actor(), *b = new_actor();
        struct snib__acquire how = {.wait = SNIB__NEVER, .options = SNIB_LOCK_FENCED};
        struct waiter *holder = acquire(a, SNIB_FAIR, "orders", 6, how);
        struct waiter *next = acquire(apart ? b : a, SNIB_FAIR, "orders", 6, how);
        run_for(SECOND / 10);
        model_delete(server, 0, "redisson_lock_token:{orders}", 28);
        release(holder);
        run_for(SECOND / 10);
        expect(next->code == SNIB_OK, "the next was not told");
        expect(next->hold->fencing > 0, "a fenced lock has no token");
        release(next);
        end_world();
    }
}

/* The place of who waits is kept alive by as much as the time that passes. */
static void kept_places(void)
{
    begin_world();
    wait_for(new_actor(), SNIB_FAIR, "orders");
    wait_for(new_actor(), SNIB_FAIR, "orders");
    for (int i = 0; i < 20; i++) {
        model_text owner, score;
        run_for(SECOND);
        expect(model_field_at(server, 0, "redisson_lock_timeout:{orders}", 30, 0, &owner, &score),
               "nobody has a place");
        double left = (strtod(score.p, NULL) - (double)((EPOCH_NS + now) / SNIB__MS)) / 1000;
        expect(left > 1 && left < 5.5, "a place ends in %.3f s", left);
    }
    end_world();
}

/* One try beside the release of the same process: the server is asked, after it. */
static void try_beside_release(void)
{
    begin_world();
    struct actor *a = new_actor();
    struct waiter *holder = wait_for(a, SNIB_MUTEX, "orders");
    a->stopped = true;
    release(holder);
    struct waiter *once = acquire(a, SNIB_MUTEX, "orders", 6, (struct snib__acquire){0});
    a->stopped = false;
    settle();
    expect(once->code == SNIB_OK, "a lock that is given back is called busy");
    release(once);
    expect_nothing_left();
    end_world();
}

/* A writer comes after readers whose leases are over, though the lock itself would live longer than its own. */
static void late_readers(void)
{
    begin_world();
    model_key key;
    struct actor *reader = new_actor(), *writer = new_actor();
    struct snib__acquire longer = {.wait = SNIB__NEVER, .lease = 60 * SECOND};
    struct snib__acquire shorter = {.wait = SNIB__NEVER, .lease = 10 * SECOND};
    acquire(reader, SNIB_READ, "orders", 6, longer);
    kill_actor(reader);
    for (size_t i = 0; model_key_at(server, i, &key); i++) {
        if (key.type == MODEL_STRING) {
            model_delete(server, 0, key.name.p, key.name.n);
            break;
        }
    }
    struct waiter *writes = acquire(writer, SNIB_WRITE, "orders", 6, shorter);
    expect(writes->code == SNIB_OK, "readers whose leases are over keep a writer out");
    kill_actor(writer);
    run_for(11 * SECOND);
    expect(!there_is("orders"), "a writer's lock has outlived its lease");
    end_world();
}

static void lone_spinner(void)
{
    begin_world();
    struct waiter *holder = wait_for(new_actor(), SNIB_SPIN, "orders");
    struct waiter *waiting = wait_for(new_actor(), SNIB_SPIN, "orders");
    run_for(2 * SECOND);
    uint64_t before = model_requests(server);
    run_for(10 * SECOND);
    uint64_t asked = model_requests(server) - before;
    expect(asked < 200, "a spinning waiter asked %llu times in 10 s", (unsigned long long)asked);
    snib__time released = now;
    release(holder);
    run_for(SECOND);
    expect(waiting->code == SNIB_OK && waiting->ended < released + SECOND / 4,
           "a spinning waiter came in late");
    end_world();
}

static void count_batch(void *context, uint64_t connection, const model_text *argv, size_t argc)
{
    (void)connection;
    (void)argv;
    *(int *)context += argc > 200; /* a name and an owner for each of a hundred holds */
}

static void expect_all_held(const struct waiter *first, int count)
{
    for (int i = 0; i < count; i++) {
        const struct waiter *waiter = first + i;
        int state = waiter->hold == NULL
                        ? SNIB_HOLD_RELEASED
                        : snib__hold_state(waiter->actor->engine, waiter->hold, now);
        expect(state == SNIB_HOLD_VALID, "lock %d of %d is in state %d", i, count, state);
    }
}

/* One process has more than fits into one renewal.  All stay held over many leases, those that the server has lost
 * are found, wherever they are in a batch, and no other is. */
static void many_holds(void)
{
    enum { MANY = 350 };
    begin_world();
    int batches = 0;
    struct actor *holder = new_actor();
    struct waiter *first = &waiters[waiter_count];
    char name[16];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "lock %d", i);
        wait_for(holder, SNIB_MUTEX, name);
        now += (snib__time)i % 7 * SNIB__MS;
        model_time(server, EPOCH_NS + now);
    }
    model_watch(server, count_batch, &batches);
    for (int leases = 0; leases < 5; leases++) {
        run_for(LEASE);
        expect_all_held(first, MANY);
    }
    expect(batches >= 5 * 3 * 2, "only %d renewals of a hundred holds", batches);
    for (int i = 0; i < MANY; i += 49) {
        snprintf(name, sizeof name, "lock %d", i);
        model_delete(server, 0, name, strlen(name));
    }
    run_for(LEASE / 3 + SECOND);
    for (int i = 0; i < MANY; i++) {
        const struct snib__hold *hold = first[i].hold;
        int state = snib__hold_state(holder->engine, hold, now);
        expect(state == (i % 49 ? SNIB_HOLD_VALID : SNIB_HOLD_LOST), "lock %d is in state %d", i,
               state);
        expect(i % 49 || snib__hold_reason(hold, now) == SNIB_REASON_DELETED, "lock %d is lost: %s",
               i, snib_reason_text(snib__hold_reason(hold, now)));
    }
    cut(holder, SNIB__COMMAND); /* nobody knows which batches were executed */
    snib__engine_link_down(holder->engine, snib__engine_link(holder->engine, SNIB__COMMAND),
                           SNIB_EUNREACHABLE, 0, now);
    run_for(LEASE);
    for (int i = 0; i < MANY; i++) {
        int state = snib__hold_state(holder->engine, first[i].hold, now);
        expect(state == (i % 49 ? SNIB_HOLD_VALID : SNIB_HOLD_LOST), "lock %d is in state %d", i,
               state);
        if (i % 49) {
            release(&first[i]);
        } else {
            snib__hold_drop(holder->engine, first[i].hold, now);
        }
    }
    expect_nothing_left();
    end_world();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*tell)(void);
    } stories[] = {
        {"killed waiters", killed_waiters},
        {"long wait", long_wait},
        {"leavers", leavers},
        {"one refusal", one_refusal},
        {"lost message", lost_message},
        {"late grant", late_grant},
        {"downgrade", downgrade},
        {"dead reader", dead_reader},
        {"preferred writer", preferred_writer},
        {"opposite orders", opposite_orders},
        {"dead permits", dead_permits},
        {"lone spinner", lone_spinner},
        {"doubtful hand-over", doubtful_hand_over},
        {"cancelled wish", cancelled_wish},
        {"lost counter", lost_counter},
        {"kept places", kept_places},
        {"try beside release", try_beside_release},
        {"late readers", late_readers},
        {"many holds", many_holds},
    };
    int told = 0;
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++) {
        story = stories[i].name;
        if (argc < 2 || strcmp(argv[1], story) == 0) {
            stories[i].tell();
            told++;
        }
    }
    printf("sim_stories: %d good\n", told);
    return told > 0 ? 0 : 2;
}
