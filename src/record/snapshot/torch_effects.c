/* See the header. */
#include "record/snapshot/torch_effects.h"
#include <string.h>
#include "entry/guard/guard_set.h"
#include "entry/run/snapshot_program.h"
#include "host/python/hook_mode.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/snapshot/torch_switches.h"

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
    mg_rec_break(BK_torch_state, "torch_function is enabled or disabled");
    return -1;
  }
  if (c->before.inference_mode != c->after.inference_mode || c->before.threads != c->after.threads ||
      c->before.functorch != c->after.functorch) {
    mg_rec_break(BK_torch_state, "a change of torch's global state");
    return -1;
  }
  if (mg_rec->cap) c->autocast_depth = mg_state_autocast_depth() - mg_rec->cap->autocast_depth;
  if (mg_setting_changes(mg_rec, &c->settings)) return -1;
  c->any |= c->autocast_depth || c->settings;
  return 0;
}
