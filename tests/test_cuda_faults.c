/* What goes wrong on an NVIDIA device and what goes on after it: memory that runs out, for good and because of what lies unused, indices out of
 * range in the middle of a training, a fault that ends the context; and threads that train at once. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "tests/cuda_device.h"
#include "tests/device_training.h"

static const ct_device cpu = {CT_CPU, 0};

/* ---- A training ---- */

static void four_threads(bool own_streams) {
    CUDA(d);
    training alone[4], beside[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        REQUIRE(begin(&alone[i], d, (uint64_t)i + 1, 33) && begin(&beside[i], d, (uint64_t)i + 1, 33));
        beside[i].own_stream = own_streams;
        CHECK(run(&alone[i]) && alone[i].ok && alone[i].losses[STEPS - 1] < 0.5 * alone[i].losses[0]);
    }
    REQUIRE(ct_synchronize(d));
    for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, run, &beside[i]) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        CHECK(beside[i].ok && memcmp(alone[i].losses, beside[i].losses, sizeof alone[i].losses) == 0);
        end(&alone[i]);
        end(&beside[i]);
    }
}
TEST_LIMIT(four_threads_train_on_one_device_as_each_does_alone, 120) { four_threads(false); }
TEST_LIMIT(four_threads_with_streams_of_their_own_train_as_each_does_alone, 120) { four_threads(true); }

TEST_LIMIT(a_loss_curve_follows_that_of_the_cpu, 120) {
    CUDA(d);
    training here, there;
    REQUIRE(begin(&here, cpu, 3, 64) && begin(&there, d, 3, 64));
    run(&here), run(&there);
    CHECK(here.ok && there.ok);
    for (int i = 0; i < STEPS; i++) CHECK_NEAR(there.losses[i], here.losses[i], 3e-3 * here.losses[0]);
    end(&here);
    end(&there);
}

/* ---- Memory ---- */

static int64_t free_memory(ct_device d) {
    ct_device_info info = {.size = sizeof info};
    return ct_device_describe(d, &info) ? info.memory_free : 0;
}

TEST_LIMIT(memory_that_is_used_up_is_an_error_and_a_training_goes_on, 120) {
    CUDA(d);
    training t;
    REQUIRE(begin(&t, d, 5, 64) && step(&t, t.x, t.target, NULL));
    ct_scope {
        const int64_t part = free_memory(d) / 20;
        int n = 0;
        while (n < 40 && ct_empty(CT_DIMS(part), .dtype = CT_U8, .device = d)) n++;
        CHECK(n >= 15 && n < 40 && ct_error_code() == CT_ERR_MEMORY && strstr(ct_error(), "empty: out of memory: ") &&
              strstr(ct_error(), "had on cuda"));
        ct_error_clear();
        CHECK(step(&t, t.x, t.target, NULL)); /* its blocks are in the cache */
    }
    double first, last = 0;
    CHECK(step(&t, t.x, t.target, &first));
    for (int i = 0; i < 10; i++) CHECK(step(&t, t.x, t.target, &last));
    CHECK(last < first);
    end(&t);
}

/* What was used in small parts and lies unused goes back when one large part is wanted. */
TEST_LIMIT(unused_memory_goes_back_to_the_device_before_it_is_refused, 120) {
    CUDA(d);
    const int64_t all = free_memory(d);
    ct_scope {
        for (int i = 0; i < 12; i++) REQUIRE(ct_empty(CT_DIMS(all / 20), .dtype = CT_U8, .device = d));
    }
    ct_memory has = {.size = sizeof has};
    CHECK(ct_memory_stats(d, &has) && has.in_use < 1 << 20 && has.reserved > all / 2);
    ct_scope {
        ct_tensor *large = ct_empty(CT_DIMS(all / 10 * 7), .dtype = CT_U8, .device = d);
        CHECK(large && ct_ok() && ct_memory_stats(d, &has) && has.in_use >= all / 10 * 7);
    }
    CHECK(ct_memory_trim(d) && ct_memory_stats(d, &has) && has.reserved < 1 << 24);
}

TEST_LIMIT(a_training_beyond_the_limit_goes_on_with_a_smaller_batch, 120) {
    CUDA(d);
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

/* ---- Values and faults ---- */

TEST_LIMIT(indices_out_of_range_now_and_then_leave_a_training_as_it_is_without_them, 120) {
    CUDA(d);
    training without, with;
    REQUIRE(begin(&without, d, 9, 48) && begin(&with, d, 9, 48));
    ct_tensor *bad = ct_to(ct_full(CT_DIMS(48), CLASSES, .dtype = CT_I64), d);
    for (int i = 0; i < STEPS; i++) {
        CHECK(step(&without, without.x, without.target, &without.losses[i]));
        if (i % 5 == 2) { /* the step does nothing, and says so when it is waited for */
            ct_scope {
                ct_tensor *loss = ct_cross_entropy_loss(ct_forward(with.net, with.x), bad);
                CHECK(ct_backward(loss) && ct_optim_step(with.optim) && ct_ok() && !ct_synchronize(d));
                CHECK(ct_error_code() == CT_ERR_INDEX && strstr(ct_error(), "cross_entropy_loss: "));
                ct_error_clear();
                CHECK(ct_optim_zero_grad(with.optim));
            }
        }
        CHECK(step(&with, with.x, with.target, &with.losses[i]));
    }
    CHECK(memcmp(without.losses, with.losses, sizeof with.losses) == 0);
    end(&without);
    end(&with);
}

/* An address that is nobody's: the driver ends the context. */
TEST_LIMIT(a_fault_of_the_device_is_an_error_and_every_call_after_it_is_one, 120) {
    CUDA(d);
    harness_may_leak();
    ct_tensor *here = ct_to(ct_ones(CT_DIMS(4), .device = d), cpu);
    ct_scope {
        ct_tensor *nowhere = ct_wrap((void *)(uintptr_t)0x7000000000, CT_DIMS(1000), CT_F32, .device = d);
        REQUIRE(here && nowhere);
        ct_tensor *sum = ct_sum(nowhere);
        CHECK(!ct_synchronize(d) && ct_error_code() == CT_ERR_DEVICE &&
              strstr(ct_error(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
        ct_error_clear();
        CHECK(isnan(ct_item(sum)) && ct_error_code() == CT_ERR_DEVICE && strstr(ct_error(), "the device is lost"));
        ct_error_clear();
        CHECK(!ct_ones(CT_DIMS(4), .device = d) && !ct_ok());
        ct_error_clear();
    }
    ct_error_clear(); /* of the wait before wrapped memory is given back */
    CHECK(ct_item(ct_sum(here)) == 4);
}

TEST_LIMIT(with_ct_sync_a_fault_names_its_op, 120) {
    CHECK(setenv("CT_SYNC", "1", 1) == 0);
    CUDA(d);
    harness_may_leak();
    ct_scope {
        ct_tensor *nowhere = ct_wrap((void *)(uintptr_t)0x7000000000, CT_DIMS(1000), CT_F32, .device = d);
        REQUIRE(nowhere);
        CHECK(!ct_exp(nowhere) && strcmp(ct_error_op(), "exp") == 0 && strstr(ct_error(), "its kernel failed"));
        ct_error_clear();
    }
    ct_error_clear(); /* of the wait before wrapped memory is given back */
}

/* ---- Random numbers ---- */

TEST_LIMIT(every_distribution_is_that_of_the_cpu, 120) {
    CUDA(d);
    ct_tensor *bits[2][7], *near[2][3];
    for (int i = 0; i < 2; i++) {
        const ct_device on = i ? d : cpu;
        ct_seed(17);
        bits[i][0] = ct_to(ct_rand(CT_DIMS(100003), .dtype = CT_F16, .device = on), cpu);
        bits[i][1] = ct_to(ct_uniform(CT_DIMS(31, 1001), 2, 3, .dtype = CT_BF16, .device = on), cpu);
        bits[i][2] = ct_to(ct_bernoulli(ct_full(CT_DIMS(5000, 7), 0.3, .device = on)), cpu);
        bits[i][3] = ct_to(ct_randint(CT_DIMS(70001), -5, 1LL << 40, .device = on), cpu);
        bits[i][4] = ct_to(ct_randperm(100001, .device = on), cpu);
        bits[i][5] = ct_to(ct_dropout(ct_ones(CT_DIMS(100, 1003), .dtype = CT_BF16, .device = on), 0.1), cpu);
        bits[i][6] = ct_to(ct_rand(CT_DIMS(1 << 20), .dtype = CT_F64, .device = on), cpu);
        near[i][0] = ct_to(ct_randn(CT_DIMS(1 << 18), .device = on), cpu);
        near[i][1] = ct_to(ct_randn(CT_DIMS(999), .dtype = CT_F64, .device = on), cpu);
        near[i][2] = ct_to(ct_normal(CT_DIMS(777), 5, 2, .device = on), cpu);
    }
    for (int k = 0; k < 7; k++)
        if (!CHECK(bits[0][k] && bits[1][k] && harness_same_bits(bits[0][k], bits[1][k]))) printf("number %d\n", k);
    /* a few units in the last place of logarithm, root and cosine, of values below 6 */
    for (int k = 0; k < 3; k++) {
        const double worst =
            near[0][k] && near[1][k] ? ct_item(ct_amax(ct_abs(ct_sub(near[0][k], near[1][k])))) : INFINITY;
        CHECK_NEAR(worst, 0, k == 1 ? 1e-14 : 1e-5);
    }
}
