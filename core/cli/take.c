/* take.c - see take.h. */
#include "take.h"

#include <stdio.h>

#define CLOSE_MS 1000 /* for closing the client */

/* Tells which operation has ended. */
enum token { TOKEN_ACQUIRE = 1, TOKEN_COUNT, TOKEN_WAITING };

/* ---- Taking ---------------------------------------------------------------------------------- */

/* Start acquiring.  Returns -1, or an exit code after reporting the error. */
static int acquire(struct take *take)
{
    snib_error err;
    int result = snib_lock_acquire_submit(take->lock, 0, take->cli->wait_ms, take->queue,
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
                                  take->cli->permits, take->queue, TOKEN_COUNT, NULL, &err);
    return result == SNIB_OK ? -1 : cli_fail(take->cli, &err);
}

/* Returns 0, or an exit code after reporting the error. */
static int open_locks(struct take *take)
{
    const struct cli *cli = take->cli;
    int code = 0;
    while (code == 0 && take->locks_n < cli->names_n) {
        int i = take->locks_n;
        code = cli_open_lock(cli, take->client, cli->kind, cli->names[i], &take->locks[i]);
        take->locks_n += code == 0;
    }
    if (code != 0)
        return code;
    take->lock = take->locks[0];
    return take->locks_n > 1 ? cli_open_all(cli, take->locks, &take->lock) : 0;
}

int take_open(struct take *take, const struct cli *cli)
{
    snib_error err;
    *take = (struct take){.cli = cli};
    int code = cli_open_quietly(cli, &take->client);
    if (code == 0)
        code = open_locks(take);
    if (code != 0)
        return code;
    if (snib_queue_new(take->client, &take->queue, &err) != SNIB_OK)
        return cli_fail(cli, &err);
    if (cli->is_verbose)
        snib_client_log(take->client, take->queue, SNIB_LOG_INFO, NULL);
    waiting_begin(&take->waiting, cli, take->client, take->queue, TOKEN_WAITING);
    return begin(take);
}

int take_left_ms(const struct take *take)
{
    return waiting_left_ms(&take->waiting);
}

int take_fd(const struct take *take)
{
    return snib_queue_fd(take->queue, NULL);
}

/* An operation has ended.  Returns -1, or an exit code after reporting the error. */
static int on_done(struct take *take, const snib_event *event)
{
    snib_error err = {.code = event->code, .os_error = event->os_error};
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

int take_look(struct take *take)
{
    snib_event events[4];
    snib_error err;
    int n = snib_queue_drain(take->queue, events, sizeof events / sizeof events[0], &err);
    if (n < 0)
        return cli_fail(take->cli, &err);
    int code = -1;
    for (int i = 0; i < n; i++) {
        if (events[i].kind == SNIB_EVENT_LOG)
            cli_log(take->cli, &events[i]);
        else if (events[i].kind == SNIB_EVENT_LOST)
            take_lose(take, snib_reason_text(events[i].reason));
        else if (events[i].kind == SNIB_EVENT_DONE && events[i].token == TOKEN_WAITING)
            waiting_hear(&take->waiting, &events[i]);
        else if (events[i].kind == SNIB_EVENT_DONE)
            code = on_done(take, &events[i]);
    }
    if (code < 0)
        waiting_look(&take->waiting);
    return code;
}

/* ---- Holding --------------------------------------------------------------------------------- */

void take_lose(struct take *take, const char *why)
{
    char text[320];
    if (take->is_lost)
        return;
    take->is_lost = true;
    snprintf(text, sizeof text, "lock lost%s: %s",
             take->cli->command ? " while the command ran" : "", why);
    cli_tell(take->cli, "lost", text);
}

void take_check(struct take *take)
{
    snib_error err;
    if (take->hold && snib_hold_check(take->hold, &err) == SNIB_LOST)
        take_lose(take, err.text);
}

int take_release(struct take *take, snib_error *err)
{
    int result = snib_hold_check(take->hold, err);
    if (result == SNIB_OK)
        result = snib_hold_release(take->hold, err);
    if (result == SNIB_LOST)
        take_lose(take, err->text);
    return result;
}

void take_close(struct take *take)
{
    waiting_end(&take->waiting);
    if (take->queue)
        take_look(take); /* the remaining log records */
    snib_hold_free(take->hold);
    snib_queue_free(take->queue);
    if (take->lock != take->locks[0])
        snib_lock_free(take->lock);
    for (int i = 0; i < take->locks_n; i++)
        snib_lock_free(take->locks[i]);
    snib_client_close(take->client, CLOSE_MS, NULL);
    snib_client_free(take->client);
}
