/* class_loss and its gradient: which device code takes the logits. Few logits are one block's work, sums included. */
#include "ops/loss/cuda/class_loss.h"

#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/row.h"

#include "gen/loss.attrs.h"

enum {
    FEW = 1 << 13, /* logits */
    BLOCKS = 2112, /* at most; a constant, since the bits of sums hang on it */
};

CT_CUDA_OVERLAPPING_UNIT(loss_class_loss);

static ct_cuda_function loss_rows[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("class_loss_rows"),
                        loss_ragged[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("class_loss_ragged"),
                        loss_columns[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("class_loss_columns"),
                        loss_total[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("class_loss_total"),
                        grad_rows[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("class_grad_rows"),
                        grad_ragged[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("class_grad_ragged"),
                        grad_columns[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("class_grad_columns");

static ct_dtype wide_of(ct_dtype dtype) { return dtype == CT_F64 ? CT_F64 : CT_F32; }

/* Floats are of x's dtype or of the one that is computed in. */
static const char *can_take(const ct_call *call, const ct_view *x, const ct_view *target) {
    const int axis = x->ndim > 1 ? 1 : 0;
    if (x->dtype > CT_BF16) return "it takes floats";
    for (int i = 0; i < call->n_in; i++) {
        const ct_view *in = call->in[i];
        if (!in) continue;
        if (!ct_cuda_is_dense(in)) return "an input is not dense";
        if (in != target && in->dtype != x->dtype && in->dtype != wide_of(x->dtype)) return "mixed dtypes";
    }
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && !ct_cuda_is_dense(call->out[i])) return "an output is not dense";
    return x->dims[axis] > 0 && x->dims[axis] < INT32_MAX / 2 ? NULL : "no classes, or too many";
}
static const char *can_loss(const ct_call *call) { return can_take(call, call->in[0], call->in[1]); }
static const char *can_grad(const ct_call *call) {
    const class_loss_grad_attrs *attrs = call->attrs;
    const ct_view *x = call->in[1];
    for (int i = 4; i <= 5; i++)
        if (call->in[i] && call->in[i]->dtype != wide_of(x->dtype)) return "level and total are not in f32";
    if (attrs->reduction == CT_MEAN && !call->in[5]) return "total is not given";
    return can_take(call, x, call->in[2]);
}

static int64_t at_most(int64_t a, int64_t most) { return a < most ? a : most; }

static ct_cuda_class_loss arguments_of(const ct_view *x, const ct_view *target, const ct_view *weight) {
    ct_cuda_class_loss a;
    memset(&a, 0, sizeof a);
    a.x = ct_cuda_address(x), a.target = ct_cuda_address(target), a.weight = ct_cuda_address_if(weight);
    a.wide_target = target->dtype == CT_I64;
    a.wide_weight = weight && weight->dtype == wide_of(x->dtype);
    a.classes = x->dims[x->ndim > 1 ? 1 : 0];
    a.targets = ct_cuda_count(target);
    a.places = 1;
    for (int i = 2; i < x->ndim; i++) a.places *= x->dims[i];
    return a;
}

/* Threads of a block, and a->lanes of a row. Several small blocks, of which some read while another puts its threads
 * together, are faster than one large one. */
static int block_of(ct_cuda_class_loss *a, size_t size, bool alone) {
    if (a->places > 1) return CT_LOSS_THREADS;
    a->lanes = ct_cuda_stream_lanes(a->classes, (int64_t)size, CT_LOSS_THREADS);
    return a->lanes > 32 ? a->lanes : alone ? CT_LOSS_MOST : CT_ROW_THREADS;
}
static int64_t targets_of_block(const ct_cuda_class_loss *a, int block) {
    return a->places > 1 ? block : block / a->lanes;
}
static bool are_few(const ct_cuda_class_loss *a) { return a->targets <= FEW / a->classes; }

static size_t loss_scratch(const ct_call *call) {
    (void)call;
    return (size_t)BLOCKS * 2 * sizeof(double);
}

static bool run_loss(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const class_loss_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0];
    const size_t size = ct_cuda_dtype_size(x->dtype);
    ct_cuda_class_loss a = arguments_of(x, call->in[1], call->in[2]);
    a.y = ct_cuda_address_if(call->out[0]);
    a.level = call->n_out > 1 ? ct_cuda_address_if(call->out[1]) : NULL;
    a.total = call->n_out > 2 ? ct_cuda_address_if(call->out[2]) : NULL;
    a.ignored = attrs->ignore_index, a.reduction = attrs->reduction, a.smoothing = attrs->label_smoothing;
    const bool sums = (a.y && a.reduction != CT_NONE) || a.total;
    if (a.targets == 0 && !sums) return true;
    const bool whole = a.classes % (int64_t)(16 / size) == 0 && ct_cuda_is_aligned(a.x), few = sums && are_few(&a);
    const int block = block_of(&a, size, few);
    a.blocks = few ? 1 : at_most(ct_cuda_ceil_div(a.targets, targets_of_block(&a, block)), BLOCKS);
    a.sums = (double *)(void *)ct_cuda_scratch(call);
    ct_cuda_function *function = a.places > 1 ? loss_columns : whole ? loss_rows : loss_ragged;
    const ct_cuda_shape shape = {.grid = (unsigned)a.blocks, .block = (unsigned)block};
    if (!ct_cuda_launch(call, &function[x->dtype], shape, &a)) return false;
    const ct_cuda_shape last = {.grid = 1, .block = CT_LOSS_MOST};
    return !sums || a.blocks == 1 || ct_cuda_launch(call, &loss_total[x->dtype], last, &a);
}

static bool run_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const class_loss_grad_attrs *attrs = call->attrs;
    const ct_view *g = call->in[0], *x = call->in[1];
    const size_t size = ct_cuda_dtype_size(x->dtype);
    ct_cuda_class_loss a = arguments_of(x, call->in[2], call->in[3]);
    if (a.targets == 0) return true;
    a.g = ct_cuda_address(g), a.wide_g = g->dtype == wide_of(x->dtype);
    a.level = ct_cuda_address_if(call->in[4]), a.total = ct_cuda_address_if(call->in[5]);
    a.dx = ct_cuda_address(call->out[0]);
    a.ignored = attrs->ignore_index, a.reduction = attrs->reduction, a.smoothing = attrs->label_smoothing;
    const bool whole = a.classes % (int64_t)(16 / size) == 0 && ct_cuda_is_aligned(a.x) && ct_cuda_is_aligned(a.dx);
    const int block = block_of(&a, size, false);
    const int64_t blocks = ct_cuda_ceil_div(a.targets, targets_of_block(&a, block));
    ct_cuda_function *function = a.places > 1 ? grad_columns : whole ? grad_rows : grad_ragged;
    const ct_cuda_shape shape = {.grid = ct_cuda_grid(blocks), .block = (unsigned)block};
    return ct_cuda_launch(call, &function[x->dtype], shape, &a);
}

CT_CUDA_KERNELS(loss_class_loss) = {
    CT_CANDIDATES(class_loss, {"class_loss", can_loss, loss_scratch, run_loss}),
    CT_CANDIDATES(class_loss_grad, {"class_loss_grad", can_grad, NULL, run_grad}),
    {0},
};
