/* login.c - passwords that pass through: where they are stored, when they are wiped, and when they
 * are requested again. */
#include "fed.h"

#include "driver/ahead.h"
#include "driver/login.h"
#include "net/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PASSWORD "Canary-4711"

static const struct snib__login passing = {
    .username = "app", .password = PASSWORD, .passing = true};

static bool has_password(const char *bytes, size_t n)
{
    return memmem(bytes, n, PASSWORD, strlen(PASSWORD)) != NULL;
}

static int next_reply(struct snib__conn *conn, struct snib__request *request)
{
    const struct snib__value *reply;
    uint32_t n;
    return snib__conn_next(conn, request, &reply, &n);
}

static void feed(struct snib__conn *conn, const char *bytes)
{
    char copy[1024];
    size_t n = strlen(bytes);
    memcpy(copy, bytes, n);
    snib__conn_mask(conn, copy, n);
    assert_int_equal(snib__resp_feed(conn->resp, copy, n), 0);
}

/* Bytes that leave a buffer are overwritten there, whatever moves meanwhile. */
static void output_is_wiped(void **state)
{
    static const char more[60] = "commands that follow";
    (void)state;
    for (size_t step = 1; step < 60; step++) {
        struct snib__conn conn;
        size_t pieces_n = 0;
        assert_int_equal(snib__conn_init(&conn, false), 0);
        assert_int_equal(snib__conn_begin(&conn, &passing, 5), 0);
        assert_true(has_password(conn.out.data, conn.out.len));
        while (snib__buf_size(&conn.out) > 0) {
            size_t n = snib__buf_size(&conn.out);
            snib__buf_consume(&conn.out, n < step ? n : step);
            if (pieces_n++ % 7 == 0 && pieces_n < 70)
                assert_int_equal(snib__buf_append(&conn.out, more, step), 0);
        }
        assert_false(has_password(conn.out.data, conn.out.cap));
        assert_false(conn.out.secret);
        snib__conn_free(&conn);
    }
}

static void copy_goes_with_the_handshake(void **state)
{
    (void)state;
    struct snib__conn conn;
    struct snib__request request;
    assert_int_equal(snib__conn_init(&conn, true), 0);
    assert_int_equal(snib__conn_begin(&conn, &passing, 5), 0);
    assert_string_equal(conn.password, PASSWORD);
    feed(&conn, "+OK\r\n+OK\r\n+PONG\r\n");
    assert_int_equal(next_reply(&conn, &request), 0);
    assert_int_equal(conn.state, SNIB__CONN_READY);
    assert_null(conn.password);
    snib__conn_reset(&conn);
    assert_int_equal(snib__conn_begin(&conn, &passing, 5), 0);
    snib__conn_reset(&conn);
    assert_null(conn.password);
    assert_false(has_password(conn.out.data, conn.out.cap));
    snib__conn_free(&conn);
}

static void second_login(void **state)
{
    (void)state;
    struct snib__conn conn;
    struct snib__request request;
    assert_int_equal(snib__conn_init(&conn, false), 0);
    assert_int_equal(snib__conn_begin(&conn, &passing, 5), 0);
    feed(&conn, "+OK\r\n+OK\r\n+PONG\r\n:17\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n");
    assert_int_equal(next_reply(&conn, &request), 0);
    assert_int_equal(conn.state, SNIB__CONN_READY);
    snib__buf_consume(&conn.out, snib__buf_size(&conn.out));
    assert_int_equal(snib__conn_relogin(&conn, &passing, 6), 0);
    assert_int_equal(conn.relogin, SNIB__RELOGIN_ASKED);
    feed(&conn, "-WRONGPASS no, it is not Canary-4711\r\n");
    assert_int_equal(next_reply(&conn, &request), 0);
    assert_int_equal(conn.state, SNIB__CONN_READY); /* it goes on */
    assert_int_equal(conn.relogin, SNIB__RELOGIN_REFUSED);
    assert_string_equal(conn.words, "WRONGPASS no, it is not ***********");
    assert_null(conn.password);
    snib__buf_consume(&conn.out, snib__buf_size(&conn.out));
    assert_false(has_password(conn.out.data, conn.out.cap));
    assert_int_equal(snib__conn_relogin(&conn, &passing, 7), 0);
    feed(&conn, "+OK\r\n");
    assert_int_equal(next_reply(&conn, &request), 0);
    assert_int_equal(conn.relogin, SNIB__RELOGIN_TAKEN);
    snib__conn_free(&conn);
}

/* A subscribed connection cannot log in again, as it takes no AUTH: it is made anew. */
static void listener_logs_in_anew(void **state)
{
    (void)state;
    struct snib__engine *engine = begin();
    engine->config.asks = true;
    acquire(engine, gate(engine, SNIB_MUTEX, "m"), 0);
    connect_link(engine);
    answer_own(engine);
    answer(engine, ":86400000\r\n"); /* held by another client */
    connect_pubsub(engine);
    struct snib__link *ear = &engine->home->links[SNIB__PUBSUB];
    assert_int_equal(snib__engine_relogin(engine, "app", PASSWORD, now), 2);
    assert_int_equal(conn_of(engine)->state, SNIB__CONN_READY);
    assert_int_equal(conn_of(engine)->relogin, SNIB__RELOGIN_ASKED);
    assert_int_equal(snib__engine_take_wish(engine, ear), SNIB__WISH_CLOSE);
    now += SECOND;
    snib__engine_tick(engine, now);
    assert_int_equal(snib__engine_take_wish(engine, ear), SNIB__WISH_CONNECT);
    snib__engine_link_up_as(engine, ear, "app", PASSWORD, now);
    assert_int_equal(ear->conn.state, SNIB__CONN_HANDSHAKE); /* counts, and needs nothing now */
    assert_int_equal(snib__engine_relogin(engine, "app", PASSWORD, now), 2);
    assert_int_equal(ear->conn.state, SNIB__CONN_HANDSHAKE);
    snib__engine_free(engine);
}

static bool shows(const char *bytes, size_t n, const char *word, size_t word_n)
{
    return memmem(bytes, n, word, word_n) != NULL;
}

/* A server that does not know AUTH repeats the password in its reply.  However that is split, no
 * reader sees it, not even after a part of itself, or twice; other words stay. */
static void repeated_password_is_masked(void **state)
{
    (void)state;
    static const char *const passwords[] = {
        PASSWORD,
        "Canary", /* the shortest that are masked */
        "abcabc12345",
    };
    for (size_t i = 0; i < COUNT(passwords); i++) {
        const char *password = passwords[i];
        const struct snib__login login = {.password = password, .passing = true};
        const size_t n = strlen(password);
        char answer[200], copy[sizeof answer];
        size_t all =
            (size_t)snprintf(answer, sizeof answer,
                             "-ERR unknown command 'AUTH', with args beginning with: "
                             "'C%s' 'Canal' '%.3s%s' '%s%s'\r\n$%zu\r\n%s\r\n",
                             password, password, password, password, password, n, password);
        size_t line = (size_t)(strchr(answer, '\n') - answer) + 1;
        size_t other = (size_t)(strstr(answer, "Canal") - answer);
        for (size_t cut = 1; cut < all; cut++) {
            struct snib__conn conn;
            memcpy(copy, answer, all + 1);
            assert_int_equal(snib__conn_init(&conn, false), 0);
            assert_int_equal(snib__conn_begin(&conn, &login, 5), 0);
            snib__conn_mask(&conn, copy, cut);
            snib__conn_mask(&conn, copy + cut, all - cut);
            assert_false(shows(copy, line, password, 5));
            assert_false(shows(copy, line, password + n - 5, 5));
            assert_true(shows(copy, line, "Canal", 5) || (cut > other && cut < other + 5));
            assert_true(shows(copy, line, "*'\r\n", 4));
            assert_string_equal(copy + line, answer + line); /* no error line, so different */
            snib__conn_free(&conn);
        }
    }
}

/* What frames an error stays as it is, whatever the password is: or the reader would take what follows for its rest. */
static void framing_is_not_masked(void **state)
{
    (void)state;
    static const char *const passwords[] = {"\nsecret1", "\r\nsecret", "d.\r\n-ERR", "-ERR no"};
    static const char answer[] = "-WRONGPASS disabled.\r\n-ERR no\r\n:1\r\n";
    const size_t all = strlen(answer);
    for (size_t i = 0; i < COUNT(passwords); i++) {
        const struct snib__login login = {.password = passwords[i], .passing = true};
        for (size_t cut = 1; cut < all; cut++) {
            struct snib__conn conn;
            char copy[sizeof answer];
            memcpy(copy, answer, sizeof answer);
            assert_int_equal(snib__conn_init(&conn, false), 0);
            assert_int_equal(snib__conn_begin(&conn, &login, 5), 0);
            snib__conn_mask(&conn, copy, cut);
            snib__conn_mask(&conn, copy + cut, all - cut);
            for (size_t at = 0; at < all; at++)
                if (at == 0 || answer[at - 1] == '\n' || strchr("\r\n", answer[at]))
                    assert_int_equal(copy[at], answer[at]);
            snib__conn_free(&conn);
        }
    }
}

/* ---- Questions --------------------------------------------------------------------------------- */

static void token_of_15_minutes(void **state)
{
    (void)state;
    static snib_credentials answer = {
        .size = sizeof answer, .valid_ms = 900000, .password = PASSWORD};
    struct snib__logins logins = {.source = SNIB__LOGIN_QUEUE, .username = "app"};
    const char *username, *password, *why;
    int os_error;
    snib__time before = snib__now();
    struct snib__question *one = snib__login_ask(&logins), *other = snib__login_ask(&logins);
    snib__time after = snib__now();
    assert_ptr_equal(one, other); /* one question at a time */
    assert_true(logins.untold);
    assert_int_equal(snib__login_open(&logins), 1);
    snib__login_answer(&logins, 7, &answer); /* for another question */
    assert_false(snib__login_done(one));
    snib__login_answer(&logins, 1, &answer);
    assert_true(snib__login_done(one));
    assert_true(snib__login_result(one, &username, &password, &why, &os_error));
    assert_string_equal(username, "app");
    assert_string_equal(password, PASSWORD);
    snib__login_used(&logins, one);
    assert_true(logins.renew_at >= before + 720000 * SNIB__MS);
    assert_true(logins.renew_at <= after + 720000 * SNIB__MS);
    snib__login_drop(&logins, &one);
    assert_null(logins.asking); /* kept only by its waiter */
    assert_true(snib__login_result(other, &username, &password, &why, &os_error));
    one = snib__login_ask(&logins);
    assert_ptr_not_equal(one, other);
    snib__login_drop(&logins, &other);
    answer.valid_ms = 60000; /* the earlier end counts */
    snib__login_answer(&logins, 2, &answer);
    snib__login_used(&logins, one);
    assert_true(logins.renew_at <= snib__now() + 48000 * SNIB__MS);
    snib__login_drop(&logins, &one);
    answer.valid_ms = INT64_MAX; /* for ever */
    logins.renew_at = 0;
    one = snib__login_ask(&logins);
    snib__login_answer(&logins, 3, &answer);
    snib__login_used(&logins, one);
    assert_int_equal(logins.renew_at, 0);
    snib__login_drop(&logins, &one);
    snib__logins_end(&logins);
}

/* A source that keeps a token to its end says each time that less is left.  It is not asked more and more often, until
 * it says 0 ms, which means that there is no end. */
static void token_near_its_end(void **state)
{
    (void)state;
    snib_credentials answer = {.size = sizeof answer, .password = PASSWORD};
    static const int64_t left_ms[] = {3000, 600, 20, 1};
    for (size_t i = 0; i < COUNT(left_ms); i++) {
        struct snib__logins logins = {.source = SNIB__LOGIN_QUEUE};
        struct snib__question *one = snib__login_ask(&logins);
        snib__time before = snib__now();
        answer.valid_ms = left_ms[i];
        snib__login_answer(&logins, 1, &answer);
        snib__login_used(&logins, one);
        if (left_ms[i] < 600)
            assert_true(logins.renew_at >= before + 500 * SNIB__MS);
        else
            assert_true(logins.renew_at <= before + (snib__time)left_ms[i] * SNIB__MS);
        snib__login_drop(&logins, &one);
        snib__logins_end(&logins);
    }
}

/* A password file that there was no descriptor for can be read the next time; one that is not there is the user's
 * mistake. */
static void file_without_a_descriptor(void **state)
{
    (void)state;
    struct snib__logins logins = {.source = SNIB__LOGIN_FILE, .file = "/nowhere/password"};
    const char *username, *password, *why;
    for (int no_descriptor = 0; no_descriptor < 2; no_descriptor++) {
        struct rlimit limit, one;
        int os_error, next = dup(0);
        close(next);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        one = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = limit.rlim_max};
        if (no_descriptor)
            assert_int_equal(setrlimit(RLIMIT_NOFILE, &one), 0);
        struct snib__question *question =
            snib__login_ask(&logins); /* its bell takes the last one */
        assert_non_null(question);
        while (!snib__login_done(question))
            sched_yield();
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_false(snib__login_result(question, &username, &password, &why, &os_error));
        assert_int_equal(os_error, no_descriptor ? EMFILE : 0);
        int bell = snib__login_bell(question);
        snib__login_drop(&logins, &question);
        while (fcntl(bell, F_GETFD) >= 0) /* its thread may be the last that has it */
            sched_yield();
    }
    snib__logins_end(&logins);
}

/* The stacks that a program wants for its own threads are too small to read a password file. */
static void small_stacks(void **state)
{
    (void)state;
    struct snib__logins logins = {.source = SNIB__LOGIN_FILE, .file = "/nowhere/password"};
    pthread_attr_t usual, small;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, (size_t)64 * 1024), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    struct snib__question *question = snib__login_ask(&logins);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_non_null(question);
    while (!snib__login_done(question))
        sched_yield();
    snib__login_drop(&logins, &question);
    snib__logins_end(&logins);
    pthread_attr_destroy(&small);
    pthread_attr_destroy(&usual);
}

/* An answer that comes when nobody waits any more serves the next who ask, as long as it is valid and fresh. */
static void late_answer_serves_the_next(void **state)
{
    (void)state;
    snib_credentials answer = {.size = sizeof answer, .password = PASSWORD};
    struct snib__logins logins = {.source = SNIB__LOGIN_QUEUE};
    const char *username, *password, *why;
    int os_error;
    struct snib__question *one = snib__login_ask(&logins), *other;
    snib__login_drop(&logins, &one);
    snib__login_answer(&logins, 1, &answer);
    one = snib__login_ask(&logins);
    other = snib__login_ask(&logins);
    assert_ptr_equal(one, other);
    assert_true(snib__login_result(one, &username, &password, &why, &os_error));
    assert_string_equal(password, PASSWORD);
    snib__login_drop(&logins, &one); /* used */
    snib__login_drop(&logins, &other);
    one = snib__login_ask(&logins);
    assert_false(snib__login_done(one));
    snib__login_drop(&logins, &one);
    snib__login_answer(&logins, 2, NULL); /* nor is a refusal lost */
    one = snib__login_ask(&logins);
    assert_false(snib__login_result(one, &username, &password, &why, &os_error));
    assert_non_null(strstr(why, "there are no credentials"));
    snib__login_drop(&logins, &one);
    for (uint64_t number = 3; number < 5; number++) { /* no longer fresh; no longer valid */
        one = snib__login_ask(&logins);
        assert_int_equal(snib__login_open(&logins), number);
        snib__login_drop(&logins, &one);
        answer.valid_ms = number == 4 ? 5000 : 0;
        snib__login_answer(&logins, number, &answer);
        atomic_fetch_add(&snib__ahead, (number == 4 ? 5000 : 10000) * SNIB__MS);
    }
    one = snib__login_ask(&logins);
    assert_int_equal(snib__login_open(&logins), 5);
    snib__login_drop(&logins, &one);
    snib__logins_end(&logins);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_is_wiped),
        cmocka_unit_test(copy_goes_with_the_handshake),
        cmocka_unit_test(second_login),
        cmocka_unit_test(listener_logs_in_anew),
        cmocka_unit_test(repeated_password_is_masked),
        cmocka_unit_test(framing_is_not_masked),
        cmocka_unit_test(token_of_15_minutes),
        cmocka_unit_test(token_near_its_end),
        cmocka_unit_test(file_without_a_descriptor),
        cmocka_unit_test(small_stacks),
        cmocka_unit_test(late_answer_serves_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
