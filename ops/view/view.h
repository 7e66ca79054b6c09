/* What the infer functions of views share. */
#ifndef COTANGENT_OPS_VIEW_VIEW_H
#define COTANGENT_OPS_VIEW_VIEW_H

#include <cotangent/op.h>

/* out = x: the start of most views. */
static inline void view_keep(ct_view *out, const ct_view *x) {
    out->dtype = x->dtype;
    out->offset = x->offset;
    out->ndim = x->ndim;
    for (int i = 0; i < x->ndim; i++) {
        out->dims[i] = x->dims[i];
        out->strides[i] = x->strides[i];
    }
}

/* Row-major strides of a shape. */
static inline ct_dims dense_strides(ct_dims shape) {
    ct_dims strides = {.n = shape.n};
    int64_t stride = 1;
    for (int i = shape.n - 1; i >= 0; i--) {
        strides.d[i] = stride;
        stride *= shape.d[i] > 1 ? shape.d[i] : 1;
    }
    return strides;
}

/* A slice, resolved: length places from first on, step apart, taken in ascending order or backwards. */
typedef struct ct_range {
    int axis;
    int64_t first, length, step;
    bool backwards;
} ct_range;
bool ct__slice_range(const char *op, const ct_tensor *x, int64_t axis, int64_t start, ct_opt end, int64_t step,
                     ct_range *range);

#endif
