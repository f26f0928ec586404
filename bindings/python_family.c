/* python_family.c - the blocking calls that only some kinds of locks have: permits, semaphores and
 * latches. */
#include "python_calls.h"

typedef int permits_begin(snib_lock *lock, uint32_t count, int64_t wait_ms, int64_t slice_ms,
                          snib_queue *queue, uint64_t token, snib_hold **out_hold, snib_op **out_op,
                          snib_error *err);
typedef int count_submit(snib_lock *lock, int32_t what, int64_t n, snib_queue *queue,
                         uint64_t token, snib_op **out_op, snib_error *err);

/* ---- Permits --------------------------------------------------------------------------------- */

/* (lock, count, wait_ms) -> hold, or None if the wait ended first */
static PyObject *take_permits(permits_begin *begin, PyObject *const *args, Py_ssize_t count)
{
    snib_lock *lock;
    snib_hold *hold = NULL;
    snib_op *op = NULL;
    snib_error err;
    uint32_t permits;
    int64_t wait_ms;
    int rc;

    if (snib__py_check_count(count, 3) || snib__py_permits(args[1], &permits))
        return NULL;
    lock = snib__py_lock_get(args[0]);
    wait_ms = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS rc =
        begin(lock, permits, wait_ms, snib__py_slice_first_ms, NULL, 0, &hold, &op, &err);
    Py_END_ALLOW_THREADS return snib__py_acquired(rc, hold, op, &err);
}

static PyObject *call_permits_acquire(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return take_permits(snib_permits_acquire_begin, args, count);
}

static PyObject *call_semaphore_acquire(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return take_permits(snib_semaphore_acquire_begin, args, count);
}

/* ---- Counts ---------------------------------------------------------------------------------- */

/* (lock, what, n) -> the number */
static PyObject *count(count_submit *submit, PyObject *const *args, Py_ssize_t given)
{
    snib_op *op = NULL;
    snib_event event;
    snib_error err;
    int64_t n;
    int32_t what;
    int rc;

    if (snib__py_check_count(given, 3))
        return NULL;
    what = (int32_t)PyLong_AsLong(args[1]);
    n = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    rc = submit(snib__py_lock_get(args[0]), what, n, NULL, 0, &op, &err);
    if (snib__py_finish_submit(rc, op, &event, &err))
        return NULL;
    if (event.code != SNIB_OK)
        return snib__py_raise_event(&event);
    return PyLong_FromLongLong(event.count);
}

static PyObject *call_permits_count(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    return count(snib_permits_count_submit, args, given);
}

static PyObject *call_semaphore_count(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    return count(snib_semaphore_count_submit, args, given);
}

static PyObject *call_latch_count(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    return count(snib_latch_count_submit, args, given);
}

/* latch_wait(latch, wait_ms) -> True if the count is 0, False if the wait ended first */
static PyObject *call_latch_wait(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    snib_lock *latch;
    snib_op *op = NULL;
    snib_event event;
    snib_error err;
    int64_t wait_ms;
    int rc;

    (void)module;
    if (snib__py_check_count(given, 2))
        return NULL;
    latch = snib__py_lock_get(args[0]);
    wait_ms = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS rc =
        snib_latch_wait_begin(latch, wait_ms, snib__py_slice_first_ms, NULL, 0, &op, &err);
    Py_END_ALLOW_THREADS if (rc == SNIB_AGAIN)
    {
        if (snib__py_finish_submit(SNIB_OK, op, &event, &err))
            return NULL;
        if (event.code < 0 || event.code == SNIB_CANCELLED)
            return snib__py_raise_event(&event);
        rc = event.code;
    }
    if (rc == SNIB_OK)
        Py_RETURN_TRUE;
    if (rc == SNIB_BUSY || rc == SNIB_TIMEDOUT)
        Py_RETURN_FALSE;
    return snib__py_raise_error(&err);
}

PyMethodDef snib__py_family_calls[] = {
    {"permits_acquire", SNIB__PY_FAST(call_permits_acquire), METH_FASTCALL, NULL},
    {"permits_count", SNIB__PY_FAST(call_permits_count), METH_FASTCALL, NULL},
    {"semaphore_acquire", SNIB__PY_FAST(call_semaphore_acquire), METH_FASTCALL, NULL},
    {"semaphore_count", SNIB__PY_FAST(call_semaphore_count), METH_FASTCALL, NULL},
    {"latch_count", SNIB__PY_FAST(call_latch_count), METH_FASTCALL, NULL},
    {"latch_wait", SNIB__PY_FAST(call_latch_wait), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
