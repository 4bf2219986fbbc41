/* What a compilation assumes of symbolic sizes.
 * Where a pass cannot go on without an answer (MgSizeAsk), it gets the one that the hints of the symbols
 * give; the answer becomes a fact, which the plan checks whenever its sizes change. */
#ifndef MG_SIZE_FACTS_H
#define MG_SIZE_FACTS_H
#include "ir/expr/expr.h"

typedef struct MgFact { /* of two sizes */
  uint8_t is;           /* MgPlanFactKind */
  SymRef a, b;
} MgFact;

typedef struct MgSizeFacts {
  MgExprs *x;
  MgSizeAsk ask;
  MgFact *fact;
  uint32_t n, cap; /* in the arena of x */
} MgSizeFacts;

/* Answers the questions of x from now on, when it has symbols; f must not move until mg_size_facts_end. */
void mg_size_facts_begin(MgSizeFacts *f, MgExprs *x);
void mg_size_facts_end(MgSizeFacts *f);
void mg_size_facts_print(const MgSizeFacts *f, MgStrbuf *out); /* one line each */
#endif
