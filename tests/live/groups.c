/* groups.c - locks of locks: all or none, on one server, on several, and by majority. */
#include "../support/support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SERVERS = 3, MEMBERS = 6, PROMPT_MS = 10000, RECHECK_MS = 60000 };

struct composition {
    const char *name;
    int n;
    bool quorum;
    struct {
        int server;
        int32_t kind;
    } of[MEMBERS];
};

static const struct composition compositions[] = {
    {"one", 1, false, {{0, SNIB_MUTEX}}},
    {"one script",
     6,
     false,
     {{0, SNIB_MUTEX},
      {0, SNIB_FENCED},
      {0, SNIB_SPIN},
      {0, SNIB_READ},
      {0, SNIB_WRITE},
      {0, SNIB_MUTEX}}},
    {"one after another", 3, false, {{0, SNIB_FAIR}, {0, SNIB_PLAIN}, {0, SNIB_PERMITS}}},
    {"mixed",
     5,
     false,
     {{0, SNIB_MUTEX}, {0, SNIB_FAIR}, {0, SNIB_FENCED}, {0, SNIB_PLAIN}, {0, SNIB_PERMITS}}},
    {"several servers",
     6,
     false,
     {{0, SNIB_MUTEX},
      {1, SNIB_WRITE},
      {1, SNIB_READ},
      {2, SNIB_FAIR},
      {2, SNIB_MUTEX},
      {0, SNIB_PERMITS}}},
    {"quorum", 3, true, {{0, SNIB_MUTEX}, {1, SNIB_MUTEX}, {2, SNIB_MUTEX}}},
};
enum { COMPOSITIONS = sizeof compositions / sizeof compositions[0] };

/* A group of the first process, and the same locks and group of another process. */
struct team {
    const struct composition *is;
    snib_lock *group, *their_group;
    snib_lock *ours[MEMBERS], *rivals[MEMBERS];
};

struct world {
    struct server servers[SERVERS];
    snib_client *ours[SERVERS], *theirs[SERVERS];
    struct team teams[COMPOSITIONS];
    char *base[SERVERS];
};

#define EACH_TEAM(world, team)                                                                     \
    struct team *team = (world)->teams;                                                            \
    team < (world)->teams + COMPOSITIONS;                                                          \
    team++

static snib_lock *group_of(const struct composition *is, snib_lock *const *members,
                           const snib_lock_options *given)
{
    snib_lock_options options;
    snib_lock *group = NULL;
    snib_lock_options_init(&options, sizeof options);
    if (given)
        options = *given;
    options.flags = is->quorum ? SNIB_LOCK_NO_QUARANTINE : 0;
    EXPECT((is->quorum ? snib_quorum_new : snib_multi_new)(members, (uint32_t)is->n, &options,
                                                           &group, err),
           SNIB_OK);
    return group;
}

static void team_new(struct world *world, struct team *team, const struct composition *is,
                     const snib_lock_options *options)
{
    snib_lock *reversed[MEMBERS];
    *team = (struct team){.is = is};
    for (int i = 0; i < is->n; i++) {
        int server = is->of[i].server;
        int32_t kind = is->of[i].kind, rival = kind == SNIB_READ ? SNIB_WRITE : kind;
        char name[48];
        snprintf(name, sizeof name, "%s:%d", is->name, is->quorum ? 0 : i);
        team->ours[i] = must_lock_kind(world->ours[server], kind, name);
        team->rivals[i] = must_lock_kind(world->theirs[server], rival, name);
        reversed[is->n - 1 - i] = must_lock_kind(world->theirs[server], kind, name);
        if (kind == SNIB_PERMITS)
            must_count(SNIB_PERMITS, team->ours[i], SNIB_COUNT_INIT, 1);
    }
    team->group = group_of(is, team->ours, options);
    team->their_group = group_of(is, reversed, NULL);
    for (int i = 0; i < is->n; i++)
        snib_lock_free(reversed[i]); /* the group keeps its own references */
    must_release(must_acquire(team->group, PROMPT_MS));
}

static void world_open(struct world *world, int64_t lease_ms, const snib_lock_options *options)
{
    char url[256];
    for (int i = 0; i < SERVERS; i++) {
        server_do(&world->servers[i], "FLUSHALL");
        /* What a client says about itself may expire, and keys that do are counted. */
        snprintf(url, sizeof url, "%s%sidentity=no", world->servers[i].url,
                 strchr(world->servers[i].url, '?') ? "&" : "?");
        world->ours[i] = must_open_recheck(url, lease_ms, RECHECK_MS);
        world->theirs[i] = must_open_recheck(url, lease_ms, RECHECK_MS);
    }
    for (int i = 0; i < COMPOSITIONS; i++)
        team_new(world, &world->teams[i], &compositions[i], options);
    for (int i = 0; i < SERVERS; i++) { /* a quorum's third may come late, and is given back */
        AWAIT(server_integer(&world->servers[i], "EXISTS quorum:0") == 0, PROMPT_MS);
        world->base[i] = server_keys(&world->servers[i]);
    }
}

static bool servers_at_base(struct world *world)
{
    bool same = true;
    for (int i = 0; i < SERVERS; i++) {
        char *keys = server_keys(&world->servers[i]);
        same = same && strcmp(keys, world->base[i]) == 0;
        free(keys);
    }
    return same;
}

static void expect_base(struct world *world)
{
    for (int64_t end = now_ms() + PROMPT_MS; !servers_at_base(world); nap_us(1000))
        if (now_ms() > end)
            for (int i = 0; i < SERVERS; i++) {
                char *keys = server_keys(&world->servers[i]);
                if (strcmp(keys, world->base[i]) != 0)
                    fail_msg("server %d has:\n%sinstead of:\n%s", i, keys, world->base[i]);
                free(keys);
            }
}

static void world_close(struct world *world)
{
    expect_base(world);
    for (EACH_TEAM(world, team)) {
        for (int i = 0; i < team->is->n; i++) {
            snib_lock_free(team->ours[i]);
            snib_lock_free(team->rivals[i]);
        }
        snib_lock_free(team->group);
        snib_lock_free(team->their_group);
    }
    for (int i = 0; i < SERVERS; i++) {
        snib_client_free(world->ours[i]);
        snib_client_free(world->theirs[i]);
        AWAIT(server_channels(&world->servers[i]) == 0, PROMPT_MS);
        free(world->base[i]);
    }
}

/* A quorum is held with two votes of three, and has the third soon. */
static void await_all_votes(struct world *world, const struct team *team)
{
    for (int i = 0; i < SERVERS && team->is->quorum; i++)
        AWAIT(server_integer(&world->servers[i], "EXISTS quorum:0") == 1, PROMPT_MS);
}

static int world_new(void **state)
{
    world_open(*state, 0, NULL);
    return 0;
}

static int world_free(void **state)
{
    world_close(*state);
    return 0;
}

/* ---- All or none ------------------------------------------------------------------------------ */

static void exclusion(void **state)
{
    struct world *world = *state;
    for (EACH_TEAM(world, team)) {
        snib_hold *hold = must_acquire(team->group, 0), *other = NULL;
        int64_t remaining = snib_hold_remaining_ms(hold);
        assert_true(remaining > 20000 && remaining <= 30000);
        assert_int_equal(snib_hold_token(hold), 0);
        await_all_votes(world, team);
        EXPECT(snib_lock_acquire(team->their_group, 0, 0, &other, err), SNIB_BUSY);
        EXPECT(snib_lock_acquire(team->their_group, 0, 60, &other, err), SNIB_TIMEDOUT);
        EXPECT(snib_lock_acquire(team->group, 0, 0, &other, err), SNIB_BUSY); /* a fresh owner */
        for (int i = 0; i < team->is->n; i++)
            EXPECT(snib_lock_acquire(team->rivals[i], 0, 0, &other, err), SNIB_BUSY);
        EXPECT(snib_hold_check(hold, err), SNIB_OK);
        EXPECT(snib_hold_release(hold, err), SNIB_OK);
        EXPECT(snib_hold_release(hold, err), SNIB_NOT_HELD);
        snib_hold_free(hold);
        /* Confirmed free; of a quorum's members a minority may follow, or be given back by a late attempt. */
        for (int i = 0; i < team->is->n; i++)
            must_release(must_acquire(team->rivals[i], team->is->quorum ? PROMPT_MS : 0));
        must_release(must_acquire(team->their_group, 0));
    }
}

/* One member is held by another: none is taken.  A quorum works without a minority. */
static void all_or_none(void **state)
{
    struct world *world = *state;
    for (EACH_TEAM(world, team))
        for (int i = 0; i < team->is->n; i++) {
            snib_hold *theirs = must_acquire(team->rivals[i], PROMPT_MS), *hold = NULL;
            if (team->is->quorum) {
                must_release(must_acquire(team->group, PROMPT_MS));
                snib_hold *second = must_acquire(team->rivals[(i + 1) % 3], PROMPT_MS);
                EXPECT(snib_lock_acquire(team->group, 0, 0, &hold, err), SNIB_BUSY);
                EXPECT(snib_lock_acquire(team->group, 0, 40, &hold, err), SNIB_TIMEDOUT);
                must_release(must_acquire(team->rivals[(i + 2) % 3], PROMPT_MS));
                must_release(second);
            } else {
                EXPECT(snib_lock_acquire(team->group, 0, 0, &hold, err), SNIB_BUSY);
                EXPECT(snib_lock_acquire(team->group, 0, 40, &hold, err), SNIB_TIMEDOUT);
                for (int other = 0; other < team->is->n; other++)
                    if (other != i)
                        must_release(must_acquire(team->rivals[other], PROMPT_MS));
            }
            EXPECT(snib_hold_check(theirs, err), SNIB_OK);
            must_release(theirs);
        }
}

static void reentry(void **state)
{
    struct world *world = *state;
    for (EACH_TEAM(world, team)) {
        snib_hold *hold = must_acquire_as(team->group, 5, 0), *other = NULL;
        uint64_t before = 0, after = 0;
        for (int i = 0; i < SERVERS; i++)
            before += must_stats(world->ours[i]).commands;
        for (int i = 0; i < 3; i++)
            assert_ptr_equal(must_acquire_as(team->group, 5, -1), hold);
        for (int i = 0; i < 3; i++)
            must_release(hold);
        for (int i = 0; i < SERVERS; i++)
            after += must_stats(world->ours[i]).commands;
        assert_int_equal(before, after);
        EXPECT(snib_lock_acquire(team->their_group, 0, 0, &other, err), SNIB_BUSY);
        must_release(hold);
        must_release(must_acquire(team->their_group, 0));
    }
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static void release_wakes(void **state)
{
    struct world *world = *state;
    for (EACH_TEAM(world, team))
        for (int i = 0; i < team->is->n; i++) {
            snib_queue *queue = must_queue(world->ours[team->is->of[0].server]);
            snib_hold *theirs = must_acquire(team->rivals[i], PROMPT_MS);
            snib_hold *second =
                team->is->quorum ? must_acquire(team->rivals[(i + 1) % 3], PROMPT_MS) : NULL;
            EXPECT(snib_lock_acquire_submit(team->group, 0, -1, queue, 3, NULL, err), SNIB_OK);
            nap_us(i % 2 ? 60000 : 1000);
            snib_event event = {.size = sizeof event};
            assert_int_equal(snib_queue_drain(queue, &event, 1, NULL), 0);
            int64_t start = now_ms();
            must_release(theirs);
            event = must_event(queue, PROMPT_MS);
            if (event.code != SNIB_OK || now_ms() - start > PROMPT_MS)
                fail_msg("%s, member %d: %s after %d ms", team->is->name, i,
                         snib_code_name(event.code), (int)(now_ms() - start));
            must_release(event.hold);
            if (second)
                must_release(second);
            snib_queue_free(queue);
        }
}

enum way { BY_CANCEL, BY_TIMEOUT, BY_QUEUE_FREE, BY_OP_FREE, WAYS };

/* An acquisition ends at any moment, while a member is not free, or with all free; nothing of it
 * stays. */
static void leaving(void **state)
{
    struct world *world = *state;
    for (EACH_TEAM(world, team))
        for (int run = 0; run < count_of(400, 40); run++) {
            enum way way = (enum way)(run % WAYS);
            bool contended = run / WAYS % 2;
            snib_client *home = world->ours[team->is->of[0].server];
            snib_queue *queue = way == BY_OP_FREE ? NULL : must_queue(home);
            snib_hold *theirs = contended ? must_acquire(team->their_group, PROMPT_MS) : NULL;
            snib_op *op = NULL;
            EXPECT(snib_lock_acquire_submit(team->group, 0, way == BY_TIMEOUT ? 1 + run % 5 : -1,
                                            queue, 3, &op, err),
                   SNIB_OK);
            nap_us(random() % 1500);
            int cancelled = way == BY_CANCEL ? snib_op_cancel(op) : SNIB_EHANDLE;
            if (way == BY_OP_FREE)
                snib_op_free(op);
            if (way == BY_CANCEL || way == BY_TIMEOUT) {
                snib_event event = must_event(queue, PROMPT_MS);
                int want = way == BY_CANCEL ? SNIB_CANCELLED : SNIB_TIMEDOUT;
                assert_true(event.code == want || (event.code == SNIB_OK && !contended));
                assert_true((event.code == SNIB_CANCELLED) == (cancelled == SNIB_OK));
                snib_hold_free(event.hold);
            }
            snib_queue_free(queue);
            if (theirs)
                must_release(theirs);
            must_release(must_acquire(team->their_group, PROMPT_MS));
        }
    expect_base(world);
}

struct worker {
    snib_lock *group;
    int *inside, rounds;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (int i = 0; i < worker->rounds; i++) {
        snib_hold *hold = must_acquire(worker->group, 20000);
        assert_int_equal(__atomic_add_fetch(worker->inside, 1, __ATOMIC_SEQ_CST), 1);
        __atomic_sub_fetch(worker->inside, 1, __ATOMIC_SEQ_CST);
        must_release(hold);
    }
    return NULL;
}

/* Two processes name the members in opposite order, and never deadlock. */
static void opposite_orders(void **state)
{
    struct world *world = *state;
    for (EACH_TEAM(world, team)) {
        int inside = 0;
        pthread_t threads[4];
        struct worker workers[] = {{team->group, &inside, count_of(300, 40)},
                                   {team->their_group, &inside, count_of(300, 40)}};
        int64_t start = now_ms();
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i % 2]), 0);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        print_message("          %s: %d ms\n", team->is->name, (int)(now_ms() - start));
    }
}

/* ---- Leases and losses ----------------------------------------------------------------------- */

/* A lease that is to end, and one that must survive a busy machine. */
enum { LEASE_MS = 800, KEPT_LEASE_MS = 4000 };

static void renewed(void **state)
{
    struct world *world = *state;
    snib_hold *holds[COMPOSITIONS], *other = NULL;
    world_open(world, KEPT_LEASE_MS, NULL);
    for (EACH_TEAM(world, team))
        holds[team - world->teams] = must_acquire(team->group, 0);
    for (int64_t end = now_ms() + 2 * KEPT_LEASE_MS; now_ms() < end; nap_us(5000))
        for (EACH_TEAM(world, team))
            if (snib_hold_state(holds[team - world->teams], NULL) == SNIB_HOLD_LOST)
                fail_msg("%s was lost", team->is->name);
    for (EACH_TEAM(world, team)) {
        EXPECT(snib_lock_acquire(team->their_group, 0, 0, &other, err), SNIB_BUSY);
        must_release(holds[team - world->teams]);
    }
    world_close(world);
}

static void ends_by(struct world *world, int32_t reason, int64_t after_ms)
{
    snib_hold *holds[COMPOSITIONS];
    int64_t start = now_ms();
    for (EACH_TEAM(world, team))
        holds[team - world->teams] = must_acquire(team->group, 0);
    for (EACH_TEAM(world, team)) {
        int32_t told = 0;
        EXPECT(snib_hold_wait(holds[team - world->teams], PROMPT_MS, &told, err), SNIB_LOST);
        if (told != reason)
            fail_msg("%s: %s", team->is->name, snib_reason_text(told));
        assert_true(now_ms() - start < after_ms + PROMPT_MS);
        EXPECT(snib_hold_release(holds[team - world->teams], err), SNIB_LOST);
        snib_hold_free(holds[team - world->teams]);
        must_release(must_acquire(team->their_group, LEASE_MS + PROMPT_MS));
    }
    world_close(world);
}

static void fixed_lease_ends(void **state)
{
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = 2 * LEASE_MS;
    world_open(*state, 0, &options);
    ends_by(*state, SNIB_REASON_EXPIRED, 2 * LEASE_MS);
}

static void max_hold_ends(void **state)
{
    snib_lock_options options;
    snib_lock_options_init(&options, sizeof options);
    options.max_hold_ms = 2 * LEASE_MS;
    world_open(*state, KEPT_LEASE_MS, &options);
    ends_by(*state, SNIB_REASON_MAX_HOLD, 2 * LEASE_MS);
}

/* Every member of an extended group gets the lease: it outlives the first one, and ends with the second. */
static void extended(void **state)
{
    struct world *world = *state;
    snib_hold *holds[COMPOSITIONS], *other = NULL;
    int64_t start = now_ms();
    world_open(world, 0, NULL);
    for (EACH_TEAM(world, team))
        holds[team - world->teams] = must_acquire(team->group, 0);
    for (EACH_TEAM(world, team))
        EXPECT(snib_hold_extend(holds[team - world->teams], 3600000, err), SNIB_OK);
    for (EACH_TEAM(world, team))
        assert_in_range(snib_hold_remaining_ms(holds[team - world->teams]),
                        3500000 - (now_ms() - start), 3600000);
    for (EACH_TEAM(world, team)) { /* a shorter one ends the renewal only: no lease is taken back */
        EXPECT(snib_hold_extend(holds[team - world->teams], LEASE_MS, err), SNIB_OK);
        assert_true(snib_hold_remaining_ms(holds[team - world->teams]) >
                    3500000 - (now_ms() - start));
    }
    for (EACH_TEAM(world, team)) { /* renewed again */
        EXPECT(snib_hold_extend(holds[team - world->teams], 0, err), SNIB_OK);
        assert_true(snib_hold_remaining_ms(holds[team - world->teams]) <= 30000);
        EXPECT(snib_lock_acquire(team->their_group, 0, 0, &other, err), SNIB_BUSY);
        must_release(holds[team - world->teams]);
        must_release(must_acquire(team->their_group, PROMPT_MS));
    }
    world_close(world);
}

/* A fixed lease that ends is lost, whatever the one before was; and what was not extended, too. */
static void extended_ends(void **state)
{
    struct world *world = *state;
    snib_hold *holds[COMPOSITIONS];
    world_open(world, LEASE_MS, NULL);
    for (EACH_TEAM(world, team)) {
        snib_hold **hold = &holds[team - world->teams];
        int32_t reason = 0;
        *hold = must_acquire(team->group, PROMPT_MS);
        int code = snib_hold_extend(*hold, 2 * LEASE_MS, NULL);
        assert_true(code == SNIB_OK || code == SNIB_LOST); /* the machine has stalled */
        EXPECT(snib_hold_wait(*hold, PROMPT_MS, &reason, err), SNIB_LOST);
        if (code == SNIB_OK)
            assert_int_equal(reason, SNIB_REASON_EXPIRED);
        EXPECT(snib_hold_extend(*hold, 0, err), SNIB_LOST);
        EXPECT(snib_hold_release(*hold, err), SNIB_LOST);
        snib_hold_free(*hold);
    }
    world_close(world);
}

/* A release ends an extension that has no answer. */
static void extended_and_released(void **state)
{
    struct world *world = *state;
    world_open(world, 0, NULL);
    for (EACH_TEAM(world, team)) {
        int home = team->is->of[0].server;
        snib_hold *hold = must_acquire(team->group, PROMPT_MS);
        snib_queue *queue = must_queue(world->ours[home]);
        EXPECT(snib_hold_extend(hold, 3600000, err), SNIB_OK); /* whose end is not to be awaited */
        for (int i = 0; i < SERVERS; i++)
            server_pause(&world->servers[i]);
        EXPECT(snib_hold_extend_submit(hold, 3600000, queue, 1, NULL, err), SNIB_OK);
        EXPECT(snib_hold_release_submit(hold, queue, 2, NULL, err), SNIB_OK);
        for (int i = 0; i < SERVERS; i++)
            server_continue(&world->servers[i]);
        for (int i = 0; i < 2; i++) {
            snib_event event = must_event(queue, 2 * PROMPT_MS);
            assert_true(event.code == (event.token == 2 ? SNIB_OK : SNIB_NOT_HELD) ||
                        (event.token == 1 && event.code == SNIB_OK));
        }
        snib_hold_free(hold);
        snib_queue_free(queue);
        must_release(must_acquire(team->their_group, PROMPT_MS));
    }
    world_close(world);
}

/* A majority is enough. */
static void extended_by_most(void **state)
{
    struct world *world = *state;
    world_open(world, 0, NULL);
    struct team *team = &world->teams[COMPOSITIONS - 1];
    snib_hold *hold = must_acquire(team->group, PROMPT_MS);
    for (int i = 0; i < SERVERS; i++)
        AWAIT(server_integer(&world->servers[i], "EXISTS quorum:0") == 1, PROMPT_MS);
    server_pause(&world->servers[1]);
    EXPECT(snib_hold_extend(hold, 60000, err), SNIB_OK);
    EXPECT(snib_hold_extend(hold, 120000, err), SNIB_OK); /* not held up by the silent server */
    assert_true(snib_hold_remaining_ms(hold) > 60000);
    server_continue(&world->servers[1]);
    must_release(hold);
    world_close(world);
}

/* Delete a member's keys at its server; whether they were there. */
static bool force(struct world *world, struct team *team, int member)
{
    struct server *server = &world->servers[team->is->of[member].server];
    char name[48];
    snprintf(name, sizeof name, "%s:%d", team->is->name, team->is->quorum ? 0 : member);
    if (team->is->of[member].kind == SNIB_PERMITS)
        return server_integer(server, "DEL {%s}:timeout", name) == 1;
    return server_integer(server, "DEL %s", name) == 1;
}

/* A quorum's last member may be granted a moment later. */
static void must_force(struct world *world, struct team *team, int member)
{
    AWAIT(force(world, team, member), 6 * PROMPT_MS);
}

/* Make another owner hold the quorum's lock on this server, atomically. */
static void must_rob(struct world *world, int server)
{
    server_do(&world->servers[server], "EVAL %s 1 quorum:0",
              "redis.call('del', KEYS[1]) "
              "redis.call('hset', KEYS[1], '0-0-0-0-0:1', 1) "
              "return redis.call('pexpire', KEYS[1], 60000)");
}

static long long keys_expired(struct world *world)
{
    long long sum = 0;
    for (int i = 0; i < SERVERS; i++) {
        redisReply *reply = server_command(&world->servers[i], "INFO stats");
        sum += atoll(strstr(reply->str, "expired_keys:") + strlen("expired_keys:"));
        freeReplyObject(reply);
    }
    return sum;
}

/* Delete the team's member i at the server, and for a quorum as many that they cannot be
 * regained. */
static void strike(struct world *world, struct team *team, int i)
{
    must_force(world, team, i);
    if (team->is->quorum) {
        must_rob(world, i);
        must_rob(world, (i + 1) % 3);
    }
}

/* Each member of each team is lost in turn: its holder is told, and its release gives the other
 * members back, long before their leases end. */
static void member_lost(void **state)
{
    enum { LONG_MS = 9000 };
    struct world *world = *state;
    world_open(world, LONG_MS, NULL);
    long long expired = keys_expired(world);
    for (int i = 0; i < MEMBERS; i++) {
        snib_hold *holds[COMPOSITIONS];
        for (EACH_TEAM(world, team))
            if (i < team->is->n)
                holds[team - world->teams] = must_acquire(team->group, PROMPT_MS);
        for (EACH_TEAM(world, team))
            if (i < team->is->n)
                strike(world, team, i);
        for (EACH_TEAM(world, team)) {
            if (i >= team->is->n)
                continue;
            snib_hold *hold = holds[team - world->teams];
            int32_t reason = 0;
            EXPECT(snib_hold_wait(hold, patient_ms(LONG_MS), &reason, err), SNIB_LOST);
            assert_true(reason == SNIB_REASON_DELETED || reason == SNIB_REASON_TAKEN);
            EXPECT(snib_hold_release(hold, err), SNIB_LOST);
            snib_hold_free(hold);
            for (int other = 0; other < team->is->n; other++) {
                if (team->is->quorum && other != (i + 2) % 3)
                    must_force(world, team, other);
                if (team->is->of[other].kind == SNIB_PERMITS && other == i)
                    must_count(SNIB_PERMITS, team->ours[other], SNIB_COUNT_SET, 1);
                must_release(must_acquire(team->rivals[other], PROMPT_MS));
            }
        }
    }
    assert_int_equal(keys_expired(world), expired); /* no lease had to end */
    world_close(world);
}

/* A lost member of a quorum is requested again, and the hold survives. */
static void quorum_member_returns(void **state)
{
    struct world *world = *state;
    world_open(world, KEPT_LEASE_MS, NULL);
    struct team *team = &world->teams[COMPOSITIONS - 1];
    assert_true(team->is->quorum);
    for (int i = 0; i < team->is->n; i++) {
        snib_hold *hold = must_acquire(team->group, PROMPT_MS);
        must_force(world, team, i);
        EXPECT(snib_hold_wait(hold, KEPT_LEASE_MS, NULL, err), SNIB_TIMEDOUT);
        AWAIT(server_integer(&world->servers[i], "EXISTS quorum:0") == 1, PROMPT_MS);
        must_release(hold);
    }
    world_close(world);
}

/* All members are lost at once: that is one loss, reported once. */
static void loss_is_told_once(void **state)
{
    struct world *world = *state;
    world_open(world, KEPT_LEASE_MS, NULL);
    for (EACH_TEAM(world, team)) {
        snib_queue *queue = must_queue(world->ours[team->is->of[0].server]);
        EXPECT(snib_lock_acquire_submit(team->group, 0, PROMPT_MS, queue, 3, NULL, err), SNIB_OK);
        snib_hold *hold = must_event(queue, PROMPT_MS).hold;
        assert_non_null(hold);
        for (int i = 0; i < team->is->n; i++)
            if (team->is->quorum)
                must_rob(world, i);
            else if (i == 0)
                must_force(world, team, i);
            else /* the client may have heard of the first, and given back this one */
                force(world, team, i);
        snib_event event = must_event(queue, PROMPT_MS);
        assert_int_equal(event.kind, SNIB_EVENT_LOST);
        assert_int_equal(event.token, 3);
        EXPECT(snib_hold_release(hold, err), SNIB_LOST);
        for (int i = 0; i < team->is->n; i++) {
            if (team->is->quorum)
                must_force(world, team, i);
            if (team->is->of[i].kind == SNIB_PERMITS)
                must_count(SNIB_PERMITS, team->ours[i], SNIB_COUNT_SET, 1);
            must_release(must_acquire(team->rivals[i], PROMPT_MS));
        }
        assert_int_equal(snib_queue_drain(queue, &event, 1, NULL), 0);
        snib_hold_free(hold);
        snib_queue_free(queue);
    }
    world_close(world);
}

/* A member's client, or the first member's, is closed while the lock is held. */
static void client_closed(void **state)
{
    struct world *world = *state;
    for (int closed = 0; closed < SERVERS; closed++) {
        snib_hold *holds[COMPOSITIONS];
        world_open(world, 0, NULL);
        for (EACH_TEAM(world, team))
            holds[team - world->teams] = must_acquire(team->group, 0);
        for (int i = 0; i < SERVERS; i++) /* the quorum's third member has been granted as well */
            AWAIT(server_integer(&world->servers[i], "EXISTS quorum:0") == 1, PROMPT_MS);
        for (int i = 0; i < SERVERS; i++) /* and its reply has arrived: a ping's comes later */
            EXPECT(snib_client_ping(world->ours[i], -1, err), SNIB_OK);
        EXPECT(snib_client_close(world->ours[closed], -1, err), SNIB_OK);
        for (EACH_TEAM(world, team)) {
            int members = 0;
            for (int i = 0; i < team->is->n; i++)
                members += team->is->of[i].server == closed;
            snib_hold *hold = holds[team - world->teams];
            bool survives = members == 0 || (team->is->quorum && closed != 0);
            int32_t reason = 0;
            EXPECT(snib_hold_wait(hold, survives ? 20 : PROMPT_MS, &reason, err),
                   survives ? SNIB_TIMEDOUT : SNIB_LOST);
            if (!survives)
                assert_int_equal(reason, SNIB_REASON_CLOSED);
            if (survives)
                EXPECT(snib_hold_release(hold, err), SNIB_OK);
            snib_hold_free(hold);
            must_release(must_acquire(team->their_group, PROMPT_MS));
        }
        world_close(world);
    }
}

/* A minority of a quorum's servers stops: holders do not notice.  Without a majority the hold is
 * lost in time. */
static void quorum_servers_stop(void **state)
{
    struct world *world = *state;
    world_open(world, KEPT_LEASE_MS, NULL);
    struct team *team = &world->teams[COMPOSITIONS - 1];
    snib_hold *hold = must_acquire(team->group, 0);
    server_pause(&world->servers[1]);
    EXPECT(snib_hold_wait(hold, 2 * KEPT_LEASE_MS, NULL, err), SNIB_TIMEDOUT);
    must_release(hold);
    hold = must_acquire(team->group, PROMPT_MS);
    server_pause(&world->servers[2]);
    /* The remaining server renews, but is not a majority. */
    bool too_long = false;
    for (int64_t paused = now_ms(), now = paused; now < paused + KEPT_LEASE_MS; nap_us(1000)) {
        now = now_ms();
        int64_t left = snib_hold_remaining_ms(hold);
        too_long |= left > 0 && now + left > paused + KEPT_LEASE_MS;
    }
    int32_t reason = 0;
    EXPECT(snib_hold_wait(hold, 0, &reason, err), SNIB_LOST);
    assert_int_equal(reason, SNIB_REASON_UNREACHABLE);
    server_continue(&world->servers[1]);
    server_continue(&world->servers[2]);
    assert_false(too_long);
    EXPECT(snib_hold_release(hold, err), SNIB_LOST);
    snib_hold_free(hold);
    must_release(must_acquire(team->their_group, PROMPT_MS));
    world_close(world);
}

/* A member that refused is tried again, so that a hold does not depend on a bare majority. */
static void quorum_completes_itself(void **state)
{
    struct world *world = *state;
    world_open(world, KEPT_LEASE_MS, NULL);
    struct team *team = &world->teams[COMPOSITIONS - 1];
    snib_hold *theirs = must_acquire(team->rivals[2], 0), *hold = must_acquire(team->group, 0);
    must_release(theirs);
    AWAIT(server_integer(&world->servers[2], "EXISTS quorum:0") == 1, PROMPT_MS);
    EXPECT(snib_lock_acquire(team->rivals[2], 0, 0, &theirs, err), SNIB_BUSY);
    must_force(world, team, 0);
    EXPECT(snib_hold_wait(hold, KEPT_LEASE_MS, NULL, err), SNIB_TIMEDOUT);
    must_release(hold);
    world_close(world);
}

/* An abandoned hold is not released: each member's lease runs out. */
static void abandoned(void **state)
{
    struct world *world = *state;
    world_open(world, 2 * LEASE_MS, NULL);
    for (EACH_TEAM(world, team)) {
        snib_hold *hold = must_acquire(team->group, PROMPT_MS), *other = NULL;
        int64_t start = now_ms();
        snib_hold_abandon(hold);
        assert_int_equal(snib_hold_state(hold, NULL), SNIB_EHANDLE);
        if (snib_lock_acquire(team->their_group, 0, 0, &other, NULL) == SNIB_OK)
            assert_true(now_ms() - start > 2 * LEASE_MS - 100); /* the machine has stalled */
        if (other)
            must_release(other);
        must_release(must_acquire(team->group, PROMPT_MS));
        if (now_ms() - start < LEASE_MS)
            fail_msg("%s: free after %d ms", team->is->name, (int)(now_ms() - start));
    }
    for (int i = 0; i < SERVERS; i++)
        AWAIT(must_stats(world->ours[i]).held == 0, PROMPT_MS);
    world_close(world);
}

static int start(void **state)
{
    static struct world world;
    for (int i = 0; i < SERVERS; i++)
        server_start(&world.servers[i], NULL);
    *state = &world;
    return 0;
}

static int stop(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < SERVERS; i++)
        server_stop(&world->servers[i]);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(exclusion),
        TEST(all_or_none),
        TEST(reentry),
        TEST(release_wakes),
        TEST(leaving),
        TEST(opposite_orders),
        cmocka_unit_test(renewed),
        cmocka_unit_test(fixed_lease_ends),
        cmocka_unit_test(extended),
        cmocka_unit_test(extended_ends),
        cmocka_unit_test(extended_by_most),
        cmocka_unit_test(extended_and_released),
        cmocka_unit_test(max_hold_ends),
        cmocka_unit_test(member_lost),
        cmocka_unit_test(quorum_member_returns),
        cmocka_unit_test(loss_is_told_once),
        cmocka_unit_test(client_closed),
        cmocka_unit_test(quorum_servers_stop),
        cmocka_unit_test(quorum_completes_itself),
        cmocka_unit_test(abandoned),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
