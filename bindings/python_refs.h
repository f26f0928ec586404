/* python_refs.h - references that are real in every Python that the module runs in; comes before all else.
 *
 * Since Python 3.12 None, True and False are immortal, and the headers since then return them without
 * a reference, for the limited API of older versions too.  Where the module runs they may be counted, and
 * the interpreter ends when it has given back the last one.  So the macros are set anew, once, for the
 * hand-written calls and for what SWIG generates. */
#ifndef SNIB_PYTHON_REFS_H
#define SNIB_PYTHON_REFS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#undef Py_RETURN_NONE
#undef Py_RETURN_TRUE
#undef Py_RETURN_FALSE
#undef Py_RETURN_NOTIMPLEMENTED
#define Py_RETURN_NONE return Py_NewRef(Py_None)
#define Py_RETURN_TRUE return Py_NewRef(Py_True)
#define Py_RETURN_FALSE return Py_NewRef(Py_False)
#define Py_RETURN_NOTIMPLEMENTED return Py_NewRef(Py_NotImplemented)

#endif
