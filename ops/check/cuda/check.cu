// check_range: a look at every element. A block names its first one that is wrong.
#include "ops/check/cuda/check.h"

#include "backends/cuda/convert.cuh"
#include "backends/cuda/nest.cuh"
#include "backends/cuda/wrong.cuh"

CT_DEVICE double value_at(const ct_cuda_check &a, int64_t e) {
    int64_t at[1];
    double value = 0;
    ct_nest_place(a.nest, e, at);
    ct_by_dtype(a.dtype, [&](auto tag) {
        typedef ct_of_dtype<decltype(tag)::value> stored;
        value = (double)stored::load(((const typename stored::type *)a.from)[at[0]]);
    });
    return value;
}

extern "C" __global__ void check_range(const __grid_constant__ ct_cuda_check a) {
    __shared__ unsigned long long first;
    if (ct_does_nothing(a.head)) return;
    if (threadIdx.x == 0) first = ~0ull;
    __syncthreads();
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        const double value = value_at(a, e);
        if (value >= a.low && value <= a.high) continue;
        atomicMin(&first, (unsigned long long)e);
        break;
    }
    __syncthreads();
    if (threadIdx.x != 0 || first == ~0ull) return;
    const double value = value_at(a, (int64_t)first);
    ct_cuda_head head = a.head;
    head.op = a.of;
    ct_cuda_word wrong = a.wrong;
    wrong.position = a.places ? (int64_t)first : -1;
    wrong.real_value = value;
    wrong.value = value >= 0x1p63 ? INT64_MAX : value < -0x1p63 ? INT64_MIN : (int64_t)value;
    ct_wrong(head, wrong);
}
