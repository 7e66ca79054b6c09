/* Arguments of the recurrence's device code. */
#ifndef COTANGENT_OPS_RNN_CUDA_RECURRENCE_H
#define COTANGENT_OPS_RNN_CUDA_RECURRENCE_H

#include "backends/cuda/view.h"

enum {
    CT_RNN_THREADS = 256, /* 16 sequences by 16 hidden units, the part of a block */
    CT_RNN_ROWS = 16,
    CT_RNN_UNITS = 16,
    CT_RNN_WARPS = CT_RNN_THREADS / 32,
    CT_RNN_LINE = 32, /* words between counters: a line of the cache each */
};

/* Up to three strides, in elements; data NULL: not there. */
typedef struct ct_cuda_series {
    char *data;
    int64_t strides[3];
} ct_cuda_series;

typedef struct ct_cuda_recurrence {
    ct_cuda_head head;
    ct_cuda_series gx, w, b_hh, h0, c0; /* (T,N,G*H) (G*H,H) (G*H) (N,H) (N,H) */
    ct_cuda_series y, h_n, c_n, states; /* (T,N,H) (N,H) (N,H) (T,N,k*H) */
    ct_cuda_series gy, gh_n, gc_n;      /* (T,N,H) (N,H) (N,H) */
    ct_cuda_series dgx, dgh, dh0, dc0;  /* (T,N,G*H) (T,N,G*H) (N,H) (N,H) */
    const char *lengths;
    int64_t lengths_stride;
    int32_t lengths_wide, lengths_argument;
    int32_t cell, reverse, fast; /* fast: products in TF32 alone */
    int32_t steps, n, h;
    int32_t blocks, groups; /* blocks of hidden units; groups of sequences */
    float *exchange;    /* what the blocks of a group tell each other, twice, for each group that runs at one time */
    uint32_t *counters; /* (groups at one time, CT_RNN_LINE), zero at first */
} ct_cuda_recurrence;

/* One step between two products. */
typedef struct ct_cuda_rnn_step {
    ct_cuda_recurrence r;
    const char *product;     /* h W_hh^T (N,G*H), or backward gates W_hh (N,H); NULL: zeros */
    const char *h_before;    /* (N,H), as all that follows but for gates; from the second step on */
    char *h_after, *dh, *dc; /* forward dc is c */
    char *gates;             /* (N,G*H) */
    int32_t step;            /* in the order of the forward pass; backward -1 makes the initial states' gradients */
} ct_cuda_rnn_step;

#endif
