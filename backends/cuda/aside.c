/* Calls whose result is made in scratch. */
#include "backends/cuda/aside.h"

#include "backends/cuda/move.h"

void ct_cuda_aside_begin(const ct_call *call, ct_cuda_aside *a) {
    int64_t stride = 1;
    a->call = *call;
    a->view = *call->out[0];
    a->view.buffer = call->scratch.buffer;
    a->view.origin = call->scratch.offset;
    a->view.offset = 0;
    for (int i = a->view.ndim - 1; i >= 0; i--) {
        a->view.strides[i] = stride;
        stride *= a->view.dims[i];
    }
    a->bytes =
        ((size_t)stride * ct_cuda_dtype_size(a->view.dtype) + CT_CUDA_ALIGNMENT - 1) & ~(size_t)(CT_CUDA_ALIGNMENT - 1);
    a->out[0] = &a->view;
    a->call.out = a->out;
    a->call.n_out = 1;
    a->call.flags &= ~(unsigned)CT_CALL_LASTING;
    a->call.scratch.offset += a->bytes;
    a->call.scratch.bytes = call->scratch.bytes > a->bytes ? call->scratch.bytes - a->bytes : 0;
}

bool ct_cuda_aside_end(const ct_call *call, const ct_cuda_aside *a) {
    return ct_cuda_copy(call, call->out[0], &a->view);
}
