/* index_put, take, slice_assign. */
#include "ops/view/view.h"

#include "ops/op_impl.h"

/* ---- index_put ---- */

bool flat_index_infer(ct_infer *infer) {
    const ct_dims sizes = ((const flat_index_attrs *)infer->attrs)->sizes;
    if (infer->n_in < 1 || infer->n_in != sizes.n)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "%d indices for the sizes %s", infer->n_in, ct_dims_text(sizes));
    if (ct__count(sizes.n, sizes.d) < 0)
        return ct_infer_fail(infer, CT_ERR_VALUE, "sizes is %s: one is negative, or there are too many places to count",
                             ct_dims_text(sizes));
    ct__infer_like(infer, 0, infer->in[0], CT_I64);
    for (int k = 1; k < infer->n_in; k++) {
        bool same = infer->in[k]->ndim == infer->in[0]->ndim;
        for (int i = 0; same && i < infer->in[0]->ndim; i++) same = infer->in[k]->dims[i] == infer->in[0]->dims[i];
        if (!same)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "indices[%d] is %s and indices[0] %s", k,
                                 ct_view_text(infer->in[k]), ct_view_text(infer->in[0]));
    }
    return true;
}

void flat_index_lower(ct_lower *l) {
    const ct_dims sizes = ((const flat_index_attrs *)l->attrs)->sizes;
    ct_tensor *place = NULL;
    for (int k = 0; k < l->n_in; k++) {
        ct_tensor *index = check_range(cast(l->in[k], CT_I64), 0, (double)(sizes.d[k] - 1), "flat_index", .argument = k,
                                       .index = true);
        place = place ? add(mul_s(place, (double)sizes.d[k]), index) : index;
    }
    l->out[0] = place;
}

static bool broadcasts_to(const ct_tensor *x, ct_dims shape) {
    const int more = shape.n - ct_ndim(x);
    for (int i = 0; i < ct_ndim(x); i++)
        if (more < 0 || (ct_dim(x, i) != 1 && ct_dim(x, i) != shape.d[more + i])) return false;
    return true;
}

/* The indexed axes become one, the indices one vector of places in it. */
void index_put_lower(ct_lower *l) {
    const index_put_attrs *at = l->attrs;
    ct_tensor *x = l->in[0], *values = l->in[1];
    const ct_dims shape = ct_shape(x);
    const int n = l->n_in - 2;
    if (n < 1 || n > shape.n) {
        ct_fail(CT_ERR_SHAPE, "index_put", "x is %s and there are %d indices: 1 to %d are expected", ct_tensor_text(x),
                n, shape.n);
        return;
    }
    if (at->accumulate && !ct__has_numbers(x, "index_put", "x")) return;
    const ct_dims places = ct_shape(l->in[2]);
    const int64_t count = ct_numel(l->in[2]);
    ct_dims sizes = {.n = n}, rows = {.n = 1, .d = {1}}, spread = places, put = {.n = 1, .d = {count}};
    for (int i = 0; i < shape.n; i++) {
        if (i < n) {
            sizes.d[i] = shape.d[i];
            rows.d[0] *= shape.d[i];
            continue;
        }
        rows.d[rows.n++] = put.d[put.n++] = shape.d[i];
        if (spread.n < CT_MAX_LIST) spread.d[spread.n++] = shape.d[i];
    }
    if (spread.n > CT_MAX_DIMS) {
        ct_fail(CT_ERR_SHAPE, "index_put", "x is %s and the indices %s: what they name has more than %d dimensions",
                ct_tensor_text(x), ct_dims_text(places), CT_MAX_DIMS);
        return;
    }
    if (!broadcasts_to(values, spread)) {
        ct_fail(CT_ERR_SHAPE, "index_put", "values is %s and does not broadcast to what the indices name in x, %s",
                ct_tensor_text(values), ct_dims_text(spread));
        return;
    }
    ct_tensor *place = reshape(flat_index(sizes, l->in + 2, n), CT_DIMS(count));
    if (ct_dtype_of(values) != ct_dtype_of(x)) values = cast(values, ct_dtype_of(x));
    values = reshape(expand(values, spread), put);
    ct_tensor *flat = reshape(x, rows),
              *y = at->accumulate ? index_add(flat, 0, place, values) : index_copy(flat, 0, place, values);
    l->out[0] = reshape(y, shape);
}

/* ---- take ---- */

bool take_infer(ct_infer *infer) {
    ct__infer_like(infer, 0, infer->in[1], infer->in[0]->dtype);
    return true;
}

void take_vjp(ct_vjp *v) {
    const ct_dims shape = ct_shape(v->in[0]);
    if (!v->need[0]) return;
    const ct_dims flat = CT_DIMS(ct_numel(v->in[0]));
    v->grad[0] = reshape(gather_grad(flatten(v->cot[0]), flatten(v->in[1]), flat, 0), shape);
}

void take_lower(ct_lower *l) {
    l->out[0] = reshape(gather(flatten(l->in[0]), 0, flatten(l->in[1])), ct_shape(l->in[1]));
}

/* ---- slice_assign ---- */

bool slice_put_infer(ct_infer *infer) {
    const slice_put_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0], *src = infer->in[1];
    int axis;
    if (x->ndim == 0) return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; a scalar has no slices", ct_view_text(x));
    if (!ct__infer_axis(infer, at->axis, x->ndim, &axis)) return false;
    bool fits = src->ndim == x->ndim && src->dtype == x->dtype;
    for (int i = 0; fits && i < x->ndim; i++) fits = i == axis || src->dims[i] == x->dims[i];
    const int64_t size = x->dims[axis];
    if (!fits || at->start < 0 || at->start > size || at->step < 1 || at->step > (size > 1 ? size : 1) ||
        (src->dims[axis] && ct__add(at->start, ct__mul(src->dims[axis] - 1, at->step)) >= x->dims[axis]))
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "src is %s and does not fit, from %lld on and %lld apart, into axis %d of x, which is %s",
                             ct_view_text(src), (long long)at->start, (long long)at->step, axis, ct_view_text(x));
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

void slice_put_vjp(ct_vjp *v) {
    const slice_put_attrs *at = v->attrs;
    ct_tensor *g = v->cot[0];
    const ct_dims shape = ct_shape(v->in[1]);
    if (v->need[0])
        v->grad[0] = slice_put(g, expand(ct_scalar(0, ct_dtype_of(g)), shape), at->axis, at->start, at->step);
    if (v->need[1]) v->grad[1] = slice_view(g, at->axis, at->start, ct_dim(v->in[1], (int)at->axis), at->step);
}

void slice_assign_lower(ct_lower *l) {
    const slice_assign_attrs *at = l->attrs;
    ct_tensor *x = l->in[0], *src = l->in[1];
    ct_range r;
    if (!ct__slice_range("slice_assign", x, at->axis, at->start, at->stop, at->step, &r)) return;
    ct_dims shape = ct_shape(x);
    shape.d[r.axis] = r.length;
    if (!broadcasts_to(src, shape)) {
        ct_fail(CT_ERR_SHAPE, "slice_assign", "src is %s and does not broadcast to the slice of x, %s",
                ct_tensor_text(src), ct_dims_text(shape));
        return;
    }
    if (ct_dtype_of(src) != ct_dtype_of(x)) src = cast(src, ct_dtype_of(x));
    src = expand(src, shape);
    if (r.backwards) src = flip(src, CT_DIMS(r.axis));
    l->out[0] = slice_put(x, src, r.axis, r.first, r.step);
}
