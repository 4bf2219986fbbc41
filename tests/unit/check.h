/* The least of a test harness: CHECK counts, test_done reports. */
#ifndef MG_TEST_CHECK_H
#define MG_TEST_CHECK_H
#include <stdio.h>
static int check_failed, check_passed;
#define CHECK(e)                                                                                             \
  do {                                                                                                       \
    if (e) check_passed++;                                                                                   \
    else check_failed++, printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #e);                              \
  } while (0)
static inline int test_done(void) {
  printf("%d passed, %d failed\n", check_passed, check_failed);
  return check_failed != 0;
}
#endif
