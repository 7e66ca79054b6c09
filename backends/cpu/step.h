/* A kernel as a step of a fused call (cotangent/fused.h): what the fused kernel of the CPU (ops/fused/cpu) has to know of it to do it for a
 * part of the elements, with operands that lie in small buffers. Kernel files name it in their tables (CT_CANDIDATES_STEP). */
#ifndef COTANGENT_BACKENDS_CPU_STEP_H
#define COTANGENT_BACKENDS_CPU_STEP_H

#include "backends/cpu/elementwise.h"

/* What few steps have; whatever is NULL is not there. ptr is as in `part`, of operands that are small or whole alone. */
typedef struct ct_cpu_step_more {
    /* Elements of a row: parts are whole rows; 0: it cannot be done in parts after all. Otherwise any elements will do. */
    int64_t (*row)(const ct_call *call);
    /* Before all parts: it makes the outputs that are small. */
    void (*begin)(const ct_call *call, char *const *ptr);
    /* A step whose every element depends on many: all of its inputs are gone over once by `first`, in parts and in any order, which leaves sums
     * in the call's scratch; then comes `settle`, once, which makes outputs that are whole; and then the parts. */
    void (*first)(const ct_call *call, int64_t first, int64_t n, char *const *ptr);
    void (*settle)(const ct_call *call, char *const *ptr);
    /* Behind all parts: it makes the outputs that are whole, out of what parts have left in the call's scratch. */
    void (*end)(const ct_call *call, char *const *ptr);
    /* Rows of a chunk, which is done in order, by one worker; otherwise any will do. Only such a call, and one with `first`, has scratch:
     * for all parts, as its kernel says. */
    int64_t (*chunk)(const ct_call *call);
} ct_cpu_step_more;

/* elementwise or part is there. Whatever parts it is done in, the elements have the bits that a call of the kernel would give them. There is
 * one for each kernel of an elementwise op at each level, so it is kept to 32 bytes. */
typedef struct ct_cpu_step {
    const ct_elementwise *elementwise; /* an inner function, called for any contiguous elements */
    /* Elements first to first + n - 1 of the call, all of whose operands are dense: ptr are the places of its inputs, then of its outputs,
     * from element `first` on; NULL: not there. */
    void (*part)(const ct_call *call, int64_t first, int64_t n, char *const *ptr);
    const ct_cpu_step_more *more; /* NULL: nothing of it */
    /* Operands (inputs, then outputs, a bit each) that are no elements of the call but a few numbers; that are taken whole: weights. ptr is
     * where they begin. */
    uint16_t small, whole;
    int cost; /* of an element, in simple instructions */
} ct_cpu_step;

enum { CT_STEP_SMALL = 64, CT_STEP_OPERANDS = 14 }; /* bytes of a small operand; operands, at most */

/* Of the kernel that the call names; NULL: it is no step. */
const ct_cpu_step *ct__cpu_step(const ct_call *call);

#endif
