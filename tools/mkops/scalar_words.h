/* The vocabulary of elementwise lines in scalar C, on doubles: what gen/dialects/scalar.c is built on. Plain and slow;
 * the reference that kernels are compared with. */
#ifndef MKOPS_SCALAR_WORDS_H
#define MKOPS_SCALAR_WORDS_H

#include <float.h>
#include <math.h>
#include <stddef.h>

typedef struct ct_scalar_op {
    const char *name;
    double (*fn)(const double *in, const double *attr, const int *given); /* attributes in the order of the line */
} ct_scalar_op;
extern const ct_scalar_op ct_scalar_ops[]; /* ended by an unnamed one */

#define SCALAR __attribute__((unused)) static
#define S1(name, text) \
    SCALAR double s_##name(double x) { return text; }
#define S2(name, text) \
    SCALAR double s_##name(double x, double z) { return text; }
#define T1(name, text) \
    SCALAR int s_##name(double x) { return text; }
#define T2(name, text) \
    SCALAR int s_##name(double x, double z) { return text; }

S2(add, x + z)
S2(sub, x - z)
S2(mul, x *z)
S2(div, x / z)
S1(neg, -x)
S1(abs, fabs(x))
S1(sign, x != x ? x : (double)((x > 0) - (x < 0)))
S1(sqrt, sqrt(x))
S1(rsqrt, 1 / sqrt(x))
S1(cbrt, cbrt(x))
S1(recip, 1 / x)
S1(square, x *x)
S1(exp, exp(x))
S1(exp2, exp2(x))
S1(expm1, expm1(x))
S1(log, log(x))
S1(log2, log2(x))
S1(log10, log10(x))
S1(log1p, log1p(x))
S1(sin, sin(x))
S1(cos, cos(x))
S1(tan, tan(x))
S1(asin, asin(x))
S1(acos, acos(x))
S1(atan, atan(x))
S1(sinh, sinh(x))
S1(cosh, cosh(x))
S1(tanh, tanh(x))
S1(asinh, asinh(x))
S1(acosh, acosh(x))
S1(atanh, atanh(x))
S1(erf, erf(x))
S1(erfc, erfc(x))
S1(ndtr, 0.5 * erfc(x * -0.70710678118654752440))
S1(lgamma, lgamma(x))
S1(floor, floor(x))
S1(ceil, ceil(x))
S1(round, nearbyint(x))
S1(trunc, trunc(x))
S1(sigmoid, x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)))
S2(max, x != x || x > z ? x : z)
S2(min, x != x || x < z ? x : z)
S2(fmax, fmax(x, z))
S2(fmin, fmin(x, z))
S2(pow, pow(x, z))
S2(atan2, atan2(x, z))
S2(hypot, hypot(x, z))
S2(copysign, copysign(x, z))
S2(fmod, fmod(x, z))
T2(eq, x == z)
T2(ne, x != z)
T2(lt, x < z)
T2(le, x <= z)
T2(gt, x > z)
T2(ge, x >= z)
T1(isnan, isnan(x) != 0)
T1(isinf, isinf(x) != 0)
T1(isfinite, isfinite(x) != 0)
T2(and, x != 0 && z != 0)
T2(or, x != 0 || z != 0)
T2(xor, (x != 0) != (z != 0))
T1(not, x == 0)
S2(band, (double)((long long)x &(long long)z))
S2(bor, (double)((long long)x | (long long)z))
S2(bxor, (double)((long long)x ^ (long long)z))
S1(bnot, (double)~(long long)x)
S2(shl, z<0 || z> 63 ? 0 : (double)(long long)((unsigned long long)(long long)x << (long long)z))
S2(shr, z<0 || z> 63 ? (x < 0 ? -1 : 0) : (double)((long long)x >> (long long)z))

SCALAR double s_select(int c, double x, double z) { return c ? x : z; }
SCALAR double s_fma(double x, double z, double w) { return fma(x, z, w); }

/* It has the divisor's sign. */
SCALAR double s_remainder(double x, double z) {
    double r = fmod(x, z);
    return r == 0 ? copysign(0, z) : (r < 0) != (z < 0) ? r + z : r;
}

SCALAR double s_floor_div(double x, double z) {
    if (z == 0) return x / z;
    double r = fmod(x, z), q = (x - r) / z;
    if (r != 0 && (z < 0) != (r < 0)) q -= 1;
    return q == 0 ? copysign(0, x / z) : nearbyint(q);
}

/* Bisection on erfc, which keeps its digits where erf is near 1; then it is odd. */
SCALAR double s_erfinv(double x) {
    if (!(fabs(x) < 1)) return fabs(x) == 1 ? x * INFINITY : NAN;
    double low = 0, high = 7, target = fabs(x);
    for (int i = 0; i < 120; i++) {
        double middle = (low + high) / 2;
        if (target < 0.5 ? erf(middle) < target : erfc(middle) > 1 - target) low = middle;
        else high = middle;
    }
    return copysign((low + high) / 2, x);
}

/* Recurrence up to 20, then the asymptotic series; reflection for negative numbers. */
SCALAR double s_digamma(double x) {
    const double pi = 3.14159265358979323846;
    if (x == 0) return copysign(INFINITY, -x);
    if (x < 0 && x == floor(x)) return NAN;
    if (x < 0) return s_digamma(1 - x) - pi / tan(pi * (x - floor(x)));
    double sum = 0;
    for (; x < 20; x += 1) sum -= 1 / x;
    double r = 1 / (x * x);
    return sum + log(x) - 0.5 / x - r * (1. / 12 - r * (1. / 120 - r * (1. / 252 - r * (1. / 240 - r / 132))));
}

/* (-1)^(n+1) n! times the sum of 1 / (x + k)^(n+1), by Euler and Maclaurin from 20 + n on. */
SCALAR double s_polygamma(int n, double x) {
    static const double bernoulli[] = {1. / 6, -1. / 30, 1. / 42, -1. / 30, 5. / 66, -691. / 2730, 7. / 6};
    if (n == 0) return s_digamma(x);
    if (x <= 0 && x == floor(x)) return n % 2 ? INFINITY : NAN;
    double sum = 0, factorial = tgamma(n + 1.);
    for (; x < 20 + n; x += 1) sum += factorial / pow(x, n + 1);
    sum += factorial / n / pow(x, n) + factorial / (2 * pow(x, n + 1));
    for (int k = 1; k <= 7; k++)
        sum += bernoulli[k - 1] * tgamma(2. * k + n) / (tgamma(2. * k + 1) * pow(x, 2 * k + n));
    return n % 2 ? sum : -sum;
}

#undef S1
#undef S2
#undef T1
#undef T2
#endif
