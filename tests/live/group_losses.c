/* group_losses.c - locks of locks: a member, a server or a client is lost. */
#include "../support/teams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A lease that is to end, and one that must survive a busy machine. */
enum { LEASE_MS = 800, KEPT_LEASE_MS = 4000 };

/* Delete a member's keys at its server; whether they were there. */
static bool force(struct teams_world *world, struct team *team, int member)
{
    struct server *server = &world->servers[team->is->of[member].server];
    char name[48];
    snprintf(name, sizeof name, "%s:%d", team->is->name, team->is->quorum ? 0 : member);
    if (team->is->of[member].kind == SNIB_PERMITS)
        return server_integer(server, "DEL {%s}:timeout", name) == 1;
    return server_integer(server, "DEL %s", name) == 1;
}

/* A quorum's last member may be granted a moment later. */
static void must_force(struct teams_world *world, struct team *team, int member)
{
    AWAIT(force(world, team, member), 6 * PROMPT_MS);
}

/* Make another owner hold the quorum's lock on this server, atomically. */
static void must_rob(struct teams_world *world, int server)
{
    server_do(&world->servers[server], "EVAL %s 1 quorum:0",
              "redis.call('del', KEYS[1]) "
              "redis.call('hset', KEYS[1], '0-0-0-0-0:1', 1) "
              "return redis.call('pexpire', KEYS[1], 60000)");
}

static long long keys_expired(struct teams_world *world)
{
    long long sum = 0;
    for (int i = 0; i < SERVERS; i++)
        sum += server_expired(&world->servers[i]);
    return sum;
}

/* Delete the team's member i at the server, and for a quorum as many that they cannot be
 * regained. */
static void strike(struct teams_world *world, struct team *team, int i)
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
    struct teams_world *world = *state;
    teams_open(world, LONG_MS, NULL);
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
    teams_close(world);
}

/* A lost member of a quorum is requested again, and the hold survives.  On a machine that stands still for long, the
 * leases of the other members may end as well: then again. */
static void quorum_member_returns(void **state)
{
    struct teams_world *world = *state;
    teams_open(world, KEPT_LEASE_MS, NULL);
    struct team *team = &world->teams[COMPOSITIONS - 1];
    assert_true(team->is->quorum);
    for (int i = 0, lost = 0; i < team->is->n; i++) {
        long long expired = keys_expired(world);
        snib_hold *hold = must_acquire(team->group, PROMPT_MS);
        must_force(world, team, i);
        if (snib_hold_wait(hold, KEPT_LEASE_MS, NULL, NULL) == SNIB_LOST &&
            keys_expired(world) > expired && lost++ < 5) {
            EXPECT(snib_hold_release(hold, err), SNIB_LOST);
            snib_hold_free(hold);
            i--;
            continue;
        }
        EXPECT(snib_hold_wait(hold, 0, NULL, err), SNIB_TIMEDOUT);
        AWAIT(server_integer(&world->servers[i], "EXISTS quorum:0") == 1, PROMPT_MS);
        must_release(hold);
    }
    teams_close(world);
}

/* All members are lost at once: that is one loss, reported once. */
static void loss_is_told_once(void **state)
{
    struct teams_world *world = *state;
    teams_open(world, KEPT_LEASE_MS, NULL);
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
    teams_close(world);
}

/* A member's client, or the first member's, is closed while the lock is held. */
static void client_closed(void **state)
{
    struct teams_world *world = *state;
    for (int closed = 0; closed < SERVERS; closed++) {
        snib_hold *holds[COMPOSITIONS];
        teams_open(world, 0, NULL);
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
        teams_close(world);
    }
}

/* A client that is closed in the middle of a release, whose other server does not answer: the operation has ended when
 * the close has, and the release goes on. */
static void client_closed_while_releasing(void **state)
{
    struct teams_world *world = *state;
    teams_open(world, 0, NULL);
    snib_lock *members[] = {must_lock(world->ours[0], "near"), must_lock(world->ours[1], "far")};
    snib_lock *multi = NULL;
    EXPECT(snib_multi_new(members, 2, NULL, &multi, err), SNIB_OK);
    snib_hold *hold = must_acquire(multi, 0);
    snib_queue *queue = must_queue(world->ours[0]);
    server_pause(&world->servers[1]);
    EXPECT(snib_hold_release_submit(hold, queue, 7, NULL, err), SNIB_OK);
    snib_client_close(world->ours[0], 0, NULL);
    snib_event event = {0};
    int32_t ended = snib_queue_drain(queue, &event, 1, NULL);
    server_continue(&world->servers[1]);
    assert_int_equal(ended, 1);
    assert_int_equal(event.token, 7);
    assert_int_equal(event.code, SNIB_EUNREACHABLE);
    snib_hold_free(hold);
    snib_queue_free(queue);
    for (int i = 0; i < 2; i++) {
        AWAIT(server_integer(&world->servers[i], "EXISTS %s", i == 0 ? "near" : "far") == 0,
              PROMPT_MS);
        snib_lock_free(members[i]);
    }
    snib_lock_free(multi);
    teams_close(world);
}

/* A minority of a quorum's servers stops: holders do not notice.  Without a majority the hold is
 * lost in time. */
static void quorum_servers_stop(void **state)
{
    struct teams_world *world = *state;
    teams_open(world, KEPT_LEASE_MS, NULL);
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
    teams_close(world);
}

/* A member that refused is tried again, so that a hold does not depend on a bare majority. */
static void quorum_completes_itself(void **state)
{
    struct teams_world *world = *state;
    teams_open(world, KEPT_LEASE_MS, NULL);
    struct team *team = &world->teams[COMPOSITIONS - 1];
    snib_hold *theirs = must_acquire(team->rivals[2], 0), *hold = must_acquire(team->group, 0);
    must_release(theirs);
    AWAIT(server_integer(&world->servers[2], "EXISTS quorum:0") == 1, PROMPT_MS);
    EXPECT(snib_lock_acquire(team->rivals[2], 0, 0, &theirs, err), SNIB_BUSY);
    must_force(world, team, 0);
    EXPECT(snib_hold_wait(hold, KEPT_LEASE_MS, NULL, err), SNIB_TIMEDOUT);
    must_release(hold);
    teams_close(world);
}

/* An abandoned hold is not released: each member's lease runs out. */
static void abandoned(void **state)
{
    struct teams_world *world = *state;
    teams_open(world, 2 * LEASE_MS, NULL);
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
    teams_close(world);
}

/* A lock is at risk if fewer servers are connected than it needs, long before a renewal is due.  Where the machine stands
 * still for long, the others may be without a connection for a moment, too. */
static void servers_out_of_reach(void **state)
{
    struct teams_world *world = *state;
    teams_open(world, 3600000, NULL);
    struct team *multi = &world->teams[COMPOSITIONS - 2], *quorum = &world->teams[COMPOSITIONS - 1];
    snib_hold *all = must_acquire(multi->group, PROMPT_MS),
              *most = must_acquire(quorum->group, PROMPT_MS);
    teams_await_all_votes(world, quorum);
    AWAIT(snib_hold_state(all, NULL) == SNIB_HOLD_VALID, PROMPT_MS);
    server_down(&world->servers[1]);
    AWAIT(snib_hold_state(all, NULL) == SNIB_HOLD_AT_RISK, PROMPT_MS);
    AWAIT(snib_hold_state(most, NULL) == SNIB_HOLD_VALID, PROMPT_MS);
    server_down(&world->servers[2]);
    AWAIT(snib_hold_state(most, NULL) == SNIB_HOLD_AT_RISK, PROMPT_MS);
    EXPECT(snib_hold_check(most, err), SNIB_OK);
    server_restart(&world->servers[1]);
    server_restart(&world->servers[2]);
    EXPECT(snib_hold_wait(all, PROMPT_MS, NULL, err), SNIB_LOST);
    snib_hold_free(all);
    AWAIT(snib_hold_state(most, NULL) != SNIB_HOLD_AT_RISK, PROMPT_MS);
    snib_hold_free(most);
    teams_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(member_lost),
        cmocka_unit_test(quorum_member_returns),
        cmocka_unit_test(loss_is_told_once),
        cmocka_unit_test(client_closed),
        cmocka_unit_test(quorum_servers_stop),
        cmocka_unit_test(quorum_completes_itself),
        cmocka_unit_test(abandoned),
        cmocka_unit_test(servers_out_of_reach),
        cmocka_unit_test(client_closed_while_releasing),
    };
    return cmocka_run_group_tests(tests, teams_start, teams_stop);
}
