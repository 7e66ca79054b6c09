/* linear, embedding and prelu: layers that hold one table of numbers. */
#include <math.h>

#include "nn/module.h"

/* ---- linear ---- */

typedef struct linear {
    int64_t in, out;
    bool no_bias;
    ct_activation activation;
} linear;

static ct_tensor *linear_then(ct_module *self, ct_tensor *x, ct_activation activation) {
    const linear *l = ct_module_data(self);
    ct_tensor *weight = ct_module_param(self, 0), *bias = ct_module_param(self, 1);
    if (l->activation == CT_ACT_NONE) return ct_linear(x, weight, .bias = bias, .activation = activation);
    return ct__activate(ct_linear(x, weight, .bias = bias, .activation = l->activation), activation);
}

static ct_tensor *linear_forward(ct_module *self, ct_tensor *x) { return linear_then(self, x, CT_ACT_NONE); }

static void linear_describe(const ct_module *self, char *text, size_t capacity) {
    const linear *l = ct_module_data(self);
    ct__writer w = {text, capacity, 0};
    ct__write(&w, "%lld, %lld", (long long)l->in, (long long)l->out);
    if (l->no_bias) ct__write(&w, ", no_bias");
    ct__write_activation(&w, l->activation);
}

static const ct_module_class linear_class = {.size = sizeof(ct_module_class),
                                             .name = "linear",
                                             .state = sizeof(linear),
                                             .forward = linear_forward,
                                             .forward_then = linear_then,
                                             .describe = linear_describe};

ct_module *ct_nn_linear_p(int64_t in, int64_t out, const ct_nn_linear_options *options) {
    TAKE_OPTIONS(ct_nn_linear_options, o, options);
    if (!ct_ok() || !ct__positive("nn_linear", "in", in) || !ct__positive("nn_linear", "out", out) ||
        !ct__is_activation("nn_linear", o.activation))
        return NULL;
    ct_module *module = ct_module_new(&linear_class);
    if (!module) return NULL;
    *(linear *)ct_module_data(module) = (linear){in, out, o.no_bias, o.activation};
    const double bound = 1 / sqrt((double)in);
    return ct__finish(module, ct__add_uniform(module, "weight", CT_DIMS(out, in), bound) &&
                                  (o.no_bias || ct__add_uniform(module, "bias", CT_DIMS(out), bound)));
}

/* ---- embedding ---- */

typedef struct embedding {
    int64_t count, dim;
    ct_opt padding_idx;
} embedding;

static ct_tensor *embedding_forward(ct_module *self, ct_tensor *index) {
    const embedding *e = ct_module_data(self);
    return ct_embedding(ct_module_param(self, 0), index, .padding_idx = e->padding_idx);
}

static void embedding_describe(const ct_module *self, char *text, size_t capacity) {
    const embedding *e = ct_module_data(self);
    ct__writer w = {text, capacity, 0};
    ct__write(&w, "%lld, %lld", (long long)e->count, (long long)e->dim);
    if (e->padding_idx.set) ct__write(&w, ", padding_idx=%lld", (long long)e->padding_idx.value);
}

static const ct_module_class embedding_class = {.size = sizeof(ct_module_class),
                                                .name = "embedding",
                                                .state = sizeof(embedding),
                                                .forward = embedding_forward,
                                                .describe = embedding_describe};

ct_module *ct_nn_embedding_p(int64_t count, int64_t dim, const ct_nn_embedding_options *options) {
    TAKE_OPTIONS(ct_nn_embedding_options, o, options);
    if (!ct_ok() || !ct__positive("nn_embedding", "count", count) || !ct__positive("nn_embedding", "dim", dim))
        return NULL;
    if (o.padding_idx.set && !(o.padding_idx.value >= 0 && o.padding_idx.value < (double)count)) {
        ct_fail(CT_ERR_INDEX, "nn_embedding", "padding_idx is %g, expected 0 to %lld", o.padding_idx.value,
                (long long)(count - 1));
        return NULL;
    }
    ct_module *module = ct_module_new(&embedding_class);
    if (!module) return NULL;
    *(embedding *)ct_module_data(module) = (embedding){count, dim, o.padding_idx};
    bool ok = false;
    ct_scope {
        ct_tensor *weight = ct_normal(CT_DIMS(count, dim), 0, o.std != 0 ? o.std : 1);
        ok = weight && (!o.padding_idx.set || ct_zero(ct_select(weight, 0, (int64_t)o.padding_idx.value))) &&
             ct_module_add_param(module, "weight", weight);
    }
    return ct__finish(module, ok);
}

/* ---- prelu ---- */

static ct_tensor *prelu_forward(ct_module *self, ct_tensor *x) { return ct_prelu(x, ct_module_param(self, 0)); }

static const ct_module_class prelu_class = {.size = sizeof(ct_module_class), .name = "prelu", .forward = prelu_forward};

ct_module *ct_nn_prelu(int64_t count, double slope) {
    if (!ct_ok() || !ct__positive("nn_prelu", "count", count)) return NULL;
    ct_module *module = ct_module_new(&prelu_class);
    return ct__finish(module, ct__add_constant(module, "weight", CT_DIMS(count), slope, false));
}
