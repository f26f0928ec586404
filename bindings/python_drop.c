/* python_drop.c - what runs when an object is dropped, in C.
 *
 * A signal's handler may run, and raise, wherever Python code begins.  What it raises in a finalizer or in the
 * callback of a weak reference goes no further than to stderr: a Ctrl-C would be lost.  So nothing in Python runs
 * there as long as there is nothing to do; and what has to be done is done, whatever is raised. */
#include "python_calls.h"
#include <stdbool.h>

#define DROP_TRIES 3 /* signals in a row */

static PyObject *drop_stage_name, *drop_call_name, *drop_key_name;

/* It lies in a slot, so nothing in Python runs. */
int snib__py_stage(PyObject *self)
{
    PyObject *stage = PyObject_GetAttr(self, drop_stage_name);
    int number = stage ? (int)PyLong_AsLong(stage) : -1;
    if (!stage)
        PyErr_Clear(); /* it was never made */
    Py_XDECREF(stage);
    return number;
}

/* Call self._abandon() until it has done its work.  A Ctrl-C meanwhile comes a little later. */
static void drop_finalize(PyObject *self)
{
    PyObject *type, *value, *trace;
    bool interrupted = false;
    PyErr_Fetch(&type, &value, &trace);
    for (int i = 0; i < DROP_TRIES && snib__py_stage(self) == snib__py_owned; i++) {
        PyObject *done = PyObject_CallMethodObjArgs(self, drop_call_name, NULL);
        Py_XDECREF(done);
        if (done)
            break;
        if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
            PyErr_Clear();
            interrupted = true; /* and not again before it is done */
        } else {
            PyErr_WriteUnraisable(self);
        }
    }
    if (interrupted)
        PyErr_SetInterrupt();
    PyErr_Restore(type, value, trace);
}

static PyType_Slot drop_slots[] = {
    {Py_tp_finalize, (void *)(uintptr_t)drop_finalize},
    {0, NULL},
};

static PyType_Spec drop_spec = {
    .name = "snib._core.Droppable",
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = drop_slots,
};

/* Remove what the dict has at the key, if it is this value. */
static int drop_item(PyObject *names, PyObject *key, PyObject *value)
{
    PyObject *found = PyDict_GetItemWithError(names, key);

    return found == value ? PyDict_DelItem(names, key) : 0;
}

/* forget_dead(names, ref): remove what `names` has at ref.key, if that is this reference. */
static PyObject *call_forget_dead(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    PyObject *key;
    (void)module;
    if (snib__py_check_count(count, 2))
        return NULL;
    key = PyObject_GetAttr(args[1], drop_key_name);
    if (!key)
        return NULL;
    drop_item(args[0], key, args[1]);
    Py_DECREF(key);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* forget_member(groups, ref): likewise in the dict that `groups` has at ref.key[0], where it is at ref.key[1]; and that
 * dict when it is empty. */
static PyObject *call_forget_member(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    PyObject *key, *name, *member, *group = NULL;
    (void)module;
    if (snib__py_check_count(count, 2))
        return NULL;
    key = PyObject_GetAttr(args[1], drop_key_name);
    if (!key)
        return NULL;
    name = PyTuple_GetItem(key, 0);
    member = PyTuple_GetItem(key, 1);
    if (name && member)
        group = PyDict_GetItemWithError(args[0], name);
    Py_XINCREF(group);
    if (group && !drop_item(group, member, args[1]) && !PyErr_Occurred() && PyDict_Size(group) == 0)
        drop_item(args[0], name, group);
    Py_XDECREF(group);
    Py_DECREF(key);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef drop_calls[] = {
    {"forget_dead", SNIB__PY_FAST(call_forget_dead), METH_FASTCALL, NULL},
    {"forget_member", SNIB__PY_FAST(call_forget_member), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int snib__py_add_drop(PyObject *module)
{
    drop_stage_name = PyUnicode_InternFromString("_stage");
    drop_call_name = PyUnicode_InternFromString("_abandon");
    drop_key_name = PyUnicode_InternFromString("key");
    if (!drop_stage_name || !drop_call_name || !drop_key_name)
        return -1;
    if (PyModule_AddFunctions(module, drop_calls))
        return -1;
    return snib__py_add_type(module, "Droppable", &drop_spec);
}
