/* What is kept of a code object: its decoded form and its sites. */
#ifndef MG_CODE_INFO_H
#define MG_CODE_INFO_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "base/table.h"

typedef struct MgCode MgCode;

typedef struct MgSite MgSite;

typedef struct MgCodeInfo {
  struct MgCodeInfo *next, *prev; /* all of them, for reset() */
  PyCodeObject *code;             /* borrowed: owns this */
  MgCode *decoded;                /* NULL until asked for */
  MgSite *sites;
  PyObject *dyn;   /* floats that differ from call to call (automatic_dynamic.c), strong; NULL: none */
  MgMap transient; /* classes of modules that are made anew for each call (transient_modules.h) */
  bool looked;     /* a call has run as written under the stance that asks for it */
  uint8_t stopped; /* recordings that were given up for signals whose handlers did not raise */
  bool by_numbers; /* as a cached function: what it gives for sizes that are symbols is no value made of them
                    */
  int8_t skip;     /* answer of trace_rules.c; -1 not asked yet */
} MgCodeInfo;
extern MgCodeInfo *mg_code_infos;                                  /* all of them */
extern void (*mg_code_info_ends)(MgCodeInfo *info);                /* frees its sites: set by entry_cache.c */
MgCodeInfo *mg_code_info(PyCodeObject *co);                        /* borrowed; NULL with exception */
const MgCode *mg_code_decoded(MgCodeInfo *info, PyCodeObject *co); /* borrowed; NULL with exception */
#endif
