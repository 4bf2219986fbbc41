/* A graph as words.  See the header.
 * Values and storages are numbered in order of appearance; numbers of nodes count dead ones too, since steps
 * of a stored plan name them. */
#include "driver/graph_key.h"
#include <stdlib.h>
#include <string.h>
#include "ir/graph/graph.h"

enum { KEY_WORDS = 512 };

typedef struct KeyWriter {
  const MgGraph *g;
  MgStrbuf *out;
  bool symbols;        /* a size is no constant */
  uint32_t *val, nval; /* by value: its number, 0: none yet */
  MgMap storage;       /* storage + 2 -> its number */
  uint32_t n;
  uint64_t word[KEY_WORDS]; /* not in out yet */
} KeyWriter;

static void key_flush(KeyWriter *w) {
  mg_sb_write(w->out, (const char *)w->word, w->n * sizeof *w->word);
  w->n = 0;
}

static void key_word(KeyWriter *w, uint64_t v) {
  if (w->n == KEY_WORDS) key_flush(w);
  w->word[w->n++] = v;
}

static void key_bytes(KeyWriter *w, const void *p, size_t n) {
  key_word(w, n);
  key_flush(w);
  mg_sb_write(w->out, p, n);
}

static void key_text(KeyWriter *w, const char *s) { key_bytes(w, s ? s : "", s ? strlen(s) + 1 : 0); }

static void key_size(KeyWriter *w, SymRef r) {
  int64_t v = 0;
  key_word(w, r != 0);
  if (r && !mg_ex_const_int(w->g->x, r, &v)) w->symbols = true;
  key_word(w, (uint64_t)v);
}

static void key_ref(KeyWriter *w, ValRef v) {
  if (v && !w->val[v]) w->val[v] = ++w->nval;
  key_word(w, w->val[v]);
}

static void key_storage(KeyWriter *w, uint32_t storage) {
  uint64_t key = (uint64_t)storage + 2; /* MgMap keeps 0 and 1 for itself */
  uint32_t n = mg_map_get(&w->storage, key);
  if (n == MG_MAP_NONE && mg_map_put(&w->storage, key, n = w->storage.n) != MG_OK) w->out->failed = true;
  key_word(w, n);
}

static void key_arg(KeyWriter *w, const MgArg *a) {
  uint64_t bits = 0;
  key_word(w, a->tag | (uint64_t)(uint8_t)a->dev_index << 8);
  switch ((MgArgTag)a->tag) {
  case MA_none: break;
  case MA_val: key_ref(w, a->u.val); break;
  case MA_int: key_size(w, a->u.sym); break;
  case MA_float:
    memcpy(&bits, &a->u.f, sizeof bits);
    key_word(w, bits);
    break;
  case MA_bool: key_word(w, a->u.b); break;
  case MA_str: key_text(w, a->u.str); break;
  case MA_dtype:
  case MA_layout:
  case MA_device:
  case MA_memory_format: key_word(w, (uint32_t)a->u.code); break;
  case MA_object: key_word(w, a->u.obj); break;
  case MA_list:
    key_word(w, a->n);
    for (uint32_t i = 0; i < a->n; i++) key_arg(w, &a->u.item[i]);
    break;
  }
}

/* The schema of an op of the program's own may be another in another process. */
static void key_op(KeyWriter *w, const MgOp *op) {
  key_word(w, op->code | (uint64_t)op->random << 32 | (uint64_t)op->effect << 33 |
                  (uint64_t)op->mutates << 34 | (uint64_t)op->is_view << 35);
  if (!op->code) key_text(w, op->schema);
}

static void key_val(KeyWriter *w, ValRef r) {
  const MgVal *v = mg_val(w->g, r);
  key_ref(w, r);
  if (!r) return;
  key_word(w, v->dtype | (uint64_t)v->device << 8 | (uint64_t)(uint8_t)v->dev_index << 16 |
                  (uint64_t)v->ndim << 24 | (uint64_t)v->requires_grad << 32 | (uint64_t)v->bits << 40);
  key_storage(w, v->storage);
  for (int i = 0; i < v->ndim; i++) key_size(w, v->size[i]), key_size(w, v->stride[i]);
  key_size(w, v->offset);
}

/* Values that no node gives any more are left out: which there are depends on what passes tried. */
static void key_node(KeyWriter *w, const MgNode *n) {
  key_word(w, n->dead);
  if (n->dead) return;
  key_op(w, n->op);
  key_word(w, n->narg | (uint64_t)n->nout << 32);
  key_word(w, n->again | (uint64_t)n->grad_mode << 32 | (uint64_t)n->leaf << 40 | (uint64_t)n->counts << 41 |
                  (uint64_t)n->backward << 42 | (uint64_t)n->evaluated << 43);
  for (int i = 0; i < n->narg; i++) key_arg(w, &n->arg[i]);
  for (int i = 0; i < n->nout; i++) key_val(w, n->out[i]);
}

static void key_refs(KeyWriter *w, const ValRef *v, uint32_t n) {
  key_word(w, n);
  for (uint32_t i = 0; i < n; i++) key_ref(w, v[i]);
}

static void key_flags(KeyWriter *w, const bool *v, uint32_t n) {
  key_word(w, v != NULL);
  for (uint32_t i = 0; v && i < n; i++) key_word(w, v[i]);
}

static void key_graph(KeyWriter *w) {
  const MgGraph *g = w->g;
  key_word(w, g->ninput);
  for (uint32_t i = 0; i < g->ninput; i++) key_val(w, g->input[i]);
  key_word(w, g->nnode);
  for (NodeRef n = 1; n < g->nnode; n++) key_node(w, mg_node(g, n));
  key_refs(w, g->output, g->noutput);
  key_refs(w, g->wb_input, g->nwb);
  key_refs(w, g->wb_value, g->nwb);
  key_flags(w, g->viewed, g->noutput);
  key_flags(w, g->early, g->noutput);
  key_word(w, g->out_alias != NULL);
  for (uint32_t i = 0; g->out_alias && i < g->noutput; i++) {
    key_word(w, (uint32_t)g->out_alias[i].of_input | (uint64_t)(uint32_t)g->out_alias[i].of_output << 32);
    key_word(w, g->out_alias[i].same);
  }
  key_word(w, g->nhidden | (uint64_t)g->default_dtype << 32);
  key_flush(w);
}

bool mg_graph_describe(const MgGraph *g, MgStrbuf *out) {
  KeyWriter w = {.g = g, .out = out};
  if (g->x->nsym || !(w.val = mg_calloc(g->nval, sizeof *w.val))) return false;
  key_graph(&w);
  free(w.val);
  mg_map_free(&w.storage);
  return !w.symbols && mg_sb_ok(out);
}
