/* Maximum flow by Dinic's algorithm, and the minimum cut that it shows.
 * In: a graph built edge by edge.  Out: which vertices lie on the sink's side.  Blocking flows are found by
 * an explicit
 * walk, not by recursion: the graphs are as deep as models are long. */
#include "middle/mincut.h"
#include <string.h>

MgRc mg_cut_init(MgCut *f, MgCtx *c, uint32_t nvertex) {
  *f = (MgCut){.c = c, .nvertex = nvertex};
  TRYP(f->first = mg_new(c, uint32_t, nvertex + 1));
  TRYP(f->level = mg_new(c, uint32_t, nvertex + 1));
  TRYP(f->at = mg_new(c, uint32_t, nvertex + 1));
  TRYP(f->queue = mg_new(c, uint32_t, nvertex + 1));
  TRYP(f->to_sink = mg_new(c, bool, nvertex + 1));
  return MG_OK;
}

MgRc mg_cut_edge(MgCut *f, uint32_t from, uint32_t to, int64_t capacity) {
  if (f->nedge + 2 > f->cap_edge) {
    uint32_t cap = f->cap_edge * 2 + 256;
    f->edge = mg_ctx_grow(f->c, f->edge, f->nedge * sizeof *f->edge, cap * sizeof *f->edge);
    TRYP(f->edge);
    f->cap_edge = cap;
  }
  f->edge[f->nedge] = (MgCutEdge){to, f->first[from], capacity};
  f->first[from] = ++f->nedge;
  f->edge[f->nedge] = (MgCutEdge){from, f->first[to], 0};
  f->first[to] = ++f->nedge;
  return MG_OK;
}

/* Distances from the source along edges with room, + 1 (0: not reached); true when the sink is reached. */
static bool cut_levels(MgCut *f, uint32_t source, uint32_t sink) {
  uint32_t head = 0, tail = 0;
  memset(f->level, 0, f->nvertex * sizeof *f->level);
  f->level[source] = 1;
  f->queue[tail++] = source;
  while (head < tail && !f->level[sink]) {
    uint32_t v = f->queue[head++];
    for (uint32_t e = f->first[v]; e; e = f->edge[e - 1].next) {
      const MgCutEdge *d = &f->edge[e - 1];
      if (d->left <= 0 || f->level[d->to]) continue;
      f->level[d->to] = f->level[v] + 1;
      f->queue[tail++] = d->to;
    }
  }
  return f->level[sink] != 0;
}

/* Sends as much as fits along the path of `n` edges in f->queue; the number of edges
 * before the first full one. */
static uint32_t cut_push(MgCut *f, uint32_t n, int64_t *value) {
  int64_t room = MG_CUT_INF;
  uint32_t keep = n;
  for (uint32_t i = 0; i < n; i++)
    if (f->edge[f->queue[i]].left < room) room = f->edge[f->queue[i]].left;
  for (uint32_t i = n; i-- > 0;) {
    MgCutEdge *d = &f->edge[f->queue[i]];
    if (d->left < MG_CUT_INF) d->left -= room; /* infinite edges stay so */
    MgCutEdge *back = &f->edge[f->queue[i] ^ 1];
    if (back->left < MG_CUT_INF) back->left += room;
    if (!d->left) keep = i;
  }
  *value += room;
  return keep;
}

/* A blocking flow of the level graph.  False when an infinite path exists. */
static bool cut_block(MgCut *f, uint32_t source, uint32_t sink, int64_t *value) {
  uint32_t n = 0; /* edges of the path so far, in f->queue */
  memcpy(f->at, f->first, f->nvertex * sizeof *f->at);
  for (;;) {
    uint32_t v = n ? f->edge[f->queue[n - 1]].to : source;
    if (v == sink) {
      uint32_t keep = cut_push(f, n, value);
      if (keep == n) return false;
      n = keep;
      continue;
    }
    while (f->at[v]) {
      const MgCutEdge *d = &f->edge[f->at[v] - 1];
      if (d->left > 0 && f->level[d->to] == f->level[v] + 1) break;
      f->at[v] = d->next;
    }
    if (f->at[v]) {
      f->queue[n++] = f->at[v] - 1;
    } else {
      if (!n) return true;
      uint32_t from = f->edge[f->queue[--n] ^ 1].to;
      f->at[from] = f->edge[f->at[from] - 1].next; /* a dead end */
    }
  }
}

MgRc mg_cut_run(MgCut *f, uint32_t source, uint32_t sink, int64_t *value) {
  *value = 0;
  while (*value < MG_CUT_INF && cut_levels(f, source, sink))
    if (!cut_block(f, source, sink, value)) *value = MG_CUT_INF;
  uint32_t head = 0, tail = 0;
  memset(f->to_sink, 0, f->nvertex * sizeof *f->to_sink);
  f->to_sink[sink] = true;
  f->queue[tail++] = sink;
  while (head < tail) { /* backwards along edges with room */
    uint32_t v = f->queue[head++];
    for (uint32_t e = f->first[v]; e; e = f->edge[e - 1].next) {
      uint32_t u = f->edge[e - 1].to;
      if (f->to_sink[u] || f->edge[(e - 1) ^ 1].left <= 0) continue;
      f->to_sink[u] = true;
      f->queue[tail++] = u;
    }
  }
  return MG_OK;
}
