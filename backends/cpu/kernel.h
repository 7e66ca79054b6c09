/* What every ops/NAME/NAME.cpu.c includes, and after it its attributes, "gen/NAME.attrs.h": the kernel contract, the SIMD wrapper,
 * threads, and typed addresses. Such a file is compiled once per ISA level, so all it defines is static, but for its CT_KERNELS
 * tables; the ops as functions are not declared in it (CT_WITHOUT_OPS), since a kernel calls none. */
#ifndef COTANGENT_BACKENDS_CPU_KERNEL_H
#define COTANGENT_BACKENDS_CPU_KERNEL_H

#include <cotangent/backend.h>
#include <stdint.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/simd/simd.h"
#include "core/threads.h"

/* CT_KERNELS(softmax) = {{"softmax_rows", can, scratch, run}, {0}}; candidates in order of preference. */
#define CT_KERNELS(op) const ct_kernel CT_ISA_FN(ct__kernels_##op)[]

/* The address of a view's first element, typed by the caller. */
#define CT_AT(type, view) ((type *)ct__address((view), sizeof(type)))

static inline int64_t ct__min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ct__max64(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
