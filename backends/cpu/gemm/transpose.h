/* Transposes of 32- and 64-bit units, for packers (B given along k) and for stores of C transposed.
 * dst[c * dst_row + r] = src[r * src_row + c]; strides in bytes. */
#ifndef CT_BACKENDS_CPU_GEMM_TRANSPOSE_H
#define CT_BACKENDS_CPU_GEMM_TRANSPOSE_H

#include "backends/cpu/gemm/convert.h"

#if CT_ISA_LEVEL >= 2
#include <immintrin.h>

/* 8 by 8 in half vectors, for small matrices. */
static inline void transpose_eight32(char *dst, int64_t dst_row, const char *src, int64_t src_row, int rows, int cols,
                                     int write) {
    __m256 a[8], b[8];
    const __mmask8 in = (__mmask8)((1u << cols) - 1u), out = (__mmask8)((1u << write) - 1u);
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) a[r] = r < rows ? _mm256_maskz_loadu_ps(in, src + r * src_row) : _mm256_setzero_ps();
#pragma GCC unroll 4
    for (int r = 0; r < 8; r += 2) {
        b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
    }
#pragma GCC unroll 2
    for (int r = 0; r < 8; r += 4) {
        a[r] = _mm256_shuffle_ps(b[r], b[r + 2], 0x44);
        a[r + 1] = _mm256_shuffle_ps(b[r], b[r + 2], 0xee);
        a[r + 2] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0x44);
        a[r + 3] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        b[c] = _mm256_permute2f128_ps(a[c], a[4 + c], 0x20);
        b[4 + c] = _mm256_permute2f128_ps(a[c], a[4 + c], 0x31);
    }
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++)
        if (c < cols) _mm256_mask_storeu_ps(dst + c * dst_row, out, b[c]);
}

/* 4 by 4 in each quarter. */
static inline void transpose_quarters32(__m512 a[4]) {
    const __m512 ab = _mm512_unpacklo_ps(a[0], a[1]), AB = _mm512_unpackhi_ps(a[0], a[1]);
    const __m512 cd = _mm512_unpacklo_ps(a[2], a[3]), CD = _mm512_unpackhi_ps(a[2], a[3]);
    a[0] = (__m512)_mm512_unpacklo_pd((__m512d)ab, (__m512d)cd);
    a[1] = (__m512)_mm512_unpackhi_pd((__m512d)ab, (__m512d)cd);
    a[2] = (__m512)_mm512_unpacklo_pd((__m512d)AB, (__m512d)CD);
    a[3] = (__m512)_mm512_unpackhi_pd((__m512d)AB, (__m512d)CD);
}

/* Sixteen rows of up to four columns, and up to four rows of up to sixteen columns: a third of the shuffles of a whole block. */
static inline void transpose_narrow32(char *dst, int64_t dst_row, const char *src, int64_t src_row, int cols) {
    const __mmask8 in = (__mmask8)((1u << cols) - 1u);
    __m512 a[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++, src += src_row) {
        a[r] = _mm512_castps128_ps512(_mm_maskz_loadu_ps(in, src));
        a[r] = _mm512_insertf32x4(a[r], _mm_maskz_loadu_ps(in, src + 4 * src_row), 1);
        a[r] = _mm512_insertf32x4(a[r], _mm_maskz_loadu_ps(in, src + 8 * src_row), 2);
        a[r] = _mm512_insertf32x4(a[r], _mm_maskz_loadu_ps(in, src + 12 * src_row), 3);
    }
    transpose_quarters32(a);
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++)
        if (c < cols) _mm512_storeu_ps(dst + c * dst_row, a[c]);
}
static inline void store_quarters32(char *dst, int64_t dst_row, __m128 a, __m128 b, __m128 c, __m128 d, int cols,
                                    __mmask8 out) {
    /* In registers first: gcc would store a masked quarter of a vector at once, an instruction that faults on what the mask leaves out. */
    __asm__("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d));
    if (cols > 0) _mm_mask_storeu_ps(dst, out, a);
    if (cols > 1) _mm_mask_storeu_ps(dst + dst_row, out, b);
    if (cols > 2) _mm_mask_storeu_ps(dst + 2 * dst_row, out, c);
    if (cols > 3) _mm_mask_storeu_ps(dst + 3 * dst_row, out, d);
}
static inline void transpose_low32(char *dst, int64_t dst_row, const char *src, int64_t src_row, int rows, int cols,
                                   int write) {
    const __mmask16 in = (__mmask16)((1u << cols) - 1u);
    const __mmask8 out = (__mmask8)((1u << write) - 1u);
    __m512 a[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) a[r] = r < rows ? _mm512_maskz_loadu_ps(in, src + r * src_row) : _mm512_setzero_ps();
    transpose_quarters32(a);
#define QUARTER(q)                                                                                                     \
    store_quarters32(dst + 4 * (q)*dst_row, dst_row, _mm512_extractf32x4_ps(a[0], q), _mm512_extractf32x4_ps(a[1], q), \
                     _mm512_extractf32x4_ps(a[2], q), _mm512_extractf32x4_ps(a[3], q), cols - 4 * (q), out);
    QUARTER(0)
    QUARTER(1)
    QUARTER(2)
    QUARTER(3)
#undef QUARTER
}

/* rows <= 16, cols <= 16; writes `write` >= rows lanes of each destination row, zeros after rows. */
static inline void transpose_block32(char *dst, int64_t dst_row, const char *src, int64_t src_row, int rows, int cols,
                                     int write) {
    if (write <= 4 && cols > 4) {
        transpose_low32(dst, dst_row, src, src_row, rows, cols, write);
        return;
    }
    if (rows == 16 && cols <= 8) {
        transpose_narrow32(dst, dst_row, src, src_row, cols < 4 ? cols : 4);
        if (cols > 4) transpose_narrow32(dst + 4 * dst_row, dst_row, src + 16, src_row, cols - 4);
        return;
    }
    if (write <= 8 && cols <= 8) {
        transpose_eight32(dst, dst_row, src, src_row, rows, cols, write);
        return;
    }
    __m512 a[16], b[16];
    const __mmask16 in = (__mmask16)((1u << cols) - 1u);
#define LOAD_ROW(r) a[r] = r < rows ? _mm512_maskz_loadu_ps(in, src + r * src_row) : _mm512_setzero_ps();
    if (rows == 16) {
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++) a[r] = _mm512_maskz_loadu_ps(in, src + r * src_row);
    } else {
        /* clang-format off */
        LOAD_ROW(0) LOAD_ROW(1) LOAD_ROW(2) LOAD_ROW(3)
        LOAD_ROW(4) LOAD_ROW(5) LOAD_ROW(6) LOAD_ROW(7)
        LOAD_ROW(8) LOAD_ROW(9) LOAD_ROW(10) LOAD_ROW(11)
        LOAD_ROW(12) LOAD_ROW(13) LOAD_ROW(14) LOAD_ROW(15)
        /* clang-format on */
    }
#undef LOAD_ROW
    /* Pairs of rows, then quads: each 128-bit lane then holds four rows of one column. */
#pragma GCC unroll 8
    for (int r = 0; r < 16; r += 2) {
        b[r] = _mm512_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm512_unpackhi_ps(a[r], a[r + 1]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < 16; r += 4) {
        a[r] = (__m512)_mm512_unpacklo_pd((__m512d)b[r], (__m512d)b[r + 2]);
        a[r + 1] = (__m512)_mm512_unpackhi_pd((__m512d)b[r], (__m512d)b[r + 2]);
        a[r + 2] = (__m512)_mm512_unpacklo_pd((__m512d)b[r + 1], (__m512d)b[r + 3]);
        a[r + 3] = (__m512)_mm512_unpackhi_pd((__m512d)b[r + 1], (__m512d)b[r + 3]);
    }
    /* a[4q + c]: lanes are columns c, c+4, c+8, c+12 of rows 4q..4q+3. */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        const __m512 lo = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88);
        const __m512 hi = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xdd);
        const __m512 lo2 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88);
        const __m512 hi2 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xdd);
        b[c] = _mm512_shuffle_f32x4(lo, lo2, 0x88);
        b[8 + c] = _mm512_shuffle_f32x4(lo, lo2, 0xdd);
        b[4 + c] = _mm512_shuffle_f32x4(hi, hi2, 0x88);
        b[12 + c] = _mm512_shuffle_f32x4(hi, hi2, 0xdd);
    }
    const __mmask16 out = (__mmask16)((1u << write) - 1u);
#define STORE_ROW(c) \
    if (c < cols) _mm512_mask_storeu_ps(dst + c * dst_row, out, b[c]);
    if (cols == 16 && write == 16) {
#pragma GCC unroll 16
        for (int c = 0; c < 16; c++) _mm512_storeu_ps(dst + c * dst_row, b[c]);
    } else {
        /* clang-format off */
        STORE_ROW(0) STORE_ROW(1) STORE_ROW(2) STORE_ROW(3)
        STORE_ROW(4) STORE_ROW(5) STORE_ROW(6) STORE_ROW(7)
        STORE_ROW(8) STORE_ROW(9) STORE_ROW(10) STORE_ROW(11)
        STORE_ROW(12) STORE_ROW(13) STORE_ROW(14) STORE_ROW(15)
        /* clang-format on */
    }
#undef STORE_ROW
}

/* The same for 64-bit units, 8 by 8. */
static inline void transpose_block64(char *dst, int64_t dst_row, const char *src, int64_t src_row, int rows, int cols,
                                     int write) {
    __m512d a[8], b[8];
    const __mmask8 in = (__mmask8)((1u << cols) - 1u);
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) a[r] = r < rows ? _mm512_maskz_loadu_pd(in, src + r * src_row) : _mm512_setzero_pd();
#pragma GCC unroll 4
    for (int r = 0; r < 8; r += 2) {
        b[r] = _mm512_unpacklo_pd(a[r], a[r + 1]);
        b[r + 1] = _mm512_unpackhi_pd(a[r], a[r + 1]);
    }
    /* b[2q + c]: lanes are columns c, c+2, c+4, c+6 of rows 2q, 2q+1. */
#pragma GCC unroll 2
    for (int c = 0; c < 2; c++) {
        const __m512d lo = _mm512_shuffle_f64x2(b[c], b[2 + c], 0x88);
        const __m512d hi = _mm512_shuffle_f64x2(b[c], b[2 + c], 0xdd);
        const __m512d lo2 = _mm512_shuffle_f64x2(b[4 + c], b[6 + c], 0x88);
        const __m512d hi2 = _mm512_shuffle_f64x2(b[4 + c], b[6 + c], 0xdd);
        a[c] = _mm512_shuffle_f64x2(lo, lo2, 0x88);
        a[4 + c] = _mm512_shuffle_f64x2(lo, lo2, 0xdd);
        a[2 + c] = _mm512_shuffle_f64x2(hi, hi2, 0x88);
        a[6 + c] = _mm512_shuffle_f64x2(hi, hi2, 0xdd);
    }
    const __mmask8 out = (__mmask8)((1u << write) - 1u);
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++)
        if (c < cols) _mm512_mask_storeu_pd(dst + c * dst_row, out, a[c]);
}
#define TRANSPOSE_BLOCK32 16
#define TRANSPOSE_BLOCK64 8

#elif CT_ISA_LEVEL == 1 && defined(__AVX2__)
#include <immintrin.h>

/* The first `write` lanes; masked stores take many times as long on some processors. */
static inline void store_some32(char *dst, __m256 x, int write) {
    if (write == 8) {
        _mm256_storeu_ps((float *)(void *)dst, x);
        return;
    }
    __m128 some = _mm256_castps256_ps128(x);
    if (write & 4) {
        _mm_storeu_ps((float *)(void *)dst, some);
        some = _mm256_extractf128_ps(x, 1);
        dst += 16;
    }
    if (write & 2) {
        _mm_storel_pi((__m64 *)(void *)dst, some);
        some = _mm_movehl_ps(some, some);
        dst += 8;
    }
    if (write & 1) _mm_store_ss((float *)(void *)dst, some);
}
/* Eight columns of up to eight rows; writes `write` >= rows lanes of each destination row, zeros after rows. */
static inline __attribute__((always_inline)) void transpose_rows32(char *dst, int64_t dst_row, const char *src,
                                                                   int64_t src_row, int rows, int write) {
    __m256 a[8], b[8];
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++)
        a[r] = r < rows ? _mm256_loadu_ps((const float *)(const void *)(src + r * src_row)) : _mm256_setzero_ps();
#pragma GCC unroll 4
    for (int r = 0; r < 8; r += 2) {
        b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
    }
#pragma GCC unroll 2
    for (int r = 0; r < 8; r += 4) {
        a[r] = _mm256_shuffle_ps(b[r], b[r + 2], 0x44);
        a[r + 1] = _mm256_shuffle_ps(b[r], b[r + 2], 0xee);
        a[r + 2] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0x44);
        a[r + 3] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        store_some32(dst + c * dst_row, _mm256_permute2f128_ps(a[c], a[4 + c], 0x20), write);
        store_some32(dst + (4 + c) * dst_row, _mm256_permute2f128_ps(a[c], a[4 + c], 0x31), write);
    }
}
static inline void transpose_full32(char *dst, int64_t dst_row, const char *src, int64_t src_row) {
    transpose_rows32(dst, dst_row, src, src_row, 8, 8);
}
/* Six rows, those of a tile, at a known count as well. */
static inline void transpose_part32(char *dst, int64_t dst_row, const char *src, int64_t src_row, int rows, int write) {
    if (rows == 6 && write == 6) transpose_rows32(dst, dst_row, src, src_row, 6, 6);
    else transpose_rows32(dst, dst_row, src, src_row, rows, write);
}
static inline void transpose_full64(char *dst, int64_t dst_row, const char *src, int64_t src_row) {
    __m256d a[4], b[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) a[r] = _mm256_loadu_pd((const double *)(const void *)(src + r * src_row));
#pragma GCC unroll 2
    for (int r = 0; r < 4; r += 2) {
        b[r] = _mm256_unpacklo_pd(a[r], a[r + 1]);
        b[r + 1] = _mm256_unpackhi_pd(a[r], a[r + 1]);
    }
#pragma GCC unroll 2
    for (int c = 0; c < 2; c++) {
        _mm256_storeu_pd((double *)(void *)(dst + c * dst_row), _mm256_permute2f128_pd(b[c], b[2 + c], 0x20));
        _mm256_storeu_pd((double *)(void *)(dst + (2 + c) * dst_row), _mm256_permute2f128_pd(b[c], b[2 + c], 0x31));
    }
}
#define TRANSPOSE_BLOCK32 8
#define TRANSPOSE_BLOCK64 4
#define TRANSPOSE_FULL_ONLY

#else
#define TRANSPOSE_BLOCK32 8
#define TRANSPOSE_BLOCK64 8
#define TRANSPOSE_SCALAR
#endif

#if CT_ISA_LEVEL < 2
#define TRANSPOSE_LOOP(T)                                                                                  \
    for (int c = 0; c < cols; c++) {                                                                       \
        for (int r = 0; r < rows; r++)                                                                     \
            *(T *)(void *)(dst + c * dst_row + r * (int64_t)sizeof(T)) =                                   \
                *(const T *)(const void *)(src + r * src_row + c * (int64_t)sizeof(T));                    \
        for (int r = rows; r < write; r++) *(T *)(void *)(dst + c * dst_row + r * (int64_t)sizeof(T)) = 0; \
    }
static inline void transpose_block32(char *dst, int64_t dst_row, const char *src, int64_t src_row, int rows, int cols,
                                     int write) {
#ifdef TRANSPOSE_FULL_ONLY
    if (rows == TRANSPOSE_BLOCK32 && cols == TRANSPOSE_BLOCK32) {
        transpose_full32(dst, dst_row, src, src_row);
        return;
    }
    if (cols == TRANSPOSE_BLOCK32) {
        transpose_part32(dst, dst_row, src, src_row, rows, write);
        return;
    }
#endif
    TRANSPOSE_LOOP(any32)
}
static inline void transpose_block64(char *dst, int64_t dst_row, const char *src, int64_t src_row, int rows, int cols,
                                     int write) {
#ifdef TRANSPOSE_FULL_ONLY
    if (rows == TRANSPOSE_BLOCK64 && cols == TRANSPOSE_BLOCK64) {
        transpose_full64(dst, dst_row, src, src_row);
        return;
    }
#endif
    TRANSPOSE_LOOP(any64)
}
#endif

/* Any size; unit is 4 or 8 bytes; destination rows are zero-filled from `rows` to `width`. A block
 * reads one line of each of its rows; the next lines are prefetched early, since so many streams at
 * once are more than the hardware follows. */
static inline void transpose(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t cols,
                             int64_t width, int64_t unit) {
    const int64_t step = unit == 4 ? TRANSPOSE_BLOCK32 : TRANSPOSE_BLOCK64;
    for (int64_t r = 0; r < width; r += step) {
        const int64_t left = rows - r;
        const int have = (int)(left < 0 ? 0 : ct__min(step, left));
        const int want = (int)ct__min(step, width - r);
        const char *s = have ? src + r * src_row : src;
        char *d = dst + r * unit;
        for (int64_t c = 0; c < cols; c += step, s += step * unit, d += step * dst_row) {
            const int wide = (int)ct__min(step, cols - c);
            if (c + 3 * step < cols)
                for (int i = 0; i < have; i++) __builtin_prefetch(s + i * src_row + 3 * step * unit);
            if (unit == 4) transpose_block32(d, dst_row, s, src_row, have, wide, want);
            else transpose_block64(d, dst_row, s, src_row, have, wide, want);
        }
    }
}
#endif
