/* softmax, log_softmax and their gradients: how lines lie, and which device code takes them. */
#include "ops/softmax/cuda/softmax.h"

#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/row.h"

#include "gen/softmax.attrs.h"

enum { ENOUGH = 264 /* blocks */ };

CT_CUDA_OVERLAPPING_UNIT(softmax_softmax);

typedef struct family {
    ct_cuda_function rows[CT_CUDA_FLOATS], ragged[CT_CUDA_FLOATS], columns[CT_CUDA_FLOATS];
} family;

#define FAMILY(name)                                                                                     \
    static family name##_family = {CT_CUDA_OF_FLOATS(#name "_rows"), CT_CUDA_OF_FLOATS(#name "_ragged"), \
                                   CT_CUDA_OF_FLOATS(#name "_columns")}
FAMILY(softmax);
FAMILY(log_softmax);
FAMILY(softmax_grad);
FAMILY(log_softmax_grad);
FAMILY(log_softmax_half_grad);

/* Whether the elements of all lines are neighbors; *whole: in packs of 16 bytes that begin at multiples of it, and not
 * too many for registers. */
static bool are_rows(const ct_cuda_softmax *a, int operands, int size, bool *whole) {
    const char *const starts[3] = {a->out, a->in[0], a->in[1]};
    const int pack = 16 / size;
    *whole = a->n % pack == 0 && a->n <= (int64_t)pack * CT_ROW_PACKS * CT_ROW_LONGEST;
    for (int k = 0; k < operands; k++) {
        if (a->strides[k] != 1) return false;
        *whole = *whole && ct_cuda_is_aligned(starts[k]);
        for (int d = 0; d < a->lines.ndim; d++)
            *whole = *whole && (a->lines.sizes[d] == 1 || a->lines.strides[k][d] % pack == 0);
    }
    return a->n < INT32_MAX / 2;
}

static bool run(family *f, const ct_call *call, int64_t axis) {
    const ct_view *y = call->out[0];
    const int operands = 1 + call->n_in, size = (int)ct_cuda_dtype_size(y->dtype);
    ct_cuda_softmax a;
    memset(&a, 0, sizeof a);
    if (ct_cuda_count(y) == 0) return true;
    const ct_view *views[3] = {y, call->in[0], call->n_in > 1 ? call->in[1] : NULL};
    const int along = (int)(axis < 0 ? axis + y->ndim : axis);
    a.n = y->ndim ? y->dims[along] : 1;
    for (int k = 0; k < operands; k++) a.strides[k] = a.n > 1 ? views[k]->strides[along] : 1;
    a.lines = ct_cuda_lines(views, operands, along);
    a.out = ct_cuda_address(y);
    for (int i = 0; i < call->n_in; i++) a.in[i] = ct_cuda_address(call->in[i]);
    bool whole;
    if (are_rows(&a, operands, size, &whole)) {
        a.lanes = whole ? ct_cuda_row_lanes(a.n, size, CT_ROW_PACKS) : ct_cuda_stream_lanes(a.n, size, CT_ROW_LONGEST);
        const unsigned block = a.lanes > 32 ? (unsigned)a.lanes : CT_ROW_THREADS;
        const int64_t rows = block / (unsigned)a.lanes;
        const ct_cuda_shape shape = {.grid = ct_cuda_grid((a.lines.total + rows - 1) / rows), .block = block};
        return ct_cuda_launch(call, whole ? &f->rows[y->dtype] : &f->ragged[y->dtype], shape, &a);
    }
    a.lanes = 1; /* a warp's width, or as much as leaves enough blocks, down to the 32 bytes that memory is read by */
    while (a.lanes < a.lines.total && a.lanes < CT_SOFTMAX_SIDE &&
           (a.lanes * size < 32 || a.lines.total / a.lanes >= 2 * ENOUGH))
        a.lanes *= 2;
    const ct_cuda_shape shape = {.grid = ct_cuda_grid((a.lines.total + a.lanes - 1) / a.lanes),
                                 .block = CT_SOFTMAX_COLUMN_THREADS};
    return ct_cuda_launch(call, &f->columns[y->dtype], shape, &a);
}

/* Operands of a call have one dtype: they are promoted. */
static const char *can(const ct_call *call) { return call->in[0]->dtype <= CT_BF16 ? NULL : "it takes floats"; }

#define KERNEL(name)                                                                 \
    static bool name##_run(const ct_call *call, ct_stream *stream) {                 \
        (void)stream;                                                                \
        return run(&name##_family, call, ((const name##_attrs *)call->attrs)->axis); \
    }
KERNEL(softmax)
KERNEL(log_softmax)
KERNEL(softmax_grad)
KERNEL(log_softmax_grad)
KERNEL(log_softmax_half_grad)

CT_CUDA_KERNELS(softmax_softmax) = {
    CT_CANDIDATES(softmax, {"softmax", can, NULL, softmax_run}),
    CT_CANDIDATES(log_softmax, {"log_softmax", can, NULL, log_softmax_run}),
    CT_CANDIDATES(softmax_grad, {"softmax_grad", can, NULL, softmax_grad_run}),
    CT_CANDIDATES(log_softmax_grad, {"log_softmax_grad", can, NULL, log_softmax_grad_run}),
    CT_CANDIDATES(log_softmax_half_grad, {"log_softmax_half_grad", can, NULL, log_softmax_half_grad_run}),
    {0},
};
