/* Nests of loops, made on the host. */
#include "backends/cuda/nest.h"

#include <stdbool.h>
#include <string.h>

void ct_cuda_nest_begin(ct_cuda_nest *nest) {
    memset(nest, 0, sizeof *nest);
    nest->total = 1;
}

void ct_cuda_nest_add(ct_cuda_nest *nest, int64_t size, const int64_t strides[CT_CUDA_NEST_OPERANDS]) {
    nest->total *= size;
    if (size == 1) return;
    const int before = nest->ndim - 1;
    bool joins = before >= 0;
    for (int i = 0; i < CT_CUDA_NEST_OPERANDS && joins; i++) joins = nest->strides[i][before] == size * strides[i];
    const int at = joins ? before : nest->ndim++;
    nest->sizes[at] = joins ? nest->sizes[at] * size : size;
    for (int i = 0; i < CT_CUDA_NEST_OPERANDS; i++) nest->strides[i][at] = strides[i];
}

/* Granlund and Montgomery's division by an invariant: of n < 2^31, n / size = (high(n * multiplier) + n) >> shift. */
void ct_cuda_nest_end(ct_cuda_nest *nest) {
    if (nest->ndim == 0) nest->sizes[nest->ndim++] = 1;
    nest->small = nest->total < INT32_MAX;
    for (int d = 0; d < nest->ndim && nest->small && nest->total > 0; d++) {
        const uint64_t size = (uint64_t)nest->sizes[d];
        uint32_t shift = 0;
        while (((uint64_t)1 << shift) < size) shift++;
        nest->shifts[d] = shift;
        nest->multipliers[d] = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << shift) - size)) / size + 1);
    }
}

ct_cuda_nest ct_cuda_nest_of(const ct_cuda_view *views, int n) {
    ct_cuda_nest nest;
    ct_cuda_nest_begin(&nest);
    for (int d = 0; d < views[0].ndim; d++) {
        int64_t strides[CT_CUDA_NEST_OPERANDS] = {0};
        for (int i = 0; i < n; i++) strides[i] = views[i].strides[d];
        ct_cuda_nest_add(&nest, views[0].dims[d], strides);
    }
    ct_cuda_nest_end(&nest);
    return nest;
}

ct_cuda_nest ct_cuda_lines(const ct_view *const *views, int n, int axis) {
    ct_cuda_nest nest;
    ct_cuda_nest_begin(&nest);
    for (int d = 0; d < views[0]->ndim; d++) {
        int64_t strides[CT_CUDA_NEST_OPERANDS] = {0};
        for (int i = 0; i < n; i++) strides[i] = views[i] ? views[i]->strides[d] : 0;
        if (d != axis) ct_cuda_nest_add(&nest, views[0]->dims[d], strides);
    }
    ct_cuda_nest_end(&nest);
    return nest;
}
