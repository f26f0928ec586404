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

enum { NODES = 3, OTHER = 1 }; /* the operation's own client is the first */

/* Servers that accept connections and never reply: an operation gets only the test's answers. */
static struct node {
    struct sockaddr_un address;
    int fd;
    snib_client *client;
    snib_lock *lock;
    struct snib__driver *driver;
} nodes[NODES];

static char folder[] = "/tmp/snib-carrier-XXXXXX";

static int start(void **state)
{
    (void)state;
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
        o.connect_timeout_ms = o.reply_timeout_ms = o.patience_ms = o.try_timeout_ms = 60000;
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
    const struct snib__verdict yes = {.yes = true};
    snib__node_forget(engine, op->hold);
    snib__gate_acquired(engine, op->hold, snib__now(), &yes, snib__now());
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(grant_that_comes_as_it_is_given_up, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
