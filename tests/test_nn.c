/* Modules: the tree and what it holds, running it, modes, copies, moves, states, printing, and what goes
 * wrong. Values of the layers are in test_nn_refs.c, models in test_models.c. */
#include <cotangent/nn.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"

static ct_module *small(void) {
    return ct_nn_sequential(ct_nn_linear(4, 3), ct_nn_relu(), ct_nn_batch_norm(3), ct_nn_linear(3, 2));
}

static ct_tensor *negative(void *context, ct_tensor *x) {
    (void)context;
    return ct_neg(x);
}

static ct_tensor *half(void *context, ct_tensor *x) {
    (void)context;
    return ct_mul_s(x, 0.5);
}

/* ---- ct_state ---- */

TEST(a_state_holds_tensors_and_texts_by_name_in_order) {
    ct_state *state = ct_state_new();
    ct_tensor *x = F32(CT_DIMS(2), 1, 2);
    CHECK(ct_state_put(state, "b", x) && ct_state_put(state, "a", ct_scalar(3, CT_F32)));
    CHECK(ct_state_put_text(state, "note", "hello"));
    CHECK(ct_state_count(state) == 2 && ct_state_text_count(state) == 1);
    CHECK_TEXT(ct_state_name(state, 0), "b");
    CHECK(ct_state_get(state, "b") == x && ct_state_at(state, 0) == x && ct_item(ct_state_get(state, "a")) == 3);
    CHECK_TEXT(ct_state_text(state, "note"), "hello");
    CHECK_TEXT(ct_state_text_name(state, 0), "note");
    CHECK_TEXT(ct_state_text_at(state, 0), "hello");
    CHECK(!ct_state_get(state, "c") && !ct_state_text(state, "b") && !ct_state_name(state, 2) &&
          !ct_state_at(state, -1));
    CHECK(ct_ok());
    CHECK(!ct_state_put(state, "a", x));
    CHECK_ERROR(CT_ERR_VALUE, "state_put: \"a\" is in the state already");
    CHECK(!ct_state_put(state, "d", NULL));
    CHECK_ERROR(CT_ERR_NULL, "state_put: \"d\": argument x is NULL");
    ct_state_free(state);
    ct_state_free(NULL);
}

TEST(numbers_in_a_state_come_back_bit_for_bit) {
    ct_state *state = ct_state_new();
    const double values[] = {0.1, -INFINITY, 1e-320};
    const int64_t integers[] = {INT64_MIN, 0, INT64_MAX};
    CHECK(ct_state_put_numbers(state, "n", values, 3) && ct_state_put_integers(state, "i", integers, 3));
    CHECK(ct_state_put_numbers(state, "empty", NULL, 0));
    double v[3];
    int64_t i[3];
    CHECK(ct_state_numbers(state, "n", v, 3) && memcmp(v, values, sizeof v) == 0);
    CHECK(ct_state_integers(state, "i", i, 3) && memcmp(i, integers, sizeof i) == 0);
    CHECK(ct_state_numbers(state, "empty", NULL, 0));
    CHECK(!ct_state_numbers(state, "n", v, 2));
    CHECK_ERROR(CT_ERR_SHAPE, "state_numbers: \"n\" is f64[3], expected f64[2]");
    CHECK(!ct_state_numbers(state, "i", v, 3));
    CHECK_ERROR(CT_ERR_SHAPE, "state_numbers: \"i\" is i64[3], expected f64[3]");
    CHECK(!ct_state_integers(state, "x", i, 3));
    CHECK_ERROR(CT_ERR_VALUE, "state_integers: the state has no \"x\"");
    ct_state_free(state);
}

TEST(a_state_of_many_names_finds_each) {
    ct_state *state = ct_state_new();
    ct_tensor *x = ct_scalar(1, CT_F32);
    char name[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "layers.%d.weight", i);
        REQUIRE(ct_state_put(state, name, x));
    }
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "layers.%d.weight", i);
        REQUIRE(ct_state_get(state, name) == x && strcmp(ct_state_name(state, i), name) == 0);
    }
    CHECK(!ct_state_get(state, "layers.5000.weight"));
    ct_state_free(state);
}

TEST(a_state_takes_nothing_while_an_error_is_pending) {
    ct_state *state = ct_state_new();
    ct_tensor *x = ct_scalar(1, CT_F32);
    ct_fail(CT_ERR_VALUE, "test", "pending");
    CHECK(!ct_state_put(state, "a", x) && !ct_state_put_text(state, "a", "b") && ct_state_count(state) == 0);
    ct_error_clear();
    ct_state_free(state);
}

/* ---- The tree ---- */

TEST(parameters_are_listed_with_whole_names_each_once) {
    ct_module *net = small();
    ct_parameters *list = ct_module_parameters(net);
    static const char *const names[] = {"0.weight",       "0.bias",        "2.weight", "2.bias",
                                        "2.running_mean", "2.running_var", "3.weight", "3.bias"};
    CHECK(ct_parameters_count(list) == 8);
    for (int i = 0; i < 8; i++) {
        const ct_parameter *p = ct_parameters_at(list, i);
        CHECK_TEXT(p->name, names[i]);
        CHECK(p->buffer == (i == 4 || i == 5) && !p->frozen && ct_parameter_tensor(p) == ct_module_find(net, names[i]));
    }
    CHECK(!ct_parameters_at(list, 8) && !ct_parameters_at(list, -1));
    ct_module_free(net); /* the list holds it */
    CHECK(ct_numel(ct_parameter_tensor(ct_parameters_at(list, 0))) == 12);
    ct_parameters_free(list);
    ct_parameters_free(NULL);
}

TEST(parts_are_found_by_path_and_by_place) {
    ct_module *net = ct_nn_sequential(small(), ct_nn_identity());
    CHECK(ct_module_find(net, "0.3.bias") && ct_module_find_child(net, "0.3") && ct_module_find_child(net, "1"));
    CHECK(ct_module_find(net, "0.3.bias") == ct_module_param(ct_module_find_child(net, "0.3"), 1));
    CHECK(ct_module_find(net, "0.2.running_var") == ct_module_buffer(ct_module_find_child(net, "0.2"), 1));
    CHECK(!ct_module_find(net, "0.9.bias") && !ct_module_find(net, "") && !ct_module_find(net, "0") &&
          !ct_module_find(net, NULL) && !ct_module_find_child(net, "0.3.bias") && !ct_module_find_child(net, ""));
    ct_module *linear = ct_module_find_child(net, "0.0");
    CHECK(ct_module_param_count(linear) == 2 && ct_module_buffer_count(linear) == 0 && ct_module_child_count(net) == 2);
    CHECK_TEXT(ct_module_param_name(linear, 1), "bias");
    CHECK_TEXT(ct_module_child_name(net, 1), "1");
    CHECK_TEXT(ct_module_type(linear)->name, "linear");
    CHECK(!ct_module_param(linear, 2) && !ct_module_child(net, 2) && !ct_module_buffer(net, 0) && ct_ok());
    ct_module_free(net);
}

TEST(adding_what_cannot_be_added_is_an_error) {
    ct_module *net = ct_nn_identity();
    CHECK(ct_module_add_param(net, "w", ct_zeros(CT_DIMS(2))));
    CHECK(!ct_module_add_param(net, "w", ct_zeros(CT_DIMS(2))));
    CHECK_ERROR(CT_ERR_VALUE, "module_add_param: the identity has a \"w\" already");
    CHECK(!ct_module_add_buffer(net, "a.b", ct_zeros(CT_DIMS(2))));
    CHECK_ERROR(CT_ERR_VALUE, "module_add_buffer: \"a.b\" is no name: it is empty or has a dot");
    CHECK(!ct_module_add_param(net, "x", NULL));
    CHECK_ERROR(CT_ERR_NULL, "module_add_param: \"x\": argument x is NULL");
    CHECK(!ct_module_add_param(net, "x", ct_zeros(CT_DIMS(2), .dtype = CT_I64)));
    CHECK_ERROR(CT_ERR_DTYPE, "set_requires_grad: x is i64[2]; only floating tensors have gradients");
    CHECK(!ct_module_add_param(net, "x", ct_neg(ct_module_param(net, 0))));
    CHECK_ERROR(CT_ERR_GRAD,
                "module_add_param: \"x\", f32[2], is computed from others; a parameter is a leaf (ct_detach)");
    CHECK(!ct_module_add(net, "c", NULL));
    CHECK_ERROR(CT_ERR_NULL, "module_add: \"c\": argument child is NULL");
    CHECK(!ct_module_add(net, "c", ct_module_keep(net)));
    CHECK_ERROR(CT_ERR_VALUE, "module_add: \"c\": a identity cannot be below itself");
    CHECK(!ct_module_add(NULL, "c", ct_nn_relu()));
    CHECK_ERROR(CT_ERR_NULL, "module_add: argument module is NULL");
    CHECK(ct_module_param_count(net) == 1 && ct_module_child_count(net) == 0);
    ct_module_free(net);
    ct_module_free(NULL);
}

TEST(a_null_child_makes_the_network_null_and_frees_the_rest) {
    CHECK(!ct_nn_sequential(ct_nn_linear(4, 4), ct_nn_linear(0, 4), ct_nn_relu()));
    CHECK_ERROR(CT_ERR_VALUE, "nn_linear: in is 0, expected at least 1");
    CHECK(!ct_nn_sequential(ct_nn_relu(), NULL));
    CHECK_ERROR(CT_ERR_NULL, "nn_sequential: module 1 is NULL");
    CHECK(!ct_nn_residual(NULL, ct_nn_linear(2, 2), CT_ACT_NONE));
    CHECK_ERROR(CT_ERR_NULL, "nn_residual: argument body is NULL");
    CHECK(!ct_nn_append(NULL, ct_nn_relu()));
    CHECK_ERROR(CT_ERR_NULL, "nn_append: argument sequential is NULL");
}

TEST(wrong_options_are_refused_when_a_layer_is_made) {
    CHECK(!ct_nn_conv2d(4, 6, 3, .groups = 4));
    CHECK_ERROR(CT_ERR_VALUE, "nn_conv2d: 4 channels in and 6 out cannot be divided into 4 groups");
    CHECK(!ct_nn_conv2d(4, 6, 0));
    CHECK_ERROR(CT_ERR_VALUE, "nn_conv2d: kernel is 0, expected at least 1");
    CHECK(!ct_nn_conv3d(4, 6, 1, .kernels = CT_DIMS(3, 3)));
    CHECK_ERROR(CT_ERR_VALUE, "nn_conv3d: kernels has 2 numbers, expected 3");
    CHECK(!ct_nn_conv_transpose2d(4, 6, 3, .pad = 1, .border = CT_PAD_REFLECT));
    CHECK_ERROR(CT_ERR_VALUE, "nn_conv_transpose2d: border is for plain convolutions with explicit pads");
    CHECK(!ct_nn_group_norm(3, 4));
    CHECK_ERROR(CT_ERR_VALUE, "nn_group_norm: 4 channels cannot be divided into 3 groups");
    CHECK(!ct_nn_multi_head_attention(10, 3));
    CHECK_ERROR(CT_ERR_VALUE,
                "nn_multi_head_attention: dim 10, heads 3, kv_heads 3: each has to divide the one before");
    CHECK(!ct_nn_dropout(1.5));
    CHECK_ERROR(CT_ERR_VALUE, "nn_dropout: p is 1.5, expected 0 to 1");
    CHECK(!ct_nn_embedding(4, 2, .padding_idx = CT_SET(4)));
    CHECK_ERROR(CT_ERR_INDEX, "nn_embedding: padding_idx is 4, expected 0 to 3");
    CHECK(!ct_nn_lstm(4, 4, .layers = 100));
    CHECK_ERROR(CT_ERR_VALUE, "nn_lstm: layers is 100, expected 1 to 64");
    CHECK(!ct_nn_linear(2, 2, .activation = (ct_activation)17));
    CHECK_ERROR(CT_ERR_VALUE, "nn_linear: activation: 17 is not a value of its enum");
    CHECK(!ct_nn_activation((ct_activation)-1));
    CHECK_ERROR(CT_ERR_VALUE, "nn_activation: activation: -1 is not a value of its enum");
    /* what a layer does not have is not left out in silence */
    CHECK(!ct_nn_lp_pool2d(2, 3, .pad = 1));
    CHECK_ERROR(CT_ERR_VALUE, "nn_lp_pool2d: this pool has no padding");
    CHECK(!ct_nn_gru_cell(4, 4, .bidirectional = true));
    CHECK_ERROR(CT_ERR_VALUE, "nn_gru_cell: one step has neither two directions nor a dropout");
    CHECK(!ct_nn_unet(2, 4, .dropout = 0.5));
    CHECK_ERROR(CT_ERR_VALUE, "nn_unet: dropout is 0.5; this model has none");
    CHECK(!ct_nn_mlp((ct_dims){.n = 1000}, CT_ACT_RELU));
    CHECK(ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
}

/* ---- Running ---- */

TEST(errors_say_where_in_the_network_they_happened) {
    ct_module *net = ct_nn_sequential(ct_nn_relu(), ct_nn_residual(ct_nn_conv2d(4, 4, 3, .pad = 1), NULL, CT_ACT_NONE));
    CHECK(!ct_forward(net, ct_zeros(CT_DIMS(1, 3, 8, 8))));
    CHECK_ERROR(CT_ERR_SHAPE, "conv2d: channels differ: x is f32[1,3,8,8] with 3 channels, w is f32[4,4,3,3], which "
                              "with groups 1 takes 4; in 1.body (conv2d)");
    CHECK(!ct_forward(ct_module_find_child(net, "1.body"), ct_zeros(CT_DIMS(1, 3, 8, 8))));
    CHECK_ERROR(CT_ERR_SHAPE, "conv2d: channels differ: x is f32[1,3,8,8] with 3 channels, w is f32[4,4,3,3], which "
                              "with groups 1 takes 4; in conv2d");
    CHECK(!ct_forward(NULL, ct_zeros(CT_DIMS(1))));
    CHECK_ERROR(CT_ERR_NULL, "forward: argument module is NULL");
    CHECK(!ct_forward(net, NULL));
    CHECK_ERROR(CT_ERR_NULL, "forward: argument x is NULL");
    ct_tensor *out[2];
    CHECK(!ct_forward_n(net, (ct_tensor *[]){ct_zeros(CT_DIMS(1)), NULL}, 2, out, 1));
    CHECK_ERROR(CT_ERR_VALUE, "forward: sequential takes 1 tensor and gives 1, not 2 and 1");
    ct_module_free(net);
    ct_module *stack = ct_nn_transformer_encoder(1, 8, 2);
    CHECK(!ct_forward(stack, ct_zeros(CT_DIMS(2, 3, 6))));
    CHECK_ERROR(CT_ERR_SHAPE, "linear: takes x [..., in] and w [out, in]: x is f32[2,3,6], w is f32[24,8]; in "
                              "layers.0.self_attn (multi_head_attention)");
    ct_module_free(stack);
}

TEST(an_error_that_was_pending_is_left_as_it_is) {
    ct_module *net = ct_nn_conv2d(4, 4, 3);
    ct_fail(CT_ERR_VALUE, "test", "pending");
    ct_forward(net, NULL);
    CHECK_ERROR(CT_ERR_VALUE, "test: pending");
    ct_module_free(net);
}

TEST(sequential_applies_an_activation_in_the_layer_before_it) {
    ct_module *net = ct_nn_sequential(ct_nn_conv2d(2, 4, 3), ct_nn_relu(), ct_nn_flatten(), ct_nn_linear(16, 5),
                                      ct_nn_gelu(), ct_nn_linear(5, 3, .activation = CT_ACT_TANH), ct_nn_sigmoid());
    ct_tensor *x = harness_randn(CT_DIMS(3, 2, 4, 4));
    harness_log_start();
    ct_tensor *y = ct_forward(net, x);
    harness_log_stop();
    CHECK(harness_log_calls("relu") == 0 && harness_log_calls("sigmoid") == 1);
    harness_log_start();
    ct_no_grad {
        CHECK(harness_same_bits(ct_forward(net, x), y));
    }
    harness_log_stop();
    CHECK(harness_log_calls("gelu") ==
          0); /* its gradient needs what goes in, so when recording it is a call of its own */
    ct_tensor *expected = x;
    for (int i = 0; i < 7; i++) expected = ct_forward(ct_module_child(net, i), expected);
    CHECK(harness_same_bits(y, expected));
    ct_module_free(net);
}

static int64_t peak_of(ct_module *net, ct_tensor *x) {
    const int64_t before = harness_memory().in_use;
    harness_reset_peak();
    ct_scope {
        ct_no_grad {
            CHECK(ct_forward(net, x));
        }
    }
    return harness_memory().peak - before;
}

TEST(a_deep_network_in_inference_holds_two_layers_of_activations) {
    ct_module *net = ct_nn_sequential(ct_nn_tanh()), *inner = ct_nn_sequential(ct_nn_tanh());
    for (int i = 0; i < 18; i++) CHECK(ct_nn_append(net, ct_nn_tanh()) && ct_nn_append(inner, ct_nn_tanh()));
    const int64_t layer = 1 << 20;
    ct_tensor *image = ct_zeros(CT_DIMS(layer / 4));
    CHECK(peak_of(net, image) < 9 * layer / 4 + harness_buried());
    CHECK(ct_nn_append(net, inner)); /* a level deeper: its input stays as well */
    CHECK(peak_of(net, image) < 13 * layer / 4 + harness_buried());
    ct_module_free(net);
    ct_module *encoder = ct_nn_transformer_encoder(1, 64, 4), *deeper = ct_nn_transformer_encoder(12, 64, 4);
    ct_tensor *x = ct_zeros(CT_DIMS(4, 256, 64));
    const int64_t one = peak_of(encoder, x), twelve = peak_of(deeper, x);
    CHECK(twelve < one + 2 * 4 * 256 * 64 * 4 + harness_buried());
    ct_module_free(encoder);
    ct_module_free(deeper);
}

TEST(a_recorded_network_holds_only_what_its_gradient_needs) {
    /* relu needs its result alone, so of each pair one tensor stays */
    ct_module *net = ct_nn_sequential(ct_nn_identity());
    for (int i = 0; i < 8; i++)
        CHECK(ct_nn_append(net, ct_nn_lambda("half", half, NULL, NULL)) && ct_nn_append(net, ct_nn_relu()));
    const int64_t layer = 1 << 20, before = harness_memory().in_use;
    ct_tensor *y = ct_forward(net, ct_set_requires_grad(ct_ones(CT_DIMS(layer / 4)), true));
    const int64_t held = harness_memory().in_use - before;
    CHECK(y && held < 9 * layer + layer / 2 + harness_buried());
    ct_module_free(net);
}

TEST(identities_in_a_chain_pass_tensors_on) {
    ct_module *net = ct_nn_sequential(ct_nn_identity(), ct_nn_lambda("neg", negative, NULL, NULL), ct_nn_identity(),
                                      ct_nn_identity());
    ct_tensor *x = harness_randn(CT_DIMS(3)), *expected = ct_neg(x);
    CHECK(harness_same_bits(ct_forward(net, x), expected));
    ct_no_grad {
        CHECK(harness_same_bits(ct_forward(net, x), expected));
    }
    ct_module_free(net);
    net = ct_nn_sequential(ct_nn_identity(), ct_nn_flatten());
    ct_tensor *m = harness_randn(CT_DIMS(2, 3));
    ct_no_grad {
        CHECK(harness_same_bits(ct_forward(net, m), m));
    }
    ct_module_free(net);
    net = ct_nn_sequential_n(NULL, 0);
    CHECK(ct_forward(net, m) == m);
    ct_module_free(net);
}

/* ---- Modes ---- */

TEST(training_mode_reaches_every_module_and_eval_makes_dropout_and_batch_norm_still) {
    ct_module *net = ct_nn_sequential(ct_nn_batch_norm(3), ct_nn_sequential(ct_nn_dropout(0.5)));
    ct_tensor *x = harness_randn(CT_DIMS(64, 3));
    CHECK(ct_module_training(net) && ct_module_training(ct_module_find_child(net, "1.0")));
    ct_tensor *mean = ct_module_find(net, "0.running_mean"), *before = ct_clone(mean);
    ct_tensor *y = ct_forward(net, x);
    CHECK(!harness_same_bits(mean, before) && ct_item(ct_sum(ct_cast(ct_eq_s(y, 0), CT_F32))) > 20);
    CHECK(ct_eval(net) && !ct_module_training(net) && !ct_module_training(ct_module_find_child(net, "1.0")));
    before = ct_clone(mean);
    CHECK(harness_same_bits(ct_forward(net, x), ct_forward(net, x)) && harness_same_bits(mean, before));
    CHECK(ct_train(net) && ct_module_training(ct_module_find_child(net, "1.0")));
    ct_fail(CT_ERR_VALUE, "test", "pending");
    CHECK(!ct_eval(net) && ct_module_training(net));
    ct_error_clear();
    ct_module_free(net);
}

TEST(frozen_parameters_want_no_gradient_until_they_are_thawed) {
    ct_module *net = small();
    ct_module *first = ct_module_child(net, 0);
    ct_tensor *weight = ct_module_param(first, 0);
    CHECK(ct_module_size(net) == 4 * 3 + 3 + 6 + 3 * 2 + 2);
    CHECK(ct_module_freeze(first, true) && !ct_requires_grad(weight) && ct_module_param(first, 0) == weight);
    CHECK(ct_module_size(net) == 6 + 3 * 2 + 2);
    CHECK(ct_backward(ct_sum(ct_forward(net, harness_randn(CT_DIMS(5, 4))))));
    CHECK(!ct_grad_of(weight) && ct_grad_of(ct_module_find(net, "3.weight")));
    ct_parameters *list = ct_module_parameters(net);
    CHECK(ct_parameters_at(list, 0)->frozen && !ct_parameters_at(list, 2)->frozen);
    ct_parameters_free(list);
    CHECK(ct_module_freeze(net, false) && ct_requires_grad(weight));
    CHECK(ct_backward(ct_sum(ct_forward(net, harness_randn(CT_DIMS(5, 4))))) && ct_grad_of(weight));
    CHECK(ct_module_zero_grad(net) && !ct_grad_of(weight) && !ct_grad_of(ct_module_find(net, "3.weight")));
    ct_module_free(net);
}

TEST(gradients_are_given_up_by_leaves_alone) {
    ct_tensor *x = ct_set_requires_grad(ct_ones(CT_DIMS(2)), true), *y = ct_neg(x);
    CHECK(!ct_set_requires_grad(y, false));
    CHECK_ERROR(CT_ERR_GRAD, "set_requires_grad: x, f32[2], is computed from others; ct_detach cuts it from them");
    CHECK(ct_set_requires_grad(x, false) && !ct_requires_grad(x) && ct_set_requires_grad(x, false));
    CHECK(ct_backward(ct_sum(y)) && !ct_grad_of(x)); /* the graph that was recorded still runs */
}

/* ---- Copies, ties, moves ---- */

TEST(a_copy_is_of_its_own_and_gives_the_same) {
    ct_module *net = ct_nn_sequential(small(), ct_nn_lambda("neg", negative, NULL, NULL));
    ct_tensor *x = harness_randn(CT_DIMS(5, 4));
    CHECK(ct_forward(net, x) && ct_eval(net) && ct_module_freeze(ct_module_find_child(net, "0.0"), true));
    ct_module *copy = ct_module_copy(net);
    REQUIRE(copy);
    CHECK(!ct_module_training(copy) && !ct_requires_grad(ct_module_find(copy, "0.0.weight")) &&
          ct_requires_grad(ct_module_find(copy, "0.3.weight")));
    CHECK(harness_same_bits(ct_forward(net, x), ct_forward(copy, x)));
    CHECK(ct_init_zeros(ct_module_find(copy, "0.3.weight")));
    CHECK(!harness_same_bits(ct_module_find(net, "0.3.weight"), ct_module_find(copy, "0.3.weight")));
    ct_module_free(net);
    CHECK(ct_forward(copy, x));
    ct_module_free(copy);
    CHECK(!ct_module_copy(NULL));
    CHECK_ERROR(CT_ERR_NULL, "module_copy: argument module is NULL");
}

TEST(tied_parameters_stay_one_through_everything) {
    ct_module *net = ct_nn_sequential(ct_nn_embedding(7, 4), ct_nn_linear(4, 7, .no_bias = true));
    CHECK(!ct_module_tie(net, "1.weight", "0.bias"));
    CHECK_ERROR(CT_ERR_VALUE, "module_tie: the sequential has no parameter \"0.bias\"");
    CHECK(ct_module_tie(net, "1.weight", "0.weight") && ct_module_size(net) == 28);
    CHECK(ct_module_to_dtype(net, CT_F64) && ct_module_find(net, "1.weight") == ct_module_find(net, "0.weight"));
    CHECK(ct_dtype_of(ct_module_find(net, "1.weight")) == CT_F64 && ct_requires_grad(ct_module_find(net, "1.weight")));
    ct_module *copy = ct_module_copy(net);
    CHECK(ct_module_find(copy, "1.weight") == ct_module_find(copy, "0.weight") &&
          ct_module_find(copy, "1.weight") != ct_module_find(net, "1.weight"));
    ct_state *state = ct_state_new();
    CHECK(ct_module_put_state(net, state, "") && ct_state_count(state) == 1);
    CHECK(ct_module_take_state(copy, state, ""));
    ct_state_free(state);
    CHECK(ct_module_freeze(ct_module_child(net, 0), true) && !ct_requires_grad(ct_module_find(net, "1.weight")));
    ct_module_free(copy);
    ct_module_free(net);
    net = ct_nn_sequential(ct_nn_linear(4, 3), ct_nn_linear(3, 4));
    CHECK(!ct_module_tie(net, "1.weight", "0.weight"));
    CHECK_ERROR(CT_ERR_SHAPE, "module_tie: \"1.weight\" is f32[4,3], \"0.weight\" is f32[3,4]");
    ct_module_free(net);
    net = ct_nn_batch_norm(3);
    CHECK(!ct_module_tie(net, "weight", "running_var")); /* which no optimizer may change */
    CHECK_ERROR(CT_ERR_VALUE, "module_tie: the batch_norm has no parameter \"running_var\"");
    ct_module_free(net);
}

TEST(a_module_that_occurs_twice_is_one) {
    ct_module *shared = ct_nn_linear(4, 4);
    ct_module *net = ct_nn_sequential(ct_module_keep(shared), ct_nn_tanh(), shared);
    CHECK(ct_module_size(net) == 20);
    ct_module *copy = ct_module_copy(net);
    CHECK(ct_module_child(copy, 0) == ct_module_child(copy, 2) && ct_module_size(copy) == 20);
    CHECK(ct_module_to_dtype(copy, CT_F64) && ct_dtype_of(ct_module_find(copy, "2.bias")) == CT_F64);
    CHECK(ct_backward(ct_sum(ct_forward(net, harness_randn(CT_DIMS(2, 4))))));
    ct_module_free(copy);
    ct_module_free(net);
}

TEST(dtype_moves_convert_floats_and_leave_integers) {
    ct_module *net = small();
    CHECK(ct_module_add_buffer(net, "steps", ct_zeros(CT_DIMS0, .dtype = CT_I64)));
    CHECK(ct_module_to_dtype(net, CT_BF16));
    CHECK(ct_dtype_of(ct_module_find(net, "0.weight")) == CT_BF16 &&
          ct_dtype_of(ct_module_find(net, "2.running_var")) == CT_BF16);
    CHECK(ct_dtype_of(ct_module_find(net, "steps")) == CT_I64);
    CHECK(!ct_module_to_dtype(net, CT_I32));
    CHECK_ERROR(CT_ERR_DTYPE, "module_to_dtype: i32 is not a floating dtype");
    ct_tensor *weight = ct_module_find(net, "0.weight");
    CHECK(ct_module_to_device(net, (ct_device){CT_CPU, 0}) && ct_module_find(net, "0.weight") == weight);
    if (ct_backend_missing(CT_CUDA)[0]) {
        CHECK(!ct_module_to_device(net, (ct_device){CT_CUDA, 0}));
        CHECK(ct_module_find(net, "0.weight") == weight);
        ct_error_clear();
    }
    ct_module_free(net);
}

static bool visit_all(void *context, const char *path, ct_module *module) {
    char *seen = context;
    sprintf(seen + strlen(seen), "<%s> ", path);
    return module != NULL;
}

static bool visit_three(void *context, const char *path, ct_module *module) {
    visit_all(context, path, module);
    return strcmp(path, "0.0") != 0;
}

TEST(apply_visits_parents_first_and_can_stop) {
    ct_module *net = ct_nn_sequential(small(), ct_nn_relu());
    char seen[128] = "";
    CHECK(ct_module_apply(net, visit_all, seen));
    CHECK_TEXT(seen, "<> <0> <0.0> <0.1> <0.2> <0.3> <1> ");
    seen[0] = 0;
    CHECK(!ct_module_apply(net, visit_three, seen) && ct_ok());
    CHECK_TEXT(seen, "<> <0> <0.0> ");
    CHECK(!ct_module_apply(net, NULL, NULL));
    CHECK_ERROR(CT_ERR_NULL, "module_apply: argument fn is NULL");
    ct_module_free(net);
}

/* ---- States ---- */

TEST(a_state_brings_a_module_back) {
    ct_module *net = small(), *other = small();
    ct_tensor *x = harness_randn(CT_DIMS(5, 4));
    CHECK(ct_forward(net, x) && ct_eval(net) && ct_eval(other));
    ct_state *state = ct_state_new();
    CHECK(ct_module_put_state(net, state, "net.") && ct_state_count(state) == 8);
    CHECK_TEXT(ct_state_name(state, 4), "net.2.running_mean");
    ct_tensor *weight = ct_module_find(other, "0.weight");
    CHECK(ct_module_take_state(other, state, "net.") && ct_module_find(other, "0.weight") == weight);
    CHECK(harness_same_bits(ct_forward(net, x), ct_forward(other, x)));
    ct_state_free(state);
    ct_module_free(net);
    ct_module_free(other);
}

TEST(a_state_that_does_not_fit_changes_nothing) {
    ct_module *net = small(),
              *other = ct_nn_sequential(ct_nn_linear(4, 3), ct_nn_relu(), ct_nn_batch_norm(3), ct_nn_linear(3, 5));
    ct_tensor *before = ct_clone(ct_module_find(other, "0.weight"));
    ct_state *state = ct_state_new();
    CHECK(ct_module_put_state(net, state, ""));
    CHECK(!ct_module_take_state(other, state, ""));
    CHECK_ERROR(CT_ERR_SHAPE, "module_take_state: \"3.weight\" is f32[2,3], the module's is f32[5,3] (and 1 more)");
    CHECK(harness_same_bits(before, ct_module_find(other, "0.weight")));
    CHECK(ct_state_put(state, "extra", ct_scalar(1, CT_F32)));
    CHECK(!ct_module_take_state(net, state, ""));
    CHECK_ERROR(CT_ERR_VALUE, "module_take_state: the state has a \"extra\" that the module lacks");
    CHECK(ct_module_take_state(net, state, "", .lenient = true));
    ct_module *larger =
        ct_nn_sequential(ct_nn_linear(4, 3), ct_nn_relu(), ct_nn_batch_norm(3), ct_nn_linear(3, 2), ct_nn_linear(2, 2));
    CHECK(!ct_module_take_state(larger, state, ""));
    CHECK_ERROR(CT_ERR_VALUE, "module_take_state: the state has no \"4.weight\" (and 1 more), but a \"extra\" that the "
                              "module lacks");
    CHECK(ct_module_take_state(larger, state, "", .lenient = true) &&
          harness_same_bits(ct_module_find(larger, "3.bias"), ct_module_find(net, "3.bias")));
    CHECK(!ct_module_take_state(net, state, NULL, .lenient = true));
    CHECK_ERROR(CT_ERR_NULL, "module_take_state: argument prefix is NULL");
    ct_state_free(state);
    ct_module_free(net);
    ct_module_free(other);
    ct_module_free(larger);
}

/* ---- Printing ---- */

TEST(a_module_prints_as_a_tree_with_shapes_and_counts) {
    ct_module *net = ct_nn_sequential(
        ct_nn_conv2d(1, 8, 3, .stride = 2, .pad = 1, .no_bias = true), ct_nn_batch_norm(8), ct_nn_leaky_relu(0.1),
        ct_nn_residual(ct_nn_sequential(ct_nn_depthwise_conv2d(8, 3, .pad = 1)), NULL, CT_ACT_RELU),
        ct_nn_max_pool2d(2), ct_nn_flatten(), ct_nn_linear(8, 1000));
    CHECK(ct_module_freeze(ct_module_child(net, 0), true));
    char text[4096];
    const size_t length = ct_module_to_string(net, text, sizeof text);
    CHECK(length == strlen(text));
    CHECK_TEXT(
        text,
        "sequential\n"
        "  0: conv2d(1, 8, kernel=3, stride=2, pad=1, no_bias)       weight f32[8,1,3,3] frozen                      "
        "                             72\n"
        "  1: batch_norm(8)                                          weight f32[8], bias f32[8], running_mean f32[8],"
        " running_var f32[8]          16\n"
        "  2: leaky_relu(0.1)\n"
        "  3: residual(relu)\n"
        "    body: sequential\n"
        "      0: depthwise_conv2d(8, 8, kernel=3, pad=1, groups=8)  weight f32[8,1,3,3], bias f32[8]                "
        "                             80\n"
        "  4: max_pool2d(2)\n"
        "  5: flatten\n"
        "  6: linear(8, 1000)                                        weight f32[1000,8], bias f32[1000]              "
        "                          9,000\n"
        "9,168 parameters, 72 of them frozen, 16 numbers in buffers, 35.9 KB\n");
    char few[10];
    CHECK(ct_module_to_string(net, few, sizeof few) == length);
    CHECK_TEXT(few, "sequentia");
    CHECK(ct_module_to_string(NULL, few, sizeof few) == 0 && !few[0]);
    CHECK_ERROR(CT_ERR_NULL, "module_to_string: argument module is NULL");
    ct_module_free(net);
}

/* ---- Modules from outside ---- */

typedef struct affine {
    double shift;
    int *alive;
} affine;

static bool affine_forward(ct_module *self, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    const affine *a = ct_module_data(self);
    if (n != 1 || m > 2) return ct_fail(CT_ERR_VALUE, "affine", "one in, at most two out");
    out[0] = ct_add_s(ct_mul(ct_module_param(self, 0), ct_forward(ct_module_child(self, 0), in[0])), a->shift);
    if (m > 1) out[1] = ct_neg(out[0]);
    return out[0] != NULL;
}
static bool affine_copy(const ct_module *from, ct_module *to) {
    (void)to;
    ++*((const affine *)ct_module_data(from))->alive;
    return true;
}
static void affine_release(ct_module *self) { --*((const affine *)ct_module_data(self))->alive; }
static void affine_describe(const ct_module *self, char *text, size_t capacity) {
    snprintf(text, capacity, "shift=%g", ((const affine *)ct_module_data(self))->shift);
}
static const ct_module_class affine_class = {.size = sizeof(ct_module_class),
                                             .name = "affine",
                                             .state = sizeof(affine),
                                             .forward_n = affine_forward,
                                             .describe = affine_describe,
                                             .copy = affine_copy,
                                             .release = affine_release};

TEST(a_module_of_the_users_own_takes_part_in_everything) {
    int alive = 1;
    ct_module *mine = ct_module_new(&affine_class);
    *(affine *)ct_module_data(mine) = (affine){3, &alive};
    CHECK(ct_module_add_param(mine, "scale", F32(CT_DIMS(2), 2, 5)) && ct_module_add(mine, "inner", ct_nn_relu()));
    ct_module *net = ct_nn_sequential(mine, ct_nn_identity());
    CHECK_VALUES(ct_forward(net, F32(CT_DIMS(2), 1, -1)), CT_DIMS(2), 0, 5, 3);
    ct_tensor *x = F32(CT_DIMS(2), 1, 1), *out[2];
    CHECK(ct_forward_n(mine, &x, 1, out, 2));
    CHECK_VALUES(out[1], CT_DIMS(2), 0, -5, -8);
    CHECK(!ct_forward_n(mine, &x, 1, (ct_tensor *[3]){0}, 3));
    CHECK_ERROR(CT_ERR_VALUE, "affine: one in, at most two out; in affine");
    CHECK(ct_backward(ct_sum(ct_forward(net, x))) && ct_grad_of(ct_module_find(net, "0.scale")));
    ct_module *copy = ct_module_copy(net);
    CHECK(alive == 2);
    char text[512];
    ct_module_to_string(copy, text, sizeof text);
    CHECK_TEXT(text, "sequential\n"
                     "  0: affine(shift=3)  scale f32[2]           2\n"
                     "    inner: relu\n"
                     "  1: identity\n"
                     "2 parameters, 0.0 KB\n");
    ct_module_free(copy);
    ct_module_free(net);
    CHECK(alive == 0);
}

static void count_release(void *context) { ++*(int *)context; }
static ct_tensor *nothing(void *context, ct_tensor *x) {
    (void)context, (void)x;
    return NULL;
}

TEST(classes_and_functions_that_are_wrong_say_so) {
    CHECK(!ct_module_new(NULL));
    CHECK_ERROR(CT_ERR_NULL, "module_new: argument type is NULL");
    CHECK(!ct_module_new(&(ct_module_class){.size = sizeof(ct_module_class), .name = "empty"}));
    CHECK_ERROR(CT_ERR_VALUE, "module_new: the class empty needs either forward or forward_n");
    int released = 0;
    CHECK(!ct_nn_lambda("none", NULL, &released, count_release) && released == 1);
    CHECK_ERROR(CT_ERR_NULL, "nn_lambda: argument fn is NULL");
    ct_module *net = ct_nn_sequential(ct_nn_lambda("nothing", nothing, &released, count_release));
    CHECK(!ct_forward(net, ct_scalar(1, CT_F32)));
    CHECK_ERROR(CT_ERR_STATE, "forward: nothing gave no result; in 0 (nothing)");
    ct_module *copy = ct_module_copy(net);
    ct_module_free(net);
    CHECK(released == 1); /* the copy shares the function */
    ct_module_free(copy);
    CHECK(released == 2);
    static const ct_module_class owning = {.size = sizeof(ct_module_class),
                                           .name = "owning",
                                           .forward_n = affine_forward,
                                           .state = sizeof(affine),
                                           .release = affine_release};
    int alive = 1;
    ct_module *own = ct_module_new(&owning);
    *(affine *)ct_module_data(own) = (affine){0, &alive};
    CHECK(!ct_module_copy(own));
    CHECK_ERROR(CT_ERR_UNSUPPORTED, "module_copy: a owning cannot be copied: its class has release but no copy");
    ct_module_free(own);
    CHECK(alive == 0);
}
