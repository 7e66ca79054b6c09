/* f32 register tiles: 14x32 (AVX-512), 6x16 (AVX2), 8x12 (NEON), 4x8 (any). */
#include "backends/cpu/gemm/isa.h"

#if CT_ISA_LEVEL < 3 /* avx512bf16 uses the avx512 kernels */

#if CT_ISA_LEVEL == 2
#include <immintrin.h>
#define TILE_ROWS             14
#define TILE_WIDTH            32
#define TILE_VECS             2
#define TILE_PARTING          8
#define LANES                 16
#define VEC                   __m512
#define MASK                  __mmask16
#define V_MASK(valid)         ((__mmask16)_cvtu32_mask16((1u << (valid)) - 1u))
#define V_ZERO                _mm512_setzero_ps()
#define V_LOAD(p)             _mm512_loadu_ps(p)
#define V_LOAD_MASK(p, m)     _mm512_maskz_loadu_ps(m, p)
#define V_STORE(p, v)         _mm512_storeu_ps(p, v)
#define V_STORE_MASK(p, m, v) _mm512_mask_storeu_ps(p, m, v)
#define V_BROADCAST(p)        _mm512_set1_ps(*(const float *)(p))
#define V_FMA(a, b, c)        _mm512_fmadd_ps(a, b, c)
#define V_ADD(a, b)           _mm512_add_ps(a, b)
#define V_SCALE(v, alpha)     _mm512_mul_ps(v, _mm512_set1_ps((float)(alpha)))

#elif CT_ISA_LEVEL == 1 && defined(__AVX2__)
#include <immintrin.h>
#define TILE_TIGHT
#define TILE_ROWS             6
#define TILE_WIDTH            16
#define TILE_VECS             2
#define LANES                 8
#define VEC                   __m256
#define MASK                  __m256i
#define V_MASK(valid)         _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(valid)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define V_ZERO                _mm256_setzero_ps()
#define V_LOAD(p)             _mm256_loadu_ps((const float *)(p))
#define V_LOAD_MASK(p, m)     _mm256_maskload_ps((const float *)(p), m)
#define V_STORE(p, v)         _mm256_storeu_ps((float *)(p), v)
#define V_STORE_MASK(p, m, v) _mm256_maskstore_ps((float *)(p), m, v)
#define V_BROADCAST(p)        _mm256_broadcast_ss((const float *)(p))
#define V_FMA(a, b, c)        _mm256_fmadd_ps(a, b, c)
#define V_ADD(a, b)           _mm256_add_ps(a, b)
#define V_SCALE(v, alpha)     _mm256_mul_ps(v, _mm256_set1_ps((float)(alpha)))

#else
#define PORTABLE_SCALAR float
#if CT_ISA_LEVEL == 1 && defined(__aarch64__)
#include <arm_neon.h>
#define TILE_ROWS             8
#define TILE_WIDTH            12
#define TILE_VECS             3
#define PORTABLE_FMA(a, b, c) (VEC) vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
#else
#define TILE_ROWS  4
#define TILE_WIDTH 8
#define TILE_VECS  2
#endif
#include "backends/cpu/gemm/portable.h"
#endif

#define TILE_COPIES
#define TILE_AHEAD
#define TILE_ADDS_BIAS
#define TILE_UNROLLED
#include "backends/cpu/gemm/tile.h"

const ct__kernel CT_ISA_FN(ct__gemm_f32) = {
    .name = CT__KERNEL_NAME("f32"),
    .tiles = tiles,
    .copying_tiles = copying_tiles,
    .rows = TILE_ROWS,
    .lanes = LANES,
    .vecs = TILE_VECS,
    .group = 1,
    .packed = CT_GEMM_F32,
    .acc = CT_GEMM_F32,
    .biases = true,
    .prefetches = true,
#if CT_ISA_LEVEL == 2
    .depth = 384,
    .block_cols = 128,
    .block_rows = 112,
#else
    .depth = 256,
    .block_cols = 240,
    .block_rows = 96,
#endif
    .stage_bytes = 8 << 20,
    .stage_cols = 2048,
};
#endif
