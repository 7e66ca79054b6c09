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

/* Rounds of multiply-adds, a few hundred microseconds; and the accumulators, more than enough to hide their latency. */
enum { ROUNDS = 1 << 14, SUMS = 12 };

/* Runs ROUNDS x SUMS instructions; what it returns keeps them from being left out. */
typedef float (*peak_fn)(void);
static volatile float sink;

typedef struct peak {
    peak_fn run;
    double flops; /* of an instruction */
} peak;

#if defined(__x86_64__)
/* Operands of all bits: a processor that multiplies zeros takes less power, and may run faster than it ever does on numbers. */
static _Alignas(64) unsigned char operands[3][64];

#define ALL_SUMS(F) (F(s0) + F(s1) + F(s2) + F(s3) + F(s4) + F(s5) + F(s6) + F(s7) + F(s8) + F(s9) + F(s10) + F(s11))
/* Twelve sums by name, since an array would go through memory; in each round the operands count as new. */
#define PEAK(NAME, TARGET, TYPE, STEP, FIRST)                                                                        \
    __attribute__((target(TARGET))) static float NAME(void) {                                                        \
        TYPE a, b, c, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11;                                              \
        memcpy(&a, operands[0], sizeof a), memcpy(&b, operands[1], sizeof b), memcpy(&c, operands[2], sizeof c);     \
        s0 = s3 = s6 = s9 = a, s1 = s4 = s7 = s10 = b, s2 = s5 = s8 = s11 = c;                                       \
        __asm__ volatile(""                                                                                          \
                         : "+x"(s0), "+x"(s1), "+x"(s2), "+x"(s3), "+x"(s4), "+x"(s5), "+x"(s6), "+x"(s7), "+x"(s8), \
                           "+x"(s9), "+x"(s10), "+x"(s11));                                                          \
        for (int round = 0; round < ROUNDS; round++) {                                                               \
            __asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c));                                                        \
            s0 = STEP(a, b, s0), s1 = STEP(b, c, s1), s2 = STEP(c, a, s2), s3 = STEP(a, b, s3);                      \
            s4 = STEP(b, c, s4), s5 = STEP(c, a, s5), s6 = STEP(a, b, s6), s7 = STEP(b, c, s7);                      \
            s8 = STEP(c, a, s8), s9 = STEP(a, b, s9), s10 = STEP(b, c, s10), s11 = STEP(c, a, s11);                  \
        }                                                                                                            \
        return (float)ALL_SUMS(FIRST);                                                                               \
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
PEAK(fma_f32_avx512, "avx512f", __m512, _mm512_fmadd_ps, FIRST_512)
PEAK(fma_f64_avx512, "avx512f", __m512d, _mm512_fmadd_pd, FIRST_512D)
PEAK(dot_bf16_avx512, "avx512f,avx512bf16", __m512, DOT, FIRST_512)
PEAK(fma_f32_avx2, "avx2,fma", __m256, _mm256_fmadd_ps, FIRST_256)
PEAK(fma_f64_avx2, "avx2,fma", __m256d, _mm256_fmadd_pd, FIRST_256D)
PEAK(fma_f32_base, "sse2", __m128, SEPARATE, FIRST_128)
PEAK(fma_f64_base, "sse2", __m128d, SEPARATE_D, FIRST_128D)
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
    case 0: return wide ? (peak){fma_f32_avx512, 32} : avx2 ? (peak){fma_f32_avx2, 16} : (peak){fma_f32_base, 8};
    case 1: return wide ? (peak){fma_f64_avx512, 16} : avx2 ? (peak){fma_f64_avx2, 8} : (peak){fma_f64_base, 4};
    default: return strcmp(isa, "avx512bf16") == 0 ? (peak){dot_bf16_avx512, 64} : (peak){NULL, 0};
    }
}
#else
/* Vectors of 128 bits, which is what NEON has; the compiler makes fused instructions of __builtin_fma. */
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
    return kind == 0 ? (peak){fma_f32_any, 8} : kind == 1 ? (peak){fma_f64_any, 4} : (peak){NULL, 0};
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
    result->flops = p.flops * ROUNDS * SUMS * CHUNKS_PER_THREAD * ct__threads();
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

typedef float four __attribute__((vector_size(16)));

static void read_chunk(void *context, int64_t chunk, int worker) {
    (void)worker;
    const streams *s = context;
    const float *from = s->from + chunk * STREAM_CHUNK;
    four sums[8] = {{0}};
    for (int64_t i = 0; i < STREAM_CHUNK; i += 32)
        for (int k = 0; k < 8; k++) {
            four x;
            memcpy(&x, from + i + 4 * k, sizeof x);
            sums[k] += x;
        }
    float total = 0;
    for (int k = 0; k < 8; k++) total += sums[k][0] + sums[k][1] + sums[k][2] + sums[k][3];
    sink = total;
}

static bool run_copy(void *context) {
    ct__parallel(ELEMENTS / STREAM_CHUNK, copy_chunk, context);
    return true;
}

static bool run_read(void *context) {
    ct__parallel(ELEMENTS / STREAM_CHUNK, read_chunk, context);
    return true;
}

static bool measure_streams(bool (*run)(void *), double min_time, bench_result *result) {
    ct_tensor *x = ct_rand(CT_DIMS(ELEMENTS)), *y = ct_zeros(CT_DIMS(ELEMENTS));
    streams s = {.from = ct_data(x), .to = ct_data_mut(y)};
    return s.from && s.to && bench_measure(run, &s, min_time, result);
}

bool bench_limit_copy(double min_time, bench_result *result) { return measure_streams(run_copy, min_time, result); }
bool bench_limit_read(double min_time, bench_result *result) { return measure_streams(run_read, min_time, result); }
