/* Depthwise convolution as a candidate of conv and both its gradients: one input channel a group, any kernel, stride,
 * dilation and multiplier, over one or two axes. */
#include "ops/conv/cpu/depthwise/depthwise.h"
#include "backends/cpu/activate.h"

/* ---- Lines ---- */

#ifdef DEPTHWISE_BF16
/* The instruction takes f32 subnormals for zero: those are rounded as without it. */
DEPTHWISE_BF16 void CT_ISA_FN(ct__depthwise_narrow_bf16)(const float *src, uint16_t *dst, int64_t count) {
    for (int64_t i = 0; i < count; i += 16) {
        const __mmask16 m = (__mmask16)_bzhi_u32(0xffff, (unsigned)ct__min64(16, count - i));
        const __m512 v = _mm512_maskz_loadu_ps(m, src + i);
        if (__builtin_expect(_mm512_fpclass_ps_mask(v, 0x20 /* subnormal */), 0))
            vf32_store_bf16_n(dst + i, v, (int)ct__min64(16, count - i));
        else _mm256_mask_storeu_epi16(dst + i, m, (__m256i)_mm512_cvtneps_pbh(v));
    }
}
#endif

#define COPY_LINE(T, dst, dst_step, src, src_step)                                         \
    do {                                                                                   \
        T *to = (dst);                                                                     \
        const T *from = (src);                                                             \
        if (step == 1) memcpy(to, from, (size_t)count * sizeof *to);                       \
        else                                                                               \
            for (int64_t i = 0; i < count; i++) to[i * (dst_step)] = from[i * (src_step)]; \
    } while (0)

void depthwise_read_f32(float *dst, ct_dtype dtype, const void *data, int64_t at, int64_t step, int64_t count) {
#if VF32_LANES == 16
    if (dtype == CT_F32 && step == 2) { /* every other one of two vectors */
        const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        for (int64_t i = 0; i < count; i += 16) {
            const float *src = (const float *)data + at + 2 * i;
            const int64_t last = 2 * (count - i) - 1; /* and no further: there may be nothing */
            const __m512 low = _mm512_maskz_loadu_ps((__mmask16)depthwise_lanes(0, last, 16), src),
                         high = _mm512_maskz_loadu_ps((__mmask16)depthwise_lanes(0, last - 16, 16), src + 16);
            vf32_store_n(dst + i, _mm512_permutex2var_ps(low, evens, high), (int)ct__min64(16, count - i));
        }
        return;
    }
#endif
    if (dtype == CT_F32) COPY_LINE(float, dst, 1, (const float *)data + at, step);
    else depthwise_widen_line(dst, dtype, (const uint16_t *)data + at, step, count);
}
void depthwise_write_f32(const float *src, ct_dtype dtype, void *data, int64_t at, int64_t step, int64_t count) {
    if (dtype == CT_F32) COPY_LINE(float, (float *)data + at, step, src, 1);
    else depthwise_narrow_line(src, dtype, (uint16_t *)data + at, step, count);
}
void depthwise_read_f64(double *dst, ct_dtype dtype, const void *data, int64_t at, int64_t step, int64_t count) {
    (void)dtype;
    COPY_LINE(double, dst, 1, (const double *)data + at, step);
}
void depthwise_write_f64(const double *src, ct_dtype dtype, void *data, int64_t at, int64_t step, int64_t count) {
    (void)dtype;
    COPY_LINE(double, (double *)data + at, step, src, 1);
}

/* ---- The candidate ---- */

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
                                                                                                 ct__scratch(call));
    } else {
        depthwise_pass pass;
        make_pass(&p, &pass);
#ifdef DEPTHWISE_BF16
        if (CT_ISA_FN(ct__depthwise_bf16_can)(&pass, channels)) {
            CT_ISA_FN(ct__depthwise_bf16)(&pass, channels, ct__scratch(call));
            return true;
        }
#endif
        (channels ? CT_ISA_FN(ct__depthwise_pixels) : CT_ISA_FN(ct__depthwise_planes))(&pass, ct__scratch(call));
    }
    return true;
}
