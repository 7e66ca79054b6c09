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
extern _Atomic int harness_reads, harness_waits; /* of any of the devices, by the host */

/* Such a backend for a test to change and register: two devices, all kernels. And its candidates for an op as a module has them whose
 * ct_kernel is of another size, from 4 pointers on. */
ct_backend harness_backend(const char *name);
const ct_kernel *harness_kernels_sized(const ct_op *op, size_t size);

#endif
