/* teams.c - see teams.h. */
#include "teams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct composition compositions[COMPOSITIONS] = {
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

static void team_new(struct teams_world *world, struct team *team, const struct composition *is,
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

void teams_open(struct teams_world *world, int64_t lease_ms, const snib_lock_options *options)
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

static bool servers_at_base(struct teams_world *world)
{
    bool same = true;
    for (int i = 0; i < SERVERS; i++) {
        char *keys = server_keys(&world->servers[i]);
        same = same && strcmp(keys, world->base[i]) == 0;
        free(keys);
    }
    return same;
}

void teams_expect_base(struct teams_world *world)
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

void teams_close(struct teams_world *world)
{
    teams_expect_base(world);
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

void teams_await_all_votes(struct teams_world *world, const struct team *team)
{
    for (int i = 0; i < SERVERS && team->is->quorum; i++)
        AWAIT(server_integer(&world->servers[i], "EXISTS quorum:0") == 1, PROMPT_MS);
}

int teams_new(void **state)
{
    teams_open(*state, 0, NULL);
    return 0;
}

int teams_free(void **state)
{
    teams_close(*state);
    return 0;
}

int teams_start(void **state)
{
    static struct teams_world world;
    for (int i = 0; i < SERVERS; i++)
        server_start(&world.servers[i], NULL);
    *state = &world;
    return 0;
}

int teams_stop(void **state)
{
    struct teams_world *world = *state;
    for (int i = 0; i < SERVERS; i++)
        server_stop(&world->servers[i]);
    return 0;
}
