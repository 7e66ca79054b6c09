/* On an NVIDIA device what only a device can show: the CPU's random numbers, the same bits at every run, errors that come late, memory
 * that runs out, threads, forks. Every op is compared with the CPU by `cotangent check --device cuda`. Without a device all of it is skipped,
 * and says why. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include "tests/cuda_device.h"

static const ct_device cpu = {CT_CPU, 0};

TEST_LIMIT(random_numbers_are_those_of_the_cpu_bit_for_bit, 120) {
    CUDA(d);
    ct_tensor *made[2][5];
    for (int i = 0; i < 2; i++) {
        const ct_device on = i ? d : cpu;
        ct_seed(7);
        made[i][0] = ct_to(ct_rand(CT_DIMS(1000, 3), .device = on), cpu);
        made[i][1] = ct_to(ct_uniform(CT_DIMS(777), -2, 5, .dtype = CT_F64, .device = on), cpu);
        made[i][2] = ct_to(ct_randint(CT_DIMS(501), -9, 1000000, .device = on), cpu);
        made[i][3] = ct_to(ct_randperm(4099, .device = on), cpu);
        made[i][4] = ct_to(ct_dropout(ct_ones(CT_DIMS(67, 33), .device = on), 0.3), cpu);
    }
    for (int k = 0; k < 5; k++) CHECK(made[0][k] && made[1][k] && harness_same_bits(made[0][k], made[1][k]));
}

static ct_module *network(void) {
    return ct_nn_sequential(ct_nn_conv2d(1, 8, 3, .pad = 1), ct_nn_batch_norm(8), ct_nn_relu(), ct_nn_max_pool2d(2),
                            ct_nn_flatten(), ct_nn_linear(8 * 16, 10));
}

/* The losses of some steps on a task that can be learned. */
static bool train(ct_device d, double *losses, int steps) {
    ct_seed(11);
    ct_module *net = network();
    bool ok = ct_module_to_device(net, d);
    ct_optim *opt = ct_adamw(net, .lr = 3e-3);
    ct_tensor *x = ct_to(harness_randn(CT_DIMS(32, 1, 8, 8)), d);
    ct_tensor *target =
        ct_to(ct_argmax(ct_reshape(harness_randn(CT_DIMS(32, 10)), CT_DIMS(32, 10)), .axis = CT_SET(1)), d);
    for (int i = 0; ok && i < steps; i++)
        ct_scope {
            ct_tensor *loss = ct_cross_entropy_loss(ct_forward(net, x), target);
            ok = ct_backward(loss) && ct_optim_step(opt) && ct_optim_zero_grad(opt);
            losses[i] = ct_item(loss);
        }
    ct_optim_free(opt);
    ct_module_free(net);
    return ok && ct_ok();
}

TEST_LIMIT(training_follows_the_cpu_and_gives_the_same_bits_every_time, 120) {
    CUDA(d);
    enum { STEPS = 30 };
    double here[STEPS], there[STEPS], again[STEPS];
    REQUIRE(train(cpu, here, STEPS) && train(d, there, STEPS) && train(d, again, STEPS));
    CHECK(memcmp(there, again, sizeof there) == 0);
    for (int i = 0; i < STEPS; i++) CHECK_NEAR(there[i], here[i], 2e-3 * here[0]); /* f32, in another order */
    CHECK(there[STEPS - 1] < 0.7 * there[0]);
}

TEST_LIMIT(gradients_of_rows_and_scattered_sums_have_the_same_bits_every_time, 120) {
    CUDA(d);
    ct_tensor *index = ct_to(ct_randint(CT_DIMS(5000), 0, 37), d), *g = ct_to(harness_randn(CT_DIMS(5000, 24)), d);
    ct_tensor *first[2] = {0};
    for (int run = 0; run < 20; run++)
        ct_scope {
            ct_tensor *table = ct_set_requires_grad(ct_zeros(CT_DIMS(37, 24), .device = d), true);
            CHECK(ct_backward(ct_sum(ct_mul(ct_embedding(table, index), g))));
            ct_tensor *rows = ct_to(ct_grad_of(table), cpu);
            ct_tensor *wide = ct_expand(ct_unsqueeze(index, 1), CT_DIMS(5000, 24));
            ct_tensor *sums = ct_to(ct_scatter_add(ct_zeros(CT_DIMS(37, 24), .device = d), 0, wide, g), cpu);
            if (!run) first[0] = ct_keep(rows), first[1] = ct_keep(sums);
            CHECK(harness_same_bits(first[0], rows) && harness_same_bits(first[1], sums));
        }
    ct_drop(first[0]);
    ct_drop(first[1]);
}

TEST_LIMIT(a_bad_index_ruins_no_weights_and_training_goes_on, 120) {
    CUDA(d);
    ct_module *net = ct_nn_linear(8, 3);
    REQUIRE(ct_module_to_device(net, d));
    ct_optim *opt = ct_adamw(net, .lr = 1e-2);
    ct_tensor *x = ct_to(harness_randn(CT_DIMS(6, 8)), d), *weight = ct_module_find(net, "weight"),
              *before = ct_to(weight, cpu);
    ct_tensor *bad = ct_to(I64(CT_DIMS(6), 0, 1, 2, 0, 7, 2), d), *good = ct_to(I64(CT_DIMS(6), 0, 1, 2, 0, 1, 2), d);
    CHECK(ct_backward(ct_cross_entropy_loss(ct_forward(net, x), bad)) && ct_optim_step(opt) && ct_ok());
    CHECK(!ct_synchronize(d) && ct_error_code() == CT_ERR_INDEX && strstr(ct_error(), "cross_entropy_loss: ") &&
          strstr(ct_error(), "is 7"));
    ct_error_clear();
    CHECK(ct_optim_zero_grad(opt) && harness_same_bits(before, ct_to(weight, cpu)));
    CHECK(ct_backward(ct_cross_entropy_loss(ct_forward(net, x), good)) && ct_optim_step(opt) && ct_synchronize(d));
    CHECK(!harness_same_bits(before, ct_to(weight, cpu)));
    ct_optim_free(opt);
    ct_module_free(net);
}

TEST_LIMIT(memory_that_runs_out_is_an_error_and_smaller_things_go_on, 120) {
    CUDA(d);
    ct_tensor *x = ct_ones(CT_DIMS(1000), .device = d);
    CHECK(ct_empty(CT_DIMS((int64_t)1 << 46), .device = d) == NULL);
    CHECK(ct_error_code() == CT_ERR_MEMORY);
    ct_error_clear();
    CHECK(ct_item(ct_sum(x)) == 1000);
    REQUIRE(ct_set_memory_limit(d, 64 << 20));
    ct_tensor *kept[64];
    int n = 0;
    while (n < 64 && (kept[n] = ct_zeros(CT_DIMS(1 << 20), .device = d))) n++; /* 4 MiB each */
    CHECK(n > 0 && n < 32 && ct_error_code() == CT_ERR_MEMORY);
    ct_error_clear();
    CHECK(ct_set_memory_limit(d, 0) && ct_zeros(CT_DIMS(1 << 22), .device = d) && ct_synchronize(d));
}

static void *work(void *context) {
    const ct_device d = *(const ct_device *)context;
    bool ok = true;
    for (int i = 0; ok && i < 200; i++)
        ct_scope {
            ct_tensor *x = ct_full(CT_DIMS(64, 64), i + 1, .device = d);
            ok = ct_item(ct_mean(ct_matmul(x, x))) == 64.0 * (i + 1) * (i + 1);
        }
    return ok && ct_ok() ? context : NULL;
}

TEST_LIMIT(four_threads_use_one_device, 120) {
    CUDA(d);
    pthread_t threads[4];
    void *ended[4] = {0};
    for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, work, &d) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], &ended[i]);
    for (int i = 0; i < 4; i++) CHECK(ended[i] == &d);
}

TEST_LIMIT(a_forked_child_gets_a_clear_error, 120) {
    CUDA(d);
    CHECK(ct_item(ct_sum(ct_ones(CT_DIMS(4), .device = d))) == 4);
    int status = -1;
    const pid_t child = fork();
    if (child == 0) _exit(ct_ones(CT_DIMS(4), .device = d) == NULL && strstr(ct_error(), "forked") ? 0 : 1);
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(ct_item(ct_sum(ct_ones(CT_DIMS(4), .device = d))) == 4);
}
