/* Convolution on the register tiles of the matrix engine, without patches in memory: the implicit product of cuDNN
 * (Chetlur and others, Efficient Primitives for Deep Learning, 2014), with a padded copy of a block of the source in
 * L2 in place of shared memory. What both passes share: a block of the source is copied once, with its padding, into
 * a buffer of the worker's own, in the engine's element type; every tap is then an offset into that buffer, and the
 * sum over taps and channels is a list of runs for the tile. */
#ifndef COTANGENT_OPS_CONV_IMPLICIT_H
#define COTANGENT_OPS_CONV_IMPLICIT_H

#include "backends/cpu/gemm/plan.h"
#include "ops/conv/cpu/kernels.h"

enum {
    CT__BLOCK_BYTES = 200 << 10, /* of a source block: it shares L2 with a panel of the weight */
    CT__LEAST_CHUNKS = 32,       /* so that many threads have something to do */
    CT__FEW_CHANNELS = 4,        /* planes of a source that its blocks interleave */
};

/* What one tile goes over in the source: by k in the forward pass and the input gradient, by rows in the weight gradient. */
typedef enum ct__sweep {
    OVER_CHANNELS,     /* of one tap */
    OVER_ROW_CHANNELS, /* of all taps of a row: they lie side by side, or were laid so (patches) */
    OVER_TAPS,         /* of a row, in one channel */
} ct__sweep;

/* One spatial axis as the sums see it. Result positions r, r + by, r + 2 by ... are phase r; output q of a phase reads
 * source position q * step + offset for each of the phase's taps. A convolution has one phase (by 1, step the stride); its
 * input gradient has as many as the stride, with step 1: no product with a zero between. */
typedef struct ct__taps {
    int64_t positions, source; /* sizes of the result and of the source */
    int64_t by, phases, step;
    int64_t spacing;     /* from an offset of a phase to the next */
    int64_t low, span;   /* the least offset of all, and how many there are up to the largest */
    int64_t count;       /* taps of all phases */
    int64_t *first;      /* (phases + 1): where the taps of a phase begin */
    int64_t *k, *offset; /* (count): which tap of the weight, and where it looks; offsets of a phase ascend */
} ct__taps;

static inline int64_t ct__taps_outputs(const ct__taps *t, int64_t phase) {
    return (t->positions - phase + t->by - 1) / t->by;
}
static inline int64_t ct__taps_of(const ct__taps *t, int64_t phase) { return t->first[phase + 1] - t->first[phase]; }

/* A source, how it is cut into blocks, and how a block lies in the buffer: channels innermost, or planes of pixels, each
 * element a unit of `group` channels. Where channels are few, patches: for every output of a line what its window sees of a
 * row, [tap][channel] or, from planes, [channel][tap], filled up to whole groups once instead of for each tap. A block is one
 * position of axis 0, `lines` outputs of axis 1, `segment` of axis 2. */
typedef struct ct__source {
    const ct__kernel *kernel;
    const char *data;
    ct_gemm_type type;
    ct_image_strides strides;
    int64_t channels; /* of one group */
    ct__taps axis[3];
    int64_t lines, segment, line_blocks, segments;
    bool patches;
    bool pairs;        /* elements are halves with those a step of columns further on: pairs of outputs */
    bool along_pixels; /* the sums go over pixels: rows of a tile are channels */
    bool borrowed;     /* blocks need no copy: tiles read them where they lie */
    bool last;         /* channels innermost */
    int64_t padded, slices, rows, width; /* sizes of the buffer; padded in channels */
    int64_t row_depth;                   /* elements of k that a row of taps has */
    /* Bytes from one source column, row, slice or group of channels of the block to the next. */
    int64_t unit, row_bytes, slice_bytes, channel_bytes;
    int64_t bytes;
} ct__source;

/* A worker's buffer: which columns of it are source, the others being zero; and where the block is, there or borrowed. */
typedef struct ct__local {
    int64_t begin, end;
    char *buffer;
    const char *data;
} ct__local;

/* The tables of an axis need this many numbers, and those of all three so many bytes; they are laid out from *at on. */
int64_t ct__taps_size(const ct_window *w, int a, bool transposed);
int64_t ct__tables_bytes(const ct_conv_problem *p);
void ct__taps_make(ct__taps *taps, const ct_window *w, int a, bool transposed, int64_t **at);

/* Which way the buffer lies: as the source does; for pairs of channels, whichever way they can be paired; channels last where the
 * rows of tiles are channels and these are few. */
bool ct__source_channels_last(const ct__source *s);
/* Whether patches are better. */
bool ct__source_patches(const ct__source *s);
/* Chooses lines and segment: the buffer within `bytes`, at least `blocks` blocks in all images if there is that much, some
 * twice as many if there is plenty, no more than `pixels` outputs in a block (0: any number). */
void ct__source_cut(ct__source *s, int64_t bytes, int64_t images, int64_t blocks, int64_t pixels);
/* Copies the block at outputs (h, w) of image n, group g, position d into the buffer. */
void ct__source_load(const ct__source *s, ct__local *local, int64_t n, int64_t g, int64_t d, int64_t h, int64_t w);

/* A block that will be wanted soon, prefetched a few lines at a time: spans of contiguous bytes. */
typedef struct ct__ahead {
    const char *data;
    int64_t channels, slices, channel_bytes, slice_bytes, span_bytes; /* spans: slices of channels */
    int64_t channel, slice, at;
    int64_t lines, spans, times; /* of a tile that prefetches so many lines: whole spans, and each line so many times */
} ct__ahead;
void ct__source_ahead(const ct__source *s, ct__ahead *ahead, int64_t n, int64_t g, int64_t d, int64_t h, int64_t w);
/* Nothing to prefetch where the rows of a span lie in one place, or so far apart that it has more than `most` bytes. */
void ct__ahead_limit(ct__ahead *ahead, int64_t most);
void ct__ahead_lines(ct__ahead *ahead, int64_t lines);
/* At least as many, evenly over a tile's sum, if it can: many at once would keep its own loads waiting. */
void ct__ahead_tile(ct__ahead *ahead, int64_t lines, const ct__kernel *kernel, ct__tile *tile);
static inline int64_t ct__ahead_total(const ct__ahead *a) {
    return a->channels * a->slices * ct__ceil_div(a->span_bytes, 64);
}

bool ct__conv_gemm_type(ct_dtype dtype, ct_gemm_type *type);

/* Forward and input gradient (implicit.c), weight gradient (implicit_weight.c). */
size_t ct__conv_implicit_scratch(const ct_conv_problem *problem);
bool ct__conv_implicit(const ct_conv_problem *problem, ct_gemm_activate activate, void *scratch);
size_t ct__conv_weight_scratch(const ct_conv_problem *problem);
bool ct__conv_weight(const ct_conv_problem *problem, void *scratch);

/* A single tap over every pixel (pointwise.c). Flat: the same with all pixels of an image on one line, and images as
 * lines, where they are evenly spaced. Then: whether it is one, and the product that it is; activate is the
 * caller's. */
ct_conv_problem ct__conv_flat(const ct_conv_problem *problem);
bool ct__conv_pointwise(const ct_conv_problem *problem, ct_gemm *product);

#endif
