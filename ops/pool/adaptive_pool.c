/* adaptive_avg_pool, adaptive_max_pool and max_unpool, 1d to 3d, in other ops. */
#include "ops/pool/pool.h"

#include "ops/op_impl.h"

static int64_t size_at(const ct_dims *list, int i) { return list->d[list->n == 1 ? 0 : i]; }

static bool infer_adaptive(ct_infer *infer, int rank, const ct_dims *to, bool channels_last) {
    const ct_view *x = infer->in[0];
    const int first = ct__image_spatial(channels_last);
    if (x->ndim != rank + 2)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to have %d dimensions, %s", ct_view_text(x),
                             rank + 2, channels_last ? "[N,...,C]" : "[N,C,...]");
    if (to->n != 1 && to->n != rank)
        return ct_infer_fail(infer, CT_ERR_VALUE,
                             "output_size is %s; it takes 1 number or one for each of the %d spatial axes",
                             ct_dims_text(*to), rank);
    for (int k = 0; k < infer->n_out; k++) ct__infer_like(infer, k, x, k ? CT_I64 : x->dtype);
    for (int i = 0; i < rank; i++) {
        if (size_at(to, i) < 1)
            return ct_infer_fail(infer, CT_ERR_VALUE, "output_size is %s; it has to be positive", ct_dims_text(*to));
        if (size_at(to, i) > INT32_MAX)
            return ct_infer_fail(infer, CT_ERR_VALUE, "output_size is %s; it has to be below 2^31", ct_dims_text(*to));
        if (x->dims[first + i] < 1)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; there is nothing to pool", ct_view_text(x));
        for (int k = 0; k < infer->n_out; k++) infer->out[k].dims[first + i] = size_at(to, i);
    }
    return true;
}

/* What an adaptive pooling is: windows of one size side by side (even), or one window (whole), or neither. */
typedef struct adaptive {
    ct_dims in, out, kernel, none, ones, axes;
    double taps; /* of a window */
    bool even, whole;
} adaptive;

static adaptive plan(ct_tensor *x, int rank, const ct_dims *to, bool channels_last) {
    adaptive p = {.taps = 1, .even = true, .whole = true};
    p.in.n = p.out.n = p.kernel.n = p.ones.n = p.axes.n = rank;
    p.none.n = 2 * rank;
    for (int i = 0; i < rank; i++) {
        p.axes.d[i] = ct__image_spatial(channels_last) + i;
        p.in.d[i] = ct_dim(x, (int)p.axes.d[i]);
        p.out.d[i] = size_at(to, i);
        p.kernel.d[i] = p.in.d[i] / p.out.d[i];
        p.taps *= (double)p.kernel.d[i];
        p.ones.d[i] = 1;
        p.even = p.even && p.in.d[i] % p.out.d[i] == 0;
        p.whole = p.whole && p.out.d[i] == 1;
    }
    return p;
}

static ct_tensor *adaptive_means(ct_tensor *x, int rank, const ct_dims *to, bool channels_last) {
    const adaptive p = plan(x, rank, to, channels_last);
    /* small planes of halves are pooled as they are, without a copy in f32 */
    const bool small = p.taps <= 256 && (ct_dtype_of(x) == CT_F16 || ct_dtype_of(x) == CT_BF16);
    if (p.whole && !small) return mean(x, .axes = p.axes, .keepdim = true);
    if (p.even) return avg_pool_nd(x, p.in, p.kernel, p.kernel, p.none, .channels_last = channels_last);
    return interpolate(x, .output_size = p.out, .mode = CT_AREA, .channels_last = channels_last);
}

/* The i-th of m windows over n elements. */
static int64_t start_of(int64_t i, int64_t n, int64_t m) { return i * n / m; }
static int64_t end_of(int64_t i, int64_t n, int64_t m) { return ((i + 1) * n + m - 1) / m; }

/* Windows of the longest one's size, whose missing taps repeat the last one and so never win. */
static void adaptive_maxima(ct_lower *l, int rank, const ct_dims *to, bool channels_last) {
    ct_tensor *x = l->in[0], *taps = NULL, *tables[3], *starts[3];
    const adaptive p = plan(x, rank, to, channels_last);
    const bool wants_places = l->n_out > 1 && l->want[1];
    if (p.whole) {
        const ct_dims shape = ct_shape(x);
        ct_dims small = shape, flat = {.n = 3, .d = {shape.d[0], shape.d[1], 1}};
        const int axis = channels_last ? 1 : 2;
        if (channels_last) flat.d[1] = 1, flat.d[2] = shape.d[rank + 1];
        for (int i = 0; i < rank; i++) flat.d[axis] *= p.in.d[i], small.d[p.axes.d[i]] = 1;
        ct_tensor *y = max(reshape(x, flat), axis, .indices = wants_places ? &taps : NULL);
        l->out[0] = reshape(y, small);
        if (wants_places) l->out[1] = reshape(taps, small);
        return;
    }
    if (p.even) {
        ct_tensor *y = NULL;
        if (rank == 1)
            y = max_pool1d(x, p.kernel, .channels_last = channels_last, .indices = wants_places ? &taps : NULL);
        if (rank == 2)
            y = max_pool2d(x, p.kernel, .channels_last = channels_last, .indices = wants_places ? &taps : NULL);
        if (rank == 3)
            y = max_pool3d(x, p.kernel, .channels_last = channels_last, .indices = wants_places ? &taps : NULL);
        l->out[0] = y;
        if (wants_places) l->out[1] = taps;
        return;
    }
    ct_window w = {.rank = rank};
    for (int a = 0; a < 3; a++) w.in[a] = w.out[a] = w.kernel[a] = w.stride[a] = w.dilation[a] = 1;
    for (int i = 0; i < rank; i++) {
        const int a = 3 - rank + i;
        const int64_t n = p.in.d[i], m = p.out.d[i];
        w.in[a] = n;
        w.out[a] = m;
        ct_tensor *o = ct__counted(m); /* first: a size that no memory holds ends here, before any loop */
        for (int64_t k = 0; o && k < m; k++) {
            const int64_t length = end_of(k, n, m) - start_of(k, n, m);
            if (length > w.kernel[a]) w.kernel[a] = length;
        }
        starts[a] = floor_div_s(mul_s(o, (double)n), (double)m);
        ct_tensor *ends = floor_div_s(add_s(mul_s(add_s(o, 1), (double)n), (double)(m - 1)), (double)m);
        ct_tensor *at = ct_add(unsqueeze(starts[a], 1), ct__counted(w.kernel[a])); /* [m, kernel] */
        tables[a] = reshape(minimum(at, unsqueeze(add_s(ends, -1), 1)), CT_DIMS(m * w.kernel[a]));
    }
    ct_tensor *windows = ct__pool_windows(x, &w, tables, channels_last);
    l->out[0] = max(windows, -1, .indices = wants_places ? &taps : NULL);
    if (wants_places) l->out[1] = ct__pool_places(taps, &w, starts, channels_last);
}

/* ---- max_unpool ---- */

typedef struct unpool_options {
    const ct_dims *kernel, *strides, *pads, *to;
    bool channels_last;
} unpool_options;

/* The size that axis i of n elements had before it was pooled. */
static int64_t unpooled(const unpool_options *o, int i, int64_t n, int64_t *stride) {
    const int64_t kernel = size_at(o->kernel, i);
    *stride = o->strides->n ? size_at(o->strides, i) : 0;
    if (*stride == 0) *stride = kernel;
    return ct__add(ct__mul(n - 1, *stride), kernel - 2 * (o->pads->n ? size_at(o->pads, i) : 0));
}

static bool infer_unpool(ct_infer *infer, int rank, const unpool_options *o) {
    const ct_view *x = infer->in[0], *indices = infer->in[1];
    const int first = ct__image_spatial(o->channels_last);
    if (x->ndim != rank + 2)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to have %d dimensions, %s", ct_view_text(x),
                             rank + 2, o->channels_last ? "[N,...,C]" : "[N,C,...]");
    bool same = indices->ndim == x->ndim;
    for (int i = 0; same && i < x->ndim; i++) same = indices->dims[i] == x->dims[i];
    if (!same)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "indices is %s; it has to have the shape of x, %s",
                             ct_view_text(indices), ct_view_text(x));
    const ct_dims *lists[] = {o->kernel, o->strides, o->pads, o->to};
    static const char *const names[] = {"kernel", "strides", "pads", "output_size"};
    static const int64_t least[] = {1, 0, 0, 1};
    for (int k = 0; k < 4; k++) {
        if ((lists[k]->n > 1 || k == 0) && lists[k]->n != rank && lists[k]->n != 1)
            return ct_infer_fail(infer, CT_ERR_VALUE, "%s is %s; it takes 1 number or one for each of the %d axes",
                                 names[k], ct_dims_text(*lists[k]), rank);
        for (int i = 0; i < lists[k]->n; i++)
            if (lists[k]->d[i] < least[k] || lists[k]->d[i] > INT32_MAX)
                return ct_infer_fail(infer, CT_ERR_VALUE, "%s is %s; its numbers have to be at least %lld", names[k],
                                     ct_dims_text(*lists[k]), (long long)least[k]);
    }
    ct__infer_like(infer, 0, x, x->dtype);
    for (int i = 0; i < rank; i++) {
        int64_t stride, size = unpooled(o, i, x->dims[first + i], &stride);
        if (o->to->n) {
            const int64_t wanted = size_at(o->to, i);
            if (wanted <= ct__sub(size, stride) || wanted >= ct__add(size, stride))
                return ct_infer_fail(infer, CT_ERR_VALUE,
                                     "output_size is %s; along axis %d it has to be between %lld and %lld, for x of %s",
                                     ct_dims_text(*o->to), first + i, (long long)ct__add(ct__sub(size, stride), 1),
                                     (long long)ct__sub(ct__add(size, stride), 1), ct_view_text(x));
            size = wanted;
        }
        if (size < 1)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "axis %d of the result would have %lld elements; x is %s",
                                 first + i, (long long)size, ct_view_text(x));
        infer->out[0].dims[first + i] = size;
    }
    return true;
}

static ct_tensor *unpool(ct_tensor *x, ct_tensor *indices, int rank, const unpool_options *o) {
    const int first = ct__image_spatial(o->channels_last), axis = o->channels_last ? 1 : 2;
    ct_dims shape = ct_shape(x), from = {.n = 3, .d = {shape.d[0], shape.d[1], 1}};
    if (o->channels_last) from.d[1] = 1, from.d[2] = shape.d[rank + 1];
    ct_dims to = from;
    for (int i = 0; i < rank; i++) {
        int64_t stride, n = shape.d[first + i];
        shape.d[first + i] = o->to->n ? size_at(o->to, i) : unpooled(o, i, n, &stride);
        from.d[axis] *= n;
        to.d[axis] = ct__mul(to.d[axis], shape.d[first + i]);
    }
    ct_tensor *none = zeros(to, .dtype = ct_dtype_of(x));
    return reshape(scatter(none, axis, reshape(indices, from), reshape(x, from)), shape);
}

/* ---- By rank ---- */

#define UNPOOL(a) (&(unpool_options){&(a)->kernel, &(a)->strides, &(a)->pads, &(a)->output_size, (a)->channels_last})

bool adaptive_avg_pool1d_infer(ct_infer *infer) {
    const adaptive_avg_pool1d_attrs *a = infer->attrs;
    return infer_adaptive(infer, 1, &a->output_size, a->channels_last);
}
void adaptive_avg_pool1d_lower(ct_lower *l) {
    const adaptive_avg_pool1d_attrs *a = l->attrs;
    l->out[0] = adaptive_means(l->in[0], 1, &a->output_size, a->channels_last);
}
bool adaptive_max_pool1d_infer(ct_infer *infer) {
    const adaptive_max_pool1d_attrs *a = infer->attrs;
    return infer_adaptive(infer, 1, &a->output_size, a->channels_last);
}
void adaptive_max_pool1d_lower(ct_lower *l) {
    const adaptive_max_pool1d_attrs *a = l->attrs;
    adaptive_maxima(l, 1, &a->output_size, a->channels_last);
}
bool max_unpool1d_infer(ct_infer *infer) {
    const max_unpool1d_attrs *a = infer->attrs;
    return infer_unpool(infer, 1, UNPOOL(a));
}
void max_unpool1d_lower(ct_lower *l) {
    const max_unpool1d_attrs *a = l->attrs;
    l->out[0] = unpool(l->in[0], l->in[1], 1, UNPOOL(a));
}
bool adaptive_avg_pool2d_infer(ct_infer *infer) {
    const adaptive_avg_pool2d_attrs *a = infer->attrs;
    return infer_adaptive(infer, 2, &a->output_size, a->channels_last);
}
void adaptive_avg_pool2d_lower(ct_lower *l) {
    const adaptive_avg_pool2d_attrs *a = l->attrs;
    l->out[0] = adaptive_means(l->in[0], 2, &a->output_size, a->channels_last);
}
bool adaptive_max_pool2d_infer(ct_infer *infer) {
    const adaptive_max_pool2d_attrs *a = infer->attrs;
    return infer_adaptive(infer, 2, &a->output_size, a->channels_last);
}
void adaptive_max_pool2d_lower(ct_lower *l) {
    const adaptive_max_pool2d_attrs *a = l->attrs;
    adaptive_maxima(l, 2, &a->output_size, a->channels_last);
}
bool max_unpool2d_infer(ct_infer *infer) {
    const max_unpool2d_attrs *a = infer->attrs;
    return infer_unpool(infer, 2, UNPOOL(a));
}
void max_unpool2d_lower(ct_lower *l) {
    const max_unpool2d_attrs *a = l->attrs;
    l->out[0] = unpool(l->in[0], l->in[1], 2, UNPOOL(a));
}
bool adaptive_avg_pool3d_infer(ct_infer *infer) {
    const adaptive_avg_pool3d_attrs *a = infer->attrs;
    return infer_adaptive(infer, 3, &a->output_size, a->channels_last);
}
void adaptive_avg_pool3d_lower(ct_lower *l) {
    const adaptive_avg_pool3d_attrs *a = l->attrs;
    l->out[0] = adaptive_means(l->in[0], 3, &a->output_size, a->channels_last);
}
bool adaptive_max_pool3d_infer(ct_infer *infer) {
    const adaptive_max_pool3d_attrs *a = infer->attrs;
    return infer_adaptive(infer, 3, &a->output_size, a->channels_last);
}
void adaptive_max_pool3d_lower(ct_lower *l) {
    const adaptive_max_pool3d_attrs *a = l->attrs;
    adaptive_maxima(l, 3, &a->output_size, a->channels_last);
}
bool max_unpool3d_infer(ct_infer *infer) {
    const max_unpool3d_attrs *a = infer->attrs;
    return infer_unpool(infer, 3, UNPOOL(a));
}
void max_unpool3d_lower(ct_lower *l) {
    const max_unpool3d_attrs *a = l->attrs;
    l->out[0] = unpool(l->in[0], l->in[1], 3, UNPOOL(a));
}
