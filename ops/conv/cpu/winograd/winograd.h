/* Winograd's convolution (Lavin and Gray, 2016), what its files share beside the transforms (winograd_lines.h):
 * tiles of images gathered with their padding, and the products of the transformed domain on the engine's register
 * tile. Private to ops/conv; included once per ISA.
 *
 * A kernel of taps x stride along an axis is `stride` kernels of `taps`, each on its parity of pixels: 4x4 with
 * stride 2 is four of 2x2. The parities of x are further input channels, or, in the input gradient, those of y
 * further output channels of the same tiles. So are the taps of a third axis. */
#ifndef COTANGENT_OPS_CONV_WINOGRAD_H
#define COTANGENT_OPS_CONV_WINOGRAD_H

#include "backends/cpu/gemm/plan.h"
#include "backends/cpu/kernel.h"
#include "ops/conv/cpu/winograd/winograd_lines.h"
#include "ops/conv/cpu/winograd/winograd_run.h"

/* ---- What a pass goes over ---- */

/* An image as tiles see it, of a dilation one phase. Where an axis has a stride, the image with more pixels is spread: its
 * pixels r, r + spread, r + 2 spread ... of a tile are parity r, a tile of its own, and the parities are further channels. */
typedef struct winograd_image {
    float *data; /* of image 0, channel 0, plane 0, row 0, column 0 */
    int64_t n, c, d, h, w;
    int64_t fold; /* images that are planes of one in memory */
    int64_t height, width;
    int64_t before[2]; /* tile 0 begins at pixel -before */
    int64_t spread[2];
    int64_t step[2]; /* pixels from one tile to the next */
} winograd_image;

static inline float *winograd_plane(const winograd_image *x, int64_t image, int64_t plane) {
    return x->data + image / x->fold * x->n + (image % x->fold + plane) * x->d;
}
static inline int64_t winograd_parities(const winograd_image *x) { return x->spread[0] * x->spread[1]; }

/* Tiles of a plane are counted over images, rows and columns. */
typedef struct winograd_tiles {
    int64_t rows, cols, count;
} winograd_tiles;

/* A run of neighbors in one row of tiles. */
typedef struct winograd_run {
    int64_t image, row, col, count;
} winograd_run;

static inline winograd_run winograd_next_run(const winograd_tiles *tiles, int64_t first, int64_t end) {
    winograd_run r = {first / (tiles->rows * tiles->cols), first / tiles->cols % tiles->rows, first % tiles->cols, 0};
    r.count = ct__min(tiles->cols - r.col, end - first);
    return r;
}

/* One phase of a pass. Taps along depth are further input channels: they look at other planes of x, transformed once for
 * all results that see them. */
typedef struct winograd_frame {
    const winograd_pass *pass;
    int taps; /* of a parity, along height and width: 2, 3 or 5 */
    int step; /* results of a tile along an axis: 7 - taps */
    winograd_image x, y, residual;
    winograd_tiles tiles;    /* of one plane of results and of every image */
    int64_t planes, sources; /* of results, of x */
    int64_t most_sources;    /* of x in any phase */
    int64_t before;          /* of the depth */
} winograd_frame;

/* In winograd_tiles.c. Phases: their number along an axis; the first is the largest. */
int64_t CT_ISA_FN(ct__winograd_phases)(const winograd_pass *pass, int axis);
void CT_ISA_FN(ct__winograd_take_phase)(winograd_frame *frame, const winograd_pass *pass, const int64_t phase[3]);

/* The plane of x that tap k of the depth sees from result plane d, or -1; and planes [*low, *end) that results [d0, d1) see. */
static inline int64_t winograd_source(const winograd_frame *f, int64_t d, int64_t k) {
    const int64_t stride = f->pass->stride[0];
    int64_t at = f->pass->adjoint ? d + f->pass->kernel[0] - 1 - f->before - k : d * stride + k - f->before;
    if (f->pass->adjoint && stride > 1) at = at % stride ? -1 : at / stride;
    return at < f->sources ? at : -1; /* negative: outside as well */
}
static inline void winograd_sources(const winograd_frame *f, int64_t d0, int64_t d1, int64_t *low, int64_t *end) {
    const int64_t stride = f->pass->stride[0], adjoint = f->pass->adjoint;
    *low = ct__max64(0, (adjoint ? d0 : d0 * stride) - f->before);
    *end = ct__max64(0, (adjoint ? d1 - 1 : (d1 - 1) * stride) - f->before + f->pass->kernel[0]);
    if (adjoint) *low = ct__ceil_div(*low, stride), *end = ct__ceil_div(*end, stride);
    *end = ct__min(*end, f->sources);
}
/* As many as there are at most for `planes` results. */
static inline int64_t winograd_slots(const winograd_frame *f, int64_t planes) {
    const int64_t stride = f->pass->stride[0], more = f->pass->kernel[0] - 1;
    return ct__min(f->most_sources,
                   f->pass->adjoint ? (planes - 1 + more) / stride + 1 : (planes - 1) * stride + more + 1);
}

/* In winograd_tiles.c, as what follows. The engine's transpose of floats; row distances in bytes. */
void CT_ISA_FN(ct__winograd_transpose)(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows,
                                       int64_t cols, int64_t width);
#define winograd_transpose CT_ISA_FN(ct__winograd_transpose)

/* dst[(i * cols + j) * LANES + l] = plane[channel + l][row + i][col + j] inside the image, zero past `lanes`; plane points at the first
 * channel. What lies outside the image is as it was: clear makes it zero, once for all channels. */
void CT_ISA_FN(ct__winograd_clear)(float *dst, const winograd_image *x, int64_t row, int64_t rows, int64_t col,
                                   int64_t cols);
#define winograd_clear CT_ISA_FN(ct__winograd_clear)
void CT_ISA_FN(ct__winograd_gather)(float *dst, const winograd_image *x, const float *plane, int lanes, int64_t row,
                                    int64_t rows, int64_t col, int64_t cols);
#define winograd_gather CT_ISA_FN(ct__winograd_gather)

/* Lines of an image, prefetched a few at a time while the processor has other work: of the rows that tiles
 * [at, end) of a plane write, or that they are the first to read. */
typedef struct winograd_ahead {
    const winograd_image *image;
    const winograd_tiles *tiles;
    int64_t plane, at, end;
    int64_t channels, skip; /* skip: rows of a tile that others have read */
    bool write;
    int64_t rate;       /* lines per call */
    const char *run_at; /* contiguous bytes */
    int64_t offset, bytes, rows, rows_left, channels_left;
} winograd_ahead;

static inline winograd_ahead winograd_ahead_of(const winograd_frame *f, bool x, int64_t plane, int64_t at,
                                               int64_t end) {
    winograd_ahead a = {.image = x ? &f->x : &f->y, .tiles = &f->tiles, .plane = plane, .at = at, .end = end};
    a.channels = x ? f->pass->in_channels : f->pass->out_channels;
    a.skip = x ? WINOGRAD_IN * f->x.spread[0] - f->x.step[0] : 0;
    return a;
}
/* Sets the rate, so that so many calls prefetch everything. */
void CT_ISA_FN(ct__winograd_ahead_start)(winograd_ahead *ahead, int64_t calls);
void CT_ISA_FN(ct__winograd_ask)(winograd_ahead *ahead);

/* Where transformed tiles go: point p of tile t, parity k and channel c is at p * point + k * parity + t * tile + c. */
typedef struct winograd_points {
    float *data;
    int64_t point, parity, tile;
} winograd_points;

/* Pixels along an axis that `tiles` neighbors look at. */
static inline int64_t winograd_span(const winograd_image *x, int axis, int64_t tiles) {
    return (tiles - 1) * x->step[axis] + WINOGRAD_IN * x->spread[axis];
}

/* The input transform of tiles [first, end) of a plane; band: scratch for the vectors of one row of them; ahead:
 * prefetched with every vector of a tile, or NULL. */
void CT_ISA_FN(ct__winograd_transform_tiles)(const winograd_points *v, const winograd_frame *frame, int64_t plane,
                                             int64_t first, int64_t end, float *band, winograd_ahead *ahead);

/* An odd number of cache lines, so that neither points nor rows fall on each other's places in the cache. */
static inline int64_t winograd_odd(int64_t floats) { return (ct__ceil_div(floats, 16) | 1) * 16; }

/* ---- Products ---- */

/* C (+)= A B for `rows` rows and `vecs` vectors of one panel of B, over runs of k; A by byte strides, C rows c_row bytes
 * apart. */
typedef struct winograd_product {
    const ct__kernel *kernel;
    int64_t rows, tile_rows, k;
    const float *a;
    int64_t a_row, a_step;
    const float *b;
    int64_t b_step;
    const ct__run *runs;
    int64_t n_runs;
    float *c;
    int64_t c_row;
    int vecs;
    bool accumulate;
} winograd_product;

static inline void winograd_multiply(const winograd_product *p) {
    const ct__kernel *kernel = p->kernel;
    ct__tile t = {.a_row = p->a_row, .a_step = p->a_step, .b = p->b, .b_step = p->b_step, .c_row = p->c_row};
    t.k = p->k;
    t.runs = p->runs, t.n_runs = p->n_runs;
    t.cols = kernel->lanes * p->vecs;
    t.accumulate = p->accumulate;
    for (int64_t i = 0; i < p->rows; i += p->tile_rows) {
        const int64_t rows = ct__min(p->tile_rows, p->rows - i);
        t.a = (const char *)p->a + i * p->a_row;
        t.c = (char *)p->c + i * p->c_row;
        kernel->tiles[(p->vecs - 1) * 2][rows - 1](&t);
    }
}

/* Vectors of a panel that hold columns. */
static inline int winograd_panel_vecs(const ct__kernel *kernel, int64_t columns, int64_t panel) {
    return (int)ct__min(kernel->vecs, ct__ceil_div(columns, kernel->lanes) - panel * kernel->vecs);
}

/* The next smaller size of parts of `all`, which are one more or so; 0: there is none. */
static inline int64_t winograd_next_size(int64_t all, int64_t size) {
    return size > 1 ? ct__ceil_div(all, ct__ceil_div(all, size - 1)) : 0;
}

/* Rows of a register tile, evened out over `rows`. */
static inline int64_t winograd_tile_rows(const ct__kernel *kernel, int64_t rows) {
    return ct__ceil_div(rows, ct__ceil_div(rows, kernel->rows));
}

#endif
