/* PTX text to decoded instructions.
 * In: the text of a module and the name of an entry.  Out: its instructions, with registers counted through
 * and labels and shared memory as numbers. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "machine_priv.h"

static const char *const parse_ops[] = {
#define PTX_OP(name) #name,
#include "words.def"
};

static const char *const parse_compares[] = {
#define PTX_COMPARE(name) #name,
#include "words.def"
};

static const char *const parse_types[] = {
#define PTX_TYPE(name, bytes, kind) #name,
#include "words.def"
};

static const struct ParseType {
  uint8_t bytes;
  char kind;
} parse_type[] = {
#define PTX_TYPE(name, bytes, kind) {bytes, kind},
#include "words.def"
};

int ptx_type_bytes(PtxType t) { return parse_type[t].bytes; }
char ptx_type_kind(PtxType t) { return parse_type[t].kind; }

enum { NAME = 32, NAMES = 256 };

typedef struct ParseName {
  char name[NAME];
  int64_t at; /* first register, byte of shared memory, instruction or parameter */
} ParseName;

typedef struct Parse {
  PtxProgram *p;
  ParseName reg[NAMES], symbol[NAMES], param[NAMES], *label;
  int nreg, nsymbol, nparam, nlabel, line;
  char *err;
} Parse;

static bool parse_wrong(Parse *s, const char *what, const char *at) {
  snprintf(s->err, PTX_ERR, "line %d: %s: %.120s", s->line, what, at);
  return false;
}

static bool parse_add(ParseName *list, int *n, int most, const char *name, size_t len, int64_t at) {
  if (*n >= most || len >= NAME) return false;
  memcpy(list[*n].name, name, len);
  list[*n].name[len] = 0;
  list[(*n)++].at = at;
  return true;
}

static const ParseName *parse_find(const ParseName *list, int n, const char *name, size_t len) {
  for (int i = 0; i < n; i++)
    if (strlen(list[i].name) == len && !strncmp(list[i].name, name, len)) return &list[i];
  return NULL;
}

static int parse_word(const char *const *words, int n, const char *s, size_t len) {
  for (int i = 0; i < n; i++)
    if (strlen(words[i]) == len && !strncmp(words[i], s, len)) return i;
  return -1;
}
#define PARSE_WORD(words, s, len) parse_word(words, (int)(sizeof(words) / sizeof *(words)), s, len)

static const char *parse_skip(const char *s) { return s + strspn(s, " \t"); }

/* ---- operands ---- */

/* "%rd12": its number in the count of all registers, or -1. */
static int parse_register(Parse *s, const char *at, size_t len) {
  size_t letters = strcspn(at, "0123456789");
  const ParseName *r = letters < len ? parse_find(s->reg, s->nreg, at, letters) : NULL;
  return r ? (int)r->at + atoi(at + letters) : -1;
}

/* One word of an operand, without brackets. */
static bool parse_atom(Parse *s, const char *at, size_t len, PtxOperand *o) {
  const ParseName *n;
  if (*at == '%') {
    bool tid = len == 6 && !strncmp(at, "%tid.x", 6), block = len == 8 && !strncmp(at, "%ctaid.x", 8);
    o->kind = tid || block ? PK_special : PK_reg;
    o->reg = tid ? PX_tid : block ? PX_ctaid : parse_register(s, at, len);
    return o->reg >= 0 || parse_wrong(s, "no such register", at);
  }
  o->kind = PK_bits;
  if (at[0] == '0' && (at[1] == 'f' || at[1] == 'd')) {
    o->bits = strtoull(at + 2, NULL, 16);
    return true;
  }
  if (strchr("-0123456789", *at)) {
    o->bits = *at == '-' ? (uint64_t)strtoll(at, NULL, 0) : strtoull(at, NULL, 0);
    return true;
  }
  if ((n = parse_find(s->symbol, s->nsymbol, at, len))) {
    o->bits = (uint64_t)n->at;
    return true;
  }
  n = parse_find(s->label, s->nlabel, at, len);
  o->kind = PK_label;
  if (n) o->reg = (int)n->at;
  return n || parse_wrong(s, "no such name", at);
}

/* "[%rd3+16]" or "[a2]" */
static bool parse_memory(Parse *s, const char *at, size_t len, PtxOperand *o) {
  const char *plus = memchr(at, '+', len);
  size_t word = plus ? (size_t)(plus - at) : len;
  const ParseName *param = parse_find(s->param, s->nparam, at, word);
  if (param) o->bits = (uint64_t)param->at, o->reg = -1;
  else if (!parse_atom(s, at, word, o)) return false;
  else if (o->kind == PK_reg) o->bits = 0;
  else o->reg = -1;
  o->kind = PK_memory;
  if (plus) o->bits += (uint64_t)strtoll(plus + 1, NULL, 0);
  return true;
}

static bool parse_list(Parse *s, const char *at, size_t len, PtxOperand *o) {
  const char *end = at + len;
  o->kind = PK_list;
  while (at < end) {
    at += strspn(at, " ,");
    size_t n = strcspn(at, " ,}");
    if (at >= end) break;
    if (o->nlist == PTX_LIST) return parse_wrong(s, "a long list", at);
    o->list[o->nlist] = parse_register(s, at, n);
    if (o->list[o->nlist++] < 0) return parse_wrong(s, "no such register", at);
    at += n;
  }
  return true;
}

static bool parse_operands(Parse *s, const char *at, PtxInstr *i) {
  for (at = parse_skip(at); *at && *at != ';';) {
    if (i->narg == PTX_OPERANDS) return parse_wrong(s, "too many operands", at);
    PtxOperand *o = &i->arg[i->narg++];
    const char *close = *at == '[' ? strchr(at, ']') : *at == '{' ? strchr(at, '}') : NULL;
    size_t len = close ? (size_t)(close - at - 1) : strcspn(at, " ,;");
    bool ok = *at == '['   ? parse_memory(s, at + 1, len, o)
              : *at == '{' ? parse_list(s, at + 1, len, o)
                           : parse_atom(s, at, len, o);
    if (!ok) return false;
    at = close ? close + 1 : at + len;
    at += strspn(at, " ,");
  }
  return true;
}

/* ---- instructions ---- */

/* One word after a point of "ld.global.v4.f32". */
static bool parse_suffix(PtxInstr *i, const char *w, size_t n) {
  static const char *const rounds[] = {"", "rn", "rz", "rni", "rzi", "rmi", "rpi"};
  static const char *const spaces[] = {"", "global", "shared", "param"};
  static const char *const ignored[] = {"lo", "full", "approx", "uni", "sync", "bfly", "to"};
  int k;
  if ((k = PARSE_WORD(parse_types, w, n)) >= 0) {
    if (i->ntype < 2) i->type[i->ntype++] = (uint8_t)k;
    return true;
  }
  if (i->op == PO_setp && (k = PARSE_WORD(parse_compares, w, n)) >= 0) return i->compare = (uint8_t)k, true;
  if (i->op == PO_setp && n == 3 && !strncmp(w, "and", 3)) return i->combines = true;
  if ((k = PARSE_WORD(rounds, w, n)) > 0) return i->round = (uint8_t)k, true;
  if ((k = PARSE_WORD(spaces, w, n)) > 0) return i->space = (uint8_t)k, true;
  if (n == 4 && !strncmp(w, "wide", 4)) return i->wide = true;
  if (n == 3 && !strncmp(w, "NaN", 3)) return i->nan = true;
  if (n == 3 && !strncmp(w, "ftz", 3)) return i->ftz = true;
  if (n == 2 && w[0] == 'v') return i->vec = (uint8_t)(w[1] - '0'), true;
  return PARSE_WORD(ignored, w, n) >= 0;
}

static bool parse_instruction(Parse *s, const char *at) {
  PtxInstr *i = &s->p->instr[s->p->ninstr++];
  i->guard = -1;
  i->line = s->line;
  i->vec = 1;
  if (*at == '@') {
    i->guard_not = at[1] == '!';
    at += 1 + i->guard_not;
    size_t n = strcspn(at, " ");
    if ((i->guard = parse_register(s, at, n)) < 0) return parse_wrong(s, "no such predicate", at);
    at = parse_skip(at + n);
  }
  size_t n = strcspn(at, ". ;");
  int op = PARSE_WORD(parse_ops, at, n);
  if (op < 0) return parse_wrong(s, "no such instruction", at);
  i->op = (uint8_t)op;
  for (at += n; *at == '.'; at += n) {
    n = strcspn(++at, ". ;");
    if (!parse_suffix(i, at, n)) return parse_wrong(s, "no such suffix", at);
  }
  return parse_operands(s, at, i);
}

/* ".reg .b32 %r<63>;" and ".shared .align 8 .b8 tile[4096];" */
static bool parse_declaration(Parse *s, const char *at) {
  if (!strncmp(at, ".reg", 4)) {
    const char *name = strchr(at, '%'), *angle = name ? strchr(name, '<') : NULL;
    if (!angle || !parse_add(s->reg, &s->nreg, NAMES, name, (size_t)(angle - name), s->p->nreg))
      return parse_wrong(s, "registers", at);
    s->p->nreg += atoi(angle + 1);
  } else if (!strncmp(at, ".shared", 7)) {
    const char *name = strstr(at, ".b8 "), *bracket = name ? strchr(name, '[') : NULL;
    size_t from = (s->p->shared + 15) / 16 * 16;
    if (!bracket || !parse_add(s->symbol, &s->nsymbol, NAMES, name + 4, (size_t)(bracket - name - 4),
                               (int64_t)(PTX_SHARED_BASE + from)))
      return parse_wrong(s, "shared memory", at);
    s->p->shared = from + strtoull(bracket + 1, NULL, 10);
  }
  return true;
}

/* ".visible .entry k0(.param .u64 a0, .param .u64 a1)" */
static bool parse_head(Parse *s, const char *at) {
  for (at = strstr(at, ".param"); at; at = strstr(at + 1, ".param")) {
    const char *name = parse_skip(strchr(at + 7, ' '));
    if (!parse_add(s->param, &s->nparam, NAMES, name, strcspn(name, ",)"), s->nparam))
      return parse_wrong(s, "parameter", at);
  }
  s->p->nparam = s->nparam;
  return true;
}

/* A line of the body; labels and declarations only where first, instructions only where not. */
static bool parse_line(Parse *s, char *at, bool first) {
  char *comment = strstr(at, "//"), *colon;
  if (comment) *comment = 0;
  at = (char *)parse_skip(at);
  if (*at == '.') return !first || parse_declaration(s, at);
  if (!*at || strchr("{})", *at)) return true;
  colon = strchr(at, ':');
  if (colon && strcspn(at, " ") > (size_t)(colon - at)) {
    if (!first) return true;
    return parse_add(s->label, &s->nlabel, s->p->nline, at, (size_t)(colon - at), s->p->ninstr) ||
           parse_wrong(s, "label", at);
  }
  if (first) return s->p->ninstr++, true;
  return parse_instruction(s, at);
}

/* The lines from the entry's head to the brace that ends it. */
static bool parse_lines(PtxProgram *p, const char *text, const char *entry) {
  char head[NAME * 2 + 16];
  snprintf(head, sizeof head, ".entry %s(", entry);
  const char *from = strstr(text, head), *to = from ? strstr(from, "\n}") : NULL;
  if (!to) return false;
  int most = 1;
  for (const char *c = from; c < to; c++) most += *c == '\n';
  p->line = calloc((size_t)most, sizeof *p->line);
  while (p->line && from < to) {
    size_t n = strcspn(from, "\n");
    if (!(p->line[p->nline++] = strndup(from, n))) return false;
    from += n + 1;
  }
  p->instr = calloc((size_t)most + 1, sizeof *p->instr);
  return p->line && p->instr;
}

static bool parse_body(Parse *s) {
  PtxProgram *p = s->p;
  if (!parse_head(s, p->line[0])) return false;
  for (int first = 1; first >= 0; first--) {
    p->ninstr = 0;
    for (s->line = 1; s->line < p->nline; s->line++) {
      char copy[512];
      snprintf(copy, sizeof copy, "%s", p->line[s->line]);
      if (!parse_line(s, copy, first)) return false;
    }
  }
  return true;
}

PtxProgram *ptx_parse(const char *text, const char *entry, char *err) {
  Parse s = {.p = calloc(1, sizeof(PtxProgram)), .err = err};
  bool ok = s.p && parse_lines(s.p, text, entry);
  snprintf(err, PTX_ERR, "no entry %s", entry);
  if (ok) ok = (s.label = calloc((size_t)s.p->nline + 1, sizeof *s.label)) && parse_body(&s);
  free(s.label);
  if (ok) return s.p;
  ptx_free(s.p);
  return NULL;
}

void ptx_free(PtxProgram *p) {
  if (!p) return;
  for (int i = 0; i < p->nline; i++) free(p->line[i]);
  free(p->line);
  free(p->instr);
  free(p);
}
