/* Conversions between element types, for packers and stores, by the instructions of each level. */
#ifndef CT_BACKENDS_CPU_GEMM_CONVERT_H
#define CT_BACKENDS_CPU_GEMM_CONVERT_H

#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "backends/cpu/gemm/engine.h"
#include "backends/cpu/gemm/isa.h"

static inline uint32_t convert_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static inline float convert_float(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline float bf16_to_f32(uint16_t h) { return convert_float((uint32_t)h << 16); }

/* To nearest, ties to even; a NaN stays a NaN whatever its low bits were. */
static inline uint16_t f32_to_bf16(float x) {
    const uint32_t u = convert_bits(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
}

#if defined(__AVX512F__)
/* The same, left in the upper halves. */
static inline __m512i bf16_upper(__m512i x) {
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1)),
                  rounded = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), even);
    const __mmask16 nan = _mm512_cmp_ps_mask(_mm512_castsi512_ps(x), _mm512_castsi512_ps(x), _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(rounded, nan, x, _mm512_set1_epi32(0x400000));
}
#endif

#if defined(__F16C__)
static inline float f16_to_f32(uint16_t h) { return _cvtsh_ss(h); }
static inline uint16_t f32_to_f16(float x) { return (uint16_t)_cvtss_sh(x, 0); }
#elif defined(__aarch64__)
static inline float f16_to_f32(uint16_t h) {
    __fp16 x;
    memcpy(&x, &h, 2);
    return (float)x;
}
static inline uint16_t f32_to_f16(float x) {
    const __fp16 h = (__fp16)x;
    uint16_t u;
    memcpy(&u, &h, 2);
    return u;
}
#else
/* Scaling by 2^112 moves the half's exponent to its place and normalizes subnormals at once. */
static inline float f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = (uint32_t)(h & 0x7fffu) << 13;
    if (rest >= 0x0f800000u) return convert_float(sign | 0x70000000u | rest);
    return convert_float(sign | convert_bits(convert_float(rest) * 0x1p112f));
}
/* Adding a power of two whose last place is the half's last place makes the adder round. */
static inline uint16_t f32_to_f16(float x) {
    const uint32_t u = convert_bits(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((u >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u)
        return (uint16_t)(sign | (convert_bits(convert_float(magnitude) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13));
}
#endif

/* memcpy in whole vectors: for a few KiB libc chooses rep movsb, which is slow to start. */
static inline void copy_bytes(void *restrict dst, const void *restrict src, int64_t bytes) {
    typedef uint64_t line __attribute__((vector_size(64), aligned(1), may_alias));
    char *d = (char *)dst;
    const char *s = (const char *)src;
    for (; bytes >= 128; bytes -= 128, d += 128, s += 128) {
        const line x = *(const line *)(const void *)s, y = *(const line *)(const void *)(s + 64);
        *(line *)(void *)d = x;
        *(line *)(void *)(d + 64) = y;
    }
    /* Copies of known size: compilers turn a short memcpy of unknown size into a string instruction, slow to start. */
#define COPY_PIECE(n)       \
    if (bytes & (n)) {      \
        memcpy(d, s, (n));  \
        d += (n), s += (n); \
    }
    COPY_PIECE(64)
    COPY_PIECE(32)
    COPY_PIECE(16)
    COPY_PIECE(8)
    COPY_PIECE(4)
    COPY_PIECE(2)
    if (bytes & 1) *d = *s;
#undef COPY_PIECE
}

#define CONVERT_LOOP(TO, FROM, EXPR)       \
    {                                      \
        const FROM *s = (const FROM *)src; \
        TO *d = (TO *)dst;                 \
        for (int64_t i = 0; i < n; i++) {  \
            const FROM x = s[i];           \
            d[i] = (TO)(EXPR);             \
        }                                  \
        return;                            \
    }

/* n contiguous elements into an accumulator or packed type; in kernel_pack.c. */
#define convert_in CT_ISA_FN(ct__gemm_convert_in)
void convert_in(void *restrict dst, ct_gemm_type to, const void *restrict src, ct_gemm_type from, int64_t n);

/* n contiguous accumulators into C's type. Integers keep their low bits. */
static inline void convert_out(void *restrict dst, ct_gemm_type to, const void *restrict src, ct_gemm_type from,
                               int64_t n) {
    if (to == from) {
        memcpy(dst, src, (size_t)(n * ct__type_size(to)));
        return;
    }
    if (from == CT_GEMM_F32) {
        if (to == CT_GEMM_BF16) CONVERT_LOOP(uint16_t, float, f32_to_bf16(x))
        int64_t i = 0;
#if defined(__AVX512F__)
        for (; i + 16 <= n; i += 16)
            _mm256_storeu_si256((__m256i *)((uint16_t *)dst + i),
                                _mm512_cvtps_ph(_mm512_loadu_ps((const float *)src + i), 0));
#elif defined(__F16C__)
        for (; i + 8 <= n; i += 8)
            _mm_storeu_si128((__m128i *)((uint16_t *)dst + i),
                             _mm256_cvtps_ph(_mm256_loadu_ps((const float *)src + i), 0));
#endif
        for (; i < n; i++) ((uint16_t *)dst)[i] = f32_to_f16(((const float *)src)[i]);
        return;
    }
    if (from == CT_GEMM_I32) {
        if (to == CT_GEMM_I8 || to == CT_GEMM_U8) CONVERT_LOOP(uint8_t, int32_t, x)
        if (to == CT_GEMM_I16) CONVERT_LOOP(uint16_t, int32_t, x)
        if (to == CT_GEMM_I64) CONVERT_LOOP(int64_t, int32_t, x)
    }
    if (from == CT_GEMM_I64) {
        if (to == CT_GEMM_I8 || to == CT_GEMM_U8) CONVERT_LOOP(uint8_t, int64_t, x)
        if (to == CT_GEMM_I16) CONVERT_LOOP(uint16_t, int64_t, x)
        if (to == CT_GEMM_I32) CONVERT_LOOP(uint32_t, int64_t, x)
    }
}

/* The same for rows of n, so many bytes apart. */
static __attribute__((noinline, unused)) void convert_rows(char *dst, int64_t dst_row, ct_gemm_type to, const char *src,
                                                           int64_t src_row, ct_gemm_type from, int64_t rows,
                                                           int64_t n) {
    for (int64_t i = 0; i < rows; i++, dst += dst_row, src += src_row) {
#if defined(__AVX512F__)
        if (to == CT_GEMM_BF16 && from == CT_GEMM_F32) { /* rows are short, so the rest of one is masked, not a loop */
            const __m512i upper = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31,
                                                   29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
            for (int64_t j = 0; j < n; j += 32) {
                const __mmask32 here = n - j >= 32 ? 0xffffffff : (1u << (n - j)) - 1u;
                const __m512i a = bf16_upper(_mm512_maskz_loadu_epi32((__mmask16)here, src + 4 * j)),
                              b = bf16_upper(_mm512_maskz_loadu_epi32((__mmask16)(here >> 16), src + 4 * j + 64));
                _mm512_mask_storeu_epi16(dst + 2 * j, here, _mm512_permutex2var_epi16(a, upper, b));
            }
            continue;
        }
#endif
        convert_out(dst, to, src, from, n);
    }
}

/* n elements of `size` bytes, `stride` bytes apart, side by side; and back. */
typedef uint16_t __attribute__((may_alias)) any16;
typedef uint32_t __attribute__((may_alias, aligned(1))) any32; /* also a group of halves or bytes, at any address */
typedef uint64_t __attribute__((may_alias)) any64;

#define STRIDED_LOOP(T, TO, TO_STRIDE, FROM, FROM_STRIDE)                         \
    for (int64_t i = 0; i < n; i++)                                               \
        *(T *)(void *)((char *)(TO) + i * (TO_STRIDE)) =                          \
            *(const T *)(const void *)((const char *)(FROM) + i * (FROM_STRIDE)); \
    break;

static inline void gather_bytes(void *restrict dst, const void *restrict src, int64_t stride, int64_t n, int64_t size) {
    switch (size) {
    case 1: STRIDED_LOOP(char, dst, 1, src, stride)
    case 2: STRIDED_LOOP(any16, dst, 2, src, stride)
    case 4: STRIDED_LOOP(any32, dst, 4, src, stride)
    default: STRIDED_LOOP(any64, dst, 8, src, stride)
    }
}
static inline void scatter_bytes(void *restrict dst, int64_t stride, const void *restrict src, int64_t n,
                                 int64_t size) {
    switch (size) {
    case 1: STRIDED_LOOP(char, dst, stride, src, 1)
    case 2: STRIDED_LOOP(any16, dst, stride, src, 2)
    case 4: STRIDED_LOOP(any32, dst, stride, src, 4)
    default: STRIDED_LOOP(any64, dst, stride, src, 8)
    }
}
#endif
