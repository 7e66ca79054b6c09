/* What the tests of WebGPU begin with. Without a driver, a runtime or the module they are skipped and say why. */
#ifndef COTANGENT_TESTS_WEBGPU_DEVICE_H
#define COTANGENT_TESTS_WEBGPU_DEVICE_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"

static inline void webgpu_environment(void) {
    setenv("NODEVICE_SELECT", "1", 0); /* a layer of Mesa's that asks Wayland which GPU shows the screen */
    if (!getenv("CT_BACKEND_PATH")) setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
}

/* Of drivers that compute on a CPU, which otherwise get kernels of their own. Before WEBGPU. */
static inline void webgpu_as_for_a_gpu(void) { setenv("CT_WEBGPU_AS_GPU", "1", 1); }

static inline bool webgpu_found(ct_device *device) {
    webgpu_environment();
    if (ct_device_parse("webgpu", device)) return true;
    printf("%s\n", ct_error());
    ct_error_clear();
    return false;
}

#define WEBGPU(device) \
    ct_device device;  \
    if (!webgpu_found(&device)) SKIP("there is no device for WebGPU, or no module or runtime for it")

#endif
