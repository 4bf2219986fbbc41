/* Places in the program.
 * In: the frames that are being recorded.  Out: file and line for nodes, a name for plans.
 * Names of files are kept for ever, each once.  Generated code has none: every piece of it
 * may have a name of its own. */
#include "record/core/source_place.h"
#include <string.h>
#include "entry/guard/guard_set.h"
#include "entry/launch/config.h"
#include "entry/launch/trace.h"
#include "host/python/decode.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "ir/graph/graph.h"
#include "record/core/capture.h"
#include "record/core/loop.h"
#include "record/core/recording.h"
#include "runtime/process/torch_abi.h"
#include "tuning.h"

static PyObject *place_files; /* name of a file -> the same object */

static const char *place_file(PyCodeObject *co) {
  if (!place_files && !(place_files = PyDict_New()))
    return PyErr_Clear(), NULL; /* out of memory: the place is only shown */
  PyObject *kept = PyDict_GetItem(place_files, co->co_filename);
  if (!kept) kept = PyDict_SetDefault(place_files, co->co_filename, co->co_filename);
  const char *name = kept ? PyUnicode_AsUTF8(kept) : NULL;
  if (!name) return PyErr_Clear(), NULL; /* memory, or surrogates: it is only shown */
  const char *slash = strrchr(name, '/');
  return slash ? slash + 1 : name;
}

const char *mg_place_path(const char *file) {
  Py_ssize_t i = 0;
  PyObject *kept, *unused;
  while (file && place_files && PyDict_Next(place_files, &i, &unused, &kept)) {
    Py_ssize_t n;
    const char *path = PyUnicode_AsUTF8AndSize(kept, &n);
    if (!path) PyErr_Clear(); /* surrogates: no node names the file */
    else if (file >= path && file <= path + n) return path;
  }
  return NULL;
}

static bool place_generated(PyCodeObject *co) {
  return PyUnicode_GET_LENGTH(co->co_filename) == 0 || PyUnicode_READ_CHAR(co->co_filename, 0) == '<';
}

/* ---- backward: the line whose gradient it is ---- */

/* The number of the gradient node that the engine runs; -1: it runs none, or that is not known. */
static long place_engine_node(void) {
  static PyObject *current;
  if (!mg_abi.graph_task || mg_abi.graph_task() < 0) return -1;
  if (!current) {
    PyObject *m = mg_import("torch._C");
    current = m ? PyObject_GetAttrString(m, "_current_autograd_node") : NULL;
    Py_XDECREF(m);
  }
  PyObject *r = current ? PyObject_CallNoArgs(current) : NULL;
  if (r) Py_SETREF(r, r == Py_None ? NULL : PyObject_CallMethod(r, "_sequence_nr", NULL));
  long n = r ? PyLong_AsLong(r) : -1;
  Py_XDECREF(r);
  PyErr_Clear(); /* the place is only shown */
  return n;
}

/* The gradient node of an operation is made just before the operation is dispatched. */
static void place_note(const MgRec *r) {
  uint64_t next = mg_abi.gradient_number ? mg_abi.gradient_number() : 0;
  MgMap *m = &r->cap->gradient;
  if (next > 0 && mg_map_get(m, next + 1) == MG_MAP_NONE)
    mg_map_put(m, next + 1, r->g->nnode - 1); /* else it has no line */
}

/* The operation whose gradient node has number `at`; 0: unknown. */
static NodeRef place_forward(const MgRec *r, long at) {
  for (uint64_t i = 0; at >= 0 && i < MG_TUNE_PLACE_NEAR; i++) {
    uint32_t n = mg_map_get(&r->cap->gradient, (uint64_t)at + 2 + i);
    if (n != MG_MAP_NONE) return n < r->g->nnode ? n : 0;
  }
  return 0;
}

static const MgLoop *place_frame(const MgRec *r) {
  const MgLoop *l = r->top;
  while (l && mg_skip_is_torch(l->v.code)) l = l->up;
  return l ? l : r->top;
}

PyCodeObject *mg_place_code(const MgRec *r) {
  const MgLoop *at = place_frame(r);
  return at ? at->v.code : NULL;
}

uint32_t mg_place_at(const MgRec *r, const char **file) {
  const MgLoop *at = place_frame(r);
  *file = NULL;
  if (!at || !at->in) return r->line;
  if (!place_generated(at->v.code)) *file = place_file(at->v.code);
  int32_t line = at->code->line[at->in - at->code->instr];
  return line > 0 ? (uint32_t)line : 0;
}

uint32_t mg_place_now(const MgRec *r, const char **file) {
  if (!r->cap) return mg_place_at(r, file);
  NodeRef n = r->cap->gradient.n ? place_forward(r, place_engine_node()) : 0;
  if (!r->in_joint && mg_abi.aoti_torch_grad_mode_is_enabled()) place_note(r);
  if (!n || !mg_node(r->g, n)->line) return mg_place_at(r, file);
  *file = mg_node(r->g, n)->file;
  return mg_node(r->g, n)->line;
}

/* The function of the frame, or the class of the module that torch's code calls (_call_impl and the like). */
static const char *place_name(const MgSlots *frame) {
  PyCodeObject *code =
      frame->func && PyFunction_Check(frame->func) ? (PyCodeObject *)PyFunction_GET_CODE(frame->func) : NULL;
  PyObject *self = frame->n > 0 ? frame->slot[0] : NULL;
  if (!code) return "?";
  if (self && mg_skip_is_torch(code) && PyUnicode_READ_CHAR(code->co_name, 0) == '_') {
    const char *dot = strrchr(Py_TYPE(self)->tp_name, '.');
    return dot ? dot + 1 : Py_TYPE(self)->tp_name;
  }
  const char *name = PyUnicode_AsUTF8(code->co_qualname);
  if (!name) PyErr_Clear(); /* surrogates: it is only shown */
  return name ? name : "?";
}

const char *mg_place_name(const MgRec *r) {
  return r->name ? r->name : r->slots ? place_name(r->slots) : "stage";
}

const MgTrace *mg_rec_trace(const MgRec *r, MgTrace *t) {
  const MgCapture *cap = r->cap;
  *t = (MgTrace){.ctx = r->ctx,
                 .x = r->x,
                 .g = r->g,
                 .objs = cap->objs,
                 .function = cap->function,
                 .hooked = cap->hooked,
                 .joint = r->joint,
                 .input = cap->input,
                 .ninput = cap->ninput,
                 .opt = r->cfg ? &r->cfg->opt : NULL,
                 .name = mg_place_name(r),
                 .recording = r->recording,
                 .sym_src = cap->sizes.src,
                 .sym_of = cap->sizes.of,
                 .nsym = cap->sizes.nsrc};
  return t;
}
