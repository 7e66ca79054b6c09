/* scatter_add and gather_grad: sums along one axis, each lane in order. Half types are summed in f32, in scratch
 * memory. */
#include "backends/cpu/copy.h"
#include "ops/index/cpu/half.h"
#include "ops/index/cpu/lanes.h"

#include "gen/index.attrs.h"

#define ADD_FNS(type, T, S, BODY)                           \
    BLOCK_AND_ROW_FN(add_##type##_i32, T, S, int32_t, BODY) \
    BLOCK_AND_ROW_FN(add_##type##_i64, T, S, int64_t, BODY)

ADD_FNS(f32, float, float, *to += *from)
ADD_FNS(f64, double, double, *to += *from)
ADD_FNS(f16, float, uint16_t, *to += from_f16(from))
ADD_FNS(bf16, float, uint16_t, *to += from_bf16(from))
ADD_FNS(8, uint8_t, uint8_t, *to = (uint8_t)(*to + *from))
ADD_FNS(16, uint16_t, uint16_t, *to = (uint16_t)(*to + *from))
ADD_FNS(32, uint32_t, uint32_t, *to += *from)
ADD_FNS(64, uint64_t, uint64_t, *to += *from)
ADD_FNS(bool, uint8_t, uint8_t, *to |= *from)

static block_fn choose(ct_dtype dtype, bool wide) {
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

static size_t scratch(const ct_call *call) { return half_scratch(call->out[0]); }

/* ---- The rest: copy, then add; slab by slab where the leading dimensions allow it, so that a slab stays in the
 * cache ---- */

enum { STAGE = 8 << 10 }; /* slabs up to here are summed in the L1 cache, and then go past the caches if y is large */

typedef struct slabs {
    lanes lanes;
    char *dst;
    const char *src;                     /* NULL: zeros */
    int64_t bytes, count, chunk, blocks; /* of a slab; slabs; slabs per chunk; blocks per slab */
    bool stream;
} slabs;

static void slab_chunk(void *context, int64_t chunk, int worker) {
    slabs *s = context;
    (void)worker;
    _Alignas(64) char stage[STAGE];
    const int64_t end = ct__min64((chunk + 1) * s->chunk, s->count);
    bool good = true;
    for (int64_t i = chunk * s->chunk; i < end && good; i++) {
        char *dst = s->dst + i * s->bytes, *sums = s->stream ? stage : dst;
        if (s->src) memcpy(sums, s->src + i * s->bytes, (size_t)s->bytes);
        else memset(sums, 0, (size_t)s->bytes);
        good = lanes_work(&s->lanes, i * s->blocks, (i + 1) * s->blocks, (intptr_t)sums - (intptr_t)dst);
        if (s->stream) ct__stream_run(dst, stage, s->bytes, 1);
    }
    if (s->stream) ct__stream_end();
}

static bool run(const ct_call *call, int64_t axis, const ct_view *x, const ct_view *index, const ct_view *src) {
    const ct_view *y = call->out[0];
    if (is_half(y->dtype)) return half_lanes(call, choose(y->dtype, index->dtype == CT_I64), axis, x, index, src);
    const size_t size = ct_dtype_size(y->dtype);
    slabs s = {.count = 1, .dst = ct__address(y, size), .src = x ? ct__address(x, size) : NULL, .bytes = (int64_t)size};
    lanes *l = &s.lanes;
    lanes_plan(l, call, choose(y->dtype, index->dtype == CT_I64), axis, y, y, s.dst, size, index, src);
    bool fits = is_dense(y) && (!x || is_dense(x)) && l->blocks && l->lane_inside;
    for (int d = 0; d < y->ndim; d++) {
        if (d < l->axis) fits &= index->dims[d] == y->dims[d];
        *(d < l->axis ? &s.count : &s.bytes) *= y->dims[d];
    }
    if (fits && s.count >= 8 && s.bytes <= 256 << 10) {
        s.blocks = l->blocks / s.count;
        s.chunk = ct__grain(1 + (64 << 10) / s.bytes);
        s.stream = s.bytes >= 256 && s.bytes <= STAGE && ct__stream_worth(s.count * s.bytes);
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

CT_KERNELS(index_scatter_add) = {
    CT_CANDIDATES(scatter_add, {"scatter_add_lanes", NULL, scratch, run_scatter_add}),
    CT_CANDIDATES(gather_grad, {"gather_grad_lanes", NULL, scratch, run_gather_grad}),
    {0},
};
