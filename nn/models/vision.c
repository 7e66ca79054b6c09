/* MLP, LeNet, VGG and MobileNetV2: models that are one long sequential. */
#include <stdio.h>

#include "nn/models/models.h"

/* ---- What models share ---- */

ct_nn_model_options ct__model_options(const ct_nn_model_options *given, int64_t channels, int64_t classes) {
    TAKE_OPTIONS(ct_nn_model_options, o, given);
    if (!o.channels) o.channels = channels;
    if (!o.classes) o.classes = o.imagenet ? 1000 : classes;
    if (o.width == 0) o.width = 1;
    return o;
}

int64_t ct__wide(int64_t channels, const ct_nn_model_options *o) {
    const int64_t wide = (int64_t)((double)channels * o->width);
    return wide > 1 ? wide : 1;
}

bool ct__width_is_right(const char *function, const ct_nn_model_options *o) {
    return (o->width > 0 && o->width <= 1024) ||
           ct_fail(CT_ERR_VALUE, function, "width is %g, expected more than 0 and at most 1024", o->width);
}

bool ct__enter_layout(ct_module *sequential, const ct_nn_model_options *o) {
    return !o->channels_last || ct_module_add(sequential, "enter", ct_nn_permute(CT_DIMS(0, 2, 3, 1)));
}

bool ct__leave_layout(ct_module *sequential, const ct_nn_model_options *o) {
    return !o->channels_last || ct_module_add(sequential, "leave", ct_nn_permute(CT_DIMS(0, 3, 1, 2)));
}

typedef struct init {
    bool channels_last;
    double std;
} init;

static bool init_one(void *context, const char *path, ct_module *module) {
    (void)path;
    const init *i = context;
    const char *name = ct_module_type(module)->name;
    ct_tensor *weight = ct_module_param(module, 0), *bias = ct_module_param(module, 1);
    if (strstr(name, "conv2d") && weight)
        return ct_init_kaiming_normal(weight, .fan = CT_FAN_OUT, .channels_last = i->channels_last) &&
               (!bias || ct_init_zeros(bias));
    if (i->std > 0 && strcmp(name, "linear") == 0)
        return ct_init_normal(weight, 0, i->std, NULL) && (!bias || ct_init_zeros(bias));
    return true;
}

bool ct__init_model(ct_module *module, const ct_nn_model_options *o, double std) {
    return ct_module_apply(module, init_one, &(init){o->channels_last, std});
}

/* ---- MLP ---- */

ct_module *ct_nn_mlp_p(ct_dims sizes, ct_activation activation, const ct_nn_model_options *options) {
    const ct_nn_model_options o = ct__model_options(options, 3, 10);
    if (!ct_ok()) return NULL;
    if (sizes.n < 2 || sizes.n > CT_MAX_LIST) {
        ct_fail(CT_ERR_VALUE, "nn_mlp", "sizes has %d numbers, expected 2 to %d", sizes.n < 0 ? 0 : sizes.n,
                CT_MAX_LIST);
        return NULL;
    }
    ct_module *m = ct__sequential_new("mlp");
    bool ok = m && ct_module_add(m, "flatten", ct_nn_flatten());
    for (int i = 0; ok && i + 1 < sizes.n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        ok = ct_module_add(m, name, ct_nn_linear(sizes.d[i], sizes.d[i + 1]));
        if (!ok || i + 2 == sizes.n) break;
        snprintf(name, sizeof name, "norm%d", i);
        if (o.batch_norm) ok = ct_module_add(m, name, ct_nn_batch_norm(sizes.d[i + 1]));
        snprintf(name, sizeof name, "act%d", i);
        ok = ok && ct_module_add(m, name, ct_nn_activation(activation == CT_ACT_NONE ? CT_ACT_RELU : activation));
        snprintf(name, sizeof name, "drop%d", i);
        if (o.dropout != 0) ok = ok && ct_module_add(m, name, ct_nn_dropout(o.dropout));
    }
    return ct__finish(m, ok);
}

/* ---- LeNet ---- */

ct_module *ct_nn_lenet_p(int64_t image, const ct_nn_model_options *options) {
    const ct_nn_model_options o = ct__model_options(options, 1, 10);
    if (!ct_ok()) return NULL;
    if (image < 4) {
        ct_fail(CT_ERR_VALUE, "nn_lenet", "image is %lld, expected at least 4", (long long)image);
        return NULL;
    }
    if (!ct__positive("nn_lenet", "image", image)) return NULL;
    const int64_t side = image / 2 / 2;
    int64_t features;
    if (__builtin_mul_overflow(side, 64 * side, &features)) {
        ct_fail(CT_ERR_VALUE, "nn_lenet", "image is %lld, which leaves more features than can be counted",
                (long long)image);
        return NULL;
    }
    ct_module *m = ct__sequential_new("lenet");
    bool ok = m && ct__enter_layout(m, &o) &&
              ct_module_add(m, "conv1", ct_nn_conv2d(o.channels, 32, 5, .pad = 2, .channels_last = o.channels_last)) &&
              ct_module_add(m, "relu1", ct_nn_relu()) &&
              ct_module_add(m, "pool1", ct_nn_max_pool2d(2, .channels_last = o.channels_last)) &&
              ct_module_add(m, "conv2", ct_nn_conv2d(32, 64, 5, .pad = 2, .channels_last = o.channels_last)) &&
              ct_module_add(m, "relu2", ct_nn_relu()) &&
              ct_module_add(m, "pool2", ct_nn_max_pool2d(2, .channels_last = o.channels_last)) &&
              ct__leave_layout(m, &o) && ct_module_add(m, "flatten", ct_nn_flatten()) &&
              (o.dropout == 0 || ct_module_add(m, "drop1", ct_nn_dropout(o.dropout))) &&
              ct_module_add(m, "fc1", ct_nn_linear(features, 256)) && ct_module_add(m, "relu3", ct_nn_relu()) &&
              (o.dropout == 0 || ct_module_add(m, "drop2", ct_nn_dropout(o.dropout))) &&
              ct_module_add(m, "fc2", ct_nn_linear(256, o.classes));
    return ct__finish(m, ok);
}

/* ---- VGG ---- */

/* Channels by convolution; 0 is a pool. */
static const int vgg11[] = {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0, -1};
static const int vgg13[] = {64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0, -1};
static const int vgg16[] = {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0, -1};
static const int vgg19[] = {64,  64,  0,   128, 128, 0,   256, 256, 256, 256, 0,
                            512, 512, 512, 512, 0,   512, 512, 512, 512, 0,   -1};

static ct_module *vgg_features(const int *plan, const ct_nn_model_options *o) {
    ct_module *m = ct__sequential_new("sequential");
    bool ok = m != NULL;
    int64_t in = o->channels;
    for (; ok && *plan >= 0; plan++) {
        if (*plan == 0) {
            ok = ct_nn_append(m, ct_nn_max_pool2d(2, .channels_last = o->channels_last));
            continue;
        }
        const int64_t out = ct__wide(*plan, o);
        ok = ct_nn_append(m, ct_nn_conv2d(in, out, 3, .pad = 1, .channels_last = o->channels_last)) &&
             (!o->batch_norm || ct_nn_append(m, ct_nn_batch_norm(out, .channels_last = o->channels_last))) &&
             ct_nn_append(m, ct_nn_relu());
        in = out;
    }
    return ct__finish(m, ok);
}

ct_module *ct_nn_vgg_p(int depth, const ct_nn_model_options *options) {
    const ct_nn_model_options o = ct__model_options(options, 3, 10);
    const int *plan = depth == 11 ? vgg11 : depth == 13 ? vgg13 : depth == 16 ? vgg16 : depth == 19 ? vgg19 : NULL;
    if (!ct_ok()) return NULL;
    if (!plan) {
        ct_fail(CT_ERR_VALUE, "nn_vgg", "depth is %d, expected 11, 13, 16 or 19", depth);
        return NULL;
    }
    if (!ct__width_is_right("nn_vgg", &o)) return NULL;
    const int64_t side = o.imagenet ? 7 : 1, last = ct__wide(512, &o), inside = ct__wide(4096, &o);
    ct_module *m = ct__sequential_new("vgg");
    bool ok = m && ct__enter_layout(m, &o) && ct_module_add(m, "features", vgg_features(plan, &o)) &&
              ct_module_add(m, "avgpool", ct_nn_adaptive_avg_pool2d(side, .channels_last = o.channels_last)) &&
              ct__leave_layout(m, &o) && ct_module_add(m, "flatten", ct_nn_flatten());
    if (ok && o.imagenet)
        ok = ct_module_add(m, "classifier",
                           ct_nn_sequential(ct_nn_linear(last * 7 * 7, inside), ct_nn_relu(), ct_nn_dropout(o.dropout),
                                            ct_nn_linear(inside, inside), ct_nn_relu(), ct_nn_dropout(o.dropout),
                                            ct_nn_linear(inside, o.classes)));
    else if (ok)
        ok = ct_module_add(m, "classifier", ct_nn_sequential(ct_nn_dropout(o.dropout), ct_nn_linear(last, o.classes)));
    return ct__finish(m, ok && ct__init_model(m, &o, 0.01));
}

/* ---- MobileNetV2 ---- */

/* A convolution, its norm, and relu6 unless it is the last of a block. */
static bool add_conv(ct_module *m, const char *name, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                     int64_t groups, bool linear, const ct_nn_model_options *o) {
    ct_module *conv = ct_nn_conv2d(in, out, kernel, .stride = stride, .pad = (kernel - 1) / 2, .groups = groups,
                                   .no_bias = true, .channels_last = o->channels_last);
    ct_module *norm = ct_nn_batch_norm(out, .channels_last = o->channels_last);
    if (linear) {
        const bool ok = ct_nn_append(m, conv);
        if (!ok) ct_module_free(norm);
        return ok && ct_nn_append(m, norm);
    }
    ct_module *all = ct_nn_sequential(conv, norm, ct_nn_relu6());
    return name ? ct_module_add(m, name, all) : ct_nn_append(m, all);
}

typedef struct inverted {
    bool residual;
} inverted;

static ct_tensor *inverted_forward(ct_module *self, ct_tensor *x) {
    ct_tensor *y = ct_forward(ct_module_child(self, 0), x);
    return ((const inverted *)ct_module_data(self))->residual ? ct_add(x, y) : y;
}

static const ct_module_class inverted_class = {.size = sizeof(ct_module_class),
                                               .name = "inverted_residual",
                                               .state = sizeof(inverted),
                                               .forward = inverted_forward};

static ct_module *inverted_block(int64_t in, int64_t out, int64_t stride, int64_t expand,
                                 const ct_nn_model_options *o) {
    const int64_t inside = in * expand;
    ct_module *conv = ct__sequential_new("sequential");
    bool ok = conv && (expand == 1 || add_conv(conv, NULL, in, inside, 1, 1, 1, false, o)) &&
              add_conv(conv, NULL, inside, inside, 3, stride, inside, false, o) &&
              add_conv(conv, NULL, inside, out, 1, 1, 1, true, o);
    ct_module *m = ok ? ct_module_new(&inverted_class) : NULL;
    if (!m) {
        ct_module_free(conv);
        return NULL;
    }
    ((inverted *)ct_module_data(m))->residual = stride == 1 && in == out;
    return ct__finish(m, ct_module_add(m, "conv", conv));
}

/* Channels are multiples of 8, and never more than a tenth below what the width asks for. */
static int64_t multiple_of_8(double channels) {
    int64_t rounded = (int64_t)(channels + 4) / 8 * 8;
    if (rounded < 8) rounded = 8;
    return (double)rounded < 0.9 * channels ? rounded + 8 : rounded;
}

ct_module *ct_nn_mobilenet_v2_p(const ct_nn_model_options *options) {
    const ct_nn_model_options o = ct__model_options(options, 3, 10);
    if (!ct_ok() || !ct__width_is_right("nn_mobilenet_v2", &o)) return NULL;
    static const struct {
        int expand, channels, count, stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    int64_t in = multiple_of_8(32 * o.width);
    const int64_t last = multiple_of_8(1280 * (o.width > 1 ? o.width : 1));
    ct_module *m = ct__sequential_new("mobilenet_v2"), *features = m ? ct__sequential_new("sequential") : NULL;
    bool ok = features && add_conv(features, NULL, o.channels, in, 3, o.imagenet ? 2 : 1, 1, false, &o);
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        const int64_t out = multiple_of_8(stages[s].channels * o.width);
        /* small images are halved once less here, and once less in the beginning */
        const int64_t stride = !o.imagenet && s == 1 ? 1 : stages[s].stride;
        for (int i = 0; ok && i < stages[s].count; i++, in = out)
            ok = ct_nn_append(features, inverted_block(in, out, i ? 1 : stride, stages[s].expand, &o));
    }
    ok = ok && add_conv(features, NULL, in, last, 1, 1, 1, false, &o);
    if (!ok || !ct__enter_layout(m, &o)) {
        ct_module_free(features);
        return ct__finish(m, false);
    }
    ok = ct_module_add(m, "features", features) &&
         ct_module_add(m, "avgpool", ct_nn_adaptive_avg_pool2d(1, .channels_last = o.channels_last)) &&
         ct_module_add(m, "flatten", ct_nn_flatten()) &&
         ct_module_add(m, "classifier", ct_nn_sequential(ct_nn_dropout(o.dropout), ct_nn_linear(last, o.classes)));
    return ct__finish(m, ok && ct__init_model(m, &o, 0.01));
}
