/* Weights of a Winograd pass, transformed into the engine's panels: u[(p * panels + panel) * panel_floats + i * width + o % width] for point
 * p, input channel i and output channel o. Private to winograd.c. */
#ifndef COTANGENT_OPS_CONV_WINOGRAD_PANELS_H
#define COTANGENT_OPS_CONV_WINOGRAD_PANELS_H

#include "ops/conv/cpu/winograd/winograd.h"

enum { WEIGHT_BLOCK = 16 }; /* input channels transformed at a time */

typedef struct weights {
    const winograd_frame *frame;
    float *u;
    int64_t width, panels, point; /* point: floats from one of the 36 products to the next */
    int64_t first;                /* the panel that u begins with */
    int64_t deep;                 /* input channels of all parities and taps of the depth */
    int64_t vectors, in_blocks;   /* vectors of output channels of a parity, blocks of input channels */
} weights;

/* taps[(i * all + k) * LANES + l] = w[out + l][in + i][k] */
static void gather_weights(float *taps, const winograd_pass *p, const float *w, int lanes, int64_t count) {
    const int64_t size = p->kernel[2], all = p->kernel[1] * size;
    const bool dense = p->w_k[2] == 1 && p->w_k[1] == size;
    if (dense && p->w_in == all) {
        winograd_transpose((char *)taps, LANES * 4, (const char *)w, p->w_out * 4, lanes, count * all, LANES);
        return;
    }
    for (int64_t i = 0; dense && i < count; i++)
        winograd_transpose((char *)(taps + i * all * LANES), LANES * 4, (const char *)(w + i * p->w_in), p->w_out * 4,
                           lanes, all, LANES);
    if (dense) return;
    for (int64_t k = 0; k < all; k++) {
        const float *tap = w + k / size * p->w_k[1] + k % size * p->w_k[2];
        float *to = taps + k * LANES;
        if (p->w_out == 1)
            for (int64_t i = 0; i < count; i++) vf32_store(to + i * all * LANES, vf32_load_n(tap + i * p->w_in, lanes));
        else if (p->w_in == 1)
            winograd_transpose((char *)to, all * LANES * 4, (const char *)tap, p->w_out * 4, lanes, count, LANES);
        else
            for (int64_t i = 0; i < count; i++)
                for (int l = 0; l < LANES; l++)
                    to[i * all * LANES + l] = l < lanes ? tap[i * p->w_in + l * p->w_out] : 0;
    }
}

/* U = G g G^T of one vector of output channels. */
WINOGRAD_EVALUATE(transform_taps_2, 2, true)
WINOGRAD_EVALUATE(transform_taps_3, 3, true)
WINOGRAD_EVALUATE(transform_taps_5, 5, true)

/* A chunk: one vector of output channels by a block of input channels of one tap of the depth, in all parities. */
static void transform_weights(void *ctx, int64_t chunk, int worker) {
    const weights *s = ctx;
    const winograd_frame *f = s->frame;
    const winograd_pass *p = f->pass;
    const int64_t in = chunk % s->in_blocks * WEIGHT_BLOCK, k = chunk / s->in_blocks % p->kernel[0];
    const int64_t out = chunk / (s->in_blocks * p->kernel[0]) * LANES;
    const int64_t count = ct__min(WEIGHT_BLOCK, p->in_channels - in), size = p->kernel[2], all = p->kernel[1] * size;
    winograd_evaluate_fn *transform = f->taps == 2   ? transform_taps_2
                                      : f->taps == 3 ? transform_taps_3
                                                     : transform_taps_5;
    float taps[WEIGHT_BLOCK * WINOGRAD_KERNEL * LANES];
    (void)worker;
    gather_weights(taps, p, p->w + out * p->w_out + in * p->w_in + k * p->w_k[0],
                   (int)ct__min(LANES, p->out_channels - out), count);
    /* Parity (h, w) has taps h, h + stride ... of rows, w ... of columns, which an adjoint pass takes from the last on. */
    const int64_t sign = p->adjoint ? -LANES : LANES, row = p->stride[1] * size, col = p->stride[2];
    const float *first = taps + (p->adjoint ? (f->taps - 1) * (row + col) : 0) * LANES;
    for (int64_t i = 0; i < count; i++, first += all * LANES)
        for (int64_t h = 0; h < p->stride[1]; h++)
            for (int64_t w = 0; w < p->stride[2]; w++) {
                const int64_t parity = h * p->stride[2] + w; /* of y where it is adjoint, else of x */
                const int64_t column = (p->adjoint ? parity * s->vectors * LANES : 0) + out;
                const int64_t deep = ((p->adjoint ? 0 : parity) * p->kernel[0] + k) * p->in_channels + in + i;
                transform(s->u + ((column / s->width - s->first) * s->deep + deep) * s->width + column % s->width,
                          s->point, first + (h * size + w) * LANES, sign * row, sign * col);
            }
}

#endif
