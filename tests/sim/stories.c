/* stories.c - short scripted worlds: what the guarantees say about crowds, long waits and dead
 * processes.
 *
 *     sim_stories [NAME]
 *
 * Every story states the expected outcome, and when it is due.
 */
#include "stories.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START (3600 * SECOND)

model *server;
snib__time now;
int64_t step_ns;
struct actor actors[ACTORS];
struct waiter waiters[WAITERS];
int waiter_count;
static int actor_count;
static uint64_t grants;
static const char *story;

void fail(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "sim_stories: %s, at %.3f s: ", story, (double)(now - START) / 1e9);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    exit(1);
}

/* ---- The world ---------------------------------------------------------------------------------- */

void begin_world(void)
{
    server = model_new();
    now = START;
    step_ns = 0;
    model_time(server, EPOCH_NS + now + (uint64_t)step_ns);
    actor_count = waiter_count = 0;
    grants = 0;
}

struct actor *new_actor(void)
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
void kill_actor(struct actor *actor)
{
    cut(actor, 0);
    cut(actor, 1);
    snib__engine_free(actor->engine);
    actor->engine = NULL;
}

void end_world(void)
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

/* Carry the bytes and requests of one process; false: there was nothing to do. */
static bool pump(struct actor *actor)
{
    bool busy = false;
    for (int link = 0; link < 2; link++) {
        int wish = snib__engine_take_wish(actor->engine, snib__engine_link(actor->engine, link));
        if (wish == SNIB__WISH_CLOSE) {
            cut(actor, link);
        } else if (wish == SNIB__WISH_CONNECT) {
            actor->links[link] = model_connect(server);
            snib__engine_link_up(actor->engine, snib__engine_link(actor->engine, link), now);
        }
        struct snib__buf *out = snib__link_output(snib__engine_link(actor->engine, link));
        bool stuck = link == SNIB__PUBSUB && actor->deaf;
        size_t n = stuck ? 0 : snib__buf_size(out);
        if (n > 0 && actor->links[link] != 0) {
            model_input(server, actor->links[link], out->data + out->head, n);
            snib__buf_consume(out, n);
        }
        const char *bytes;
        bool closed = stuck || actor->links[link] == 0;
        size_t got = closed ? 0 : model_output(server, actor->links[link], &bytes);
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

void settle(void)
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
        model_time(server, EPOCH_NS + now + (uint64_t)step_ns);
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

void run_for(snib__time duration)
{
    run_until(now + duration);
}

/* ---- Actions of actors -------------------------------------------------------------------------- */

struct waiter *acquire(struct actor *actor, int kind, const char *name, size_t n,
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

struct waiter *wait_for(struct actor *actor, int kind, const char *name)
{
    return acquire(actor, kind, name, strlen(name), (struct snib__acquire){.wait = SNIB__NEVER});
}

void release(struct waiter *waiter)
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

void cancel(struct waiter *waiter)
{
    expect(snib__engine_cancel(waiter->actor->engine, waiter->op, now), "cancel came too late");
    settle();
}

/* The commands that a stopped process has sent are executed, but its command connection ends before
 * any reply. */
void lose_answers(struct actor *actor)
{
    struct snib__buf *out = snib__link_output(snib__engine_link(actor->engine, SNIB__COMMAND));
    model_input(server, actor->links[SNIB__COMMAND], out->data + out->head, snib__buf_size(out));
    snib__buf_consume(out, snib__buf_size(out));
    cut(actor, SNIB__COMMAND);
    snib__engine_link_down(actor->engine, snib__engine_link(actor->engine, SNIB__COMMAND),
                           SNIB_EUNREACHABLE, 0, now);
}

/* A stopped process reads its messages, and nothing else. */
void hear(struct actor *actor)
{
    const char *bytes;
    size_t n = model_output(server, actor->links[SNIB__PUBSUB], &bytes);
    expect(n > 0, "there is no message");
    snib__engine_input(actor->engine, snib__engine_link(actor->engine, SNIB__PUBSUB), bytes, n,
                       now);
}

bool there_is(const char *name)
{
    model_key key;
    return model_key_find(server, 0, name, strlen(name), &key);
}

void expect_nothing_left(void)
{
    model_key key;
    if (model_key_at(server, 0, &key)) {
        fail("%.*s was left behind", (int)key.name.n, key.name.p);
    }
}

/* ---- All stories -------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static const struct story *const lists[] = {stories_fair, stories_shared, stories_turns};
    int told = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (const struct story *next = lists[i]; next->name != NULL; next++) {
            story = next->name;
            if (argc < 2 || strcmp(argv[1], story) == 0) {
                next->tell();
                told++;
            }
        }
    }
    printf("sim_stories: %d good\n", told);
    return told > 0 ? 0 : 2;
}
