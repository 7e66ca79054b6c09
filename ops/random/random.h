/* What kernels of the random ops and their lowerings share: bounds, and the coefficients of the normal quantile. */
#ifndef COTANGENT_OPS_RANDOM_RANDOM_H
#define COTANGENT_OPS_RANDOM_RANDOM_H

#include <cotangent/op.h>

/* The largest number of a float dtype in [lo, hi), or lo where that is nothing. */
double ct__uniform_most(ct_dtype dtype, double lo, double hi);

/* A normal distribution between bounds, as a part of its distribution function: uniform numbers from..from + width become normal
 * ones by the quantile. An interval that lies more on the positive side is mirrored (sign -1), since the function is precise on
 * the other. above is 1 - from - width, without its rounding errors. */
typedef struct ct_truncation {
    double from, width, above, sign;
} ct_truncation;
static inline double ct__normal_below(double z) { return 0.5 * __builtin_erfc(-z * 0.70710678118654752440); }

static inline ct_truncation ct__truncation(double mean, double std, double lo, double hi) {
    double from = std == 0 ? 0 : (lo - mean) / std, to = std == 0 ? 0 : (hi - mean) / std;
    ct_truncation part = {.sign = 1};
    if (from + to > 0) {
        const double mirrored = -to;
        to = -from;
        from = mirrored;
        part.sign = -1;
    }
    part.from = ct__normal_below(from);
    part.width = ct__normal_below(to) - part.from;
    part.above = ct__normal_below(-to);
    return part;
}

/* The rational approximations of Wichura (1988, algorithm AS 241): numerator and denominator for |p - 1/2| <= 0.425, and by
 * r = sqrt(-log p) for r <= 5 and above it; the constant term of the denominators is 1. */
typedef struct ct_quantile_ratio {
    double a[8], b[8];
} ct_quantile_ratio;
extern const ct_quantile_ratio ct__quantile_near, ct__quantile_middle, ct__quantile_far;

#endif
