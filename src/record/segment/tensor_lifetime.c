/* Begin and end of a recording: tensors and torch's state. */
#include "record/segment/tensor_lifetime.h"
#include <time.h>
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/source.h"
#include "entry/guard/source_kinds.h"
#include "entry/launch/config.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/dispatch/dispatch.h"
#include "record/fx/fx.h"
#include "record/fx/fx_modes.h"
#include "record/object/wrap.h"
#include "record/segment/process_state.h"
#include "record/symbolic/number.h"
#include "record/symbolic/size_promises.h"
#include "record/symbolic/sizes.h"
#include "record/symbolic/unbacked.h"
#include "record/tensor/function_modes.h"
#include "record/tensor/mode_stack.h"
#include "record/tensor/standin.h"
#include "record/tensor/view_state.h"
#include "tuning.h"

/* ---- questions ---- */

static void symsize_guard(MgCapture *cap, int op, SymRef a, SymRef b, bool yes) {
  SrcRef src = mg_symsize_calc(cap, op, a, b);
  if (src) mg_guard_add(cap->rec->guards, GK_calc, src, yes ? Py_True : Py_False, 0);
}

/* Equal by a guard; a note that is lost for want of memory only makes slower code. */
static void symsize_note(MgCapture *cap, SymRef a, SymRef b) {
  MgSymSizes *s = &cap->sizes;
  if (s->nequal == s->cap_equal && !mg_grow(&s->equal, &s->cap_equal, sizeof *s->equal, 16)) return;
  s->equal[s->nequal++] = (MgSymEqual){a, b};
}

static int symsize_compare(void *of, SymRef a, SymRef b) {
  MgCapture *cap = of;
  if (mg_symdata_in(cap, a) || mg_symdata_in(cap, b)) return mg_symdata_compare(cap, a, b);
  int64_t p = mg_sym_hint(cap->rec->x, a), q = mg_sym_hint(cap->rec->x, b);
  symsize_guard(cap, p < q ? CALC_lt : p > q ? CALC_gt : CALC_eq, a, b, true);
  if (p == q) symsize_note(cap, a, b), mg_promise_equal(cap, a, b);
  return p < q ? -1 : p > q;
}

static bool symsize_less(void *of, SymRef a, SymRef b) {
  MgCapture *cap = of;
  if (mg_symdata_in(cap, a) || mg_symdata_in(cap, b)) return mg_symdata_compare(cap, a, b) < 0;
  bool less = mg_sym_hint(cap->rec->x, a) < mg_sym_hint(cap->rec->x, b);
  symsize_guard(cap, CALC_lt, a, b, less);
  return less;
}

static bool symsize_equal(void *of, SymRef a, SymRef b) {
  MgCapture *cap = of;
  if (mg_symdata_in(cap, a) || mg_symdata_in(cap, b)) return mg_symdata_equal(cap, a, b);
  bool same = mg_sym_hint(cap->rec->x, a) == mg_sym_hint(cap->rec->x, b);
  symsize_guard(cap, CALC_eq, a, b, same);
  if (same) symsize_note(cap, a, b), mg_promise_equal(cap, a, b);
  return same;
}

static bool symsize_late(void *of, SymRef e) { return mg_symdata_in(of, e); }

static int64_t symsize_value(void *of, SymRef e) {
  MgCapture *cap = of;
  if ((cap->sizes.inputs || cap->sizes.own) && cap->sizes.probe)
    return mg_sym_eval(cap->rec->x, e, cap->sizes.probe);
  if (mg_symdata_in(cap, e)) return mg_symdata_value(cap, e);
  int64_t v = mg_sym_hint(cap->rec->x, e);
  PyObject *k = mg_symsize_int_in(cap, v);
  SrcRef src = mg_symsize_src(cap, e);
  if (src && k) mg_symnode_expect(cap, src, k);
  return v;
}

void mg_symsize_end(MgCapture *cap) {
  Py_CLEAR(cap->sizes.ints);
  Py_CLEAR(cap->sizes.shown);
  free(cap->sizes.src);
  free(cap->sizes.ref);
  free(cap->sizes.equal);
  free(cap->sizes.of);
  free(cap->sizes.bound);
  free(cap->sizes.fact);
  mg_map_free(&cap->sizes.node);
  mg_map_free(&cap->sizes.by_src);
  mg_map_free(&cap->sizes.expr);
  mg_map_free(&cap->sizes.calc);
  cap->rec->x->ask = NULL;
}

void mg_symsize_begin(MgCapture *cap, bool off) {
  cap->sizes.ask =
      (MgSizeAsk){symsize_compare, symsize_equal, symsize_value, symsize_late, cap->rec->guards ? cap : NULL};
  cap->sizes.ask.less = symsize_less;
  cap->rec->x->ask = cap->rec->guards ? &cap->sizes.ask : NULL;
  cap->sizes.off = off;
  int setting = cap->rec->cfg ? cap->rec->cfg->dynamic : 0;
  cap->sizes.all =
      !off && (setting == 1 || (setting < 0 && !mg_symsize_config("assume_static_by_default", true)));
}

int mg_fmodes_begin(MgCapture *cap, PyObject *ours) {
  Py_ssize_t n = mg_fmodes_depth();
  if (!(cap->fmodes = PyList_New(0))) return -1;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *m = mg_fmodes_at(i);
    if (!m || PyList_Append(cap->fmodes, m)) return -1;
  }
  cap->fmodes_known = true;
  if (!ours) return 0;
  PyObject *r = NULL;
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!(r = mg_fmodes_call("_pop_torch_function_stack", NULL))) return -1;
    Py_DECREF(r);
  }
  if (!(r = mg_fmodes_call("_push_on_torch_function_stack", ours))) return -1;
  Py_DECREF(r);
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!(r = mg_fmodes_call("_push_on_torch_function_stack", PyList_GET_ITEM(cap->fmodes, i)))) return -1;
    Py_DECREF(r);
  }
  return 0;
}

void mg_fmodes_restore(MgCapture *cap) {
  PyObject *t, *v, *tb;
  if (!cap->fmodes_known) return;
  PyErr_Fetch(&t, &v, &tb);
  if (!mg_fmodes_same(cap, 0)) {
    mg_fmodes_leave();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(cap->fmodes); i++)
      mg_fmodes_insist("_push_on_torch_function_stack", PyList_GET_ITEM(cap->fmodes, i));
  }
  PyErr_Restore(t, v, tb);
}

int mg_fmodes_wrap(MgRec *r) {
  PyObject *list = r->cap->fmodes;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *seen = mg_wrap(PyList_GET_ITEM(list, i), mg_source(r->guards, SRC_fmode, 0, (int32_t)i, NULL));
    if (!seen) return -1;
    Py_DECREF(seen);
  }
  return 0;
}

/* ---- life of a recording ---- */

static long standin_call_long(const char *name) {
  PyObject *r = PyObject_CallMethod(mg_standin_c, name, NULL);
  long n = r ? PyLong_AsLong(r) : -1;
  Py_XDECREF(r);
  return n;
}

/* For undoing: what failed for want of memory is tried again, since a mode that stays on
 * the stack breaks every op. */
static PyObject *standin_insist(PyObject *f, const char *name, PyObject *arg) {
  for (int i = 0;; i++) {
    PyObject *r = name && !arg ? PyObject_CallMethod(f, name, NULL) : PyObject_CallOneArg(f, arg);
    if (r || i == 8 || !PyErr_ExceptionMatches(PyExc_MemoryError)) return r;
    PyErr_Clear(); /* MemoryError: tried again */
  }
}

static long standin_stack_len(const char *name) {
  PyObject *r = standin_insist(mg_standin_c, name, NULL);
  long n = r ? PyLong_AsLong(r) : -1;
  Py_XDECREF(r);
  return n;
}

static long standin_functorch_depth(void) {
  PyObject *f = PyObject_GetAttrString(mg_standin_c, "_functorch"), *r = NULL;
  if (f) r = PyObject_CallMethod(f, "get_dynamic_layer_stack_depth", NULL);
  long n = r ? PyLong_AsLong(r) : -1;
  if (!r) PyErr_Clear(); /* an older torch without it: nothing to undo */
  Py_XDECREF(f);
  Py_XDECREF(r);
  return n;
}

/* The level of forward-mode differentiation; -1: none. */
static long standin_forward_level(void) {
  PyObject *m = PyImport_GetModule(mg_names.forward_ad),
           *r = m ? PyObject_GetAttr(m, mg_names.current_level) : NULL;
  long n = r ? PyLong_AsLong(r) : -1;
  if (!r) mg_clear_as_no();
  Py_XDECREF(m);
  Py_XDECREF(r);
  return n;
}

static void standin_functorch_undo(long depth) {
  PyObject *f = PyObject_GetAttrString(mg_standin_c, "_functorch"), *r = NULL;
  if (f) r = PyObject_CallMethod(f, "pop_dynamic_layer_stack_and_undo_to_depth", "l", depth);
  Py_XDECREF(f);
  Py_XDECREF(r);
}

static PyObject *standin_save_autocast(void) {
  PyObject *cache = PyObject_CallMethod(mg_standin_c, "is_autocast_cache_enabled", NULL),
           *save = PyList_New(0);
  if (!cache || !save || PyList_Append(save, cache)) goto fail;
  Py_CLEAR(cache);
  for (size_t i = 0; i < 2; i++) {
    const char *dev = mg_standin_autocast_devices[i];
    PyObject *on = PyObject_CallMethod(mg_standin_c, "is_autocast_enabled", "s", dev);
    PyObject *dt = on ? PyObject_CallMethod(mg_standin_c, "get_autocast_dtype", "s", dev) : NULL;
    int bad = !dt || PyList_Append(save, on) || PyList_Append(save, dt);
    Py_XDECREF(on);
    Py_XDECREF(dt);
    if (bad) goto fail;
  }
  return save;
fail:
  Py_XDECREF(cache);
  Py_XDECREF(save);
  return NULL;
}

static void standin_restore_autocast(PyObject *save) {
  PyObject *r =
      PyObject_CallMethod(mg_standin_c, "set_autocast_cache_enabled", "O", PyList_GET_ITEM(save, 0));
  Py_XDECREF(r);
  for (Py_ssize_t i = 0; i < 2; i++) {
    const char *dev = mg_standin_autocast_devices[i];
    PyObject *on = PyList_GET_ITEM(save, 1 + 2 * i), *dt = PyList_GET_ITEM(save, 2 + 2 * i);
    Py_XDECREF(PyObject_CallMethod(mg_standin_c, "set_autocast_enabled", "sO", dev, on));
    Py_XDECREF(PyObject_CallMethod(mg_standin_c, "set_autocast_dtype", "sO", dev, dt));
  }
}

/* While a stand-in is saved for backward, the user's hooks on saved tensors are ignored;
 * torch's own tracers do the same. */
static int standin_ignore_hooks(bool on) {
  PyObject *m = mg_import("torch._C._autograd");
  PyObject *r =
      m ? PyObject_CallMethod(m, "_saved_tensors_hooks_set_tracing", "O", on ? Py_True : Py_False) : NULL;
  int was = r ? PyObject_IsTrue(r) : -1;
  if (!r && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear(); /* a torch without this function */
    was = on;
  }
  Py_XDECREF(m);
  Py_XDECREF(r);
  return was;
}

int mg_standin_begin(MgRec *r) {
  MgCapture *cap = mg_calloc(1, sizeof *cap);
  if (!cap) return PyErr_NoMemory(), -1;
  r->cap = cap;
  cap->rec = r;
  mg_symsize_begin(cap, mg_retry_denied(r, RETRY_sizes) || !r->guards);
  if (!(cap->objs = PyList_New(0))) return -1;
  cap->modes_before = standin_call_long("_len_torch_dispatch_stack");
  cap->functorch_unused = mg_state_functorch_unused();
  cap->functorch_before = cap->functorch_unused ? 0 : standin_functorch_depth();
  if (PyErr_Occurred()) return -1;
  /* A mode of the user must see every op as it happens, and tensors inside vmap or grad are wrappers. */
  if (cap->modes_before > 0) return mg_rec_break(BK_dispatch_mode, "a torch dispatch mode is active"), -1;
  if (cap->functorch_before > 0) return mg_rec_break(BK_functorch, "called inside torch.func or vmap"), -1;
  if (standin_forward_level() >= 0)
    return mg_rec_break(BK_forward_mode, "forward-mode differentiation is active"), -1;
  /* Compiled calls make one node for many of eager's, and a recording makes more. */
  if (mg_state_node_hooks())
    return mg_rec_break(BK_node_hook, "torch.autograd.graph.node_creation_hook is active"), -1;
  cap->autocast_depth = mg_state_autocast_depth();
  if (!(cap->autocast = standin_save_autocast())) return -1;
  if (!(cap->mode = mg_dispatch_mode_new(cap))) return -1;
  cap->function_state = mg_state_function(-1);
  cap->begun = true; /* from here on mg_standin_end undoes */
  cap->grad_was_on = mg_abi.aoti_torch_grad_mode_is_enabled();
  /* Anomaly mode looks at values and at Python's stack; the runs of what is recorded obey it. */
  cap->anomaly_was_on = mg_abi.anomaly_enabled && *mg_abi.anomaly_enabled;
  if (cap->anomaly_was_on) *mg_abi.anomaly_enabled = false;
  if (mg_procstate_begin(!mg_retry_denied(r, RETRY_compiling))) return -1;
  PyObject *pushed = PyObject_CallOneArg(mg_dispatch_push, cap->mode);
  if (!pushed) return -1; /* which may have pushed all the same */
  Py_DECREF(pushed);
  int tracing = standin_ignore_hooks(true);
  if (tracing < 0) return -1;
  cap->hooks_off = !tracing;
  if (r->want_fx && mg_fx_begin(cap)) return -1;
  if (r->slots) mg_fx_start_grad(cap, r->slots->slot, r->slots->n);
  if (mg_fmodes_begin(cap, r->want_fx ? mg_fx_mode(cap) : NULL)) return -1;
  return r->guards && r->ident ? mg_fmodes_wrap(r) : 0;
}

/* Pops torch's mode stacks down to what they were: an aborted recording skips the
 * user's __exit__ handlers. */
static void standin_pop_modes(MgCapture *cap) {
  long n = standin_stack_len("_len_torch_dispatch_stack");
  for (; n > cap->modes_before; n--) Py_XDECREF(standin_insist(mg_dispatch_pop, NULL, Py_None));
  mg_fmodes_restore(cap);
  if (cap->functorch_before >= 0 && standin_functorch_depth() > cap->functorch_before)
    standin_functorch_undo(cap->functorch_before);
  if (cap->functorch_unused) mg_state_functorch_forget();
}

void mg_standin_end(MgRec *r) {
  MgCapture *cap = r->cap;
  PyObject *t, *v, *tb;
  if (!cap || !cap->begun) return;
  cap->begun = false;
  PyErr_Fetch(&t, &v, &tb);
  mg_state_function(cap->function_state);
  if (cap->wrappers) PyList_SetSlice(cap->wrappers, 0, PyList_GET_SIZE(cap->wrappers), NULL);
  Py_CLEAR(cap->transformed);
  standin_pop_modes(cap);
  PyObject *off = cap->classes ? mg_fmodes_off() : NULL;
  if (mg_viewstate_take(cap))
    PyErr_WriteUnraisable(NULL); /* after a break in an inlined frame, too, which ends in an abort */
  if (off && mg_context_exit(off)) PyErr_WriteUnraisable(NULL);
  mg_dispatch_mode_end(cap->mode);
  mg_fx_end(cap);
  Py_CLEAR(cap->claims);
  Py_CLEAR(cap->checks); /* they hold stand-ins; the snapshot is made */
  Py_CLEAR(cap->said);
  Py_CLEAR(cap->swapped);
  if (cap->anomaly_was_on) *mg_abi.anomaly_enabled = true;
  mg_procstate_end();
  mg_abi.aoti_torch_grad_mode_set_enabled(cap->grad_was_on);
  standin_restore_autocast(cap->autocast);
  mg_state_autocast_clear(); /* casts of stand-ins */
  mg_state_autocast_nest(cap->autocast_depth - mg_state_autocast_depth());
  if (cap->hooks_off) standin_ignore_hooks(false);
  if (PyErr_Occurred()) PyErr_WriteUnraisable(NULL);
  PyErr_Restore(t, v, tb);
}

static int standin_count(const MgRec *r) {
  int n = 0;
  for (MgStandInfo *i = r->cap ? r->cap->live : NULL; i; i = i->next) n++;
  return n;
}

/* Through autograd's graph stand-ins may refer to each other where no collector finds them: by gradients that
 * the program has set, and when a node saved a view of memory that was written afterwards (r[0] = r[0]
 * ** 2; eager leaks these). */
static void standin_cut_cycles(MgRec *r) {
  PyObject *all = PyList_New(0), *type = (PyObject *)mg_torch.tensor;
  PyObject *grad = all ? PyObject_GetAttrString(type, "grad") : NULL,
           *detach = grad ? PyObject_GetAttrString(type, "detach_") : NULL;
  for (MgStandInfo *i = r->cap->live; detach && i; i = i->next)
    if (i->self && PyList_Append(all, i->self)) break;
  for (Py_ssize_t i = 0; detach && i < PyList_GET_SIZE(all); i++) {
    Py_XDECREF(PyObject_CallMethod(grad, "__set__", "OO", PyList_GET_ITEM(all, i), Py_None));
    PyErr_Clear();                                                    /* the next step works without */
    Py_XDECREF(PyObject_CallOneArg(detach, PyList_GET_ITEM(all, i))); /* views refuse ... */
    PyErr_Clear();                                                    /* a view */
  }
  for (Py_ssize_t i = 0; detach && i < PyList_GET_SIZE(all);
       i++) { /* ... but find their history again, from their base, when that was written */
    enum { WRITTEN = 1 << 30 };
    if (mg_facts_set_version(PyList_GET_ITEM(all, i), WRITTEN)) PyErr_Clear(); /* the version stays */
    mg_standin_cutting = true;
    Py_XDECREF(PyObject_GetAttrString(PyList_GET_ITEM(all, i), "grad_fn"));
    mg_standin_cutting = false;
    PyErr_Clear(); /* only asking mattered */
  }
  Py_XDECREF(detach);
  Py_XDECREF(grad);
  Py_XDECREF(all);
  PyErr_Clear(); /* no room for the list: less is undone */
}

int mg_standin_alive(MgRec *r) {
  if (!standin_count(r)) return 0;
  standin_cut_cycles(r);
  return standin_count(r);
}

static bool standin_on_gpu(const MgRec *r) {
  for (MgStandInfo *i = r->cap ? r->cap->live : NULL; i; i = i->next)
    if (mg_val(r->g, i->val)->device == DEV_cuda) return true;
  return false;
}

int mg_standin_wait(MgRec *r) {
  int alive = mg_standin_alive(r);
  for (int ms = 0; alive && standin_on_gpu(r) && ms < MG_TUNE_STANDIN_WAIT; ms++) {
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    Py_END_ALLOW_THREADS;
    alive = mg_standin_alive(r);
  }
  return alive;
}

void mg_standin_free(MgRec *r) {
  MgCapture *cap = r->cap;
  if (!cap) return;
  mg_standin_end(r);
  mg_fmodes_restore(cap); /* torch's own generators, which have died since, put back what they had taken */
  /* A stand-in that leaked (strict mode reports it) must not point at freed memory. */
  for (MgStandInfo *i = cap->live, *next; i; i = next) {
    next = i->next;
    i->cap = NULL;
    i->prev = i->next = NULL;
  }
  for (uint32_t i = 0; i < cap->ninput; i++)
    if (cap->input[i].pinned || cap->input[i].scalar || cap->input[i].array) Py_DECREF(cap->input[i].real);
  mg_fx_free(cap);
  for (Py_ssize_t i = 0; cap->syms && i < PyList_GET_SIZE(cap->syms); i++)
    mg_symnode_of(PyList_GET_ITEM(cap->syms, i))->cap = NULL;
  Py_XDECREF(cap->log_ignored);
  Py_XDECREF(cap->log_late);
  Py_XDECREF(cap->syms);
  mg_symsize_end(cap);
  Py_XDECREF(cap->objs);
  Py_XDECREF(cap->mode);
  Py_XDECREF(cap->autocast);
  Py_XDECREF(cap->fmodes);
  Py_XDECREF(cap->classes);
  Py_XDECREF(cap->wrappers);
  mg_map_free(&cap->wrapper_val);
  mg_map_free(&cap->pinned);
  mg_map_free(&cap->base);
  mg_map_free(&cap->gradient);
  free(cap->input);
  free(cap->storage_grad);
  free(cap->storage_inference);
  free(cap->spent);
  free(cap);
  r->cap = NULL;
}
