/* question.c - queries about locks, and the counts of permits, semaphores and latches. */
#include "api/name.h"
#include "api/objects.h"
#include "api/say.h"
#include "engine/ask.h"
#include "locks/kind.h"

#include <stdlib.h>
#include <string.h>

#define QUESTION_COUNT_MAX INT32_MAX
#define QUESTION_TEXTS_BYTES 65536
#define QUESTION_PATTERN_MAX 1024

/* The arguments of a query, for all forms of the call. */
struct question {
    int op; /* enum snib__op_kind */
    int32_t what;
    int64_t n;
    snib__time slice; /* 0: submit */
    snib_queue *queue;
    uint64_t token;
    snib_event *out_event;
    snib_op **out_op;
};

static struct snib__op *question_start(const struct snib__lock *lock, const struct question *q,
                                       int32_t *out_code)
{
    struct snib__engine *engine = lock->client->driver.engine;
    if (q->op == SNIB__OP_INFO)
        return snib__engine_info(engine, lock->gate, snib__now(), out_code);
    if (q->op == SNIB__OP_FORCE)
        return snib__engine_force(engine, lock->gate, snib__now(), out_code);
    return snib__engine_count(engine, lock->gate, q->what, q->n, snib__now(), out_code);
}

static int question_run(const struct snib__lock *lock, struct snib__queue *queue,
                        const struct question *q, snib_error *err)
{
    struct snib__client *client = lock->client;
    int32_t code = SNIB_OK;
    if (queue && queue->client != client)
        return snib__fail_lock(err, lock->gate, snib__fail_queue(err));
    if (q->slice == 0 && !queue && !q->out_op)
        return snib__fail_silent(err);
    snib__driver_enter(&client->driver);
    int error = client->stopped ? 0 : snib__driver_start(&client->driver);
    if (error) {
        snib__driver_leave(&client->driver);
        return snib__fail_system(err, "start the client's thread", error);
    }
    struct snib__run run = {client,    queue,      q->token, q->slice, false,
                            q->out_op, lock->gate, 0,        NULL};
    snib__engine_call(client->driver.engine, q->slice > 0);
    struct snib__op *op = NULL;
    if (snib__run_reserve(&run))
        op = question_start(lock, q, &code);
    else
        code = SNIB_ENOMEM;
    code = snib__run(&run, op, code, q->out_event, err);
    return code == SNIB_AGAIN ? SNIB_OK : code;
}

/* Check that the operation and its number make sense for the kind. */
static int question_count_fits(int32_t kind, const struct question *q, snib_error *err)
{
    bool latch = kind == SNIB_LATCH, semaphore = kind == SNIB_SEMAPHORE;
    int64_t least = 0, most = 0;
    bool known = true;
    switch (q->what) {
    case SNIB_COUNT_GET:
        break;
    case SNIB_COUNT_INIT:
        least = latch;
        most = QUESTION_COUNT_MAX;
        break;
    case SNIB_COUNT_ADD:
        known = !latch;
        least = -(int64_t)QUESTION_COUNT_MAX;
        most = QUESTION_COUNT_MAX;
        break;
    case SNIB_COUNT_SET:
        known = kind == SNIB_PERMITS;
        most = QUESTION_COUNT_MAX;
        break;
    case SNIB_COUNT_TOTAL:
        known = kind == SNIB_PERMITS;
        break;
    case SNIB_COUNT_RELEASE:
        known = semaphore;
        least = 1;
        most = QUESTION_COUNT_MAX;
        break;
    case SNIB_COUNT_DRAIN:
        known = semaphore;
        break;
    case SNIB_COUNT_DOWN:
        known = latch;
        break;
    default:
        return snib__fail(err, SNIB_EINVAL, 0, "no such operation on a count");
    }
    if (!known)
        return snib__fail(err, SNIB_ENOTSUP, 0, NULL);
    if (q->n < least || q->n > most || (q->what == SNIB_COUNT_ADD && q->n == 0))
        return snib__fail(err, SNIB_EPERMITS, 0, "the number is out of range; use %lld to %lld%s",
                          (long long)least, (long long)most,
                          q->what == SNIB_COUNT_ADD ? ", but not 0" : "");
    return SNIB_OK;
}

/* kind: the required kind of the lock; 0: any. */
static int question_ask(snib_lock *handle, int32_t kind, const struct question *q, snib_error *err)
{
    int32_t code;
    struct snib__queue *queue = NULL;
    struct snib__lock *lock = snib__lock_enter(handle, err, &code);
    if (!lock)
        return code;
    if (q->queue && !(queue = snib__queue_enter(q->queue, err, &code))) {
        snib__handle_put(handle);
        return code;
    }
    if ((kind && lock->kind != kind) || lock->kind >= SNIB__MULTI)
        code = snib__fail(err, SNIB_ENOTSUP, 0, NULL);
    else
        code = q->op == SNIB__OP_COUNT ? question_count_fits(kind, q, err) : SNIB_OK;
    if (code)
        code = snib__fail_lock(err, lock->gate, code);
    else
        code = question_run(lock, queue, q, err);
    if (queue)
        snib__handle_put(q->queue);
    snib__handle_put(handle);
    return code;
}

int snib_lock_info(snib_lock *lock, snib_lock_info_data *out, snib_error *err)
{
    snib_event event;
    struct question q = {.op = SNIB__OP_INFO, .slice = SNIB__NEVER, .out_event = &event};
    if (!out || out->size < 8 || out->size > sizeof *out)
        return snib__fail_size(err);
    int code = question_ask(lock, 0, &q, err);
    if (code != SNIB_OK)
        return code;
    snib_lock_info_data info = {
        .size = out->size,
        .held = event.held,
        .remaining_ms = event.remaining_ms,
        .count = event.count,
        .waiting = event.waiting,
        .mine = event.mine,
        .token = event.fencing,
    };
    memcpy(info.owner, event.text, strnlen(event.text, sizeof info.owner - 1));
    memcpy(out, &info, out->size);
    return SNIB_OK;
}

int snib_lock_info_submit(snib_lock *lock, snib_queue *queue, uint64_t token, snib_op **out_op,
                          snib_error *err)
{
    struct question q = {.op = SNIB__OP_INFO, .queue = queue, .token = token, .out_op = out_op};
    return question_ask(lock, 0, &q, err);
}

int snib_lock_force_release(snib_lock *lock, snib_error *err)
{
    snib_event event;
    struct question q = {.op = SNIB__OP_FORCE, .slice = SNIB__NEVER, .out_event = &event};
    return question_ask(lock, 0, &q, err);
}

int snib_lock_force_release_submit(snib_lock *lock, snib_queue *queue, uint64_t token,
                                   snib_op **out_op, snib_error *err)
{
    struct question q = {.op = SNIB__OP_FORCE, .queue = queue, .token = token, .out_op = out_op};
    return question_ask(lock, 0, &q, err);
}

/* ---- counts ---- */

static int question_count(snib_lock *lock, int32_t kind, int32_t what, int64_t n,
                          int64_t *out_value, snib_error *err)
{
    snib_event event;
    struct question q = {
        .op = SNIB__OP_COUNT, .what = what, .n = n, .slice = SNIB__NEVER, .out_event = &event};
    int code = question_ask(lock, kind, &q, err);
    if (code == SNIB_OK && out_value)
        *out_value = event.count;
    return code;
}

static int question_count_submit(snib_lock *lock, int32_t kind, int32_t what, int64_t n,
                                 snib_queue *queue, uint64_t token, snib_op **out_op,
                                 snib_error *err)
{
    struct question q = {.op = SNIB__OP_COUNT,
                         .what = what,
                         .n = n,
                         .queue = queue,
                         .token = token,
                         .out_op = out_op};
    return question_ask(lock, kind, &q, err);
}

int snib_permits_count(snib_lock *permits, int32_t what, int64_t n, int64_t *out_value,
                       snib_error *err)
{
    return question_count(permits, SNIB_PERMITS, what, n, out_value, err);
}

int snib_permits_count_submit(snib_lock *permits, int32_t what, int64_t n, snib_queue *queue,
                              uint64_t token, snib_op **out_op, snib_error *err)
{
    return question_count_submit(permits, SNIB_PERMITS, what, n, queue, token, out_op, err);
}

int snib_semaphore_count(snib_lock *semaphore, int32_t what, int64_t n, int64_t *out_value,
                         snib_error *err)
{
    return question_count(semaphore, SNIB_SEMAPHORE, what, n, out_value, err);
}

int snib_semaphore_count_submit(snib_lock *semaphore, int32_t what, int64_t n, snib_queue *queue,
                                uint64_t token, snib_op **out_op, snib_error *err)
{
    return question_count_submit(semaphore, SNIB_SEMAPHORE, what, n, queue, token, out_op, err);
}

int snib_latch_count(snib_lock *latch, int32_t what, int64_t n, int64_t *out_value, snib_error *err)
{
    return question_count(latch, SNIB_LATCH, what, n, out_value, err);
}

int snib_latch_count_submit(snib_lock *latch, int32_t what, int64_t n, snib_queue *queue,
                            uint64_t token, snib_op **out_op, snib_error *err)
{
    return question_count_submit(latch, SNIB_LATCH, what, n, queue, token, out_op, err);
}

/* ---- queries to a client ---- */

/* A description, one step of a list or of loading, a client's identity, or server information, for all forms of the
 * call. */
struct question_texts {
    bool list, identity, load;
    int32_t server;   /* enum snib_server; 0: about names */
    int32_t kind;     /* load: enum snib_kind; 0: all */
    const char *text; /* the name; the pattern; the owner */
    size_t n, cap;
    uint64_t cursor;
    snib__time slice; /* 0: submit */
    snib_queue *queue;
    uint64_t token;
    snib_event *out_event;
    snib_op **out_op;
};

static struct snib__op *question_texts_start(struct snib__client *client,
                                             const struct question_texts *q, int32_t *out_code)
{
    struct snib__engine *engine = client->driver.engine;
    if (q->list)
        return snib__engine_list(engine, q->cursor, q->text, q->n, q->cap, snib__now(), out_code);
    if (q->load)
        return snib__engine_load(engine, q->kind, q->cursor, q->cap, snib__now(), out_code);
    if (q->server)
        return snib__engine_server(engine, q->server, q->cap, snib__now(), out_code);
    if (q->identity)
        return snib__engine_identity(engine, q->text, q->n, q->cap, snib__now(), out_code);
    return snib__engine_describe(engine, q->text, q->n, q->cap, snib__now(), out_code);
}

static int question_texts_run(struct snib__client *client, struct snib__queue *queue,
                              const struct question_texts *q, snib_error *err)
{
    int32_t code = SNIB_OK;
    if (queue && queue->client != client)
        return snib__fail_queue(err);
    if (q->slice == 0 && !queue && !q->out_op)
        return snib__fail_silent(err);
    snib__driver_enter(&client->driver);
    int error = client->stopped ? 0 : snib__driver_start(&client->driver);
    if (error) {
        snib__driver_leave(&client->driver);
        return snib__fail_system(err, "start the client's thread", error);
    }
    struct snib__run run = {client, queue, q->token, q->slice, false, q->out_op, NULL, 0, NULL};
    struct snib__op *op = question_texts_start(client, q, &code);
    code = snib__run(&run, op, code, q->out_event, err);
    return code == SNIB_AGAIN ? SNIB_OK : code;
}

static int question_client(snib_client *handle, const struct question_texts *q, snib_error *err)
{
    int32_t code;
    struct snib__queue *queue = NULL;
    if (!q->text && q->n)
        return snib__fail_null(err, q->list ? "pattern" : q->identity ? "owner" : "name");
    if (q->list && q->n > QUESTION_PATTERN_MAX)
        return snib__fail(err, SNIB_EINVAL, 0, "the pattern has %zu bytes; the limit is %d", q->n,
                          QUESTION_PATTERN_MAX);
    if (!q->list && !q->identity && !q->load && !q->server &&
        (code = snib__name_check(q->text, q->n, err)) != SNIB_OK)
        return code;
    struct snib__client *client = snib__client_enter(handle, err, &code);
    if (!client)
        return code;
    if (!q->queue || (queue = snib__queue_enter(q->queue, err, &code)))
        code = question_texts_run(client, queue, q, err);
    if (queue)
        snib__handle_put(q->queue);
    snib__handle_put(handle);
    return code;
}

/* The blocking forms: copy the texts into the caller's buffer. */
static int question_here(snib_client *handle, struct question_texts *q, char *buffer,
                         size_t *out_used, uint32_t *out_count, snib_error *err)
{
    snib_event event;
    if (!buffer || !out_used || !out_count)
        return snib__fail_null(err, !buffer ? "buffer" : out_used ? "out_count" : "out_used");
    if (q->cap < QUESTION_TEXTS_BYTES)
        return snib__fail(err, SNIB_EINVAL, 0, "the buffer has %zu bytes; it must have %d", q->cap,
                          (int)QUESTION_TEXTS_BYTES);
    q->slice = SNIB__NEVER;
    q->out_event = &event;
    int code = question_client(handle, q, err);
    if (code != SNIB_OK)
        return code;
    memcpy(buffer, event.texts->text, event.texts->used);
    *out_used = event.texts->used;
    *out_count = event.texts->count;
    q->cursor = event.texts->cursor;
    snib_texts_free(event.texts);
    return SNIB_OK;
}

int snib_client_list(snib_client *client, const char *pattern, size_t pattern_len, uint64_t *cursor,
                     char *buffer, size_t cap, size_t *out_used, uint32_t *out_count,
                     snib_error *err)
{
    if (!cursor)
        return snib__fail_null(err, "cursor");
    struct question_texts q = {
        .list = true, .text = pattern, .n = pattern_len, .cap = cap, .cursor = *cursor};
    int code = question_here(client, &q, buffer, out_used, out_count, err);
    *cursor = q.cursor;
    return code;
}

int snib_client_list_submit(snib_client *client, const char *pattern, size_t pattern_len,
                            uint64_t cursor, snib_queue *queue, uint64_t token, snib_op **out_op,
                            snib_error *err)
{
    struct question_texts q = {.list = true,
                               .text = pattern,
                               .n = pattern_len,
                               .cap = QUESTION_TEXTS_BYTES,
                               .cursor = cursor,
                               .queue = queue,
                               .token = token,
                               .out_op = out_op};
    return question_client(client, &q, err);
}

int snib_client_describe(snib_client *client, const char *name, size_t name_len, char *buffer,
                         size_t cap, size_t *out_used, uint32_t *out_count, snib_error *err)
{
    struct question_texts q = {.text = name, .n = name_len, .cap = cap};
    return question_here(client, &q, buffer, out_used, out_count, err);
}

int snib_client_describe_submit(snib_client *client, const char *name, size_t name_len,
                                snib_queue *queue, uint64_t token, snib_op **out_op,
                                snib_error *err)
{
    struct question_texts q = {.text = name,
                               .n = name_len,
                               .cap = QUESTION_TEXTS_BYTES,
                               .queue = queue,
                               .token = token,
                               .out_op = out_op};
    return question_client(client, &q, err);
}

int snib_client_identity(snib_client *client, const char *owner, size_t owner_len, char *buffer,
                         size_t cap, size_t *out_used, uint32_t *out_count, snib_error *err)
{
    struct question_texts q = {.identity = true, .text = owner, .n = owner_len, .cap = cap};
    return question_here(client, &q, buffer, out_used, out_count, err);
}

int snib_client_identity_submit(snib_client *client, const char *owner, size_t owner_len,
                                snib_queue *queue, uint64_t token, snib_op **out_op,
                                snib_error *err)
{
    struct question_texts q = {.identity = true,
                               .text = owner,
                               .n = owner_len,
                               .cap = QUESTION_TEXTS_BYTES,
                               .queue = queue,
                               .token = token,
                               .out_op = out_op};
    return question_client(client, &q, err);
}

int snib_client_server(snib_client *client, int32_t what, char *buffer, size_t cap,
                       size_t *out_used, uint32_t *out_count, snib_error *err)
{
    if (what < SNIB_SERVER_INFO || what > SNIB_SERVER_WAY)
        return snib__fail(err, SNIB_EINVAL, 0, "no such server query");
    struct question_texts q = {.server = what, .cap = cap};
    return question_here(client, &q, buffer, out_used, out_count, err);
}

int snib_client_load(snib_client *client, int32_t kind, uint64_t *cursor, char *buffer, size_t cap,
                     size_t *out_used, uint32_t *out_count, snib_error *err)
{
    if (!cursor)
        return snib__fail_null(err, "cursor");
    if (kind < 0 || kind > SNIB_LATCH)
        return snib__fail(err, SNIB_EINVAL, 0, "no such kind of lock");
    struct question_texts q = {.load = true, .kind = kind, .cap = cap, .cursor = *cursor};
    int code = question_here(client, &q, buffer, out_used, out_count, err);
    *cursor = q.cursor;
    return code;
}

void snib_texts_free(snib_texts *texts)
{
    free(texts);
}
