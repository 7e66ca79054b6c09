/* bf16 register tiles on vdpbf16ps, or on ARM's bfdot: pairs of k are one 32-bit unit, sums in f32. Other
 * instruction sets widen bf16 to f32 when packing. */
#include "backends/cpu/gemm/isa.h"

#if CT_ISA_LEVEL == 3

typedef int32_t __attribute__((may_alias, aligned(1))) pair;

#if defined(__aarch64__)
#include <arm_neon.h>
#define TILE_ROWS             8
#define TILE_WIDTH            12
#define TILE_VECS             3
#define PORTABLE_SCALAR       float
#define PORTABLE_FMA(a, b, c) (VEC) vbfdotq_f32((float32x4_t)(c), (bfloat16x8_t)(a), (bfloat16x8_t)(b))
#include "backends/cpu/gemm/portable.h"
#undef V_BROADCAST /* a pair is not a float */
#define V_BROADCAST(p) ((VEC)vdupq_n_s32(*(const pair *)(const void *)(p)))
#else
#include <immintrin.h>
#define TILE_ROWS             14
#define TILE_WIDTH            32
#define TILE_VECS             2
#define LANES                 16
#define VEC                   __m512
#define MASK                  __mmask16
#define V_MASK(valid)         ((__mmask16)_cvtu32_mask16((1u << (valid)) - 1u))
#define V_ZERO                _mm512_setzero_ps()
#define V_LOAD(p)             _mm512_loadu_ps(p)
#define V_LOAD_MASK(p, m)     _mm512_maskz_loadu_ps(m, p)
#define V_STORE(p, v)         _mm512_storeu_ps(p, v)
#define V_STORE_MASK(p, m, v) _mm512_mask_storeu_ps(p, m, v)
#define V_BROADCAST(p)        ((__m512)_mm512_set1_epi32(*(const pair *)(const void *)(p)))
#define V_FMA(a, b, c)        _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))
#define V_ADD(a, b)           _mm512_add_ps(a, b)
#define V_SCALE(v, alpha)     _mm512_mul_ps(v, _mm512_set1_ps((float)(alpha)))
#define TILE_AHEAD
#define TILE_UNROLLED
#define TILE_PARTING 8
#endif
#include "backends/cpu/gemm/tile.h"

const ct__kernel CT_ISA_FN(ct__gemm_bf16) = {
    .name = CT__KERNEL_NAME("bf16"),
    .tiles = tiles,
    .rows = TILE_ROWS,
    .lanes = LANES,
    .vecs = TILE_VECS,
    .group = 2,
    .packed = CT_GEMM_BF16,
    .acc = CT_GEMM_F32,
#if defined(__aarch64__)
    .depth = 512,
    .block_cols = 240,
    .block_rows = 96,
#else
    .prefetches = true,
    .depth = 768,
    .block_cols = 256,
    .block_rows = 112,
#endif
    .stage_bytes = 8 << 20,
    .stage_cols = 2048,
};
#endif
