/* Options of one compilation. */
#ifndef MG_OPTIONS_H
#define MG_OPTIONS_H
#include <stdbool.h>

typedef struct MgOptions {
  bool freeze;      /* parameters never change: fold and pack them once */
  bool keep_layout; /* never change memory formats inside the graph */
  int threads;      /* 0: as many as torch uses */
} MgOptions;
#endif
