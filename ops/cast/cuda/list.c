/* Conversions of several tensors at once: the host side, which writes tables of them. */
#include "ops/cast/cuda/list.h"

#include "backends/cuda/cuda.h"

#include "gen/cast.attrs.h"

CT_CUDA_OVERLAPPING_UNIT(cast_list);
_Static_assert(sizeof(ct_cuda_cast_list) <= 4096, "more than a kernel's parameters");

static const char *can_cast_all(const ct_call *call) {
    for (int i = 0; i < call->n_in; i++) {
        const ct_view *x = call->in[i], *y = call->out[i];
        if (!y || x->dtype != CT_F32 || (y->dtype != CT_BF16 && y->dtype != CT_F16)) return "it is for f32 to halves";
        if (!ct_cuda_is_dense(x) || !ct_cuda_is_dense(y)) return "an operand is not dense";
        if (ct_cuda_count(x) > INT32_MAX) return "a tensor is too large";
    }
    return NULL;
}

static bool launch(const ct_call *call, ct_cuda_cast_list *a) {
    static ct_cuda_function functions[] = {CT_CUDA_FUNCTION("cast_list_f16"), CT_CUDA_FUNCTION("cast_list_bf16")};
    if (!a->items) return true;
    const unsigned most = ct_cuda_blocks(call, INT64_MAX / 2, CT_CAST_THREADS);
    const ct_cuda_shape shape = {.grid = a->chunks < most ? a->chunks : most, .block = CT_CAST_THREADS};
    const bool ok = ct_cuda_launch(call, &functions[call->out[0]->dtype == CT_BF16], shape, a);
    a->items = 0;
    a->chunks = 0;
    return ok;
}

static bool run_cast_all(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_cast_list a = {.items = 0};
    for (int i = 0; i < call->n_in; i++) {
        const int64_t count = ct_cuda_count(call->in[i]);
        const uint32_t chunks = (uint32_t)ct_cuda_ceil_div(count, CT_CAST_CHUNK);
        if (!count) continue;
        const bool full = a.items == CT_CAST_ITEMS || a.chunks > UINT32_MAX - chunks;
        if (full && !launch(call, &a)) return false;
        a.from[a.items] = (uint64_t)(uintptr_t)ct_cuda_address(call->in[i]);
        a.to[a.items] = (uint64_t)(uintptr_t)ct_cuda_address(call->out[i]);
        a.first[a.items] = a.chunks;
        a.count[a.items++] = (uint32_t)count;
        a.chunks += chunks;
    }
    return launch(call, &a);
}

CT_CUDA_KERNELS(cast_list) = {
    CT_CANDIDATES(cast_all, {"list", can_cast_all, NULL, run_cast_all}),
    {0},
};
