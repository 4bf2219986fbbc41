/* The symbol of a C++ function (Itanium C++ ABI). */
#ifndef MG_CXXMANGLE_H
#define MG_CXXMANGLE_H
#include <stdbool.h>
#include <stddef.h>

/* scope: namespaces and classes around it ("2at4_ops3sin"); function: "4call"; type: n parameters' types,
 * each spelled out: built-in letters, R (reference), K (const), N...E, and St names, with template arguments.
 * False: it does not fit in cap bytes. */
bool mg_cxxmangle(char *out, size_t cap, const char *scope, const char *function, const char *const *type,
                  int n);
#endif
