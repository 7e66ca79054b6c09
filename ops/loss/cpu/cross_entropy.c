/* Kernels of class_nll, of its gradient and of class_pick. Rows of logits come from memory once: the greatest, the sum of the
 * exponentials, and for the gradient these over that sum, all from the first cache. Where places follow the classes, some
 * columns at a time. Differences from the greatest logit are what is computed with, so that large logits cost no digits. */
#include "backends/cpu/kernel.h"
#include "backends/cpu/simd/vmath.h"
#include "ops/norm/cpu/moments.h"

#include "gen/loss.attrs.h"

enum { KEPT = 4096, WIDTH = 128, CHUNK = 16384 };

typedef struct class_job {
    const void *x, *weight, *g, *g_smooth;
    void *nll, *smooth, *level, *dx;
    const ct_view *target;
    int64_t items, classes, places, ignored; /* x is (items, classes, places), the others (items, places) */
    double weights;                          /* their sum */
    int64_t chunk, blocks;                   /* rows of a chunk; blocks of columns of an item */
    bool streams;
} class_job;

static inline int64_t target_at(const ct_view *t, int64_t i) {
    return t->dtype == CT_I32 ? ((const int32_t *)ct__address(t, 4))[i] : ((const int64_t *)ct__address(t, 8))[i];
}

static bool targets_fit(const class_job *j, const ct_call *call, int argument) {
    const int64_t n = j->items * j->places;
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = target_at(j->target, i);
        if (t == j->ignored || (t >= 0 && t < j->classes)) continue;
        return ct__wrong_index(call, argument, i, t, j->classes);
    }
    return true;
}

/* exp of what is not above 0; below these it is 0 */
SIMD_INLINE vf32 f32_exp(vf32 a) { return vf32_exp_clamped(vf32_maxb(vf32_set1(-104.0f), a)); }
SIMD_INLINE vf64 f64_exp(vf64 a) { return vf64_exp_clamped(vf64_maxb(vf64_set1(-746.0), a)); }

#define FOLD_D f32
#include "ops/loss/cpu/class_lines.h"
#define FOLD_D f64
#include "ops/loss/cpu/class_lines.h"

static const char *can_classes(const ct_call *call, ct_dtype dtype) {
    if (dtype != CT_F32 && dtype != CT_F64) return "f32 and f64 only";
    for (int i = 0; i < call->n_in; i++) {
        if (!call->in[i]) continue;
        if (ct_dtype_is_float(call->in[i]->dtype) && call->in[i]->dtype != dtype) return "mixed dtypes";
        if (!ct__view_is_dense(call->in[i])) return "an input is not dense";
    }
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && !ct__view_is_dense(call->out[i])) return "an output is not dense";
    return NULL;
}
static const char *can_nll(const ct_call *call) { return can_classes(call, call->in[0]->dtype); }
static const char *can_grad(const ct_call *call) { return can_classes(call, call->in[2]->dtype); }

static class_job job_of(const ct_view *x, const ct_view *target, const ct_view *weight, int64_t ignored) {
    const size_t size = ct_dtype_size(x->dtype);
    class_job j = {.x = ct__address(x, size), .items = x->dims[0], .classes = x->dims[1], .places = x->dims[2]};
    j.target = target, j.ignored = ignored, j.weights = (double)j.classes;
    if (weight) {
        j.weight = ct__address(weight, size);
        j.weights = 0;
        for (int64_t c = 0; c < j.classes; c++)
            j.weights += x->dtype == CT_F32 ? (double)((const float *)j.weight)[c] : ((const double *)j.weight)[c];
    }
    j.blocks = j.places == 1 ? 1 : (j.places + WIDTH - 1) / WIDTH;
    const int64_t unit = ct__max64(j.classes, 1) * (j.places == 1 ? 1 : WIDTH);
    j.chunk = ct__max64(ct__grain(CHUNK) / unit, 1);
    return j;
}

static int64_t chunks_of(const class_job *j) { return (j->items * j->blocks + j->chunk - 1) / j->chunk; }

static bool run_class_nll(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const class_nll_attrs *a = call->attrs;
    const ct_dtype dtype = call->in[0]->dtype;
    class_job j = job_of(call->in[0], call->in[1], call->in[2], a->ignore_index);
    if (!targets_fit(&j, call, 1)) return false;
    const size_t size = ct_dtype_size(dtype);
    if (call->out[0]) j.nll = ct__address(call->out[0], size);
    if (call->n_out > 1 && call->out[1]) j.smooth = ct__address(call->out[1], size);
    if (call->n_out > 2 && call->out[2]) j.level = ct__address(call->out[2], size);
    ct__parallel(chunks_of(&j), dtype == CT_F32 ? f32_nll_task : f64_nll_task, &j);
    return true;
}

static bool run_class_nll_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const class_nll_grad_attrs *a = call->attrs;
    const ct_view *x = call->in[2];
    const size_t size = ct_dtype_size(x->dtype);
    class_job j = job_of(x, call->in[3], call->in[4], a->ignore_index);
    if (!targets_fit(&j, call, 3)) return false;
    j.g = ct__address(call->in[0], size);
    if (call->in[1]) j.g_smooth = ct__address(call->in[1], size);
    j.dx = ct__address(call->out[0], size);
    j.streams = norm_streams(j.dx, (j.places == 1 ? j.classes : j.places) * (int64_t)size,
                             j.items * j.classes * j.places * (int64_t)size);
    ct__parallel(chunks_of(&j), x->dtype == CT_F32 ? f32_nll_grad_task : f64_nll_grad_task, &j);
    return true;
}

static bool run_class_pick(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view *x = call->in[0];
    class_job j = job_of(x, call->in[1], NULL, ((const class_pick_attrs *)call->attrs)->ignore_index);
    if (!targets_fit(&j, call, 1)) return false;
    const size_t size = ct_dtype_size(x->dtype);
    void *y = ct__address(call->out[0], size);
    for (int64_t i = 0; i < j.items * j.places; i++) {
        const int64_t t = target_at(j.target, i), at = (i / j.places * j.classes + t) * j.places + i % j.places;
        if (x->dtype == CT_F32) ((float *)y)[i] = t == j.ignored ? 0 : -((const float *)j.x)[at];
        else ((double *)y)[i] = t == j.ignored ? 0 : -((const double *)j.x)[at];
    }
    return true;
}

CT_KERNELS(loss_cross_entropy) = {
    CT_CANDIDATES(class_nll, {"class_rows", can_nll, NULL, run_class_nll}),
    CT_CANDIDATES(class_nll_grad, {"class_rows", can_grad, NULL, run_class_nll_grad}),
    CT_CANDIDATES(class_pick, {"pick", can_nll, NULL, run_class_pick}),
    {0},
};
