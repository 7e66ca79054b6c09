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

/* dx[i] = sum over k of dy[i + before - k d] w[k], which with k = 2 - k' is a convolution of dy padded by 2 d - before. */
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
        w->before[a] = 2 * w->dilation[a] - w->before[a];
        w->w += 2 * w->w_k[a];
        w->w_k[a] = -w->w_k[a];
    }
}

static void make_pass(const ct_call *call, ct_conv_problem *p, winograd_pass *w) {
    ct__conv_problem(call, p);
    if (p->kind == CT_CONV_INPUT_GRAD) input_pass(p, w);
    else forward_pass(p, w);
}

/* Where it wins over the implicit product. In units of in * out channels, from measured times: a tile's products and its two
 * transforms, the transform of the weights (dearer when they leave the caches), against a direct sum a result. */
static bool wins(const ct_conv_problem *p) {
    const ct_conv_geometry *g = &p->geometry;
    const ct_window *s = &g->window;
    double tiles = (double)g->batch, results = (double)g->batch;
    for (int a = 1; a <= 2; a++) {
        const int64_t d = s->dilation[a], out = p->kind == CT_CONV_INPUT_GRAD ? s->in[a] : s->out[a];
        tiles *= (double)(((out + d - 1) / d + 3) / 4 * ct__min64(d, out));
        results *= (double)out;
    }
    const double in = (double)g->in_channels, out = (double)g->out_channels;
    double weights = p->kind == CT_CONV_WEIGHT_GRAD ? 28 : 18;
    if (in * out * 144 > 24 << 20) weights *= 4;
    return in > 0 && out > 0 && tiles * (2.5 + 45 * (in + out) / (in * out)) + weights < 0.85 * results;
}

const char *CT_ISA_FN(ct__winograd_can)(const ct_call *call) {
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    const ct_conv_geometry *g = &p.geometry;
    const ct_window *s = &g->window;
    if (p.dtype != CT_F32) return "f32 only";
    if (s->rank != 2 || s->kernel[1] != 3 || s->kernel[2] != 3) return "the kernel is not 3x3";
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
