/* truncated_normal: a uniform number between the distribution function's values at the bounds, through its inverse. */
#include <math.h>

#include "backends/cpu/kernel.h"
#include "core/dtype.h"
#include "ops/create/cpu/generate.h"
#include "ops/random/cpu/philox.h"

#include "gen/random.attrs.h"

static inline double ratio(double r, const double a[8], const double b[7]) {
    double num = a[7], den = b[6];
    for (int i = 6; i >= 0; i--) num = num * r + a[i];
    for (int i = 5; i >= 0; i--) den = den * r + b[i];
    return num / (den * r + 1);
}

/* The z with P(Z <= z) = p, for p <= 1/2: the rational approximations of Wichura (1988, algorithm AS 241), right to about
 * 1e-16 of z. */
static double quantile(double p) {
    static const double near_a[8] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                                     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                                     3.3430575583588128105e4, 2.5090809287301226727e3};
    static const double near_b[7] = {4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
                                     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
                                     5.2264952788528545610e3};
    static const double mid_a[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                    3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                    2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double mid_b[7] = {2.05319162663775882187e0,  1.67638483018380384940e0,  6.89767334985100004550e-1,
                                    1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
                                    1.05075007164441684324e-9};
    static const double far_a[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                    2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                    2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double far_b[7] = {5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
                                    7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
                                    2.04426310338993978564e-15};
    double q = p - 0.5;
    if (q >= -0.425) return q * ratio(0.180625 - q * q, near_a, near_b);
    if (p <= 0) return -INFINITY;
    double r = sqrt(-log(p));
    return r <= 5 ? -ratio(r - 1.6, mid_a, mid_b) : -ratio(r - 5, far_a, far_b);
}

typedef struct truncated_spec {
    ct_random at;
    ct_dtype dtype;
    double mean, std, lo, hi;
    double from, width; /* of the distribution function */
    double sign;        /* -1: the interval is mirrored to lie on the negative side, where the function is precise */
} truncated_spec;

static void make_truncated(const void *spec, int64_t first, int n, void *to) {
    const truncated_spec *s = spec;
    uint32_t words[2 * GENERATE_BLOCK];
    bool wide = s->dtype == CT_F64;
    size_t size = ct_dtype_size(s->dtype);
    philox_fill(s->at, (wide ? 2 : 1) * (uint64_t)first, (wide ? 2 : 1) * n, words);
    for (int i = 0; i < n; i++) {
        double u = wide ? (double)(((uint64_t)words[2 * i + 1] << 32 | words[2 * i]) >> 11) * 0x1p-53 + 0x1p-54
                        : ((double)words[i] + 0.5) * 0x1p-32;
        double p = s->from + u * s->width;
        double z = p <= 0.5 ? quantile(p) : -quantile(1 - p);
        double v = s->mean + s->std * s->sign * z;
        v = v < s->lo ? s->lo : v > s->hi ? s->hi : v;
        if (s->dtype == CT_F32) ((float *)to)[i] = (float)v;
        else ct__dtype_put(s->dtype, (char *)to + (size_t)i * size, v);
    }
}

static double distribution(double z) { return 0.5 * erfc(-z * 0.70710678118654752440); }

static bool run_truncated(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const truncated_normal_attrs *a = call->attrs;
    truncated_spec s = {
        .at = call->random, .dtype = a->dtype, .mean = a->mean, .std = a->std, .lo = a->lo, .hi = a->hi, .sign = 1};
    double from = (a->lo - a->mean) / a->std, to = (a->hi - a->mean) / a->std;
    if (a->std == 0) from = to = 0;
    if (from + to > 0) {
        double mirrored = -to;
        to = -from;
        from = mirrored;
        s.sign = -1;
    }
    s.from = distribution(from);
    s.width = distribution(to) - s.from;
    return generate(call->out[0], make_truncated, &s);
}

CT_KERNELS(random_truncated) = {
    CT_CANDIDATES(truncated_normal, {"philox_inverse", NULL, NULL, run_truncated}),
    {0},
};
