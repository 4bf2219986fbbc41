/* Versions and gradients of views that a run wrote to, as eager leaves them. */
#ifndef MG_VIEW_FIXUP_H
#define MG_VIEW_FIXUP_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgViewState MgViewState;

typedef struct View {
  uint32_t out, base; /* base: input, or ninput + result */
  bool grad;          /* made in grad mode */
} View;

typedef struct Version {
  uint32_t input, by;
} Version;

struct MgViewState {
  View *view;
  Version *version;
  uint32_t nview, nversion, ninput;
  bool joint; /* the forward run sets the counters, before it saves inputs for backward */
};
/* The attribute as torch has it: a stand-in's own says what the program sees. */
PyObject *mg_view_get(PyObject *t, int name);
PyObject *mg_view_name(int i);
int mg_view_number(PyObject *t, int64_t *n);
int mg_viewstate_before(const MgViewState *s, PyObject *const *in, int64_t *versions);
int mg_viewstate_count(const MgViewState *s, PyObject *const *in, const int64_t *versions);
/* After it: views of inputs and of other results get their base, counters are where eager leaves
 * them.  -1 with an exception. */
int mg_viewstate_after(const MgViewState *s, PyObject *const *in, const int64_t *versions, PyObject **outs);
void mg_viewstate_free(MgViewState *s); /* or NULL */
/* Before a run.  versions: room for mg_viewstate_versions numbers.  joint: those that the forward run of a
 * graph with backward sets itself, by mg_viewstate_count, before it saves inputs. */
uint32_t mg_viewstate_versions(const MgViewState *s, bool joint);
/* Another tensor over the same memory where out is of the wrong kind.  Steals out; NULL with an exception. */
PyObject *mg_inference_mode_remake(PyObject *out, bool inference);
/* Makes a fresh result require grad; its backward raises what torch raises for a freed graph.  Steals
 * t; NULL with an exception. */
PyObject *mg_backward_spent_result(PyObject *t);
#endif
