/* Winograd's passes against the definition in f64, called directly, since a convolution of these small and odd shapes would
 * choose another kernel; then which kernel a convolution chooses, and what exact and NaN do.
 *
 * Tolerance: ops/conv/winograd.h states the bound: root mean square error below 4.5e-7 + 7e-8 sqrt(C), for 5x5 kernels
 * 4.5e-7 + 8e-8 sqrt(C), relative to that of results that have all their terms, where C is the length of the sums in the
 * transformed domain; the worst of a million below 12 times that (weight gradients of 5x5: 20). Such a result has
 * kernel^2 C terms here (a weight gradient 16 C, or 4 C), each a product of two normal numbers: the root of their number is
 * its root mean square. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/conv/winograd_run.h"
#include "tests/harness.h"

#define LEVELS(X) X(base) X(avx2) X(avx512) X(avx512bf16) X(neon)

#define DECLARE(isa)                                                                     \
    __attribute__((weak)) size_t ct__winograd_pass_bytes_##isa(const winograd_pass *);   \
    __attribute__((weak)) void ct__winograd_pass_##isa(const winograd_pass *, void *);   \
    __attribute__((weak)) size_t ct__winograd_weight_bytes_##isa(const winograd_pass *); \
    __attribute__((weak)) void ct__winograd_weight_pass_##isa(const winograd_pass *, float *, void *);
LEVELS(DECLARE)

typedef struct level {
    const char *name;
    size_t (*bytes)(const winograd_pass *);
    void (*run)(const winograd_pass *, void *);
    size_t (*weight_bytes)(const winograd_pass *);
    void (*weight)(const winograd_pass *, float *, void *);
} level;
#define ENTRY(isa)                                                                                  \
    {#isa, ct__winograd_pass_bytes_##isa, ct__winograd_pass_##isa, ct__winograd_weight_bytes_##isa, \
     ct__winograd_weight_pass_##isa},
static const level levels[] = {LEVELS(ENTRY)};
enum { LEVEL_COUNT = sizeof levels / sizeof levels[0] };

/* ---- One problem and its definition ---- */

typedef struct shape {
    int kernel, batch, in, out, height, width, top, bottom, left, right, dilation_h, dilation_w;
    int layout; /* 0: channels first, 1: channels last, 2: neither, with gaps */
    bool bias, residual, relu;
} shape;

static uint64_t state = 88172645463325252ull;
static int below(int n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (int)((state >> 33) % (uint64_t)n);
}
static float normal(void) { /* near enough: the sum of twelve uniform numbers */
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += below(1 << 20) / (double)(1 << 20);
    return (float)sum;
}
static float *random_floats(int64_t count) {
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = normal();
    return x;
}

/* Strides of an image, and its number of elements. */
static int64_t image(ct_image_strides *s, int layout, int n, int c, int h, int w) {
    switch (layout) {
    case 0: *s = (ct_image_strides){(int64_t)c * h * w, h * w, {0, w, 1}}; return (int64_t)n * c * h * w;
    case 1: *s = (ct_image_strides){(int64_t)c * h * w, 1, {0, w * c, c}}; return (int64_t)n * c * h * w;
    default:
        *s = (ct_image_strides){(int64_t)c * h * w * 6, 2, {0, 2 * w * c * 3, 2 * c * 3}};
        return (int64_t)n * c * h * w * 6;
    }
}

static void activate(const void *ctx, void *data, int64_t n) {
    float *x = data;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) x[i] = x[i] > 0 ? x[i] : 0;
}

/* Elements by index, in the strides of x, y and w. */
static int64_t at(const ct_image_strides *s, int64_t n, int64_t c, int64_t h, int64_t w) {
    return n * s->n + c * s->c + h * s->s[1] + w * s->s[2];
}
static float *at_w(const winograd_pass *p, float *data, int64_t o, int64_t i, int64_t k, int64_t t) {
    return data + o * p->w_out + i * p->w_in + k * p->w_k[0] + t * p->w_k[1];
}
#define INSIDE(p, h, w) ((h) >= 0 && (h) < (p)->in[0] && (w) >= 0 && (w) < (p)->in[1])

/* Errors squared and summed, and the worst. */
typedef struct tally {
    double error, worst;
    int64_t count;
} tally;
static void note(tally *t, double got, double expected) {
    const double e = fabs(got - expected);
    t->error += e * e, t->count++;
    if (!(e <= t->worst)) t->worst = e;
}
static void check_tally(const char *what, const shape *s, const char *isa, const tally *t, double length,
                        double terms) {
    if (t->count == 0) return;
    double bound = 4.5e-7 + (s->kernel == 3 ? 7e-8 : 8e-8) * sqrt(length);
    if (strcmp(isa, "base") == 0) bound *= 1.5;
    const double worst = bound * (s->kernel == 5 && what[0] == 'w' ? 20 : 12);
    const double scale = sqrt(terms * length), rms = sqrt(t->error / (double)t->count);
    /* A handful of results has no root mean square to speak of: there only the worst counts. */
    harness_check(t->count < 200 || rms <= bound * scale, __FILE__, __LINE__,
                  "%s %s K%d N%d C%d O%d %dx%d dilation %d,%d layout %d: rms error %.3g of %.3g (bound %.3g)", what,
                  isa, s->kernel, s->batch, s->in, s->out, s->height, s->width, s->dilation_h, s->dilation_w, s->layout,
                  rms, scale, bound);
    harness_check(t->worst <= worst * scale + 1e-30, __FILE__, __LINE__,
                  "%s %s K%d N%d C%d O%d %dx%d dilation %d,%d layout %d: worst error %.3g of %.3g (bound %.3g)", what,
                  isa, s->kernel, s->batch, s->in, s->out, s->height, s->width, s->dilation_h, s->dilation_w, s->layout,
                  t->worst, scale, worst);
}

static winograd_pass make(const shape *s, float **buffers) {
    winograd_pass p = {.batch = s->batch,
                       .in_channels = s->in,
                       .out_channels = s->out,
                       .in = {s->height, s->width},
                       .out = {s->height + s->top + s->bottom - (s->kernel - 1) * s->dilation_h,
                               s->width + s->left + s->right - (s->kernel - 1) * s->dilation_w},
                       .before = {s->top, s->left},
                       .dilation = {s->dilation_h, s->dilation_w},
                       .kernel = s->kernel};
    const int size = s->kernel, taps = size * size;
    const int64_t xs = image(&p.x_step, s->layout, s->batch, s->in, s->height, s->width);
    const int64_t ys = image(&p.y_step, s->layout, s->batch, s->out, (int)p.out[0], (int)p.out[1]);
    if (s->layout == 1) p.w_out = 1, p.w_in = s->out, p.w_k[0] = size * s->in * s->out, p.w_k[1] = s->in * s->out;
    else p.w_out = taps * s->in, p.w_in = taps, p.w_k[0] = size, p.w_k[1] = 1;
    p.x = buffers[0] = random_floats(xs);
    p.w = buffers[1] = random_floats((int64_t)s->in * s->out * taps);
    p.y = buffers[2] = random_floats(ys);
    buffers[3] = random_floats(s->out);
    buffers[4] = random_floats(ys);
    if (s->bias) p.bias = buffers[3], p.bias_step = 1;
    if (s->residual) p.residual = buffers[4], p.residual_step = p.y_step;
    if (s->relu) p.activate = activate;
    return p;
}

/* The result at one place, by definition. */
static double defined(const winograd_pass *p, int64_t n, int64_t o, int64_t h, int64_t w) {
    double sum = p->bias ? p->bias[o] : 0;
    if (p->residual) sum += p->residual[at(&p->y_step, n, o, h, w)];
    for (int64_t c = 0; c < p->in_channels; c++)
        for (int k = 0; k < p->kernel; k++)
            for (int t = 0; t < p->kernel; t++) {
                const int64_t i = h + k * p->dilation[0] - p->before[0], j = w + t * p->dilation[1] - p->before[1];
                if (INSIDE(p, i, j))
                    sum += (double)p->x[at(&p->x_step, n, c, i, j)] * *at_w(p, (float *)p->w, o, c, k, t);
            }
    return p->activate && sum < 0 ? 0 : sum;
}

static void check_forward(const level *l, const shape *s) {
    float *buffers[5];
    winograd_pass p = make(s, buffers);
    void *scratch = aligned_alloc(64, (l->bytes(&p) + 127) / 64 * 64);
    l->run(&p, scratch);
    tally t = {0};
    for (int64_t n = 0; n < p.batch; n++)
        for (int64_t o = 0; o < p.out_channels; o++)
            for (int64_t h = 0; h < p.out[0]; h++)
                for (int64_t w = 0; w < p.out[1]; w++)
                    note(&t, p.y[at(&p.y_step, n, o, h, w)], defined(&p, n, o, h, w));
    check_tally("forward", s, l->name, &t, s->in, p.kernel * p.kernel);
    free(scratch);
    for (int i = 0; i < 5; i++) free(buffers[i]);
}

/* The input gradient: channels exchanged, taps turned round, (kernel - 1) d - before in front. Checked against sums over windows. */
static void check_input_grad(const level *l, const shape *s) {
    float *buffers[5];
    winograd_pass f = make(s, buffers), p = f;
    p.in_channels = f.out_channels, p.out_channels = f.in_channels;
    p.x = f.y, p.x_step = f.y_step, p.y = buffers[0], p.y_step = f.x_step;
    p.bias = NULL, p.residual = NULL, p.activate = NULL;
    p.w_out = f.w_in, p.w_in = f.w_out;
    double *expected = calloc((size_t)(f.batch * f.in_channels * f.in[0] * f.in[1]) + 1, sizeof *expected);
    for (int64_t n = 0; n < f.batch; n++)
        for (int64_t o = 0; o < f.out_channels; o++)
            for (int64_t h = 0; h < f.out[0]; h++)
                for (int64_t w = 0; w < f.out[1]; w++)
                    for (int64_t c = 0; c < f.in_channels; c++)
                        for (int k = 0; k < f.kernel; k++)
                            for (int t = 0; t < f.kernel; t++) {
                                const int64_t i = h + k * f.dilation[0] - f.before[0],
                                              j = w + t * f.dilation[1] - f.before[1];
                                if (INSIDE(&f, i, j))
                                    expected[((n * f.in_channels + c) * f.in[0] + i) * f.in[1] + j] +=
                                        (double)f.y[at(&f.y_step, n, o, h, w)] * *at_w(&f, (float *)f.w, o, c, k, t);
                            }
    for (int a = 0; a < 2; a++) {
        p.in[a] = f.out[a], p.out[a] = f.in[a];
        p.before[a] = (f.kernel - 1) * f.dilation[a] - f.before[a];
        p.w += (f.kernel - 1) * p.w_k[a];
        p.w_k[a] = -p.w_k[a];
    }
    void *scratch = aligned_alloc(64, (l->bytes(&p) + 127) / 64 * 64);
    l->run(&p, scratch);
    tally t = {0};
    const double *e = expected;
    for (int64_t n = 0; n < f.batch; n++)
        for (int64_t c = 0; c < f.in_channels; c++)
            for (int64_t h = 0; h < f.in[0]; h++)
                for (int64_t w = 0; w < f.in[1]; w++) note(&t, f.x[at(&f.x_step, n, c, h, w)], *e++);
    check_tally("input gradient", s, l->name, &t, s->out, p.kernel * p.kernel);
    free(expected), free(scratch);
    for (int i = 0; i < 5; i++) free(buffers[i]);
}

static void check_weight_grad(const level *l, const shape *s) {
    float *buffers[5];
    winograd_pass p = make(s, buffers);
    p.residual = NULL, p.activate = NULL;
    p.bias_grad = s->bias ? buffers[3] : NULL;
    void *scratch = aligned_alloc(64, (l->weight_bytes(&p) + 127) / 64 * 64);
    l->weight(&p, buffers[1], scratch);
    tally t = {0}, b = {0};
    for (int64_t o = 0; o < p.out_channels; o++) {
        double sum = 0;
        for (int64_t n = 0; n < p.batch; n++)
            for (int64_t h = 0; h < p.out[0]; h++)
                for (int64_t w = 0; w < p.out[1]; w++) sum += p.y[at(&p.y_step, n, o, h, w)];
        if (p.bias_grad) note(&b, p.bias_grad[o], sum);
        for (int64_t c = 0; c < p.in_channels; c++)
            for (int k = 0; k < p.kernel; k++)
                for (int q = 0; q < p.kernel; q++) {
                    sum = 0;
                    for (int64_t n = 0; n < p.batch; n++)
                        for (int64_t h = 0; h < p.out[0]; h++)
                            for (int64_t w = 0; w < p.out[1]; w++) {
                                const int64_t i = h + k * p.dilation[0] - p.before[0],
                                              j = w + q * p.dilation[1] - p.before[1];
                                if (INSIDE(&p, i, j))
                                    sum += (double)p.x[at(&p.x_step, n, c, i, j)] * p.y[at(&p.y_step, n, o, h, w)];
                            }
                    note(&t, *at_w(&p, (float *)buffers[1], o, c, k, q), sum);
                }
    }
    const double step = 7 - s->kernel, tiles = s->batch * ceil((double)p.out[0] / step) * ceil((double)p.out[1] / step);
    check_tally("weight gradient", s, l->name, &t, tiles, step * step);
    check_tally("bias gradient", s, l->name, &b, tiles, step * step);
    free(scratch);
    for (int i = 0; i < 5; i++) free(buffers[i]);
}

static void check_shape(const shape *s) {
    for (int i = 0; i < LEVEL_COUNT; i++) {
        if (!levels[i].run) continue;
        if (!ct_set_isa(levels[i].name)) {
            ct_error_clear();
            continue;
        }
        check_forward(&levels[i], s);
        check_input_grad(&levels[i], s);
        check_weight_grad(&levels[i], s);
    }
}

/* ---- Tests ---- */

TEST(every_level_keeps_the_bound_at_chosen_shapes) {
    static const shape shapes[] = {
        {3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, false, false, false}, /* one pixel, all of it edge */
        {3, 1, 1, 1, 3, 3, 0, 0, 0, 0, 1, 1, 1, true, false, false},  /* one result */
        {3, 2, 3, 5, 4, 4, 1, 1, 1, 1, 1, 1, 0, true, false, true},   /* exactly one tile */
        {3, 2, 5, 3, 5, 2, 1, 1, 1, 1, 1, 1, 1, false, true, false},  /* a tile and a row; narrower than a tile */
        {3, 1, 17, 33, 9, 13, 1, 1, 1, 1, 1, 1, 0, true, true, true}, /* channels past one vector */
        {3, 1, 33, 17, 9, 13, 1, 1, 1, 1, 1, 1, 1, true, true, true},
        {3, 3, 16, 32, 8, 12, 0, 2, 2, 0, 1, 1, 0, false, false,
         false}, /* whole vectors and panels, padding on one side */
        {3, 3, 16, 32, 8, 12, 2, 0, 0, 2, 1, 1, 1, false, false, false},
        {3, 2, 4, 4, 7, 7, 5, 4, 3, 6, 1, 1, 0, true, false, false},  /* results that no input reaches */
        {3, 2, 6, 7, 11, 14, 2, 2, 2, 2, 2, 2, 0, true, true, false}, /* dilation: phases as images */
        {3, 2, 6, 7, 11, 14, 1, 3, 3, 0, 2, 3, 1, true, true, false},
        {3, 1, 3, 4, 15, 15, 0, 0, 0, 0, 5, 4, 0, false, false, false}, /* phases of one row */
        {3, 2, 6, 7, 10, 9, 1, 1, 1, 1, 1, 1, 2, true, true, true},     /* strides of a view */
        {3, 2, 70, 66, 6, 6, 1, 1, 1, 1, 1, 1, 0, false, false, false},
        {3, 2, 66, 70, 6, 6, 1, 1, 1, 1, 1, 1, 1, false, false, false},
        {3, 1, 400, 8, 6, 5, 1, 1, 1, 1, 1, 1, 1, true, false, false}, /* sums deeper than a block of the engine */
        {5, 1, 1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 0, false, false, false},  /* the same with 5x5: one pixel */
        {5, 1, 1, 1, 5, 5, 0, 0, 0, 0, 1, 1, 1, true, false, false},   /* one result, half a tile */
        {5, 2, 3, 5, 2, 2, 2, 2, 2, 2, 1, 1, 0, true, false, true},    /* exactly one tile */
        {5, 2, 5, 3, 5, 2, 2, 2, 2, 2, 1, 1, 1, false, true, false},
        {5, 1, 17, 33, 9, 13, 2, 2, 2, 2, 1, 1, 0, true, true, true},
        {5, 1, 33, 17, 9, 13, 2, 2, 2, 2, 1, 1, 1, true, true, true},
        {5, 3, 16, 32, 8, 12, 0, 4, 4, 0, 1, 1, 0, false, false, false},
        {5, 3, 16, 32, 8, 12, 4, 0, 0, 4, 1, 1, 1, false, false, false},
        {5, 2, 4, 4, 7, 7, 7, 6, 5, 8, 1, 1, 0, true, false, false},
        {5, 2, 6, 7, 11, 14, 4, 4, 4, 4, 2, 2, 0, true, true, false},
        {5, 2, 6, 7, 11, 14, 1, 7, 9, 4, 2, 3, 1, true, true, false},
        {5, 2, 6, 7, 10, 9, 2, 1, 1, 2, 1, 1, 2, true, true, true},
        {5, 2, 70, 66, 6, 6, 2, 2, 2, 2, 1, 1, 0, false, false, false},
        {5, 2, 66, 70, 6, 6, 2, 2, 2, 2, 1, 1, 1, false, false, false},
        {5, 1, 400, 8, 6, 5, 2, 2, 2, 2, 1, 1, 1, true, false, false},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_shape(&shapes[i]);
}

TEST_LIMIT(every_level_keeps_the_bound_at_random_shapes, 120) {
    for (int i = 0; i < (harness_sanitized() ? 30 : 200); i++) {
        shape s = {.kernel = 3 + 2 * below(2),
                   .batch = 1 + below(3),
                   .in = 1 + below(20),
                   .out = 1 + below(20),
                   .height = 1 + below(15),
                   .width = 1 + below(15),
                   .dilation_h = 1 + below(4) / 3,
                   .dilation_w = 1 + below(4) / 3,
                   .layout = below(3),
                   .bias = below(2),
                   .residual = below(2),
                   .relu = below(2)};
        const int span_h = (s.kernel - 1) * s.dilation_h, span_w = (s.kernel - 1) * s.dilation_w;
        s.top = below(span_h + 2), s.bottom = below(span_h + 2);
        s.left = below(span_w + 2), s.right = below(span_w + 2);
        while (s.height + s.top + s.bottom <= span_h) s.height++;
        while (s.width + s.left + s.right <= span_w) s.width++;
        check_shape(&s);
    }
}

/* Calls that the log says this kernel took. */
static int times_chosen(const char *kernel) {
    int times = 0;
    for (int i = 0; harness_log_line(i); i++)
        times += strstr(harness_log_line(i), kernel) && !strstr(harness_log_line(i), "(winograd:");
    return times;
}

/* The result and both gradients. */
typedef struct triple {
    ct_tensor *t[3];
} triple;
static triple everything(ct_tensor *x, ct_tensor *w, ct_tensor *cotangent, int kernel, bool last) {
    triple r = {0};
    ct_tensor *in[2] = {ct_require_grad(ct_clone(x)), ct_require_grad(ct_clone(w))};
    r.t[0] = ct_conv2d(in[0], in[1], .pad = kernel / 2, .channels_last = last);
    if (r.t[0]) ct_grad(&r.t[0], 1, &cotangent, in, 2, r.t + 1, 0);
    return r;
}
static void check_same(const triple *a, triple b) {
    for (int i = 0; i < 3; i++) CHECK(a->t[i] && harness_same_bits(a->t[i], b.t[i]));
}

TEST(small_chunks_and_threads_give_the_same_bits) {
    for (int kernel = 3; kernel <= 5; kernel += 2)
        for (int last = 0; last < 2; last++) {
            ct_tensor *x = ct_randn(last ? CT_DIMS(2, 21, 18, 40) : CT_DIMS(2, 40, 21, 18));
            ct_tensor *w = ct_randn(last ? CT_DIMS(kernel, kernel, 40, 60) : CT_DIMS(60, 40, kernel, kernel));
            ct_tensor *g = ct_randn(last ? CT_DIMS(2, 21, 18, 60) : CT_DIMS(2, 60, 21, 18));
            CHECK(ct_set_threads(2));
            harness_log_start();
            const triple y = everything(x, w, g, kernel, last);
            harness_log_stop();
            CHECK(times_chosen("winograd") == 3);
            CHECK(ct_set_grain(1));
            check_same(&y, everything(x, w, g, kernel, last));
            CHECK(ct_set_grain(0));
            for (int threads = 1; threads <= 7; threads += 3) {
                CHECK(ct_set_threads(threads));
                check_same(&y, everything(x, w, g, kernel, last));
            }
        }
}

static bool uses_winograd(ct_tensor *x, ct_tensor *w, bool exact) {
    harness_log_start();
    ct_conv2d(x, w, .pad = 1, .exact = exact);
    harness_log_stop();
    return times_chosen("winograd") > 0;
}

TEST(winograd_is_chosen_unless_exact_is_asked_for) {
    for (int kernel = 3; kernel <= 5; kernel += 2) {
        ct_tensor *x = ct_randn(CT_DIMS(4, 64, 28, 28)), *w = ct_randn(CT_DIMS(64, 64, kernel, kernel));
        CHECK(uses_winograd(x, w, false));
        CHECK(!uses_winograd(x, w, true));
        CHECK(!ct_set_exact_conv(true));
        CHECK(!uses_winograd(x, w, false));
        CHECK(ct_set_exact_conv(false));
        CHECK(uses_winograd(x, w, false));
        CHECK(!uses_winograd(ct_cast(x, CT_F64), ct_cast(w, CT_F64), false));
        CHECK(!uses_winograd(ct_randn(CT_DIMS(1, 2, 8, 8)), ct_randn(CT_DIMS(2, 2, kernel, kernel)), false));
    }
    CHECK(!uses_winograd(ct_randn(CT_DIMS(4, 64, 28, 28)), ct_randn(CT_DIMS(64, 64, 3, 5)), false));
}

/* A NaN reaches the tiles whose 6x6 inputs hold it, and no others; exact, the results around it. */
static void check_nan(int kernel) {
    const int size = 24, half = kernel / 2, step = 7 - kernel;
    ct_tensor *x = ct_zeros(CT_DIMS(2, 32, size, size)), *w = ct_ones(CT_DIMS(32, 32, kernel, kernel));
    ((float *)ct_data_mut(x))[(5 * size + 9) * size + 14] = NAN; /* image 0, channel 5 */
    ct_tensor *y = ct_conv2d(x, w, .pad = half), *exact = ct_conv2d(x, w, .pad = half, .exact = true);
    int wrong = 0;
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) {
            const int top = i / step * step - half, left = j / step * step - half;
            const bool near = abs(i - 9) <= half && abs(j - 14) <= half;
            const bool tile = top <= 9 && 9 < top + 6 && left <= 14 && 14 < left + 6;
            const double got = harness_at(y, i * size + j),
                         other = harness_at(y, (int64_t)32 * size * size + i * size + j);
            wrong += (near && !isnan(got)) || (!tile && got != 0) || other != 0;
            wrong += isnan(harness_at(exact, i * size + j)) != near;
        }
    CHECK(wrong == 0);
}
TEST(nan_stays_within_its_tiles) {
    check_nan(3);
    check_nan(5);
}

TEST(an_empty_batch_passes_through) {
    ct_tensor *x = ct_zeros(CT_DIMS(0, 32, 16, 16)), *w = ct_randn(CT_DIMS(32, 32, 3, 3));
    ct_tensor *y = ct_conv2d(x, w, .pad = 1);
    REQUIRE(y != NULL);
    CHECK(ct_dim(y, 0) == 0 && ct_dim(y, 1) == 32 && ct_dim(y, 2) == 16 && ct_dim(y, 3) == 16);
}

/* Depthwise results of more than 16 MiB are written past the caches, in lines that do not end where rows do. */
static void check_large_depthwise(bool last) {
    const int n = 2, c = 32, h = 259, w = 261;
    ct_tensor *x = ct_randn(last ? CT_DIMS(n, h, w, c) : CT_DIMS(n, c, h, w));
    ct_tensor *k = ct_randn(last ? CT_DIMS(3, 3, 1, c) : CT_DIMS(c, 1, 3, 3));
    ct_tensor *y = ct_depthwise_conv2d(x, k, .pad = 1, .channels_last = last);
    REQUIRE(y != NULL);
    const float *a = ct_data(x), *b = ct_data(k), *got = ct_data(y);
    int wrong = 0;
    for (int image = 0; image < n; image++)
        for (int channel = 0; channel < c; channel++)
            for (int i = 0; i < h; i++)
                for (int j = 0; j < w; j++) {
                    double sum = 0, size = 0;
                    for (int q = 0; q < 9; q++) {
                        const int row = i + q / 3 - 1, col = j + q % 3 - 1;
                        if (row < 0 || row >= h || col < 0 || col >= w) continue;
                        const double term = (double)(last ? a[((image * h + row) * w + col) * c + channel]
                                                          : a[((image * c + channel) * h + row) * w + col]) *
                                            (last ? b[q * c + channel] : b[channel * 9 + q]);
                        sum += term, size += fabs(term);
                    }
                    const double value = last ? got[((image * h + i) * w + j) * c + channel]
                                              : got[((image * c + channel) * h + i) * w + j];
                    wrong += !(fabs(value - sum) <= 9 * 0x1p-24 * size);
                }
    CHECK(wrong == 0);
}
TEST(large_depthwise_results_are_whole) {
    check_large_depthwise(false);
    check_large_depthwise(true);
}
