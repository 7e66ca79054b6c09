/* Max and average pooling, their gradients, and what the places of winners need: the host side. */
#include "backends/webgpu/webgpu.h"

#include "gen/pool.attrs.h"

CT_WGPU_UNIT(pool_pool);
extern const char ct_wgsl_pool_quads[], ct_wgsl_pool_singles[], ct_wgsl_pool_words[];

enum {
    THREADS = 256,
    COLUMN = 4, /* results of a column, or elements of a row, that an invocation makes */
    MOST_TAPS =
        1024, /* of a mean by one invocation; longer windows are better products with a matrix, as the lowering has them */
};
enum taps { NO_TAPS, WHOLE, ROWS, SINGLE }; /* as in pool.wgsl */

typedef struct image {
    uint32_t s[3], c; /* strides in elements */
} image;

typedef struct params {
    uint32_t total, planes, channels;
    float divisor;
    int32_t in[4], out[4], before[4], after[4];
    image from, to, at;
    uint32_t batch[4];
    uint32_t tiles[2];
    float tiles_inverse[2];
    uint32_t exclude_pad, quads, plane, pad;
} params;

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

/* Places are 32 bits wide on the device. */
static const char *check_windows(const windows *w) {
    for (int i = 0; i < w->sizes->n; i++) {
        const int64_t span = listed(w->dilations, i, 1) * (listed(w->kernel, i, 1) - 1) + 1;
        if (w->sizes->d[i] > 1 << 28 || span > 1 << 28 || listed(w->strides, i, 1) > 1 << 28)
            return "an axis is longer than 2^28";
    }
    return NULL;
}

/* ---- A call ---- */

typedef struct pool {
    const ct_call *call;
    const windows *w;
    const ct_view *from, *to, *at;
    params p;
    uint32_t kernel[3], stride[3], dilation[3];
    bool max;
} pool;

static image image_of(const ct_view *view, bool last, uint32_t unit_size) {
    image s = {.c = (uint32_t)view->strides[last ? view->ndim - 1 : 1] * unit_size};
    const int rank = view->ndim - 2;
    for (int i = 0; i < rank; i++) s.s[3 - rank + i] = (uint32_t)view->strides[(last ? 1 : 2) + i] * unit_size;
    return s;
}

/* Taps may be i64; then it is their lower words that are looked at. */
static uint32_t tap_words(const ct_view *at) { return at && at->dtype == CT_I64 ? 2 : 1; }

/* pooled: a view of what the windows give. */
static pool pool_of(const ct_call *call, const windows *w, const ct_view *from, const ct_view *to, const ct_view *at,
                    const ct_view *pooled) {
    pool o = {.call = call, .w = w, .from = from, .to = to, .at = at};
    params *p = &o.p;
    const int rank = pooled->ndim - 2;
    for (int d = 0; d < 3; d++) {
        const int i = d - (3 - rank);
        p->in[d] = p->out[d] = 1;
        o.kernel[d] = o.stride[d] = o.dilation[d] = 1;
        if (i < 0) continue;
        p->in[d] = (int32_t)w->sizes->d[i], p->out[d] = (int32_t)pooled->dims[(w->last ? 1 : 2) + i];
        p->before[d] = (int32_t)padded(w->pads, rank, i, 0), p->after[d] = (int32_t)padded(w->pads, rank, i, 1);
        o.kernel[d] = (uint32_t)listed(w->kernel, i, 1);
        if (o.kernel[d] > 1) o.dilation[d] = (uint32_t)listed(w->dilations, i, 1);
        if (p->out[d] > 1) o.stride[d] = (uint32_t)listed(w->strides, i, 1);
    }
    const ct_view *views[] = {from, to, at};
    image *images[] = {&p->from, &p->to, &p->at};
    for (int k = 0; k < 3; k++) {
        if (!views[k]) continue;
        const uint32_t words = k == 2 ? tap_words(at) : 1;
        *images[k] = image_of(views[k], w->last, words);
        p->batch[k] = (uint32_t)views[k]->strides[0] * words;
    }
    p->channels = (uint32_t)pooled->dims[w->last ? pooled->ndim - 1 : 1];
    p->divisor = (float)w->divisor;
    p->exclude_pad = w->exclude_pad;
    p->plane = (uint32_t)p->out[1] * (uint32_t)p->out[2];
    return o;
}

static void add_constants(ct_wgpu_launch *l, const pool *o) {
    static const char *const names[] = {"K0", "K1", "K2", "S0", "S1", "S2", "D0", "D1", "D2"};
    for (int d = 0; d < 3; d++) ct_wgpu_constant(l, names[d], o->kernel[d]);
    for (int d = 0; d < 3; d++) ct_wgpu_constant(l, names[3 + d], o->stride[d]);
    for (int d = 0; d < 3; d++) ct_wgpu_constant(l, names[6 + d], o->dilation[d]);
    ct_wgpu_constant(l, "MAX", o->max);
}

static void add_at(ct_wgpu_launch *l, const pool *o, unsigned mode) {
    ct_wgpu_operand_of(l, "at", o->at, mode);
    if (!o->at || o->at->dtype == CT_I64) l->operands[l->n - 1].dtype = CT_I32;
}

static int64_t items_of(const pool *o) { return o->to ? o->to->dims[0] : o->from->dims[0]; }

/* ---- Channels last ---- */

static bool divides(const image *s, uint32_t batch) {
    return s->c == 1 && batch % 4 == 0 && s->s[0] % 4 == 0 && s->s[1] % 4 == 0 && s->s[2] % 4 == 0;
}

static bool run_last(pool *o, const char *function, bool backward) {
    params *p = &o->p;
    const int32_t *sizes = backward ? p->in : p->out;
    bool quads = p->channels % 4 == 0 && divides(&p->from, p->batch[0]) && divides(&p->to, p->batch[1]) &&
                 ct_wgpu_fits(o->from, 4) && ct_wgpu_fits(o->to, 4);
    if (o->at) quads = quads && divides(&p->at, p->batch[2]) && o->at->dtype != CT_I64 && ct_wgpu_fits(o->at, 4);
    p->quads = (p->channels + 3) / 4;
    const int64_t total = items_of(o) * sizes[0] * sizes[1] * sizes[2] * p->quads;
    p->total = (uint32_t)total;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, function, THREADS);
    const unsigned mode = quads ? CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY : 0;
    ct_wgpu_operand_of(&l, "from", o->from, mode);
    ct_wgpu_operand_of(&l, "to", o->to, mode | CT_WGPU_WRITTEN);
    add_at(&l, o, mode | (backward ? 0 : CT_WGPU_WRITTEN));
    add_constants(&l, o);
    ct_wgpu_constant(&l, "TAPS", o->at ? SINGLE : NO_TAPS);
    l.more = quads ? ct_wgsl_pool_quads : ct_wgsl_pool_singles;
    return ct_wgpu_enqueue(o->call, &l, ct_wgpu_groups(total, THREADS), p, sizeof *p);
}

/* ---- Planes ---- */

/* The least power of two that is not below n, from 1 to most. */
static uint32_t power_for(int64_t n, uint32_t most) {
    uint32_t power = 1;
    while (power < most && power < n) power *= 2;
    return power;
}

static bool run_planes(pool *o, const char *function, bool backward) {
    params *p = &o->p;
    const int32_t *sizes = backward ? p->in : p->out;
    const int64_t columns = backward ? ct_wgpu_ceil_div(sizes[2], COLUMN) : sizes[2],
                  rows = backward ? sizes[1] : ct_wgpu_ceil_div(sizes[1], COLUMN);
    const int64_t planes = items_of(o) * p->channels * sizes[0];
    const bool joined =
        (items_of(o) == 1 || (p->batch[0] == p->from.c * p->channels && p->batch[1] == p->to.c * p->channels &&
                              (!o->at || p->batch[2] == p->at.c * p->channels)));
    const bool flat = p->in[0] == 1 && p->out[0] == 1 && joined;
    uint32_t tw = power_for(columns, 64), th = power_for(rows, THREADS / tw);
    enum taps taps = o->at && !backward ? SINGLE : NO_TAPS;
    bool words = false;
    if (taps && o->at->dtype == CT_U8 && ct_wgpu_is_dense(o->at) && !o->w->last && ct_wgpu_fits(o->at, 4)) {
        if (tw * th > THREADS / 4 && sizes[2] % 4 == 0 && tw >= 4) taps = ROWS, words = true;
        else if (columns <= tw && rows <= th && tw * th <= THREADS / 4 && p->out[0] == 1) taps = WHOLE, words = true;
        else if (sizes[2] % 4 == 0 && tw >= 4) taps = ROWS, words = true;
    }
    p->planes = (uint32_t)planes;
    p->tiles[0] = (uint32_t)ct_wgpu_ceil_div(columns, tw), p->tiles[1] = (uint32_t)ct_wgpu_ceil_div(rows, th);
    const int64_t each = THREADS / (tw * th), groups = ct_wgpu_ceil_div(planes, each) * p->tiles[0] * p->tiles[1];
    for (int i = 0; i < 2; i++) p->tiles_inverse[i] = 1.0f / (float)p->tiles[i];
    const bool quads = backward && sizes[2] % 4 == 0 && p->to.s[2] == 1 && p->to.s[1] % 4 == 0 && p->to.s[0] % 4 == 0 &&
                       p->to.c % 4 == 0 && p->batch[1] % 4 == 0 && ct_wgpu_fits(o->to, 4);
    ct_wgpu_launch l = ct_wgpu_begin(&unit, function, THREADS);
    ct_wgpu_in(&l, "from", o->from);
    ct_wgpu_operand_of(&l, "to", o->to, CT_WGPU_WRITTEN | (quads ? CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY : 0));
    add_at(&l, o, backward ? 0 : CT_WGPU_WRITTEN | (words ? CT_WGPU_WORDS : 0));
    add_constants(&l, o);
    ct_wgpu_constant(&l, "TAPS", taps);
    ct_wgpu_constant(&l, "TW", tw);
    ct_wgpu_constant(&l, "TH", th);
    ct_wgpu_constant(&l, "FLAT", flat);
    l.more = words ? ct_wgsl_pool_words : quads ? ct_wgsl_pool_quads : ct_wgsl_pool_singles;
    return ct_wgpu_enqueue(o->call, &l, groups, p, sizeof *p);
}

/* ---- Rows of planes by quads ---- */

/* Items and channels are one axis of planes, whose rows are dense. */
static bool has_rows(const pool *o, const ct_view *view, const image *s, uint32_t batch) {
    return s->s[2] == 1 && s->s[1] % 4 == 0 && s->c % 4 == 0 && ct_wgpu_fits(view, 4) &&
           (items_of(o) == 1 || batch == s->c * o->p.channels);
}

static bool takes_rows(const pool *o) {
    enum { MOST_KERNEL = 4, MOST_STRIDE = 2 };
    const params *p = &o->p;
    if (!o->max || !o->at || o->at->dtype != CT_U8 || p->in[0] != 1 || p->out[0] != 1) return false;
    for (int d = 1; d < 3; d++)
        if (o->kernel[d] > MOST_KERNEL || o->stride[d] > MOST_STRIDE || o->dilation[d] != 1 ||
            p->before[d] >= (int32_t)o->kernel[d])
            return false;
    return p->in[2] % 4 == 0 && p->out[2] % 4 == 0 && has_rows(o, o->from, &p->from, p->batch[0]) &&
           has_rows(o, o->to, &p->to, p->batch[1]) && has_rows(o, o->at, &p->at, p->batch[2]);
}

static bool run_rows(pool *o, bool backward) {
    params *p = &o->p;
    const int64_t planes = items_of(o) * p->channels;
    p->tiles[0] = (uint32_t)(backward ? ct_wgpu_ceil_div(p->in[2], 4 * o->stride[2]) : p->out[2] / 4);
    p->tiles[1] = (uint32_t)(backward ? ct_wgpu_ceil_div(p->in[1], o->stride[1]) : p->out[1]);
    const int64_t total = planes * p->tiles[0] * p->tiles[1];
    p->total = (uint32_t)total;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, backward ? "grad_rows" : "max_rows", THREADS);
    const unsigned mode = CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY;
    ct_wgpu_operand_of(&l, "from", o->from, mode);
    ct_wgpu_operand_of(&l, "to", o->to, mode | CT_WGPU_WRITTEN);
    add_at(&l, o, CT_WGPU_WORDS | (backward ? 0 : CT_WGPU_WRITTEN));
    add_constants(&l, o);
    ct_wgpu_constant(&l, "B1", (uint32_t)p->before[1]);
    ct_wgpu_constant(&l, "B2", (uint32_t)p->before[2]);
    l.more = ct_wgsl_pool_words;
    return ct_wgpu_enqueue(o->call, &l, ct_wgpu_ceil_div(total, THREADS), p, sizeof *p);
}

/* Channels are innermost where that is how the larger image lies in memory. */
static bool run(pool *o, const char *planes, const char *last, bool backward) {
    const params *p = &o->p;
    const image *s = backward ? &p->to : &p->from;
    const bool is_last = p->channels > 1 && s->c == 1 && (p->in[2] == 1 || s->s[2] != 1);
    if (is_last) return run_last(o, last, backward);
    return takes_rows(o) ? run_rows(o, backward) : run_planes(o, planes, backward);
}

/* ---- Max ---- */

static const char *check(const ct_call *call, const windows *w) {
    const char *why = ct_wgpu_refuses(call);
    if (!why && !call->out[0]) why = "its first result is not asked for";
    return why ? why : check_windows(w);
}

#define MAX_CAN(op)                                    \
    static const char *op##_can(const ct_call *call) { \
        const op##_attrs *a = call->attrs;             \
        return check(call, &MAX_WINDOWS(a));           \
    }
MAX_CAN(max_pool_nd)
MAX_CAN(max_pool_grad)
MAX_CAN(max_pool_take)
MAX_CAN(max_pool_places)

static bool max_pool_nd_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const max_pool_nd_attrs *a = call->attrs;
    const windows w = MAX_WINDOWS(a);
    pool o = pool_of(call, &w, call->in[0], call->out[0], call->n_out > 1 ? call->out[1] : NULL, call->out[0]);
    o.max = true;
    return run(&o, "max_planes", "max_last", false);
}

static bool max_pool_grad_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const max_pool_grad_attrs *a = call->attrs;
    const windows w = MAX_WINDOWS(a);
    pool o = pool_of(call, &w, call->in[0], call->out[0], call->in[1], call->in[0]);
    o.max = true;
    return run(&o, "grad_planes", "grad_last", true);
}

/* A result for each winner: its place (name), or the element there. */
static bool run_winners(pool *o, const char *function, const char *name) {
    const int64_t total = ct_wgpu_count(o->to);
    o->p.total = (uint32_t)total;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, function, THREADS);
    ct_wgpu_in(&l, "from", o->from);
    ct_wgpu_out(&l, name, o->to);
    add_at(&l, o, 0);
    add_constants(&l, o);
    return ct_wgpu_enqueue(o->call, &l, ct_wgpu_groups(total, THREADS), &o->p, sizeof o->p);
}

static bool max_pool_take_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const max_pool_take_attrs *a = call->attrs;
    const windows w = MAX_WINDOWS(a);
    pool o = pool_of(call, &w, call->in[0], call->out[0], call->in[1], call->out[0]);
    return run_winners(&o, "take_winners", "to");
}

static bool max_pool_places_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const max_pool_places_attrs *a = call->attrs;
    const windows w = MAX_WINDOWS(a);
    pool o = pool_of(call, &w, NULL, call->out[0], call->in[0], call->out[0]);
    return run_winners(&o, "places", "places");
}

/* ---- Means ---- */

static const char *check_means(const ct_call *call, const windows *w) {
    double taps = 1;
    for (int i = 0; i < w->sizes->n; i++) taps *= (double)listed(w->kernel, i, 1);
    return taps > MOST_TAPS ? "a window has too many elements for one invocation" : check(call, w);
}

#define MEANS(op, planes, last, backward, pooled)                            \
    static const char *op##_can(const ct_call *call) {                       \
        const op##_attrs *a = call->attrs;                                   \
        return check_means(call, &MEAN_WINDOWS(a));                          \
    }                                                                        \
    static bool op##_run(const ct_call *call, ct_stream *stream) {           \
        (void)stream;                                                        \
        const op##_attrs *a = call->attrs;                                   \
        const windows w = MEAN_WINDOWS(a);                                   \
        pool o = pool_of(call, &w, call->in[0], call->out[0], NULL, pooled); \
        return run(&o, planes, last, backward);                              \
    }
MEANS(avg_pool_nd, "mean_planes", "mean_last", false, call->out[0])
MEANS(avg_pool_grad, "grad_planes", "grad_last", true, call->in[0])

CT_WGPU_KERNELS(pool_pool) = {
    CT_CANDIDATES(max_pool_nd, {"windows", max_pool_nd_can, NULL, max_pool_nd_run}),
    CT_CANDIDATES(max_pool_grad, {"gather", max_pool_grad_can, NULL, max_pool_grad_run}),
    CT_CANDIDATES(max_pool_take, {"winners", max_pool_take_can, NULL, max_pool_take_run}),
    CT_CANDIDATES(max_pool_places, {"winners", max_pool_places_can, NULL, max_pool_places_run}),
    CT_CANDIDATES(avg_pool_nd, {"windows", avg_pool_nd_can, NULL, avg_pool_nd_run}),
    CT_CANDIDATES(avg_pool_grad, {"gather", avg_pool_grad_can, NULL, avg_pool_grad_run}),
    {0},
};
