/* Reductions, scans, sorts, softmax, norms, cross entropy and draws on WebGPU where the samples of their ops do not lead:
 * more elements than a workgroup takes, lines in aligned quads and not, what is not finite, wrong classes, the categories
 * that the CPU draws. */
#include <math.h>
#include <string.h>

#include "tests/webgpu_device.h"

static const ct_device cpu = {CT_CPU, 0};

static const ct_dtype dtypes[] = {CT_F32, CT_BF16, CT_F16, CT_I32, CT_I64, CT_I8, CT_U8, CT_BOOL};
enum { FLOATS = 3, DTYPES = 8 };

static ct_tensor *of_dtype(ct_dims shape, ct_dtype dtype) {
    if (ct_dtype_is_float(dtype)) return ct_cast(harness_randn(shape), dtype);
    const int64_t low = dtype == CT_BOOL || dtype == CT_U8 ? 0 : -9, high = dtype == CT_BOOL ? 2 : 10;
    ct_seed(7);
    return ct_cast(ct_randint(shape, low, high), dtype);
}

static double tolerance(ct_dtype dtype, int64_t n) {
    return dtype == CT_BF16  ? 0x1p-8
           : dtype == CT_F16 ? 0x1p-11
           : dtype == CT_F32 ? 4 * 0x1p-24 * sqrt((double)n) + 16 * 0x1p-24
                             : 0;
}

/* Elements that are not finite agree, the others differ by no more than that share of the greatest of them. */
static bool near(ct_tensor *there, ct_tensor *here, double allowed) {
    ct_tensor *a = ct_contiguous(ct_cast(ct_to(there, cpu), CT_F64)), *b = ct_contiguous(ct_cast(here, CT_F64));
    const double *x = ct_data(a), *y = ct_data(b);
    double scale = 0;
    if (!x || !y || ct_numel(a) != ct_numel(b)) return false;
    for (int64_t i = 0; i < ct_numel(b); i++)
        if (isfinite(y[i]) && fabs(y[i]) > scale) scale = fabs(y[i]);
    for (int64_t i = 0; i < ct_numel(b); i++) {
        const bool same = x[i] == y[i] || (isnan(x[i]) && isnan(y[i]));
        if (same || fabs(x[i] - y[i]) <= allowed * scale) continue;
        printf("  element %lld is %g, not %g\n", (long long)i, x[i], y[i]);
        return false;
    }
    return true;
}

/* ---- Reductions, scans, order ---- */

TEST_LIMIT(reductions_in_parts_agree_with_the_cpu, 300) {
    WEBGPU(d);
    const ct_dims shapes[] = {CT_DIMS(70000), CT_DIMS(5, 20000), CT_DIMS(700, 132), CT_DIMS(301, 67)};
    for (int s = 0; s < 4; s++)
        for (int t = 0; t < DTYPES; t++)
            ct_scope {
                ct_tensor *x = of_dtype(shapes[s], dtypes[t]), *on = ct_to(x, d);
                for (int axis = 0; axis < shapes[s].n; axis++) {
                    const ct_dims axes = CT_DIMS(axis);
                    CHECK(near(ct_sum(on, .axes = axes), ct_sum(x, .axes = axes), tolerance(dtypes[t], 70000)));
                    CHECK(near(ct_amax(on, .axes = axes), ct_amax(x, .axes = axes), 0));
                    CHECK(near(ct_argmin(on, .axis = CT_SET(axis)), ct_argmin(x, .axis = CT_SET(axis)), 0));
                }
                if (s == 3) { /* views that no quad fits */
                    ct_tensor *part = ct_narrow(ct_t(x), 1, 1, 9), *part_on = ct_narrow(ct_t(on), 1, 1, 9);
                    CHECK(near(ct_sum(part_on, .axes = CT_DIMS(0)), ct_sum(part, .axes = CT_DIMS(0)),
                               tolerance(dtypes[t], 67)));
                    CHECK(near(ct_argmax(part_on), ct_argmax(part), 0));
                }
            }
}

TEST_LIMIT(a_nan_is_found_and_products_do_not_overflow_on_their_way, 60) {
    WEBGPU(d);
    ct_tensor *x = harness_randn(CT_DIMS(3, 5000));
    float *at = ct_data_mut(x);
    at[5000 + 4321] = NAN, at[17] = INFINITY, at[2 * 5000 + 3] = -INFINITY;
    ct_tensor *on = ct_to(x, d);
    CHECK(near(ct_amax(on, .axes = CT_DIMS(1)), ct_amax(x, .axes = CT_DIMS(1)), 0));
    CHECK(near(ct_amin(on, .axes = CT_DIMS(1)), ct_amin(x, .axes = CT_DIMS(1)), 0));
    CHECK(near(ct_argmin(on, .axis = CT_SET(1)), ct_argmin(x, .axis = CT_SET(1)), 0));
    CHECK(near(ct_sort(on, 1), ct_sort(x, 1), 0));
    ct_tensor *large = ct_full(CT_DIMS(60), 1e30), *small = ct_full(CT_DIMS(60), 1e-30);
    ct_tensor *both = ct_cat(((ct_tensor *[]){large, small}), 2, 0);
    CHECK_NEAR(ct_item(ct_to(ct_prod(ct_to(both, d)), cpu)), 1.0, 1e-4);
    CHECK_NEAR(ct_item(ct_to(ct_select(ct_cumprod(ct_to(both, d), 0), 0, 119), cpu)), 1.0, 1e-4);
}

TEST_LIMIT(scans_in_chunks_agree_with_the_cpu, 200) {
    WEBGPU(d);
    const ct_dims shapes[] = {CT_DIMS(2, 9000), CT_DIMS(300, 40), CT_DIMS(9001, 2)};
    for (int s = 0; s < 3; s++)
        for (int t = 0; t < DTYPES; t += 2)
            ct_scope {
                ct_tensor *x = of_dtype(shapes[s], dtypes[t]), *on = ct_to(x, d), *i, *j;
                for (int axis = 0; axis < 2; axis++) {
                    CHECK(near(ct_cumsum(on, axis), ct_cumsum(x, axis), tolerance(dtypes[t], 9000)));
                    ct_tensor *there = ct_cummax(on, axis, .indices = &i), *here = ct_cummax(x, axis, .indices = &j);
                    CHECK(near(there, here, 0) && near(i, j, 0));
                }
            }
}

TEST_LIMIT(long_sorts_are_stable, 200) {
    WEBGPU(d);
    const ct_dims shapes[] = {CT_DIMS(20000), CT_DIMS(9, 1024), CT_DIMS(5, 1025), CT_DIMS(3000, 3)};
    for (int s = 0; s < 4; s++)
        for (int t = 0; t < DTYPES; t++)
            ct_scope {
                ct_tensor *x = of_dtype(shapes[s], dtypes[t]), *on = ct_to(x, d), *i, *j;
                const int axis = s == 3 ? 0 : shapes[s].n - 1;
                ct_tensor *there = ct_sort(on, axis, .descending = t % 2, .indices = &i),
                          *here = ct_sort(x, axis, .descending = t % 2, .indices = &j);
                CHECK(near(there, here, 0) && near(i, j, 0));
                ct_topk(on, 5, axis, .indices = &i), ct_topk(x, 5, axis, .indices = &j);
                CHECK(near(i, j, 0));
            }
}

/* ---- Rows ---- */

enum { MOST = 4 };
typedef ct_tensor *(*line_op)(ct_tensor *const *in, int option);

/* An op and its gradients in a dtype against f64 on the CPU. */
static bool agrees(line_op op, ct_tensor *const *given, int n, int option, ct_device d, ct_dtype dtype,
                   double allowed) {
    ct_tensor *y[2], *grads[2][MOST] = {{NULL}}, *g = NULL;
    bool ok = true;
    for (int k = 0; k < 2; k++) {
        ct_tensor *in[MOST] = {NULL}, *wanted[MOST];
        int m = 0;
        for (int i = 0; i < n; i++) {
            if (!given[i]) continue;
            const bool real = ct_dtype_is_float(ct_dtype_of(given[i]));
            ct_tensor *x = real ? ct_cast(ct_cast(given[i], dtype), k ? CT_F64 : dtype) : given[i];
            in[i] = ct_to(ct_detach(x), k ? cpu : d);
            if (real) in[i] = wanted[m++] = ct_set_requires_grad(in[i], true);
        }
        y[k] = op(in, option);
        if (!y[k]) return false;
        if (!g) g = ct_cast(ct_sin(ct_mul_s(harness_randn(ct_shape(y[k])), 7)), dtype); /* other numbers than x has */
        ct_tensor *cotangent = ct_to(ct_cast(g, ct_dtype_of(y[k])), k ? cpu : d);
        ok = ok && ct_grad(&y[k], 1, &cotangent, wanted, m, grads[k], 0);
        for (int i = 0; k && ok && i < m; i++) ok = near(grads[0][i], grads[1][i], 4 * allowed);
    }
    return ok && near(y[0], y[1], allowed) && ct_ok();
}

static ct_tensor *softmax_of(ct_tensor *const *in, int axis) { return ct_softmax(in[0], axis); }
static ct_tensor *log_softmax_of(ct_tensor *const *in, int axis) { return ct_log_softmax(in[0], axis); }
static ct_tensor *logsumexp_of(ct_tensor *const *in, int axis) { return ct_logsumexp(in[0], .axes = CT_DIMS(axis)); }

TEST_LIMIT(softmax_of_rows_and_columns_agrees_with_f64, 240) {
    WEBGPU(d);
    const ct_dims shapes[] = {CT_DIMS(5, 36), CT_DIMS(3, 8192), CT_DIMS(2, 12000), CT_DIMS(2, 9001), CT_DIMS(300, 40)};
    for (int s = 0; s < 5; s++)
        for (int t = 0; t < FLOATS; t++)
            ct_scope {
                ct_tensor *x[] = {harness_randn(shapes[s])};
                for (int axis = s == 4 ? 0 : 1; axis < 2; axis++) {
                    const double allowed = tolerance(dtypes[t], 10000);
                    CHECK(agrees(softmax_of, x, 1, axis, d, dtypes[t], allowed));
                    CHECK(agrees(log_softmax_of, x, 1, axis, d, dtypes[t], allowed));
                    CHECK(agrees(logsumexp_of, x, 1, axis, d, dtypes[t], allowed));
                }
            }
    ct_tensor *x = ct_full(CT_DIMS(4, 64), -INFINITY);
    float *at = ct_data_mut(x);
    at[64 + 5] = 3, at[2 * 64 + 7] = NAN, at[3 * 64 + 1] = INFINITY;
    ct_tensor *on = ct_to(x, d);
    for (int k = 0; k < 2; k++) { /* in quads, then not */
        CHECK(near(ct_softmax(on, 1), ct_softmax(x, 1), 0));
        CHECK(near(ct_log_softmax(on, 1), ct_log_softmax(x, 1), 0));
        CHECK(near(ct_logsumexp(on, .axes = CT_DIMS(1)), ct_logsumexp(x, .axes = CT_DIMS(1)), 0));
        x = ct_narrow(x, 1, 1, 61 - k), on = ct_narrow(on, 1, 1, 61 - k);
    }
}

static ct_tensor *layer_norm_of(ct_tensor *const *in, int rms) {
    const ct_dims shape = CT_DIMS(ct_dim(in[0], 1));
    return rms ? ct_rms_norm(in[0], shape, .weight = in[1], .eps = CT_SET(1e-5))
               : ct_layer_norm(in[0], shape, .weight = in[1], .bias = in[2]);
}

TEST_LIMIT(norms_of_rows_agree_with_f64, 240) {
    WEBGPU(d);
    const int64_t lengths[] = {4, 7, 512, 513, 4096, 8192, 8200};
    for (int i = 0; i < 7; i++)
        for (int t = 0; t < FLOATS; t++)
            ct_scope {
                const int64_t n = lengths[i], rows = n < 600 ? 700 : 5;
                ct_tensor *in[] = {ct_add_s(harness_randn(CT_DIMS(rows, n)), 2), harness_randn(CT_DIMS(n)),
                                   harness_randn(CT_DIMS(n))};
                for (int rms = 0; rms < 2; rms++)
                    CHECK(agrees(layer_norm_of, in, 3 - rms, rms, d, dtypes[t], 2 * tolerance(dtypes[t], rows + n)));
            }
}

static ct_tensor *channel_norm_of(ct_tensor *const *in, int option) {
    const bool last = option & 1, relu = option & 4;
    return option & 2 ? ct_group_norm(in[0], 2, .weight = in[1], .bias = in[2], .channels_last = last)
                      : ct_batch_norm(in[0], .weight = in[1], .bias = in[2], .residual = in[3], .training = true,
                                      .relu = relu, .channels_last = last);
}

TEST_LIMIT(norms_by_channels_agree_with_f64, 240) {
    WEBGPU(d);
    const int64_t sizes[][3] = {{4, 6, 35}, {8, 16, 144}, {3, 8, 3300}}; /* items, channels, places */
    static const int options[] = {0, 1, 2, 3, 4, 5};
    for (int s = 0; s < 3; s++)
        for (int o = 0; o < 6; o++)
            ct_scope {
                const int64_t n = sizes[s][0], c = sizes[s][1], m = sizes[s][2];
                const ct_dims shape = options[o] & 1 ? CT_DIMS(n, m, c) : CT_DIMS(n, c, m);
                ct_tensor *in[] = {ct_add_s(harness_randn(shape), 2), harness_randn(CT_DIMS(c)),
                                   harness_randn(CT_DIMS(c)),
                                   options[o] & 4 ? ct_mul_s(harness_randn(shape), 3) : NULL};
                CHECK(agrees(channel_norm_of, in, 4, options[o], d, CT_F32, 2 * tolerance(CT_F32, n * m)));
            }
}

/* ---- Classes ---- */

static ct_tensor *cross_entropy_of(ct_tensor *const *in, int option) {
    return ct_cross_entropy_loss(in[0], in[2], .weight = in[1], .reduction = option % 3, .ignore_index = CT_SET(3),
                                 .label_smoothing = option >= 3 ? 0.1 : 0);
}

TEST_LIMIT(cross_entropy_agrees_with_f64, 240) {
    WEBGPU(d);
    const ct_dims shapes[] = {CT_DIMS(700, 10), CT_DIMS(40, 1000), CT_DIMS(2, 20000), CT_DIMS(3, 5001),
                              CT_DIMS(6, 7, 33)};
    for (int s = 0; s < 5; s++)
        for (int option = 0; option < 6; option++)
            ct_scope {
                const ct_dims shape = shapes[s],
                              rest = shape.n > 2 ? CT_DIMS(shape.d[0], shape.d[2]) : CT_DIMS(shape.d[0]);
                ct_seed(5);
                ct_tensor *in[] = {harness_randn(shape), s % 2 ? ct_add_s(ct_rand(CT_DIMS(shape.d[1])), 0.1) : NULL,
                                   ct_cast(ct_randint(rest, 0, shape.d[1]), option % 2 ? CT_I32 : CT_I64)};
                const ct_dtype dtype = dtypes[(s + option) % FLOATS];
                CHECK(agrees(cross_entropy_of, in, 3, option, d, dtype, tolerance(dtype, 10000)));
            }
}

TEST_LIMIT(a_wrong_class_is_named, 30) {
    WEBGPU(d);
    ct_tensor *x = ct_to(harness_randn(CT_DIMS(5, 7)), d), *t = ct_to(ct_full(CT_DIMS(5), 9, .dtype = CT_I64), d);
    ct_tensor *y = ct_cross_entropy_loss(x, t);
    REQUIRE(y != NULL);
    CHECK(isnan(ct_item(y)) && ct_error_code() == CT_ERR_INDEX && strstr(ct_error(), "target is 9 at element"));
    ct_error_clear();
}

/* ---- What the CPU finds in f64 ---- */

TEST_LIMIT(the_same_categories_are_drawn_as_on_the_cpu, 120) {
    WEBGPU(d);
    const int64_t categories[] = {1, 17, 300, 5000};
    for (int k = 0; k < 4; k++)
        for (int option = 0; option < 4; option++)
            ct_scope {
                const int64_t n = categories[k], draws = option & 2 ? n : n < 20 ? n : 20;
                ct_tensor *weights = ct_exp(ct_mul_s(harness_randn(CT_DIMS(3, n)), option & 2 ? 4 : 1));
                ct_seed(k);
                ct_tensor *here = ct_multinomial(weights, draws, .replacement = option & 1);
                ct_seed(k);
                ct_tensor *there = ct_multinomial(ct_to(weights, d), draws, .replacement = option & 1);
                CHECK(here && there && harness_same_bits(ct_to(there, cpu), here));
            }
}

TEST_LIMIT(values_at_the_edges_of_bins_fall_as_on_the_cpu, 60) {
    WEBGPU(d);
    for (int64_t bins = 1; bins < 40; bins += 6) {
        ct_tensor *x = ct_cat(((ct_tensor *[]){ct_linspace(-1.7, 3.1, 5 * bins + 1), ct_linspace(-2, 4, 997)}), 2, 0);
        CHECK(harness_same_bits(ct_to(ct_histogram(ct_to(x, d), bins, -1.7, 3.1), cpu),
                                ct_histogram(x, bins, -1.7, 3.1)));
        ct_tensor *whole = ct_arange(-50, 300, 1, .dtype = CT_I64);
        CHECK(harness_same_bits(ct_to(ct_histogram(ct_to(whole, d), bins, -7, 250), cpu),
                                ct_histogram(whole, bins, -7, 250)));
    }
}
