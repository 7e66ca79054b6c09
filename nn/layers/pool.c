/* Pools: one struct and one function for each kind, over one to three axes. */
#include "nn/module.h"

typedef struct pool {
    ct_dims kernel; /* of the adaptive ones: the size of the result */
    double p;
    ct_nn_pool_options o;
} pool;

#define WINDOW .stride = o->stride, .strides = o->strides, .channels_last = o->channels_last, .ceil_mode = o->ceil_mode
#define PADDED WINDOW, .pad = o->pad, .pads = o->pads, .pad_mode = o->pad_mode

/* X(name, axes, how to call it with x, k and o) */
#define POOLS(X, n)                                                                                            \
    X(max_pool, n, ct_max_pool##n##d(x, k, PADDED, .dilation = o->dilation, .dilations = o->dilations))        \
    X(avg_pool, n,                                                                                             \
      ct_avg_pool##n##d(x, k, PADDED, .exclude_pad = o->exclude_pad, .divisor_override = o->divisor_override)) \
    X(lp_pool, n, ct_lp_pool##n##d(x, p->p, k, WINDOW))                                                        \
    X(adaptive_avg_pool, n, ct_adaptive_avg_pool##n##d(x, k, .channels_last = o->channels_last))               \
    X(adaptive_max_pool, n, ct_adaptive_max_pool##n##d(x, k, .channels_last = o->channels_last))
#define EVERY_POOL(X) POOLS(X, 1) POOLS(X, 2) POOLS(X, 3)

static void describe(const ct_module *self, char *text, size_t capacity) {
    const pool *p = ct_module_data(self);
    ct__writer w = {text, capacity, 0};
    if (p->p != 0) ct__write(&w, "%g, ", p->p);
    ct__write(&w, "%lld", (long long)p->kernel.d[0]);
    for (int i = 1; i < p->kernel.n; i++) ct__write(&w, "x%lld", (long long)p->kernel.d[i]);
    ct__write_axes(&w, "stride", p->o.stride, &p->o.strides);
    ct__write_axes(&w, "pad", p->o.pad, &p->o.pads);
    ct__write_axes(&w, "dilation", p->o.dilation, &p->o.dilations);
    if (p->o.ceil_mode) ct__write(&w, ", ceil_mode");
    if (p->o.channels_last) ct__write(&w, ", channels_last");
}

static ct_module *make(const ct_module_class *type, const char *function, int axes, double power, int64_t kernel,
                       const ct_nn_pool_options *options) {
    TAKE_OPTIONS(ct_nn_pool_options, o, options);
    if (!ct_ok()) return NULL;
    if (!ct__is_list(function, "strides", o.strides) || !ct__is_list(function, "pads", o.pads) ||
        !ct__is_list(function, "dilations", o.dilations))
        return NULL;
    if (o.kernels.n < 0 || (o.kernels.n > 1 && o.kernels.n != axes)) {
        ct_fail(CT_ERR_VALUE, function, "kernels has %d numbers, expected %d", o.kernels.n, axes);
        return NULL;
    }
    if (power != 0 && (o.pad || o.pads.n || o.pad_mode != CT_EXPLICIT)) {
        ct_fail(CT_ERR_VALUE, function, "this pool has no padding");
        return NULL;
    }
    const ct_dims k = o.kernels.n ? o.kernels : CT_DIMS(kernel);
    for (int i = 0; i < k.n; i++)
        if (!ct__positive(function, "the window", k.d[i])) return NULL;
    ct_module *module = ct_module_new(type);
    if (module) *(pool *)ct_module_data(module) = (pool){.kernel = k, .p = power, .o = o};
    return module;
}

#define POOL_CLASS(kind, n, call)                                                    \
    static ct_tensor *kind##n##_forward(ct_module *self, ct_tensor *x) {             \
        const pool *p = ct_module_data(self);                                        \
        const ct_nn_pool_options *o = &p->o;                                         \
        const ct_dims k = p->kernel;                                                 \
        return call;                                                                 \
    }                                                                                \
    static const ct_module_class kind##n##_class = {.size = sizeof(ct_module_class), \
                                                    .name = #kind #n "d",            \
                                                    .state = sizeof(pool),           \
                                                    .forward = kind##n##_forward,    \
                                                    .describe = describe};
EVERY_POOL(POOL_CLASS)

#define POOL_MAKER(kind, n)                                                              \
    ct_module *ct_nn_##kind##n##d_p(int64_t kernel, const ct_nn_pool_options *options) { \
        return make(&kind##n##_class, "nn_" #kind #n "d", n, 0, kernel, options);        \
    }
#define MAKERS(n)                                                                                   \
    POOL_MAKER(max_pool, n)                                                                         \
    POOL_MAKER(avg_pool, n)                                                                         \
    POOL_MAKER(adaptive_avg_pool, n)                                                                \
    POOL_MAKER(adaptive_max_pool, n)                                                                \
    ct_module *ct_nn_lp_pool##n##d_p(double p, int64_t kernel, const ct_nn_pool_options *options) { \
        return make(&lp_pool##n##_class, "nn_lp_pool" #n "d", n, p, kernel, options);               \
    }
MAKERS(1)
MAKERS(2)
MAKERS(3)
