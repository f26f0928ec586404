/* cluster.c - locks on a cluster: the node of a name changes while the lock is held, waited for and
 * released. */
#include "../support/deployment.h"
#include "../support/kinds.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a loss would be an error, leases outlast an election and delays of a busy machine; LEASE_MS
 * is for tests that need renewals. */
enum { LEASE_MS = 6000, LONG_MS = 20000, ELECTION_LEASE_MS = 60000 };

static struct deployment cluster;

static int start(void **state)
{
    (void)state;
    cluster_start(&cluster, NULL);
    cluster_await_settled(&cluster);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    deployment_end(&cluster);
    return 0;
}

/* A name that the nth master serves, and that no earlier test used. */
static void fresh_at(const struct node *node, char out[64])
{
    static int number;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "n%d-", number++);
    cluster_key_at(&cluster, node, prefix, 0, out);
}

static struct node *other_master(const struct node *master)
{
    for (int slot = 0; slot < SLOTS; slot += 64) {
        struct node *owner = cluster_owner(&cluster, slot);
        if (owner && owner != master)
            return owner;
    }
    fail_msg("there is one master only");
    return NULL;
}

static bool node_ok(struct node *node)
{
    redisReply *reply = node_command(node, "CLUSTER INFO");
    bool ok = strstr(reply->str, "cluster_state:ok") != NULL;
    freeReplyObject(reply);
    return ok;
}

/* Wait for n more renewals, counted over all holds of the client. */
static void renewed(snib_client *client, uint64_t n)
{
    uint64_t before = must_stats(client).renewals;
    AWAIT(must_stats(client).renewals >= before + n, LONG_MS);
}

/* ---- All kinds --------------------------------------------------------------------------------- */

static void every_kind_works_at_every_node(void **state)
{
    (void)state;
    snib_client *ours = must_open(cluster.url), *theirs = must_open(cluster.url);
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 12; i++) {
            char name[64];
            snprintf(name, sizeof name, "%s-%d", kinds[k].name, i);
            snib_lock_options options;
            snib_lock_options_init(&options, sizeof options);
            options.flags = kinds[k].flags;
            snib_lock *lock = must_lock_with(ours, kinds[k].kind, name, &options);
            options.flags = kinds[k].rival_flags;
            snib_lock *rival = must_lock_with(theirs, kinds[k].rival, name, &options);
            if (kinds[k].traits & COUNTED)
                must_count(kinds[k].kind, lock, SNIB_COUNT_INIT, 1);
            snib_hold *hold = must_acquire(lock, 0), *none;
            EXPECT(snib_lock_acquire(rival, 0, 0, &none, err), SNIB_BUSY);
            EXPECT(snib_lock_acquire(rival, 0, 30, &none, err), SNIB_TIMEDOUT);
            must_release(hold);
            must_release(must_acquire(rival, LONG_MS));
            snib_lock_free(lock);
            snib_lock_free(rival);
        }
    snib_client_free(ours);
    snib_client_free(theirs);
}

/* ---- Slot migration ---------------------------------------------------------------------------- */

static void move_follows(void **state)
{
    (void)state;
    char name[64];
    struct node *from = cluster_owner(&cluster, 0), *to = other_master(from);
    fresh_at(from, name);
    snib_client *ours = must_open_lease(cluster.url, LEASE_MS), *theirs = must_open(cluster.url);
    snib_lock *lock = must_lock(ours, name), *rival = must_lock(theirs, name);
    snib_hold *hold = must_acquire(lock, 0), *none;
    cluster_move(&cluster, slot_of(name), to);
    EXPECT(snib_lock_acquire(rival, 0, 0, &none, err), SNIB_BUSY);
    snib_op *op = must_submit(rival, LONG_MS, NULL, 0);
    AWAIT(must_stats(theirs).waiting == 1, 5000);
    must_release(hold);
    snib_event event = must_end(op, LONG_MS);
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    cluster_move(&cluster, slot_of(name), from);
    must_release(must_acquire(lock, 0));
    snib_client_free(ours);
    snib_client_free(theirs);
}

/* A slot that stays half migrated: locks of one key are taken, kept and released on both sides. */
static void half_a_move_is_no_hindrance(void **state)
{
    (void)state;
    struct node *from = cluster_owner_of(&cluster, "{half}"), *to = other_master(from);
    snib_client *ours = must_open_lease(cluster.url, LEASE_MS), *theirs = must_open(cluster.url);
    static const char *const names[] = {"{half}0", "{half}1", "{half}2", "{half}3"};
    snib_hold *stays = must_acquire(must_lock(ours, names[0]), 0), *none;
    snib_hold *goes = must_acquire(must_lock(ours, names[1]), 0);
    snib_hold *fair = must_acquire(must_lock_kind(ours, SNIB_FAIR, names[2]), 0);
    struct move move = cluster_move_begin(&cluster, slot_of(names[0]), to);
    cluster_move_key(&move, names[1]);
    snib_hold *fresh =
        must_acquire(must_lock(theirs, names[3]), LONG_MS); /* a key that is on neither side */
    renewed(ours, 3 * 4);                                   /* for longer than a lease */
    must_be_valid(stays, 5000);
    must_be_valid(goes, 5000);
    must_be_valid(fair, 5000);
    EXPECT(snib_lock_acquire(must_lock(theirs, names[0]), 0, 0, &none, err), SNIB_BUSY);
    EXPECT(snib_lock_acquire(must_lock(theirs, names[1]), 0, 0, &none, err), SNIB_BUSY);
    must_release(stays);
    must_release(goes);
    must_release(fresh);
    cluster_move_keys(&move);
    cluster_move_finish(&move);
    must_release(fair);
    cluster_move(&cluster, slot_of(names[0]), from);
    snib_client_free(ours);
    snib_client_free(theirs);
}

/* ---- More than one name --------------------------------------------------------------------------- */

static void multi_lock_over_slots(void **state)
{
    (void)state;
    enum { MEMBERS = 9 };
    snib_client *ours = must_open_lease(cluster.url, LEASE_MS), *theirs = must_open(cluster.url);
    snib_lock *members[MEMBERS], *multi, *rivals[MEMBERS];
    char name[64];
    for (int i = 0; i < MEMBERS; i++) {
        int32_t kind = i % 3 == 0 ? SNIB_MUTEX : i % 3 == 1 ? SNIB_FENCED : SNIB_WRITE;
        snprintf(name, sizeof name, i < 3 ? "{one}m%d" : "m%d", i);
        members[i] = must_lock_kind(ours, kind, name);
        rivals[i] = must_lock_kind(theirs, kind, name);
    }
    EXPECT(snib_multi_new(members, MEMBERS, NULL, &multi, err), SNIB_OK);
    snib_hold *hold = must_acquire(multi, LONG_MS), *none;
    for (int i = 0; i < MEMBERS; i++)
        EXPECT(snib_lock_acquire(rivals[i], 0, 0, &none, err), SNIB_BUSY);
    struct node *from = cluster_owner_of(&cluster, "m5");
    cluster_move(&cluster, slot_of("m5"), other_master(from));
    struct node *one = cluster_owner_of(&cluster, "{one}");
    cluster_move(&cluster, slot_of("{one}"), other_master(one));
    renewed(ours, 1);
    must_release(hold);
    for (int i = 0; i < MEMBERS; i++)
        must_release(must_acquire(rivals[i], LONG_MS));
    cluster_move(&cluster, slot_of("m5"), from);
    cluster_move(&cluster, slot_of("{one}"), one);
    snib_client_free(ours);
    snib_client_free(theirs);
}

static void list_goes_over_all_nodes(void **state)
{
    (void)state;
    enum { NAMES = 300, CAP = 65536 };
    static char buffer[CAP];
    snib_client *client = must_open(cluster.url);
    snib_hold *holds[NAMES];
    bool seen[NAMES] = {false};
    char name[64];
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "listed%d", i);
        holds[i] = must_acquire(must_lock(client, name), 0);
    }
    uint64_t cursor = 0;
    int found = 0, steps = 0;
    size_t used;
    uint32_t count;
    do {
        EXPECT(snib_client_list(client, "listed*", 7, &cursor, buffer, CAP, &used, &count, err),
               SNIB_OK);
        for (const char *at = buffer; at < buffer + used; at += strlen(at) + 1) {
            int i = atoi(at + 6);
            found += !seen[i];
            seen[i] = true;
        }
        assert_true(++steps < 10000);
    } while (cursor != 0);
    assert_int_equal(found, NAMES);
    uint64_t last = 0;
    for (steps = found = 0; steps == 0 || cursor != 0;
         steps++) { /* the scripts of one node after the other */
        EXPECT(snib_client_load(client, SNIB_LATCH, &cursor, buffer, CAP, &used, &count, err),
               SNIB_OK);
        assert_int_equal(count, 4);
        found += cursor >> 52 != last;
        last = cursor >> 52;
    }
    assert_int_equal(found, 3 + 1);
    EXPECT(snib_client_describe(client, "listed7", 7, buffer, CAP, &used, &count, err), SNIB_OK);
    assert_string_equal(buffer, "kind mutex");
    EXPECT(snib_client_ping(client, LONG_MS, err), SNIB_OK);
    for (int i = 0; i < NAMES; i++)
        must_release(holds[i]);
    snib_client_free(client);
}

static void what_cannot_work_is_refused(void **state)
{
    (void)state;
    snib_client *client = must_open(cluster.url);
    snib_lock *lock = NULL, *quorum = NULL, *members[3];
    EXPECT(snib_lock_new(client, SNIB_LATCH, "{a}b", 4, NULL, &lock, err), SNIB_ENAME);
    EXPECT(snib_lock_new(client, SNIB_MUTEX, "a{b", 3, NULL, &lock, err), SNIB_ENAME);
    EXPECT(snib_lock_new(client, SNIB_MUTEX, "a}b", 3, NULL, &lock, err), SNIB_ENAME);
    for (int i = 0; i < 3; i++)
        members[i] = must_lock(client, "q");
    EXPECT(snib_quorum_new(members, 3, NULL, &quorum, err), SNIB_ENOTSUP);
    snib_client_free(client);
}

/* ---- Messages of releases --------------------------------------------------------------------------- */

static long long listeners(struct node *node, const char *how, const char *name)
{
    redisReply *reply = node_command(node, "PUBSUB %s redisson_lock__channel:{%s}", how, name);
    long long n = reply->elements == 2 ? reply->element[1]->integer : -1;
    freeReplyObject(reply);
    return n;
}

/* A waiter that would ask again only after half a minute is woken by the message: even if its slot
 * has been migrated meanwhile, or its master has changed. */
static void releases_are_heard(void **state)
{
    (void)state;
    static const struct {
        const char *option;
        bool classic, sharded;
    } ways[] = {{"", false, true},
                {"?publish=classic", true, false},
                {"?publish=sharded", false, true},
                {"?publish=both", true, true}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int change = 0; change < 3; change++) {
            char url[512], name[64];
            snprintf(url, sizeof url, "%s%s", cluster.url, ways[i].option);
            snib_client *ours = must_open_recheck(url, 60000, 30000);
            snib_client *theirs = must_open_recheck(url, 60000, 30000);
            struct node *at = cluster_owner(&cluster, 0), *to = at;
            fresh_at(at, name);
            snib_hold *hold = must_acquire(must_lock(ours, name), 0);
            snib_op *op = must_submit(must_lock(theirs, name), -1, NULL, 0);
            AWAIT(listeners(at, "NUMSUB", name) == ways[i].classic, 5000);
            AWAIT(listeners(at, "SHARDNUMSUB", name) == ways[i].sharded, 5000);
            if (change == 1)
                cluster_move(&cluster, slot_of(name), to = other_master(at));
            if (change == 2)
                cluster_failover(to = cluster_replica_of(&cluster, at), "");
            /* A subscription that stayed at the old master, now a replica, gets messages, too. */
            if (ways[i].sharded && change)
                AWAIT(listeners(to, "SHARDNUMSUB", name) == 1 ||
                          (change == 2 && listeners(at, "SHARDNUMSUB", name) == 1),
                      12000);
            int64_t began = now_ms();
            must_release(hold);
            snib_event event = must_end(op, LONG_MS);
            assert_int_equal(event.code, SNIB_OK);
            assert_true(now_ms() - began < patient_ms(1000));
            must_release(event.hold);
            if (change == 1)
                cluster_move(&cluster, slot_of(name), at);
            if (change == 2)
                cluster_await_settled(&cluster);
            snib_client_free(ours);
            snib_client_free(theirs);
        }
}

/* A client whose waiter others' messages do not reach is not passed over for ever. */
static void other_ways_have_turns(void **state)
{
    (void)state;
    static const char *const ways[] = {"classic", "sharded"};
    for (int way = 0; way < 2; way++) {
        snib_client *clients[3];
        char name[64];
        fresh_at(cluster_owner(&cluster, 0), name);
        for (int i = 0; i < 3; i++) {
            char url[512];
            snprintf(url, sizeof url, "%s?publish=%s", cluster.url, ways[i < 2 ? way : 1 - way]);
            clients[i] = must_open(url);
        }
        must_have_its_turn(clients, name);
        for (int i = 0; i < 3; i++)
            snib_client_free(clients[i]);
    }
}

/* ---- Nodes that come and go ------------------------------------------------------------------------ */

static void nodes_come_and_go(void **state)
{
    (void)state;
    snib_client *ours = must_open_lease(cluster.url, LEASE_MS), *theirs = must_open(cluster.url);
    struct node *old = cluster_owner(&cluster, 0);
    char name[64];
    fresh_at(old, name);
    snib_hold *hold = must_acquire(must_lock(ours, name), 0), *none;
    struct node *added = cluster_add(&cluster, NULL);
    cluster_move(&cluster, slot_of(name), added);
    EXPECT(snib_lock_acquire(must_lock(theirs, name), 0, 0, &none, err), SNIB_BUSY);
    must_be_valid(hold, 5000);
    cluster_empty(&cluster, added);
    cluster_remove(&cluster, added);
    renewed(ours, 1);
    must_be_valid(hold, 5000);
    EXPECT(snib_lock_acquire(must_lock(theirs, name), 0, 0, &none, err), SNIB_BUSY);
    must_release(hold);
    must_release(must_acquire(must_lock(theirs, name), LONG_MS));
    snib_client_free(ours);
    snib_client_free(theirs);
}

/* ---- Under load ---------------------------------------------------------------------------------- */

/* What each thread of this test does with its name until it is told to stop. */
struct load {
    pthread_t thread;
    snib_lock *lock;
    const struct kind *kind;
    _Atomic int *inside; /* of the name: how many threads believe to hold it alone */
    _Atomic bool *stop;
    _Atomic long *grants;
    _Atomic long served; /* of the grants, its own */
    bool may_lose;       /* and may be refused for lack of a server */
    long lost, refused;
};

static void *load_main(void *argument)
{
    struct load *load = argument;
    while (!*load->stop) {
        snib_hold *hold = NULL;
        snib_error err = {0};
        int code = snib_lock_acquire(load->lock, 0, LONG_MS, &hold, &err);
        if (code != SNIB_OK) {
            if (!load->may_lose) {
                print_error("%s: acquire %s: %s\n", load->kind->name, snib_code_name(code),
                            err.text);
                load->refused++;
            }
            continue;
        }
        int others = atomic_fetch_add(load->inside, 1);
        if (others != 0 && !load->may_lose) {
            print_error("%s: %d others inside\n", load->kind->name, others);
            load->refused++;
        }
        nap_us(500);
        atomic_fetch_sub(load->inside, 1);
        atomic_fetch_add(load->grants, 1);
        atomic_fetch_add(&load->served, 1);
        code = snib_hold_release(hold, &err);
        snib_hold_free(hold);
        if (code != SNIB_OK) {
            load->lost++;
            if (!load->may_lose)
                print_error("%s: release %s: %s\n", load->kind->name, snib_code_name(code),
                            err.text);
        }
    }
    return NULL;
}

enum { LOADS = 2 * KINDS };

struct crowd {
    snib_client *clients[2];
    struct load loads[LOADS];
    _Atomic int inside[KINDS];
    _Atomic bool stop;
    _Atomic long grants;
};

/* Two clients want a name of each kind, all in one slot or each in its own. */
static void crowd_start(struct crowd *crowd, const char *tag, bool may_lose)
{
    memset(crowd, 0, sizeof *crowd);
    for (int c = 0; c < 2; c++)
        crowd->clients[c] = must_open_lease(cluster.url, may_lose ? LEASE_MS : ELECTION_LEASE_MS);
    for (int i = 0; i < LOADS; i++) {
        const struct kind *kind = &kinds[i / 2];
        char name[64];
        snprintf(name, sizeof name, kind->kind == SNIB_LATCH ? "%s%s" : "{%s}%s", tag, kind->name);
        snib_lock_options options;
        snib_lock_options_init(&options, sizeof options);
        options.flags = kind->flags;
        struct load *load = &crowd->loads[i];
        load->lock = must_lock_with(crowd->clients[i % 2], kind->kind, name, &options);
        load->kind = kind;
        load->inside = &crowd->inside[i / 2];
        load->stop = &crowd->stop;
        load->grants = &crowd->grants;
        load->may_lose = may_lose;
        if (i % 2 == 0 && kind->traits & COUNTED)
            must_count(kind->kind, load->lock, SNIB_COUNT_INIT, 1);
    }
    for (int i = 0; i < LOADS; i++)
        if (kinds[i / 2].kind != SNIB_READ)
            assert_int_equal(
                pthread_create(&crowd->loads[i].thread, NULL, load_main, &crowd->loads[i]), 0);
}

static void crowd_end(struct crowd *crowd)
{
    long lost = 0, refused = 0;
    crowd->stop = true;
    for (int i = 0; i < LOADS; i++) {
        if (kinds[i / 2].kind != SNIB_READ)
            pthread_join(crowd->loads[i].thread, NULL);
        lost += crowd->loads[i].lost;
        refused += crowd->loads[i].refused;
    }
    print_message("          %ld grants, %ld lost\n", (long)crowd->grants, lost);
    if (!crowd->loads[0].may_lose)
        assert_int_equal(lost + refused, 0);
    for (int c = 0; c < 2; c++) {
        EXPECT(snib_client_close(crowd->clients[c], LONG_MS, err), SNIB_OK);
        snib_client_free(crowd->clients[c]);
    }
}

static void nothing_is_lost_while_slots_move(void **state)
{
    (void)state;
    static struct crowd crowd;
    crowd_start(&crowd, "busy", false);
    int slot = slot_of("{busy}");
    struct node *home = cluster_owner(&cluster, slot), *other = other_master(home);
    int moves = count_of(500, 30);
    for (int i = 0; i < moves; i++) {
        struct move move = cluster_move_begin(&cluster, slot, i % 2 ? home : other);
        nap_us(i % 3 * 10000);
        cluster_move_keys(&move);
        nap_us(i % 2 * 10000);
        while (cluster_move_keys(&move) > 0)
            ;
        cluster_move_finish(&move);
        nap_us(20000);
    }
    crowd_end(&crowd);
}

/* The same where the servers move a slot as a whole. */
static void nothing_is_lost_while_slots_are_handed_on(void **state)
{
    (void)state;
    static struct crowd crowd;
    if (!cluster_moves_slots_itself(&cluster))
        skip_because("this server moves slots key by key");
    crowd_start(&crowd, "whole", false);
    int slot = slot_of("{whole}");
    struct node *home = cluster_owner(&cluster, slot), *other = other_master(home);
    int moves = count_of(500, 30);
    for (int i = 0; i < moves; i++) {
        cluster_hand_on(&cluster, slot, i % 2 ? home : other);
        nap_us(20000);
    }
    crowd_end(&crowd);
}

/* ---- Failovers ------------------------------------------------------------------------------------ */

enum { HELD = 20 };

/* The replica has what the master has.  WAIT covers the writes of its own connection, so there is
 * one. */
static void replicated(struct node *master)
{
    char mark[64];
    fresh_at(master, mark);
    node_integer(master, "INCR %s", mark);
    AWAIT(node_integer(master, "WAIT 1 1000") >= 1, 20000);
    node_integer(master, "DEL %s", mark);
}

/* A master goes: holds that its replica has stay valid and are renewed, with the same owner;
 * waiters get their turn; other shards do not notice. */
static void failover_is_followed(const char *how)
{
    struct node *master = cluster_owner(&cluster, 0), *other = other_master(master);
    char names[HELD][64], elsewhere[64], waited[64];
    snib_client *ours = must_open_lease(cluster.url, ELECTION_LEASE_MS);
    /* On a slow machine the election may take longer than the default patience. */
    snib_client_options patient;
    snib_client *theirs = NULL;
    snib_client_options_init(&patient, sizeof patient);
    patient.patience_ms = patient.try_timeout_ms = LONG_MS;
    EXPECT(snib_client_open(cluster.url, &patient, &theirs, err), SNIB_OK);
    snib_hold *holds[HELD], *calm, *none;
    for (int i = 0; i < HELD; i++) {
        fresh_at(master, names[i]);
        holds[i] = must_acquire(must_lock(ours, names[i]), 0);
    }
    fresh_at(other, elsewhere);
    fresh_at(master, waited);
    calm = must_acquire(must_lock(ours, elsewhere), 0);
    snib_hold *blocker = must_acquire(must_lock(ours, waited), 0);
    snib_op *op = must_submit(must_lock(theirs, waited), LONG_MS, NULL, 0);
    AWAIT(must_stats(theirs).waiting == 1, 5000);
    struct node *replica = cluster_replica_of(&cluster, master);
    assert_non_null(replica);
    replicated(master);
    uint64_t renewals = must_stats(ours).renewals;
    int64_t began = now_ms();
    if (strcmp(how, "kill") == 0)
        node_kill(master);
    else if (strcmp(how, "stop") == 0)
        node_stop(master);
    else
        cluster_failover(replica, "");
    int slot = slot_of(names[0]);
    struct node *now = cluster_await_failover(&cluster, slot, master);
    assert_ptr_equal(now, replica);
    int64_t told = now_ms();
    char fresh[64];
    fresh_at(now, fresh);
    must_release(must_acquire(must_lock(theirs, fresh), LONG_MS));
    print_message("          %s: reported after %d ms, granted %d ms later\n", how,
                  (int)(told - began), (int)(now_ms() - told));
    AWAIT(must_stats(ours).renewals >= renewals + HELD + 1, LONG_MS); /* the blocker's included */
    for (int i = 0; i < HELD; i++) {
        must_be_valid(holds[i], 5000);
        EXPECT(snib_lock_acquire(must_lock(theirs, names[i]), 0, 0, &none, err), SNIB_BUSY);
        must_release(holds[i]);
    }
    AWAIT(snib_hold_state(calm, NULL) == SNIB_HOLD_VALID, LONG_MS);
    must_release(calm);
    must_release(blocker);
    snib_event event = must_end(op, LONG_MS);
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    snib_client_free(ours);
    snib_client_free(theirs);
    if (strcmp(how, "kill") == 0)
        node_start(&cluster, master);
    else if (strcmp(how, "stop") == 0)
        node_continue(master);
    cluster_await_settled(&cluster);
}

static void master_is_killed(void **state)
{
    (void)state;
    failover_is_followed("kill");
}

static void master_is_stopped(void **state)
{
    (void)state;
    failover_is_followed("stop");
}

static void master_is_replaced_by_hand(void **state)
{
    (void)state;
    failover_is_followed("by hand");
}

/* A hold that the replica never got is lost, and reported. */
static void what_has_vanished_is_lost(void **state)
{
    (void)state;
    struct node *master = cluster_owner(&cluster, 0),
                *replica = cluster_replica_of(&cluster, master);
    char name[64];
    fresh_at(master, name);
    snib_client *ours = must_open_lease(cluster.url, 60000);
    snib_lock *lock = must_lock(ours, name);
    node_stop(replica);
    node_do(master, "CLIENT KILL TYPE replica"); /* or data in flight would arrive */
    snib_hold *hold = must_acquire(lock, 0);
    node_kill(master);
    node_continue(replica);
    cluster_await_failover(&cluster, slot_of(name), master);
    expect_hold_lost(hold, SNIB_REASON_FAILOVER, 5000);
    snib_hold_free(hold);
    must_release(must_acquire(lock, LONG_MS));
    snib_client_free(ours);
    node_start(&cluster, master);
    cluster_await_settled(&cluster);
}

/* ---- A cluster that is down ------------------------------------------------------------------------ */

/* A master dies without a replica: no request is served, with an error that says so, until it is
 * back. */
static void cluster_down_and_up(void **state)
{
    (void)state;
    struct node *master = cluster_owner(&cluster, 0), *other = other_master(master);
    struct node *replica = cluster_replica_of(&cluster, master);
    char name[64], dead[64], again[64];
    fresh_at(other, name);
    fresh_at(other, again);
    fresh_at(master, dead);
    snib_client *client = must_open_lease(cluster.url, 60000);
    snib_hold *hold = must_acquire(must_lock(client, name), 0), *none;
    node_kill(replica);
    node_kill(master);
    AWAIT(!node_ok(other), 10000);
    snib_error error = {0};
    int64_t began = now_ms();
    /* Unreachable: patience ended while a try was in flight. */
    int code = snib_lock_acquire(must_lock(client, again), 0, -1, &none, &error);
    assert_true(code == SNIB_ECONNECT || code == SNIB_EUNREACHABLE);
    /* The same may happen to a single try; not to each of them.  A name that was tried before may still wait for the end
     * of that. */
    error = (snib_error){0};
    for (int64_t end = now_ms() + patient_ms(8000); !strstr(error.text, "CLUSTERDOWN");) {
        if (now_ms() > end)
            fail_msg("the error does not give the server's reason: %s", error.text);
        fresh_at(other, again);
        code = snib_lock_acquire(must_lock(client, again), 0, 0, &none, &error);
        assert_true(code == SNIB_ECONNECT || code == SNIB_EUNREACHABLE);
    }
    code = snib_lock_acquire(must_lock(client, dead), 0, -1, &none, &error);
    assert_true(code == SNIB_ECONNECT || code == SNIB_EUNREACHABLE);
    assert_true(now_ms() - began > 8000 && now_ms() - began < 11000 + 2 * patient_ms(8000));
    snib_op *op = must_submit(must_lock(client, "after"), -1, NULL, 0);
    node_start(&cluster, master);
    node_start(&cluster, replica);
    snib_event event = must_end(op, LONG_MS);
    if (event.code == SNIB_OK)
        must_release(event.hold);
    cluster_await_settled(&cluster);
    must_release(must_acquire(must_lock(client, dead), LONG_MS));
    must_be_valid(hold, 15000);
    must_release(hold);
    snib_client_free(client);
}

/* Each thread has the lock again.  Not one that wants a semaphore: a failover may take away what nobody gives back. */
static void await_everybody(struct crowd *crowd)
{
    long before[LOADS];
    for (int i = 0; i < LOADS; i++)
        before[i] = crowd->loads[i].served;
    for (int i = 0; i < LOADS; i++) {
        struct load *load = &crowd->loads[i];
        if (load->kind->kind == SNIB_READ || load->kind->kind == SNIB_SEMAPHORE)
            continue;
        for (int64_t end = now_ms() + 3 * LONG_MS; load->served <= before[i]; nap_us(1000))
            if (now_ms() > end)
                fail_msg("%s: the thread %d is not served any more", load->kind->name, i);
    }
}

static void everybody_is_back_after_failovers(void **state)
{
    (void)state;
    static struct crowd crowd;
    crowd_start(&crowd, "stormy", true);
    for (int i = 0; i < count_of(50, 3); i++) {
        struct node *master = cluster_owner_of(&cluster, "{stormy}");
        struct node *replica = cluster_replica_of(&cluster, master);
        if (i % 2) {
            node_kill(master);
            cluster_await_failover(&cluster, slot_of("{stormy}"), master);
            node_start(&cluster, master);
        } else {
            cluster_failover(replica, "");
        }
        await_everybody(&crowd);
        cluster_await_settled(&cluster);
    }
    crowd_end(&crowd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_works_at_every_node),
        cmocka_unit_test(move_follows),
        cmocka_unit_test(half_a_move_is_no_hindrance),
        cmocka_unit_test(multi_lock_over_slots),
        cmocka_unit_test(list_goes_over_all_nodes),
        cmocka_unit_test(what_cannot_work_is_refused),
        cmocka_unit_test(releases_are_heard),
        cmocka_unit_test(other_ways_have_turns),
        cmocka_unit_test(nodes_come_and_go),
        cmocka_unit_test(nothing_is_lost_while_slots_move),
        cmocka_unit_test(nothing_is_lost_while_slots_are_handed_on),
        cmocka_unit_test(master_is_replaced_by_hand),
        cmocka_unit_test(master_is_killed),
        cmocka_unit_test(master_is_stopped),
        cmocka_unit_test(what_has_vanished_is_lost),
        cmocka_unit_test(everybody_is_back_after_failovers),
        cmocka_unit_test(cluster_down_and_up),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
