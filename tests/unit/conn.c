/* conn.c - one connection: the handshake, replies matched in order, the consequences of a lost
 * connection. */
#include "unit.h"

#include "net/conn.h"
#include "net/script.h"
#include "snib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sanitizers have their own allocators. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *__libc_realloc(void *old, size_t n);
static bool memory_is_short;
void *realloc(void *old, size_t n)
{
    return memory_is_short ? NULL : __libc_realloc(old, n);
}
#endif

static void feed(struct snib__conn *conn, const char *bytes)
{
    assert_int_equal(snib__resp_feed(conn->resp, bytes, strlen(bytes)), 0);
}

/* Feed a bulk string. */
static void feed_text(struct snib__conn *conn, const char *text)
{
    char head[16];
    snprintf(head, sizeof head, "$%d\r\n", (int)strlen(text));
    feed(conn, head);
    feed(conn, text);
    feed(conn, "\r\n");
}

/* Replies to a whole command handshake without AUTH and SELECT. */
static void answer_handshake(struct snib__conn *conn, const char *info)
{
    feed(conn, "-ERR unknown subcommand 'SETINFO'\r\n+PONG\r\n:17\r\n");
    feed_text(conn, info);
    feed_text(conn, "maxmemory_policy:volatile-ttl\r\n");
    feed_text(conn, "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n");
}

static int next_reply(struct snib__conn *conn, struct snib__request *request)
{
    const struct snib__value *reply;
    uint32_t n;
    return snib__conn_next(conn, request, &reply, &n);
}

static struct snib__conn make_ready_with(const char *info)
{
    struct snib__conn conn;
    struct snib__request request;
    assert_int_equal(snib__conn_init(&conn, false), 0);
    assert_int_equal(snib__conn_begin(&conn, &(struct snib__login){0}, 5), 0);
    assert_int_equal(conn.state, SNIB__CONN_HANDSHAKE);
    answer_handshake(&conn, info);
    assert_int_equal(next_reply(&conn, &request), 0);
    assert_int_equal(conn.state, SNIB__CONN_READY);
    return conn;
}

static struct snib__conn make_ready(void)
{
    return make_ready_with("redis_version:7.0.15\r\nrun_id:abcdef\r\nx\r\n");
}

static void handshake_learns(void **state)
{
    (void)state;
    struct snib__conn conn = make_ready();
    assert_int_equal(conn.server_id, 17);
    assert_string_equal(conn.run_id, "abcdef");
    assert_true(conn.evicts);
    assert_int_equal(snib__conn_oldest(&conn), SNIB__NEVER);
    snib__conn_free(&conn);
}

/* A server's abilities follow from its version. */
static void handshake_learns_abilities(void **state)
{
    (void)state;
    static const struct {
        const char *info;
        bool cluster, delifeq, delex;
    } servers[] = {
        {"redis_version:7.0.15\r\nredis_mode:standalone\r\n", false, false, false},
        {"redis_version:8.2.9\r\nredis_mode:cluster\r\n", true, false, false},
        {"redis_version:8.4.0\r\n", false, false, true},
        {"redis_version:10.0.0\r\n", false, false, true},
        {"redis_version:9223372036854775807.1\r\n", false, false, true},
        {"redis_version:-4294966596.0.0\r\n", false, false, false}, /* as an int, it would be 700 */
        {"redis_version:8.-4294967290.0\r\n", false, false, false},
        {"redis_version:7.2.4\r\nvalkey_version:9.-1.0\r\n", false, true, false},
        {"redis_version:7.2.4\r\nvalkey_version:-1.2000.0\r\n", false, false, false},
        {"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.3\r\n"
         "server_mode:cluster\r\n",
         true, false, false},
        {"redis_version:7.2.4\r\nvalkey_version:9.0.0\r\n", false, true, false},
        {"redis_version:\r\nvalkey_version:x\r\n", false, false, false},
        {"", false, false, false},
    };
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        struct snib__conn conn = make_ready_with(servers[i].info);
        assert_int_equal(conn.cluster, servers[i].cluster);
        assert_int_equal(conn.delifeq, servers[i].delifeq);
        assert_int_equal(conn.delex, servers[i].delex);
        snib__conn_free(&conn);
    }
}

static void handshake_fails(int expected, const struct snib__login *login, const char *answers)
{
    struct snib__conn conn;
    struct snib__request request;
    assert_int_equal(snib__conn_init(&conn, false), 0);
    assert_int_equal(snib__conn_begin(&conn, login, 5), 0);
    feed(&conn, answers);
    assert_int_equal(next_reply(&conn, &request), -1);
    assert_int_equal(conn.failure, expected);
    snib__conn_free(&conn);
}

static void handshake_tells_why_it_fails(void **state)
{
    (void)state;
    const struct snib__login none = {0}, both = {.username = "user", .password = "secret"},
                             alone = {.username = "user"}, database = {.database = 99};
    handshake_fails(SNIB_EAUTH, &both, "-WRONGPASS invalid username-password pair\r\n");
    handshake_fails(SNIB_EAUTH, &alone, "-WRONGPASS invalid username-password pair\r\n");
    handshake_fails(SNIB_EAUTH, &none, "-NOAUTH Authentication required.\r\n");
    handshake_fails(SNIB_EDATABASE, &database,
                    "+OK\r\n+PONG\r\n:17\r\n$0\r\n\r\n-ERR DB index is out of range\r\n");
    handshake_fails(SNIB_ELOADING, &none, "-LOADING Redis is loading the dataset in memory\r\n");
    handshake_fails(SNIB_EUNREACHABLE, &none, "-ERR max number of clients reached\r\n");
    /* it says so to whatever comes first, a login or what may be refused */
    handshake_fails(SNIB_EUNREACHABLE, &none,
                    "-DENIED Redis is running in protected mode because\r\n");
    handshake_fails(SNIB_EUNREACHABLE, &both, "-DENIED Running in protected mode because\r\n");
    handshake_fails(SNIB_EPROTOCOL, &none, "SSH-2.0-OpenSSH_9.2p1 Debian\r\n");
    handshake_fails(SNIB_EPERM, &database,
                    "+OK\r\n+PONG\r\n:17\r\n$0\r\n\r\n-NOPERM this user has no permissions\r\n");
    /* a replica cannot serve locks, whatever else it reports */
    handshake_fails(
        SNIB_EREADONLY, &none,
        "+OK\r\n+PONG\r\n:17\r\n$10\r\nrun_id:a\r\n\r\n$0\r\n\r\n$12\r\nrole:slave\r\n\r\n");
    /* a server that is loading its data answers CLIENT and INFO, and refuses PING */
    handshake_fails(SNIB_ELOADING, &none, "+OK\r\n-LOADING Redis is loading the dataset\r\n:1\r\n");
}

/* A script is loaded once per connection, before its first use, and its hash is compared. */
static void scripts_are_loaded_on_first_use(void **state)
{
    (void)state;
    struct snib__conn conn = make_ready();
    struct snib__request request;
    for (int i = 0; i < SNIB__SCRIPT_COUNT; i++) {
        assert_false(snib__conn_loaded(&conn, i));
        assert_int_equal(snib__conn_load(&conn, i, 20), 0);
        assert_true(snib__conn_loaded(&conn, i));
        feed_text(&conn, snib__script_texts[i].sha1);
        assert_int_equal(next_reply(&conn, &request), 0); /* not visible to the engine */
    }
    assert_int_equal(snib__conn_oldest(&conn), SNIB__NEVER);
    snib__conn_reset(&conn);
    assert_int_equal(snib__conn_begin(&conn, &(struct snib__login){0}, 30), 0);
    for (int i = 0; i < SNIB__SCRIPT_COUNT; i++)
        assert_false(snib__conn_loaded(&conn, i)); /* the next server may be a different one */
    snib__conn_free(&conn);
    /* with a different hash, what EVALSHA would run is unknown */
    conn = make_ready();
    assert_int_equal(snib__conn_load(&conn, 0, 20), 0);
    feed_text(&conn, "0000000000000000000000000000000000000000");
    assert_int_equal(next_reply(&conn, &request), -1);
    assert_int_equal(conn.failure, SNIB_EPROTOCOL);
    snib__conn_free(&conn);
    /* a user without the right to load may find the script loaded already */
    conn = make_ready();
    assert_int_equal(snib__conn_load(&conn, 0, 20), 0);
    feed(&conn, "-NOPERM this user has no permissions to run the 'script|load' command\r\n");
    assert_int_equal(next_reply(&conn, &request), 0);
    assert_int_equal(conn.state, SNIB__CONN_READY);
    assert_true(conn.no_load);
    snib__conn_free(&conn);
    /* a server without SCRIPT LOAD gets the scripts themselves; after any other error it is tried again */
    static const struct {
        const char *error;
        bool no_load;
    } errors[] = {{"-ERR unknown command 'SCRIPT'\r\n", true}, {"-ERR something else\r\n", false}};
    for (size_t i = 0; i < COUNT(errors); i++) {
        conn = make_ready();
        assert_int_equal(snib__conn_load(&conn, 0, 20), 0);
        feed(&conn, errors[i].error);
        assert_int_equal(next_reply(&conn, &request), 0);
        assert_int_equal(conn.no_load, errors[i].no_load);
        assert_int_equal(snib__conn_unknown(&conn, 0, 21), 0);
        assert_int_equal(snib__conn_spells(&conn, 0), errors[i].no_load);
        assert_false(snib__conn_spells(&conn, 0)); /* once */
        snib__conn_free(&conn);
    }
}

/* Only a field of its own line counts, and only one that fits. */
static void odd_information_is_passed_over(void **state)
{
    (void)state;
    char info[256], run[49];
    memset(run, 'r', 47);
    run[47] = 0;
    snprintf(info, sizeof info, "x_run_id:abc\r\nredis_version:7.0.15\r\n");
    struct snib__conn conn = make_ready_with(info);
    assert_string_equal(conn.run_id, "");
    snib__conn_free(&conn);
    snprintf(info, sizeof info, "run_id:%s\r\n", run); /* the longest */
    conn = make_ready_with(info);
    assert_string_equal(conn.run_id, run);
    snib__conn_free(&conn);
    snprintf(info, sizeof info, "run_id:%sr\r\nredis_mode:cluster\r\n", run);
    conn = make_ready_with(info);
    assert_string_equal(conn.run_id, "");
    assert_true(conn.cluster);
    snib__conn_free(&conn);
    assert_int_equal(snib__conn_replicas("role:master\r\n"), -1);
    assert_int_equal(snib__conn_replicas("connected_slaves:2\r\n"), 2);
    assert_int_equal(snib__conn_replicas("connected_slaves:2\r\nslave0:ip=a,state=online\r\n"
                                         "slave1:ip=b,state=wait_bgsave\r\n"),
                     1);
}

/* Before anything was asked, an error says why the server ends the connection. */
static void reply_to_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        int32_t failure;
    } replies[] = {{"-ERR max number of clients reached\r\n", SNIB_EUNREACHABLE},
                   {"-DENIED Redis is running in protected mode\r\n", SNIB_EUNREACHABLE},
                   {"-ERR something else\r\n", SNIB_ESERVER},
                   {"-NOSCRIPT No matching script\r\n", SNIB_EPROTOCOL},
                   {"+OK\r\n", SNIB_EPROTOCOL},
                   {"*0\r\n", SNIB_EPROTOCOL}};
    for (size_t i = 0; i < COUNT(replies); i++) {
        struct snib__conn conn = make_ready();
        struct snib__request request;
        feed(&conn, replies[i].reply);
        assert_int_equal(next_reply(&conn, &request), -1);
        assert_int_equal(conn.failure, replies[i].failure);
        assert_int_equal(conn.words[0] != 0, replies[i].reply[0] == '-');
        snib__conn_free(&conn);
    }
}

static void expect(struct snib__conn *conn, int kind, snib__time sent_at)
{
    assert_int_equal(
        snib__conn_expect(
            conn, &(struct snib__request){.kind = (int16_t)kind, .script = -1, .sent_at = sent_at}),
        0);
}

static void replies_come_in_order(void **state)
{
    (void)state;
    struct snib__conn conn = make_ready();
    struct snib__request request;
    for (int i = 1; i <= 1000; i++) /* the ring grows and wraps */
        expect(&conn, i, (snib__time)i);
    for (int i = 1; i <= 1000; i++) {
        assert_int_equal(snib__conn_oldest(&conn), i);
        feed(&conn, ":1\r\n");
        assert_int_equal(next_reply(&conn, &request), 1);
        assert_int_equal(request.kind, i);
        if (i % 3 == 0)
            expect(&conn, 1000 + i / 3, (snib__time)(1000 + i / 3));
    }
    /* an unsolicited reply ends the connection */
    while (conn.ring_count > 0) {
        feed(&conn, ":1\r\n");
        assert_int_equal(next_reply(&conn, &request), 1);
    }
    feed(&conn, ":1\r\n");
    assert_int_equal(next_reply(&conn, &request), -1);
    snib__conn_free(&conn);
}

static void lost_connection_hands_out_the_unanswered(void **state)
{
    (void)state;
    struct snib__conn conn = make_ready();
    struct snib__request request;
    expect(&conn, 1, 10);
    assert_int_equal(snib__conn_load(&conn, 0, 11), 0); /* the connection's own request */
    expect(&conn, 2, 12);
    feed(&conn, ":1\r\n$40\r\n"); /* half a reply is no reply */
    assert_int_equal(next_reply(&conn, &request), 1);
    snib__conn_reset(&conn);
    assert_true(snib__conn_orphan(&conn, &request));
    assert_int_equal(request.kind, 2);
    assert_false(snib__conn_orphan(&conn, &request));
    snib__conn_free(&conn);
}

static bool asks_to_kill(struct snib__conn *conn)
{
    assert_int_equal(snib__buf_append(&conn->out, "", 1), 0);
    conn->out.len--;
    return strstr(conn->out.data + conn->out.head, "$4\r\nKILL\r\n$2\r\nID\r\n$2\r\n17\r\n") !=
           NULL;
}

/* The next handshake kills the old connection at the server before anything else is sent, but only
 * if it is the same process: at another one the number belongs to a different connection. */
static void former_connection_is_killed(void **state)
{
    (void)state;
    static const struct {
        const char *info;
        bool kills;
    } servers[] = {
        {"run_id:abcdef\r\n", true},
        {"run_id:abcdee\r\n", false}, /* it was restarted */
        {"x:1\r\n", false},           /* unknown */
    };
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        struct snib__conn conn = make_ready();
        struct snib__request request;
        expect(&conn, 1, 10);
        snib__conn_reset(&conn);
        while (snib__conn_orphan(&conn, &request))
            ;
        assert_int_equal(snib__conn_begin(&conn, &(struct snib__login){0}, 20), 0);
        snib__conn_reset(&conn); /* a failed attempt forgets nothing */
        while (snib__conn_orphan(&conn, &request))
            ;
        assert_int_equal(snib__conn_begin(&conn, &(struct snib__login){0}, 21), 0);
        assert_string_equal(conn.run_id, ""); /* nothing is known of this server yet */
        assert_false(asks_to_kill(&conn));
        feed(&conn, "+OK\r\n+PONG\r\n:18\r\n");
        feed_text(&conn, servers[i].info);
        feed_text(&conn, "");
        feed_text(&conn, "role:master\r\n");
        assert_int_equal(next_reply(&conn, &request), 0);
        assert_int_equal(asks_to_kill(&conn), servers[i].kills);
        assert_int_equal(conn.state, servers[i].kills ? SNIB__CONN_HANDSHAKE : SNIB__CONN_READY);
        if (servers[i].kills)
            feed(&conn, ":1\r\n");
        assert_int_equal(next_reply(&conn, &request), 0);
        assert_int_equal(conn.state, SNIB__CONN_READY);
        assert_int_equal(conn.kill_id, 0); /* once */
        snib__conn_free(&conn);
    }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* A script that runs out of memory leaves nothing in the stream, and counts as not loaded. */
static void half_a_script_does_not_leave(void **state)
{
    (void)state;
    struct snib__conn conn = make_ready();
    snib__buf_consume(&conn.out, snib__buf_size(&conn.out));
    while (conn.out.cap - conn.out.len > 150) /* room for its first words */
        assert_int_equal(snib__buf_append(&conn.out, "x", 1), 0);
    size_t before = snib__buf_size(&conn.out);
    memory_is_short = true;
    int result = snib__conn_load(&conn, 0, 11);
    memory_is_short = false;
    assert_int_equal(result, -1);
    assert_int_equal(snib__buf_size(&conn.out), before);
    assert_int_equal(conn.ring_count, 0);
    assert_false(snib__conn_loaded(&conn, 0));
    snib__conn_free(&conn);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handshake_learns),
        cmocka_unit_test(handshake_learns_abilities),
        cmocka_unit_test(handshake_tells_why_it_fails),
        cmocka_unit_test(scripts_are_loaded_on_first_use),
        cmocka_unit_test(odd_information_is_passed_over),
        cmocka_unit_test(reply_to_nothing),
        cmocka_unit_test(replies_come_in_order),
        cmocka_unit_test(lost_connection_hands_out_the_unanswered),
        cmocka_unit_test(former_connection_is_killed),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(half_a_script_does_not_leave),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
