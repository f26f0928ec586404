/* bridge.h - the C half of bridge.go: snib.h in a shape that costs one crossing a call.
 *
 * A handle is a ticket that looks like a pointer but is not one.  Go's collector must not see it as one,
 * so handles are uint64_t here and on the Go side.
 */
#ifndef SNIB_BRIDGE_H
#define SNIB_BRIDGE_H

#ifndef __linux__
#error "Snib runs on Linux only"
#endif

#include "snib.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if SNIB_VERSION_NUMBER / 1000 != 1
#error "this package is written for Snib 0.1"
#endif

#define BRIDGE_AS(type, handle) ((type *)(uintptr_t)(handle))

/* The result of a call: hold after SNIB_OK, op after SNIB_AGAIN, error after anything else. */
typedef struct bridge_result {
    uint64_t hold;
    uint64_t op;
    int64_t fencing;
    snib_error error;
} bridge_result;

static inline int32_t bridge_open(const char *url, const snib_client_options *options,
                                  uint64_t *out_client, snib_error *err)
{
    snib_client *client = NULL;
    int code = snib_client_open(url, options, &client, err);
    *out_client = (uint64_t)(uintptr_t)client;
    return code;
}

static inline int32_t bridge_close(uint64_t client, int64_t timeout_ms, snib_error *err)
{
    return snib_client_close(BRIDGE_AS(snib_client, client), timeout_ms, err);
}

static inline void bridge_client_free(uint64_t client)
{
    snib_client_free(BRIDGE_AS(snib_client, client));
}

static inline int32_t bridge_client_get_options(uint64_t client, snib_client_options *out, snib_error *err)
{
    return snib_client_get_options(BRIDGE_AS(snib_client, client), out, err);
}

static inline int32_t bridge_client_id(uint64_t client, char out[37], snib_error *err)
{
    return snib_client_id(BRIDGE_AS(snib_client, client), out, err);
}

static inline int32_t bridge_client_set_label(uint64_t client, const char *label, snib_error *err)
{
    return snib_client_set_label(BRIDGE_AS(snib_client, client), label, err);
}

static inline int32_t bridge_stats(uint64_t client, snib_client_stats_data *out, snib_error *err)
{
    out->size = sizeof *out;
    return snib_client_stats(BRIDGE_AS(snib_client, client), out, err);
}

/* The descriptor is a duplicate: Go's os.File closes its own.  Like the core's, it is no standard one, which the program
 * may have closed and may open again in its place. */
static inline int32_t bridge_queue_new(uint64_t client, uint64_t *out_queue, int32_t *out_fd, snib_error *err)
{
    snib_queue *queue = NULL;
    int code = snib_queue_new(BRIDGE_AS(snib_client, client), &queue, err);
    if (code != SNIB_OK) {
        return code;
    }
    int fd = snib_queue_fd(queue, err);
    if (fd >= 0) {
        *out_fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (*out_fd < 0) {
            *err = (snib_error){.code = code = SNIB_ESYSTEM, .os_error = errno};
            snprintf(err->text, sizeof err->text,
                     "cannot duplicate the descriptor of a queue: %s; check the limits of this process and of the system",
                     strerror(errno));
        }
    } else {
        code = fd;
    }
    if (code != SNIB_OK) {
        snib_queue_free(queue);
        return code;
    }
    *out_queue = (uint64_t)(uintptr_t)queue;
    return SNIB_OK;
}

static inline int32_t bridge_log(uint64_t client, uint64_t queue, int32_t level, snib_error *err)
{
    return snib_client_log(BRIDGE_AS(snib_client, client), BRIDGE_AS(snib_queue, queue), level, err);
}

static inline int32_t bridge_credentials(uint64_t client, uint64_t queue, snib_error *err)
{
    return snib_client_credentials(BRIDGE_AS(snib_client, client), BRIDGE_AS(snib_queue, queue), err);
}

/* A text lent by Go, without a terminator; false: it has a zero byte, or is too long. */
static inline bool bridge_copy(char *out, size_t cap, const char *text, size_t n)
{
    if (n >= cap || (n > 0 && memchr(text, 0, n))) {
        return false;
    }
    if (n > 0) {
        memcpy(out, text, n);
    }
    return true;
}

/* why: the reason for a refusal; length 0: none.  In any case the request is answered. */
static inline void bridge_login(uint64_t client, uint64_t token, const char *username, size_t username_n,
                                const char *password, size_t password_n, int64_t valid_ms, const char *why,
                                size_t why_n)
{
    snib_credentials *answer = calloc(1, sizeof *answer);
    if (answer) {
        size_t fits = why_n < sizeof answer->why ? why_n : sizeof answer->why - 1;
        answer->size = sizeof *answer;
        answer->valid_ms = valid_ms;
        if (!bridge_copy(answer->username, sizeof answer->username, username, username_n) ||
            !bridge_copy(answer->password, sizeof answer->password, password, password_n)) {
            strcpy(answer->why, "the user name or password is too long, or has a zero byte");
        } else if (!bridge_copy(answer->why, sizeof answer->why, why, fits)) {
            strcpy(answer->why, "the error has a zero byte");
        }
    }
    snib_client_login(BRIDGE_AS(snib_client, client), token, answer, NULL);
    if (answer) {
        explicit_bzero(answer, sizeof *answer);
    }
    free(answer);
}

static inline int32_t bridge_drain(uint64_t queue, snib_event *events, uint32_t cap)
{
    return snib_queue_drain(BRIDGE_AS(snib_queue, queue), events, cap, NULL);
}

static inline void bridge_queue_cork(uint64_t queue)
{
    snib_queue_cork(BRIDGE_AS(snib_queue, queue));
}

static inline void bridge_queue_uncork(uint64_t queue)
{
    snib_queue_uncork(BRIDGE_AS(snib_queue, queue));
}

static inline void bridge_queue_free(uint64_t queue)
{
    snib_queue_free(BRIDGE_AS(snib_queue, queue));
}

static inline int32_t bridge_cancel(uint64_t op)
{
    return snib_op_cancel(BRIDGE_AS(snib_op, op));
}

static inline int32_t bridge_lock_new(uint64_t client, int32_t kind, const char *name, size_t name_len,
                                      const snib_lock_options *options, uint64_t *out_lock, snib_error *err)
{
    snib_lock *lock = NULL;
    int code = snib_lock_new(BRIDGE_AS(snib_client, client), kind, name, name_len, options, &lock, err);
    *out_lock = (uint64_t)(uintptr_t)lock;
    return code;
}

enum bridge_group { BRIDGE_MULTI, BRIDGE_QUORUM };

/* Combine several locks into one. */
static inline int32_t bridge_group_new(int32_t group, const uint64_t *members, uint32_t n,
                                       const snib_lock_options *options, uint64_t *out_lock, snib_error *err)
{
    snib_lock **locks = calloc((size_t)n + 1, sizeof *locks);
    if (!locks) {
        *err = (snib_error){.code = SNIB_ENOMEM};
        return SNIB_ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        locks[i] = BRIDGE_AS(snib_lock, members[i]);
    }
    snib_lock *lock = NULL;
    int code = group == BRIDGE_QUORUM ? snib_quorum_new(locks, n, options, &lock, err)
                                      : snib_multi_new(locks, n, options, &lock, err);
    free(locks);
    *out_lock = (uint64_t)(uintptr_t)lock;
    return code;
}

static inline void bridge_lock_free(uint64_t lock)
{
    snib_lock_free(BRIDGE_AS(snib_lock, lock));
}

/* The parts of Go's lock that an acquisition needs; count: of permits. */
typedef struct bridge_wish {
    uint64_t lock;
    uint64_t owner;
    int32_t kind;
    uint32_t count;
    int64_t wait_ms;
} bridge_wish;

/* Stay in C for up to slice_ms; an operation that is not done by then continues. */
static inline int bridge_begin(const bridge_wish *wish, int64_t slice_ms, snib_queue *queue, uint64_t token,
                               snib_hold **hold, snib_op **op, snib_error *err)
{
    snib_lock *lock = BRIDGE_AS(snib_lock, wish->lock);
    switch (wish->kind) {
    case SNIB_SEMAPHORE:
        return snib_semaphore_acquire_begin(lock, wish->count, wish->wait_ms, slice_ms, queue, token, hold, op,
                                            err);
    case SNIB_PERMITS:
        return snib_permits_acquire_begin(lock, wish->count, wish->wait_ms, slice_ms, queue, token, hold, op, err);
    case SNIB_LATCH:
        return snib_latch_wait_begin(lock, wish->wait_ms, slice_ms, queue, token, op, err);
    default:
        return snib_lock_acquire_begin(lock, wish->owner, wish->wait_ms, slice_ms, queue, token, hold, op, err);
    }
}

/* Never block the caller's thread. */
static inline int bridge_submit(const bridge_wish *wish, snib_queue *queue, uint64_t token, snib_op **op,
                                snib_error *err)
{
    snib_lock *lock = BRIDGE_AS(snib_lock, wish->lock);
    switch (wish->kind) {
    case SNIB_SEMAPHORE:
        return snib_semaphore_acquire_submit(lock, wish->count, wish->wait_ms, queue, token, op, err);
    case SNIB_PERMITS:
        return snib_permits_acquire_submit(lock, wish->count, wish->wait_ms, queue, token, op, err);
    case SNIB_LATCH:
        return snib_latch_wait_submit(lock, wish->wait_ms, queue, token, op, err);
    default:
        return snib_lock_acquire_submit(lock, wish->owner, wish->wait_ms, queue, token, op, err);
    }
}

/* Acquire, or wait for a latch, which gives no hold.  slice_ms 0: submit. */
static inline int32_t bridge_acquire(const bridge_wish *wish, int64_t slice_ms, uint64_t queue, uint64_t token,
                                     bridge_result *out)
{
    snib_queue *q = BRIDGE_AS(snib_queue, queue);
    snib_hold *hold = NULL;
    snib_op *op = NULL;
    int code;
    if (slice_ms > 0) {
        code = bridge_begin(wish, slice_ms, q, token, &hold, &op, &out->error);
    } else {
        code = bridge_submit(wish, q, token, &op, &out->error);
        code = code == SNIB_OK ? SNIB_AGAIN : code;
    }
    if (code == SNIB_OK && hold) {
        out->hold = (uint64_t)(uintptr_t)hold;
        out->fencing = snib_hold_token(hold);
    } else if (code == SNIB_AGAIN) {
        out->op = (uint64_t)(uintptr_t)op;
    }
    return code;
}

/* The same, with the place in the program and who acquires, for a client with the option debug. */
static inline int32_t bridge_acquire_here(const char *place, size_t place_n, uint64_t actor, const bridge_wish *wish,
                                          int64_t slice_ms, uint64_t queue, uint64_t token, bridge_result *out)
{
    char text[1024]; /* see debug.go */
    bool fits = bridge_copy(text, sizeof text, place, place_n);
    text[fits ? place_n : 0] = 0;
    snib_debug_here(text, actor);
    return bridge_acquire(wish, slice_ms, queue, token, out);
}

/* A closed client can only report that it is closed, but its holds know that they are lost, and why. */
static inline int bridge_loss(snib_hold *hold, int code, bridge_result *out)
{
    if (code == SNIB_OK || code == SNIB_AGAIN || snib_hold_state(hold, NULL) != SNIB_HOLD_LOST) {
        return code;
    }
    return snib_hold_check(hold, &out->error);
}

/* Release the hold and free its handle, unless the hold was lost: then the caller frees the handle, when it has noted
 * the loss.  queue 0: no further event. */
static inline int32_t bridge_release(uint64_t hold, int64_t slice_ms, uint64_t queue, uint64_t token,
                                     bridge_result *out)
{
    snib_hold *h = BRIDGE_AS(snib_hold, hold);
    snib_queue *q = BRIDGE_AS(snib_queue, queue);
    snib_op *op = NULL;
    int code;
    if (slice_ms > 0) {
        code = snib_hold_release_begin(h, slice_ms, q, token, &op, &out->error);
    } else {
        code = snib_hold_release_submit(h, q, token, q ? &op : NULL, &out->error);
        code = code == SNIB_OK ? SNIB_AGAIN : code;
    }
    code = bridge_loss(h, code, out);
    out->op = (uint64_t)(uintptr_t)op;
    if (code != SNIB_LOST) {
        snib_hold_free(h);
    }
    return code;
}

static inline void bridge_hold_free(uint64_t hold)
{
    snib_hold_free(BRIDGE_AS(snib_hold, hold));
}

static inline void bridge_hold_abandon(uint64_t hold)
{
    snib_hold_abandon(BRIDGE_AS(snib_hold, hold));
}

static inline int32_t bridge_hold_state(uint64_t hold)
{
    return snib_hold_state(BRIDGE_AS(snib_hold, hold), NULL);
}

static inline int32_t bridge_hold_check(uint64_t hold, snib_error *err)
{
    return snib_hold_check(BRIDGE_AS(snib_hold, hold), err);
}

static inline int64_t bridge_hold_remaining(uint64_t hold)
{
    return snib_hold_remaining_ms(BRIDGE_AS(snib_hold, hold));
}

static inline int64_t bridge_hold_replicas(uint64_t hold)
{
    return snib_hold_replicas(BRIDGE_AS(snib_hold, hold));
}

static inline int32_t bridge_hold_owner(uint64_t hold, char out[128], snib_error *err)
{
    return snib_hold_owner(BRIDGE_AS(snib_hold, hold), out, err);
}

enum bridge_question { BRIDGE_PING, BRIDGE_INFO, BRIDGE_FORCE_RELEASE, BRIDGE_EXTEND };

/* The result of submitting an operation. */
static inline int32_t bridge_submitted(int code, const snib_op *op, bridge_result *out)
{
    out->op = (uint64_t)(uintptr_t)op;
    return code == SNIB_OK ? SNIB_AGAIN : code;
}

/* Submit a query that gives no hold.  target: the client for a ping, the hold for an extension, otherwise the
 * lock.  ms: the wait for a ping, the lease for an extension. */
static inline int32_t bridge_ask(int32_t question, uint64_t target, int64_t ms, uint64_t queue,
                                 uint64_t token, bridge_result *out)
{
    snib_queue *q = BRIDGE_AS(snib_queue, queue);
    snib_op *op = NULL;
    int code = SNIB_EINVAL;
    switch (question) {
    case BRIDGE_PING:
        code = snib_client_ping_submit(BRIDGE_AS(snib_client, target), ms, q, token, &op, &out->error);
        break;
    case BRIDGE_INFO:
        code = snib_lock_info_submit(BRIDGE_AS(snib_lock, target), q, token, &op, &out->error);
        break;
    case BRIDGE_FORCE_RELEASE:
        code = snib_lock_force_release_submit(BRIDGE_AS(snib_lock, target), q, token, &op, &out->error);
        break;
    case BRIDGE_EXTEND:
        code = snib_hold_extend_submit(BRIDGE_AS(snib_hold, target), ms, q, token, &op, &out->error);
        break;
    }
    return bridge_submitted(code, op, out);
}

/* Submit a step of the scan over names. */
static inline int32_t bridge_list(uint64_t client, const char *pattern, size_t pattern_len, uint64_t cursor,
                                  uint64_t queue, uint64_t token, bridge_result *out)
{
    snib_op *op = NULL;
    int code = snib_client_list_submit(BRIDGE_AS(snib_client, client), pattern, pattern_len, cursor,
                                       BRIDGE_AS(snib_queue, queue), token, &op, &out->error);
    return bridge_submitted(code, op, out);
}

static inline int32_t bridge_describe(uint64_t client, const char *name, size_t name_len, uint64_t queue,
                                      uint64_t token, bridge_result *out)
{
    snib_op *op = NULL;
    int code = snib_client_describe_submit(BRIDGE_AS(snib_client, client), name, name_len,
                                           BRIDGE_AS(snib_queue, queue), token, &op, &out->error);
    return bridge_submitted(code, op, out);
}

static inline int32_t bridge_identity(uint64_t client, const char *owner, size_t owner_len, uint64_t queue,
                                      uint64_t token, bridge_result *out)
{
    snib_op *op = NULL;
    int code = snib_client_identity_submit(BRIDGE_AS(snib_client, client), owner, owner_len,
                                           BRIDGE_AS(snib_queue, queue), token, &op, &out->error);
    return bridge_submitted(code, op, out);
}

/* Submit a query or a change of a counter: see enum snib_count. */
static inline int32_t bridge_count(int32_t kind, uint64_t lock, int32_t what, int64_t n, uint64_t queue,
                                   uint64_t token, bridge_result *out)
{
    snib_lock *l = BRIDGE_AS(snib_lock, lock);
    snib_queue *q = BRIDGE_AS(snib_queue, queue);
    snib_op *op = NULL;
    int code = SNIB_ENOTSUP;
    switch (kind) {
    case SNIB_SEMAPHORE:
        code = snib_semaphore_count_submit(l, what, n, q, token, &op, &out->error);
        break;
    case SNIB_PERMITS:
        code = snib_permits_count_submit(l, what, n, q, token, &op, &out->error);
        break;
    case SNIB_LATCH:
        code = snib_latch_count_submit(l, what, n, q, token, &op, &out->error);
        break;
    }
    return bridge_submitted(code, op, out);
}

#endif
