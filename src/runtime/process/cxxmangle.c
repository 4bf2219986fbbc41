/* Names of C++ functions, compressed as the Itanium C++ ABI has it.
 * In: namespaces and name of a function, and its parameters' types spelled without substitutions
 * ("RKN2at6TensorE").  Out: its
 * symbol, in which what occurred before is a number. */
#include "runtime/process/cxxmangle.h"
#include <string.h>

enum { MANGLE_SEEN = 64 };

typedef struct Mangle {
  char *out;
  size_t n, cap;
  struct {
    const char *text; /* as spelled; a nested name without N and E, so that it is its own prefix */
    size_t n;
  } seen[MANGLE_SEEN];
  int nseen;
  bool full;
} Mangle;

static void mangle_put(Mangle *m, const char *text, size_t n) {
  if (m->n + n >= m->cap) m->full = true;
  else memcpy(m->out + m->n, text, n), m->n += n;
}

static void mangle_remember(Mangle *m, const char *text, size_t n) {
  if (m->nseen == MANGLE_SEEN) m->full = true;
  else m->seen[m->nseen].text = text, m->seen[m->nseen++].n = n;
}

/* Writes a number for what occurred before. */
static bool mangle_again(Mangle *m, const char *text, size_t n) {
  static const char digit[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  for (int i = 0; i < m->nseen; i++) {
    if (m->seen[i].n != n || memcmp(m->seen[i].text, text, n)) continue;
    char number[4] = "S";
    int k = 1;
    if (i > 36) number[k++] = digit[(i - 1) / 36];
    if (i) number[k++] = digit[(i - 1) % 36];
    number[k++] = '_';
    mangle_put(m, number, k);
    return true;
  }
  return false;
}

static const char *mangle_type(Mangle *m, const char *p);
static const char *mangle_type_end(const char *p);

static const char *mangle_word_end(const char *p) { /* "6Tensor" */
  size_t n = 0;
  for (; *p >= '0' && *p <= '9'; p++) n = 10 * n + (*p - '0');
  return p + n;
}

static const char *mangle_args_end(const char *p) { /* "I" types "E" */
  for (p++; *p != 'E';) p = mangle_type_end(p);
  return p + 1;
}

static const char *mangle_type_end(const char *p) {
  if (*p == 'R' || *p == 'K') return mangle_type_end(p + 1);
  if (*p == 'L') return strchr(p, 'E') + 1; /* a number of a template: "Lm2E" */
  if (*p == 'N') {
    for (p++; *p != 'E';) p = *p == 'I' ? mangle_args_end(p) : mangle_word_end(p);
    return p + 1;
  }
  if (*p != 'S') return p + 1; /* a built-in type */
  p = mangle_word_end(p + 2);  /* "St8optional" */
  return *p == 'I' ? mangle_args_end(p) : p;
}

static void mangle_args(Mangle *m, const char *p) {
  mangle_put(m, "I", 1);
  for (p++; *p != 'E';) p = mangle_type(m, p);
  mangle_put(m, "E", 1);
}

/* A name from its outermost namespace on: text up to end, with or without arguments of a template. */
static void mangle_prefix(Mangle *m, const char *text, const char *end) {
  if (mangle_again(m, text, end - text)) return;
  const char *last = text, *next = text[0] == 'S' ? mangle_word_end(text + 2) : mangle_word_end(text);
  while (next < end) {
    last = next;
    next = *next == 'I' ? mangle_args_end(next) : mangle_word_end(next);
  }
  if (last > text) mangle_prefix(m, text, last);
  if (*last == 'I') mangle_args(m, last);
  else mangle_put(m, last, end - last);
  mangle_remember(m, text, end - text);
}

static const char *mangle_type(Mangle *m, const char *p) {
  const char *end = mangle_type_end(p);
  if (*p == 'R' || *p == 'K') {
    if (mangle_again(m, p, end - p)) return end;
    mangle_put(m, p, 1);
    mangle_type(m, p + 1);
    mangle_remember(m, p, end - p);
  } else if (*p == 'N') {
    if (mangle_again(m, p + 1, end - p - 2)) return end;
    mangle_put(m, "N", 1);
    mangle_prefix(m, p + 1, end - 1);
    mangle_put(m, "E", 1);
  } else if (*p == 'S') {
    mangle_prefix(m, p, end);
  } else {
    mangle_put(m, p, end - p);
  }
  return end;
}

bool mg_cxxmangle(char *out, size_t cap, const char *scope, const char *function, const char *const *type,
                  int n) {
  Mangle m = {.out = out, .cap = cap};
  mangle_put(&m, "_ZN", 3);
  mangle_prefix(&m, scope, scope + strlen(scope));
  mangle_put(&m, function, strlen(function));
  mangle_put(&m, "E", 1);
  for (int i = 0; i < n; i++) mangle_type(&m, type[i]);
  if (!n) mangle_put(&m, "v", 1);
  if (m.full) return false;
  out[m.n] = 0;
  return true;
}
