/* Products on an NVIDIA device: linear and its gradients in every dtype and layout, TF32, choices by measuring, threads. What every sample of
 * the ops gives is compared with the CPU by `cotangent check --device cuda`; here are sizes that fill tiles, and what is no op. */
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda_device.h"
#include "tests/files.h"

static const ct_device cpu = {CT_CPU, 0};

/* The largest distance of elements, over the largest element of b. */
static double distance(ct_tensor *a, ct_tensor *b) {
    a = ct_cast(ct_to(a, cpu), CT_F64);
    b = ct_cast(ct_to(b, cpu), CT_F64);
    return ct_item(ct_amax(ct_abs(ct_sub(a, b)))) / (1e-30 + ct_item(ct_amax(ct_abs(b))));
}

/* A sum of k products, rounded to the dtype at its end. */
static double tolerance(ct_dtype dtype, int64_t k) {
    const double unit = dtype == CT_F64 ? 0x1p-53 : dtype == CT_F32 ? 0x1p-24 : dtype == CT_F16 ? 0x1p-11 : 0x1p-8;
    return 2 * unit + 4 * sqrt((double)k) * (dtype == CT_F64 ? 0x1p-53 : 0x1p-24);
}

static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_F16, CT_BF16};

typedef struct layer {
    ct_tensor *x, *w, *bias, *g;
} layer;

static ct_tensor *part(ct_tensor *x, ct_dtype dtype, ct_device d) {
    return x ? ct_set_requires_grad(ct_to(ct_cast(x, dtype), d), true) : NULL;
}

/* y and the gradients of all three on a device, from operands that are the same in every dtype. */
static bool run_layer(const layer *l, ct_dtype dtype, ct_device d, ct_activation activation, ct_tensor *made[4]) {
    ct_tensor *x = part(l->x, dtype, d), *w = part(l->w, dtype, d), *bias = part(l->bias, dtype, d);
    ct_tensor *y = ct_linear(x, w, .bias = bias, .activation = activation);
    if (!ct_backward_from(y, ct_to(ct_cast(l->g, dtype), d), 0)) return false;
    made[0] = y, made[1] = ct_grad_of(x), made[2] = ct_grad_of(w), made[3] = bias ? ct_grad_of(bias) : NULL;
    return ct_ok();
}

static ct_tensor *in_half(ct_dims shape) { return ct_cast(ct_cast(harness_randn(shape), CT_BF16), CT_F32); }

TEST_LIMIT(linear_and_its_gradients_are_the_cpus_at_sizes_that_fill_tiles, 300) {
    CUDA(d);
    static const struct {
        int64_t rows, in, out;
    } sizes[] = {{64, 784, 512},  {64, 512, 10},   {1, 96, 40},    {130, 67, 33},
                 {257, 128, 512}, {4104, 40, 512}, {64, 2048, 512}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int k = 0; k < 4; k++)
            for (int a = CT_ACT_NONE; a <= CT_ACT_SILU; a++)
                for (int biased = 0; biased < 2; biased++)
                    ct_scope {
                        const int64_t rows = sizes[s].rows, in = sizes[s].in, out = sizes[s].out;
                        const layer l = {in_half(CT_DIMS(rows, in)), ct_mul_s(in_half(CT_DIMS(out, in)), 0.0625),
                                         biased ? in_half(CT_DIMS(out)) : NULL, in_half(CT_DIMS(rows, out))};
                        ct_tensor *here[4], *there[4];
                        REQUIRE(run_layer(&l, CT_F64, cpu, (ct_activation)a, here) &&
                                run_layer(&l, dtypes[k], d, (ct_activation)a, there));
                        /* gradients are products of what was rounded to the dtype before */
                        const double unit = tolerance(dtypes[k], in + rows + out);
                        for (int i = 0; i < 3 + biased; i++) {
                            const double off = distance(there[i], here[i]);
                            harness_check(off <= (i ? 8 : 1) * unit, __FILE__, __LINE__,
                                          "%s, activation %d, result %d of %lld x %lld x %lld: off by %g",
                                          ct_dtype_name(dtypes[k]), a, i, (long long)rows, (long long)in,
                                          (long long)out, off);
                        }
                    }
}

TEST_LIMIT(linear_takes_views_that_are_not_aligned_or_dense, 300) {
    CUDA(d);
    for (int k = 0; k < 4; k++)
        for (int shift = 0; shift < 3; shift++)
            ct_scope {
                const ct_dtype dtype = dtypes[k];
                ct_tensor *all = in_half(CT_DIMS(40, 83)), *weights = ct_mul_s(in_half(CT_DIMS(70, 91)), 0.125);
                ct_tensor *made[2][2];
                for (int there = 0; there < 2; there++) {
                    const ct_device on = there ? d : cpu;
                    const ct_dtype as = there ? dtype : CT_F64;
                    ct_tensor *x = ct_to(ct_cast(all, as), on), *w = ct_to(ct_cast(weights, as), on);
                    x = ct_narrow(ct_narrow(x, 1, shift, 64), 0, shift, 37);
                    w = shift == 2 ? ct_narrow(ct_t(w), 1, 3, 64) : ct_narrow(w, 1, 2 * shift + 1, 64);
                    w = ct_set_requires_grad(ct_detach(w), true);
                    ct_tensor *bias = ct_to(ct_cast(ct_narrow(weights, 1, 7, 1), as), on);
                    bias = ct_narrow(ct_flatten(ct_cat((ct_tensor *[]){bias, bias}, 2, 0)), 0, shift, ct_dim(w, 0));
                    ct_tensor *y = ct_linear(x, w, .bias = bias, .activation = CT_ACT_RELU);
                    REQUIRE(y && ct_backward(ct_sum(y))); /* whose cotangent has strides of 0 */
                    made[there][0] = y, made[there][1] = ct_grad_of(w);
                }
                CHECK(distance(made[1][0], made[0][0]) <= tolerance(dtype, 64));
                CHECK(distance(made[1][1], made[0][1]) <= 8 * tolerance(dtype, 64));
            }
}

TEST_LIMIT(relu_of_linear_keeps_nan, 120) {
    CUDA(d);
    for (int k = 0; k < 4; k++) {
        ct_tensor *x = ct_ones(CT_DIMS(64, 64), .dtype = dtypes[k], .device = d), *w = ct_ones_like(x);
        ct_tensor *bias = ct_to(
            ct_cast(ct_where(ct_eq_s(ct_arange(0, 64, 1), 5), ct_full(CT_DIMS(64), NAN), ct_full(CT_DIMS(64), -65)),
                    dtypes[k]),
            d);
        ct_tensor *y = ct_linear(x, w, .bias = bias, .activation = CT_ACT_RELU);
        CHECK(isnan(harness_at(ct_to(y, cpu), 5)) && harness_at(ct_to(y, cpu), 6) == 0);
    }
}

TEST_LIMIT(gradients_of_a_layer_have_the_same_bits_every_time, 120) {
    CUDA(d);
    for (int k = 0; k < 4; k++) {
        const layer l = {in_half(CT_DIMS(512, 384)), in_half(CT_DIMS(192, 384)), in_half(CT_DIMS(192)),
                         in_half(CT_DIMS(512, 192))};
        ct_tensor *first[4] = {NULL};
        for (int run = 0; run < 20; run++)
            ct_scope {
                ct_tensor *made[4];
                REQUIRE(run_layer(&l, dtypes[k], d, CT_ACT_RELU, made));
                for (int i = 0; i < 4; i++) {
                    ct_tensor *now = ct_to(made[i], cpu);
                    if (!run) first[i] = ct_keep(now);
                    CHECK(harness_same_bits(first[i], now));
                }
            }
        for (int i = 0; i < 4; i++) ct_drop(first[i]);
    }
}

TEST_LIMIT(a_result_in_given_memory_is_the_same_up_to_rounding, 120) {
    CUDA(d);
    ct_tensor *x = ct_to(harness_randn(CT_DIMS(70, 90)), d), *w = ct_to(harness_randn(CT_DIMS(50, 90)), d),
              *bias = ct_to(harness_randn(CT_DIMS(50)), d);
    for (int a = CT_ACT_NONE; a <= CT_ACT_SILU; a++) {
        ct_tensor *y = ct_linear(x, w, .bias = bias, .activation = (ct_activation)a), *other = ct_zeros_like(y);
        CHECK(ct_into(other) && ct_linear(x, w, .bias = bias, .activation = (ct_activation)a));
        CHECK(distance(other, y) < 1e-5);
    }
}

TEST_LIMIT(tf32_is_an_option_that_rounds_operands_to_ten_bits, 120) {
    CUDA(d);
    CHECK(!ct_set_tf32(false));
    ct_tensor *a = harness_randn(CT_DIMS(512, 512)), *right = ct_matmul(ct_cast(a, CT_F64), ct_cast(a, CT_F64));
    ct_tensor *b = ct_to(a, d);
    const double exact = distance(ct_matmul(b, b), right);
    CHECK(!ct_set_tf32(true));
    const double coarse = distance(ct_matmul(b, b), right);
    CHECK(ct_set_tf32(false));
    CHECK(exact < 1e-6 && distance(ct_matmul(b, b), right) < 1e-6);
    CHECK(coarse < 2e-3 && coarse > 10 * exact); /* every device that has kernels here has TF32 */
}

/* ---- Choice ---- */

static int files_in(const char *folder) {
    int n = 0;
    DIR *opened = opendir(folder);
    for (struct dirent *e; opened && (e = readdir(opened));) n += e->d_name[0] != '.';
    if (opened) closedir(opened);
    return n;
}

static void multiply_in(const char *folder, ct_device d, ct_tensor **made) {
    setenv("XDG_CACHE_HOME", folder, 1);
    ct_tensor *a = ct_to(in_half(CT_DIMS(1024, 1024)), d);
    for (int i = 0; i < 3; i++) {
        *made = ct_to(ct_matmul(a, a), cpu);
        CHECK(distance(*made, ct_matmul(ct_to(a, cpu), ct_to(a, cpu))) < 1e-5);
    }
}

TEST_LIMIT(the_choice_for_a_large_product_is_kept_in_a_file, 120) {
    CUDA(d);
    ct_tensor *made;
    multiply_in(own_folder(), d, &made);
    CHECK(files_in(own_file("cotangent")) == 1);
    remove_own_folder();
}

TEST_LIMIT(without_tuning_nothing_is_measured_or_kept, 120) {
    CUDA(d);
    ct_tensor *made;
    setenv("CT_TUNE", "0", 1);
    multiply_in(own_folder(), d, &made);
    CHECK(files_in(own_folder()) == 0);
    remove_own_folder();
}

TEST_LIMIT(a_cache_that_cannot_be_written_is_no_error, 120) {
    CUDA(d);
    ct_tensor *made;
    multiply_in("/proc/nowhere", d, &made);
    CHECK(ct_ok());
}

/* The gradient of a half that was cast from f32 comes in f32, so that it is not rounded on its way; where somebody asks for that of the
 * half itself, it is a half. */
TEST(gradients_of_weights_under_autocast_are_not_rounded) {
    CUDA(d);
    ct_tensor *x = ct_to(harness_randn(CT_DIMS(40, 24)), d), *w = ct_to(harness_randn(CT_DIMS(8, 24)), d),
              *bias = ct_to(harness_randn(CT_DIMS(8)), d), *y = NULL;
    w = ct_set_requires_grad(w, true);
    bias = ct_set_requires_grad(bias, true);
    ct_autocast(CT_BF16) { y = ct_add(ct_linear(x, w, .bias = bias), ct_linear(x, w)); } /* two gradients of w meet */
    CHECK(ct_backward(ct_sum(ct_cast(y, CT_F32))));
    ct_tensor *ones = ct_ones(CT_DIMS(40, 8), .dtype = CT_F64);
    ct_tensor *exact = ct_matmul(ct_t(ones), ct_cast(ct_cast(ct_to(x, cpu), CT_BF16), CT_F64));
    ct_tensor *dw = ct_to(ct_grad_of(w), cpu), *narrow = ct_cast(ct_cast(dw, CT_BF16), CT_F32);
    CHECK(ct_dtype_of(dw) == CT_F32 && !harness_same_bits(dw, narrow));
    const double off = ct_item(ct_amax(ct_abs(ct_sub(ct_cast(dw, CT_F64), ct_mul_s(exact, 2)))));
    CHECK(off < 1e-4);
    CHECK(ct_dtype_of(ct_grad_of(bias)) == CT_F32 && ct_item(ct_sum(ct_grad_of(bias))) == 40 * 8);
    ct_tensor *half = ct_cast(w, CT_BF16), *z = ct_sum(ct_cast(ct_linear(ct_cast(x, CT_BF16), half), CT_F32)),
              *g = NULL;
    CHECK(ct_grad(&z, 1, NULL, &half, 1, &g, 0) && ct_dtype_of(g) == CT_BF16);
}

/* ---- Threads ---- */

static void *work(void *context) {
    const ct_device d = *(const ct_device *)context;
    bool ok = true;
    for (int i = 0; ok && i < 60; i++)
        ct_scope {
            const int64_t n = 32 + 16 * (i % 13);
            ct_tensor *x = ct_ones(CT_DIMS(n, 64), .device = d), *w = ct_ones(CT_DIMS(48, 64), .device = d);
            ct_tensor *bias = ct_set_requires_grad(ct_full(CT_DIMS(48), i, .device = d), true);
            ct_tensor *y = ct_linear(x, ct_set_requires_grad(w, true), .bias = bias, .activation = CT_ACT_RELU);
            ok = ct_item(ct_mean(y)) == 64 + i && ct_backward(ct_sum(y)) &&
                 ct_item(ct_mean(ct_grad_of(bias))) == (double)n && ct_item(ct_mean(ct_grad_of(w))) == (double)n;
        }
    return ok && ct_ok() ? context : NULL;
}

TEST_LIMIT(four_threads_multiply_at_once, 120) {
    CUDA(d);
    pthread_t threads[4];
    void *ended[4] = {0};
    for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, work, &d) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], &ended[i]);
    for (int i = 0; i < 4; i++) CHECK(ended[i] == &d);
}
