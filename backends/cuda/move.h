/* Copies between strided views, for every op that moves elements and for others on their way. */
#ifndef COTANGENT_BACKENDS_CUDA_MOVE_H
#define COTANGENT_BACKENDS_CUDA_MOVE_H

#include "backends/cuda/nest.h"

/* Operand 0 of the nest is written, 1 read. */
typedef struct ct_cuda_move {
    ct_cuda_head head;
    char *to;
    const char *from;
    ct_cuda_nest nest;
} ct_cuda_move;

/* A batch of matrices [rows, columns]: to is dense along columns, from along rows. The nest is the batch. */
enum { CT_CUDA_TRANSPOSE_THREADS = 256, CT_CUDA_MOVE_BYTES = 256 }; /* of a row of a tile, which has as many columns */
typedef struct ct_cuda_transpose {
    ct_cuda_head head;
    char *to;
    const char *from;
    int64_t rows, columns, to_row, from_column; /* the strides besides the dense ones */
    int64_t row_tiles, column_tiles;
    int32_t packs_read, packs_written; /* sizes, strides and addresses allow packs of neighbours that way */
    ct_cuda_nest nest;
} ct_cuda_transpose;
/* Elements of a tile's side, and of a pack: 16 bytes, or 8 elements. */
#define CT_CUDA_MOVE_SIDE(size) ((size) <= 4 ? 64 : CT_CUDA_MOVE_BYTES / (size))
#define CT_CUDA_MOVE_PACK(size) ((size) >= 2 ? 16 / (size) : 8)

#ifndef __CUDACC__
#include <cotangent/backend.h>

/* Enqueues the copy of from to to, of the same sizes and element size, as part of call. */
bool ct_cuda_copy(const ct_call *call, const ct_view *to, const ct_view *from);
#endif

#endif
