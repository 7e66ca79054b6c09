/* 8-bit integer register tiles, exact sums in i32. With VNNI, or ARM's usdot, a unit is four bytes, u8 by i8; an i8
 * A is shifted by 128 when packed and the sums start from -128 times B's column sums. Without it,
 * bytes are widened to i16 and a unit is a pair (vpmaddwd cannot overflow on such values). */
#include "backends/cpu/gemm/isa.h"

/* avx512amx uses that of avx512bf16 */
#if (CT_ISA_LEVEL >= 1 && CT_ISA_LEVEL <= 3 && defined(__AVX2__)) || (CT_ISA_LEVEL == 3 && defined(__aarch64__))
typedef int32_t __attribute__((may_alias, aligned(1))) unit;

#if defined(__aarch64__)
#include <arm_neon.h>
#define TILE_ROWS             8
#define TILE_WIDTH            12
#define TILE_VECS             3
#define PORTABLE_SCALAR       int32_t
#define PORTABLE_FMA(a, b, c) (VEC) vusdotq_s32((int32x4_t)(c), (uint8x16_t)(a), (int8x16_t)(b))
#include "backends/cpu/gemm/portable.h"
#undef V_SCALE
#define TILE_START(t, v) ((t)->start ? V_LOAD((const char *)(t)->start + 16 * (v)) : V_ZERO)
#elif CT_ISA_LEVEL >= 2
#include <immintrin.h>
#define TILE_VECS             2
#define TILE_ROWS             14
#define TILE_WIDTH            32
#define LANES                 16
#define VEC                   __m512i
#define MASK                  __mmask16
#define V_MASK(valid)         ((__mmask16)_cvtu32_mask16((1u << (valid)) - 1u))
#define V_ZERO                _mm512_setzero_si512()
#define V_LOAD(p)             _mm512_loadu_si512(p)
#define V_LOAD_MASK(p, m)     _mm512_maskz_loadu_epi32(m, p)
#define V_STORE(p, v)         _mm512_storeu_si512(p, v)
#define V_STORE_MASK(p, m, v) _mm512_mask_storeu_epi32(p, m, v)
#define V_BROADCAST(p)        _mm512_set1_epi32(*(const unit *)(const void *)(p))
#define V_ADD(a, b)           _mm512_add_epi32(a, b)
#if CT_ISA_LEVEL == 3
#define V_FMA(a, b, c)   _mm512_dpbusd_epi32(c, a, b)
#define TILE_START(t, v) ((t)->start ? _mm512_loadu_si512((const char *)(t)->start + 64 * (v)) : V_ZERO)
#else
#define V_FMA(a, b, c) _mm512_add_epi32(c, _mm512_madd_epi16(a, b))
#endif
#else
#include <immintrin.h>
#define TILE_VECS             2
#define TILE_ROWS             6
#define TILE_WIDTH            16
#define LANES                 8
#define VEC                   __m256i
#define MASK                  __m256i
#define V_MASK(valid)         _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(valid)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define V_ZERO                _mm256_setzero_si256()
#define V_LOAD(p)             _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define V_LOAD_MASK(p, m)     _mm256_maskload_epi32((const int *)(const void *)(p), m)
#define V_STORE(p, v)         _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define V_STORE_MASK(p, m, v) _mm256_maskstore_epi32((int *)(void *)(p), m, v)
#define V_BROADCAST(p)        _mm256_set1_epi32(*(const unit *)(const void *)(p))
#define V_ADD(a, b)           _mm256_add_epi32(a, b)
#define V_FMA(a, b, c)        _mm256_add_epi32(c, _mm256_madd_epi16(a, b))
#endif
#define V_SCALE(v, alpha) (v)
#include "backends/cpu/gemm/tile.h"

const ct__kernel CT_ISA_FN(ct__gemm_i8) = {
    .name = CT__KERNEL_NAME("i8"),
    .tiles = tiles,
    .rows = TILE_ROWS,
    .lanes = LANES,
    .vecs = TILE_VECS,
    .acc = CT_GEMM_I32,
#if CT_ISA_LEVEL == 3
    .group = 4,
    .packed = CT_GEMM_I8,
    .unsigned_a = true,
    .depth = 1536,
    .stage_bytes = 8 << 20,
#else
    .group = 2,
    .packed = CT_GEMM_I16,
    .depth = 512,
    .stage_bytes = 8 << 20,
#endif
    .block_cols = 256,
    .block_rows = 112,
    .stage_cols = 2048,
};
#endif
