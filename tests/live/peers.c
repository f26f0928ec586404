/* peers.c - the option debug among processes: orders of locks that two programs take differently are reported in both,
 * with the places of both; programs without mistakes hear nothing, and nothing depends on what lies in the server.
 *
 * Each process here is this program, executed again, with a client of its own: it does what it is told, line by line. */
#define _GNU_SOURCE /* pipe2() */
#define SNIB_DEBUG_PLACES
#include "../support/deployment.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROMPT_MS = 120000, LINE_CAP = 512 };

#define BOARD "snib_client:{orders}"

static struct server server;

static int start(void **state)
{
    (void)state;
    server_start(&server, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

/* ---- A process ------------------------------------------------------------------------------------- */

static snib_client *client;
static snib_queue *queue;

/* The line is part of what the tests expect. */
enum { HELD_LINE = __LINE__ + 5, TAKEN_LINE = __LINE__ + 6 };
static int nest(int32_t kind, const char *one, const char *two, snib_hold *holds[2])
{
    snib_lock *first = must_lock_kind(client, kind, one),
              *second = must_lock_kind(client, kind, two);
    int code = snib_lock_acquire(first, 0, PROMPT_MS, &holds[0], NULL);
    code = code ? code : snib_lock_acquire(second, 0, PROMPT_MS, &holds[1], NULL);
    snib_lock_free(first);
    snib_lock_free(second);
    return code;
}

/* The next record, as one line. */
static const char *record(void)
{
    snib_event event;
    do
        event = must_event(queue, PROMPT_MS);
    while (event.kind != SNIB_EVENT_LOG);
    static char text[sizeof event.text];
    memcpy(text, event.text, sizeof text);
    return text;
}

static void obey(const char *command)
{
    char verb[16], one[96], two[96];
    snib_hold *holds[2];
    int n = sscanf(command, "%15s %95s %95s", verb, one, two);
    if (n == 3 && (strcmp(verb, "nest") == 0 || strcmp(verb, "read") == 0)) {
        int code = nest(verb[0] == 'n' ? SNIB_MUTEX : SNIB_READ, one, two, holds);
        if (code == SNIB_OK) {
            must_release(holds[1]);
            must_release(holds[0]);
        }
        printf("%d\n", code);
    } else if (strcmp(verb, "record") == 0) {
        printf("%s\n", record());
    } else {
        printf("%d\n", (int)must_stats(client).debug_warnings);
    }
}

/* url, user or "", debug, identity */
static int be_process(char **argv)
{
    char line[LINE_CAP];
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.debug = atoi(argv[2]);
    options.identity = atoi(argv[3]);
    options.username = argv[1][0] ? argv[1] : NULL;
    options.password = argv[1][0] ? "secret" : NULL;
    alarm(600);
    setvbuf(stdout, NULL, _IOLBF, 0);
    EXPECT(snib_client_open(argv[0], &options, &client, err), SNIB_OK);
    queue = must_queue(client);
    EXPECT(snib_client_log(client, queue, argv[1][0] ? SNIB_LOG_INFO : SNIB_LOG_WARNING, err),
           SNIB_OK);
    while (fgets(line, sizeof line, stdin))
        obey(line);
    snib_queue_free(queue);
    snib_client_free(client);
    return 0;
}

/* ---- Its other end --------------------------------------------------------------------------------- */

struct process {
    pid_t pid;
    FILE *to, *from;
};

static struct process begin(const char *url, const char *user, int debug, int identity)
{
    int to[2], from[2];
    char words[2][8];
    snprintf(words[0], sizeof words[0], "%d", debug);
    snprintf(words[1], sizeof words[1], "%d", identity);
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    struct process process = {fork(), NULL, NULL};
    if (process.pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        execl("/proc/self/exe", "live_peers", "process", url, user, words[0], words[1],
              (char *)NULL);
        _exit(2);
    }
    assert_true(process.pid > 0);
    close(to[0]);
    close(from[1]);
    process.to = fdopen(to[1], "w");
    process.from = fdopen(from[0], "r");
    return process;
}

/* Its answer, without the end of the line. */
static const char *tell(struct process *process, const char *command)
{
    static char answers[4][LINE_CAP];
    static int next;
    char *answer = answers[next++ % 4];
    fprintf(process->to, "%s\n", command);
    fflush(process->to);
    if (!fgets(answer, LINE_CAP, process->from))
        fail_msg("no answer to %s", command);
    answer[strcspn(answer, "\n")] = 0;
    return answer;
}

static void must(struct process *process, const char *command)
{
    assert_string_equal(tell(process, command), "0");
}

static void expect_count(struct process *process, const char *want)
{
    assert_string_equal(tell(process, "count"), want);
}

static void end(struct process *process)
{
    int status;
    fclose(process->to);
    assert_int_equal(waitpid(process->pid, &status, 0), process->pid);
    assert_int_equal(status, 0);
    fclose(process->from);
}

/* What the place of an edge looks like in a warning: name, line, name, line, process. */
static void step(char *out, size_t cap, const char *one, const char *two, const struct process *of)
{
    char host[256] = "";
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    snprintf(out, cap,
             "\"%s\" (peers.c:%d) then \"%s\" (peers.c:%d) in live_peers (pid %d on %.32s)", one,
             HELD_LINE, two, TAKEN_LINE, (int)of->pid, host);
}

/* The warning of this process, in one record or in two, has both steps. */
static void expect_circle(struct process *process, const char *const steps[2])
{
    char text[2 * LINE_CAP];
    do { /* on a slow machine there may be others, such as of late renewals */
        snprintf(text, sizeof text, "%s", tell(process, "record"));
    } while (text[0] && !strstr(text, "debug: "));
    if (!strstr(text, "debug: lock order"))
        fail_msg("no warning of the order, but: %s", text);
    if (strstr(text, "lock order, 1 of 2: "))
        strcat(text, tell(process, "record"));
    for (int i = 0; i < 2; i++)
        if (!strstr(text, steps[i]))
            fail_msg("want %s\nhave %s", steps[i], text);
    assert_non_null(strstr(text, "in one order"));
}

static int notes(void)
{
    redisReply *reply = server_command(&server, "GET %s", BOARD);
    int n = 0;
    for (const char *at = reply->str; at && (at = strchr(at, '\n')); at++)
        n++;
    freeReplyObject(reply);
    return n;
}

/* ---- Mistakes -------------------------------------------------------------------------------------- */

/* One takes a then b, the other b then a: both are told of both. */
static void other_order_in(const char *url, const char *a, const char *b)
{
    char command[128], steps[2][LINE_CAP];
    struct process one = begin(url, "", 1, 0), two = begin(url, "", 1, 0);
    const char *const both[] = {steps[0], steps[1]};
    step(steps[0], sizeof steps[0], a, b, &one);
    step(steps[1], sizeof steps[1], b, a, &two);
    snprintf(command, sizeof command, "nest %s %s", a, b);
    must(&one, command);
    snprintf(command, sizeof command, "nest %s %s", b, a);
    must(&two, command);
    expect_circle(&one, both);
    expect_circle(&two, both);
    expect_count(&one, "1");
    expect_count(&two, "1");
    end(&one);
    end(&two);
}

static void other_order(void **state)
{
    (void)state;
    other_order_in(server.url, "a", "b");
}

/* Whatever closes the circle again later is known: both ends come back when the key has been deleted. */
static void told_once(void **state)
{
    (void)state;
    struct process one = begin(server.url, "", 1, 0), two = begin(server.url, "", 1, 0);
    must(&one, "nest o1 o2");
    must(&two, "nest o2 o1");
    tell(&one, "record");
    tell(&two, "record");
    for (int i = 0; i < 3; i++) {
        server_do(&server, "DEL %s", BOARD);
        AWAIT(notes() == 2, PROMPT_MS);
    }
    must(&one, "nest o2 o1"); /* now within one process, too */
    expect_count(&one, "1");
    expect_count(&two, "1");
    end(&one);
    end(&two);
}

/* Who is not there any more is told of: what it left comes to the others. */
static void brief(void **state)
{
    (void)state;
    char steps[2][LINE_CAP];
    const char *const both[] = {steps[0], steps[1]};
    struct process one = begin(server.url, "", 1, 0), two = begin(server.url, "", 1, 0);
    step(steps[0], sizeof steps[0], "q1", "q2", &one);
    step(steps[1], sizeof steps[1], "q2", "q1", &two);
    must(&one, "nest q1 q2");
    must(&two, "nest q2 q1");
    end(&two);
    expect_circle(&one, both);
    end(&one);
}

/* Three processes, no two of which disagree. */
static void circle_of_three(void **state)
{
    (void)state;
    struct process all[3];
    static const char *const commands[] = {"nest t1 t2", "nest t2 t3", "nest t3 t1"};
    for (int i = 0; i < 3; i++) {
        all[i] = begin(server.url, "", 1, 0);
        must(&all[i], commands[i]);
    }
    for (int i = 0; i < 3; i++) {
        assert_non_null(strstr(tell(&all[i], "record"), "debug: lock order"));
        expect_count(&all[i], "1");
    }
    for (int i = 0; i < 3; i++)
        end(&all[i]);
}

/* A cluster has several nodes, and the locks are at different ones. */
static void in_a_cluster(void **state)
{
    (void)state;
    static struct deployment cluster;
    cluster_start(&cluster, NULL);
    cluster_await_settled(&cluster);
    other_order_in(cluster.url, "a", "b");
    other_order_in(cluster.url, "c", "d");
    deployment_end(&cluster);
}

/* ---- No mistakes ----------------------------------------------------------------------------------- */

/* One order; readers only; other databases.  A real mistake at the end shows that all was heard. */
static void right_order(void **state)
{
    (void)state;
    char other[256];
    const char *query = strchr(server.url, '?');
    snprintf(other, sizeof other, "%s%sdb=1", server.url, query ? "&" : "?");
    struct process one = begin(server.url, "", 1, 0), two = begin(server.url, "", 1, 0),
                   elsewhere = begin(other, "", 1, 0);
    must(&one, "nest r1 r2");
    must(&two, "nest r1 r2");
    must(&one, "read r3 r4");
    must(&two, "read r4 r3");
    must(&elsewhere, "nest r2 r1");
    must(&one, "nest r5 r6");
    must(&two, "nest r6 r5");
    assert_non_null(strstr(tell(&one, "record"), "\"r5\""));
    assert_non_null(strstr(tell(&two, "record"), "\"r5\""));
    AWAIT((server_do(&server, "SELECT 1"), server_integer(&server, "EXISTS %s", BOARD)) == 1,
          PROMPT_MS);
    server_do(&server, "SELECT 0");
    expect_count(&one, "1");
    expect_count(&two, "1");
    expect_count(&elsewhere, "0");
    end(&one);
    end(&two);
    end(&elsewhere);
}

/* Nothing is told without the option, without a lock taken under another, or of who wants to be unknown. */
static void nothing_to_tell(void **state)
{
    (void)state;
    server_do(&server, "FLUSHALL");
    struct process off = begin(server.url, "", -1, 0), idle = begin(server.url, "", 1, 0),
                   unknown = begin(server.url, "", 1, -1), one;
    must(&unknown, "nest n2 n1");
    must(&off, "nest n1 n2");
    must(&off, "nest n2 n1");
    AWAIT(server_calls(&server, "ping") >= 0, 1);
    one = begin(server.url, "", 1, 0);
    must(&one, "nest n1 n2");
    AWAIT(server_integer(&server, "EXISTS %s", BOARD) == 1, PROMPT_MS);
    expect_count(&off, "0");
    must(&unknown, "nest n1 n2");
    expect_count(&unknown, "1");
    end(&unknown);
    end(&off);
    end(&idle);
    assert_int_equal(notes(), 1);
    assert_in_range(server_integer(&server, "PTTL %s", BOARD), 1, 60000);
    end(&one);
}

/* The string is no lock: a list passes it over. */
static void not_a_lock(void **state)
{
    (void)state;
    static char buffer[65536];
    size_t used;
    uint32_t count, found = 0;
    uint64_t cursor = 0;
    struct process one = begin(server.url, "", 1, 0);
    server_do(&server, "DEL %s", BOARD);
    must(&one, "nest l1 l2");
    AWAIT(notes() == 1, PROMPT_MS);
    snib_client *other = must_open(server.url);
    do {
        EXPECT(snib_client_list(other, "", 0, &cursor, buffer, sizeof buffer, &used, &count, err),
               SNIB_OK);
        found += count;
    } while (cursor);
    assert_int_equal(found, 0);
    snib_client_free(other);
    end(&one);
}

/* ---- What may lie there ---------------------------------------------------------------------------- */

static long long server_second(void)
{
    redisReply *reply = server_command(&server, "TIME");
    long long second = atoll(reply->element[0]->str);
    freeReplyObject(reply);
    return second;
}

/* Texts of any kind are passed over; those in the right form are shown clean, and as long as they may be. */
static void anything(void **state)
{
    (void)state;
    char evil[4096], *board;
    struct process one = begin(server.url, "", 1, 0), two;
    server_do(&server, "DEL %s", BOARD);
    must(&one, "nest e1 e2");
    AWAIT(server_integer(&server, "EXISTS %s", BOARD) == 1, PROMPT_MS);
    end(&one);
    redisReply *reply = server_command(&server, "GET %s", BOARD);
    board = reply->str;
    char *word = strchr(board, ' ') + 1;
    long long soon = server_second() + 50;
    int n = snprintf(
        evil, sizeof evil,
        "\n\n \nx\n%lld\n%lld \n%lld x y\n99999999999999999999999999999999 %.34s a\tb\tc\td\te\n"
        "%lld %.34s \t\t\t\t\n%lld %.33sx \ta\tb\tc\td\te\n%lld %.34s "
        "\x07\td\t%0300d\t\x1b[2J\xff\te\rf\n%lld %.34s",
        soon, soon, soon, word, soon, word, soon, word, soon, word, 7, soon, word);
    server_do(&server, "SET %s %b", BOARD, evil, (size_t)n);
    freeReplyObject(reply);
    two = begin(server.url, "", 1, 0);
    must(&two, "nest e2 e1");
    const char *text = tell(&two, "record");
    assert_non_null(strstr(text, "debug: lock order"));
    for (const char *at = text; *at; at++)
        assert_true(*at >= ' ' && *at != 0x7f);
    assert_non_null(strstr(text, "\"e1\" (000"));
    assert_non_null(strstr(text, ") then \"e2\" (?[2J?) in e?f"));
    expect_count(&two, "1");
    server_do(&server, "DEL %s", BOARD); /* another type: refused, and asked again in a minute */
    server_do(&server, "RPUSH %s x", BOARD);
    must(&two, "nest e3 e4");
    must(&two, "nest e4 e3");
    expect_count(&two, "2");
    end(&two);
    server_do(&server, "DEL %s", BOARD);
}

/* However much lies there, no more than its limit is read, and the notes fit into it. */
static void full(void **state)
{
    (void)state;
    enum { FULL = 65536 };
    static char notes[FULL + 4096];
    size_t n = 0;
    long long soon = server_second() + 55;
    for (int i = 0; n < FULL; i++)
        n += (size_t)snprintf(notes + n, sizeof notes - n, "%lld w%016xw%016x \"%d\"\tb\tc\td\te\n",
                              soon, i, i + 1, i);
    server_do(&server, "SET %s %b", BOARD, notes, n);
    struct process one = begin(server.url, "", 1, 0);
    must(&one, "nest f1 f2");
    AWAIT(server_integer(&server, "PTTL %s", BOARD) > 0, PROMPT_MS);
    assert_in_range(server_integer(&server, "STRLEN %s", BOARD), FULL - 200, FULL);
    must(&one, "nest f2 f1");
    expect_count(&one, "1");
    end(&one);
    server_do(&server, "DEL %s", BOARD);
}

/* A user who may not touch the key is told once, and finds what is wrong in the process itself. */
static void refused(void **state)
{
    (void)state;
    server_do(&server, "DEL %s", BOARD);
    server_do(&server, "ACL SETUSER locker reset on >secret ~lock* &* +@all");
    struct process one = begin(server.url, "locker", 1, 0);
    must(&one, "nest lock1 lock2");
    while (!strstr(tell(&one, "record"),
                   "the server does not accept the orders of locks: they are compared "
                   "within this process only"))
        ;
    must(&one, "nest lock2 lock1");
    expect_count(&one, "1");
    end(&one);
    assert_int_equal(server_integer(&server, "EXISTS %s", BOARD), 0);
    /* The rights that identities need are enough. */
    server_do(&server, "ACL SETUSER locker ~snib_client:*");
    struct process two = begin(server.url, "locker", 1, 0);
    must(&two, "nest lock1 lock2");
    AWAIT(notes() == 1, PROMPT_MS);
    end(&two);
    server_do(&server, "ACL DELUSER locker");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_order),  cmocka_unit_test(told_once),
        cmocka_unit_test(brief),        cmocka_unit_test(circle_of_three),
        cmocka_unit_test(right_order),  cmocka_unit_test(nothing_to_tell),
        cmocka_unit_test(not_a_lock),   cmocka_unit_test(anything),
        cmocka_unit_test(full),         cmocka_unit_test(refused),
        cmocka_unit_test(in_a_cluster),
    };
    if (argc == 6 && strcmp(argv[1], "process") == 0)
        return be_process(argv + 2);
    return cmocka_run_group_tests(tests, start, stop);
}
