/* Columns for deformable convolution in ops: the four pixels around each place are gathered, indices without and weights with gradients.
 * Channels first; the row of channel c and tap k is c * taps + k. */
#include "ops/deform/deform.h"

#include "ops/op_impl.h"

#define OPTIONS(a)         \
    (&(ct_window_options){ \
        .strides = &(a)->strides, .pads = &(a)->pads, .dilations = &(a)->dilations, .pad_mode = CT_EXPLICIT})

/* ---- Shapes ---- */

static bool resolved(const ct_infer *infer, ct_deform *d, const ct_view *x, const ct_view *offset, const ct_view *mask,
                     const ct_dims *kernel, const ct_window_options *options, int64_t offset_groups) {
    if (x->ndim != 4 || kernel->n != 2)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and kernel %s; it takes 4 dimensions and 2 numbers",
                             ct_view_text(x), ct_dims_text(*kernel));
    if (!ct__deform_resolve(infer, d, x, kernel->d, options, x->dims[1], 1, offset_groups, false)) return false;
    const int64_t taps = ct__mul(offset_groups, d->taps);
    const int64_t moves[] = {d->batch, ct__mul(2, taps), d->w.out[1], d->w.out[2]},
                  masks[] = {d->batch, taps, d->w.out[1], d->w.out[2]};
    for (int i = 0; i < infer->n_in; i++) {
        if (infer->in[i] == offset && !ct__infer_is(infer, i, 4, moves)) return false;
        if (mask && infer->in[i] == mask && !ct__infer_is(infer, i, 4, masks)) return false;
    }
    return true;
}

bool deform_columns_infer(ct_infer *infer) {
    const deform_columns_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    ct_deform d;
    if (!resolved(infer, &d, x, infer->in[1], infer->in[2], &a->kernel, OPTIONS(a), a->offset_groups)) return false;
    ct__infer_set(infer, 0, x->dtype, 3, (const int64_t[]){d.batch, ct__mul(d.channels, d.taps), d.pixels});
    return true;
}

bool deform_columns_grad_infer(ct_infer *infer) {
    const deform_columns_grad_attrs *a = infer->attrs;
    const ct_view *x = infer->in[1];
    ct_deform d;
    if (!resolved(infer, &d, x, infer->in[2], infer->in[3], &a->kernel, OPTIONS(a), a->offset_groups)) return false;
    if (!ct__infer_is(infer, 0, 3, (const int64_t[]){d.batch, ct__mul(d.channels, d.taps), d.pixels})) return false;
    ct__infer_like(infer, 0, x, x->dtype);
    const int64_t taps = d.offset_groups * d.taps;
    if (infer->n_out > 1) ct__infer_like(infer, 1, infer->in[2], x->dtype);
    if (infer->n_out > 2)
        ct__infer_set(infer, 2, x->dtype, 4, (const int64_t[]){d.batch, taps, d.w.out[1], d.w.out[2]});
    return true;
}

/* ---- In ops ---- */

static ct_deform geometry(ct_tensor *x, const ct_dims *kernel, const ct_window_options *options,
                          int64_t offset_groups) {
    ct_deform d;
    ct_view image = {.ndim = 4};
    for (int i = 0; i < 4; i++) image.dims[i] = ct_dim(x, i);
    ct__deform_resolve(NULL, &d, &image, kernel->d, options, image.dims[1], 1, offset_groups, false);
    return d;
}

/* Around every place: the four pixels' values [N,G,C/G,taps*pixels], and along both axes the weights of the lower and the upper
 * one, 0 where that lies outside, and their derivatives -1 and 1 or 0; [N,G,1,taps*pixels]. */
typedef struct samples {
    ct_tensor *value[2][2], *weight[2][2], *slope[2][2]; /* weight and slope: [axis][upper] */
    ct_tensor *index[2][2], *mask;
    ct_dims shape; /* of the values */
} samples;

static samples sample(const ct_deform *d, ct_tensor *x, ct_tensor *offset, ct_tensor *mask) {
    const ct_window *w = &d->w;
    const int64_t n = d->batch, g = d->offset_groups, each = d->channels / g, places = d->taps * d->pixels;
    samples s = {.shape = CT_DIMS(n, g, each, places)};
    ct_tensor *element[2][2], *inside[2][2];
    const ct_dims flat = CT_DIMS(n, g, 1, places);
    offset = reshape(offset, CT_DIMS(n, g, d->taps, 2, d->pixels));
    for (int axis = 0; axis < 2; axis++) {
        const int a = 1 + axis;
        /* where tap k of pixel o lies before it is moved: [kernel, kernel, out, out], one of each varies */
        const ct_dims taps = axis ? CT_DIMS(1, w->kernel[2], 1, 1) : CT_DIMS(w->kernel[1], 1, 1, 1);
        const ct_dims pixels = axis ? CT_DIMS(1, 1, 1, w->out[2]) : CT_DIMS(1, 1, w->out[1], 1);
        ct_tensor *k = reshape(mul_s(ct__counted(w->kernel[a]), (double)w->dilation[a]), taps);
        ct_tensor *o =
            reshape(add_s(mul_s(ct__counted(w->out[a]), (double)w->stride[a]), -(double)w->before[a]), pixels);
        ct_tensor *base =
            reshape(expand(ct_add(k, o), CT_DIMS(w->kernel[1], w->kernel[2], w->out[1], w->out[2])), CT_DIMS(places));
        ct_tensor *moved = reshape(select(offset, 3, axis), flat);
        ct_tensor *place = ct_add(moved, cast(base, ct_dtype_of(x))), *low = ct_floor(ct_detach(place));
        ct_tensor *part = sub(place, low);
        for (int upper = 0; upper < 2; upper++) {
            ct_tensor *pixel = add_s(low, upper);
            ct_tensor *zero = zeros_like(part);
            inside[axis][upper] = logical_and(ge_s(pixel, 0), le_s(pixel, (double)(w->in[a] - 1)));
            element[axis][upper] = cast(clamp(pixel, .min = CT_SET(0), .max = CT_SET((double)(w->in[a] - 1))), CT_I64);
            s.weight[axis][upper] = where(inside[axis][upper], upper ? part : add_s(neg(part), 1), zero);
            s.slope[axis][upper] = where(inside[axis][upper], add_s(zero, upper ? 1 : -1), zero);
        }
    }
    x = reshape(x, CT_DIMS(n, g, each, w->in[1] * w->in[2]));
    for (int v = 0; v < 2; v++)
        for (int u = 0; u < 2; u++) {
            ct_tensor *flat_index = ct_add(mul_s(element[0][v], (double)w->in[2]), element[1][u]);
            s.index[v][u] = expand(flat_index, s.shape);
            s.value[v][u] =
                masked_fill(gather(x, 3, s.index[v][u]), logical_not(logical_and(inside[0][v], inside[1][u])), 0);
        }
    s.mask = mask ? reshape(mask, flat) : NULL;
    return s;
}

/* Sum over the four pixels of value * (a weight or slope of each axis). */
static ct_tensor *blend(const samples *s, ct_tensor *const (*y)[2], ct_tensor *const (*x)[2]) {
    ct_tensor *total = NULL;
    for (int v = 0; v < 2; v++)
        for (int u = 0; u < 2; u++) {
            ct_tensor *term = mul(s->value[v][u], mul((*y)[v], (*x)[u]));
            total = total ? ct_add(total, term) : term;
        }
    return total;
}

#define WEIGHT(axis) ((ct_tensor *const(*)[2]) & s.weight[axis])
#define SLOPE(axis)  ((ct_tensor *const(*)[2]) & s.slope[axis])

void deform_columns_lower(ct_lower *l) {
    const deform_columns_attrs *a = l->attrs;
    const ct_deform d = geometry(l->in[0], &a->kernel, OPTIONS(a), a->offset_groups);
    const samples s = sample(&d, l->in[0], l->in[1], l->in[2]);
    ct_tensor *c = blend(&s, WEIGHT(0), WEIGHT(1));
    if (s.mask) c = mul(c, s.mask);
    l->out[0] = reshape(c, CT_DIMS(d.batch, d.channels * d.taps, d.pixels));
}

void deform_columns_grad_lower(ct_lower *l) {
    const deform_columns_grad_attrs *a = l->attrs;
    const ct_deform d = geometry(l->in[1], &a->kernel, OPTIONS(a), a->offset_groups);
    const int64_t n = d.batch, g = d.offset_groups;
    const samples s = sample(&d, l->in[1], l->in[2], l->in[3]);
    ct_tensor *open = reshape(l->in[0], s.shape); /* without the mask */
    ct_tensor *dc = s.mask ? mul(open, s.mask) : open, *dx = NULL;
    const ct_dims planes = CT_DIMS(n, g, d.channels / g, d.w.in[1] * d.w.in[2]);
    for (int v = 0; v < 2; v++)
        for (int u = 0; u < 2; u++) {
            ct_tensor *part = mul(dc, mul(s.weight[0][v], s.weight[1][u])), *at = contiguous(s.index[v][u]);
            ct_tensor *term = gather_grad(part, at, planes, 3);
            dx = dx ? ct_add(dx, term) : term;
        }
    l->out[0] = reshape(dx, CT_DIMS(n, d.channels, d.w.in[1], d.w.in[2]));
    if (l->n_out > 1 && l->want[1]) {
        const ct_dims places = CT_DIMS(n, g, d.taps, 1, d.pixels), axis = CT_DIMS(2);
        ct_tensor *moves[2] = {reshape(sum(mul(dc, blend(&s, SLOPE(0), WEIGHT(1))), .axes = axis), places),
                               reshape(sum(mul(dc, blend(&s, WEIGHT(0), SLOPE(1))), .axes = axis), places)};
        l->out[1] = reshape(cat(moves, 2, 3), CT_DIMS(n, 2 * g * d.taps, d.w.out[1], d.w.out[2]));
    }
    if (l->n_out > 2 && l->want[2]) {
        ct_tensor *dm = sum(mul(open, blend(&s, WEIGHT(0), WEIGHT(1))), .axes = CT_DIMS(2));
        l->out[2] = reshape(dm, CT_DIMS(n, g * d.taps, d.w.out[1], d.w.out[2]));
    }
}
