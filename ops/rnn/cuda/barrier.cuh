// Blocks that run at one time wait for each other at a counter, which only grows, and may overflow.
#pragma once

#include "backends/cuda/words.cuh"

// What this block's threads have written is there for those who wait.
CT_DEVICE void ct_arrive(uint32_t *counter) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(counter, 1u);
    }
}

CT_DEVICE void ct_wait(const uint32_t *counter, uint32_t count) {
    if (threadIdx.x == 0) {
        uint32_t now;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
        } while ((int32_t)(now - count) < 0);
    }
    __syncthreads();
}
