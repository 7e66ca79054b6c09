/* Arguments of conversions of several tensors at once. */
#ifndef COTANGENT_OPS_CAST_CUDA_LIST_H
#define COTANGENT_OPS_CAST_CUDA_LIST_H

#include "backends/cuda/view.h"

enum { CT_CAST_ITEMS = 160, CT_CAST_THREADS = 256, CT_CAST_CHUNK = 8192 };

/* Items lie behind one another in chunks of so many elements, the last of an item with what is left; blocks go from chunk to chunk. */
typedef struct ct_cuda_cast_list {
    ct_cuda_head head;
    int32_t items;
    uint32_t chunks;              /* of all */
    uint64_t from[CT_CAST_ITEMS]; /* addresses, of elements that are dense */
    uint64_t to[CT_CAST_ITEMS];
    uint32_t first[CT_CAST_ITEMS]; /* chunk */
    uint32_t count[CT_CAST_ITEMS]; /* elements */
} ct_cuda_cast_list;

#endif
