/* scatter_add and gather_grad: sums along one axis, each lane in order. Half types are summed in f32, in scratch memory. */
#include "backends/cpu/copy.h"
#include "ops/index/lanes.h"

#define ADD_FNS(type, T, S, BODY)                \
    STRIP_FN(add_##type##_i32, T, S, int32_t, BODY) \
    STRIP_FN(add_##type##_i64, T, S, int64_t, BODY)

static inline float from_f16(const uint16_t *h) { return vf32_load_f16_n(h, 1)[0]; }
static inline float from_bf16(const uint16_t *h) {
    const uint32_t bits = (uint32_t)*h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

ADD_FNS(f32, float, float, *to += *from)
ADD_FNS(f64, double, double, *to += *from)
ADD_FNS(f16, float, uint16_t, *to += from_f16(from))
ADD_FNS(bf16, float, uint16_t, *to += from_bf16(from))
ADD_FNS(8, uint8_t, uint8_t, *to = (uint8_t)(*to + *from))
ADD_FNS(16, uint16_t, uint16_t, *to = (uint16_t)(*to + *from))
ADD_FNS(32, uint32_t, uint32_t, *to += *from)
ADD_FNS(64, uint64_t, uint64_t, *to += *from)
ADD_FNS(bool, uint8_t, uint8_t, *to |= *from)

static strip_fn choose(ct_dtype dtype, bool wide) {
#define PICK(type) return wide ? add_##type##_i64 : add_##type##_i32
    switch (dtype) {
    case CT_F32: PICK(f32);
    case CT_F64: PICK(f64);
    case CT_F16: PICK(f16);
    case CT_BF16: PICK(bf16);
    case CT_I16: PICK(16);
    case CT_I32: PICK(32);
    case CT_I64: PICK(64);
    case CT_BOOL: PICK(bool);
    default: PICK(8);
    }
#undef PICK
}

static bool is_half(ct_dtype dtype) { return dtype == CT_F16 || dtype == CT_BF16; }

static int64_t count_of(const ct_view *view) {
    int64_t count = 1;
    for (int i = 0; i < view->ndim; i++) count *= view->dims[i];
    return count;
}

static bool is_dense(const ct_view *view) {
    int64_t stride = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->dims[i] != 1 && view->strides[i] != stride) return false;
        stride *= view->dims[i];
    }
    return true;
}

/* ---- Half types: widen, add, round once ---- */

typedef struct half_job {
    const ct_view *x, *y; /* x NULL: zeros */
    float *wide;          /* dense, of y's shape */
    int64_t count, chunk;
} half_job;

static int64_t place_of(const ct_view *view, int64_t i) {
    int64_t at = 0;
    for (int d = view->ndim - 1; d >= 0; d--) {
        at += i % view->dims[d] * view->strides[d];
        i /= view->dims[d];
    }
    return at;
}

static void widen_chunk(void *context, int64_t chunk, int worker) {
    const half_job *j = context;
    (void)worker;
    const int64_t first = chunk * j->chunk, end = ct__min64(first + j->chunk, j->count);
    if (!j->x) {
        memset(j->wide + first, 0, (size_t)(end - first) * sizeof(float));
        return;
    }
    const uint16_t *x = CT_AT(const uint16_t, j->x);
    const bool dense = is_dense(j->x), bf16 = j->x->dtype == CT_BF16;
    for (int64_t i = first; i < end; i++) {
        const uint16_t *h = x + (dense ? i : place_of(j->x, i));
        j->wide[i] = bf16 ? from_bf16(h) : from_f16(h);
    }
}

static void narrow_chunk(void *context, int64_t chunk, int worker) {
    const half_job *j = context;
    (void)worker;
    const int64_t first = chunk * j->chunk, end = ct__min64(first + j->chunk, j->count);
    uint16_t *y = CT_AT(uint16_t, j->y);
    const bool dense = is_dense(j->y), bf16 = j->y->dtype == CT_BF16;
    for (int64_t i = first; i < end; i++) {
        uint16_t *h = y + (dense ? i : place_of(j->y, i));
        if (bf16) vf32_store_bf16_n(h, vf32_set1(j->wide[i]), 1);
        else vf32_store_f16_n(h, vf32_set1(j->wide[i]), 1);
    }
}

static size_t scratch(const ct_call *call) {
    return is_half(call->out[0]->dtype) ? (size_t)count_of(call->out[0]) * sizeof(float) : 0;
}

static bool run_half(const ct_call *call, int64_t axis, const ct_view *x, const ct_view *index, const ct_view *src) {
    const ct_view *y = call->out[0];
    half_job half = {.x = x, .y = y, .wide = call->scratch, .count = count_of(y), .chunk = ct__grain(32 << 10)};
    const int64_t chunks = (half.count + half.chunk - 1) / half.chunk;
    ct_view dense = *y;
    int64_t stride = 1;
    for (int d = y->ndim - 1; d >= 0; d--) {
        dense.strides[d] = stride;
        stride *= y->dims[d];
    }
    lanes l;
    ct__parallel(chunks, widen_chunk, &half);
    lanes_plan(&l, call, choose(y->dtype, index->dtype == CT_I64), axis, y, &dense, call->scratch, sizeof(float), index, src);
    if (!lanes_run(&l)) return false;
    ct__parallel(chunks, narrow_chunk, &half);
    return true;
}

/* ---- The rest: copy, then add; slab by slab where the leading dimensions allow it, so that a slab stays in the cache ---- */

typedef struct slabs {
    lanes lanes;
    char *dst;
    const char *src; /* NULL: zeros */
    int64_t bytes, count, chunk, strips; /* of a slab; slabs; slabs a chunk; strips a slab */
} slabs;

static void slab_chunk(void *context, int64_t chunk, int worker) {
    slabs *s = context;
    (void)worker;
    const int64_t end = ct__min64((chunk + 1) * s->chunk, s->count);
    for (int64_t i = chunk * s->chunk; i < end; i++) {
        if (s->src) memcpy(s->dst + i * s->bytes, s->src + i * s->bytes, (size_t)s->bytes);
        else memset(s->dst + i * s->bytes, 0, (size_t)s->bytes);
        if (!lanes_work(&s->lanes, i * s->strips, (i + 1) * s->strips)) return;
    }
}

static bool run(const ct_call *call, int64_t axis, const ct_view *x, const ct_view *index, const ct_view *src) {
    const ct_view *y = call->out[0];
    if (is_half(y->dtype)) return run_half(call, axis, x, index, src);
    const size_t size = ct_dtype_size(y->dtype);
    slabs s = {.count = 1, .dst = ct__address(y, size), .src = x ? ct__address(x, size) : NULL, .bytes = (int64_t)size};
    lanes *l = &s.lanes;
    lanes_plan(l, call, choose(y->dtype, index->dtype == CT_I64), axis, y, y, s.dst, size, index, src);
    bool fits = is_dense(y) && (!x || is_dense(x)) && l->strips && l->lane_inside;
    for (int d = 0; d < y->ndim; d++) {
        if (d < l->axis) fits &= index->dims[d] == y->dims[d];
        *(d < l->axis ? &s.count : &s.bytes) *= y->dims[d];
    }
    if (fits && s.count >= 8 && s.bytes <= 256 << 10) {
        s.strips = l->strips / s.count;
        s.chunk = ct__grain(1 + (64 << 10) / s.bytes);
        ct__parallel((s.count + s.chunk - 1) / s.chunk, slab_chunk, &s);
        return !atomic_load(&l->failed);
    }
    static const uint64_t zero;
    if (x) ct__copy_view(y, x);
    else ct__fill(s.dst, y->strides, y->ndim, y->dims, &zero, size);
    return lanes_run(l);
}

static bool run_scatter_add(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return run(call, ((const scatter_add_attrs *)call->attrs)->axis, call->in[0], call->in[1], call->in[2]);
}

static bool run_gather_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return run(call, ((const gather_grad_attrs *)call->attrs)->axis, NULL, call->in[1], call->in[0]);
}

CT_KERNELS(scatter_add) = {{"scatter_add_lanes", NULL, scratch, run_scatter_add}, {0}};
CT_KERNELS(gather_grad) = {{"gather_grad_lanes", NULL, scratch, run_gather_grad}, {0}};
