/* Whether an ARM processor has products of pairs of bf16 and of four bytes, as the system tells. */
#ifndef CT_BACKENDS_CPU_GEMM_ARM_H
#define CT_BACKENDS_CPU_GEMM_ARM_H

#include <stdbool.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
static inline bool ct__arm_has_bf16(void) {
    const unsigned long i8mm = 1ul << 13, bf16 = 1ul << 14; /* HWCAP2_I8MM, HWCAP2_BF16 */
    return (getauxval(AT_HWCAP2) & (i8mm | bf16)) == (i8mm | bf16);
}
#else
static inline bool ct__arm_has_bf16(void) { return false; }
#endif

#endif
