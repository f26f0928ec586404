/* carrier.c - locks on several servers: what the members' clients report while the lock is being
 * given up. */
#include "unit.h"

#include "api/group.h"
#include "driver/sys.h"
#include "engine/internal.h"
#include "locks/kind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { NODES = 3, OTHER = 1, TO_THE_MEMBER = 4 }; /* the operation's own client is the first */

/* Servers that accept connections and never reply: an operation gets only the test's answers. */
static struct node {
    struct sockaddr_un address;
    int fd;
    snib_client *client;
    snib_lock *lock;
    struct snib__driver *driver;
} nodes[NODES];

static char folder[32];
static int64_t try_timeout_ms = 60000;

static int start(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/snib-carrier-XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < NODES; i++) {
        struct node *node = &nodes[i];
        char url[sizeof node->address.sun_path + 8];
        snib_client_options o;
        int32_t code;
        node->address.sun_family = AF_UNIX;
        snprintf(node->address.sun_path, sizeof node->address.sun_path, "%s/%d", folder, i);
        node->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(
            bind(node->fd, (const struct sockaddr *)&node->address, sizeof node->address), 0);
        assert_int_equal(listen(node->fd, 8), 0);
        snprintf(url, sizeof url, "unix://%s", node->address.sun_path);
        snib_client_options_init(&o, sizeof o);
        o.connect_timeout_ms = o.reply_timeout_ms = o.patience_ms = 60000;
        o.try_timeout_ms = try_timeout_ms;
        assert_int_equal(snib_client_open(url, &o, &node->client, NULL), SNIB_OK);
        assert_int_equal(snib_lock_new(node->client, SNIB_MUTEX, "m", 1, NULL, &node->lock, NULL),
                         SNIB_OK);
        node->driver = &snib__client_enter(node->client, NULL, &code)->driver;
        snib__handle_put(node->client);
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (int i = 0; i < NODES; i++) {
        close(nodes[i].fd); /* so that the close does not wait for it */
        unlink(nodes[i].address.sun_path);
        snib_lock_free(nodes[i].lock);
        snib_client_free(nodes[i].client);
    }
    return rmdir(folder);
}

/* Lock the driver when its engine has the group's attempt, which a thread begins.  An assertion that
 * fails while the mutex is locked would not let the test end. */
static struct snib__op *lock_with_member(struct snib__driver *driver)
{
    for (;; usleep(1000)) {
        snib__sys_lock(&driver->mutex);
        struct snib__op *op = driver->engine->live;
        if (op && !op->done && op->member > 0)
            return op;
        snib__sys_unlock(&driver->mutex);
    }
}

static void grant(struct snib__engine *engine, struct snib__op *op)
{
    const struct snib__verdict yes = {.yes = true};
    snib__node_forget(engine, op->hold);
    snib__gate_acquired(engine, op->hold, snib__now(), &yes, snib__now());
}

/* A thread that has read the grant unlocks the mutex to send: until it returns no operation owns
 * the grant, and the lock may be given up meanwhile.  Then the grant goes back. */
static void grant_that_comes_as_it_is_given_up(void **state)
{
    (void)state;
    snib_lock *given[NODES], *quorum;
    snib_op *handle;
    for (int i = 0; i < NODES; i++)
        given[i] = nodes[i].lock;
    assert_int_equal(snib_quorum_new(given, NODES, NULL, &quorum, NULL), SNIB_OK);
    assert_int_equal(snib_lock_acquire_submit(quorum, 0, -1, NULL, 0, &handle, NULL), SNIB_OK);
    struct snib__driver *driver = nodes[OTHER].driver;
    struct snib__engine *engine = driver->engine;
    struct snib__op *op = lock_with_member(driver);
    grant(engine, op);
    bool granted = op->done && op->code == SNIB_OK && engine->stats.held == 1;
    snib__sys_unlock(&driver->mutex); /* as the driver does to send */
    assert_true(granted);
    assert_int_equal(snib_op_cancel(handle), SNIB_OK);
    bool given_back = false;
    for (int i = 0; i < 60000 && !given_back; i++) { /* a thread may do it */
        snib__driver_enter(driver);
        given_back = engine->stats.held == 0 && engine->releasing == 1;
        snib__driver_leave(driver);
        usleep(1000);
    }
    assert_true(given_back);
    snib_op_free(handle);
    snib_lock_free(quorum);
}

/* What happens just before this thread enters the group's own client, and just after it leaves it, when it has come to the
 * last of so many times. */
static _Thread_local void (*before_home)(void), (*after_home)(void);
static _Thread_local int enters, leaves;
static snib__time first_deadline;
static const struct snib__hold *whole; /* the hold of the group, if it is watched */
static bool let_go_early;
static uint64_t held_at_end; /* by the home, when a group's operation ended */

void __real_snib__driver_enter(struct snib__driver *driver);
void __wrap_snib__driver_enter(struct snib__driver *driver);
void __wrap_snib__driver_enter(struct snib__driver *driver)
{
    void (*then)(void) = driver == nodes[0].driver ? before_home : NULL;
    if (then && --enters == 0) {
        before_home = NULL;
        then();
    }
    __real_snib__driver_enter(driver);
}

void __real_snib__driver_leave(struct snib__driver *driver);
void __wrap_snib__driver_leave(struct snib__driver *driver);
void __wrap_snib__driver_leave(struct snib__driver *driver)
{
    __real_snib__driver_leave(driver);
    void (*then)(void) = driver == nodes[0].driver ? after_home : NULL;
    if (then && --leaves == 0) {
        after_home = NULL;
        then();
    }
}

void __real_snib__hold_drop(struct snib__engine *engine, struct snib__hold *hold, snib__time at);
void __wrap_snib__hold_drop(struct snib__engine *engine, struct snib__hold *hold, snib__time at);
void __wrap_snib__hold_drop(struct snib__engine *engine, struct snib__hold *hold, snib__time at)
{
    let_go_early |= whole && whole->phase == SNIB__HELD;
    __real_snib__hold_drop(engine, hold, at);
}

bool __real_snib__outer_granted(struct snib__engine *engine, struct snib__outer *outer,
                                snib__time deadline, snib__time at);
bool __wrap_snib__outer_granted(struct snib__engine *engine, struct snib__outer *outer,
                                snib__time deadline, snib__time at);
bool __wrap_snib__outer_granted(struct snib__engine *engine, struct snib__outer *outer,
                                snib__time deadline, snib__time at)
{
    first_deadline = deadline;
    return __real_snib__outer_granted(engine, outer, deadline, at);
}

void __real_snib__outer_ended(struct snib__engine *engine, struct snib__outer *outer, int32_t code,
                              snib__time at);
void __wrap_snib__outer_ended(struct snib__engine *engine, struct snib__outer *outer, int32_t code,
                              snib__time at);
void __wrap_snib__outer_ended(struct snib__engine *engine, struct snib__outer *outer, int32_t code,
                              snib__time at)
{
    held_at_end = engine->stats.held;
    __real_snib__outer_ended(engine, outer, code, at);
}

static void grant_member(struct node *node)
{
    lock_with_member(node->driver);
    snib__sys_unlock(&node->driver->mutex);
    snib__driver_enter(node->driver);
    grant(node->driver->engine, node->driver->engine->live);
    snib__driver_leave(node->driver);
}

static void grant_the_last(void)
{
    grant_member(&nodes[OTHER]);
}

/* The last member of a lock with a fixed lease comes while a thread is on its way to the lock's own client, after its look
 * at the members: the lock is given out with their lease and not with the client's. */
static void grant_between_two_looks(void **state)
{
    (void)state;
    snib_lock *given[] = {nodes[0].lock, nodes[OTHER].lock}, *multi;
    snib_lock_options options;
    snib_event event = {.size = sizeof event};
    snib_op *handle;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = 5000; /* the clients' is 30 seconds */
    assert_int_equal(snib_multi_new(given, 2, &options, &multi, NULL), SNIB_OK);
    assert_int_equal(snib_lock_acquire_submit(multi, 0, -1, NULL, 0, &handle, NULL), SNIB_OK);
    struct snib__driver *home = nodes[0].driver;
    snib__driver_enter(home);
    struct snib__hold *hold = NULL;
    for (struct snib__op *op = home->engine->live; op; op = op->live_next)
        hold = op->member ? hold : op->hold;
    snib__driver_leave(home);
    grant_member(&nodes[0]);
    snib__driver_enter(home);
    snib__outer_tell(home->engine, hold);
    before_home = grant_the_last;
    enters = 1;
    snib__driver_leave(home);
    assert_null(before_home);
    assert_int_equal(snib_op_wait(handle, 60000, &event, NULL), SNIB_OK);
    assert_int_equal(event.code, SNIB_OK);
    assert_true(first_deadline <= snib__lease_end(snib__now(), 5000 * SNIB__MS));
    snib_hold_free(event.hold);
    snib_lock_free(multi);
}

static struct snib__hold *last_member;

static void lose_the_last(void)
{
    snib__driver_enter(nodes[OTHER].driver);
    snib__hold_lose(nodes[OTHER].driver->engine, last_member, SNIB_REASON_TAKEN, snib__now());
    snib__driver_leave(nodes[OTHER].driver);
}

/* A member is lost just after the lock's own client has heard that all is well: it hears of the loss before the other member
 * is let go of, because the lock looks held there until then. */
static void loss_between_two_looks(void **state)
{
    (void)state;
    snib_lock *given[] = {nodes[0].lock, nodes[OTHER].lock}, *multi;
    snib_event event = {.size = sizeof event};
    snib_op *handle;
    assert_int_equal(snib_multi_new(given, 2, NULL, &multi, NULL), SNIB_OK);
    assert_int_equal(snib_lock_acquire_submit(multi, 0, -1, NULL, 0, &handle, NULL), SNIB_OK);
    struct snib__driver *home = nodes[0].driver;
    snib__driver_enter(home);
    struct snib__hold *hold = NULL;
    for (struct snib__op *op = home->engine->live; op; op = op->live_next)
        hold = op->member ? hold : op->hold;
    snib__driver_leave(home);
    grant_member(&nodes[0]);
    last_member = lock_with_member(nodes[OTHER].driver)->hold;
    snib__sys_unlock(&nodes[OTHER].driver->mutex);
    grant_the_last();
    assert_int_equal(snib_op_wait(handle, 60000, &event, NULL), SNIB_OK);
    assert_int_equal(event.code, SNIB_OK);
    whole = hold;
    snib__driver_enter(home);
    snib__outer_tell(home->engine, hold);
    after_home = lose_the_last;
    leaves = 2; /* it is a member's client, too, and looked at before */
    snib__driver_leave(home);
    assert_null(after_home);
    int32_t reason;
    assert_int_equal(snib_hold_state(event.hold, &reason), SNIB_HOLD_LOST);
    assert_int_equal(reason, SNIB_REASON_TAKEN);
    assert_false(let_go_early);
    whole = NULL;
    snib_hold_free(event.hold);
    snib_lock_free(multi);
}

/* The oldest question of a member's client about another lease, or NULL; inside the client. */
static struct snib__op *oldest_question(const struct node *node)
{
    struct snib__op *oldest = NULL;
    for (struct snib__op *op = node->driver->engine->live; op; op = op->live_next)
        if (op->kind == SNIB__OP_EXTEND && op->member && !op->done &&
            (!oldest || op->serial < oldest->serial))
            oldest = op;
    return oldest;
}

/* It is granted, as soon as it is asked, perhaps by another thread. */
static void grant_lease(struct node *node)
{
    static const struct snib__value none = {.type = SNIB__RESP_ARRAY};
    struct snib__engine *engine = node->driver->engine;
    bool granted = false;
    for (int i = 0; i < 30000 && !granted; i++, usleep(1000)) {
        snib__driver_enter(node->driver);
        struct snib__op *op = oldest_question(node);
        if ((granted = op != NULL)) {
            snib__node_forget(engine, op);
            snib__extend_answer(engine, op, snib__now(), &none, 1, snib__now());
        }
        snib__driver_leave(node->driver);
    }
    assert_true(granted);
}

static void lease_the_first(void)
{
    grant_lease(&nodes[0]);
}

/* A member answers an extension that was given up just as the next one begins: the next one has still to be granted. */
static void answer_to_an_earlier_extension(void **state)
{
    (void)state;
    snib_lock *given[] = {nodes[0].lock, nodes[OTHER].lock}, *multi;
    snib_event event = {.size = sizeof event};
    snib_op *handle, *first, *second;
    assert_int_equal(snib_multi_new(given, 2, NULL, &multi, NULL), SNIB_OK);
    assert_int_equal(snib_lock_acquire_submit(multi, 0, -1, NULL, 0, &handle, NULL), SNIB_OK);
    grant_member(&nodes[0]);
    grant_the_last();
    assert_int_equal(snib_op_wait(handle, 60000, &event, NULL), SNIB_OK);
    snib_hold *hold = event.hold;
    assert_int_equal(snib_hold_extend_submit(hold, 40000, NULL, 0, &first, NULL), SNIB_OK);
    lock_with_member(nodes[0].driver); /* it is asked */
    snib__sys_unlock(&nodes[0].driver->mutex);
    assert_int_equal(snib_op_cancel(first), SNIB_OK);
    before_home = lease_the_first;
    enters = TO_THE_MEMBER;
    assert_int_equal(snib_hold_extend_submit(hold, 50000, NULL, 0, &second, NULL), SNIB_OK);
    assert_null(before_home);
    snib__driver_enter(nodes[0].driver);
    bool asked = oldest_question(&nodes[0]) != NULL;
    snib__driver_leave(nodes[0].driver);
    assert_true(asked);
    grant_lease(&nodes[OTHER]);
    assert_int_equal(snib_op_wait(second, 1, &event, NULL), SNIB_AGAIN);
    snib_op_free(first);
    snib_op_free(second);
    snib_hold_free(hold);
    snib_lock_free(multi);
}

/* A vote was asked for before the lock got another lease, and comes afterwards: it gets that lease, too, so that the lock
 * does not end early with it if another server dies. */
static void vote_from_before_an_extension(void **state)
{
    (void)state;
    snib_lock *given[NODES], *quorum;
    snib_lock_options options;
    snib_event event = {.size = sizeof event};
    snib_op *handle;
    struct node *last = &nodes[NODES - 1];
    for (int i = 0; i < NODES; i++)
        given[i] = nodes[i].lock;
    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = 50000;
    options.flags = SNIB_LOCK_NO_QUARANTINE;
    assert_int_equal(snib_quorum_new(given, NODES, &options, &quorum, NULL), SNIB_OK);
    assert_int_equal(snib_lock_acquire_submit(quorum, 0, -1, NULL, 0, &handle, NULL), SNIB_OK);
    grant_member(&nodes[0]);
    grant_member(&nodes[OTHER]);
    assert_int_equal(snib_op_wait(handle, 60000, &event, NULL), SNIB_OK);
    snib_hold *hold = event.hold;
    assert_int_equal(snib_hold_extend_submit(hold, 900000, NULL, 0, &handle, NULL), SNIB_OK);
    grant_lease(&nodes[0]);
    grant_lease(&nodes[OTHER]);
    assert_int_equal(snib_op_wait(handle, 60000, &event, NULL), SNIB_OK);
    assert_int_equal(event.code, SNIB_OK);
    const struct snib__hold *vote = lock_with_member(last->driver)->hold;
    snib__sys_unlock(&last->driver->mutex);
    grant_member(last);
    grant_lease(last);
    snib__driver_enter(last->driver);
    snib__time left = vote->deadline - snib__now();
    int64_t lease_ms = vote->lease_ms;
    snib__driver_leave(last->driver);
    assert_int_equal(lease_ms, 900000);
    assert_true(left > 800000 * SNIB__MS);
    snib_hold_free(hold);
    snib_lock_free(quorum);
}

/* A member's server has answered the release. */
static void end_release(struct node *node, int32_t code)
{
    struct snib__engine *engine = node->driver->engine;
    lock_with_member(node->driver);
    snib__sys_unlock(&node->driver->mutex);
    snib__driver_enter(node->driver);
    struct snib__op *op = engine->live;
    while (op && !(op->kind == SNIB__OP_RELEASE && op->member))
        op = op->live_next;
    if (op) {
        struct snib__hold *hold = op->hold;
        snib__node_forget(engine, hold);
        if (code == SNIB_LOST)
            snib__hold_found_lost(engine, hold, snib__now());
        snib__gate_released(engine, hold, code, snib__now());
    }
    snib__driver_leave(node->driver);
}

/* A release finds that a member was lost, as its client knows with a failover: that is why the whole was lost. */
static void release_of_what_a_failover_lost(void **state)
{
    (void)state;
    snib_lock *given[] = {nodes[0].lock, nodes[OTHER].lock}, *multi;
    snib_event event = {.size = sizeof event};
    snib_op *handle;
    assert_int_equal(snib_multi_new(given, 2, NULL, &multi, NULL), SNIB_OK);
    assert_int_equal(snib_lock_acquire_submit(multi, 0, -1, NULL, 0, &handle, NULL), SNIB_OK);
    grant_member(&nodes[0]);
    last_member = lock_with_member(nodes[OTHER].driver)->hold;
    snib__sys_unlock(&nodes[OTHER].driver->mutex);
    grant_the_last();
    assert_int_equal(snib_op_wait(handle, 60000, &event, NULL), SNIB_OK);
    snib_hold *hold = event.hold;
    snib__driver_enter(nodes[OTHER].driver);
    last_member->flags |= SNIB__INHERITED;
    snib__driver_leave(nodes[OTHER].driver);
    assert_int_equal(snib_hold_release_submit(hold, NULL, 0, &handle, NULL), SNIB_OK);
    end_release(&nodes[0], SNIB_OK);
    end_release(&nodes[OTHER], SNIB_LOST);
    assert_int_equal(snib_op_wait(handle, 60000, &event, NULL), SNIB_OK);
    assert_int_equal(event.code, SNIB_LOST);
    assert_int_equal(event.reason, SNIB_REASON_FAILOVER);
    snib_hold_free(hold);
    snib_lock_free(multi);
}

static const struct snib__engine *short_of_memory; /* for what an extension asks */

struct snib__op *__real_snib__ask_carry(struct snib__engine *engine, int kind,
                                        struct snib__gate *gate, const char *text, size_t n,
                                        snib__time at, int32_t *out_code);
struct snib__op *__wrap_snib__ask_carry(struct snib__engine *engine, int kind,
                                        struct snib__gate *gate, const char *text, size_t n,
                                        snib__time at, int32_t *out_code);
struct snib__op *__wrap_snib__ask_carry(struct snib__engine *engine, int kind,
                                        struct snib__gate *gate, const char *text, size_t n,
                                        snib__time at, int32_t *out_code)
{
    if (engine != short_of_memory || kind != SNIB__OP_EXTEND)
        return __real_snib__ask_carry(engine, kind, gate, text, n, at, out_code);
    struct snib__op *op = snib__op_new(engine, kind, gate, at, out_code);
    if (op)
        snib__op_done(engine, op, SNIB_ENOMEM);
    return op;
}

/* There is no memory to ask a member's server for another lease: the extension tells so, and the hold is what it was. */
static void extension_without_memory(void **state)
{
    (void)state;
    snib_lock *given[] = {nodes[0].lock, nodes[OTHER].lock}, *multi;
    snib_event event = {.size = sizeof event};
    snib_op *handle;
    assert_int_equal(snib_multi_new(given, 2, NULL, &multi, NULL), SNIB_OK);
    assert_int_equal(snib_lock_acquire_submit(multi, 0, -1, NULL, 0, &handle, NULL), SNIB_OK);
    grant_member(&nodes[0]);
    grant_the_last();
    assert_int_equal(snib_op_wait(handle, 60000, &event, NULL), SNIB_OK);
    snib_hold *hold = event.hold;
    short_of_memory = nodes[OTHER].driver->engine;
    assert_int_equal(snib_hold_extend_submit(hold, 40000, NULL, 0, &handle, NULL), SNIB_OK);
    assert_int_equal(snib_op_wait(handle, 60000, &event, NULL), SNIB_OK);
    short_of_memory = NULL;
    assert_int_equal(event.code, SNIB_ENOMEM);
    assert_int_equal(snib_hold_state(hold, NULL), SNIB_HOLD_AT_RISK); /* no server replies */
    snib_hold_free(hold);
    snib_lock_free(multi);
}

static int start_briefly(void **state)
{
    try_timeout_ms = 400;
    return start(state);
}

static int stop_briefly(void **state)
{
    try_timeout_ms = 60000;
    return stop(state);
}

/* False: its wait is over, because this thread stood still. */
static bool answer_first(const struct snib__verdict *verdict)
{
    struct snib__engine *engine = nodes[0].driver->engine;
    snib__driver_enter(nodes[0].driver);
    struct snib__op *op = engine->live;
    while (op && (op->done || op->member == 0))
        op = op->live_next;
    if (op) {
        snib__node_forget(engine, op->hold);
        snib__gate_acquired(engine, op->hold, snib__now(), verdict, snib__now());
    }
    snib__driver_leave(nodes[0].driver);
    return op != NULL;
}

/* The first member was not free for most of a wait, and there is no connection for the last one when it ends: the wait was
 * for the first.  That is given back before anybody knows of the end, and may try again.  False: this thread stood still
 * until the wait was over. */
static bool wait_for_the_first(bool refused)
{
    static const struct snib__verdict no = {.left_ms = 30000}, yes = {.yes = true};
    snib_lock *given[] = {nodes[0].lock, nodes[OTHER].lock}, *multi;
    snib_event event = {.size = sizeof event};
    snib_op *handle, *behind;
    assert_int_equal(snib_multi_new(given, 2, NULL, &multi, NULL), SNIB_OK);
    assert_int_equal(snib_lock_acquire_submit(multi, 0, 500, NULL, 0, &handle, NULL), SNIB_OK);
    assert_int_equal(snib_lock_acquire_submit(nodes[0].lock, 0, -1, NULL, 0, &behind, NULL),
                     SNIB_OK);
    bool in_time = !refused || answer_first(&no);
    usleep(200 * 1000); /* so that less than a try's time is left for the last one */
    in_time = answer_first(&yes) && in_time;
    assert_int_equal(snib_op_wait(handle, 60000, &event, NULL), SNIB_OK);
    if (in_time)
        assert_int_equal(event.code, refused ? SNIB_TIMEDOUT : SNIB_ECONNECT);
    assert_int_equal(held_at_end, 0);
    assert_int_equal(snib_op_cancel(behind), SNIB_OK);
    snib_op_free(behind);
    snib_lock_free(multi);
    return in_time;
}

static void member_that_was_not_free(void **state)
{
    (void)state;
    for (int i = 0; !wait_for_the_first(true); i++)
        assert_true(i < 50);
}

/* The one behind it knows of its grant, but it has not waited for itself. */
static void member_that_was_free(void **state)
{
    (void)state;
    for (int i = 0; !wait_for_the_first(false); i++)
        assert_true(i < 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(grant_that_comes_as_it_is_given_up, start, stop),
        cmocka_unit_test_setup_teardown(grant_between_two_looks, start, stop),
        cmocka_unit_test_setup_teardown(loss_between_two_looks, start, stop),
        cmocka_unit_test_setup_teardown(answer_to_an_earlier_extension, start, stop),
        cmocka_unit_test_setup_teardown(vote_from_before_an_extension, start, stop),
        cmocka_unit_test_setup_teardown(release_of_what_a_failover_lost, start, stop),
        cmocka_unit_test_setup_teardown(extension_without_memory, start, stop),
        cmocka_unit_test_setup_teardown(member_that_was_not_free, start_briefly, stop_briefly),
        cmocka_unit_test_setup_teardown(member_that_was_free, start_briefly, stop_briefly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
