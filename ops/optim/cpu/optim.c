/* Kernels of the optimizers' steps: all tensors of all items are cut into slices, and one parallel region goes over them.
 * Each element is read once and written once; where a tensor is not dense or of another dtype than is computed in, a chunk
 * goes through blocks in the first cache. Sums are made chunk by chunk and added in that order. */
#include <math.h>

#include "backends/cpu/kernel.h"
#include "core/dtype.h"
#include "ops/optim/numbers.h"

enum {
    CHUNK = 1 << 14,
    BLOCK = 512,
    UNIT = 64,  /* elements that stay together */
    SLICES = 6, /* to a thread, since some may be slower than others */
};

/* Once a tensor, or for what is rare: better small than fast. */
#define SLOW __attribute__((noinline, cold))

/* The numbers of the steps that have no clock. */
typedef struct average_numbers {
    double keep, rest;
} average_numbers;

/* Squares are added up in f64, whatever is squared. */
typedef struct squares_f32 {
    vf64 low, high;
} squares_f32;
typedef struct squares_f64 {
    vf64 all;
} squares_f64;
SIMD_INLINE squares_f32 squares_zero_f32(void) { return (squares_f32){vf64_zero(), vf64_zero()}; }
SIMD_INLINE squares_f64 squares_zero_f64(void) { return (squares_f64){vf64_zero()}; }
SIMD_INLINE void squares_add_f32(squares_f32 *s, vf32 x) {
    const vf64 low = vf64_from_f32_lo(x), high = vf64_from_f32_hi(x);
    s->low = vf64_fma(low, low, s->low);
    s->high = vf64_fma(high, high, s->high);
}
SIMD_INLINE void squares_add_f64(squares_f64 *s, vf64 x) { s->all = vf64_fma(x, x, s->all); }
SIMD_INLINE double squares_sum_f32(const squares_f32 *s) { return vf64_hsum(vf64_add(s->low, s->high)); }
SIMD_INLINE double squares_sum_f64(const squares_f64 *s) { return vf64_hsum(s->all); }

#define T        float
#define V        vf32
#define DO(name) vf32_##name
#define OF(name) CT_SIMD_PASTE(name, _f32)
#define LANES    VF32_LANES
#include "ops/optim/cpu/lanes.h"
#undef T
#undef V
#undef DO
#undef OF
#undef LANES
#define T        double
#define V        vf64
#define DO(name) vf64_##name
#define OF(name) CT_SIMD_PASTE(name, _f64)
#define LANES    VF64_LANES
#include "ops/optim/cpu/lanes.h"
#undef T
#undef V
#undef DO
#undef OF
#undef LANES

/* What is done to a run of elements of the tensors of one item. */
typedef struct step {
    void (*f32)(const void *numbers, float *const *at, int64_t n, double factor, double *sums);
    void (*f64)(const void *numbers, double *const *at, int64_t n, double factor, double *sums);
    unsigned writes; /* a bit for each tensor that it changes */
} step;
#define STEP(name, writes) ((step){name##_f32, name##_f64, (writes)})

typedef struct job {
    const ct_view *const *in; /* (items, width) */
    const void *numbers;      /* that the step computes with */
    step does;
    int items, width;
    bool master, largest;   /* largest: sums are maxima */
    int64_t chunk;          /* elements */
    const int64_t *starts;  /* (items + 1): the first chunk of each item */
    double *factors;        /* (items) */
    double *sums;           /* (chunks, 2) */
    int64_t slices, others; /* chunks of the items that are not cut for all slices */
} job;

/* ---- Elements that do not lie as they are computed ---- */

SLOW static bool is_dense(const ct_view *view) {
    int64_t expected = 1;
    for (int d = view->ndim - 1; d >= 0; d--) {
        if (view->dims[d] != 1 && view->strides[d] != expected) return false;
        expected *= view->dims[d];
    }
    return true;
}

SLOW static int64_t count_of(const ct_view *view) {
    int64_t n = 1;
    for (int d = 0; d < view->ndim; d++) n *= view->dims[d];
    return n;
}

/* A place in a view that goes on in row-major order. */
typedef struct cursor {
    const ct_view *view;
    int64_t at[CT_MAX_DIMS], offset;
    size_t size;
} cursor;

SLOW static cursor cursor_at(const ct_view *view, int64_t position) {
    cursor c = {.view = view, .offset = view->offset, .size = ct_dtype_size(view->dtype)};
    for (int d = view->ndim - 1; d >= 0; d--) {
        c.at[d] = position % view->dims[d];
        position /= view->dims[d];
        c.offset += c.at[d] * view->strides[d];
    }
    return c;
}

static inline char *cursor_next(cursor *c) {
    char *here = (char *)c->view->buffer + c->offset * (int64_t)c->size;
    for (int d = c->view->ndim - 1; d >= 0; d--) {
        c->offset += c->view->strides[d];
        if (++c->at[d] < c->view->dims[d]) break;
        c->offset -= c->view->dims[d] * c->view->strides[d];
        c->at[d] = 0;
    }
    return here;
}

#define MOVES(D, T)                                                                                   \
    SLOW static void gather_##D(const ct_view *view, int64_t start, T *to, int64_t n) {               \
        cursor c = cursor_at(view, start);                                                            \
        for (int64_t i = 0; i < n; i++) to[i] = (T)ct__dtype_get(view->dtype, cursor_next(&c));       \
    }                                                                                                 \
    SLOW static void scatter_##D(const ct_view *view, int64_t start, const T *from, int64_t n) {      \
        cursor c = cursor_at(view, start);                                                            \
        for (int64_t i = 0; i < n; i++) ct__dtype_put(view->dtype, cursor_next(&c), (double)from[i]); \
    }
MOVES(f32, float)
MOVES(f64, double)

static void fetch_f32(const ct_view *view, bool dense, int64_t start, float *to, int64_t n) {
    const uint16_t *from = CT_AT(const uint16_t, view) + start;
    const bool f16 = view->dtype == CT_F16;
    if (!dense || !(f16 || view->dtype == CT_BF16)) {
        gather_f32(view, start, to, n);
        return;
    }
    for (int64_t i = 0; i < n; i += VF32_LANES) {
        const int k = (int)ct__min64(n - i, VF32_LANES);
        const vf32 v = f16 ? vf32_load_f16_n(from + i, k) : vf32_load_bf16_n(from + i, k);
        vf32_store_n(to + i, v, k);
    }
}

static void put_f32(const ct_view *view, bool dense, int64_t start, const float *from, int64_t n) {
    uint16_t *to = CT_AT(uint16_t, view) + start;
    const bool f16 = view->dtype == CT_F16;
    if (!dense || !(f16 || view->dtype == CT_BF16)) {
        scatter_f32(view, start, from, n);
        return;
    }
    for (int64_t i = 0; i < n; i += VF32_LANES) {
        const int k = (int)ct__min64(n - i, VF32_LANES);
        const vf32 v = vf32_load_n(from + i, k);
        if (f16) vf32_store_f16_n(to + i, v, k);
        else vf32_store_bf16_n(to + i, v, k);
    }
}

static void fetch_f64(const ct_view *view, bool dense, int64_t start, double *to, int64_t n) {
    (void)dense;
    gather_f64(view, start, to, n);
}
static void put_f64(const ct_view *view, bool dense, int64_t start, const double *from, int64_t n) {
    (void)dense;
    scatter_f64(view, start, from, n);
}

/* Elements start .. start + n of one item. The sums of blocks are added, or their largest kept (NaN is largest of all). */
static void merge(double *sums, const double *more, bool largest) {
    for (int k = 0; k < 2; k++)
        sums[k] = !largest ? sums[k] + more[k] : more[k] > sums[k] || more[k] != more[k] ? more[k] : sums[k];
}

#define D     f32
#define T     float
#define DTYPE CT_F32
#define LANES VF32_LANES
#include "ops/optim/cpu/chunks.h"
#define D     f64
#define T     double
#define DTYPE CT_F64
#define LANES VF64_LANES
#include "ops/optim/cpu/chunks.h"

/* ---- Chunks ---- */

static int64_t item_count(const job *j, int item) { return count_of(j->in[(int64_t)item * j->width + j->master]); }

static void do_elements(const job *j, int item, int64_t start, int64_t n, double *sums) {
    sums[0] = sums[1] = 0;
    if (j->in[(int64_t)item * j->width + j->master]->dtype == CT_F64) elements_f64(j, item, start, n, sums, j->largest);
    else elements_f32(j, item, start, n, sums, j->largest);
}

/* Whether every slice gets enough of an item that it is worth to cut it: an eighth of a chunk, or, with sums, some chunks. */
static bool is_cut(const job *j, int item) {
    const int64_t whole = j->starts[item + 1] - j->starts[item] - 1;
    return j->sums ? whole >= 4 * j->slices : 8 * whole >= j->slices;
}

/* A slice is the same fraction of every large item, so that threads find what they have written of a gradient, and what they will read of a
 * weight, in their own caches: products are cut like that too. With sums it is whole chunks. Of all other items together it is that fraction
 * of their chunks. */
static void slice_task(void *context, int64_t slice, int worker) {
    const job *j = context;
    const int64_t from = j->others * slice / j->slices, to = j->others * (slice + 1) / j->slices;
    int64_t before = 0; /* chunks of others before this item */
    double unused[2];
    (void)worker;
    for (int i = 0; i < j->items; i++) {
        const bool cut = is_cut(j, i);
        const int64_t chunks = j->starts[i + 1] - j->starts[i];
        if (!cut && (!chunks || before + chunks <= from || before >= to)) {
            before += chunks;
            continue;
        }
        const int64_t n = item_count(j, i), unit = !cut || j->sums ? j->chunk : UNIT, units = (n + unit - 1) / unit,
                      first = cut ? units * slice / j->slices : ct__max64(from - before, 0),
                      end = cut ? units * (slice + 1) / j->slices : ct__min64(to - before, chunks);
        if (!j->sums && first < end) do_elements(j, i, first * unit, ct__min64(n, end * unit) - first * unit, unused);
        for (int64_t c = first; j->sums && c < end; c++)
            do_elements(j, i, c * unit, ct__min64(n - c * unit, unit), j->sums + 2 * (j->starts[i] + c));
        if (!cut) before += chunks;
    }
}

/* All elements; what is small stays on this thread. */
static void sweep(job *j, step does, bool small) {
    const int64_t threads = ct__threads(), most = 4 * j->starts[j->items];
    j->does = does;
    j->slices = small || threads == 1 ? 1 : most < threads ? most : threads * ct__min64(SLICES, most / threads);
    j->others = 0;
    for (int i = 0; i < j->items; i++) j->others += is_cut(j, i) ? 0 : j->starts[i + 1] - j->starts[i];
    if (j->slices == 1) slice_task(j, 0, 0);
    else ct__parallel(j->slices, slice_task, j);
}

/* The sums of an item's chunks, in order. */
static void item_sums(const job *j, int item, double *sums) {
    sums[0] = sums[1] = 0;
    for (int64_t c = j->starts[item]; c < j->starts[item + 1]; c++) merge(sums, j->sums + 2 * c, j->largest);
}

static int64_t chunks_of(const ct_view *view, int64_t chunk) { return (count_of(view) + chunk - 1) / chunk; }

/* A list that begins at input `first`, of items of `width` tensors. */
static size_t starts_bytes(const ct_call *call, int first, int width) {
    return ((size_t)(call->n_in - first) / (size_t)width + 1) * sizeof(int64_t);
}

static size_t sums_bytes(const ct_call *call, int first, int width) {
    const int64_t chunk = ct__grain(CHUNK);
    int64_t chunks = 0;
    for (int i = first; i < call->n_in; i += width) chunks += chunks_of(call->in[i], chunk);
    return starts_bytes(call, first, width) * 2 + (size_t)chunks * 2 * sizeof(double);
}

/* Scratch: the starts, then factors and sums where they are wanted. Returns whether all is too small for threads. */
static bool prepare(job *j, const ct_call *call, int first, int width, const void *numbers, bool sums) {
    int64_t *starts = ct__scratch(call), elements = 0;
    *j = (job){.in = call->in + first,
               .numbers = numbers,
               .items = (call->n_in - first) / width,
               .width = width,
               .chunk = ct__grain(CHUNK)};
    starts[0] = 0;
    for (int i = 0; i < j->items; i++) {
        const ct_view *view = j->in[(int64_t)i * width];
        starts[i + 1] = starts[i] + chunks_of(view, j->chunk);
        elements += count_of(view);
    }
    j->starts = starts;
    if (sums) j->sums = (double *)(starts + j->items + 1) + j->items + 1;
    return elements <= j->chunk;
}

static bool put_count(const ct_call *call, int first, int width) {
    if (call->out[0]) *CT_AT(float, call->out[0]) = (float)((call->n_in - first) / width);
    return true;
}

/* ---- The ops ---- */

/* Every element by itself. */
static void each(const ct_call *call, int width, bool master, const void *numbers, step does) {
    job j;
    const bool small = prepare(&j, call, OPTIM_ITEMS_AT, width, numbers, false);
    j.master = master;
    sweep(&j, does, small);
}

/* In two passes: the first makes the squared lengths that the factor of each item in the second comes from. */
typedef double (*ratio_of)(const void *numbers, double length, double other);
static void by_lengths(const ct_call *call, int width, bool master, const void *numbers, step first, ratio_of ratio,
                       step second) {
    job j;
    const bool small = prepare(&j, call, OPTIM_ITEMS_AT, width, numbers, true);
    j.master = master;
    sweep(&j, first, small);
    double *factors = (double *)(j.starts + j.items + 1);
    for (int i = 0; i < j.items; i++) {
        double s[2];
        item_sums(&j, i, s);
        factors[i] = ratio(numbers, sqrt(s[0]), sqrt(s[1]));
    }
    j.factors = factors;
    j.sums = NULL;
    sweep(&j, second, small);
}

/* The kernel of one op: its numbers, unless the gate is shut, and DOES with them. tensors: of an item, without the master. */
#define KERNEL(name, BYTES, DOES)                                               \
    static size_t name##_scratch(const ct_call *call) {                         \
        return BYTES(call, OPTIM_ITEMS_AT, optim_##name##_width(call->attrs));  \
    }                                                                           \
    static bool name##_run(const ct_call *call, ct_stream *stream) {            \
        const optim_##name##_attrs *a = call->attrs;                            \
        const int width = optim_##name##_width(a), tensors = width - a->master; \
        name##_numbers n;                                                       \
        (void)stream, (void)tensors;                                            \
        if (ct__optim_##name##_numbers(call, &n)) DOES;                         \
        return put_count(call, OPTIM_ITEMS_AT, width);                          \
    }
#define EACH(name, CHOOSE) KERNEL(name, starts_bytes, each(call, width, a->master, &n, (CHOOSE)))
#define BY_LENGTHS(name, FIRST, SECOND) \
    KERNEL(name, sums_bytes, by_lengths(call, width, a->master, &n, (FIRST), name##_ratio, (SECOND)))

enum { ALL_BUT_GRADIENT = ~2u & 63 };

EACH(sgd, tensors == 2 ? STEP(sgd_2, ALL_BUT_GRADIENT) : STEP(sgd_3, ALL_BUT_GRADIENT))
EACH(adam, tensors == 4 ? STEP(adam_4, ALL_BUT_GRADIENT) : STEP(adam_5, ALL_BUT_GRADIENT))
EACH(rmsprop, tensors == 3   ? STEP(rmsprop_3, ALL_BUT_GRADIENT)
              : tensors == 4 ? STEP(rmsprop_4, ALL_BUT_GRADIENT)
                             : STEP(rmsprop_5, ALL_BUT_GRADIENT))
EACH(adagrad, STEP(adagrad_3, ALL_BUT_GRADIENT))
EACH(adadelta, STEP(adadelta_4, ALL_BUT_GRADIENT))
EACH(lion, STEP(lion_3, ALL_BUT_GRADIENT))

static double lamb_ratio(const void *numbers, double weight, double direction) {
    return optim_lamb_ratio(numbers, weight, direction);
}
static double lars_ratio(const void *numbers, double weight, double gradient) {
    return optim_lars_ratio(numbers, weight, gradient);
}
BY_LENGTHS(lamb, STEP(lamb_moments, 12), STEP(lamb_step, 1))
BY_LENGTHS(lars, STEP(lars_lengths, 0), STEP(lars_step, 5))

/* The second pass reads what the first has stored. */
static const char *lamb_can(const ct_call *call) {
    const optim_lamb_attrs *a = call->attrs;
    const int width = optim_lamb_width(a);
    for (int i = OPTIM_ITEMS_AT; i < call->n_in; i++)
        if ((i - OPTIM_ITEMS_AT) % width >= 2 + a->master && ct_dtype_size(call->in[i]->dtype) < 4)
            return "the moments are of a half type";
    return NULL;
}

static size_t average_scratch(const ct_call *call) { return starts_bytes(call, 1, 2); }
static bool average_run(const ct_call *call, ct_stream *stream) {
    const average_numbers n = {ct__optim_number(call->in[0], 0), ct__optim_number(call->in[0], 1)};
    job j;
    (void)stream;
    const bool small = prepare(&j, call, 1, 2, &n, false);
    sweep(&j, STEP(average_2, 1), small);
    return put_count(call, 1, 2);
}

/* All tensors after the first times factor; whether no result is infinite or NaN. */
static bool scale_all(const ct_call *call, double factor) {
    job j;
    double bad = 0;
    const bool small = prepare(&j, call, 1, 1, &factor, true);
    sweep(&j, STEP(scale_1, 1), small);
    for (int64_t c = 0; c < j.starts[j.items]; c++) bad += j.sums[2 * c];
    return bad == 0;
}

static size_t scale_scratch(const ct_call *call) { return sums_bytes(call, 1, 1); }
static bool unscale_run(const ct_call *call, ct_stream *stream) {
    const bool late = ((const optim_unscale_attrs *)call->attrs)->late;
    const double factor = 1 / ct__optim_number(call->in[0], 0);
    (void)stream;
    const bool finite = scale_all(call, late ? 1 : factor);
    if (call->out[0]) {
        ct__optim_put_number(call->out[0], 0, late ? factor : 1);
        ct__optim_put_number(call->out[0], 1, finite);
    }
    return true;
}

static bool clip_run(const ct_call *call, ct_stream *stream) {
    const double most = ((const optim_clip_attrs *)call->attrs)->max_norm, norm = ct__optim_number(call->in[0], 0);
    const double factor = isinf(most) ? 1 : most / (norm + 1e-6); /* no limit: nothing is larger */
    (void)stream;
    if (!(factor >= 1)) scale_all(call, factor);
    return put_count(call, 1, 1);
}

static size_t norm_scratch(const ct_call *call) { return sums_bytes(call, 0, 1); }
static bool norm_run(const ct_call *call, ct_stream *stream) {
    const double kind = ((const optim_norm_attrs *)call->attrs)->kind;
    job j;
    double total[2] = {0, 0};
    (void)stream;
    const bool small = prepare(&j, call, 0, 1, &kind, true);
    j.largest = isinf(kind);
    sweep(&j, STEP(norm_1, 0), small);
    for (int i = 0; i < j.items; i++) {
        double s[2];
        item_sums(&j, i, s);
        merge(total, s, j.largest);
    }
    const double norm = isinf(kind) ? total[0] : kind == 2 ? sqrt(total[0]) : pow(total[0], 1 / kind);
    if (call->out[0]->dtype == CT_F64) *CT_AT(double, call->out[0]) = norm;
    else *CT_AT(float, call->out[0]) = (float)norm; /* a device without f64 */
    return true;
}

#define CHUNKS(name, can, scratch) CT_CANDIDATES(optim_##name, {"optim_" #name "_chunks", can, scratch, name##_run})

CT_KERNELS(optim_optim) = {
    CHUNKS(sgd, NULL, sgd_scratch),
    CHUNKS(adam, NULL, adam_scratch),
    CHUNKS(rmsprop, NULL, rmsprop_scratch),
    CHUNKS(adagrad, NULL, adagrad_scratch),
    CHUNKS(adadelta, NULL, adadelta_scratch),
    CHUNKS(lion, NULL, lion_scratch),
    CHUNKS(lamb, lamb_can, lamb_scratch),
    CHUNKS(lars, NULL, lars_scratch),
    CHUNKS(average, NULL, average_scratch),
    CHUNKS(unscale, NULL, scale_scratch),
    CHUNKS(clip, NULL, scale_scratch),
    CHUNKS(norm, NULL, norm_scratch),
    {0},
};
