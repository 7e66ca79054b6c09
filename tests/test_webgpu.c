/* On WebGPU what the sweep over the ops does not show: the CPU's random numbers, the same bits at every run, errors that come late and their
 * texts, what there are no tensors of, memory that runs out, threads. Every op is compared with the CPU by
 * `cotangent check --device webgpu`. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "tests/device_training.h"
#include "tests/webgpu_device.h"

static const ct_device cpu = {CT_CPU, 0};

/* ---- Random numbers ---- */

TEST_LIMIT(random_numbers_are_those_of_the_cpu_bit_for_bit, 120) {
    WEBGPU(d);
    enum { N = 11 };
    ct_tensor *made[2][N];
    for (int i = 0; i < 2; i++) {
        const ct_device on = i ? d : cpu;
        int n = 0;
        ct_seed(7);
        made[i][n++] = ct_to(ct_rand(CT_DIMS(1000, 3), .device = on), cpu);
        made[i][n++] = ct_to(ct_uniform(CT_DIMS(777), -2, 5, .device = on), cpu);
        made[i][n++] = ct_to(ct_rand(CT_DIMS(10003), .dtype = CT_F16, .device = on), cpu);
        made[i][n++] = ct_to(ct_uniform(CT_DIMS(31, 101), 2, 3, .dtype = CT_BF16, .device = on), cpu);
        made[i][n++] = ct_to(ct_randint(CT_DIMS(501), -9, 1000000, .device = on), cpu);
        made[i][n++] = ct_to(ct_randint(CT_DIMS(7001), -5, 1LL << 40, .device = on), cpu);
        made[i][n++] = ct_to(ct_randperm(4099, .device = on), cpu);
        made[i][n++] = ct_to(ct_bernoulli(ct_full(CT_DIMS(500, 7), 0.3, .device = on)), cpu);
        made[i][n++] = ct_to(ct_dropout(ct_ones(CT_DIMS(67, 33), .device = on), 0.3), cpu);
        made[i][n++] = ct_to(ct_dropout(ct_ones(CT_DIMS(100, 103), .dtype = CT_BF16, .device = on), 0.1), cpu);
        made[i][n++] =
            ct_to(ct_multinomial(ct_to(TENSOR(CT_F32, CT_DIMS(5), 1, 2, 0, 3, 4), on), 64, .replacement = true), cpu);
    }
    for (int k = 0; k < N; k++)
        if (!CHECK(made[0][k] && made[1][k] && harness_same_bits(made[0][k], made[1][k])))
            printf("number %d: %s\n", k, ct_error());
}

TEST_LIMIT(normal_numbers_are_near_those_of_the_cpu, 120) {
    WEBGPU(d);
    ct_tensor *made[2];
    for (int i = 0; i < 2; i++) {
        ct_seed(17);
        made[i] = ct_to(ct_normal(CT_DIMS(1 << 14), 0, 1, .device = i ? d : cpu), cpu);
    }
    REQUIRE(made[0] && made[1]);
    /* a few units in the last place of logarithm, root and cosine, of values below 6 */
    CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_sub(made[0], made[1])))), 0, 1e-5);
}

/* ---- The same bits ---- */

TEST_LIMIT(a_training_follows_the_cpu_and_gives_the_same_bits_every_time, 240) {
    WEBGPU(d);
    training here, there, again;
    REQUIRE(begin(&here, cpu, 3, 64) && begin(&there, d, 3, 64) && begin(&again, d, 3, 64));
    run(&here), run(&there), run(&again);
    CHECK(here.ok && there.ok && again.ok);
    for (int i = 0; i < STEPS; i++) CHECK_NEAR(there.losses[i], here.losses[i], 3e-3 * here.losses[0]);
    CHECK(memcmp(there.losses, again.losses, sizeof there.losses) == 0);
    CHECK(there.losses[STEPS - 1] < 0.5 * there.losses[0]);
    end(&here);
    end(&there);
    end(&again);
}

TEST_LIMIT(scattered_sums_have_the_same_bits_every_time, 120) {
    WEBGPU(d);
    ct_tensor *index = ct_to(ct_randint(CT_DIMS(900), 0, 37), d), *g = ct_to(harness_randn(CT_DIMS(900, 24)), d);
    ct_tensor *first[2] = {0};
    for (int run = 0; run < 5; run++)
        ct_scope {
            ct_tensor *table = ct_set_requires_grad(ct_zeros(CT_DIMS(37, 24), .device = d), true);
            CHECK(ct_backward(ct_sum(ct_mul(ct_embedding(table, index), g))));
            ct_tensor *rows = ct_to(ct_grad_of(table), cpu);
            ct_tensor *wide = ct_expand(ct_unsqueeze(index, 1), CT_DIMS(900, 24));
            ct_tensor *sums = ct_to(ct_scatter_add(ct_zeros(CT_DIMS(37, 24), .device = d), 0, wide, g), cpu);
            if (!run) first[0] = ct_keep(rows), first[1] = ct_keep(sums);
            CHECK(harness_same_bits(first[0], rows) && harness_same_bits(first[1], sums));
        }
    ct_drop(first[0]);
    ct_drop(first[1]);
}

/* ---- Errors ---- */

TEST_LIMIT(a_bad_index_is_told_at_the_next_wait_in_the_words_of_the_cpu, 120) {
    WEBGPU(d);
    char words[2][512];
    for (int i = 0; i < 2; i++) {
        ct_tensor *table = ct_to(harness_randn(CT_DIMS(5, 3)), i ? d : cpu),
                  *index = ct_to(I64(CT_DIMS(4), 0, 4, 5, 1), i ? d : cpu);
        ct_tensor *rows = ct_index_select(table, 0, index);
        CHECK(i == 0 || (rows && ct_ok() && !ct_synchronize(d)));
        CHECK(ct_error_code() == CT_ERR_INDEX);
        snprintf(words[i], sizeof words[i], "%s", ct_error());
        ct_error_clear();
    }
    CHECK_TEXT(words[1], words[0]);
    CHECK(ct_synchronize(d)); /* once */
}

TEST_LIMIT(a_bad_index_ruins_no_weights_and_training_goes_on, 120) {
    WEBGPU(d);
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

/* There is no f64: each way to it is an error that names a way out, and leaves everything else usable. */
TEST(f64_is_refused_with_a_way_out) {
    WEBGPU(d);
    ct_tensor *here = F64(CT_DIMS(3), 1, 2, 3), *there = ct_ones(CT_DIMS(3), .device = d);
    CHECK(!ct_to(here, d));
    CHECK_ERROR(
        CT_ERR_DTYPE,
        "to: there are no tensors of f64 on webgpu; cast it where it is first: ct_cast(x, CT_F32), or stay on the "
        "CPU: ct_to(x, (ct_device){CT_CPU})");
    CHECK(!ct_cast(there, CT_F64) && ct_error_code() == CT_ERR_DTYPE &&
          strstr(ct_error(), "cast: there are no tensors of f64 on webgpu"));
    ct_error_clear();
    CHECK(!ct_zeros(CT_DIMS(2), .dtype = CT_F64, .device = d) && ct_error_code() == CT_ERR_DTYPE);
    ct_error_clear();
    CHECK(!ct_rand(CT_DIMS(2), .dtype = CT_F64, .device = d) && ct_error_code() == CT_ERR_DTYPE);
    ct_error_clear();
    CHECK(!ct_device_has_dtype(d, CT_F64) && ct_device_has_dtype(d, CT_F32) && ct_device_has_dtype(cpu, CT_F64));
    CHECK(ct_item(ct_sum(ct_to(ct_cast(here, CT_F32), d))) == 6);
    CHECK(ct_item(ct_sum(ct_cast(ct_to(there, cpu), CT_F64))) == 3);
}

TEST(devices_that_are_mixed_are_an_error_that_names_both) {
    WEBGPU(d);
    CHECK(!ct_add(ct_ones(CT_DIMS(3), .device = d), ct_ones(CT_DIMS(3))) && ct_error_code() == CT_ERR_DEVICE);
    CHECK(strstr(ct_error(), "webgpu") && strstr(ct_error(), "cpu") && strstr(ct_error(), "ct_to"));
    ct_error_clear();
}

TEST(what_is_known_of_a_device) {
    WEBGPU(d);
    ct_device_info info = {.size = sizeof info};
    REQUIRE(ct_device_describe(d, &info));
    CHECK(info.name[0] && info.driver[0] && strstr(info.features, "no f64") && strstr(info.features, "bindings of"));
    CHECK(strstr(info.libraries, "wgpu-native") || strstr(info.libraries, "Dawn"));
}

/* ---- Packed types ---- */

/* Stores into part of a word keep their neighbours, wherever a view begins. */
TEST_LIMIT(bytes_and_halves_beside_a_view_stay_as_they_are, 120) {
    WEBGPU(d);
    static const ct_dtype dtypes[] = {CT_I8, CT_U8, CT_BOOL, CT_I16, CT_F16, CT_BF16, CT_I64};
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
        for (int64_t from = 0; from < 7; from++)
            ct_scope {
                const int64_t n = 1 + from;
                ct_tensor *x[2];
                for (int i = 0; i < 2; i++) {
                    x[i] = ct_full(CT_DIMS(23), 1, .dtype = dtypes[k], .device = i ? d : cpu);
                    ct_tensor *part = ct_narrow(x[i], 0, from, n);
                    CHECK(ct_fill(part, 0) && ct_fill(ct_narrow(x[i], 0, from + n + 1, 3), 0));
                }
                if (!CHECK(harness_same_bits(x[0], ct_to(x[1], cpu))))
                    printf("%s from %lld\n", ct_dtype_name(dtypes[k]), (long long)from);
            }
}

/* ---- Memory ---- */

TEST_LIMIT(memory_that_runs_out_is_an_error_and_smaller_things_go_on, 120) {
    WEBGPU(d);
    ct_tensor *x = ct_ones(CT_DIMS(1000), .device = d);
    CHECK(ct_empty(CT_DIMS((int64_t)1 << 46), .dtype = CT_U8, .device = d) == NULL && ct_error_code() == CT_ERR_MEMORY);
    ct_error_clear();
    CHECK(ct_item(ct_sum(x)) == 1000);
    REQUIRE(ct_set_memory_limit(d, 64 << 20));
    ct_tensor *kept[64];
    int n = 0;
    while (n < 64 && (kept[n] = ct_zeros(CT_DIMS(1 << 20), .device = d))) n++; /* 4 MiB each */
    CHECK(n > 0 && n < 32 && ct_error_code() == CT_ERR_MEMORY);
    ct_error_clear();
    CHECK(ct_set_memory_limit(d, 0) && ct_zeros(CT_DIMS(1 << 20), .device = d) && ct_synchronize(d));
}

TEST_LIMIT(a_training_beyond_the_limit_goes_on_with_a_smaller_batch, 120) {
    WEBGPU(d);
    training t;
    REQUIRE(begin(&t, d, 5, 64) && ct_memory_trim(d) && ct_set_memory_limit(d, 48 << 20));
    double first = 0, last = 0;
    CHECK(step(&t, t.x, t.target, &first));
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(100000, WIDTH), .device = d),
                  *target = ct_zeros(CT_DIMS(100000), .dtype = CT_I64, .device = d);
        CHECK(x && target && !step(&t, x, target, NULL) && ct_error_code() == CT_ERR_MEMORY);
        CHECK(strstr(ct_error(), "which may take 50331648 (ct_set_memory_limit)"));
        ct_error_clear();
    }
    CHECK(ct_optim_zero_grad(t.optim));
    for (int i = 0; i < 10; i++) CHECK(step(&t, t.x, t.target, &last));
    CHECK(last < first && ct_set_memory_limit(d, 0));
    end(&t);
}

/* ---- Threads ---- */

TEST_LIMIT(two_threads_train_on_one_device_as_each_does_alone, 240) {
    WEBGPU(d);
    training alone[2], beside[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        REQUIRE(begin(&alone[i], d, (uint64_t)i + 1, 33) && begin(&beside[i], d, (uint64_t)i + 1, 33));
        CHECK(run(&alone[i]) && alone[i].ok);
    }
    REQUIRE(ct_synchronize(d));
    for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&threads[i], NULL, run, &beside[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        CHECK(beside[i].ok && memcmp(alone[i].losses, beside[i].losses, sizeof alone[i].losses) == 0);
        end(&alone[i]);
        end(&beside[i]);
    }
}
