// backends/cuda/mma.cuh on the host, as far as f32 in TF32 needs it: registers are exchanged as PTX says that lanes have them. With
// tests/cuda/warps.h.
#pragma once

#include "backends/cuda/words.cuh"

static uint32_t ct_tf32(float x) {
    uint32_t bits = ct_same_bits<uint32_t>(x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return bits & 0xffffe000u;
    return (bits + 0x1000u) & 0xffffe000u;
}

// PTX ISA, mma.m16n8k8: with g = lane / 4 and t = lane % 4, a has (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), b has (t, g), (t + 4, g), d has
// (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1). What is below TF32 is cut off.
static void ct_mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    uint32_t(*all)[8] = ct_warp_words();
    uint32_t *mine = all[threadIdx.x % 32];
    for (int i = 0; i < 4; i++) mine[i] = a[i];
    mine[4] = b0, mine[5] = b1;
    ct_warp_meets();
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int i = 0; i < 4; i++) {
        const int row = g + i / 2 * 8, column = 2 * t + i % 2;
        for (int k = 0; k < 8; k++) {
            const uint32_t x = all[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2], y = all[column * 4 + k % 4][4 + k / 4];
            d[i] += ct_same_bits<float>(x & 0xffffe000u) * ct_same_bits<float>(y & 0xffffe000u);
        }
    }
    ct_warp_meets();
}

static void ct_load_matrices(uint32_t (&r)[4], const void *row) {
    ct_expect((uintptr_t)row % 16 == 0, "ldmatrix: a row is not aligned");
    const void **rows = ct_warp_pointers();
    rows[threadIdx.x % 32] = row;
    ct_warp_meets();
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], (const char *)rows[i * 8 + threadIdx.x % 32 / 4] + threadIdx.x % 4 * 4, 4);
    ct_warp_meets();
}

// Nothing arrives before the thread waits.
template <int N> static void ct_async_copy(void *to, const void *from, bool there) {
    ct_expect((uintptr_t)to % N == 0 && (uintptr_t)from % N == 0, "cp.async: an address is not aligned");
    ct_copy_later(to, there ? from : nullptr, N);
}
static void ct_async_wait() { ct_copy_now(); }
