/* Views on their way to the device. */
#include <string.h>

#include "backends/cuda/cuda.h"

size_t ct_cuda_dtype_size(ct_dtype dtype) {
    static const unsigned char sizes[CT_DTYPE_COUNT] = {
        [CT_F32] = 4, [CT_F64] = 8,    [CT_F16] = 2,    [CT_BF16] = 2,     [CT_I8] = 1,  [CT_I16] = 2,
        [CT_I32] = 4, [CT_I64] = 8,    [CT_U8] = 1,     [CT_BOOL] = 1,     [CT_U16] = 2, [CT_U32] = 4,
        [CT_U64] = 8, [CT_F8E4M3] = 1, [CT_F8E5M2] = 1, [CT_COMPLEX64] = 8};
    return sizes[dtype];
}

ct_cuda_view ct_cuda_view_of(const ct_view *view) {
    ct_cuda_view v;
    v.data = ct_cuda_address(view);
    v.dtype = view->dtype;
    v.ndim = view->ndim;
    memcpy(v.dims, view->dims, sizeof v.dims);
    memcpy(v.strides, view->strides, sizeof v.strides);
    return v;
}

int64_t ct_cuda_count(const ct_view *view) {
    int64_t n = 1;
    for (int i = 0; i < view->ndim; i++) n *= view->dims[i];
    return n;
}

bool ct_cuda_is_dense(const ct_view *view) {
    int64_t expected = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->dims[i] == 0) return true;
        if (view->dims[i] != 1 && view->strides[i] != expected) return false;
        expected *= view->dims[i];
    }
    return true;
}

int ct_cuda_collapse(ct_cuda_view *views, int n) {
    int kept = 0;
    for (int d = 0; d < views[0].ndim; d++) {
        if (views[0].dims[d] == 1) continue;
        bool merges = kept > 0;
        for (int i = 0; i < n && merges; i++)
            merges = views[i].strides[kept - 1] == views[i].strides[d] * views[i].dims[d];
        for (int i = 0; i < n; i++) {
            ct_cuda_view *v = &views[i];
            if (merges) {
                v->dims[kept - 1] *= v->dims[d];
                v->strides[kept - 1] = v->strides[d];
            } else {
                v->dims[kept] = v->dims[d];
                v->strides[kept] = v->strides[d];
            }
        }
        kept += !merges;
    }
    if (kept == 0) {
        for (int i = 0; i < n; i++) views[i].dims[0] = views[i].strides[0] = 1;
        kept = 1;
    }
    for (int i = 0; i < n; i++) views[i].ndim = kept;
    return kept;
}
