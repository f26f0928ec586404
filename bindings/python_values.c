/* python_values.c - values that cross the border of snib._core: handles as capsules, text, options. */
#include "python_calls.h"

#include <stdio.h>
#include <string.h>

/* ---- Handles --------------------------------------------------------------------------------- */

#define DROP(kind)                                                                                 \
    static void kind##_drop(PyObject *capsule)                                                     \
    {                                                                                              \
        snib_##kind##_free(PyCapsule_GetPointer(capsule, "snib_" #kind));                          \
    }

#define CAPSULE(kind)                                                                              \
    PyObject *snib__py_##kind##_new(snib_##kind *handle)                                           \
    {                                                                                              \
        PyObject *capsule = PyCapsule_New(handle, "snib_" #kind, kind##_drop);                     \
        if (!capsule)                                                                              \
            snib_##kind##_free(handle);                                                            \
        return capsule;                                                                            \
    }                                                                                              \
    snib_##kind *snib__py_##kind##_get(PyObject *object)                                           \
    {                                                                                              \
        if (!PyCapsule_IsValid(object, "snib_" #kind))                                             \
            return NULL;                                                                           \
        return PyCapsule_GetPointer(object, "snib_" #kind);                                        \
    }

/* The context of a hold's capsule, once its release has begun, or once it was abandoned. */
static char given_back, abandoned;

/* A hold that no program got is released as often as it was acquired: freeing alone gives a re-entry's handle
 * back, and the lock would stay when its owner has released what it knows of. */
static void hold_drop(PyObject *capsule)
{
    snib_hold *hold = PyCapsule_GetPointer(capsule, "snib_hold");

    if (PyCapsule_GetContext(capsule) == &abandoned)
        return; /* and the handle with it */
    if (PyCapsule_GetContext(capsule) != &given_back)
        snib_hold_release_submit(hold, NULL, 0, NULL, NULL);
    snib_hold_free(hold);
}

DROP(client)
DROP(lock)
DROP(queue)
CAPSULE(client)
CAPSULE(lock)
CAPSULE(hold)
CAPSULE(queue)

int snib__py_begin_release(PyObject *object)
{
    if (!snib__py_hold_get(object))
        return 0;
    if (snib__py_is_given_back(object)) {
        snib__py_raise(SNIB_NOT_HELD, snib_code_text(SNIB_NOT_HELD), 0);
        return -1;
    }
    return PyCapsule_SetContext(object, &given_back);
}

void snib__py_undo_release(PyObject *object)
{
    if (snib__py_hold_get(object))
        PyCapsule_SetContext(object, NULL);
}

int snib__py_is_given_back(PyObject *object)
{
    return snib__py_hold_get(object) && PyCapsule_GetContext(object);
}

int snib__py_abandon(PyObject *object)
{
    snib_hold *hold = snib__py_hold_get(object);
    int state;

    if (!hold || PyCapsule_GetContext(object))
        return hold && PyCapsule_GetContext(object) == &abandoned;
    state = snib_hold_state(hold, NULL); /* in a forked child an error: the hold is the parent's */
    if (state != SNIB_HOLD_VALID && state != SNIB_HOLD_AT_RISK)
        return 0;
    PyCapsule_SetContext(object, &abandoned);
    snib_hold_abandon(hold);
    return 1;
}

PyObject *snib__py_op_new(snib_op *op)
{
    return PyLong_FromVoidPtr(op);
}

snib_op *snib__py_op_get(PyObject *object)
{
    void *op = PyLong_Check(object) ? PyLong_AsVoidPtr(object) : NULL;

    if (PyErr_Occurred())
        PyErr_Clear(); /* too large for any ticket: NULL */
    return op;
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* The core's texts are clean; whatever they were, this does not fail because of it. */
PyObject *snib__py_str(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static int not_a_str(PyObject *object, const char *what)
{
    /* Python 3.10 keeps each other string of that name in its cache of attributes. */
    PyObject *name = PyUnicode_InternFromString("__name__");
    PyObject *kind = name ? PyObject_GetAttr((PyObject *)Py_TYPE(object), name) : NULL;

    if (kind)
        PyErr_Format(PyExc_TypeError, "%s must be a str, not %S", what, kind);
    Py_XDECREF(kind);
    Py_XDECREF(name);
    return -1;
}

static int not_a_text(const char *what, const char *why, int32_t code)
{
    char sentence[128];

    snprintf(sentence, sizeof sentence, "the %s has %s", what, why);
    snib__py_raise(code, sentence, 0);
    return -1;
}

int snib__py_text(PyObject *object, const char *what, int32_t code, const char **out_text,
                  size_t *out_len)
{
    Py_ssize_t len;
    const char *text;

    if (!PyUnicode_Check(object))
        return not_a_str(object, what);
    text = PyUnicode_AsUTF8AndSize(object, &len);
    if (!text) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeError))
            return -1;
        PyErr_Clear();
        return not_a_text(what, "lone surrogates, which UTF-8 cannot express", code);
    }
    *out_text = text;
    *out_len = (size_t)len;
    return 0;
}

int snib__py_permits(PyObject *object, uint32_t *out_count)
{
    long long count = PyLong_AsLongLong(object);

    if (count == -1 && PyErr_Occurred())
        return -1;
    *out_count = count < 0 || count > UINT32_MAX ? 0 : (uint32_t)count; /* 0: the core refuses it */
    return 0;
}

int snib__py_text_nul(PyObject *object, const char *what, int32_t code, const char **out_text)
{
    size_t len;

    *out_text = NULL;
    if (object == Py_None)
        return 0;
    if (snib__py_text(object, what, code, out_text, &len))
        return -1;
    return strlen(*out_text) == len ? 0 : not_a_text(what, "a NUL character", code);
}

/* ---- Options --------------------------------------------------------------------------------- */

static int option_number(PyObject *value, int64_t *out)
{
    *out = PyLong_AsLongLong(value);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

int snib__py_client_options(PyObject *values, snib_client_options *out)
{
    Py_ssize_t at = 0;
    int64_t number;

    snib_client_options_init(out, sizeof *out);
    if (!PyTuple_Check(values)) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of options");
        return -1;
    }
    /* Beyond the end PyTuple_GetItem() has set the exception. */
#define NUMBER(field, type)                                                                        \
    (!(value = PyTuple_GetItem(values, at++)) || option_number(value, &number) ||                  \
     (out->field = (type)number, 0))
#define TEXT_OF(field)                                                                             \
    (!(value = PyTuple_GetItem(values, at++)) ||                                                   \
     snib__py_text_nul(value, #field, SNIB_EOPTION, &out->field))
#define DURATION_OF(field) NUMBER(field, int64_t)
#define COUNT_OF(field) NUMBER(field, int32_t)
#define CHOICE_OF(field) NUMBER(field, int32_t)
#define PATH_OF(field) TEXT_OF(field)
#define SECRET_OF(field) TEXT_OF(field)
#define X(name, field, kind, state, min, max, standard, words, text)                               \
    if (kind##_OF(field))                                                                          \
        return -1;
    PyObject *value;
#include "../core/api/options.def"
#undef X
    if (NUMBER(ask_credentials, int32_t))
        return -1;
    return 0;
}
