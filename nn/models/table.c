/* The models by name, with their settings as numbers: models.def made into tables. */
#include <math.h>

#include "nn/module.h"

/* S(set, name, kind of number, usual value, what it means) */
#define MLP(S)                                                                \
    S(mlp, inputs, WHOLE, 784, "numbers in an item")                          \
    S(mlp, classes, WHOLE, 10, "results")                                     \
    S(mlp, width, WHOLE, 512, "hidden units a layer")                         \
    S(mlp, depth, WHOLE, 2, "hidden layers")                                  \
    S(mlp, activation, WHOLE, 1, "1 relu, 2 sigmoid, 3 tanh, 4 gelu, 5 silu") \
    S(mlp, batch_norm, FLAG, 0, "batch norm after every hidden layer")        \
    S(mlp, dropout, NUMBER, 0, "probability of dropping a hidden unit")
#define IMAGES(S, set, channels_, classes_)                     \
    S(set, channels, WHOLE, channels_, "channels of the image") \
    S(set, classes, WHOLE, classes_, "results")                 \
    S(set, channels_last, FLAG, 0, "computes with channels last")
#define LENET(S)                                    \
    IMAGES(S, lenet, 1, 10)                         \
    S(lenet, image, WHOLE, 28, "side of the image") \
    S(lenet, dropout, NUMBER, 0, "probability of dropping, before the dense layers")
#define RESNET(S)                                                                        \
    IMAGES(S, resnet, 3, 10)                                                             \
    S(resnet, imagenet, FLAG, 0, "the stem for images of 224 x 224, not for small ones") \
    S(resnet, width, NUMBER, 1, "multiplies the channels")                               \
    S(resnet, dropout, NUMBER, 0, "probability of dropping, before the last layer")
#define VGG(S)                                                                              \
    IMAGES(S, vgg, 3, 10)                                                                   \
    S(vgg, imagenet, FLAG, 0, "the classifier for images of 224 x 224, not for small ones") \
    S(vgg, width, NUMBER, 1, "multiplies the channels")                                     \
    S(vgg, batch_norm, FLAG, 1, "batch norm after every convolution")                       \
    S(vgg, dropout, NUMBER, 0.5, "probability of dropping, in the classifier")
#define MOBILENET(S)                                                                           \
    IMAGES(S, mobilenet, 3, 10)                                                                \
    S(mobilenet, imagenet, FLAG, 0, "the strides for images of 224 x 224, not for small ones") \
    S(mobilenet, width, NUMBER, 1, "multiplies the channels")                                  \
    S(mobilenet, dropout, NUMBER, 0.2, "probability of dropping, before the last layer")
#define UNET(S)                                                 \
    IMAGES(S, unet, 3, 2)                                       \
    S(unet, levels, WHOLE, 4, "times that the image is halved") \
    S(unet, base, WHOLE, 64, "channels at full size")
#define VIT(S)                                                          \
    S(vit, channels, WHOLE, 3, "channels of the image")                 \
    S(vit, classes, WHOLE, 10, "results")                               \
    S(vit, image, WHOLE, 32, "side of the image")                       \
    S(vit, patch, WHOLE, 4, "side of a patch")                          \
    S(vit, dim, WHOLE, 192, "features of a token")                      \
    S(vit, layers, WHOLE, 6, "layers")                                  \
    S(vit, heads, WHOLE, 3, "heads of attention")                       \
    S(vit, feedforward, WHOLE, 0, "hidden units of a layer (0: 4 dim)") \
    S(vit, dropout, NUMBER, 0, "probability of dropping")
#define GPT(S)                                                              \
    S(gpt, vocabulary, WHOLE, 256, "tokens that there are")                 \
    S(gpt, context, WHOLE, 256, "the most tokens at once")                  \
    S(gpt, dim, WHOLE, 384, "features of a token")                          \
    S(gpt, layers, WHOLE, 6, "layers")                                      \
    S(gpt, heads, WHOLE, 6, "heads of attention")                           \
    S(gpt, feedforward, WHOLE, 0, "hidden units of a layer (0: 4 dim)")     \
    S(gpt, dropout, NUMBER, 0, "probability of dropping")                   \
    S(gpt, tied, FLAG, 0, "the output layer shares the embedding's weight") \
    S(gpt, no_bias, FLAG, 0, "no bias in linear layers and norms")
#define LSTM(S)                                              \
    S(lstm, vocabulary, WHOLE, 256, "tokens that there are") \
    S(lstm, dim, WHOLE, 256, "features of a token")          \
    S(lstm, hidden, WHOLE, 512, "hidden units")              \
    S(lstm, layers, WHOLE, 2, "layers")                      \
    S(lstm, dropout, NUMBER, 0, "probability of dropping")   \
    S(lstm, tied, FLAG, 0, "the output layer shares the embedding's weight (dim = hidden)")

/* An enumerator and a row for each setting. */
#define SETTING_INDEX(set, id, kind, value, doc) set##_##id,
#define SETTING_ROW(set, id, kind, value, doc)   {#id, value, doc, CT_SETTING_##kind},
#define SETTINGS(set, LIST)                   \
    enum { LIST(SETTING_INDEX) set##_COUNT }; \
    static const ct_setting set##_settings[] = {LIST(SETTING_ROW)};
#include "nn/models/models.def"
#undef SETTINGS

/* Whole number, flag and real number, as ct_model_build has made sure of. */
#define V(set, id) ((int64_t)v[set##_##id])
#define F(set, id) (v[set##_##id] != 0)
#define D(set, id) (v[set##_##id])

static ct_module *build_mlp(const double *v) {
    const int64_t depth = V(mlp, depth);
    if (depth < 0 || depth > CT_MAX_LIST - 2) {
        ct_fail(CT_ERR_VALUE, "model_build", "mlp: depth is %lld, expected 0 to %d", (long long)depth, CT_MAX_LIST - 2);
        return NULL;
    }
    ct_dims sizes = {.n = (int)depth + 2, .d = {V(mlp, inputs)}};
    for (int i = 1; i <= depth; i++) sizes.d[i] = V(mlp, width);
    sizes.d[depth + 1] = V(mlp, classes);
    return ct_nn_mlp(sizes, (ct_activation)V(mlp, activation), .batch_norm = F(mlp, batch_norm),
                     .dropout = D(mlp, dropout));
}

#define MODEL(id, doc, input, set, expression) \
    static ct_module *make_##id(const double *v) { return expression; }
#include "nn/models/models.def"
#undef MODEL

static const ct_model_info models[] = {
#define MODEL(id, doc, input, set, expression) {#id, doc, input, set##_settings, set##_COUNT, make_##id},
#include "nn/models/models.def"
#undef MODEL
};
enum { MODEL_COUNT = sizeof models / sizeof *models, MOST_SETTINGS = 16 };

const ct_model_info *ct_model_at(int i) { return i >= 0 && i < MODEL_COUNT ? &models[i] : NULL; }

const ct_model_info *ct_model_find(const char *name) {
    for (int i = 0; name && i < MODEL_COUNT; i++)
        if (strcmp(models[i].name, name) == 0) return &models[i];
    return NULL;
}

int ct_model_setting_index(const ct_model_info *info, const char *name) {
    for (int i = 0; info && name && i < info->count; i++)
        if (strcmp(info->settings[i].name, name) == 0) return i;
    return -1;
}

ct_module *ct_model_build(const ct_model_info *info, const double *values) {
    if (!ct_ok()) return NULL;
    if (!info || info->count > MOST_SETTINGS) {
        ct_fail(info ? CT_ERR_VALUE : CT_ERR_NULL, "model_build", info ? "too many settings" : "argument info is NULL");
        return NULL;
    }
    double v[MOST_SETTINGS];
    for (int i = 0; i < info->count; i++) {
        v[i] = values ? values[i] : info->settings[i].value;
        const char *wanted = ct__setting_wants(&info->settings[i], v[i]);
        if (!wanted && fabs(v[i]) > 1e9)
            wanted = "at most 1e9"; /* more in any of them is a slip, and would overflow sizes */
        if (!wanted) continue;
        ct_fail(CT_ERR_VALUE, "model_build", "%s: %s is %.10g; it has to be %s", info->name, info->settings[i].name,
                v[i], wanted);
        return NULL;
    }
    return info->build(v);
}
