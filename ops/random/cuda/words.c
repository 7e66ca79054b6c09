/* random_words: the host side. */
#include "ops/random/cuda/words.h"

#include <string.h>

#include "backends/cuda/cuda.h"

#include "gen/random.attrs.h"

CT_CUDA_OVERLAPPING_UNIT(random_words);

static bool run(const ct_call *call, ct_stream *stream) {
    static ct_cuda_function function = CT_CUDA_FUNCTION("random_words");
    (void)stream;
    const ct_view *position = call->in[0], *y = call->out[0];
    ct_cuda_words a;
    memset(&a, 0, sizeof a);
    a.to = (int64_t *)(void *)ct_cuda_address(y);
    a.position = ct_cuda_address(position);
    a.position_stride = position->strides[0];
    a.wide = position->dtype == CT_I64;
    a.dense = ct_cuda_is_dense(y) && (uintptr_t)a.to % 16 == 0;
    ct_cuda_nest_begin(&a.nest);
    for (int d = 0; d < y->ndim; d++)
        ct_cuda_nest_add(&a.nest, y->dims[d], (const int64_t[CT_CUDA_NEST_OPERANDS]){y->strides[d], 0, 0, 0});
    ct_cuda_nest_end(&a.nest);
    if (a.nest.total == 0) return true;
    const unsigned blocks = ct_cuda_blocks(call, (a.nest.total + 3) / 4, 256);
    return ct_cuda_launch(call, &function, (ct_cuda_shape){.grid = blocks, .block = 256}, &a);
}

CT_CUDA_KERNELS(random_words) = {
    CT_CANDIDATES(random_words, {"philox", NULL, NULL, run}),
    {0},
};
