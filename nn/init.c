/* Initializers: what a weight holds before it learns. */
#include <math.h>

#include "nn/module.h"
#include "nn/orthogonal.h"

/* x is there and may be changed; outside recording, so that a parameter may be given. */
static bool begin(const ct_tensor *x, const char *function) {
    if (!ct_ok()) return false;
    if (!x) return ct_fail(CT_ERR_NULL, function, "argument x is NULL");
    return ct_dtype_is_float(ct_dtype_of(x)) ||
           ct_fail(CT_ERR_DTYPE, function, "x is %s, expected a floating dtype", ct_tensor_text(x));
}

#define ASSIGN(x, expression)                              \
    do {                                                   \
        bool ok = false;                                   \
        ct_scope {                                         \
            ct_no_grad {                                   \
                ok = ct_assign((x), (expression)) != NULL; \
            }                                              \
        }                                                  \
        return ok;                                         \
    } while (0)

bool ct_init_constant(ct_tensor *x, double value) {
    if (!begin(x, "init_constant")) return false;
    bool ok = false;
    ct_no_grad {
        ok = ct_fill(x, value) != NULL;
    }
    return ok;
}
bool ct_init_zeros(ct_tensor *x) { return ct_init_constant(x, 0); }
bool ct_init_ones(ct_tensor *x) { return ct_init_constant(x, 1); }

bool ct_init_uniform(ct_tensor *x, double lo, double hi, ct_rng *rng) {
    if (!begin(x, "init_uniform")) return false;
    ASSIGN(x, ct_uniform(ct_shape(x), lo, hi, .dtype = ct_dtype_of(x), .device = ct_device_of(x), .rng = rng));
}

bool ct_init_normal(ct_tensor *x, double mean, double std, ct_rng *rng) {
    if (!begin(x, "init_normal")) return false;
    ASSIGN(x, ct_normal(ct_shape(x), mean, std, .dtype = ct_dtype_of(x), .device = ct_device_of(x), .rng = rng));
}

bool ct_init_truncated_normal(ct_tensor *x, double mean, double std, double lo, double hi, ct_rng *rng) {
    if (!begin(x, "init_truncated_normal")) return false;
    ASSIGN(x, ct_truncated_normal(ct_shape(x), mean, std, lo, hi, .dtype = ct_dtype_of(x), .device = ct_device_of(x),
                                  .rng = rng));
}

/* ---- By the fans of a weight ---- */

static bool fans(const ct_tensor *x, const ct_init_options *o, const char *function, double *in, double *out) {
    const ct_dims s = ct_shape(x);
    if (s.n < 2)
        return ct_fail(CT_ERR_SHAPE, function, "x is %s; fans are those of a weight of two axes or more",
                       ct_tensor_text(x));
    double kernel = 1;
    for (int i = 0; i < s.n - 2; i++) kernel *= (double)s.d[o->channels_last ? i : i + 2];
    *in = kernel * (double)(o->channels_last ? s.d[s.n - 2] : s.d[1]);
    *out = kernel * (double)(o->channels_last ? s.d[s.n - 1] : s.d[0]);
    return true;
}

typedef enum family { XAVIER, KAIMING, LECUN } family;

static bool scaled(ct_tensor *x, const ct_init_options *given, const char *function, family kind, bool uniform) {
    TAKE_OPTIONS(ct_init_options, o, given);
    double in = 0, out = 0;
    if (!begin(x, function) || !fans(x, &o, function, &in, &out)) return false;
    if ((unsigned)o.fan > CT_FAN_AVERAGE)
        return ct_fail(CT_ERR_VALUE, function, "fan: %d is not a value of its enum", (int)o.fan);
    const double gain = o.gain != 0 ? o.gain : kind == KAIMING ? sqrt(2) : 1;
    double fan = in;
    if (kind == XAVIER || (kind == KAIMING && o.fan == CT_FAN_AVERAGE)) fan = (in + out) / 2;
    else if (kind == KAIMING && o.fan == CT_FAN_OUT) fan = out;
    if (fan == 0) return true; /* an empty weight */
    const double std = gain / sqrt(fan), bound = sqrt(3) * std;
    return uniform ? ct_init_uniform(x, -bound, bound, o.rng) : ct_init_normal(x, 0, std, o.rng);
}

bool ct_init_xavier_uniform_p(ct_tensor *x, const ct_init_options *options) {
    return scaled(x, options, "init_xavier_uniform", XAVIER, true);
}
bool ct_init_xavier_normal_p(ct_tensor *x, const ct_init_options *options) {
    return scaled(x, options, "init_xavier_normal", XAVIER, false);
}
bool ct_init_kaiming_uniform_p(ct_tensor *x, const ct_init_options *options) {
    return scaled(x, options, "init_kaiming_uniform", KAIMING, true);
}
bool ct_init_kaiming_normal_p(ct_tensor *x, const ct_init_options *options) {
    return scaled(x, options, "init_kaiming_normal", KAIMING, false);
}
bool ct_init_lecun_uniform_p(ct_tensor *x, const ct_init_options *options) {
    return scaled(x, options, "init_lecun_uniform", LECUN, true);
}
bool ct_init_lecun_normal_p(ct_tensor *x, const ct_init_options *options) {
    return scaled(x, options, "init_lecun_normal", LECUN, false);
}

/* ---- Orthogonal and dirac ---- */

bool ct_init_orthogonal_p(ct_tensor *x, const ct_init_options *options) {
    TAKE_OPTIONS(ct_init_options, o, options);
    if (!begin(x, "init_orthogonal")) return false;
    const ct_dims shape = ct_shape(x);
    if (shape.n < 2)
        return ct_fail(CT_ERR_SHAPE, "init_orthogonal", "x is %s, expected two axes or more", ct_tensor_text(x));
    const int64_t count = ct_numel(x);
    if (count == 0) return true;
    const int64_t rows = o.channels_last ? count / shape.d[shape.n - 1] : shape.d[0], columns = count / rows;
    const bool wide = rows <= columns;
    bool ok = false;
    ct_scope {
        ct_no_grad {
            ct_tensor *m = ct_randn(CT_DIMS(wide ? rows : columns, wide ? columns : rows), .dtype = CT_F64,
                                    .rng = o.rng, .device = {CT_CPU, 0}); /* its reflections are found on the host */
            m = m ? ct__orthonormal_rows(m) : NULL;
            m = ct_mul_s(wide ? m : ct_t(m), o.gain != 0 ? o.gain : 1);
            m = ct_cast(ct_reshape(m, shape), ct_dtype_of(x)); /* where it is: not every device has f64 */
            ok = ct_assign(x, ct_to(m, ct_device_of(x))) != NULL;
        }
    }
    return ok;
}

bool ct_init_dirac(ct_tensor *x, int64_t groups) {
    if (!begin(x, "init_dirac")) return false;
    const ct_dims s = ct_shape(x);
    if (s.n < 3 || s.n > 5)
        return ct_fail(CT_ERR_SHAPE, "init_dirac", "x is %s, expected the weight of a convolution", ct_tensor_text(x));
    if (groups < 1 || s.d[0] % groups != 0)
        return ct_fail(CT_ERR_VALUE, "init_dirac", "%lld channels cannot be divided into %lld groups",
                       (long long)s.d[0], (long long)groups);
    bool ok = ct_init_zeros(x);
    const int64_t each = s.d[0] / groups, through = each < s.d[1] ? each : s.d[1];
    ct_scope {
        ct_no_grad {
            for (int64_t i = 0; ok && i < groups * through; i++) {
                const int64_t group = i / through, channel = i % through;
                ct_tensor *tap = ct_select(ct_select(ct_detach(x), 0, group * each + channel), 0, channel);
                for (int a = 2; a < s.n; a++) tap = ct_select(tap, 0, s.d[a] / 2);
                ok = ct_fill(tap, 1) != NULL;
            }
        }
    }
    return ok;
}
