/* How a joint graph is divided into forward and backward, and what forward keeps for backward. */
#ifndef MG_JOINT_SPEC_H
#define MG_JOINT_SPEC_H
#include "ir/graph/graph.h"

typedef struct MgJointSpec {
  uint32_t nprimal; /* joint->input[0, nprimal) are primals, the rest tangents */
  uint32_t nfwd;    /* joint->output[0, nfwd) are forward outputs, the rest gradients */
  NodeRef backward; /* first node recorded by backward; 0: the first one that reads a tangent */
} MgJointSpec;

typedef enum MgSavedKind { MG_SAVED_primal, MG_SAVED_output, MG_SAVED_intermediate } MgSavedKind;

typedef struct MgSaved { /* a value that backward takes from forward */
  uint8_t kind;          /* MgSavedKind */
  uint32_t index;        /* number of the primal, of the forward output, or of the intermediate */
} MgSaved;
#endif
