/* Names that profilers show for kernels and calls.
 * In: graph nodes.  Out: their ops' names in order, without overloads, the lines of the program that they
 * are of, and the shapes of what they read.
 * A kernel of many ops is named by the first few. */
#include "driver/kernel/label.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "back/kernel/loop_nest.h"

enum { LABEL_MOST_READS = 16 }; /* tensors whose shapes are shown */
enum { LABEL_MOST_OPS = 8, LABEL_CHARS = 200, LABEL_PLACE_CHARS = 160 };

static bool label_has(const NodeRef *node, uint32_t n, NodeRef r) {
  for (uint32_t i = 0; i < n; i++)
    if (node[i] == r) return true;
  return false;
}

uint32_t mg_label_nodes(const MgKernel *k, NodeRef *out, uint32_t most) {
  uint32_t n = 0;
  for (uint32_t l = 0; l < k->nloop; l++)
    for (uint32_t i = 0; i < k->loop[l]->nfrom && n < most; i++)
      if (!label_has(out, n, k->loop[l]->from[i])) out[n++] = k->loop[l]->from[i];
  return n;
}

/* Name of an op without namespace and marks: "sum" of aten::sum.dim_IntList, "softmax" of aten::_softmax. */
static const char *label_op(const MgOp *op) {
  const char *name = strstr(op->name, "::");
  name = name ? name + 2 : op->name;
  while (*name == '_' && name[1]) name++;
  return name;
}

/* The function that a library call applies to its result. */
static const char *label_act(const MgNode *n) {
  const MgArg *act = mg_node_arg(n, "act");
  return act && act->tag == MA_str ? act->u.str : "";
}

static void label_add(char *text, size_t *at, const char *name) {
  int n = snprintf(text + *at, LABEL_CHARS - *at, "%s%s", *at ? "+" : "", name);
  *at += n > 0 ? (size_t)n : 0;
  if (*at >= LABEL_CHARS) *at = LABEL_CHARS - 1;
}

static bool label_names(const MgGraph *g, const NodeRef *node, uint32_t n, const char *name) {
  for (uint32_t i = 0; i < n; i++)
    if (!strcmp(label_op(mg_node(g, node[i])->op), name)) return true;
  return false;
}

/* " (a.py:3)", " (a.py:3-5)", or the first and the last place where files differ. */
static void label_places(const MgGraph *g, const NodeRef *node, uint32_t n, char *text) {
  const MgNode *first = NULL;
  const MgNode *last = NULL;
  for (uint32_t i = 0; i < n; i++) {
    const MgNode *t = mg_node(g, node[i]);
    if (!t->line || !t->file) continue;
    if (!first || (t->file == first->file && t->line < first->line)) first = t;
    if (!last || t->file != last->file || t->line > last->line) last = t;
  }
  *text = 0;
  if (!first) return;
  if (first->file != last->file)
    snprintf(text, LABEL_PLACE_CHARS, " (%s:%u, %s:%u)", first->file, first->line, last->file, last->line);
  else if (first->line != last->line)
    snprintf(text, LABEL_PLACE_CHARS, " (%s:%u-%u)", first->file, first->line, last->line);
  else snprintf(text, LABEL_PLACE_CHARS, " (%s:%u)", first->file, first->line);
}

void mg_label_identifier(const MgGraph *g, const MgKernel *k, char out[MG_LABEL_IDENTIFIER]) {
  NodeRef node[MG_LABEL_NODES];
  uint32_t n = mg_label_nodes(k, node, MG_LABEL_NODES);
  size_t at = 0;
  *out = 0;
  for (uint32_t i = 0; i < n; i++) {
    const char *op = label_op(mg_node(g, node[i])->op);
    size_t len = strlen(op);
    if (label_names(g, node, i, op)) continue;
    if (at + len + 2 > MG_LABEL_IDENTIFIER) break;
    if (at) out[at++] = '_';
    for (const char *c = op; *c; c++) out[at++] = (char)(isalnum((unsigned char)*c) ? *c : '_');
    out[at] = 0;
  }
}

const char *mg_label_text(const MgGraph *g, const NodeRef *node, uint32_t n) {
  char ops[LABEL_CHARS] = "";
  char places[LABEL_PLACE_CHARS];
  size_t at = 0;
  uint32_t named = 0;
  for (uint32_t i = 0; i < n; i++) {
    const MgNode *t = mg_node(g, node[i]);
    if (label_names(g, node, i, label_op(t->op))) continue;
    if (named++ < LABEL_MOST_OPS) label_add(ops, &at, label_op(t->op));
    if (*label_act(t)) label_add(ops, &at, label_act(t));
  }
  if (named > LABEL_MOST_OPS) label_add(ops, &at, "...");
  label_places(g, node, n, places);
  size_t size = strlen("magneto::kernel") + strlen(ops) + strlen(places) + 1;
  char *text = mg_new(g->c, char, size);
  if (text) snprintf(text, size, "magneto::%s%s", *ops ? ops : "kernel", places);
  return text;
}

typedef struct LabelReads { /* values that nodes read from elsewhere, each once */
  const MgGraph *g;
  const NodeRef *node;
  uint32_t nnode, n;
  ValRef val[LABEL_MOST_READS];
} LabelReads;

static void label_read(ValRef *v, void *arg) {
  LabelReads *r = arg;
  if (!*v || r->n == LABEL_MOST_READS || label_has(r->node, r->nnode, mg_val(r->g, *v)->def)) return;
  for (uint32_t i = 0; i < r->n; i++)
    if (r->val[i] == *v) return;
  r->val[r->n++] = *v;
}

/* False: a size is not known when the plan runs. */
static bool label_shape(const MgGraph *g, const MgVal *v, MgLabelSlot slot, void *arg, MgPlanShape *out) {
  int64_t *size = mg_new(g->c, int64_t, v->ndim + 1u);
  *out = (MgPlanShape){.dtype = v->dtype, .ndim = v->ndim, .size = size};
  for (int i = 0; size && i < v->ndim; i++) {
    bool number = mg_ex_const_int(g->x, v->size[i], &size[i]);
    if (number ? size[i] < 0 : !slot || !slot(arg, v->size[i], &size[i])) return false;
  }
  return size != NULL;
}

MgRc mg_label_scope(const MgGraph *g, const NodeRef *node, uint32_t n, MgLabelSlot slot, void *arg,
                    MgPlanScope *out) {
  LabelReads r = {.g = g, .node = node, .nnode = n};
  for (uint32_t i = 0; i < n; i++) mg_node_each_val(mg_node(g, node[i]), label_read, &r);
  MgPlanShape *shape = mg_new(g->c, MgPlanShape, r.n + 1);
  *out = (MgPlanScope){.label = mg_label_text(g, node, n), .shape = shape};
  TRYP(shape && out->label);
  for (uint32_t i = 0; i < r.n; i++)
    if (label_shape(g, mg_val(g, r.val[i]), slot, arg, &shape[out->nshape])) out->nshape++;
  return g->c->rc;
}
