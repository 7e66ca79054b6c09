/* Token by token with a cache: the same results as all tokens at once, and what is refused. */
#include <cotangent/nn.h>
#include <math.h>
#include <stdio.h>

#include "core/alloc.h"
#include "harness.h"

enum { WORDS = 19, CONTEXT = 24 };

static ct_module *small_gpt(void) {
    CHECK(ct_seed(5));
    ct_module *gpt = ct_nn_gpt(WORDS, .context = CONTEXT, .dim = 24, .heads = 3, .layers = 3, .dropout = 0.2);
    /* larger than a new one's, so that tokens do differ */
    ct_parameters *list = ct_module_parameters(gpt);
    for (int i = 0; i < ct_parameters_count(list); i++)
        CHECK(ct_init_normal(ct_parameter_tensor(ct_parameters_at(list, i)), 0, 0.3, NULL));
    ct_parameters_free(list);
    CHECK(ct_eval(gpt));
    return gpt;
}

/* Two ways to sum the same numbers differ by at most a rounding for each term and size. Of a row the longest chain of sums has,
 * for each of the layers, 24 (norm) + 24 (projection) + 8 and T <= 24 (attention) + 24 + 24 (norm) + 24 + 96 (feed-forward)
 * terms, 272, and then 48 for the result: 864 in three layers. Norms divide by a deviation of about the size of x, so
 * nothing grows by much more than a factor of each layer's gain, for which 16 is allowed. */
static double bound(ct_dtype dtype, ct_tensor *whole) {
    return (dtype == CT_F64 ? 0x1p-53 : 0x1p-24) * 864 * 16 * ct_item(ct_amax(ct_abs(whole)));
}

static double apart(ct_tensor *a, ct_tensor *b) {
    if (!a || !b) return INFINITY;
    return ct_item(ct_amax(ct_abs(ct_sub(ct_detach(a), ct_detach(b)))));
}

/* In pieces of these lengths, against all at once. Takes the module. */
static void pieces_give_what_the_whole_gives(const char *name, ct_module *net, ct_tensor *x, ct_dtype dtype) {
    static const int64_t pieces[] = {5, 1, 1, 3, 1, 2};
    REQUIRE(net && ct_module_to_dtype(net, dtype) && ct_eval(net));
    const int axis = ct_dtype_of(x) == CT_I64 ? -1 : -2;
    if (ct_dtype_of(x) != CT_I64) x = ct_cast(x, dtype);
    ct_tensor *whole = ct_forward(net, x);
    ct_nn_cache *cache = ct_nn_cache_new(net, CONTEXT);
    int64_t at = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; at += pieces[i++]) {
        CHECK(ct_nn_cache_length(cache) == at);
        ct_tensor *y = ct_forward_cached(cache, ct_narrow(x, axis, at, pieces[i]));
        const double far = apart(y, ct_narrow(whole, -2, at, pieces[i])), most = bound(dtype, whole);
        harness_check(far <= most, __FILE__, __LINE__, "%s: %g apart at %d, at most %g: %s", name, far, (int)at, most,
                      ct_error());
        CHECK(y && !ct_requires_grad(y));
    }
    CHECK(at == ct_nn_cache_length(cache) && ct_forward_position() == 0);
    ct_nn_cache_free(cache);
    ct_module_free(net);
}

TEST(pieces_of_a_text_give_the_logits_of_the_whole) {
    for (int wide = 0; wide < 2; wide++) {
        const ct_dtype dtype = wide ? CT_F64 : CT_F32;
        pieces_give_what_the_whole_gives("gpt", small_gpt(), ct_randint(CT_DIMS(2, 13), 0, WORDS), dtype);
        ct_tensor *x = ct_randn(CT_DIMS(2, 13, 24)), *flat = ct_randn(CT_DIMS(13, 24)),
                  *deep = ct_randn(CT_DIMS(2, 3, 13, 24));
        pieces_give_what_the_whole_gives("attention", ct_nn_multi_head_attention(24, 3, .causal = true), x, dtype);
        pieces_give_what_the_whole_gives("without a batch", ct_nn_multi_head_attention(24, 3, .causal = true), flat,
                                         dtype);
        pieces_give_what_the_whole_gives("several batches", ct_nn_multi_head_attention(24, 3, .causal = true), deep,
                                         dtype);
        pieces_give_what_the_whole_gives(
            "fewer keys", ct_nn_multi_head_attention(24, 6, .kv_heads = 2, .causal = true, .no_bias = true), x, dtype);
        pieces_give_what_the_whole_gives(
            "encoder", ct_nn_transformer_encoder(2, 24, 3, .causal = true, .norm_first = true, .final_norm = true), x,
            dtype);
        /* one module in two places: each has keys of its own */
        ct_module *once = ct_nn_transformer_encoder_layer(24, 3, .causal = true);
        pieces_give_what_the_whole_gives("twice", ct_nn_sequential(ct_module_keep(once), once), x, dtype);
    }
}

TEST(a_decoder_attends_to_its_memory_anew) {
    ct_module *net = ct_nn_transformer_decoder(2, 24, 3, .causal = true);
    ct_tensor *x = ct_randn(CT_DIMS(2, 6, 24), .dtype = CT_F64), *memory = ct_randn(CT_DIMS(2, 9, 24), .dtype = CT_F64),
              *whole, *y;
    CHECK(ct_module_to_dtype(net, CT_F64));
    REQUIRE(ct_forward_n(net, (ct_tensor *[]){x, memory}, 2, &whole, 1));
    ct_nn_cache *cache = ct_nn_cache_new(net, 6);
    for (int64_t i = 0; i < 6; i++) {
        CHECK(ct_forward_cached_n(cache, (ct_tensor *[]){ct_narrow(x, 1, i, 1), memory}, 2, &y, 1));
        CHECK(apart(y, ct_narrow(whole, 1, i, 1)) <= bound(CT_F64, whole));
    }
    ct_nn_cache_free(cache);
    ct_module_free(net);
}

static int64_t likeliest(ct_tensor *logits) {
    return (int64_t)ct_item(ct_argmax(ct_select(ct_select(logits, 1, ct_dim(logits, 1) - 1), 0, 0)));
}

TEST(the_likeliest_text_is_the_same) {
    ct_module *gpt = small_gpt();
    ct_nn_cache *cache = ct_nn_cache_new(gpt, CONTEXT);
    int64_t text[CONTEXT] = {3, 1, 4}, n = 3, seen = 0, different = 0;
    while (n < CONTEXT) {
        int64_t anew = 0, cached = 0;
        ct_scope {
            anew = likeliest(ct_forward(gpt, ct_from_data(text, CT_DIMS(1, n), CT_I64)));
            cached = likeliest(ct_forward_cached(cache, ct_from_data(text + seen, CT_DIMS(1, n - seen), CT_I64)));
        }
        CHECK(ct_ok() && anew == cached);
        seen = n;
        text[n++] = anew;
        different += text[n - 1] != text[n - 2];
    }
    CHECK(different > 3); /* it is a text, not one token again and again */
    ct_nn_cache_free(cache);
    ct_module_free(gpt);
}

TEST(tokens_can_be_taken_back) {
    ct_module *gpt = small_gpt();
    ct_nn_cache *cache = ct_nn_cache_new(gpt, CONTEXT);
    ct_tensor *prompt = I64(CT_DIMS(1, 3), 1, 2, 3), *a = I64(CT_DIMS(1, 2), 4, 5), *b = I64(CT_DIMS(1, 2), 6, 7);
    CHECK(ct_forward_cached(cache, prompt) && ct_nn_cache_capacity(cache) == CONTEXT);
    ct_tensor *first = ct_forward_cached(cache, a);
    CHECK(ct_nn_cache_length(cache) == 5 && ct_nn_cache_truncate(cache, 3));
    ct_tensor *other = ct_forward_cached(cache, b);
    CHECK(apart(first, other) > 0.01 && ct_nn_cache_truncate(cache, 3));
    CHECK(harness_same_bits(first, ct_forward_cached(cache, a)));
    CHECK(!ct_nn_cache_truncate(cache, 6));
    CHECK_ERROR(CT_ERR_VALUE, "nn_cache_truncate: length is 6, and the cache has 5 tokens");
    CHECK(!ct_nn_cache_truncate(cache, -1));
    CHECK_ERROR(CT_ERR_VALUE, "nn_cache_truncate: length is -1, and the cache has 5 tokens");
    /* another batch: refused in the middle of a text, taken at the start of one */
    ct_tensor *two = I64(CT_DIMS(2, 1), 1, 2);
    CHECK(!ct_forward_cached(cache, two));
    CHECK_ERROR(CT_ERR_SHAPE, "forward_cached: keys and values are f32[2,3,1,8] and f32[2,3,1,8], and the cache holds "
                              "f32[1,3,24,8] and f32[1,3,24,8]; in layers.0.self_attn (multi_head_attention)");
    CHECK(ct_nn_cache_truncate(cache, 0) && ct_forward_cached(cache, two) && ct_nn_cache_length(cache) == 1);
    ct_nn_cache_free(cache);
    ct_module_free(gpt);
}

TEST(a_full_cache_is_an_error_and_stays_as_it_is) {
    ct_module *gpt = small_gpt();
    ct_nn_cache *few = ct_nn_cache_new(gpt, 4), *many = ct_nn_cache_new(gpt, 2 * CONTEXT);
    ct_tensor *three = I64(CT_DIMS(1, 3), 1, 2, 3), *one = I64(CT_DIMS(1, 1), 4);
    CHECK(ct_forward_cached(few, three) && !ct_forward_cached(few, three));
    CHECK_ERROR(CT_ERR_SHAPE, "forward_cached: 3 tokens and 3 more are above the capacity of the cache, 4; in "
                              "layers.0.self_attn (multi_head_attention)");
    ct_tensor *all = I64(CT_DIMS(1, 4), 1, 2, 3, 4);
    CHECK(ct_nn_cache_length(few) == 3 &&
          apart(ct_forward_cached(few, one), ct_narrow(ct_forward(gpt, all), 1, 3, 1)) < 1e-3);
    for (int i = 0; i < CONTEXT / 3; i++) CHECK(ct_forward_cached(many, three));
    CHECK(!ct_forward_cached(many, one));
    CHECK_ERROR(CT_ERR_SHAPE,
                "gpt: tokens is i64[1,1] after 24 before them, expected [N, T] with at most 24 in all; in gpt");
    ct_nn_cache_free(few);
    ct_nn_cache_free(many);
    ct_module_free(gpt);
}

static ct_tensor *skips_later(ct_module *self, ct_tensor *x) {
    return ct_forward_position() ? x : ct_forward(ct_module_child(self, 0), x);
}
static const ct_module_class skipping = {.size = sizeof(ct_module_class), .name = "skipping", .forward = skips_later};

static ct_tensor *inner_cache(void *context, ct_tensor *x) { return ct_forward_cached(context, x); }

TEST(what_cannot_be_cached_is_refused) {
    ct_module *both = ct_nn_multi_head_attention(8, 2), *none = ct_nn_linear(8, 8);
    ct_tensor *x = ct_randn(CT_DIMS(1, 2, 8));
    ct_nn_cache *cache = ct_nn_cache_new(both, 4);
    CHECK(!ct_forward_cached(cache, x));
    CHECK_ERROR(CT_ERR_VALUE,
                "multi_head_attention: a cache is for causal attention: here earlier results would change "
                "with later tokens; in multi_head_attention");
    ct_tensor *y;
    CHECK(!ct_forward_cached_n(cache, (ct_tensor *[]){x, ct_clone(x)}, 2, &y, 1) && !y);
    CHECK_ERROR(CT_ERR_STATE, "forward_cached: no causal attention of x to itself took part");
    ct_nn_cache_free(cache);
    CHECK(!ct_nn_cache_new(none, 4));
    CHECK_ERROR(CT_ERR_VALUE, "nn_cache_new: the linear has no attention, so there is nothing to keep");
    CHECK(!ct_nn_cache_new(both, 0));
    CHECK_ERROR(CT_ERR_VALUE, "nn_cache_new: capacity is 0, expected at least 1");
    CHECK(!ct_nn_cache_new(NULL, 4));
    CHECK_ERROR(CT_ERR_NULL, "nn_cache_new: argument net is NULL");
    CHECK(!ct_forward_cached(NULL, x));
    CHECK_ERROR(CT_ERR_NULL, "forward_cached: argument cache is NULL");
    CHECK(!ct_nn_cache_truncate(NULL, 0));
    CHECK_ERROR(CT_ERR_NULL, "nn_cache_truncate: argument cache is NULL");
    ct_nn_cache_free(NULL);
    CHECK(ct_nn_cache_length(NULL) == 0 && ct_nn_cache_capacity(NULL) == 0);
    /* an attention that takes part in some passes only */
    ct_module *net = ct_module_new(&skipping),
              *pair = ct_nn_sequential(net, ct_nn_multi_head_attention(8, 2, .causal = true));
    CHECK(ct_module_add(net, "0", ct_nn_multi_head_attention(8, 2, .causal = true)));
    cache = ct_nn_cache_new(pair, 8);
    CHECK(ct_forward_cached(cache, x) && !ct_forward_cached(cache, x));
    CHECK_ERROR(CT_ERR_STATE, "forward_cached: the attentions come in another order than when the first tokens were "
                              "seen; in 1 (multi_head_attention)");
    CHECK(ct_nn_cache_length(cache) == 2);
    /* nor a cache inside a cache */
    ct_module *inside = ct_nn_sequential(ct_nn_lambda("inner", inner_cache, cache, NULL),
                                         ct_nn_multi_head_attention(8, 2, .causal = true));
    ct_nn_cache *outer = ct_nn_cache_new(inside, 8);
    CHECK(!ct_forward_cached(outer, x));
    CHECK_ERROR(CT_ERR_STATE,
                "forward_cached: the module below runs with a cache already; use ct_forward there; in 0 (inner)");
    ct_nn_cache_free(outer);
    ct_nn_cache_free(cache);
    ct_module_free(inside);
    ct_module_free(pair);
    ct_module_free(both);
    ct_module_free(none);
}

/* Every allocation of a tensor fails once; the cache then holds what it held, and the text goes on as if nothing had been. */
TEST(without_memory_the_cache_stays_as_it_is) {
    ct_module *gpt = small_gpt();
    ct_tensor *prompt = I64(CT_DIMS(1, 3), 1, 2, 3), *one = I64(CT_DIMS(1, 1), 4), *expected = NULL;
    int64_t n = 1;
    for (bool reached = true; reached && n < 10000 && !harness_failed(); n++) {
        ct_nn_cache *cache = ct_nn_cache_new(gpt, 8);
        ct_scope {
            ct__alloc_fail_at(n);
            const bool begun = ct_forward_cached(cache, prompt) != NULL;
            ct_tensor *y = begun ? ct_forward_cached(cache, one) : NULL;
            reached = ct__alloc_fail_left() <= 0;
            ct__alloc_fail_at(0);
            /* an allocation may do without: then there is no error either */
            CHECK((y != NULL) == ct_ok() && ct_nn_cache_length(cache) == (y ? 4 : begun ? 3 : 0));
            ct_error_clear();
            if (!begun) CHECK(ct_forward_cached(cache, prompt));
            if (!y) y = ct_forward_cached(cache, one);
            if (!expected) expected = ct_keep(y);
            CHECK(y && harness_same_bits(y, expected));
        }
        ct_nn_cache_free(cache);
    }
    CHECK(n > 20 && n < 10000);
    ct_drop(expected);
    ct_module_free(gpt);
}
