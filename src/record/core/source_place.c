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
#include "runtime/process/measure.h"
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

/* ---- backward, in reports: the line whose gradient it is ---- */

/* Calls a function of torch without arguments; an attribute of what it gives, called, if there is a name.  A
 * number, or -1. */
static long place_ask(PyObject **kept, const char *module, const char *name, const char *method) {
  if (!*kept) {
    PyObject *m = mg_import(module);
    *kept = m ? PyObject_GetAttrString(m, name) : NULL;
    Py_XDECREF(m);
  }
  PyObject *r = *kept ? PyObject_CallNoArgs(*kept) : NULL;
  if (r && method) Py_SETREF(r, r == Py_None ? NULL : PyObject_CallMethod(r, method, NULL));
  long n = r ? PyLong_AsLong(r) : -1;
  Py_XDECREF(r);
  PyErr_Clear(); /* the place is only shown */
  return n;
}

/* The gradient node of an operation is made just before the operation is dispatched. */
static void place_note(const MgRec *r) {
  static PyObject *fn;
  long next = place_ask(&fn, "torch._C._autograd", "_get_sequence_nr", NULL);
  MgMap *m = &r->cap->gradient;
  if (next > 0 && mg_map_get(m, (uint64_t)next + 1) == MG_MAP_NONE)
    mg_map_put(m, (uint64_t)next + 1, r->g->nnode - 1); /* else it has no line */
}

/* The operation whose gradient the engine computes; 0: unknown. */
static NodeRef place_forward(const MgRec *r) {
  static PyObject *fn;
  long at = place_ask(&fn, "torch._C", "_current_autograd_node", "_sequence_nr");
  for (int i = 0; at >= 0 && i < MG_TUNE_PLACE_NEAR; i++) {
    uint32_t n = mg_map_get(&r->cap->gradient, (uint64_t)at + 2 + (uint64_t)i);
    if (n != MG_MAP_NONE) return n;
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
  NodeRef n;
  if (mg_measure_on && r->cap) {
    if (!r->in_joint) {
      place_note(r);
    } else if ((n = place_forward(r))) {
      *file = mg_node(r->g, n)->file;
      return mg_node(r->g, n)->line;
    }
  }
  return mg_place_at(r, file);
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
