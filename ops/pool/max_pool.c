/* max_pool1d to 3d and the three ops behind them. Which tap won makes the pooling linear: max_pool_grad and max_pool_take are
 * each other's gradients. */
#include "ops/pool/pool.h"

#include "ops/op_impl.h"

#define WINDOW(a) ct__pool_window(&(a)->sizes, &(a)->kernel, &(a)->strides, &(a)->pads, &(a)->dilations, (a)->ceil_mode)
#define INNER(a)                                      \
    (&(ct_pool_options){.kernel = &(a)->kernel,       \
                        .strides = &(a)->strides,     \
                        .pads = &(a)->pads,           \
                        .dilations = &(a)->dilations, \
                        .ceil_mode = (a)->ceil_mode,  \
                        .channels_last = (a)->channels_last})
#define PASS_ON(a)                                                                                 \
    (a)->sizes, (a)->kernel, (a)->strides, (a)->pads, (a)->dilations, .ceil_mode = (a)->ceil_mode, \
                                                                      .channels_last = (a)->channels_last

static ct_dtype tap_dtype(const ct_window *w) { return ct__window_taps(w) <= 256 ? CT_U8 : CT_I32; }

/* ---- Windows in ops ---- */

/* Along each axis where a window's tap 0 lies. */
static void starts_of(const ct_window *w, ct_tensor **starts) {
    for (int a = 3 - w->rank; a < 3; a++) starts[a] = ct__pool_starts(w, a);
}

static ct_tensor *places_of(ct_tensor *at, const ct_window *w, bool channels_last) {
    ct_tensor *starts[3];
    starts_of(w, starts);
    return ct__pool_places(cast(at, CT_I64), w, starts, channels_last);
}

/* Taps in the padding look at the nearest tap inside, which changes no maximum. */
static void tables_of(const ct_window *w, ct_tensor **tables) {
    for (int a = 3 - w->rank; a < 3; a++) {
        ct_tensor *first = unsqueeze(ct__pool_first_taps(w, a), 1), *last = unsqueeze(ct__pool_last_taps(w, a), 1);
        ct_tensor *inside = minimum(maximum(ct__counted(w->kernel[a]), first), last); /* [out, kernel] */
        ct_tensor *at = ct_add(unsqueeze(ct__pool_starts(w, a), 1), mul_s(inside, (double)w->dilation[a]));
        tables[a] = reshape(at, CT_DIMS(w->out[a] * w->kernel[a]));
    }
}

/* Of the taps that stand for the first one inside the input, that one's number. */
static ct_tensor *inside_taps(ct_tensor *taps, const ct_window *w, bool channels_last) {
    ct_tensor *result = NULL;
    int64_t inner = ct__window_taps(w);
    for (int a = 3 - w->rank; a < 3; a++) {
        ct_dims shape = {.n = w->rank + (channels_last ? 1 : 0)};
        for (int i = 0; i < shape.n; i++) shape.d[i] = 1;
        shape.d[a - (3 - w->rank)] = w->out[a];
        inner /= w->kernel[a];
        ct_tensor *k = remainder_s(floor_div_s(taps, (double)inner), (double)w->kernel[a]);
        k = maximum(k, reshape(ct__pool_first_taps(w, a), shape));
        result = result ? ct_add(mul_s(result, (double)w->kernel[a]), k) : k;
    }
    return result;
}

static int64_t plane_of(const ct_dims *sizes) {
    int64_t n = 1;
    for (int i = 0; i < sizes->n; i++) n *= sizes->d[i];
    return n;
}

/* reshape cannot find a size beside a zero. */
static ct_dims planes_shape(ct_dims image, int64_t plane, bool channels_last) {
    return channels_last ? CT_DIMS(image.d[0], plane, image.d[image.n - 1]) : CT_DIMS(image.d[0], image.d[1], plane);
}

/* ---- max_pool_nd ---- */

bool max_pool_nd_infer(ct_infer *infer) {
    const max_pool_nd_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    ct_window w;
    if (!ct__pool_infer(infer, &w, x, false, &a->sizes, INNER(a))) return false;
    ct__pool_shape(infer, 0, x, &w, w.out, a->channels_last, x->dtype);
    if (infer->n_out > 1) ct__pool_shape(infer, 1, x, &w, w.out, a->channels_last, tap_dtype(&w));
    return true;
}

void max_pool_nd_lower(ct_lower *l) {
    const max_pool_nd_attrs *a = l->attrs;
    const ct_window w = WINDOW(a);
    ct_tensor *tables[3], *at = NULL;
    const bool wants_taps = l->n_out > 1 && l->want[1];
    tables_of(&w, tables);
    ct_tensor *windows = ct__pool_windows(l->in[0], &w, tables, a->channels_last);
    l->out[0] = max(windows, -1, .indices = wants_taps ? &at : NULL);
    if (wants_taps) l->out[1] = cast(inside_taps(at, &w, a->channels_last), tap_dtype(&w));
}

void max_pool_nd_vjp(ct_vjp *v) {
    const max_pool_nd_attrs *a = v->attrs;
    if (!ct__vjp_has(v, 1)) return;
    v->grad[0] = max_pool_grad(v->cot[0], v->out[1], PASS_ON(a));
}

/* ---- Its gradient, and that one's ---- */

static bool check_taps(ct_infer *infer, const ct_view *shape, const char *name) {
    const ct_view *at = infer->in[1];
    bool same = at->ndim == shape->ndim && (at->dtype == CT_U8 || at->dtype == CT_I32 || at->dtype == CT_I64);
    for (int i = 0; same && i < at->ndim; i++) same = at->dims[i] == shape->dims[i];
    return same || ct_infer_fail(infer, CT_ERR_SHAPE, "at is %s; it has to be of whole numbers and as %s, %s",
                                 ct_view_text(at), name, ct_view_text(shape));
}

bool max_pool_grad_infer(ct_infer *infer) {
    const max_pool_grad_attrs *a = infer->attrs;
    ct_window w;
    if (!ct__pool_infer(infer, &w, infer->in[0], true, &a->sizes, INNER(a)) || !check_taps(infer, infer->in[0], "g"))
        return false;
    ct__pool_shape(infer, 0, infer->in[0], &w, w.in, a->channels_last, infer->in[0]->dtype);
    return true;
}

bool max_pool_take_infer(ct_infer *infer) {
    const max_pool_take_attrs *a = infer->attrs;
    ct_window w;
    if (!ct__pool_infer(infer, &w, infer->in[0], false, &a->sizes, INNER(a))) return false;
    ct__pool_shape(infer, 0, infer->in[0], &w, w.out, a->channels_last, infer->in[0]->dtype);
    return check_taps(infer, &infer->out[0], "the result");
}

void max_pool_grad_lower(ct_lower *l) {
    const max_pool_grad_attrs *a = l->attrs;
    const ct_window w = WINDOW(a);
    const int axis = a->channels_last ? 1 : 2;
    ct_dims shape = ct_shape(l->in[0]), flat = planes_shape(shape, ct__window_pixels_out(&w), a->channels_last);
    ct_tensor *places = reshape(places_of(l->in[1], &w, a->channels_last), flat);
    ct_tensor *dx =
        gather_grad(reshape(l->in[0], flat), places, planes_shape(shape, plane_of(&a->sizes), a->channels_last), axis);
    for (int i = 0; i < a->sizes.n; i++) shape.d[ct__image_spatial(a->channels_last) + i] = a->sizes.d[i];
    l->out[0] = reshape(dx, shape);
}

void max_pool_take_lower(ct_lower *l) {
    const max_pool_take_attrs *a = l->attrs;
    const ct_window w = WINDOW(a);
    const int axis = a->channels_last ? 1 : 2;
    const ct_dims shape = ct_shape(l->in[1]), flat = planes_shape(shape, ct__window_pixels_out(&w), a->channels_last);
    ct_tensor *x = reshape(l->in[0], planes_shape(ct_shape(l->in[0]), plane_of(&a->sizes), a->channels_last));
    l->out[0] = reshape(gather(x, axis, reshape(places_of(l->in[1], &w, a->channels_last), flat)), shape);
}

void max_pool_grad_vjp(ct_vjp *v) {
    const max_pool_grad_attrs *a = v->attrs;
    if (v->need[0]) v->grad[0] = max_pool_take(v->cot[0], v->in[1], PASS_ON(a));
}

void max_pool_take_vjp(ct_vjp *v) {
    const max_pool_take_attrs *a = v->attrs;
    if (v->need[0]) v->grad[0] = max_pool_grad(v->cot[0], v->in[1], PASS_ON(a));
}

/* ---- max_pool_places ---- */

bool max_pool_places_infer(ct_infer *infer) {
    const max_pool_places_attrs *a = infer->attrs;
    const ct_view *at = infer->in[0];
    ct_window w;
    if (!ct__pool_infer(infer, &w, at, true, &a->sizes, INNER(a))) return false;
    if (at->dtype != CT_U8 && at->dtype != CT_I32 && at->dtype != CT_I64)
        return ct_infer_fail(infer, CT_ERR_DTYPE, "at is %s; it has to be u8, i32 or i64", ct_view_text(at));
    ct__infer_like(infer, 0, at, CT_I64);
    return true;
}

void max_pool_places_lower(ct_lower *l) {
    const max_pool_places_attrs *a = l->attrs;
    const ct_window w = WINDOW(a);
    l->out[0] = places_of(l->in[0], &w, a->channels_last);
}

/* ---- The public ops ---- */

static bool infer_public(ct_infer *infer, int rank, const ct_pool_options *options) {
    const ct_view *x = infer->in[0];
    ct_window w;
    if (!ct__pool_resolve(infer, &w, rank, x, options)) return false;
    ct__pool_shape(infer, 0, x, &w, w.out, options->channels_last, x->dtype);
    if (infer->n_out > 1) ct__pool_shape(infer, 1, x, &w, w.out, options->channels_last, CT_I64);
    return true;
}

static void lower_public(ct_lower *l, int rank, const ct_pool_options *options) {
    ct_tensor *x = l->in[0], *at = NULL;
    const ct_dims shape = ct_shape(x);
    ct_view image = {.ndim = shape.n};
    for (int i = 0; i < shape.n; i++) image.dims[i] = shape.d[i];
    ct_window w;
    ct__pool_resolve(NULL, &w, rank, &image, options);
    const bool wants_places = l->n_out > 1 && l->want[1],
               wants_taps = wants_places || (ct_grad_enabled() && ct_requires_grad(x));
    l->out[0] = max_pool_nd(x, ct__window_in(&w), ct__window_kernel(&w), ct__window_strides(&w), ct__window_pads(&w),
                            ct__window_dilations(&w), .ceil_mode = options->ceil_mode,
                            .channels_last = options->channels_last, .at = wants_taps ? &at : NULL);
    if (wants_places)
        l->out[1] = max_pool_places(at, ct__window_in(&w), ct__window_kernel(&w), ct__window_strides(&w),
                                    ct__window_pads(&w), ct__window_dilations(&w), .ceil_mode = options->ceil_mode,
                                    .channels_last = options->channels_last);
}

#define OPTIONS(a)                                                                                               \
    (&(ct_pool_options){&(a)->kernel, &(a)->strides, &(a)->pads, &(a)->dilations, (a)->ceil_mode, (a)->pad_mode, \
                        (a)->channels_last})

bool max_pool1d_infer(ct_infer *infer) {
    const max_pool1d_attrs *a = infer->attrs;
    return infer_public(infer, 1, OPTIONS(a));
}
void max_pool1d_lower(ct_lower *l) {
    const max_pool1d_attrs *a = l->attrs;
    lower_public(l, 1, OPTIONS(a));
}
bool max_pool2d_infer(ct_infer *infer) {
    const max_pool2d_attrs *a = infer->attrs;
    return infer_public(infer, 2, OPTIONS(a));
}
void max_pool2d_lower(ct_lower *l) {
    const max_pool2d_attrs *a = l->attrs;
    lower_public(l, 2, OPTIONS(a));
}
bool max_pool3d_infer(ct_infer *infer) {
    const max_pool3d_attrs *a = infer->attrs;
    return infer_public(infer, 3, OPTIONS(a));
}
void max_pool3d_lower(ct_lower *l) {
    const max_pool3d_attrs *a = l->attrs;
    lower_public(l, 3, OPTIONS(a));
}
