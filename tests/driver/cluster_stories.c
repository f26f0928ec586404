/* cluster_stories.c - a client of a cluster over the real driver: one mutex, and requests to several
 * servers at once.
 *
 * The three nodes are hosts of one model, which serves all slots; nothing is redirected.
 */
#include "driver_sim.h"

#include "net/slot.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NODES = 3, LONG_MS = 60000 };

/* ---- A cluster ------------------------------------------------------------------------------------ */

static int node_of(const char *name, size_t n)
{
    return snib__slot(name, n) * NODES / SNIB__SLOTS;
}

static char said[400];

static void say_bulk(const char *text)
{
    snprintf(said, sizeof said, "$%zu\r\n%s\r\n", strlen(text), text);
}

static void say_slots(void)
{
    int n = snprintf(said, sizeof said, "*%d\r\n", NODES);
    for (int i = 0, from = 0; i < NODES; i++) {
        int next = ((i + 1) * SNIB__SLOTS + NODES - 1) / NODES;
        n += snprintf(said + n, sizeof said - (size_t)n,
                      "*3\r\n:%d\r\n:%d\r\n*3\r\n$10\r\nnode%d.test\r\n:6379\r\n$40\r\n%040d\r\n",
                      from, next - 1, i + 1, i + 1);
        from = next;
    }
}

static bool is(const model_text *argv, size_t argc, const char *first, const char *second)
{
    return argc > 1 && argv[0].n == strlen(first) && argv[1].n == strlen(second) &&
           strncasecmp(argv[0].p, first, argv[0].n) == 0 &&
           strncasecmp(argv[1].p, second, argv[1].n) == 0;
}

static const char *answer(void *context, uint64_t connection, const model_text *argv, size_t argc,
                          size_t *out_n)
{
    (void)context, (void)connection;
    if (is(argv, argc, "cluster", "slots"))
        say_slots();
    else if (is(argv, argc, "cluster", "info"))
        say_bulk("cluster_state:ok\r\ncluster_current_epoch:1\r\n");
    else if (is(argv, argc, "info", "server"))
        say_bulk("redis_version:7.0.15\r\nredis_mode:cluster\r\n");
    else
        return NULL;
    *out_n = strlen(said);
    return said;
}

void open_cluster(int64_t lease_ms)
{
    const struct model_deployment deployment = {.answer = answer};
    model_deploy(world.server, &deployment);
    open_client_at("redis+cluster://node1.test", lease_ms, 0);
}

/* The nth lock whose slot a node has. */
static snib_lock *lock_at(int node, int nth)
{
    char name[32];
    for (int number = 0;; number++) {
        int n = snprintf(name, sizeof name, "at:%d", number);
        if (node_of(name, (size_t)n) == node && nth-- == 0)
            return lock_of(0, "at", number, 0);
    }
}

/* ---- Collecting ----------------------------------------------------------------------------------- */

enum { EACH = 5, BUSY = 2 * EACH };

static snib_lock *locks[NODES][BUSY];

/* One request at each node, so that all are connected and have the scripts. */
static void warm_up(void)
{
    open_cluster(LONG_MS);
    connect_client();
    for (int i = 0; i < NODES; i++) {
        for (int j = 0; j < BUSY; j++)
            locks[i][j] = lock_at(i, j);
        snib_hold *hold;
        MUST(snib_lock_acquire(locks[i][0], 0, -1, &hold, err), SNIB_OK);
        MUST(snib_hold_release(hold, err), SNIB_OK);
        snib_hold_free(hold);
    }
    world_sleep(10 * SNIB__MS);
}

static void end(snib_queue *queue, int events)
{
    snib_event event;
    while (events-- > 0) {
        next_event(queue, &event);
        MUST(event.code, SNIB_OK);
        snib_hold_free(event.hold);
    }
    snib_queue_free(queue);
    for (int i = 0; i < NODES; i++)
        for (int j = 0; j < BUSY; j++)
            snib_lock_free(locks[i][j]);
    close_client();
    expect_nothing_left();
}

/* What may be collected is decided by what the whole client waits for: behind a few requests at each
 * node, more of them leave in few writes. */
void collected_by_all(void *argument)
{
    snib_queue *queue;
    (void)argument;
    warm_up();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    world.silent = true;
    for (int j = 0; j < EACH; j++)
        for (int i = 0; i < NODES; i++)
            MUST(snib_lock_acquire_submit(locks[i][j], 0, -1, queue, 1, NULL, err), SNIB_OK);
    world_sleep(10 * SNIB__MS);
    const uint64_t writes = drivers[0]->writes;
    /* At a node with five requests on their way, three more may wait for a reply. */
    for (int i = 0; i < NODES; i++)
        for (int j = EACH; j < EACH + 3; j++)
            MUST(snib_lock_acquire_submit(locks[i][j], 0, -1, queue, 1, NULL, err), SNIB_OK);
    if (drivers[0]->writes != writes)
        world_fail("%llu writes, although the replies to 15 requests are awaited",
                   (unsigned long long)(drivers[0]->writes - writes));
    world.silent = false;
    end(queue, NODES * (EACH + 3));
}

/* A second request at a node is not kept back because others are busy: it would wait for the reply to
 * the first. */
void collected_alone(void *argument)
{
    snib_queue *queue;
    (void)argument;
    warm_up();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    world.silent = true;
    for (int j = 0; j < BUSY; j++)
        for (int i = 0; i < 2; i++)
            MUST(snib_lock_acquire_submit(locks[i][j], 0, -1, queue, 1, NULL, err), SNIB_OK);
    MUST(snib_lock_acquire_submit(locks[2][0], 0, -1, queue, 1, NULL, err), SNIB_OK);
    world_sleep(10 * SNIB__MS);
    const uint64_t writes = drivers[0]->writes;
    MUST(snib_lock_acquire_submit(locks[2][1], 0, -1, queue, 1, NULL, err), SNIB_OK);
    if (drivers[0]->writes != writes + 1)
        world_fail("a request waits until one before it is answered");
    world.silent = false;
    end(queue, 2 * BUSY + 2);
}

/* Without the descriptor: so the thread reads. */
static void granted_in_time(snib_queue *queue)
{
    snib_event event;
    if (snib_queue_drain(queue, &event, 1, NULL) != 1 || event.code != SNIB_OK)
        world_fail("a corked acquire of a free lock is not granted in time");
    MUST(snib_hold_release(event.hold, err), SNIB_OK);
    snib_hold_free(event.hold);
}

/* A corked request is submitted while the thread sends what another node is to get, whose answer takes
 * long, and has already seen to this one: it makes another pass for it. */
void corked_while_awake(void *argument)
{
    snib_queue *queue;
    (void)argument;
    warm_up();
    MUST(snib_queue_new(clients[0], &queue, err), SNIB_OK);
    for (int turn = 0; turn < 2 * BUSY; turn++) {
        int slow = (int)world_draw(NODES);
        MUST(snib_queue_cork(queue), SNIB_OK);
        world.held_back = 1u << (slow + 1);
        MUST(snib_lock_acquire_submit(locks[slow][0], 0, -1, queue, 1, NULL, err), SNIB_OK);
        world_sleep(CORKED_MAX + world_draw(SNIB__MS / 10));
        MUST(snib_lock_acquire_submit(locks[(slow + 1) % NODES][0], 0, 0, queue, 1, NULL, err),
             SNIB_OK);
        world_sleep(2 * CORKED_MAX);
        granted_in_time(queue);
        world.held_back = 0;
        world_sleep(2 * CORKED_MAX);
        granted_in_time(queue);
        MUST(snib_queue_uncork(queue), SNIB_OK);
    }
    end(queue, 0);
}
