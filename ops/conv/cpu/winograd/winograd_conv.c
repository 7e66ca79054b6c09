/* Winograd as a candidate of conv and both its gradients: which shapes it takes, and how each becomes a pass. */
#include "backends/cpu/activate.h"
#include "backends/cpu/gemm/plan.h"
#include "backends/cpu/kernel.h"
#include "ops/conv/cpu/halves.h"
#include "ops/conv/cpu/kernels.h"
#include "ops/conv/cpu/winograd/winograd_run.h"

extern const ct_elementwise_isa CT_ISA_FN(ct__elementwise_isa);

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
    for (int a = 0; a < 3; a++) {
        w->in[a] = g->window.in[a];
        w->out[a] = g->window.out[a];
        w->kernel[a] = g->window.kernel[a];
        w->stride[a] = g->window.stride[a];
        w->dilation[a] = g->window.dilation[a];
        w->before[a] = g->window.before[a];
        w->w_k[a] = g->w.k[a];
    }
}

static void input_pass(const ct_conv_problem *p, winograd_pass *w) {
    const ct_conv_geometry *g = &p->geometry;
    forward_pass(p, w);
    w->adjoint = true;
    w->in_channels = g->out_channels;
    w->out_channels = g->in_channels;
    w->x = p->y;
    w->x_step = g->y;
    w->y = p->x;
    w->y_step = g->x;
    w->w_out = g->w.i;
    w->w_in = g->w.o;
    for (int a = 0; a < 3; a++) {
        w->in[a] = g->window.out[a];
        w->out[a] = g->window.in[a];
    }
}

static void make_pass(const ct_conv_problem *p, winograd_pass *w) {
    if (p->kind == CT_CONV_INPUT_GRAD) input_pass(p, w);
    else forward_pass(p, w);
}

/* Where it wins over the implicit product. Costs from measured times, in products of vectors of 16 floats: the products
 * themselves, the transforms of vectors of channels and of weights, dearer when these leave the caches; against the products
 * of the sums, their stores, and the weights' way into panels or, of their gradient, the sums of parts of the batch. */
static bool wins(const ct_conv_problem *p) {
    const ct_conv_geometry *g = &p->geometry;
    const ct_window *s = &g->window;
    const bool adjoint = p->kind == CT_CONV_INPUT_GRAD, gradient = p->kind == CT_CONV_WEIGHT_GRAD;
    const bool large = s->kernel[1] == 5;
    const int64_t *const out = adjoint ? s->in : s->out, *const in = adjoint ? s->out : s->in;
    const int64_t step = 7 - s->kernel[1] / s->stride[1], ins = adjoint ? g->out_channels : g->in_channels,
                  outs = adjoint ? g->in_channels : g->out_channels;
    if (ins == 0 || outs == 0) return false;
    const double vectors_in = (double)((ins + 15) / 16), vectors_out = (double)((outs + 15) / 16);
    const double strides = (double)(s->stride[1] * s->stride[2]), parities_in = adjoint ? 1 : strides,
                 parities_out = adjoint ? strides : 1, taps = (double)(s->kernel[1] * s->kernel[2]);
    double columns = (double)g->batch, pixels = (double)g->batch;
    for (int a = 1; a <= 2; a++) {
        const int64_t d = s->dilation[a], by = adjoint ? s->stride[a] : 1, size = (out[a] + d - 1) / d + by - 1;
        columns *= (double)((size + step * by - 1) / (step * by) * ct__min64(d, out[a]));
        pixels *= (double)out[a];
    }
    const double planes = (double)out[0], depth = (double)s->kernel[0],
                 sources = (double)ct__min64(in[0], out[0] * s->stride[0] + s->kernel[0] - 1),
                 seen = adjoint ? depth / (double)s->stride[0] : depth; /* taps of the depth that a result has */
    const double panels = 36 * strides * (double)ins * depth * vectors_out, bytes = 64 * panels;
    const double products = columns * planes * 36 * strides * (double)ins * seen * vectors_out;
    const double transforms = columns * (sources * vectors_in * parities_in + planes * vectors_out * parities_out);
    /* Few tiles: a part of the weights is transformed, used and done with before it leaves the caches. */
    const bool at_once = strides * depth * planes == 1 && s->dilation[1] * s->dilation[2] == 1 &&
                         columns <= (gradient ? 112 : WINOGRAD_AT_ONCE);
    double weight = large ? 20 : 9;
    if (!at_once && bytes > 24 << 20) weight *= gradient ? 6 : 4;
    else if (!at_once && bytes > (gradient ? 6 : 12) << 20) weight *= gradient ? 3 : 2.5;
    const double direct =
        pixels * planes * vectors_out * (taps * (double)ins * seen / (adjoint ? strides : 1) * 1.05 + 20);
    double packed = (gradient ? 40 : 30) * taps * depth * (double)ins * vectors_out;
    if (g->channels_last && !gradient) packed = 0;
    double other = 0.95 * (direct + packed), conversions = 0;
    if (p->dtype != CT_F32) { /* there and back; of bf16 two products take the time of one of f32 */
        const double pixels_in = (double)g->batch * (double)(in[0] * in[1] * in[2]);
        conversions = 28 * (pixels_in * vectors_in + pixels * planes * vectors_out);
        if (p->dtype == CT_BF16 && ct__gemm_isa->kernels[CT__KIND_BF16]) other *= 0.55;
    }
    return 1.08 * products + 500 * transforms + weight * panels + conversions + 10000 < other;
}

/* Halves in f32, where no matrix registers take them as they are. */
static const char *refuses_halves(const ct_conv_problem *p) {
    if (p->dtype != CT_F16 && p->dtype != CT_BF16) return "f64 has no such kernel";
    ct__gemm_ready();
    if (p->dtype == CT_BF16 && ct__gemm_isa->blocks[CT__KIND_BF16]) return "there are matrix registers";
    return ct__conv_halves_refuse(p);
}

const char *CT_ISA_FN(ct__winograd_can)(const ct_call *call) {
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    const ct_conv_geometry *g = &p.geometry;
    const ct_window *s = &g->window;
    if (s->stride[1] != s->stride[2] || s->kernel[1] != s->kernel[2]) return "height and width differ";
    if (s->kernel[1] % s->stride[1]) return "the stride does not divide the kernel";
    const int64_t taps = s->kernel[1] / s->stride[1];
    if ((taps != 2 && taps != 3 && taps != 5) || s->kernel[1] * s->kernel[2] > WINOGRAD_KERNEL)
        return "the kernel is not 2, 3 or 5 times the stride";
    for (int a = 0; a < 3; a++)
        if (s->stride[a] > 1 && (s->dilation[a] > 1 || s->stride[a] > s->kernel[a])) return "its stride";
    if (g->groups != 1) return "groups";
    if (p.kind == CT_CONV_WEIGHT_GRAD && !p.w) return "the weight's gradient is not asked for";
    if (p.exact) return "exact was asked for";
    const char *reason = p.dtype == CT_F32 ? NULL : refuses_halves(&p);
    if (reason) return reason;
    return wins(&p) ? NULL : "too few channels or tiles to win";
}

/* Before that of a pass there are the copies of halves. */
static size_t copies(const ct_conv_problem *p) { return p->dtype == CT_F32 ? 0 : ct__conv_halves_bytes(p); }

size_t CT_ISA_FN(ct__winograd_scratch)(const ct_call *call) {
    ct_conv_problem p;
    winograd_pass w;
    ct__conv_problem(call, &p);
    make_pass(&p, &w);
    return copies(&p) + (p.kind == CT_CONV_WEIGHT_GRAD ? CT_ISA_FN(ct__winograd_weight_bytes)(&w)
                                                       : CT_ISA_FN(ct__winograd_pass_bytes)(&w));
}

bool CT_ISA_FN(ct__winograd_run)(const ct_call *call, ct_stream *stream) {
    const ct_elementwise_isa *isa = &CT_ISA_FN(ct__elementwise_isa);
    (void)stream;
    ct_conv_problem given;
    winograd_pass w;
    ct__conv_problem(call, &given);
    char *scratch = ct__scratch(call);
    const ct_conv_problem p = given.dtype == CT_F32 ? given : ct__conv_halves_widen(&given, isa, scratch);
    scratch += copies(&given);
    make_pass(&p, &w);
    if (p.kind == CT_CONV_WEIGHT_GRAD) CT_ISA_FN(ct__winograd_weight_pass)(&w, p.w, scratch);
    else CT_ISA_FN(ct__winograd_pass)(&w, scratch);
    if (given.dtype != CT_F32) ct__conv_halves_narrow(&given, &p, isa);
    return true;
}
