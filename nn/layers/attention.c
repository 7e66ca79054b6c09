/* Multi-head attention. The projections of query, key and value are one matrix, so that self-attention needs one product
 * for all three; only features that differ call for matrices of their own. */
#include <math.h>

#include "nn/cache.h"

typedef struct attention {
    int64_t dim, heads, kv_heads, head; /* head: features of one */
    bool apart;                         /* q_proj_weight, k_proj_weight, v_proj_weight */
    ct_nn_attention_options o;
} attention;

/* [..., T, heads * head] as [..., T, heads, head] */
static ct_tensor *split_heads(ct_tensor *x, int64_t heads, int64_t head) {
    ct_dims s = ct_shape(x);
    if (s.n < 2 || s.n >= CT_MAX_DIMS) {
        if (x) ct_fail(CT_ERR_SHAPE, "attention", "%s: expected [..., T, features]", ct_tensor_text(x));
        return NULL;
    }
    s.d[s.n - 1] = heads;
    s.d[s.n++] = head;
    return ct_reshape(x, s);
}

static ct_tensor *join_heads(ct_tensor *x) {
    x = ct_transpose(x, -3, -2);
    if (!x) return NULL;
    ct_dims s = ct_shape(x);
    s.d[s.n - 2] *= s.d[s.n - 1];
    s.n--;
    return ct_reshape(x, s);
}

/* The three projections of query, key and value into out, [..., T, heads, head]. Those of one product are taken apart by heads, so that
 * their gradients, whose heads lie apart, are put together as they are. */
static bool project(ct_module *self, const attention *a, ct_tensor *const in[3], ct_tensor *out[3]) {
    const ct_dims rows = CT_DIMS(a->heads * a->head, a->kv_heads * a->head, a->kv_heads * a->head);
    ct_tensor *bias = ct_module_param(self, a->apart ? 3 : 1);
    if (!a->apart && in[1] == in[0] && in[2] == in[0]) {
        ct_tensor *all = ct_linear(in[0], ct_module_param(self, 0), .bias = bias);
        all = split_heads(all, a->heads + 2 * a->kv_heads, a->head);
        return all && ct_split(all, -2, CT_DIMS(a->heads, a->kv_heads, a->kv_heads), out, 3);
    }
    ct_tensor *weights[3], *biases[3] = {NULL, NULL, NULL};
    if (a->apart)
        for (int i = 0; i < 3; i++) weights[i] = ct_module_param(self, i);
    else if (!ct_split(ct_module_param(self, 0), 0, rows, weights, 3)) return false;
    if (bias && !ct_split(bias, 0, rows, biases, 3)) return false;
    for (int i = 0; i < 3; i++)
        if (!(out[i] =
                  split_heads(ct_linear(in[i], weights[i], .bias = biases[i]), i ? a->kv_heads : a->heads, a->head)))
            return false;
    return true;
}

static bool attention_forward(ct_module *self, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    const attention *a = ct_module_data(self);
    if (n > 4 || m != 1)
        return ct_fail(CT_ERR_VALUE, "multi_head_attention", "%d tensors in and %d out, expected at most 4 and 1", n,
                       m);
    ct_tensor *query = in[0], *key = n > 1 && in[1] ? in[1] : query, *value = n > 2 && in[2] ? in[2] : key;
    ct_tensor *p[3];
    const bool cached = ct__cache_runs() && key == query && value == query;
    if (cached && !a->o.causal)
        return ct_fail(CT_ERR_VALUE, "multi_head_attention",
                       "a cache is for causal attention: here earlier results would change with later tokens");
    if (!project(self, a, (ct_tensor *const[]){query, key, value}, p)) return false;
    for (int i = 0; i < 3; i++) p[i] = ct_transpose(p[i], -3, -2);
    if (cached && !ct__cache_extend(self, &p[1], &p[2])) return false;
    ct_tensor *y =
        ct_scaled_dot_product_attention(p[0], p[1], p[2], .mask = n > 3 ? in[3] : NULL, .causal = a->o.causal,
                                        .bottom_right = cached, .dropout = ct_module_training(self) ? a->o.dropout : 0);
    out[0] = ct_forward(ct_module_child(self, 0), join_heads(y));
    return out[0] != NULL;
}

static void describe(const ct_module *self, char *text, size_t capacity) {
    const attention *a = ct_module_data(self);
    ct__writer w = {text, capacity, 0};
    ct__write(&w, "%lld, heads=%lld", (long long)a->dim, (long long)a->heads);
    if (a->kv_heads != a->heads) ct__write(&w, ", kv_heads=%lld", (long long)a->kv_heads);
    if (a->o.causal) ct__write(&w, ", causal");
    if (a->o.no_bias) ct__write(&w, ", no_bias");
    if (a->o.dropout > 0) ct__write(&w, ", dropout=%g", a->o.dropout);
}

static const ct_module_class attention_class = {.size = sizeof(ct_module_class),
                                                .name = "multi_head_attention",
                                                .state = sizeof(attention),
                                                .forward_n = attention_forward,
                                                .describe = describe};

ct_module *ct_nn_multi_head_attention_p(int64_t dim, int64_t heads, const ct_nn_attention_options *options) {
    const char *function = "nn_multi_head_attention";
    attention a = {.dim = dim, .heads = heads};
    ct__take_options("ct_nn_attention_options", &a.o, sizeof a.o, options);
    a.kv_heads = a.o.kv_heads ? a.o.kv_heads : heads;
    if (!ct_ok() || !ct__positive(function, "dim", dim) || !ct__positive(function, "heads", heads) ||
        !ct__positive(function, "kv_heads", a.kv_heads))
        return NULL;
    if (dim % heads != 0 || heads % a.kv_heads != 0) {
        ct_fail(CT_ERR_VALUE, function, "dim %lld, heads %lld, kv_heads %lld: each has to divide the one before",
                (long long)dim, (long long)heads, (long long)a.kv_heads);
        return NULL;
    }
    if (!ct__is_probability(function, "dropout", a.o.dropout)) return NULL;
    a.head = dim / heads;
    const int64_t key_dim = a.o.key_dim ? a.o.key_dim : dim, value_dim = a.o.value_dim ? a.o.value_dim : dim;
    if (!ct__positive(function, "key_dim", key_dim) || !ct__positive(function, "value_dim", value_dim)) return NULL;
    a.apart = key_dim != dim || value_dim != dim;
    ct_module *module = ct_module_new(&attention_class);
    if (!module) return NULL;
    *(attention *)ct_module_data(module) = a;
    const int64_t few = a.kv_heads * a.head, rows = dim + 2 * few;
    bool ok = true;
    if (!a.apart) {
        ok = ct__add_uniform(module, "in_proj_weight", CT_DIMS(rows, dim), sqrt(6.0 / (double)(rows + dim)));
    } else {
        ok = ct__add_uniform(module, "q_proj_weight", CT_DIMS(dim, dim), sqrt(3.0 / (double)dim)) &&
             ct__add_uniform(module, "k_proj_weight", CT_DIMS(few, key_dim), sqrt(6.0 / (double)(few + key_dim))) &&
             ct__add_uniform(module, "v_proj_weight", CT_DIMS(few, value_dim), sqrt(6.0 / (double)(few + value_dim)));
    }
    if (ok && !a.o.no_bias) ok = ct__add_constant(module, "in_proj_bias", CT_DIMS(rows), 0, false);
    ct_module *last = ok ? ct_nn_linear(dim, dim, .no_bias = a.o.no_bias) : NULL;
    ok = last && (a.o.no_bias || ct_init_zeros(ct_module_param(last, 1)));
    if (!ok) ct_module_free(last);
    return ct__finish(module, ok && ct_module_add(module, "out_proj", last));
}

int64_t ct_nn_attention_heads(const ct_module *module, ct_nn_attention_options *options) {
    if (!module || ct_module_type(module) != &attention_class) return 0;
    const attention *a = ct_module_data(module);
    if (options) { /* as much as the caller knows of */
        const size_t size = options->size;
        memcpy(options, &a->o, size < sizeof a->o ? size : sizeof a->o);
        options->size = size;
    }
    return a->heads;
}
