/* Tensor operations: ATen ops by schema, plus the compiler's own (namespace mg).
 * In: schema texts as torch prints them ("aten::add.Tensor(Tensor self, Tensor other, *,
 * Scalar alpha=1) -> Tensor").
 * Out: MgOp, interned per process, with argument kinds, defaults, mutation and aliasing, and the code of the
 * row in
 * tensor_ops.def when the compiler knows the op (TOP_extern when it does not: it
 * runs through the dispatcher). */
#ifndef MG_OP_H
#define MG_OP_H
#include "base/ctx.h"
#include "ir/expr/dtype.h"

typedef enum MgTop {
  TOP_extern = 0,
#define TOP(code, name, ...) TOP_##code,
#include "ir/graph/tensor_ops.def"
#undef TOP
  TOP__COUNT
} MgTop;

typedef enum MgArgKind { /* what a schema asks for */
                         AK_tensor,
                         AK_tensor_list,
                         AK_opt_tensor_list,
                         AK_int,
                         AK_int_list,
                         AK_float,
                         AK_float_list,
                         AK_bool,
                         AK_bool_list,
                         AK_scalar,
                         AK_scalar_list,
                         AK_dtype,
                         AK_layout,
                         AK_device,
                         AK_memory_format,
                         AK_str,
                         AK_generator,
                         AK_other
} MgArgKind;

/* What tells, before the call, that a kernel will raise because of values: raises.def. */
typedef enum MgRaise {
  RS_none,        /* it does not raise */
  RS_keep,        /* nothing but the call */
  RS_list,        /* RA_index: a list of indices into the dimensions of RA_self, wrapped */
  RS_dim,         /* RA_dim_index: indices into dimension RA_dim of RA_self */
  RS_wrapped_dim, /* the same, negative ones count from the end */
  RS_flat,        /* RA_index: indices into all elements of RA_self, wrapped */
  RS_rows,        /* RA_index: indices into the rows of RA_self */
  RS_target,      /* RA_index: indices into the class dimension of RA_self, or equal to RA_ignored */
  RS_unit,        /* RA_self: from 0 to 1 */
  RS_divisor      /* RA_divisor: not zero where the division is one of integers */
} MgRaise;

/* Positions of the arguments of which MgRaise speaks; their names in the schemas differ. */
enum { RA_self, RA_index, RA_divisor = 1, RA_dim = 1, RA_dim_index, RA_rounding = 2, RA_ignored = 4 };

typedef struct MgParam {
  const char *name;
  uint8_t kind;  /* MgArgKind */
  bool optional; /* "?" */
  bool kwarg_only;
  bool has_default;
  bool writes;       /* alias annotation with "!": the op mutates it */
  int8_t alias_set;  /* number of its alias set, or -1 */
  const char *deflt; /* default as text ("1", "None", "[]", "True", "0.5", "contiguous_format") */
} MgParam;

typedef struct MgOp {
  const char *name;     /* "aten::add" */
  const char *overload; /* "Tensor"; "" for none; torch.ops spells it "default" */
  const char *full;     /* "aten::add.Tensor" */
  const char *schema;   /* the whole text */
  uint16_t code;        /* MgTop */
  uint16_t nparam, nret;
  bool mutates;   /* any parameter is written */
  bool is_view;   /* a return aliases a parameter that is not written */
  bool random;    /* uses a generator (tag nondeterministic_seeded, or by name) */
  uint8_t raises; /* MgRaise, by name */
  bool effect; /* a call may do more than give results: it writes, draws, gives none, or is the program's own
                  code */
  MgParam *param;
  int8_t *ret_alias; /* per return: number of its alias set, or -1 */
  uint8_t *ret_kind; /* per return: AK_tensor, AK_tensor_list, AK_int ... */
  uint32_t id;       /* dense number of this op in this process; front keeps its OpOverload by it */
} MgOp;

/* The op of a schema; parses and interns it the first time.  NULL (error in c) when the text is malformed. */
const MgOp *mg_op_from_schema(MgCtx *c, const char *schema);
/* The op by full name ("aten::add.Tensor"), or NULL when no schema of that name was interned.  Every row of
 * tensor_ops.def carries its schema, so rows are always found. */
const MgOp *mg_op_by_name(const char *full);
/* The same, telling the two failures apart: when memory ran out, c holds the error. */
const MgOp *mg_op_find(MgCtx *c, const char *full);
const MgOp *mg_op_by_code(MgTop code);
/* The functional twin of an op that writes an argument, or NULL: aten::add_.Tensor -> aten::add.Tensor (same
 * parameters), aten::add.out -> aten::add.Tensor (the same without the written ones). */
const MgOp *mg_op_twin(const MgOp *o);
/* The position of the parameter of that name; -1 if the op has none. */
int mg_op_param(const MgOp *o, const char *name);
#endif
