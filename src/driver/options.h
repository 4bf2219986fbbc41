/* Options of one compilation. */
#ifndef MG_OPTIONS_H
#define MG_OPTIONS_H
#include <stdbool.h>
#include <stdint.h>

typedef struct MgOptions {
  bool freeze;      /* parameters never change: fold and pack them once */
  bool search;      /* library calls of any size are timed (engine_timing.h) */
  bool keep_layout; /* never change memory formats inside the graph */
  int threads;      /* 0: as many as torch uses */
  uint8_t numerics; /* MgNumerics */
  int verify;       /* runs of each graph that are compared with eager first (entry/verify) */
  int verify_every; /* and one in so many after; 0: none */
} MgOptions;
#endif
