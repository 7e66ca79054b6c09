/* Layers that only rearrange: flatten, unflatten, permute, pad, upsample, pixel shuffle, identity. */
#include "nn/module.h"

/* What all of them need; each uses a part. */
typedef struct shape {
    ct_dims dims;
    int64_t a, b;
    double value;
    ct_nn_upsample_options up;
} shape;

#define SHAPE_CLASS(id)                                                         \
    static const ct_module_class id##_class = {.size = sizeof(ct_module_class), \
                                               .name = #id,                     \
                                               .state = sizeof(shape),          \
                                               .forward = id##_forward,         \
                                               .describe = id##_describe};

static ct_module *make(const ct_module_class *type, const shape *s) {
    if (!ct_ok()) return NULL;
    ct_module *module = ct_module_new(type);
    if (module && type->state) *(shape *)ct_module_data(module) = *s;
    return module;
}

static ct_tensor *flatten_forward(ct_module *self, ct_tensor *x) {
    const shape *s = ct_module_data(self);
    if (s->a == 1 && s->b == -1 && ct_ndim(x) == 2) return x;
    return ct_flatten(x, .start = s->a, .end = CT_SET(s->b));
}
static void flatten_describe(const ct_module *self, char *text, size_t capacity) {
    const shape *s = ct_module_data(self);
    if (s->a != 1 || s->b != -1)
        ct__write(&(ct__writer){text, capacity, 0}, "%lld, %lld", (long long)s->a, (long long)s->b);
}
SHAPE_CLASS(flatten)
ct_module *ct_nn_flatten(void) { return ct_nn_flatten_axes(1, -1); }
ct_module *ct_nn_flatten_axes(int64_t start, int64_t end) {
    return make(&flatten_class, &(shape){.a = start, .b = end});
}

static ct_tensor *unflatten_forward(ct_module *self, ct_tensor *x) {
    const shape *s = ct_module_data(self);
    const ct_dims from = ct_shape(x);
    const int64_t axis = s->a < 0 ? s->a + from.n : s->a;
    if (axis < 0 || axis >= from.n || from.n + s->dims.n - 1 > CT_MAX_DIMS) {
        ct_fail(CT_ERR_SHAPE, "unflatten", "x is %s: axis %lld cannot become %s", ct_tensor_text(x), (long long)s->a,
                ct_dims_text(s->dims));
        return NULL;
    }
    int64_t product = 1;
    bool overflow = false;
    for (int i = 0; i < s->dims.n; i++) overflow |= __builtin_mul_overflow(product, s->dims.d[i], &product);
    if (overflow || product == INT64_MIN ||
        (product > 0 ? product != from.d[axis] : product == 0 || from.d[axis] % product != 0)) {
        ct_fail(CT_ERR_SHAPE, "unflatten", "x is %s: axis %lld cannot become %s", ct_tensor_text(x), (long long)s->a,
                ct_dims_text(s->dims));
        return NULL;
    }
    ct_dims to = {0};
    for (int i = 0; i < from.n; i++) {
        if (i != axis) {
            to.d[to.n++] = from.d[i];
            continue;
        }
        for (int j = 0; j < s->dims.n; j++) to.d[to.n++] = s->dims.d[j] == -1 ? from.d[axis] / -product : s->dims.d[j];
    }
    return ct_reshape(x, to);
}
static void unflatten_describe(const ct_module *self, char *text, size_t capacity) {
    const shape *s = ct_module_data(self);
    ct__write(&(ct__writer){text, capacity, 0}, "%lld, %s", (long long)s->a, ct_dims_text(s->dims));
}
SHAPE_CLASS(unflatten)
ct_module *ct_nn_unflatten(int64_t axis, ct_dims dims) {
    if (!ct__is_list("nn_unflatten", "shape", dims)) return NULL;
    return make(&unflatten_class, &(shape){.a = axis, .dims = dims});
}

static void dims_describe(const ct_module *self, char *text, size_t capacity) {
    ct__write(&(ct__writer){text, capacity, 0}, "%s", ct_dims_text(((const shape *)ct_module_data(self))->dims));
}

static ct_tensor *permute_forward(ct_module *self, ct_tensor *x) {
    return ct_permute(x, ((const shape *)ct_module_data(self))->dims);
}
#define permute_describe dims_describe
SHAPE_CLASS(permute)
ct_module *ct_nn_permute(ct_dims axes) {
    if (!ct__is_list("nn_permute", "axes", axes)) return NULL;
    return make(&permute_class, &(shape){.dims = axes});
}

static ct_tensor *pad_forward(ct_module *self, ct_tensor *x) {
    const shape *s = ct_module_data(self);
    return ct_pad(x, s->dims, .mode = (ct_pad_kind)s->a, .value = s->value);
}
#define pad_describe dims_describe
SHAPE_CLASS(pad)
ct_module *ct_nn_pad(ct_dims pads, ct_pad_kind mode, double value) {
    if (!ct__is_list("nn_pad", "pads", pads)) return NULL;
    return make(&pad_class, &(shape){.dims = pads, .a = mode, .value = value});
}

static ct_tensor *upsample_forward(ct_module *self, ct_tensor *x) {
    const shape *s = ct_module_data(self);
    return ct_interpolate(x, .output_size = s->up.output_size, .scale = s->up.output_size.n ? 0 : s->value,
                          .mode = s->up.mode, .align_corners = s->up.align_corners,
                          .channels_last = s->up.channels_last);
}
static void upsample_describe(const ct_module *self, char *text, size_t capacity) {
    const shape *s = ct_module_data(self);
    static const char *const modes[] = {"nearest", "linear", "bilinear",     "trilinear",
                                        "bicubic", "area",   "nearest_exact"};
    ct__writer w = {text, capacity, 0};
    if (s->up.output_size.n) ct__write(&w, "%s", ct_dims_text(s->up.output_size));
    else ct__write(&w, "%g", s->value);
    if ((unsigned)s->up.mode < sizeof modes / sizeof *modes) ct__write(&w, ", %s", modes[s->up.mode]);
}
SHAPE_CLASS(upsample)
ct_module *ct_nn_upsample_p(double scale, const ct_nn_upsample_options *options) {
    TAKE_OPTIONS(ct_nn_upsample_options, o, options);
    if (!ct__is_list("nn_upsample", "output_size", o.output_size)) return NULL;
    if (ct_ok() && !o.output_size.n && !(scale > 0)) ct_fail(CT_ERR_VALUE, "nn_upsample", "scale is %g", scale);
    return make(&upsample_class, &(shape){.value = scale, .up = o});
}

static void factor_describe(const ct_module *self, char *text, size_t capacity) {
    ct__write(&(ct__writer){text, capacity, 0}, "%lld", (long long)((const shape *)ct_module_data(self))->a);
}
static ct_tensor *pixel_shuffle_forward(ct_module *self, ct_tensor *x) {
    const shape *s = ct_module_data(self);
    return ct_pixel_shuffle(x, s->a, .channels_last = s->b);
}
static ct_tensor *pixel_unshuffle_forward(ct_module *self, ct_tensor *x) {
    const shape *s = ct_module_data(self);
    return ct_pixel_unshuffle(x, s->a, .channels_last = s->b);
}
#define pixel_shuffle_describe   factor_describe
#define pixel_unshuffle_describe factor_describe
SHAPE_CLASS(pixel_shuffle)
SHAPE_CLASS(pixel_unshuffle)
ct_module *ct_nn_pixel_shuffle(int64_t factor, bool channels_last) {
    if (!ct__positive("nn_pixel_shuffle", "factor", factor)) return NULL;
    return make(&pixel_shuffle_class, &(shape){.a = factor, .b = channels_last});
}
ct_module *ct_nn_pixel_unshuffle(int64_t factor, bool channels_last) {
    if (!ct__positive("nn_pixel_unshuffle", "factor", factor)) return NULL;
    return make(&pixel_unshuffle_class, &(shape){.a = factor, .b = channels_last});
}

static ct_tensor *identity_forward(ct_module *self, ct_tensor *x) {
    (void)self;
    return x;
}
static const ct_module_class identity_class = {
    .size = sizeof(ct_module_class), .name = "identity", .forward = identity_forward};
ct_module *ct_nn_identity(void) { return make(&identity_class, NULL); }
