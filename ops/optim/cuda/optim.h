/* Arguments of the steps' kernels: a list of items as a table in the kernel's parameters, so that one launch goes over all of them. */
#ifndef COTANGENT_OPS_OPTIM_CUDA_H
#define COTANGENT_OPS_OPTIM_CUDA_H

#include <stddef.h>

#include "backends/cuda/view.h"
#include "ops/optim/optim.h"

enum {
    CT_OPTIM_THREADS = 256,
    CT_OPTIM_BLOCKS = 2048,   /* of a launch, at most */
    CT_OPTIM_TABLE = 477,     /* words: all arguments stay within the 4 KB that every driver takes */
    CT_OPTIM_FEW = 96,        /* words of a table for few items: a launch takes the longer the more it is given */
    CT_OPTIM_COUNTERS = 1024, /* of blocks that have read the clock; see list.cuh */
    CT_OPTIM_DTYPE_BITS = 4,
};

/* A vector of a few numbers on the device; NULL: none. */
typedef struct ct_optim_vector {
    char *at;
    int64_t stride; /* in elements */
    int32_t dtype;
} ct_optim_vector;

/* The table holds, for each item, the addresses of its `width` tensors; then for each its number of elements; then for each the number of
 * its first chunk in the low half of a word and the dtypes of its tensors in the high half. A list of items that do not lie in memory
 * as they count has one item, whose dimensions and strides come after it. */
typedef struct ct_cuda_optim {
    ct_cuda_head head;
    ct_optim_vector rates, clock, gate, out;
    union {
        uint64_t aligned;
        unsigned char bytes[24];
    } attrs;      /* as the op has them */
    double *sums; /* scratch */
    int32_t items, width;
    int32_t all;      /* items of the call */
    uint32_t chunk;   /* elements */
    uint32_t chunks;  /* of the list */
    uint32_t before;  /* sums of the lists before this one */
    uint32_t counter; /* which one */
    uint8_t master, strided,
        last; /* last: of the call's lists, whose last block moves the clock on or makes the result */
    uint64_t table[CT_OPTIM_TABLE];
} ct_cuda_optim;

/* The beginning of it, with a table for few items. */
typedef struct ct_cuda_optim_few {
    uint64_t words[offsetof(ct_cuda_optim, table) / sizeof(uint64_t) + CT_OPTIM_FEW];
} ct_cuda_optim_few;

typedef struct ct_optim_strides {
    int64_t ndim, dims[CT_CUDA_DIMS], strides[OPTIM_WIDTH][CT_CUDA_DIMS];
} ct_optim_strides;

#endif
