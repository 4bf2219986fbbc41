/* Assertions of invariants: what a comment says holds by construction is checked where it would be broken.
 * In: a condition without side effects.  Out: nothing, or file, line and message on
 * standard error, then abort().
 *
 * They are on unless NDEBUG is defined (meson's b_ndebug=true), so in every build of a checkout and in CI.
 * Wheels are built with NDEBUG, see pyproject.toml: there a broken invariant does not end the user's program.
 * A condition may cost what a comparison costs, or a small part of the work that it guards.  What costs more
 * is a verifier and runs in strict mode (mg_graph_verify).  What input or the system can cause
 * is an error, no assertion. */
#ifndef MG_ASSERT_H
#define MG_ASSERT_H

#ifdef NDEBUG
#define MG_ASSERT(condition, message) ((void)sizeof(!(condition)))
#else
#define MG_ASSERT(condition, message)                                                                        \
  (__builtin_expect(!(condition), 0) ? mg_assert_failed(__FILE__, __LINE__, #condition, (message)) : (void)0)
#endif

/* Says what does not hold and ends the process. */
void mg_assert_failed(const char *file, int line, const char *condition, const char *message)
    __attribute__((noreturn, cold));
#endif
