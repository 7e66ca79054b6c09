/* How kernels along rows divide the work: a group of threads, a power of two, takes a row in packs of 16 bytes. Short rows
 * share a block, and rows up to some length stay in the registers of their group. */
#ifndef COTANGENT_BACKENDS_CUDA_ROW_H
#define COTANGENT_BACKENDS_CUDA_ROW_H

#include <stdint.h>

enum {
    CT_ROW_PACKS = 4,     /* that a thread keeps, or reads at once */
    CT_ROW_THREADS = 256, /* of a block whose rows are short */
    CT_ROW_LONGEST = 512, /* threads of a row at most */
};

#ifndef __CUDACC__
/* Threads for a row of n elements of `size` bytes, CT_ROW_LONGEST at most, of which each keeps so many packs if there are
 * not too many. */
static inline int ct_cuda_row_lanes(int64_t n, int64_t size, int kept) {
    const int64_t packs = (n * size + 15) / 16;
    const int64_t wanted = packs <= 32 * kept ? (packs < 32 ? packs : 32) : (packs + kept - 1) / kept;
    int lanes = 1;
    while (lanes < wanted && lanes < CT_ROW_LONGEST) lanes *= 2;
    return lanes;
}
/* For a row that no thread keeps, most at most: as many as read several packs at once each. */
static inline int ct_cuda_stream_lanes(int64_t n, int64_t size, int most) {
    const int64_t packs = (n * size + 15) / 16;
    int lanes = 1;
    while (lanes < most && (lanes < 32 ? lanes < packs : 2 * lanes * CT_ROW_PACKS <= packs)) lanes *= 2;
    return lanes;
}
#endif

#endif
