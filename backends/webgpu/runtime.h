/* The WebGPU runtime, opened when the module is: which library, and its functions. */
#ifndef COTANGENT_BACKENDS_WEBGPU_RUNTIME_H
#define COTANGENT_BACKENDS_WEBGPU_RUNTIME_H

#define WGPU_SKIP_DECLARATIONS
#include <stdbool.h>
#include <stddef.h>
#include <webgpu.h>

#define CT_WGPU_FUNCTIONS(X)                \
    X(CreateInstance)                       \
    X(InstanceRequestAdapter)               \
    X(InstanceProcessEvents)                \
    X(AdapterGetInfo)                       \
    X(AdapterInfoFreeMembers)               \
    X(AdapterGetLimits)                     \
    X(AdapterHasFeature)                    \
    X(AdapterRequestDevice)                 \
    X(AdapterRelease)                       \
    X(AdapterAddRef)                        \
    X(InstanceAddRef)                       \
    X(InstanceRelease)                      \
    X(DeviceAddRef)                         \
    X(DeviceGetQueue)                       \
    X(DeviceGetLimits)                      \
    X(DeviceHasFeature)                     \
    X(DeviceCreateBuffer)                   \
    X(DeviceCreateShaderModule)             \
    X(DeviceCreateComputePipeline)          \
    X(DeviceCreateBindGroup)                \
    X(DeviceCreateBindGroupLayout)          \
    X(DeviceCreatePipelineLayout)           \
    X(DeviceCreateCommandEncoder)           \
    X(DevicePushErrorScope)                 \
    X(DevicePopErrorScope)                  \
    X(DeviceDestroy)                        \
    X(DeviceRelease)                        \
    X(ComputePipelineRelease)               \
    X(BindGroupLayoutRelease)               \
    X(BindGroupRelease)                     \
    X(ShaderModuleRelease)                  \
    X(PipelineLayoutRelease)                \
    X(CommandEncoderBeginComputePass)       \
    X(CommandEncoderCopyBufferToBuffer)     \
    X(CommandEncoderFinish)                 \
    X(CommandEncoderRelease)                \
    X(ComputePassEncoderSetPipeline)        \
    X(ComputePassEncoderSetBindGroup)       \
    X(ComputePassEncoderDispatchWorkgroups) \
    X(ComputePassEncoderEnd)                \
    X(ComputePassEncoderRelease)            \
    X(CommandBufferRelease)                 \
    X(QueueSubmit)                          \
    X(QueueWriteBuffer)                     \
    X(QueueOnSubmittedWorkDone)             \
    X(QueueRelease)                         \
    X(BufferMapAsync)                       \
    X(BufferGetConstMappedRange)            \
    X(BufferUnmap)                          \
    X(BufferDestroy)                        \
    X(BufferRelease)

/* What wgpu-native has beside the standard: waiting, all adapters, shaders without checks of its own. Its header has too much for us. */
typedef struct ct_wgpu_extras {
    WGPUBool (*DevicePoll)(WGPUDevice device, WGPUBool wait, const uint64_t *index);
    size_t (*InstanceEnumerateAdapters)(WGPUInstance instance, const void *options, WGPUAdapter *adapters);
    WGPUShaderModule (*DeviceCreateShaderModuleTrusted)(WGPUDevice device, const WGPUShaderModuleDescriptor *descriptor,
                                                        uint64_t checks);
} ct_wgpu_extras;

typedef struct ct_wgpu_runtime {
#define CT_WGPU_MEMBER(name) WGPUProc##name name;
    CT_WGPU_FUNCTIONS(CT_WGPU_MEMBER)
#undef CT_WGPU_MEMBER
    ct_wgpu_extras native; /* all NULL: it is another runtime (Dawn) */
    WGPUInstance instance;
    char name[96]; /* "wgpu-native 29.0.1.1" */
} ct_wgpu_runtime;
extern ct_wgpu_runtime ct_wgpu;

/* Opens the library (CT_WEBGPU_LIBRARY, Dawn, wgpu-native, the one of an installed Python wheel) and makes an instance; false: why. */
bool ct_wgpu_open(char *why, size_t room);

static inline int ct_wgpu_length(WGPUStringView s) {
    if (!s.data) return 0;
    size_t n = 0;
    while (n < s.length && n < 4096 && s.data[n]) n++; /* WGPU_STRLEN is SIZE_MAX */
    return (int)n;
}
static inline WGPUStringView ct_wgpu_string(const char *s) { return (WGPUStringView){s, WGPU_STRLEN}; }

#endif
