/* Scattering into half types: x is widened to f32 in scratch memory, worked on there, and rounded once at the end.
 * Included by kernel files. */
#ifndef COTANGENT_OPS_INDEX_HALF_H
#define COTANGENT_OPS_INDEX_HALF_H

#include "ops/index/cpu/half_rows.h"
#include "ops/index/cpu/lanes.h"

static int64_t count_of(const ct_view *view) {
    int64_t count = 1;
    for (int i = 0; i < view->ndim; i++) count *= view->dims[i];
    return count;
}

static bool is_dense(const ct_view *view) {
    int64_t stride = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->dims[i] != 1 && view->strides[i] != stride) return false;
        stride *= view->dims[i];
    }
    return true;
}

typedef struct half_job {
    const ct_view *x, *y; /* x NULL: zeros */
    float *wide;          /* dense, of y's shape */
    int64_t count, chunk;
} half_job;

static int64_t place_of(const ct_view *view, int64_t i) {
    int64_t at = 0;
    for (int d = view->ndim - 1; d >= 0; d--) {
        at += i % view->dims[d] * view->strides[d];
        i /= view->dims[d];
    }
    return at;
}

static void widen_chunk(void *context, int64_t chunk, int worker) {
    const half_job *j = context;
    (void)worker;
    const int64_t first = chunk * j->chunk, end = ct__min64(first + j->chunk, j->count);
    if (!j->x) {
        memset(j->wide + first, 0, (size_t)(end - first) * sizeof(float));
        return;
    }
    const uint16_t *x = CT_AT(const uint16_t, j->x);
    const bool dense = is_dense(j->x), bf16 = j->x->dtype == CT_BF16;
    if (dense) half_load(j->wide + first, x + first, 1, end - first, bf16);
    for (int64_t i = first; !dense && i < end; i++) half_load(j->wide + i, x + place_of(j->x, i), 1, 1, bf16);
}

static void narrow_chunk(void *context, int64_t chunk, int worker) {
    const half_job *j = context;
    (void)worker;
    const int64_t first = chunk * j->chunk, end = ct__min64(first + j->chunk, j->count);
    uint16_t *y = CT_AT(uint16_t, j->y);
    const bool dense = is_dense(j->y), bf16 = j->y->dtype == CT_BF16;
    if (dense) half_store(y + first, 1, j->wide + first, end - first, bf16);
    for (int64_t i = first; !dense && i < end; i++) half_store(y + place_of(j->y, i), 1, j->wide + i, 1, bf16);
}

static size_t half_scratch(const ct_view *y) { return is_half(y->dtype) ? (size_t)count_of(y) * sizeof(float) : 0; }

/* fn works on floats, and reads half elements of src. x NULL: zeros. */
static bool half_lanes(const ct_call *call, block_fn fn, int64_t axis, const ct_view *x, const ct_view *index,
                       const ct_view *src) {
    const ct_view *y = call->out[0];
    half_job half = {.x = x, .y = y, .wide = ct__scratch(call), .count = count_of(y), .chunk = ct__grain(32 << 10)};
    const int64_t chunks = (half.count + half.chunk - 1) / half.chunk;
    ct_view dense = *y;
    int64_t stride = 1;
    for (int d = y->ndim - 1; d >= 0; d--) {
        dense.strides[d] = stride;
        stride *= y->dims[d];
    }
    lanes l;
    ct__parallel(chunks, widen_chunk, &half);
    lanes_plan(&l, call, fn, axis, y, &dense, ct__scratch(call), sizeof(float), index, src);
    if (!lanes_run(&l)) return false;
    ct__parallel(chunks, narrow_chunk, &half);
    return true;
}

#endif
