/* calls.c - every function of snib.h that takes a handle, called once. */
#include "support.h"

#include <string.h>

#define ANSWERS(call)                                                                              \
    do {                                                                                           \
        error = (snib_error){0};                                                                   \
        if ((call) != want)                                                                        \
            return #call;                                                                          \
    } while (0)

static const char *client_calls(const struct handles *h, int want)
{
    snib_error error;
    snib_op *op = NULL;
    snib_queue *queue = NULL;
    snib_lock *lock = NULL;
    snib_client_stats_data stats = {.size = sizeof stats};
    static char buffer[65536];
    char id[37];
    uint64_t cursor = 0;
    size_t used;
    uint32_t count;
    ANSWERS(snib_client_ping(h->client, -1, &error));
    ANSWERS(snib_client_ping_submit(h->client, -1, NULL, 0, &op, &error));
    ANSWERS(snib_client_id(h->client, id, &error));
    ANSWERS(snib_client_stats(h->client, &stats, &error));
    ANSWERS(
        snib_client_list(h->client, "", 0, &cursor, buffer, sizeof buffer, &used, &count, &error));
    ANSWERS(snib_client_describe(h->client, "x", 1, buffer, sizeof buffer, &used, &count, &error));
    ANSWERS(snib_client_list_submit(h->client, "", 0, 0, NULL, 0, &op, &error));
    ANSWERS(snib_client_describe_submit(h->client, "x", 1, NULL, 0, &op, &error));
    ANSWERS(snib_client_identity(h->client, "x", 1, buffer, sizeof buffer, &used, &count, &error));
    ANSWERS(snib_client_identity_submit(h->client, "x", 1, NULL, 0, &op, &error));
    ANSWERS(snib_client_load(h->client, 0, &cursor, buffer, sizeof buffer, &used, &count, &error));
    ANSWERS(snib_client_log(h->client, NULL, SNIB_LOG_NONE, &error));
    ANSWERS(snib_lock_new(h->client, SNIB_MUTEX, "x", 1, NULL, &lock, &error));
    ANSWERS(snib_queue_new(h->client, &queue, &error));
    ANSWERS(snib_client_close(h->client, -1, &error));
    return NULL;
}

static const char *lock_calls(const struct handles *h, int want)
{
    snib_error error;
    snib_op *op = NULL;
    snib_hold *hold = NULL;
    snib_lock_info_data info = {.size = sizeof info};
    ANSWERS(snib_lock_acquire(h->lock, 0, -1, &hold, &error));
    ANSWERS(snib_lock_acquire(h->lock, 5, 0, &hold, &error));
    ANSWERS(snib_lock_acquire_submit(h->lock, 0, -1, NULL, 0, &op, &error));
    ANSWERS(snib_lock_acquire_begin(h->lock, 0, -1, 50, NULL, 0, &hold, &op, &error));
    ANSWERS(snib_lock_info(h->lock, &info, &error));
    ANSWERS(snib_lock_info_submit(h->lock, NULL, 0, &op, &error));
    ANSWERS(snib_lock_force_release(h->lock, &error));
    ANSWERS(snib_lock_force_release_submit(h->lock, NULL, 0, &op, &error));
    return NULL;
}

static const char *group_calls(const struct handles *h, int want)
{
    snib_error error;
    snib_lock *group = NULL;
    snib_lock *const locks[] = {h->lock, h->lock, h->lock};
    ANSWERS(snib_multi_new(locks, 1, NULL, &group, &error));
    ANSWERS(snib_quorum_new(locks, 3, NULL, &group, &error));
    return NULL;
}

static const char *counter_calls(const struct handles *h, int want)
{
    snib_error error;
    snib_op *op = NULL;
    snib_hold *hold = NULL;
    int64_t value;
    ANSWERS(snib_permits_acquire(h->permits, 1, -1, &hold, &error));
    ANSWERS(snib_permits_acquire_begin(h->permits, 1, -1, 50, NULL, 0, &hold, &op, &error));
    ANSWERS(snib_permits_acquire_submit(h->permits, 1, -1, NULL, 0, &op, &error));
    ANSWERS(snib_permits_count(h->permits, SNIB_COUNT_GET, 0, &value, &error));
    ANSWERS(snib_permits_count_submit(h->permits, SNIB_COUNT_SET, 1, NULL, 0, &op, &error));
    ANSWERS(snib_semaphore_acquire(h->semaphore, 1, -1, &hold, &error));
    ANSWERS(snib_semaphore_acquire_begin(h->semaphore, 1, -1, 50, NULL, 0, &hold, &op, &error));
    ANSWERS(snib_semaphore_acquire_submit(h->semaphore, 1, -1, NULL, 0, &op, &error));
    ANSWERS(snib_semaphore_count(h->semaphore, SNIB_COUNT_INIT, 1, &value, &error));
    ANSWERS(snib_semaphore_count_submit(h->semaphore, SNIB_COUNT_ADD, 1, NULL, 0, &op, &error));
    ANSWERS(snib_latch_wait(h->latch, -1, &error));
    ANSWERS(snib_latch_wait_begin(h->latch, -1, 50, NULL, 0, &op, &error));
    ANSWERS(snib_latch_wait_submit(h->latch, -1, NULL, 0, &op, &error));
    ANSWERS(snib_latch_count(h->latch, SNIB_COUNT_INIT, 1, &value, &error));
    ANSWERS(snib_latch_count_submit(h->latch, SNIB_COUNT_DOWN, 0, NULL, 0, &op, &error));
    return NULL;
}

static const char *hold_calls(const struct handles *h, int want)
{
    snib_error error;
    snib_op *op = NULL;
    int32_t reason;
    char owner[128];
    ANSWERS(snib_hold_state(h->hold, &reason));
    ANSWERS(snib_hold_check(h->hold, &error));
    ANSWERS(snib_hold_remaining_ms(h->hold));
    ANSWERS(snib_hold_token(h->hold));
    ANSWERS(snib_hold_owner(h->hold, owner, &error));
    ANSWERS(snib_hold_wait(h->hold, -1, &reason, &error));
    ANSWERS(snib_hold_extend(h->hold, 1000, &error));
    ANSWERS(snib_hold_extend_submit(h->hold, 1000, NULL, 0, &op, &error));
    ANSWERS(snib_hold_extend_begin(h->hold, 1000, 50, NULL, 0, &op, &error));
    ANSWERS(snib_hold_release(h->hold, &error));
    ANSWERS(snib_hold_release_submit(h->hold, NULL, 0, &op, &error));
    ANSWERS(snib_hold_release_begin(h->hold, 50, NULL, 0, &op, &error));
    return NULL;
}

static const char *op_calls(const struct handles *h, int want)
{
    snib_error error;
    snib_event event = {.size = sizeof event};
    ANSWERS(snib_op_wait(h->op, -1, &event, &error));
    ANSWERS(snib_op_cancel(h->op));
    return NULL;
}

static const char *queue_calls(const struct handles *h, int want)
{
    snib_error error;
    snib_event event = {.size = sizeof event};
    ANSWERS(snib_queue_fd(h->queue, &error));
    ANSWERS(snib_queue_drain(h->queue, &event, 1, &error));
    ANSWERS(snib_queue_wait(h->queue, &event, 1, -1, &error));
    ANSWERS(snib_queue_wake(h->queue));
    return NULL;
}

const char *calls_answer(const struct handles *h, unsigned kinds, int want)
{
    static const char *(*const calls[])(const struct handles *, int) = {
        client_calls, lock_calls, group_calls, counter_calls, hold_calls, op_calls, queue_calls,
    };
    static const unsigned of[] = {
        CLIENT_CALLS, LOCK_CALLS, LOCK_CALLS, LOCK_CALLS, HOLD_CALLS, OP_CALLS, QUEUE_CALLS,
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const char *wrong = kinds & of[i] ? calls[i](h, want) : NULL;
        if (wrong)
            return wrong;
    }
    return NULL;
}

void handles_locks(struct handles *h, const char *name)
{
    h->lock = must_lock(h->client, name);
    h->permits = must_lock_kind(h->client, SNIB_PERMITS, name);
    h->semaphore = must_lock_kind(h->client, SNIB_SEMAPHORE, name);
    h->latch = must_lock_kind(h->client, SNIB_LATCH, name);
}

void handles_free(const struct handles *h)
{
    snib_op_free(h->op);
    snib_hold_free(h->hold);
    snib_queue_free(h->queue);
    snib_lock_free(h->lock);
    snib_lock_free(h->permits);
    snib_lock_free(h->semaphore);
    snib_lock_free(h->latch);
    snib_client_free(h->client);
}
