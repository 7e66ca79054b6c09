/* What the tests on a WebGPU device begin with. Without a device, a runtime or the module they are skipped and say why. */
#ifndef COTANGENT_TESTS_WEBGPU_DEVICE_H
#define COTANGENT_TESTS_WEBGPU_DEVICE_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"

static inline bool webgpu_found(ct_device *device) {
    if (!getenv("CT_BACKEND_PATH")) setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    if (ct_device_parse("webgpu", device)) return true;
    printf("%s\n", ct_error());
    ct_error_clear();
    return false;
}

#define WEBGPU(device) \
    ct_device device;  \
    if (!webgpu_found(&device)) SKIP("there is no WebGPU device, no runtime or no module for it")

#endif
