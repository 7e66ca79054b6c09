// What the kernels of attention share: which rows a block takes, masks, dropout.
#pragma once

#include "backends/cuda/nest.cuh"
#include "ops/attention/cuda/sdpa.h"
#include "ops/random/cuda/philox.cuh"

#define CT_LOG2E 1.4426950408889634
#define CT_LN2   0.6931471805599453

// Block number `item` of all, in an order in which the blocks of a few heads follow each other, of each the longest first:
// under a causal mask that is the last of queries, and the first of keys.
struct ct_sdpa_place {
    int64_t b;
    int h, block;
};
CT_DEVICE ct_sdpa_place ct_sdpa_find(int64_t item, int64_t batch, int64_t heads, int blocks, bool last_first) {
    const int64_t all = batch * heads, together = (int64_t)CT_SDPA_TOGETHER * blocks,
                  first = item / together * CT_SDPA_TOGETHER;
    const int64_t count = all - first < CT_SDPA_TOGETHER ? all - first : CT_SDPA_TOGETHER, rest = item % together;
    const int64_t head = first + rest % count;
    const int block = (int)(rest / count);
    return {head / heads, (int)(head % heads), last_first ? blocks - 1 - block : block};
}

template <typename S> CT_DEVICE S *ct_sdpa_head(const ct_cuda_heads &x, int64_t b, int64_t h) {
    return (S *)x.data + b * x.strides[0] + h * x.strides[1];
}

// The number of keys that query i sees.
CT_DEVICE int ct_sdpa_seen(const ct_cuda_sdpa &p, int64_t i) {
    const int64_t n = i + p.ahead + 1;
    return !p.causal || n > p.tk ? p.tk : n < 0 ? 0 : (int)n;
}

// What an additive mask adds to the score of (i, j), or -inf where a mask of truth values leaves it out.
template <typename S, typename C>
CT_DEVICE C ct_sdpa_mask(const ct_cuda_sdpa &p, int64_t b, int64_t h, int64_t i, int64_t j) {
    const int64_t at = b * p.mask.strides[0] + h * p.mask.strides[1] + i * p.mask.strides[2] + j * p.mask.strides[3];
    if (p.mask_kind == CT_SDPA_BOOL) return ((const uint8_t *)p.mask.data)[at] ? C(0) : -(C)INFINITY;
    return ct_load<C>(((const S *)p.mask.data)[at]);
}

CT_DEVICE ct_position ct_sdpa_position(const ct_cuda_sdpa &p) {
    if (!p.drops) return {0, 0, 0};
    return {(uint64_t)ct_index_at(p.position, p.position_wide, 0),
            (uint64_t)ct_index_at(p.position, p.position_wide, p.position_stride),
            (uint64_t)ct_index_at(p.position, p.position_wide, 2 * p.position_stride)};
}

// Whether dropout keeps element (i, j): it takes the word of its own number.
static __device__ __noinline__ bool ct_sdpa_kept(ct_position position, uint64_t number, uint32_t threshold) {
    uint32_t words[4];
    ct_philox(position, number >> 2, words);
    const uint32_t k = (uint32_t)number & 3;
    return (k == 0 ? words[0] : k == 1 ? words[1] : k == 2 ? words[2] : words[3]) >= threshold;
}
template <typename C>
CT_DEVICE C ct_sdpa_factor(const ct_cuda_sdpa &p, const ct_position &position, int64_t b, int64_t h, int64_t i,
                           int64_t j) {
    const uint64_t number = (uint64_t)((b * p.heads + h) * p.tq + i) * (uint64_t)p.tk + (uint64_t)j;
    return ct_sdpa_kept(position, number, p.threshold) ? (C)p.keep : C(0);
}
