/* canary.c - once a password has been used it is nowhere in the process's memory, whatever went
 * wrong: not in live memory, freed memory, stacks, errors, log records or statistics.
 *
 * The test stores it only in disguised form, and searches all memory that the process can write.
 * Code that needs the real one, such as the server's administrator, runs in a child process. */
#define _GNU_SOURCE
#include "../support/deployment.h"
#include "../support/disguise.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 20000, LETTERS = 40 };

static struct server server;

static struct disguised password;

static int64_t valid_ms;           /* 0: no login is renewed */
static int64_t patience_ms = 8000; /* less where no server answers */

/* A living client may log in at any time, with the password in memory meanwhile: search between two
 * logins.  A leak persists, or recurs with each login. */
static void expect_between_logins(size_t expected)
{
    size_t hits = disguise_search(&password);
    for (int tries = 0; hits != expected && tries < 100; tries++) {
        nap_us(7000 * (1 + tries % 9));
        hits = disguise_search(&password);
    }
    assert_int_equal(hits, expected);
}

/* Without a client it must be gone at once. */
static void expect_gone(void)
{
    assert_int_equal(disguise_search(&password), 0);
}

/* ---- Processes that know it -------------------------------------------------------------------- */

static void in_child(void (*work)(const char *canary))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char canary[65];
        disguise_reveal(&password, canary);
        work(canary);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static const char *password_file(void)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/password", server.dir);
    return path;
}

static void administer(const char *format, const char *canary)
{
    redisContext *admin = redisConnectUnix(server.socket);
    redisReply *reply = redisCommand(admin, format, canary);
    _exit(reply && reply->type != REDIS_REPLY_ERROR ? 0 : 1);
}

static void be_its_user(const char *canary)
{
    administer("ACL SETUSER app reset on >%s ~* &* +@all", canary);
}

static void be_no_user(const char *canary)
{
    (void)canary;
    administer("ACL SETUSER app reset on >other ~* &* +@all", NULL);
}

static void write_file(const char *canary)
{
    FILE *file = fopen(password_file(), "w");
    fprintf(file, "%s\n", canary);
    _exit(fclose(file));
}

static void write_long_file(const char *canary)
{
    FILE *file = fopen(password_file(), "w");
    for (int i = 0; i < 1000; i++)
        fprintf(file, "%s\n", canary);
    _exit(fclose(file));
}

static void write_file_with_zero(const char *canary)
{
    FILE *file = fopen(password_file(), "w");
    fwrite(canary, 1, strlen(canary) + 1, file);
    fputs("more", file);
    _exit(fclose(file));
}

/* ---- Ways to give it --------------------------------------------------------------------------- */

static bool fails;
static _Atomic int given; /* how often since a client was opened */

static int give(void *data, snib_credentials *out)
{
    (void)data;
    given++;
    disguise_reveal(&password, out->password);
    out->valid_ms = valid_ms;
    return fails;
}

enum way { BY_OPTION, BY_URL, BY_FILE, BY_FUNCTION, BY_QUEUE, WAYS };
static const char *const ways[] = {"option", "URL", "file", "function", "queue"};

/* A separate thread reads the file or calls the function; it may outlive the client, and wipes what
 * it got. */
static void expect_gone_after(enum way way)
{
    if (way == BY_FILE || way == BY_FUNCTION)
        expect_between_logins(0);
    else
        expect_gone();
}

/* The queue for credentials, if there is one. */
static snib_queue *questions;

static snib_client *open_by(enum way way, const char *url)
{
    static char text[512];
    snib_client_options options;
    snib_client *client = NULL;
    char canary[65] = "";
    given = 0;
    snib_client_options_init(&options, sizeof options);
    options.username = "app";
    options.lease_ms = 3000;
    options.patience_ms = options.connect_timeout_ms = options.reply_timeout_ms = patience_ms;
    if (way <= BY_URL)
        disguise_reveal(&password, canary);
    options.password = way == BY_OPTION ? canary : NULL;
    options.password_file = way == BY_FILE ? password_file() : NULL;
    options.credentials = way == BY_FUNCTION ? give : NULL;
    options.ask_credentials = way == BY_QUEUE;
    snprintf(text, sizeof text, "%s%c%s%s", url, strchr(url, '?') ? '&' : '?',
             way == BY_URL ? "password=" : "lease=3s", way == BY_URL ? canary : "");
    EXPECT(snib_client_open(text, &options, &client, err), SNIB_OK);
    explicit_bzero(canary, sizeof canary);
    explicit_bzero(text, sizeof text);
    questions = way == BY_QUEUE ? must_queue(client) : NULL;
    if (questions)
        EXPECT(snib_client_credentials(client, questions, err), SNIB_OK);
    return client;
}

static void answer_questions(snib_client *client)
{
    snib_event event = {.size = sizeof event};
    static snib_credentials answer;
    while (questions && snib_queue_drain(questions, &event, 1, NULL) == 1) {
        memset(&answer, 0, sizeof answer);
        answer.size = sizeof answer;
        give(NULL, &answer);
        EXPECT(snib_client_login(client, event.token, fails ? NULL : &answer, err), SNIB_OK);
        explicit_bzero(&answer, sizeof answer);
    }
}

/* Everything that the client reports is kept in memory until the search is over. */
static void use(snib_client *client, int32_t expected)
{
    snib_event *said = calloc(64, sizeof *said), done = {.size = sizeof done};
    snib_error error = {0};
    snib_queue *log = must_queue(client);
    snib_op *op = NULL;
    int64_t end = now_ms() + patient_ms(LONG_MS);
    EXPECT(snib_client_log(client, log, SNIB_LOG_INFO, err), SNIB_OK);
    snib_lock *lock = must_lock(client, "x");
    EXPECT(snib_lock_acquire_submit(lock, 0, -1, NULL, 0, &op, err), SNIB_OK);
    while (snib_op_wait(op, 20, &done, &error) == SNIB_AGAIN && now_ms() < end)
        answer_questions(client);
    print_message("          %s\n", done.text);
    assert_int_equal(done.code, expected);
    if (done.code == SNIB_OK && questions == NULL) {
        snib_lock_info_data info = {.size = sizeof info};
        uint64_t before = must_stats(client).reconnects;
        server_do(&server, "CLIENT KILL USER app");
        AWAIT(must_stats(client).reconnects > before, LONG_MS);
        EXPECT(snib_lock_info(lock, &info, err), SNIB_OK);
        int logins = given;
        if (valid_ms && logins > 0)
            AWAIT(given >= logins + 4, LONG_MS);
        snib_hold_release(done.hold, &error);
    }
    snib_hold_free(done.hold);
    (void)snib_queue_drain(log, said, 64, &error);
    snib_client_stats_data stats = must_stats(client);
    assert_true(stats.size > 0);
    snib_lock_free(lock);
    snib_queue_free(log);
    free(said); /* freed memory is searched, too */
}

/* A login may be in progress during the search: the password is in memory then. */
static void try_all(int32_t expected, bool over)
{
    for (enum way way = 0; way < WAYS; way++) {
        print_message("          %s:\n", ways[way]);
        snib_client *client = open_by(way, server.url);
        use(client, expected);
        if (over)
            expect_between_logins(way <= BY_URL); /* it may have to reconnect */
        snib_queue_free(questions);
        snib_client_free(client);
        expect_gone_after(way);
    }
}

/* ---- Success and failure ----------------------------------------------------------------------- */

static void search_finds(void **state)
{
    (void)state;
    char *copy = malloc(100);
    expect_gone();
    disguise_reveal(&password, copy + 9);
    assert_int_equal(disguise_search(&password), 1);
    copy[9 + DISGUISE_LEAST] = 0;
    assert_int_equal(disguise_search(&password), 1);
    explicit_bzero(copy, 100);
    free(copy);
    expect_gone();
}

static void good_logins(void **state)
{
    (void)state;
    in_child(be_its_user);
    in_child(write_file);
    valid_ms = 0;
    try_all(SNIB_OK, true);
    valid_ms = 200;
    try_all(SNIB_OK, true);
    valid_ms = 0;
}

static void refused_logins(void **state)
{
    (void)state;
    in_child(be_no_user);
    try_all(SNIB_EAUTH, true);
    in_child(be_its_user);
}

static void silent_server(void **state)
{
    (void)state;
    in_child(write_file);
    server_pause(&server);
    patience_ms = 400;
    try_all(SNIB_ECONNECT, false);
    patience_ms = 8000;
    server_continue(&server);
}

static void bad_files(void **state)
{
    (void)state;
    static void (*const bad[])(const char *) = {write_long_file, write_file_with_zero};
    for (size_t i = 0; i < 2; i++) {
        in_child(bad[i]);
        snib_client *client = open_by(BY_FILE, server.url);
        use(client, SNIB_ECREDENTIALS);
        expect_between_logins(0);
        snib_client_free(client);
        expect_gone_after(BY_FILE);
    }
    in_child(write_file);
}

static void functions_that_fail(void **state)
{
    (void)state;
    fails = true;
    for (enum way way = BY_FUNCTION; way < WAYS; way++) {
        snib_client *client = open_by(way, server.url);
        use(client, SNIB_ECREDENTIALS);
        expect_between_logins(0);
        snib_queue_free(questions);
        snib_client_free(client);
        expect_gone_after(way);
    }
    fails = false;
}

static void bad_urls(void **state)
{
    (void)state;
    static const char *const urls[] = {"redis://:%s@host:0",
                                       "redis://u:%s@",
                                       "redis://u:%s@a,b",
                                       "redis://u:%s@h?password=%s",
                                       "redis://u:%s@h?x=%s",
                                       "redis://u:%s@h/%s",
                                       "rediss://u:%s@h?tls_key_password=%s&lease=x"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        char canary[65], url[256];
        snib_error error = {0};
        snib_client *client = NULL;
        disguise_reveal(&password, canary);
        snprintf(url, sizeof url, urls[i], canary, canary);
        assert_int_not_equal(snib_client_open(url, NULL, &client, &error), SNIB_OK);
        explicit_bzero(canary, sizeof canary);
        explicit_bzero(url, sizeof url);
        expect_gone();
    }
}

/* A wrong password for the key file. */
static void key_passwords(void **state)
{
    (void)state;
    char canary[65], url[512];
    snib_client *client = NULL;
    if (!server.tls_port)
        skip_because("for live/canary_tls");
    disguise_reveal(&password, canary);
    snprintf(url, sizeof url, "%s&tls_cert=%s/client.crt&tls_key=%s/client.enc&tls_key_password=%s",
             server.url, server_certs(), server_certs(), canary);
    EXPECT(snib_client_open(url, NULL, &client, err), SNIB_OK);
    explicit_bzero(canary, sizeof canary);
    explicit_bzero(url, sizeof url);
    EXPECT(snib_client_ping(client, -1, err), SNIB_ETLS);
    expect_between_logins(1);
    snib_client_free(client);
    expect_gone();
}

/* A server without AUTH repeats the command, completely or truncated. */
static void server_that_repeats(void **state)
{
    (void)state;
    server_stop(&server);
    server_start(&server, "--rename-command", "AUTH", "", NULL);
    in_child(write_file);
    try_all(SNIB_EAUTH, true);
}

/* A peer that is no server: it echoes its input, or closes. */
static void serve_echo(int fd, bool echo)
{
    char bytes[4096];
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if the test fails */
    for (;;) {
        int peer = accept(fd, NULL, NULL);
        ssize_t n = recv(peer, bytes + 1, sizeof bytes - 1, 0);
        bytes[0] = '-';
        if (echo && n > 0)
            for (char *p = bytes + 1; p < bytes + n; p++)
                *p = *p == '\r' || *p == '\n' ? ' ' : *p;
        if (echo && n > 0)
            send(peer, bytes, (size_t)n + 1, MSG_NOSIGNAL);
        if (echo)
            send(peer, "\r\n", 2, MSG_NOSIGNAL);
        close(peer);
    }
}

static void peers_that_are_no_server(void **state)
{
    (void)state;
    for (int echo = 0; echo < 2; echo++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        char url[200];
        snprintf(address.sun_path, sizeof address.sun_path, "%s/peer", server.dir);
        unlink(address.sun_path);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
        assert_int_equal(listen(fd, 8), 0);
        pid_t pid = fork();
        if (pid == 0)
            serve_echo(fd, echo);
        close(fd);
        snprintf(url, sizeof url, "unix://%s", address.sun_path);
        patience_ms = echo ? 8000 : 400;
        for (enum way way = 0; way < WAYS; way++) {
            snib_client *client = open_by(way, url);
            use(client, echo ? SNIB_EAUTH : SNIB_ECONNECT);
            snib_queue_free(questions);
            snib_client_free(client);
            expect_gone_after(way);
        }
        patience_ms = 8000;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

/* ---- The password of the sentinels --------------------------------------------------------------- */

static struct deployment watched;

static void be_their_user(const char *canary)
{
    for (int nth = 0; nth < SENTINELS; nth++) {
        redisContext *admin = redisConnectUnix(sentinels_sentinel(&watched, nth)->socket);
        redisReply *reply =
            redisCommand(admin, "ACL SETUSER watcher reset on >%s &* +@all", canary);
        if (!reply || reply->type == REDIS_REPLY_ERROR)
            _exit(1);
    }
}

static snib_client *follow_by(enum way way)
{
    char canary[65], text[600];
    snib_client_options options;
    snib_client *client = NULL;
    snib_client_options_init(&options, sizeof options);
    options.patience_ms = options.connect_timeout_ms = options.reply_timeout_ms = LONG_MS;
    disguise_reveal(&password, canary);
    options.sentinel_password = way == BY_OPTION ? canary : NULL;
    snprintf(text, sizeof text, "%s?sentinel_username=watcher%s%s", watched.url,
             way == BY_URL ? "&sentinel_password=" : "", way == BY_URL ? canary : "");
    EXPECT(snib_client_open(text, &options, &client, err), SNIB_OK);
    explicit_bzero(canary, sizeof canary);
    explicit_bzero(text, sizeof text);
    return client;
}

static long long end_their_users(void)
{
    long long ended = 0;
    for (int nth = 0; nth < SENTINELS; nth++)
        ended += node_integer(sentinels_sentinel(&watched, nth), "CLIENT KILL USER watcher");
    return ended;
}

/* Refused, then accepted again and again. */
static void password_of_sentinels(void **state)
{
    (void)state;
    sentinels_start(&watched, NULL);
    for (int known = 0; known < 2; known++) {
        if (known)
            in_child(be_their_user);
        for (enum way way = BY_OPTION; way <= BY_URL; way++) {
            snib_client *client = follow_by(way);
            EXPECT(snib_client_ping(client, -1, err), known ? SNIB_OK : SNIB_EAUTH);
            long long ended = 0;
            AWAIT(!known || (ended += end_their_users()) >= 4, LONG_MS);
            expect_between_logins(1);
            snib_client_free(client);
            expect_gone();
        }
    }
    deployment_end(&watched);
}

/* ---- A core file --------------------------------------------------------------------------------- */

/* What a core file must have, or the search has not found what there was. */
static struct disguised decoy;

#define CHILD "SNIB_TEST_CHILD" /* "PASSWORD DECOY TLS_PORT SOCKET URL" */

/* Logins go wrong and well in every way. Then the process dies, with clients that are connected and idle: those that
 * read the password or ask for it each time do not keep it. */
static int die_after_logins(const char *how)
{
    char masked[2][2 * DISGUISE_MAX + 1], *kept = malloc(DISGUISE_MAX + 1);
    if (sscanf(how, "%128s %128s %d %95s %159s", masked[0], masked[1], &server.tls_port,
               server.socket, server.url) != 5)
        return 1;
    disguise_read(&password, masked[0]);
    disguise_read(&decoy, masked[1]);
    disguise_reveal(&decoy, kept);
    size_t n = (size_t)(strrchr(server.socket, '/') - server.socket);
    memcpy(server.dir, server.socket, n < sizeof server.dir ? n : 0);
    server.admin = redisConnectUnix(server.socket);
    bad_urls(NULL);
    in_child(be_no_user);
    in_child(write_file);
    try_all(SNIB_EAUTH, false);
    in_child(be_its_user);
    for (enum way way = 0; way < WAYS; way++) {
        snib_client *client = open_by(way, server.url);
        use(client, SNIB_OK);
        if (way <= BY_URL)
            snib_client_free(client);
    }
    abort();
}

/* Whether the system writes core files into the folder that a process is in. */
static bool core_is_a_file(void)
{
    char pattern[128] = "";
    struct rlimit limit;
    FILE *file = fopen("/proc/sys/kernel/core_pattern", "r");
    bool read = file && fgets(pattern, sizeof pattern, file);
    if (file)
        fclose(file);
    return read && strncmp(pattern, "core", 4) == 0 && !strchr(pattern, '/') &&
           getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_max == RLIM_INFINITY;
}

static pid_t start_child(void)
{
    char masked[2][2 * DISGUISE_MAX + 1], how[1024];
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    pid_t parent = getpid();
    disguise_write(&password, masked[0]);
    disguise_write(&decoy, masked[1]);
    snprintf(how, sizeof how, "%s %s %d %s %s", masked[0], masked[1], server.tls_port,
             server.socket, server.url);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && chdir(server.dir) == 0 && setrlimit(RLIMIT_CORE, &all) == 0 &&
        setenv(CHILD, how, 1) == 0)
        execl("/proc/self/exe", "canary", (char *)NULL);
    _exit(127);
}

static void core_file(void **state)
{
    (void)state;
    char path[400] = "";
    int status;
    if (!core_is_a_file())
        skip_because("this system writes no core files");
    disguise_make(&decoy, LETTERS);
    assert_int_equal(waitpid(start_child(), &status, 0) > 0, 1);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && WCOREDUMP(status));
    DIR *dir = opendir(server.dir);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strncmp(entry->d_name, "core", 4) == 0)
            snprintf(path, sizeof path, "%s/%s", server.dir, entry->d_name);
    closedir(dir);
    assert_int_equal(disguise_search_file(&decoy, path), 1);
    assert_int_equal(disguise_search_file(&password, path), 0);
}

static int world_new(void **state)
{
    (void)state;
    disguise_make(&password, LETTERS);
    server_start(&server, NULL);
    return 0;
}

static int world_free(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(search_finds),   cmocka_unit_test(good_logins),
        cmocka_unit_test(refused_logins), cmocka_unit_test(silent_server),
        cmocka_unit_test(bad_files),      cmocka_unit_test(functions_that_fail),
        cmocka_unit_test(bad_urls),       cmocka_unit_test(peers_that_are_no_server),
        cmocka_unit_test(key_passwords),  cmocka_unit_test(password_of_sentinels),
        cmocka_unit_test(core_file),      cmocka_unit_test(server_that_repeats),
    };
    if (getenv(CHILD))
        return die_after_logins(getenv(CHILD));
    return cmocka_run_group_tests(tests, world_new, world_free);
}
