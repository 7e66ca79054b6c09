// Which elements a thread takes, and whether its kernel does anything.
#pragma once

#include "backends/cuda/view.h"
#include "backends/cuda/words.cuh"

CT_DEVICE int64_t ct_first() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
CT_DEVICE int64_t ct_step() { return (int64_t)gridDim.x * blockDim.x; }

// A call that changes lasting state leaves it alone while the error word is set.
CT_DEVICE bool ct_does_nothing(const ct_cuda_head &head) {
    return head.lasting && *(volatile uint32_t *)&head.word->set;
}
