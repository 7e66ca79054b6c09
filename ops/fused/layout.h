/* How an operand of a fused call lies, for those who write a kernel's text for it. */
#ifndef COTANGENT_OPS_FUSED_LAYOUT_H
#define COTANGENT_OPS_FUSED_LAYOUT_H

#include <cotangent/op.h>

/* Its elements in row-major order, by the dimensions that are left when neighbours are joined. */
typedef struct ct_fused_layout {
    int ndim;
    int64_t dims[CT_MAX_DIMS], strides[CT_MAX_DIMS];
    bool dense, single;
    bool wide; /* places do not fit into 31 bits, or a stride is negative */
} ct_fused_layout;

static inline ct_fused_layout ct_fused_layout_of(const ct_view *view) {
    ct_fused_layout l = {.ndim = 0};
    int64_t reach = 0, expected = 1;
    for (int d = 0; d < view->ndim; d++) {
        if (view->dims[d] == 1) continue;
        const int last = l.ndim - 1;
        const bool joins = last >= 0 && l.strides[last] == view->strides[d] * view->dims[d];
        if (joins) l.dims[last] *= view->dims[d], l.strides[last] = view->strides[d];
        else l.dims[l.ndim] = view->dims[d], l.strides[l.ndim++] = view->strides[d];
    }
    l.dense = l.single = true;
    for (int d = l.ndim - 1; d >= 0; d--) {
        l.dense &= l.strides[d] == expected;
        l.single &= l.strides[d] == 0;
        expected *= l.dims[d];
        reach += (l.dims[d] - 1) * l.strides[d];
        l.wide |= l.strides[d] < 0;
    }
    l.wide |= reach >= INT32_MAX;
    return l;
}

#endif
