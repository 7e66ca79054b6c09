/* Work along one axis: the lines of up to three views that differ only in the length of that axis, and operands that may
 * be missing. For scans, sorts and what is normalized along an axis. */
#ifndef COTANGENT_BACKENDS_WEBGPU_LINES_H
#define COTANGENT_BACKENDS_WEBGPU_LINES_H

#include "backends/webgpu/webgpu.h"

enum { CT_WGPU_LINES = 3 };

/* In Params, for ct_line_at: `dims: array<vec4<u32>, 2>, strides: array<array<vec4<u32>, 2>, 3>`. */
typedef struct ct_wgpu_lines {
    ct_wgpu_nest nest; /* of the lines, axis left out */
    int64_t n;         /* elements of a line, of the first view */
    int64_t step[CT_WGPU_LINES];
} ct_wgpu_lines;

static inline int ct_wgpu_axis(const ct_view *view, int64_t axis) {
    return view->ndim ? (int)(axis < 0 ? axis + view->ndim : axis) : 0;
}

/* The first view is there; those that are not are NULL. */
static inline ct_wgpu_lines ct_wgpu_lines_of(const ct_view *const *views, int n, int64_t axis) {
    const int at = ct_wgpu_axis(views[0], axis);
    ct_view without[CT_WGPU_LINES];
    const ct_view *pointers[CT_WGPU_LINES];
    ct_wgpu_lines lines;
    memset(lines.step, 0, sizeof lines.step);
    lines.n = views[0]->ndim ? views[0]->dims[at] : 1;
    for (int k = 0; k < n; k++) {
        const ct_view *v = views[k] ? views[k] : views[0];
        memset(&without[k], 0, sizeof without[k]);
        for (int d = 0; d < v->ndim; d++) {
            if (d == at) continue;
            without[k].dims[without[k].ndim] = views[0]->dims[d];
            without[k].strides[without[k].ndim++] = v->strides[d];
        }
        if (v->ndim) lines.step[k] = v->strides[at];
        pointers[k] = &without[k];
    }
    ct_wgpu_nest_of(&lines.nest, pointers, n);
    return lines;
}

/* An operand that is not given: nothing is loaded from it, and what is stored is lost. */
static inline void ct_wgpu_missing(ct_wgpu_launch *launch, const char *name, ct_dtype dtype, unsigned mode) {
    ct_wgpu_operand_of(launch, name, NULL, mode);
    launch->operands[launch->n - 1].dtype = (uint8_t)dtype;
}
static inline void ct_wgpu_in_or(ct_wgpu_launch *launch, const char *name, const ct_view *view, ct_dtype dtype) {
    if (view) ct_wgpu_in(launch, name, view);
    else ct_wgpu_missing(launch, name, dtype, 0);
}
static inline void ct_wgpu_out_or(ct_wgpu_launch *launch, const char *name, const ct_view *view, ct_dtype dtype) {
    if (view) ct_wgpu_out(launch, name, view);
    else ct_wgpu_missing(launch, name, dtype, CT_WGPU_WRITTEN);
}
static inline const ct_view *ct_wgpu_output(const ct_call *call, int i) {
    return i < call->n_out ? call->out[i] : NULL;
}

#endif
