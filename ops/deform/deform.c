/* deform_conv2d in ops: columns of what the taps look at (columns.c), and a matrix product. Gradients are written out in the same ops, so
 * that they can be differentiated again. */
#include "ops/deform/deform.h"

#include "ops/op_impl.h"

#define FAIL(code, ...) (infer ? ct_infer_fail(infer, code, __VA_ARGS__) : false)

bool ct__deform_resolve(const ct_infer *infer, ct_deform *d, const ct_view *x, const int64_t *kernel,
                        const ct_window_options *options, int64_t out_channels, int64_t groups, int64_t offset_groups,
                        bool channels_last) {
    d->batch = x->dims[0];
    d->channels = x->dims[ct__image_channel(4, channels_last)];
    d->out_channels = out_channels;
    d->groups = groups;
    d->offset_groups = offset_groups;
    d->channels_last = channels_last;
    if (groups < 1 || offset_groups < 1)
        return FAIL(CT_ERR_VALUE, "groups is %lld and offset_groups %lld; they have to be at least 1",
                    (long long)groups, (long long)offset_groups);
    if (d->channels % groups || d->channels % offset_groups)
        return FAIL(CT_ERR_SHAPE, "groups %lld and offset_groups %lld have to divide the %lld channels of x, %s",
                    (long long)groups, (long long)offset_groups, (long long)d->channels, ct_view_text(x));
    if (out_channels % groups)
        return FAIL(CT_ERR_SHAPE, "groups %lld does not divide the %lld output channels of w", (long long)groups,
                    (long long)out_channels);
    if (!ct__window_resolve(infer, &d->w, 2, x->dims + ct__image_spatial(channels_last), kernel, options)) return false;
    d->taps = ct__window_taps(&d->w);
    d->pixels = ct__window_pixels_out(&d->w);
    return true;
}

/* ---- Shapes ---- */

static void set_image(const ct_deform *d, int64_t channels, const int64_t *sizes, int64_t *dims) {
    dims[0] = d->batch;
    dims[ct__image_channel(4, d->channels_last)] = channels;
    dims[ct__image_spatial(d->channels_last)] = sizes[1];
    dims[ct__image_spatial(d->channels_last) + 1] = sizes[2];
}

static bool check_image(const ct_infer *infer, const ct_deform *d, const ct_view *image, const char *name,
                        int64_t channels) {
    int64_t dims[4];
    if (!image) return true;
    set_image(d, channels, d->w.out, dims);
    bool fits = image->ndim == 4;
    for (int i = 0; fits && i < 4; i++) fits = image->dims[i] == dims[i];
    ct_dims expected = {.n = 4, .d = {dims[0], dims[1], dims[2], dims[3]}};
    return fits || FAIL(CT_ERR_SHAPE, "%s is %s; it has to be %s, for %lld taps and offset_groups %lld", name,
                        ct_view_text(image), ct_dims_text(expected), (long long)d->taps, (long long)d->offset_groups);
}

static bool check_arguments(const ct_infer *infer, const ct_deform *d, const ct_view *offset, const ct_view *mask) {
    return check_image(infer, d, offset, "offset", ct__mul(2, ct__mul(d->offset_groups, d->taps))) &&
           check_image(infer, d, mask, "mask", ct__mul(d->offset_groups, d->taps));
}

static bool infer_forward(ct_infer *infer, const ct_window_options *options, int64_t groups, int64_t offset_groups,
                          bool last) {
    const ct_view *x = infer->in[0], *w = infer->in[2], *bias = infer->in[3];
    ct_deform d;
    if (x->ndim != 4 || w->ndim != 4)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and w %s; they have to be %s", ct_view_text(x),
                             ct_view_text(w),
                             last ? "[N,H,W,C] and [kh,kw,C/groups,out]" : "[N,C,H,W] and [out,C/groups,kh,kw]");
    const int64_t out = w->dims[last ? 3 : 0], each = w->dims[last ? 2 : 1];
    if (!ct__deform_resolve(infer, &d, x, ct__deform_kernel(w, last), options, out, groups, offset_groups, last))
        return false;
    if (ct__mul(each, groups) != d.channels)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "channels differ: x is %s with %lld channels, w is %s, which with groups %lld takes %lld",
                             ct_view_text(x), (long long)d.channels, ct_view_text(w), (long long)groups,
                             (long long)ct__mul(each, groups));
    if (bias && (bias->ndim != 1 || bias->dims[0] != out))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "bias is %s; it has to be [%lld], one number an output channel",
                             ct_view_text(bias), (long long)out);
    if (!check_arguments(infer, &d, infer->in[1], infer->in[4])) return false;
    int64_t dims[4];
    set_image(&d, out, d.w.out, dims);
    ct__infer_set(infer, 0, x->dtype, 4, dims);
    return true;
}

#define OPTIONS(a, mode) \
    (&(ct_window_options){.strides = &(a)->strides, .pads = &(a)->pads, .dilations = &(a)->dilations, .pad_mode = mode})

bool deform_conv2d_infer(ct_infer *infer) {
    const deform_conv2d_attrs *a = infer->attrs;
    return infer_forward(infer, OPTIONS(a, a->pad_mode), a->groups, a->offset_groups, a->channels_last);
}

bool deform_conv_infer(ct_infer *infer) {
    const deform_conv_attrs *a = infer->attrs;
    return infer_forward(infer, OPTIONS(a, CT_EXPLICIT), a->groups, a->offset_groups, a->channels_last);
}

/* x and another input; for the two internal ops, whose callers know it. */
static bool four_dimensions(const ct_infer *infer, const ct_view *x, const ct_view *other) {
    return (x->ndim == 4 && other->ndim == 4) ||
           ct_infer_fail(infer, CT_ERR_SHAPE, "%s and %s: both have to have 4 dimensions", ct_view_text(x),
                         ct_view_text(other));
}

static bool check_weight(const ct_infer *infer, const ct_deform *d, int input) {
    const int64_t each = d->channels / d->groups, *k = d->w.kernel;
    const int64_t first[] = {d->out_channels, each, k[1], k[2]}, last[] = {k[1], k[2], each, d->out_channels};
    return ct__infer_is(infer, input, 4, d->channels_last ? last : first);
}

bool deform_conv_grad_infer(ct_infer *infer) {
    const deform_conv_grad_attrs *a = infer->attrs;
    const ct_view *x = infer->in[1], *offset = infer->in[2], *w = infer->in[3], *mask = infer->in[4];
    ct_deform d;
    if (!four_dimensions(infer, x, w) ||
        !ct__deform_resolve(infer, &d, x, ct__deform_kernel(w, a->channels_last), OPTIONS(a, CT_EXPLICIT),
                            w->dims[a->channels_last ? 3 : 0], a->groups, a->offset_groups, a->channels_last) ||
        !check_arguments(infer, &d, offset, mask) || !check_image(infer, &d, infer->in[0], "g", d.out_channels) ||
        !check_weight(infer, &d, 3))
        return false;
    ct__infer_like(infer, 0, x, x->dtype);
    if (infer->n_out > 1) ct__infer_like(infer, 1, offset, x->dtype);
    if (infer->n_out > 2) {
        int64_t dims[4];
        set_image(&d, d.offset_groups * d.taps, d.w.out, dims);
        ct__infer_set(infer, 2, x->dtype, 4, dims);
    }
    if (infer->n_out > 3) ct__infer_like(infer, 3, w, x->dtype);
    return true;
}

bool deform_conv_weight_grad_infer(ct_infer *infer) {
    const deform_conv_weight_grad_attrs *a = infer->attrs;
    const ct_view *g = infer->in[0], *x = infer->in[1];
    if (!four_dimensions(infer, x, g)) return false;
    if (a->kernel.n != 2)
        return ct_infer_fail(infer, CT_ERR_VALUE, "kernel is %s; it takes 2 numbers", ct_dims_text(a->kernel));
    const int64_t out = g->dims[ct__image_channel(4, a->channels_last)];
    ct_deform d;
    if (!ct__deform_resolve(infer, &d, x, a->kernel.d, OPTIONS(a, CT_EXPLICIT), out, a->groups, a->offset_groups,
                            a->channels_last) ||
        !check_arguments(infer, &d, infer->in[2], infer->in[3]) || !check_image(infer, &d, g, "g", out))
        return false;
    const int64_t each = d.channels / a->groups, kh = a->kernel.d[0], kw = a->kernel.d[1];
    const int64_t first[] = {out, each, kh, kw}, last[] = {kh, kw, each, out};
    ct__infer_set(infer, 0, x->dtype, 4, a->channels_last ? last : first);
    return true;
}

/* ---- In ops, channels first ---- */

static ct_tensor *first(ct_tensor *image, bool last) {
    return image && last ? movedim(image, CT_DIMS(-1), CT_DIMS(1)) : image;
}
static ct_tensor *dense(ct_tensor *image, bool last) { return image ? contiguous(first(image, last)) : NULL; }
static ct_tensor *back(ct_tensor *image, bool last) { return last ? movedim(image, CT_DIMS(1), CT_DIMS(-1)) : image; }

static ct_deform resolve(ct_tensor *x, ct_tensor *w, const ct_dims *kernel, const ct_window_options *options,
                         int64_t out, int64_t groups, int64_t offset_groups, bool last) {
    ct_deform d;
    ct_view image = {.ndim = 4};
    for (int i = 0; i < 4; i++) image.dims[i] = ct_dim(x, i);
    const int64_t sizes[2] = {w ? ct_dim(w, last ? 0 : 2) : kernel->d[0], w ? ct_dim(w, last ? 1 : 3) : kernel->d[1]};
    ct__deform_resolve(NULL, &d, &image, sizes, options, out, groups, offset_groups, last);
    return d;
}

/* Columns as matrices: [N, groups, C/groups * taps, pixels]. */
static ct_tensor *columns(const ct_deform *d, ct_tensor *x, ct_tensor *offset, ct_tensor *mask, ct_dims strides,
                          ct_dims pads, ct_dims dilations) {
    const bool last = d->channels_last;
    ct_tensor *c = deform_columns(dense(x, last), dense(offset, last), CT_DIMS(d->w.kernel[1], d->w.kernel[2]), strides,
                                  pads, dilations, d->offset_groups, .mask = dense(mask, last));
    return reshape(c, CT_DIMS(d->batch, d->groups, d->channels / d->groups * d->taps, d->pixels));
}

/* w as [groups, out / groups, C/groups * taps]. */
static ct_tensor *weight_matrices(const ct_deform *d, ct_tensor *w) {
    if (d->channels_last) w = permute(w, CT_DIMS(3, 2, 0, 1));
    return reshape(w, CT_DIMS(d->groups, d->out_channels / d->groups, d->channels / d->groups * d->taps));
}

static ct_tensor *grad_matrices(const ct_deform *d, ct_tensor *g) {
    return reshape(first(g, d->channels_last), CT_DIMS(d->batch, d->groups, d->out_channels / d->groups, d->pixels));
}

static ct_tensor *weight_grad(const ct_deform *d, ct_tensor *g, ct_tensor *columns) {
    ct_tensor *dw = sum(matmul(grad_matrices(d, g), transpose(columns, -1, -2)), .axes = CT_DIMS(0));
    dw = reshape(dw, CT_DIMS(d->out_channels, d->channels / d->groups, d->w.kernel[1], d->w.kernel[2]));
    return d->channels_last ? permute(dw, CT_DIMS(2, 3, 1, 0)) : dw;
}

void deform_conv_lower(ct_lower *l) {
    const deform_conv_attrs *a = l->attrs;
    const bool last = a->channels_last;
    ct_tensor *x = l->in[0], *w = l->in[2], *bias = l->in[3];
    const ct_deform d =
        resolve(x, w, NULL, OPTIONS(a, CT_EXPLICIT), ct_dim(w, last ? 3 : 0), a->groups, a->offset_groups, last);
    ct_tensor *c = columns(&d, x, l->in[1], l->in[4], a->strides, a->pads, a->dilations);
    ct_tensor *y = reshape(matmul(weight_matrices(&d, w), c), CT_DIMS(d.batch, d.out_channels, d.w.out[1], d.w.out[2]));
    if (bias) y = ct_add(y, reshape(bias, CT_DIMS(d.out_channels, 1, 1)));
    l->out[0] = back(y, last);
}

void deform_conv_grad_lower(ct_lower *l) {
    const deform_conv_grad_attrs *a = l->attrs;
    const bool last = a->channels_last;
    ct_tensor *x = l->in[1], *w = l->in[3];
    const ct_deform d =
        resolve(x, w, NULL, OPTIONS(a, CT_EXPLICIT), ct_dim(w, last ? 3 : 0), a->groups, a->offset_groups, last);
    ct_tensor *dc = matmul(transpose(weight_matrices(&d, w), -1, -2), grad_matrices(&d, l->in[0]));
    dc = reshape(dc, CT_DIMS(d.batch, d.channels * d.taps, d.pixels));
    ct_tensor *doffset = NULL, *dmask = NULL;
    const bool moves = l->n_out > 1 && l->want[1], masks = l->n_out > 2 && l->want[2];
    ct_tensor *dx =
        deform_columns_grad(dc, dense(x, last), dense(l->in[2], last), CT_DIMS(d.w.kernel[1], d.w.kernel[2]),
                            a->strides, a->pads, a->dilations, a->offset_groups, .mask = dense(l->in[4], last),
                            .doffset = moves ? &doffset : NULL, .dmask = masks ? &dmask : NULL);
    l->out[0] = back(dx, last);
    if (moves) l->out[1] = back(doffset, last);
    if (masks) l->out[2] = back(dmask, last);
    if (l->n_out > 3 && l->want[3])
        l->out[3] = weight_grad(&d, l->in[0], columns(&d, x, l->in[2], l->in[4], a->strides, a->pads, a->dilations));
}

void deform_conv_weight_grad_lower(ct_lower *l) {
    const deform_conv_weight_grad_attrs *a = l->attrs;
    const bool last = a->channels_last;
    ct_tensor *x = l->in[1];
    const ct_deform d = resolve(x, NULL, &a->kernel, OPTIONS(a, CT_EXPLICIT), ct_dim(l->in[0], last ? 3 : 1), a->groups,
                                a->offset_groups, last);
    l->out[0] = weight_grad(&d, l->in[0], columns(&d, x, l->in[2], l->in[3], a->strides, a->pads, a->dilations));
}

/* ---- Derivative, and the public op ---- */

void deform_conv_vjp(ct_vjp *v) {
    const deform_conv_attrs *a = v->attrs;
    ct_tensor *g = v->cot[0], *x = v->in[0], *offset = v->in[1], *w = v->in[2], *mask = v->in[4];
    const int k = a->channels_last ? 0 : 2;
    if (v->need[0] || v->need[1] || (mask && v->need[4])) {
        ct_tensor *doffset = NULL, *dmask = NULL, *dw = NULL;
        ct_tensor *dx =
            deform_conv_grad(g, x, offset, w, a->strides, a->pads, a->dilations, a->groups, a->offset_groups,
                             .mask = mask, .channels_last = a->channels_last, .doffset = v->need[1] ? &doffset : NULL,
                             .dmask = mask && v->need[4] ? &dmask : NULL, .dw = v->need[2] ? &dw : NULL);
        if (v->need[0]) v->grad[0] = dx;
        if (v->need[1]) v->grad[1] = doffset;
        if (mask && v->need[4]) v->grad[4] = dmask;
        if (v->need[2]) v->grad[2] = dw;
    } else if (v->need[2])
        v->grad[2] = deform_conv_weight_grad(g, x, offset, CT_DIMS(ct_dim(w, k), ct_dim(w, k + 1)), a->strides, a->pads,
                                             a->dilations, a->groups, a->offset_groups, .mask = mask,
                                             .channels_last = a->channels_last);
    if (v->in[3] && v->need[3]) v->grad[3] = sum(g, .axes = a->channels_last ? CT_DIMS(0, 1, 2) : CT_DIMS(0, 2, 3));
}

void deform_conv2d_lower(ct_lower *l) {
    const deform_conv2d_attrs *a = l->attrs;
    const bool last = a->channels_last;
    ct_tensor *x = l->in[0], *w = l->in[2];
    const ct_deform d =
        resolve(x, w, NULL, OPTIONS(a, a->pad_mode), ct_dim(w, last ? 3 : 0), a->groups, a->offset_groups, last);
    l->out[0] = deform_conv(x, l->in[1], w, ct__window_strides(&d.w), ct__window_pads(&d.w), ct__window_dilations(&d.w),
                            a->groups, a->offset_groups, .bias = l->in[3], .mask = l->in[4], .channels_last = last);
}
