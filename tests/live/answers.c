/* answers.c - what the client reports, and what a real server has, when a reply is not the server's own, comes too late or
 * never, by the table of docs/guarantees.md.
 *
 * An error replaces the reply, after the command was executed or without executing it: of an acquire and a release of a
 * mutex, of all requests to a semaphore, of an extension, a renewal, both kinds of hand-over, a latch wait, a query, a
 * description, a list, a ping and a force release.  All of these but renewals and hand-overs, which are in unanswered.c, are
 * also not sent, answered late and never answered, once.
 *
 * tests/unit/doubt.c goes through the whole table, without a server.  What is not here: connections that end at every byte
 * are in tests/faults/cuts.c, for acquires and releases, and the rows of a cluster and of a node that is no master in
 * cluster.c, moves.c and links.c.
 */
#include "../support/support.h"

#include <stdlib.h>
#include <string.h>

enum {
    PERMITS = 3,
    MORE = 5,
    LEASE_MS = 600000,
    RENEWED_MS = 30000,
    HOUR_MS = 3600000,
    SILENCE_MS = 100000
};

struct world {
    struct server server;
    struct proxy *proxy;
    snib_client *client; /* through the proxy */
    snib_client *other;  /* directly */
};

/* No answer is missed only because the machine stands still: a semaphore that is asked again takes once more. */
static snib_client *open_patient(struct proxy *proxy, int64_t lease_ms)
{
    snib_client *client;
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    options.reply_timeout_ms = options.try_timeout_ms = SILENCE_MS;
    EXPECT(snib_client_open(proxy_url(proxy), &options, &client, err), SNIB_OK);
    return client;
}

static int world_new(void **state)
{
    static struct world world;
    server_start(&world.server, NULL);
    world.proxy = proxy_start(world.server.socket);
    proxy_read_along(world.proxy, true);
    world.client = open_patient(world.proxy, RENEWED_MS);
    world.other = must_open(world.server.url);
    *state = &world;
    return 0;
}

static int world_free(void **state)
{
    struct world *world = *state;
    snib_client_free(world->client);
    snib_client_free(world->other);
    proxy_stop(world->proxy);
    server_stop(&world->server);
    return 0;
}

/* What happens to a request. */
enum fate { DONE, NOT_DONE, REFUSED, BUSY_THEN, LOGGED_OUT_THEN, FATES };
static const struct {
    const char *error;
    bool executed;
    int32_t code; /* what the caller is told */
} fates[FATES] = {
    [DONE] = {"UNAVAILABLE upstream failure", true, SNIB_ESERVER},
    [NOT_DONE] = {"UNAVAILABLE upstream failure", false, SNIB_ESERVER},
    [REFUSED] = {"OOM command not allowed when used memory > 'maxmemory'.", false, SNIB_EOOM},
    [BUSY_THEN] = {"BUSY Redis is busy running a script.", false, SNIB_OK},
    [LOGGED_OUT_THEN] = {"NOAUTH Authentication required.", false, SNIB_OK},
};

static void spoil(struct world *world, const char *script, int fate)
{
    char sha1[41];
    server_script(&world->server, script, sha1);
    proxy_spoil(world->proxy, sha1, 1, fates[fate].executed, fates[fate].error);
}

static int spoilt; /* replies that were replaced so far */

/* The reply was replaced, exactly once. */
static void expect_spoilt(struct world *world)
{
    AWAIT(proxy_spoilt(world->proxy) > spoilt, 10000);
    assert_int_equal(proxy_spoilt(world->proxy), ++spoilt);
}

static bool is_free(struct world *world, const char *name)
{
    return server_integer(&world->server, "EXISTS %s", name) == 0;
}

static long long number(struct world *world, const char *name)
{
    redisReply *reply = server_command(&world->server, "GET %s", name);
    long long value = reply->str ? strtoll(reply->str, NULL, 10) : -1;
    freeReplyObject(reply);
    return value;
}

static const char *cell = ""; /* the request of the cell */
static int cell_fate;

/* Any request that the client still has to send comes before this ping, so the number is final. */
static void expect_number(struct world *world, const char *name, long long want)
{
    EXPECT(snib_client_ping(world->client, -1, err), SNIB_OK);
    long long have = number(world, name);
    if (have != want)
        fail_msg("%s, fate %d: %s is %lld instead of %lld", cell, cell_fate, name, have, want);
}

static snib_lock *semaphore(struct world *world, const char *name)
{
    snib_lock *lock = must_lock_kind(world->client, SNIB_SEMAPHORE, name);
    server_do(&world->server, "SET %s %d", name, PERMITS);
    return lock;
}

static void mutex_acquire(struct world *world, int fate)
{
    snib_hold *hold = NULL;
    snib_lock *lock = must_lock(world->client, "m");
    spoil(world, "mutex_acquire", fate);
    EXPECT(snib_lock_acquire(lock, 0, 0, &hold, err), fates[fate].code);
    expect_spoilt(world);
    if (fates[fate].code == SNIB_OK) {
        assert_false(is_free(world, "m"));
        must_release(hold);
    }
    AWAIT(is_free(world, "m"), 5000); /* in doubt it is undone */
    snib_lock_free(lock);
}

static void mutex_release(struct world *world, int fate)
{
    snib_lock *lock = must_lock(world->client, "m");
    snib_hold *hold = must_acquire(lock, 0);
    spoil(world, "mutex_release", fate);
    EXPECT(snib_hold_release(hold, err), fates[fate].code);
    expect_spoilt(world);
    AWAIT(is_free(world, "m"), 5000); /* a release that was not executed is retried */
    snib_hold_free(hold);
    snib_lock_free(lock);
}

static void mutex_info(struct world *world, int fate)
{
    snib_lock *lock = must_lock(world->client, "m");
    snib_hold *hold = must_acquire(lock, 0);
    snib_lock_info_data info = {.size = sizeof info};
    spoil(world, "mutex_info", fate);
    EXPECT(snib_lock_info(lock, &info, err), fates[fate].code);
    expect_spoilt(world);
    assert_int_equal(info.held, fates[fate].code == SNIB_OK);
    assert_false(is_free(world, "m"));
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    snib_lock_free(lock);
}

static void mutex_force(struct world *world, int fate)
{
    bool done = fate == DONE || fates[fate].code == SNIB_OK;
    snib_lock *lock = must_lock(world->client, "m"), *theirs = must_lock(world->other, "m");
    snib_hold *hold = must_acquire(theirs, 0);
    spoil(world, "mutex_force", fate);
    EXPECT(snib_lock_force_release(lock, err), fates[fate].code);
    expect_spoilt(world);
    EXPECT(snib_client_ping(world->client, -1, err), SNIB_OK);
    assert_int_equal(is_free(world, "m"), done);
    EXPECT(snib_hold_release(hold, err), done ? SNIB_LOST : SNIB_OK);
    snib_hold_free(hold);
    snib_lock_free(lock);
    snib_lock_free(theirs);
}

static void semaphore_acquire(struct world *world, int fate)
{
    bool done = fate == DONE || fates[fate].code == SNIB_OK;
    snib_hold *hold = NULL;
    snib_lock *lock = semaphore(world, "s");
    spoil(world, "semaphore_acquire", fate);
    EXPECT(snib_lock_acquire(lock, 0, 0, &hold, err), fates[fate].code);
    expect_spoilt(world);
    expect_number(world, "s", PERMITS - done);
    if (hold) {
        must_release(hold);
        expect_number(world, "s", PERMITS);
    }
    snib_lock_free(lock);
}

static void semaphore_release(struct world *world, int fate)
{
    snib_lock *lock = semaphore(world, "s");
    snib_hold *hold = must_acquire(lock, 0);
    spoil(world, "semaphore_release", fate);
    EXPECT(snib_hold_release(hold, err), fates[fate].code);
    expect_spoilt(world);
    if (fate == REFUSED)
        AWAIT(number(world, "s") == PERMITS, 5000); /* it is retried */
    expect_number(world, "s", fate == NOT_DONE ? PERMITS - 1 : PERMITS);
    snib_hold_free(hold);
    expect_number(world, "s", fate == NOT_DONE ? PERMITS - 1 : PERMITS);
    snib_lock_free(lock);
}

static void semaphore_count(struct world *world, int fate)
{
    bool done = fate == DONE || fates[fate].code == SNIB_OK;
    snib_lock *lock = semaphore(world, "s");
    spoil(world, "semaphore_count", fate);
    EXPECT(snib_semaphore_count(lock, SNIB_COUNT_ADD, MORE, NULL, err), fates[fate].code);
    expect_spoilt(world);
    expect_number(world, "s", PERMITS + done * MORE);
    snib_lock_free(lock);
}

static void semaphore_info(struct world *world, int fate)
{
    snib_lock *lock = semaphore(world, "s");
    snib_lock_info_data info = {.size = sizeof info};
    spoil(world, "semaphore_info", fate);
    EXPECT(snib_lock_info(lock, &info, err), fates[fate].code);
    expect_spoilt(world);
    assert_int_equal(info.count, fates[fate].code == SNIB_OK ? PERMITS : 0);
    expect_number(world, "s", PERMITS);
    snib_lock_free(lock);
}

static void semaphore_force(struct world *world, int fate)
{
    bool done = fate == DONE || fates[fate].code == SNIB_OK;
    snib_lock *lock = semaphore(world, "s");
    spoil(world, "semaphore_force", fate);
    EXPECT(snib_lock_force_release(lock, err), fates[fate].code);
    expect_spoilt(world);
    EXPECT(snib_client_ping(world->client, -1, err), SNIB_OK);
    assert_int_equal(is_free(world, "s"), done);
    snib_lock_free(lock);
}

/* ---- A lease, and its next owner ---------------------------------------------------------------- */

static void extension(struct world *world, int fate)
{
    bool told = fates[fate].code == SNIB_OK, done = fate == DONE || told;
    snib_lock *lock = must_lock_lease(world->client, "m", LEASE_MS, 0);
    snib_hold *hold = must_acquire(lock, 0);
    spoil(world, "mutex_renew", fate);
    EXPECT(snib_hold_extend(hold, HOUR_MS, err), fates[fate].code);
    expect_spoilt(world);
    assert_int_equal(snib_hold_remaining_ms(hold) > LEASE_MS, told);
    assert_int_equal(server_integer(&world->server, "PTTL m") > LEASE_MS, done);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    snib_lock_free(lock);
}

/* A new connection has its holds renewed at once.  Whatever the first renewal is told, there is a second one. */
static void renewal(struct world *world, int fate)
{
    snib_lock *lock = must_lock(world->client, "m");
    snib_hold *hold = must_acquire(lock, 0);
    uint64_t before = must_stats(world->client).renewals;
    spoil(world, "mutex_renew", fate);
    server_do(&world->server, "CLIENT KILL TYPE normal SKIPME yes");
    AWAIT(must_stats(world->client).renewals > before, 10000);
    expect_spoilt(world);
    must_be_valid(hold, 10000);
    must_release(hold);
    snib_lock_free(lock);
}

/* A hold that is released while another operation of this client waits, which gets it; its hold.  On a slow machine it
 * may come to be released and acquired by themselves: then again. */
static snib_hold *release_to_next(struct world *world, snib_lock *lock, const char *script,
                                  int fate, int32_t code)
{
    snib_queue *queue = must_queue(world->client);
    for (int i = 0;; i++) {
        snib_hold *hold = must_acquire(lock, 0);
        EXPECT(snib_lock_acquire_submit(lock, 0, -1, queue, 1, NULL, err), SNIB_OK);
        AWAIT(must_stats(world->client).waiting == 1, 10000);
        spoil(world, script, fate);
        int told = snib_hold_release(hold, NULL);
        snib_hold_free(hold);
        snib_event event = must_event(queue, 10000);
        assert_int_equal(event.code, SNIB_OK);
        bool by_itself = proxy_spoilt(world->proxy) == spoilt && told == SNIB_OK && i < 20;
        if (!by_itself) {
            expect_spoilt(world);
            assert_int_equal(told, code);
            snib_queue_free(queue);
            return event.hold;
        }
        must_release(event.hold);
    }
}

/* By command: a release follows, and the waiter asks again. */
static void hand_over(struct world *world, int fate)
{
    snib_lock *lock = must_lock_kind(world->client, SNIB_FENCED, "f");
    snib_hold *next = release_to_next(world, lock, "fenced_transfer", fate, SNIB_OK);
    assert_false(is_free(world, "f"));
    must_be_valid(next, 10000);
    must_release(next);
    AWAIT(is_free(world, "f"), 5000);
    snib_lock_free(lock);
}

/* How often the client has sent a script since the proxy forgot. */
static int sent(struct world *world, const char *script)
{
    char sha1[41];
    int n = 0;
    server_script(&world->server, script, sha1);
    for (size_t i = 0; i < proxy_record_count(world->proxy); i++)
        n += record_is(proxy_record(world->proxy, i), sha1);
    return n;
}

/* Without one: the waiter has it by then, and the question that confirms the release is repeated. */
static void question(struct world *world, int fate)
{
    snib_lock *lock = must_lock(world->client, "m");
    proxy_forget(world->proxy);
    snib_hold *next = release_to_next(world, lock, "mutex_renew", fate, fates[fate].code);
    assert_false(is_free(world, "m"));
    must_be_valid(next, 10000);
    must_release(next);
    AWAIT(is_free(world, "m"), 5000);
    AWAIT(sent(world, "mutex_renew") >= 2, 10000);
    snib_lock_free(lock);
}

/* ---- What changes nothing ------------------------------------------------------------------------ */

static void latch_wait(struct world *world, int fate)
{
    snib_lock *lock = must_lock_kind(world->client, SNIB_LATCH, "open");
    spoil(world, "latch_acquire", fate);
    EXPECT(snib_latch_wait(lock, -1, err), fates[fate].code);
    expect_spoilt(world);
    snib_lock_free(lock);
}

static void ping(struct world *world, int fate)
{
    proxy_spoil(world->proxy, "PING", 1, fates[fate].executed, fates[fate].error);
    EXPECT(snib_client_ping(world->client, -1, err), fates[fate].code);
    expect_spoilt(world);
}

static void describe(struct world *world, int fate)
{
    static char text[65536];
    size_t used = 0;
    uint32_t count = 0;
    snib_lock *lock = must_lock(world->client, "m");
    snib_hold *hold = must_acquire(lock, 0);
    spoil(world, "describe", fate);
    EXPECT(snib_client_describe(world->client, "m", 1, text, sizeof text, &used, &count, err),
           fates[fate].code);
    expect_spoilt(world);
    assert_int_equal(count > 0, fates[fate].code == SNIB_OK);
    must_release(hold);
    snib_lock_free(lock);
}

static void list(struct world *world, int fate)
{
    static char text[65536];
    uint64_t cursor = 0;
    size_t used = 0;
    uint32_t count = 0;
    snib_lock *lock = must_lock(world->client, "m");
    snib_hold *hold = must_acquire(lock, 0);
    spoil(world, "list", fate);
    EXPECT(snib_client_list(world->client, "m", 1, &cursor, text, sizeof text, &used, &count, err),
           fates[fate].code);
    expect_spoilt(world);
    assert_int_equal(count, fates[fate].code == SNIB_OK);
    must_release(hold);
    snib_lock_free(lock);
}

static void all_cells(void **state)
{
    static const struct {
        const char *name;
        void (*make)(struct world *, int fate);
    } requests[] = {
        {"mutex_acquire", mutex_acquire},
        {"mutex_release", mutex_release},
        {"mutex_info", mutex_info},
        {"mutex_force", mutex_force},
        {"semaphore_acquire", semaphore_acquire},
        {"semaphore_release", semaphore_release},
        {"semaphore_count", semaphore_count},
        {"semaphore_info", semaphore_info},
        {"semaphore_force", semaphore_force},
        {"extension", extension},
        {"renewal", renewal},
        {"hand_over", hand_over},
        {"question", question},
        {"latch_wait", latch_wait},
        {"ping", ping},
        {"describe", describe},
        {"list", list},
    };
    struct world *world = *state;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        for (int fate = 0; fate < FATES; fate++) {
            cell = requests[i].name;
            cell_fate = fate;
            requests[i].make(world, fate);
        }
}

/* ---- Not sent, and late ---------------------------------------------------------------------------- */

enum {
    ACQUIRE,
    TAKE,
    RELEASE,
    PUT,
    EXTEND,
    WAIT,
    INFO,
    DESCRIBE,
    LIST,
    PING,
    CHANGE,
    FORCE,
    REQUESTS
};

/* One request of each kind, all of another name. */
struct requests {
    snib_client *client;
    snib_queue *queue;
    snib_lock *locks[REQUESTS];
    snib_hold *holds[REQUESTS], *theirs;
    snib_op *ops[REQUESTS];
};

static const char *const names[REQUESTS] = {
    [ACQUIRE] = "acquire", [TAKE] = "take",     [RELEASE] = "release",
    [PUT] = "put",         [EXTEND] = "extend", [WAIT] = "wait",
    [INFO] = "info",       [CHANGE] = "change", [FORCE] = "force"};

static void requests_new(struct world *world, struct requests *r)
{
    *r = (struct requests){.client = open_patient(world->proxy, LEASE_MS)};
    r->queue = must_queue(r->client);
    for (int i = 0; i < REQUESTS; i++) {
        bool counts = i == TAKE || i == PUT || i == CHANGE;
        if (!names[i])
            continue;
        if (counts)
            server_do(&world->server, "SET %s %d", names[i], PERMITS);
        if (i == EXTEND)
            r->locks[i] = must_lock_lease(r->client, names[i], LEASE_MS, 0);
        else
            r->locks[i] = must_lock_kind(r->client,
                                         counts      ? SNIB_SEMAPHORE
                                         : i == WAIT ? SNIB_LATCH
                                                     : SNIB_MUTEX,
                                         names[i]);
        if (i == RELEASE || i == PUT || i == EXTEND)
            r->holds[i] = must_acquire(r->locks[i], 0);
    }
    snib_lock *lock = must_lock(world->other, "force");
    r->theirs = must_acquire(lock, 0);
    snib_lock_free(lock);
}

static void requests_free(struct requests *r)
{
    for (int i = 0; i < REQUESTS; i++) {
        snib_hold_free(r->holds[i]);
        snib_lock_free(r->locks[i]);
    }
    snib_hold_free(r->theirs);
    snib_queue_free(r->queue);
    snib_client_free(r->client);
}

static void request_submit(struct requests *r, int i)
{
    snib_queue *q = r->queue;
    snib_lock *lock = r->locks[i];
    snib_hold *hold = r->holds[i];
    snib_op **op = &r->ops[i];
    uint64_t token = (uint64_t)i;
    if (i == ACQUIRE || i == TAKE)
        EXPECT(snib_lock_acquire_submit(lock, 0, -1, q, token, op, err), SNIB_OK);
    else if (i == RELEASE || i == PUT)
        EXPECT(snib_hold_release_submit(hold, q, token, op, err), SNIB_OK);
    else if (i == EXTEND)
        EXPECT(snib_hold_extend_submit(hold, HOUR_MS, q, token, op, err), SNIB_OK);
    else if (i == WAIT)
        EXPECT(snib_latch_wait_submit(lock, -1, q, token, op, err), SNIB_OK);
    else if (i == INFO)
        EXPECT(snib_lock_info_submit(lock, q, token, op, err), SNIB_OK);
    else if (i == DESCRIBE)
        EXPECT(snib_client_describe_submit(r->client, "info", 4, q, token, op, err), SNIB_OK);
    else if (i == LIST)
        EXPECT(snib_client_list_submit(r->client, "*", 1, 0, q, token, op, err), SNIB_OK);
    else if (i == PING)
        EXPECT(snib_client_ping_submit(r->client, -1, q, token, op, err), SNIB_OK);
    else if (i == CHANGE)
        EXPECT(snib_semaphore_count_submit(lock, SNIB_COUNT_ADD, MORE, q, token, op, err), SNIB_OK);
    else
        EXPECT(snib_lock_force_release_submit(lock, q, token, op, err), SNIB_OK);
}

/* The next request that ends does so with this code; returns which it is. */
static int request_ended(struct requests *r, int32_t code)
{
    snib_event event = must_event(r->queue, 20000);
    if (event.code != code)
        fail_msg("request %d: %s instead of %s", (int)event.token, snib_code_name(event.code),
                 snib_code_name(code));
    return (int)event.token;
}

/* There is no connection until the patience of all has ended.  Only the releases are sent when there is one. */
static void never_sent(void **state)
{
    struct world *world = *state;
    struct requests r;
    unsigned ended = 0;
    requests_new(world, &r);
    proxy_refuse(world->proxy, true);
    /* What is written before the client has seen the end of the connection may have been read. */
    AWAIT(snib_client_ping(r.client, 1, NULL) == SNIB_ECONNECT, 20000);
    for (int i = 0; i < REQUESTS; i++)
        request_submit(&r, i);
    for (int i = 0; i < REQUESTS; i++)
        ended |= 1u << request_ended(&r, SNIB_ECONNECT);
    assert_int_equal(ended, (1u << REQUESTS) - 1);
    proxy_refuse(world->proxy, false);
    AWAIT(is_free(world, "release"), 10000);
    AWAIT(number(world, "put") == PERMITS, 10000);
    EXPECT(snib_client_ping(r.client, -1, err), SNIB_OK);
    assert_true(is_free(world, "acquire") && number(world, "take") == PERMITS &&
                number(world, "change") == PERMITS);
    assert_true(server_integer(&world->server, "PTTL extend") <= LEASE_MS);
    EXPECT(snib_hold_check(r.theirs, err), SNIB_OK);
    EXPECT(snib_hold_release(r.theirs, err), SNIB_OK);
    must_be_valid(r.holds[EXTEND], 10000);
    EXPECT(snib_hold_release(r.holds[EXTEND], err), SNIB_OK);
    requests_free(&r);
}

/* Whether the server has carried the request out.  What changes nothing leaves no trace there. */
static bool request_done(struct world *world, int i)
{
    switch (i) {
    case ACQUIRE:
        return !is_free(world, "acquire");
    case TAKE:
        return number(world, "take") == PERMITS - 1;
    case PUT:
        return number(world, "put") == PERMITS;
    case EXTEND:
        return server_integer(&world->server, "PTTL extend") > LEASE_MS;
    case CHANGE:
        return number(world, "change") == PERMITS + MORE;
    case RELEASE:
    case FORCE:
        return is_free(world, names[i]);
    default:
        return true;
    }
}

/* The server has carried it out, and its answer comes when the caller has given up. */
static void answered_late(void **state)
{
    struct world *world = *state;
    struct requests r;
    requests_new(world, &r);
    EXPECT(snib_client_ping(r.client, -1, err), SNIB_OK);
    uint64_t connects = must_stats(r.client).connects;
    for (int i = 0; i < REQUESTS; i++) {
        size_t before = proxy_record_count(world->proxy);
        proxy_stall(world->proxy, TO_CLIENT, true);
        request_submit(&r, i);
        AWAIT(proxy_record_count(world->proxy) > before && request_done(world, i), 10000);
        EXPECT(snib_op_cancel(r.ops[i]), SNIB_OK);
        assert_int_equal(request_ended(&r, SNIB_CANCELLED), i);
        proxy_stall(world->proxy, TO_CLIENT, false);
        EXPECT(snib_client_ping(r.client, -1, err), SNIB_OK);
    }
    AWAIT(is_free(world, "acquire") && number(world, "take") == PERMITS, 10000); /* given back */
    assert_int_equal(must_stats(r.client).connects, connects);
    assert_true(is_free(world, "release") && number(world, "put") == PERMITS &&
                number(world, "change") == PERMITS + MORE);
    assert_true(snib_hold_remaining_ms(r.holds[EXTEND]) <= LEASE_MS);
    EXPECT(snib_hold_check(r.holds[EXTEND], err), SNIB_OK);
    EXPECT(snib_hold_release(r.holds[EXTEND], err), SNIB_OK);
    EXPECT(snib_hold_release(r.theirs, err), SNIB_LOST);
    requests_free(&r);
}

/* The server has carried it out, the connection ends before the answer, and there is none until patience ends.  What has a
 * number was sent again for as long as anybody waited, and is undone or found done; the rest is left as it is. */
static void never_answered(void **state)
{
    enum { AT_ONCE = 4 }; /* with their scripts few enough to be sent without an answer to any */
    static const int32_t codes[REQUESTS] = {[INFO] = SNIB_ECONNECT,
                                            [DESCRIBE] = SNIB_ECONNECT,
                                            [LIST] = SNIB_ECONNECT,
                                            [PING] = SNIB_ECONNECT};
    struct world *world = *state;
    struct requests r;
    requests_new(world, &r);
    for (int from = 0; from < REQUESTS; from += AT_ONCE) {
        EXPECT(snib_client_ping(r.client, -1, err), SNIB_OK);
        proxy_stall(world->proxy, TO_CLIENT, true);
        for (int i = from; i < from + AT_ONCE; i++) {
            size_t before = proxy_record_count(world->proxy);
            request_submit(&r, i);
            AWAIT(proxy_record_count(world->proxy) > before && request_done(world, i), 10000);
        }
        proxy_refuse(world->proxy, true);
        proxy_stall(world->proxy, TO_CLIENT, false);
        for (int i = 0; i < AT_ONCE; i++) {
            snib_event event = must_event(r.queue, 20000);
            int32_t want = codes[event.token] ? codes[event.token] : SNIB_EUNREACHABLE;
            if (event.code != want)
                fail_msg("request %d: %s instead of %s", (int)event.token,
                         snib_code_name(event.code), snib_code_name(want));
        }
        proxy_refuse(world->proxy, false);
    }
    EXPECT(snib_client_ping(r.client, -1, err), SNIB_OK);
    AWAIT(is_free(world, "acquire"), 10000);
    assert_true(number(world, "take") == PERMITS - 1 && is_free(world, "release") &&
                number(world, "put") == PERMITS && number(world, "change") == PERMITS + MORE);
    assert_true(server_integer(&world->server, "PTTL extend") > LEASE_MS);
    assert_true(snib_hold_remaining_ms(r.holds[EXTEND]) <= LEASE_MS);
    must_be_valid(r.holds[EXTEND], 10000);
    EXPECT(snib_hold_release(r.holds[EXTEND], err), SNIB_OK);
    EXPECT(snib_hold_release(r.theirs, err), SNIB_LOST);
    requests_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_cells, world_new, world_free),
        cmocka_unit_test_setup_teardown(never_sent, world_new, world_free),
        cmocka_unit_test_setup_teardown(answered_late, world_new, world_free),
        cmocka_unit_test_setup_teardown(never_answered, world_new, world_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
