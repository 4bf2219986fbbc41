/* The table of recursive operations: see the header.  Also what guards ask of a recording. */
#include "entry/guard/guard_set.h"
#include "host/python/hook_mode.h"
#include "record/call/call.h"
#include "record/call/marked_functions.h"
#include "record/core/identity.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/core/source_place.h"
#include "record/dispatch/constant_tensors.h"
#include "record/dispatch/dispatch.h"
#include "record/dispatch/one_hot.h"
#include "record/dispatch/recurrent.h"
#include "record/fx/fx.h"
#include "record/object/attributes.h"
#include "record/object/namespaces.h"
#include "record/object/wrap.h"
#include "record/snapshot/snapshot.h"
#include "record/symbolic/dynamic_sources.h"
#include "record/tensor/standin.h"
#include "record/tensor/subclass.h"

const MgRecOps mg_ops = {
    .wrap = mg_wrap,
    .older_attr = mg_older_attr,
    .getattr = mg_rec_getattr,
    .lookup_special = mg_rec_lookup_special,
    .load_global = mg_rec_load_global,
    .call = mg_rec_call,
    .marked_class = mg_rec_marked_class,
    .snapshot_build = mg_snapshot_build,
    .standin_new = mg_standin_new,
    .scalar_input = mg_standin_scalar_input,
    .subclass_among = mg_subclass_among,
    .dispatch_call = mg_dispatch_call,
    .dispatch_emit = mg_dispatch_emit,
    .constval_contents = mg_constval_contents,
    .one_hot = mg_one_hot,
    .recurrent_call = mg_recurrent_call,
    .fx_late_value = mg_fx_late_value,
    .fx_computes = mg_fx_computes,
    .fx_is_aten = mg_fx_is_aten,
};

static bool ops_is_older(PyObject *o) { return mg_map_getp(&mg_rec->ident->by_orig, o) != MG_MAP_NONE; }

static uint32_t ops_place(const char **path) {
  const char *file = NULL;
  uint32_t line = mg_rec && mg_rec->top ? mg_place_at(mg_rec, &file) : 0;
  *path = mg_place_path(file);
  return line;
}

const MgGuardAsks mg_guard_asks = {
    .is_fresh = mg_is_fresh, .is_older = ops_is_older, .changing_key = mg_dynfloat_key, .place = ops_place};
