/* May a place that no entry fits be compiled, or compiled again?
 * In: a driven frame, the entries at its position.  Out: a verdict; where that is an error, or a warning that
 * is one, the exception as well.  Nothing here is asked while an entry fits. */
#include "frame/drive_policy.h"
#include <stdlib.h>
#include "base/log.h"
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_check.h"
#include "entry/launch/config.h"
#include "entry/launch/events.h"
#include "entry/launch/stats.h"
#include "entry/run/entry_cache.h"
#include "frame/frame_driver.h"
#include "frame/headroom.h"
#include "frame/interpreted_loops.h"
#include "host/python/code_info.h"
#include "host/python/decode.h"
#include "host/python/dynamo_config.h"
#include "record/core/recording.h"
#include "tuning.h"

/* Comparing may run Python code, which may drop entries: e is held meanwhile. */
bool mg_drive_differs(MgEntry *e, const MgSlots *slots, MgGuardFail *why) {
  *why = (MgGuardFail){0};
  PyObject **vals = mg_calloc((size_t)mg_guards_nsrc(e->guards) + 1, sizeof *vals);
  if (!vals) return false;
  e->refs++;
  bool differs = !mg_guards_check(e->guards, slots, vals, why);
  mg_entry_release(e);
  free(vals);
  return differs;
}

/* ---- limits ---- */

static bool drive_limit_raises(const MgDrive *d) {
  return d->at.cfg->fullgraph || mg_stance_set("fail_on_recompile_limit_hit");
}

/* The recompile limit where the frame may not go on in CPython: fullgraph=True promised
 * one graph.  Has it raised? */
static bool drive_limit_is_error(const MgDrive *d, const MgBucket *b, int unit) {
  if (!drive_limit_raises(d)) return false;
  mg_raise_dynamo_error("FailOnRecompileLimitHit",
                        "magneto: %U was compiled %d times at line %d, which is the limit, and %s "
                        "(MAGNETO_LOGS=recompiles shows why)",
                        d->at.v.code->co_qualname, b->n, d->at.code->line[unit],
                        d->at.cfg->fullgraph ? "fullgraph=True" : "fail_on_recompile_limit_hit is set");
  return true;
}

/* The recompile limit: the frame goes on in CPython.  The place says so once, for all its instances. */
static int drive_give_up(MgDrive *d, MgSite *site, MgBucket *b, int unit) {
  b->eager = true;
  mg_stats.fallbacks++;
  const char *name = PyUnicode_AsUTF8(d->at.v.code->co_qualname);
  mg_log(MG_LOG_fallback, "%s, line %d: %d entries and none fits", name, d->at.code->line[unit], b->n);
  if (site->told) return 0;
  site->told = true;
  return PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
                          "magneto: %U was compiled %d times at line %d and runs eagerly from here on "
                          "(MAGNETO_LOGS=recompiles shows why)",
                          d->at.v.code->co_qualname, b->n, d->at.code->line[unit]);
}

/* Has this place been compiled often enough?  Tensors of ever new sizes may come more often, and so may
 * modules that a loop goes over: such an entry is found fast. */
static bool drive_at_limit(MgDrive *d, MgBucket *b, const MgSlots *slots) {
  if (!b->n) return false;
  bool exact;
  int limit = mg_stance_recompile_limit(d->at.cfg->recompile_limit, &exact);
  bool texts =
      !exact && d->at.info->dyn && !drive_limit_raises(d) && mg_dynfloat_texts_break(d->at.info->dyn);
  if (texts) limit *= 2; /* the place was begun anew */
  if (b->n < limit) return false;
  bool sizes = !exact && b->n < MG_TUNE_RECOMPILE_MODULES * limit;
  int modules = 0;
  for (int i = 0; i < b->n && sizes; i++) {
    MgGuardFail why;
    sizes = mg_drive_differs(b->entry[i], slots, &why) && (why.of_tensor || why.other_module);
    modules += why.other_module;
  }
  return !sizes || b->n - modules >= MG_TUNE_RECOMPILE_SIZES * limit;
}

/* At a limit that the program has not set itself: may the place be compiled again, without guards on strings
 * that change?  -1 with an exception. */
static int drive_begins_anew(const MgDrive *d, const MgSite *site) {
  bool exact;
  mg_stance_recompile_limit(d->at.cfg->recompile_limit, &exact);
  if (exact || site->n >= MG_TUNE_SITE_ENTRIES || drive_limit_raises(d)) return 0;
  return mg_dynfloat_break_texts(d->at.info->dyn);
}

/* The limit is reached, or an entry that was compiled just now does not fit already: something changes behind
 * our back. */
static MgDriveVerdict drive_over_limit(MgDrive *d, MgSite *site, MgBucket *b, int unit, bool compiled) {
  if (d->at.up) {
    b->eager = true;
    return VERDICT_alone;
  }
  bool fails = (!compiled && drive_limit_is_error(d, b, unit)) || drive_give_up(d, site, b, unit);
  return fails ? VERDICT_fail : VERDICT_limit;
}

/* ---- what the user has asked for ---- */

static MgDriveVerdict drive_by_stance(const MgDrive *d, int unit, MgStance stance) {
  switch (stance) {
  case STANCE_default:
  case STANCE_eager_then_compile: return VERDICT_compile;
  case STANCE_fail_on_recompile:
    PyErr_Format(PyExc_RuntimeError,
                 "magneto: %U, line %d would be compiled, and the stance is \"fail_on_recompile\"",
                 d->at.v.code->co_qualname, d->at.code->line[unit]);
    return VERDICT_fail;
  default: return VERDICT_eager;
  }
}

/* torch._dynamo.config.error_on_recompile: has it raised? */
static bool drive_recompile_is_error(const MgDrive *d, int unit) {
  if (!mg_stance_set("error_on_recompile")) return false;
  mg_raise_dynamo_error(
      "RecompileError",
      "magneto: %U, line %d would be compiled again, and torch._dynamo.config.error_on_recompile is set",
      d->at.v.code->co_qualname, d->at.code->line[unit]);
  return true;
}

/* ---- recompiles ---- */

static void drive_log_recompile(MgDrive *d, MgBucket *b, const MgSlots *slots) {
  for (int i = 0; i < b->n; i++) mg_guards_note_moves(b->entry[i]->guards);
  if (!mg_log_on(MG_LOG_recompiles) && !mg_measure_on) return;
  for (int i = 0; i < b->n; i++) {
    int line = b->entry[i]->line;
    MgGuardFail why;
    if (!mg_drive_differs(b->entry[i], slots, &why)) continue;
    mg_log(MG_LOG_recompiles, "%s, line %d, entry %d of %d: %s", PyUnicode_AsUTF8(d->at.v.code->co_qualname),
           line, i + 1, b->n, why.text);
    if (!i) mg_event("recompile", d->at.v.code, line, why.text); /* the entry that was used last */
  }
}

/* What differs from the entries here is dynamic from now on.  -1 with an exception. */
static int drive_learn(MgDrive *d, MgBucket *b, const MgSlots *slots) {
  mg_stats.recompiles++;
  drive_log_recompile(d, b, slots);
  for (int i = 0; i < b->n; i++)
    if (mg_dynfloat_learn(&d->at.info->dyn, b->entry[i]->guards, slots)) return -1;
  return 0;
}

MgDriveVerdict mg_drive_verdict(MgDrive *d, MgSite *site, MgBucket *b, const MgSlots *slots, int unit,
                                MgStance stance, bool compiled) {
  bool limit =
      compiled || ((drive_at_limit(d, b, slots) || site->n >= MG_TUNE_SITE_ENTRIES) && !mg_force_break);
  if (limit && !compiled && mg_walk_at_limit(d, b)) return VERDICT_walk;
  int begins = limit && !compiled ? drive_begins_anew(d, site) : 0;
  if (begins < 0) return VERDICT_fail;
  limit &= !begins;
  if (limit) return drive_over_limit(d, site, b, unit, compiled);
  MgDriveVerdict asked = drive_by_stance(d, unit, stance);
  if (asked != VERDICT_compile) return asked;
  int headroom = mg_headroom_short(d->at.cfg);
  if (headroom) return headroom > 0 ? VERDICT_eager : VERDICT_fail;
  mg_stats.misses++;
  if (!b->n || d->at.unclaimed) return VERDICT_compile;
  if (drive_recompile_is_error(d, unit)) return VERDICT_fail;
  return drive_learn(d, b, slots) ? VERDICT_fail : VERDICT_compile;
}
