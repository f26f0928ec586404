/* deployments.c - deployments behave as the topology tests assume. */
#include "deployment.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Send a command and expect a reply of any type. */
static redisReply *ask_in(redisContext *context, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    redisReply *reply = redisvCommand(context, format, list);
    va_end(list);
    assert_non_null(reply);
    return reply;
}

static redisContext *join(const struct node *node)
{
    redisContext *context = redisConnect("127.0.0.1", node->port);
    assert_true(context && !context->err);
    return context;
}

/* Expect an EVAL of `count` keys at this node to get an error that begins with `want`; "" stands
 * for no error. */
static void expect_eval(struct node *node, bool asking, const char *want, int count,
                        const char *key, const char *other)
{
    redisContext *context = join(node);
    if (asking)
        freeReplyObject(ask_in(context, "ASKING"));
    redisReply *reply = ask_in(context, count == 2 ? "EVAL %s 2 %s %s" : "EVAL %s 1 %s",
                               "return redis.call('exists', KEYS[1], KEYS[2] or KEYS[1])", key,
                               other ? other : key);
    if (*want && (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, want, strlen(want)) != 0))
        fail_msg("%s at %s: %s, expected %s", key, node->name,
                 reply->type == REDIS_REPLY_ERROR ? reply->str : "no error", want);
    if (!*want && reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s at %s: %s", key, node->name, reply->str);
    freeReplyObject(reply);
    redisFree(context);
}

static void began(const char *what, int64_t since_ms)
{
    print_message("          %-40s %6.2f s\n", what, (double)(now_ms() - since_ms) / 1000);
}

/* ---- One server ---------------------------------------------------------------------------------- */

static void single(void **state)
{
    struct deployment one;
    (void)state;
    single_start(&one, NULL);
    snib_client *client = must_open(one.url);
    must_release(must_acquire(must_lock(client, "one"), 0));
    snib_client_free(client);
    pid_t pid = one.nodes[0].pid;
    char dir[64];
    snprintf(dir, sizeof dir, "%s", one.dir);
    deployment_end(&one);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(access(dir, F_OK), -1);
}

/* Servers die with the test that started them, however it dies. */
static void dies_with_the_test(void **state)
{
    struct deployment *one = NULL;
    int ends[2];
    pid_t server = 0;
    (void)state;
    (void)one;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        static struct deployment mine;
        single_start(&mine, NULL);
        (void)!write(ends[1], &mine.nodes[0].pid, sizeof server);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(read(ends[0], &server, sizeof server), sizeof server);
    assert_int_equal(waitpid(child, NULL, 0), child);
    AWAIT(kill(server, 0) != 0, 5000);
    close(ends[0]);
    close(ends[1]);
}

/* ---- Sentinels ------------------------------------------------------------------------------------- */

static void sentinels(void **state)
{
    struct deployment set;
    int64_t since = now_ms();
    (void)state;
    sentinels_start(&set, NULL);
    began("three servers, three sentinels", since);
    struct node *old = sentinels_master(&set), *replica = sentinels_replica(&set, 1);
    assert_ptr_equal(old, &set.nodes[0]);
    node_do(old, "SET a 1");
    assert_int_equal(node_integer(old, "WAIT 2 %d", (int)patient_ms(5000)), 2);
    redisReply *reply = node_try(replica, "SET a 2");
    assert_true(reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "READONLY", 8) == 0);
    freeReplyObject(reply);

    since = now_ms();
    node_kill(old);
    struct node *second = sentinels_await_failover(&set, old);
    began("another master after a SIGKILL", since);
    node_start(&set, old);
    sentinels_await_settled(&set);
    began("the old one follows it", since);
    second = sentinels_master(&set); /* on a busy machine there may have been a further failover */
    assert_true(!node_is_master(old) || second == old);

    since = now_ms();
    node_stop(second);
    const struct node *third = sentinels_await_failover(&set, second);
    began("another master after a SIGSTOP", since);
    node_continue(second);
    sentinels_await_settled(&set);

    third = sentinels_master(&set);
    since = now_ms();
    assert_ptr_not_equal(sentinels_failover(&set), third);
    began("another master by hand", since);
    sentinels_await_settled(&set);
    node_restart(&set, sentinels_sentinel(&set, 0));
    sentinels_await_settled(&set);
    assert_non_null(strstr(set.url, "redis+sentinel://127.0.0.1:"));
    deployment_end(&set);
}

static bool node_writes(struct node *node)
{
    redisReply *reply = node_try(node, "SET a 1");
    bool written = reply && reply->type != REDIS_REPLY_ERROR;
    if (reply)
        freeReplyObject(reply);
    return written;
}

static void sentinels_with_passwords(void **state)
{
    struct deployment set;
    (void)state;
    sentinels_start(&set, &(struct deployment_options){.password = "secret",
                                                       .sentinel_password = "other",
                                                       .min_replicas = 1,
                                                       .replicas = 1});
    struct node *master = sentinels_master(&set);
    const struct node *guard = sentinels_sentinel(&set, 0);
    redisContext *context = join(master), *sentinel = join(guard);
    redisReply *reply = ask_in(context, "PING");
    assert_true(strncmp(reply->str, "NOAUTH", 6) == 0);
    freeReplyObject(reply);
    reply = ask_in(sentinel, "SENTINEL MASTERS");
    assert_true(strncmp(reply->str, "NOAUTH", 6) == 0);
    freeReplyObject(reply);
    redisFree(context);
    redisFree(sentinel);
    AWAIT(node_writes(master), DEPLOYED_MS); /* once its replicas are in step */
    node_kill(sentinels_replica(&set, 0));
    for (bool refused = false; !refused; freeReplyObject(reply)) {
        reply = node_try(master, "SET a 2");
        refused = reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOREPLICAS", 10) == 0;
    }
    deployment_end(&set);
}

/* ---- Cluster --------------------------------------------------------------------------------------- */

static void cluster(void **state)
{
    struct deployment set;
    int64_t since = now_ms();
    (void)state;
    cluster_start(&set, NULL);
    began("a cluster of three and three", since);
    static const char *const keys[] = {"foo", "{user}a", "a{b}c", "{}x", "a{}{b}", "a}b{c}d", "{a"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_int_equal(slot_of(keys[i]),
                         node_integer(&set.nodes[0], "CLUSTER KEYSLOT %s", keys[i]));
    char key[64];
    for (int i = 0; i < 3; i++) {
        cluster_key_at(&set, &set.nodes[i], "k", i, key);
        assert_ptr_equal(cluster_owner_of(&set, key), &set.nodes[i]);
        node_do(&set.nodes[i], "SET %s 1", key);
        expect_eval(&set.nodes[(i + 1) % 3], false, "MOVED ", 1, key, NULL);
    }

    since = now_ms();
    int slot = slot_of(key);
    struct node *old = cluster_owner(&set, slot);
    node_kill(old);
    struct node *now = cluster_await_failover(&set, slot, old);
    began("a replica is the master after a SIGKILL", since);
    node_start(&set, old);
    cluster_await_settled(&set);
    began("the old one follows it", since);
    assert_ptr_equal(cluster_replica_of(&set, now), old);

    since = now_ms();
    node_stop(now);
    assert_ptr_equal(cluster_await_failover(&set, slot, now), old);
    began("a replica is the master after a SIGSTOP", since);
    node_continue(now);
    cluster_await_settled(&set);

    since = now_ms();
    old = cluster_owner(&set, 0);
    now = cluster_replica_of(&set, old);
    cluster_failover(now, "");
    assert_ptr_equal(cluster_await_failover(&set, 0, old), now);
    began("a replica is the master by hand", since);
    cluster_await_settled(&set);
    deployment_end(&set);
}

static void slots_on_their_way(void **state)
{
    struct deployment set;
    (void)state;
    cluster_start(&set, &(struct deployment_options){.replicas = -1});
    struct node *from = &set.nodes[0], *to = &set.nodes[1];
    char tag[64], here[80], there[80], none[80];
    cluster_key_at(&set, from, "t", 0, tag);
    snprintf(here, sizeof here, "here{%s}", tag);
    snprintf(there, sizeof there, "there{%s}", tag);
    snprintf(none, sizeof none, "none{%s}", tag);
    node_do(from, "SET %s 1", here);
    node_do(from, "SET %s 1 PX 600000", there);

    struct move move = cluster_move_begin(&set, slot_of(tag), to);
    cluster_move_key(&move, there);
    expect_eval(from, false, "", 1, here, NULL);
    expect_eval(from, false, "ASK ", 1, there, NULL);
    expect_eval(from, false, "ASK ", 1, none, NULL);
    expect_eval(from, false, "TRYAGAIN ", 2, here, there);
    expect_eval(to, false, "MOVED ", 1, there, NULL);
    expect_eval(to, true, "", 1, there, NULL);
    expect_eval(to, true, "TRYAGAIN ", 2, there, none);
    assert_int_equal(cluster_move_keys(&move), 1);
    cluster_move_finish(&move);
    cluster_await_agreed(&set);
    assert_ptr_equal(cluster_owner_of(&set, tag), to);
    expect_eval(from, false, "MOVED ", 1, here, NULL);
    expect_eval(to, false, "", 2, here, there);
    assert_true(node_integer(to, "PTTL %s", there) > 0);

    move = cluster_move_begin(&set, slot_of(tag), from);
    cluster_move_give_up(&move);
    expect_eval(to, false, "", 1, none, NULL);
    int64_t since = now_ms();
    for (int i = 0; i < 100; i++)
        cluster_move(&set, i, to);
    began("100 slots moved", since);
    cluster_await_settled(&set);
    deployment_end(&set);
}

static void nodes_come_and_go(void **state)
{
    struct deployment set;
    (void)state;
    cluster_start(&set,
                  &(struct deployment_options){.masters = 3, .replicas = -1, .password = "secret"});
    int64_t since = now_ms();
    struct node *more = cluster_add(&set, NULL);
    struct node *replica = cluster_add(&set, more);
    began("a master and its replica have joined", since);
    char key[64];
    cluster_key_at(&set, &set.nodes[2], "k", 0, key);
    node_do(&set.nodes[2], "SET %s 1", key);
    cluster_move(&set, slot_of(key), more);
    cluster_await_settled(&set);
    assert_ptr_equal(cluster_owner_of(&set, key), more);
    assert_int_equal(node_integer(more, "EXISTS %s", key), 1);
    assert_ptr_equal(cluster_replica_of(&set, more), replica);
    since = now_ms();
    cluster_empty(&set, more);
    cluster_await_agreed(&set);
    assert_ptr_not_equal(cluster_owner_of(&set, key), more);
    cluster_remove(&set, replica);
    cluster_remove(&set, more);
    began("and have left", since);
    assert_int_equal(node_integer(cluster_owner_of(&set, key), "EXISTS %s", key), 1);
    deployment_end(&set);
}

/* ---- TLS ------------------------------------------------------------------------------------------- */

/* Whether openssl s_client accepts the certificate of the server on this port. */
static bool accepted(const struct authority *authority, int port)
{
    char command[400];
    snprintf(command, sizeof command,
             "openssl s_client -connect 127.0.0.1:%d -CAfile '%s' -verify_ip 127.0.0.1 "
             "-verify_return_error -brief </dev/null >/dev/null 2>&1",
             port, authority->ca);
    return system(command) == 0; /* NOLINT: no foreign input */
}

static void tls(void **state)
{
    struct deployment set;
    struct authority authority, stranger;
    char dir[] = "/tmp/snib-test-XXXXXX", command[64];
    (void)state;
    if (!server_has_tls()) {
        skip_because("this server was built without TLS");
    }
    assert_non_null(mkdtemp(dir));
    authority_make(&authority, dir, "ca");
    authority_make(&stranger, dir, "stranger");
    struct deployment_options options = {.tls = &authority, .password = "secret"};
    single_start(&set, &options);
    assert_true(accepted(&authority, set.nodes[0].port));
    assert_false(accepted(&stranger, set.nodes[0].port));
    struct certificate bad[] = {
        authority_certificate(&authority, "expired", "IP:127.0.0.1", CERTIFICATE_EXPIRED),
        authority_certificate(&authority, "elsewhere", "DNS:elsewhere.test", 0),
        certificate_self_signed(dir, "self", "IP:127.0.0.1")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        node_do(&set.nodes[0], "CONFIG SET tls-cert-file %s tls-key-file %s", bad[i].file,
                bad[i].key);
        assert_false(accepted(&authority, set.nodes[0].port));
    }
    deployment_end(&set);

    sentinels_start(&set, &options);
    struct node *old = sentinels_master(&set);
    assert_true(accepted(&authority, old->port));
    node_kill(old);
    sentinels_await_failover(&set, old);
    deployment_end(&set);

    cluster_start(&set, &options);
    old = cluster_owner(&set, 0);
    cluster_move(&set, 1, cluster_owner(&set, SLOTS - 1));
    node_kill(old);
    cluster_await_failover(&set, 0, old);
    assert_non_null(strstr(set.url, "rediss+cluster://:secret@127.0.0.1:"));
    deployment_end(&set);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0); /* NOLINT: no foreign input */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single),
        cmocka_unit_test(dies_with_the_test),
        cmocka_unit_test(sentinels),
        cmocka_unit_test(sentinels_with_passwords),
        cmocka_unit_test(cluster),
        cmocka_unit_test(slots_on_their_way),
        cmocka_unit_test(nodes_come_and_go),
        cmocka_unit_test(tls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
