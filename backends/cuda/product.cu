// Products of any strides and dtype: what cuBLASLt does not take, and machines without it.
#include "backends/cuda/activation.cuh"
#include "backends/cuda/product.h"
#include "backends/cuda/thread.cuh"
#include "backends/cuda/tile.cuh"

// One function for all: it would be copied for every sum of a thread.
template <typename C> static __device__ __noinline__ C activated(int activation, C x) { return ct_activate(activation, x); }

// What becomes of a sum. Integers have neither bias nor activation.
template <typename S> struct ct_finish {
    typedef ct_product_of<S> P;
    CT_DEVICE static S of(const ct_cuda_product &p, int64_t j, typename P::type sum) {
        if (p.bias) sum += P::load(((const S *)p.bias)[j]);
        return P::store(p.activation ? activated(p.activation, sum) : sum);
    }
};
#define CT_WHOLE_FINISH(S)                                                                                  \
    template <> struct ct_finish<S> {                                                                       \
        CT_DEVICE static S of(const ct_cuda_product &, int64_t, uint64_t sum) {                             \
            return ct_product_of<S>::store(sum);                                                            \
        }                                                                                                   \
    };
CT_WHOLE_FINISH(int8_t)
CT_WHOLE_FINISH(int16_t)
CT_WHOLE_FINISH(int32_t)
CT_WHOLE_FINISH(int64_t)
CT_WHOLE_FINISH(uint8_t)

template <typename S> __device__ void multiply(const ct_cuda_product &p) {
    typedef ct_product_of<S> P;
    typedef typename P::type C;
    if (ct_does_nothing(p.head)) return;
    const int64_t columns = (p.n + CT_TILE - 1) / CT_TILE, tiles = columns * ((p.m + CT_TILE - 1) / CT_TILE);
    for (int64_t item = blockIdx.x; item < tiles * p.batches; item += gridDim.x) {
        const int64_t tile = item % tiles;
        int64_t rest = item / tiles, a_offset = 0, b_offset = 0, c_offset = 0;
        for (int d = p.batch_dims - 1; d >= 0; d--) {
            const int64_t at = rest % p.batch[d];
            rest /= p.batch[d];
            a_offset += at * p.a_batch[d];
            b_offset += at * p.b_batch[d];
            c_offset += at * p.c_batch[d];
        }
        const S *a = (const S *)p.a + a_offset, *b = (const S *)p.b + b_offset;
        S *c = (S *)p.c + c_offset;
        ct_multiply_tile<C>(
            p.m, p.n, 0, p.k, tile / columns * CT_TILE, tile % columns * CT_TILE, p.a_col == 1, p.b_row == 1,
            [&](int64_t i, int64_t k) { return P::load(a[i * p.a_row + k * p.a_col]); },
            [&](int64_t k, int64_t j) { return P::load(b[k * p.b_row + j * p.b_col]); },
            [&](int64_t i, int64_t j, C sum) {
                const int64_t at = i * p.c_row + j * p.c_col;
                if (p.wide) ((float *)p.c + c_offset)[at] = (float)sum;
                else c[at] = ct_finish<S>::of(p, j, sum);
            });
    }
}

#define PRODUCT(name, S)                                                                                    \
    extern "C" __global__ void __launch_bounds__(CT_TILE_THREADS) product_##name(const ct_cuda_product p) { \
        multiply<S>(p);                                                                                     \
    }
PRODUCT(f32, float)
PRODUCT(f64, double)
PRODUCT(f16, __half)
PRODUCT(bf16, __nv_bfloat16)
PRODUCT(i8, int8_t)
PRODUCT(i16, int16_t)
PRODUCT(i32, int32_t)
PRODUCT(i64, int64_t)
PRODUCT(u8, uint8_t)
