/* See the header.  What is left is a tuple: the saved tensors, their versions (None: not checked),
 * the tangents that are done. */
#include "entry/grad/later_backward.h"
#include <stdlib.h>
#include "base/bits.h"
#include "entry/grad/joint_plans.h"
#include "entry/grad/undefined_tangents.h"
#include "host/python/glue.h"
#include "host/python/pyobject.h"
#include "ir/graph/joint_spec.h"

/* Has a pass over `done` freed something of tangent i? */
static bool gradleft_freed(const MgAutograd *a, const uint64_t *done, uint32_t i) {
  for (uint32_t k = 0; k < a->nthrough; k++)
    if (mg_bits_has(done, k) && mg_bits_has(a->mate + (size_t)a->words * k, i)) return true;
  return false;
}

/* The tangents of which nothing was freed. */
static void gradleft_remain(const MgAutograd *a, const uint64_t *done, uint64_t *remain) {
  memset(remain, 0, a->words * sizeof *remain);
  for (uint32_t i = 0; i < a->nthrough; i++)
    if (!gradleft_freed(a, done, i)) mg_bits_add(remain, i);
}

bool mg_gradleft_any(const MgAutograd *a, const uint64_t *done) {
  bool some = a->mate && a->kept && mg_bits_any(done, a->words), any = false;
  for (uint32_t i = 0; some && !any && i < a->nthrough; i++) any = !gradleft_freed(a, done, i);
  return any;
}

/* What stands for a saved tensor from now on: itself, inputs also for a second differentiation; a result
 * without its grad_fn, which is what keeps it; nothing where no pass that may come reads it: plans
 * for some tangents do not. */
static PyObject *gradleft_tensor(const MgSaved *s, PyObject *t, bool need) {
  if (s->kind == MG_SAVED_primal) return Py_NewRef(t);
  return need ? PyObject_CallMethod(t, "detach", NULL) : PyObject_CallMethod(t, "new_empty", "((i))", 0);
}

PyObject *mg_gradleft_new(const MgAutograd *a, PyObject *saved, const uint64_t *done) {
  PyObject *tensors = PyTuple_New(a->nsaved), *versions = PyTuple_New(a->nsaved), *left = NULL;
  bool *need = mg_calloc(a->nsaved + 1, sizeof *need);
  uint64_t *remain = mg_calloc(a->words, sizeof *remain);
  if (!need || !remain) PyErr_NoMemory();
  if (!tensors || !versions || !need || !remain) goto done;
  gradleft_remain(a, done, remain);
  if (mg_gradgiven_needs(a, remain, need)) goto done;
  for (uint32_t k = 0; k < a->nsaved; k++) {
    bool loose = a->saved[k].kind == MG_SAVED_primal && a->loose[a->saved[k].index];
    PyObject *t = gradleft_tensor(&a->saved[k], PyTuple_GET_ITEM(saved, k), need[k]), *v = NULL;
    if (!t) goto done;
    PyTuple_SET_ITEM(tensors, k, t);
    if (!loose && !(v = PyObject_GetAttrString(t, "_version")))
      PyErr_Clear(); /* inference tensors have none */
    PyTuple_SET_ITEM(versions, k, v ? v : Py_NewRef(Py_None));
  }
  left =
      Py_BuildValue("(OOy#)", tensors, versions, (const char *)done, (Py_ssize_t)(a->words * sizeof *done));
done:
  free(remain);
  free(need);
  Py_XDECREF(tensors);
  Py_XDECREF(versions);
  return left;
}

const uint64_t *mg_gradleft_done(PyObject *left) {
  return (const uint64_t *)(const void *)PyBytes_AS_STRING(PyTuple_GET_ITEM(left, 2));
}

/* Raises unless the tensor has the version it had. */
static int gradleft_check(PyObject *t, PyObject *version) {
  PyObject *m = mg_glue(GLUE_freed_graph),
           *r = m ? PyObject_CallMethod(m, "check_version", "OO", t, version) : NULL;
  Py_XDECREF(m);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

PyObject *mg_gradleft_saved(const MgAutograd *a, PyObject *left, const uint64_t *given) {
  PyObject *saved = PyTuple_GET_ITEM(left, 0), *versions = PyTuple_GET_ITEM(left, 1);
  bool freed = false;
  for (uint32_t i = 0; i < a->nthrough && !freed; i++)
    freed = mg_bits_has(given, i) && gradleft_freed(a, mg_gradleft_done(left), i);
  if (freed) {
    PyObject *m = mg_glue(GLUE_freed_graph), *r = m ? PyObject_CallMethod(m, "raise_freed", NULL) : NULL;
    Py_XDECREF(m);
    Py_XDECREF(r);
    return NULL;
  }
  bool *need = mg_calloc(a->nsaved + 1, sizeof *need);
  if (!need) return PyErr_NoMemory();
  int rc = mg_gradgiven_needs(a, given, need);
  for (uint32_t k = 0; !rc && k < a->nsaved; k++)
    if (need[k] && PyTuple_GET_ITEM(versions, k) != Py_None)
      rc = gradleft_check(PyTuple_GET_ITEM(saved, k), PyTuple_GET_ITEM(versions, k));
  free(need);
  return rc ? NULL : saved;
}
