/* How a broken invariant is reported.  See the header. */
#include "base/assert.h"
#include <stdio.h>
#include <stdlib.h>

void mg_assert_failed(const char *file, int line, const char *condition, const char *message) {
  fprintf(stderr, "magneto: %s:%d: broken invariant: %s (%s)\n", file, line, message, condition);
  fflush(stderr);
  abort();
}
