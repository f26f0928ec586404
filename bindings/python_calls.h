/* python_calls.h - what the SWIG wrapper and the hand-written calls of snib._core share.
 *
 * Handles cross the border as capsules that give themselves back.  So an object that Python drops,
 * in whatever order, at interpreter exit or in a forked child, frees what it owned and never
 * blocks. A capsule of another kind, or no capsule at all, becomes NULL, and the core answers
 * SNIB_EHANDLE. */
#ifndef SNIB_PYTHON_CALLS_H
#define SNIB_PYTHON_CALLS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "snib.h"

/* Each takes the handle over, also when it fails. */
PyObject *snib__py_client_new(snib_client *handle);
PyObject *snib__py_lock_new(snib_lock *handle);
PyObject *snib__py_hold_new(snib_hold *handle);
PyObject *snib__py_queue_new(snib_queue *handle);

snib_client *snib__py_client_get(PyObject *object);
snib_lock *snib__py_lock_get(PyObject *object);
snib_hold *snib__py_hold_get(PyObject *object);
snib_queue *snib__py_queue_get(PyObject *object);

/* Operations are plain tickets: they end by themselves, so nobody has to own them. */
PyObject *snib__py_op_new(snib_op *op);
snib_op *snib__py_op_get(PyObject *object);

/* Set the Python exception that belongs to a result. */
void snib__py_raise(int32_t code, const char *text, int32_t os_error);

/* The UTF-8 of a str.  Returns -1 with TypeError for another type, or with the exception of `code`
 * for text that has no UTF-8 (lone surrogates). */
int snib__py_text(PyObject *object, int32_t code, const char **out_text, size_t *out_len);

/* The same for what C takes up to a NUL; None gives NULL. */
int snib__py_text_nul(PyObject *object, int32_t code, const char **out_text);

/* The calls that SWIG would make slower or could not express; see python_calls.c. */
extern PyMethodDef snib__py_calls[];

#endif
