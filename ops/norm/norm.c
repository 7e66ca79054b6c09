/* The normalizations by name: their shapes and options, and the way to row_norm and channel_norm. */
#include <string.h>

#include <cotangent/backend.h>

#include "ops/norm/norm.h"
#include "ops/op_impl.h"

static bool same_shape(const ct_view *x, const ct_dims *dims) {
    return x->ndim == dims->n && memcmp(x->dims, dims->d, (size_t)dims->n * sizeof(int64_t)) == 0;
}

/* ---- By rows ---- */

static bool infer_trailing(ct_infer *infer, const ct_dims *shape) {
    static const char *const names[] = {"x", "weight", "bias"};
    const ct_view *x = infer->in[0];
    bool fits = shape->n >= 1 && shape->n <= x->ndim;
    for (int i = 0; fits && i < shape->n; i++) fits = x->dims[x->ndim - shape->n + i] == shape->d[i];
    if (!fits)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; shape is %s and has to be its last dimensions",
                             ct_view_text(x), ct_dims_text(*shape));
    for (int i = 1; i < infer->n_in; i++)
        if (infer->in[i] && !same_shape(infer->in[i], shape))
            return ct_infer_fail(infer, CT_ERR_SHAPE, "%s is %s; it has to be %s, the shape that is normalized",
                                 names[i], ct_view_text(infer->in[i]), ct_dims_text(*shape));
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

static bool infer_eps(ct_infer *infer, double eps) {
    if (eps >= 0 && __builtin_isfinite(eps)) return true;
    return ct_infer_fail(infer, CT_ERR_VALUE, "eps is %g; it has to be finite and not negative", eps);
}

static ct_tensor *flat_rows(ct_tensor *x, const ct_dims *shape, int64_t *n) {
    *n = 1;
    int64_t rows = 1;
    for (int i = 0; i < ct_ndim(x); i++) *(i < ct_ndim(x) - shape->n ? &rows : n) *= ct_dim(x, i);
    return reshape(contiguous(x), CT_DIMS(rows, *n));
}

static ct_tensor *flat(ct_tensor *x) { return x ? reshape(contiguous(x), CT_DIMS(ct_numel(x))) : NULL; }

static ct_tensor *as(ct_tensor *x, ct_dtype dtype) { return !x || ct_dtype_of(x) == dtype ? x : cast(x, dtype); }
static ct_tensor *widened(ct_tensor *x) { return x ? as(x, ct__norm_dtype(ct_dtype_of(x))) : NULL; }

/* A weight or bias, flat and as x is computed in. */
static ct_tensor *parameter(ct_tensor *p, const ct_tensor *x) { return flat(as(p, ct__norm_dtype(ct_dtype_of(x)))); }

bool layer_norm_infer(ct_infer *infer) {
    const layer_norm_attrs *a = infer->attrs;
    return infer_eps(infer, a->eps) && infer_trailing(infer, &a->shape);
}

void layer_norm_lower(ct_lower *l) {
    const layer_norm_attrs *a = l->attrs;
    int64_t n;
    ct_tensor *x = flat_rows(l->in[0], &a->shape, &n);
    l->out[0] = reshape(row_norm(x, a->eps, .weight = parameter(l->in[1], x), .bias = parameter(l->in[2], x)),
                        ct_shape(l->in[0]));
}

bool rms_norm_infer(ct_infer *infer) {
    const rms_norm_attrs *a = infer->attrs;
    return (!a->eps.set || infer_eps(infer, a->eps.value)) && infer_trailing(infer, &a->shape);
}

void rms_norm_lower(ct_lower *l) {
    const rms_norm_attrs *a = l->attrs;
    int64_t n;
    ct_tensor *x = flat_rows(l->in[0], &a->shape, &n);
    const double eps = a->eps.set ? a->eps.value : ct_dtype_of(x) == CT_F64 ? 0x1p-52 : 0x1p-23;
    l->out[0] = reshape(row_norm(x, eps, .weight = parameter(l->in[1], x), .rms = true), ct_shape(l->in[0]));
}

/* ---- By channels ---- */

static bool infer_channels(ct_infer *infer, bool last, int params, const char *const *names) {
    const ct_view *x = infer->in[0];
    if (x->ndim < 2)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to be %s", ct_view_text(x),
                             last ? "[batch, ..., channels]" : "[batch, channels, ...]");
    const int64_t channels = x->dims[last ? x->ndim - 1 : 1];
    for (int i = 1; i <= params; i++)
        if (infer->in[i] && (infer->in[i]->ndim != 1 || infer->in[i]->dims[0] != channels))
            return ct_infer_fail(infer, CT_ERR_SHAPE, "%s is %s; x is %s, so it has to be [%lld], one value a channel",
                                 names[i], ct_view_text(infer->in[i]), ct_view_text(x), (long long)channels);
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

/* x as channel_norm has it. For statistics of the whole batch, places that come with the channels last are rows. */
static ct_tensor *three(ct_tensor *x, bool batch, bool *last) {
    const int n = ct_ndim(x);
    const int64_t items = ct_dim(x, 0), channels = ct_dim(x, *last ? n - 1 : 1);
    int64_t places = 1;
    for (int i = 1; i < n; i++)
        if (i != (*last ? n - 1 : 1)) places *= ct_dim(x, i);
    if (batch && places == 1) *last = true;
    const ct_dims shape = !*last  ? CT_DIMS(items, channels, places)
                          : batch ? CT_DIMS(1, items * places, channels)
                                  : CT_DIMS(items, places, channels);
    return reshape(contiguous(x), shape);
}

static ct_tensor *normalized(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, int64_t groups, double eps, bool last,
                             ct_tensor **mean, ct_tensor **var) {
    ct_tensor *flat_x = three(x, groups == 0, &last);
    return reshape(channel_norm(flat_x, groups, eps, .weight = parameter(weight, x), .bias = parameter(bias, x),
                                .channels_last = last, .mean = mean, .var = var),
                   ct_shape(x));
}

/* relu(normalized + residual) in one op, for devices that have a kernel for it. */
static ct_tensor *normalized_relu(ct_tensor *x, ct_tensor *weight, ct_tensor *bias, ct_tensor *residual, double eps,
                                  bool last, ct_tensor **mean, ct_tensor **var) {
    bool residual_last = last;
    ct_tensor *flat_residual = residual ? three(residual, true, &residual_last) : NULL, *flat_x = three(x, true, &last);
    return reshape(channel_norm_relu(flat_x, 0, eps, .weight = parameter(weight, x), .bias = parameter(bias, x),
                                     .residual = flat_residual, .channels_last = last, .mean = mean, .var = var),
                   ct_shape(x));
}

bool group_norm_infer(ct_infer *infer) {
    static const char *const names[] = {"x", "weight", "bias"};
    const group_norm_attrs *a = infer->attrs;
    if (!infer_eps(infer, a->eps) || !infer_channels(infer, a->channels_last, 2, names)) return false;
    const ct_view *x = infer->in[0];
    const int64_t channels = x->dims[a->channels_last ? x->ndim - 1 : 1];
    if (a->groups < 1 || channels % a->groups)
        return ct_infer_fail(infer, CT_ERR_VALUE,
                             "groups is %lld; x is %s, and its %lld channels have to be a multiple",
                             (long long)a->groups, ct_view_text(x), (long long)channels);
    return true;
}

void group_norm_lower(ct_lower *l) {
    const group_norm_attrs *a = l->attrs;
    ct_tensor *mean, *var;
    l->out[0] = normalized(l->in[0], l->in[1], l->in[2], a->groups, a->eps, a->channels_last, &mean, &var);
}

/* ---- With running statistics ---- */

/* Inputs of both are x, running_mean, running_var, weight, bias. */
static bool infer_running(ct_infer *infer, bool used, const char *when, double momentum, double eps, bool last) {
    static const char *const names[] = {"x", "running_mean", "running_var", "weight", "bias"};
    if (!infer_eps(infer, eps) || !infer_channels(infer, last, 4, names)) return false;
    for (int i = 1; i <= 2; i++) {
        const ct_view *running = infer->in[i];
        if (!running && used)
            return ct_infer_fail(infer, CT_ERR_VALUE, "%s is missing: %s it is what x is normalized by", names[i],
                                 when);
        if (running && !ct_dtype_is_float(running->dtype))
            return ct_infer_fail(infer, CT_ERR_DTYPE, "%s is %s; it has to be floating", names[i],
                                 ct_view_text(running));
    }
    if (!(momentum >= 0 && momentum <= 1))
        return ct_infer_fail(infer, CT_ERR_VALUE, "momentum is %g; it has to be between 0 and 1", momentum);
    return true;
}

bool batch_norm_infer(ct_infer *infer) {
    const batch_norm_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    if (!infer_running(infer, !a->training, "without .training", a->momentum, a->eps, a->channels_last)) return false;
    const int64_t channels = x->dims[a->channels_last ? x->ndim - 1 : 1];
    if (!ct__infer_is(infer, 5, x->ndim, x->dims)) return false;
    if (a->training && channels && ct__count(x->ndim, x->dims) == channels)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "x is %s: one value a channel has no variance; training needs more than one",
                             ct_view_text(x));
    return true;
}

bool instance_norm_infer(ct_infer *infer) {
    const instance_norm_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    if (!infer_running(infer, a->use_running, "with .use_running", a->momentum, a->eps, a->channels_last)) return false;
    const int64_t pairs = x->dims[0] * x->dims[a->channels_last ? x->ndim - 1 : 1];
    if (!a->use_running && pairs && ct__count(x->ndim, x->dims) == pairs)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "x is %s: one value a channel has no variance; more than one is needed", ct_view_text(x));
    return true;
}

/* running = (1 - momentum) running + momentum batch, in place. A repeated forward pass has done it before. */
static void update(const ct_lower *l, ct_tensor *mean, ct_tensor *var, double momentum, double unbias) {
    if ((!l->in[1] && !l->in[2]) || ct_is_recomputing()) return;
    ct_tensor *in[4] = {l->in[1], l->in[2], ct_detach(mean), ct_detach(var)}, *none = NULL;
    const running_statistics_attrs attrs = {.momentum = momentum, .unbias = unbias};
    ct_apply_with(&ct__op_running_statistics, in, 4, &attrs, &none, 1, (const bool[]){false}, NULL);
}

/* Running statistics for a graph that may keep them: they may be changed before backward. */
static ct_tensor *own(const ct_lower *l, int i) {
    bool graph = false;
    for (int k = 0; k < l->n_in && ct_grad_enabled(); k++) graph |= l->in[k] && ct_requires_grad(l->in[k]);
    return graph ? clone(ct_detach(l->in[i])) : ct_detach(l->in[i]);
}

/* By running statistics, or for an empty x by any; then the sum and relu. */
static ct_tensor *by_running(const ct_lower *l, ct_tensor *x, double eps, bool last, ct_tensor *residual, bool relu) {
    const int64_t channels = ct_dim(x, last ? ct_ndim(x) - 1 : 1);
    const bool any = ct_numel(x) == 0;
    bool residual_last = last;
    ct_tensor *mean = any ? zeros(CT_DIMS(channels)) : own(l, 1), *var = any ? ones(CT_DIMS(channels)) : own(l, 2),
              *flat_residual = residual ? three(residual, true, &residual_last) : NULL, *flat_x = three(x, true, &last);
    return reshape(channel_norm_fixed(flat_x, flat(mean), flat(var), eps, .weight = flat(l->in[3]),
                                      .bias = flat(l->in[4]), .residual = flat_residual, .relu = relu,
                                      .channels_last = last),
                   ct_shape(x));
}

void batch_norm_lower(ct_lower *l) {
    const batch_norm_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *residual = l->in[5], *mean, *var, *y;
    const bool running = !a->training || ct_numel(x) == 0;
    const bool fused = a->relu && !running && ct_op_kernel(&ct__op_channel_norm_relu, ct_device_of(x).type, 0);
    const bool mixed = residual && ct_dtype_of(residual) != ct_dtype_of(x);
    if (residual && (mixed || (!fused && !running))) x = widened(x); /* rounded once, at the end */
    residual = as(residual, ct_dtype_of(x));
    if (running) y = by_running(l, x, a->eps, a->channels_last, residual, a->relu);
    else if (fused) y = normalized_relu(x, l->in[3], l->in[4], residual, a->eps, a->channels_last, &mean, &var);
    else y = normalized(x, l->in[3], l->in[4], 0, a->eps, a->channels_last, &mean, &var);
    if (!fused && !running && residual) y = ct_add(y, residual);
    if (!fused && !running && a->relu) y = ct_relu(y);
    l->out[0] = y;
    if (running || !y) return;
    const double count = (double)(ct_numel(x) / ct_dim(x, a->channels_last ? ct_ndim(x) - 1 : 1));
    update(l, mean, var, a->momentum, count / (count - 1));
}

void instance_norm_lower(ct_lower *l) {
    const instance_norm_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *mean, *var;
    if (a->use_running || ct_numel(x) == 0) {
        l->out[0] = by_running(l, x, a->eps, a->channels_last, NULL, false);
        return;
    }
    const int64_t channels = ct_dim(x, a->channels_last ? ct_ndim(x) - 1 : 1);
    l->out[0] = normalized(x, l->in[3], l->in[4], channels, a->eps, a->channels_last, &mean, &var);
    if (!l->in[1] && !l->in[2]) return;
    const double count = (double)(ct_numel(x) / (channels * ct_dim(x, 0)));
    update(l, ct_mean(mean, .axes = CT_DIMS(0)), ct_mean(var, .axes = CT_DIMS(0)), a->momentum, count / (count - 1));
}
