/* python_scope.c - what a `with` statement calls of a lock, a hold, a client or a fence, in C.
 *
 * A signal's handler runs between two steps of Python code, the first one of __exit__ included, and may raise there.
 * Here it cannot: what was acquired is given back, then its exception goes on.  The steps are in Python, and each can
 * be done twice; `slot` is a list that says how far they came.
 *
 * Two versions leave a gap.  In Python 3.10 a handler may run anywhere, and so also in the step that leads from hold() to
 * __enter__.  Since Python 3.14 `with` calls __enter__ like any function, and runs handlers as it has returned, before the
 * block begins (CPython's issue 148874): then nobody calls __exit__.  So each __enter__ has the handlers run itself as its
 * last step.  What is left are the few instructions from there to the return. */
#include "python_calls.h"
#include <stdbool.h>

#define SCOPE_TRIES 3 /* signals in a row */
#define SCOPE_ROOM 8  /* calls; the end of a block needs fewer at a time */

static PyObject *scope_enter_name, *scope_exit_name, *scope_gone_name;

/* Call self._leave(slot, failed) until it has come to its end, if something is held: by the block, or since before it.
 * The exception that is set stays. */
static void scope_leave(PyObject *self, PyObject *slot, bool held)
{
    PyObject *type, *value, *trace, *done = NULL;
    PyErr_Fetch(&type, &value, &trace);
    held = held || snib__py_stage(self) == snib__py_owned;
    for (int i = 0; held && i < SCOPE_TRIES && !done; i++) {
        done = PyObject_CallMethodObjArgs(self, scope_exit_name, slot, Py_True, NULL);
        PyErr_Clear();
    }
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace);
}

/* Whether there is room for the end of the block.  Near the limit of recursion the lock could be taken, but not given back,
 * and a program that survives its RecursionError would have it for ever.  (Since Python 3.12 the limit is one of Python
 * functions, of which __enter__ needs as many as __exit__.) */
static bool scope_has_room(void)
{
    int depth = 0;
    while (depth < SCOPE_ROOM && Py_EnterRecursiveCall(" at the beginning of a block") == 0)
        depth++;
    for (int i = 0; i < depth; i++)
        Py_LeaveRecursiveCall();
    return depth == SCOPE_ROOM;
}

static PyObject *scope_enter(PyObject *self, PyObject *unused)
{
    PyObject *slot = scope_has_room() ? PyList_New(0) : NULL, *hold = NULL;
    (void)unused;
    if (!slot)
        return NULL;
    hold = PyObject_CallMethodObjArgs(self, scope_enter_name, slot, NULL);
    if (hold && PyErr_CheckSignals())
        Py_CLEAR(hold);
    if (!hold)
        scope_leave(self, slot, PyList_Size(slot) > 0);
    Py_DECREF(slot);
    return hold;
}

static PyObject *scope_exit(PyObject *self, PyObject *args)
{
    PyObject *kind, *error, *trace, *slot, *done;
    if (!PyArg_UnpackTuple(args, "__exit__", 3, 3, &kind, &error, &trace))
        return NULL;
    slot = PyList_New(0);
    if (!slot)
        return NULL;
    done = PyObject_CallMethodObjArgs(self, scope_exit_name, slot,
                                      error == Py_None ? Py_False : Py_True, NULL);
    if (!done)
        scope_leave(self, slot, true);
    Py_DECREF(slot);
    return done;
}

/* The last step of the __enter__ of what is held already. */
static PyObject *scope_begin(PyObject *self)
{
    PyObject *slot;
    if (PyErr_CheckSignals() == 0)
        return Py_NewRef(self);
    slot = PyList_New(0);
    if (slot)
        scope_leave(self, slot, true);
    Py_XDECREF(slot);
    return NULL;
}

/* A hold is there already, so there is no other step that could be interrupted.  One that was released protects no block. */
static PyObject *scope_self(PyObject *self, PyObject *unused)
{
    PyObject *error;
    (void)unused;
    if (snib__py_stage(self) != snib__py_gone)
        return scope_begin(self);
    error = PyObject_CallMethodObjArgs(self, scope_gone_name, NULL);
    if (error)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return NULL;
}

static PyMethodDef scope_methods[] = {
    {"__enter__", scope_enter, METH_NOARGS, NULL},
    {"__exit__", scope_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef held_scope_methods[] = {
    {"__enter__", scope_self, METH_NOARGS, NULL},
    {"__exit__", scope_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot scope_slots[] = {
    {Py_tp_methods, scope_methods},
    {0, NULL},
};

static PyType_Slot held_scope_slots[] = {
    {Py_tp_methods, held_scope_methods},
    {0, NULL},
};

static PyType_Spec scope_spec = {
    .name = "snib._core.Scope",
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = scope_slots,
};

static PyType_Spec held_scope_spec = {
    .name = "snib._core.HeldScope",
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = held_scope_slots,
};

int snib__py_add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type)
        return -1;
    if (PyModule_AddObject(module, name, type) == 0)
        return 0;
    Py_DECREF(type);
    return -1;
}

int snib__py_add_scope(PyObject *module)
{
    scope_enter_name = PyUnicode_InternFromString("_enter");
    scope_exit_name = PyUnicode_InternFromString("_leave");
    scope_gone_name = PyUnicode_InternFromString("_given_back");
    if (!scope_enter_name || !scope_exit_name || !scope_gone_name)
        return -1;
    if (snib__py_add_type(module, "Scope", &scope_spec))
        return -1;
    return snib__py_add_type(module, "HeldScope", &held_scope_spec);
}
