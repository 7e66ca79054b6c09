/* WebGPU in a program that has its own ideas: a device that is lost and opened again, a device of the program's own, forks, two devices,
 * texts that do not compile, runtimes and drivers that are not there. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cotangent/webgpu.h>

#include "tests/device_training.h"
#include "tests/webgpu_device.h"

static const ct_device cpu = {CT_CPU, 0};

/* ---- Loss ---- */

TEST_LIMIT(a_device_that_is_lost_is_an_error_and_is_opened_again, 120) {
    WEBGPU(d);
    ct_tensor *here = NULL;
    for (int round = 0; round < 2; round++) {
        ct_scope {
            ct_tensor *x = ct_to(harness_randn(CT_DIMS(40, 30)), d), *y = ct_matmul(x, ct_t(x));
            here = ct_keep(ct_to(y, cpu));
            REQUIRE(here && ct_webgpu_lose(d));
            CHECK(!ct_add(x, x) || !ct_synchronize(d));
            CHECK(ct_error_code() == CT_ERR_DEVICE && strstr(ct_error(), "the device is lost") &&
                  strstr(ct_error(), "ct_memory_trim"));
            ct_error_clear();
            CHECK(!ct_to(y, cpu) && ct_error_code() == CT_ERR_DEVICE);
            ct_error_clear();
            CHECK(!ct_ones(CT_DIMS(1 << 20), .device = d) && !ct_ok());
            ct_error_clear();
        }
        CHECK(ct_numel(here) == 1600 && ct_item(ct_sum(ct_square(here))) > 0); /* the CPU's tensors are as they were */
        ct_memory_trim(d);
        ct_error_clear(); /* of the wait for work that is lost */
        ct_scope {
            ct_tensor *x = ct_to(harness_randn(CT_DIMS(40, 30)), d);
            CHECK(x && harness_same_bits(here, ct_to(ct_matmul(x, ct_t(x)), cpu)));
        }
        ct_drop(here);
    }
}

/* In the middle of a training: what was saved on the CPU goes on. */
TEST_LIMIT(a_training_goes_on_after_a_loss_from_what_the_cpu_has, 240) {
    WEBGPU(d);
    training t;
    double before = 0, after = 0;
    REQUIRE(begin(&t, d, 5, 32));
    for (int i = 0; i < 6; i++) CHECK(step(&t, t.x, t.target, &before));
    ct_state *state = ct_state_new();
    REQUIRE(state && ct_module_put_state(t.net, state, "net"));
    REQUIRE(ct_webgpu_lose(d));
    CHECK(!step(&t, t.x, t.target, NULL) && ct_error_code() == CT_ERR_DEVICE);
    ct_error_clear();
    end(&t);
    ct_state_free(state); /* it holds the tensors of the device that is gone */
    ct_memory_trim(d);
    ct_error_clear();
    REQUIRE(begin(&t, d, 5, 32) && step(&t, t.x, t.target, &after));
    for (int i = 1; i < 6; i++) CHECK(step(&t, t.x, t.target, &after));
    CHECK(before == after); /* the same training, from the start */
    end(&t);
}

/* ---- Texts ---- */

TEST(a_text_that_does_not_compile_is_an_error_with_the_compilers_words) {
    WEBGPU(d);
    CHECK(ct_webgpu_compile(d, "@compute @workgroup_size(1) fn main() {}"));
    static const char *const wrong[] = {"fn main( {", "@compute @workgroup_size(1) fn main() { let x: u32 = 1.5; }",
                                        "@compute @workgroup_size(1) fn other() {}",
                                        "@compute @workgroup_size(100000) fn main() {}", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (!CHECK(!ct_webgpu_compile(d, wrong[i]) && ct_error_code() == CT_ERR_DEVICE && strlen(ct_error()) > 30))
            printf("%s\n", wrong[i]);
        ct_error_clear();
    }
    CHECK(ct_item(ct_sum(ct_ones(CT_DIMS(4), .device = d))) == 4);
}

/* ---- Processes and threads ---- */

TEST_LIMIT(a_forked_child_gets_a_clear_error, 120) {
    WEBGPU(d);
    CHECK(ct_item(ct_sum(ct_ones(CT_DIMS(4), .device = d))) == 4);
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        const bool told = !ct_ones(CT_DIMS(4), .device = d) && strstr(ct_error(), "forked");
        ct_error_clear();
        _exit(told && ct_item(ct_sum(ct_ones(CT_DIMS(4)))) == 4 ? 0 : 1);
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(ct_item(ct_sum(ct_ones(CT_DIMS(4), .device = d))) == 4);
}

TEST_LIMIT(a_child_that_was_forked_before_has_webgpu_for_itself, 120) {
    webgpu_environment();
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        ct_device d;
        _exit(!webgpu_found(&d) ? 77 : ct_item(ct_sum(ct_ones(CT_DIMS(4), .device = d))) == 4 ? 0 : 1);
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) SKIP("there is no device for WebGPU");
    CHECK(WEXITSTATUS(status) == 0);
}

static void *on_device(void *context) {
    const ct_device d = *(const ct_device *)context;
    bool ok = true;
    for (int i = 0; ok && i < 20; i++)
        ct_scope {
            ct_tensor *x = ct_full(CT_DIMS(16, 16), i + 1, .device = d);
            ok = ct_item(ct_mean(ct_matmul(x, x))) == 16.0 * (i + 1) * (i + 1);
        }
    return ok && ct_ok() ? context : NULL;
}

TEST_LIMIT(two_devices_are_used_at_once, 120) {
    WEBGPU(d);
    if (ct_device_count(CT_WEBGPU) < 2) SKIP("there is one device only");
    ct_device both[2] = {{CT_WEBGPU, 0}, {CT_WEBGPU, 1}};
    pthread_t threads[2];
    void *ended[2] = {0};
    for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&threads[i], NULL, on_device, &both[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &ended[i]);
    CHECK(ended[0] && ended[1]);
    ct_tensor *x = ct_to(harness_randn(CT_DIMS(33, 7)), both[0]), *y = ct_to(x, both[1]); /* from one to the other */
    CHECK(y && harness_same_bits(ct_to(x, cpu), ct_to(y, cpu)));
    CHECK(!ct_add(x, y) && ct_error_code() == CT_ERR_DEVICE && strstr(ct_error(), "webgpu:1"));
    ct_error_clear();
}

/* ---- What is not there ---- */

TEST(a_runtime_that_cannot_be_opened_is_told) {
    webgpu_environment();
    setenv("CT_WEBGPU_LIBRARY", "/nowhere/libwgpu_native.so", 1);
    ct_device d;
    if (strstr(ct_backend_missing(CT_WEBGPU), "there is no module")) SKIP("there is no module for WebGPU");
    CHECK(!ct_device_parse("webgpu", &d) && ct_error_code() == CT_ERR_DEVICE &&
          strstr(ct_error(), "CT_WEBGPU_LIBRARY cannot be opened"));
    ct_error_clear();
}

TEST(a_library_that_is_no_runtime_is_refused) {
    webgpu_environment();
    setenv("CT_WEBGPU_LIBRARY", "libm.so.6", 1);
    if (strstr(ct_backend_missing(CT_WEBGPU), "there is no module")) SKIP("there is no module for WebGPU");
    CHECK(strstr(ct_backend_missing(CT_WEBGPU), "the WebGPU runtime has no wgpu"));
}

TEST(without_a_driver_the_reason_is_told) {
    webgpu_environment();
    setenv("VK_ICD_FILENAMES", "/nowhere/icd.json", 1);
    setenv("VK_DRIVER_FILES", "/nowhere/icd.json", 1);
    const char *missing = ct_backend_missing(CT_WEBGPU);
    if (strstr(missing, "there is no module") || strstr(missing, "there is no WebGPU runtime")) SKIP("%s", missing);
    if (!missing[0]) SKIP("there is a driver that needs no file");
    CHECK(strstr(missing, "no driver for Vulkan"));
}
