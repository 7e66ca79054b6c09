/* What row_norm and channel_norm share. */
#ifndef COTANGENT_OPS_NORM_H
#define COTANGENT_OPS_NORM_H

#include <cotangent/op.h>

/* What is computed in, and what weights, biases and statistics are in. */
static inline ct_dtype ct__norm_dtype(ct_dtype x) { return x == CT_F64 ? CT_F64 : CT_F32; }

/* The results of op that are wanted, the others NULL. */
static inline void ct__apply_wanted(const ct_op *op, ct_tensor *const *in, int n, const void *attrs, ct_tensor **out,
                                    int m, const bool *want) {
    int last = m;
    while (last > 0 && !want[last - 1]) last--;
    for (int i = last; i < m; i++) out[i] = NULL;
    if (last > 0) ct_apply_with(op, in, n, attrs, out, last, want, NULL);
}

#endif
