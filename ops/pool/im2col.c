/* im2col and col2im: overlapping strided views of a padded image, and sums into one. */
#include "ops/geometry.h"

#include "ops/op_impl.h"

typedef struct patches {
    ct_window w;
    int64_t batch, channels, height, width; /* height and width with the padding */
    bool channels_last;
} patches;

static bool check_kernel(const ct_infer *infer, const ct_dims *kernel) {
    return kernel->n == 1 || kernel->n == 2 ||
           ct_infer_fail(infer, CT_ERR_VALUE, "kernel is %s; it takes 1 number or 2", ct_dims_text(*kernel));
}

static bool resolve(const ct_infer *infer, ct_window *w, const int64_t *sizes, const ct_dims *kernel,
                    const ct_dims *strides, const ct_dims *pads, const ct_dims *dilations) {
    const int64_t k[2] = {kernel->d[0], kernel->d[kernel->n == 1 ? 0 : 1]};
    const ct_window_options options = {
        .strides = strides, .dilations = dilations, .pads = pads, .pad_mode = CT_EXPLICIT};
    return ct__window_resolve(infer, w, 2, sizes, k, &options);
}

/* The padded image's windows as a strided view: shape and strides in the order of the columns. */
static void strided_windows(const patches *p, ct_dims *shape, ct_dims *strides) {
    const ct_window *w = &p->w;
    const int64_t channels = p->channels_last ? p->channels : 1, row = p->width * channels;
    const int64_t image = p->channels * p->height * p->width;
    if (p->channels_last) {
        *shape = CT_DIMS(p->batch, w->out[1], w->out[2], w->kernel[1], w->kernel[2], p->channels);
        *strides = CT_DIMS(image, ct__mul(w->stride[1], row), ct__mul(w->stride[2], channels),
                           ct__mul(w->dilation[1], row), ct__mul(w->dilation[2], channels), 1);
    } else {
        *shape = CT_DIMS(p->batch, p->channels, w->kernel[1], w->kernel[2], w->out[1], w->out[2]);
        *strides = CT_DIMS(image, p->height * p->width, ct__mul(w->dilation[1], row), w->dilation[2],
                           ct__mul(w->stride[1], row), w->stride[2]);
    }
}

static patches patches_of(const ct_window *w, int64_t batch, int64_t channels, bool channels_last) {
    return (patches){.w = *w,
                     .batch = batch,
                     .channels = channels,
                     .height = w->in[1] + w->before[1] + w->after[1],
                     .width = w->in[2] + w->before[2] + w->after[2],
                     .channels_last = channels_last};
}

/* The image with its padding is a tensor on the way. */
static bool check_padded(const ct_infer *infer, const ct_window *w, int64_t batch, int64_t channels) {
    const patches p = patches_of(w, batch, channels, false);
    const ct_dims padded = CT_DIMS(batch, channels, p.height, p.width);
    return ct__count(padded.n, padded.d) >= 0 ||
           ct_infer_fail(infer, CT_ERR_SHAPE,
                         "with its padding the image would be %s: more elements than can be counted",
                         ct_dims_text(padded));
}

bool im2col_infer(ct_infer *infer) {
    const im2col_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    ct_window w;
    if (x->ndim != 4)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to be %s", ct_view_text(x),
                             a->channels_last ? "[N,H,W,C]" : "[N,C,H,W]");
    if (!check_kernel(infer, &a->kernel) || !resolve(infer, &w, x->dims + ct__image_spatial(a->channels_last),
                                                     &a->kernel, &a->strides, &a->pads, &a->dilations))
        return false;
    if (!check_padded(infer, &w, x->dims[0], x->dims[a->channels_last ? 3 : 1])) return false;
    const int64_t rows = ct__mul(x->dims[a->channels_last ? 3 : 1], ct__window_taps(&w)),
                  windows = ct__window_pixels_out(&w);
    const int64_t first[] = {x->dims[0], rows, windows}, last[] = {x->dims[0], windows, rows};
    ct__infer_set(infer, 0, x->dtype, 3, a->channels_last ? last : first);
    return true;
}

void im2col_lower(ct_lower *l) {
    const im2col_attrs *a = l->attrs;
    ct_tensor *x = l->in[0];
    const int spatial = ct__image_spatial(a->channels_last);
    const int64_t sizes[] = {ct_dim(x, spatial), ct_dim(x, spatial + 1)};
    ct_window w;
    resolve(NULL, &w, sizes, &a->kernel, &a->strides, &a->pads, &a->dilations);
    const patches p = patches_of(&w, ct_dim(x, 0), ct_dim(x, a->channels_last ? 3 : 1), a->channels_last);
    const ct_dims pads = a->channels_last ? CT_DIMS(w.before[1], w.after[1], w.before[2], w.after[2], 0, 0)
                                          : CT_DIMS(w.before[1], w.after[1], w.before[2], w.after[2]);
    const int64_t rows = p.channels * ct__window_taps(&w), windows = ct__window_pixels_out(&w);
    ct_dims shape, strides;
    strided_windows(&p, &shape, &strides);
    if (p.height != w.in[1] || p.width != w.in[2]) x = pad(x, pads);
    l->out[0] = reshape(as_strided(x, shape, strides, 0),
                        a->channels_last ? CT_DIMS(p.batch, windows, rows) : CT_DIMS(p.batch, rows, windows));
}

bool col2im_infer(ct_infer *infer) {
    const col2im_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    ct_window w;
    if (x->ndim != 3)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to be %s", ct_view_text(x),
                             a->channels_last ? "[N, windows, kh*kw*C]" : "[N, C*kh*kw, windows]");
    if (a->output_size.n != 2)
        return ct_infer_fail(infer, CT_ERR_VALUE, "output_size is %s; it takes 2 numbers",
                             ct_dims_text(a->output_size));
    if (!check_kernel(infer, &a->kernel) ||
        !resolve(infer, &w, a->output_size.d, &a->kernel, &a->strides, &a->pads, &a->dilations))
        return false;
    const int64_t taps = ct__window_taps(&w), windows = ct__window_pixels_out(&w), h = w.in[1], v = w.in[2];
    const int64_t rows = x->dims[a->channels_last ? 2 : 1], columns = x->dims[a->channels_last ? 1 : 2];
    if (rows % taps || columns != windows)
        return ct_infer_fail(
            infer, CT_ERR_SHAPE,
            "x is %s; an image of %lld by %lld has %lld windows of %lld elements per channel, so x has "
            "to have %lld columns of a multiple of %lld elements",
            ct_view_text(x), (long long)h, (long long)v, (long long)windows, (long long)taps, (long long)windows,
            (long long)taps);
    if (!check_padded(infer, &w, x->dims[0], rows / taps)) return false;
    const int64_t first[] = {x->dims[0], rows / taps, h, v}, last[] = {x->dims[0], h, v, rows / taps};
    ct__infer_set(infer, 0, x->dtype, 4, a->channels_last ? last : first);
    return true;
}

void col2im_lower(ct_lower *l) {
    const col2im_attrs *a = l->attrs;
    ct_tensor *x = l->in[0];
    ct_window w;
    resolve(NULL, &w, a->output_size.d, &a->kernel, &a->strides, &a->pads, &a->dilations);
    const int spatial = ct__image_spatial(a->channels_last);
    const int64_t channels = ct_dim(x, a->channels_last ? 2 : 1) / ct__window_taps(&w);
    const patches p = patches_of(&w, ct_dim(x, 0), channels, a->channels_last);
    ct_dims shape, strides;
    strided_windows(&p, &shape, &strides);
    ct_tensor *padded = strided_grad(reshape(x, shape),
                                     a->channels_last ? CT_DIMS(p.batch, p.height, p.width, channels)
                                                      : CT_DIMS(p.batch, channels, p.height, p.width),
                                     strides, 0);
    l->out[0] = narrow(narrow(padded, spatial, w.before[1], w.in[1]), spatial + 1, w.before[2], w.in[2]);
}
