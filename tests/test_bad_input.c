/* Arguments that no caller should give: each is an error that says what is wrong, of the function that was called. The kinds
 * that the fuzzers found (tests/fuzz_ops.c, tests/fuzz_api.c), one test for each. */
#include <cotangent/data.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <math.h>
#include <string.h>

#include "tests/harness.h"

static const int64_t HUGE_SIZE = (int64_t)1 << 62;

/* The call failed with that code and a text that begins so. */
static bool refused(const void *result, ct_code code, const char *begins) {
    const bool held = !result && ct_error_code() == code && strncmp(ct_error(), begins, strlen(begins)) == 0;
    harness_check(held, __FILE__, __LINE__, "expected \"%s...\", got %s with error %d \"%s\"", begins,
                  result ? "a result" : "nothing", (int)ct_error_code(), ct_error());
    ct_error_clear();
    return held;
}

/* ---- Inner calls that fail ---- */

TEST(a_mask_that_does_not_fit_is_an_error_of_the_attention_called) {
    ct_tensor *x = harness_randn(CT_DIMS(2, 5, 6)), *w = harness_randn(CT_DIMS(6, 6));
    refused(ct_multi_head_attention(x, x, x, w, w, w, w, 2, .mask = ct_ones(CT_DIMS(7, 7), .dtype = CT_BOOL)),
            CT_ERR_SHAPE, "multi_head_attention: mask is bool[7,7] and does not broadcast to the scores, f32[2,2,5,5]");
    refused(ct_multi_head_attention(x, x, x, w, w, w, w, 2, .mask = ct_ones(CT_DIMS(3, 1, 5, 5), .dtype = CT_BOOL)),
            CT_ERR_SHAPE, "multi_head_attention: mask is bool[3,1,5,5]");
    ct_tensor *other = harness_randn(CT_DIMS(3, 5, 6));
    refused(ct_multi_head_attention(x, other, other, w, w, w, w, 2), CT_ERR_SHAPE,
            "multi_head_attention: key and value need query's batch");
    ct_tensor *deep = harness_randn(CT_DIMS(1, 1, 1, 1, 1, 1, 5, 6)); /* no room for an axis of heads */
    refused(ct_multi_head_attention(deep, deep, deep, w, w, w, w, 2), CT_ERR_SHAPE,
            "multi_head_attention: key and value need query's batch");
    CHECK(ct_multi_head_attention(x, x, x, w, w, w, w, 2, .mask = ct_ones(CT_DIMS(5, 5), .dtype = CT_BOOL)) != NULL);
}

TEST(a_gradient_that_needs_a_result_which_was_left_out_says_so) {
    const ct_op *op = ct_op_find("channel_norm");
    char attrs[256];
    REQUIRE(op && op->attr_size <= sizeof attrs);
    ct_attrs_default(op, attrs);
    CHECK(ct_attrs_set(op, attrs, "groups", "2") && ct_attrs_set(op, attrs, "eps", "1e-5"));
    ct_tensor *in[] = {ct_set_requires_grad(harness_randn(CT_DIMS(2, 4, 3)), true), NULL, NULL}, *y = NULL;
    REQUIRE(ct_apply(op, in, 3, attrs, &y, 1));
    CHECK(!ct_backward(ct_sum(y)));
    refused(NULL, CT_ERR_STATE, "channel_norm: its gradient needs its result mean, which was not asked for");
}

TEST(a_wrong_tensor_of_a_list_is_named_by_its_place) {
    ct_tensor *rates = ct_zeros(CT_DIMS(2)), *y = NULL;
    ct_tensor *xs[] = {rates, ct_zeros(CT_DIMS(3)), ct_zeros(CT_DIMS(3)), ct_zeros(CT_DIMS(2)), ct_zeros(CT_DIMS(5))};
    CHECK(!ct_apply(ct_op_find("optim_average"), xs, 5, NULL, &y, 1));
    refused(y, CT_ERR_SHAPE, "optim_average: xs[3] is f32[5]; it has to be [2]");
}

TEST(an_internal_op_cannot_be_without_its_only_result_nor_without_the_one_that_dst_is_for) {
    ct_tensor *x = harness_randn(CT_DIMS(3)), *in[] = {x, x}, *y[3] = {NULL, NULL, NULL};
    const bool none[3] = {false, true, true};
    CHECK(!ct_apply_with(ct_op_find("log1p_grad_x"), in, 2, NULL, y, 1, none, NULL));
    refused(y[0], CT_ERR_VALUE, "log1p_grad_x: result 0, ");
    ct_tensor *item[] = {ct_zeros(CT_DIMS(2)), ct_zeros(CT_DIMS(3)), ct_ones(CT_DIMS(3))};
    CHECK(ct_apply_with(ct_op_find("optim_average"), item, 3, NULL, y, 1, none, NULL) &&
          !y[0]); /* it changes item[1] */
    CHECK(ct_into(ct_zeros(CT_DIMS0)));
    CHECK(!ct_apply_with(ct_op_find("optim_average"), item, 3, NULL, y, 1, none, NULL));
    refused(y[0], CT_ERR_VALUE, "optim_average: dst is for the first result, which is left out");
}

/* ---- Axes and indices ---- */

TEST(products_with_zeros_check_axis_and_indices_as_others_do) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(4), 0, 1, 2, 3), true), *src = F32(CT_DIMS(2), 5, 6);
    refused(ct_scatter_reduce(x, 10000000, I64(CT_DIMS(2), 0, 1), src, CT_FOLD_PROD), CT_ERR_SHAPE,
            "scatter_reduce: axis 10000000 is out of range for f32[4]");
    refused(ct_scatter_reduce(x, 0, I64(CT_DIMS(2), 99, 99), src, CT_FOLD_PROD), CT_ERR_INDEX, "scatter_reduce: ");
    ct_tensor *y = ct_scatter_reduce(x, 0, I64(CT_DIMS(2), 0, 1), src, CT_FOLD_PROD);
    CHECK_VALUES(y, CT_DIMS(4), 0, 0, 6, 2, 3);
}

/* ---- Divisions by zero ---- */

TEST(a_step_of_zero_is_an_error) {
    ct_tensor *in[] = {harness_randn(CT_DIMS(4)), harness_randn(CT_DIMS(4))}, *y = NULL;
    static const char *const names[] = {"slice", "slice_assign"};
    for (int i = 0; i < 2; i++) {
        const ct_op *op = ct_op_find(names[i]);
        char attrs[256];
        REQUIRE(op && op->attr_size <= sizeof attrs);
        ct_attrs_default(op, attrs);
        CHECK(ct_attrs_set(op, attrs, "axis", "0") && ct_attrs_set(op, attrs, "step", "0"));
        CHECK(!ct_apply(op, in, i + 1, attrs, &y, 1));
        refused(y, CT_ERR_VALUE, i ? "slice_assign: step is 0" : "slice: step is 0");
    }
}

TEST(a_step_past_the_end_takes_one_element) {
    ct_tensor *x = F32(CT_DIMS(4), 1, 2, 3, 4);
    CHECK_VALUES(ct_slice(x, 0, 1, .step = INT64_MAX), CT_DIMS(1), 0, 2);
    CHECK_VALUES(ct_slice_assign(x, F32(CT_DIMS(1), 9), 0, 1, .step = INT64_MAX - 1), CT_DIMS(4), 0, 1, 9, 3, 4);
    CHECK_VALUES(ct_unfold(x, 0, 3, HUGE_SIZE), CT_DIMS(1, 3), 0, 1, 2, 3);
}

TEST(norms_and_searches_of_nothing_give_nothing) {
    ct_tensor *y = ct_group_norm(ct_zeros(CT_DIMS(2, 3, 0)), 2, .channels_last = true);
    REQUIRE(y);
    CHECK(ct_numel(y) == 0 && ct_dim(y, 2) == 0);
    CHECK_VALUES(ct_searchsorted(ct_zeros(CT_DIMS(2, 0)), ct_zeros(CT_DIMS(2, 3))), CT_DIMS(2, 3), 0, 0, 0, 0, 0, 0, 0);
    y = ct_bincount(ct_zeros(CT_DIMS(0), .dtype = CT_I64));
    REQUIRE(y);
    CHECK(ct_numel(y) == 0);
    CHECK(ct_cumprod(ct_zeros(CT_DIMS(1, (int64_t)1 << 40, 0)), 2) != NULL); /* as many lines as never end */
}

/* ---- Sizes that cannot be counted ---- */

TEST(sizes_that_cannot_be_counted_are_errors_of_the_op_called) {
    ct_tensor *x = harness_randn(CT_DIMS(3)), *m = harness_randn(CT_DIMS(2, 3));
    refused(ct_diag(x, .diagonal = INT64_MAX), CT_ERR_VALUE, "diag: diagonal 9223372036854775807");
    refused(ct_diag(x, .diagonal = INT64_MIN), CT_ERR_VALUE, "diag: diagonal -9223372036854775808");
    refused(ct_tile(x, CT_DIMS(HUGE_SIZE)), CT_ERR_SHAPE, "tile: ");
    refused(ct_repeat(m, CT_DIMS(HUGE_SIZE, HUGE_SIZE)), CT_ERR_SHAPE, "repeat: ");
    refused(ct_repeat_interleave(x, HUGE_SIZE, 0), CT_ERR_SHAPE, "repeat_interleave: ");
    CHECK(ct_numel(ct_diagonal(m, .offset = INT64_MIN)) == 0);
    ct_tensor *pooled = harness_randn(CT_DIMS(1, 1, 2, 2, 2)),
              *places = ct_zeros(CT_DIMS(1, 1, 2, 2, 2), .dtype = CT_I64);
    refused(ct_max_unpool3d(pooled, places, CT_DIMS(INT32_MAX)), CT_ERR_SHAPE, "max_unpool3d: ");
    refused(ct_expand(ct_zeros(CT_DIMS(1, 1)), CT_DIMS((int64_t)1 << 40, (int64_t)1 << 40)), CT_ERR_SHAPE, "expand: ");
    refused(ct_kron(ct_zeros(CT_DIMS((int64_t)1 << 40, 0)), ct_zeros(CT_DIMS((int64_t)1 << 40, 0))), CT_ERR_SHAPE,
            "kron: ");
}

TEST(the_order_of_a_polygamma_is_bounded_and_its_cost_too) {
    ct_tensor *x = F64(CT_DIMS(2), 1.5, 30);
    refused(ct_polygamma(x, INT32_MAX), CT_ERR_VALUE, "polygamma: n is 2147483647");
    refused(ct_polygamma(x, INT64_MIN), CT_ERR_VALUE, "polygamma: n is -9223372036854775808");
    CHECK(ct_polygamma(x, 1 << 29) != NULL); /* at once, not after as many terms */
    /* psi^(200)(30) = -200! zeta(201, 30), with log(zeta) = -201 log(30) + log(1 + (30/31)^201 + ...) */
    double zeta = 0;
    for (int i = 200; i >= 0; i--) zeta += exp(-201 * log((30 + i) / 30.0));
    const double expected = -exp(lgamma(201) - 201 * log(30) + log(zeta));
    CHECK_NEAR(harness_at(ct_polygamma(x, 200), 1), expected, 1e-11 * fabs(expected));
}

TEST(layers_of_a_recurrence_are_bounded) {
    ct_tensor *x = harness_randn(CT_DIMS(3, 2, 4)),
              *weights[] = {harness_randn(CT_DIMS(20, 4)), harness_randn(CT_DIMS(20, 5))};
    refused(ct_lstm(x, weights, 2, .layers = INT64_MAX, .bidirectional = true), CT_ERR_VALUE,
            "lstm: layers is 9223372036854775807; it has to be from 1 to 128");
    refused(ct_lstm(x, weights, 2, .layers = INT64_MIN + 1, .bidirectional = true), CT_ERR_VALUE, "lstm: layers is -");
}

/* ---- Options that no type allows ---- */

TEST(options_that_their_types_do_not_allow_are_refused_before_anything_reads_them) {
    ct_tensor *x = harness_randn(CT_DIMS(2, 3)), *y = NULL;
    refused(ct_pad(x, CT_DIMS(1, 1), .mode = (ct_pad_kind)17), CT_ERR_VALUE,
            "pad: mode: 17 is not a value of its enum");
    refused(ct_cast(x, (ct_dtype)-3), CT_ERR_DTYPE, "cast: to: -3 is not a dtype");
    refused(ct_sum(x, .axes = (ct_dims){.n = 1000}), CT_ERR_VALUE, "sum: axes: a list holds at most 16 numbers");
    refused(ct_sum(x, .axes = (ct_dims){.n = -1}), CT_ERR_VALUE, "sum: axes: a list holds at most 16 numbers");
    const ct_op *op = ct_op_find("sum"); /* through ct_apply, which copies nothing */
    ct_dims axes = {.n = 17};
    char attrs[512] = {0};
    REQUIRE(op && op->attr_size <= sizeof attrs && op->attrs[0].type == CT_ATTR_DIMS);
    memcpy(attrs + op->attrs[0].offset, &axes, sizeof axes);
    CHECK(!ct_apply(op, &x, 1, attrs, &y, 1));
    refused(y, CT_ERR_VALUE, "sum: axes: a list holds at most 16 numbers");
    op = ct_op_find("einsum");
    ct_text text;
    REQUIRE(op && op->attr_size == sizeof text);
    memset(&text, 'i', sizeof text);
    CHECK(!ct_apply(op, &x, 1, &text, &y, 1));
    refused(y, CT_ERR_VALUE, "einsum: subscripts does not end within its 128 bytes");
}

/* ---- Modules ---- */

TEST(sizes_of_modules_are_below_two_to_the_31) {
    refused(ct_nn_linear((int64_t)1 << 31, 1), CT_ERR_VALUE, "nn_linear: in is 2147483648, expected below 2^31");
    refused(ct_nn_vit(.image = (int64_t)1 << 40, .patch = 1), CT_ERR_VALUE, "nn_vit: image is 1099511627776");
    refused(ct_nn_vit(.image = (int64_t)1 << 30, .patch = 1), CT_ERR_SHAPE, "normal: ");
    refused(ct_nn_lenet(HUGE_SIZE), CT_ERR_VALUE, "nn_lenet: image is 4611686018427387904");
    refused(ct_nn_lenet(INT32_MAX), CT_ERR_VALUE, "nn_lenet: image is 2147483647, which leaves more features than");
    refused(ct_nn_mobilenet_v2(.width = 1e300), CT_ERR_VALUE, "nn_mobilenet_v2: width is 1e+300");
    refused(ct_nn_mobilenet_v2(.width = NAN), CT_ERR_VALUE, "nn_mobilenet_v2: width is nan");
    refused(ct_nn_depthwise_conv2d(HUGE_SIZE, 3, .multiplier = 4), CT_ERR_VALUE, "nn_depthwise_conv2d: channels is");
    refused(ct_nn_transformer_encoder_layer(HUGE_SIZE, 1), CT_ERR_VALUE, "nn_transformer_encoder_layer: dim is");
    refused(ct_nn_conv2d(1, 1, 3, .strides = {.n = 99}), CT_ERR_VALUE,
            "nn_conv2d: strides: a list holds 0 to 16 numbers");
    ct_module *m = ct_nn_unflatten(1, CT_DIMS(HUGE_SIZE, 4));
    refused(ct_forward(m, harness_randn(CT_DIMS(2, 8))), CT_ERR_SHAPE, "unflatten: ");
    ct_module_free(m);
}

TEST(more_layers_than_memory_can_hold_are_refused_before_they_are_made) {
    refused(ct_nn_transformer_encoder((int64_t)1 << 40, 8, 2), CT_ERR_VALUE, "nn_transformer_encoder: layers is");
    refused(ct_nn_transformer_encoder(INT32_MAX, 8, 2), CT_ERR_MEMORY,
            "nn_transformer_encoder: 2147483647 layers need");
    refused(ct_nn_transformer_decoder(INT32_MAX, 8, 2), CT_ERR_MEMORY,
            "nn_transformer_decoder: 2147483647 layers need");
    refused(ct_nn_vit(.layers = INT32_MAX, .dim = 8, .heads = 2), CT_ERR_MEMORY, "nn_vit: 2147483647 layers need");
    refused(ct_nn_gpt(10, .layers = INT32_MAX, .dim = 8, .heads = 2), CT_ERR_MEMORY, "nn_gpt: 2147483647 layers need");
}

/* ---- Things within things ---- */

enum { TOO_DEEP = 100000 };

TEST(datasets_within_datasets_have_a_limit) {
    ct_tensor *x = ct_zeros(CT_DIMS(3, 2));
    ct_dataset *d = ct_dataset_tensors(&x, 1);
    int depth = 0;
    for (ct_dataset *next; depth < TOO_DEEP && (next = ct_dataset_range(d, 0, 3)); depth++) {
        ct_dataset_free(d);
        d = next;
    }
    CHECK(depth == 256);
    refused(NULL, CT_ERR_VALUE, "dataset_range: more than 256 datasets within one another");
    refused(ct_dataset_concat(&d, 1), CT_ERR_VALUE, "dataset_concat: more than 256 datasets");
    refused(ct_dataset_map(d, ct_transform_float()), CT_ERR_VALUE, "dataset_map: more than 256 datasets");
    CHECK(ct_dataset_get(d, 2, &x, 1));
    ct_dataset_free(d);
}

TEST(modules_within_modules_have_a_limit_from_whichever_end_they_are_put_together) {
    ct_module *up = ct_nn_linear(2, 2);
    int depth = 0;
    for (ct_module *next; depth < TOO_DEEP && (next = ct_nn_sequential(ct_module_keep(up))); depth++) {
        ct_module_free(up);
        up = next;
    }
    CHECK(depth == 256);
    refused(NULL, CT_ERR_VALUE, "module_add: \"0\": more than 256 modules within one another");
    CHECK(ct_forward(up, ct_zeros(CT_DIMS(1, 2))) != NULL);
    ct_module *top = ct_nn_sequential_n(NULL, 0), *bottom = top;
    for (depth = 0; depth < TOO_DEEP; depth++) {
        ct_module *next = ct_nn_sequential_n(NULL, 0);
        if (!ct_nn_append(bottom, next)) break;
        bottom = next;
    }
    CHECK(depth == 256);
    refused(NULL, CT_ERR_VALUE, "module_add: ");
    CHECK(!ct_nn_append(ct_module_child(top, 0), ct_module_keep(up))); /* two halves */
    refused(NULL, CT_ERR_VALUE, "module_add: ");
    ct_module_free(up);
    ct_module_free(top);
}

/* Each level holds the one below twice: whoever walks every way to the bottom is not back this century. */
TEST(modules_that_share_what_is_below_are_put_together_in_linear_time) {
    ct_module *up = ct_nn_linear(2, 2), *bottom = up;
    int depth = 0;
    for (ct_module *next; depth < TOO_DEEP && (next = ct_nn_sequential(ct_module_keep(up), ct_module_keep(up)));
         depth++) {
        ct_module_free(up);
        up = next;
    }
    CHECK(depth == 256);
    refused(NULL, CT_ERR_VALUE, "module_add: \"0\": more than 256 modules within one another");
    CHECK(!ct_module_add(bottom, "up", ct_module_keep(up)));
    refused(NULL, CT_ERR_VALUE, "module_add: \"up\": a linear cannot be below itself");
    ct_module_free(up);
}

TEST(schedules_within_schedules_have_a_limit) {
    ct_module *net = ct_nn_linear(2, 2);
    ct_optim *optim = ct_sgd(net, .lr = 0.1);
    ct_schedule *s = ct_schedule_exponential(optim, 0.5);
    int depth = 0;
    while (depth < TOO_DEEP && (s = ct_schedule_chain(&s, 1))) depth++; /* it frees what it is given */
    CHECK(depth == 256);
    refused(s, CT_ERR_VALUE, "schedule_chain: more than 256 schedules within one another");
    s = ct_schedule_exponential(optim, 0.5);
    ct_schedule *parts[] = {s, ct_schedule_exponential(optim, 0.5), ct_schedule_exponential(optim, 0.5)};
    refused(ct_schedule_sequence(parts, 3, (int64_t[]){INT64_MAX, 1}), CT_ERR_VALUE,
            "schedule_sequence: milestone 1 is 1");
    ct_optim_free(optim);
    ct_module_free(net);
}

TEST(dtypes_of_an_internal_gradient_agree_and_bins_are_counted) {
    ct_tensor *in[] = {harness_randn(CT_DIMS(3, 17)), ct_cast(harness_randn(CT_DIMS(3, 17)), CT_F16)}, *y = NULL;
    CHECK(ct_apply(ct_op_find("log_softmax_half_grad"), in, 2, NULL, &y, 1) && ct_dtype_of(y) == CT_F32);
    refused(ct_histogram(in[0], INT64_MAX, 0, 1), CT_ERR_SHAPE, "histogram: ");
    ct_dtype parsed = CT_I8;
    CHECK(ct_dtype_parse("f64", &parsed) && parsed == CT_F64 && ct_dtype_parse("f64", NULL) &&
          !ct_dtype_parse("f65", NULL));
}

TEST(paddings_that_no_image_has_are_refused) {
    ct_tensor *x = harness_randn(CT_DIMS(1, 2, 4, 4));
    refused(ct_im2col(x, CT_DIMS(2), .pad = INT32_MAX), CT_ERR_SHAPE, "im2col: with its padding the image would be ");
}
