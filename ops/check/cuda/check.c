/* check_range: a copy behind a look at the values; the copy does nothing where a value was wrong and the call is one of those that last. */
#include "ops/check/cuda/check.h"

#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/move.h"
#include "ops/check/check.h"

#include "gen/check.attrs.h"

CT_CUDA_UNIT(check_check);

static int64_t whole(double bound) {
    return bound >= 0x1p63 ? CT_NO_BOUND : bound < -0x1p63 ? INT64_MIN : (int64_t)bound;
}

static bool run(const ct_call *call, ct_stream *stream) {
    static ct_cuda_function function = CT_CUDA_FUNCTION("check_range");
    (void)stream;
    const check_range_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0];
    const ct_op *of = ct_cuda_host->op_find(attrs->of.s);
    ct_cuda_check a;
    memset(&a, 0, sizeof a);
    a.from = ct_cuda_address(x);
    a.dtype = x->dtype;
    a.places = attrs->what == CT_CHECKED_ELEMENT || ct__checked_by_row(attrs->what);
    a.low = attrs->lo, a.high = attrs->hi;
    a.of = (uint64_t)(uintptr_t)(of ? of : call->op);
    a.wrong.code = attrs->index ? CT_ERR_INDEX : CT_ERR_VALUE;
    a.wrong.argument = of ? (int32_t)attrs->argument : 0;
    a.wrong.what = (uint64_t)(uintptr_t)ct__checked_texts[attrs->what];
    a.wrong.is_real = x->dtype <= CT_BF16;
    a.wrong.low = whole(attrs->lo), a.wrong.high = whole(attrs->hi);
    a.wrong.real_low = attrs->lo, a.wrong.real_high = attrs->hi;
    ct_cuda_nest_begin(&a.nest);
    for (int d = 0; d < x->ndim; d++)
        ct_cuda_nest_add(&a.nest, x->dims[d], (const int64_t[CT_CUDA_NEST_OPERANDS]){x->strides[d], 0, 0, 0});
    ct_cuda_nest_end(&a.nest);
    if (a.nest.total == 0) return true;
    const ct_cuda_shape shape = {.grid = ct_cuda_blocks(call, a.nest.total, 256), .block = 256};
    return ct_cuda_launch(call, &function, shape, &a) && ct_cuda_copy(call, call->out[0], x);
}

CT_CUDA_KERNELS(check_check) = {
    CT_CANDIDATES(check_range, {"look", NULL, NULL, run}),
    {0},
};
