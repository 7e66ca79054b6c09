// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011), bit for bit as the CPU's.
#pragma once

#include "backends/cuda/words.cuh"

struct ct_position {
    uint64_t seed, stream, call;
};

// The four words of block `block` of a call.
CT_DEVICE void ct_philox(const ct_position &at, uint64_t block, uint32_t (&out)[4]) {
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32) ^ (uint32_t)(at.stream << 16), c2 = (uint32_t)at.call,
             c3 = (uint32_t)(at.call >> 32) ^ (uint32_t)(at.stream >> 16);
    uint32_t k0 = (uint32_t)at.seed, k1 = (uint32_t)(at.seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        const uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c2 = high0 ^ c3 ^ k1;
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}
