/* Kernels that differ in numbers only.  See the header. */
#include "driver/kernel/kernel_sharing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "back/emit/emit_llvm.h"
#include "back/kernel/back.h"
#include "tuning.h"

#define SHARE_NUMBER "-0123456789"

/* Appends the text up to its next mark; what follows the mark, or NULL at the end. */
static const char *share_until_mark(const char *text, MgStrbuf *out) {
  const char *mark = strchr(text, MG_EMIT_MARK);
  mg_sb_write(out, text, mark ? (size_t)(mark - text) : strlen(text));
  return mark ? mark + 1 : NULL;
}

void mg_share_plain(const char *text, MgStrbuf *out) {
  while (text) text = share_until_mark(text, out);
}

void mg_share_shape(const char *text, MgStrbuf *out) {
  while ((text = share_until_mark(text, out))) {
    mg_sb_putc(out, MG_EMIT_MARK);
    text += strspn(text, SHARE_NUMBER);
  }
}

/* Its marked numbers: how many, and their values unless out is NULL. */
static uint32_t share_numbers(const char *text, int64_t *out) {
  uint32_t n = 0;
  for (const char *p = text; (p = strchr(p, MG_EMIT_MARK)); n++) {
    int64_t v = strtoll(++p, NULL, 10);
    if (out) out[n] = v;
  }
  return n;
}

static bool share_same(const int64_t *v, uint32_t n, uint32_t nmark, uint32_t a, uint32_t b) {
  for (uint32_t k = 0; k < n; k++)
    if (v[k * nmark + a] != v[k * nmark + b]) return false;
  return true;
}

/* The marked numbers of which texts have others: entry of the table + 1 per mark, 0 where all agree.
 * first: a mark of each entry. */
static uint32_t share_entries(const int64_t *v, uint32_t n, uint32_t nmark, uint32_t *entry,
                              uint32_t *first) {
  uint32_t nsize = 0;
  for (uint32_t i = 0; i < nmark; i++) {
    bool agree = true;
    for (uint32_t k = 1; k < n; k++) agree &= v[k * nmark + i] == v[i];
    if (agree) continue;
    uint32_t j = 0;
    while (j < nsize && !share_same(v, n, nmark, first[j], i)) j++;
    if (j == nsize) {
      if (nsize == MG_TUNE_SHARE_NUMBERS) return 0;
      first[nsize++] = i;
    }
    entry[i] = j + 1;
  }
  return nsize;
}

/* The unsigned division or remainder in whose line, %q = u... i64 %x, #number, `number` stands. */
typedef struct ShareDivide {
  unsigned q, x;
  bool rem;
  size_t written; /* of the line */
} ShareDivide;

static bool share_divides(const char *text, const char *number, ShareDivide *d) {
  const char *line = number;
  char op[4];
  while (line > text && line[-1] != '\n') line--;
  if (sscanf(line, "  %%v%u = u%3[a-z] i64 %%v%u, ", &d->q, op, &d->x) != 3) return false;
  d->rem = !strcmp(op, "rem");
  d->written = (size_t)(number - 1 - line);
  return true;
}

/* Numerators and divisors are below 2^32 (mg_emit_llvm), so that the high half of a product with 2^64 /
 * divisor, rounded up, is the quotient. */
static int64_t share_inverse(int64_t divisor) { return (int64_t)(UINT64_MAX / (uint64_t)divisor + 1); }

static void share_write_divide(const ShareDivide *d, uint32_t size, uint32_t inverse, MgStrbuf *out) {
  mg_sb_printf(out, "  %%x%u = zext i64 %%v%u to i128\n  %%y%u = zext i64 %%size%u to i128\n", d->q, d->x,
               d->q, inverse);
  mg_sb_printf(out, "  %%m%u = mul i128 %%x%u, %%y%u\n  %%h%u = lshr i128 %%m%u, 64\n", d->q, d->q, d->q,
               d->q, d->q);
  mg_sb_printf(out, "  %%%c%u = trunc i128 %%h%u to i64", d->rem ? 'd' : 'v', d->q, d->q);
  if (d->rem)
    mg_sb_printf(out, "\n  %%r%u = mul i64 %%d%u, %%size%u\n  %%v%u = sub i64 %%v%u, %%r%u", d->q, d->q, size,
                 d->q, d->x, d->q);
}

/* inverse: per entry, the one that holds its inverse, or 0 */
static void share_write(const char *text, const uint32_t *entry, const uint32_t *inverse, uint32_t nsize,
                        MgStrbuf *out) {
  static const char start[] = "L0:\n";
  const char *body = strstr(text, start) + sizeof start - 1;
  ShareDivide d;
  mg_sb_write(out, text, (size_t)(body - text));
  for (uint32_t j = 0; j < nsize; j++)
    mg_sb_printf(out,
                 "  %%sizeq%u = getelementptr i64, ptr %%size, i64 %u\n  %%size%u = load i64, ptr %%sizeq%u, "
                 "align 8\n",
                 j, j, j, j);
  for (const char *p = body; (p = share_until_mark(p, out)); entry++) {
    if (!*entry) continue;
    uint32_t j = *entry - 1;
    if (!share_divides(text, p, &d)) {
      mg_sb_printf(out, "%%size%u", j);
    } else if (mg_sb_ok(out)) {
      out->len -= d.written;
      share_write_divide(&d, j, inverse[j], out);
    }
    p += strspn(p, SHARE_NUMBER);
  }
}

/* Adds entries for the inverses of those that divide, and sets their columns in the table.  false:
 * one cannot be divided by so. */
static bool share_inverses(const char *text, const int64_t *v, uint32_t n, uint32_t nmark,
                           const uint32_t *entry, uint32_t *inverse, uint32_t *first, uint32_t *nsize) {
  ShareDivide d;
  const char *p = text;
  for (uint32_t i = 0; i < nmark; i++) {
    p = strchr(p, MG_EMIT_MARK) + 1;
    if (!entry[i] || !share_divides(text, p, &d) || inverse[entry[i] - 1]) continue;
    for (uint32_t k = 0; k < n; k++)
      if (v[k * nmark + i] < 2) return false;
    first[*nsize] = i;
    inverse[entry[i] - 1] = (*nsize)++;
  }
  return true;
}

MgRc mg_share(MgCtx *c, const char *const *text, uint32_t n, MgStrbuf *out, int64_t **size, uint32_t *nsize) {
  uint32_t nmark = share_numbers(text[0], NULL), first[2 * MG_TUNE_SHARE_NUMBERS],
           inverse[MG_TUNE_SHARE_NUMBERS] = {0};
  int64_t *v = mg_new(c, int64_t, (size_t)nmark * n + 1);
  uint32_t *entry = mg_new(c, uint32_t, nmark + 1);
  TRYP(v && entry);
  for (uint32_t k = 0; k < n; k++) share_numbers(text[k], v + (size_t)k * nmark);
  uint32_t nplain = *nsize = share_entries(v, n, nmark, entry, first);
  if (!nplain || !share_inverses(text[0], v, n, nmark, entry, inverse, first, nsize))
    return *nsize = 0, MG_OK;
  TRYP(*size = mg_new(c, int64_t, (size_t)*nsize * n));
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t j = 0; j < *nsize; j++) {
      int64_t number = v[k * nmark + first[j]];
      (*size)[k * *nsize + j] = j < nplain ? number : share_inverse(number);
    }
  share_write(text[0], entry, inverse, *nsize, out);
  return mg_sb_ok(out) ? MG_OK : mg_fail(c, MG_NOMEM, "out of memory");
}
