/* Calls of ATen operators as C++ makes them: at::_ops::NAME::call by its mangled name.
 * In: an operator's name and its arguments; all but tensors are constants.  Out: a call that runs without
 * Python, without a
 * lookup and without boxing.  The mangled name has the type of every parameter in it: a torch whose operator
 * takes others does not have the name.  Where values go is the Itanium C++ ABI's and System V's (x86-64);
 * elsewhere there are no such calls. */
#ifndef MG_CXXCALL_H
#define MG_CXXCALL_H
#include "runtime/process/torch_abi.h"

typedef enum MgCxxType { /* what a schema asks for */
                         CXX_tensor,
                         CXX_tensors,
                         CXX_int,
                         CXX_ints,
                         CXX_float,
                         CXX_floats,
                         CXX_bool,
                         CXX_bools,
                         CXX_scalar,
                         CXX_dtype,
                         CXX_layout,
                         CXX_memory_format,
                         CXX_device,
                         CXX_str,
                         CXX_generator
} MgCxxType;

typedef struct MgCxxArg {
  uint8_t type;        /* MgCxxType */
  bool optional, none; /* the schema's "?"; no value (never for a tensor, whose value runs give) */
  char scalar;         /* CXX_scalar: 'i', 'd' or 'b', the value's kind */
  int8_t index;        /* CXX_device */
  uint32_t n;          /* items of a list */
  int64_t i;           /* numbers, torch's codes */
  double d;
  const char *str;
  const int64_t *ints; /* n; of CXX_bools, too */
  const double *floats;
} MgCxxArg;

typedef struct MgCxxCall MgCxxCall;

/* Finds out, by calling one, whether this process can make such calls: once, before any other of these. */
void mg_cxxcall_init(void);
/* The call of aten::NAME.OVERLOAD (overload: "" for none), which gives nret tensors.  Everything is copied.
 * NULL: there is no such call here, or memory ran out. */
MgCxxCall *mg_cxxcall_new(const char *name, const char *overload, const MgCxxArg *arg, int narg, int nret);
/* in: borrowed tensors in the order of the arguments, lists flattened; NULL where undefined.  out: nret new
 * tensors, NULL where undefined. False when the operator threw: nothing is stored. */
bool mg_cxxcall_run(const MgCxxCall *call, MgTensor *const *in, MgTensor **out);
void mg_cxxcall_free(MgCxxCall *call);
#endif
