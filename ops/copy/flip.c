/* flip, roll, rot90, tril, triu. Each is linear, and its gradient is one of its kind. */
#include "ops/op_impl.h"

/* ---- flip ---- */

bool flip_infer(ct_infer *infer) {
    const ct_dims axes = ((const flip_attrs *)infer->attrs)->axes;
    unsigned mask;
    if (axes.n && !ct__infer_axes(infer, &axes, infer->in[0]->ndim, &mask)) return false;
    ct__infer_like(infer, 0, infer->in[0], infer->in[0]->dtype);
    return true;
}

void flip_lower(ct_lower *l) {
    const ct_dims axes = ((const flip_attrs *)l->attrs)->axes;
    ct_tensor *y = l->in[0];
    for (int i = 0; i < axes.n && ct_ndim(y); i++) {
        const int axis = ct__axis(axes.d[i], ct_ndim(y));
        const double last = (double)ct_dim(y, axis) - 1;
        if (last > 0) y = index_select(y, axis, arange(last, -1, -1, .dtype = CT_I64));
    }
    l->out[0] = y == l->in[0] ? clone(y) : y;
}

void flip_vjp(ct_vjp *v) { v->grad[0] = flip(v->cot[0], ((const flip_attrs *)v->attrs)->axes); }

/* ---- roll ---- */

bool roll_axes_infer(ct_infer *infer) {
    const ct_dims shifts = ((const roll_axes_attrs *)infer->attrs)->shifts;
    const ct_view *x = infer->in[0];
    if (shifts.n != x->ndim)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and shifts %s: one for each axis is expected",
                             ct_view_text(x), ct_dims_text(shifts));
    for (int i = 0; i < x->ndim; i++)
        if (shifts.d[i] < 0 || shifts.d[i] > x->dims[i])
            return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and shifts %s: larger than the axis", ct_view_text(x),
                                 ct_dims_text(shifts));
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

void roll_axes_lower(ct_lower *l) {
    const ct_dims shifts = ((const roll_axes_attrs *)l->attrs)->shifts;
    ct_tensor *y = l->in[0];
    for (int i = 0; i < shifts.n; i++) {
        const int64_t shift = shifts.d[i], stays = ct_dim(y, i) - shift;
        if (shift && stays) y = cat(((ct_tensor *[]){narrow(y, i, stays, shift), narrow(y, i, 0, stays)}), 2, i);
    }
    l->out[0] = y == l->in[0] ? clone(y) : y;
}

void roll_axes_vjp(ct_vjp *v) {
    const ct_dims shape = ct_shape(v->in[0]);
    ct_dims back = ((const roll_axes_attrs *)v->attrs)->shifts;
    for (int i = 0; i < back.n; i++) back.d[i] = shape.d[i] - back.d[i];
    v->grad[0] = roll_axes(v->cot[0], back);
}

void roll_lower(ct_lower *l) {
    const roll_attrs *at = l->attrs;
    ct_tensor *x = at->axes.n ? l->in[0] : flatten(l->in[0]);
    const ct_dims shape = ct_shape(x);
    ct_dims shifts = {.n = shape.n};
    if (at->axes.n ? at->axes.n != at->shifts.n : at->shifts.n != 1) {
        ct_fail(CT_ERR_SHAPE, "roll", "shifts is %s and axes %s: one shift for each axis, or one without axes",
                ct_dims_text(at->shifts), ct_dims_text(at->axes));
        return;
    }
    for (int i = 0; i < at->shifts.n; i++) {
        const int64_t wanted = at->axes.n ? at->axes.d[i] : 0;
        if (wanted < -shape.n || wanted >= shape.n) {
            ct_fail(CT_ERR_SHAPE, "roll", "axis %lld is out of range for %s, which has %d dimensions",
                    (long long)wanted, ct_tensor_text(x), shape.n);
            return;
        }
        const int axis = ct__axis(wanted, shape.n);
        const int64_t size = shape.d[axis];
        if (size) shifts.d[axis] = ((shifts.d[axis] + at->shifts.d[i] % size) % size + size) % size;
    }
    ct_tensor *y = roll_axes(x, shifts);
    l->out[0] = at->axes.n ? y : reshape(y, ct_shape(l->in[0]));
}

/* ---- rot90 ---- */

void rot90_lower(ct_lower *l) {
    const rot90_attrs *at = l->attrs;
    ct_tensor *x = l->in[0];
    const int ndim = ct_ndim(x);
    const ct_dims axes = at->axes.n ? at->axes : CT_DIMS(0, 1);
    bool fits = axes.n == 2 && ndim >= 2;
    for (int i = 0; fits && i < 2; i++) fits = axes.d[i] >= -ndim && axes.d[i] < ndim;
    if (!fits || ct__axis(axes.d[0], ndim) == ct__axis(axes.d[1], ndim)) {
        ct_fail(CT_ERR_SHAPE, "rot90", "axes is %s and x %s: two different axes of x are expected", ct_dims_text(axes),
                ct_tensor_text(x));
        return;
    }
    const int64_t a = axes.d[0], b = axes.d[1];
    switch (((at->k % 4) + 4) % 4) {
    case 0: l->out[0] = clone(x); break;
    case 1: l->out[0] = transpose(flip(x, CT_DIMS(b)), a, b); break;
    case 2: l->out[0] = flip(x, CT_DIMS(a, b)); break;
    default: l->out[0] = flip(transpose(x, a, b), CT_DIMS(b)); break;
    }
}

/* ---- Triangles ---- */

static bool triangle_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    if (x->ndim < 2)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; a matrix or a batch of them is expected", ct_view_text(x));
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

bool tril_infer(ct_infer *infer) { return triangle_infer(infer); }
bool triu_infer(ct_infer *infer) { return triangle_infer(infer); }
/* x where the mask of the matrix is as it should be, zeros elsewhere. The mask with a diagonal that any number can be. */
static ct_tensor *triangle(ct_tensor *x, int64_t diagonal, bool upper) {
    const int64_t n = ct_dim(x, -2), m = ct_dim(x, -1);
    if (n == 0 || m == 0) return clone(x);
    ct_tensor *mask = tril_mask(n, .m = m, .diagonal = upper ? ct__sub(diagonal, 1) : diagonal);
    return where(upper ? logical_not(mask) : mask, x, ct_scalar(0, ct_dtype_of(x)));
}
void tril_lower(ct_lower *l) { l->out[0] = triangle(l->in[0], ((const tril_attrs *)l->attrs)->diagonal, false); }
void triu_lower(ct_lower *l) { l->out[0] = triangle(l->in[0], ((const triu_attrs *)l->attrs)->diagonal, true); }

void tril_vjp(ct_vjp *v) { v->grad[0] = tril(v->cot[0], .diagonal = ((const tril_attrs *)v->attrs)->diagonal); }
void triu_vjp(ct_vjp *v) { v->grad[0] = triu(v->cot[0], .diagonal = ((const triu_attrs *)v->attrs)->diagonal); }
