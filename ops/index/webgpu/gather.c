/* gather, take, index_select and embedding: the same kernel, over an index that is expanded to rows for the last
 * two. */
#include "backends/webgpu/indices.h"

#include "gen/index.attrs.h"

CT_WGPU_UNIT(index_gather);
extern const char ct_wgsl_index_gather_words[];
static const ct_wgpu_unit by_words = {"index_gather_words", ct_wgsl_index_gather_words};
enum { THREADS = 256 };

typedef struct params {
    uint32_t total, rank, bound, along;
    uint32_t dims[CT_WGPU_DIMS], strides[4][CT_WGPU_DIMS];
    uint32_t length;
} params;

/* walk: to, from (0 at the axis), index in elements, the row-major place in index. */
static bool launch_walk(const ct_call *call, ct_wgpu_walk *walk, const ct_view *x, int axis) {
    const ct_view *index = call->in[1], *y = call->out[0];
    const uint64_t to = ct_wgpu_begin_of(y), from = ct_wgpu_begin_of(x);
    int64_t along = x->ndim ? x->strides[axis] : 0;
    params p = {.bound = (uint32_t)(x->ndim ? x->dims[axis] : 1)};
    if (walk->total == 0) return true;
    const size_t size = ct_wgpu_widen(walk, ct_wgpu_dtype_size(x->dtype), to, from, &along);
    const bool words = ct_wgpu_word_runs(walk, size, to, &p.length);
    p.total = (uint32_t)walk->total, p.rank = (uint32_t)walk->ndim, p.along = (uint32_t)along;
    for (int d = 0; d < walk->ndim; d++) walk->strides[2][d] *= ct_wgpu_index_words(index);
    ct_wgpu_walk_dims(walk, p.dims);
    for (int k = 0; k < 4; k++) ct_wgpu_walk_strides(walk, k, p.strides[k]);
    ct_wgpu_launch launch = ct_wgpu_begin(words ? &by_words : &unit, "gather", THREADS);
    int64_t items = walk->total;
    if (words) {
        ct_wgpu_bits_operand(&launch, "to", y, size, CT_WGPU_WRITTEN | CT_WGPU_WORDS);
        ct_wgpu_bits_operand(&launch, "from", x, size, 0);
        items = walk->total / p.length * ct_wgpu_ceil_div(p.length, (int64_t)(4 / size));
    } else {
        ct_wgpu_move_operands(&launch, y, x, size);
    }
    ct_wgpu_index_operand(&launch, index);
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(items, THREADS), &p, sizeof p);
}

/* y[...] = x[..., index[...], ...] */
static bool gather(const ct_call *call, const ct_view *x, int axis) {
    const ct_view *index = call->in[1], *y = call->out[0];
    int64_t places[CT_WGPU_DIMS];
    ct_wgpu_row_major(index, places);
    ct_wgpu_walk walk = ct_wgpu_walk_begin(4);
    for (int d = 0; d < index->ndim; d++) {
        const int64_t from = d == axis || d >= x->ndim ? 0 : x->strides[d];
        ct_wgpu_walk_add(&walk, index->dims[d], (const int64_t[]){y->strides[d], from, index->strides[d], places[d]});
    }
    return launch_walk(call, &walk, x, axis);
}

static bool run_gather(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return gather(call, call->in[0], ct_wgpu_axis(((const gather_attrs *)call->attrs)->axis, call->in[0]));
}

/* x as one vector, where its strides allow that. */
static bool as_vector(const ct_view *x, ct_view *flat) {
    *flat = *x;
    flat->ndim = 1;
    flat->dims[0] = flat->strides[0] = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        if (x->dims[d] == 1) continue;
        if (flat->dims[0] != 1 && x->strides[d] != flat->dims[0] * flat->strides[0]) return false;
        if (flat->dims[0] == 1) flat->strides[0] = x->strides[d];
        flat->dims[0] *= x->dims[d];
    }
    return true;
}

static const char *can_take(const ct_call *call) {
    ct_view flat;
    return as_vector(call->in[0], &flat) ? ct_wgpu_refuses(call) : "x is not one vector in memory";
}

static bool run_take(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_view flat;
    as_vector(call->in[0], &flat);
    return gather(call, &flat, 0);
}

/* y[o..., i..., r...] = x[o..., index[i...], r...]; index takes the place of the axis. */
static bool select_rows(const ct_call *call, int axis) {
    const ct_view *x = call->in[0], *index = call->in[1], *y = call->out[0];
    int64_t places[CT_WGPU_DIMS], outer = 1;
    ct_wgpu_row_major(index, places);
    ct_wgpu_walk walk = ct_wgpu_walk_begin(4);
    /* an index_select with a scalar index keeps the axis, with size 1 */
    const int instead = y->ndim - (x->ndim ? x->ndim - 1 : 0), rank = index->ndim < instead ? index->ndim : instead;
    for (int d = 0; d < axis; d++) {
        outer *= x->dims[d];
        ct_wgpu_walk_add(&walk, x->dims[d], (const int64_t[]){y->strides[d], x->strides[d], 0, 0});
    }
    for (int d = 0; d < rank; d++)
        ct_wgpu_walk_add(&walk, index->dims[d],
                         (const int64_t[]){y->strides[axis + d], 0, index->strides[d], places[d]});
    for (int d = axis + 1; d < x->ndim; d++)
        ct_wgpu_walk_add(&walk, x->dims[d], (const int64_t[]){y->strides[d - 1 + instead], x->strides[d], 0, 0});
    /* indices that choose nothing, of rows without elements, have to be in range all the same */
    if (walk.total == 0 && outer > 0) return ct_wgpu_look(call, index, x->ndim ? x->dims[axis] : 1, 1);
    return launch_walk(call, &walk, x, axis);
}

static bool run_select(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return select_rows(call, ct_wgpu_axis(((const index_select_attrs *)call->attrs)->axis, call->in[0]));
}

static bool run_embedding(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return select_rows(call, 0);
}

CT_WGPU_KERNELS(index_gather) = {
    CT_CANDIDATES(gather, {"gather_elements", ct_wgpu_refuses, NULL, run_gather}),
    CT_CANDIDATES(take, {"take_elements", can_take, NULL, run_take}),
    CT_CANDIDATES(index_select, {"index_select_rows", ct_wgpu_refuses, NULL, run_select}),
    CT_CANDIDATES(embedding, {"embedding_rows", ct_wgpu_refuses, NULL, run_embedding}),
    {0},
};
