/* A whole training step, and the graphs of its captured form: one for each shape of a batch. */
#include <cotangent/capture.h>
#include <cotangent/train.h>
#include <stdio.h>

#include "optim/optim.h"

enum { MOST_INPUTS = 8, MOST_SHAPES = 8 };

/* What is known of batches of one shape. */
typedef struct step_shape {
    ct_train_step *step;
    ct_tensor *batch[MOST_INPUTS]; /* that the function reads: those of the caller or, in a capture, its own */
    ct_tensor *own[MOST_INPUTS];   /* kept; NULL: it is not captured yet */
    ct_tensor *loss, *extra;       /* kept: what the last run of the function gave, and replays write to */
    ct_graph *graph;
    struct {
        ct_dtype dtype;
        ct_device device;
        ct_dims shape;
    } in[MOST_INPUTS];
    int n;
} step_shape;

struct ct_train_step {
    ct_optim *optim;
    ct_train_loss_fn loss;
    void *context;
    ct_train_step_options options;
    step_shape *shapes[MOST_SHAPES];
    int count;
    bool eager; /* from here on */
    int64_t replays;
    char note[512];
};

ct_train_step *ct_train_step_new_p(ct_optim *optim, ct_train_loss_fn loss, void *context,
                                   const ct_train_step_options *options) {
    const char *me = "train_step_new";
    TAKE_OPTIONS(ct_train_step_options, o, options);
    if (!optim_given(optim, me, "optim") || !optim_given((void *)(uintptr_t)loss, me, "loss")) return NULL;
    if (!(o.clip_norm >= 0)) return ct_fail(CT_ERR_VALUE, me, "clip_norm is %g", o.clip_norm), NULL;
    if (o.accumulate < 0) return ct_fail(CT_ERR_VALUE, me, "accumulate is %lld", (long long)o.accumulate), NULL;
    if (o.mode > CT_TRAIN_EAGER) return ct_fail(CT_ERR_VALUE, me, "mode is %d", (int)o.mode), NULL;
    ct_train_step *step = ct_calloc(1, sizeof *step);
    if (!step) return ct_fail(CT_ERR_MEMORY, me, "out of memory"), NULL;
    step->optim = optim;
    step->loss = loss;
    step->context = context;
    step->options = o;
    step->eager = o.mode == CT_TRAIN_EAGER;
    return step;
}

static void forget_results(step_shape *s) {
    ct_drop(s->loss);
    ct_drop(s->extra);
    s->loss = s->extra = NULL;
}

static void free_shape(step_shape *s) {
    ct_graph_free(s->graph);
    forget_results(s);
    for (int i = 0; i < s->n; i++) ct_drop(s->own[i]);
    ct_free(s);
}

void ct_train_step_reset(ct_train_step *step) {
    for (int i = 0; step && i < step->count; i++) free_shape(step->shapes[i]);
    if (step) step->count = 0;
}

void ct_train_step_free(ct_train_step *step) {
    ct_train_step_reset(step);
    ct_free(step);
}

int64_t ct_train_step_replays(const ct_train_step *step) { return step ? step->replays : 0; }
const char *ct_train_step_note(const ct_train_step *step) { return step ? step->note : ""; }

/* ---- The step ---- */

/* a + b, where a may be NULL: there was none before. */
static ct_tensor *sum_of(ct_tensor *a, ct_tensor *b) { return a && b ? ct_add(a, b) : b; }

/* Loss and gradients of the items from `first` on; *loss and *extra become the sums so far. */
static bool run_part(step_shape *s, int64_t first, int64_t items, int64_t all, ct_tensor **loss, ct_tensor **extra) {
    const ct_train_step *step = s->step;
    ct_tensor *part[MOST_INPUTS], *value = NULL, *more = NULL;
    for (int i = 0; i < s->n; i++) part[i] = items == all ? s->batch[i] : ct_narrow(s->batch[i], 0, first, items);
    if (!ct_ok()) return false;
    value = step->loss(step->context, part, s->n, &more);
    if (!value) return ct_ok() ? ct_fail(CT_ERR_STATE, "train_step", "the loss function gave no loss") : false;
    if (items != all) value = ct_mul_s(value, (double)items / (double)all);
    if (!ct_backward(step->options.scaler ? ct_scaler_scale(step->options.scaler, value) : value)) return false;
    ct_no_grad {
        *loss = sum_of(*loss, ct_detach(value));
        if (more) *extra = sum_of(*extra, ct_detach(more));
    }
    return ct_ok();
}

bool ct_train_step_update(ct_train_step *step) {
    if (!optim_given(step, "train_step_update", "step")) return false;
    const ct_train_step_options *o = &step->options;
    if (o->scaler && !ct_scaler_unscale(o->scaler, step->optim)) return false;
    if (o->clip_norm > 0 && !ct_optim_clip_grad_norm_tensor(step->optim, o->clip_norm)) return false;
    if (!(o->scaler ? ct_scaler_step(o->scaler, step->optim) && ct_scaler_update(o->scaler)
                    : ct_optim_step(step->optim)))
        return false;
    return !o->ema || ct_ema_update(o->ema);
}

/* The function that is captured; what it gives is left behind in the shape. */
static bool run(void *shape) {
    step_shape *s = shape;
    const int64_t all = ct_dim(s->batch[0], 0), wanted = s->step->options.accumulate;
    const int64_t parts = wanted > all ? all : wanted > 1 ? wanted : 1;
    ct_tensor *loss = NULL, *extra = NULL;
    bool ok = true;
    for (int64_t i = 0; ok && i < parts; i++) {
        const int64_t first = all * i / parts, end = all * (i + 1) / parts;
        ok = run_part(s, first, end - first, all, &loss, &extra);
    }
    if (!ok || !ct_train_step_update(s->step)) return false;
    forget_results(s);
    s->loss = ct_keep(loss);
    s->extra = extra ? ct_keep(extra) : NULL;
    return true;
}

/* ---- Shapes ---- */

static bool has_shape(const step_shape *s, ct_tensor *const *batch, int n) {
    bool same = s->n == n;
    for (int i = 0; same && i < n; i++) {
        const ct_device device = ct_device_of(batch[i]);
        same = s->in[i].dtype == ct_dtype_of(batch[i]) && s->in[i].device.type == device.type &&
               s->in[i].device.index == device.index && ct__same_shape(s->in[i].shape, ct_shape(batch[i]));
    }
    return same;
}

/* NULL: it is new and there are too many, or there is no memory for it; then the step is eager. */
static step_shape *find_shape(ct_train_step *step, ct_tensor *const *batch, int n, bool *is_new) {
    *is_new = false;
    for (int i = 0; i < step->count; i++)
        if (has_shape(step->shapes[i], batch, n)) return step->shapes[i];
    step_shape *s = step->count < MOST_SHAPES ? ct_calloc(1, sizeof *s) : NULL;
    if (!s) return NULL;
    s->step = step;
    s->n = n;
    for (int i = 0; i < n; i++) {
        s->in[i].dtype = ct_dtype_of(batch[i]);
        s->in[i].device = ct_device_of(batch[i]);
        s->in[i].shape = ct_shape(batch[i]);
    }
    *is_new = true;
    return step->shapes[step->count++] = s;
}

/* ---- Ways to take it ---- */

static bool run_eager(ct_train_step *step, step_shape *s, ct_tensor *const *batch, int n) {
    s->step = step;
    s->n = n;
    for (int i = 0; i < n; i++) s->batch[i] = batch[i];
    const bool ok = run(s);
    for (int i = 0; i < n; i++) s->batch[i] = s->own[i];
    return ok;
}

static bool copy_batch(step_shape *s, ct_tensor *const *batch) {
    bool ok = true;
    ct_scope {
        ct_no_grad {
            for (int i = 0; ok && i < s->n; i++) {
                if (s->own[i]) {
                    ok = ct_assign(s->own[i], batch[i]) != NULL;
                } else {
                    ct_tensor *own = ct_clone(ct_detach(batch[i]));
                    if ((ok = own != NULL)) s->own[i] = ct_keep(own);
                }
                s->batch[i] = s->own[i];
            }
        }
    }
    return ok;
}

/* The step is taken in any case: what cannot be captured is eager from here on. */
static bool run_captured(step_shape *s, ct_tensor *const *batch) {
    ct_train_step *step = s->step;
    const unsigned flags = CT_CAPTURE_WARM | (step->options.recompute ? CT_CAPTURE_RECOMPUTE : 0) |
                           (step->options.channels_last ? CT_CAPTURE_LAYOUT : 0);
    if (!copy_batch(s, batch)) return false;
    s->graph = ct_capture(run, s, flags);
    if (s->graph) return ct_memory_trim(s->in[0].device); /* what eager steps took lies unused from here on */
    if (!s->loss) return false;                           /* the function itself has failed */
    snprintf(step->note, sizeof step->note, "%s", ct_error());
    ct_error_clear();
    step->eager = true;
    return true;
}

/* What a graph takes as given has changed, by a checkpoint that was loaded, say: it is captured again. */
static void forget_stale(step_shape *s) {
    if (!s->graph || ct_graph_is_good(s->graph)) return;
    ct_graph_free(s->graph);
    s->graph = NULL;
    forget_results(s);
}

static bool run_replay(step_shape *s, ct_tensor *const *batch) {
    if (!copy_batch(s, batch) || !ct_replay(s->graph)) return false;
    s->step->replays++;
    return true;
}

static bool pays(const step_shape *s) {
    const ct_device_type type = s->in[0].device.type;
    return s->step->options.mode == CT_TRAIN_CAPTURED || type == CT_CPU || type == CT_CUDA;
}

static bool check_batch(const ct_train_step *step, ct_tensor *const *batch, int n) {
    const char *me = "train_step_take";
    if (!optim_given(step, me, "step") || !optim_given(batch, me, "batch")) return false;
    if (n < 1 || n > MOST_INPUTS)
        return ct_fail(CT_ERR_VALUE, me, "a batch has 1 to %d tensors, not %d", MOST_INPUTS, n);
    for (int i = 0; i < n; i++) {
        if (!optim_given(batch[i], me, "batch")) return false;
        if (ct_ndim(batch[i]) < 1 || ct_dim(batch[i], 0) != ct_dim(batch[0], 0) || ct_dim(batch[i], 0) < 1)
            return ct_fail(CT_ERR_SHAPE, me,
                           "tensor %d of the batch is %s: its first size has to be the number of items", i,
                           ct_tensor_text(batch[i]));
    }
    return true;
}

/* What it gave, as tensors that the next replay does not write to. */
static bool give(const step_shape *s, ct_tensor **loss, ct_tensor **extra) {
    ct_no_grad {
        if (loss) *loss = ct_clone(s->loss);
        if (extra && s->extra) *extra = ct_clone(s->extra);
    }
    return ct_ok();
}

bool ct_train_step_take(ct_train_step *step, ct_tensor *const *batch, int n, ct_tensor **loss, ct_tensor **extra) {
    step_shape once = {0};
    bool is_new = false, ok = false;
    if (loss) *loss = NULL;
    if (extra) *extra = NULL;
    if (!check_batch(step, batch, n)) return false;
    step_shape *s = step->eager ? NULL : find_shape(step, batch, n, &is_new);
    if (s) forget_stale(s);
    const bool eager = !s || is_new || (!s->graph && !pays(s));
    if (!s) s = &once;
    ct_scope {
        ok = eager ? run_eager(step, s, batch, n) : s->graph ? run_replay(s, batch) : run_captured(s, batch);
    }
    ok = ok && give(s, loss, extra);
    if (eager) forget_results(s);
    return ok;
}
