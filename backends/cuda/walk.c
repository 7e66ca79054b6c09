/* Making walks. */
#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/walk.h"

/* Granlund and Montgomery, 1994, for numerators below 2^31. */
static void find_divider(int64_t size, uint32_t *factor, uint32_t *shift) {
    uint32_t s = 0;
    while (s < 31 && ((int64_t)1 << s) < size) s++;
    const uint64_t whole = (uint64_t)1 << s;
    *shift = s;
    *factor = size > 0 ? (uint32_t)((((uint64_t)1 << 32) * (whole - (uint64_t)size)) / (uint64_t)size + 1) : 0;
}

ct_cuda_walk ct_cuda_walk_of(ct_cuda_view *views, int n) {
    ct_cuda_walk walk;
    memset(&walk, 0, sizeof walk);
    walk.ndim = ct_cuda_collapse(views, n);
    walk.total = 1;
    for (int d = 0; d < walk.ndim; d++) {
        walk.dims[d] = views[0].dims[d];
        walk.total *= walk.dims[d];
        for (int i = 0; i < n; i++) walk.strides[i][d] = views[i].strides[d];
    }
    walk.wide = walk.total > INT32_MAX;
    for (int d = 0; d < walk.ndim && !walk.wide; d++) find_divider(walk.dims[d], &walk.factor[d], &walk.shift[d]);
    return walk;
}

ct_cuda_walk ct_cuda_lines(const ct_view *const *views, int n, int axis) {
    ct_cuda_view rest[CT_CUDA_WALKERS];
    memset(rest, 0, sizeof rest);
    for (int i = 0; i < n; i++)
        for (int d = 0; d < views[0]->ndim; d++) {
            if (d == axis) continue;
            const int to = rest[i].ndim++;
            rest[i].dims[to] = views[0]->dims[d];
            rest[i].strides[to] = views[i] ? views[i]->strides[d] : 0;
        }
    return ct_cuda_walk_of(rest, n);
}
