/* Few channels per group as a candidate of conv and both its gradients. */
#include "backends/cpu/activate.h"
#include "ops/conv/cpu/grouped/grouped.h"

static void make_pass(const ct_conv_problem *p, grouped_pass *d) {
    const ct_conv_geometry *g = &p->geometry;
    const ct_window *s = &g->window;
    const bool forward = p->kind != CT_CONV_INPUT_GRAD;
    const int64_t ins = g->in_channels / g->groups, outs = g->out_channels / g->groups;
    const depthwise_image x = {p->x, g->x.n, g->x.c, g->x.s[1], g->x.s[2]};
    const depthwise_image y = {p->y, g->y.n, g->y.c, g->y.s[1], g->y.s[2]};
    *d = (grouped_pass){.batch = g->batch,
                        .groups = g->groups,
                        .sources = forward ? ins : outs,
                        .targets = forward ? outs : ins,
                        .dtype = p->dtype,
                        .source = forward ? x : y,
                        .target = forward ? y : x,
                        .weight = p->w,
                        .w_group = outs * g->w.o,
                        .w_target = forward ? g->w.o : g->w.i,
                        .w_source = forward ? g->w.i : g->w.o,
                        .w_h = g->w.k[1],
                        .w_w = g->w.k[2],
                        .bias = p->bias,
                        .bias_step = p->bias_stride,
                        .residual = p->residual,
                        .residual_step = p->residual_strides};
    if (p->kind == CT_CONV_FORWARD) d->activate = CT_ISA_FN(ct__activation)(CT_F32, p->activation);
    depthwise_axis *axes[2] = {&d->h, &d->w};
    int64_t *steps[2] = {&d->w_h, &d->w_w};
    for (int a = 0; a < 2; a++) {
        *axes[a] = depthwise_make_axis(s, 1 + a, forward);
        if (forward) continue;
        d->weight = (const char *)d->weight + (s->kernel[1 + a] - 1) * *steps[a] * (int64_t)ct_dtype_size(p->dtype);
        *steps[a] = -*steps[a];
    }
}

const char *CT_ISA_FN(ct__grouped_can)(const ct_call *call) {
    ct_conv_problem p;
    ct__conv_problem(call, &p);
    const ct_conv_geometry *g = &p.geometry;
    if (p.dtype == CT_F64) return "f64";
    if (g->groups < 2) return "one group";
    if (g->window.rank > 2) return "three axes";
    if (g->batch == 0 || g->out_channels == 0 || g->in_channels == 0 || ct__window_pixels_in(&g->window) == 0 ||
        ct__window_pixels_out(&g->window) == 0)
        return "nothing to do";
    if (ct__conv_mostly_padding(&p)) return "mostly padding";
    if (g->in_channels / g->groups > GROUPED_MOST || g->out_channels / g->groups > GROUPED_MOST)
        return "many channels per group";
    if (p.kind == CT_CONV_WEIGHT_GRAD && !p.w) return "the weight's gradient is not asked for";
    return NULL;
}

/* Every way of a call; without scratch: how many bytes of it. */
static size_t go(const ct_call *call, void *scratch) {
    ct_conv_problem p;
    grouped_pass pass;
    ct__conv_problem(call, &p);
    make_pass(&p, &pass);
#if VF32_LANES >= 8
    if (!p.exact && CT_ISA_FN(ct__grouped_winograd_can)(&pass))
        return CT_ISA_FN(ct__grouped_winograd)(&pass, p.kind == CT_CONV_WEIGHT_GRAD ? p.w : NULL, p.bias_grad, scratch);
#endif
    if (p.kind == CT_CONV_WEIGHT_GRAD) {
        if (!scratch) return CT_ISA_FN(ct__grouped_weight_bytes)(&pass);
        CT_ISA_FN(ct__grouped_weight)(&pass, p.w, p.bias_grad, scratch);
    } else {
        if (!scratch) return CT_ISA_FN(ct__grouped_pass_bytes)(&pass);
        CT_ISA_FN(ct__grouped_pass)(&pass, scratch);
    }
    return 0;
}

size_t CT_ISA_FN(ct__grouped_scratch)(const ct_call *call) { return go(call, NULL); }

bool CT_ISA_FN(ct__grouped_run)(const ct_call *call, ct_stream *stream) {
    (void)stream;
    go(call, ct__scratch(call));
    return true;
}
