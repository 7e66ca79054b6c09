/* test_simd_math.c - error bounds and special values of backends/cpu/simd, at every ISA level of this
   machine. Compiled once per ISA with -DCT_ISA=<isa>, and once more with -DTEST_SIMD_MAIN for main().
   -v prints the measured errors; SIMD_TEST_STRIDE=1 walks all 2^32 floats instead of a sample. */
#ifdef TEST_SIMD_MAIN

#include <stdio.h>
#include <string.h>

#define DECLARE(isa) int test_simd_math_##isa(int verbose, int *passed, int *failed) __attribute__((weak));
#define RUN(isa, supported)                                               \
    if (!test_simd_math_##isa) printf("skipped: %s (not built)\n", #isa); \
    else if (!(supported)) printf("skipped: %s\n", #isa);                 \
    else test_simd_math_##isa(verbose, &passed, &failed);

DECLARE(base)
#if defined(__x86_64__)
DECLARE(avx2)
DECLARE(avx512)
DECLARE(avx512bf16)
#elif defined(__aarch64__)
DECLARE(neon)
#endif

int main(int argc, char **argv) {
    int verbose = argc > 1 && !strcmp(argv[1], "-v"), passed = 0, failed = 0;
    RUN(base, 1)
#if defined(__x86_64__)
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    RUN(avx2, avx2)
    RUN(avx512, avx512)
    RUN(avx512bf16, avx512 && __builtin_cpu_supports("avx512bf16"))
#elif defined(__aarch64__)
    RUN(neon, 1)
#endif
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

#else

#include "backends/cpu/simd/vmath.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define STRING_(x) #x
#define STRING(x)  STRING_(x)
#define ISA_NAME   STRING(CT_ISA)

typedef long double wide;

static int verbose_flag, *passed_count, *failed_count;

static void verdict(const char *what, const char *type, int ok, double worst, double bound, double at, double at2,
                    double got, double want) {
    ++*(ok ? passed_count : failed_count);
    if (ok && verbose_flag) printf("%-10s %s %-12s %7.3f ulp (bound %g)\n", ISA_NAME, type, what, worst, bound);
    if (!ok)
        printf("FAILED %s %s %s: %.3f ulp, bound %g, at %a %a: got %a, want %a\n", ISA_NAME, type, what, worst, bound,
               at, at2, got, want);
}

static void check(const char *what, int ok) {
    ++*(ok ? passed_count : failed_count);
    if (!ok) printf("FAILED %s %s\n", ISA_NAME, what);
}

/* ---- distance in units of the last place of the true result ---- */

/* Infinity for a special value that is wrong (NaN, infinity, sign of zero). */
static double distance(wide got, wide want, int digits, int min_exponent, wide largest) {
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    if (isnan(got)) return INFINITY;
    if (got == want) return signbit(got) == signbit(want) ? 0 : INFINITY;
    int exponent;
    wide magnitude = fabsl(want);
    if (magnitude > largest) magnitude = largest;
    frexpl(magnitude, &exponent);
    if (exponent < min_exponent) exponent = min_exponent;
    wide unit = ldexpl(1, exponent - digits);
    if (isinf(got) && fabsl(want) < largest + unit / 2) return INFINITY;
    if (isinf(got)) return signbit(got) == signbit(want) ? 0 : INFINITY;
    if (fabsl(want) > largest) return (double)((largest + unit / 2 - fabsl(got)) / unit);
    if (want != 0 && signbit(got) != signbit(want)) return INFINITY;
    return (double)(fabsl(got - want) / unit);
}
static double distance_f32(float got, wide want) {
    double w = (double)want, size = fabs(w);
    if (!(size >= 0x1p-125 && size <= 0x1p127 && fabsf(got) <= FLT_MAX && !signbit(got) == !signbit(w)))
        return distance(got, want, 24, -125, FLT_MAX);
    uint64_t power; /* the usual case, quickly: 2^floor(log2 |want|) by masking */
    memcpy(&power, &size, sizeof power);
    power &= 0x7ff0000000000000u;
    memcpy(&size, &power, sizeof size);
    return fabs(got - w) / size * 0x1p23;
}
static double distance_f64(double got, wide want) { return distance(got, want, 53, -1021, DBL_MAX); }

/* ---- the inputs ---- */

static uint64_t random_state;
static uint64_t random_bits(void) { /* splitmix64 */
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static double uniform(double low, double high) { return low + (high - low) * (double)(random_bits() >> 11) * 0x1p-53; }
static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static uint32_t bits_of_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static uint64_t bits_of_f64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* clang-format off */
/* Places where a function changes its formula, overflows, underflows or has a zero. */
static const double landmarks[] = {
    0, 0x1p-149, 0x1p-126, 0x1p-1022, 0x1p-1074, 0x1p-53, 0x1p-24, 1.0 / 16, 1.0 / 8, 0.25, 1.0 / 3,
    0.34657359027997264, 0.41421356237309503, 0.5, 0.55, 0.625, 0.6931471805599453, 0.75, 1, 1.5,
    1.5707963267948966, 2, 2.414213562373095, 3.141592653589793, 3.92, 3.9375, 4.71238898038469, 6,
    9.0109, 9.1, 17.3, 19.0625, 27.2, 28, 37, 87, 87.33654, 88, 88.37626, 88.72284, 89, 89.41598,
    103.2789, 103.97208, 104, 126, 127, 128, 149, 150, 151, 708, 708.3964185322641,
    709.782712893384, 710.4758600739439, 744.4400719213812, 745.1332191019412, 746, 1022, 1024, 1074,
    1075, 1076, 65504, 65536, 0x1p20, 0x1p24, 0x1p30, 0x1p53, 0x1p60, 0x1p64, 0x1.fffffep127,
    0x1.fffffffffffffp1023, HUGE_VAL, NAN};
/* clang-format on */
#define LANDMARKS  ((int)(sizeof landmarks / sizeof *landmarks))
#define AROUND     24 /* this many neighbors on each side */

#define NEAR       (LANDMARKS * 2 * (2 * AROUND + 1))
#define SAMPLE_F64 25000

static float near_f32[NEAR];
static double near_f64[NEAR], sample_f64[SAMPLE_F64];
static long stride_f32, sample_count_f32, sample_count_f64 = SAMPLE_F64;

/* element i of the sample of bit patterns (f32) or of random numbers (f64) */
static float sample_of_f32(long i) { return float_of((uint32_t)((uint64_t)i * (uint64_t)stride_f32)); }
static double sample_of_f64(long i) { return sample_f64[i]; }

static void make_inputs(long stride) {
    stride_f32 = stride, sample_count_f32 = 0xffffffff / stride + 1;
    random_state = 1;
    for (int i = 0; i < SAMPLE_F64; i++) {
        static const double range[] = {0.01, 1, 3, 10, 100, 750, 2000000};
        int kind = (int)(random_bits() % 9);
        double r = kind < 7 ? range[kind] : 0;
        sample_f64[i] = kind < 7 ? uniform(-r, r) : double_of(random_bits());
    }
    long count = 0;
    for (int i = 0; i < LANDMARKS; i++)
        for (int j = -AROUND; j <= AROUND; j++)
            for (int sign = 0; sign < 2; sign++) {
                uint32_t b32 = bits_of_f32((float)landmarks[i]) + (uint32_t)j;
                uint64_t b64 = bits_of_f64(landmarks[i]) + (uint64_t)(int64_t)j;
                near_f32[count] = float_of(b32 ^ (uint32_t)sign << 31);
                near_f64[count++] = double_of(b64 ^ (uint64_t)sign << 63);
            }
}

/* ---- one argument ---- */

typedef void loop_f32(const float *in, float *out, long n);
typedef void loop_f64(const double *in, double *out, long n);

/* Evaluates in chunks, and checks that the result of an element does not depend on its neighbors. */
#define CHUNK      1024
#define UNARY_TEST(TYPE, T)                                                                                  \
    static void unary_##TYPE(const char *name, loop_##TYPE *loop, wide (*ref)(T), double bound, long skip) { \
        double worst = 0, at = 0, got = 0, want = 0;                                                         \
        static T in[CHUNK], out[CHUNK];                                                                      \
        int alone_ok = 1;                                                                                    \
        long sample = sample_count_##TYPE / skip;                                                            \
        for (long i = 0; i < sample + NEAR;) {                                                               \
            int n = 0;                                                                                       \
            for (; n < CHUNK && i < sample + NEAR; i++)                                                      \
                in[n++] = i < sample ? sample_of_##TYPE(i * skip) : near_##TYPE[i - sample];                 \
            loop(in, out, n);                                                                                \
            for (int k = 0; k < n; k++) {                                                                    \
                wide w = ref(in[k]);                                                                         \
                double d = distance_##TYPE(out[k], w);                                                       \
                if (d > worst) worst = d, at = in[k], got = out[k], want = (double)w;                        \
            }                                                                                                \
            for (int k = 0; k < n; k += 37) {                                                                \
                T alone;                                                                                     \
                loop(in + k, &alone, 1);                                                                     \
                int nan = alone != alone && out[k] != out[k];                                                \
                alone_ok &= nan || bits_of_##TYPE(alone) == bits_of_##TYPE(out[k]);                          \
            }                                                                                                \
        }                                                                                                    \
        verdict(name, #TYPE, worst <= bound, worst, bound, at, 0, got, want);                                \
        if (!alone_ok) check(name, 0), printf("    depends on the position in the vector\n");                \
    }
UNARY_TEST(f32, float)
UNARY_TEST(f64, double)

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double recip(double x) { return 1 / x; }
static double rsqrt(double x) { return 1 / sqrt(x); }
static double ndtr(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static wide ndtrl(wide x) { return 0.5L * erfcl(-x * 0.707106781186547524400844362104849039L); }
static wide recipl(wide x) { return 1 / x; }
static wide rsqrtl(wide x) { return 1 / sqrtl(x); }
static wide sigmoidl(wide x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }

/* name, bound f32, bound f64, every how many of the f32 sample */
/* clang-format off */
#define UNARY_LIST(X)                                                                            \
    X(exp, 2, 2, 1) X(log, 2, 2, 1) X(tanh, 2, 2, 1) X(sin, 2, 2, 1) X(cos, 2, 2, 1)             \
    X(erf, 2, 2, 1) X(sigmoid, 4, 4, 7) X(exp2, 2, 2, 7) X(expm1, 4, 4, 7) X(log2, 4, 4, 7)      \
    X(log10, 4, 4, 7) X(log1p, 4, 4, 7) X(tan, 4, 4, 7) X(asin, 4, 4, 7) X(acos, 4, 4, 7)        \
    X(atan, 4, 4, 7) X(sinh, 4, 4, 7) X(cosh, 4, 4, 7) X(asinh, 4, 4, 7) X(acosh, 4, 4, 7)       \
    X(atanh, 4, 4, 7) X(erfc, 4, 4, 7) X(ndtr, 5, 5, 7) X(cbrt, 2, 2, 7) X(sqrt, 0.5, 0.5, 41)                    \
    X(recip, 0.5, 0.5, 41) X(rsqrt, 1.5, 1.5, 41) X(floor, 0, 0, 41) X(ceil, 0, 0, 41)           \
    X(trunc, 0, 0, 41) X(rint, 0, 0, 41)
/* clang-format on */

#define vf32_rint vf32_round
#define vf64_rint vf64_round
#define UNARY_LOOP(name, b32, b64, skip)                                         \
    static void name##_loop_f32(const float *in, float *out, long n) {           \
        for (long i = 0; i < n; i += VF32_LANES) {                               \
            int left = n - i < VF32_LANES ? (int)(n - i) : VF32_LANES;           \
            vf32_store_n(out + i, vf32_##name(vf32_load_n(in + i, left)), left); \
        }                                                                        \
    }                                                                            \
    static void name##_loop_f64(const double *in, double *out, long n) {         \
        for (long i = 0; i < n; i += VF64_LANES) {                               \
            int left = n - i < VF64_LANES ? (int)(n - i) : VF64_LANES;           \
            vf64_store_n(out + i, vf64_##name(vf64_load_n(in + i, left)), left); \
        }                                                                        \
    }                                                                            \
    static wide name##_ref_f32(float x) { return name(x); }                      \
    static wide name##_ref_f64(double x) { return name##l(x); }
UNARY_LIST(UNARY_LOOP)

static void test_unary(void) {
#define RUN_UNARY(name, b32, b64, skip)                           \
    unary_f32(#name, name##_loop_f32, name##_ref_f32, b32, skip); \
    unary_f64(#name, name##_loop_f64, name##_ref_f64, b64, 1);
    UNARY_LIST(RUN_UNARY)
}

/* ---- no subnormal numbers on the way ---- */

/* Many processors take a hundred cycles for an operation on a subnormal number. Ordinary arguments must not meet one, least of all among the
 * constants: the processor notes it in its status word. */
#if defined(__x86_64__)
static void subnormal_free(const char *name, loop_f32 *loop32, loop_f64 *loop64) {
    enum { COUNT = 4096, NOTED = 2, FLAGS = 0x3f };
    static float in32[COUNT], out32[COUNT];
    static double in64[COUNT], out64[COUNT];
    for (int i = 0; i < COUNT; i++) {
        in64[i] =
            (i % 2 ? -1 : 1) * (0.001 + 0.998 * i / COUNT) * (i % 3 ? 1 : 4); /* beyond 1 too, where there is no NaN */
        in32[i] = (float)in64[i];
    }
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before & ~(unsigned)FLAGS);
    loop32(in32, out32, COUNT);
    const unsigned flags32 = _mm_getcsr();
    _mm_setcsr(before & ~(unsigned)FLAGS);
    loop64(in64, out64, COUNT);
    const unsigned flags64 = _mm_getcsr();
    _mm_setcsr(before);
    ++*(flags32 & NOTED ? failed_count : passed_count);
    ++*(flags64 & NOTED ? failed_count : passed_count);
    if (flags32 & NOTED) printf("FAILED %s f32 %s: a subnormal number on the way\n", ISA_NAME, name);
    if (flags64 & NOTED) printf("FAILED %s f64 %s: a subnormal number on the way\n", ISA_NAME, name);
}
#endif

static void test_subnormal_free(void) {
#if defined(__x86_64__)
#define RUN_SUBNORMAL(name, b32, b64, skip) subnormal_free(#name, name##_loop_f32, name##_loop_f64);
    UNARY_LIST(RUN_SUBNORMAL)
#endif
}

/* ---- two arguments ---- */

static wide remainder_ref(wide a, wide b) {
    wide r = fmodl(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static wide floor_div_ref(wide a, wide b) {
    wide ratio = a / b;
    if (b == 0 || isnan(ratio) || isinf(a)) return b == 0 ? ratio : NAN;
    wide q = roundl((a - remainder_ref(a, b)) / b);
    return q == 0 ? copysignl(0, ratio) : q;
}
static wide hypot_ref(wide a, wide b) { return hypotl(a, b); }
static wide atan2_ref(wide a, wide b) { return atan2l(a, b); }
static wide pow_ref(wide a, wide b) { return powl(a, b); }
static wide pow_ref_f32(float a, float b) { return pow(a, b); }

#define PAIRS 200000
#define BINARY_TEST(TYPE, T, LANES, VF)                                                                          \
    typedef VF pair_fn_##TYPE(VF, VF);                                                                           \
    static T pair_a_##TYPE[PAIRS], pair_b_##TYPE[PAIRS];                                                         \
    static void binary_##TYPE(const char *name, pair_fn_##TYPE *f, wide (*ref)(T, T), double bound, int count) { \
        double worst = 0, at = 0, at2 = 0, got = 0, want = 0;                                                    \
        T *a = pair_a_##TYPE, *b = pair_b_##TYPE;                                                                \
        for (int i = 0; i < count; i += LANES) {                                                                 \
            T out[LANES];                                                                                        \
            VF##_store(out, f(VF##_load(a + i), VF##_load(b + i)));                                              \
            for (int k = 0; k < LANES; k++) {                                                                    \
                wide w = ref(a[i + k], b[i + k]);                                                                \
                double d = distance_##TYPE(out[k], w);                                                           \
                if (d > worst) worst = d, at = a[i + k], at2 = b[i + k], got = out[k], want = (double)w;         \
            }                                                                                                    \
        }                                                                                                        \
        verdict(name, #TYPE, worst <= bound, worst, bound, at, at2, got, want);                                  \
    }
BINARY_TEST(f32, float, VF32_LANES, vf32)
BINARY_TEST(f64, double, VF64_LANES, vf64)

#define BINARY_LIST(X) X(pow) X(atan2) X(hypot) X(fmod) X(remainder) X(floor_div)
#define BINARY_WRAP(name)                                                     \
    static vf32 name##_pair_f32(vf32 a, vf32 b) { return vf32_##name(a, b); } \
    static vf64 name##_pair_f64(vf64 a, vf64 b) { return vf64_##name(a, b); }
BINARY_LIST(BINARY_WRAP)
#define WIDE_REF(name)                                                         \
    static wide name##_wide_f32(float a, float b) { return name##_ref(a, b); } \
    static wide name##_wide_f64(double a, double b) { return name##_ref(a, b); }
WIDE_REF(atan2) WIDE_REF(hypot) WIDE_REF(remainder) WIDE_REF(floor_div) static wide pow_wide_f64(double a, double b) {
    return pow_ref(a, b);
}
static wide fmod_wide_f32(float a, float b) { return fmodf(a, b); }
static wide fmod_wide_f64(double a, double b) { return fmod(a, b); }

static const double corner[] = {0,
                                1,
                                0.5,
                                2,
                                3,
                                2.5,
                                1e-30,
                                1e30,
                                0x1p-149,
                                0x1.fffffep127,
                                HUGE_VAL,
                                NAN,
                                0x1p24,
                                0x1p53,
                                0x1.000002p0,
                                0x1.fffffep-1,
                                0x1p-1074,
                                0x1.fffffffffffffp1023,
                                33,
                                1075};
#define CORNERS ((int)(sizeof corner / sizeof *corner))

static void test_binary(void) {
    /* every pair of corner values with every sign; then random pairs of several kinds */
    int n = 0;
    random_state = 2;
    for (int i = 0; i < CORNERS; i++)
        for (int j = 0; j < CORNERS; j++)
            for (int sign = 0; sign < 4; sign++, n++) {
                double a = sign & 1 ? -corner[i] : corner[i], b = sign & 2 ? -corner[j] : corner[j];
                pair_a_f64[n] = a, pair_b_f64[n] = b;
                pair_a_f32[n] = (float)a, pair_b_f32[n] = (float)b;
            }
    int special = n - n % 16;
    for (; n < PAIRS; n++) {
        int kind = (int)(random_bits() % 5);
        uint64_t u = random_bits(), v = random_bits();
        double a = double_of(u), b = double_of(v);
        pair_a_f32[n] = float_of((uint32_t)u), pair_b_f32[n] = float_of((uint32_t)v);
        if (kind == 1) a = uniform(0, 20), b = uniform(-20, 20);
        if (kind == 2) a = exp2(uniform(-1000, 1000)), b = uniform(-1.2, 1.2);
        if (kind == 3) a = 1 + uniform(-1, 1) * exp2(uniform(-50, -1)), b = uniform(-700, 700) / log(a);
        if (kind == 4) a = uniform(-100, 100), b = floor(uniform(-60, 60));
        pair_a_f64[n] = a, pair_b_f64[n] = b;
        if (kind == 0) continue;
        if (kind == 2) a = exp2(uniform(-140, 127));
        if (kind == 3) b = uniform(-88, 88) / log(a = (float)a);
        pair_a_f32[n] = (float)a, pair_b_f32[n] = (float)b;
    }
    int all = PAIRS - PAIRS % 16;
    binary_f32("pow", pow_pair_f32, pow_ref_f32, 2, all);
    binary_f64("pow", pow_pair_f64, pow_wide_f64, 2, all);
    binary_f32("atan2", atan2_pair_f32, atan2_wide_f32, 4, all);
    binary_f64("atan2", atan2_pair_f64, atan2_wide_f64, 4, all);
    binary_f32("hypot", hypot_pair_f32, hypot_wide_f32, 1, all);
    binary_f64("hypot", hypot_pair_f64, hypot_wide_f64, 2, all);
    binary_f32("fmod", fmod_pair_f32, fmod_wide_f32, 0, special);
    binary_f64("fmod", fmod_pair_f64, fmod_wide_f64, 0, special);

    /* remainders: quotients of moderate size, where the reference in long double is exact */
    for (n = 0; n < PAIRS; n++) {
        double b = uniform(-10, 10), a = b * floor(uniform(-1e4, 1e4)) + (n % 3 ? uniform(-10, 10) : 0);
        pair_a_f64[n] = a, pair_b_f64[n] = b;
        pair_a_f32[n] = (float)a, pair_b_f32[n] = (float)b;
    }
    binary_f32("fmod", fmod_pair_f32, fmod_wide_f32, 0, all);
    binary_f64("fmod", fmod_pair_f64, fmod_wide_f64, 0, all);
    binary_f32("remainder", remainder_pair_f32, remainder_wide_f32, 1, all);
    binary_f64("remainder", remainder_pair_f64, remainder_wide_f64, 1, all);
    binary_f32("floor_div", floor_div_pair_f32, floor_div_wide_f32, 0, all);
    binary_f64("floor_div", floor_div_pair_f64, floor_div_wide_f64, 0, all);
}

/* ---- functions whose reference is an identity or a table ---- */

static double relative_error(double got, double want) { return got == want ? 0 : fabs(got - want) / fabs(want); }
static double digamma_f64(double x) {
    double lane[VF64_LANES];
    vf64_store(lane, vf64_digamma(vf64_set1(x)));
    return lane[0];
}
static double polygamma_f64(int n, double x) {
    double lane[VF64_LANES];
    vf64_store(lane, vf64_polygamma(n, vf64_set1(x)));
    return lane[0];
}
static double erfinv_f64(double x) {
    double lane[VF64_LANES];
    vf64_store(lane, vf64_erfinv(vf64_set1(x)));
    return lane[0];
}
static float erfinv_f32(float x) {
    float lane[VF32_LANES];
    vf32_store(lane, vf32_erfinv(vf32_set1(x)));
    return lane[0];
}
static float digamma_f32(float x) {
    float lane[VF32_LANES];
    vf32_store(lane, vf32_digamma(vf32_set1(x)));
    return lane[0];
}

static void test_special(void) {
    /* clang-format off: values from mpmath at 200 bits */
    static const double digamma[][2] = {
        {1, -0x1.2788cfc6fb619p-1},      {0.5, -0x1.f6a897d3214fcp0},     {2.25, 0x1.2524cf7b2db82p-1},
        {10, 0x1.20396dc85cc95p1},       {1e-5, -0x1.86a093c353ea9p16},   {100.5, 0x1.26bb2d352de35p2},
        {-3.25, 0x1.1dd776c1aa21fp2},    {-1000.75, 0x1.e23a8d7d3aac5p1}, {1e10, 0x1.7069e2aa27361p4},
        {-0.0001, 0x1.387b618681589p13}, {5, 0x1.8190ed71d7a49p0}};
    static const struct {
        int n;
        double x, y;
    } polygamma[] = {
        {1, 1, 0x1.a51a6625307d3p0},      {1, 0.1, 0x1.95bbb2c5c8286p6},    {1, 25.5, 0x1.47a2e6c518235p-5},
        {1, -0.5, 0x1.1de9e64df22efp3},   {1, -7.25, 0x1.39c4031f13adp4},   {2, 1.5, -0x1.a85808a40aba2p-1},
        {2, -2.75, -0x1.f0787a0b2f011p6}, {3, 0.7, 0x1.9e10ff40d22d4p4},    {3, -1.25, 0x1.858e236e541d7p10},
        {4, 3, -0x1.1712b17dd9a4ap-3},    {5, 12.5, 0x1.91121c05bdfa8p-14}, {10, 2, -0x1.c053f15cede28p10},
        {20, 0.5, -0x1.0e1b3be484882p82}, {1, 1e6, 0x1.0c6f82d72bcaap-20},  {2, 1e-3, -0x1.dcd65009972cep30},
        {1, -100.1, 0x1.9d62334dd3c5ep6}};
    /* clang-format on */
    double worst = 0;
    for (size_t i = 0; i < sizeof digamma / sizeof *digamma; i++)
        worst = fmax(worst, relative_error(digamma_f64(digamma[i][0]), digamma[i][1]));
    check("f64 digamma agrees with mpmath to 2e-15", worst <= 2e-15);
    if (verbose_flag) printf("%-10s f64 digamma      relative error %.2g\n", ISA_NAME, worst);
    check("digamma(+0) = -inf, digamma(-0) = inf, digamma(-2) is NaN",
          digamma_f64(0.0) == -INFINITY && digamma_f64(-0.0) == INFINITY && isnan(digamma_f64(-2)));
    check("f32 digamma rounds the f64 result", digamma_f32(2.25f) == (float)digamma_f64(2.25));

    worst = 0;
    for (size_t i = 0; i < sizeof polygamma / sizeof *polygamma; i++)
        worst = fmax(worst, relative_error(polygamma_f64(polygamma[i].n, polygamma[i].x), polygamma[i].y));
    check("f64 polygamma agrees with mpmath to 2e-14", worst <= 2e-14);
    if (verbose_flag) printf("%-10s f64 polygamma    relative error %.2g\n", ISA_NAME, worst);

    /* erf(erfinv x) = x, through erfc where erf would not tell results apart */
    double worst32 = 0;
    worst = 0;
    random_state = 3;
    for (int i = 0; i < 4000; i++) {
        double gap = exp2(uniform(-52, -0.7)), x = i % 2 ? 1 - gap : uniform(0, 0.7);
        wide y = erfinv_f64(x), f = x < 0.5 ? erfl(y) - (wide)x : (1 - (wide)x) - erfcl(y);
        worst = fmax(worst, fabs((double)(f * expl(y * y) / (1.1283791670955126L * y))));
        float x32 = (float)(i % 2 ? 1 - exp2(uniform(-24, -0.7)) : x);
        if (x32 == 1) continue;
        worst32 = fmax(worst32, relative_error(erfinv_f32(x32), erfinv_f64(x32)));
    }
    check("f64 erfinv has a relative error below 2e-15", worst <= 2e-15);
    check("f32 erfinv has a relative error below 2e-7", worst32 <= 2e-7);
    if (verbose_flag) printf("%-10s erfinv           relative error %.2g, f32 %.2g\n", ISA_NAME, worst, worst32);
    check("erfinv(1) = inf, erfinv(-1) = -inf, erfinv(1.5) is NaN, erfinv(-0) = -0",
          erfinv_f64(1) == INFINITY && erfinv_f64(-1) == -INFINITY && isnan(erfinv_f64(1.5)) &&
              signbit(erfinv_f64(-0.0)) && erfinv_f64(0.0) == 0);
}

/* ---- half-width types ---- */

/* value rounded to a binary format of `digits` bits with least exponent `least`, ties to even; the
   intermediate scaling is exact in f64 */
static double rounded(double x, int digits, int least, double largest) {
    int exponent;
    if (x == 0 || isnan(x) || isinf(x)) return x;
    frexp(x, &exponent);
    if (exponent < least) exponent = least;
    double r = ldexp(rint(ldexp(x, digits - exponent)), exponent - digits);
    return fabs(r) > largest ? copysign(INFINITY, x) : r;
}

/* Compilers take a widening that is narrowed at once for nothing, and forget to make NaN quiet. */
static vf32 through_memory(vf32 v) {
    float lane[VF32_LANES];
    vf32_store(lane, v);
    __asm__ volatile("" : : "r"(lane) : "memory");
    return vf32_load(lane);
}

static void test_half(void) {
    int same_f16 = 1, same_bf16 = 1, right_f16 = 1, right_bf16 = 1, tail = 1;
    for (int base = 0; base < 65536; base += VF32_LANES) {
        uint16_t h[VF32_LANES], back[VF32_LANES];
        for (int k = 0; k < VF32_LANES; k++) h[k] = (uint16_t)(base + k);
        vf32_store_f16(back, through_memory(vf32_load_f16(h)));
        for (int k = 0; k < VF32_LANES; k++) {
            int nan = (h[k] & 0x7fff) > 0x7c00;
            same_f16 &= back[k] == (nan ? (h[k] | 0x200) : h[k]);
        }
        vf32_store_bf16(back, through_memory(vf32_load_bf16(h)));
        for (int k = 0; k < VF32_LANES; k++) {
            int nan = (h[k] & 0x7fff) > 0x7f80;
            same_bf16 &= back[k] == (nan ? (h[k] | 0x40) : h[k]);
        }
    }
    for (uint64_t bits = 0; bits < 0x100000000; bits += 4001 * VF32_LANES) {
        float x[VF32_LANES], y[VF32_LANES];
        uint16_t h[VF32_LANES];
        for (int k = 0; k < VF32_LANES; k++) {
            x[k] = float_of((uint32_t)(bits + (uint64_t)k * 4001));
            /* half of the inputs where f16 has its exponents, a quarter on ties */
            if (k % 2) x[k] = float_of(0x32000000u + (bits_of_f32(x[k]) & 0x95ffffffu) % 0x16000000u);
            if (k % 4 == 3) x[k] = float_of(bits_of_f32(x[k]) & 0xffff8000u);
        }
        vf32_store_f16(h, vf32_load(x));
        vf32_store(y, vf32_load_f16(h));
        for (int k = 0; k < VF32_LANES; k++) right_f16 &= distance_f32(y[k], rounded(x[k], 11, -13, 65504)) == 0;
        vf32_store_bf16(h, vf32_load(x));
        vf32_store(y, vf32_load_bf16(h));
        for (int k = 0; k < VF32_LANES; k++) right_bf16 &= distance_f32(y[k], rounded(x[k], 8, -125, 0x1.fep127)) == 0;
    }
    for (int n = 0; n <= VF32_LANES; n++) {
        uint16_t h[VF32_LANES + 1], g[VF32_LANES + 1];
        float y[VF32_LANES];
        for (int k = 0; k <= VF32_LANES; k++) h[k] = 0x3c00, g[k] = 0x1234;
        vf32_store(y, vf32_load_f16_n(h, n));
        for (int k = 0; k < VF32_LANES; k++) tail &= y[k] == (k < n ? 1 : 0);
        vf32_store_f16_n(g, vf32_set1(1), n);
        for (int k = 0; k <= VF32_LANES; k++) tail &= g[k] == (k < n ? 0x3c00 : 0x1234);
        for (int k = 0; k <= VF32_LANES; k++) h[k] = 0x3f80, g[k] = 0x1234;
        vf32_store(y, vf32_load_bf16_n(h, n));
        for (int k = 0; k < VF32_LANES; k++) tail &= y[k] == (k < n ? 1 : 0);
        vf32_store_bf16_n(g, vf32_set1(1), n);
        for (int k = 0; k <= VF32_LANES; k++) tail &= g[k] == (k < n ? 0x3f80 : 0x1234);
    }
    check("all f16 values survive a round trip, NaN becomes quiet", same_f16);
    check("all bf16 values survive a round trip, NaN becomes quiet", same_bf16);
    check("f32 to f16 rounds to nearest even", right_f16);
    check("f32 to bf16 rounds to nearest even", right_bf16);
    check("half tails touch n elements and load zeros", tail);
}

/* ---- arithmetic, masks, memory ---- */

#define PRIMITIVES(TYPE, T, VF, MF, LANES, BITS)                                              \
    static void primitives_##TYPE(void) {                                                     \
        static const T v[] = {0, 1, (T)-2.5, (T)1e30, INFINITY, -INFINITY, NAN, (T)0.1};      \
        int extrema = 1, compare = 1, signs = 1, memory = 1, masks = 1, folds = 1, fused = 1; \
        T out[LANES + 1], in[LANES + 1];                                                      \
        for (int i = 0; i < 8; i++)                                                           \
            for (int j = 0; j < 8; j++) {                                                     \
                T a = v[i], b = v[j], nan = NAN;                                              \
                VF va = VF##_set1(a), vb = VF##_set1(b);                                      \
                T want = a != a || b != b ? nan : a > b ? a : b;                              \
                extrema &= distance_##TYPE(VF##_hmax(VF##_max(va, vb)), want) == 0;           \
                want = a != a || b != b ? nan : a < b ? a : b;                                \
                extrema &= distance_##TYPE(VF##_hmax(VF##_min(va, vb)), want) == 0;           \
                want = a != a ? b : b != b ? a : a > b ? a : b;                               \
                extrema &= distance_##TYPE(VF##_hmax(VF##_fmax(va, vb)), want) == 0;          \
                want = a != a ? b : b != b ? a : a < b ? a : b;                               \
                extrema &= distance_##TYPE(VF##_hmax(VF##_fmin(va, vb)), want) == 0;          \
                compare &= MF##_all(VF##_eq(va, vb)) == (a == b);                             \
                compare &= MF##_all(VF##_ne(va, vb)) == (a != b);                             \
                compare &= MF##_any(VF##_lt(va, vb)) == (a < b);                              \
                compare &= MF##_any(VF##_le(va, vb)) == (a <= b);                             \
                compare &= MF##_all(VF##_gt(va, vb)) == (a > b);                              \
                compare &= MF##_all(VF##_ge(va, vb)) == (a >= b);                             \
                VF##_store(out, VF##_copysign(va, VF##_neg(vb)));                             \
                signs &= !signbit(out[0]) == !!signbit(b);                                    \
                VF##_store(out, VF##_abs(VF##_neg(va)));                                      \
                signs &= !signbit(out[LANES - 1]);                                            \
            }                                                                                 \
        for (int i = 0; i < 8; i++) {                                                         \
            VF va = VF##_set1(v[i]);                                                          \
            compare &= MF##_all(VF##_isnan(va)) == !!isnan(v[i]);                             \
            compare &= MF##_all(VF##_isinf(va)) == !!isinf(v[i]);                             \
            compare &= MF##_all(VF##_isfinite(va)) == !!isfinite(v[i]);                       \
        }                                                                                     \
        T sum = 0;                                                                            \
        for (int k = 0; k <= LANES; k++) in[k] = (T)(k + 1), sum += k < LANES ? in[k] : 0;    \
        VF ramp = VF##_load(in);                                                              \
        folds &= VF##_hsum(ramp) == sum && VF##_hmax(ramp) == LANES && VF##_hmin(ramp) == 1;  \
        for (int n = 0; n <= LANES; n++) {                                                    \
            MF first = VF##_le(ramp, VF##_set1((T)n)), none = MF##_xor(first, first);         \
            masks &= MF##_any(first) == (n > 0) && MF##_all(first) == (n == LANES);           \
            masks &= !MF##_any(none) && MF##_all(MF##_not(none));                             \
            masks &= !MF##_any(MF##_and(first, MF##_not(first)));                             \
            masks &= MF##_all(MF##_or(first, MF##_not(first)));                               \
            T picked = VF##_hsum(VF##_select(first, VF##_set1(1), VF##_zero()));              \
            masks &= picked == n;                                                             \
            VF##_store(out, VF##_load_n(in, n));                                              \
            for (int k = 0; k < LANES; k++) memory &= out[k] == (k < n ? in[k] : 0);          \
            for (int k = 0; k <= LANES; k++) out[k] = -7;                                     \
            VF##_store_n(out, ramp, n);                                                       \
            for (int k = 0; k <= LANES; k++) memory &= out[k] == (k < n ? in[k] : -7);        \
        }                                                                                     \
        T aligned[LANES] __attribute__((aligned(64)));                                        \
        VF##_stream(aligned, ramp);                                                           \
        simd_fence();                                                                         \
        for (int k = 0; k < LANES; k++) memory &= aligned[k] == in[k];                        \
        T e = sizeof(T) == 4 ? (T)0x1p-20 : (T)0x1p-50;                                       \
        VF near = VF##_set1(1 + e), minus = VF##_set1(-(1 + 2 * e));                          \
        fused &= VF##_hmax(VF##_fma_exact(near, near, minus)) == e * e;                       \
        fused &= !SIMD_HAS_FMA || VF##_hmax(VF##_fma(near, near, minus)) == e * e;            \
        fused &= VF##_hmax(VF##_recip(VF##_set1(4))) == (T)0.25;                              \
        fused &= VF##_hmax(VF##_rsqrt(VF##_set1(16))) == (T)0.25;                             \
        fused &= VF##_hmax(VF##_square(VF##_set1(-3))) == 9;                                  \
        check(#TYPE " max and min propagate NaN, fmax and fmin ignore it", extrema);          \
        check(#TYPE " comparisons and classification follow C", compare);                     \
        check(#TYPE " signs", signs);                                                         \
        check(#TYPE " masks", masks);                                                         \
        check(#TYPE " load_n and store_n touch n elements", memory);                          \
        check(#TYPE " horizontal folds", folds);                                              \
        check(#TYPE " fused multiply-add, recip, rsqrt, square", fused);                      \
    }
PRIMITIVES(f32, float, vf32, mf32, VF32_LANES, bits_of_f32)
PRIMITIVES(f64, double, vf64, mf64, VF64_LANES, bits_of_f64)

int CT_ISA_FN(test_simd_math)(int verbose, int *passed, int *failed);
int CT_ISA_FN(test_simd_math)(int verbose, int *passed, int *failed) {
    const char *stride = getenv("SIMD_TEST_STRIDE");
    verbose_flag = verbose, passed_count = passed, failed_count = failed;
    make_inputs(stride && atol(stride) > 0 ? atol(stride) : 997);
    int before = *failed;
    primitives_f32();
    primitives_f64();
    test_half();
    test_unary();
    test_subnormal_free();
    test_binary();
    test_special();
    return *failed - before;
}

#endif
