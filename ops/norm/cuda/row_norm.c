/* row_norm and its gradients: which device code takes the rows, and how gradients of weight and bias are divided. */
#include "ops/norm/cuda/row_norm.h"

#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/row.h"

#include "gen/norm.attrs.h"

CT_CUDA_OVERLAPPING_UNIT(norm_row_norm);

static ct_cuda_function rows_of[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("row_norm_rows"),
                        ragged_of[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("row_norm_ragged"),
                        grad_rows[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("row_norm_grad_rows"),
                        grad_ragged[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("row_norm_grad_ragged"),
                        grad_all[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("row_norm_grad_all"),
                        grad_warps[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("row_norm_grad_warps"),
                        grad_parts[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("row_norm_grad_parts"),
                        grad_total[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("row_norm_grad_total");

/* The first `data` inputs are rows; what follows is in the dtype that is computed in. */
static const char *can(const ct_call *call, int data) {
    const ct_dtype dtype = call->in[0]->dtype, wide = dtype == CT_F64 ? CT_F64 : CT_F32;
    if (dtype > CT_BF16) return "it takes floats";
    for (int i = 0; i < call->n_in; i++) {
        if (!call->in[i]) continue;
        if (call->in[i]->dtype != (i < data ? dtype : wide)) return "mixed dtypes";
        if (!ct_cuda_is_dense(call->in[i])) return "an input is not dense";
    }
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && !ct_cuda_is_dense(call->out[i])) return "an output is not dense";
    return call->in[0]->dims[1] < INT32_MAX / 2 ? NULL : "the rows are too long";
}
static const char *can_forward(const ct_call *call) { return can(call, 1); }
static const char *can_grad(const ct_call *call) { return can(call, 2); }

static char *output_of(const ct_call *call, int i) { return i < call->n_out ? ct_cuda_address_if(call->out[i]) : NULL; }

/* Rows in whole packs of 16 bytes that begin at multiples of it, and not too many for registers. */
static bool are_whole(const ct_cuda_row_norm *a, size_t size) {
    return a->n % (int64_t)(16 / size) == 0 && a->n * (int64_t)size <= 16 * CT_ROW_PACKS * CT_ROW_LONGEST &&
           ct_cuda_is_aligned(a->x) && ct_cuda_is_aligned(a->g) && ct_cuda_is_aligned(a->y) &&
           ct_cuda_is_aligned(a->dx) && ct_cuda_is_aligned(a->weight) && ct_cuda_is_aligned(a->bias);
}

static int lanes_of(const ct_cuda_row_norm *a, size_t size, bool whole) {
    return whole ? ct_cuda_row_lanes(a->n, (int64_t)size, CT_ROW_PACKS)
                 : ct_cuda_stream_lanes(a->n, (int64_t)size, CT_ROW_LONGEST);
}

/* Blocks of groups of a->lanes threads, a row for each. */
static ct_cuda_shape shape_of(const ct_cuda_row_norm *a) {
    const int block = a->lanes > 32 ? a->lanes : CT_ROW_THREADS;
    return (ct_cuda_shape){.grid = ct_cuda_grid(ct_cuda_ceil_div(a->rows, block / a->lanes)), .block = (unsigned)block};
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const row_norm_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0];
    const size_t size = ct_cuda_dtype_size(x->dtype);
    ct_cuda_row_norm a;
    memset(&a, 0, sizeof a);
    a.x = ct_cuda_address(x), a.y = ct_cuda_address(call->out[0]);
    a.weight = ct_cuda_address_if(call->in[1]), a.bias = ct_cuda_address_if(call->in[2]);
    a.rows = x->dims[0], a.n = x->dims[1];
    a.eps = attrs->eps, a.rms = attrs->rms;
    if (a.rows == 0 || a.n == 0) return true;
    const bool whole = are_whole(&a, size);
    a.lanes = lanes_of(&a, size, whole);
    return ct_cuda_launch(call, whole ? &rows_of[x->dtype] : &ragged_of[x->dtype], shape_of(&a), &a);
}

/* ---- Gradients ---- */

static size_t number_size(ct_dtype dtype) { return dtype == CT_F64 ? 8 : 4; }
static size_t moments_bytes(const ct_view *x) {
    return ((size_t)x->dims[0] * 3 * number_size(x->dtype) + 255) / 256 * 256;
}

static ct_norm_division division_of(const ct_view *x) {
    return ct_norm_division_of(x->dims[1], (int64_t)ct_cuda_dtype_size(x->dtype));
}

/* Enough for either way: addresses, of which one depends, are not known yet. */
static size_t grad_scratch(const ct_call *call) {
    const ct_view *x = call->in[1];
    const bool sums = (call->n_out > 1 && call->out[1]) || (call->n_out > 2 && call->out[2]);
    return sums ? moments_bytes(x) + (size_t)(division_of(x).parts * 2 * x->dims[1]) * number_size(x->dtype) : 0;
}

/* The sums over the parts. */
static bool run_total(const ct_call *call, ct_cuda_row_norm *a, ct_dtype dtype) {
    const ct_cuda_shape shape = {.grid = (unsigned)ct_cuda_ceil_div(a->n, CT_NORM_SIDE),
                                 .block = a->parts > 64 ? CT_NORM_MOST : CT_NORM_THREADS};
    return ct_cuda_launch(call, &grad_total[dtype], shape, a);
}

/* All gradients in one kernel, which reads x and g once. */
static bool run_all(const ct_call *call, ct_cuda_row_norm *a, ct_dtype dtype, const ct_norm_division *d) {
    const int groups = d->block / d->lanes;
    const int64_t blocks = ct_cuda_ceil_div(a->rows, groups);
    a->lanes = d->lanes;
    a->parts = blocks < d->parts ? blocks : d->parts;
    const ct_cuda_shape shape = {.grid = (unsigned)a->parts,
                                 .block = (unsigned)d->block,
                                 .shared = groups > 1 ? (unsigned)(2 * (size_t)a->n * number_size(dtype)) : 0};
    return ct_cuda_launch(call, d->warps ? &grad_warps[dtype] : &grad_all[dtype], shape, a) &&
           run_total(call, a, dtype);
}

/* Rows first, then weight and bias by columns, from the moments of the rows. */
static bool run_apart(const ct_call *call, ct_cuda_row_norm *a, ct_dtype dtype, bool whole) {
    if (!ct_cuda_launch(call, whole ? &grad_rows[dtype] : &grad_ragged[dtype], shape_of(a), a)) return false;
    if (!a->moments) return true;
    const int64_t side = ct_cuda_ceil_div(a->n, CT_NORM_SIDE), wanted = ct_cuda_ceil_div(4 * CT_NORM_PARTS, side),
                  most = ct_cuda_ceil_div(a->rows, 64);
    a->parts = wanted < most ? wanted : most;
    if (a->parts > CT_NORM_PARTS) a->parts = CT_NORM_PARTS;
    a->chunk = ct_cuda_ceil_div(a->rows, a->parts);
    a->parts = ct_cuda_ceil_div(a->rows, a->chunk);
    const ct_cuda_shape shape = {.grid = (unsigned)side, .grid_y = (unsigned)a->parts, .block = CT_NORM_THREADS};
    return ct_cuda_launch(call, &grad_parts[dtype], shape, a) && run_total(call, a, dtype);
}

static bool run_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const row_norm_grad_attrs *attrs = call->attrs;
    const ct_view *x = call->in[1];
    const size_t size = ct_cuda_dtype_size(x->dtype);
    ct_cuda_row_norm a;
    memset(&a, 0, sizeof a);
    a.g = ct_cuda_address(call->in[0]), a.x = ct_cuda_address(x), a.weight = ct_cuda_address_if(call->in[2]);
    a.dx = output_of(call, 0), a.dweight = output_of(call, 1), a.dbias = output_of(call, 2);
    a.rows = x->dims[0], a.n = x->dims[1];
    a.eps = attrs->eps, a.rms = attrs->rms;
    if (a.n == 0) return true;
    const bool sums = a.dweight || a.dbias, whole = are_whole(&a, size);
    if (sums) {
        a.moments = ct_cuda_scratch(call);
        a.sums = a.moments + moments_bytes(x);
    }
    if (a.rows == 0) return !sums || run_total(call, &a, x->dtype);
    const ct_norm_division d = division_of(x);
    if (sums && whole && ct_norm_keeps(&d, a.n, (int64_t)size)) return run_all(call, &a, x->dtype, &d);
    a.lanes = lanes_of(&a, size, whole);
    return run_apart(call, &a, x->dtype, whole);
}

CT_CUDA_KERNELS(norm_row_norm) = {
    CT_CANDIDATES(row_norm, {"row_norm", can_forward, NULL, run}),
    CT_CANDIDATES(row_norm_grad, {"row_norm_grad", can_grad, grad_scratch, run_grad}),
    {0},
};
