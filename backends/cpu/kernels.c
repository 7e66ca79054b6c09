/* The kernels of one ISA level, file by file (backends/kernel_list.h). Compiled once per level; the list is generated. */
#include <stddef.h>

#include "backends/cpu/kernel.h"

#include "gen/narrow_kernels.h"

#define CT_KERNEL_FILE(file) extern const ct_kernel_row CT_ISA_FN(ct__kernels_##file)[];
#include "gen/kernels_cpu.inc"
#undef CT_KERNEL_FILE

#define CT_KERNEL_FILE(file) CT_ISA_FN(ct__kernels_##file),
extern const ct_kernel_row *const CT_ISA_FN(ct__cpu_kernels)[];
const ct_kernel_row *const CT_ISA_FN(ct__cpu_kernels)[] = {
#include "gen/kernels_cpu.inc"
    NULL,
};
#undef CT_KERNEL_FILE
