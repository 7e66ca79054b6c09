/* Dropout at a position of the random stream, in memory or as numbers: the host side. */
#include "ops/dropout/cuda/dropout.h"

#include <string.h>

#include "backends/cuda/cuda.h"

#include "gen/dropout.attrs.h"

CT_CUDA_OVERLAPPING_UNIT(dropout_dropout);

static bool drop(const ct_call *call, ct_cuda_dropout *a, double p) {
    static ct_cuda_function functions[CT_CUDA_FLOATS] = CT_CUDA_OF_FLOATS("dropout");
    const ct_view *x = call->in[0], *y = call->out[0];
    const double threshold = p * 0x1p32;
    if (!y) return ct_cuda_launch(call, &functions[x->dtype], (ct_cuda_shape){.grid = 1, .block = 32}, a);
    a->y = ct_cuda_address(y), a->x = ct_cuda_address(x);
    a->dense = ct_cuda_is_dense(x) && ct_cuda_is_dense(y) && (uintptr_t)a->x % 16 == 0 && (uintptr_t)a->y % 16 == 0;
    a->none = threshold >= 0x1p32; /* p is 1, or as good as */
    a->threshold = a->none ? 0 : (uint32_t)threshold;
    a->scale = a->none ? 0 : 1 / (1 - p);
    ct_cuda_nest_begin(&a->nest);
    for (int d = 0; d < y->ndim; d++)
        ct_cuda_nest_add(&a->nest, y->dims[d],
                         (const int64_t[CT_CUDA_NEST_OPERANDS]){y->strides[d], x->strides[d], 0, 0});
    ct_cuda_nest_end(&a->nest);
    if (a->nest.total == 0 && !a->put) return true;
    const int64_t each = 16 / (int64_t)ct_cuda_dtype_size(x->dtype), taken = each < 4 ? 4 : each;
    const unsigned blocks = ct_cuda_blocks(call, (a->nest.total + taken - 1) / taken, 256);
    return ct_cuda_launch(call, &functions[x->dtype], (ct_cuda_shape){.grid = blocks, .block = 256}, a);
}

static bool run_replay(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view *position = call->in[1];
    ct_cuda_dropout a;
    memset(&a, 0, sizeof a);
    a.position = ct_cuda_address(position);
    a.position_stride = position->strides[0];
    a.wide = position->dtype == CT_I64;
    return drop(call, &a, ((const dropout_replay_attrs *)call->attrs)->p);
}

static bool run_draw(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const dropout_draw_attrs *attrs = call->attrs;
    ct_cuda_dropout a;
    memset(&a, 0, sizeof a);
    a.numbers[0] = attrs->seed, a.numbers[1] = attrs->stream, a.numbers[2] = attrs->call;
    if (call->n_out > 1 && call->out[1]) {
        a.put = (int64_t *)(void *)ct_cuda_address(call->out[1]);
        a.put_stride = call->out[1]->strides[0];
    }
    return drop(call, &a, attrs->p);
}

static const char *can(const ct_call *call) { return call->in[0]->dtype <= CT_BF16 ? NULL : "it takes floats"; }

CT_CUDA_KERNELS(dropout_dropout) = {
    CT_CANDIDATES(dropout_draw, {"philox", can, NULL, run_draw}),
    CT_CANDIDATES(dropout_replay, {"philox", can, NULL, run_replay}),
    {0},
};
