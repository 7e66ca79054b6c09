/* Devices that are host memory but not the CPU, registered by the program that asks for one. Unlike those of the guarded device, which is
 * a module, their memory may be looked at by the test, and they count what the library reads. */
#ifndef COTANGENT_TESTS_HARNESS_BACKEND_H
#define COTANGENT_TESTS_HARNESS_BACKEND_H

#include <cotangent/backend.h>
#include <stdatomic.h>

typedef enum harness_kernels {
    HARNESS_ALL_KERNELS, /* "plain": those of the CPU */
    HARNESS_PRIMITIVES,  /* "primitive": of ops that have no lowering */
    HARNESS_NO_KERNELS,  /* "bare" */
} harness_kernels;

ct_device harness_device(harness_kernels which);
extern _Atomic int harness_reads; /* of any of the devices, by the host */

#endif
