/* The three internal ops of convolution: shapes, and derivatives in terms of each other.
 *   y = conv(x, w):             x' = conv_input_grad(y', w)    w' = conv_weight_grad(x, y')
 *   x = conv_input_grad(y, w):  y' = conv(x', w)               w' = conv_weight_grad(x', y)
 *   w = conv_weight_grad(x, y): x' = conv_input_grad(y, w')    y' = conv(x, w') */
#include "ops/conv/conv.h"
#include "ops/activation.h"

#include "ops/op_impl.h"

#define OPTIONS(attrs)                                               \
    (&(ct_conv_options){.window = {.strides = &(attrs)->strides,     \
                                   .dilations = &(attrs)->dilations, \
                                   .pads = &(attrs)->pads,           \
                                   .resolved = true},                \
                        .groups = (attrs)->groups,                   \
                        .channels_last = (attrs)->channels_last})

/* ---- Geometry ---- */

bool ct__conv_plain_geometry(const ct_infer *infer, ct_conv_geometry *geometry, const ct_view *x, const ct_view *w,
                             const ct_view *bias, const conv_attrs *attrs) {
    return ct__conv_resolve(infer, geometry, 0, x, w, bias, OPTIONS(attrs));
}

bool ct__conv_fused_geometry(const ct_infer *infer, ct_conv_geometry *geometry, const ct_view *x, const ct_view *w,
                             const ct_view *bias, const conv_fused_attrs *attrs) {
    return ct__conv_resolve(infer, geometry, 0, x, w, bias, OPTIONS(attrs));
}

/* The geometry of a gradient: one of the three tensors is not there yet, so x or w is made up from its sizes. */
static ct_view image_like(const ct_view *image, bool channels_last, int64_t channels, const ct_dims *size) {
    ct_view view = *image;
    view.dims[ct__image_channel(image->ndim, channels_last)] = channels;
    for (int i = 0; i < size->n; i++) view.dims[ct__image_spatial(channels_last) + i] = size->d[i];
    return view;
}

static bool fits(const ct_infer *infer, const ct_conv_geometry *geometry, const ct_view *g) {
    int64_t dims[CT_MAX_DIMS];
    ct_view y = {.dtype = g->dtype, .ndim = ct__conv_y_dims(geometry, dims)};
    bool same = y.ndim == g->ndim;
    for (int i = 0; i < y.ndim; i++) {
        y.dims[i] = dims[i];
        same &= dims[i] == g->dims[i];
    }
    if (same) return true;
    return infer ? ct_infer_fail(infer, CT_ERR_SHAPE, "g is %s; the convolution gives %s", ct_view_text(g),
                                 ct_view_text(&y))
                 : false;
}

static bool spatial_list(const ct_infer *infer, const char *name, const ct_dims *list, const ct_view *image) {
    bool good = image->ndim >= 3 && image->ndim <= 5 && list->n == image->ndim - 2;
    for (int i = 0; good && i < list->n; i++) good = list->d[i] >= 0;
    if (good || !infer) return good;
    return ct_infer_fail(infer, CT_ERR_SHAPE, "%s is %s; it needs a size for each spatial axis of %s", name,
                         ct_dims_text(*list), ct_view_text(image));
}

bool ct__conv_input_grad_geometry(const ct_infer *infer, ct_conv_geometry *geometry, const ct_view *g, const ct_view *w,
                                  const ct_view *bias, const conv_input_grad_attrs *attrs) {
    if (!spatial_list(infer, "size", &attrs->size, g)) return false;
    const int64_t each = w->ndim == g->ndim ? w->dims[attrs->channels_last ? w->ndim - 2 : 1] : 0;
    const int64_t channels = ct__mul(each, attrs->groups);
    const ct_view x = image_like(g, attrs->channels_last, channels, &attrs->size);
    if (!ct__conv_resolve(infer, geometry, 0, &x, w, NULL, OPTIONS(attrs)) || !fits(infer, geometry, g)) return false;
    if (infer && bias && (bias->ndim != 1 || bias->dims[0] != channels || bias->dtype != g->dtype))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "bias is %s; it has to be %s[%lld]", ct_view_text(bias),
                             ct_dtype_name(g->dtype), (long long)channels);
    geometry->y = ct__image_strides(g, attrs->channels_last);
    return true;
}

bool ct__conv_weight_grad_geometry(const ct_infer *infer, ct_conv_geometry *geometry, const ct_view *x,
                                   const ct_view *g, const conv_weight_grad_attrs *attrs) {
    if (!spatial_list(infer, "kernel", &attrs->kernel, x)) return false;
    const bool last = attrs->channels_last;
    const int rank = x->ndim - 2;
    ct_view w = {.dtype = x->dtype, .ndim = x->ndim};
    const int64_t in = x->dims[ct__image_channel(x->ndim, last)];
    w.dims[last ? rank + 1 : 0] = g->ndim == x->ndim ? g->dims[ct__image_channel(g->ndim, last)] : 0;
    w.dims[last ? rank : 1] = attrs->groups > 0 ? in / attrs->groups : 0;
    for (int i = 0; i < rank; i++) w.dims[(last ? 0 : 2) + i] = attrs->kernel.d[i];
    if (infer && g->dtype != x->dtype)
        return ct_infer_fail(infer, CT_ERR_DTYPE, "x is %s, g is %s; they need the same dtype", ct_view_text(x),
                             ct_view_text(g));
    if (!ct__conv_resolve(infer, geometry, 0, x, &w, NULL, OPTIONS(attrs)) || !fits(infer, geometry, g)) return false;
    geometry->y = ct__image_strides(g, last);
    return true;
}

/* ---- Shapes ---- */

static bool infer_y(ct_infer *infer, const ct_conv_geometry *geometry) {
    int64_t dims[CT_MAX_DIMS];
    ct__infer_set(infer, 0, infer->in[0]->dtype, ct__conv_y_dims(geometry, dims), dims);
    return true;
}

bool conv_infer(ct_infer *infer) {
    ct_conv_geometry geometry;
    return ct__conv_plain_geometry(infer, &geometry, infer->in[0], infer->in[1], infer->in[2], infer->attrs) &&
           infer_y(infer, &geometry);
}

bool conv_fused_infer(ct_infer *infer) {
    ct_conv_geometry geometry;
    return ct__conv_fused_geometry(infer, &geometry, infer->in[0], infer->in[1], infer->in[2], infer->attrs) &&
           infer_y(infer, &geometry) && ct__conv_check_residual(infer, infer->in[3]);
}

bool conv_fused_grad_infer(ct_infer *infer) {
    const conv_fused_grad_attrs *attrs = infer->attrs;
    const ct_view *g = infer->in[0], *y = infer->in[1], *x = infer->in[2], *w = infer->in[3];
    ct_conv_geometry geometry;
    if (!ct__conv_resolve(infer, &geometry, 0, x, w, NULL, OPTIONS(attrs)) || !fits(infer, &geometry, g)) return false;
    bool same = y && y->ndim == g->ndim && y->dtype == g->dtype;
    for (int i = 0; same && i < g->ndim; i++) same = y->dims[i] == g->dims[i];
    if (attrs->activation != CT_ACT_NONE && !same)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "for g %s y has to be the same, and is %s", ct_view_text(g),
                             y ? ct_view_text(y) : "missing");
    if (g->dtype != x->dtype)
        return ct_infer_fail(infer, CT_ERR_DTYPE, "x is %s, g is %s; they need the same dtype", ct_view_text(x),
                             ct_view_text(g));
    ct__infer_like(infer, 0, x, x->dtype);
    ct__infer_like(infer, 1, w, w->dtype);
    if (infer->n_out > 2) ct__infer_set(infer, 2, x->dtype, 1, &geometry.out_channels);
    return true;
}

bool conv_input_grad_infer(ct_infer *infer) {
    ct_conv_geometry geometry;
    if (!ct__conv_input_grad_geometry(infer, &geometry, infer->in[0], infer->in[1], infer->in[2], infer->attrs))
        return false;
    int64_t dims[CT_MAX_DIMS];
    ct__infer_set(infer, 0, infer->in[0]->dtype, ct__conv_x_dims(&geometry, dims), dims);
    return true;
}

bool conv_weight_grad_infer(ct_infer *infer) {
    ct_conv_geometry geometry;
    if (!ct__conv_weight_grad_geometry(infer, &geometry, infer->in[0], infer->in[1], infer->attrs)) return false;
    int64_t dims[CT_MAX_DIMS];
    ct__infer_set(infer, 0, infer->in[0]->dtype, ct__conv_w_dims(&geometry, dims), dims);
    ct__infer_set(infer, 1, infer->in[0]->dtype, 1, &geometry.out_channels);
    return true;
}

/* ---- Derivatives ---- */

/* The same convolution for another of the three ops. */
#define SAME(a)                                                                                     \
    .strides = (a)->strides, .dilations = (a)->dilations, .pads = (a)->pads, .groups = (a)->groups, \
    .channels_last = (a)->channels_last, .exact = (a)->exact

static ct_dims spatial_of(ct_tensor *image, bool channels_last) {
    ct_dims shape = ct_shape(image), size = {.n = shape.n - 2};
    for (int i = 0; i < size.n; i++) size.d[i] = shape.d[ct__image_spatial(channels_last) + i];
    return size;
}

static ct_dims kernel_of(const ct_tensor *w, bool channels_last) {
    ct_dims shape = ct_shape(w), kernel = {.n = shape.n - 2};
    for (int i = 0; i < kernel.n; i++) kernel.d[i] = shape.d[(channels_last ? 0 : 2) + i];
    return kernel;
}

/* The sum over everything but channels. */
static ct_tensor *channel_sum(ct_tensor *g, bool channels_last) {
    unsigned axes = (1u << ct_ndim(g)) - 1;
    return sum(g, .axes = ct__axes_list(axes & ~(1u << ct__image_channel(ct_ndim(g), channels_last))));
}

#define CONV_VJP(a)                                                                                                   \
    do {                                                                                                              \
        if (v->need[0]) v->grad[0] = conv_input_grad(g, v->in[1], spatial_of(v->in[0], (a)->channels_last), SAME(a)); \
        if (v->need[1])                                                                                               \
            v->grad[1] = conv_weight_grad(v->in[0], g, kernel_of(v->in[1], (a)->channels_last), SAME(a),              \
                                          .bias_grad = v->need[2] ? &v->grad[2] : NULL);                              \
        else if (v->need[2]) v->grad[2] = channel_sum(g, (a)->channels_last);                                         \
    } while (0)

void conv_vjp(ct_vjp *v) {
    const conv_attrs *attrs = v->attrs;
    ct_tensor *g = v->cot[0];
    CONV_VJP(attrs);
}

void conv_fused_saves_less(ct_saving *s) {
    if (((const conv_fused_attrs *)s->attrs)->activation == CT_ACT_NONE) s->saves.out = 0;
}

void conv_fused_vjp(ct_vjp *v) {
    const conv_fused_attrs *attrs = v->attrs;
    ct_tensor *y = v->out[0], *g = v->cot[0];
    /* Where a device has a kernel for it all gradients are one op: they read the same cotangent, and may want it in another layout. */
    if (v->need[0] && v->need[1] && !v->need[3] && !attrs->channels_last && attrs->groups == 1 &&
        ct_op_kernel(&ct__op_conv_fused_grad, ct_device_of(g).type, 0)) {
        const conv_fused_grad_attrs grad_attrs = {SAME(attrs), .activation = attrs->activation};
        ct_tensor *in[] = {g, attrs->activation == CT_ACT_NONE ? NULL : y, v->in[0], v->in[1]};
        ct_apply_with(&ct__op_conv_fused_grad, in, 4, &grad_attrs, v->grad, v->need[2] ? 3 : 2, v->need, NULL);
        return;
    }
    g = ct__activation_grad(v->op, g, y, attrs->activation);
    if (!g) return;
    CONV_VJP(attrs);
    if (v->need[3]) v->grad[3] = g;
}

void conv_fused_lower(ct_lower *l) {
    const conv_fused_attrs *attrs = l->attrs;
    ct_tensor *y = conv(l->in[0], l->in[1], .bias = l->in[2], SAME(attrs));
    if (l->in[3]) y = add(y, l->in[3]);
    l->out[0] = ct__activated(y, attrs->activation);
}

void conv_fused_grad_lower(ct_lower *l) {
    const conv_fused_grad_attrs *attrs = l->attrs;
    ct_tensor *x = l->in[2], *w = l->in[3], *g = ct__activation_grad(l->op, l->in[0], l->in[1], attrs->activation);
    if (!g) return;
    const bool bias = l->n_out > 2 && l->want[2];
    if (l->want[0]) l->out[0] = conv_input_grad(g, w, spatial_of(x, attrs->channels_last), SAME(attrs));
    if (l->want[1])
        l->out[1] = conv_weight_grad(x, g, kernel_of(w, attrs->channels_last), SAME(attrs),
                                     .bias_grad = bias ? &l->out[2] : NULL);
    else if (bias) l->out[2] = channel_sum(g, attrs->channels_last);
}

void conv_input_grad_vjp(ct_vjp *v) {
    const conv_input_grad_attrs *attrs = v->attrs;
    ct_tensor *gx = v->cot[0];
    if (v->need[0]) v->grad[0] = conv(gx, v->in[1], SAME(attrs));
    if (v->need[1]) v->grad[1] = conv_weight_grad(gx, v->in[0], kernel_of(v->in[1], attrs->channels_last), SAME(attrs));
    if (v->need[2]) v->grad[2] = channel_sum(gx, attrs->channels_last);
}

void conv_weight_grad_vjp(ct_vjp *v) {
    const conv_weight_grad_attrs *attrs = v->attrs;
    ct_tensor *x = v->in[0], *g = v->in[1], *gw = v->cot[0], *gb = v->n_out > 1 ? v->cot[1] : NULL;
    if (v->need[0] && gw) v->grad[0] = conv_input_grad(g, gw, spatial_of(x, attrs->channels_last), SAME(attrs));
    if (!v->need[1]) return;
    /* g also enters the sum that bias_grad is. */
    if (gw) v->grad[1] = conv(x, gw, .bias = gb, SAME(attrs));
    else if (gb) {
        const ct_dims shape = ct_shape(g);
        ct_dims along = {.n = shape.n};
        for (int i = 0; i < shape.n; i++) along.d[i] = 1;
        along.d[ct__image_channel(shape.n, attrs->channels_last)] = ct_dim(gb, 0);
        v->grad[1] = expand(reshape(gb, along), shape);
    }
}
