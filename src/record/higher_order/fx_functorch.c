/* See the header.
 * In: calls of the functions below, wrappers of torch.func.  Out: nodes of the FX graph.
 * What such a function calls itself is not shown: their recording is quiet. */
#include "record/higher_order/fx_functorch.h"
#include <stdio.h>
#include <string.h>
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"

/* Functions that are calls of the graph.  Where one calls another of them, the outer one is:
 * versions of torch differ. */
static const struct {
  const char *module, *names;
} fxfunc_rows[] = {
    {"torch._C", "_enter_dual_level _exit_dual_level"},
    {"torch._C._functorch", "_grad_increment_nesting _grad_decrement_nesting _jvp_increment_nesting "
                            "_jvp_decrement_nesting _vmap_increment_nesting "
                            "_vmap_decrement_nesting _wrap_for_grad _unwrap_for_grad _add_batch_dim "
                            "_remove_batch_dim set_inplace_requires_grad_allowed"},
    {"torch._functorch.predispatch",
     "_add_batch_dim _remove_batch_dim _vmap_increment_nesting _vmap_decrement_nesting "
     "_jvp_increment_nesting _jvp_decrement_nesting "
     "_unwrap_for_grad _make_dual _unpack_dual _enter_dual_level _exit_dual_level lazy_load_decompositions"},
    {"torch._functorch.eager_transforms", "_set_tensor_requires_grad _autograd_grad"},
    {"torch.autograd.forward_ad", "_maybe_load_decompositions"},
};

static MgMap fxfunc_known; /* function -> 1 */

static int fxfunc_learn(PyObject *module, const char *names) {
  char name[64];
  for (const char *p = names; *p;) {
    size_t n = strcspn(p, " ");
    snprintf(name, sizeof name, "%.*s", (int)n, p);
    p += n + strspn(p + n, " ");
    PyObject *f = PyObject_GetAttrString(module, name);
    if (!f) PyErr_Clear(); /* of another version of torch */
    else if (mg_map_putp(&fxfunc_known, f, 1)) return PyErr_NoMemory(), -1;
  } /* the functions live as long as the process: the map is by address */
  return 0;
}

static bool fxfunc_is(PyObject *f) {
  static bool done;
  for (size_t i = 0; !done && i < sizeof fxfunc_rows / sizeof *fxfunc_rows; i++) {
    PyObject *m = mg_import(fxfunc_rows[i].module);
    if (m) fxfunc_learn(m, fxfunc_rows[i].names);
    Py_XDECREF(m);
    mg_clear_as_no();
  }
  done = true;
  return mg_map_getp(&fxfunc_known, f) != MG_MAP_NONE;
}

bool mg_fxfunc_call(const MgCall *c, PyObject **out) {
  MgRec *r = mg_rec;
  MgCapture *cap = r->cap;
  if (cap->quiet || mg_fx_is_aten(cap) || !(PyCFunction_Check(c->f) || PyFunction_Check(c->f)) ||
      !fxfunc_is(c->f))
    return false;
  PyObject *args = mg_call_args(c), *kw = args ? mg_call_kwargs(c) : NULL;
  MgFxCall call = {0};
  MgPause pause = mg_rec_pause();
  int rc = args && kw ? mg_fx_before(cap, args, kw, &call) : -1;
  mg_rec_resume(pause);
  call.keep = true;
  cap->quiet = true;
  *out = rc ? NULL : mg_ops.call(c->f, c->arg, c->nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, c->kwnames);
  cap->quiet = false;
  pause = mg_rec_pause();
  if (*out && mg_fx_after(cap, c->f, args, kw, &call, *out)) Py_CLEAR(*out);
  mg_rec_resume(pause);
  mg_fx_drop(&call);
  Py_XDECREF(args);
  Py_XDECREF(kw);
  return true;
}
