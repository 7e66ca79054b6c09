/* What others who normalize rows share with row_norm: how rows are divided among invocations, and the sums of their
 * columns. */
#ifndef COTANGENT_OPS_NORM_WEBGPU_ROW_NORM_H
#define COTANGENT_OPS_NORM_WEBGPU_ROW_NORM_H

#include "backends/webgpu/webgpu.h"

enum { CT_WGPU_ROW_THREADS = 256 };

/* Of rows that invocations keep, in quads. */
typedef struct ct_wgpu_row_division {
    uint32_t lanes; /* invocations of a row, a power of two */
    uint32_t kept;  /* quads that each keeps; 0: rows are too long, or no whole quads */
    int64_t groups,
        parts; /* where columns are summed: workgroups, and sums that they leave, one for each row of a workgroup */
} ct_wgpu_row_division;
ct_wgpu_row_division ct_wgpu_divide_rows(int64_t rows, int64_t n);

/* Enqueues the sum over parts, each n sums for dweight and n for dbias (either may be NULL), which lie in the call's
 * scratch from offset on. */
bool ct_wgpu_norm_total(const ct_call *call, size_t offset, int64_t parts, int64_t n, const ct_view *dweight,
                        const ct_view *dbias);

#endif
