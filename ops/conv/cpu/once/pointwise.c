/* Convolutions whose kernel is a single tap over every pixel, without padding: plain products of strided matrices, which
 * the engine reads where they lie. Pixels are one axis of a matrix, channels another; images and groups are the batch. */
#include <string.h>

#include "ops/conv/cpu/implicit.h"

/* The pixels of an image as one axis; false where they are not evenly spaced. */
static bool pixel_stride(const ct_window *w, const ct_image_strides *s, int64_t *stride) {
    *stride = 0;
    int64_t next = 0, count = 1;
    for (int a = 2; a >= 0; a--) {
        if (w->in[a] == 1) continue;
        if (count == 1) *stride = next = s->s[a];
        if (s->s[a] != next) return false;
        next *= w->in[a];
        count *= w->in[a];
    }
    return true;
}

/* Images that follow each other as their pixels do are one large image. */
static void join_images(ct_gemm *g, int64_t *pixels, int64_t stride_a, int64_t stride_c, int64_t batch_a,
                        int64_t batch_c) {
    if (batch_a == *pixels * stride_a && batch_c == *pixels * stride_c) {
        *pixels *= g->batch[0];
        g->batch[0] = 1;
    }
}

static bool single_tap(const ct_window *w) {
    for (int a = 0; a < 3; a++)
        if (w->kernel[a] != 1 || w->before[a] != 0 || w->in[a] != w->out[a] || (w->stride[a] != 1 && w->in[a] != 1))
            return false;
    return true;
}

ct_conv_problem ct__conv_flat(const ct_conv_problem *problem) {
    ct_conv_problem p = *problem;
    ct_conv_geometry *g = &p.geometry;
    ct_window *w = &g->window;
    int64_t x, y;
    if (p.residual || !single_tap(w) || !pixel_stride(w, &g->x, &x) || !pixel_stride(w, &g->y, &y)) return p;
    int64_t pixels = ct__window_pixels_in(w), images = g->batch;
    if (pixels == 1) x = g->x.n, y = g->y.n;
    if (g->x.n == pixels * x && g->y.n == pixels * y) pixels *= images, images = 1;
    const int64_t sizes[3] = {1, images, pixels}, of_x[3] = {0, g->x.n, x}, of_y[3] = {0, g->y.n, y};
    for (int a = 0; a < 3; a++) {
        w->in[a] = w->out[a] = sizes[a];
        w->stride[a] = w->dilation[a] = 1, w->after[a] = 0;
        g->x.s[a] = of_x[a], g->y.s[a] = of_y[a];
    }
    g->batch = 1;
    return p;
}

bool ct__conv_pointwise(const ct_conv_problem *p, ct_gemm *g) {
    const ct_conv_geometry *c = &p->geometry;
    const ct_window *w = &c->window;
    *g = (ct_gemm){0};
    if (p->kind == CT_CONV_WEIGHT_GRAD || !single_tap(w)) return false;
    int64_t x_pixel, y_pixel, r_pixel = 0;
    if (!pixel_stride(w, &c->x, &x_pixel) || !pixel_stride(w, &c->y, &y_pixel)) return false;
    if (p->residual && !pixel_stride(w, &p->residual_strides, &r_pixel)) return false;
    if (p->bias && p->bias_stride != 1) return false;
    if (!ct__conv_gemm_type(p->dtype, &g->a_type)) return false;
    g->b_type = g->c_type = g->bias_type = g->a_type;
    const int64_t ins = c->in_channels / c->groups, outs = c->out_channels / c->groups;
    int64_t pixels = ct__window_pixels_in(w);
    g->batch_dims = 2;
    g->batch[0] = c->batch, g->batch[1] = c->groups;
    const int64_t w_batch = outs * c->w.o;
    const bool forward = p->kind == CT_CONV_FORWARD;
    const ct_image_strides *from = forward ? &c->x : &c->y, *to = forward ? &c->y : &c->x;
    const int64_t from_pixel = forward ? x_pixel : y_pixel, to_pixel = forward ? y_pixel : x_pixel;
    const int64_t k = forward ? ins : outs, channels = forward ? outs : ins;
    const int64_t w_k = forward ? c->w.i : c->w.o, w_channel = forward ? c->w.o : c->w.i;
    void *result = forward ? p->y : p->x;
    const void *source = forward ? p->x : p->y;
    if (!p->residual) join_images(g, &pixels, from_pixel, to_pixel, from->n, to->n);
    g->k = k;
    if (to->c == 1 && from->c == 1 && from_pixel == from->c * k && channels > 1) return false; /* so in implicit.c */
    if (to->c == 1 && channels > 1) { /* result (pixels, channels) */
        g->m = pixels, g->n = channels;
        g->a = source, g->a_row = from_pixel, g->a_col = from->c;
        g->b = p->w, g->b_row = w_k, g->b_col = w_channel;
        g->c_row = to_pixel, g->c_col = to->c;
        g->bias_col = p->bias;
        g->residual_row = r_pixel, g->residual_col = p->residual_strides.c;
        g->a_batch[0] = from->n, g->a_batch[1] = k * from->c;
        g->b_batch[1] = w_batch;
    } else { /* result (channels, pixels) */
        g->m = channels, g->n = pixels;
        g->a = p->w, g->a_row = w_channel, g->a_col = w_k;
        g->b = source, g->b_row = from->c, g->b_col = from_pixel;
        g->c_row = to->c, g->c_col = to_pixel;
        g->bias_row = p->bias;
        g->residual_row = p->residual_strides.c, g->residual_col = r_pixel;
        g->a_batch[1] = w_batch;
        g->b_batch[0] = from->n, g->b_batch[1] = k * from->c;
    }
    g->c = result;
    g->c_batch[0] = to->n, g->c_batch[1] = channels * to->c;
    g->residual = p->residual;
    g->residual_batch[0] = p->residual_strides.n, g->residual_batch[1] = channels * p->residual_strides.c;
    g->bias_batch[1] = channels;
    return true;
}
