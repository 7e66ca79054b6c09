/* Which ops the module for WebGPU has kernels for, wherever it can be built; without it the test is skipped. */
#include "tests/module_kernels.h"

TEST(every_primitive_has_a_kernel_for_webgpu) {
    const ct_backend_kernels_entry kernels = module_kernels("webgpu");
    if (!kernels) SKIP("there is no module for WebGPU: webgpu.h was not found");
    every_primitive_has_a_kernel(kernels);
}
