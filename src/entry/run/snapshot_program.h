/* The program of an entry that rebuilds what the frame has at the end of a
 * segment, and repeats its effects. */
#ifndef MG_SNAPSHOT_PROGRAM_H
#define MG_SNAPSHOT_PROGRAM_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "host/torch/torch_state.h"
#include "ir/graph/graph.h"

typedef struct MgGuards MgGuards;

typedef enum MgSnapOp {
  /* make a value; its number is the instruction's index */
  SN_const,     /* obj */
  SN_out,       /* graph output number a */
  SN_tensor_of, /* argument 0, a tensor, as an instance of obj, or of the class that is the last argument; a:
                   others may hold it */
  SN_array,     /* argument 0, a tensor, as a NumPy array over its memory; a: as a scalar */
  SN_item,      /* element arg of graph output number a, as a float, int or bool */
  SN_dim,       /* size of graph output number a, in dimension arg */
  SN_compute,   /* operator a (MgCalc) on the arguments */
  SN_check,     /* argument 0 is True, or obj called with the tuple argument 1 raises; gives None */
  SN_claim,     /* argument 0 is the bool a, or the run is given up (speculation.h); gives None */
  SN_src,       /* value of source a */
  SN_calc,      /* number that source a computes */
  SN_list,
  SN_dict,
  SN_set,
  SN_cell,  /* empty; obj: the class, for dict */
  SN_tuple, /* of the arguments */
  /* instances of obj, or of the class that is the last argument */
  SN_tuple_of, /* obj(tuple argument 0): a tuple subclass, made without its __new__ */
  SN_value_of, /* obj(argument 0): a subclass of a C value type (int, str ...), made without its __new__ */
  SN_based, /* obj(*argument 0): made by its base in C, without the __new__ and __init__ of Python classes */
  SN_frozenset, /* of the arguments */
  SN_slice,     /* start, stop, step */
  SN_function,  /* obj: the code's function as recorded; arguments: closure, defaults, kwdefaults, dict,
                   annotations, module, from 3.14 on what makes annotations (or 0) */
  SN_method,    /* function, self */
  SN_builtin,   /* obj: the recorded builtin; argument: self */
  SN_wrapper,   /* obj: descriptor; argument: self */
  SN_instdict,  /* the instance dict of argument 0 */
  SN_view,      /* obj: "keys", "values" or "items"; argument: the dict, whose static base makes the view */
  SN_instance,  /* obj: a class; an empty instance, made by the static base without running Python code */
  SN_generator, /* of the function that is argument 0, paused at unit a - 1 (0: not started), its slots are
                   the other arguments; without arguments: an exhausted one of the function obj */
  SN_call,      /* argument 0 called with the tuple argument 1 */
  /* fill or write: changes value a */
  SN_fill_list,
  SN_fill_dict,
  SN_fill_set,
  SN_fill_deque,
  SN_set_iterator,
  SN_set_cell,
  SN_set_state, /* __setstate__ or __dict__ update, from argument 0 */
  SN_extend,    /* append every item of list argument 0 */
  SN_put_items, /* setitem for every pair in list argument 0 */
  SN_set_cause,
  SN_set_context,   /* of an exception; argument 0 may be 0; no argument: to what is being handled */
  SN_set_traceback, /* of an exception; obj: mg_snap_traceback */
  SN_set_attr, /* attribute obj of value a (an instance or a class), past __setattr__; no argument: delete */
  SN_set_member, /* what the descriptor obj writes into value a: value b; no argument: delete */
  SN_set_var,    /* context variable a gets argument 0 */
  SN_put_attr,   /* key obj of the instance dict of a, past data descriptors */
  SN_set_key     /* key obj of the namespace a; no argument: delete */
} MgSnapOp;
typedef struct MgSnapInstr {
  uint8_t op;         /* MgSnapOp */
  uint32_t a;         /* output, source or target number */
  uint32_t narg, arg; /* arguments: pool[arg .. arg+narg), numbers of values */
  PyObject *obj;      /* borrowed from MgSnapshot.keep or from a module that the entry watches */
} MgSnapInstr;
/* What to set after a segment has run; empty when the state is as before. */
typedef struct MgStateChange {
  bool any;
  MgTorchState before, after;
  int32_t autocast_depth; /* levels of `with torch.autocast` entered, less those left */
  PyObject *settings;     /* of torch_switches.c, strong; NULL when none */
} MgStateChange;
typedef struct MgSnapshot MgSnapshot; /* snapshot.c: construction program */
struct MgSnapshot {
  MgSnapInstr *p;
  uint32_t n, cap; /* makes and fills fresh objects; p[0] unused, so that 0 means "none" */
  MgSnapInstr *w;
  uint32_t nw, cap_w; /* then writes to older objects: by now everything they read is held */
  uint32_t *pool;
  uint32_t npool, cap_pool;
  uint32_t *slot;
  int nslots;   /* value number of each slot; UNBOUND, UNTOUCHED */
  uint32_t ret; /* value returned, or 0 */
  ValRef *out;
  uint32_t nout, cap_out; /* graph values wanted, in output order */
  PyObject *keep;         /* list: objects of the program */
  const MgGuards *guards; /* of the same entry, borrowed: SN_calc */
  MgStateChange state;
  uint32_t nclaim; /* values of p up to the last SN_claim; 0: none */
  bool only_out;   /* returns output 0 and does nothing else */
};
enum { SNAP_UNBOUND = 0, SNAP_UNTOUCHED = UINT32_MAX };
#endif
