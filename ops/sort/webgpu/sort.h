/* The sort as other kernels use it. */
#ifndef COTANGENT_OPS_SORT_WEBGPU_SORT_H
#define COTANGENT_OPS_SORT_WEBGPU_SORT_H

#include "backends/webgpu/webgpu.h"

/* What it needs of the call's scratch, from an offset on that is a multiple of 256. */
size_t ct_wgpu_sort_scratch(const ct_view *x, int64_t axis);
/* x sorted along axis; values and indices (i64; both may be NULL) get as many of each line as they have room for. */
bool ct_wgpu_sort(const ct_call *call, const ct_view *x, const ct_view *values, const ct_view *indices, int64_t axis,
                  bool descending, size_t scratch_offset);

#endif
