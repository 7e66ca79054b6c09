/* Kernels of softmax, log_softmax and their gradients: a row is read from memory once and its exponentials stay in
 * the first cache. */
#include "backends/cpu/simd/vmath.h"
#include "backends/cpu/step.h"
#include "ops/reduce/cpu/elements.h"
#include "ops/scan/cpu/lines.h"

#include "gen/softmax.attrs.h"

enum {
    ROW_BUFFER = 4096,          /* exponentials of a row that are kept */
    PIPELINE_BYTES = 16 * 1024, /* longest rows of which three are in flight */
    COLUMNS = 512,              /* neighboring lines at a time */
    PACKED = 64,                /* lines made neighbors at a time, */
    PACK_LINE = 64,             /* of at most that many elements */
    PACK_ROOM = PACKED * PACK_LINE,
    SHORT_ROW = 24,         /* rows that vectors along them do not fit */
    LONG_ROW = 256 * 1024,  /* from here on, few rows would leave threads idle: lowered */
    STREAM_BYTES = 8 << 20, /* results from here on go past the caches */
};

enum way { BY_ROWS, BY_COLUMNS, BY_PACKING, NO_WAY };

typedef struct softmax_call {
    int64_t n;
    enum way way;
    bool streams;
} softmax_call;

/* below these exp is 0 */
#define LOWEST_vf32 -104.0f
#define LOWEST_vf64 -746.0
#define EXTRA_OPS(D, V)                                                                                             \
    SIMD_INLINE V D##_exp(V a) { return V##_exp(a); }                                                               \
    SIMD_INLINE V D##_exp_below(V a) { return V##_exp_clamped(V##_maxb(V##_set1(LOWEST_##V), a)); } /* of a <= 0 */ \
    SIMD_INLINE D##_mask D##_equal(V a, V b) { return V##_eq(a, b); }                                               \
    SIMD_INLINE V D##_log(V a) { return V##_log(a); }                                                               \
    SIMD_INLINE V D##_div(V a, V b) { return V##_div(a, b); }
EXTRA_OPS(f32, vf32)
EXTRA_OPS(f64, vf64)
EXTRA_OPS(f16, vf32)
EXTRA_OPS(bf16, vf32)
SIMD_INLINE void f32_stream(float *p, vf32 v) { vf32_stream(p, v); }
SIMD_INLINE void f64_stream(double *p, vf64 v) { vf64_stream(p, v); }
SIMD_INLINE void f16_stream(uint16_t *p, vf32 v) { vf32_store_f16(p, v); }
SIMD_INLINE void bf16_stream(uint16_t *p, vf32 v) { vf32_store_bf16(p, v); }

#define FOLD_D f32
#include "ops/softmax/cpu/softmax_lines.h"
#define FOLD_D f64
#include "ops/softmax/cpu/softmax_lines.h"
#define FOLD_D f16
#include "ops/softmax/cpu/softmax_lines.h"
#define FOLD_D bf16
#include "ops/softmax/cpu/softmax_lines.h"

static int axis_of(const ct_view *x, int64_t axis) { return x->ndim ? (int)(axis < 0 ? axis + x->ndim : axis) : 0; }

static bool unit_along(const ct_call *call, int at) {
    const ct_view *views[] = {call->in[0], call->out[0], call->n_in > 1 ? call->in[1] : call->in[0]};
    for (int k = 0; k < 3; k++)
        if (views[k]->ndim && views[k]->strides[at] != 1 && views[k]->dims[at] > 1) return false;
    return true;
}

/* Rows: contiguous along the axis in every view. Columns: another dimension, `inner`, is contiguous in every view. */
static enum way way_of(const ct_call *call, int at, int *inner) {
    const ct_view *x = call->in[0];
    int64_t n = x->ndim ? x->dims[at] : 1;
    bool rows = unit_along(call, at);
    *inner = -1;
    if (rows && n > SHORT_ROW) return BY_ROWS;
    for (int i = 0; i < x->ndim; i++)
        if (i != at && x->dims[i] > 1 && unit_along(call, i)) {
            *inner = i;
            return BY_COLUMNS;
        }
    return n <= PACK_LINE ? BY_PACKING : rows ? BY_ROWS : NO_WAY;
}

static const char *can(const ct_call *call, int64_t axis) {
    const ct_view *x = call->in[0];
    int at = axis_of(x, axis), inner;
    int64_t lines = 1;
    for (int i = 0; i < x->ndim; i++)
        if (i != at) lines *= x->dims[i];
    if (x->ndim && x->dims[at] >= LONG_ROW && lines < 16) return "few long rows";
    return way_of(call, at, &inner) == NO_WAY ? "no dimension is contiguous in all views" : NULL;
}

static bool run(const ct_call *call, const ct_bundle_fn *table, int64_t axis) {
    const ct_view *x = call->in[0], *y = call->out[0];
    int at = axis_of(x, axis), inner;
    softmax_call s = {.n = x->ndim ? x->dims[at] : 1, .way = way_of(call, at, &inner)};
    const ct_view *views[] = {x, y, call->n_in > 1 ? call->in[1] : NULL};
    int64_t count = 1;
    for (int i = 0; i < x->ndim; i++) count *= x->dims[i];
    if (count == 0) return true;
    /* whole cache lines of every row, or ordinary stores */
    size_t size = ct_dtype_size(y->dtype);
    s.streams = s.way == BY_ROWS && size >= 4 && (size_t)count * size >= STREAM_BYTES &&
                (uintptr_t)ct__address(y, size) % 64 == 0;
    for (int i = 0; i < y->ndim; i++)
        if (i != at && (size_t)y->strides[i] * size % 64 != 0 && y->dims[i] > 1) s.streams = false;
    static const int64_t narrowest[] = {[BY_ROWS] = 1, [BY_COLUMNS] = 32, [BY_PACKING] = PACKED};
    static const int64_t widest[] = {[BY_ROWS] = 64, [BY_COLUMNS] = COLUMNS, [BY_PACKING] = PACKED};
    ct__lines(views, 3, at, inner, narrowest[s.way], widest[s.way], 4 * s.n, table[x->dtype], &s);
    return true;
}

/* ---- As steps of fused calls: by rows ---- */

static int64_t row_of(const ct_call *call, int64_t axis) {
    const ct_view *x = call->in[0];
    const int at = axis_of(x, axis);
    int inner;
    for (int i = at + 1; i < x->ndim; i++)
        if (x->dims[i] > 1) return 0;
    return x->ndim && way_of(call, at, &inner) == BY_ROWS ? x->dims[at] : 0;
}

static void run_part(const ct_bundle_fn *table, ct_dtype dtype, int n_in, int64_t row, int64_t n, char *const *ptr) {
    enum { WIDEST = 64 };
    softmax_call s = {.n = row, .way = BY_ROWS};
    char *const views[] = {ptr[0], ptr[n_in], n_in > 1 ? ptr[1] : NULL};
    for (int64_t first = 0, rows = n / row; first < rows; first += WIDEST) {
        ct_bundle bundle = {.width = ct__min64(rows - first, WIDEST), .first = first};
        for (int k = 0; k < 3; k++) {
            bundle.at[k] = views[k] ? views[k] + first * row * (int64_t)ct_dtype_size(dtype) : NULL;
            bundle.step[k] = 1;
            bundle.line[k] = row;
        }
        table[dtype](&s, &bundle);
    }
}

#define SOFTMAX_FUNCTIONS(op)                                                                                       \
    static const ct_bundle_fn op##_table[CT_DTYPE_COUNT] = {[CT_F32] = f32_##op##_bundle,                           \
                                                            [CT_F64] = f64_##op##_bundle,                           \
                                                            [CT_F16] = f16_##op##_bundle,                           \
                                                            [CT_BF16] = bf16_##op##_bundle};                        \
    static const char *op##_can(const ct_call *call) { return can(call, ((const op##_attrs *)call->attrs)->axis); } \
    static bool op##_run(const ct_call *call, ct_stream *stream) {                                                  \
        (void)stream;                                                                                               \
        return run(call, op##_table, ((const op##_attrs *)call->attrs)->axis);                                      \
    }                                                                                                               \
    static int64_t op##_row(const ct_call *call) { return row_of(call, ((const op##_attrs *)call->attrs)->axis); }  \
    static void op##_part(const ct_call *call, int64_t first, int64_t n, char *const *ptr) {                        \
        (void)first;                                                                                                \
        run_part(op##_table, call->out[0]->dtype, call->n_in, op##_row(call), n, ptr);                              \
    }                                                                                                               \
    static const ct_cpu_step_more op##_more = {.row = op##_row};                                                    \
    static const ct_cpu_step op##_step = {.part = op##_part, .more = &op##_more, .cost = 20};
SOFTMAX_FUNCTIONS(softmax)
SOFTMAX_FUNCTIONS(log_softmax)
SOFTMAX_FUNCTIONS(softmax_grad)
SOFTMAX_FUNCTIONS(log_softmax_grad)
SOFTMAX_FUNCTIONS(log_softmax_half_grad)

CT_KERNELS(softmax_softmax) = {
    CT_CANDIDATES_STEP(softmax, &softmax_step, {"softmax_lines", softmax_can, NULL, softmax_run}),
    CT_CANDIDATES_STEP(log_softmax, &log_softmax_step, {"log_softmax_lines", log_softmax_can, NULL, log_softmax_run}),
    CT_CANDIDATES_STEP(softmax_grad, &softmax_grad_step,
                       {"softmax_grad_lines", softmax_grad_can, NULL, softmax_grad_run}),
    CT_CANDIDATES_STEP(log_softmax_grad, &log_softmax_grad_step,
                       {"log_softmax_grad_lines", log_softmax_grad_can, NULL, log_softmax_grad_run}),
    CT_CANDIDATES_STEP(log_softmax_half_grad, &log_softmax_half_grad_step,
                       {"log_softmax_half_grad_lines", log_softmax_half_grad_can, NULL, log_softmax_half_grad_run}),
    {0},
};
