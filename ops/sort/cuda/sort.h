/* Arguments of the sort's device code. Elements become items: an unsigned key that orders as they do, with their place. No two items are
 * equal, so every correct sort is the stable one. Tiles of a line are sorted in shared memory; where a line has several, they are merged
 * in passes from one half of the scratch memory to the other. */
#ifndef COTANGENT_OPS_SORT_CUDA_H
#define COTANGENT_OPS_SORT_CUDA_H

#include "backends/cuda/nest.h"

enum { CT_SORT_THREADS = 256, CT_SORT_EACH = 8, CT_SORT_TILE = CT_SORT_THREADS * CT_SORT_EACH };

typedef struct ct_cuda_sort {
    ct_cuda_head head;
    const char *x;
    char *values, *indices; /* NULL: not wanted */
    int64_t x_step, values_step, indices_step;
    ct_cuda_nest lines; /* operands: x, values, indices */
    int64_t n, tiles;   /* of a line */
    int64_t first_line, line_count;
    int32_t dtype, size; /* of an element in bytes */
    int32_t descending;
    int32_t room;    /* items that the tile of a line has, a power of two */
    int32_t last;    /* this pass writes the results */
    char *from, *to; /* (line_count, n) items */
    int64_t run;     /* items in a sorted run of `from` */
} ct_cuda_sort;

#endif
