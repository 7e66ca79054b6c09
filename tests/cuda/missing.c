/* Those of the driver's functions that the tests' driver (driver.c) lacks: names for one function that fails. */
#include "backends/cuda/driver.h"

int ct_tests_missing(void);
int ct_tests_missing(void) { return CUDA_ERROR_NOT_SUPPORTED; }

#define X(name) __asm__(".weak " #name "\n.set " #name ", ct_tests_missing\n");
CT_CUDA_DRIVER_FUNCTIONS(X)
