/* index_select and embedding: rows copied to their places. The row is what lies behind the axis, dense in x where it
 * can be. */
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/copy.h"
#include "ops/index/cpu/walk.h"

#include "gen/index.attrs.h"

enum { CHUNK = 64 << 10 }; /* bytes */

typedef struct job {
    const ct_call *call;
    const ct_view *index;
    int64_t outer, n, inner; /* [outer, n, inner] elements go from [outer, bound, inner] */
    int outer_ndim, inner_ndim;
    int64_t outer_dims[CT_MAX_DIMS], outer_to[CT_MAX_DIMS], outer_from[CT_MAX_DIMS]; /* before the axis */
    int64_t inner_dims[CT_MAX_DIMS], inner_to[CT_MAX_DIMS], inner_from[CT_MAX_DIMS]; /* after it */
    int index_ndim;
    int64_t index_dims[CT_MAX_DIMS], index_at[CT_MAX_DIMS],
        index_to[CT_MAX_DIMS]; /* the index's own dimensions, and their strides in the result */
    int64_t from_axis, bound;
    char *dst;
    const char *src, *at;
    size_t size;
    int64_t rows_a_chunk;
    bool stream;
    _Atomic bool failed;
} job;

static int add_dim(int n, int64_t *dims, int64_t *a, int64_t *b, int64_t size, int64_t stride_a, int64_t stride_b) {
    if (size == 1) return n;
    if (n && a[n - 1] == size * stride_a && b[n - 1] == size * stride_b) {
        dims[n - 1] *= size;
        n--;
    } else {
        dims[n] = size;
    }
    a[n] = stride_a, b[n] = stride_b;
    return n + 1;
}

static inline void place(int n, const int64_t *dims, const int64_t *a, const int64_t *b, int64_t i, int64_t *pa,
                         int64_t *pb) {
    if (n == 1) {
        *pa += i * a[0];
        *pb += i * b[0];
        return;
    }
    for (int d = n - 1; d >= 0; d--) {
        *pa += i % dims[d] * a[d];
        *pb += i % dims[d] * b[d];
        i /= dims[d];
    }
}

static void copy_row(const job *j, char *dst, const char *src) {
    const int64_t bytes = j->inner * (int64_t)j->size;
    if (j->inner_ndim == 0 || (j->inner_ndim == 1 && j->inner_to[0] == 1 && j->inner_from[0] == 1)) {
        if (j->stream) ct__stream_run(dst, src, j->inner, j->size);
        else if (bytes == 4) memcpy(dst, src, 4);
        else if (bytes == 8) memcpy(dst, src, 8);
        else memcpy(dst, src, (size_t)bytes);
        return;
    }
    if (j->inner_ndim == 1) {
        ct__copy_run(dst, j->inner_to[0], src, j->inner_from[0], j->inner, j->size);
        return;
    }
    ct__copy(dst, j->inner_to, src, j->inner_from, j->inner_ndim, j->inner_dims, j->size);
}

static void select_chunk(void *context, int64_t chunk, int worker) {
    job *j = context;
    (void)worker;
    const int64_t size = (int64_t)j->size, end = ct__min64((chunk + 1) * j->rows_a_chunk, j->outer * j->n);
    int64_t row = chunk * j->rows_a_chunk, i = row % j->n, to_outer = 0, from_outer = 0;
    place(j->outer_ndim, j->outer_dims, j->outer_to, j->outer_from, row / j->n, &to_outer, &from_outer);
    for (; row < end; row++) {
        int64_t to = 0, at = 0;
        place(j->index_ndim, j->index_dims, j->index_to, j->index_at, i, &to, &at);
        const int64_t k = index_value(j->index, j->at, at);
        if (__builtin_expect((uint64_t)k >= (uint64_t)j->bound, 0)) {
            if (!atomic_exchange(&j->failed, true)) index_fail(j->call, j->index, i, k, j->bound);
            return;
        }
        copy_row(j, j->dst + (to + to_outer) * size, j->src + (from_outer + k * j->from_axis) * size);
        if (++i == j->n) {
            i = to_outer = from_outer = 0;
            place(j->outer_ndim, j->outer_dims, j->outer_to, j->outer_from, row / j->n + 1, &to_outer, &from_outer);
        }
    }
    if (j->stream) ct__stream_end();
}

/* y[o..., i..., r...] = x[o..., index[i...], r...]; index replaces the axis. */
static bool run(const ct_call *call, int axis) {
    const ct_view *x = call->in[0], *index = call->in[1], *y = call->out[0];
    job j = {.call = call, .index = index, .outer = 1, .n = 1, .inner = 1, .size = ct_dtype_size(x->dtype), .bound = 1};
    if (x->ndim) j.from_axis = x->strides[axis], j.bound = x->dims[axis];
    /* an index_select with a scalar index keeps the axis, with size 1 */
    const int skip = y->ndim - (x->ndim ? x->ndim - 1 : 0), rank = index->ndim < skip ? index->ndim : skip;
    for (int d = 0; d < axis; d++) {
        j.outer *= x->dims[d];
        j.outer_ndim =
            add_dim(j.outer_ndim, j.outer_dims, j.outer_to, j.outer_from, x->dims[d], y->strides[d], x->strides[d]);
    }
    for (int d = 0; d < index->ndim; d++) {
        j.n *= index->dims[d];
        if (d < rank)
            j.index_ndim = add_dim(j.index_ndim, j.index_dims, j.index_to, j.index_at, index->dims[d],
                                   y->strides[axis + d], index->strides[d]);
    }
    for (int d = axis + 1; d < x->ndim; d++) {
        const int at = d - 1 + skip;
        j.inner *= x->dims[d];
        j.inner_ndim =
            add_dim(j.inner_ndim, j.inner_dims, j.inner_to, j.inner_from, x->dims[d], y->strides[at], x->strides[d]);
    }
    if (j.outer * j.n * j.inner == 0) {
        if (j.n == 0) return true;
        j.inner = 0; /* still look at the indices, once */
        if (j.outer > 1) j.outer = 1, j.outer_ndim = 0;
    }
    if (j.outer == 0) return true;
    j.dst = ct__address(y, j.size);
    j.src = ct__address(x, j.size);
    j.at = ct__address(index, ct_dtype_size(index->dtype));
    j.rows_a_chunk = ct__grain(1 + CHUNK / ct__max64(8, j.inner * (int64_t)j.size));
    if (j.inner == 0) j.inner_ndim = 0;
    j.stream = j.inner * (int64_t)j.size >= 512 && ct__stream_worth(j.outer * j.n * j.inner * (int64_t)j.size);
    ct__parallel((j.outer * j.n + j.rows_a_chunk - 1) / j.rows_a_chunk, select_chunk, &j);
    return !atomic_load(&j.failed);
}

static bool run_select(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const int64_t axis = ((const index_select_attrs *)call->attrs)->axis;
    const int ndim = call->in[0]->ndim ? call->in[0]->ndim : 1;
    return run(call, (int)(axis < 0 ? axis + ndim : axis));
}

static bool run_embedding(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return run(call, 0);
}

CT_KERNELS(index_select) = {
    CT_CANDIDATES(index_select, {"index_select_rows", NULL, NULL, run_select}),
    CT_CANDIDATES(embedding, {"embedding_rows", NULL, NULL, run_embedding}),
    {0},
};
