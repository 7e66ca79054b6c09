/* Normalization by channels: shapes, the formulas in ops, and the gradients as one op. */
#include "ops/norm/norm.h"

#include "ops/op_impl.h"

static int64_t channels_of(const ct_view *x, bool last) { return x->dims[last ? 2 : 1]; }

/* ---- x as [n, groups, channels of a group, places], or [n, places, groups, channels of a group] ---- */

typedef struct layout {
    ct_dims shape, sets, params; /* of x, of one value a set, of one value a channel */
    ct_dims in_set, not_param;   /* the axes that a set spans, and those that weight does not have */
    ct_dims flat;                /* of mean and var */
    double count;                /* elements of a set */
} layout;

static layout layout_of(const ct_tensor *x, int64_t groups, bool last) {
    const int64_t n = ct_dim(x, 0), channels = ct_dim(x, last ? 2 : 1), places = ct_dim(x, last ? 1 : 2);
    const bool batch = groups == 0;
    const int64_t g = batch ? channels : groups, k = batch ? 1 : channels / groups, rows = batch ? 1 : n;
    layout l = {.flat = batch ? CT_DIMS(channels) : CT_DIMS(n, g)};
    l.count = (double)(k * places) * (batch ? (double)n : 1.0);
    if (last) {
        l.shape = CT_DIMS(n, places, g, k), l.sets = CT_DIMS(rows, 1, g, 1), l.params = CT_DIMS(1, 1, g, k);
        l.in_set = batch ? CT_DIMS(0, 1, 3) : CT_DIMS(1, 3);
        l.not_param = CT_DIMS(0, 1);
    } else {
        l.shape = CT_DIMS(n, g, k, places), l.sets = CT_DIMS(rows, g, 1, 1), l.params = CT_DIMS(1, g, k, 1);
        l.in_set = batch ? CT_DIMS(0, 2, 3) : CT_DIMS(2, 3);
        l.not_param = CT_DIMS(0, 3);
    }
    return l;
}

static ct_tensor *mean_of(ct_tensor *x, const layout *l) { return mean(x, .axes = l->in_set, .keepdim = true); }

/* ---- Forward ---- */

static bool infer_groups(const ct_infer *infer, const ct_view *x, int64_t groups, bool last) {
    if (x->ndim == 3 && groups >= 0 && (!groups || channels_of(x, last) % groups == 0)) return true;
    return ct_infer_fail(infer, CT_ERR_SHAPE,
                         "x is %s and groups %lld; x has to have 3 dimensions, its channels be a multiple of groups",
                         ct_view_text(x), (long long)groups);
}

bool channel_norm_infer(ct_infer *infer) {
    const channel_norm_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    if (!infer_groups(infer, x, a->groups, a->channels_last)) return false;
    const int64_t channels = channels_of(x, a->channels_last), sets[2] = {x->dims[0], a->groups};
    if (!ct__infer_is(infer, 1, 1, &channels) || !ct__infer_is(infer, 2, 1, &channels)) return false;
    ct__infer_like(infer, 0, x, x->dtype);
    for (int i = 1; i < infer->n_out; i++)
        ct__infer_set(infer, i, ct__norm_dtype(x->dtype), a->groups ? 2 : 1, a->groups ? sets : &channels);
    return true;
}

/* The inputs cast to what x is computed in. False: they are that already. */
static bool widened(const ct_lower *l, int x, ct_tensor **in) {
    const ct_dtype wide = ct__norm_dtype(ct_dtype_of(l->in[x]));
    bool any = false;
    for (int i = 0; i < l->n_in; i++) {
        any |= l->in[i] && ct_dtype_of(l->in[i]) != wide;
        in[i] = l->in[i] ? cast(l->in[i], wide) : NULL;
    }
    return any;
}

void channel_norm_lower(ct_lower *l) {
    const channel_norm_attrs *a = l->attrs;
    ct_tensor *wide[3];
    if (widened(l, 0, wide)) {
        ct__apply_wanted(&ct__op_channel_norm, wide, 3, a, l->out, l->n_out, l->want);
        return;
    }
    const layout at = layout_of(l->in[0], a->groups, a->channels_last);
    ct_tensor *x = reshape(l->in[0], at.shape), *m = mean_of(x, &at), *centred = sub(x, m);
    ct_tensor *variance = mean_of(square(centred), &at), *y = mul(centred, ct_rsqrt(add_s(variance, a->eps)));
    if (l->in[1]) y = mul(y, reshape(l->in[1], at.params));
    if (l->in[2]) y = ct_add(y, reshape(l->in[2], at.params));
    if (l->want[0]) l->out[0] = reshape(y, ct_shape(l->in[0]));
    if (l->n_out > 1 && l->want[1]) l->out[1] = reshape(m, at.flat);
    if (l->n_out > 2 && l->want[2]) l->out[2] = reshape(variance, at.flat);
}

/* bias and y: what the gradient needs of relu, if there was one. */
static void gradients(ct_vjp *v, const channel_norm_attrs *a, bool relu, ct_tensor *bias, ct_tensor *y) {
    const int residual = relu ? 3 : -1;
    if (!ct__vjp_has(v, 1) || !ct__vjp_has(v, 2)) return;
    /* weight is for dx alone, and saved only where that is wanted, but for relu */
    ct_tensor *weight = v->need[0] || relu ? v->in[1] : NULL;
    ct_tensor *g = v->cot[0] ? contiguous(v->cot[0]) : zeros(ct_shape(v->in[0]), .dtype = ct_dtype_of(v->in[0]));
    ct_tensor *in[9] = {g,
                        v->cot[1] ? contiguous(v->cot[1]) : NULL,
                        v->cot[2] ? contiguous(v->cot[2]) : NULL,
                        v->in[0],
                        v->out[1],
                        v->out[2],
                        weight,
                        bias,
                        y};
    channel_norm_grad_attrs attrs = {
        .groups = a->groups, .eps = a->eps, .channels_last = a->channels_last, .relu = relu};
    const bool want[4] = {v->need[0], v->need[1], v->need[2], residual > 0 && v->need[residual]};
    ct_tensor *out[4] = {NULL, NULL, NULL, NULL};
    ct__apply_wanted(&ct__op_channel_norm_grad, in, 9, &attrs, out, 4, want);
    v->grad[0] = out[0];
    for (int i = 1; i < 3; i++)
        if (want[i] && out[i]) v->grad[i] = cast(out[i], ct_dtype_of(v->in[i]));
    if (residual > 0) v->grad[residual] = out[3];
}

void channel_norm_vjp(ct_vjp *v) {
    const channel_norm_attrs *a = v->attrs;
    const layout at = layout_of(v->in[0], a->groups, a->channels_last);
    if (v->need[0] || v->need[1]) {
        gradients(v, a, false, NULL, NULL);
        return;
    }
    if (!v->cot[0]) return;
    const ct_dtype dtype = ct_dtype_of(v->in[2]);
    v->grad[2] = reshape(sum(cast(reshape(v->cot[0], at.shape), dtype), .axes = at.not_param), ct_shape(v->in[2]));
}

/* ---- With relu ---- */

static channel_norm_attrs without_relu(const channel_norm_relu_attrs *a) {
    return (channel_norm_attrs){.groups = a->groups, .eps = a->eps, .channels_last = a->channels_last};
}

/* Whether relu's gradient has to be given y: behind a sum, and on the CPU, which keeps more digits of the mean than it gives and rounds y
 * otherwise than the formula does by which it would be computed again. */
static bool needs_y(const ct_tensor *residual, ct_device device) { return residual || device.type == CT_CPU; }

/* y, or what it is computed again from. */
static void save_for_relu(ct_saving *s, int bias, int residual) {
    if (needs_y(s->in[residual], s->device)) s->saves.in &= ~(1ull << bias);
    else s->saves.out &= ~1ull;
}

void channel_norm_relu_saves_less(ct_saving *s) { save_for_relu(s, 2, 3); }

bool channel_norm_relu_infer(ct_infer *infer) {
    const channel_norm_attrs a = without_relu(infer->attrs);
    ct_infer inner = *infer;
    inner.attrs = &a;
    inner.n_in = 3;
    return channel_norm_infer(&inner) && ct__infer_is(infer, 3, 3, infer->in[0]->dims);
}

void channel_norm_relu_lower(ct_lower *l) {
    const channel_norm_attrs a = without_relu(l->attrs);
    ct_tensor *wide[4];
    if (widened(l, 0, wide)) {
        ct__apply_wanted(&ct__op_channel_norm_relu, wide, 4, l->attrs, l->out, l->n_out, l->want);
        return;
    }
    ct__apply_wanted(&ct__op_channel_norm, l->in, 3, &a, l->out, l->n_out, l->want);
    if (!l->want[0]) return;
    if (l->in[3]) l->out[0] = ct_add(l->out[0], l->in[3]);
    l->out[0] = ct_relu(l->out[0]);
}

void channel_norm_relu_vjp(ct_vjp *v) {
    const channel_norm_attrs a = without_relu(v->attrs);
    const bool with_y = needs_y(v->in[3], v->device);
    if (with_y && !ct__vjp_has(v, 0)) return;
    gradients(v, &a, true, with_y ? NULL : v->in[2], with_y ? v->out[0] : NULL);
}

/* ---- Gradients ---- */

bool channel_norm_grad_infer(ct_infer *infer) {
    const channel_norm_grad_attrs *a = infer->attrs;
    const ct_view *x = infer->in[3];
    if (!infer_groups(infer, x, a->groups, a->channels_last)) return false;
    const int64_t channels = channels_of(x, a->channels_last), sets[2] = {x->dims[0], a->groups};
    static const int of_sets[] = {1, 2, 4, 5};
    for (int i = 0; i < 4; i++)
        if (!ct__infer_is(infer, of_sets[i], a->groups ? 2 : 1, a->groups ? sets : &channels)) return false;
    if (!ct__infer_is(infer, 0, 3, x->dims) || !ct__infer_is(infer, 6, 1, &channels)) return false;
    if (!ct__infer_is(infer, 7, 1, &channels) || !ct__infer_is(infer, 8, 3, x->dims)) return false;
    ct__infer_like(infer, 0, x, x->dtype);
    for (int i = 1; i < infer->n_out && i < 3; i++) ct__infer_set(infer, i, ct__norm_dtype(x->dtype), 1, &channels);
    if (infer->n_out > 3) ct__infer_like(infer, 3, x, x->dtype);
    return true;
}

/* What relu let pass of g, and the gradients for that. */
static void behind_relu(ct_lower *l, const layout *at) {
    channel_norm_grad_attrs attrs = *(const channel_norm_grad_attrs *)l->attrs;
    ct_tensor *in[9], *y = l->in[8];
    for (int i = 0; i < 9; i++) in[i] = l->in[i];
    if (!y) {
        ct_no_grad {
            y = mul(sub(reshape(l->in[3], at->shape), reshape(l->in[4], at->sets)),
                    ct_rsqrt(add_s(reshape(l->in[5], at->sets), attrs.eps)));
            if (l->in[6]) y = mul(y, reshape(l->in[6], at->params));
            if (l->in[7]) y = ct_add(y, reshape(l->in[7], at->params));
            y = reshape(y, ct_shape(l->in[3]));
        }
    }
    in[0] = masked_fill(l->in[0], le_s(y, 0), 0);
    in[7] = in[8] = NULL;
    attrs.relu = false;
    ct__apply_wanted(&ct__op_channel_norm_grad, in, 9, &attrs, l->out, l->n_out < 3 ? l->n_out : 3, l->want);
    if (l->n_out > 3 && l->want[3]) l->out[3] = in[0];
}

/* With h = g weight and means over a set, from y: rstd (h - mean(h) - xhat mean(h xhat)); from mean and var: g_mean / count
 * + 2 g_var (x - mean) / count. The mean is taken again, of the deviations from the given one, which has too few digits
 * where it is large. */
void channel_norm_grad_lower(ct_lower *l) {
    const channel_norm_grad_attrs *a = l->attrs;
    ct_tensor *wide[9];
    if (widened(l, 3, wide)) {
        ct__apply_wanted(&ct__op_channel_norm_grad, wide, 9, a, l->out, l->n_out, l->want);
        return;
    }
    const layout at = layout_of(l->in[3], a->groups, a->channels_last);
    if (a->relu) {
        behind_relu(l, &at);
        return;
    }
    ct_tensor *g = reshape(l->in[0], at.shape), *x = reshape(l->in[3], at.shape);
    ct_tensor *centred = sub(x, reshape(a->fixed ? l->in[4] : ct_detach(l->in[4]), at.sets)),
              *rstd = ct_rsqrt(add_s(reshape(l->in[5], at.sets), a->eps));
    if (!a->fixed) centred = sub(centred, mean_of(centred, &at));
    ct_tensor *xhat = mul(centred, rstd);
    if (l->want[0] && a->fixed) {
        l->out[0] = reshape(mul(l->in[6] ? mul(g, reshape(l->in[6], at.params)) : g, rstd), ct_shape(l->in[3]));
    } else if (l->want[0]) {
        ct_tensor *h = l->in[6] ? mul(g, reshape(l->in[6], at.params)) : g;
        ct_tensor *dx = mul(rstd, sub(sub(h, mean_of(h, &at)), mul(xhat, mean_of(mul(h, xhat), &at))));
        if (l->in[1]) dx = ct_add(dx, mul_s(reshape(l->in[1], at.sets), 1 / at.count));
        if (l->in[2]) dx = ct_add(dx, mul(centred, mul_s(reshape(l->in[2], at.sets), 2 / at.count)));
        l->out[0] = reshape(dx, ct_shape(l->in[3]));
    }
    const ct_dims flat = CT_DIMS(ct_dim(l->in[3], a->channels_last ? 2 : 1));
    if (l->n_out > 1 && l->want[1]) l->out[1] = reshape(sum(mul(g, xhat), .axes = at.not_param), flat);
    if (l->n_out > 2 && l->want[2]) l->out[2] = reshape(sum(g, .axes = at.not_param), flat);
    if (l->n_out > 3 && l->want[3]) l->out[3] = l->in[0];
}

/* ---- By given statistics ---- */

bool channel_norm_fixed_infer(ct_infer *infer) {
    const channel_norm_fixed_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    if (!infer_groups(infer, x, 0, a->channels_last)) return false;
    const int64_t channels = channels_of(x, a->channels_last);
    for (int i = 1; i <= 4; i++)
        if (!ct__infer_is(infer, i, 1, &channels)) return false;
    if (!ct__infer_is(infer, 5, 3, x->dims)) return false;
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

void channel_norm_fixed_lower(ct_lower *l) {
    const channel_norm_fixed_attrs *a = l->attrs;
    ct_tensor *in[6];
    widened(l, 0, in);
    const ct_dtype dtype = ct_dtype_of(in[0]);
    const int64_t channels = ct_dim(in[0], a->channels_last ? 2 : 1);
    const ct_dims along = a->channels_last ? CT_DIMS(channels) : CT_DIMS(channels, 1);
    ct_tensor *mean = in[1], *scale = ct_rsqrt(add_s(in[2], a->eps));
    if (in[3]) scale = mul(scale, in[3]);
    ct_tensor *shift = in[4] ? in[4] : zeros(CT_DIMS(channels), .dtype = dtype);
    ct_tensor *y = channel_affine(in[0], reshape(mean, along), reshape(scale, along), reshape(shift, along));
    if (in[5]) y = ct_add(y, in[5]);
    l->out[0] = a->relu ? ct_relu(y) : y;
}

void channel_norm_fixed_saves_less(ct_saving *s) {
    if (((const channel_norm_fixed_attrs *)s->attrs)->relu) save_for_relu(s, 4, 5);
    else s->saves.in &= ~(1ull << 4), s->saves.out = 0;
}

/* Those for mean and var, which nobody wants of running statistics, follow from the others': of mean it is -sum(dx), of var
 * -sum(g weight (x - mean)) / 2 / sqrt(var + eps)^3. */
void channel_norm_fixed_vjp(ct_vjp *v) {
    const channel_norm_fixed_attrs *a = v->attrs;
    const bool channels_last = a->channels_last, of_mean = v->need[1], of_var = v->need[2];
    const bool with_y = a->relu && needs_y(v->in[5], v->device);
    ct_tensor *in[9] = {contiguous(v->cot[0]),
                        NULL,
                        NULL,
                        v->in[0],
                        v->in[1],
                        v->in[2],
                        v->in[3],
                        a->relu && !with_y ? v->in[4] : NULL,
                        with_y ? v->out[0] : NULL};
    const channel_norm_grad_attrs attrs = {
        .eps = a->eps, .relu = a->relu, .fixed = true, .channels_last = channels_last};
    const bool want[4] = {v->need[0] || of_mean, v->need[3] || of_var, v->need[4], v->need[5]};
    ct_tensor *out[4] = {NULL, NULL, NULL, NULL};
    ct__apply_wanted(&ct__op_channel_norm_grad, in, 9, &attrs, out, 4, want);
    if (v->need[0]) v->grad[0] = out[0];
    if (v->need[3] && out[1]) v->grad[3] = cast(out[1], ct_dtype_of(v->in[3]));
    if (v->need[4] && out[2]) v->grad[4] = cast(out[2], ct_dtype_of(v->in[4]));
    if (v->need[5]) v->grad[5] = out[3];
    const ct_dims others = channels_last ? CT_DIMS(0, 1) : CT_DIMS(0, 2);
    const ct_dtype wide = ct__norm_dtype(ct_dtype_of(v->in[0]));
    if (of_mean && out[0]) v->grad[1] = cast(ct_neg(sum(cast(out[0], wide), .axes = others)), ct_dtype_of(v->in[1]));
    if (of_var && out[1]) {
        ct_tensor *with = v->in[3] ? mul(out[1], cast(v->in[3], wide)) : out[1];
        v->grad[2] = cast(mul_s(div(with, add_s(cast(v->in[2], wide), a->eps)), -0.5), ct_dtype_of(v->in[2]));
    }
}

/* ---- Running statistics ---- */

bool running_statistics_infer(ct_infer *infer) {
    const ct_view *mean = infer->in[2];
    if (mean->ndim != 1)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "mean is %s; it has to be [channels]", ct_view_text(mean));
    for (int i = 0; i < infer->n_in; i++)
        if (!ct__infer_is(infer, i, 1, mean->dims)) return false;
    ct__infer_set(infer, 0, CT_I64, 0, NULL);
    return true;
}

static void move_average(ct_tensor *running, ct_tensor *batch, double momentum, double factor) {
    if (!running) return;
    const ct_dtype wide = ct__norm_dtype(ct_dtype_of(running));
    ct_tensor *moved = ct_add(mul_s(cast(running, wide), 1 - momentum), mul_s(cast(batch, wide), factor * momentum));
    ct_assign(running, cast(moved, ct_dtype_of(running)));
}

void running_statistics_lower(ct_lower *l) {
    const running_statistics_attrs *a = l->attrs;
    ct_no_grad {
        move_average(l->in[0], l->in[2], a->momentum, 1);
        move_average(l->in[1], l->in[3], a->momentum, a->unbias);
    }
    if (l->want[0]) l->out[0] = full(CT_DIMS0, 2, .dtype = CT_I64);
}
