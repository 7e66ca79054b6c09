/* Incremental decoding: the keys and values that causal self-attention has computed, kept for the tokens to come. */
#include "nn/cache.h"

#include <stdlib.h>

/* The tensors of one self-attention, [..., heads, capacity, features of a head], of which the first `length` places are
 * filled. Found by its turn in the pass, not by its module, since a module may occur twice. */
typedef struct layer {
    const ct_module *attention;
    ct_tensor *k, *v;
} layer;

struct ct_nn_cache {
    ct_module *net;
    int64_t capacity, length;
    layer *layers;
    int count, room;
    int turn;      /* of the pass at hand: attentions so far */
    int64_t added; /* tokens of the pass at hand */
};

static _Thread_local ct_nn_cache *current;

bool ct__cache_runs(void) { return current != NULL; }

int64_t ct_forward_position(void) { return current ? current->length : 0; }

/* ---- Making ---- */

static bool count_attention(void *context, const char *path, ct_module *module) {
    (void)path;
    *(int *)context += strcmp(ct_module_type(module)->name, "multi_head_attention") == 0;
    return true;
}

ct_nn_cache *ct_nn_cache_new(ct_module *net, int64_t capacity) {
    int attentions = 0;
    if (!ct_ok()) return NULL;
    if (!net) {
        ct_fail(CT_ERR_NULL, "nn_cache_new", "argument net is NULL");
        return NULL;
    }
    if (!ct__positive("nn_cache_new", "capacity", capacity) || !ct_module_apply(net, count_attention, &attentions))
        return NULL;
    if (attentions == 0) {
        ct_fail(CT_ERR_VALUE, "nn_cache_new", "the %s has no attention, so there is nothing to keep",
                ct_module_type(net)->name);
        return NULL;
    }
    ct_nn_cache *cache = ct_calloc(1, sizeof *cache);
    if (!cache) {
        ct_fail(CT_ERR_MEMORY, "nn_cache_new", "out of memory");
        return NULL;
    }
    cache->net = ct_module_keep(net);
    cache->capacity = capacity;
    return cache;
}

static void forget(layer *l) {
    ct_drop(l->k);
    ct_drop(l->v);
    *l = (layer){0};
}

void ct_nn_cache_free(ct_nn_cache *cache) {
    if (!cache) return;
    for (int i = 0; i < cache->count; i++) forget(&cache->layers[i]);
    ct_free(cache->layers);
    ct_module_free(cache->net);
    ct_free(cache);
}

int64_t ct_nn_cache_length(const ct_nn_cache *cache) { return cache ? cache->length : 0; }
int64_t ct_nn_cache_capacity(const ct_nn_cache *cache) { return cache ? cache->capacity : 0; }

bool ct_nn_cache_truncate(ct_nn_cache *cache, int64_t length) {
    if (!ct_ok()) return false;
    if (!cache) return ct_fail(CT_ERR_NULL, "nn_cache_truncate", "argument cache is NULL");
    if (length < 0 || length > cache->length)
        return ct_fail(CT_ERR_VALUE, "nn_cache_truncate", "length is %lld, and the cache has %lld tokens",
                       (long long)length, (long long)cache->length);
    cache->length = length;
    return true;
}

/* ---- In a pass ---- */

/* x's shape with room for all tokens. */
static ct_dims whole_shape(const ct_nn_cache *cache, const ct_tensor *x) {
    ct_dims shape = ct_shape(x);
    shape.d[shape.n - 2] = cache->capacity;
    return shape;
}

static bool fits(const ct_nn_cache *cache, const ct_tensor *kept, const ct_tensor *x) {
    const ct_dims a = ct_shape(kept), b = whole_shape(cache, x);
    const ct_device p = ct_device_of(kept), q = ct_device_of(x);
    return a.n == b.n && memcmp(a.d, b.d, (size_t)a.n * sizeof *a.d) == 0 && ct_dtype_of(kept) == ct_dtype_of(x) &&
           p.type == q.type && p.index == q.index;
}

/* The layer whose turn it is, with tensors that fit k and v. */
static layer *next_layer(ct_nn_cache *cache, const ct_module *attention, ct_tensor *k, ct_tensor *v) {
    const char *function = "forward_cached";
    if (cache->turn == cache->count && cache->length > 0) {
        ct_fail(CT_ERR_STATE, function, "an attention takes part that did not when the first tokens were seen");
        return NULL;
    }
    if (cache->turn == cache->room) {
        const int larger = cache->room ? 2 * cache->room : 8;
        layer *layers = ct_realloc(cache->layers, (size_t)larger * sizeof *layers);
        if (!layers) {
            ct_fail(CT_ERR_MEMORY, function, "out of memory");
            return NULL;
        }
        cache->layers = layers;
        cache->room = larger;
    }
    if (cache->turn == cache->count) cache->layers[cache->count++] = (layer){0};
    layer *l = &cache->layers[cache->turn];
    if (l->k && l->v && l->attention == attention && fits(cache, l->k, k) && fits(cache, l->v, v)) return l;
    if (cache->length > 0) {
        if (l->attention != attention)
            ct_fail(CT_ERR_STATE, function,
                    "the attentions come in another order than when the first tokens were seen");
        else
            ct_fail(CT_ERR_SHAPE, function, "keys and values are %s and %s, and the cache holds %s and %s",
                    ct_tensor_text(k), ct_tensor_text(v), ct_tensor_text(l->k), ct_tensor_text(l->v));
        return NULL;
    }
    forget(l);
    l->attention = attention;
    l->k = ct_keep(ct_empty(whole_shape(cache, k), .dtype = ct_dtype_of(k), .device = ct_device_of(k)));
    l->v = ct_keep(ct_empty(whole_shape(cache, v), .dtype = ct_dtype_of(v), .device = ct_device_of(v)));
    return l->k && l->v ? l : NULL;
}

/* The first tokens of kept, after x has been put behind those that are there. */
static ct_tensor *append(const ct_nn_cache *cache, ct_tensor *kept, ct_tensor *x) {
    const int64_t more = ct_dim(x, -2);
    if (more > 0 && !ct_assign(ct_narrow(kept, -2, cache->length, more), x)) return NULL;
    return ct_narrow(kept, -2, 0, cache->length + more);
}

bool ct__cache_extend(const ct_module *attention, ct_tensor **k, ct_tensor **v) {
    ct_nn_cache *cache = current;
    if (!*k || !*v) return false;
    const int64_t more = ct_dim(*k, -2);
    if (cache->turn > 0 && more != cache->added)
        return ct_fail(CT_ERR_SHAPE, "forward_cached", "one attention is given %lld tokens and another %lld",
                       (long long)cache->added, (long long)more);
    if (more > cache->capacity - cache->length)
        return ct_fail(CT_ERR_SHAPE, "forward_cached",
                       "%lld tokens and %lld more are above the capacity of the cache, %lld", (long long)cache->length,
                       (long long)more, (long long)cache->capacity);
    layer *l = next_layer(cache, attention, *k, *v);
    if (!l) return false;
    cache->turn++;
    cache->added = more;
    *k = append(cache, l->k, *k);
    *v = append(cache, l->v, *v);
    return *k && *v;
}

bool ct_forward_cached_n(ct_nn_cache *cache, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    if (!ct_ok()) return false; /* a cache is lasting state */
    if (!cache) return ct_fail(CT_ERR_NULL, "forward_cached", "argument cache is NULL");
    if (current)
        return ct_fail(CT_ERR_STATE, "forward_cached",
                       "the module below runs with a cache already; use ct_forward there");
    bool ok = false;
    cache->turn = 0;
    cache->added = 0;
    current = cache;
    ct_no_grad {
        ok = ct_forward_n(cache->net, in, n, out, m) && ct_ok();
    }
    current = NULL;
    if (ok && cache->turn == 0)
        ok = ct_fail(CT_ERR_STATE, "forward_cached", "no causal attention of x to itself took part");
    if (ok && cache->length > 0 && cache->turn < cache->count)
        ok = ct_fail(CT_ERR_STATE, "forward_cached", "%d attentions took part, and %d when the first tokens were seen",
                     cache->turn, cache->count);
    while (ok && cache->count > cache->turn) forget(&cache->layers[--cache->count]); /* of an earlier text */
    if (ok) cache->length += cache->added;
    for (int i = 0; !ok && out && i < m; i++) out[i] = NULL;
    return ok;
}

ct_tensor *ct_forward_cached(ct_nn_cache *cache, ct_tensor *x) {
    ct_tensor *y = NULL;
    return ct_forward_cached_n(cache, &x, 1, &y, 1) ? y : NULL;
}
