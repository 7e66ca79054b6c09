/* A program that has a device of WebGPU already, made by the runtime's functions, and lends it to the library. */
#include <dlfcn.h>
#include <string.h>

#include <cotangent/webgpu.h>

#include "tests/webgpu_device.h"

#ifndef CT_TEST_WEBGPU_RUNTIME
TEST(a_device_of_the_program_is_used_and_taken_back) { SKIP("it was built without webgpu.h"); }
#else
#define WGPU_SKIP_DECLARATIONS
#include <webgpu.h>

static const ct_device cpu = {CT_CPU, 0};

typedef struct own {
    void *runtime;
    WGPUInstance instance;
    WGPUAdapter adapter;
    WGPUDevice device;
    int asked, errors;
} own;

static void *function(void *context, const char *name) {
    own *o = context;
    o->asked++;
    return dlsym(o->runtime, name);
}

static void take_adapter(WGPURequestAdapterStatus status, WGPUAdapter adapter, WGPUStringView message, void *a,
                         void *b) {
    (void)status, (void)message, (void)b;
    ((own *)a)->adapter = adapter;
}

static void take_device(WGPURequestDeviceStatus status, WGPUDevice device, WGPUStringView message, void *a, void *b) {
    (void)status, (void)message, (void)b;
    ((own *)a)->device = device;
}

static void note_error(const WGPUDevice *device, WGPUErrorType type, WGPUStringView message, void *a, void *b) {
    (void)device, (void)type, (void)message, (void)b;
    ((own *)a)->errors++;
}

/* By the runtime that the module finds too, with the features and limits that every device has: 256 invocations, 8 bindings. */
static bool make_own(own *o) {
    WGPUProcCreateInstance create = NULL;
    WGPUProcInstanceRequestAdapter request_adapter = NULL;
    WGPUProcAdapterRequestDevice request_device = NULL;
    const char *named = getenv("CT_WEBGPU_LIBRARY");
    if (!(o->runtime = dlopen(named ? named : CT_TEST_WEBGPU_RUNTIME, RTLD_NOW | RTLD_LOCAL))) return false;
    *(void **)&create = dlsym(o->runtime, "wgpuCreateInstance");
    *(void **)&request_adapter = dlsym(o->runtime, "wgpuInstanceRequestAdapter");
    *(void **)&request_device = dlsym(o->runtime, "wgpuAdapterRequestDevice");
    if (!create || !request_adapter || !request_device || !(o->instance = create(NULL))) return false;
    const WGPURequestAdapterOptions options = WGPU_REQUEST_ADAPTER_OPTIONS_INIT;
    request_adapter(o->instance, &options,
                    (WGPURequestAdapterCallbackInfo){
                        .mode = WGPUCallbackMode_AllowSpontaneous, .callback = take_adapter, .userdata1 = o});
    if (!o->adapter) return false;
    WGPUDeviceDescriptor plain = WGPU_DEVICE_DESCRIPTOR_INIT;
    plain.uncapturedErrorCallbackInfo.callback = note_error;
    plain.uncapturedErrorCallbackInfo.userdata1 = o;
    request_device(o->adapter, &plain,
                   (WGPURequestDeviceCallbackInfo){
                       .mode = WGPUCallbackMode_AllowSpontaneous, .callback = take_device, .userdata1 = o});
    return o->device != NULL;
}

static void some_work(ct_device d) {
    ct_scope {
        ct_tensor *here = ct_set_requires_grad(harness_randn(CT_DIMS(37, 20)), true),
                  *there = ct_set_requires_grad(ct_to(ct_detach(here), d), true);
        ct_tensor *x[2] = {here, there}, *y[2];
        for (int i = 0; i < 2; i++) {
            y[i] = ct_sum(ct_softmax(ct_matmul(x[i], ct_t(x[i])), 1));
            y[i] = ct_add(y[i], ct_mean(ct_gelu(ct_layer_norm(x[i], CT_DIMS(20)))));
            CHECK(ct_backward(y[i]));
        }
        CHECK_NEAR(ct_item(y[1]), ct_item(y[0]), 1e-4 * 37);
        CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_sub(ct_grad_of(here), ct_to(ct_grad_of(there), cpu))))), 0, 1e-4);
    }
}

#define OWN(o)            \
    own o = {0};          \
    webgpu_environment(); \
    if (!make_own(&o)) SKIP("there is no runtime of WebGPU, or it finds no adapter")

TEST_LIMIT(a_device_of_the_program_is_used_and_taken_back, 120) {
    OWN(o);
    ct_device d = cpu;
    const ct_webgpu_given given = {.size = sizeof given,
                                   .instance = o.instance,
                                   .device = o.device,
                                   .adapter = o.adapter,
                                   .function = function,
                                   .context = &o};
    if (!ct_webgpu_adopt(&given, &d) && strstr(ct_error(), "there is no module")) {
        ct_error_clear();
        SKIP("there is no module for WebGPU");
    }
    REQUIRE(ct_ok() && d.type == CT_WEBGPU && d.index == 0 && o.asked > 20);
    for (int i = 0; i < 2; i++) some_work(d);
    ct_device_info info = {.size = sizeof info};
    CHECK(ct_device_describe(d, &info) && info.name[0] && o.errors == 0);
    if (ct_device_count(CT_WEBGPU) > 1) some_work((ct_device){CT_WEBGPU, 1}); /* the module's own beside it */
    CHECK(ct_webgpu_lose(d) && !ct_ones(CT_DIMS(3), .device = d) && ct_error_code() == CT_ERR_DEVICE &&
          strstr(ct_error(), "taken it back"));
    ct_error_clear();
    ct_memory_trim(d);
    ct_error_clear();
    CHECK(!ct_ones(CT_DIMS(3), .device = d) && strstr(ct_error(), "the program has taken"));
    ct_error_clear();
}

TEST_LIMIT(a_device_is_given_while_webgpu_is_in_use, 120) {
    OWN(o);
    WEBGPU(first);
    some_work(first);
    ct_device d = cpu;
    ct_webgpu_given given = {.size = sizeof given, .instance = o.instance, .device = o.device};
    const int before = ct_device_count(CT_WEBGPU);
    REQUIRE(ct_webgpu_adopt(&given, &d));
    CHECK(d.index == before && ct_device_count(CT_WEBGPU) == before + 1);
    some_work(d);
    some_work(first);
    given.function = function; /* another runtime */
    CHECK(!ct_webgpu_adopt(&given, &d) && ct_error_code() == CT_ERR_DEVICE);
    ct_error_clear();
    given.device = NULL;
    CHECK(!ct_webgpu_adopt(&given, &d) && strstr(ct_error(), "have to be given"));
    ct_error_clear();
}
#endif
