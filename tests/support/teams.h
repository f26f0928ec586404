/* teams.h - groups of locks, on one server, on several and by majority, as rows of one table, and a world in which each
 * has a rival. */
#ifndef SNIB_TESTS_TEAMS_H
#define SNIB_TESTS_TEAMS_H

#include "support.h"

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

enum { COMPOSITIONS = 6 };

/* A group of the first process, and the same locks and group of another process. */
struct team {
    const struct composition *is;
    snib_lock *group, *their_group;
    snib_lock *ours[MEMBERS], *rivals[MEMBERS];
};

struct teams_world {
    struct server servers[SERVERS];
    snib_client *ours[SERVERS], *theirs[SERVERS];
    struct team teams[COMPOSITIONS];
    char *base[SERVERS];
};

#define EACH_TEAM(world, team)                                                                     \
    struct team *team = (world)->teams;                                                            \
    team < (world)->teams + COMPOSITIONS;                                                          \
    team++

/* Empty servers, clients with this lease and the locks. */
void teams_open(struct teams_world *world, int64_t lease_ms, const snib_lock_options *options);
/* The servers have what they had at first, at once or soon. */
void teams_expect_base(struct teams_world *world);
/* The same, and the end of the clients. */
void teams_close(struct teams_world *world);
/* A quorum is held with two votes of three, and has the third soon. */
void teams_await_all_votes(struct teams_world *world, const struct team *team);

/* Set-up and tear-down of a test whose world has the default lease, and of a group of tests. */
int teams_new(void **state);
int teams_free(void **state);
int teams_start(void **state);
int teams_stop(void **state);

#endif
