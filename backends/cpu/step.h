/* A kernel as a step of a fused call (cotangent/fused.h): what the fused kernel of the CPU (ops/fused/cpu) has to know of it to do it for a
 * part of the elements, with operands that lie in small buffers. Kernel files name it in their tables (CT_CANDIDATES_STEP). */
#ifndef COTANGENT_BACKENDS_CPU_STEP_H
#define COTANGENT_BACKENDS_CPU_STEP_H

#include "backends/cpu/elementwise.h"

/* One of its ways is there. Whatever part it is done for, the elements have the bits that a call of the kernel would give them. */
typedef struct ct_cpu_step {
    const ct_elementwise *elementwise; /* an inner function, called for any contiguous elements */
    /* Elements first to first + n - 1 of the call, all of whose operands are dense but for those in `small`: ptr are the places of its inputs,
     * then of its outputs, from element `first` on; NULL: not there. */
    void (*part)(const ct_call *call, int64_t first, int64_t n, char *const *ptr);
    /* Before all parts: it makes the outputs that are small. NULL: there are none. */
    void (*begin)(const ct_call *call, char *const *ptr);
    /* Operands (inputs, then outputs, a bit each) that are no elements of the call but a few numbers, and dense as well. A call without
     * other outputs is done when it has begun. */
    unsigned small;
    int cost; /* of an element, in simple instructions */
} ct_cpu_step;

enum { CT_STEP_SMALL = 64, CT_STEP_OPERANDS = 8 }; /* bytes of a small operand; operands, at most */

/* Of the kernel that the call names; NULL: it is no step. */
const ct_cpu_step *ct__cpu_step(const ct_call *call);

#endif
