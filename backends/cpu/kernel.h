/* What every kernel file, ops/NAME/cpu/FILE.c, includes, and after it its attributes, "gen/NAME.attrs.h": the kernel
 * contract, the SIMD wrapper, threads, and typed addresses. Such a file is compiled once per ISA level, so all it defines is
 * static, but for its CT_KERNELS table; the ops as functions are not declared in it (CT_WITHOUT_OPS), since a kernel calls
 * none. */
#ifndef COTANGENT_BACKENDS_CPU_KERNEL_H
#define COTANGENT_BACKENDS_CPU_KERNEL_H

#include <cotangent/backend.h>
#include <stdint.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/simd/simd.h"
#include "backends/kernel_list.h"
#include "core/threads.h"

/* What ops/FOLDER/cpu/FILE.c holds, at its end: CT_KERNELS(FOLDER_FILE) = {CT_CANDIDATES(op, {...}), ..., {0}}; */
#define CT_KERNELS(file) const ct_kernel_row CT_ISA_FN(ct__kernels_##file)[]

/* The address of a view's first element, typed by the caller. */
#define CT_AT(type, view) ((type *)ct__address((view), sizeof(type)))

static inline int64_t ct__min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ct__max64(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
