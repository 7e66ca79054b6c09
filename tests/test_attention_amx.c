/* Attention and its gradients in bf16 on kernels in matrix registers (amx_level.h): as near to the formula in f64 as
 * bf16 can be, with masks, groups of heads, odd sizes and any strides, the same bits at any number of threads. */
#include <math.h>
#include <stdio.h>

#include "tests/harness.h"

#include "tests/amx_level.h"

typedef enum mask_kind { NO_MASK, FLAGS, NUMBERS } mask_kind;

typedef struct sizes {
    const char *name;
    int64_t batch, heads, kv_heads, tq, tk, d, dv;
    bool causal, bottom_right, rows_first;
    mask_kind mask;
    double dropout;
} sizes;

static const sizes cases[] = {
    {"whole tiles", 1, 2, 2, 64, 64, 32, 32, .mask = NO_MASK},
    {"odd sizes", 2, 1, 1, 37, 51, 19, 23, .mask = NO_MASK},
    {"several blocks of keys", 1, 1, 1, 40, 531, 16, 9, .mask = NO_MASK},
    {"several blocks of queries", 1, 1, 1, 301, 47, 16, 16, .mask = NO_MASK},
    {"causal", 1, 2, 2, 77, 77, 24, 24, .causal = true},
    {"causal, bottom right", 1, 1, 1, 33, 290, 32, 16, .causal = true, .bottom_right = true},
    {"causal, queries without keys", 1, 1, 1, 60, 35, 16, 16, .causal = true, .bottom_right = true},
    {"groups of heads", 2, 4, 2, 21, 34, 16, 8, .mask = NO_MASK},
    {"heads within rows", 2, 3, 3, 35, 35, 16, 16, .causal = true, .rows_first = true},
    {"mask of flags", 1, 2, 2, 26, 41, 20, 12, .mask = FLAGS},
    {"mask of numbers", 1, 2, 1, 26, 41, 20, 12, .mask = NUMBERS},
    {"dropout", 1, 2, 2, 33, 45, 16, 16, .dropout = 0.3},
    {"wide heads", 1, 1, 1, 18, 20, 130, 150, .mask = NO_MASK},
    {"few queries", 1, 2, 2, 3, 40, 16, 16, .mask = NO_MASK},
};
enum { CASES = sizeof cases / sizeof *cases, RESULTS = 4 }; /* y, and the gradients of q, k and v */

/* What bf16 can hold. */
static ct_tensor *some(ct_dims shape, ct_dtype dtype) { return ct_cast(ct_cast(ct_randn(shape), CT_BF16), dtype); }

/* (B,H,T,D), or a view of (B,T,H,D) as such. */
static ct_tensor *heads_of(const sizes *c, int64_t heads, int64_t rows, int64_t cols, ct_dtype dtype) {
    if (!c->rows_first) return some(CT_DIMS(c->batch, heads, rows, cols), dtype);
    return ct_detach(ct_transpose(some(CT_DIMS(c->batch, rows, heads, cols), dtype), 1, 2));
}

static bool compute(const sizes *c, ct_dtype dtype, ct_tensor *out[RESULTS]) {
    ct_seed(11);
    ct_tensor *in[3] = {heads_of(c, c->heads, c->tq, c->d, dtype), heads_of(c, c->kv_heads, c->tk, c->d, dtype),
                        heads_of(c, c->kv_heads, c->tk, c->dv, dtype)};
    ct_tensor *numbers = some(CT_DIMS(c->tq, c->tk), dtype), *mask = NULL;
    if (c->mask == FLAGS) mask = ct_gt_s(numbers, -0.5);
    if (c->mask == NUMBERS) mask = numbers;
    for (int i = 0; i < 3; i++) ct_set_requires_grad(in[i], true);
    out[0] = ct_scaled_dot_product_attention(in[0], in[1], in[2], .mask = mask, .causal = c->causal,
                                             .bottom_right = c->bottom_right, .dropout = c->dropout);
    if (!out[0]) return false;
    ct_tensor *g = some(ct_shape(out[0]), dtype);
    return ct_grad(&out[0], 1, &g, in, 3, out + 1, 0);
}

/* Backward reads y as it was rounded, so what y is off by is in delta: each of its products g y may be off by half a
 * unit of bf16. */
TEST(bf16_is_as_near_to_f64_as_it_can_be) {
    ops_use_amx();
    for (int i = 0; i < CASES; i++) {
        ct_scope {
            ct_tensor *got[RESULTS], *expected[RESULTS];
            const int64_t before = blocks_done;
            REQUIRE(compute(&cases[i], CT_F64, expected) && blocks_done == before);
            const bool in_vectors = cases[i].tq < 8; /* or not: that is for the level to say */
            REQUIRE(compute(&cases[i], CT_BF16, got) && (blocks_done > before || in_vectors));
            for (int k = 0; k < RESULTS; k++) {
                ct_tensor *error = ct_abs(ct_sub(ct_cast(got[k], CT_F64), expected[k])), *size = ct_abs(expected[k]);
                const double most = ct_item(ct_amax(size)), spread = k == 1 || k == 2 ? 0.004 : 2e-5;
                const double worst = ct_item(ct_amax(ct_sub(error, ct_add_s(ct_mul_s(size, 0.004), spread * most))));
                if (!(worst <= 0))
                    printf("%s, result %d: off by %g beyond rounding, of %g\n", cases[i].name, k, worst, most);
                CHECK(worst <= 0);
            }
        }
    }
    ops_use_what_there_is();
}

/* Weights of f32 as three terms: results are those of vector registers, but for the order of sums, not only as near
 * as bf16. */
TEST(weights_are_not_rounded_to_bf16) {
    const int64_t t = 64, d = 32;
    ct_tensor *got[2];
    for (int plain = 0; plain < 2; plain++) {
        ct_seed(12);
        if (plain) ops_use_amx();
        /* v = 1 in one column and -1 at odd keys: y there is the difference of two sums that are almost alike */
        ct_tensor *sign =
            ct_sub_s(ct_mul_s(ct_cast(ct_lt_s(ct_remainder_s(ct_arange(0, (double)t, 1), 2), 0.5), CT_F32), 2), 1);
        ct_tensor *v = ct_cast(ct_expand(ct_unsqueeze(sign, 1), CT_DIMS(t, d)), CT_BF16);
        ct_tensor *q = ct_mul_s(some(CT_DIMS(1, 1, t, d), CT_BF16), 0.03125), *k = some(CT_DIMS(1, 1, t, d), CT_BF16);
        got[plain] = ct_cast(ct_scaled_dot_product_attention(q, k, ct_reshape(v, CT_DIMS(1, 1, t, d))), CT_F64);
    }
    ops_use_what_there_is();
    ct_tensor *error = ct_abs(ct_sub(got[0], got[1])), *size = ct_abs(got[0]);
    CHECK(ct_item(ct_amax(size)) < 0.1);
    /* one may fall on the other side of a rounding: one unit of bf16, and what sums of f32 are off by */
    CHECK(ct_item(ct_amax(ct_sub(error, ct_add_s(ct_mul_s(size, 0x1p-7), 1e-6)))) <= 0);
}

TEST(nothing_to_attend_is_no_error) {
    ops_use_amx();
    const int64_t shapes[][3] = {{0, 20, 20}, {1, 0, 20}, {1, 20, 0}};
    for (int i = 0; i < 3; i++) {
        const int64_t b = shapes[i][0], tq = shapes[i][1], tk = shapes[i][2];
        ct_tensor *in[3] = {some(CT_DIMS(b, 2, tq, 16), CT_BF16), some(CT_DIMS(b, 2, tk, 16), CT_BF16),
                            some(CT_DIMS(b, 2, tk, 16), CT_BF16)},
                  *grad[3];
        for (int k = 0; k < 3; k++) ct_set_requires_grad(in[k], true);
        ct_tensor *y = ct_scaled_dot_product_attention(in[0], in[1], in[2]), *g = ct_ones_like(y);
        REQUIRE(ct_grad(&y, 1, &g, in, 3, grad, 0));
        CHECK(ct_dim(y, 2) == tq);
        CHECK(ct_item(ct_sum(ct_abs(ct_cast(y, CT_F32)))) == 0);
    }
    ops_use_what_there_is();
}

TEST(the_same_bits_at_any_number_of_threads) {
    ops_use_amx();
    for (int i = 0; i < CASES; i++) {
        ct_scope {
            ct_tensor *first[RESULTS], *now[RESULTS];
            for (int threads = 1; threads <= 7; threads += 3) {
                REQUIRE(ct_set_threads(threads) && compute(&cases[i], CT_BF16, threads == 1 ? first : now));
                for (int k = 0; k < RESULTS && threads > 1; k++) CHECK(harness_same_bits(first[k], now[k]));
            }
        }
    }
    ct_set_threads(0);
    ops_use_what_there_is();
}
