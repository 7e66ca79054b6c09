/* What this machine can do at most: multiply-adds of each kind on registers alone, and streams through memory with
 * ordinary loads and stores. Measured with the same threads as the workloads. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "cli/bench.h"
#include "core/threads.h" /* not public: the limits are measured on the threads that run the workloads, and cut as those are */

enum { ROUNDS = 1 << 14 }; /* of multiply-adds, a few hundred microseconds */

/* Runs ROUNDS of so many multiply-adds each; what it returns keeps them from being left out. */
typedef float (*peak_fn)(void);
static volatile float sink;

typedef struct peak {
    peak_fn run;
    int sums;     /* accumulators, enough to hide the latency of their instruction */
    double flops; /* of an instruction */
} peak;

#if defined(__x86_64__)
/* Operands of all bits: a processor that multiplies zeros takes less power, and may run faster than it ever does on numbers. */
static _Alignas(64) unsigned char operands[3][64];

#define TWELVE(X, F) X(0, F) X(1, F) X(2, F) X(3, F) X(4, F) X(5, F) X(6, F) X(7, F) X(8, F) X(9, F) X(10, F) X(11, F)
#define TWENTY_FOUR(X, F) \
    TWELVE(X, F)          \
    X(12, F) X(13, F) X(14, F) X(15, F) X(16, F) X(17, F) X(18, F) X(19, F) X(20, F) X(21, F) X(22, F) X(23, F)
/* Sums by name, since an array would go through memory; in each round the operands count as new. */
#define SUM_FIRST(i, TYPE) TYPE s##i = i % 3 == 0 ? a : i % 3 == 1 ? b : c;
#define SUM_NEW(i, F)      __asm__ volatile("" : "+v"(s##i));
#define SUM_STEP(i, STEP)  s##i = i % 3 == 0 ? STEP(a, b, s##i) : i % 3 == 1 ? STEP(b, c, s##i) : STEP(c, a, s##i);
#define SUM_TAKE(i, FIRST) total += (float)FIRST(s##i);
#define PEAK(NAME, TARGET, TYPE, STEP, FIRST, SUMS)                                                              \
    __attribute__((target(TARGET))) static float NAME(void) {                                                    \
        TYPE a, b, c;                                                                                            \
        float total = 0;                                                                                         \
        memcpy(&a, operands[0], sizeof a), memcpy(&b, operands[1], sizeof b), memcpy(&c, operands[2], sizeof c); \
        SUMS(SUM_FIRST, TYPE)                                                                                    \
        SUMS(SUM_NEW, )                                                                                          \
        for (int round = 0; round < ROUNDS; round++) {                                                           \
            __asm__ volatile("" : "+v"(a), "+v"(b), "+v"(c));                                                    \
            SUMS(SUM_STEP, STEP)                                                                                 \
        }                                                                                                        \
        SUMS(SUM_TAKE, FIRST)                                                                                    \
        return total;                                                                                            \
    }
#define FIRST_512(v)        _mm512_cvtss_f32(v)
#define FIRST_512D(v)       _mm512_cvtsd_f64(v)
#define FIRST_256(v)        _mm256_cvtss_f32(v)
#define FIRST_256D(v)       _mm256_cvtsd_f64(v)
#define FIRST_128(v)        _mm_cvtss_f32(v)
#define FIRST_128D(v)       _mm_cvtsd_f64(v)
#define SEPARATE(a, b, s)   _mm_add_ps(_mm_mul_ps(a, b), s)
#define SEPARATE_D(a, b, s) _mm_add_pd(_mm_mul_pd(a, b), s)
#define DOT(a, b, s)        _mm512_dpbf16_ps(s, (__m512bh)a, (__m512bh)b)
PEAK(fma_f32_avx512, "avx512f", __m512, _mm512_fmadd_ps, FIRST_512, TWENTY_FOUR)
PEAK(fma_f64_avx512, "avx512f", __m512d, _mm512_fmadd_pd, FIRST_512D, TWENTY_FOUR)
PEAK(dot_bf16_avx512, "avx512f,avx512bf16", __m512, DOT, FIRST_512, TWENTY_FOUR)
PEAK(fma_f32_avx2, "avx2,fma", __m256, _mm256_fmadd_ps, FIRST_256, TWELVE)
PEAK(fma_f64_avx2, "avx2,fma", __m256d, _mm256_fmadd_pd, FIRST_256D, TWELVE)
PEAK(fma_f32_base, "sse2", __m128, SEPARATE, FIRST_128, TWELVE)
PEAK(fma_f64_base, "sse2", __m128d, SEPARATE_D, FIRST_128D, TWELVE)
#undef PEAK

/* Numbers between 1/2 and 1 in the type of the kind. */
static void make_operands(int kind) {
    uint32_t word = 1;
    for (size_t i = 0; i < sizeof operands / 8; i++) {
        word = word * 1664525u + 1013904223u;
        const uint64_t bits = word | (uint64_t)(word * 2654435761u) << 32;
        const uint64_t number = kind == 1   ? (bits & 0x000fffffffffffffu) | 0x3fe0000000000000u
                                : kind == 0 ? (bits & 0x007fffff007fffffu) | 0x3f0000003f000000u
                                            : (bits & 0x007f007f007f007fu) | 0x3f003f003f003f00u;
        memcpy(&operands[0][0] + 8 * i, &number, 8);
    }
}

static peak peak_of(int kind) {
    const char *isa = ct_isa();
    make_operands(kind);
    bool wide = strncmp(isa, "avx512", 6) == 0, avx2 = strcmp(isa, "avx2") == 0;
    switch (kind) {
    case 0:
        return wide   ? (peak){fma_f32_avx512, 24, 32}
               : avx2 ? (peak){fma_f32_avx2, 12, 16}
                      : (peak){fma_f32_base, 12, 8};
    case 1:
        return wide ? (peak){fma_f64_avx512, 24, 16} : avx2 ? (peak){fma_f64_avx2, 12, 8} : (peak){fma_f64_base, 12, 4};
    default: return strcmp(isa, "avx512bf16") == 0 ? (peak){dot_bf16_avx512, 24, 64} : (peak){.run = NULL};
    }
}
#else
/* Vectors of 128 bits, which is what NEON has; the compiler makes fused instructions of __builtin_fma. */
enum { SUMS = 12 };
#define PEAK(NAME, TYPE, LANES, FMA)                                          \
    static float NAME(void) {                                                 \
        TYPE s[SUMS][LANES] = {{0}}, a = (TYPE)0.7123, b = (TYPE)0.8317;      \
        __asm__ volatile("" : "+w"(a), "+w"(b));                              \
        for (int round = 0; round < ROUNDS; round++) {                        \
            for (int i = 0; i < SUMS; i++)                                    \
                for (int k = 0; k < LANES; k++) s[i][k] = FMA(a, b, s[i][k]); \
            __asm__ volatile("" ::: "memory");                                \
        }                                                                     \
        float total = 0;                                                      \
        for (int i = 0; i < SUMS; i++) total += (float)s[i][0];               \
        return total;                                                         \
    }
PEAK(fma_f32_any, float, 4, __builtin_fmaf)
PEAK(fma_f64_any, double, 2, __builtin_fma)
#undef PEAK

static peak peak_of(int kind) {
    return kind == 0 ? (peak){fma_f32_any, SUMS, 8} : kind == 1 ? (peak){fma_f64_any, SUMS, 4} : (peak){.run = NULL};
}
#endif

static void peak_chunk(void *context, int64_t chunk, int worker) {
    (void)chunk;
    (void)worker;
    sink = ((const peak *)context)->run();
}

/* Several chunks per thread, so that none waits long for the other. */
enum { CHUNKS_PER_THREAD = 4 };

static bool run_peak(void *context) {
    ct__parallel((int64_t)CHUNKS_PER_THREAD * ct__threads(), peak_chunk, context);
    return true;
}

static bool measure_peak(int kind, double min_time, bench_result *result) {
    peak p = peak_of(kind);
    if (!p.run) return false; /* not at this level */
    bool ok = bench_measure(run_peak, &p, min_time, result);
    result->flops = p.flops * ROUNDS * p.sums * CHUNKS_PER_THREAD * ct__threads();
    return ok;
}

bool bench_limit_fma_f32(double min_time, bench_result *result) { return measure_peak(0, min_time, result); }
bool bench_limit_fma_f64(double min_time, bench_result *result) { return measure_peak(1, min_time, result); }
bool bench_limit_bf16dot(double min_time, bench_result *result) { return measure_peak(2, min_time, result); }

/* ---- Memory ---- */

enum { ELEMENTS = 1 << 24, STREAM_CHUNK = 1 << 17 };

typedef struct streams {
    const float *from;
    float *to;
    float (*read)(const float *from); /* the sum of a chunk */
} streams;

/* Ordinary stores: a library's memcpy would switch to those that pass the caches by. */
static void copy_chunk(void *context, int64_t chunk, int worker) {
    (void)worker;
    const streams *s = context;
    const float *from = s->from + chunk * STREAM_CHUNK;
    float *to = s->to + chunk * STREAM_CHUNK;
    for (int64_t i = 0; i < STREAM_CHUNK; i += 16) {
        memcpy(to + i, from + i, 16 * sizeof *to);
        __asm__ volatile("" ::: "memory");
    }
}

/* The sum of a chunk in vectors of so many bytes, with or without prefetches: which is faster hangs on the processor. */
#define READ(NAME, TARGET, BYTES, AHEAD)                                                                \
    TARGET static float NAME(const float *from) {                                                       \
        typedef float vector __attribute__((vector_size(BYTES), aligned(4), may_alias));                \
        enum { LANES = BYTES / 4 };                                                                     \
        vector s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                  \
        float total = 0;                                                                                \
        for (int64_t i = 0; i < STREAM_CHUNK; i += 4 * LANES) {                                         \
            const vector *at = (const vector *)(from + i);                                              \
            if (AHEAD)                                                                                  \
                for (int k = 0; k < 4 * LANES; k += 16) __builtin_prefetch(from + i + k + AHEAD, 0, 2); \
            s0 += at[0], s1 += at[1], s2 += at[2], s3 += at[3];                                         \
        }                                                                                               \
        s0 += s1, s2 += s3, s0 += s2;                                                                   \
        for (int k = 0; k < LANES; k++) total += s0[k];                                                 \
        return total;                                                                                   \
    }
enum { READ_AHEAD = 768 };
READ(read_16, , 16, 0)
READ(read_16_ahead, , 16, READ_AHEAD)
#if defined(__x86_64__)
READ(read_32, __attribute__((target("avx2"))), 32, 0)
READ(read_32_ahead, __attribute__((target("avx2"))), 32, READ_AHEAD)
READ(read_64, __attribute__((target("avx512f"))), 64, 0)
READ(read_64_ahead, __attribute__((target("avx512f"))), 64, READ_AHEAD)
#endif
#undef READ

static float (*read_of(bool ahead))(const float *from) {
#if defined(__x86_64__)
    if (strncmp(ct_isa(), "avx512", 6) == 0) return ahead ? read_64_ahead : read_64;
    if (strcmp(ct_isa(), "avx2") == 0) return ahead ? read_32_ahead : read_32;
#endif
    return ahead ? read_16_ahead : read_16;
}

static void read_chunk(void *context, int64_t chunk, int worker) {
    (void)worker;
    const streams *s = context;
    sink = s->read(s->from + chunk * STREAM_CHUNK);
}

static bool run_copy(void *context) {
    ct__parallel(ELEMENTS / STREAM_CHUNK, copy_chunk, context);
    return true;
}

static bool run_read(void *context) {
    ct__parallel(ELEMENTS / STREAM_CHUNK, read_chunk, context);
    return true;
}

bool bench_limit_copy(double min_time, bench_result *result) {
    ct_tensor *x = ct_rand(CT_DIMS(ELEMENTS)), *y = ct_zeros(CT_DIMS(ELEMENTS));
    streams s = {.from = ct_data(x), .to = ct_data_mut(y)};
    return s.from && s.to && bench_measure(run_copy, &s, min_time, result);
}

bool bench_limit_read(double min_time, bench_result *result) {
    streams s = {.from = ct_data(ct_rand(CT_DIMS(ELEMENTS)))};
    bench_result other;
    s.read = read_of(true);
    if (!s.from || !bench_measure(run_read, &s, min_time / 2, result)) return false;
    s.read = read_of(false);
    if (!bench_measure(run_read, &s, min_time / 2, &other)) return false;
    if (other.median < result->median) *result = other;
    return true;
}
