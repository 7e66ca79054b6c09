/* The host side of strided copies: which way is the best for two views. */
#include "backends/cuda/move.h"

#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"

CT_CUDA_OVERLAPPING_UNIT(backend_move);
/* By the tile: square, of few columns, of few rows. */
enum { SQUARE, TALL, WIDE };
#define OF_SIZES(name)                                                                      \
    {                                                                                       \
        CT_CUDA_FUNCTION(name "1"), CT_CUDA_FUNCTION(name "2"), CT_CUDA_FUNCTION(name "4"), \
            CT_CUDA_FUNCTION(name "8"), CT_CUDA_FUNCTION(name "16"),                        \
    }
static ct_cuda_function moves[] = OF_SIZES("move_");
static ct_cuda_function transposes[][5] = {
    [SQUARE] = OF_SIZES("transpose_"), [TALL] = OF_SIZES("transpose_tall_"), [WIDE] = OF_SIZES("transpose_wide_")};

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* The dimensions in the order in which they lie in `to`, so that neighbouring threads write neighbouring elements. */
static void order_dims(ct_cuda_view *to, ct_cuda_view *from) {
    for (int i = 1; i < to->ndim; i++)
        for (int k = i; k > 0 && magnitude(to->strides[k - 1]) < magnitude(to->strides[k]); k--) {
            const int64_t size = to->dims[k], to_stride = to->strides[k], from_stride = from->strides[k];
            to->dims[k] = to->dims[k - 1], to->strides[k] = to->strides[k - 1];
            from->dims[k] = from->dims[k - 1], from->strides[k] = from->strides[k - 1];
            to->dims[k - 1] = from->dims[k - 1] = size;
            to->strides[k - 1] = to_stride, from->strides[k - 1] = from_stride;
        }
}

/* Elements twice as wide, where both views can be seen so. */
static bool widen(ct_cuda_view *to, ct_cuda_view *from, size_t size) {
    const int last = to->ndim - 1;
    if (to->strides[last] != 1 || from->strides[last] != 1 || to->dims[last] % 2) return false;
    if ((uintptr_t)to->data % (2 * size) || (uintptr_t)from->data % (2 * size)) return false;
    for (int d = 0; d < last; d++)
        if (to->strides[d] % 2 || from->strides[d] % 2) return false;
    for (int d = 0; d < last; d++) to->strides[d] /= 2, from->strides[d] /= 2;
    to->dims[last] /= 2, from->dims[last] /= 2;
    return true;
}

static void nest_of(ct_cuda_nest *nest, const ct_cuda_view *to, const ct_cuda_view *from, int but, int and_but) {
    ct_cuda_nest_begin(nest);
    for (int d = 0; d < to->ndim; d++)
        if (d != but && d != and_but)
            ct_cuda_nest_add(nest, to->dims[d],
                             (const int64_t[CT_CUDA_NEST_OPERANDS]){to->strides[d], from->strides[d], 0, 0});
    ct_cuda_nest_end(nest);
}

/* The dimension along which from is dense while to is dense along the last; -1: it is no transpose. */
static int transposed(const ct_cuda_view *to, const ct_cuda_view *from) {
    enum { LEAST = 8 }; /* below it most of a tile would be idle */
    const int last = to->ndim - 1;
    if (to->strides[last] != 1 || magnitude(from->strides[last]) <= 1 || to->dims[last] < LEAST) return -1;
    for (int d = 0; d < last; d++)
        if (from->strides[d] == 1 && to->dims[d] >= LEAST) return d;
    return -1;
}

/* Whether packs of neighbours along `dense` lie in line in a view. */
static bool in_packs(const ct_cuda_view *view, int dense, int64_t pack, size_t size) {
    if (view->dims[dense] % pack || (uintptr_t)view->data % ((size_t)pack * size)) return false;
    for (int d = 0; d < view->ndim; d++)
        if (d != dense && view->strides[d] % pack) return false;
    return true;
}

static bool transpose(const ct_call *call, const ct_cuda_view *to, const ct_cuda_view *from, int rows, int level) {
    enum { THREADS = CT_CUDA_TRANSPOSE_THREADS, MOST = 1 << 20 };
    const int last = to->ndim - 1, size = 1 << level, side = CT_CUDA_MOVE_SIDE(size);
    ct_cuda_transpose a;
    memset(&a, 0, sizeof a);
    a.to = to->data, a.from = from->data;
    a.rows = to->dims[rows], a.columns = to->dims[last];
    a.to_row = to->strides[rows], a.from_column = from->strides[last];
    const int tile = 2 * a.columns <= side ? TALL : 2 * a.rows <= side ? WIDE : SQUARE;
    a.row_tiles = ct_cuda_ceil_div(a.rows, tile == TALL ? 2 * side : tile == WIDE ? side / 2 : side);
    a.column_tiles = ct_cuda_ceil_div(a.columns, tile == TALL ? side / 2 : tile == WIDE ? 2 * side : side);
    a.packs_read = in_packs(from, rows, CT_CUDA_MOVE_PACK(size), (size_t)size);
    a.packs_written = in_packs(to, last, CT_CUDA_MOVE_PACK(size), (size_t)size);
    nest_of(&a.nest, to, from, rows, last);
    /* a block per tile: the next one reads while this one writes */
    const int64_t tiles = a.row_tiles * a.column_tiles * a.nest.total;
    const ct_cuda_shape shape = {.grid = (unsigned)(tiles < MOST ? tiles : MOST), .block = THREADS};
    return ct_cuda_launch(call, &transposes[tile][level], shape, &a);
}

bool ct_cuda_copy(const ct_call *call, const ct_view *to_view, const ct_view *from_view) {
    ct_cuda_view views[2] = {ct_cuda_view_of(to_view), ct_cuda_view_of(from_view)}, *to = &views[0], *from = &views[1];
    if (ct_cuda_count(to_view) == 0) return true;
    size_t size = ct_cuda_dtype_size(to_view->dtype);
    order_dims(to, from);
    ct_cuda_collapse(views, 2);
    int level = 0;
    while ((size_t)1 << level < size) level++;
    while (level < 4 && widen(to, from, size)) size *= 2, level++;
    const int rows = transposed(to, from);
    if (rows >= 0) return transpose(call, to, from, rows, level);
    ct_cuda_move a;
    memset(&a, 0, sizeof a);
    a.to = to->data, a.from = from->data;
    nest_of(&a.nest, to, from, -1, -1);
    return ct_cuda_launch(call, &moves[level],
                          (ct_cuda_shape){.grid = ct_cuda_all_blocks(call, a.nest.total, 256), .block = 256}, &a);
}
