/* Norms. Parameters are weight and bias, in this order; buffers running_mean and running_var. */
#include "nn/module.h"

typedef struct norm {
    int64_t channels; /* or features, or neighbors */
    int64_t groups;
    ct_nn_norm_options o; /* for layer_norm and rms_norm with shape */
    ct_nn_sum_fn sum;     /* of batch_norm: adds up over more than the batch at hand; NULL: the batch alone */
    void *sum_context;
} norm;

/* ---- Batch norm by statistics of more than the batch at hand ---- */

typedef struct statistics {
    ct_tensor *mean, *variance, *count; /* [channels], [channels], [1] */
} statistics;

/* The mean first, and the squares of what is left of x: their difference would cancel. */
static statistics wide_statistics(const norm *n, ct_tensor *x, ct_dims axes, ct_dims across) {
    statistics s = {0};
    const int64_t channels = n->channels;
    ct_tensor *count = ct_full(CT_DIMS(1), (double)(ct_numel(x) / channels), .dtype = ct_dtype_of(x));
    ct_tensor *sums = n->sum(n->sum_context, ct_cat((ct_tensor *[]){ct_sum(x, .axes = axes), count}, 2, 0));
    s.count = ct_narrow(sums, 0, channels, 1);
    s.mean = ct_div(ct_narrow(sums, 0, 0, channels), s.count);
    ct_tensor *off = ct_sub(x, ct_reshape(s.mean, across));
    s.variance = ct_div(n->sum(n->sum_context, ct_sum(ct_mul(off, off), .axes = axes)), s.count);
    return s;
}

static void learn_statistics(ct_module *self, const norm *n, const statistics *s) {
    ct_tensor *mean = ct_module_buffer(self, 0), *variance = ct_module_buffer(self, 1);
    const double momentum = n->o.momentum.set ? n->o.momentum.value : 0.1;
    if (!mean || !variance || ct_is_recomputing()) return;
    ct_no_grad {
        ct_tensor *unbiased = ct_mul(s->variance, ct_div(s->count, ct_sub_s(s->count, 1)));
        ct_assign(mean, ct_add(ct_mul_s(mean, 1 - momentum), ct_mul_s(s->mean, momentum)));
        ct_assign(variance, ct_add(ct_mul_s(variance, 1 - momentum), ct_mul_s(unbiased, momentum)));
    }
}

static ct_tensor *batch_over_more(ct_module *self, ct_tensor *x, ct_tensor *residual, bool relu) {
    const norm *n = ct_module_data(self);
    const int axis = n->o.channels_last ? ct_ndim(x) - 1 : 1;
    ct_dims axes = {0}, across = {.n = ct_ndim(x)};
    if (!x || ct_ndim(x) < 2 || ct_dim(x, axis) != n->channels) {
        ct_fail(CT_ERR_SHAPE, "batch_norm", "x is %s, and its channels have to be %lld", x ? ct_tensor_text(x) : "NULL",
                (long long)n->channels);
        return NULL;
    }
    for (int i = 0; i < across.n; i++) {
        across.d[i] = i == axis ? n->channels : 1;
        if (i != axis) axes.d[axes.n++] = i;
    }
    const ct_dtype dtype = ct_dtype_of(x);
    ct_tensor *wide = dtype == CT_F16 || dtype == CT_BF16 ? ct_cast(x, CT_F32) : x;
    ct_tensor *weight = ct_module_param(self, 0), *bias = ct_module_param(self, 1);
    const statistics s = wide_statistics(n, wide, axes, across);
    ct_tensor *scale = ct_rsqrt(ct_add_s(s.variance, n->o.eps.set ? n->o.eps.value : 1e-5));
    if (weight) scale = ct_mul(scale, weight);
    ct_tensor *y = ct_mul(ct_sub(wide, ct_reshape(s.mean, across)), ct_reshape(scale, across));
    if (bias) y = ct_add(y, ct_reshape(bias, across));
    y = ct_cast(y, dtype);
    if (residual) y = ct_add(y, residual);
    if (y) learn_statistics(self, n, &s);
    return relu ? ct_relu(y) : y;
}

static ct_tensor *batch(ct_module *self, ct_tensor *x, ct_tensor *residual, bool relu) {
    const norm *n = ct_module_data(self);
    ct_tensor *mean = ct_module_buffer(self, 0), *var = ct_module_buffer(self, 1);
    if (n->sum && (!mean || ct_module_training(self))) return batch_over_more(self, x, residual, relu);
    return ct_batch_norm(x, .running_mean = mean, .running_var = var, .weight = ct_module_param(self, 0),
                         .bias = ct_module_param(self, 1), .residual = residual,
                         .training = !mean || ct_module_training(self), .momentum = n->o.momentum, .eps = n->o.eps,
                         .relu = relu, .channels_last = n->o.channels_last);
}

static ct_tensor *batch_forward(ct_module *self, ct_tensor *x) { return batch(self, x, NULL, false); }

static ct_tensor *batch_then(ct_module *self, ct_tensor *x, ct_activation activation) {
    if (activation == CT_ACT_RELU) return batch(self, x, NULL, true);
    return ct__activate(batch_forward(self, x), activation);
}

static ct_tensor *group_forward(ct_module *self, ct_tensor *x) {
    const norm *n = ct_module_data(self);
    return ct_group_norm(x, n->groups, .weight = ct_module_param(self, 0), .bias = ct_module_param(self, 1),
                         .eps = n->o.eps, .channels_last = n->o.channels_last);
}

static ct_tensor *instance_forward(ct_module *self, ct_tensor *x) {
    const norm *n = ct_module_data(self);
    ct_tensor *mean = ct_module_buffer(self, 0), *var = ct_module_buffer(self, 1);
    return ct_instance_norm(x, .running_mean = mean, .running_var = var, .weight = ct_module_param(self, 0),
                            .bias = ct_module_param(self, 1), .use_running = mean && !ct_module_training(self),
                            .momentum = n->o.momentum, .eps = n->o.eps, .channels_last = n->o.channels_last);
}

static ct_tensor *layer_forward(ct_module *self, ct_tensor *x) {
    const norm *n = ct_module_data(self);
    return ct_layer_norm(x, n->o.shape, .weight = ct_module_param(self, 0), .bias = ct_module_param(self, 1),
                         .eps = n->o.eps);
}

static ct_tensor *rms_forward(ct_module *self, ct_tensor *x) {
    const norm *n = ct_module_data(self);
    return ct_rms_norm(x, n->o.shape, .weight = ct_module_param(self, 0), .eps = n->o.eps);
}

static ct_tensor *response_forward(ct_module *self, ct_tensor *x) {
    const norm *n = ct_module_data(self);
    return ct_local_response_norm(x, n->channels, .alpha = n->o.alpha, .beta = n->o.beta, .k = n->o.k,
                                  .channels_last = n->o.channels_last);
}

static void describe(const ct_module *self, char *text, size_t capacity) {
    const norm *n = ct_module_data(self);
    ct__writer w = {text, capacity, 0};
    if (n->groups) ct__write(&w, "%lld, ", (long long)n->groups);
    if (n->o.shape.n > 1) ct__write(&w, "%s", ct_dims_text(n->o.shape));
    else ct__write(&w, "%lld", (long long)n->channels);
    if (n->o.eps.set) ct__write(&w, ", eps=%g", n->o.eps.value);
    if (n->o.momentum.set) ct__write(&w, ", momentum=%g", n->o.momentum.value);
    if (n->o.channels_last) ct__write(&w, ", channels_last");
}

/* PyTorch counts its training steps in the weights, for a mean without momentum. */
static const ct_rename running_aliases[] = {{"num_batches_tracked", NULL}, {NULL, NULL}};

#define NORM_CLASS(id, text, known, then)                                       \
    static const ct_module_class id##_class = {.size = sizeof(ct_module_class), \
                                               .name = text,                    \
                                               .state = sizeof(norm),           \
                                               .forward = id##_forward,         \
                                               .forward_then = then,            \
                                               .describe = describe,            \
                                               .aliases = known};
NORM_CLASS(batch, "batch_norm", running_aliases, batch_then)
NORM_CLASS(group, "group_norm", NULL, NULL)
NORM_CLASS(instance, "instance_norm", running_aliases, NULL)
NORM_CLASS(layer, "layer_norm", NULL, NULL)
NORM_CLASS(rms, "rms_norm", NULL, NULL)
NORM_CLASS(response, "local_response_norm", NULL, NULL)

ct_tensor *ct__norm_add_relu(ct_module *module, ct_tensor *x, ct_tensor *residual) {
    if (!x || !residual) return NULL;
    if (module->type == &batch_class) return batch(module, x, residual, true);
    ct_tensor *y = ct_forward(module, x);
    return y ? ct_relu(ct_add(y, residual)) : NULL;
}

typedef struct summing {
    ct_nn_sum_fn sum;
    void *context;
} summing;

static bool set_sum(void *context, const char *path, ct_module *module) {
    const summing *s = context;
    (void)path;
    if (module->type != &batch_class) return true;
    norm *n = ct_module_data(module);
    n->sum = s->sum;
    n->sum_context = s->context;
    return true;
}

bool ct_nn_batch_norm_sum(ct_module *net, ct_nn_sum_fn sum, void *context) {
    return ct_module_apply(net, set_sum, &(summing){sum, context});
}

/* With weight and bias of that shape, and running statistics, where wanted. */
static ct_module *make(const ct_module_class *type, const norm *n, ct_dims shape, bool weight, bool bias,
                       bool running) {
    ct_module *module = ct_module_new(type);
    if (!module) return NULL;
    *(norm *)ct_module_data(module) = *n;
    return ct__finish(module, (!weight || ct__add_constant(module, "weight", shape, 1, false)) &&
                                  (!bias || ct__add_constant(module, "bias", shape, 0, false)) &&
                                  (!running || (ct__add_constant(module, "running_mean", shape, 0, true) &&
                                                ct__add_constant(module, "running_var", shape, 1, true))));
}

ct_module *ct_nn_batch_norm_p(int64_t channels, const ct_nn_norm_options *options) {
    norm n = {.channels = channels};
    ct__take_options("ct_nn_norm_options", &n.o, sizeof n.o, options);
    if (!ct_ok() || !ct__positive("nn_batch_norm", "channels", channels)) return NULL;
    const bool affine = !n.o.no_affine;
    return make(&batch_class, &n, CT_DIMS(channels), affine, affine && !n.o.no_bias, !n.o.no_running);
}

ct_module *ct_nn_group_norm_p(int64_t groups, int64_t channels, const ct_nn_norm_options *options) {
    norm n = {.channels = channels, .groups = groups};
    ct__take_options("ct_nn_norm_options", &n.o, sizeof n.o, options);
    if (!ct_ok() || !ct__positive("nn_group_norm", "groups", groups) ||
        !ct__positive("nn_group_norm", "channels", channels))
        return NULL;
    if (channels % groups != 0) {
        ct_fail(CT_ERR_VALUE, "nn_group_norm", "%lld channels cannot be divided into %lld groups", (long long)channels,
                (long long)groups);
        return NULL;
    }
    const bool affine = !n.o.no_affine;
    return make(&group_class, &n, CT_DIMS(channels), affine, affine && !n.o.no_bias, false);
}

ct_module *ct_nn_instance_norm_p(int64_t channels, const ct_nn_norm_options *options) {
    norm n = {.channels = channels};
    ct__take_options("ct_nn_norm_options", &n.o, sizeof n.o, options);
    if (!ct_ok() || !ct__positive("nn_instance_norm", "channels", channels)) return NULL;
    return make(&instance_class, &n, CT_DIMS(channels), n.o.affine, n.o.affine && !n.o.no_bias, n.o.running);
}

static ct_module *make_rows(const ct_module_class *type, const char *function, int64_t features,
                            const ct_nn_norm_options *options, bool bias) {
    norm n = {.channels = features};
    ct__take_options("ct_nn_norm_options", &n.o, sizeof n.o, options);
    if (!n.o.shape.n) n.o.shape = CT_DIMS(features);
    if (!ct_ok()) return NULL;
    if (n.o.shape.n < 0 || n.o.shape.n > CT_MAX_DIMS) {
        ct_fail(CT_ERR_SHAPE, function, "shape has more than %d dimensions", CT_MAX_DIMS);
        return NULL;
    }
    for (int i = 0; i < n.o.shape.n; i++)
        if (!ct__positive(function, "features", n.o.shape.d[i])) return NULL;
    const bool affine = !n.o.no_affine;
    return make(type, &n, n.o.shape, affine, affine && bias && !n.o.no_bias, false);
}

ct_module *ct_nn_layer_norm_p(int64_t features, const ct_nn_norm_options *options) {
    return make_rows(&layer_class, "nn_layer_norm", features, options, true);
}

ct_module *ct_nn_rms_norm_p(int64_t features, const ct_nn_norm_options *options) {
    return make_rows(&rms_class, "nn_rms_norm", features, options, false);
}

ct_module *ct_nn_local_response_norm_p(int64_t neighbors, const ct_nn_norm_options *options) {
    norm n = {.channels = neighbors};
    ct__take_options("ct_nn_norm_options", &n.o, sizeof n.o, options);
    if (!ct_ok() || !ct__positive("nn_local_response_norm", "neighbors", neighbors)) return NULL;
    return make(&response_class, &n, CT_DIMS0, false, false, false);
}
