/* pubsub.c - wake-ups are lost, doubled or late: waiters still get the lock, without a thundering
 * herd.
 *
 * A message is a hint.  If it does not come, a waiter asks again after recheck_ms at most; if it
 * does, one waiter of each process asks.
 *
 * How soon is only bounded here, by SLACK_MS, because a stall of the machine must not fail a test.  The same is judged
 * closely in virtual time: by check_waiter() of tests/sim/sim_check.c in every world, with messages that are lost and
 * without.
 */
#include "../support/support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RECHECK_MS = 400, SLACK_MS = 10000 };

static snib_client *open_recheck(const char *url, int64_t recheck_ms)
{
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.recheck_ms = recheck_ms;
    snib_client *client = NULL;
    EXPECT(snib_client_open(url, &options, &client, err), SNIB_OK);
    return client;
}

struct world {
    struct server server;
    struct proxy *proxy;
    char acquire[41], release[41], question[41];
};

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    world.proxy = proxy_start(world.server.socket);
    server_script(&world.server, "mutex_acquire", world.acquire);
    server_script(&world.server, "mutex_release", world.release);
    server_script(&world.server, "mutex_renew", world.question);
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

/* Submit a waiter, call `disturb` every 100 ms for a while, release, and time the grant. */
static int64_t grant_after_release(struct world *world, snib_client *waiter, snib_client *holder,
                                   const char *disturb)
{
    snib_queue *queue = must_queue(waiter);
    snib_hold *hold = must_acquire(must_lock(holder, "pubsub"), 1000);
    EXPECT(snib_lock_acquire_submit(must_lock(waiter, "pubsub"), 0, -1, queue, 1, NULL, err),
           SNIB_OK);
    AWAIT(must_stats(waiter).waiting == 1, 1000);
    for (int64_t end = now_ms() + random() % 300; disturb && now_ms() < end; nap_us(100000))
        server_do(&world->server, disturb);
    int64_t released = now_ms();
    must_release(hold);
    snib_event event = must_event(queue, RECHECK_MS + 5000);
    int64_t took = now_ms() - released;
    assert_int_equal(event.code, SNIB_OK);
    must_release(event.hold);
    snib_queue_free(queue);
    return took;
}

static void connection_killed(void **state)
{
    struct world *world = *state;
    snib_client *holder = must_open(world->server.url);
    snib_client *waiter = open_recheck(world->server.url, RECHECK_MS);
    int64_t worst = 0;
    for (int run = 0; run < count_of(200, 40); run++) {
        int64_t took = grant_after_release(world, waiter, holder, "CLIENT KILL TYPE pubsub");
        worst = took > worst ? took : worst;
        if (took > RECHECK_MS + SLACK_MS)
            fail_msg("granted %d ms after the release", (int)took);
    }
    print_message("          granted within %d ms, cap %d\n", (int)worst, RECHECK_MS);
    AWAIT(server_channels(&world->server) == 0, 1000);
    snib_client_free(holder);
    snib_client_free(waiter);
}

static void every_message_dropped(void **state)
{
    struct world *world = *state;
    proxy_drop_messages(world->proxy, true);
    snib_client *holder = must_open(world->server.url);
    snib_client *waiter = open_recheck(proxy_url(world->proxy), RECHECK_MS);
    int64_t worst = 0;
    for (int run = 0; run < count_of(100, 20); run++) {
        int64_t took = grant_after_release(world, waiter, holder, NULL);
        worst = took > worst ? took : worst;
        if (took > RECHECK_MS + SLACK_MS)
            fail_msg("granted %d ms after the release", (int)took);
    }
    assert_int_equal(must_stats(waiter).messages, 0); /* they were really dropped */
    assert_true(must_stats(waiter).rechecks > 0);
    print_message("          granted within %d ms, cap %d\n", (int)worst, RECHECK_MS);
    proxy_drop_messages(world->proxy, false);
    snib_client_free(holder);
    snib_client_free(waiter);
}

/* With messages it is not the re-check that wakes: grants come in a fraction of its interval. */
static void messages_wake(void **state)
{
    struct world *world = *state;
    snib_client *holder = must_open(world->server.url);
    snib_client *waiter = open_recheck(proxy_url(world->proxy), 60000);
    for (int run = 0; run < 50; run++)
        if (grant_after_release(world, waiter, holder, NULL) > SLACK_MS)
            fail_msg("no message woke the waiter in run %d", run);
    assert_true(must_stats(waiter).messages > 0);
    snib_client_free(holder);
    snib_client_free(waiter);
}

/* ---- A thousand waiters in ten processes ----------------------------------------------------- */

enum { PROCESSES = 10, WAITERS = 100, HERD_RECHECK_MS = 20000 };

/* A process: submit all, report that, release every grant at once.  Its exit code says what
 * failed. */
static int herd_process(const char *url, int ready)
{
    alarm(120);
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.recheck_ms = HERD_RECHECK_MS;
    snib_client *client = NULL;
    snib_lock *lock = NULL;
    snib_queue *queue = NULL;
    if (snib_client_open(url, &options, &client, NULL) != SNIB_OK ||
        snib_lock_new(client, SNIB_MUTEX, "herd", 4, NULL, &lock, NULL) != SNIB_OK ||
        snib_queue_new(client, &queue, NULL) != SNIB_OK)
        return 2;
    for (int i = 0; i < WAITERS; i++)
        if (snib_lock_acquire_submit(lock, 0, -1, queue, (uint64_t)i, NULL, NULL) != SNIB_OK)
            return 3;
    if (write(ready, "r", 1) != 1)
        return 4;
    for (int granted = 0; granted < WAITERS;) {
        snib_event events[16];
        int n = snib_queue_wait(queue, events, 16, 30000, NULL);
        if (n <= 0)
            return 5;
        for (int i = 0; i < n; i++, granted++) {
            if (events[i].code != SNIB_OK || snib_hold_release(events[i].hold, NULL) != SNIB_OK)
                return 6;
            snib_hold_free(events[i].hold);
        }
    }
    return snib_client_close(client, -1, NULL) == SNIB_OK ? 0 : 7;
}

static int count_records(struct world *world, size_t from, const char *sha1)
{
    int count = 0;
    for (size_t i = from; i < proxy_record_count(world->proxy); i++)
        count += record_is(proxy_record(world->proxy, i), sha1);
    return count;
}

static void thousand_waiters(void **state)
{
    struct world *world = *state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip_because("sanitizers allow no fork beside threads");
#endif
    pid_t pids[PROCESSES];
    int ready[2];
    char bytes[PROCESSES];
    assert_int_equal(pipe(ready), 0);
    redisReply *raw =
        server_command(&world->server, "EVALSHA %s 1 herd 0-0-0-0-0:1 60000", world->acquire);
    freeReplyObject(raw);
    for (int i = 0; i < PROCESSES; i++)
        if ((pids[i] = fork()) == 0)
            _exit(herd_process(proxy_url(world->proxy), ready[1]));
    close(ready[1]);
    for (size_t got = 0; got < PROCESSES;) {
        ssize_t n = read(ready[0], bytes, sizeof bytes);
        assert_true(n > 0); /* 0: one has died early */
        got += (size_t)n;
    }
    const char *channel = "redisson_lock__channel:{herd}";
    AWAIT(server_integer(&world->server, "EVAL %s 0 %s",
                         "return redis.call('pubsub','numsub',ARGV[1])[2]", channel) == PROCESSES,
          5000);

    /* Idle waiters are silent: after the try that follows the subscription they send nothing. */
    AWAIT(count_records(world, 0, world->acquire) >= 2 * PROCESSES, 5000);
    size_t quiet_from = proxy_record_count(world->proxy);
    nap_us(2000000);
    int quiet = count_records(world, quiet_from, world->acquire);
    assert_int_equal(quiet, 0);

    size_t from = proxy_record_count(world->proxy);
    server_do(&world->server, "EVALSHA %s 1 herd 0-0-0-0-0:1 %s", world->release, channel);
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    int attempts = count_records(world, from, world->acquire);
    int releases = count_records(world, from, world->release) + 1;
    int questions = count_records(world, from, world->question);
    print_message("          %d attempts, %d releases with a message, %d questions\n", attempts,
                  releases, questions);
    /* What is handed over inside a process needs no request of its own. */
    assert_true(questions > 0 && releases - 1 + questions <= PROCESSES * WAITERS);
    assert_true(attempts <= PROCESSES * releases);
    close(ready[0]);
    AWAIT(server_is_empty(&world->server) && server_channels(&world->server) == 0, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(connection_killed, world_new, world_free),
        cmocka_unit_test_setup_teardown(every_message_dropped, world_new, world_free),
        cmocka_unit_test_setup_teardown(messages_wake, world_new, world_free),
        cmocka_unit_test_setup_teardown(thousand_waiters, world_new, world_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
