/* run.c - operations for the caller: blocking on one, continuing it, its result as a value. */
#include "api/debug.h"
#include "api/say.h"
#include "engine/ask.h"

#define RUN_WAIT_MS_MAX 86400000

bool snib__wait_ns(int64_t wait_ms, snib__time *out)
{
    *out = wait_ms < 0 ? SNIB__NEVER : (snib__time)wait_ms * SNIB__MS;
    return wait_ms >= -1 && wait_ms <= RUN_WAIT_MS_MAX;
}

snib__time snib__until(snib__time wait)
{
    return wait == SNIB__NEVER ? SNIB__NEVER : snib__now() + wait;
}

int64_t snib__remaining_ms(const struct snib__hold *hold, snib__time now)
{
    snib__time left = snib__hold_left(hold, now);
    return left == SNIB__NEVER ? INT64_MAX : (int64_t)(left / SNIB__MS);
}

/* One more user gets the handle of a granted hold: made for the first, shared by re-entries.  From now on its queue is
 * told of a loss, also of one that was before.  NULL: out of memory. */
static void *run_hold_handle(struct snib__client *client, struct snib__hold *hold,
                             struct snib__queue *queue, uint64_t token)
{
    if (!hold->handle) {
        hold->handle = snib__handle_new(SNIB__HOLD, hold);
        if (!hold->handle)
            return NULL;
        snib__client_ref(client);
        hold->slots++;
    }
    if (snib__witness_add(client, hold, queue, token) != 0) /* never for the first */
        return NULL;
    hold->given++;
    return hold->handle;
}

void snib__hold_unhand(struct snib__client *client, struct snib__hold *hold)
{
    if (hold->tell == SNIB__TELL_QUEUED)
        snib__queue_drop_lost(hold->sink, hold);
    snib__witness_forget_hold(client, hold);
    hold->handle = hold->sink = NULL;
    hold->tell = 0;
    if (hold->users == 0)
        hold->owner = 0; /* it is about to be freed: nobody could release what re-enters it */
}

void snib__hold_let_go(struct snib__client *client, struct snib__hold *hold)
{
    if (hold->users > 0 || hold->slots > 0)
        return;
    if (client->debug)
        snib__debug_gone(hold);
    snib__hold_drop(client->driver.engine, hold, snib__now());
}

void snib__hold_return(struct snib__client *client, struct snib__hold *hold)
{
    int32_t code;
    hold->users -= hold->users > 0;
    if (hold->users > 0)
        snib__engine_release(client->driver.engine, hold, snib__now(), &code); /* others share it */
    else
        snib__hold_unhand(client, hold);
    snib__hold_let_go(client, hold);
}

void snib__op_finish(struct snib__client *client, struct snib__op *op, snib_event *out)
{
    struct snib__engine *engine = client->driver.engine;
    snib__op_event(op, out);
    out->token = op->token;
    if (op->kind == SNIB__OP_ACQUIRE && op->code == SNIB_OK && op->hold) {
        snib__time now = snib__now();
        out->hold = run_hold_handle(client, op->hold, op->tells, op->token);
        out->fencing = snib__hold_fencing(op->hold);
        out->remaining_ms = snib__remaining_ms(op->hold, now);
        if (!out->hold) {
            snib__hold_return(client, op->hold);
            out->code = SNIB_ENOMEM;
        }
    }
    if (client->debug)
        snib__debug_acquired(client, op, out->hold ? op->hold : NULL);
    if (op->asked && op->code == SNIB_OK) {
        out->texts = op->asked->texts;
        op->asked->texts = NULL;
    }
    if (op->asked && op->kind == SNIB__OP_LIST && op->code < 0)
        out->count = (int64_t)op->asked->cursor;
    if (out->code != SNIB_OK) {
        struct snib__told told = {out->code,     op->os_error, op->cause,    op->reason,
                                  op->words,     op->where,    op->unserved, op->unconfirmed,
                                  op->explained, op->server};
        out->server = snib__say(out->text, sizeof out->text, client, op->gate, &told);
    }
    snib__op_free(engine, op);
}

void snib__op_discard(struct snib__client *client, struct snib__op *op)
{
    if (client->debug)
        snib__debug_acquired(client, op, NULL);
    if (op->kind == SNIB__OP_ACQUIRE && op->code == SNIB_OK && op->hold)
        snib__hold_return(client, op->hold);
    snib__op_free(client->driver.engine, op);
}

static int run_answer(const snib_event *event, snib_error *err)
{
    if (event->code != SNIB_OK)
        snib__fail(err, event->code, event->os_error, "%s", event->text);
    if (event->code == SNIB_LOST && err)
        err->reason = event->reason;
    if (event->code != SNIB_OK && err)
        err->server = event->server;
    return event->code;
}

static struct snib__op run_none; /* what a reserved handle refers to */

bool snib__run_reserve(struct snib__run *run)
{
    if (run->slice > 0 || !run->out_op)
        return true;
    run->handle = snib__handle_new(SNIB__OP, &run_none);
    return run->handle != NULL;
}

static void *run_handle(const struct snib__run *run, struct snib__op *op)
{
    if (!run->handle)
        return snib__handle_new(SNIB__OP, op);
    snib__handle_bind(run->handle, op);
    return run->handle;
}

/* Hand a running operation over: to its queue, to a handle, or to neither. */
static int run_hand_off(const struct snib__run *run, struct snib__op *op, snib_error *err)
{
    struct snib__client *client = run->client;
    if (run->out_op) {
        snib__client_ref(client);
        op->handle = run_handle(run, op);
        if (!op->handle) {
            snib__client_unref(client);
            op->awaited = false;
            op->sink = NULL;
            snib__engine_cancel(client->driver.engine, op, snib__now());
            return snib__fail(err, SNIB_ENOMEM, 0, NULL);
        }
        *run->out_op = op->handle;
    }
    op->sink = run->queue;
    if (run->queue)
        snib__lead_offer(&client->driver, &run->queue->leader);
    op->awaited = !run->queue && run->out_op;
    return SNIB_AGAIN;
}

int snib__run(const struct snib__run *run, struct snib__op *op, int32_t code, snib_event *out_event,
              snib_error *err)
{
    struct snib__client *client = run->client;
    struct snib__driver *driver = &client->driver;
    snib__engine_call(driver->engine, false);
    if (!op) {
        struct snib__told told = {.code = code, .reason = run->reason};
        if (code == SNIB_ELIMIT) {
            told.words = "the client has as many operations in progress as its option waiters_max "
                         "allows; wait for some to end, or raise it";
            told.explained = true;
        }
        if (code != SNIB_OK)
            snib__fail_told(err, client, run->gate, &told);
        snib__driver_leave(driver);
        if (run->handle && snib__handle_take(SNIB__OP, run->handle))
            snib__handle_put(run->handle);
        return code;
    }
    op->token = run->token;
    op->awaited = true;
    bool done = run->slice > 0 && snib__driver_run(driver, op, snib__until(run->slice),
                                                   run->interruptible, run->queue);
    if (done) {
        snib__op_finish(client, op, out_event);
        code = out_event->code;
    } else {
        code = run_hand_off(run, op, err);
    }
    if (run->slice == 0 && run->queue && run->queue->corked)
        snib__driver_leave_corked(driver);
    else
        snib__driver_leave(driver);
    return done ? run_answer(out_event, err) : code;
}

struct snib__op *snib__op_enter(snib_op *handle, struct snib__client **out_client, snib_error *err,
                                int32_t *out_code)
{
    struct snib__op *op = snib__handle_get(SNIB__OP, handle);
    if (!op) {
        *out_code = snib__fail_handle(err);
        return NULL;
    }
    *out_client = op->home;
    if (snib__client_forked(*out_client)) {
        snib__handle_put(handle);
        *out_code = snib__fail(err, SNIB_EFORKED, 0, NULL);
        return NULL;
    }
    snib__driver_enter(&(*out_client)->driver);
    if (op->handle == handle)
        return op;
    snib__driver_leave(&(*out_client)->driver);
    snib__handle_put(handle);
    *out_code = snib__fail(err, SNIB_EHANDLE, 0, NULL);
    return NULL;
}

void snib__op_destroy(void *object)
{
    struct snib__op *op = object;
    if (op != &run_none)
        snib__client_unref(op->home); /* the operation itself was freed when its result was taken */
}

int snib_op_wait(snib_op *handle, int64_t timeout_ms, snib_event *out_event, snib_error *err)
{
    struct snib__client *client;
    snib__time timeout;
    int32_t code;
    if (!out_event)
        return snib__fail_null(err, "out_event");
    if (!snib__wait_ns(timeout_ms, &timeout))
        return snib__fail_wait(err, "timeout_ms");
    struct snib__op *op = snib__op_enter(handle, &client, err, &code);
    if (!op)
        return code;
    if (!op->awaited || op->busy) {
        code = op->busy ? SNIB_EINUSE : SNIB_EINVAL;
        snib__driver_leave(&client->driver);
        snib__handle_put(handle);
        return snib__fail(err, code, 0, "%s",
                          code == SNIB_EINUSE
                              ? "another thread is waiting for this operation"
                              : "the operation has a queue: its result arrives there");
    }
    op->busy = true;
    bool done = snib__driver_run(&client->driver, op, snib__until(timeout), true, false);
    op->busy = false;
    if (done) {
        op->handle = NULL;
        snib__op_finish(client, op, out_event);
    }
    snib__driver_leave(&client->driver);
    if (done && snib__handle_take(SNIB__OP, handle))
        snib__handle_put(handle);
    snib__handle_put(handle);
    return done ? SNIB_OK : snib__fail(err, SNIB_AGAIN, 0, NULL);
}

int snib_op_cancel(snib_op *handle)
{
    struct snib__client *client;
    int32_t code;
    struct snib__op *op = snib__op_enter(handle, &client, NULL, &code);
    if (!op)
        return code;
    bool won = snib__engine_cancel(client->driver.engine, op, snib__now());
    snib__driver_leave(&client->driver);
    snib__handle_put(handle);
    return won ? SNIB_OK : SNIB_EHANDLE;
}

void snib_op_free(snib_op *handle)
{
    struct snib__client *client;
    int32_t code;
    struct snib__op *op = snib__op_enter(handle, &client, NULL, &code);
    if (!op) {
        if (code == SNIB_EFORKED && snib__handle_take(SNIB__OP, handle))
            snib__handle_put(handle);
        return;
    }
    struct snib__engine *engine = client->driver.engine;
    op->handle = NULL;
    if (atomic_load(&op->word) == SNIB__WORD_DONE && op->awaited && !op->busy) {
        snib__op_discard(client, op);
    } else if (!op->busy) {
        if (op->awaited)
            op->awaited = false; /* nobody waits: it is freed when it ends, which is now */
        snib__engine_cancel(engine, op, snib__now());
    } else {
        op->handle = handle; /* another thread waits for it and will take it, now or very soon */
        snib__engine_cancel(engine, op, snib__now());
    }
    bool gone = op->handle != handle;
    snib__driver_leave(&client->driver);
    if (gone && snib__handle_take(SNIB__OP, handle))
        snib__handle_put(handle);
    snib__handle_put(handle);
}
