/* Which ops the module for NVIDIA devices has kernels for, wherever it can be built (make cuda); without it the test is skipped. */
#include "tests/module_kernels.h"

TEST(every_primitive_has_a_kernel_for_nvidia_devices) {
    const ct_backend_kernels_entry kernels = module_kernels("cuda");
    if (!kernels) SKIP("there is no module for NVIDIA devices (make cuda)");
    every_primitive_has_a_kernel(kernels);
}
