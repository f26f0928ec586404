/* frozen.c - processes are stopped around a reply and resume after the end of their leases: lost
 * holds stay lost, by every kind of query.
 *
 * A proxy holds back the replies to renewals; the processes report until when they are safe, which
 * no reply can change any more, and are stopped; the replies are let go, so that they wait in the
 * sockets, and the processes resume when they are no longer safe.  Whichever of their threads runs
 * first, the holds are lost.
 */
#define _GNU_SOURCE
#include "../support/support.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 50, LEASE_MS = 1000, SETTLE_MS = 30, PROMPT_MS = 20000 };

/* Commands to a process, and its answers.  SAY is answered when the replies that had come have been handled. */
enum task { HOLD = 'h', SAY = 's', JUDGE = 'j' };
struct answer {
    int64_t safe_until_ns;
    bool good,
        met; /* met: a renewal was in flight when it was stopped, and its link has survived */
    char text[120];
};

struct process {
    pid_t pid;
    int link;
};

/* ---- A process ------------------------------------------------------------------------------- */

struct holder {
    snib_client *client;
    snib_queue *queue;
    snib_lock *lock;
    snib_hold *hold;
    uint64_t connects;
};

/* Through a client with a longer patience than this test's lease. */
static void permit(const char *url, const char *name)
{
    snib_client *client = must_open(url);
    snib_lock *lock = must_lock_kind(client, SNIB_PERMITS, name);
    int64_t value, end = now_ms() + PROMPT_MS;
    int code;
    do /* which changes nothing if it was applied; on a slow machine its answer may come too late */
        code = snib_permits_count(lock, SNIB_COUNT_INIT, 1, &value, NULL);
    while ((code == SNIB_EUNREACHABLE || code == SNIB_ECONNECT) && now_ms() < end);
    assert_int_equal(code, SNIB_OK);
    snib_lock_free(lock);
    snib_client_free(client);
}

static snib_lock *lock_of(snib_client *client, const char *url, int id, int round)
{
    static const int32_t kinds[] = {SNIB_MUTEX,  SNIB_FAIR, SNIB_READ,  SNIB_WRITE,
                                    SNIB_FENCED, SNIB_SPIN, SNIB_PLAIN, SNIB_PERMITS};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    int kind = (id + round) % (KINDS + 1);
    char name[32];
    snib_lock *lock = NULL, *members[2];
    for (int i = 0; i < (kind == KINDS ? 2 : 1); i++) {
        snprintf(name, sizeof name, "frozen:%d:%d:%d", id, kind, i);
        lock = members[i] = must_lock_kind(client, kind == KINDS ? SNIB_MUTEX : kinds[kind], name);
    }
    if (kind < KINDS && kinds[kind] == SNIB_PERMITS)
        permit(url, name);
    if (kind == KINDS)
        EXPECT(snib_multi_new(members, 2, NULL, &lock, err), SNIB_OK);
    return lock;
}

static void hold(struct holder *holder, const char *url, int id, int round)
{
    holder->lock = lock_of(holder->client, url, id, round);
    snib_event event;
    int64_t end = now_ms() + PROMPT_MS;
    do { /* on a slow machine the client may be unreachable for longer than its patience */
        EXPECT(snib_lock_acquire_submit(holder->lock, 0, PROMPT_MS, holder->queue, 1, NULL, err),
               SNIB_OK);
        event = must_event(holder->queue, PROMPT_MS);
    } while ((event.code == SNIB_EUNREACHABLE || event.code == SNIB_ECONNECT) && now_ms() < end);
    assert_int_equal(event.kind, SNIB_EVENT_DONE);
    assert_int_equal(event.code, SNIB_OK);
    holder->hold = event.hold;
    holder->connects = must_stats(holder->client).connects;
}

/* Lost, by every kind of query; NULL if so. */
static const char *ask(snib_hold *hold, int32_t *reason)
{
    snib_error error;
    int32_t now = SNIB_REASON_NONE;
    if (snib_hold_state(hold, &now) != SNIB_HOLD_LOST)
        return "it is not lost";
    if (snib_hold_check(hold, &error) != SNIB_LOST)
        return "the check says that it is held";
    if (snib_hold_remaining_ms(hold) != 0)
        return "some time remains";
    if (*reason != SNIB_REASON_NONE && now != *reason)
        return "it is lost for another reason";
    *reason = now;
    return NULL;
}

static const char *judge(struct holder *holder, bool *met)
{
    int32_t reason = SNIB_REASON_NONE;
    snib_event event = {.kind = 0};
    const char *wrong = NULL;
    int told = 0;
    int64_t start = now_ms();
    while (!wrong &&
           (now_ms() - start < SETTLE_MS || (told == 0 && now_ms() - start < PROMPT_MS))) {
        wrong = ask(holder->hold, &reason);
        int n = snib_queue_drain(holder->queue, &event, 1, NULL);
        told += n;
        if (n && (event.kind != SNIB_EVENT_LOST || event.reason != reason))
            wrong = "the event says something else";
    }
    if (!wrong && told != 1)
        wrong = told ? "it is reported twice" : "it is not reported";
    snib_client_stats_data stats = must_stats(holder->client);
    *met = stats.renewal_commands > 0 && stats.connects == holder->connects;
    int code = snib_hold_release(holder->hold, NULL);
    if (!wrong && code != SNIB_LOST)
        wrong = "its release says that it was held";
    snib_hold_free(holder->hold);
    snib_lock_free(holder->lock);
    return wrong;
}

/* Whether the client has nothing left to do: no socket has bytes that were not read, and no other thread
 * runs.  What the proxy holds back is all that can still come.  If not, `why` says what is left. */
static bool is_quiet(int link, char why[400])
{
    char path[64], line[256] = "";
    int unread;
    struct stat about; /* files that whoever started this test has left open do not count */
    for (int fd = 3; fd < 256; fd++)
        if (fd != link && fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode) &&
            ioctl(fd, FIONREAD, &unread) == 0 && unread > 0) {
            snprintf(why, 400, "descriptor %d has %d bytes", fd, unread);
            return false;
        }
    DIR *tasks = opendir("/proc/self/task");
    bool quiet = tasks != NULL;
    for (const struct dirent *task; quiet && (task = readdir(tasks));) {
        if (task->d_name[0] == '.' || atoi(task->d_name) == (int)gettid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", task->d_name);
        FILE *file = fopen(path, "r");
        quiet = file && fgets(line, sizeof line, file) && strstr(line, ") S ");
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    if (!quiet)
        snprintf(why, 400, "a thread runs: %s", line);
    return quiet;
}

/* All processes ask at once: soon less often, to leave the processor to what they wait for. */
static void await_quiet(int link)
{
    char why[400] = "";
    int64_t end = now_ms() + patient_ms(PROMPT_MS);
    for (int tries = 0; !is_quiet(link, why); tries++) {
        if (now_ms() > end)
            fail_msg("the client is not quiet within %d ms: %s", PROMPT_MS, why);
        nap_us(tries < 50 ? 500 : 10000);
    }
}

static _Noreturn void process_main(int id, int link)
{
    struct holder holder = {0};
    char url[64];
    uint8_t task;
    alarm(300); /* in case the parent dies */
    ssize_t n = read(link, url, sizeof url);
    for (int round = 0; n > 0 && (n = read(link, &task, 1)) == 1; round += task == JUDGE) {
        struct answer answer = {.good = true};
        if (task == HOLD) {
            holder.client = must_open_lease(url, LEASE_MS);
            holder.queue = must_queue(holder.client);
            hold(&holder, url, id, round);
        } else if (task == SAY) {
            await_quiet(link);
            int64_t left_ms = snib_hold_remaining_ms(holder.hold);
            answer.safe_until_ns = now_ns() + (left_ms + 1) * 1000000;
        } else {
            const char *wrong = judge(&holder, &answer.met);
            answer.good = !wrong;
            snprintf(answer.text, sizeof answer.text, "process %d, round %d: %s", id, round,
                     wrong ? wrong : "");
            snib_queue_free(holder.queue);
            snib_client_free(holder.client);
        }
        n = write(link, &answer, sizeof answer);
    }
    _exit(0);
}

/* ---- The test -------------------------------------------------------------------------------- */

/* Call before any thread exists. */
static void processes_start(struct process *processes)
{
    for (int i = 0; i < PROCESSES; i++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        processes[i].pid = fork();
        assert_true(processes[i].pid >= 0);
        if (processes[i].pid == 0) {
            for (int j = 0; j < i; j++)
                close(processes[j].link);
            close(ends[0]);
            process_main(i, ends[1]);
        }
        close(ends[1]);
        processes[i].link = ends[0];
    }
}

static void processes_end(struct process *processes)
{
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        close(processes[i].link);
        assert_int_equal(waitpid(processes[i].pid, &status, 0), processes[i].pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void tell_all(struct process *processes, uint8_t task)
{
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(write(processes[i].link, &task, 1), 1);
}

static struct answer hear(struct process *process)
{
    struct answer answer;
    size_t got = 0;
    while (got < sizeof answer) {
        ssize_t n = read(process->link, (char *)&answer + got, sizeof answer - got);
        if (n <= 0)
            fail_msg("a process has ended");
        got += (size_t)n;
    }
    if (!answer.good)
        fail_msg("%s", answer.text);
    return answer;
}

static void signal_all(struct process *processes, int number)
{
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        kill(processes[i].pid, number);
        if (number == SIGSTOP)
            assert_int_equal(waitpid(processes[i].pid, &status, WUNTRACED), processes[i].pid);
    }
}

static void sleep_until(int64_t when_ns)
{
    for (int64_t now = now_ns(); now < when_ns; now = now_ns())
        nap_us((when_ns - now) / 1000 + 1);
}

/* When the last of them is no longer safe. */
static int64_t safe_until(struct process *processes)
{
    int64_t last_ns = 0;
    tell_all(processes, SAY);
    for (int i = 0; i < PROCESSES; i++) {
        int64_t until_ns = hear(&processes[i]).safe_until_ns;
        last_ns = until_ns > last_ns ? until_ns : last_ns;
    }
    return last_ns;
}

/* Returns how many processes had the reply in their socket when they resumed. */
static int stop_once(struct process *processes, struct proxy *proxy, int round)
{
    int met = 0;
    tell_all(processes, HOLD);
    for (int i = 0; i < PROCESSES; i++)
        hear(&processes[i]);
    proxy_stall(proxy, TO_CLIENT, true);
    int64_t last_ns = safe_until(processes);
    /* Renewals are sent after a third of the lease, and the link gives up a fifth later. */
    int64_t renewed_ns = last_ns - LEASE_MS * 1000000ll * 2 / 3;
    sleep_until(renewed_ns + (round % 4 ? 40 : random() % 150) * 1000000);
    last_ns = safe_until(processes);
    signal_all(processes, SIGSTOP);
    proxy_stall(proxy, TO_CLIENT, false);
    sleep_until(last_ns + 2000000);
    tell_all(processes, JUDGE);
    signal_all(processes, SIGCONT);
    for (int i = 0; i < PROCESSES; i++)
        met += hear(&processes[i]).met;
    proxy_forget(proxy);
    return met;
}

static void lost_is_final(void **state)
{
    (void)state;
    static struct process processes[PROCESSES];
    enum { STOPS = 1000, ENOUGH = STOPS / 4 };
    struct server server;
    int met = 0;
    processes_start(processes);
    server_start(&server, NULL);
    struct proxy *proxy = proxy_start(server.socket);
    for (int i = 0; i < PROCESSES; i++) {
        char url[64];
        snprintf(url, sizeof url, "%s", proxy_url(proxy));
        assert_int_equal(write(processes[i].link, url, sizeof url), sizeof url);
    }
    for (int round = 0; round < STOPS / PROCESSES; round++)
        met += stop_once(processes, proxy, round);
    print_message("          %d stops, in %d of them the answer was waiting\n", STOPS, met);
    processes_end(processes);
    proxy_stop(proxy);
    server_stop(&server);
    if (met < ENOUGH)
        skip_because("too few replies had to wait: the machine is too slow");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lost_is_final)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
