/* Arguments of the kernels that sum rows into the rows that an index names. */
#ifndef COTANGENT_OPS_INDEX_CUDA_ROWS_SUM_H
#define COTANGENT_OPS_INDEX_CUDA_ROWS_SUM_H

#include "backends/cuda/nest.h"

enum {
    CT_ROWS_TOTALS = 4,
    CT_ROWS_THREADS = 256,
    CT_ROWS_FEW = 8,
    CT_ROWS_MANY = 48 /* a row that is named more often is summed by a whole block */
};

typedef struct ct_cuda_rows_sort {
    ct_cuda_head head;
    const char *index;
    uint32_t *
        counts; /* rows: how many indices name each; then how many do, how many rows are crowded, how many others are named, how many indices are late */
    uint32_t *
        spans; /* (rows, 2): where those of a row begin in order, in which rows come in any order, and how many they are */
    uint32_t *ranks; /* of each index among those that name its row; with slots, of each that is late */
    uint32_t *late;  /* the places of indices for which their rows have no slot left, in any order */
    uint32_t
        *slots; /* (rows, CT_ROWS_FEW): the first ones of each row, which then are not in order; NULL: all are there */
    uint32_t *order;   /* the places in index, by row */
    uint32_t *crowded; /* the rows that are named more than CT_ROWS_MANY times */
    uint32_t *
        named; /* the others that are named, with slots only those that have late indices; NULL: nobody wants to know */
    int64_t rows, skip; /* skip: an index that is left out; -1: none */
    int64_t place;      /* of errors: from one index to the next, as the op counts them */
    int32_t wide;       /* index is i64 */
    int32_t argument;   /* which input index is */
    ct_cuda_nest nest;  /* of index */
} ct_cuda_rows_sort;

/* Everything in packs of as many elements as are read at once, 1 or as many as 16 bytes hold. */
typedef struct ct_cuda_rows_sum {
    ct_cuda_head head;
    char *to;
    const char *from; /* NULL: zeros */
    const char *src;
    const uint32_t *totals, *spans, *slots, *order, *crowded, *named; /* totals: those behind counts */
    int64_t rows, src_row;                                            /* src_row: from one row of src to the next */
    int64_t to_axis, from_axis;                                       /* strides along the axis */
    double alpha;
    ct_cuda_nest nest;  /* to, from, src, and the place along the axis */
    ct_cuda_nest lanes; /* the same without the axis */
} ct_cuda_rows_sum;

#ifndef __CUDACC__
#include <cotangent/backend.h>

/* scatter_add and index_add by atomics, for any call (scatter.c). */
size_t ct_cuda_index_add_scratch(const ct_call *call);
bool ct_cuda_index_add(const ct_call *call, ct_stream *stream);
size_t ct_cuda_scatter_add_scratch(const ct_call *call);
bool ct_cuda_scatter_add(const ct_call *call, ct_stream *stream);
#endif

#endif
