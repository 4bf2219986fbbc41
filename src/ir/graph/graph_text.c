/* The graph IR as text: printer and parser.
 * One line a node; values are numbered in order of definition, so printing what
 * was parsed gives the same text.
 *     symbol s0 = 4 in [2, 1024]                    # a run-time size: hint and range
 *     default f64                                   # torch.get_default_dtype(), when not f32
 *     extern my::op(Tensor x) -> Tensor             # the schema of an op that is not in tensor_ops.def
 *     %1 = input f32[4,3]{1,4}+8@cuda:0 of %0       # strides, offset, device and
 *     shared memory only when unusual
 *     %2, _ = aten::max.dim(%1, 1, False) : f32[4], _     # _ is an undefined result
 *     writeback %1 = %7                             # after functionalize
 *     return %2, None
 *     alias output 0 = view input 1                 # after functionalize: same|view of input|output
 * Arguments stand in schema order; keyword-only ones are named and left out at their default. */
#include "ir/graph/graph.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- printer ---- */

static void text_sym(const MgGraph *g, SymRef s, MgStrbuf *out) {
  int64_t k;
  if (mg_ex_const_int(g->x, s, &k)) mg_sb_printf(out, "%lld", (long long)k);
  else mg_ex_print(g->x, s, out);
}

static void text_syms(const MgGraph *g, const SymRef *s, int n, char open, char close, MgStrbuf *out) {
  mg_sb_putc(out, open);
  for (int i = 0; i < n; i++) {
    if (i) mg_sb_putc(out, ',');
    text_sym(g, s[i], out);
  }
  mg_sb_putc(out, close);
}

static void text_type(const MgGraph *g, ValRef v, MgStrbuf *out) {
  const MgVal *t = mg_val(g, v);
  mg_sb_puts(out, mg_dtype_name(t->dtype));
  text_syms(g, t->size, t->ndim, '[', ']', out);
  bool offset = !mg_sym_is(g->x, t->offset, 0);
  MgVal c = *t; /* strides are shown unless they are exactly those of a fresh contiguous tensor */
  SymRef expect = mg_sym(g->x, 1), one = expect;
  bool plain = true;
  for (int i = c.ndim; i-- > 0;) {
    plain = plain && mg_ex_same(c.stride[i], expect);
    expect = mg_sym_mul(g->x, expect, mg_sym_max(g->x, c.size[i], one));
  }
  if (!plain) text_syms(g, t->stride, t->ndim, '{', '}', out);
  if (offset) {
    mg_sb_putc(out, '+');
    text_sym(g, t->offset, out);
  }
  if (t->device == DEV_cuda) mg_sb_printf(out, "@cuda:%d", t->dev_index);
  else if (t->device == DEV_meta) mg_sb_puts(out, "@meta");
}

static void text_float(double f, MgStrbuf *out) {
  if (isnan(f)) mg_sb_puts(out, "nan");
  else if (isinf(f)) mg_sb_puts(out, f < 0 ? "-inf" : "inf");
  else {
    char b[40];
    for (int p = 15; p <= 17; p++) { /* the shortest of these that reads back as f */
      snprintf(b, sizeof b, "%.*g", p, f);
      if (strtod(b, NULL) == f) break;
    }
    mg_sb_puts(out, b);
    if (!strpbrk(b, ".e")) mg_sb_puts(out, ".0");
  }
}

static void text_quoted(const char *s, MgStrbuf *out) {
  mg_sb_putc(out, '"');
  for (; *s; s++) {
    if (*s == '"' || *s == '\\') mg_sb_putc(out, '\\');
    if (*s == '\n') mg_sb_puts(out, "\\n");
    else mg_sb_putc(out, *s);
  }
  mg_sb_putc(out, '"');
}

static void text_arg(const MgGraph *g, const MgArg *a, const uint32_t *num, MgStrbuf *out) {
  switch (a->tag) {
  case MA_none: mg_sb_puts(out, "None"); break;
  case MA_val: mg_sb_printf(out, "%%%u", a->u.val < g->nval ? num[a->u.val] : 0); break;
  case MA_int: text_sym(g, a->u.sym, out); break;
  case MA_float: text_float(a->u.f, out); break;
  case MA_bool: mg_sb_puts(out, a->u.b ? "True" : "False"); break;
  case MA_str: text_quoted(a->u.str, out); break;
  case MA_dtype: mg_sb_printf(out, "dtype(%s)", mg_dtype_name(a->u.code)); break;
  case MA_layout: mg_sb_printf(out, "layout(%d)", a->u.code); break;
  case MA_memory_format: mg_sb_printf(out, "memory_format(%d)", a->u.code); break;
  case MA_device:
    if (a->u.code == DEV_cuda && a->dev_index >= 0) mg_sb_printf(out, "device(cuda:%d)", a->dev_index);
    else
      mg_sb_printf(out, "device(%s)",
                   a->u.code == DEV_cuda   ? "cuda"
                   : a->u.code == DEV_meta ? "meta"
                                           : "cpu");
    break;
  case MA_object: mg_sb_printf(out, "object(%u)", a->u.obj); break;
  case MA_list:
    mg_sb_putc(out, '[');
    for (uint32_t i = 0; i < a->n; i++) {
      if (i) mg_sb_puts(out, ", ");
      text_arg(g, &a->u.item[i], num, out);
    }
    mg_sb_putc(out, ']');
    break;
  }
}

/* Equal as text: what decides whether a keyword argument stands at its default. */
static bool text_is_default(const MgGraph *g, const MgParam *p, const MgArg *a) {
  int64_t k;
  if (!p->has_default) return p->optional && a->tag == MA_none;
  if (a->tag == MA_none) return !strcmp(p->deflt, "None");
  if (a->tag == MA_bool) return !strcmp(p->deflt, a->u.b ? "True" : "False");
  if (a->tag == MA_int)
    return mg_ex_const_int(g->x, a->u.sym, &k) && p->deflt[strspn(p->deflt, "-0123456789")] == 0 &&
           k == strtoll(p->deflt, NULL, 10);
  return false;
}

static void text_node(const MgGraph *g, const MgNode *n, const uint32_t *num, MgStrbuf *out) {
  for (int i = 0; i < n->nout; i++) {
    if (i) mg_sb_puts(out, ", ");
    if (n->out[i]) mg_sb_printf(out, "%%%u", num[n->out[i]]);
    else mg_sb_putc(out, '_');
  }
  mg_sb_printf(out, "%s%s(", n->nout ? " = " : "", n->op->full);
  bool first = true;
  for (int i = 0; i < n->narg; i++) {
    const MgParam *p = i < n->op->nparam ? &n->op->param[i] : NULL;
    if (p && p->kwarg_only && text_is_default(g, p, &n->arg[i])) continue;
    if (!first) mg_sb_puts(out, ", ");
    first = false;
    if (p && p->kwarg_only) mg_sb_printf(out, "%s=", p->name);
    text_arg(g, &n->arg[i], num, out);
  }
  mg_sb_putc(out, ')');
  for (int i = 0; i < n->nout; i++) {
    mg_sb_puts(out, i ? ", " : " : ");
    if (n->out[i]) text_type(g, n->out[i], out);
    else mg_sb_putc(out, '_');
  }
  mg_sb_putc(out, '\n');
}

/* Schemas of the ops that parsing could not know otherwise, each once. */
static void text_externs(const MgGraph *g, MgStrbuf *out) {
  for (uint32_t k = 1; k < g->nnode; k++) {
    const MgOp *o = mg_node(g, k)->op;
    bool seen = mg_node(g, k)->dead || o->code != TOP_extern;
    for (uint32_t j = 1; j < k && !seen; j++) seen = !mg_node(g, j)->dead && mg_node(g, j)->op == o;
    if (!seen) mg_sb_printf(out, "extern %s\n", o->schema);
  }
}

void mg_graph_print(const MgGraph *g, MgStrbuf *out) { mg_graph_print_at(g, out, NULL); }

void mg_graph_print_at(const MgGraph *g, MgStrbuf *out, size_t *at) {
  uint32_t *num = mg_new(g->c, uint32_t, g->nval + 1), next = 1;
  if (!num) {
    out->failed = true;
    return;
  }
  for (uint32_t i = 0; i < g->x->nsym; i++) {
    const MgSymbol *s = &g->x->sym[i];
    mg_sb_printf(out, "symbol s%u = %lld in [%lld, %lld]\n", i, (long long)s->hint, (long long)s->lo,
                 (long long)s->hi);
  }
  if (g->default_dtype != DT_f32) mg_sb_printf(out, "default %s\n", mg_dtype_name(g->default_dtype));
  text_externs(g, out);
  for (uint32_t i = 0; i < g->ninput; i++) {
    ValRef v = g->input[i];
    num[v] = next++;
    mg_sb_printf(out, "%%%u = input ", num[v]);
    text_type(g, v, out);
    for (uint32_t k = 0; k < i; k++)
      if (g->val[g->input[k]].storage == g->val[v].storage) {
        mg_sb_printf(out, " of %%%u", num[g->input[k]]);
        break;
      }
    if (g->val[v].requires_grad) mg_sb_puts(out, " requires_grad");
    mg_sb_putc(out, '\n');
  }
  for (uint32_t k = 1; k < g->nnode; k++) {
    const MgNode *n = mg_node(g, k);
    if (n->dead) continue;
    for (int i = 0; i < n->nout; i++)
      if (n->out[i]) num[n->out[i]] = next++;
    if (at) at[k] = out->len;
    text_node(g, n, num, out);
  }
  for (uint32_t i = 0; i < g->nwb; i++)
    mg_sb_printf(out, "writeback %%%u = %%%u\n", num[g->wb_input[i]], num[g->wb_value[i]]);
  mg_sb_puts(out, "return");
  for (uint32_t i = 0; i < g->noutput; i++) {
    mg_sb_puts(out, i ? ", " : " ");
    if (g->output[i]) mg_sb_printf(out, "%%%u", num[g->output[i]]);
    else mg_sb_puts(out, "None");
  }
  mg_sb_putc(out, '\n');
  for (uint32_t i = 0; g->out_alias && i < g->noutput; i++) {
    const struct MgOutAlias *a = &g->out_alias[i];
    if (a->of_input < 0 && a->of_output < 0) continue;
    mg_sb_printf(out, "alias output %u = %s %s %d\n", i, a->same ? "same" : "view",
                 a->of_input >= 0 ? "input" : "output", a->of_input >= 0 ? a->of_input : a->of_output);
  }
}

/* ---- parser ---- */

typedef struct Text { /* one parse */
  MgGraph *g;
  const char *p; /* next character */
  int line;
  ValRef *num; /* number in the text -> value */
  uint32_t cap;
} Text;

#define TEXT_FAIL(t, ...) mg_fail((t)->g->c, MG_BUG, "line %d: " __VA_ARGS__)

static void text_space(Text *t) {
  for (;;) {
    while (*t->p == ' ' || *t->p == '\t' || *t->p == '\r') t->p++;
    if (*t->p != '#') return;
    while (*t->p && *t->p != '\n') t->p++;
  }
}

static bool text_eat(Text *t, const char *s) {
  text_space(t);
  size_t n = strlen(s);
  if (strncmp(t->p, s, n)) return false;
  if (isalnum((unsigned char)s[n - 1]) && (isalnum((unsigned char)t->p[n]) || t->p[n] == '_')) return false;
  t->p += n;
  return true;
}

static MgRc text_want(Text *t, const char *s) {
  return text_eat(t, s) ? MG_OK : TEXT_FAIL(t, "expected '%s' at '%.20s'", t->line, s, t->p);
}

static MgRc text_num(Text *t, int64_t *v) {
  char *e;
  text_space(t);
  *v = strtoll(t->p, &e, 10);
  if (e == t->p) return TEXT_FAIL(t, "expected a number at '%.20s'", t->line, t->p);
  t->p = e;
  return MG_OK;
}

static MgRc text_val_number(Text *t, uint32_t *k) {
  int64_t v;
  TRY(text_want(t, "%"));
  TRY(text_num(t, &v));
  if (v < 0 || v > 1 << 24) return TEXT_FAIL(t, "value number out of range", t->line);
  *k = v;
  return MG_OK;
}

static MgRc text_use(Text *t, ValRef *v) {
  uint32_t k = 0;
  TRY(text_val_number(t, &k));
  if (k >= t->cap || !t->num[k]) return TEXT_FAIL(t, "%%%u is not defined", t->line, k);
  *v = t->num[k];
  return MG_OK;
}

static MgRc text_define(Text *t, uint32_t k, ValRef v) {
  if (k >= t->cap) {
    uint32_t cap = k * 2 + 64;
    TRYP(t->num = mg_ctx_grow(t->g->c, t->num, t->cap * sizeof *t->num, cap * sizeof *t->num));
    t->cap = cap;
  }
  if (t->num[k]) return TEXT_FAIL(t, "%%%u is defined twice", t->line, k);
  t->num[k] = v;
  return MG_OK;
}

/* A size: a plain integer, or an expression as mg_ex_print writes it. */
static MgRc text_read_sym(Text *t, SymRef *s) {
  char *e;
  text_space(t);
  long long k = strtoll(t->p, &e, 10);
  if (e != t->p && strchr(",])}@+: \n", *e)) {
    *s = mg_sym(t->g->x, k);
    t->p = e;
  } else {
    *s = mg_ex_parse(t->g->x, &t->p);
  }
  if (*s) return MG_OK;
  return t->g->c->rc ? t->g->c->rc : TEXT_FAIL(t, "expected a size at '%.20s'", t->line, t->p);
}

static MgRc text_read_syms(Text *t, const char *close, SymRef *s, int cap, int *n) {
  *n = 0;
  if (text_eat(t, close)) return MG_OK;
  do {
    if (*n == cap) return TEXT_FAIL(t, "too many dimensions", t->line);
    TRY(text_read_sym(t, &s[(*n)++]));
  } while (text_eat(t, ","));
  return text_want(t, close);
}

static MgRc text_word(Text *t, const char **w, int *n) {
  text_space(t);
  *w = t->p;
  while (isalnum((unsigned char)*t->p) || *t->p == '_') t->p++;
  *n = t->p - *w;
  return *n ? MG_OK : TEXT_FAIL(t, "expected a word at '%.20s'", t->line, t->p);
}

static MgRc text_read_type(Text *t, ValRef *out) {
  MgGraph *g = t->g;
  const char *w;
  SymRef size[64], stride[64];
  int n, nd, ns;
  TRY(text_word(t, &w, &n));
  MgDtype d = mg_dtype_parse(w, n);
  if (d == DT_none) return TEXT_FAIL(t, "unknown dtype '%.*s'", t->line, n, w);
  TRY(text_want(t, "["));
  TRY(text_read_syms(t, "]", size, 64, &nd));
  ValRef v = mg_graph_val(g, d, nd);
  TRYP(v);
  memcpy(g->val[v].size, size, nd * sizeof *size);
  mg_graph_contiguous(g, v);
  if (*t->p == '{') {
    t->p++;
    TRY(text_read_syms(t, "}", stride, 64, &ns));
    if (ns != nd) return TEXT_FAIL(t, "%d strides for %d dimensions", t->line, ns, nd);
    memcpy(g->val[v].stride, stride, nd * sizeof *stride);
  }
  if (*t->p == '+') {
    t->p++;
    TRY(text_read_sym(t, &g->val[v].offset));
  }
  if (text_eat(t, "@cuda:")) {
    int64_t k;
    TRY(text_num(t, &k));
    g->val[v].device = DEV_cuda;
    g->val[v].dev_index = k;
  } else if (text_eat(t, "@meta")) {
    g->val[v].device = DEV_meta;
  }
  *out = v;
  return g->x->nomem ? MG_NOMEM : MG_OK;
}

static MgRc text_arg_code(Text *t, MgArg *a, MgArgTag tag) {
  const char *w;
  int n;
  int64_t k;
  TRY(text_want(t, "("));
  *a = (MgArg){.tag = tag, .dev_index = -1};
  if (tag == MA_dtype) {
    TRY(text_word(t, &w, &n));
    a->u.code = mg_dtype_parse(w, n);
    if (a->u.code == DT_none) return TEXT_FAIL(t, "unknown dtype '%.*s'", t->line, n, w);
  } else if (tag == MA_device) {
    a->u.code = text_eat(t, "cuda") ? DEV_cuda : text_eat(t, "meta") ? DEV_meta : DEV_cpu;
    if (a->u.code == DEV_cpu) TRY(text_want(t, "cpu"));
    if (text_eat(t, ":")) {
      TRY(text_num(t, &k));
      a->dev_index = k;
    }
  } else {
    TRY(text_num(t, &k));
    if (tag == MA_object) a->u.obj = k;
    else a->u.code = k;
  }
  return text_want(t, ")");
}

static MgRc text_arg_string(Text *t, MgArg *a) {
  char *b = mg_new(t->g->c, char, strcspn(t->p, "\n") + 1), *q = b;
  TRYP(b);
  for (t->p++; *t->p != '"'; t->p++) {
    if (!*t->p || *t->p == '\n') return TEXT_FAIL(t, "unterminated string", t->line);
    if (*t->p == '\\' && t->p[1]) {
      t->p++;
      *q++ = *t->p == 'n' ? '\n' : *t->p;
    } else {
      *q++ = *t->p;
    }
  }
  t->p++;
  *a = (MgArg){.tag = MA_str, .u.str = b};
  return MG_OK;
}

static MgRc text_read_arg(Text *t, MgArg *a) {
  static const struct {
    const char *word;
    uint8_t tag;
  } coded[] = {{"dtype", MA_dtype},
               {"layout", MA_layout},
               {"device", MA_device},
               {"memory_format", MA_memory_format},
               {"object", MA_object}};
  text_space(t);
  *a = mg_arg_none();
  if (*t->p == '%') {
    a->tag = MA_val;
    return text_use(t, &a->u.val);
  }
  if (*t->p == '"') return text_arg_string(t, a);
  if (text_eat(t, "[")) {
    MgArg item;
    uint32_t cap = 0;
    a->tag = MA_list;
    if (text_eat(t, "]")) return MG_OK;
    do {
      TRY(text_read_arg(t, &item));
      if (a->n == cap) {
        cap = cap ? cap * 2 : 8;
        TRYP(a->u.item = mg_ctx_grow(t->g->c, a->u.item, a->n * sizeof item, cap * sizeof item));
      }
      a->u.item[a->n++] = item;
    } while (text_eat(t, ","));
    return text_want(t, "]");
  }
  if (text_eat(t, "None")) return MG_OK;
  if (text_eat(t, "True") || text_eat(t, "False")) {
    *a = mg_arg_bool(t->p[-2] == 'u');
    return MG_OK;
  }
  for (size_t i = 0; i < sizeof coded / sizeof *coded; i++)
    if (text_eat(t, coded[i].word)) return text_arg_code(t, a, coded[i].tag);
  /* a number: a float when it reads further as one than as an integer */
  char *ei, *ef;
  strtoll(t->p, &ei, 10);
  double f = strtod(t->p, &ef);
  if (ef > ei) {
    *a = mg_arg_float(f);
    t->p = ef;
    return MG_OK;
  }
  a->tag = MA_int;
  return text_read_sym(t, &a->u.sym);
}

/* Where keyword "name=" names a parameter of op: its position, else -1 and nothing is read. */
static int text_keyword(Text *t, const MgOp *op) {
  text_space(t);
  const char *p = t->p;
  while (isalnum((unsigned char)*p) || *p == '_') p++;
  if (p == t->p || *p != '=') return -1;
  for (int i = 0; i < op->nparam; i++)
    if (strlen(op->param[i].name) == (size_t)(p - t->p) && !memcmp(op->param[i].name, t->p, p - t->p)) {
      t->p = p + 1;
      return i;
    }
  return -1;
}

static MgRc text_read_args(Text *t, const MgOp *op, MgArg *arg) {
  bool *given = mg_new(t->g->c, bool, op->nparam + 1);
  TRYP(given);
  int pos = 0;
  if (!text_eat(t, ")")) {
    do {
      int k = text_keyword(t, op);
      if (k < 0) k = pos++;
      if (k >= op->nparam || given[k]) return TEXT_FAIL(t, "%s: too many arguments", t->line, op->full);
      TRY(text_read_arg(t, &arg[k]));
      given[k] = true;
    } while (text_eat(t, ","));
    TRY(text_want(t, ")"));
  }
  for (int i = 0; i < op->nparam; i++)
    if (!given[i]) TRY(mg_arg_default(t->g, &op->param[i], &arg[i]));
  return MG_OK;
}

/* Results of views and in-place ops share their argument's memory. */
static void text_share(MgGraph *g, const MgNode *n) {
  const MgOp *o = n->op;
  for (int i = 0, r = 0; i < n->nout && o->nret; i++) {
    if (n->out[i] && o->ret_alias[r] >= 0)
      for (int k = 0; k < n->narg; k++)
        if (o->param[k].alias_set == o->ret_alias[r] && n->arg[k].tag == MA_val)
          g->val[n->out[i]].storage = g->val[n->arg[k].u.val].storage;
    if (r + 1 < o->nret) r++;
  }
}

static MgRc text_read_node(Text *t, const uint32_t *lhs, int nlhs) {
  MgGraph *g = t->g;
  char full[256];
  text_space(t);
  size_t n = strcspn(t->p, "( \n");
  if (!n || n >= sizeof full) return TEXT_FAIL(t, "expected an op at '%.20s'", t->line, t->p);
  memcpy(full, t->p, n);
  full[n] = 0;
  t->p += n;
  const MgOp *op = mg_op_find(g->c, full);
  TRY(g->c->rc);
  if (!op) return TEXT_FAIL(t, "unknown op %s", t->line, full);
  TRY(text_want(t, "("));
  NodeRef k = mg_graph_node(g, op, op->nparam, nlhs);
  TRYP(k);
  TRY(text_read_args(t, op, mg_node(g, k)->arg));
  for (int i = 0; i < nlhs; i++) {
    TRY(text_want(t, i ? "," : ":"));
    if (text_eat(t, "_")) {
      if (lhs[i]) return TEXT_FAIL(t, "%%%u has no type", t->line, lhs[i]);
      continue;
    }
    ValRef v;
    TRY(text_read_type(t, &v));
    g->val[v].def = k;
    g->val[v].out = i;
    mg_node(g, k)->out[i] = v;
    if (lhs[i]) TRY(text_define(t, lhs[i], v));
  }
  text_share(g, mg_node(g, k));
  return MG_OK;
}

static MgRc text_read_input(Text *t, uint32_t num) {
  MgGraph *g = t->g;
  ValRef v, of;
  TRY(text_read_type(t, &v));
  TRYP(mg_graph_input(g, v));
  if (text_eat(t, "of")) {
    TRY(text_use(t, &of));
    g->val[v].storage = g->val[of].storage;
  }
  g->val[v].requires_grad = text_eat(t, "requires_grad");
  return text_define(t, num, v);
}

static MgRc text_read_return(Text *t) {
  text_space(t);
  if (*t->p == '\n' || !*t->p) return MG_OK;
  do {
    ValRef v = 0;
    if (!text_eat(t, "None")) TRY(text_use(t, &v));
    TRY(mg_graph_output(t->g, v));
  } while (text_eat(t, ","));
  return MG_OK;
}

static MgRc text_read_writeback(Text *t) {
  MgGraph *g = t->g;
  uint32_t n = g->nwb + 1;
  TRYP(g->wb_input = mg_ctx_grow(g->c, g->wb_input, g->nwb * sizeof(ValRef), n * sizeof(ValRef)));
  TRYP(g->wb_value = mg_ctx_grow(g->c, g->wb_value, g->nwb * sizeof(ValRef), n * sizeof(ValRef)));
  TRY(text_use(t, &g->wb_input[g->nwb]));
  TRY(text_want(t, "="));
  TRY(text_use(t, &g->wb_value[g->nwb]));
  g->nwb = n;
  return MG_OK;
}

static MgRc text_read_alias(Text *t) {
  MgGraph *g = t->g;
  int64_t k, of;
  TRY(text_want(t, "output"));
  TRY(text_num(t, &k));
  TRY(text_want(t, "="));
  if (k < 0 || k >= g->noutput) return TEXT_FAIL(t, "no output %lld", t->line, (long long)k);
  if (!g->out_alias) {
    TRYP(g->out_alias = mg_ctx_alloc(g->c, g->noutput * sizeof *g->out_alias));
    for (uint32_t i = 0; i < g->noutput; i++) g->out_alias[i].of_input = g->out_alias[i].of_output = -1;
  }
  g->out_alias[k].same = text_eat(t, "same");
  if (!g->out_alias[k].same) TRY(text_want(t, "view"));
  bool input = text_eat(t, "input");
  if (!input) TRY(text_want(t, "output"));
  TRY(text_num(t, &of));
  if (input) g->out_alias[k].of_input = of;
  else g->out_alias[k].of_output = of;
  return MG_OK;
}

static MgRc text_read_symbol(Text *t) {
  int64_t hint, lo, hi;
  const char *w;
  int n;
  TRY(text_word(t, &w, &n));
  TRY(text_want(t, "="));
  TRY(text_num(t, &hint));
  TRY(text_want(t, "in"));
  TRY(text_want(t, "["));
  TRY(text_num(t, &lo));
  TRY(text_want(t, ","));
  TRY(text_num(t, &hi));
  TRY(text_want(t, "]"));
  char *name = mg_ctx_grow(t->g->c, w, n, n + 1);
  TRYP(name);
  TRYP(mg_ex_symbol(t->g->x, hint, lo, hi, name));
  return MG_OK;
}

static MgRc text_read_extern(Text *t) {
  text_space(t);
  size_t n = strcspn(t->p, "\n");
  char *schema = mg_ctx_grow(t->g->c, t->p, n, n + 1);
  TRYP(schema);
  t->p += n;
  return mg_op_from_schema(t->g->c, schema) ? MG_OK : t->g->c->rc;
}

static MgRc text_read_line(Text *t) {
  uint32_t *lhs = NULL;
  uint32_t n = 0, cap = 0;
  if (text_eat(t, "symbol")) return text_read_symbol(t);
  if (text_eat(t, "extern")) return text_read_extern(t);
  if (text_eat(t, "default")) {
    const char *w;
    int len;
    TRY(text_word(t, &w, &len));
    t->g->default_dtype = mg_dtype_parse(w, len);
    return t->g->default_dtype == DT_none ? TEXT_FAIL(t, "unknown dtype '%.*s'", t->line, len, w) : MG_OK;
  }
  if (text_eat(t, "return")) return text_read_return(t);
  if (text_eat(t, "writeback")) return text_read_writeback(t);
  if (text_eat(t, "alias")) return text_read_alias(t);
  text_space(t);
  if (*t->p == '%' || (*t->p == '_' && strchr(", ", t->p[1]))) {
    do {
      if (n == cap) { /* foreach ops have as many results as a model has parameters */
        cap = cap ? cap * 4 : 8;
        TRYP(lhs = mg_ctx_grow(t->g->c, lhs, n * sizeof *lhs, cap * sizeof *lhs));
      }
      lhs[n] = 0;
      if (!text_eat(t, "_")) TRY(text_val_number(t, &lhs[n]));
      n++;
    } while (text_eat(t, ","));
    TRY(text_want(t, "="));
    if (text_eat(t, "input")) return text_read_input(t, lhs[0]);
  }
  return text_read_node(t, lhs, n);
}

MgRc mg_graph_parse(MgGraph *g, const char *text) {
  Text t = {.g = g, .p = text, .line = 1};
  for (;; t.line++) {
    text_space(&t);
    if (*t.p && *t.p != '\n') TRY(text_read_line(&t));
    text_space(&t);
    if (!*t.p) return MG_OK;
    if (*t.p != '\n') return mg_fail(g->c, MG_BUG, "line %d: unexpected '%.20s'", t.line, t.p);
    t.p++;
  }
}
