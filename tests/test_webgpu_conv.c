/* Random convolutions on WebGPU against the CPU in f64 (tests/random_conv.h). Without a device all of it is skipped, and says why. */
#include "tests/random_conv.h"
#include "tests/webgpu_device.h"

/* CT_TEST_CONVOLUTIONS: how many, in all; a few where nobody says. */
static int half_of_them(void) {
    const char *text = getenv("CT_TEST_CONVOLUTIONS");
    return (text ? atoi(text) : 24) / 2;
}

TEST_LIMIT(random_convolutions_agree_with_the_cpu_1, 300) {
    WEBGPU(d);
    sweep(d, 0, half_of_them());
}
TEST_LIMIT(random_convolutions_agree_with_the_cpu_2, 300) {
    WEBGPU(d);
    sweep(d, 1000, 1000 + half_of_them());
}
