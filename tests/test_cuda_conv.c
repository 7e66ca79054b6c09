/* Convolutions on an NVIDIA device against the CPU in f64: random geometry, layouts and dtypes, forward and all gradients; what comes behind
 * them in the same pass; operands that lie badly; the option TF32; the same bits at every run; and the tiles that serve where there is no
 * cuDNN. Without a device all of it is skipped, and says why. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_device.h"
#include "tests/files.h"
#include "tests/random_conv.h"

enum { CONFIGURATIONS = 1000 };

static int calls_by(const char *kernel) {
    int n = 0;
    for (int i = 0; harness_log_line(i); i++) {
        const char *line = harness_log_line(i);
        n += strstr(line, "conv") && strstr(line, kernel) && strncmp(line, "cudnn: ", 7) != 0;
    }
    return n;
}

/* Without measuring: each has sizes of its own, and the first engine serves. */
TEST_LIMIT(random_convolutions_agree_with_the_cpu_1, 120) {
    setenv("CT_TUNE", "0", 1);
    CUDA(d);
    sweep(d, 0, CONFIGURATIONS / 2);
}
TEST_LIMIT(random_convolutions_agree_with_the_cpu_2, 120) {
    setenv("CT_TUNE", "0", 1);
    CUDA(d);
    sweep(d, CONFIGURATIONS / 2, CONFIGURATIONS);
}

TEST_LIMIT(tiles_serve_where_there_is_no_cudnn, 120) {
    setenv("CT_CUDNN", "0", 1);
    CUDA(d);
    harness_log_start();
    sweep(d, 5000, 5060);
    harness_log_stop();
    CHECK(calls_by(" tiles") > 0);
}
TEST_LIMIT(a_cudnn_that_cannot_be_opened_is_none, 120) {
    setenv("CT_CUDNN", "/nowhere/libcudnn.so.9", 1);
    CUDA(d);
    sweep(d, 6000, 6010);
}

/* Sizes that occur in networks, where engines are measured, in a cache that nobody else uses. */
static const config usual[] = {
    {.rank = 2,
     .batch = 4,
     .groups = 1,
     .in_each = 64,
     .out_each = 64,
     .in = {14, 14},
     .kernel = {3, 3},
     .pads = {1, 1, 1, 1}},
    {.rank = 2, .batch = 4, .groups = 1, .in_each = 64, .out_each = 32, .in = {9, 11}, .kernel = {1, 1}},
    {.rank = 2,
     .batch = 2,
     .groups = 1,
     .in_each = 3,
     .out_each = 64,
     .in = {32, 32},
     .kernel = {7, 7},
     .stride = {2, 2},
     .pads = {3, 3, 3, 3}},
    {.rank = 2,
     .batch = 2,
     .groups = 8,
     .in_each = 8,
     .out_each = 8,
     .in = {14, 14},
     .kernel = {3, 3},
     .pads = {1, 1, 1, 1}},
    {.rank = 2,
     .batch = 2,
     .groups = 32,
     .in_each = 1,
     .out_each = 1,
     .in = {14, 14},
     .kernel = {3, 3},
     .pads = {1, 1, 1, 1}},
    {.rank = 2, .batch = 3, .groups = 1, .in_each = 1, .out_each = 32, .in = {28, 28}, .kernel = {3, 3}},
    {.rank = 2,
     .batch = 2,
     .groups = 1,
     .in_each = 1,
     .out_each = 6,
     .in = {11, 9},
     .kernel = {5, 5},
     .pads = {2, 1, 0, 2}},
    {.rank = 1, .batch = 2, .groups = 1, .in_each = 16, .out_each = 32, .in = {128}, .kernel = {9}, .pads = {4, 4}},
    /* padding that is not the same on both sides, and that counts */
    {.rank = 1, .batch = 3, .groups = 1, .in_each = 33, .out_each = 33, .in = {66}, .kernel = {6}, .pads = {4, 5}},
    {.rank = 2,
     .batch = 2,
     .groups = 1,
     .in_each = 16,
     .out_each = 24,
     .in = {14, 17},
     .kernel = {5, 6},
     .pads = {2, 2, 5, 4}},
    {.rank = 3,
     .batch = 1,
     .groups = 1,
     .in_each = 16,
     .out_each = 16,
     .in = {6, 8, 8},
     .kernel = {3, 3, 3},
     .pads = {1, 1, 1, 1, 1, 1}},
    {.rank = 2,
     .batch = 2,
     .groups = 1,
     .in_each = 32,
     .out_each = 16,
     .in = {7, 7},
     .kernel = {4, 4},
     .stride = {2, 2},
     .pads = {1, 1, 1, 1},
     .transposed = true},
};
enum { USUAL = sizeof usual / sizeof *usual };

static config usual_one(int i, ct_dtype dtype, bool last) {
    config c = usual[i];
    c.dtype = dtype, c.last = last, c.exact = true, c.bias = true;
    for (int a = 0; a < c.rank; a++) {
        if (!c.stride[a]) c.stride[a] = 1;
        c.dilation[a] = 1;
    }
    return c;
}

TEST_LIMIT(what_was_measured_is_right_in_every_layout_and_dtype, 240) {
    static const ct_dtype dtypes[] = {CT_F32, CT_BF16, CT_F16, CT_F64};
    CUDA(d);
    REQUIRE(setenv("XDG_CACHE_HOME", own_folder(), 1) == 0);
    for (int i = 0; i < USUAL * 4; i++) {
        const config c = usual_one(i % USUAL, dtypes[i / USUAL], i / USUAL < 2 ? i % 4 != 0 : i % 2);
        if (!check(&c, d, unit(c.dtype))) break;
    }
    remove_own_folder();
}

TEST_LIMIT(tf32_rounds_to_ten_bits_and_only_when_it_is_on, 240) {
    CUDA(d);
    REQUIRE(setenv("XDG_CACHE_HOME", own_folder(), 1) == 0);
    for (int on = 0; on < 2; on++) {
        ct_set_tf32(on);
        for (int i = 0; i < USUAL * 2; i++) {
            config c = usual_one(i % USUAL, CT_F32, i / USUAL);
            /* each operand to 2^-11, the product of both to twice that */
            check(&c, d, on ? 0x1p-10 : 0x1p-24);
        }
    }
    ct_set_tf32(false);
    remove_own_folder();
}

/* Small integers, whose products and sums TF32 has all digits of. */
static ct_tensor *integers(ct_dims shape) { return ct_cast(ct_randint(shape, -2, 3), CT_F32); }

/* All gradients of integers are those of the CPU to the last digit. */
static void check_integers(ct_device d, int batch, int in, int out, int height, int width, int side, int pad,
                           int activation) {
    ct_scope {
        ct_tensor *given[3] = {integers(CT_DIMS(batch, in, height, width)), integers(CT_DIMS(out, in, side, side)),
                               integers(CT_DIMS(out))};
        ct_tensor *g = integers(CT_DIMS(batch, out, height + 2 * pad - side + 1, width + 2 * pad - side + 1)),
                  *grads[2][3] = {{0}};
        for (int there = 0; there < 2; there++) {
            const ct_device where = there ? d : cpu;
            ct_tensor *leaves[3], *g_there = ct_to(g, where);
            for (int k = 0; k < 3; k++) leaves[k] = ct_set_requires_grad(ct_detach(ct_to(given[k], where)), true);
            ct_tensor *y = ct_conv2d(leaves[0], leaves[1], .bias = leaves[2], .pad = pad, .activation = activation,
                                     .exact = true); /* by products of integers, not by Winograd */
            REQUIRE(ct_grad(&y, 1, &g_there, leaves, 3, grads[there], 0));
        }
        for (int k = 0; k < 3; k++) CHECK(ct_item(ct_amax(ct_abs(ct_sub(ct_to(grads[1][k], cpu), grads[0][k])))) == 0);
    }
}

TEST_LIMIT(a_cotangent_with_channels_first_goes_to_tensor_cores_once, 60) {
    setenv("CT_TUNE", "0", 1);
    CUDA(d);
    ct_set_device(cpu);
    ct_set_tf32(true);
    harness_log_start();
    check_integers(d, 4, 16, 72, 14, 14, 3, 1, CT_ACT_RELU);
    harness_log_stop();
    ct_set_tf32(false);
    CHECK(calls_by(" channels_last ") == 1);
}

/* Whichever way was measured to be the fastest, cuDNN's or our own. */
TEST_LIMIT(gradients_in_tf32_of_integers_are_exact_by_any_way, 120) {
    CUDA(d);
    ct_set_device(cpu);
    REQUIRE(setenv("XDG_CACHE_HOME", own_folder(), 1) == 0);
    ct_set_tf32(true);
    check_integers(d, 64, 32, 64, 26, 26, 3, 0, CT_ACT_RELU);
    check_integers(d, 8, 16, 40, 28, 28, 3, 1, CT_ACT_RELU);
    check_integers(d, 4, 24, 16, 16, 20, 5, 2, CT_ACT_NONE);
    check_integers(d, 2, 33, 35, 13, 11, 1, 0, CT_ACT_RELU);
    check_integers(d, 3, 8, 12, 9, 130, 3, 1, CT_ACT_NONE);
    ct_set_tf32(false);
    remove_own_folder();
}

TEST_LIMIT(convolutions_have_the_same_bits_at_every_run, 240) {
    CUDA(d);
    REQUIRE(setenv("XDG_CACHE_HOME", own_folder(), 1) == 0);
    for (int i = 0; i < USUAL * 4; i++)
        ct_scope {
            const config c = usual_one(i % USUAL, i / USUAL % 2 ? CT_BF16 : CT_F32, i / USUAL / 2);
            const int ins = c.groups * c.in_each, outs = c.groups * c.out_each;
            ct_tensor *in[4] = {
                ct_set_requires_grad(place(&c, numbers(shape_of(&c, c.batch, ins, c.in, false)), d, false), true),
                ct_set_requires_grad(place(&c,
                                           numbers(c.transposed ? shape_of(&c, ins, c.out_each, c.kernel, true)
                                                                : shape_of(&c, outs, c.in_each, c.kernel, true)),
                                           d, false),
                                     true),
                ct_set_requires_grad(place(&c, numbers(CT_DIMS(outs)), d, false), true), NULL};
            ct_tensor *first[4] = {0}, *g = NULL;
            for (int run_number = 0; run_number < 4; run_number++) {
                ct_tensor *made[4] = {run(&c, in, false), NULL, NULL, NULL};
                if (!g) g = place(&c, numbers(ct_shape(made[0])), d, false);
                REQUIRE(ct_grad(&made[0], 1, &g, in, 3, made + 1, 0));
                for (int k = 0; k < 4; k++) {
                    made[k] = ct_to(made[k], cpu);
                    if (run_number == 0) first[k] = made[k];
                    CHECK(made[k] && first[k] && harness_same_bits(first[k], made[k]));
                }
            }
        }
    remove_own_folder();
}

/* Bias, residual and activation, in one pass or after it, without a gradient so that all of them are fused. */
TEST_LIMIT(what_follows_a_convolution_agrees_with_the_cpu, 240) {
    setenv("CT_TUNE", "0", 1);
    CUDA(d);
    for (int i = 0; i < USUAL * 60; i++)
        ct_scope {
            static const ct_dtype dtypes[] = {CT_F32, CT_BF16, CT_F16};
            config c = usual_one(i % USUAL, dtypes[i / USUAL % 3], i / USUAL / 3 % 2);
            if (c.transposed || (rounding(c.dtype) > 0 && (i + i / USUAL) % 4)) continue; /* compiled too */
            c.activation = i / USUAL / 6 % 5 + 1;
            const bool residual = i / USUAL / 30;
            const int outs = c.groups * c.out_each;
            ct_tensor *exact[4] = {numbers(shape_of(&c, c.batch, c.groups * c.in_each, c.in, false)),
                                   ct_mul_s(numbers(shape_of(&c, outs, c.in_each, c.kernel, true)), 0x1p-6),
                                   numbers(CT_DIMS(outs)), NULL};
            config plain = c;
            plain.activation = CT_ACT_NONE;
            if (residual) exact[3] = numbers(ct_shape(run(&plain, exact, true)));
            ct_tensor *absolute[4] = {0}, *there[4] = {0};
            for (int k = 0; k < 4; k++)
                if (exact[k]) absolute[k] = ct_abs(exact[k]), there[k] = place(&c, exact[k], d, false);
            int64_t taps = c.in_each;
            for (int a = 0; a < c.rank; a++) taps *= c.kernel[a];
            /* No activation is steeper than 1.13; what its own formula rounds is a few units of its result. */
            ct_tensor *y = run(&c, exact, true), *size = ct_add(ct_mul_s(run(&plain, absolute, true), 1.2), ct_abs(y));
            compare(&c, residual ? "with a residual" : "without a residual", run(&c, there, true), y, size, taps + 2,
                    unit(c.dtype));
        }
}

TEST_LIMIT(operands_may_lie_anywhere, 120) {
    CUDA(d);
    for (int i = 0; i < 4; i++)
        ct_scope {
            const config c = usual_one(0, i % 2 ? CT_BF16 : CT_F32, i / 2);
            ct_tensor *x = numbers(shape_of(&c, c.batch, 64, c.in, false)),
                      *w = numbers(shape_of(&c, 64, 64, c.kernel, true));
            ct_tensor *here[4] = {x, w, NULL, NULL};
            const int64_t n = ct_numel(x);
            /* one element behind an aligned address, then aligned, with the same sizes and strides */
            ct_tensor *flat = ct_to(
                ct_cast(ct_cat((ct_tensor *const[]){ct_zeros(CT_DIMS(1), .dtype = CT_F64), ct_reshape(x, CT_DIMS(n))},
                               2, 0),
                        c.dtype),
                d);
            ct_tensor *y = run(&c, here, true), *absolute[4] = {ct_abs(x), ct_abs(w), NULL, NULL};
            ct_tensor *size = run(&c, absolute, true);
            for (int k = 0; k < 3; k++) {
                ct_tensor *there[4] = {k == 1 ? place(&c, x, d, false) : ct_reshape(ct_slice(flat, 0, 1), ct_shape(x)),
                                       place(&c, w, d, false), NULL, NULL};
                ct_tensor *got = run(&c, there, true);
                compare(&c, "the result", got, y, size, 9 * 64, unit(c.dtype));
                /* into memory of the caller's, whose axes lie otherwise */
                ct_tensor *into = place(&c, ct_zeros(ct_shape(y), .dtype = CT_F64), d, k == 2);
                CHECK(into && ct_into(into) && run(&c, there, true));
                compare(&c, "the destination", into, y, size, 9 * 64, unit(c.dtype));
            }
        }
}
