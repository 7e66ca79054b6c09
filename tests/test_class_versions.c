/* Code that was compiled against another version of the headers: structs that are shorter, or without a size, are read as far as
 * they go and no further. Each lies at the end of a page behind which nothing can be read. */
#include <cotangent/data.h>
#include <cotangent/io.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <cotangent/run.h>
#include <stdio.h>
#include <string.h>

#include "tests/files.h"
#include "tests/guarded_page.h"
#include "tests/harness.h"

/* size bytes of `whole`, beyond which a read or write is a fault; the first word says how many they are. */
static void *at_the_edge(const void *whole, size_t size) {
    void *at = at_the_end(whole, size);
    if (at && size >= sizeof size) memcpy(at, &size, sizeof size);
    return at;
}
#define OLDER(type, first_missing, ...) at_the_edge(&(type){__VA_ARGS__}, offsetof(type, first_missing))

/* ---- Classes ---- */

static ct_tensor *twice(ct_module *self, ct_tensor *x) {
    (void)self;
    return ct_mul_s(x, 2);
}

TEST(a_module_of_an_older_class_works) {
    const ct_module_class *older = OLDER(ct_module_class, describe, .name = "twice", .state = 8, .forward = twice);
    REQUIRE(older != NULL);
    ct_module *module = ct_module_new(older);
    REQUIRE(module != NULL);
    CHECK(ct_module_type(module) == older);
    ct_scope {
        *(double *)ct_module_data(module) = 3;
        CHECK(ct_module_add_param(module, "weight", ct_ones(CT_DIMS(2, 3, 4))));
        CHECK(ct_item(ct_sum(ct_forward(module, ct_ones(CT_DIMS(3))))) == 6);
    }
    /* everything that asks the class for what it does not have */
    ct_module *copy = ct_module_copy(module), *net = ct_nn_sequential(module, ct_nn_relu());
    CHECK(copy && *(double *)ct_module_data(copy) == 3 && ct_module_type(copy) == older);
    char text[256];
    CHECK(ct_module_to_string(net, text, sizeof text) > 0 && strstr(text, "twice"));
    ct_state *state = ct_state_new();
    CHECK(ct_module_put_state(net, state, "") && ct_module_take_state(net, state, ""));
    ct_scope {
        CHECK(ct_item(ct_sum(ct_forward(net, ct_ones(CT_DIMS(3))))) == 6);
    }
    ct_state_free(state);
    ct_module_free(net); /* the copy outlives the one that it was made from */
    ct_scope {
        CHECK(ct_item(ct_sum(ct_forward(copy, ct_ones(CT_DIMS(3))))) == 6);
    }
    ct_module_free(copy);
}

static bool number(ct_dataset *self, int64_t index, ct_tensor **fields) {
    (void)self;
    fields[0] = ct_scalar((double)index, CT_F32);
    return fields[0] != NULL;
}

TEST(a_dataset_of_an_older_class_works) {
    const ct_dataset_class *older = OLDER(ct_dataset_class, get_many, .name = "numbers", .fields = 1, .get = number);
    REQUIRE(older != NULL);
    ct_dataset *data = ct_dataset_new(older, 5), *part = ct_dataset_range(data, 1, 5);
    REQUIRE(data && part);
    CHECK(ct_dataset_type(data) == older);
    ct_loader *loader = ct_batches(part, 2);
    double sum = 0;
    for (ct_batch b; ct_next(loader, &b);)
        ct_scope {
            sum += ct_item(ct_sum(b.x));
        }
    CHECK(sum == 10 && ct_ok());
    CHECK(ct_dataset_label(data, 0) == -1);
    ct_error_clear();
    ct_loader_free(loader);
    ct_dataset_free(part);
    ct_dataset_free(data);
}

static bool negate(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)self, (void)n, (void)draw;
    fields[0] = ct_neg(fields[0]);
    return fields[0] != NULL;
}

TEST(a_transform_of_an_older_class_works) {
    const ct_transform_class *older = OLDER(ct_transform_class, batch, .name = "negate", .item = negate);
    REQUIRE(older != NULL);
    ct_transform *transform = ct_transform_chain(ct_transform_new(older), ct_transform_new(older));
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(2));
        CHECK(ct_transform_apply(transform, &x, 1, false, 0, 1, 0, 0) && ct_item(ct_sum(x)) == 2);
        CHECK(ct_transform_apply(transform, &x, 1, true, 0, 1, 0, 0) && ct_item(ct_sum(x)) == 2);
    }
    ct_transform_free(transform);
}

TEST(a_class_without_a_size_is_refused) {
    CHECK(!ct_module_new(&(ct_module_class){.name = "twice", .forward = twice}));
    CHECK_ERROR(CT_ERR_VALUE, "ct_module_class: size is 0; it has to be sizeof(ct_module_class)");
    CHECK(!ct_dataset_new(&(ct_dataset_class){.name = "numbers", .fields = 1, .get = number}, 3));
    CHECK_ERROR(CT_ERR_VALUE, "ct_dataset_class: size is 0; it has to be sizeof(ct_dataset_class)");
    CHECK(!ct_transform_new(&(ct_transform_class){.name = "negate", .item = negate}));
    CHECK_ERROR(CT_ERR_VALUE, "ct_transform_class: size is 0; it has to be sizeof(ct_transform_class)");
    const ct_module_class no_size = {.size = (size_t)(uintptr_t) "twice", .name = "twice", .forward = twice};
    CHECK(!ct_module_new(&no_size)); /* a name where the size should be: code that was never compiled anew */
    CHECK(ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
}

/* ---- Options ---- */

TEST(shorter_options_are_read_as_far_as_they_go) {
    ct_module *net = ct_nn_conv2d_p(2, 3, 3, OLDER(ct_nn_conv_options, dilation, .stride = 2));
    REQUIRE(net != NULL);
    ct_scope {
        CHECK(ct_dim(ct_forward(net, ct_ones(CT_DIMS(1, 2, 7, 7))), 2) == 3);
    }
    ct_optim *optim = ct_adamw_p(net, OLDER(ct_adamw_options, beta1, .lr = 0.25));
    CHECK(optim && ct_optim_lr(optim) == 0.25);
    ct_schedule *schedule = ct_schedule_plateau_p(optim, OLDER(ct_schedule_plateau_options, factor, .maximize = true));
    CHECK(schedule != NULL);
    ct_schedule_free(schedule);
    ct_optim_free(optim);
    ct_module_free(net);
    CHECK(ct_ok());
}

TEST(longer_structs_are_taken_unless_they_ask_for_what_is_not_there) {
    struct {
        ct_nn_linear_options known;
        int64_t later;
    } newer = {.known = {.size = sizeof newer, .no_bias = true}};
    ct_module *net = ct_nn_linear_p(2, 3, &newer.known);
    CHECK(net && ct_module_param_count(net) == 1);
    ct_module_free(net);
    newer.later = 1;
    CHECK(!ct_nn_linear_p(2, 3, &newer.known) && ct_error_code() == CT_ERR_UNSUPPORTED);
    CHECK(strstr(ct_error(), "ct_nn_linear_options: something is set that version"));
    ct_error_clear();
    struct {
        ct_module_class known;
        void *later;
    } longer = {.known = {.size = sizeof longer, .name = "twice", .forward = twice}};
    net = ct_module_new(&longer.known);
    CHECK(net != NULL);
    ct_module_free(net);
    longer.later = &longer;
    CHECK(!ct_module_new(&longer.known) && ct_error_code() == CT_ERR_UNSUPPORTED);
    ct_error_clear();
}

/* An options struct without a size: whatever it is, it is not read. */
#define REFUSED(type, call)                                                                                           \
    do {                                                                                                              \
        const type *none = at_the_edge(&(type){0}, sizeof(size_t));                                                   \
        memset((void *)(uintptr_t)none, 0, sizeof(size_t));                                                           \
        harness_check(!(call), __FILE__, __LINE__, "%s was taken", #call);                                            \
        harness_check(ct_error_code() == CT_ERR_VALUE && strstr(ct_error(), #type ": size is 0"), __FILE__, __LINE__, \
                      "%s: the error is '%s'", #call, ct_error());                                                    \
        ct_error_clear();                                                                                             \
    } while (0)

TEST(options_without_a_size_are_refused) {
    REFUSED(ct_nn_linear_options, ct_nn_linear_p(2, 3, none));
    REFUSED(ct_nn_conv_options, ct_nn_conv2d_p(2, 3, 3, none));
    REFUSED(ct_nn_conv_options, ct_nn_conv_transpose2d_p(2, 3, 3, none));
    REFUSED(ct_nn_conv_options, ct_nn_depthwise_conv2d_p(2, 3, none));
    REFUSED(ct_nn_conv_options, ct_nn_separable_conv2d_p(2, 3, 3, none));
    REFUSED(ct_nn_conv_options, ct_nn_deform_conv2d_p(2, 3, 3, none));
    REFUSED(ct_nn_pool_options, ct_nn_max_pool2d_p(2, none));
    REFUSED(ct_nn_pool_options, ct_nn_lp_pool1d_p(2, 2, none));
    REFUSED(ct_nn_norm_options, ct_nn_batch_norm_p(2, none));
    REFUSED(ct_nn_norm_options, ct_nn_group_norm_p(1, 2, none));
    REFUSED(ct_nn_norm_options, ct_nn_instance_norm_p(2, none));
    REFUSED(ct_nn_norm_options, ct_nn_layer_norm_p(2, none));
    REFUSED(ct_nn_norm_options, ct_nn_rms_norm_p(2, none));
    REFUSED(ct_nn_norm_options, ct_nn_local_response_norm_p(2, none));
    REFUSED(ct_nn_embedding_options, ct_nn_embedding_p(2, 3, none));
    REFUSED(ct_nn_recurrent_options, ct_nn_lstm_p(2, 3, none));
    REFUSED(ct_nn_recurrent_options, ct_nn_gru_cell_p(2, 3, none));
    REFUSED(ct_nn_attention_options, ct_nn_multi_head_attention_p(4, 2, none));
    REFUSED(ct_nn_transformer_options, ct_nn_transformer_encoder_layer_p(4, 2, none));
    REFUSED(ct_nn_transformer_options, ct_nn_transformer_decoder_p(1, 4, 2, none));
    REFUSED(ct_nn_upsample_options, ct_nn_upsample_p(2, none));
    REFUSED(ct_nn_model_options, ct_nn_mlp_p(CT_DIMS(2, 3), CT_ACT_RELU, none));
    REFUSED(ct_nn_model_options, ct_nn_lenet_p(28, none));
    REFUSED(ct_nn_model_options, ct_nn_resnet_p(18, none));
    REFUSED(ct_nn_model_options, ct_nn_vgg_p(11, none));
    REFUSED(ct_nn_model_options, ct_nn_mobilenet_v2_p(none));
    REFUSED(ct_nn_model_options, ct_nn_unet_p(1, 4, none));
    REFUSED(ct_nn_vit_options, ct_nn_vit_p(none));
    REFUSED(ct_nn_gpt_options, ct_nn_gpt_p(5, none));
    REFUSED(ct_nn_lstm_lm_options, ct_nn_lstm_lm_p(5, none));
    ct_module *net = ct_nn_linear(2, 3);
    ct_tensor *weight = ct_module_param(net, 0);
    REFUSED(ct_init_options, ct_init_xavier_uniform_p(weight, none));
    REFUSED(ct_init_options, ct_init_kaiming_normal_p(weight, none));
    REFUSED(ct_init_options, ct_init_orthogonal_p(weight, none));
    REFUSED(ct_sgd_options, ct_sgd_p(net, none));
    REFUSED(ct_lion_options, ct_lion_p(net, none));
    REFUSED(ct_lbfgs_options, ct_lbfgs_p(net, none));
    REFUSED(ct_lookahead_options, ct_lookahead_p(ct_sgd(net), none));
    REFUSED(ct_ema_options, ct_ema_new_p(net, none));
    REFUSED(ct_scaler_options, ct_scaler_new_p(0, none));
    ct_optim *optim = ct_sgd(net);
    REFUSED(ct_group_options, ct_optim_group_p(optim, "*", none));
    REFUSED(ct_clip_options, ct_clip_grad_norm_p(net, 1, none) >= 0);
    REFUSED(ct_clip_options, ct_optim_clip_grad_norm_p(optim, 1, none) >= 0);
    REFUSED(ct_schedule_gamma_options, ct_schedule_step_decay_p(optim, 3, none));
    REFUSED(ct_schedule_gamma_options, ct_schedule_multi_step_p(optim, CT_DIMS(3), none));
    REFUSED(ct_schedule_min_options, ct_schedule_cosine_p(optim, 3, none));
    REFUSED(ct_schedule_restarts_options, ct_schedule_cosine_restarts_p(optim, 3, none));
    REFUSED(ct_schedule_warmup_options, ct_schedule_warmup_p(optim, 3, none));
    REFUSED(ct_schedule_polynomial_options, ct_schedule_polynomial_p(optim, 3, none));
    REFUSED(ct_schedule_one_cycle_options, ct_schedule_one_cycle_p(optim, 1, 3, none));
    REFUSED(ct_schedule_cyclic_options, ct_schedule_cyclic_p(optim, 0.1, 1, none));
    REFUSED(ct_schedule_plateau_options, ct_schedule_plateau_p(optim, none));
    ct_optim_free(optim);
    ct_dataset *data = ct_dataset_shapes(4, 12, 1);
    REFUSED(ct_batches_options, ct_batches_p(data, 2, none));
    REFUSED(ct_folder_options, ct_dataset_folder_p("/nowhere", none));
    REQUIRE(put_file(own_file("a.csv"), "x,y\n1,2\n", 8));
    REFUSED(ct_csv_options, ct_dataset_csv_p(own_file("a.csv"), none));
    REFUSED(ct_text_options, ct_dataset_text_p("/nowhere", 3, none));
    REFUSED(ct_image_options, ct_image_load_p(own_file("a.csv"), 3, none));
    REFUSED(ct_image_options, ct_image_decode_p("", 0, 3, none));
    REFUSED(ct_load_options, ct_load_p("/nowhere", net, none));
    ct_state *state = ct_state_new();
    REFUSED(ct_load_options, ct_module_take_state_p(net, state, "", none));
    ct_state_free(state);
    ct_dataset_free(data);
    ct_module_free(net);
    remove_own_folder();
}

/* ---- What the caller has room for ---- */

TEST(a_shorter_batch_is_filled_as_far_as_it_goes) {
    ct_dataset *data = ct_dataset_shapes(4, 12, 1);
    ct_loader *loader = ct_batches(data, 3);
    const size_t size = offsetof(ct_batch, field);
    ct_batch *b = at_the_edge(&(ct_batch){0}, size);
    REQUIRE(b != NULL);
    CHECK(ct_next_p(loader, b, size) && b->n == 3 && ct_dim(b->x, 0) == 3 && ct_dim(b->y, 0) == 3);
    struct {
        ct_batch known;
        int64_t later;
    } newer = {.later = 7}; /* a later header's, longer than this library knows */
    CHECK(ct_next_p(loader, &newer.known, sizeof newer) && newer.known.n == 1 && newer.later == 7);
    CHECK(newer.known.field[0] == newer.known.x && newer.known.field[1] == newer.known.y && !newer.known.field[2]);
    ct_loader_free(loader);
    ct_dataset_free(data);
}

TEST(a_shorter_run_is_saved_and_loaded) {
    ct_module *net = ct_nn_linear(2, 3), *other = ct_nn_linear(2, 3);
    ct_run *run = OLDER(ct_run, extra, .net = net, .epoch = 2, .step = 9);
    REQUIRE(run != NULL);
    CHECK(ct_run_checkpoint(run, own_folder(), 0));
    ct_run *back = OLDER(ct_run, extra, .net = other);
    if (ct_run_resume(back, own_folder())) {
        CHECK(back->step == 9 && back->epoch == 2 && back->size == offsetof(ct_run, extra));
        CHECK(ct_run_note(back)[0] == 0 && ct_run_isa(back)[0] == 0); /* it has no place for them */
        ct_scope {
            CHECK(ct_item(ct_all(ct_eq(ct_module_param(net, 0), ct_module_param(other, 0)))) == 1);
        }
    } else { /* a build without the library that reads these files */
        CHECK(ct_error_code() == CT_ERR_UNSUPPORTED);
        ct_error_clear();
    }
    ct_module_free(net);
    ct_module_free(other);
    remove_own_folder();
}

TEST(lists_of_settings_are_read_by_the_library) {
    const ct_optim_info *info = ct_optim_find("adamw");
    REQUIRE(info != NULL);
    for (int i = 0; i < info->count; i++) CHECK(ct_setting_at(info->settings, i) == &info->settings[i]);
    CHECK(!ct_setting_at(NULL, 0) && !ct_setting_at(info->settings, -1));
}
