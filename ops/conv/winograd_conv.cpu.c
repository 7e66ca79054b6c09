/* Winograd as a candidate of conv and both its gradients: which shapes it takes, and how each becomes a pass. */
#include "backends/cpu/activate.h"
#include "backends/cpu/kernel.h"
#include "ops/conv/kernels.h"
#include "ops/conv/winograd_run.h"

static void forward_pass(const ct_conv_problem *p, winograd_pass *w) {
    const ct_conv_geometry *g = &p->geometry;
    *w = (winograd_pass){.batch = g->batch,
                         .in_channels = g->in_channels,
                         .out_channels = g->out_channels,
                         .kernel = (int)g->window.kernel[1],
                         .x = p->x,
                         .x_step = g->x,
                         .w = p->w,
                         .w_out = g->w.o,
                         .w_in = g->w.i,
                         .y = p->y,
                         .y_step = g->y,
                         .bias = p->bias,
                         .bias_step = p->bias_stride,
                         .bias_grad = p->bias_grad,
                         .residual = p->residual,
                         .residual_step = p->residual_strides,
                         .activate = CT_ISA_FN(ct__activation)(CT_F32, p->activation)};
    for (int a = 0; a < 2; a++) {
        w->in[a] = g->window.in[1 + a];
        w->out[a] = g->window.out[1 + a];
        w->before[a] = g->window.before[1 + a];
        w->dilation[a] = g->window.dilation[1 + a];
        w->w_k[a] = g->w.k[1 + a];
    }
}

/* dx[i] = sum over k of dy[i + before - k d] w[k], which with k = K - 1 - k' is a convolution of dy padded by
 * (K - 1) d - before. */
static void input_pass(const ct_conv_problem *p, winograd_pass *w) {
    const ct_conv_geometry *g = &p->geometry;
    forward_pass(p, w);
    w->in_channels = g->out_channels;
    w->out_channels = g->in_channels;
    w->x = p->y;
    w->x_step = g->y;
    w->y = p->x;
    w->y_step = g->x;
    w->w_out = g->w.i;
    w->w_in = g->w.o;
    for (int a = 0; a < 2; a++) {
        w->in[a] = g->window.out[1 + a];
        w->out[a] = g->window.in[1 + a];
        w->before[a] = (w->kernel - 1) * w->dilation[a] - w->before[a];
        w->w += (w->kernel - 1) * w->w_k[a];
        w->w_k[a] = -w->w_k[a];
    }
}

static void make_pass(const ct_call *call, ct_conv_problem *p, winograd_pass *w) {
    ct__conv_problem(call, p);
    if (p->kind == CT_CONV_INPUT_GRAD) input_pass(p, w);
    else forward_pass(p, w);
}

/* Where it wins over the implicit product. Costs from measured times, in units of one direct sum a result, in * out channels
 * of it: a tile's products and its two transforms, and the transform of the weights, dearer when they leave the caches. */
typedef struct costs {
    double products, transforms, weights, weight_sums;
    int64_t cached; /* bytes of transformed weights up to which they are not dearer */
    double dearer, direct;
} costs;
static const costs costs_3 = {2.5, 45, 18, 28, 24 << 20, 4, 0.85}, costs_5 = {1.35, 18, 45, 60, 4 << 20, 2, 0.95};

static bool wins(const ct_conv_problem *p) {
    const ct_conv_geometry *g = &p->geometry;
    const ct_window *s = &g->window;
    const bool large = s->kernel[1] == 5, turned = p->kind == CT_CONV_INPUT_GRAD;
    const costs *cost = large ? &costs_5 : &costs_3;
    const int64_t step = 7 - s->kernel[1];
    double tiles = (double)g->batch, results = (double)g->batch;
    for (int a = 1; a <= 2; a++) {
        const int64_t d = s->dilation[a], out = turned ? s->in[a] : s->out[a];
        tiles *= (double)(((out + d - 1) / d + step - 1) / step * ct__min64(d, out));
        results *= (double)out;
    }
    const int64_t columns = turned ? g->in_channels : g->out_channels;
    const double in = (double)(turned ? g->out_channels : g->in_channels), out = (double)columns;
    /* Products are of whole panels, which the many tiles of 5x5 feel. */
    const double wide = large ? (double)((columns + 31) / 32 * 32) : out;
    double weights = p->kind == CT_CONV_WEIGHT_GRAD ? cost->weight_sums : cost->weights;
    if (in * out * 144 > (double)cost->cached) weights *= cost->dearer;
    return in > 0 && out > 0 &&
           tiles * (cost->products * wide / out + cost->transforms * (in + wide) / (in * out)) + weights <
               cost->direct * results;
}

const char *CT_ISA_FN(ct__winograd_can)(const ct_call *call) {
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    const ct_conv_geometry *g = &p.geometry;
    const ct_window *s = &g->window;
    if (p.dtype != CT_F32) return "f32 only";
    if (s->rank != 2 || s->kernel[1] != s->kernel[2] || (s->kernel[1] != 3 && s->kernel[1] != 5))
        return "the kernel is neither 3x3 nor 5x5";
    if (s->stride[1] != 1 || s->stride[2] != 1) return "the stride is not 1";
    if (g->groups != 1) return "groups";
    if (p.kind == CT_CONV_WEIGHT_GRAD && !p.w) return "the weight's gradient is not asked for";
    if (p.exact) return "exact was asked for";
    return wins(&p) ? NULL : "too few channels or tiles to win";
}

size_t CT_ISA_FN(ct__winograd_scratch)(const ct_call *call) {
    ct_conv_problem p;
    winograd_pass w;
    make_pass(call, &p, &w);
    return p.kind == CT_CONV_WEIGHT_GRAD ? CT_ISA_FN(ct__winograd_weight_bytes)(&w)
                                         : CT_ISA_FN(ct__winograd_pass_bytes)(&w);
}

bool CT_ISA_FN(ct__winograd_run)(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_conv_problem p;
    winograd_pass w;
    make_pass(call, &p, &w);
    if (p.kind == CT_CONV_WEIGHT_GRAD) CT_ISA_FN(ct__winograd_weight_pass)(&w, p.w, call->scratch);
    else CT_ISA_FN(ct__winograd_pass)(&w, call->scratch);
    return true;
}
