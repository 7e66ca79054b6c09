/* Gradients of convolutions of f32 with modest channels on Tensor Cores in TF32, as implicit products: operands are read as they lie, in either
 * layout, and the derivative of the activation behind the convolution is applied on the way. */
#ifndef COTANGENT_OPS_CONV_CUDA_CORES_H
#define COTANGENT_OPS_CONV_CUDA_CORES_H

#include "backends/cuda/view.h"

enum {
    CT_CORES_THREADS = 384,
    CT_CORES_WARPS = CT_CORES_THREADS / 32,
    CT_CORES_WEIGHT_TILES = 3, /* of 8 columns, that a warp has of a weight's gradient */
    CT_CORES_PIXELS = 64,      /* at most, of a chunk in a weight's gradient */
    CT_CORES_INPUT_TILES = 4,  /* of 8 pixels, that a warp has of an input's gradient */
    CT_CORES_SUM_THREADS = 512,
};

/* How a window of an image comes into shared memory: channels, rows, columns. Outside of the image are zeros. */
typedef struct ct_cores_window {
    int64_t n;                       /* stride of images, in elements, */
    int32_t c, h, w;                 /* and in one image */
    int32_t height, width;           /* of the image */
    int32_t channels, rows, columns; /* of the window; columns are whole packs */
    int32_t pitch;        /* elements from channel to channel in shared memory; rows lie one behind the other */
    int32_t pack;         /* neighbours along w that are copied at once: 1, 2 or 4 */
    int32_t last;         /* neighbouring threads take neighbouring channels, else packs of a row */
    int32_t packs, items; /* packs of a row, and of all channels */
    uint32_t over_inner, over_middle; /* 2^32 / n, rounded up, of the two innermost counts */
} ct_cores_window;

/* With y = conv(x, w): g is the cotangent of activation(y), of which `active` is the value. */
typedef struct ct_cuda_cores {
    ct_cuda_head head;
    const float *x, *g, *active; /* active has the strides of g; NULL: there is no activation */
    float *w, *dbias;            /* the results; dbias may be NULL */
    float *dx;                   /* the result of an input's gradient, of which w is an operand then */
    const float *bias;           /* added to dx; NULL: none */
    float *partial, *dbias_partial;
    int64_t w_o, w_i, w_k[2], dbias_stride, bias_stride;
    ct_cores_window xs, gs; /* xs: of an input's gradient the strides and sizes alone */
    int32_t batch, groups, in_each, out_each;
    int32_t in[2], out[2], kernel[2], stride[2], dilation[2], before[2], taps;
    int32_t activation;
    int32_t rows, columns;                      /* of a chunk: results of which one image's are computed at a time */
    int32_t chunks_down, chunks_across, chunks; /* of an image, and of all */
    int32_t parts, each;                        /* of chunks: the sums of a weight's gradient */
    int32_t tiles, tiles_each, column_blocks, row_blocks; /* tiles: of 8 input channels at one tap */
    int32_t warps_n, warps_k, tiles_warp; /* how the warps of a block divide its tiles, and the pixels of a chunk */
    int32_t depth; /* of an input's gradient: output channels that are in shared memory at a time */
    int32_t raw_o, raw_c, raw_tap, raw_size;      /* strides of its weights there as they are copied, and elements */
    int32_t w_pack;                               /* weights that are copied at once: 1 or 4 */
    uint32_t over_row;                            /* 2^32 / n of packs that a channel has of them */
    uint32_t over_columns, over_taps, over_width; /* 2^32 / n of chunks' columns, taps and the kernel's width */
} ct_cuda_cores;

#ifndef __CUDACC__
#include <cotangent/backend.h>

/* One convolution for these kernels. Views are in the order [N,C,H,W] and [out,in,H,W] whatever the layout; w is NULL where nobody has it. */
typedef struct ct_cores_problem {
    const ct_view *x, *w, *g, *active;
    const ct_view *bias; /* of an input's gradient: added; of a weight's: where its gradient goes. Or NULL */
    int64_t stride[2], dilation[2], before[2];
    int activation;
} ct_cores_problem;

/* How it is divided, by sizes alone but for packs, and a whole call. NULL, or why it is none for them, which does not hang on where operands
 * lie. shared_limit: bytes that a block may have. */
typedef struct ct_cores_plan {
    ct_cuda_cores a;
    unsigned shared, blocks, sum_blocks;
    int rows;                /* of a block: 16, 32 or 64 */
    size_t partial, scratch; /* bytes: of the sums of parts, and with those of the bias */
} ct_cores_plan;
const char *ct_cores_plan_weight(const ct_cores_problem *p, unsigned shared_limit, ct_cores_plan *plan);
const char *ct_cores_plan_input(const ct_cores_problem *p, unsigned shared_limit, ct_cores_plan *plan);

/* NULL, or why the call is none for them. *scratch: bytes, by sizes alone. */
const char *ct_cores_weight_refuses(const ct_call *call, const ct_cores_problem *p, size_t *scratch);
bool ct_cores_weight_run(const ct_call *call, const ct_cores_problem *p, char *scratch);
const char *ct_cores_input_refuses(const ct_call *call, const ct_cores_problem *p);
bool ct_cores_input_run(const ct_call *call, const ct_cores_problem *p);
#endif

#endif
