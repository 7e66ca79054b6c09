/* Transposing a tile: dst[r, c] = src[c, r], both dense along their inner side. The unit is a square of whole cache
 * lines, so that each line is read once and written once, and may be written past the caches. Inside, registers are
 * transposed by interleaving: log2(n) rounds of zipping row i with row i + n/2 transpose n rows of n elements. */
#ifndef COTANGENT_BACKENDS_CPU_ISA_TRANSPOSE_H
#define COTANGENT_BACKENDS_CPU_ISA_TRANSPOSE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "backends/cpu/simd/simd.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define TILE_INLINE static inline __attribute__((always_inline))

/* ---- 16 bytes by 16 bytes, on any machine ---- */

typedef uint8_t row8 __attribute__((vector_size(16)));
typedef uint16_t row16 __attribute__((vector_size(16)));
typedef uint32_t row32 __attribute__((vector_size(16)));
typedef uint64_t row64 __attribute__((vector_size(16)));

#if defined(__clang__)
#define ZIP(V, a, b, ...) ((V)__builtin_shufflevector(a, b, __VA_ARGS__))
#else
#define ZIP(V, a, b, ...) ((V)__builtin_shuffle(a, b, (V){__VA_ARGS__}))
#endif
#define ZIP_LOW8(a, b)   ZIP(row8, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH8(a, b)  ZIP(row8, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define ZIP_LOW16(a, b)  ZIP(row16, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH16(a, b) ZIP(row16, a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define ZIP_LOW32(a, b)  ZIP(row32, a, b, 0, 4, 1, 5)
#define ZIP_HIGH32(a, b) ZIP(row32, a, b, 2, 6, 3, 7)
#define ZIP_LOW64(a, b)  ZIP(row64, a, b, 0, 2)
#define ZIP_HIGH64(a, b) ZIP(row64, a, b, 1, 3)

TILE_INLINE void store_row(char *to, const void *row, bool stream) {
#if defined(__SSE2__)
    __m128i v;
    memcpy(&v, row, sizeof v);
    if (stream) _mm_stream_si128((__m128i *)(void *)to, v);
    else _mm_storeu_si128((__m128i *)(void *)to, v);
#else
    (void)stream;
    memcpy(to, row, 16);
#endif
}

#define BITS   8
#define N      16
#define ROUNDS 4
#include "backends/cpu/isa/transpose_square.h"
#define BITS   16
#define N      8
#define ROUNDS 3
#include "backends/cpu/isa/transpose_square.h"
#if CT_ISA_LEVEL < 2 || !defined(__AVX512F__)
#define WHOLE_LINES 0 /* a line is written in parts */
#define BITS        32
#define N           4
#define ROUNDS      2
#include "backends/cpu/isa/transpose_square.h"
#define BITS   64
#define N      2
#define ROUNDS 1
#include "backends/cpu/isa/transpose_square.h"
#else
#define WHOLE_LINES 1

/* ---- Lines in one register each ---- */

TILE_INLINE void store_line(char *to, __m512i v, bool stream) {
    if (stream) _mm512_stream_si512((__m512i *)(void *)to, v);
    else _mm512_storeu_si512(to, v);
}

TILE_INLINE void lines64(char *dst, int64_t dst_row, const char *src, int64_t src_row, bool stream) {
    __m512i a[8], b[8];
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) a[i] = _mm512_loadu_si512(src + i * src_row);
    /* pairs: b[2q + h] holds, of rows 2q and 2q + 1, columns h, h + 2, h + 4, h + 6 */
    _Pragma("GCC unroll 4") for (int i = 0; i < 8; i += 2) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 1]);
    }
    /* 128-bit quarters of four registers, transposed in two rounds */
    _Pragma("GCC unroll 2") for (int h = 0; h < 2; h++) {
        const __m512i low = _mm512_shuffle_i64x2(b[h], b[2 + h], 0x44),
                      high = _mm512_shuffle_i64x2(b[h], b[2 + h], 0xee);
        const __m512i low2 = _mm512_shuffle_i64x2(b[4 + h], b[6 + h], 0x44),
                      high2 = _mm512_shuffle_i64x2(b[4 + h], b[6 + h], 0xee);
        a[h] = _mm512_shuffle_i64x2(low, low2, 0x88);
        a[2 + h] = _mm512_shuffle_i64x2(low, low2, 0xdd);
        a[4 + h] = _mm512_shuffle_i64x2(high, high2, 0x88);
        a[6 + h] = _mm512_shuffle_i64x2(high, high2, 0xdd);
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) store_line(dst + i * dst_row, a[i], stream);
}

TILE_INLINE void lines32(char *dst, int64_t dst_row, const char *src, int64_t src_row, bool stream) {
    __m512i a[16], b[16];
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(src + i * src_row);
    _Pragma("GCC unroll 8") for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    /* fours: a[4q + h] holds, of rows 4q to 4q + 3, columns h, h + 4, h + 8, h + 12 */
    _Pragma("GCC unroll 4") for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    _Pragma("GCC unroll 4") for (int h = 0; h < 4; h++) {
        const __m512i low = _mm512_shuffle_i32x4(a[h], a[4 + h], 0x44),
                      high = _mm512_shuffle_i32x4(a[h], a[4 + h], 0xee);
        const __m512i low2 = _mm512_shuffle_i32x4(a[8 + h], a[12 + h], 0x44),
                      high2 = _mm512_shuffle_i32x4(a[8 + h], a[12 + h], 0xee);
        b[h] = _mm512_shuffle_i32x4(low, low2, 0x88);
        b[4 + h] = _mm512_shuffle_i32x4(low, low2, 0xdd);
        b[8 + h] = _mm512_shuffle_i32x4(high, high2, 0x88);
        b[12 + h] = _mm512_shuffle_i32x4(high, high2, 0xdd);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) store_line(dst + i * dst_row, b[i], stream);
}
#endif

/* ---- Tiles ---- */

/* Less than a line; a call of memcpy would cost more than the copy. */
TILE_INLINE void copy_edge(char *dst, const char *src, int64_t bytes) {
    for (; bytes >= 8; bytes -= 8, dst += 8, src += 8) memcpy(dst, src, 8);
    for (; bytes > 0; bytes--) *dst++ = *src++;
}

/* Past the caches: whole lines, never read before they are written. */
static void stream_row(char *dst, const char *src, int64_t bytes) {
    enum { LINE = 64, STEP = VF32_LANES * 4 };
    int64_t i = (int64_t)(-(uintptr_t)dst & (LINE - 1));
    if (bytes < 4 * LINE) {
        memcpy(dst, src, (size_t)bytes);
        return;
    }
    copy_edge(dst, src, i);
    for (; i + LINE <= bytes; i += LINE)
        for (int k = 0; k < LINE; k += STEP)
            vf32_stream((float *)(void *)(dst + i + k), vf32_load((const float *)(const void *)(src + i + k)));
    copy_edge(dst + i, src + i, bytes - i);
}

typedef uint8_t unit_8;
typedef uint16_t unit_16 __attribute__((may_alias, aligned(1)));
typedef uint32_t unit_32 __attribute__((may_alias, aligned(1)));
typedef uint64_t unit_64 __attribute__((may_alias, aligned(1)));

enum { STAGE = 1024, STAGE_ROWS = 64 }; /* bytes of a row of dst, and rows, that are gathered before they are written */

#define BITS 8
#include "backends/cpu/isa/transpose_tile.h"
#define BITS 16
#include "backends/cpu/isa/transpose_tile.h"
#define BITS 32
#include "backends/cpu/isa/transpose_tile.h"
#define BITS 64
#include "backends/cpu/isa/transpose_tile.h"

static void transpose_tile(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t columns,
                           int size, bool stream) {
    switch (size) {
    case 1: transpose8(dst, dst_row, src, src_row, rows, columns, stream); break;
    case 2: transpose16(dst, dst_row, src, src_row, rows, columns, stream); break;
    case 4: transpose32(dst, dst_row, src, src_row, rows, columns, stream); break;
    default: transpose64(dst, dst_row, src, src_row, rows, columns, stream); break;
    }
}

#endif
