/* moves.c - slots that are migrated thousands of times under locks that are held and waited for;
 * and migrations that were begun and never finished, or were given up. */
#include "../support/deployment.h"
#include "../support/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEASE_MS = 6000, LONG_MS = 30000 };

static struct deployment cluster;

static int start(void **state)
{
    (void)state;
    /* Only this test decides which node serves a slot: no failover on a busy machine. */
    struct deployment_options options = {.node_timeout_ms = 30000};
    cluster_start(&cluster, &options);
    cluster_await_settled(&cluster);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    deployment_end(&cluster);
    return 0;
}

static uint64_t losses(snib_client *client)
{
    snib_client_stats_data stats = must_stats(client);
    return stats.lost_expired + stats.lost_taken + stats.lost_deleted + stats.lost_unreachable +
           stats.lost_max_hold + stats.lost_failover;
}

/* ---- Everything in a slot that is migrated -------------------------------------------------------- */

enum { HELD = 7, QUEUE = 5, MASTERS = 3 };

static const int32_t held_kinds[HELD] = {SNIB_MUTEX, SNIB_FENCED, SNIB_FAIR, SNIB_READ,
                                         SNIB_WRITE, SNIB_PLAIN,  SNIB_MUTEX /* a multi lock */};

/* One slot: a hold of each kind, a waiter of another client for each, and a queue of several for
 * the fair lock. */
struct traveller {
    char tag[16];
    int at; /* the index of its master */
    snib_lock *ours[HELD], *theirs[HELD];
    snib_hold *held[HELD];
    snib_op *waits[HELD]; /* FAIR has none here */
    snib_queue *queue;
};

static snib_lock *traveller_lock(const struct traveller *one, snib_client *client, int i)
{
    char name[64];
    snprintf(name, sizeof name, "{%s}%d", one->tag, i);
    if (i < HELD - 1)
        return must_lock_kind(client, held_kinds[i], name);
    static const int32_t of[] = {SNIB_MUTEX, SNIB_FENCED, SNIB_READ};
    snib_lock *members[3], *multi;
    for (int m = 0; m < 3; m++) {
        snprintf(name, sizeof name, "{%s}m%d", one->tag, m);
        members[m] = must_lock_kind(client, of[m], name);
    }
    EXPECT(snib_multi_new(members, 3, NULL, &multi, err), SNIB_OK);
    for (int m = 0; m < 3; m++)
        snib_lock_free(members[m]);
    return multi;
}

static long long queue_length(const struct traveller *one)
{
    struct node *node = cluster_owner_of(&cluster, one->tag);
    return node_integer(node, "LLEN redisson_lock_queue:{%s}2", one->tag);
}

static void traveller_board(struct traveller *one, int number, snib_client *ours,
                            snib_client *theirs)
{
    snprintf(one->tag, sizeof one->tag, "t%d", number);
    struct node *home = cluster_owner_of(&cluster, one->tag);
    one->at = (int)(home - cluster.nodes);
    one->queue = must_queue(theirs);
    for (int i = 0; i < HELD; i++) {
        one->ours[i] = traveller_lock(one, ours, i);
        one->theirs[i] = traveller_lock(one, theirs, i);
        one->held[i] = must_acquire(one->ours[i], LONG_MS);
        if (held_kinds[i] != SNIB_FAIR && held_kinds[i] != SNIB_READ)
            one->waits[i] = must_submit(one->theirs[i], -1, NULL, 0);
    }
    for (uint64_t i = 0; i < QUEUE; i++)
        must_submit(one->theirs[2], -1, one->queue, i);
}

/* All holds are still valid; then all are released, and go to their waiters, in order. */
static void traveller_arrive(struct traveller *one)
{
    for (int i = 0; i < HELD; i++) {
        AWAIT(snib_hold_state(one->held[i], NULL) == SNIB_HOLD_VALID, 10000);
        must_release(one->held[i]);
        if (one->waits[i]) {
            snib_event event = must_end(one->waits[i], LONG_MS);
            assert_int_equal(event.code, SNIB_OK);
            must_release(event.hold);
        }
    }
    char order[QUEUE + 1] = "";
    for (uint64_t i = 0; i < QUEUE; i++) {
        snib_event event = must_event(one->queue, LONG_MS);
        assert_int_equal(event.code, SNIB_OK);
        order[i] = (char)('0' + event.token);
        must_release(event.hold);
    }
    assert_string_equal(order, "01234");
    snib_queue_free(one->queue);
    for (int i = 0; i < HELD; i++) {
        snib_lock_free(one->ours[i]);
        snib_lock_free(one->theirs[i]);
    }
}

static long long epoch_of(struct node *node)
{
    static const char word[] = "cluster_current_epoch:";
    redisReply *reply = node_command(node, "CLUSTER INFO");
    const char *at = strstr(reply->str, word);
    long long epoch = at ? strtoll(at + sizeof word - 1, NULL, 10) : -1;
    freeReplyObject(reply);
    return epoch;
}

/* A node that takes a slot also takes the next epoch.  Two nodes that have not heard of each other
 * take the same one, and then the cluster gives slots back to nodes without their keys. */
static bool epochs_agree(void)
{
    for (int i = 1; i < cluster.count; i++)
        if (epoch_of(&cluster.nodes[i]) != epoch_of(&cluster.nodes[0]))
            return false;
    return true;
}

/* ---- Thousands of migrations ------------------------------------------------------------------------ */

static void nothing_is_lost_on_the_way(void **state)
{
    (void)state;
    enum { TRAVELLERS = 6 };
    static struct traveller all[TRAVELLERS];
    snib_client *ours = must_open_lease(cluster.url, LEASE_MS);
    snib_client *theirs = must_open_lease(cluster.url, LEASE_MS);
    char over[3][64];
    snib_lock *members[3], *multi; /* over several slots */
    memset(all, 0, sizeof all);
    for (int i = 0; i < TRAVELLERS; i++)
        traveller_board(&all[i], i, ours, theirs);
    for (int i = 0; i < 3; i++) {
        snprintf(over[i], sizeof over[i], "{t%d}over", i);
        members[i] = must_lock_kind(ours, i == 1 ? SNIB_WRITE : SNIB_FENCED, over[i]);
    }
    EXPECT(snib_multi_new(members, 3, NULL, &multi, err), SNIB_OK);
    snib_hold *spread = must_acquire(multi, LONG_MS);
    int moves = count_of(10000, 240);
    long passers = 0;
    for (int i = 0; i < moves; i++) {
        struct traveller *one = &all[i % TRAVELLERS];
        int slot = slot_of(one->tag), to = (one->at + 1 + i / TRAVELLERS % 2) % MASTERS;
        struct move move = cluster_move_begin(&cluster, slot, &cluster.nodes[to]);
        if (i % 16 == 0)
            nap_us(5000); /* half-way, also for clients that only pass by */
        if (i % 8 == 0) {
            char name[64];
            snprintf(name, sizeof name, "{%s}passer", one->tag);
            snib_lock *lock = must_lock(i % 16 ? ours : theirs, name);
            must_release(must_acquire(lock, LONG_MS));
            snib_lock_free(lock);
            passers++;
        }
        while (cluster_move_keys(&move) > 0)
            ;
        cluster_move_finish(&move);
        AWAIT(epochs_agree(), DEPLOYED_MS);
        cluster_await_agreed(&cluster);
        one->at = to;
        assert_int_equal(losses(ours) + losses(theirs), 0);
    }
    assert_int_equal(queue_length(&all[0]), QUEUE);
    AWAIT(snib_hold_state(spread, NULL) == SNIB_HOLD_VALID, 10000);
    must_release(spread);
    for (int i = 0; i < TRAVELLERS; i++)
        traveller_arrive(&all[i]);
    print_message("          %d moves, %d holds, %d waiters, %ld passers: none lost\n", moves,
                  TRAVELLERS * HELD + 1, TRAVELLERS * (HELD - 2 + QUEUE), passers);
    assert_int_equal(losses(ours) + losses(theirs), 0);
    snib_client_free(ours);
    snib_client_free(theirs);
}

/* ---- Unfinished migrations -------------------------------------------------------------------------- */

static void expect_told(snib_lock *lock, int code, const char *words)
{
    enum { TRIES = 20 };
    snib_hold *none;
    snib_error error = {0};
    int64_t began;
    int got, tries = 0;
    do { /* on a slow machine patience may end while one more request is on its way */
        began = now_ms();
        got = snib_lock_acquire(lock, 0, -1, &none, &error);
    } while (got == SNIB_EUNREACHABLE && strstr(error.text, "the server said: ") &&
             ++tries < TRIES);
    if (got != code || !strstr(error.text, words) || strstr(error.text, "no connection"))
        fail_msg("%s: %s", snib_code_name(got), error.text);
    int64_t took = now_ms() - began;
    assert_true(took > 900 && took < patient_ms(3000)); /* the patience */
}

/* A client's locks in the slot that is half migrated. */
struct locks {
    snib_lock *read, *write, *mutex, *multi;
};

static struct locks locks_of(snib_client *client)
{
    struct locks locks = {.read = must_lock_kind(client, SNIB_READ, "{gone}r"),
                          .write = must_lock_kind(client, SNIB_WRITE, "{gone}w"),
                          .mutex = must_lock(client, "{gone}m")};
    snib_lock *pair[] = {locks.mutex, must_lock(client, "{gone}n")};
    EXPECT(snib_multi_new(pair, 2, NULL, &locks.multi, err), SNIB_OK);
    return locks;
}

/* A slot that stays half migrated: a request that needs keys of both sides, or checks other keys of
 * the slot, is refused when patience ends, with an error that says why; such a hold ends by its
 * deadline; and all works again once the migration is finished. */
static void abandoned_move_is_told(void **state)
{
    (void)state;
    struct node *from = cluster_owner_of(&cluster, "{gone}");
    struct node *to = &cluster.nodes[from == &cluster.nodes[0] ? 1 : 0];
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS;
    options.patience_ms = LONG_MS;
    snib_client *client, *brief; /* the other one's patience is short */
    EXPECT(snib_client_open(cluster.url, &options, &client, err), SNIB_OK);
    options.patience_ms = 1000;
    EXPECT(snib_client_open(cluster.url, &options, &brief, err), SNIB_OK);
    struct locks ours = locks_of(client), theirs = locks_of(brief);
    snib_hold *reads = must_acquire(ours.read, 0), *held = must_acquire(ours.mutex, 0);
    struct move move = cluster_move_begin(&cluster, slot_of("{gone}"), to);
    cluster_move_key(&move, "{gone}r"); /* without the reader's own lease */
    cluster_move_key(&move, "{gone}m");
    expect_told(theirs.read, SNIB_ECONNECT, "being moved to another node");
    expect_told(theirs.write, SNIB_ECONNECT, "being moved to another node");
    expect_told(theirs.multi, SNIB_ECONNECT, "being moved to another node");
    expect_hold_lost(reads, SNIB_REASON_UNREACHABLE, 10000);
    snib_hold_free(reads);
    AWAIT(snib_hold_state(held, NULL) == SNIB_HOLD_VALID, 10000); /* it has one key */
    must_release(held);
    snib_op *op = must_submit(ours.write, LONG_MS, NULL, 0);
    cluster_move_keys(&move);
    cluster_move_finish(&move);
    snib_event event = must_end(op, LONG_MS);
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    must_release(must_acquire(ours.read, LONG_MS));
    must_release(must_acquire(ours.write, LONG_MS));
    must_release(must_acquire(ours.multi, LONG_MS));
    snib_client_free(client);
    snib_client_free(brief);
}

/* A migration that is given up leaves behind what it has moved: those holds are lost and told so, whatever their kind, and
 * their locks are free; those whose keys had stayed go on.  Nothing of the client's waits for the node that has the rest. */
static void given_up_move_loses_what_it_has_moved(void **state)
{
    (void)state;
    struct node *from = cluster_owner_of(&cluster, "{left}");
    struct node *to = &cluster.nodes[from == &cluster.nodes[0] ? 1 : 0];
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = LEASE_MS;
    snib_client *client, *theirs;
    EXPECT(snib_client_open(cluster.url, &options, &client, err), SNIB_OK);
    EXPECT(snib_client_open(cluster.url, &options, &theirs, err), SNIB_OK);
    static const struct {
        int32_t kind;
        const char *name;
        bool moved;
    } rows[] = {{SNIB_MUTEX, "{left}m", true},
                {SNIB_FENCED, "{left}n", true},
                {SNIB_WRITE, "{left}w", true},
                {SNIB_FAIR, "{left}f", true},
                {SNIB_MUTEX, "{left}s", false}};
    enum { ROWS = sizeof rows / sizeof *rows };
    snib_hold *holds[ROWS];
    for (int i = 0; i < ROWS; i++)
        holds[i] = must_acquire(must_lock_kind(client, rows[i].kind, rows[i].name), 0);
    struct move move = cluster_move_begin(&cluster, slot_of(rows[0].name), to);
    for (int i = 0; i < ROWS; i++)
        if (rows[i].moved)
            cluster_move_key(&move, rows[i].name);
    cluster_move_give_up(&move);
    for (int i = 0; i < ROWS; i++) {
        snib_lock *lock = must_lock_kind(theirs, rows[i].kind, rows[i].name);
        if (rows[i].moved) {
            /* First, for a renewal beside the other client's hold would rightly say that it was taken. */
            expect_hold_lost(holds[i], SNIB_REASON_DELETED, LEASE_MS);
            EXPECT(snib_hold_release(holds[i], err), SNIB_LOST);
            snib_hold_free(holds[i]);
            must_release(must_acquire(lock, LONG_MS));
            continue;
        }
        snib_hold *none;
        EXPECT(snib_lock_acquire(lock, 0, 0, &none, err), SNIB_BUSY);
        AWAIT(snib_hold_state(holds[i], NULL) == SNIB_HOLD_VALID, LONG_MS);
        must_release(holds[i]);
        must_release(must_acquire(lock, LONG_MS));
    }
    assert_int_equal(losses(theirs), 0);
    snib_client_free(client);
    snib_client_free(theirs);
    node_do(to, "FLUSHALL"); /* what is left behind would be in the way of another migration */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_on_the_way),
        cmocka_unit_test(abandoned_move_is_told),
        cmocka_unit_test(given_up_move_loses_what_it_has_moved),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
