/* Fused calls by kernels that NVRTC compiles for them. They are compiled when a graph is captured (prepare); what cannot be had is not fused. */
#include "ops/fused/cuda/fused.h"

#include <stdlib.h>
#include <string.h>

#include "backends/cuda/backend.h"
#include "ops/fused/cuda/fused/kernels.h"
#include "ops/norm/cuda/row_norm.h"

static const char *can(const ct_call *call) {
    if (!ct_nvrtc_there()) return "there is no NVRTC";
    return ct_fused_refusal(call);
}

static size_t scratch(const ct_call *call) {
    const ct_fused_kernel *kernel = ct_fused_kernel_of(call);
    const ct_fused_rows *rows = kernel ? ct_fused_kernel_rows(kernel) : NULL;
    return rows && rows->parts ? (size_t)rows->parts * 2 * (size_t)rows->n * (size_t)rows->number : 0;
}

/* Addresses, and whether those that are accessed in packs are aligned for it. */
static ct_fused_arguments arguments_of(const ct_call *call, const ct_fused_kernel *kernel) {
    const int pack = ct_fused_kernel_pack(kernel);
    const uint64_t in_packs = ct_fused_kernel_in_packs(kernel);
    ct_fused_arguments a;
    memset(&a, 0, sizeof a);
    a.packed = 1;
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        a.at[i] = ct_cuda_address_if(view);
        if (view && in_packs >> i & 1)
            a.packed &= (uintptr_t)a.at[i] % ct_fused_alignment(ct_cuda_dtype_size(view->dtype), pack) == 0;
    }
    return a;
}

static bool run_elements(const ct_call *call, ct_fused_kernel *kernel, ct_cuda_device *d) {
    const int64_t count = ((const ct_fused *)call->attrs)->count;
    const int pack = ct_fused_kernel_pack(kernel);
    ct_fused_arguments a = arguments_of(call, kernel);
    const int64_t items = a.packed ? ct_cuda_ceil_div(count, pack) : count;
    const ct_cuda_shape shape = {.grid = ct_cuda_all_blocks(call, items, 256), .block = 256};
    const CUfunction function = ct_fused_function(kernel, call, d, false);
    return function && ct_cuda_launch_function(call, d, function, d->capability >= 90, shape, &a);
}

/* As ops/norm/cuda divides rows, and sums columns over the parts. */
static bool run_rows(const ct_call *call, ct_fused_kernel *kernel, ct_cuda_device *d) {
    const ct_fused_rows *r = ct_fused_kernel_rows(kernel);
    const int groups = r->block / r->lanes;
    const int64_t blocks = ct_cuda_ceil_div(r->rows, groups);
    ct_fused_arguments a = arguments_of(call, kernel);
    a.parts = r->parts && blocks > r->parts ? r->parts : blocks;
    a.sums = r->parts ? ct_cuda_scratch(call) : NULL;
    const ct_cuda_shape shape = {.grid = ct_cuda_grid(a.parts),
                                 .block = (unsigned)r->block,
                                 .shared = r->parts && groups > 1 ? 2 * (unsigned)r->n * (unsigned)r->number : 0};
    const CUfunction function = ct_fused_function(kernel, call, d, false);
    if (!function || !ct_cuda_launch_function(call, d, function, d->capability >= 90, shape, &a)) return false;
    if (!r->parts) return true;
    const ct_cuda_shape total = {.grid = (unsigned)ct_cuda_ceil_div(r->n, CT_NORM_SIDE),
                                 .block = a.parts > 64 ? CT_NORM_MOST : CT_NORM_THREADS};
    const CUfunction summing = ct_fused_function(kernel, call, d, true);
    return summing && ct_cuda_launch_function(call, d, summing, d->capability >= 90, total, &a);
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_fused_kernel *kernel = ct_fused_kernel_of(call);
    CUcontext before;
    if (!kernel) return ct_cuda_host->fail(CT_ERR_MEMORY, "fused", "no memory for its kernel");
    ct_fused_compile(&kernel, 1);
    if (!ct_fused_is_there(kernel)) return ct_cuda_host->fail(CT_ERR_DEVICE, "fused", "its kernel cannot be compiled");
    ct_cuda_device *d = ct_cuda_enter(call->device.index, &before);
    if (!d) return false;
    const bool ok = ct_fused_kernel_rows(kernel)->n ? run_rows(call, kernel, d) : run_elements(call, kernel, d);
    ct_cuda_leave(before);
    return ok;
}

static const ct_kernel candidates[] = {{"nvrtc", can, scratch, run}, {0}};

void ct_cuda_prepare(void *self, const ct_call *const *calls, int n, bool *ready) {
    ct_fused_kernel **kernels = calloc((size_t)n + 1, sizeof *kernels);
    (void)self;
    for (int i = 0; kernels && i < n; i++)
        if (calls[i]->kernel == candidates) kernels[i] = ct_fused_kernel_of(calls[i]);
    if (kernels) ct_fused_compile(kernels, n);
    for (int i = 0; i < n; i++)
        ready[i] = calls[i]->kernel != candidates || (kernels && kernels[i] && ct_fused_is_there(kernels[i]));
    free(kernels);
}

CT_CUDA_KERNELS(fused_fused) = {
    {.op = "fused", .candidates = candidates},
    {0},
};
