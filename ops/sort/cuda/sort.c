/* Sort along an axis: tiles in shared memory, then as many passes of merges as a long line needs. */
#include "ops/sort/cuda/sort.h"

#include <string.h>

#include "backends/cuda/cuda.h"

#include "gen/sort.attrs.h"

CT_CUDA_UNIT(sort_sort);

/* Items that are sorted at once, however many lines there are: it limits the scratch memory. */
static const int64_t most_items = (int64_t)1 << 25;

static ct_cuda_function tiles_functions[] = {CT_CUDA_FUNCTION("sort_tiles_narrow"),
                                             CT_CUDA_FUNCTION("sort_tiles_wide")};
static ct_cuda_function merge_functions[] = {CT_CUDA_FUNCTION("sort_merge_narrow"),
                                             CT_CUDA_FUNCTION("sort_merge_wide")};

static int64_t length_of(const ct_call *call) {
    const ct_view *x = call->in[0];
    const int64_t axis = ((const sort_attrs *)call->attrs)->axis;
    return x->ndim ? x->dims[axis < 0 ? axis + x->ndim : axis] : 1;
}

static bool is_wide(const ct_call *call) {
    return ct_cuda_dtype_size(call->in[0]->dtype) > 4 || length_of(call) >= UINT32_MAX;
}

/* Lines whose merges share the scratch memory. */
static int64_t lines_at_once(int64_t lines, int64_t n) {
    const int64_t fit = most_items / n;
    return fit < 1 ? 1 : fit < lines ? fit : lines;
}

static size_t half_of_scratch(const ct_call *call) {
    const int64_t count = ct_cuda_count(call->in[0]), n = length_of(call);
    if (count == 0 || n <= CT_SORT_TILE) return 0;
    return (size_t)(lines_at_once(count / n, n) * n) * (is_wide(call) ? 16 : 8);
}

static size_t scratch(const ct_call *call) { return 2 * half_of_scratch(call); }

static unsigned grid_of(int64_t blocks) { return (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20); }

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const sort_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0], *views[3] = {x, call->out[0], call->n_out > 1 ? call->out[1] : NULL};
    if (ct_cuda_count(x) == 0 || (!views[1] && !views[2])) return true;
    const int axis = x->ndim ? (int)(attrs->axis < 0 ? attrs->axis + x->ndim : attrs->axis) : 0;
    const int wide = is_wide(call);
    ct_cuda_sort a;
    memset(&a, 0, sizeof a);
    a.x = ct_cuda_address(x);
    a.values = views[1] ? ct_cuda_address(views[1]) : NULL;
    a.indices = views[2] ? ct_cuda_address(views[2]) : NULL;
    if (x->ndim) {
        a.x_step = x->strides[axis];
        a.values_step = views[1] ? views[1]->strides[axis] : 0;
        a.indices_step = views[2] ? views[2]->strides[axis] : 0;
    }
    a.lines = ct_cuda_lines(views, 3, axis);
    a.n = length_of(call);
    a.dtype = (int32_t)x->dtype;
    a.size = (int32_t)ct_cuda_dtype_size(x->dtype);
    a.descending = attrs->descending;
    a.tiles = ct_cuda_ceil_div(a.n, CT_SORT_TILE);
    a.room = 1;
    while (a.room < a.n && a.room < CT_SORT_TILE) a.room *= 2;

    const int64_t at_once = a.tiles == 1 ? a.lines.total : lines_at_once(a.lines.total, a.n);
    char *halves[2] = {ct_cuda_scratch(call), ct_cuda_scratch(call) + half_of_scratch(call)};
    for (a.first_line = 0; a.first_line < a.lines.total; a.first_line += a.line_count) {
        const int64_t left = a.lines.total - a.first_line;
        a.line_count = left < at_once ? left : at_once;
        const int64_t jobs = a.line_count * a.tiles;
        ct_cuda_shape shape = {.grid = grid_of(ct_cuda_ceil_div(jobs, CT_SORT_TILE / a.room)),
                               .block = CT_SORT_THREADS};
        a.last = a.tiles == 1;
        a.to = halves[0];
        if (!ct_cuda_launch(call, &tiles_functions[wide], shape, &a)) return false;
        shape.grid = grid_of(jobs);
        int half = 0;
        for (a.run = CT_SORT_TILE; a.run < a.n; a.run *= 2, half ^= 1) {
            a.from = halves[half];
            a.to = halves[half ^ 1];
            a.last = 2 * a.run >= a.n;
            if (!ct_cuda_launch(call, &merge_functions[wide], shape, &a)) return false;
        }
    }
    return true;
}

static const char *can(const ct_call *call) { return call->in[0]->dtype <= CT_BOOL ? NULL : "no order on this dtype"; }

CT_CUDA_KERNELS(sort_sort) = {
    CT_CANDIDATES(sort, {"merge_sort", can, scratch, run}),
    {0},
};
