/* Kernels of the scans. A bundle of lines runs side by side: neighboring lines as vectors, lines that lie apart
 * interleaved, so that one line's additions need not wait for each other. Sums and products of floats are carried in
 * double. */
#include "ops/reduce/cpu/elements.h"
#include "ops/scan/cpu/lines.h"

#include "gen/scan.attrs.h"

enum { SIDE_BY_SIDE = 64, INTERLEAVED = 8 };

typedef struct scan {
    int64_t n;
    bool reverse;
} scan;

/* Elements of a line in the order of the scan. */
#define SCAN_FOR(i, s) \
    for (int64_t i##_ = 0, i = (s)->reverse ? (s)->n - 1 : 0; i##_ < (s)->n; i##_++, i += (s)->reverse ? -1 : 1)

/* A scan from x to y: START and STEP set up and use the state a of a line, for an element v; OUT is what y gets,
 * before the step if it is exclusive. */
#define SCAN_LINES(name, IN, OUT_TYPE, STATE, START, LOAD, STEP, OUT)                                                 \
    SIMD_INLINE void name##_lines(const scan *s, const ct_bundle *b, int64_t width, int64_t x_line, int64_t y_line) { \
        STATE state[SIDE_BY_SIDE];                                                                                    \
        for (int64_t j = 0; j < width; j++) state[j] = (START);                                                       \
        SCAN_FOR(i, s) {                                                                                              \
            const IN *x = (const IN *)(const void *)b->at[0] + i * b->step[0]; /* (width) */                          \
            OUT_TYPE *y = (OUT_TYPE *)(void *)b->at[1] + i * b->step[1];       /* (width) */                          \
            for (int64_t j = 0; j < width; j++) {                                                                     \
                STATE a = state[j], v = LOAD(x[j * x_line]);                                                          \
                STEP;                                                                                                 \
                y[j * y_line] = (OUT);                                                                                \
                state[j] = a;                                                                                         \
            }                                                                                                         \
        }                                                                                                             \
    }

typedef void (*scan_lines)(const scan *s, const ct_bundle *b, int64_t width, int64_t x_line, int64_t y_line);

/* Constants keep the state in registers, so the lines are scanned inline for each of the usual layouts. */
SIMD_INLINE void scan_bundle(const scan *s, const ct_bundle *b, scan_lines lines) {
    if (b->line[0] == 1 && b->line[1] == 1) lines(s, b, b->width, 1, 1);
    else if (b->width == 1) lines(s, b, 1, 0, 0);
    else if (b->width == INTERLEAVED) lines(s, b, INTERLEAVED, b->line[0], b->line[1]);
    else lines(s, b, b->width, b->line[0], b->line[1]);
}

#define SCAN(name, ...)           \
    SCAN_LINES(name, __VA_ARGS__) \
    static void name(void *ctx, const ct_bundle *b) { scan_bundle(ctx, b, name##_lines); }

#define AS_DOUBLE(D) (double)D##_value
#define AS_WORD(v)   (uint64_t)(int64_t)(v)
#define SCAN_FLOATS(D)                                                                             \
    SCAN(cumsum_##D, D##_element, D##_element, double, 0, AS_DOUBLE(D), a += v, D##_round(a))      \
    SCAN(cumprod_##D, D##_element, D##_element, double, 1, AS_DOUBLE(D), a *= v, D##_round(a))     \
    SCAN(cumprod_before_##D, D##_element, D##_element, double, 1, AS_DOUBLE(D), double before = a; \
         a *= v, D##_round(before))
SCAN_FLOATS(f32)
SCAN_FLOATS(f64)
SCAN_FLOATS(f16)
SCAN_FLOATS(bf16)

#define SCAN_INTEGERS(D)                                                             \
    SCAN(cumsum_##D, D##_element, int64_t, uint64_t, 0, AS_WORD, a += v, (int64_t)a) \
    SCAN(cumprod_##D, D##_element, int64_t, uint64_t, 1, AS_WORD, a *= v, (int64_t)a)
SCAN_INTEGERS(i8)
SCAN_INTEGERS(i16)
SCAN_INTEGERS(i32)
SCAN_INTEGERS(i64)
SCAN_INTEGERS(u8)

/* y[i] = a[i] y[i-1] + b[i]; views a, y, b */
#define LINEAR_SCAN(D)                                                                             \
    static void linear_scan_##D(void *ctx, const ct_bundle *b) {                                   \
        const scan *s = ctx;                                                                       \
        double state[SIDE_BY_SIDE] = {0};                                                          \
        SCAN_FOR(i, s) {                                                                           \
            const D##_element *x = (const D##_element *)(const void *)b->at[0] + i * b->step[0];   \
            const D##_element *z = (const D##_element *)(const void *)b->at[2] + i * b->step[2];   \
            D##_element *y = (D##_element *)(void *)b->at[1] + i * b->step[1];                     \
            for (int64_t j = 0; j < b->width; j++) {                                               \
                state[j] = D##_value(x[j * b->line[0]]) * state[j] + D##_value(z[j * b->line[2]]); \
                y[j * b->line[1]] = D##_round(state[j]);                                           \
            }                                                                                      \
        }                                                                                          \
    }
LINEAR_SCAN(f32)
LINEAR_SCAN(f64)
LINEAR_SCAN(f16)
LINEAR_SCAN(bf16)

#define D   f32
#define S   double
#define EXP exp
#define LOG log
#include "ops/scan/cpu/log_scan.h"
#define D   f64
#define S   double
#define EXP exp
#define LOG log
#include "ops/scan/cpu/log_scan.h"
#define D   f16
#define S   float
#define EXP expf
#define LOG logf
#include "ops/scan/cpu/log_scan.h"
#define D   bf16
#define S   float
#define EXP expf
#define LOG logf
#include "ops/scan/cpu/log_scan.h"

static inline int64_t i8_value(int8_t a) { return a; }
static inline int64_t i16_value(int16_t a) { return a; }
static inline int64_t i32_value(int32_t a) { return a; }
static inline int64_t i64_value(int64_t a) { return a; }
static inline int64_t u8_value(uint8_t a) { return a; }
#define D f32
#define S float
#include "ops/scan/cpu/extreme_scan.h"
#define D f64
#define S double
#include "ops/scan/cpu/extreme_scan.h"
#define D f16
#define S float
#include "ops/scan/cpu/extreme_scan.h"
#define D bf16
#define S float
#include "ops/scan/cpu/extreme_scan.h"
#define D i8
#define S int64_t
#include "ops/scan/cpu/extreme_scan.h"
#define D i16
#define S int64_t
#include "ops/scan/cpu/extreme_scan.h"
#define D i32
#define S int64_t
#include "ops/scan/cpu/extreme_scan.h"
#define D i64
#define S int64_t
#include "ops/scan/cpu/extreme_scan.h"
#define D u8
#define S int64_t
#include "ops/scan/cpu/extreme_scan.h"

#define TABLE_FLOATS(name) [CT_F32] = name##_f32, [CT_F64] = name##_f64, [CT_F16] = name##_f16, [CT_BF16] = name##_bf16
#define TABLE_INTEGERS(name)                                                                                       \
    [CT_I8] = name##_i8, [CT_I16] = name##_i16, [CT_I32] = name##_i32, [CT_I64] = name##_i64, [CT_U8] = name##_u8, \
    [CT_BOOL] = name##_u8
static const ct_bundle_fn cumsum_table[CT_DTYPE_COUNT] = {TABLE_FLOATS(cumsum), TABLE_INTEGERS(cumsum)};
static const ct_bundle_fn cumprod_table[CT_DTYPE_COUNT] = {TABLE_FLOATS(cumprod), TABLE_INTEGERS(cumprod)};
static const ct_bundle_fn cumprod_before_table[CT_DTYPE_COUNT] = {TABLE_FLOATS(cumprod_before)};
static const ct_bundle_fn linear_scan_table[CT_DTYPE_COUNT] = {TABLE_FLOATS(linear_scan)};
static const ct_bundle_fn logcumsumexp_table[CT_DTYPE_COUNT] = {TABLE_FLOATS(logcumsumexp)};
static const ct_bundle_fn cummax_table[CT_DTYPE_COUNT] = {TABLE_FLOATS(cummax), TABLE_INTEGERS(cummax)};
static const ct_bundle_fn cummin_table[CT_DTYPE_COUNT] = {TABLE_FLOATS(cummin), TABLE_INTEGERS(cummin)};

/* Views in the order x, y, and whatever is third: b of a recurrence, the indices of an extremum. */
static bool run(const ct_call *call, const ct_bundle_fn *table, int64_t axis, bool reverse) {
    const ct_view *x = call->in[0];
    const ct_view *third = call->n_in > 1 ? call->in[1] : call->n_out > 1 ? call->out[1] : NULL;
    const ct_view *views[] = {x, call->out[0], third};
    int at = x->ndim ? (int)(axis < 0 ? axis + x->ndim : axis) : 0;
    scan s = {.n = x->ndim ? x->dims[at] : 1, .reverse = reverse};
    bool neighbors = false;
    for (int i = 0; i < x->ndim; i++) neighbors |= i != at && x->strides[i] == 1 && x->dims[i] > 1;
    ct__lines(views, 3, at, -1, neighbors ? 16 : 1, neighbors ? SIDE_BY_SIDE : INTERLEAVED, s.n, table[x->dtype], &s);
    return true;
}

#define SCAN_RUN(op, table, REVERSE)                               \
    static bool op##_run(const ct_call *call, ct_stream *stream) { \
        (void)stream;                                              \
        const op##_attrs *attrs = call->attrs;                     \
        return run(call, table, attrs->axis, REVERSE);             \
    }
SCAN_RUN(cumsum, cumsum_table, false)
SCAN_RUN(cumsum_back, cumsum_table, true)
SCAN_RUN(cumprod, cumprod_table, false)
SCAN_RUN(cumprod_before, cumprod_before_table, attrs->reverse)
SCAN_RUN(linear_scan, linear_scan_table, attrs->reverse)
SCAN_RUN(logcumsumexp, logcumsumexp_table, false)
SCAN_RUN(cummax, cummax_table, false)
SCAN_RUN(cummin, cummin_table, false)

CT_KERNELS(scan_scan) = {
    CT_CANDIDATES(cumsum, {"cumsum", NULL, NULL, cumsum_run}),
    CT_CANDIDATES(cumsum_back, {"cumsum_back", NULL, NULL, cumsum_back_run}),
    CT_CANDIDATES(cumprod, {"cumprod", NULL, NULL, cumprod_run}),
    CT_CANDIDATES(cumprod_before, {"cumprod_before", NULL, NULL, cumprod_before_run}),
    CT_CANDIDATES(linear_scan, {"linear_scan", NULL, NULL, linear_scan_run}),
    CT_CANDIDATES(logcumsumexp, {"logcumsumexp", NULL, NULL, logcumsumexp_run}),
    CT_CANDIDATES(cummax, {"cummax", NULL, NULL, cummax_run}),
    CT_CANDIDATES(cummin, {"cummin", NULL, NULL, cummin_run}),
    {0},
};
