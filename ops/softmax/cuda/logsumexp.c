/* logsumexp: a reduction like those of ops/reduce. */
#include "ops/reduce/cuda/reduction.h"

#include "gen/softmax.attrs.h"

CT_CUDA_UNIT(softmax_logsumexp);

static ct_cuda_reduction reduction = {{{CT_REDUCTION_FLOATS(unit, "logsumexp_rows_")},
                                       {CT_REDUCTION_FLOATS(unit, "logsumexp_pieces_")},
                                       {CT_REDUCTION_FLOATS(unit, "logsumexp_dense_")},
                                       {CT_REDUCTION_FLOATS(unit, "logsumexp_columns_")},
                                       {CT_REDUCTION_FLOATS(unit, "logsumexp_flat_")},
                                       {CT_REDUCTION_FLOATS(unit, "logsumexp_parts_")}},
                                      false,
                                      8,
                                      8,
                                      16};

static const char *can(const ct_call *call) { return call->in[0]->dtype <= CT_BF16 ? NULL : "it takes floats"; }

static size_t scratch(const ct_call *call) {
    return ct_cuda_reduction_scratch(&reduction, call, &((const logsumexp_attrs *)call->attrs)->axes);
}
static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return ct_cuda_reduction_run(&reduction, call, &((const logsumexp_attrs *)call->attrs)->axes);
}

CT_CUDA_KERNELS(softmax_logsumexp) = {
    CT_CANDIDATES(logsumexp, {"logsumexp", can, scratch, run}),
    {0},
};
