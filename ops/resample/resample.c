/* interpolate: the arguments, and its meaning as one sparse matrix an axis. */
#include "ops/resample/resample.h"

#include "ops/resample/taps.h"

#include "ops/op_impl.h"

/* ---- A matrix along an axis ---- */

ct_tensor *ct__along_axis(ct_tensor *x, int axis, ct_tensor *matrix, bool transposed) {
    ct_tensor *m = cast(matrix, ct_dtype_of(x));
    return movedim(matmul(movedim(x, CT_DIMS(axis), CT_DIMS(-1)), transposed ? m : t(m)), CT_DIMS(-1), CT_DIMS(axis));
}

/* ---- resample_axis ---- */

static bool infer_axis(ct_infer *infer, int64_t along, int64_t size, int64_t from, int64_t to) {
    const ct_view *x = infer->in[0];
    int axis;
    if (!ct__infer_axis(infer, along, x->ndim, &axis)) return false;
    if (from < 1 || to < 1 || x->ndim == 0)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "an axis of %lld elements cannot be resampled to %lld: x is %s",
                             (long long)from, (long long)to, ct_view_text(x));
    ct__infer_like(infer, 0, x, x->dtype);
    infer->out[0].dims[axis] = size;
    return true;
}

static int64_t length_at(const ct_view *x, int64_t axis) {
    int64_t at = axis < 0 ? axis + x->ndim : axis;
    return at >= 0 && at < x->ndim ? x->dims[at] : 1;
}

bool resample_axis_infer(ct_infer *infer) {
    const resample_axis_attrs *a = infer->attrs;
    return infer_axis(infer, a->axis, a->size, length_at(infer->in[0], a->axis), a->size);
}

bool resample_axis_grad_infer(ct_infer *infer) {
    const resample_axis_grad_attrs *a = infer->attrs;
    return infer_axis(infer, a->axis, a->size, a->size, length_at(infer->in[0], a->axis));
}

/* The matrix [out, in] of ct__taps_at, in ops: i are the elements [in], o the results [out, 1]. */

/* weight where the column is the tap's element, which is kept within the line; else 0. */
static ct_tensor *tap(const ct_taps *t, ct_tensor *i, ct_tensor *element, ct_tensor *weight) {
    element = clamp(element, .min = CT_SET(0), .max = CT_SET(t->in - 1));
    return mul(cast(eq(i, element), CT_F64), weight);
}

/* The cubic convolution kernel of Keys with a = -3/4: near for distances up to 1, far up to 2. */
static ct_tensor *cubic_near(ct_tensor *x) {
    const double a = -0.75;
    return add_s(mul(mul(add_s(mul_s(x, a + 2), -(a + 3)), x), x), 1);
}
static ct_tensor *cubic_far(ct_tensor *x) {
    const double a = -0.75;
    return add_s(mul(add_s(mul(add_s(mul_s(x, a), -5 * a), x), 8 * a), x), -4 * a);
}

static ct_tensor *matrix_f64(const ct_taps *t) {
    ct_tensor *i = cast(ct__counted(t->in), CT_F64), *whole = unsqueeze(ct__counted(t->out), 1);
    ct_tensor *o = cast(whole, CT_F64), *one = ones(CT_DIMS0, .dtype = CT_F64);
    const double n = (double)t->in, m = (double)t->out;
    if (t->mode == CT_AREA) {
        ct_tensor *first = floor_div_s(mul_s(whole, n), m);
        ct_tensor *end = floor_div_s(add_s(mul_s(add_s(whole, 1), n), m - 1), m);
        ct_tensor *inside = logical_and(ge(i, cast(first, CT_F64)), lt(i, cast(end, CT_F64)));
        return div(cast(inside, CT_F64), cast(sub(end, first), CT_F64));
    }
    if (t->mode == CT_NEAREST && t->step == n / m) return tap(t, i, cast(floor_div_s(mul_s(whole, n), m), CT_F64), one);
    if (t->mode == CT_NEAREST) return tap(t, i, ct_floor(mul_s(o, t->step)), one);
    if (t->mode == CT_NEAREST_EXACT) return tap(t, i, ct_floor(mul_s(add_s(o, 0.5), t->step)), one);
    ct_tensor *at = add_s(mul_s(add_s(o, 0.5), t->step), -0.5);
    if (t->align_corners) at = t->out > 1 ? div_s(mul_s(o, n - 1), m - 1) : mul_s(o, 0);
    if (t->mode == CT_BICUBIC) {
        ct_tensor *low = ct_floor(at), *f = sub(at, low), *rest = add_s(neg(f), 1);
        ct_tensor *outer = ct_add(tap(t, i, add_s(low, -1), cubic_far(add_s(f, 1))),
                                  tap(t, i, add_s(low, 2), cubic_far(add_s(rest, 1))));
        return ct_add(outer, ct_add(tap(t, i, low, cubic_near(f)), tap(t, i, add_s(low, 1), cubic_near(rest))));
    }
    at = clamp(at, .min = CT_SET(0), .max = CT_SET(n - 1));
    ct_tensor *low = ct_floor(at), *part = sub(at, low);
    return ct_add(tap(t, i, low, add_s(neg(part), 1)), tap(t, i, add_s(low, 1), part));
}

static ct_tensor *matrix_of(const ct_taps *t, const ct_tensor *x) {
    const ct_device device = ct__table_begin();
    return ct__table_end(device, matrix_f64(t), ct_dtype_of(x));
}

void resample_axis_lower(ct_lower *l) {
    const resample_axis_attrs *a = l->attrs;
    int axis = ct__axis(a->axis, ct_ndim(l->in[0]));
    ct_taps taps = ct__taps(a->mode, ct_dim(l->in[0], axis), a->size, a->align_corners, a->scale);
    l->out[0] = ct__along_axis(l->in[0], axis, matrix_of(&taps, l->in[0]), false);
}

void resample_axis_grad_lower(ct_lower *l) {
    const resample_axis_grad_attrs *a = l->attrs;
    int axis = ct__axis(a->axis, ct_ndim(l->in[0]));
    ct_taps taps = ct__taps(a->mode, a->size, ct_dim(l->in[0], axis), a->align_corners, a->scale);
    l->out[0] = ct__along_axis(l->in[0], axis, matrix_of(&taps, l->in[0]), true);
}

/* Linear: each is the other's gradient. */
void resample_axis_vjp(ct_vjp *v) {
    const resample_axis_attrs *a = v->attrs;
    int axis = ct__axis(a->axis, ct_ndim(v->in[0]));
    v->grad[0] = resample_axis_grad(v->cot[0], axis, ct_dim(v->in[0], axis), a->mode, .align_corners = a->align_corners,
                                    .scale = a->scale);
}

void resample_axis_grad_vjp(ct_vjp *v) {
    const resample_axis_grad_attrs *a = v->attrs;
    int axis = ct__axis(a->axis, ct_ndim(v->in[0]));
    v->grad[0] = resample_axis(v->cot[0], axis, ct_dim(v->in[0], axis), a->mode, .align_corners = a->align_corners,
                               .scale = a->scale);
}

/* ---- interpolate ---- */

/* The length that an axis of n elements gets. */
static int64_t resized(int64_t n, const ct_dims *size, double scale, int i) {
    return size->n ? size->d[size->n == 1 ? 0 : i] : ct__whole((double)n * scale);
}

static bool infer_resized(ct_infer *infer, const ct_dims *size, double scale, bool channels_last) {
    const ct_view *x = infer->in[0];
    int spatial = x->ndim - 2, first = channels_last ? 1 : 2;
    if (spatial < 1 || spatial > 3)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to have 3, 4 or 5 dimensions, %s", ct_view_text(x),
                             channels_last ? "[N,...,C]" : "[N,C,...]");
    if ((size->n != 0) == (scale != 0))
        return ct_infer_fail(infer, CT_ERR_VALUE, "%s; give one of them",
                             size->n ? "both output_size and scale are given"
                                     : "neither output_size nor scale is given");
    if (size->n > 1 && size->n != spatial)
        return ct_infer_fail(infer, CT_ERR_VALUE, "output_size is %s, but x, %s, has %d spatial axes",
                             ct_dims_text(*size), ct_view_text(x), spatial);
    if (!(scale >= 0 && scale < 1e9))
        return ct_infer_fail(infer, CT_ERR_VALUE, "scale is %g; it has to be positive", scale);
    ct__infer_like(infer, 0, x, x->dtype);
    for (int i = 0; i < spatial; i++) {
        int64_t n = x->dims[first + i], to = resized(n, size, scale, i);
        if (n < 1 || to < 1)
            return ct_infer_fail(infer, CT_ERR_SHAPE,
                                 "axis %d would go from %lld to %lld elements; x is %s and lengths have to be positive",
                                 first + i, (long long)n, (long long)to, ct_view_text(x));
        infer->out[0].dims[first + i] = to;
    }
    return true;
}

bool interpolate_infer(ct_infer *infer) {
    static const char *const names[] = {"nearest", "linear", "bilinear", "trilinear", "bicubic", "area"};
    static const int axes[] = {0, 1, 2, 3, 2, 0, 0};
    const interpolate_attrs *a = infer->attrs;
    if (!infer_resized(infer, &a->output_size, a->scale, a->channels_last)) return false;
    int spatial = infer->in[0]->ndim - 2;
    if (axes[a->mode] && axes[a->mode] != spatial)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "mode %s is for %d spatial axes; x is %s and has %d", names[a->mode],
                             axes[a->mode], ct_view_text(infer->in[0]), spatial);
    if (a->align_corners && !axes[a->mode])
        return ct_infer_fail(infer, CT_ERR_VALUE,
                             "align_corners is for the modes linear, bilinear, trilinear and bicubic");
    return true;
}

bool upsample_nearest_infer(ct_infer *infer) {
    const upsample_nearest_attrs *a = infer->attrs;
    return infer_resized(infer, &a->output_size, a->scale, a->channels_last);
}

/* Axis after axis; where the result grows the contiguous axis comes first, while there are fewer lines of it. */
static ct_tensor *resize(ct_tensor *x, const ct_dims *size, double scale, int mode, bool align, bool channels_last) {
    int spatial = ct_ndim(x) - 2, first = channels_last ? 1 : 2;
    bool grows = resized(ct_dim(x, first), size, scale, 0) >= ct_dim(x, first);
    for (int k = 0; k < spatial && x; k++) {
        int i = grows ? spatial - 1 - k : k;
        int64_t n = ct_dim(x, first + i), to = resized(n, size, scale, i);
        if (n == to && (align || size->n || mode == CT_AREA)) continue; /* the identity */
        x = resample_axis(x, first + i, to, mode, .align_corners = align, .scale = mode == CT_AREA ? 0 : scale);
    }
    return x;
}

void interpolate_lower(ct_lower *l) {
    const interpolate_attrs *a = l->attrs;
    l->out[0] = resize(l->in[0], &a->output_size, a->scale, a->mode, a->align_corners, a->channels_last);
}

void upsample_nearest_lower(ct_lower *l) {
    const upsample_nearest_attrs *a = l->attrs;
    l->out[0] = resize(l->in[0], &a->output_size, a->scale, CT_NEAREST, false, a->channels_last);
}
