/* See the header. */
#include "runtime/engine/sized_engines.h"
#include <stdlib.h>
#include <string.h>

static void sized_drop(MgSizedRun *r, uint32_t i) {
  MgEngine *e = r->made[i].e;
  if (r->made[i].state) e->ops->state_free(e, r->made[i].state);
  e->ops->free(e);
  free(r->made[i].desc);
}

MgRc mg_sized_use(const MgSized *s, MgSizedRun *r, void *desc) {
  uint32_t i = 0;
  while (i < r->n && memcmp(r->made[i].desc, desc, s->bytes)) i++;
  if (i < r->n) {
    free(desc);
  } else {
    MgCtx c;
    MgEngine *e = NULL;
    mg_ctx_init(&c);
    MgRc rc = s->make(&c, desc, &e);
    mg_ctx_free(&c);
    void *state = rc == MG_OK && e->ops->state_new ? e->ops->state_new(e) : NULL;
    if (rc == MG_OK && e->ops->state_new && !state) {
      e->ops->free(e);
      rc = MG_NOMEM;
    }
    if (rc != MG_OK) {
      free(desc);
      return rc;
    }
    if (r->n == MG_SIZED_KEPT) sized_drop(r, --r->n);
    i = r->n++;
    r->made[i] = (MgSizedEngine){desc, e, state};
  }
  MgSizedEngine first = r->made[i];
  memmove(r->made + 1, r->made, i * sizeof *r->made);
  r->made[0] = first;
  return MG_OK;
}

void mg_sized_free(MgSizedRun *r) {
  while (r->n) sized_drop(r, --r->n);
}
