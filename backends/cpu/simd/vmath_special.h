/* vmath_special.h - ndtr, erfinv (vectors), the gamma family (scalar code, lane by lane: lgamma is libm's,
   digamma and polygamma are written here, by the recurrences and asymptotic series of Abramowitz and Stegun
   6.3, 6.4 and 23.2) and the three kinds of remainder. */

/* libm's lgamma writes the global signgam; the reentrant form does not. Strict C hides its
   prototype. */
extern double lgamma_r(double, int *);

SIMD_INLINE vf32 vf32_ndtr(vf32 x) {
    mf32 far = vf32_gt(vf32_abs(x), vf32_set1(VF32_NDTR_NEAR));
    vf32 y = vf32_ndtr_near(x);
    return mf32_any(far) ? vf32_select(far, vf32_ndtr_any(x), y) : y;
}
SIMD_INLINE vf64 vf64_ndtr(vf64 x) { return vf64_ndtr_any(x); }

/* x = erf y. The start is Winitzki's closed form, within 2e-3: with w = -log(1 - x^2), A = 2/(pi c) -
   w/2, B = w/c, c = 0.147, y^2 = sqrt(A^2 + B) - A. Each Halley step cubes the error:
   y -= u / (1 + y u), u = (erf y - x) / erf' y. Near |x| = 1 erfc y - (1 - |x|) takes the place of the
   difference, so that nothing cancels. */
SIMD_INLINE vf64 vf64_erfinv_steps(vf64 x, int steps) {
    vf64 a = vf64_abs(x), one = vf64_set1(1), rest = vf64_sub(one, a), zero = vf64_zero();
    vf64 w = vf64_neg(vf64_log(vf64_mul(rest, vf64_add(one, a))));
    w = vf64_select(vf64_lt(a, vf64_set1(0x1p-20)), vf64_mul(a, a), w);
    vf64 A = vf64_fnma(w, vf64_set1(0.5), vf64_set1(4.3307467508)), B = vf64_div(w, vf64_set1(0.147));
    vf64 root = vf64_sqrt(vf64_fma(A, A, B));
    vf64 positive = vf64_div(B, vf64_add(root, A)), negative = vf64_sub(root, A);
    vf64 y = vf64_sqrt(vf64_select(vf64_lt(A, zero), negative, positive));
    mf64 small = vf64_lt(a, vf64_set1(0.55));
    for (int i = 0; i < steps; i++) {
        vf64 near = vf64_sub(vf64_erf_small(y), a), far = vf64_sub(rest, vf64_erfc_large(y));
        vf64 f = vf64_select(small, near, far);
        vf64 u = vf64_mul(vf64_mul(f, vf64_set1(0x1.c5bf891b4ef6bp-1)), vf64_exp(vf64_mul(y, y)));
        y = vf64_sub(y, vf64_div(u, vf64_fma(y, u, one)));
    }
    y = vf64_select(vf64_eq(a, one), vf64_set1(__builtin_inf()), y);
    y = vf64_select(vf64_eq(a, zero), zero, y);
    y = vf64_select(vf64_le(a, one), y, vf64_set1(__builtin_nan("")));
    return vf64_or(y, vf64_sign_of(x));
}
SIMD_INLINE vf64 vf64_erfinv(vf64 x) { return vf64_erfinv_steps(x, 2); }

static inline double simd_lgamma_lane(double x) {
    int sign;
    return lgamma_r(x, &sign);
}

/* psi(x): for x < 0 reflection, psi(1 - x) - pi / tan(pi x), with x reduced modulo 1 first; then up the
   recurrence psi(x) = psi(x + 1) - 1/x to x >= 10, and the asymptotic series
   log x - 1/(2x) - sum B_2k / (2k x^2k), whose first omitted term there is below 2^-54. */
static inline double simd_digamma_lane(double x) {
    static const double c[] = {1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                               1.0 / 132, -691.0 / 32760, 1.0 / 12,  -3617.0 / 8160};
    double y = 0;
    if (x == 0) return copysign(INFINITY, -x);
    if (x < 0) {
        double fraction = x - rint(x);
        if (fraction == 0 || fraction != fraction) return NAN;
        y = -3.14159265358979323846 / tan(3.14159265358979323846 * fraction);
        x = 1 - x;
    }
    for (; x < 10; x += 1) y -= 1 / x;
    if (x == INFINITY) return x;
    double z = 1 / (x * x), series = 0;
    for (int k = 7; k >= 0; k--) series = (series + c[k]) * z;
    return y + (log(x) - 0.5 / x - series);
}

/* zeta(s, q) = sum over i >= 0 of (q + i)^-s, q > 0, s >= 2: terms up to q >= 10 + s/2, then
   Euler-Maclaurin: q^(1-s)/(s-1) + q^-s/2 + sum B_2k/(2k)! s (s+1) ... (s+2k-2) q^(-s-2k+1). */
static inline double simd_hurwitz_zeta(double s, double q) {
    static const double c[] = {1.0 / 12,
                               -1.0 / 720,
                               1.0 / 30240,
                               -1.0 / 1209600,
                               1.0 / 47900160,
                               -691.0 / 1307674368000.0,
                               1.0 / 74724249600.0,
                               -3617.0 / 10670622842880000.0};
    double sum = 0, factor = s;
    for (; q < 10 + s / 2; q += 1) {
        const double term = pow(q, -s);
        sum += term;
        if (term <= 0x1p-60 * sum) return sum; /* so is the sum of what follows */
    }
    double power = pow(q, -s), tail = power * q / (s - 1) + 0.5 * power;
    power /= q;
    for (int k = 0; k < 8; k++) {
        tail += c[k] * factor * power;
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2);
        power /= q * q;
    }
    return sum + tail;
}

/* psi^(n)(x) = (-1)^(n+1) n! zeta(n + 1, x). For x = f - m with f in (0, 1), the terms left of zero are
   those of two more zeta functions: zeta(s, x) = zeta(s, f) + (-1)^s (zeta(s, 1-f) - zeta(s, m+1-f)). */
static inline double simd_polygamma_lane(int n, double x) {
    if (n == 0) return simd_digamma_lane(x);
    if (n < 0 || x != x) return NAN;
    double s = n + 1, zeta;
    if (x > 0) {
        zeta = x == INFINITY ? 0 : simd_hurwitz_zeta(s, x);
    } else {
        double f = x - floor(x), m = f - x;
        if (!(f != 0)) return x == -INFINITY ? NAN : n % 2 ? INFINITY : NAN;
        double left = simd_hurwitz_zeta(s, 1 - f) - simd_hurwitz_zeta(s, m + 1 - f);
        zeta = simd_hurwitz_zeta(s, f) + (n % 2 ? left : -left);
    }
    double value = n <= 170 ? tgamma(n + 1.0) * zeta : copysign(exp(simd_lgamma_lane(n + 1.0) + log(fabs(zeta))), zeta);
    return n % 2 ? value : -value;
}

static inline float simd_lgamma_lane_f32(float x) { return (float)simd_lgamma_lane(x); }
static inline float simd_digamma_lane_f32(float x) { return (float)simd_digamma_lane(x); }
SIMD_INLINE vf32 vf32_lgamma(vf32 x) { return vf32_map1(simd_lgamma_lane_f32, x); }
SIMD_INLINE vf64 vf64_lgamma(vf64 x) { return vf64_map1(simd_lgamma_lane, x); }
SIMD_INLINE vf32 vf32_digamma(vf32 x) { return vf32_map1(simd_digamma_lane_f32, x); }
SIMD_INLINE vf64 vf64_digamma(vf64 x) { return vf64_map1(simd_digamma_lane, x); }

SIMD_INLINE vf32 vf32_polygamma(int n, vf32 x) {
    float lane[VF32_LANES];
    vf32_store(lane, x);
    for (int i = 0; i < VF32_LANES; i++) lane[i] = (float)simd_polygamma_lane(n, lane[i]);
    return vf32_load(lane);
}
SIMD_INLINE vf64 vf64_polygamma(int n, vf64 x) {
    double lane[VF64_LANES];
    vf64_store(lane, x);
    for (int i = 0; i < VF64_LANES; i++) lane[i] = simd_polygamma_lane(n, lane[i]);
    return vf64_load(lane);
}

/* f32 functions that are not worth a text of their own: computed in f64, rounded once */
#define SIMD_VIA_F64(name, f) \
    SIMD_INLINE vf32 vf32_##name(vf32 x) { return vf32_from_f64(f(vf64_from_f32_lo(x)), f(vf64_from_f32_hi(x))); }
SIMD_INLINE vf64 vf64_erfinv_for_f32(vf64 x) { return vf64_erfinv_steps(x, 1); }
SIMD_VIA_F64(erfinv, vf64_erfinv_for_f32)
#undef SIMD_VIA_F64

#define VF    vf32
#define MF    mf32
#define T     float
#define LIBM  fmodf
#define LIMIT 0x1p22f
#include "backends/cpu/simd/vmath_remainders.h"
#define VF    vf64
#define MF    mf64
#define T     double
#define LIBM  fmod
#define LIMIT 0x1p51
#include "backends/cpu/simd/vmath_remainders.h"
