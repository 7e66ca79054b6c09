/* Which elements of a line, with which weights, make element o of the resampled line. Shared by the lowering, which
 * writes them into a matrix, and by the kernel, which writes them into a sparse one. */
#ifndef COTANGENT_OPS_RESAMPLE_TAPS_H
#define COTANGENT_OPS_RESAMPLE_TAPS_H

#include <cotangent/enums.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ct_taps {
    int mode; /* of enum resize_mode */
    int64_t in, out;
    bool align_corners;
    double step; /* elements of the input an element of the result, where corners are not aligned */
} ct_taps;

static inline ct_taps ct__taps(int mode, int64_t in, int64_t out, bool align_corners, double scale) {
    return (ct_taps){mode, in, out, align_corners, scale > 0 ? 1 / scale : (double)in / (double)out};
}

/* The most taps that one element has. */
static inline int64_t ct__taps_most(const ct_taps *t) {
    switch (t->mode) {
    case CT_NEAREST:
    case CT_NEAREST_EXACT: return 1;
    case CT_BICUBIC: return 4;
    case CT_AREA: return t->in / t->out + 2;
    default: return 2;
    }
}

static inline int64_t ct__tap_within(double at, int64_t n) {
    return at >= (double)(n - 1) ? n - 1 : at > 0 ? (int64_t)at : 0; /* also of NaN */
}

/* The cubic convolution kernel of Keys with a = -3/4, at the distances 1 + f, f, 1 - f, 2 - f. */
static inline void ct__cubic_weights(double f, double *w) {
    const double a = -0.75, near[2] = {f, 1 - f}, far[2] = {1 + f, 2 - f};
    for (int i = 0; i < 2; i++) {
        w[1 + i] = ((a + 2) * near[i] - (a + 3)) * near[i] * near[i] + 1;
        w[3 * i] = ((a * far[i] - 5 * a) * far[i] + 8 * a) * far[i] - 4 * a;
    }
}

/* Elements and weights of element o; returns how many. Those of cubic may repeat at the borders. */
static inline int ct__taps_at(const ct_taps *t, int64_t o, int64_t *element, double *weight) {
    weight[0] = 1;
    if (t->mode == CT_NEAREST) { /* in whole numbers where the step is a ratio of lengths */
        bool ratio = t->step == (double)t->in / (double)t->out;
        element[0] = ratio ? o * t->in / t->out : ct__tap_within(__builtin_floor((double)o * t->step), t->in);
        return 1;
    }
    if (t->mode == CT_NEAREST_EXACT) {
        element[0] = ct__tap_within(__builtin_floor(((double)o + 0.5) * t->step), t->in);
        return 1;
    }
    if (t->mode == CT_AREA) {
        int64_t first = o * t->in / t->out, end = ((o + 1) * t->in + t->out - 1) / t->out;
        for (int64_t i = first; i < end; i++) {
            element[i - first] = i;
            weight[i - first] = 1 / (double)(end - first);
        }
        return (int)(end - first);
    }
    double at = t->align_corners ? (t->out > 1 ? (double)o * (double)(t->in - 1) / (double)(t->out - 1) : 0)
                                 : ((double)o + 0.5) * t->step - 0.5;
    if (t->mode == CT_BICUBIC) {
        double low = __builtin_floor(at);
        ct__cubic_weights(at - low, weight);
        for (int k = 0; k < 4; k++) element[k] = ct__tap_within(low - 1 + k, t->in);
        return 4;
    }
    if (at < 0) at = 0;
    element[0] = ct__tap_within(at, t->in);
    element[1] = element[0] < t->in - 1 ? element[0] + 1 : element[0];
    weight[1] = element[0] < t->in - 1 ? at - (double)element[0] : 0;
    weight[0] = 1 - weight[1];
    return 2;
}

#endif
