/* Losses of pairs and triples of vectors: shapes, and the formulas in ops. */
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"

#include "ops/op_impl.h"

static const ct_dims last = {.n = 1, .d = {-1}};

/* ---- triplet_margin_loss ---- */

bool triplet_margin_loss_infer(ct_infer *infer) {
    const triplet_margin_loss_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    if (x->ndim == 0)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "anchor is %s; vectors need a last axis", ct_view_text(x));
    if (!(a->p > 0)) return ct_infer_fail(infer, CT_ERR_VALUE, "p is %g; it has to be positive", a->p);
    if (!(a->eps >= 0)) return ct_infer_fail(infer, CT_ERR_VALUE, "eps is %g; it cannot be negative", a->eps);
    return ct__infer_loss(infer, a->reduction, x->dtype, x->ndim - 1, x->dims);
}

static ct_tensor *distance(ct_tensor *a, ct_tensor *b, const triplet_margin_loss_attrs *attrs) {
    return norm(add_s(sub(a, b), attrs->eps), .p = CT_SET(attrs->p), .axes = last);
}

void triplet_margin_loss_lower(ct_lower *l) {
    const triplet_margin_loss_attrs *a = l->attrs;
    ct_tensor *anchor = l->in[0], *positive = l->in[1], *negative = l->in[2];
    ct_tensor *near = distance(anchor, positive, a), *far = distance(anchor, negative, a);
    if (a->swap) far = minimum(far, distance(positive, negative, a));
    l->out[0] = ct__reduce_loss(relu(add_s(sub(near, far), a->margin)), a->reduction);
}

/* ---- cosine_embedding_loss ---- */

bool cosine_embedding_loss_infer(ct_infer *infer) {
    const cosine_embedding_loss_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0], *target = infer->in[2];
    const bool fits =
        (x->ndim == 1 && target->ndim == 0) || (x->ndim == 2 && target->ndim == 1 && target->dims[0] == x->dims[0]);
    if (!fits)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "a is %s and target is %s; they have to be [n, size] and [n], or [size] and []",
                             ct_view_text(x), ct_view_text(target));
    return ct__infer_arithmetic(infer, 2) && ct__infer_loss(infer, a->reduction, x->dtype, x->ndim - 1, x->dims);
}

void cosine_embedding_loss_lower(ct_lower *l) {
    const cosine_embedding_loss_attrs *attrs = l->attrs;
    ct_tensor *a = l->in[0], *b = l->in[1], *target = ct_detach(l->in[2]);
    /* the squared lengths are kept from 0 */
    ct_tensor *length_a = add_s(sum(square(a), .axes = last), 1e-12),
              *length_b = add_s(sum(square(b), .axes = last), 1e-12);
    ct_tensor *cosine = mul(sum(mul(a, b), .axes = last), ct_rsqrt(mul(length_a, length_b))),
              *zero = zeros_like(cosine);
    ct_tensor *alike = where(eq_s(target, 1), add_s(ct_neg(cosine), 1), zero),
              *unlike = where(eq_s(target, -1), relu(add_s(cosine, -attrs->margin)), zero);
    l->out[0] = ct__reduce_loss(ct_add(alike, unlike), attrs->reduction);
}
