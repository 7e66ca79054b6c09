/* Transformer layers, encoder and decoder, and stacks of them. Attention and feed-forward each go with a norm and a sum:
 * before the sum in one form, after it in the other. */
#include "nn/module.h"

typedef struct transformer {
    int64_t dim, heads;
    ct_nn_transformer_options o;
} transformer;

/* Children in the order of adding. */
enum { SELF_ATTENTION, LINEAR1, LINEAR2, NORM1, NORM2, CROSS_ATTENTION, NORM3 };

static ct_tensor *drop(ct_module *self, ct_tensor *x) {
    const transformer *t = ct_module_data(self);
    return t->o.dropout > 0 && ct_module_training(self) ? ct_dropout(x, t->o.dropout) : x;
}

static ct_tensor *normed(ct_module *self, int norm, ct_tensor *x) { return ct_forward(ct_module_child(self, norm), x); }

/* Attention of x to memory (NULL: to itself). */
static ct_tensor *attend(ct_module *self, int child, ct_tensor *x, ct_tensor *memory, ct_tensor *mask) {
    ct_tensor *y = NULL;
    if (!x) return NULL;
    ct_forward_n(ct_module_child(self, child), (ct_tensor *const[]){x, memory, memory, mask}, 4, &y, 1);
    return drop(self, y);
}

static ct_tensor *feed(ct_module *self, ct_tensor *x) {
    const transformer *t = ct_module_data(self);
    ct_tensor *h = ct__forward_then(ct_module_child(self, LINEAR1), x, t->o.activation);
    return drop(self, ct_forward(ct_module_child(self, LINEAR2), drop(self, h)));
}

static bool layer_forward(ct_module *self, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    const transformer *t = ct_module_data(self);
    const bool decoder = ct_module_child_count(self) > CROSS_ATTENTION;
    if (n > (decoder ? 4 : 2) || (decoder && (n < 2 || !in[1])) || m != 1)
        return ct_fail(CT_ERR_VALUE, ct_module_type(self)->name, "%d tensors in and %d out, expected %s and 1", n, m,
                       decoder ? "x, memory and at most two masks" : "x and at most a mask");
    ct_tensor *x = in[0], *memory = decoder ? in[1] : NULL;
    ct_tensor *mask = decoder ? (n > 2 ? in[2] : NULL) : n > 1 ? in[1] : NULL, *memory_mask = n > 3 ? in[3] : NULL;
    const int last = decoder ? NORM3 : NORM2;
    if (t->o.norm_first) {
        x = ct_add(x, attend(self, SELF_ATTENTION, normed(self, NORM1, x), NULL, mask));
        if (decoder) x = ct_add(x, attend(self, CROSS_ATTENTION, normed(self, NORM2, x), memory, memory_mask));
        x = ct_add(x, feed(self, normed(self, last, x)));
    } else {
        x = normed(self, NORM1, ct_add(x, attend(self, SELF_ATTENTION, x, NULL, mask)));
        if (decoder) x = normed(self, NORM2, ct_add(x, attend(self, CROSS_ATTENTION, x, memory, memory_mask)));
        x = normed(self, last, ct_add(x, feed(self, x)));
    }
    out[0] = x;
    return x != NULL;
}

static void describe(const ct_module *self, char *text, size_t capacity) {
    const transformer *t = ct_module_data(self);
    ct__writer w = {text, capacity, 0};
    ct__write(&w, "%lld, heads=%lld", (long long)t->dim, (long long)t->heads);
    ct__write_activation(&w, t->o.activation);
    if (t->o.norm_first) ct__write(&w, ", norm_first");
    if (t->o.dropout > 0) ct__write(&w, ", dropout=%g", t->o.dropout);
}

static const ct_module_class encoder_layer_class = {.size = sizeof(ct_module_class),
                                                    .name = "transformer_encoder_layer",
                                                    .state = sizeof(transformer),
                                                    .forward_n = layer_forward,
                                                    .describe = describe};
static const ct_module_class decoder_layer_class = {.size = sizeof(ct_module_class),
                                                    .name = "transformer_decoder_layer",
                                                    .state = sizeof(transformer),
                                                    .forward_n = layer_forward,
                                                    .describe = describe};

static ct_module *make_layer(bool decoder, int64_t dim, int64_t heads, const ct_nn_transformer_options *options) {
    transformer t = {.dim = dim, .heads = heads};
    ct__take_options("ct_nn_transformer_options", &t.o, sizeof t.o, options);
    const ct_nn_transformer_options *o = &t.o;
    const char *function = decoder ? "nn_transformer_decoder_layer" : "nn_transformer_encoder_layer";
    if (!ct_ok() || !ct__is_activation(function, o->activation) || !ct__positive(function, "dim", dim) ||
        !ct__is_probability(function, "dropout", o->dropout))
        return NULL;
    if (t.o.activation == CT_ACT_NONE) t.o.activation = CT_ACT_RELU;
    const int64_t inside = o->feedforward ? o->feedforward : 4 * dim;
    ct_module *module = ct_module_new(decoder ? &decoder_layer_class : &encoder_layer_class);
    if (!module) return NULL;
    *(transformer *)ct_module_data(module) = t;
#define ATTENTION(is_causal)                                                                                      \
    ct_nn_multi_head_attention(dim, heads, .kv_heads = o->kv_heads, .dropout = o->dropout, .no_bias = o->no_bias, \
                               .causal = is_causal)
#define NORM ct_nn_layer_norm(dim, .eps = o->eps, .no_bias = o->no_bias)
    bool ok = ct_module_add(module, "self_attn", ATTENTION(o->causal)) &&
              ct_module_add(module, "linear1", ct_nn_linear(dim, inside, .no_bias = o->no_bias)) &&
              ct_module_add(module, "linear2", ct_nn_linear(inside, dim, .no_bias = o->no_bias)) &&
              ct_module_add(module, "norm1", NORM) && ct_module_add(module, "norm2", NORM);
    if (ok && decoder)
        ok = ct_module_add(module, "multihead_attn", ATTENTION(false)) && ct_module_add(module, "norm3", NORM);
#undef NORM
#undef ATTENTION
    return ct__finish(module, ok);
}

ct_module *ct_nn_transformer_encoder_layer_p(int64_t dim, int64_t heads, const ct_nn_transformer_options *options) {
    return make_layer(false, dim, heads, options);
}

ct_module *ct_nn_transformer_decoder_layer_p(int64_t dim, int64_t heads, const ct_nn_transformer_options *options) {
    return make_layer(true, dim, heads, options);
}

/* ---- Stacks ---- */

static bool stack_forward(ct_module *self, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    if (n > 4 || m != 1)
        return ct_fail(CT_ERR_VALUE, ct_module_type(self)->name, "%d tensors in and %d out, expected at most 4 and 1",
                       n, m);
    ct_module *layers = ct_module_child(self, 0), *norm = ct_module_child(self, 1);
    ct_tensor *given[4] = {NULL, NULL, NULL, NULL};
    for (int i = 1; i < n; i++) given[i] = in[i];
    ct__chain chain = {.x = in[0]};
    for (int i = 0; chain.x && i < ct_module_child_count(layers); i++) {
        ct__chain_open(&chain, i + 1 == ct_module_child_count(layers));
        given[0] = chain.x;
        ct_tensor *y = NULL;
        ct_forward_n(ct_module_child(layers, i), given, n, &y, 1);
        ct__chain_close(&chain, y);
    }
    ct_tensor *x = ct__chain_end(&chain);
    out[0] = norm && x ? ct_forward(norm, x) : x;
    return out[0] != NULL;
}

static const ct_module_class encoder_class = {
    .size = sizeof(ct_module_class), .name = "transformer_encoder", .forward_n = stack_forward};
static const ct_module_class decoder_class = {
    .size = sizeof(ct_module_class), .name = "transformer_decoder", .forward_n = stack_forward};

static ct_module *make_stack(bool decoder, int64_t count, int64_t dim, int64_t heads,
                             const ct_nn_transformer_options *options) {
    TAKE_OPTIONS(ct_nn_transformer_options, o, options);
    const char *function = decoder ? "nn_transformer_decoder" : "nn_transformer_encoder";
    if (!ct_ok() || !ct__positive(function, "layers", count)) return NULL;
    ct_module *module = ct_module_new(decoder ? &decoder_class : &encoder_class);
    ct_module *layers = module ? ct__sequential_new("sequential") : NULL;
    bool ok = layers != NULL;
    for (int64_t i = 0; ok && i < count; i++) {
        ok = ct_nn_append(layers, make_layer(decoder, dim, heads, options));
        if (ok && i == 0) ok = ct__affordable(function, "layers", count, layers);
    }
    if (!ok) ct_module_free(layers);
    else
        ok =
            ct_module_add(module, "layers", layers) &&
            (!o.final_norm || ct_module_add(module, "norm", ct_nn_layer_norm(dim, .eps = o.eps, .no_bias = o.no_bias)));
    return ct__finish(module, ok);
}

ct_module *ct_nn_transformer_encoder_p(int64_t layers, int64_t dim, int64_t heads,
                                       const ct_nn_transformer_options *options) {
    return make_stack(false, layers, dim, heads, options);
}

ct_module *ct_nn_transformer_decoder_p(int64_t layers, int64_t dim, int64_t heads,
                                       const ct_nn_transformer_options *options) {
    return make_stack(true, layers, dim, heads, options);
}
