/* OpOverload <-> MgOp, with what the dispatch mode must know of each op.
 * In: OpOverload objects as torch hands them to a mode.  Out: MgFrontOp, one per op and process; the schema
 * text is
 * parsed the first time an op is met, and every later look-up is one hash probe on the object's address. */
#include <stdlib.h>
#include <string.h>
#include "base/table.h"
#include "host/python/glue.h"
#include "host/python/pyobject.h"
#include "host/torch/literals.h"
#include "ir/graph/op.h"

static MgMap frontop_by_obj;    /* OpOverload -> index into frontop_all */
static MgFrontOp **frontop_all; /* owned, process lifetime */
static uint32_t frontop_n, frontop_cap;
static MgMap frontop_by_op; /* MgOp.id + 2 -> index */
static MgCtx frontop_ctx;   /* errors of schema parsing */
static PyObject *torch_c, *torch_ops, *tag_value, *tag_shape, *tag_inplace_view;

/* Ops of a kind that no tag tells. */
static const struct {
  const char *prefix;
  MgOpFate fate;
} frontop_fates[] = {
    {"profiler::", FATE_run},
    {"aten::_local_scalar_dense", FATE_break_value},
    {"aten::equal", FATE_break_value},
    {"aten::is_nonzero", FATE_break_value},
    {"aten::_is_all_true", FATE_record},
    {"aten::set_.source_Storage", FATE_break_memory}, /* and .source_Storage_storage_offset */
    {"aten::set_.source_Tensor", FATE_break_memory},
    {"aten::unbind_copy.int_out", FATE_break_memory}, /* resize what they are given */
    {"aten::split_copy.Tensor_out", FATE_break_memory},
    {"aten::split_with_sizes_copy.out", FATE_break_memory},
    {"aten::resize_", FATE_break_memory},    /* may need memory that a stand-in does not have */
    {"aten::index.Tensor", FATE_break_mask}, /* torch marks it dynamic because of masks */
    {"aten::_embedding_bag_backward", FATE_record_dense},
    {"aten::_embedding_bag", FATE_record},
    {"aten::_ctc_loss", FATE_record}, /* only what it keeps for backward has a size that depends on data */
    {"aten::mkldnn_rnn_layer", FATE_record_grad}, /* makes what backward needs only while autograd is on */
    {"aten::record_stream", FATE_break_op},
    {"aten::_to_dense", FATE_break_layout},
    {"aten::_to_sparse", FATE_break_layout},
    {"aten::sparse_", FATE_break_layout},
    {"aten::_sparse_", FATE_break_layout},
    {"aten::to_mkldnn", FATE_break_layout},
    {"aten::quantize_", FATE_break_layout},
    {"aten::_nested_", FATE_break_layout},
    {"prim::", FATE_break_op},
};

static int frontop_init(void) {
  if (torch_c) return 0;
  PyObject *torch = mg_import("torch"), *tag = NULL;
  int rc = -1;
  if (!torch) return -1;
  mg_ctx_init(&frontop_ctx);
  if (!(tag = PyObject_GetAttrString(torch, "Tag"))) goto done;
  if (!(torch_ops = PyObject_GetAttrString(torch, "ops"))) goto done;
  if (!(tag_value = PyObject_GetAttrString(tag, "data_dependent_output"))) goto done;
  if (!(tag_shape = PyObject_GetAttrString(tag, "dynamic_output_shape"))) goto done;
  if (!(tag_inplace_view = PyObject_GetAttrString(tag, "inplace_view"))) goto done;
  if (!(torch_c = PyObject_GetAttrString(torch, "_C"))) goto done;
  rc = 0;
done:
  Py_DECREF(torch);
  Py_XDECREF(tag);
  return rc;
}

static int frontop_has_kernel(const char *name, const char *key) {
  PyObject *r = PyObject_CallMethod(torch_c, "_dispatch_has_kernel_for_dispatch_key", "ss", name, key);
  if (!r) return -1;
  int yes = PyObject_IsTrue(r);
  Py_DECREF(r);
  return yes;
}

/* A composite op runs its kernel in C++, as under autograd: the decomposition in Python that some have too is
 * meant for torch's own tracer, and asks sizes what only that tracer's know.  Others that only
 * call ops may be the device's. */
static int frontop_set_parts(MgFrontOp *fo, const char *of) {
  PyObject *tools = mg_import("functools"),
           *keys = tools ? PyObject_GetAttrString(torch_c, "DispatchKey") : NULL;
  PyObject *key = keys ? PyObject_GetAttrString(keys, of) : NULL;
  PyObject *run = key ? PyObject_GetAttrString(fo->func, "_op_dk") : NULL;
  if (run) fo->parts = PyObject_CallMethod(tools, "partial", "OO", run, key);
  Py_XDECREF(run);
  Py_XDECREF(key);
  Py_XDECREF(keys);
  Py_XDECREF(tools);
  return fo->parts ? 0 : -1;
}

static int frontop_set_fate(MgFrontOp *fo) {
  const MgOp *op = fo->op;
  fo->fate = FATE_record;
  PyObject *tags = PyObject_GetAttrString(fo->func, "tags");
  if (!tags) return -1;
  int value = PySequence_Contains(tags, tag_value), shape = PySequence_Contains(tags, tag_shape),
      iv = PySequence_Contains(tags, tag_inplace_view);
  Py_DECREF(tags);
  if (value < 0 || shape < 0 || iv < 0) return -1;
  fo->inplace_view = iv;
  if (!strcmp(op->full, "aten::_unique")) shape = 1; /* torch 2.11 forgot the tag */
  if (value || shape) fo->fate = FATE_break_value;
  fo->data_shape = shape && !op->mutates;
  for (size_t i = 0; i < sizeof frontop_fates / sizeof *frontop_fates; i++)
    if (!strncmp(op->full, frontop_fates[i].prefix, strlen(frontop_fates[i].prefix))) {
      fo->fate = frontop_fates[i].fate;
      return fo->fate == FATE_record_dense ? frontop_set_parts(fo, "CPU") : 0;
    }
  if (fo->fate != FATE_record) return 0;
  int composite = frontop_has_kernel(op->full, "CompositeImplicitAutograd");
  int meta = composite > 0 ? frontop_has_kernel(op->full, "Meta") : 0;
  int whole = composite > 0 && op->code != TOP_extern ? frontop_has_kernel(op->full, "CPU") : 0;
  if (composite < 0 || meta < 0 || whole < 0) return -1;
  if (!composite || meta || whole) return 0; /* whole: mish_backward, which has a kernel for each device */
  fo->fate = FATE_decompose;
  return frontop_set_parts(fo, "CompositeImplicitAutograd");
}

/* Default values as Python objects, read once from torch's own schema. */
static int frontop_set_defaults(MgFrontOp *fo, PyObject *schema) {
  int rc = -1;
  PyObject *args = PyObject_GetAttrString(schema, "arguments"), *fast = NULL;
  if (!args || !(fast = PySequence_Fast(args, "arguments"))) goto done;
  if (PySequence_Fast_GET_SIZE(fast) != fo->op->nparam) {
    PyErr_Format(PyExc_SystemError, "magneto: %s: schema has %zd arguments, parsed %d", fo->op->full,
                 PySequence_Fast_GET_SIZE(fast), fo->op->nparam);
    goto done;
  }
  fo->deflt = mg_calloc(fo->op->nparam + 1, sizeof *fo->deflt);
  fo->name = mg_calloc(fo->op->nparam + 1, sizeof *fo->name);
  if (!fo->deflt || !fo->name) {
    PyErr_NoMemory();
    goto done;
  }
  for (int i = 0; i < fo->op->nparam; i++) {
    if (!(fo->name[i] = PyUnicode_InternFromString(fo->op->param[i].name))) goto done;
    if (!fo->op->param[i].has_default) continue;
    fo->deflt[i] = PyObject_GetAttrString(PySequence_Fast_GET_ITEM(fast, i), "default_value");
    if (!fo->deflt[i]) goto done;
  }
  rc = 0;
done:
  Py_XDECREF(args);
  Py_XDECREF(fast);
  return rc;
}

static void frontop_free(MgFrontOp *fo) {
  if (!fo) return;
  for (int i = 0; fo->op && i < fo->op->nparam; i++) {
    if (fo->deflt) Py_XDECREF(fo->deflt[i]);
    if (fo->name) Py_XDECREF(fo->name[i]);
  }
  free(fo->deflt);
  free(fo->name);
  Py_XDECREF(fo->func);
  Py_XDECREF(fo->call);
  free(fo);
}

/* Ops of magneto/_glue/control_flow.py take objects that no schema can name: the Python function is called
 * itself. */
static int frontop_call_ours(MgFrontOp *fo) {
  PyObject *space = PyObject_GetAttrString(fo->func, "namespace"), *m = NULL, *name = NULL, *f = NULL;
  bool ours = space && PyUnicode_Check(space) && !PyUnicode_CompareWithASCIIString(space, "magneto");
  if (ours && (m = mg_glue(GLUE_control_flow)) && (name = PyObject_GetAttrString(fo->func, "_opname")))
    f = PyObject_GetAttr(m, name);
  Py_XDECREF(space);
  Py_XDECREF(m);
  Py_XDECREF(name);
  if (!ours) return PyErr_Occurred() ? -1 : 0;
  if (f) Py_SETREF(fo->call, f);
  return f ? 0 : -1;
}

static const MgFrontOp *frontop_new(PyObject *func) {
  MgFrontOp *fo = mg_calloc(1, sizeof *fo);
  PyObject *schema = NULL, *text = NULL;
  const char *s;
  if (!fo) return (const MgFrontOp *)PyErr_NoMemory();
  fo->func = Py_NewRef(func);
  if (!(schema = PyObject_GetAttrString(func, "_schema"))) goto fail;
  if (!(fo->call = PyObject_GetAttrString(func, "_op"))) goto fail;
  if (frontop_call_ours(fo)) goto fail;
  if (!(text = PyObject_Str(schema)) || !(s = PyUnicode_AsUTF8(text))) goto fail;
  if (!(fo->op = mg_op_from_schema(&frontop_ctx, s))) {
    PyErr_Format(PyExc_SystemError, "magneto: cannot parse schema '%s': %s", s, frontop_ctx.msg);
    frontop_ctx.rc = MG_OK;
    goto fail;
  }
  if (frontop_set_fate(fo) || frontop_set_defaults(fo, schema)) goto fail;
  fo->lift_fresh = !strcmp(fo->op->full, "aten::lift_fresh");
  fo->detach = !strcmp(fo->op->name, "aten::detach") || !strcmp(fo->op->name, "aten::detach_");
  fo->zero_tensor = !strcmp(fo->op->full, "aten::_efficientzerotensor");
  fo->plain = true;
  for (int i = 0; i < fo->op->nret; i++)
    if (fo->op->ret_kind[i] != AK_tensor && fo->op->ret_kind[i] != AK_tensor_list) fo->plain = false;
  if (frontop_n == frontop_cap && !mg_grow(&frontop_all, &frontop_cap, sizeof *frontop_all, 256)) goto nomem;
  if (mg_map_putp(&frontop_by_obj, func, frontop_n) || mg_map_put(&frontop_by_op, fo->op->id + 2, frontop_n))
    goto nomem;
  frontop_all[frontop_n++] = fo;
  Py_DECREF(schema);
  Py_DECREF(text);
  return fo;
nomem:
  PyErr_NoMemory();
fail:
  Py_XDECREF(schema);
  Py_XDECREF(text);
  frontop_free(fo);
  return NULL;
}

const MgFrontOp *mg_frontop_find(PyObject *func) {
  uint32_t i = mg_map_getp(&frontop_by_obj, func);
  if (i != MG_MAP_NONE) return frontop_all[i];
  if (frontop_init()) return NULL;
  return frontop_new(func);
}

const MgFrontOp *mg_frontop_of(const MgOp *op) {
  uint32_t i = mg_map_get(&frontop_by_op, op->id + 2);
  if (i != MG_MAP_NONE) return frontop_all[i];
  if (frontop_init()) return NULL;
  const char *sep = strstr(op->name, "::");
  if (!sep) {
    PyErr_Format(PyExc_SystemError, "magneto: op %s has no namespace", op->full);
    return NULL;
  }
  const MgFrontOp *fo = NULL;
  PyObject *nsname = PyUnicode_FromStringAndSize(op->name, sep - op->name), *ns = NULL, *packet = NULL,
           *func = NULL;
  if (!nsname || !(ns = PyObject_GetAttr(torch_ops, nsname))) goto done;
  if (!(packet = PyObject_GetAttrString(ns, sep + 2))) goto done;
  if (!(func = PyObject_GetAttrString(packet, *op->overload ? op->overload : "default"))) goto done;
  fo = mg_frontop_find(func);
done:
  Py_XDECREF(nsname);
  Py_XDECREF(ns);
  Py_XDECREF(packet);
  Py_XDECREF(func);
  return fo;
}
