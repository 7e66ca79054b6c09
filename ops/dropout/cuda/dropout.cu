// Dropout: element i, in row-major order, is kept where word i of the position is at least p 2^32.
#include "ops/dropout/cuda/dropout.h"

#include "backends/cuda/nest.cuh"
#include "backends/cuda/row.cuh"
#include "ops/random/cuda/philox.cuh"

CT_DEVICE ct_position position_of(const ct_cuda_dropout &a) {
    ct_position at;
    at.seed = (uint64_t)(a.position ? ct_index_at(a.position, a.wide, 0) : a.numbers[0]);
    at.stream = (uint64_t)(a.position ? ct_index_at(a.position, a.wide, a.position_stride) : a.numbers[1]);
    at.call = (uint64_t)(a.position ? ct_index_at(a.position, a.wide, 2 * a.position_stride) : a.numbers[2]);
    return at;
}

template <typename S> CT_DEVICE void dropout(const ct_cuda_dropout &a) {
    typedef typename ct_number<S>::type N;
    enum {
        V = 16 / sizeof(S) < 4 ? 4 : 16 / sizeof(S),
        WORDS = V / 4,
        PACK = ct_row_pack<S>::V
    }; // elements of whole blocks of words
    if (ct_does_nothing(a.head)) return;
    const ct_position position = position_of(a);
    const N scale = (N)a.scale;
    const int64_t total = a.nest.total, blocks = (total + V - 1) / V, step = ct_step();
    if (a.put && ct_first() == 0) {
        a.put[0] = (int64_t)position.seed;
        a.put[a.put_stride] = (int64_t)position.stream;
        a.put[2 * a.put_stride] = (int64_t)position.call;
    }
    for (int64_t b = ct_first(); b < blocks; b += step) {
        const bool packed = a.dense && b * V + V <= total;
        ct_row_pack<S> packs[V / PACK];
        if (packed) {
#pragma unroll
            for (int k = 0; k < V / PACK; k++) packs[k] = ((const ct_row_pack<S> *)a.x)[b * (V / PACK) + k];
        }
        uint32_t words[WORDS][4];
#pragma unroll
        for (int w = 0; w < WORDS; w++) ct_philox(position, (uint64_t)(b * WORDS + w), words[w]);
        if (packed) {
#pragma unroll
            for (int k = 0; k < V; k++) {
                ct_row_pack<S> &pack = packs[k / PACK];
                const bool kept = !a.none && words[k / 4][k % 4] >= a.threshold;
                pack.set(k % PACK, kept ? pack.get(k % PACK) * scale : (N)0);
            }
#pragma unroll
            for (int k = 0; k < V / PACK; k++) ((ct_row_pack<S> *)a.y)[b * (V / PACK) + k] = packs[k];
            continue;
        }
#pragma unroll
        for (int k = 0; k < V; k++) {
            int64_t at[2];
            if (b * V + k >= total) break;
            ct_nest_place(a.nest, b * V + k, at);
            const bool kept = !a.none && words[k / 4][k % 4] >= a.threshold;
            ((S *)a.y)[at[0]] = ct_stored<S>(kept ? ct_number_of(((const S *)a.x)[at[1]]) * scale : (N)0);
        }
    }
}

#define KERNEL(suffix, S)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) dropout_##suffix(const __grid_constant__ ct_cuda_dropout a) { \
        dropout<S>(a);                                                                                              \
    }
KERNEL(f32, float)
KERNEL(f64, double)
KERNEL(f16, __half)
KERNEL(bf16, __nv_bfloat16)
