/* What a recording assumes of an input tensor, read through torch's C ABI: a few ns a fact. */
#ifndef MG_TENSOR_FACTS_H
#define MG_TENSOR_FACTS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include "runtime/process/torch_abi.h"

enum { MG_FACTS_FOLLOW = 8 };
#define MG_FACTS_ANY INT64_MIN
#define MG_FACTS_FREE (INT64_MIN + 1) /* 0 and 1 as well */
#define MG_FACTS_SOME (INT64_MIN + 2) /* 1 as well */
#define MG_FACTS_MOST (1LL << 40)

typedef struct MgFacts {
  PyTypeObject *type; /* borrowed: exact class; the guard set keeps it */
  uint64_t keyset; /* dispatch keys: layout, backend, conj/neg bits, functorch level; 0 when not readable */
  int32_t dtype, device; /* torch's numbers */
  int32_t device_index;
  int32_t layout;
  int32_t ndim;
  bool requires_grad;
  bool any_grad;    /* requires_grad is not compared */
  uint8_t unhooked; /* bit 0: has no gradient hooks; bit 1: no post accumulate hooks */
  bool sizeless;    /* of a class that may say otherwise: not compared */
  bool dynamic;     /* some sizes may differ: those are MG_FACTS_ANY, from 2 on; and so may strides */
  int8_t follow[MG_FACTS_FOLLOW]; /* dynamic: 1 + the dimension whose size and stride give this one's stride;
                                   * 0: fixed, or MG_FACTS_ANY; -1 - the dimension whose size times stride it
                                   * is greater than, too */
  int64_t dim[];                  /* ndim sizes, then ndim strides */
} MgFacts;
/* Is an entry of MgFacts.dim no number? */
static inline bool mg_facts_varies(int64_t dim) { return dim <= MG_FACTS_SOME; }

static inline MgTensor *mg_facts_tensor(PyObject *t) { return (MgTensor *)((char *)t + sizeof(PyObject)); }
/* Finds where TensorImpl keeps its dispatch keys by looking for known values; needs torch imported.  NULL or
 * what is wrong (static text). */
const char *mg_facts_init(void);
MgFacts *mg_facts_new(PyObject *tensor); /* malloc'ed; NULL when out of memory */
bool mg_facts_hold(const MgFacts *f, PyObject *tensor);
typedef struct MgFactsOf {
  PyObject *tensor;
  const MgFacts *facts;
} MgFactsOf; /* both borrowed */
/* Index of the first that does not hold; n: all hold. */
uint32_t mg_facts_hold_all(const MgFactsOf *p, uint32_t n);
bool mg_facts_equal(const MgFacts *a, const MgFacts *b);
/* "size 0: recorded 3, now 4" */
void mg_facts_explain(const MgFacts *f, PyObject *tensor, char *text, size_t n);
bool mg_facts_requires_grad(PyObject *tensor);
/* Its version counter, which its views share, to be read; NULL: inference tensors have none,
 * or not known where it is. */
uint32_t *mg_facts_version(PyObject *tensor);
int mg_facts_set_version(PyObject *tensor, int64_t n); /* -1 with an exception */
/* Count a write to the tensor, or to each of an iterable.  -1 with an exception. */
int mg_facts_count_write(PyObject *tensor);
int mg_facts_count_writes(PyObject *tensors);
/* Does it hold values of its own, rather than a batch of vmap's or what a subclass makes of it? */
bool mg_facts_in_memory(PyObject *tensor);
/* Has a plain strided tensor a storage?  The tensors inside of the vmap that
 * torch.autograd has of its own do not. */
bool mg_facts_is_dense(PyObject *tensor);
/* The dict of its gradient hooks, or of its post accumulate hooks, borrowed; NULL: there are none. */
PyObject *mg_facts_hooks(PyObject *tensor, bool accumulate);
bool mg_facts_learned(void);                         /* TensorImpl's fields are read in place */
int64_t mg_facts_distance(PyObject *a, PyObject *b); /* bytes from a's data to b's */
/* The bytes [lo, hi) that the elements of a strided tensor span; false when it has no memory. */
bool mg_facts_extent(PyObject *tensor, uintptr_t *lo, uintptr_t *hi);
/* `.grad` of a real tensor: borrowed from it, Py_None when it has none.  NULL with an exception. */
PyObject *mg_backward_grad_of(PyObject *tensor);
/* Is it an inference tensor?  -1 with an exception. */
int mg_standin_inference(PyObject *tensor);
bool mg_inference_mode_on(void); /* now */
#endif
