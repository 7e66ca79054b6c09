/* Which backends are there, and why the others are not. */
#include "core/device.h"

#include "backends/cpu/cpu.h"
#include "core/error.h"

static const ct_backend cuda = {.name = "cuda", .missing = "this build has no CUDA backend"};
static const ct_backend webgpu = {.name = "webgpu", .missing = "this build has no WebGPU backend"};

const ct_backend *ct__backend(ct_device_type type) {
    switch (type) {
    case CT_CPU: return &ct__cpu_backend;
    case CT_WEBGPU: return &webgpu;
    default: return &cuda;
    }
}

const char *ct_backend_missing(ct_device_type type) {
    if ((unsigned)type >= CT_DEVICE_TYPE_COUNT) return "there is no such device type";
    return ct__backend(type)->missing;
}

bool ct__device_ok(ct_device device, const char *op) {
    if ((unsigned)device.type >= CT_DEVICE_TYPE_COUNT)
        return ct_fail(CT_ERR_DEVICE, op, "%d is not a device type", (int)device.type);
    const ct_backend *backend = ct__backend(device.type);
    if (backend->missing[0])
        return ct_fail(CT_ERR_DEVICE, op, "the device %s cannot be used: %s", backend->name, backend->missing);
    if (device.type == CT_CPU && device.index != 0)
        return ct_fail(CT_ERR_DEVICE, op, "there is one cpu device, not cpu:%d", device.index);
    return true;
}
