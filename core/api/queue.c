/* queue.c - events for one loop: results, losses, log records, and their descriptor.
 *
 * Operations and holds are themselves linked into the queue, so an event needs no memory and cannot
 * be dropped.  The queue's bell is rung when it becomes non-empty, and hushed when it is found empty.
 * The descriptor is a set of the bell and the sockets that the consumer reads itself: lead.h.
 */
#include "api/say.h"
#include "net/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct snib__queue *snib__queue_enter(snib_queue *handle, snib_error *err, int32_t *out_code)
{
    struct snib__queue *queue = snib__handle_get(SNIB__QUEUE, handle);
    if (queue && !snib__client_forked(queue->client))
        return queue;
    *out_code = queue ? snib__fail(err, SNIB_EFORKED, 0, NULL) : snib__fail_handle(err);
    if (queue)
        snib__handle_put(handle);
    return NULL;
}

/* The bell and the set; false with errno. */
static bool queue_equip(struct snib__queue *queue)
{
    queue->bell = snib__bell_new();
    if (!queue->bell)
        return false;
    queue->leader.set = snib__sys_set();
    int error = queue->leader.set < 0 ? errno : 0;
    if (!error)
        error = snib__sys_set_add(queue->leader.set, queue->bell->fd);
    if (!error)
        return true;
    if (queue->leader.set >= 0)
        snib__sys_close(queue->leader.set);
    snib__bell_put(queue->bell);
    errno = error;
    return false;
}

int snib_queue_new(snib_client *client_handle, snib_queue **out_queue, snib_error *err)
{
    int32_t code;
    if (!out_queue)
        return snib__fail_null(err, "out_queue");
    struct snib__client *client = snib__client_enter(client_handle, err, &code);
    if (!client)
        return code;
    struct snib__queue *queue = calloc(1, sizeof *queue);
    code = SNIB_OK;
    if (!queue) {
        code = snib__fail(err, SNIB_ENOMEM, 0, NULL);
    } else if (!queue_equip(queue)) {
        code = snib__fail_system(err, "create the queue", errno);
        free(queue);
    } else {
        queue->client = client;
        snib__client_ref(client);
        queue->handle = snib__handle_new(SNIB__QUEUE, queue);
        if (queue->handle) {
            *out_queue = queue->handle;
        } else {
            snib__queue_destroy(queue);
            code = snib__fail(err, SNIB_ENOMEM, 0, NULL);
        }
    }
    snib__handle_put(client_handle);
    return code;
}

static bool queue_empty(const struct snib__queue *queue)
{
    return !queue->head && !queue->lost && queue->log_n == 0 && queue->witnessed == 0 &&
           queue->question == 0;
}

static void queue_signal(struct snib__queue *queue, bool was_empty, struct snib__wakes *wakes)
{
    if (!was_empty || queue->draining)
        return;
    if (wakes)
        snib__wake_bell(&queue->client->driver, wakes, queue->bell);
    else
        snib__sys_ring(queue->bell->fd);
}

void snib__queue_push(struct snib__queue *queue, struct snib__op *op, struct snib__wakes *wakes)
{
    bool was_empty = queue_empty(queue);
    op->next = NULL;
    if (queue->tail)
        queue->tail->next = op;
    else
        queue->head = op;
    queue->tail = op;
    queue_signal(queue, was_empty, wakes);
}

void snib__queue_push_lost(struct snib__queue *queue, struct snib__hold *hold,
                           struct snib__wakes *wakes)
{
    bool was_empty = queue_empty(queue);
    hold->tell = SNIB__TELL_QUEUED;
    hold->next = NULL;
    hold->prev = queue->lost_tail;
    if (queue->lost_tail)
        queue->lost_tail->next = hold;
    else
        queue->lost = hold;
    queue->lost_tail = hold;
    queue_signal(queue, was_empty, wakes);
}

void snib__queue_drop_lost(struct snib__queue *queue, struct snib__hold *hold)
{
    if (hold->prev)
        hold->prev->next = hold->next;
    else
        queue->lost = hold->next;
    if (hold->next)
        hold->next->prev = hold->prev;
    else
        queue->lost_tail = hold->prev;
    hold->tell = 0;
    hold->prev = hold->next = NULL;
}

void snib__queue_push_log(struct snib__queue *queue, int32_t level, const char *text,
                          struct snib__wakes *wakes)
{
    bool was_empty = queue_empty(queue);
    if (queue->log_n == SNIB__LOG_MAX) {
        queue->log_head = (queue->log_head + 1) % SNIB__LOG_MAX;
        queue->log_n--;
        queue->log_dropped++;
    }
    struct snib__log_record *record =
        &queue->log[(queue->log_head + queue->log_n++) % SNIB__LOG_MAX];
    record->level = level;
    snib__text_show(record->text, sizeof record->text, text, strlen(text));
    queue_signal(queue, was_empty, wakes);
}

void snib__queue_push_question(struct snib__queue *queue, uint64_t number,
                               struct snib__wakes *wakes)
{
    bool was_empty = queue_empty(queue);
    queue->question = number;
    queue_signal(queue, was_empty, wakes);
}

/* ---- the consumer ---- */

static void queue_next_op(struct snib__queue *queue, snib_event *out, void **out_ended)
{
    struct snib__op *op = queue->head;
    queue->head = op->next;
    if (!queue->head)
        queue->tail = NULL;
    *out_ended = op->handle;
    op->handle = NULL;
    snib__op_finish(queue->client, op, out);
}

static void queue_next_lost(struct snib__queue *queue, snib_event *out)
{
    struct snib__hold *hold = NULL;
    uint64_t token;
    if (queue->witnessed > 0)
        hold = snib__witness_take(queue, &token);
    if (!hold) {
        hold = queue->lost;
        token = hold->token;
        snib__queue_drop_lost(queue, hold);
    }
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    out->kind = SNIB_EVENT_LOST;
    out->code = SNIB_LOST;
    out->reason = hold->reason;
    out->token = token;
    out->hold = hold->handle;
    struct snib__told told = {.code = SNIB_LOST, .reason = hold->reason};
    snib__say(out->text, sizeof out->text, queue->client, hold->gate, &told);
}

static void queue_next_log(struct snib__queue *queue, snib_event *out)
{
    struct snib__log_record *record = &queue->log[queue->log_head];
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    out->kind = SNIB_EVENT_LOG;
    out->reason = record->level;
    out->count = (int64_t)queue->log_dropped;
    snprintf(out->text, sizeof out->text, "%s", record->text);
    queue->log_dropped = 0;
    queue->log_head = (queue->log_head + 1) % SNIB__LOG_MAX;
    queue->log_n--;
}

static void queue_next_question(struct snib__queue *queue, snib_event *out)
{
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    out->kind = SNIB_EVENT_CREDENTIALS;
    out->token = queue->question;
    queue->question = 0;
}

#define QUEUE_ENDED_MAX 64

/* Copy events out; `ended` gets the handles of the operations that they end. */
static int queue_take(struct snib__queue *queue, snib_event *events, uint32_t cap, void **ended,
                      uint32_t *out_ended)
{
    uint32_t n = 0;
    *out_ended = 0;
    if (cap > QUEUE_ENDED_MAX)
        cap = QUEUE_ENDED_MAX;
    while (n < cap) {
        /* Losses have priority; a hold is here only after its grant was taken. */
        if (queue->witnessed > 0 || queue->lost) {
            queue_next_lost(queue, &events[n++]);
        } else if (queue->head) {
            queue_next_op(queue, &events[n++], &ended[*out_ended]);
            *out_ended += ended[*out_ended] != NULL;
        } else if (queue->log_n > 0) {
            queue_next_log(queue, &events[n++]);
        } else if (queue->question) {
            queue_next_question(queue, &events[n++]);
        } else {
            break;
        }
    }
    if (queue_empty(queue))
        snib__sys_hush(queue->bell->fd);
    return (int)n;
}

/* The consumer has come.  Replies that it reads itself fill the queue without a bell, which is
 * needed only for what it leaves behind. */
static int queue_serve(struct snib__queue *queue, snib_event *events, uint32_t cap, void **ended,
                       uint32_t *out_ended)
{
    struct snib__driver *driver = &queue->client->driver;
    bool leads = driver->leader == &queue->leader;
    if (leads) {
        snib__lead_read(driver, &queue->leader);
        queue->draining = true;
        snib__driver_deliver(driver);
        queue->draining = false;
    }
    int n = queue_take(queue, events, cap, ended, out_ended);
    if (leads && !queue_empty(queue))
        snib__sys_ring(queue->bell->fd);
    return n;
}

static int queue_drain(struct snib__queue *queue, snib_event *events, uint32_t cap, snib_error *err)
{
    void *ended[QUEUE_ENDED_MAX];
    uint32_t ended_n;
    snib__driver_enter(&queue->client->driver);
    int n = queue_serve(queue, events, cap, ended, &ended_n);
    snib__driver_leave(&queue->client->driver);
    for (uint32_t i = 0; i < ended_n; i++)
        if (snib__handle_take(SNIB__OP, ended[i]))
            snib__handle_put(ended[i]);
    (void)err;
    return n;
}

/* Claim or give up the role of the only consumer; false: another thread has it. */
static bool queue_claim(struct snib__queue *queue, bool claim)
{
    snib__driver_enter(&queue->client->driver);
    bool free = !queue->busy || !claim;
    if (free)
        queue->busy = claim;
    queue->leader.waits = true;
    snib__driver_leave(&queue->client->driver);
    return free;
}

static int queue_no_room(snib_error *err)
{
    return snib__fail(err, SNIB_EINVAL, 0,
                      "events is NULL or cap is 0, so there is no room for an event");
}

int snib_queue_drain(snib_queue *handle, snib_event *events, uint32_t cap, snib_error *err)
{
    int32_t code;
    struct snib__queue *queue = snib__queue_enter(handle, err, &code);
    if (!queue)
        return code;
    if (!events || cap == 0)
        code = queue_no_room(err);
    else if (queue->busy)
        code = snib__fail(err, SNIB_EINUSE, 0, NULL);
    else
        code = queue_drain(queue, events, cap, err);
    snib__handle_put(handle);
    return code;
}

/* Sleep until there may be an event; false: that time is reached, or a signal handler has run.  The
 * kernel's sleep clock stops during a suspend, so the time is checked once a second. */
static bool queue_sleep(struct snib__queue *queue, snib__time until)
{
    snib__time nap = 1000 * SNIB__MS;
    struct pollfd ready = {.fd = queue->leader.set, .events = POLLIN};
    for (;;) {
        snib__time now = snib__now();
        snib__time left = until > now ? until - now : 0;
        int n = snib__driver_poll(&ready, 1, left < nap ? left : nap);
        if (n != 0 || left <= nap)
            return n > 0;
    }
}

/* A reply may bring no event: only then does the sleep continue. */
static int queue_wait(struct snib__queue *queue, snib_event *events, uint32_t cap, snib__time until,
                      snib_error *err)
{
    bool again = true;
    for (;;) {
        int code = queue_drain(queue, events, cap, err);
        if (code != 0 || !again || queue->freed || atomic_exchange(&queue->woken, false))
            return code;
        again = queue_sleep(queue, until) && snib__now() < until;
    }
}

int snib_queue_wait(snib_queue *handle, snib_event *events, uint32_t cap, int64_t timeout_ms,
                    snib_error *err)
{
    snib__time timeout;
    int32_t code;
    struct snib__queue *queue = snib__queue_enter(handle, err, &code);
    if (!queue)
        return code;
    if (!events || cap == 0) {
        code = queue_no_room(err);
    } else if (!snib__wait_ns(timeout_ms, &timeout)) {
        code = snib__fail_wait(err, "timeout_ms");
    } else if (!queue_claim(queue, true)) {
        code = snib__fail(err, SNIB_EINUSE, 0, NULL);
    } else {
        code = queue_wait(queue, events, cap, snib__until(timeout), err);
        queue_claim(queue, false);
    }
    snib__handle_put(handle);
    return code;
}

int snib_queue_wake(snib_queue *handle)
{
    int32_t code;
    struct snib__queue *queue = snib__queue_enter(handle, NULL, &code);
    if (!queue)
        return code;
    queue->woken = true;
    snib__sys_ring(queue->bell->fd);
    snib__handle_put(handle);
    return SNIB_OK;
}

static int queue_set_cork(snib_queue *handle, bool corked)
{
    int32_t code;
    struct snib__queue *queue = snib__queue_enter(handle, NULL, &code);
    if (!queue)
        return code;
    snib__driver_enter(&queue->client->driver);
    queue->corked = corked;
    snib__driver_leave(&queue->client->driver); /* sends what was collected */
    snib__handle_put(handle);
    return SNIB_OK;
}

int snib_queue_cork(snib_queue *queue)
{
    return queue_set_cork(queue, true);
}

int snib_queue_uncork(snib_queue *queue)
{
    return queue_set_cork(queue, false);
}

int snib_queue_fd(snib_queue *handle, snib_error *err)
{
    int32_t code;
    struct snib__queue *queue = snib__queue_enter(handle, err, &code);
    if (!queue)
        return code;
    snib__driver_enter(&queue->client->driver);
    queue->leader.waits = true;
    snib__driver_leave(&queue->client->driver);
    int fd = queue->leader.set;
    snib__handle_put(handle);
    return fd;
}

/* Detach everything from the queue; its running operations are cancelled. */
static void queue_cut(struct snib__queue *queue)
{
    struct snib__client *client = queue->client;
    struct snib__engine *engine = client->driver.engine;
    snib__time now = snib__now();
    /* First, because a cancel lets others go on, and one may find a hold lost. */
    snib__engine_forget_sink(engine, queue);
    snib__witness_forget_queue(client, queue);
    for (struct snib__op *op = snib__engine_live(engine), *next; op; op = next) {
        next = op->live_next;
        if (op->sink == queue)
            snib__engine_cancel(engine, op, now);
    }
    if (client->log_queue == queue)
        client->log_queue = NULL;
    snib__client_unask(client, queue);
}

/* Discard losses, and undrained results: release what they granted, and end their handles.  Returns
 * whether there are more. */
static bool queue_forget(struct snib__queue *queue)
{
    struct snib__client *client = queue->client;
    void *ended[QUEUE_ENDED_MAX];
    uint32_t n = 0;
    snib__driver_enter(&client->driver);
    while (queue->lost)
        snib__queue_drop_lost(queue, queue->lost);
    while (queue->head && n < QUEUE_ENDED_MAX) {
        struct snib__op *op = queue->head;
        queue->head = op->next;
        ended[n++] = op->handle;
        op->handle = NULL;
        snib__op_discard(client, op);
    }
    bool more = queue->head != NULL;
    snib__driver_leave(&client->driver);
    while (n > 0)
        if (ended[--n] && snib__handle_take(SNIB__OP, ended[n]))
            snib__handle_put(ended[n]);
    return more;
}

void snib__queue_destroy(void *object)
{
    struct snib__queue *queue = object;
    struct snib__client *client = queue->client;
    if (snib__client_forked(client)) {
        snib__client_unref(client);
        return; /* as an inherited client, it stays in memory */
    }
    snib__driver_enter(&client->driver);
    snib__lead_leave(&client->driver, &queue->leader);
    queue_cut(queue);
    /* This pushes cancelled operations, and losses that are not told yet. */
    snib__driver_leave(&client->driver);
    while (queue_forget(queue))
        ;
    snib__sys_close(queue->leader.set);
    snib__bell_put(queue->bell);
    free(queue->log);
    free(queue);
    snib__client_unref(client);
}

void snib_queue_free(snib_queue *handle)
{
    struct snib__queue *queue = snib__handle_take(SNIB__QUEUE, handle);
    if (!queue)
        return;
    if (!snib__client_forked(queue->client)) { /* a consumer that sleeps has a reference */
        queue->freed = true;
        snib__sys_ring(queue->bell->fd);
    }
    snib__handle_put(handle);
}
