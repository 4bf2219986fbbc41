/* What depends on what in a recorded backward pass. */
#ifndef MG_JOINT_REACH_H
#define MG_JOINT_REACH_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgJointRec MgJointRec;
typedef struct MgRec MgRec;

typedef struct MgJointBuild { /* being built */
  MgRec *r;
  MgGraph *g;
  MgJointRec *j;
  PyObject **seen; /* by value: its living stand-in, borrowed, or NULL */
  uint32_t *group; /* by storage number: results of the segment that live there */
  bool *outer, *grad,
      *written; /* by storage: an input's memory; a result there requires grad; in-place ops wrote it */
  uint32_t nval;
  bool ran;    /* the engine has run */
  bool inside; /* a view that an autograd.Function made was followed */
  bool views;  /* every result is a view of an input: constant sizes would not help */
  bool
      linked; /* a result depends on another one, and the program asks for gradients between them: nor here */
  const char *why; /* set when the graph has to run op by op */
} MgJointBuild;

/* Which gradients need which tangents: j->reach.  0; 1: b->why says why that cannot be told; -1 with an
 * exception. */
int mg_joint_find_reach(MgJointBuild *b);
/* Is a result with a grad_fn computed from another one, or from a view that is a
 * result?  -1: out of memory. */
int mg_joint_depends(const MgJointBuild *b, const ValRef *out);
/* j->link and j->port: in eager, gradients go from a result to those that it is computed from. */
int mg_joint_find_links(MgJointBuild *b);
/* j->mate: results that one pass over result k frees something of; k itself only if
 * something of it was saved. */
int mg_joint_find_mates(MgJointBuild *b);
/* Does eager's gradient graph save tensors for the node `def`, so that a second pass through it
 * fails?  Without an answer, yes. */
bool mg_joint_saves(const MgCapture *cap, NodeRef def);
#endif
