/* Calls of C++ code that may throw, or that ends the process when it lacks memory.
 * In: a function.  Out: did it return?  The personality routine of one frame here stands for C++'s catch,
 * which C lacks.
 * What the function held when it was left (locks, memory) stays held. */
#ifndef MG_CXXCATCH_H
#define MG_CXXCATCH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* fn(arg); false when it threw, or called abort or exit and mg_cxx_no_exit knows its library. */
bool mg_cxx_catch(void (*fn)(void *), void *arg);
/* From here on abort and exit, called by this library inside of mg_cxx_catch, end that call instead of the
 * process. library: a handle of dlopen.  false: its calls of abort were not found. */
bool mg_cxx_no_exit(void *library);
/* Finds what ends a C++ exception, through a handle of dlopen or, if NULL, in torch's
 * libraries.  false: not found. */
bool mg_cxx_find_catch(void *library);
/* fn with these registers (six for integers, eight for doubles) and that stack: false when it threw. */
bool mg_cxx_enter(void *fn, const uint64_t *reg, const double *xmm, const uint64_t *stack, size_t nstack);
#endif
