/* Arithmetic of the machine, on register contents. */
#ifndef MG_PTX_MACHINE_ARITH_H
#define MG_PTX_MACHINE_ARITH_H
#include "machine_priv.h"

double ptx_float(PtxType t, uint64_t bits);
uint64_t ptx_float_bits(PtxType t, double v);
int64_t ptx_int(PtxType t, uint64_t bits); /* sign- or zero-extended */
/* Of up to three sources. */
uint64_t ptx_arith(const PtxInstr *i, const uint64_t *s);
bool ptx_compare(const PtxInstr *i, uint64_t a, uint64_t b);
uint64_t ptx_convert(const PtxInstr *i, uint64_t a, uint64_t b);
#endif
