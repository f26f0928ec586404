/* held.c - holds: inspecting, waiting for a loss, releasing, extending. */
#include "api/debug.h"
#include "api/group.h"
#include "api/say.h"
#include "locks/kind.h"

struct snib__hold *snib__hold_enter(snib_hold *handle, struct snib__client **out_client,
                                    snib_error *err, int32_t *out_code)
{
    struct snib__hold *hold = snib__handle_get(SNIB__HOLD, handle);
    if (!hold) {
        *out_code = snib__fail_handle(err);
        return NULL;
    }
    *out_client = snib__gate_home(hold->gate);
    if (snib__client_forked(*out_client)) {
        *out_code = snib__fail_lock(err, hold->gate, snib__fail(err, SNIB_EFORKED, 0, NULL));
        snib__handle_put(handle);
        return NULL;
    }
    snib__driver_enter(&(*out_client)->driver);
    return hold;
}

static void held_leave(struct snib__client *client, snib_hold *handle)
{
    snib__driver_leave(&client->driver);
    snib__handle_put(handle);
}

void snib__hold_destroy(void *object)
{
    struct snib__hold *hold = object;
    struct snib__client *client = snib__gate_home(hold->gate);
    if (snib__client_forked(client)) {
        snib__client_unref(client);
        return; /* as an inherited client, it stays in memory */
    }
    snib__driver_enter(&client->driver);
    bool still =
        hold->phase == SNIB__GONE; /* its end leaves nothing to send, and nothing to wait for */
    hold->slots--;
    snib__hold_let_go(client, hold);
    if (still)
        snib__driver_leave_collecting(&client->driver);
    else
        snib__driver_leave(&client->driver);
    snib__client_unref(client);
}

/* Inside: one user drops the hold; true: it was the last that had the handle.  Others, whose grants wait
 * to be taken, will get another one. */
static bool held_drop(struct snib__client *client, struct snib__hold *hold, bool abandoned)
{
    hold->users--;
    hold->given--;
    if (abandoned && client->debug)
        snib__debug_abandon(client, hold);
    if (abandoned)
        snib__hold_abandon(client->driver.engine, hold, snib__now());
    if (hold->given > 0)
        return false;
    snib__hold_unhand(client, hold);
    return true;
}

/* A thread that waits for a hold's end.  The owner may re-enter before that thread runs: the hold does not show then that
 * it was released. */
struct snib__watch {
    struct snib__watch *next, **at; /* where it is linked */
    const struct snib__hold *hold;
    bool lowered; /* one of several re-entries was released */
};

/* Inside: threads that wait for a hold's end have references, and would keep one that is freed. */
static void held_wake(struct snib__driver *driver, const struct snib__hold *hold, bool lowered)
{
    if (driver->hold_watchers == 0)
        return;
    for (struct snib__watch *watch = driver->watches; watch; watch = watch->next)
        watch->lowered |= lowered && watch->hold == hold;
    atomic_fetch_add(&driver->hold_word, 1);
    snib__unpark_all(&driver->hold_word);
}

static void held_give_back(snib_hold *handle, bool abandoned)
{
    struct snib__client *client;
    int32_t code = SNIB_OK;
    struct snib__hold *hold = snib__hold_enter(handle, &client, NULL, &code);
    bool last = code == SNIB_EFORKED;
    if (hold) {
        bool current = hold->handle == handle; /* else another thread frees it, too */
        last = current && held_drop(client, hold, abandoned);
        if (last)
            held_wake(&client->driver, hold, false);
        if (abandoned)
            snib__driver_leave(&client->driver);
        else
            snib__driver_leave_collecting(
                &client->driver); /* the last reference is what releases */
        snib__handle_put(handle);
    }
    if (last && snib__handle_take(SNIB__HOLD, handle))
        snib__handle_put(handle);
}

void snib_hold_free(snib_hold *handle)
{
    held_give_back(handle, false);
}

void snib_hold_abandon(snib_hold *handle)
{
    held_give_back(handle, true);
}

/* Inside, and for a while outside: whether the clients of a lock on several servers doubt its members. */
static bool held_doubted(struct snib__client *client, const struct snib__hold *hold)
{
    struct snib__carrier *carrier = snib__carrier_of(hold);
    if (!carrier)
        return false;
    snib__driver_leave(&client->driver);
    bool doubted = snib__carrier_doubts(carrier);
    snib__driver_enter(&client->driver);
    return doubted;
}

int snib_hold_state(snib_hold *handle, int32_t *out_reason)
{
    struct snib__client *client;
    int32_t code;
    struct snib__hold *hold = snib__hold_enter(handle, &client, NULL, &code);
    if (!hold)
        return code;
    bool doubted = held_doubted(client, hold);
    snib__time now = snib__now();
    int state = snib__hold_state(client->driver.engine, hold, now);
    if (state == SNIB_HOLD_VALID && doubted)
        state = SNIB_HOLD_AT_RISK;
    if (out_reason)
        *out_reason = state == SNIB_HOLD_LOST ? snib__hold_reason(hold, now) : SNIB_REASON_NONE;
    held_leave(client, handle);
    return state;
}

/* Inside: the result for a hold in this state. */
static int held_told(struct snib__client *client, const struct snib__hold *hold, int state,
                     snib_error *err)
{
    struct snib__told told = {.code = SNIB_OK};
    if (state == SNIB_HOLD_LOST)
        told =
            (struct snib__told){.code = SNIB_LOST, .reason = snib__hold_reason(hold, snib__now())};
    else if (state == SNIB_HOLD_RELEASED)
        told.code = SNIB_NOT_HELD;
    return told.code == SNIB_OK ? SNIB_OK : snib__fail_told(err, client, hold->gate, &told);
}

int snib_hold_check(snib_hold *handle, snib_error *err)
{
    struct snib__client *client;
    int32_t code;
    struct snib__hold *hold = snib__hold_enter(handle, &client, err, &code);
    if (!hold)
        return code;
    int state = snib__hold_state(client->driver.engine, hold, snib__now());
    code = held_told(client, hold, state, err);
    held_leave(client, handle);
    return code;
}

int64_t snib_hold_remaining_ms(snib_hold *handle)
{
    struct snib__client *client;
    int32_t code;
    struct snib__hold *hold = snib__hold_enter(handle, &client, NULL, &code);
    if (!hold)
        return code;
    int64_t left = snib__remaining_ms(hold, snib__now());
    held_leave(client, handle);
    return left;
}

int64_t snib_hold_replicas(snib_hold *handle)
{
    struct snib__client *client;
    int32_t code;
    const struct snib__hold *hold = snib__hold_enter(handle, &client, NULL, &code);
    if (!hold)
        return code;
    int64_t replicas = hold->replicas;
    held_leave(client, handle);
    return replicas;
}

int64_t snib_hold_token(snib_hold *handle)
{
    struct snib__client *client;
    int32_t code;
    struct snib__hold *hold = snib__hold_enter(handle, &client, NULL, &code);
    if (!hold)
        return code;
    int64_t token = snib__hold_fencing(hold);
    held_leave(client, handle);
    return token;
}

int snib_hold_owner(snib_hold *handle, char out[128], snib_error *err)
{
    struct snib__client *client;
    int32_t code;
    if (!out)
        return snib__fail_null(err, "out");
    struct snib__hold *hold = snib__hold_enter(handle, &client, err, &code);
    if (!hold)
        return code;
    out[snib__hold_owner(client->driver.engine, hold, out)] = 0;
    held_leave(client, handle);
    return SNIB_OK;
}

static void held_watch(struct snib__driver *d, struct snib__watch *watch)
{
    watch->at = &d->watches;
    watch->next = d->watches;
    if (watch->next)
        watch->next->at = &watch->next;
    d->watches = watch;
    d->hold_watchers++;
}

static void held_unwatch(struct snib__driver *d, struct snib__watch *watch)
{
    *watch->at = watch->next;
    if (watch->next)
        watch->next->at = watch->at;
    d->hold_watchers--;
}

int snib_hold_wait(snib_hold *handle, int64_t timeout_ms, int32_t *out_reason, snib_error *err)
{
    struct snib__client *client;
    snib__time timeout;
    int32_t code;
    if (!snib__wait_ns(timeout_ms, &timeout))
        return snib__fail_wait(err, "timeout_ms");
    snib__time until = snib__until(timeout);
    struct snib__hold *hold = snib__hold_enter(handle, &client, err, &code);
    if (!hold)
        return code;
    struct snib__driver *d = &client->driver;
    struct snib__watch watch = {.hold = hold};
    int state, how = SNIB__PARKED_NO;
    bool freed, again;
    held_watch(d, &watch);
    for (;;) {
        snib__time now = snib__now();
        state = snib__hold_state(d->engine, hold, now);
        freed = hold->handle != handle;
        again = how == SNIB__PARKED_SIGNAL || watch.lowered;
        if (state == SNIB_HOLD_LOST || state == SNIB_HOLD_RELEASED || now >= until || freed ||
            again)
            break;
        uint32_t seen = atomic_load(&d->hold_word);
        snib__time end = snib__hold_end(hold), next = end < until ? end : until;
        snib__driver_leave(d);
        how = snib__park(&d->hold_word, seen, next);
        snib__driver_enter(d);
    }
    held_unwatch(d, &watch);
    if (state == SNIB_HOLD_LOST && out_reason)
        *out_reason = snib__hold_reason(hold, snib__now());
    code = held_told(client, hold, state, err);
    held_leave(client, handle);
    if (code != SNIB_OK)
        return code;
    if (freed)
        return snib__fail(err, SNIB_EHANDLE, 0, NULL);
    return again ? snib__fail(err, SNIB_AGAIN, 0, NULL)
                 : snib__fail(err, SNIB_TIMEDOUT, 0,
                              "the hold was neither lost nor released in time");
}

/* ---- releasing, and another lease ---- */

#define HELD_RELEASE (-1)

/* Whether the hold can have this lease; if not, why not. */
static bool held_may_have(const struct snib__hold *hold, int64_t lease_ms, struct snib__told *out)
{
    int32_t kind = snib__gate_kind(hold->gate);
    *out = (struct snib__told){.code = SNIB_OK};
    if (kind == SNIB_SEMAPHORE) {
        out->code = SNIB_ENOTSUP;
        out->words = "the permits of a semaphore have no lease that could be extended";
    } else if (kind == SNIB__OUTER && !snib__carrier_allows(hold, lease_ms)) {
        out->code = SNIB_ELEASE;
        out->words = "its lease cannot be longer than the one that it was made for: after that, "
                     "servers that lost their memory may vote again; make it without quarantine";
    }
    return out->code == SNIB_OK;
}

/* Inside.  The release of a re-entry is only counted.  If it was submitted, an event is due all the same: there must
 * be room for that before it is. */
static struct snib__op *held_release(struct snib__engine *engine, struct snib__hold *hold,
                                     bool submitted, snib__time now, int32_t *out_code)
{
    bool held = snib__hold_state(engine, hold, now) <= SNIB_HOLD_AT_RISK;
    struct snib__op *told = NULL;
    if (submitted && held && hold->count > 1 &&
        !(told = snib__engine_nothing(engine, now, out_code)))
        return NULL;
    struct snib__op *op = snib__engine_release(engine, hold, now, out_code);
    return told ? told : op;
}

/* Inside: release the hold, or extend it to lease_ms, and leave. */
static int held_run(struct snib__run *run, struct snib__hold *hold, int64_t lease_ms,
                    snib_error *err)
{
    struct snib__client *client = run->client;
    struct snib__engine *engine = client->driver.engine;
    snib__time now = snib__now();
    snib_event event;
    int32_t code;
    uint32_t count = hold->count;
    snib__engine_call(engine, run->slice > 0);
    if (!snib__run_reserve(run))
        return snib__run(run, NULL, SNIB_ENOMEM, &event, err);
    struct snib__op *op =
        lease_ms == HELD_RELEASE
            ? held_release(engine, hold, run->slice == 0, now, &code)
            : snib__engine_extend(engine, hold, (snib__time)lease_ms * SNIB__MS, now, &code);
    if (client->debug)
        snib__debug_released(hold);
    if (hold->count < count)
        held_wake(&client->driver, hold, true);
    run->reason = code == SNIB_LOST ? hold->reason : SNIB_REASON_NONE;
    return snib__run(run, op, code, &event, err);
}

static int held_begin(snib_hold *handle, int64_t lease_ms, struct snib__run *run,
                      snib_queue *queue_handle, snib_error *err)
{
    struct snib__queue *queue = NULL;
    int32_t code;
    if (queue_handle && !(queue = snib__queue_enter(queue_handle, err, &code)))
        return code;
    struct snib__hold *hold = snib__hold_enter(handle, &run->client, err, &code);
    struct snib__told told;
    if (hold && queue && queue->client != run->client) {
        code = snib__fail_lock(err, hold->gate, snib__fail_queue(err));
        held_leave(run->client, handle);
    } else if (hold && lease_ms != HELD_RELEASE && !held_may_have(hold, lease_ms, &told)) {
        int state = snib__hold_state(run->client->driver.engine, hold, snib__now());
        code = held_told(run->client, hold, state, err);
        if (code == SNIB_OK) /* it is held */
            code = snib__fail_told(err, run->client, hold->gate, &told);
        held_leave(run->client, handle);
    } else if (hold) {
        run->queue = queue;
        run->gate = hold->gate;
        code = held_run(run, hold, lease_ms, err);
        snib__handle_put(handle);
    }
    if (queue)
        snib__handle_put(queue_handle);
    return code;
}

static int held_slice(snib_hold *hold, int64_t lease_ms, int64_t slice_ms, snib_queue *queue,
                      uint64_t token, snib_op **out_op, snib_error *err)
{
    struct snib__run run = {.token = token, .interruptible = true, .out_op = out_op};
    if (!out_op)
        return snib__fail_null(err, "out_op");
    if (!snib__wait_ns(slice_ms, &run.slice))
        return snib__fail_wait(err, "slice_ms");
    int code = held_begin(hold, lease_ms, &run, queue, err);
    return code == SNIB_AGAIN ? snib__fail(err, code, 0, NULL) : code;
}

static int held_submit(snib_hold *hold, int64_t lease_ms, snib_queue *queue, uint64_t token,
                       snib_op **out_op, snib_error *err)
{
    struct snib__run run = {.token = token, .out_op = out_op};
    int code = held_begin(hold, lease_ms, &run, queue, err);
    return code == SNIB_AGAIN ? SNIB_OK : code;
}

int snib_hold_release(snib_hold *hold, snib_error *err)
{
    struct snib__run run = {.slice = SNIB__NEVER};
    return held_begin(hold, HELD_RELEASE, &run, NULL, err);
}

int snib_hold_release_begin(snib_hold *hold, int64_t slice_ms, snib_queue *queue, uint64_t token,
                            snib_op **out_op, snib_error *err)
{
    return held_slice(hold, HELD_RELEASE, slice_ms, queue, token, out_op, err);
}

int snib_hold_release_submit(snib_hold *hold, snib_queue *queue, uint64_t token, snib_op **out_op,
                             snib_error *err)
{
    return held_submit(hold, HELD_RELEASE, queue, token, out_op, err);
}

static int held_no_lease(snib_hold *handle, snib_error *err)
{
    int32_t code;
    struct snib__client *client;
    struct snib__hold *hold = snib__hold_enter(handle, &client, err, &code);
    if (!hold)
        return snib__fail(err, SNIB_ELEASE, 0, NULL);
    code = snib__fail_lock(err, hold->gate, snib__fail(err, SNIB_ELEASE, 0, NULL));
    held_leave(client, handle);
    return code;
}

int snib_hold_extend(snib_hold *hold, int64_t lease_ms, snib_error *err)
{
    struct snib__run run = {.slice = SNIB__NEVER};
    return snib__lease_fits(lease_ms) ? held_begin(hold, lease_ms, &run, NULL, err)
                                      : held_no_lease(hold, err);
}

int snib_hold_extend_begin(snib_hold *hold, int64_t lease_ms, int64_t slice_ms, snib_queue *queue,
                           uint64_t token, snib_op **out_op, snib_error *err)
{
    return snib__lease_fits(lease_ms)
               ? held_slice(hold, lease_ms, slice_ms, queue, token, out_op, err)
               : held_no_lease(hold, err);
}

int snib_hold_extend_submit(snib_hold *hold, int64_t lease_ms, snib_queue *queue, uint64_t token,
                            snib_op **out_op, snib_error *err)
{
    if (!snib__lease_fits(lease_ms))
        return held_no_lease(hold, err);
    if (!queue && !out_op)
        return snib__fail_silent(err);
    return held_submit(hold, lease_ms, queue, token, out_op, err);
}
