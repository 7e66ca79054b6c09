/* How kernels along rows divide the work: a group of threads, a power of two, takes a row in packs of 16 bytes. Short rows share a block,
 * and rows up to some length stay in the registers of their group. */
#ifndef COTANGENT_BACKENDS_CUDA_ROW_H
#define COTANGENT_BACKENDS_CUDA_ROW_H

#include <stdint.h>

enum {
    CT_ROW_PACKS = 4,     /* that a thread keeps, and that it reads at once of a row that is longer */
    CT_ROW_THREADS = 256, /* of a block whose rows are short */
    CT_ROW_LONGEST = 512, /* threads of a row at most */
};

#ifndef __CUDACC__
/* Threads for a row of n elements of `size` bytes, most at most. An aligned row has a pack less than one that is not. */
static inline int ct_cuda_row_lanes(int64_t n, int64_t size, int aligned, int most) {
    const int64_t per_pack = 16 / size, packs = (n + (aligned ? 0 : per_pack - 1) + per_pack - 1) / per_pack;
    const int64_t wanted =
        packs <= 32 * CT_ROW_PACKS ? (packs < 32 ? packs : 32) : (packs + CT_ROW_PACKS - 1) / CT_ROW_PACKS;
    int lanes = 1;
    while (lanes < wanted && lanes < most) lanes *= 2;
    return lanes;
}
#endif

#endif
