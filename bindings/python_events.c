/* python_events.c - queues: events as tuples, or straight into the futures of an asyncio loop.
 *
 * An event that was taken is told, whatever is the matter with another: what goes wrong with one is
 * its own result, or is raised when all of them are told. */
#include "python_calls.h"

enum { events_max = 64 }; /* of one drain: a loop should have other things to do */

/* What a finished operation is worth: a hold, an exception, an info's tuple, texts or None.  A count
 * comes as an info.  An info whose numbers are all 0 gives None too; the caller knows what it asked. */
static PyObject *event_value(const snib_event *event)
{
    if (event->code != SNIB_OK)
        return snib__py_event_error(event);
    if (event->hold)
        return snib__py_hold_new(event->hold);
    if (event->texts)
        return snib__py_texts(event->texts);
    if (event->held || event->count || event->waiting || event->fencing)
        return snib__py_info(event);
    Py_RETURN_NONE;
}

/* The exception that is set, as an object, and set no more. */
static PyObject *caught(void)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
}

/* Keep the first of the exceptions that belong to no operation. */
static void keep_trouble(PyObject **trouble)
{
    PyObject *value = caught();

    if (*trouble)
        Py_XDECREF(value);
    else
        *trouble = value;
}

/* Returns -1 if there was one, which is set. */
static int raise_trouble(PyObject *trouble)
{
    if (!trouble)
        return 0;
    PyErr_SetObject((PyObject *)Py_TYPE(trouble), trouble);
    Py_DECREF(trouble);
    return -1;
}

/* The value, in any case.  If it cannot be made, its operation came to the exception that says why.  But what is raised
 * while a failure's exception is made may come from a signal's handler, which may raise anything and has to do with no
 * operation: that is kept as trouble, and the exception made once more. */
static PyObject *told_value(snib_event *event, int *out_failed, PyObject **trouble)
{
    PyObject *value = event_value(event);

    if (!value && event->code != SNIB_OK && !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        keep_trouble(trouble);
        value = event_value(event);
    }
    *out_failed = !value;
    return value ? value : caught();
}

/* ---- Tuples ---------------------------------------------------------------------------------- */

/* DONE: (kind, token, code, value); an exception that is no snib.Error says why the value could not be made, whatever
 * the operation came to.  LOST: (kind, token, reason, hold_id() of the hold).  LOG: (kind, records dropped before it,
 * level, text). */
static PyObject *event_tuple(snib_event *event, PyObject **trouble)
{
    unsigned long long token = event->token;
    int32_t number = event->reason;
    PyObject *value;
    int failed;

    if (event->kind == SNIB_EVENT_LOST) {
        value = PyLong_FromVoidPtr(event->hold);
    } else if (event->kind == SNIB_EVENT_LOG) {
        token = (unsigned long long)event->count;
        value = snib__py_str(event->text);
    } else {
        value = told_value(event, &failed, trouble);
        number = failed ? SNIB_ENOMEM : event->code;
    }
    return Py_BuildValue("iKiN", (int)event->kind, token, (int)number, value);
}

/* The events, which the caller frees: threads may have stacks of 64 KiB, and these take more than half of one.  NULL with
 * an exception. */
static snib_event *take(PyObject *object, int *out_count)
{
    snib_event *events = PyMem_Malloc(events_max * sizeof *events);
    snib_error err;

    if (!events)
        return (snib_event *)PyErr_NoMemory();
    snib__py_rest_if_exiting();
    *out_count = snib_queue_drain(snib__py_queue_get(object), events, events_max, &err);
    if (*out_count >= 0)
        return events;
    PyMem_Free(events);
    snib__py_raise_error(&err);
    return NULL;
}

/* queue_drain(queue, list) -> the list, with the events appended, see event_tuple().  They are there too if a signal's
 * handler raises meanwhile. */
static PyObject *call_queue_drain(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    PyObject *trouble = NULL;
    snib_event *events;
    int count;

    (void)module;
    if (snib__py_check_count(given, 2))
        return NULL;
    if (!PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "expected a list");
        return NULL;
    }
    events = take(args[0], &count);
    if (!events)
        return NULL;
    for (int i = 0; i < count; i++) {
        PyObject *tuple = event_tuple(&events[i], &trouble);

        if (!tuple || PyList_Append(args[1], tuple))
            keep_trouble(&trouble);
        Py_XDECREF(tuple);
    }
    PyMem_Free(events);
    return raise_trouble(trouble) ? NULL : Py_NewRef(args[1]);
}

/* ---- Futures --------------------------------------------------------------------------------- */

/* The future that waits for a token, no longer waiting; NULL if there is none. */
static PyObject *future_take(PyObject *waiting, uint64_t token, PyObject **trouble)
{
    PyObject *key = PyLong_FromUnsignedLongLong(token);
    PyObject *future = key ? PyDict_GetItemWithError(waiting, key) : NULL;

    if (future) {
        Py_INCREF(future);
        if (PyDict_DelItem(waiting, key))
            keep_trouble(trouble);
    } else if (PyErr_Occurred()) {
        keep_trouble(trouble);
    }
    Py_XDECREF(key);
    return future;
}

static int future_done(PyObject *future)
{
    static PyObject *name;
    PyObject *answer = name || (name = PyUnicode_InternFromString("done"))
                           ? PyObject_CallMethodObjArgs(future, name, NULL)
                           : NULL;
    int done = answer ? PyObject_IsTrue(answer) : -1;

    Py_XDECREF(answer);
    return done;
}

/* set_result((code, value)), or set_exception(value) if it is no error of the core; takes the value. */
static int future_set(PyObject *future, int32_t code, PyObject *value, int failed)
{
    static PyObject *names[2];
    PyObject **name = &names[failed], *answer = NULL;
    PyObject *argument = failed ? value : Py_BuildValue("iN", (int)code, value);

    if (!*name)
        *name = PyUnicode_InternFromString(failed ? "set_exception" : "set_result");
    if (argument && *name)
        answer = PyObject_CallMethodObjArgs(future, *name, argument, NULL);
    Py_XDECREF(argument);
    Py_XDECREF(answer);
    return answer ? 0 : -1;
}

/* Give back what nobody waits for any more, without waiting for the answer. */
static void forget(const snib_event *event)
{
    if (event->hold)
        snib_hold_release_submit(event->hold, NULL, 0, NULL, NULL);
    snib_hold_free(event->hold);
    snib_texts_free(event->texts);
}

static void settle_done(snib_event *event, PyObject *waiting, PyObject **trouble)
{
    PyObject *future = future_take(waiting, event->token, trouble);
    int done = future ? future_done(future) : 1;
    PyObject *value;
    int failed;

    if (done < 0)
        keep_trouble(trouble);
    if (done) {
        forget(event);
    } else {
        value = told_value(event, &failed, trouble);
        if (future_set(future, event->code, value, failed))
            keep_trouble(trouble);
    }
    Py_XDECREF(future);
}

static void settle_lost(const snib_event *event, PyObject *lost, PyObject **trouble)
{
    PyObject *answer = PyObject_CallFunction(lost, "NO", PyLong_FromVoidPtr(event->hold), Py_True);

    if (!answer)
        keep_trouble(trouble);
    Py_XDECREF(answer);
}

/* queue_settle(queue, waiting, lost) -> how many events there were.  Each result goes to its future in
 * waiting, by token, as (code, value); lost(hold_id, True) is called for each loss. */
static PyObject *call_queue_settle(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    PyObject *trouble = NULL;
    snib_event *events;
    int count;

    (void)module;
    if (snib__py_check_count(given, 3))
        return NULL;
    if (!PyDict_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "expected a dict");
        return NULL;
    }
    events = take(args[0], &count);
    if (!events)
        return NULL;
    for (int i = 0; i < count; i++) {
        if (events[i].kind == SNIB_EVENT_DONE)
            settle_done(&events[i], args[1], &trouble);
        else if (events[i].kind == SNIB_EVENT_LOST)
            settle_lost(&events[i], args[2], &trouble);
    }
    PyMem_Free(events);
    return raise_trouble(trouble) ? NULL : PyLong_FromLong(count);
}

/* ---- The rest of a queue --------------------------------------------------------------------- */

/* queue_fd(queue) -> the descriptor to watch */
static PyObject *call_queue_fd(PyObject *module, PyObject *object)
{
    snib_error err;
    int fd = snib_queue_fd(snib__py_queue_get(object), &err);

    (void)module;
    return fd < 0 ? snib__py_raise_error(&err) : PyLong_FromLong(fd);
}

/* queue_cork(queue), queue_uncork(queue) - collect what a turn of the loop submits, then send it */
static PyObject *call_queue_cork(PyObject *module, PyObject *object)
{
    (void)module;
    snib_queue_cork(snib__py_queue_get(object));
    Py_RETURN_NONE;
}

static PyObject *call_queue_uncork(PyObject *module, PyObject *object)
{
    (void)module;
    snib_queue_uncork(snib__py_queue_get(object));
    Py_RETURN_NONE;
}

PyMethodDef snib__py_event_calls[] = {
    {"queue_fd", call_queue_fd, METH_O, NULL},
    {"queue_drain", SNIB__PY_FAST(call_queue_drain), METH_FASTCALL, NULL},
    {"queue_settle", SNIB__PY_FAST(call_queue_settle), METH_FASTCALL, NULL},
    {"queue_cork", call_queue_cork, METH_O, NULL},
    {"queue_uncork", call_queue_uncork, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
