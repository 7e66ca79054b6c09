/* The ready models: numbers of parameters against PyTorch's and torchvision's, the table by name, layouts, language models,
 * and what is refused. Their results are compared in test_nn_refs.c. */
#include <cotangent/nn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"

static void count(ct_module *model, int64_t expected) {
    harness_check(model && ct_module_size(model) == expected, __FILE__, __LINE__, "%s has %lld parameters, not %lld",
                  model ? ct_module_type(model)->name : ct_error(), (long long)(model ? ct_module_size(model) : 0),
                  (long long)expected);
    ct_module_free(model);
}

TEST(models_have_as_many_parameters_as_torchvisions) {
    count(ct_nn_resnet(18, .imagenet = true), 11689512);
    count(ct_nn_resnet(34, .imagenet = true), 21797672);
    count(ct_nn_resnet(50, .imagenet = true), 25557032);
    count(ct_nn_mobilenet_v2(.imagenet = true), 3504872);
    count(ct_nn_mobilenet_v2(.imagenet = true, .width = 0.5), 1968680);
    count(ct_nn_vit(.image = 224, .patch = 16, .dim = 768, .layers = 12, .heads = 12, .classes = 1000), 86567656);
}

TEST(vgg_has_as_many_parameters_as_torchvisions) {
    if (harness_sanitized()) SKIP("half a gigabyte, slowly");
    count(ct_nn_vgg(11, .imagenet = true, .batch_norm = true), 132868840);
    count(ct_nn_vgg(16, .imagenet = true), 138357544);
}

TEST(models_of_the_benchmarks_have_the_right_size) {
    count(ct_nn_mlp(CT_DIMS(784, 512, 512, 10), CT_ACT_RELU), 669706);
    count(ct_nn_lenet(28), 857738);
    count(ct_nn_resnet(18), 11173962);
    count(ct_nn_gpt(512), 11139072);
    count(ct_nn_gpt(512, .tied = true), 11139072 - 512 * 384);
}

/* ---- By name ---- */

TEST(every_model_of_the_table_can_be_built_and_trained_a_step) {
    int seen = 0;
    for (int i = 0; ct_model_at(i); i++, seen++) {
        const ct_model_info *info = ct_model_at(i);
        CHECK(ct_model_find(info->name) == info && info->doc[0] && info->count > 0);
        if (strncmp(info->name, "vgg", 3) == 0 && strcmp(info->name, "vgg11") != 0)
            continue; /* the same code, slowly */
        double values[16];
        for (int k = 0; k < info->count; k++) {
            values[k] = info->settings[k].value;
            CHECK(ct_model_setting_index(info, info->settings[k].name) == k && info->settings[k].doc[0]);
        }
#define SMALLER(setting, number) \
    if (ct_model_setting_index(info, setting) >= 0) values[ct_model_setting_index(info, setting)] = number;
        SMALLER("dim", 24)
        SMALLER("hidden", 24)
        SMALLER("base", 4)
        SMALLER("layers", 2)
        ct_scope {
            ct_module *model = ct_model_build(info, values);
            ct_tensor *x = NULL;
            if (strcmp(info->input, "tokens") == 0) x = ct_randint(CT_DIMS(2, 7), 0, 256);
            else if (strcmp(info->input, "vector") == 0) x = ct_randn(CT_DIMS(2, 784));
            else
                x = strcmp(info->name, "lenet") == 0 ? ct_randn(CT_DIMS(2, 1, 28, 28))
                                                     : ct_randn(CT_DIMS(2, 3, 32, 32));
            ct_tensor *y = ct_forward(model, x);
            harness_check(y && ct_backward(ct_mean(ct_square(y))), __FILE__, __LINE__, "%s: %s", info->name,
                          ct_error());
            ct_parameters *list = ct_module_parameters(model);
            for (int k = 0; k < ct_parameters_count(list); k++) {
                const ct_parameter *p = ct_parameters_at(list, k);
                harness_check(p->buffer || ct_grad_of(ct_parameter_tensor(p)), __FILE__, __LINE__,
                              "%s: no gradient for %s", info->name, p->name);
            }
            ct_parameters_free(list);
            ct_module_free(model);
        }
    }
    CHECK(seen >= 14 && !ct_model_at(-1) && !ct_model_find("resnet19") && !ct_model_find(NULL) && ct_ok());
    CHECK(ct_model_setting_index(ct_model_find("gpt"), "color") == -1);
}

TEST(the_table_and_the_typed_constructors_build_the_same) {
    const ct_model_info *info = ct_model_find("resnet18");
    CHECK(ct_seed(9));
    ct_module *a = ct_model_build(info, NULL);
    CHECK(ct_seed(9));
    ct_module *b = ct_nn_resnet(18);
    char one[16384], two[16384];
    ct_module_to_string(a, one, sizeof one);
    ct_module_to_string(b, two, sizeof two);
    CHECK_TEXT(one, two);
    CHECK(harness_same_bits(ct_module_find(a, "layer3.1.conv2.weight"), ct_module_find(b, "layer3.1.conv2.weight")));
    ct_module_free(a);
    ct_module_free(b);
}

TEST(models_refuse_what_they_cannot_be) {
    CHECK(!ct_nn_resnet(20));
    CHECK_ERROR(CT_ERR_VALUE, "nn_resnet: depth is 20, expected 18, 34, 50, 101 or 152");
    CHECK(!ct_nn_vgg(12));
    CHECK_ERROR(CT_ERR_VALUE, "nn_vgg: depth is 12, expected 11, 13, 16 or 19");
    CHECK(!ct_nn_unet(9, 64));
    CHECK_ERROR(CT_ERR_VALUE, "nn_unet: levels is 9, expected 1 to 8");
    ct_module *unet = ct_nn_unet(3, 2, .channels = 1);
    CHECK(!ct_forward(unet, ct_zeros(CT_DIMS(1, 1, 24, 30))));
    CHECK(strstr(ct_error(),
                 "nn_unet: an image of 24 x 30 cannot be halved 3 times; its sides have to be multiples of 8"));
    ct_error_clear();
    ct_module_free(unet);
    CHECK(!ct_nn_vit(.image = 30, .patch = 4));
    CHECK_ERROR(CT_ERR_VALUE, "nn_vit: an image of 30 cannot be cut into patches of 4");
    CHECK(!ct_nn_lstm_lm(10, .tied = true));
    CHECK_ERROR(CT_ERR_VALUE, "nn_lstm_lm: tied needs dim = hidden, they are 256 and 512");
    CHECK(!ct_nn_mlp(CT_DIMS(3), CT_ACT_RELU));
    CHECK_ERROR(CT_ERR_VALUE, "nn_mlp: sizes has 1 numbers, expected 2 to 16");
    CHECK(!ct_nn_resnet(18, .classes = -1));
    CHECK_ERROR(CT_ERR_VALUE, "nn_linear: out is -1, expected at least 1");
    CHECK(!ct_model_build(NULL, NULL));
    CHECK_ERROR(CT_ERR_NULL, "model_build: argument info is NULL");
    double values[16] = {NAN};
    CHECK(!ct_model_build(ct_model_find("mlp"), values));
    CHECK_ERROR(CT_ERR_VALUE, "model_build: mlp: inputs is nan; it has to be a whole number");
    static const struct {
        double width;
        const char *text;
    } wrong[] = {{0.5, "model_build: mlp: width is 0.5; it has to be a whole number"},
                 {9223372036854775807.0,
                  "model_build: mlp: width is 9.223372037e+18; it has to be a whole number of at most 2^53"},
                 {1e10, "model_build: mlp: width is 1e+10; it has to be at most 1e9"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const ct_model_info *mlp = ct_model_find("mlp");
        double of_mlp[16];
        for (int k = 0; k < mlp->count; k++) of_mlp[k] = mlp->settings[k].value;
        of_mlp[ct_model_setting_index(mlp, "width")] = wrong[i].width;
        CHECK(!ct_model_build(mlp, of_mlp));
        CHECK_ERROR(CT_ERR_VALUE, wrong[i].text);
    }
    ct_module *gpt = ct_nn_gpt(16, .context = 4, .dim = 12, .heads = 3, .layers = 1);
    CHECK(!ct_forward(gpt, ct_zeros(CT_DIMS(1, 5), .dtype = CT_I64)));
    CHECK_ERROR(CT_ERR_SHAPE, "gpt: tokens is i64[1,5], expected [N, T] with T at most 4; in gpt");
    ct_module_free(gpt);
    ct_module *net = ct_nn_resnet(18);
    CHECK(!ct_forward(net, ct_zeros(CT_DIMS(1, 4, 8, 8))));
    CHECK_ERROR(CT_ERR_SHAPE, "conv2d: channels differ: x is f32[1,4,8,8] with 4 channels, w is f32[64,3,3,3], which "
                              "with groups 1 takes 3; in conv1 (conv2d)");
    ct_module_free(net);
}

/* ---- Layouts ---- */

/* The weights of the second become those of the first, turned. */
static void channels_last_is_the_same(ct_module *first, ct_module *last, ct_dims shape) {
    REQUIRE(first && last);
    CHECK(ct_module_to_dtype(first, CT_F64) && ct_module_to_dtype(last, CT_F64));
    ct_parameters *list = ct_module_parameters(first);
    ct_no_grad {
        for (int i = 0; i < ct_parameters_count(list); i++) {
            const ct_parameter *p = ct_parameters_at(list, i);
            ct_tensor *from = ct_parameter_tensor(p), *to = ct_module_find(last, p->name);
            CHECK(ct_assign(to, ct_ndim(from) == 4 ? ct_permute(from, CT_DIMS(2, 3, 1, 0)) : from));
        }
    }
    ct_parameters_free(list);
    CHECK(ct_eval(first) && ct_eval(last));
    ct_tensor *x = ct_randn(shape, .dtype = CT_F64), *y = ct_forward(first, x), *z = ct_forward(last, x);
    const double difference = ct_item(ct_amax(ct_abs(ct_sub(y, z)))), scale = ct_item(ct_amax(ct_abs(y)));
    harness_check(difference <= 1e-12 * (1 + scale), __FILE__, __LINE__, "%s: %g apart", ct_module_type(first)->name,
                  difference);
    ct_module_free(first);
    ct_module_free(last);
}

TEST(models_with_channels_last_give_the_same) {
    channels_last_is_the_same(ct_nn_lenet(16), ct_nn_lenet(16, .channels_last = true), CT_DIMS(2, 1, 16, 16));
    channels_last_is_the_same(ct_nn_resnet(18), ct_nn_resnet(18, .channels_last = true), CT_DIMS(2, 3, 16, 16));
    channels_last_is_the_same(ct_nn_mobilenet_v2(.width = 0.25),
                              ct_nn_mobilenet_v2(.width = 0.25, .channels_last = true), CT_DIMS(2, 3, 16, 16));
    channels_last_is_the_same(ct_nn_unet(2, 4), ct_nn_unet(2, 4, .channels_last = true), CT_DIMS(2, 3, 8, 12));
    channels_last_is_the_same(ct_nn_vgg(11, .batch_norm = true),
                              ct_nn_vgg(11, .batch_norm = true, .channels_last = true), CT_DIMS(1, 3, 32, 32));
}

/* ---- Language models ---- */

TEST(gpt_does_not_see_later_tokens) {
    ct_module *gpt = ct_nn_gpt(20, .context = 8, .dim = 12, .heads = 3, .layers = 2);
    ct_tensor *a = I64(CT_DIMS(1, 6), 1, 2, 3, 4, 5, 6), *b = I64(CT_DIMS(1, 6), 1, 2, 3, 4, 9, 9);
    ct_tensor *p = ct_forward(gpt, a), *q = ct_forward(gpt, b);
    ct_tensor *same = ct_amax(ct_abs(ct_narrow(ct_sub(p, q), 1, 0, 4))), *later = ct_amax(ct_abs(ct_sub(p, q)));
    CHECK(ct_item(same) < 1e-6 && ct_item(later) > 1e-3);
    /* fewer tokens than the context: the same first rows */
    ct_tensor *fewer = ct_forward(gpt, ct_narrow(a, 1, 0, 3));
    CHECK(ct_item(ct_amax(ct_abs(ct_sub(fewer, ct_narrow(p, 1, 0, 3))))) < 1e-6);
    ct_module_free(gpt);
}

TEST(the_lstm_model_goes_on_from_its_states) {
    ct_module *net = ct_nn_lstm_lm(20, .dim = 6, .hidden = 8);
    ct_tensor *all = I64(CT_DIMS(1, 6), 1, 2, 3, 4, 5, 6), *whole = ct_forward(net, all), *out[3], *rest[1];
    ct_tensor *begin = ct_narrow(all, 1, 0, 4);
    CHECK(ct_forward_n(net, &begin, 1, out, 3));
    CHECK(ct_forward_n(net, (ct_tensor *[]){ct_narrow(all, 1, 4, 2), out[1], out[2]}, 3, rest, 1));
    CHECK(ct_item(ct_amax(ct_abs(ct_sub(rest[0], ct_narrow(whole, 1, 4, 2))))) < 1e-6);
    ct_module_free(net);
}

TEST(a_model_learns) {
    /* Sixteen images by heart: plain gradient descent on a small network. */
    CHECK(ct_seed(4));
    ct_tensor *x = ct_randn(CT_DIMS(16, 1, 8, 8)), *labels = ct_randint(CT_DIMS(16), 0, 2);
    ct_module *net = ct_nn_lenet(8, .classes = 2);
    ct_parameters *list = ct_module_parameters(net);
    double first = 0, last = 0;
    for (int step = 0; step < 40; step++) {
        ct_scope {
            ct_tensor *loss = ct_cross_entropy_loss(ct_forward(net, x), labels);
            CHECK(ct_backward(loss));
            last = ct_item(loss);
            if (step == 0) first = last;
            ct_no_grad {
                for (int i = 0; i < ct_parameters_count(list); i++) {
                    ct_tensor *p = ct_parameter_tensor(ct_parameters_at(list, i));
                    CHECK(ct_sub_(p, ct_mul_s(ct_grad_of(p), 0.2)));
                }
            }
            CHECK(ct_module_zero_grad(net));
        }
    }
    CHECK(last < 0.1 * first);
    ct_parameters_free(list);
    ct_module_free(net);
}
