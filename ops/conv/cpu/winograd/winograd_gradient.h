/* The transforms of the weight gradient: of tiles of x and of the cotangent, and of sums back to weights. Private to
 * winograd_weight.c. */
#ifndef COTANGENT_OPS_CONV_WINOGRAD_GRADIENT_H
#define COTANGENT_OPS_CONV_WINOGRAD_GRADIENT_H

#include "ops/conv/cpu/winograd/winograd.h"

enum { WEIGHT_BLOCK = 16 }; /* input channels transformed back at a time */

typedef struct gradient {
    winograd_frame frame;
    const ct__kernel *kernel;
    int64_t width, panels, columns; /* columns: output channels, whole vectors */
    int64_t section, group;         /* planes of results and tiles of each in a group, at most */
    int64_t chunk;                  /* tiles transformed by one worker at a time: rows of them, or parts of a row, */
    int64_t shares;                 /* and into how many the channels of such tiles are cut, where these are few */
    int64_t depth;                  /* tiles multiplied at a time: chunks of them */
    int64_t splits;                 /* parts of the tiles with a sum of their own: by sizes alone */
    int64_t split;                  /* the one at work, */
    int64_t first, end;             /* the tiles of the group at work, */
    int64_t d0, d1, low, high;      /* its planes of results, and of sources */
    float *v;                       /* (36, parities, sources, tiles, v_tile), from channel v_first on */
    int64_t v_first, v_tile, v_point;
    float *z; /* (36, panels, planes, tiles, width), from panel z_first on */
    int64_t z_first, z_panel, z_point;
    bool own;                     /* workers have blocks of channels, and v, z and sums for one each, */
    int64_t sum_rows, sum_panels; /* or for a part of it, where all tiles are summed at once */
    bool at_once;                 /* all tiles are one group, and sums are (workers, 36, row_block, width) */
    float *sums;                  /* (36, parities, taps of the depth, in_channels, panels * width) */
    int64_t sum_row, sum_point;
    bool accumulate;
    int64_t row_block, row_blocks, panel_block, panel_blocks; /* chunks of a product */
    float *bias_parts; /* (planes, chunks of a group, bias_row): sums of y, when they are wanted */
    int64_t bias_row;
    float *bands; /* of each worker: band, and v, z and sums where they are its own */
    int64_t band, worker;
    float *weight;
    float *partials; /* (splits, in_channels, taps, columns): gradients of splits, where these are several */
    int64_t in_blocks;
} gradient;

/* Where a split begins, whole chunks. */
static int64_t split_begin(const gradient *g, int64_t split) {
    const int64_t tiles = g->frame.tiles.count, chunks = ct__ceil_div(tiles, g->chunk);
    return ct__min(tiles, chunks * split / g->splits * g->chunk);
}

/* Z = A dy A^T of one vector of channels. */
WINOGRAD_EVALUATE(transform_cotangents_5, 5, false)
WINOGRAD_EVALUATE(transform_cotangents_4, 4, false)
WINOGRAD_EVALUATE(transform_cotangents_2, 2, false)

/* A chunk is a part of a plane of x or of the cotangent, and some of its channels. */
typedef struct part {
    bool x;
    int64_t plane, first, end;
    int64_t channel, channels;
    float *bias; /* where the sums of the cotangent's channels go, or NULL */
} part;
static float *bias_part(const gradient *g, int64_t chunk) {
    return g->bias_parts ? g->bias_parts + chunk * g->bias_row : NULL;
}
static part part_of(const gradient *g, int64_t chunk) {
    const winograd_pass *pass = g->frame.pass;
    const int64_t chunks = ct__ceil_div(g->end - g->first, g->chunk), sources = g->high - g->low;
    const int64_t share = chunk % g->shares;
    chunk /= g->shares;
    part p = {.x = chunk / chunks < sources, .first = g->first + chunk % chunks * g->chunk};
    p.plane = p.x ? g->low + chunk / chunks : g->d0 + chunk / chunks - sources;
    p.end = ct__min(p.first + g->chunk, g->end);
    const int64_t all = p.x ? pass->in_channels : pass->out_channels;
    const int64_t most = ct__ceil_div(ct__ceil_div(all, LANES), g->shares) * LANES;
    p.channel = ct__min(all, share * most);
    p.channels = ct__min(most, all - p.channel);
    if (!p.x) p.bias = bias_part(g, chunk - sources * chunks);
    return p;
}

/* A part of the cotangent. */
static void transform_plane(const gradient *g, const part *p, float *band, winograd_ahead *ahead) {
    const winograd_frame *f = &g->frame;
    const winograd_image *y = &f->y;
    const int64_t step = f->step, tiles = g->end - g->first, d = p->plane, first = p->first, end = p->end;
    float *const bias = p->bias;
    winograd_evaluate_fn *transform = step == 5   ? transform_cotangents_5
                                      : step == 4 ? transform_cotangents_4
                                                  : transform_cotangents_2;
    for (int64_t at = first; at < end;) {
        const winograd_run run = winograd_next_run(&f->tiles, at, end);
        const int64_t row = run.row * step, col = run.col * step;
        const float *image = winograd_plane(y, run.image, d);
        for (int64_t c = p->channel; c < p->channel + p->channels; c += LANES) {
            const int lanes = (int)ct__min(LANES, p->channel + p->channels - c);
            float *to = g->z + (c / g->width - g->z_first) * g->z_panel + c % g->width +
                        ((d - g->d0) * tiles + at - g->first) * g->width;
            vf32 sum = bias && at > first ? vf32_load(bias + c) : vf32_zero();
            /* As in the forward pass: channels last one by one and in place where that is possible, first a row of them. */
            const int64_t pace = y->c == 1 ? step : run.count * step;
            for (int64_t left = 0; left < run.count * step; left += pace) {
                const bool inside =
                    y->c == 1 && lanes == LANES && row + step <= y->height && col + left + step <= y->width;
                const float *src = inside ? image + c + row * y->h + (col + left) * y->w : band;
                const int64_t src_row = inside ? y->h : pace * LANES, src_col = inside ? y->w : LANES;
                if (!inside) winograd_gather(band, y, image + c * y->c, lanes, row, step, col + left, pace);
                for (int64_t i = 0; bias && i < step; i++)
                    for (int64_t j = 0; j < pace; j++) sum = vf32_add(sum, vf32_load(src + i * src_row + j * src_col));
                for (int64_t j = 0; j < pace; j += step, to += g->width) {
                    CT_ISA_FN(ct__winograd_ask)(ahead);
                    transform(to, g->z_point, src + j * src_col, src_row, src_col);
                }
            }
            if (bias) vf32_store(bias + c, sum);
        }
        at += run.count;
    }
}

/* Prefetches `next` meanwhile, NULL: nothing. */
static void transform_part(const gradient *g, const part *now, const part *next, float *band) {
    const int64_t tiles = g->end - g->first;
    winograd_ahead ahead = {0};
    winograd_image image = next && !next->x ? g->frame.y : g->frame.x;
    /* Channels last, lines have those of other blocks beside them. */
    if (next && next->channels > 0 && !(g->own && image.c == 1)) {
        ahead = winograd_ahead_of(&g->frame, next->x, next->plane, next->first, next->end);
        image.data += next->channel * image.c;
        ahead.image = &image;
        ahead.channels = next->channels;
    }
    CT_ISA_FN(ct__winograd_ahead_start)(&ahead, (now->end - now->first) * ct__ceil_div(now->channels, LANES));
    if (!now->x) {
        transform_plane(g, now, band, &ahead);
        return;
    }
    winograd_pass pass = *g->frame.pass; /* as if it had no other channels */
    winograd_frame frame = g->frame;
    pass.in_channels = now->channels;
    frame.pass = &pass;
    frame.x.data += now->channel * frame.x.c;
    const int64_t at = (now->plane - g->low) * tiles + now->first - g->first;
    const winograd_points points = {g->v + at * g->v_tile + now->channel - g->v_first, g->v_point,
                                    (g->high - g->low) * tiles * g->v_tile, g->v_tile};
    CT_ISA_FN(ct__winograd_transform_tiles)(&points, &frame, now->plane, now->first, now->end, band, &ahead);
}

static void transform_chunk(void *ctx, int64_t chunk, int worker) {
    const gradient *g = ctx;
    const int64_t chunks = ct__ceil_div(g->end - g->first, g->chunk), sources = g->high - g->low;
    const part now = part_of(g, chunk), next = part_of(g, chunk + 1);
    const bool last = chunk + 1 >= (sources + g->d1 - g->d0) * chunks * g->shares;
    transform_part(g, &now, last ? NULL : &next, g->bands + worker * g->worker);
}

/* ---- Back ---- */

/* The inverse of gather_weights: w[out + l][in + i][k] = taps[(i * all + k) * LANES + l]. */
static void scatter_weights(const winograd_pass *p, float *w, const float *taps, int lanes, int64_t count) {
    const int64_t size = p->kernel[2], all = p->kernel[1] * size;
    if (p->w_k[2] == 1 && p->w_k[1] == size && p->w_in == all) {
        winograd_transpose((char *)w, p->w_out * 4, (const char *)taps, LANES * 4, count * all, lanes, count * all);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < all; k++) {
            float *to = w + i * p->w_in + k / size * p->w_k[1] + k % size * p->w_k[2];
            const float *from = taps + (i * all + k) * LANES;
            if (p->w_out == 1) vf32_store_n(to, vf32_load(from), lanes);
            else
                for (int l = 0; l < lanes; l++) to[l * p->w_out] = from[l];
        }
}

/* dw = G^T m G of one vector of output channels. */
WINOGRAD_COLLECT(transform_sum_2, 2, true)
WINOGRAD_COLLECT(transform_sum_3, 3, true)
WINOGRAD_COLLECT(transform_sum_5, 5, true)

/* Input channels [in, in + count) by one vector of output channels, of one tap k of the depth. sums: of the first of
 * them and parity 0; parities are so many rows apart. To the weight, or where there are splits to what this one has of it. */
static void transform_block(const gradient *g, const float *sums, int64_t row, int64_t parity, int64_t k, int64_t in,
                            int64_t count, int64_t out) {
    const winograd_frame *f = &g->frame;
    const winograd_pass *p = f->pass;
    const int64_t size = p->kernel[2], all = p->kernel[1] * size;
    winograd_collect_fn *transform = f->taps == 2 ? transform_sum_2 : f->taps == 3 ? transform_sum_3 : transform_sum_5;
    float taps[WEIGHT_BLOCK * WINOGRAD_KERNEL * LANES];
    for (int64_t i = 0; i < count; i++)
        for (int64_t h = 0; h < p->stride[1]; h++)
            for (int64_t w = 0; w < p->stride[2]; w++)
                transform(taps + (i * all + h * size + w) * LANES, p->stride[1] * size * LANES, p->stride[2] * LANES,
                          sums + ((h * p->stride[2] + w) * parity + i) * row, g->sum_point, vf32_zero());
    if (g->splits == 1) {
        scatter_weights(p, g->weight + out * p->w_out + in * p->w_in + k * p->w_k[0], taps,
                        (int)ct__min(LANES, p->out_channels - out), count);
        return;
    }
    float *to = g->partials + (g->split * p->in_channels + in) * all * g->columns + out;
    for (int64_t i = 0; i < count * all; i++) vf32_store(to + i * g->columns, vf32_load(taps + i * LANES));
}

/* A chunk is one vector of output channels by a block of input channels: those of all splits, in order. */
static void add_splits(void *ctx, int64_t chunk, int worker) {
    const gradient *g = ctx;
    const winograd_pass *p = g->frame.pass;
    const int64_t in = chunk % g->in_blocks * WEIGHT_BLOCK, out = chunk / g->in_blocks * LANES;
    const int64_t count = ct__min(WEIGHT_BLOCK, p->in_channels - in), all = p->kernel[1] * p->kernel[2];
    const float *from = g->partials + in * all * g->columns + out;
    float taps[WEIGHT_BLOCK * WINOGRAD_KERNEL * LANES];
    (void)worker;
    for (int64_t i = 0; i < count * all; i++, from += g->columns) {
        vf32 sum = vf32_load(from);
        for (int64_t split = 1; split < g->splits; split++)
            sum = vf32_add(sum, vf32_load(from + split * p->in_channels * all * g->columns));
        vf32_store(taps + i * LANES, sum);
    }
    scatter_weights(p, g->weight + out * p->w_out + in * p->w_in, taps, (int)ct__min(LANES, p->out_channels - out),
                    count);
}

#endif
