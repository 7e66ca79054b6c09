/* f64 register tiles: 14x16 (AVX-512), 6x8 (AVX2), 8x6 (NEON), 4x4 (any). */
#include "backends/cpu/gemm/isa.h"

#if CT_ISA_LEVEL < 3 /* avx512bf16 uses the avx512 kernels */

#if CT_ISA_LEVEL == 2
#include <immintrin.h>
#define TILE_ROWS             14
#define TILE_WIDTH            16
#define TILE_VECS             2
#define LANES                 8
#define VEC                   __m512d
#define MASK                  __mmask8
#define V_MASK(valid)         ((__mmask8)_cvtu32_mask8((1u << (valid)) - 1u))
#define V_ZERO                _mm512_setzero_pd()
#define V_LOAD(p)             _mm512_loadu_pd(p)
#define V_LOAD_MASK(p, m)     _mm512_maskz_loadu_pd(m, p)
#define V_STORE(p, v)         _mm512_storeu_pd(p, v)
#define V_STORE_MASK(p, m, v) _mm512_mask_storeu_pd(p, m, v)
#define V_BROADCAST(p)        _mm512_set1_pd(*(const double *)(p))
#define V_FMA(a, b, c)        _mm512_fmadd_pd(a, b, c)
#define V_ADD(a, b)           _mm512_add_pd(a, b)
#define V_SCALE(v, alpha)     _mm512_mul_pd(v, _mm512_set1_pd(alpha))

#elif CT_ISA_LEVEL == 1 && defined(__AVX2__)
#include <immintrin.h>
#define TILE_TIGHT
#define TILE_ROWS             6
#define TILE_WIDTH            8
#define TILE_VECS             2
#define LANES                 4
#define VEC                   __m256d
#define MASK                  __m256i
#define V_MASK(valid)         _mm256_cmpgt_epi64(_mm256_set1_epi64x(valid), _mm256_setr_epi64x(0, 1, 2, 3))
#define V_ZERO                _mm256_setzero_pd()
#define V_LOAD(p)             _mm256_loadu_pd((const double *)(p))
#define V_LOAD_MASK(p, m)     _mm256_maskload_pd((const double *)(p), m)
#define V_STORE(p, v)         _mm256_storeu_pd((double *)(p), v)
#define V_STORE_MASK(p, m, v) _mm256_maskstore_pd((double *)(p), m, v)
#define V_BROADCAST(p)        _mm256_broadcast_sd((const double *)(p))
#define V_FMA(a, b, c)        _mm256_fmadd_pd(a, b, c)
#define V_ADD(a, b)           _mm256_add_pd(a, b)
#define V_SCALE(v, alpha)     _mm256_mul_pd(v, _mm256_set1_pd(alpha))

#else
#define PORTABLE_SCALAR double
#if CT_ISA_LEVEL == 1 && defined(__aarch64__)
#include <arm_neon.h>
#define TILE_ROWS             8
#define TILE_WIDTH            6
#define TILE_VECS             3
#define PORTABLE_FMA(a, b, c) (VEC) vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b))
#else
#define TILE_ROWS  4
#define TILE_WIDTH 4
#define TILE_VECS  2
#endif
#include "backends/cpu/gemm/portable.h"
#endif

#define TILE_COPIES
#define TILE_AHEAD
#define TILE_UNROLLED
#include "backends/cpu/gemm/tile.h"

const ct__kernel CT_ISA_FN(ct__gemm_f64) = {
    .name = CT__KERNEL_NAME("f64"),
    .tiles = tiles,
    .copying_tiles = copying_tiles,
    .rows = TILE_ROWS,
    .lanes = LANES,
    .vecs = TILE_VECS,
    .group = 1,
    .packed = CT_GEMM_F64,
    .acc = CT_GEMM_F64,
    .prefetches = true,
#if CT_ISA_LEVEL == 2
    .depth = 384,
    .block_cols = 128,
    .block_rows = 112,
#else
    .depth = 256,
    .block_cols = 120,
    .block_rows = 96,
#endif
    .stage_bytes = 8 << 20,
    .stage_cols = 2048,
};
#endif
