/* Devices other than the CPU, on the guarded one: its memory cannot be touched by the host, so whatever passes here keeps the
 * rules that a GPU needs. Where the module is comes from the build. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cotangent/backend.h>
#include <cotangent/data.h>
#include <cotangent/metrics.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include "tests/harness.h"

static ct_device guard(void) {
    ct_device device = {0};
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    CHECK(ct_device_parse("guard", &device));
    return device;
}

static const ct_device cpu = {CT_CPU, 0};

static bool on(const ct_tensor *x, ct_device device) {
    const ct_device at = ct_device_of(x);
    return at.type == device.type && at.index == device.index;
}

TEST(a_device_has_a_name_a_number_and_an_owner) {
    const ct_device d = guard();
    ct_device_info info = {.size = sizeof info};
    CHECK_TEXT(ct_backend_name(d.type), "guard");
    CHECK_TEXT(ct_device_text(d), "guard");
    CHECK(ct_device_count(d.type) == 1 && ct_device_describe(d, &info) && info.memory > 0);
    CHECK_TEXT(ct_backend_missing(d.type), "");
    ct_device other;
    CHECK(!ct_device_parse("guard:1", &other));
    CHECK_ERROR(CT_ERR_DEVICE, "device_parse: there is 1 guard device, not guard:1");
    CHECK(!ct_device_parse("nowhere", &other));
    CHECK_ERROR(CT_ERR_DEVICE, "device_parse: there is no device named nowhere, and no module for it");
    CHECK(!ct_device_parse("../guard", &other) && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    CHECK(ct_synchronize(d));
}

TEST(the_current_device_is_where_things_are_made) {
    const ct_device d = guard();
    CHECK(on(ct_zeros(CT_DIMS(2)), cpu));
    REQUIRE(ct_set_device(d));
    float two[2] = {1, 2};
    CHECK(on(ct_zeros(CT_DIMS(2)), d) && on(ct_rand(CT_DIMS(3)), d) && on(ct_from_data(two, CT_DIMS(2), CT_F32), d) &&
          on(ct_scalar(1, CT_F32), d) && on(ct_zeros(CT_DIMS(2), .device = cpu), cpu));
    REQUIRE(ct_set_device(cpu));
    ct_tensor *x = ct_ones(CT_DIMS(2, 3), .device = d);
    CHECK(on(ct_add_s(x, 1), d) && on(ct_softmax(x, 1), d) && on(ct_dropout(x, 0.5), d)); /* where the data is */
    CHECK(ct_item(ct_sum(ct_mul_s(x, 2))) == 12);
}

TEST(tensors_go_to_a_device_and_back_with_their_gradients) {
    const ct_device d = guard();
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2, 2), 1, 2, 3, 4), true), *y = ct_to(x, d);
    CHECK(on(y, d) && ct_to(y, d) && !ct_is_leaf(y));
    ct_tensor *turned = ct_to(ct_t(y), cpu);
    CHECK_VALUES(turned, CT_DIMS(2, 2), 0, 1, 3, 2, 4);
    REQUIRE(ct_backward(ct_sum(ct_mul(y, y))));
    CHECK(on(ct_grad_of(x), cpu));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2, 2), 0, 2, 4, 6, 8);
    ct_tensor *g = NULL, *loss = ct_sum(ct_mul(y, ct_mul(y, y)));
    x = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true);
    loss = ct_sum(ct_pow_s(ct_to(x, d), 3));
    REQUIRE(ct_grad(&loss, 1, NULL, &x, 1, &g, CT_CREATE_GRAPH) && ct_backward(ct_sum(g)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 1e-6, 6, 12);
}

TEST(devices_do_not_mix) {
    const ct_device d = guard();
    ct_tensor *here = ct_ones(CT_DIMS(2)), *there = ct_ones(CT_DIMS(2), .device = d);
    CHECK(!ct_add(here, there));
    CHECK_ERROR(CT_ERR_DEVICE, "add: b is on guard and the arguments before it on cpu; bring it over: ct_to");
    CHECK(!ct_assign(there, here) && ct_error_code() == CT_ERR_DEVICE);
    ct_error_clear();
    CHECK(!ct_add_(here, there) && ct_error_code() == CT_ERR_DEVICE);
    ct_error_clear();
    CHECK(!ct_data(there));
    CHECK_ERROR(CT_ERR_DEVICE, "data: x is not in host memory; read it with ct_read");
}

TEST_LIMIT(a_network_trains_on_a_device_as_on_the_cpu, 120) {
    const ct_device devices[2] = {cpu, guard()};
    ct_tensor *weights[2];
    for (int i = 0; i < 2; i++) {
        ct_seed(3);
        ct_module *net =
            ct_nn_sequential(ct_nn_conv2d(1, 4, 3, .pad = 1), ct_nn_batch_norm(4), ct_nn_relu(), ct_nn_max_pool2d(2),
                             ct_nn_flatten(), ct_nn_dropout(0.2), ct_nn_linear(4 * 4 * 4, 3));
        ct_tensor *x = ct_to(harness_randn(CT_DIMS(6, 1, 8, 8)), devices[i]);
        ct_tensor *y = ct_to(I64(CT_DIMS(6), 0, 1, 2, 0, 1, 2), devices[i]);
        REQUIRE(ct_module_to_device(net, devices[i]));
        ct_optim *opt = ct_adamw(net, .lr = 1e-2);
        for (int step = 0; step < 5; step++) {
            ct_scope {
                CHECK(ct_backward(ct_cross_entropy_loss(ct_forward(net, x), y)) &&
                      ct_optim_clip_grad_norm(opt, 1.0) >= 0 && ct_optim_step(opt));
            }
        }
        weights[i] = ct_to(ct_module_find(net, "0.weight"), cpu);
        CHECK(weights[i] && on(ct_module_find(net, "0.weight"), devices[i]));
        ct_optim_free(opt);
        ct_module_free(net);
    }
    CHECK(harness_same_bits(weights[0], weights[1]));
}

/* It is brought to that device by the loader. */
TEST(data_is_made_on_the_cpu_whatever_the_current_device_is) {
    const ct_device d = guard();
    REQUIRE(ct_set_device(d));
    ct_dataset *data = ct_dataset_shapes(40, 16, 1);
    REQUIRE(data);
    for (int threads = 0; threads < 2; threads++) {
        for (int brought = 0; brought < 2; brought++) {
            ct_loader *batches = ct_batches(
                data, 8, .threads = CT_SET(threads), .device = brought ? (ct_device){0} : cpu,
                .transform = ct_transform_chain(ct_transform_random_crop(16, 16, 2),
                                                ct_transform_normalize((double[]){0.5}, (double[]){0.2}, 1)));
            int n = 0;
            for (ct_batch b; ct_next(batches, &b); n++) CHECK(on(b.x, brought ? d : cpu) && on(b.y, brought ? d : cpu));
            CHECK(n == 5 && ct_ok());
            ct_loader_free(batches);
        }
    }
    ct_tensor *item[2];
    CHECK(ct_dataset_get(data, 3, item, 2) && on(item[0], cpu) && ct_dataset_label(data, 3) == ct_item_i64(item[1]));
    const ct_device now = ct_get_device();
    CHECK(now.type == d.type && now.index == d.index);
    ct_dataset_free(data);
}

/* A whole program, of which only the first line differs: the mean losses of its epochs, and how much it gets right. */
static bool program(ct_device device, double results[4]) {
    bool ok = ct_set_device(device);
    ct_seed(5);
    ct_dataset *data = ct_dataset_shapes(120, 16, 3), *train = NULL, *test = NULL;
    ok = ok && ct_dataset_split(data, 0.75, 1, &train, &test);
    ct_loader *batches = ct_batches(train, 16, .shuffle = true, .seed = 1), *tests = ct_batches(test, 16);
    ct_module *net = ct_nn_sequential(ct_nn_conv2d(1, 8, 3, .pad = 1), ct_nn_batch_norm(8), ct_nn_relu(),
                                      ct_nn_max_pool2d(2), ct_nn_flatten(), ct_nn_linear(8 * 64, 10));
    ct_optim *optim = ct_adamw(net, .lr = 3e-3);
    ct_accuracy right = {0};
    for (int epoch = 0; epoch < 3; epoch++) {
        ct_running_mean mean = {0};
        for (ct_batch b; ct_next(batches, &b);)
            ct_scope {
                ct_tensor *loss = ct_cross_entropy_loss(ct_forward(net, b.x), b.y);
                ok = ok && ct_backward(loss) && ct_optim_step(optim) && ct_optim_zero_grad(optim) &&
                     ct_running_mean_add(&mean, ct_item(loss), (double)b.n);
            }
        results[epoch] = ct_running_mean_value(&mean);
    }
    ok = ok && ct_eval(net);
    for (ct_batch b; ct_next(tests, &b);)
        ct_no_grad
            ct_scope {
                ok = ok && ct_accuracy_add(&right, ct_forward(net, b.x), b.y);
            }
    results[3] = ct_accuracy_value(&right);
    ct_optim_free(optim);
    ct_module_free(net);
    ct_loader_free(batches);
    ct_loader_free(tests);
    ct_dataset_free(train);
    ct_dataset_free(test);
    ct_dataset_free(data);
    return ct_set_device(cpu) && ok && ct_ok();
}

TEST_LIMIT(a_program_moves_to_a_device_by_one_line, 120) {
    double here[4], there[4];
    REQUIRE(program(cpu, here) && program(guard(), there));
    CHECK(memcmp(here, there, sizeof here) == 0 && here[2] < here[0]);
}
