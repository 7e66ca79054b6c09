/* What the tests on an NVIDIA device begin with. Without a device, or without the module (make cuda), they are skipped and say why. */
#ifndef COTANGENT_TESTS_CUDA_DEVICE_H
#define COTANGENT_TESTS_CUDA_DEVICE_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"

static inline bool cuda_found(ct_device *device) {
    if (!getenv("CT_BACKEND_PATH")) setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    if (ct_device_parse("cuda", device)) return true;
    printf("%s\n", ct_error());
    ct_error_clear();
    return false;
}

#define CUDA(device)  \
    ct_device device; \
    if (!cuda_found(&device)) SKIP("there is no NVIDIA device, or no module for it (make cuda)")

#endif
