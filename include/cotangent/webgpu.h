/* WebGPU and the program around: a device that the program has made itself, and what becomes of a device that is lost. Everything here
 * goes to the module for WebGPU (libcotangent_webgpu.so); a program that has none gets an error.
 *
 * Handles are those of webgpu.h (WGPUDevice and so on), given as void *: this header needs neither that one nor a runtime. */
#ifndef COTANGENT_WEBGPU_H
#define COTANGENT_WEBGPU_H

#include <cotangent/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A device of the program's own. The module takes references to what is given, and lets go of them after ct_webgpu_lose.
 *
 * The device has to have an uncaptured error callback (some runtimes abort at an error otherwise), and the module has its error scopes
 * for itself while one of its calls runs. It has as much of f16 and subgroups, and limits as high, as it was made with. */
typedef struct ct_webgpu_given {
    uint32_t size;  /* sizeof(ct_webgpu_given) */
    void *instance; /* WGPUInstance: where the events of the device are processed */
    void *device;   /* WGPUDevice */
    void *adapter;  /* WGPUAdapter, for names and sizes of subgroups; may be NULL */
    /* The functions of the runtime that it is of, by name ("wgpuDeviceCreateBuffer"); NULL: those of the runtime that the module finds
     * itself (CT_WEBGPU_LIBRARY, and so on), which has to be the same library. It counts where it is given before WebGPU is first used. */
    void *(*function)(void *context, const char *name);
    void *context;
} ct_webgpu_given;

/* What the module exports. They write why they fail to why. */
#define CT_WEBGPU_ADOPT "ct_webgpu_adopt_device"
typedef bool (*ct_webgpu_adopt_entry)(const ct_webgpu_given *given, int *index, char *why, size_t room);
#define CT_WEBGPU_LOSE "ct_webgpu_lose_device"
typedef bool (*ct_webgpu_lose_entry)(int index, char *why, size_t room);
#define CT_WEBGPU_COMPILE "ct_webgpu_compile_text"
typedef bool (*ct_webgpu_compile_entry)(int index, const char *text, char *why, size_t room);

/* Makes it a device of Cotangent's: *device is its name from here on. Before WebGPU is first used it becomes device 0. */
static inline bool ct_webgpu_adopt(const ct_webgpu_given *given, ct_device *device) {
    char why[512] = "";
    int index = 0;
    const ct_webgpu_adopt_entry entry = (ct_webgpu_adopt_entry)ct_backend_symbol("webgpu", CT_WEBGPU_ADOPT);
    if (!entry) return false;
    if (!entry(given, &index, why, sizeof why)) return ct_fail(CT_ERR_DEVICE, "webgpu_adopt", "%s", why);
    const char *missing = ct_backend_missing(CT_WEBGPU);
    if (missing[0]) return ct_fail(CT_ERR_DEVICE, "webgpu_adopt", "%s", missing);
    device->type = CT_WEBGPU;
    device->index = index;
    return true;
}

/* Takes a device away, as a driver that is reset does: what is on it is lost, and calls with it are errors that say so. One of the
 * module's own is opened again when all of its tensors are freed and ct_memory_trim is called; the program's own is let go of. */
static inline bool ct_webgpu_lose(ct_device device) {
    char why[512] = "";
    const ct_webgpu_lose_entry entry = (ct_webgpu_lose_entry)ct_backend_symbol("webgpu", CT_WEBGPU_LOSE);
    if (!entry) return false;
    return entry(device.index, why, sizeof why) || ct_fail(CT_ERR_DEVICE, "webgpu_lose", "%s", why);
}

/* Whether a device's compiler takes a text in WGSL that has an entry point main; the error is its message if not. */
static inline bool ct_webgpu_compile(ct_device device, const char *text) {
    char why[1024] = "";
    const ct_webgpu_compile_entry entry = (ct_webgpu_compile_entry)ct_backend_symbol("webgpu", CT_WEBGPU_COMPILE);
    if (!entry) return false;
    return entry(device.index, text, why, sizeof why) || ct_fail(CT_ERR_DEVICE, "webgpu_compile", "%s", why);
}

#ifdef __cplusplus
}
#endif
#endif
