/* scatter and scatter_extreme: a copy of x, then every lane in order. */
#include "backends/cpu/copy.h"
#include "ops/index/cpu/half.h"

#include "gen/index.attrs.h"

/* ---- scatter: elements by size ---- */

#define PUT_FNS(bits)                                                                \
    BLOCK_AND_ROW_FN(put_##bits##_i32, unit##bits, unit##bits, int32_t, *to = *from) \
    BLOCK_AND_ROW_FN(put_##bits##_i64, unit##bits, unit##bits, int64_t, *to = *from)
PUT_FNS(8)
PUT_FNS(16)
PUT_FNS(32)
PUT_FNS(64)

static block_fn choose_put(size_t size, bool wide) {
    switch (size) {
    case 1: return wide ? put_8_i64 : put_8_i32;
    case 2: return wide ? put_16_i64 : put_16_i32;
    case 4: return wide ? put_32_i64 : put_32_i32;
    default: return wide ? put_64_i64 : put_64_i32;
    }
}

static bool run(const ct_call *call, block_fn fn, int64_t axis) {
    const ct_view *x = call->in[0], *index = call->in[1], *src = call->in[2], *y = call->out[0];
    const size_t size = ct_dtype_size(y->dtype);
    lanes l;
    ct__copy_view(y, x);
    lanes_plan(&l, call, fn, axis, y, y, ct__address(y, size), size, index, src);
    return lanes_run(&l);
}

static bool run_scatter(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return run(call, choose_put(ct_dtype_size(call->out[0]->dtype), call->in[1]->dtype == CT_I64),
               ((const scatter_attrs *)call->attrs)->axis);
}

/* ---- scatter_extreme: NaN wins ---- */

#define FOLD_FNS(fold, type, T, S, BODY)                           \
    BLOCK_FN(fold##_##type##_i32, T, S, int32_t, FROM_START, BODY) \
    BLOCK_FN(fold##_##type##_i64, T, S, int64_t, FROM_START, BODY)
#define PLAIN_FNS(type, T, WIDE)                                                 \
    FOLD_FNS(prod, type, T, T, *to = (T)((WIDE)*to * (WIDE)*from))               \
    FOLD_FNS(max, type, T, T, *to = *from > *to || *from != *from ? *from : *to) \
    FOLD_FNS(min, type, T, T, *to = *from < *to || *from != *from ? *from : *to)
#define HALF_FNS(type)                                                                                      \
    FOLD_FNS(prod, type, float, uint16_t, *to *= from_##type(from))                                         \
    FOLD_FNS(max, type, float, uint16_t, const float a = from_##type(from); if (a > *to || a != a) *to = a) \
    FOLD_FNS(min, type, float, uint16_t, const float a = from_##type(from); if (a < *to || a != a) *to = a)
PLAIN_FNS(f32, float, float)
PLAIN_FNS(f64, double, double)
PLAIN_FNS(i8, int8_t, uint64_t)
PLAIN_FNS(u8, uint8_t, uint64_t)
PLAIN_FNS(i16, int16_t, uint64_t)
PLAIN_FNS(i32, int32_t, uint64_t)
PLAIN_FNS(i64, int64_t, uint64_t)
HALF_FNS(f16)
HALF_FNS(bf16)

#define FOLD_ROW(fold)                                                                               \
    {                                                                                                \
        [CT_F32] = {fold##_f32_i32, fold##_f32_i64}, [CT_F64] = {fold##_f64_i32, fold##_f64_i64},    \
        [CT_F16] = {fold##_f16_i32, fold##_f16_i64}, [CT_BF16] = {fold##_bf16_i32, fold##_bf16_i64}, \
        [CT_I8] = {fold##_i8_i32, fold##_i8_i64}, [CT_I16] = {fold##_i16_i32, fold##_i16_i64},       \
        [CT_I32] = {fold##_i32_i32, fold##_i32_i64}, [CT_I64] = {fold##_i64_i32, fold##_i64_i64},    \
        [CT_U8] = {fold##_u8_i32, fold##_u8_i64}, [CT_BOOL] = {fold##_u8_i32, fold##_u8_i64},        \
    }
static const block_fn folds[][CT_BOOL + 1][2] = {
    [CT_FOLD_PROD] = FOLD_ROW(prod), [CT_FOLD_MAX] = FOLD_ROW(max), [CT_FOLD_MIN] = FOLD_ROW(min)};

static size_t extreme_scratch(const ct_call *call) { return half_scratch(call->out[0]); }

static bool run_extreme(const ct_call *call, ct_stream *stream) {
    const scatter_extreme_attrs *at = call->attrs;
    (void)stream;
    const block_fn fn = folds[at->reduce][call->out[0]->dtype][call->in[1]->dtype == CT_I64];
    if (is_half(call->out[0]->dtype)) return half_lanes(call, fn, at->axis, call->in[0], call->in[1], call->in[2]);
    return run(call, fn, at->axis);
}

CT_KERNELS(index_scatter) = {
    CT_CANDIDATES(scatter, {"scatter_lanes", NULL, NULL, run_scatter}),
    CT_CANDIDATES(scatter_extreme, {"scatter_extreme_lanes", NULL, extreme_scratch, run_extreme}),
    {0},
};
