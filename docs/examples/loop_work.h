/* loop_work.h - what is the same in every event loop: work under a lock that stops when the lock is lost.
 *
 * The loop calls work_begin() once, work_drain() when the descriptor is readable, and work_tick() every
 * 20 ms.  Nothing here blocks.  So that there is a loss to see, a hold is deleted after a few ticks, as an
 * operator may do it; the next one is given back.
 */
#include <snib.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* tokens, which come back in the events */
enum { ACQUIRE = 1, RELEASE = 2, DELETE = 3, TICK_MS = 20 };

static snib_client *client;
static snib_queue *queue;
static snib_lock *lock;
static snib_hold *hold; /* NULL, or snib_hold_check() fails: no work may be done */
static int ticks;
static bool deleted, finished;

static void must(int code, const snib_error *err)
{
    if (code >= 0)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static void work_ask(void)
{
    snib_error err;
    must(snib_lock_acquire_submit(lock, 0, -1, queue, ACQUIRE, NULL, &err), &err);
}

/* Start asking for the lock; returns the descriptor to poll. */
static int work_begin(void)
{
    snib_error err;
    snib_client_options options;
    snib_client_options_init(&options, sizeof options);
    options.lease_ms = 600; /* short, so that the deletion is noticed soon: at the next renewal */
    must(snib_client_open(NULL, &options, &client, &err), &err);
    must(snib_lock_new(client, SNIB_MUTEX, "loop", 4, NULL, &lock, &err), &err);
    must(snib_queue_new(client, &queue, &err), &err);
    work_ask();
    int fd = snib_queue_fd(queue, &err);
    must(fd, &err);
    return fd;
}

static void work_tick(void)
{
    snib_error err;
    if (!hold || snib_hold_check(hold, &err) != SNIB_OK)
        return; /* the event of the loss is still to come */
    ticks++;
    if (!deleted && ticks == 5) {
        must(snib_lock_force_release_submit(lock, queue, DELETE, NULL, &err), &err);
    } else if (deleted) {
        int code = snib_hold_release_submit(hold, queue, RELEASE, NULL, &err);
        must(code, &err);
        snib_hold_free(hold);
        hold = NULL;
        if (code != SNIB_OK) /* SNIB_LOST, just now: this is the result, and no event follows */
            work_ask();
    }
}

static void work_event(const snib_event *event)
{
    if (event->kind == SNIB_EVENT_LOST) {
        printf("stopped after %d ticks: %s\n", ticks, event->text);
        deleted = deleted || event->reason == SNIB_REASON_DELETED;
        snib_hold_free(hold);
        hold = NULL;
        work_ask();
    } else if (event->token == ACQUIRE) {
        must(event->code, &(snib_error){.text = "the lock cannot be acquired"});
        hold = event->hold;
        ticks = 0;
    } else if (event->token == RELEASE) {
        printf("given back: %s\n", snib_code_name(event->code));
        finished = true;
    }
}

/* Take what has arrived.  No event need have: a reply may bring none.  Returns false when the work is done. */
static bool work_drain(void)
{
    snib_error err;
    snib_event events[16];
    int n;
    do {
        n = snib_queue_drain(queue, events, 16, &err);
        must(n, &err);
        for (int i = 0; i < n; i++)
            work_event(&events[i]);
    } while (n > 0);
    return !finished;
}

/* After the loop has forgotten the descriptor, which belongs to the queue. */
static void work_end(void)
{
    snib_queue_free(queue);
    snib_lock_free(lock);
    snib_client_free(client);
}
