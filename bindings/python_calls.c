/* python_calls.c - calls of snib._core that block, sit on the hot path, or return more than a number;
 * and their exceptions.
 *
 * A blocking call gives the GIL back once and stays in the core's fast synchronous path for one
 * slice. Only when that was not enough it goes on in slices of snib_op_wait() and looks for signals
 * between them, so that Ctrl-C always works; an operation that a signal ends is freed, and the core
 * takes back what it may still be granted. */
#include "python_calls.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    ns_per_ms = 1000000,
    slice_main_ms = 50,    /* how late the main thread looks for signals after the first slice */
    slice_other_ms = 1000, /* other threads never run signal handlers */
    rest_ms = 1000         /* more than an interpreter takes for what comes after the clients */
};

/* ---- Exceptions ------------------------------------------------------------------------------ */

static PyObject *
    error_factory; /* (code, text, os_error, reason, server) -> exception; set once by the package */

static PyObject *make_error(const snib_error *err)
{
    if (!error_factory)
        return PyObject_CallFunction(PyExc_RuntimeError, "N", snib__py_str(err->text));
    return PyObject_CallFunction(error_factory, "iNiiN", (int)err->code, snib__py_str(err->text),
                                 (int)err->os_error, err->code == SNIB_LOST ? (int)err->reason : 0,
                                 snib__py_str(err->server ? err->text + err->server : ""));
}

static snib_error event_error(const snib_event *event)
{
    snib_error err = {event->code, event->os_error, event->reason, event->server, ""};

    memcpy(err.text, event->text, sizeof err.text);
    return err;
}

PyObject *snib__py_event_error(const snib_event *event)
{
    const snib_error err = event_error(event);

    return make_error(&err);
}

static unsigned long main_thread; /* where Python runs the handlers of signals; the package says */

static int on_main_thread(void)
{
    return PyThread_get_thread_ident() == main_thread;
}

/* set_main_thread(ident) - again in each child of a fork */
static PyObject *call_set_main_thread(PyObject *module, PyObject *object)
{
    unsigned long ident = PyLong_AsUnsignedLong(object);

    (void)module;
    if (PyErr_Occurred())
        return NULL;
    main_thread = ident;
    Py_RETURN_NONE;
}

static int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t now_ms(void)
{
    return now_ns() / ns_per_ms;
}

static int64_t
    rest_until; /* set when clients are closed because the interpreter ends; by the GIL */

/* A daemon thread that would be told that its client was closed under it by the end of the
 * interpreter, or that its hold was lost by that, rests, as it would go on waiting in threading.Lock,
 * instead of failing noisily, or ending the process as if something had gone wrong.  Not for ever: an
 * exit handler may wait for it. */
void snib__py_rest_if_exiting(void)
{
    int64_t left = rest_until ? rest_until - now_ms() : 0;
    struct timespec ts = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000};

    if (left <= 0 || on_main_thread())
        return;
    Py_BEGIN_ALLOW_THREADS nanosleep(&ts, NULL);
    Py_END_ALLOW_THREADS
}

PyObject *snib__py_raise_error(const snib_error *err)
{
    PyObject *exception;

    if (err->code == SNIB_ECLOSED || err->code == SNIB_LOST)
        snib__py_rest_if_exiting();
    exception = make_error(err);
    if (!exception)
        return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF(exception);
    return NULL;
}

void snib__py_raise(int32_t code, const char *text, int32_t os_error)
{
    snib_error err = {.code = code, .os_error = os_error};

    snprintf(err.text, sizeof err.text, "%s", text);
    snib__py_raise_error(&err);
}

PyObject *snib__py_raise_event(const snib_event *event)
{
    const snib_error err = event_error(event);

    return snib__py_raise_error(&err);
}

static PyObject *call_set_errors(PyObject *module, PyObject *factory)
{
    (void)module;
    Py_INCREF(factory);
    Py_XDECREF(error_factory);
    error_factory = factory;
    Py_RETURN_NONE;
}

/* ---- Login ----------------------------------------------------------------------------------- */

/* A text of a login into cap bytes; -1 with an exception, which never shows it. */
static int login_text(PyObject *object, const char *what, char *out, size_t cap)
{
    const char *text;

    if (snib__py_text_nul(object, what, SNIB_EINVAL, &text))
        return -1;
    if (text && strlen(text) >= cap) {
        snib__py_raise(SNIB_EINVAL, "the user name or password is too long", 0);
        return -1;
    }
    memcpy(out, text ? text : "", text ? strlen(text) + 1 : 1);
    return 0;
}

/* client_login(client, number, username, password, valid_ms, why): why None: it is an answer */
static PyObject *call_client_login(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    snib_credentials *answer;
    snib_error err;
    const char *why;
    uint64_t number;
    int64_t valid_ms;
    int rc = -1;

    (void)module;
    if (snib__py_check_count(given, 6))
        return NULL;
    number = PyLong_AsUnsignedLongLong(args[1]);
    if (number == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    valid_ms = PyLong_AsLongLong(args[4]);
    if (PyErr_Occurred() || snib__py_text_nul(args[5], "why", SNIB_EINVAL, &why))
        return NULL;
    answer = calloc(1, sizeof *answer);
    if (!answer)
        return PyErr_NoMemory();
    answer->size = sizeof *answer;
    answer->valid_ms = valid_ms;
    if (why)
        snprintf(answer->why, sizeof answer->why, "%s", *why ? why : "no reason was given");
    if (!login_text(args[2], "username", answer->username, sizeof answer->username) &&
        !login_text(args[3], "password", answer->password, sizeof answer->password)) {
        rc = snib_client_login(snib__py_client_get(args[0]), number, answer, &err);
        if (rc != SNIB_OK)
            snib__py_raise_error(&err);
    }
    explicit_bzero(answer, sizeof *answer);
    free(answer);
    if (rc != SNIB_OK)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static int64_t slice_ms(void)
{
    return on_main_thread() ? slice_main_ms : slice_other_ms;
}

/* Waits for an operation without a queue.  Returns -1 with an exception set; the operation is gone
 * in either case. */
static int finish(snib_op *op, snib_event *event)
{
    int64_t slice = slice_ms();
    snib_error err;
    int rc = SNIB_AGAIN;

    while (rc == SNIB_AGAIN) {
        if (PyErr_CheckSignals()) {
            snib_op_free(op);
            return -1;
        }
        Py_BEGIN_ALLOW_THREADS rc = snib_op_wait(op, slice, event, &err);
        Py_END_ALLOW_THREADS
    }
    if (rc != SNIB_OK) {
        snib__py_raise_error(&err);
        return -1;
    }
    return 0;
}

/* Waits for what a submit without a queue started, and raises what it or its result says. */
int snib__py_finish_submit(int rc, snib_op *op, snib_event *event, const snib_error *err)
{
    if (rc != SNIB_OK) {
        snib__py_raise_error(err);
        return -1;
    }
    return finish(op, event);
}

int snib__py_check_count(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, not %zd", wanted, given);
    return -1;
}

/* ---- Blocking calls -------------------------------------------------------------------------- */

/* What the start of an acquisition came to: a hold, None if the wait ended first, or an exception;
 * after SNIB_AGAIN the operation is waited for. */
PyObject *snib__py_acquired(int rc, snib_hold *hold, snib_op *op, const snib_error *err)
{
    snib_event event;

    if (rc == SNIB_AGAIN) {
        if (finish(op, &event))
            return NULL;
        if (event.code < 0 || event.code == SNIB_CANCELLED)
            return snib__py_raise_event(&event);
        rc = event.code;
        hold = event.hold;
    }
    if (rc == SNIB_OK)
        return snib__py_hold_new(hold);
    if (rc == SNIB_BUSY || rc == SNIB_TIMEDOUT)
        Py_RETURN_NONE;
    return snib__py_raise_error(err);
}

/* acquire(lock, owner, wait_ms) -> hold, or None if the wait ended first */
static PyObject *call_acquire(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    snib_lock *lock;
    snib_hold *hold = NULL;
    snib_op *op = NULL;
    snib_error err;
    uint64_t owner;
    int64_t wait_ms;
    int rc;

    (void)module;
    if (snib__py_check_count(count, 3))
        return NULL;
    lock = snib__py_lock_get(args[0]);
    owner = PyLong_AsUnsignedLongLong(args[1]);
    wait_ms = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS rc = snib_lock_acquire_begin(
        lock, owner, wait_ms, snib__py_slice_first_ms, NULL, 0, &hold, &op, &err);
    Py_END_ALLOW_THREADS return snib__py_acquired(rc, hold, op, &err);
}

/* release(hold) - a caller that does not know whether an interrupted call came so far may call again, and is told
 * NotHeld if it did. */
static PyObject *call_release(PyObject *module, PyObject *object)
{
    snib_hold *hold = snib__py_hold_get(object);
    snib_op *op = NULL;
    snib_event event;
    snib_error err;
    int rc;

    (void)module;
    if (snib__py_begin_release(object))
        return NULL;
    Py_BEGIN_ALLOW_THREADS rc =
        snib_hold_release_begin(hold, snib__py_slice_first_ms, NULL, 0, &op, &err);
    Py_END_ALLOW_THREADS if (rc == SNIB_AGAIN)
    {
        if (finish(op, &event))
            return NULL;
        if (event.code != SNIB_OK)
            return snib__py_raise_event(&event);
        rc = SNIB_OK;
    }
    if (rc != SNIB_OK)
        return snib__py_raise_error(&err);
    Py_RETURN_NONE;
}

/* hold_release_submit(hold, queue, token) -> the operation; like release(), once for each capsule */
static PyObject *call_hold_release_submit(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    snib_queue *queue;
    snib_op *op = NULL;
    snib_error err;
    uint64_t token;

    (void)module;
    if (snib__py_check_count(count, 3))
        return NULL;
    queue = snib__py_queue_get(args[1]);
    if (!queue) {
        PyErr_SetString(PyExc_TypeError, "expected a queue");
        return NULL;
    }
    token = PyLong_AsUnsignedLongLong(args[2]);
    if (PyErr_Occurred() || snib__py_begin_release(args[0]))
        return NULL;
    if (snib_hold_release_submit(snib__py_hold_get(args[0]), queue, token, &op, &err) != SNIB_OK) {
        snib__py_undo_release(args[0]);
        return snib__py_raise_error(&err);
    }
    return snib__py_op_new(op);
}

/* extend(hold, lease_ms) */
static PyObject *call_extend(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    snib_hold *hold;
    snib_op *op = NULL;
    snib_event event;
    snib_error err;
    int64_t lease_ms;
    int rc;

    (void)module;
    if (snib__py_check_count(count, 2))
        return NULL;
    hold = snib__py_hold_get(args[0]);
    lease_ms = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS rc =
        snib_hold_extend_begin(hold, lease_ms, snib__py_slice_first_ms, NULL, 0, &op, &err);
    Py_END_ALLOW_THREADS if (rc == SNIB_AGAIN)
    {
        if (finish(op, &event))
            return NULL;
        if (event.code != SNIB_OK)
            return snib__py_raise_event(&event);
        rc = SNIB_OK;
    }
    if (rc != SNIB_OK)
        return snib__py_raise_error(&err);
    Py_RETURN_NONE;
}

/* ping(client, wait_ms) */
static PyObject *call_ping(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    int64_t wait_ms;
    snib_op *op = NULL;
    snib_event event;
    snib_error err;
    int rc;

    (void)module;
    if (snib__py_check_count(count, 2))
        return NULL;
    wait_ms = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    rc = snib_client_ping_submit(snib__py_client_get(args[0]), wait_ms, NULL, 0, &op, &err);
    if (snib__py_finish_submit(rc, op, &event, &err))
        return NULL;
    if (event.code != SNIB_OK)
        return snib__py_raise_event(&event);
    Py_RETURN_NONE;
}

PyObject *snib__py_info(const snib_event *event)
{
    return Py_BuildValue("NLLLNNL", PyBool_FromLong(event->held), (long long)event->remaining_ms,
                         (long long)event->count, (long long)event->waiting,
                         PyBool_FromLong(event->mine), snib__py_str(event->text),
                         (long long)event->fencing);
}

/* lock_info(lock) -> (held, remaining_ms, count, waiting, mine, owner, token) */
static PyObject *call_lock_info(PyObject *module, PyObject *object)
{
    snib_op *op = NULL;
    snib_event event;
    snib_error err;
    int rc = snib_lock_info_submit(snib__py_lock_get(object), NULL, 0, &op, &err);

    (void)module;
    if (snib__py_finish_submit(rc, op, &event, &err))
        return NULL;
    if (event.code != SNIB_OK)
        return snib__py_raise_event(&event);
    return snib__py_info(&event);
}

/* lock_force_release(lock) -> True if there was something to release */
static PyObject *call_lock_force_release(PyObject *module, PyObject *object)
{
    snib_op *op = NULL;
    snib_event event;
    snib_error err;
    int rc = snib_lock_force_release_submit(snib__py_lock_get(object), NULL, 0, &op, &err);

    (void)module;
    if (snib__py_finish_submit(rc, op, &event, &err))
        return NULL;
    if (event.code != SNIB_OK && event.code != SNIB_NOT_HELD)
        return snib__py_raise_event(&event);
    return PyBool_FromLong(event.code == SNIB_OK);
}

/* When a wait that begins now ends; a negative one never does. */
static int64_t until_ns(int64_t timeout_ms)
{
    int64_t now = now_ns();

    return timeout_ms < 0 || timeout_ms > (INT64_MAX - now) / ns_per_ms
               ? INT64_MAX
               : now + timeout_ms * ns_per_ms;
}

/* The next slice of that wait. */
static int64_t slice_until(int64_t until)
{
    int64_t left = until - now_ns(), slice = slice_ms();

    return left <= 0 ? 0 : left > slice * ns_per_ms ? slice : (left + ns_per_ms - 1) / ns_per_ms;
}

/* hold_wait(hold, timeout_ms) -> True if lost, False if released or the time is over */
static PyObject *call_hold_wait(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    int64_t timeout_ms, slice, until;
    snib_hold *hold;
    snib_error err;
    int rc;

    (void)module;
    if (snib__py_check_count(count, 2))
        return NULL;
    hold = snib__py_hold_get(args[0]);
    timeout_ms = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    until = until_ns(timeout_ms);
    do {
        slice = slice_until(until);
        Py_BEGIN_ALLOW_THREADS rc = snib_hold_wait(hold, slice, NULL, &err);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals()) return NULL;
    } while ((rc == SNIB_TIMEDOUT || rc == SNIB_AGAIN) && now_ns() < until &&
             !snib__py_is_given_back(args[0]));
    if (rc < 0)
        return snib__py_raise_error(&err);
    if (rc == SNIB_LOST)
        snib__py_rest_if_exiting();
    return PyBool_FromLong(rc == SNIB_LOST);
}

/* client_close(client, timeout_ms).  A signal cannot end it; the package runs it where that is
 * fine. */
static PyObject *call_client_close(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    snib_client *client;
    int64_t timeout_ms;
    snib_error err;
    int rc;

    (void)module;
    if (snib__py_check_count(count, 2))
        return NULL;
    client = snib__py_client_get(args[0]);
    timeout_ms = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS rc = snib_client_close(client, timeout_ms, &err);
    Py_END_ALLOW_THREADS if (rc != SNIB_OK) return snib__py_raise_error(&err);
    Py_RETURN_NONE;
}

/* close_at_exit(clients, timeout_ms) - closes a list of clients because the interpreter ends, within
 * timeout_ms for all.  Keeps the GIL: a daemon thread is not to go on under a lock that was released. */
static PyObject *call_close_at_exit(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    int64_t left, until;
    snib_error err; /* what cannot be released is ended by its lease */

    (void)module;
    if (snib__py_check_count(count, 2))
        return NULL;
    until = now_ms() + PyLong_AsLongLong(args[1]);
    for (Py_ssize_t i = 0; !PyErr_Occurred() && i < PyList_Size(args[0]); i++) {
        left = until - now_ms();
        snib_client_close(snib__py_client_get(PyList_GetItem(args[0], i)), left > 0 ? left : 0,
                          &err);
    }
    rest_until = now_ms() + rest_ms;
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

PyObject *snib__py_texts(snib_texts *texts)
{
    PyObject *list = PyList_New((Py_ssize_t)texts->count), *both;
    const char *text = texts->text;

    for (uint32_t i = 0; list && i < texts->count; i++) {
        PyObject *string = snib__py_str(text);

        if (!string || PyList_SetItem(list, (Py_ssize_t)i, string))
            Py_CLEAR(list);
        text += strlen(text) + 1;
    }
    both = list ? Py_BuildValue("KN", (unsigned long long)texts->cursor, list) : NULL;
    snib_texts_free(texts);
    return both;
}

/* Waits for texts. */
static PyObject *finish_texts(int rc, snib_op *op, const snib_error *err)
{
    snib_event event;

    if (snib__py_finish_submit(rc, op, &event, err))
        return NULL;
    if (event.code != SNIB_OK)
        return snib__py_raise_event(&event);
    return snib__py_texts(event.texts);
}

/* client_list(client, pattern, cursor) -> (cursor, names).  One step of the scan. */
static PyObject *call_client_list(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const char *pattern;
    size_t pattern_len;
    uint64_t cursor;
    snib_op *op = NULL;
    snib_error err;
    int rc;

    (void)module;
    if (snib__py_check_count(count, 3) ||
        snib__py_text(args[1], "pattern", SNIB_EINVAL, &pattern, &pattern_len))
        return NULL;
    cursor = PyLong_AsUnsignedLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    rc = snib_client_list_submit(snib__py_client_get(args[0]), pattern, pattern_len, cursor, NULL,
                                 0, &op, &err);
    return finish_texts(rc, op, &err);
}

/* client_describe(client, name) -> (0, lines) */
static PyObject *call_client_describe(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const char *name;
    size_t name_len;
    snib_op *op = NULL;
    snib_error err;
    int rc;

    (void)module;
    if (snib__py_check_count(count, 2) ||
        snib__py_text(args[1], "name", SNIB_ENAME, &name, &name_len))
        return NULL;
    rc = snib_client_describe_submit(snib__py_client_get(args[0]), name, name_len, NULL, 0, &op,
                                     &err);
    return finish_texts(rc, op, &err);
}

/* client_identity(client, owner) -> (0, lines) */
static PyObject *call_client_identity(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const char *owner;
    size_t owner_len;
    snib_op *op = NULL;
    snib_error err;
    int rc;

    (void)module;
    if (snib__py_check_count(count, 2) ||
        snib__py_text(args[1], "owner", SNIB_EINVAL, &owner, &owner_len))
        return NULL;
    rc = snib_client_identity_submit(snib__py_client_get(args[0]), owner, owner_len, NULL, 0, &op,
                                     &err);
    return finish_texts(rc, op, &err);
}

/* client_set_label(client, label): the label is a text, or None */
static PyObject *call_client_set_label(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const char *label;
    snib_error err;

    (void)module;
    if (snib__py_check_count(count, 2) || snib__py_text_nul(args[1], "label", SNIB_EINVAL, &label))
        return NULL;
    if (snib_client_set_label(snib__py_client_get(args[0]), label, &err) != SNIB_OK)
        return snib__py_raise_error(&err);
    Py_RETURN_NONE;
}

/* ---- Holds ----------------------------------------------------------------------------------- */

/* hold_id(hold) -> the number that its LOST event brings */
static PyObject *call_hold_id(PyObject *module, PyObject *object)
{
    (void)module;
    return PyLong_FromVoidPtr(snib__py_hold_get(object));
}

/* hold_drop(object) - release without waiting for the answer; what is no hold is left alone. */
static PyObject *call_hold_drop(PyObject *module, PyObject *object)
{
    snib_hold *hold = snib__py_hold_get(object);

    (void)module;
    if (!hold)
        Py_RETURN_NONE;
    if (snib__py_begin_release(object))
        return NULL;
    snib_hold_release_submit(hold, NULL, 0, NULL, NULL);
    Py_RETURN_NONE;
}

/* hold_abandon(hold) -> whether it was forgotten while it was held: it is not released, and its lease runs out.  May be
 * called again, with the same answer. */
static PyObject *call_hold_abandon(PyObject *module, PyObject *object)
{
    (void)module;
    return PyBool_FromLong(snib__py_abandon(object));
}

/* ---- Statistics ------------------------------------------------------------------------------ */

static PyObject *numbers_tuple(const uint64_t *numbers, size_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);

    for (size_t i = 0; tuple && i < count; i++)
        PyTuple_SetItem(tuple, (Py_ssize_t)i, PyLong_FromUnsignedLongLong(numbers[i]));
    return tuple;
}

/* client_stats(client) -> (counters, wait_time, hold_time, more), in the order of snib_client_stats_data:
 * the counters lie between its head and its histograms, and more of them behind. */
static PyObject *call_client_stats(PyObject *module, PyObject *object)
{
    snib_client_stats_data data = {.size = sizeof data};
    size_t first = offsetof(snib_client_stats_data, acquisitions);
    size_t count = (offsetof(snib_client_stats_data, wait_time) - first) / sizeof(uint64_t);
    size_t more =
        (sizeof data - offsetof(snib_client_stats_data, lost_failover)) / sizeof(uint64_t);
    snib_error err;

    (void)module;
    if (snib_client_stats(snib__py_client_get(object), &data, &err) != SNIB_OK)
        return snib__py_raise_error(&err);
    return Py_BuildValue("NNNN", numbers_tuple(&data.acquisitions, count),
                         numbers_tuple(data.wait_time, SNIB_HISTOGRAM_BUCKETS),
                         numbers_tuple(data.hold_time, SNIB_HISTOGRAM_BUCKETS),
                         numbers_tuple(&data.lost_failover, more));
}

/* ---- The option debug ------------------------------------------------------------------------ */

static PyObject *call_client_debugs(PyObject *module, PyObject *object)
{
    snib_client_options options;
    snib_error err;

    (void)module;
    snib_client_options_init(&options, sizeof options);
    if (snib_client_get_options(snib__py_client_get(object), &options, &err) != SNIB_OK)
        return snib__py_raise_error(&err);
    return PyBool_FromLong(options.debug > 0);
}

/* debug_here(place, actor) - place None: not known */
static PyObject *call_debug_here(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const char *place = NULL;
    uint64_t actor;

    (void)module;
    if (snib__py_check_count(count, 2))
        return NULL;
    actor = PyLong_AsUnsignedLongLong(args[1]);
    if (actor == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    if (snib__py_text_nul(args[0], "place", SNIB_EINVAL, &place))
        return NULL;
    snib_debug_here(place, actor);
    Py_RETURN_NONE;
}

PyMethodDef snib__py_calls[] = {
    {"acquire", SNIB__PY_FAST(call_acquire), METH_FASTCALL, NULL},
    {"release", call_release, METH_O, NULL},
    {"hold_release_submit", SNIB__PY_FAST(call_hold_release_submit), METH_FASTCALL, NULL},
    {"extend", SNIB__PY_FAST(call_extend), METH_FASTCALL, NULL},
    {"ping", SNIB__PY_FAST(call_ping), METH_FASTCALL, NULL},
    {"lock_info", call_lock_info, METH_O, NULL},
    {"lock_force_release", call_lock_force_release, METH_O, NULL},
    {"hold_wait", SNIB__PY_FAST(call_hold_wait), METH_FASTCALL, NULL},
    {"client_close", SNIB__PY_FAST(call_client_close), METH_FASTCALL, NULL},
    {"close_at_exit", SNIB__PY_FAST(call_close_at_exit), METH_FASTCALL, NULL},
    {"client_list", SNIB__PY_FAST(call_client_list), METH_FASTCALL, NULL},
    {"client_describe", SNIB__PY_FAST(call_client_describe), METH_FASTCALL, NULL},
    {"client_identity", SNIB__PY_FAST(call_client_identity), METH_FASTCALL, NULL},
    {"client_set_label", SNIB__PY_FAST(call_client_set_label), METH_FASTCALL, NULL},
    {"hold_id", call_hold_id, METH_O, NULL},
    {"hold_drop", call_hold_drop, METH_O, NULL},
    {"hold_abandon", call_hold_abandon, METH_O, NULL},
    {"client_stats", call_client_stats, METH_O, NULL},
    {"client_debugs", call_client_debugs, METH_O, NULL},
    {"debug_here", SNIB__PY_FAST(call_debug_here), METH_FASTCALL, NULL},
    {"client_login", SNIB__PY_FAST(call_client_login), METH_FASTCALL, NULL},
    {"set_errors", call_set_errors, METH_O, NULL},
    {"set_main_thread", call_set_main_thread, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
