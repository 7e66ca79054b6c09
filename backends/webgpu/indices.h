/* What kernels with an input of indices share. */
#ifndef COTANGENT_BACKENDS_WEBGPU_INDICES_H
#define COTANGENT_BACKENDS_WEBGPU_INDICES_H

#include "backends/webgpu/strided.h"

/* The operand `index`, as words, and the constant WIDE, for ct_index_at (lib/place.wgsl). */
void ct_wgpu_index_operand(ct_wgpu_launch *launch, const ct_view *index);
/* By what its strides are to be multiplied then. */
static inline int64_t ct_wgpu_index_words(const ct_view *index) { return index->dtype == CT_I64 ? 2 : 1; }

/* Enqueues a look at indices, input 1 of the call: whether all lie below bound. Their places in errors are `place`
 * apart. */
bool ct_wgpu_look(const ct_call *call, const ct_view *index, int64_t bound, int64_t place);

static inline int ct_wgpu_axis(int64_t axis, const ct_view *x) {
    return (int)(axis < 0 ? axis + (x->ndim ? x->ndim : 1) : axis);
}
static inline void ct_wgpu_row_major(const ct_view *view, int64_t strides[CT_WGPU_DIMS]) {
    int64_t stride = 1;
    for (int d = view->ndim - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= view->dims[d];
    }
}

/* ---- Order ---- */

/* The stable order of n keys up to `most`: the caller writes them and their numbers 0, 1, ..., all u32, into its scratch
 * at the offsets keys and places, and after ct_wgpu_order finds them sorted at what these offsets are then. Of its
 * scratch that takes ct_wgpu_order_bytes from `begin` on. */
typedef struct ct_wgpu_ordered {
    int64_t n, most;     /* how many; the largest key */
    size_t keys, places; /* where they are, and after the sort where they are then */
    size_t begin;        /* of all, a multiple of 256 */
} ct_wgpu_ordered;
size_t ct_wgpu_order_bytes(int64_t n);
ct_wgpu_ordered ct_wgpu_order_begin(int64_t n, int64_t most, size_t begin);
bool ct_wgpu_order(const ct_call *call, ct_wgpu_ordered *ordered);

#endif
