/* Random streams: Philox4x32-10. Kernels get a ct_random (position) and compute; nothing is stored but a counter. */
#ifndef COTANGENT_CORE_RNG_H
#define COTANGENT_CORE_RNG_H

#include <cotangent/backend.h>

ct_random ct__rng_draw(ct_rng *rng);             /* the position of one call; NULL: the default generator */
ct_random ct__rng_take(ct_rng *rng, uint64_t n); /* those of the next n calls: the first of them */
/* A graph holds the generators that it draws from; NULL does nothing. */
void ct__rng_retain(ct_rng *rng);
void ct__rng_release(ct_rng *rng);

/* Four random words for the block `block` of a call. */
static inline void ct__philox(ct_random at, uint64_t block, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32) ^ (uint32_t)(at.stream << 16), c2 = (uint32_t)at.call,
             c3 = (uint32_t)(at.call >> 32) ^ (uint32_t)(at.stream >> 16);
    uint32_t k0 = (uint32_t)at.seed, k1 = (uint32_t)(at.seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif
