/* Max and average pooling, their gradients, and what the places of winners need: arguments of the device code. */
#include "ops/pool/cuda/pool.h"

#include <math.h>
#include <string.h>

#include "backends/cuda/cuda.h"

#include "gen/pool.attrs.h"

enum {
    DTYPES = CT_BF16 + 1,
    MOST_TAPS =
        1024, /* of a mean by one thread; longer windows are better products with a matrix, as the lowering has them */
};

CT_CUDA_OVERLAPPING_UNIT(pool_pool);
extern const unsigned char ct_fatbin_pool_pool_small[];
static ct_cuda_unit small_unit = CT_CUDA_UNIT_FROM("pool_pool_small", ct_fatbin_pool_pool_small, true);
#define OF_DTYPES(name)                                                                              \
    {                                                                                                \
        CT_CUDA_FUNCTION(name "_f32"), CT_CUDA_FUNCTION(name "_f64"), CT_CUDA_FUNCTION(name "_f16"), \
            CT_CUDA_FUNCTION(name "_bf16")                                                           \
    }
typedef ct_cuda_function by_dtype[DTYPES];
#define SMALL(name, K)                                                \
    {                                                                 \
        [CT_F32] = CT_CUDA_FUNCTION_OF(&small_unit, name K "_f32"),   \
        [CT_F16] = CT_CUDA_FUNCTION_OF(&small_unit, name K "_f16"),   \
        [CT_BF16] = CT_CUDA_FUNCTION_OF(&small_unit, name K "_bf16"), \
    }
/* Any windows, then those of 2 x 2 and of 3 x 3; each along rows, and with channels innermost. */
typedef struct pool_code {
    by_dtype any[2], small[2][2];
} pool_code;
#define CODE(name)                                                              \
    {                                                                           \
        {OF_DTYPES("pool_" name), OF_DTYPES("pool_" name "_last")}, {           \
            {SMALL("small_" name, "_2"), SMALL("small_" name "_last", "_2")}, { \
                SMALL("small_" name, "_3"), SMALL("small_" name "_last", "_3")  \
            }                                                                   \
        }                                                                       \
    }
static pool_code max_code = CODE("max"), mean_code = CODE("mean"), max_grad_code = CODE("max_grad"),
                 mean_grad_code = CODE("mean_grad");

/* ---- Windows ---- */

/* What the attributes of these ops have in common. */
typedef struct windows {
    const ct_dims *sizes, *kernel, *strides, *pads, *dilations; /* dilations NULL: 1 */
    bool last, exclude_pad;
    int64_t divisor;
} windows;
#define MAX_WINDOWS(a) \
    ((windows){&(a)->sizes, &(a)->kernel, &(a)->strides, &(a)->pads, &(a)->dilations, (a)->channels_last, false, 0})
#define MEAN_WINDOWS(a)                                                                                          \
    ((windows){&(a)->sizes, &(a)->kernel, &(a)->strides, &(a)->pads, NULL, (a)->channels_last, (a)->exclude_pad, \
               (a)->divisor_override})

static int64_t listed(const ct_dims *list, int i, int64_t normal) {
    return !list || list->n == 0 ? normal : list->d[list->n == 1 ? 0 : i];
}
static int64_t padded(const ct_dims *pads, int rank, int i, int side) {
    return pads->n == 2 * rank ? pads->d[2 * i + side] : listed(pads, i, 0);
}

static ct_cuda_image image_of(const ct_view *view, bool last) {
    ct_cuda_image s = {.n = view->strides[0], .c = view->strides[last ? view->ndim - 1 : 1]};
    const int rank = view->ndim - 2;
    for (int i = 0; i < rank; i++) s.s[3 - rank + i] = view->strides[(last ? 1 : 2) + i];
    return s;
}

/* The windows over an image of w's sizes; `pooled` is a view of what they give. */
static void set_windows(ct_cuda_pool *p, const windows *w, const ct_view *pooled) {
    const int rank = pooled->ndim - 2;
    for (int d = 0; d < 3; d++) {
        const int i = d - (3 - rank);
        p->in[d] = p->out[d] = p->kernel[d] = p->stride[d] = p->dilation[d] = 1;
        if (i < 0) continue;
        p->in[d] = (int32_t)w->sizes->d[i], p->out[d] = (int32_t)pooled->dims[(w->last ? 1 : 2) + i];
        p->kernel[d] = (int32_t)listed(w->kernel, i, 1);
        p->before[d] = (int32_t)padded(w->pads, rank, i, 0), p->after[d] = (int32_t)padded(w->pads, rank, i, 1);
        if (p->kernel[d] > 1) p->dilation[d] = (int32_t)listed(w->dilations, i, 1);
        if (p->out[d] > 1) p->stride[d] = (int32_t)listed(w->strides, i, 1);
    }
    p->exclude_pad = w->exclude_pad;
    p->divisor = (double)w->divisor;
    p->strides.ndim = 3, p->strides.total = 1;
    for (int d = 0; d < 3; d++) p->strides.sizes[d] = p->stride[d];
    ct_cuda_nest_end(&p->strides);
}

/* Places are 32 bits wide on the device. */
static const char *check_windows(const windows *w) {
    for (int i = 0; i < w->sizes->n; i++) {
        const int64_t span = listed(w->dilations, i, 1) * (listed(w->kernel, i, 1) - 1) + 1;
        if (w->sizes->d[i] > 1 << 29 || span > 1 << 29) return "an axis is longer than 2^29";
    }
    return NULL;
}

/* ---- Results ---- */

static void set_at(ct_cuda_pool *p, const ct_view *at, bool last) {
    if (!at) return;
    p->at = ct_cuda_address(at);
    p->at_s = image_of(at, last);
    p->at_size = (int32_t)ct_cuda_dtype_size(at->dtype);
}

static bool strides_divide(const ct_cuda_image *s, int64_t v, const int32_t *sizes, bool last) {
    if (s->n % v || (!last && s->c % v)) return false;
    for (int d = 0; d < (last ? 3 : 2); d++)
        if (sizes[d] > 1 && s->s[d] % v) return false;
    return true;
}

static bool is_near(const ct_cuda_image *s, const int32_t *sizes) { /* offsets in a plane have 32 bits */
    const double far = (double)sizes[1] * fabs((double)s->s[1]) + (double)sizes[2] * fabs((double)s->s[2]);
    return far < INT32_MAX;
}

/* Whether these are windows for the device code of small ones, as pool_small.cu has them. */
static bool is_small(const ct_cuda_pool *p, ct_dtype dtype, bool last, bool backward) {
    const int32_t *from = backward ? p->out : p->in, *to = backward ? p->in : p->out;
    if (dtype == CT_F64 || p->in[0] != 1 || p->out[0] != 1 || p->kernel[0] != 1) return false;
    if (p->kernel[1] != p->kernel[2] || p->kernel[1] < 2 || p->kernel[1] > 3) return false;
    if (!is_near(&p->from_s, from) || !is_near(&p->to_s, to) || !is_near(&p->at_s, p->out)) return false;
    if (last && (!p->packed || (p->at && !p->at_packed))) return false;
    if (p->at && p->at_size != 1) return false;
    for (int d = 1; d < 3 && backward; d++)
        if (p->dilation[d] != 1 || (p->out[d] > 1 && p->stride[d] < 2)) return false;
    return true;
}

/* From x to y, or from g to dx. */
static bool run(const ct_call *call, pool_code *code, ct_cuda_pool *p, const windows *w, bool backward) {
    const ct_view *from = call->in[0], *to = call->out[0], *big = backward ? to : from;
    const ct_dtype dtype = from->dtype;
    const int64_t size = (int64_t)ct_cuda_dtype_size(dtype), items = to->dims[0],
                  channels = to->dims[w->last ? to->ndim - 1 : 1];
    set_windows(p, w, backward ? from : to);
    p->from = ct_cuda_address(from), p->to = ct_cuda_address(to);
    p->from_s = image_of(from, w->last), p->to_s = image_of(to, w->last);
    const ct_cuda_image s = image_of(big, w->last);
    const bool last = channels > 1 && s.c == 1 && (p->in[2] == 1 || s.s[2] != 1);
    const int32_t *sizes = backward ? p->in : p->out;
    const int64_t v = last ? 16 / size : CT_POOL_ROW;
    int64_t each = 1;
    if (last) {
        const uintptr_t all = (uintptr_t)p->from | (uintptr_t)p->to;
        p->packed = channels % v == 0 && p->from_s.c == 1 && p->to_s.c == 1 && all % 16 == 0 &&
                    strides_divide(&p->from_s, v, backward ? p->out : p->in, true) &&
                    strides_divide(&p->to_s, v, sizes, true);
        p->at_packed = p->packed && p->at && p->at_size == 1 && p->at_s.c == 1 &&
                       (uintptr_t)p->at % (uintptr_t)v == 0 && strides_divide(&p->at_s, v, p->out, true);
        if (p->packed) each = v;
    } else if (backward) {
        p->packed = p->in[2] % v == 0 && p->to_s.s[2] == 1 &&
                    (uintptr_t)p->to % (uintptr_t)(v * size < 16 ? v * size : 16) == 0 &&
                    strides_divide(&p->to_s, v, sizes, false);
        each = v;
    }
    const bool small = is_small(p, dtype, last, backward);
    const int64_t column = !small || last ? 1 : backward ? 2 : CT_POOL_COLUMN;
    const int64_t rows[5] = {items, channels, sizes[0], (sizes[1] + column - 1) / column, (sizes[2] + each - 1) / each};
    const int64_t tile = small && last && backward ? 2 : 1;
    const int64_t side[5] = {items, sizes[0], (sizes[1] + tile - 1) / tile, (sizes[2] + tile - 1) / tile,
                             (channels + each - 1) / each};
    p->results.ndim = 5, p->results.total = 1;
    for (int d = 0; d < 5; d++) p->results.total *= p->results.sizes[d] = last ? side[d] : rows[d];
    if (p->results.total == 0) return true;
    ct_cuda_nest_end(&p->results);
    const ct_cuda_shape shape = {.grid = ct_cuda_blocks(call, p->results.total, CT_POOL_THREADS),
                                 .block = CT_POOL_THREADS};
    ct_cuda_function *function = &(small ? code->small[p->kernel[1] - 2] : code->any)[last][dtype];
    return ct_cuda_launch(call, function, shape, p);
}

static ct_cuda_pool none(void) {
    ct_cuda_pool p;
    memset(&p, 0, sizeof p);
    return p;
}

static const char *check_dtype(const ct_call *call) {
    if ((int)call->in[0]->dtype >= DTYPES) return "floats only";
    return call->out[0] ? NULL : "its first result is not asked for";
}

/* ---- Max ---- */

#define CAN(op, WINDOWS)                               \
    static const char *op##_can(const ct_call *call) { \
        const op##_attrs *a = call->attrs;             \
        const windows w = WINDOWS(a);                  \
        const char *why = check_dtype(call);           \
        return why ? why : check_windows(&w);          \
    }
CAN(max_pool_nd, MAX_WINDOWS)
CAN(max_pool_grad, MAX_WINDOWS)
CAN(max_pool_take, MAX_WINDOWS)

static bool max_pool_nd_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const max_pool_nd_attrs *a = call->attrs;
    const windows w = MAX_WINDOWS(a);
    ct_cuda_pool p = none();
    set_at(&p, call->n_out > 1 ? call->out[1] : NULL, w.last);
    return run(call, &max_code, &p, &w, false);
}

static bool max_pool_grad_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const max_pool_grad_attrs *a = call->attrs;
    const windows w = MAX_WINDOWS(a);
    ct_cuda_pool p = none();
    set_at(&p, call->in[1], w.last);
    return run(call, &max_grad_code, &p, &w, true);
}

/* ---- Winners ---- */

/* A result for each winner. */
static bool run_winners(const ct_call *call, ct_cuda_function *code, ct_cuda_pool *p, const windows *w) {
    const ct_view *to = call->out[0];
    set_windows(p, w, to);
    p->to = ct_cuda_address(to), p->to_s = image_of(to, w->last);
    const int64_t sizes[5] = {to->dims[0], to->dims[w->last ? to->ndim - 1 : 1], p->out[0], p->out[1], p->out[2]};
    p->results.ndim = 5, p->results.total = 1;
    for (int d = 0; d < 5; d++) p->results.total *= p->results.sizes[d] = sizes[d];
    if (p->results.total == 0) return true;
    ct_cuda_nest_end(&p->results);
    const ct_cuda_shape shape = {.grid = ct_cuda_blocks(call, p->results.total, CT_POOL_THREADS),
                                 .block = CT_POOL_THREADS};
    return ct_cuda_launch(call, code, shape, p);
}

static bool max_pool_take_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    static by_dtype code = {CT_CUDA_FUNCTION("pool_take_32"), CT_CUDA_FUNCTION("pool_take_64"),
                            CT_CUDA_FUNCTION("pool_take_16"), CT_CUDA_FUNCTION("pool_take_16")};
    const max_pool_take_attrs *a = call->attrs;
    const windows w = MAX_WINDOWS(a);
    ct_cuda_pool p = none();
    set_at(&p, call->in[1], w.last);
    p.from = ct_cuda_address(call->in[0]), p.from_s = image_of(call->in[0], w.last);
    return run_winners(call, &code[call->in[0]->dtype], &p, &w);
}

static const char *max_pool_places_can(const ct_call *call) {
    const max_pool_places_attrs *a = call->attrs;
    const windows w = MAX_WINDOWS(a);
    return check_windows(&w);
}

static bool max_pool_places_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    static ct_cuda_function code = CT_CUDA_FUNCTION("pool_places");
    const max_pool_places_attrs *a = call->attrs;
    const windows w = MAX_WINDOWS(a);
    ct_cuda_pool p = none();
    set_at(&p, call->in[0], w.last);
    return run_winners(call, &code, &p, &w);
}

/* ---- Means ---- */

static const char *check_means(const ct_call *call, const windows *w) {
    const char *why = check_dtype(call);
    double taps = 1;
    for (int i = 0; i < w->sizes->n; i++) taps *= (double)listed(w->kernel, i, 1);
    if (!why && taps > MOST_TAPS) why = "a window has too many elements for one thread";
    return why ? why : check_windows(w);
}

#define MEANS(op, code, backward)                                  \
    static const char *op##_can(const ct_call *call) {             \
        const op##_attrs *a = call->attrs;                         \
        return check_means(call, &MEAN_WINDOWS(a));                \
    }                                                              \
    static bool op##_run(const ct_call *call, ct_stream *stream) { \
        (void)stream;                                              \
        const op##_attrs *a = call->attrs;                         \
        ct_cuda_pool p = none();                                   \
        return run(call, code, &p, &MEAN_WINDOWS(a), backward);    \
    }
MEANS(avg_pool_nd, &mean_code, false)
MEANS(avg_pool_grad, &mean_grad_code, true)

CT_CUDA_KERNELS(pool_pool) = {
    CT_CANDIDATES(max_pool_nd, {"windows", max_pool_nd_can, NULL, max_pool_nd_run}),
    CT_CANDIDATES(max_pool_grad, {"gather", max_pool_grad_can, NULL, max_pool_grad_run}),
    CT_CANDIDATES(max_pool_take, {"winners", max_pool_take_can, NULL, max_pool_take_run}),
    CT_CANDIDATES(max_pool_places, {"winners", max_pool_places_can, NULL, max_pool_places_run}),
    CT_CANDIDATES(avg_pool_nd, {"windows", avg_pool_nd_can, NULL, avg_pool_nd_run}),
    CT_CANDIDATES(avg_pool_grad, {"gather", avg_pool_grad_can, NULL, avg_pool_grad_run}),
    {0},
};
