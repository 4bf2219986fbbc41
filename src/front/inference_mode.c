/* See the header.  A tensor is an inference tensor if inference mode was on when its memory was made; its views are, too.
 * In: ops that are recorded, the mode of that moment.  Out: marks by storage; results of a run made anew over their memory where
 * the mode of the run is another one than that of the op.  Breaks stand where torch refuses such a tensor. */
#include "front/inference_mode.h"
#include <stdlib.h>
#include "front/names.h"
#include "front/state.h"

bool mg_inference_mode_on(void) {
  MgTorchState now;
  mg_state_read(&now);
  return now.inference_mode;
}

bool mg_inference_mode_of(const MgCapture *cap, ValRef v) {
  uint32_t storage = mg_val(cap->rec->g, v)->storage;
  return storage < cap->cap_inference && cap->storage_inference[storage];
}

static int inference_mode_mark(MgCapture *cap, ValRef v) {
  uint32_t storage = mg_val(cap->rec->g, v)->storage, n = cap->cap_inference ? cap->cap_inference : 256;
  while (n <= storage) n *= 2;
  if (n > cap->cap_inference) {
    bool *p = mg_realloc(cap->storage_inference, n);
    if (!p) return PyErr_NoMemory(), -1;
    for (uint32_t i = cap->cap_inference; i < n; i++) p[i] = false;
    cap->storage_inference = p;
    cap->cap_inference = n;
  }
  cap->storage_inference[storage] = true;
  return 0;
}

int mg_inference_mode_input(MgCapture *cap, PyObject *tensor, ValRef v) {
  int yes = mg_standin_inference(tensor);
  return yes <= 0 ? yes : inference_mode_mark(cap, v);
}

typedef struct InferenceSeek { const MgCapture *cap; bool any; } InferenceSeek;

static void inference_mode_see(ValRef *v, void *arg) {
  InferenceSeek *s = arg;
  if (*v) s->any |= mg_inference_mode_of(s->cap, *v);
}

/* Outside of the mode: they are not saved for backward, and not written to. */
static int inference_mode_check(MgCapture *cap, NodeRef n, bool grad) {
  const MgGraph *g = cap->rec->g;
  InferenceSeek s = {cap, false};
  if (grad) mg_node_each_val(mg_node(g, n), inference_mode_see, &s);
  if (s.any) return mg_rec_break(BK_op, "an inference tensor in an op that autograd tracks"), -1;
  for (MgWritten t = {0}; mg_node_written(mg_node(g, n), &t);)
    if (mg_inference_mode_of(cap, t.v)) return mg_rec_break(BK_op, "a write to an inference tensor"), -1;
  return 0;
}

int mg_inference_mode_follow(MgCapture *cap, NodeRef n, bool grad) {
  MgGraph *g = cap->rec->g;
  if (!mg_inference_mode_on()) return cap->cap_inference ? inference_mode_check(cap, n, grad) : 0;
  for (int i = 0; i < mg_node(g, n)->nout; i++) {
    ValRef v = mg_node(g, n)->out[i];
    if (v && mg_val(g, v)->storage == v && inference_mode_mark(cap, v)) return -1;
  }
  return 0;
}

int mg_inference_mode_outputs(const MgRec *r, uint8_t **want) {
  bool now = mg_inference_mode_on();
  for (uint32_t i = 0; i < r->g->noutput; i++) {
    ValRef v = r->g->output[i];
    bool inference = mg_inference_mode_of(r->cap, v);
    if (inference == now || !mg_val(r->g, mg_val(r->g, v)->storage)->def) continue; /* memory of inputs: viewstate.c */
    if (!*want && !(*want = mg_calloc(r->g->noutput, sizeof **want))) return PyErr_NoMemory(), -1;
    (*want)[i] = 1 + inference;
  }
  return 0;
}

PyObject *mg_inference_mode_remake(PyObject *out, bool inference) {
  static PyObject *remake;
  int is = mg_standin_inference(out);
  if (is == inference) return out;
  if (!remake) {
    PyObject *m = mg_import("magneto.tensors");
    remake = m ? PyObject_GetAttrString(m, "inference_alias") : NULL;
    Py_XDECREF(m);
  }
  PyObject *r = is >= 0 && remake ? PyObject_CallFunctionObjArgs(remake, out, inference ? Py_True : Py_False, NULL) : NULL;
  Py_DECREF(out);
  return r;
}
