/* The normalizations by name: their shapes and options, and the way to row_norm and channel_norm. */
#include <string.h>

#include "ops/norm/norm.h"
#include "ops/op_impl.h"

/* Of the result: that of x beside weights of its own precision or of f32, which it is computed in, else what all promote to. */
static ct_dtype result_dtype(ct_dtype x, const ct_dtype *others, int n) {
    ct_dtype common = x;
    for (int i = 0; i < n; i++) common = ct_dtype_promote(common, others[i]);
    return common == CT_F64 ? CT_F64 : x;
}

static ct_dtype inferred_dtype(const ct_infer *infer, int first_param) {
    ct_dtype others[2];
    int n = 0;
    for (int i = first_param; i < infer->n_in; i++)
        if (infer->in[i]) others[n++] = infer->in[i]->dtype;
    return result_dtype(infer->in[0]->dtype, others, n);
}

static ct_tensor *as(ct_tensor *x, ct_dtype dtype) { return !x || ct_dtype_of(x) == dtype ? x : cast(x, dtype); }

/* x in the dtype of the result, weight and bias in that which is computed in. */
typedef struct norm_inputs {
    ct_tensor *x, *weight, *bias;
} norm_inputs;

static norm_inputs inputs_of(ct_tensor *x, ct_tensor *weight, ct_tensor *bias) {
    ct_dtype others[2];
    int n = 0;
    if (weight) others[n++] = ct_dtype_of(weight);
    if (bias) others[n++] = ct_dtype_of(bias);
    const ct_dtype dtype = result_dtype(ct_dtype_of(x), others, n), wide = ct__norm_dtype(dtype);
    return (norm_inputs){as(x, dtype), as(weight, wide), as(bias, wide)};
}

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
    ct__infer_like(infer, 0, x, inferred_dtype(infer, 1));
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

bool layer_norm_infer(ct_infer *infer) {
    const layer_norm_attrs *a = infer->attrs;
    return infer_eps(infer, a->eps) && infer_trailing(infer, &a->shape);
}

void layer_norm_lower(ct_lower *l) {
    const layer_norm_attrs *a = l->attrs;
    int64_t n;
    const norm_inputs in = inputs_of(l->in[0], l->in[1], l->in[2]);
    ct_tensor *x = flat_rows(in.x, &a->shape, &n);
    l->out[0] = reshape(row_norm(x, a->eps, .weight = flat(in.weight), .bias = flat(in.bias)), ct_shape(l->in[0]));
}

bool rms_norm_infer(ct_infer *infer) {
    const rms_norm_attrs *a = infer->attrs;
    return (!a->eps.set || infer_eps(infer, a->eps.value)) && infer_trailing(infer, &a->shape);
}

void rms_norm_lower(ct_lower *l) {
    const rms_norm_attrs *a = l->attrs;
    int64_t n;
    const norm_inputs in = inputs_of(l->in[0], l->in[1], NULL);
    ct_tensor *x = flat_rows(in.x, &a->shape, &n);
    const double eps = a->eps.set ? a->eps.value : ct_dtype_of(x) == CT_F64 ? 0x1p-52 : 0x1p-23;
    l->out[0] = reshape(row_norm(x, eps, .weight = flat(in.weight), .rms = true), ct_shape(l->in[0]));
}

/* ---- By channels ---- */

static bool infer_channels(ct_infer *infer, bool last, int first_param, const char *const *names) {
    /* first_param is weight, between which and x there may be running statistics */
    const ct_view *x = infer->in[0];
    if (x->ndim < 2)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to be %s", ct_view_text(x),
                             last ? "[batch, ..., channels]" : "[batch, channels, ...]");
    const int64_t channels = x->dims[last ? x->ndim - 1 : 1];
    for (int i = 1; i < infer->n_in; i++)
        if (infer->in[i] && (infer->in[i]->ndim != 1 || infer->in[i]->dims[0] != channels))
            return ct_infer_fail(infer, CT_ERR_SHAPE, "%s is %s; x is %s, so it has to be [%lld], one value a channel",
                                 names[i], ct_view_text(infer->in[i]), ct_view_text(x), (long long)channels);
    ct__infer_like(infer, 0, x, inferred_dtype(infer, first_param));
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

static ct_tensor *normalized(norm_inputs in, int64_t groups, double eps, bool last, ct_tensor **mean, ct_tensor **var) {
    ct_tensor *x = three(in.x, groups == 0, &last);
    return reshape(channel_norm(x, groups, eps, .weight = flat(in.weight), .bias = flat(in.bias), .channels_last = last,
                                .mean = mean, .var = var),
                   ct_shape(in.x));
}

bool group_norm_infer(ct_infer *infer) {
    static const char *const names[] = {"x", "weight", "bias"};
    const group_norm_attrs *a = infer->attrs;
    if (!infer_eps(infer, a->eps) || !infer_channels(infer, a->channels_last, 1, names)) return false;
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
    const norm_inputs in = inputs_of(l->in[0], l->in[1], l->in[2]);
    l->out[0] = normalized(in, a->groups, a->eps, a->channels_last, &mean, &var);
}

/* ---- With running statistics ---- */

/* Inputs of both are x, running_mean, running_var, weight, bias. */
static bool infer_running(ct_infer *infer, bool used, const char *when, double momentum, double eps, bool last) {
    static const char *const names[] = {"x", "running_mean", "running_var", "weight", "bias"};
    if (!infer_eps(infer, eps) || !infer_channels(infer, last, 3, names)) return false;
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

/* ---- What running statistics become ---- */

bool norm_track_infer(ct_infer *infer) {
    const ct_view *mean = infer->in[2];
    for (int i = 0; i < 4; i++) {
        if (!ct__infer_is(infer, i, mean->ndim, mean->dims)) return false;
        if (infer->in[i] && !ct_dtype_is_float(infer->in[i]->dtype))
            return ct_infer_fail(infer, CT_ERR_DTYPE, "input %d is %s; it has to be floating", i,
                                 ct_view_text(infer->in[i]));
    }
    ct__infer_set(infer, 0, CT_F32, 0, NULL);
    return true;
}

static ct_tensor *widened(ct_tensor *x) { return as(x, ct__norm_dtype(ct_dtype_of(x))); }

void norm_track_lower(ct_lower *l) {
    const norm_track_attrs *a = l->attrs;
    int count = 0;
    ct_no_grad {
        for (int i = 0; i < 2; i++) {
            ct_tensor *running = l->in[i], *batch = widened(l->in[2 + i]);
            if (!running) continue;
            if (i == 1) batch = mul_s(batch, a->correction);
            ct_assign(running, ct_add(mul_s(widened(running), 1 - a->momentum), mul_s(batch, a->momentum)));
            count++;
        }
    }
    if (l->want[0]) l->out[0] = full(CT_DIMS0, (double)count, .dtype = CT_F32);
}

/* count: the values that mean and var are of. A repeated forward pass has tracked them before. */
static void track(const ct_lower *l, ct_tensor *mean, ct_tensor *var, double momentum, double count) {
    if ((!l->in[1] && !l->in[2]) || ct_is_recomputing()) return;
    const norm_track_attrs attrs = {.momentum = momentum, .correction = count / (count - 1)};
    ct_tensor *in[4] = {l->in[1], l->in[2], mean, var}, *out;
    ct_no_grad {
        ct_apply_with(&ct__op_norm_track, in, 4, &attrs, &out, 1, &(bool){false}, NULL);
    }
}

/* (x - mean) / sqrt(var + eps) weight + bias, by running statistics, or for an empty x by any. */
static ct_tensor *by_running(const ct_lower *l, double eps, bool last) {
    const norm_inputs in = inputs_of(l->in[0], l->in[3], l->in[4]);
    const ct_dtype dtype = ct__norm_dtype(ct_dtype_of(in.x));
    ct_tensor *x = as(in.x, dtype), *bias = in.bias;
    const int64_t channels = ct_dim(x, last ? ct_ndim(x) - 1 : 1);
    const bool any = ct_numel(x) == 0;
    ct_dims along = {.n = last ? 1 : ct_ndim(x) - 1};
    for (int i = 0; i < along.n; i++) along.d[i] = i ? 1 : channels;
    /* copies: the graph keeps them, and the originals may be changed before backward */
    ct_tensor *middle = any ? zeros(CT_DIMS(channels), .dtype = dtype) : clone(cast(ct_detach(l->in[1]), dtype)),
              *variance = any ? ones(CT_DIMS(channels), .dtype = dtype) : clone(cast(ct_detach(l->in[2]), dtype)),
              *scale = ct_rsqrt(add_s(variance, eps));
    if (in.weight) scale = mul(scale, in.weight);
    if (!bias) bias = zeros(CT_DIMS(channels), .dtype = dtype);
    return as(channel_affine(x, reshape(middle, along), reshape(scale, along), reshape(bias, along)),
              ct_dtype_of(in.x));
}

void batch_norm_lower(ct_lower *l) {
    const batch_norm_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *mean, *var;
    if (!a->training || ct_numel(x) == 0) {
        l->out[0] = by_running(l, a->eps, a->channels_last);
        return;
    }
    l->out[0] = normalized(inputs_of(x, l->in[3], l->in[4]), 0, a->eps, a->channels_last, &mean, &var);
    track(l, mean, var, a->momentum, (double)(ct_numel(x) / ct_dim(x, a->channels_last ? ct_ndim(x) - 1 : 1)));
}

void instance_norm_lower(ct_lower *l) {
    const instance_norm_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *mean, *var;
    if (a->use_running || ct_numel(x) == 0) {
        l->out[0] = by_running(l, a->eps, a->channels_last);
        return;
    }
    const int64_t channels = ct_dim(x, a->channels_last ? ct_ndim(x) - 1 : 1);
    l->out[0] = normalized(inputs_of(x, l->in[3], l->in[4]), channels, a->eps, a->channels_last, &mean, &var);
    track(l, ct_mean(mean, .axes = CT_DIMS(0)), ct_mean(var, .axes = CT_DIMS(0)), a->momentum,
          (double)(ct_numel(x) / (channels * ct_dim(x, 0))));
}
