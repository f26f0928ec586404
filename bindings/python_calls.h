/* python_calls.h - what the SWIG wrapper and the hand-written calls of snib._core share.
 *
 * Handles cross the border as capsules that give themselves back.  So an object that Python drops,
 * in whatever order, at interpreter exit or in a forked child, frees what it owned and never
 * blocks. A capsule of another kind, or no capsule at all, becomes NULL, and the core answers
 * SNIB_EHANDLE. */
#ifndef SNIB_PYTHON_CALLS_H
#define SNIB_PYTHON_CALLS_H

#include "python_refs.h"

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

/* Note that the release of a hold begins: once for each capsule, for re-entries share a hold.  Returns -1 with NotHeld
 * if it has begun before.  What is no hold is left to the core to refuse. */
int snib__py_begin_release(PyObject *object);
void snib__py_undo_release(PyObject *object); /* it has not begun after all */

/* Whether the release has begun, or the hold was abandoned. */
int snib__py_is_given_back(PyObject *object);

/* Abandon a hold that nobody released or lost, once for each capsule.  Returns whether it is abandoned. */
int snib__py_abandon(PyObject *object);

/* Operations are plain tickets: they end by themselves, so nobody has to own them. */
PyObject *snib__py_op_new(snib_op *op);
snib_op *snib__py_op_get(PyObject *object);

/* Set the Python exception that belongs to a result. */
void snib__py_raise(int32_t code, const char *text, int32_t os_error);

/* The UTF-8 of a str.  Returns -1 with TypeError for another type, or with the exception of `code`
 * for text that has no UTF-8 (lone surrogates); `what` is the parameter, as they name it. */
int snib__py_text(PyObject *object, const char *what, int32_t code, const char **out_text,
                  size_t *out_len);

/* The same for what C takes up to a NUL; None gives NULL. */
int snib__py_text_nul(PyObject *object, const char *what, int32_t code, const char **out_text);

/* A client's options: a tuple of numbers and of texts or None, in the order of core/api/options.def. */
int snib__py_client_options(PyObject *values, snib_client_options *out);

/* A str of what the core says; never a UnicodeDecodeError. */
PyObject *snib__py_str(const char *text);

/* A number of permits.  Returns -1 with an exception if it is none that C could carry. */
int snib__py_permits(PyObject *object, uint32_t *out_count);

/* ---- Blocking calls -------------------------------------------------------------------------- */

enum {
    snib__py_slice_first_ms = 70 /* in the fast path; below 50 ms the core needs a timer for it */
};

int snib__py_check_count(Py_ssize_t given, Py_ssize_t wanted);

/* Each sets the exception and returns NULL. */
PyObject *snib__py_raise_error(const snib_error *err);
PyObject *snib__py_raise_event(const snib_event *event);

/* Waits for what a submit without a queue started.  Returns -1 with an exception set. */
int snib__py_finish_submit(int rc, snib_op *op, snib_event *event, const snib_error *err);

/* The hold, None, or NULL with an exception, for what an acquire_begin() came to. */
PyObject *snib__py_acquired(int rc, snib_hold *hold, snib_op *op, const snib_error *err);

/* ---- Values of events ------------------------------------------------------------------------ */

PyObject *snib__py_info(const snib_event *event);        /* see lock_info() in _core.pyi */
PyObject *snib__py_event_error(const snib_event *event); /* the exception; it is not set */
PyObject *snib__py_texts(snib_texts *texts);             /* (cursor, list of str); frees them */

/* Stand still for a while if the interpreter ends and this is not its main thread. */
void snib__py_rest_if_exiting(void);

/* ---- The calls that SWIG would make slower or could not express ------------------------------ */

/* METH_FASTCALL has a signature of its own. */
#define SNIB__PY_FAST(call) (PyCFunction)(void (*)(void))(call)

extern PyMethodDef snib__py_calls[];        /* python_calls.c: what every kind of lock has */
extern PyMethodDef snib__py_family_calls[]; /* python_family.c: permits, semaphores, latches */
extern PyMethodDef snib__py_event_calls[];  /* python_events.c: queues */
int snib__py_add_scope(PyObject *module);   /* python_scope.c: `with` */
int snib__py_add_drop(PyObject *module);    /* python_drop.c: what is dropped */
int snib__py_add_type(PyObject *module, const char *name, PyType_Spec *spec);

/* self._stage of a hold, as _hold.py names them; -1 if it has none. */
enum { snib__py_owned = 1, snib__py_gone = 3 };
int snib__py_stage(PyObject *self);

#endif
