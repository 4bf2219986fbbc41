/* What tensors are of each other beside memory: views and their bases, and version counters.  See viewstate.c. */
#ifndef MG_FRONT_VIEWSTATE_H
#define MG_FRONT_VIEWSTATE_H
#include "front/standin.h"

/* ---- while recording: what the program is told of a stand-in; NULL with an exception or a break ---- */
PyObject *mg_viewstate_version(PyObject *standin); /* `_version` */
PyObject *mg_viewstate_base(PyObject *standin);    /* `_base` */
/* Counts a write to each of these tensors.  -1 with an exception. */
int mg_viewstate_written(PyObject *list);
/* The recording ends: by how much it has moved the version counters of its inputs.  -1 with an exception. */
int mg_viewstate_take(MgCapture *cap);

/* ---- runs ---- */
typedef struct MgViewState MgViewState;
/* What a run of this graph leaves to be done, for graph inputs in their order; *s NULL: nothing.  -1 with an exception. */
int mg_viewstate_build(const MgRec *r, MgViewState **s);
/* Before a run.  versions: room for mg_viewstate_versions numbers.  joint: those that the forward run of a graph with backward sets
 * itself, by mg_viewstate_count, before it saves inputs. */
uint32_t mg_viewstate_versions(const MgViewState *s, bool joint);
int mg_viewstate_before(const MgViewState *s, PyObject *const *in, int64_t *versions);
int mg_viewstate_count(const MgViewState *s, PyObject *const *in, const int64_t *versions);
/* After it: views of inputs and of other results get their base, counters are where eager leaves them.  -1 with an exception. */
int mg_viewstate_after(const MgViewState *s, PyObject *const *in, const int64_t *versions, PyObject **outs);
void mg_viewstate_free(MgViewState *s); /* or NULL */
#endif
