/* What the CPU kernels of deformable convolution (Dai and others, 2017; with a mask, Zhu, Hu, Lin and Dai, 2019) are
 * made of: drivers, compiled once (patches.c, gradient.c), and the loops over channels that they call, compiled per
 * ISA level (deform.c). x is sampled with its channels last: channels first, it is transposed into scratch. */
#ifndef COTANGENT_OPS_DEFORM_KERNELS_H
#define COTANGENT_OPS_DEFORM_KERNELS_H

#include <cotangent/backend.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/gemm/gemm.h"
#include "ops/deform/deform.h"

enum { POINTS = 16 }; /* pixels of the result whose places are found together */

/* What the places of taps follow from. */
typedef struct lookup {
    ct_deform d;
    ct_dtype dtype;
    const char *offset, *mask; /* mask NULL: ones */
    ct_image_strides offset_s, mask_s;
} lookup;

#define POINT_TYPES(D, T)                                                                                        \
    /* POINTS pixels of the result from one on; behind the last of an image, that one again */                   \
    typedef struct D##_pixels {                                                                                  \
        T y[POINTS], x[POINTS];               /* where their windows begin */                                    \
        int64_t offset[POINTS], mask[POINTS]; /* elements from the image's first one of a channel on */          \
        bool dense;                           /* the offsets and masks of a channel are one behind the other */  \
    } D##_pixels;                                                                                                \
    /* Places of one tap for POINTS pixels: the four pixels of x around each (number within the image,         \
     * negative outside), their weights times the mask, how far it is beyond the lower ones, and the mask.    \
     * Each field by itself, so that they are computed in vectors. */ \
    typedef struct D##_points {                                                                                  \
        int32_t at[4][POINTS];                                                                                   \
        T weight[4][POINTS], part[2][POINTS], mask[POINTS];                                                      \
    } D##_points;
POINT_TYPES(f32, float)
POINT_TYPES(f64, double)
#undef POINT_TYPES

/* Patches as an operand of the matrix engine. */
typedef struct ct__patches {
    lookup t;
    const struct ct__deform_isa *isa;
    const char *x;
    const void *zeros; /* a line of them, for what is read outside x */
    ct_image_strides x_s;
    int64_t image, width; /* the first image of a product; columns of a panel */
} ct__patches;

/* A slice of one image on its way to the gradients: channels n from `first` on, of one group of offsets. */
typedef struct ct__deform_slice {
    const struct ct__deform_gradient *j;
    const lookup *t;
    int64_t image, group, first, n;
    int64_t each; /* channels of a group of the convolution */
    const char *x;
    char *dx;
    int64_t x_step, dx_step; /* elements from pixel to pixel */
    void *zeros, *sink;      /* lines to read from and to drop into outside x */
    char *columns;           /* (pixels, taps * n): their gradient, then they themselves */
    int64_t row;             /* elements from pixel to pixel there */
    char *g_copy;            /* (channels of the groups, pixels) */
    const char *g;           /* the same, there or where it lies; strides in bytes */
    int64_t g_channel, g_pixel;
    const char *weight;  /* for each run of channels of one group (out, taps, run) */
    char *moves;         /* (taps, 3, pixels), where several slices have to be added; or NULL */
    void *points, *dots; /* (taps); (taps, POINTS, 4) */
} ct__deform_slice;

/* How many channels from number `at` of the slice on belong to one group of the convolution. */
static inline int64_t run_of(const ct__deform_slice *s, int64_t at) {
    const int64_t rest = s->n - at;
    if (s->first + s->n <= s->each) return rest;
    const int64_t in_group = s->each - (s->first + at) % s->each;
    return in_group < rest ? in_group : rest;
}

/* The loops of one ISA level, for f32 and f64. */
typedef struct ct__deform_isa {
    ct_gemm_pack_a pack[2]; /* of a ct__patches, rows of pixels */
    /* n pixels of the result from first on: from the gradient of their columns to dx, offset and mask, and to the columns */
    void (*sweep[2])(const ct__deform_slice *s, int64_t first, int64_t n);
    void (*add[2])(void *sum, const void *part, int64_t n);
    /* lowers *least and raises *most to the numbers among n elements, `step` apart */
    void (*range[2])(const void *from, int64_t step, int64_t n, double *least, double *most);
    void (*copy)(void *dst, const int64_t *dst_strides, const void *src, const int64_t *src_strides, int ndim,
                 const int64_t *dims, size_t element); /* ct__copy */
    void (*copy_run)(void *dst, int64_t dst_stride, const void *src, int64_t src_stride, int64_t n, size_t element);
} ct__deform_isa;

/* patches.c */
const char *ct__deform_forward_can(const ct_call *call);
size_t ct__deform_forward_scratch(const ct_call *call);
bool ct__deform_forward_run(const ct_call *call, const ct__deform_isa *isa);
const char *ct__deform_weight_can(const ct_call *call);
size_t ct__deform_weight_scratch(const ct_call *call);
bool ct__deform_weight_run(const ct_call *call, const ct__deform_isa *isa);

/* What both drivers share. */
lookup ct__deform_lookup(const ct_deform *d, const ct_view *offset, const ct_view *mask);
const char *ct__deform_can(const ct_view *x, const ct_view *matrix, const ct_deform *d);
/* Channels one behind the other at each pixel, and pixels one behind the other. */
bool ct__deform_has_lines(const ct_view *image, const ct_deform *d);
/* n input channels of one group, of its `out` output channels, between w (from the first of them on) and a dense
 * [out, taps, n]. */
void ct__deform_turn_weight(const ct__deform_isa *isa, const ct_deform *d, void *w, ct_weight_strides s, void *dense,
                            int64_t out, int64_t n, size_t size, bool to_dense);

/* gradient.c */
const char *ct__deform_gradient_can(const ct_call *call);
size_t ct__deform_gradient_scratch(const ct_call *call);
bool ct__deform_gradient_run(const ct_call *call, const ct__deform_isa *isa);
/* Gradients (0: offset y, 1: offset x, 2: mask) of a tap of the slice for n pixels from first on, each POINTS
 * elements apart. */
void ct__deform_put_moves(const ct__deform_slice *s, int64_t tap, int64_t first, int64_t n, const void *moves);

/* f64 is not worth a version per level: points.h */
#define f64_pixels_from ct__deform_f64_pixels_from
#define f64_find        ct__deform_f64_find
#define f64_moves       ct__deform_f64_moves
void f64_pixels_from(const lookup *t, int64_t first, f64_pixels *p);
void f64_find(const lookup *t, int64_t image, int64_t group, int64_t k, const f64_pixels *p, f64_points *s);
void f64_moves(const f64_points *s, const double (*dots)[4], double (*moves)[POINTS]);

static inline size_t ct__deform_rounded(size_t bytes) { return (bytes + 127) & ~(size_t)63; }

#endif
