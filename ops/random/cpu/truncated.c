/* truncated_normal: a uniform number between the distribution function's values at the bounds, through its inverse
 * (Wichura's AS 241, 1988). */
#include <math.h>

#include "backends/cpu/kernel.h"
#include "core/dtype.h"
#include "ops/create/cpu/generate.h"
#include "ops/random/cpu/philox/philox.h"
#include "ops/random/random.h"

#include "gen/random.attrs.h"

static inline double ratio(double r, const ct_quantile_ratio *of) {
    double num = of->a[7], den = of->b[7];
    for (int i = 6; i >= 0; i--) {
        num = num * r + of->a[i];
        den = den * r + of->b[i];
    }
    return num / den;
}

/* The z with P(Z <= z) = p, for p <= 1/2, right to about 1e-16 of z. */
static double quantile(double p) {
    double q = p - 0.5;
    if (q >= -0.425) return q * ratio(0.180625 - q * q, &ct__quantile_near);
    if (p <= 0) return -INFINITY;
    double r = sqrt(-log(p));
    return r <= 5 ? -ratio(r - 1.6, &ct__quantile_middle) : -ratio(r - 5, &ct__quantile_far);
}

typedef struct truncated_spec {
    ct_random at;
    ct_dtype dtype;
    double mean, std, lo, hi;
    ct_truncation part;
} truncated_spec;

static void make_truncated(const void *spec, int64_t first, int n, void *to) {
    const truncated_spec *s = spec;
    uint32_t words[2 * GENERATE_BLOCK];
    bool wide = s->dtype == CT_F64;
    size_t size = ct_dtype_size(s->dtype);
    CT_ISA_FN(ct__philox_fill)(s->at, (wide ? 2 : 1) * (uint64_t)first, (wide ? 2 : 1) * n, words);
    for (int i = 0; i < n; i++) {
        double u = wide ? (double)(((uint64_t)words[2 * i + 1] << 32 | words[2 * i]) >> 11) * 0x1p-53 + 0x1p-54
                        : ((double)words[i] + 0.5) * 0x1p-32;
        double p = s->part.from + u * s->part.width;
        double z = p <= 0.5 ? quantile(p) : -quantile(1 - p);
        double v = s->mean + s->std * s->part.sign * z;
        v = v < s->lo ? s->lo : v > s->hi ? s->hi : v;
        if (s->dtype == CT_F32) ((float *)to)[i] = (float)v;
        else ct__dtype_put(s->dtype, (char *)to + (size_t)i * size, v);
    }
}

static bool run_truncated(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const truncated_normal_attrs *a = call->attrs;
    truncated_spec s = {.at = call->random,
                        .dtype = a->dtype,
                        .mean = a->mean,
                        .std = a->std,
                        .lo = a->lo,
                        .hi = a->hi,
                        .part = ct__truncation(a->mean, a->std, a->lo, a->hi)};
    return generate(call->out[0], make_truncated, &s);
}

CT_KERNELS(random_truncated) = {
    CT_CANDIDATES(truncated_normal, {"philox_inverse", NULL, NULL, run_truncated}),
    {0},
};
