/* gather: one loop over the elements of the index, by rows; dimensions of size 1 dropped and neighbors merged. */
#include <stdatomic.h>

#include "backends/cpu/copy.h"
#include "ops/index/cpu/walk.h"

#include "gen/index.attrs.h"

enum { CHUNK = 32 << 10, STAGE = 4096, PREFETCHED = 8192 /* bytes of x that indices choose from, at most */ };

typedef struct job {
    const ct_call *call;
    int ndim;
    int64_t dims[CT_MAX_DIMS], out[CT_MAX_DIMS], index[CT_MAX_DIMS], x[CT_MAX_DIMS]; /* x: 0 at the axis */
    int64_t count, chunk, along, bound;                                              /* along: the axis' stride in x */
    const char *src, *at;
    char *dst;
    int element;
    bool stream; /* a large result is written past the caches, a stage at a time */
    _Atomic bool failed;
} job;

/* The first index of the row that is out of range, or n. The check comes first, in vectors; the move then needs none.
 * */
#define CHECK_ROW(name, I)                                                                             \
    static int64_t name(const I *at, int64_t step, int64_t n, int64_t bound) {                         \
        int bad = 0;                                                                                   \
        if (step == 1)                                                                                 \
            for (int64_t i = 0; i < n; i++) bad |= (uint64_t)(int64_t)at[i] >= (uint64_t)bound;        \
        else                                                                                           \
            for (int64_t i = 0; i < n; i++) bad |= (uint64_t)(int64_t)at[i * step] >= (uint64_t)bound; \
        if (!bad) return n;                                                                            \
        int64_t i = 0;                                                                                 \
        while ((uint64_t)(int64_t)at[i * step] < (uint64_t)bound) i++;                                 \
        return i;                                                                                      \
    }
CHECK_ROW(check_i32, int32_t)
CHECK_ROW(check_i64, int64_t)

#define GATHER_ROW(name, T, I)                                                                                     \
    static void name(T *restrict dst, int64_t ds, const T *restrict src, int64_t along, int64_t beside,            \
                     const I *restrict at, int64_t step, int64_t n) {                                              \
        if (ds == 1 && step == 1 && along == 1 && beside == 0) {                                                   \
            int64_t i = 0;                                                                                         \
            for (; i + 4 <= n; i += 4) { /* loads one by one: gather instructions are slower on many processors */ \
                const T a = src[at[i]], b = src[at[i + 1]], c = src[at[i + 2]], d = src[at[i + 3]];                \
                dst[i] = a, dst[i + 1] = b, dst[i + 2] = c, dst[i + 3] = d;                                        \
            }                                                                                                      \
            for (; i < n; i++) dst[i] = src[at[i]];                                                                \
        } else if (ds == 1 && step == 1 && beside == 1) {                                                          \
            for (int64_t i = 0; i < n; i++) dst[i] = src[(int64_t)at[i] * along + i];                              \
        } else {                                                                                                   \
            for (int64_t i = 0; i < n; i++) dst[i * ds] = src[(int64_t)at[i * step] * along + i * beside];         \
        }                                                                                                          \
    }
GATHER_ROW(gather_8_i32, unit8, int32_t)
GATHER_ROW(gather_16_i32, unit16, int32_t)
GATHER_ROW(gather_32_i32, unit32, int32_t)
GATHER_ROW(gather_64_i32, unit64, int32_t)
GATHER_ROW(gather_8_i64, unit8, int64_t)
GATHER_ROW(gather_16_i64, unit16, int64_t)
GATHER_ROW(gather_32_i64, unit32, int64_t)
GATHER_ROW(gather_64_i64, unit64, int64_t)

static void gather_to(const job *j, char *dst, const char *src, int64_t at, int64_t n) {
    const int last = j->ndim - 1;
    const int64_t ds = j->out[last], step = j->index[last], beside = j->x[last];
    if (j->call->in[1]->dtype == CT_I32) {
        const int32_t *index = (const int32_t *)(const void *)j->at + at;
        switch (j->element) {
        case 1: gather_8_i32((void *)dst, ds, (const void *)src, j->along, beside, index, step, n); break;
        case 2: gather_16_i32((void *)dst, ds, (const void *)src, j->along, beside, index, step, n); break;
        case 4: gather_32_i32((void *)dst, ds, (const void *)src, j->along, beside, index, step, n); break;
        default: gather_64_i32((void *)dst, ds, (const void *)src, j->along, beside, index, step, n); break;
        }
    } else {
        const int64_t *index = (const int64_t *)(const void *)j->at + at;
        switch (j->element) {
        case 1: gather_8_i64((void *)dst, ds, (const void *)src, j->along, beside, index, step, n); break;
        case 2: gather_16_i64((void *)dst, ds, (const void *)src, j->along, beside, index, step, n); break;
        case 4: gather_32_i64((void *)dst, ds, (const void *)src, j->along, beside, index, step, n); break;
        default: gather_64_i64((void *)dst, ds, (const void *)src, j->along, beside, index, step, n); break;
        }
    }
}

static void gather_row(const job *j, int64_t to, int64_t from, int64_t at, int64_t n) {
    const int last = j->ndim - 1;
    char *dst = j->dst + to * j->element;
    const char *src = j->src + from * j->element;
    if (!j->stream) {
        gather_to(j, dst, src, at, n);
        return;
    }
    _Alignas(64) char stage[STAGE];
    const int64_t most = STAGE / j->element;
    for (int64_t i = 0; i < n; i += most) {
        const int64_t count = ct__min64(most, n - i);
        gather_to(j, stage, src + i * j->x[last] * j->element, at + i * j->index[last], count);
        ct__stream_run(dst + i * j->element, stage, count, (size_t)j->element);
    }
}

static void gather_chunk(void *context, int64_t chunk, int worker) {
    job *j = context;
    (void)worker;
    const ct_view *index = j->call->in[1];
    const int last = j->ndim - 1;
    const int64_t end = ct__min64((chunk + 1) * j->chunk, j->count);
    for (int64_t first = chunk * j->chunk; first < end;) {
        if (atomic_load_explicit(&j->failed, memory_order_relaxed)) return;
        int64_t rest = first, to = 0, from = 0, at = 0, n = 0;
        for (int d = last; d >= 0; d--) {
            const int64_t i = rest % j->dims[d];
            rest /= j->dims[d];
            if (d == last) n = ct__min64(j->dims[d] - i, end - first);
            to += i * j->out[d];
            from += i * j->x[d];
            at += i * j->index[d];
        }
        const int64_t step = j->index[last], row = j->bound * j->element;
        /* nearly all of it will be read, in an order that no processor foresees, once the indices are checked */
        if (j->along == 1 && j->x[last] == 0 && row <= PREFETCHED && n >= j->bound)
            for (int64_t k = 0; k < row; k += 64) __builtin_prefetch(j->src + from * j->element + k, 0, 3);
        const int64_t good = index->dtype == CT_I32
                                 ? check_i32((const int32_t *)(const void *)j->at + at, step, n, j->bound)
                                 : check_i64((const int64_t *)(const void *)j->at + at, step, n, j->bound);
        if (good < n) {
            if (!atomic_exchange(&j->failed, true))
                index_fail(j->call, index, first + good, index_value(index, j->at, at + good * step), j->bound);
            return;
        }
        gather_row(j, to, from, at, n);
        first += n;
    }
    if (j->stream) ct__stream_end();
}

/* y[...] = x[..., index[...], ...] */
static bool run(const ct_call *call, const ct_view *x, int axis) {
    const ct_view *index = call->in[1], *y = call->out[0];
    job j = {.call = call, .count = 1, .element = (int)ct_dtype_size(x->dtype), .along = 1, .bound = 1};
    if (x->ndim) j.along = x->strides[axis], j.bound = x->dims[axis];
    for (int d = 0; d < index->ndim; d++) {
        const int64_t size = index->dims[d], xs = d == axis || d >= x->ndim ? 0 : x->strides[d];
        const int p = j.ndim - 1;
        j.count *= size;
        if (size == 1) continue;
        if (p >= 0 && j.out[p] == size * y->strides[d] && j.index[p] == size * index->strides[d] &&
            j.x[p] == size * xs) {
            j.dims[p] *= size;
        } else {
            j.dims[j.ndim++] = size;
        }
        j.out[j.ndim - 1] = y->strides[d], j.index[j.ndim - 1] = index->strides[d], j.x[j.ndim - 1] = xs;
    }
    if (j.count == 0) return true;
    if (j.ndim == 0) j.ndim = 1, j.dims[0] = 1;
    j.dst = ct__address(y, (size_t)j.element);
    j.src = ct__address(x, (size_t)j.element);
    j.at = ct__address(index, ct_dtype_size(index->dtype));
    j.stream = j.out[j.ndim - 1] == 1 && j.dims[j.ndim - 1] * j.element >= 512 && ct__stream_worth(j.count * j.element);
    j.chunk = ct__grain(CHUNK);
    ct__parallel((j.count + j.chunk - 1) / j.chunk, gather_chunk, &j);
    return !atomic_load(&j.failed);
}

static bool run_gather(const ct_call *call, ct_stream *stream) {
    const ct_view *x = call->in[0];
    const int64_t axis = ((const gather_attrs *)call->attrs)->axis;
    (void)stream;
    return run(call, x, (int)(axis < 0 ? axis + (x->ndim ? x->ndim : 1) : axis));
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
    return as_vector(call->in[0], &flat) ? NULL : "x is not one vector in memory";
}

static bool run_take(const ct_call *call, ct_stream *stream) {
    ct_view flat;
    (void)stream;
    as_vector(call->in[0], &flat);
    return run(call, &flat, 0);
}

CT_KERNELS(index_gather) = {
    CT_CANDIDATES(gather, {"gather_rows", NULL, NULL, run_gather}),
    CT_CANDIDATES(take, {"take_rows", can_take, NULL, run_take}),
    {0},
};
