/* kinds.c - the table of kinds, and the world in which they are tested. */
#include "kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANY_LOCK = OWNED | LEASED };

const struct kind kinds[KINDS] = {
    {"mutex", SNIB_MUTEX, 0, SNIB_MUTEX, 0, ANY_LOCK | TELLS},
    {"fair", SNIB_FAIR, 0, SNIB_FAIR, 0, ANY_LOCK | TELLS},
    {"fair, fenced", SNIB_FAIR, SNIB_LOCK_FENCED, SNIB_FAIR, SNIB_LOCK_FENCED, ANY_LOCK | TELLS},
    {"read", SNIB_READ, 0, SNIB_WRITE, 0, ANY_LOCK | TELLS},
    {"read, preferred", SNIB_READ, 0, SNIB_WRITE, SNIB_LOCK_PREFER_WRITER, ANY_LOCK | TELLS},
    {"write", SNIB_WRITE, 0, SNIB_WRITE, 0, ANY_LOCK | TELLS},
    {"write, read", SNIB_WRITE, 0, SNIB_READ, 0, ANY_LOCK | TELLS},
    {"write, fenced", SNIB_WRITE, SNIB_LOCK_FENCED, SNIB_WRITE, SNIB_LOCK_FENCED, ANY_LOCK | TELLS},
    {"fenced", SNIB_FENCED, 0, SNIB_FENCED, 0, ANY_LOCK | TELLS},
    {"spin", SNIB_SPIN, 0, SNIB_SPIN, 0, ANY_LOCK},
    {"plain", SNIB_PLAIN, 0, SNIB_PLAIN, 0, ANY_LOCK | TELLS},
    {"semaphore", SNIB_SEMAPHORE, 0, SNIB_SEMAPHORE, 0, COUNTED | TELLS},
    {"permits", SNIB_PERMITS, 0, SNIB_PERMITS, 0, LEASED | COUNTED | TELLS},
};

struct pair *kinds_next(struct kinds_world *world, struct pair *pair, int traits)
{
    pair = pair ? pair + 1 : world->pairs;
    while (pair < world->pairs + KINDS && !(pair->kind->traits & traits))
        pair++;
    return pair < world->pairs + KINDS ? pair : NULL;
}

int kinds_server_start(void **state)
{
    static struct kinds_world world;
    server_start(&world.server, NULL);
    *state = &world;
    return 0;
}

int kinds_server_stop(void **state)
{
    struct kinds_world *world = *state;
    server_stop(&world->server);
    return 0;
}

static snib_lock *kinds_lock(snib_client *client, int32_t kind, uint32_t flags, const char *name,
                             struct kinds_options world)
{
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.flags = flags;
    if (kind != SNIB_SEMAPHORE) {
        options.lease_ms = world.fixed_lease_ms;
        options.max_hold_ms = world.max_hold_ms;
    }
    return must_lock_with(client, kind, name, &options);
}

void kinds_set_numbers(struct kinds_world *world)
{
    for (EACH_KIND_THAT(world, pair, COUNTED))
        must_count(pair->kind->kind, pair->same, SNIB_COUNT_INIT, 1);
}

void kinds_open(struct kinds_world *world, struct kinds_options options)
{
    const char *url = world->server.url, *our_url = options.our_url ? options.our_url : url;
    server_do(&world->server, "FLUSHALL");
    world->ours = must_open_recheck(our_url, options.lease_ms, options.recheck_ms);
    world->theirs = must_open_recheck(url, options.lease_ms, options.recheck_ms);
    world->queue = must_queue(world->ours);
    world->their_queue = must_queue(world->theirs);
    for (int i = 0; i < KINDS; i++) {
        const struct kind *kind = &kinds[i];
        struct pair *pair = &world->pairs[i];
        struct kinds_options none = {0};
        *pair = (struct pair){.kind = kind};
        snprintf(pair->name, sizeof pair->name, "kind:%s", kind->name);
        pair->ours = kinds_lock(world->ours, kind->kind, kind->flags, pair->name, options);
        pair->same = kinds_lock(world->theirs, kind->kind, kind->flags, pair->name, none);
        pair->rival = kinds_lock(world->theirs, kind->rival, kind->rival_flags, pair->name, none);
        pair->own_rival = kinds_lock(world->ours, kind->rival, kind->rival_flags, pair->name, none);
    }
    kinds_set_numbers(world);
    for (EACH_KIND(world, pair)) { /* token counters exist from the first hold on */
        must_release(must_acquire(pair->ours, 0));
        must_release(must_acquire(pair->rival, 0));
    }
    world->base = server_keys(&world->server);
}

static bool kinds_at_base(struct kinds_world *world)
{
    char *keys = server_keys(&world->server);
    bool same = strcmp(keys, world->base) == 0;
    free(keys);
    return same;
}

void kinds_expect_base(struct kinds_world *world, int64_t limit_ms)
{
    int64_t end = now_ms() + patient_ms(limit_ms);
    while (!kinds_at_base(world) && now_ms() < end)
        nap_us(1000);
    char *keys = server_keys(&world->server);
    if (strcmp(keys, world->base) != 0)
        fail_msg("after %d ms there is:\n%sinstead of:\n%s", (int)limit_ms, keys, world->base);
    free(keys);
}

void kinds_close(struct kinds_world *world)
{
    EXPECT(snib_client_close(world->ours, -1, err), SNIB_OK);
    EXPECT(snib_client_close(world->theirs, -1, err), SNIB_OK);
    kinds_expect_base(world, 1000);
    AWAIT(server_channels(&world->server) == 0, 1000);
    for (EACH_KIND(world, pair)) {
        snib_lock_free(pair->ours);
        snib_lock_free(pair->same);
        snib_lock_free(pair->rival);
        snib_lock_free(pair->own_rival);
        snib_hold_free(pair->hold);
    }
    snib_client_free(world->ours);
    snib_client_free(world->theirs);
    free(world->base);
}

snib_op *must_submit(snib_lock *lock, int64_t wait_ms, snib_queue *queue, uint64_t token)
{
    snib_op *op = NULL;
    EXPECT(snib_lock_acquire_submit(lock, 0, wait_ms, queue, token, &op, err), SNIB_OK);
    return op;
}

void expect_hold_lost(snib_hold *hold, int32_t reason, int64_t limit_ms)
{
    int32_t told = SNIB_REASON_NONE;
    EXPECT(snib_hold_wait(hold, patient_ms(limit_ms), &told, err), SNIB_LOST);
    if (told != reason)
        fail_msg("lost by \"%s\", not \"%s\"", snib_reason_text(told), snib_reason_text(reason));
    assert_int_equal(snib_hold_state(hold, NULL), SNIB_HOLD_LOST);
    assert_int_equal(snib_hold_remaining_ms(hold), 0);
}
