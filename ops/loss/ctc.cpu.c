/* Kernels of ctc and its gradient: the recursions forwards and backwards over the steps, of logarithms, in f64. */
#include <math.h>

#include "backends/cpu/kernel.h"
#include "core/tensor.h"

#include "gen/loss.attrs.h"

typedef struct ctc_job {
    const ct_view *x, *targets, *steps, *lengths; /* (steps, batch, classes), (batch, longest), (batch), (batch) */
    const ct_view *g, *y;                         /* (batch) and dx, or NULL and the losses */
    int64_t count, batch, classes, longest, blank;
    double *room; /* by worker: forward (count, n), then two rows of n backward */
    bool f32;
} ctc_job;

static int64_t whole_at(const ct_view *view, int64_t i) {
    return view->dtype == CT_I32 ? CT_AT(int32_t, view)[i] : CT_AT(int64_t, view)[i];
}
static inline double real_at(const ct_view *view, bool f32, int64_t i) {
    return f32 ? (double)CT_AT(float, view)[i] : CT_AT(double, view)[i];
}

/* log(e^a + e^b + e^c). */
static inline double log_sum(double a, double b, double c) {
    const double top = fmax(fmax(a, b), c);
    return top == -INFINITY ? top : top + log(exp(a - top) + exp(b - top) + exp(c - top));
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
static inline bool skips_to(const ctc_job *j, const ctc_item *c, int64_t s) {
    return s % 2 && s >= 2 && label_at(j, c, s) != label_at(j, c, s - 2);
}
static inline double x_at(const ctc_job *j, const ctc_item *c, int64_t t, int64_t label) {
    return real_at(j->x, j->f32, (t * j->batch + c->item) * j->classes + label);
}

/* Returns log p; row t of a holds the sums of the paths up to step t. With one row, rows are written over each other. */
static double forward(const ctc_job *j, const ctc_item *c, double *a, int64_t rows) {
    const int64_t n = c->n;
    for (int64_t s = 0; s < n; s++) a[s] = s < 2 ? x_at(j, c, 0, label_at(j, c, s)) : -INFINITY;
    for (int64_t t = 1; t < c->steps; t++) {
        const double *before = a + (rows > 1 ? (t - 1) * n : 0);
        double *now = a + (rows > 1 ? t * n : 0);
        for (int64_t s = n; s-- > 0;)
            now[s] = x_at(j, c, t, label_at(j, c, s)) + log_sum(before[s], s >= 1 ? before[s - 1] : -INFINITY,
                                                                skips_to(j, c, s) ? before[s - 2] : -INFINITY);
    }
    const double *last = a + (rows > 1 ? (c->steps - 1) * n : 0);
    return log_sum(last[n - 1], n > 1 ? last[n - 2] : -INFINITY, -INFINITY);
}

static void loss_task(void *ctx, int64_t i, int worker) {
    const ctc_job *j = ctx;
    const ctc_item c = item_of(j, i);
    const double nll = -forward(j, &c, j->room + (int64_t)worker * (2 * j->longest + 1), 1);
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
    const int64_t n = c.n, longest = 2 * j->longest + 1;
    const size_t size = j->f32 ? sizeof(float) : sizeof(double);
    for (int64_t t = 0; t < j->count; t++)
        memset((char *)ct__address(j->y, size) + (size_t)((t * j->batch + i) * j->classes) * size, 0,
               (size_t)j->classes * size);
    const double g = real_at(j->g, j->f32, i);
    if (g == 0) return;
    double *a = j->room + (int64_t)worker * (j->count + 2) * longest, *b = a + j->count * longest, *after = b + longest;
    const double log_p = forward(j, &c, a, j->count);
    for (int64_t s = 0; s < n; s++) b[s] = s >= n - 2 ? 0 : -INFINITY;
    for (int64_t t = c.steps; t-- > 0;) {
        for (int64_t s = 0; s < n; s++) {
            const int64_t label = label_at(j, &c, s);
            if (a[t * n + s] > -INFINITY && b[s] > -INFINITY)
                add_to(j, (t * j->batch + i) * j->classes + label, -g * exp(a[t * n + s] + b[s] - log_p));
        }
        if (t == 0) break;
        for (int64_t s = 0; s < n; s++) after[s] = b[s] + x_at(j, &c, t, label_at(j, &c, s));
        for (int64_t s = 0; s < n; s++)
            b[s] = log_sum(after[s], s + 1 < n ? after[s + 1] : -INFINITY,
                           s + 2 < n && skips_to(j, &c, s + 2) ? after[s + 2] : -INFINITY);
    }
}

/* ---- Calls ---- */

static bool fits(const ctc_job *j) {
    for (int64_t i = 0; i < j->batch; i++) {
        const int64_t steps = j->steps ? whole_at(j->steps, i) : j->count,
                      length = j->lengths ? whole_at(j->lengths, i) : j->longest;
        if (steps < 1 || steps > j->count)
            return ct_fail(CT_ERR_VALUE, "ctc_loss", "input_lengths is %lld at element %lld; x has %lld steps",
                           (long long)steps, (long long)i, (long long)j->count);
        if (length < 0 || length > j->longest)
            return ct_fail(CT_ERR_VALUE, "ctc_loss",
                           "target_lengths is %lld at element %lld; targets have room for %lld labels",
                           (long long)length, (long long)i, (long long)j->longest);
        for (int64_t s = 0; s < length; s++) {
            const int64_t label = whole_at(j->targets, i * j->longest + s);
            if (label < 0 || label >= j->classes)
                return ct_fail(CT_ERR_INDEX, "ctc_loss", "targets is %lld at [%lld, %lld]; there are %lld classes",
                               (long long)label, (long long)i, (long long)s, (long long)j->classes);
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
                     .room = call->scratch,
                     .f32 = x->dtype == CT_F32};
}

static size_t ctc_scratch(const ct_call *call) {
    return (size_t)ct__threads() * (size_t)(2 * call->in[1]->dims[1] + 1) * sizeof(double);
}
static bool run_ctc(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ctc_job j = job_of(call, 0, ((const ctc_attrs *)call->attrs)->blank);
    if (!fits(&j)) return false;
    ct__parallel(j.batch, loss_task, &j);
    return true;
}

static size_t ctc_grad_scratch(const ct_call *call) {
    return (size_t)ct__threads() * (size_t)(call->in[1]->dims[0] + 2) * (size_t)(2 * call->in[2]->dims[1] + 1) *
           sizeof(double);
}
static bool run_ctc_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ctc_job j = job_of(call, 1, ((const ctc_grad_attrs *)call->attrs)->blank);
    j.g = call->in[0];
    if (!fits(&j)) return false;
    ct__parallel(j.batch, grad_task, &j);
    return true;
}

CT_KERNELS(ctc) = {{"recursion", can_ctc, ctc_scratch, run_ctc}, {0}};
CT_KERNELS(ctc_grad) = {{"recursion", can_ctc, ctc_grad_scratch, run_ctc_grad}, {0}};
