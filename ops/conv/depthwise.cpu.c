/* Depthwise convolution as a candidate of conv and both its gradients: one input channel a group, any kernel, stride,
 * dilation and multiplier, over one or two axes. */
#include "ops/conv/depthwise.h"
#include "backends/cpu/activate.h"

static void make_pass(const ct_conv_problem *p, depthwise_pass *d) {
    const ct_conv_geometry *g = &p->geometry;
    const ct_window *s = &g->window;
    const bool forward = p->kind == CT_CONV_FORWARD;
    const int64_t size = (int64_t)ct_dtype_size(p->dtype);
    *d = (depthwise_pass){.batch = g->batch,
                          .channels = g->in_channels,
                          .multiplier = g->out_channels / ct__max64(1, g->in_channels),
                          .forward = forward,
                          .dtype = p->dtype,
                          .weight = p->w,
                          .w_o = g->w.o,
                          .w_h = g->w.k[1],
                          .w_w = g->w.k[2],
                          .bias = p->bias,
                          .bias_step = p->bias_stride,
                          .residual = p->residual,
                          .residual_step = p->residual_strides,
                          .activate = forward ? CT_ISA_FN(ct__activation)(p->dtype, p->activation) : NULL};
    const depthwise_image x = {p->x, g->x.n, g->x.c, g->x.s[1], g->x.s[2]};
    const depthwise_image y = {p->y, g->y.n, g->y.c, g->y.s[1], g->y.s[2]};
    d->source = forward ? x : y;
    d->target = forward ? y : x;
    d->target_channels = forward ? g->out_channels : g->in_channels;
    d->sources = forward ? 1 : d->multiplier;
    depthwise_axis *axes[2] = {&d->h, &d->w};
    int64_t *steps[2] = {&d->w_h, &d->w_w};
    for (int a = 0; a < 2; a++) {
        *axes[a] = depthwise_make_axis(s, 1 + a, forward);
        if (forward) continue;
        d->weight = (const char *)d->weight + (s->kernel[1 + a] - 1) * *steps[a] * size;
        *steps[a] = -*steps[a];
    }
}

static void make_gradient(const ct_conv_problem *p, depthwise_gradient *d) {
    const ct_conv_geometry *g = &p->geometry;
    ct_conv_problem as_forward = *p;
    depthwise_pass pass;
    as_forward.kind = CT_CONV_FORWARD;
    make_pass(&as_forward, &pass);
    *d = (depthwise_gradient){.h = pass.h,
                              .w = pass.w,
                              .batch = g->batch,
                              .channels = g->in_channels,
                              .multiplier = pass.multiplier,
                              .dtype = p->dtype,
                              .x = pass.source,
                              .g = pass.target,
                              .weight = p->w,
                              .w_o = g->w.o,
                              .w_h = g->w.k[1],
                              .w_w = g->w.k[2],
                              .bias = p->bias_grad};
}

const char *CT_ISA_FN(ct__depthwise_can)(const ct_call *call) {
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    const ct_conv_geometry *g = &p.geometry;
    if (g->groups != g->in_channels) return "more than one channel a group";
    if (g->window.rank > 2) return "three axes";
    if (g->batch == 0 || g->out_channels == 0 || g->in_channels == 0 || ct__window_pixels_in(&g->window) == 0 ||
        ct__window_pixels_out(&g->window) == 0)
        return "nothing to do";
    if (ct__conv_mostly_padding(&p)) return "mostly padding";
    if (p.kind == CT_CONV_WEIGHT_GRAD && !p.w) return "the weight's gradient is not asked for";
    return NULL;
}

/* Vectors of channels where they lie next to each other. */
static bool by_channels(const ct_conv_problem *p) {
    const ct_conv_geometry *g = &p->geometry;
    return g->x.c == 1 && g->y.c == 1 && g->in_channels == g->out_channels && g->in_channels > 1;
}

size_t CT_ISA_FN(ct__depthwise_scratch)(const ct_call *call) {
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    const bool channels = by_channels(&p);
    if (p.kind == CT_CONV_WEIGHT_GRAD) {
        depthwise_gradient gradient;
        make_gradient(&p, &gradient);
        return channels ? CT_ISA_FN(ct__depthwise_pixels_grad_bytes)(&gradient)
                        : CT_ISA_FN(ct__depthwise_planes_grad_bytes)(&gradient);
    }
    depthwise_pass pass;
    make_pass(&p, &pass);
#ifdef DEPTHWISE_BF16
    if (CT_ISA_FN(ct__depthwise_bf16_can)(&pass, channels)) return CT_ISA_FN(ct__depthwise_bf16)(&pass, channels, NULL);
#endif
    return channels ? CT_ISA_FN(ct__depthwise_pixels_bytes)(&pass) : CT_ISA_FN(ct__depthwise_planes_bytes)(&pass);
}

bool CT_ISA_FN(ct__depthwise_run)(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    const bool channels = by_channels(&p);
    if (p.kind == CT_CONV_WEIGHT_GRAD) {
        depthwise_gradient gradient;
        make_gradient(&p, &gradient);
        (channels ? CT_ISA_FN(ct__depthwise_pixels_grad) : CT_ISA_FN(ct__depthwise_planes_grad))(&gradient,
                                                                                                 call->scratch);
    } else {
        depthwise_pass pass;
        make_pass(&p, &pass);
#ifdef DEPTHWISE_BF16
        if (CT_ISA_FN(ct__depthwise_bf16_can)(&pass, channels)) {
            CT_ISA_FN(ct__depthwise_bf16)(&pass, channels, call->scratch);
            return true;
        }
#endif
        (channels ? CT_ISA_FN(ct__depthwise_pixels) : CT_ISA_FN(ct__depthwise_planes))(&pass, call->scratch);
    }
    return true;
}
