// Which elements a thread takes, and whether its kernel does anything.
#pragma once

#include "backends/cuda/view.h"
#include "backends/cuda/words.cuh"

// Shared memory whose size the launch gives.
#ifndef CT_DYNAMIC_SHARED
#define CT_DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]
#endif

CT_DEVICE int64_t ct_first() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
CT_DEVICE int64_t ct_step() { return (int64_t)gridDim.x * blockDim.x; }

// A kernel of a unit that overlaps (cuda.h) may be launched while the one before it in its stream still runs: here it waits until that one is
// done and what it wrote can be seen. Once all of its own blocks have come this far, the next kernel may be launched.
CT_DEVICE void ct_wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A call that changes lasting state leaves it alone while the error word is set. A kernel calls it before it reads or writes memory.
CT_DEVICE bool ct_does_nothing(const ct_cuda_head &head) {
    ct_wait_for_kernel_before();
    return head.lasting && *(volatile uint32_t *)&head.word->set;
}
