/* Schemas of ATen operations: parser and intern table.
 * In: schema texts as torch prints them; rows of tensor_ops.def.  Out: immutable MgOp, alive as long as the
 * process.
 * Equal texts give the same MgOp.  A text whose name is a row's but whose parameters differ (another torch
 * version) gets TOP_extern, so passes may rely on the argument positions that the row shows.
 * Rows are parsed when first asked for; start-up only hashes their names.  Thread-safe. */
#include "ir/graph/op.h"
#include "base/fork.h"
#include "base/table.h"
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name, *schema;
} op_row[TOP__COUNT] = {
#define TOP(code, name, schema, ...) [TOP_##code] = {name, schema},
#include "ir/graph/tensor_ops.def"
#undef TOP
};

static struct {
  MgMap row;        /* hash of full name -> row */
  MgMap text, name; /* hash of schema text / full name -> index into op */
  MgOp **op;        /* every interned op, by id */
  uint32_t n, cap;
  const MgOp *by_row[TOP__COUNT];
} ops; /* MG_LOCK_op guards it */

/* ---- parser ---- */

typedef struct OpParse { /* one run over a schema text; strings are copied into pool */
  const char *p;
  char *pool; /* the op's block, behind its fixed parts */
  MgParam *param;
  int8_t *ret_alias;
  uint8_t *ret_kind;
  bool *ret_writes;
  int nparam, nret, cap;
  struct {
    const char *p;
    size_t n;
  } set[INT8_MAX]; /* names of alias sets, in order of appearance; a set's number is its place here */
  int nset;
} OpParse;

typedef struct OpType { /* one parsed type */
  uint8_t kind;
  bool optional, writes;
  int8_t alias;
} OpType;

static const struct {
  const char *name;
  uint8_t kind, list; /* kind alone and in a list */
} op_type[] = {
    {"Tensor", AK_tensor, AK_tensor_list},
    {"int", AK_int, AK_int_list},
    {"SymInt", AK_int, AK_int_list},
    {"float", AK_float, AK_float_list},
    {"bool", AK_bool, AK_bool_list},
    {"Scalar", AK_scalar, AK_scalar_list},
    {"ScalarType", AK_dtype, AK_other},
    {"Layout", AK_layout, AK_other},
    {"Device", AK_device, AK_other},
    {"MemoryFormat", AK_memory_format, AK_other},
    {"str", AK_str, AK_other},
    {"Generator", AK_generator, AK_other},
    {"SymBool", AK_bool, AK_bool_list},
    {"SymFloat", AK_float, AK_float_list},
};

static void op_space(OpParse *s) {
  while (*s->p == ' ') s->p++;
}

static bool op_eat(OpParse *s, char c) {
  op_space(s);
  if (*s->p != c) return false;
  s->p++;
  return true;
}

static const char *op_keep(OpParse *s, const char *b, size_t n) {
  char *r = s->pool;
  memcpy(r, b, n);
  r[n] = 0;
  s->pool += n + 1;
  return r;
}

static bool op_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

static const char *op_word(OpParse *s, size_t *n) {
  op_space(s);
  const char *b = s->p;
  while (op_word_char(*s->p)) s->p++;
  *n = s->p - b;
  return b;
}

/* "(a)", "(a!)", "(a0!)" of custom ops, "(a! -> a|b)", "(*)": only the first set and
 * the write mark matter here. */
static bool op_is_alias(const char *p) {
  if (*p++ != '(') return false;
  if (*p == '*') return true;
  if (*p < 'a' || *p > 'z') return false;
  for (p++; *p >= '0' && *p <= '9'; p++) {
  }
  return *p == ')' || *p == '!' || *p == '|' || *p == ' ';
}

/* The number of the alias set whose name starts at b, or -1 when there are too many. */
static int op_alias_set(OpParse *s, const char *b) {
  size_t n = 1;
  while (b[n] >= '0' && b[n] <= '9') n++;
  for (int i = 0; i < s->nset; i++)
    if (s->set[i].n == n && !memcmp(s->set[i].p, b, n)) return i;
  if (s->nset == (int)(sizeof s->set / sizeof *s->set)) return -1;
  s->set[s->nset].p = b;
  s->set[s->nset].n = n;
  return s->nset++;
}

static bool op_parse_type(OpParse *s, OpType *t) {
  *t = (OpType){AK_other, false, false, -1};
  op_space(s);
  uint8_t list = AK_other;
  if (*s->p == '(') { /* a tuple type */
    s->p++;
    if (!op_eat(s, ')')) {
      do {
        OpType item;
        if (!op_parse_type(s, &item)) return false;
      } while (op_eat(s, ','));
      if (!op_eat(s, ')')) return false;
    }
  } else {
    size_t n;
    const char *w = op_word(s, &n);
    if (!n) return false;
    for (size_t i = 0; i < sizeof op_type / sizeof *op_type; i++)
      if (strlen(op_type[i].name) == n && !memcmp(op_type[i].name, w, n)) {
        t->kind = op_type[i].kind;
        list = op_type[i].list;
      }
    if (t->kind == AK_other && *s->p == '(' && !op_is_alias(s->p)) { /* Dict(str, t), Future(t) */
      s->p++;
      do {
        OpType item;
        if (!op_parse_type(s, &item)) return false;
      } while (op_eat(s, ','));
      if (!op_eat(s, ')')) return false;
    }
  }
  for (;;) {
    if (op_is_alias(s->p)) {
      if (s->p[1] != '*' && (t->alias = op_alias_set(s, s->p + 1)) < 0) return false;
      for (s->p++; *s->p && *s->p != ')'; s->p++)
        if (*s->p == '!') t->writes = true;
      if (*s->p++ != ')') return false;
    } else if (*s->p == '[') {
      while (*s->p && *s->p != ']') s->p++;
      if (*s->p++ != ']') return false;
      t->kind = t->kind == AK_tensor && t->optional ? AK_opt_tensor_list : t->optional ? AK_other : list;
      t->optional = false;
      list = AK_other;
    } else if (*s->p == '?') {
      s->p++;
      t->optional = true;
    } else {
      return true;
    }
  }
}

/* The text of a default: up to the ',' or ')' that ends the parameter, brackets and quotes respected. */
static const char *op_default(OpParse *s) {
  const char *b = s->p;
  int depth = 0;
  for (; *s->p; s->p++) {
    if (*s->p == '"') {
      for (s->p++; *s->p && *s->p != '"'; s->p++)
        if (*s->p == '\\' && s->p[1]) s->p++;
      if (!*s->p) break;
    } else if (*s->p == '[' || *s->p == '(') {
      depth++;
    } else if (*s->p == ']' || (*s->p == ')' && depth)) {
      depth--;
    } else if (!depth && (*s->p == ',' || *s->p == ')')) {
      break;
    }
  }
  return op_keep(s, b, s->p - b);
}

static bool op_parse_params(OpParse *s) {
  bool kwarg = false;
  if (!op_eat(s, '(')) return false;
  if (op_eat(s, ')')) return true;
  do {
    op_space(s);
    if (!strncmp(s->p, "...", 3)) { /* variadic: no positions to rely on */
      s->p += 3;
      continue;
    }
    if (*s->p == '*') {
      s->p++;
      kwarg = true;
      continue;
    }
    OpType t;
    size_t n;
    if (s->nparam == s->cap || !op_parse_type(s, &t)) return false;
    const char *w = op_word(s, &n);
    MgParam *a = &s->param[s->nparam++];
    *a = (MgParam){op_keep(s, w, n), t.kind, t.optional, kwarg, false, t.writes, t.alias, ""};
    if (*s->p ==
        '[') { /* the fixed-size list form with the size after the name does not exist in printed text */
      return false;
    }
    if (op_eat(s, '=')) {
      a->has_default = true;
      a->deflt = op_default(s);
    }
  } while (op_eat(s, ','));
  return op_eat(s, ')');
}

static bool op_parse_return(OpParse *s) {
  OpType t;
  size_t n;
  op_space(s);
  if (!strncmp(s->p, "...", 3)) {
    s->p += 3;
    return true;
  }
  if (s->nret == s->cap || !op_parse_type(s, &t)) return false;
  op_word(s, &n); /* a named result */
  s->ret_kind[s->nret] = t.kind;
  s->ret_writes[s->nret] = t.writes;
  s->ret_alias[s->nret++] = t.alias;
  return true;
}

static bool op_parse_returns(OpParse *s) {
  op_space(s);
  if (s->p[0] != '-' || s->p[1] != '>') return false;
  s->p += 2;
  op_space(s);
  if (*s->p != '(') return op_parse_return(s);
  s->p++;
  if (op_eat(s, ')')) return true;
  do {
    if (!op_parse_return(s)) return false;
  } while (op_eat(s, ','));
  return op_eat(s, ')');
}

/* Ops that draw random numbers without a generator parameter. */
static const char *const op_random[] = {
    "rand",
    "randn",
    "randint",
    "randperm",
    "rand_like",
    "randn_like",
    "randint_like",
    "dropout",
    "dropout_",
    "native_dropout",
    "alpha_dropout",
    "alpha_dropout_",
    "feature_dropout",
    "feature_dropout_",
    "feature_alpha_dropout",
    "feature_alpha_dropout_",
    "rrelu",
    "rrelu_",
    "_fused_dropout",
    "_cudnn_init_dropout_state",
};

static bool op_is_random(const MgOp *o) {
  for (int i = 0; i < o->nparam; i++)
    if (o->param[i].kind == AK_generator) return true;
  if (!strcmp(o->name, "mg::draws")) return true;
  if (strncmp(o->name, "aten::", 6)) return false;
  for (size_t i = 0; i < sizeof op_random / sizeof *op_random; i++)
    if (!strcmp(o->name + 6, op_random[i])) return true;
  return false;
}

static const struct {
  const char *name;
  uint8_t kind;
} op_raises[] = {
#define RAISES(name, kind) {name, RS_##kind},
#include "ir/graph/raises.def"
#undef RAISES
};

static MgRaise op_raise_kind(const MgOp *o) {
  if (strncmp(o->name, "aten::", 6)) return RS_none;
  for (size_t i = 0; i < sizeof op_raises / sizeof *op_raises; i++) {
    const char *name = op_raises[i].name;
    const char *full = o->full + 6;
    size_t n = strlen(name);
    if (strncmp(full, name, n)) continue;
    full += n;
    if (*full == '_') full++;
    if (!*full || *full == '.') return (MgRaise)op_raises[i].kind;
  }
  return RS_none;
}

/* Ops of other libraries may be Python functions that count, print or log. */
static bool op_is_foreign(const MgOp *o) {
  return strncmp(o->name, "aten::", 6) && strncmp(o->name, "prims::", 7) && strncmp(o->name, "mg::", 4);
}

/* One block holds the op, its tables and all its strings; no pointer into the given text remains. */
static MgOp *op_parse(MgCtx *c, const char *schema) {
  size_t len = strlen(schema);
  int cap = 2;
  for (const char *p = schema; *p; p++) cap += *p == ',';
  size_t fixed = sizeof(MgOp) + cap * sizeof(MgParam) + 3 * (size_t)cap;
  char *block = mg_calloc(1, fixed + 4 * len + 2 * cap + 16);
  if (!block) {
    mg_fail(c, MG_NOMEM, "out of memory (schema)");
    return NULL;
  }
  MgOp *o = (MgOp *)block;
  OpParse s = {.p = schema, .cap = cap, .param = (MgParam *)(o + 1)};
  s.ret_alias = (int8_t *)(s.param + cap);
  s.ret_kind = (uint8_t *)(s.ret_alias + cap);
  s.ret_writes = (bool *)(s.ret_kind + cap);
  s.pool = block + fixed;
  size_t n = strcspn(schema, "(");
  o->schema = op_keep(&s, schema, len);
  o->full = op_keep(&s, schema, n);
  const char *ns = strstr(o->full, "::"), *dot = ns ? strchr(ns, '.') : NULL;
  o->name = op_keep(&s, o->full, dot ? (size_t)(dot - o->full) : n);
  o->overload = dot ? dot + 1 : "";
  s.p = schema + n;
  if (!n || !op_parse_params(&s) || !op_parse_returns(&s) || (op_space(&s), *s.p)) {
    mg_fail(c, MG_BUG, "malformed schema at '%.40s': %s", s.p, schema);
    free(block);
    return NULL;
  }
  o->param = s.param;
  o->nparam = s.nparam;
  o->nret = s.nret;
  o->ret_alias = s.ret_alias;
  o->ret_kind = s.ret_kind;
  for (int i = 0; i < o->nparam; i++) o->mutates |= o->param[i].writes;
  for (int i = 0; i < o->nret; i++) o->is_view |= o->ret_alias[i] >= 0 && !s.ret_writes[i];
  o->random = op_is_random(o);
  o->raises = (uint8_t)op_raise_kind(o);
  o->effect = o->mutates || o->random || !o->nret || op_is_foreign(o);
  return o;
}

/* ---- intern table (callers hold the lock) ---- */

static uint64_t op_hash(const char *t) {
  uint64_t h = mg_hash_bytes(t, strlen(t), 11);
  return h > 1 ? h : 2;
}

static MgRc op_init(void) {
  if (ops.row.n) return MG_OK;
  for (uint32_t i = 1; i < TOP__COUNT; i++)
    if (mg_map_put(&ops.row, op_hash(op_row[i].name), i) != MG_OK) {
      mg_map_free(&ops.row);
      return MG_NOMEM;
    }
  return MG_OK;
}

static uint32_t op_find_row(const char *full) {
  uint32_t i = mg_map_get(&ops.row, op_hash(full));
  return i != MG_MAP_NONE && !strcmp(op_row[i].name, full) ? i : TOP_extern;
}

/* Same parameters in the same order: what passes rely on when they see a row's code. */
static bool op_same_signature(const MgOp *a, const MgOp *b) {
  if (a->nparam != b->nparam || a->nret != b->nret) return false;
  for (int i = 0; i < a->nparam; i++) {
    const MgParam *p = &a->param[i], *q = &b->param[i];
    if (strcmp(p->name, q->name) || p->kind != q->kind || p->writes != q->writes ||
        p->alias_set != q->alias_set)
      return false;
  }
  return true;
}

static const MgOp *op_intern(MgCtx *c, const char *schema, uint32_t row) {
  MgOp *o = op_parse(c, schema);
  if (!o) return NULL;
  if (!row) {
    row = op_find_row(o->full);
    if (row) { /* not the row's text: keep the code only when the signature is the row's */
      const MgOp *r = ops.by_row[row] ? ops.by_row[row] : op_intern(c, op_row[row].schema, row);
      if (!r) goto fail;
      if (!op_same_signature(o, r)) row = TOP_extern;
    }
  }
  if (ops.n == ops.cap && !mg_grow(&ops.op, &ops.cap, sizeof *ops.op, 256)) goto nomem;
  o->code = row;
  o->id = ops.n;
  bool fresh = mg_map_get(&ops.name, op_hash(o->full)) == MG_MAP_NONE;
  if (mg_map_put(&ops.text, op_hash(schema), o->id) != MG_OK) goto nomem;
  if (fresh && mg_map_put(&ops.name, op_hash(o->full), o->id) != MG_OK) {
    mg_map_del(&ops.text, op_hash(schema));
    goto nomem;
  }
  ops.op[ops.n++] = o;
  if (row && !ops.by_row[row]) ops.by_row[row] = o;
  return o;
nomem:
  mg_fail(c, MG_NOMEM, "out of memory (op table)");
fail:
  free(o);
  return NULL;
}

const MgOp *mg_op_from_schema(MgCtx *c, const char *schema) {
  const MgOp *o = NULL;
  mg_fork_lock(MG_LOCK_op);
  if (op_init() == MG_OK) {
    uint32_t i = mg_map_get(&ops.text, op_hash(schema));
    if (i != MG_MAP_NONE) {
      o = ops.op[i];
    } else {
      size_t n = strcspn(schema, "(");
      char full[256];
      uint32_t row = TOP_extern;
      if (n < sizeof full) {
        memcpy(full, schema, n);
        full[n] = 0;
        row = op_find_row(full);
      }
      o = op_intern(c, schema, row && !strcmp(op_row[row].schema, schema) ? row : TOP_extern);
    }
  } else {
    mg_fail(c, MG_NOMEM, "out of memory (op table)");
  }
  mg_fork_unlock(MG_LOCK_op);
  return o;
}

static const MgOp *op_row_get(MgCtx *c, uint32_t row) {
  if (!row || row >= TOP__COUNT) return NULL;
  return ops.by_row[row] ? ops.by_row[row] : op_intern(c, op_row[row].schema, row);
}

const MgOp *mg_op_find(MgCtx *c, const char *full) {
  const MgOp *o = NULL;
  mg_fork_lock(MG_LOCK_op);
  if (op_init() == MG_OK) {
    uint32_t row = op_find_row(full), i;
    if (row) o = op_row_get(c, row);
    else if ((i = mg_map_get(&ops.name, op_hash(full))) != MG_MAP_NONE && !strcmp(ops.op[i]->full, full))
      o = ops.op[i];
  } else {
    mg_fail(c, MG_NOMEM, "out of memory (op table)");
  }
  mg_fork_unlock(MG_LOCK_op);
  return o;
}

const MgOp *mg_op_by_name(const char *full) {
  MgCtx c;
  mg_ctx_init(&c);
  const MgOp *o = mg_op_find(&c, full);
  mg_ctx_free(&c);
  return o;
}

const MgOp *mg_op_by_code(MgTop code) {
  MgCtx c; /* the error, if any, is only that memory ran out */
  mg_ctx_init(&c);
  mg_fork_lock(MG_LOCK_op);
  const MgOp *o = op_init() == MG_OK ? op_row_get(&c, code) : NULL;
  mg_fork_unlock(MG_LOCK_op);
  mg_ctx_free(&c);
  return o;
}

/* ---- functional twins ---- */

/* Pairs that the name rule does not give. */
static const struct {
  const char *written, *twin;
} op_twin_row[] = {
    {"aten::__iand__.Tensor", "aten::bitwise_and.Tensor"},
    {"aten::__iand__.Scalar", "aten::bitwise_and.Scalar"},
    {"aten::__ior__.Tensor", "aten::bitwise_or.Tensor"},
    {"aten::__ior__.Scalar", "aten::bitwise_or.Scalar"},
    {"aten::__ixor__.Tensor", "aten::bitwise_xor.Tensor"},
    {"aten::__ixor__.Scalar", "aten::bitwise_xor.Scalar"},
    {"aten::bernoulli_.Tensor", "aten::bernoulli.Tensor"},
    {"aten::bernoulli_.float", "aten::bernoulli.p"},
    {"aten::normal_", "aten::normal_functional"},
    {"aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_functional"},
};

/* t's parameters are o's, without the written ones when skip is set. */
static bool op_params_match(const MgOp *o, const MgOp *t, bool skip) {
  int j = 0;
  for (int i = 0; i < o->nparam; i++) {
    if (skip && o->param[i].writes) continue;
    if (j == t->nparam || o->param[i].kind != t->param[j].kind) return false;
    if (i && strcmp(o->param[i].name, t->param[j].name)) return false; /* self may be named input */
    j++;
  }
  return j == t->nparam;
}

const MgOp *mg_op_twin(const MgOp *o) {
  if (!o->mutates) return NULL;
  for (size_t i = 0; i < sizeof op_twin_row / sizeof *op_twin_row; i++)
    if (!strcmp(op_twin_row[i].written, o->full)) return mg_op_by_name(op_twin_row[i].twin);
  size_t n = strlen(o->name);
  bool inplace = o->name[n - 1] == '_' && o->nparam && o->param[0].writes;
  if (inplace) {
    char full[256];
    if (n + strlen(o->overload) + 2 > sizeof full) return NULL;
    memcpy(full, o->name, n - 1);
    full[n - 1] = 0;
    if (*o->overload) strcat(strcat(full, "."), o->overload);
    const MgOp *t = mg_op_by_name(full);
    if (t && !t->mutates && op_params_match(o, t, false)) return t;
    n--;
  }
  for (uint32_t i = 1; i < TOP__COUNT; i++) { /* any row of that base name with the right parameters */
    const char *r = op_row[i].name;
    if (strncmp(r, o->name, n) || (r[n] && r[n] != '.')) continue;
    const MgOp *t = mg_op_by_code(i);
    if (t && !t->mutates && op_params_match(o, t, !inplace)) return t;
  }
  return NULL;
}

int mg_op_param(const MgOp *o, const char *name) {
  for (int i = 0; i < o->nparam; i++)
    if (!strcmp(o->param[i].name, name)) return i;
  return -1;
}
