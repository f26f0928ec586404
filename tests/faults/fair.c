/* fair.c - the fair lock's waiters when messages are lost or late, and when waiters stop or die.
 *
 * A release grants the lock to the first waiter, which need not ask again.  A waiter that does not
 * hear of the grant asks within a beat; one that was stopped meanwhile must not believe a late
 * message; a dead one keeps no other waiting.
 */
#include "../support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BEAT_MS = 1000, FIRST_LEASE_MS = 3000, DEAD_MS = 2500, SLACK_MS = 10000 };

#define QUEUE_LENGTH(world) server_integer(&(world)->server, "LLEN redisson_lock_queue:{fair}")

struct world {
    struct server server;
    struct proxy *proxy;
};

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    world.proxy = proxy_start(world.server.socket);
    *state = &world;
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    proxy_stop(world->proxy);
    server_stop(&world->server);
    return 0;
}

/* Everything left at the server expires by itself; the queue and its places ten minutes later. */
static void expect_all_end(struct world *world, int64_t limit_ms)
{
    long long last = server_integer(&world->server, "EVAL %s 0",
                                    "local last = 0 "
                                    "for _, key in ipairs(redis.call('keys', '*')) do "
                                    "local left = redis.call('pttl', key) "
                                    "if left > 600000 and key:find('^redisson_lock_') then "
                                    "left = left - 600000 end "
                                    "last = math.max(last, left < 0 and 2 ^ 40 or left) end "
                                    "return last");
    if (last > limit_ms)
        fail_msg("something stays for %lld ms", last);
}

static void must_queue_up(struct world *world, snib_lock *lock, snib_queue *queue, uint64_t token,
                          int place)
{
    EXPECT(snib_lock_acquire_submit(lock, 0, -1, queue, token, NULL, err), SNIB_OK);
    AWAIT(QUEUE_LENGTH(world) == place, 2000);
}

/* ---- Lost messages --------------------------------------------------------------------------- */

static int64_t grant_after_release(struct world *world, snib_lock *holder, snib_lock *waiter,
                                   snib_queue *queue, bool kill)
{
    snib_hold *hold = must_acquire(holder, 1000);
    must_queue_up(world, waiter, queue, 1, 1);
    nap_us(random() % 100000);
    if (kill)
        assert_int_equal(server_integer(&world->server, "CLIENT KILL TYPE pubsub"), 1);
    int64_t released = now_ms();
    must_release(hold);
    snib_event event = must_event(queue, 10000);
    assert_int_equal(event.code, SNIB_OK);
    int64_t took = now_ms() - released;
    must_release(event.hold);
    return took;
}

/* Without the message the waiter asks within a beat, whatever its re-check interval. */
static void served_within_a_beat(struct world *world, const char *waiter_url, int runs, bool kill)
{
    snib_client *holder = must_open(world->server.url);
    snib_client *waiter = must_open_recheck(waiter_url, 0, 60000);
    snib_lock *ours = must_lock_kind(waiter, SNIB_FAIR, "fair");
    snib_lock *theirs = must_lock_kind(holder, SNIB_FAIR, "fair");
    snib_queue *queue = must_queue(waiter);
    int64_t worst = 0;
    for (int run = 0; run < runs; run++) {
        int64_t took = grant_after_release(world, theirs, ours, queue, kill);
        worst = took > worst ? took : worst;
    }
    print_message("          served within %d ms, a beat is %d\n", (int)worst, BEAT_MS);
    assert_true(worst < BEAT_MS + SLACK_MS);
    snib_client_free(holder);
    snib_client_free(waiter);
    AWAIT(server_is_empty(&world->server) && server_channels(&world->server) == 0, 1000);
}

static void pubsub_killed(void **state)
{
    struct world *world = *state;
    served_within_a_beat(world, world->server.url, count_of(100, 20), true);
}

static void every_message_dropped(void **state)
{
    struct world *world = *state;
    proxy_drop_messages(world->proxy, true);
    served_within_a_beat(world, proxy_url(world->proxy), count_of(50, 8), false);
}

/* With messages it takes milliseconds, and a hand-over needs no query. */
static void messages_wake(void **state)
{
    struct world *world = *state;
    snib_client *holder = must_open(world->server.url);
    snib_client *waiter = must_open_recheck(world->server.url, 0, 60000);
    snib_lock *ours = must_lock_kind(waiter, SNIB_FAIR, "fair");
    snib_lock *theirs = must_lock_kind(holder, SNIB_FAIR, "fair");
    snib_queue *queue = must_queue(waiter);
    int slow = 0;
    for (int run = 0; run < 20; run++)
        slow += grant_after_release(world, theirs, ours, queue, false) >= BEAT_MS / 2;
    assert_true(slow < 10);
    snib_client_free(holder);
    snib_client_free(waiter);
}

/* The next grant, in any of the queues. */
static snib_event next_of(snib_queue *const queues[3], int64_t limit_ms)
{
    snib_event event = {.size = sizeof event};
    int64_t end = now_ms() + limit_ms;
    for (int i = 0; now_ms() < end; i++) {
        if (snib_queue_drain(queues[i % 3], &event, 1, NULL) == 1)
            return event;
        nap_us(200);
    }
    fail_msg("no waiter was served within %d ms", (int)limit_ms);
    return event;
}

/* The links of all waiters are killed again and again: a waiter that cannot hear of a grant may be
 * passed over, but all are served, soon, and those of one process in order. */
static void served_under_kills(void **state)
{
    enum { WAITERS = 24 };
    struct world *world = *state;
    snib_client *clients[3];
    snib_lock *locks[3];
    snib_queue *queues[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = must_open_recheck(world->server.url, 0, 60000);
        locks[i] = must_lock_kind(clients[i], SNIB_FAIR, "fair");
        queues[i] = must_queue(clients[i]);
    }
    snib_hold *hold = must_acquire(locks[0], 0);
    for (int i = 0; i < WAITERS; i++)
        must_queue_up(world, locks[i % 3], queues[i % 3], (uint64_t)i, i + 1);
    uint64_t last[3] = {0, 0, 0};
    for (int i = 0; i < WAITERS; i++) {
        server_do(&world->server, "CLIENT KILL TYPE pubsub");
        if (i % 4 == 3)
            server_do(&world->server, "CLIENT KILL TYPE normal SKIPME yes");
        must_release(hold);
        snib_event event = next_of(queues, BEAT_MS + SLACK_MS);
        assert_int_equal(event.code, SNIB_OK);
        assert_true(event.token + 1 > last[event.token % 3]);
        last[event.token % 3] = event.token + 1;
        hold = event.hold;
    }
    must_release(hold);
    for (int i = 0; i < 3; i++)
        snib_client_free(clients[i]);
    AWAIT(server_is_empty(&world->server), 1000);
}

/* A proxy lets no subscription come about: others that hear of each release do not pass the waiter over for ever. */
static void never_subscribed(void **state)
{
    struct world *world = *state;
    for (enum bar bar = BAR_CLOSED; bar <= BAR_SILENT; bar++) {
        proxy_bar_messages(world->proxy, bar);
        snib_client *clients[] = {must_open(world->server.url), must_open(world->server.url),
                                  must_open(proxy_url(world->proxy))};
        must_have_its_turn(clients, "fair");
        for (int i = 0; i < 3; i++)
            snib_client_free(clients[i]);
        AWAIT(server_is_empty(&world->server), 1000);
    }
}

/* ---- Waiters that stop or die ---------------------------------------------------------------- */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define NEEDS_FORK() skip_because("sanitizers allow no fork beside threads")
#else
#define NEEDS_FORK() (void)0
#endif

/* A process that waits for the lock, writes 'g' when it has it, releases it, writes 'r', and so
 * on. */
struct waiter {
    pid_t pid;
    int says;
};

static int waiter_run(const char *url, int says)
{
    alarm(120);
    snib_client *client = NULL;
    snib_lock *lock = NULL;
    if (snib_client_open(url, NULL, &client, NULL) != SNIB_OK ||
        snib_lock_new(client, SNIB_FAIR, "fair", 4, NULL, &lock, NULL) != SNIB_OK)
        return 2;
    snib_hold *hold = NULL;
    if (snib_lock_acquire(lock, 0, 60000, &hold, NULL) != SNIB_OK)
        return 3;
    bool safe = snib_hold_check(hold, NULL) == SNIB_OK;
    if (write(says, safe ? "g" : "l", 1) != 1)
        return 4;
    int released = snib_hold_release(hold, NULL);
    if (write(says, released == SNIB_OK ? "r" : "x", 1) != 1)
        return 5;
    return snib_client_close(client, -1, NULL) == SNIB_OK ? 0 : 6;
}

static struct waiter waiter_start(struct world *world)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct waiter waiter = {fork(), ends[0]};
    assert_true(waiter.pid >= 0);
    if (waiter.pid == 0) {
        close(ends[0]);
        _exit(waiter_run(world->server.url, ends[1]));
    }
    close(ends[1]);
    return waiter;
}

/* A raw client holds the lock, so that no thread of the library runs during the fork. */
static const char *const raw_owner = "0aa00000-0000-8000-8000-000000000000:1";

static void raw_hold(struct world *world, int64_t ms)
{
    server_do(&world->server, "HSET fair %s 1", raw_owner);
    server_do(&world->server, "PEXPIRE fair %d", (int)ms);
}

static void raw_release(struct world *world)
{
    char release[41];
    server_script(&world->server, "fair_release", release);
    server_do(&world->server,
              "EVALSHA %s 5 fair redisson_lock_queue:{fair} redisson_lock_timeout:{fair} %s %s %s "
              "redisson_lock__channel:{fair}",
              release, "snib_lock_beats:{fair}", "redisson_lock_token:{fair}", raw_owner);
}

static char waiter_says(struct waiter *waiter)
{
    char word = '?';
    ssize_t n = read(waiter->says, &word, 1);
    return n == 1 ? word : '0';
}

static void waiter_ends(struct waiter *waiter, int want)
{
    int status;
    assert_int_equal(waitpid(waiter->pid, &status, 0), waiter->pid);
    if (want == 0 ? status != 0 : !WIFSIGNALED(status))
        fail_msg("the waiter ended with status 0x%x", (unsigned)status);
    close(waiter->says);
}

static void waiter_stop(struct waiter *waiter)
{
    int status;
    kill(waiter->pid, SIGSTOP);
    assert_int_equal(waitpid(waiter->pid, &status, WUNTRACED), waiter->pid);
}

/* A grant heard after its lease has ended is not believed, although the message is there. */
static void stopped_past_the_first_lease(void **state)
{
    NEEDS_FORK();
    struct world *world = *state;
    raw_hold(world, 60000);
    struct waiter waiter = waiter_start(world);
    AWAIT(QUEUE_LENGTH(world) == 1, 3000);
    waiter_stop(&waiter);
    raw_release(world); /* grants it to the stopped one */
    assert_int_equal(server_integer(&world->server, "HEXISTS fair %s", raw_owner), 0);
    assert_int_equal(server_integer(&world->server, "EXISTS fair"), 1);
    assert_int_equal(QUEUE_LENGTH(world), 0);
    AWAIT(server_integer(&world->server, "EXISTS fair") == 0, FIRST_LEASE_MS + 500);
    snib_client *rival = must_open(world->server.url);
    snib_hold *theirs = must_acquire(must_lock_kind(rival, SNIB_FAIR, "fair"), 0);
    char owner[128];
    EXPECT(snib_hold_owner(theirs, owner, err), SNIB_OK);
    kill(waiter.pid, SIGCONT);
    AWAIT(QUEUE_LENGTH(world) == 1, 3000); /* it asks, and waits again */
    expect_held_by(&world->server, "fair", owner);
    EXPECT(snib_hold_check(theirs, err), SNIB_OK);
    must_release(theirs); /* had it believed to hold the lock, it would have said so before */
    assert_int_equal(waiter_says(&waiter), 'g');
    assert_int_equal(waiter_says(&waiter), 'r');
    waiter_ends(&waiter, 0);
    snib_client_free(rival);
    AWAIT(server_is_empty(&world->server), 1000);
}

/* The grant's message is delayed while all else continues: when it arrives, the lease in it has
 * ended, another client holds the lock, and the waiter has asked since and been told to wait. */
static void message_after_the_answer(void **state)
{
    struct world *world = *state;
    snib_client *waiter = must_open_recheck(proxy_url(world->proxy), 0, 60000);
    snib_client *rival = must_open(world->server.url);
    snib_lock *lock = must_lock_kind(rival, SNIB_FAIR, "fair");
    snib_queue *queue = must_queue(waiter);
    snib_hold *theirs = must_acquire(lock, 0);
    must_queue_up(world, must_lock_kind(waiter, SNIB_FAIR, "fair"), queue, 1, 1);
    proxy_stall_messages(world->proxy, true);
    proxy_stall(world->proxy, TO_SERVER, true);
    must_release(theirs); /* to the waiter, which neither hears nor is heard */
    assert_int_equal(QUEUE_LENGTH(world), 0);
    AWAIT(server_integer(&world->server, "EXISTS fair") == 0, FIRST_LEASE_MS + 500);
    theirs = must_acquire(lock, 0);
    proxy_stall(world->proxy, TO_SERVER, false);
    AWAIT(QUEUE_LENGTH(world) == 1, 5000); /* it asks, and waits again */
    uint64_t asked = must_stats(waiter).rechecks;
    AWAIT(must_stats(waiter).rechecks > asked, 2 * BEAT_MS); /* and once more, just now */
    nap_us(20000);
    proxy_stall_messages(world->proxy, false);
    snib_event event = {.size = sizeof event};
    for (int i = 0; i < 100; i++) {
        if (snib_queue_drain(queue, &event, 1, NULL) != 0)
            fail_msg("an old grant was believed");
        nap_us(2000);
    }
    EXPECT(snib_hold_check(theirs, err), SNIB_OK);
    must_release(theirs);
    event = must_event(queue, 2000);
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    snib_client_free(waiter);
    snib_client_free(rival);
    AWAIT(server_is_empty(&world->server), 1000);
}

/* Stopped, granted, and resumed before the first lease has ended: the grant counts. */
static void stopped_for_a_moment(void **state)
{
    NEEDS_FORK();
    struct world *world = *state;
    raw_hold(world, 60000);
    struct waiter waiter = waiter_start(world);
    AWAIT(QUEUE_LENGTH(world) == 1, 3000);
    waiter_stop(&waiter);
    raw_release(world);
    nap_us(500000);
    kill(waiter.pid, SIGCONT);
    assert_int_equal(waiter_says(&waiter), 'g');
    assert_int_equal(waiter_says(&waiter), 'r');
    waiter_ends(&waiter, 0);
    AWAIT(server_is_empty(&world->server), 1000);
}

/* A killed waiter keeps no other waiting when its turn comes. */
static void killed_waiter_is_passed_over(void **state)
{
    NEEDS_FORK();
    struct world *world = *state;
    raw_hold(world, 60000);
    struct waiter dead = waiter_start(world);
    AWAIT(QUEUE_LENGTH(world) == 1, 3000);
    struct waiter next = waiter_start(world);
    AWAIT(QUEUE_LENGTH(world) == 2, 3000);
    kill(dead.pid, SIGKILL);
    waiter_ends(&dead, SIGKILL);
    int64_t start = now_ms();
    raw_release(world);
    assert_int_equal(waiter_says(&next), 'g');
    assert_true(now_ms() - start < FIRST_LEASE_MS); /* which it was not given */
    assert_int_equal(waiter_says(&next), 'r');
    waiter_ends(&next, 0);
    expect_all_end(world, FIRST_LEASE_MS + DEAD_MS + 10000);
}

/* Granted, and killed before it heard of it: the first lease ends, and the next waiter gets the
 * lock. */
static void killed_after_the_grant(void **state)
{
    NEEDS_FORK();
    struct world *world = *state;
    raw_hold(world, 60000);
    struct waiter dead = waiter_start(world);
    AWAIT(QUEUE_LENGTH(world) == 1, 3000);
    struct waiter next = waiter_start(world);
    AWAIT(QUEUE_LENGTH(world) == 2, 3000);
    waiter_stop(&dead);
    raw_release(world);
    kill(dead.pid, SIGKILL);
    waiter_ends(&dead, SIGKILL);
    int64_t start = now_ms();
    assert_int_equal(waiter_says(&next), 'g');
    assert_true(now_ms() - start < FIRST_LEASE_MS + BEAT_MS + SLACK_MS);
    assert_int_equal(waiter_says(&next), 'r');
    waiter_ends(&next, 0);
    AWAIT(server_is_empty(&world->server), 1000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(stopped_past_the_first_lease),
        TEST(message_after_the_answer),
        TEST(stopped_for_a_moment),
        TEST(killed_waiter_is_passed_over),
        TEST(killed_after_the_grant),
        TEST(pubsub_killed),
        TEST(every_message_dropped),
        TEST(messages_wake),
        TEST(never_subscribed),
        TEST(served_under_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
