/* lock.c - locks: creating and acquiring them. */
#include "api/debug.h"
#include "api/group.h"
#include "api/name.h"
#include "api/say.h"
#include "api/uses.h"
#include "locks/kind.h"

#include <stdlib.h>
#include <string.h>

#define LOCK_LEASE_MIN 100
#define LOCK_LEASE_MAX 86400000
#define LOCK_PERMITS_MAX 1000

void snib_lock_options_init(snib_lock_options *options, size_t size)
{
    if (!options || size < 8)
        return;
    memset(options, 0, size);
    options->size = (uint32_t)size;
}

bool snib__lease_fits(int64_t lease_ms)
{
    return lease_ms == 0 || (lease_ms >= LOCK_LEASE_MIN && lease_ms <= LOCK_LEASE_MAX);
}

int snib__lock_options(const snib_lock_options *from, snib_lock_options *to, snib_error *err)
{
    memset(to, 0, sizeof *to);
    if (from && (from->size < 8 || from->size > 4096 || from->size % 8 != 0))
        return snib__fail(err, SNIB_EOPTION, 0,
                          "the options have no size that this build knows; fill them with "
                          "snib_lock_options_init() first");
    for (size_t i = sizeof *to; from && i < from->size; i++)
        if (((const char *)from)[i] != 0)
            return snib__fail(err, SNIB_EOPTION, 0, NULL);
    if (from)
        memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
    if (!snib__lease_fits(to->lease_ms))
        return snib__fail(err, SNIB_ELEASE, 0, NULL);
    if (to->max_hold_ms < -1 || to->max_hold_ms > LOCK_LEASE_MAX)
        return snib__fail(err, SNIB_EOPTION, 0,
                          "max_hold is out of range; use 1 ms to 24 hours, or none");
    return SNIB_OK;
}

int snib__lock_flags(uint32_t flags, uint32_t known, snib_error *err)
{
    uint32_t other = flags & ~known;
    if (other == 0)
        return SNIB_OK;
    return snib__fail(err, SNIB_EOPTION, 0, "this kind of lock does not support the flag %s",
                      other & SNIB_LOCK_FENCED          ? "FENCED"
                      : other & SNIB_LOCK_PREFER_WRITER ? "PREFER_WRITER"
                      : other & SNIB_LOCK_NO_QUARANTINE ? "NO_QUARANTINE"
                                                        : "of an unknown number");
}

/* Check that the flags and times make sense for the kind. */
static int lock_options_fit(const snib_lock_options *o, int32_t kind, snib_error *err)
{
    uint32_t known = kind == SNIB_WRITE  ? SNIB_LOCK_FENCED | SNIB_LOCK_PREFER_WRITER
                     : kind == SNIB_FAIR ? SNIB_LOCK_FENCED
                                         : 0;
    bool unleased = kind == SNIB_SEMAPHORE || kind == SNIB_LATCH;
    int code = snib__lock_flags(o->flags, known, err);
    if (code)
        return code;
    if (unleased && (o->lease_ms != 0 || o->max_hold_ms > 0))
        return snib__fail(err, SNIB_EOPTION, 0,
                          "semaphores and latches have no lease and no limit");
    return SNIB_OK;
}

void snib__lock_fill(struct snib__lock *lock, struct snib__client *client, int32_t kind,
                     const snib_lock_options *options)
{
    *lock = (struct snib__lock){.client = client,
                                .kind = kind,
                                .flags = options->flags,
                                .lease_ms = options->lease_ms,
                                .max_hold_ms = options->max_hold_ms};
    if (lock->max_hold_ms == 0)
        lock->max_hold_ms = client->max_hold_ms;
    if (lock->max_hold_ms < 0 || kind == SNIB_SEMAPHORE)
        lock->max_hold_ms = 0;
}

/* It is to be freed: who makes it, and what it is. */
static void lock_made(struct snib__lock *lock)
{
    char label[SNIB__SAY_LOCK];
    snib__say_lock(label, sizeof label, lock->gate);
    snib__debug_made(lock->client, lock, label);
    if (lock->flags & SNIB_LOCK_PREFER_WRITER)
        snib__debug_prefers(lock);
}

int snib__lock_handle(struct snib__lock *lock, snib_lock **out_lock, snib_error *err)
{
    snib__client_ref(lock->client);
    snib_lock *handle = snib__handle_new(SNIB__LOCK, lock);
    if (!handle) {
        snib__lock_destroy(lock);
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    }
    if (lock->client->debug)
        lock_made(lock);
    *out_lock = handle;
    return SNIB_OK;
}

struct snib__gate *snib__lock_gate(struct snib__client *client, int32_t kind, const char *name,
                                   size_t name_len, int32_t *out_code)
{
    snib__driver_enter(&client->driver);
    bool closed = client->stopped;
    struct snib__gate *gate =
        closed ? NULL : snib__gate_get(client->driver.engine, kind, name, name_len);
    snib__driver_leave(&client->driver);
    if (!gate)
        *out_code = closed ? SNIB_ECLOSED : SNIB_ENOMEM;
    return gate;
}

static int lock_new(struct snib__client *client, int32_t kind, const char *name, size_t name_len,
                    const snib_lock_options *options, snib_lock **out_lock, snib_error *err)
{
    snib_lock_options o;
    if (!out_lock || (!name && name_len > 0))
        return snib__fail_null(err, out_lock ? "name" : "out_lock");
    if (kind < SNIB_MUTEX || kind > SNIB_LATCH)
        return snib__fail(err, SNIB_ENOTSUP, 0, "this build has no such kind of lock");
    int32_t code = snib__name_check(name ? name : "", name_len, err);
    if (!code && kind == SNIB_LATCH && client->url.topology == SNIB__CLUSTER &&
        memchr(name, '{', name_len))
        code = snib__fail(
            err, SNIB_ENAME, 0,
            "in a cluster a latch's name cannot have a hash tag, because Redisson's channel for it "
            "would be in another slot");
    if (code)
        return code;
    code = snib__lock_options(options, &o, err);
    if (!code)
        code = lock_options_fit(&o, kind, err);
    if (code)
        return snib__fail_kind(err, kind, name, name_len, code);
    struct snib__lock *lock = calloc(1, sizeof *lock);
    if (!lock)
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    snib__lock_fill(lock, client, kind, &o);
    lock->gate = snib__lock_gate(client, kind, name, name_len, &code);
    if (!lock->gate) {
        free(lock);
        return snib__fail(err, code, 0, NULL);
    }
    return snib__lock_handle(lock, out_lock, err);
}

int snib_lock_new(snib_client *handle, int32_t kind, const char *name, size_t name_len,
                  const snib_lock_options *options, snib_lock **out_lock, snib_error *err)
{
    int32_t code;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    code = lock_new(client, kind, name, name_len, options, out_lock, err);
    snib__use_forget_here();
    snib__handle_put(handle);
    return code;
}

void snib__lock_destroy(void *object)
{
    struct snib__lock *lock = object;
    struct snib__client *client = lock->client;
    if (snib__client_forked(client)) {
        struct snib__lock *heir = atomic_load(&lock->heir);
        if (heir)
            snib__lock_destroy(heir);
        if (lock->parts)
            snib__parts_unref(lock->parts);
        snib__client_unref(client);
        return; /* as an inherited client, it stays in memory */
    }
    snib__driver_enter(&client->driver);
    snib__gate_put(client->driver.engine, lock->gate);
    snib__driver_leave(&client->driver);
    if (lock->parts)
        snib__parts_unref(lock->parts);
    if (client->debug)
        snib__debug_freed(lock);
    free(lock);
    snib__client_unref(client);
}

void snib_lock_free(snib_lock *handle)
{
    if (snib__handle_take(SNIB__LOCK, handle))
        snib__handle_put(handle);
}

struct snib__lock *snib__lock_enter(snib_lock *handle, snib_error *err, int32_t *out_code)
{
    struct snib__lock *lock = snib__handle_get(SNIB__LOCK, handle);
    if (!lock) {
        *out_code = snib__fail_handle(err);
        return NULL;
    }
    if (snib__client_forked(lock->client))
        lock = snib__lock_heir(lock, err, out_code);
    if (!lock)
        snib__handle_put(handle);
    return lock;
}

/* ---- acquiring ---- */

/* The arguments of an acquisition, for all forms of the call. */
struct lock_call {
    uint64_t owner;
    uint32_t permits;
    int64_t wait_ms;
    snib__time slice;
    bool interruptible;
    snib_queue *queue;
    uint64_t token;
    snib_event *out_event;
    snib_op **out_op;
};

/* Start an acquisition.  Inside. */
static struct snib__op *lock_start(struct snib__lock *lock, const struct lock_call *call,
                                   snib__time wait, struct snib__queue *queue, int32_t *out_code)
{
    struct snib__engine *engine = lock->client->driver.engine;
    struct snib__acquire how = {
        .owner = call->owner,
        .wait = wait,
        .lease = (snib__time)lock->lease_ms * SNIB__MS,
        .max_hold = (snib__time)lock->max_hold_ms * SNIB__MS,
        .permits = call->permits,
        .options = (uint8_t)lock->flags,
    };
    struct snib__op *op =
        lock->parts ? snib__carrier_acquire(lock, &how, snib__now(), out_code)
                    : snib__engine_acquire(engine, lock->gate, &how, snib__now(), out_code);
    if (lock->client->debug)
        snib__debug_acquire(lock, op, wait != 0);
    if (op)
        op->tells = queue;
    return op;
}

/* The queue's events are guarded by its client's mutex, so it cannot be that of just any member. */
static int lock_fail_queue(const struct snib__lock *lock, snib_error *err)
{
    if (!lock->parts)
        return snib__fail_lock(err, lock->gate, snib__fail_queue(err));
    return snib__fail_lock(
        err, lock->gate,
        snib__fail(err, SNIB_EINVAL, 0,
                   "the queue belongs to another client than the first member that "
                   "the lock was made of"));
}

static int lock_run(struct snib__lock *lock, const struct lock_call *call,
                    struct snib__queue *queue, snib_error *err)
{
    struct snib__client *client = lock->client;
    snib__time wait;
    int32_t code = SNIB_OK;
    if (!snib__wait_ns(call->wait_ms, &wait))
        return snib__fail_lock(err, lock->gate, snib__fail_wait(err, "wait_ms"));
    if (queue && queue->client != client)
        return lock_fail_queue(lock, err);
    snib__driver_enter(&client->driver);
    int error = client->stopped ? 0 : snib__driver_start(&client->driver);
    if (error) {
        snib__driver_leave(&client->driver);
        return snib__fail_system(err, "start the client's thread", error);
    }
    struct snib__run run = {client,       queue,      call->token, call->slice, call->interruptible,
                            call->out_op, lock->gate, 0,           NULL};
    snib__engine_call(client->driver.engine, call->slice > 0);
    struct snib__op *op = lock_start(lock, call, wait, queue, &code);
    return snib__run(&run, op, code, call->out_event, err);
}

/* All forms of acquire; nothing is checked yet.  kind: the required kind; 0: any but a latch. */
static int lock_acquire(snib_lock *handle, int32_t kind, const struct lock_call *call,
                        snib_error *err)
{
    int32_t code;
    struct snib__queue *queue = NULL;
    struct snib__lock *lock = snib__lock_enter(handle, err, &code);
    if (!lock)
        return code;
    if (call->queue && !(queue = snib__queue_enter(call->queue, err, &code))) {
        snib__handle_put(handle);
        return code;
    }
    if (kind ? lock->kind != kind : lock->kind == SNIB_LATCH)
        code = snib__fail_lock(err, lock->gate, snib__fail(err, SNIB_ENOTSUP, 0, NULL));
    else if (kind && kind != SNIB_LATCH && (call->permits < 1 || call->permits > LOCK_PERMITS_MAX))
        code = snib__fail_lock(err, lock->gate,
                               snib__fail(err, SNIB_EPERMITS, 0,
                                          "the number of permits is out of range; use 1 to %d",
                                          LOCK_PERMITS_MAX));
    else
        code = lock_run(lock, call, queue, err);
    if (queue)
        snib__handle_put(call->queue);
    snib__handle_put(handle);
    snib__use_forget_here(); /* what was said of this call is not said of the next, with whatever client and outcome */
    return code;
}

static int lock_acquire_sync(snib_lock *lock, int32_t kind, uint64_t owner, uint32_t permits,
                             int64_t wait_ms, snib_hold **out_hold, snib_error *err)
{
    snib_event event;
    struct lock_call call = {.owner = owner,
                             .permits = permits,
                             .wait_ms = wait_ms,
                             .slice = SNIB__NEVER,
                             .out_event = &event};
    int code = lock_acquire(lock, kind, &call, err);
    if (code == SNIB_OK && out_hold)
        *out_hold = event.hold;
    return code;
}

static int lock_acquire_begin(snib_lock *lock, int32_t kind, struct lock_call call,
                              int64_t slice_ms, snib_hold **out_hold, snib_error *err)
{
    snib_event event;
    if (!call.out_op)
        return snib__fail_null(err, "out_op");
    if (!snib__wait_ns(slice_ms, &call.slice))
        return snib__fail_wait(err, "slice_ms");
    call.interruptible = true;
    call.out_event = &event;
    int code = lock_acquire(lock, kind, &call, err);
    if (code == SNIB_OK && out_hold)
        *out_hold = event.hold;
    return code == SNIB_AGAIN ? snib__fail(err, code, 0, NULL) : code;
}

static int lock_acquire_submit(snib_lock *lock, int32_t kind, const struct lock_call *call,
                               snib_error *err)
{
    if (!call->queue && !call->out_op)
        return snib__fail_silent(err);
    int code = lock_acquire(lock, kind, call, err);
    return code == SNIB_AGAIN ? SNIB_OK : code;
}

int snib_lock_acquire(snib_lock *lock, uint64_t owner, int64_t wait_ms, snib_hold **out_hold,
                      snib_error *err)
{
    if (!out_hold)
        return snib__fail_null(err, "out_hold");
    return lock_acquire_sync(lock, 0, owner, 1, wait_ms, out_hold, err);
}

int snib_lock_acquire_begin(snib_lock *lock, uint64_t owner, int64_t wait_ms, int64_t slice_ms,
                            snib_queue *queue, uint64_t token, snib_hold **out_hold,
                            snib_op **out_op, snib_error *err)
{
    struct lock_call call = {
        .owner = owner, .wait_ms = wait_ms, .queue = queue, .token = token, .out_op = out_op};
    if (!out_hold)
        return snib__fail_null(err, "out_hold");
    return lock_acquire_begin(lock, 0, call, slice_ms, out_hold, err);
}

int snib_lock_acquire_submit(snib_lock *lock, uint64_t owner, int64_t wait_ms, snib_queue *queue,
                             uint64_t token, snib_op **out_op, snib_error *err)
{
    struct lock_call call = {
        .owner = owner, .wait_ms = wait_ms, .queue = queue, .token = token, .out_op = out_op};
    return lock_acquire_submit(lock, 0, &call, err);
}

/* ---- permits, semaphores, latches ---- */

static int lock_permits_begin(snib_lock *lock, int32_t kind, uint32_t count, int64_t wait_ms,
                              int64_t slice_ms, snib_queue *queue, uint64_t token,
                              snib_hold **out_hold, snib_op **out_op, snib_error *err)
{
    struct lock_call call = {
        .permits = count, .wait_ms = wait_ms, .queue = queue, .token = token, .out_op = out_op};
    if (!out_hold)
        return snib__fail_null(err, "out_hold");
    return lock_acquire_begin(lock, kind, call, slice_ms, out_hold, err);
}

static int lock_permits_submit(snib_lock *lock, int32_t kind, uint32_t count, int64_t wait_ms,
                               snib_queue *queue, uint64_t token, snib_op **out_op, snib_error *err)
{
    struct lock_call call = {
        .permits = count, .wait_ms = wait_ms, .queue = queue, .token = token, .out_op = out_op};
    return lock_acquire_submit(lock, kind, &call, err);
}

int snib_permits_acquire(snib_lock *permits, uint32_t count, int64_t wait_ms, snib_hold **out_hold,
                         snib_error *err)
{
    if (!out_hold)
        return snib__fail_null(err, "out_hold");
    return lock_acquire_sync(permits, SNIB_PERMITS, 0, count, wait_ms, out_hold, err);
}

int snib_permits_acquire_begin(snib_lock *permits, uint32_t count, int64_t wait_ms,
                               int64_t slice_ms, snib_queue *queue, uint64_t token,
                               snib_hold **out_hold, snib_op **out_op, snib_error *err)
{
    return lock_permits_begin(permits, SNIB_PERMITS, count, wait_ms, slice_ms, queue, token,
                              out_hold, out_op, err);
}

int snib_permits_acquire_submit(snib_lock *permits, uint32_t count, int64_t wait_ms,
                                snib_queue *queue, uint64_t token, snib_op **out_op,
                                snib_error *err)
{
    return lock_permits_submit(permits, SNIB_PERMITS, count, wait_ms, queue, token, out_op, err);
}

int snib_semaphore_acquire(snib_lock *semaphore, uint32_t count, int64_t wait_ms,
                           snib_hold **out_hold, snib_error *err)
{
    if (!out_hold)
        return snib__fail_null(err, "out_hold");
    return lock_acquire_sync(semaphore, SNIB_SEMAPHORE, 0, count, wait_ms, out_hold, err);
}

int snib_semaphore_acquire_begin(snib_lock *semaphore, uint32_t count, int64_t wait_ms,
                                 int64_t slice_ms, snib_queue *queue, uint64_t token,
                                 snib_hold **out_hold, snib_op **out_op, snib_error *err)
{
    return lock_permits_begin(semaphore, SNIB_SEMAPHORE, count, wait_ms, slice_ms, queue, token,
                              out_hold, out_op, err);
}

int snib_semaphore_acquire_submit(snib_lock *semaphore, uint32_t count, int64_t wait_ms,
                                  snib_queue *queue, uint64_t token, snib_op **out_op,
                                  snib_error *err)
{
    return lock_permits_submit(semaphore, SNIB_SEMAPHORE, count, wait_ms, queue, token, out_op,
                               err);
}

int snib_latch_wait(snib_lock *latch, int64_t wait_ms, snib_error *err)
{
    return lock_acquire_sync(latch, SNIB_LATCH, 0, 1, wait_ms, NULL, err);
}

int snib_latch_wait_begin(snib_lock *latch, int64_t wait_ms, int64_t slice_ms, snib_queue *queue,
                          uint64_t token, snib_op **out_op, snib_error *err)
{
    struct lock_call call = {.wait_ms = wait_ms, .queue = queue, .token = token, .out_op = out_op};
    return lock_acquire_begin(latch, SNIB_LATCH, call, slice_ms, NULL, err);
}

int snib_latch_wait_submit(snib_lock *latch, int64_t wait_ms, snib_queue *queue, uint64_t token,
                           snib_op **out_op, snib_error *err)
{
    struct lock_call call = {.wait_ms = wait_ms, .queue = queue, .token = token, .out_op = out_op};
    return lock_acquire_submit(latch, SNIB_LATCH, &call, err);
}
