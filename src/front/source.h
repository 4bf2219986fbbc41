/* Sources: how a value is found again at the next call, starting from the frame's slots and function.
 * A source is hash-consed in its guard set: the same path is loaded once per check.  SrcRef 0 is "none": the object hangs
 * on an owner that is guarded by identity, so the owner's dict or type guard covers it. */
#ifndef MG_FRONT_SOURCE_H
#define MG_FRONT_SOURCE_H
#include "base/strbuf.h"
#include "front/rec.h"

typedef enum MgSrcKind {
#define SOURCE(name, text) SRC_##name,
#include "front/guards.def"
  SRC__COUNT
} MgSrcKind;

typedef struct MgSrc {
  uint8_t kind;   /* MgSrcKind */
  SrcRef parent;  /* 0 for roots */
  int32_t idx;    /* slot, item or closure index */
  PyObject *key;  /* strong, or borrowed from the guard set for SRC_pinned; NULL when unused */
} MgSrc;

/* The source of a path, made on first use together with its load. 0 with an exception set when out of memory. */
SrcRef mg_source(MgGuards *g, MgSrcKind kind, SrcRef parent, int32_t idx, PyObject *key);
/* Follows one step. Borrowed; NULL without exception when the path ends.  Never runs Python code other than
 * hashing and comparing dict keys. */
PyObject *mg_source_step(const MgSrc *s, PyObject *parent, const MgSlots *slots);
/* "L['self'].layers[0].weight" */
void mg_source_print(const MgGuards *g, SrcRef src, MgStrbuf *out);
#endif
