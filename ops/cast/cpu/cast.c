/* Conversion between dtypes. Dense runs of the eleven types that C has are converted directly, in loops that the
 * compiler turns into vector code; the others meet f32 on the way, a block at a time. Strided runs are first copied into
 * a block, or from one. */
#include <string.h>

#include "backends/cpu/copy.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/step.h"
#include "ops/create/cpu/rows.h"

#include "gen/cast.attrs.h"

enum { CHUNK = 1 << 16, BLOCK = 512 };

typedef void (*converter)(void *restrict y, const void *restrict x, int64_t n);

/* ---- C types ---- */

/* Truncates and saturates; NaN gives 0. LOW and BIG are exact in FROM: below LOW is LEAST, from BIG on is MOST. What is
 * out of range is replaced before the conversion, which would be undefined. */
#define FLOAT_TO_INT(FROM, TO, LOW, BIG, LEAST, MOST)                                 \
    static void FROM##_to_##TO(void *restrict y, const void *restrict x, int64_t n) { \
        const FROM *from = x;                                                         \
        TO *to = y;                                                                   \
        for (int64_t i = 0; i < n; i++) {                                             \
            FROM v = from[i];                                                         \
            FROM safe = ((v > (FROM)(LOW)) & (v < (FROM)(BIG))) ? v : (FROM)0;        \
            TO t = (TO)safe;                                                          \
            t = v <= (FROM)(LOW) ? (TO)(LEAST) : t;                                   \
            to[i] = v >= (FROM)(BIG) ? (TO)(MOST) : t;                                \
        }                                                                             \
    }

#define SIMPLE(FROM, TO, VALUE)                                                       \
    static void FROM##_to_##TO(void *restrict y, const void *restrict x, int64_t n) { \
        const FROM *from = x;                                                         \
        TO *to = y;                                                                   \
        for (int64_t i = 0; i < n; i++) {                                             \
            FROM v = from[i];                                                         \
            to[i] = (TO)(VALUE);                                                      \
        }                                                                             \
    }

typedef uint8_t truth;
typedef float f32;
typedef double f64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define FLOATS_TO_INTS(FROM)                                                   \
    FLOAT_TO_INT(FROM, i8, -128, 128, INT8_MIN, INT8_MAX)                      \
    FLOAT_TO_INT(FROM, i16, -32768, 32768, INT16_MIN, INT16_MAX)               \
    FLOAT_TO_INT(FROM, i32, -2147483648.0, 2147483648.0, INT32_MIN, INT32_MAX) \
    FLOAT_TO_INT(FROM, i64, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX)             \
    FLOAT_TO_INT(FROM, u8, 0, 256, 0, UINT8_MAX)                               \
    FLOAT_TO_INT(FROM, u16, 0, 65536, 0, UINT16_MAX)                           \
    FLOAT_TO_INT(FROM, u32, 0, 4294967296.0, 0, UINT32_MAX)                    \
    FLOAT_TO_INT(FROM, u64, 0, 0x1p64, 0, UINT64_MAX)                          \
    SIMPLE(FROM, truth, v != 0)
FLOATS_TO_INTS(f32)
FLOATS_TO_INTS(f64)
SIMPLE(f32, f64, v)
SIMPLE(f64, f32, v)

/* Integers wrap, so only the width of the result counts: its signed type stands for both. */
#define FROM_INT(FROM)   \
    SIMPLE(FROM, f32, v) \
    SIMPLE(FROM, f64, v) \
    INT_TO_INTS(FROM)
#define INT_TO_INTS(FROM) \
    SIMPLE(FROM, i8, v)   \
    SIMPLE(FROM, i16, v)  \
    SIMPLE(FROM, i32, v)  \
    SIMPLE(FROM, i64, v)  \
    SIMPLE(FROM, truth, v != 0)
FROM_INT(i8)
FROM_INT(i16)
FROM_INT(i32)
#if CT_ISA_LEVEL == 1 && defined(__AVX2__)
/* AVX2 has no conversion of 64-bit integers. The halves of one are put into the mantissas of 2^52 and, the sign bit flipped, of 2^84; both
 * sums are exact doubles, and what remains when the powers are taken away is rounded once. */
SIMD_INLINE __m256d doubles_of(__m256i v) {
    const __m256i low = _mm256_blend_epi32(v, _mm256_set1_epi32(0x43300000), 0xaa);
    const __m256i high = _mm256_xor_si256(_mm256_srli_epi64(v, 32), _mm256_set1_epi64x(0x4530000080000000));
    const __m256d powers = _mm256_castsi256_pd(_mm256_set1_epi64x(0x4530000080100000)); /* 2^84 + 2^63 + 2^52 */
    return _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(high), powers), _mm256_castsi256_pd(low));
}

static void i64_to_f64(void *restrict y, const void *restrict x, int64_t n) {
    const i64 *from = x;
    f64 *to = y;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        _mm256_storeu_pd(to + i, doubles_of(_mm256_loadu_si256((const __m256i *)(const void *)(from + i))));
    for (; i < n; i++) to[i] = (f64)from[i];
}

/* By way of doubles, which have to be exact: from -2^53 to 2^53. */
static void i64_to_f32(void *restrict y, const void *restrict x, int64_t n) {
    const i64 *from = x;
    f32 *to = y;
    const __m256i limit = _mm256_set1_epi64x((int64_t)1 << 53);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
        const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 4));
        const __m256i beyond =
            _mm256_srli_epi64(_mm256_or_si256(_mm256_add_epi64(a, limit), _mm256_add_epi64(b, limit)), 54);
        if (__builtin_expect(_mm256_testz_si256(beyond, beyond), 1)) {
            _mm_storeu_ps(to + i, _mm256_cvtpd_ps(doubles_of(a)));
            _mm_storeu_ps(to + i + 4, _mm256_cvtpd_ps(doubles_of(b)));
        } else {
            for (int64_t k = i; k < i + 8; k++) to[k] = (f32)from[k];
        }
    }
    for (; i < n; i++) to[i] = (f32)from[i];
}
INT_TO_INTS(i64)
#else
FROM_INT(i64)
#endif
FROM_INT(u8)
FROM_INT(u16)
FROM_INT(u32)
FROM_INT(u64)

#define FLOAT_ROW(FROM)                                                                                       \
    {                                                                                                         \
        [CT_F32] = FROM##_to_f32, [CT_F64] = FROM##_to_f64, [CT_I8] = FROM##_to_i8, [CT_I16] = FROM##_to_i16, \
        [CT_I32] = FROM##_to_i32, [CT_I64] = FROM##_to_i64, [CT_U8] = FROM##_to_u8, [CT_U16] = FROM##_to_u16, \
        [CT_U32] = FROM##_to_u32, [CT_U64] = FROM##_to_u64, [CT_BOOL] = FROM##_to_truth,                      \
    }
#define INT_ROW(FROM)                                                                                         \
    {                                                                                                         \
        [CT_F32] = FROM##_to_f32, [CT_F64] = FROM##_to_f64, [CT_I8] = FROM##_to_i8, [CT_I16] = FROM##_to_i16, \
        [CT_I32] = FROM##_to_i32, [CT_I64] = FROM##_to_i64, [CT_U8] = FROM##_to_i8, [CT_U16] = FROM##_to_i16, \
        [CT_U32] = FROM##_to_i32, [CT_U64] = FROM##_to_i64, [CT_BOOL] = FROM##_to_truth,                      \
    }
#define f32_to_f32 NULL
#define f64_to_f64 NULL

static const converter plain[CT_DTYPE_COUNT][CT_DTYPE_COUNT] = {
    [CT_F32] = FLOAT_ROW(f32), [CT_F64] = FLOAT_ROW(f64), [CT_I8] = INT_ROW(i8),   [CT_I16] = INT_ROW(i16),
    [CT_I32] = INT_ROW(i32),   [CT_I64] = INT_ROW(i64),   [CT_U8] = INT_ROW(u8),   [CT_U16] = INT_ROW(u16),
    [CT_U32] = INT_ROW(u32),   [CT_U64] = INT_ROW(u64),   [CT_BOOL] = INT_ROW(u8),
};

/* ---- Types that C lacks, to f32 and from it ---- */

#define HALF(NAME)                                                                                   \
    static void NAME##_to_f32(void *restrict y, const void *restrict x, int64_t n) {                 \
        const uint16_t *from = x;                                                                    \
        float *to = y;                                                                               \
        int64_t i = 0;                                                                               \
        for (; i + VF32_LANES <= n; i += VF32_LANES) vf32_store(to + i, vf32_load_##NAME(from + i)); \
        if (i < n) vf32_store_n(to + i, vf32_load_##NAME##_n(from + i, (int)(n - i)), (int)(n - i)); \
    }                                                                                                \
    static void f32_to_##NAME(void *restrict y, const void *restrict x, int64_t n) {                 \
        const float *from = x;                                                                       \
        uint16_t *to = y;                                                                            \
        int64_t i = 0;                                                                               \
        for (; i + VF32_LANES <= n; i += VF32_LANES) vf32_store_##NAME(to + i, vf32_load(from + i)); \
        if (i < n) vf32_store_##NAME##_n(to + i, vf32_load_n(from + i, (int)(n - i)), (int)(n - i)); \
    }
HALF(f16)
HALF(bf16)

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Moved into place, an 8-bit float is an f32 whose exponent is too small by the difference of the biases; a
 * multiplication mends that and makes normal numbers of subnormal ones. e4m3 has no infinity, and one NaN. */
static void f8e4m3_to_f32(void *restrict y, const void *restrict x, int64_t n) {
    const uint8_t *from = x;
    float *to = y;
    for (int64_t i = 0; i < n; i++) {
        uint32_t b = from[i], magnitude = b & 0x7f;
        uint32_t bits = bits_of(float_of(magnitude << 20) * 0x1p120f);
        bits = magnitude == 0x7f ? 0x7fc00000u : bits;
        to[i] = float_of(bits | (b & 0x80) << 24);
    }
}

static void f8e5m2_to_f32(void *restrict y, const void *restrict x, int64_t n) {
    const uint8_t *from = x;
    float *to = y;
    for (int64_t i = 0; i < n; i++) {
        uint32_t b = from[i], magnitude = b & 0x7f;
        uint32_t bits = bits_of(float_of(magnitude << 21) * 0x1p112f);
        bits = magnitude == 0x7c ? 0x7f800000u : bits;
        bits = magnitude > 0x7c ? 0x7fc00000u : bits;
        to[i] = float_of(bits | (b & 0x80) << 24);
    }
}

/* Rounds to nearest, ties to even, in integers: `shift` mantissa bits fall off, and a carry runs into the exponent. Below
 * the smallest normal number, adding `unit` (whose last bit is the spacing there) rounds. */
static inline uint32_t round_to_f8(uint32_t bits, int shift, uint32_t rebias, float least, float unit) {
    uint32_t odd = bits >> shift & 1, half = (1u << (shift - 1)) - 1;
    uint32_t normal = (bits + half + odd - rebias) >> shift;
    uint32_t subnormal = bits_of(float_of(bits) + unit) - bits_of(unit);
    return bits < bits_of(least) ? subnormal : normal;
}

static void f32_to_f8e4m3(void *restrict y, const void *restrict x, int64_t n) {
    const float *from = x;
    uint8_t *to = y;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(from[i]), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffffu;
        uint32_t r = round_to_f8(magnitude, 20, 120u << 23, 0x1p-6f, 0x1p14f);
        r = magnitude > bits_of(464.0f) ? 0x7f : r; /* what is too large, or NaN, is NaN */
        to[i] = (uint8_t)(sign | r);
    }
}

static void f32_to_f8e5m2(void *restrict y, const void *restrict x, int64_t n) {
    const float *from = x;
    uint8_t *to = y;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(from[i]), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffffu;
        uint32_t r = round_to_f8(magnitude, 21, 112u << 23, 0x1p-14f, 0x1p7f);
        r = magnitude >= bits_of(61440.0f) ? 0x7c : r;
        r = magnitude > 0x7f800000u ? 0x7e : r;
        to[i] = (uint8_t)(sign | r);
    }
}

static void complex64_to_f32(void *restrict y, const void *restrict x, int64_t n) {
    const float *from = x; /* (n, 2) */
    float *to = y;
    for (int64_t i = 0; i < n; i++) to[i] = from[2 * i];
}

static void f32_to_complex64(void *restrict y, const void *restrict x, int64_t n) {
    const float *from = x;
    float *to = y; /* (n, 2) */
    for (int64_t i = 0; i < n; i++) {
        to[2 * i] = from[i];
        to[2 * i + 1] = 0;
    }
}

static void complex64_to_truth(void *restrict y, const void *restrict x, int64_t n) {
    const float *from = x; /* (n, 2) */
    uint8_t *to = y;
    for (int64_t i = 0; i < n; i++) to[i] = (from[2 * i] != 0) | (from[2 * i + 1] != 0);
}

static const converter widen[CT_DTYPE_COUNT] = {[CT_F16] = f16_to_f32,
                                                [CT_BF16] = bf16_to_f32,
                                                [CT_F8E4M3] = f8e4m3_to_f32,
                                                [CT_F8E5M2] = f8e5m2_to_f32,
                                                [CT_COMPLEX64] = complex64_to_f32};
static const converter narrow[CT_DTYPE_COUNT] = {[CT_F16] = f32_to_f16,
                                                 [CT_BF16] = f32_to_bf16,
                                                 [CT_F8E4M3] = f32_to_f8e4m3,
                                                 [CT_F8E5M2] = f32_to_f8e5m2,
                                                 [CT_COMPLEX64] = f32_to_complex64};

/* ---- Runs ---- */

typedef struct job {
    rows rows;
    const char *x;
    char *y;
    size_t x_size, y_size;
    converter first, second; /* x to y, or to f32 and on; first NULL: a copy */
    int64_t chunk;
} job;

static void plan(job *j, ct_dtype from, ct_dtype to) {
    if (from == to) return;
    if (from == CT_COMPLEX64 && to == CT_BOOL) {
        j->first = complex64_to_truth;
    } else if (plain[from][to]) {
        j->first = plain[from][to];
    } else {
        j->first = widen[from] ? widen[from] : plain[from][CT_F32];
        converter on = narrow[to] ? narrow[to] : plain[CT_F32][to];
        if (!j->first) j->first = on; /* x is f32 */
        else j->second = on;          /* NULL where y is f32 */
    }
}

static void convert_dense(const job *j, char *y, const char *x, int64_t n) {
    if (!j->first) {
        memcpy(y, x, (size_t)n * j->y_size);
    } else if (!j->second) {
        j->first(y, x, n);
    } else {
        float middle[BLOCK];
        for (int64_t i = 0; i < n; i += BLOCK) {
            int64_t m = ct__min64(n - i, BLOCK);
            j->first(middle, x + i * (int64_t)j->x_size, m);
            j->second(y + i * (int64_t)j->y_size, middle, m);
        }
    }
}

static void convert_run(const job *j, const rows_run *run) {
    char *y = j->y + run->at[0] * (int64_t)j->y_size;
    const char *x = j->x + run->at[1] * (int64_t)j->x_size;
    if (run->step[0] == 1 && run->step[1] == 1) {
        convert_dense(j, y, x, run->n);
        return;
    }
    uint64_t x_block[BLOCK], y_block[BLOCK];
    for (int64_t i = 0; i < run->n; i += BLOCK) {
        int64_t m = ct__min64(run->n - i, BLOCK);
        const char *from = x + i * run->step[1] * (int64_t)j->x_size;
        char *to = y + i * run->step[0] * (int64_t)j->y_size;
        bool x_dense = run->step[1] == 1, y_dense = run->step[0] == 1;
        if (!x_dense) ct__copy_run(x_block, 1, from, run->step[1], m, j->x_size);
        convert_dense(j, y_dense ? to : (char *)y_block, x_dense ? from : (const char *)x_block, m);
        if (!y_dense) ct__copy_run(to, run->step[0], y_block, 1, m, j->y_size);
    }
}

static void convert_chunk(void *context, int64_t chunk, int worker) {
    (void)worker;
    const job *j = context;
    int64_t first = chunk * j->chunk, end = ct__min64(first + j->chunk, j->rows.count);
    while (first < end) {
        rows_run run = rows_at(&j->rows, first, end);
        convert_run(j, &run);
        first += run.n;
    }
}

static bool run_convert(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view *x = call->in[0], *y = call->out[0];
    job j = {.rows = rows_of(y, x),
             .x_size = ct_dtype_size(x->dtype),
             .y_size = ct_dtype_size(y->dtype),
             .chunk = ct__grain(CHUNK)};
    j.x = ct__address(x, j.x_size);
    j.y = ct__address(y, j.y_size);
    plan(&j, x->dtype, y->dtype);
    ct__parallel((j.rows.count + j.chunk - 1) / j.chunk, convert_chunk, &j);
    return true;
}

static void convert_part(const ct_call *call, int64_t first, int64_t n, char *const *ptr) {
    (void)first;
    const ct_dtype from = call->in[0]->dtype, to = call->out[0]->dtype;
    job j = {.x_size = ct_dtype_size(from), .y_size = ct_dtype_size(to)};
    plan(&j, from, to);
    convert_dense(&j, ptr[1], ptr[0], n);
}

static const ct_cpu_step step = {.part = convert_part, .cost = 2};

/* A lowering runs half types in f32, so for those a copy is cheaper. */
static const char *can_cast(const ct_call *call) {
    ct_dtype from = call->in[0]->dtype;
    if (from != call->out[0]->dtype || from == CT_F16 || from == CT_BF16) return NULL;
    return "x has the dtype already";
}

CT_KERNELS(cast_cast) = {
    CT_CANDIDATES_STEP(cast, &step, {"convert", can_cast, NULL, run_convert}),
    CT_CANDIDATES_STEP(convert, &step, {"convert", NULL, NULL, run_convert}),
    {0},
};
