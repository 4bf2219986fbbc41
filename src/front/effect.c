#include "front/effect.h"
#include "front/names.h"
#include "front/classes.h"
#include "front/guard.h"
#include "front/identity.h"
#include "front/record_obj.h"
#include "front/setting.h"
#include "front/standin.h"
#include <string.h>

int mg_effect_state_change(MgStateChange *c) {
  memset(c, 0, sizeof *c);
  c->before = mg_rec->guards->state;
  mg_state_read(&c->after);
  /* the recorder's own mode is on torch's stacks now, and anomaly mode is off */
  c->after.anomaly = c->before.anomaly;
  c->after.dispatch_modes = c->before.dispatch_modes;
  c->after.function_modes = c->before.function_modes;
  c->after.function_state = c->before.function_state;
  c->any = memcmp(&c->before, &c->after, sizeof c->before) != 0;
  if (mg_rec->cap && mg_state_function(-1) != mg_rec->cap->function_state) {
    mg_rec_break(BK_op, "torch_function is enabled or disabled");
    return -1;
  }
  if (c->before.inference_mode != c->after.inference_mode || c->before.threads != c->after.threads ||
      c->before.functorch != c->after.functorch) {
    mg_rec_break(BK_op, "a change of torch's global state");
    return -1;
  }
  if (mg_rec->cap) c->autocast_depth = mg_state_autocast_depth() - mg_rec->cap->autocast_depth;
  if (mg_setting_changes(mg_rec, &c->settings)) return -1;
  c->any |= c->autocast_depth || c->settings;
  return 0;
}

/* torch._C.<name>(...) */
static int effect_call(const char *name, const char *format, ...) {
  PyObject *c = mg_import("torch"), *f = c ? PyObject_GetAttrString(c, name) : NULL;
  va_list ap;
  va_start(ap, format);
  PyObject *a = f ? Py_VaBuildValue(format, ap) : NULL, *r = a ? PyObject_CallObject(f, a) : NULL;
  va_end(ap);
  Py_XDECREF(a);
  Py_XDECREF(f);
  Py_XDECREF(c);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

/* torch.set_autocast_dtype(device, the dtype of a c10::ScalarType) */
static int effect_autocast_dtype(const char *device, int8_t code) {
  static const struct { int8_t code; const char *name; } types[] = {
      {5, "float16"}, {6, "float32"}, {7, "float64"}, {15, "bfloat16"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (types[i].code != code) continue;
    PyObject *torch = mg_import("torch"), *dt = torch ? PyObject_GetAttrString(torch, types[i].name) : NULL;
    Py_XDECREF(torch);
    return dt ? effect_call("set_autocast_dtype", "(sN)", device, dt) : -1;
  }
  return 0;
}

int mg_effect_apply(const MgTorchState *from, const MgTorchState *to) {
  if (from->grad_mode != to->grad_mode) mg_abi.aoti_torch_grad_mode_set_enabled(to->grad_mode);
  if (from->autocast_cpu != to->autocast_cpu && effect_call("set_autocast_enabled", "(sN)", "cpu", PyBool_FromLong(to->autocast_cpu))) return -1;
  if (from->autocast_cuda != to->autocast_cuda && effect_call("set_autocast_enabled", "(sN)", "cuda", PyBool_FromLong(to->autocast_cuda))) return -1;
  if (from->autocast_cpu_dtype != to->autocast_cpu_dtype && effect_autocast_dtype("cpu", to->autocast_cpu_dtype)) return -1;
  if (from->autocast_cuda_dtype != to->autocast_cuda_dtype && effect_autocast_dtype("cuda", to->autocast_cuda_dtype))
    return -1;
  if (from->autocast_cache != to->autocast_cache &&
      effect_call("set_autocast_cache_enabled", "(N)", PyBool_FromLong(to->autocast_cache)))
    return -1;
  return 0;
}

void mg_effects_undo(MgRec *r) {
  mg_generators_end(r);
  mg_setting_undo(r);
  mg_classes_undo(r);
  mg_rec_context_undo(r);
  if (!r->guards) return;
  MgTorchState now;
  mg_state_read(&now);
  if (mg_effect_apply(&now, &r->guards->state)) PyErr_Clear();
}
