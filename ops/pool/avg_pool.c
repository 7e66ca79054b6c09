/* avg_pool1d to 3d, lp_pool1d to 3d, and the linear map behind them with its transposed. */
#include "ops/pool/pool.h"
#include "ops/resample/resample.h"

#include "ops/op_impl.h"

#define WINDOW(a) ct__pool_window(&(a)->sizes, &(a)->kernel, &(a)->strides, &(a)->pads, NULL, (a)->ceil_mode)
#define INNER(a)                                     \
    (&(ct_pool_options){.kernel = &(a)->kernel,      \
                        .strides = &(a)->strides,    \
                        .pads = &(a)->pads,          \
                        .ceil_mode = (a)->ceil_mode, \
                        .channels_last = (a)->channels_last})
#define PASS_ON(a)                                                                                                  \
    (a)->sizes, (a)->kernel, (a)->strides, (a)->pads, .ceil_mode = (a)->ceil_mode, .exclude_pad = (a)->exclude_pad, \
                                                      .divisor_override = (a)->divisor_override,                    \
                                                      .channels_last = (a)->channels_last

/* The mean over windows is one matrix an axis, since counts of elements are products. */
static ct_tensor *pooled(ct_tensor *x, const ct_window *w, bool exclude_pad, int64_t divisor, bool channels_last,
                         bool transposed) {
    for (int a = 3 - w->rank; a < 3 && x; a++) {
        const ct_device device = ct__table_begin();
        ct_tensor *start = unsqueeze(ct__pool_starts(w, a), 1), *end = add_s(start, (double)w->kernel[a]);
        ct_tensor *i = ct__counted(w->in[a]); /* [in]; a window's row of the matrix is 1 from its start to its end */
        ct_tensor *matrix = cast(logical_and(ge(i, start), lt(i, end)), CT_F64);
        if (!divisor) { /* over as many elements as ct__pool_count says */
            const double limit = (double)(w->in[a] + (exclude_pad ? 0 : w->after[a]));
            ct_tensor *from = exclude_pad ? clamp(start, .min = CT_SET(0)) : start;
            matrix = div(matrix, cast(sub(clamp(end, .max = CT_SET(limit)), from), CT_F64));
        }
        matrix = ct__table_end(device, matrix, ct_dtype_of(x));
        x = ct__along_axis(x, ct__image_spatial(channels_last) + a - (3 - w->rank), matrix, transposed);
    }
    return divisor ? div_s(x, (double)divisor) : x;
}

bool avg_pool_nd_infer(ct_infer *infer) {
    const avg_pool_nd_attrs *a = infer->attrs;
    ct_window w;
    if (!ct__pool_infer(infer, &w, infer->in[0], false, &a->sizes, INNER(a))) return false;
    ct__pool_shape(infer, 0, infer->in[0], &w, w.out, a->channels_last, infer->in[0]->dtype);
    return true;
}

bool avg_pool_grad_infer(ct_infer *infer) {
    const avg_pool_grad_attrs *a = infer->attrs;
    ct_window w;
    if (!ct__pool_infer(infer, &w, infer->in[0], true, &a->sizes, INNER(a))) return false;
    ct__pool_shape(infer, 0, infer->in[0], &w, w.in, a->channels_last, infer->in[0]->dtype);
    return true;
}

void avg_pool_nd_lower(ct_lower *l) {
    const avg_pool_nd_attrs *a = l->attrs;
    const ct_window w = WINDOW(a);
    l->out[0] = pooled(l->in[0], &w, a->exclude_pad, a->divisor_override, a->channels_last, false);
}

void avg_pool_grad_lower(ct_lower *l) {
    const avg_pool_grad_attrs *a = l->attrs;
    const ct_window w = WINDOW(a);
    l->out[0] = pooled(l->in[0], &w, a->exclude_pad, a->divisor_override, a->channels_last, true);
}

void avg_pool_nd_vjp(ct_vjp *v) {
    const avg_pool_nd_attrs *a = v->attrs;
    v->grad[0] = avg_pool_grad(v->cot[0], PASS_ON(a));
}

void avg_pool_grad_vjp(ct_vjp *v) {
    const avg_pool_grad_attrs *a = v->attrs;
    v->grad[0] = avg_pool_nd(v->cot[0], PASS_ON(a));
}

/* ---- The public ops ---- */

static bool infer_public(ct_infer *infer, int rank, int64_t divisor, const ct_pool_options *options) {
    ct_window w;
    if (!ct__pool_resolve(infer, &w, rank, infer->in[0], options)) return false;
    if (divisor < 0)
        return ct_infer_fail(infer, CT_ERR_VALUE, "divisor_override is %lld; it has to be positive",
                             (long long)divisor);
    ct__pool_shape(infer, 0, infer->in[0], &w, w.out, options->channels_last, infer->in[0]->dtype);
    return true;
}

static ct_window window_of(ct_tensor *x, int rank, const ct_pool_options *options) {
    const ct_dims shape = ct_shape(x);
    ct_view image = {.ndim = shape.n};
    for (int i = 0; i < shape.n; i++) image.dims[i] = shape.d[i];
    ct_window w;
    ct__pool_resolve(NULL, &w, rank, &image, options);
    return w;
}

static ct_tensor *means(ct_tensor *x, int rank, bool exclude_pad, int64_t divisor, const ct_pool_options *options) {
    if (!x) return NULL; /* an error before: there is no window */
    const ct_window w = window_of(x, rank, options);
    return avg_pool_nd(x, ct__window_in(&w), ct__window_kernel(&w), ct__window_strides(&w), ct__window_pads(&w),
                       .ceil_mode = options->ceil_mode, .exclude_pad = exclude_pad, .divisor_override = divisor,
                       .channels_last = options->channels_last);
}

static bool infer_powers(ct_infer *infer, int rank, double p, const ct_pool_options *options) {
    if (p == 0 || p != p) return ct_infer_fail(infer, CT_ERR_VALUE, "p is %g; it has to be a number other than 0", p);
    return infer_public(infer, rank, 0, options);
}

/* Powers of 0 have no derivative there: 0 is put in last. */
static ct_tensor *powers(ct_tensor *x, int rank, double p, const ct_pool_options *options) {
    const ct_window w = window_of(x, rank, options);
    ct_tensor *total = mul_s(means(pow_s(x, p), rank, false, 0, options), (double)ct__window_taps(&w)),
              *none = eq_s(total, 0);
    return masked_fill(pow_s(masked_fill(total, none, 1), 1 / p), none, 0);
}

#define OPTIONS(a)                                                                                    \
    (&(ct_pool_options){&(a)->kernel, &(a)->strides, &(a)->pads, NULL, (a)->ceil_mode, (a)->pad_mode, \
                        (a)->channels_last})
#define NO_PADS(a)                                   \
    (&(ct_pool_options){.kernel = &(a)->kernel,      \
                        .strides = &(a)->strides,    \
                        .ceil_mode = (a)->ceil_mode, \
                        .channels_last = (a)->channels_last})

bool avg_pool1d_infer(ct_infer *infer) {
    const avg_pool1d_attrs *a = infer->attrs;
    return infer_public(infer, 1, a->divisor_override, OPTIONS(a));
}
void avg_pool1d_lower(ct_lower *l) {
    const avg_pool1d_attrs *a = l->attrs;
    l->out[0] = means(l->in[0], 1, a->exclude_pad, a->divisor_override, OPTIONS(a));
}
bool avg_pool2d_infer(ct_infer *infer) {
    const avg_pool2d_attrs *a = infer->attrs;
    return infer_public(infer, 2, a->divisor_override, OPTIONS(a));
}
void avg_pool2d_lower(ct_lower *l) {
    const avg_pool2d_attrs *a = l->attrs;
    l->out[0] = means(l->in[0], 2, a->exclude_pad, a->divisor_override, OPTIONS(a));
}
bool avg_pool3d_infer(ct_infer *infer) {
    const avg_pool3d_attrs *a = infer->attrs;
    return infer_public(infer, 3, a->divisor_override, OPTIONS(a));
}
void avg_pool3d_lower(ct_lower *l) {
    const avg_pool3d_attrs *a = l->attrs;
    l->out[0] = means(l->in[0], 3, a->exclude_pad, a->divisor_override, OPTIONS(a));
}
bool lp_pool1d_infer(ct_infer *infer) {
    const lp_pool1d_attrs *a = infer->attrs;
    return infer_powers(infer, 1, a->p, NO_PADS(a));
}
void lp_pool1d_lower(ct_lower *l) {
    const lp_pool1d_attrs *a = l->attrs;
    l->out[0] = powers(l->in[0], 1, a->p, NO_PADS(a));
}
bool lp_pool2d_infer(ct_infer *infer) {
    const lp_pool2d_attrs *a = infer->attrs;
    return infer_powers(infer, 2, a->p, NO_PADS(a));
}
void lp_pool2d_lower(ct_lower *l) {
    const lp_pool2d_attrs *a = l->attrs;
    l->out[0] = powers(l->in[0], 2, a->p, NO_PADS(a));
}
bool lp_pool3d_infer(ct_infer *infer) {
    const lp_pool3d_attrs *a = infer->attrs;
    return infer_powers(infer, 3, a->p, NO_PADS(a));
}
void lp_pool3d_lower(ct_lower *l) {
    const lp_pool3d_attrs *a = l->attrs;
    l->out[0] = powers(l->in[0], 3, a->p, NO_PADS(a));
}
