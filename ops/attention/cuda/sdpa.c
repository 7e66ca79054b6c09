/* Attention on CUDA: what kernels are given, and which of them takes a call. */
#include "ops/attention/cuda/sdpa.h"

#include <string.h>

#include "backends/cuda/cuda.h"

#include "gen/attention.attrs.h"

extern const unsigned char ct_fatbin_attention_forward[], ct_fatbin_attention_backward[], ct_fatbin_attention_plain[];
static ct_cuda_unit forward_unit = CT_CUDA_UNIT_FROM("attention_forward", ct_fatbin_attention_forward, false);
static ct_cuda_unit backward_unit = CT_CUDA_UNIT_FROM("attention_backward", ct_fatbin_attention_backward, false);
static ct_cuda_unit plain_unit = CT_CUDA_UNIT_FROM("attention_plain", ct_fatbin_attention_plain, false);

/* ---- The problem ---- */

static ct_cuda_heads heads_of(const ct_view *x) {
    ct_cuda_heads h;
    memset(&h, 0, sizeof h);
    if (!x) return h;
    h.data = ct_cuda_address(x);
    const int64_t whole = 16 / (int64_t)ct_cuda_dtype_size(x->dtype);
    bool packed = x->ndim == 4 && x->strides[3] == 1 && x->dims[3] % whole == 0 && (uintptr_t)h.data % 16 == 0;
    for (int i = 0; i < x->ndim; i++) {
        h.strides[i] = x->strides[i];
        if (i < 3 && x->dims[i] > 1) packed = packed && x->strides[i] % whole == 0;
    }
    h.packed = packed;
    return h;
}

/* (B,T,H,D) as (B,H,T,D) where rows_first. */
static ct_cuda_heads heads_first(const ct_view *x, bool rows_first) {
    ct_cuda_heads h = heads_of(x);
    if (rows_first) {
        const int64_t rows = h.strides[1];
        h.strides[1] = h.strides[2], h.strides[2] = rows;
    }
    return h;
}

static bool computes_wide(ct_dtype dtype) { return dtype == CT_F64; }
static ct_dtype computed_in(ct_dtype dtype) { return computes_wide(dtype) ? CT_F64 : CT_F32; }
static bool is_half(ct_dtype dtype) { return dtype == CT_F16 || dtype == CT_BF16; }

static ct_cuda_sdpa problem_of(const ct_call *call, double scale, bool causal, bool bottom_right, double dropout) {
    const ct_view *q = call->in[0], *k = call->in[1], *v = call->in[2], *mask = call->in[3], *stream = call->in[4];
    ct_cuda_sdpa p;
    memset(&p, 0, sizeof p);
    p.q = heads_of(q), p.k = heads_of(k), p.v = heads_of(v), p.mask = heads_of(mask);
    p.batch = q->dims[0], p.heads = q->dims[1], p.kv_heads = k->dims[1];
    p.group = p.kv_heads ? (int32_t)(p.heads / p.kv_heads) : 1;
    p.tq = (int32_t)q->dims[2], p.tk = (int32_t)k->dims[2], p.d = (int32_t)q->dims[3], p.d_v = (int32_t)v->dims[3];
    p.mask_kind = !mask ? CT_SDPA_NO_MASK : mask->dtype == CT_BOOL ? CT_SDPA_BOOL : CT_SDPA_ADDED;
    p.causal = causal;
    p.ahead = bottom_right ? (int64_t)p.tk - p.tq : 0;
    p.scale = scale;
    p.unit = 1;
    p.drops = stream && dropout > 0;
    if (p.drops) {
        const double words = dropout * 0x1p32;
        p.threshold = words >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)words;
        p.keep = dropout < 1 ? 1 / (1 - dropout) : 0;
        p.position = ct_cuda_address(stream);
        p.position_stride = stream->strides[0];
        p.position_wide = stream->dtype == CT_I64;
    }
    return p;
}

static ct_cuda_sdpa forward_problem(const ct_call *call) {
    const sdpa_attrs *a = call->attrs;
    ct_cuda_sdpa p = problem_of(call, a->scale, a->causal, a->bottom_right, a->dropout);
    p.y = heads_first(call->out[0], a->rows_first);
    if (call->n_out > 1) p.lse = heads_of(call->out[1]);
    return p;
}

static ct_cuda_sdpa backward_problem(const ct_call *call) {
    const sdpa_grad_attrs *a = call->attrs;
    ct_cuda_sdpa p = problem_of(call, a->scale, a->causal, a->bottom_right, a->dropout);
    const ct_dtype wide = computed_in(call->in[0]->dtype);
    p.y = heads_first(call->in[5], a->rows_first), p.g = heads_first(call->in[7], a->rows_first);
    p.lse = heads_of(call->in[6]);
    p.g_lse = heads_of(call->in[8]);
    p.lse_narrow = call->in[6]->dtype != wide;
    p.g_lse_narrow = call->in[8] && call->in[8]->dtype != wide;
    ct_cuda_heads *const outputs[] = {&p.dq, &p.dk, &p.dv, &p.dmask};
    for (int i = 0; i < call->n_out; i++) *outputs[i] = heads_first(call->out[i], i < 3 && a->rows_first);
    for (int i = 0; a->together && i < 3; i++) { /* dk and dv behind dq */
        ct_view part = *call->out[0];
        part.dims[2] = i == 0 ? p.heads : p.kv_heads;
        part.offset += (i == 0 ? 0 : p.heads + (i - 1) * p.kv_heads) * part.strides[2];
        *outputs[i] = heads_first(&part, true);
    }
    p.rows = ct_cuda_scratch(call);
    return p;
}

static int64_t blocks_of(int64_t rows, int64_t each) { return (rows + each - 1) / each; }

/* Whether sizes fit the kernels' integers. */
static bool fits(const ct_call *call) {
    const ct_view *q = call->in[0], *k = call->in[1], *v = call->in[2];
    const int64_t t = q->dims[2] > k->dims[2] ? q->dims[2] : k->dims[2],
                  d = q->dims[3] > v->dims[3] ? q->dims[3] : v->dims[3];
    const int64_t most = INT32_MAX / 4;
    if (t > most || d > most || q->dims[0] > most || q->dims[1] > most) return false;
    const int64_t heads = q->dims[0] * q->dims[1], chunks = blocks_of(d, CT_SDPA_TILE) + 1;
    return heads <= most && blocks_of(t, CT_SDPA_TILE) + 1 <= most / (heads + 1) / chunks;
}

/* ---- Tensor Cores ---- */

typedef enum variant { SIZE_32, SIZE_64, SIZE_128, GENERAL_64, GENERAL_128, VARIANTS } variant;
static const int columns_of[] = {32, 64, 128, 64, 128};

#define OF_VARIANTS(unit, name)                                                                      \
    {                                                                                                \
        CT_CUDA_FUNCTION_OF(&unit, name "_32"), CT_CUDA_FUNCTION_OF(&unit, name "_64"),              \
            CT_CUDA_FUNCTION_OF(&unit, name "_128"), CT_CUDA_FUNCTION_OF(&unit, name "_general_64"), \
            CT_CUDA_FUNCTION_OF(&unit, name "_general_128")                                          \
    }
#define OF_HALVES(unit, name) \
    { OF_VARIANTS(unit, name "_f16"), OF_VARIANTS(unit, name "_bf16") }
static ct_cuda_function forward_functions[2][VARIANTS] = OF_HALVES(forward_unit, "sdpa_forward");
static ct_cuda_function keys_functions[2][VARIANTS] = OF_HALVES(backward_unit, "sdpa_keys");
static ct_cuda_function queries_functions[2][VARIANTS] = OF_HALVES(backward_unit, "sdpa_queries");

static variant variant_of(const ct_cuda_sdpa *p) {
    const int32_t widest = p->d > p->d_v ? p->d : p->d_v;
    const bool general = p->mask_kind || p->drops || !(p->scale > 0);
    if (widest > 64) return general ? GENERAL_128 : SIZE_128;
    return general ? GENERAL_64 : widest > 32 ? SIZE_64 : SIZE_32;
}

/* Two stages of keys and values; and with `more` the keys and values that stay, and the levels of queries. */
static unsigned shared_of(variant s, bool more) {
    const unsigned row = 2 * ((unsigned)columns_of[s] + CT_SDPA_PAD), stages = 4 * CT_SDPA_STEP * row;
    return more ? stages + 2 * CT_SDPA_ROWS * row + 2 * CT_SDPA_STEP * 2 * (unsigned)sizeof(float) : stages;
}

static bool is_large(const ct_call *call) { return call->in[0]->dims[3] > 64 || call->in[2]->dims[3] > 64; }

static bool has_shared(const ct_call *call, unsigned bytes) {
    const ct_cuda_device *d = ct_cuda_device_at(call->device.index);
    return d && bytes <= (unsigned)d->shared_limit;
}

static const char *refuses(const ct_call *call) {
    const ct_view *q = call->in[0], *v = call->in[2];
    if (!is_half(q->dtype)) return "it is not of halves";
    if (q->dims[3] > CT_SDPA_MOST || v->dims[3] > CT_SDPA_MOST) return "its heads are large";
    return fits(call) ? NULL : "it is too long";
}

static const char *forward_can(const ct_call *call) { return call->out[0] ? refuses(call) : "y is not wanted"; }
static const char *backward_can(const ct_call *call) {
    const char *why = refuses(call);
    if (why) return why;
    return !is_large(call) || has_shared(call, shared_of(SIZE_128, true)) ? NULL
                                                                          : "the device has too little shared memory";
}

static bool forward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_sdpa p = forward_problem(call);
    p.blocks = (int32_t)blocks_of(p.tq, CT_SDPA_ROWS);
    const int64_t grid = p.batch * p.heads * p.blocks;
    if (grid == 0) return true;
    const variant s = variant_of(&p);
    return ct_cuda_launch(
        call, &forward_functions[call->in[0]->dtype == CT_BF16][s],
        (ct_cuda_shape){.grid = (unsigned)grid, .block = CT_SDPA_THREADS, .shared = shared_of(s, false)}, &p);
}

/* ---- Products of warpgroups ---- */

#ifdef CT_CUDA_HOPPER
extern const unsigned char ct_fatbin_attention_hopper[];
static ct_cuda_unit hopper_unit = CT_CUDA_UNIT_FROM("attention_hopper", ct_fatbin_attention_hopper, false);
#define OF_HOPPER_SIZE(name) CT_CUDA_FUNCTION_OF(&hopper_unit, "sdpa_hopper_" name)
#define OF_HOPPER(name)                                                       \
    {                                                                         \
        {OF_HOPPER_SIZE(name "_f16_64"), OF_HOPPER_SIZE(name "_f16_128")}, {  \
            OF_HOPPER_SIZE(name "_bf16_64"), OF_HOPPER_SIZE(name "_bf16_128") \
        }                                                                     \
    }
static ct_cuda_function hopper_forward[2][2] = OF_HOPPER("forward"), hopper_keys[2][2] = OF_HOPPER("keys"),
                        hopper_queries[2][2] = OF_HOPPER("queries");

/* Three stages of keys and values, or of queries and g with their levels, from a multiple of 1024 bytes on. A stage has 128 rows of 64 halves or 64
 * of 128; where heads are large, a block's keys and values stay beside them. */
static unsigned hopper_shared(const ct_call *call, bool keys) {
    const bool large = is_large(call);
    const unsigned half = 64 * 128 * 2, rows = large ? 64 : 128;
    return 1024 + 6 * half + (keys ? 3 * rows * 2 * (unsigned)sizeof(float) : 0) + (keys && large ? 4 * half : 0);
}

static const char *hopper_refuses(const ct_call *call, double scale, double dropout) {
    const ct_cuda_device *d = ct_cuda_device_at(call->device.index);
    if (!d || d->capability != 90) return "the device has no products of warpgroups";
    if (call->in[3] || (call->in[4] && dropout > 0) || !(scale > 0))
        return "it has a mask, dropout or a negative scale";
    for (int i = 0; i < 3; i++)
        if (!heads_of(call->in[i]).packed) return "its rows are not of whole, aligned 16 bytes";
    return refuses(call);
}
static const char *hopper_forward_can(const ct_call *call) {
    const sdpa_attrs *a = call->attrs;
    return call->out[0] ? hopper_refuses(call, a->scale, a->dropout) : "y is not wanted";
}
static const char *hopper_backward_can(const ct_call *call) {
    const sdpa_grad_attrs *a = call->attrs;
    if (!heads_of(call->in[5]).packed || !heads_of(call->in[7]).packed)
        return "its rows are not of whole, aligned 16 bytes";
    if (!call->out[0]) return "dq is not wanted"; /* its kernel makes lse and delta for the others */
    if (call->in[6]->dtype != CT_F32 || (call->in[8] && call->in[8]->dtype != CT_F32)) return "lse is of halves";
    return hopper_refuses(call, a->scale, a->dropout);
}

static bool hopper_forward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_sdpa p = forward_problem(call);
    p.blocks = (int32_t)blocks_of(p.tq, CT_SDPA_ROWS);
    const ct_cuda_shape shape = {.grid = (unsigned)(p.batch * p.heads * p.blocks),
                                 .block = CT_SDPA_THREADS,
                                 .shared = hopper_shared(call, false)};
    return !shape.grid ||
           ct_cuda_launch(call, &hopper_forward[call->in[0]->dtype == CT_BF16][is_large(call)], shape, &p);
}
#endif

/* ---- Without ---- */

#define OF_DTYPES(name)                                             \
    {                                                               \
        [CT_F32] = CT_CUDA_FUNCTION_OF(&plain_unit, name "_f32"),   \
        [CT_F64] = CT_CUDA_FUNCTION_OF(&plain_unit, name "_f64"),   \
        [CT_F16] = CT_CUDA_FUNCTION_OF(&plain_unit, name "_f16"),   \
        [CT_BF16] = CT_CUDA_FUNCTION_OF(&plain_unit, name "_bf16"), \
    }
enum { FLOATS = CT_BF16 + 1 };
static ct_cuda_function plain_forward[FLOATS] = OF_DTYPES("sdpa_plain_forward");
static ct_cuda_function plain_rows[FLOATS] = OF_DTYPES("sdpa_plain_rows");
static ct_cuda_function plain_queries[FLOATS] = OF_DTYPES("sdpa_plain_queries_backward");
static ct_cuda_function plain_keys[FLOATS] = OF_DTYPES("sdpa_plain_keys_backward");

static const char *plain_can(const ct_call *call) { return fits(call) ? NULL : "it is too long"; }
static const char *plain_forward_can(const ct_call *call) { return call->out[0] ? plain_can(call) : "y is not wanted"; }

static unsigned plain_shared(ct_dtype dtype) {
    const unsigned size = computes_wide(dtype) ? 8 : 4;
    return CT_SDPA_TILE * (2 * (CT_SDPA_DEPTH * size + 16) + (CT_SDPA_TILE + 1) * size);
}

static bool plain_launch(const ct_call *call, ct_cuda_function *functions, ct_cuda_sdpa *p, int64_t heads, int64_t rows,
                         int64_t columns) {
    const ct_dtype dtype = call->in[0]->dtype;
    const int64_t chunks = columns > CT_SDPA_TILE ? blocks_of(columns, CT_SDPA_TILE) : 1;
    p->blocks = (int32_t)blocks_of(rows, CT_SDPA_TILE);
    const int64_t grid = p->batch * heads * p->blocks * chunks;
    return grid == 0 ||
           ct_cuda_launch(
               call, &functions[dtype],
               (ct_cuda_shape){.grid = (unsigned)grid, .block = CT_SDPA_THREADS, .shared = plain_shared(dtype)}, p);
}

static bool plain_forward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_sdpa p = forward_problem(call);
    return plain_launch(call, plain_forward, &p, p.heads, p.tq, p.d_v);
}

/* ---- Backward ---- */

static size_t backward_scratch(const ct_call *call) {
    const ct_view *q = call->in[0];
    return (size_t)(q->dims[0] * q->dims[1] * q->dims[2]) * 2 * (computes_wide(q->dtype) ? 8 : 4);
}

/* lse and delta of each row, for what comes next. */
static bool make_rows(const ct_call *call, ct_cuda_sdpa *p) {
    const int64_t rows = p->batch * p->heads * p->tq;
    if (rows == 0) return true;
    const ct_cuda_shape shape = {.grid = ct_cuda_blocks(call, rows * 32, CT_SDPA_THREADS), .block = CT_SDPA_THREADS};
    return ct_cuda_launch(call, &plain_rows[call->in[0]->dtype], shape, p);
}

static bool plain_backward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_sdpa p = backward_problem(call);
    if (!make_rows(call, &p)) return false;
    if ((p.dq.data || p.dmask.data) && !plain_launch(call, plain_queries, &p, p.heads, p.tq, p.d)) return false;
    return !(p.dk.data || p.dv.data) || plain_launch(call, plain_keys, &p, p.kv_heads, p.tk, p.d > p.d_v ? p.d : p.d_v);
}

/* Two kernels, each with its shared memory: for queries, and for keys. */
static bool run_both(const ct_call *call, ct_cuda_sdpa *p, ct_cuda_function *queries, unsigned queries_shared,
                     ct_cuda_function *keys, unsigned keys_shared) {
    ct_cuda_shape shape = {.block = CT_SDPA_THREADS, .shared = queries_shared};
    p->blocks = (int32_t)blocks_of(p->tq, CT_SDPA_ROWS);
    shape.grid = (unsigned)(p->batch * p->heads * p->blocks);
    if ((p->dq.data || p->dmask.data) && shape.grid && !ct_cuda_launch(call, queries, shape, p)) return false;
    p->blocks = (int32_t)blocks_of(p->tk, CT_SDPA_ROWS);
    shape.grid = (unsigned)(p->batch * p->kv_heads * p->blocks), shape.shared = keys_shared;
    return !(p->dk.data || p->dv.data) || !shape.grid || ct_cuda_launch(call, keys, shape, p);
}

static bool backward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_sdpa p = backward_problem(call);
    const variant s = variant_of(&p);
    const bool bf16 = call->in[0]->dtype == CT_BF16;
    p.unit = 1.4426950408889634; /* exponentials are powers of 2 */
    return make_rows(call, &p) && run_both(call, &p, &queries_functions[bf16][s], shared_of(s, false),
                                           &keys_functions[bf16][s], shared_of(s, true));
}

#ifdef CT_CUDA_HOPPER
static bool hopper_backward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_sdpa p = backward_problem(call);
    const bool bf16 = call->in[0]->dtype == CT_BF16, large = is_large(call);
    return run_both(call, &p, &hopper_queries[bf16][large], hopper_shared(call, false), &hopper_keys[bf16][large],
                    hopper_shared(call, true));
}
#endif

#ifdef CT_CUDA_HOPPER
#define HOPPER      {"flash_warpgroups", hopper_forward_can, NULL, hopper_forward_run},
#define HOPPER_GRAD {"flash_warpgroups_grad", hopper_backward_can, backward_scratch, hopper_backward_run},
#else
#define HOPPER
#define HOPPER_GRAD
#endif

CT_CUDA_KERNELS(attention_sdpa) = {
    CT_CANDIDATES(sdpa, HOPPER{"flash", forward_can, NULL, forward_run},
                  {"tiles", plain_forward_can, NULL, plain_forward_run}),
    CT_CANDIDATES(sdpa_grad, HOPPER_GRAD{"flash_grad", backward_can, backward_scratch, backward_run},
                  {"tiles_grad", plain_can, backward_scratch, plain_backward_run}),
    {0},
};
