/* take.c - see take.h. */
#include "take.h"
#include "signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>

#define CLOSE_MS 1000  /* for closing the clients */
#define URGENT_MS 1000 /* for the release, after a signal that asks to end */
#define SLICE_MS 100   /* between two looks for such a signal */

/* Tells which operation has ended. */
enum token { TOKEN_ACQUIRE = 1, TOKEN_COUNT, TOKEN_WAITING };

/* ---- Taking ---------------------------------------------------------------------------------- */

/* Start acquiring.  Returns -1, or an exit code after reporting the error. */
static int acquire(struct take *take)
{
    snib_error err;
    int result = snib_lock_acquire_submit(take->lock, 0, take->cli->wait_ms, take->queues[0],
                                          TOKEN_ACQUIRE, NULL, &err);
    return result == SNIB_OK ? -1 : cli_fail(take->cli, &err);
}

/* The same, but first set each number of permits if it was never set. */
static int begin(struct take *take)
{
    snib_error err;
    if (take->cli->kind != SNIB_PERMITS || take->counted_n == take->locks_n)
        return acquire(take);
    int result =
        snib_permits_count_submit(take->locks[take->counted_n++], SNIB_COUNT_INIT,
                                  take->cli->permits, take->queues[0], TOKEN_COUNT, NULL, &err);
    return result == SNIB_OK ? -1 : cli_fail(take->cli, &err);
}

/* Open the next server's client.  Returns 0, or an exit code after reporting the error. */
static int open_client(struct take *take, const char *url)
{
    snib_error err;
    int i = take->clients_n;
    int code = cli_open_at(take->cli, url, &take->clients[i]);
    if (code != 0)
        return code;
    if (snib_queue_new(take->clients[i], &take->queues[i], &err) != SNIB_OK) {
        snib_client_free(take->clients[i]);
        return cli_fail(take->cli, &err);
    }
    take->clients_n++; /* with its queue */
    if (take->cli->is_verbose)
        snib_client_log(take->clients[i], take->queues[i], SNIB_LOG_INFO, NULL);
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(take->set, EPOLL_CTL_ADD, snib_queue_fd(take->queues[i], NULL), &event) != 0)
        return cli_fail_errno(take->cli, "epoll");
    return 0;
}

/* Open the lock of a name.  The same. */
static int open_lock(struct take *take, snib_client *client, const char *name)
{
    int code = cli_open_lock(take->cli, client, take->cli->kind, name, &take->locks[take->locks_n]);
    take->locks_n += code == 0;
    return code;
}

/* The name on the server, or on each of several servers.  The same. */
static int open_all(struct take *take)
{
    const struct cli *cli = take->cli;
    bool is_quorum = cli->urls_n > 1;
    int code = is_quorum ? 0 : open_client(take, cli->url);
    for (int i = 0; code == 0 && is_quorum && i < cli->urls_n; i++) {
        code = open_client(take, cli->urls[i]);
        if (code == 0)
            code = open_lock(take, take->clients[i], cli->name);
    }
    for (int i = 0; code == 0 && !is_quorum && i < cli->names_n; i++)
        code = open_lock(take, take->clients[0], cli->names[i]);
    take->lock = take->locks[0];
    if (code == 0 && is_quorum)
        code = cli_open_quorum(cli, take->locks, take->locks_n, &take->lock);
    else if (code == 0 && take->locks_n > 1)
        code = cli_open_all(cli, take->locks, take->locks_n, &take->lock);
    return code;
}

/* A message that cannot be written must not end snib, and COMMAND or the hold with it: to a pipe that nobody reads any
 * more, or to a file that has reached its limit. */
static void block_signals_of_writes(void)
{
    sigset_t writes;
    sigemptyset(&writes);
    sigaddset(&writes, SIGPIPE);
    sigaddset(&writes, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &writes, NULL);
}

int take_open(struct take *take, const struct cli *cli)
{
    block_signals_of_writes();
    cli_tell_briefly();
    *take = (struct take){.cli = cli, .set = epoll_create1(EPOLL_CLOEXEC)};
    if (take->set < 0)
        return cli_fail_errno(cli, "epoll");
    int code = open_all(take);
    if (code != 0)
        return code;
    waiting_begin(&take->waiting, cli, take->clients, take->queues, TOKEN_WAITING);
    return begin(take);
}

int take_left_ms(const struct take *take)
{
    return waiting_left_ms(&take->waiting);
}

int take_fd(const struct take *take)
{
    return take->set;
}

/* An operation has ended.  Returns -1, or an exit code after reporting the error. */
static int on_done(struct take *take, const snib_event *event)
{
    snib_error err = {.code = event->code, .os_error = event->os_error, .server = event->server};
    if (event->code != SNIB_OK) {
        snprintf(err.text, sizeof err.text, "%.*s", (int)sizeof err.text - 1, event->text);
        return cli_fail(take->cli, &err);
    }
    if (event->token == TOKEN_COUNT)
        return begin(take);
    waiting_end(&take->waiting);
    take->hold = event->hold;
    take_check(take);
    return -1;
}

/* An event of the client i. */
static int on_event(struct take *take, int i, const snib_event *event)
{
    const struct cli *cli = take->cli;
    if (event->kind == SNIB_EVENT_LOG)
        cli_log(cli, cli->urls_n > 0 ? cli->urls[i] : cli->url, event);
    else if (event->kind == SNIB_EVENT_LOST)
        take_lose(take, snib_reason_text(event->reason));
    else if (event->kind == SNIB_EVENT_DONE && event->token == TOKEN_WAITING)
        waiting_hear(&take->waiting, event);
    else if (event->kind == SNIB_EVENT_DONE)
        return on_done(take, event);
    return -1;
}

int take_look(struct take *take)
{
    snib_event events[4];
    snib_error err;
    int code = -1;
    for (int i = 0; i < take->clients_n && code < 0; i++) {
        int n = snib_queue_drain(take->queues[i], events, sizeof events / sizeof events[0], &err);
        if (n < 0)
            return cli_fail(take->cli, &err);
        for (int k = 0; k < n; k++) {
            int ended = on_event(take, i, &events[k]);
            code = code < 0 ? ended : code;
        }
    }
    if (code < 0)
        waiting_look(&take->waiting);
    return code;
}

/* ---- Holding --------------------------------------------------------------------------------- */

/* Report the loss by this sentence, if it is not reported yet. */
static void lose(struct take *take, const char *text)
{
    if (!take->is_lost)
        cli_tell(take->cli, "lost", text);
    take->is_lost = true;
}

void take_lose(struct take *take, const char *why)
{
    char text[sizeof((snib_error *)0)->text + 64];
    snprintf(text, sizeof text, "lock lost%s: %s", take->is_used ? " while the command ran" : "",
             why);
    lose(take, text);
}

void take_lose_unused(struct take *take)
{
    lose(take, "the lock was lost before the command could start");
}

/* The same, as an error says it. */
static void lose_by(struct take *take, const snib_error *err)
{
    take_lose(take, err->reason ? snib_reason_text(err->reason) : err->text);
}

void take_check(struct take *take)
{
    snib_error err;
    if (take->hold && snib_hold_check(take->hold, &err) == SNIB_LOST)
        lose_by(take, &err);
}

void take_continued(struct take *take)
{
    snib_error err;
    int result = take->hold ? snib_hold_check(take->hold, &err) : SNIB_OK;
    if (result == SNIB_LOST && err.reason == SNIB_REASON_UNREACHABLE)
        take_lose(take, "snib was stopped, or the server unreachable, for too long");
    else if (result == SNIB_LOST)
        lose_by(take, &err);
}

static bool asks_to_end(int signals)
{
    int sig;
    while ((sig = signals_next(signals, 0)) != 0)
        if (sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT)
            return true;
    return false;
}

/* Wait until it is released, for as long as the client's patience, or no signal asks to end.  Returns the result. */
static int release(const struct take *take, int signals, snib_error *err)
{
    snib_event event = {.size = sizeof event};
    snib_op *op;
    int64_t end_ns = INT64_MAX;
    int result = snib_hold_release_submit(take->hold, NULL, 0, &op, err);
    if (result != SNIB_OK)
        return result;
    while ((result = snib_op_wait(op, SLICE_MS, &event, err)) == SNIB_AGAIN) {
        if (end_ns == INT64_MAX && asks_to_end(signals))
            end_ns = cli_now_ns() + URGENT_MS * MS_NS;
        if (cli_now_ns() < end_ns)
            continue;
        snib_op_free(op); /* which only ends this wait: take_close() gives it some more time */
        err->code = SNIB_EUNREACHABLE;
        snprintf(err->text, sizeof err->text,
                 "a signal came before the server had confirmed the release; the lock is free when "
                 "its lease has ended, if not before");
        return err->code;
    }
    if (result != SNIB_OK)
        return result;
    *err = (snib_error){.code = event.code,
                        .os_error = event.os_error,
                        .reason = event.reason,
                        .server = event.server};
    snprintf(err->text, sizeof err->text, "%.*s", (int)sizeof err->text - 1, event.text);
    return event.code;
}

int take_release(struct take *take, int signals, snib_error *err)
{
    int result = snib_hold_check(take->hold, err);
    if (result == SNIB_OK)
        result = release(take, signals, err);
    if (result == SNIB_EWRONGTYPE) /* another program has overwritten the lock */
        result = SNIB_LOST;
    if (result == SNIB_LOST)
        lose_by(take, err);
    return result;
}

static void *close_client(void *client)
{
    snib_client_close(client, CLOSE_MS, NULL);
    snib_client_free(client);
    return NULL;
}

/* All at a time: each server that is away takes the whole time. */
static void close_clients(const struct take *take)
{
    pthread_t threads[CLI_URLS_MAX];
    bool is_begun[CLI_URLS_MAX];
    for (int i = 0; i < take->clients_n; i++) {
        is_begun[i] = i + 1 < take->clients_n &&
                      pthread_create(&threads[i], NULL, close_client, take->clients[i]) == 0;
        if (!is_begun[i])
            close_client(take->clients[i]);
    }
    for (int i = 0; i < take->clients_n; i++)
        if (is_begun[i])
            pthread_join(threads[i], NULL);
}

void take_close(struct take *take)
{
    waiting_end(&take->waiting);
    take_look(take); /* the remaining log records */
    snib_hold_free(take->hold);
    if (take->lock != take->locks[0])
        snib_lock_free(take->lock);
    for (int i = 0; i < take->locks_n; i++)
        snib_lock_free(take->locks[i]);
    for (int i = 0; i < take->clients_n; i++)
        snib_queue_free(take->queues[i]);
    close_clients(take);
}
