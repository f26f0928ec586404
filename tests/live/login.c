/* login.c - a client's credentials: a file, a function or a queue is asked at each connect,
 * connections log in again before their credentials expire, and a client without valid credentials
 * reports that. */
#define _GNU_SOURCE
#include "../support/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONG_MS = 20000 };

static struct server server;

static int world_new(void **state)
{
    (void)state;
    server_start(&server, NULL);
    return 0;
}

static int world_free(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

static void user_with(const char *password)
{
    server_do(&server, "ACL SETUSER app reset on >%s ~* &* +@all", password);
}

static const char *password_file(void)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/password", server.dir);
    return path;
}

/* As secrets are rotated: another file under the same name. */
static void write_file(const char *text, size_t n)
{
    char fresh[180];
    snprintf(fresh, sizeof fresh, "%s.new", password_file());
    FILE *file = fopen(fresh, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(fresh, password_file()), 0);
}

static void write_password(const char *text)
{
    write_file(text, strlen(text));
}

static void default_options(snib_client_options *options)
{
    snib_client_options_init(options, sizeof *options);
    options->username = "app";
}

static snib_client *open_by(const snib_client_options *options)
{
    snib_client *client = NULL;
    EXPECT(snib_client_open(server.url, options, &client, err), SNIB_OK);
    return client;
}

static snib_client *open_with_patience(snib_client_options *options, int64_t patience_ms)
{
    options->patience_ms = patience_ms;
    options->connect_timeout_ms = patience_ms < LONG_MS ? patience_ms / 2 : 0;
    return open_by(options);
}

static snib_client *open_by_file(int64_t patience_ms)
{
    snib_client_options options;
    default_options(&options);
    options.password_file = password_file();
    return open_with_patience(&options, patience_ms);
}

static void end_connections(void)
{
    server_do(&server, "CLIENT KILL USER app");
}

/* Whether the server has a connection of the clients'. */
static bool is_connected(void)
{
    redisReply *list = server_command(&server, "CLIENT LIST");
    bool connected = strstr(list->str, " user=app ");
    freeReplyObject(list);
    return connected;
}

static long long refused_logins(void)
{
    redisReply *log = server_command(&server, "ACL LOG");
    long long n = 0;
    for (size_t i = 0; i < log->elements; i++)
        n += strcmp(log->element[i]->element[3]->str, "auth") == 0;
    freeReplyObject(log);
    return n;
}

/* ---- A file ---------------------------------------------------------------------------------- */

static void file_is_read_at_each_connect(void **state)
{
    (void)state;
    user_with("first");
    write_password("first\n");
    server_do(&server, "ACL LOG RESET");
    snib_client *client = open_by_file(LONG_MS);
    snib_lock *lock = must_lock(client, "x");
    snib_hold *hold = must_acquire(lock, 0);
    for (int i = 0; i < 3; i++) {
        char password[32];
        uint64_t before = must_stats(client).reconnects;
        snprintf(password, sizeof password, "renewed %d", i);
        user_with(password);
        strcat(password, "\r\n");
        write_password(password);
        end_connections();
        AWAIT(must_stats(client).reconnects > before, LONG_MS);
        EXPECT(snib_hold_check(hold, err), SNIB_OK);
    }
    must_release(hold);
    assert_int_equal(refused_logins(), 0);
    snib_lock_free(lock);
    snib_client_free(client);
}

/* The file is replaced some time after the server's user. */
/* A daemon leaves the working directory in which it has found its files. */
static void file_of_a_relative_path(void **state)
{
    (void)state;
    char former[4096], folder[4096], *name;
    snib_client_options options;
    default_options(&options);
    user_with("first");
    write_password("first");
    snprintf(folder, sizeof folder, "%s", password_file());
    name = strrchr(folder, '/');
    *name++ = 0;
    options.password_file = name;
    assert_non_null(getcwd(former, sizeof former));
    assert_int_equal(chdir(folder), 0);
    snib_client *client = open_by(&options);
    assert_int_equal(chdir("/"), 0);
    int code = snib_client_ping(client, LONG_MS, NULL);
    assert_int_equal(chdir(former), 0);
    assert_int_equal(code, SNIB_OK);
    snib_client_free(client);
}

static void file_that_comes_late(void **state)
{
    (void)state;
    user_with("first");
    write_password("first");
    snib_client *client = open_by_file(LONG_MS);
    snib_lock *lock = must_lock(client, "x");
    must_release(must_acquire(lock, 0));
    user_with("second");
    end_connections();
    snib_op *op = NULL;
    snib_event event = {.size = sizeof event};
    EXPECT(snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &op, err), SNIB_OK);
    EXPECT(snib_op_wait(op, 300, &event, err), SNIB_AGAIN);
    unlink(password_file());
    EXPECT(snib_op_wait(op, 300, &event, err), SNIB_AGAIN);
    write_password("second");
    event = must_end(op, LONG_MS);
    EXPECT(event.code, SNIB_OK);
    must_release(event.hold);
    snib_lock_free(lock);
    snib_client_free(client);
}

/* Whether a request ends without credentials, for that reason. */
static bool gets_none(snib_client *client, int32_t code, const char *says)
{
    snib_error error = {0};
    snib_hold *hold = NULL;
    snib_lock *lock = must_lock(client, "x");
    int32_t ended = snib_lock_acquire(lock, 0, -1, &hold, &error);
    print_message("          %s\n", error.text);
    assert_non_null(strstr(error.text, "mutex \"x\": "));
    snib_lock_free(lock);
    return ended == code && strstr(error.text, says) != NULL;
}

static void no_credentials(snib_client *client, int32_t code, const char *says)
{
    assert_true(gets_none(client, code, says));
    snib_client_free(client);
}

/* A client's patience may end before the reason is known, on a machine that stands still meanwhile:
 * so it gets more and more of it. */
static void in_time(bool (*attempt)(int64_t patience_ms))
{
    for (int64_t patience_ms = 300; !attempt(patience_ms); patience_ms *= 2)
        assert_true(patience_ms < LONG_MS);
}

static void files_that_are_none(void **state)
{
    (void)state;
    static char much[SNIB_PASSWORD_MAX];
    user_with("first");
    int64_t start = now_ms();
    unlink(password_file());
    no_credentials(open_by_file(600000), SNIB_ECREDENTIALS, "cannot be read: No such file");
    mkdir(password_file(), 0700);
    no_credentials(open_by_file(600000), SNIB_ECREDENTIALS, "is not a regular file");
    rmdir(password_file());
    mkfifo(password_file(), 0600);
    no_credentials(open_by_file(600000), SNIB_ECREDENTIALS, "is not a regular file");
    unlink(password_file());
    write_password("");
    no_credentials(open_by_file(600000), SNIB_ECREDENTIALS, "is empty");
    write_password("\n");
    no_credentials(open_by_file(600000), SNIB_ECREDENTIALS, "is empty");
    write_file("a\0b", 3);
    no_credentials(open_by_file(600000), SNIB_ECREDENTIALS, "has a zero byte");
    memset(much, 'x', sizeof much);
    write_file(much, sizeof much);
    no_credentials(open_by_file(600000), SNIB_ECREDENTIALS, "has more than 16382 bytes");
    memcpy(much + sizeof much - 2, "\r\n", 2); /* the longest one, and a line's end */
    write_file(much, sizeof much);
    no_credentials(open_by_file(600000), SNIB_EAUTH, "WRONGPASS");
    write_password("wrong");
    no_credentials(open_by_file(600000), SNIB_EAUTH, "WRONGPASS");
    assert_true(now_ms() - start < 60000);
}

static void environment(void **state)
{
    (void)state;
    snib_client *client = NULL;
    user_with("first");
    write_password("first");
    setenv("SNIB_URL", server.url, 1);
    setenv("SNIB_USERNAME", "app", 1);
    setenv("SNIB_PASSWORD_FILE", password_file(), 1);
    EXPECT(snib_client_open(NULL, NULL, &client, err), SNIB_OK);
    EXPECT(snib_client_ping(client, -1, err), SNIB_OK);
    snib_client_free(client);
    setenv("SNIB_PASSWORD", "first", 1);
    EXPECT(snib_client_open(NULL, NULL, &client, err), SNIB_EOPTION);
    unsetenv("SNIB_PASSWORD_FILE");
    EXPECT(snib_client_open(NULL, NULL, &client, err), SNIB_OK);
    EXPECT(snib_client_ping(client, -1, err), SNIB_OK);
    snib_client_free(client);
    unsetenv("SNIB_URL");
    unsetenv("SNIB_USERNAME");
    unsetenv("SNIB_PASSWORD");
}

/* ---- A function ------------------------------------------------------------------------------ */

static struct issuer {
    _Atomic int calls, inside;
    _Atomic int64_t valid_ms, sleep_ms;
    _Atomic bool fails, lies, leaves;
    pthread_t caller;
} issuer;

/* Each call gives a new password, and the previous one becomes invalid. */
static int issue(void *data, snib_credentials *out)
{
    struct issuer *me = data;
    int number = ++me->calls;
    assert_int_equal(++me->inside, 1);
    assert_false(pthread_equal(me->caller, pthread_self()));
    nap_us(me->sleep_ms * 1000);
    snprintf(out->why, sizeof out->why, "%s", me->fails ? "the authority is away" : "");
    snprintf(out->username, sizeof out->username, "app");
    snprintf(out->password, sizeof out->password, "token-%d", me->lies ? -1 : number);
    out->valid_ms = me->valid_ms;
    redisContext *admin = redisConnectUnix(server.socket);
    freeReplyObject(redisCommand(admin, "ACL SETUSER app reset on >token-%d ~* &* +@all", number));
    redisFree(admin);
    me->inside--;
    if (me->leaves)
        pthread_exit(NULL);
    return me->fails;
}

static void issuer_begin(int64_t valid_ms)
{
    memset(&issuer, 0, sizeof issuer);
    issuer.caller = pthread_self();
    issuer.valid_ms = valid_ms;
}

static snib_client *open_by_function(int64_t patience_ms)
{
    snib_client_options options;
    default_options(&options);
    options.username = NULL;
    options.credentials = issue;
    options.credentials_data = &issuer;
    return open_with_patience(&options, patience_ms);
}

static void function_is_asked_at_each_connect(void **state)
{
    (void)state;
    issuer_begin(0);
    snib_client *client = open_by_function(LONG_MS);
    snib_lock *lock = must_lock(client, "x");
    assert_int_equal(issuer.calls, 0); /* nothing is sent before the first operation */
    snib_hold *hold = must_acquire(lock, 0);
    int before = issuer.calls;
    assert_true(before >= 1);
    end_connections();
    AWAIT(must_stats(client).reconnects > 0, LONG_MS);
    assert_true(issuer.calls > before);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    snib_lock_free(lock);
    snib_client_free(client);
    AWAIT(!is_connected(), LONG_MS);
}

/* It may work again soon, so it is called again, as long as there is patience. */
static bool function_is_away(int64_t patience_ms)
{
    snib_client *client = open_by_function(patience_ms);
    issuer.calls = 0;
    bool away = gets_none(client, SNIB_ECREDENTIALS, "the authority is away");
    snib_client_free(client); /* waits for a call that is under way */
    return away && issuer.calls >= 2;
}

static void function_that_fails(void **state)
{
    (void)state;
    issuer_begin(0);
    issuer.fails = true;
    in_time(function_is_away);
    snib_client *client = open_by_function(LONG_MS);
    snib_lock *lock = must_lock(client, "x");
    snib_op *op = NULL;
    snib_event event = {.size = sizeof event};
    EXPECT(snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &op, err), SNIB_OK);
    EXPECT(snib_op_wait(op, 300, &event, err), SNIB_AGAIN);
    issuer.fails = false;
    event = must_end(op, LONG_MS);
    EXPECT(event.code, SNIB_OK);
    must_release(event.hold);
    snib_lock_free(lock);
    snib_client_free(client);
}

/* A function that does not return has failed. */
static bool function_leaves(int64_t patience_ms)
{
    issuer_begin(0);
    issuer.leaves = true;
    snib_client *client = open_by_function(patience_ms);
    bool left = gets_none(client, SNIB_ECREDENTIALS, "ended its thread");
    snib_client_free(client);
    return left && issuer.calls >= 2;
}

static void function_that_leaves(void **state)
{
    (void)state;
    in_time(function_leaves);
}

/* It needs more time than a client has patience. */
static bool function_is_slow(int64_t patience_ms)
{
    issuer_begin(0);
    issuer.sleep_ms = 3 * patience_ms;
    int64_t start = now_ms();
    snib_client *client = open_by_function(patience_ms);
    bool slow = gets_none(client, SNIB_ECREDENTIALS, "no answer in time");
    slow = slow && issuer.calls == 1 && now_ms() - start < 3 * patience_ms;
    snib_client_free(client); /* waits for the call */
    assert_int_equal(issuer.inside, 0);
    assert_true(issuer.calls == 0 || now_ms() - start >= 3 * patience_ms);
    return slow;
}

static void function_that_is_slow(void **state)
{
    (void)state;
    in_time(function_is_slow);
}

/* ---- Expiry ---------------------------------------------------------------------------------- */

/* The id of the client's command link, which is older than a pub/sub link that has not subscribed
 * yet; 0: none. */
static long long command_link(void)
{
    redisReply *list = server_command(&server, "CLIENT LIST");
    long long id = 0;
    for (char *line = strtok(list->str, "\n"); line; line = strtok(NULL, "\n"))
        if (id == 0 && strstr(line, "user=app") && strstr(line, " sub=0 "))
            id = strtoll(line + 3, NULL, 10);
    freeReplyObject(list);
    return id;
}

static void connections_log_in_anew(void **state)
{
    (void)state;
    snib_event event = {.size = sizeof event};
    issuer_begin(1500);
    server_do(&server, "ACL LOG RESET");
    snib_client *client = open_by_function(LONG_MS), *other = must_open(server.url);
    snib_lock *lock = must_lock(client, "x"), *theirs = must_lock(other, "y");
    snib_hold *hold = must_acquire(lock, 0), *held = must_acquire(theirs, 0);
    snib_op *op = NULL;
    EXPECT(snib_lock_acquire_submit(must_lock(client, "y"), 0, -1, NULL, 0, &op, err), SNIB_OK);
    AWAIT(server_channels(&server) > 0, LONG_MS);
    long long link = command_link(), logins = server_calls(&server, "auth");
    int64_t start = now_ms();
    AWAIT(server_calls(&server, "auth") >= logins + 6, LONG_MS);
    assert_true(now_ms() - start >= 3000); /* not in a tight loop */
    assert_int_equal(command_link(), link);
    assert_int_equal(must_stats(client).reconnects, 0);
    assert_int_equal(refused_logins(), 0);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    EXPECT(snib_op_wait(op, 0, &event, err), SNIB_AGAIN);
    must_release(held); /* noticed by a message, or by the check after the new subscription */
    event = must_end(op, LONG_MS);
    EXPECT(event.code, SNIB_OK);
    must_release(event.hold);
    end_connections();
    AWAIT(must_stats(client).reconnects > 0, LONG_MS);
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    must_release(hold);
    snib_client_free(client);
    snib_client_free(other);
}

/* A refused re-login has no effect but a log record, and is retried soon. */
static void renewed_login_is_refused(void **state)
{
    (void)state;
    bool told = false;
    issuer_begin(1000);
    snib_client *client = open_by_function(LONG_MS);
    snib_queue *queue = must_queue(client);
    EXPECT(snib_client_log(client, queue, SNIB_LOG_WARNING, err), SNIB_OK);
    snib_lock *lock = must_lock(client, "x");
    snib_hold *hold = must_acquire(lock, 0);
    issuer.lies = true;
    while (!told) {
        snib_event event = must_event(queue, LONG_MS);
        told = event.kind == SNIB_EVENT_LOG && strstr(event.text, "refused a renewed login");
        print_message("          %s\n", event.text);
        assert_null(strstr(event.text, "token-"));
    }
    EXPECT(snib_hold_check(hold, err), SNIB_OK);
    issuer.lies = false;
    int before = issuer.calls;
    AWAIT(issuer.calls > before, LONG_MS);
    issuer.fails = true;
    for (told = false; !told;)
        told = strstr(must_event(queue, LONG_MS).text, "the authority is away");
    issuer.fails = false;
    before = issuer.calls;
    AWAIT(issuer.calls >= before + 2, LONG_MS);
    assert_int_equal(must_stats(client).reconnects, 0);
    must_release(hold);
    snib_queue_free(queue);
    snib_lock_free(lock);
    snib_client_free(client);
}

/* ---- A queue --------------------------------------------------------------------------------- */

struct clerk {
    snib_client *client;
    snib_queue *queue;
    _Atomic bool stop, fails;
    _Atomic int answers;
};

static void *clerk_main(void *argument)
{
    struct clerk *clerk = argument;
    static snib_credentials answer;
    while (!clerk->stop) {
        snib_event event = {.size = sizeof event};
        if (snib_queue_wait(clerk->queue, &event, 1, 100, NULL) != 1)
            continue;
        assert_int_equal(event.kind, SNIB_EVENT_CREDENTIALS);
        memset(&answer, 0, sizeof answer);
        answer.size = sizeof answer;
        issue(&issuer, &answer);
        if (clerk->fails)
            snprintf(answer.why, sizeof answer.why, "the clerk is at lunch");
        clerk->answers++;
        EXPECT(snib_client_login(clerk->client, event.token + 7, &answer, err), SNIB_OK);
        EXPECT(snib_client_login(clerk->client, event.token, &answer, err), SNIB_OK);
        EXPECT(snib_client_login(clerk->client, event.token, NULL, err), SNIB_OK);
    }
    return NULL;
}

static snib_client *open_by_queue(int64_t patience_ms)
{
    snib_client_options options;
    default_options(&options);
    options.ask_credentials = 1;
    return open_with_patience(&options, patience_ms);
}

static bool queue_is_silent(int64_t patience_ms)
{
    snib_client *client = open_by_queue(patience_ms);
    bool silent = gets_none(client, SNIB_ECREDENTIALS, "no answer in time");
    snib_client_free(client);
    return silent;
}

static void queue_is_asked(void **state)
{
    (void)state;
    pthread_t thread;
    issuer_begin(1000);
    snib_client *client = open_by_queue(LONG_MS);
    struct clerk clerk = {.client = client, .queue = must_queue(client)};
    snib_lock *lock = must_lock(client, "x");
    snib_op *op = NULL;
    snib_event event = {.size = sizeof event};
    EXPECT(snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &op, err), SNIB_OK);
    EXPECT(snib_op_wait(op, 200, &event, err), SNIB_AGAIN); /* the question waits for a queue */
    EXPECT(snib_client_credentials(client, clerk.queue, err), SNIB_OK);
    assert_int_equal(pthread_create(&thread, NULL, clerk_main, &clerk), 0);
    event = must_end(op, LONG_MS);
    EXPECT(event.code, SNIB_OK);
    AWAIT(clerk.answers >= 4, LONG_MS); /* renewed */
    assert_int_equal(must_stats(client).reconnects, 0);
    EXPECT(snib_hold_check(event.hold, err), SNIB_OK);
    end_connections();
    AWAIT(must_stats(client).reconnects > 0, LONG_MS);
    must_release(event.hold);
    clerk.stop = true;
    pthread_join(thread, NULL);
    snib_queue_free(clerk.queue);
    snib_lock_free(lock);
    snib_client_free(client);
    in_time(queue_is_silent);
}

static bool clerk_is_away(int64_t patience_ms)
{
    pthread_t thread;
    issuer_begin(0);
    snib_client *client = open_by_queue(patience_ms);
    struct clerk clerk = {.client = client, .queue = must_queue(client), .fails = true};
    EXPECT(snib_client_credentials(client, clerk.queue, err), SNIB_OK);
    assert_int_equal(pthread_create(&thread, NULL, clerk_main, &clerk), 0);
    bool away = gets_none(client, SNIB_ECREDENTIALS, "the clerk is at lunch");
    clerk.stop = true;
    pthread_join(thread, NULL);
    snib_queue_free(clerk.queue);
    snib_client_free(client);
    return away;
}

static void queue_that_fails(void **state)
{
    (void)state;
    in_time(clerk_is_away);
}

static void bad_queues(void **state)
{
    (void)state;
    static snib_credentials answer;
    snib_client *asks = open_by_queue(300), *other = must_open(server.url);
    snib_queue *queue = must_queue(other);
    EXPECT(snib_client_credentials(asks, queue, err), SNIB_EINVAL);
    EXPECT(snib_client_credentials(asks, NULL, err), SNIB_EINVAL);
    EXPECT(snib_client_credentials(other, queue, err), SNIB_EINVAL);
    EXPECT(snib_client_credentials(NULL, queue, err), SNIB_EHANDLE);
    EXPECT(snib_client_login(other, 1, NULL, err), SNIB_EINVAL);
    EXPECT(snib_client_login(asks, 1, NULL, err), SNIB_OK);
    EXPECT(snib_client_login(asks, 1, &answer, err), SNIB_EINVAL);
    answer.size = sizeof answer;
    memset(answer.password, 'x', sizeof answer.password);
    EXPECT(snib_client_login(asks, 1, &answer, err), SNIB_EINVAL);
    snib_queue_free(queue);
    snib_client_free(asks);
    snib_client_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_is_read_at_each_connect),
        cmocka_unit_test(file_of_a_relative_path),
        cmocka_unit_test(file_that_comes_late),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(environment),
        cmocka_unit_test(function_is_asked_at_each_connect),
        cmocka_unit_test(function_that_fails),
        cmocka_unit_test(function_that_leaves),
        cmocka_unit_test(function_that_is_slow),
        cmocka_unit_test(connections_log_in_anew),
        cmocka_unit_test(renewed_login_is_refused),
        cmocka_unit_test(queue_is_asked),
        cmocka_unit_test(queue_that_fails),
        cmocka_unit_test(bad_queues),
    };
    return cmocka_run_group_tests(tests, world_new, world_free);
}
