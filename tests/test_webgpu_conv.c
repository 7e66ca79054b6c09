/* Random convolutions on WebGPU against the CPU in f64 (tests/random_conv.h). Without a device all of it is skipped, and says why. */
#include "tests/random_conv.h"
#include "tests/webgpu_device.h"

enum { CONFIGURATIONS = 300 };

TEST_LIMIT(random_convolutions_agree_with_the_cpu_1, 300) {
    WEBGPU(d);
    sweep(d, 0, CONFIGURATIONS / 2);
}
TEST_LIMIT(random_convolutions_agree_with_the_cpu_2, 300) {
    WEBGPU(d);
    sweep(d, CONFIGURATIONS / 2, CONFIGURATIONS);
}
