/* What the module offers programs beside the contract (cotangent/webgpu.h): devices of their own, the loss of a device, and the compiler. */
#include <cotangent/webgpu.h>
#include <stdio.h>

#include "backends/webgpu/device.h"

/* Given before the module was opened: references are taken when the runtime's functions are known. */
static ct_webgpu_given waiting[CT_WGPU_DEVICES];
static int n_waiting;
static void *(*function_of)(void *context, const char *name);
static void *function_context;
static bool started;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool ct_wgpu_given_function(const char *name, void *function, size_t size) {
    void *found = function_of ? function_of(function_context, name) : NULL;
    if (function_of) memcpy(function, &found, size);
    return function_of != NULL;
}

static int adopt(const ct_webgpu_given *given) {
    const int index = ct_wgpu_add(given->instance, given->adapter, given->device);
    if (index < 0) return index;
    ct_wgpu.InstanceAddRef(given->instance);
    ct_wgpu.DeviceAddRef(given->device);
    if (given->adapter) ct_wgpu.AdapterAddRef(given->adapter);
    return index;
}

void ct_wgpu_adopt_waiting(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_waiting; i++) adopt(&waiting[i]);
    n_waiting = 0;
    started = true;
    pthread_mutex_unlock(&lock);
}

static bool wrong(char *why, size_t room, const char *text) {
    snprintf(why, room, "%s", text);
    return false;
}

CT_API bool ct_webgpu_adopt_device(const ct_webgpu_given *given, int *index, char *why, size_t room);
bool ct_webgpu_adopt_device(const ct_webgpu_given *given, int *index, char *why, size_t room) {
    if (!given || !index || given->size < sizeof *given)
        return wrong(why, room, "given is NULL, or of another version");
    if (!given->instance || !given->device)
        return wrong(why, room, "both the instance and the device have to be given");
    pthread_mutex_lock(&lock);
    bool ok = true;
    if (started && given->function && given->function != function_of) {
        ok = wrong(why, room, "WebGPU is in use already, by another runtime: give the functions before that");
    } else if (started) {
        *index = adopt(given);
        ok = *index >= 0 || wrong(why, room, "it computes nothing (the Null backend), or there are too many devices");
    } else if (n_waiting == CT_WGPU_DEVICES || (n_waiting && given->function != function_of)) {
        ok = wrong(why, room, "there are too many devices, or they are of several runtimes");
    } else {
        function_of = given->function;
        function_context = given->context;
        *index = n_waiting;
        waiting[n_waiting++] = *given;
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

/* Errors that the host would raise go to why: the caller raises them under its own name. */
static ct_wgpu_device *enter(int index, char *why, size_t room) {
    if (!ct_wgpu_host || !ct_wgpu_device_at(index)) return (void)wrong(why, room, "there is no such device"), NULL;
    ct_wgpu_device *d = ct_wgpu_enter(index);
    if (!d) wrong(why, room, "the device cannot be used");
    return d;
}

CT_API bool ct_webgpu_lose_device(int index, char *why, size_t room);
bool ct_webgpu_lose_device(int index, char *why, size_t room) {
    ct_wgpu_device *d = enter(index, why, room);
    if (!d) return false;
    if (!d->adopted) {
        ct_wgpu.DeviceDestroy(d->device);
        if (ct_wgpu.native.DevicePoll) ct_wgpu.native.DevicePoll(d->device, 0, NULL);
        else ct_wgpu.InstanceProcessEvents(d->instance);
    }
    if (!atomic_load(&d->lost)) {
        snprintf(d->why, sizeof d->why, d->adopted ? "the program has taken it back" : "it was destroyed");
        atomic_store(&d->lost, true);
    }
    ct_wgpu_leave(d);
    return true;
}

CT_API bool ct_webgpu_compile_text(int index, const char *text, char *why, size_t room);
bool ct_webgpu_compile_text(int index, const char *text, char *why, size_t room) {
    ct_wgpu_device *d = enter(index, why, room);
    if (!d) return false;
    WGPUShaderSourceWGSL source = {.chain = {.sType = WGPUSType_ShaderSourceWGSL},
                                   .code = ct_wgpu_string(text ? text : "")};
    WGPUShaderModuleDescriptor descriptor = WGPU_SHADER_MODULE_DESCRIPTOR_INIT;
    WGPUComputePipelineDescriptor pipelines = WGPU_COMPUTE_PIPELINE_DESCRIPTOR_INIT;
    descriptor.nextInChain = &source.chain;
    ct_wgpu_push(d);
    WGPUShaderModule module = ct_wgpu.DeviceCreateShaderModule(d->device, &descriptor);
    pipelines.compute.module = module;
    pipelines.compute.entryPoint = ct_wgpu_string("main");
    WGPUComputePipeline pipeline = module ? ct_wgpu.DeviceCreateComputePipeline(d->device, &pipelines) : NULL;
    const char *error = ct_wgpu_pop(d);
    if (error || !pipeline) snprintf(why, room, "%s", error ? error : "it cannot be compiled");
    if (pipeline) ct_wgpu.ComputePipelineRelease(pipeline);
    if (module) ct_wgpu.ShaderModuleRelease(module);
    ct_wgpu_leave(d);
    return !error && pipeline;
}
