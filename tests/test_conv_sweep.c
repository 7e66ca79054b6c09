/* Convolutions of random geometry against the definition, a loop in f64: forward, gradient for the input, gradient for the
 * weight and for the bias, in both layouts, all float dtypes, every instruction set. The loop computes all of them at once
 * from the triples (input, tap, output) that touch, and the sums of the absolute values of their terms.
 *
 * Tolerance: a sum of L products in precision u, in any order, is within lambda sqrt(L) u S of its value but for a
 * probability of 2 exp(-lambda^2 / 2), where S is the sum of the absolute terms (Higham and Mary 2019); a result of a
 * half type is rounded once more, by v. Winograd's transforms mix the results of a tile and amplify: there S is the
 * largest of the image, and the factor is GROWTH. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

enum { CONFIGURATIONS = 2400, LARGE_ONES = 60, USUAL_ONES = 360, TILED_ONES = 60, GATHERED_ONES = 90 };
enum { LAMBDA = 8, GROWTH = 64, WORK = 60000, USUAL_WORK = 600000, LARGE_WORK = 3000000 };
/* Usual ones have several groups and 3x3 windows next to each other, which kernels of their own take; tiled ones are what
 * Winograd takes, gathered ones what is gathered: small images of short lines with many channels. */
typedef enum flavour { SMALL, LARGE, USUAL, TILED, GATHERED } flavour;

typedef struct config {
    int rank, batch, groups, in_each, out_each;
    int in[3], out[3], kernel[3], stride[3], dilation[3], before[3], after[3];
    ct_pad_mode mode;
    bool last, transposed, depthwise, bias, strided, exact;
    int backwards; /* bit d: the memory of dimension d runs backwards */
    ct_dtype dtype;
} config;

/* ---- Random geometry ---- */

static uint64_t state = 88172645463325252ull;

static int below(int n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (int)((state >> 33) % (uint64_t)n);
}

static int larger(int a, int b) { return a > b ? a : b; }

static int one_of(const int *values, int n) { return values[below(n)]; }

static bool draw_axis(config *c, int a, flavour kind) {
    const bool large = kind == LARGE;
    const int most = c->rank == 1 ? 9 : c->rank == 2 ? 5 : 3;
    c->kernel[a] = 1 + below(most);
    c->stride[a] = below(2) ? 1 : 1 + below(3);
    c->dilation[a] = below(2) ? 1 : 1 + below(3);
    if (kind == USUAL) c->kernel[a] = 3, c->stride[a] = c->dilation[a] = 1;
    const int span = c->dilation[a] * (c->kernel[a] - 1) + 1;
    c->in[a] = large ? 20 + below(c->rank == 1   ? 3000
                                  : c->rank == 2 ? 90
                                                 : 20)
                     : 1 + below(c->rank == 1   ? 70
                                 : c->rank == 2 ? 19
                                                : 8);
    if (kind == USUAL) c->in[a] = below(4) ? 6 + below(18) : 1 + below(70);
    c->before[a] = c->after[a] = 0;
    if (c->mode == CT_SAME) {
        c->out[a] = (c->in[a] + c->stride[a] - 1) / c->stride[a];
        const int total = larger((c->out[a] - 1) * c->stride[a] + span - c->in[a], 0);
        c->before[a] = total / 2;
        c->after[a] = total - total / 2;
        return true;
    }
    if (c->mode == CT_EXPLICIT) c->before[a] = below(span + 2), c->after[a] = below(span + 2);
    const int room = c->in[a] + c->before[a] + c->after[a] - span;
    c->out[a] = room / c->stride[a] + 1;
    return room >= 0;
}

static int64_t volume(const int *size) { return (int64_t)size[0] * size[1] * size[2]; }

static bool draw_tiled(config *c) {
    static const int channels[] = {6, 8, 17, 24, 33};
    const int taps = one_of((const int[]){2, 3, 3, 5}, 4), stride = taps == 2 && below(3) ? 2 : 1;
    c->rank = 2 + below(2), c->batch = 1 + below(2);
    c->groups = 1, c->depthwise = false;
    c->in_each = one_of(channels, 5), c->out_each = one_of(channels, 5);
    c->dtype = CT_F32, c->exact = false;
    if (c->mode == CT_SAME) c->mode = CT_EXPLICIT;
    for (int a = 0; a < 3; a++) {
        c->stride[a] = c->dilation[a] = c->kernel[a] = c->in[a] = c->out[a] = 1;
        c->before[a] = c->after[a] = 0;
        if (a < 3 - c->rank) continue;
        c->kernel[a] = a == 0 ? 1 + below(4) : taps * stride;
        c->stride[a] = a > 0 ? stride : below(4) ? 1 : 1 + below(c->kernel[a]);
        if (c->stride[a] == 1 && below(4) == 0) c->dilation[a] = 2;
        c->in[a] = a == 0 ? 1 + below(9) : 8 + below(30);
        const int span = c->dilation[a] * (c->kernel[a] - 1) + 1;
        if (c->mode == CT_EXPLICIT) c->before[a] = below(span), c->after[a] = below(span);
        const int room = c->in[a] + c->before[a] + c->after[a] - span;
        if (room < 0) return false;
        c->out[a] = room / c->stride[a] + 1;
    }
    return true;
}

static bool draw_gathered(config *c) {
    static const int channels[] = {9, 17, 40, 70, 130};
    c->batch = below(8) ? 1 + below(9) : 0, c->groups = 1 + below(2), c->depthwise = false;
    c->in_each = one_of(channels, 3), c->out_each = one_of(channels + 2, 3);
    c->dtype = below(2) ? CT_F32 : CT_F64;
    for (int a = 3 - c->rank; a < 3; a++) {
        c->kernel[a] = 1 + below(c->rank == 3 ? 2 : 4), c->stride[a] = 1 + below(3), c->dilation[a] = 1 + below(2);
        const int span = c->dilation[a] * (c->kernel[a] - 1) + 1;
        c->in[a] = 1 + below(8), c->before[a] = c->after[a] = 0;
        if (c->mode == CT_SAME) c->mode = CT_EXPLICIT;
        if (c->mode == CT_EXPLICIT) c->before[a] = below(span), c->after[a] = below(span);
        const int room = c->in[a] + c->before[a] + c->after[a] - span;
        if (room < 0 || room / c->stride[a] + 1 > 5) return false;
        c->out[a] = room / c->stride[a] + 1;
    }
    return true;
}

static config draw(int number, flavour kind) {
    static const int channels[] = {1, 2, 3, 5, 8, 17, 33, 70},
                     dtypes[] = {CT_F32, CT_F32, CT_F64, CT_F32, CT_BF16, CT_F16};
    for (;;) {
        const bool large = kind == LARGE || kind == TILED || kind == GATHERED, usual = kind == USUAL;
        config c = {.rank = usual ? 2 : 1 + below(3), .batch = below(4), .groups = 1};
        c.last = below(2), c.bias = below(2), c.strided = below(4) == 0, c.exact = below(2);
        c.transposed = below(3) == 0;
        c.mode = (ct_pad_mode)one_of((const int[]){CT_EXPLICIT, CT_EXPLICIT, CT_VALID, CT_SAME}, 4);
        c.dtype = (ct_dtype)dtypes[number % 6];
        c.in_each = one_of(channels, large ? 8 : 6), c.out_each = one_of(channels, large ? 8 : 6);
        if (usual) {
            c.in_each = one_of((const int[]){4, 8, 8, 16, 24, 7}, 6);
            c.out_each = below(2) ? c.in_each : one_of((const int[]){4, 8, 8, 16, 24, 9}, 6);
            c.dtype = (ct_dtype)dtypes[1 + below(5)];
        }
        switch (usual ? below(2) : below(4)) {
        case 0: c.groups = 2 + below(3); break;
        case 1: /* depthwise with a multiplier */
            c.groups = (usual ? 2 * one_of(channels, 7) : one_of(channels, 6)) + below(2) * 16;
            c.in_each = 1;
            c.out_each = usual && below(2) ? 1 : 1 + below(3);
            c.depthwise = c.rank == 2 && !c.transposed;
            break;
        default: break;
        }
        bool fits = true;
        for (int a = 0; a < 3; a++) {
            c.in[a] = c.out[a] = c.kernel[a] = c.stride[a] = c.dilation[a] = 1;
            if (a >= 3 - c.rank) fits &= draw_axis(&c, a, kind);
        }
        if (kind == TILED) fits = draw_tiled(&c);
        if (kind == GATHERED) fits = draw_gathered(&c);
        /* Every remainder belongs to some size of a transposed one: output_padding, always 0 under Same and Valid here. */
        if (c.transposed)
            for (int a = 3 - c.rank; a < 3; a++) {
                const int span = c.dilation[a] * (c.kernel[a] - 1) + 1;
                if (c.mode == CT_SAME) fits &= c.in[a] % c.stride[a] == 0;
                else if (c.mode == CT_VALID) c.in[a] = (c.out[a] - 1) * c.stride[a] + span;
            }
        const int64_t work =
            (int64_t)c.groups * c.in_each * c.out_each * volume(c.kernel) * volume(c.out) * larger(c.batch, 1);
        if (fits &&
            work <= (large   ? LARGE_WORK
                     : usual ? USUAL_WORK
                             : WORK) &&
            (!large || kind == GATHERED || work > LARGE_WORK / 4)) {
            c.backwards = below(4) ? 0 : below(32);
            return c;
        }
    }
}

static void describe(const config *c, char *text, size_t size) {
    char axes[200] = "";
    for (int a = 3 - c->rank; a < 3; a++)
        snprintf(axes + strlen(axes), sizeof axes - strlen(axes), " [in %d kernel %d stride %d dilation %d pads %d,%d]",
                 c->in[a], c->kernel[a], c->stride[a], c->dilation[a], c->before[a], c->after[a]);
    snprintf(text, size, "%s%dd %s %s N=%d groups=%d in/group=%d out/group=%d mode=%d%s%s%s backwards=%d at %s:%s",
             c->transposed ? "conv_transpose" : "conv", c->rank, ct_dtype_name(c->dtype),
             c->last ? "channels last" : "channels first", c->batch, c->groups, c->in_each, c->out_each, (int)c->mode,
             c->bias ? " bias" : "", c->strided ? " strided" : "", c->exact ? " exact" : "", c->backwards, ct_isa(),
             axes);
}

/* ---- The definition ---- */

/* Values and, in the second half, the sums of absolute terms. Images are [N][C][spatial], weights [out][in / groups][k]. */
typedef struct tensors {
    int64_t nx, nw, ny, nb;
    double *x, *w, *y, *b; /* the inputs, y the cotangent (conv) or the input (transposed) */
    double *to_x, *to_w, *to_y, *size_x, *size_w, *size_y;
} tensors;

static double *numbers(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

static void fill(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = (below(255) - 127) / 64.0; /* exact in every dtype */
}

static void define(const config *c, tensors *t) {
    const int64_t pixels_in = volume(c->in), pixels_out = volume(c->out), taps = volume(c->kernel);
    const int ins = c->groups * c->in_each, outs = c->groups * c->out_each;
    for (int64_t n = 0; n < c->batch; n++)
        for (int o = 0; o < outs; o++)
            for (int64_t p = 0; p < pixels_out; p++)
                for (int i = 0; i < c->in_each; i++)
                    for (int64_t k = 0; k < taps; k++) {
                        const int64_t out[3] = {p / c->out[2] / c->out[1], p / c->out[2] % c->out[1], p % c->out[2]},
                                      tap[3] = {k / c->kernel[2] / c->kernel[1], k / c->kernel[2] % c->kernel[1],
                                                k % c->kernel[2]};
                        int64_t in[3];
                        bool inside = true;
                        for (int a = 0; a < 3; a++) {
                            in[a] = out[a] * c->stride[a] + tap[a] * c->dilation[a] - c->before[a];
                            inside &= in[a] >= 0 && in[a] < c->in[a];
                        }
                        if (!inside) continue;
                        const int64_t ix = (n * ins + o / c->out_each * c->in_each + i) * pixels_in +
                                           (in[0] * c->in[1] + in[1]) * c->in[2] + in[2],
                                      iw = (o * (int64_t)c->in_each + i) * taps + k,
                                      iy = (n * outs + o) * pixels_out + p;
                        t->to_y[iy] += t->x[ix] * t->w[iw], t->size_y[iy] += fabs(t->x[ix] * t->w[iw]);
                        t->to_x[ix] += t->y[iy] * t->w[iw], t->size_x[ix] += fabs(t->y[iy] * t->w[iw]);
                        t->to_w[iw] += t->y[iy] * t->x[ix], t->size_w[iw] += fabs(t->y[iy] * t->x[ix]);
                    }
}

/* ---- This library ---- */

static ct_dims image_shape(const config *c, int channels, const int *size, bool last) {
    ct_dims shape = {.n = c->rank + 2};
    shape.d[0] = c->batch;
    shape.d[last ? c->rank + 1 : 1] = channels;
    for (int i = 0; i < c->rank; i++) shape.d[(last ? 1 : 2) + i] = size[3 - c->rank + i];
    return shape;
}

/* The permutation that brings channels first to channels last; `weight`: [o,i,k...] to [k...,i,o]. */
static ct_dims order(int rank, bool weight) {
    ct_dims d = {.n = rank + 2};
    for (int i = 0; i < rank; i++) d.d[weight ? i : i + 1] = i + 2;
    d.d[weight ? rank : 0] = weight ? 1 : 0;
    d.d[rank + 1] = weight ? 0 : 1;
    return d;
}

static void drop_flipped(void *flipped, void *data) {
    (void)data;
    ct_drop(flipped);
}

/* The same tensor in memory that runs backwards along some of its dimensions. */
static ct_tensor *backwards(ct_tensor *x, int which) {
    ct_dims axes = {0}, shape = ct_shape(x), strides;
    for (int d = 0; d < shape.n; d++)
        if (which >> d & 1 && shape.d[d] > 0) axes.d[axes.n++] = d;
    if (!axes.n || ct_numel(x) == 0) return x;
    ct_tensor *flipped = ct_keep(ct_flip(x, axes));
    char *data = ct_data_strided_mut(flipped, &strides);
    for (int i = 0; i < axes.n; i++) {
        const int64_t d = axes.d[i];
        data += (shape.d[d] - 1) * strides.d[d] * (int64_t)ct_dtype_size(ct_dtype_of(x));
        strides.d[d] = -strides.d[d];
    }
    return ct_wrap(data, shape, ct_dtype_of(x), .strides = strides, .release = drop_flipped, .context = flipped);
}

static ct_tensor *place(const config *c, const double *values, ct_dims first, bool weight) {
    ct_tensor *x = ct_cast(ct_from_data(values, first, CT_F64), c->dtype);
    if (c->last) x = ct_permute(x, order(c->rank, weight));
    if (c->last != c->strided) x = ct_contiguous(x); /* the other layout's memory, where strides are wanted */
    return backwards(x, c->backwards);
}

/* Back in the order of the definition. */
static ct_tensor *back(const config *c, ct_tensor *x, bool weight) {
    if (!c->last) return x;
    const ct_dims to = order(c->rank, weight);
    ct_dims inverse = {.n = to.n};
    for (int i = 0; i < to.n; i++) inverse.d[to.d[i]] = i;
    return ct_permute(x, inverse);
}

static ct_dims list(const config *c, const int *values) {
    ct_dims d = {.n = c->rank};
    for (int i = 0; i < c->rank; i++) d.d[i] = values[3 - c->rank + i];
    return d;
}

static ct_tensor *run(const config *c, ct_tensor *image, ct_tensor *w, ct_tensor *bias) {
    ct_dims pads = {.n = c->mode == CT_EXPLICIT ? 2 * c->rank : 0}, more = {.n = c->rank};
    for (int i = 0; i < c->rank; i++) {
        const int a = 3 - c->rank + i;
        if (pads.n) pads.d[2 * i] = c->before[a], pads.d[2 * i + 1] = c->after[a];
        const int span = c->dilation[a] * (c->kernel[a] - 1) + 1;
        more.d[i] =
            c->mode == CT_EXPLICIT ? c->in[a] + c->before[a] + c->after[a] - span - (c->out[a] - 1) * c->stride[a] : 0;
    }
#define OPTIONS                                                                                                        \
    .bias = bias, .strides = list(c, c->stride), .dilations = list(c, c->dilation), .pads = pads, .pad_mode = c->mode, \
    .channels_last = c->last, .exact = c->exact
    if (c->transposed) switch (c->rank) {
        case 1: return ct_conv_transpose1d(image, w, OPTIONS, .groups = c->groups, .output_paddings = more);
        case 2: return ct_conv_transpose2d(image, w, OPTIONS, .groups = c->groups, .output_paddings = more);
        default: return ct_conv_transpose3d(image, w, OPTIONS, .groups = c->groups, .output_paddings = more);
        }
    if (c->depthwise) return ct_depthwise_conv2d(image, w, OPTIONS);
    switch (c->rank) {
    case 1: return ct_conv1d(image, w, OPTIONS, .groups = c->groups);
    case 2: return ct_conv2d(image, w, OPTIONS, .groups = c->groups);
    default: return ct_conv3d(image, w, OPTIONS, .groups = c->groups);
    }
}

/* ---- Comparison ---- */

static double unit(ct_dtype dtype) { return dtype == CT_F64 ? 0x1p-53 : 0x1p-24; }
static double rounding(ct_dtype dtype) { return dtype == CT_F16 ? 0x1p-11 : dtype == CT_BF16 ? 0x1p-8 : 0; }

static bool winograd(const config *c) {
    const bool eight = c->in_each == 8 && c->out_each == 8; /* channels of a group have a way of their own */
    if (c->exact || c->dtype != CT_F32 || c->rank == 1 || (c->groups > 1 && !eight)) return false;
    const int taps = c->kernel[1] / c->stride[1];
    return c->kernel[1] == taps * c->stride[1] && c->kernel[2] == taps * c->stride[2] &&
           (taps == 2 || taps == 3 || taps == 5);
}

/* got is in the order of the definition; `terms` is the longest sum. */
static bool compare(const config *c, const char *what, ct_tensor *got, const double *expected, const double *size,
                    int64_t n, int64_t terms) {
    if (!got || ct_numel(got) != n || ct_dtype_of(got) != c->dtype) {
        char text[600];
        describe(c, text, sizeof text);
        harness_check(false, __FILE__, __LINE__, "%s: %s is %s, not of %lld elements: %s", text, what,
                      got ? ct_tensor_text(got) : "NULL", (long long)n, ct_error());
        ct_error_clear();
        return false;
    }
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, size[i]);
    ct_tensor *wide = ct_contiguous(ct_cast(got, CT_F64));
    const double *values = ct_data(wide);
    const bool mixed = winograd(c);
    for (int64_t i = 0; i < n; i++) {
        const double scale = LAMBDA * sqrt((double)terms + 1) * unit(c->dtype);
        const double bound = scale * (mixed ? GROWTH * largest : size[i]) +
                             rounding(c->dtype) * fabs(expected[i]) * (1 + scale) + (c->dtype == CT_F16 ? 0x1p-24 : 0);
        /* What no window touches is exactly zero, or the bias. */
        if (fabs(values[i] - expected[i]) <= bound) continue;
        char text[600];
        describe(c, text, sizeof text);
        harness_check(false, __FILE__, __LINE__, "%s: %s at %lld is %.9g, expected %.9g (tolerance %.2g)", text, what,
                      (long long)i, values[i], expected[i], bound);
        return false;
    }
    return true;
}

static bool check(const config *c) {
    const int ins = c->groups * c->in_each, outs = c->groups * c->out_each;
    const int64_t taps = volume(c->kernel);
    tensors t = {.nx = (int64_t)c->batch * ins * volume(c->in),
                 .nw = (int64_t)outs * c->in_each * taps,
                 .ny = (int64_t)c->batch * outs * volume(c->out),
                 .nb = c->transposed ? ins : outs};
    double **all[] = {&t.x, &t.w, &t.y, &t.b, &t.to_x, &t.to_w, &t.to_y, &t.size_x, &t.size_w, &t.size_y};
    const int64_t counts[] = {t.nx, t.nw, t.ny, t.nb, t.nx, t.nw, t.ny, t.nx, t.nw, t.ny};
    for (int i = 0; i < 10; i++) *all[i] = numbers(counts[i]);
    fill(t.x, t.nx), fill(t.w, t.nw), fill(t.y, t.ny), fill(t.b, t.nb);
    define(c, &t);

    const ct_dims x_shape = image_shape(c, ins, c->in, false), y_shape = image_shape(c, outs, c->out, false);
    ct_dims w_shape = {.n = c->rank + 2, .d = {outs, c->in_each}};
    for (int i = 0; i < c->rank; i++) w_shape.d[2 + i] = c->kernel[3 - c->rank + i];
    /* The image that goes in, and the cotangent of what comes out. */
    double *image = c->transposed ? t.y : t.x, *cotangent = c->transposed ? t.x : t.y;
    double *result = c->transposed ? t.to_x : t.to_y, *result_size = c->transposed ? t.size_x : t.size_y;
    const int64_t pixels = volume(c->transposed ? c->in : c->out), n_result = c->transposed ? t.nx : t.ny;
    double *bias_grad = numbers(t.nb), *bias_size = numbers(t.nb);
    for (int64_t i = 0; i < n_result; i++) {
        const int64_t channel = i / pixels % t.nb;
        bias_grad[channel] += cotangent[i], bias_size[channel] += fabs(cotangent[i]);
        if (c->bias) result[i] += t.b[channel], result_size[i] += fabs(t.b[channel]);
    }
    bool good = true;
    ct_scope {
        ct_tensor *in[3] = {
            ct_set_requires_grad(place(c, image, c->transposed ? y_shape : x_shape, false), true),
            ct_set_requires_grad(place(c, t.w, w_shape, true), true),
            c->bias ? ct_set_requires_grad(ct_cast(ct_from_data(t.b, CT_DIMS(t.nb), CT_F64), c->dtype), true) : NULL,
        };
        ct_tensor *y = run(c, in[0], in[1], in[2]);
        ct_tensor *g = place(c, cotangent, c->transposed ? x_shape : y_shape, false), *grads[3] = {NULL};
        const int64_t deep = taps * larger(c->in_each, c->out_each), wide = c->batch * volume(c->out);
        good = compare(c, "the result", y ? back(c, y, false) : NULL, result, result_size, n_result, deep) &&
               harness_check(ct_grad(&y, 1, &g, in, c->bias ? 3 : 2, grads, 0), __FILE__, __LINE__, "%s", ct_error()) &&
               compare(c, "the gradient of the image", back(c, grads[0], false), c->transposed ? t.to_y : t.to_x,
                       c->transposed ? t.size_y : t.size_x, c->transposed ? t.ny : t.nx, deep) &&
               compare(c, "the gradient of the weight", back(c, grads[1], true), t.to_w, t.size_w, t.nw, wide) &&
               (!c->bias ||
                compare(c, "the gradient of the bias", grads[2], bias_grad, bias_size, t.nb, c->batch * pixels));
    }
    for (int i = 0; i < 10; i++) free(*all[i]);
    free(bias_grad), free(bias_size);
    return good;
}

static void sweep(int first, int last, flavour kind) {
    static const char *const levels[] = {"base", "avx2", "avx512", "avx512bf16", "avx512amx", "neon", "neonbf16"};
    enum { LEVELS = sizeof levels / sizeof *levels };
    const char *usable[LEVELS];
    int n = 0, bad = 0;
    char best[32];
    snprintf(best, sizeof best, "%s", ct_isa());
    for (int i = 0; i < LEVELS; i++) {
        if (ct_set_isa(levels[i])) usable[n++] = levels[i];
        else ct_error_clear();
    }
    state += (uint64_t)first * 2654435761u;
    for (int i = first; i < last && bad < 8; i++) {
        const config c = draw(i, kind);
        ct_set_isa(i % 2 ? best : usable[i / 2 % n]);
        if (!check(&c)) bad++;
    }
}

TEST_LIMIT(random_convolutions_agree_with_their_definition_1, 300) { sweep(0, CONFIGURATIONS / 4, SMALL); }
TEST_LIMIT(random_convolutions_agree_with_their_definition_2, 300) {
    sweep(CONFIGURATIONS / 4, CONFIGURATIONS / 2, SMALL);
}
TEST_LIMIT(random_convolutions_agree_with_their_definition_3, 300) {
    sweep(CONFIGURATIONS / 2, CONFIGURATIONS / 4 * 3, SMALL);
}
TEST_LIMIT(random_convolutions_agree_with_their_definition_4, 300) {
    sweep(CONFIGURATIONS / 4 * 3, CONFIGURATIONS, SMALL);
}
/* Several blocks, segments and parts. */
TEST_LIMIT(large_random_convolutions_agree_with_their_definition, 300) { sweep(1000000, 1000000 + LARGE_ONES, LARGE); }
TEST_LIMIT(random_grouped_3x3_convolutions_agree_with_their_definition, 300) {
    sweep(2000000, 2000000 + USUAL_ONES, USUAL);
}

/* Several segments of a plane, planes a power of two apart, images as lines, a pixel each, all images one line. */
TEST_LIMIT(single_taps_agree_with_their_definition, 300) {
    static const int sizes[][5] = {/* batch, in, out, height, width */
                                   {3, 70, 5, 40, 31},
                                   {2, 40, 8, 64, 32},
                                   {7, 60, 40, 3, 5},
                                   {90, 33, 40, 1, 1},
                                   {1, 300, 3, 16, 19}};
    for (int i = 0; i < 5 * 8; i++) {
        const int *size = sizes[i % 5];
        config c = {.rank = 2, .batch = size[0], .groups = 1 + i / 5 / 4, .in_each = size[1], .out_each = size[2]};
        c.mode = CT_VALID, c.last = i / 5 % 2, c.bias = i / 5 / 2 % 2, c.exact = true;
        c.dtype = i % 7 == 6 ? CT_BF16 : i % 7 == 3 ? CT_F64 : CT_F32;
        for (int a = 0; a < 3; a++) {
            c.in[a] = c.out[a] = a ? size[2 + a] : 1;
            c.kernel[a] = c.stride[a] = c.dilation[a] = 1;
        }
        check(&c);
    }
}
/* Which way a call went the log says, which names its kernel, and why others refused. */
static int calls_of(const char *kernel) {
    char refused[80];
    snprintf(refused, sizeof refused, "(%s:", kernel);
    int taken = 0;
    for (int i = 0; harness_log_line(i); i++)
        taken += strstr(harness_log_line(i), kernel) && !strstr(harness_log_line(i), refused);
    return taken;
}
TEST_LIMIT(random_convolutions_in_tiles_agree_with_their_definition, 300) {
    harness_log_start();
    sweep(3000000, 3000000 + TILED_ONES, TILED);
    harness_log_stop();
    CHECK(calls_of("winograd") > TILED_ONES);
}
TEST_LIMIT(random_convolutions_of_small_images_agree_with_their_definition, 300) {
    harness_log_start();
    sweep(4000000, 4000000 + GATHERED_ONES, GATHERED);
    harness_log_stop();
    CHECK(calls_of("gathered_gemm") > GATHERED_ONES / 2);
}
