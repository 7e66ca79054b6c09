/* Arguments of the device code of channel_norm and its gradients. A line is one channel of one item of the batch; with the channels last,
 * lines lie side by side. Lines are cut into parts; each part gives its moments (or, for the gradients, three sums), those of a set are
 * put together, and every part is gone over once more with the coefficients that follow. How the work is cut depends on sizes alone, so
 * the bits do as well. */
#ifndef COTANGENT_OPS_NORM_CUDA_CHANNEL_NORM_H
#define COTANGENT_OPS_NORM_CUDA_CHANNEL_NORM_H

#include "backends/cuda/view.h"

enum {
    CT_CHANNEL_THREADS = 256,
    CT_CHANNEL_SETTLERS = 128, /* threads that put the parts of a set together, */
    CT_CHANNEL_ABREAST = 8,    /* or, of so many channels side by side, */
    CT_CHANNEL_COLUMNS = 512,  /* so many threads */
    CT_CHANNEL_ROOMS = 3,      /* blocks on a multiprocessor that keep chunks in shared memory */
    CT_CHANNEL_PARTIAL = 3,    /* numbers that such a block tells of a chunk */
};

/* One value per set, or per channel: its address, or NULL, and dtype. */
typedef struct ct_cuda_vector {
    char *data;
    int64_t dtype;
} ct_cuda_vector;

typedef struct ct_cuda_channels {
    ct_cuda_head head;
    /* (items, channels, places) or (items, places, channels) */
    const char *x;
    const char *g; /* gradients: of y */
    const char
        *other;   /* forward: what is added before relu; gradients: y, which tells where relu let g pass; or NULL */
    char *y;      /* y, or dx; NULL: not wanted */
    char *passed; /* gradients: what relu let pass of g; NULL: not wanted */
    ct_cuda_vector weight, bias, mean, var; /* mean and var: results, or of the gradients arguments */
    ct_cuda_vector g_mean, g_var, dweight, dbias;
    int64_t items, channels, places;
    int64_t groups, members;  /* groups of so many channels; one channel each when the batch is one set */
    int64_t parts, part;      /* of a line, and their places */
    double eps, count, share; /* elements of a set, and 1 over them */
    int32_t batch, last, relu;
    int32_t fixed;      /* gradients: mean and var are given numbers */
    int32_t packed;     /* every pack of neighbors is aligned */
    int32_t side;       /* channels last: threads side by side, a power of two */
    double *sums;       /* (2 or 3, items, channels, parts) or (2 or 3, items, parts, channels) */
    double *rest;       /* gradients: (2, sets): what the given mean lacks, and 1 / sqrt(var + eps) */
    char *coefficients; /* (3 or 5, items or 1, channels), in the type that is computed in */
    /* Chunks that stay in shared memory: */
    int64_t lines, line_step;                 /* lines of a set, and elements from one to the next */
    int64_t pieces, chunk_lines, chunk_packs; /* chunks of a set; what one has at most */
    int64_t line_sums, elements_at;           /* in shared memory: pairs of sums, and where chunks begin */
    char *partial;                            /* (chunks, CT_CHANNEL_PARTIAL) words of 16 bytes */
    uint32_t *nothing;                        /* nothing is done */
} ct_cuda_channels;

/* running = (1 - momentum) running + momentum batch, of the mean and of unbias times var. */
typedef struct ct_cuda_running {
    ct_cuda_head head;
    ct_cuda_vector running[2], batch[2];
    int64_t channels;
    double momentum, unbias;
} ct_cuda_running;

#endif
