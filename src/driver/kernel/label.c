/* Names that profilers show for kernels and calls.
 * In: graph nodes.  Out: their ops' names in order, without overloads, and the lines of the program that they
 * are of.
 * A kernel of many ops is named by the first few. */
#include "driver/kernel/label.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "back/kernel/loop_nest.h"

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
