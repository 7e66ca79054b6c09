/* Attention beyond the generated suite: memory, rows without keys, dropout that backward repeats, several blocks of keys. */
#include <math.h>

#include "tests/harness.h"

static ct_tensor *leaf(ct_tensor *x) { return ct_set_requires_grad(x, true); }
static ct_tensor *normal(ct_dims shape, ct_dtype dtype) { return leaf(ct_randn(shape, .dtype = dtype)); }

/* The largest difference, relative to the largest element of b. */
static double distance(ct_tensor *a, ct_tensor *b) {
    double scale = ct_item(ct_amax(ct_abs(ct_detach(b))));
    return ct_item(ct_amax(ct_abs(ct_sub(ct_detach(a), ct_detach(b))))) / (scale > 0 ? scale : 1);
}

static int64_t peak_of(int64_t t) {
    int64_t peak = 0;
    ct_scope {
        ct_tensor *x[3], *g[3];
        for (int i = 0; i < 3; i++) x[i] = normal(CT_DIMS(1, 1, t, 16), CT_F32);
        harness_reset_peak();
        int64_t before = harness_memory().in_use;
        ct_tensor *y = ct_scaled_dot_product_attention(x[0], x[1], x[2], .dropout = 0.1), *one = ct_ones_like(y);
        CHECK(ct_grad(&y, 1, &one, x, 3, g, 0));
        peak = harness_memory().peak - before;
    }
    return peak;
}

TEST(memory_grows_with_the_length_and_not_with_its_square) {
    ct_set_threads(2);
    peak_of(64); /* what is made once */
    int64_t shorter = peak_of(4096), longer = peak_of(8192);
    CHECK(longer < 2 * shorter + (1 << 16));
    CHECK(longer < (int64_t)8192 * 8192); /* a quarter of one matrix of scores */
}

/* As formulas: products, softmax, products. */
static ct_tensor *plain(ct_tensor *q, ct_tensor *k, ct_tensor *v, ct_tensor *mask, double scale) {
    ct_tensor *s = ct_mul_s(ct_matmul(q, ct_transpose(k, -2, -1)), scale);
    return ct_matmul(ct_softmax(mask ? ct_add(s, mask) : s, -1), v);
}

TEST(several_blocks_of_queries_and_keys_agree_with_the_formula) {
    const int64_t tq = 300, tk = 700, d = 10;
    ct_seed(3);
    for (int causal = 0; causal < 2; causal++) {
        ct_scope {
            ct_tensor *x[] = {normal(CT_DIMS(1, 2, tq, d), CT_F64), normal(CT_DIMS(1, 2, tk, d), CT_F64),
                              normal(CT_DIMS(1, 2, tk, 5), CT_F64), normal(CT_DIMS(tq, tk), CT_F64)};
            ct_tensor *hidden = NULL;
            if (causal) { /* keys after i + tk - tq */
                ct_tensor *i = ct_unsqueeze(ct_arange(tk - tq, tk, 1, .dtype = CT_F64), 1),
                          *j = ct_unsqueeze(ct_arange(0, tk, 1, .dtype = CT_F64), 0);
                hidden = ct_where(ct_le(j, i), ct_scalar(0, CT_F64), ct_scalar(-INFINITY, CT_F64));
            }
            ct_tensor *y = ct_scaled_dot_product_attention(x[0], x[1], x[2], .mask = x[3], .scale = CT_SET(0.4),
                                                           .causal = causal, .bottom_right = causal);
            ct_tensor *expected = plain(x[0], x[1], x[2], hidden ? ct_add(x[3], hidden) : x[3], 0.4);
            CHECK(distance(y, expected) < 1e-13);
            ct_tensor *cot = ct_randn(ct_shape(y), .dtype = CT_F64), *got[4], *wanted[4];
            REQUIRE(ct_grad(&y, 1, &cot, x, 4, got, 0) && ct_grad(&expected, 1, &cot, x, 4, wanted, 0));
            for (int i = 0; i < 4; i++) CHECK(distance(got[i], wanted[i]) < 1e-12);
        }
    }
}

/* Memory that the next results of these sizes get is full of NaN: what a kernel leaves unwritten shows. */
static void spoil(ct_tensor *const *like, int n) {
    ct_scope {
        for (int i = 0; i < n; i++) ct_full(ct_shape(like[i]), NAN, .dtype = ct_dtype_of(like[i]));
    }
}

TEST(causal_gradients_skip_what_no_query_sees_and_write_the_rest) {
    /* Blocks of queries end inside tiles of keys; keys that no query sees; queries that see no key; shared heads. */
    static const struct {
        int64_t tq, tk, kv_heads;
        bool bottom_right;
    } cases[] = {{300, 300, 4, false}, {300, 300, 2, false}, {290, 700, 2, false},
                 {290, 700, 1, true},  {700, 300, 2, true},  {155, 40, 4, false}};
    const int64_t heads = 4, d = 6;
    ct_seed(9);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        ct_scope {
            const int64_t tq = cases[c].tq, tk = cases[c].tk, kv = cases[c].kv_heads,
                          ahead = cases[c].bottom_right ? tk - tq : 0;
            ct_tensor *x[] = {normal(CT_DIMS(1, heads, tq, d), CT_F64), normal(CT_DIMS(1, kv, tk, d), CT_F64),
                              normal(CT_DIMS(1, kv, tk, 5), CT_F64)};
            ct_tensor *i = ct_unsqueeze(ct_arange(ahead, tq + ahead, 1, .dtype = CT_F64), 1),
                      *j = ct_unsqueeze(ct_arange(0, tk, 1, .dtype = CT_F64), 0);
            ct_tensor *sees = ct_cast(ct_ge_s(i, 0), CT_F64); /* rows that see a key */
            ct_tensor *shown = ct_logical_or(ct_le(j, i), ct_lt_s(i, 0));
            ct_tensor *hidden = ct_where(shown, ct_scalar(0, CT_F64), ct_scalar(-INFINITY, CT_F64));
            ct_tensor *all[2];
            for (int n = 0; n < 2; n++) all[n] = ct_repeat_interleave(x[n + 1], heads / kv, 1);
            ct_tensor *expected = ct_mul(plain(x[0], all[0], all[1], hidden, 0.4), sees);
            ct_tensor *cot = ct_randn(ct_shape(expected), .dtype = CT_F64), *got[3], *wanted[3];
            REQUIRE(ct_grad(&expected, 1, &cot, x, 3, wanted, 0));
            spoil(&expected, 1);
            ct_tensor *y = ct_scaled_dot_product_attention(x[0], x[1], x[2], .scale = CT_SET(0.4), .causal = true,
                                                           .bottom_right = cases[c].bottom_right);
            CHECK(distance(y, expected) < 1e-13);
            spoil(x, 3);
            REQUIRE(ct_grad(&y, 1, &cot, x, 3, got, 0));
            for (int n = 0; n < 3; n++) CHECK(distance(got[n], wanted[n]) < 1e-12);
        }
    }
}

TEST(ranges_of_keys_give_the_same_bits_at_any_number_of_threads) {
    ct_seed(4);
    ct_tensor *x[] = {normal(CT_DIMS(1, 1, 40, 8), CT_F32), normal(CT_DIMS(1, 1, 2100, 8), CT_F32),
                      normal(CT_DIMS(1, 1, 2100, 8), CT_F32)};
    ct_tensor *first[4] = {NULL};
    for (int threads = 1; threads <= 3; threads++) {
        ct_set_threads(threads);
        ct_seed(5);
        ct_tensor *y = ct_scaled_dot_product_attention(x[0], x[1], x[2], .dropout = 0.3), *g[4];
        ct_tensor *cot = ct_ones_like(y);
        REQUIRE(ct_grad(&y, 1, &cot, x, 3, g, 0));
        g[3] = y;
        for (int i = 0; i < 4; i++) {
            if (threads == 1) first[i] = g[i];
            else CHECK(harness_same_bits(first[i], g[i]));
        }
    }
}

TEST(queries_without_keys_give_zeros_and_zero_gradients) {
    for (int kind = 0; kind < 3; kind++) {
        ct_scope {
            ct_tensor *x[] = {normal(CT_DIMS(1, 1, 4, 3), CT_F32), normal(CT_DIMS(1, 1, 2, 3), CT_F32),
                              normal(CT_DIMS(1, 1, 2, 3), CT_F32)};
            ct_tensor *flags = TENSOR(CT_BOOL, CT_DIMS(4, 2), 0, 0, 0, 0, 1, 0, 1, 1);
            ct_tensor *numbers = ct_where(flags, ct_scalar(0, CT_F32), ct_scalar(-INFINITY, CT_F32));
            ct_tensor *y = kind == 2
                               ? ct_scaled_dot_product_attention(x[0], x[1], x[2], .causal = true, .bottom_right = true)
                               : ct_scaled_dot_product_attention(x[0], x[1], x[2], .mask = kind ? numbers : flags);
            ct_tensor *cot = ct_ones_like(y), *g[3];
            REQUIRE(ct_grad(&y, 1, &cot, x, 3, g, 0));
            for (int i = 0; i < 6; i++) {
                CHECK(harness_at(y, i) == 0);
                CHECK(harness_at(g[0], i) == 0);
            }
            for (int i = 0; i < 3; i++) CHECK(ct_item(ct_all(ct_isfinite(g[i]))) == 1);
            CHECK(ct_item(ct_amax(ct_abs(y))) > 0); /* the others see keys */
        }
    }
}

TEST(backward_repeats_the_dropout_of_forward) {
    ct_seed(6);
    ct_tensor *q = normal(CT_DIMS(2, 3, 30, 4), CT_F64), *k = normal(CT_DIMS(2, 3, 300, 4), CT_F64),
              *v = normal(CT_DIMS(2, 3, 300, 4), CT_F64);
    ct_tensor *y = ct_scaled_dot_product_attention(q, k, v, .dropout = 0.5),
              *cot = ct_randn(ct_shape(y), .dtype = CT_F64), *g;
    REQUIRE(ct_grad(&y, 1, &cot, &v, 1, &g, 0));
    /* y is linear in v, with the same dropped weights: <cot, y> = <dv, v> */
    CHECK_NEAR(ct_item(ct_sum(ct_mul(g, v))), ct_item(ct_sum(ct_mul(cot, y))), 1e-10);
    ct_tensor *other = ct_scaled_dot_product_attention(q, k, v, .dropout = 0.5);
    CHECK(!harness_same_bits(y, other));
}

TEST(dropout_keeps_the_mean_and_drops_its_share) {
    ct_seed(7);
    ct_tensor *q = ct_zeros(CT_DIMS(1, 1, 100, 1)), *k = ct_zeros(CT_DIMS(1, 1, 400, 1)), *v = ct_eye(400);
    /* every weight is 1/400, so y holds the factors */
    ct_tensor *y = ct_scaled_dot_product_attention(q, k, ct_reshape(v, CT_DIMS(1, 1, 400, 400)), .dropout = 0.2);
    double dropped = ct_item(ct_mean(ct_cast(ct_eq_s(y, 0), CT_F64)));
    CHECK_NEAR(dropped, 0.2, 6 * sqrt(0.2 * 0.8 / 40000)); /* six deviations of 40,000 draws */
    CHECK_NEAR(ct_item(ct_amax(y)), 1 / 400.0 / 0.8, 1e-8);
    ct_tensor *none = ct_scaled_dot_product_attention(q, k, ct_reshape(v, CT_DIMS(1, 1, 400, 400)), .dropout = 1);
    CHECK(ct_item(ct_amax(ct_abs(none))) == 0);
}

TEST(large_scores_do_not_overflow) {
    ct_tensor *q = F32(CT_DIMS(1, 2), 1e4, -1e4), *k = F32(CT_DIMS(3, 2), 1e4, 0, 0, 1e4, 1e4, 1),
              *v = F32(CT_DIMS(3, 1), 1, 2, 3);
    CHECK_VALUES(ct_scaled_dot_product_attention(q, k, v), CT_DIMS(1, 1), 0, 1);
}

TEST(errors_of_attention_name_shapes_and_options) {
    ct_tensor *q = ct_zeros(CT_DIMS(2, 3, 4)), *k = ct_zeros(CT_DIMS(2, 5, 4)), *v = ct_zeros(CT_DIMS(2, 5, 6));
    ct_scaled_dot_product_attention(q, k, ct_zeros(CT_DIMS(2, 4, 6)));
    CHECK_ERROR(CT_ERR_SHAPE,
                "scaled_dot_product_attention: k and v have to be of one length: k is f32[2,5,4], v is f32[2,4,6]");
    ct_scaled_dot_product_attention(ct_zeros(CT_DIMS(3, 3, 4)), k, v);
    CHECK_ERROR(CT_ERR_SHAPE,
                "scaled_dot_product_attention: k and v need q's batch dimensions and heads, or a number of "
                "heads that divides q's: q is f32[3,3,4], k is f32[2,5,4], v is f32[2,5,6]");
    ct_scaled_dot_product_attention(q, k, v, .mask = ct_zeros(CT_DIMS(3, 4)));
    CHECK_ERROR(CT_ERR_SHAPE,
                "scaled_dot_product_attention: mask is f32[3,4] and does not broadcast to the scores, f32[2,3,5]");
    ct_scaled_dot_product_attention(q, k, v, .mask = ct_zeros(CT_DIMS(3, 5), .dtype = CT_I32));
    CHECK_ERROR(CT_ERR_DTYPE,
                "scaled_dot_product_attention: mask is i32[3,5]; it has to be bool (true takes part) or a float "
                "(added to the scores)");
    ct_scaled_dot_product_attention(q, k, v, .bottom_right = true);
    CHECK_ERROR(CT_ERR_VALUE,
                "scaled_dot_product_attention: bottom_right says where the causal mask ends; causal is not set");
    ct_scaled_dot_product_attention(q, k, v, .dropout = -0.5);
    CHECK_ERROR(CT_ERR_VALUE, "scaled_dot_product_attention: dropout is -0.5; it has to be in [0, 1]");
    ct_rope(ct_zeros(CT_DIMS(3, 5)));
    CHECK_ERROR(CT_ERR_VALUE,
                "rope: 5 of the last dimension are to be rotated; x is f32[3,5], and the number has to be even");
}

TEST(rope_keeps_scores_a_function_of_the_distance) {
    ct_seed(8);
    ct_tensor *q = ct_randn(CT_DIMS(1, 8), .dtype = CT_F64), *k = ct_randn(CT_DIMS(1, 8), .dtype = CT_F64);
    double near = ct_item(ct_matmul(ct_rope(q, .offset = 7), ct_t(ct_rope(k, .offset = 3)))),
           far = ct_item(ct_matmul(ct_rope(q, .offset = 104), ct_t(ct_rope(k, .offset = 100))));
    CHECK_NEAR(near, far, 1e-12);
    CHECK(distance(ct_rope(ct_rope(q, .offset = 9), .offset = 9, .inverse = true), q) < 1e-15);
}

/* y and the gradient of a projection whose heads are views of it (B,T,(H+2Hk)*D), or copies of those. */
static bool attend_projection(ct_tensor *all, int64_t heads, int64_t kv_heads, int64_t d, bool copies,
                              ct_tensor *made[2]) {
    ct_tensor *x = leaf(ct_detach(all)), *part[3];
    if (!ct_split(x, -1, CT_DIMS(heads * d, kv_heads * d, kv_heads * d), part, 3)) return false;
    for (int i = 0; i < 3; i++) {
        part[i] = ct_transpose(ct_reshape(part[i], CT_DIMS(ct_dim(x, 0), ct_dim(x, 1), i ? kv_heads : heads, d)), 1, 2);
        if (copies) part[i] = ct_contiguous(part[i]);
    }
    ct_tensor *y = ct_scaled_dot_product_attention(part[0], part[1], part[2], .causal = true);
    made[0] = ct_reshape(ct_transpose(y, 1, 2), CT_DIMS(ct_dim(x, 0), ct_dim(x, 1), heads * d));
    ct_tensor *loss = ct_sum(ct_square(made[0]));
    return ct_grad(&loss, 1, NULL, &x, 1, &made[1], 0);
}

TEST(heads_of_one_projection_are_attended_to_without_copies) {
    ct_seed(6);
    for (int64_t kv_heads = 1; kv_heads <= 4; kv_heads += 3) {
        ct_tensor *all = ct_randn(CT_DIMS(2, 37, (4 + 2 * kv_heads) * 8), .dtype = CT_F64), *views[2], *copies[2];
        harness_log_start();
        CHECK(attend_projection(all, 4, kv_heads, 8, false, views));
        CHECK(harness_log_calls("clone") == 0 && harness_log_calls("cat") == 0);
        harness_log_stop();
        CHECK(attend_projection(all, 4, kv_heads, 8, true, copies));
        for (int i = 0; i < 2; i++) CHECK(distance(views[i], copies[i]) < 1e-14);
    }
}

TEST(gradients_of_heads_of_one_projection_are_differentiable) {
    ct_seed(7);
    ct_tensor *all = leaf(ct_randn(CT_DIMS(1, 5, 12), .dtype = CT_F64)), *part[3], *first, *second[2];
    for (int copies = 0; copies < 2; copies++) {
        REQUIRE(ct_split(all, -1, CT_DIMS(4, 4, 4), part, 3));
        for (int i = 0; i < 3; i++) {
            part[i] = ct_transpose(ct_reshape(part[i], CT_DIMS(1, 5, 2, 2)), 1, 2);
            if (copies) part[i] = ct_contiguous(part[i]);
        }
        ct_tensor *loss = ct_sum(ct_square(ct_scaled_dot_product_attention(part[0], part[1], part[2])));
        REQUIRE(ct_grad(&loss, 1, NULL, &all, 1, &first, CT_CREATE_GRAPH));
        loss = ct_sum(ct_square(first));
        REQUIRE(ct_grad(&loss, 1, NULL, &all, 1, &second[copies], 0));
    }
    CHECK(distance(second[0], second[1]) < 1e-13);
}

TEST(keys_that_no_head_looks_at_have_gradients_of_zero) {
    for (int causal = 0; causal < 2; causal++)
        ct_scope {
            ct_scope { /* what lies in memory that is used again */
                for (int i = 0; i < 20; i++) ct_full(CT_DIMS(1, 2, 40, 8), 7);
            }
            ct_tensor *in[3] = {leaf(ct_ones(CT_DIMS(1, 0, 40, 8))), leaf(ct_randn(CT_DIMS(1, 2, 40, 8))),
                                leaf(ct_randn(CT_DIMS(1, 2, 40, 8)))};
            ct_tensor *y = ct_scaled_dot_product_attention(in[0], in[1], in[2], .causal = causal), *grads[3];
            ct_tensor *g = ct_ones_like(y);
            REQUIRE(ct_grad(&y, 1, &g, in, 3, grads, 0));
            for (int i = 1; i < 3; i++) CHECK(ct_item(ct_amax(ct_abs(grads[i]))) == 0);
        }
}
