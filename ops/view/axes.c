/* Views that rearrange axes: expand, permute, transpose, t, movedim, squeeze, unsqueeze. infer computes strides; the
 * gradient of each is the opposite rearrangement. */
#include "ops/view/view.h"

#include "ops/op_impl.h"

/* ---- expand ---- */

bool expand_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    const ct_dims shape = ((const expand_attrs *)infer->attrs)->shape;
    ct_view *out = &infer->out[0];
    const int lead = shape.n - x->ndim;
    if (lead < 0 || shape.n > CT_MAX_DIMS)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "x is %s and cannot be expanded to %s: the shape has to have %d to %d dimensions",
                             ct_view_text(x), ct_dims_text(shape), x->ndim, CT_MAX_DIMS);
    out->dtype = x->dtype;
    out->offset = x->offset;
    out->ndim = shape.n;
    for (int i = 0; i < shape.n; i++) {
        const int64_t size = i < lead ? 1 : x->dims[i - lead],
                      wanted = shape.d[i] == -1 && i >= lead ? size : shape.d[i];
        if (wanted < 0 || (size != wanted && size != 1))
            return ct_infer_fail(infer, CT_ERR_SHAPE,
                                 "x is %s and cannot be expanded to %s: dimension %d is %lld, not 1 or %lld",
                                 ct_view_text(x), ct_dims_text(shape), i, (long long)size, (long long)wanted);
        out->dims[i] = wanted;
        out->strides[i] = i < lead || size != wanted ? 0 : x->strides[i - lead];
    }
    return true;
}

void expand_vjp(ct_vjp *v) {
    const ct_dims shape = ct_shape(v->in[0]), wide = ct_shape(v->cot[0]);
    const int lead = wide.n - shape.n;
    ct_dims repeated = {0};
    for (int i = 0; i < wide.n; i++)
        if (i < lead || shape.d[i - lead] != wide.d[i]) repeated.d[repeated.n++] = i;
    ct_tensor *g = v->cot[0];
    if (repeated.n) g = sum(g, .axes = repeated, .keepdim = true);
    v->grad[0] = lead ? reshape(g, shape) : g;
}

/* ---- permute, transpose, t ---- */

bool permute_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    const ct_dims axes = ((const permute_attrs *)infer->attrs)->axes;
    unsigned seen = 0;
    if (axes.n != x->ndim)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and axes is %s: every axis has to be named once",
                             ct_view_text(x), ct_dims_text(axes));
    view_keep(&infer->out[0], x);
    for (int i = 0; i < axes.n; i++) {
        int axis;
        if (!ct__infer_axis(infer, axes.d[i], x->ndim, &axis)) return false;
        if (seen >> axis & 1)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "axes is %s: axis %d is there twice", ct_dims_text(axes), axis);
        seen |= 1u << axis;
        infer->out[0].dims[i] = x->dims[axis];
        infer->out[0].strides[i] = x->strides[axis];
    }
    return true;
}

void permute_vjp(ct_vjp *v) {
    const ct_dims axes = ((const permute_attrs *)v->attrs)->axes;
    ct_dims back = {.n = axes.n};
    for (int i = 0; i < axes.n; i++) back.d[ct__axis(axes.d[i], axes.n)] = i;
    v->grad[0] = permute(v->cot[0], back);
}

static void exchange(ct_view *view, int a, int b) {
    const int64_t size = view->dims[a], stride = view->strides[a];
    view->dims[a] = view->dims[b];
    view->strides[a] = view->strides[b];
    view->dims[b] = size;
    view->strides[b] = stride;
}

bool transpose_infer(ct_infer *infer) {
    const transpose_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    int a, b;
    if (!ct__infer_axis(infer, at->a, x->ndim, &a) || !ct__infer_axis(infer, at->b, x->ndim, &b)) return false;
    view_keep(&infer->out[0], x);
    if (x->ndim) exchange(&infer->out[0], a, b);
    return true;
}

void transpose_vjp(ct_vjp *v) {
    const transpose_attrs *at = v->attrs;
    v->grad[0] = transpose(v->cot[0], at->a, at->b);
}

bool t_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    if (x->ndim > 2)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "x is %s; t takes a matrix. For more dimensions say which: ct_transpose(x, -2, -1)",
                             ct_view_text(x));
    view_keep(&infer->out[0], x);
    if (x->ndim == 2) exchange(&infer->out[0], 0, 1);
    return true;
}

void t_vjp(ct_vjp *v) { v->grad[0] = t(v->cot[0]); }

/* ---- movedim ---- */

bool movedim_infer(ct_infer *infer) {
    const movedim_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    ct_view *out = &infer->out[0];
    unsigned from = 0, to = 0;
    int place[CT_MAX_DIMS]; /* place[i]: which axis of x stands at i */
    if (at->source.n != at->destination.n || at->source.n > CT_MAX_DIMS)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "source is %s and destination %s: they have to be of one length",
                             ct_dims_text(at->source), ct_dims_text(at->destination));
    for (int i = 0; i < at->source.n; i++) {
        int a, b;
        if (!ct__infer_axis(infer, at->source.d[i], x->ndim, &a) ||
            !ct__infer_axis(infer, at->destination.d[i], x->ndim, &b))
            return false;
        if (from >> a & 1 || to >> b & 1)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "source is %s and destination %s: an axis is there twice",
                                 ct_dims_text(at->source), ct_dims_text(at->destination));
        from |= 1u << a;
        to |= 1u << b;
        place[b] = a;
    }
    view_keep(out, x);
    for (int i = 0, next = 0; i < x->ndim; i++) {
        if (!(to >> i & 1)) {
            while (from >> next & 1) next++;
            place[i] = next++;
        }
        out->dims[i] = x->dims[place[i]];
        out->strides[i] = x->strides[place[i]];
    }
    return true;
}

void movedim_vjp(ct_vjp *v) {
    const movedim_attrs *at = v->attrs;
    v->grad[0] = movedim(v->cot[0], at->destination, at->source);
}

/* ---- squeeze, unsqueeze ---- */

bool squeeze_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    ct_view *out = &infer->out[0];
    unsigned mask;
    if (!ct__infer_axes(infer, &((const squeeze_attrs *)infer->attrs)->axes, x->ndim, &mask)) return false;
    out->dtype = x->dtype;
    out->offset = x->offset;
    out->ndim = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (x->dims[i] == 1 && mask >> i & 1) continue;
        out->dims[out->ndim] = x->dims[i];
        out->strides[out->ndim++] = x->strides[i];
    }
    return true;
}

void squeeze_vjp(ct_vjp *v) { v->grad[0] = reshape(v->cot[0], ct_shape(v->in[0])); }

bool unsqueeze_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    ct_view *out = &infer->out[0];
    const int64_t wanted = ((const unsqueeze_attrs *)infer->attrs)->axis;
    if (x->ndim == CT_MAX_DIMS)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and has %d dimensions already, the most there can be",
                             ct_view_text(x), CT_MAX_DIMS);
    if (wanted < -(x->ndim + 1) || wanted > x->ndim)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "axis %lld is out of range: x is %s, so a new axis goes to %d to %d",
                             (long long)wanted, ct_view_text(x), -(x->ndim + 1), x->ndim);
    const int axis = (int)(wanted < 0 ? wanted + x->ndim + 1 : wanted);
    out->dtype = x->dtype;
    out->offset = x->offset;
    out->ndim = x->ndim + 1;
    for (int i = 0; i < out->ndim; i++) {
        const int from = i - (i > axis);
        out->dims[i] = i == axis ? 1 : x->dims[from];
        out->strides[i] = i == axis ? (axis < x->ndim ? x->dims[axis] * x->strides[axis] : 1) : x->strides[from];
    }
    return true;
}

void unsqueeze_vjp(ct_vjp *v) { v->grad[0] = reshape(v->cot[0], ct_shape(v->in[0])); }
