/* See the header. */
#include "record/numpy/host_random.h"
#include <stdlib.h>
#include <string.h>
#include "entry/guard/guard_add.h"
#include "entry/guard/late_draws.h"
#include "entry/guard/source.h"
#include "entry/run/snapshot_run.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/array_bridge.h"
#include "record/core/c_functions.h"
#include "record/core/call_args.h"
#include "record/core/identity.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/numpy/array_ops.h"
#include "record/symbolic/number_ops.h"

typedef enum DrawKind { DRAW_no, DRAW_number, DRAW_change, DRAW_other } DrawKind;

/* What a method does with the generator; other: gives something else than a number. */
static DrawKind draw_kind(const char *name) {
  static const char *const numbers[] = {
      "random",      "uniform",       "triangular",     "randint",        "randrange",       "getrandbits",
      "gauss",       "normalvariate", "lognormvariate", "expovariate",    "vonmisesvariate", "gammavariate",
      "betavariate", "paretovariate", "weibullvariate", "binomialvariate"};
  static const char *const others[] = {"choice", "choices", "sample", "shuffle", "randbytes", "getstate"};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!strcmp(name, numbers[i])) return DRAW_number;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (!strcmp(name, others[i])) return DRAW_other;
  return !strcmp(name, "seed") || !strcmp(name, "setstate") ? DRAW_change : DRAW_no;
}

static PyObject *draw_class(void) {
  PyObject *m = mg_import("random"), *t = m ? PyObject_GetAttrString(m, "Random") : NULL;
  Py_XDECREF(m);
  return t;
}

static bool draw_is_generator(PyObject *o) {
  if (strcmp(Py_TYPE(o)->tp_name, "Random")) return false;
  PyObject *t = draw_class();
  Py_XDECREF(t);
  mg_clear_as_no();
  return (PyObject *)Py_TYPE(o) == t;
}

/* Has nobody given the older generator the methods that others are made of?  Guarded. */
static bool draw_is_plain(PyObject *rng) {
  static const char *const names[] = {"random", "getrandbits", "_randbelow"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    PyObject *name = PyUnicode_InternFromString(names[i]), *own = name ? mg_ops.older_attr(rng, name) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(own);
    if (own || PyErr_Occurred()) return false;
  }
  return true;
}

/* The same for the methods of NumPy's two classes of generators. */
static DrawKind draw_numpy_kind(const char *name) {
  static const char *const numbers[] = {"beta",
                                        "binomial",
                                        "chisquare",
                                        "choice",
                                        "dirichlet",
                                        "exponential",
                                        "f",
                                        "gamma",
                                        "geometric",
                                        "gumbel",
                                        "hypergeometric",
                                        "integers",
                                        "laplace",
                                        "logistic",
                                        "lognormal",
                                        "logseries",
                                        "multinomial",
                                        "multivariate_normal",
                                        "negative_binomial",
                                        "noncentral_chisquare",
                                        "noncentral_f",
                                        "normal",
                                        "pareto",
                                        "permutation",
                                        "poisson",
                                        "power",
                                        "rand",
                                        "randint",
                                        "randn",
                                        "random",
                                        "random_sample",
                                        "rayleigh",
                                        "standard_cauchy",
                                        "standard_exponential",
                                        "standard_gamma",
                                        "standard_normal",
                                        "standard_t",
                                        "triangular",
                                        "uniform",
                                        "vonmises",
                                        "wald",
                                        "weibull",
                                        "zipf"};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!strcmp(name, numbers[i])) return DRAW_number;
  return strcmp(name, "seed") ? DRAW_no : DRAW_change;
}

static bool draw_is_numpys(PyObject *o) {
  const char *name = Py_TYPE(o)->tp_name;
  return !strcmp(name, "numpy.random.mtrand.RandomState") ||
         !strcmp(name, "numpy.random._generator.Generator");
}

/* A generator of NumPy in the same state. */
static PyObject *draw_copy_numpys(PyObject *rng) {
  PyObject *m = mg_import("copy"), *mine = m ? PyObject_CallMethod(m, "deepcopy", "O", rng) : NULL;
  Py_XDECREF(m);
  return mine;
}

/* An itertools.count at the same position. */
static PyObject *draw_copy_counter(PyObject *counter) {
  PyObject *four = PyLong_FromLong(4),
           *r = four ? mg_snapshot_pickle_call(counter, Py_TYPE(counter), mg_names.reduce_ex, four) : NULL,
           *mine = NULL;
  if (r && PyTuple_Check(r) && PyTuple_GET_SIZE(r) == 2 &&
      (mine = PyObject_CallObject(PyTuple_GET_ITEM(r, 0), PyTuple_GET_ITEM(r, 1)))) {
    PyObject *at = PyTuple_GET_ITEM(r, 1), *start = PyTuple_GET_ITEM(at, 0);
    if (PyTuple_GET_SIZE(at) > 1 && Py_TYPE(PyTuple_GET_ITEM(at, 1)) != Py_TYPE(start)) {
      Py_CLEAR(mine);
      mg_rec_break(BK_iterator, "next of an older counter that changes its type");
    }
  }
  Py_XDECREF(four);
  Py_XDECREF(r);
  return mine;
}

/* The generator that the recording draws from in the place of an older one.  Borrowed. */
static PyObject *draw_copy(PyObject *rng) {
  MgIdent *d = mg_rec->ident;
  PyObject *mine = d->rngs ? PyDict_GetItemWithError(d->rngs, rng) : NULL, *state = NULL, *name = NULL,
           *set = NULL;
  if (mine || PyErr_Occurred()) return mine;
  MgPause pause = mg_rec_pause();
  if (PyIter_Check(rng) || draw_is_numpys(rng)) {
    mine = PyIter_Check(rng) ? draw_copy_counter(rng) : draw_copy_numpys(rng);
    if (mine && (d->rngs || (d->rngs = PyDict_New())) && !PyDict_SetItem(d->rngs, rng, mine))
      set = Py_NewRef(Py_None);
  } else if ((d->rngs || (d->rngs = PyDict_New())) && (state = PyObject_CallMethod(rng, "getstate", NULL)) &&
             (mine = PyObject_CallNoArgs((PyObject *)Py_TYPE(rng))) &&
             (name = PyUnicode_FromString("setstate")) &&
             (set = PyObject_CallMethodOneArg(mine, name, state)) && PyDict_SetItem(d->rngs, rng, mine))
    Py_CLEAR(set);
  mg_rec_resume(pause);
  Py_XDECREF(state);
  Py_XDECREF(name);
  Py_XDECREF(mine); /* the dict keeps it */
  Py_XDECREF(set);
  return set ? mine : NULL;
}

/* Arguments as constants; a break is set when some is none.  *kwargs stays NULL without any. */
static int draw_arguments(const MgCall *c, Py_ssize_t first, PyObject **args, PyObject **kwargs) {
  if (!(*args = PyTuple_New(c->npos - first))) return -1;
  for (Py_ssize_t i = first; i < c->n; i++) {
    PyObject *x = mg_symfloat_plain(c->arg[i]);
    if (x && !mg_guard_is_const(x)) {
      Py_CLEAR(x);
      mg_rec_break(BK_random, "a random number is drawn with an argument of type %s",
                   Py_TYPE(c->arg[i])->tp_name);
    }
    if (!x) return -1;
    if (i < c->npos) PyTuple_SET_ITEM(*args, i - first, x);
    else {
      int rc = *kwargs || (*kwargs = PyDict_New())
                   ? PyDict_SetItem(*kwargs, PyTuple_GET_ITEM(c->kwnames, i - c->npos), x)
                   : -1;
      Py_DECREF(x);
      if (rc) return -1;
    }
  }
  return 0;
}

static MgDraw *draw_add(MgGuards *g) {
  if (g->ndraw == g->cap_draw && !mg_grow(&g->draw, &g->cap_draw, sizeof *g->draw, 8))
    return PyErr_NoMemory(), NULL;
  return &g->draw[g->ndraw++];
}

/* The next number of an older itertools.count: now from a copy, in every run from the counter. */
PyObject *mg_draw_next(PyObject *counter) {
  MgGuards *g = mg_rec->guards;
  mg_older_pin(counter); /* another one may count something else than ints */
  MgOlder *e = mg_older(counter);
  PyObject *m = mg_import("builtins"), *next = m ? PyObject_GetAttrString(m, "next") : NULL,
           *args = next ? PyTuple_New(0) : NULL;
  PyObject *copy = args ? draw_copy(e->orig) : NULL, *now = copy ? Py_TYPE(copy)->tp_iternext(copy) : NULL,
           *r = NULL;
  if (now && !PyFloat_CheckExact(now) && !PyLong_CheckExact(now))
    mg_rec_break(BK_iterator, "next of an older counter of %s", Py_TYPE(now)->tp_name);
  else if (now) {
    SrcRef from = mg_source(g, SRC_pinned, 0, 0, e->orig);
    SrcRef to = mg_source(g, SRC_draw, 0, (int32_t)g->ndraw, NULL);
    MgDraw *d = draw_add(g);
    if (d) {
      *d = (MgDraw){Py_NewRef(next), Py_NewRef(args), NULL, from, to};
      r = mg_symfloat_drawn(now, to);
    }
  }
  Py_XDECREF(m);
  Py_XDECREF(next);
  Py_XDECREF(args);
  Py_XDECREF(now);
  return r;
}

/* Draws now, from the copy, and in every run, from the generator. */
static PyObject *draw_record(const MgCall *c, PyObject *fn, PyObject *rng, Py_ssize_t first, DrawKind kind) {
  MgGuards *g = mg_rec->guards;
  MgOlder *e = mg_older(rng); /* NULL: of a bound method that is known to be the same */
  PyObject *args = NULL, *kwargs = NULL, *copy, *now = NULL, *r = NULL;
  if (draw_arguments(c, first, &args, &kwargs) || !(copy = draw_copy(e ? e->orig : rng))) goto done;
  MgPause pause = mg_rec_pause();
  now = mg_draw_make(fn, copy, args, kwargs);
  mg_rec_resume(pause);
  if (!now) goto done;
  bool array = kind == DRAW_number && draw_is_numpys(rng) && mg_array_is_class(Py_TYPE(now));
  if (kind == DRAW_number && !array && !PyFloat_CheckExact(now) && !PyLong_CheckExact(now)) {
    mg_rec_break(BK_random, "a random number of type %s", Py_TYPE(now)->tp_name);
    goto done;
  }
  SrcRef from = e && mg_older_by_path(e) ? e->src : mg_source(g, SRC_pinned, 0, 0, e ? e->orig : rng);
  SrcRef to = kind == DRAW_number ? mg_source(g, SRC_draw, 0, (int32_t)g->ndraw, NULL) : 0;
  MgDraw *d = draw_add(g);
  if (!d) goto done;
  *d = (MgDraw){Py_NewRef(fn), args, kwargs, from, to};
  args = kwargs = NULL;
  r = array ? mg_array_wrap(now, to) : kind == DRAW_number ? mg_symfloat_drawn(now, to) : Py_NewRef(now);
  if (!r && !PyErr_Occurred()) mg_rec_break(BK_random, "a random array that no tensor can share memory with");
done:
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
  Py_XDECREF(now);
  return r;
}

bool mg_draw_method(const MgCall *c, PyObject *fn, PyObject *self, PyObject **out) {
  Py_ssize_t first = self ? 0 : 1;
  if (!self && c->npos) self = c->arg[0];
  if (!self || !mg_older(self) || !draw_is_generator(self)) return false;
  PyObject *qual = ((PyFunctionObject *)fn)->func_qualname, *module = ((PyFunctionObject *)fn)->func_module;
  const char *name = PyUnicode_AsUTF8(qual);
  if (!name || strncmp(name, "Random.", 7) || !module || !PyUnicode_Check(module)) return false;
  DrawKind kind = PyUnicode_CompareWithASCIIString(module, "random") ? DRAW_no : draw_kind(name + 7);
  if (kind == DRAW_no || !draw_is_plain(self)) {
    *out = NULL;
    return PyErr_Occurred() != NULL;
  }
  if (kind == DRAW_other) *out = mg_rec_break(BK_random, "random.%s", name);
  else *out = draw_record(c, fn, self, first, kind);
  return true;
}

/* numpy.random.seed is a function of its own: the method of the generator that the module's functions
 * draw from.  New, or NULL. */
static PyObject *draw_seed_method(PyObject *f) {
  PyObject *m = mg_import("numpy.random.mtrand"), *seed = m ? PyObject_GetAttrString(m, "seed") : NULL,
           *r = NULL, *rng = NULL;
  if (seed == f && (rng = PyObject_GetAttrString(m, "_rand"))) r = PyObject_GetAttrString(rng, "seed");
  Py_XDECREF(m);
  Py_XDECREF(seed);
  Py_XDECREF(rng);
  return r;
}

bool mg_draw_numpy(const MgCall *c, PyObject **out) {
  bool bound = PyMethod_Check(c->f);
  PyObject *fn = bound ? PyMethod_GET_FUNCTION(c->f) : c->f;
  PyObject *self = bound ? PyMethod_GET_SELF(c->f) : c->npos ? c->arg[0] : NULL;
  if (!strstr(Py_TYPE(fn)->tp_name, "cython_function_or_method")) return false;
  PyObject *seed = !bound && (!self || !draw_is_numpys(self)) ? draw_seed_method(fn) : NULL;
  if (seed) fn = PyMethod_GET_FUNCTION(seed), self = PyMethod_GET_SELF(seed);
  Py_ssize_t first = bound || seed ? 0 : 1;
  PyObject *name = self && draw_is_numpys(self) ? PyObject_GetAttrString(fn, "__name__") : NULL;
  DrawKind kind = name && PyUnicode_Check(name) ? draw_numpy_kind(PyUnicode_AsUTF8(name)) : DRAW_no;
  Py_XDECREF(name);
  mg_clear_as_no();
  bool by_system = kind == DRAW_change && (c->n == first || c->arg[first] == Py_None);
  bool can = kind != DRAW_no && !by_system && !mg_is_fresh(self);
  if (can) *out = draw_record(c, fn, self, first, kind);
  Py_XDECREF(seed);
  return can;
}

PyObject *mg_draw_call(const MgCall *c) {
  PyObject *self = mg_policy_self(c->f), *fn = c->f, *r;
  Py_ssize_t first = self ? 0 : 1;
  char buf[256];
  const char *name = mg_policy_method(c->f, buf, sizeof buf);
  if (!self && c->n) self = c->arg[0];
  if (!self) return mg_call_plain(c);
  DrawKind kind = draw_kind(name);
  if (!mg_older(self)) { /* made here: its state is known, unless the system seeds it */
    bool by_system = !strcmp(name, "seed") && (c->n == first || c->arg[first] == Py_None);
    return by_system ? mg_rec_break(BK_random, "a generator seeded by the system") : mg_call_plain(c);
  }
  if ((kind != DRAW_number && kind != DRAW_change) || !draw_is_generator(self)) return mg_call_unknown(c);
  if (first == 1) return draw_record(c, fn, self, 1, kind);
  if (!(fn = PyObject_GetAttrString((PyObject *)Py_TYPE(self)->tp_base, name))) return NULL;
  r = draw_record(c, fn, self, 0, kind);
  Py_DECREF(fn);
  return r;
}
