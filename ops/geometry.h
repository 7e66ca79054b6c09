/* The geometry of windows that slide over one to three spatial axes, resolved once from the attributes of an op and used
 * by convolution, its gradients, pooling, patches and deformable convolution. No kernels and no tensors here. */
#ifndef COTANGENT_OPS_GEOMETRY_H
#define COTANGENT_OPS_GEOMETRY_H

#include <cotangent/enums.h>
#include <cotangent/op.h>

#include "ops/infer.h"

/* Always three axes, the last innermost; an op of fewer has leading axes of size 1 (kernel 1, stride 1, no padding).
 * Tap k of window o looks at position o * stride + k * dilation - before; positions outside 0..in-1 are padding.
 * `after` may be negative inside the library: positions that no window reaches. */
typedef struct ct_window {
    int rank; /* the axes that the op has: indices 3 - rank to 2 */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3], after[3];
} ct_window;

/* What an op gives: NULL stands for the default (1, 1, 0). Lists are of 1 or rank values, pads also of 2 rank (before and
 * after for each axis in order). */
typedef struct ct_window_options {
    const ct_dims *strides, *dilations, *pads;
    ct_pad_mode pad_mode;
    bool resolved; /* pads come from here: they may be negative, and where no window fits there are 0 windows */
    bool round_up; /* a last window that reaches past the padding counts if it starts before it (pooling's ceil_mode) */
} ct_window_options;

/* Resolves a window; in and kernel have rank values. Everything that can be wrong with the options is an error with op,
 * sizes and what was expected. infer NULL: valid by then, as in kernels and derivatives. */
bool ct__window_resolve(const ct_infer *infer, ct_window *window, int rank, const int64_t *in, const int64_t *kernel,
                        const ct_window_options *options);

/* The same for the adjoint, a transposed convolution: out has the rank sizes that the windows come from, in[] becomes
 * (out-1) stride - before - after + dilation (kernel-1) + output_padding + 1, or out * stride under Same. after is
 * lessened by output_padding, so that the windows over in[] are exactly out[]. */
bool ct__window_resolve_transposed(const ct_infer *infer, ct_window *window, int rank, const int64_t *out,
                                   const int64_t *kernel, const ct_window_options *options,
                                   const ct_dims *output_padding);

/* The resolved values as lists of rank (pads: 2 rank) numbers, for attributes of other ops. */
ct_dims ct__window_in(const ct_window *window);
ct_dims ct__window_out(const ct_window *window);
ct_dims ct__window_kernel(const ct_window *window);
ct_dims ct__window_strides(const ct_window *window);
ct_dims ct__window_dilations(const ct_window *window);
ct_dims ct__window_pads(const ct_window *window);
/* The three at once, into attributes that are zero as yet. */
void ct__window_lists(const ct_window *window, ct_dims *strides, ct_dims *dilations, ct_dims *pads);

/* Counted as ct__mul does: options may ask for more than there can be. */
static inline int64_t ct__window_product(const int64_t *sizes) {
    return ct__mul(ct__mul(sizes[0], sizes[1]), sizes[2]);
}
static inline int64_t ct__window_pixels_in(const ct_window *w) { return ct__window_product(w->in); }
static inline int64_t ct__window_pixels_out(const ct_window *w) { return ct__window_product(w->out); }
static inline int64_t ct__window_taps(const ct_window *w) { return ct__window_product(w->kernel); }

/* The windows [*first, *last) of axis a whose tap k lies inside the input. */
void ct__window_inside(const ct_window *window, int a, int64_t k, int64_t *first, int64_t *last);

/* ---- Images: [N, C, spatial...] or, channels last, [N, spatial..., C] ---- */

/* Element strides, so that one kernel serves both layouts and any view. */
typedef struct ct_image_strides {
    int64_t n, c, s[3];
} ct_image_strides;

/* The weight is [out, in / groups, k...] or, channels last, [k..., in / groups, out]; o counts all output channels,
 * i those of one group. */
typedef struct ct_weight_strides {
    int64_t o, i, k[3];
} ct_weight_strides;

/* A convolution y = conv(x, w), of which the two gradients are other views: gx has the place of x, gy that of y. Group j
 * takes input channels j * in_channels / groups on, and gives output channels j * out_channels / groups on. */
typedef struct ct_conv_geometry {
    ct_window window;
    int64_t batch, groups, in_channels, out_channels;
    bool channels_last;
    ct_image_strides x, y;
    ct_weight_strides w;
} ct_conv_geometry;

typedef struct ct_conv_options {
    ct_window_options window;
    int64_t groups;
    bool channels_last;
} ct_conv_options;

/* The first spatial axis of an image, its channel axis, and its spatial rank. */
static inline int ct__image_spatial(bool channels_last) { return channels_last ? 1 : 2; }
static inline int ct__image_channel(int ndim, bool channels_last) { return channels_last ? ndim - 1 : 1; }

/* Resolves y = conv(x, w) from views of x and w (and fills the strides of x and w), with every error of the shapes,
 * dtypes, groups and options. rank 0: whatever x has, 1 to 3. bias may be NULL. */
bool ct__conv_resolve(const ct_infer *infer, ct_conv_geometry *geometry, int rank, const ct_view *x, const ct_view *w,
                      const ct_view *bias, const ct_conv_options *options);
/* The same from y and w, for x = conv_transpose(y, w); bias is one of x's channels. */
bool ct__conv_resolve_transposed(const ct_infer *infer, ct_conv_geometry *geometry, int rank, const ct_view *y,
                                 const ct_view *w, const ct_view *bias, const ct_conv_options *options,
                                 const ct_dims *output_padding);

/* Shapes of the three tensors of a geometry; returns the number of dimensions. */
int ct__conv_x_dims(const ct_conv_geometry *geometry, int64_t *dims);
int ct__conv_y_dims(const ct_conv_geometry *geometry, int64_t *dims);
int ct__conv_w_dims(const ct_conv_geometry *geometry, int64_t *dims);

static inline ct_image_strides ct__image_strides(const ct_view *image, bool channels_last) {
    const int rank = image->ndim - 2;
    const int64_t *all = image->strides, *s = all + ct__image_spatial(channels_last);
    return (ct_image_strides){all[0],
                              all[ct__image_channel(image->ndim, channels_last)],
                              {rank > 2 ? s[rank - 3] : 0, rank > 1 ? s[rank - 2] : 0, rank > 0 ? s[rank - 1] : 0}};
}
static inline ct_weight_strides ct__weight_strides(const ct_view *weight, bool channels_last) {
    const int rank = weight->ndim - 2;
    const int64_t *all = weight->strides, *k = all + (channels_last ? 0 : 2);
    return (ct_weight_strides){all[channels_last ? rank + 1 : 0],
                               all[channels_last ? rank : 1],
                               {rank > 2 ? k[rank - 3] : 0, rank > 1 ? k[rank - 2] : 0, rank > 0 ? k[rank - 1] : 0}};
}

#endif
