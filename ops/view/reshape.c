/* reshape, flatten, contiguous: x itself, a view, or as the last resort a copy. */
#include <string.h>

#include "ops/view/view.h"

#include "ops/op_impl.h"

/* The strides of x seen in another shape with as many elements; false where no strides give that order. Runs of
 * dimensions that lie evenly in memory are matched, from the last, with runs of the new shape. */
static bool view_strides(int ndim, const int64_t *dims, const int64_t *strides, int n, const int64_t *shape,
                         int64_t *out) {
    int64_t size[CT_MAX_DIMS], stride[CT_MAX_DIMS];
    int runs = 0, next = n - 1;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] == 1) continue;
        if (runs && stride[runs - 1] == dims[i] * strides[i]) {
            size[runs - 1] *= dims[i];
        } else {
            size[runs++] = dims[i];
        }
        stride[runs - 1] = strides[i];
    }
    for (int run = runs - 1; run >= 0; run--) {
        int64_t taken = 1;
        for (; next >= 0 && (taken < size[run] || shape[next] == 1); next--) {
            out[next] = taken * stride[run];
            taken *= shape[next];
        }
        if (taken != size[run]) return false;
    }
    for (; next >= 0; next--) out[next] = 1; /* only ones are left */
    return true;
}

bool reshape_view_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    const ct_dims shape = ((const reshape_view_attrs *)infer->attrs)->shape;
    ct_view *out = &infer->out[0];
    const int64_t count = ct__count(x->ndim, x->dims);
    if (!ct__infer_shape(infer, &shape, x->dtype)) return false;
    if (ct__count(shape.n, shape.d) != count)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and does not fit the shape %s", ct_view_text(x),
                             ct_dims_text(shape));
    out->offset = x->offset;
    if (count == 0) {
        const ct_dims strides = dense_strides(shape);
        for (int i = 0; i < shape.n; i++) out->strides[i] = strides.d[i];
        return true;
    }
    return view_strides(x->ndim, x->dims, x->strides, shape.n, shape.d, out->strides) ||
           ct_infer_fail(infer, CT_ERR_SHAPE, "the strides of x, %s, do not allow a view of shape %s", ct_view_text(x),
                         ct_dims_text(shape));
}

void reshape_view_vjp(ct_vjp *v) { v->grad[0] = reshape(v->cot[0], ct_shape(v->in[0])); }

/* Replaces the one -1 of shape. */
static bool resolve(const ct_view *x, ct_dims *shape) {
    const int64_t count = ct__count(x->ndim, x->dims);
    int64_t known = 1;
    int unknown = -1;
    if (shape->n > CT_MAX_DIMS)
        return ct_fail(CT_ERR_SHAPE, "reshape", "the shape %s has more than %d dimensions", ct_dims_text(*shape),
                       CT_MAX_DIMS);
    for (int i = 0; i < shape->n; i++) {
        if (shape->d[i] == -1 && unknown < 0) {
            unknown = i;
        } else if (shape->d[i] < 0) {
            return ct_fail(CT_ERR_SHAPE, "reshape", "%s is not a shape: sizes are 0 or more, and one of them may be -1",
                           ct_dims_text(*shape));
        } else if (__builtin_mul_overflow(known, shape->d[i], &known)) {
            known = 0;
        }
    }
    if (unknown >= 0) {
        if (known == 0 || count % known)
            return ct_fail(CT_ERR_SHAPE, "reshape",
                           "x is %s (%lld elements); no size in place of the -1 makes that the shape %s",
                           ct_view_text(x), (long long)count, ct_dims_text(*shape));
        shape->d[unknown] = count / known;
    }
    if ((unknown >= 0 || known != count || !known) && ct__count(shape->n, shape->d) != count)
        return ct_fail(CT_ERR_SHAPE, "reshape", "x is %s (%lld elements), the shape %s has %lld", ct_view_text(x),
                       (long long)count, ct_dims_text(*shape), (long long)ct__count(shape->n, shape->d));
    return true;
}

static bool same_dims(int ndim, const int64_t *dims, const ct_dims *shape) {
    if (ndim != shape->n) return false;
    for (int i = 0; i < ndim; i++)
        if (dims[i] != shape->d[i]) return false;
    return true;
}

_Static_assert(sizeof(reshape_attrs) == sizeof(reshape_view_attrs), "both are a shape, so one can pass for the other");

/* A view, where there is one of another shape. */
bool reshape_hand_on(ct_handing *h) {
    const ct_view *x = h->infer.in[0];
    const ct_dims *wanted = &((const reshape_attrs *)h->infer.attrs)->shape;
    ct_view *y = h->infer.out;
    if (ct__view_reshaped(x, wanted->n, wanted->d, y)) {
        h->attrs = (void *)h->infer.attrs;
    } else {
        ct_dims *shape = &((reshape_view_attrs *)h->attrs)->shape;
        *shape = *wanted;
        if (!resolve(x, shape)) return false;
        if (same_dims(x->ndim, x->dims, shape) || ct__view_count(x) == 0 ||
            !view_strides(x->ndim, x->dims, x->strides, shape->n, shape->d, y->strides))
            return true;
        ct__copy_dims(y->dims, shape->d, shape->n);
        wanted = shape;
    }
    y->dtype = x->dtype;
    y->ndim = wanted->n;
    y->offset = x->offset;
    h->to = &ct__op_reshape_view;
    h->n_in = 1;
    h->in[0] = 0;
    return true;
}

void reshape_lower(ct_lower *l) {
    ct_tensor *x = l->in[0];
    const ct_view *view = &x->view;
    ct_dims shape = ((const reshape_attrs *)l->attrs)->shape;
    int64_t unused[CT_MAX_DIMS];
    if (!resolve(view, &shape)) return;
    if (same_dims(view->ndim, view->dims, &shape)) {
        l->out[0] = x;
        return;
    }
    if (ct_numel(x) && !view_strides(view->ndim, view->dims, view->strides, shape.n, shape.d, unused)) x = clone(x);
    l->out[0] = reshape_view(x, shape);
}

void flatten_lower(ct_lower *l) {
    const flatten_attrs *at = l->attrs;
    const ct_dims dims = ct_shape(l->in[0]);
    const int rank = dims.n ? dims.n : 1;
    const int64_t start = at->start < 0 ? at->start + rank : at->start,
                  end = ct__whole(at->end < 0 ? at->end + rank : at->end);
    if (start < 0 || end >= rank || start > end) {
        ct_fail(CT_ERR_SHAPE, "flatten", "axes %lld to %g of x, which is %s: they have to exist, in this order",
                (long long)at->start, at->end, ct_tensor_text(l->in[0]));
        return;
    }
    ct_dims shape = {0};
    int64_t joined = 1;
    for (int i = 0; i < dims.n; i++) {
        if (i < start || i > end) shape.d[shape.n++] = dims.d[i];
        else joined *= dims.d[i];
        if (i == end) shape.d[shape.n++] = joined;
    }
    l->out[0] = reshape(l->in[0], dims.n ? shape : CT_DIMS(1));
}

void contiguous_lower(ct_lower *l) { l->out[0] = ct_is_contiguous(l->in[0]) ? l->in[0] : clone(l->in[0]); }
