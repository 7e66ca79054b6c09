/* Winograd's passes against the definition in f64, called directly, since a convolution of these small and odd shapes would
 * choose another kernel; then which kernel a convolution chooses, and what exact and NaN do.
 *
 * Tolerance: winograd_lines.h states the bound: root mean square error below 4.5e-7 + 7e-8 sqrt(C), for kernels of 5 or 2
 * taps 4.5e-7 + 8e-8 sqrt(C), relative to that of results that have all their terms, where C is the length of the sums in the
 * transformed domain; the worst of a million below 12 times that (20 for the weight gradients of 5 taps and the results of
 * 2). Such a result has taps^2 C terms here (a weight gradient step^2 C, where step = 7 - taps), each a product of two normal
 * numbers: the root of their number is its root mean square. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/conv/cpu/winograd/winograd_run.h"
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

/* Kernel and stride of height and width are alike. */
typedef struct shape {
    int kernel, batch, in, out, height, width, top, bottom, left, right, dilation_h, dilation_w;
    int layout; /* 0: channels first, 1: channels last, 2: neither, with gaps */
    bool bias, residual, relu;
    int stride;
    int depth, kernel_d, front, back, dilation_d, stride_d;
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
static int64_t image(ct_image_strides *s, int layout, int64_t n, int64_t c, const int64_t size[3]) {
    const int64_t gap = layout == 2 ? 2 : 1, wide = layout == 2 ? 3 : 1; /* between channels, between pixels */
    const int64_t d = size[0], h = size[1], w = size[2];
    if (layout == 0) *s = (ct_image_strides){c * d * h * w, d * h * w, {h * w, w, 1}};
    else {
        const int64_t pixel = gap * c * wide;
        *s = (ct_image_strides){d * h * w * pixel, gap, {h * w * pixel, w * pixel, pixel}};
    }
    return n * s->n;
}

static void activate(const void *ctx, void *data, int64_t n) {
    float *x = data;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) x[i] = x[i] > 0 ? x[i] : 0;
}

/* Goes over the terms of y[n][o][out] = sum of x[n][c][in] w[o][c][tap] of the convolution that a pass without `turned` is. */
typedef struct term {
    int64_t n, o, c, out[3], tap[3], in[3];
} term;
typedef void term_fn(void *ctx, const winograd_pass *p, const term *t);
static void each_term(const winograd_pass *p, term_fn *fn, void *ctx) {
    term t;
#define EACH(i, count) for (i = 0; i < (count); i++)
    EACH(t.n, p->batch)
    EACH(t.o, p->out_channels)
    EACH(t.out[0], p->out[0])
    EACH(t.out[1], p->out[1])
    EACH(t.out[2], p->out[2])
    EACH(t.tap[0], p->kernel[0])
    EACH(t.tap[1], p->kernel[1])
    EACH(t.tap[2], p->kernel[2]) {
        bool inside = true;
        for (int a = 0; a < 3; a++) {
            t.in[a] = t.out[a] * p->stride[a] + t.tap[a] * p->dilation[a] - p->before[a];
            inside &= t.in[a] >= 0 && t.in[a] < p->in[a];
        }
        if (inside) EACH(t.c, p->in_channels) fn(ctx, p, &t);
    }
}
/* Elements by index, in the strides of x, y and w. */
static int64_t at(const ct_image_strides *s, int64_t n, int64_t c, const int64_t i[3]) {
    return n * s->n + c * s->c + i[0] * s->s[0] + i[1] * s->s[1] + i[2] * s->s[2];
}
static int64_t at_w(const winograd_pass *p, int64_t o, int64_t i, const int64_t k[3]) {
    return o * p->w_out + i * p->w_in + k[0] * p->w_k[0] + k[1] * p->w_k[1] + k[2] * p->w_k[2];
}
#define X_OF(p, t) at(&(p)->x_step, (t)->n, (t)->c, (t)->in)
#define Y_OF(p, t) at(&(p)->y_step, (t)->n, (t)->o, (t)->out)
#define W_OF(p, t) at_w(p, (t)->o, (t)->c, (t)->tap)
static void add_to_y(void *sums, const winograd_pass *p, const term *t) {
    ((double *)sums)[Y_OF(p, t)] += (double)p->x[X_OF(p, t)] * p->w[W_OF(p, t)];
}
static void add_to_x(void *sums, const winograd_pass *p, const term *t) {
    ((double *)sums)[X_OF(p, t)] += (double)p->y[Y_OF(p, t)] * p->w[W_OF(p, t)];
}
static void add_to_w(void *sums, const winograd_pass *p, const term *t) {
    ((double *)sums)[W_OF(p, t)] += (double)p->x[X_OF(p, t)] * p->y[Y_OF(p, t)];
}

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
/* `length` of the sums in the transformed domain, `terms` of a result for each of these. */
static void check_tally(const char *what, const shape *s, const char *isa, const tally *t, double length,
                        double terms) {
    if (t->count == 0) return;
    const int taps = s->kernel / s->stride;
    double bound = 4.5e-7 + (taps == 3 ? 7e-8 : 8e-8) * sqrt(length);
    if (strcmp(isa, "base") == 0) bound *= 1.5;
    const double worst = bound * (taps == (what[0] == 'w' ? 5 : 2) ? 20 : 12);
    const double scale = sqrt(terms * length), rms = sqrt(t->error / (double)t->count);
    char text[400];
    snprintf(text, sizeof text,
             "%s %s K%d S%d N%d C%d O%d %dx%d pads %d,%d,%d,%d dilation %d,%d depth %d K%d S%d pads %d,%d dilation %d "
             "layout %d",
             what, isa, s->kernel, s->stride, s->batch, s->in, s->out, s->height, s->width, s->top, s->bottom, s->left,
             s->right, s->dilation_h, s->dilation_w, s->depth, s->kernel_d, s->stride_d, s->front, s->back,
             s->dilation_d, s->layout);
    /* A handful of results has no root mean square to speak of: there only the worst counts. */
    harness_check(t->count < 200 || rms <= bound * scale, __FILE__, __LINE__, "%s: rms error %.3g of %.3g (bound %.3g)",
                  text, rms, scale, bound);
    harness_check(t->worst <= worst * scale + 1e-30, __FILE__, __LINE__, "%s: worst error %.3g of %.3g (bound %.3g)",
                  text, t->worst, scale, worst);
}

typedef struct buffers {
    float *x, *w, *y, *bias, *residual;
    int64_t x_count, w_count, y_count;
    void *scratch;
    double *sums;
} buffers;
static void release(buffers *b) {
    free(b->x), free(b->w), free(b->y), free(b->bias), free(b->residual), free(b->scratch), free(b->sums);
}
/* Memory for a pass, and for the sums that define its result. */
static void prepare(buffers *b, size_t bytes, int64_t sums) {
    b->scratch = aligned_alloc(64, (bytes + 127) / 64 * 64);
    b->sums = calloc((size_t)sums + 1, sizeof *b->sums);
}

static winograd_pass make(const shape *s, buffers *b) {
    const int kernel[3] = {s->kernel_d, s->kernel, s->kernel}, stride[3] = {s->stride_d, s->stride, s->stride};
    const int dilation[3] = {s->dilation_d, s->dilation_h, s->dilation_w}, in[3] = {s->depth, s->height, s->width};
    const int before[3] = {s->front, s->top, s->left}, after[3] = {s->back, s->bottom, s->right};
    winograd_pass p = {.batch = s->batch, .in_channels = s->in, .out_channels = s->out};
    for (int a = 0; a < 3; a++) {
        p.in[a] = in[a], p.kernel[a] = kernel[a], p.stride[a] = stride[a], p.dilation[a] = dilation[a];
        p.before[a] = before[a];
        p.out[a] = (in[a] + before[a] + after[a] - (kernel[a] - 1) * dilation[a] - 1) / stride[a] + 1;
    }
    const int64_t plane = s->kernel * s->kernel, taps = plane * s->kernel_d, last = (int64_t)s->in * s->out;
    b->x_count = image(&p.x_step, s->layout, s->batch, s->in, p.in);
    b->y_count = image(&p.y_step, s->layout, s->batch, s->out, p.out);
    b->w_count = last * taps;
    p.w_out = s->layout == 1 ? 1 : taps * s->in, p.w_in = s->layout == 1 ? s->out : taps;
    p.w_k[2] = s->layout == 1 ? last : 1;
    p.w_k[1] = s->kernel * p.w_k[2];
    p.w_k[0] = plane * p.w_k[2];
    p.x = b->x = random_floats(b->x_count);
    p.w = b->w = random_floats(b->w_count);
    p.y = b->y = random_floats(b->y_count);
    b->bias = random_floats(s->out > s->in ? s->out : s->in);
    b->residual = random_floats(b->y_count);
    b->scratch = NULL, b->sums = NULL;
    if (s->bias) p.bias = b->bias, p.bias_step = 1;
    if (s->residual) p.residual = b->residual, p.residual_step = p.y_step;
    if (s->relu) p.activate = activate;
    return p;
}

static void check_forward(const level *l, const shape *s) {
    buffers b;
    const winograd_pass p = make(s, &b);
    prepare(&b, l->bytes(&p), b.y_count);
    each_term(&p, add_to_y, b.sums);
    l->run(&p, b.scratch);
    tally t = {0};
    int64_t i[3];
    for (int64_t n = 0; n < p.batch; n++)
        for (int64_t o = 0; o < p.out_channels; o++) EACH(i[0], p.out[0])
    EACH(i[1], p.out[1]) EACH(i[2], p.out[2]) {
        const int64_t k = at(&p.y_step, n, o, i);
        const double value = b.sums[k] + (p.bias ? p.bias[o] : 0) + (p.residual ? p.residual[k] : 0);
        note(&t, p.y[k], p.activate && value < 0 ? 0 : value);
    }
    check_tally("forward", s, l->name, &t, (double)s->in * s->kernel_d * s->stride * s->stride,
                (double)(s->kernel / s->stride) * (s->kernel / s->stride));
    release(&b);
}

/* The input gradient: the pass turned, its channels exchanged. */
static void check_input_grad(const level *l, const shape *s) {
    buffers b;
    const winograd_pass f = make(s, &b);
    winograd_pass p = f;
    p.adjoint = true;
    p.in_channels = f.out_channels, p.out_channels = f.in_channels;
    p.x = f.y, p.x_step = f.y_step, p.y = b.x, p.y_step = f.x_step;
    p.residual = NULL, p.activate = NULL;
    p.w_out = f.w_in, p.w_in = f.w_out;
    for (int a = 0; a < 3; a++) p.in[a] = f.out[a], p.out[a] = f.in[a];
    prepare(&b, l->bytes(&p), b.x_count);
    each_term(&f, add_to_x, b.sums);
    l->run(&p, b.scratch);
    tally t = {0};
    int64_t i[3];
    for (int64_t n = 0; n < f.batch; n++)
        for (int64_t c = 0; c < f.in_channels; c++) EACH(i[0], f.in[0])
    EACH(i[1], f.in[1]) EACH(i[2], f.in[2]) {
        const int64_t k = at(&f.x_step, n, c, i);
        note(&t, f.x[k], b.sums[k] + (p.bias ? p.bias[c] : 0));
    }
    check_tally("input gradient", s, l->name, &t, (double)s->out * s->kernel_d,
                (double)(s->kernel / s->stride) * (s->kernel / s->stride));
    release(&b);
}

static void check_weight_grad(const level *l, const shape *s) {
    buffers b;
    winograd_pass p = make(s, &b);
    p.residual = NULL, p.activate = NULL;
    p.bias_grad = s->bias ? b.bias : NULL;
    prepare(&b, l->weight_bytes(&p), b.w_count);
    each_term(&p, add_to_w, b.sums);
    l->weight(&p, b.w, b.scratch);
    tally t = {0}, bias = {0};
    int64_t i[3];
    for (int64_t o = 0; o < p.out_channels; o++) {
        double sum = 0;
        for (int64_t n = 0; n < p.batch; n++)
            EACH(i[0], p.out[0]) EACH(i[1], p.out[1]) EACH(i[2], p.out[2]) sum += p.y[at(&p.y_step, n, o, i)];
        if (p.bias_grad) note(&bias, p.bias_grad[o], sum);
    }
    for (int64_t k = 0; k < b.w_count; k++) note(&t, b.w[k], b.sums[k]);
    const double step = 7 - s->kernel / s->stride;
    const double tiles = s->batch * p.out[0] * ceil((double)p.out[1] / step) * ceil((double)p.out[2] / step);
    check_tally("weight gradient", s, l->name, &t, tiles, step * step);
    check_tally("bias gradient", s, l->name, &bias, tiles, step * step);
    release(&b);
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
#define FLAT(...) \
    { __VA_ARGS__, 1, 1, 1, 0, 0, 1, 1 } /* no stride, no depth */
    static const shape shapes[] = {
        FLAT(3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, false, false, false), /* one pixel, all of it edge */
        FLAT(3, 1, 1, 1, 3, 3, 0, 0, 0, 0, 1, 1, 1, true, false, false),  /* one result */
        FLAT(3, 2, 3, 5, 4, 4, 1, 1, 1, 1, 1, 1, 0, true, false, true),   /* exactly one tile */
        FLAT(3, 2, 5, 3, 5, 2, 1, 1, 1, 1, 1, 1, 1, false, true, false),  /* a tile and a row; narrower than a tile */
        FLAT(3, 1, 17, 33, 9, 13, 1, 1, 1, 1, 1, 1, 0, true, true, true), /* channels past one vector */
        FLAT(3, 1, 33, 17, 9, 13, 1, 1, 1, 1, 1, 1, 1, true, true, true),
        FLAT(3, 3, 16, 32, 8, 12, 0, 2, 2, 0, 1, 1, 0, false, false,
             false), /* whole vectors and panels, padding on one side */
        FLAT(3, 3, 16, 32, 8, 12, 2, 0, 0, 2, 1, 1, 1, false, false, false),
        FLAT(3, 2, 4, 4, 7, 7, 5, 4, 3, 6, 1, 1, 0, true, false, false),  /* results that no input reaches */
        FLAT(3, 2, 6, 7, 11, 14, 2, 2, 2, 2, 2, 2, 0, true, true, false), /* dilation: phases as images */
        FLAT(3, 2, 6, 7, 11, 14, 1, 3, 3, 0, 2, 3, 1, true, true, false),
        FLAT(3, 1, 3, 4, 15, 15, 0, 0, 0, 0, 5, 4, 0, false, false, false), /* phases of one row */
        FLAT(3, 2, 6, 7, 10, 9, 1, 1, 1, 1, 1, 1, 2, true, true, true),     /* strides of a view */
        FLAT(3, 2, 70, 66, 6, 6, 1, 1, 1, 1, 1, 1, 0, false, false, false),
        FLAT(3, 2, 66, 70, 6, 6, 1, 1, 1, 1, 1, 1, 1, false, false, false),
        FLAT(3, 1, 400, 8, 6, 5, 1, 1, 1, 1, 1, 1, 1, true, false, false), /* sums deeper than a block of the engine */
        FLAT(5, 1, 1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 0, false, false, false),  /* the same with 5x5: one pixel */
        FLAT(5, 1, 1, 1, 5, 5, 0, 0, 0, 0, 1, 1, 1, true, false, false),   /* one result, half a tile */
        FLAT(5, 2, 3, 5, 2, 2, 2, 2, 2, 2, 1, 1, 0, true, false, true),    /* exactly one tile */
        FLAT(5, 2, 5, 3, 5, 2, 2, 2, 2, 2, 1, 1, 1, false, true, false),
        FLAT(5, 1, 17, 33, 9, 13, 2, 2, 2, 2, 1, 1, 0, true, true, true),
        FLAT(5, 1, 33, 17, 9, 13, 2, 2, 2, 2, 1, 1, 1, true, true, true),
        FLAT(5, 3, 16, 32, 8, 12, 0, 4, 4, 0, 1, 1, 0, false, false, false),
        FLAT(5, 3, 16, 32, 8, 12, 4, 0, 0, 4, 1, 1, 1, false, false, false),
        FLAT(5, 2, 4, 4, 7, 7, 7, 6, 5, 8, 1, 1, 0, true, false, false),
        FLAT(5, 2, 6, 7, 11, 14, 4, 4, 4, 4, 2, 2, 0, true, true, false),
        FLAT(5, 2, 6, 7, 11, 14, 1, 7, 9, 4, 2, 3, 1, true, true, false),
        FLAT(5, 2, 6, 7, 10, 9, 2, 1, 1, 2, 1, 1, 2, true, true, true),
        FLAT(5, 2, 70, 66, 6, 6, 2, 2, 2, 2, 1, 1, 0, false, false, false),
        FLAT(5, 2, 66, 70, 6, 6, 2, 2, 2, 2, 1, 1, 1, false, false, false),
        FLAT(5, 1, 400, 8, 6, 5, 2, 2, 2, 2, 1, 1, 1, true, false, false),
        FLAT(2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, false, false, false), /* 2x2: five results a tile */
        FLAT(2, 2, 3, 5, 5, 6, 0, 1, 1, 0, 1, 1, 1, true, true, true),
        FLAT(2, 2, 17, 33, 11, 14, 2, 1, 0, 3, 2, 3, 0, true, false, false),
        FLAT(2, 2, 6, 7, 10, 9, 1, 1, 0, 1, 1, 1, 2, true, true, true),
        /* A stride: parities of pixels. One window; every padding, even and odd sizes; layouts; channels past a vector. */
        {4, 1, 1, 1, 4, 4, 0, 0, 0, 0, 1, 1, 0, true, false, false, 2, 1, 1, 0, 0, 1, 1},
        {4, 2, 3, 5, 8, 9, 1, 1, 1, 1, 1, 1, 0, true, true, true, 2, 1, 1, 0, 0, 1, 1},
        {4, 2, 5, 3, 21, 20, 0, 3, 2, 2, 1, 1, 1, true, true, false, 2, 1, 1, 0, 0, 1, 1},
        {4, 1, 17, 33, 23, 22, 3, 0, 1, 2, 1, 1, 0, true, false, true, 2, 1, 1, 0, 0, 1, 1},
        {4, 1, 33, 17, 22, 23, 2, 1, 3, 3, 1, 1, 1, true, true, false, 2, 1, 1, 0, 0, 1, 1},
        {4, 2, 16, 32, 20, 20, 1, 1, 1, 1, 1, 1, 1, true, false, false, 2, 1, 1, 0, 0, 1, 1},
        {4, 2, 6, 7, 13, 12, 5, 6, 7, 4, 1, 1, 2, true, true, true, 2, 1, 1, 0, 0, 1, 1}, /* windows of padding alone */
        {4, 1, 110, 8, 12, 12, 1, 1, 1, 1, 1, 1, 0, true, false, false, 2, 1, 1, 0, 0, 1, 1}, /* deeper than a block */
        /* Depth: one plane, as many as taps, more; dilation, stride, nothing but padding; with parities. */
        {3, 1, 1, 1, 3, 3, 1, 1, 1, 1, 1, 1, 0, true, false, false, 1, 1, 3, 1, 1, 1, 1},
        {3, 2, 5, 6, 6, 7, 1, 1, 1, 1, 1, 1, 1, true, true, true, 1, 3, 3, 1, 1, 1, 1},
        {3, 2, 16, 32, 9, 10, 1, 1, 1, 1, 1, 1, 0, true, true, true, 1, 9, 3, 1, 1, 1, 1},
        {3, 1, 33, 17, 8, 9, 0, 1, 1, 0, 1, 1, 1, true, true, false, 1, 7, 3, 0, 2, 1, 1},
        {3, 2, 4, 5, 6, 6, 1, 1, 1, 1, 1, 1, 0, true, false, false, 1, 5, 1, 0, 0, 1, 1}, /* planes by themselves */
        {3, 1, 4, 5, 6, 6, 1, 1, 1, 1, 1, 1, 1, true, false, false, 1, 5, 1, 2, 1, 1, 1}, /* planes of padding */
        {3, 1, 4, 5, 6, 6, 1, 1, 1, 1, 1, 1, 0, true, true, true, 1, 4, 3, 5, 6, 1, 1},
        {3, 1, 4, 5, 6, 6, 1, 1, 1, 1, 1, 1, 2, true, true, true, 1, 11, 3, 2, 1, 2, 1},
        {3, 2, 4, 5, 9, 8, 2, 2, 2, 2, 2, 2, 1, true, false, true, 1, 9, 5, 4, 4, 3, 1},
        {3, 1, 4, 5, 6, 6, 1, 1, 1, 1, 1, 1, 0, true, true, false, 1, 9, 3, 1, 1, 1, 2},
        {3, 2, 4, 5, 6, 6, 1, 1, 1, 1, 1, 1, 1, true, false, true, 1, 12, 5, 3, 2, 1, 3},
        {3, 1, 2, 3, 5, 5, 1, 1, 1, 1, 1, 1, 0, true, false, false, 1, 40, 35, 17, 17, 1, 1}, /* more taps than runs */
        {5, 1, 5, 6, 9, 9, 2, 2, 2, 2, 1, 1, 0, true, true, false, 1, 6, 5, 2, 2, 1, 1},
        {4, 2, 5, 6, 12, 13, 1, 1, 1, 1, 1, 1, 1, true, true, true, 2, 8, 4, 1, 1, 1, 2},
        {4, 1, 5, 6, 12, 13, 1, 2, 1, 0, 1, 1, 0, true, false, true, 2, 7, 3, 1, 1, 2, 1},
        {2, 1, 5, 6, 7, 13, 1, 0, 1, 0, 1, 1, 0, true, true, true, 1, 5, 2, 1, 0, 1, 1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_shape(&shapes[i]);
}

TEST_LIMIT(every_level_keeps_the_bound_at_random_shapes, 120) {
    for (int i = 0; i < (harness_sanitized() ? 30 : 100); i++) {
        const int taps = 2 + below(3), stride = taps == 2 ? 1 + below(2) : 1, deep = below(3) == 0;
        shape s = {.kernel = (taps == 4 ? 5 : taps) * stride,
                   .stride = stride,
                   .batch = 1 + below(3),
                   .in = 1 + below(20),
                   .out = 1 + below(20),
                   .height = 1 + below(15 + 10 * stride),
                   .width = 1 + below(15 + 10 * stride),
                   .dilation_h = stride > 1 ? 1 : 1 + below(4) / 3,
                   .dilation_w = stride > 1 ? 1 : 1 + below(4) / 3,
                   .layout = below(3),
                   .bias = below(2),
                   .residual = below(2),
                   .relu = below(2),
                   .depth = deep ? 1 + below(9) : 1,
                   .kernel_d = deep ? 1 + below(4) : 1,
                   .stride_d = 1,
                   .dilation_d = 1};
        if (deep && below(3) == 0) s.dilation_d = 1 + below(2);
        else if (deep && below(3) == 0) s.stride_d = 1 + below(s.kernel_d);
        const int span_h = (s.kernel - 1) * s.dilation_h, span_w = (s.kernel - 1) * s.dilation_w;
        const int span_d = (s.kernel_d - 1) * s.dilation_d;
        s.top = below(span_h + 2), s.bottom = below(span_h + 2);
        s.left = below(span_w + 2), s.right = below(span_w + 2);
        if (deep) s.front = below(span_d + 2), s.back = below(span_d + 2);
        while (s.height + s.top + s.bottom <= span_h) s.height++;
        while (s.width + s.left + s.right <= span_w) s.width++;
        while (s.depth + s.front + s.back <= span_d) s.depth++;
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

/* The kinds of convolution that it takes. */
typedef struct family {
    int rank, kernel, stride;
    bool transposed;
} family;
static const family families[] = {{2, 3, 1, false}, {2, 5, 1, false}, {2, 2, 1, false}, {2, 4, 2, false},
                                  {2, 4, 2, true},  {3, 3, 1, false}, {3, 4, 2, false}};
enum { FAMILIES = sizeof families / sizeof families[0] };

static ct_dims image_dims(const family *f, bool last, int n, int c, int d, int h, int w) {
    if (f->rank == 2) return last ? CT_DIMS(n, h, w, c) : CT_DIMS(n, c, h, w);
    return last ? CT_DIMS(n, d, h, w, c) : CT_DIMS(n, c, d, h, w);
}
static ct_dims weight_dims(const family *f, bool last, int in, int out) {
    const int k = f->kernel, a = f->transposed ? in : out, b = f->transposed ? out : in;
    if (f->rank == 2) return last ? CT_DIMS(k, k, b, a) : CT_DIMS(a, b, k, k);
    return last ? CT_DIMS(k, k, k, b, a) : CT_DIMS(a, b, k, k, k);
}
static ct_tensor *convolve(const family *f, ct_tensor *x, ct_tensor *w, bool last, bool exact) {
    const int pad = (f->kernel - 1) / 2;
    if (f->transposed)
        return ct_conv_transpose2d(x, w, .stride = f->stride, .pad = pad, .channels_last = last, .exact = exact);
    if (f->rank == 3) return ct_conv3d(x, w, .stride = f->stride, .pad = pad, .channels_last = last, .exact = exact);
    return ct_conv2d(x, w, .stride = f->stride, .pad = pad, .channels_last = last, .exact = exact);
}

/* The result and both gradients. */
typedef struct triple {
    ct_tensor *t[3];
} triple;
static triple everything(const family *f, ct_tensor *x, ct_tensor *w, ct_tensor *cotangent, bool last) {
    triple r = {0};
    ct_tensor *in[2] = {ct_set_requires_grad(ct_clone(x), true), ct_set_requires_grad(ct_clone(w), true)};
    r.t[0] = convolve(f, in[0], in[1], last, false);
    if (r.t[0]) ct_grad(&r.t[0], 1, &cotangent, in, 2, r.t + 1, 0);
    return r;
}
static void check_same(const triple *a, triple b) {
    for (int i = 0; i < 3; i++) CHECK(a->t[i] && harness_same_bits(a->t[i], b.t[i]));
}

TEST(small_chunks_and_threads_give_the_same_bits) {
    for (int i = 0; i < FAMILIES; i++)
        for (int last = 0; last < 2; last++) {
            const family *f = &families[i];
            ct_tensor *x = ct_randn(image_dims(f, last, 2, 40, 7, 37, 42));
            ct_tensor *w = ct_randn(weight_dims(f, last, 40, 60));
            CHECK(ct_set_threads(2));
            ct_tensor *g = ct_randn(ct_shape(convolve(f, x, w, last, false)));
            harness_log_start();
            const triple y = everything(f, x, w, g, last);
            harness_log_stop();
            CHECK(times_chosen("winograd") == 3);
            CHECK(ct_set_grain(1));
            check_same(&y, everything(f, x, w, g, last));
            CHECK(ct_set_grain(0));
            for (int threads = 1; threads <= 7; threads += 3) {
                CHECK(ct_set_threads(threads));
                check_same(&y, everything(f, x, w, g, last));
            }
        }
}

/* Few tiles of many channels, and tiles for many groups: what many threads cut in another way than few. */
TEST(many_threads_cut_channels_and_groups_and_give_the_same_bits) {
    const struct {
        int n, in, h, w, out;
    } shapes[] = {{3, 200, 4, 4, 330},   /* one tile each, many channels */
                  {8, 64, 28, 30, 64},   /* 448 tiles */
                  {3, 72, 57, 57, 40},   /* rows of 15 tiles */
                  {2, 1024, 4, 4, 32},   /* blocks of one panel's rows */
                  {25, 250, 8, 8, 258},  /* slices of channels, two blocks of tiles */
                  {9, 260, 14, 13, 250}, /* weights of several groups, each worker its own */
                  {17, 40, 31, 33, 70}}; /* many tiles of few channels */
    for (int i = 0; i < 14; i++) {
        const int n = shapes[i / 2].n, ins = shapes[i / 2].in, h = shapes[i / 2].h, wide = shapes[i / 2].w,
                  outs = shapes[i / 2].out;
        const bool last = i % 2;
        ct_tensor *x = ct_randn(last ? CT_DIMS(n, h, wide, ins) : CT_DIMS(n, ins, h, wide)),
                  *w = ct_randn(last ? CT_DIMS(3, 3, ins, outs) : CT_DIMS(outs, ins, 3, 3)),
                  *b = ct_randn(CT_DIMS(outs));
        ct_tensor *first[4] = {NULL}, *g = NULL;
        for (int threads = 1; threads <= 32; threads += threads < 4 ? 1 : 12)
            ct_scope {
                CHECK(ct_set_threads(threads));
                ct_tensor *in[3] = {ct_set_requires_grad(ct_clone(x), true), ct_set_requires_grad(ct_clone(w), true),
                                    ct_set_requires_grad(ct_clone(b), true)};
                ct_tensor *now[4] = {ct_conv2d(in[0], in[1], .bias = in[2], .pad = 1, .channels_last = last)};
                if (!g) g = ct_keep(ct_randn(ct_shape(now[0])));
                CHECK(ct_grad(now, 1, &g, in, 3, now + 1, 0));
                for (int k = 0; k < 4; k++) {
                    if (!first[k]) first[k] = ct_keep(now[k]);
                    CHECK(harness_same_bits(first[k], now[k]));
                }
            }
        for (int k = 0; k < 4; k++) ct_drop(first[k]);
        ct_drop(g);
    }
    CHECK(ct_set_threads(0));
}

static bool uses_winograd(const family *f, ct_tensor *x, ct_tensor *w, bool exact) {
    harness_log_start();
    convolve(f, x, w, false, exact);
    harness_log_stop();
    return times_chosen("winograd") > 0;
}

TEST(winograd_is_chosen_unless_exact_is_asked_for) {
    for (int i = 0; i < FAMILIES; i++) {
        const family *f = &families[i];
        ct_tensor *x = ct_randn(image_dims(f, false, 4, 64, 4, 28, 28)), *w = ct_randn(weight_dims(f, false, 64, 64));
        CHECK(uses_winograd(f, x, w, false));
        CHECK(!uses_winograd(f, x, w, true));
        CHECK(!ct_set_exact_conv(true));
        CHECK(!uses_winograd(f, x, w, false));
        CHECK(ct_set_exact_conv(false));
        CHECK(uses_winograd(f, x, w, false));
        CHECK(!uses_winograd(f, ct_cast(x, CT_F64), ct_cast(w, CT_F64), false));
        CHECK(!uses_winograd(f, ct_randn(image_dims(f, false, 1, 1, 8, 8, 8)), ct_randn(weight_dims(f, false, 1, 2)),
                             false));
    }
    CHECK(!uses_winograd(&families[0], ct_randn(CT_DIMS(4, 64, 28, 28)), ct_randn(CT_DIMS(64, 64, 3, 5)), false));
    for (int batch = 1; batch <= 16; batch *= 4) { /* the gradient of large weights also from few tiles */
        ct_tensor *x = ct_randn(CT_DIMS(batch, 512, 4, 4)), *dw = NULL;
        ct_tensor *w = ct_set_requires_grad(ct_randn(CT_DIMS(512, 512, 3, 3)), true), *y = ct_conv2d(x, w, .pad = 1);
        harness_log_start();
        CHECK(ct_grad(&y, 1, &y, &w, 1, &dw, 0));
        harness_log_stop();
        CHECK(times_chosen("winograd") == 1);
    }
    const family wide = {2, 6, 2, false}; /* more taps than there is room for */
    CHECK(!uses_winograd(&wide, ct_randn(CT_DIMS(4, 64, 28, 28)), ct_randn(CT_DIMS(64, 64, 6, 6)), false));
}

/* What f32 gives for the same numbers, rounded: to the bit, since it is the same pass. */
static void check_halves(ct_dtype dtype, bool last) {
    const ct_dims image = last ? CT_DIMS(4, 28, 26, 64) : CT_DIMS(4, 64, 28, 26),
                  weight = last ? CT_DIMS(3, 3, 64, 72) : CT_DIMS(72, 64, 3, 3);
    ct_tensor *half[3] = {ct_cast(ct_randn(image), dtype), ct_cast(ct_randn(weight), dtype),
                          ct_cast(ct_randn(CT_DIMS(72)), dtype)},
              *wide[3], *grads[2][3], *y[2], *g = NULL;
    for (int i = 0; i < 3; i++) wide[i] = ct_set_requires_grad(ct_cast(half[i], CT_F32), true);
    for (int i = 0; i < 3; i++) ct_set_requires_grad(half[i], true);
    for (int f32 = 0; f32 < 2; f32++) {
        ct_tensor **in = f32 ? wide : half;
        harness_log_start();
        ct_tensor *out = ct_conv2d(in[0], in[1], .bias = in[2], .pad = 1, .channels_last = last);
        if (!g) g = ct_cast(ct_randn(ct_shape(out)), dtype);
        ct_tensor *cotangent = f32 ? ct_cast(g, CT_F32) : g;
        REQUIRE(ct_grad(&out, 1, &cotangent, in, 3, grads[f32], 0));
        harness_log_stop();
        CHECK(times_chosen("winograd") == 3);
        y[f32] = out;
    }
    CHECK(harness_same_bits(y[0], ct_cast(y[1], dtype)));
    for (int i = 0; i < 3; i++) CHECK(harness_same_bits(grads[0][i], ct_cast(grads[1][i], dtype)));
}

/* With all that a call may have; then with an image between others, which is no copy as it lies. */
static void check_halves_in_a_call(ct_dtype dtype) {
    ct_tensor *y[2], *part[2];
    ct_tensor *x = ct_cast(ct_randn(CT_DIMS(4, 80, 28, 26)), dtype),
              *w = ct_cast(ct_randn(CT_DIMS(64, 64, 3, 3)), dtype), *b = ct_cast(ct_randn(CT_DIMS(64, 2)), dtype),
              *r = ct_cast(ct_randn(CT_DIMS(4, 64, 28, 26)), dtype);
    for (int f32 = 0; f32 < 2; f32++) {
        const ct_dtype as = f32 ? CT_F32 : dtype;
        ct_tensor *bias = ct_select(ct_cast(b, as), 1, 1), *middle = ct_slice(ct_cast(x, as), 1, 8, .stop = CT_SET(72)),
                  *weight = ct_cast(w, as);
        harness_log_start();
        y[f32] = ct_conv2d(ct_contiguous(middle), weight, .bias = bias, .residual = ct_cast(r, as), .pad = 1,
                           .activation = CT_ACT_GELU);
        harness_log_stop();
        CHECK(times_chosen("winograd") == 1);
        harness_log_start();
        part[f32] = ct_conv2d(middle, weight, .pad = 1);
        harness_log_stop();
        CHECK(times_chosen("winograd") == f32);
    }
    CHECK(harness_same_bits(y[0], ct_cast(y[1], dtype)));
    ct_tensor *off = ct_abs(ct_sub(ct_cast(part[0], CT_F32), part[1])); /* of 576 terms */
    CHECK(ct_item(ct_amax(off)) < (dtype == CT_BF16 ? 1.0 / 256 : 1.0 / 2048) * 24 * 6);
}

/* Steps back that make up for a gap: as many elements from the first to the last as there are, but not those. */
static void check_halves_with_a_gap(void) {
    enum { ITEM = 64 * 28 * 28, GAP = 54, ROW = 28 };
    ct_tensor *memory = ct_cast(ct_randn(CT_DIMS(2 * ITEM + GAP)), CT_F16),
              *w = ct_cast(ct_randn(CT_DIMS(72, 64, 3, 3)), CT_F16);
    ct_tensor *x = ct_wrap((uint16_t *)ct_data_mut(memory) + ROW - 1, CT_DIMS(2, 64, 28, 28), CT_F16,
                           .strides = CT_DIMS(ITEM + GAP, 28 * 28, ROW, -1));
    ct_tensor *off = ct_abs(ct_sub(ct_conv2d(x, w, .pad = 1), ct_conv2d(ct_contiguous(x), w, .pad = 1)));
    CHECK(ct_item(ct_amax(off)) < 0.5); /* f16 of some 100 */
}

/* The input gradient, whose bias is of its own channels. */
static void check_transposed_halves(void) {
    ct_tensor *y[2], *x = ct_cast(ct_randn(CT_DIMS(4, 64, 14, 14)), CT_F16),
                     *w = ct_cast(ct_randn(CT_DIMS(64, 48, 4, 4)), CT_F16), *b = ct_cast(ct_randn(CT_DIMS(48)), CT_F16);
    for (int f32 = 0; f32 < 2; f32++) {
        const ct_dtype as = f32 ? CT_F32 : CT_F16;
        harness_log_start();
        y[f32] = ct_conv_transpose2d(ct_cast(x, as), ct_cast(w, as), .bias = ct_cast(b, as), .stride = 2, .pad = 1);
        harness_log_stop();
        CHECK(times_chosen("winograd") == 1);
    }
    CHECK(harness_same_bits(y[0], ct_cast(y[1], CT_F16)));
}

TEST(halves_are_convolved_in_f32_and_rounded_once) {
    for (int threads = 1; threads <= 7; threads += 3) {
        ct_set_threads(threads);
        for (int last = 0; last < 2; last++) check_halves(CT_F16, last);
    }
    ct_set_threads(0);
    CHECK(ct_set_grain(1));
    check_halves(CT_F16, false);
    CHECK(ct_set_grain(0));
    check_halves_in_a_call(CT_F16);
    check_transposed_halves();
    check_halves_with_a_gap();
    if (!strcmp(ct_isa(), "avx512amx")) return; /* its registers take bf16 as it is */
    for (int last = 0; last < 2; last++) check_halves(CT_BF16, last);
    check_halves_in_a_call(CT_BF16);
}

/* <conv(x), g> = <x, input gradient of g> = <w, weight gradient of g>: three algorithms for one sum. Of its N terms, normal
 * and of one size, each is right within the bound of winograd_lines.h; their errors add as the root of N does, which is the sum's
 * own size: so relative to that the tolerance is a few bounds. */
TEST(gradients_are_adjoint_to_the_convolution) {
    for (int i = 0; i < FAMILIES; i++)
        for (int last = 0; last < 2; last++) {
            const family *f = &families[i];
            ct_tensor *x = ct_randn(image_dims(f, last, 2, 33, 6, 21, 24)), *w = ct_randn(weight_dims(f, last, 33, 40));
            ct_tensor *g = ct_randn(ct_shape(convolve(f, x, w, last, false)));
            const triple y = everything(f, x, w, g, last);
            REQUIRE(y.t[0] && y.t[1] && y.t[2]);
            ct_tensor *pairs[3][2] = {{y.t[0], g}, {x, y.t[1]}, {w, y.t[2]}};
            double sums[3], size = 0;
            for (int j = 0; j < 3; j++) {
                ct_tensor *product = ct_mul(ct_cast(pairs[j][0], CT_F64), ct_cast(pairs[j][1], CT_F64));
                sums[j] = ct_item(ct_sum(product));
                if (j == 0) size = sqrt(ct_item(ct_sum(ct_mul(product, product))));
            }
            const double bound = 4 * (4.5e-7 + 8e-8 * sqrt(40 * 64)) * size;
            CHECK(fabs(sums[0] - sums[1]) <= bound && fabs(sums[0] - sums[2]) <= bound);
        }
}

/* A NaN reaches the tiles whose 6x6 inputs hold it, with a stride those of each parity, and no others; exact, the results
 * around it. */
static void check_nan(const family *f) {
    const int size = 24, pad = (f->kernel - 1) / 2, step = 7 - f->kernel / f->stride, area = 6 * f->stride;
    ct_tensor *x = ct_zeros(image_dims(f, false, 2, 32, 1, size, size)), *w = ct_ones(weight_dims(f, false, 32, 32));
    ((float *)ct_data_mut(x))[(5 * size + 9) * size + 14] = NAN; /* image 0, channel 5 */
    ct_tensor *y = convolve(f, x, w, false, false), *exact = convolve(f, x, w, false, true);
    REQUIRE(y && exact);
    const int out = (int)ct_dim(y, 3);
    int wrong = 0;
    for (int i = 0; i < out; i++)
        for (int j = 0; j < out; j++) {
            const int h = 9 - (i * f->stride - pad), v = 14 - (j * f->stride - pad);
            const int top = i / step * step * f->stride - pad, left = j / step * step * f->stride - pad;
            const bool near = h >= 0 && h < f->kernel && v >= 0 && v < f->kernel;
            const bool tile = top <= 9 && 9 < top + area && left <= 14 && 14 < left + area;
            const double got = harness_at(y, i * out + j), other = harness_at(y, (int64_t)32 * out * out + i * out + j);
            wrong += (near && !isnan(got)) || (!tile && got != 0) || other != 0;
            wrong += isnan(harness_at(exact, i * out + j)) != near;
        }
    CHECK(wrong == 0);
}
TEST(nan_stays_within_its_tiles) {
    for (int i = 0; i < 4; i++) check_nan(&families[i]);
}

TEST(an_empty_batch_passes_through) {
    ct_tensor *x = ct_zeros(CT_DIMS(0, 32, 16, 16)), *w = ct_randn(CT_DIMS(32, 32, 3, 3));
    ct_tensor *y = ct_conv2d(x, w, .pad = 1);
    REQUIRE(y != NULL);
    CHECK(ct_dim(y, 0) == 0 && ct_dim(y, 1) == 32 && ct_dim(y, 2) == 16 && ct_dim(y, 3) == 16);
}
