/* May two views of one memory share elements?  Intervals of addresses, and, for parts of a dense tensor along
 * its own dimensions (slices, selected rows or columns), boxes of coordinates.  What is not
 * known for certain may overlap. */
#include "middle/middle.h"

enum { OVERLAP_RANK = 16 };
typedef struct OvDim {
  int64_t size, stride;
} OvDim;
typedef struct OvView { /* one view, in numbers */
  OvDim dim[OVERLAP_RANK];
  int n;               /* dimensions of more than one element */
  int64_t first, last; /* the addresses of its elements lie between these */
  bool empty;
} OvView;

static bool overlap_view(const MgGraph *g, ValRef v, OvView *o) {
  const MgVal *val = mg_val(g, v);
  *o = (OvView){0};
  if (!mg_ex_const_int(g->x, val->offset, &o->first)) return false;
  o->last = o->first;
  if (val->ndim > OVERLAP_RANK) return false;
  for (int i = 0; i < val->ndim; i++) {
    OvDim d;
    if (!mg_ex_const_int(g->x, val->size[i], &d.size) || !mg_ex_const_int(g->x, val->stride[i], &d.stride) ||
        d.stride < 0)
      return false;
    if (!d.size) o->empty = true;
    if (d.size <= 1) continue;
    o->last += (d.size - 1) * d.stride;
    o->dim[o->n++] = d;
  }
  return true;
}

/* The coordinates that the view has along the root's dimension k: begin and end.  False: it
 * has none of its own there. */
static bool overlap_range(const OvView *root, const OvView *v, int k, int64_t *begin, int64_t *end) {
  OvDim r = root->dim[k];
  int64_t size = 1;
  for (int i = 0; i < v->n; i++)
    if (v->dim[i].stride == r.stride) size = v->dim[i].size;
  *begin = (v->first - root->first) / r.stride % r.size;
  *end = *begin + size;
  return *end <= r.size;
}

/* Are all dimensions of the view such of the root, whose elements have one address each? */
static bool overlap_is_part(const OvView *root, const OvView *v) {
  for (int i = 0; i < v->n; i++) {
    int same = 0;
    for (int k = 0; k < root->n; k++) same += root->dim[k].stride == v->dim[i].stride;
    for (int k = 0; k < i; k++) same += v->dim[k].stride == v->dim[i].stride;
    if (same != 1) return false;
  }
  return v->first >= root->first;
}

static bool overlap_is_dense(const OvView *root) {
  int64_t numel = 1;
  for (int i = 0; i < root->n; i++) numel *= root->dim[i].size;
  for (int i = 0; i < root->n; i++) { /* each stride is the product of the sizes of the dimensions inside */
    int64_t inside = 1;
    for (int k = 0; k < root->n; k++)
      if (root->dim[k].stride < root->dim[i].stride) inside *= root->dim[k].size;
    if (inside != root->dim[i].stride) return false;
  }
  return root->last - root->first == numel - 1;
}

bool mg_may_overlap(const MgGraph *g, ValRef root, ValRef a, ValRef b) {
  OvView r, x, y;
  if (a == b || mg_val(g, a)->dtype != mg_val(g, b)->dtype) return true;
  if (!overlap_view(g, a, &x) || !overlap_view(g, b, &y)) return true;
  if (x.empty || y.empty || x.last < y.first || y.last < x.first) return false;
  if (mg_val(g, a)->dtype != mg_val(g, root)->dtype || !overlap_view(g, root, &r) || !overlap_is_dense(&r))
    return true;
  if (!overlap_is_part(&r, &x) || !overlap_is_part(&r, &y)) return true;
  for (int k = 0; k < r.n; k++) {
    int64_t x0, x1, y0, y1;
    if (!overlap_range(&r, &x, k, &x0, &x1) || !overlap_range(&r, &y, k, &y0, &y1)) return true;
    if (x1 <= y0 || y1 <= x0) return false;
  }
  return true;
}
