/* Reductions on the host's side: which device code there is for a reduction over axes, and how a call runs it. */
#ifndef COTANGENT_OPS_REDUCE_CUDA_REDUCTION_H
#define COTANGENT_OPS_REDUCE_CUDA_REDUCTION_H

#include "backends/cuda/cuda.h"

enum { CT_REDUCTION_DTYPES = CT_BOOL + 1 };

/* Rows of any kind, of dense pieces, and dense ones; columns of any kind, and those whose elements lie at one distance; results of their
 * parts. */
enum {
    CT_REDUCE_ROWS,
    CT_REDUCE_PIECES,
    CT_REDUCE_DENSE,
    CT_REDUCE_COLUMNS,
    CT_REDUCE_FLAT,
    CT_REDUCE_PARTS,
    CT_REDUCE_WAYS
};
typedef struct ct_cuda_reduction {
    ct_cuda_function functions[CT_REDUCE_WAYS][CT_REDUCTION_DTYPES];
    bool places;        /* the order of reduced elements counts */
    unsigned char most; /* elements in a pack, */
    unsigned char byte; /* and those of one byte */
    unsigned char sum;  /* bytes of an accumulator at most */
} ct_cuda_reduction;

/* The functions of one part of a reduction, for floats and for all dtypes. */
#define CT_REDUCTION_OF(unit, name, code, suffix) [code] = CT_CUDA_FUNCTION_OF(&unit, name #suffix)
#define CT_REDUCTION_FLOATS(unit, name)                                                 \
    CT_REDUCTION_OF(unit, name, CT_F32, f32), CT_REDUCTION_OF(unit, name, CT_F64, f64), \
        CT_REDUCTION_OF(unit, name, CT_F16, f16), CT_REDUCTION_OF(unit, name, CT_BF16, bf16)
#define CT_REDUCTION_INTEGERS(unit, name)                                                   \
    CT_REDUCTION_OF(unit, name, CT_I8, i8), CT_REDUCTION_OF(unit, name, CT_I16, i16),       \
        CT_REDUCTION_OF(unit, name, CT_I32, i32), CT_REDUCTION_OF(unit, name, CT_I64, i64), \
        CT_REDUCTION_OF(unit, name, CT_U8, u8), CT_REDUCTION_OF(unit, name, CT_BOOL, u8)

size_t ct_cuda_reduction_scratch(const ct_cuda_reduction *r, const ct_call *call, const ct_dims *axes);
bool ct_cuda_reduction_run(ct_cuda_reduction *r, const ct_call *call, const ct_dims *axes);

#endif
