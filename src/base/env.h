/* The environment variables MAGNETO_*, by the table env.def.
 * In: the environment of the process, read at each call.  Out: values that are understood; what
 * is wrong with the others. */
#ifndef MG_ENV_H
#define MG_ENV_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum MgEnvKind {
  EK_switch, /* 1 or 0, also on, off, true, false, yes, no */
  EK_number, /* a whole number in a range */
  EK_span,   /* n or a-b, whole numbers from 1 on */
  EK_word,   /* one of a few words */
  EK_words,  /* some of them, separated by commas */
  EK_path,   /* any text; who uses the path says what is wrong with it */
  EK_tests   /* any text, not for the library */
} MgEnvKind;

typedef enum MgEnv {
#define ENV(name, kind, accepted, standard, meaning) ENV_##name,
#include "env.def"
  ENV__COUNT
} MgEnv;

typedef struct MgEnvRow {
  const char *name; /* with MAGNETO_ */
  const char *kind; /* as in the table */
  const char *accepted, *standard, *meaning;
} MgEnvRow;

const char *mg_env(MgEnv v); /* NULL: not set, empty, or not understood */
bool mg_env_switch(MgEnv v, bool standard);
uint64_t mg_env_number(MgEnv v, uint64_t standard);
bool mg_env_span(MgEnv v, long *from, long *to); /* false: mg_env(v) is NULL */

MgEnvRow mg_env_row(MgEnv v);
/* What is wrong with the variable's value, with what is accepted instead.  false: nothing. */
bool mg_env_bad(MgEnv v, char *text, size_t n);
/* Adds a notice for each variable with a wrong value, and for each MAGNETO_ variable
 * that is not in the table. */
void mg_env_check(void);
bool mg_strict(void); /* MAGNETO_STRICT=1: fallbacks and broken invariants are errors */
#endif
