/* ViT, GPT and the LSTM language model: models over sequences. */
#include <math.h>

#include "nn/models/models.h"

/* Linear weights and embeddings normal with this standard deviation, biases zero. */
static bool init_one(void *context, const char *path, ct_module *module) {
    const double std = *(const double *)context;
    const char *name = ct_module_type(module)->name;
    (void)path;
    if (strcmp(name, "linear") == 0 || strcmp(name, "embedding") == 0 || strcmp(name, "multi_head_attention") == 0) {
        ct_tensor *bias = ct_module_param(module, 1);
        return ct_init_normal(ct_module_param(module, 0), 0, std, NULL) && (!bias || ct_init_zeros(bias));
    }
    return true;
}

static bool init_normal(ct_module *module, double std) { return ct_module_apply(module, init_one, &std); }

static bool add_normal(ct_module *module, const char *name, ct_dims shape, double std) {
    ct_scope {
        ct_tensor *x = ct_normal(shape, 0, std);
        return x && ct_module_add_param(module, name, x);
    }
    return false;
}

static ct_tensor *drop(ct_module *self, ct_tensor *x, double p) {
    return p > 0 && ct_module_training(self) ? ct_dropout(x, p) : x;
}

static ct_module *layers_of(const char *function, int64_t count, int64_t dim, int64_t heads,
                            const ct_nn_transformer_options *options) {
    ct_module *layers = ct__sequential_new("sequential");
    bool ok = layers != NULL;
    for (int64_t i = 0; ok && i < count; i++) {
        ok = ct_nn_append(layers, ct_nn_transformer_encoder_layer_p(dim, heads, options));
        if (ok && i == 0) ok = ct__affordable(function, "layers", count, layers);
    }
    return ct__finish(layers, ok);
}

static int64_t or_else(int64_t given, int64_t normal) { return given ? given : normal; }

/* A module whose plain data is its dropout. */
static ct_module *with_dropout(const ct_module_class *type, double dropout) {
    ct_module *m = ct_module_new(type);
    if (m) *(double *)ct_module_data(m) = dropout;
    return m;
}

/* The layers of both transformers. */
static ct_nn_transformer_options usual_layer(int64_t feedforward, double dropout) {
    return (ct_nn_transformer_options){.size = sizeof(ct_nn_transformer_options),
                                       .feedforward = feedforward,
                                       .activation = CT_ACT_GELU,
                                       .dropout = dropout,
                                       .norm_first = true};
}

/* ---- ViT ---- */

static ct_tensor *vit_forward(ct_module *self, ct_tensor *x) {
    const double dropout = *(const double *)ct_module_data(self);
    ct_tensor *token = ct_module_param(self, 0), *position = ct_module_param(self, 1);
    x = ct_forward(ct_module_child(self, 0), x); /* (N, dim, rows, columns) */
    x = ct_transpose(ct_flatten(x, .start = 2), 1, 2);
    if (!x) return NULL;
    token = ct_expand(token, CT_DIMS(ct_dim(x, 0), 1, ct_dim(x, 2)));
    x = ct_add(ct_cat((ct_tensor *const[]){token, x}, 2, 1), position);
    x = ct_forward(ct_module_child(self, 1), drop(self, x, dropout));
    x = ct_select(x, 1, 0); /* the norm works token by token, so of the one that is read alone */
    return ct_forward(ct_module_child(self, 3), ct_forward(ct_module_child(self, 2), x));
}

/* torchvision's names, also those of the files that it wrote first (linear_1, linear_2). */
static const ct_rename vit_aliases[] = {{"conv_proj.*", "patch.*"},
                                        {"encoder.pos_embedding", "position"},
                                        {"encoder.layers.encoder_layer_*.ln_1.*", "layers.*.norm1.*"},
                                        {"encoder.layers.encoder_layer_*.ln_2.*", "layers.*.norm2.*"},
                                        {"encoder.layers.encoder_layer_*.self_attention.*", "layers.*.self_attn.*"},
                                        {"encoder.layers.encoder_layer_*.mlp.0.*", "layers.*.linear1.*"},
                                        {"encoder.layers.encoder_layer_*.mlp.3.*", "layers.*.linear2.*"},
                                        {"encoder.layers.encoder_layer_*.mlp.linear_1.*", "layers.*.linear1.*"},
                                        {"encoder.layers.encoder_layer_*.mlp.linear_2.*", "layers.*.linear2.*"},
                                        {"encoder.ln.*", "norm.*"},
                                        {"heads.head.*", "head.*"},
                                        {NULL, NULL}};

static const ct_module_class vit_class = {.size = sizeof(ct_module_class),
                                          .name = "vit",
                                          .state = sizeof(double),
                                          .forward = vit_forward,
                                          .aliases = vit_aliases};

ct_module *ct_nn_vit_p(const ct_nn_vit_options *options) {
    TAKE_OPTIONS(ct_nn_vit_options, o, options);
    const int64_t image = or_else(o.image, 32), patch = or_else(o.patch, 4), dim = or_else(o.dim, 192);
    const int64_t layers = or_else(o.layers, 6);
    if (!ct_ok() || !ct__positive("nn_vit", "image", image) || !ct__positive("nn_vit", "patch", patch) ||
        !ct__positive("nn_vit", "dim", dim) || !ct__positive("nn_vit", "layers", layers))
        return NULL;
    if (image % patch != 0) {
        ct_fail(CT_ERR_VALUE, "nn_vit", "an image of %lld cannot be cut into patches of %lld", (long long)image,
                (long long)patch);
        return NULL;
    }
    const int64_t tokens = (image / patch) * (image / patch) + 1, channels = or_else(o.channels, 3);
    ct_module *m = with_dropout(&vit_class, o.dropout);
    if (!m) return NULL;
    ct_nn_transformer_options layer = usual_layer(o.feedforward, o.dropout);
    layer.eps = CT_SET(1e-6);
    bool ok = ct__add_constant(m, "class_token", CT_DIMS(1, 1, dim), 0, false) &&
              add_normal(m, "position", CT_DIMS(1, tokens, dim), 0.02) &&
              ct_module_add(m, "patch", ct_nn_conv2d(channels, dim, patch, .stride = patch)) &&
              ct_module_add(m, "layers", layers_of("nn_vit", layers, dim, or_else(o.heads, 3), &layer)) &&
              ct_module_add(m, "norm", ct_nn_layer_norm(dim, .eps = CT_SET(1e-6))) &&
              ct_module_add(m, "head", ct_nn_linear(dim, or_else(o.classes, 10))) && init_normal(m, 0.02);
    return ct__finish(m, ok && ct_init_lecun_normal(ct_module_param(ct_module_child(m, 0), 0)) &&
                             ct_init_zeros(ct_module_param(ct_module_child(m, 0), 1)));
}

/* ---- GPT ---- */

static ct_tensor *gpt_forward(ct_module *self, ct_tensor *tokens) {
    const double dropout = *(const double *)ct_module_data(self);
    ct_tensor *position = ct_module_param(self, 0);
    const int64_t before = ct_forward_position(), context = ct_dim(position, 0),
                  count = ct_ndim(tokens) == 2 ? ct_dim(tokens, 1) : 0;
    if (ct_ndim(tokens) != 2 || count > context - before) {
        if (before)
            ct_fail(CT_ERR_SHAPE, "gpt",
                    "tokens is %s after %lld before them, expected [N, T] with at most %lld in all",
                    ct_tensor_text(tokens), (long long)before, (long long)context);
        else
            ct_fail(CT_ERR_SHAPE, "gpt", "tokens is %s, expected [N, T] with T at most %lld", ct_tensor_text(tokens),
                    (long long)context);
        return NULL;
    }
    if (count < context) position = ct_narrow(position, 0, before, count);
    ct_tensor *x = ct_add(ct_forward(ct_module_child(self, 0), tokens), position);
    for (int i = 1; x && i < 4; i++) x = ct_forward(ct_module_child(self, i), i == 1 ? drop(self, x, dropout) : x);
    return x;
}

static const ct_module_class gpt_class = {
    .size = sizeof(ct_module_class), .name = "gpt", .state = sizeof(double), .forward = gpt_forward};

ct_module *ct_nn_gpt_p(int64_t vocabulary, const ct_nn_gpt_options *options) {
    TAKE_OPTIONS(ct_nn_gpt_options, o, options);
    const int64_t dim = or_else(o.dim, 384), layers = or_else(o.layers, 6), context = or_else(o.context, 256);
    if (!ct_ok() || !ct__positive("nn_gpt", "vocabulary", vocabulary) || !ct__positive("nn_gpt", "layers", layers) ||
        !ct__positive("nn_gpt", "dim", dim) || !ct__positive("nn_gpt", "context", context))
        return NULL;
    ct_module *m = with_dropout(&gpt_class, o.dropout);
    if (!m) return NULL;
    ct_nn_transformer_options layer = usual_layer(o.feedforward, o.dropout);
    layer.causal = true;
    layer.no_bias = o.no_bias;
    bool ok = add_normal(m, "position", CT_DIMS(context, dim), 0.02) &&
              ct_module_add(m, "tokens", ct_nn_embedding(vocabulary, dim, .std = 0.02)) &&
              ct_module_add(m, "layers", layers_of("nn_gpt", layers, dim, or_else(o.heads, 6), &layer)) &&
              ct_module_add(m, "norm", ct_nn_layer_norm(dim, .no_bias = o.no_bias)) &&
              ct_module_add(m, "head", ct_nn_linear(dim, vocabulary, .no_bias = true)) && init_normal(m, 0.02) &&
              (!o.tied || ct_module_tie(m, "head.weight", "tokens.weight"));
    /* what is added to the residual stream 2 layers times begins that much smaller */
    ct_module *stack = ct_module_child(m, 1);
    for (int i = 0; ok && i < ct_module_child_count(stack); i++) {
        ct_module *l = ct_module_child(stack, i);
        const double std = 0.02 / sqrt(2 * (double)layers);
        ok = ct_init_normal(ct_module_find(l, "self_attn.out_proj.weight"), 0, std, NULL) &&
             ct_init_normal(ct_module_find(l, "linear2.weight"), 0, std, NULL);
    }
    return ct__finish(m, ok);
}

/* ---- LSTM language model ---- */

typedef struct lstm_lm {
    double dropout;
} lstm_lm;

static bool lstm_lm_forward(ct_module *self, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    const lstm_lm *l = ct_module_data(self);
    if (n > 3 || m > 3)
        return ct_fail(CT_ERR_VALUE, "lstm_lm", "%d tensors in and %d out, expected at most 3 and 3", n, m);
    ct_tensor *x = drop(self, ct_forward(ct_module_child(self, 0), in[0]), l->dropout);
    ct_tensor *given[3] = {x, n > 1 ? in[1] : NULL, n > 2 ? in[2] : NULL};
    if (!x || !ct_forward_n(ct_module_child(self, 1), given, n, out, m)) return false;
    out[0] = ct_forward(ct_module_child(self, 2), drop(self, out[0], l->dropout));
    return out[0] != NULL;
}

static const ct_module_class lstm_lm_class = {
    .size = sizeof(ct_module_class), .name = "lstm_lm", .state = sizeof(lstm_lm), .forward_n = lstm_lm_forward};

ct_module *ct_nn_lstm_lm_p(int64_t vocabulary, const ct_nn_lstm_lm_options *options) {
    TAKE_OPTIONS(ct_nn_lstm_lm_options, o, options);
    const int64_t dim = or_else(o.dim, 256), hidden = or_else(o.hidden, 512);
    if (!ct_ok()) return NULL;
    if (o.tied && dim != hidden) {
        ct_fail(CT_ERR_VALUE, "nn_lstm_lm", "tied needs dim = hidden, they are %lld and %lld", (long long)dim,
                (long long)hidden);
        return NULL;
    }
    ct_module *m = ct_module_new(&lstm_lm_class);
    if (!m) return NULL;
    ((lstm_lm *)ct_module_data(m))->dropout = o.dropout;
    return ct__finish(m, ct_module_add(m, "tokens", ct_nn_embedding(vocabulary, dim, .std = 0.1)) &&
                             ct_module_add(m, "lstm",
                                           ct_nn_lstm(dim, hidden, .layers = or_else(o.layers, 2), .batch_first = true,
                                                      .dropout = o.dropout)) &&
                             ct_module_add(m, "head", ct_nn_linear(hidden, vocabulary)) &&
                             (!o.tied || ct_module_tie(m, "head.weight", "tokens.weight")));
}
