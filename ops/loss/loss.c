/* Losses of pairs of elements: options, and the formulas in ops. */
#include "ops/loss/loss.h"

#include "ops/op_impl.h"

bool ct__infer_loss(ct_infer *infer, int reduction, ct_dtype dtype, int ndim, const int64_t *dims) {
    if (reduction == CT_MEAN && ct__count(ndim, dims) == 0)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "%s is %s: there is no mean over an empty batch (reduction sum gives 0)",
                             infer->op->inputs[0].name, ct_view_text(infer->in[0]));
    ct__infer_set(infer, 0, dtype, reduction == CT_NONE ? ndim : 0, dims);
    return true;
}

ct_tensor *ct__reduce_loss(ct_tensor *losses, int reduction) {
    return reduction == CT_NONE ? losses : reduction == CT_SUM ? sum(losses) : mean(losses);
}

/* Every loss here is one number an element of the common shape. */
static bool infer_pairs(ct_infer *infer, int reduction) {
    const ct_view *x = infer->in[0];
    return ct__infer_loss(infer, reduction, x->dtype, x->ndim, x->dims);
}

static bool not_negative(ct_infer *infer, const char *name, double value) {
    return value >= 0 || ct_infer_fail(infer, CT_ERR_VALUE, "%s is %g; it cannot be negative", name, value);
}

static ct_tensor *from(double value, ct_tensor *x) { return add_s(ct_neg(x), value); } /* value - x */
static ct_tensor *not_below(ct_tensor *x, double least) { return clamp(x, .min = CT_SET(least)); }

/* ---- Distances ---- */

bool mse_loss_infer(ct_infer *infer) { return infer_pairs(infer, ((const mse_loss_attrs *)infer->attrs)->reduction); }
void mse_loss_lower(ct_lower *l) {
    const mse_loss_attrs *a = l->attrs;
    l->out[0] = ct__reduce_loss(squared_error(l->in[0], l->in[1]), a->reduction);
}

bool l1_loss_infer(ct_infer *infer) { return infer_pairs(infer, ((const l1_loss_attrs *)infer->attrs)->reduction); }
void l1_loss_lower(ct_lower *l) {
    const l1_loss_attrs *a = l->attrs;
    l->out[0] = ct__reduce_loss(absolute_error(l->in[0], l->in[1]), a->reduction);
}

static ct_tensor *huber(ct_tensor *x, ct_tensor *t, double delta) {
    return huber_error(x, t, full(CT_DIMS0, delta, .dtype = ct_dtype_of(x)));
}

bool smooth_l1_loss_infer(ct_infer *infer) {
    const smooth_l1_loss_attrs *a = infer->attrs;
    return not_negative(infer, "beta", a->beta) && infer_pairs(infer, a->reduction);
}
void smooth_l1_loss_lower(ct_lower *l) {
    const smooth_l1_loss_attrs *a = l->attrs;
    ct_tensor *terms =
        a->beta == 0 ? absolute_error(l->in[0], l->in[1]) : mul_s(huber(l->in[0], l->in[1], a->beta), 1 / a->beta);
    l->out[0] = ct__reduce_loss(terms, a->reduction);
}

bool huber_loss_infer(ct_infer *infer) {
    const huber_loss_attrs *a = infer->attrs;
    if (!(a->delta > 0)) return ct_infer_fail(infer, CT_ERR_VALUE, "delta is %g; it has to be positive", a->delta);
    return infer_pairs(infer, a->reduction);
}
void huber_loss_lower(ct_lower *l) {
    const huber_loss_attrs *a = l->attrs;
    l->out[0] = ct__reduce_loss(huber(l->in[0], l->in[1], a->delta), a->reduction);
}

/* ---- Likelihoods ---- */

bool bce_loss_infer(ct_infer *infer) { return infer_pairs(infer, ((const bce_loss_attrs *)infer->attrs)->reduction); }
void bce_loss_lower(ct_lower *l) {
    const bce_loss_attrs *a = l->attrs;
    ct_tensor *terms = bernoulli_error(l->in[0], l->in[1]);
    l->out[0] = ct__reduce_loss(l->in[2] ? mul(terms, l->in[2]) : terms, a->reduction);
}

bool bce_with_logits_loss_infer(ct_infer *infer) {
    return infer_pairs(infer, ((const bce_with_logits_loss_attrs *)infer->attrs)->reduction);
}
/* -(w t log(p) + (1 - t) log(1 - p)) with p = sigmoid(x). */
static ct_tensor *logistic(ct_tensor *x, ct_tensor *t, ct_tensor *w) {
    if (!w) return logistic_error(x, t);
    return ct_neg(ct_add(mul(mul(w, t), log_sigmoid(x)), mul(from(1, t), log_sigmoid(ct_neg(x)))));
}
void bce_with_logits_loss_lower(ct_lower *l) {
    const bce_with_logits_loss_attrs *a = l->attrs;
    ct_tensor *terms = logistic(l->in[0], l->in[1], l->in[3]);
    l->out[0] = ct__reduce_loss(l->in[2] ? mul(terms, l->in[2]) : terms, a->reduction);
}

bool kl_div_loss_infer(ct_infer *infer) {
    return infer_pairs(infer, ((const kl_div_loss_attrs *)infer->attrs)->reduction);
}
void kl_div_loss_lower(ct_lower *l) {
    const kl_div_loss_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *t = l->in[1], *terms;
    if (a->log_target) {
        terms = mul(ct_exp(t), sub(t, x));
    } else { /* t log(t) is 0 where t is */
        ct_tensor *safe = where(eq_s(t, 0), ones_like(t), t);
        terms = mul(t, sub(ct_log(safe), x));
    }
    l->out[0] = ct__reduce_loss(terms, a->reduction);
}

bool poisson_nll_loss_infer(ct_infer *infer) {
    const poisson_nll_loss_attrs *a = infer->attrs;
    return not_negative(infer, "eps", a->eps) && infer_pairs(infer, a->reduction);
}
/* log(t!) is about t log(t) - t + log(2 pi t) / 2. */
static ct_tensor *log_factorial(ct_tensor *t) {
    ct_tensor *safe = not_below(t, 1), *half_log = mul_s(ct_log(mul_s(safe, 6.283185307179586)), 0.5);
    ct_tensor *terms = ct_add(sub(mul(safe, ct_log(safe)), safe), half_log);
    return where(gt_s(t, 1), terms, zeros_like(t));
}
void poisson_nll_loss_lower(ct_lower *l) {
    const poisson_nll_loss_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *t = l->in[1];
    ct_tensor *terms = a->rates ? sub(x, mul(t, ct_log(add_s(x, a->eps)))) : sub(ct_exp(x), mul(t, x));
    l->out[0] = ct__reduce_loss(a->full ? ct_add(terms, log_factorial(t)) : terms, a->reduction);
}

bool gaussian_nll_loss_infer(ct_infer *infer) {
    const gaussian_nll_loss_attrs *a = infer->attrs;
    return not_negative(infer, "eps", a->eps) && infer_pairs(infer, a->reduction);
}
void gaussian_nll_loss_lower(ct_lower *l) {
    const gaussian_nll_loss_attrs *a = l->attrs;
    ct_tensor *v = not_below(l->in[2], a->eps),
              *terms = mul_s(ct_add(ct_log(v), div(squared_error(l->in[0], l->in[1]), v)), 0.5);
    l->out[0] = ct__reduce_loss(a->full ? add_s(terms, 0.91893853320467274) : terms, a->reduction);
}

bool focal_loss_infer(ct_infer *infer) {
    const focal_loss_attrs *a = infer->attrs;
    return not_negative(infer, "gamma", a->gamma) && infer_pairs(infer, a->reduction);
}
/* 1 - p_t = p (1 - t) + (1 - p) t, kept from 0, where a power below 1 has no derivative. */
void focal_loss_lower(ct_lower *l) {
    const focal_loss_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *t = l->in[1], *other = from(1, t), *terms = logistic_error(x, t);
    if (a->gamma > 0) {
        ct_tensor *miss = ct_add(mul(ct_sigmoid(x), other), mul(ct_sigmoid(ct_neg(x)), t));
        terms = mul(terms, pow_s(not_below(miss, 1e-37), a->gamma));
    }
    if (a->alpha >= 0) terms = mul(terms, ct_add(mul_s(t, a->alpha), mul_s(other, 1 - a->alpha)));
    l->out[0] = ct__reduce_loss(terms, a->reduction);
}

/* ---- Margins ---- */

bool hinge_loss_infer(ct_infer *infer) {
    return infer_pairs(infer, ((const hinge_loss_attrs *)infer->attrs)->reduction);
}
void hinge_loss_lower(ct_lower *l) {
    const hinge_loss_attrs *a = l->attrs;
    l->out[0] = ct__reduce_loss(relu(from(a->margin, mul(l->in[0], l->in[1]))), a->reduction);
}

bool hinge_embedding_loss_infer(ct_infer *infer) {
    return infer_pairs(infer, ((const hinge_embedding_loss_attrs *)infer->attrs)->reduction);
}
void hinge_embedding_loss_lower(ct_lower *l) {
    const hinge_embedding_loss_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *t = l->in[1], *zero = zeros_like(x);
    ct_tensor *terms = ct_add(where(eq_s(t, -1), zero, x), where(eq_s(t, 1), zero, relu(from(a->margin, x))));
    l->out[0] = ct__reduce_loss(terms, a->reduction);
}

bool margin_ranking_loss_infer(ct_infer *infer) {
    return infer_pairs(infer, ((const margin_ranking_loss_attrs *)infer->attrs)->reduction);
}
void margin_ranking_loss_lower(ct_lower *l) {
    const margin_ranking_loss_attrs *a = l->attrs;
    ct_tensor *apart = mul(l->in[2], sub(l->in[0], l->in[1]));
    l->out[0] = ct__reduce_loss(relu(from(a->margin, apart)), a->reduction);
}
