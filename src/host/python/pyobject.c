/* Small things about Python objects that CPython has no call for. */
#include "host/python/pyobject.h"
#include <datetime.h>
#include <signal.h>
#include <string.h>
#include "base/table.h"
#include "host/python/code_info.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"

PyObject *mg_import(const char *name) {
  MgPause pause = mg_rec_pause(); /* importlib's functions are not the program's here */
  PyObject *leaf = Py_BuildValue("(s)", "__name__"),
           *m = leaf ? PyImport_ImportModuleLevel(name, NULL, NULL, leaf, 0) : NULL;
  mg_rec_resume(pause);
  Py_XDECREF(leaf);
  return m;
}

PyObject *mg_context_enter(PyObject *ctx) {
  PyObject *r = ctx ? PyObject_CallMethod(ctx, "__enter__", NULL) : NULL;
  if (!r) Py_CLEAR(ctx);
  Py_XDECREF(r);
  return ctx;
}

int mg_context_exit(PyObject *ctx) {
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  PyObject *r = PyObject_CallMethod(ctx, "__exit__", "OOO", Py_None, Py_None, Py_None);
  Py_DECREF(ctx);
  if (!r) {
    Py_XDECREF(t);
    Py_XDECREF(v);
    Py_XDECREF(tb);
    return -1;
  }
  Py_DECREF(r);
  PyErr_Restore(t, v, tb);
  return 0;
}

/* Is there more in an instance than its base, __slots__, a dict and weak references? */
static bool names_has_fields(PyTypeObject *t) {
  PyTypeObject *b = t->tp_base;
  Py_ssize_t more = t->tp_basicsize - b->tp_basicsize - Py_SIZE(t) * (Py_ssize_t)sizeof(PyObject *);
  bool dict = t->tp_dictoffset && !b->tp_dictoffset && !(t->tp_flags & Py_TPFLAGS_MANAGED_DICT);
  bool weak = t->tp_weaklistoffset > 0 && !b->tp_weaklistoffset;
  return more > (dict + weak) * (Py_ssize_t)sizeof(PyObject *);
}

/* C classes may be heap types too (functools.partial, locks); the destructor that every class statement gives
 * tells, unless the C class has none of its own (random.Random's base). */
PyTypeObject *mg_solid_base(PyTypeObject *t) {
  destructor python = mg_torch.module->tp_dealloc;
  while (t->tp_flags & Py_TPFLAGS_HEAPTYPE && t->tp_dealloc == python && t->tp_base && !names_has_fields(t))
    t = t->tp_base;
  return t;
}

bool mg_has_finalizer(PyTypeObject *t) {
  return t->tp_finalize && t->tp_flags & Py_TPFLAGS_HEAPTYPE && _PyType_Lookup(t, mg_names.del);
}

bool mg_death_is_seen(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  if (PyGen_CheckExact(o)) return true; /* the rest of its try and with blocks runs then */
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || !PyType_SUPPORTS_WEAKREFS(t) || PyType_Check(o) ||
      PyObject_TypeCheck(o, mg_torch.tensor))
    return false;
  return *(PyObject **)((char *)o + t->tp_weaklistoffset) || mg_has_finalizer(t);
}

PyObject *mg_new_instance(PyTypeObject *t) {
  PyObject *none = PyTuple_New(0), *x = none ? mg_solid_base(t)->tp_new(t, none, NULL) : NULL;
  Py_XDECREF(none);
  return x;
}

PyObject *mg_new_value(PyTypeObject *t, PyObject *plain) {
  PyObject *a = PyTuple_Pack(1, plain), *x = a ? mg_solid_base(t)->tp_new(t, a, NULL) : NULL;
  Py_XDECREF(a);
  return x;
}

PyObject *mg_plain_value(PyObject *o) {
  if (PyLong_Check(o)) return _PyLong_Copy((PyLongObject *)o);
  if (PyFloat_Check(o)) return PyFloat_FromDouble(PyFloat_AS_DOUBLE(o));
  if (PyUnicode_Check(o)) return PyUnicode_FromObject(o);
  if (PyBytes_Check(o)) return PyBytes_FromStringAndSize(PyBytes_AS_STRING(o), PyBytes_GET_SIZE(o));
  if (PyComplex_Check(o)) return PyComplex_FromCComplex(((PyComplexObject *)o)->cval);
  if (!PyFrozenSet_Check(o)) return NULL;
  PyObject *it = PyFrozenSet_Type.tp_iter(o), *x = it ? PyFrozenSet_New(it) : NULL;
  Py_XDECREF(it);
  return x;
}

PyObject *mg_dict_iter(PyObject *dict) {
  return PyODict_Check(dict) ? PyODict_Type.tp_iter(dict) : PyDict_Type.tp_iter(dict);
}

int mg_dict_put(PyObject *dict, PyObject *key, PyObject *v) {
  return PyODict_Check(dict) ? PyODict_SetItem(dict, key, v) : PyDict_SetItem(dict, key, v);
}

PyObject *mg_view_of(PyObject *o, const char **name) {
  static const struct {
    PyTypeObject *t;
    const char *name;
  } kinds[] = {{&PyDictKeys_Type, "keys"},  {&PyDictValues_Type, "values"},  {&PyDictItems_Type, "items"},
               {&PyODictKeys_Type, "keys"}, {&PyODictValues_Type, "values"}, {&PyODictItems_Type, "items"}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (Py_TYPE(o) == kinds[i].t) {
      *name = kinds[i].name;
      return *(PyObject **)((char *)o + sizeof(PyObject)); /* the first field of all views */
    }
  return NULL;
}

PyObject *mg_view_new(PyObject *dict, PyObject *name) {
  return PyObject_CallMethodOneArg((PyObject *)(PyODict_Check(dict) ? &PyODict_Type : &PyDict_Type), name,
                                   dict);
}

/* Has this thread used the object?  CPython keeps the attributes in the thread's dict, under this name. */
static bool local_is_used(PyObject *local) {
  PyObject *all = PyThreadState_GetDict(), *key = all ? PyUnicode_FromFormat("thread.local.%p", local) : NULL;
  bool used = key && PyDict_GetItemWithError(all, key);
  Py_XDECREF(key);
  mg_clear_as_no();
  return used;
}

/* True once for each object: threads that come later would each have a recording of their own. */
static bool local_may_begin(PyObject *local) {
  static MgMap begun;
  uint64_t key = mg_hash_bytes(&local, sizeof local, 0) | 2;
  return mg_map_get(&begun, key) == MG_MAP_NONE && !mg_map_put(&begun, key, 1);
}

PyObject *mg_local_dict(PyObject *local, bool begin) {
  PyTypeObject *t = Py_TYPE(local), *base = mg_solid_base(t);
  if (strcmp(base->tp_name, "_thread._local")) return NULL;
  bool used = t->tp_init == PyBaseObject_Type.tp_init || local_is_used(local);
  if (!used && !(begin && local_may_begin(local))) return NULL;
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off;
  PyObject *d = base->tp_getattro(local, mg_names.dict);
  mg_hook_mode = mode;
  Py_XDECREF(d);
  return d;
}

int mg_set_copy(PyObject *to, PyObject *from) {
  PySetObject *c = (PySetObject *)to, *s = (PySetObject *)from;
  setentry *table = c->smalltable;
  if (s->mask >= PySet_MINSIZE && !(table = PyMem_New(setentry, (size_t)s->mask + 1))) {
    PyErr_NoMemory();
    return -1;
  }
  memcpy(table, s->table, sizeof *table * ((size_t)s->mask + 1));
  for (Py_ssize_t i = 0; i <= s->mask; i++)
    if (table[i].key && table[i].hash != -1) Py_INCREF(table[i].key); /* a deleted entry owns nothing */
  c->table = table;
  c->mask = s->mask;
  c->fill = s->fill;
  c->used = s->used;
  c->finger = s->finger;
  return 0;
}

PyTypeObject *mg_method_wrapper_type(void) {
  static PyTypeObject *type; /* a static type of CPython */
  if (!type) {
    PyObject *bound = PyObject_GetAttrString(Py_None, "__str__");
    if (bound) type = Py_TYPE(bound);
    else mg_clear_as_no();
    Py_XDECREF(bound);
  }
  return type;
}

PyObject *mg_policy_self(PyObject *f) {
  if (PyCFunction_Check(f)) {
    PyObject *s = ((PyCFunctionObject *)f)->m_self;
    bool is_owner =
        s && (PyModule_Check(s) || PyType_Check(s) || !strncmp(Py_TYPE(s)->tp_name, "pybind11_", 9));
    return is_owner ? NULL : s;
  }
  return Py_TYPE(f) == mg_method_wrapper_type() ? ((MethodWrapper *)f)->self : NULL;
}

PyObject *mg_policy_descr(PyObject *f) {
  return Py_TYPE(f) == mg_method_wrapper_type() ? (PyObject *)((MethodWrapper *)f)->descr : NULL;
}

int mg_after_fork(PyMethodDef *def) {
  PyObject *os = mg_import("os"), *watch = os ? PyObject_GetAttrString(os, "register_at_fork") : NULL;
  PyObject *f = watch ? PyCFunction_New(def, NULL) : NULL;
  PyObject *none = f ? PyTuple_New(0) : NULL, *kw = none ? Py_BuildValue("{s:O}", "after_in_child", f) : NULL;
  PyObject *r = kw ? PyObject_Call(watch, none, kw) : NULL;
  Py_XDECREF(os);
  Py_XDECREF(watch);
  Py_XDECREF(f);
  Py_XDECREF(none);
  Py_XDECREF(kw);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

bool mg_generator_cleans_up(PyObject *gen) {
  MgFrame *f = mg_pyframe_suspended(gen);
  MgCodeInfo *info = f ? mg_code_info(mg_pyframe_code(f)) : NULL;
  const MgCode *code = info ? mg_code_decoded(info, mg_pyframe_code(f)) : NULL;
  const MgHandler *h = code ? mg_decode_handler(code, mg_pyframe_next(f) - 1) : NULL;
  while (h && code->instr[h->target].op == BC_CLEANUP_THROW)
    h = mg_decode_handler(code, h->target); /* 3.12's around `yield from` */
  return h && !(h->depth == 0 && h->lasti); /* not the one that 3.12 puts around every generator */
}

/* ---- exceptions that end here ---- */

static int pyobject_interrupt(void *unused) {
  PyErr_SetNone(PyExc_KeyboardInterrupt);
  return -1;
}

/* Raises KeyboardInterrupt at the next instruction of Python: through the program's handler if it has one. */
static void pyobject_interrupt_later(void) {
  PyOS_sighandler_t handler = PyOS_getsig(SIGINT);
  bool ignored =
      handler == SIG_IGN || handler == SIG_DFL; /* the signal would do nothing, or end the process */
  if (!ignored || Py_AddPendingCall(pyobject_interrupt, NULL)) PyErr_SetInterrupt();
}

static void pyobject_clear(void) {
  PyObject *type = PyErr_Occurred();
  if (!type) return;
  if (PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt)) pyobject_interrupt_later();
  PyErr_Clear(); /* its callers' names are the reasons */
}

void mg_clear_as_no(void) { pyobject_clear(); }

void mg_clear_shown(void) { pyobject_clear(); }

void mg_clear_for_another_way(void) { pyobject_clear(); }

void mg_clear_if(PyObject *type) {
  if (PyErr_Occurred() && PyErr_ExceptionMatches(type)) PyErr_Clear(); /* the one that is expected */
}

/* ---- dates and times ---- */

int mg_date_init(void) {
  if (!PyDateTimeAPI) PyDateTime_IMPORT;
  return PyDateTimeAPI ? 0 : -1;
}

/* The time zone of a datetime or time, borrowed; NULL: it has none. */
static PyObject *date_zone(PyObject *o) {
  bool has = !PyDelta_Check(o) && !PyDate_CheckExact(o) && ((_PyDateTime_BaseTZInfo *)o)->hastzinfo;
  if (!has) return NULL;
  return PyTime_CheckExact(o) ? ((PyDateTime_Time *)o)->tzinfo : ((PyDateTime_DateTime *)o)->tzinfo;
}

bool mg_date_is(PyObject *o) {
  if (!PyDateTimeAPI) return false;
  if (PyDelta_CheckExact(o) || PyDate_CheckExact(o)) return true;
  if (!PyDateTime_CheckExact(o) && !PyTime_CheckExact(o)) return false;
  PyObject *zone = date_zone(o);
  return !zone || zone == PyDateTime_TimeZone_UTC;
}

PyObject *mg_date_copy(PyObject *o) {
  const PyDateTime_CAPI *api = PyDateTimeAPI;
  PyObject *zone = date_zone(o);
  if (!zone) zone = Py_None;
  if (PyDelta_Check(o)) {
    const PyDateTime_Delta *x = (PyDateTime_Delta *)o;
    return api->Delta_FromDelta(x->days, x->seconds, x->microseconds, 0, api->DeltaType);
  }
  if (PyTime_CheckExact(o))
    return api->Time_FromTimeAndFold(PyDateTime_TIME_GET_HOUR(o), PyDateTime_TIME_GET_MINUTE(o),
                                     PyDateTime_TIME_GET_SECOND(o), PyDateTime_TIME_GET_MICROSECOND(o), zone,
                                     PyDateTime_TIME_GET_FOLD(o), api->TimeType);
  int year = PyDateTime_GET_YEAR(o), month = PyDateTime_GET_MONTH(o), day = PyDateTime_GET_DAY(o);
  if (PyDate_CheckExact(o)) return api->Date_FromDate(year, month, day, api->DateType);
  return api->DateTime_FromDateAndTimeAndFold(year, month, day, PyDateTime_DATE_GET_HOUR(o),
                                              PyDateTime_DATE_GET_MINUTE(o), PyDateTime_DATE_GET_SECOND(o),
                                              PyDateTime_DATE_GET_MICROSECOND(o), zone,
                                              PyDateTime_DATE_GET_FOLD(o), api->DateTimeType);
}

bool mg_date_same(PyObject *a, PyObject *b) {
  if (PyDelta_Check(a)) {
    const PyDateTime_Delta *x = (PyDateTime_Delta *)a, *y = (PyDateTime_Delta *)b;
    return x->days == y->days && x->seconds == y->seconds && x->microseconds == y->microseconds;
  }
  if (PyDate_CheckExact(a))
    return !memcmp(((PyDateTime_Date *)a)->data, ((PyDateTime_Date *)b)->data, _PyDateTime_DATE_DATASIZE);
  if (date_zone(a) != date_zone(b)) return false;
  if (PyTime_CheckExact(a)) {
    const PyDateTime_Time *x = (PyDateTime_Time *)a, *y = (PyDateTime_Time *)b;
    return x->fold == y->fold && !memcmp(x->data, y->data, _PyDateTime_TIME_DATASIZE);
  }
  const PyDateTime_DateTime *x = (PyDateTime_DateTime *)a, *y = (PyDateTime_DateTime *)b;
  return x->fold == y->fold && !memcmp(x->data, y->data, _PyDateTime_DATETIME_DATASIZE);
}
