/* group_stories.c - locks of several clients over the real driver: quorums, whose nodes are
 * databases here.
 *
 * Leases are long where unwanted votes must be given back, so that their expiry does not hide a
 * failure.
 */
#include "driver_sim.h"

#include <stdio.h>
#include <string.h>

enum { NODES = 5, LONG_MS = 60000 };

static void open_nodes_with(int64_t lease_ms, int64_t patience_ms)
{
    snib_client_options options;
    char url[40];
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    options.reply_timeout_ms = options.patience_ms = patience_ms;
    for (int i = 0; i < NODES; i++) {
        snprintf(url, sizeof url, "redis://node%d.test/%d", i + 1, i);
        open_client_with(url, &options);
        connect_client();
    }
}

static void open_nodes(int64_t lease_ms)
{
    open_nodes_with(lease_ms, LONG_MS); /* no timeout decides anything */
}

/* Some of them may have reconnected. */
static void end_clients(void)
{
    while (clients_n > 0) {
        MUST(snib_client_close(clients[clients_n - 1], -1, err), SNIB_OK);
        free_client();
    }
    expect_nothing_left();
}

static void close_clients(void)
{
    while (clients_n > 0)
        close_client();
    expect_nothing_left();
}

static void new_quorum(int from, snib_lock *locks[NODES], snib_lock **out_quorum)
{
    snib_lock_options options;
    for (int i = 0; i < NODES; i++)
        locks[i] = lock_of(from + i, "vote", 1, 0);
    snib_lock_options_init(&options, sizeof options);
    options.flags = SNIB_LOCK_NO_QUARANTINE;
    MUST(snib_quorum_new(locks, NODES, &options, out_quorum, err), SNIB_OK);
}

static void free_locks(snib_lock *locks[], int n, snib_lock *group)
{
    snib_lock_free(group);
    for (int i = 0; i < n; i++)
        snib_lock_free(locks[i]);
}

static bool has_vote(int node)
{
    static const char name[] = "vote:1";
    model_key key;
    return model_key_find(world.server, node, name, sizeof name - 1, &key);
}

static int votes(void)
{
    int n = 0;
    for (int i = 0; i < NODES; i++)
        n += has_vote(i);
    return n;
}

static snib_client_stats_data stats_of(int i)
{
    snib_client_stats_data stats = {.size = sizeof stats};
    MUST(snib_client_stats(clients[i], &stats, err), SNIB_OK);
    return stats;
}

static uint64_t votes_lost(void)
{
    uint64_t lost = 0;
    for (int i = 0; i < NODES; i++)
        lost += stats_of(i).lost_deleted;
    return lost;
}

/* No operation wants the quorum's votes any more: none but the `theirs` votes of rivals remain, at
 * the servers or in memory. */
static void expect_given_back(int theirs)
{
    snib__time since = world.now;
    while (votes() > theirs) {
        if (world.now - since > 100 * SNIB__MS)
            world_fail("%d votes, and no attempt wants them", votes() - theirs);
        world_sleep(SNIB__MS);
    }
    world_sleep(5 * SNIB__MS); /* the last replies */
    for (int i = 0; i < NODES; i++)
        if (stats_of(i).held != 0 || stats_of(i).waiting != 0)
            world_fail("node %d: %llu held, %llu waiting", i, (unsigned long long)stats_of(i).held,
                       (unsigned long long)stats_of(i).waiting);
}

/* Votes that were lost, one soon after another, are requested again at once. */
void lost_votes(void *argument)
{
    snib_lock *locks[NODES], *quorum;
    snib_hold *hold;
    (void)argument;
    open_nodes(LEASE_MS);
    new_quorum(0, locks, &quorum);
    MUST(snib_lock_acquire(quorum, 0, -1, &hold, err), SNIB_OK);
    world_sleep(400 * SNIB__MS);
    if (votes() != NODES)
        world_fail("%d votes", votes());
    for (int i = 0; i < 2; i++)
        model_delete(world.server, i, "vote:1", 6);
    while (votes_lost() < 2)
        world_sleep(SNIB__MS);
    snib__time since = world.now;
    while (votes() < NODES) {
        if (world.now - since > 80 * SNIB__MS)
            world_fail("%d votes, and no attempt asks for more", votes());
        world_sleep(SNIB__MS);
    }
    MUST(snib_hold_check(hold, err), SNIB_OK);
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    free_locks(locks, NODES, quorum);
    close_clients();
}

/* ---- Late votes ---------------------------------------------------------------------------------- */

enum decided { BY_GRANT, BY_RELEASE, BY_FREE, BY_CANCEL, BY_TIMEOUT, BY_ONCE, DECISIONS };

static void take_all(snib_lock *locks[], snib_hold *holds[], int n)
{
    for (int i = 0; i < n; i++)
        MUST(snib_lock_acquire(locks[i], 0, -1, &holds[i], err), SNIB_OK);
}

static void give_all(snib_hold *holds[], int n)
{
    for (int i = 0; i < n; i++) {
        MUST(snib_hold_release(holds[i], err), SNIB_OK);
        snib_hold_free(holds[i]);
    }
}

static void hold_back(int n, bool late)
{
    for (int i = NODES - n; i < NODES; i++)
        world.held_back = late ? world.held_back | 2u << i
                               : world.held_back & ~(2u << i); /* names count from 1 */
}

static void expect_code(const snib_event *event, int32_t want)
{
    if (event->code != want)
        world_fail("the acquisition gave %s: %s", snib_code_name(event->code), event->text);
}

/* Grants that are reported after the acquisition was decided: kept while it is held, else given
 * back. */
static void decide(snib_lock *quorum, snib_queue *queue, snib_lock *rivals[3], enum decided by)
{
    static const int32_t codes[] = {[BY_CANCEL] = SNIB_CANCELLED,
                                    [BY_TIMEOUT] = SNIB_EUNREACHABLE,
                                    [BY_ONCE] = SNIB_BUSY,
                                    [BY_FREE] = SNIB_OK};
    const int late = by == BY_CANCEL || by == BY_TIMEOUT ? 3 : 2, theirs = by == BY_ONCE ? 3 : 0;
    snib_hold *others[3];
    snib_event event;
    snib_op *op;
    take_all(rivals, others, theirs);
    hold_back(late, true);
    MUST(snib_lock_acquire_submit(quorum, 0, by == BY_TIMEOUT ? 50 : -(by != BY_ONCE), queue, 1,
                                  &op, err),
         SNIB_OK);
    world_sleep(20 * SNIB__MS);
    if (by == BY_CANCEL)
        MUST(snib_op_cancel(op), SNIB_OK);
    /* A majority is silent: however short the wait, it has the patience of a single try. */
    if (by == BY_TIMEOUT && event_within(queue, &event, 900 * SNIB__MS))
        world_fail("a wait of 50 ms has no patience");
    if (by != BY_TIMEOUT)
        next_event(queue, &event);
    else if (!event_within(queue, &event, 200 * SNIB__MS))
        world_fail("a wait of 50 ms does not end");
    expect_code(&event, codes[by]);
    if (by == BY_RELEASE)
        MUST(snib_hold_release(event.hold, err), SNIB_OK);
    if (by == BY_RELEASE || by == BY_FREE)
        snib_hold_free(event.hold);
    world_sleep(10 * SNIB__MS + world_draw(SNIB__MS));
    if (votes() != (by == BY_GRANT ? NODES : late + theirs))
        world_fail("%d votes, and %d nodes cannot be reached", votes(), late);
    hold_back(late, false);
    if (by == BY_GRANT) {
        world_sleep(20 * SNIB__MS);
        if (stats_of(NODES - 2).held + stats_of(NODES - 1).held != 2)
            world_fail("late votes do not count");
        MUST(snib_hold_release(event.hold, err), SNIB_OK);
        snib_hold_free(event.hold);
    }
    expect_given_back(theirs);
    give_all(others, theirs);
}

/* Votes that rivals hold are waited for from the first moment on, and as long as the quorum is
 * held: also if all refusals came before the last grant. */
static void wait_while_held(snib_lock *quorum, snib_queue *queue, snib_lock *rivals[3])
{
    snib_hold *others[2];
    snib_event event;
    take_all(rivals, others, 2);
    hold_back(3, true);
    MUST(snib_lock_acquire_submit(quorum, 0, -1, queue, 1, NULL, err), SNIB_OK);
    world_sleep(20 * SNIB__MS);
    hold_back(3, false);
    next_event(queue, &event);
    expect_code(&event, SNIB_OK);
    world_sleep(20 * SNIB__MS);
    for (int i = 0; i < 2; i++)
        if (stats_of(i).waiting != 1)
            world_fail("no attempt waits for the vote of node %d", i);
    MUST(snib_hold_release(event.hold, err), SNIB_OK);
    snib_hold_free(event.hold);
    expect_given_back(2);
    give_all(others, 2);
    world_sleep(50 * SNIB__MS);
    expect_given_back(0);
}

static void open_rivals(snib_lock *out_locks[], int n)
{
    char url[40];
    for (int i = 0; i < n; i++) {
        snprintf(url, sizeof url, "redis://rival.test/%d", i);
        open_client_at(url, LONG_MS, 0);
        connect_client();
        out_locks[i] = lock_of(clients_n - 1, "vote", 1, 0);
    }
}

void late_votes(void *argument)
{
    snib_lock *locks[NODES], *rivals[3], *quorum;
    snib_queue *queue;
    (void)argument;
    open_nodes(LONG_MS);
    open_rivals(rivals, 3);
    new_quorum(0, locks, &quorum);
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    for (int turn = 0; turn < 2 * DECISIONS; turn++)
        decide(quorum, queue, rivals, (enum decided)(turn % DECISIONS));
    wait_while_held(quorum, queue, rivals);
    snib_queue_free(queue);
    free_locks(rivals, 3, NULL);
    free_locks(locks, NODES, quorum);
    close_clients();
}

/* ---- Nodes that do not answer ----------------------------------------------------------------------- */

/* A waiting acquisition tolerates a silent majority for as long as its patience; a single try does
 * not, if the program says so. */
void silent_nodes(void *argument)
{
    snib_lock *locks[NODES], *quorum;
    snib_queue *queue;
    snib_event event;
    (void)argument;
    open_nodes(LONG_MS);
    new_quorum(0, locks, &quorum);
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    for (int once = 0; once < 2; once++) {
        hold_back(3, true);
        MUST(snib_lock_acquire_submit(quorum, 0, once - 1, queue, 1, NULL, err), SNIB_OK);
        bool ended = event_within(queue, &event, 2500 * SNIB__MS);
        if (ended != once)
            world_fail("%s has %s", once ? "one try" : "who waits", ended ? "ended" : "not ended");
        if (once)
            expect_code(&event, SNIB_EUNREACHABLE);
        hold_back(3, false);
        if (!once) {
            next_event(queue, &event);
            expect_code(&event, SNIB_OK);
            MUST(snib_hold_release(event.hold, err), SNIB_OK);
            snib_hold_free(event.hold);
        }
        expect_given_back(0);
    }
    snib_queue_free(queue);
    free_locks(locks, NODES, quorum);
    close_clients();
}

/* A node that could not be asked is asked again, for as long as the hold lives. */
void returning_node(void *argument)
{
    snib_lock *locks[NODES], *quorum;
    snib_hold *hold;
    (void)argument;
    open_nodes_with(LEASE_MS, 800);
    new_quorum(0, locks, &quorum);
    hold_back(1, true);
    MUST(snib_lock_acquire(quorum, 0, -1, &hold, err), SNIB_OK);
    world_sleep((1 + world_draw(4)) * LEASE_MS * SNIB__MS);
    MUST(snib_hold_check(hold, err), SNIB_OK);
    hold_back(1, false);
    snib__time since = world.now;
    while (stats_of(NODES - 1).held == 0) {
        if (world.now - since > LEASE_MS * SNIB__MS)
            world_fail("a node is back, and no attempt asks for its vote");
        world_sleep(SNIB__MS);
    }
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    expect_given_back(0);
    free_locks(locks, NODES, quorum);
    end_clients();
}

static void close_one(int i)
{
    MUST(snib_client_close(clients[i], -1, err), SNIB_OK);
}

/* Clients of members are closed, one after another: a majority goes on, and what becomes impossible
 * is reported at once, with its reason. */
void closed_members(void *argument)
{
    snib_lock *locks[NODES], *quorum, *multi;
    snib_hold *hold, *none;
    int32_t reason = 0;
    (void)argument;
    open_nodes(LONG_MS);
    new_quorum(0, locks, &quorum);
    snib_lock *two[] = {lock_of(0, "name", 1, 0), lock_of(NODES - 1, "name", 1, 0)};
    MUST(snib_multi_new(two, 2, NULL, &multi, err), SNIB_OK);
    MUST(snib_lock_acquire(quorum, 0, -1, &hold, err), SNIB_OK);
    world_sleep(20 * SNIB__MS); /* all have voted and replied */
    close_one(NODES - 1);
    MUST(snib_lock_acquire(multi, 0, 60000, &none, err), SNIB_ECLOSED);
    close_one(NODES - 2);
    MUST(snib_hold_wait(hold, 50, &reason, err), SNIB_TIMEDOUT);
    MUST(snib_hold_release(hold, err), SNIB_OK);
    snib_hold_free(hold);
    MUST(snib_lock_acquire(quorum, 0, -1, &hold, err), SNIB_OK);
    snib__time since = world.now;
    close_one(NODES - 3);
    MUST(snib_hold_wait(hold, -1, &reason, err), SNIB_LOST);
    if (reason != SNIB_REASON_CLOSED)
        world_fail("it was lost by %s", snib_reason_text(reason));
    MUST(snib_hold_release(hold, err), SNIB_LOST);
    snib_hold_free(hold);
    MUST(snib_lock_acquire(quorum, 0, -1, &none, err), SNIB_ECLOSED);
    if (world.now - since > 100 * SNIB__MS)
        world_fail("reported after %.3f s", (double)(world.now - since) / 1e9);
    expect_given_back(0);
    free_locks(two, 2, multi);
    free_locks(locks, NODES, quorum);
    close_clients();
}

/* An abandoned quorum is kept until its leases end: no longer, and no shorter. */
void abandoned_group(void *argument)
{
    snib_lock *locks[NODES], *quorum;
    snib_hold *hold;
    (void)argument;
    open_nodes(LEASE_MS);
    new_quorum(0, locks, &quorum);
    MUST(snib_lock_acquire(quorum, 0, -1, &hold, err), SNIB_OK);
    world_sleep(world_draw(2 * LEASE_MS * SNIB__MS));
    snib__time since = world.now;
    snib_hold_abandon(hold);
    while (votes() == NODES)
        world_sleep(SNIB__MS);
    if (world.now - since < LEASE_MS / 2 * SNIB__MS)
        world_fail("given back %.3f s later", (double)(world.now - since) / 1e9);
    world_sleep(LEASE_MS / 2 * SNIB__MS);
    expect_given_back(0);
    if (world.now - since > 2 * LEASE_MS * SNIB__MS)
        world_fail("free after %.3f s", (double)(world.now - since) / 1e9);
    free_locks(locks, NODES, quorum);
    close_clients();
}

/* ---- Rounds ---------------------------------------------------------------------------------------- */

/* Two nodes refuse and one is silent: an attempt without a majority does not keep others waiting
 * for its votes.  The longest of the 32 values of a round's patience is 1.6 s. */
void short_rounds(void *argument)
{
    enum {
        MILLISECONDS = 15000,
        SHORTEST_MS = 45,
        LONGEST_MS = 1700,
        ROUNDS_MIN = 30,
        ROUNDS_MAX = 120
    };
    snib_lock *locks[NODES], *rivals[2], *quorum;
    snib_hold *theirs[2];
    snib_queue *queue;
    snib_event event;
    int rounds = 0, kept = 0;
    (void)argument;
    open_nodes(LONG_MS);
    open_rivals(rivals, 2);
    new_quorum(0, locks, &quorum);
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    take_all(rivals, theirs, 2);
    hold_back(1, true);
    MUST(snib_lock_acquire_submit(quorum, 0, -1, queue, 1, NULL, err), SNIB_OK);
    for (int i = 0; i < MILLISECONDS; i++) {
        bool has = has_vote(2);
        if (!has && kept > 0 && kept < SHORTEST_MS)
            world_fail("a vote was kept for %d ms: a slow client has no chance", kept);
        rounds += has && kept == 0;
        kept = has ? kept + 1 : 0;
        if (kept > LONGEST_MS)
            world_fail("a vote is kept for %d ms, after %d rounds", kept, rounds);
        world_sleep(SNIB__MS);
    }
    if (rounds < ROUNDS_MIN || rounds > ROUNDS_MAX)
        world_fail("%d rounds", rounds);
    give_all(theirs, 2);
    if (!event_within(queue, &event, 500 * SNIB__MS))
        world_fail("it is free, and not taken");
    expect_code(&event, SNIB_OK);
    MUST(snib_hold_release(event.hold, err), SNIB_OK);
    snib_hold_free(event.hold);
    hold_back(1, false);
    expect_given_back(0);
    snib_queue_free(queue);
    free_locks(rivals, 2, NULL);
    free_locks(locks, NODES, quorum);
    end_clients();
}

/* ---- After the limit ------------------------------------------------------------------------------- */

/* The members of a lock of all, which are asked one after another, share the patience of a single try.  What is known then:
 * that one was not free, if a rival had it; else nothing, because the other server has not said a word.
 *
 *     0 ms   asked, for 600 ms or once; a rival has the first member, or its node is slow
 *   500 ms   the first member is granted; the second node has been silent all the time
 *  1000 ms   the try ends */
static void one_after_another(bool rivalled, int64_t wait_ms, int32_t code)
{
    snib_lock *locks[2], *rival, *both;
    snib_hold *theirs;
    snib_queue *queue;
    snib_event event;
    open_nodes(LONG_MS);
    open_rivals(&rival, 1);
    locks[0] = lock_of(0, "vote", 1, 0);
    locks[1] = lock_of(1, "vote", 1, 0);
    MUST(snib_multi_new(locks, 2, NULL, &both, err), SNIB_OK);
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    if (rivalled)
        take_all(&rival, &theirs, 1);
    world.held_back = 2u << 1 | (rivalled ? 0 : 2u);
    snib__time since = world.now;
    MUST(snib_lock_acquire_submit(both, 0, wait_ms, queue, 1, NULL, err), SNIB_OK);
    world_sleep(500 * SNIB__MS);
    if (rivalled)
        give_all(&theirs, 1);
    else
        world.held_back &= ~2u;
    while (stats_of(0).held == 0)
        world_sleep(SNIB__MS);
    bool ended = event_within(queue, &event, 600 * SNIB__MS);
    if (!ended || world.now - since < 1000 * SNIB__MS)
        world_fail("%s after %.3f s", ended ? snib_code_name(event.code) : "not ended",
                   (double)(world.now - since) / 1e9);
    expect_code(&event, code);
    world.held_back = 0;
    expect_given_back(0);
    snib_queue_free(queue);
    free_locks(&rival, 1, NULL);
    free_locks(locks, 2, both);
    end_clients();
}

void shared_try(void *argument)
{
    (void)argument;
    one_after_another(true, 600, SNIB_TIMEDOUT);
    one_after_another(false, 600, SNIB_EUNREACHABLE);
    one_after_another(false, 0, SNIB_EUNREACHABLE);
}

/* ---- Random groups --------------------------------------------------------------------------------- */

enum { SERVERS = 3, PROCESSES = 2, GROUPS = 3, THREADS = 6, WHOLE = SERVERS };

/* A quorum of all servers, a lock of one name on each server, and one of two such names. */
static snib_lock *groups[PROCESSES][GROUPS];
static int holders[SERVERS + 1]; /* of each name, and of the quorum */

static void go(int group, int by)
{
    for (int i = 0; i < SERVERS; i++)
        if (group == 1 || (group == 2 && i != 1))
            holders[i] += by;
    holders[WHOLE] += group == 0 ? by : 0;
    for (int i = 0; i <= WHOLE; i++)
        if (holders[i] > 1)
            world_fail("two threads have one lock");
}

static snib_hold *enter_group(int process, int group)
{
    static const int64_t waits[] = {-1, -1, 0, 30, 200};
    snib_lock *lock = groups[process][group];
    int64_t wait = waits[world_draw(5)];
    snib_hold *hold = NULL;
    snib_event event = {.size = sizeof event};
    snib_error why = {0};
    snib_op *op;
    int code;
    if (world_chance(2)) {
        code = snib_lock_acquire(lock, 0, wait, &hold, &why);
    } else {
        MUST(snib_lock_acquire_begin(lock, 0, wait, 0, NULL, 1, &hold, &op, err), SNIB_AGAIN);
        if (world_chance(3)) {
            world_sleep(world_draw(3 * SNIB__MS));
            snib_op_free(op);
            return NULL;
        }
        while ((code = snib_op_wait(op, 5, &event, NULL)) == SNIB_AGAIN) {
        }
        hold = event.hold;
        code = event.code;
        memcpy(why.text, event.text, sizeof why.text);
    }
    bool expected = code == SNIB_OK || (wait == 0 && code == SNIB_BUSY) ||
                    (wait > 0 && code == SNIB_TIMEDOUT) || cut_off(code);
    if (!expected)
        world_fail("a wait of %d ms gave %s: %s", (int)wait, snib_code_name(code), why.text);
    return code == SNIB_OK ? hold : NULL;
}

static void group_worker(void *argument)
{
    int process = (int)(intptr_t)argument % PROCESSES;
    for (int turns = 1 + (int)world_draw(4); turns > 0; turns--) {
        int group = (int)world_draw(GROUPS);
        snib_hold *hold = enter_group(process, group);
        if (!hold)
            continue;
        go(group, 1);
        world_sleep(world_chance(12) ? 2 * LEASE_MS * SNIB__MS : world_draw(3 * SNIB__MS));
        MUST(snib_hold_check(hold, err), SNIB_OK);
        go(group, -1);
        if (!world_chance(4))
            MUST(snib_hold_release(hold, err), SNIB_OK);
        snib_hold_free(hold);
    }
    running--;
}

static void new_groups(int process)
{
    snib_lock *names[SERVERS], *voters[SERVERS];
    snib_lock_options options;
    char url[40];
    for (int i = 0; i < SERVERS; i++) {
        snprintf(url, sizeof url, "redis://node%d.test/%d", i + 1, i);
        open_client_at(url, LEASE_MS, 0);
        connect_client();
        names[process ? SERVERS - 1 - i : i] = lock_of(clients_n - 1, "name", 1, 0);
        voters[i] = lock_of(clients_n - 1, "vote", 1, 0);
    }
    snib_lock_options_init(&options, sizeof options);
    MUST(snib_multi_new(names, SERVERS, &options, &groups[process][1], err), SNIB_OK);
    snib_lock *two[] = {names[2], names[0]};
    MUST(snib_multi_new(two, 2, &options, &groups[process][2], err), SNIB_OK);
    options.flags = SNIB_LOCK_NO_QUARANTINE;
    MUST(snib_quorum_new(voters, SERVERS, &options, &groups[process][0], err), SNIB_OK);
    free_locks(names, SERVERS, NULL);
    free_locks(voters, SERVERS, NULL); /* the groups keep what they need */
}

/* Threads of two processes want locks of several servers in opposite order.  No thread is stopped
 * here, because one stopped between two clients keeps the others from a lock. */
void random_groups(void *argument)
{
    (void)argument;
    world.faults &= ~(unsigned)WORLD_FREEZE;
    memset(holders, 0, sizeof holders);
    for (int i = 0; i < PROCESSES; i++)
        new_groups(i);
    running = 1 + (int)world_draw(THREADS);
    for (int i = running - 1; i >= 0; i--)
        world_thread("worker", group_worker, (void *)(intptr_t)i);
    world_stay(nobody_runs, NULL);
    for (int i = 0; i < PROCESSES; i++)
        for (int j = 0; j < GROUPS; j++)
            snib_lock_free(groups[i][j]);
    close_clients();
}
