/* Elementwise ops on WebGPU, where the sweep over the ops does not look: how exact functions are over their whole range, values
 * that are not finite, integers at their ends, every pair of dtypes that converts, tensors long enough for the fast loops. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/webgpu_device.h"

static const ct_device cpu = {CT_CPU, 0};

typedef ct_tensor *(*unary)(ct_tensor *);
typedef ct_tensor *(*binary)(ct_tensor *, ct_tensor *);

static uint32_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- How exact functions are ---- */

typedef enum range { ANY, POSITIVE, UNIT, FROM_ONE } range;

/* n numbers: half of them of every size there is, half near 1; none is subnormal, which a device may take for 0. */
static ct_tensor *numbers(int n, range which) {
    float *x = malloc((size_t)n * sizeof *x);
    uint64_t state = 11;
    for (int i = 0; i < n; i++) {
        const float near = ((float)next(&state) / 4294967296.0f - 0.5f) * (i % 4 ? 20.0f : 200.0f);
        float far = float_of(next(&state));
        if (!(fabsf(far) >= FLT_MIN && fabsf(far) <= FLT_MAX)) far = 1;
        const float v = i % 2 ? near : far, fraction = (float)(next(&state) >> 8) / 16777216.0f;
        x[i] = which == ANY ? v : which == UNIT ? 2 * fraction - 1 : which == POSITIVE ? fabsf(v) : 1 + fabsf(v);
    }
    ct_tensor *t = ct_from_data(x, CT_DIMS(n), CT_F32);
    free(x);
    return t;
}

/* The largest error in units of the last place of f32, of results that are normal numbers; those that are not have to agree. */
static double units_off(ct_tensor *got, ct_tensor *want, int n) {
    float *y = malloc((size_t)n * sizeof *y);
    double *z = malloc((size_t)n * sizeof *z), worst = 0;
    if (!ct_read(got, y, (size_t)n * sizeof *y) || !ct_read(want, z, (size_t)n * sizeof *z)) worst = INFINITY;
    for (int i = 0; i < n && worst < INFINITY; i++) {
        int exponent;
        double off = 0;
        if (isnan(z[i]) || isnan(y[i])) off = isnan(z[i]) && isnan(y[i]) ? 0 : INFINITY;
        else if (fabs(z[i]) > FLT_MAX) off = isinf(y[i]) || fabsf(y[i]) > 3.4e38f ? 0 : INFINITY;
        else if (fabs(z[i]) >= 32 * (double)FLT_MIN) /* what comes on the way may be smaller than the result */
            frexp(z[i], &exponent), off = fabs((double)y[i] - z[i]) / ldexp(1, exponent - 24);
        else off = fabsf(y[i]) < 64 * FLT_MIN ? 0 : INFINITY;
        if (off > worst) worst = off;
    }
    free(y);
    free(z);
    return worst;
}

TEST_LIMIT(functions_are_exact_to_a_few_units_in_the_last_place_wherever_they_are_taken, 240) {
    WEBGPU(d);
    static const struct {
        const char *name;
        unary of;
        range range;
        double most;
    } functions[] = {
        {"exp", ct_exp, ANY, 3},
        {"exp2", ct_exp2, ANY, 3},
        {"expm1", ct_expm1, ANY, 3},
        {"log", ct_log, POSITIVE, 3},
        {"log2", ct_log2, POSITIVE, 4},
        {"log10", ct_log10, POSITIVE, 4},
        {"log1p", ct_log1p, POSITIVE, 3},
        {"sin", ct_sin, ANY, 4},
        {"cos", ct_cos, ANY, 4},
        {"tan", ct_tan, ANY, 8},
        {"asin", ct_asin, UNIT, 4},
        {"acos", ct_acos, UNIT, 4},
        {"atan", ct_atan, ANY, 4},
        {"sinh", ct_sinh, ANY, 4},
        {"cosh", ct_cosh, ANY, 4},
        {"tanh", ct_tanh, ANY, 3},
        {"asinh", ct_asinh, ANY, 4},
        {"acosh", ct_acosh, FROM_ONE, 4},
        {"atanh", ct_atanh, UNIT, 4},
        {"erf", ct_erf, ANY, 3},
        {"erfc", ct_erfc, ANY, 8},
        {"ndtr", ct_ndtr, ANY, 10},
        {"erfinv", ct_erfinv, UNIT, 6},
        {"lgamma", ct_lgamma, POSITIVE, 10},
        {"digamma", ct_digamma, POSITIVE, 6},
        {"cbrt", ct_cbrt, ANY, 6},
        {"sigmoid", ct_sigmoid, ANY, 5},
        {"sqrt", ct_sqrt, POSITIVE, 4},
        {"rsqrt", ct_rsqrt, POSITIVE, 5},
        {"recip", ct_recip, ANY, 4},
    };
    enum { N = 40000 };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        ct_scope {
            ct_tensor *x = numbers(N, functions[i].range);
            ct_tensor *got = functions[i].of(ct_to(x, d)), *want = functions[i].of(ct_cast(x, CT_F64));
            const double off = got && want ? units_off(got, want, N) : INFINITY;
            if (!CHECK(off <= functions[i].most)) printf("%s: %g units, %s\n", functions[i].name, off, ct_error());
        }
}

TEST_LIMIT(powers_are_exact_to_a_few_units_in_the_last_place, 120) {
    WEBGPU(d);
    enum { N = 40000 };
    ct_tensor *x = numbers(N, POSITIVE), *y = ct_mul_s(numbers(N, UNIT), 3);
    ct_tensor *got = ct_pow(ct_to(x, d), ct_to(y, d)), *want = ct_pow(ct_cast(x, CT_F64), ct_cast(y, CT_F64));
    REQUIRE(got && want);
    CHECK(units_off(got, want, N) <= 3);
}

/* ---- Values that are not finite ---- */

/* Whether the two agree in what is NaN, infinite or a truth value; numbers to some units. */
static bool alike(ct_tensor *a, ct_tensor *b) {
    if (!a || !b) return false;
    ct_tensor *x = ct_cast(ct_to(a, cpu), CT_F64), *y = ct_cast(ct_to(b, cpu), CT_F64);
    ct_tensor *nan = ct_logical_and(ct_isnan(x), ct_isnan(y));
    ct_tensor *room = ct_add_s(ct_mul_s(ct_maximum(ct_abs(x), ct_abs(y)), 2e-6), 1e-37);
    ct_tensor *near = ct_le(ct_abs(ct_sub(x, y)), room);
    return ct_item(ct_all(ct_logical_or(nan, ct_logical_or(ct_eq(x, y), near)))) == 1;
}

static ct_tensor *where_first(ct_tensor *a, ct_tensor *b) { return ct_where(ct_gt(a, b), a, b); }

TEST_LIMIT(what_is_not_finite_comes_out_as_on_the_cpu, 120) {
    WEBGPU(d);
    static const unary one[] = {
        ct_exp,   ct_exp2,  ct_expm1, ct_log,   ct_log2,   ct_log10,    ct_log1p,      ct_sin,     ct_cos,
        ct_tan,   ct_asin,  ct_acos,  ct_atan,  ct_sinh,   ct_cosh,     ct_tanh,       ct_asinh,   ct_acosh,
        ct_atanh, ct_erf,   ct_erfc,  ct_ndtr,  ct_erfinv, ct_lgamma,   ct_cbrt,       ct_sigmoid, ct_sqrt,
        ct_rsqrt, ct_recip, ct_sign,  ct_abs,   ct_relu,   ct_relu6,    ct_silu,       ct_mish,    ct_floor,
        ct_ceil,  ct_round, ct_trunc, ct_isnan, ct_isinf,  ct_isfinite, ct_logical_not};
    static const binary two[] = {ct_add,      ct_sub,         ct_mul,        ct_div,         ct_pow,
                                 ct_fmod,     ct_remainder,   ct_floor_div,  ct_atan2,       ct_hypot,
                                 ct_copysign, ct_maximum,     ct_minimum,    ct_fmax,        ct_fmin,
                                 ct_eq,       ct_ne,          ct_lt,         ct_le,          ct_gt,
                                 ct_ge,       ct_logical_and, ct_logical_or, ct_logical_xor, where_first};
    static const float values[] = {0.0f,     -0.0f,     1,   -1,    2,      -3,     0.5f, -2.5f,
                                   INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 1e-30f, 1e5f};
    enum { N = sizeof values / sizeof *values };
    ct_tensor *x = ct_from_data(values, CT_DIMS(N), CT_F32), *there = ct_to(x, d);
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        ct_scope
            if (!CHECK(alike(one[i](there), one[i](x)))) printf("function %d of one\n", (int)i);
    ct_tensor *a = ct_unsqueeze(x, 1), *a_there = ct_unsqueeze(there, 1);
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        ct_scope
            if (!CHECK(alike(two[i](a_there, there), two[i](a, x)))) printf("function %d of two\n", (int)i);
}

/* ---- Integers ---- */

TEST_LIMIT(integers_of_every_width_wrap_as_on_the_cpu, 120) {
    WEBGPU(d);
    static const binary two[] = {ct_add,
                                 ct_sub,
                                 ct_mul,
                                 ct_floor_div,
                                 ct_remainder,
                                 ct_fmod,
                                 ct_pow,
                                 ct_maximum,
                                 ct_minimum,
                                 ct_eq,
                                 ct_lt,
                                 ct_ge,
                                 ct_bitwise_and,
                                 ct_bitwise_or,
                                 ct_bitwise_xor,
                                 ct_bitwise_left_shift,
                                 ct_bitwise_right_shift};
    static const unary one[] = {ct_neg, ct_abs, ct_sign, ct_square, ct_bitwise_not, ct_relu6};
    static const ct_dtype dtypes[] = {CT_I8, CT_I16, CT_I32, CT_I64, CT_U8};
    static const int64_t values[] = {
        0,           1,   -1,  2,    -2,    3,      -7,        8,         31,        32,        63,
        64,          100, 127, -128, 32767, -32768, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1ll << 40 | 7,
        -(1ll << 45)};
    enum { N = sizeof values / sizeof *values };
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
        ct_scope {
            ct_tensor *x = ct_cast(ct_from_data(values, CT_DIMS(N), CT_I64), dtypes[k]), *y = ct_to(x, d);
            ct_tensor *b = ct_contiguous(ct_expand(x, CT_DIMS(N, N))), *a = ct_contiguous(ct_t(b)), *bd = ct_to(b, d),
                      *ad = ct_to(a, d);
            for (size_t i = 0; i < sizeof two / sizeof *two; i++)
                ct_scope {
                    ct_tensor *got = ct_to(two[i](ad, bd), cpu), *want = two[i](a, b);
                    if (!CHECK(got && want && harness_same_bits(got, want)))
                        printf("function %d of two %s, %s\n", (int)i, ct_dtype_name(dtypes[k]), ct_error());
                }
            for (size_t i = 0; i < sizeof one / sizeof *one; i++)
                ct_scope {
                    ct_tensor *got = ct_to(one[i](y), cpu), *want = one[i](x);
                    if (!CHECK(got && want && harness_same_bits(got, want)))
                        printf("function %d of one %s, %s\n", (int)i, ct_dtype_name(dtypes[k]), ct_error());
                }
        }
}

/* ---- Conversion ---- */

/* Numbers at the ends of every type and between, of which each type has what it can. */
static ct_tensor *of_type(ct_dtype dtype) {
    enum { N = 3001 };
    static const double ends[] = {0,           -0.0,         127,          127.9,         128,          -128.9,
                                  -129,        255.5,        256,          -0.5,          32767.9,      -32769,
                                  65535.5,     65536,        2147483520,   2147483648.,   -2147483648., 4294967040.,
                                  4294967296., 9.2233715e18, 9.2233720e18, -9.2233720e18, 1.8446743e19, 1.8446744e19,
                                  65504,       65519,        65520,        6e-8,          2.98e-8,      3e-8,
                                  464,         465,          61439,        61440,         0.001953125,  0.0009765625};
    float x[N];
    uint64_t state = 5;
    for (int i = 0; i < N; i++) {
        const float any = float_of(next(&state)), near = ((float)next(&state) / 4294967296.0f - 0.5f) * 300.0f;
        x[i] = i % 3 == 0 ? near : i % 3 == 1 ? near * 1e-6f : fabsf(any) >= FLT_MIN ? any : NAN;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) x[i] = (float)ends[i];
    x[100] = INFINITY, x[101] = -INFINITY, x[102] = NAN;
    return ct_cast(ct_from_data(x, CT_DIMS(N), CT_F32), dtype);
}

TEST_LIMIT(every_dtype_converts_to_every_other_as_on_the_cpu, 240) {
    WEBGPU(d);
    for (int from = 0; from < CT_DTYPE_COUNT; from++)
        for (int to = 0; to < CT_DTYPE_COUNT; to++) {
            if (from == CT_F64 || to == CT_F64) continue;
            ct_scope {
                ct_tensor *x = of_type((ct_dtype)from), *got = ct_to(ct_cast(ct_to(x, d), (ct_dtype)to), cpu);
                ct_tensor *want = ct_cast(x, (ct_dtype)to);
                bool same = got && want;
                /* NaN may have other bits: where there is an f32 for it, that is compared */
                if (same && !harness_same_bits(got, want))
                    same = to != CT_COMPLEX64 && alike(ct_cast(got, CT_F32), ct_cast(want, CT_F32));
                if (!CHECK(same))
                    printf("%s to %s: %s\n", ct_dtype_name((ct_dtype)from), ct_dtype_name((ct_dtype)to), ct_error());
            }
        }
}

/* ---- Long tensors ---- */

TEST_LIMIT(tensors_long_enough_for_the_fast_loops_come_out_as_on_the_cpu, 120) {
    WEBGPU(d);
    enum { N = (1 << 20) + 4099 }; /* neither whole fours nor whole groups */
    ct_tensor *a = harness_randn(CT_DIMS(N)), *b = ct_flip(a, CT_DIMS(0)), *ad = ct_to(a, d), *bd = ct_to(b, d);
    ct_tensor *wide = ct_reshape(ct_narrow(a, 0, 0, 1 << 20), CT_DIMS(1024, 1024)), *wide_there = ct_to(wide, d);
    ct_tensor *got[] = {ct_sub(ad, bd),
                        ct_lt(ad, bd),
                        ct_where(ct_lt(ad, bd), ad, bd),
                        ct_mul_s(ad, 3),
                        ct_cast(ad, CT_F16),
                        ct_cast(ct_cast(ad, CT_BF16), CT_F32),
                        ct_cast(ad, CT_I64),
                        ct_sub(ct_narrow(ad, 0, 1, N - 1), ct_narrow(bd, 0, 0, N - 1)),
                        ct_sub(wide_there, ct_narrow(wide_there, 0, 5, 1)),
                        ct_sub(wide_there, ct_narrow(wide_there, 1, 5, 1)),
                        ct_sub(wide_there, ct_t(wide_there))};
    ct_tensor *want[] = {ct_sub(a, b),
                         ct_lt(a, b),
                         ct_where(ct_lt(a, b), a, b),
                         ct_mul_s(a, 3),
                         ct_cast(a, CT_F16),
                         ct_cast(ct_cast(a, CT_BF16), CT_F32),
                         ct_cast(a, CT_I64),
                         ct_sub(ct_narrow(a, 0, 1, N - 1), ct_narrow(b, 0, 0, N - 1)),
                         ct_sub(wide, ct_narrow(wide, 0, 5, 1)),
                         ct_sub(wide, ct_narrow(wide, 1, 5, 1)),
                         ct_sub(wide, ct_t(wide))};
    for (size_t i = 0; i < sizeof got / sizeof *got; i++)
        if (!CHECK(got[i] && want[i] && harness_same_bits(ct_to(got[i], cpu), want[i])))
            printf("number %d: %s\n", (int)i, ct_error());
}
