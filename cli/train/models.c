/* The models by name: those of the library, and one of the command's own, a small network for small images. */
#include "cli/train/recipe.h"

#include <string.h>

enum { CHANNELS, IMAGE, CLASSES, WIDTH, STAGES, DEPTH, DROPOUT, SETTINGS };
static const ct_setting settings[SETTINGS] = {
    [CHANNELS] = {"channels", 1, "of the image; the data decides", CT_SETTING_WHOLE},
    [IMAGE] = {"image", 28, "side of the image; the data decides", CT_SETTING_WHOLE},
    [CLASSES] = {"classes", 10, "the data decides", CT_SETTING_WHOLE},
    [WIDTH] = {"width", 32, "channels of the first stage; each further one has twice as many", CT_SETTING_WHOLE},
    [STAGES] = {"stages", 3, "each ends by halving the image", CT_SETTING_WHOLE},
    [DEPTH] = {"depth", 1, "convolutions a stage after its first", CT_SETTING_WHOLE},
    [DROPOUT] = {"dropout", 0, "before the last layer", CT_SETTING_NUMBER},
};

/* A convolution, halved where asked for, then norm and activation, which so have less to do. */
static bool add_convolution(ct_module *net, int64_t in, int64_t out, bool halve) {
    return ct_nn_append(net, ct_nn_conv2d(in, out, 3, .pad = 1, .no_bias = true)) &&
           (!halve || ct_nn_append(net, ct_nn_max_pool2d(2))) && ct_nn_append(net, ct_nn_batch_norm(out)) &&
           ct_nn_append(net, ct_nn_relu());
}

static bool add_layers(ct_module *net, const double *values) {
    int64_t in = (int64_t)values[CHANNELS], out = (int64_t)values[WIDTH], side = (int64_t)values[IMAGE];
    for (int stage = 0; stage < (int)values[STAGES]; stage++, out *= 2) {
        if (!add_convolution(net, in, out, side > 1)) return false;
        side = side > 1 ? side / 2 : 1;
        for (int i = 0; i < (int)values[DEPTH]; i++)
            if (!add_convolution(net, out, out, false)) return false;
        in = out;
    }
    if (!ct_nn_append(net, ct_nn_adaptive_avg_pool2d(1)) || !ct_nn_append(net, ct_nn_flatten())) return false;
    if (values[DROPOUT] > 0 && !ct_nn_append(net, ct_nn_dropout(values[DROPOUT]))) return false;
    return ct_nn_append(net, ct_nn_linear(in, (int64_t)values[CLASSES]));
}

static ct_module *build_cnn(const double *values) {
    static const struct {
        int which;
        double least, most;
    } limits[] = {{CHANNELS, 1, 4096}, {IMAGE, 1, 65536}, {CLASSES, 1, 1 << 20}, {WIDTH, 1, 4096},
                  {STAGES, 1, 8},      {DEPTH, 0, 16},    {DROPOUT, 0, 0.99}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const double value = values[limits[i].which];
        if (value >= limits[i].least && value <= limits[i].most) continue;
        ct_fail(CT_ERR_VALUE, "cnn", "%s is from %g to %g, not %g", settings[limits[i].which].name, limits[i].least,
                limits[i].most, value);
        return NULL;
    }
    ct_module *net = ct_nn_sequential_n(NULL, 0);
    if (net && add_layers(net, values)) return net;
    ct_module_free(net);
    return NULL;
}

static const ct_model_info cnn = {
    "cnn", "stages of 3x3 convolutions with batch norm, for small images", "image", settings, SETTINGS, build_cnn};

bool model_is_for_pixels(const ct_model_info *info) { return strcmp(info->name, "unet") == 0; }

const ct_model_info *model_at(int i) { return i == 0 ? &cnn : ct_model_at(i - 1); }
