/* Arguments of attention's device code, and the sizes of its blocks. */
#ifndef COTANGENT_OPS_ATTENTION_CUDA_SDPA_H
#define COTANGENT_OPS_ATTENTION_CUDA_SDPA_H

#include "backends/cuda/view.h"

enum {
    CT_SDPA_THREADS = 256,
    CT_SDPA_ROWS = 128,    /* Tensor Cores: 16 rows of queries or keys per warp, kept in registers */
    CT_SDPA_STEP = 64,     /* rows of the other side that come through shared memory at a time */
    CT_SDPA_PAD = 8,       /* halves between rows in shared memory, so that eight rows lie in different banks */
    CT_SDPA_MOST = 128,    /* the largest head */
    CT_SDPA_TILE = 64,     /* plain: rows and columns of a tile */
    CT_SDPA_DEPTH = 32,    /* plain: of its products */
    CT_SDPA_TOGETHER = 32, /* heads whose blocks run at one time: their keys and values stay in the L2 */
};

/* (B,H,T,D) with any strides. */
typedef struct ct_cuda_heads {
    char *data; /* NULL: not there */
    int64_t strides[4];
    int32_t packed; /* rows are of whole, aligned 16 bytes */
} ct_cuda_heads;

enum { CT_SDPA_NO_MASK, CT_SDPA_BOOL, CT_SDPA_ADDED };

typedef struct ct_cuda_sdpa {
    ct_cuda_head head;
    ct_cuda_heads q, k, v, mask;    /* (B,H,Tq,D) (B,Hk,Tk,D) (B,Hk,Tk,Dv) (B,H,Tq,Tk) */
    ct_cuda_heads y, lse, g, g_lse; /* (B,H,Tq,Dv) (B,H,Tq) (B,H,Tq,Dv) (B,H,Tq) */
    ct_cuda_heads dq, dk, dv, dmask;
    int32_t lse_narrow, g_lse_narrow; /* they are of q's dtype, not of the type of the computation */
    char *rows; /* (B,H,Tq,2): lse in this unit, and delta, of each row, in the type of the computation */
    double unit;
    int64_t batch, heads, kv_heads;
    int32_t group, tq, tk, d, d_v;
    int32_t blocks;    /* of rows in one head */
    int32_t mask_kind; /* CT_SDPA_ */
    int32_t causal;
    int64_t ahead; /* causal: query i sees keys 0 to i + ahead */
    double scale;
    int32_t drops;
    uint32_t threshold; /* words below it drop their element */
    double keep;        /* what the others are multiplied by */
    const char *position;
    int64_t position_stride;
    int32_t position_wide;
} ct_cuda_sdpa;

#endif
