/* snib.i - the private module snib._core: functions over handles, numbers, text and tuples.
 *
 * SWIG wraps only the functions named here; the classes of the package are written by hand.
 * Calls that block, sit on the hot path or return structs are in python_calls.c, python_family.c
 * and python_events.c. */
%module(package="snib") _core

%{
#include "python_calls.h"

enum { members_max = 100 }; /* of snib_multi_new() */

static snib_lock_options snib__py_options(int64_t lease_ms, int64_t max_hold_ms, uint32_t flags)
{
    snib_lock_options options;

    snib_lock_options_init(&options, sizeof options);
    options.lease_ms = lease_ms;
    options.max_hold_ms = max_hold_ms;
    options.flags = flags;
    return options;
}
%}

/* The exceptions belong to the interpreter that set them. */
%init %{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "snib cannot be used in a sub-interpreter; use the main one (with mod_wsgi: "
                        "WSGIApplicationGroup %{GLOBAL})");
        return -1;
    }
    if (PyModule_AddFunctions(m, snib__py_calls) ||
        PyModule_AddFunctions(m, snib__py_family_calls) ||
        PyModule_AddFunctions(m, snib__py_event_calls) || snib__py_add_scope(m) ||
        snib__py_add_drop(m))
        return -1;
%}

%include <stdint.i>

%nothread;
%rename("$ignore", regextarget=1, fullname=1) "";
%define %wrap(name)
%rename("%(strip:[snib_])s") snib_##name;
%enddef

/* ---- Typemaps ------------------------------------------------------------------------------- */

/* A result other than SNIB_OK raises; the error is the last argument, so outputs are set first. */
%typemap(out) int { $result = Py_NewRef(Py_None); }
%typemap(in, numinputs=0) snib_error *err (snib_error error) { $1 = &error; }
%typemap(argout) snib_error *err {
    if (result != SNIB_OK) {
        Py_DECREF($result);
        snib__py_raise_error($1);
        SWIG_fail;
    }
}

%define %handle(kind)
%typemap(in) snib_##kind * { $1 = snib__py_##kind##_get($input); }
%typemap(in, numinputs=0) snib_##kind **out_##kind (snib_##kind *handle) { $1 = &handle; }
%typemap(argout) snib_##kind **out_##kind {
    if (result == SNIB_OK) {
        Py_DECREF($result);
        $result = snib__py_##kind##_new(*$1);
    }
}
%enddef
%handle(client)
%handle(lock)
%handle(hold)
%handle(queue)
%handle(op)

%typemap(in) uint32_t count {
    if (snib__py_permits($input, &$1))
        SWIG_fail;
}

/* The members of one lock over several: a tuple.  The core refuses too many. */
%typemap(in) (snib_lock *const *locks, uint32_t n) (snib_lock *members[members_max + 1]) {
    if (!PyTuple_Check($input)) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of locks");
        SWIG_fail;
    }
    for ($2 = 0; $2 <= members_max && $2 < (uint32_t)PyTuple_Size($input); $2++)
        members[$2] = snib__py_lock_get(PyTuple_GetItem($input, (Py_ssize_t)$2));
    $1 = members;
}

/* Without its queue, the result of a submit would be lost. */
%typemap(in) snib_queue *queue {
    $1 = snib__py_queue_get($input);
    if (!$1) {
        PyErr_SetString(PyExc_TypeError, "expected a queue");
        SWIG_fail;
    }
}

/* SWIG's variables have no const. */
%typemap(in) (const char *name, size_t name_len) (const char *text) {
    if (snib__py_text($input, "name", SNIB_ENAME, &text, &$2))
        SWIG_fail;
    $1 = (char *)text;
}
%typemap(in) (const char *owner, size_t owner_len) (const char *text) {
    if (snib__py_text($input, "owner", SNIB_EINVAL, &text, &$2))
        SWIG_fail;
    $1 = (char *)text;
}
%typemap(in) (const char *pattern, size_t pattern_len) (const char *text) {
    if (snib__py_text($input, "pattern", SNIB_EINVAL, &text, &$2))
        SWIG_fail;
    $1 = (char *)text;
}
%typemap(in) const char *url (const char *text) {
    if (snib__py_text_nul($input, "url", SNIB_EURL, &text))
        SWIG_fail;
    $1 = (char *)text;
}
%typemap(freearg) const char *url "";
%typemap(in) const snib_client_options *options (snib_client_options given) {
    if (snib__py_client_options($input, &given))
        SWIG_fail;
    $1 = &given;
}

/* Text that the core writes into the caller's buffer. */
%typemap(in, numinputs=0) char out[ANY] (char buffer[$1_dim0]) { $1 = buffer; }
%typemap(argout) char out[ANY] {
    if (result == SNIB_OK) {
        Py_DECREF($result);
        $result = PyUnicode_FromString($1);
    }
}

/* Functions that answer with a number >= 0 or with an error code. */
%typemap(out) int snib_hold_state, int64_t snib_hold_remaining_ms, int64_t snib_hold_token, int64_t snib_hold_replicas {
    if (result < 0) {
        snib__py_raise((int32_t)result, snib_code_text((int32_t)result), 0);
        SWIG_fail;
    }
    $result = PyLong_FromLongLong((long long)result);
}
%exception snib_hold_state {
    $action
    if (result == SNIB_HOLD_LOST)
        snib__py_rest_if_exiting();
}
%exception snib_hold_remaining_ms {
    $action
    if (result == 0)
        snib__py_rest_if_exiting();
}
%typemap(in, numinputs=0) int32_t *out_reason (int32_t reason) { reason = 0; $1 = &reason; }
%typemap(argout) int32_t *out_reason {
    $result = Py_BuildValue("Ni", $result, (int)*$1);
}
%typemap(out) int snib_op_cancel { $result = PyBool_FromLong(result == SNIB_OK); }
%typemap(out) int snib_code_is { $result = PyBool_FromLong(result); }

/* ---- What is wrapped ------------------------------------------------------------------------ */

/* A lock's options are arguments, a client's are a tuple; 0 and None mean the core's defaults. */
%wrap(client_open)
%rename("lock_new") snib__py_lock_new_named;
%rename("multi_new") snib__py_multi_new;
%rename("quorum_new") snib__py_quorum_new;
%inline %{
static int snib__py_lock_new_named(snib_client *client, int32_t kind, const char *name,
                                   size_t name_len, int64_t lease_ms, int64_t max_hold_ms,
                                   uint32_t flags, snib_lock **out_lock, snib_error *err)
{
    snib_lock_options options = snib__py_options(lease_ms, max_hold_ms, flags);

    return snib_lock_new(client, kind, name, name_len, &options, out_lock, err);
}

static int snib__py_multi_new(snib_lock *const *locks, uint32_t n, int64_t lease_ms,
                              int64_t max_hold_ms, snib_lock **out_lock, snib_error *err)
{
    snib_lock_options options = snib__py_options(lease_ms, max_hold_ms, 0);

    return snib_multi_new(locks, n, &options, out_lock, err);
}

static int snib__py_quorum_new(snib_lock *const *locks, uint32_t n, int64_t lease_ms,
                               int64_t max_hold_ms, uint32_t flags, snib_lock **out_lock,
                               snib_error *err)
{
    snib_lock_options options = snib__py_options(lease_ms, max_hold_ms, flags);

    return snib_quorum_new(locks, n, &options, out_lock, err);
}
%}

%wrap(code_name)
%wrap(code_text)
%wrap(code_is)
%wrap(reason_text)
%wrap(advance_clock)
%wrap(version_number)
%wrap(version_string)
%wrap(build_id)
%wrap(features)
%wrap(client_id)
%wrap(client_credentials)
%wrap(client_describe_submit)
%wrap(client_identity_submit)
%wrap(client_list_submit)
%wrap(client_log)
%wrap(client_ping_submit)
%wrap(lock_acquire_submit)
%wrap(lock_info_submit)
%wrap(lock_force_release_submit)
%wrap(permits_acquire_submit)
%wrap(permits_count_submit)
%wrap(semaphore_acquire_submit)
%wrap(semaphore_count_submit)
%wrap(latch_count_submit)
%wrap(latch_wait_submit)
%wrap(hold_state)
%wrap(hold_check)
%wrap(hold_remaining_ms)
%wrap(hold_token)
%wrap(hold_replicas)
%wrap(hold_owner)
%wrap(hold_extend_submit)
%wrap(op_cancel)
%wrap(queue_new)
%wrap(queue_wake)
#define SNIB_API
%include "snib.h"
