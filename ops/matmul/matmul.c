/* Matrix products: shapes, derivatives, and the ops that are products in other words. */
#include <string.h>

#include "core/dtype.h"
#include "ops/activation.h"
#include "ops/reduce/reduce.h"

#include "ops/op_impl.h"

/* ---- matmul ---- */

static bool arithmetic(const ct_infer *infer, const ct_view *view, const char *name) {
    if (ct_dtype_is_float(view->dtype) || ct_dtype_is_int(view->dtype)) return true;
    return ct_infer_fail(infer, CT_ERR_DTYPE, "%s is %s; matrix products take floats and integers, cast it first", name,
                         ct_view_text(view));
}

bool matmul_infer(ct_infer *infer) {
    const ct_view *a = infer->in[0], *b = infer->in[1];
    if (!arithmetic(infer, a, "a") || !arithmetic(infer, b, "b")) return false;
    if (a->ndim == 0 || b->ndim == 0)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "a is %s, b is %s; both need at least one dimension (use ct_mul for scalars)",
                             ct_view_text(a), ct_view_text(b));
    int64_t k = a->dims[a->ndim - 1], kb = b->dims[b->ndim > 1 ? b->ndim - 2 : 0];
    if (k != kb) {
        bool transposed = b->ndim >= 2 && b->dims[b->ndim - 1] == k;
        return ct_infer_fail(infer, CT_ERR_SHAPE, "inner dimensions differ: a is %s, b is %s (%lld vs %lld)%s",
                             ct_view_text(a), ct_view_text(b), (long long)k, (long long)kb,
                             !transposed    ? ""
                             : b->ndim == 2 ? "; did you mean ct_matmul(a, ct_t(b))?"
                                            : "; did you mean ct_matmul(a, ct_transpose(b, -2, -1))?");
    }
    int a_batch = a->ndim > 2 ? a->ndim - 2 : 0, b_batch = b->ndim > 2 ? b->ndim - 2 : 0,
        batch = a_batch > b_batch ? a_batch : b_batch;
    ct_view *y = &infer->out[0];
    y->dtype = a->dtype;
    y->ndim = 0;
    for (int i = 0; i < batch; i++) {
        int ia = i - (batch - a_batch), ib = i - (batch - b_batch);
        int64_t da = ia >= 0 ? a->dims[ia] : 1, db = ib >= 0 ? b->dims[ib] : 1;
        if (da != db && da != 1 && db != 1)
            return ct_infer_fail(infer, CT_ERR_SHAPE,
                                 "batch dimensions do not broadcast: a is %s, b is %s (%lld vs %lld)", ct_view_text(a),
                                 ct_view_text(b), (long long)da, (long long)db);
        y->dims[y->ndim++] = da == 1 ? db : da;
    }
    if (a->ndim > 1) y->dims[y->ndim++] = a->dims[a->ndim - 2];
    if (b->ndim > 1) y->dims[y->ndim++] = b->dims[b->ndim - 1];
    return true;
}

/* g summed over the dimensions in which shape was broadcast. */
static ct_tensor *sum_to(ct_tensor *g, ct_dims shape) {
    if (!g) return NULL;
    int extra = ct_ndim(g) - shape.n;
    ct_dims from = ct_shape(g), axes = {0};
    for (int i = 0; i < from.n; i++)
        if (i < extra || (from.d[i] != 1 && shape.d[i - extra] == 1)) axes.d[axes.n++] = i;
    return axes.n ? reshape(sum(g, .axes = axes, .keepdim = true), shape) : g;
}

static ct_tensor *swapped(ct_tensor *x) { return transpose(x, -2, -1); }

/* All but the last dimension as one: [..., k] as [rows, k]. For x with elements. */
static ct_tensor *as_rows(ct_tensor *x) { return reshape(x, CT_DIMS(-1, ct_dim(x, -1))); }

void matmul_vjp(ct_vjp *v) {
    ct_tensor *a = v->in[0], *b = v->in[1], *g = v->cot[0];
    ct_dims a_shape = ct_shape(a), b_shape = ct_shape(b);
    if (a_shape.n == 1 && b_shape.n == 1) {
        if (v->need[0]) v->grad[0] = mul(g, b);
        if (v->need[1]) v->grad[1] = mul(g, a);
        return;
    }
    /* As matrices: the dropped dimensions come back, in the operands and in g. Each operand is there only for the other's sake. */
    ct_dims a_matrix = a_shape.n == 1 ? CT_DIMS(1, a_shape.d[0]) : a_shape,
            b_matrix = b_shape.n == 1 ? CT_DIMS(b_shape.d[0], 1) : b_shape;
    if (a_shape.n == 1) g = unsqueeze(g, -2);
    if (b_shape.n == 1) g = unsqueeze(g, -1);
    if (v->need[0]) {
        ct_tensor *da = matmul(g, swapped(b_shape.n == 1 ? unsqueeze(b, 1) : b));
        v->grad[0] = reshape(sum_to(da, a_matrix), a_shape);
    }
    if (v->need[1]) {
        if (a_shape.n == 1) a = unsqueeze(a, 0);
        /* One b for the whole batch: its gradient is one product over all rows, not a sum of small ones. */
        bool shared = b_matrix.n == 2 && ct_ndim(a) > 2 && ct_numel(a) && ct_numel(g);
        ct_tensor *db = shared ? matmul(swapped(as_rows(a)), as_rows(g)) : matmul(swapped(a), g);
        v->grad[1] = reshape(sum_to(db, b_matrix), b_shape);
    }
}

/* ---- Products in other words ---- */

bool bmm_infer(ct_infer *infer) {
    const ct_view *a = infer->in[0], *b = infer->in[1];
    if (a->ndim != 3 || b->ndim != 3 || a->dims[0] != b->dims[0])
        return ct_infer_fail(infer, CT_ERR_SHAPE, "takes [n,p,q] and [n,q,r]: a is %s, b is %s", ct_view_text(a),
                             ct_view_text(b));
    return matmul_infer(infer);
}

/* Both are matmul of fewer shapes, so that the result goes where ct_into says without a copy. */
static bool hand_on_to_matmul(ct_handing *h) {
    h->to = &ct__op_matmul;
    h->n_in = 2;
    h->in[0] = 0, h->in[1] = 1;
    return true;
}

bool bmm_hand_on(ct_handing *h) { return hand_on_to_matmul(h) && bmm_infer(&h->infer); }

void bmm_lower(ct_lower *l) { l->out[0] = matmul(l->in[0], l->in[1]); }

bool dot_infer(ct_infer *infer) {
    const ct_view *a = infer->in[0], *b = infer->in[1];
    if (a->ndim != 1 || b->ndim != 1 || a->dims[0] != b->dims[0])
        return ct_infer_fail(infer, CT_ERR_SHAPE, "takes two vectors of the same length: a is %s, b is %s",
                             ct_view_text(a), ct_view_text(b));
    return matmul_infer(infer);
}

bool dot_hand_on(ct_handing *h) { return hand_on_to_matmul(h) && dot_infer(&h->infer); }

void dot_lower(ct_lower *l) { l->out[0] = matmul(l->in[0], l->in[1]); }

bool outer_infer(ct_infer *infer) {
    const ct_view *a = infer->in[0], *b = infer->in[1];
    if (a->ndim != 1 || b->ndim != 1)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "takes two vectors: a is %s, b is %s", ct_view_text(a),
                             ct_view_text(b));
    if (!ct__infer_arithmetic(infer, 0)) return false;
    ct__infer_set(infer, 0, a->dtype, 2, (int64_t[]){a->dims[0], b->dims[0]});
    return true;
}

void outer_lower(ct_lower *l) { l->out[0] = mul(unsqueeze(l->in[0], 1), unsqueeze(l->in[1], 0)); }

bool addmm_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0], *a = infer->in[1], *b = infer->in[2];
    const addmm_attrs *attrs = infer->attrs;
    if (a->ndim != 2 || b->ndim != 2)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "takes two matrices: a is %s, b is %s", ct_view_text(a),
                             ct_view_text(b));
    if (!ct_dtype_is_float(a->dtype) &&
        (attrs->alpha != (double)(int64_t)attrs->alpha || attrs->beta != (double)(int64_t)attrs->beta))
        return ct_infer_fail(infer, CT_ERR_DTYPE,
                             "alpha %g and beta %g have to be integers for %s; convert it first with ct_cast",
                             attrs->alpha, attrs->beta, ct_view_text(a));
    ct_infer product = *infer;
    product.in = infer->in + 1;
    if (!matmul_infer(&product)) return false;
    ct_view *y = &infer->out[0];
    for (int i = 1; i <= x->ndim; i++)
        if (x->ndim > 2 || (x->dims[x->ndim - i] != 1 && x->dims[x->ndim - i] != y->dims[2 - i]))
            return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and does not broadcast to the product, %s",
                                 ct_view_text(x), ct_view_text(y));
    return true;
}

void addmm_lower(ct_lower *l) {
    const addmm_attrs *attrs = l->attrs;
    ct_tensor *y = matmul(l->in[1], l->in[2]);
    if (attrs->alpha != 1) y = mul_s(y, attrs->alpha);
    if (attrs->beta != 0) y = add(attrs->beta == 1 ? l->in[0] : mul_s(l->in[0], attrs->beta), y);
    l->out[0] = y;
}

/* ---- linear ---- */

bool linear_fused_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0], *w = infer->in[1], *bias = infer->in[2];
    if (x->ndim < 1 || w->ndim != 2 || x->dims[x->ndim - 1] != w->dims[1])
        return ct_infer_fail(infer, CT_ERR_SHAPE, "takes x [..., in] and w [out, in]: x is %s, w is %s",
                             ct_view_text(x), ct_view_text(w));
    if (bias && (bias->ndim != 1 || bias->dims[0] != w->dims[0]))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "bias is %s; for w %s it has to be [%lld]", ct_view_text(bias),
                             ct_view_text(w), (long long)w->dims[0]);
    ct__infer_like(infer, 0, x, x->dtype);
    infer->out[0].dims[x->ndim - 1] = w->dims[0];
    return true;
}

bool linear_infer(ct_infer *infer) { return linear_fused_infer(infer); }

/* Some derivatives of activations need the argument, which the fused product does not keep. */
bool linear_hand_on(ct_handing *h) {
    const linear_attrs *attrs = h->infer.attrs;
    if (h->recording && !ct__activation_by_result(attrs->activation, h->infer.in[0]->dtype)) return true;
    h->to = &ct__op_linear_fused;
    h->n_in = 3;
    for (int i = 0; i < 3; i++) h->in[i] = (signed char)i;
    *(linear_fused_attrs *)h->attrs = (linear_fused_attrs){.activation = attrs->activation};
    return linear_infer(&h->infer);
}

void linear_lower(ct_lower *l) {
    const linear_attrs *attrs = l->attrs;
    ct_tensor *x = l->in[0], *w = l->in[1], *bias = l->in[2];
    bool recorded = ct_grad_enabled() && (ct_requires_grad(x) || ct_requires_grad(w) || ct_requires_grad(bias));
    bool apart = recorded && !ct__activation_by_result(attrs->activation, ct_dtype_of(x));
    if (!apart) {
        l->out[0] = linear_fused(x, w, .bias = bias, .activation = attrs->activation);
        return;
    }
    /* The argument is kept as it is rounded: products of halves are several times as fast as those of f32. */
    l->out[0] = ct__activated(linear_fused(x, w, .bias = bias), attrs->activation);
}

void linear_fused_lower(ct_lower *l) {
    const linear_fused_attrs *attrs = l->attrs;
    ct_tensor *y = matmul(l->in[0], t(l->in[1]));
    if (l->in[2]) y = add(y, l->in[2]);
    l->out[0] = ct__activated(y, attrs->activation);
}

/* All but the last dimension as one, whether there are elements or not. */
static ct_tensor *as_rows_of(ct_tensor *x, int64_t columns) {
    int64_t rows = 1;
    for (int i = 0; i < ct_ndim(x) - 1; i++) rows *= ct_dim(x, i);
    return ct_ndim(x) == 2 ? x : reshape(x, CT_DIMS(rows, columns));
}

/* g, of which the activation has been accounted for, becomes the gradients of what is wanted. What the others need may be NULL. */
static void linear_gradients(ct_tensor *g, ct_tensor *x, ct_tensor *w, const bool *want, ct_tensor **grad) {
    ct_tensor *rows = as_rows_of(g, ct_dim(g, -1)); /* (rows, out) */
    if (want[0]) {
        ct_dims shape = ct_shape(g);
        shape.d[shape.n - 1] = ct_dim(w, 1);
        ct_tensor *dx = matmul(rows, w);
        grad[0] = shape.n == 2 ? dx : reshape(dx, shape);
    }
    if (want[1]) grad[1] = matmul(t(rows), as_rows_of(x, ct_dim(x, -1)));
    if (want[2]) {
        ct_dims axes = {.n = ct_ndim(g) - 1};
        for (int i = 0; i < axes.n; i++) axes.d[i] = i;
        grad[2] = axes.n ? sum(g, .axes = axes) : g;
    }
}

void linear_fused_saves_less(ct_saving *s) {
    if (((const linear_fused_attrs *)s->attrs)->activation == CT_ACT_NONE) s->saves.out = 0;
}

void linear_fused_vjp(ct_vjp *v) {
    const linear_fused_attrs *attrs = v->attrs;
    ct_tensor *x = v->in[0], *w = v->in[1], *y = v->out[0], *g = v->cot[0];
    if (!ct_op_kernel(&ct__op_linear_grad, ct_device_of(g).type, 0)) {
        if ((g = ct__activation_grad(v->op, g, y, attrs->activation))) linear_gradients(g, x, w, v->need, v->grad);
        return;
    }
    /* On a GPU every launch costs, so that it is one op there, whose kernel needs few. */
    const bool *need = v->need, *wide = v->wide; /* both products or none: the second makes the bias gradient as well */
    const bool weights = (!need[1] || wide[1]) && (!need[2] || wide[2]);
    const linear_grad_attrs grad_attrs = {
        .activation = attrs->activation, .wide_x = need[0] && wide[0], .wide_w = (need[1] || need[2]) && weights};
    ct_tensor *in[] = {g, attrs->activation == CT_ACT_NONE ? NULL : y, need[1] ? x : NULL, need[0] ? w : NULL};
    ct_apply_with(&ct__op_linear_grad, in, 4, &grad_attrs, v->grad, need[2] ? 3 : need[1] ? 2 : 1, need, NULL);
}

static bool same_rows(const ct_view *a, const ct_view *b) {
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim - 1; i++) same = a->dims[i] == b->dims[i];
    return same;
}

bool linear_grad_infer(ct_infer *infer) {
    const ct_view *g = infer->in[0], *y = infer->in[1], *x = infer->in[2], *w = infer->in[3];
    const linear_grad_attrs *attrs = infer->attrs;
    if (g->ndim < 1)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "g is %s; it has at least one dimension", ct_view_text(g));
    const int64_t out = g->dims[g->ndim - 1];
    if (attrs->activation == CT_ACT_NONE ? false : !y || !same_rows(y, g) || y->dims[y->ndim - 1] != out)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "for g %s y has to be the same, and is %s", ct_view_text(g),
                             y ? ct_view_text(y) : "missing");
    if ((x && !same_rows(x, g)) || (w && (w->ndim != 2 || w->dims[0] != out)) ||
        (x && w && x->dims[x->ndim - 1] != w->dims[1]))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "takes g [..., out], x [..., in] and w [out, in]: %s, %s and %s",
                             ct_view_text(g), x ? ct_view_text(x) : "none", w ? ct_view_text(w) : "none");
    const bool half = ct__dtype_is_half(g->dtype);
    const ct_dtype for_w = half && attrs->wide_w ? CT_F32 : g->dtype;
    /* Without w there is no dx, without x no dw: nobody asks for them then, and they may have any shape. */
    ct__infer_like(infer, 0, g, half && attrs->wide_x ? CT_F32 : g->dtype);
    infer->out[0].dims[g->ndim - 1] = w ? w->dims[1] : 0;
    if (infer->n_out > 1) ct__infer_set(infer, 1, for_w, 2, (int64_t[]){out, x ? x->dims[x->ndim - 1] : 0});
    if (infer->n_out > 2) ct__infer_set(infer, 2, for_w, 1, &out);
    return true;
}

void linear_grad_lower(ct_lower *l) {
    const linear_grad_attrs *attrs = l->attrs;
    ct_tensor *x = l->in[2], *w = l->in[3];
    bool want[3] = {false};
    for (int i = 0; i < l->n_out; i++) want[i] = l->want[i];
    if ((want[0] && !w) || (want[1] && !x)) {
        ct_fail(CT_ERR_VALUE, l->op->name, "%s is needed for %s", want[0] && !w ? "w" : "x",
                want[0] && !w ? "dx" : "dw");
        return;
    }
    ct_tensor *grad[3] = {NULL}, *g = l->in[0], *y = l->in[1];
    const bool half = ct__dtype_is_half(ct_dtype_of(g)),
               told = ct__activation_by_result(attrs->activation, ct_dtype_of(g));
    if (half && (attrs->wide_x || attrs->wide_w || !told)) {
        ct_tensor **operands[] = {&g, &y, &x, &w};
        for (int i = 0; i < 4; i++)
            if (*operands[i]) *operands[i] = cast(*operands[i], CT_F32);
    }
    if ((g = ct__activation_grad(l->op, g, y, attrs->activation))) linear_gradients(g, x, w, want, grad);
    for (int i = 0; i < l->n_out; i++) l->out[i] = grad[i];
}
