/* Views as kernels are told of them. */
#include "backends/webgpu/webgpu.h"

size_t ct_wgpu_dtype_size(ct_dtype dtype) {
    switch (dtype) {
    case CT_F64:
    case CT_I64:
    case CT_U64:
    case CT_COMPLEX64: return 8;
    case CT_F32:
    case CT_I32:
    case CT_U32: return 4;
    case CT_F16:
    case CT_BF16:
    case CT_I16:
    case CT_U16: return 2;
    default: return 1;
    }
}

int64_t ct_wgpu_count(const ct_view *view) {
    int64_t n = 1;
    for (int d = 0; d < view->ndim; d++) n *= view->dims[d];
    return n;
}

bool ct_wgpu_is_dense(const ct_view *view) {
    int64_t stride = 1;
    for (int d = view->ndim - 1; d >= 0; d--) {
        if (view->dims[d] != 1 && view->strides[d] != stride) return false;
        stride *= view->dims[d];
    }
    return true;
}

bool ct_wgpu_fits(const ct_view *view, int64_t n) {
    return ((int64_t)(view->origin / ct_wgpu_dtype_size(view->dtype)) + view->offset) % n == 0;
}

int64_t ct_wgpu_groups(int64_t n, uint32_t threads) {
    const int64_t all = ct_wgpu_ceil_div(n, threads), most = 1 << 16;
    return all < most ? all : most;
}

static const char *refuses(const ct_view *view) {
    if (!view) return NULL;
    if (view->dtype == CT_F64) return "WebGPU has no f64: cast to f32";
    /* Offsets of elements are 32 bits wide there. */
    if (ct_wgpu_count(view) > INT32_MAX) return "WebGPU takes tensors of fewer than 2^31 elements";
    return NULL;
}

const char *ct_wgpu_refuses(const ct_call *call) {
    for (int i = 0; i < call->n_in; i++) {
        const char *why = refuses(call->in[i]);
        if (why) return why;
    }
    for (int i = 0; i < call->n_out; i++) {
        const char *why = refuses(call->out[i]);
        if (why) return why;
    }
    return NULL;
}

void ct_wgpu_nest_of(ct_wgpu_nest *nest, const ct_view *const *views, int n) {
    memset(nest, 0, sizeof *nest);
    int64_t dims[CT_WGPU_DIMS], strides[7][CT_WGPU_DIMS];
    int rank = 0;
    for (int d = 0; d < views[0]->ndim; d++) {
        const int64_t size = views[0]->dims[d];
        if (size == 1) continue;
        bool joins = rank > 0;
        for (int v = 0; joins && v < n; v++) joins = strides[v][rank - 1] == size * views[v]->strides[d];
        if (joins) dims[rank - 1] *= size;
        else dims[rank++] = size;
        for (int v = 0; v < n; v++) strides[v][rank - 1] = views[v]->strides[d];
    }
    if (rank == 0) {
        dims[rank++] = 1;
        for (int v = 0; v < n; v++) strides[v][0] = 0;
    }
    nest->rank = (uint32_t)rank;
    nest->total = 1;
    for (int d = 0; d < rank; d++) {
        nest->dims[d] = (uint32_t)dims[d];
        nest->total *= nest->dims[d];
        for (int v = 0; v < n; v++) nest->strides[v][d] = (uint32_t)strides[v][d];
    }
}
