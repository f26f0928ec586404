/* multi.c - a multi lock with one changed member: the others are given back, and the reply is
 * accurate. */
#include "../support/support.h"

#include <string.h>

enum { LEASE_MS = 60000, MEMBERS = 3 };

struct world {
    struct server server;
    snib_client *client;
    snib_lock *members[MEMBERS], *multi;
};

static const char *const names[MEMBERS] = {"a", "b", "c"};

/* middle: the kind of the second member; the others are mutexes. */
static struct world *world_new(int32_t middle, int64_t lease_ms)
{
    static struct world world;
    snib_error error = {.code = -99};
    server_start(&world.server, NULL);
    world.client = must_open_lease(world.server.url, lease_ms);
    for (int i = 0; i < MEMBERS; i++)
        world.members[i] = must_lock_kind(world.client, i == 1 ? middle : SNIB_MUTEX, names[i]);
    assert_int_equal(snib_multi_new(world.members, MEMBERS, NULL, &world.multi, &error), SNIB_OK);
    assert_int_equal(error.code, -99); /* success writes no error */
    return &world;
}

static void world_free(struct world *world)
{
    snib_client_free(world->client);
    server_stop(&world->server);
}

static const int32_t middles[] = {SNIB_MUTEX, SNIB_FENCED, SNIB_READ, SNIB_WRITE, SNIB_SPIN};
#define EACH_MIDDLE(i)                                                                             \
    size_t i = 0;                                                                                  \
    i < sizeof middles / sizeof *middles;                                                          \
    i++

/* A member's name now has other data: that member is lost, the others are freed, the data is
 * untouched. */
static void overwritten_member(void **state)
{
    (void)state;
    for (EACH_MIDDLE(i))
        for (int which = 0; which < MEMBERS; which++) {
            struct world *world = world_new(middles[i], LEASE_MS);
            snib_hold *hold = must_acquire(world->multi, 0);
            snib_error error = {0};
            server_do(&world->server, "SET %s precious", names[which]);
            assert_int_equal(snib_hold_release(hold, &error), SNIB_LOST);
            assert_non_null(strstr(error.text, "multi lock \"a\" and others was lost"));
            for (int member = 0; member < MEMBERS; member++)
                assert_int_equal(server_integer(&world->server, "EXISTS %s", names[member]),
                                 member == which);
            redisReply *reply = server_command(&world->server, "GET %s", names[which]);
            assert_string_equal(reply->str, "precious");
            freeReplyObject(reply);
            snib_hold_free(hold);
            EXPECT(snib_client_close(world->client, -1, err), SNIB_OK);
            world_free(world);
        }
}

/* A multi lock that has lost one member gives back the others when it is released. */
static void deleted_member(void **state)
{
    (void)state;
    for (EACH_MIDDLE(i)) {
        struct world *world = world_new(middles[i], 3000);
        snib_hold *hold = must_acquire(world->multi, 0);
        server_do(&world->server, "DEL b");
        EXPECT(snib_hold_wait(hold, patient_ms(5000), NULL, err), SNIB_LOST);
        for (int k = 0; k < MEMBERS; k += 2) /* else their lease would hide a failure */
            assert_int_equal(server_integer(&world->server, "PEXPIRE %s 600000", names[k]), 1);
        EXPECT(snib_hold_release(hold, err), SNIB_LOST);
        AWAIT(server_integer(&world->server, "EXISTS a b c") == 0, 5000);
        snib_hold_free(hold);
        world_free(world);
    }
}

/* A right is missing for the last command of the acquire: no member is left behind. */
static void refused_lease(void **state)
{
    (void)state;
    for (EACH_MIDDLE(i)) {
        struct world *world = world_new(middles[i], LEASE_MS);
        snib_hold *hold = NULL;
        server_do(&world->server, "ACL SETUSER default -pexpire");
        EXPECT(snib_lock_acquire(world->multi, 0, 0, &hold, err), SNIB_EPERM);
        AWAIT(server_integer(&world->server, "EXISTS a b c") == 0, 5000);
        world_free(world);
    }
}

/* The right to one member is revoked: the others are released, and the error is reported. */
static void right_to_one_taken_away(void **state)
{
    (void)state;
    struct world *world = world_new(SNIB_MUTEX, LEASE_MS);
    server_do(&world->server, "ACL SETUSER admin on nopass ~* &* +@all");
    snib_hold *hold = must_acquire(world->multi, 0);
    server_do(&world->server, "ACL SETUSER default -hdel");
    snib_error error = {0};
    assert_int_equal(snib_hold_release(hold, &error), SNIB_EPERM);
    server_do(&world->server, "ACL SETUSER default +hdel");
    AWAIT(server_integer(&world->server, "EXISTS a b c") == 0, 5000); /* it was retried */
    snib_hold_free(hold);
    world_free(world);
}

/* If one script cannot take all members, both the whole lock and the member that is not free wait:
 * that counts as one wait. */
static void waits_once(void **state)
{
    (void)state;
    struct world *world = world_new(SNIB_FAIR, LEASE_MS);
    snib_client *other = must_open(world->server.url);
    snib_lock *rival = must_lock(other, "a");
    snib_hold *theirs = must_acquire(rival, 0);
    snib_lock_info_data info = {.size = sizeof info};
    snib_op *op = NULL;
    EXPECT(snib_lock_acquire_submit(world->multi, 0, -1, NULL, 0, &op, err), SNIB_OK);
    AWAIT(snib_lock_info(rival, &info, NULL) == SNIB_OK && info.waiting == 1, 5000);
    assert_int_equal(must_stats(world->client).waiting, 1);
    must_release(theirs);
    must_release(must_end(op, 5000).hold);
    assert_int_equal(must_stats(world->client).waiting, 0);
    snib_client_free(other);
    world_free(world);
}

/* So do its end and its cancellation: those of the member that is not free belong to the whole. */
static void ends_once(void **state)
{
    (void)state;
    struct world *world = world_new(SNIB_FAIR, LEASE_MS);
    snib_client *other = must_open(world->server.url);
    snib_lock *rival = must_lock(other, "a");
    snib_hold *theirs = must_acquire(rival, 0), *hold;
    snib_lock_info_data info = {.size = sizeof info};
    snib_op *op = NULL;
    EXPECT(snib_lock_acquire(world->multi, 0, 100, &hold, err), SNIB_TIMEDOUT);
    assert_int_equal(must_stats(world->client).timeouts, 1);
    assert_int_equal(must_stats(world->client).cancels, 0);
    EXPECT(snib_lock_acquire_submit(world->multi, 0, -1, NULL, 0, &op, err), SNIB_OK);
    AWAIT(snib_lock_info(rival, &info, NULL) == SNIB_OK && info.waiting == 1, 5000);
    assert_int_equal(snib_op_cancel(op), SNIB_OK);
    assert_int_equal(must_end(op, 5000).code, SNIB_CANCELLED);
    AWAIT(snib_lock_info(rival, &info, NULL) == SNIB_OK && info.waiting == 0, 5000);
    assert_int_equal(must_stats(world->client).timeouts, 1);
    assert_int_equal(must_stats(world->client).cancels, 1);
    must_release(theirs);
    snib_client_free(other);
    world_free(world);
}

static void expect_told(const snib_error *error, const char *what, const struct server *server)
{
    if (!strstr(error->text, "\" and others: mutex \"b\": ") || !strstr(error->text, what) ||
        !strstr(error->text, server->socket) || !strstr(error->text, "; the server said: "))
        fail_msg("%s", error->text);
}

/* What one of several servers refuses: which of them, for which member, and in its own words. */
static void one_of_several_servers_refuses(void **state)
{
    (void)state;
    struct server servers[2];
    snib_client *clients[2];
    snib_lock *members[2], *multi;
    snib_hold *hold;
    snib_error error = {0};
    for (int i = 0; i < 2; i++) {
        server_start(&servers[i], NULL);
        clients[i] = must_open(servers[i].url);
        members[i] = must_lock(clients[i], names[i]);
    }
    EXPECT(snib_multi_new(members, 2, NULL, &multi, err), SNIB_OK);
    must_release(must_acquire(multi, 0));
    struct server *server = &servers[1];
    server_do(server, "SET b text");
    assert_int_equal(snib_lock_acquire(multi, 0, 5000, &hold, &error), SNIB_EWRONGTYPE);
    expect_told(&error, "belongs to data", server);
    server_do(server, "DEL b");
    hold = must_acquire(multi, 0);
    server_do(server, "ACL SETUSER admin on nopass ~* &* +@all");
    server_do(server, "ACL SETUSER default -pexpire -hdel");
    assert_int_equal(snib_hold_extend(hold, LEASE_MS, &error), SNIB_EPERM);
    expect_told(&error, "may not run", server);
    assert_int_equal(snib_hold_release(hold, &error), SNIB_EPERM);
    expect_told(&error, "may not run", server);
    server_do(server, "ACL SETUSER default +pexpire +hdel");
    snib_hold_free(hold);
    snib_lock_free(multi);
    for (int i = 0; i < 2; i++) {
        snib_lock_free(members[i]);
        snib_client_free(clients[i]);
        server_stop(&servers[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overwritten_member),
        cmocka_unit_test(deleted_member),
        cmocka_unit_test(refused_lease),
        cmocka_unit_test(right_to_one_taken_away),
        cmocka_unit_test(waits_once),
        cmocka_unit_test(ends_once),
        cmocka_unit_test(one_of_several_servers_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
