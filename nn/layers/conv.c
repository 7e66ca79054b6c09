/* Convolutions: plain and transposed over one to three axes, depthwise, separable and deformable. One set of options and
 * one data struct serve all of them. */
#include <math.h>

#include "nn/module.h"

typedef struct conv {
    int64_t in, out;
    int axes;
    bool transposed;
    ct_nn_conv_options o; /* with kernels, and without what it says twice */
    ct_dims border_pads;  /* for ct_pad, before the convolution: where the border is not zeros */
} conv;

/* ---- Forward ---- */

static ct_tensor *apply(const conv *c, ct_tensor *x, ct_tensor *w, ct_tensor *bias, ct_activation activation) {
    const ct_nn_conv_options *o = &c->o;
#define GEOMETRY                                                                                                     \
    .bias = bias, .stride = o->stride, .strides = o->strides, .dilation = o->dilation, .dilations = o->dilations,    \
    .pad = o->pad, .pads = o->pads, .pad_mode = o->pad_mode, .groups = o->groups, .channels_last = o->channels_last, \
    .activation = activation
#define TRANSPOSED GEOMETRY, .output_padding = o->output_padding, .output_paddings = o->output_paddings
    switch (c->axes + (c->transposed ? 3 : 0)) {
    case 1: return ct_conv1d(x, w, GEOMETRY);
    case 2: return ct_conv2d(x, w, GEOMETRY);
    case 3: return ct_conv3d(x, w, GEOMETRY);
    case 4: return ct_conv_transpose1d(x, w, TRANSPOSED);
    case 5: return ct_conv_transpose2d(x, w, TRANSPOSED);
    default: return ct_conv_transpose3d(x, w, TRANSPOSED);
    }
#undef TRANSPOSED
#undef GEOMETRY
}

static ct_tensor *conv_then(ct_module *self, ct_tensor *x, ct_activation activation) {
    const conv *c = ct_module_data(self);
    if (c->border_pads.n) x = ct_pad(x, c->border_pads, .mode = c->o.border);
    ct_tensor *weight = ct_module_param(self, 0), *bias = ct_module_param(self, 1);
    if (c->o.activation == CT_ACT_NONE) return apply(c, x, weight, bias, activation);
    return ct__activate(apply(c, x, weight, bias, c->o.activation), activation);
}

static ct_tensor *conv_forward(ct_module *self, ct_tensor *x) { return conv_then(self, x, CT_ACT_NONE); }

/* Tensors in: x. The offsets (and weights of taps) come from the child. */
static ct_tensor *deform_forward(ct_module *self, ct_tensor *x) {
    const conv *c = ct_module_data(self);
    const ct_nn_conv_options *o = &c->o;
    ct_tensor *offset = ct_forward(ct_module_child(self, 0), x), *mask = NULL;
    if (!offset) return NULL;
    if (o->modulated) {
        const int axis = o->channels_last ? 3 : 1;
        const int64_t taps = ct_dim(offset, axis) / 3;
        ct_tensor *parts[2];
        if (!ct_split(offset, axis, CT_DIMS(2 * taps, taps), parts, 2)) return NULL;
        offset = parts[0];
        mask = ct_sigmoid(parts[1]);
    }
    ct_tensor *y =
        ct_deform_conv2d(x, offset, ct_module_param(self, 0), .bias = ct_module_param(self, 1), .mask = mask,
                         .stride = o->stride, .strides = o->strides, .pad = o->pad, .pads = o->pads,
                         .dilation = o->dilation, .dilations = o->dilations, .groups = o->groups,
                         .offset_groups = o->offset_groups, .pad_mode = o->pad_mode, .channels_last = o->channels_last);
    return ct__activate(y, o->activation);
}

/* ---- Printing ---- */

static void conv_describe(const ct_module *self, char *text, size_t capacity) {
    const conv *c = ct_module_data(self);
    const ct_nn_conv_options *o = &c->o;
    ct__writer w = {text, capacity, 0};
    ct__write(&w, "%lld, %lld", (long long)c->in, (long long)c->out);
    ct__write_axes(&w, "kernel", 0, &o->kernels);
    ct__write_axes(&w, "stride", o->stride, &o->strides);
    ct__write_axes(&w, "dilation", o->dilation, &o->dilations);
    ct__write_axes(&w, "pad", o->pad, c->border_pads.n ? &c->border_pads : &o->pads);
    ct__write_axes(&w, "output_padding", o->output_padding, &o->output_paddings);
    if (o->pad_mode != CT_EXPLICIT) ct__write(&w, ", pad=%s", o->pad_mode == CT_SAME ? "same" : "valid");
    if (o->groups > 1) ct__write(&w, ", groups=%lld", (long long)o->groups);
    if (o->no_bias) ct__write(&w, ", no_bias");
    if (o->channels_last) ct__write(&w, ", channels_last");
    ct__write_activation(&w, o->activation);
}

/* ---- Making ---- */

static bool conv_channels_last(const ct_module *self) { return ((const conv *)ct_module_data(self))->o.channels_last; }

#define CONV_CLASS(id, text)                                                    \
    static const ct_module_class id##_class = {.size = sizeof(ct_module_class), \
                                               .name = text,                    \
                                               .state = sizeof(conv),           \
                                               .forward = conv_forward,         \
                                               .forward_then = conv_then,       \
                                               .describe = conv_describe,       \
                                               .channels_last = conv_channels_last};
CONV_CLASS(conv1d, "conv1d")
CONV_CLASS(conv2d, "conv2d")
CONV_CLASS(conv3d, "conv3d")
CONV_CLASS(conv_transpose1d, "conv_transpose1d")
CONV_CLASS(conv_transpose2d, "conv_transpose2d")
CONV_CLASS(conv_transpose3d, "conv_transpose3d")
CONV_CLASS(depthwise_conv2d, "depthwise_conv2d")
static const ct_module_class deform_class = {.size = sizeof(ct_module_class),
                                             .name = "deform_conv2d",
                                             .state = sizeof(conv),
                                             .forward = deform_forward,
                                             .describe = conv_describe,
                                             .channels_last = conv_channels_last};

/* The padding moves into border_pads: before and after for each axis, and nothing for channels that come last. */
static bool take_border(conv *c, const char *function) {
    ct_nn_conv_options *o = &c->o;
    if (o->border == CT_PAD_CONSTANT) return true;
    if ((unsigned)o->border > CT_PAD_CIRCULAR || o->pad_mode != CT_EXPLICIT || c->transposed)
        return ct_fail(CT_ERR_VALUE, function, "border is for plain convolutions with explicit pads");
    const int n = c->axes;
    if (o->pads.n && o->pads.n != 1 && o->pads.n != n && o->pads.n != 2 * n)
        return ct_fail(CT_ERR_VALUE, function, "pads has %d numbers, expected %d or %d", o->pads.n, n, 2 * n);
    for (int i = 0; i < 2 * n; i++) {
        const ct_dims *p = &o->pads;
        c->border_pads.d[i] = p->n == 0 ? o->pad : p->d[p->n == 1 ? 0 : p->n == n ? i / 2 : i];
    }
    c->border_pads.n = 2 * n;
    if (o->channels_last) {
        c->border_pads.d[c->border_pads.n++] = 0;
        c->border_pads.d[c->border_pads.n++] = 0;
    }
    o->pad = 0;
    o->pads = CT_DIMS0;
    return true;
}

static bool check(const conv *c, int64_t kernel, const char *function) {
    const ct_nn_conv_options *o = &c->o;
    if (!ct_ok() || !ct__positive(function, "in", c->in) || !ct__positive(function, "out", c->out) ||
        !ct__is_activation(function, o->activation))
        return false;
    if (!ct__is_list(function, "strides", o->strides) || !ct__is_list(function, "dilations", o->dilations) ||
        !ct__is_list(function, "pads", o->pads) || !ct__is_list(function, "output_paddings", o->output_paddings))
        return false;
    if (o->kernels.n < 0 || (o->kernels.n > 1 && o->kernels.n != c->axes))
        return ct_fail(CT_ERR_VALUE, function, "kernels has %d numbers, expected %d", o->kernels.n, c->axes);
    for (int i = 0; i < (o->kernels.n ? o->kernels.n : 1); i++)
        if (!ct__positive(function, "kernel", o->kernels.n ? o->kernels.d[i] : kernel)) return false;
    if (o->groups < 0 || (o->groups > 1 && (c->in % o->groups != 0 || c->out % o->groups != 0)))
        return ct_fail(CT_ERR_VALUE, function, "%lld channels in and %lld out cannot be divided into %lld groups",
                       (long long)c->in, (long long)c->out, (long long)o->groups);
    return true;
}

/* [out, in, k...] or [k..., in, out], where in and out are those of the plain convolution and the first of the two, of the
 * layout's order, is cut by groups. */
static ct_dims weight_shape(const conv *c) {
    const int64_t groups = c->o.groups ? c->o.groups : 1;
    const int64_t outer = c->transposed ? c->in : c->out, inner = (c->transposed ? c->out : c->in) / groups;
    ct_dims shape = {.n = c->axes + 2};
    const int first = c->o.channels_last ? 0 : 2;
    for (int i = 0; i < c->axes; i++) shape.d[first + i] = c->o.kernels.d[c->o.kernels.n == 1 ? 0 : i];
    shape.d[c->o.channels_last ? c->axes + 1 : 0] = outer;
    shape.d[c->o.channels_last ? c->axes : 1] = inner;
    return shape;
}

static ct_module *make(const ct_module_class *type, const char *function, conv c, int64_t kernel) {
    if (!check(&c, kernel, function)) return NULL;
    if (!c.o.kernels.n) c.o.kernels = CT_DIMS(kernel);
    if (!take_border(&c, function)) return NULL;
    ct_module *module = ct_module_new(type);
    if (!module) return NULL;
    *(conv *)ct_module_data(module) = c;
    const ct_dims shape = weight_shape(&c);
    double fan = 1;
    for (int i = 0; i < shape.n; i++) fan *= (double)shape.d[i];
    const double bound = 1 / sqrt(fan / (double)(c.transposed ? c.in : c.out));
    return ct__finish(module, ct__add_uniform(module, "weight", shape, bound) &&
                                  (c.o.no_bias || ct__add_uniform(module, "bias", CT_DIMS(c.out), bound)));
}

#define CONV_MAKER(id, number, is_transposed)                                                               \
    ct_module *ct_nn_##id##_p(int64_t in, int64_t out, int64_t kernel, const ct_nn_conv_options *options) { \
        conv c = {.in = in, .out = out, .axes = number, .transposed = is_transposed};                       \
        ct__take_options("ct_nn_conv_options", &c.o, sizeof c.o, options);                                  \
        return make(&id##_class, "nn_" #id, c, kernel);                                                     \
    }
CONV_MAKER(conv1d, 1, false)
CONV_MAKER(conv2d, 2, false)
CONV_MAKER(conv3d, 3, false)
CONV_MAKER(conv_transpose1d, 1, true)
CONV_MAKER(conv_transpose2d, 2, true)
CONV_MAKER(conv_transpose3d, 3, true)

ct_module *ct_nn_depthwise_conv2d_p(int64_t channels, int64_t kernel, const ct_nn_conv_options *options) {
    conv c = {.in = channels, .axes = 2};
    ct__take_options("ct_nn_conv_options", &c.o, sizeof c.o, options);
    const int64_t multiplier = c.o.multiplier ? c.o.multiplier : 1;
    if (!ct_ok() || !ct__positive("nn_depthwise_conv2d", "channels", channels) ||
        !ct__positive("nn_depthwise_conv2d", "multiplier", multiplier))
        return NULL;
    c.out = channels * multiplier;
    c.o.groups = channels;
    return make(&depthwise_conv2d_class, "nn_depthwise_conv2d", c, kernel);
}

ct_module *ct_nn_separable_conv2d_p(int64_t in, int64_t out, int64_t kernel, const ct_nn_conv_options *options) {
    TAKE_OPTIONS(ct_nn_conv_options, o, options);
    const int64_t multiplier = o.multiplier ? o.multiplier : 1;
    if (!ct_ok() || !ct__positive("nn_separable_conv2d", "in", in) ||
        !ct__positive("nn_separable_conv2d", "multiplier", multiplier))
        return NULL;
    const int64_t inside = in * multiplier;
    ct_nn_conv_options first = o;
    first.no_bias = true;
    first.activation = CT_ACT_NONE;
    ct_module *module = ct__sequential_new("separable_conv2d");
    return ct__finish(module,
                      module && ct_module_add(module, "depthwise", ct_nn_depthwise_conv2d_p(in, kernel, &first)) &&
                          ct_module_add(module, "pointwise",
                                        ct_nn_conv2d(inside, out, 1, .no_bias = o.no_bias,
                                                     .channels_last = o.channels_last, .activation = o.activation)));
}

ct_module *ct_nn_deform_conv2d_p(int64_t in, int64_t out, int64_t kernel, const ct_nn_conv_options *options) {
    conv c = {.in = in, .out = out, .axes = 2};
    ct__take_options("ct_nn_conv_options", &c.o, sizeof c.o, options);
    if (c.o.border != CT_PAD_CONSTANT) {
        ct_fail(CT_ERR_VALUE, "nn_deform_conv2d", "border is for plain convolutions with explicit pads");
        return NULL;
    }
    ct_module *module = make(&deform_class, "nn_deform_conv2d", c, kernel);
    if (!module) return NULL;
    const conv *made = ct_module_data(module);
    const ct_dims *k = &made->o.kernels;
    const int64_t window = k->d[0] * k->d[k->n == 1 ? 0 : 1], groups = c.o.offset_groups ? c.o.offset_groups : 1;
    if (!ct__positive("nn_deform_conv2d", "the window", window) ||
        !ct__positive("nn_deform_conv2d", "offset_groups", groups))
        return ct__finish(module, false);
    const int64_t taps = window * groups;
    ct_nn_conv_options o = c.o;
    o.groups = 1;
    o.no_bias = false;
    o.activation = CT_ACT_NONE;
    ct_module *offset = ct_nn_conv2d_p(in, (c.o.modulated ? 3 : 2) * taps, kernel, &o);
    bool ok = offset && ct_init_zeros(ct_module_param(offset, 0)) && ct_init_zeros(ct_module_param(offset, 1));
    if (!ok) ct_module_free(offset);
    return ct__finish(module, ok && ct_module_add(module, "offset", offset));
}
