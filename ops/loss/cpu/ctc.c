/* Kernels of ctc (Graves, Fernandez, Gomez and Schmidhuber, 2006) and its gradient: the recursions forwards and
 * backwards over the steps, of logarithms, in f64. */
#include <math.h>

#include "backends/cpu/kernel.h"
#include "backends/cpu/simd/vmath.h"
#include "core/tensor.h"

#include "gen/loss.attrs.h"

typedef struct ctc_job {
    const ct_view *x, *targets, *steps, *lengths; /* (steps, batch, classes), (batch, longest), (batch), (batch) */
    const ct_view *g, *y;                         /* (batch) and dx, or NULL and the losses */
    int64_t count, batch, classes, longest, blank;
    double *room; /* rows of each worker */
    bool f32;
} ctc_job;

static int64_t whole_at(const ct_view *view, int64_t i) {
    return view->dtype == CT_I32 ? CT_AT(int32_t, view)[i] : CT_AT(int64_t, view)[i];
}
static inline double real_at(const ct_view *view, bool f32, int64_t i) {
    return f32 ? (double)CT_AT(float, view)[i] : CT_AT(double, view)[i];
}

typedef struct ctc_item {
    int64_t item, steps, n; /* n labels, blanks among them */
} ctc_item;

static ctc_item item_of(const ctc_job *j, int64_t i) {
    return (ctc_item){i, j->steps ? whole_at(j->steps, i) : j->count,
                      2 * (j->lengths ? whole_at(j->lengths, i) : j->longest) + 1};
}
static inline int64_t label_at(const ctc_job *j, const ctc_item *c, int64_t s) {
    return s % 2 ? whole_at(j->targets, c->item * j->longest + s / 2) : j->blank;
}

/* Rows of numbers by label have log 0 before and behind them, so that neighbors need no conditions. */
enum { MARGIN = 2, BEHIND = 2 + VF64_LANES };
static int64_t room_of_row(int64_t longest) { return MARGIN + 2 * longest + 1 + BEHIND; }
static double *row_of(double *room, int64_t width, int64_t row) { return room + row * width + MARGIN; }
static void clear_row(double *row, int64_t n) {
    for (int64_t s = -MARGIN; s < n + BEHIND; s++) row[s] = -INFINITY;
}

/* 0 where a path may come from two labels before, log 0 elsewhere. */
static void find_skips(const ctc_job *j, const ctc_item *c, double *skips) {
    clear_row(skips, c->n);
    for (int64_t s = 3; s < c->n; s += 2)
        if (label_at(j, c, s) != label_at(j, c, s - 2)) skips[s] = 0;
}
/* x at step t, by label. */
static void take_step(const ctc_job *j, const ctc_item *c, int64_t t, double *e) {
    for (int64_t s = 0; s < c->n; s++)
        e[s] = real_at(j->x, j->f32, (t * j->batch + c->item) * j->classes + label_at(j, c, s));
}

/* log(e^a + e^b + e^c). */
SIMD_INLINE vf64 log_sum(vf64 a, vf64 b, vf64 c) {
    const vf64 top = vf64_max(vf64_max(a, b), c), none = vf64_set1(-INFINITY),
               level = vf64_select(vf64_eq(top, none), vf64_set1(0), top);
    const vf64 sum =
        vf64_add(vf64_add(vf64_exp(vf64_sub(a, level)), vf64_exp(vf64_sub(b, level))), vf64_exp(vf64_sub(c, level)));
    return vf64_add(level, vf64_log(sum));
}

/* now[s] = e[s] + log(e^before[s] + e^before[s-1] + (e^before[s-2] where it may be)). */
static void step_forward(double *now, const double *before, const double *skips, const double *e, int64_t n) {
    for (int64_t s = 0; s < n; s += VF64_LANES) {
        const vf64 sum = log_sum(vf64_load(before + s), vf64_load(before + s - 1),
                                 vf64_add(vf64_load(before + s - 2), vf64_load(skips + s)));
        vf64_store_n(now + s, vf64_add(sum, vf64_load(e + s)), (int)ct__min64(n - s, VF64_LANES));
    }
}
/* b[s] = log(e^after[s] + e^after[s+1] + (e^after[s+2] where it may be)). */
static void step_back(double *b, const double *after, const double *skips, int64_t n) {
    for (int64_t s = 0; s < n; s += VF64_LANES) {
        const vf64 sum = log_sum(vf64_load(after + s), vf64_load(after + s + 1),
                                 vf64_add(vf64_load(after + s + 2), vf64_load(skips + s + 2)));
        vf64_store_n(b + s, sum, (int)ct__min64(n - s, VF64_LANES));
    }
}

/* Returns log p. Row t % rows of `a` holds the sums of the paths up to step t. */
static double forward(const ctc_job *j, const ctc_item *c, double *a, int64_t width, int64_t rows, const double *skips,
                      double *e) {
    const int64_t n = c->n;
    for (int64_t t = 0; t < rows && t < c->steps; t++) clear_row(row_of(a, width, t), n);
    double *now = row_of(a, width, 0);
    take_step(j, c, 0, e);
    for (int64_t s = 0; s < n && s < 2; s++) now[s] = e[s];
    for (int64_t t = 1; t < c->steps; t++) {
        const double *before = now;
        now = row_of(a, width, t % rows);
        take_step(j, c, t, e);
        step_forward(now, before, skips, e, n);
    }
    const double last = now[n - 1], label = now[n - 2], top = fmax(last, label); /* label: log 0 without one */
    return top == -INFINITY ? top : top + log(exp(last - top) + exp(label - top));
}

/* ---- Tasks ---- */

enum { LOSS_ROWS = 4, GRAD_ROWS = 4 }; /* rows of a worker, besides one a step for the gradient */

static void loss_task(void *ctx, int64_t i, int worker) {
    const ctc_job *j = ctx;
    const ctc_item c = item_of(j, i);
    const int64_t width = room_of_row(j->longest);
    double *room = j->room + (int64_t)worker * LOSS_ROWS * width, *skips = row_of(room, width, 2),
           *e = row_of(room, width, 3);
    find_skips(j, &c, skips);
    clear_row(e, c.n);
    const double nll = -forward(j, &c, room, width, 2, skips, e);
    if (j->f32) CT_AT(float, j->y)[i] = (float)nll;
    else CT_AT(double, j->y)[i] = nll;
}

static void add_to(const ctc_job *j, int64_t at, double value) {
    if (j->f32) CT_AT(float, j->y)[at] += (float)value;
    else CT_AT(double, j->y)[at] += value;
}

/* dx[t, l[s]] -= g e^(a[t, s] + b[t, s] - log p), b being the sums of the paths from step t on, without that step. */
static void grad_task(void *ctx, int64_t i, int worker) {
    const ctc_job *j = ctx;
    const ctc_item c = item_of(j, i);
    const int64_t n = c.n, width = room_of_row(j->longest);
    const size_t size = j->f32 ? sizeof(float) : sizeof(double);
    for (int64_t t = 0; t < j->count; t++)
        memset((char *)ct__address(j->y, size) + (size_t)((t * j->batch + i) * j->classes) * size, 0,
               (size_t)j->classes * size);
    const double g = real_at(j->g, j->f32, i);
    if (g == 0) return;
    double *a = j->room + (int64_t)worker * (j->count + GRAD_ROWS) * width, *skips = row_of(a, width, j->count),
           *e = row_of(a, width, j->count + 1), *b = row_of(a, width, j->count + 2),
           *after = row_of(a, width, j->count + 3);
    find_skips(j, &c, skips);
    clear_row(e, n);
    clear_row(b, n);
    clear_row(after, n);
    const double log_p = forward(j, &c, a, width, j->count, skips, e);
    for (int64_t s = n > 1 ? n - 2 : 0; s < n; s++) b[s] = 0;
    for (int64_t t = c.steps; t-- > 0;) {
        const double *now = row_of(a, width, t);
        for (int64_t s = 0; s < n; s += VF64_LANES) {
            double share[VF64_LANES];
            vf64_store(share, vf64_exp(vf64_sub(vf64_add(vf64_load(now + s), vf64_load(b + s)), vf64_set1(log_p))));
            for (int64_t k = s; k < n && k < s + VF64_LANES; k++)
                if (share[k - s] != 0)
                    add_to(j, (t * j->batch + i) * j->classes + label_at(j, &c, k), -g * share[k - s]);
        }
        if (t == 0) break;
        take_step(j, &c, t, e);
        for (int64_t s = 0; s < n; s++) after[s] = b[s] + e[s];
        step_back(b, after, skips, n);
    }
}

/* ---- Calls ---- */

/* x is argument `first` of the call. */
static bool fits(const ctc_job *j, const ct_call *call, int first) {
    for (int64_t i = 0; i < j->batch; i++) {
        const int64_t steps = j->steps ? whole_at(j->steps, i) : j->count,
                      length = j->lengths ? whole_at(j->lengths, i) : j->longest;
        if (steps < 1 || steps > j->count) return ct__wrong_count(call, first + 2, NULL, i, steps, 1, j->count);
        if (length < 0 || length > j->longest) return ct__wrong_count(call, first + 3, NULL, i, length, 0, j->longest);
        for (int64_t s = 0; s < length; s++) {
            const int64_t label = whole_at(j->targets, i * j->longest + s);
            if (label < 0 || label >= j->classes)
                return ct__wrong_index(call, first + 1, i * j->longest + s, label, j->classes);
        }
    }
    return true;
}

static const char *can_ctc(const ct_call *call) {
    const ct_dtype dtype = call->out[0]->dtype;
    if (dtype != CT_F32 && dtype != CT_F64) return "f32 and f64 only";
    for (int i = 0; i < call->n_in; i++) {
        const ct_view *in = call->in[i];
        if (in && ct_dtype_is_float(in->dtype) && in->dtype != dtype) return "mixed dtypes";
        if (in && !ct__view_is_dense(in)) return "an input is not dense";
    }
    return ct__view_is_dense(call->out[0]) ? NULL : "the output is not dense";
}

static ctc_job job_of(const ct_call *call, int first, int64_t blank) {
    const ct_view *x = call->in[first];
    return (ctc_job){.x = x,
                     .targets = call->in[first + 1],
                     .steps = call->in[first + 2],
                     .lengths = call->in[first + 3],
                     .y = call->out[0],
                     .count = x->dims[0],
                     .batch = x->dims[1],
                     .classes = x->dims[2],
                     .longest = call->in[first + 1]->dims[1],
                     .blank = blank,
                     .room = ct__scratch(call),
                     .f32 = x->dtype == CT_F32};
}

static size_t ctc_scratch(const ct_call *call) {
    return (size_t)ct__threads() * LOSS_ROWS * (size_t)room_of_row(call->in[1]->dims[1]) * sizeof(double);
}
static bool run_ctc(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ctc_job j = job_of(call, 0, ((const ctc_attrs *)call->attrs)->blank);
    if (!fits(&j, call, 0)) return false;
    ct__parallel(j.batch, loss_task, &j);
    return true;
}

static size_t ctc_grad_scratch(const ct_call *call) {
    return (size_t)ct__threads() * (size_t)(call->in[1]->dims[0] + GRAD_ROWS) *
           (size_t)room_of_row(call->in[2]->dims[1]) * sizeof(double);
}
static bool run_ctc_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ctc_job j = job_of(call, 1, ((const ctc_grad_attrs *)call->attrs)->blank);
    j.g = call->in[0];
    if (!fits(&j, call, 1)) return false;
    ct__parallel(j.batch, grad_task, &j);
    return true;
}

CT_KERNELS(loss_ctc) = {
    CT_CANDIDATES(ctc, {"recursion", can_ctc, ctc_scratch, run_ctc}),
    CT_CANDIDATES(ctc_grad, {"recursion", can_ctc, ctc_grad_scratch, run_ctc_grad}),
    {0},
};
