/* Several calls done as one: what a kernel of the op "fused" gets as its attributes. A pass over captured graphs makes such calls where
 * a backend has a kernel for them; a backend without one runs the calls one by one.
 *
 * The steps are in an order in which they may run one after the other, and mean just that: whatever a kernel does, outputs hold what the
 * calls would leave there, each result rounded to its dtype. What only steps read is never written to memory. */
#ifndef COTANGENT_FUSED_H
#define COTANGENT_FUSED_H

#include <cotangent/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a step reads or makes. One that is made is dense, in row-major order; element i of a step's operand is that of its own shape, which
 * may differ from step to step by a reshape. */
typedef struct ct_fused_value {
    ct_dtype dtype;
    int64_t count;  /* elements */
    int input;      /* of the fused call, where it comes from; -1: step `made` makes it */
    int output;     /* of the fused call, where it goes; -1: only steps read it */
    int made, last; /* steps: the one that makes it, -1 for an input; the last one that reads it, -1 if none does */
} ct_fused_value;

typedef struct ct_fused_step {
    /* op, attributes, numbers, random position, flags, and the CPU's kernel; views have the shape and strides that the step sees, and
     * a buffer only where they are numbers: where a value lies, the views of the fused call say */
    ct_call call;
    const int *values; /* of its inputs, then of its outputs; -1: a number, or not there */
} ct_fused_step;

/* The attributes of a call of "fused". It lives as long as the graph, and its address is that of no other while it lives. Only random
 * positions change between two runs. */
typedef struct ct_fused {
    int64_t count; /* elements of its largest value */
    int n_steps, n_values;
    ct_fused_step *steps;
    const ct_fused_value *values;
    uint64_t hash; /* of all but addresses and random positions: two with the same text of a kernel have the same */
} ct_fused;

#ifdef __cplusplus
}
#endif
#endif
