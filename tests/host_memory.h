/* The host's memory in one expression, for tests that measure what they use. */
#ifndef COTANGENT_TESTS_HOST_MEMORY_H
#define COTANGENT_TESTS_HOST_MEMORY_H

#include <cotangent.h>

static inline ct_memory harness_memory(void) {
    ct_memory memory = {.size = sizeof memory};
    ct_memory_stats((ct_device){CT_CPU, 0}, &memory);
    return memory;
}
static inline void harness_reset_peak(void) { ct_memory_reset_peak((ct_device){CT_CPU, 0}); }

#endif
