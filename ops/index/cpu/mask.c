/* Elements by a mask: each chunk is counted, the counts become the chunks' places in the result, and each chunk is
 * then worked off by itself. */
#include <string.h>

#include "ops/index/cpu/walk.h"

#include "gen/index.attrs.h"

enum { CHUNK = 16 << 10 };

/* Bits of -0.0 count as zero; half and float types have the sign on top. */
static bool is_zero(ct_dtype dtype, const void *p) {
    switch (dtype) {
    case CT_F32: return *(const float *)p == 0;
    case CT_F64: return *(const double *)p == 0;
    case CT_F16:
    case CT_BF16: return (*(const uint16_t *)p & 0x7fff) == 0;
    case CT_F8E4M3:
    case CT_F8E5M2: return (*(const uint8_t *)p & 0x7f) == 0;
    case CT_COMPLEX64: return ((const float *)p)[0] == 0 && ((const float *)p)[1] == 0;
    default: break;
    }
    switch (ct_dtype_size(dtype)) {
    case 1: return *(const uint8_t *)p == 0;
    case 2: return *(const uint16_t *)p == 0;
    case 4: return *(const uint32_t *)p == 0;
    default: return *(const uint64_t *)p == 0;
    }
}

/* A walk over the elements of a view in row-major order. */
typedef struct walker {
    const ct_view *view;
    const char *base;
    int64_t at[CT_MAX_DIMS], place; /* place: in elements from the first */
} walker;

static walker walk_from(const ct_view *view, int64_t i) {
    walker w = {.view = view, .base = ct__address(view, ct_dtype_size(view->dtype))};
    for (int d = view->ndim - 1; d >= 0; d--) {
        w.at[d] = i % view->dims[d];
        i /= view->dims[d];
        w.place += w.at[d] * view->strides[d];
    }
    return w;
}

static inline void step(walker *w) {
    for (int d = w->view->ndim - 1; d >= 0; d--) {
        w->place += w->view->strides[d];
        if (++w->at[d] < w->view->dims[d]) return;
        w->place -= w->at[d] * w->view->strides[d];
        w->at[d] = 0;
    }
}

typedef struct job {
    const ct_view *tested, *other, *y; /* what decides; what moves with it; the result */
    int64_t count, chunk, chunks;
    int64_t *starts; /* of each chunk in the result, and the end of the last */
    void (*work)(const struct job *j, int64_t first, int64_t end, int64_t at);
} job;

static bool is_dense(const ct_view *x) {
    int64_t stride = 1;
    for (int d = x->ndim - 1; d >= 0; stride *= x->dims[d--])
        if (x->dims[d] != 1 && x->strides[d] != stride) return false;
    return true;
}

#define COUNT(type, T)                                                         \
    static int64_t count_##type(const void *x, int64_t first, int64_t end) {   \
        int64_t found = 0;                                                     \
        for (int64_t i = first; i < end; i++) found += ((const T *)x)[i] != 0; \
        return found;                                                          \
    }
COUNT(8, uint8_t)
COUNT(f32, float)
COUNT(i32, int32_t)
COUNT(i64, int64_t)

static int64_t count_range(const ct_view *x, int64_t first, int64_t end) {
    const int64_t size = (int64_t)ct_dtype_size(x->dtype);
    int64_t found = 0;
    const bool dense = is_dense(x);
    const char *base = ct__address(x, (size_t)size);
    if (dense && (x->dtype == CT_BOOL || x->dtype == CT_U8 || x->dtype == CT_I8)) return count_8(base, first, end);
    if (dense && x->dtype == CT_F32) return count_f32(base, first, end);
    if (dense && x->dtype == CT_I32) return count_i32(base, first, end);
    if (dense && x->dtype == CT_I64) return count_i64(base, first, end);
    if (dense) {
        for (int64_t i = first; i < end; i++) found += !is_zero(x->dtype, base + i * size);
    } else {
        walker w = walk_from(x, first);
        for (int64_t i = first; i < end; i++, step(&w)) found += !is_zero(x->dtype, base + w.place * size);
    }
    return found;
}

static void count_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    (void)worker;
    j->starts[chunk] = count_range(j->tested, chunk * j->chunk, ct__min64((chunk + 1) * j->chunk, j->count));
}

static void work_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    (void)worker;
    j->work(j, chunk * j->chunk, ct__min64((chunk + 1) * j->chunk, j->count), j->starts[chunk]);
}

static int64_t elements(const ct_view *view) {
    int64_t count = 1;
    for (int d = 0; d < view->ndim; d++) count *= view->dims[d];
    return count;
}

static size_t scratch_for(const ct_view *tested) {
    const int64_t chunk = ct__grain(CHUNK);
    return (size_t)((elements(tested) + chunk - 1) / chunk + 1) * sizeof(int64_t);
}

/* Counts every chunk; returns the sum. */
static int64_t plan(job *j, const ct_call *call, const ct_view *tested) {
    int64_t total = 0;
    *j = (job){.tested = tested,
               .y = call->out[0],
               .count = elements(tested),
               .chunk = ct__grain(CHUNK),
               .starts = ct__scratch(call)};
    j->chunks = (j->count + j->chunk - 1) / j->chunk;
    ct__parallel(j->chunks, count_chunk, j);
    for (int64_t i = 0; i < j->chunks; i++) {
        const int64_t n = j->starts[i];
        j->starts[i] = total;
        total += n;
    }
    j->starts[j->chunks] = total;
    return total;
}

static bool finish(job *j, const ct_call *call, int64_t total, int64_t expected) {
    if (total != expected)
        return ct__wrong_count(call, 0, "the number of chosen elements", -1, total, expected, expected);
    ct__parallel(j->chunks, work_chunk, j);
    return true;
}

static size_t scratch_first(const ct_call *call) { return scratch_for(call->in[0]); }
static size_t scratch_second(const ct_call *call) { return scratch_for(call->in[1]); }

static bool run_count(const ct_call *call, ct_stream *stream) {
    job j;
    (void)stream;
    *CT_AT(int64_t, call->out[0]) = plan(&j, call, call->in[0]);
    return true;
}

/* ---- nonzero ---- */

static void nonzero_range(const job *j, int64_t first, int64_t end, int64_t at) {
    const ct_view *x = j->tested, *y = j->y;
    const int64_t size = (int64_t)ct_dtype_size(x->dtype);
    int64_t *out = CT_AT(int64_t, y);
    walker w = walk_from(x, first);
    for (int64_t i = first; i < end; i++, step(&w)) {
        if (is_zero(x->dtype, w.base + w.place * size)) continue;
        for (int d = 0; d < x->ndim; d++) out[at * y->strides[0] + d * y->strides[1]] = w.at[d];
        at++;
    }
}

static bool run_nonzero(const ct_call *call, ct_stream *stream) {
    job j;
    (void)stream;
    const int64_t total = plan(&j, call, call->in[0]);
    j.work = nonzero_range;
    return finish(&j, call, total, call->out[0]->dims[0]);
}

/* ---- masked_take, masked_put ---- */

#define BITS 8
#include "ops/index/cpu/mask_range.h"
#define BITS 16
#include "ops/index/cpu/mask_range.h"
#define BITS 32
#include "ops/index/cpu/mask_range.h"
#define BITS 64
#include "ops/index/cpu/mask_range.h"

static int by_size(const ct_view *view) {
    const size_t size = ct_dtype_size(view->dtype);
    return size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
}

static bool run_take(const ct_call *call, ct_stream *stream) {
    static void (*const work[])(const job *, int64_t, int64_t, int64_t) = {take_range8, take_range16, take_range32,
                                                                           take_range64};
    job j;
    (void)stream;
    const int64_t total = plan(&j, call, call->in[1]);
    j.other = call->in[0];
    j.work = work[by_size(call->out[0])];
    return finish(&j, call, total, call->out[0]->dims[0]);
}

static bool run_put(const ct_call *call, ct_stream *stream) {
    static void (*const work[])(const job *, int64_t, int64_t, int64_t) = {put_range8, put_range16, put_range32,
                                                                           put_range64};
    job j;
    (void)stream;
    const int64_t total = plan(&j, call, call->in[1]);
    j.other = call->in[0];
    j.work = work[by_size(call->out[0])];
    return finish(&j, call, total, call->in[0]->dims[0]);
}

CT_KERNELS(index_mask) = {
    CT_CANDIDATES(nonzero_count, {"nonzero_count", NULL, scratch_first, run_count}),
    CT_CANDIDATES(nonzero_places, {"nonzero_chunks", NULL, scratch_first, run_nonzero}),
    CT_CANDIDATES(masked_take, {"masked_take_chunks", NULL, scratch_second, run_take}),
    CT_CANDIDATES(masked_put, {"masked_put_chunks", NULL, scratch_second, run_put}),
    {0},
};
