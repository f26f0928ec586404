/* lock.c - locks: naming one, acquiring, asking about it. */
#include "api/name.h"
#include "api/objects.h"
#include "locks/kind.h"

#include <stdlib.h>
#include <string.h>

#define LOCK_LEASE_MIN 100
#define LOCK_LEASE_MAX 86400000

void snib_lock_options_init(snib_lock_options *options, size_t size)
{
    if (!options || size < 8)
        return;
    memset(options, 0, size);
    options->size = (uint32_t)size;
}

static int lock_options(const snib_lock_options *from, snib_lock_options *to, snib_error *err)
{
    memset(to, 0, sizeof *to);
    if (from && (from->size < 8 || from->size > 4096))
        return snib__fail(err, SNIB_EOPTION, 0, NULL);
    for (size_t i = sizeof *to; from && i < from->size; i++)
        if (((const char *)from)[i] != 0)
            return snib__fail(err, SNIB_EOPTION, 0, NULL);
    if (from)
        memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
    if (to->lease_ms != 0 && (to->lease_ms < LOCK_LEASE_MIN || to->lease_ms > LOCK_LEASE_MAX))
        return snib__fail(err, SNIB_ELEASE, 0, NULL);
    if (to->flags != 0 || to->max_hold_ms < -1 || to->max_hold_ms > LOCK_LEASE_MAX)
        return snib__fail(err, SNIB_EOPTION, 0, NULL);
    return SNIB_OK;
}

static int lock_new(struct snib__client *client, int32_t kind, const char *name, size_t name_len,
                    const snib_lock_options *options, snib_lock **out_lock, snib_error *err)
{
    snib_lock_options o;
    if (!out_lock || (!name && name_len > 0))
        return snib__fail(err, SNIB_EINVAL, 0, NULL);
    if (!snib__kind_of(kind))
        return snib__fail(err, SNIB_ENOTSUP, 0, "this build knows no such kind of lock");
    int code = snib__name_check(name ? name : "", name_len, err);
    if (!code)
        code = lock_options(options, &o, err);
    if (code)
        return code;
    struct snib__lock *lock = malloc(sizeof *lock);
    if (!lock)
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    *lock =
        (struct snib__lock){.client = client, .lease_ms = o.lease_ms, .max_hold_ms = o.max_hold_ms};
    if (lock->max_hold_ms == 0)
        lock->max_hold_ms = client->max_hold_ms;
    if (lock->max_hold_ms < 0)
        lock->max_hold_ms = 0;
    snib__driver_enter(&client->driver);
    bool closed = client->stopped;
    lock->gate = closed ? NULL : snib__gate_get(client->driver.engine, kind, name, name_len);
    snib__driver_leave(&client->driver);
    if (!lock->gate) {
        free(lock);
        return snib__fail(err, closed ? SNIB_ECLOSED : SNIB_ENOMEM, 0, NULL);
    }
    snib__client_ref(client);
    snib_lock *handle = snib__handle_new(SNIB__LOCK, lock);
    if (!handle) {
        snib__lock_destroy(lock);
        return snib__fail(err, SNIB_ENOMEM, 0, NULL);
    }
    *out_lock = handle;
    return SNIB_OK;
}

int snib_lock_new(snib_client *handle, int32_t kind, const char *name, size_t name_len,
                  const snib_lock_options *options, snib_lock **out_lock, snib_error *err)
{
    int32_t code;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    code = lock_new(client, kind, name, name_len, options, out_lock, err);
    snib__handle_put(handle);
    return code;
}

void snib__lock_destroy(void *object)
{
    struct snib__lock *lock = object;
    struct snib__client *client = lock->client;
    if (snib__client_forked(client))
        return;
    snib__driver_enter(&client->driver);
    snib__gate_put(client->driver.engine, lock->gate);
    snib__driver_leave(&client->driver);
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
    if (lock && !snib__client_forked(lock->client))
        return lock;
    *out_code = snib__fail(err, lock ? SNIB_EFORKED : SNIB_EHANDLE, 0, NULL);
    if (lock)
        snib__handle_put(handle);
    return NULL;
}

/* ---- acquiring ---- */

/* Start an acquisition.  Inside. */
static struct snib__op *lock_start(struct snib__lock *lock, uint64_t owner, snib__time wait,
                                   struct snib__queue *queue, uint64_t token, int32_t *out_code)
{
    struct snib__engine *engine = lock->client->driver.engine;
    struct snib__acquire how = {
        .owner = owner,
        .wait = wait,
        .lease = (snib__time)lock->lease_ms * SNIB__MS,
        .max_hold = (snib__time)lock->max_hold_ms * SNIB__MS,
    };
    struct snib__op *op = snib__engine_acquire(engine, lock->gate, &how, snib__now(), out_code);
    if (op && !op->done && op->hold) {
        op->hold->sink = queue;
        op->hold->token = token;
        op->hold->tell = queue != NULL;
    }
    return op;
}

/* All ways to acquire.  The caller has checked nothing. */
static int lock_acquire(snib_lock *handle, uint64_t owner, int64_t wait_ms, snib__time slice,
                        bool interruptible, snib_queue *queue_handle, uint64_t token,
                        snib_event *out_event, snib_op **out_op, snib_error *err)
{
    snib__time wait;
    int32_t code;
    struct snib__queue *queue = NULL;
    struct snib__lock *lock = snib__lock_enter(handle, err, &code);
    if (!lock)
        return code;
    struct snib__client *client = lock->client;
    if (queue_handle && !(queue = snib__queue_enter(queue_handle, err, &code))) {
        snib__handle_put(handle);
        return code;
    }
    if (!snib__wait_ns(wait_ms, &wait) || (queue && queue->client != client)) {
        code = snib__fail(err, SNIB_EINVAL, 0, NULL);
    } else {
        snib__driver_enter(&client->driver);
        int error = client->stopped ? 0 : snib__driver_start(&client->driver);
        if (error) {
            snib__driver_leave(&client->driver);
            code = snib__fail(err, SNIB_ESYSTEM, error, NULL);
        } else {
            struct snib__run run = {client, queue, token, slice, interruptible, out_op};
            struct snib__op *op = lock_start(lock, owner, wait, queue, token, &code);
            code = snib__run(&run, op, code, out_event, err);
        }
    }
    if (queue)
        snib__handle_put(queue_handle);
    snib__handle_put(handle);
    return code;
}

int snib_lock_acquire(snib_lock *lock, uint64_t owner, int64_t wait_ms, snib_hold **out_hold,
                      snib_error *err)
{
    snib_event event;
    if (!out_hold)
        return snib__fail(err, SNIB_EINVAL, 0, NULL);
    int code = lock_acquire(lock, owner, wait_ms, SNIB__NEVER, false, NULL, 0, &event, NULL, err);
    if (code == SNIB_OK)
        *out_hold = event.hold;
    return code;
}

int snib_lock_acquire_begin(snib_lock *lock, uint64_t owner, int64_t wait_ms, int64_t slice_ms,
                            snib_queue *queue, uint64_t token, snib_hold **out_hold,
                            snib_op **out_op, snib_error *err)
{
    snib_event event;
    snib__time slice;
    if (!out_hold || !out_op || !snib__wait_ns(slice_ms, &slice))
        return snib__fail(err, SNIB_EINVAL, 0, NULL);
    int code = lock_acquire(lock, owner, wait_ms, slice, true, queue, token, &event, out_op, err);
    if (code == SNIB_OK)
        *out_hold = event.hold;
    return code;
}

int snib_lock_acquire_submit(snib_lock *lock, uint64_t owner, int64_t wait_ms, snib_queue *queue,
                             uint64_t token, snib_op **out_op, snib_error *err)
{
    if (!queue && !out_op)
        return snib__fail(err, SNIB_EINVAL, 0, NULL);
    int code = lock_acquire(lock, owner, wait_ms, 0, false, queue, token, NULL, out_op, err);
    return code == SNIB_AGAIN ? SNIB_OK : code;
}

/* ---- asking ---- */

typedef struct snib__op *lock_question(struct snib__engine *engine, struct snib__gate *gate,
                                       snib__time now, int32_t *out_code);

static int lock_ask(snib_lock *handle, lock_question *ask, snib__time slice,
                    snib_queue *queue_handle, uint64_t token, snib_event *out_event,
                    snib_op **out_op, snib_error *err)
{
    int32_t code;
    struct snib__queue *queue = NULL;
    struct snib__lock *lock = snib__lock_enter(handle, err, &code);
    if (!lock)
        return code;
    struct snib__client *client = lock->client;
    if (queue_handle && !(queue = snib__queue_enter(queue_handle, err, &code))) {
        snib__handle_put(handle);
        return code;
    }
    if ((queue && queue->client != client) || (slice == 0 && !queue && !out_op)) {
        code = snib__fail(err, SNIB_EINVAL, 0, NULL);
    } else {
        snib__driver_enter(&client->driver);
        int error = client->stopped ? 0 : snib__driver_start(&client->driver);
        struct snib__run run = {client, queue, token, slice, false, out_op};
        struct snib__op *op =
            error ? NULL : ask(client->driver.engine, lock->gate, snib__now(), &code);
        code = snib__run(&run, op, error ? SNIB_ESYSTEM : code, out_event, err);
    }
    if (queue)
        snib__handle_put(queue_handle);
    snib__handle_put(handle);
    return code;
}

int snib_lock_info(snib_lock *lock, snib_lock_info_data *out, snib_error *err)
{
    snib_event event;
    if (!out || out->size < 8 || out->size > sizeof *out)
        return snib__fail(err, SNIB_EINVAL, 0, NULL);
    int code = lock_ask(lock, snib__engine_info, SNIB__NEVER, NULL, 0, &event, NULL, err);
    if (code != SNIB_OK)
        return code;
    snib_lock_info_data info = {
        .size = out->size,
        .held = event.held,
        .remaining_ms = event.remaining_ms,
        .count = event.count,
        .waiting = event.waiting,
        .mine = event.mine,
    };
    memcpy(info.owner, event.text, strnlen(event.text, sizeof info.owner - 1));
    memcpy(out, &info, out->size);
    return SNIB_OK;
}

int snib_lock_info_submit(snib_lock *lock, snib_queue *queue, uint64_t token, snib_op **out_op,
                          snib_error *err)
{
    int code = lock_ask(lock, snib__engine_info, 0, queue, token, NULL, out_op, err);
    return code == SNIB_AGAIN ? SNIB_OK : code;
}

int snib_lock_force_release(snib_lock *lock, snib_error *err)
{
    snib_event event;
    return lock_ask(lock, snib__engine_force, SNIB__NEVER, NULL, 0, &event, NULL, err);
}

int snib_lock_force_release_submit(snib_lock *lock, snib_queue *queue, uint64_t token,
                                   snib_op **out_op, snib_error *err)
{
    int code = lock_ask(lock, snib__engine_force, 0, queue, token, NULL, out_op, err);
    return code == SNIB_AGAIN ? SNIB_OK : code;
}
