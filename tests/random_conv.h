/* Random convolutions on a device against the CPU in f64: geometry, layouts and dtypes, forward and all gradients.
 *
 * Tolerance, with S the sum of the absolute terms, which the CPU computes from absolute operands. A sum of L products in precision u, in
 * any order, is within lambda sqrt(L) u S of its value but for a probability of 2 exp(-lambda^2 / 2) (Higham and Mary 2019). Tensor Cores, which
 * multiply halves, cut off the sums instead of rounding them, always towards zero: there it is 2 L u S. A half result is rounded once more, by v.
 * Winograd's transforms mix the results of a tile and amplify: there S is the largest, and the factor GROWTH. */
#ifndef COTANGENT_TESTS_RANDOM_CONV_H
#define COTANGENT_TESTS_RANDOM_CONV_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

enum { LAMBDA = 8, GROWTH = 64, WORK = 1500000 };

static const ct_device cpu = {CT_CPU, 0};

typedef struct config {
    int rank, batch, groups, in_each, out_each;
    int in[3], kernel[3], stride[3], dilation[3], pads[6],
        more[3]; /* in: of the image that goes in; more: output_padding */
    bool last, transposed, bias, residual, strided, exact, depthwise; /* depthwise: as networks have it */
    int activation;
    ct_dtype dtype;
} config;

static double unit(ct_dtype dtype) { return dtype == CT_F64 ? 0x1p-53 : 0x1p-24; }
static double rounding(ct_dtype dtype) { return dtype == CT_F16 ? 0x1p-11 : dtype == CT_BF16 ? 0x1p-8 : 0; }

/* ---- Random geometry ---- */

static uint64_t state = 88172645463325252ull;

static int below(int n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (int)((state >> 33) % (uint64_t)n);
}

static int one_of(const int *values, int n) { return values[below(n)]; }

static bool draw_axis(config *c, int a, int64_t *work) {
    static const int sizes[] = {70, 19, 9};
    c->kernel[a] = 1 + below(c->rank == 1 ? 9 : c->rank == 2 ? 5 : 3);
    c->stride[a] = below(2) ? 1 : 1 + below(3);
    c->dilation[a] = below(2) ? 1 : 1 + below(3);
    c->in[a] = 1 + below(sizes[c->rank - 1]);
    if (c->depthwise && c->rank == 2) c->kernel[a] = 3, c->dilation[a] = 1, c->stride[a] = 1 + c->groups % 2;
    const int span = c->dilation[a] * (c->kernel[a] - 1) + 1;
    c->pads[2 * a] = below(span), c->pads[2 * a + 1] = below(3) ? c->pads[2 * a] : below(span);
    c->more[a] = c->transposed && c->stride[a] > 1 ? below(c->stride[a]) : 0;
    const int pads = c->pads[2 * a] + c->pads[2 * a + 1];
    const int out = c->transposed ? (c->in[a] - 1) * c->stride[a] - pads + span + c->more[a]
                                  : (c->in[a] + pads - span) / c->stride[a] + 1;
    *work *= (int64_t)c->kernel[a] * (c->transposed ? c->in[a] : out);
    return c->transposed ? out > 0 : c->in[a] + pads >= span;
}

/* Of the dtypes that the device has. */
static config draw(ct_device d, int number) {
    static const int channels[] = {1, 2, 3, 4, 8, 16, 24, 33, 64},
                     dtypes[] = {CT_F32, CT_BF16, CT_F32, CT_F16, CT_BF16, CT_F64};
    for (;;) {
        config c = {.rank = 1 + below(3), .batch = 1 + below(3), .groups = 1};
        c.last = below(2), c.bias = below(2), c.strided = below(4) == 0, c.exact = below(4) != 0;
        c.transposed = below(3) == 0;
        c.dtype = ct_device_has_dtype(d, (ct_dtype)dtypes[number % 6]) ? (ct_dtype)dtypes[number % 6] : CT_F32;
        /* of halves with a bias cuDNN compiles an engine for each problem */
        if (rounding(c.dtype) > 0) c.bias = below(6) == 0;
        c.in_each = one_of(channels, 9), c.out_each = one_of(channels, 9);
        if (below(4) == 0) c.groups = 2 + below(3);
        else if (below(4) == 0) {
            c.groups = one_of(channels, 8), c.in_each = 1, c.out_each = 1 + below(2);
            c.depthwise = c.out_each == 1 && c.groups > 1 && below(4);
        }
        int64_t work = (int64_t)c.batch * c.groups * c.in_each * c.out_each;
        bool fits = true;
        for (int a = 0; a < c.rank; a++) fits = fits && draw_axis(&c, a, &work);
        if (fits && work <= WORK) return c;
    }
}

static void describe(const config *c, char *text, size_t size) {
    char axes[200] = "";
    for (int a = 0; a < c->rank; a++)
        snprintf(axes + strlen(axes), sizeof axes - strlen(axes),
                 " [in %d kernel %d stride %d dilation %d pads %d,%d more %d]", c->in[a], c->kernel[a], c->stride[a],
                 c->dilation[a], c->pads[2 * a], c->pads[2 * a + 1], c->more[a]);
    snprintf(text, size, "%s%dd %s %s N=%d groups=%d in/group=%d out/group=%d%s%s%s activation=%d:%s",
             c->transposed ? "conv_transpose" : "conv", c->rank, ct_dtype_name(c->dtype),
             c->last ? "channels last" : "channels first", c->batch, c->groups, c->in_each, c->out_each,
             c->bias ? " bias" : "", c->strided ? " strided" : "", c->exact ? " exact" : "", c->activation, axes);
}

/* ---- Both devices ---- */

static ct_dims list(const config *c, const int *values, int n) {
    ct_dims d = {.n = n * c->rank};
    for (int i = 0; i < d.n; i++) d.d[i] = values[i];
    return d;
}

static ct_tensor *run(const config *c, ct_tensor *const *in, bool exact) {
#define OPTIONS                                                                                               \
    .bias = in[2], .residual = in[3], .strides = list(c, c->stride, 1), .dilations = list(c, c->dilation, 1), \
    .pads = list(c, c->pads, 2), .groups = c->groups, .channels_last = c->last, .exact = exact,               \
    .activation = c->activation
    if (c->transposed) switch (c->rank) {
        case 1: return ct_conv_transpose1d(in[0], in[1], OPTIONS, .output_paddings = list(c, c->more, 1));
        case 2: return ct_conv_transpose2d(in[0], in[1], OPTIONS, .output_paddings = list(c, c->more, 1));
        default: return ct_conv_transpose3d(in[0], in[1], OPTIONS, .output_paddings = list(c, c->more, 1));
        }
    switch (c->rank) {
    case 1: return ct_conv1d(in[0], in[1], OPTIONS);
    case 2: return ct_conv2d(in[0], in[1], OPTIONS);
    default: return ct_conv3d(in[0], in[1], OPTIONS);
    }
}

/* Numbers that are exact in every dtype. */
static ct_tensor *numbers(ct_dims shape) {
    int64_t n = 1;
    for (int i = 0; i < shape.n; i++) n *= shape.d[i];
    double *values = malloc((size_t)n * sizeof *values + 1);
    for (int64_t i = 0; i < n; i++) values[i] = (below(255) - 127) / 64.0;
    ct_tensor *x = ct_from_data(values, shape, CT_F64);
    free(values);
    return x;
}

static ct_dims shape_of(const config *c, int first, int second, const int *size, bool weight) {
    ct_dims d = {.n = c->rank + 2};
    const int spatial = c->last ? (weight ? 0 : 1) : 2;
    for (int i = 0; i < c->rank; i++) d.d[spatial + i] = size[i];
    d.d[c->last && weight ? c->rank + 1 : 0] = first;
    d.d[c->last ? (weight ? c->rank : c->rank + 1) : 1] = second;
    return d;
}

/* As a tensor of the device; strided: its axes lie in the opposite order. */
static ct_tensor *place(const config *c, ct_tensor *x, ct_device d, bool strided) {
    ct_tensor *y = ct_to(ct_cast(x, c->dtype), d);
    if (!strided) return y;
    ct_dims back = {.n = ct_ndim(x)};
    for (int i = 0; i < back.n; i++) back.d[i] = back.n - 1 - i;
    return ct_permute(ct_contiguous(ct_permute(y, back)), back);
}

/* ---- Comparison ---- */

static bool compare(const config *c, const char *what, ct_tensor *got, ct_tensor *expected, ct_tensor *size,
                    int64_t terms, double unit_roundoff) {
    char text[600];
    describe(c, text, sizeof text);
    ct_tensor *here = got ? ct_contiguous(ct_cast(ct_to(got, cpu), CT_F64)) : NULL;
    if (!harness_check(here && expected && size && ct_numel(here) == ct_numel(expected), __FILE__, __LINE__,
                       "%s: %s: %s", text, what, ct_error())) {
        ct_error_clear();
        return false;
    }
    const double *g = ct_data(here), *e = ct_data(ct_contiguous(expected)), *s = ct_data(ct_contiguous(size));
    const int64_t n = ct_numel(here);
    const bool half = rounding(c->dtype) > 0, mixed = !c->exact && c->dtype == CT_F32;
    const double scale = unit_roundoff * (half ? 2 * (double)(terms + 2) : LAMBDA * sqrt((double)terms + 2));
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, s[i]);
    for (int64_t i = 0; i < n; i++) {
        const double bound = scale * (mixed ? GROWTH * largest : s[i]) + rounding(c->dtype) * fabs(e[i]) * (1 + scale) +
                             (c->dtype == CT_F16 ? 0x1p-24 : 0);
        if (fabs(g[i] - e[i]) <= bound) continue;
        harness_check(false, __FILE__, __LINE__, "%s: %s at %lld is %.9g, expected %.9g (tolerance %.2g)", text, what,
                      (long long)i, g[i], e[i], bound);
        return false;
    }
    return true;
}

static bool check(const config *c, ct_device d, double unit_roundoff) {
    const int ins = c->groups * c->in_each, outs = c->groups * c->out_each;
    bool good = true;
    ct_scope {
        /* A transposed one's weight is [in, out / groups, k...]. */
        ct_tensor *exact[4] = {numbers(shape_of(c, c->batch, ins, c->in, false)),
                               numbers(c->transposed ? shape_of(c, ins, c->out_each, c->kernel, true)
                                                     : shape_of(c, outs, c->in_each, c->kernel, true)),
                               c->bias ? numbers(CT_DIMS(outs)) : NULL, NULL};
        ct_tensor *here[4] = {0}, *there[4] = {0}, *sizes[4] = {0};
        config plain = *c;
        plain.activation = CT_ACT_NONE;
        for (int i = 0; i < 3; i++) {
            if (!exact[i]) continue;
            here[i] = ct_set_requires_grad(ct_detach(exact[i]), true);
            sizes[i] = ct_set_requires_grad(ct_abs(exact[i]), true);
            there[i] = ct_set_requires_grad(place(c, exact[i], d, c->strided && i < 2), true);
        }
        ct_tensor *y = run(&plain, here, true), *size = run(&plain, sizes, true), *got = run(&plain, there, c->exact);
        ct_tensor *g = y ? numbers(ct_shape(y)) : NULL, *absolute = ct_abs(g),
                  *g_there = g ? place(c, g, d, c->strided) : NULL;
        ct_tensor *grads[3] = {0}, *got_grads[3] = {0}, *size_grads[3] = {0};
        int64_t taps = 1, pixels = 1;
        for (int a = 0; a < c->rank; a++) taps *= c->kernel[a];
        for (int a = 0; y && a < c->rank; a++) pixels *= c->transposed ? c->in[a] : ct_dim(y, (c->last ? 1 : 2) + a);
        const int64_t deep = taps * (c->in_each > c->out_each ? c->in_each : c->out_each), wide = c->batch * pixels;
        const int n = c->bias ? 3 : 2;
        good = compare(c, "the result", got, y, size, deep, unit_roundoff) &&
               harness_check(ct_grad(&y, 1, &g, here, n, grads, 0) &&
                                 ct_grad(&size, 1, &absolute, sizes, n, size_grads, 0) &&
                                 ct_grad(&got, 1, &g_there, there, n, got_grads, 0),
                             __FILE__, __LINE__, "%s", ct_error()) &&
               compare(c, "the gradient of the image", got_grads[0], grads[0], size_grads[0], deep, unit_roundoff) &&
               compare(c, "the gradient of the weight", got_grads[1], grads[1], size_grads[1], wide, unit_roundoff) &&
               (!c->bias || compare(c, "the gradient of the bias", got_grads[2], grads[2], size_grads[2],
                                    ct_numel(y) / outs, unit_roundoff));
    }
    return good;
}

static void sweep(ct_device d, int first, int last) {
    int bad = 0;
    state += (uint64_t)first * 2654435761u;
    for (int i = first; i < last && bad < 8; i++) {
        const config c = draw(d, i);
        bad += !check(&c, d, unit(c.dtype));
    }
}

#endif
