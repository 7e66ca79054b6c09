/* What the pooling ops share: from their arguments to windows, and windows in ops. */
#ifndef COTANGENT_OPS_POOL_POOL_H
#define COTANGENT_OPS_POOL_POOL_H

#include "ops/geometry.h"

/* Lists as the attributes give them; strides of one 0 are the kernel's sizes, dilations may be NULL. */
typedef struct ct_pool_options {
    const ct_dims *kernel, *strides, *pads, *dilations;
    bool ceil_mode;
    ct_pad_mode pad_mode;
    bool channels_last;
} ct_pool_options;

/* The windows of x, an image with `rank` spatial axes (0: whatever x has); infer NULL: valid by then. */
bool ct__pool_resolve(const ct_infer *infer, ct_window *window, int rank, const ct_view *x,
                      const ct_pool_options *options);
/* The same for the internal ops, which carry the spatial sizes of x: image is x, or of the shape of its windows. */
bool ct__pool_infer(const ct_infer *infer, ct_window *window, const ct_view *image, bool of_windows,
                    const ct_dims *sizes, const ct_pool_options *options);
/* Windows from the lists that the internal ops carry, checked by then. */
ct_window ct__pool_window(const ct_dims *sizes, const ct_dims *kernel, const ct_dims *strides, const ct_dims *pads,
                          const ct_dims *dilations, bool ceil_mode);
/* out[output] gets the shape of image with other spatial sizes, (3 - rank to 2) of sizes. */
void ct__pool_shape(ct_infer *infer, int output, const ct_view *image, const ct_window *window, const int64_t *sizes,
                    bool channels_last, ct_dtype dtype);

/* The taps [*first, *last) of window o along axis a that lie inside the input. */
static inline void ct__pool_taps(const ct_window *w, int a, int64_t o, int64_t *first, int64_t *last) {
    const int64_t start = o * w->stride[a] - w->before[a], d = w->dilation[a];
    const int64_t end = (w->in[a] - start + d - 1) / d; /* start < in: no window begins past the input */
    *first = start < 0 ? (-start + d - 1) / d : 0;
    *last = end < w->kernel[a] ? end : w->kernel[a];
}

/* How many elements along axis a the mean of window o counts. */
static inline int64_t ct__pool_count(const ct_window *w, int a, int64_t o, bool exclude_pad) {
    const int64_t start = o * w->stride[a] - w->before[a], end = start + w->kernel[a],
                  limit = w->in[a] + (exclude_pad ? 0 : w->after[a]);
    return (end < limit ? end : limit) - (exclude_pad && start < 0 ? 0 : start);
}

/* Along axis a, in ops: where tap 0 of each window lies, i64 [out]. */
ct_tensor *ct__pool_starts(const ct_window *w, int a);
/* The first and the last tap of each window that lie inside the input, i64 [out]. */
ct_tensor *ct__pool_first_taps(const ct_window *w, int a);
ct_tensor *ct__pool_last_taps(const ct_window *w, int a);

/* The windows of x, whose tap k of window o along axis a is element tables[a][o * kernel + k]: [N, C, out..., taps], or
 * [N, out..., C, taps] channels last. */
ct_tensor *ct__pool_windows(ct_tensor *x, const ct_window *window, ct_tensor *const *tables, bool channels_last);
/* Tap numbers (i64, the shape of the windows) as places in the plane of x: along each axis start[o] + k * dilation. */
ct_tensor *ct__pool_places(ct_tensor *taps, const ct_window *window, ct_tensor *const *starts, bool channels_last);

#endif
