/* The kernels of one ISA level, by op. Compiled once per level; the list is generated. */
#include <stddef.h>

#include "backends/cpu/kernel.h"

#define CT_KERNEL_ENTRY(index, name) extern const ct_kernel CT_ISA_FN(ct__kernels_##name)[];
#include "gen/kernels.inc"
#undef CT_KERNEL_ENTRY

#define CT_KERNEL_ENTRY(index, name) [index] = CT_ISA_FN(ct__kernels_##name),
static const ct_kernel *const table[] = {
#include "gen/kernels.inc"
};
#undef CT_KERNEL_ENTRY

const ct_kernel *CT_ISA_FN(ct__cpu_kernels)(int op_index);
const ct_kernel *CT_ISA_FN(ct__cpu_kernels)(int op_index) {
    return op_index >= 0 && (size_t)op_index < sizeof table / sizeof table[0] ? table[op_index] : NULL;
}
