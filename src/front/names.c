#include "front/names.h"
#include "front/hook.h"
#include "front/rec.h"
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

MgNameTable mg_names;
MgTorchObjs mg_torch;

/* One attribute path: "module:attr.attr". */
typedef struct Want {
  const char *module, *path;
  void *where; /* PyObject ** or PyTypeObject ** */
} Want;

PyObject *mg_import(const char *name) {
  MgPause pause = mg_rec_pause(); /* importlib's functions are not the program's here */
  PyObject *leaf = Py_BuildValue("(s)", "__name__"), *m = leaf ? PyImport_ImportModuleLevel(name, NULL, NULL, leaf, 0) : NULL;
  mg_rec_resume(pause);
  Py_XDECREF(leaf);
  return m;
}

void mg_raise_dynamo_error(const char *name, const char *format, ...) {
  PyObject *m = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._dynamo.exc");
  PyObject *error = m ? PyObject_GetAttrString(m, name) : NULL;
  PyErr_Clear();
  va_list ap;
  va_start(ap, format);
  PyErr_FormatV(error ? error : PyExc_RuntimeError, format, ap);
  va_end(ap);
  Py_XDECREF(error);
  /* Its __init__ is Python, and no part of the program. */
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off;
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  PyErr_NormalizeException(&t, &v, &tb);
  PyErr_Restore(t, v, tb);
  mg_hook_mode = mode;
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

static PyObject *names_find(const char *module, const char *path) {
  PyObject *o = mg_import(module);
  const char *p = path;
  while (o && *p) {
    const char *dot = strchr(p, '.');
    Py_ssize_t n = dot ? dot - p : (Py_ssize_t)strlen(p);
    PyObject *name = PyUnicode_FromStringAndSize(p, n), *x = name ? PyObject_GetAttr(o, name) : NULL;
    Py_XDECREF(name);
    Py_DECREF(o);
    o = x;
    p += n + (dot != NULL);
  }
  return o;
}

int mg_names_init(void) {
  static bool done;
  if (done) return 0;
#define NAME(id, text)                                                                                       \
  if (!mg_names.id && !(mg_names.id = PyUnicode_InternFromString(text))) return -1;
  MG_NAMES(NAME)
#undef NAME
  static const char mod[] = "torch.nn.modules.module";
  const Want want[] = {
      {"torch", "Tensor", &mg_torch.tensor},
      {"torch", "Size", &mg_torch.size},
      {"torch.nn", "Parameter", &mg_torch.parameter},
      {mod, "Module", &mg_torch.module},
      {mod, "Module.__getattr__", &mg_torch.module_getattr},
      {mod, "Module.__setattr__", &mg_torch.module_setattr},
      {mod, "Module.__call__", &mg_torch.module_call},
      {mod, "Module._call_impl", &mg_torch.module_call_impl},
      {mod, "_global_backward_pre_hooks", &mg_torch.global_hooks[0]},
      {mod, "_global_backward_hooks", &mg_torch.global_hooks[1]},
      {mod, "_global_forward_hooks", &mg_torch.global_hooks[2]},
      {mod, "_global_forward_pre_hooks", &mg_torch.global_hooks[3]},
      {"torch.compiler", "is_compiling", &mg_torch.is_compiling[0]},
      {"torch.compiler", "is_dynamo_compiling", &mg_torch.is_compiling[1]},
      {"torch.nn.modules.activation", "_is_make_fx_tracing", &mg_torch.is_make_fx},
      {"torch", "_check_with", &mg_torch.check_with},
      {"torch._C", "_disabled_torch_function_impl", &mg_torch.no_function},
      {"torch._C", "DisableTorchFunction", &mg_torch.without_function},
      {"torch._C", "DisableTorchFunctionSubclass", &mg_torch.without_subclasses},
      {"torch._C", "_AutoDispatchBelowAutograd", &mg_torch.below_autograd},
      {"torch.utils.checkpoint", "checkpoint.__code__", &mg_torch.internal_disable_code},
      {"torch.utils.checkpoint", "checkpoint.__wrapped__", &mg_torch.checkpoint},
      {"torch.utils.checkpoint", "noop_context_fn", &mg_torch.checkpoint_no_context},
      {"torch.utils.checkpoint", "create_selective_checkpoint_contexts", &mg_torch.checkpoint_selective},
      {"torch.autograd.profiler", "record_function.__enter__", &mg_torch.record_enter},
      {"torch.autograd.profiler", "record_function.__exit__", &mg_torch.record_exit},
      {"torch.autograd.variable", "Variable._execution_engine", &mg_torch.engine},
      {"torch.autograd.graph", "_engine_run_backward", &mg_torch.engine_run_backward},
      {"torch.optim.optimizer", "_get_value", &mg_torch.optim_get_value},
      {"collections", "namedtuple", &mg_torch.namedtuple},
      {"torch.utils.hooks", "RemovableHandle", &mg_torch.removable_handle},
      {"torch.utils.hooks", "RemovableHandle.remove", &mg_torch.handle_remove},
      {"torch", "Tensor.register_hook", &mg_torch.hook_register[0]},
      {"torch", "Tensor.register_post_accumulate_grad_hook", &mg_torch.hook_register[1]},
      {"torch.nn.modules.lazy", "LazyModuleMixin._infer_parameters", &mg_torch.infer_parameters},
      {"torch.nested._internal.nested_tensor", "_nt_view_dummy", &mg_torch.jagged_dummy},
      {"torch._C", "_FunctionBase", &mg_torch.function_base},
      {"torch.nn.modules._functions", "BackwardHookFunction", &mg_torch.backward_hook_function},
      {"torch.optim.optimizer", "Optimizer", &mg_torch.optimizer},
      {"_abc", "_abc_subclasscheck", &mg_torch.abc_subclasscheck},
      {"_abc", "get_cache_token", &mg_torch.abc_token},
      {"torch._ops", "OpOverload", &mg_torch.op_overload},
      {"torch._ops", "OpOverloadPacket", &mg_torch.op_packet},
      {"torch.jit", "ScriptFunction", &mg_torch.script_function},
      {"torch._ops", "HigherOrderOperator", &mg_torch.higher_order},
      {"torch._higher_order_ops.cond", "cond", &mg_torch.cond},
      {"torch._higher_order_ops.invoke_subgraph", "invoke_subgraph_placeholder", &mg_torch.nested_region},
      {"torch._higher_order_ops.invoke_subgraph", "invoke_subgraph", &mg_torch.invoke_subgraph},
      {"torch._higher_order_ops.wrap", "tag_activation_checkpoint", &mg_torch.tag_checkpoint},
      {"enum", "EnumMeta", &mg_torch.enum_meta},
      {"functools", "cached_property", &mg_torch.cached_property},
      {"functools", "partial", &mg_torch.partial},
      {"functools", "_lru_cache_wrapper", &mg_torch.lru_cache},
      {"collections", "OrderedDict", &mg_torch.ordered_dict},
      {"collections", "deque", &mg_torch.deque},
      {"collections", "defaultdict", &mg_torch.defaultdict},
  };
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    PyObject **slot = want[i].where;
    if (!*slot && !(*slot = names_find(want[i].module, want[i].path))) return -1;
  }
  done = true;
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

/* C classes may be heap types too (functools.partial, locks); the destructor that every class statement gives tells, unless
 * the C class has none of its own (random.Random's base). */
PyTypeObject *mg_solid_base(PyTypeObject *t) {
  destructor python = mg_torch.module->tp_dealloc;
  while (t->tp_flags & Py_TPFLAGS_HEAPTYPE && t->tp_dealloc == python && t->tp_base && !names_has_fields(t)) t = t->tp_base;
  return t;
}

bool mg_has_finalizer(PyTypeObject *t) {
  return t->tp_finalize && t->tp_flags & Py_TPFLAGS_HEAPTYPE && _PyType_Lookup(t, mg_names.del);
}

bool mg_death_is_seen(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  if (PyGen_CheckExact(o)) return true; /* the rest of its try and with blocks runs then */
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || !PyType_SUPPORTS_WEAKREFS(t) || PyType_Check(o) || PyObject_TypeCheck(o, mg_torch.tensor)) return false;
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
  static const struct { PyTypeObject *t; const char *name; } kinds[] = {
      {&PyDictKeys_Type, "keys"}, {&PyDictValues_Type, "values"}, {&PyDictItems_Type, "items"},
      {&PyODictKeys_Type, "keys"}, {&PyODictValues_Type, "values"}, {&PyODictItems_Type, "items"}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (Py_TYPE(o) == kinds[i].t) {
      *name = kinds[i].name;
      return *(PyObject **)((char *)o + sizeof(PyObject)); /* the first field of all views */
    }
  return NULL;
}

PyObject *mg_view_new(PyObject *dict, PyObject *name) {
  return PyObject_CallMethodOneArg((PyObject *)(PyODict_Check(dict) ? &PyODict_Type : &PyDict_Type), name, dict);
}

PyObject *mg_local_dict(PyObject *local) {
  PyTypeObject *t = Py_TYPE(local), *base = mg_solid_base(t);
  if (strcmp(base->tp_name, "_thread._local") || t->tp_init != PyBaseObject_Type.tp_init) return NULL;
  PyObject *d = base->tp_getattro(local, mg_names.dict);
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
