/* Devices of the WebGPU module: adapters, memory, copies, and what goes wrong in them. A device has one stream. */
#include "backends/webgpu/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

const ct_host *ct_wgpu_host;

static ct_wgpu_device devices[CT_WGPU_DEVICES];
static _Atomic int count;
static bool saw_null;       /* an adapter that takes all calls and computes nothing */
static _Atomic bool forked; /* a runtime's threads do not survive a fork */
static void note_fork(void) { atomic_store(&forked, true); }

/* Features beyond the first standard that are asked for where they are: f16 in shaders, subgroups (of wgpu-native, of Dawn), and that Dawn
 * takes calls from several threads. */
enum { SUBGROUPS_NATIVE = 0x00030021, SUBGROUPS = 0x00000012, DAWN_THREADS = 0x00050004 };

/* ---- Callbacks ---- */

static void on_adapter(WGPURequestAdapterStatus status, WGPUAdapter adapter, WGPUStringView message, void *a, void *b) {
    (void)message;
    *(WGPUAdapter *)b = status == WGPURequestAdapterStatus_Success ? adapter : NULL;
    atomic_store((_Atomic int *)a, 1);
}

typedef struct opening {
    _Atomic int done;
    WGPUDevice device;
    char why[256];
} opening;

static void on_device(WGPURequestDeviceStatus status, WGPUDevice device, WGPUStringView message, void *a, void *b) {
    (void)b;
    opening *o = a;
    o->device = status == WGPURequestDeviceStatus_Success ? device : NULL;
    snprintf(o->why, sizeof o->why, "%.*s", ct_wgpu_length(message), message.data ? message.data : "");
    atomic_store(&o->done, 1);
}

static void on_error(WGPUDevice const *device, WGPUErrorType type, WGPUStringView message, void *a, void *b) {
    (void)device, (void)type, (void)b;
    ct_wgpu_device *d = a;
    if (atomic_load(&d->failed)) return;
    snprintf(d->fault, sizeof d->fault, "%.*s", ct_wgpu_length(message), message.data ? message.data : "");
    atomic_store(&d->failed, true);
}

static void on_lost(WGPUDevice const *device, WGPUDeviceLostReason reason, WGPUStringView message, void *a, void *b) {
    (void)device, (void)b;
    ct_wgpu_device *d = a;
    if (atomic_load(&d->lost)) return;
    snprintf(d->why, sizeof d->why, "%.*s", ct_wgpu_length(message), message.data ? message.data : "");
    if (!d->why[0]) snprintf(d->why, sizeof d->why, "reason %d", (int)reason);
    atomic_store(&d->lost, true);
}

typedef struct scope {
    _Atomic int done;
    bool wrong;
    ct_wgpu_device *device;
} scope;

static void on_scope(WGPUPopErrorScopeStatus status, WGPUErrorType type, WGPUStringView message, void *a, void *b) {
    (void)b;
    scope *s = a;
    s->wrong = status == WGPUPopErrorScopeStatus_Success && type != WGPUErrorType_NoError;
    if (s->wrong)
        snprintf(s->device->fault, sizeof s->device->fault, "%.*s", ct_wgpu_length(message),
                 message.data ? message.data : "");
    atomic_store(&s->done, 1);
}

void ct_wgpu_until(ct_wgpu_device *d, _Atomic int *flag) {
    while (!atomic_load(flag) && !atomic_load(&d->lost)) {
        if (ct_wgpu.native.DevicePoll) {
            ct_wgpu.native.DevicePoll(d->device, 1, NULL);
        } else {
            ct_wgpu.InstanceProcessEvents(d->instance);
            if (!atomic_load(flag)) nanosleep(&(struct timespec){0, 20000}, NULL);
        }
    }
}

/* Both kinds: out of memory is a Validation error to one runtime and a kind of its own to another. */
void ct_wgpu_push(ct_wgpu_device *d) {
    ct_wgpu.DevicePushErrorScope(d->device, WGPUErrorFilter_OutOfMemory);
    ct_wgpu.DevicePushErrorScope(d->device, WGPUErrorFilter_Validation);
}

const char *ct_wgpu_pop(ct_wgpu_device *d) {
    bool wrong = false;
    for (int i = 0; i < 2; i++) {
        scope s = {.device = d};
        const WGPUPopErrorScopeCallbackInfo info = {
            .mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_scope, .userdata1 = &s};
        ct_wgpu.DevicePopErrorScope(d->device, info);
        ct_wgpu_until(d, &s.done);
        wrong |= s.wrong;
    }
    return wrong ? d->fault : NULL;
}

bool ct_wgpu_sound(ct_wgpu_device *d, const char *op) {
    if (atomic_load_explicit(&d->lost, memory_order_relaxed))
        return ct_wgpu_host->fail(
            CT_ERR_DEVICE, op,
            "the device is lost (%s), and what was on it; tensors on the CPU are not, and it is opened again "
            "after all of its tensors are freed and ct_memory_trim is called",
            d->why);
    if (atomic_exchange(&d->failed, false))
        return ct_wgpu_host->fail(CT_ERR_DEVICE, op, "WebGPU reports: %s", d->fault);
    return true;
}

/* ---- Adapters ---- */

static int rank_of(WGPUAdapterType type) {
    return type == WGPUAdapterType_DiscreteGPU     ? 0
           : type == WGPUAdapterType_IntegratedGPU ? 1
           : type == WGPUAdapterType_CPU           ? 3
                                                   : 2;
}

static void name(ct_wgpu_device *d, const WGPUAdapterInfo *info) {
    static const char *const interfaces[] = {
        [WGPUBackendType_Vulkan] = "Vulkan", [WGPUBackendType_Metal] = "Metal", [WGPUBackendType_D3D12] = "D3D12"};
    snprintf(d->name, sizeof d->name, "%.*s", ct_wgpu_length(info->device), info->device.data ? info->device.data : "");
    snprintf(d->driver, sizeof d->driver, "%s%s%.*s%s%.*s", interfaces[info->backendType],
             ct_wgpu_length(info->vendor) ? ", " : "", ct_wgpu_length(info->vendor),
             info->vendor.data ? info->vendor.data : "", ct_wgpu_length(info->description) ? ", " : "",
             ct_wgpu_length(info->description), info->description.data ? info->description.data : "");
}

static bool is_usable(const WGPUAdapterInfo *info) { /* the Null backend computes nothing */
    return info->backendType == WGPUBackendType_Vulkan || info->backendType == WGPUBackendType_Metal ||
           info->backendType == WGPUBackendType_D3D12;
}

/* Takes it over, or lets go of it: of the Null backend, and of OpenGL, which lacks much and shows devices a second time. */
static void add_adapter(WGPUAdapter adapter) {
    WGPUAdapterInfo info = WGPU_ADAPTER_INFO_INIT;
    ct_wgpu.AdapterGetInfo(adapter, &info);
    if (is_usable(&info) && count < CT_WGPU_DEVICES) {
        ct_wgpu_device made = {.adapter = adapter,
                               .instance = ct_wgpu.instance,
                               .kind = rank_of(info.adapterType),
                               .stores_parts = info.backendType != WGPUBackendType_Metal};
        name(&made, &info);
        int at = count++;
        for (; at > 0 && devices[at - 1].kind > made.kind; at--) devices[at] = devices[at - 1]; /* GPUs before CPUs */
        devices[at] = made;
    } else {
        saw_null |= info.backendType == WGPUBackendType_Null;
        ct_wgpu.AdapterRelease(adapter);
    }
    ct_wgpu.AdapterInfoFreeMembers(info);
}

static WGPUAdapter request_adapter(void) {
    WGPUAdapter adapter = NULL;
    _Atomic int done = 0;
    WGPURequestAdapterOptions options = WGPU_REQUEST_ADAPTER_OPTIONS_INIT;
    options.powerPreference = WGPUPowerPreference_HighPerformance;
    const WGPURequestAdapterCallbackInfo info = {.mode = WGPUCallbackMode_AllowSpontaneous,
                                                 .callback = on_adapter,
                                                 .userdata1 = (void *)&done,
                                                 .userdata2 = &adapter};
    ct_wgpu.InstanceRequestAdapter(ct_wgpu.instance, &options, info);
    while (!atomic_load(&done)) ct_wgpu.InstanceProcessEvents(ct_wgpu.instance);
    return adapter;
}

bool ct_wgpu_start(char *why, size_t room) {
    pthread_atfork(NULL, NULL, note_fork);
    ct_wgpu_adopt_waiting();
    if (ct_wgpu.native.InstanceEnumerateAdapters) {
        size_t n = ct_wgpu.native.InstanceEnumerateAdapters(ct_wgpu.instance, NULL, NULL);
        WGPUAdapter *all = n ? calloc(n, sizeof(WGPUAdapter)) : NULL;
        if (all) n = ct_wgpu.native.InstanceEnumerateAdapters(ct_wgpu.instance, NULL, all);
        for (size_t i = 0; all && i < n; i++) add_adapter(all[i]);
        free(all);
    } else {
        WGPUAdapter adapter = request_adapter();
        if (adapter) add_adapter(adapter);
    }
    if (count == 0)
        snprintf(why, room,
                 "%s %s: there is no driver for Vulkan, Metal or D3D12 that it takes (Debian's mesa-vulkan-drivers has "
                 "one that "
                 "needs no GPU)",
                 ct_wgpu.name, saw_null ? "has only its Null backend, which computes nothing" : "finds no adapter");
    for (int i = 0; i < count; i++) pthread_mutex_init(&devices[i].lock, NULL);
    return count > 0;
}

ct_wgpu_device *ct_wgpu_device_at(int index) { return index >= 0 && index < count ? &devices[index] : NULL; }

int ct_wgpu_add(WGPUInstance instance, WGPUAdapter adapter, WGPUDevice device) {
    WGPUAdapterInfo info = WGPU_ADAPTER_INFO_INIT;
    ct_wgpu_device made = {.adapter = adapter, .instance = instance, .given = device, .adopted = true, .kind = -1};
    bool usable = true;
    if (adapter) {
        ct_wgpu.AdapterGetInfo(adapter, &info);
        if ((usable = is_usable(&info))) name(&made, &info);
        ct_wgpu.AdapterInfoFreeMembers(info);
    }
    const int at = count;
    if (at == CT_WGPU_DEVICES || !usable) return -1;
    if (!made.name[0]) snprintf(made.name, sizeof made.name, "a device of the program's");
    devices[at] = made;
    pthread_mutex_init(&devices[at].lock, NULL);
    count = at + 1;
    return at;
}

/* ---- Opening ---- */

static void take_limits(ct_wgpu_device *d) {
    WGPULimits have = WGPU_LIMITS_INIT;
    ct_wgpu.DeviceGetLimits(d->device, &have);
    d->limits = (ct_wgpu_limits){
        .binding = have.maxStorageBufferBindingSize & ~(uint64_t)(CT_WGPU_ALIGNMENT - 1),
        .buffer = have.maxBufferSize & ~(uint64_t)(CT_WGPU_ALIGNMENT - 1),
        .bindings =
            have.maxStorageBuffersPerShaderStage < CT_WGPU_SLOTS ? have.maxStorageBuffersPerShaderStage : CT_WGPU_SLOTS,
        .invocations = have.maxComputeInvocationsPerWorkgroup,
        .shared = have.maxComputeWorkgroupStorageSize,
        .groups = have.maxComputeWorkgroupsPerDimension,
        .f16 = ct_wgpu.DeviceHasFeature(d->device, WGPUFeatureName_ShaderF16),
    };
    WGPUAdapterInfo info = WGPU_ADAPTER_INFO_INIT;
    if (!d->adapter) return;
    ct_wgpu.AdapterGetInfo(d->adapter, &info);
    const char *as_gpu = getenv("CT_WEBGPU_AS_GPU");
    d->limits.software = info.adapterType == WGPUAdapterType_CPU && !(as_gpu && strcmp(as_gpu, "1") == 0);
    if (ct_wgpu.DeviceHasFeature(d->device, (WGPUFeatureName)SUBGROUPS_NATIVE) ||
        ct_wgpu.DeviceHasFeature(d->device, (WGPUFeatureName)SUBGROUPS)) {
        d->limits.subgroup_least = info.subgroupMinSize;
        d->limits.subgroup_most = info.subgroupMaxSize;
    }
    ct_wgpu.AdapterInfoFreeMembers(info);
}

/* The program's own device, once. */
static bool open_given(ct_wgpu_device *d) {
    if (!d->given) return ct_wgpu_host->fail(CT_ERR_DEVICE, "webgpu", "the program has taken its device back");
    d->device = d->given;
    d->given = NULL;
    return true;
}

static bool open_new(ct_wgpu_device *d) {
    WGPULimits limits = WGPU_LIMITS_INIT;
    if (d->generation && !ct_wgpu.native.DevicePoll) { /* Dawn's adapters are good for one device */
        WGPUAdapter fresh = request_adapter();
        if (!fresh) return ct_wgpu_host->fail(CT_ERR_DEVICE, "webgpu", "%s is there no more", d->name);
        ct_wgpu.AdapterRelease(d->adapter);
        d->adapter = fresh;
    }
    ct_wgpu.AdapterGetLimits(d->adapter, &limits);
    const int wanted[] = {WGPUFeatureName_ShaderF16, SUBGROUPS_NATIVE, SUBGROUPS, DAWN_THREADS};
    WGPUFeatureName features[sizeof wanted / sizeof *wanted];
    size_t n = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (ct_wgpu.AdapterHasFeature(d->adapter, (WGPUFeatureName)wanted[i]))
            features[n++] = (WGPUFeatureName)wanted[i];
    WGPUDeviceDescriptor descriptor = WGPU_DEVICE_DESCRIPTOR_INIT;
    descriptor.requiredFeatures = features;
    descriptor.requiredFeatureCount = n;
    descriptor.requiredLimits = &limits;
    descriptor.uncapturedErrorCallbackInfo.callback = on_error; /* without one the first error aborts */
    descriptor.uncapturedErrorCallbackInfo.userdata1 = d;
    descriptor.deviceLostCallbackInfo.callback = on_lost;
    descriptor.deviceLostCallbackInfo.userdata1 = d;
    descriptor.deviceLostCallbackInfo.mode = WGPUCallbackMode_AllowSpontaneous;
    opening o = {0};
    const WGPURequestDeviceCallbackInfo info = {
        .mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_device, .userdata1 = &o};
    atomic_store(&d->lost, false);
    atomic_store(&d->failed, false);
    ct_wgpu.AdapterRequestDevice(d->adapter, &descriptor, info);
    while (!atomic_load(&o.done)) ct_wgpu.InstanceProcessEvents(ct_wgpu.instance);
    if (!o.device) return ct_wgpu_host->fail(CT_ERR_DEVICE, "webgpu", "%s cannot be opened: %s", d->name, o.why);
    d->device = o.device;
    return true;
}

/* A program that ends takes drivers apart while their threads may still be at work for it: lavapipe's crash in its compiler then. Who is
 * registered last, after the driver's own, is called first. */
static void settle_at_exit(void) {
    if (atomic_load(&forked)) return;
    for (int i = 0; i < count; i++) {
        ct_wgpu_device *d = &devices[i];
        if (d->adopted || pthread_mutex_trylock(&d->lock)) continue;
        if (d->device && !atomic_load(&d->lost)) ct_wgpu_settle(d);
        pthread_mutex_unlock(&d->lock);
    }
}

/* Drivers that compute on the CPU make parts of their compiler at its first use; these are taken apart before what was registered earlier
 * is called. So the first work is waited for, and the wait at the end is registered once more. */
void ct_wgpu_first_work(ct_wgpu_device *d) {
    static atomic_flag registered = ATOMIC_FLAG_INIT;
    if (d->adopted || atomic_flag_test_and_set(&registered)) return;
    ct_wgpu_settle(d);
    atexit(settle_at_exit);
}

static bool open_device(ct_wgpu_device *d) {
    static atomic_flag registered = ATOMIC_FLAG_INIT;
    if (!(d->adopted ? open_given(d) : open_new(d))) return false;
    d->queue = ct_wgpu.DeviceGetQueue(d->device);
    d->generation++;
    take_limits(d);
    if (!d->adopted && !atomic_flag_test_and_set(&registered)) atexit(settle_at_exit);
    if (ct_wgpu_queue_open(d)) return true;
    ct_wgpu_queue_close(d);
    ct_wgpu.DeviceRelease(d->device);
    d->device = NULL;
    return ct_wgpu_host->fail(CT_ERR_MEMORY, "webgpu", "%s has no memory to begin with", d->name);
}

/* After a loss, when nothing of the core's is left on it. */
static void close_device(ct_wgpu_device *d) {
    ct_wgpu_launch_close(d);
    ct_wgpu_queue_close(d);
    if (d->queue) ct_wgpu.QueueRelease(d->queue);
    if (d->device) ct_wgpu.DeviceRelease(d->device);
    if (d->adopted && d->device) ct_wgpu.InstanceRelease(d->instance);
    if (d->adopted && d->device && d->adapter) ct_wgpu.AdapterRelease(d->adapter);
    d->queue = NULL;
    d->device = NULL;
}

ct_wgpu_device *ct_wgpu_enter(int index) {
    if (atomic_load_explicit(&forked, memory_order_relaxed)) {
        ct_wgpu_host->fail(
            CT_ERR_DEVICE, "webgpu",
            "a process that was forked after WebGPU was used cannot use it; start the child before, or run "
            "another program");
        return NULL;
    }
    if (index < 0 || index >= count) {
        ct_wgpu_host->fail(CT_ERR_DEVICE, "webgpu", "there is no device %d", index);
        return NULL;
    }
    ct_wgpu_device *d = &devices[index];
    pthread_mutex_lock(&d->lock);
    if (atomic_load(&d->lost) && d->live == 0) close_device(d);
    if (d->device ? ct_wgpu_sound(d, "webgpu") : open_device(d)) return d;
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* A buffer that was made before a loss is not the present device's. */
static bool is_current(const ct_wgpu_device *d, const ct_wgpu_buffer *buffer) {
    return buffer->generation == d->generation ||
           ct_wgpu_host->fail(CT_ERR_DEVICE, "webgpu", "the tensor was on a device that was lost");
}

/* ---- The contract ---- */

static int device_count(void *self) { return (void)self, count; }

static bool device_info(void *self, int index, ct_device_info *info) {
    (void)self;
    ct_wgpu_device *d = ct_wgpu_enter(index);
    if (!d) return false;
    snprintf(info->name, sizeof info->name, "%s", d->name);
    snprintf(info->driver, sizeof info->driver, "%s", d->driver);
    snprintf(info->libraries, sizeof info->libraries, "%s", ct_wgpu.name);
    char subgroups[48] = "no subgroups";
    if (d->limits.subgroup_most)
        snprintf(subgroups, sizeof subgroups, "subgroups of %u to %u", d->limits.subgroup_least,
                 d->limits.subgroup_most);
    if (info->size >= sizeof *info)
        snprintf(
            info->features, sizeof info->features,
            "%s, %s; workgroups of %u invocations and %u bytes; %u bindings of %llu MiB, buffers of %llu MiB; no f64",
            d->limits.f16 ? "f16" : "no f16", subgroups, d->limits.invocations, d->limits.shared, d->limits.bindings,
            (unsigned long long)(d->limits.binding >> 20), (unsigned long long)(d->limits.buffer >> 20));
    ct_wgpu_leave(d);
    return true;
}

static bool allocate(void *self, int index, size_t bytes, void **memory) {
    (void)self;
    ct_wgpu_device *d = ct_wgpu_enter(index);
    if (!d) return false;
    const uint64_t size = ((uint64_t)bytes + CT_WGPU_ALIGNMENT - 1) & ~(uint64_t)(CT_WGPU_ALIGNMENT - 1);
    ct_wgpu_buffer *made = size && size <= d->limits.buffer ? malloc(sizeof *made) : NULL;
    if (made) {
        *made = (ct_wgpu_buffer){.size = size, .generation = d->generation};
        made->buffer =
            ct_wgpu_make_buffer(d, size, WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst);
        if (made->buffer) d->live++;
        else free(made), made = NULL;
    }
    ct_wgpu_leave(d);
    *memory = made;
    return made != NULL;
}

static void release(void *self, int index, void *memory, size_t bytes) {
    (void)self, (void)bytes;
    ct_wgpu_buffer *buffer = memory;
    if (!buffer || atomic_load(&forked)) return;
    ct_wgpu_device *d = &devices[index];
    pthread_mutex_lock(&d->lock);
    ct_wgpu_forget_buffer(d, buffer);
    ct_wgpu.BufferRelease(buffer->buffer);
    if (buffer->generation == d->generation) d->live--;
    pthread_mutex_unlock(&d->lock);
    free(buffer);
}

static bool upload(void *self, int index, void *buffer, size_t offset, const void *host, size_t bytes,
                   ct_stream *stream) {
    (void)self, (void)stream;
    ct_wgpu_device *d = ct_wgpu_enter(index);
    if (!d) return false;
    const bool ok = is_current(d, buffer) && ct_wgpu_upload(d, buffer, offset, host, bytes);
    ct_wgpu_leave(d);
    return ok;
}

static bool download(void *self, int index, void *host, const void *buffer, size_t offset, size_t bytes,
                     ct_stream *stream) {
    (void)self, (void)stream;
    ct_wgpu_device *d = ct_wgpu_enter(index);
    if (!d) return false;
    const bool ok = is_current(d, buffer) && ct_wgpu_download(d, host, buffer, offset, bytes);
    ct_wgpu_leave(d);
    return ok;
}

static bool copy(void *self, int index, void *to, size_t to_offset, const void *from, size_t from_offset, size_t bytes,
                 ct_stream *stream) {
    (void)self, (void)stream;
    ct_wgpu_device *d = ct_wgpu_enter(index);
    if (!d) return false;
    const bool ok = is_current(d, to) && is_current(d, from) &&
                    ct_wgpu_move(d, 0, to, to_offset, (ct_wgpu_buffer *)(uintptr_t)from, from_offset, bytes);
    ct_wgpu_leave(d);
    return ok;
}

static bool fill(void *self, int index, void *buffer, size_t offset, const void *pattern, size_t size, size_t n,
                 ct_stream *stream) {
    (void)self, (void)stream;
    ct_wgpu_device *d = ct_wgpu_enter(index);
    if (!d) return false;
    const bool ok = is_current(d, buffer) && ct_wgpu_fill(d, buffer, offset, pattern, size, n);
    ct_wgpu_leave(d);
    return ok;
}

static bool wait_for(void *self, int index, ct_stream *stream) {
    (void)self, (void)stream;
    ct_wgpu_device *d = ct_wgpu_enter(index);
    if (!d) return false;
    const bool ok = ct_wgpu_wait(d, "webgpu");
    ct_wgpu_leave(d);
    return ok;
}

/* ---- What kernels ask for ---- */

const ct_wgpu_limits *ct_wgpu_limits_of(const ct_call *call) { return &devices[call->device.index].limits; }

bool ct_wgpu_enqueue(const ct_call *call, const ct_wgpu_launch *launch, int64_t groups, const void *params,
                     size_t params_bytes) {
    if (groups <= 0) return true;
    ct_wgpu_device *d = ct_wgpu_enter(call->device.index);
    if (!d) return false;
    bool ok = true;
    for (int i = 0; ok && i < launch->n; i++)
        ok = !launch->operands[i].buffer || is_current(d, launch->operands[i].buffer);
    const ct_wgpu_caller caller = {call->op, call->called, call->flags};
    ok = ok && ct_wgpu_dispatch(d, &caller, launch, groups, params, params_bytes);
    ct_wgpu_leave(d);
    return ok;
}

const ct_backend ct_wgpu_backend = {.size = sizeof(ct_backend),
                                    .version = CT_BACKEND_VERSION,
                                    .name = "webgpu",
                                    .alignment = CT_WGPU_ALIGNMENT,
                                    .device_count = device_count,
                                    .device_info = device_info,
                                    .allocate = allocate,
                                    .release = release,
                                    .upload = upload,
                                    .download = download,
                                    .copy = copy,
                                    .fill = fill,
                                    .wait = wait_for,
                                    .kernels = ct_wgpu_kernels_of,
                                    .kernel_size = sizeof(ct_kernel),
                                    .dtypes = ~(1u << CT_F64)};
