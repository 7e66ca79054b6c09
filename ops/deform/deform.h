/* The geometry of a deformable convolution, resolved once and used by the forward pass and its gradients. */
#ifndef COTANGENT_OPS_DEFORM_DEFORM_H
#define COTANGENT_OPS_DEFORM_DEFORM_H

#include "ops/geometry.h"

typedef struct ct_deform {
    ct_window w; /* axes 1 and 2 */
    int64_t batch, channels, out_channels, groups, offset_groups, taps, pixels;
    bool channels_last;
} ct_deform;

/* kernel: the two sizes. infer NULL: everything is valid by then. */
bool ct__deform_resolve(const ct_infer *infer, ct_deform *deform, const ct_view *x, const int64_t *kernel,
                        const ct_window_options *options, int64_t out_channels, int64_t groups, int64_t offset_groups,
                        bool channels_last);
/* The two spatial sizes of a weight. */
static inline const int64_t *ct__deform_kernel(const ct_view *w, bool channels_last) {
    return w->dims + (channels_last ? 0 : 2);
}

#endif
