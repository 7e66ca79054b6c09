/* Random words for kernels, by vectors. The rounds are long and unrolled: they are a function and not inlined. */
#ifndef COTANGENT_OPS_RANDOM_PHILOX_H
#define COTANGENT_OPS_RANDOM_PHILOX_H

#include "backends/cpu/simd/simd.h"
#include "core/rng.h"

/* Two vectors go side by side, since one alone waits for its own products. */
enum { PHILOX_WAYS = 2, PHILOX_BATCH = PHILOX_WAYS * VF32_LANES * 4 };

/* Words first to first + n - 1 of a call; first is a multiple of 4, and there is room for whole batches. */
void CT_ISA_FN(ct__philox_fill)(ct_random at, uint64_t first, int n, uint32_t *words);

#endif
