/* Layers beyond their values (test_nn_refs.c): attention's options, layouts, how weights begin, options of older callers. */
#include <cotangent/nn.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "nn/orthogonal.h"
#include "tests/harness.h"

/* ---- Attention ---- */

TEST(heads_of_keys_and_values_may_be_shared) {
    /* The same as heads of their own with equal weights. */
    ct_module *few = ct_nn_multi_head_attention(8, 4, .kv_heads = 2), *all = ct_nn_multi_head_attention(8, 4);
    REQUIRE(few && all);
    CHECK(ct_dim(ct_module_param(few, 0), 0) == 8 + 4 + 4);
    ct_no_grad {
        for (int i = 0; i < 2; i++) { /* weight, bias: rows of q, then k and v, two of each head */
            ct_tensor *from = ct_module_param(few, i), *parts[3];
            CHECK(ct_assign(from, harness_randn(ct_shape(from))) && ct_split(from, 0, CT_DIMS(8, 4, 4), parts, 3));
            for (int k = 1; k < 3; k++) {
                ct_dims shape = ct_shape(parts[k]), heads = {.n = shape.n + 1, .d = {2, 2, 8}};
                shape.d[0] = 8;
                parts[k] = ct_reshape(ct_repeat_interleave(ct_reshape(parts[k], heads), 2, 0), shape);
            }
            CHECK(ct_assign(ct_module_param(all, i), ct_cat(parts, 3, 0)));
        }
        CHECK(ct_assign(ct_module_find(all, "out_proj.weight"), ct_module_find(few, "out_proj.weight")));
    }
    ct_tensor *x = harness_randn(CT_DIMS(2, 5, 8));
    CHECK(ct_item(ct_amax(ct_abs(ct_sub(ct_forward(few, x), ct_forward(all, x))))) < 1e-5);
    ct_module_free(few);
    ct_module_free(all);
}

TEST(a_mask_of_the_past_is_causal_attention) {
    ct_module *causal = ct_nn_transformer_encoder(2, 8, 2, .causal = true, .dropout = 0.3);
    ct_module *masked = ct_nn_transformer_encoder(2, 8, 2, .dropout = 0.3);
    ct_state *state = ct_state_new();
    CHECK(ct_module_put_state(causal, state, "") && ct_module_take_state(masked, state, ""));
    ct_state_free(state);
    CHECK(ct_eval(causal) && ct_eval(masked)); /* nothing is dropped */
    ct_tensor *x = harness_randn(CT_DIMS(2, 5, 8)), *y = NULL, *seen = ct_tril_mask(5);
    CHECK(ct_forward_n(masked, (ct_tensor *[]){x, seen}, 2, &y, 1));
    CHECK(ct_item(ct_amax(ct_abs(ct_sub(y, ct_forward(causal, x))))) < 1e-5);
    CHECK(ct_train(causal) && !harness_same_bits(ct_forward(causal, x), ct_forward(causal, x)));
    ct_module_free(causal);
    ct_module_free(masked);
}

/* ---- Layouts ---- */

/* Runs both with the same numbers, the weights of the second turned to channels last. */
static void same_in_both_layouts(ct_module *first, ct_module *last, int axes) {
    REQUIRE(first && last);
    ct_dims turn = {.n = axes + 2}, back = {.n = axes + 2}, shape = {.n = axes + 2, .d = {2, 4, 9, 8, 7}};
    turn.d[axes + 1] = 1;
    back.d[1] = axes + 1;
    for (int i = 0; i < axes; i++) turn.d[1 + i] = i + 2, back.d[2 + i] = i + 1;
    ct_dims weight = {.n = axes + 2};
    for (int i = 0; i < axes; i++) weight.d[i] = i + 2;
    weight.d[axes] = 1, weight.d[axes + 1] = 0;
    CHECK(ct_module_to_dtype(first, CT_F64) && ct_module_to_dtype(last, CT_F64));
    ct_no_grad {
        for (int i = 0; i < ct_module_param_count(first); i++) {
            ct_tensor *p = ct_module_param(first, i);
            CHECK(ct_assign(ct_module_param(last, i), ct_ndim(p) > 2 ? ct_permute(p, weight) : p));
        }
    }
    ct_tensor *x = ct_cast(harness_randn(shape), CT_F64);
    ct_tensor *y = ct_forward(first, x), *z = ct_permute(ct_forward(last, ct_contiguous(ct_permute(x, turn))), back);
    CHECK(y && z && ct_item(ct_amax(ct_abs(ct_sub(y, z)))) < 1e-12);
    ct_module_free(first);
    ct_module_free(last);
}

TEST(layers_with_channels_last_give_the_same) {
#define BOTH(axes, call, ...) same_in_both_layouts(call(__VA_ARGS__), call(__VA_ARGS__, .channels_last = true), axes)
    BOTH(1, ct_nn_conv1d, 4, 6, 3, .stride = 2, .pad = 1);
    BOTH(2, ct_nn_conv2d, 4, 6, 3, .pad = 1, .groups = 2);
    BOTH(2, ct_nn_conv2d, 4, 6, 3, .pad = 1, .border = CT_PAD_REPLICATE);
    BOTH(3, ct_nn_conv3d, 4, 6, 3, .pad = 1);
    BOTH(2, ct_nn_conv_transpose2d, 4, 6, 3, .stride = 2, .output_padding = 1);
    BOTH(2, ct_nn_depthwise_conv2d, 4, 3, .pad = 1);
    BOTH(2, ct_nn_max_pool2d, 2);
    BOTH(2, ct_nn_avg_pool2d, 3, .stride = 2);
    BOTH(3, ct_nn_adaptive_avg_pool3d, 3);
    BOTH(2, ct_nn_batch_norm, 4);
    BOTH(2, ct_nn_group_norm, 2, 4);
    BOTH(2, ct_nn_instance_norm, 4, .affine = true);
    BOTH(2, ct_nn_upsample, 2, .mode = CT_BILINEAR);
#undef BOTH
}

/* ---- How weights begin ---- */

static void statistics(ct_tensor *x, double *mean, double *std, double *lo, double *hi) {
    ct_tensor *y = ct_cast(ct_detach(x), CT_F64);
    *mean = ct_item(ct_mean(y));
    *std = ct_item(ct_std(y));
    *lo = ct_item(ct_amin(y));
    *hi = ct_item(ct_amax(y));
}

TEST(layers_begin_as_in_pytorch) {
    CHECK(ct_seed(3));
    const struct {
        ct_module *module;
        double bound; /* uniform in +-bound */
    } layers[] = {{ct_nn_linear(400, 300), 1 / sqrt(400)},
                  {ct_nn_conv2d(40, 80, 5, .groups = 2), 1 / sqrt(20 * 25)},
                  {ct_nn_conv2d(40, 80, 5, .groups = 2, .channels_last = true), 1 / sqrt(20 * 25)},
                  {ct_nn_conv_transpose2d(40, 80, 5, .groups = 2), 1 / sqrt(40 * 25)},
                  {ct_nn_lstm(100, 200), 1 / sqrt(200)},
                  {ct_nn_multi_head_attention(200, 4), sqrt(6.0 / 800)}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        double mean, std, lo, hi;
        const double b = layers[i].bound;
        ct_tensor *weight = ct_module_param(layers[i].module, 0);
        statistics(weight, &mean, &std, &lo, &hi);
        /* the deviation of a mean of n numbers is std / sqrt(n), that of a std about std / sqrt(2 n): five of them */
        const double n = (double)ct_numel(weight), expected = b / sqrt(3);
        CHECK(fabs(mean) < 5 * expected / sqrt(n) && fabs(std - expected) < 5 * expected / sqrt(2 * n));
        CHECK(lo >= -b && lo < -0.99 * b && hi <= b && hi > 0.99 * b);
        ct_module_free(layers[i].module);
    }
    ct_module *e = ct_nn_embedding(500, 100, .padding_idx = CT_SET(7));
    double mean, std, lo, hi;
    statistics(ct_module_param(e, 0), &mean, &std, &lo, &hi);
    CHECK(fabs(std - sqrt(499.0 / 500)) < 5 / sqrt(2 * 50000.0));
    CHECK(ct_item(ct_sum(ct_abs(ct_select(ct_detach(ct_module_param(e, 0)), 0, 7)))) == 0);
    ct_module_free(e);
}

TEST(initializers_have_the_variance_that_they_promise) {
    ct_rng *rng = ct_rng_new(11, 0);
    ct_tensor *x = ct_set_requires_grad(ct_empty(CT_DIMS(60, 40, 3, 3)), true), *y = ct_empty(CT_DIMS(3, 3, 40, 60));
    const double in = 40 * 9, out = 60 * 9, n = 60 * 40 * 9;
    double mean, std, lo, hi;
#define EXPECT(tensor, call, wanted)           \
    CHECK(call);                               \
    statistics(tensor, &mean, &std, &lo, &hi); \
    CHECK(fabs(mean) < 5 * (wanted) / sqrt(n) && fabs(std - (wanted)) < 5 * (wanted) / sqrt(2 * n));
    EXPECT(x, ct_init_xavier_uniform(x, .rng = rng), sqrt(2 / (in + out)))
    EXPECT(x, ct_init_xavier_normal(x, .gain = 2, .rng = rng), 2 * sqrt(2 / (in + out)))
    EXPECT(x, ct_init_kaiming_uniform(x, .rng = rng), sqrt(2 / in))
    EXPECT(x, ct_init_kaiming_normal(x, .fan = CT_FAN_OUT, .rng = rng), sqrt(2 / out))
    EXPECT(y, ct_init_kaiming_normal(y, .fan = CT_FAN_OUT, .channels_last = true, .rng = rng), sqrt(2 / out))
    EXPECT(x, ct_init_kaiming_normal(x, .fan = CT_FAN_AVERAGE, .gain = 1, .rng = rng), sqrt(2 / (in + out)))
    EXPECT(x, ct_init_lecun_normal(x, .rng = rng), sqrt(1 / in))
    EXPECT(y, ct_init_lecun_uniform(y, .channels_last = true, .rng = rng), sqrt(1 / in))
    EXPECT(x, ct_init_normal(x, 0, 0.5, rng), 0.5)
    EXPECT(x, ct_init_uniform(x, -1, 1, rng), 1 / sqrt(3))
#undef EXPECT
    CHECK(ct_init_truncated_normal(x, 1, 2, 0, 2, rng));
    statistics(x, &mean, &std, &lo, &hi);
    CHECK(lo >= 0 && hi <= 2 && fabs(mean - 1) < 0.05);
    CHECK(ct_init_constant(x, 4) && ct_init_ones(y) && ct_item(ct_amin(ct_detach(x))) == 4 && ct_item(ct_amax(y)) == 1);
    CHECK(ct_requires_grad(x) && ct_is_leaf(x));
    CHECK(!ct_init_xavier_normal(ct_zeros(CT_DIMS(3))));
    CHECK_ERROR(CT_ERR_SHAPE, "init_xavier_normal: x is f32[3]; fans are those of a weight of two axes or more");
    CHECK(!ct_init_zeros(ct_zeros(CT_DIMS(3), .dtype = CT_I64)));
    CHECK_ERROR(CT_ERR_DTYPE, "init_constant: x is i64[3], expected a floating dtype");
    ct_rng_free(rng);
}

/* max |m m' - gain^2 I| of the rows of x as a matrix, or of its columns, whichever are fewer. */
static double orthogonality_error(ct_tensor *x, double gain) {
    ct_tensor *m = ct_cast(ct_reshape(x, CT_DIMS(ct_dim(x, 0), ct_numel(x) / ct_dim(x, 0))), CT_F64);
    if (ct_dim(m, 0) > ct_dim(m, 1)) m = ct_t(m);
    ct_tensor *expected = ct_mul_s(ct_eye(ct_dim(m, 0), .dtype = CT_F64), gain * gain);
    return ct_item(ct_amax(ct_abs(ct_sub(ct_matmul(m, ct_t(m)), expected))));
}

TEST(orthogonal_weights_are_orthogonal) {
    static const ct_dims shapes[] = {{2, {20, 30}},   {2, {30, 20}},   {4, {8, 4, 3, 3}}, {4, {40, 3, 3, 3}},
                                     {2, {1, 1}},     {2, {1, 7}},     {2, {7, 1}},       {2, {128, 128}},
                                     {2, {129, 129}}, {2, {300, 200}}, {2, {200, 700}},   {5, {130, 16, 2, 3, 4}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const double first = (double)shapes[i].d[0],
                     longest = fmax(first, (double)ct_numel(ct_empty(shapes[i])) / first);
        ct_tensor *f64 = ct_empty(shapes[i], .dtype = CT_F64), *f32 = ct_empty(shapes[i]);
        CHECK(ct_init_orthogonal(f64, .gain = 2) && ct_init_orthogonal(f32));
        const double sum =
            (longest + 8) * DBL_EPSILON; /* of products that add up to at most 1; 8: making the reflection */
        harness_check(orthogonality_error(f64, 2) <= 4 * sum, __FILE__, __LINE__, "f64 shape %zu: %g", i,
                      orthogonality_error(f64, 2));
        /* a rounding of both factors of each product, half an epsilon each */
        harness_check(orthogonality_error(f32, 1) <= FLT_EPSILON + sum, __FILE__, __LINE__, "f32 shape %zu: %g", i,
                      orthogonality_error(f32, 1));
    }
}

TEST(orthogonal_weights_are_the_unique_factor) {
    ct_tensor *a = ct_randn(CT_DIMS(150, 170), .dtype = CT_F64), *given = ct_clone(a);
    ct_tensor *q = ct__orthonormal_rows(a), *l = ct_matmul(given, ct_t(q)); /* lower, with a positive diagonal */
    REQUIRE(l != NULL);
    const double tolerance =
        170 * DBL_EPSILON * ct_item(ct_amax(ct_sqrt(ct_sum(ct_square(given), .axes = CT_DIMS(1)))));
    double above = 0, least = INFINITY;
    const double *at = ct_data(l);
    for (int i = 0; i < 150; i++) {
        least = fmin(least, at[i * 150 + i]);
        for (int j = i + 1; j < 150; j++) above = fmax(above, fabs(at[i * 150 + j]));
    }
    CHECK(least > 0 && above <= tolerance);
    CHECK(ct_item(ct_amax(ct_abs(ct_sub(ct_matmul(l, q), given)))) <= tolerance);
}

TEST(orthogonal_weights_do_not_depend_on_threads) {
    ct_tensor *one = ct_empty(CT_DIMS(260, 300)), *three = ct_empty(CT_DIMS(260, 300));
    const int before = ct_get_threads();
    for (int i = 0; i < 2; i++) {
        ct_rng *rng = ct_rng_new(7, 0);
        CHECK(ct_set_threads(i ? 3 : 1) && ct_init_orthogonal(i ? three : one, .rng = rng));
        ct_rng_free(rng);
    }
    ct_set_threads(before);
    CHECK(harness_same_bits(one, three));
}

TEST(a_dirac_weight_passes_channels_through) {
    ct_module *conv = ct_nn_conv2d(6, 6, 3, .pad = 1, .groups = 2, .no_bias = true);
    ct_tensor *x = harness_randn(CT_DIMS(2, 6, 5, 4));
    CHECK(ct_init_dirac(ct_module_param(conv, 0), 2) && harness_same_bits(ct_forward(conv, x), x));
    CHECK(!ct_init_dirac(ct_module_param(conv, 0), 4));
    CHECK_ERROR(CT_ERR_VALUE, "init_dirac: 6 channels cannot be divided into 4 groups");
    ct_module_free(conv);
}

/* ---- Options of older callers, and dropout ---- */

TEST(a_shorter_options_struct_means_defaults_for_the_rest) {
    const ct_nn_linear_options older = {
        .size = offsetof(ct_nn_linear_options, activation), .no_bias = true, .activation = CT_ACT_TANH};
    ct_module *a = ct_nn_linear_p(3, 2, &older), *b = ct_nn_linear_p(3, 2, NULL);
    CHECK(ct_module_param_count(a) == 1 && ct_module_param_count(b) == 2);
    ct_tensor *x = harness_randn(CT_DIMS(1, 3));
    CHECK(harness_same_bits(ct_forward(a, x), ct_linear(x, ct_module_param(a, 0))));
    ct_module_free(a);
    ct_module_free(b);
}

TEST(dropout_layers_drop_elements_channels_or_items) {
    ct_tensor *x = ct_ones(CT_DIMS(16, 8, 4, 4));
    ct_module *net = ct_nn_dropout2d(0.5, false);
    ct_tensor *y = ct_sum(ct_forward(net, x), .axes = CT_DIMS(2, 3));
    CHECK(ct_item(ct_all(ct_logical_or(ct_eq_s(y, 0), ct_eq_s(y, 32)))) == 1);
    ct_module_free(net);
    net = ct_nn_stochastic_depth(0.5);
    y = ct_sum(ct_forward(net, x), .axes = CT_DIMS(1, 2, 3));
    CHECK(ct_item(ct_all(ct_logical_or(ct_eq_s(y, 0), ct_eq_s(y, 256)))) == 1);
    CHECK(ct_eval(net) && harness_same_bits(ct_forward(net, x), x));
    ct_module_free(net);
    net = ct_nn_sequential(ct_nn_alpha_dropout(0.2), ct_nn_dropout3d(0, true), ct_nn_dropout(0.1));
    CHECK(ct_forward(net, ct_ones(CT_DIMS(2, 3, 4, 5, 6))));
    ct_module_free(net);
}

/* ---- Lengths of sequences ---- */

static void each_sequence_is_as_if_alone(ct_module *net, int64_t hidden, bool lstm) {
    const int64_t steps = 5, lengths[] = {3, 0, 5, 1};
    REQUIRE(net && ct_module_to_dtype(net, CT_F64));
    ct_tensor *x = ct_randn(CT_DIMS(4, steps, 3), .dtype = CT_F64), *given = I64(CT_DIMS(4), 3, 0, 5, 1);
    ct_tensor *h0 = ct_randn(CT_DIMS(4, 4, hidden), .dtype = CT_F64),
              *c0 = ct_randn(CT_DIMS(4, 4, hidden), .dtype = CT_F64);
    const int states = lstm ? 2 : 1;
    ct_tensor *in[4] = {x, h0, lstm ? c0 : given, given}, *out[3], *one[3];
    REQUIRE(ct_forward_n(net, in, 2 + states, out, 1 + states));
    for (int64_t i = 0; i < 4; i++) {
        ct_tensor *alone[3] = {ct_narrow(ct_narrow(x, 0, i, 1), 1, 0, lengths[i]), ct_narrow(h0, 1, i, 1),
                               ct_narrow(c0, 1, i, 1)};
        REQUIRE(ct_forward_n(net, alone, 1 + states, one, 1 + states));
        ct_tensor *mine = ct_narrow(out[0], 0, i, 1), *after = ct_narrow(mine, 1, lengths[i], steps - lengths[i]);
        if (lengths[i]) CHECK(ct_item(ct_amax(ct_abs(ct_sub(ct_narrow(mine, 1, 0, lengths[i]), one[0])))) < 1e-15);
        CHECK(ct_item(ct_sum(ct_abs(after))) == 0);
        for (int k = 1; k <= states; k++)
            CHECK(ct_item(ct_amax(ct_abs(ct_sub(ct_narrow(out[k], 1, i, 1), one[k])))) < 1e-15);
    }
    /* without initial states: NULL where they would be */
    in[1] = NULL;
    if (lstm) in[2] = NULL;
    CHECK(ct_forward_n(net, in, 2 + states, out, 1) && ct_item(ct_sum(ct_abs(ct_select(out[0], 0, 1)))) == 0);
    /* and their gradient, again: what is padded has none */
    ct_set_requires_grad(x, true);
    REQUIRE(ct_forward_n(net, in, 2 + states, out, 1));
    ct_tensor *y = ct_sum(ct_square(out[0])), *g, *gg;
    REQUIRE(ct_grad(&y, 1, NULL, &x, 1, &g, CT_CREATE_GRAPH));
    ct_tensor *z = ct_sum(ct_square(g));
    REQUIRE(ct_grad(&z, 1, NULL, &x, 1, &gg, 0));
    for (int64_t i = 0; i < 4; i++) {
        ct_tensor *padded = ct_narrow(ct_select(gg, 0, i), 0, lengths[i], steps - lengths[i]);
        CHECK(ct_item(ct_sum(ct_abs(padded))) == 0);
        if (lengths[i]) CHECK(ct_item(ct_amin(ct_abs(ct_narrow(ct_select(gg, 0, i), 0, 0, lengths[i])))) > 0);
    }
    ct_module_free(net);
}

TEST(recurrent_layers_take_the_lengths_of_sequences) {
    CHECK(ct_seed(21));
#define OPTIONS .layers = 2, .bidirectional = true, .batch_first = true
    each_sequence_is_as_if_alone(ct_nn_lstm(3, 4, OPTIONS), 4, true);
    each_sequence_is_as_if_alone(ct_nn_gru(3, 4, OPTIONS), 4, false);
    each_sequence_is_as_if_alone(ct_nn_rnn(3, 4, OPTIONS), 4, false);
#undef OPTIONS
    ct_module *net = ct_nn_lstm(3, 4), *step = ct_nn_gru_cell(3, 4);
    ct_tensor *x = ct_zeros(CT_DIMS(5, 2, 3)), *out[1], *in[5] = {x, NULL, NULL, I64(CT_DIMS(2), 5, 6), x};
    CHECK(!ct_forward_n(net, in, 4, out, 1));
    CHECK_ERROR(CT_ERR_INDEX, "lstm: lengths is 6 at element 1; it has to be in 0 to 5; in lstm");
    in[3] = x;
    CHECK(!ct_forward_n(net, in, 4, out, 1) && ct_error_code() == CT_ERR_DTYPE);
    ct_error_clear();
    CHECK(!ct_forward_n(net, in, 5, out, 1));
    CHECK_ERROR(CT_ERR_VALUE, "lstm: 5 tensors in and 1 out, expected at most 4 and 3; in lstm");
    CHECK(!ct_forward_n(step, in, 3, out, 1));
    CHECK_ERROR(CT_ERR_VALUE, "gru_cell: 3 tensors in and 1 out, expected at most 2 and 1; in gru_cell");
    ct_module_free(net);
    ct_module_free(step);
}
