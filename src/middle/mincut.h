/* Minimum cut between two vertices of a directed graph with int64 capacities. */
#ifndef MG_MINCUT_H
#define MG_MINCUT_H
#include "base/ctx.h"

#define MG_CUT_INF (INT64_MAX / 4)

typedef struct MgCutEdge { /* edges lie in pairs: e ^ 1 is e's reverse */
  uint32_t to, next;       /* next edge out of the same vertex, + 1; 0: none */
  int64_t left;            /* capacity that is not used yet */
} MgCutEdge;

typedef struct MgCut {
  MgCtx *c; /* everything lives in its arena */
  uint32_t nvertex;
  uint32_t *first; /* per vertex: its first edge, + 1 */
  MgCutEdge *edge;
  uint32_t nedge, cap_edge;
  uint32_t *level, *at, *queue; /* work of the algorithm */
  bool *to_sink; /* result, per vertex: on the sink's side of the minimum cut that lies nearest to the sink */
} MgCut;

MgRc mg_cut_init(MgCut *f, MgCtx *c, uint32_t nvertex);
MgRc mg_cut_edge(MgCut *f, uint32_t from, uint32_t to, int64_t capacity);
/* Fills f->to_sink; *value is the capacity of the cut, at least MG_CUT_INF when there is no finite one. */
MgRc mg_cut_run(MgCut *f, uint32_t source, uint32_t sink, int64_t *value);
#endif
