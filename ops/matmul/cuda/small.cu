// Kernels of small products: linear, and both of its gradients at once.
#include "ops/matmul/cuda/small.cuh"

extern "C" __global__ void __launch_bounds__(CT_SMALL_THREADS)
    small_forward(const __grid_constant__ ct_linear_small a) {
    CT_DYNAMIC_SHARED(memory);
    if (ct_does_nothing(a.head)) return;
    ct_small_run<true, true, false, false>(a.products[0], (int)blockIdx.x, memory);
}

// The blocks of dx, which sum over more, come first.
extern "C" __global__ void __launch_bounds__(CT_SMALL_THREADS)
    small_gradients(const __grid_constant__ ct_linear_small a) {
    CT_DYNAMIC_SHARED(memory);
    if (ct_does_nothing(a.head)) return;
    const int dx = a.products[0].tiles, block = (int)blockIdx.x;
    if (block < dx) ct_small_run<true, false, true, false>(a.products[0], block, memory);
    else ct_small_run<false, false, true, true>(a.products[1], block - dx, memory);
}
