/* Softmax, norms, cross entropy and dropout on an NVIDIA device where the samples of their ops do not lead: long rows and
 * odd ones, whole packs and parts of them, ignored and wrong classes, the CPU's random numbers, how many kernels run.
 * Without a device all of it is skipped, and says why. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_device.h"

static const ct_device cpu = {CT_CPU, 0};

/* Half a unit in the last place of a result, or what a sum of n terms in f32 may be off. */
static double tolerance(ct_dtype dtype, int64_t n) {
    return dtype == CT_F64    ? 1e-12
           : dtype == CT_BF16 ? 0x1p-8
           : dtype == CT_F16  ? 0x1p-11
                              : 4 * 0x1p-24 * sqrt((double)n) + 16 * 0x1p-24;
}

/* The greatest difference of a result from the same in f64, over the greatest element there. */
static double off(ct_tensor *got, ct_tensor *expected) {
    ct_tensor *wide = ct_cast(ct_to(got, cpu), CT_F64), *apart = ct_sub(wide, expected);
    const double scale = ct_item(ct_amax(ct_abs(expected)));
    return ct_item(ct_amax(ct_abs(apart))) / (scale > 0 ? scale : 1);
}

/* An op of x and some parameters, and its gradients for the cotangent g, on a device in a dtype and in f64 on the CPU:
 * all near. */
enum { MOST = 4 };
typedef struct setting {
    ct_tensor *in[MOST], *g; /* in[0] x; those NULL are left out */
    int n, option;
} setting;
typedef ct_tensor *(*line_op)(ct_tensor *const *in, int option);

static bool agrees(line_op op, const setting *s, ct_device d, ct_dtype dtype, double allowed) {
    ct_tensor *y[2], *grads[2][MOST];
    bool ok = true;
    for (int k = 0; k < 2; k++) {
        ct_tensor *in[MOST];
        for (int i = 0; i < s->n; i++) {
            const bool real = ct_dtype_is_float(ct_dtype_of(s->in[i]));
            ct_tensor *x = real ? ct_cast(ct_cast(s->in[i], dtype), k ? CT_F64 : dtype) : s->in[i];
            in[i] = ct_to(ct_detach(x), k ? cpu : d);
            if (real) in[i] = ct_set_requires_grad(in[i], true);
        }
        y[k] = op(in, s->option);
        ct_tensor *wanted[MOST], *g = s->g ? ct_cast(ct_cast(s->g, dtype), ct_dtype_of(y[k])) : NULL;
        int n = 0;
        for (int i = 0; i < s->n; i++)
            if (ct_requires_grad(in[i])) wanted[n++] = in[i];
        if (g) g = ct_to(g, k ? cpu : d);
        ok = ok && ct_grad(&y[k], 1, g ? &g : NULL, wanted, n, grads[k], 0);
        if (k == 0 || !ok) continue;
        const double apart = off(y[0], y[1]);
        if (!CHECK(apart <= allowed)) printf("  result off by %g\n", apart), ok = false;
        for (int i = 0; i < n; i++) {
            const double far = off(grads[0][i], grads[1][i]);
            if (!CHECK(far <= 4 * allowed)) printf("  gradient %d off by %g\n", i, far), ok = false;
        }
    }
    return CHECK(ok && ct_ok());
}

static const ct_dtype dtypes[] = {CT_F32, CT_BF16, CT_F16, CT_F64};
/* Around a pack and a warp, beyond a block's registers, whole and not. */
static const int64_t lengths[] = {1,   3,    4,    5,    31,   32,   127,  128,   129,   511,   512,
                                  768, 1000, 1024, 2047, 4096, 4097, 8192, 16384, 16400, 33001, 100352};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static ct_tensor *softmax_of(ct_tensor *const *in, int option) { return ct_softmax(in[0], option); }
static ct_tensor *log_softmax_of(ct_tensor *const *in, int option) { return ct_log_softmax(in[0], option); }

TEST_LIMIT(softmax_of_rows_of_any_length_agrees_with_f64, 240) {
    CUDA(d);
    for (int i = 0; i < LENGTHS; i++)
        for (int t = 0; t < 4; t++)
            ct_scope {
                const int64_t n = lengths[i], rows = n > 5000 ? 2 : 5;
                const setting s = {
                    .in = {harness_randn(CT_DIMS(rows, n))}, .n = 1, .option = 1, .g = harness_randn(CT_DIMS(rows, n))};
                if (!agrees(softmax_of, &s, d, dtypes[t], tolerance(dtypes[t], n)) ||
                    !agrees(log_softmax_of, &s, d, dtypes[t], tolerance(dtypes[t], n)))
                    printf("  softmax of %lld, %s\n", (long long)n, ct_dtype_name(dtypes[t]));
            }
}

TEST_LIMIT(softmax_of_columns_and_of_slices_agrees_with_f64, 120) {
    CUDA(d);
    for (int t = 0; t < 4; t++)
        ct_scope {
            ct_tensor *x = harness_randn(CT_DIMS(3, 700, 37)), *g = harness_randn(CT_DIMS(3, 700, 37));
            for (int axis = 0; axis < 3; axis++) {
                const setting s = {.in = {x}, .n = 1, .option = axis, .g = g};
                CHECK(agrees(softmax_of, &s, d, dtypes[t], tolerance(dtypes[t], 700)));
            }
        }
    /* rows that begin anywhere, in a destination that begins elsewhere */
    ct_tensor *wide = ct_to(harness_randn(CT_DIMS(9, 300)), d), *room = ct_zeros(CT_DIMS(9, 311), .device = d);
    ct_tensor *x = ct_narrow(wide, 1, 3, 257), *to = ct_narrow(room, 1, 6, 257);
    CHECK(ct_into(to) && ct_softmax(x, 1));
    CHECK(off(to, ct_softmax(ct_cast(ct_to(x, cpu), CT_F64), 1)) < 1e-6);
    CHECK(ct_item(ct_to(ct_sum(ct_narrow(room, 1, 263, 48)), cpu)) == 0);
}

TEST_LIMIT(softmax_keeps_infinities_and_nan_to_their_rows, 60) {
    CUDA(d);
    enum { N = 5000 };
    ct_tensor *x = harness_randn(CT_DIMS(4, N)), *y;
    float *at = ct_data_mut(x);
    for (int i = 0; i < N; i++) at[i] = i == 4321 ? 3.0f : -INFINITY; /* one that counts */
    for (int i = 0; i < N; i++) at[N + i] = -INFINITY;
    at[2 * N + 17] = NAN;
    y = ct_to(ct_softmax(ct_to(x, d), 1), cpu);
    const float *p = ct_data(y);
    REQUIRE(p != NULL);
    CHECK(p[4321] == 1 && p[0] == 0 && isnan(p[N]) && isnan(p[2 * N]) && isnan(p[3 * N - 1]));
    float sum = 0;
    for (int i = 0; i < N; i++) sum += p[3 * N + i];
    CHECK_NEAR((double)sum, 1, 1e-5);
}

static ct_tensor *layer_norm_of(ct_tensor *const *in, int option) {
    return ct_layer_norm(in[0], CT_DIMS(option), .weight = in[1], .bias = in[2]);
}
static ct_tensor *rms_norm_of(ct_tensor *const *in, int option) {
    return ct_rms_norm(in[0], CT_DIMS(option), .weight = in[1], .eps = CT_SET(1e-3));
}

TEST_LIMIT(norms_of_rows_of_any_length_agree_with_f64, 240) {
    CUDA(d);
    for (int i = 1; i < LENGTHS; i++) /* the variance of one element is 0 */
        for (int t = 0; t < 4; t++)
            ct_scope {
                const int64_t n = lengths[i], rows = n > 5000 ? 3 : n == 768 ? 700 : 19;
                const setting s = {.in = {ct_add_s(harness_randn(CT_DIMS(rows, n)), 2), harness_randn(CT_DIMS(n)),
                                          harness_randn(CT_DIMS(n))},
                                   .n = 3,
                                   .option = (int)n,
                                   .g = harness_randn(CT_DIMS(rows, n))};
                setting rms = s;
                rms.n = 2;
                if (!agrees(layer_norm_of, &s, d, dtypes[t], 2 * tolerance(dtypes[t], n)) ||
                    !agrees(rms_norm_of, &rms, d, dtypes[t], 2 * tolerance(dtypes[t], n)))
                    printf("  norm of %lld, %s\n", (long long)n, ct_dtype_name(dtypes[t]));
            }
}

TEST_LIMIT(a_norm_far_from_zero_loses_no_digits, 60) {
    CUDA(d);
    for (int64_t n = 1000; n <= 4096; n += 3096)
        ct_scope {
            ct_tensor *x = ct_add_s(harness_randn(CT_DIMS(6, n)), 10000), *wide = ct_cast(x, CT_F64);
            ct_tensor *y = ct_layer_norm(ct_to(x, d), CT_DIMS(n)), *expected = ct_layer_norm(wide, CT_DIMS(n));
            CHECK(off(y, expected) < 1e-5);
        }
}

/* ---- Cross entropy ---- */

static ct_tensor *classes(int64_t n, int64_t rows, int64_t ignored) {
    ct_seed(5);
    ct_tensor *t = ct_randint(CT_DIMS(rows), 0, (double)n);
    int64_t *at = ct_data_mut(t);
    if (ignored) at[rows / 2] = -100;
    return t;
}
static ct_tensor *entropy_of(ct_tensor *const *in, int option) {
    return ct_cross_entropy_loss(in[0], in[1], .reduction = option & 3, .label_smoothing = option & 4 ? 0.1 : 0);
}
static ct_tensor *weighted_entropy_of(ct_tensor *const *in, int option) {
    return ct_cross_entropy_loss(in[0], in[1], .weight = ct_detach(in[2]), .reduction = option & 3,
                                 .label_smoothing = option & 4 ? 0.1 : 0);
}

TEST_LIMIT(cross_entropy_of_rows_of_any_length_agrees_with_f64, 240) {
    CUDA(d);
    for (int i = 1; i < LENGTHS; i++)
        for (int t = 0; t < 4; t++)
            for (int option = 0; option < 8; option++)
                ct_scope {
                    const int64_t n = lengths[i], rows = n > 5000 ? 3 : n > 500 ? 70 : 37;
                    if ((option & 3) == 3 || (option & 4 && i % 3)) continue;
                    setting s = {.in = {ct_mul_s(harness_randn(CT_DIMS(rows, n)), 3), classes(n, rows, i % 2)},
                                 .n = 2,
                                 .option = option};
                    if ((option & 3) == CT_NONE) s.g = harness_randn(CT_DIMS(rows));
                    /* of halves too the loss is a number in f32 that is rounded once */
                    bool ok = agrees(entropy_of, &s, d, dtypes[t], tolerance(dtypes[t], n));
                    s.in[2] = ct_add_s(ct_abs(harness_randn(CT_DIMS(n))), 0.5);
                    if (dtypes[t] == CT_F64) s.n = 3, s.in[2] = ct_cast(s.in[2], CT_F64);
                    if (dtypes[t] == CT_F64 && i < 8) ok = agrees(weighted_entropy_of, &s, d, dtypes[t], 1e-12) && ok;
                    if (!ok)
                        printf("  cross entropy of %lld, %s, option %d\n", (long long)n, ct_dtype_name(dtypes[t]),
                               option);
                }
}

TEST_LIMIT(cross_entropy_by_places_agrees_with_f64, 60) {
    CUDA(d);
    for (int t = 0; t < 4; t++)
        for (int option = 0; option < 3; option++)
            ct_scope {
                ct_seed(3);
                ct_tensor *x = harness_randn(CT_DIMS(3, 21, 17, 19)), *target = ct_randint(CT_DIMS(3, 17, 19), 0, 21);
                const setting s = {.in = {x, target},
                                   .n = 2,
                                   .option = option,
                                   .g = option == CT_NONE ? harness_randn(CT_DIMS(3, 17, 19)) : NULL};
                CHECK(agrees(entropy_of, &s, d, dtypes[t], tolerance(dtypes[t], 1000)));
            }
}

TEST_LIMIT(large_logits_cost_no_digits, 60) {
    CUDA(d);
    ct_tensor *x = ct_add_s(harness_randn(CT_DIMS(5, 3000)), 30000), *target = classes(3000, 5, 0);
    const setting s = {.in = {x, target}, .n = 2};
    CHECK(agrees(entropy_of, &s, d, CT_F32, 1e-5));
}

TEST_LIMIT(nothing_but_ignored_targets_gives_zero, 60) {
    CUDA(d);
    for (int rows = 4; rows <= 4000; rows += 3996)
        ct_scope {
            ct_tensor *x = ct_set_requires_grad(ct_to(harness_randn(CT_DIMS(rows, 100)), d), true), *dx = NULL;
            ct_tensor *t = ct_full(CT_DIMS(rows), -100, .dtype = CT_I64, .device = d), *y = ct_cross_entropy_loss(x, t);
            CHECK(ct_item(y) == 0 && ct_grad(&y, 1, NULL, &x, 1, &dx, 0));
            CHECK(ct_item(ct_amax(ct_abs(dx))) == 0);
        }
}

TEST_LIMIT(a_wrong_class_is_an_error_at_the_next_wait_and_the_device_goes_on, 60) {
    CUDA(d);
    for (int wide = 0; wide < 2; wide++)
        ct_scope { /* few logits, and many */
            const int64_t rows = wide ? 300 : 5, n = wide ? 1000 : 10;
            ct_tensor *t = ct_zeros(CT_DIMS(rows), .dtype = CT_I64), *x = ct_to(harness_randn(CT_DIMS(rows, n)), d);
            ((int64_t *)ct_data_mut(t))[3] = n;
            x = ct_set_requires_grad(x, true);
            ct_tensor *y = ct_cross_entropy_loss(x, ct_to(t, d)), *dx;
            CHECK(ct_grad(&y, 1, NULL, &x, 1, &dx, 0) && ct_ok());
            CHECK(!ct_synchronize(d));
            CHECK_ERROR(CT_ERR_INDEX, wide ? "cross_entropy_loss: target is 1000 at element 3; it has to be in 0 to 999"
                                           : "cross_entropy_loss: target is 10 at element 3; it has to be in 0 to 9");
            ((int64_t *)ct_data_mut(t))[3] = 0;
            y = ct_cross_entropy_loss(x, ct_to(t, d));
            CHECK(ct_grad(&y, 1, NULL, &x, 1, &dx, 0) && isfinite(ct_item(y)) && ct_synchronize(d));
        }
}

TEST_LIMIT(losses_and_gradients_have_the_same_bits_every_time, 60) {
    CUDA(d);
    ct_tensor *x = ct_to(ct_cast(harness_randn(CT_DIMS(2000, 1003)), CT_BF16), d),
              *w = ct_to(ct_ones(CT_DIMS(1003)), d), *got[2][3];
    ct_tensor *t = ct_to(classes(1003, 2000, 1), d);
    x = ct_set_requires_grad(x, true), w = ct_set_requires_grad(w, true);
    for (int k = 0; k < 2; k++) {
        ct_tensor *y = ct_cross_entropy_loss(x, t),
                  *z = ct_mean(ct_square(ct_layer_norm(x, CT_DIMS(1003), .weight = w)));
        got[k][0] = ct_to(y, cpu);
        REQUIRE(ct_grad(&y, 1, NULL, &x, 1, &got[k][1], 0) && ct_grad(&z, 1, NULL, &w, 1, &got[k][2], 0));
    }
    for (int i = 0; i < 3; i++) CHECK(harness_same_bits(ct_to(got[0][i], cpu), ct_to(got[1][i], cpu)));
}

TEST_LIMIT(half_logits_are_read_as_they_are_and_the_loss_is_f32_under_autocast, 60) {
    CUDA(d);
    ct_tensor *x = ct_set_requires_grad(ct_to(ct_cast(harness_randn(CT_DIMS(1024, 500)), CT_BF16), d), true), *dx,
              *y = NULL;
    ct_tensor *t = ct_to(classes(500, 1024, 0), d);
    ct_memory before = {.size = sizeof before}, after = before;
    REQUIRE(ct_memory_reset_peak(d) && ct_memory_stats(d, &before));
    ct_autocast(CT_BF16) { y = ct_cross_entropy_loss(x, t); }
    CHECK(ct_memory_stats(d, &after) && after.peak - before.in_use < 1 << 20);
    CHECK(ct_dtype_of(y) == CT_F32);
    CHECK(ct_grad(&y, 1, NULL, &x, 1, &dx, 0) && ct_dtype_of(dx) == CT_BF16);
}

/* ---- Dropout ---- */

TEST_LIMIT(dropout_and_its_gradient_are_those_of_the_cpu_bit_for_bit, 60) {
    CUDA(d);
    for (int t = 0; t < 4; t++)
        for (int64_t n = 1; n <= 5003; n += 1667)
            ct_scope {
                ct_tensor *x = ct_cast(harness_randn(CT_DIMS(3, n)), dtypes[t]), *got[2], *grads[2];
                for (int k = 0; k < 2; k++) {
                    ct_tensor *in = ct_set_requires_grad(ct_to(ct_detach(x), k ? d : cpu), true),
                              *g = ct_to(x, k ? d : cpu);
                    ct_seed(11);
                    got[k] = ct_dropout(in, 0.3);
                    REQUIRE(ct_grad(&got[k], 1, &g, &in, 1, &grads[k], 0));
                }
                CHECK(harness_same_bits(got[0], ct_to(got[1], cpu)) &&
                      harness_same_bits(grads[0], ct_to(grads[1], cpu)));
                ct_tensor *view = ct_t(ct_to(x, d));
                ct_seed(2);
                got[0] = ct_dropout(ct_t(x), 0.6);
                ct_seed(2);
                got[1] = ct_dropout(view, 0.6);
                CHECK(harness_same_bits(got[0], ct_to(got[1], cpu)));
            }
}

/* ---- Launches ---- */

TEST_LIMIT(small_losses_norms_and_dropout_take_few_kernels, 60) {
    CUDA(d);
    ct_tensor *x = ct_set_requires_grad(ct_to(harness_randn(CT_DIMS(64, 10)), d), true),
              *t = ct_to(classes(10, 64, 0), d);
    ct_tensor *one = ct_ones(CT_DIMS0, .device = d), *g = ct_ones(CT_DIMS(64, 10), .device = d), *dx;
    harness_log_start();
    ct_tensor *y = ct_cross_entropy_loss(x, t);
    CHECK(ct_grad(&y, 1, &one, &x, 1, &dx, 0));
    ct_tensor *dropped = ct_dropout(x, 0.5);
    CHECK(ct_grad(&dropped, 1, &g, &x, 1, &dx, 0));
    harness_log_stop();
    CHECK(harness_log_calls("class_loss") == 1 && harness_log_calls("class_loss_grad") == 1);
    CHECK(harness_log_calls("dropout_draw") == 1 && harness_log_calls("dropout_replay") == 1);
    int kernels = 0;
    for (int i = 0; harness_log_line(i); i++) kernels += !strstr(harness_log_line(i), "  lower");
    CHECK(kernels == 4);
}
