/* ResNet and U-Net: models whose blocks add to or join with what came before. */
#include <stdio.h>

#include "nn/models/models.h"

/* ---- Residual blocks: conv1, bn1, conv2, bn2 (, conv3, bn3), then downsample where the shape changes ---- */

static ct_tensor *block_forward(ct_module *self, ct_tensor *x) {
    const int count = self->children.count, convs = count / 2;
    ct__chain chain = {.x = x};
    for (int i = 0; chain.x && i < convs; i++) {
        const bool last = i + 1 == convs;
        ct_module *norm = self->children.items[2 * i + 1].child;
        ct__chain_open(&chain, last);
        ct_tensor *y = ct_forward(self->children.items[2 * i].child, chain.x);
        if (y && last && count % 2) x = ct_forward(self->children.items[count - 1].child, x);
        if (y) y = last ? ct__norm_add_relu(norm, y, x) : ct__forward_then(norm, y, CT_ACT_RELU);
        ct__chain_close(&chain, y);
    }
    return ct__chain_end(&chain);
}

static const ct_module_class basic_class = {
    .size = sizeof(ct_module_class), .name = "basic_block", .forward = block_forward};
static const ct_module_class bottleneck_class = {
    .size = sizeof(ct_module_class), .name = "bottleneck", .forward = block_forward};

static bool add_conv(ct_module *m, int number, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                     const ct_nn_model_options *o) {
    char name[16];
    snprintf(name, sizeof name, "conv%d", number);
    if (!ct_module_add(m, name,
                       ct_nn_conv2d(in, out, kernel, .stride = stride, .pad = (kernel - 1) / 2, .no_bias = true,
                                    .channels_last = o->channels_last)))
        return false;
    snprintf(name, sizeof name, "bn%d", number);
    return ct_module_add(m, name, ct_nn_batch_norm(out, .channels_last = o->channels_last));
}

static ct_module *block(bool bottleneck, int64_t in, int64_t width, int64_t stride, const ct_nn_model_options *o) {
    const int64_t out = bottleneck ? 4 * width : width;
    ct_module *m = ct_module_new(bottleneck ? &bottleneck_class : &basic_class);
    bool ok = m != NULL;
    if (bottleneck)
        ok = ok && add_conv(m, 1, in, width, 1, 1, o) && add_conv(m, 2, width, width, 3, stride, o) &&
             add_conv(m, 3, width, out, 1, 1, o);
    else ok = ok && add_conv(m, 1, in, out, 3, stride, o) && add_conv(m, 2, out, out, 3, 1, o);
    if (ok && (stride != 1 || in != out))
        ok = ct_module_add(m, "downsample",
                           ct_nn_sequential(ct_nn_conv2d(in, out, 1, .stride = stride, .no_bias = true,
                                                         .channels_last = o->channels_last),
                                            ct_nn_batch_norm(out, .channels_last = o->channels_last)));
    return ct__finish(m, ok);
}

ct_module *ct_nn_resnet_p(int depth, const ct_nn_model_options *options) {
    const ct_nn_model_options o = ct__model_options(options, 3, 10);
    static const struct {
        int depth;
        bool bottleneck;
        int blocks[4];
    } plans[] = {{18, false, {2, 2, 2, 2}},
                 {34, false, {3, 4, 6, 3}},
                 {50, true, {3, 4, 6, 3}},
                 {101, true, {3, 4, 23, 3}},
                 {152, true, {3, 8, 36, 3}}};
    if (!ct_ok()) return NULL;
    size_t p = 0;
    while (p < sizeof plans / sizeof *plans && plans[p].depth != depth) p++;
    if (p == sizeof plans / sizeof *plans) {
        ct_fail(CT_ERR_VALUE, "nn_resnet", "depth is %d, expected 18, 34, 50, 101 or 152", depth);
        return NULL;
    }
    if (!ct__width_is_right("nn_resnet", &o)) return NULL;
    const bool last = o.channels_last;
    int64_t in = ct__wide(64, &o);
    ct_module *m = ct__sequential_new("resnet");
    bool ok =
        m && ct__enter_layout(m, &o) &&
        ct_module_add(
            m, "conv1",
            o.imagenet ? ct_nn_conv2d(o.channels, in, 7, .stride = 2, .pad = 3, .no_bias = true, .channels_last = last)
                       : ct_nn_conv2d(o.channels, in, 3, .pad = 1, .no_bias = true, .channels_last = last)) &&
        ct_module_add(m, "bn1", ct_nn_batch_norm(in, .channels_last = last)) &&
        ct_module_add(m, "relu", ct_nn_relu()) &&
        (!o.imagenet || ct_module_add(m, "maxpool", ct_nn_max_pool2d(3, .stride = 2, .pad = 1, .channels_last = last)));
    for (int stage = 0; ok && stage < 4; stage++) {
        const int64_t width = ct__wide((int64_t)64 << stage, &o);
        ct_module *layer = ct__sequential_new("sequential");
        ok = layer != NULL;
        for (int i = 0; ok && i < plans[p].blocks[stage]; i++) {
            ok = ct_nn_append(layer, block(plans[p].bottleneck, in, width, i == 0 && stage > 0 ? 2 : 1, &o));
            in = plans[p].bottleneck ? 4 * width : width;
        }
        char name[16];
        snprintf(name, sizeof name, "layer%d", stage + 1);
        if (!ok) ct_module_free(layer);
        else ok = ct_module_add(m, name, layer);
    }
    ok = ok && ct_module_add(m, "avgpool", ct_nn_adaptive_avg_pool2d(1, .channels_last = last)) &&
         ct_module_add(m, "flatten", ct_nn_flatten()) &&
         (o.dropout == 0 || ct_module_add(m, "drop", ct_nn_dropout(o.dropout))) &&
         ct_module_add(m, "fc", ct_nn_linear(in, o.classes));
    return ct__finish(m, ok && ct__init_model(m, &o, 0));
}

/* ---- U-Net: down.0 ..., bottom, up.0 (widen, join) ..., head ---- */

enum { UNET_LEVELS = 8 };

typedef struct unet {
    int levels;
    bool channels_last;
} unet;

static ct_tensor *unet_forward(ct_module *self, ct_tensor *x) {
    const unet *u = ct_module_data(self);
    ct_module *down = ct_module_child(self, 0), *bottom = ct_module_child(self, 1), *up = ct_module_child(self, 2);
    ct_tensor *skips[UNET_LEVELS];
    const int64_t times = (int64_t)1 << u->levels;
    if (x && ct_ndim(x) == 4 && (ct_dim(x, 2) % times || ct_dim(x, 3) % times)) {
        ct_fail(CT_ERR_SHAPE, "nn_unet",
                "an image of %lld x %lld cannot be halved %d times; its sides have to be multiples of %lld",
                (long long)ct_dim(x, 2), (long long)ct_dim(x, 3), u->levels, (long long)times);
        return NULL;
    }
    if (u->channels_last) x = ct_permute(x, CT_DIMS(0, 2, 3, 1));
    for (int i = 0; i < u->levels; i++) {
        skips[i] = x = ct_forward(ct_module_child(down, i), x);
        x = ct_max_pool2d(x, CT_DIMS(2), .channels_last = u->channels_last);
    }
    x = ct_forward(bottom, x);
    for (int i = 0; i < u->levels; i++) {
        ct_module *step = ct_module_child(up, i);
        x = ct_forward(ct_module_child(step, 0), x);
        if (!x) return NULL;
        x = ct_forward(ct_module_child(step, 1),
                       ct_cat((ct_tensor *const[]){skips[u->levels - 1 - i], x}, 2, u->channels_last ? 3 : 1));
    }
    x = ct_forward(ct_module_child(self, 3), x);
    return u->channels_last ? ct_permute(x, CT_DIMS(0, 3, 1, 2)) : x;
}

static const ct_module_class unet_class = {
    .size = sizeof(ct_module_class), .name = "unet", .state = sizeof(unet), .forward = unet_forward};

static ct_module *double_conv(int64_t in, int64_t out, const ct_nn_model_options *o) {
    const bool last = o->channels_last;
    return ct_nn_sequential(ct_nn_conv2d(in, out, 3, .pad = 1, .no_bias = true, .channels_last = last),
                            ct_nn_batch_norm(out, .channels_last = last), ct_nn_relu(),
                            ct_nn_conv2d(out, out, 3, .pad = 1, .no_bias = true, .channels_last = last),
                            ct_nn_batch_norm(out, .channels_last = last), ct_nn_relu());
}

/* "widen" and "join", which the model runs itself. */
static ct_module *up_step(int64_t in, const ct_nn_model_options *o) {
    ct_module *m = ct__sequential_new("sequential");
    return ct__finish(
        m, m &&
               ct_module_add(m, "widen",
                             ct_nn_conv_transpose2d(in, in / 2, 2, .stride = 2, .channels_last = o->channels_last)) &&
               ct_module_add(m, "join", double_conv(in, in / 2, o)));
}

ct_module *ct_nn_unet_p(int64_t levels, int64_t base, const ct_nn_model_options *options) {
    const ct_nn_model_options o = ct__model_options(options, 3, 2);
    if (!ct_ok() || !ct__positive("nn_unet", "base", base)) return NULL;
    if (o.dropout != 0) {
        ct_fail(CT_ERR_VALUE, "nn_unet", "dropout is %g; this model has none", o.dropout);
        return NULL;
    }
    if (levels < 1 || levels > UNET_LEVELS) {
        ct_fail(CT_ERR_VALUE, "nn_unet", "levels is %lld, expected 1 to %d", (long long)levels, UNET_LEVELS);
        return NULL;
    }
    ct_module *m = ct_module_new(&unet_class);
    ct_module *down = m ? ct__sequential_new("sequential") : NULL, *up = down ? ct__sequential_new("sequential") : NULL;
    bool ok = up != NULL;
    if (m) *(unet *)ct_module_data(m) = (unet){(int)levels, o.channels_last};
    for (int64_t i = 0; ok && i < levels; i++) {
        ok = ct_nn_append(down, double_conv(i ? base << (i - 1) : o.channels, base << i, &o)) &&
             ct_nn_append(up, up_step(base << (levels - i), &o));
    }
    if (!ok) {
        ct_module_free(down);
        ct_module_free(up);
        return ct__finish(m, false);
    }
    ok = ct_module_add(m, "down", down) &&
         ct_module_add(m, "bottom", double_conv(base << (levels - 1), base << levels, &o));
    if (!ok) {
        ct_module_free(up);
        return ct__finish(m, false);
    }
    return ct__finish(m,
                      ct_module_add(m, "up", up) &&
                          ct_module_add(m, "head", ct_nn_conv2d(base, o.classes, 1, .channels_last = o.channels_last)));
}
