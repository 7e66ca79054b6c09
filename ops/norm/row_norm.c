/* Normalization of rows: shapes, the formulas in ops, and the gradients as one op. */
#include "ops/norm/norm.h"

#include "ops/op_impl.h"

/* ---- Forward ---- */

static bool infer_matrix(const ct_infer *infer, const ct_view *x) {
    return x->ndim == 2 || ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to be [rows, n]", ct_view_text(x));
}

bool row_norm_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    if (!infer_matrix(infer, x) || !ct__infer_is(infer, 1, 1, x->dims + 1) || !ct__infer_is(infer, 2, 1, x->dims + 1))
        return false;
    ct__infer_like(infer, 0, infer->in[0], infer->in[0]->dtype);
    return true;
}

/* x less its mean and over its deviation, and *rstd, 1 / that. */
static ct_tensor *normal_rows(ct_tensor *x, double eps, bool rms, ct_tensor **rstd) {
    const ct_dims rows = CT_DIMS(1);
    ct_tensor *centred = rms ? x : sub(x, mean(x, .axes = rows, .keepdim = true));
    *rstd = ct_rsqrt(add_s(mean(square(centred), .axes = rows, .keepdim = true), eps));
    return mul(centred, *rstd);
}

void row_norm_lower(ct_lower *l) {
    const row_norm_attrs *a = l->attrs;
    ct_tensor *rstd, *y = normal_rows(l->in[0], a->eps, a->rms, &rstd);
    if (l->in[1]) y = mul(y, l->in[1]);
    if (l->in[2]) y = ct_add(y, l->in[2]);
    l->out[0] = y;
}

void row_norm_vjp(ct_vjp *v) {
    const row_norm_attrs *a = v->attrs;
    /* weight is for dx alone, and saved only where that is wanted */
    ct_tensor *in[3] = {contiguous(v->cot[0]), v->in[0], v->need[0] ? v->in[1] : NULL};
    if (!v->need[0] && !v->need[1]) {
        v->grad[2] = sum(cast(v->cot[0], ct_dtype_of(v->in[2])), .axes = CT_DIMS(0));
        return;
    }
    row_norm_grad_attrs attrs = {.eps = a->eps, .rms = a->rms};
    ct__apply_wanted(&ct__op_row_norm_grad, in, 3, &attrs, v->grad, 3, v->need);
    for (int i = 1; i < 3; i++)
        if (v->grad[i]) v->grad[i] = cast(v->grad[i], ct_dtype_of(v->in[i]));
}

/* ---- Gradients ---- */

bool row_norm_grad_infer(ct_infer *infer) {
    const ct_view *x = infer->in[1];
    if (!infer_matrix(infer, x) || !ct__infer_is(infer, 0, 2, x->dims) || !ct__infer_is(infer, 2, 1, x->dims + 1))
        return false;
    ct__infer_like(infer, 0, x, x->dtype);
    for (int i = 1; i < infer->n_out; i++) ct__infer_set(infer, i, ct__norm_dtype(x->dtype), 1, &x->dims[1]);
    return true;
}

/* With h = g weight and the mean over a row, dx = rstd (h - mean(h) - xhat mean(h xhat)); without a mean of x, no mean(h). */
void row_norm_grad_lower(ct_lower *l) {
    const row_norm_grad_attrs *a = l->attrs;
    const ct_dims rows = CT_DIMS(1), columns = CT_DIMS(0);
    ct_tensor *g = l->in[0], *rstd, *xhat = normal_rows(l->in[1], a->eps, a->rms, &rstd);
    if (l->want[0]) {
        ct_tensor *h = l->in[2] ? mul(g, l->in[2]) : g;
        if (a->rms && ct_dim(l->in[1], 1) == 1) { /* h - xhat (h xhat), without the difference */
            l->out[0] = mul(h, mul_s(mul(rstd, square(rstd)), a->eps));
        } else {
            ct_tensor *projection = mul(xhat, mean(mul(h, xhat), .axes = rows, .keepdim = true));
            if (!a->rms) h = sub(h, mean(h, .axes = rows, .keepdim = true));
            l->out[0] = mul(rstd, sub(h, projection));
        }
    }
    if (l->n_out > 1 && l->want[1]) l->out[1] = sum(mul(g, xhat), .axes = columns);
    if (l->n_out > 2 && l->want[2]) l->out[2] = sum(g, .axes = columns);
}
