/* Cross entropy and the likelihood of classes: shapes, options, the formulas in ops. */
#include <string.h>

#include "core/dtype.h"
#include "ops/loss/loss.h"
#include "ops/wide_vjp.h"

#include "ops/op_impl.h"

/* ---- What both have in common ---- */

static int class_axis(int ndim) { return ndim > 1 ? 1 : 0; }

static bool infer_classes(ct_infer *infer, int reduction, bool indices, ct_dtype dtype) {
    const ct_view *x = infer->in[0], *target = infer->in[1], *weight = infer->in[2];
    if (x->ndim == 0)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to be [classes] or [batch, classes, ...]",
                             ct_view_text(x));
    int64_t rest[CT_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < x->ndim; i++)
        if (i != class_axis(x->ndim)) rest[n++] = x->dims[i];
    const int64_t classes = x->dims[class_axis(x->ndim)];
    const int wanted = indices ? n : x->ndim;
    const int64_t *dims = indices ? rest : x->dims;
    if (target->ndim != wanted || memcmp(target->dims, dims, (size_t)wanted * sizeof *dims) != 0) {
        ct_dims expected = {.n = wanted};
        memcpy(expected.d, dims, (size_t)wanted * sizeof *dims);
        const bool like_x =
            target->ndim == x->ndim && memcmp(target->dims, x->dims, (size_t)x->ndim * sizeof *dims) == 0;
        return ct_infer_fail(infer, like_x ? CT_ERR_DTYPE : CT_ERR_SHAPE, "target is %s; x is %s, so %s are %s%s",
                             ct_view_text(target), ct_view_text(x), indices ? "class indices" : "probabilities",
                             ct_dims_text(expected), like_x ? "; probabilities have to be floating" : "");
    }
    if (weight && (weight->ndim != 1 || weight->dims[0] != classes))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "weight is %s; x is %s, so it has to be [%lld], one value a class",
                             ct_view_text(weight), ct_view_text(x), (long long)classes);
    return ct__infer_loss(infer, reduction, dtype, n, rest);
}

/* x as [n, classes, places]; target as [n, places]. */
static ct_tensor *three(ct_tensor *x) {
    const int n = ct_ndim(x);
    int64_t places = 1;
    for (int i = 2; i < n; i++) places *= ct_dim(x, i);
    return reshape(contiguous(x), CT_DIMS(n > 1 ? ct_dim(x, 0) : 1, ct_dim(x, class_axis(n)), places));
}

static ct_tensor *pairs(ct_tensor *target, const ct_tensor *x3) {
    return reshape(contiguous(target), CT_DIMS(ct_dim(x3, 0), ct_dim(x3, 2)));
}

/* For every target 1, or its weight; 0 where it is ignored. */
static ct_tensor *weight_of(ct_tensor *target, ct_tensor *weight, int64_t ignored, ct_dtype dtype) {
    ct_tensor *counts = ne_s(target, (double)ignored);
    if (!weight) return cast(counts, dtype);
    ct_tensor *safe = where(counts, target, zeros_like(target)), *flat = reshape(safe, CT_DIMS(ct_numel(safe)));
    ct_tensor *chosen = reshape(index_select(weight, 0, flat), ct_shape(target));
    return where(counts, chosen, zeros_like(chosen));
}

/* mean: over the weights, or over nothing. */
static ct_tensor *reduced(ct_tensor *losses, ct_tensor *weights, int reduction, ct_dims shape) {
    if (reduction == CT_NONE) return reshape(losses, shape);
    if (reduction == CT_SUM) return sum(losses);
    ct_tensor *total = sum(weights);
    return div(sum(losses), where(eq_s(total, 0), ones_like(total), total));
}

/* ---- nll_loss ---- */

bool nll_loss_infer(ct_infer *infer) {
    const nll_loss_attrs *a = infer->attrs;
    return infer_classes(infer, a->reduction, true, infer->in[0]->dtype);
}

void nll_loss_lower(ct_lower *l) {
    const nll_loss_attrs *a = l->attrs;
    const int64_t ignored = (int64_t)a->ignore_index;
    ct_tensor *x = three(l->in[0]), *target = pairs(l->in[1], x), *losses = class_pick(x, target, ignored);
    ct_tensor *weights =
        l->in[2] || a->reduction == CT_MEAN ? weight_of(target, l->in[2], ignored, ct_dtype_of(x)) : NULL;
    if (l->in[2]) losses = mul(losses, weights);
    l->out[0] = reduced(losses, weights, a->reduction, ct_shape(l->in[1]));
}

/* x is [n, classes, places]; weight [classes], the inputs in others [n, places]. Positions; weight 0 is none. */
static bool infer_inner(const ct_infer *infer, int x, int weight, const int *others, int n) {
    const ct_view *logits = infer->in[x];
    if (logits->ndim != 3)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to be [n, classes, places]", ct_view_text(logits));
    const int64_t pairs[2] = {logits->dims[0], logits->dims[2]};
    for (int i = 0; i < n; i++)
        if (!ct__infer_is(infer, others[i], 2, pairs)) return false;
    return !weight || ct__infer_is(infer, weight, 1, logits->dims + 1);
}

bool class_pick_infer(ct_infer *infer) {
    if (!infer_inner(infer, 0, 0, (const int[]){1}, 1)) return false;
    ct__infer_like(infer, 0, infer->in[1], infer->in[0]->dtype);
    return true;
}

static ct_tensor *safe_target(ct_tensor *target, int64_t ignored, ct_tensor **counts) {
    *counts = ne_s(target, (double)ignored);
    return where(*counts, target, zeros_like(target));
}

void class_pick_lower(ct_lower *l) {
    ct_tensor *counts, *safe = safe_target(l->in[1], ((const class_pick_attrs *)l->attrs)->ignore_index, &counts);
    ct_tensor *y = ct_neg(squeeze(gather(l->in[0], 1, unsqueeze(safe, 1)), .axes = CT_DIMS(1)));
    l->out[0] = where(counts, y, zeros_like(y));
}

void class_pick_vjp(ct_vjp *v) {
    ct_tensor *counts, *safe = safe_target(v->in[1], ((const class_pick_attrs *)v->attrs)->ignore_index, &counts);
    ct_tensor *g = where(counts, ct_neg(v->cot[0]), zeros_like(v->cot[0]));
    v->grad[0] = gather_grad(unsqueeze(g, 1), unsqueeze(safe, 1), ct_shape(v->in[0]), 1);
}

/* ---- cross_entropy_loss ---- */

bool cross_entropy_loss_infer(ct_infer *infer) {
    const cross_entropy_loss_attrs *a = infer->attrs;
    const ct_dtype dtype = infer->in[1]->dtype, own = infer->in[0]->dtype;
    const bool indices = dtype == CT_I32 || dtype == CT_I64;
    if (!indices && !ct_dtype_is_float(dtype))
        return ct_infer_fail(infer, CT_ERR_DTYPE, "target is %s; class indices are i32 or i64, probabilities floating",
                             ct_view_text(infer->in[1]));
    if (!(a->label_smoothing >= 0 && a->label_smoothing <= 1))
        return ct_infer_fail(infer, CT_ERR_VALUE, "label_smoothing is %g; it has to be between 0 and 1",
                             a->label_smoothing);
    return infer_classes(infer, a->reduction, indices, ct__infer_wide(indices ? own : ct_dtype_promote(own, dtype)));
}

static ct_dtype wide_of(ct_dtype dtype) { return ct__dtype_is_half(dtype) ? CT_F32 : dtype; }
static ct_tensor *widened(ct_tensor *x) { return x ? cast(x, wide_of(ct_dtype_of(x))) : NULL; }

/* -sum weight q log(p), with q the target after smoothing. */
static ct_tensor *of_probabilities(const cross_entropy_loss_attrs *a, ct_tensor *x, ct_tensor *q, ct_tensor *weight) {
    const int axis = class_axis(ct_ndim(x));
    const double e = a->label_smoothing;
    ct_tensor *log_p = log_softmax(x, axis);
    if (e > 0) q = add_s(mul_s(q, 1 - e), e / (double)ct_dim(x, axis));
    ct_tensor *terms = mul(q, log_p);
    if (weight) {
        ct_dims along = {.n = ct_ndim(x) - axis};
        for (int i = 0; i < along.n; i++) along.d[i] = i ? 1 : ct_numel(weight);
        terms = mul(terms, reshape(weight, along));
    }
    return ct__reduce_loss(ct_neg(sum(terms, .axes = CT_DIMS(axis))), a->reduction);
}

void cross_entropy_loss_lower(ct_lower *l) {
    const cross_entropy_loss_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *target = l->in[1], *weight = l->in[2], *level, *total;
    if (ct_dtype_is_float(ct_dtype_of(target))) {
        l->out[0] = of_probabilities(a, widened(x), widened(target), widened(weight));
        return;
    }
    const bool recorded = ct_grad_enabled() && ct_requires_grad(x); /* then its gradient reads the other results */
    if (weight) weight = cast(contiguous(weight), wide_of(ct_dtype_of(x)));
    l->out[0] =
        class_loss(contiguous(x), contiguous(target), (int64_t)a->ignore_index, .weight = weight,
                   .reduction = a->reduction, .label_smoothing = a->label_smoothing, .level = recorded ? &level : NULL,
                   .total = recorded && a->reduction == CT_MEAN ? &total : NULL);
}

/* ---- class_loss: the same of class indices alone, as one op ---- */

bool class_loss_infer(ct_infer *infer) {
    const class_loss_attrs *a = infer->attrs;
    const ct_dtype dtype = wide_of(infer->in[0]->dtype);
    if (!infer_classes(infer, a->reduction, true, dtype)) return false;
    const ct_view *target = infer->in[1];
    int64_t dims[CT_MAX_DIMS + 1] = {2};
    memcpy(dims + 1, target->dims, sizeof(int64_t) * (size_t)target->ndim);
    if (infer->n_out > 1) ct__infer_set(infer, 1, dtype, target->ndim + 1, dims);
    if (infer->n_out > 2) ct__infer_set(infer, 2, dtype, 0, NULL);
    return true;
}

void class_loss_lower(ct_lower *l) {
    const class_loss_attrs *a = l->attrs;
    const double e = a->label_smoothing;
    ct_tensor *weight = l->in[2], *x = three(l->in[0]), *target = pairs(l->in[1], x), *smooth = NULL, *level = NULL;
    const bool wants_level = l->n_out > 1 && l->want[1], wants_total = l->n_out > 2 && l->want[2];
    ct_tensor *losses = class_nll(x, target, a->ignore_index, .weight = e > 0 ? weight : NULL,
                                  .smooth = e > 0 ? &smooth : NULL, .level = wants_level ? &level : NULL);
    ct_tensor *weights = weight || wants_total || a->reduction == CT_MEAN
                             ? weight_of(target, weight, a->ignore_index, ct_dtype_of(x))
                             : NULL;
    if (weight) losses = mul(losses, weights);
    if (e > 0) losses = ct_add(mul_s(losses, 1 - e), mul_s(smooth, e / (double)ct_dim(x, 1)));
    l->out[0] = reduced(losses, weights, a->reduction, ct_shape(l->in[1]));
    if (wants_level) {
        ct_dims shape = ct_shape(l->in[1]);
        memmove(shape.d + 1, shape.d, sizeof(int64_t) * (size_t)shape.n++);
        shape.d[0] = 2;
        l->out[1] = reshape(level, shape);
    }
    if (wants_total) l->out[2] = sum(weights);
}

/* The cotangent of each target's loss, 0 where it is ignored, as [n, places]. total: of the weights. */
static ct_tensor *each_cotangent(ct_tensor *g, ct_tensor *target, ct_tensor *total, int64_t ignored, int reduction) {
    if (reduction == CT_MEAN) g = div(g, where(eq_s(total, 0), ones_like(total), total));
    g = reduction == CT_NONE ? reshape(contiguous(g), ct_shape(target)) : expand(g, ct_shape(target));
    return where(ne_s(target, (double)ignored), g, zeros_like(g));
}

/* 1 where a class is the target. An ignored target counts as class 0. */
static ct_tensor *at_target(ct_tensor *safe, const ct_tensor *x) {
    ct_tensor *here = unsqueeze(safe, 1);
    return gather_grad(expand(ct_scalar(1, ct_dtype_of(x)), ct_shape(here)), here, ct_shape(x), 1);
}

/* With q the smoothed target, the losses are -sum weight q log(p), and the total is the sum of the weights of the targets. */
static ct_tensor *weight_gradient(const ct_vjp *v, ct_tensor *x, ct_tensor *target) {
    const class_loss_attrs *a = v->attrs;
    const double e = a->label_smoothing;
    const ct_dims others = CT_DIMS(0, 2);
    ct_tensor *counts, *safe = safe_target(target, a->ignore_index, &counts), *hot = at_target(safe, x), *grad = NULL;
    ct_tensor *total = sum(weight_of(target, v->in[2], a->ignore_index, ct_dtype_of(x))), *g_total = NULL;
    if (v->n_out > 2) g_total = v->cot[2];
    if (v->cot[0]) {
        ct_tensor *g = each_cotangent(v->cot[0], target, total, a->ignore_index, a->reduction);
        ct_tensor *q = e > 0 ? add_s(mul_s(hot, 1 - e), e / (double)ct_dim(x, 1)) : hot;
        grad = ct_neg(sum(mul(mul(q, log_softmax(x, 1)), unsqueeze(g, 1)), .axes = others));
        if (a->reduction == CT_MEAN) {
            ct_tensor *less = ct_neg(div(mul(v->cot[0], v->out[0]), where(eq_s(total, 0), ones_like(total), total)));
            g_total = g_total ? ct_add(g_total, less) : less;
        }
    }
    if (g_total) {
        ct_tensor *counted = sum(mul(hot, unsqueeze(cast(counts, ct_dtype_of(x)), 1)), .axes = others);
        ct_tensor *more = mul(counted, g_total);
        grad = grad ? ct_add(grad, more) : more;
    }
    return grad ? cast(grad, ct_dtype_of(v->in[2])) : NULL;
}

/* From the cotangent of the level, as [2, n, places]: that of the greatest logit goes where it is. */
static ct_tensor *level_gradient(ct_tensor *g, ct_tensor *x, ct_tensor *target, int64_t ignored) {
    ct_tensor *part[2], *peak = at_target(argmax(x, .axis = CT_SET(1)), x);
    g = reshape(contiguous(g), CT_DIMS(2, ct_dim(x, 0), ct_dim(x, 2)));
    for (int i = 0; i < 2; i++) part[i] = unsqueeze(each_cotangent(select(g, 0, i), target, NULL, ignored, CT_NONE), 1);
    return ct_add(mul(peak, sub(part[0], part[1])), mul(softmax(x, 1), part[1]));
}

void class_loss_vjp(ct_vjp *v) {
    const class_loss_attrs *a = v->attrs;
    ct_tensor *level = v->n_out > 1 ? v->out[1] : NULL, *g_level = v->n_out > 1 ? v->cot[1] : NULL;
    if (v->need[0]) {
        ct_tensor *x = g_level ? widened(v->in[0]) : v->in[0], *grad = NULL;
        if (v->cot[0])
            grad = class_loss_grad(v->cot[0], x, v->in[1], a->ignore_index, .weight = v->in[2], .level = level,
                                   .total = v->n_out > 2 ? v->out[2] : NULL, .reduction = a->reduction,
                                   .label_smoothing = a->label_smoothing);
        if (g_level) {
            ct_tensor *x3 = three(x), *more = level_gradient(g_level, x3, pairs(v->in[1], x3), a->ignore_index);
            more = reshape(more, ct_shape(x));
            grad = cast(grad ? ct_add(grad, more) : more, ct_dtype_of(v->in[0]));
        }
        v->grad[0] = grad;
    }
    if (v->need[2]) {
        ct_tensor *x = three(widened(v->in[0]));
        v->grad[2] = weight_gradient(v, x, pairs(v->in[1], x));
    }
}

bool class_loss_grad_infer(ct_infer *infer) {
    const class_loss_grad_attrs *a = infer->attrs;
    const ct_view *x = infer->in[1], *const in[3] = {x, infer->in[2], infer->in[3]};
    ct_view loss = {.ndim = 0};
    ct_infer forward = {.op = infer->op, .attrs = infer->attrs, .n_in = 3, .n_out = 1, .in = in, .out = &loss};
    if (!infer_classes(&forward, a->reduction == CT_MEAN ? CT_SUM : a->reduction, true, x->dtype) ||
        !ct__infer_is(infer, 0, loss.ndim, loss.dims))
        return false;
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

/* It looks at x alone, of which level and total are functions: so it can be differentiated. */
void class_loss_grad_lower(ct_lower *l) {
    const class_loss_grad_attrs *a = l->attrs;
    const double e = a->label_smoothing;
    ct_tensor *weight = l->in[3], *x = three(l->in[1]), *target = pairs(l->in[2], x);
    ct_tensor *weights = weight_of(target, weight, a->ignore_index, ct_dtype_of(x));
    ct_tensor *g = each_cotangent(l->in[0], target, sum(weights), a->ignore_index, a->reduction);
    ct_tensor *g_smooth = e > 0 ? mul_s(g, e / (double)ct_dim(x, 1)) : NULL;
    if (e > 0) g = mul_s(g, 1 - e);
    if (weight) g = mul(g, weights);
    l->out[0] =
        reshape(class_nll_grad(g, x, target, a->ignore_index, .weight = e > 0 ? weight : NULL, .g_smooth = g_smooth),
                ct_shape(l->in[1]));
}

/* ---- class_nll: what is done in one pass over the logits ---- */

bool class_nll_infer(ct_infer *infer) {
    if (!infer_inner(infer, 0, 2, (const int[]){1}, 1)) return false;
    const ct_view *target = infer->in[1];
    for (int i = 0; i < infer->n_out && i < 2; i++) ct__infer_like(infer, i, target, infer->in[0]->dtype);
    if (infer->n_out > 2)
        ct__infer_set(infer, 2, infer->in[0]->dtype, 3, (const int64_t[]){2, target->dims[0], target->dims[1]});
    return true;
}

static ct_tensor *over_classes(ct_tensor *weight) { return reshape(weight, CT_DIMS(ct_numel(weight), 1)); }

void class_nll_lower(ct_lower *l) {
    ct_tensor *counts, *safe = safe_target(l->in[1], ((const class_nll_attrs *)l->attrs)->ignore_index, &counts);
    ct_tensor *log_p = log_softmax(l->in[0], 1);
    ct_tensor *y = ct_neg(squeeze(gather(log_p, 1, unsqueeze(safe, 1)), .axes = CT_DIMS(1)));
    if (l->want[0]) l->out[0] = where(counts, y, zeros_like(y));
    if (l->n_out > 2 && l->want[2]) {
        ct_tensor *top = amax(l->in[0], .axes = CT_DIMS(1), .keepdim = true);
        ct_tensor *log_sum = ct_log(sum(ct_exp(sub(l->in[0], top)), .axes = CT_DIMS(1), .keepdim = true));
        ct_tensor *level = permute(ct_cat((ct_tensor *[]){top, log_sum}, 2, 1), CT_DIMS(1, 0, 2));
        l->out[2] = where(unsqueeze(counts, 0), level, zeros_like(level));
    }
    if (l->n_out < 2 || !l->want[1]) return;
    if (l->in[2]) log_p = mul(log_p, over_classes(l->in[2]));
    y = ct_neg(sum(log_p, .axes = CT_DIMS(1)));
    l->out[1] = where(counts, y, zeros_like(y));
}

void class_nll_vjp(ct_vjp *v) {
    const class_nll_attrs *a = v->attrs;
    if (v->n_out > 2 && v->out[2] && ct__vjp_wide(v, class_nll_vjp)) return; /* a sum of two */
    ct_tensor *x = v->in[0], *target = v->in[1], *weight = v->in[2];
    ct_tensor *g_smooth = v->n_out > 1 && v->out[1] ? v->cot[1] : NULL;
    if (v->need[0])
        v->grad[0] =
            class_nll_grad(contiguous(v->cot[0]), x, target, a->ignore_index, .weight = g_smooth ? weight : NULL,
                           .g_smooth = g_smooth ? contiguous(g_smooth) : NULL);
    if (v->need[0] && v->n_out > 2 && v->out[2]) {
        v->grad[0] = ct_add(v->grad[0], level_gradient(v->cot[2], x, target, a->ignore_index));
    }
    if (v->need[2] && g_smooth) { /* from the sum over the classes alone */
        ct_tensor *g = where(ne_s(target, (double)a->ignore_index), g_smooth, zeros_like(g_smooth));
        v->grad[2] = ct_neg(sum(mul(log_softmax(x, 1), unsqueeze(g, 1)), .axes = CT_DIMS(0, 2)));
    }
}

bool class_nll_grad_infer(ct_infer *infer) {
    if (!infer_inner(infer, 2, 4, (const int[]){0, 1, 3}, 3)) return false;
    ct__infer_like(infer, 0, infer->in[2], infer->in[2]->dtype);
    return true;
}

/* dx = g (p - [target]) + g' (p sum w - w), with g' the cotangent of the sum over the classes: so a class that is certain gets
 * no rounding error of g. */
void class_nll_grad_lower(ct_lower *l) {
    ct_tensor *counts, *g = l->in[0], *g_smooth = l->in[1], *x = l->in[2], *weight = l->in[4];
    ct_tensor *safe = safe_target(l->in[3], ((const class_nll_grad_attrs *)l->attrs)->ignore_index, &counts);
    g = where(counts, g, zeros_like(g));
    ct_tensor *p = softmax(x, 1), *dx = mul(unsqueeze(g, 1), sub(p, at_target(safe, x)));
    if (g_smooth) {
        ct_tensor *more =
            weight ? sub(mul(p, sum(weight)), over_classes(weight)) : add_s(mul_s(p, (double)ct_dim(x, 1)), -1);
        dx = ct_add(dx, mul(unsqueeze(where(counts, g_smooth, zeros_like(g_smooth)), 1), more));
    }
    l->out[0] = dx;
}
